"""ELEMENT_WISE_LOGICAL_*, IS_NAN, IS_INFINITY and IF."""

import math
import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, REALS, assert_same_bits, few_types, needs_x64, specials
from numpy.typing import NDArray

import dmljax
from dmljax import directml
from dmljax.directml import DataType, FeatureLevel, InvalidDesc, InvalidType, IsInfinityMode, TensorDesc

FLOAT32, FLOAT16, UINT32, UINT8, INT8 = (
    DataType.FLOAT32,
    DataType.FLOAT16,
    DataType.UINT32,
    DataType.UINT8,
    DataType.INT8,
)
NAN, INF = math.nan, math.inf
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "equals": operator.eq,
    "greater_than": operator.gt,
    "greater_than_or_equal": operator.ge,
    "less_than": operator.lt,
    "less_than_or_equal": operator.le,
}
CONNECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}
BINARY = [*COMPARISONS, *CONNECTIVES]


def function(name: str) -> Any:
    return getattr(dmljax, f"element_wise_logical_{name}")


def desc_of(name: str) -> Any:
    return getattr(directml, "ElementWiseLogical" + name.title().replace("_", "") + "Desc")


def of_bits(dtype: Any, *raw: int) -> NDArray[Any]:
    """Floats with these bits."""
    return np.array(raw, f"u{np.dtype(dtype).itemsize}").view(dtype)


