"""Assembles graphs from ONNX models, PyDirectML, fused dispatches and serialized graphs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dmljax.descriptors.base import Operator
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import Path
from dmljax.graphs.graph import Graph, steps_of
from dmljax.graphs.steps import find_needed


class Assembly:
    """A graph under construction.

    Sources are written as in a `Graph`: the name of an input or a constant, or `node.output`.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Operator] = {}
        self.edges: dict[str, str] = {}
        self.inputs: dict[str, TensorDesc] = {}
        self.constants: dict[str, Any] = {}

    def add_node(self, name: str, node: Operator, sources: Iterable[str]) -> list[str]:
        """Adds a node whose inputs read these sources, in order; returns the sources of its outputs."""
        targets = node.tensors(is_input=True)
        self.nodes[name] = node
        self.edges |= {f"{name}.{key}": source for key, source in zip(targets, sources, strict=True)}
        return [f"{name}.{key}" for key in node.tensors(is_input=False)]

    def keep(self, outputs: Iterable[str]) -> None:
        """Drops the nodes and constants that these sources do not need; each node must follow those that it reads."""
        needed_names = {*find_needed(steps_of(self.nodes, self.edges), [*outputs])}
        self.nodes = {name: node for name, node in self.nodes.items() if name in needed_names}
        self.edges = {to: source for to, source in self.edges.items() if to.rpartition(".")[0] in needed_names}
        read = set(self.edges.values())
        self.constants = {name: value for name, value in self.constants.items() if name in read}

    def rename(self, sources: Mapping[str, str]) -> None:
        """Renames sources in all edges."""
        self.edges = {to: sources.get(source, source) for to, source in self.edges.items()}

    def finish(self, outputs: Mapping[str, str], views: Mapping[str, TensorDesc] | None = None) -> Graph:
        """The finished graph, with these outputs."""
        return Graph(
            nodes=self.nodes,
            edges=self.edges,
            inputs=self.inputs,
            outputs=outputs,
            constants=self.constants,
            views=views,
        )


def first_readers(nodes: Mapping[str, Operator], edges: Mapping[str, str]) -> dict[str, TensorDesc]:
    """The desc of the first tensor that reads each source, in the order of the nodes."""
    readers: dict[str, TensorDesc] = {}
    for name, node in nodes.items():
        for key, tensor in node.tensors(is_input=True).items():
            readers.setdefault(edges[f"{name}.{key}"], tensor)
    return readers


def walk_tensors(members: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yields the path and value of each tensor; a member is a tensor, a list of tensors or None."""
    for field, value in members.items():
        if isinstance(value, list):
            yield from (((field, i), tensor) for i, tensor in enumerate(value))
        elif value is not None:
            yield (field,), value


def map_tensor(function: Callable[[Any], Any], value: Any) -> Any:
    """Applies a function to a member's tensor, or to each tensor in a list; None stays None."""
    if isinstance(value, list):
        return [function(tensor) for tensor in value]
    return None if value is None else function(value)
