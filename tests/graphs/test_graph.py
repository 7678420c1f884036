"""Graphs: edges pass on buffers, all nodes form one computation, and errors name what does not fit."""

import json
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import SAMPLED, X64, assert_same_bits, compilations, random_array, transposes
from jax.test_util import check_grads

from dmljax import directml
from dmljax.directml import (
    ActivationIdentityDesc,
    ActivationReluDesc,
    ElementWiseAddDesc,
    ElementWiseExpDesc,
    Graph,
    InvalidDesc,
    InvalidType,
    Unsupported,
    lower,
)
from dmljax.lowerings.strides import read_strided, write_strided

TensorDesc: Any = directml.TensorDesc  # accepts the names of data types as well
FLOATS = TensorDesc("FLOAT32", (2, 3))


def chain(*nodes: Any, input: Any = FLOATS, **more: Any) -> Graph:
    """A chain of nodes with one input and one output each."""
    names = [f"n{i}" for i in range(len(nodes))]
    sources = ["x", *(f"{name}.output" for name in names)]
    return Graph(
        nodes=dict(zip(names, nodes, strict=True)),
        edges={f"{name}.input": source for name, source in zip(names, sources, strict=False)},
        inputs={"x": input},
        outputs={"y": sources[-1]},
        **more,
    )


def test_two_poolings_use_the_layout_of_the_target_platform() -> None:
    image, smaller = TensorDesc("FLOAT32", (1, 4, 8, 8)), TensorDesc("FLOAT32", (1, 4, 7, 7))
    graph = chain(
        *(
            directml.AveragePoolingDesc(
                input=given,
                output=output,
                strides=(1, 1),
                window_size=(2, 2),
                start_padding=padding,
                end_padding=(0, 0),
                include_padding=False,
            )
            for given, output, padding in ((image, smaller, (0, 0)), (smaller, smaller, (1, 1)))
        ),
        input=image,
    )
    x = np.zeros((1, 4, 8, 8), np.float32)
    assert transposes(lower(graph), x) == {"cpu": 4, "cuda": 0, "tpu": 0}


def identity(input: Any, output: Any) -> Any:
    return ActivationIdentityDesc(input=input, output=output)


def biased() -> Graph:
    """A sum with a constant, and a ReLU."""
    return Graph(
        nodes={
            "sum": ElementWiseAddDesc(a=FLOATS, b=TensorDesc("FLOAT32", (2, 3), (0, 1)), output=FLOATS),
            "relu": ActivationReluDesc(input=FLOATS, output=FLOATS),
        },
        edges={"sum.a": "x", "sum.b": "bias", "relu.input": "sum.output"},
        inputs={"x": FLOATS},
        constants={"bias": np.array([1, 0, -1], np.float32)},
        outputs={"y": "relu.output"},
    )


X = np.array([[-3, 1, 2], [0, -1, 5]], np.float32)
Y = np.array([[0, 1, 1], [1, 0, 4]], np.float32)


# Results


def test_a_graph_computes_its_nodes_in_any_order() -> None:
    graph = biased()
    backwards = Graph(
        nodes=dict(reversed(list(graph.nodes.items()))),
        edges=dict(reversed(list(graph.edges.items()))),
        inputs=graph.inputs,
        constants=graph.constants,
        outputs=graph.outputs,
    )
    for variant in (graph, backwards):
        assert_same_bits(lower(variant)(X), Y)
        assert_same_bits(lower(variant)(x=jnp.asarray(X)), Y)


def test_a_constant_may_be_replaced_and_has_a_gradient() -> None:
    function = lower(biased())
    bias = np.array([9, 0, 0], np.float32)
    assert_same_bits(function(X, bias=bias), np.maximum(X + bias, 0))
    gradient = jax.grad(lambda bias: function(X, bias=bias).sum())(jnp.zeros(3, jnp.float32))
    assert gradient.tolist() == [0, 1, 2]  # each element counts where the sum is positive


