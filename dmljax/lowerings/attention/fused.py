"""Attention as a JAX primitive, which becomes a single kernel on a GPU and on a TPU.

It has derivatives of any order in both modes: a kernel computes those of reverse mode, and the formula all others.

Arrays have the dimensions that `kernels/attention.py` describes; the first may be 1 instead of the batch.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from dmljax.foundation.sharding import MeshAxes, axes_dividing
from dmljax.lowerings.kernels import primitives

Arrays = dict[str, Array]  # by name


class AttentionSpec(NamedTuple):
    """How attention is computed, except for the arrays."""

    chip: str  # "gpu" or "tpu"
    names: tuple[str, ...]  # of the operands
    in_rows: tuple[str, ...]  # names of operands whose heads lie beside each other in memory, as in a row
    formula: Callable[[Arrays], Any]
    division: tuple[MeshAxes, MeshAxes] = (None, None)  # of batches and heads of keys on a mesh of TPUs
    is_part: bool = False  # whether other keys follow, so that results are in float32 and the lse counts

    def dtype(self, operand_dtype: Any) -> Any:
        """The type of a result or of the gradient by an operand."""
        return np.dtype(np.float32) if self.is_part else operand_dtype

    def operands(self, arrays: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, arrays, strict=False))

    def results_in_rows(self) -> list[str]:
        """The names of all arrays whose heads lie in rows: results lie like the operands that they belong to."""
        return [*self.in_rows, *(GRADS[name] for name in self.in_rows), "result", "grad"]


def fused_attention(spec: AttentionSpec, operands: Arrays) -> Array:
    """Attention with the type of the queries."""
    return cast(Array, _attend.bind(*operands.values(), spec=spec, has_lse=False, marker=primitives.marker())[0])


def part_of_attention(spec: AttentionSpec, operands: Arrays) -> tuple[Array, Array]:
    """Computes attention to some of the keys, and the logarithm of the sum of exp(score) for each query.

    The logarithm is the sum of two elements: the highest score, and the logarithm of the sum of exp(score - highest).
    If all scores are -inf, so is the highest, and the other has no meaning. `spec.formula` computes each query's
    highest score, or takes "highest" for it, and two sums: of exp(score - highest), and of the values times that.
    """
    result, lse = _attend.bind(*operands.values(), spec=spec, has_lse=True, marker=primitives.marker())
    return result, lse


def grads_of_part(
    spec: AttentionSpec, operands: Arrays, wrt: tuple[str, ...], result: Array, lse: Array, grad: Array
) -> Arrays:
    """The gradients by the operands that `wrt` names, from the result, its lse and its gradient for all keys."""
    grads = _vjp.bind(*operands.values(), result, lse, grad, spec=spec, wrt=wrt, marker=primitives.marker())
    return {name: _sum_to(x, operands[name].shape) for name, x in zip(wrt, grads, strict=True)}


# The names of the gradients by the operands
GRADS = {
    "query": "dq",
    "key": "dk",
    "value": "dv",
    "bias": "dbias",
    "scale": "dscale",
    "added": "dadded",
    "fill": "dfill",
}
_SHARED = ("bias", "is_seen", "begin", "end", "scale", "added", "fill")  # operands that all batches may share
_NUMBERS = ("scale", "added", "fill")  # operands whose derivatives are sums over everything


# The result, and with `has_lse` the two summands of the logarithm of the sum of exp(score) for each query


def _attend_types(*types: Any, spec: AttentionSpec, has_lse: bool, marker: Any = None) -> list[Any]:
    operands = spec.operands(types)
    query, shape = operands["query"], operands["query"].shape[:-1]
    dtype = spec.dtype(query.dtype)
    result = query.update(shape=(*shape, operands["value"].shape[-1]), dtype=dtype, weak_type=False)
    lse = query.update(shape=(*shape, 2), dtype=np.dtype(np.float32), weak_type=False)
    return [result, lse][: 1 + has_lse]


def _attend_in_kernel(*arrays: Array, spec: AttentionSpec, has_lse: bool, interpret: bool) -> list[Array]:
    from dmljax.lowerings.kernels import attention as attention_kernels  # slow to import

    operands = _with_bytes(spec.operands(arrays))
    *shape, _ = operands["query"].shape
    types = {"result": jax.ShapeDtypeStruct((*shape, operands["value"].shape[-1]), spec.dtype(operands["query"].dtype))}
    types |= {"lse": jax.ShapeDtypeStruct((*shape, 2), np.float32)} if has_lse else {}
    results = attention_kernels.FORWARD[spec.chip](operands, types, spec.results_in_rows(), interpret)
    return [results[name] for name in types]


def _attend_by_formula(*arrays: Array, spec: AttentionSpec, has_lse: bool, marker: Any = None) -> list[Array]:
    """Likewise, with an lse that nothing reads unless this is a part."""
    operands = spec.operands(arrays)
    if spec.is_part:
        highest, weight, total = spec.formula(operands)
        weight = jnp.where(weight == 0, jnp.ones_like(weight), weight)  # all scores are -inf
        return [total / weight, jnp.concatenate([highest, jnp.log(weight)], -1)]
    lse = jnp.zeros((*operands["query"].shape[:-1], 2), np.float32)
    return [spec.formula(operands), lse][: 1 + has_lse]


def _with_bytes(operands: Arrays) -> Arrays:
    """Converts booleans to bytes, because kernels do not read booleans."""
    return {name: x.astype(np.int8) if x.dtype == bool else x for name, x in operands.items()}


def _attend_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, spec: AttentionSpec, has_lse: bool, marker: Any
) -> Any:
    if spec.is_part:
        parameters = {"spec": spec, "has_lse": has_lse, "marker": marker}
        return primitives.jvp_by_formula(_attend, _attend_by_formula, primals, tangents, **parameters)
    result, lse = _attend.bind(*primals, spec=spec, has_lse=True, marker=marker)
    wrt = {name: x for name, x in spec.operands(tangents).items() if type(x) is not ad.Zero}
    (tangent,) = _jvp.bind(*primals, result, lse, *wrt.values(), spec=spec, wrt=tuple(wrt))
    # Only derivatives read the lse, and theirs do not go through it.
    count = 1 + has_lse
    return [result, lse][:count], [tangent, ad.Zero(jax.typeof(lse).to_tangent_aval())][:count]


# The tangent of the result: linear in the tangents of the operands that `wrt` names, which follow `result` and `lse`


def _jvp_types(*types: Any, spec: AttentionSpec, wrt: tuple[str, ...]) -> list[Any]:
    return _attend_types(*types, spec=spec, has_lse=False)


def _jvp_by_formula(*arrays: Array, spec: AttentionSpec, wrt: tuple[str, ...]) -> list[Array]:
    operands, tangents = spec.operands(arrays), dict(zip(wrt, arrays[len(spec.names) + 2 :], strict=True))
    primals = {name: operands[name] for name in wrt}
    return [jax.jvp(lambda some: spec.formula(operands | some), (primals,), (tangents,))[1]]


def _jvp_transpose(cotangents: Sequence[Any], *arrays: Any, spec: AttentionSpec, wrt: tuple[str, ...]) -> list[Any]:
    known = arrays[: len(spec.names) + 2]
    (grad,) = cotangents
    if type(grad) is ad.Zero:
        return [None] * len(arrays)
    grads = _vjp.bind(*known, grad, spec=spec, wrt=wrt, marker=primitives.marker())
    operands = spec.operands(known)
    sums = [_sum_to(x, operands[name].shape) for name, x in zip(wrt, grads, strict=True)]
    return [None] * len(known) + sums


def _sum_to(x: Array, shape: Sequence[int]) -> Array:
    """Sums over the dimensions that a shared operand does not have."""
    axes = tuple(i for i, size in enumerate(shape) if size != x.shape[i])
    return jnp.sum(x, axes, keepdims=True) if axes else x


# The gradients by the operands that `wrt` names, from the gradient by the result; numbers have one for each head


def _grad_type(name: str, operands: dict[str, Any]) -> Any:
    query, x = operands["query"], operands[name]
    return query.update(shape=(*query.shape[:3], 1, 1), dtype=x.dtype) if name in _NUMBERS else x


def _vjp_types(*types: Any, spec: AttentionSpec, wrt: tuple[str, ...], marker: Any) -> list[Any]:
    operands = spec.operands(types)
    types_of_grads = (_grad_type(name, operands) for name in wrt)
    return [x.update(dtype=spec.dtype(x.dtype), weak_type=False) for x in types_of_grads]


def _vjp_by_formula(*arrays: Array, spec: AttentionSpec, wrt: tuple[str, ...], marker: Any = None) -> list[Array]:
    operands, grad = spec.operands(arrays), arrays[-1]
    heads = operands["query"].shape[:3]
    primals = {
        name: jnp.broadcast_to(operands[name], (*heads, 1, 1)) if name in _NUMBERS else operands[name] for name in wrt
    }
    cotangents: Any = grad
    if spec.is_part:  # the result is a quotient of two sums
        result, lse = arrays[len(spec.names) : -1]
        operands["highest"], log_of_weight = lse[..., :1], lse[..., 1:]
        share = grad.astype(np.float32) * jnp.exp(-log_of_weight)
        cotangents = jnp.zeros_like(log_of_weight), -jnp.sum(share * result, -1, keepdims=True), share
    _, vjp = jax.vjp(lambda some: spec.formula(operands | some), primals)
    (grads,) = vjp(cotangents)
    return [grads[name].astype(spec.dtype(grads[name].dtype)) for name in wrt]


def _vjp_in_kernel(*arrays: Array, spec: AttentionSpec, wrt: tuple[str, ...], interpret: bool) -> list[Array]:
    from dmljax.lowerings.kernels import attention as attention_kernels  # slow to import

    operands = _with_bytes(spec.operands(arrays))
    result, lse, grad = arrays[len(spec.names) :]
    delta = jnp.sum(grad.astype(np.float32) * result.astype(np.float32), -1, keepdims=True)
    column = jax.ShapeDtypeStruct(delta.shape, delta.dtype)
    types = {
        GRADS[name]: column
        if name in _NUMBERS
        else jax.ShapeDtypeStruct(operands[name].shape, spec.dtype(operands[name].dtype))
        for name in wrt
    }
    operands |= {"lse": lse, "delta": delta, "grad": grad}
    grads = attention_kernels.BACKWARD[spec.chip](operands, types, spec.results_in_rows(), interpret)
    return [jnp.sum(grads[GRADS[name]], 3, keepdims=True) if name in _NUMBERS else grads[GRADS[name]] for name in wrt]


# vmap: all batches in one dimension


def _batch(primitive: Primitive, arrays: Sequence[Any], axes: Sequence[int | None], **parameters: Any) -> Any:
    spec: AttentionSpec = parameters["spec"]
    wrt: Collection[str] = parameters.get("wrt", ())
    is_vjp = primitive is _vjp
    names = [*spec.names, *([] if primitive is _attend else ["result", "lse", *(["grad"] if is_vjp else wrt)])]
    count = next(x.shape[axis] for x, axis in zip(arrays, axes, strict=True) if axis is not None)
    place = spec.names.index("query")
    batch = arrays[place].shape[0 if axes[place] is None else int(axes[place] == 0)]
    with_batch = {name for name, axis in zip(names, axes, strict=True) if axis is not None} | {*wrt}

    def together(name: str, x: Any, axis: int | None) -> Any:
        if name in _SHARED and name not in with_batch and x.shape[0] == 1:
            return x
        x = jnp.broadcast_to(x, (count, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        x = jnp.broadcast_to(x, (count, batch, *x.shape[2:]))
        return x.reshape(count * batch, *x.shape[2:])

    batched_operands = [together(name, x, axis) for name, x, axis in zip(names, arrays, axes, strict=True)]
    results = [x.reshape(count, batch, *x.shape[1:]) for x in primitive.bind(*batched_operands, **parameters)]
    if is_vjp:
        shapes = {
            name: x.shape if axis is None else (*x.shape[:axis], *x.shape[axis + 1 :])
            for name, x, axis in zip(names, arrays, axes, strict=False)
        }
        results = [
            x if name in _NUMBERS or shapes[name][0] == batch else jnp.sum(x, 1, keepdims=True)
            for name, x in zip(wrt, results, strict=True)
        ]
    return results, [0] * len(results)


# Lowering


def _kernel_chip(*, spec: AttentionSpec, wrt: tuple[str, ...] = (), has_lse: bool = False) -> str | None:
    """The chip of the kernel, if any; gradients by a fill, or by a bias, which may have all scores, have none."""
    return None if {"bias", "fill"} & {*wrt} else spec.chip


_DIMENSIONS = {
    **dict.fromkeys(("query", "dq"), "bhgqd"),
    **dict.fromkeys(("key", "dk"), "bhgkd"),
    **dict.fromkeys(("value", "dv"), "bhgkv"),
    **dict.fromkeys(("result", "grad"), "bhgqv"),
    "lse": "bhgql",
}  # and of other arrays "bhgqk"; a dimension of size 1 is none of these


def _partition(
    function: Callable[..., list[Array]],
    *,
    spec: AttentionSpec,
    wrt: tuple[str, ...] | None = None,
    has_lse: bool = False,
) -> Callable[..., Any]:
    """Partitions `function` over a mesh of devices."""
    names = [*spec.names, *(() if wrt is None else ("result", "lse", "grad"))]
    results = ["result", "lse"][: 1 + has_lse] if wrt is None else [GRADS[name] for name in wrt]

    def rule(mesh: Any, operands: Any, outcomes: Any) -> str:
        ones = (f"x{i}" for i in itertools.count())

        def dimensions(name: str, sizes: Sequence[int]) -> str:
            letters = _DIMENSIONS.get(name, "bhgqk")
            return " ".join(next(ones) if size == 1 else letter for letter, size in zip(letters, sizes, strict=True))

        sides = (zip(names, operands, strict=True), zip(results, outcomes, strict=True))
        return " -> ".join(", ".join(dimensions(name, x.shape) for name, x in side) for side in sides)

    def shardings(mesh: Any, operands: Any, outcomes: Any) -> Any:
        axes = (*operands[names.index("query")].sharding.spec, None, None)[:2]

        def sharding(x: Any) -> NamedSharding:
            return NamedSharding(
                mesh, PartitionSpec(*(axis if size > 1 else None for axis, size in zip(axes, x.shape, strict=False)))
            )

        return [*map(sharding, outcomes)], [*map(sharding, operands)]

    return primitives.partition_by(function, rule, shardings)


def _divide(
    kernel: Any, mesh: AbstractMesh, types: Sequence[Any], outcomes: Sequence[Any], *, spec: AttentionSpec, **_: Any
) -> Any:
    """The kernel on a mesh of TPUs, which divides batches and heads; None if it divides neither, or not equally."""
    sizes = types[spec.names.index("query")].shape[:2]
    axes = [axes_dividing(x, size, mesh) for x, size in zip(spec.division, sizes, strict=True)]
    if not any(axes) or any(x and size > 1 and x not in axes for x, size in zip(spec.division, sizes, strict=True)):
        return None

    def spec_of(x: Any) -> PartitionSpec:
        return PartitionSpec(*(names if size > 1 else None for names, size in zip(axes, x.shape, strict=False)))

    return primitives.divide_by(kernel, mesh, [*map(spec_of, outcomes)], [*map(spec_of, types)])


_attend = primitives.primitive("attention", _attend_types)
_jvp = primitives.primitive("attention_jvp", _jvp_types)
_vjp = primitives.primitive("attention_vjp", _vjp_types)
for primitive in (_attend, _jvp, _vjp):
    batching.primitive_batchers[primitive] = partial(_batch, primitive)
mlir.register_lowering(_jvp, mlir.lower_fun(_jvp_by_formula, multiple_results=True))
primitives.register(_attend, _attend_in_kernel, _attend_by_formula, _partition, _divide, _kernel_chip)
primitives.register(_vjp, _vjp_in_kernel, _vjp_by_formula, _partition, _divide, _kernel_chip)
ad.primitive_jvps[_attend] = _attend_jvp
ad.primitive_jvps[_jvp] = partial(primitives.jvp_by_formula, _jvp, _jvp_by_formula)
ad.primitive_jvps[_vjp] = partial(primitives.jvp_by_formula, _vjp, _vjp_by_formula)
ad.primitive_transposes[_jvp] = _jvp_transpose
