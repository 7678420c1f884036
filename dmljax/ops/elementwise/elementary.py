"""Elementary functions of one tensor, ELEMENT_WISE_ABS to ELEMENT_WISE_TANH, most of them with a ScaleBias.

Also CAST, and VALUE_SCALE_2D with a bias for each channel.

A ScaleBias is applied to the input first. 16-bit floats are computed in float32, and only the result is rounded to 16
bits.

Args:
    input: Floats, in any shape.
"""

from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidType, Problem, require
from dmljax.foundation.scalars import ScaleBias
from dmljax.foundation.sizes import remedy_for_open, require_dimensions
from dmljax.lowerings.numbers import special
from dmljax.lowerings.numbers.conversion import convert
from dmljax.lowerings.numbers.floats import sign
from dmljax.lowerings.workarounds import quotient
from dmljax.types import (
    FLOAT,
    INTEGER_32,
    INTEGER_64,
    SIGNED_UP_TO_32_BIT,
    UP_TO_32_BIT,
    UP_TO_64_BIT,
    DataType,
    RoundingMode,
    RoundingModeLike,
    widened,
)

INT64 = frozenset({DataType.INT64})


def apply_scale_bias(input: Array, scale_bias: ScaleBias | None) -> Array:
    """Applies the ScaleBias, if present, to `input`; 16-bit floats are returned as float32."""
    input = input.astype(widened(input.dtype))
    if scale_bias is None:
        return input
    scale, bias = (jnp.asarray(number, input.dtype) for number in scale_bias)
    return input * scale + bias


def _apply_to_scaled(function: Callable[[Array], Array], input: ArrayLike, scale_bias: ScaleBias | None) -> Array:
    """Applies the ScaleBias and then `function` to floats."""
    return calls.apply_to_floats(lambda x: function(apply_scale_bias(x, scale_bias)), input=input)


# Functions of floats and integers


@calls.operator_function
def element_wise_identity(input: ArrayLike, scale_bias: ScaleBias | None = None) -> Array:
    """Returns each element unchanged, with every bit, or `input * scale + bias` if there is a ScaleBias.

    An integer `input` needs a ScaleBias of integers, and the result wraps around.

    Args:
        input: Floats or integers, in any shape.

    >>> from dmljax.directml import ScaleBias
    >>> element_wise_identity(jnp.array([1.0, -2.0]), ScaleBias(3.0, 0.5)).tolist()
    [3.5, -5.5]
    """
    input = calls.number_array("input", input)
    return input if scale_bias is None else apply_scale_bias(input, scale_bias).astype(input.dtype)


class ElementWiseIdentityDesc(dml.ScaledUnary, function=element_wise_identity):
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4_TO_5, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )


@calls.operator_function
def value_scale_2d(input: ArrayLike, scale: calls.WideNumber, bias: calls.WideFloat) -> Array:
    """Computes `scale * input + bias` with a bias for each channel, dimension 1 of `input`.

    The computation uses at least float32; with 16-bit floats, scale and bias are float32.

    Args:
        input: Images, (batch, channels, spatial dimensions).
        scale: Factor of all elements.
        bias: One number for each channel, or one for all.

    >>> value_scale_2d(
    ...     jnp.ones((1, 3, 1, 1)), 2.0, jnp.array([10.0, 20.0, 30.0])
    ... ).ravel().tolist()
    [12.0, 22.0, 32.0]
    """
    input, biases = calls.float_array("input", input), calls.float_array("bias", bias)
    require_dimensions("input", input.shape, 2)
    channels, dtype = input.shape[1], widened(input.dtype)
    if biases.dtype.itemsize > dtype.itemsize:
        raise InvalidType(Problem("bias", f"must be of at most {dtype}", biases.dtype))
    rule = f"must be one number, or one for each of {channels} channels"
    remedy = remedy_for_open(biases.shape, (channels,))
    require("bias", biases.shape in ((), (1,), (channels,)), rule, f"shape {biases.shape}", remedy=remedy)
    biases = biases.reshape(-1, *(1 for _ in input.shape[2:])).astype(dtype)
    x, summand = calls.broadcast(input=input.astype(dtype), bias=biases)
    return (jnp.asarray(scale, dtype) * x + summand).astype(input.dtype)


