"""Elementary functions of each element: ELEMENT_WISE_ABS to ELEMENT_WISE_TANH, most of them with a ScaleBias.

A ScaleBias is applied to the input before anything else, as if in one rounding of a float. The floats of 16 bits are
computed in float32 and rounded once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import _elementary as elementary
from dmljax._exact import multiply_add, quotient
from dmljax._families import FLOAT_SINCE_1_0, FLOAT_SINCE_2_0, ScaledUnary, Unary, unary
from dmljax._floats import greater
from dmljax._function import FloatScaleBias, number_array, of_floats, operator_function
from dmljax._operator import (
    FL_1_0,
    FL_2_0,
    FL_2_1,
    FL_3_0,
    FL_4_1,
    FL_5_0,
    RANK_1_TO_8,
    RANK_4,
    RANK_4_TO_5,
    Rounding,
)
from dmljax._scalars import ScaleBias
from dmljax._types import (
    FLOAT,
    FLOATS,
    INTEGER_64,
    SIGNED_UP_TO_32_BIT,
    UP_TO_32_BIT,
    UP_TO_64_BIT,
    DataType,
    RoundingMode,
    widened,
)

INT64 = frozenset({DataType.INT64})


def scaled(input: Array, scale_bias: ScaleBias | None) -> Array:
    """What the operator is computed of: floats in at least 32 bits, after the ScaleBias."""
    input = input.astype(widened(input.dtype))
    if scale_bias is None:
        return input
    scale, bias = (jnp.asarray(number, input.dtype) for number in scale_bias)
    return multiply_add(input, scale, bias) if input.dtype in FLOATS else input * scale + bias


def _of_scaled(function: Callable[[Array], Array], input: ArrayLike, scale_bias: ScaleBias | None) -> Array:
    return of_floats(lambda x: function(scaled(x, scale_bias)), input=input)


# Of integers, too


@operator_function
def element_wise_identity(input: ArrayLike, scale_bias: ScaleBias | None = None) -> Array:
    """Copies each element, with every bit; with a ScaleBias computes `input * scale + bias`.

    Integers take a ScaleBias of integers alone, and wrap around.

    >>> element_wise_identity(jnp.array([1.0, -2.0]), ScaleBias(3.0, 0.5)).tolist()
    [3.5, -5.5]
    """
    input = number_array("input", input)
    return input if scale_bias is None else scaled(input, scale_bias).astype(input.dtype)


class ElementWiseIdentityDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_IDENTITY", function=element_wise_identity):
    """`DML_ELEMENT_WISE_IDENTITY_OPERATOR_DESC`, lowered to `element_wise_identity`."""

    support = {
        FL_1_0: unary(RANK_4_TO_5, FLOAT),
        FL_2_1: unary(RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_0: unary(RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1: unary(RANK_1_TO_8, UP_TO_64_BIT),
    }


@operator_function
def element_wise_abs(input: ArrayLike, scale_bias: ScaleBias | None = None) -> Array:
    """The absolute value; that of the smallest integer does not fit, and wraps around to it.

    >>> element_wise_abs(jnp.array([-128, -127, 5], "int8")).tolist()
    [-128, 127, 5]
    """
    input = number_array("input", input)
    return jnp.abs(scaled(input, scale_bias)).astype(input.dtype)


class ElementWiseAbsDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ABS", function=element_wise_abs):
    """`DML_ELEMENT_WISE_ABS_OPERATOR_DESC`, lowered to `element_wise_abs`."""

    support = {
        FL_1_0: unary(RANK_4, FLOAT),
        FL_2_1: unary(RANK_4, FLOAT | SIGNED_UP_TO_32_BIT),
        FL_3_0: unary(RANK_1_TO_8, FLOAT | SIGNED_UP_TO_32_BIT),
        FL_4_1: unary(RANK_1_TO_8, FLOAT | SIGNED_UP_TO_32_BIT | INT64),
    }


@operator_function
def element_wise_negate(input: ArrayLike) -> Array:
    """The element with the other sign, zeros included; the smallest integer wraps around to itself.

    >>> element_wise_negate(jnp.array([0.0, -3.0])).tolist()
    [-0.0, 3.0]
    """
    return -number_array("input", input)


class ElementWiseNegateDesc(Unary, type="DML_OPERATOR_ELEMENT_WISE_NEGATE", function=element_wise_negate):
    """`DML_ELEMENT_WISE_NEGATE_OPERATOR_DESC`, lowered to `element_wise_negate`."""

    support = {FL_5_0: unary(RANK_1_TO_8, FLOAT | SIGNED_UP_TO_32_BIT | INT64)}


@operator_function
def element_wise_sign(input: ArrayLike) -> Array:
    """-1 below zero, 1 above, and +0 otherwise: for both zeros and for NaN; subnormals have a sign.

    >>> element_wise_sign(jnp.array([-2.5, -0.0, jnp.nan, 1e-45])).tolist()
    [-1.0, 0.0, 0.0, 1.0]
    """
    input = number_array("input", input)
    zero = jnp.zeros((), input.dtype)
    return greater(input, zero).astype(input.dtype) - greater(zero, input).astype(input.dtype)


class ElementWiseSignDesc(Unary, type="DML_OPERATOR_ELEMENT_WISE_SIGN", function=element_wise_sign):
    """`DML_ELEMENT_WISE_SIGN_OPERATOR_DESC`, lowered to `element_wise_sign`."""

    support = {
        FL_2_0: unary(RANK_4, FLOAT),
        FL_2_1: unary(RANK_4, UP_TO_32_BIT),
        FL_3_0: unary(RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1: unary(RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    }


# Rounding to integers


@operator_function
def element_wise_ceil(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The smallest integer that is not below the element; above -1 it is -0 for what is below zero.

    >>> element_wise_ceil(jnp.array([-0.5, 1.25])).tolist()
    [-0.0, 2.0]
    """
    return _of_scaled(lax.ceil, input, scale_bias)


class ElementWiseCeilDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_CEIL", function=element_wise_ceil):
    """`DML_ELEMENT_WISE_CEIL_OPERATOR_DESC`, lowered to `element_wise_ceil`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_floor(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The largest integer that is not above the element.

    >>> element_wise_floor(jnp.array([-0.5, 1.25])).tolist()
    [-1.0, 1.0]
    """
    return _of_scaled(lax.floor, input, scale_bias)


class ElementWiseFloorDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_FLOOR", function=element_wise_floor):
    """`DML_ELEMENT_WISE_FLOOR_OPERATOR_DESC`, lowered to `element_wise_floor`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_round(input: ArrayLike, *, rounding_mode: RoundingMode = RoundingMode.HALVES_TO_NEAREST_EVEN) -> Array:
    """The nearest integer, halves to the even one or away from zero (TOWARD_INFINITY), or the one TOWARD_ZERO.

    >>> element_wise_round(jnp.array([-1.75, 1.5, 2.5])).tolist()
    [-2.0, 2.0, 2.0]
    >>> element_wise_round(jnp.array([-1.75, 1.5, 2.5]), rounding_mode=RoundingMode.TOWARD_ZERO).tolist()
    [-1.0, 1.0, 2.0]
    """
    round_: dict[RoundingMode, Callable[[Array], Array]] = {
        RoundingMode.HALVES_TO_NEAREST_EVEN: lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        RoundingMode.TOWARD_ZERO: jnp.trunc,
        RoundingMode.TOWARD_INFINITY: lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    }
    return of_floats(round_[rounding_mode], input=input)


@dataclass(frozen=True, kw_only=True)
class ElementWiseRoundDesc(Unary, type="DML_OPERATOR_ELEMENT_WISE_ROUND", function=element_wise_round):
    """`DML_ELEMENT_WISE_ROUND_OPERATOR_DESC`, lowered to `element_wise_round`."""

    rounding_mode: Rounding
    support = {FL_2_1: unary(RANK_4, FLOAT), FL_3_0: unary(RANK_1_TO_8, FLOAT)}


# Roots, exponentials and logarithms


@operator_function
def element_wise_sqrt(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The square root; NaN below zero, but -0 of -0.

    >>> element_wise_sqrt(jnp.array([9.0, -1.0])).tolist()
    [3.0, nan]
    """
    return _of_scaled(jnp.sqrt, input, scale_bias)


class ElementWiseSqrtDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_SQRT", function=element_wise_sqrt):
    """`DML_ELEMENT_WISE_SQRT_OPERATOR_DESC`, lowered to `element_wise_sqrt`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_recip(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The reciprocal; of a zero the infinity of its sign.

    >>> element_wise_recip(jnp.array([4.0, -0.0])).tolist()
    [0.25, -inf]
    """
    return _of_scaled(lambda x: quotient(jnp.ones_like(x), x), input, scale_bias)


class ElementWiseRecipDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_RECIP", function=element_wise_recip):
    """`DML_ELEMENT_WISE_RECIP_OPERATOR_DESC`, lowered to `element_wise_recip`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_exp(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The exponential: e to the power of the element.

    >>> element_wise_exp(jnp.array([0.0, -jnp.inf, 1000.0])).tolist()
    [1.0, 0.0, inf]
    """
    return _of_scaled(elementary.exp, input, scale_bias)


class ElementWiseExpDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_EXP", function=element_wise_exp):
    """`DML_ELEMENT_WISE_EXP_OPERATOR_DESC`, lowered to `element_wise_exp`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_log(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The natural logarithm: -infinity of zero, and NaN, which the page calls indefinite, below.

    >>> element_wise_log(jnp.array([1.0, 0.0, -1.0])).tolist()
    [0.0, -inf, nan]
    """
    return _of_scaled(lax.log, input, scale_bias)


class ElementWiseLogDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_LOG", function=element_wise_log):
    """`DML_ELEMENT_WISE_LOG_OPERATOR_DESC`, lowered to `element_wise_log`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_erf(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The Gaussian error function.

    >>> element_wise_erf(jnp.array([0.0, -jnp.inf, 10.0])).tolist()
    [0.0, -1.0, 1.0]
    """
    return _of_scaled(elementary.erf, input, scale_bias)


class ElementWiseErfDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ERF", function=element_wise_erf):
    """`DML_ELEMENT_WISE_ERF_OPERATOR_DESC`, lowered to `element_wise_erf`."""

    support = FLOAT_SINCE_2_0


# Trigonometric functions and their inverses, in radians


