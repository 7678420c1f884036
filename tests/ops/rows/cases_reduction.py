"""ARGMAX, ARGMIN and REDUCE: the pages' tables and members, and cases."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, argmax, argmin
from helpers import f32, random_array, tensor
from pages import FLOATS, INDICES, merge, of_all, tables

from dmljax import directml
from dmljax.directml import AxisDirection, DataType, InvalidDesc, InvalidType, ReduceFunction, TensorDesc

SUPPORT = tables(
    """
    ARGMAX ARGMIN: InputTensor; OutputTensor
        3_0 1-8 UP_TO_32; 1-8 INDICES
        4_1 1-8 UP_TO_64; 1-8 INDICES
    REDUCE: InputTensor; OutputTensor
        1_0 4 FLOATS; 4 FLOATS UINT32
        2_1 4 UP_TO_32; 4 FLOATS INT32 UINT32
        3_0 1-8 UP_TO_32; 1-8 UP_TO_64
        4_1 1-8 UP_TO_64; 1-8 UP_TO_64
        5_0 1-8 UP_TO_64; 1-8 UP_TO_64
    """
)
MEMBERS = merge(
    of_all("ARGMAX ARGMIN", "InputTensor OutputTensor AxisCount Axes AxisDirection"),
    of_all("REDUCE", "Function InputTensor OutputTensor AxisCount Axes"),
)

# REDUCE's tables, by function
SUPPORT_BY_FUNCTION = tables(
    """
    ARGMIN ARGMAX: InputTensor; OutputTensor
        1_0 4 FLOATS; 4 UINT32
        2_1 4 UP_TO_32; 4 UINT32
        3_0 1-8 UP_TO_32; 1-8 INDICES
        4_1 1-8 UP_TO_64; 1-8 INDICES
    AVERAGE L2 LOG_SUM LOG_SUM_EXP: InputTensor OutputTensor
        1_0 4 FLOATS
        3_0 1-8 FLOATS
    L1 SUM_SQUARE: InputTensor OutputTensor
        1_0 4 FLOATS
        3_0 1-8 FLOATS
        5_0 1-8 FLOATS INDICES
    MIN MAX: InputTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 FLOATS INT32 UINT32
        3_0 1-8 UP_TO_32
        5_0 1-8 UP_TO_64
    MULTIPLY SUM: InputTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 FLOATS INT32 UINT32
        3_0 1-8 FLOATS INT32 UINT32
        5_0 1-8 FLOATS INDICES
    """
)


def function_for(input: str, output: str) -> str:
    """The function of the case below for these data types."""
    if input == output:
        return "SUM" if input in f"{FLOATS} {INDICES}".split() else "MAX"
    return "ARGMAX"


def is_listed(level: str, data_types: Mapping[str, str]) -> bool:
    """Whether the tables of the case's function list the data types at a level."""
    by_level = SUPPORT_BY_FUNCTION[function_for(data_types["InputTensor"], data_types["OutputTensor"])]
    rows = by_level[max(introduced for introduced in by_level if introduced <= level)]
    return all(data_types[tensor] in types.split() for tensor, _, _, types in rows)


REMARKS = {"REDUCE": is_listed}

# Descriptors; the pseudo-code, which the hardmax shares, is in formulas.py


def arg_reduce_desc(operator: Any) -> Callable[[Mapping[str, DataType], int], directml.Operator]:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        sizes = ones(rank, 3, 4)
        desc: directml.Operator = operator(
            input=TensorDesc(types["input"], sizes),
            output=TensorDesc(types["output"], (*sizes[:-1], 1)),
            axes=(rank - 1,),
            axis_direction=AxisDirection.DECREASING,
        )
        return desc

    return make


# REDUCE by the formulas of DML_REDUCE_FUNCTION, of float64 or of integers that wrap


