"""Conversions between types."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.lowerings.numbers.floats import is_nan, is_nonzero
from dmljax.lowerings.platform import choose
from dmljax.types import FLOATS, INTEGERS, INTEGERS_4


def convert(x: Array, dtype: Any) -> Array:
    """Converts `x` to any other type.

    Floats are truncated to integers, out-of-range floats become the nearest integer, and NaN becomes 0. An integer
    wraps around. Everything but a zero becomes True, and True becomes 1. XLA rounds floats.
    """
    dtype = np.dtype(dtype)
    if x.dtype != dtype and {x.dtype, dtype} & INTEGERS_4:
        return _convert_by_bytes(x, dtype)
    if dtype == np.bool_:
        return is_nonzero(x)
    if x.dtype in FLOATS and dtype in INTEGERS:
        return choose(x, cpu=partial(lax.convert_element_type, new_dtype=dtype), default=partial(truncate, dtype=dtype))
    return x.astype(dtype)


def _convert_by_bytes(x: Array, dtype: np.dtype[Any]) -> Array:
    """Does the same from and to integers of 4 bits, by way of 8 bits: XLA on CPU of JAX 0.8 is wrong for others."""
    if x.dtype in INTEGERS_4:
        x = x.astype(_byte(x.dtype))
    if dtype not in INTEGERS_4:
        return convert(x, dtype)
    if x.dtype in FLOATS:
        limits = jnp.iinfo(dtype)
        x = lax.clamp(np.array(limits.min, x.dtype), x, np.array(limits.max, x.dtype))
    return convert(x, _byte(dtype)).astype(dtype)


def _byte(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int8 if jnp.issubdtype(dtype, jnp.signedinteger) else np.uint8)


def truncate(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncates floats to integers, within their range: beyond it, XLA's conversion depends on the platform."""
    x = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    limits = np.iinfo(dtype)
    lowest, highest = np.array(limits.min, x.dtype), np.array(limits.max, x.dtype)
    if int(highest) > limits.max:  # rounded up
        highest = np.nextafter(highest, np.zeros_like(highest))
    inside = lax.clamp(lowest, jnp.where(is_nan(x), jnp.zeros_like(x), x), highest)
    return jnp.where(x > highest, dtype.type(limits.max), inside.astype(dtype))


def convert_positions(dtype: Any, positions: Array) -> Array:
    """Converts positions, which are not negative, to another integer type.

    Types of the same width represent them by the same bits, and reinterpreting those saves a kernel on a GPU or TPU.
    """
    is_same_width = np.dtype(dtype).itemsize == positions.dtype.itemsize
    return lax.bitcast_convert_type(positions, dtype) if is_same_width else positions.astype(dtype)
