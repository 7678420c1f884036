"""CUMULATIVE_SUMMATION and CUMULATIVE_PRODUCT: the pages' tables and pseudo-code, and cases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import f32, tensor
from pages import tables

from dmljax import directml
from dmljax.directml import AxisDirection, DataType, InvalidDesc, InvalidType, TensorDesc

SUPPORT = tables(
    """
    CUMULATIVE_SUMMATION: InputTensor OutputTensor
        2_1 4 FLOATS INT32 UINT32
        4_0 1-8 FLOATS INT32 UINT32
        5_0 1-8 FLOATS INDICES
    CUMULATIVE_PRODUCT: InputTensor OutputTensor
        3_1 4 FLOATS INT32 UINT32
        4_0 1-8 FLOATS INT32 UINT32
        5_0 1-8 FLOATS INDICES
    """
)
MEMBERS = {
    "CUMULATIVE_SUMMATION": "InputTensor OutputTensor Axis AxisDirection HasExclusiveSum",
    "CUMULATIVE_PRODUCT": "InputTensor OutputTensor Axis AxisDirection HasExclusiveProduct",
}

# Pseudo-code: the page's running tally, in float64 for floats, because it has a wider range


def tallied(combine: Any, first: int, input: Arr, *, axis: int, direction: AxisDirection, is_exclusive: bool) -> Arr:
    wide = input.astype(np.float64) if input.dtype.kind == "f" or input.dtype.name == "bfloat16" else input
    rows = np.moveaxis(wide, axis, 0)
    output = np.empty_like(rows)
    tally = np.full(rows.shape[1:], first, rows.dtype)
    places = range(len(rows))
    for i in places if direction is AxisDirection.INCREASING else reversed(places):
        before, tally = tally, combine(tally, rows[i])
        output[i] = before if is_exclusive else tally
    return np.moveaxis(output, 0, axis)


# Descriptors

# Their sums and products are exact in any order, and their sums do not cancel.
EXACT: dict[str, list[float]] = {
    "CUMULATIVE_SUMMATION": [0, 1, 2, 3, 64, 100],
    "CUMULATIVE_PRODUCT": [0, 1, 2, 4, 0.5, -1],
}


class TallyCase(Case):
    """A case with inputs whose tallies are exact in every type; the family's own tests use other numbers."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> dict[str, Arr]:
        tensor = desc.tensors(is_input=True)["input"]
        if tensor.dtype.kind != "f":
            return super().inputs(desc, rng)
        return {"input": rng.choice(EXACT[type(desc).short_name], tensor.sizes).astype(tensor.dtype)}


def case(operator: Any, combine: Any, first: int, exclusive: str, domain: tuple[float, float] | None) -> Case:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        tensor = TensorDesc(types["input"], ones(rank, 3, 11))
        is_exclusive = rank % 2 == 0
        direction = AxisDirection(rank % 4 // 2)
        desc: directml.Operator = operator(
            input=tensor, output=tensor, axis=rank - 1, axis_direction=direction, **{exclusive: is_exclusive}
        )
        return desc

    def oracle(desc: Any, input: Arr) -> Arr:
        return tallied(
            combine,
            first,
            input,
            axis=desc.axis,
            direction=desc.axis_direction,
            is_exclusive=getattr(desc, exclusive),
        )

    return TallyCase(("input",), make, oracle, domain=domain)


CASES = {
    "CUMULATIVE_SUMMATION": case(directml.CumulativeSummationDesc, np.add, 0, "has_exclusive_sum", None),
    "CUMULATIVE_PRODUCT": case(directml.CumulativeProductDesc, np.multiply, 1, "has_exclusive_product", (0.5, 1.5)),
}


# Refusals


ROWS: dict[str, Any] = {"input": f32(1, 1, 2, 3), "output": f32(1, 1, 2, 3), "axis": 3}
ROWS["axis_direction"] = AxisDirection.INCREASING
SUMMATION = directml.CumulativeSummationDesc(**ROWS, has_exclusive_sum=False)
PRODUCT = directml.CumulativeProductDesc(**ROWS, has_exclusive_product=False)

CALLS: dict[str, dict[str, Any]] = {
    f"cumulative_{name}": {"input": np.ones((2, 3), np.float32), "axis": 0} for name in ("summation", "product")
}

BROKEN_RULES: list[tuple[dict[str, Any], str]] = [
    ({"output": tensor("FLOAT16", 1, 1, 2, 3)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    ({"output": f32(1, 1, 3, 2)}, "must have the same Sizes; got {1,1,2,3} and {1,1,3,2}"),
    ({"axis": 4}, "Axis must be less than 4; got 4"),
]
REFUSED_DESCS: list[RefusedDesc] = [(desc, *row) for desc in (SUMMATION, PRODUCT) for row in BROKEN_RULES]

REFUSED_CALLS: list[RefusedCall] = [
    ("cumulative_summation", {"axis": 2}, InvalidDesc, "axis must be in [-2, 2); got 2"),
    (
        "cumulative_product",
        {"input": np.ones(2, bool)},
        InvalidType,
        "input must be of an integer or floating type; got bool",
    ),
    ("cumulative_summation", {"has_exclusive_sum": 1}, InvalidType, "has_exclusive_sum must be true or false; got 1"),
]
