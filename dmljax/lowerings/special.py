"""Elementary functions of floats where XLA's own are slow, or are wrong at the ends of the range.

All others are XLA's. So are these in float64, which DirectML does not support for them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.arithmetic import elementary_float32 as float32
from dmljax.arithmetic.derivatives import with_derivatives
from dmljax.lowerings.platform import choose

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


# XLA's hyperbolic functions lose digits of large arguments, but a GPU has its own. Its other functions here are scalar
# code on a CPU.


@float32_function(lax.cosh, lambda x: sinh(x))  # type: ignore[has-type]
def cosh(x: Array) -> Array:
    """The hyperbolic cosine."""
    return choose(x, gpu=lax.cosh, default=float32.cosh)


@float32_function(lax.sinh, lambda x: cosh(x))
def sinh(x: Array) -> Array:
    """The hyperbolic sine."""
    return choose(x, gpu=lax.sinh, default=float32.sinh)


@float32_function(lax.sin, lambda x: cos(x))  # type: ignore[has-type]
def sin(x: Array) -> Array:
    """The sine of an angle in radians."""
    return choose(x, cpu=float32.sin, default=lax.sin)


@float32_function(lax.cos, lambda x: -sin(x))
def cos(x: Array) -> Array:
    """The cosine of an angle in radians."""
    return choose(x, cpu=float32.cos, default=lax.cos)


@float32_function(lax.tan, lambda x: 1 + tan(x) * tan(x))  # type: ignore[has-type]
def tan(x: Array) -> Array:
    """The tangent of an angle in radians."""
    return choose(x, cpu=float32.tan, default=lax.tan)


@float32_function(lax.asin, lambda x: lax.rsqrt((1 - x) * (1 + x)))
def asin(x: Array) -> Array:
    """The arc sine (inverse sine)."""
    return choose(x, cpu=float32.asin, default=_asin)


def _asin(x: Array) -> Array:
    return jnp.where(jnp.abs(x) < 2**-13, x, lax.asin(x))  # before JAX 0.12, XLA flushes the smallest numbers to 0


@float32_function(lax.acos, lambda x: -lax.rsqrt((1 - x) * (1 + x)))
def acos(x: Array) -> Array:
    """The arc cosine (inverse cosine)."""
    return choose(x, cpu=float32.acos, default=lax.acos)


def atan(x: Array) -> Array:
    """The arc tangent (inverse tangent)."""
    return lax.atan(x) if x.dtype == np.float64 else _atan(x)


@with_derivatives(lambda x: 1 / (1 + x * x))
def _atan(x: Array) -> Array:
    return choose(x, cpu=lambda x: float32.angle(x, jnp.ones_like(x)), default=lax.atan)


def atan2(y: Array, x: Array) -> Array:
    """The angle of the point (x, y), in [-pi, pi].

    The angle of the origin is 0 if `x` is +0 and pi if `x` is -0, with the sign of `y`.
    """
    return lax.atan2(y, x) if y.dtype == np.float64 else _atan2(y, x)


@jax.custom_jvp
def _atan2(y: Array, x: Array) -> Array:
    return choose(y, x, cpu=float32.angle, default=lax.atan2)


@_atan2.defjvp
def _atan2_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (y, x), (y_tangent, x_tangent) = primals, tangents
    longer = jnp.maximum(jnp.abs(y), jnp.abs(x))
    # The squares may be out of range, so the parts are scaled first: by a power of 2 and not by a division, which XLA
    # would merge with the division below.
    shrink = float32.reciprocal_power(longer)
    y_part, x_part = y * shrink, x * shrink
    square = y_part * y_part + x_part * x_part
    is_far = jnp.isinf(longer)
    of_y, of_x = (jnp.where(is_far, jnp.zeros_like(x), part / square * shrink) for part in (x_part, -y_part))
    return _atan2(y, x), of_y * y_tangent + of_x * x_tangent
