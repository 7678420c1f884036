"""Sequences, which are lists while tracing, and optional values, which may be None."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, inside
from dmljax.onnx.file import Graph, TensorType
from dmljax.onnx.interpreter import as_array, as_sizes
from dmljax.onnx.nodes.shapes import joined, normal
from dmljax.onnx.parameters import Number, Tensor, Vectors
from dmljax.onnx.registry import Call, handles


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidType(Problem((), "must have a sequence", "nothing" if value is None else "a tensor"))
    return value


def _place(position: Any, count: int) -> int:
    """A known position in a sequence, of which negative ones count from the end."""
    place = int(position.item())
    if not -count <= place < count:
        raise InvalidDesc(Problem("position", f"must be in [{-count}, {count})", place))
    return place % count


@handles("SequenceConstruct", kept=[-1])
def _sequence_of(*inputs: Any) -> Any:
    return [*inputs]


@handles("SequenceEmpty")
def _empty_sequence(*, dtype: int = 1) -> Any:
    return []


@handles("SequenceLength", kept=[0])
def _length(sequence: Any) -> Any:
    return np.array(len(_sequence(sequence)), np.int64)


@handles("SequenceAt", kept=[0], known=[1])
def _at(sequence: Any, position: Number) -> Any:
    return _sequence(sequence)[_place(position, len(sequence))]


@handles("SequenceErase", kept=[0], known=[1])
def _erased(sequence: Any, position: Number = None) -> Any:
    place = len(_sequence(sequence)) - 1 if position is None else _place(position, len(sequence))
    if not sequence:
        raise InvalidDesc(Problem((), "must have a sequence with an element", "an empty one"))
    return [*sequence[:place], *sequence[place + 1 :]]


@handles("SequenceInsert", kept=[0, 1], known=[2])
def _inserted(sequence: Any, tensor: Tensor, position: Number = None) -> Any:
    count = len(_sequence(sequence))
    # A new element may also stand behind the last one.
    place = count if position is None or position.item() == count else _place(position, count)
    return [*sequence[:place], tensor, *sequence[place:]]


@handles("SplitToSequence", kept=[0], known=[1])
def _split_to_sequence(x: Vectors, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> Any:
    axis = normal(axis, x.ndim)
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
    return [one.squeeze(axis) for one in parts] if split is None and not keepdims else parts


@handles("ConcatFromSequence", kept=[0])
def _concatenated(sequence: Any, *, axis: int, new_axis: int = 0) -> Any:
    if not _sequence(sequence):
        raise InvalidDesc(Problem((), "must have a sequence with an element", "an empty one"))
    axis = normal(axis, sequence[0].ndim + bool(new_axis))
    if all(isinstance(one, np.ndarray) for one in sequence):
        return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)
    arrays = [as_array(one) for one in sequence]
    return joined([jnp.expand_dims(one, axis) for one in arrays] if new_axis else arrays, axis)


@handles("SequenceMap", kept=[-1])
def _mapped(sequence: Any, *others: Any, body: Graph, call: Call) -> Any:
    lists = [other for other in (_sequence(sequence), *others) if isinstance(other, list)]
    if len({len(one) for one in lists}) > 1:
        raise InvalidDesc(Problem((), "must have sequences of one length", tuple(map(len, lists))))
    rows = []
    for i in range(len(sequence)):
        with inside("body"):
            rows.append(call.run(body, [one[i] if isinstance(one, list) else one for one in (sequence, *others)]))
    return tuple([row[i] for row in rows] for i in range(len(body.outputs)))


# Optional values


@handles("Optional", kept=[0])
def _optional(value: Any = None, *, type: TensorType | None = None) -> Any:
    return value


@handles("OptionalHasElement", kept=[0])
def _has_element(value: Any = None) -> Any:
    return np.array(value is not None)


@handles("OptionalGetElement", kept=[0])
def _element(value: Any | None) -> Any:
    if value is None:
        raise InvalidDesc(Problem((), "must have a value", "an optional without one"))
    return value
