"""ONE_HOT, NONZERO_COORDINATES and GATHER_ND: the pages' tables, members and pseudo-code, and cases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, ones
from formulas import Arr, bits_of, number
from pages import ALL, INDICES, UP_TO_32, merge, of_all

import dmljax
from dmljax import DataType, TensorDesc

SUPPORT = merge(
    of_all(
        "ONE_HOT",
        {
            "2_0": [
                ("IndicesTensor", 4, 4, "UINT32"),
                ("ValuesTensor", 4, 4, "FLOAT32 FLOAT16"),
                ("OutputTensor", 4, 4, "FLOAT32 FLOAT16"),
            ],
            "2_1": [
                ("IndicesTensor", 4, 4, "UINT32"),
                ("ValuesTensor", 4, 4, UP_TO_32),
                ("OutputTensor", 4, 4, UP_TO_32),
            ],
            "3_0": [
                ("IndicesTensor", 1, 8, INDICES),
                ("ValuesTensor", 1, 8, UP_TO_32),
                ("OutputTensor", 1, 8, UP_TO_32),
            ],
            "4_1": [
                ("IndicesTensor", 1, 8, INDICES),
                ("ValuesTensor", 1, 8, ALL),
                ("OutputTensor", 1, 8, ALL),
            ],
        },
    ),
    of_all(
        "NONZERO_COORDINATES",
        {
            "3_0": [
                ("InputTensor", 4, 5, UP_TO_32),
                ("OutputCountTensor", 4, 5, "UINT32"),
                ("OutputCoordinatesTensor", 4, 5, "UINT32"),
            ],
            "4_0": [
                ("InputTensor", 1, 8, UP_TO_32),
                ("OutputCountTensor", 1, 8, "UINT32"),
                ("OutputCoordinatesTensor", 2, 8, "UINT32"),
            ],
        },
    ),
    of_all(
        "GATHER_ND",
        {
            "2_1": [
                ("InputTensor", 4, 4, UP_TO_32),
                ("IndicesTensor", 4, 4, "UINT32"),
                ("OutputTensor", 4, 4, UP_TO_32),
            ],
            "3_0": [
                ("InputTensor", 1, 8, UP_TO_32),
                ("IndicesTensor", 1, 8, INDICES),
                ("OutputTensor", 1, 8, UP_TO_32),
            ],
            "4_1": [
                ("InputTensor", 1, 8, ALL),
                ("IndicesTensor", 1, 8, INDICES),
                ("OutputTensor", 1, 8, ALL),
            ],
        },
    ),
    of_all(
        "GATHER_ND1",
        {
            "3_0": [
                ("InputTensor", 1, 8, UP_TO_32),
                ("IndicesTensor", 1, 8, INDICES),
                ("OutputTensor", 1, 8, UP_TO_32),
            ],
            "4_1": [
                ("InputTensor", 1, 8, ALL),
                ("IndicesTensor", 1, 8, INDICES),
                ("OutputTensor", 1, 8, ALL),
            ],
        },
    ),
)

MEMBERS = merge(
    of_all("ONE_HOT", "IndicesTensor ValuesTensor OutputTensor Axis"),
    of_all("NONZERO_COORDINATES", "InputTensor OutputCountTensor OutputCoordinatesTensor"),
    of_all("GATHER_ND", "InputTensor IndicesTensor OutputTensor InputDimensionCount IndicesDimensionCount"),
    of_all(
        "GATHER_ND1",
        "InputTensor IndicesTensor OutputTensor InputDimensionCount IndicesDimensionCount BatchDimensionCount",
    ),
)

# Pseudo-code


def one_hot(indices: Arr, values: Arr, *, axis: int, depth: int) -> Arr:
    flat = bits_of(values).reshape(-1)
    off_value, on_value = flat[0], flat[1]
    sizes = list(indices.shape)
    sizes[axis] = depth
    output = np.empty(sizes, flat.dtype)
    for coordinate in np.ndindex(*sizes):
        sequence = list(coordinate)
        sequence[axis] = 0
        index = int(indices[tuple(sequence)])
        if index < 0:
            index += depth
        output[coordinate] = on_value if coordinate[axis] == index else off_value
    return output.view(values.dtype)


def nonzero_coordinates(
    input: Arr, *, size: int | None = None, columns: int | None = None, fill_value: int = 0
) -> tuple[Arr, Arr]:
    shape = input.shape or (1,)
    columns = columns or len(shape)
    found = [list(c)[-columns:] for c in np.ndindex(*shape) if number(input.reshape(shape)[c]) != 0]
    coordinates = np.full((input.size if size is None else size, columns), fill_value, np.uint32)
    for row, coordinate in zip(coordinates, found, strict=False):
        row[...] = coordinate
    return np.array(len(found), np.uint32), coordinates


def gather_nd1(input: Arr, indices: Arr, *, batch_dimension_count: int = 0) -> Arr:
    batch, tuple_size = batch_dimension_count, indices.shape[-1]
    source = bits_of(input)
    output = np.empty(indices.shape[:-1] + input.shape[batch + tuple_size :], source.dtype)
    for place in np.ndindex(*indices.shape[:-1]):
        start = []
        for axis in range(tuple_size):
            size = input.shape[batch + axis]
            index = int(indices[place][axis])
            index = index + size if index < 0 else index
            start.append(min(max(index, 0), size - 1))
        output[place] = source[(*place[:batch], *start)]
    return output.view(input.dtype)


# Descriptors


def one_hot_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    return dmljax.OneHotDesc(
        indices=TensorDesc(types["indices"], ones(rank, 2, 3, 1)),
        values=TensorDesc(types["values"], ones(rank, 3)),
        output=TensorDesc(types["values"], ones(rank, 2, 3, 4)),
        axis=rank - 1,
    )


def nonzero_coordinates_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    input = TensorDesc(types["input"], ones(rank, 3, 4))
    coordinates = ones(max(rank, 2), input.element_count, rank)
    return dmljax.NonzeroCoordinatesDesc(
        input=input,
        output_count=TensorDesc(DataType.UINT32, ones(rank)),
        output_coordinates=TensorDesc(DataType.UINT32, coordinates),
    )


def gather_nd_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    return dmljax.GatherNdDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        indices=TensorDesc(types["indices"], ones(rank, 2, 1)),
        output=TensorDesc(types["input"], ones(rank, 2, 4) if rank > 1 else (1,)),
        input_dimension_count=min(rank, 2),
        indices_dimension_count=min(rank, 2),
    )


def gather_nd1_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    if rank == 1:
        return dmljax.GatherNd1Desc(
            input=TensorDesc(types["input"], (4,)),
            indices=TensorDesc(types["indices"], (1,)),
            output=TensorDesc(types["input"], (1,)),
            input_dimension_count=1,
            indices_dimension_count=1,
            batch_dimension_count=0,
        )
    return dmljax.GatherNd1Desc(
        input=TensorDesc(types["input"], ones(rank, 2, 3)),
        indices=TensorDesc(types["indices"], ones(rank, 2, 1)),
        output=TensorDesc(types["input"], ones(rank, 2)),
        input_dimension_count=2,
        indices_dimension_count=2,
        batch_dimension_count=1,
    )


def gather_oracle(desc: Any, input: Any, indices: Any) -> Any:
    return gather_nd1(
        input.reshape(input.shape[input.ndim - desc.input_dimension_count :]),
        indices.reshape(indices.shape[indices.ndim - desc.indices_dimension_count :]),
        batch_dimension_count=getattr(desc, "batch_dimension_count", 0),
    )


CASES = {
    "ONE_HOT": Case(
        ("indices", "values"),
        one_hot_desc,
        lambda desc, indices, values: one_hot(indices, values, axis=desc.axis, depth=desc.output.sizes[desc.axis]),
        {"indices": 4},
    ),
    "NONZERO_COORDINATES": Case(
        ("input",),
        nonzero_coordinates_desc,
        lambda desc, input: nonzero_coordinates(input, columns=desc.output_coordinates.sizes[-1]),
    ),
    "GATHER_ND": Case(("input", "indices"), gather_nd_desc, gather_oracle, {"indices": 3}),
    "GATHER_ND1": Case(("input", "indices"), gather_nd1_desc, gather_oracle, {"indices": 3}),
}