def dequantized(reader: str) -> Graph:
    """A dequantized int8 weight, used as a factor of a product or as a summand."""
    floats, few = TensorDesc("FLOAT32", (1, 1, 4, 4)), TensorDesc("FLOAT32", (1, 1, 4, 4), (0, 0, 0, 0))
    dequantize = directml.ElementWiseDequantizeLinearDesc(
        input=TensorDesc("INT8", (1, 1, 4, 4)), scale=few, zero_point=None, output=floats
    )
    product = directml.GemmDesc(
        a=floats,
        b=floats,
        output=floats,
        trans_a=directml.MatrixTransform.NONE,
        trans_b=directml.MatrixTransform.NONE,
        alpha=1.0,
        beta=0.0,
    )
    return Graph(
        nodes={
            "weight": dequantize,
            "exp": ElementWiseExpDesc(input=floats, output=floats),
            "result": product if reader == "GEMM" else ElementWiseAddDesc(a=floats, b=floats, output=floats),
        },
        edges={
            "weight.input": "integers",
            "weight.scale": "scale",
            "exp.input": "x",
            "result.a": "exp.output",
            "result.b": "weight.output",
        },
        inputs={"x": floats},
        constants={
            "integers": np.arange(-8, 8).reshape(1, 1, 4, 4).astype("int8"),
            "scale": np.full((1,), 0.5, "float32"),
        },
        outputs={"y": "result.output"},
    )


@pytest.mark.parametrize(("reader", "is_folded"), [("GEMM", True), ("ELEMENT_WISE_ADD", False)])
def test_constants_are_folded_if_that_saves_time(reader: str, is_folded: bool) -> None:
    graph = dequantized(reader)
    folded = graph.folded()
    assert ("weight" not in folded.nodes, list(folded.constants) == ["weight.output"]) == (is_folded, is_folded)
    assert not directml.find_broken_rules(folded)
    x = np.zeros((1, 1, 4, 4), np.float32)
    weight = graph.constants["integers"] * np.float32(0.5)
    expected = np.ones((4, 4), np.float32) @ weight if is_folded else 1 + weight
    assert_same_bits(lower(graph)(x), expected)
    twice = expected * 2 if is_folded else expected + weight
    assert_same_bits(lower(graph)(x, scale=np.ones((1,), "float32")), twice)
    assert_same_bits(jax.jit(lambda x: lower(dequantized(reader))(x))(x), expected)


def test_nodes_that_read_unfolded_nodes_may_be_folded() -> None:
    # The difference is larger than its constants and stays; whether it is positive is smaller, and is folded.
    table, column, row = (TensorDesc("FLOAT32", (8, 8), strides) for strides in (None, (1, 0), (0, 1)))
    flags = TensorDesc("UINT8", (8, 8))
    graph = Graph(
        nodes={
            "difference": directml.ElementWiseSubtractDesc(a=column, b=row, output=table),
            "positive": directml.ElementWiseLogicalGreaterThanDesc(a=table, b=row, output=flags),
            "chosen": directml.ElementWiseIfDesc(condition=flags, a=table, b=table, output=table),
        },
        edges={
            "difference.a": "c",
            "difference.b": "d",
            "positive.a": "difference.output",
            "positive.b": "d",
            "chosen.condition": "positive.output",
            "chosen.a": "difference.output",
            "chosen.b": "x",
        },
        inputs={"x": table},
        constants={"c": np.arange(8, dtype="float32"), "d": np.zeros(8, "float32")},
        outputs={"y": "chosen.output"},
    )
    assert list(graph.folded().nodes) == ["difference", "chosen"]
    x = np.full((8, 8), -1, "float32")
    expected = np.where(np.arange(8)[:, None] > 0, np.arange(8.0)[:, None], x).astype("float32")
    assert_same_bits(lower(graph)(x), expected)


def test_nodes_that_produce_graph_outputs_are_not_folded() -> None:
    relu = ActivationReluDesc(input=FLOATS, output=FLOATS)
    graph = Graph(
        nodes={"relu": relu},
        edges={"relu.input": "c"},
        inputs={},
        constants={"c": np.full((2, 3), -1, "float32")},
        outputs={"y": "relu.output"},
    )
    assert graph.folded() is graph
    assert lower(graph)().tolist() == [[0, 0, 0]] * 2


