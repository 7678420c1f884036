"""ACTIVATION_SOFTMAX, LOG_SOFTMAX, HARDMAX and their versions with Axes: pages, formulas and cases."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cases import Case, Elementwise, RefusedCall, RefusedDesc, ones
from formulas import Arr, argmax
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

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


# Refusals

SOFTMAX = ["softmax", "log_softmax"]
BOTH = [*SOFTMAX, "hardmax"]
ONES = np.ones((2, 3), np.float32)
LIKE: dict[str, Any] = {"input": f32(2, 3), "output": f32(2, 3)}
OF_LAST = [directml.ActivationSoftmaxDesc, directml.ActivationLogSoftmaxDesc, directml.ActivationHardmaxDesc]
AXES_DESCS = [directml.ActivationSoftmax1Desc, directml.ActivationLogSoftmax1Desc, directml.ActivationHardmax1Desc]
HARDMAX = directml.ActivationHardmaxDesc(**LIKE)
DEEP = dict.fromkeys(("input", "output"), f32(2, 3, 4))

CALLS: dict[str, dict[str, Any]] = {
    f"activation_{name}{version}": {"input": ONES} for name in BOTH for version in ("", "1")
}

REFUSED_DESCS: list[RefusedDesc] = [
    *((kind(**LIKE), DEEP, "InputTensor.Sizes must be 1 before the last two; got {2,3,4}") for kind in OF_LAST),
    *((kind(**LIKE, axes=(1,)), {"axes": (2,)}, "Axes[0] must be less than 2; got 2") for kind in AXES_DESCS),
    *(
        (kind(**LIKE, axes=(1,)), {"axes": (1, 1)}, "one or more different dimensions; got {1,1}")
        for kind in AXES_DESCS
    ),
    *((kind(**LIKE, axes=(1,)), {"axes": ()}, "one or more different dimensions; got {}") for kind in AXES_DESCS),
    (HARDMAX, {"output": tensor("FLOAT16", 2, 3)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (HARDMAX, {"output": f32(1, 2, 3)}, "must have the same DimensionCount; got 2 and 3"),
    (HARDMAX, {"output": f32(3, 2)}, "must have the same Sizes; got {2,3} and {3,2}"),
    (HARDMAX, {"input": tensor("FLOAT64", 2, 3)}, "InputTensor.DataType must be one of FLOAT32, ...; got FLOAT64"),
]

REFUSED_CALLS: list[RefusedCall] = [
    *(
        (f"activation_{name}", {"input": ONES.astype(int)}, InvalidType, "input must be of a floating type; got int")
        for name in SOFTMAX
    ),
    *(
        (f"activation_{name}", {"input": ONES[0, 0]}, InvalidDesc, "must have at least 1 dimension; got 0")
        for name in BOTH
    ),
    *(
        (f"activation_{name}1", {"axes": axes}, InvalidDesc, message)
        for name in BOTH
        for axes, message in (
            ((0, -2), "axes must name different dimensions; got (0, -2)"),
            ((0, 2), "axes must be in [-2, 2); got 2"),
            (-3, "axes must be in [-2, 2); got -3"),
        )
    ),
    ("activation_hardmax1", {"axes": 0.0}, InvalidType, "axes must be an integer; got 0.0"),
    ("activation_hardmax1", {"axes": [True]}, InvalidType, "axes[0] must be an integer; got True"),
]
