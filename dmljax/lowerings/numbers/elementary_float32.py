"""Elementary functions of float32 by polynomials that a CPU vectorizes."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def _polynomial(x: Array, *coefficients: float) -> Array:
    """The polynomial of `x` with these coefficients, starting with the coefficient of `x**0`."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + jnp.full((), coefficient, x.dtype)
    return value


def cosh(x: Array) -> Array:
    """The hyperbolic cosine."""
    half = _hyperbolic_half(x)
    return half + np.float32(0.25) / half


def sinh(x: Array) -> Array:
    """The hyperbolic sine."""
    half = _hyperbolic_half(x)
    half = jnp.where(x < 0, -half, half)
    square = x * x
    small = x + x * square * _polynomial(square, 0.16666667163, 0.00833335053, 1.983606635e-4, 2.81743974e-6)
    return jnp.where(square < 1, small, half - np.float32(0.25) / half)


def _hyperbolic_half(x: Array) -> Array:
    """exp(|x|) / 2, without overflow where this quotient is finite."""
    root = lax.exp(jnp.abs(x) / 2)
    return root / 2 * root


def sin(x: Array) -> Array:
    """The sine of an angle in radians."""
    sine = _sine_after_quarters(jnp.abs(x), 0)
    return jnp.where(jnp.signbit(x), -sine, sine)


def cos(x: Array) -> Array:
    """The cosine of an angle in radians."""
    return _sine_after_quarters(jnp.abs(x), 1)


def tan(x: Array) -> Array:
    """The tangent of an angle in radians."""
    quarters, angle, error = _nearest_quarter(jnp.abs(x))
    square = angle * angle
    curve = _polynomial(
        square, 0.333331568548, 0.133387994085, 0.0534112807, 0.0244301354525, 3.11992232697e-3, 9.3854e-3
    )
    tangent = angle + (angle * square * curve + error * (1 + square))
    tangent = jnp.where((quarters & 1) == 1, -1 / tangent, tangent)
    tangent = jnp.where(jnp.signbit(x), -tangent, tangent)
    return jnp.where(jnp.isfinite(x), tangent, x - x)  # NaN


def _sine_after_quarters(x: Array, more: int) -> Array:
    """The sine of a nonnegative `x` after `more` quarter turns."""
    quarters, angle, _ = _nearest_quarter(x)
    quarters = quarters + more
    square = angle * angle
    sine = angle + angle * square * _polynomial(square, -0.16666654611, 8.3321608736e-3, -1.9515295891e-4)
    cosine = 1 + square * (square * _polynomial(square, 4.166664568e-2, -1.388731625e-3, 2.443315711e-5) - 0.5)
    value = jnp.where((quarters & 1) == 1, cosine, sine)
    value = jnp.where((quarters & 2) == 2, -value, value)
    return jnp.where(jnp.isfinite(x), value, x - x)  # NaN


def _nearest_quarter(x: Array) -> tuple[Array, Array, Array]:
    """The number of quarter turns nearest to a nonnegative `x`, modulo 4, and the remaining angle.

    The angle is a float and its rounding error.
    """
    quarters, angle, error = _quarter_turns(x)
    is_near, zero = x < np.float32(np.pi / 4), jnp.zeros_like(x)
    return (
        jnp.where(is_near, zero.astype(quarters.dtype), quarters),
        jnp.where(is_near, x, angle),
        jnp.where(is_near, zero, error),
    )


# The bits of 2 / pi after the point, in words of 32 bits, after a word of zeros
_QUARTERS = (
    0,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
    0xDEBBC561,
    0xB7246E3A,
    0x424DD2E0,
)


def _quarter_turns(x: Array) -> tuple[Array, Array, Array]:
    """`_nearest_quarter` for an `x` of at least pi / 4.

    This is the reduction of Payne and Hanek. It multiplies the 24-bit significand of `x` by 96 bits of 2 / pi, modulo
    2**96, which is four quarter turns. Higher bits of 2 / pi only add whole turns, and lower bits are too small to
    count.
    """
    bits = lax.bitcast_convert_type(x, np.uint32)
    digits = (bits & _word(0x7FFFFF)) | _word(0x800000)
    offset = jnp.maximum(bits >> _word(23), _word(120)) - _word(120)  # bits of 2 / pi that make whole turns of `x`
    words = [jnp.full_like(bits, word) for word in _QUARTERS]
    for count in (4, 2, 1):
        is_skipped = (offset & _word(32 * count)) != 0
        words = [jnp.where(is_skipped, after, word) for word, after in zip(words, words[count:], strict=False)]
    places = offset & _word(31)
    high, middle, low = (
        (word << places) | ((after >> _word(1)) >> (_word(31) - places)) for word, after in pairwise(words)
    )
    product = digits * middle
    second = product + _high_word(digits, low)
    first = digits * high + _high_word(digits, middle) + (second < product).astype(np.uint32)
    quarters = (first + _word(1 << 29)) >> _word(30)
    # The rest, between -1/2 and 1/2 of a quarter turn: its sign, and a magnitude of two words.
    left, rest = (first << _word(2)) | (second >> _word(30)), second << _word(2)
    is_negative = (left >> _word(31)) == 1
    left, rest = (jnp.where(is_negative, ~word, word) for word in (left, rest))
    large, small = _to_float(left & _word(0x7FFF0000)), _to_float(left & _word(0xFFFF))
    tiny = _to_float(rest >> _word(1)) * np.float32(2.0**-31)
    # The first factor has few digits, so its products with `large` and `small` are exact.
    factor = np.pi / 2 * 2.0**-32
    coarse = np.float32(1.5703125 * 2.0**-32)
    high = large * coarse
    low = small * coarse + ((large + small) * np.float32(factor - float(coarse)) + tiny * np.float32(factor))
    angle = high + low
    error = (high - angle) + low
    angle, error = (jnp.where(is_negative, -part, part) for part in (angle, error))
    return quarters.astype(np.int32), angle, error


