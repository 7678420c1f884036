"""Sums, products and quotients of floats with the part that rounding takes from them, at every scale.

Two habits of backends decide how this is written. They may fuse a product into the sum that uses it, and not round it
there: a product that must be rounded comes out of a select, which stops that. And they may flush subnormal numbers to
zero: rounding errors are computed from mantissas in [1, 2) and scaled afterwards.
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
    mantissa = jnp.where(is_normal, unit, jnp.copysign(jnp.zeros_like(x), unit))
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


# Functions with derivatives of their own


def with_slopes(function: Callable[..., Array], *slopes: Callable[..., Array]) -> Callable[..., Array]:
    """Makes a function differentiable: `slopes` tell, for each argument, what its tangent adds to that of the result.

    A slope takes that tangent, in which it is linear, and all arguments. Constants have none, and theirs is not asked
    for: it may be infinite.
    """
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


def with_derivatives(function: Callable[..., Array], *derivatives: Callable[..., Array]) -> Callable[..., Array]:
    """As `with_slopes`, of functions of the arguments alone, with which their tangents are multiplied."""
    return with_slopes(function, *(lambda t, *given, by=derivative: t * by(*given) for derivative in derivatives))


# Sums and products


def exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`a + b` rounded, and what rounding took from it; nothing where that is not finite."""
    total = a + b
    return total, _finite(lax.stop_gradient(_sum_error(total, a, b)))


def exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """`product(a, b)`, and what rounding took from it; nothing where that is not finite."""
    _, low, exponent = _product_of_mantissas(*map(lax.stop_gradient, (a, b)))
    rounded = product(a, b)
    return rounded, jnp.where(jnp.isfinite(rounded), _finite(times_power_of_two(low, exponent)), jnp.zeros_like(low))


def _finite(low: Array) -> Array:
    return jnp.where(jnp.isfinite(low), low, jnp.zeros_like(low))


def _sum_error(total: Array, a: Array, b: Array) -> Array:
    part = total - a
    return (a - (total - part)) + (b - part)


def _product_of_mantissas(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """`a * b` as the exact sum of two floats, times a power of 2 with the exponent that comes third."""
    (a, a_exponent), (b, b_exponent) = mantissa_and_exponent(a), mantissa_and_exponent(b)
    rounded = _rounded_product(a, b)
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    low = ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low
    return rounded, low, a_exponent + b_exponent


def _halves(x: Array) -> tuple[Array, Array]:
    """`x` as the sum of two numbers of half as many digits, whose products are exact."""
    integer, digits, _ = _layout(x.dtype)
    low_bits = digits // 2 + 1
    high = lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & -(2**low_bits), x.dtype)
    return high, x - high


def _rounded_product(a: Array, b: Array) -> Array:
    """`a * b`, rounded before anything is added to it."""
    return jnp.where(jnp.isnan(a), a, a * b)


def bounded(x: Array) -> Array:
    """`x`, and 0 where it is infinite: a product with infinity does not change with its other factor."""
    return jnp.where(jnp.isinf(x), jnp.zeros_like(x), x)


product = with_derivatives(_rounded_product, lambda a, b: bounded(b), lambda a, b: bounded(a))
product.__doc__ = "`a * b`, rounded before anything is added to it."


def _triple_product(a: Array, b: Array, c: Array) -> Array:
    mantissas, exponents = zip(*map(mantissa_and_exponent, (a, b, c)), strict=True)
    return times_power_of_two(math.prod(mantissas[1:], start=mantissas[0]), sum(exponents[1:], start=exponents[0]))


triple_product = with_derivatives(_triple_product, lambda a, b, c: b * c, lambda a, b, c: a * c, lambda a, b, c: a * b)
triple_product.__doc__ = "`a * b * c`, also where a product of two of them is beyond the type's range."


def _multiply_add(x: Array, factor: Array, summand: Array) -> Array:
    high, low, exponent = _product_of_mantissas(x, factor)
    summand, summand_exponent = mantissa_and_exponent(summand)
    top = jnp.maximum(exponent, summand_exponent)
    high, low = (times_power_of_two(part, exponent - top) for part in (high, low))
    summand = times_power_of_two(summand, summand_exponent - top)
    total = high + summand
    rest = _finite(low + _sum_error(total, high, summand))
    return times_power_of_two(jnp.where(rest == 0, total, total + rest), top)  # total may be -0


multiply_add = with_derivatives(
    _multiply_add,
    lambda x, factor, summand: bounded(factor),
    lambda x, factor, summand: bounded(x),
    lambda x, factor, summand: jnp.ones_like(x),
)
multiply_add.__doc__ = (
    "`x * factor + summand`, rounded as if once: however much of it cancels, and whatever the product is."
)


# Quotients


def _rounded_quotient(a: Array, b: Array) -> Array:
    # Where one number divides many, XLA multiplies them by its reciprocal, which is rounded too, or not even a normal
    # number; and what is divided twice it divides by a product, which may be beyond the range. So it must know neither.
    return lax.div(jnp.where(jnp.isnan(b), b, a), jnp.where(jnp.isnan(a), a, b))


def _quotient_of_tangent(tangent: Array, a: Array, b: Array) -> Array:
    value = quotient(a, b)
    return lax.div(jnp.broadcast_to(tangent, value.shape), jnp.where(jnp.isnan(value), value, b))


quotient: Callable[..., Array] = with_slopes(
    _rounded_quotient, _quotient_of_tangent, lambda t, a, b: t * -quotient(quotient(a, b), b)
)
quotient.__doc__ = "`a / b`, rounded once. `a` has the shape of the result."


def exact_quotient(a: Array, b: Array) -> tuple[Array, Array]:
    """`quotient(a, b)`, and most of what rounding took from it; nothing where that is not finite."""
    return quotient(a, b), lax.stop_gradient(_quotient_error(*map(lax.stop_gradient, (a, b))))


def _quotient_error(a: Array, b: Array) -> Array:
    (a, a_exponent), (b, b_exponent) = mantissa_and_exponent(a), mantissa_and_exponent(b)
    rounded = _rounded_quotient(a, b)
    back, low, exponent = _product_of_mantissas(rounded, jnp.broadcast_to(b, a.shape))
    left = (a - times_power_of_two(back, exponent)) - times_power_of_two(low, exponent)
    return _finite(times_power_of_two(_rounded_quotient(left, b), a_exponent - b_exponent))


# Numbers that several loops read


def _quotient_by_one(x: Array) -> Array:
    return lax.div(x, jnp.where(jnp.isnan(x), x, jnp.ones_like(x)))


in_memory = with_slopes(_quotient_by_one, lambda tangent, x: tangent)
in_memory.__doc__ = """`x`, computed once for all loops that read it; subnormal numbers may become zero.

XLA on CPU repeats a sum or product in every loop that reads it, and may round it differently there, but not a quotient.
"""
