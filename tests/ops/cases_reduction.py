"""ARGMAX and ARGMIN: the pages' tables and members, and cases."""

from collections.abc import Callable, Mapping
from typing import Any

from cases import Case, ones
from formulas import argmax, argmin
from pages import INDICES, UP_TO_32, of_all

import dmljax
from dmljax import AxisDirection, DataType, TensorDesc

SUPPORT = of_all(
    "ARGMAX ARGMIN",
    {
        "3_0": [("InputTensor", 1, 8, UP_TO_32), ("OutputTensor", 1, 8, INDICES)],
        "4_1": [("InputTensor", 1, 8, UP_TO_32 + " INT64 UINT64"), ("OutputTensor", 1, 8, INDICES)],
    },
)
MEMBERS = of_all("ARGMAX ARGMIN", "InputTensor OutputTensor AxisCount Axes AxisDirection")

# Descriptors; the pseudo-code, which the hardmax shares, is in formulas.py


def arg_reduce_desc(operator: Any) -> Callable[[Mapping[str, DataType], int], dmljax.Operator]:
    def make(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
        sizes = ones(rank, 3, 4)
        desc: dmljax.Operator = operator(
            input=TensorDesc(types["input"], sizes),
            output=TensorDesc(types["output"], (*sizes[:-1], 1)),
            axes=(rank - 1,),
            axis_direction=AxisDirection.DECREASING,
        )
        return desc

    return make


CASES = {
    "ARGMAX": Case(
        ("input", "output"),
        arg_reduce_desc(dmljax.ArgmaxDesc),
        lambda desc, input: argmax(input, axes=desc.axes, last=True),
    ),
    "ARGMIN": Case(
        ("input", "output"),
        arg_reduce_desc(dmljax.ArgminDesc),
        lambda desc, input: argmin(input, axes=desc.axes, last=True),
    ),
}
