"""Floats by their bits: predicates, sort keys, mantissas and exponents, rounding errors.

Predicates and keys use the bits because a backend may flush subnormal operands to zero before it compares them, as XLA
on CPU does.
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
    keys = order(x, zeros_are_equal=zeros_are_equal)
    limits = np.iinfo(keys.dtype)
    nan_key = np.array(limits.max if nan_is_largest else limits.min, keys.dtype)
    return jnp.where(_magnitude(x) > infinity_bits(x), nan_key, keys)


def order(x: Array, *, zeros_are_equal: bool = True) -> Array:
    """Maps floats to integers in the same order; NaNs come after the infinities at both ends."""
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))
    sign = bits >> (bits.dtype.itemsize * 8 - 1)  # -1 or 0: by arithmetic, since XLA on CPU is slower with selects
    magnitude = bits & np.iinfo(bits.dtype).max
    return (magnitude ^ sign) - sign if zeros_are_equal else magnitude ^ sign


def _magnitude(x: Array) -> Array:
    """The bits of `x` without the sign bit, as a signed integer; they are in the order of the absolute values."""
    signed = np.dtype(f"int{x.dtype.itemsize * 8}")
    return lax.bitcast_convert_type(x, signed) & np.array(np.iinfo(signed).max, signed)


def infinity_bits(x: Array) -> Array:
    """The bits of an infinity of the type of `x`, in the type of its `order`."""
    return _magnitude(jnp.full((), np.inf, x.dtype))


def is_nan(x: Array) -> Array:
    """True where `x` is NaN, which no integer is."""
    return _magnitude(x) > infinity_bits(x) if x.dtype in FLOATS else jnp.zeros_like(x, bool)


def is_not_negative(x: Array) -> Array:
    """True where `x` is NaN, +0 or positive; of floats by one comparison, which is quick where XLA cannot vectorize."""
    if x.dtype not in FLOATS:
        return x >= np.zeros((), x.dtype)
    bits, infinity, negative_zero = _unsigned(x)
    # The bits from -0 to -inf are one range; all other numbers, and NaN, are outside of it.
    return lax.gt(bits - negative_zero, infinity)


def is_infinite(x: Array) -> Array:
    """True where `x`, which must have a float type, is infinite."""
    return _magnitude(x) == infinity_bits(x)


def is_above_zero(x: Array) -> Array:
    """True where `x > 0`, by IEEE 754; of floats by one comparison."""
    if x.dtype not in FLOATS:
        return x > np.zeros((), x.dtype)
    bits, infinity, _ = _unsigned(x)
    return lax.lt(bits - bits.dtype.type(1), infinity)  # 0 - 1 is the largest integer


def is_below_zero(x: Array) -> Array:
    """True where `x < 0`, by IEEE 754; of floats by one comparison."""
    if x.dtype not in FLOATS:
        return x < np.zeros((), x.dtype)
    bits, infinity, negative_zero = _unsigned(x)
    return lax.lt(bits - (negative_zero + bits.dtype.type(1)), infinity)


def sign(x: Array) -> Array:
    """-1 where `x` is below zero, 1 where it is above, and +0 where it is a zero or NaN."""
    if x.dtype not in FLOATS:
        return jnp.sign(x)
    magnitude, one = _magnitude(x), _magnitude(jnp.ones((), x.dtype))
    ones = lax.bitcast_convert_type(lax.bitcast_convert_type(signed_zeros_of(x), one.dtype) | one, x.dtype)
    return jnp.where((magnitude != 0) & (magnitude <= infinity_bits(x)), ones, jnp.zeros_like(x))


def _unsigned(x: Array) -> tuple[Array, Array, Any]:
    """The bits of `x`, of infinity and of -0, as unsigned integers."""
    unsigned = np.dtype(f"uint{x.dtype.itemsize * 8}")
    bits, infinity = (lax.bitcast_convert_type(y, unsigned) for y in (x, jnp.full((), np.inf, x.dtype)))
    return bits, infinity, np.array(np.iinfo(unsigned).max // 2 + 1, unsigned)


# Floats as a mantissa and an exponent


def layout(dtype: Any, kind: str = "int") -> tuple[np.dtype[Any], int, int]:
    """The integer type that holds the bits of a float type, its number of fraction bits, and its exponent bias."""
    limits = jnp.finfo(dtype)
    return np.dtype(f"{kind}{limits.bits}"), int(limits.nmant), int(limits.maxexp) - 1


def mantissa_and_exponent(x: Array) -> tuple[Array, Array]:
    """`x` as `mantissa * 2**exponent`, with a mantissa in [1, 2) or (-2, -1].

    The mantissa of a zero or a subnormal number is a zero of the same sign. Infinities and NaN are their own mantissas.
    """
    integer, digits, bias = layout(x.dtype)
    bits = lax.bitcast_convert_type(x, integer)
    field = (bits >> digits) & (2 * bias + 1)
    unit = lax.bitcast_convert_type(bits & ~((2 * bias + 1) << digits) | (bias << digits), x.dtype)
    is_finite, is_normal = field != 2 * bias + 1, field != 0
    mantissa = jnp.where(is_normal, unit, signed_zeros_of(x))
    return jnp.where(is_finite, mantissa, x), jnp.where(is_finite, field - bias, jnp.zeros_like(field))


def power_of_two(exponent: Array, dtype: Any) -> Array:
    """`2**exponent`, built from its bits: it must be a normal number of `dtype`."""
    integer, digits, bias = layout(dtype)
    return lax.bitcast_convert_type((exponent.astype(integer) + bias) << digits, dtype)


def times_power_of_two(x: Array, exponent: Array) -> Array:
    """`x * 2**exponent`, in three steps, because the power may be out of the type's range where the product is not."""
    first, second, third = powers_of_two(exponent, x.dtype)
    return x * first * second * third


def powers_of_two(exponent: Array, dtype: Any) -> tuple[Array, Array, Array]:
    """Three normal powers of 2 of about the same size whose product is `2**exponent`.

    The exponent is clamped to what three normal powers of 2 can reach.
    """
    _, _, bias = layout(dtype)
    exponent = jnp.clip(exponent, 4 - 3 * bias, 3 * bias)
    first = (exponent * 21846) >> 16  # a third of the exponent
    second = (exponent - first) >> 1
    third = exponent - first - second
    return power_of_two(first, dtype), power_of_two(second, dtype), power_of_two(third, dtype)


def signed_zeros_of(x: Array) -> Array:
    """Zeros with the signs of `x`.

    They depend on `x` because under vmap, a select of constants makes JAX lose the explicit mesh.
    """
    integer, _, _ = layout(x.dtype)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & np.iinfo(integer).min, x.dtype)


# Rounding errors


def sum_error(total: Array, a: Array, b: Array) -> Array:
    """The rounding error of `total`, which is `a + b`, if it is finite."""
    part = total - a
    return (a - (total - part)) + (b - part)


def product_error(rounded: Array, a: Array, b: Array) -> Array:
    """The rounding error of `rounded`, which is `a * b`, of numbers whose products with halves of digits are normal."""
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(x: Array) -> tuple[Array, Array]:
    """Splits `x` into two summands with half as many significant bits, whose products are exact."""
    integer, digits, _ = layout(x.dtype)
    low_bits = digits // 2 + 1
    high = lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & -(2**low_bits), x.dtype)
    return high, x - high
