"""Models with equal layers: how they are found, and the models that have fewer of them."""

import io
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import GATE
from small_language_models import write_folder

import dmljax.onnx
from dmljax.directml import InvalidDesc, Unsupported

WIDTH, HEADS = 16, 2
HEAD = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> f'


def parse_model(text: str, change: tuple[str, str] = ("", "")) -> onnx.ModelProto:
    """A model whose weights, declared without values, are normal numbers; `change` is a text and its replacement."""
    assert change[0] in text
    text = text.replace(*change) if change[0] else text
    proto = onnx.parser.parse_model(f"{HEAD} {text}")
    random = np.random.default_rng(len(text))
    for declared in proto.graph.value_info:
        sizes = [size.dim_value for size in declared.type.tensor_type.shape.dim]
        numbers = random.standard_normal(sizes).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(numbers, declared.name))
    del proto.graph.value_info[:]
    return proto


def perceptron(layers: int, nodes: str = "", outputs: str = "", change: tuple[str, str] = ("", "")) -> onnx.ModelProto:
    """Products with weights of their own, each scaled by a number that all share, and a head."""
    weights = ", ".join(f"float[4, 4] w{i}" for i in range(layers))
    layer_nodes = "".join(
        f"p{i} = MatMul(h{i}, w{i})  s{i} = Mul(p{i}, scale)  h{i + 1} = Tanh(s{i})  " for i in range(layers)
    )
    text = f"(float[N, 4] x, float[1] scale) => (float[N, 3] y{outputs}) <{weights}, float[4, 3] head>"
    return parse_model(f"{text} {{ h0 = Relu(x)  {layer_nodes}  {nodes} y = MatMul(h{layers}, head) }}", change)


def test_equal_layers_are_counted() -> None:
    assert dmljax.onnx.load(perceptron(5)).equal_layers == 5


X, SCALE = np.ones((2, 4), np.float32), np.full(1, 0.5, np.float32)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_later_nodes_read_the_last_remaining_layer(count: int) -> None:
    model = dmljax.onnx.load(perceptron(5))
    short = model.with_layers(count)
    other = dmljax.onnx.load(perceptron(count))
    assert short.weights.keys() == other.weights.keys()
    np.testing.assert_array_equal(short(X, SCALE), other.apply(short.weights, X, SCALE))
    assert all(weight is model.weights[name] for name, weight in short.weights.items())


def test_outputs_of_dropped_layers_are_gone() -> None:
    """A hidden state is an output of each layer, and a sum after each layer is part of it."""
    sums = "".join(f"r{i} = Add(h{i + 1}, one)  " for i in range(4))
    model = dmljax.onnx.load(perceptron(4, f"one = Neg(scale)  {sums}", ", h1, h2, h3, h4, r0, r1, r2, r3"))
    short = model.with_layers(2)
    assert [output.name for output in short.outputs] == ["y", "h1", "h2", "r0", "r1"]
    _, *states = model(X, SCALE)
    head, *left = short(X, SCALE)
    np.testing.assert_array_equal(left, [states[i] for i in (0, 1, 4, 5)])
    np.testing.assert_allclose(head, left[1] @ model.weights["head"], rtol=1e-6)


def test_inputs_that_only_other_layers_read_are_gone() -> None:
    inputs = ", ".join(f"float[N, 4] past{i}" for i in range(3))
    weights = ", ".join(f"float[4, 4] w{i}" for i in range(3))
    nodes = "".join(f"a{i} = Add(h{i}, past{i})  h{i + 1} = MatMul(a{i}, w{i})  " for i in range(3))
    text = f"(float[N, 4] h0, {inputs}, float[1] unused) => (float[N, 4] h3, float[N, 4] a2) <{weights}> {{ {nodes} }}"
    model = dmljax.onnx.load(parse_model(text))
    short = model.with_layers(2)
    assert [x.name for x in short.inputs] == ["h0", "past0", "past1", "unused"]
    past = [np.full((2, 4), i, np.float32) for i in range(2)]
    last, final = short(X, *past, SCALE)
    of_last = (X + past[0]) @ model.weights["w0"] + past[1]
    np.testing.assert_allclose(final, of_last, rtol=1e-5)
    np.testing.assert_allclose(last, of_last @ model.weights["w1"], rtol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        ("MatMul(h2, w2)", "Gemm(h2, w2)"),  # another operator
        ("Mul(p2, scale)", "Mul(scale, p2)"),  # inputs in other places
        ("Mul(p2, scale)", "Mul(p2, h1)"),  # the result of an earlier layer
        ("Tanh(s2)", "Elu <alpha: float = 0.5> (s2)"),
    ],
)
@pytest.mark.gate(but=1)
def test_layers_differ_by_their_nodes_and_connections(change: tuple[str, str]) -> None:
    model = dmljax.onnx.load(perceptron(5, change=change))
    assert model.equal_layers == 2
    np.testing.assert_array_equal(model.with_layers(2)(X, SCALE), model(X, SCALE))