class ValueScale2DDesc(dml.Unary, function=value_scale_2d):
    scale: dml.Float
    bias: dml.FloatChannels
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT))

    def _other_channels(self) -> Iterator[Problem]:
        if len(self.bias) not in (1, 3):
            yield Problem("ChannelCount", "must be 1 or 3", len(self.bias))
        if self.input.rank == 4 and len(self.bias) != self.input.sizes[1]:
            rule = f"must be {self.input.sizes[1]}, the size of dimension 1 of InputTensor"
            yield Problem("ChannelCount", rule, len(self.bias))

    rules = dml.page_rules(
        *dml.Unary.rules,
        dml.Rule("ChannelCount is 1 or 3, and the size of dimension 1 of InputTensor.", _other_channels),
    )

    derived = {"bias": lambda desc: np.array([number.item for number in desc.bias], np.float32)}


@calls.operator_function
def cast(input: calls.Quantized, *, dtype: calls.QuantizedDType) -> Array:
    """Converts each element to `dtype`.

    Floats are truncated toward zero to integers and saturate at the ends of the range; NaN becomes 0. Integers wrap
    around in a smaller integer type, which may have 4 bits. Results that are floats are rounded as by `x.astype`. Every
    number except zero is True, subnormal numbers included.

    Args:
        input: Array of any type, integers of 4 bits included.
        dtype: Type of the result.

    Returns:
        Array of the shape of `input`, in `dtype`.

    >>> cast(jnp.array([-1.5, 1.5, 300.0, jnp.nan]), dtype="uint8").tolist()
    [0, 1, 255, 0]
    >>> cast(jnp.array([-1, 300]), dtype="uint8").tolist()
    [255, 44]
    """
    return convert(jnp.asarray(input), dtype)


class CastDesc(dml.Predicate, function=cast):
    support = dml.support(
        # The page omits INT32 and UINT32 here but has all other integers: apparently a misprint.
        FL_1_0=dml.rows(dml.RANK_4, UP_TO_32_BIT - INTEGER_32),
        FL_3_0=dml.rows(dml.RANK_4, UP_TO_64_BIT - {DataType.FLOAT64}),
        FL_3_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT - {DataType.FLOAT64}),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )


@calls.operator_function
def element_wise_abs(input: ArrayLike, scale_bias: ScaleBias | None = None) -> Array:
    """Computes the absolute value.

    The absolute value of the smallest integer does not fit its type, and wraps around to that integer itself.

    Args:
        input: Floats or integers, in any shape.

    >>> element_wise_abs(jnp.array([-128, -127, 5], "int8")).tolist()
    [-128, 127, 5]
    """
    input = calls.number_array("input", input)
    return jnp.abs(apply_scale_bias(input, scale_bias)).astype(input.dtype)


class ElementWiseAbsDesc(dml.ScaledUnary, function=element_wise_abs):
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, FLOAT | SIGNED_UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT | SIGNED_UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, FLOAT | SIGNED_UP_TO_32_BIT | INT64),
    )


@calls.operator_function
def element_wise_negate(input: ArrayLike) -> Array:
    """Negates each element.

    The sign of a floating-point zero also changes. The smallest integer wraps around to itself.

    Args:
        input: Floats or integers, in any shape.

    >>> element_wise_negate(jnp.array([0.0, -3.0])).tolist()
    [-0.0, 3.0]
    """
    return -calls.number_array("input", input)


class ElementWiseNegateDesc(dml.Unary, function=element_wise_negate):
    support = dml.support(FL_5_0=dml.rows(dml.RANK_1_TO_8, FLOAT | SIGNED_UP_TO_32_BIT | INT64))


@calls.operator_function
def element_wise_sign(input: ArrayLike) -> Array:
    """Computes the sign: -1 for an element below zero, 1 for an element above zero.

    Both zeros and NaN give +0. Subnormals are not treated as zero: they give -1 or 1.

    Args:
        input: Floats or integers, in any shape.

    >>> element_wise_sign(jnp.array([-2.5, -0.0, jnp.nan, 1e-45])).tolist()
    [-1.0, 0.0, 0.0, 1.0]
    """
    input = calls.number_array("input", input)
    return sign(input)