@operator_function
def element_wise_sin(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The sine; NaN of infinities.

    >>> element_wise_sin(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, nan]
    """
    return _of_scaled(jnp.sin, input, scale_bias)


class ElementWiseSinDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_SIN", function=element_wise_sin):
    """`DML_ELEMENT_WISE_SIN_OPERATOR_DESC`, lowered to `element_wise_sin`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_cos(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The cosine; NaN of infinities.

    >>> element_wise_cos(jnp.array([0.0, jnp.inf])).tolist()
    [1.0, nan]
    """
    return _of_scaled(jnp.cos, input, scale_bias)


class ElementWiseCosDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_COS", function=element_wise_cos):
    """`DML_ELEMENT_WISE_COS_OPERATOR_DESC`, lowered to `element_wise_cos`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_tan(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The tangent; NaN of infinities.

    >>> element_wise_tan(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, nan]
    """
    return _of_scaled(jnp.tan, input, scale_bias)


class ElementWiseTanDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_TAN", function=element_wise_tan):
    """`DML_ELEMENT_WISE_TAN_OPERATOR_DESC`, lowered to `element_wise_tan`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_asin(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The arc sine, in [-pi/2, pi/2]; NaN outside [-1, 1].

    >>> element_wise_asin(jnp.array([-0.0, 2.0])).tolist()
    [-0.0, nan]
    """
    return _of_scaled(elementary.asin, input, scale_bias)


class ElementWiseAsinDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ASIN", function=element_wise_asin):
    """`DML_ELEMENT_WISE_ASIN_OPERATOR_DESC`, lowered to `element_wise_asin`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_acos(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The arc cosine, in [0, pi]; NaN outside [-1, 1].

    >>> element_wise_acos(jnp.array([1.0, 2.0])).tolist()
    [0.0, nan]
    """
    return _of_scaled(lax.acos, input, scale_bias)


class ElementWiseAcosDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ACOS", function=element_wise_acos):
    """`DML_ELEMENT_WISE_ACOS_OPERATOR_DESC`, lowered to `element_wise_acos`."""

    support = FLOAT_SINCE_1_0


@operator_function
def element_wise_atan(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The arc tangent, in [-pi/2, pi/2], infinities included.

    >>> element_wise_atan(jnp.array([-0.0, jnp.nan])).tolist()
    [-0.0, nan]
    """
    return _of_scaled(elementary.atan, input, scale_bias)


class ElementWiseAtanDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ATAN", function=element_wise_atan):
    """`DML_ELEMENT_WISE_ATAN_OPERATOR_DESC`, lowered to `element_wise_atan`."""

    support = FLOAT_SINCE_1_0


# Hyperbolic functions and their inverses


@operator_function
def element_wise_sinh(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The hyperbolic sine.

    >>> element_wise_sinh(jnp.array([-0.0, 1000.0])).tolist()
    [-0.0, inf]
    """
    return _of_scaled(elementary.sinh, input, scale_bias)


class ElementWiseSinhDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_SINH", function=element_wise_sinh):
    """`DML_ELEMENT_WISE_SINH_OPERATOR_DESC`, lowered to `element_wise_sinh`."""

    support = FLOAT_SINCE_2_0


@operator_function
def element_wise_cosh(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The hyperbolic cosine.

    >>> element_wise_cosh(jnp.array([0.0, -1000.0])).tolist()
    [1.0, inf]
    """
    return _of_scaled(elementary.cosh, input, scale_bias)


class ElementWiseCoshDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_COSH", function=element_wise_cosh):
    """`DML_ELEMENT_WISE_COSH_OPERATOR_DESC`, lowered to `element_wise_cosh`."""

    support = FLOAT_SINCE_2_0


@operator_function
def element_wise_tanh(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The hyperbolic tangent.

    >>> element_wise_tanh(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, 1.0]
    """
    return _of_scaled(elementary.tanh, input, scale_bias)


class ElementWiseTanhDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_TANH", function=element_wise_tanh):
    """`DML_ELEMENT_WISE_TANH_OPERATOR_DESC`, lowered to `element_wise_tanh`."""

    support = FLOAT_SINCE_2_0


@operator_function
def element_wise_asinh(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The hyperbolic arc sine.

    >>> element_wise_asinh(jnp.array([-0.0, jnp.inf])).tolist()
    [-0.0, inf]
    """
    return _of_scaled(elementary.asinh, input, scale_bias)


class ElementWiseAsinhDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ASINH", function=element_wise_asinh):
    """`DML_ELEMENT_WISE_ASINH_OPERATOR_DESC`, lowered to `element_wise_asinh`."""

    support = FLOAT_SINCE_2_0


@operator_function
def element_wise_acosh(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The hyperbolic arc cosine; NaN below 1.

    >>> element_wise_acosh(jnp.array([1.0, 0.5])).tolist()
    [0.0, nan]
    """
    return _of_scaled(elementary.acosh, input, scale_bias)


class ElementWiseAcoshDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ACOSH", function=element_wise_acosh):
    """`DML_ELEMENT_WISE_ACOSH_OPERATOR_DESC`, lowered to `element_wise_acosh`."""

    support = FLOAT_SINCE_2_0


@operator_function
def element_wise_atanh(input: ArrayLike, scale_bias: FloatScaleBias | None = None) -> Array:
    """The hyperbolic arc tangent: infinite at -1 and 1, NaN beyond.

    >>> element_wise_atanh(jnp.array([1.0, -1.0, 2.0])).tolist()
    [inf, -inf, nan]
    """
    return _of_scaled(lax.atanh, input, scale_bias)


class ElementWiseAtanhDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_ATANH", function=element_wise_atanh):
    """`DML_ELEMENT_WISE_ATANH_OPERATOR_DESC`, lowered to `element_wise_atanh`."""

    support = FLOAT_SINCE_2_0
