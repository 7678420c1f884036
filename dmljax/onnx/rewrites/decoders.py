"""Fits the graphs of language models to sequences in buffers: how they look up angles, count tokens and compute logits.

Models of the Phi-3 family have two tables of rotary angles, for short and for long sequences, and choose between them
by the length of the mask. Here the mask is as long as the buffer, so a single table holds the rows of both, and a
token's position selects its row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dmljax.errors import Problem, Unsupported
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType
from dmljax.onnx.graph.walks import dependent_names, live_nodes
from dmljax.onnx.handlers.registry import MICROSOFT, Handler
from dmljax.onnx.rewrites.patterns import Matcher, is_operator, replace_nodes

ROWS = "\0rows"  # the input that chooses a token of each sequence
COUNTS = "\0counts"  # the input that has the number of new tokens of each sequence
_CHOSEN = "\0chosen"

_PRODUCTS = frozenset({("MatMul", MAIN), ("MatMulNBits", MICROSOFT)})  # of the rows of their first input
_SIZES_ONLY = frozenset({"Shape", "Size"})


class Tables(NamedTuple):
    """Two tables of angles, joined: sequences of more than `most` tokens use the rows after the first `short`."""

    most: int
    short: int


# Tables of angles


def with_one_table(
    graph: OnnxGraph, stored: Mapping[str, Any], mask: str, positions: TensorType
) -> tuple[OnnxGraph, Tables | None]:
    """Joins a graph's two tables of angles, which attention then looks up at `positions`; None without two tables."""
    matcher = Matcher(graph, stored)
    choices = [node for node in graph.nodes if node.operator == "If" and _is_by_size(matcher, node.inputs[0], mask)]
    if not choices:
        return graph, None
    choice, *others = choices
    most, tables = _threshold(matcher, choice.inputs[0], mask), _tables(choice)
    readers = matcher.readers(choice.outputs)
    are_attentions = all(_may_look_up(choice.outputs, positions.name, node) for node in readers)
    if others or most is None or tables is None or not are_attentions:
        rule = "must choose the angles of GroupQueryAttention, by whether the mask is longer than a number"
        raise Unsupported(Problem(choice.place, rule))
    replacements = {node: [_with_input(node, _POSITIONS, positions.name)] for node in readers}
    replacements[choice] = [
        Node("Constant", MAIN, choice.version, name, (), (name,), {"value": np.concatenate(pair)})
        for name, pair in zip(choice.outputs, tables, strict=True)
    ]
    inputs = graph.inputs if positions.name in graph.input_names else (*graph.inputs, positions)
    return replace(replace_nodes(graph, replacements), inputs=inputs), Tables(most, len(tables[0][0]))


def _is_by_size(matcher: Matcher, condition: str, mask: str) -> bool:
    before = live_nodes(matcher.graph.nodes, [condition])
    return any(node.operator in _SIZES_ONLY and mask in node.inputs for node in before)


def _threshold(matcher: Matcher, condition: str, mask: str) -> int | None:
    """The number of tokens beyond which a condition holds; None if it depends on anything else."""
    match matcher.chain(condition, "Greater", "Gather", "Shape"):
        case comparison, size, sizes if sizes.inputs == (mask,) and not sizes.attributes:
            return matcher.number(comparison.inputs[1]) if matcher.number(size.inputs[1]) == 1 else None
    return None


def _tables(choice: Node) -> list[tuple[Any, Any]] | None:
    """The table of each output for short and for long sequences; None if a table is not stored or does not fit."""
    branches = [Matcher(choice.attributes[name]) for name in _BRANCHES]
    arrays = [[branch.array(name) for name in branch.graph.output_names] for branch in branches]
    pairs = [*zip(*arrays, strict=True)]
    if any(table is None or table.ndim != 2 for pair in pairs for table in pair):
        return None
    fit = all(short.shape[1] == long.shape[1] and len(short) == len(pairs[0][0]) for short, long in pairs)
    return pairs if fit else None


_BRANCHES = ("else_branch", "then_branch")
_ANGLES, _POSITIONS, _COUNTS = slice(7, 9), 9, 16  # inputs of GroupQueryAttention


def _may_look_up(tables: Sequence[str], positions: str, node: Node) -> bool:
    """Whether a node is an attention that reads these tables at `positions`, or at positions that it counts."""
    positions_read = node.inputs[_POSITIONS : _POSITIONS + 1]
    return _is_attention(node) and node.inputs[_ANGLES] == tables and positions_read in ((), ("",), (positions,))


def _with_input(node: Node, place: int, name: str) -> Node:
    before = (*node.inputs, *[""] * place)[:place]
    return replace(node, inputs=(*before, name, *node.inputs[place + 1 :]))


def with_counts(graph: OnnxGraph) -> OnnxGraph:
    """Tells attention which new tokens are padding: those after the first `COUNTS` of each sequence."""
    for node in graph.nodes:
        if is_operator(node, "SparseAttention", domain=MICROSOFT):
            raise Unsupported(Problem(node.place, "not supported in language models; dmljax.onnx.load runs the model"))
    nodes = tuple(_with_input(node, _COUNTS, COUNTS) if _is_attention(node) else node for node in graph.nodes)
    counts = TensorType(COUNTS, np.dtype(np.int32), (None,))
    return replace(graph, nodes=nodes, inputs=(*graph.inputs, counts))


def _is_attention(node: Node) -> bool:
    return is_operator(node, "GroupQueryAttention", domain=MICROSOFT)


