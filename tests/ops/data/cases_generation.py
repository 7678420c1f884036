"""DIAGONAL_MATRIX, FILL_VALUE_* and RANDOM_GENERATOR: the pages' tables and pseudo-code, and cases."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from conversions import LAYOUTS
from formulas import Arr, bits_of
from helpers import f32, tensor
from pages import merge, of_all, tables

import dmljax
from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

SUPPORT = tables(
    """
    DIAGONAL_MATRIX: OutputTensor
        2_0 4 FLOATS
        2_1 4 UP_TO_32
        4_0 2-4 UP_TO_32
        5_1 2-4 ALL
    DIAGONAL_MATRIX1: InputTensor OutputTensor
        5_1 2-4 ALL
    FILL_VALUE_CONSTANT: OutputTensor
        2_1 4 UP_TO_32
        4_0 1-8 UP_TO_32
        4_1 1-8 ALL
    FILL_VALUE_SEQUENCE: OutputTensor
        2_1 4 UP_TO_32
        4_0 1-8 UP_TO_32
        5_0 1-8 UP_TO_64
    RANDOM_GENERATOR: InputStateTensor OutputTensor OutputStateTensor
        3_0 4 UINT32
        4_0 1-8 UINT32
    """
)

MEMBERS = merge(
    of_all("DIAGONAL_MATRIX", "OutputTensor Offset Value"),
    of_all("DIAGONAL_MATRIX1", "InputTensor OutputTensor ValueDataType Value DiagonalFillBegin DiagonalFillEnd"),
    of_all("FILL_VALUE_CONSTANT", "OutputTensor ValueDataType Value"),
    of_all("FILL_VALUE_SEQUENCE", "OutputTensor ValueDataType ValueStart ValueDelta"),
    of_all("RANDOM_GENERATOR", "InputStateTensor OutputTensor OutputStateTensor Type"),
)

# Pseudo-code


def diagonal_matrix1(input: Arr | None, value: Any, *, begin: int, end: int, sizes: Sequence[int], dtype: Any) -> Arr:
    output = np.zeros(sizes, dtype)
    raw, value_bits = bits_of(output), bits_of(np.array([value], dtype))[0]
    for coordinate in np.ndindex(*sizes):
        *_, y, x = coordinate
        top_x = x - y
        use_value = (end >= begin) ^ (top_x >= begin) ^ (top_x < end)
        if use_value:
            raw[coordinate] = value_bits
        elif input is not None:
            raw[coordinate] = bits_of(input)[coordinate]
    return output


def fill_value_constant(value: Any, *, sizes: Sequence[int], dtype: Any) -> Arr:
    output = np.empty(sizes, dtype)
    for coordinate in np.ndindex(*sizes):
        bits_of(output)[coordinate] = bits_of(np.array(value, dtype).reshape(1))[0]
    return output


def element(start: Any, delta: Any, index: int, dtype: Any) -> Any:
    """An element of a sequence, from `start` and `delta` of `dtype`; delta as a Python integer may be negative."""
    dtype = np.dtype(dtype)
    if dtype not in LAYOUTS:
        wrapped = (int(start) + index * int(delta)) % 2 ** (dtype.itemsize * 8)
        return np.array([wrapped], f"u{dtype.itemsize}").view(dtype)[0]
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    first, step = (np.asarray(x).astype(wide) for x in (start, delta))
    return np.asarray(first + wide.type(index) * step).astype(dtype)[()] if index else start


def fill_value_sequence(start: Any, delta: Any, *, sizes: Sequence[int], dtype: Any) -> Arr:
    output = np.empty(sizes, dtype)
    for index, coordinate in enumerate(np.ndindex(*sizes)):
        output[coordinate] = element(start, delta, index, dtype)
    return output


def philox4x32(counter: int, key: tuple[int, int]) -> list[int]:
    """A block of four words, as Salmon et al. define it: ten rounds, and a step of the key between rounds."""
    words = [counter >> 32 * i & 0xFFFFFFFF for i in range(4)]
    first, second = key
    for _ in range(10):
        left, right = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            (right >> 32) ^ words[1] ^ first,
            right & 0xFFFFFFFF,
            (left >> 32) ^ words[3] ^ second,
            left & 0xFFFFFFFF,
        ]
        first, second = (first + 0x9E3779B9) % 2**32, (second + 0xBB67AE85) % 2**32
    return words


def random_generator(state: Any, *, sizes: Sequence[int]) -> tuple[Arr, Arr]:
    words = [int(word) for word in np.asarray(state).ravel()]
    counter, key = sum(word << 32 * i for i, word in enumerate(words[:4])), (words[4], words[5])
    output: list[int] = []
    while len(output) < math.prod(sizes):
        output += philox4x32(counter, key)
        counter = (counter + 1) % 2**128
    after = [counter >> 32 * i & 0xFFFFFFFF for i in range(4)]
    state_after = np.array([*after, *key], np.uint32).reshape(np.shape(state))
    return np.array(output[: math.prod(sizes)], np.uint32).reshape(sizes), state_after


# Descriptors


def diagonal_matrix_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.DiagonalMatrixDesc(output=TensorDesc(types["output"], ones(rank, 2, 3, 4)), offset=1, value=3.0)


def diagonal_matrix1_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 2, 3, 4))
    return directml.DiagonalMatrix1Desc(
        input=tensor,
        output=tensor,
        value_data_type=types["input"],
        value=3,
        diagonal_fill_begin=1,
        diagonal_fill_end=-1,
    )


def fill_value_constant_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    output = TensorDesc(types["output"], ones(rank, 2, 3, 4))
    return directml.FillValueConstantDesc(output=output, value_data_type=types["output"], value=3)


def fill_value_sequence_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    output = TensorDesc(types["output"], ones(rank, 2, 3, 4))
    delta = -2 if types["output"] not in (DataType.FLOAT32, DataType.FLOAT16) else 0.125
    return directml.FillValueSequenceDesc(
        output=output, value_data_type=types["output"], value_start=3, value_delta=delta
    )


def random_generator_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    state = TensorDesc(DataType.UINT32, ones(rank, 6))
    output = TensorDesc(types["output"], ones(rank, 2, 3, 5))
    return directml.RandomGeneratorDesc(
        input_state=state, output=output, output_state=state, type=directml.RandomGeneratorType.PHILOX_4X32_10
    )


CASES = {
    "DIAGONAL_MATRIX": Case(
        ("output",),
        diagonal_matrix_desc,
        lambda desc: diagonal_matrix1(None, 3, begin=1, end=2, sizes=desc.output.sizes, dtype=desc.output.dtype),
        of_value=lambda value: dmljax.diagonal_matrix(value, offset=1, output_sizes=(3, 4)),
    ),
    "DIAGONAL_MATRIX1": Case(
        ("input",),
        diagonal_matrix1_desc,
        lambda desc, input: diagonal_matrix1(input, 3, begin=1, end=-1, sizes=desc.output.sizes, dtype=input.dtype),
    ),
    "FILL_VALUE_CONSTANT": Case(
        ("output",),
        fill_value_constant_desc,
        lambda desc: fill_value_constant(3, sizes=desc.output.sizes, dtype=desc.output.dtype),
        of_value=lambda value: dmljax.fill_value_constant(value, output_sizes=(3, 4)),
    ),
    "FILL_VALUE_SEQUENCE": Case(
        ("output",),
        fill_value_sequence_desc,
        lambda desc: fill_value_sequence(
            desc.value_start.item, desc.value_delta.item, sizes=desc.output.sizes, dtype=desc.output.dtype
        ),
        of_value=lambda value: dmljax.fill_value_sequence(value, value, output_sizes=(3, 4)),
        is_exact=False,
    ),
    "RANDOM_GENERATOR": Case(
        ("output",),
        random_generator_desc,
        lambda desc, input_state: random_generator(input_state, sizes=desc.output.sizes),
    ),
}


# Refusals

LIKE = f32(2, 3)
DIAGONAL = directml.DiagonalMatrix1Desc(
    input=LIKE, output=LIKE, value_data_type=DataType.FLOAT32, value=7, diagonal_fill_begin=0, diagonal_fill_end=1
)
CONSTANT = directml.FillValueConstantDesc(output=f32(3), value_data_type=DataType.FLOAT32, value=3)
SEQUENCE = directml.FillValueSequenceDesc(
    output=tensor("UINT8", 1, 1, 1, 3), value_data_type=DataType.UINT8, value_start=10, value_delta=1
)
GENERATOR = directml.RandomGeneratorDesc(
    input_state=tensor("UINT32", 1, 1, 1, 6),
    output=tensor("UINT32", 1, 2, 1, 5),
    type=directml.RandomGeneratorType.PHILOX_4X32_10,
)

CALLS: dict[str, dict[str, Any]] = {
    "fill_value_constant": {"value": 1, "output_sizes": (2,)},
    "fill_value_sequence": {"value_start": 1, "value_delta": 1, "output_sizes": (2,)},
    "random_generator": {"input_state": np.zeros(6, np.uint32), "output_sizes": (2,)},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (DIAGONAL, {"input": tensor("INT32", 2, 3)}, "must have the same DataType; got INT32 and FLOAT32"),
    (DIAGONAL, {"input": f32(1, 2, 3)}, "must have the same DimensionCount; got 3 and 2"),
    (DIAGONAL, {"input": f32(3, 2)}, "must have the same Sizes; got {3,2} and {2,3}"),
    (DIAGONAL, {"value_data_type": "INT32", "value": 7}, "ValueDataType must be FLOAT32; got INT32"),
    (DIAGONAL, {"output": f32(3), "input": None}, "OutputTensor.DimensionCount must be 2 to 4; got 1"),
    (CONSTANT, {"value_data_type": "INT8", "value": 3}, "ValueDataType must be FLOAT32; got INT8"),
    (SEQUENCE, {"output": tensor("INT8", 3)}, "ValueDataType must be INT8; got UINT8"),
    (GENERATOR, {"input_state": tensor("UINT32", 1, 1, 6, 1)}, "InputStateTensor.Sizes must be {1,1,1,6}; got"),
    (GENERATOR, {"output_state": tensor("UINT32", 1, 1, 1, 4)}, "OutputStateTensor must have the same Sizes; got"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("fill_value_constant", {"value": 300, "dtype": "uint8"}, InvalidDesc, "value must be a whole number in [0, 255]"),
    ("fill_value_constant", {"value": 0.5, "dtype": "int32"}, InvalidDesc, "value must be a whole number"),
    ("fill_value_constant", {"output_sizes": (2, -1)}, InvalidDesc, "output_sizes[1] must be"),
    ("fill_value_constant", {"value": np.ones(2)}, InvalidDesc, "value must be a scalar"),
    (
        "fill_value_sequence",
        {"value_start": True},
        InvalidType,
        "value_start must be of an integer or floating ...; got bool",
    ),
    (
        "fill_value_sequence",
        {"value_start": np.int32(3), "value_delta": 0.5},
        InvalidDesc,
        "value_delta must be a whole number",
    ),
    ("fill_value_sequence", {"value_delta": np.ones(2)}, InvalidDesc, "value_delta must be a scalar"),
    ("fill_value_sequence", {"value_start": 10**400, "dtype": "float32"}, InvalidDesc, "value_start must fit float32"),
    ("fill_value_sequence", {"output_sizes": (2, -1)}, InvalidDesc, "output_sizes[1] must be"),
    (
        "fill_value_sequence",
        {"output_sizes": (2**16, 2**16)},
        InvalidDesc,
        "must have at most 4294967295 elements; got 429",
    ),
    (
        "fill_value_sequence",
        {"dtype": "bool"},
        InvalidType,
        "value_start must be of an integer or floating type; got bool",
    ),
    (
        "random_generator",
        {"input_state": np.zeros(6, np.int32)},
        InvalidType,
        "input_state must be of uint32; got int32",
    ),
    (
        "random_generator",
        {"input_state": np.zeros(6, np.float32)},
        InvalidType,
        "input_state must be of an integer type; got float32",
    ),
    (
        "random_generator",
        {"input_state": np.zeros(4, np.uint32)},
        InvalidDesc,
        "input_state must have shape (6,); got shape (4,)",
    ),
    (
        "random_generator",
        {"input_state": np.zeros((2, 6), np.uint32)},
        InvalidDesc,
        "input_state must have shape (6,); got shape (2, 6)",
    ),
    ("random_generator", {"output_sizes": (2, -1)}, InvalidDesc, "output_sizes[1] must be"),
    (
        "random_generator",
        {"output_sizes": (2**16, 2**16)},
        InvalidDesc,
        "output_sizes must have at most 4294967295 elements; got 429",
    ),
]
