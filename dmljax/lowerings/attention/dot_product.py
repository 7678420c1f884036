"""Dot-product attention, `softmax(query @ key.T * scale) @ value`, in one kernel or by the formula.

If there are many scores, the formula computes them in blocks of queries.

Queries, keys and values have the shape (..., positions, size); the dimensions before the last two, such as batches and
heads, broadcast. Scores have the shape (..., queries, keys). Inside `jax.shard_map`, each device along an axis of the
mesh may hold one block of the positions and pass its keys and values on to the next.
"""

import functools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import is_symbolic, replace_at
from dmljax.foundation.precision import Precision
from dmljax.foundation.sharding import MeshAxes, axes_by_name, match_varying_axes, may_be_sharded
from dmljax.lowerings.attention import fused as fused_attention
from dmljax.lowerings.platform import choose
from dmljax.types import widened


class Mask(NamedTuple):
    """The keys that each query attends to. A key is hidden if any part hides it; a part that is None hides none.

    All broadcast to the scores; the bounds have size 1 along the keys. `added` is added to the score of a hidden key,
    or `fill` takes its place.
    """

    added: Array | None = None
    is_seen: Array | None = None
    begin: Array | None = None  # the position of the first key that the query attends to
    end: Array | None = None  # the position after the last key
    fill: Array | None = None


def attention(
    query: Array,
    keys: Sequence[Array],
    values: Sequence[Array],
    scale: Array,
    bias: Array | None = None,
    mask: Mask | None = None,
    axis_name: str | None = None,
    *,
    precision: Precision | None,
    keys_in_rows: bool = False,
    division: tuple[MeshAxes, MeshAxes] | None = None,
) -> Array:
    """The softmax of `query @ key.mT * scale + bias` along the keys, times the values, in at least float32.

    `keys` and `values` may be several arrays, which are joined along the positions. `keys_in_rows` says that their
    heads lie beside each other in memory, as those of queries do, and not apart as in a cache. With `axis_name`, each
    device along that axis has a block of the positions, and the bias and the mask have the keys of all blocks.
    `division` has the axes of a mesh of TPUs that divide batches and heads of keys; by default, their names say so.
    """
    division = axes_by_name(query) if division is None else division
    optional = {"query": query, "scale": scale, "bias": bias} | (mask or Mask())._asdict()
    batch = jnp.broadcast_shapes(query.shape[:-2], keys[0].shape[:-2])
    scores = *batch, query.shape[-2], sum(key.shape[-2] for key in keys)
    arrays = {
        name: x.reshape((1,) * (len(scores) - x.ndim) + x.shape) if x.ndim or name in _ALONG_QUERIES else x
        for name, x in optional.items()
        if x is not None
    }
    fitting = [chip for chip in _TYPES_IN_KERNELS if _fits_kernel(chip, scores, query, keys, values, precision)]
    chips = fitting if fitting and min(scores[-2:]) >= _FEWEST_IN_KERNELS else []  # none for open sizes
    in_rows = ("query", *(_PASSED if keys_in_rows else ()))
    if axis_name is not None:
        arrays |= {"key": _join(keys, -2), "value": _join(values, -2)}
        return _attend_among_devices(axis_name, precision, chips, in_rows, arrays)
    on_cpu, at_once = partial(_attend_without_copy, precision), partial(_attend_at_once, precision, keys_in_rows)
    # The checkpoint keeps no scores for the derivative; a CPU keeps them unless it works in blocks. Within one program,
    # XLA reuses the scores.
    elsewhere = jax.checkpoint(at_once, prevent_cse=False)
    if _exceeds(_MOST_ON_CPU, *scores):
        on_cpu = partial(_attend_in_blocks, on_cpu, _MOST_ON_CPU, is_one_by_one=not may_be_sharded(keys[0]))
    if _exceeds(_MOST_ELSEWHERE, *scores):
        elsewhere = partial(_attend_in_blocks, at_once, _MOST_ELSEWHERE)
    kernels: dict[str, Any] = {chip: partial(_attend_in_kernel, elsewhere, chip, in_rows, division) for chip in chips}
    if "gpu" in {*fitting} - {*chips} and keys_in_rows and (count := _count_splits(scores[-1])) > 1:
        kernels["gpu"] = partial(_attend_in_splits, count, precision, in_rows)
    result: Array = choose(arrays, keys, values, cpu=on_cpu, default=elsewhere, **kernels)
    return result


