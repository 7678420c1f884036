"""Linear quantization with scales and zero points: ELEMENT_WISE_QUANTIZE_LINEAR and its relatives.

The pages say `round` without saying how halves are rounded: here they go to the nearest even integer, as in ONNX.
Computations are in float32, also for FLOAT16, and in float64 if the input or a scale is float64. A result that depends
on a scale of 0 is undefined.
"""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidType, Problem
from dmljax.numerics.exact import product, quotient
from dmljax.text import join_sizes
from dmljax.types import FLOAT, INTEGER_8, INTEGER_UP_TO_32_BIT, INTEGERS, UINT8, DataType, FeatureLevel, widened

FLOAT32, INT32 = DataType.FLOAT32, DataType.INT32
ONLY_FLOAT32 = frozenset({FLOAT32})


def quantized(
    prefix: str, value: Array, scale: ArrayLike, zero_point: ArrayLike | None, dtype: Any, default: np.dtype[Any]
) -> Array:
    """Quantizes `value`: divides it by `scale`, rounds, adds the zero point, and saturates to the output's type.

    The output's type is `dtype`, otherwise that of the zero point, otherwise `default`. In error messages, the names of
    scale and zero point begin with `prefix`.
    """
    zero_name, scale_name = f"{prefix}_zero_point".strip("_"), f"{prefix}_scale".strip("_")
    zero = None if zero_point is None else calls.integer_array(zero_name, zero_point)
    dtype = jnp.dtype(dtype or (default if zero is None else zero.dtype))
    if dtype not in INTEGERS or dtype.itemsize > 2:
        raise InvalidType(Problem((), "the output must be of an integer type of 8 or 16 bits", dtype))
    zero = jnp.zeros((), dtype) if zero is None else zero
    if zero.dtype != dtype:
        raise InvalidType(Problem(zero_name, f"must be of {dtype}, as the output is", zero.dtype))
    divisor = calls.float_array(scale_name, scale)
    wide = np.promote_types(value.dtype, type_of_scale(divisor))
    value, divisor = value.astype(wide), divisor.astype(wide)
    value, divisor, zero = calls.broadcast(**{"input": value, scale_name: divisor, zero_name: zero})
    steps = lax.round(quotient(value, divisor), lax.RoundingMethod.TO_NEAREST_EVEN)
    steps = jnp.where(jnp.isnan(steps), jnp.zeros_like(steps), steps)
    # 2^20 steps saturate an output of 8 or 16 bits, whatever the zero point is, and fit int32.
    whole = jnp.clip(steps, -(2**20), 2**20).astype(np.int32)
    limits = np.iinfo(dtype)
    return jnp.clip(whole + zero.astype(np.int32), limits.min, limits.max).astype(dtype)


def _dequantize(prefix: str, input: ArrayLike, scale: ArrayLike, zero_point: ArrayLike | None) -> Array:
    """Dequantizes `input`: `(input - zero_point) * scale`, where the integer difference is exact.

    The result has the type that `type_of_scale` gives. In error messages, the names of the arguments begin with
    `prefix`.
    """
    given = {prefix or "input": input} | ({} if zero_point is None else {f"{prefix}_zero_point".strip("_"): zero_point})
    numbers = calls.operands(calls.integer_array, **given)
    scale_name = f"{prefix}_scale".strip("_")
    factor = calls.float_array(scale_name, scale)
    factor = factor.astype(type_of_scale(factor))
    number, *zero, factor = calls.broadcast(**dict(zip(given, numbers, strict=True)), **{scale_name: factor})
    return product(_difference(factor.dtype, number, *zero), factor)


def type_of_scale(scale: Array) -> np.dtype[Any]:
    """The type in which products with a scale are computed.

    It is float32 for a Python number and for 16-bit floats, otherwise the type of the scale.
    """
    return np.dtype(np.float32) if scale.weak_type else widened(scale.dtype)


def _difference(dtype: np.dtype[Any], number: Array, zero: Array | None = None) -> Array:
    if zero is None:
        return number.astype(dtype)
    is_above = number >= zero
    higher, lower = jnp.where(is_above, number, zero), jnp.where(is_above, zero, number)
    unsigned = np.dtype(f"uint{number.dtype.itemsize * 8}")
    distance = (higher.astype(unsigned) - lower.astype(unsigned)).astype(dtype)
    return jnp.where(is_above, distance, -distance)


