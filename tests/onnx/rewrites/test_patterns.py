"""The matcher that rewrites of graphs share, and how they replace and drop nodes."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dmljax.errors import Unsupported
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType
from dmljax.onnx.handlers.registry import MICROSOFT, REGISTRY, Handler
from dmljax.onnx.rewrites.decoders import Tables, with_logits, with_one_table
from dmljax.onnx.rewrites.fixed_caches import NamesOfInputs, with_fixed_caches
from dmljax.onnx.rewrites.joining import JoinedNode, join_attention
from dmljax.onnx.rewrites.packed_weights import with_packed_weights
from dmljax.onnx.rewrites.patterns import Matcher, drop_unread, is_operator, replace_nodes


def node(operator: str, inputs: str, outputs: str, domain: str = MAIN, **attributes: Any) -> Node:
    return Node(operator, domain, 21 if domain == MAIN else 1, "", (*inputs.split(),), (*outputs.split(),), attributes)


def graph_of(*nodes: Node, inputs: str = "x", outputs: str = "y", **constants: Any) -> OnnxGraph:
    of_inputs, of_outputs = (
        tuple(TensorType(name, None, None) for name in names.split()) for names in (inputs, outputs)
    )
    return OnnxGraph(nodes, of_inputs, of_outputs, {name: np.asarray(value) for name, value in constants.items()})


def handler_of(some: Node) -> Handler:
    handler = REGISTRY.find(some)
    assert handler is not None
    return handler


SIZES, SIZE, COMPARISON = node("Shape", "x", "s"), node("Gather", "s i", "g"), node("Greater", "g most", "y")
CHAIN = graph_of(SIZES, SIZE, COMPARISON, i=[1], most=4)


def test_a_chain_leads_back_through_first_inputs() -> None:
    assert Matcher(CHAIN).chain("y", "Greater", "Gather", "Shape") == (COMPARISON, SIZE, SIZES)
    assert Matcher(CHAIN).chain("g", "Gather") == (SIZE,)


@pytest.mark.parametrize("operators", [("Greater", "Shape"), ("Gather",), ("Greater", "Gather", "Shape", "Shape")])
def test_a_chain_of_other_operators_has_no_nodes(operators: tuple[str, ...]) -> None:
    assert Matcher(CHAIN).chain("y", *operators) == ()


def test_an_operator_of_another_domain_is_another_operator() -> None:
    contributed = node("Gelu", "x", "y", MICROSOFT)
    assert is_operator(contributed, "Gelu", domain=MICROSOFT)
    assert is_operator(contributed, domain=MICROSOFT)
    assert not is_operator(contributed, "Gelu")
    assert not is_operator(contributed)
    assert Matcher(graph_of(contributed)).maker("y", "Gelu") is None


def test_the_maker_of_a_value_that_is_read_more_often_does_not_match() -> None:
    neg, add = node("Neg", "x", "n"), node("Add", "n n", "y")
    matcher = Matcher(graph_of(neg, add, node("Shape", "n", "s"), outputs="y s"))
    assert matcher.reads("n") == 3
    assert matcher.reads("y") == 1
    assert matcher.maker("n", "Neg", reads=3) is neg
    assert matcher.maker("n", "Neg", reads=2) is None


def test_ignored_nodes_are_no_readers() -> None:
    nodes = node("Neg", "x", "n"), node("Shape", "n", "s"), node("Exp", "n", "y")
    matcher = Matcher(graph_of(*nodes, outputs="y s"), ignored=nodes[1:2])
    assert matcher.reads("n") == 1
    assert matcher.readers(["n", "x"]) == [nodes[0], nodes[2]]


STORED = graph_of(
    node("Constant", "", "c", value=np.array([3])),
    node("Identity", "c", "d"),
    node("Identity", "d", "e"),
    node("Identity", "w", "v"),
    node("Identity", "x", "y"),
    w=[1, 2],
)


@pytest.mark.parametrize(
    ("name", "source", "number"),
    [("c", "c", 3), ("e", "c", 3), ("w", "w", None), ("v", "w", None), ("y", "y", None), ("x", "x", None)],
)
def test_a_stored_array_is_found_behind_identities(name: str, source: str, number: int | None) -> None:
    matcher = Matcher(STORED)
    assert matcher.source(name) == source
    assert matcher.number(name) == number
    assert (matcher.array(name) is None) == (source in "xy")


def test_a_matcher_knows_other_stored_arrays_than_the_graph() -> None:
    assert Matcher(STORED, {"x": np.array([7])}).number("y") == 7


def test_a_replaced_node_leaves_what_other_nodes_read() -> None:
    first, unread = node("Neg", "x", "n"), node("Abs", "n", "a")
    shared, last = node("Exp", "n", "e"), node("Add", "e n", "y")
    replaced = replace_nodes(graph_of(first, unread, shared, last), {last: [node("Sin", "x", "y")]})
    assert [some.operator for some in replaced.nodes] == ["Neg", "Abs", "Exp", "Sin"]
    assert drop_unread(replaced, [first, shared]).nodes == (first, unread, replaced.nodes[-1])
    assert drop_unread(replaced).nodes == replaced.nodes[-1:]


@pytest.mark.parametrize("mask", ["m", "d"])
def test_a_mask_that_depends_on_an_input_is_no_constant(mask: str) -> None:
    nodes = [node("MatMul", "q k", "a"), node("Abs", "c", "m"), node("Add", "m x", "d"), node("Add", f"a {mask}", "b")]
    nodes += [node("Softmax", "b", "p"), node("MatMul", "p v", "y")]
    joined = join_attention(graph_of(*nodes, inputs="q k v x", c=[[0.5]]), handler_of).nodes[-1]
    assert isinstance(joined, JoinedNode)
    assert {*joined.attributes["written"].masks} == {"m"} & {mask}


@pytest.mark.parametrize("place", range(3))
def test_nodes_of_another_domain_are_no_attention(place: int) -> None:
    nodes = [node("MatMul", "q k", "a"), node("Softmax", "a", "p"), node("MatMul", "p v", "y")]
    assert len(join_attention(graph_of(*nodes, inputs="q k v"), handler_of).nodes) == 1
    nodes[place] = replace(nodes[place], domain="other")
    joined = join_attention(graph_of(*nodes, inputs="q k v"), lambda some: handler_of(replace(some, domain=MAIN)))
    assert joined.nodes == (*nodes,)


@pytest.mark.parametrize(("inputs", "count"), [("x", 1), ("x codes", 2), ("x scales", 2)])
def test_weights_that_a_caller_may_replace_are_not_packed(inputs: str, count: int) -> None:
    nodes = node("DequantizeLinear", "codes scales", "w", axis=0, block_size=16), node("MatMul", "x w", "y")
    codes, scales = np.ones((32, 2), ml_dtypes.int4), np.ones((2, 2), np.float32)
    packed, _ = with_packed_weights(graph_of(*nodes, inputs=inputs, codes=codes, scales=scales))
    assert len(packed.nodes) == count


def with_table(sizes: Node, indices: Any = (2,), axis: int = 0, steps: int = 1, joined: str = "n") -> OnnxGraph:
    """A decoder whose cache `past` says which rows of a table of positions it reads."""
    nodes = sizes, node("Gather", "s i", "n"), node("Concat", joined, "first"), node("Slice", "t first e a k", "y")
    constants = {"i": indices, "e": [9], "a": [axis], "k": [steps], "t": np.eye(9), "zero": [0]}
    return graph_of(*nodes, inputs="past", **constants)


NAMES = NamesOfInputs("mask", "positions", ["past"])


@pytest.mark.parametrize(
    "graph",
    [
        with_table(node("Shape", "past", "s")),
        with_table(node("Shape", "past", "s"), [-2]),
        with_table(node("Shape", "past", "s", start=2, end=3), joined="s"),
    ],
)
def test_positions_choose_the_rows_that_follow_past_tokens(graph: OnnxGraph) -> None:
    nodes = with_fixed_caches(graph, NAMES).nodes
    assert [(some.operator, some.inputs) for some in nodes] == [("Gather", ("t", "positions"))]


@pytest.mark.parametrize(
    "graph",
    [
        with_table(node("Shape", "past", "s"), [1]),
        with_table(node("Shape", "past", "s"), [2, 2]),
        with_table(node("Shape", "past", "s", start=1)),
        with_table(node("Shape", "past", "s", start=1, end=2), joined="s"),
        with_table(node("Shape", "past", "s"), joined="n zero"),
        with_table(node("Shape", "past", "s"), axis=1),
        with_table(node("Shape", "past", "s"), steps=2),
    ],
)
def test_other_sizes_than_the_number_of_past_tokens_are_refused(graph: OnnxGraph) -> None:
    with pytest.raises(Unsupported, match="counts past tokens in a way that is not supported; got past"):
        with_fixed_caches(graph, NAMES)


def test_caches_that_only_get_zeros_stay_as_they_are() -> None:
    graph = graph_of(node("Pad", "past p", "y"), inputs="past", p=[0, 0, 0, 0, 0, 0, 1, 0])
    nodes = with_fixed_caches(graph, NAMES).nodes
    assert [(some.operator, some.inputs) for some in nodes] == [("Identity", ("past",))]


@pytest.mark.parametrize(
    ("pads", "attributes"),
    [([0, 0, 1, 0, 0, 0, 0, 0], {}), ([0, 0, 0, 0, 0, 0, -1, 0], {}), ([0, 0, 0, 0, 0, 0, 1, 0], {"mode": "edge"})],
)
def test_caches_that_get_anything_else_are_refused(pads: Any, attributes: Any) -> None:
    graph = graph_of(node("Pad", "past p", "y", **attributes), inputs="past", p=pads)
    with pytest.raises(Unsupported, match="counts past tokens in a way that is not supported; got past"):
        with_fixed_caches(graph, NAMES)


def test_sizes_of_other_values_do_not_count_past_tokens() -> None:
    graph = with_table(node("Shape", "t", "s"))
    assert [some.operator for some in with_fixed_caches(graph, NAMES).nodes] == ["Shape", "Gather", "Concat", "Slice"]


@pytest.mark.parametrize(("axis", "index", "rows"), [(1, -1, "x"), (1, 0, "u"), (0, -1, "u")])
def test_logits_of_all_tokens_replace_only_those_of_the_last(axis: int, index: int, rows: str) -> None:
    nodes = node("Gather", "x i", "g", axis=axis), node("Unsqueeze", "g a", "u"), node("MatMul", "u w", "y")
    graph = graph_of(*nodes, i=index, a=[1], w=np.eye(4))
    assert with_logits(graph, graph.constants, handler_of, "y").all.nodes[-1].inputs == (rows, "w")


def with_two_tables(sizes: Node, index: int = 1) -> OnnxGraph:
    """An attention with two tables of angles, which it chooses between by the length of the mask."""
    tables = graph_of(inputs="", outputs="c s", c=np.eye(4), s=np.eye(4))
    choice = node("If", "is_long", "cos sin", then_branch=tables, else_branch=tables)
    nodes = sizes, node("Gather", "sizes i", "n"), node("Greater", "n most", "is_long"), choice
    attention = replace(node("GroupQueryAttention", "", "y", MICROSOFT), inputs=("x", *[""] * 6, "cos", "sin"))
    return graph_of(*nodes, attention, inputs="x mask other", i=index, most=24)


def test_the_length_of_the_mask_chooses_between_tables() -> None:
    graph = with_two_tables(node("Shape", "mask", "sizes"))
    joined, tables = with_one_table(graph, graph.constants, "mask", TensorType("positions", None, None))
    assert tables == Tables(24, 4)
    assert joined.nodes[-1].inputs[-3:] == ("cos", "sin", "positions")


@pytest.mark.parametrize(
    "graph",
    [
        with_two_tables(node("Shape", "mask", "sizes"), 0),
        with_two_tables(node("Shape", "mask", "sizes", start=1)),
        with_two_tables(node("Shape", "other mask", "sizes")),
    ],
)
def test_another_size_does_not_choose_between_tables(graph: OnnxGraph) -> None:
    with pytest.raises(Unsupported, match="by whether the mask is longer than a number"):
        with_one_table(graph, graph.constants, "mask", TensorType("positions", None, None))