def _high_word(a: Array, b: Array) -> Array:
    """The upper word of the product of a 24-bit `a` and a 32-bit `b`."""
    (a_high, a_low), (b_high, b_low) = ((bits >> _word(16), bits & _word(0xFFFF)) for bits in (a, b))
    cross = a_low * b_high
    middle = (a_low * b_low >> _word(16)) + a_high * b_low + (cross & _word(0xFFFF))
    return a_high * b_high + (cross >> _word(16)) + (middle >> _word(16))


def _to_float(x: Array) -> Array:
    """Words below 2**31 as floats, through signed integers, which processors convert faster."""
    return x.astype(np.int32).astype(np.float32)


def _word(number: int) -> np.uint32:
    return np.uint32(number)


_RIGHT_ANGLE = np.float32(np.pi / 2), np.float32(np.pi / 2 - float(np.float32(np.pi / 2)))


def asin(x: Array) -> Array:
    """The arc sine (inverse sine)."""
    is_steep, sine, curve = _arc_of_small_sine(jnp.abs(x))
    right, low = _RIGHT_ANGLE
    rest = right - 2 * sine
    loss = (right - rest) - 2 * sine
    angle = jnp.where(is_steep, rest + (loss + (low - 2 * curve)), sine + curve)
    return jnp.where(jnp.signbit(x), -angle, angle)


def acos(x: Array) -> Array:
    """The arc cosine (inverse cosine)."""
    is_steep, sine, curve = _arc_of_small_sine(jnp.abs(x))
    is_left = x < 0
    right, low = _RIGHT_ANGLE
    across = right - (x + (jnp.where(is_left, -curve, curve) - low))
    left = (2 * right - 2 * sine) + (2 * low - 2 * curve)
    return jnp.where(is_steep, jnp.where(is_left, left, 2 * (sine + curve)), across)


def _arc_of_small_sine(x: Array) -> tuple[Array, Array, Array]:
    """Returns whether a nonnegative `x` exceeds 1/2, a sine of at most 1/2, and its arc minus that sine.

    Up to 1/2, the sine is `x` itself. Above, it is the sine of half the angle whose cosine is `x`.
    """
    is_steep = x > np.float32(0.5)
    square = jnp.where(is_steep, (1 - x) / 2, x * x)
    sine = jnp.where(is_steep, lax.sqrt(square), x)
    curve = _polynomial(square, 0.166667521, 0.074952975, 0.0454703793, 0.0241795052, 0.0421663262)
    return is_steep, sine, sine * square * curve


def angle(y: Array, x: Array) -> Array:
    """The angle of the point (x, y), in [-pi, pi], with the sign of `y`."""
    height, width = jnp.abs(y), jnp.abs(x)
    is_steep = height > width
    shorter, longer = jnp.where(is_steep, width, height), jnp.where(is_steep, height, width)
    ratio = jnp.where(shorter == longer, jnp.ones_like(x), shorter / longer)  # 1 also for two infinities
    ratio = jnp.where(longer == 0, shorter, ratio)
    arc = _arctan(jnp.where(jnp.isnan(x), x, ratio))
    is_left = jnp.signbit(x)
    # Add or subtract the arc from the angle of the nearest axis in one step: with two, the rounding would depend on the
    # version of XLA.
    axis, low = (
        jnp.where(is_steep, quarter, jnp.where(is_left, 2 * quarter, jnp.zeros_like(x))) for quarter in _RIGHT_ANGLE
    )
    angle = axis + jnp.where(is_steep == is_left, arc, -arc) + low
    return jnp.where(jnp.signbit(y), -angle, angle)


def _arctan(ratio: Array) -> Array:
    """The arc tangent of a ratio in [0, 1]."""
    is_steep = ratio > np.float32(np.tan(np.pi / 8))
    tangent = jnp.where(is_steep, (ratio - 1) / (ratio + 1), ratio)
    square = tangent * tangent
    curve = _polynomial(square, -0.3333331645, 0.1999848783, -0.1424380243, 0.1059563830, -0.06082485244)
    angle = tangent + tangent * square * curve
    return jnp.where(is_steep, np.float32(np.pi / 4) + angle, angle)


def reciprocal_power_of_2(x: Array) -> Array:
    """A power of 2 whose product with a positive normal `x` is between 1 and 4."""
    exponent = lax.bitcast_convert_type(x, np.int32) >> 23
    return lax.bitcast_convert_type(jnp.maximum(254 - exponent, 1) << 23, np.float32)