class ElementWiseSignDesc(dml.Unary, function=element_wise_sign):
    support = dml.support(
        FL_2_0=dml.rows(dml.RANK_4, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )


# Rounding to integers


@calls.operator_function
def element_wise_ceil(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Rounds each element up to the nearest integer.

    An element between -1 and 0 gives -0.

    >>> element_wise_ceil(jnp.array([-0.5, 1.25])).tolist()
    [-0.0, 2.0]
    """
    return _apply_to_scaled(lax.ceil, input, scale_bias)


class ElementWiseCeilDesc(dml.ScaledUnary, function=element_wise_ceil):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_floor(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Rounds each element down to the nearest integer.

    >>> element_wise_floor(jnp.array([-0.5, 1.25])).tolist()
    [-1.0, 1.0]
    """
    return _apply_to_scaled(lax.floor, input, scale_bias)


class ElementWiseFloorDesc(dml.ScaledUnary, function=element_wise_floor):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_round(
    input: ArrayLike, *, rounding_mode: RoundingModeLike = RoundingMode.HALVES_TO_NEAREST_EVEN
) -> Array:
    """Rounds each element to an integer, by default to the nearest, and halves to the even one.

    TOWARD_ZERO drops the fraction. TOWARD_INFINITY rounds to the nearest integer, and halves away from zero.

    Args:
        rounding_mode: Halves to even, toward zero, or halves away from zero ("toward_infinity").

    >>> element_wise_round(jnp.array([-1.75, 1.5, 2.5])).tolist()
    [-2.0, 2.0, 2.0]
    >>> element_wise_round(
    ...     jnp.array([-1.75, 1.5, 2.5]), rounding_mode="toward_zero"
    ... ).tolist()
    [-1.0, 1.0, 2.0]
    """
    rounding: dict[RoundingMode, Callable[[Array], Array]] = {
        RoundingMode.HALVES_TO_NEAREST_EVEN: lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        RoundingMode.TOWARD_ZERO: jnp.trunc,
        RoundingMode.TOWARD_INFINITY: lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    }
    return calls.apply_to_floats(rounding[RoundingMode.of(rounding_mode)], input=input)


class ElementWiseRoundDesc(dml.Unary, function=element_wise_round):
    rounding_mode: dml.Enumerator[RoundingMode]
    support = dml.support(FL_2_1=dml.rows(dml.RANK_4, FLOAT), FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT))


# Roots, exponentials and logarithms


@calls.operator_function
def element_wise_sqrt(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the square root.

    An element below zero gives NaN, but -0 gives -0.

    >>> element_wise_sqrt(jnp.array([9.0, -1.0])).tolist()
    [3.0, nan]
    """
    return _apply_to_scaled(jnp.sqrt, input, scale_bias)


class ElementWiseSqrtDesc(dml.ScaledUnary, function=element_wise_sqrt):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_recip(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the reciprocal, `1 / input`.

    A zero gives the infinity of the same sign.

    >>> element_wise_recip(jnp.array([4.0, -0.0])).tolist()
    [0.25, -inf]
    """
    return _apply_to_scaled(lambda x: quotient(jnp.ones_like(x), x), input, scale_bias)


class ElementWiseRecipDesc(dml.ScaledUnary, function=element_wise_recip):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_exp(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the exponential function, e to the power of each element.

    >>> element_wise_exp(jnp.array([0.0, -jnp.inf, 1000.0])).tolist()
    [1.0, 0.0, inf]
    """
    return _apply_to_scaled(lax.exp, input, scale_bias)


class ElementWiseExpDesc(dml.ScaledUnary, function=element_wise_exp):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_log(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the natural logarithm.

    Both zeros give -infinity. An element below zero gives NaN, where the page calls the result indefinite.

    >>> element_wise_log(jnp.array([1.0, 0.0, -1.0])).tolist()
    [0.0, -inf, nan]
    """
    return _apply_to_scaled(lax.log, input, scale_bias)


class ElementWiseLogDesc(dml.ScaledUnary, function=element_wise_log):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_erf(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the Gaussian error function, erf.

    >>> element_wise_erf(jnp.array([0.0, -jnp.inf, 10.0])).round(3).tolist()
    [0.0, -1.0, 1.0]
    """
    return _apply_to_scaled(lax.erf, input, scale_bias)


class ElementWiseErfDesc(dml.ScaledUnary, function=element_wise_erf):
    support = dml.FLOAT_SINCE_2_0


# Trigonometric functions and their inverses, in radians


@calls.operator_function
def element_wise_sin(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the sine of an angle in radians.

    An infinity gives NaN.

    >>> element_wise_sin(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, nan]
    """
    return _apply_to_scaled(special.sin, input, scale_bias)


class ElementWiseSinDesc(dml.ScaledUnary, function=element_wise_sin):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_cos(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the cosine of an angle in radians.

    An infinity gives NaN.

    >>> element_wise_cos(jnp.array([0.0, jnp.inf])).tolist()
    [1.0, nan]
    """
    return _apply_to_scaled(special.cos, input, scale_bias)


class ElementWiseCosDesc(dml.ScaledUnary, function=element_wise_cos):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_tan(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the tangent of an angle in radians.

    An infinity gives NaN.

    >>> element_wise_tan(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, nan]
    """
    return _apply_to_scaled(special.tan, input, scale_bias)


class ElementWiseTanDesc(dml.ScaledUnary, function=element_wise_tan):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_asin(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the arc sine, an angle in [-pi/2, pi/2].

    An element outside [-1, 1] gives NaN.

    >>> element_wise_asin(jnp.array([-0.0, 2.0])).tolist()
    [-0.0, nan]
    """
    return _apply_to_scaled(special.asin, input, scale_bias)


class ElementWiseAsinDesc(dml.ScaledUnary, function=element_wise_asin):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_acos(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the arc cosine, an angle in [0, pi].

    An element outside [-1, 1] gives NaN.

    >>> element_wise_acos(jnp.array([1.0, 2.0])).tolist()
    [0.0, nan]
    """
    return _apply_to_scaled(special.acos, input, scale_bias)


class ElementWiseAcosDesc(dml.ScaledUnary, function=element_wise_acos):
    support = dml.FLOAT_SINCE_1_0


@calls.operator_function
def element_wise_atan(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the arc tangent, an angle in [-pi/2, pi/2].

    -infinity gives -pi/2, and infinity gives pi/2.

    >>> element_wise_atan(jnp.array([-0.0, jnp.nan])).tolist()
    [-0.0, nan]
    """
    return _apply_to_scaled(special.atan, input, scale_bias)


class ElementWiseAtanDesc(dml.ScaledUnary, function=element_wise_atan):
    support = dml.FLOAT_SINCE_1_0


# Hyperbolic functions and their inverses


@calls.operator_function
def element_wise_sinh(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the hyperbolic sine.

    >>> element_wise_sinh(jnp.array([-0.0, 1000.0])).tolist()
    [-0.0, inf]
    """
    return _apply_to_scaled(special.sinh, input, scale_bias)


class ElementWiseSinhDesc(dml.ScaledUnary, function=element_wise_sinh):
    support = dml.FLOAT_SINCE_2_0


@calls.operator_function
def element_wise_cosh(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the hyperbolic cosine.

    >>> element_wise_cosh(jnp.array([0.0, -1000.0])).tolist()
    [1.0, inf]
    """
    return _apply_to_scaled(special.cosh, input, scale_bias)


class ElementWiseCoshDesc(dml.ScaledUnary, function=element_wise_cosh):
    support = dml.FLOAT_SINCE_2_0


@calls.operator_function
def element_wise_tanh(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the hyperbolic tangent.

    >>> element_wise_tanh(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, 1.0]
    """
    return _apply_to_scaled(lax.tanh, input, scale_bias)


class ElementWiseTanhDesc(dml.ScaledUnary, function=element_wise_tanh):
    support = dml.FLOAT_SINCE_2_0


@calls.operator_function
def element_wise_asinh(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the inverse hyperbolic sine.

    >>> element_wise_asinh(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, inf]
    """
    return _apply_to_scaled(lax.asinh, input, scale_bias)


class ElementWiseAsinhDesc(dml.ScaledUnary, function=element_wise_asinh):
    support = dml.FLOAT_SINCE_2_0


@calls.operator_function
def element_wise_acosh(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the inverse hyperbolic cosine.

    An element below 1 gives NaN.

    >>> element_wise_acosh(jnp.array([1.0, 0.5])).tolist()
    [0.0, nan]
    """
    return _apply_to_scaled(lax.acosh, input, scale_bias)


class ElementWiseAcoshDesc(dml.ScaledUnary, function=element_wise_acosh):
    support = dml.FLOAT_SINCE_2_0


@calls.operator_function
def element_wise_atanh(input: ArrayLike, scale_bias: calls.FloatScaleBias | None = None) -> Array:
    """Computes the inverse hyperbolic tangent.

    -1 gives -infinity, 1 gives infinity, and an element outside [-1, 1] gives NaN.

    >>> element_wise_atanh(jnp.array([1.0, -1.0, 2.0])).tolist()
    [inf, -inf, nan]
    """
    return _apply_to_scaled(lax.atanh, input, scale_bias)


class ElementWiseAtanhDesc(dml.ScaledUnary, function=element_wise_atanh):
    support = dml.FLOAT_SINCE_2_0
