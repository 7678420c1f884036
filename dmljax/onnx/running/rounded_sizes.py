"""Runs decoders whose caches grow, such as Optimum's, with few programs: their sizes are rounded up.

Such a decoder appends the keys and values of new tokens to its caches, whose sizes would need a program for each token.
Here arrays have padding up to a power of two, and the program takes their true sizes as numbers. It computes with them
as with sizes under `maximum_sizes`: by the rules in `dmljax.onnx.nodes.padded_rules`, which never read padding.
"""

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import DmlError, Unsupported
from dmljax.foundation.dimensions import replace_at
from dmljax.foundation.programs.compiling import Program, notify
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.running.interpreter import narrow_elements
from dmljax.onnx.running.plan import Plan
from dmljax.onnx.running.static_part import KeyedArray
from dmljax.onnx.values.counts import BoundedNumber, Count, NotKnown, bound_of
from dmljax.onnx.values.padded import is_padded_array, padded, sizes_of
from dmljax.onnx.values.types import Array, Value
from dmljax.types import FLOATS

_LEAST_ROOM = 64  # tokens of the smallest caches
_LEAST = 16  # what other sizes above 1 are rounded up to
_TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds")  # the input with new tokens
_PAST = "past"  # begins the names of caches
_NEW, _OLD, _ALL = "\0new", "\0old", "\0all"  # numbers of tokens, among sizes that the model names


class RoundedArray:
    """An array with padding on JAX's device; whoever reads it gets the true elements."""

    def __init__(self, array: Array, shape: Sequence[int]) -> None:
        self.array, self.shape, self.dtype = array, tuple(shape), array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(np.asarray(self.array)[self._true], dtype)

    @property
    def _true(self) -> tuple[slice, ...]:
        return tuple(map(slice, self.shape))

    def cut(self) -> Array:
        """The true elements, on the same device."""
        if not _is_on_cpu(self.array):
            return self.array[self._true]
        with jax.enable_x64(True):
            true: Array = jax.device_put(np.array(self), self.array.sharding)  # needs no program for the shape
        return true

    def with_room(self, axis: int, room: int) -> Any:
        """The array with as much room along an axis, and none along others: itself if it has that."""
        has_others = replace_at(self.array.shape, axis, 0) != replace_at(self.shape, axis, 0)
        return _with_room(self.cut() if has_others else self.array, axis, room)


def _is_on_cpu(array: Array) -> bool:
    return all(device.platform == "cpu" for device in array.devices())


def _with_room(array: Any, axis: int, room: int) -> Any:
    """The array with as much room along an axis, where JAX would compile a program for each shape only if it must."""
    size = array.shape[axis]
    if size == room:
        return array
    if isinstance(array, jax.Array) and not _is_on_cpu(array):
        amounts = [(0, room - size if i == axis else 0, 0) for i in range(array.ndim)]
        return jax.lax.pad(array, jnp.zeros((), array.dtype), amounts)
    copy = np.zeros(replace_at(array.shape, axis, room), array.dtype)
    kept = (*[slice(None)] * axis, slice(min(size, room)))
    copy[kept] = np.asarray(array)[kept]
    return copy


def _argument(value: Any, axis: int | None = None, room: int = 0) -> Any:
    """What a program takes for an input, with room along an axis if one is given."""
    if isinstance(value, RoundedArray):
        return value.cut() if axis is None else value.with_room(axis, room)
    array = narrow_elements(value) if isinstance(value, np.ndarray) else value
    return array if axis is None else _with_room(array, axis, room)


class _Axis(NamedTuple):
    """An open axis of an input, and the size that it has."""

    input: str
    place: int
    size: str


class _Size(NamedTuple):
    """The bounds of a size that a program takes as a number."""

    name: str
    least: int
    largest: int


class _Form(NamedTuple):
    """What a program is compiled for, besides the types of its arguments: the sizes that it takes, and where."""

    new: int  # the largest number of new tokens
    room: int  # for all tokens
    sizes: tuple[_Size, ...]
    axes: tuple[_Axis, ...]


