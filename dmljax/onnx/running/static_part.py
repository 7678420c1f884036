"""Runs a graph in which some sizes depend on values; compiles everything else into one program.

NonZero, for example, must know the elements of its input. It runs eagerly on a concrete array, and so does each node
that reads from it. All other nodes are compiled together.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import jax
import numpy as np

from dmljax.foundation.programs.compiling import Program
from dmljax.foundation.programs.store import digest_of
from dmljax.onnx.graph.graph import names_read
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph, digest_parts
from dmljax.onnx.running.interpreter import Interpreter
from dmljax.onnx.values.types import Elements, Value

MAX_KEPT = 256  # compiled programs per model


class KeyedArray:
    """An array that is part of a compiled program's key."""

    def __init__(self, name: str, value: Elements) -> None:
        self.name, self.value = name, value
        data = tuple(value.ravel().tolist()) if value.dtype == object else value.tobytes()
        self._key = (name, value.dtype, value.shape, data)

    @property
    def digest(self) -> str:
        """The same text for the same array in every process."""
        return digest_of(*digest_parts(self.name, self.value))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyedArray) and self._key == other._key


@dataclass(eq=False)
class _Part:
    """A compiled program, the indices of its nodes, and the results that are known while tracing."""

    compiled: Callable[[dict[str, Value]], dict[str, Value]]
    nodes: set[int] = field(default_factory=set)
    known: dict[str, Value] = field(default_factory=dict)


class StaticPart:
    """The part of a graph whose sizes do not depend on values, compiled for each set of shapes and known values."""

    def __init__(self, interpreter: Interpreter, loaded: LoadedGraph) -> None:
        self._interpreter, self._graph, self._loaded = interpreter, loaded.running, loaded
        self._kept: dict[Hashable, _Part] = {}

    def run(self, values: dict[str, Value], fixed: Collection[str]) -> list[Value]:
        """Computes the graph's outputs; known values named in `fixed` never change between calls."""
        key = tuple(_key(name, value) for name, value in values.items() if name not in fixed)
        arrays = {name: value for name, value in values.items() if _has_arrays(value)}
        part = self._kept.get(key)
        if part is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.pop(next(iter(self._kept)))
            known = {name: value for name, value in values.items() if name not in arrays}
            part = self._kept[key] = self._compile(known, key)
        values |= part.compiled(arrays)
        values |= part.known
        for index in range(len(self._graph.nodes)):
            if index not in part.nodes:
                self._interpreter.run_node(self._graph, index, values)
            self._interpreter.forget(self._graph, index, values)
        return self._interpreter.outputs(self._graph, values)

    def _compile(self, known: Mapping[str, Value], key: Sequence[Hashable]) -> _Part:
        nodes = self._graph.nodes

        def compute(arrays: dict[str, Value]) -> dict[str, Value]:
            values = {**known, **arrays}
            part.nodes.clear()
            with self._interpreter.trace_context(self._graph):
                part.nodes.update(i for i in range(len(nodes)) if self._interpreter.try_node(self._graph, i, values))
            others = (name for index, node in enumerate(nodes) if index not in part.nodes for name in names_read(node))
            later = {*others, *self._graph.output_names} - known.keys() - arrays.keys()
            made = {name: value for name, value in values.items() if name in later}
            part.known = {name: value for name, value in made.items() if not _has_arrays(value)}
            return {name: value for name, value in made.items() if name not in part.known}

        def use_notes(notes: tuple[set[int], dict[str, Value]]) -> None:
            part.nodes, part.known = notes

        part = _Part(
            Program(
                compute,
                "the static part of the model",
                source=lambda: digest_of(self._loaded.digest, *map(_text_of, key)),
                notes=lambda: (part.nodes, part.known),
                use_notes=use_notes,
            )
        )
        return part


def _has_arrays(value: Value) -> bool:
    return isinstance(value, jax.Array) or (
        isinstance(value, list) and any(isinstance(element, jax.Array) for element in value)
    )


def _key(name: str, value: Value) -> Hashable:
    """A value's part in the key of a program: a known value's elements, or any other value's shape."""
    if isinstance(value, jax.Array):
        return name, value.shape, value.dtype
    if isinstance(value, list):
        return name, *(_key("", element) for element in value)
    return name if value is None else KeyedArray(name, np.asarray(value))


def _text_of(key: Hashable) -> str:
    """The same text for the same part of a key in every process."""
    if isinstance(key, tuple):
        return repr([*map(_text_of, key)])
    return key.digest if isinstance(key, KeyedArray) else str(key)