def test_layers_differ_by_the_sizes_of_weights_and_by_numbers() -> None:
    def alike(first: str, second: str) -> int:
        nodes = f"c0 = Constant <value = float {{2}}> ()  c1 = Constant <value = float {{{second}}}> ()  "
        nodes += "a = MatMul(x, v)  b = Mul(a, c0)  c = MatMul(b, w)  y = Mul(c, c1)"
        text = f"(float[N, 4] x) => (float[N, 4] y) <float[4, 4] v, float[4, {first}] w> {{ {nodes} }}"
        return dmljax.onnx.load(parse_model(text)).equal_layers

    assert alike("4", "2") == 2
    assert alike("3", "2") == 1
    assert alike("4", "3") == 1


def test_the_first_layer_may_compute_values_that_all_share() -> None:
    """As exporters write it that compute equal values only once."""
    shared = ("s0 = Mul(p0, scale)", "half = Sqrt(scale)  r0 = Neg(p0)  s0 = Mul(p0, half)")
    model = perceptron(4, outputs=", r0, r1, r2, r3", change=shared)
    for node in [*model.graph.node]:
        if node.op_type == "Mul":
            node.input[1] = "half"
            if node.input[0] != "p0":
                model.graph.node.add(op_type="Neg", input=[node.input[0]], output=[node.input[0].replace("p", "r")])
    loaded = dmljax.onnx.load(model)
    assert loaded.equal_layers == 4
    short = loaded.with_layers(1)
    result, product = short(X, SCALE)
    np.testing.assert_array_equal(product, loaded(X, SCALE)[1])
    state = np.tanh(-np.asarray(product) * np.sqrt(SCALE))
    np.testing.assert_allclose(result, state @ loaded.weights["head"], rtol=1e-5)


def test_a_first_layer_on_which_all_depend_differs() -> None:
    shared = ("s0 = Mul(p0, scale)", "half = Sqrt(p0)  s0 = Mul(p0, half)")
    model = perceptron(4, change=shared)
    for node in model.graph.node:
        if node.op_type == "Mul":
            node.input[1] = "half"
    assert dmljax.onnx.load(model).equal_layers == 3


def test_products_side_by_side_are_no_layers() -> None:
    nodes = "q = MatMul(x, a)  k = MatMul(x, b)  v = MatMul(x, c)  s = Mul(q, k)  y = Mul(s, v)"
    text = f"(float[N, 4] x) => (float[N, 4] y) <float[4, 4] a, float[4, 4] b, float[4, 4] c> {{ {nodes} }}"
    assert dmljax.onnx.load(parse_model(text)).equal_layers == 1


def test_a_model_without_equal_layers_is_refused() -> None:
    model = dmljax.onnx.load(parse_model("(float[N, 4] x) => (float[N, 4] y) { h = Relu(x)  y = Relu(h) }"))
    assert model.equal_layers == 1
    with pytest.raises(Unsupported, match="onnx: model must have equal layers; got none"):
        model.with_layers(1)


@pytest.mark.parametrize("count", [0, 6])
def test_more_layers_than_a_model_has_are_refused(count: int) -> None:
    with pytest.raises(InvalidDesc, match=re.escape(f"count must be in [1, 5]; got {count}")):
        dmljax.onnx.load(perceptron(5)).with_layers(count)


def test_outputs_that_all_depend_on_other_layers_are_refused() -> None:
    model = dmljax.onnx.load(perceptron(4, change=("MatMul(h4, head)", "Gemm(h3, head, h4)")))
    with pytest.raises(InvalidDesc, match="count must leave outputs, but all depend on layers after the first 2"):
        model.with_layers(2)


def residual(layers: int) -> onnx.ModelProto:
    """Layers as ONNX Runtime fuses them: each norm also adds, except the first, and the last gives no sum."""
    names = [f"n{i}" for i in range(layers + 1)]
    weights = ", ".join([*(f"float[4] {name}" for name in names), *(f"float[4, 4] w{i}" for i in range(layers))])
    nodes = "m0 = SimplifiedLayerNormalization <axis: int = -1> (x, n0)  "
    for i in range(layers):
        total = f", , , x{i + 1}" if i < layers - 1 else ""
        nodes += f"p{i} = MatMul(m{i}, w{i})  "
        nodes += f"m{i + 1}{total} = com.microsoft.SkipSimplifiedLayerNormalization(x{i}, p{i}, n{i + 1})  "
    nodes = nodes.replace("(x0,", "(x,")
    return parse_model(f"(float[1, N, 4] x) => (float[1, N, 4] y) <{weights}> {{ {nodes} y = Neg(m{layers}) }}")


@GATE
def test_norms_that_add_are_parts_of_layers() -> None:
    model, x = dmljax.onnx.load(residual(5)), np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    assert model.equal_layers == 5
    short, other = model.with_layers(3), dmljax.onnx.load(residual(3))
    np.testing.assert_array_equal(short(x), other.apply(short.weights, x))
    np.testing.assert_array_equal(model.with_layers(5)(x), model(x))


