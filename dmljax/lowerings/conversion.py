"""Conversions between types that are exact, or rounded once, on every platform.

XLA's own conversion serves where its result is known; `arithmetic.rounding` computes the others from the bits.
"""

from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax

from dmljax.arithmetic.floats import is_nonzero
from dmljax.arithmetic.rounding import (
    by_bits,
    float32_to_float64,
    float64_to_float32,
    narrowed,
    rounded_to_odd,
    truncated,
)
from dmljax.lowerings.platform import choose
from dmljax.types import FLOATS, INTEGERS


def converted(x: Array, dtype: Any) -> Array:
    """`x` in another type, which may be any.

    A float becomes the nearest float, the even one of two; infinity beyond the range. An integer becomes the nearest
    float as well, or an integer that equals it modulo the range. A float becomes an integer by truncation, the nearest
    integer beyond the range, and 0 if it is NaN. All but zeros are True, and True is 1.
    """
    dtype = np.dtype(dtype)
    if x.dtype == dtype:
        return x
    if dtype == np.bool_:
        return is_nonzero(x)
    if x.dtype not in FLOATS:
        return _rounded(x, dtype) if x.dtype in INTEGERS and dtype in FLOATS else x.astype(dtype)
    return _between_floats(dtype, x) if dtype in FLOATS else _truncated(x, dtype)


def positions_as(dtype: Any, positions: Array) -> Array:
    """Converts positions, which are not negative, to another integer type.

    Types of one width share the bits of such numbers, and to reinterpret them spares a GPU and a TPU a kernel.
    """
    is_same_width = np.dtype(dtype).itemsize == positions.dtype.itemsize
    return lax.bitcast_convert_type(positions, dtype) if is_same_width else positions.astype(dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _between_floats(dtype: np.dtype[Any], x: Array) -> Array:
    if dtype == np.float64:
        single = x if x.dtype == np.float32 else _between_floats(np.dtype(np.float32), x)
        # No float16 is subnormal there.
        return single.astype(dtype) if x.dtype == np.float16 else float32_to_float64(single)
    if x.dtype == np.float64:
        return float64_to_float32(x) if dtype == np.float32 else narrowed(x, dtype)

    def platforms_own(x: Array) -> Array:
        return x.astype(dtype)

    return choose(x, cpu=platforms_own, gpu=platforms_own, default=lambda x: by_bits(x, dtype))


@_between_floats.defjvp
def _between_floats_jvp(dtype: np.dtype[Any], primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _between_floats(dtype, *primals), tangents[0].astype(dtype)


def _truncated(x: Array, dtype: np.dtype[Any]) -> Array:
    # XLA on CPU does the same in half the time.
    return choose(x, cpu=lambda x: lax.convert_element_type(x, dtype), default=lambda x: truncated(x, dtype))


def _rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.itemsize >= 4:
        return x.astype(dtype)
    # An integer that float32 does not hold is beyond the range of float16.
    is_exact = dtype == np.float16 or x.dtype.itemsize < 4
    return _between_floats(dtype, x.astype(np.float32) if is_exact else rounded_to_odd(x))