R = TypeVar("R")  # an array, or a tree of arrays
S = TypeVar("S")  # likewise
Arrays = dict[str, Array]  # by the names of the arguments above
Formula = Callable[[Arrays, Sequence[Array], Sequence[Array]], Array]  # takes keys and values as sequences of arrays


# Kernels

_TYPES_IN_KERNELS = {"gpu": (np.float16, jnp.bfloat16, np.float32), "tpu": (jnp.bfloat16, np.float32)}
_FEWEST_IN_KERNELS = 128  # queries, and keys; for fewer, the formula takes no longer
_LARGEST_IN_KERNELS = 256  # elements of a query or a value


def _fits_kernel(
    chip: str,
    scores: Sequence[int],
    query: Array,
    keys: Sequence[Array],
    values: Sequence[Array],
    precision: Any,
) -> bool:
    """Whether a chip's kernel takes operands of these types and sizes at this precision."""
    dtype, sizes = query.dtype, (query.shape[-1], values[0].shape[-1])
    if (
        len(scores) != 5
        or any(map(is_symbolic, (*scores, *sizes)))
        or dtype not in _TYPES_IN_KERNELS[chip]
        or 0 in scores
    ):
        return False
    is_precise = dtype == np.float32 and precision not in (None, lax.Precision.DEFAULT)
    return (
        not is_precise
        and all(x.dtype == dtype and x.shape[:3] == (*query.shape[:2], 1) for x in (*keys, *values))
        and min(sizes) > 0
        and max(sizes) <= _LARGEST_IN_KERNELS
    )


def _attend_in_kernel(
    formula: Formula,
    chip: str,
    in_rows: tuple[str, ...],
    division: tuple[MeshAxes, MeshAxes],
    arrays: Arrays,
    keys: Sequence[Array],
    values: Sequence[Array],
) -> Array:
    """Computes attention in one kernel, which rounds the weights of 16-bit values to 16 bits."""
    dtype = arrays["query"].dtype
    operands = _operands(arrays | {"key": _join(keys, -2), "value": _join(values, -2)})

    def formula_of_operands(operands: Arrays) -> Array:
        return formula(operands, [operands["key"]], [operands["value"]]).astype(dtype)

    spec = fused_attention.AttentionSpec(chip, tuple(operands), in_rows, formula_of_operands, division)
    return fused_attention.fused_attention(spec, operands).astype(widened(dtype))


def _operands(arrays: Arrays) -> Arrays:
    """The arrays in the shapes that kernels take."""
    key = arrays["key"]
    operands = {name: x.reshape((1,) * (key.ndim - x.ndim) + x.shape) for name, x in arrays.items()}
    return operands | {
        name: jnp.broadcast_to(x, (*x.shape[:-1], key.shape[-2]))
        for name, x in operands.items()
        if name in ("bias", "is_seen")
    }


_MOST_SPLITS = 16
_FEWEST_IN_SPLITS = 256  # keys


def _count_splits(keys: int) -> int:
    """How many programs share the keys of a head if there are few queries."""
    count = math.gcd(keys, _MOST_SPLITS)
    while count > 1 and keys // count < _FEWEST_IN_SPLITS:
        count //= 2
    return count


def _attend_in_splits(
    count: int,
    precision: Any,
    in_rows: tuple[str, ...],
    arrays: Arrays,
    keys: Sequence[Array],
    values: Sequence[Array],
) -> Array:
    """Computes the attention of few queries in a kernel whose programs share the keys.

    A GPU's products would transpose keys and values whose heads lie beside each other: one token of 8 sequences with
    4,096 keys each moves 425 MB by the formula, and 141 MB by this kernel, of which keys and values are 134 MB.
    """
    operands = _operands(arrays | {"key": _join(keys, -2), "value": _join(values, -2)})
    batch, size = operands["query"].shape[0], operands["key"].shape[3] // count
    first = (np.arange(batch * count, dtype=np.int32) % count * size).reshape(-1, 1, 1, 1, 1)

    def split_operand(name: str, x: Array) -> Array:
        """The operand with the shares as batches."""
        if name in ("scale", "added", "fill"):
            return x
        x = jnp.broadcast_to(x, (batch, *x.shape[1:]))
        axis = {"key": 3, "value": 3, "bias": 4, "is_seen": 4}.get(name)
        if axis is None:
            x = jnp.repeat(x, count, 0)
            return x - first if name in ("begin", "end") else x
        parts = jnp.moveaxis(x.reshape(replace_at(x.shape, axis, count, size)), axis, 1)
        return parts.reshape(batch * count, *parts.shape[2:])

    sums = _sums_in_kernel("gpu", precision, in_rows, {name: split_operand(name, x) for name, x in operands.items()})
    highest, weight, total = (x.reshape(batch, count, *x.shape[1:]) for x in sums)
    factors = jnp.exp(highest - _finite(jnp.max(highest, 1, keepdims=True)))
    return jnp.sum(total * factors, 1) / jnp.sum(weight * factors, 1)


