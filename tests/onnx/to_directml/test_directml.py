"""ONNX models as DirectML graphs: the graph is valid and computes what the model does."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import FULL, GATE, SAMPLED, assert_same_bits, needs_x64
from onnx import numpy_helper
from onnx.backend.test import data

import dmljax
import dmljax.onnx
import dmljax.serialized
from dmljax import directml
from dmljax.directml import FeatureLevel, InvalidDesc, InvalidType, Unsupported
from dmljax.graphs.to_graph.converter import Converter
from dmljax.onnx import Model

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("float32")


def load_model(signature: str, body: str, weights: Mapping[str, Any] | None = None, version: int = 21) -> Model:
    """A model from text, with weights, which the text cannot contain."""
    imports = f'["": {version}, "com.microsoft": 1]'
    text = f"<ir_version: 10, opset_import: {imports}> f {signature} {{ {body} }}"
    proto = onnx.parser.parse_model(text)
    for name, value in (weights or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return dmljax.onnx.load(proto)


def require_same(model: Model, *inputs: Any, constants: Sequence[str] = (), tolerance: float = 0) -> directml.Graph:
    """The graph of a model for these inputs; checks that it is valid and computes the same bits as the model."""
    names = [x.name for x in model.inputs]
    graph = model.graph({name: np.shape(value) for name, value in zip(names, inputs, strict=True)})
    directml.validate(graph)
    results = directml.lower(graph)(*(as_tensor(value) for value in inputs))
    expected = model.apply(model.weights, *inputs)
    several = expected if isinstance(expected, tuple) else (expected,)
    for result, reference in zip(results.values() if isinstance(results, dict) else [results], several, strict=True):
        if tolerance:
            np.testing.assert_allclose(result, as_tensor(reference), rtol=tolerance, atol=tolerance)
        else:
            assert_same_bits(result, as_tensor(reference))
    return graph


def as_tensor(value: Any) -> Any:
    """An array as a DirectML tensor: bools as bytes, and at least one dimension."""
    array = jnp.asarray(value)
    return array.astype("uint8" if array.dtype == bool else array.dtype).reshape(array.shape or (1,))


def operators(graph: directml.Graph) -> list[str]:
    return [graph.nodes[name].short_name for name in graph.order]


def test_an_input_with_a_default_is_a_constant_or_an_input() -> None:
    model = load_model("(float[N] x, float[N] w) => (float[N] y)", "y = Add (x, w)", {"w": floats(3)})
    x, w = floats(3), floats(3)
    for shapes, arrays in (({"x": (3,)}, [x]), ({"x": (3,), "w": (3,)}, [x, w])):
        graph = model.graph(shapes)
        assert list(graph.inputs) == list(shapes)
        expected = model(x, **({"w": w} if "w" in shapes else {}))
        assert_same_bits(directml.lower(graph)(*arrays), expected)
    with pytest.raises(dmljax.DmlError, match="onnx: shapes must name only inputs, x, w; got 'v'"):
        model.graph({"x": (3,), "v": (3,)})


# Networks


def small_cnn() -> Model:
    channels = np.abs(floats(4))
    return load_model(
        "(float[N, 1, 8, 8] x) => (float[N, 3] y)",
        """a = Conv <pads = [1, 1, 1, 1]> (x, filter, bias)
           b = BatchNormalization (a, scale, shift, mean, variance)
           c = Relu (b)
           d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (c)
           e = Flatten (d)
           g = Gemm <transB = 1> (e, weight, offset)
           y = Softmax (g)""",
        {
            "filter": floats(4, 1, 3, 3),
            "bias": floats(4),
            "scale": floats(4),
            "shift": floats(4),
            "mean": floats(4),
            "variance": channels,
            "weight": floats(3, 64),
            "offset": floats(3),
        },
    )


@GATE
def test_a_small_image_network_becomes_a_graph() -> None:
    graph = require_same(small_cnn(), floats(2, 1, 8, 8))
    assert operators(graph) == [
        *("CONVOLUTION", "BATCH_NORMALIZATION", "ACTIVATION_RELU", "MAX_POOLING2", "GEMM", "ACTIVATION_SOFTMAX1")
    ]
    assert set(graph.constants) == {*("filter", "bias", "scale", "shift", "mean", "variance", "weight", "offset")}


def test_a_block_of_a_language_model_becomes_a_graph() -> None:
    size, heads = 8, 2
    model = load_model(
        "(int32[N, T] ids, float[T, T] mask) => (float[N, T, 8] y)",
        """tokens = Gather (table, ids)
           normal = LayerNormalization (tokens, scale, shift)
           projected = MatMul (normal, weight)
           q, k, v = Split <axis = 2, num_outputs = 3> (projected)
           q4 = Reshape (q, split)
           k4 = Reshape (k, split)
           v4 = Reshape (v, split)
           qt = Transpose <perm = [0, 2, 1, 3]> (q4)
           kt = Transpose <perm = [0, 2, 3, 1]> (k4)
           vt = Transpose <perm = [0, 2, 1, 3]> (v4)
           scores = MatMul (qt, kt)
           scaled = Div (scores, root)
           masked = Add (scaled, mask)
           chosen = Softmax (masked)
           mixed = MatMul (chosen, vt)
           back = Transpose <perm = [0, 2, 1, 3]> (mixed)
           joined = Reshape (back, merge)
           after = Add (tokens, joined)
           wide = MatMul (after, inner)
           bent = Gelu (wide)
           narrow = MatMul (bent, outer)
           y = Add (after, narrow)""",
        {
            "table": floats(11, size),
            "scale": floats(size),
            "shift": floats(size),
            "weight": floats(size, 3 * size),
            "inner": floats(size, 16),
            "outer": floats(16, size),
            "split": np.array([0, 0, heads, size // heads]),
            "merge": np.array([0, 0, size]),
            "root": np.float32(2),
        },
    )
    mask = np.triu(np.full((5, 5), -np.inf, "float32"), 1)
    # The model computes its attention as one operation, which rounds elsewhere.
    graph = require_same(model, RNG.integers(0, 11, (2, 5)).astype("int32"), mask, tolerance=1e-5)
    # Transposed factors are read by strides; a factor that no strides describe is copied.
    (scores,) = (node for name, node in graph.nodes.items() if name == "scores")
    assert scores.tensors()["a"].strides is not None
    assert operators(graph).count("ELEMENT_WISE_IDENTITY") == 1


@FULL
def test_a_network_from_the_onnx_package_becomes_a_graph() -> None:
    (folder,) = data.__path__
    graph = require_same(dmljax.onnx.load(Path(folder) / "light" / "light_squeezenet.onnx"), floats(1, 3, 224, 224))
    assert directml.find_minimum_feature_level(graph) is FeatureLevel.FL_3_0


# What a graph is for


def test_a_graph_is_drawn_saved_and_written(tmp_path: Path) -> None:
    graph, x = small_cnn().graph({"x": (2, 1, 8, 8)}), floats(2, 1, 8, 8)
    expected = directml.lower(graph)(x)
    assert 'label="a\\nCONVOLUTION"' in graph.to_dot()
    assert directml.find_minimum_feature_level(graph) is FeatureLevel.FL_5_1
    dmljax.serialized.save(graph, tmp_path / "cnn.dmlgraph")
    for again in (dmljax.serialized.load(tmp_path / "cnn.dmlgraph"), directml.from_json(directml.to_json(graph))):
        assert_same_bits(directml.lower(again)(x), expected)


# Small models as exporters and quantizers write them: signature, body and weights

NUMBERS = {"scale": np.float32(0.05), "zero": np.uint8(128), "wide": np.float32(0.001), "middle": np.uint16(9)}
INDICES = {"i": np.array([[0, 1], [2, 1], [0, -1]]), "pairs": np.array([[0, 1], [2, 0], [0, 1]])}
HEADS = "q_num_heads = 2, kv_num_heads = 2"
CASES: dict[str, tuple[str, str, Mapping[str, Any]]] = {
    "a bias of 32 bits": (
        "(float[2, 3] x) => (float[2, 3] y)",
        "b = DequantizeLinear <axis = 0> (bias, scales)  y = Add (x, b)",
        {"bias": np.array([5, -70000, 9], "int32"), "scales": np.array([0.5, 0.001, 2], "float32")},
    ),
    "a sum of 32 bits": (
        "(int32[2, 3] x) => (float[2, 3] y)",
        "y = DequantizeLinear <axis = 0> (x, scales)",
        {"scales": np.array([0.5, 2], "float32")},
    ),
    "quantization to 16 bits": (
        "(float[2, 3] x) => (float[2, 3] y)",
        "q = QuantizeLinear (x, wide, middle)  y = DequantizeLinear (q, wide, middle)",
        NUMBERS,
    ),
    "a quantized bias": (
        "(float[2, 3] x) => (uint8[2, 3] y)",
        """q = QuantizeLinear (x, scale, zero)
           y = com.microsoft.QLinearAdd (q, scale, zero, bias, scale, zero, scale, zero)""",
        {**NUMBERS, "bias": np.array([3, 200, 128], "uint8")},
    ),
    **{
        f"scattered by {how}": (
            "(float[3, 2] x, float[3, 2] u) => (float[3, 2] y)",
            f'y = ScatterElements <axis = {axis}, reduction = "{how}"> (x, i, u)',
            INDICES,
        )
        for axis, how in enumerate(("add", "mul"))
    },
    "scattered tuples": (
        "(float[3, 2] x, float[3] u) => (float[3, 2] low, float[3, 2] high)",
        'low = ScatterND <reduction = "min"> (x, pairs, u)  high = ScatterND <reduction = "max"> (x, pairs, u)',
        INDICES,
    ),
    "a branch": (
        "(float[3] x, float s) => (float[3] y, float[1] z)",
        """c = Greater (s, one)
           y, z = If (c) <then_branch = f () => (float[3] t, float[1] u) { t = Relu (x)  u = Unsqueeze (s, first) },
                         else_branch = g () => (float[3] e, float[1] v) { e = Neg (x)  v = Identity (ones) }>""",
        {"one": np.float32(1), "first": np.array([0]), "ones": np.ones(1, "float32")},
    ),
    "rounds that follow each other": (
        "(float[2] s, float[3, 2] x) => (float[2] last, float[3, 2] sums)",
        """last, sums = Scan <num_scan_inputs = 1, scan_input_directions = [1],
               body = f (float[2] a, float[2] b) => (float[2] c, float[2] d) { c = Add (a, b)  d = Mul (c, b) }>
               (s, x)""",
        {},
    ),
    "rotated pairs": (
        "(float[1, 2, 3, 4] x) => (float[1, 2, 3, 4] y)",
        "y = RotaryEmbedding <interleaved = 1> (x, cos, sin)",
        {"cos": floats(1, 3, 2), "sin": floats(1, 3, 2)},
    ),
    "sampled at a grid": (
        "(float[1, 2, 4, 5] x, float[1, 3, 2, 2] grid) => (float[1, 2, 3, 2] y)",
        'y = GridSample <padding_mode = "zeros"> (x, grid)',
        {},
    ),
    "attention where a mask lets it": (
        "(float[2, 3, 4] q, float[2, 3, 4] k, float[2, 3, 4] v) => (float[2, 3, 4] y)",
        f"y = Attention <{HEADS}> (q, k, v, mask)",
        {"mask": np.tri(3, dtype=bool)},
    ),
    "sizes that follow from a weight": (
        "(float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y)",
        "wide = Cast <to = 1> (half)  scales = Relu (wide)  y = Resize (x, , scales)",
        {"half": np.array([1, 1, 2, 2], "float16")},
    ),
    "a quantized product with scales of 16 bits": (
        "(float[2, 3] x) => (uint8[2, 2] y)",
        """q = QuantizeLinear (x, scale, zero)
           y = QLinearMatMul (q, half, zero, matrix, half, zero, half, zero)""",
        {**NUMBERS, "half": np.float16(0.05), "matrix": np.array([[3, 200], [128, 9], [7, 255]], "uint8")},
    ),
    "bits of negative numbers": (
        "(int32[3] x) => (int32[3] y, float[3] z)",
        'y = BitShift <direction = "RIGHT"> (x, x)  z = BitCast <to = 1> (x)',
        {},
    ),
    "an input that is read transposed, and one that is not read": (
        "(float[2, 3] x, float[4] unread) => (float[3, 2] y)",
        "t = Transpose (x)  y = Relu (t)",
        {},
    ),
    "outputs of one node": (
        "(float[2, 3] x) => (float[2, 3] y, float[2, 3] z, float[6] flat, float[2] known)",
        """y = Relu (x)
           z = Identity (y)
           flat = Reshape (y, all)
           known = Constant <value_floats = [1.0, 2.0]> ()""",
        {"all": np.array([-1])},
    ),
}


@SAMPLED
@pytest.mark.parametrize("name", CASES)
def test_a_graph_and_its_file_compute_what_the_model_does(name: str) -> None:
    signature, body, weights = CASES[name]
    model = load_model(signature, body, weights, version=26)
    inputs = [_random(input) for input in model.inputs]
    graph = model.graph()
    again = dmljax.serialized.parse(dmljax.serialized.serialize(graph), lambda name: b"")
    expected = jax.tree.leaves(model(*inputs))
    for variant in (graph, again):
        results: Any = directml.lower(variant)(*(as_tensor(value) for value in inputs))
        several = results.values() if isinstance(results, dict) else [results]
        for result, reference in zip(several, expected, strict=True):
            np.testing.assert_allclose(result, as_tensor(reference), rtol=1e-5, atol=1e-6, err_msg=name)


def _random(input: Any) -> Any:
    return RNG.integers(-9, 9, input.sizes).astype("int32") if input.dtype == np.int32 else floats(*input.sizes)


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("a sum of 32 bits", "ELEMENT_WISE_DEQUANTIZE_LINEAR"),
        ("a quantized bias", "ELEMENT_WISE_QUANTIZED_LINEAR_ADD"),
        ("attention where a mask lets it", "MULTIHEAD_ATTENTION1"),
    ],
)
def test_an_operator_that_takes_other_tensors_stays_one_node(name: str, operator: str) -> None:
    signature, body, weights = CASES[name]
    assert operators(load_model(signature, body, weights, version=26).graph()).count(operator) == 1


@GATE
def test_maximum_sizes_bound_data_dependent_results() -> None:
    body = "places = NonZero (x)  rows = Transpose (places)  y = GatherND (x, rows)"
    text = f'<ir_version: 10, opset_import: ["": 21]> f (float[2, 3] x) => (float[k] y) {{ {body} }}'
    model = dmljax.onnx.load(onnx.parser.parse_model(text), maximum_sizes={"places": 4})
    require_same(model, np.array([[0, 7, 0], [5, 0, 0]], "float32"))


def test_a_loop_may_run_backward() -> None:
    def sums(x: Any) -> Any:
        return jax.lax.scan(lambda total, x_i: (total + x_i, total), 0 * x[0], x, reverse=True)[1]

    builder, x = Converter(), floats(3, 2)
    view = builder.input("x", jax.ShapeDtypeStruct(x.shape, x.dtype))
    (result,) = builder.convert(("nodes", "loop"), jax.make_jaxpr(sums)(x), [], [view])
    assert_same_bits(directml.lower(builder.finish({"y": result.source}))(x), sums(x))


def test_a_loop_of_many_rounds_is_refused() -> None:
    model = load_model(
        "(float[2] s, float[200, 2] x) => (float[2] last)",
        """last = Scan <num_scan_inputs = 1,
               body = f (float[2] a, float[2] b) => (float[2] c) { c = Add (a, b) }> (s, x)""",
    )
    with pytest.raises(Unsupported, match=r"Scan.scan must be a loop of 1 to 128 rounds; got 200"):
        model.graph()


# Shapes


def test_open_sizes_that_share_a_name_are_given_once() -> None:
    model = load_model("(float[N, 2] a, float[N, 2] b) => (float[N, 2] y)", "y = Add (a, b)")
    assert model.graph({"b": (3, 2)}).inputs["a"].sizes == (3, 2)


def test_sizes_that_are_fixed_need_not_be_given() -> None:
    model = load_model("(float[3, 2] x) => (float[3, 2] y)", "y = Relu (x)")
    assert model.graph().inputs["x"].sizes == (3, 2)


@pytest.mark.parametrize(
    ("shapes", "error", "match"),
    [
        ({}, InvalidDesc, r"shapes must give the open sizes of a: float32\[N, 2\].* \(shapes={'a': \(1, 2\)"),
        ({"a": (3, 2), "b": (4, 2)}, InvalidDesc, r"shapes.b must match b: float32\[N, 2\]; got \{4,2\}"),
        ({"a": (3, 3)}, InvalidDesc, r"shapes.a must match a: float32\[N, 2\]; got \{3,3\}"),
        ({"c": (3, 2)}, InvalidDesc, "shapes must name only inputs, a, b; got 'c'"),
        ([(3, 2)], InvalidType, "shapes must be a mapping"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: Any, error: type[Exception], match: str) -> None:
    model = load_model("(float[N, 2] a, float[N, 2] b) => (float[N, 2] y)", "y = Add (a, b)")
    with pytest.raises(error, match=match):
        model.graph(shapes)


# Views


def test_transposes_and_reshapes_become_strides_and_not_nodes() -> None:
    model = load_model(
        "(float[2, 3] x, float[3] row) => (float[3, 2] y)",
        "a = Transpose <perm = [1, 0]> (x)  b = Unsqueeze (row, last)  y = Mul (a, b)",
        {"last": np.array([1])},
    )
    graph = require_same(model, floats(2, 3), floats(3))
    assert operators(graph) == ["ELEMENT_WISE_MULTIPLY"]
    tensors = graph.nodes["y"].tensors()
    assert (tensors["a"].strides, tensors["b"].strides) == ((1, 3), (1, 0))


def test_layouts_that_strides_cannot_express_are_copied() -> None:
    model = load_model(
        "(float[2, 3] x) => (float[6] y)",
        "a = Transpose <perm = [1, 0]> (x)  b = Reshape (a, flat)  y = Relu (b)",
        {"flat": np.array([-1])},
    )
    assert operators(require_same(model, floats(2, 3))) == ["ELEMENT_WISE_IDENTITY", "ACTIVATION_RELU"]


def test_every_output_comes_from_a_node() -> None:
    model = load_model(
        "(float[2, 3] x) => (float[2, 3] same, float[3, 2] turned, float[1] known)",
        "same = Identity (x)  turned = Transpose (x)  known = Constant <value_floats = [7.0]> ()",
    )
    assert operators(require_same(model, floats(2, 3))) == ["ELEMENT_WISE_IDENTITY"] * 3


def test_truth_values_are_bytes_and_scalars_have_a_dimension() -> None:
    model = load_model(
        "(float x, bool[2] flags) => (float y, bool[2] z)",
        "y = Sqrt (x)  big = Greater (x, one)  z = And (big, flags)",
        {"one": np.float32(1)},
    )
    graph = require_same(model, np.float32(4), np.array([True, False]))
    assert [str(x) for x in graph.inputs.values()] == ["FLOAT32 {1}", "UINT8 {2}"]


def test_unneeded_nodes_are_left_out() -> None:
    model = load_model("(float[2] x) => (float[2] y)", "unused = Exp (x)  y = Dropout (x)")
    assert operators(require_same(model, floats(2))) == ["ACTIVATION_IDENTITY"]


# Ranks and types


@SAMPLED
@pytest.mark.parametrize(
    ("body", "shapes", "expected"),
    [
        ("y = Conv <pads = [1, 1], strides = [2]> (x, w)", [(1, 2, 7), (3, 2, 3)], {"input": (1, 2, 7, 1)}),
        ("y = AveragePool <kernel_shape = [2]> (x)", [(1, 2, 7)], {"output": (1, 2, 6, 1)}),
        ("y = MatMul (x, w)", [(2, 1, 3, 2, 4), (3, 4, 5)], {"a": (6, 2, 4), "b": (6, 4, 5)}),
        ("y = MatMul (x, w)", [(3,), (3,)], {"a": (1, 3), "output": (1, 1)}),
        ("y = LRN <size = 3> (x)", [(1, 4, 5)], {"input": (1, 4, 5, 1)}),
        ("y = LRN <size = 3> (x)", [(1, 4, 5, 2, 3)], {"input": (1, 4, 30, 1)}),
        (
            "y = InstanceNormalization (x, w, w)",
            [(2, 3, 8), (3,)],
            {"input": (2, 3, 8, 1), "scale": (1, 3, 1, 1), "output": (2, 3, 8, 1)},
        ),
    ],
)
def test_ranks_are_adapted_to_directml(
    body: str, shapes: Sequence[tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    signature = ", ".join(f"float{list(shape)} {name}" for name, shape in zip("xw", shapes, strict=False))
    graph = require_same(load_model(f"({signature}) => (float[...] y)".replace("[...]", ""), body), *map(_of, shapes))
    node = graph.nodes["y"]
    assert {field: node.tensors()[field].sizes for field in expected} == expected


def _of(shape: tuple[int, ...]) -> Any:
    return floats(*shape).round()  # so that sums are exact in any order


@needs_x64
def test_a_cast_to_bool_compares_with_zero() -> None:
    model = load_model("(float[3] x) => (bool[3] y)", "y = Cast <to = 9> (x)")
    assert operators(require_same(model, np.array([0.5, 0.0, -3.0], "float32"))) == [
        *("ELEMENT_WISE_LOGICAL_EQUALS", "ELEMENT_WISE_LOGICAL_NOT")
    ]


def test_bounds_that_are_not_known_are_tensors() -> None:
    model = load_model("(float[3] x, float low) => (float[3] y)", "y = Clip (x, low)")
    assert operators(require_same(model, floats(3), np.float32(0))) == ["ELEMENT_WISE_MAX"]


# Refusals


@GATE
def test_all_unsupported_nodes_are_reported_at_once() -> None:
    model = load_model(
        "(float[4, 4] x, float[1, 8, 1] s) => (float a, float[1, 8, 2] c, float b)",
        "a = Det (x)  c = DFT (s)  d = Neg (x)  b = Det (d)",
    )
    with pytest.raises(Unsupported) as raised:
        model.graph()
    reported = [(problem.path[:3], problem.given) for problem in raised.value.problems]
    assert reported == [(("nodes", "a", "Det"), "lu, in 2 nodes"), (("nodes", "c", "DFT"), "fft"), ((), None)]


# A model with two nodes that have no DirectML operators; a language model may have one in each block
def uneven() -> Model:
    return load_model(
        "(float[N, 4, 4] x) => (float[N, 4, 4] y, float[N, 4, 4] first)",
        """first = Exp (x)
           a = Det (first)
           b = Unsqueeze (a, last)
           c = Mul (first, b)
           d = Det (c)
           e = Unsqueeze (d, last)
           f = Neg (e)
           y = Add (first, f)""",
        {"last": np.array([1, 2])},
    )


@GATE
def test_a_refusal_says_how_to_cut_the_model() -> None:
    model, shapes, x = uneven(), {"x": (2, 4, 4)}, floats(2, 4, 4)
    with pytest.raises(Unsupported) as raised:
        model.graph(shapes)
    calls = re.findall(r"(model\.graph\(.*?\))(?:; |$)", raised.value.rules[-1])
    before, behind = (eval(call, {"model": model, "shapes": shapes, "jax": jax}) for call in calls)
    between = model.graph({**shapes, "a": jax.ShapeDtypeStruct((2,), "float32")}, outputs=["c"])
    assert [operators(part) for part in (before, between, behind)] == [
        ["ELEMENT_WISE_EXP"],
        ["ELEMENT_WISE_EXP", "ELEMENT_WISE_MULTIPLY"],
        ["ELEMENT_WISE_NEGATE", "ELEMENT_WISE_ADD"],
    ]
    first = directml.lower(before)(x)
    c = directml.lower(between)(x=x, a=jnp.linalg.det(first))
    y = directml.lower(behind)(d=jnp.linalg.det(c), first=first)
    for result, reference in zip((y, first), model(x), strict=True):
        np.testing.assert_allclose(result, reference, rtol=1e-5)


def test_nodes_with_data_dependent_sizes_are_cut_off() -> None:
    model = load_model(
        "(float[2, 3] x) => (float[k, 2] y)",
        "m = Relu (x)  places = NonZero (m)  f = Cast <to = 1> (places)  t = Transpose (f)  y = Neg (t)",
    )
    with pytest.raises(Unsupported, match=r"must be known while tracing(.|\n)*outputs=\['m'\].*'places'") as raised:
        model.graph()
    assert isinstance(raised.value.problems[0].remedy, str)
    graph = model.graph({"places": jax.ShapeDtypeStruct((2, 4), "int32")})
    assert list(graph.inputs) == ["places"]
    assert operators(graph) == ["CAST", "ELEMENT_WISE_NEGATE"]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"outputs": ["c", "z"]}, InvalidDesc, "onnx: outputs must name results of nodes; got 'z'"),
        ({"outputs": "c"}, InvalidType, "onnx: outputs must be a sequence of names; got 'c'"),
        (
            {"shapes": {"a": (2,)}},
            InvalidType,
            r"onnx: shapes\.a must be a jax.ShapeDtypeStruct, because a node computes it",
        ),
    ],
)
def test_cuts_that_do_not_fit_are_refused(given: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        uneven().graph(**given)


def test_empty_tensors_and_other_types_are_refused() -> None:
    model = load_model("(float[N, 2] x) => (float[N, 2] y)", "y = Relu (x)")
    with pytest.raises(
        Unsupported, match=r"inputs.x must not be empty, because DirectML has no empty tensors; got \{0,2\}"
    ):
        model.graph({"x": (0, 2)})
    model = load_model("(bfloat16[2] x) => (bfloat16[2] y)", "y = Identity (x)")
    with pytest.raises(Unsupported, match=r"inputs\.x must have a DirectML data type; got bfloat16"):
        model.graph()
