"""Operators that clip elements to bounds: ELEMENT_WISE_CLIP, CLIP1, their gradients, and ELEMENT_WISE_THRESHOLD.

An element that is not clipped keeps every bit, even if it is NaN or subnormal. A NaN bound sets no limit on floats.

Args:
    input: Floats or integers, in any shape.
    min: Lower bound, cast to the type of `input`; None sets none.
    max: Upper bound, cast to the type of `input`; None sets none.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import Problem
from dmljax.foundation.scalars import ScaleBias, convert_lower_bound, convert_upper_bound
from dmljax.lowerings.copies import select_exactly
from dmljax.lowerings.numbers.comparisons import greater_equal
from dmljax.ops.elementwise.elementary import apply_scale_bias
from dmljax.types import FLOAT, INTEGER_64, UP_TO_32_BIT, DataType, FeatureLevel

# CLIP and CLIP1


@calls.operator_function
def element_wise_clip(
    input: ArrayLike,
    min: calls.LowerBound | None = None,
    max: calls.UpperBound | None = None,
    scale_bias: ScaleBias | None = None,
) -> Array:
    """Clips each element, after the ScaleBias, to the range `[min, max]`.

    The bounds are cast to the type of `input`; for an integer type, the cast drops their fraction. A bound beyond which
    no element can lie, such as a `min` of -infinity or -1000 for int8, sets no limit. Where `min` is above `max`, every
    number becomes `min`. A NaN element stays NaN, and a NaN bound sets no limit on floats. The gradient of an element
    that equals a bound is 0. An integer bound that the caller's `jax.jit` traces is clipped to the range of the type
    before it is cast.

    Use `element_wise_clip1` in descriptors whose bounds FLOAT cannot hold; the two functions do the same.

    >>> element_wise_clip(jnp.array([-3, 0, 3]), -1.5, 2.9).tolist()
    [-1, 0, 2]
    >>> element_wise_clip(jnp.array([-jnp.inf, jnp.nan, 3.0]), -1.0).tolist()
    [-1.0, nan, 3.0]
    """
    return _clip(input, min, max, scale_bias)


@calls.operator_function
def element_wise_clip1(
    input: ArrayLike,
    min: calls.LowerBound | None = None,
    max: calls.UpperBound | None = None,
    scale_bias: ScaleBias | None = None,
) -> Array:
    """Clips each element, after the ScaleBias, to the range `[min, max]`, whose bounds have the type of the elements.

    The descriptor has bounds in the tensors' own data type, while the bounds of `ElementWiseClipDesc` are FLOAT.

    Everything else is as in `element_wise_clip`.

    >>> element_wise_clip1(jnp.array([2**24 + 1, 0], "int32"), 1, 2**24 + 1).tolist()
    [16777217, 1]
    """
    return _clip(input, min, max, scale_bias)


def _clip(input: ArrayLike, min: Any, max: Any, scale_bias: ScaleBias | None) -> Array:
    input = calls.number_array("input", input)
    value = input if scale_bias is None else apply_scale_bias(input, scale_bias).astype(input.dtype)
    low, high = (bound if bound is None else jnp.asarray(bound, input.dtype) for bound in (min, max))
    is_low, is_high = _is_outside(value, low, high)
    result = value if high is None else select_exactly(is_high, high, value)
    return result if low is None else select_exactly(is_low, low, result)


def _is_outside(x: Array, low: Any, high: Any) -> tuple[Any, Any]:
    """Tells where the lower bound applies, and where only the upper bound does."""
    is_low = low is not None and greater_equal(low, x)
    is_high = high is not None and greater_equal(x, high)
    if low is not None and high is not None:
        is_low |= is_high & greater_equal(low, high)
    return is_low, is_high


# The page casts a FLOAT bound to the tensors' type, and does not say what happens to a bound outside the range of that
# type. Here, such a bound sets no limit if no element can lie beyond it, and is refused otherwise.


def _find_bound_misfits(desc: Any) -> Iterator[Problem]:
    if desc.input is None:
        return
    for field, bound in (("min", convert_lower_bound), ("max", convert_upper_bound)):
        if hasattr(desc, field):
            yield from dml.find_refusals(bound, desc.member(field).name, getattr(desc, field), desc.input.dtype)


_BOUNDS_FIT = dml.Rule(
    "If InputTensor.DataType is an integer type, no bound is NaN; truncated, Min is not above the range of "
    "the type, and Max is not below it.",
    _find_bound_misfits,
)


def _implied_bound(field: str, call: dml.Call) -> Any:
    """Returns the bound, or by default a bound that every number satisfies."""
    dtype = call.arrays["input"].dtype
    if call.operator is ElementWiseClip1Desc and dtype.kind in "iu":
        return call.argument(field) or getattr(np.iinfo(dtype), field)
    return call.argument(field) or (-math.inf if field == "min" else math.inf)


_BOUNDS: dml.Implied = {field: partial(_implied_bound, field) for field in ("min", "max")}


class ElementWiseClipDesc(dml.Activation, function=element_wise_clip):
    scale_bias: dml.OptionalScaleBias = None
    min: dml.Float
    max: dml.Float
    implied = _BOUNDS
    # The list of fused activations has these two operators, and the history of feature levels the level.
    fused_into = dict.fromkeys(("DML_OPERATOR_CONVOLUTION", "DML_OPERATOR_GEMM"), FeatureLevel.FL_6_0)
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )
    rules = dml.page_rules(*dml.Activation.rules, dml.SCALE_BIAS_FITS, _BOUNDS_FIT)


class ElementWiseClip1Desc(dml.ScaledUnary, function=element_wise_clip1):
    min_max_data_type: dml.Enumerator[DataType]
    min: dml.ScalarUnion
    max: dml.ScalarUnion
    implied = _BOUNDS
    support = dml.support(FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64))
    rules = dml.page_rules(*dml.ScaledUnary.rules, dml.has_type("min_max_data_type", "output"))


# CLIP_GRAD and CLIP_GRAD1


@calls.operator_function
def element_wise_clip_grad(
    input: calls.Operand,
    input_gradient: calls.Operand,
    min: calls.LowerBound | None = None,
    max: calls.UpperBound | None = None,
) -> Array:
    """Computes the gradient of `element_wise_clip`: 0 at the bounds and beyond, `input_gradient` elsewhere.

    Args:
        input: What `element_wise_clip` took.

    Returns:
        Gradient with respect to `input`.

    >>> element_wise_clip_grad(
    ...     jnp.array([-1.0, 0.0, 1.0]), jnp.array([5.0, 6.0, 7.0]), -1.0, 2.0
    ... ).tolist()
    [0.0, 6.0, 7.0]
    """
    return _clip_gradient(input, input_gradient, min, max)


@calls.operator_function
def element_wise_clip_grad1(
    input: calls.Operand,
    input_gradient: calls.Operand,
    min: calls.LowerBound | None = None,
    max: calls.UpperBound | None = None,
) -> Array:
    """Computes the gradient of `element_wise_clip1`: 0 at the bounds and beyond, `input_gradient` elsewhere.

    The descriptor has bounds in the tensors' own data type, while the bounds of `ElementWiseClipGradDesc` are FLOAT.

    Args:
        input: What `element_wise_clip1` took.

    Returns:
        Gradient with respect to `input`.

    >>> element_wise_clip_grad1(jnp.array([1, 2, 3]), jnp.array([5, 6, 7]), 1, 3).tolist()
    [0, 6, 0]
    """
    return _clip_gradient(input, input_gradient, min, max)


def _clip_gradient(input: ArrayLike, input_gradient: ArrayLike, min: Any, max: Any) -> Array:
    x, gradient = calls.broadcast_operands(calls.number_array, input=input, input_gradient=input_gradient)
    zero = jnp.zeros((), x.dtype)
    if max is not None:
        gradient = select_exactly(greater_equal(x, jnp.asarray(max, x.dtype)), zero, gradient)
    if min is not None:
        gradient = select_exactly(greater_equal(jnp.asarray(min, x.dtype), x), zero, gradient)
    return gradient


class ElementWiseClipGradDesc(dml.Gradient, function=element_wise_clip_grad):
    min: dml.Float
    max: dml.Float
    support = dml.support(
        FL_3_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT), FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64)
    )
    rules = dml.page_rules(*dml.Gradient.rules, _BOUNDS_FIT)


class ElementWiseClipGrad1Desc(dml.Gradient, function=element_wise_clip_grad1):
    min_max_data_type: dml.Enumerator[DataType]
    min: dml.ScalarUnion
    max: dml.ScalarUnion
    support = dml.support(FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64))
    rules = dml.page_rules(*dml.Gradient.rules, dml.has_type("min_max_data_type", "output_gradient"))


# THRESHOLD


@calls.operator_function
def element_wise_threshold(
    input: ArrayLike, min: calls.LowerBound | None, scale_bias: ScaleBias | None = None
) -> Array:
    """Raises each element, after the ScaleBias, to at least `min`; NaN stays NaN.

    >>> element_wise_threshold(jnp.array([-1.0, 0.5, jnp.nan]), 0.25).tolist()
    [0.25, 0.5, nan]
    """
    return _clip(input, min, None, scale_bias)


class ElementWiseThresholdDesc(dml.ScaledUnary, function=element_wise_threshold):
    min: dml.Float
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
    )
    rules = dml.page_rules(*dml.ScaledUnary.rules, _BOUNDS_FIT)
