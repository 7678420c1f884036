"""Makes graphs with fewer of their equal layers, to estimate what each layer costs."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.foundation.checks import integer_in
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, names_read
from dmljax.onnx.rewrites.equal_layers import Labeler, Layers, Place, find_layers, operator_key, reads
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.rewrites.patterns import drop_unread

_VERSION = 14  # of the Identity that gives a layer's result the name of the last layer's


def longest_layers(loaded: LoadedGraph) -> Layers | None:
    """The equal layers with the most nodes; None if a graph has none."""
    layers = find_layers(loaded.graph, Labeler(loaded.graph, loaded.types, loaded.constants))
    return max(layers, key=lambda sequence: sequence.saved, default=None)


def graph_with_layers(loaded: LoadedGraph, count: int) -> OnnxGraph:
    """The graph with only the first of its equal layers."""
    layers = longest_layers(loaded)
    if layers is None:
        raise Unsupported(Problem("model", "must have equal layers", "none"))
    return _shorten(loaded.graph, layers, integer_in("count", count, 1, len(layers.blocks)))


def _shorten(graph: OnnxGraph, layers: Layers, count: int) -> OnnxGraph:
    """The graph with only the first `count` layers, and without the inputs and outputs of the others."""
    last = len(layers.blocks) - 1
    if count > last:
        return graph
    inside, results = layers.nodes, layers.results()
    dropped = {node for block in layers.blocks[count:] for node in block}
    after = {node: [*_readings(node, results)] for node in graph.nodes if node not in inside}
    given = {name: [_Reading(*results[name], None)] for name in graph.output_names if name in results}
    # A reader with counterparts in other layers belongs to its layer; any other continues after the last layer.
    all_readings = [entry for readings in (*after.values(), *given.values()) for entry in readings]
    regular = {entry.key for entry in all_readings if entry.layer < last}
    final = {entry.place for entry in all_readings if entry.layer == last and entry.key not in regular}

    def remains(readings: Iterable[_Reading]) -> bool:
        return all(entry.layer < count or (entry.layer == last and entry.key not in regular) for entry in readings)

    end = max(layers.blocks[count - 1], key=graph.nodes.index)
    nodes: list[Node] = []
    gone: set[str] = set()
    for node in graph.nodes:
        if node in dropped or not remains(after.get(node, ())) or gone.intersection(names_read(node)):
            gone |= {*node.outputs} if node in after else set()
            continue
        nodes.append(node)
        if node is end:
            pairs = ((layers.result(count - 1, place), layers.result(last, place)) for place in sorted(final))
            nodes += (Node("Identity", MAIN, _VERSION, "", (value,), (name,), {}) for value, name in pairs)
    outputs = tuple(entry for entry in graph.outputs if entry.name not in gone and remains(given.get(entry.name, ())))
    if not outputs:
        raise InvalidDesc(Problem("count", f"must leave outputs, but all depend on layers after the first {count}"))
    shorter = drop_unread(replace(graph, nodes=tuple(nodes), outputs=outputs))
    before, now = ({*names_read(*some.nodes)} for some in (graph, shorter))
    inputs = tuple(entry for entry in graph.inputs if entry.name in now or entry.name not in before)
    return replace(shorter, inputs=inputs)


def renumber_caches(graph: OnnxGraph, patterns: Sequence[str], layers: int) -> tuple[OnnxGraph, int]:
    """A graph that lacks some layers, with its caches numbered from 0, and the number of layers that have some.

    `patterns` have the place of a layer's number in the names of caches.
    """
    left = [i for i in range(layers) if {pattern % i for pattern in patterns} & {*graph.input_names}]
    names = {pattern % old: pattern % new for new, old in enumerate(left) for pattern in patterns if old != new}

    def rename(some: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in some)

    nodes = (replace(node, inputs=rename(node.inputs), outputs=rename(node.outputs)) for node in graph.nodes)
    inputs, outputs = (
        tuple(replace(tensor, name=names.get(tensor.name, tensor.name)) for tensor in side)
        for side in (graph.inputs, graph.outputs)
    )
    return replace(graph, nodes=tuple(nodes), inputs=inputs, outputs=outputs), len(left)


class _Reading(NamedTuple):
    """A result of a layer that a node after it reads; None instead of a reader for outputs of the graph."""

    layer: int
    place: Place
    reader: Hashable

    @property
    def key(self) -> Hashable:
        """The part that readings of other layers share."""
        return self.place, self.reader


def _readings(node: Node, results: Mapping[str, tuple[int, Place]]) -> Iterator[_Reading]:
    for i, name in enumerate(reads(node)):
        if name in results:
            yield _Reading(*results[name], (i, operator_key(node)))
