"""Arithmetic on two tensors, ELEMENT_WISE_ADD to ELEMENT_WISE_ATAN_YX, and powers.

An integer result that does not fit its type wraps around. The functions broadcast their operands as NumPy does. In a
descriptor, all tensors have the same sizes, and a stride of 0 broadcasts a dimension. 16-bit floats are computed in
float32.

Returns:
    Array of the shape to which `a` and `b` broadcast, in their type.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import Problem
from dmljax.foundation.scalars import ScaleBias
from dmljax.foundation.sharding import may_be_sharded
from dmljax.lowerings.copies import maximum, minimum
from dmljax.lowerings.numbers import special
from dmljax.lowerings.numbers.floats import signed_zeros_of
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import product, quotient
from dmljax.ops.elementwise.elementary import apply_scale_bias
from dmljax.types import FLOAT, FLOATS, INTEGER_32, INTEGER_64, INTEGERS, UP_TO_32_BIT, FeatureLevel, widened

_SINCE_1_0 = dml.support(
    FL_1_0=dml.rows(dml.RANK_4, FLOAT),
    FL_2_1=dml.rows(dml.RANK_4, FLOAT | INTEGER_32),
    FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT | INTEGER_32),
)

# Sums, differences, products and quotients


@calls.operator_function
def element_wise_add(a: calls.Operand, b: calls.Operand) -> Array:
    """Adds two arrays element by element.

    A Python number takes the type of the other operand, and is refused if it does not fit. Under `jax.jit`, a traced
    integer that does not fit wraps around, as in `jnp.add`.

    `element_wise_add1` also applies an activation.

    >>> element_wise_add(jnp.array([100, 1], "int8"), 100).tolist()
    [-56, 101]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return a + b


class ElementWiseAddDesc(dml.Binary, function=element_wise_add):
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4_TO_5, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4_TO_5, FLOAT | INTEGER_32),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT | INTEGER_32),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, FLOAT | INTEGER_32 | INTEGER_64),
        FL_5_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )


@calls.operator_function
def element_wise_add1(a: calls.Operand, b: calls.Operand, *, fused_activation: dml.Fusable | None = None) -> Array:
    """Adds two arrays element by element, and applies an activation to the sum.

    >>> element_wise_add1(jnp.array([1.0, 2.0]), -1.5, fused_activation="relu").tolist()
    [0.0, 0.5]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return dml.apply_fused_activation(a + b, fused_activation)


class ElementWiseAdd1Desc(dml.Binary, function=element_wise_add1):
    fused_activation: dml.FusedActivation = None
    support = dml.support(FL_2_0=dml.rows(dml.RANK_4_TO_5, FLOAT), FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT))
    rules = dml.page_rules(*dml.Binary.rules, dml.FUSED_ACTIVATION)


@calls.operator_function
def element_wise_subtract(a: calls.Operand, b: calls.Operand) -> Array:
    """Subtracts `b` from `a` element by element.

    >>> element_wise_subtract(jnp.array([1, 5], "uint8"), 2).tolist()
    [255, 3]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return a - b


class ElementWiseSubtractDesc(dml.Binary, function=element_wise_subtract):
    support = _SINCE_1_0 | dml.support(
        FL_4_1=dml.rows(dml.RANK_1_TO_8, FLOAT | INTEGER_32 | INTEGER_64),
        FL_5_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )


@calls.operator_function
def element_wise_multiply(a: calls.Operand, b: calls.Operand) -> Array:
    """Multiplies two arrays element by element.

    >>> element_wise_multiply(jnp.array([2.5, -3.0]), jnp.array([2.0, -0.0])).tolist()
    [5.0, 0.0]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return a * b


class ElementWiseMultiplyDesc(dml.Binary, function=element_wise_multiply):
    support = ElementWiseAddDesc.support


@calls.operator_function
def element_wise_divide(a: calls.Operand, b: calls.Operand) -> Array:
    """Divides `a` by `b` element by element; the quotient of integers is truncated toward zero.

    An integer divided by 0 gives a result with all bits set, which is -1 in a signed type. The smallest integer of a
    signed type, divided by -1, gives itself.

    Args:
        a: Dividends; `a` and `b` broadcast to one shape.
        b: Divisors.

    >>> element_wise_divide(jnp.array([-7, 7, 1]), jnp.array([2, -2, 0])).tolist()
    [-3, -3, -1]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return lax.div(a, b) if a.dtype in INTEGERS else quotient(a, b)


class ElementWiseDivideDesc(dml.Binary, function=element_wise_divide):
    support = _SINCE_1_0 | dml.support(
        FL_5_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_6_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )


