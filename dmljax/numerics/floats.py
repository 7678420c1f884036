"""Comparison, selection and copying of floats by their bits.

Comparisons use the bits because a backend may flush subnormal operands to zero before it compares them, as XLA on CPU
does. Copies use the bits where moving floats would change them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.types import FLOATS, widened

R = TypeVar("R")  # an array, or a tree of arrays
Move = Callable[[tuple[Array, ...], Any], R]


def is_nonzero(x: Array) -> Array:
    """True where `x` is neither +0 nor -0; NaN and subnormal numbers are not zero."""
    if x.dtype in FLOATS:
        return _magnitude(x) != 0
    return x != np.zeros((), x.dtype)


def sort_keys(x: Array, *, nan_is_largest: bool, zeros_are_equal: bool = True) -> Array:
    """Maps `x` to integers that compare as the elements of `x` do.

    -0 equals +0 if `zeros_are_equal`, and is less than +0 otherwise. All NaNs have the same key, which is above or
    below the keys of all numbers.
    """
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
    """The bits of `x` without the sign bit, as a signed integer; they are in the order of the absolute values."""
    signed = np.dtype(f"int{x.dtype.itemsize * 8}")
    return lax.bitcast_convert_type(x, signed) & np.array(np.iinfo(signed).max, signed)


def _infinity(x: Array) -> Array:
    """The `_magnitude` of an infinity of the type of `x`."""
    return _magnitude(jnp.full((), np.inf, x.dtype))


def is_nan(x: Array) -> Array:
    """True where `x` is NaN, which no integer is."""
    return _magnitude(x) > _infinity(x) if x.dtype in FLOATS else jnp.zeros_like(x, bool)


def is_infinite(x: Array) -> Array:
    """True where `x`, which must have a float type, is infinite."""
    return _magnitude(x) == _infinity(x)


# Comparisons of IEEE 754, in which any comparison with NaN is false: here a NaN on the left is below all numbers, and a
# NaN on the right is above all numbers and above a NaN on the left.


def greater(a: Array, b: Array) -> Array:
    """True where `a > b`, by IEEE 754."""
    return sort_keys(a, nan_is_largest=False) > sort_keys(b, nan_is_largest=True)


def greater_equal(a: Array, b: Array) -> Array:
    """True where `a >= b`, by IEEE 754."""
    return sort_keys(a, nan_is_largest=False) >= sort_keys(b, nan_is_largest=True)


def equal(a: Array, b: Array) -> Array:
    """True where `a == b`, by IEEE 754."""
    return sort_keys(a, nan_is_largest=False) == sort_keys(b, nan_is_largest=True)


def maximum(a: Array, b: Array) -> Array:
    """The larger of `a` and `b`, or `a` if they are equal; NaN is larger than every number, and +0 than -0."""
    keys = partial(sort_keys, nan_is_largest=True, zeros_are_equal=False)
    return selected(keys(a) >= keys(b), a, b)


def minimum(a: Array, b: Array) -> Array:
    """The smaller of `a` and `b`, or `a` if they are equal; NaN is smaller than every number, and -0 than +0."""
    keys = partial(sort_keys, nan_is_largest=False, zeros_are_equal=False)
    return selected(keys(a) <= keys(b), a, b)


def selected(condition: Array, a: Array, b: Array) -> Array:
    """`a` where the condition holds, and `b` elsewhere, bit for bit."""
    return copied(_select, (a, b), condition)


def _select(arrays: tuple[Array, ...], condition: Array) -> Array:
    a, b = arrays
    return jnp.where(condition, a, b)


def copied(move: Move[R], floats: tuple[Array, ...], guide: Array | None = None, *, sums_are_wide: bool = False) -> R:
    """`move(floats, guide)` bit for bit, where `move` must only copy elements of `floats`.

    XLA on CPU selects and concatenates bfloat16 as float32, which turns signalling NaNs into quiet NaNs; therefore
    bfloat16 is moved as integers. (A single subnormal bfloat16 that is broadcast becomes zeros on CPU, in whatever type
    it is moved.) Derivatives are moved in the floats' own type, or, if `sums_are_wide`, those of 16-bit floats in
    float32, so that a gradient that adds up many of them is rounded once. Only `jax.linear_transpose` is not supported
    for what is moved as integers: it transposes the function itself instead of its derivative, and the conversion to
    integers has no transpose.
    """
    dtype = floats[0].dtype
    is_wide = sums_are_wide and widened(dtype) != dtype
    is_moved_as_bits = dtype == jnp.bfloat16 or is_wide
    return _copied_as_bits(move, is_wide, floats, guide) if is_moved_as_bits else move(floats, guide)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _copied_as_bits(move: Move[R], is_wide: bool, floats: tuple[Array, ...], guide: Array | None) -> R:
    bits = tuple(lax.bitcast_convert_type(x, jnp.uint16) for x in floats)
    moved = move(bits, guide)
    return cast(R, jax.tree.map(lambda one: lax.bitcast_convert_type(one, floats[0].dtype), moved))


@_copied_as_bits.defjvp
def _copied_as_bits_jvp(move: Move[R], is_wide: bool, primals: Any, tangents: Any) -> tuple[R, R]:
    floats, guide = primals
    dtype = floats[0].dtype
    given = tuple(x.astype(widened(dtype)) for x in tangents[0]) if is_wide else tangents[0]
    moved = cast(R, jax.tree.map(lambda one: one.astype(dtype), move(given, guide)))
    return _copied_as_bits(move, is_wide, floats, guide), moved
