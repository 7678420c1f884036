"""Conversions between types."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.arithmetic.floats import is_nan, is_nonzero
from dmljax.lowerings.platform import choose
from dmljax.types import FLOATS, INTEGERS


def converted(x: Array, dtype: Any) -> Array:
    """`x` in another type, which may be any.

    A float becomes an integer by truncation, the nearest integer beyond the range, and 0 if it is NaN. An integer
    becomes one that equals it modulo the range. All but zeros are True, and True is 1. Floats are rounded by XLA.
    """
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return is_nonzero(x)
    if x.dtype in FLOATS and dtype in INTEGERS:
        return choose(
            x, cpu=partial(lax.convert_element_type, new_dtype=dtype), default=partial(truncated, dtype=dtype)
        )
    return x.astype(dtype)


def truncated(x: Array, dtype: np.dtype[Any]) -> Array:
    """`converted` of floats to integers; beyond the range, what XLA converts is its own on each platform."""
    x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    limits = np.iinfo(dtype)
    lowest, highest = np.array(limits.min, x.dtype), np.array(limits.max, x.dtype)
    if int(highest) > limits.max:  # rounded up
        highest = np.nextafter(highest, np.zeros_like(highest))
    inside = lax.clamp(lowest, jnp.where(is_nan(x), jnp.zeros_like(x), x), highest)
    return jnp.where(x > highest, dtype.type(limits.max), inside.astype(dtype))


def positions_as(dtype: Any, positions: Array) -> Array:
    """Converts positions, which are not negative, to another integer type.

    Types of one width share the bits of such numbers, and to reinterpret them spares a GPU and a TPU a kernel.
    """
    is_same_width = np.dtype(dtype).itemsize == positions.dtype.itemsize
    return lax.bitcast_convert_type(positions, dtype) if is_same_width else positions.astype(dtype)
