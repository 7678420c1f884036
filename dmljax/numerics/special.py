"""Elementary functions of floats where XLA's own are slow, or are wrong at the ends of the range.

All others are XLA's. In float64, which DirectML supports for none of them, these are XLA's, too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.numerics.exact import with_derivatives
from dmljax.numerics.platform import choose

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


def _polynomial(x: Array, *coefficients: float) -> Array:
    """The polynomial of `x` with these coefficients, starting with the coefficient of `x**0`."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + jnp.full((), coefficient, x.dtype)
    return value


# Hyperbolic functions: XLA takes logarithms of 2 from large arguments, and loses digits, but has functions of the GPU


@float32_function(lax.cosh, lambda x: sinh(x))  # type: ignore[has-type]
def cosh(x: Array) -> Array:
    """The hyperbolic cosine."""
    return choose(x, gpu=lax.cosh, default=_cosh)


def _cosh(x: Array) -> Array:
    half = _hyperbolic_half(x)
    return half + np.float32(0.25) / half


@float32_function(lax.sinh, lambda x: cosh(x))
def sinh(x: Array) -> Array:
    """The hyperbolic sine."""
    return choose(x, gpu=lax.sinh, default=_sinh)


def _sinh(x: Array) -> Array:
    half = _hyperbolic_half(x)
    half = jnp.where(x < 0, -half, half)
    square = x * x
    small = x + x * square * _polynomial(square, 0.16666667163, 0.00833335053, 1.983606635e-4, 2.81743974e-6)
    return jnp.where(square < 1, small, half - np.float32(0.25) / half)


def _hyperbolic_half(x: Array) -> Array:
    """exp(|x|) / 2, without overflow where this quotient itself is finite."""
    root = lax.exp(jnp.abs(x) / 2)
    return root / 2 * root


# Inverses


@float32_function(lax.asin, lambda x: lax.rsqrt((1 - x) * (1 + x)))
def asin(x: Array) -> Array:
    """The arc sine (inverse sine)."""
    return jnp.where(jnp.abs(x) < 2**-13, x, lax.asin(x))  # in JAX 0.10, XLA flushes the smallest normal numbers to 0


def atan(x: Array) -> Array:
    """The arc tangent (inverse tangent)."""
    return lax.atan(x) if x.dtype == np.float64 else _atan(x)


@with_derivatives(lambda x: 1 / (1 + x * x))
def _atan(x: Array) -> Array:
    return choose(x, cpu=lambda x: _angle(x, jnp.ones_like(x)), default=lax.atan)  # XLA on CPU calls scalar code


def atan2(y: Array, x: Array) -> Array:
    """The angle of the point (x, y), in [-pi, pi].

    The angle of the origin is 0 if `x` is +0 and pi if `x` is -0, with the sign of `y`.
    """
    return lax.atan2(y, x) if y.dtype == np.float64 else _atan2(y, x)


_RIGHT_ANGLE = np.float32(np.pi / 2), np.float32(np.pi / 2 - float(np.float32(np.pi / 2)))


@jax.custom_jvp
def _atan2(y: Array, x: Array) -> Array:
    return choose(y, x, cpu=_angle, default=lax.atan2)


def _angle(y: Array, x: Array) -> Array:
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
