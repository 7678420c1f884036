"""Image networks compute the same with channels last as with ONNX's order of channels."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, GATE, SAMPLED, assert_same_bits, few_of, transposes
from onnx import TensorProto, helper
from onnx_models import FLOAT, model, value

import dmljax.onnx
from dmljax import DmlError
from dmljax.lowerings.images import channels
from dmljax.onnx.graph.graph import Node
from dmljax.onnx.graph.reader import Reader
from dmljax.onnx.handlers.registry import REGISTRY, Handler
from dmljax.onnx.running.images import images_of, layers_of, of_images

ELEMENTWISE = {
    f"{operator} since {handler.since}": handler
    for (_, operator), handlers in sorted(REGISTRY.handlers.items())
    for handler in handlers
    if handler.is_elementwise
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Cast": {"to": TensorProto.FLOAT16},
    "ParametricSoftplus": {"alpha": 2.0, "beta": 0.5},
}
# One input, several, an optional one, other types, slopes per channel, a condition.
IMAGE = (2, 3, 4, 5)
SIZES = [IMAGE, (1, 3, 1, 1), (3, 4, 1)]  # an image, an element for each channel, and one for each row of a channel


def elements(sizes: tuple[int, ...], dtype: str, seed: int = 0) -> jax.Array:
    numbers = np.random.default_rng(seed).standard_normal(sizes) * 3
    numbers.flat[:: max(7, numbers.size // 5)] = -0.0
    return jnp.asarray(numbers.astype(dtype))


def accepted_inputs(handler: Handler, attributes: dict[str, Any]) -> list[jax.Array]:
    """Inputs that an operator takes, images or arrays that broadcast to them, in the first type that it supports."""
    count = handler.required if handler.allowed is not None else 3
    for dtype in ("float32", "int32", "bool"):
        inputs = [elements(sizes, dtype, i) for i, sizes in enumerate(SIZES[:count])]
        if count == 3 and handler.allowed == 3:  # WHERE, whose first is a condition
            inputs[0] = inputs[0] > 0
        with contextlib.suppress(DmlError):
            jax.eval_shape(lambda *inputs: handler.function(*inputs, **attributes), *inputs)
            return inputs
    raise AssertionError("takes none of the types")


@SAMPLED
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operators_compute_the_same_in_either_layout(name: str) -> None:
    handler, attributes = ELEMENTWISE[name], ATTRIBUTES.get(name.split()[0], {})
    inputs = accepted_inputs(handler, attributes)

    @jax.jit
    def both(*inputs: Any) -> Any:
        return of_images(handler.function, inputs, attributes), handler.function(*inputs, **attributes)

    moved, expected = both(*inputs)
    assert (moved.dtype, moved.shape) == (expected.dtype, expected.shape)
    # JAX 0.8's XLA may or may not vectorize the logarithm, which affects the last bit.
    np.testing.assert_allclose(moved, expected, rtol=1e-6 if moved.dtype == jnp.float32 else 0)


def test_the_elementwise_operators_of_networks_are_known() -> None:
    common = {"Add", "Clip", "Div", "HardSigmoid", "LeakyRelu", "Mul", "PRelu", "Relu", "Sigmoid", "Sub", "Where"}
    assert common <= {name.split()[0] for name in ELEMENTWISE}


OPERANDS = [(), (1,), (5,), (4, 1), (3, 1, 1), (1, 3, 1, 1), (2, 3, 1, 1), (2, 1, 4, 5), IMAGE, (7, 2, 3, 4, 5)]


@SAMPLED
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_operands_broadcast_to_channels_last_images(dtype: str) -> None:
    image = elements(IMAGE, "float32").astype(dtype)
    others = [elements(sizes, "float32", 1).astype(dtype) for sizes in OPERANDS]

    @jax.jit
    def both(image: Any, others: Any) -> Any:
        pairs = [pair for other in others for pair in ((image, other), (other, image))]
        pairs += [(image, np.asarray(3, dtype)), (np.full((3, 1, 1), 2, dtype), image)]
        return [(of_images(jnp.subtract, pair, {}), jnp.subtract(*pair)) for pair in pairs]

    with jax.numpy_rank_promotion("allow"):
        for pair in both(image, others):
            assert_same_bits(*pair)


def test_an_absent_input_is_passed_on() -> None:
    image = elements(IMAGE, "float32")
    clip, high = ELEMENTWISE["Clip since 11"].function, jnp.asarray(1.0)
    assert_same_bits(of_images(clip, (image, None, high), {}), clip(image, None, high))


@pytest.mark.parametrize("sizes", [(), (3,), (2, 3)])
def test_arrays_without_spatial_dimensions_are_left_alone(sizes: tuple[int, ...]) -> None:
    x = elements(sizes, "float32")
    jaxpr = jax.make_jaxpr(lambda x: of_images(jnp.negative, (x,), {}))(x)
    assert [equation.primitive.name for equation in jaxpr.eqns] == ["neg"]


# Whole networks


def network_of_images() -> Any:
    """Each operator that affects where the channels are: a gate, a skip connection, two scales, a table."""
    random = np.random.default_rng(0)
    weights = {
        "stem": random.standard_normal((8, 3, 3, 3)),
        "depthwise": random.standard_normal((8, 1, 3, 3)),
        "squeezing": random.standard_normal((4, 8, 1, 1)),
        "gate": random.standard_normal((8, 4, 1, 1)),
        "pointwise": random.standard_normal((8, 8, 1, 1)) / 3,
        "slopes": random.uniform(0, 1, (8, 1, 1)),
        "scale": random.uniform(0.5, 2, 8),
        "bias": random.standard_normal(8),
        "mean": random.standard_normal(8),
        "variance": random.uniform(0.5, 2, 8),
        "matrix": random.standard_normal((16, 5)),
        "row": random.standard_normal((1, 1, 1, 4)),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "stem"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "scale", "bias", "mean", "variance"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Conv", ["c", "depthwise"], ["d"], pads=[1, 1, 1, 1], strides=[2, 2], group=8),
        node("PRelu", ["d", "slopes"], ["e"]),
        node("GlobalAveragePool", ["e"], ["pooled"]),
        node("Conv", ["pooled", "squeezing"], ["few"]),
        node("Relu", ["few"], ["positive"]),
        node("Conv", ["positive", "gate"], ["all"]),
        node("HardSigmoid", ["all"], ["gates"]),
        node("Mul", ["gates", "e"], ["gated"]),
        node("Conv", ["gated", "pointwise"], ["f"]),
        node("Add", ["f", "gated"], ["g"]),
        node("Add", ["g", "row"], ["shifted"]),
        node("MaxPool", ["c"], ["h"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["shifted"], ["i"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Concat", ["h", "i"], ["j"], axis=1),
        node("GlobalMaxPool", ["j"], ["k"]),
        node("Flatten", ["k"], ["rows"]),
        node("MatMul", ["rows", "matrix"], ["y"]),
    ]
    inputs = [value("x", FLOAT, ["n", 3, 8, 8])]
    return model(nodes, inputs, ["y", "j"], {name: weight.astype("float32") for name, weight in weights.items()})


@pytest.fixture(scope="module")
def network() -> Any:
    return dmljax.onnx.load(network_of_images())


@pytest.fixture
def pictures() -> Any:
    return elements((2, 3, 8, 8), "float32")


@contextlib.contextmanager
def layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Computes every layer as if it were not part of a network."""
    with monkeypatch.context() as patch:
        patch.setattr(channels, "_FEWEST_LAYERS", 1000)
        yield


