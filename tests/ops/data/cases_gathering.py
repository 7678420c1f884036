"""GATHER, SCATTER, their kin and REVERSE_SUBSEQUENCES: the pages' tables, members and pseudo-code, and cases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, ones
from formulas import Arr, bits_of
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, TensorDesc

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
