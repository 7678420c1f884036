"""Floats compared by their bits, for a backend may flush subnormals to zero first: XLA on CPU does."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax._types import FLOATS


def is_nonzero(x: Array) -> Array:
    """Where `x` is neither +0 nor -0; NaN and subnormals are not zero."""
    if x.dtype in FLOATS:
        return _magnitude(x) != 0
    return x != np.zeros((), x.dtype)


def sort_keys(x: Array, *, nan_is_largest: bool) -> Array:
    """Integers in the order of `x`: -0 equals +0, and every NaN is one value beyond all numbers."""
    if x.dtype == bool:
        return x.astype(jnp.uint8)
    if x.dtype not in FLOATS:
        return x
    magnitude = _magnitude(x)
    is_negative = lax.bitcast_convert_type(x, magnitude.dtype) < 0
    infinity = lax.bitcast_convert_type(np.array(np.inf, x.dtype), magnitude.dtype)
    limits = np.iinfo(magnitude.dtype)
    nan_key = np.array(limits.max if nan_is_largest else limits.min, magnitude.dtype)
    return jnp.where(magnitude > infinity, nan_key, jnp.where(is_negative, -magnitude, magnitude))


def _magnitude(x: Array) -> Array:
    """The bits of `x` without its sign, as a signed integer: in the order of the absolute values."""
    signed = np.dtype(f"int{x.dtype.itemsize * 8}")
    return lax.bitcast_convert_type(x, signed) & np.array(np.iinfo(signed).max, signed)


def select(condition: Array, x: Array, y: Array) -> Array:
    """`jnp.where` that copies bit for bit in every type."""
    return _select_bfloat16(condition, x, y) if x.dtype == jnp.bfloat16 else jnp.where(condition, x, y)


@jax.custom_jvp
def _select_bfloat16(condition: Array, x: Array, y: Array) -> Array:
    """Selects integers, because XLA on CPU selects bfloat16 as float32, which quietens a signalling NaN."""
    bits = jnp.where(condition, lax.bitcast_convert_type(x, jnp.uint16), lax.bitcast_convert_type(y, jnp.uint16))
    return lax.bitcast_convert_type(bits, jnp.bfloat16)


@_select_bfloat16.defjvp
def _select_bfloat16_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    condition, *_ = primals
    _, x, y = tangents
    return _select_bfloat16(*primals), jnp.where(condition, x, y)
