"""ELEMENT_WISE_QUANTIZE_LINEAR, DEQUANTIZE_LINEAR and QUANTIZED_LINEAR_ADD; others are in `test_blocks.py`."""

import itertools
import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from cases_quantization import DEQUANTIZE, HALF, QUANTIZE, SIZES
from helpers import INTEGERS, SAMPLED, assert_same_bits, few_types, needs_x64, refuses, tensor

import dmljax
from dmljax import directml
from dmljax.directml import FeatureLevel, InvalidDesc

NAN, INF = math.nan, math.inf
NARROW = ["int8", "uint8", "int16", "uint16"]
ONE = np.array(1, np.float32)


def wanted(steps: list[float], zero: int, dtype: str) -> list[int]:
    """Integer steps plus a zero point, saturated to the range of the type."""
    limits = np.iinfo(dtype)
    return [int(min(max(step + zero, limits.min), limits.max)) for step in steps]


# QUANTIZE_LINEAR


@SAMPLED
@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_half_to_even_precedes_adding_the_zero_point(call: Any, dtype: str) -> None:
    input = np.array([0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 2.4999998, 2.5000002], np.float32)
    steps = [0.0, 2.0, 2.0, 4.0, 0.0, -2.0, -2.0, 2.0, 3.0]
    for zero in (7, 8):  # an odd and an even zero point: halves are rounded before the zero point is added
        result = call(dmljax.element_wise_quantize_linear, input, ONE, np.array(zero, dtype))
        assert_same_bits(result, np.array(wanted(steps, zero, dtype), dtype))


@SAMPLED
@pytest.mark.parametrize("dtype", NARROW)
def test_out_of_range_results_saturate_at_any_zero_point(dtype: str) -> None:
    limits = np.iinfo(dtype)
    values = [0.0, 1.0, -1.0, 300.0, -300.0, 65535.0, -65535.0, 70000.0, -70000.0, 3e9, -3e9, 3e38, -3e38, INF, -INF]
    for zero in (int(limits.min), 0, int(limits.max)):
        result = dmljax.element_wise_quantize_linear(np.array(values, np.float32), ONE, np.array(zero, dtype))
        assert_same_bits(result, np.array(wanted(values, zero, dtype), dtype))


def test_nan_is_quantized_to_the_zero_point(call: Any) -> None:
    result = call(dmljax.element_wise_quantize_linear, np.array([NAN], np.float32), ONE, np.array(3, np.int8))
    assert_same_bits(result, np.array([3], np.int8))


def test_the_input_is_divided_by_the_scale_and_not_multiplied_by_its_reciprocal(call: Any) -> None:
    scale = np.arange(3, 2000, 2).astype(np.float32)
    input = scale * np.float32(2.5)  # the product is exact, so that each quotient is exactly 2.5
    assert (np.rint(input * (1 / scale)) != 2).any()
    result = call(dmljax.element_wise_quantize_linear, input, scale, dtype="int8")
    assert_same_bits(result, np.full(len(scale), 2, np.int8))


def test_a_scale_may_be_negative_or_infinite(call: Any) -> None:
    result = call(
        dmljax.element_wise_quantize_linear,
        np.array([3.0, 3.0, -3.0], np.float32),
        np.array([-1.0, INF, 1e-30], np.float32),
        np.array(5, np.int8),
    )
    assert result.tolist() == [2, 5, -128]


def test_the_output_is_uint8_unless_the_zero_point_or_dtype_says_otherwise(call: Any) -> None:
    input = np.array([-3.0, 300.0], np.float32)
    assert_same_bits(call(dmljax.element_wise_quantize_linear, input, ONE), np.array([0, 255], np.uint8))
    result = call(dmljax.element_wise_quantize_linear, input, ONE, np.array(1, np.int8))
    assert_same_bits(result, np.array([-2, 127], np.int8))


@pytest.mark.parametrize("quantize", [dmljax.quantize, dmljax.element_wise_quantize_linear])
@pytest.mark.gate(but=1)
def test_scales_and_zero_points_may_be_python_numbers(call: Any, quantize: Any) -> None:
    input = np.array([-0.15, 0.6], np.float32)
    assert_same_bits(call(quantize, input, 0.03, 0, dtype=jnp.int8), np.array([-5, 20], np.int8))
    assert_same_bits(call(quantize, input, 2, 7), np.array([7, 7], np.uint8))
    assert_same_bits(call(quantize, input.astype(np.float16), 1, -1, dtype="int16"), np.array([-1, 0], np.int16))
    assert_same_bits(call(quantize, np.array([4, 5], np.int32), 2, 1), np.array([3, 3], np.uint8))
    # In float16, 0.1 is a little smaller, so 0.25 is more than 2.5 steps.
    assert_same_bits(call(quantize, np.array([0.25], np.float16), 0.1, 0), np.array([3], np.uint8))
    assert_same_bits(call(quantize, np.array([0.25], np.float32), 0.1, 0), np.array([2], np.uint8))


