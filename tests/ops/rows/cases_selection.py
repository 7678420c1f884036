"""TOP_K and TOP_K1: the pages' tables and pseudo-code, and cases."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, bits_of
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import AxisDirection, DataType, InvalidDesc, InvalidType, TensorDesc

SUPPORT = tables(
    """
    TOP_K: InputTensor OutputValueTensor; OutputIndexTensor
        2_0 4 FLOATS; 4 UINT32
        2_1 4 UP_TO_32; 4 UINT32
        3_1 1-8 UP_TO_32; 1-8 UINT32
        5_0 1-8 UP_TO_64; 1-8 UINT64 UINT32
    TOP_K1: InputTensor OutputValueTensor; OutputIndexTensor
        2_1 4 UP_TO_32; 4 UINT32
        3_1 1-8 UP_TO_32; 1-8 UINT32
        5_0 1-8 UP_TO_64; 1-8 UINT64 UINT32
    """
)
MEMBERS = merge(
    of_all("TOP_K", "InputTensor OutputValueTensor OutputIndexTensor Axis K"),
    of_all("TOP_K1", "InputTensor OutputValueTensor OutputIndexTensor Axis K AxisDirection"),
)

# Pseudo-code: inserts one element after another into the order


def is_before(a: Any, b: Any, *, largest: bool) -> bool:
    """Whether `a` comes before `b`, an equal or another element with a lower index."""
    above, below = (a, b) if largest else (b, a)
    if np.isnan(below):
        return False
    return bool(np.isnan(above) or above > below)


def top_k(input: Arr, *, axis: int, k: int, largest: bool) -> tuple[Arr, Arr]:
    moved, bits = np.moveaxis(input, axis, -1), np.moveaxis(bits_of(input), axis, -1)
    values = np.empty((*moved.shape[:-1], k), bits.dtype)
    indices = np.empty(values.shape, np.int64)
    for place in np.ndindex(*moved.shape[:-1]):
        # float64 keeps the subnormals of every narrower float, and NumPy compares them correctly
        row = [x if input.dtype.kind in "iu" else np.float64(x) for x in moved[place]]
        order: list[int] = []
        for i, x in enumerate(row):
            rank = functools.reduce(lambda rank, j: rank - is_before(x, row[j], largest=largest), order, len(order))
            order.insert(rank, i)
        indices[place] = order[:k]
        values[place] = bits[place][order[:k]]
    return np.moveaxis(values, -1, axis).view(input.dtype), np.moveaxis(indices, -1, axis)


def case(operator: str) -> Case:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        sizes, selected = ones(rank, 2, 7), ones(rank, 2, 3)
        direction = {"axis_direction": AxisDirection(rank % 2)} if operator == "TOP_K1" else {}
        return directml.OPERATORS[f"DML_OPERATOR_{operator}"](
            input=TensorDesc(types["input"], sizes),
            output_value=TensorDesc(types["input"], selected),
            output_index=TensorDesc(types["output_index"], selected),
            axis=rank - 1,
            k=3,
            **direction,
        )

    def oracle(desc: Any, input: Arr) -> tuple[Arr, Arr]:
        direction = getattr(desc, "axis_direction", AxisDirection.DECREASING)
        return top_k(input, axis=desc.axis, k=desc.k, largest=direction is AxisDirection.DECREASING)

    return Case(("input", "output_index"), make, oracle)


CASES = {operator: case(operator) for operator in ("TOP_K", "TOP_K1")}


# Refusals


TENSORS: dict[str, Any] = {
    "input": f32(1, 1, 2, 3),
    "output_value": f32(1, 1, 2, 2),
    "output_index": tensor("UINT32", 1, 1, 2, 2),
}
TOP_K = directml.TopKDesc(**TENSORS, axis=3, k=2)
TOP_K1 = directml.TopK1Desc(**TENSORS, axis=3, k=2, axis_direction=AxisDirection.DECREASING)

CALLS: dict[str, dict[str, Any]] = {
    name: {"input": np.ones((2, 3), np.float32), "axis": 1, "k": 1} for name in ("top_k", "top_k1")
}

BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    ({"axis": 4}, "Axis must be less than 4; got 4"),
    ({"k": 0}, "K must be in [1, 3], the size of InputTensor along axis 3; got 0"),
    ({"k": 4}, "K must be in [1, 3], the size of InputTensor along axis 3; got 4"),
    ({"output_value": f32(1, 1, 2, 3)}, "OutputValueTensor.Sizes must be {1,1,2,2}; got {1,1,2,3}"),
    ({"output_index": tensor("UINT32", 2, 2)}, "must have the same DimensionCount; got 4, 4 and 2"),
    ({"output_value": tensor("FLOAT16", 1, 1, 2, 2)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    ({"output_index": tensor("INT32", 1, 1, 2, 2)}, "DataType must be one of UINT32, UINT64; got INT32"),
]
REFUSED_DESCS: list[RefusedDesc] = [(desc, *row) for desc in (TOP_K, TOP_K1) for row in BROKEN_RULES]

REFUSED_CALLS: list[RefusedCall] = [
    ("top_k", {"k": 0}, InvalidDesc, "k must be in [1, 3], the size of input along axis 1; got 0"),
    ("top_k", {"k": 4}, InvalidDesc, "k must be in [1, 3], the size of input along axis 1; got 4"),
    ("top_k1", {"axis": 2}, InvalidDesc, "axis must be in [-2, 2); got 2"),
    ("top_k", {"dtype": np.float32}, InvalidType, "dtype must be an integer type; got float32"),
]
