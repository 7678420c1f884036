"""ACTIVATION_SOFTMAX, LOG_SOFTMAX, HARDMAX and their versions with Axes: pages, formulas and cases."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cases import Case, Elementwise, ones
from formulas import Arr, argmax
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, TensorDesc

OF_ROWS = "ACTIVATION_HARDMAX ACTIVATION_LOG_SOFTMAX ACTIVATION_SOFTMAX"
OF_AXES = "ACTIVATION_HARDMAX1 ACTIVATION_LOG_SOFTMAX1 ACTIVATION_SOFTMAX1"

SUPPORT = tables(
    """
    ACTIVATION_HARDMAX ACTIVATION_LOG_SOFTMAX ACTIVATION_SOFTMAX: InputTensor OutputTensor
        1_0 4 FLOATS
        2_0 4-5 FLOATS
        3_0 1-8 FLOATS
    ACTIVATION_HARDMAX1 ACTIVATION_LOG_SOFTMAX1 ACTIVATION_SOFTMAX1: InputTensor OutputTensor
        5_1 1-8 FLOATS
    """
)

MEMBERS = merge(of_all(OF_ROWS, "InputTensor OutputTensor"), of_all(OF_AXES, "InputTensor OutputTensor AxisCount Axes"))

# Formulas, of floats as float64


def log_softmax(x: Arr, axes: tuple[int, ...]) -> Any:
    """Leaves the 1 of one largest element out of the sum, where it would round small terms away."""
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = x.astype(np.longdouble) - np.max(x, axis=axes, keepdims=True)
        is_largest = distance == 0
        others = np.sum(np.where(is_largest, 0, np.exp(distance)), axis=axes, keepdims=True)
        logarithm = distance - np.log1p(others + (np.sum(is_largest, axis=axes, keepdims=True) - 1))
        # Differences too small for the type become 1, whose logarithm is +0.
        return np.where(np.abs(logarithm) < np.finfo(np.float32).tiny, 0, logarithm)


ELEMENTWISE = {
    "ACTIVATION_LOG_SOFTMAX": Elementwise(lambda x: log_softmax(x, (-1,)), sizes=(4, 6)),
    "ACTIVATION_LOG_SOFTMAX1": Elementwise(log_softmax),
    "ACTIVATION_SOFTMAX": Elementwise(lambda x: np.exp(log_softmax(x, (-1,))), sizes=(4, 6)),
    "ACTIVATION_SOFTMAX1": Elementwise(lambda x, axes: np.exp(log_softmax(x, axes))),
}

# The hardmax of rows


def hardmax(input: Arr, *, axes: Sequence[int] = (-1,)) -> Arr:
    """HARDMAX1's page: reduce, broadcast, compare each element's own reduced index."""
    output = np.zeros(input.shape, input.dtype)
    if input.size == 0:
        return output
    reduced = sorted(axis % input.ndim for axis in axes)
    first = argmax(input, axes=axes)
    for coordinate in np.ndindex(*input.shape):
        index = 0
        for axis in reduced:
            index = index * input.shape[axis] + coordinate[axis]
        row = tuple(0 if axis in reduced else position for axis, position in enumerate(coordinate))
        if first[row] == index:
            output[coordinate] = 1
    return output


def hardmax_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 4, 5))
    return directml.ActivationHardmaxDesc(input=tensor, output=tensor)


def hardmax1_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 2, 3, 4))
    return directml.ActivationHardmax1Desc(input=tensor, output=tensor, axes=tuple({rank - 1, max(rank - 3, 0)}))


CASES = {
    "ACTIVATION_HARDMAX": Case(("input",), hardmax_desc, lambda desc, input: hardmax(input)),
    "ACTIVATION_HARDMAX1": Case(("input",), hardmax1_desc, lambda desc, input: hardmax(input, axes=desc.axes)),
}