@pytest.mark.parametrize("dequantize", [dmljax.dequantize, dmljax.element_wise_dequantize_linear])
def test_a_python_number_as_scale_gives_float32(call: Any, dequantize: Any) -> None:
    for scale in (2, 2.0):
        assert_same_bits(call(dequantize, np.array([5, 6], np.int8), scale, 3), np.array([4, 6], np.float32))


@SAMPLED
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint32", "float16", "bfloat16"])
def test_integers_and_other_floats_may_be_quantized(call: Any, dtype: str) -> None:
    input = np.array([0, 3, 5, 100]).astype(jnp.dtype(dtype))
    result = call(dmljax.element_wise_quantize_linear, input, np.array(2, np.float32), np.array(-1, np.int8))
    assert_same_bits(result, np.array([-1, 1, 1, 49], np.int8))
    if dtype == "int32":
        ends = call(dmljax.element_wise_quantize_linear, np.array([-(2**31), 2**31 - 1], np.int32), ONE, dtype="int8")
        assert ends.tolist() == [-128, 127]


def test_each_element_may_have_its_own_scale_and_zero_point(call: Any) -> None:
    result = call(
        dmljax.element_wise_quantize_linear,
        np.array([[10.0], [20.0]], np.float32),
        np.array([1.0, 2.0, 4.0], np.float32),
        np.array([[1, 2, 3]], np.uint8),
    )
    assert result.tolist() == [[11, 7, 5], [21, 12, 8]]


# DEQUANTIZE_LINEAR


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_subtracting_the_zero_point_is_exact_at_the_extremes(call: Any, dtype: Any) -> None:
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    numbers, zeros = [least, most, least, most, most, 0], [most, least, least, most, most - 1, most]
    result = call(
        dmljax.element_wise_dequantize_linear, np.array(numbers, dtype), np.array(2, np.float32), np.array(zeros, dtype)
    )
    expected = [2.0 * (x - zero) for x, zero in zip(numbers, zeros, strict=True)]
    assert_same_bits(result, np.array(expected, np.float32))


def test_large_integers_are_not_rounded_before_the_difference_is_taken(call: Any) -> None:
    # Rounded to float32 first, input and zero point would be 2^24 + 4 and 2^24 in magnitude.
    input, zero = np.array([2**24 + 3, -(2**24) - 3], np.int32), np.array([2**24 + 1, -(2**24) - 1], np.int32)
    assert call(dmljax.element_wise_dequantize_linear, input, ONE, zero).tolist() == [2.0, -2.0]


@needs_x64
def test_subtracting_64_bit_zero_points_is_exact(call: Any) -> None:
    input, zero = np.array([2**63 - 1, -(2**63)]), np.array([2**63 - 3, 2**63 - 1])
    assert call(dmljax.element_wise_dequantize_linear, input, ONE, zero).tolist() == [2.0, -(2.0**64)]


def test_the_zero_point_defaults_to_zero(call: Any) -> None:
    result = call(dmljax.element_wise_dequantize_linear, np.array([-128, 127], np.int8), np.array(0.5, np.float32))
    assert_same_bits(result, np.array([-64.0, 63.5], np.float32))


def test_the_output_has_the_type_of_the_scale_and_is_computed_in_float32(call: Any) -> None:
    # 100000 is out of float16's range, but half of it is not.
    input = np.array([100000, -100000, 200000], np.int32)
    result = call(dmljax.element_wise_dequantize_linear, input, np.array(0.5, np.float16))
    assert_same_bits(result, np.array([50000.0, -50000.0, INF], np.float16))
    scale = np.array(0.1, np.float16)
    result = call(dmljax.element_wise_dequantize_linear, np.array([255], np.uint8), scale)
    assert_same_bits(result, (np.float32(255) * scale.astype(np.float32)).reshape(1).astype(np.float16))


@needs_x64
def test_float64_is_quantized_and_dequantized_in_float64(call: Any) -> None:
    # In float32, the quotient would be 2.5 and the integer would round to 2^31.
    result = call(dmljax.element_wise_quantize_linear, np.array([2.50000000025]), np.array(1.0), np.uint8(0))
    assert_same_bits(result, np.array([3], np.uint8))
    result = call(dmljax.element_wise_dequantize_linear, np.array([2**31 - 1], np.int32), np.array(0.1))
    assert_same_bits(result, np.array([(2**31 - 1) * 0.1]))
    one_is_wide = call(
        dmljax.element_wise_quantized_linear_add,
        np.array([127], np.int8), np.array(0.1), None, np.array([0], np.int8), ONE, None, np.array(2.54), None,
    )  # fmt: skip
    assert_same_bits(one_is_wide, np.array([5], np.int8))


def test_a_python_number_is_a_scale_of_float32(call: Any) -> None:
    # 9 * 0.1 is a different float32 if 0.1 is not rounded to float32 before the multiplication.
    result = call(dmljax.element_wise_dequantize_linear, np.array([9, 13], np.int8), scale=0.1)
    assert_same_bits(result, np.array([9, 13], np.float32) * np.float32(0.1))
    assert call(dmljax.element_wise_quantize_linear, np.array([5.0], np.float32), scale=2.0).tolist() == [2]