# Remainders


@calls.operator_function
def element_wise_modulus_truncate(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the exact remainder of truncated division, which has the sign of `a`, like C's `fmod`.

    The remainder of an integer divided by 0 is that integer. The remainder of a float divided by 0 is NaN.

    Args:
        a: Dividends; `a` and `b` broadcast to one shape.
        b: Divisors.

    >>> element_wise_modulus_truncate(
    ...     jnp.array([-7.5, 7.5, 7.5]), jnp.array([2.0, -2.0, 0.0])
    ... ).tolist()
    [-1.5, 1.5, nan]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return lax.rem(a, b) if a.dtype in INTEGERS else calls.apply_to_floats(_remainder, a=a, b=b)


class ElementWiseModulusTruncateDesc(dml.Binary, function=element_wise_modulus_truncate):
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_6_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )


@calls.operator_function
def element_wise_modulus_floor(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the remainder of floored division, which has the sign of `b`, like Python's `%`.

    The remainder of an integer divided by 0 is that integer. The remainder of a float divided by 0 is NaN.

    Args:
        a: Dividends; `a` and `b` broadcast to one shape.
        b: Divisors.

    >>> element_wise_modulus_floor(
    ...     jnp.array([-7.5, 7.5, 6.0]), jnp.array([2.0, -2.0, -2.0])
    ... ).tolist()
    [0.5, -0.5, -0.0]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return _floor_modulus(lax.rem, a, b) if a.dtype in INTEGERS else calls.apply_to_floats(_floor_remainder, a=a, b=b)


class ElementWiseModulusFloorDesc(dml.Binary, function=element_wise_modulus_floor):
    support = ElementWiseModulusTruncateDesc.support


@jax.custom_jvp
def _remainder(a: Array, b: Array) -> Array:
    return _choose_modulus(_truncate, a, b)


@jax.custom_jvp
def _floor_remainder(a: Array, b: Array) -> Array:
    return _choose_modulus(_floor, a, b)


Remainder = Callable[[Array, Array], Array]


def _truncate(remainder: Remainder, a: Array, b: Array) -> Array:
    return remainder(a, b)


def _floor(remainder: Remainder, a: Array, b: Array) -> Array:
    modulus = _floor_modulus(remainder, a, b)
    return jnp.where(modulus == 0, signed_zeros_of(b), modulus)


def _floor_modulus(remainder: Remainder, a: Array, b: Array) -> Array:
    rest, zero = remainder(a, b), jnp.zeros((), a.dtype)
    return jnp.where((rest != zero) & ((rest < zero) != (b < zero)), rest + b, rest)


def _choose_modulus(modulus: Callable[[Remainder, Array, Array], Array], a: Array, b: Array) -> Array:
    """Computes the modulus of floats, for which XLA on a CPU would call scalar code element by element."""
    by_xla = partial(modulus, lax.rem)

    def by_divisions(steps: int, otherwise: Remainder, a: Array, b: Array) -> Array:
        few = partial(modulus, partial(_remainder_by_divisions, steps))
        result: Array = lax.cond(jnp.all(_is_exact(steps, a, b)), few, otherwise, a, b)
        return result

    # On a mesh, the devices would have to agree on the condition.
    if a.dtype != np.float32 or may_be_sharded(a) or may_be_sharded(b):
        return by_xla(a, b)
    return choose(a, b, cpu=partial(by_divisions, 1, partial(by_divisions, 5, by_xla)), default=by_xla)


_STEP = 23  # binary digits of the quotient found by one division


def _is_exact(steps: int, a: Array, b: Array) -> Array:
    """Whether `_remainder_by_divisions` is exact: never for NaN, nor for an infinite `a` or a `b` of 0."""
    divisor = jnp.abs(b)
    return (jnp.abs(a) < divisor * np.float32(2.0 ** (_STEP * steps))) & (divisor >= np.float32(2.0**-100))


def _remainder_by_divisions(steps: int, a: Array, b: Array) -> Array:
    """Computes the exact remainder of float32 numbers whose truncated quotient has up to `23 * steps` binary digits."""
    rest = jnp.abs(a)
    for step in reversed(range(steps)):
        rest = _remainder_of_small_quotient(rest, jnp.abs(b) * np.float32(2.0 ** (_STEP * step)))
    return jnp.where(jnp.signbit(a), -rest, rest)


def _remainder_of_small_quotient(dividend: Array, divisor: Array) -> Array:
    """Computes the exact remainder of positive numbers: `dividend` itself if `divisor` is infinite.

    The quotient and the divisor are split into halves of 12 bits, so that their products are exact. Each difference is
    exact, with or without a fused multiply-add. Rounding can make the quotient too large by 1.
    """
    count = jnp.floor(dividend / divisor)
    high_count = jnp.floor(count * np.float32(2.0**-12)) * np.float32(2.0**12)
    low_count = count - high_count
    high = lax.bitcast_convert_type(lax.bitcast_convert_type(divisor, np.int32) & np.int32(-(2**12)), np.float32)
    low = divisor - high
    rest = dividend - high_count * high - high_count * low - low_count * high - low_count * low
    return jnp.where(dividend < divisor, dividend, jnp.where(rest < 0, rest + divisor, rest))


def _remainder_jvp(function: Callable[..., Array], primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The derivative of `a - count * b`, where `count` is the integer quotient, whose derivative is zero."""
    (a, b), (a_tangent, b_tangent) = primals, tangents
    remainder = function(a, b)
    tangent = jnp.zeros_like(remainder)
    if type(a_tangent) is not SymbolicZero:
        tangent += a_tangent
    if type(b_tangent) is not SymbolicZero:  # the count may be infinite, and infinity times a zero tangent is NaN
        tangent -= jnp.round(quotient(a - remainder, b)) * b_tangent
    return remainder, tangent


_remainder.defjvp(partial(_remainder_jvp, _remainder), symbolic_zeros=True)
_floor_remainder.defjvp(partial(_remainder_jvp, _floor_remainder), symbolic_zeros=True)


# Mean, square of the difference, maximum, minimum and angle


@calls.operator_function
def element_wise_mean(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the mean of two arrays element by element, even where the sum would overflow.

    The mean of integers is rounded toward zero.

    >>> element_wise_mean(jnp.array([2.0**127, 1.0]), jnp.array([2.0**127, 2.0])).tolist()
    [1.7014118346046923e+38, 1.5]
    >>> element_wise_mean(jnp.array([-3, 2**31 - 1]), jnp.array([0, 2**31 - 1])).tolist()
    [-1, 2147483647]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return _integer_mean(a, b) if a.dtype in INTEGERS else calls.apply_to_floats(_float_mean, a=a, b=b)


def _float_mean(a: Array, b: Array) -> Array:
    total, half = a + b, jnp.full_like(a, 0.5)
    # Hide the halves: XLA for a GPU replaces `a / 2 + b / 2` by `(a + b) / 2`, which overflows.
    return jnp.where(jnp.isinf(total), product(a, half) + product(b, half), total / 2)


def _integer_mean(a: Array, b: Array) -> Array:
    unit, differing = jnp.ones((), a.dtype), a ^ b
    below = (a & b) + (differing >> unit)
    return below + jnp.where(below < 0, differing & unit, jnp.zeros((), a.dtype))


class ElementWiseMeanDesc(dml.Binary, function=element_wise_mean):
    support = _SINCE_1_0


@calls.operator_function
def element_wise_difference_square(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the square of the difference of two arrays, element by element.

    >>> element_wise_difference_square(
    ...     jnp.array([1, 5], "uint32"), jnp.array([4, 3], "uint32")
    ... ).tolist()
    [9, 4]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    wide = widened(a.dtype)
    difference = a.astype(wide) - b.astype(wide)
    return (difference * difference).astype(a.dtype)


class ElementWiseDifferenceSquareDesc(dml.Binary, function=element_wise_difference_square):
    support = dml.support(FL_3_1=dml.rows(dml.RANK_1_TO_8, FLOAT | INTEGER_32))


@calls.operator_function
def element_wise_max(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the maximum of two arrays element by element, and keeps every bit of the larger element.

    The result is NaN if either element is NaN, and +0 is larger than -0. The gradient of equal elements goes to `a`.

    >>> element_wise_max(
    ...     jnp.array([1.0, -0.0, jnp.nan]), jnp.array([2.0, 0.0, 5.0])
    ... ).tolist()
    [2.0, 0.0, nan]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return maximum(a, b)


class ElementWiseMaxDesc(dml.Binary, function=element_wise_max):
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )


@calls.operator_function
def element_wise_min(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the minimum of two arrays element by element, and keeps every bit of the smaller element.

    The result is NaN if either element is NaN, and -0 is smaller than +0. The gradient of equal elements goes to `a`.

    >>> element_wise_min(
    ...     jnp.array([1.0, -0.0, jnp.nan]), jnp.array([2.0, 0.0, 5.0])
    ... ).tolist()
    [1.0, -0.0, nan]
    """
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return minimum(a, b)


class ElementWiseMinDesc(dml.Binary, function=element_wise_min):
    support = ElementWiseMaxDesc.support


@calls.operator_function
def element_wise_atan_yx(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes `atan2(a, b)`, the angle in [-pi, pi] of the point with y-coordinate `a` and x-coordinate `b`.

    At the origin, where the page defines no angle, the result is that of C's `atan2`.

    Args:
        a: Y-coordinates, as floats; `a` and `b` broadcast to one shape.
        b: X-coordinates.

    >>> element_wise_atan_yx(jnp.array([0.0, -0.0]), jnp.array([2.0, 0.0])).tolist()
    [0.0, -0.0]
    """
    return calls.apply_to_floats(special.atan2, a=a, b=b)


class ElementWiseAtanYxDesc(dml.Binary, function=element_wise_atan_yx):
    support = dml.support(FL_3_1=dml.rows(dml.RANK_1_TO_8, FLOAT))


# Powers


@calls.operator_function
def element_wise_pow(
    input: calls.OperandOfAnyType, exponent: calls.OperandOfAnyType, scale_bias: ScaleBias | None = None
) -> Array:
    """Raises `input`, after the ScaleBias, to the power of `exponent`, which may be of another type.

    A negative float with an exponent that is not an integer gives NaN; -infinity gives infinity or 0, as in C.

    Integers with integer exponents give exact powers, which wrap around. With a negative exponent, the power is
    truncated to an integer: a base of 1 or -1 gives 1 or -1, a base of 0 gives -1 (all bits set), as the integer
    division `1 / 0` does, and every other base gives 0. If an integer is raised to a float exponent that has a fraction
    or exceeds 2^24 in magnitude, the power is computed in float32 (in float64 for a float64 exponent), truncated to an
    integer, and saturated to the range of the type.

    Args:
        input: Bases, floats or integers.
        exponent: Exponents, floats or integers, which broadcast with `input`.

    Returns:
        Array of the shape to which `input` and `exponent` broadcast, in the type of `input`.

    >>> element_wise_pow(jnp.array([-2.0, -2.0, 0.0]), jnp.array([3.0, 0.5, 0.0])).tolist()
    [-8.0, nan, 1.0]
    >>> element_wise_pow(
    ...     jnp.array([3, 2, 9], "int8"), jnp.array([5, -1, 0], "int8")
    ... ).tolist()
    [-13, 0, 1]
    """
    base, exponent = calls.broadcast(
        input=calls.number_array("input", input), exponent=calls.number_array("exponent", exponent)
    )
    dtype = base.dtype
    base = apply_scale_bias(base, scale_bias)
    if exponent.dtype in FLOATS and exponent.weak_type:
        exponent = exponent.astype(base.dtype if dtype in FLOATS else np.float32)
    if dtype in INTEGERS and exponent.dtype in INTEGERS:
        return _integer_power(base, exponent)
    if dtype in INTEGERS:
        return _integer_to_float_power(base, exponent)
    if exponent.dtype in INTEGERS:
        whole = exponent if exponent.dtype.itemsize >= 4 else exponent.astype(np.int32)
        return _float_to_integer_power(base, whole).astype(dtype)
    wide = np.promote_types(base.dtype, widened(exponent.dtype))
    return _power(base.astype(wide), exponent.astype(wide)).astype(dtype)


class ElementWisePowDesc(dml.Operator, function=element_wise_pow):
    input: dml.Input
    exponent: dml.Input
    output: dml.Output
    scale_bias: dml.OptionalScaleBias = None
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT), FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT))

    def _other_exponents(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        if feature_level < FeatureLevel.FL_3_0:
            yield from dml.same_type("input", "exponent").check(self)

    rules = dml.page_rules(
        dml.same_type("input", "output"),
        dml.LevelRule("Below level 3_0, InputTensor and ExponentTensor have the same DataType.", _other_exponents),
        dml.same_rank("input", "exponent", "output"),
        dml.same_sizes("input", "exponent", "output"),
        dml.SCALE_BIAS_FITS,
    )


@calls.operator_function
def element_wise_constant_pow(
    input: ArrayLike, exponent: calls.FloatNumber, scale_bias: calls.FloatScaleBias | None = None
) -> Array:
    """Raises `input`, after the ScaleBias, to the power of one number.

    A negative element gives NaN if the exponent is not an integer; -infinity gives infinity or 0, as in C.

    Args:
        input: Bases, as floats.
        exponent: Exponent of all elements.

    Returns:
        Array of the shape and type of `input`.

    >>> element_wise_constant_pow(jnp.array([-2.0, 0.0]), 3.0).tolist()
    [-8.0, 0.0]
    >>> element_wise_constant_pow(jnp.array([-2.0, 4.0]), 0.5).tolist()
    [nan, 2.0]
    """
    input = calls.float_array("input", input)
    return _power(apply_scale_bias(input, scale_bias), jnp.asarray(exponent)).astype(input.dtype)


class ElementWiseConstantPowDesc(dml.ScaledUnary, function=element_wise_constant_pow):
    exponent: dml.Float
    support = dml.FLOAT_SINCE_1_0


@jax.custom_jvp
def _power(base: Array, exponent: Array) -> Array:
    """Raises floats to floats, as C's `pow` does."""
    return lax.pow(base, jnp.broadcast_to(exponent, base.shape))


@jax.custom_jvp
def _float_to_integer_power(base: Array, exponent: Array) -> Array:
    """Raises floats to integers of at least 32 bits.

    The exponent is split into two summands that a float can hold, and the powers of both are multiplied.
    """
    exponent = jnp.broadcast_to(exponent, base.shape)
    low = lax.rem(exponent, jnp.full((), 256, exponent.dtype))
    high_power, low_power = (lax.pow(base, part.astype(base.dtype)) for part in (exponent - low, low))
    return high_power * low_power


def _power_jvp(function: Callable[..., Array], primals: Any, tangents: Any) -> tuple[Array, Array]:
    """The derivative of a power.

    A tangent or an exponent of zero contributes zero, even where its factor is infinite or NaN.
    """
    (base, exponent), (base_tangent, exponent_tangent) = primals, tangents
    power = function(base, exponent)
    tangent = jnp.zeros_like(power)
    if type(base_tangent) is not SymbolicZero:
        is_constant = exponent == 0
        less = jnp.where(is_constant, jnp.ones_like(exponent), _decrement(exponent))
        derivative = exponent.astype(base.dtype) * function(base, less)
        tangent += jnp.where(is_constant, jnp.zeros_like(derivative), derivative) * base_tangent
    if type(exponent_tangent) is not SymbolicZero:
        # `0 ** x` jumps to 1 at x = 0. Take its derivative there as 0, as JAX and PyTorch do.
        is_flat = (power == 0) | ((base == 0) & (exponent == 0))
        tangent += power * jnp.log(jnp.where(is_flat, jnp.ones_like(base), base)) * exponent_tangent
    return power, tangent


def _decrement(exponent: Array) -> Array:
    """The exponent minus 1, or a substitute with the same powers where the difference does not fit the type."""
    if exponent.dtype in FLOATS:
        return exponent - 1
    # The smallest integer minus 1 is odd, and so large that its powers are -1, 0, 1 or infinite. The next odd exponent,
    # which is the smallest plus 1, has the same powers.
    smallest = np.iinfo(exponent.dtype).min
    return jnp.where(exponent == smallest, jnp.full_like(exponent, smallest + 1), exponent - 1)


_power.defjvp(partial(_power_jvp, _power), symbolic_zeros=True)
_float_to_integer_power.defjvp(partial(_power_jvp, _float_to_integer_power), symbolic_zeros=True)


def _integer_power(base: Array, exponent: Array) -> Array:
    """Raises integers to integers by repeated squaring, one step for each bit of the exponent."""
    is_negative = exponent < 0
    unsigned = np.dtype(f"uint{exponent.dtype.itemsize * 8}")
    remaining = jnp.where(is_negative, -exponent, exponent).astype(unsigned)
    power, square = jnp.ones_like(base), base
    for _ in range(unsigned.itemsize * 8):
        power = jnp.where((remaining & 1) == 1, power * square, power)
        square = square * square
        remaining = remaining >> 1
    is_unit = (base == 1) | ((base < 0) & (base + 1 == 0))
    reciprocal = jnp.where(is_unit, power, jnp.where(base == 0, ~jnp.zeros_like(base), jnp.zeros_like(base)))
    return jnp.where(is_negative, reciprocal, power)


def _integer_to_float_power(base: Array, exponent: Array) -> Array:
    """Raises integers to floats.

    The power is exact where the exponent is an integer of at most 2^24 in magnitude, and loses its fraction elsewhere.
    """
    exponent = exponent.astype(widened(exponent.dtype))
    is_whole = (jnp.trunc(exponent) == exponent) & (jnp.abs(exponent) <= 2**24)
    whole = jnp.where(is_whole, exponent, jnp.zeros_like(exponent)).astype(np.int32)
    power = _power(base.astype(exponent.dtype), exponent)
    return jnp.where(is_whole, _integer_power(base, whole), power.astype(base.dtype))
