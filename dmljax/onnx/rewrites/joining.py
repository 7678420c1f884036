"""Joins the nodes that models write attention with, so that it is computed as a single operation.

Most exporters write attention as a product of queries and keys, a softmax, and a product with the values, with scales
and masks in between. Here we find such nodes by their operators, once. `dmljax.onnx.nodes.attention.joined` looks at
their values, and runs them separately if they compute something else.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dmljax.graphs.steps import GraphStep, find_needed
from dmljax.onnx.graph.graph import Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.graph.walks import steps_of
from dmljax.onnx.handlers.finder import find_known_names
from dmljax.onnx.handlers.registry import Handler
from dmljax.onnx.rewrites.patterns import Matcher, drop_unread, is_operator, replace_nodes
from dmljax.onnx.values.types import Elements

JOINED = "dmljax"  # the domain of joined nodes, which no file has
HIDDEN = -1e4  # numbers up to this one in masks are no parameters
MAX_STEPS = 16  # from the weights back to the product of queries and keys
MAX_MASK_BYTES = 2**24  # of stored masks that become constants of the compiled programs

_WEIGHT_STEPS = frozenset({"Cast", "Dropout", "Identity"})
_SCORE_INPUTS = {"Add": (0, 1), "Cast": (0,), "Div": (0,), "Identity": (0,), "Mul": (0, 1), "Where": (1, 2)}
_SCALINGS = ("Div", "Mul")
# The nodes, last first, that scale, transpose, or repeat the heads of keys or values in one step
_VIEWS = (("Div",), ("Mul",), ("Transpose",), ("Reshape", "Expand"), ("Reshape", "Transpose", "Reshape"))


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
    graph = replace(graph, nodes=tuple(_join_subgraphs(node, find) for node in graph.nodes))
    search = _AttentionFinder(graph, find)
    attentions = {node: written for node in graph.nodes if (written := search.attention(node)) is not None}
    bodies = {
        last: {last, *search.inner_nodes(written), *search.sources(written)} for last, written in attentions.items()
    }
    bodies = {last: body for last, body in bodies.items() if body & attentions.keys() == {last}}
    replacements = {last: [search.join(attentions[last], body)] for last, body in bodies.items()}
    return drop_unread(replace_nodes(graph, replacements), (node for body in bodies.values() for node in body))


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


class _AttentionFinder:
    """Looks for attention among the nodes of a graph."""

    def __init__(self, graph: OnnxGraph, find: Callable[[Node], Handler]) -> None:
        self._graph, self._find = graph, find
        self._measuring = {node for node in graph.nodes if find(node).measures}  # and read no elements
        self._matcher = Matcher(graph, ignored=self._measuring)
        self._masks: dict[str, OnnxGraph | None] = {}

    def attention(self, last: Node) -> WrittenAttention | None:
        """The attention whose last product is `last`, if there is one."""
        if not is_operator(last, "MatMul"):
            return None
        weights, name, reads = [last], last.inputs[0], 1
        while (node := self._matcher.maker(name, reads=reads)) is not None and len(weights) < MAX_STEPS:
            if node.operator == "Softmax":
                scores = self._trace_to_product(node.inputs[0], MAX_STEPS)
                return (
                    None if scores is None else WrittenAttention(tuple(weights), node, scores, self._masks_of(scores))
                )
            if self._guard(node) is not None:
                name, reads = node.inputs[2], 2
            elif node.operator in _WEIGHT_STEPS and not self._find(node).is_random(node):
                name, reads = node.inputs[0], 1
            else:
                break
            weights.append(node)
        return None

    def _guard(self, node: Node) -> Node | None:
        """The node that finds NaN among weights, if `node` replaces them."""
        test = self._matcher.maker(node.inputs[0], "IsNaN", reads=1) if node.operator == "Where" else None
        return test if test is not None and test.inputs == node.inputs[2:] else None

    def _trace_to_product(self, name: str, steps: int) -> tuple[Node, ...] | None:
        """The nodes from scores back to the product of queries and keys, whose results nothing else reads."""
        node = self._matcher.maker(name, reads=1)
        if node is None or steps == 0:
            return None
        if node.operator == "MatMul":
            return (node,)
        rests = (self._trace_to_product(node.inputs[i], steps - 1) for i in _SCORE_INPUTS.get(node.operator, ()))
        rest = next((nodes for nodes in rests if nodes is not None), None)
        return None if rest is None else (node, *rest)

    def inner_nodes(self, written: WrittenAttention) -> Iterator[Node]:
        """The nodes before the last product that only compute its weights."""
        yield from (*written.weights[1:], written.softmax, *written.scores)
        yield from filter(None, map(self._guard, written.weights[1:]))

    def sources(self, written: WrittenAttention) -> set[Node]:
        """The nodes that scale queries, or scale, transpose and repeat keys and values."""
        query, key = written.scores[-1].inputs
        nodes = {*filter(None, [self._matcher.maker(query, *_SCALINGS)])}
        for name in (key, written.weights[0].inputs[1]):
            while views := next(filter(None, (self._matcher.chain(name, *view) for view in _VIEWS)), ()):
                nodes.update(views)
                name = views[-1].inputs[0]
        return nodes

    def _masks_of(self, scores: Sequence[Node]) -> dict[str, OnnxGraph]:
        names = [name for node in scores if node.operator in ("Add", "Where") for name in node.inputs]
        for name in names:
            if name not in self._masks:
                self._masks[name] = self._constant_part(name)
        return {name: graph for name in names if (graph := self._masks[name]) is not None}

    def _constant_part(self, name: str) -> OnnxGraph | None:
        """The nodes that compute a value from constants and sizes; None if it depends on anything else."""
        return _part(find_needed(self._constant_steps, [name]), name) if name in self._known else None

    @functools.cached_property
    def _known(self) -> set[str]:
        """The names of values that depend only on constants and sizes."""
        return find_known_names(self._graph, self._find, {"", *self._graph.constants, *self._graph.free_names})

    @functools.cached_property
    def _constant_steps(self) -> dict[Node, GraphStep]:
        """The nodes that compute such values, without those that measure sizes."""
        nodes = (node for node in self._graph.nodes if node not in self._measuring)
        return steps_of(node for node in nodes if self._known.issuperset(node.outputs))

    def join(self, written: WrittenAttention, nodes: Collection[Node]) -> JoinedNode:
        last = written.weights[0]
        body = _part([node for node in self._graph.nodes if node in nodes], last.outputs[0])
        inputs = dict.fromkeys(name for name in names_read(*body.nodes) if name in body.free_names)
        inputs |= dict.fromkeys(name for graph in written.masks.values() for name in sorted(graph.free_names))
        attributes = {"body": body, "written": written}
        return JoinedNode("Attention", JOINED, 1, last.name, (*inputs,), last.outputs, attributes, index=last.index)


def _part(nodes: Iterable[Node], output: str) -> OnnxGraph:
    return OnnxGraph(tuple(nodes), (), (TensorType(output, None, None),))
