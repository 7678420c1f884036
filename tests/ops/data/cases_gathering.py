"""GATHER, SCATTER, their kin and REVERSE_SUBSEQUENCES: the pages' tables, members and pseudo-code, and cases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, bits_of
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

SUPPORT = tables(
    """
    GATHER: InputTensor OutputTensor; IndicesTensor
        1_0 4 FLOATS; 4 UINT32
        2_1 4 UP_TO_32; 4 UINT32
        3_0 1-8 UP_TO_32; 1-8 INDICES
        4_1 1-8 ALL; 1-8 INDICES
    GATHER_ELEMENTS GATHER_ND: InputTensor OutputTensor; IndicesTensor
        2_1 4 UP_TO_32; 4 UINT32
        3_0 1-8 UP_TO_32; 1-8 INDICES
        4_1 1-8 ALL; 1-8 INDICES
    GATHER_ND1: InputTensor OutputTensor; IndicesTensor
        3_0 1-8 UP_TO_32; 1-8 INDICES
        4_1 1-8 ALL; 1-8 INDICES
    SCATTER: InputTensor UpdatesTensor OutputTensor; IndicesTensor
        1_0 4 FLOATS; 4 UINT32
        2_1 4 UP_TO_32; 4 UINT32
        3_0 1-8 UP_TO_32; 1-8 INDICES
        4_1 1-8 ALL; 1-8 INDICES
    SCATTER_ND: InputTensor UpdatesTensor OutputTensor; IndicesTensor
        2_1 4 UP_TO_32; 4 UINT32
        3_0 1-8 UP_TO_32; 1-8 INDICES
        4_1 1-8 ALL; 1-8 INDICES
    REVERSE_SUBSEQUENCES: InputTensor OutputTensor; SequenceLengthsTensor
        2_1 4 UP_TO_32; 4 UINT32
        3_0 4-5 UP_TO_32; 4-5 UINT32
        4_0 1-8 UP_TO_32; 1-8 UINT32
        5_0 1-8 ALL; 1-8 UINT64 UINT32
    """
)

MEMBERS = merge(
    of_all("GATHER", "InputTensor IndicesTensor OutputTensor Axis IndexDimensions"),
    of_all("GATHER_ELEMENTS", "InputTensor IndicesTensor OutputTensor Axis"),
    of_all("GATHER_ND", "InputTensor IndicesTensor OutputTensor InputDimensionCount IndicesDimensionCount"),
    of_all(
        "GATHER_ND1",
        "InputTensor IndicesTensor OutputTensor InputDimensionCount IndicesDimensionCount BatchDimensionCount",
    ),
    of_all("SCATTER", "InputTensor IndicesTensor UpdatesTensor OutputTensor Axis"),
    of_all(
        "SCATTER_ND",
        "InputTensor IndicesTensor UpdatesTensor OutputTensor InputDimensionCount IndicesDimensionCount",
    ),
    of_all("REVERSE_SUBSEQUENCES", "InputTensor SequenceLengthsTensor OutputTensor Axis"),
)

# Pseudo-code


def from_start(index: Any, size: int) -> int:
    return int(index) + size if index < 0 else int(index)


def clamped(index: Any, size: int) -> int:
    return min(max(from_start(index, size), 0), size - 1)


def gather(input: Arr, indices: Arr, *, axis: int) -> Arr:
    source = bits_of(input)
    output = np.empty(input.shape[:axis] + indices.shape + input.shape[axis + 1 :], source.dtype)
    for place in np.ndindex(*output.shape):
        before, inside, after = place[:axis], place[axis : axis + indices.ndim], place[axis + indices.ndim :]
        output[place] = source[(*before, clamped(indices[inside], input.shape[axis]), *after)]
    return output.view(input.dtype)


def gather_elements(input: Arr, indices: Arr, *, axis: int) -> Arr:
    source = bits_of(input)
    output = np.empty(indices.shape, source.dtype)
    for place in np.ndindex(*indices.shape):
        index = clamped(indices[place], input.shape[axis])
        output[place] = source[(*place[:axis], index, *place[axis + 1 :])]
    return output.view(input.dtype)


def gather_nd1(input: Arr, indices: Arr, *, batch_dimension_count: int = 0) -> Arr:
    batch, tuple_size = batch_dimension_count, indices.shape[-1]
    source = bits_of(input)
    output = np.empty(indices.shape[:-1] + input.shape[batch + tuple_size :], source.dtype)
    for place in np.ndindex(*indices.shape[:-1]):
        start = []
        for axis in range(tuple_size):
            start.append(clamped(indices[place][axis], input.shape[batch + axis]))
        output[place] = source[(*place[:batch], *start)]
    return output.view(input.dtype)


def scatter(input: Arr, indices: Arr, updates: Arr, *, axis: int) -> Arr:
    output, source = bits_of(input).copy(), bits_of(updates)
    for place in np.ndindex(*indices.shape):
        index = from_start(indices[place], input.shape[axis])
        if 0 <= index < input.shape[axis]:
            output[(*place[:axis], index, *place[axis + 1 :])] = source[place]
    return output.view(input.dtype)


def scatter_nd(input: Arr, indices: Arr, updates: Arr) -> Arr:
    output, source = bits_of(input).copy(), bits_of(updates)
    for place in np.ndindex(*indices.shape[:-1]):
        start = tuple(from_start(index, size) for index, size in zip(indices[place], input.shape, strict=False))
        if all(0 <= index < size for index, size in zip(start, input.shape, strict=False)):
            output[start] = source[place]
    return output.view(input.dtype)


def reverse_subsequences(input: Arr, sequence_lengths: Arr, *, axis: int) -> Arr:
    source = bits_of(input)
    output = source.copy()
    for place in np.ndindex(*input.shape):
        length = min(int(sequence_lengths[(*place[:axis], 0, *place[axis + 1 :])]), input.shape[axis])
        if place[axis] < length:
            output[place] = source[(*place[:axis], length - 1 - place[axis], *place[axis + 1 :])]
    return output.view(input.dtype)


# Descriptors


def gather_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.GatherDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        indices=TensorDesc(types["indices"], ones(rank, 5)),
        output=TensorDesc(types["input"], ones(rank, 3, 5)),
        axis=rank - 1,
        index_dimensions=1,
    )


def gather_elements_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.GatherElementsDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        indices=TensorDesc(types["indices"], ones(rank, 3, 5)),
        output=TensorDesc(types["input"], ones(rank, 3, 5)),
        axis=rank - 1,
    )


def scatter_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.ScatterDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        indices=TensorDesc(types["indices"], ones(rank, 3, 6)),
        updates=TensorDesc(types["input"], ones(rank, 3, 6)),
        output=TensorDesc(types["input"], ones(rank, 3, 4)),
        axis=rank - 1,
    )


def scatter_nd_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.ScatterNdDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        indices=TensorDesc(types["indices"], ones(rank, 5, 1)),
        updates=TensorDesc(types["input"], ones(rank, 5, 4) if rank > 1 else (1,)),
        output=TensorDesc(types["input"], ones(rank, 3, 4)),
        input_dimension_count=min(rank, 2),
        indices_dimension_count=min(rank, 2),
    )


def reverse_subsequences_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.ReverseSubsequencesDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 5)),
        sequence_lengths=TensorDesc(types["sequence_lengths"], ones(rank, 3, 1)),
        output=TensorDesc(types["input"], ones(rank, 3, 5)),
        axis=rank - 1,
    )


def gather_nd_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.GatherNdDesc(
        input=TensorDesc(types["input"], ones(rank, 3, 4)),
        indices=TensorDesc(types["indices"], ones(rank, 2, 1)),
        output=TensorDesc(types["input"], ones(rank, 2, 4) if rank > 1 else (1,)),
        input_dimension_count=min(rank, 2),
        indices_dimension_count=min(rank, 2),
    )


def gather_nd1_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    if rank == 1:
        return directml.GatherNd1Desc(
            input=TensorDesc(types["input"], (4,)),
            indices=TensorDesc(types["indices"], (1,)),
            output=TensorDesc(types["input"], (1,)),
            input_dimension_count=1,
            indices_dimension_count=1,
            batch_dimension_count=0,
        )
    return directml.GatherNd1Desc(
        input=TensorDesc(types["input"], ones(rank, 2, 3)),
        indices=TensorDesc(types["indices"], ones(rank, 2, 1)),
        output=TensorDesc(types["input"], ones(rank, 2)),
        input_dimension_count=2,
        indices_dimension_count=2,
        batch_dimension_count=1,
    )


def gather_tuples(desc: Any, input: Any, indices: Any) -> Any:
    return gather_nd1(
        input.reshape(input.shape[input.ndim - desc.input_dimension_count :]),
        indices.reshape(indices.shape[indices.ndim - desc.indices_dimension_count :]),
        batch_dimension_count=getattr(desc, "batch_dimension_count", 0),
    )


def gather_blocks(desc: Any, input: Any, indices: Any) -> Any:
    natural = indices.reshape(indices.shape[indices.ndim - desc.index_dimensions :])
    return gather(input, natural, axis=desc.axis)


def scatter_tuples(desc: Any, input: Any, indices: Any, updates: Any) -> Any:
    input = input.reshape(input.shape[input.ndim - desc.input_dimension_count :])
    indices = indices.reshape(indices.shape[indices.ndim - desc.indices_dimension_count :])
    return scatter_nd(input, indices, updates.reshape(indices.shape[:-1] + input.shape[indices.shape[-1] :]))


CASES = {
    "GATHER": Case(("input", "indices"), gather_desc, gather_blocks, {"indices": 4}),
    "GATHER_ELEMENTS": Case(
        ("input", "indices"),
        gather_elements_desc,
        lambda desc, input, indices: gather_elements(input, indices, axis=desc.axis),
        {"indices": 4},
    ),
    "GATHER_ND": Case(("input", "indices"), gather_nd_desc, gather_tuples, {"indices": 3}),
    "GATHER_ND1": Case(("input", "indices"), gather_nd1_desc, gather_tuples, {"indices": 3}),
    "SCATTER": Case(
        ("input", "indices"),
        scatter_desc,
        lambda desc, input, indices, updates: scatter(input, indices, updates, axis=desc.axis),
        {"indices": 4},
    ),
    "SCATTER_ND": Case(("input", "indices"), scatter_nd_desc, scatter_tuples, {"indices": 3}),
    "REVERSE_SUBSEQUENCES": Case(
        ("input", "sequence_lengths"),
        reverse_subsequences_desc,
        lambda desc, input, sequence_lengths: reverse_subsequences(input, sequence_lengths, axis=desc.axis),
        {"sequence_lengths": 5},
    ),
}


# Refusals

BLOCKS = directml.GatherDesc(
    input=f32(1, 3, 4), indices=tensor("INT32", 1, 2, 5), output=f32(3, 2, 5), axis=2, index_dimensions=2
)
ELEMENTS = directml.GatherElementsDesc(input=f32(3, 4), indices=tensor("INT32", 3, 5), output=f32(3, 5), axis=1)
TUPLES = directml.GatherNd1Desc(
    input=f32(1, 3, 2, 5),
    indices=tensor("INT32", 1, 3, 4, 1),
    output=f32(1, 3, 4, 5),
    input_dimension_count=3,
    indices_dimension_count=3,
    batch_dimension_count=1,
)
SCATTER = directml.ScatterDesc(
    input=f32(3, 4), indices=tensor("INT32", 3, 5), updates=f32(3, 5), output=f32(3, 4), axis=1
)
SCATTER_ND = directml.ScatterNdDesc(
    input=f32(1, 3, 2, 5),
    indices=tensor("INT32", 1, 1, 4, 2),
    updates=f32(1, 1, 4, 5),
    output=f32(1, 3, 2, 5),
    input_dimension_count=3,
    indices_dimension_count=2,
)
REVERSE = directml.ReverseSubsequencesDesc(
    input=f32(2, 3, 4), sequence_lengths=tensor("UINT32", 2, 1, 4), output=f32(2, 3, 4), axis=1
)

ROWS, COLUMN, NONE = np.zeros((2, 3), np.float32), np.zeros((2, 1), np.int32), np.zeros((2, 0), np.float32)

CALLS: dict[str, dict[str, Any]] = {
    "gather": {"input": ROWS, "indices": COLUMN, "axis": 0},
    "gather_elements": {"input": ROWS, "indices": COLUMN, "axis": 1},
    "gather_nd1": {"input": ROWS, "indices": COLUMN},
    "scatter": {"input": ROWS, "indices": COLUMN, "updates": ROWS[:, :1], "axis": 1},
    "scatter_nd": {"input": ROWS, "indices": COLUMN, "updates": ROWS},
    "reverse_subsequences": {"input": ROWS, "sequence_lengths": COLUMN, "axis": 1},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (BLOCKS, {"output": f32(3, 10)}, "must have the same DimensionCount; got 3, 3 and 2"),
    (BLOCKS, {"output": tensor("FLOAT16", 3, 2, 5)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (BLOCKS, {"axis": 3}, "Axis must be less than 3; got 3"),
    (BLOCKS, {"index_dimensions": 4}, "IndexDimensions must be in [0, 3]; got 4"),
    (BLOCKS, {"index_dimensions": 1}, "IndicesTensor.Sizes must be 1 before the last 1; got {1,2,5}"),
    (BLOCKS, {"index_dimensions": 3}, "must be at most 2, because OutputTensor has ... 3 dim...; got 3"),
    (BLOCKS, {"axis": 0}, "IndexDimensions must be at most 1, ...; got 2"),
    (BLOCKS, {"input": f32(2, 3, 4)}, "IndexDimensions must be at most 1, ...; got 2"),
    # The third example of the page
    (
        BLOCKS,
        {"input": f32(3, 2), "indices": tensor("UINT32", 1, 2), "output": f32(3, 2), "axis": 1},
        "IndexDimensions must be at most 1, ... 2 dimensions; got 2",
    ),
    (BLOCKS, {"axis": 1}, "OutputTensor.Sizes must be {2,5,4}; got {3,2,5}"),
    (ELEMENTS, {"indices": tensor("INT32", 1, 3, 5)}, "must have the same DimensionCount; got 3, 2 and 2"),
    (ELEMENTS, {"output": tensor("UINT32", 3, 5)}, "must have the same DataType; got FLOAT32 and UINT32"),
    (ELEMENTS, {"axis": 2}, "Axis must be less than 2; got 2"),
    (ELEMENTS, {"axis": 0}, "IndicesTensor.Sizes must be {3,4}; got {3,5}"),
    (ELEMENTS, {"output": f32(3, 4)}, "OutputTensor.Sizes must be {3,5}; got {3,4}"),
    (TUPLES, {"output": f32(3, 4, 5)}, "must have the same DimensionCount; got 4, 4 and 3"),
    (TUPLES, {"output": tensor("FLOAT16", 1, 3, 4, 5)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (TUPLES, {"output": f32(1, 3, 4, 1)}, "OutputTensor.Sizes must be {1,3,4,5}; got {1,3,4,1}"),
    (TUPLES, {"input_dimension_count": 0}, "InputDimensionCount must be in [1, 4]; got 0"),
    (TUPLES, {"indices_dimension_count": 5}, "IndicesDimensionCount must be in [1, 4]; got 5"),
    (TUPLES, {"input_dimension_count": 2}, "InputTensor.Sizes must be 1 before the last 2; got {1,3,2,5}"),
    (TUPLES, {"batch_dimension_count": 3}, "BatchDimensionCount must be in [0, 3); got 3"),
    (TUPLES, {"indices": tensor("INT32", 1, 2, 4, 1)}, "must have the same batch sizes; got {3} and {2}"),
    (TUPLES, {"indices": tensor("INT32", 1, 3, 4, 3)}, "must hold tuples of 1 to 2 coordinates; got 3"),
    (SCATTER, {"updates": f32(5)}, "must have the same DimensionCount; got 2, 2, 2 and 1"),
    (SCATTER, {"updates": tensor("FLOAT16", 3, 5)}, "must have the same DataType; got FLOAT32, FLOAT32 and FLO"),
    (SCATTER, {"axis": 2}, "Axis must be less than 2; got 2"),
    (SCATTER, {"axis": 0}, "IndicesTensor.Sizes must be {3,4}; got {3,5}"),
    (SCATTER, {"updates": f32(3, 4)}, "UpdatesTensor.Sizes must be {3,5}; got {3,4}"),
    (SCATTER, {"output": f32(3, 5)}, "OutputTensor.Sizes must be {3,4}; got {3,5}"),
    (SCATTER_ND, {"updates": f32(4, 5)}, "must have the same DimensionCount; got 4, 4, 4 and 2"),
    (SCATTER_ND, {"updates": tensor("FLOAT16", 1, 1, 4, 5)}, "must have the same DataType; got FLOAT32, FLOAT32"),
    (SCATTER_ND, {"input_dimension_count": 5}, "InputDimensionCount must be in [1, 4]; got 5"),
    (SCATTER_ND, {"indices_dimension_count": 0}, "IndicesDimensionCount must be in [1, 4]; got 0"),
    (SCATTER_ND, {"input_dimension_count": 2}, "InputTensor.Sizes must be 1 before the last 2; got {1,3,2,5}"),
    (SCATTER_ND, {"indices": tensor("INT32", 1, 1, 4, 4)}, "must hold tuples of 1 to 3 coordinates; got 4"),
    (SCATTER_ND, {"updates": f32(1, 4, 2, 5)}, "UpdatesTensor.Sizes must be {1,1,4,5}; got {1,4,2"),
    (SCATTER_ND, {"output": f32(1, 1, 4, 5)}, "OutputTensor.Sizes must be {1,3,2,5}; got"),
    (REVERSE, {"sequence_lengths": tensor("UINT32", 2, 4)}, "must have the same DimensionCount; got 3, 3 and 2"),
    (REVERSE, {"output": tensor("FLOAT16", 2, 3, 4)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (REVERSE, {"output": f32(2, 3, 5)}, "OutputTensor.Sizes must be {2,3,4}; got {2,3,5}"),
    (REVERSE, {"axis": 3}, "Axis must be less than 3; got 3"),
    (REVERSE, {"axis": 2}, "SequenceLengthsTensor.Sizes must be {2,3,1}; got {2,1,4}"),
    (REVERSE, {"sequence_lengths": tensor("INT32", 2, 1, 4)}, "must be one of UINT32, UINT64; got INT32"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("gather", {"indices": ROWS}, InvalidType, "indices must be of an integer type; got float"),
    ("gather", {"axis": 2}, InvalidDesc, "axis must be in [-2, 2); got 2"),
    ("gather", {"input": np.array(1)}, InvalidDesc, "input must have at least 1 dimension; got 0"),
    ("gather", {"input": NONE, "axis": 1}, InvalidDesc, "input must have elements to gather; got shape (2, 0)"),
    ("gather_elements", {"input": NONE}, InvalidDesc, "input must have elements to gather; got shape (2, 0)"),
    ("gather_elements", {"indices": ROWS > 0}, InvalidType, "indices must be ... integer ...; got bool"),
    ("gather_nd1", {"indices": ROWS}, InvalidType, "indices must be of an integer type; got float"),
    ("gather_nd1", {"indices": np.array(1)}, InvalidDesc, "indices must have at least 1 dimension; got 0"),
    ("gather_nd1", {"indices": np.zeros((2, 0), int)}, InvalidDesc, "1 to 2 coordinates; got 0"),
    (
        "gather_nd1",
        {"indices": np.zeros((2, 2), int), "batch_dimension_count": 1},
        InvalidDesc,
        "1 to 1 coordinates; got 2",
    ),
    ("gather_nd1", {"batch_dimension_count": -1}, InvalidDesc, "batch_dimension_count must be in"),
    ("gather_nd1", {"input": np.zeros((0, 3))}, InvalidDesc, "must have elements to gather; got shape (0, 3)"),
    ("scatter", {"updates": COLUMN}, InvalidType, f"updates must be of {ROWS.dtype}, as input is; got int"),
    ("scatter_nd", {"updates": ROWS > 0}, InvalidType, f"must be of {ROWS.dtype}, as input is; got bool"),
    ("reverse_subsequences", {"sequence_lengths": ROWS[:, :1]}, InvalidType, "of an integer type; got float"),
]
