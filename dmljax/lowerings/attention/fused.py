"""Attention as a JAX primitive, which becomes a single kernel on a GPU and on a TPU.

It has derivatives of any order in both modes: a kernel computes those of reverse mode, and the formula all others.

Arrays have the dimensions that `attention_kernels` describes; the first may be 1 instead of the batch.
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
from jax.sharding import NamedSharding, PartitionSpec

from dmljax.lowerings.kernels import primitives

Arrays = dict[str, Array]  # by name


class Way(NamedTuple):
    """How attention is computed, except for the arrays."""

    chip: str  # "gpu" or "tpu"
    names: tuple[str, ...]  # of the operands
    in_rows: tuple[str, ...]  # names of operands whose heads lie beside each other in memory, as in a row
    formula: Callable[[Arrays], Any]
    is_part: bool = False  # whether other keys follow, so that results are in float32 and the lse counts

    def dtype(self, of_operand: Any) -> Any:
        """The type of a result or of the slopes by an operand."""
        return np.dtype(np.float32) if self.is_part else of_operand

    def operands(self, arrays: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, arrays, strict=False))

    def results_in_rows(self) -> list[str]:
        """The names of all arrays whose heads lie in rows: results lie like the operands that they belong to."""
        return [*self.in_rows, *(f"by_{name}" for name in self.in_rows), "result", "slope"]


def fused_attention(way: Way, operands: Arrays) -> Array:
    """Attention with the type of the queries."""
    return cast(Array, _attend.bind(*operands.values(), way=way, has_lse=False, marker=primitives.marker())[0])


def part_of_attention(way: Way, operands: Arrays) -> tuple[Array, Array]:
    """Computes attention to some of the keys, and the logarithm of the sum of exp(score) for each query.

    The logarithm is the sum of two elements: the highest score, and the logarithm of the sum of exp(score - highest).
    If all scores are -inf, the highest is, too, and the other has no meaning. `way.formula` computes each query's
    highest score, or takes "highest" for it, and two sums: of exp(score - highest), and of the values times that.
    """
    result, lse = _attend.bind(*operands.values(), way=way, has_lse=True, marker=primitives.marker())
    return result, lse


def slopes_of_part(
    way: Way, operands: Arrays, moving: tuple[str, ...], result: Array, lse: Array, slope: Array
) -> Arrays:
    """The slopes by the operands that `moving` names, from the result, its lse and its slope for all keys."""
    found = _pull.bind(*operands.values(), result, lse, slope, way=way, moving=moving, marker=primitives.marker())
    return {name: _sum_to(x, operands[name].shape) for name, x in zip(moving, found, strict=True)}


_SHARED = ("bias", "is_seen", "begin", "end", "scale", "added", "fill")  # operands that all batches may share
_NUMBERS = ("scale", "added", "fill")  # operands whose derivatives are sums over everything


# The result, and with `has_lse` the two summands of the logarithm of the sum of exp(score) for each query


def _types_of_results(*types: Any, way: Way, has_lse: bool, marker: Any = None) -> list[Any]:
    operands = way.operands(types)
    query, shape = operands["query"], operands["query"].shape[:-1]
    dtype = way.dtype(query.dtype)
    result = query.update(shape=(*shape, operands["value"].shape[-1]), dtype=dtype, weak_type=False)
    lse = query.update(shape=(*shape, 2), dtype=np.dtype(np.float32), weak_type=False)
    return [result, lse][: 1 + has_lse]


def _attended(*arrays: Array, way: Way, has_lse: bool, interpret: bool) -> list[Array]:
    from dmljax.lowerings.kernels import attention as attention_kernels  # slow to import

    operands = _readable(way.operands(arrays))
    *shape, _ = operands["query"].shape
    types = {"result": jax.ShapeDtypeStruct((*shape, operands["value"].shape[-1]), way.dtype(operands["query"].dtype))}
    types |= {"lse": jax.ShapeDtypeStruct((*shape, 2), np.float32)} if has_lse else {}
    results = attention_kernels.FORWARD[way.chip](operands, types, way.results_in_rows(), interpret)
    return [results[name] for name in types]


def _attended_by_formula(*arrays: Array, way: Way, has_lse: bool, marker: Any = None) -> list[Array]:
    """Likewise, with an lse that nothing reads unless this is a part."""
    operands = way.operands(arrays)
    if way.is_part:
        highest, weight, total = way.formula(operands)
        weight = jnp.where(weight == 0, jnp.ones_like(weight), weight)  # all scores are -inf
        return [total / weight, jnp.concatenate([highest, jnp.log(weight)], -1)]
    lse = jnp.zeros((*operands["query"].shape[:-1], 2), np.float32)
    return [way.formula(operands), lse][: 1 + has_lse]


def _readable(operands: Arrays) -> Arrays:
    """Converts booleans to bytes, because kernels do not read booleans."""
    return {name: x.astype(np.int8) if x.dtype == bool else x for name, x in operands.items()}


def _derived(primals: Sequence[Any], tangents: Sequence[Any], *, way: Way, has_lse: bool, marker: Any) -> Any:
    if way.is_part:
        parameters = {"way": way, "has_lse": has_lse, "marker": marker}
        return primitives.derived_by_formula(_attend, _attended_by_formula, primals, tangents, **parameters)
    result, lse = _attend.bind(*primals, way=way, has_lse=True, marker=marker)
    moving = {name: x for name, x in way.operands(tangents).items() if type(x) is not ad.Zero}
    (tangent,) = _move.bind(*primals, result, lse, *moving.values(), way=way, moving=tuple(moving))
    # Only derivatives read the lse, and theirs do not go through it.
    count = 1 + has_lse
    return [result, lse][:count], [tangent, ad.Zero(jax.typeof(lse).to_tangent_aval())][:count]


# The tangent of the result: linear in the tangents of the operands that `moving` names, which follow result and lse


def _types_of_tangent(*types: Any, way: Way, moving: tuple[str, ...]) -> list[Any]:
    return _types_of_results(*types, way=way, has_lse=False)


def _moved(*arrays: Array, way: Way, moving: tuple[str, ...]) -> list[Array]:
    operands, tangents = way.operands(arrays), dict(zip(moving, arrays[len(way.names) + 2 :], strict=True))
    primals = {name: operands[name] for name in moving}
    return [jax.jvp(lambda some: way.formula(operands | some), (primals,), (tangents,))[1]]


def _transposed(slopes: Sequence[Any], *arrays: Any, way: Way, moving: tuple[str, ...]) -> list[Any]:
    known = arrays[: len(way.names) + 2]
    (slope,) = slopes
    if type(slope) is ad.Zero:
        return [None] * len(arrays)
    found = _pull.bind(*known, slope, way=way, moving=moving, marker=primitives.marker())
    operands = way.operands(known)
    sums = [_sum_to(x, operands[name].shape) for name, x in zip(moving, found, strict=True)]
    return [None] * len(known) + sums


def _sum_to(x: Array, shape: Sequence[int]) -> Array:
    """Sums over the dimensions that a shared operand does not have."""
    axes = tuple(i for i, size in enumerate(shape) if size != x.shape[i])
    return jnp.sum(x, axes, keepdims=True) if axes else x


# The slopes by the operands that `moving` names, from the slope by the result; numbers have one for each head


def _type_of_slope(name: str, operands: dict[str, Any]) -> Any:
    query, x = operands["query"], operands[name]
    return query.update(shape=(*query.shape[:3], 1, 1), dtype=x.dtype) if name in _NUMBERS else x


def _types_of_slopes(*types: Any, way: Way, moving: tuple[str, ...], marker: Any) -> list[Any]:
    operands = way.operands(types)
    slopes = (_type_of_slope(name, operands) for name in moving)
    return [x.update(dtype=way.dtype(x.dtype), weak_type=False) for x in slopes]


def _pulled_by_formula(*arrays: Array, way: Way, moving: tuple[str, ...], marker: Any = None) -> list[Array]:
    operands, slope = way.operands(arrays), arrays[-1]
    heads = operands["query"].shape[:3]
    primals = {
        name: jnp.broadcast_to(operands[name], (*heads, 1, 1)) if name in _NUMBERS else operands[name]
        for name in moving
    }
    slopes: Any = slope
    if way.is_part:  # the result is a quotient of two sums
        result, lse = arrays[len(way.names) : -1]
        operands["highest"], log_of_weight = lse[..., :1], lse[..., 1:]
        share = slope.astype(np.float32) * jnp.exp(-log_of_weight)
        slopes = jnp.zeros_like(log_of_weight), -jnp.sum(share * result, -1, keepdims=True), share
    _, pull = jax.vjp(lambda some: way.formula(operands | some), primals)
    (found,) = pull(slopes)
    return [found[name].astype(way.dtype(found[name].dtype)) for name in moving]


def _pulled(*arrays: Array, way: Way, moving: tuple[str, ...], interpret: bool) -> list[Array]:
    from dmljax.lowerings.kernels import attention as attention_kernels  # slow to import

    operands = _readable(way.operands(arrays))
    result, lse, slope = arrays[len(way.names) :]
    delta = jnp.sum(slope.astype(np.float32) * result.astype(np.float32), -1, keepdims=True)
    column = jax.ShapeDtypeStruct(delta.shape, delta.dtype)
    types = {
        f"by_{name}": column
        if name in _NUMBERS
        else jax.ShapeDtypeStruct(operands[name].shape, way.dtype(operands[name].dtype))
        for name in moving
    }
    operands |= {"lse": lse, "delta": delta, "slope": slope}
    found = attention_kernels.BACKWARD[way.chip](operands, types, way.results_in_rows(), interpret)
    return [
        jnp.sum(found[f"by_{name}"], 3, keepdims=True) if name in _NUMBERS else found[f"by_{name}"] for name in moving
    ]


# vmap: all batches in one dimension


def _folded(primitive: Primitive, arrays: Sequence[Any], axes: Sequence[int | None], **parameters: Any) -> Any:
    way: Way = parameters["way"]
    moving: Collection[str] = parameters.get("moving", ())
    is_pull = primitive is _pull
    names = [*way.names, *([] if primitive is _attend else ["result", "lse", *(["slope"] if is_pull else moving)])]
    count = next(x.shape[axis] for x, axis in zip(arrays, axes, strict=True) if axis is not None)
    place = way.names.index("query")
    batch = arrays[place].shape[0 if axes[place] is None else int(axes[place] == 0)]
    apart = {name for name, axis in zip(names, axes, strict=True) if axis is not None} | {*moving}

    def together(name: str, x: Any, axis: int | None) -> Any:
        if name in _SHARED and name not in apart and x.shape[0] == 1:
            return x
        x = jnp.broadcast_to(x, (count, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        x = jnp.broadcast_to(x, (count, batch, *x.shape[2:]))
        return x.reshape(count * batch, *x.shape[2:])

    every = [together(name, x, axis) for name, x, axis in zip(names, arrays, axes, strict=True)]
    results = [x.reshape(count, batch, *x.shape[1:]) for x in primitive.bind(*every, **parameters)]
    if is_pull:
        shapes = {
            name: x.shape if axis is None else (*x.shape[:axis], *x.shape[axis + 1 :])
            for name, x, axis in zip(names, arrays, axes, strict=False)
        }
        results = [
            x if name in _NUMBERS or shapes[name][0] == batch else jnp.sum(x, 1, keepdims=True)
            for name, x in zip(moving, results, strict=True)
        ]
    return results, [0] * len(results)


# Lowering


def _chip(*, way: Way, moving: tuple[str, ...] = (), has_lse: bool = False) -> str | None:
    """The chip of the kernel, if any; slopes by a bias, which has an element for each score, or a fill have none."""
    return None if {"bias", "fill"} & {*moving} else way.chip


_DIMENSIONS = {
    **dict.fromkeys(("query", "by_query"), "bhgqd"),
    **dict.fromkeys(("key", "by_key"), "bhgkd"),
    **dict.fromkeys(("value", "by_value"), "bhgkv"),
    **dict.fromkeys(("result", "slope"), "bhgqv"),
    "lse": "bhgql",
}  # and of other arrays "bhgqk"; a dimension of size 1 is none of these


def _divided(
    function: Callable[..., list[Array]], *, way: Way, moving: tuple[str, ...] | None = None, has_lse: bool = False
) -> Callable[..., Any]:
    """`function` on a mesh of devices."""
    names = [*way.names, *(() if moving is None else ("result", "lse", "slope"))]
    results = ["result", "lse"][: 1 + has_lse] if moving is None else [f"by_{name}" for name in moving]

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

    return primitives.divided_by(function, rule, shardings)


_attend = primitives.primitive("attention", _types_of_results)
_move = primitives.primitive("attention_tangent", _types_of_tangent)
_pull = primitives.primitive("attention_slopes", _types_of_slopes)
for primitive in (_attend, _move, _pull):
    batching.primitive_batchers[primitive] = partial(_folded, primitive)
mlir.register_lowering(_move, mlir.lower_fun(_moved, multiple_results=True))
primitives.register(_attend, _attended, _attended_by_formula, _divided, _chip)
primitives.register(_pull, _pulled, _pulled_by_formula, _divided, _chip)
ad.primitive_jvps[_attend] = _derived
ad.primitive_jvps[_move] = partial(primitives.derived_by_formula, _move, _moved)
ad.primitive_jvps[_pull] = partial(primitives.derived_by_formula, _pull, _pulled_by_formula)
ad.primitive_transposes[_move] = _transposed
