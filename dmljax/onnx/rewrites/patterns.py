"""Matches patterns of nodes in graphs, and replaces them."""

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, names_made, names_read
from dmljax.onnx.graph.walks import live_nodes


def is_operator(node: Node, *operators: str, domain: str = MAIN) -> bool:
    """Whether a node is one of these operators of a domain, or any if none are named."""
    return node.domain == domain and (not operators or node.operator in operators)


class Matcher:
    """The nodes that make and read each value of a graph, and its stored arrays.

    `stored` has constants and weights, by default the graph's constants. `ignored` nodes do not count as readers.
    """

    def __init__(
        self, graph: OnnxGraph, stored: Mapping[str, Any] | None = None, ignored: Collection[Node] = ()
    ) -> None:
        self.graph = graph
        self._stored = graph.constants if stored is None else stored
        self._ignored = ignored

    def maker(self, name: str, *operators: str, reads: int | None = None) -> Node | None:
        """The node that makes a value, if it is one of these operators, or any, of ONNX's main domain.

        With `reads`, only if the value is read so often.
        """
        node = self.graph.makers.get(name)
        fits = node is not None and is_operator(node, *operators) and reads in (None, self.reads(name))
        return node if fits else None

    def chain(self, name: str, *operators: str) -> tuple[Node, ...]:
        """The nodes that make a value, each the first input of the last; none if they are not these operators."""
        nodes: list[Node] = []
        for operator in operators:
            node = self.maker(nodes[-1].inputs[0] if nodes else name, operator)
            if node is None:
                return ()
            nodes.append(node)
        return tuple(nodes)

    def readers(self, names: Collection[str]) -> list[Node]:
        """The nodes that read any of these values."""
        wanted = {*names}
        return [node for node in self._readers if not wanted.isdisjoint(names_read(node))]

    def reads(self, name: str) -> int:
        """How often nodes and outputs read a value."""
        return self._reads[name]

    @property
    def _readers(self) -> list[Node]:
        return [node for node in self.graph.nodes if node not in self._ignored]

    @functools.cached_property
    def _reads(self) -> Counter[str]:
        return Counter((*names_read(*self._readers), *self.graph.output_names))

    def source(self, name: str) -> str:
        """The name of the stored array that a value is; the value's own name if it is computed."""
        source = name
        while node := self.maker(source, "Identity"):
            source = node.inputs[0]
        return source if source in self._stored or self.maker(source, "Constant") else name

    def array(self, name: str) -> Any:
        """The stored array that a value is; None if it is computed."""
        source = self.source(name)
        node = self.maker(source, "Constant")
        return self._stored.get(source) if node is None else node.attributes.get("value")

    def number(self, name: str) -> Any:
        """The single number that a stored array has; None for any other value."""
        array = self.array(name)
        return array.item() if array is not None and array.size == 1 else None


def replace_nodes(graph: OnnxGraph, replacements: Mapping[Node, Iterable[Node]]) -> OnnxGraph:
    """The graph with other nodes in place of some."""
    return replace(graph, nodes=tuple(new for node in graph.nodes for new in replacements.get(node, (node,))))


def drop_unread(graph: OnnxGraph, candidates: Iterable[Node] | None = None) -> OnnxGraph:
    """The graph without those of the `candidates`, by default all nodes, that lead to no output and no other node."""
    droppable = {*(graph.nodes if candidates is None else candidates)}
    results = names_made(*(node for node in graph.nodes if node not in droppable))
    live = {*live_nodes(graph.nodes, [*graph.output_names, *results])}
    return replace(graph, nodes=tuple(node for node in graph.nodes if node in live or node not in droppable))