def test_outputs_are_named_and_one_tensor_may_be_output_twice() -> None:
    graph = biased()
    both = Graph(
        nodes=graph.nodes,
        edges=graph.edges,
        inputs=graph.inputs,
        constants=graph.constants,
        outputs={"sum": "sum.output", "again": "sum.output", "y:0": "relu.output"},
    )
    results = lower(both)(X)
    assert list(results) == ["sum", "again", "y:0"]
    assert_same_bits(results["again"], np.asarray(results["sum"]))
    assert_same_bits(results["y:0"], Y)


def test_a_node_may_have_arrays_of_tensors_and_several_outputs() -> None:
    part, whole = TensorDesc("FLOAT32", (2, 2)), TensorDesc("FLOAT32", (2, 4))
    graph = Graph(
        nodes={
            "split": directml.SplitDesc(input=whole, outputs=(part, part), axis=1),
            "join": directml.JoinDesc(inputs=(part, part, part), output=TensorDesc("FLOAT32", (2, 6)), axis=1),
        },
        edges={
            "split.input": "x",
            "join.inputs[0]": "split.outputs[1]",
            "join.inputs[1]": "split.outputs[0]",
            "join.inputs[2]": "split.outputs[0]",
        },
        inputs={"x": whole},
        outputs={"y": "join.output"},
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert_same_bits(lower(graph)(x), x[:, [2, 3, 0, 1, 0, 1]])


# Buffers


def through_bytes(graph: Graph, x: Any) -> Any:
    """The result of a chain of identities on byte buffers, as `TensorDesc` reads and writes them."""
    desc = graph.inputs["x"]
    node: Any
    for node in graph.nodes.values():
        size = max(desc.minimum_size_in_bytes, desc.total_tensor_size_in_bytes or 0)
        buffer = np.zeros(size, np.uint8)
        desc.write(buffer, x)
        x, desc = node.input.read(buffer), node.output
    return x


def strided(rng: np.random.Generator, sizes: tuple[int, ...], *, nested: bool) -> tuple[int, ...]:
    """Strides of an output: a permutation with gaps, or strides that are not multiples of each other."""
    strides, step = [0] * len(sizes), int(rng.integers(1, 3))
    for axis in rng.permutation(len(sizes)):
        strides[axis] = step
        step *= sizes[axis] + int(rng.integers(0, 2))
        step += 0 if nested else 1
    return tuple(strides)


@SAMPLED
@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_an_edges_bytes_are_read_with_the_readers_strides(seed: int, nested: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in rng.integers(1, 4, rng.integers(1, 5)))
    written = TensorDesc("FLOAT32", sizes, strided(rng, sizes, nested=nested))
    # Some of the existing elements, in any order, some of them repeatedly.
    other = tuple(int(size) for size in rng.integers(1, 4, 3))
    while TensorDesc("FLOAT32", other, steps := tuple(map(int, rng.integers(0, 5, 3)))).span > written.span:
        other = tuple(max(1, size - 1) for size in other)
    read = TensorDesc("FLOAT32", other, steps)
    packed = TensorDesc("FLOAT32", other)
    graph = chain(identity(floats(sizes), written), identity(read, packed), input=floats(sizes))
    x = random_array(rng, "float32", sizes)
    assert_same_bits(lower(graph)(x), through_bytes(graph, x))


@SAMPLED
@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((2, 3, 4), (1, 2, 6)),
        ((2, 3, 4), (4, 8, 1)),
        ((2, 3, 4), (1, 14, 3)),  # with gaps
        ((1, 3, 1, 2), (7, 2, 9, 1)),
        ((3,), (4,)),
        ((1, 1), (0, 0)),
        ((2, 2), (5, 2)),  # these do not nest: 5 is not a multiple of 2
        ((3, 3), (2, 3)),
        ((2, 3), (0, 1)),
        ((2, 3), (2, 1)),  # windows that overlap
        ((3, 4), (1, 1)),
    ],
    ids=str,
)
def test_arrays_are_read_and_written_at_strides_of_every_kind(sizes: Any, strides: Any) -> None:
    desc = TensorDesc("UINT16", sizes, strides)
    buffer = np.arange(1, desc.span + 1, dtype=np.uint16)
    assert_same_bits(read_strided(jnp.asarray(buffer), sizes, strides), desc.read(buffer.view(np.uint8)))
    if len(set(np.asarray(desc.read(buffer.view(np.uint8))).ravel().tolist())) == desc.element_count:
        x = np.arange(1, desc.element_count + 1, dtype=np.uint16).reshape(sizes)
        written = np.zeros(desc.span, np.uint16)
        np.lib.stride_tricks.as_strided(written, sizes, [2 * stride for stride in strides])[...] = x
        assert_same_bits(write_strided(jnp.asarray(x), strides, desc.span), written)


