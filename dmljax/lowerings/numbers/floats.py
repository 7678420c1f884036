"""Predicates and sort keys of floats, from their bits.

XLA on CPU, for example, may flush subnormal operands to zero before it compares floats; bits avoid that.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.types import FLOATS


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
    keys = to_ordered_integers(x, zeros_are_equal=zeros_are_equal)
    limits = np.iinfo(keys.dtype)
    nan_key = np.array(limits.max if nan_is_largest else limits.min, keys.dtype)
    return jnp.where(_magnitude(x) > infinity_bits(x), nan_key, keys)


def to_ordered_integers(x: Array, *, zeros_are_equal: bool = True) -> Array:
    """Maps floats to integers in the same order; NaNs come beyond the infinities at both ends."""
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))
    sign = bits >> (bits.dtype.itemsize * 8 - 1)  # -1 or 0 by arithmetic, because XLA on CPU is slower with selects
    magnitude = bits & np.iinfo(bits.dtype).max
    return (magnitude ^ sign) - sign if zeros_are_equal else magnitude ^ sign


def _magnitude(x: Array) -> Array:
    """The bits of `x` without the sign, as a signed integer, in the order of the absolute values."""
    signed = np.dtype(f"int{x.dtype.itemsize * 8}")
    return lax.bitcast_convert_type(x, signed) & np.array(np.iinfo(signed).max, signed)


def infinity_bits(x: Array) -> Array:
    """The bits of an infinity of the type of `x`, in the type that `to_ordered_integers` maps it to."""
    return _magnitude(jnp.full((), np.inf, x.dtype))


def is_nan(x: Array) -> Array:
    """True where `x` is NaN; False for integers."""
    return _magnitude(x) > infinity_bits(x) if x.dtype in FLOATS else jnp.zeros_like(x, bool)


def is_not_negative(x: Array) -> Array:
    """True where `x` is NaN, +0 or positive, by one comparison of floats, for loops that XLA cannot vectorize."""
    if x.dtype not in FLOATS:
        return x >= np.zeros((), x.dtype)
    bits, infinity, negative_zero = _view_bits(x)
    # The bits from -0 to -inf form one range; all other numbers and NaN are outside it.
    return lax.gt(bits - negative_zero, infinity)


def is_infinite(x: Array) -> Array:
    """True where `x`, which must be a float, is infinite."""
    return _magnitude(x) == infinity_bits(x)


def is_above_zero(x: Array) -> Array:
    """True where `x > 0` as in IEEE 754; one comparison for floats."""
    if x.dtype not in FLOATS:
        return x > np.zeros((), x.dtype)
    bits, infinity, _ = _view_bits(x)
    return lax.lt(bits - bits.dtype.type(1), infinity)  # 0 - 1 is the largest integer


def is_below_zero(x: Array) -> Array:
    """True where `x < 0` as in IEEE 754; one comparison for floats."""
    if x.dtype not in FLOATS:
        return x < np.zeros((), x.dtype)
    bits, infinity, negative_zero = _view_bits(x)
    return lax.lt(bits - (negative_zero + bits.dtype.type(1)), infinity)


def sign(x: Array) -> Array:
    """-1 where `x` is negative, 1 where it is positive, and +0 for zeros and NaN."""
    if x.dtype not in FLOATS:
        return jnp.sign(x)
    magnitude, unit = _magnitude(x), _magnitude(jnp.ones((), x.dtype))
    ones = lax.bitcast_convert_type(lax.bitcast_convert_type(signed_zeros_of(x), unit.dtype) | unit, x.dtype)
    return jnp.where((magnitude != 0) & (magnitude <= infinity_bits(x)), ones, jnp.zeros_like(x))


def _view_bits(x: Array) -> tuple[Array, Array, Any]:
    """The bits of `x`, of infinity and of -0, as unsigned integers."""
    unsigned = np.dtype(f"uint{x.dtype.itemsize * 8}")
    bits, infinity = (lax.bitcast_convert_type(y, unsigned) for y in (x, jnp.full((), np.inf, x.dtype)))
    return bits, infinity, np.array(np.iinfo(unsigned).max // 2 + 1, unsigned)


def float_layout(dtype: Any, kind: str = "int") -> tuple[np.dtype[Any], int, int]:
    """The integer type that holds the bits of a float type, its number of fraction bits, and its exponent bias."""
    limits = jnp.finfo(dtype)
    return np.dtype(f"{kind}{limits.bits}"), int(limits.nmant), int(limits.maxexp) - 1


def signed_zeros_of(x: Array) -> Array:
    """Zeros with the signs of `x`.

    They depend on `x` because under vmap a select of constants makes JAX lose the explicit mesh.
    """
    integer, _, _ = float_layout(x.dtype)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & np.iinfo(integer).min, x.dtype)
