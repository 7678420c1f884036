"""Elementary functions of float32, accurate to within 4 units in the last place (ULP) for all arguments.

XLA's own functions are that accurate for most arguments, but not for all: on CPU their errors reach 24 ULP for sinh, 65
for erfc, and 5 for atan. XLA's functions are used where they are accurate in every version of JAX. All functions take
and return float32 or float64. DirectML supports float64 for none of them, so for float64 they call XLA's functions.

Many functions take their argument as an unevaluated sum of `x` and a much smaller `low`, which holds the digits that do
not fit a single float32.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.numerics.exact import (
    mantissa_and_exponent,
    power_of_two,
    powers_of_two,
    product,
    product_error,
    sum_error,
    times_power_of_two,
    triple_product,
    with_derivatives,
    zeros_of,
)

F = TypeVar("F", bound=Callable[..., Any])


def float32_function(x64: Callable[..., Array], derivative: Callable[..., Array]) -> Callable[[F], F]:
    """Decorates a function of one float32 array, which has this derivative; float64 arrays go to `x64` instead."""

    def decorated(function: F) -> F:
        of_float32 = with_derivatives(derivative)(function)

        def dispatched(x: Array) -> Array:
            result: Array = x64(x) if x.dtype == np.float64 else of_float32(x)
            return result

        dispatched.__name__, dispatched.__doc__ = function.__name__, function.__doc__
        return dispatched  # type: ignore[return-value]

    return decorated


def _constant(value: float, like: Array) -> Array:
    return jnp.full((), value, like.dtype)


def _polynomial(x: Array, *coefficients: float) -> Array:
    """The polynomial of `x` with these coefficients, starting with the coefficient of `x**0`."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + _constant(coefficient, x)
    return value


# Exponentials


def exp(x: Array, low: Array | None = None) -> Array:
    """The exponential of `x`, or of the unevaluated sum of `x` and a much smaller `low`."""
    if x.dtype == np.float64:
        return lax.exp(x if low is None else x + low)
    exponent, mantissa = _exp_in_parts(x, zeros_of(x) if low is None else low, 0)
    whole = exponent.astype(np.int32)
    half = whole >> 1  # the power is split, because neither 2**128 nor 2**-127 is a normal number
    return mantissa * power_of_two(half, np.float32) * power_of_two(whole - half, np.float32)


class Exponential(NamedTuple):
    """An exponential as a mantissa and three powers of 2, whose product may be out of the range of float32.

    The product has powers of 2 before and after the mantissa, so that the partial products that its derivative
    multiplies are normal numbers, too.
    """

    first: Array
    mantissa: Array
    second: Array
    third: Array

    def times(self, factor: Array) -> Array:
        """`factor` times the exponential, without overflow or underflow where this product itself is in range."""
        return factor * self.first * self.mantissa * self.second * self.third

    def value(self) -> Array:
        """The exponential itself."""
        return self.first * self.mantissa * self.second * self.third


def exponential(x: Array, low: Array) -> Exponential:
    """The exponential of the unevaluated sum `x + low`, in parts to be multiplied by a large or small factor."""
    if x.dtype == np.float64:
        one = jnp.ones_like(x)
        return Exponential(one, exp(x, low), one, one)
    exponent, mantissa = _exp_in_parts(x, low, 128)
    first, second, third = powers_of_two(exponent.astype(np.int32), np.float32)
    return Exponential(first, mantissa, second, third)


def times_exp(factor: Array, x: Array, low: Array) -> Array:
    """`factor` times the exponential of the unevaluated sum `x + low`, which may be out of the range of float32."""
    return exponential(x, low).times(factor)


