"""Floats compared by their bits, for a backend may flush subnormals to zero first: XLA on CPU does."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.types import FLOATS

Move = Callable[[tuple[Array, ...], Array], Array]


def is_nonzero(x: Array) -> Array:
    """Where `x` is neither +0 nor -0; NaN and subnormals are not zero."""
    if x.dtype in FLOATS:
        return _magnitude(x) != 0
    return x != np.zeros((), x.dtype)


def sort_keys(x: Array, *, nan_is_largest: bool, zeros_are_equal: bool = True) -> Array:
    """Integers in the order of `x`: -0 equals +0 or is below it, and every NaN is one value beyond all numbers."""
    if x.dtype == bool:
        return x.astype(jnp.uint8)
    if x.dtype not in FLOATS:
        return x
    magnitude = _magnitude(x)
    is_negative = lax.bitcast_convert_type(x, magnitude.dtype) < 0
    limits = np.iinfo(magnitude.dtype)
    nan_key = np.array(limits.max if nan_is_largest else limits.min, magnitude.dtype)
    negative = -magnitude if zeros_are_equal else ~magnitude
    return jnp.where(magnitude > _infinity(x), nan_key, jnp.where(is_negative, negative, magnitude))


def _magnitude(x: Array) -> Array:
    """The bits of `x` without its sign, as a signed integer: in the order of the absolute values."""
    signed = np.dtype(f"int{x.dtype.itemsize * 8}")
    return lax.bitcast_convert_type(x, signed) & np.array(np.iinfo(signed).max, signed)


def _infinity(x: Array) -> Array:
    """The magnitude of an infinity of the type of `x`."""
    return _magnitude(jnp.full((), np.inf, x.dtype))


def is_nan(x: Array) -> Array:
    """Where `x` is NaN."""
    return _magnitude(x) > _infinity(x) if x.dtype in FLOATS else jnp.zeros_like(x, bool)


def is_infinite(x: Array) -> Array:
    """Where `x`, of floats, is infinite."""
    return _magnitude(x) == _infinity(x)


# Comparisons as IEEE 754 has them: one with a NaN is false, for a NaN on the left is taken to be beyond all numbers on
# one side, and one on the right on the other.


def greater(a: Array, b: Array) -> Array:
    """Where `a > b`."""
    return sort_keys(a, nan_is_largest=False) > sort_keys(b, nan_is_largest=True)


def greater_equal(a: Array, b: Array) -> Array:
    """Where `a >= b`."""
    return sort_keys(a, nan_is_largest=False) >= sort_keys(b, nan_is_largest=True)


def equal(a: Array, b: Array) -> Array:
    """Where `a == b`."""
    return sort_keys(a, nan_is_largest=False) == sort_keys(b, nan_is_largest=True)


def maximum(a: Array, b: Array) -> Array:
    """The larger of both, and of equal ones `a`; a NaN is larger than all, +0 than -0."""
    keys = partial(sort_keys, nan_is_largest=True, zeros_are_equal=False)
    return selected(keys(a) >= keys(b), a, b)


def minimum(a: Array, b: Array) -> Array:
    """The smaller of both, and of equal ones `a`; a NaN is smaller than all, -0 than +0."""
    keys = partial(sort_keys, nan_is_largest=False, zeros_are_equal=False)
    return selected(keys(a) <= keys(b), a, b)


def selected(condition: Array, a: Array, b: Array) -> Array:
    """`a` where the condition holds, `b` elsewhere, with every bit."""
    return copied(_select, (a, b), condition)


def _select(arrays: tuple[Array, ...], condition: Array) -> Array:
    a, b = arrays
    return jnp.where(condition, a, b)


def copied(move: Move, floats: tuple[Array, ...], guide: Array) -> Array:
    """`move(floats, guide)`, where `move` does nothing with `floats` but copy elements; every bit survives.

    XLA on CPU selects and concatenates bfloat16 as float32, which quietens signalling NaN, so that bfloat16 is moved as
    integers. (One subnormal bfloat16 that is repeated it makes zeros, whatever it is moved as.) Derivatives move in the
    floats' own type; `jax.linear_transpose` alone, which asks the function itself for its transpose, finds none.
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
