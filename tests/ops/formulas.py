"""Code that the oracles of several families share, in NumPy and independent of the lowerings.

The pages' pseudo-code runs element by element; formulas use float64 or Python's integers.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arr = NDArray[Any]
Formula = Callable[..., Any]


def bits_of(array: Arr) -> Arr:
    """The array's bits, so that copying an element cannot quiet a NaN."""
    return array.view(f"u{array.dtype.itemsize}")


def number(value: Any) -> float | int:
    """A Python number of the same value; Python keeps subnormals."""
    return value.item() if isinstance(value.item(), bool | int) else float(value)


# The elementwise operators


def by_python(function: Callable[..., Any]) -> Formula:
    """A formula on Python's integers, whose results wrap around."""

    def formula(*arrays: Arr) -> Arr:
        dtype = arrays[0].dtype
        bits = dtype.itemsize * 8
        wrapped = [
            function(*(int(x) for x in row)) & (2**bits - 1) for row in zip(*(x.ravel() for x in arrays), strict=True)
        ]
        return np.array(wrapped, f"u{dtype.itemsize}").view(dtype).reshape(arrays[0].shape)

    return formula


def of_kind(floats: Formula, integers: Callable[..., int]) -> Formula:
    """One formula for floats, another for integers."""
    return lambda *arrays, **attributes: (
        floats(*arrays, **attributes) if arrays[0].dtype.kind == "f" else by_python(integers)(*arrays, **attributes)
    )


# The largest and the smallest along axes


def argmax(input: Arr, *, axes: Sequence[int], last: bool = False) -> Arr:
    return arg_reduce(input, axes=axes, last=last, replaces=is_greater)


def argmin(input: Arr, *, axes: Sequence[int], last: bool = False) -> Arr:
    return arg_reduce(input, axes=axes, last=last, replaces=is_less)


def is_greater(a: float, b: float) -> bool:
    """Whether `a` replaces `b` as the largest: NaN is the largest of all, and no NaN replaces another."""
    return not math.isnan(b) and (math.isnan(a) or a > b)


def is_less(a: float, b: float) -> bool:
    return not math.isnan(b) and (math.isnan(a) or a < b)


def arg_reduce(input: Arr, *, axes: Sequence[int], last: bool, replaces: Any) -> Arr:
    reduced = sorted(axis % input.ndim for axis in axes)
    output = np.empty([1 if axis in reduced else size for axis, size in enumerate(input.shape)], np.int64)
    for coordinate in np.ndindex(*output.shape):
        best, best_index = None, 0
        for index, inner in enumerate(itertools.product(*(range(input.shape[axis]) for axis in reduced))):
            element = list(coordinate)
            for axis, position in zip(reduced, inner, strict=True):
                element[axis] = position
            value = number(input[tuple(element)])
            ties = best is not None and not replaces(value, best) and not replaces(best, value)
            if best is None or replaces(value, best) or (last and ties):
                best, best_index = value, index
        output[coordinate] = best_index
    return output