class Scaled(dml.Operator):
    """The members and rules that QUANTIZE_LINEAR and DEQUANTIZE_LINEAR share.

    There is a scale and a zero point for each element.
    """

    input: dml.Input
    scale: dml.Input
    zero_point: dml.OptionalInput = None
    output: dml.Output

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the pages of QUANTIZE_LINEAR and DEQUANTIZE_LINEAR.

        - InputTensor, ScaleTensor, ZeroPointTensor and OutputTensor have the same DimensionCount and Sizes.
        - ZeroPointTensor is given below DML_FEATURE_LEVEL_6_2.
        """
        yield from dml.same_rank(self, "input", "scale", "zero_point", "output")
        yield from dml.same_sizes(self, "input", "scale", "zero_point", "output")
        if self.zero_point is None and feature_level < FeatureLevel.FL_6_2:
            yield Problem("ZeroPointTensor", f"must be given below {FeatureLevel.FL_6_2}", "none")


# QUANTIZE_LINEAR


@calls.operator_function(dtype=calls.DTYPE)
def element_wise_quantize_linear(
    input: ArrayLike, scale: ArrayLike, zero_point: ArrayLike | None = None, *, dtype: DTypeLike | None = None
) -> Array:
    """Quantizes linearly: `round(input / scale) + zero_point`, saturated to the range of the output's type.

    The output's type is `dtype`, otherwise that of `zero_point`, otherwise uint8. Halves are rounded to the nearest
    even integer.

    >>> element_wise_quantize_linear(jnp.array([-2.5, 3.0, 1e6]), jnp.array(2.0), jnp.array(3, "int8")).tolist()
    [2, 5, 127]
    """
    value = calls.number_array("input", input)
    value = value.astype(np.float32 if value.dtype in INTEGERS else widened(value.dtype))
    return quantized("", value, scale, zero_point, dtype, np.dtype(np.uint8))


def _quantize_table(
    ranks: range, input: frozenset[DataType], scale: frozenset[DataType], output: frozenset[DataType]
) -> dml.Table:
    return dml.rows(ranks, input=input, scale=scale, zero_point=output, output=output)


class ElementWiseQuantizeLinearDesc(
    Scaled, type="DML_OPERATOR_ELEMENT_WISE_QUANTIZE_LINEAR", function=element_wise_quantize_linear
):
    """`DML_ELEMENT_WISE_QUANTIZE_LINEAR_OPERATOR_DESC`, lowered to `element_wise_quantize_linear`."""

    support = dml.support(
        FL_1_0=_quantize_table(dml.RANK_4, ONLY_FLOAT32, ONLY_FLOAT32, UINT8),
        FL_2_1=_quantize_table(dml.RANK_4, ONLY_FLOAT32 | {INT32}, ONLY_FLOAT32, INTEGER_8),
        FL_3_0=_quantize_table(dml.RANK_1_TO_8, ONLY_FLOAT32 | {INT32}, ONLY_FLOAT32, INTEGER_8),
        FL_6_0=_quantize_table(dml.RANK_1_TO_8, FLOAT | {INT32}, FLOAT, INTEGER_8),
    )

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the page.

        - InputTensor, ScaleTensor, ZeroPointTensor and OutputTensor have the same DimensionCount and Sizes.
        - ZeroPointTensor is given below DML_FEATURE_LEVEL_6_2.
        - ZeroPointTensor and OutputTensor have the same DataType.
        - ScaleTensor.DataType is FLOAT32 if InputTensor.DataType is INT32, otherwise InputTensor.DataType.
        """
        yield from super().page_rules(feature_level)
        yield from dml.same_type(self, "zero_point", "output")
        wanted = FLOAT32 if self.input.data_type is INT32 else self.input.data_type
        if self.scale.data_type is not wanted:
            rule = f"must be {wanted.name} if InputTensor.DataType is {self.input.data_type.name}"
            yield Problem(("ScaleTensor", "DataType"), rule, self.scale.data_type.name)


# DEQUANTIZE_LINEAR


@calls.operator_function(input=calls.OPERAND, zero_point=calls.OPERAND)
def element_wise_dequantize_linear(input: ArrayLike, scale: ArrayLike, zero_point: ArrayLike | None = None) -> Array:
    """Dequantizes linearly: `(input - zero_point) * scale`, in the type of `scale`.

    The integer difference is exact. A Python number given as `scale` is a float32.

    >>> element_wise_dequantize_linear(jnp.array([0, 255], "uint8"), jnp.array(0.5), 128).tolist()
    [-64.0, 63.5]
    """
    factor = calls.float_array("scale", scale)
    dtype = np.float32 if factor.weak_type else factor.dtype
    return _dequantize("", input, factor, zero_point).astype(dtype)


def _dequantize_table(ranks: range, input: frozenset[DataType], output: frozenset[DataType]) -> dml.Table:
    return dml.rows(ranks, input=input, scale=output, zero_point=input, output=output)


