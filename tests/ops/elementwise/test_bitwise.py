"""ELEMENT_WISE_BIT_* on the bits of signed and unsigned integers, and of floats."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import (
    FLOATS,
    INTEGERS,
    SAMPLED,
    assert_same_bits,
    few_types,
    pairs,
    refuses,
    specials,
    tensor,
)
from numpy.typing import NDArray

import dmljax
from dmljax import directml
from dmljax.directml import FeatureLevel, InvalidDesc, InvalidType

NUMBERS = [*INTEGERS, *FLOATS]
BITWISE: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
SHIFTS: dict[str, Callable[[int, int], int]] = {
    "shift_left": lambda a, b: a << b if b < 64 else 0,
    "shift_right": lambda a, b: a >> b,
}
BINARY = [*BITWISE, *SHIFTS]


def function(name: str) -> Any:
    return getattr(dmljax, f"element_wise_bit_{name}")


def bits(array: NDArray[Any]) -> list[int]:
    """The elements' bits as unsigned integers of Python."""
    return list(map(int, array.view(f"u{array.dtype.itemsize}")))


def of_bits(dtype: Any, raw: list[int]) -> NDArray[Any]:
    """Elements with these bits; higher bits are cut off."""
    itemsize = np.dtype(dtype).itemsize
    return np.array([value & (2 ** (8 * itemsize) - 1) for value in raw], f"u{itemsize}").view(dtype)


@SAMPLED
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_operators_combine_the_bits_of_every_pair_of_special_values(name: str, dtype: Any) -> None:
    a, b = pairs(specials(dtype))
    assert_same_bits(function(name)(a, b), of_bits(dtype, list(map((BITWISE | SHIFTS)[name], bits(a), bits(b)))))


@SAMPLED
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_not_and_count_take_every_special_value(dtype: Any) -> None:
    input = specials(dtype)
    assert_same_bits(dmljax.element_wise_bit_not(input), of_bits(dtype, [~value for value in bits(input)]))
    counts = np.array([value.bit_count() for value in bits(input)], np.int32)
    assert_same_bits(dmljax.element_wise_bit_count(input), counts)


def test_the_bits_of_floats_are_those_of_their_encoding(call: Any) -> None:
    one, sign = np.array([1.0], np.float32), np.array([-0.0], np.float32)
    assert call(dmljax.element_wise_bit_or, one, sign).tolist() == [-1.0]
    assert call(dmljax.element_wise_bit_xor, one, one).tolist() == [0.0]
    assert call(dmljax.element_wise_bit_count, np.array([1.0, -2.0], np.float16)).tolist() == [4, 2]  # 3c00, c000
    assert str(call(dmljax.element_wise_bit_not, sign).tolist()) == "[nan]"


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_shifts_by_at_least_the_width_give_zero(call: Any, dtype: Any) -> None:
    width = dtype.itemsize * 8
    counts = np.array([0, 1, width - 1, width, width + 1, np.iinfo(dtype).max], dtype)
    ones = of_bits(dtype, [-1] * 6)
    left = [2**width - 1, 2**width - 2, 1 << (width - 1), 0, 0, 0]
    right = [2**width - 1, 2 ** (width - 1) - 1, 1, 0, 0, 0]
    assert_same_bits(call(dmljax.element_wise_bit_shift_left, ones, counts), of_bits(dtype, left))
    assert_same_bits(call(dmljax.element_wise_bit_shift_right, ones, counts), of_bits(dtype, right))


@SAMPLED
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int32", "float32"])
def test_counts_have_the_requested_type(call: Any, dtype: str) -> None:
    result = call(dmljax.element_wise_bit_count, np.array([-1, 3], np.int32), dtype=dtype)
    assert_same_bits(result, np.array([32, 2], dtype))


@SAMPLED
@pytest.mark.parametrize("name", BINARY)
def test_a_python_number_takes_the_type_of_the_array(name: str) -> None:
    array = np.array([12, 10, 255], np.uint8)
    expected = [(BITWISE | SHIFTS)[name](x, 3) for x in array.tolist()]
    assert_same_bits(function(name)(array, 3), of_bits("uint8", expected))


BYTES, UBYTES = np.ones(2, np.int8), np.ones(2, np.uint8)


@pytest.mark.parametrize(
    ("operands", "error", "message"),
    [
        ((UBYTES, -1), InvalidDesc, "b must be a whole number in [0, 255] to fit uint8; got -1"),
        ((UBYTES, BYTES), InvalidType, "b must be of uint8, as a is; got int8"),
        ((UBYTES > 0, UBYTES > 0), InvalidType, "a must be of an integer or floating type; got bool"),
        ((UBYTES, np.ones(3, np.uint8)), InvalidDesc, "a and b must have shapes that broadcast; got (2,) and (3,)"),
    ],
)
@pytest.mark.parametrize("name", BINARY)
def test_operands_are_refused(name: str, operands: Any, error: type[Exception], message: str) -> None:
    with refuses(f"element_wise_bit_{name}: {message}", error):
        function(name)(*operands)
    if "bool" in message:
        for of_one in ("not", "count"):
            with refuses(f"element_wise_bit_{of_one}: input must be of an integer or floating type; got bool", error):
                function(of_one)(operands[0])


# Descriptors


@pytest.mark.parametrize("data_type", ["FLOAT32", "INT8"])
def test_bits_of_floats_and_signed_integers_need_level_4_1_and_shifts_refuse_them(data_type: str) -> None:
    same = dict.fromkeys(("a", "b", "output"), tensor(data_type, 2, 3))
    assert directml.find_minimum_feature_level(directml.ElementWiseBitAndDesc(**same)) is FeatureLevel.FL_4_1
    with refuses("ATensor.DataType must be one of UINT32, UINT16, UINT8, UINT64; got ", InvalidDesc):
        directml.validate(directml.ElementWiseBitShiftLeftDesc(**same))


@pytest.mark.parametrize("data_type", ["UINT8", "UINT32"])
def test_counts_of_a_desc_have_their_own_type(data_type: str) -> None:
    desc = directml.ElementWiseBitCountDesc(input=tensor("FLOAT16", 2), output=tensor(data_type, 2))
    result = directml.lower(desc)(np.array([1.0, -2.0], np.float16))
    assert_same_bits(result, np.array([4, 2], data_type.lower()))