def test_transposed_weights_are_parts_of_layers() -> None:
    weights = ", ".join(f"float[4, 4] w{i}" for i in range(3))
    nodes = "".join(f"t{i} = Transpose(w{i})  h{i + 1} = MatMul(h{i}, t{i})  " for i in range(3))
    model = dmljax.onnx.load(parse_model(f"(float[N, 4] h0) => (float[N, 4] h3) <{weights}> {{ {nodes} }}"))
    assert model.equal_layers == 3
    np.testing.assert_allclose(model.with_layers(1)(X), X @ model.weights["w0"].T, rtol=1e-6)


@GATE
def test_a_short_model_has_gradients_and_additions() -> None:
    model = dmljax.onnx.load(perceptron(5))
    short = model.with_layers(2)
    gradients = jax.grad(lambda weights: short.apply(weights, X, SCALE).sum())(short.weights)
    assert gradients.keys() == {"w0", "w1", "head"}
    tuned = model.with_low_rank(1, ["w"], key=jax.random.key(0)).with_layers(2)
    assert tuned.weights.keys() == {*short.weights, *(f"w{i}.lora_{side}" for i in range(2) for side in "ab")}
    np.testing.assert_allclose(tuned(X, SCALE), short(X, SCALE), rtol=1e-6)


# Language models


@pytest.mark.parametrize("options", [{"has_tables": True}, {"has_state": True}])
@GATE
def test_a_language_model_loses_the_caches_of_its_layers(tmp_path: Path, options: dict[str, bool]) -> None:
    model = dmljax.onnx.language_model(write_folder(tmp_path / "five", layers=5, **options))
    short = model.with_layers(2)
    other = dmljax.onnx.language_model(write_folder(tmp_path / "two", layers=2, **options))
    assert model.equal_layers == 5
    assert short.settings._replace(file=other.settings.file) == other.settings
    assert [*map(str, short.model.inputs)] == [*map(str, other.model.inputs)]
    assert [*map(str, short.model.outputs)] == [*map(str, other.model.outputs)]
    assert short.weights.keys() == other.weights.keys()
    prompt = [3, 5, 7, 9]
    np.testing.assert_array_equal(short.logits(prompt), other.logits(prompt, weights=short.weights))
    assert short.generate(prompt, max_length=9) == other.generate(prompt, max_length=9, weights=short.weights)


# Networks that PyTorch exports


def transformer(layers: int) -> tuple[Any, bytes, tuple[Any, ...]]:
    """A network whose layers have caches, its model with open sizes, and inputs."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.stacked, self.out = (
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 3 * WIDTH),
                nn.Linear(WIDTH, WIDTH),
            )
            for weight in self.parameters():
                nn.init.normal_(weight, std=0.3)

        def forward(self, x: Any, mask: Any, *past: Any) -> Any:
            parts = self.stacked(self.norm(x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            query, key, value = parts[0], *(torch.cat(pair, -2) for pair in zip(past, parts[1:], strict=True))
            scores = query @ key.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + mask
            mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(x.shape)
            return x + nn.functional.gelu(self.out(mixed)), key, value

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, 30)
            self.layers = nn.ModuleList([Layer() for _ in range(layers)])

        def forward(self, tokens: Any, *pasts: Any) -> Any:
            x, count, before = self.table(tokens), tokens.shape[1], pasts[0].shape[2]
            mask = torch.full((count, count + before), float("-inf")).triu(1 + before)
            presents: list[Any] = []
            for i, layer in enumerate(self.layers):
                x, *news = layer(x, mask, *pasts[2 * i : 2 * i + 2])
                presents += news
            return self.head(x), *presents

    torch.manual_seed(5)
    network = Network().eval()
    names = ["tokens", *(f"past.{i}.{kind}" for i in range(layers) for kind in ("key", "value"))]
    pasts = [torch.randn(2, HEADS, 3, WIDTH // HEADS) for _ in names[1:]]
    inputs, file = (torch.randint(0, 30, (2, 4)), *pasts), io.BytesIO()
    axes = {name: {0: "batch", 2 if "past" in name else 1: "past" if "past" in name else "length"} for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, inputs, file, dynamo=False, input_names=names, dynamic_axes=axes)
    return network, file.getvalue(), inputs


def test_a_short_transformer_is_the_network_of_its_first_layers() -> None:
    network, data, inputs = transformer(4)
    model = dmljax.onnx.load(data)
    assert model.equal_layers == 4
    short = model.with_layers(2)
    network.layers = network.layers[:2]
    arrays = [np.asarray(tensor) for tensor in inputs[:5]]
    results = [tensor.detach().numpy() for tensor in network(*inputs[:5])]
    assert len(short.inputs) == len(short.outputs) == 5
    for actual, expected in zip(short(*arrays), results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