def reduced(input: Arr, *, function: ReduceFunction, axes: tuple[int, ...]) -> Arr:
    match function.name:
        case "ARGMAX":
            return argmax(input, axes=axes)
        case "ARGMIN":
            return argmin(input, axes=axes)
    x = input.astype(np.float64) if input.dtype.kind in "fV" else input
    along: Any = {"axis": axes, "keepdims": True}
    total = {**along, "dtype": x.dtype}
    with np.errstate(all="ignore"):
        formulas: dict[str, Callable[[], Any]] = {
            "AVERAGE": lambda: x.mean(**along),
            "L1": lambda: np.abs(x).sum(**total),
            "L2": lambda: np.sqrt((x * x).sum(**along)),
            "LOG_SUM": lambda: np.log(x.sum(**along)),
            "LOG_SUM_EXP": lambda: np.logaddexp.reduce(x, **along),
            "MAX": lambda: x.max(**along),
            "MIN": lambda: x.min(**along),
            "MULTIPLY": lambda: x.prod(**total),
            "SUM": lambda: x.sum(**total),
            "SUM_SQUARE": lambda: (x * x).sum(**total),
        }
        return np.asarray(formulas[function.name]())


class ReduceCase(Case):
    """A case with inputs whose sums are exact in every type; the family's own tests use other numbers."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> dict[str, Arr]:
        tensor = desc.tensors(is_input=True)["input"]
        numbers = rng.integers(-8, 9, tensor.sizes).astype(tensor.dtype)
        return {"input": numbers if tensor.dtype.kind == "f" else random_array(rng, tensor.dtype, tensor.sizes)}


def reduce_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = ones(rank, 3, 2, 5)
    axes = tuple({rank - 1, max(rank - 3, 0)})
    return directml.ReduceDesc(
        function=ReduceFunction[function_for(types["input"].name, types["output"].name)],
        input=TensorDesc(types["input"], sizes),
        output=TensorDesc(types["output"], tuple(1 if i in axes else size for i, size in enumerate(sizes))),
        axes=axes,
    )


CASES = {
    "REDUCE": ReduceCase(
        ("input", "output"),
        reduce_desc,
        lambda desc, input: reduced(input, function=desc.function, axes=desc.axes),
    ),
    "ARGMAX": Case(
        ("input", "output"),
        arg_reduce_desc(directml.ArgmaxDesc),
        lambda desc, input: argmax(input, axes=desc.axes, last=True),
    ),
    "ARGMIN": Case(
        ("input", "output"),
        arg_reduce_desc(directml.ArgminDesc),
        lambda desc, input: argmin(input, axes=desc.axes, last=True),
    ),
}


# Refusals

WHOLE = np.ones(3, np.int32)
SUM = directml.ReduceDesc(function=ReduceFunction.SUM, input=f32(2, 3), output=f32(2, 1), axes=(1,))

CALLS: dict[str, dict[str, Any]] = {"reduce": {"input": WHOLE, "function": ReduceFunction.SUM, "axes": 0}}

REFUSED_DESCS: list[RefusedDesc] = [
    (SUM, {"output": f32(2, 3)}, "OutputTensor.Sizes must be {2,1}; got {2,3}"),
    (SUM, {"output": tensor("INT32", 2, 1)}, "must have the same DataType; got FLOAT32 and INT32"),
    (
        SUM,
        {"function": ReduceFunction.ARGMAX},
        "OutputTensor.DataType must be one of UINT32, INT32, UINT64, INT64; got FLOAT32",
    ),
    (SUM, {"axes": (1, 1)}, "Axes must name one or more different dimensions; got {1,1}"),
    (SUM, {"output": f32(2)}, "InputTensor and OutputTensor must have the same DimensionCount; got 2 and 1"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("reduce", {"function": ReduceFunction.AVERAGE}, InvalidType, "input must be of a floating type; got int32"),
    ("reduce", {"input": WHOLE > 0}, InvalidType, "input must be of an integer or floating type; got bool"),
    ("reduce", {"dtype": "uint32"}, InvalidType, "dtype must be the dtype of input, int32; got uint32"),
    ("reduce", {"axes": (0, 0)}, InvalidDesc, "axes must name different dimensions; got (0, 0)"),
]