def is_near(actual: Any, expected: Any) -> None:
    for leaf, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-5 * float(np.abs(other).max()))


@pytest.mark.parametrize("computed", few_of(["results", "gradients"], "results"))
@GATE
def test_a_network_computes_what_its_layers_do(
    computed: str, network: Any, pictures: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(weights: Any, pictures: Any) -> Any:
        y, image = network.apply(weights, pictures)
        return jnp.sum(y**2) + jnp.sum(image)

    def results() -> Any:
        function = network.apply if computed == "results" else jax.grad(loss, (0, 1))
        return jax.jit(function)(network.weights, pictures)

    whole = results()
    jax.clear_caches()
    with layer_by_layer(monkeypatch):
        is_near(whole, results())


def test_one_function_has_a_program_for_networks_and_one_for_layers(network: Any, pictures: Any) -> None:
    """Traces inside and outside a network are cached separately."""

    def pooled(x: Any) -> Any:
        return dmljax.average_pooling(x, window_sizes=[2, 2])

    nowhere = {"cpu": 0, "cuda": 0, "tpu": 0}
    assert transposes(pooled, pictures) == nowhere
    with channels.network_layout(2):
        assert transposes(pooled, pictures) == nowhere | {"cpu": 2}
    with channels.network_layout(1):
        assert transposes(pooled, pictures) == nowhere
    assert transposes(pooled, pictures) == nowhere


@GATE
def test_the_layout_suits_the_target_platform(network: Any, pictures: Any) -> None:
    """The tracing process's platform does not matter: a program exported on a CPU may be for a GPU."""
    counts = transposes(network, pictures)
    assert counts["cpu"] > 0
    assert (counts["cuda"], counts["tpu"]) == (0, 0)


@FULL
def test_a_network_is_vectorized_and_exported_like_any_function(network: Any, pictures: Any) -> None:
    expected = network(pictures)
    batches = jnp.stack([pictures, pictures[::-1]])
    is_near(jax.tree.map(lambda x: x[0], jax.vmap(network)(batches)), expected)
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(network))(jax.ShapeDtypeStruct((n, 3, 8, 8), jnp.float32))
    is_near(exported.call(pictures), expected)
    is_near(exported.call(pictures[:1]), jax.tree.map(lambda x: x[:1], expected))


def test_a_gate_is_computed_once_for_each_channel() -> None:
    """Inside the loop over positions, XLA would compute it for each of them."""

    def gated(image: Any, numbers: Any) -> Any:
        return of_images(jnp.multiply, (image, dmljax.activation_hard_sigmoid(numbers)), {})

    image, numbers = elements((1, 16, 64, 64), "float32"), elements((1, 16, 1, 1), "float32")
    text = str(jax.jit(gated).lower(image, numbers).compile().as_text())
    (loop,) = (body for body in text.split("\n\n") if body.lstrip().startswith("%") and "f32[1,16,64,64]" in body)
    computed = set(re.findall(r" = \S+ ([\w-]+)\(", loop))
    assert "multiply" in computed
    assert computed.isdisjoint({"add", "select", "compare"}), "the gate's operations are outside the loop"


def handler_of(node: Node) -> Handler:
    handler = REGISTRY.find(node)
    assert handler
    return handler


def test_images_are_the_results_of_windowed_layers_and_of_what_follows() -> None:
    proto = network_of_images()
    for node in proto.graph.node:
        node.name = node.output[0]
    graph = Reader(proto, None).read(proto.graph)
    images = images_of(graph, handler_of)
    assert sorted(images) == sorted([*"abcdefghi", "few", "positive", "all", "gates", "gated", "shifted"])
    assert layers_of(graph) == 7