def floats(sizes: tuple[int, ...]) -> Any:
    return TensorDesc("FLOAT32", sizes)


@SAMPLED
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("FLOAT32", (2, 3)), ("UINT32", (3, 2))),
        (("FLOAT32", (2, 3)), ("UINT16", (3, 4))),
        (("UINT16", (2, 3)), ("FLOAT32", (3,))),
        (("UINT16", (3,)), ("FLOAT32", (2,))),  # six bytes, and two that round the size up
        (("UINT8", (7,)), ("UINT16", (4,))),
        (("FLOAT16", (4,), (3,)), ("INT8", (2, 5), (10, 2))),
    ],
    ids=str,
)
def test_an_edges_bytes_are_read_in_the_readers_type(first: Any, second: Any) -> None:
    source, target = TensorDesc(*first), TensorDesc(*second)
    whole = TensorDesc(source.data_type, source.sizes)
    copy = directml.ElementWiseIdentityDesc
    graph = chain(
        copy(input=whole, output=source),
        copy(input=target, output=TensorDesc(target.data_type, target.sizes)),
        input=whole,
    )
    x = random_array(np.random.default_rng(0), source.dtype, source.sizes)
    assert_same_bits(lower(graph)(x), through_bytes(graph, x))


def test_reads_beyond_the_end_of_a_buffer_give_zeros() -> None:
    copy = directml.ElementWiseIdentityDesc
    three, windows = TensorDesc("UINT8", (3,)), TensorDesc("UINT8", (2, 3), (1, 1))  # in a buffer of 4 bytes
    graph = chain(copy(input=three, output=three), copy(input=windows, output=TensorDesc("UINT8", (2, 3))), input=three)
    assert lower(graph)(np.array([1, 2, 3], np.uint8)).tolist() == [[1, 2, 3], [2, 3, 0]]


def test_strides_that_nest_are_neither_gathered_nor_scattered() -> None:
    columns, padded = floats((3, 2)), TensorDesc("FLOAT32", (2, 3), (4, 1))
    transposed = TensorDesc("FLOAT32", (3, 2), (1, 4))
    text = str(jax.make_jaxpr(lower(chain(identity(FLOATS, padded), identity(transposed, columns))))(X))
    assert "transpose" in text
    assert "gather" not in text
    assert "scatter" not in text