@with_derivatives(
    lambda a, b, x, low: exp_product(jnp.ones_like(x), b, x, low),
    lambda a, b, x, low: exp_product(a, jnp.ones_like(x), x, low),
    lambda *given: exp_product(*given),
    lambda *given: exp_product(*given),
)
def exp_product(a: Array, b: Array, x: Array, low: Array) -> Array:
    """`a * b` times the exponential of the unevaluated sum `x + low`; only the whole product must be in range."""
    if x.dtype == np.float64:
        return a * exp(x, low) * b
    exponent, mantissa = _exp_in_parts(x, low, 256)
    (a, a_exponent), (b, b_exponent) = mantissa_and_exponent(a), mantissa_and_exponent(b)
    return times_power_of_two(a * b * mantissa, a_exponent + b_exponent + exponent.astype(np.int32))


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _exp_in_parts(x: Array, low: Array, beyond: int) -> tuple[Array, Array]:
    """The exponential as the exponent of a power of 2 and a mantissa, correct even `2**beyond` times out of range.

    0.6875 is just below ln 2, and the exponentials of -105 and 90 are out of the range of float32. The tangent of `low`
    is ignored: the functions that compute `low` stop derivatives.
    """
    lowest = -105 - 0.6875 * beyond
    exponent, reduced, square = _reduced(jnp.clip(x, lowest, 90 + 0.6875 * beyond), low)
    # The mantissa is exactly 0 where no float is as small as the exponential: a small mantissa would not vanish when it
    # is multiplied by infinity or by a large derivative.
    return exponent, jnp.where(x < lowest, jnp.zeros_like(x), 1 + (reduced + square))


@_exp_in_parts.defjvp
def _exp_in_parts_jvp(beyond: int, primals: Any, tangents: Any) -> Any:
    exponent, mantissa = _exp_in_parts(*primals, beyond)
    return (exponent, mantissa), (jnp.zeros_like(exponent), mantissa * tangents[0])


def _reduced(x: Array, low: Array) -> tuple[Array, Array, Array]:
    """The argument reduction of exp: an integer k and an r with x + low = k ln 2 + r; and exp(r) - 1 - r."""
    low = jnp.clip(low, -(2**-10), 2**-10)
    exponent = jnp.round(x * np.float32(1.442695))
    reduced = (x - exponent * np.float32(0.693359375)) + (exponent * np.float32(2.12194440e-4) + low)
    curve = _polynomial(reduced, 0.5, 0.16666537523, 0.04166626558, 0.008367246948, 0.001394759514)
    return exponent, reduced, reduced * reduced * curve


def expm1(x: Array, low: Array | None = None) -> Array:
    """exp(x) - 1 of `x`, or of the unevaluated sum of `x` and a much smaller `low`."""
    if x.dtype == np.float64:
        return lax.expm1(x if low is None else x + low)
    return _expm1(x, zeros_of(x) if low is None else low)


@with_derivatives(exp, exp)
def _expm1(x: Array, low: Array) -> Array:
    exponent, reduced, square = _reduced(jnp.clip(x, -126, 90), low)
    power = power_of_two(jnp.clip(exponent, -100, 100), np.float32)
    small = power * (reduced + square) + (power - 1)
    value = jnp.where(jnp.abs(x) < 60, small, exp(x, low) - 1)
    return jnp.where(x == 0, x, value)  # keeps -0


@float32_function(lax.cosh, lambda x: sinh(x))  # type: ignore[has-type]
def cosh(x: Array) -> Array:
    """The hyperbolic cosine."""
    half = _hyperbolic_half(x)
    return half + np.float32(0.25) / half


@float32_function(lax.sinh, lambda x: cosh(x))
def sinh(x: Array) -> Array:
    """The hyperbolic sine."""
    half = _hyperbolic_half(x)
    large = _signed(half - np.float32(0.25) / half, x)
    square = jnp.minimum(x * x, 1)
    small = x + x * square * _polynomial(square, 0.16666667163, 0.00833335053, 1.983606635e-4, 2.81743974e-6)
    return jnp.where(jnp.abs(x) < 1, small, large)


def _hyperbolic_half(x: Array) -> Array:
    """exp(|x|) / 2, without overflow where this quotient itself is finite."""
    return times_exp(jnp.full_like(x, 0.5), jnp.abs(x), jnp.zeros_like(x))


def _signed(magnitude: Array, x: Array) -> Array:
    return jnp.where(x < 0, -magnitude, magnitude)


def tanh(x: Array, low: Array | None = None) -> Array:
    """The hyperbolic tangent of `x`, or of the unevaluated sum of `x` and a much smaller `low`."""
    if x.dtype == np.float64:
        return lax.tanh(x if low is None else x + low)
    return _tanh(x, zeros_of(x) if low is None else low)


