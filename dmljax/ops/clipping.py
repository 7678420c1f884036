"""Operators that keep elements within bounds: ELEMENT_WISE_CLIP, CLIP1, their gradients, and ELEMENT_WISE_THRESHOLD.

An element that is kept has every bit, NaN and subnormals included; a bound that is NaN does not bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dmljax._errors import InvalidDesc, prefixed
from dmljax._families import Gradient, ScaledUnary, gradient, min_max_type_rule, unary
from dmljax._floats import greater_equal, selected
from dmljax._function import Operand, RoundedScalarLike, number_array, operands, operator_function
from dmljax._operator import (
    FL_1_0,
    FL_2_1,
    FL_3_0,
    FL_3_1,
    FL_5_0,
    RANK_1_TO_8,
    RANK_4,
    Float,
    ScalarUnion,
    ValueType,
)
from dmljax._scalars import Scalar, ScaleBias, rounded
from dmljax._types import FLOAT, INTEGER_64, INTEGERS, UP_TO_32_BIT, FeatureLevel
from dmljax.ops.elementary import scaled

# CLIP and CLIP1


@operator_function
def element_wise_clip(
    input: ArrayLike,
    min: RoundedScalarLike | None,
    max: RoundedScalarLike | None,
    scale_bias: ScaleBias | None = None,
) -> Array:
    """The element, after the ScaleBias, if it is within `[min, max]`, otherwise the bound that it passes.

    Bounds are cast to the type of `input`, which drops their fraction where that is an integer type; without one, there
    is no limit on its side, nor with one that is NaN. Where `min` is above `max`, `min` wins. NaN stays. At a bound the
    gradient is 0.

    >>> element_wise_clip(jnp.array([-3, 0, 3]), -1.5, 2.9).tolist()
    [-1, 0, 2]
    >>> element_wise_clip(jnp.array([-jnp.inf, jnp.nan, 3.0]), -1.0, None).tolist()
    [-1.0, nan, 3.0]
    """
    return _clipped(input, min, max, scale_bias)


@operator_function
def element_wise_clip1(
    input: ArrayLike,
    min: RoundedScalarLike | None,
    max: RoundedScalarLike | None,
    scale_bias: ScaleBias | None = None,
) -> Array:
    """As `element_wise_clip`; the descriptor has bounds of the tensors' own type, where the other's are FLOAT.

    >>> element_wise_clip1(jnp.array([2**24 + 1, 0], "int32"), 1, 2**24 + 1).tolist()
    [16777217, 1]
    """
    return _clipped(input, min, max, scale_bias)


def _clipped(input: ArrayLike, min: Any, max: Any, scale_bias: ScaleBias | None) -> Array:
    input = number_array("input", input)
    clipped = input if scale_bias is None else scaled(input, scale_bias).astype(input.dtype)
    return _at_least(_at_most(clipped, max), min)


def _at_most(x: Array, bound: Any) -> Array:
    if bound is None:
        return x
    bound = jnp.asarray(bound, x.dtype)
    return selected(greater_equal(x, bound), bound, x)


def _at_least(x: Array, bound: Any) -> Array:
    if bound is None:
        return x
    bound = jnp.asarray(bound, x.dtype)
    return selected(greater_equal(bound, x), bound, x)


# The page casts a FLOAT to the tensors' type, and is silent on one that has no place there. Most are what programs give
# for "no limit", -FLT_MAX or infinity, and so they are read; others would ask for what the type cannot hold.


def _limit(number: Scalar, dtype: Any, *, is_lower: bool) -> Any:
    """A FLOAT bound in a tensor's type, None where it limits nothing; refused where no element is within."""
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        value = number.item.item()
        if value < limits.min if is_lower else value > limits.max:
            return None
    with prefixed("Min" if is_lower else "Max", " "):
        return rounded(number.item, dtype)


def _limits(desc: Any) -> dict[str, Any]:
    fields = [field for field in ("min", "max") if hasattr(desc, field)]
    return {field: _limit(getattr(desc, field), desc.input.dtype, is_lower=field == "min") for field in fields}


def _limit_rules(desc: Any) -> Iterator[str]:
    try:
        _limits(desc)
    except InvalidDesc as error:
        yield str(error)


