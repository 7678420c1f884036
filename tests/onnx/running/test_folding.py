"""Values that only depend on a model's weights are computed once."""

from typing import Any

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import helper
from onnx_models import FLOAT, model, value

import dmljax.onnx
import dmljax.onnx.running.plan
from dmljax.graphs import steps


def rows_times_weights() -> Any:
    """Rows times a transposed weight, and then times a dequantized one, with numbers that are exact in any order."""
    random = np.random.default_rng(3)
    constants = {
        "w": random.integers(-4, 5, (16, 8)).astype("float32"),
        "q": random.integers(-9, 10, (16, 64)).astype("int8"),
        "q_scale": np.array([0.5, 2] * 32, "float32"),
        "q_zero": np.array([1, -2] * 32, "int8"),
    }
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["h"]),
        helper.make_node("DequantizeLinear", ["q", "q_scale", "q_zero"], ["d"], axis=1),
        helper.make_node("MatMul", ["h", "d"], ["y"]),
    ]
    return model(nodes, [value("x", FLOAT, ["n", 8])], ["y"], constants)


X = np.arange(24, dtype="float32").reshape(3, 8) % 5


@pytest.mark.parametrize("most", [2**24, 0])
def test_transposes_and_dequantized_weights_are_computed_once(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(dmljax.onnx.running.plan, "MAX_INLINED", most)
    network = dmljax.onnx.load(rows_times_weights())
    text = jax.jit(network).lower(X).as_text()
    assert "stablehlo.dot_general" in text
    assert "stablehlo.transpose" not in text
    assert "i8>" not in text
    whole = jax.jit(network.apply).lower(network.weights, X).as_text()
    assert "stablehlo.transpose" in whole
    assert "i8>" in whole
    chex.assert_trees_all_equal(network(X), network.apply(network.weights, X), jax.jit(network)(X))


@pytest.mark.parametrize("most", [2**24, 0])
def test_replaced_weights_take_effect_in_a_folded_model(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(dmljax.onnx.running.plan, "MAX_INLINED", most)
    network = dmljax.onnx.load(rows_times_weights())
    before = network(X)
    network.weights["w"] = 2 * network.weights["w"]
    chex.assert_trees_all_equal(network(X), 2 * before)


def test_gradients_reach_weights_that_are_folded() -> None:
    network = dmljax.onnx.load(rows_times_weights())
    network(X)
    w = network.weights["w"]
    gradient = jax.grad(lambda w: network.apply({**network.weights, "w": w}, X).sum())(w)
    by_one = network.apply({**network.weights, "w": w.at[3, 2].add(1)}, X).sum() - network(X).sum()
    assert gradient[3, 2] == by_one


def test_a_folded_model_survives_export() -> None:
    network = dmljax.onnx.load(rows_times_weights())
    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(network))(jax.ShapeDtypeStruct((n, 8), "float32"))
    chex.assert_trees_all_equal(exported.call(jnp.asarray(X)), network(X))


def test_filters_that_are_dequantized_and_weights_that_are_only_reshaped_stay_as_they_are() -> None:
    constants = {"q": np.ones((2, 3, 3, 3), "int8"), "scale": np.float32(0.5), "b": np.ones(4, "float32")}
    constants |= {"sizes": np.array([1, 1, 2, 2])}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale"], ["f"]),
        helper.make_node("Conv", ["x", "f"], ["c"]),
        helper.make_node("Reshape", ["b", "sizes"], ["square"]),
        helper.make_node("Add", ["c", "square"], ["y"]),
    ]
    network = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [1, 3, 4, 4])], ["y"], constants))
    assert network(np.ones((1, 3, 4, 4), "float32")).tolist() == [[[[14.5] * 2] * 2] * 2]
    assert network._plan._folded.graph.nodes == network._plan.graph.running.nodes


def test_results_beyond_a_bound_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MAX_FOLDED_BYTES", 600)
    network = dmljax.onnx.load(rows_times_weights())
    network(X)
    assert network._plan._folded.constants.keys() - network.weights.keys() == {"wt"}
