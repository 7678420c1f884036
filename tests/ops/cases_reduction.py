"""ARGMAX, ARGMIN and REDUCE: the pages' tables and members, and cases."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from cases import Case, ones
from formulas import Arr, argmax, argmin
from helpers import random_array
from pages import FLOATS, INDICES, UP_TO_32, Tables, alike, merge, of_all

from dmljax import directml
from dmljax.directml import AxisDirection, DataType, ReduceFunction, TensorDesc

UP_TO_64 = UP_TO_32 + " INT64 UINT64"
SUPPORT = merge(
    of_all(
        "ARGMAX ARGMIN",
        {
            "3_0": [("InputTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, INDICES)],
            "4_1": [("InputTensor", 1, 8, UP_TO_64), ("OutputTensor", 1, 8, INDICES)],
        },
    ),
    of_all(
        "REDUCE",  # what any of its functions takes
        {
            "1_0": [("InputTensor", 4, 4, FLOATS), ("OutputTensor", 4, 4, FLOATS + " UINT32")],
            "2_1": [("InputTensor", 4, 4, UP_TO_32), ("OutputTensor", 4, 4, FLOATS + " INT32 UINT32")],
            "3_0": [("InputTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, UP_TO_64)],
            "4_1": [("InputTensor", 1, 8, UP_TO_64), ("OutputTensor", 1, 8, UP_TO_64)],
            "5_0": [("InputTensor", 1, 8, UP_TO_64), ("OutputTensor", 1, 8, UP_TO_64)],
        },
    ),
)
MEMBERS = merge(
    of_all("ARGMAX ARGMIN", "InputTensor OutputTensor AxisCount Axes AxisDirection"),
    of_all("REDUCE", "Function InputTensor OutputTensor AxisCount Axes"),
)

# REDUCE's tables, by its functions
BOTH = "InputTensor OutputTensor"
SUPPORT_BY_FUNCTION: dict[str, Tables] = merge(
    of_all(
        "ARGMIN ARGMAX",
        {
            "1_0": [("InputTensor", 4, 4, FLOATS), ("OutputTensor", 4, 4, "UINT32")],
            "2_1": [("InputTensor", 4, 4, UP_TO_32), ("OutputTensor", 4, 4, "UINT32")],
            "3_0": [("InputTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, INDICES)],
            "4_1": [("InputTensor", 1, 8, UP_TO_64), ("OutputTensor", 1, 8, INDICES)],
        },
    ),
    of_all("AVERAGE L2 LOG_SUM LOG_SUM_EXP", alike(BOTH, {"1_0": (4, 4, FLOATS), "3_0": (1, 8, FLOATS)})),
    of_all(
        "L1 SUM_SQUARE",
        alike(BOTH, {"1_0": (4, 4, FLOATS), "3_0": (1, 8, FLOATS), "5_0": (1, 8, f"{FLOATS} {INDICES}")}),
    ),
    of_all(
        "MIN MAX",
        alike(
            BOTH,
            {
                "1_0": (4, 4, FLOATS),
                "2_1": (4, 4, FLOATS + " INT32 UINT32"),
                "3_0": (1, 8, UP_TO_32),
                "5_0": (1, 8, UP_TO_64),
            },
        ),
    ),
    of_all(
        "MULTIPLY SUM",
        alike(
            BOTH,
            {
                "1_0": (4, 4, FLOATS),
                "2_1": (4, 4, FLOATS + " INT32 UINT32"),
                "3_0": (1, 8, FLOATS + " INT32 UINT32"),
                "5_0": (1, 8, f"{FLOATS} {INDICES}"),
            },
        ),
    ),
)


def function_for(input: str, output: str) -> str:
    """The function of the case below for these data types."""
    if input == output:
        return "SUM" if input in f"{FLOATS} {INDICES}".split() else "MAX"
    return "ARGMAX"


def is_listed(level: str, data_types: Mapping[str, str]) -> bool:
    """Whether the tables of the case's function list the data types at a level."""
    tables = SUPPORT_BY_FUNCTION[function_for(data_types["InputTensor"], data_types["OutputTensor"])]
    rows = tables[max(introduced for introduced in tables if introduced <= level)]
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
    """A case with inputs whose sums are exact in every type; other numbers are for the family's own tests."""

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
