"""ELEMENT_WISE_BIT_*: on the bits of integers, of either sign, and of floats."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import FLOATS, INTEGERS, assert_same_bits, few_types, needs_x64, specials
from numpy.typing import NDArray

import dmljax
from dmljax import directml
from dmljax.directml import DataType, FeatureLevel, InvalidDesc, InvalidType, TensorDesc

NUMBERS = [*INTEGERS, *FLOATS]
UNSIGNED = [dtype for dtype in INTEGERS if dtype.kind == "u"]
SIGNED = [dtype for dtype in INTEGERS if dtype.kind == "i"]
BITWISE: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
SHIFTS: dict[str, Callable[[int, int], int]] = {
    "shift_left": lambda a, b: a << b if b < 64 else 0,
    "shift_right": lambda a, b: a >> b,
}
BINARY = [*BITWISE, *SHIFTS]


def function(name: str) -> Any:
    return getattr(dmljax, f"element_wise_bit_{name}")


def bits(array: NDArray[Any]) -> list[int]:
    """What the elements' bits are, as unsigned integers of Python."""
    return list(map(int, array.view(f"u{array.dtype.itemsize}")))


def of_bits(dtype: Any, raw: list[int]) -> NDArray[Any]:
    """Elements of these bits; those that do not fit are cut off."""
    itemsize = np.dtype(dtype).itemsize
    return np.array([value & (2 ** (8 * itemsize) - 1) for value in raw], f"u{itemsize}").view(dtype)