@dataclass(frozen=True, kw_only=True)
class ElementWiseClipDesc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_CLIP", function=element_wise_clip):
    """`DML_ELEMENT_WISE_CLIP_OPERATOR_DESC`, lowered to `element_wise_clip`."""

    min: Float
    max: Float
    support = {
        FL_1_0: unary(RANK_4, FLOAT),
        FL_2_1: unary(RANK_4, UP_TO_32_BIT),
        FL_3_0: unary(RANK_1_TO_8, UP_TO_32_BIT),
        FL_5_0: unary(RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    }

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        - ScaleBias, where InputTensor.DataType is an integer, has numbers of that type.
        - Min and Max, where InputTensor.DataType is an integer, leave something of that type between them.
        """
        yield from super().broken_rules(feature_level)
        yield from _limit_rules(self)

    def attributes(self) -> dict[str, Any]:
        return super().attributes() | _limits(self)


@dataclass(frozen=True, kw_only=True)
class ElementWiseClip1Desc(ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_CLIP1", function=element_wise_clip1):
    """`DML_ELEMENT_WISE_CLIP1_OPERATOR_DESC`, lowered to `element_wise_clip1`."""

    min_max_data_type: ValueType
    min: ScalarUnion
    max: ScalarUnion
    support = {FL_5_0: unary(RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64)}

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        - ScaleBias, where InputTensor.DataType is an integer, has numbers of that type.
        - MinMaxDataType is OutputTensor.DataType.
        """
        yield from super().broken_rules(feature_level)
        yield from min_max_type_rule(self)


# CLIP_GRAD and CLIP_GRAD1


@operator_function
def element_wise_clip_grad(
    input: Operand, input_gradient: Operand, min: RoundedScalarLike | None, max: RoundedScalarLike | None
) -> Array:
    """The gradient where `input` is between the bounds, 0 at them and beyond: that of `element_wise_clip`.

    >>> element_wise_clip_grad(jnp.array([-1.0, 0.0, 1.0]), jnp.array([5.0, 6.0, 7.0]), -1.0, 2.0).tolist()
    [0.0, 6.0, 7.0]
    """
    return _clipped_gradient(input, input_gradient, min, max)


@operator_function
def element_wise_clip_grad1(
    input: Operand, input_gradient: Operand, min: RoundedScalarLike | None, max: RoundedScalarLike | None
) -> Array:
    """As `element_wise_clip_grad`; the descriptor has bounds of the tensors' own type, where the other's are FLOAT.

    >>> element_wise_clip_grad1(jnp.array([1, 2, 3]), jnp.array([5, 6, 7]), 1, 3).tolist()
    [0, 6, 0]
    """
    return _clipped_gradient(input, input_gradient, min, max)


def _clipped_gradient(input: ArrayLike, input_gradient: ArrayLike, min: Any, max: Any) -> Array:
    x, gradient = operands(number_array, input=input, input_gradient=input_gradient)
    zero = jnp.zeros((), x.dtype)
    if max is not None:
        gradient = selected(greater_equal(x, jnp.asarray(max, x.dtype)), zero, gradient)
    if min is not None:
        gradient = selected(greater_equal(jnp.asarray(min, x.dtype), x), zero, gradient)
    return gradient


@dataclass(frozen=True, kw_only=True)
class ElementWiseClipGradDesc(Gradient, type="DML_OPERATOR_ELEMENT_WISE_CLIP_GRAD", function=element_wise_clip_grad):
    """`DML_ELEMENT_WISE_CLIP_GRAD_OPERATOR_DESC`, lowered to `element_wise_clip_grad`."""

    min: Float
    max: Float
    support = {
        FL_3_1: gradient(RANK_1_TO_8, UP_TO_32_BIT),
        FL_5_0: gradient(RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    }

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor, InputGradientTensor and OutputGradientTensor have the same DataType, DimensionCount and Sizes.
        - Min and Max, where InputTensor.DataType is an integer, leave something of that type between them.
        """
        yield from super().broken_rules(feature_level)
        yield from _limit_rules(self)

    def attributes(self) -> dict[str, Any]:
        return super().attributes() | _limits(self)


@dataclass(frozen=True, kw_only=True)
class ElementWiseClipGrad1Desc(Gradient, type="DML_OPERATOR_ELEMENT_WISE_CLIP_GRAD1", function=element_wise_clip_grad1):
    """`DML_ELEMENT_WISE_CLIP_GRAD1_OPERATOR_DESC`, lowered to `element_wise_clip_grad1`."""

    min_max_data_type: ValueType
    min: ScalarUnion
    max: ScalarUnion
    support = {FL_5_0: gradient(RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64)}

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor, InputGradientTensor and OutputGradientTensor have the same DataType, DimensionCount and Sizes.
        - MinMaxDataType is OutputGradientTensor.DataType.
        """
        yield from super().broken_rules(feature_level)
        yield from min_max_type_rule(self)


# THRESHOLD


@operator_function
def element_wise_threshold(
    input: ArrayLike, min: RoundedScalarLike | None, scale_bias: ScaleBias | None = None
) -> Array:
    """The element, after the ScaleBias, or `min` where that is larger: `element_wise_clip` without an upper bound.

    >>> element_wise_threshold(jnp.array([-1.0, 0.5, jnp.nan]), 0.25).tolist()
    [0.25, 0.5, nan]
    """
    return _clipped(input, min, None, scale_bias)


@dataclass(frozen=True, kw_only=True)
class ElementWiseThresholdDesc(
    ScaledUnary, type="DML_OPERATOR_ELEMENT_WISE_THRESHOLD", function=element_wise_threshold
):
    """`DML_ELEMENT_WISE_THRESHOLD_OPERATOR_DESC`, lowered to `element_wise_threshold`."""

    min: Float
    support = {
        FL_1_0: unary(RANK_4, FLOAT),
        FL_2_1: unary(RANK_4, UP_TO_32_BIT),
        FL_3_0: unary(RANK_1_TO_8, UP_TO_32_BIT),
    }

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        - ScaleBias, where InputTensor.DataType is an integer, has numbers of that type.
        - Min, where InputTensor.DataType is an integer, is not above all of that type.
        """
        yield from super().broken_rules(feature_level)
        yield from _limit_rules(self)

    def attributes(self) -> dict[str, Any]:
        return super().attributes() | _limits(self)
