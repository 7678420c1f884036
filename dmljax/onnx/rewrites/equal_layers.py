"""Finds the equal layers of a graph, such as a transformer's blocks.

Layers are equal if their nodes are, with the same connections, and their weights have the same types and sizes. Each
reads results of the layer before it, its own weights and inputs, such as its past keys, and values that all share.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dmljax.onnx.graph.graph import Node, OnnxGraph, names_made
from dmljax.onnx.graph.walks import dependent_names
from dmljax.onnx.rewrites.joining import JoinedNode, WrittenAttention
from dmljax.onnx.rewrites.patterns import Matcher, is_operator

Place = tuple[int, int]  # of a result in a layer: the node and its output

# Operators whose further outputs change nothing about the first; the last layer often has fewer.
_WITH_MORE_OUTPUTS = frozenset(
    {
        "LayerNormalization",
        "SimplifiedLayerNormalization",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    }
)


class Layers(NamedTuple):
    """Equal layers, from the first: the nodes of each, and how they are connected.

    `carried` has the results that the next layer reads, with what the first layer reads in their place. `per_layer` has
    the names that the layers read in the same places, by the names there in the layer `template`; other values from
    outside are common to all layers. Values that differ in any layer have different names in the template.
    """

    blocks: tuple[tuple[Node, ...], ...]
    template: int
    carried: Mapping[Place, str]
    per_layer: Mapping[str, tuple[str, ...]]

    def result(self, layer: int, place: Place) -> str:
        """The name of a layer's result; empty if it is absent."""
        node, output = place
        names = self.blocks[layer][node].outputs
        return names[output] if output < len(names) else ""

    @property
    def nodes(self) -> set[Node]:
        return {node for block in self.blocks for node in block}

    def results(self) -> dict[str, tuple[int, Place]]:
        """The layer and the place of each result by name."""
        return {name: (k, place) for k, block in enumerate(self.blocks) for name, place in _places(block).items()}

    @property
    def saved(self) -> int:
        """The number of nodes in all layers but one."""
        return sum(map(len, self.blocks[1:]))


def _places(block: Sequence[Node]) -> dict[str, Place]:
    """The places of a layer's results by name."""
    return {name: (i, j) for i, node in enumerate(block) for j, name in enumerate(node.outputs) if name}


class Labeler:
    """Decides which values and nodes of a graph are equal.

    `types` are of weights, and `constants` are other stored arrays. Nodes that are `apart` equal no others.
    """

    def __init__(
        self, graph: OnnxGraph, types: Mapping[str, Any], constants: Mapping[str, Any], apart: Collection[Node] = ()
    ) -> None:
        self._types, self._inputs = types, {tensor.name: tensor for tensor in graph.inputs}
        self._apart = apart
        self._constants: dict[str, Hashable] = {name: _freeze(np.asarray(value)) for name, value in constants.items()}
        stored = [node for node in graph.nodes if is_operator(node, "Constant")]
        self._constants |= {node.outputs[0]: _attributes(node) for node in stored}
        matcher = Matcher(graph, {**constants, **types})
        self._sources = {name: source for name in graph.makers if (source := matcher.source(name)) != name}
        self.stored = {*stored, *map(graph.makers.__getitem__, self._sources)}

    def source(self, name: str) -> str:
        """The name of the array that a value is, if it is stored."""
        return self._sources.get(name, name)

    def key(self, name: str) -> Hashable:
        """The same key for values that are the same."""
        source = self.source(name)
        return self._constants.get(source, source)

    def kind(self, name: str) -> Hashable:
        """The same kind for weights, or inputs, of one type; None for any other value."""
        source = self.source(name)
        if source in self._types:
            return "weight", tuple(self._types[source].shape), str(self._types[source].dtype)
        tensor = self._inputs.get(source)
        return None if tensor is None or source in self._constants else ("input", tensor.dtype, tensor.sizes)

    def label(self, node: Node) -> Hashable:
        """The same label for nodes that are equal, whatever computed values they read."""
        if node in self._apart:
            return node

        def label_of_value(name: str) -> Hashable:
            source, key = self.source(name), self.key(name)
            return self.kind(name) if source in self._types else key if key != source or not name else None

        outputs = 0 if node.operator in _WITH_MORE_OUTPUTS else len(node.outputs)
        return operator_key(node), outputs, tuple(map(label_of_value, reads(node)))


def reads(node: Node) -> list[str]:
    """The names that a node and its subgraphs read from outside, in an order that equal nodes share."""
    names = [] if isinstance(node, JoinedNode) else [*node.inputs]
    for graph in _graphs(node):
        defined = _defined_names(graph)
        names += (name for name in _reads_in(graph) if name not in defined)
    return names


