"""Linear quantization with scales and zero points: of elements, of blocks, and by the range of a tensor.

The pages do not say how `round` treats halves: here they go to the nearest even integer, as in ONNX. Computations use
float32, even for FLOAT16, and float64 if the input or a scale is float64. Results that depend on a scale of 0 are
undefined.

Args:
    scale: Size of a step between two integers; broadcasts with `input`.
    zero_point: Integer that stands for 0, broadcasts with `input`; None means 0.
    dtype: Integer type of the result, of at most 16 bits; None means that of `zero_point`, else uint8.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.foundation.open_sizes import spell_equalities
from dmljax.foundation.sharding import shard_along
from dmljax.foundation.sizes import remedy_for_channels, with_leading_ones
from dmljax.lowerings.copies import copy_with_auto_axes
from dmljax.lowerings.numbers.special import rounded_quotient
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import product
from dmljax.text import join_sizes
from dmljax.types import (
    FLOAT,
    INTEGER_4,
    INTEGER_8,
    INTEGER_UP_TO_32_BIT,
    INTEGERS,
    INTEGERS_4,
    ONLY_FLOAT32,
    UINT8,
    DataType,
    FeatureLevel,
    QuantizationType,
    widened,
)

FLOAT32, INT32 = DataType.FLOAT32, DataType.INT32


# Zero points, each of the type of what it belongs to
ZeroPointOfA = Annotated[ArrayLike, calls.ArrayKind("a")]
ZeroPointOfB = Annotated[ArrayLike, calls.ArrayKind("b")]
ZeroPointOfInput = Annotated[ArrayLike, calls.ArrayKind("input")]
ZeroPointOfFilter = Annotated[ArrayLike, calls.ArrayKind("filter")]
ZeroPointOfOutputLikeA = Annotated[ArrayLike, calls.ArrayKind("dtype", default="a")]
ZeroPointOfOutputLikeInput = Annotated[ArrayLike, calls.ArrayKind("dtype", default="input")]
_ZeroPoint = Annotated[ArrayLike, calls.ArrayKind("dtype", default=np.dtype(np.uint8), may_have_4_bits=True)]

Fit = Callable[..., tuple[Array, ...]]  # takes arrays by name, and returns them in the shape of the result


def quantize_rounded(
    prefix: str,
    value: Array,
    scale: ArrayLike,
    zero_point: ArrayLike | None,
    dtype: Any,
    default: np.dtype[Any],
    fit: Fit = calls.broadcast,
) -> Array:
    """Quantizes `value`: divides it by `scale`, rounds, adds the zero point, and saturates to the output's type.

    The output's type is `dtype`, else the type of the zero point, else `default`. In error messages, the names of scale
    and zero point begin with `prefix`.
    """
    zero_name, scale_name = f"{prefix}_zero_point".strip("_"), f"{prefix}_scale".strip("_")
    zero = None if zero_point is None else calls.quantized_array(zero_name, zero_point)
    dtype = jnp.dtype(dtype or (default if zero is None else zero.dtype))
    _require_quantized_type(dtype)
    zero = jnp.zeros((), dtype) if zero is None else zero
    calls.require_type(zero_name, zero, dtype, "the output")
    divisor = calls.float_array(scale_name, scale)
    wide = np.promote_types(value.dtype, widened(divisor.dtype))
    value, divisor = value.astype(wide), divisor.astype(wide)
    value, divisor, zero = fit(**{"input": value, scale_name: divisor, zero_name: zero})
    steps = rounded_quotient(value, divisor)
    plain, quick = partial(_saturate, dtype=dtype), partial(_saturate_by_bits, dtype=dtype)
    result: Array = choose(steps, zero, cpu=plain if wide == np.float64 else quick, default=plain)
    return result


def _saturate(steps: Array, zero: Array, dtype: np.dtype[Any]) -> Array:
    """Rounds steps to integers, adds the zero point, and saturates to the output's type; NaN counts as 0 steps."""
    limits, whole = jnp.iinfo(dtype), _replace_nans(lax.round(steps, lax.RoundingMethod.TO_NEAREST_EVEN))
    # A sum that float32 rounds is beyond 16 bits.
    total = jnp.clip(whole + zero.astype(steps.dtype), int(limits.min), int(limits.max))
    return total.astype(np.int32).astype(dtype)