class RoundedDecoder:
    """A decoder with growing caches, whose sizes are rounded up unless `is_exact`, as its graph takes no padding."""

    def __init__(self, plan: Plan, tokens: TensorType, caches: Sequence[TensorType]) -> None:
        self.is_exact = False
        self._rounds_new = True  # the number of new tokens too
        self._plan = plan
        inputs = plan.graph.inputs
        self._names = {tensor.name for tensor in inputs}
        self._caches = [axis._replace(size=_OLD) for cache in caches for axis in _open_axes(cache)]
        others = [tensor for tensor in inputs if tensor is not tokens and tensor not in caches]
        of_floats = {axis.size for tensor in others if tensor.dtype in FLOATS for axis in _open_axes(tensor)}
        # Masks and positions, whose names for sizes may differ
        texts = [tensor for tensor in others if _is_text(tensor) and of_floats.isdisjoint(tensor.sizes or ())]
        self._tokens, self._texts = tokens.name, [tensor.name for tensor in (tokens, *texts)]
        self._others = [axis for tensor in others if tensor not in texts for axis in _open_axes(tensor)]
        self._lock, self._known = threading.Lock(), set[Hashable]()  # programs that a run has compiled
        self._first_sizes: dict[str, int] = {}
        self._varying: set[str] = set()
        self._program = Program(
            self._compute,
            "the decoder",
            static_argnums=(0, 1, 2),
            source=plan.source,
            failure=NotKnown,
            on_program=_note_room,
        )

    def __call__(self, weights: Mapping[str, Array], inputs: Mapping[str, Any]) -> list[Value] | None:
        """The outputs for arrays by name; None if they need a program of their own sizes."""
        while not self.is_exact and inputs.keys() == self._names:
            try:
                return self._run(weights, inputs)
            except Unsupported:  # of padding
                self.is_exact, self._rounds_new = not self._rounds_new, False
            except DmlError:  # which the model raises too
                break
        return None

    def _run(self, weights: Mapping[str, Array], inputs: Mapping[str, Any]) -> list[Any] | None:
        measured = self._measure(inputs)
        if measured is None:
            return None
        form, rooms, numbers = measured
        deciding = self._plan.graph.deciding
        places = {name: (place, rooms[size]) for name, place, size in form.axes}
        arrays = {name: _argument(x, *places.get(name, ())) for name, x in inputs.items() if name not in deciding}
        known = tuple(KeyedArray(name, np.asarray(inputs[name])) for name in inputs if name in deciding)
        call = self._plan.call_weights(weights)
        with self._lock_unless_known((form, known, arrays[self._tokens].shape)):
            outputs, ends = self._program(call.uses_loaded, known, form, call.arguments, numbers, arrays)
        if np.ndarray in map(type, arrays.values()):
            jax.block_until_ready(outputs)  # until then, the program may read the memory of the caller's arrays
        true = iter(np.asarray(ends).tolist())
        shapes = [[next(true) for _ in output.array.shape] if is_padded_array(output) else None for output in outputs]
        return [x if shape is None else RoundedArray(x.array, shape) for x, shape in zip(outputs, shapes, strict=True)]

    def _measure(self, inputs: Mapping[str, Any]) -> tuple[_Form, Mapping[str, int], Any] | None:
        """The form of the program for these inputs, the sizes of its arrays, and the true sizes that it takes."""
        new = inputs[self._tokens].shape[1]
        old, *different = {inputs[name].shape[place] for name, place, _ in self._caches}
        if new == 0 or different:
            return None
        true = {_OLD: old, _NEW: new, _ALL: old + new}
        axes = [*self._caches]
        for name in self._texts:
            size = next((size for size in (_NEW, _ALL) if inputs[name].shape[1] == true[size]), None)
            if size is None:
                return None
            axes.append(_Axis(name, 1, size))
        for axis in self._others:
            number = inputs[axis.input].shape[axis.place]
            if self._varies(axis.size, number):
                if true.setdefault(axis.size, number) != number:
                    return None
                axes.append(axis)
        rooms = {size: _round_up(number, _LEAST) for size, number in true.items()}
        rooms[_NEW] = rooms[_NEW] if self._rounds_new else new
        rooms[_ALL] = _round_up(old + rooms[_NEW], _LEAST_ROOM) if old else rooms[_NEW]
        rooms[_OLD] = rooms[_ALL]  # as an earlier run may have returned them
        open_sizes = [
            size
            for size in rooms
            if size != _ALL and (size != _OLD or old) and (size != _NEW or (new > 1 and self._rounds_new))
        ]
        largest = rooms | {_OLD: rooms[_ALL] - rooms[_NEW]}
        sizes = (_Size(size, 1 if size == _OLD else 2, largest[size]) for size in open_sizes)
        padded_sizes = {*open_sizes, *([_ALL] if {_OLD, _NEW} & {*open_sizes} else [])}
        form = _Form(rooms[_NEW], rooms[_ALL], (*sizes,), (*(axis for axis in axes if axis.size in padded_sizes),))
        return form, rooms, np.array([true[size] for size in open_sizes], np.int32)

    @contextmanager
    def _lock_unless_known(self, program: Hashable) -> Iterator[None]:
        """Lets one thread compile a program while others wait for it."""
        if program in self._known:
            yield
            return
        with self._lock:
            yield
        self._known.add(program)

    def _varies(self, size: str, number: int) -> bool:
        """Whether a size that is no number of tokens, such as an encoder's, has had several values above 1."""
        if number > 1 and self._first_sizes.setdefault(size, number) != number:
            self._varying.add(size)
        return number > 1 and size in self._varying

    def _compute(
        self,
        uses_loaded: bool,
        known: tuple[KeyedArray, ...],
        form: _Form,
        arguments: Mapping[str, Array],
        numbers: Array,
        arrays: Mapping[str, Array],
    ) -> tuple[list[Value], Array]:
        """The outputs, and the true sizes of those that have padding."""
        counts: dict[str, Any] = {_NEW: form.new, _OLD: 0}
        for number, (size, least, largest) in zip(numbers, form.sizes, strict=True):
            counts[size] = Count(BoundedNumber(number, least, largest))
        counts[_ALL] = counts[_OLD] + counts[_NEW]
        inputs: dict[str, Value] = dict(arrays)
        for name, place, size in form.axes:
            array = jax.lax.slice_in_dim(arrays[name], 0, bound_of(counts[size]), axis=place)
            inputs[name] = padded(array, replace_at(array.shape, place, counts[size]))
        results = self._plan.trace(uses_loaded, known, arguments, inputs)
        return results, jnp.concatenate([numbers[:0], *map(sizes_of, filter(is_padded_array, results))])


