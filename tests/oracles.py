"""The pages' pseudo-code on NumPy arrays, element by element: slow, plain, and without a line of the lowerings."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arr = NDArray[Any]


def bits_of(array: Arr) -> Arr:
    """The array's bits, so that copying an element cannot quieten a NaN."""
    return array.view(f"u{array.dtype.itemsize}")


def number(value: Any) -> float | int:
    """A Python number of the same value; Python keeps subnormals."""
    return value.item() if isinstance(value.item(), bool | int) else float(value)


def one_hot(indices: Arr, values: Arr, *, axis: int, depth: int) -> Arr:
    flat = bits_of(values).reshape(-1)
    off_value, on_value = flat[0], flat[1]
    sizes = list(indices.shape)
    sizes[axis] = depth
    output = np.empty(sizes, flat.dtype)
    for coordinate in np.ndindex(*sizes):
        sequence = list(coordinate)
        sequence[axis] = 0
        index = int(indices[tuple(sequence)])
        if index < 0:
            index += depth
        output[coordinate] = on_value if coordinate[axis] == index else off_value
    return output.view(values.dtype)


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


def argmax(input: Arr, *, axes: Sequence[int], last: bool = False) -> Arr:
    return arg_reduce(input, axes=axes, last=last, replaces=is_greater)


def argmin(input: Arr, *, axes: Sequence[int], last: bool = False) -> Arr:
    return arg_reduce(input, axes=axes, last=last, replaces=is_less)


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


def nonzero_coordinates(
    input: Arr, *, size: int | None = None, columns: int | None = None, fill_value: int = 0
) -> tuple[Arr, Arr]:
    shape = input.shape or (1,)
    columns = columns or len(shape)
    found = [list(c)[-columns:] for c in np.ndindex(*shape) if number(input.reshape(shape)[c]) != 0]
    coordinates = np.full((input.size if size is None else size, columns), fill_value, np.uint32)
    for row, coordinate in zip(coordinates, found, strict=False):
        row[...] = coordinate
    return np.array(len(found), np.uint32), coordinates


def diagonal_matrix1(input: Arr | None, value: Any, *, begin: int, end: int, sizes: Sequence[int], dtype: Any) -> Arr:
    output = np.zeros(sizes, dtype)
    raw, value_bits = bits_of(output), bits_of(np.array([value], dtype))[0]
    for coordinate in np.ndindex(*sizes):
        *_, y, x = coordinate
        top_x = x - y
        use_value = (end >= begin) ^ (top_x >= begin) ^ (top_x < end)
        if use_value:
            raw[coordinate] = value_bits
        elif input is not None:
            raw[coordinate] = bits_of(input)[coordinate]
    return output


def fill_value_constant(value: Any, *, sizes: Sequence[int], dtype: Any) -> Arr:
    output = np.empty(sizes, dtype)
    for coordinate in np.ndindex(*sizes):
        bits_of(output)[coordinate] = bits_of(np.array(value, dtype).reshape(1))[0]
    return output


def gather_nd1(input: Arr, indices: Arr, *, batch_dimension_count: int = 0) -> Arr:
    batch, tuple_size = batch_dimension_count, indices.shape[-1]
    source = bits_of(input)
    output = np.empty(indices.shape[:-1] + input.shape[batch + tuple_size :], source.dtype)
    for place in np.ndindex(*indices.shape[:-1]):
        start = []
        for axis in range(tuple_size):
            size = input.shape[batch + axis]
            index = int(indices[place][axis])
            index = index + size if index < 0 else index
            start.append(min(max(index, 0), size - 1))
        output[place] = source[(*place[:batch], *start)]
    return output.view(input.dtype)