@pytest.mark.parametrize("dtype", few_types(NUMBERS), ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_bits_of_every_pair_of_special_values(name: str, dtype: Any) -> None:
    values = specials(dtype)
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    python = (BITWISE | SHIFTS)[name]
    assert_same_bits(function(name)(a, b), of_bits(dtype, list(map(python, bits(a), bits(b)))))


@pytest.mark.parametrize("dtype", few_types(NUMBERS), ids=str)
def test_not_and_count_of_every_special_value(dtype: Any) -> None:
    input = specials(dtype)
    assert_same_bits(dmljax.element_wise_bit_not(input), of_bits(dtype, [~value for value in bits(input)]))
    counts = np.array([value.bit_count() for value in bits(input)], np.uint32)
    assert_same_bits(dmljax.element_wise_bit_count(input), counts)


def test_the_bits_of_floats_are_those_of_their_encoding(call: Any) -> None:
    one, sign = np.array([1.0], np.float32), np.array([-0.0], np.float32)
    assert call(dmljax.element_wise_bit_or, one, sign).tolist() == [-1.0]
    assert call(dmljax.element_wise_bit_xor, one, one).tolist() == [0.0]
    assert call(dmljax.element_wise_bit_count, np.array([1.0, -2.0], np.float16)).tolist() == [4, 2]  # 3c00, c000
    assert str(call(dmljax.element_wise_bit_not, sign).tolist()) == "[nan]"


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_shifts_by_the_width_and_beyond_leave_nothing(call: Any, dtype: Any) -> None:
    width = dtype.itemsize * 8
    counts = np.array([0, 1, width - 1, width, width + 1, np.iinfo(dtype).max], dtype)
    ones = of_bits(dtype, [-1] * 6)
    left = [2**width - 1, 2**width - 2, 1 << (width - 1), 0, 0, 0]
    right = [2**width - 1, 2 ** (width - 1) - 1, 1, 0, 0, 0]
    assert_same_bits(call(dmljax.element_wise_bit_shift_left, ones, counts), of_bits(dtype, left))
    assert_same_bits(call(dmljax.element_wise_bit_shift_right, ones, counts), of_bits(dtype, right))


@pytest.mark.parametrize("dtype", few_types(SIGNED), ids=str)
def test_a_negative_count_is_a_large_one_and_no_sign_is_repeated(call: Any, dtype: Any) -> None:
    input, count = np.array([-1, 1, np.iinfo(dtype).min], dtype), np.array([-1, np.iinfo(dtype).min, -1], dtype)
    for name in SHIFTS:
        assert_same_bits(call(function(name), input, count), np.zeros(3, dtype))
    smallest = np.array([np.iinfo(dtype).min, -1], dtype)
    result = call(dmljax.element_wise_bit_shift_right, smallest, b=1)
    assert result.tolist() == [2 ** (dtype.itemsize * 8 - 2), np.iinfo(dtype).max]


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_all_bits_are_counted(call: Any, dtype: Any) -> None:
    width = dtype.itemsize * 8
    assert call(dmljax.element_wise_bit_count, of_bits(dtype, [-1, 0, 1 << (width - 1)])).tolist() == [width, 0, 1]


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int32", "float32"])
def test_counts_come_in_the_type_that_is_asked_for(call: Any, dtype: str) -> None:
    result = call(dmljax.element_wise_bit_count, np.array([-1, 3], np.int32), dtype=dtype)
    assert_same_bits(result, np.array([32, 2], dtype))


@needs_x64
def test_64_bits_are_not_cut(call: Any) -> None:
    input = np.array([2**63 + 1], np.uint64)
    assert call(dmljax.element_wise_bit_shift_right, input, b=63).tolist() == [1]
    assert call(dmljax.element_wise_bit_shift_left, input, b=63).tolist() == [2**63]
    assert call(dmljax.element_wise_bit_count, np.array([-1])).tolist() == [64]


@pytest.mark.parametrize("name", BINARY)
def test_a_python_number_takes_the_type_of_the_array(name: str) -> None:
    array = np.array([12, 10, 255], np.uint8)
    expected = [(BITWISE | SHIFTS)[name](x, 3) for x in array.tolist()]
    assert_same_bits(function(name)(array, 3), of_bits("uint8", expected))


@pytest.mark.parametrize("name", BINARY)
def test_operands_are_refused(name: str) -> None:
    named = f"^element_wise_bit_{name}: "
    with pytest.raises(InvalidDesc, match=named + r"b must be a whole number in \[0, 255\] to fit uint8; got -1"):
        function(name)(np.ones(2, np.uint8), -1)
    with pytest.raises(InvalidType, match=named + "b must be of uint8, as a is; got int8"):
        function(name)(np.ones(2, np.uint8), np.ones(2, np.int8))
    with pytest.raises(InvalidType, match=named + "a must be of an integer or floating type; got bool"):
        function(name)(np.ones(2, bool), np.ones(2, bool))
    with pytest.raises(InvalidDesc, match=named + r"a and b must have shapes that broadcast; got \(2,\) and \(3,\)"):
        function(name)(np.ones(2, np.uint8), np.ones(3, np.uint8))


@pytest.mark.parametrize("name", ["not", "count"])
def test_bool_has_no_bits(name: str) -> None:
    with pytest.raises(
        InvalidType, match=f"^element_wise_bit_{name}: input must be of an integer or floating type; got bool"
    ):
        function(name)(np.ones(2, bool))


@pytest.mark.parametrize("name", BINARY)
def test_operands_broadcast(call: Any, name: str) -> None:
    a, b = np.array([[1], [2]], np.uint16), np.array([1, 2, 3], np.uint16)
    expected = [[(BITWISE | SHIFTS)[name](x, y) for y in (1, 2, 3)] for x in (1, 2)]
    assert call(function(name), a, b).tolist() == expected


# Descriptors


def tensor(data_type: DataType, *sizes: int) -> TensorDesc:
    return TensorDesc(data_type, sizes or (1, 1, 2, 3))


def test_bits_of_floats_and_signed_integers_are_of_4_1_and_shifts_have_none() -> None:
    for data_type in (DataType.FLOAT32, DataType.INT8):
        same = dict.fromkeys(("a", "b", "output"), tensor(data_type))
        assert directml.find_minimum_feature_level(directml.ElementWiseBitAndDesc(**same)) is FeatureLevel.FL_4_1
        with pytest.raises(InvalidDesc, match=r"ATensor\.DataType must be one of UINT32, UINT16, UINT8, UINT64; got "):
            directml.validate(directml.ElementWiseBitShiftLeftDesc(**same))


@pytest.mark.parametrize("data_type", [DataType.UINT8, DataType.UINT32])
def test_counts_of_a_desc_have_a_type_of_their_own(data_type: DataType) -> None:
    desc = directml.ElementWiseBitCountDesc(input=tensor(DataType.FLOAT16, 2), output=tensor(data_type, 2))
    result = directml.lower(desc)(np.array([1.0, -2.0], np.float16))
    assert_same_bits(result, np.array([4, 2], data_type.dtype))


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (
            directml.ElementWiseBitXorDesc(
                a=tensor(DataType.UINT8), b=tensor(DataType.INT8), output=tensor(DataType.UINT8)
            ),
            "ATensor, BTensor and OutputTensor must have the same DataType; got UINT8, INT8 and UINT8",
        ),
        (
            directml.ElementWiseBitNotDesc(input=tensor(DataType.UINT8), output=tensor(DataType.INT8)),
            "InputTensor and OutputTensor must have the same DataType; got UINT8 and INT8",
        ),
        (
            directml.ElementWiseBitCountDesc(input=tensor(DataType.UINT8), output=tensor(DataType.UINT16)),
            r"OutputTensor\.DataType must be one of UINT32, UINT8; got UINT16",
        ),
        (
            directml.ElementWiseBitCountDesc(input=tensor(DataType.UINT8, 2, 3), output=tensor(DataType.UINT8, 3, 2)),
            r"InputTensor and OutputTensor must have the same Sizes; got \{2,3\} and \{3,2\}",
        ),
        (
            directml.ElementWiseBitCountDesc(input=tensor(DataType.UINT8, 6), output=tensor(DataType.UINT8, 1, 6)),
            "InputTensor and OutputTensor must have the same DimensionCount; got 1 and 2",
        ),
    ],
)
def test_a_desc_refuses(desc: directml.Operator, message: str) -> None:
    with pytest.raises(InvalidDesc, match=f"{desc.type} at DML_FEATURE_LEVEL_6_4: (.|\n)*" + message):
        directml.validate(desc)