# The size of the mask


def with_counted_tokens(graph: OnnxGraph, stored: Mapping[str, Any], mask: str) -> OnnxGraph:
    """Counts the tokens that a mask shows where a graph compares its size with a number.

    A graph expects a mask as long as the sequences; here it is as long as the buffer.
    """
    matcher = Matcher(graph, stored)
    replacements = {}
    for node in graph.nodes:
        if node.operator in _COMPARISONS:
            inputs = tuple(_TOKENS if _is_size(matcher, name, mask) else name for name in node.inputs)
            is_with_number = any(matcher.number(name) is not None for name in node.inputs)
            if inputs != node.inputs and is_with_number:
                replacements[node] = [replace(node, inputs=inputs)]
    if not replacements:
        return graph
    counted = replace_nodes(graph, replacements)
    return replace(counted, nodes=(*_counting_nodes(mask), *counted.nodes))


_COMPARISONS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_TOKENS = "\0tokens"


def _is_size(matcher: Matcher, name: str, mask: str) -> bool:
    """Whether a value is the number of the mask's columns."""
    match matcher.chain(name, "Gather", "Shape"):
        case size, sizes:
            return sizes.inputs == (mask,) and not sizes.attributes and bool(matcher.number(size.inputs[1]) == 1)
    return False


def _counting_nodes(mask: str) -> Iterator[Node]:
    """The nodes that count the tokens of the longest sequence."""
    axis, integers, sums = (f"{_TOKENS}/{name}" for name in ("axis", "integers", "sums"))
    yield Node("Constant", MAIN, 13, axis, (), (axis,), {"value": np.array([1])})
    yield Node("Cast", MAIN, 13, integers, (mask,), (integers,), {"to": 7})  # ONNX's number of INT64
    yield Node("ReduceSum", MAIN, 13, sums, (integers, axis), (sums,), {"keepdims": 0})
    yield Node("ReduceMax", MAIN, 13, _TOKENS, (sums,), (_TOKENS,), {"keepdims": 0})


# Logits


class Logits(NamedTuple):
    """A graph for the logits of all tokens, and another for the token that `ROWS` chooses in each sequence."""

    all: OnnxGraph
    chosen: OnnxGraph


def with_logits(graph: OnnxGraph, stored: Mapping[str, Any], find: Callable[[Node], Handler], logits: str) -> Logits:
    """Chooses tokens before the product with the vocabulary, if all later nodes work row by row."""
    matcher = Matcher(graph, stored)
    rows, reader = _find_logit_rows(matcher, find, logits)
    all_rows = _find_all_rows(matcher, rows)
    place = len(graph.nodes) if reader is None else graph.nodes.index(reader)

    def reading(name: str, *added: Node) -> OnnxGraph:
        """The graph in which the reader, or the caller, reads another value."""
        before, after = graph.nodes[:place], graph.nodes[place + 1 :]
        if reader is None:
            outputs = tuple(replace(output, name=name) if output.name == logits else output for output in graph.outputs)
            return replace(graph, nodes=(*before, *added), outputs=outputs)
        rewired = replace(reader, inputs=tuple(name if value == rows else value for value in reader.inputs))
        return replace(graph, nodes=(*before, *added, rewired, *after))

    choice = Node("GatherND", MAIN, 13, "", (all_rows, ROWS), (_CHOSEN,), {"batch_dims": 1})
    chosen = reading(_CHOSEN, choice)
    wanted = TensorType(ROWS, np.dtype(np.int32), (None, 1, 1))
    return Logits(reading(all_rows), replace(chosen, inputs=(*chosen.inputs, wanted)))


def _find_logit_rows(matcher: Matcher, find: Callable[[Node], Handler], logits: str) -> tuple[str, Node | None]:
    """The rows that logits are computed from row by row, and the first node that reads them, if any."""
    inputs = (name for name in matcher.graph.input_names if matcher.array(name) is None)
    varying = dependent_names(matcher.graph.nodes, inputs)
    name, reader = logits, None
    while (node := matcher.graph.makers.get(name)) is not None and matcher.reads(name) == 1:
        first, *others = node.inputs
        if (node.operator, node.domain) in _PRODUCTS and varying.isdisjoint(others):
            return first, node
        computed = [value for value in node.inputs if value in varying]
        is_alone = all(_is_flat(matcher.array(value)) for value in node.inputs if value not in computed)
        if len(computed) != 1 or not is_alone or not find(node).is_elementwise:
            break
        name, reader = computed[0], node
    return name, reader


def _is_flat(array: Any) -> bool:
    """Whether an array is stored, and the same for each row."""
    return array is not None and array.size in (1, *array.shape[-1:])


def _find_all_rows(matcher: Matcher, rows: str) -> str:
    """Finds the rows of all tokens where the graph keeps only the last row of each sequence."""
    match matcher.chain(rows, "Unsqueeze", "Gather"):
        case _, last if _is_last_row(matcher, last, 0):
            return last.inputs[0]
    last_rows = matcher.maker(rows, "Gather")
    return last_rows.inputs[0] if last_rows is not None and _is_last_row(matcher, last_rows, 1) else rows


def _is_last_row(matcher: Matcher, node: Node, rank: int) -> bool:
    """Whether a node chooses the last row of each sequence, by a place of this rank."""
    place = matcher.array(node.inputs[1])
    return node.attributes.get("axis") == 1 and place is not None and place.ndim == rank and bool(np.all(place == -1))
