"""The positions of the largest integers of each row, in order, of equal ones the first: what TOP_K does with sort keys.

On a CPU, `jax.lax.top_k` sorts whole rows, unless they are of float32. Here, a row that is long beside the number of
positions is split into blocks. Its largest elements are in those blocks whose own largest elements are largest, as many
blocks as there are positions to find: only their elements are looked at. The smallest of the largest elements is found
first, one binary digit after the other; those above it are sorted.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.numerics.along_axes import extreme_position
from dmljax.numerics.loops import counted_loop
from dmljax.numerics.scans import running_sum
from dmljax.numerics.sizes import index_dtype, is_symbolic

_BLOCK = 16


def largest_positions(keys: Array, count: int) -> Array:
    """The positions of the `count` largest integers along the last axis; of equal integers, the first comes first."""
    size = keys.shape[-1]
    if is_symbolic(size) or 1 < count > size // 2:
        return lax.slice_in_dim(_sorted(keys, _positions(keys)), 0, count, axis=-1)
    if count == 1:
        return extreme_position(keys, (keys.ndim - 1,), largest=True)
    largest = _largest(keys, count)
    return _sorted(_take(keys, largest), largest)


def _positions(keys: Array) -> Array:
    return lax.broadcasted_iota(index_dtype("input", keys.shape[-1]), keys.shape, keys.ndim - 1)


def _take(x: Array, positions: Array) -> Array:
    return jnp.take_along_axis(x, positions, axis=-1, mode="promise_in_bounds")


def _sorted(keys: Array, positions: Array) -> Array:
    """All positions, in the order of their keys."""
    _, ordered = lax.sort((~keys, positions), num_keys=2)
    return ordered


# Blocks


def _blocks(keys: Array) -> tuple[Array, Array]:
    """The blocks of each row, and the largest key of each block; the last block is filled up with the lowest keys."""
    filling = [(0, 0, 0)] * (keys.ndim - 1) + [(0, -keys.shape[-1] % _BLOCK, 0)]
    lowest = jnp.full((), np.iinfo(keys.dtype).min, keys.dtype)
    blocks = lax.pad(keys, lowest, filling).reshape(*keys.shape[:-1], -1, _BLOCK)
    return blocks, jnp.max(blocks, axis=-1)


def _elements_of(blocks: Array, chosen: Array) -> tuple[Array, Array]:
    """The keys of the chosen blocks and their positions in the row, as one row again."""
    chosen = chosen[..., None]
    keys = jnp.take_along_axis(blocks, chosen, axis=-2, mode="promise_in_bounds")
    positions = chosen * _BLOCK + lax.broadcasted_iota(chosen.dtype, keys.shape, keys.ndim - 1)
    row = *keys.shape[:-2], -1
    return keys.reshape(row), positions.reshape(row)


# Without their order


def _largest(keys: Array, count: int) -> Array:
    """The positions of the largest keys, in the order of the positions."""
    if keys.shape[-1] < 4 * count * _BLOCK:
        return _above_smallest(keys, count)
    blocks, highest = _blocks(keys)
    candidates, positions = _elements_of(blocks, _largest(highest, count))
    return _take(positions, _above_smallest(candidates, count))


def _above_smallest(keys: Array, count: int) -> Array:
    smallest = _smallest_of_largest(keys, count)
    is_above, is_equal = keys > smallest, keys == smallest
    wanted = count - jnp.sum(is_above, axis=-1, keepdims=True, dtype=np.int32)
    is_largest = is_above | (is_equal & (_running_count(is_equal) <= wanted))
    return _places_of_true(_running_count(is_largest), count)


def _running_count(is_counted: Array) -> Array:
    return running_sum(is_counted.astype(np.int32), is_counted.ndim - 1, reverse=False, exclusive=False)


def _smallest_of_largest(keys: Array, count: int) -> Array:
    """The smallest of the `count` largest keys of each row, found one binary digit after the other."""
    bits = keys.dtype.itemsize * 8
    unsigned = np.dtype(f"uint{bits}")
    sign = np.array(1 << (bits - 1) if np.iinfo(keys.dtype).min else 0, unsigned)
    # Unsigned integers in the order of the keys.
    ranks = lax.bitcast_convert_type(keys, unsigned) ^ sign

    def next_digit(i: Array, found: Array) -> Array:
        digit = lax.shift_left(np.array(1, unsigned), np.array(bits - 1, unsigned) - i.astype(unsigned))
        larger = found | digit
        is_enough = jnp.sum(ranks >= larger, axis=-1, keepdims=True, dtype=np.int32) >= count
        return jnp.where(is_enough, larger, found)

    found = counted_loop(0, bits, next_digit, jnp.zeros_like(lax.slice_in_dim(ranks, 0, 1, axis=-1)))
    return lax.bitcast_convert_type(found ^ sign, keys.dtype)


def _places_of_true(running: Array, count: int) -> Array:
    """The places at which running counts first reach 1 to `count`, found by bisection."""
    size = running.shape[-1]
    number = lax.broadcasted_iota(np.int32, (*running.shape[:-1], count), running.ndim - 1) + 1
    steps = size.bit_length()

    def halve(i: Array, place: Array) -> Array:
        farther = place + lax.shift_left(np.int32(1), np.int32(steps - 1) - i.astype(np.int32))
        is_before = _take(running, jnp.minimum(farther, size) - 1) < number
        return jnp.where((farther <= size) & is_before, farther, place)

    # The first places are computed from the counts, so that inside shard_map they vary over the mesh as the counts do.
    places: Array = counted_loop(0, steps, halve, jnp.zeros_like(number) + jnp.zeros_like(running[..., :1]))
    return places
