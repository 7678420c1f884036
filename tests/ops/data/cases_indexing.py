"""ONE_HOT and NONZERO_COORDINATES: the pages' tables, members and pseudo-code, and cases."""

from collections.abc import Mapping

import numpy as np
from cases import Case, ones
from formulas import Arr, bits_of, number
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
