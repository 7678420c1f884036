"""Converts the numbers of a model's JSON to arrays of a data type."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.numpy import iinfo
from numpy.typing import NDArray

from dmljax.descriptors.members import NOT_FINITE
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.checks import element_path
from dmljax.text import show
from dmljax.types import FLOATS, DataType


def convert(
    name: str, values: Sequence[Any], data_type: DataType, *, is_list: bool = True
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Converts JSON numbers to a data type; also returns the indices of those that became infinite.

    Integers must fit the data type; floats are rounded to nearest.
    """
    dtype = data_type.dtype

    def refuse(index: int, rule: str) -> None:
        where = element_path(name, index) if is_list else name
        raise InvalidDesc(Problem(where, f"must be {rule} for {data_type.name}", show(values[index])))

    if dtype not in FLOATS:
        limits = iinfo(dtype)
        for index, value in enumerate(values):
            if type(value) is not int or not limits.min <= value <= limits.max:
                refuse(index, f"a whole number in [{limits.min}, {limits.max}]")
        return np.array(values, dtype), np.array([], int)
    doubles = np.empty(len(values), np.float64)
    for index, value in enumerate(values):
        if isinstance(value, str) and value.lower() in NOT_FINITE:
            doubles[index] = NOT_FINITE[value.lower()]
        elif type(value) is float or (type(value) is int and int(float(value)) == value):
            doubles[index] = value
        else:
            refuse(index, "a number, 'nan', 'inf' or '-inf'")
    with np.errstate(over="ignore"):
        numbers = doubles.astype(dtype)
    return numbers, np.flatnonzero(np.isinf(numbers) & ~np.isinf(doubles))


def sequence(start: Any, delta: Any, count: int) -> NDArray[Any]:
    """Adds `delta` repeatedly to `start`, for `count` values; floats are rounded each time, integers wrap."""
    steps = np.full(count, delta)
    steps[:1] = start
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.accumulate(steps, dtype=steps.dtype)
