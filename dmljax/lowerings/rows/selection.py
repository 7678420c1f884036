"""The positions of the largest or smallest elements of each row, in order: TOP_K on a CPU.

The `count` largest elements of a long row lie in the `count` blocks with the largest maxima, so only their elements are
compared.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.checks import INT_MAX
from dmljax.foundation.dimensions import index_dtype, is_symbolic
from dmljax.foundation.sharding import may_be_sharded
from dmljax.lowerings.numbers.floats import sort_keys
from dmljax.lowerings.rows.along_axes import extreme_position
from dmljax.types import FLOATS

_BLOCK, _LONG = 8, 64


def largest_positions(x: Array, count: int, *, largest: bool) -> Array:
    """The positions of the `count` largest (or smallest) elements along the last axis, in order.

    Equal elements keep their order. A NaN is larger than every number.
    """
    # Pass bits, because XLA on CPU may flush subnormal bfloat16 numbers to zero when it reads them from an array.
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{8 * x.dtype.itemsize}")) if x.dtype in FLOATS else x

    def keys(bits: Array) -> Array:
        keys = sort_keys(lax.bitcast_convert_type(bits, x.dtype) if x.dtype in FLOATS else bits, nan_is_largest=True)
        return keys if largest else ~keys  # reverses the order of integers

    if count == 1:
        return extreme_position(keys(bits), (x.ndim - 1,), largest=True)
    return _largest(bits, count, keys)


def _largest(x: Array, count: int, keys: Callable[[Array], Array]) -> Array:
    """The positions of the largest of the integers that `keys` computes from elements.

    The keys of the chosen blocks are computed again: XLA on CPU fuses that, and keeps no array of keys.
    """
    size = x.shape[-1]
    if is_symbolic(size) or size < _LONG * count or size > INT_MAX:
        return _largest_at_once(keys(x), count)
    blocks = lax.sort(_largest(_block_maxima(keys(x)), count, lambda maxima: maxima))
    within = lax.broadcasted_iota(blocks.dtype, (*blocks.shape, _BLOCK), blocks.ndim)
    positions = (blocks[..., None] * _BLOCK + within).reshape(*blocks.shape[:-1], -1)
    candidates = keys(_take(x, jnp.minimum(positions, size - 1)))
    candidates = jnp.where(positions < size, candidates, _lowest(candidates))
    return _take(positions, _largest_at_once(candidates, count))


def _block_maxima(keys: Array) -> Array:
    """The largest key of each block; the last block is padded with the lowest keys."""
    filling = [(0, 0, 0)] * (keys.ndim - 1) + [(0, -keys.shape[-1] % _BLOCK, 0)]
    return jnp.max(lax.pad(keys, _lowest(keys), filling).reshape(*keys.shape[:-1], -1, _BLOCK), axis=-1)


def _lowest(keys: Array) -> Array:
    return jnp.full((), np.iinfo(keys.dtype).min, keys.dtype)


def _take(x: Array, positions: Array) -> Array:
    return jnp.take_along_axis(x, positions, axis=-1, mode="promise_in_bounds")


def _largest_at_once(keys: Array, count: int) -> Array:
    # `lax.top_k` needs a size known to be at least `count`, its positions are int32, and XLA on CPU does not partition
    # it over a mesh.
    if is_symbolic(keys.shape[-1]) or keys.shape[-1] > INT_MAX or may_be_sharded(keys):
        positions = lax.broadcasted_iota(index_dtype("input", keys.shape[-1]), keys.shape, keys.ndim - 1)
        return lax.slice_in_dim(lax.sort((~keys, positions), num_keys=2)[1], 0, count, axis=-1)
    # XLA on CPU sorts rows of types other than float32.
    return lax.top_k(_keys_to_floats(keys) if keys.dtype.itemsize <= 4 else keys, count)[1]


def _keys_to_floats(keys: Array) -> Array:
    """Float32 numbers that XLA on CPU orders like the keys, by sign and magnitude."""
    if keys.dtype == np.uint32:
        keys = lax.bitcast_convert_type(keys ^ np.uint32(1 << 31), np.int32)
    keys = keys.astype(np.int32)
    return lax.bitcast_convert_type(jnp.where(keys < 0, keys ^ np.int32(2**31 - 1), keys), np.float32)
