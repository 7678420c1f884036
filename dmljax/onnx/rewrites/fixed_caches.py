"""Gives caches of a fixed size to decoders that have no attention mask, such as Whisper's.

Such a decoder appends keys and values to caches that grow, and counts the past tokens by their size, so that each token
would be another program. Here its attention becomes GroupQueryAttention, which counts by a mask, and an input says
which rows to read from its table of positions.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dmljax.errors import Problem, Unsupported
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType, names_read

_PREFIX = "fixed caches"  # of the names of added values
_LAST, _TOTAL = f"{_PREFIX}/last", f"{_PREFIX}/total"
_CONSTANTS = {f"{_PREFIX}/{name}": np.array(value) for name, value in (("one", 1), ("axis", [1]))}

# Operators that pass a number on
_SAME_NUMBER = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_RANK, _TOKENS = 4, 2  # of caches, and the axis of tokens among their axes
_KEY, _VALUE = 6, 7  # the places of caches among the inputs of MultiHeadAttention


class NamesOfInputs(NamedTuple):
    """The names of the inputs of a decoder with caches of a fixed size."""

    mask: str
    positions: str
    caches: Collection[str]


def with_fixed_caches(graph: OnnxGraph, inputs: NamesOfInputs) -> OnnxGraph:
    """The decoder with a mask and positions as further inputs; unchanged if it has a mask or no caches."""
    if inputs.mask in graph.input_names or not {*inputs.caches} & {*graph.input_names}:
        return graph
    stored = [node for node in graph.nodes if node.operator == "Constant" and "value" in node.attributes]
    known = {**graph.constants, **{node.outputs[0]: node.attributes["value"] for node in stored}}
    version = next((node.version for node in graph.nodes if node.domain == MAIN), 0)
    nodes = [revised for node in graph.nodes for revised in _revise_node(graph, node, inputs, known, version)]
    nodes = _needed_nodes([*_of_mask(inputs.mask, version), *nodes], graph.output_names)
    for node in nodes:
        if node.operator != "GroupQueryAttention" and (read := {*names_read(node)} & {*inputs.caches}):
            rule = "counts past tokens in a way that is not supported"
            remedy = "known are causal MultiHeadAttention without masks, and tables of positions that Slice cuts"
            raise Unsupported(Problem(node.place, rule, min(read), remedy=remedy))
    integers = np.dtype(np.int64)
    names = (name for name in (inputs.mask, inputs.positions) if name not in graph.input_names)
    added = (TensorType(name, integers, (None, None)) for name in names)
    return replace(
        graph, nodes=tuple(nodes), inputs=(*graph.inputs, *added), constants={**graph.constants, **_CONSTANTS}
    )


def _counts_past(graph: OnnxGraph, name: str, caches: Collection[str], known: Mapping[str, Any]) -> bool:
    """Whether a value is the number of past tokens: the size of a cache, with nothing added."""
    sizes, node = [*range(_RANK)], _maker(graph, name)
    while node is not None and (node.operator in _SAME_NUMBER or (node.operator == "Concat" and len(node.inputs) == 1)):
        node = _maker(graph, node.inputs[0])
    if node is not None and node.operator == "Gather":
        sizes = [sizes[i] for i in np.ravel(known.get(node.inputs[1], [])) if -_RANK <= i < _RANK]
        node = _maker(graph, node.inputs[0])
        if node is not None and node.attributes:
            return False
    if node is None or node.operator != "Shape" or node.inputs[0] not in caches:
        return False
    return sizes[node.attributes.get("start", 0) : node.attributes.get("end", _RANK)] == [_TOKENS]


def _maker(graph: OnnxGraph, name: str) -> Node | None:
    node = graph.makers.get(name)
    return node if node is not None and node.domain == MAIN else None


def _revise_node(
    graph: OnnxGraph, node: Node, inputs: NamesOfInputs, known: Mapping[str, Any], version: int
) -> Iterator[Node]:
    """Returns the nodes that replace a node; `version` is the version of ONNX's own operators."""
    if _is_attention(node, inputs.caches):
        yield from _with_counts(node, version)
    elif (
        (node.operator, node.domain) == ("Slice", MAIN)
        and _cuts_rows(node, known)
        and _counts_past(graph, node.inputs[1], inputs.caches, known)
    ):
        table = node.inputs[0]
        yield replace(node, operator="Gather", inputs=(table, inputs.positions), attributes={"axis": 0})
    else:
        yield node


