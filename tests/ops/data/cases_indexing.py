"""ONE_HOT and NONZERO_COORDINATES: the pages' tables, members and pseudo-code, and cases."""

from collections.abc import Mapping

import numpy as np
from cases import Case, RefusedDesc, ones
from formulas import Arr, bits_of, number
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, TensorDesc

SUPPORT = tables(
    """
    ONE_HOT: IndicesTensor; ValuesTensor OutputTensor
        2_0 4 UINT32; 4 FLOATS
        2_1 4 UINT32; 4 UP_TO_32
        3_0 1-8 INDICES; 1-8 UP_TO_32
        4_1 1-8 INDICES; 1-8 ALL
    NONZERO_COORDINATES: InputTensor; OutputCountTensor; OutputCoordinatesTensor
        3_0 4-5 UP_TO_32; 4-5 UINT32; 4-5 UINT32
        4_0 1-8 UP_TO_32; 1-8 UINT32; 2-8 UINT32
    """
)

MEMBERS = merge(
    of_all("ONE_HOT", "IndicesTensor ValuesTensor OutputTensor Axis"),
    of_all("NONZERO_COORDINATES", "InputTensor OutputCountTensor OutputCoordinatesTensor"),
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
    nonzero = [list(c)[-columns:] for c in np.ndindex(*shape) if number(input.reshape(shape)[c]) != 0]
    coordinates = np.full((input.size if size is None else size, columns), fill_value, np.uint32)
    for row, coordinate in zip(coordinates, nonzero, strict=False):
        row[...] = coordinate
    return np.array(len(nonzero), np.uint32), coordinates


# Descriptors


def one_hot_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.OneHotDesc(
        indices=TensorDesc(types["indices"], ones(rank, 2, 3, 1)),
        values=TensorDesc(types["values"], ones(rank, 3)),
        output=TensorDesc(types["values"], ones(rank, 2, 3, 4)),
        axis=rank - 1,
    )


def nonzero_coordinates_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    input = TensorDesc(types["input"], ones(rank, 3, 4))
    coordinates = ones(max(rank, 2), input.element_count, rank)
    return directml.NonzeroCoordinatesDesc(
        input=input,
        output_count=TensorDesc(DataType.UINT32, ones(rank)),
        output_coordinates=TensorDesc(DataType.UINT32, coordinates),
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
}


# Refusals

ONE_HOT = directml.OneHotDesc(indices=tensor("UINT32", 2, 1, 4), values=f32(1, 1, 2), output=f32(2, 3, 4), axis=1)
NONZERO = directml.NonzeroCoordinatesDesc(
    input=f32(1, 1, 2, 3), output_count=tensor("UINT32", 1, 1, 1, 1), output_coordinates=tensor("UINT32", 1, 1, 6, 2)
)

REFUSED_DESCS: list[RefusedDesc] = [
    (ONE_HOT, {"values": f32(1, 2)}, "must have the same DimensionCount; got 3, 2 and 3"),
    (ONE_HOT, {"values": tensor("FLOAT16", 1, 1, 2)}, "ValuesTensor and OutputTensor must have the same DataType"),
    (ONE_HOT, {"axis": 3}, "Axis must be less than 3; got 3"),
    (ONE_HOT, {"axis": 2}, "IndicesTensor.Sizes must be {2,1,1}; got {2,1,4}"),
    (ONE_HOT, {"indices": tensor("UINT32", 2, 2, 4)}, "IndicesTensor.Sizes must be {2,1,4}; got {2,2,4}"),
    (ONE_HOT, {"indices": tensor("UINT32", 1, 1, 4)}, "OutputTensor.Sizes must be {1,3,4}; got {2,3,4}"),
    (ONE_HOT, {"values": f32(1, 1, 1)}, "ValuesTensor must have at least 2 elements; got 1"),
    (ONE_HOT, {"indices": tensor("UINT8", 2, 1, 4)}, "IndicesTensor.DataType must be one of ...; got UINT8"),
    (ONE_HOT, {"values": tensor("INT4", 1, 1, 2)}, "ValuesTensor.DataType must be one of ...; got INT4"),
    (
        NONZERO,
        {"output_count": tensor("UINT32", 1, 1, 1, 2)},
        "OutputCountTensor.Sizes must each be 1; got {1,1,1,2}",
    ),
    (NONZERO, {"output_coordinates": tensor("UINT32", 1, 2, 6, 2)}, "must be 1 before the last two; got {1,2}"),
    (NONZERO, {"output_coordinates": tensor("UINT32", 1, 1, 5, 2)}, "6 rows, one for each element; got 5"),
    (NONZERO, {"output_coordinates": tensor("UINT32", 1, 1, 6, 1)}, "must have 2 to 4 columns; got 1"),
    (NONZERO, {"output_coordinates": tensor("UINT32", 1, 1, 6, 5)}, "must have 2 to 4 columns; got 5"),
    (NONZERO, {"output_coordinates": tensor("INT32", 1, 1, 6, 2)}, "DataType must be UINT32; got INT32"),
    (NONZERO, {"output_coordinates": tensor("UINT32", 6)}, "Tensor.DimensionCount must be 2 to 8; got 1"),
]