def _saturate_by_bits(steps: Array, zero: Array, dtype: np.dtype[Any]) -> Array:
    """Does the same for float32 without `lax.round`, with which it takes a CPU 1.5 times as long."""
    limits, offset = jnp.iinfo(dtype), zero.astype(np.float32)
    inside = _replace_nans(jnp.clip(steps, int(limits.min) - offset, int(limits.max) - offset))
    return (_bits_of(inside) + zero.astype(np.int32)).astype(dtype)


def _replace_nans(x: Array) -> Array:
    return jnp.where(jnp.isnan(x), jnp.zeros_like(x), x)


def _bits_of(number: Array) -> Array:
    """Rounds on a CPU: returns an int32 whose last bits are those of the nearest integer, halves to even.

    A float32 from 2^23 to 2^24 is an integer whose last bit is worth 1. An H100 (JAX 0.11.2) narrows such bits to bytes
    of ones.
    """
    return lax.bitcast_convert_type(number + np.float32(1.5 * 2**23), np.int32)


def _require_quantized_type(dtype: np.dtype[Any]) -> None:
    if dtype not in INTEGERS | INTEGERS_4 or dtype.itemsize > 2:
        rule = "the output must be of an integer type of at most 16 bits"
        raise InvalidType(Problem((), rule, dtype, remedy="dtype='uint8', for example"))


def _dequantize(
    prefix: str, input: ArrayLike, scale: ArrayLike, zero_point: ArrayLike | None, fit: Fit = calls.broadcast
) -> Array:
    """Dequantizes `input`: `(input - zero_point) * scale`, where the integer difference is exact.

    The result is float64 if the scale is, otherwise float32. In error messages, the names of the arguments begin with
    `prefix`.
    """
    name = prefix or "input"
    zero_name, scale_name = f"{prefix}_zero_point".strip("_"), f"{prefix}_scale".strip("_")
    integers = {name: calls.quantized_array(name, input)}
    if zero_point is not None:
        integers[zero_name] = calls.quantized_array(zero_name, zero_point)
        calls.require_type(zero_name, integers[zero_name], integers[name].dtype, name)
    factor = calls.float_array(scale_name, scale)
    factor = factor.astype(widened(factor.dtype))
    number, *zero, factor = fit(**integers, **{scale_name: factor})
    return product(_subtract_zero_point(factor.dtype, number, *zero), factor)