# The formula


def _attend_at_once(
    precision: Any, keys_in_rows: bool, arrays: Arrays, keys: Sequence[Array], values: Sequence[Array]
) -> Array:
    """Computes attention in the form that XLA fuses best on a GPU and a TPU."""
    multiply = partial(jnp.einsum, precision=precision)
    query, key, value = arrays["query"], _join(keys, -2), _join(values, -2)
    score_equation, value_equation = "...qd,...kd->...qk", "...qk,...kd->...qd"
    if keys_in_rows:
        # Callers transpose arrays with positions second, and XLA cancels the two transpositions. Without this, JAX
        # 0.10.2 chooses layouts for a TPU v5e that make gradients up to 1.7 times as expensive. Nobody transposes a
        # cache: with this, a decoding step on an H100 would move its values three times.
        query, key, value = (jnp.moveaxis(x, -2, 1) for x in (query, key, value))
        score_equation, value_equation = "bq...d,bk...d->b...qk", "b...qk,bk...d->bq...d"
    scores = _scores(_multiply(partial(multiply, score_equation), query, key), arrays)
    weights = jax.nn.softmax(scores, -1).astype(value.dtype)  # 16-bit factors stay so, as in JAX's attention
    result = _multiply(partial(multiply, value_equation), weights, value)
    return jnp.moveaxis(result, 1, -2) if keys_in_rows else result


def _attend_without_copy(precision: Any, arrays: Arrays, keys: Sequence[Array], values: Sequence[Array]) -> Array:
    """Computes attention without copying past keys and values, which costs a CPU more than the products.

    With 1,023 past positions of 12 heads in a batch of 8, a step takes 23 ms on a CPU of two cores, and 53 ms with the
    copy.
    """
    scores = _scores(_join([_product(arrays["query"], key.mT, precision) for key in keys], -1), arrays)
    # Probs before their division by the sum
    probs = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, -1, keepdims=True, initial=-np.inf)))
    parts, first = [], 0
    for value in values:
        some = lax.slice_in_dim(probs, first, first + value.shape[-2], axis=-1)
        parts.append(_product(some, value, precision))
        first += value.shape[-2]
    total = functools.reduce(jnp.add, parts)
    return total if probs.shape[-1] == 0 else total / jnp.sum(probs, -1, keepdims=True)


def _join(arrays: Sequence[Array], axis: int) -> Array:
    return jnp.concatenate(arrays, axis) if len(arrays) > 1 else arrays[0]


def _product(a: Array, b: Array, precision: Any) -> Array:
    """`a @ b`, in at least float32."""
    return _multiply(partial(jnp.matmul, precision=precision), a, b)


def _multiply(multiply: Callable[..., Array], a: Array, b: Array) -> Array:
    """Calls `multiply(a, b)` in at least float32, after converting both factors to it if their types differ."""
    wide = widened(a.dtype)
    if a.dtype != b.dtype:
        a, b = a.astype(wide), b.astype(wide)
    return multiply(a, b, preferred_element_type=wide)


def _scores(products: Array, arrays: Arrays) -> Array:
    """The scores from the products of queries and keys."""
    scores = products * arrays["scale"]
    if "bias" in arrays:
        scores += arrays["bias"].astype(scores.dtype)
    position = lax.broadcasted_iota(np.int32, (1,) * (scores.ndim - 1) + scores.shape[-1:], scores.ndim - 1)
    conditions = [arrays["is_seen"]] if "is_seen" in arrays else []
    conditions += [position >= arrays["begin"]] if "begin" in arrays else []
    conditions += [position < arrays["end"]] if "end" in arrays else []
    if not conditions:
        return scores
    is_seen = functools.reduce(jnp.logical_and, conditions)
    if "fill" in arrays:
        return jnp.where(is_seen, scores, arrays["fill"])
    amount = arrays["added"]
    return scores + jnp.where(is_seen, jnp.zeros_like(amount), amount)


# Blocks of queries

