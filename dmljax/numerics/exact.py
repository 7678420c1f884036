"""Sums, products and quotients of floats that are rounded as they stand, and their rounding errors.

A backend may fuse a product into the sum that uses it, as a fused multiply-add that does not round the product. A
product that must be rounded comes out of a select, which prevents the fusion.
"""

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

    The mantissa of a zero or a subnormal number is a zero of the same sign; that of an infinity or a NaN is the number
    itself.
    """
    integer, digits, bias = _layout(x.dtype)
    bits = lax.bitcast_convert_type(x, integer)
    field = (bits >> digits) & (2 * bias + 1)
    unit = lax.bitcast_convert_type(bits & ~((2 * bias + 1) << digits) | (bias << digits), x.dtype)
    is_finite, is_normal = field != 2 * bias + 1, field != 0
    mantissa = jnp.where(is_normal, unit, signed_zeros_of(x))
    return jnp.where(is_finite, mantissa, x), jnp.where(is_finite, field - bias, jnp.zeros_like(field))


def power_of_two(exponent: Array, dtype: Any) -> Array:
    """`2**exponent`, built from its bits: it must be a normal number of `dtype`."""
    integer, digits, bias = _layout(dtype)
    return lax.bitcast_convert_type((exponent.astype(integer) + bias) << digits, dtype)


def times_power_of_two(x: Array, exponent: Array) -> Array:
    """`x * 2**exponent`, in three steps, because the power may be out of the type's range where the product is not."""
    first, second, third = powers_of_two(exponent, x.dtype)
    return x * first * second * third


def powers_of_two(exponent: Array, dtype: Any) -> tuple[Array, Array, Array]:
    """Three normal powers of 2 of about the same size whose product is `2**exponent`.

    The exponent is clamped to what three normal powers of 2 can reach.
    """
    _, _, bias = _layout(dtype)
    exponent = jnp.clip(exponent, 4 - 3 * bias, 3 * bias)
    first = (exponent * 21846) >> 16  # a third of the exponent
    second = (exponent - first) >> 1
    third = exponent - first - second
    return power_of_two(first, dtype), power_of_two(second, dtype), power_of_two(third, dtype)


def _layout(dtype: Any) -> tuple[np.dtype[Any], int, int]:
    """The integer type that holds the bits of a float type, its number of fraction bits, and its exponent bias."""
    limits = jnp.finfo(dtype)
    return np.dtype(f"int{limits.bits}"), int(limits.nmant), int(limits.maxexp) - 1


def signed_zeros_of(x: Array) -> Array:
    """Zeros with the signs of `x`.

    They depend on `x` because under vmap, a select of constants makes JAX lose the explicit mesh.
    """
    integer, _, _ = _layout(x.dtype)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & np.iinfo(integer).min, x.dtype)


# Functions with custom derivatives


Function = Callable[..., Array]


def with_slopes(*slopes: Function) -> Callable[[Function], Function]:
    """Gives a function a custom JVP rule, with one slope for each argument.

    A slope takes the tangent of its argument, in which the slope must be linear, and all arguments of the function. It
    returns the contribution of this tangent to the tangent of the result. The slope of an argument without a tangent is
    not called, because its result may be infinite.
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
    """Gives a function a custom JVP rule: one partial derivative for each argument, as a function of all arguments."""
    return with_slopes(*(lambda tangent, *given, derivative=one: tangent * derivative(*given) for one in derivatives))


# Sums and products


def sum_error(total: Array, a: Array, b: Array) -> Array:
    """The rounding error of `total`, which is `a + b`, if it is finite."""
    part = total - a
    return (a - (total - part)) + (b - part)


def product_error(rounded: Array, a: Array, b: Array) -> Array:
    """The rounding error of `rounded`, which is `a * b`, of numbers whose products with halves of digits are normal."""
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    return ((a_high * b_high - rounded) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(x: Array) -> tuple[Array, Array]:
    """Splits `x` into a sum of two numbers with half as many significant bits, so that their products are exact."""
    integer, digits, _ = _layout(x.dtype)
    low_bits = digits // 2 + 1
    high = lax.bitcast_convert_type(lax.bitcast_convert_type(x, integer) & -(2**low_bits), x.dtype)
    return high, x - high


@with_derivatives(lambda a, b: b, lambda a, b: a)
def product(a: Array, b: Array) -> Array:
    """`a * b`, rounded to its type even where a sum uses it: the select prevents a fused multiply-add."""
    return jnp.where(jnp.isnan(a), a, a * b)


def rounded(x: Array) -> Array:
    """`x`, bit for bit, rounded to its type even where a sum uses it: as in `product`, the select sees to that."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    integer, _, _ = _layout(x.dtype)
    bits, sign = lax.bitcast_convert_type(x, integer), np.array(np.iinfo(integer).min, integer)
    return lax.bitcast_convert_type(jnp.where(bits < 0, (bits & ~sign) | sign, bits), x.dtype)


# Quotients


def _quotient_of_tangent(tangent: Array, a: Array, b: Array) -> Array:
    value = quotient(a, b)
    return lax.div(jnp.broadcast_to(tangent, value.shape), jnp.where(jnp.isnan(value), value, b))


@with_slopes(_quotient_of_tangent, lambda tangent, a, b: tangent * -quotient(quotient(a, b), b))
def quotient(a: Array, b: Array) -> Array:
    """`a / b`, rounded once; `a` must have the shape of the result."""
    # XLA replaces a division by a broadcast scalar with a multiplication by its reciprocal, which is rounded as well or
    # is not even a normal number. It also replaces (x / a) / b with x / (a * b), whose product may be out of range. The
    # selects hide both patterns from XLA.
    return lax.div(jnp.where(jnp.isnan(b), b, a), jnp.where(jnp.isnan(a), a, b))


# Materialized intermediate results


@with_slopes(lambda tangent, x: tangent)
def in_memory(x: Array) -> Array:
    """Materializes `x`, so that it is computed once for all loops that read it; subnormal numbers may become zero.

    XLA on CPU recomputes a sum or product in every loop that reads it, and may round it differently there. XLA does not
    recompute a quotient, which is why `x` is divided by 1.
    """
    return quotient(x, jnp.ones_like(x))


@with_slopes(lambda tangent, x: tangent)
def in_memory_bits(x: Array) -> Array:
    """Materializes `x`, bit for bit, where `in_memory` is not enough; it takes longer, and is for few elements.

    Inside of loops, XLA on CPU does recompute a quotient of floats, but not one of integers.
    """
    integer = np.dtype(f"int{x.dtype.itemsize * 8}")
    bits = lax.bitcast_convert_type(x, integer)
    square = bits * bits
    # No square leaves 5 or 7 when it is divided by 8, which compilers do not know.
    return lax.bitcast_convert_type(lax.div(bits, square & (square >> 2) & 1 | 1), x.dtype)