@with_derivatives(*2 * [lambda x, low: _tanh_slope(x)])
def _tanh(x: Array, low: Array) -> Array:
    magnitude = jnp.minimum(jnp.abs(x), 20)
    large = _signed(1 - 2 / (exp(2 * magnitude, 2 * _signed(low, x)) + 1), x)
    square = jnp.minimum(x * x, 1)
    curve = _polynomial(square, -0.3333331943, 0.1333260238, -0.05385385826, 0.02107775211, -0.006282465532)
    small = x + (x * (square * curve) + low * (1 - square))
    return jnp.where(x == 0, x, jnp.where(magnitude < 0.55, small, large))  # keeps -0


def sigmoid(x: Array, low: Array | None = None) -> Array:
    """The sigmoid 1 / (1 + exp(-x)) of `x`, or of the unevaluated sum `x + low`."""
    return _sigmoid_of(x, exp(*minus_magnitude(x, zeros_of(x) if low is None else low)))


def _sigmoid_of(x: Array, shrunk: Array) -> Array:
    """The sigmoid of `x`, given `shrunk` = exp(-|x|)."""
    return jnp.where(x < 0, shrunk, jnp.ones_like(x)) / (1 + shrunk)


def minus_magnitude(x: Array, low: Array) -> tuple[Array, Array]:
    """-|x + low|, as an unevaluated sum like its argument."""
    return jnp.where(x < 0, x, -x), jnp.where(x < 0, low, -low)


def times_sigmoid(factor: Array, x: Array, low: Array) -> Array:
    """`factor` times the sigmoid of the unevaluated sum `x + low`; the sigmoid alone may be too small for a float32."""
    shrunk = exponential(*minus_magnitude(x, low))
    return jnp.where(x < TINY, shrunk.times(factor), factor * _sigmoid_of(x, shrunk.value()))


def sigmoid_product(a: Array, b: Array, x: Array, low: Array) -> Array:
    """`a * b` times the sigmoid of the unevaluated sum `x + low`; only the whole product must be in range."""
    return jnp.where(x < TINY, exp_product(a, b, x, low), triple_product(a, b, sigmoid(x, low)))


def _tanh_slope(x: Array) -> Array:
    """1 / cosh(x)**2, computed so that the intermediate values and their derivatives stay in range."""
    one = jnp.ones_like(x)
    return tanh_slope_product(one, one, x)


def tanh_slope_product(a: Array, b: Array, x: Array) -> Array:
    """`a * b` times the derivative of the hyperbolic tangent at `x`; only the whole product must be in range."""
    power = -2 * jnp.abs(x)
    shrunk = exp(power)
    return exp_product(a, b, power, jnp.zeros_like(x)) * (4 / ((1 + shrunk) * (1 + shrunk)))


TINY = -60  # below this argument, sigmoid and softplus equal the exponential


def softplus(x: Array, low: Array) -> Array:
    """The softplus ln(1 + exp(x + low)) of an unevaluated sum."""
    return softplus_of(x, exponential(*minus_magnitude(x, low)))


def softplus_of(x: Array, shrunk: Exponential) -> Array:
    """The softplus ln(1 + exp(x)), given `shrunk` = exp(-|x|)."""
    return jnp.where(x < 0, jnp.zeros_like(x), x) + _log1p_of_fraction(shrunk.value())


@float32_function(lax.log1p, lambda x: 1 / (1 + x))
def _log1p_of_fraction(x: Array) -> Array:
    """ln(1 + x) of an `x` in [0, 1]."""
    curve = _polynomial(
        x,
        *(-0.499999881, 0.333326906, -0.249885798, 0.198979318, -0.161293358),
        *(0.124671236, -0.0830740854, 0.0419813767, -0.0136314882, 0.0020729492),
    )
    return x + x * x * curve


def _softsign_slope(x: Array) -> Array:
    return 1 / ((1 + jnp.abs(x)) * (1 + jnp.abs(x)))


def _softsign(x: Array) -> Array:
    # Not jnp.abs, whose gradient at 0 depends on the version of JAX.
    return x / (1 + jnp.where(jnp.signbit(x), -x, x))


@float32_function(_softsign, _softsign_slope)
def softsign(x: Array) -> Array:
    """The softsign x / (1 + |x|).

    Its derivative is given, because automatic differentiation would compute it as a difference, which cancels.
    """
    return _softsign(x)


