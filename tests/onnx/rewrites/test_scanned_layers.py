"""Models whose equal layers run in a loop, beside the same models without it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import GATE, mesh_of
from jax.sharding import AxisType
from small_language_models import write_folder
from test_layers import SCALE, X, parse_model, perceptron, residual, transformer

import dmljax.onnx
from dmljax.directml import InvalidDesc, InvalidType, Unsupported

GPT = Path(__file__).parents[3] / "notebooks" / "models" / "gpt.onnx"
Models = tuple[dmljax.onnx.Model, dmljax.onnx.Model]


def both(source: Any, **options: Any) -> Models:
    """A model, and the same model with its layers in a loop."""
    return dmljax.onnx.load(source, **options), dmljax.onnx.load(source, scan_layers=True, **options)


def lengths_of_loops(function: Callable[..., Any], *inputs: Any) -> list[int]:
    """The iterations of each loop of a function."""
    return [int(length) for length in re.findall(r" length=(\d+)", str(jax.make_jaxpr(function)(*inputs)))]


def assert_close(actual: Any, expected: Any) -> None:
    """Compares arrays, whose sums XLA may order differently in a loop."""
    for leaf, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert leaf.dtype == other.dtype
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-6)


SUMS = "".join(f"r{i} = Add(h{i + 1}, scale)  " for i in range(5))
PERCEPTRONS = {
    "plain": perceptron(5),
    "with the result of each layer": perceptron(5, SUMS, ", h1, h3, h5, r0, r1, r2, r3, r4"),
    "with another layer between": perceptron(5, change=("Tanh(s2)", "Elu(s2)")),
    "with a layer's value in the head": perceptron(
        5, outputs=", h4", change=("MatMul(h5, head)", "Gemm(h5, head, r)  r = MatMul(h2, head)")
    ),
}


@pytest.mark.parametrize("name", PERCEPTRONS)
@pytest.mark.gate(but=1)
def test_layers_in_a_loop_compute_the_same(name: str) -> None:
    plain, scanned = both(PERCEPTRONS[name])
    assert [output.name for output in scanned.outputs] == [output.name for output in plain.outputs]
    assert scanned.weights.keys() == plain.weights.keys()
    assert_close(scanned(X, SCALE), plain(X, SCALE))
    assert_close(jax.jit(scanned.apply)(plain.weights, X, SCALE), plain.apply(plain.weights, X, SCALE))


def test_each_sequence_of_equal_layers_is_a_loop() -> None:
    plain, scanned = both(PERCEPTRONS["with another layer between"])
    assert lengths_of_loops(plain, X, SCALE) == []
    assert lengths_of_loops(scanned, X, SCALE) == [2, 2]
    assert lengths_of_loops(both(perceptron(5))[1].apply, plain.weights, X, SCALE) == [5]


@GATE
def test_derivatives_reach_each_weight_by_its_name() -> None:
    def gradients(model: dmljax.onnx.Model) -> Any:
        return jax.jit(jax.grad(lambda weights: model.apply(weights, X, SCALE).sum()))(model.weights)

    plain, scanned = map(gradients, both(perceptron(5)))
    assert scanned.keys() == {"w0", "w1", "w2", "w3", "w4", "head"}
    assert_close(scanned, plain)


@GATE
def test_loops_take_weights_of_another_type_and_mapped_inputs() -> None:
    plain, scanned = both(perceptron(5))
    weights = {name: weight.astype(jnp.bfloat16) for name, weight in plain.weights.items()}
    x, scale = jnp.asarray(X, jnp.bfloat16), jnp.asarray(SCALE, jnp.bfloat16)
    assert lengths_of_loops(scanned.apply, weights, x, scale) == [5]
    actual, expected = (model.apply(weights, x, scale).astype(np.float32) for model in (scanned, plain))
    np.testing.assert_allclose(actual, expected, rtol=0.05)
    inputs = np.stack([X, 2 * X, -X])
    assert_close(*(jax.vmap(model, (0, None))(inputs, SCALE) for model in (scanned, plain)))


def test_the_batch_may_stay_open() -> None:
    plain, scanned = both(perceptron(5))
    (count,) = jax.export.symbolic_shape("n")
    x = jax.ShapeDtypeStruct((count, 4), np.float32)
    exported = jax.export.export(jax.jit(scanned))(x, SCALE)
    assert_close(exported.call(X, SCALE), plain(X, SCALE))


@GATE
def test_loops_take_divided_weights_and_additions() -> None:
    plain, scanned = both(perceptron(5))
    mesh = mesh_of(AxisType.Auto, data=2, model=2)
    assert scanned.partition(mesh) == plain.partition(mesh)
    assert_close(jax.jit(scanned.apply)(scanned.shard(mesh), X, SCALE), plain(X, SCALE))
    tuned = [model.with_low_rank(1, ["w"], key=jax.random.key(1)) for model in (scanned, plain)]
    weights = {name: weight + 0.5 for name, weight in tuned[0].weights.items()}
    assert lengths_of_loops(tuned[0].apply, weights, X, SCALE) == [5]
    assert_close(*(model.apply(weights, X, SCALE) for model in tuned))


def test_the_file_keeps_its_layers(tmp_path: Path) -> None:
    _, scanned = both(perceptron(5))
    scanned.save(tmp_path / "saved.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "saved.onnx").graph.node].count("Tanh") == 5
    assert len(scanned.graph({"x": (2, 4)}).nodes) == len(dmljax.onnx.load(perceptron(5)).graph({"x": (2, 4)}).nodes)


def test_norms_that_add_carry_two_values() -> None:
    plain, scanned = both(residual(5))
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    assert lengths_of_loops(scanned, x) == [5]
    assert_close(scanned(x), plain(x))


def test_layers_in_a_loop_read_and_write_their_caches() -> None:
    """Each layer reads and writes its own, and finds the sizes of its values."""
    _, data, inputs = transformer(4)
    plain, scanned = both(data)
    arrays = [np.asarray(x) for x in inputs]
    assert lengths_of_loops(scanned, *arrays) == [4]
    assert_close(scanned(*arrays), plain(*arrays))


@GATE
def test_the_layers_of_the_example_gpt_are_a_loop() -> None:
    plain, scanned = both(GPT)
    tokens = np.array([[3, 1, 4, 1, 5]])
    assert lengths_of_loops(scanned, tokens) == [3]
    assert_close(scanned(tokens), plain(tokens))


@GATE
def test_the_layers_of_a_decoder_are_a_loop(tmp_path: Path) -> None:
    plain, scanned = both(write_folder(tmp_path / "model", layers=4) / "model.onnx")
    random = np.random.default_rng(0)
    feeds = {
        "input_ids": np.array([[3, 4, 5]]),
        "attention_mask": np.ones((1, 8), np.int64),
        "position_ids": np.array([[5, 6, 7]]),
    }
    for cache in plain.inputs[3:]:
        feeds[cache.name] = random.standard_normal((1, 2, 5, 16)).astype(np.float32)
    assert lengths_of_loops(lambda: scanned(**feeds)) == [4]
    assert_close(scanned(**feeds), plain(**feeds))


def test_errors_name_a_node_of_the_first_layer() -> None:
    _, scanned = both(perceptron(5, change=("[1] scale", "[K] scale")))
    with pytest.raises(InvalidDesc, match=re.escape('nodes["5 layers from p0"].Scan.body.nodes.s0.Mul: a and b must')):
        scanned(X, np.ones(3, np.float32))


@GATE
def test_layers_that_draw_numbers_stay_as_they_are() -> None:
    weights = ", ".join(f"float[4, 4] w{i}" for i in range(4))
    nodes = "is_training = Constant <value = bool {1}> ()  half = Constant <value = float {0.5}> ()  "
    nodes += "h1 = MatMul(h0, w0)  h2 = MatMul(h1, w1)  "
    nodes += "".join(f"d{i} = Dropout(h{i}, half, is_training)  h{i + 1} = MatMul(d{i}, w{i})  " for i in (2, 3))
    text = f"(float[N, 4] h0) => (float[N, 4] h4) <{weights}> {{ {nodes} }}"
    plain, scanned = both(parse_model(text))
    assert lengths_of_loops(lambda key: scanned(X, key=key), jax.random.key(1)) == [2]
    assert_close(*(model(X, key=jax.random.key(1)) for model in (scanned, plain)))


def test_a_model_without_equal_layers_is_refused() -> None:
    proto = parse_model("(float[N, 4] x) => (float[N, 4] y) <float[4, 4] w> { h = MatMul(x, w)  y = Relu(h) }")
    message = "onnx: scan_layers: the model has no two equal layers in a row (leave scan_layers out)"
    with pytest.raises(Unsupported, match=re.escape(message)):
        dmljax.onnx.load(proto, scan_layers=True)
    with pytest.raises(InvalidType, match="scan_layers must be true or false; got 1"):
        dmljax.onnx.load(proto, scan_layers=1)  # type: ignore[arg-type]
