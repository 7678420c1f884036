"""Sequences, represented by lists, and optional values, which may be None."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, inside
from dmljax.onnx.graph.graph import OnnxGraph, TensorType
from dmljax.onnx.handlers.registry import NodeCall, handles
from dmljax.onnx.handlers.signatures import Kept, KeptValue, KeptVectors, Known, KnownNumber, Passed
from dmljax.onnx.nodes.data.shapes import join_arrays, normalize_axis
from dmljax.onnx.running.interpreter import as_array
from dmljax.onnx.values.symbols import as_sizes
from dmljax.onnx.values.types import Results, Tensor, Value


def _elements(sequence: Value) -> list[Value]:
    if not isinstance(sequence, list):
        raise InvalidType(Problem((), "needs a sequence", "nothing" if sequence is None else "a tensor"))
    return sequence


def _require_one_type(elements: list[Value]) -> list[Value]:
    """A sequence, after checking that its tensors have one type."""
    types = [
        jax.dtypes.canonicalize_dtype(one.dtype)
        for one in elements
        if isinstance(one, jax.Array | np.ndarray) and one.dtype != object
    ]
    other = next((dtype for dtype in types if dtype != types[0]), None)
    if other is not None:
        raise InvalidType(Problem((), f"a sequence must have elements of one type, here {types[0]}", other))
    return elements


def _place(position: Known, count: int) -> int:
    """A position in a sequence; a negative position counts from the end."""
    place = int(position.item())
    if not -count <= place < count:
        raise InvalidDesc(Problem("position", f"must be in [{-count}, {count})", place))
    return place % count


@handles("SequenceConstruct")
def _sequence_of(*inputs: Passed) -> Value:
    return _require_one_type([*inputs])


@handles("SequenceEmpty")
def _empty_sequence(*, dtype: int = 1) -> Value:
    return []


@handles("SequenceLength")
def _length(sequence: KeptValue) -> Known:
    return np.array(len(_elements(sequence)), np.int64)


@handles("SequenceAt")
def _at(sequence: KeptValue, position: KnownNumber) -> Value:
    elements = _elements(sequence)
    return elements[_place(position, len(elements))]


@handles("SequenceErase")
def _erase(sequence: KeptValue, position: KnownNumber | None = None) -> Value:
    elements = _elements(sequence)
    place = len(elements) - 1 if position is None else _place(position, len(elements))
    if not elements:
        raise InvalidDesc(Problem((), "the sequence must not be empty"))
    return [*elements[:place], *elements[place + 1 :]]


@handles("SequenceInsert")
def _insert(sequence: KeptValue, tensor: Kept, position: KnownNumber | None = None) -> Value:
    elements = _elements(sequence)
    count = len(elements)
    # A new element may also come after the last.
    place = count if position is None or position.item() == count else _place(position, count)
    return _require_one_type([*elements[:place], tensor, *elements[place:]])


@handles("SplitToSequence")
def _split_to_sequence(x: KeptVectors, split: Known | None = None, *, axis: int = 0, keepdims: int = 1) -> Value:
    axis = normalize_axis(axis, x.ndim)
    whole = x.shape[axis]
    if split is None:
        sizes = [1] * whole
    elif split.ndim:
        sizes = [*as_sizes(split)]
    else:
        part = int(split.item())
        if part < 1:
            raise InvalidDesc(Problem("split", "must be at least 1", part))
        sizes = [min(part, whole - start) for start in range(0, whole, part)]
    if sum(sizes) != whole or min(sizes, default=0) < 0:
        raise InvalidDesc(Problem("split", f"must add up to {whole}", tuple(sizes)))
    ends = np.cumsum(sizes).tolist()
    parts = [x[(slice(None),) * axis + (slice(end - size, end),)] for end, size in zip(ends, sizes, strict=True)]
    return [part.squeeze(axis) if split is None and not keepdims else part for part in parts]


@handles("ConcatFromSequence")
def _concatenate(sequence: KeptValue, *, axis: int, new_axis: int = 0) -> Tensor:
    elements: list[Any] = _elements(sequence)
    if not elements:
        raise InvalidDesc(Problem((), "the sequence must not be empty"))
    axis = normalize_axis(axis, elements[0].ndim + bool(new_axis))
    if all(isinstance(element, np.ndarray) for element in elements):
        return np.asarray(np.stack(elements, axis) if new_axis else np.concatenate(elements, axis))
    arrays = [as_array(element) for element in elements]
    return join_arrays([jnp.expand_dims(array, axis) for array in arrays] if new_axis else arrays, axis)


@handles("SequenceMap")
def _map(sequence: Passed, *others: Passed, body: OnnxGraph, call: NodeCall) -> Results:
    elements = _elements(sequence)
    lengths = [len(value) for value in (elements, *others) if isinstance(value, list)]
    if len({*lengths}) > 1:
        raise InvalidDesc(Problem((), "sequences must have the same length", tuple(lengths)))
    rows = []
    for i, element in enumerate(elements):
        with inside("body"):
            inputs = [element, *(other[i] if isinstance(other, list) else other for other in others)]
            rows.append(call.run(body, inputs, i))
    return tuple([row[i] for row in rows] for i in range(len(body.outputs)))


# Optional values


@handles("Optional")
def _optional(value: KeptValue | None = None, *, type: TensorType | None = None) -> Value:
    return value


@handles("OptionalHasElement")
def _has_element(value: KeptValue | None = None) -> Known:
    return np.array(value is not None)


@handles("OptionalGetElement")
def _element(value: KeptValue | None) -> Value:
    if value is None:
        raise InvalidDesc(Problem((), "the optional has no value"))
    return value
