"""ONNX's recurrent networks: activations by name, layouts, and missing outputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, SAMPLED
from onnx import helper
from onnx_models import DOMAINS, FLOAT, by_onnxruntime, model, value

import dmljax.onnx
from dmljax import DmlError

RNG = np.random.default_rng(5)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


X = floats(5, 2, 3)


def network(operator: str, gates: int, outputs: Any = ("y", "h"), directions: int = 1, **attributes: Any) -> Any:
    weights = {"w": floats(directions, gates * 4, 3), "r": floats(directions, gates * 4, 4)}
    weights["b"] = floats(directions, gates * 8)
    node = helper.make_node(operator, ["x", "w", "r", "b"], list(outputs), hidden_size=4, **attributes)
    proto = model(
        [node], [value("x", FLOAT, ["l", "n", 3])], [output for output in outputs if output], weights, opset=14
    )
    return dmljax.onnx.load(proto), proto, weights


@pytest.mark.parametrize(
    ("activations", "alphas", "betas"),
    [
        (["Sigmoid", "Tanh", "Relu"], [], []),
        (["HardSigmoid", "ScaledTanh", "Affine"], [0.3, 0.5, 2.0], [0.4, 1.5, 0.25]),
        (["Sigmoid", "LeakyRelu", "Elu"], [0.1, 0.7], []),
        (["sigmoid", "Softsign", "ThresholdedRelu"], [0.3], []),
    ],
)
@pytest.mark.gate(but=1)
def test_activations_by_name_take_numbers_in_their_order(activations: Any, alphas: Any, betas: Any) -> None:
    lists = {"activation_alpha": alphas, "activation_beta": betas}
    numbers = {name: values for name, values in lists.items() if values}
    recur, proto, _ = network("LSTM", 4, ["y", "h", "c"], activations=activations, **numbers)
    for result, expected in zip(recur(X), by_onnxruntime(proto, [X]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@SAMPLED
@pytest.mark.parametrize(
    ("operator", "gates", "attributes"),
    [
        ("GRU", 3, {"linear_before_reset": 1, "direction": "reverse"}),
        ("GRU", 3, {"direction": "bidirectional", "directions": 2}),
        ("LSTM", 4, {"clip": 0.5, "input_forget": 1}),
        ("GRU", 3, {"clip": 0.5, "linear_before_reset": 1}),
        ("GRU", 3, {"clip": 0.5, "activations": ["HardSigmoid", "Tanh"], "direction": "reverse"}),
        ("RNN", 1, {"clip": 0.5, "direction": "bidirectional", "directions": 2}),
        ("RNN", 1, {"activations": ["Relu"]}),
    ],
)
def test_attributes_mean_the_same_as_in_onnxruntime(operator: str, gates: int, attributes: Any) -> None:
    recur, proto, _ = network(operator, gates, **attributes)
    for result, expected in zip(recur(X), by_onnxruntime(proto, [X]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@GATE
def test_layout_1_puts_the_batch_first() -> None:
    state = RNG.bit_generator.state  # so that the weights are the same
    plain, _, _ = network("LSTM", 4, ["y", "h", "c"], directions=2, direction="bidirectional")
    RNG.bit_generator.state = state
    turned, _, _ = network("LSTM", 4, ["y", "h", "c"], directions=2, direction="bidirectional", layout=1)
    sequence, hidden, cell = plain(X)
    results = turned(X.swapaxes(0, 1))
    np.testing.assert_array_equal(results[0], np.moveaxis(sequence, 2, 0))
    for result, expected in zip(results[1:], (hidden, cell), strict=True):
        np.testing.assert_array_equal(result, np.swapaxes(expected, 0, 1))


def test_absent_outputs_are_not_computed() -> None:
    recur, _, _ = network("GRU", 3, ["", "h"])
    text = jax.jit(recur).lower(X).as_text()
    assert "tensor<5x1x2x4xf32>" not in text, "the states of all steps"
    assert recur(X).shape == (1, 2, 4)


@GATE
def test_a_network_has_derivatives_of_its_weights() -> None:
    recur, _, _ = network("LSTM", 4, ["y"])
    grads = jax.grad(lambda weights: jnp.sum(recur.apply(weights, X) ** 2))(recur.weights)
    # Steps along the gradient in each weight, so that no differences cancel.
    step = jax.tree.map(lambda grad: 1e-2 * grad * np.abs(floats(*grad.shape)), grads)

    def total(sign: int) -> float:
        weights = jax.tree.map(lambda x, change: x + sign * change, dict(recur.weights), step)
        return float(np.sum(np.asarray(recur.apply(weights, X), float) ** 2))

    along = sum(float(jnp.sum(grads[name] * step[name])) for name in step)
    assert along == pytest.approx((total(1) - total(-1)) / 2, rel=2e-2)


ZERO = np.int8(0)


def quantized_lstm(
    steps: int, batch: int, size: int, inputs: str = "", *, zero_point: Any = ZERO, **attributes: Any
) -> Any:
    """A model of DynamicQuantizeLSTM; `inputs` lists those after the weights by their first letters."""
    directions, dtype = 2 if attributes.get("direction") == "bidirectional" else 1, np.asarray(zero_point).dtype
    limits, scales = np.iinfo(dtype), (directions, 4 * size)
    arrays = {
        "w": RNG.integers(limits.min, limits.max, (directions, 3, 4 * size), dtype, endpoint=True),
        "r": RNG.integers(limits.min, limits.max, (directions, size, 4 * size), dtype, endpoint=True),
        "b": floats(directions, 8 * size),
        "l": np.arange(batch, dtype=np.int32) + 2,
        "h": floats(directions, batch, size),
        "c": floats(directions, batch, size),
        "p": floats(directions, 3 * size),
    }
    is_per_output = "s" in inputs
    weights = {name: array for name, array in arrays.items() if name in "wr" or name in inputs}
    for name in ("w", "r"):
        scale = (RNG.uniform(0.5, 1.5, scales) / 64 / np.sqrt(size)).astype(np.float32)
        weights[f"{name}_scale"] = scale if is_per_output else scale[:, 0]
        weights[f"{name}_zero"] = np.full(weights[f"{name}_scale"].shape, zero_point)
    names = ["x", *(name if name in weights else "" for name in arrays), "w_scale", "w_zero", "r_scale", "r_zero"]
    node = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y", "h1", "c1"], domain="com.microsoft", hidden_size=size, **attributes
    )
    x = value("x", FLOAT, [steps, batch, 3])
    return model([node], [x], ["y", "h1", "c1"], weights, domains=DOMAINS)


@pytest.mark.parametrize(
    ("batch", "size", "inputs", "attributes"),
    [
        (3, 4, "bhcls", {"direction": "bidirectional", "zero_point": np.uint8(117)}),
        (1, 4, "bp", {"direction": "reverse", "clip": 0.5}),
        (2, 4, "", {"zero_point": np.int8(3), "input_forget": 1}),
        (2, 260, "b", {}),  # ONNX Runtime does not divide a batch of 4 or fewer wide states
        (5, 260, "bs", {}),
    ],
)
@pytest.mark.gate(but=2)
def test_a_quantized_lstm_rounds_inputs_and_states_as_onnxruntime(
    batch: int, size: int, inputs: str, attributes: Any
) -> None:
    proto, x = quantized_lstm(6, batch, size, inputs, **attributes), floats(6, batch, 3)
    for result, expected in zip(dmljax.onnx.load(proto)(x), by_onnxruntime(proto, [x], batch), strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-6)


@GATE
def test_a_quantized_lstm_becomes_a_directml_graph() -> None:
    recur, x = dmljax.onnx.load(quantized_lstm(3, 2, 4, "b")), floats(3, 2, 3)
    run = dmljax.directml.lower(recur.graph())
    for result, expected in zip(run(x).values(), recur(x), strict=True):
        np.testing.assert_allclose(np.reshape(result, expected.shape), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"direction": "sideways"}, DmlError, "direction must be one of forward"),
        ({"activations": ["Sigmoid"]}, DmlError, "activations must have 2 names"),
        ({"activations": ["Sigmoid", "Tanhh"]}, DmlError, "activations must be one of"),
    ],
)
def test_impossible_networks_are_refused(attributes: Any, error: Any, message: str) -> None:
    recur, _, _ = network("GRU", 3, **attributes)
    with pytest.raises(error, match=message):
        recur(X)
