"""Sums, products and quotients of floats with the part that rounding takes from them, at every scale.

Two habits of backends decide how this is written. They may fuse a product into the sum that uses it, and not round it
there: a product that must be rounded comes out of a select, which stops that. And they may flush subnormal numbers to
zero: rounding errors are computed of numbers in the middle of the range, and scaled afterwards.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

# Floats as a mantissa and an exponent


def mantissa_and_exponent(x: Array) -> tuple[Array, Array]:
    """`x` as `mantissa * 2**exponent`, with a mantissa in [1, 2) or (-2, -1].

    Zeros and subnormal numbers have a zero as mantissa, infinities and NaN themselves.
    """
    integer, digits, bias = _layout(x.dtype)
    bits = lax.bitcast_convert_type(x, integer)
    field = (bits >> digits) & (2 * bias + 1)
    unit = lax.bitcast_convert_type(bits & ~((2 * bias + 1) << digits) | (bias << digits), x.dtype)
    is_finite, is_normal = field != 2 * bias + 1, field != 0
    mantissa = jnp.where(is_normal, unit, signed_zeros_of(x))
    return jnp.where(is_finite, mantissa, x), jnp.where(is_finite, field - bias, jnp.zeros_like(field))


def power_of_two(exponent: Array, dtype: Any) -> Array:
    """`2**exponent`, which must be a normal number."""
    integer, digits, bias = _layout(dtype)
    return lax.bitcast_convert_type((exponent.astype(integer) + bias) << digits, dtype)


def times_power_of_two(x: Array, exponent: Array) -> Array:
    """`x * 2**exponent`, in three steps: the power may be beyond the type's range where the product is not."""
    first, second, third = powers_of_two(exponent, x.dtype)
    return x * first * second * third


def powers_of_two(exponent: Array, dtype: Any) -> tuple[Array, Array, Array]:
    """Three normal numbers of about the same size whose product is `2**exponent`, as far as three can reach."""
    _, _, bias = _layout(dtype)
    exponent = jnp.clip(exponent, 4 - 3 * bias, 3 * bias)
    first = (exponent * 21846) >> 16  # a third
    second = (exponent - first) >> 1
    third = exponent - first - second
    return power_of_two(first, dtype), power_of_two(second, dtype), power_of_two(third, dtype)


def _layout(dtype: Any) -> tuple[np.dtype[Any], int, int]:
    """The integer type that holds the bits of a float type, its number of fraction bits, and its exponent bias."""
    limits = jnp.finfo(dtype)
    return np.dtype(f"int{limits.bits}"), int(limits.nmant), int(limits.maxexp) - 1


def zeros_of(x: Array) -> Array:
    """Zeros, or NaN, that depend on `x`: where vmap meets a select of constants, JAX loses an explicit mesh."""
    return jnp.where(jnp.isnan(x), x, jnp.zeros_like(x))


def signed_zeros_of(x: Array) -> Array:
    """Zeros with the signs of `x`; they depend on it for the same reason."""
    integer, _, _ = _layout(x.dtype)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & np.iinfo(integer).min, x.dtype)


def _centred(x: Array) -> tuple[Array, Array]:
    """`x` times a power of 2 that brings it into the middle third of its type's range, and that power's exponent."""
    third = (int(jnp.finfo(x.dtype).maxexp) - 2) // 3
    magnitude = jnp.abs(x)
    # Not a select of constants: under vmap JAX loses the explicit mesh there.
    is_small, is_large = magnitude < 2.0**-third, magnitude > 2.0**third
    exponent = (is_small.astype(np.int32) - is_large.astype(np.int32)) * (2 * third)
    return x * power_of_two(exponent, x.dtype), exponent


def _rescaled(x: Array, exponent: Array) -> Array:
    """`x * 2**exponent`, in two steps, for the power alone may be out of range."""
    half = exponent >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(exponent - half, x.dtype)


# Functions with derivatives of their own


Function = Callable[..., Array]


def with_slopes(*slopes: Function) -> Callable[[Function], Function]:
    """Gives a function derivatives: each slope tells what the tangent of one argument adds to that of the result.

    A slope takes that tangent, in which it is linear, and all arguments. That of an argument without a tangent is not
    asked for: it may be infinite.
    """

    def decorated(function: Function) -> Function:
        differentiable = jax.custom_jvp(function)

        def jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
            value = differentiable(*primals)
            tangent = jnp.zeros_like(value)
            for slope, given in zip(slopes, tangents, strict=True):
                if type(given) is not SymbolicZero:
                    tangent += slope(given, *primals)
            return value, tangent

        differentiable.defjvp(jvp, symbolic_zeros=True)
        return differentiable

    return decorated


def with_derivatives(*derivatives: Function) -> Callable[[Function], Function]:
    """Gives a function derivatives: functions of its arguments, one for each of them."""
    return with_slopes(*(lambda tangent, *given, by=by: tangent * by(*given) for by in derivatives))


# Sums and products


def exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`a + b` rounded, and what rounding took from it; nothing where that is not finite."""
    total = a + b
    return total, _finite(lax.stop_gradient(_sum_error(total, a, b)))


def exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """`product(a, b)`, and what rounding took from it; nothing where that is not finite."""
    rounded = product(a, b)
    (a, a_exponent), (b, b_exponent) = _centred(lax.stop_gradient(a)), _centred(lax.stop_gradient(b))
    low = _rescaled(_product_error(product(a, b), a, b), -(a_exponent + b_exponent))
    return rounded, jnp.where(jnp.isfinite(rounded), _finite(low), jnp.zeros_like(low))


def _finite(low: Array) -> Array:
    return jnp.where(jnp.isfinite(low), low, jnp.zeros_like(low))


def _sum_error(total: Array, a: Array, b: Array) -> Array:
    part = total - a
    return (a - (total - part)) + (b - part)


def _product_error(rounded: Array, a: Array, b: Array) -> Array:
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(x: Array) -> tuple[Array, Array]:
    """`x` as the sum of two numbers of half as many digits, whose products are exact."""
    integer, digits, _ = _layout(x.dtype)
    low_bits = digits // 2 + 1
    high = lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & -(2**low_bits), x.dtype)
    return high, x - high


def bounded(x: Array) -> Array:
    """`x`, and 0 where it is infinite, so that a cotangent of 0 times it is 0 and not NaN."""
    return jnp.where(jnp.isinf(x), jnp.zeros_like(x), x)


@with_derivatives(lambda a, b: bounded(b), lambda a, b: bounded(a))
def product(a: Array, b: Array) -> Array:
    """`a * b`, rounded before anything is added to it."""
    return jnp.where(jnp.isnan(a), a, a * b)


@with_derivatives(lambda a, b, c: b * c, lambda a, b, c: a * c, lambda a, b, c: a * b)
def triple_product(a: Array, b: Array, c: Array) -> Array:
    """`a * b * c`, also where a product of two of them is beyond the type's range."""
    mantissas, exponents = zip(*map(mantissa_and_exponent, (a, b, c)), strict=True)
    return times_power_of_two(math.prod(mantissas[1:], start=mantissas[0]), sum(exponents[1:], start=exponents[0]))


@with_derivatives(
    lambda x, factor, summand: bounded(factor),
    lambda x, factor, summand: bounded(x),
    lambda x, factor, summand: jnp.ones_like(x),
)
def multiply_add(x: Array, factor: Array, summand: Array) -> Array:
    """`x * factor + summand`, rounded as if once: however much of it cancels, and whatever the product is."""
    (x, x_exponent), (factor, factor_exponent) = _centred(x), _centred(factor)
    exponent, high = x_exponent + factor_exponent, product(x, factor)
    scaled = _rescaled(summand, exponent)
    total = high + scaled
    rest = _finite(_product_error(high, x, factor) + _sum_error(total, high, scaled))
    value = _rescaled(jnp.where(rest == 0, total, total + rest), -exponent)  # total may be -0
    # A summand that the scale of the product takes out of range is so large that the product is negligible.
    is_negligible = (high == 0) | (jnp.isinf(scaled) & jnp.isfinite(high))
    return jnp.where(is_negligible, jnp.where(high == 0, high, jnp.zeros_like(high)) + summand, value)


# Quotients


def _quotient_of_tangent(tangent: Array, a: Array, b: Array) -> Array:
    value = quotient(a, b)
    return lax.div(jnp.broadcast_to(tangent, value.shape), jnp.where(jnp.isnan(value), value, b))


@with_slopes(_quotient_of_tangent, lambda tangent, a, b: tangent * -quotient(quotient(a, b), b))
def quotient(a: Array, b: Array) -> Array:
    """`a / b`, rounded once; `a` has the shape of the result."""
    # Where one number divides many, XLA multiplies them by its reciprocal, which is rounded too, or not even a normal
    # number; and what is divided twice it divides by a product, which may be beyond the range. So it must know neither.
    return lax.div(jnp.where(jnp.isnan(b), b, a), jnp.where(jnp.isnan(a), a, b))


def exact_quotient(a: Array, b: Array) -> tuple[Array, Array]:
    """`quotient(a, b)`, and most of what rounding took from it; nothing where that is not finite."""
    return quotient(a, b), _quotient_error(lax.stop_gradient(a), lax.stop_gradient(b))


def _quotient_error(a: Array, b: Array) -> Array:
    (a, a_exponent), (b, b_exponent) = _centred(a), _centred(b)
    rounded = quotient(a, b)
    back = product(rounded, b)
    left = (a - back) - _product_error(back, rounded, b)
    return _finite(_rescaled(quotient(left, b), b_exponent - a_exponent))


# Numbers that several loops read


@with_slopes(lambda tangent, x: tangent)
def in_memory(x: Array) -> Array:
    """`x`, computed once for all loops that read it; subnormal numbers may become zero.

    XLA on CPU repeats a sum or product in every loop that reads it, and may round it differently there. It does not
    repeat a quotient.
    """
    return quotient(x, jnp.ones_like(x))
