"""Gives caches of a fixed size to decoders that have no attention mask, such as Whisper's.

Such a decoder appends keys and values to caches that grow, and counts the past tokens by their size, which would
compile a program for each token. Here its attention becomes GroupQueryAttention, which counts by a mask, and an input
says which rows to read from its table of positions.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dmljax.errors import Problem, Unsupported
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.rewrites.patterns import Matcher, drop_unread, is_operator, replace_nodes

_PREFIX = "fixed caches"  # of the names of added values
_LAST, _TOTAL = f"{_PREFIX}/last", f"{_PREFIX}/total"
_CONSTANTS = {f"{_PREFIX}/{name}": np.array(value) for name, value in (("one", 1), ("axis", [1]))}

# Operators that pass a number on
_SAME_NUMBER = ("Cast", "Concat", "Identity", "Reshape", "Squeeze", "Unsqueeze")
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
    matcher = Matcher(graph)
    version = next((node.version for node in graph.nodes if is_operator(node)), 0)
    decoder = replace_nodes(graph, {node: _revise_node(matcher, node, inputs, version) for node in graph.nodes})
    decoder = drop_unread(replace(decoder, nodes=(*_mask_nodes(inputs.mask, version), *decoder.nodes)))
    for node in Matcher(decoder).readers(inputs.caches):
        if node.operator != "GroupQueryAttention" and not is_operator(node, "Identity"):
            rule = "counts past tokens in a way that is not supported"
            remedy = "known are causal MultiHeadAttention without masks, and tables of positions that Slice cuts"
            raise Unsupported(Problem(node.place, rule, min({*names_read(node)} & {*inputs.caches}), remedy=remedy))
    integers = np.dtype(np.int64)
    names = (name for name in (inputs.mask, inputs.positions) if name not in graph.input_names)
    added = (TensorType(name, integers, (None, None)) for name in names)
    return replace(decoder, inputs=(*graph.inputs, *added), constants={**graph.constants, **_CONSTANTS})


def _counts_past(matcher: Matcher, name: str, caches: Collection[str]) -> bool:
    """Whether a value is the number of past tokens: the size of a cache, with nothing added."""
    while (node := matcher.maker(name, *_SAME_NUMBER)) is not None:
        if node.operator == "Concat" and len(node.inputs) > 1:
            return False
        name = node.inputs[0]
    choice = matcher.maker(name, "Gather")
    sizes = matcher.maker(name if choice is None else choice.inputs[0], "Shape")
    if sizes is None or sizes.inputs[0] not in caches:
        return False
    if choice is not None:
        return not sizes.attributes and matcher.number(choice.inputs[1]) in (_TOKENS, _TOKENS - _RANK)
    return [*range(_RANK)][sizes.attributes.get("start", 0) : sizes.attributes.get("end", _RANK)] == [_TOKENS]


def _revise_node(matcher: Matcher, node: Node, inputs: NamesOfInputs, version: int) -> Iterator[Node]:
    """Returns the nodes that replace a node; `version` is the version of ONNX's own operators."""
    if _is_attention(node, inputs.caches):
        yield from _with_counts(node, version)
    elif (
        is_operator(node, "Slice")
        and _cuts_rows(matcher, node)
        and _counts_past(matcher, node.inputs[1], inputs.caches)
    ):
        table = node.inputs[0]
        yield replace(node, operator="Gather", inputs=(table, inputs.positions), attributes={"axis": 0})
    elif _appends_zeros(matcher, node, inputs.caches):
        yield replace(node, operator="Identity", inputs=node.inputs[:1], attributes={})
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


def _appends_zeros(matcher: Matcher, node: Node, caches: Collection[str]) -> bool:
    """Whether a node only makes a cache longer, with zeros for the new tokens, as the buffer has them."""
    if not is_operator(node, "Pad") or node.attributes.get("mode", "constant") != "constant":
        return False
    past, pads, *others = node.inputs
    amounts = matcher.array(pads)
    is_at_end = amounts is not None and [*np.flatnonzero(amounts)] == [_RANK + _TOKENS]
    is_only_output = node.outputs[0] in matcher.graph.output_names and matcher.reads(node.outputs[0]) == 1
    return past in caches and is_at_end and amounts[_RANK + _TOKENS] > 0 and not any(others) and is_only_output


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


def _cuts_rows(matcher: Matcher, node: Node) -> bool:
    """Whether a node cuts rows out of a constant table."""
    name, _, _, axes, steps, *_ = (*node.inputs, *[""] * 5)
    table = matcher.array(name)
    axis, step = (matcher.number(name) if name else default for name, default in ((axes, 0), (steps, 1)))
    return table is not None and table.ndim == 2 and (axis, step) == (0, 1)


def _mask_nodes(mask: str, version: int) -> Iterator[Node]:
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