@pytest.mark.parametrize(
    "types", [("UINT16", "INT32", "UINT8"), ("INT32", "FLOAT16", "INT8"), ("UINT8", "INT16", "UINT32")]
)
def test_types_of_three_widths_follow_each_other(types: tuple[str, ...]) -> None:
    """XLA used to merge two conversions here into one of a wrong shape."""
    x = random_array(np.random.default_rng(0), np.dtype(types[0].lower()), (8,))
    descs = [TensorDesc(name, (x.nbytes * 8 // directml.DataType[name].bits,)) for name in types]
    nodes = [directml.ElementWiseIdentityDesc(input=desc, output=desc) for desc in descs]
    graph = chain(*nodes, input=descs[0])
    assert_same_bits(lower(graph)(x), through_bytes(graph, x))


def test_a_buffer_may_be_larger_than_its_tensor() -> None:
    large = TensorDesc("FLOAT32", (2,), total_tensor_size_in_bytes=16)
    pair, four = TensorDesc("FLOAT32", (2,)), TensorDesc("FLOAT32", (4,))
    graph = chain(identity(pair, large), identity(four, four), input=pair)
    assert lower(graph)(np.array([1, 2], np.float32)).tolist() == [1, 2, 0, 0]


def test_an_output_may_be_a_view_of_its_bytes() -> None:
    columns = TensorDesc("FLOAT32", (3, 2), (1, 3))
    graph = chain(identity(FLOATS, FLOATS), views={"y": columns})
    assert_same_bits(lower(graph)(X), X.T)


# Transformations


def test_graphs_work_under_transformations() -> None:
    function = lower(biased())
    batch = np.stack([X, 2 * X, -X])
    assert_same_bits(jax.vmap(function)(batch), np.stack([function(x) for x in batch]))
    assert_same_bits(jax.jit(function)(X), Y)
    check_grads(lower(chain(ElementWiseExpDesc(input=FLOATS, output=FLOATS))), (X / 4,), order=2, rtol=0.02)
    exported = jax.export.export(jax.jit(function), platforms=("cpu", "cuda", "tpu"))(X)
    assert_same_bits(exported.call(X), Y)


def test_gradients_flow_through_strides() -> None:
    columns = TensorDesc("FLOAT32", (2, 3), (1, 4))
    repeated = TensorDesc("FLOAT32", (2, 2, 3), (0, 1, 4))
    packed = TensorDesc("FLOAT32", (2, 2, 3))
    function = lower(chain(identity(FLOATS, columns), identity(repeated, packed)))
    _, pull = jax.vjp(function, jnp.asarray(X))
    cotangent = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    assert_same_bits(pull(cotangent)[0], cotangent.sum(0))


def test_elementwise_nodes_fuse_into_one_computation() -> None:
    x = TensorDesc("FLOAT32", (512, 512))
    nodes = [ElementWiseExpDesc(input=x, output=x), ActivationReluDesc(input=x, output=x)] * 3
    text = jax.jit(lower(chain(*nodes, input=x))).lower(np.zeros(x.sizes, np.float32)).compile().as_text() or ""
    entry = text[text.index("ENTRY") :]
    assert entry.count(" fusion(") + entry.count(" call(") == 1
    assert "copy" not in entry


def test_equal_graphs_compile_once() -> None:
    first, second = biased(), biased()
    lower(first)(jnp.asarray(X))
    with compilations() as events:
        lower(second)(jnp.asarray(X))
    assert not events


def test_a_batch_stays_where_it_is() -> None:
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = TensorDesc("FLOAT32", (16, 4))
    nodes = [ElementWiseExpDesc(input=rows, output=rows), directml.ActivationSoftmaxDesc(input=rows, output=rows)]
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    compiled = (
        jax.jit(lower(chain(*nodes, input=rows)))
        .lower(jax.device_put(np.zeros((16, 4), np.float32), sharding))
        .compile()
    )
    assert not any(
        collective in str(compiled.as_text()) for collective in ("all-gather", "all-reduce", "all-to-all", "collective")
    )


# JSON, pictures, copies


def test_a_graph_survives_json_and_pickle() -> None:
    half = TensorDesc("FLOAT16", (2,))
    special = np.array([np.nan, -0.0], np.float16)
    special.view(np.uint16)[0] |= 5  # NaN with digits of its own
    graph = Graph(
        nodes={"a.b": directml.ElementWiseIdentityDesc(input=half, output=half)},
        edges={"a.b.input": "weights.0"},
        inputs={},
        constants={"weights.0": special},
        outputs={"y": "a.b.output"},
        views={"y": TensorDesc("UINT16", (2,))},
    )
    for copy in (
        directml.from_json(json.loads(json.dumps(directml.to_json(graph)))),
        pickle.loads(pickle.dumps(graph)),
    ):
        assert_same_bits(lower(copy)(), special.view(np.uint16))
        assert directml.to_json(copy) == directml.to_json(graph)
    assert directml.to_json(graph)["Edges"] == {"a.b.InputTensor": "weights.0"}


def test_a_drawing_names_nodes_and_sizes() -> None:
    assert biased().to_dot().splitlines()[2:] == [
        '  "input x" [label="x\\nFLOAT32 {2,3}", shape=ellipse]',
        '  "constant bias" [label="bias\\nFLOAT32 {3}", shape=note]',
        '  "node sum" [label="sum\\nELEMENT_WISE_ADD"]',
        '  "node relu" [label="relu\\nACTIVATION_RELU"]',
        '  "output y" [label="y", shape=ellipse]',
        '  "input x" -> "node sum"',
        '  "constant bias" -> "node sum"',
        '  "node sum" -> "node relu" [label="FLOAT32 {2,3}"]',
        '  "node relu" -> "output y" [label="FLOAT32 {2,3}"]',
        "}",
    ]
    awkward = Graph(
        nodes={'say "hi"\\': ActivationReluDesc(input=FLOATS, output=FLOATS)}, edges={}, inputs={}, outputs={}
    )
    assert '"node say \\"hi\\"\\\\"' in awkward.to_dot()


# Levels and refusals


def test_the_lowest_level_is_that_of_the_newest_node() -> None:
    old = chain(identity(TensorDesc("FLOAT32", (1, 1, 2, 3)), TensorDesc("FLOAT32", (1, 1, 2, 3))))
    gelu = directml.ActivationGeluDesc(input=FLOATS, output=FLOATS)
    assert str(directml.find_minimum_feature_level(old)) == "DML_FEATURE_LEVEL_1_0"
    assert str(directml.find_minimum_feature_level(chain(identity(FLOATS, FLOATS), gelu))) == "DML_FEATURE_LEVEL_5_1"
    with pytest.raises(
        InvalidDesc, match=r"graph at DML_FEATURE_LEVEL_5_0: nodes\.n1\.ACTIVATION_GELU: the feature level must"
    ):
        lower(chain(identity(FLOATS, FLOATS), gelu), feature_level="5_0")


def test_all_mismatches_are_reported_at_once() -> None:
    wide = TensorDesc("FLOAT32", (2, 4))
    graph = Graph(
        nodes={
            "sum": ElementWiseAddDesc(a=FLOATS, b=TensorDesc("FLOAT16", (2, 3)), output=FLOATS),
            "relu": ActivationReluDesc(input=wide, output=wide),
            "after": ActivationReluDesc(input=FLOATS, output=FLOATS),
        },
        edges={"sum.a": "relu.output", "sum.c": "x", "relu.input": "sum.output", "after.input": "sum.outputs"},
        inputs={"x": FLOATS, "relu.output": FLOATS},
        constants={"x": X},
        outputs={"y": "x", "z": "sum"},
        views={"w": FLOATS},
    )
    assert directml.find_broken_rules(graph) == (
        "constants.x: name already used by an input",
        'inputs["relu.output"]: name already used by an output of a node',
        "nodes.sum.ELEMENT_WISE_ADD.ATensor, BTensor and OutputTensor must have the same DataType; "
        "got FLOAT32, FLOAT16 and FLOAT32",
        'edges["sum.c"] must lead to an input of a node; got sum.c, did you mean sum.b?',
        'edges["relu.input"] must read at most the 24 bytes of sum.output, FLOAT32 {2,3}; '
        "got 32 bytes of FLOAT32 {2,4}",
        'edges["after.input"] must come from an input, a constant or an output of a node; '
        "got sum.outputs, did you mean sum.output?",
        "nodes.sum.ELEMENT_WISE_ADD.BTensor must have an edge; got none",
        "edges must not form a cycle; got sum <- relu <- sum",
        "outputs.y must come from an output of a node; got x "
        "(pass it through an ACTIVATION_IDENTITY or ELEMENT_WISE_IDENTITY)",
        "outputs.z must come from an output of a node; got sum, did you mean sum.output?",
        "views.w must be a view of one of y, z; got w",
    )
    with pytest.raises(InvalidDesc, match="graph at DML_FEATURE_LEVEL_6_4: constants"):
        directml.validate(graph)


def test_tensors_owned_by_dml_come_from_inputs_or_constants() -> None:
    owned = TensorDesc("FLOAT32", (2, 3), flags="OWNED_BY_DML")
    add = ElementWiseAddDesc(a=owned, b=FLOATS, output=FLOATS)
    graph = Graph(
        nodes={"first": add, "second": add},
        edges={"first.a": "x", "first.b": "y", "second.a": "first.output", "second.b": "x"},
        inputs={"x": FLOATS, "y": FLOATS},
        outputs={"z": "second.output"},
    )
    assert directml.find_broken_rules(graph) == (
        'edges["second.a"] must come from an input or a constant, because of its Flags; got first.output',
        'edges["second.b"] must lead to a tensor with the flag OWNED_BY_DML, as all others from x do; got NONE',
    )
    constants = {"x": np.ones((2, 3), np.float32)}
    edges = {"n0.a": "x", "n0.b": "y"}
    valid = Graph(nodes={"n0": add}, edges=edges, inputs={"y": FLOATS}, outputs={"z": "n0.output"}, constants=constants)
    directml.validate(valid)


def test_a_graph_without_outputs_or_with_a_view_that_is_too_large_is_refused() -> None:
    none = Graph(nodes={}, edges={}, inputs={}, outputs={})
    assert directml.find_broken_rules(none) == ("outputs must not be empty",)
    large = chain(identity(FLOATS, FLOATS), views={"y": TensorDesc("FLOAT64", (2, 3))})
    assert directml.find_broken_rules(large) == (
        "views.y must read at most the 24 bytes of n0.output, FLOAT32 {2,3}; got 48 bytes of FLOAT64 {2,3}",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": []}, r"graph: nodes must be a mapping with names as its keys; got \[\]"),
        ({"nodes": {"a": FLOATS}}, r"graph: nodes\.a must be of type Operator; got TensorDesc"),
        ({"edges": {"": "x"}}, "graph: edges must have nonempty strings as names; got ''"),
        ({"inputs": {"x": (2, 3)}}, r"graph: inputs\.x must be of type TensorDesc; got tuple"),
        ({"constants": {"c": [1.0]}}, r"graph: constants\.c must be a JAX or NumPy array; got list"),
    ],
    ids=str,
)
def test_the_parts_of_a_graph_are_checked_at_construction(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidType, match=message):
        Graph(**{"nodes": {}, "edges": {}, "inputs": {}, "outputs": {}} | arguments)


def test_one_error_names_all_wrong_parts_with_their_form() -> None:
    wrong: dict[str, Any] = {"nodes": [identity(FLOATS, FLOATS)], "edges": [(0, 0, 1, 0)], "inputs": [FLOATS]}
    with pytest.raises(InvalidType) as refusal:
        Graph(**wrong, outputs={"y": 0})  # type: ignore[dict-item]
    assert [(problem.path, problem.remedy) for problem in refusal.value.problems] == [
        (("nodes",), 'nodes={"sum": desc, "relu": desc}'),
        (("edges",), 'edges={"sum.a": "x", "sum.b": "bias", "relu.input": "sum.output"}'),
        (("inputs",), 'inputs={"x": TensorDesc(...)}'),
        (("outputs", "y"), None),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"edges": {"g.InputTensor": "x"}},
            r'edges\["g\.InputTensor"\] must lead to an input of a node; got g\.InputTensor, did you mean g\.input\?',
        ),
        ({"edges": {"x": "g.input"}}, r'\(exchange key and value: edges=\{"g\.input": "x"\}\)'),
        ({"edges": {"x": "g.InputTensor"}}, r'\(exchange key and value: edges=\{"g\.input": "x"\}\)'),
        ({"outputs": {"y": "g.OutputTensor"}}, r"got g\.OutputTensor, did you mean g\.output\?"),
        ({"outputs": {"g.output": "y"}}, r'\(exchange key and value: outputs=\{"y": "g\.output"\}\)'),
    ],
    ids=str,
)
def test_edges_in_directml_spelling_or_from_source_to_target_are_refused_at_construction(
    changes: Any, message: str
) -> None:
    parts: dict[str, Any] = {"nodes": {"g": ActivationReluDesc(input=FLOATS, output=FLOATS)}, "inputs": {"x": FLOATS}}
    parts |= {"edges": {"g.input": "x"}, "outputs": {"y": "g.output"}}
    Graph(**parts)
    with pytest.raises(InvalidDesc, match=f"^graph: .*{message}"):
        Graph(**parts | changes)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"missing nodes, edges, inputs, outputs; Graph\(\*, nodes, edges, "),
        (
            ({},),
            {},
            r"too many positional arguments \(give nodes, edges, inputs and outputs by name\)",
        ),
        ((), {"node": {}}, r"got an unexpected keyword argument 'node' \(did you mean nodes for node\?\)"),
    ],
)
def test_a_graph_describes_its_parts(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(InvalidType, match=f"^Graph: {message}"):
        directml.Graph(*args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "graph: x: no array for this input"),
        ((X,), {"x": X}, "graph: x: given both by position and by name"),
        ((X, X), {}, "graph: takes at most 1 array by position; got 2"),
        ((), {"z": X}, r"graph: z: unknown input \(the inputs are x, bias\)"),
        ((X.astype(np.float16),), {}, "graph: x must be of float32, like its desc; got float16"),
        ((jnp.asarray(X[0]),), {}, r"graph: x must have Sizes \{2,3\}; got \{3\}"),
        ((X,), {"bias": X}, r"graph: bias must have Sizes \{3\}; got \{2,3\}"),
    ],
    ids=str,
)
def test_a_wrong_call_is_refused(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises((InvalidType, InvalidDesc), match=message):
        lower(biased())(*args, **kwargs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Node": {}}, "graph: unknown field 'Node', did you mean Nodes"),
        ({"Nodes": 3}, "graph: Nodes must be an object; got 3"),
        (
            {"Constants": {"c": {"DataType": "FLOAT32", "Sizes": [2], "Data": "AAAA"}}},
            r"Constants\.c\.Data must have 8",
        ),
        (
            {"Constants": {"c": {"DataType": "FLOAT32", "Sizes": [2], "Data": "AAAAAAAAAAAAAAAA"}}},
            r"Constants\.c\.Data must have 8 bytes, like FLOAT32 \{2\}; got 12",
        ),
        (
            {"Constants": {"c": {"DataType": "FLOAT32", "Sizes": [2], "Data": "?"}}},
            r"Constants\.c\.Data must be base64",
        ),
        ({"Inputs": {"x": {"DataType": "FLOAT33", "Sizes": [2]}}}, r"Inputs\.x\.DataType must be one of"),
        ({"Nodes": {"n0": {"Type": "NOTHING"}}}, r"Nodes\.n0\.Type: unknown operator 'NOTHING'"),
    ],
    ids=str,
)
def test_a_wrong_json_is_refused(changes: Any, message: str) -> None:
    with pytest.raises((InvalidType, InvalidDesc, Unsupported), match=message):
        directml.from_json(directml.to_json(biased()) | changes)


