"""Floats compared by their bits, for a backend may flush subnormals to zero first: XLA on CPU does."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax._types import FLOATS

Move = Callable[[tuple[Array, ...], Array], Array]


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


def copied(move: Move, floats: tuple[Array, ...], guide: Array) -> Array:
    """`move(floats, guide)`, where `move` does nothing with `floats` but copy elements; every bit survives.

    XLA on CPU selects and concatenates bfloat16 as float32, which quietens signalling NaN, so that bfloat16 is moved as
    integers. Derivatives move in the floats' own type; `jax.linear_transpose` alone, which asks the function itself for
    its transpose, finds none for bfloat16.
    """
    return _copied_as_bits(move, floats, guide) if floats[0].dtype == jnp.bfloat16 else move(floats, guide)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _copied_as_bits(move: Move, floats: tuple[Array, ...], guide: Array) -> Array:
    bits = tuple(lax.bitcast_convert_type(x, jnp.uint16) for x in floats)
    return lax.bitcast_convert_type(move(bits, guide), floats[0].dtype)


@_copied_as_bits.defjvp
def _copied_as_bits_jvp(move: Move, primals: Any, tangents: Any) -> tuple[Array, Array]:
    floats, guide = primals
    return _copied_as_bits(move, floats, guide), move(tangents[0], guide)