def _is_attention(node: Node, caches: Collection[str]) -> bool:
    """Whether a node is causal attention over caches and new tokens, with nothing else."""
    names = dict(enumerate(node.inputs))
    others = [i for i, name in names.items() if name and i not in (0, 1, 2, 3, _KEY, _VALUE)]
    is_causal = node.operator == "MultiHeadAttention" and node.attributes.get("unidirectional") == 1
    return (
        is_causal and not others and all(map(names.get, (1, 2))) and {names.get(_KEY), names.get(_VALUE)} <= {*caches}
    )


def _with_counts(node: Node, version: int) -> Iterator[Node]:
    """The attention as GroupQueryAttention, which has no biases: these are added before it."""
    heads = node.attributes["num_heads"]
    attributes = {"num_heads": heads, "kv_num_heads": heads}
    attributes |= {name: node.attributes[name] for name in ("scale",) if name in node.attributes}
    parts = node.inputs[:3]
    if bias := node.inputs[3]:
        parts = tuple(f"{node.label}/{role}" for role in ("query", "key", "value"))
        biases = tuple(f"{name}/bias" for name in parts)
        of_split = {"num_outputs": 3} if version >= 18 else {}
        added = replace(node, operator="Add", domain=MAIN, version=version, attributes={})
        yield replace(added, operator="Split", inputs=(bias,), outputs=biases, attributes=of_split)
        for new, *terms in zip(parts, node.inputs, biases, strict=False):
            yield replace(added, inputs=tuple(terms), outputs=(new,))
    inputs = (*parts, *node.inputs[_KEY : _VALUE + 1], _LAST, _TOTAL)
    yield replace(node, operator="GroupQueryAttention", inputs=inputs, attributes=attributes)


def _cuts_rows(node: Node, known: Mapping[str, Any]) -> bool:
    """Whether a node cuts rows out of a constant table."""
    table, _, _, axes, steps, *_ = (*node.inputs, *[""] * 5)
    is_table = table in known and known[table].ndim == 2
    along, by = (np.ravel(known.get(name, -1)) if name else [usual] for name, usual in ((axes, 0), (steps, 1)))
    return is_table and [*along] == [0] and [*by] == [1]


def _of_mask(mask: str, version: int) -> Iterator[Node]:
    """The nodes that find the place of the last token, and the size of the caches, from a mask."""

    def node(operator: str, inputs: Iterable[str], output: str, **attributes: Any) -> Node:
        return Node(operator, MAIN, version, output, tuple(inputs), (output,), attributes)

    one, axis = _CONSTANTS
    visible, before, sizes, size = (f"{_PREFIX}/{name}" for name in ("seen", "before", "sizes", "size"))
    integers = 6  # ONNX's number of INT32
    yield node("ReduceSum", (mask, axis), visible, keepdims=1)
    yield node("Sub", (visible, one), before)
    yield node("Cast", (before,), _LAST, to=integers)
    yield node("Shape", (mask,), sizes)
    yield node("Gather", (sizes, one), size, axis=0)
    yield node("Cast", (size,), _TOTAL, to=integers)


def _needed_nodes(nodes: Iterable[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes whose results lead to outputs."""
    read, needed = {*outputs}, []
    for node in reversed([*nodes]):
        if read.intersection(node.outputs):
            needed.append(node)
            read.update(names_read(node))
    return needed[::-1]