@pytest.mark.skipif(X64, reason="tests behavior without 64-bit types")
def test_graphs_of_64_bit_types_are_refused_if_they_are_disabled() -> None:
    wide = TensorDesc("INT64", (2,))
    with pytest.raises(Unsupported, match=r"graph: nodes\.n0\.ELEMENT_WISE_IDENTITY\.InputTensor\.DataType must be of"):
        lower(chain(directml.ElementWiseIdentityDesc(input=wide, output=wide), input=wide))


# Integers of 4 bits


@pytest.mark.parametrize("strides", [None, (4, 1)], ids=str)
def test_an_edge_reads_bytes_as_integers_of_4_bits(strides: Any) -> None:
    # 6 elements in 3 bytes, or two rows of 3 in a byte and a half each.
    integers, floats = TensorDesc("INT4", (2, 3), strides), TensorDesc("FLOAT32", (2, 3))
    node = directml.DequantizeDesc(
        input=integers,
        quantization_type=directml.QuantizationType.SCALE,
        quantization_tensors=(TensorDesc("FLOAT32", (1, 1)),),
        output=floats,
    )
    data = np.array([0x21, 0xF3, 0x87, 0x05], np.uint8)
    graph = Graph(
        nodes={"dequantize": node},
        edges={"dequantize.input": "data", "dequantize.quantization_tensors[0]": "scale"},
        inputs={"data": TensorDesc("UINT8", (4,)), "scale": TensorDesc("FLOAT32", (1, 1))},
        outputs={"y": "dequantize.output"},
    )
    computed = lower(graph)(data, np.full((1, 1), 0.5, np.float32))
    assert_same_bits(computed, integers.read(data).astype(np.float32) / 2)