def _subtract_zero_point(dtype: np.dtype[Any], number: Array, zero: Array | None = None) -> Array:
    if zero is None:
        return number.astype(dtype)
    if number.dtype.itemsize < 4:  # not as int32: XLA on CPU of JAX 0.8 converts some arrays of int4 to it wrongly
        return number.astype(dtype) - zero.astype(dtype)
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

    def _missing_zero_point(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        if self.zero_point is None and feature_level < FeatureLevel.FL_6_2:
            yield Problem("ZeroPointTensor", f"must be given below {FeatureLevel.FL_6_2}", "none")

    rules = dml.page_rules(
        dml.same_rank("input", "scale", "zero_point", "output"),
        dml.same_sizes("input", "scale", "zero_point", "output"),
        dml.LevelRule("ZeroPointTensor is given below DML_FEATURE_LEVEL_6_2.", _missing_zero_point),
    )


# QUANTIZE_LINEAR


@calls.operator_function
def element_wise_quantize_linear(
    input: calls.Float,
    scale: calls.Float,
    zero_point: _ZeroPoint | None = None,
    *,
    dtype: calls.QuantizedDType | None = None,
) -> Array:
    """Quantizes linearly: `round(input / scale) + zero_point`, saturated to the range of the output's type.

    Beside an image in the layout NCHW, `scale` and `zero_point` of the shape (C, 1, 1) have one number for each
    channel. A Python number takes the output's type as zero point, and the type of a floating `input` as scale. Halves
    are rounded to the nearest even integer.

    Use `quantize` for blocks of elements that share a scale.

    Args:
        input: Floats to quantize, or integers, which may have a scale of any floating type.

    Returns:
        Array of the shape to which the arrays broadcast, quantized.

    >>> element_wise_quantize_linear(
    ...     jnp.array([-2.5, 3.0, 1e6]), jnp.array(2.0), jnp.array(3, "int8")
    ... ).tolist()
    [2, 5, 127]
    """
    return quantize_rounded("", _widen_input(input), scale, zero_point, dtype, np.dtype(np.uint8))


def _widen_input(input: ArrayLike) -> Array:
    value = calls.number_array("input", input)
    return value.astype(np.float32 if value.dtype in INTEGERS else widened(value.dtype))


class ElementWiseQuantizeLinearDesc(Scaled, function=element_wise_quantize_linear):
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, UINT8, input=ONLY_FLOAT32, scale=ONLY_FLOAT32),
        FL_2_1=dml.rows(dml.RANK_4, INTEGER_8, input=ONLY_FLOAT32 | {INT32}, scale=ONLY_FLOAT32),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, INTEGER_8, input=ONLY_FLOAT32 | {INT32}, scale=ONLY_FLOAT32),
        FL_6_0=dml.rows(dml.RANK_1_TO_8, INTEGER_8, input=FLOAT | {INT32}, scale=FLOAT),
    )

    def _wrong_scale(self) -> Iterator[Problem]:
        data_type = FLOAT32 if self.input.data_type is INT32 else self.input.data_type
        if self.scale.data_type is not data_type:
            rule = f"must be {data_type.name} if InputTensor.DataType is {self.input.data_type.name}"
            yield Problem(("ScaleTensor", "DataType"), rule, self.scale.data_type.name)

    rules = dml.page_rules(
        *Scaled.rules,
        dml.same_type("zero_point", "output"),
        dml.Rule(
            "ScaleTensor.DataType is FLOAT32 if InputTensor.DataType is INT32, otherwise InputTensor.DataType.",
            _wrong_scale,
        ),
    )


# DEQUANTIZE_LINEAR


@calls.operator_function
def element_wise_dequantize_linear(
    input: calls.Quantized, scale: calls.Float, zero_point: calls.Quantized | None = None
) -> Array:
    """Dequantizes linearly: `(input - zero_point) * scale`, in the type of `scale`.

    Beside an image in the layout NCHW, `scale` and `zero_point` of the shape (C, 1, 1) have one number for each
    channel. The integer difference is exact. A Python number as `scale` is a float32.

    Use `dequantize` for blocks of elements that share a scale.

    Args:
        input: Quantized integers.

    Returns:
        Array of the shape to which the arrays broadcast, in the type of `scale`.

    >>> element_wise_dequantize_linear(
    ...     jnp.array([0, 255], "uint8"), jnp.array(0.5), 128
    ... ).tolist()
    [-64.0, 63.5]
    """
    factor = calls.float_array("scale", scale)
    return _dequantize("", input, factor, zero_point).astype(factor.dtype)


class ElementWiseDequantizeLinearDesc(Scaled, function=element_wise_dequantize_linear):
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, UINT8, scale=ONLY_FLOAT32, output=ONLY_FLOAT32),
        FL_2_1=dml.rows(dml.RANK_4, INTEGER_UP_TO_32_BIT, scale=ONLY_FLOAT32, output=ONLY_FLOAT32),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, INTEGER_UP_TO_32_BIT, scale=ONLY_FLOAT32, output=ONLY_FLOAT32),
        FL_6_0=dml.rows(dml.RANK_1_TO_8, INTEGER_UP_TO_32_BIT, scale=FLOAT, output=FLOAT),
    )
    rules = dml.page_rules(*Scaled.rules, dml.same_type("input", "zero_point"), dml.same_type("scale", "output"))