def _graphs(node: Node) -> Iterator[OnnxGraph]:
    yield from node.subgraphs
    for value in node.attributes.values():
        if isinstance(value, WrittenAttention):
            yield from value.masks.values()


def _reads_in(graph: OnnxGraph) -> Iterator[str]:
    for node in graph.nodes:
        yield from reads(node)
    yield from graph.output_names


def _defined_names(graph: OnnxGraph) -> dict[str, int]:
    """The names that a graph defines, with their order."""
    names = (*graph.input_names, *graph.constants, *names_made(*graph.nodes))
    return {name: i for i, name in enumerate(names)}


def operator_key(node: Node) -> Hashable:
    """An operator and its attributes, without names."""
    return node.operator, node.domain, node.version, node.overload, _attributes(node)


def _attributes(node: Node) -> Hashable:
    return tuple(sorted((name, _freeze(value)) for name, value in node.attributes.items()))


def _freeze(value: Any) -> Hashable:
    """Converts a value for comparison: NaN equals itself, and numbers of different types differ."""
    match value:
        case np.ndarray():
            return str(value.dtype), value.shape, value.tobytes() if value.dtype != object else repr(value.tolist())
        case OnnxGraph():
            defined = _defined_names(value)
            connected = tuple(defined.get(name, -1) for name in _reads_in(value))
            stored = tuple(_freeze(np.asarray(array)) for array in value.constants.values())
            return tuple(map(operator_key, value.nodes)), connected, len(value.inputs), len(value.outputs), stored
        case WrittenAttention():
            return tuple(map(_freeze, value.masks.values()))
        case _:
            return repr(value)


# The search


def find_layers(graph: OnnxGraph, labeler: Labeler) -> list[Layers]:
    """The equal layers of a graph, in order; a graph may have several sequences of them."""
    nodes = [node for node in graph.nodes if node not in labeler.stored]
    numbers: dict[Hashable, int] = {}
    labels = np.array([numbers.setdefault(labeler.label(node), len(numbers)) for node in nodes])
    return [*_find_in_repetition(graph, labeler, nodes, labels)]


def _find_in_repetition(graph: OnnxGraph, labeler: Labeler, nodes: Sequence[Node], labels: Any) -> Iterator[Layers]:
    for first, period, length in _find_repetitions(labels):
        sequences = _layers_in(labeler, nodes[first : first + length], period)
        longer = [_prepend_layer(graph, labeler, layers, nodes) or layers for layers in sequences]
        if longer:
            best = max(longer, key=lambda layers: (len(layers.blocks), -len(layers.carried)))
            start, end = min(map(nodes.index, best.blocks[0])), max(map(nodes.index, best.blocks[-1])) + 1
            yield from _find_in_repetition(graph, labeler, nodes[:start], labels[:start])
            yield best
            yield from _find_in_repetition(graph, labeler, nodes[end:], labels[end:])
            return