class ElementWiseDequantizeLinearDesc(
    Scaled, type="DML_OPERATOR_ELEMENT_WISE_DEQUANTIZE_LINEAR", function=element_wise_dequantize_linear
):
    """`DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC`, lowered to `element_wise_dequantize_linear`."""

    support = dml.support(
        FL_1_0=_dequantize_table(dml.RANK_4, UINT8, ONLY_FLOAT32),
        FL_2_1=_dequantize_table(dml.RANK_4, INTEGER_UP_TO_32_BIT, ONLY_FLOAT32),
        FL_3_0=_dequantize_table(dml.RANK_1_TO_8, INTEGER_UP_TO_32_BIT, ONLY_FLOAT32),
        FL_6_0=_dequantize_table(dml.RANK_1_TO_8, INTEGER_UP_TO_32_BIT, FLOAT),
    )

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the page.

        - InputTensor, ScaleTensor, ZeroPointTensor and OutputTensor have the same DimensionCount and Sizes.
        - ZeroPointTensor is given below DML_FEATURE_LEVEL_6_2.
        - InputTensor and ZeroPointTensor have the same DataType.
        - ScaleTensor and OutputTensor have the same DataType.
        """
        yield from super().page_rules(feature_level)
        yield from dml.same_type(self, "input", "zero_point")
        yield from dml.same_type(self, "scale", "output")


# QUANTIZED_LINEAR_ADD


@calls.operator_function(dtype=calls.DTYPE)
def element_wise_quantized_linear_add(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    output_scale: ArrayLike,
    output_zero_point: ArrayLike | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """Adds two quantized arrays: dequantizes `a` and `b`, adds them, and quantizes the sum.

    `a`, `b` and the output each have their own scale and zero point. The output's type is `dtype`, otherwise that of
    `output_zero_point`, otherwise that of `a`.

    >>> element_wise_quantized_linear_add(
    ...     jnp.array([10, 200], "uint8"), jnp.array(0.5), None, jnp.array([-4, 100], "int8"), jnp.array(1.0), None,
    ...     jnp.array(1.0), jnp.array(7, "uint8"),
    ... ).tolist()
    [8, 207]
    """
    left, right = _dequantize("a", a, a_scale, a_zero_point), _dequantize("b", b, b_scale, b_zero_point)
    wide = np.promote_types(left.dtype, right.dtype)
    left, right = calls.broadcast(a=left.astype(wide), b=right.astype(wide))
    default = calls.integer_array("a", a).dtype
    return quantized("output", left + right, output_scale, output_zero_point, dtype, default)


class ElementWiseQuantizedLinearAddDesc(
    dml.Operator, type="DML_OPERATOR_ELEMENT_WISE_QUANTIZED_LINEAR_ADD", function=element_wise_quantized_linear_add
):
    """`DML_ELEMENT_WISE_QUANTIZED_LINEAR_ADD_OPERATOR_DESC`, lowered to `element_wise_quantized_linear_add`."""

    a: dml.Input
    a_scale: dml.Input
    a_zero_point: dml.OptionalInput = None
    b: dml.Input
    b_scale: dml.Input
    b_zero_point: dml.OptionalInput = None
    output_scale: dml.Input
    output_zero_point: dml.OptionalInput = None
    output: dml.Output
    support = dml.support(
        FL_4_0=dml.rows(
            dml.RANK_1_TO_8,
            a=INTEGER_8,
            a_scale=ONLY_FLOAT32,
            a_zero_point=INTEGER_8,
            b=INTEGER_8,
            b_scale=ONLY_FLOAT32,
            b_zero_point=INTEGER_8,
            output_scale=ONLY_FLOAT32,
            output_zero_point=INTEGER_8,
            output=INTEGER_8,
        )
    )

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the page.

        - All tensors have the same DimensionCount.
        - ATensor, BTensor and OutputTensor have the same Sizes.
        - All scales and zero points have one element.
        - The zero point of ATensor, BTensor or OutputTensor has the DataType of that tensor.
        """
        yield from dml.same_rank(self, *self.tensors())
        # The page has no rule for the sizes of these three, but speaks of corresponding elements.
        yield from dml.same_sizes(self, "a", "b", "output")
        for field, tensor in self.tensors().items():
            if field not in ("a", "b", "output") and tensor.element_count > 1:
                yield Problem((self.member(field).name, "Sizes"), "must be 1 each", join_sizes(tensor.sizes))
        for field in ("a", "b", "output"):
            yield from dml.same_type(self, field, f"{field}_zero_point")