# QUANTIZED_LINEAR_ADD


@calls.operator_function
def element_wise_quantized_linear_add(
    a: ArrayLike,
    a_scale: calls.Float,
    a_zero_point: ZeroPointOfA | None,
    b: ArrayLike,
    b_scale: calls.Float,
    b_zero_point: ZeroPointOfB | None,
    output_scale: calls.Float,
    output_zero_point: ZeroPointOfOutputLikeA | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """Adds two quantized arrays: dequantizes `a` and `b`, adds them, and quantizes the sum.

    `a`, `b` and the output each have their own scale and zero point.

    Args:
        a: Quantized integers; all arrays broadcast to one shape.
        a_scale: Scale of `a`.
        a_zero_point: Zero point of `a`; None means 0.
        b: Quantized integers.
        b_scale: Scale of `b`.
        b_zero_point: Zero point of `b`; None means 0.
        dtype: Integer type of the result; None means that of `output_zero_point`, else of `a`.

    Returns:
        Array of the shape to which the arrays broadcast, quantized.

    >>> element_wise_quantized_linear_add(
    ...     jnp.array([10, 200], "uint8"),
    ...     jnp.array(0.5),
    ...     None,
    ...     jnp.array([-4, 100], "int8"),
    ...     jnp.array(1.0),
    ...     None,
    ...     jnp.array(1.0),
    ...     jnp.array(7, "uint8"),
    ... ).tolist()
    [8, 207]
    """
    left, right = _dequantize("a", a, a_scale, a_zero_point), _dequantize("b", b, b_scale, b_zero_point)
    wide = np.promote_types(left.dtype, right.dtype)
    left, right = calls.broadcast(a=left.astype(wide), b=right.astype(wide))
    default = calls.integer_array("a", a).dtype
    return quantize_rounded("output", left + right, output_scale, output_zero_point, dtype, default)


class QuantizedOperands(dml.Operator):
    """Two quantized tensors, each with its scale and zero point."""

    a: dml.Input
    a_scale: dml.Input
    a_zero_point: dml.OptionalInput = None
    b: dml.Input
    b_scale: dml.Input
    b_zero_point: dml.OptionalInput = None


class QuantizedBinary(QuantizedOperands):
    """Like `QuantizedOperands`, with a quantized output."""

    output_scale: dml.Input
    output_zero_point: dml.OptionalInput = None
    output: dml.Output
    zero_point_rules = dml.page_rules(*(dml.same_type(name, f"{name}_zero_point") for name in ("a", "b", "output")))


class ElementWiseQuantizedLinearAddDesc(QuantizedBinary, function=element_wise_quantized_linear_add):
    support = dml.support(
        FL_4_0=dml.rows(
            dml.RANK_1_TO_8, INTEGER_8, a_scale=ONLY_FLOAT32, b_scale=ONLY_FLOAT32, output_scale=ONLY_FLOAT32
        )
    )

    rules = dml.page_rules(
        dml.Rule("All tensors have the same DimensionCount.", lambda desc: dml.same_rank(*desc.tensors()).check(desc)),
        dml.same_sizes("a", "b", "output"),  # the page has no such rule, but speaks of corresponding elements
        dml.one_element("a_scale", "a_zero_point", "b_scale", "b_zero_point", "output_scale", "output_zero_point"),
        *QuantizedBinary.zero_point_rules,
    )


# QUANTIZE


@calls.operator_function
def quantize(
    input: calls.Float,
    scale: calls.Float,
    zero_point: _ZeroPoint | None = None,
    *,
    dtype: calls.QuantizedDType | None = None,
) -> Array:
    """Quantizes in blocks: `round(input / scale) + zero_point`, saturated to the range of the output's type.

    Along each dimension, `scale` and `zero_point` have one element for each block of `input`; blocks have equal sizes,
    so these sizes divide those of `input`. The result is uint8, which has no negative numbers, unless `dtype` or the
    type of `zero_point` says otherwise. A Python number takes the output's type as zero point, and the type of a
    floating `input` as scale. Halves are rounded to the nearest even integer. The gradient is 0, as that of rounding;
    `input + jax.lax.stop_gradient(rounded - input)` passes it straight through.

    Args:
        input: Floats to quantize, or integers, which may have a scale of any floating type.
        scale: Sizes of a step between two integers, one for each block.
        zero_point: Integers that stand for 0, one for each block; None means 0.

    Returns:
        Array of the shape of `input`, quantized.

    >>> quantize(
    ...     jnp.array([1.0, 2.0, 10.0, 70.0]), jnp.array([1.0, 10.0]), dtype="int4"
    ... ).tolist()
    [1, 2, 1, 7]
    """
    return quantize_rounded("", _widen_input(input), scale, zero_point, dtype, np.dtype(np.uint8), _expand_blocks)


def _expand_blocks(**arrays: Array) -> tuple[Array, ...]:
    """Returns the arrays in the shape of the first; each element of the others is for a block.

    Along each dimension, the size of a block is the quotient of the two sizes. An array of fewer dimensions has leading
    ones of size 1.
    """
    (first, input), *others = arrays.items()
    return calls.broadcast(**{first: input}, **{name: _repeat(name, x, first, input) for name, x in others})


def _repeat(name: str, parameter: Array, first: str, input: Array) -> Array:
    """Repeats each element of `parameter` along the dimensions in which it applies to several elements of `input`."""
    sizes = with_leading_ones(parameter.shape, input.ndim)
    rule = f"must have sizes that divide those of {first}, {input.shape}"
    if len(sizes) > input.ndim or not all(map(_divides, sizes, input.shape)):
        remedy = remedy_for_channels(parameter.shape, input.shape) or _remedy_for_blocks(sizes, input.shape)
        raise InvalidDesc(Problem(name, rule, parameter.shape, remedy=remedy))
    blocks = [1 if size in (1, whole) else whole // size for size, whole in zip(sizes, input.shape, strict=True)]
    if all(block == 1 for block in blocks):
        return parameter
    output_sizes = [size * block for size, block in zip(sizes, blocks, strict=True)]

    def repeat(elements: Array) -> Array:
        pairs = [size for pair in zip(sizes, blocks, strict=True) for size in pair]
        return lax.broadcast_in_dim(elements, pairs, range(0, len(pairs), 2)).reshape(output_sizes)

    whole = lax.expand_dims(parameter, range(input.ndim - parameter.ndim))
    return copy_with_auto_axes([shard_along(input, whole, may_add=True)], output_sizes, repeat)


def _remedy_for_blocks(sizes: Sequence[int], wholes: Sequence[int]) -> str | None:
    """Returns the constraints with which `sizes` divide open sizes, if there are any."""
    pairs = zip(sizes, wholes, strict=False)
    return spell_equalities(*((whole % size, 0) for size, whole in pairs if not _divides(size, whole) and size != 0))


def _divides(size: int, whole: int) -> bool:
    return size == whole or (size != 0 and whole % size == 0)


class _Blockwise(dml.Operator):
    """The members and rules that QUANTIZE and DEQUANTIZE share."""

    input: dml.Input
    quantization_type: dml.Enumerator[QuantizationType]
    quantization_tensors: dml.QuantizationTensors
    output: dml.Output
    spread = {"quantization_tensors": ("scale", "zero_point")}
    implied = {"quantization_type": lambda call: QuantizationType(1 if call.arrays["zero_point"] is None else 2)}

    def _wrong_count(self) -> Iterator[Problem]:
        if self.quantization_type is QuantizationType.NONE:
            yield Problem("QuantizationType", "must be SCALE or SCALE_ZERO_POINT", "NONE")
        elif len(self.quantization_tensors) != self.quantization_type:
            rule = f"must have length {self.quantization_type:d} with {self.quantization_type.name}"
            yield Problem("QuantizationTensors", rule, len(self.quantization_tensors))

    def _uneven_blocks(self) -> Iterator[Problem]:
        for i, tensor in enumerate(self.quantization_tensors):
            if tensor.rank == self.input.rank and not all(map(_divides, tensor.sizes, self.input.sizes)):
                rule = f"must divide InputTensor.Sizes, {join_sizes(self.input.sizes)}"
                yield Problem(("QuantizationTensors", i, "Sizes"), rule, join_sizes(tensor.sizes))

    # The pages only have the rule of the DimensionCount. The others are those of ELEMENT_WISE_QUANTIZE_LINEAR and its
    # inverse, and ONNX's for blocks.
    rules = dml.page_rules(
        dml.same_rank("input", "quantization_tensors", "output"),
        dml.same_sizes("input", "output"),
        dml.Rule(
            "QuantizationTensors are a scale if QuantizationType is SCALE, and a scale and a zero point if it is "
            "SCALE_ZERO_POINT.",
            _wrong_count,
        ),
        dml.Rule("Each of the Sizes of QuantizationTensors divides that of InputTensor.", _uneven_blocks),
    )


def _types_rule(scale_like: str, zero_point_like: str) -> dml.Rule:
    """The rule on the types of the scale and the zero point, in which QUANTIZE and DEQUANTIZE differ."""

    def check(desc: Any) -> Iterator[Problem]:
        for i, (tensor, like) in enumerate(zip(desc.quantization_tensors, (scale_like, zero_point_like), strict=False)):
            data_type = getattr(desc, like).data_type
            if tensor.data_type is not data_type:
                rule = f"must be {data_type.name}, as {desc.member(like).name}.DataType is"
                yield Problem(("QuantizationTensors", i, "DataType"), rule, tensor.data_type.name)

    return dml.Rule(
        f"The scale has the DataType of {{{scale_like}}}, and the zero point that of {{{zero_point_like}}}.", check
    )


class QuantizeDesc(_Blockwise, function=quantize):
    support = dml.support(
        FL_6_3=dml.rows(
            dml.RANK_1_TO_8,
            input=FLOAT,
            quantization_tensors=FLOAT | INTEGER_8 | INTEGER_4,
            output=INTEGER_8 | INTEGER_4,
        )
    )
    rules = dml.page_rules(*_Blockwise.rules, _types_rule("input", "output"))


# DEQUANTIZE


@calls.operator_function
def dequantize(input: calls.Quantized, scale: calls.Float, zero_point: calls.Quantized | None = None) -> Array:
    """Dequantizes in blocks: `(input - zero_point) * scale`, in the type of `scale`.

    Along each dimension, `scale` and `zero_point` have one element for each block of `input`; blocks have equal sizes,
    so these sizes divide those of `input`. The integer difference is exact. A Python number as `scale` is a float32.

    Args:
        input: Quantized integers.
        scale: Sizes of a step between two integers, one for each block.
        zero_point: Integers that stand for 0, one for each block; None means 0.

    Returns:
        Array of the shape of `input`, in the type of `scale`.

    >>> dequantize(jnp.array([1, 2, 1, 7], "int4"), jnp.array([1.0, 10.0])).tolist()
    [1.0, 2.0, 10.0, 70.0]
    """
    factor = calls.float_array("scale", scale)
    return _dequantize("", input, factor, zero_point, _expand_blocks).astype(factor.dtype)


class DequantizeDesc(_Blockwise, function=dequantize):
    support = dml.support(
        FL_6_3=dml.rows(
            dml.RANK_1_TO_8,
            input=INTEGER_8 | INTEGER_4,
            quantization_tensors=FLOAT | INTEGER_8 | INTEGER_4,
            output=FLOAT,
        )
    )
    rules = dml.page_rules(*_Blockwise.rules, _types_rule("output", "input"))


# DYNAMIC_QUANTIZE_LINEAR


@calls.result
class DynamicQuantizeLinear(NamedTuple):
    """The result of `dynamic_quantize_linear`, with the scale and the zero point that it was quantized with.

    >>> quantized = dynamic_quantize_linear(jnp.array([-1.0, 0.0, 254.0]))
    >>> float(quantized.scale), int(quantized.zero_point)
    (1.0, 1)
    """

    output: Array
    scale: Array
    zero_point: Array


@calls.operator_function
def dynamic_quantize_linear(input: ArrayLike, *, dtype: calls.QuantizedDType = jnp.uint8) -> DynamicQuantizeLinear:
    """Quantizes linearly with the scale and zero point that fit the smallest and largest elements.

    The range from the smallest to the largest element, widened to include 0, is divided into the steps of `dtype`, an
    integer type of at most 16 bits. The scale is the size of a step, in float32 (float64 for float64), and the zero
    point is rounded. If all elements are 0 or subnormal, the scale is 1; otherwise it is at least the smallest normal
    number. NaN in the input makes the scale NaN.

    Args:
        input: Floats, in any shape.
        dtype: Integer type of the result, of at most 16 bits.

    Returns:
        The quantized array, and the scale and zero point that it was quantized with.

    >>> dynamic_quantize_linear(jnp.array([-1.0, 0.0, 0.4, 254.0])).output.tolist()
    [0, 1, 1, 255]
    """
    value = calls.float_array("input", input)
    value = value.astype(widened(value.dtype))
    dtype = jnp.dtype(dtype)
    _require_quantized_type(dtype)
    limits = jnp.iinfo(dtype)
    lowest, highest = jnp.min(value, initial=0), jnp.max(value, initial=0)
    scale = _scale_of_range(lowest, highest, int(limits.max) - int(limits.min))
    least = jnp.asarray(limits.min, dtype)
    zero_point = quantize_rounded("", -lowest, scale, least, dtype, dtype)
    return DynamicQuantizeLinear(quantize_rounded("", value, scale, zero_point, dtype, dtype), scale, zero_point)


def _scale_of_range(lowest: Array, highest: Array, steps: int) -> Array:
    """The size of each of `steps` equal steps from `lowest` to `highest`, which is a normal number."""
    tiny = jnp.finfo(highest.dtype).tiny
    # Halves do not overflow where the range does. XLA for a GPU would subtract before it halves.
    range, half = highest - lowest, jnp.full_like(highest, 0.5)
    halves = product(highest, half) - product(lowest, half)
    is_too_wide = jnp.isinf(range)
    parts = jnp.where(is_too_wide, jnp.full_like(range, steps / 2), jnp.full_like(range, steps))
    scale = jnp.maximum(rounded_quotient(jnp.where(is_too_wide, halves, range), parts), tiny)
    return jnp.where(range < tiny, jnp.ones_like(range), scale)


class DynamicQuantizeLinearDesc(dml.Operator, function=dynamic_quantize_linear):
    input: dml.Input
    output: dml.Output
    output_scale: dml.Output
    output_zero_point: dml.Output
    support = dml.support(FL_4_0=dml.rows(dml.RANK_1_TO_8, INTEGER_8, input=FLOAT, output_scale=ONLY_FLOAT32))

    rules = dml.page_rules(
        dml.same_rank("input", "output", "output_scale", "output_zero_point"),
        dml.same_type("output", "output_zero_point"),
        dml.same_sizes("input", "output"),
        dml.one_element("output_scale", "output_zero_point"),
    )