def find_rounded_decoder(plan: Plan) -> RoundedDecoder | None:
    """The decoder of a graph with growing caches and an input for new tokens; None for any other graph."""
    by_name = {tensor.name: tensor for tensor in plan.graph.inputs}
    tokens = next((by_name[name] for name in _TOKENS if name in by_name), None)
    caches = [tensor for tensor in plan.graph.inputs if _is_cache(tensor)]
    is_possible = not plan.graph.is_random and not plan.graph.maximum_sizes
    if tokens is None or not any(axis.place == 1 for axis in _open_axes(tokens)) or not caches or not is_possible:
        return None
    return RoundedDecoder(plan, tokens, caches)


def _note_room(*arguments: Any, is_stored: bool) -> None:
    """Tells the user of a command that longer texts need another program."""
    form = arguments[2]
    if not is_stored and form.room > form.new:
        notify(f"compiling the decoder for texts of up to {form.room} tokens")


def _open_axes(tensor: TensorType) -> list[_Axis]:
    """The open axes of an input after its batch."""
    sizes = [*enumerate(tensor.sizes or ())][1:]
    return [_Axis(tensor.name, i, size or f"{tensor.name}[{i}]") for i, size in sizes if not isinstance(size, int)]


def _is_of_encoder(tensor: TensorType) -> bool:
    return "encoder" in tensor.name.replace("decoder", "")


def _is_cache(tensor: TensorType) -> bool:
    is_past = tensor.name.startswith(_PAST) and tensor.dtype in FLOATS and not _is_of_encoder(tensor)
    return is_past and len(tensor.sizes or ()) > 2 and len(_open_axes(tensor)) == 1


def _is_text(tensor: TensorType) -> bool:
    """Whether an input has a number for each token of each sequence."""
    is_open = [axis.place for axis in _open_axes(tensor)] == [1]
    return is_open and len(tensor.sizes or ()) == 2 and tensor.dtype not in FLOATS and not _is_of_encoder(tensor)


def _round_up(size: int, least: int) -> int:
    """A power of two that is not smaller; 0 and 1 stay as they are."""
    return max(least, 1 << (size - 1).bit_length()) if size > 1 else size