# On a CPU of two cores with JAX 0.10.2, 16 heads of size 64 and 4,096 positions take 0.28 s, against 1.6 s for
# `jax.nn.dot_product_attention`; 12 heads of 512 positions take 8.6 ms, against 11.1. Heads run one after another, in
# 80 MiB of memory. All heads together in blocks took 1.8 times as long, and all scores at once 5 times as long, with 2
# GiB.

_MOST_ON_CPU = 2**21  # scores that a CPU computes at once
_MOST_ELSEWHERE = 2**30  # 4 GiB of them in float32
_MOST_IN_RING = 2**27  # elsewhere, on one of the devices of a ring
_MOST_QUERIES = 512  # in a block

_ALONG_QUERIES = ("query", "bias", "is_seen", "begin", "end", "highest")


def _exceeds(most: int, *sizes: int) -> bool:
    """Whether the product of the sizes is known to exceed `most`."""
    return not any(map(is_symbolic, sizes)) and math.prod(sizes) > most


def _attend_in_blocks(
    formula: Formula,
    most: int,
    arrays: Arrays,
    keys: Sequence[Array],
    values: Sequence[Array],
    *,
    is_one_by_one: bool = False,
) -> Array:
    """Computes attention in blocks of queries with at most `most` scores, with all heads at once or in turn."""
    arrays = arrays | {"key": _join(keys, -2), "value": _join(values, -2)}

    @jax.checkpoint  # so that the derivative computes a block again instead of keeping it
    def attend_block(block: Arrays) -> Array:
        return formula(block, [block["key"]], [block["value"]])

    attend_all = partial(_map_query_blocks, attend_block, most)
    axes = [axis for axis in range(-arrays["key"].ndim, -2) if arrays["key"].shape[axis] > 1] if is_one_by_one else []
    attend_each = functools.reduce(
        lambda attend_index, axis: partial(_map_axis, axis, attend_index), reversed(axes), attend_all
    )
    return cast(Array, attend_each(arrays))


def _map_axis(axis: int, attend_index: Callable[[Arrays], Array], arrays: Arrays) -> Array:
    """Calls `attend_index` for each index of an axis before the last two, in sequence."""
    parts = {name: _split_blocks(x, axis, 1) for name, x in arrays.items() if x.ndim and x.shape[axis] > 1}
    results = lax.map(lambda some: attend_index(arrays | some), parts)
    return jnp.moveaxis(jnp.squeeze(results, axis), 0, axis)


