"""Joins the nodes that models write attention with, so that it is computed as a single operation.

Most exporters write attention as a product of queries and keys, a softmax, and a product with the values, with scales
and masks in between. Here we find such nodes by their operators, once. `dmljax.onnx.nodes.attention.joined` looks at
their values, and runs them separately if they compute something else.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.handlers.registry import Handler
from dmljax.onnx.handlers.signatures import Use
from dmljax.onnx.values.types import Elements

JOINED = "dmljax"  # the domain of joined nodes, which no file has
HIDDEN = -1e4  # numbers up to this one in masks are no parameters
MAX_STEPS = 16  # from the weights back to the product of queries and keys
MAX_MASK_BYTES = 2**24  # of stored masks that become constants of the compiled programs

_OF_WEIGHTS = frozenset({"Cast", "Dropout", "Identity"})
_OF_SCORES = {"Add": (0, 1), "Cast": (0,), "Div": (0,), "Identity": (0,), "Mul": (0, 1), "Where": (1, 2)}
_SCALINGS = frozenset({"Div", "Mul"})


@dataclass(frozen=True, eq=False)
class JoinedNode(Node):
    """A node that replaces several."""

    @property
    def place(self) -> tuple[str, ...]:
        return ()  # errors name the node of the file


@dataclass(frozen=True, eq=False)
class WrittenAttention:
    """The nodes that a model writes an attention with.

    `weights` leads from the last product back to the softmax, and `scores` from the softmax to the product of queries
    and keys; the softmax is in neither. `masks` has the nodes that compute a mask from constants and sizes only.
    """

    weights: tuple[Node, ...]
    softmax: Node
    scores: tuple[Node, ...]
    masks: Mapping[str, OnnxGraph]

    def numbers(self) -> Iterator[str]:
        """The names of the numbers in masks, and of those that replace hidden scores and NaN."""
        for node in (*self.weights, *self.scores):
            yield from node.inputs if node.operator == "Where" else ()
        for graph in self.masks.values():
            yield from graph.free_names


def join_attention(graph: OnnxGraph, find: Callable[[Node], Handler]) -> OnnxGraph:
    """Replaces the nodes of each attention in a graph and its subgraphs by a node that has them as its body."""
    nodes = tuple(_join_subgraphs(node, find) for node in graph.nodes)
    search = _AttentionFinder(replace(graph, nodes=nodes), find)
    attentions = {node: written for node in nodes if (written := search.attention(node)) is not None}
    bodies = {last: {last, *search.inner(written), *search.sources(written)} for last, written in attentions.items()}
    bodies = {last: body for last, body in bodies.items() if body & attentions.keys() == {last}}
    inside = {node for body in bodies.values() for node in body}
    read, left = {*graph.output_names}, list[Node]()
    for node in reversed(nodes):
        if node in bodies:
            left.append(search.join(attentions[node], bodies[node]))
        elif node in inside and not read.intersection(node.outputs):
            continue
        else:
            left.append(node)
        read.update(names_read(left[-1]))
    return replace(graph, nodes=tuple(left[::-1]))


def _join_subgraphs(node: Node, find: Callable[[Node], Handler]) -> Node:
    subgraphs = {
        name: join_attention(value, find) for name, value in node.attributes.items() if isinstance(value, OnnxGraph)
    }
    return replace(node, attributes={**node.attributes, **subgraphs}) if subgraphs else node


def constants_of_masks(graph: OnnxGraph, constants: Mapping[str, Elements]) -> frozenset[str]:
    """The constants of joined nodes that are not parameters: stored masks, and 0, 1 and very low numbers in masks."""
    written = (node.attributes["written"] for node in graph.nodes if isinstance(node, JoinedNode))
    names = {name for attention in written for name in attention.numbers() if name in constants}
    masks = {name for name in names if constants[name].dtype == bool}
    if sum(constants[name].nbytes for name in masks) > MAX_MASK_BYTES:
        masks = set()
    single = {name for name in names if constants[name].size == 1 and constants[name].dtype != object}
    return frozenset(masks | {name for name in single if constants[name] in (0, 1) or constants[name] <= HIDDEN})


def _all_read(nodes: Iterable[Node]) -> Iterator[str]:
    return (name for node in nodes for name in names_read(node))


class _AttentionFinder:
    """Looks for attention among the nodes of a graph."""

    def __init__(self, graph: OnnxGraph, find: Callable[[Node], Handler]) -> None:
        self._graph, self._find = graph, find
        # How often each value is read; readers of its sizes need no elements.
        readers = [node for node in graph.nodes if find(node).input(0).use is not Use.MEASURED]
        self._reads = Counter((*_all_read(readers), *graph.output_names))
        self._places = {node: i for i, node in enumerate(graph.nodes)}
        self._masks: dict[str, OnnxGraph | None] = {}

    def attention(self, last: Node) -> WrittenAttention | None:
        """The attention whose last product is `last`, if there is one."""
        if (last.operator, last.domain) != ("MatMul", MAIN):
            return None
        weights, name, reads = [last], last.inputs[0], 1
        while (node := self._maker(name, reads)) is not None and len(weights) < MAX_STEPS:
            if node.operator == "Softmax":
                scores = self._to_product(node.inputs[0], MAX_STEPS)
                return (
                    None if scores is None else WrittenAttention(tuple(weights), node, scores, self._masks_of(scores))
                )
            if self._guard(node) is not None:
                name, reads = node.inputs[2], 2
            elif node.operator in _OF_WEIGHTS and not self._draws(node):
                name, reads = node.inputs[0], 1
            else:
                break
            weights.append(node)
        return None

    def _maker(self, name: str, reads: int | None = None) -> Node | None:
        """The node that makes a value, if it is of ONNX's main domain and the value is read `reads` times."""
        node = self._graph.makers.get(name)
        return node if node is not None and node.domain == MAIN and reads in (None, self._reads[name]) else None

    def _guard(self, node: Node) -> Node | None:
        """The node that finds NaN among weights, if `node` replaces them."""
        test = self._maker(node.inputs[0], 1) if node.operator == "Where" else None
        return test if test is not None and (test.operator, *test.inputs) == ("IsNaN", node.inputs[2]) else None

    def _draws(self, node: Node) -> bool:
        draws = self._find(node).draws
        return draws is not None and draws(node)

    def _to_product(self, name: str, steps: int) -> tuple[Node, ...] | None:
        """The nodes from scores back to the product of queries and keys, whose results nothing else reads."""
        node = self._maker(name, 1)
        if node is None or steps == 0:
            return None
        if node.operator == "MatMul":
            return (node,)
        rests = (self._to_product(node.inputs[i], steps - 1) for i in _OF_SCORES.get(node.operator, ()))
        rest = next((nodes for nodes in rests if nodes is not None), None)
        return None if rest is None else (node, *rest)

    def inner(self, written: WrittenAttention) -> Iterator[Node]:
        """The nodes before the last product that only compute its weights."""
        yield from (*written.weights[1:], written.softmax, *written.scores)
        yield from filter(None, map(self._guard, written.weights[1:]))

    def sources(self, written: WrittenAttention) -> set[Node]:
        """The nodes that scale queries, or scale, transpose and repeat keys and values."""
        query, key = written.scores[-1].inputs
        scaling = self._maker(query)
        nodes = {scaling} if scaling is not None and scaling.operator in _SCALINGS else set()
        for name in (key, written.weights[0].inputs[1]):
            while views := self._views(name):
                nodes.update(views)
                name = views[-1].inputs[0]
        return nodes

    def _views(self, name: str) -> Sequence[Node]:
        """The nodes, last first, that scale, transpose, or repeat the heads of keys or values in one step."""
        last = self._maker(name)
        if last is None or last.operator in {"Transpose", *_SCALINGS}:
            return [] if last is None else [last]
        second = self._maker(last.inputs[0]) if last.operator == "Reshape" else None
        if second is None or second.operator == "Expand":
            return [] if second is None else [last, second]
        first = self._maker(second.inputs[0]) if second.operator == "Transpose" else None
        return [last, second, first] if first is not None and first.operator == "Reshape" else []

    def _masks_of(self, scores: Sequence[Node]) -> dict[str, OnnxGraph]:
        names = [name for node in scores if node.operator in ("Add", "Where") for name in node.inputs]
        for name in names:
            if name not in self._masks:
                self._masks[name] = self._constant_part(name)
        return {name: graph for name in names if (graph := self._masks[name]) is not None}

    def _constant_part(self, name: str) -> OnnxGraph | None:
        """The nodes that compute a value from constants and sizes; None if it depends on anything else."""
        nodes: set[Node] = set()
        waiting = [name]
        while waiting:
            source = waiting.pop()
            node = self._graph.makers.get(source)
            if node is None:
                if source in self._graph.input_names and source not in self._graph.constants:
                    return None
            elif node not in nodes and self._find(node).input(0).use is not Use.MEASURED:
                if not self._find(node).is_closed(node):
                    return None
                nodes.add(node)
                waiting += filter(None, node.inputs)
        return self._part(nodes, name)

    def _part(self, nodes: Collection[Node], output: str) -> OnnxGraph:
        return OnnxGraph(tuple(sorted(nodes, key=self._places.__getitem__)), (), (TensorType(output, None, None),))

    def join(self, written: WrittenAttention, nodes: Collection[Node]) -> JoinedNode:
        last = written.weights[0]
        body = self._part(nodes, last.outputs[0])
        inputs = dict.fromkeys(name for node in body.nodes for name in names_read(node) if name in body.free_names)
        inputs |= dict.fromkeys(name for graph in written.masks.values() for name in sorted(graph.free_names))
        attributes = {"body": body, "written": written}
        return JoinedNode("Attention", JOINED, 1, last.name, (*inputs,), last.outputs, attributes, index=last.index)
