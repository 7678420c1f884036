"""DIAGONAL_MATRIX, DIAGONAL_MATRIX1 and FILL_VALUE_CONSTANT: the pages' tables, members and pseudo-code, and cases."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cases import Case, ones
from formulas import Arr, bits_of
from pages import ALL, UP_TO_32, merge, of_all

import dmljax
from dmljax import DataType, TensorDesc

SUPPORT = merge(
    of_all(
        "DIAGONAL_MATRIX",
        {
            "2_0": [("OutputTensor", 4, 4, "FLOAT32 FLOAT16")],
            "2_1": [("OutputTensor", 4, 4, UP_TO_32)],
            "4_0": [("OutputTensor", 2, 4, UP_TO_32)],
            "5_1": [("OutputTensor", 2, 4, ALL)],
        },
    ),
    of_all(
        "DIAGONAL_MATRIX1",
        {
            "5_1": [("InputTensor", 2, 4, ALL), ("OutputTensor", 2, 4, ALL)],
        },
    ),
    of_all(
        "FILL_VALUE_CONSTANT",
        {
            "2_1": [("OutputTensor", 4, 4, UP_TO_32)],
            "4_0": [("OutputTensor", 1, 8, UP_TO_32)],
            "4_1": [("OutputTensor", 1, 8, ALL)],
        },
    ),
)

MEMBERS = merge(
    of_all("DIAGONAL_MATRIX", "OutputTensor Offset Value"),
    of_all("DIAGONAL_MATRIX1", "InputTensor OutputTensor ValueDataType Value DiagonalFillBegin DiagonalFillEnd"),
    of_all("FILL_VALUE_CONSTANT", "OutputTensor ValueDataType Value"),
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


# Descriptors


def diagonal_matrix_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    return dmljax.DiagonalMatrixDesc(output=TensorDesc(types["output"], ones(rank, 2, 3, 4)), offset=1, value=3.0)


def diagonal_matrix1_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 2, 3, 4))
    return dmljax.DiagonalMatrix1Desc(
        input=tensor,
        output=tensor,
        value_data_type=types["input"],
        value=3,
        diagonal_fill_begin=1,
        diagonal_fill_end=-1,
    )


def fill_value_constant_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    output = TensorDesc(types["output"], ones(rank, 2, 3, 4))
    return dmljax.FillValueConstantDesc(output=output, value_data_type=types["output"], value=3)


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
}
