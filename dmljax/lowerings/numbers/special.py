"""Elementary functions of floats where XLA's own are slow, or wrong at the ends of the range.

All other functions are XLA's, and so are these in float64, which DirectML does not support for them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.lowerings.numbers import elementary_float32 as float32
from dmljax.lowerings.numbers.derivatives import custom_derivatives, custom_jvps
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import QUOTIENT_JVPS, quotient

Function = Callable[[Array], Array]


def _make_function(xla_function: Function, derivative: Function, **by_platform: Function) -> Function:
    """A function of floats: float32 uses these on each platform, and everything else uses XLA's."""
    float32_function = custom_derivatives(derivative)(lambda x: choose(x, **({"default": xla_function} | by_platform)))
    return lambda x: xla_function(x) if x.dtype == np.float64 else float32_function(x)


def _asin(x: Array) -> Array:
    if x.dtype == np.float64:
        return lax.asin(x)
    return jnp.where(jnp.abs(x) < 2**-13, x, lax.asin(x))  # before JAX 0.12, XLA flushes the smallest numbers to 0


# XLA's hyperbolic functions lose digits for large arguments, except a GPU's. Its other functions here are scalar code
# on a CPU.
cosh: Function = _make_function(lax.cosh, lambda x: sinh(x), gpu=lax.cosh, default=float32.cosh)
sinh: Function = _make_function(lax.sinh, lambda x: cosh(x), gpu=lax.sinh, default=float32.sinh)
sin: Function = _make_function(lax.sin, lambda x: cos(x), cpu=float32.sin)
cos: Function = _make_function(lax.cos, lambda x: -sin(x), cpu=float32.cos)
tan: Function = _make_function(lax.tan, lambda x: 1 + tan(x) * tan(x), cpu=float32.tan)
asin: Function = _make_function(_asin, lambda x: lax.rsqrt((1 - x) * (1 + x)), cpu=float32.asin)
acos: Function = _make_function(lax.acos, lambda x: -lax.rsqrt((1 - x) * (1 + x)), cpu=float32.acos)
atan: Function = _make_function(lax.atan, lambda x: 1 / (1 + x * x), cpu=lambda x: float32.angle(x, jnp.ones_like(x)))


@custom_jvps(*QUOTIENT_JVPS)
def rounded_quotient(a: Array, b: Array) -> Array:
    """`a / b`, rounded to nearest on a CPU and a GPU, for results that jump; `a` must have the shape of the result.

    XLA divides float32 on a GPU with errors of up to 2 units in the last place, so that 49 / 49 may be less than 1.
    """
    return choose(a, b, gpu=_divide_in_float64, default=quotient) if a.dtype == np.float32 else quotient(a, b)


def _divide_in_float64(a: Array, b: Array) -> Array:
    """Multiplies by a reciprocal, because LLVM makes a quotient of numbers from float32 one in float32 again.

    The select keeps XLA from a kernel of its own for the reciprocal of a scalar.
    """
    b = jnp.where(jnp.isnan(a), a, b)
    with jax.enable_x64(True):
        return (a.astype(np.float64) * lax.reciprocal(b.astype(np.float64))).astype(np.float32)


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
    # The squares may overflow, so scale the parts first: by a power of 2 and not by a division, which XLA would merge
    # with the division below.
    shrink = float32.reciprocal_power_of_2(longer)
    y_part, x_part = y * shrink, x * shrink
    square = y_part * y_part + x_part * x_part
    is_far = jnp.isinf(longer)
    y_derivative, x_derivative = (
        jnp.where(is_far, jnp.zeros_like(x), part / square * shrink) for part in (x_part, -y_part)
    )
    return _atan2(y, x), y_derivative * y_tangent + x_derivative * x_tangent