def _find_repetitions(labels: Any) -> list[tuple[int, int, int]]:
    """The first place, the period and the length of each repetition, the longest first."""
    repetitions = []
    for period in range(1, len(labels) // 2 + 1):
        is_equal = np.concatenate([[False], labels[:-period] == labels[period:], [False]])
        changes = np.flatnonzero(np.diff(is_equal))
        for start, end in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
            if end - start >= period:
                repetitions.append((start, period, end - start + period))
    return sorted(
        repetitions,
        key=lambda repetition: (repetition[1] * (repetition[2] // repetition[1] - 1), -repetition[1]),
        reverse=True,
    )


def _layers_in(labeler: Labeler, nodes: Sequence[Node], period: int) -> list[Layers]:
    """The layers of a repetition for each place where they may begin; all of them, or as many as are connected."""

    def blocks(start: int) -> list[Sequence[Node]]:
        return [nodes[i : i + period] for i in range(start, len(nodes) - period + 1, period)]

    whole = [_connect(labeler, blocks(start)) for start in range(len(nodes) % period + 1)]
    return [*filter(None, whole)] or [
        *filter(None, (_find_longest_chain(labeler, blocks(start)) for start in range(period)))
    ]


def _find_longest_chain(labeler: Labeler, blocks: Sequence[Sequence[Node]]) -> Layers | None:
    """The longest sequence of blocks of which each two neighbors are connected equally."""
    chains: list[list[Sequence[Node]]] = [[]]
    for pair in pairwise(blocks):
        if _connect(labeler, pair) is None:
            chains.append([])
        else:
            chains[-1] += pair[1:] if chains[-1] else pair
    longest = max(chains, key=len)
    return _connect(labeler, longest) if longest else None


def _connect(labeler: Labeler, blocks: Sequence[Sequence[Node]]) -> Layers | None:
    """The connections of nodes with equal labels; None if they differ between layers."""
    places_by_block = [*map(_places, blocks)]
    names = [[name for node in block for name in reads(node)] for block in blocks]
    everywhere = {name for places in places_by_block for name in places}
    template = max(range(len(blocks)), key=lambda k: len(places_by_block[k]) + len({*names[k]}))
    carried: dict[Place, str] = {}
    per_layer: dict[str, tuple[str, ...]] = {}
    common: set[str] = set()
    for column in zip(*names, strict=True):
        inner = {here.get(name) for here, name in zip(places_by_block, column, strict=True)}
        if inner != {None}:
            if len(inner) > 1:
                return None
            continue
        before = {there.get(name) for there, name in zip(places_by_block, column[1:], strict=False)}
        outside = column if before == {None} else column[:1]
        if everywhere.intersection(outside) or len(before) > 1:
            return None
        (place,) = before
        name = column[template]
        if place is not None:
            if carried.setdefault(place, column[0]) != column[0]:
                return None
        elif len({*map(labeler.key, column)}) == 1:
            common.add(name)
        elif (
            len({*map(labeler.kind, column)}) > 1
            or labeler.kind(name) is None
            or per_layer.setdefault(name, column) != column
        ):
            return None
    initial = [*carried.values()] if template == 0 else []
    is_clear = len({*initial}) == len(initial) and not {*per_layer} & (common | {*initial}) and not common & {*initial}
    return (
        Layers(tuple(map(tuple, blocks)), template, carried, per_layer) if per_layer and carried and is_clear else None
    )


def _prepend_layer(graph: OnnxGraph, labeler: Labeler, layers: Layers, nodes: Sequence[Node]) -> Layers | None:
    """The layers with one more of `nodes` before them, between whose nodes there are some that all layers read.

    Exporters compute what is the same in all layers only once, in the first layer.
    """
    first, *_ = layers.blocks
    result_places = _places(first)
    labels = [*map(labeler.label, first)]
    counterparts: dict[int, Node] = {}
    before = nodes[: nodes.index(first[0])]
    makers = {name: node for node in before for name in node.outputs}
    waiting = [*layers.carried.items()]
    while waiting:
        (i, j), name = waiting.pop()
        node = makers.get(name)
        if node is None or node.outputs.index(name) != j or counterparts.get(i, node) is not node:
            return None
        if i not in counterparts:
            if labeler.label(node) != labels[i]:
                return None
            counterparts[i] = node
            waiting += (
                (result_places[value], other)
                for value, other in zip(reads(first[i]), reads(node), strict=True)
                if value in result_places
            )
    if len(counterparts) < len(first):
        counterparts |= _find_counterparts(labeler, before, first, result_places, counterparts)
    if counterparts.keys() != {*range(len(first))}:
        return None
    longer = _connect(labeler, [[counterparts[i] for i in range(len(first))], *layers.blocks])
    return longer if longer is not None and not _reads_itself(graph, longer) else None


def _find_counterparts(
    labeler: Labeler,
    nodes: Sequence[Node],
    block: Sequence[Node],
    result_places: Mapping[str, Place],
    counterparts: Mapping[int, Node],
) -> dict[int, Node]:
    """Finds the counterparts in `nodes` of a block's nodes that only outputs of the graph depend on."""
    others, taken = dict(counterparts), {*counterparts.values()}
    for i, node in enumerate(block):
        if i not in others:
            places = [result_places.get(name) for name in reads(node)]
            if any(place is not None and place[0] not in others for place in places):
                return {}
            names = [None if place is None else others[place[0]].outputs[place[1]] for place in places]
            equal_nodes = (
                candidate
                for candidate in nodes
                if candidate not in taken and labeler.label(candidate) == labeler.label(node)
            )
            fitting = (
                candidate
                for candidate in equal_nodes
                if all(a in (None, b) for a, b in zip(names, reads(candidate), strict=True))
            )
            if (counterpart := next(fitting, None)) is None:
                return {}
            others[i] = counterpart
            taken.add(counterpart)
    return others


def _reads_itself(graph: OnnxGraph, layers: Layers) -> bool:
    """Whether layers read, through other nodes, results of layers that are not carried."""
    results, inside = layers.results(), layers.nodes
    computed = dependent_names((node for node in graph.nodes if node not in inside), results).difference(results)
    return any(name in computed for node in inside for name in reads(node))
