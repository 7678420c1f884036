"""Weights of models on meshes: which dimension devices divide, and that results equal those of one device."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx.parser
import pytest
from helpers import GATE, SAMPLED, collectives, mesh_of
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

import dmljax.onnx
from dmljax.directml import InvalidDesc, InvalidType

MESH = AbstractMesh((4, 2), ("data", "model"))
RNG = np.random.default_rng(0)


def read(inputs: str, weights: str, nodes: str, output: str = "float y", **others: Any) -> dmljax.onnx.Model:
    """A model in the text of the package onnx, with random weights of the given shapes, and others."""
    text = f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> f ({inputs}) => ({output}) {{ {nodes} }}'
    proto = onnx.parser.parse_model(text)
    for declaration in weights.split():
        name, _, sizes = declaration.partition(":")
        others[name] = RNG.standard_normal(tuple(map(int, sizes.split("x")))).astype("float32")
    for name, array in others.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return dmljax.onnx.load(proto)


PERCEPTRON = (
    "float[N, 8] x",
    "up:8x16 up_bias:16 down:16x8 down_bias:8 head:8x6",
    "a = MatMul(x, up) b = Add(up_bias, a) c = Gelu(b) d = MatMul(c, down) e = Add(d, down_bias)"
    " f = Add(x, e) y = MatMul(f, head)",
)


def test_the_first_product_is_divided_by_columns_and_the_next_by_rows() -> None:
    assert read(*PERCEPTRON).partition(MESH) == {
        "up": P(None, "model"),
        "up_bias": P("model"),
        "down": P("model"),
        "down_bias": P(),
        "head": P(None, "model"),
    }


def test_queries_keys_and_values_are_divided_by_columns_and_the_output_by_rows() -> None:
    nodes = """q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
        a = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v) b = MatMul(a, wo)
        c = LayerNormalization(b, scale) d = Gemm<transB = 1>(c, up, bias) y = Gemm<transB = 1>(d, down, other)"""
    weights = "wq:8x8 wk:8x8 wv:8x8 wo:8x8 scale:8 up:16x8 bias:16 down:8x16 other:8"
    assert read("float[N, 5, 8] x", weights, nodes).partition(MESH) == {
        **dict.fromkeys(["wq", "wk", "wv"], P(None, "model")),
        "wo": P("model"),
        "scale": P(),
        "up": P("model"),
        "bias": P("model"),
        "down": P(None, "model"),
        "other": P(),
    }


@GATE
def test_several_tpus_have_a_kernel_for_each_product_with_few_bits(lower_for: Callable[[str], None]) -> None:
    nodes = """a = com.microsoft.MatMulNBits<K = 128, N = 512, bits = 4, block_size = 16>(x, up, up_scales)
        b = Gelu(a) y = com.microsoft.MatMulNBits<K = 512, N = 128, bits = 4, block_size = 16>(b, down, down_scales)"""
    codes = {"up": (512, 8, 8), "down": (128, 32, 8)}
    arrays: Any = {name: RNG.integers(0, 256, sizes, np.uint8) for name, sizes in codes.items()}
    arrays |= {f"{name}_scales": np.full(n * blocks, 0.01, np.float32) for name, (n, blocks, _) in codes.items()}
    model, x = read("float[N, 128] x", "", nodes, **arrays), RNG.standard_normal((8, 128)).astype(np.float32)
    expected = model(x)
    mesh = mesh_of(AxisType.Auto, data=2, model=4)
    weights: Any = model.shard(mesh)
    shared = jax.device_put(x, NamedSharding(mesh, P("data")))
    assert (weights["up"].sharding.spec, weights["down"].sharding.spec) == (P("model"), P(None, "model"))
    lowered = jax.jit(model.apply).trace(weights, shared).lower(lowering_platforms=("tpu",))
    assert lowered.as_text().count("tpu_custom_call") == 2
    lower_for("tpu")
    compiled = jax.jit(lambda weights, x: model.apply(weights, x)).lower(weights, shared).compile()
    np.testing.assert_allclose(compiled(weights, shared), expected, rtol=0.02, atol=0.02)
    assert [name for name, _ in collectives(compiled)] == ["all-reduce"]


@GATE
def test_experts_are_divided_by_their_hidden_units() -> None:
    nodes = "y = com.microsoft.MoE<k = 2>(x, router, up, up_bias, down, down_bias, gate, gate_bias)"
    weights = "up:4x8x6 up_bias:4x8 down:4x6x8 down_bias:4x6 gate:4x8x6 gate_bias:4x8"
    model = read("float[3, 6] x, float[3, 4] router", weights, nodes)
    specs = model.partition(MESH)
    assert specs == {
        **dict.fromkeys(["up", "up_bias", "gate", "gate_bias"], P(None, "model")),
        "down": P(None, None, "model"),
        "down_bias": P(),
    }
    mesh = mesh_of(AxisType.Auto, data=4, model=2)
    inputs = RNG.standard_normal((3, 6)).astype("float32"), RNG.standard_normal((3, 4)).astype("float32")
    compiled = jax.jit(model.apply).lower(model.shard(mesh, specs), *inputs).compile()
    assert "all-gather" not in (compiled.as_text() or ""), "no weights move"
    np.testing.assert_allclose(compiled(model.shard(mesh, specs), *inputs), model(*inputs), rtol=1e-5, atol=1e-5)


def test_a_norm_keeps_all_features_on_each_device() -> None:
    nodes = "a = MatMul(x, first) b = LayerNormalization(a, scale) y = MatMul(b, second)"
    specs = read("float[N, 4] x", "first:4x8 scale:8 second:8x8", nodes).partition(MESH)
    assert specs == {"first": P(None, "model"), "scale": P(), "second": P(None, "model")}


def test_convolutions_have_their_output_channels_divided() -> None:
    nodes = """a = Conv<pads = [1, 1, 1, 1]>(x, w, b) c = BatchNormalization(a, scale, shift, mean, variance)
        d = Mul(c, gate) e = ConvTranspose(d, back, c0) g = Conv<group = 6>(e, each) h = ConvTranspose<group = 6>(g, h0)
        i = GlobalAveragePool(h) j = Flatten(i) y = Gemm(j, head)"""
    weights = """w:4x2x3x3 b:4 scale:4 shift:4 mean:4 variance:4 gate:4x1x1 back:4x6x2x2 c0:6 each:6x1x2x2 h0:6x1x1x1
        head:6x3"""
    specs = read("float[N, 2, 8, 8] x", weights, nodes).partition(MESH)
    assert specs.pop("back") == P(None, "model"), "a transposed convolution has its output channels second"
    assert set(specs.values()) == {P("model")}


def test_a_table_is_whole_unless_it_is_large_or_shared_or_the_model_deep() -> None:
    nodes = "a = Gather(table, i) t = Transpose(table) y = MatMul(a, t)"
    assert read("int64[N] i", "table:10x6", nodes).partition(MESH) == {"table": P("model")}
    nodes = "a = Gather(table, i) b = Add(a, places) y = MatMul(b, w)"
    specs = read("int64[N] i", "table:10x6 places:6 w:6x4", nodes).partition(MESH)
    assert specs == {"table": P("model"), "places": P(), "w": P(None, "model")}, "10 of 15 weights"
    specs = read("int64[N] i", "table:10x6 places:6 w:6x80", nodes).partition(MESH)
    assert specs == {"table": P(), "places": P(), "w": P(None, "model")}, "a ninth of the weights"
    specs = read("int64[N] i", "table:9x6 places:6 w:6x4", nodes).partition(MESH)
    assert specs["table"] == P(None, "model"), "large, and devices cannot share its rows"


@pytest.mark.parametrize(("blocks", "spec"), [(19, P()), (20, P("model"))])
def test_deep_models_divide_tables_by_rows(blocks: int, spec: P) -> None:
    each = [f"h{i} = MatMul(x{i}, up) x{i + 1} = MatMul(h{i}, down)" for i in range(blocks)]
    nodes = " ".join(("x0 = Gather(table, i)", *each, f"y = Relu(x{blocks})"))
    specs = read("int64[N] i", "table:4x8 up:8x64 down:64x8", nodes).partition(MESH)
    assert specs == {"table": spec, "up": P(None, "model"), "down": P("model")}


def test_tables_of_few_bits_are_divided_with_their_scales() -> None:
    nodes = "y = com.microsoft.GatherBlockQuantized<bits = 8, block_size = 16>(codes, i, scales)"
    model = read("int64[N] i", "scales:256x2", nodes, codes=RNG.integers(0, 255, (256, 32)).astype(np.uint8))
    assert model.partition(MESH) == {"codes": P("model"), "scales": P("model")}


def test_recurrent_layers_have_their_gates_divided() -> None:
    model = read("float[5, N, 3] x", "w:1x16x3 r:1x16x4 b:1x32", "y, h = LSTM<hidden_size = 4>(x, w, r, b)")
    assert model.partition(MESH) == dict.fromkeys("wrb", P(None, "model"))


@pytest.mark.parametrize("is_gradient", [False, True])
@GATE
def test_steps_of_a_divided_lstm_exchange_only_its_state(is_gradient: bool) -> None:
    nodes = 'y, h = LSTM<hidden_size = 16, direction = "bidirectional">(x, w, r, b)'
    model, mesh = read("float[5, N, 3] x", "w:2x64x3 r:2x64x16 b:2x128", nodes), mesh_of(AxisType.Auto, model=8)
    x, weights = np.ones((5, 2, 3), np.float32), model.shard(mesh, model.partition(mesh))
    function = jax.grad(lambda *arguments: (model.apply(*arguments)[0] ** 2).sum()) if is_gradient else model.apply
    text = jax.jit(function).lower(weights, x).compile().as_text() or ""
    # Before and after the loop, weights and their gradients change places by all-to-all and collective-permute.
    exchanges = re.findall(r" = (\S+?){\S+ (all-gather|all-reduce|reduce-scatter)\(", text)
    kinds = ["all-gather", "all-gather", "all-reduce"] if is_gradient else ["all-gather"]
    assert sorted(exchanges) == [("f32[2,2,16]", kind) for kind in kinds]


def test_weights_that_do_not_divide_are_replicated() -> None:
    specs = read("float[N, 4] x", "w:4x7 b:7 v:7x8", "a = Gemm(x, w, b) y = MatMul(a, v)").partition(MESH)
    assert specs == {"w": P(), "b": P(), "v": P(None, "model")}
    model = read("float[N, 4] x", "w:4x6 v:6x8", "a = MatMul(x, w) y = MatMul(a, v)")
    assert model.partition(AbstractMesh((3,), ("chips",)), axis="chips") == {"w": P(None, "chips"), "v": P("chips")}


def test_specs_may_be_changed_and_missing_ones_replicate() -> None:
    model, mesh = read(*PERCEPTRON), mesh_of(AxisType.Auto, data=4, model=2)
    specs = model.partition(mesh) | {"head": P("model"), "up": P("data", "model")}
    del specs["down"]
    weights = model.shard(mesh, specs)
    assert {name: weight.sharding for name, weight in weights.items()} == {
        name: NamedSharding(mesh, specs.get(name, P())) for name in model.weights
    }
    assert weights["up"].addressable_data(0).shape == (2, 8)


def test_sharded_weights_may_be_donated() -> None:
    model, mesh = read(*PERCEPTRON), mesh_of(AxisType.Auto, data=8)
    weights = model.shard(mesh, {})
    jax.block_until_ready(jax.jit(lambda weights: jax.tree.map(jnp.negative, weights), donate_argnums=0)(weights))
    assert all(weight.is_deleted() for weight in weights.values())
    assert model(np.ones((1, 8), np.float32)).shape == (1, 6), "the model keeps its own weights"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((MESH,), InvalidType, r"mesh must be a jax.sharding.Mesh with devices; .*\(use jax.make_mesh\)"),
        (
            (None, [P()]),
            InvalidType,
            r"specs must be a PartitionSpec, or map names of weights to PartitionSpecs; got \[",
        ),
        ((None, {"upp": P()}), InvalidDesc, "specs must name weights; got 'upp'"),
        ((None, {"up": ("model",)}), InvalidType, r"specs.up must be a PartitionSpec; got"),
        ((None, {"up_bias": P(None, "model")}), InvalidDesc, r"weights.up_bias must have a dimension for each entry"),
        ((None, P("x")), InvalidDesc, r"weights.\w+ must be divided along axes of the mesh, data and model; got 'x'"),
        (
            (None, {"head": P(None, "data")}),
            InvalidDesc,
            r"weights.head: dimension 1 must be divisible by 4 devices; got \(8, 6\) \(leave it None",
        ),
    ],
)
def test_weights_that_cannot_be_placed_are_refused(arguments: Any, error: Any, message: str) -> None:
    mesh, *specs = arguments
    with pytest.raises(error, match=f"^onnx: {message}"):
        read(*PERCEPTRON).shard(mesh or mesh_of(AxisType.Auto, data=4, model=2), *specs)


def test_an_axis_that_the_mesh_lacks_is_refused() -> None:
    message = r"^onnx: axis must be an axis of the mesh; got 'model' \(its axes are data and tensor\)"
    with pytest.raises(InvalidDesc, match=message):
        read(*PERCEPTRON).partition(AbstractMesh((4, 2), ("data", "tensor")))
    with pytest.raises(InvalidType, match=r"mesh must be a jax.sharding.Mesh or AbstractMesh; got 8"):
        read(*PERCEPTRON).partition(8)  # type: ignore[arg-type]


# Results on eight devices

ATTENTION = (
    "int32[N, 6] x",
    "table:10x8 stacked:8x24 s_bias:24 out:8x8 scale:8 shift:8 up:8x16 up_bias:16 down:16x8 down_bias:8 head:8x10",
    """shape = Constant<value_ints = [0, 0, 3, 4, 2]>() rows = Constant<value_ints = [0, 0, -1]>()
    first = Constant<value_int = 0>() second = Constant<value_int = 1>() third = Constant<value_int = 2>()
    e = Gather(table, x) n = LayerNormalization(e, scale, shift) s = MatMul(n, stacked) t = Add(s, s_bias)
    u = Reshape(t, shape) v = Transpose<perm = [2, 0, 3, 1, 4]>(u)
    q = Gather(v, first) k = Gather(v, second) w = Gather(v, third) l = Transpose<perm = [0, 1, 3, 2]>(k)
    scores = MatMul(q, l) p = Softmax(scores) m = MatMul(p, w) mixed = Transpose<perm = [0, 2, 1, 3]>(m)
    r = Reshape(mixed, rows) o = MatMul(r, out) a = Add(e, o)
    b = MatMul(a, up) c = Add(b, up_bias) d = Gelu(c) f = MatMul(d, down) g = Add(f, down_bias) h = Add(a, g)
    y = MatMul(h, head)""",
)
IMAGES = (
    "float[N, 2, 8, 8] x",
    "w:8x2x3x3 b:8 v:4x8x3x3 c:4 z:4x12x3x3 head:256x6 bias:6",
    """a = Conv<pads = [1, 1, 1, 1]>(x, w, b) d = Relu(a) e = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d)
    f = Conv<pads = [1, 1, 1, 1]>(e, v, c) s = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>()
    g = Resize<mode = "linear">(f, , s) h = Concat<axis = 1>(g, d) i = Conv<pads = [1, 1, 1, 1]>(h, z)
    j = Flatten(i) y = Gemm(j, head, bias)""",
)
NORMS = (
    "float[N, 2, 8, 8] x",
    "w:8x2x3x3 w_bias:8 scale:8 shift:8 v:8x8x3x3 v_bias:8 gamma:8 beta:8 head:8x6",
    """a = Conv(x, w, w_bias) b = GroupNormalization<num_groups = 4>(a, scale, shift) c = Relu(b) d = Conv(c, v, v_bias)
    e = com.microsoft.GroupNorm<groups = 2, channels_last = 0, activation = 1>(d, gamma, beta)
    f = GlobalAveragePool(e) g = Flatten(f) y = Gemm(g, head)""",
)
RECURRENT = (
    "float[5, N, 6] x",
    "w:2x32x6 r:2x32x8 b:2x64 head:16x10 bias:10",
    """s, t, u = LSTM<hidden_size = 8, direction = "bidirectional">(x, w, r, b) v = Transpose<perm = [0, 2, 1, 3]>(s)
    rows = Constant<value_ints = [0, 0, -1]>() z = Reshape(v, rows) m = MatMul(z, head) y = Add(m, bias)""",
)
LOOKUP = ("int32[N, 6] x", "table:40x8 head:8x6", "e = Gather(table, x) y = MatMul(e, head)")
NETWORKS = {
    "attention": (ATTENTION, RNG.integers(0, 10, (8, 6)).astype(np.int32), 0),
    "images": (IMAGES, RNG.standard_normal((8, 2, 8, 8), np.float32), 0),
    "norms of groups": (NORMS, RNG.standard_normal((8, 2, 8, 8), np.float32), 0),
    "recurrent": (RECURRENT, RNG.standard_normal((5, 8, 6), np.float32), 1),
    "table by rows": (LOOKUP, RNG.integers(0, 40, (8, 6)).astype(np.int32), 0),
}


def loss_and_gradient(model: Any, weights: Any, x: Any) -> Any:
    loss = lambda weights, x: jnp.mean(model.apply(weights, x) ** 2)  # noqa: E731
    return jax.jit(jax.value_and_grad(loss))(weights, x)


def assert_close(actual: Any, expected: Any) -> None:
    for value, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-4 * np.abs(other).max(initial=1e-3))


@SAMPLED
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", NETWORKS)
@GATE
def test_data_and_weights_may_be_divided_at_once(name: str, axis_type: AxisType) -> None:
    described, x, batch = NETWORKS[name]
    model, mesh = read(*described), mesh_of(axis_type, data=4, model=2)
    weights = model.shard(mesh)
    assert sum(not weight.sharding.is_fully_replicated for weight in weights.values()) > len(weights) / 2
    sharded = jax.device_put(x, NamedSharding(mesh, P(*[None] * batch, "data")))
    assert_close(loss_and_gradient(model, weights, sharded), loss_and_gradient(model, model.weights, x))


@SAMPLED
@pytest.mark.parametrize("name", NETWORKS)
def test_a_part_of_the_batch_may_be_computed_inside_shard_map(name: str) -> None:
    described, x, batch = NETWORKS[name]
    model, mesh = read(*described), mesh_of(AxisType.Auto, data=8)
    spec, of_output = P(*[None] * batch, "data"), P(*[None] * batch, "data")
    inside = jax.shard_map(model.apply, mesh=mesh, in_specs=(P(), spec), out_specs=of_output)
    assert_close(jax.jit(inside)(model.shard(mesh, {}), x), model.apply(model.weights, x))