def pairs(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Every pair of values, as the left and the right operands."""
    return np.repeat(values, len(values)), np.tile(values, len(values))


# Comparisons


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_every_pair_of_special_values(name: str, dtype: Any) -> None:
    # Python's numbers represent every value of every type exactly, including subnormals and 64-bit integers.
    a, b = pairs(specials(dtype))
    expected = [COMPARISONS[name](x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert_same_bits(function(name)(a, b), np.array(expected, np.uint8))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("equals", [0, 0, 0, 1, 1, 0, 0]),
        ("greater_than", [0, 0, 0, 0, 0, 1, 0]),
        ("greater_than_or_equal", [0, 0, 0, 1, 1, 1, 0]),
        ("less_than", [0, 0, 0, 0, 0, 0, 1]),
        ("less_than_or_equal", [0, 0, 0, 1, 1, 0, 1]),
    ],
)
def test_comparisons_with_nan_zeros_and_infinities(call: Any, name: str, expected: list[int]) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        a = np.array([NAN, 1.0, NAN, -0.0, INF, INF, -INF], jnp.dtype(dtype))
        b = np.array([1.0, NAN, NAN, 0.0, INF, -INF, 0.0], jnp.dtype(dtype))
        assert_same_bits(call(function(name), a, b), np.array(expected, np.uint8))


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_comparisons_tell_subnormals_apart_and_from_zero(call: Any, dtype: Any) -> None:
    a, b = of_bits(dtype, 0, 1, 1), of_bits(dtype, 1, 2, 1)
    assert call(dmljax.element_wise_logical_equals, a, b).tolist() == [0, 0, 1]
    assert call(dmljax.element_wise_logical_less_than, a, b).tolist() == [1, 1, 0]
    assert call(dmljax.element_wise_logical_greater_than_or_equal, a, b).tolist() == [0, 0, 1]


@needs_x64
def test_comparisons_of_64_bits_are_exact(call: Any) -> None:
    a, b = np.array([2**63 - 1, -(2**63), 2**53]), np.array([2**63 - 2, 2**63 - 1, 2**53 + 1])
    assert call(dmljax.element_wise_logical_greater_than, a, b).tolist() == [1, 0, 0]
    assert call(dmljax.element_wise_logical_equals, a, b).tolist() == [0, 0, 0]
    a, b = np.array([2**64 - 1, 2**63], np.uint64), np.array([0, 2**63 - 1], np.uint64)
    assert call(dmljax.element_wise_logical_greater_than, a, b).tolist() == [1, 1]


def test_unsigned_integers_are_not_compared_as_signed(call: Any) -> None:
    for dtype in ("uint8", "uint16", "uint32"):
        largest = np.array([np.iinfo(dtype).max], dtype)
        assert call(dmljax.element_wise_logical_greater_than, largest, b=1).tolist() == [1]


@pytest.mark.parametrize("dtype", [bool, "uint32", "float16"])
@pytest.mark.parametrize("name", BINARY)
def test_results_come_in_the_type_that_is_asked_for(name: str, dtype: Any) -> None:
    a, b = np.array([0, 1, 2], np.int32), np.array([0, 2, 0], np.int32)
    rule = COMPARISONS.get(name) or (lambda x, y: CONNECTIVES[name](x != 0, y != 0))
    expected = [bool(rule(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert_same_bits(function(name)(a, b, dtype=dtype), np.array(expected, dtype))


def test_predicates_of_one_operand_come_in_the_type_that_is_asked_for(call: Any) -> None:
    input = np.array([0.0, NAN, INF], np.float32)
    assert_same_bits(call(dmljax.element_wise_logical_not, input, dtype=bool), np.array([True, False, False]))
    assert_same_bits(call(dmljax.element_wise_is_nan, input, dtype=bool), np.array([False, True, False]))
    assert_same_bits(call(dmljax.element_wise_is_infinity, input, dtype=bool), np.array([False, False, True]))
    assert_same_bits(call(dmljax.element_wise_is_nan, input), np.array([0, 1, 0], np.uint8))


# Logical operators


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
@pytest.mark.parametrize("name", CONNECTIVES)
def test_whatever_is_not_zero_holds(name: str, dtype: Any) -> None:
    a, b = pairs(specials(dtype))
    expected = [CONNECTIVES[name](x != 0, y != 0) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert_same_bits(function(name)(a, b), np.array(expected, np.uint8))


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_logical_not_of_every_special_value(dtype: Any) -> None:
    input = specials(dtype)
    assert_same_bits(dmljax.element_wise_logical_not(input), np.array([x == 0 for x in input.tolist()], np.uint8))


def test_connectives_look_at_numbers_not_at_their_bits(call: Any) -> None:
    a, b = np.array([1, 2, 4, 0], np.uint8), np.array([2, 2, 0, 0], np.uint8)
    assert call(dmljax.element_wise_logical_and, a, b).tolist() == [1, 1, 0, 0]
    assert call(dmljax.element_wise_logical_or, a, b).tolist() == [1, 1, 1, 0]
    assert call(dmljax.element_wise_logical_xor, a, b).tolist() == [0, 0, 1, 0]


# Operands


@pytest.mark.parametrize("name", BINARY)
def test_a_python_number_takes_the_type_of_the_array(name: str) -> None:
    for array, number in ((np.array([0, 100], np.int8), 100), (np.array([0.0, 0.5], np.float16), 0.5)):
        rule = COMPARISONS.get(name) or (lambda x, y: CONNECTIVES[name](x != 0, y != 0))
        expected = [bool(rule(x, number)) for x in array.tolist()]
        assert_same_bits(function(name)(array, number, dtype=bool), np.array(expected))


@pytest.mark.parametrize("name", BINARY)
def test_operands_are_refused(name: str) -> None:
    named = f"^element_wise_logical_{name}: "
    with pytest.raises(InvalidDesc, match=named + r"b must be a whole number in \[-128, 127\] to fit int8; got 300"):
        function(name)(np.ones(2, np.int8), 300)
    with pytest.raises(InvalidDesc, match=named + r"b must be a whole number in .* to fit int32; got 0\.5"):
        function(name)(np.ones(2, np.int32), 0.5)
    with pytest.raises(InvalidType, match=named + "b must be of uint8, as a is; got int8"):
        function(name)(np.ones(2, np.uint8), np.ones(2, np.int8))
    with pytest.raises(InvalidDesc, match=named + r"a and b must have shapes that broadcast; got \(2, 3\) and \(2,\)"):
        function(name)(np.ones((2, 3), np.uint8), np.ones(2, np.uint8))
    with pytest.raises(InvalidType, match=named + "dtype must be .*; got complex64"):
        function(name)(np.ones(2, np.uint8), np.ones(2, np.uint8), dtype="complex64")


@pytest.mark.parametrize("name", ["equals", "and"])
def test_operands_broadcast(call: Any, name: str) -> None:
    a, b = np.array([[0], [1]], np.uint8), np.array([0, 1, 1], np.uint8)
    expected = {"equals": [[1, 0, 0], [0, 1, 1]], "and": [[0, 0, 0], [0, 1, 1]]}[name]
    assert call(function(name), a, b).tolist() == expected


# Tests for NaN and infinity


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_is_nan_of_every_special_value(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    infinity = int(np.array(INF, dtype).view(f"u{dtype.itemsize}"))
    assert_same_bits(call(dmljax.element_wise_is_nan, of_bits(dtype, infinity + 1)), np.array([1], np.uint8))
    expected = np.array([math.isnan(x) for x in input.tolist()], np.uint8)
    assert expected.sum() == 6
    assert_same_bits(call(dmljax.element_wise_is_nan, input), expected)


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
@pytest.mark.parametrize("mode", IsInfinityMode)
def test_is_infinity_of_every_special_value(mode: IsInfinityMode, dtype: Any) -> None:
    signs = {IsInfinityMode.EITHER: (INF, -INF), IsInfinityMode.POSITIVE: (INF,), IsInfinityMode.NEGATIVE: (-INF,)}
    input = specials(dtype)
    expected = np.array([x in signs[mode] for x in input.tolist()], np.uint8)
    assert expected.sum() == len(signs[mode])
    assert_same_bits(dmljax.element_wise_is_infinity(input, infinity_mode=mode), expected)


def test_integers_are_refused_where_floats_are_needed() -> None:
    for name in ("is_nan", "is_infinity"):
        for dtype in ("int32", "bool"):
            with pytest.raises(
                InvalidType, match=f"^element_wise_{name}: input must be of a floating type; got {dtype}"
            ):
                getattr(dmljax, f"element_wise_{name}")(np.ones(2, dtype))
    mode: Any = 1
    with pytest.raises(InvalidType, match=r"^element_wise_is_infinity: infinity_mode must be an IsInfinityMode; got 1"):
        dmljax.element_wise_is_infinity(np.ones(2, np.float32), infinity_mode=mode)


# IF


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_if_keeps_every_bit_of_either(call: Any, dtype: Any) -> None:
    a = specials(dtype)
    b, condition = a[::-1].copy(), np.arange(len(a)) % 3
    expected = np.where(condition != 0, a.view(f"u{dtype.itemsize}"), b.view(f"u{dtype.itemsize}")).view(dtype)
    assert_same_bits(call(dmljax.element_wise_if, condition.astype(np.uint8), a, b), expected)


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_any_condition_but_zero_holds(dtype: Any) -> None:
    condition = specials(dtype)
    expected = np.array([7 if x != 0 else 9 for x in condition.tolist()], np.int8)
    assert_same_bits(dmljax.element_wise_if(condition, np.full_like(expected, 7), 9), expected)


def test_the_condition_broadcasts_with_both(call: Any) -> None:
    result = call(
        dmljax.element_wise_if, np.array([[1], [0]]), np.array([1.0, 2.0], np.float32), np.array([[[5.0]]], np.float32)
    )
    assert result.tolist() == [[[1.0, 2.0], [5.0, 5.0]]]


def test_if_refuses() -> None:
    condition, ones = np.ones(2, np.uint8), np.ones(2, np.float32)
    with pytest.raises(InvalidType, match=r"^element_wise_if: b must be of float32, as a is; got float16"):
        dmljax.element_wise_if(condition, ones, ones.astype(np.float16))
    with pytest.raises(InvalidDesc, match=r"^element_wise_if: b must be a whole number in .* to fit int8; got 1\.5"):
        dmljax.element_wise_if(condition, ones.astype(np.int8), 1.5)
    with pytest.raises(
        InvalidDesc, match=r"^element_wise_if: condition, a and b must have shapes that broadcast; got \(3,\), \(2,\)"
    ):
        dmljax.element_wise_if(np.ones(3, np.uint8), ones, ones)
    with pytest.raises(InvalidType, match=r"^element_wise_if: condition must be a JAX or NumPy array; got list"):
        dmljax.element_wise_if([True, False], ones, ones)  # type: ignore[arg-type]


# Descriptors


def tensor(data_type: DataType, *sizes: int) -> TensorDesc:
    return TensorDesc(data_type, sizes or (1, 1, 2, 3))


@pytest.mark.parametrize("name", ["equals", "greater_than", "less_than"])
def test_results_of_comparisons_are_uint32_first_and_uint8_from_2_0_on(name: str) -> None:
    wide = desc_of(name)(a=tensor(FLOAT32), b=tensor(FLOAT32), output=tensor(UINT32))
    narrow = desc_of(name)(a=tensor(FLOAT32), b=tensor(FLOAT32), output=tensor(UINT8))
    directml.validate(wide, feature_level="1_0")
    with pytest.raises(
        InvalidDesc, match=r"at DML_FEATURE_LEVEL_1_0: OutputTensor\.DataType must be UINT32; got UINT8"
    ):
        directml.validate(narrow, feature_level="1_0")
    assert directml.find_minimum_feature_level(narrow) is FeatureLevel.FL_2_0
    arrays = np.zeros((2, 1, 1, 2, 3), np.float32)
    assert_same_bits(directml.lower(wide)(*arrays), np.full((1, 1, 2, 3), name == "equals", np.uint32))
    assert_same_bits(directml.lower(narrow)(*arrays), np.full((1, 1, 2, 3), name == "equals", np.uint8))


@pytest.mark.parametrize("name", ["greater_than_or_equal", "less_than_or_equal"])
def test_comparisons_with_equality_are_of_3_0(name: str) -> None:
    desc = desc_of(name)(a=tensor(FLOAT32), b=tensor(FLOAT32), output=tensor(UINT8))
    with pytest.raises(InvalidDesc, match="the operator must not be used below DML_FEATURE_LEVEL_3_0; got "):
        directml.validate(desc, feature_level="2_1")
    directml.validate(desc, feature_level="3_0")


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (
            directml.ElementWiseLogicalEqualsDesc(a=tensor(FLOAT32), b=tensor(FLOAT16), output=tensor(UINT8)),
            "ATensor and BTensor must have the same DataType; got FLOAT32 and FLOAT16",
        ),
        (
            directml.ElementWiseLogicalEqualsDesc(a=tensor(FLOAT32), b=tensor(FLOAT32), output=tensor(UINT8, 6)),
            "ATensor, BTensor and OutputTensor must have the same DimensionCount; got 4, 4 and 1",
        ),
        (
            directml.ElementWiseLogicalEqualsDesc(a=tensor(INT8, 3), b=tensor(INT8, 2), output=tensor(UINT8, 3)),
            r"ATensor, BTensor and OutputTensor must have the same Sizes; got \{3\}, \{2\} and \{3\}",
        ),
        (
            directml.ElementWiseLogicalAndDesc(a=tensor(UINT8), b=tensor(UINT8), output=tensor(UINT32)),
            "ATensor, BTensor and OutputTensor must have the same DataType; got UINT8, UINT8 and UINT32",
        ),
        (
            directml.ElementWiseLogicalNotDesc(input=tensor(UINT8), output=tensor(UINT32)),
            "InputTensor and OutputTensor must have the same DataType; got UINT8 and UINT32",
        ),
        (
            directml.ElementWiseIsNanDesc(input=tensor(FLOAT32, 2, 3), output=tensor(UINT8, 3, 2)),
            r"InputTensor and OutputTensor must have the same Sizes; got \{2,3\} and \{3,2\}",
        ),
        (
            directml.ElementWiseIsInfinityDesc(
                input=tensor(FLOAT32), output=tensor(UINT32), infinity_mode=IsInfinityMode.EITHER
            ),
            r"OutputTensor\.DataType must be UINT8; got UINT32",
        ),
        (
            directml.ElementWiseIfDesc(
                condition=tensor(UINT8), a=tensor(FLOAT32), b=tensor(FLOAT16), output=tensor(FLOAT32)
            ),
            "ATensor, BTensor and OutputTensor must have the same DataType; got FLOAT32, FLOAT16 and FLOAT32",
        ),
        (
            directml.ElementWiseIfDesc(
                condition=tensor(UINT8, 3), a=tensor(INT8, 2), b=tensor(INT8, 2), output=tensor(INT8, 2)
            ),
            r"ConditionTensor, ATensor, BTensor and OutputTensor must have the same Sizes; got \{3\}, \{2\}, ",
        ),
        (
            directml.ElementWiseIfDesc(
                condition=tensor(UINT8, 1, 2), a=tensor(INT8, 2), b=tensor(INT8, 2), output=tensor(INT8, 2)
            ),
            "ConditionTensor, ATensor, BTensor and OutputTensor must have the same DimensionCount; got 2, 1, 1 and 1",
        ),
        (
            directml.ElementWiseIfDesc(condition=tensor(FLOAT32), a=tensor(INT8), b=tensor(INT8), output=tensor(INT8)),
            r"ConditionTensor\.DataType must be UINT8; got FLOAT32",
        ),
    ],
)
def test_a_desc_refuses(desc: directml.Operator, message: str) -> None:
    with pytest.raises(InvalidDesc, match=f"{desc.type} at DML_FEATURE_LEVEL_6_4: (.|\n)*" + message):
        directml.validate(desc)


def test_if_takes_float16_alone_at_2_0() -> None:
    members = {"condition": tensor(UINT8)}
    half = directml.ElementWiseIfDesc(**members, **dict.fromkeys(("a", "b", "output"), tensor(FLOAT16)))
    single = directml.ElementWiseIfDesc(**members, **dict.fromkeys(("a", "b", "output"), tensor(FLOAT32)))
    directml.validate(half, feature_level="2_0")
    with pytest.raises(InvalidDesc, match=r"ATensor\.DataType must be FLOAT16; got FLOAT32"):
        directml.validate(single, feature_level="2_0")
    directml.validate(single, feature_level="3_0")


def test_nothing_is_compared_with_nothing(call: Any) -> None:
    empty = np.zeros((0, 3), np.float32)
    assert call(dmljax.element_wise_logical_equals, empty, empty).shape == (0, 3)