def test_a_python_number_serves_as_a_zero_point(call: Any) -> None:
    result = call(dmljax.element_wise_dequantize_linear, np.array([0, 255], np.uint8), ONE, zero_point=128)
    assert result.tolist() == [-128.0, 127.0]


# QUANTIZED_LINEAR_ADD


def sum_of_quantized(
    a: list[int], a_zero: int | None, b: list[int], b_zero: int | None, zero: int | None, dtype: str
) -> list[int]:
    """The expected quantized sum for scales of 0.5, 2 and 4, with which float arithmetic is exact."""
    sums = [(x - (a_zero or 0)) * 0.5 + (y - (b_zero or 0)) * 2.0 for x, y in zip(a, b, strict=True)]
    return wanted([float(round(value / 4)) for value in sums], zero or 0, dtype)


SCALES = np.array([0.5], np.float32), np.array([2.0], np.float32), np.array([4.0], np.float32)


@SAMPLED
@pytest.mark.parametrize("zeros", list(itertools.product((None, 100), (None, -100), (None, 9))))
@pytest.mark.parametrize("output", ["uint8", "int8"])
def test_quantized_sums_of_two_types_with_and_without_zero_points(
    output: str, zeros: tuple[int | None, int | None, int | None]
) -> None:
    a, b = [0, 255, 100, 7], [-128, 127, 0, -3]
    a_zero, b_zero, zero = zeros
    arrays: dict[str, Any] = {
        "a": np.array(a, np.uint8),
        "a_scale": SCALES[0],
        "a_zero_point": None if a_zero is None else np.array([a_zero], np.uint8),
        "b": np.array(b, np.int8),
        "b_scale": SCALES[1],
        "b_zero_point": None if b_zero is None else np.array([b_zero], np.int8),
        "output_scale": SCALES[2],
        "output_zero_point": None if zero is None else np.array([zero], output),
    }
    expected = np.array(sum_of_quantized(a, a_zero, b, b_zero, zero, output), output)
    assert_same_bits(dmljax.element_wise_quantized_linear_add(**arrays, dtype=output), expected)
    present = {name: array for name, array in arrays.items() if array is not None}
    tensors = {name: tensor(array.dtype.name.upper(), *array.shape) for name, array in present.items()}
    desc = directml.ElementWiseQuantizedLinearAddDesc(**tensors, output=tensor(output.upper(), 4))
    assert_same_bits(directml.lower(desc)(**present), expected)


def test_a_quantized_sum_has_the_type_of_its_zero_point_or_of_the_first_summand(call: Any) -> None:
    a, b = np.array([100], np.int8), np.array([200], np.uint8)
    function = dmljax.element_wise_quantized_linear_add
    assert_same_bits(function(a, ONE, None, b, ONE, None, ONE), np.array([127], np.int8))
    assert_same_bits(function(a, ONE, None, b, ONE, None, ONE, np.array(0, np.uint8)), np.array([255], np.uint8))
    assert_same_bits(call(function, a, ONE, None, b, ONE, None, ONE, dtype="int16"), np.array([300], np.int16))


# Descriptors


@pytest.mark.parametrize(
    ("desc", "arrays", "expected"),
    [
        (QUANTIZE, ([-300.0, -2.5, -0.5, 0.5, 1.5, 300.0], [1.0] * 6), [-128, -2, 0, 0, 2, 127]),
        (DEQUANTIZE, ([0, 1, 2, 128, 254, 255], [0.5] * 6), [0, 0.5, 1, 64, 127, 127.5]),
    ],
)
def test_a_zero_point_may_be_missing_from_6_2_on(desc: Any, arrays: Any, expected: Any) -> None:
    directml.validate(desc, feature_level="6_1")
    without = replace(desc, zero_point=None)
    assert directml.find_minimum_feature_level(without) is FeatureLevel.FL_6_2
    message = "at DML_FEATURE_LEVEL_6_1: ZeroPointTensor must be given below DML_FEATURE_LEVEL_6_2; got none"
    with refuses(message, InvalidDesc):
        directml.validate(without, feature_level="6_1")
    arguments = [
        np.array(array, member.dtype).reshape(SIZES)
        for array, member in zip(arrays, (desc.input, desc.scale), strict=True)
    ]
    assert_same_bits(directml.lower(without)(*arguments), np.array(expected, desc.output.dtype).reshape(SIZES))


@pytest.mark.parametrize(
    ("desc", "change", "level"),
    [
        (QUANTIZE, {"input": HALF, "scale": HALF}, "6_0"),
        (DEQUANTIZE, {"scale": HALF, "output": HALF}, "6_0"),
        (QUANTIZE, {"input": tensor("INT32", *SIZES)}, "2_1"),
    ],
)
def test_the_level_is_that_of_the_scale(desc: Any, change: dict[str, Any], level: str) -> None:
    assert directml.find_minimum_feature_level(replace(desc, **change)) is FeatureLevel[f"FL_{level}"]