def _map_query_blocks(attend_block: Callable[[Arrays], R], most: int, arrays: Arrays) -> R:
    """Calls `attend_block` for each block of queries, in sequence, and joins the results."""
    query, key = arrays["query"], arrays["key"]
    whole = query.shape[-2]
    scores_per_query = math.prod(jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2])) * key.shape[-2]
    count = -(-whole // min(max(most // scores_per_query, 1), _MOST_QUERIES))
    if count == 1:
        return attend_block(arrays)
    size = -(-whole // count)  # the fewest blocks, which share the queries evenly
    blocks = {
        name: _split_blocks(arrays[name], -2, size)
        for name in _ALONG_QUERIES
        if name in arrays and arrays[name].shape[-2] > 1
    }

    def join(results: Array) -> Array:
        rows = jnp.moveaxis(results, 0, -3)
        return lax.slice_in_dim(rows.reshape(*rows.shape[:-3], -1, rows.shape[-1]), 0, whole, axis=-2)

    return cast(R, jax.tree.map(join, lax.map(lambda some: attend_block(arrays | some), blocks)))


def _split_blocks(x: Array, axis: int, size: int) -> Array:
    """Blocks of `size` along `axis`, in a new first dimension; the last block is padded with its last element."""
    axis %= x.ndim
    count = -(-x.shape[axis] // size)
    filling = [(0, count * size - x.shape[axis] if i == axis else 0) for i in range(x.ndim)]
    whole = jnp.pad(x, filling, mode="edge")
    return jnp.moveaxis(whole.reshape(replace_at(x.shape, axis, count, size)), axis, 0)


# Sums over some of the keys, which add up to the attention to all


class _Sums(NamedTuple):
    """Sums over some keys, for each query."""

    highest: Array  # score
    weight: Array  # the sum of exp(score - highest)
    total: Array  # the sum of the values times that

    def plus(self, other: "_Sums") -> "_Sums":
        highest = jnp.maximum(self.highest, other.highest)
        share, other_share = (jnp.exp(sums.highest - _finite(highest)) for sums in (self, other))
        return _Sums(highest, *(a * share + b * other_share for a, b in zip(self[1:], other[1:], strict=True)))


def _sum_block(precision: Any, arrays: Arrays) -> _Sums:
    """Sums over the keys in `arrays` by the formula, with "highest", if present, as the highest score."""
    scores = _scores(_product(arrays["query"], arrays["key"].mT, precision), arrays)
    highest = arrays.get("highest", lax.stop_gradient(jnp.max(scores, -1, keepdims=True, initial=-np.inf)))
    probs = jnp.exp(scores - _finite(highest))
    total = _product(probs, arrays["value"], precision)
    return _Sums(highest, jnp.sum(probs, -1, keepdims=True), total)


def _sums_in_kernel(chip: str, precision: Any, in_rows: tuple[str, ...], operands: Arrays) -> _Sums:
    """Likewise, in a chip's kernel."""
    result, lse = fused_attention.part_of_attention(_part_spec(chip, precision, in_rows, operands), operands)
    highest, weight = lse[..., :1], jnp.exp(lse[..., 1:])
    is_empty = highest == -np.inf
    return _Sums(highest, *(jnp.where(is_empty, jnp.zeros_like(x), x) for x in (weight, result * weight)))


def _part_spec(chip: str, precision: Any, in_rows: tuple[str, ...], operands: Arrays) -> fused_attention.AttentionSpec:
    def formula(operands: Arrays) -> tuple[Array, ...]:
        return tuple(_sum_block(precision, operands))

    return fused_attention.AttentionSpec(chip, tuple(operands), in_rows, formula, is_part=True)


def _zero_sums(arrays: Arrays) -> _Sums:
    query, key, value = arrays["query"], arrays["key"], arrays["value"]
    batch, wide = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2]), widened(query.dtype)
    zero = jnp.broadcast_to(jnp.sum(jnp.zeros_like(query, wide), -1, keepdims=True), (*batch, query.shape[-2], 1))
    return _Sums(zero - np.inf, zero, jnp.broadcast_to(zero, (*zero.shape[:-1], value.shape[-1])))


def _finite(highest: Array) -> Array:
    """Replaces -inf by 0, so that the exponentials of scores that are all -inf are 0 and not NaN."""
    return jnp.where(highest == -np.inf, jnp.zeros_like(highest), highest)


# A ring of devices

# Each device has the keys and values of one block at a time. The backward pass sends them around once more, with their
# gradients, and computes the scores again, so that a device never keeps more than a few blocks.


_PASSED = ("key", "value")


class _Ring(NamedTuple):
    """How devices compute an attention together."""

    axis_name: str
    precision: Any
    most: int  # scores that a device computes at once by the formula
    chip: str | None = None  # whose kernel computes the sums
    in_rows: tuple[str, ...] = ()  # as in `fused_attention.AttentionSpec`

    def walk(self, step: Callable[[S, Array, R], tuple[S, R]], state: S, message: R) -> tuple[S, R]:
        """Calls `step` for each device of the ring, with the state, the device's index, and that device's message.

        `step` returns the next state and message. At the end, each device has the message that it began with.
        """
        count, device = lax.axis_size(self.axis_name), lax.axis_index(self.axis_name)
        onward = [(index, (index + 1) % count) for index in range(count)]

        def pass_on(index: Array, carry: tuple[S, R]) -> tuple[S, R]:
            state, message = carry
            state, message = step(state, (device - index) % count, message)
            return state, lax.ppermute(message, self.axis_name, onward)

        return cast(tuple[S, R], lax.fori_loop(0, count, pass_on, (state, message)))

    def sums(self, arrays: Arrays, device: Array) -> _Sums:
        """Sums over the keys in `arrays`, which come from `device`."""
        arrays = _slice_to_device(arrays, device)
        if self.chip is None:
            attend_block = jax.checkpoint(partial(_sum_block, self.precision))  # derivatives compute a block again
            return cast(_Sums, _map_query_blocks(attend_block, self.most, arrays))
        return _sums_in_kernel(self.chip, self.precision, self.in_rows, _operands(arrays))

    def grads(
        self, floats: Arrays, others: Arrays, device: Array, ring_sums: _Sums, result: Array, grad: Array
    ) -> Arrays:
        """Returns the derivatives by `floats` due to its keys, which come from `device`.

        `ring_sums` and `result` cover the keys of all devices.
        """
        if self.chip is None:
            # The result is a quotient of two sums over all keys, so each block's part of a sum has the sum's gradient.
            weight_grad = -jnp.sum(grad * result, -1, keepdims=True) / ring_sums.weight
            sum_grads = _Sums(jnp.zeros_like(ring_sums.highest), weight_grad, grad / ring_sums.weight)
            others = others | {"highest": ring_sums.highest}
            _, vjp = jax.vjp(lambda floats: self.sums(floats | others, device), floats)
            return cast(Arrays, vjp(sum_grads)[0])

        def split_operands(floats: Arrays) -> tuple[Arrays, Arrays]:
            operands = _operands(_slice_to_device(floats | others, device))
            return {name: operands[name] for name in floats}, operands

        some, vjp, operands = jax.vjp(split_operands, floats, has_aux=True)
        lse = jnp.concatenate([ring_sums.highest, jnp.log(ring_sums.weight)], -1)
        grad = grad.astype(operands["query"].dtype)  # exact: the result was rounded to this type
        spec = _part_spec(self.chip, self.precision, self.in_rows, operands)
        grads = fused_attention.grads_of_part(spec, operands, tuple(some), result, lse, grad)
        return cast(Arrays, vjp({name: x.astype(some[name].dtype) for name, x in grads.items()})[0])


def _slice_to_device(arrays: Arrays, device: Array) -> Arrays:
    """Cuts the mask and the bias for all keys to the keys of one device."""
    count = arrays["key"].shape[-2]
    first = device * count
    cut = {
        name: lax.dynamic_slice_in_dim(arrays[name], first, count, -1)
        for name in ("bias", "is_seen")
        if name in arrays and arrays[name].shape[-1] > 1
    }
    return arrays | cut | {name: arrays[name] - first for name in ("begin", "end") if name in arrays}


def _attend_among_devices(
    axis_name: str, precision: Any, chips: Sequence[str], in_rows: tuple[str, ...], arrays: Arrays
) -> Array:
    """Computes the attention to the keys of all devices along an axis of the mesh."""
    on_cpu, elsewhere = (_Ring(axis_name, precision, most) for most in (_MOST_ON_CPU, _MOST_IN_RING))
    kernels: dict[str, Any] = {
        chip: partial(_attend_in_ring, elsewhere._replace(chip=chip, in_rows=in_rows)) for chip in chips
    }
    # Each device gets its own blocks, even of an array that all of them share.
    floats, others = _split_floats(match_varying_axes(arrays, lax.axis_index(axis_name)))
    by_platform = {"cpu": partial(_attend_in_ring, on_cpu), "default": partial(_attend_in_ring, elsewhere)} | kernels
    result: Array = choose(floats, others, **by_platform)
    return result


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend_in_ring(ring: _Ring, floats: Arrays, others: Arrays) -> Array:
    return _forward(ring, floats, others)[0]


def _forward(ring: _Ring, floats: Arrays, others: Arrays) -> tuple[Array, Any]:
    arrays = floats | others

    def step(sums: _Sums, device: Array, block: Arrays) -> tuple[_Sums, Arrays]:
        return sums.plus(ring.sums(arrays | block, device)), block

    block = {name: arrays[name] for name in _PASSED}
    sums, _ = ring.walk(step, _zero_sums(arrays), block)
    result = sums.total / sums.weight
    return result, (floats, others, sums, result)


def _backward(ring: _Ring, residuals: Any, grad: Array) -> tuple[Arrays, None]:
    floats, others, sums, result = residuals
    at_home = {name: x for name, x in floats.items() if name not in _PASSED}

    def step(state: Arrays, device: Array, message: Any) -> tuple[Arrays, Any]:
        block, grads = message
        more = ring.grads(at_home | block, others, device, sums, result, grad)
        totals = {name: x + more[name].astype(x.dtype) for name, x in (state | grads).items()}
        return {name: totals[name] for name in state}, (block, {name: totals[name] for name in grads})

    wide = {name: jnp.zeros_like(x, widened(x.dtype)) for name, x in floats.items()}
    block, grads = ({name: tree[name] for name in _PASSED} for tree in (floats, wide))
    state, (_, grads) = ring.walk(step, {name: wide[name] for name in at_home}, (block, grads))
    return {name: x.astype(floats[name].dtype) for name, x in (state | grads).items()}, None


_attend_in_ring.defvjp(_forward, _backward)


def _split_floats(arrays: Arrays) -> tuple[Arrays, Arrays]:
    """Splits the arrays into those that have derivatives and the others."""
    floats = {name: x for name, x in arrays.items() if jnp.issubdtype(x.dtype, jnp.inexact)}
    return floats, {name: x for name, x in arrays.items() if name not in floats}