# Inverses


@float32_function(lax.asin, lambda x: lax.rsqrt((1 - x) * (1 + x)))
def asin(x: Array) -> Array:
    """The arc sine (inverse sine)."""
    return jnp.where(jnp.abs(x) < 2**-13, x, lax.asin(x))  # in JAX 0.10, XLA flushes the smallest normal numbers to 0


def atan(x: Array) -> Array:
    """The arc tangent (inverse tangent)."""
    return atan2(x, jnp.ones_like(x))


def atan2(y: Array, x: Array) -> Array:
    """The angle of the point (x, y), in [-pi, pi].

    The angle of the origin is 0 if `x` is +0 and pi if `x` is -0, with the sign of `y`.
    """
    return lax.atan2(y, x) if y.dtype == np.float64 else _atan2(y, x)


_RIGHT_ANGLE = np.float32(np.pi / 2), np.float32(np.pi / 2 - float(np.float32(np.pi / 2)))


@jax.custom_jvp
def _atan2(y: Array, x: Array) -> Array:
    height, width = jnp.abs(y), jnp.abs(x)
    is_steep = height > width
    shorter, longer = jnp.where(is_steep, width, height), jnp.where(is_steep, height, width)
    slope = jnp.where(shorter == longer, jnp.ones_like(x), shorter / longer)  # 1 also for two infinities
    slope = jnp.where(longer == 0, shorter, slope)
    arc = _arc_of_slope(jnp.where(jnp.isnan(x), x, slope))
    is_left = jnp.signbit(x)
    # The arc is added to or subtracted from the angle of the nearest axis in one step: with a second step, the rounding
    # would depend on the version of XLA.
    axis, low = (
        jnp.where(is_steep, quarter, jnp.where(is_left, 2 * quarter, jnp.zeros_like(x))) for quarter in _RIGHT_ANGLE
    )
    angle = axis + jnp.where(is_steep == is_left, arc, -arc) + low
    return jnp.where(jnp.signbit(y), -angle, angle)


@_atan2.defjvp
def _atan2_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (y, x), (y_tangent, x_tangent) = primals, tangents
    longer = jnp.maximum(jnp.abs(y), jnp.abs(x))
    # The squares may be out of range, so the parts are scaled first: by a power of 2 and not by a division, which XLA
    # would merge with the division below.
    shrink = _reciprocal_power(longer)
    y_part, x_part = y * shrink, x * shrink
    square = y_part * y_part + x_part * x_part
    is_far = jnp.isinf(longer)
    of_y, of_x = (jnp.where(is_far, jnp.zeros_like(x), part / square * shrink) for part in (x_part, -y_part))
    return _atan2(y, x), of_y * y_tangent + of_x * x_tangent


def _reciprocal_power(x: Array) -> Array:
    """A power of 2 whose product with `x`, if `x` is positive and normal, is between 1 and 4."""
    exponent = lax.bitcast_convert_type(x, np.int32) >> 23
    return lax.bitcast_convert_type(jnp.maximum(254 - exponent, 1) << 23, np.float32)


def _arc_of_slope(slope: Array) -> Array:
    """The arc tangent of a slope in [0, 1]."""
    is_steep = slope > np.float32(np.tan(np.pi / 8))
    turned = jnp.where(is_steep, (slope - 1) / (slope + 1), slope)
    square = turned * turned
    curve = _polynomial(square, -0.3333331645, 0.1999848783, -0.1424380243, 0.1059563830, -0.06082485244)
    angle = turned + turned * square * curve
    return jnp.where(is_steep, np.float32(np.pi / 4) + angle, angle)


def _asinh_slope(x: Array) -> Array:
    magnitude = jnp.abs(x)
    is_large = magnitude > 2**13  # then sqrt(x**2 + 1) is |x|, and x**2 may be out of range
    near, far = jnp.where(is_large, jnp.zeros_like(x), x), jnp.where(is_large, magnitude, jnp.ones_like(x))
    return jnp.where(is_large, 1 / far, lax.rsqrt(near * near + 1))


@float32_function(lax.asinh, _asinh_slope)
def asinh(x: Array) -> Array:
    """The inverse hyperbolic sine."""
    return lax.asinh(x)


