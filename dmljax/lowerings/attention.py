"""Attention: the softmax of scaled products of queries and keys, times values, in blocks where the scores are many.

Queries, keys and values are arrays of the shape (..., positions, size); the dimensions before the last two, such as
batches and heads, broadcast. Scores have the shape (..., queries, keys).
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.lowerings.platform import choose
from dmljax.lowerings.products import chosen_precision
from dmljax.lowerings.sharding import may_be_sharded
from dmljax.lowerings.sizes import is_symbolic, replaced
from dmljax.types import widened

R = TypeVar("R")


class Mask(NamedTuple):
    """The keys that each query sees: what is None hides none, and of several, each hides some.

    All broadcast to the scores; the bounds have size 1 along the keys. `added` is added to the score of a hidden key.
    """

    added: Array | None = None
    is_seen: Array | None = None
    begin: Array | None = None  # the position of the first key that is seen
    end: Array | None = None  # the position after the last one


def attention(
    query: Array,
    keys: Sequence[Array],
    values: Sequence[Array],
    scale: Array,
    bias: Array | None = None,
    mask: Mask | None = None,
    precision: Any = None,
) -> Array:
    """The softmax of `query @ key.mT * scale + bias` along the keys, times the values, in at least float32.

    There may be several arrays of keys, and of values: they follow each other.
    """
    given = {"query": query, "scale": scale, "bias": bias} | (mask or Mask())._asdict()
    hiding = {name: x for name, x in given.items() if x is not None and name in _HIDING}
    floats = {name: x for name, x in given.items() if x is not None and name not in _HIDING}
    batch = jnp.broadcast_shapes(query.shape[:-2], keys[0].shape[:-2])
    sizes = *batch, query.shape[-2], sum(key.shape[-2] for key in keys)
    in_blocks, in_parts, at_once = (partial(way, precision) for way in (_joined_in_blocks, _in_parts, _at_once))
    operands = floats, hiding, keys, values
    if _exceed(_MOST_BYTES, *sizes, widened(query.dtype).itemsize):
        return in_blocks(*operands)
    on_a_cpu = in_blocks if _exceed(_MOST_SCORES, *sizes) else in_parts
    # A checkpoint keeps no scores for the derivative on a CPU, which has others. In one program, XLA finds them again.
    result: Array = choose(*operands, cpu=on_a_cpu, default=jax.checkpoint(at_once, prevent_cse=False))
    return result


Arrays = dict[str, Array]  # by the names of the arguments above
_HIDING = ("is_seen", "begin", "end")  # which have no derivative


def _at_once(precision: Any, floats: Arrays, hiding: Arrays, keys: Sequence[Array], values: Sequence[Array]) -> Array:
    """The attention in the form that XLA fuses best on a GPU and a TPU."""
    multiply = partial(jnp.einsum, precision=chosen_precision(precision))
    query, key, value = (_positions_second(x) for x in (floats["query"], _joined(keys, -2), _joined(values, -2)))
    scores = _scores(_multiplied(partial(multiply, "bq...d,bk...d->b...qk"), query, key), floats | hiding)
    weights = jax.nn.softmax(scores, -1)
    result = _multiplied(partial(multiply, "b...qk,bk...d->bq...d"), weights, value)
    return jnp.moveaxis(result, 1, -2)


def _positions_second(x: Array) -> Array:
    """`x` of the shape (batch, positions, ..., size).

    Callers transpose arrays of that shape, and XLA drops both transpositions. Without this, JAX 0.10.2 lays arrays out
    for a TPU v5e so that gradients cost up to 1.7 times as much.
    """
    return jnp.moveaxis(x, -2, 1)


def _in_parts(precision: Any, floats: Arrays, hiding: Arrays, keys: Sequence[Array], values: Sequence[Array]) -> Array:
    """The attention without a copy of past keys and values, which costs a CPU more than the products.

    With 1,023 past positions of 12 heads in a batch of 8, a step takes 23 ms on a CPU of two cores, and 53 ms with the
    copy.
    """
    scores = _scores(_joined([_product(floats["query"], key.mT, precision) for key in keys], -1), floats | hiding)
    powers = jnp.exp(scores - lax.stop_gradient(jnp.max(scores, -1, keepdims=True, initial=-np.inf)))
    parts, first = [], 0
    for value in values:
        some = lax.slice_in_dim(powers, first, first + value.shape[-2], axis=-1)
        parts.append(_product(some, value, precision))
        first += value.shape[-2]
    total = functools.reduce(jnp.add, parts)
    return total if powers.shape[-1] == 0 else total / jnp.sum(powers, -1, keepdims=True)


def _joined(arrays: Sequence[Array], axis: int) -> Array:
    return jnp.concatenate(arrays, axis) if len(arrays) > 1 else arrays[0]


def _product(a: Array, b: Array, precision: Any) -> Array:
    """`a @ b`, in at least float32."""
    return _multiplied(partial(jnp.matmul, precision=chosen_precision(precision)), a, b)


def _multiplied(multiply: Callable[..., Array], a: Array, b: Array) -> Array:
    """`multiply(a, b)`, in at least float32; converts factors of different types to that."""
    wide = widened(a.dtype)
    if a.dtype != b.dtype:
        a, b = a.astype(wide), b.astype(wide)
    return multiply(a, b, preferred_element_type=wide)


def _scores(products: Array, given: Arrays, first: Any = 0) -> Array:
    """The scores from the products of queries and keys; `first` is the position of the first of these keys."""
    scores = products * given["scale"]
    if "bias" in given:
        scores += given["bias"].astype(scores.dtype)
    position = _positions(products, first)
    seen = [given["is_seen"]] if "is_seen" in given else []
    seen += [position >= given["begin"]] if "begin" in given else []
    seen += [position < given["end"]] if "end" in given else []
    if not seen:
        return scores
    added = given["added"]
    return scores + jnp.where(functools.reduce(jnp.logical_and, seen), jnp.zeros_like(added), added)


def _positions(scores: Array, first: Any) -> Array:
    """The positions of the keys of some scores, which broadcast to them."""
    positions: Array = first + lax.broadcasted_iota(
        np.int32, (1,) * (scores.ndim - 1) + scores.shape[-1:], scores.ndim - 1
    )
    return positions


# Blocks of queries and of keys
#
# What a block of queries makes of a block of keys is the products of its powers with the values, the largest score of
# each query, and the sum of the powers, which are those of the scores below the largest one. Two such results are
# merged into that of the keys of both.

# On a CPU of two cores with JAX 0.10.2, 16 heads of 4,096 positions and of size 64 take 0.28 s, and
# `jax.nn.dot_product_attention` 1.6 s; 12 heads of 512 positions 8.6 and 11.1 ms. That is one head after the other,
# with 80 MiB of memory: where that was chosen, all heads together in blocks took 1.8 times as long, and all scores at
# once 5 times as long, with 2 GiB.

_QUERIES = 512  # of a block
_SCORES = 2**21  # of a block, for all batches and heads in it together
_LEAST_KEYS = 128  # of a block
_MOST_SCORES = 2**21  # that a CPU computes all at once
_MOST_BYTES = 2**29  # of scores that other platforms compute all at once

_ALONG_QUERIES = dict.fromkeys(("query", "bias", *_HIDING, "largest", "share"), -2)
_ALONG_KEYS = {"key": -2, "value": -2, "bias": -1, "is_seen": -1}


def _exceed(most: int, *sizes: int) -> bool:
    """Whether the product of the sizes is known to be more than `most`."""
    return not any(map(is_symbolic, sizes)) and math.prod(sizes) > most


def _joined_in_blocks(
    precision: Any, floats: Arrays, hiding: Arrays, keys: Sequence[Array], values: Sequence[Array]
) -> Array:
    joined = {"key": _joined(keys, -2), "value": _joined(values, -2)}
    return _in_blocks(precision, floats | joined, hiding)[0]


def _queries_of_a_block(given: Arrays) -> int:
    return _evenly(given["query"].shape[-2], _QUERIES)


def _keys_of_a_block(given: Arrays) -> int:
    """How many keys there are in a block, beside the queries in it."""
    batch = jnp.broadcast_shapes(given["query"].shape[:-2], given["key"].shape[:-2])
    of_one_key = math.prod(batch) * given["query"].shape[-2]
    return _evenly(given["key"].shape[-2], max(_SCORES // of_one_key, _LEAST_KEYS))


def _evenly(size: int, most: int) -> int:
    """The size of blocks of at most `most`, as few as can be, that share `size` evenly."""
    return -(-size // -(-size // most))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _in_blocks(precision: Any, floats: Arrays, hiding: Arrays) -> tuple[Array, Array, Array]:
    """The attention, the largest score of each query, or 0, and the sum of the powers of the scores below that."""

    def of_block(given: Arrays, place: _Place) -> tuple[Array, Array, Array]:
        scores = _block_scores(given, place, precision)
        largest = jnp.max(scores, -1, keepdims=True, initial=-np.inf)
        powers = jnp.exp(scores - _finite(largest))
        return _product(powers, given["value"], precision), largest, jnp.sum(powers, -1, keepdims=True)

    def of_rows(given: Arrays) -> tuple[Array, Array, Array]:
        zero, zeros = _zeros(given)
        total, largest, weight = _over_keys(of_block, _merged, (zeros, zero - np.inf, zero), given)
        return total / weight, _finite(largest), weight

    return _over_batches(partial(_over_queries, of_rows), floats | hiding)


class _Place(NamedTuple):
    """Where the keys of a block are: behind the last of all keys, it is filled up."""

    first: Array
    keys: int

    def is_filled_up(self, size: int) -> bool:
        return self.keys % size != 0


def _block_scores(given: Arrays, place: _Place, precision: Any) -> Array:
    """The scores of a block, which are -infinity where it is filled up."""
    scores = _scores(_product(given["query"], given["key"].mT, precision), given, place.first)
    if not place.is_filled_up(scores.shape[-1]):
        return scores
    return jnp.where(_positions(scores, place.first) < place.keys, scores, jnp.full_like(scores, -np.inf))


def _finite(largest: Array) -> Array:
    """The largest of some scores; 0 where they are all -infinity, so that their powers are 0, and not NaN."""
    return jnp.where(largest == -np.inf, jnp.zeros_like(largest), largest)


def _merged(one: tuple[Array, Array, Array], other: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    largest = jnp.maximum(one[1], other[1])
    factors = [jnp.exp(x - _finite(largest)) for x in (one[1], other[1])]
    total, weight = (one[i] * factors[0] + other[i] * factors[1] for i in (0, 2))
    return total, largest, weight


@_in_blocks.defjvp
def _in_blocks_jvp(precision: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    floats, hiding = primals
    result, largest, weight = _in_blocks(precision, floats, hiding)
    beside = {"largest": largest, "share": 1 / weight}

    def of_block(given: Arrays, place: _Place) -> tuple[Array, Array]:
        weights = jnp.exp(_block_scores(given, place, precision) - given["largest"]) * given["share"]
        return _product(weights, given["value"], precision), jnp.sum(weights, -1, keepdims=True)

    def of_rows(given: Arrays) -> tuple[Array, Array]:
        zero, zeros = _zeros(given)
        return _over_keys(of_block, _added, (zeros, zero), given)

    # As if the largest score and the sum of the powers did not change, which cancels but for the change of the weights.
    again = jax.checkpoint(lambda floats: _over_queries(of_rows, floats | hiding | beside))
    _, (total, change) = jax.jvp(again, (floats,), (tangents[0],))
    return (result, largest, weight), (total - result * change, jnp.zeros_like(largest), weight * change)


def _added(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    return one[0] + other[0], one[1] + other[1]


def _over_batches(of_all: Callable[[Arrays], R], given: Arrays) -> R:
    """The results of `of_all` for all batches and heads together, or on a CPU, one by one.

    Batches and heads that are spread over devices would have to be exchanged for that.
    """
    if may_be_sharded(given["key"]):
        return of_all(given)
    axes = [axis for axis in range(-given["key"].ndim, -2) if given["key"].shape[axis] > 1]

    def one_by_one(given: Arrays) -> R:
        of_each = functools.reduce(lambda function, axis: partial(_over_axis, axis, function), reversed(axes), of_all)
        return of_each(given)

    results: R = choose(given, cpu=one_by_one, default=of_all)
    return results


def _over_axis(axis: int, of_one: Callable[[Arrays], R], given: Arrays) -> R:
    """The results of `of_one` for each index of an axis before the last two, one after the other."""
    parts = {name: _blocks_of(x, axis, 1) for name, x in given.items() if x.ndim and x.shape[axis] > 1}
    results = lax.map(lambda some: of_one(given | some), parts)
    joined: R = jax.tree.map(lambda x: jnp.moveaxis(jnp.squeeze(x, axis), 0, axis), results)
    return joined


def _over_queries(of_rows: Callable[[Arrays], R], given: Arrays) -> R:
    """The results of `of_rows` for each block of queries, one after the other, as one."""
    whole, size = given["query"].shape[-2], _queries_of_a_block(given)
    if size == whole:
        return of_rows(given)

    def joined(x: Array) -> Array:
        rows = jnp.moveaxis(x, 0, -3)
        return lax.slice_in_dim(rows.reshape(*x.shape[1:-2], -1, x.shape[-1]), 0, whole, axis=-2)

    blocks = lax.map(lambda some: of_rows(given | some), _split(given, _ALONG_QUERIES, size))
    results: R = jax.tree.map(joined, blocks)
    return results


def _over_keys(of_block: Callable[[Arrays, _Place], R], merge: Callable[[R, R], R], start: R, given: Arrays) -> R:
    """The results of `of_block` for each block of keys, merged one after the other."""
    whole, size = given["key"].shape[-2], _keys_of_a_block(given)

    @jax.checkpoint  # so that a derivative computes a block again, and does not keep it
    def of_one(some: Arrays, first: Array) -> R:
        return of_block(given | some, _Place(first, whole))

    if size == whole:
        only: R = of_one({}, jnp.int32(0))
        return only
    columns = _split(given, _ALONG_KEYS, size)
    first = lax.iota(np.int32, columns["key"].shape[0]) * size

    def step(merged: R, block: tuple[Arrays, Array]) -> tuple[R, None]:
        return merge(merged, of_one(*block)), None

    merged: R = lax.scan(step, start, (columns, first))[0]
    return merged


def _split(given: Arrays, axes: Mapping[str, int], size: int) -> Arrays:
    """The arrays that have an axis among `axes`, in blocks of `size` along it, which are filled up with zeros.

    What has size 1 there is the same for all blocks.
    """
    return {
        name: _blocks_of(given[name], axis, size)
        for name, axis in axes.items()
        if name in given and given[name].shape[axis] > 1
    }


def _blocks_of(x: Array, axis: int, size: int) -> Array:
    """Blocks of `size` along `axis`, the last one filled up with zeros, in a new first dimension."""
    axis %= x.ndim
    count = -(-x.shape[axis] // size)
    filled = jnp.pad(x, [(0, count * size - x.shape[axis] if i == axis else 0) for i in range(x.ndim)])
    return jnp.moveaxis(filled.reshape(replaced(x.shape, axis, count, size)), axis, 0)


def _zeros(given: Arrays) -> tuple[Array, Array]:
    """Zeros with one element for each query, and with one for each element of its result.

    They come of all arrays, so that JAX knows inside of `jax.shard_map` that they are not the same on all devices.
    """
    wide = widened(given["query"].dtype)
    corners = (x[..., :1] if name in _ALONG_QUERIES else x[..., :1, :1] for name, x in given.items() if x.ndim)
    zero = functools.reduce(jnp.add, (jnp.zeros_like(x, wide) for x in corners))
    return zero, zero + jnp.zeros_like(given["value"][..., :1, :], wide)