@float32_function(lax.acosh, lambda x: lax.rsqrt(x - 1) * lax.rsqrt(x + 1))
def acosh(x: Array) -> Array:
    """The inverse hyperbolic cosine."""
    above = jnp.where(x < 1, jnp.full_like(x, np.nan), x - 1)
    near = lax.log1p(above + jnp.sqrt(above * (above + 2)))
    return jnp.where(x < 2**13, near, lax.log(x) + np.float32(np.log(2)))


# The normal distribution


def gelu(x: Array) -> Array:
    """The GELU: `x` times the probability that a standard normal variable is at most `x`."""
    return x * lax.erfc(x * -np.sqrt(0.5)) / 2 if x.dtype == np.float64 else _gelu(x)


@with_derivatives(lambda x: _gelu_slope(x))
def _gelu(x: Array) -> Array:
    gauss, curve, width = _normal_tail(jnp.abs(x))
    # The Gaussian is multiplied last: as x decreases, this product is still a normal number where the tail probability
    # is not.
    return jnp.where(x < 0, (x / width) * curve * gauss, x * (1 - gauss * (curve / width)))


def _gelu_slope(x: Array) -> Array:
    x = jnp.clip(x, -20, 20)  # beyond these bounds, the slope is 0 or 1
    gauss, curve, width = _normal_tail(jnp.abs(x))
    tail = gauss * (curve / width)
    return jnp.where(x < 0, tail, 1 - tail) + x * gauss * np.float32(1 / np.sqrt(2 * np.pi))


@float32_function(lax.erf, lambda x: _gauss(x * np.float32(np.sqrt(2))) * np.float32(2 / np.sqrt(np.pi)))
def erf(x: Array) -> Array:
    """The error function."""
    size = jnp.minimum(jnp.abs(x), 4)  # beyond 4, the result is 1 or -1
    # The logarithm of 1 - erf(x), divided by -x, is nearly a straight line.
    curve = _polynomial(size, 1.1285038, 0.635753453, 0.105215974, -0.0228608064, 0.00320593175, -2.128976e-4)
    return jnp.where(size < 1, x * _erf_over_x(x * x), _signed(1 - exp(-size * curve), x))


def _erf_over_x(square: Array) -> Array:
    """erf(y) / y, given the square of y, which must not be greater than 1."""
    coefficients = (
        1.1283791065,
        -0.3761262596,
        0.1128360033,
        -0.0268544443,
        0.005189535208,
        -8.020841051e-4,
        7.8891193e-5,
    )
    return _polynomial(jnp.minimum(square, 1), *coefficients)


def _gauss(x: Array) -> Array:
    """exp(-x**2 / 2)."""
    square, low = _square(jnp.clip(x, -20, 20))  # beyond these bounds, the result is 0
    return exp(square / -2, low / -2)


def _square(x: Array) -> tuple[Array, Array]:
    """The square of an `x` whose square is in range, and its rounding error."""
    square = product(x, x)
    return square, lax.stop_gradient(product_error(square, x, x))


def _normal_tail(x: Array) -> tuple[Array, Array, Array]:
    """A Gaussian, a curve and a width: a standard normal variable exceeds `x` with probability gauss * curve / width.

    `x` must not be negative. The rounding errors of the curve and the width are corrected in the exponent of the
    Gaussian, where the correction costs no additional rounding.
    """
    x = jnp.minimum(x, np.float32(14.6))
    # The curve is the tail probability divided by the Gaussian and multiplied by the width, which is proportional to x
    # for large x. This quotient hardly varies, so that a polynomial approximates it well.
    part = (x - 4) / (x + 4)
    slope = part * _polynomial(
        part,
        *(-0.139302909, 0.0450946391, 0.0106735807, -0.0244839899, 0.0158118643, -0.00486653391),
        *(-1.20208388e-4, 6.39787118e-4, -1.06943451e-4, -8.43842427e-5),
    )
    middle, beside = jnp.full_like(x, 0.495655864), jnp.full_like(x, 1.25)
    curve, width = middle + slope, beside + x
    curve_low, width_low = (
        lax.stop_gradient(sum_error(total, *parts)) for total, parts in ((curve, (middle, slope)), (width, (beside, x)))
    )
    square, low = _square(x)
    return exp(square / -2, low / -2 + (curve_low / curve - width_low / width)), curve, width
