"""Filters of convolutions are transposed once for XLA's library on a CPU."""

import re
from typing import Any

import chex
import jax
import numpy as np
import pytest
from onnx import helper
from onnx_models import FLOAT, model, value

import dmljax.onnx
import dmljax.onnx.running.plan
from dmljax.onnx.running import filters

X = np.arange(3 * 8 * 8, dtype="float32").reshape(1, 3, 8, 8) % 5  # with numbers that are exact in any order
_RANDOM = np.random.default_rng(5)
FIRST, SECOND = (_RANDOM.integers(-4, 5, sizes).astype("float32") for sizes in ((20, 3, 3, 3), (24, 20, 2, 2)))


def layers(*nodes: Any, outputs: tuple[str, ...] = ("y",), **constants: Any) -> Any:
    """A model of two convolutions, the second of few places, and of more nodes."""
    convolutions = [
        helper.make_node("Conv", ["x", "v"], ["h"]),
        helper.make_node("Conv", ["h", "w"], ["y"], strides=[2, 2]),
    ]
    constants = {"v": FIRST, "w": SECOND, **constants}
    return dmljax.onnx.load(model([*convolutions, *nodes], [value("x", FLOAT, [1, 3, 8, 8])], [*outputs], constants))


def compile_call(network: Any) -> str:
    call = network._plan.call_weights(network.weights)
    return str(network._plan._by_place.jitted.lower(call.uses_loaded, call.arguments, X).compile().as_text())


@pytest.mark.parametrize("most", [2**24, 0])
def test_no_program_transposes_a_filter(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(dmljax.onnx.running.plan, "MAX_INLINED", most)
    network = layers()
    text = compile_call(network)
    assert not re.search(r"f32\[(20,3,3,3|24,20,2,2)\]", re.sub(r"metadata=.*", "", text))
    assert "f32[2,2,20,24]" in text  # a convolution, although it has few places
    chex.assert_trees_all_equal(network(X), network.apply(network.weights, X))


@pytest.mark.parametrize("most", [2**24, 0])
def test_replaced_filters_take_effect(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(dmljax.onnx.running.plan, "MAX_INLINED", most)
    network = layers()
    before = network(X)
    network.weights["w"] = 2 * network.weights["w"]
    chex.assert_trees_all_equal(network(X), 2 * before)


def test_gradients_reach_filters_and_images_of_a_model_that_stores_them() -> None:
    network = layers()
    network(X)
    w = network.weights["w"]
    gradient = jax.grad(lambda w: network.apply({**network.weights, "w": w}, X).sum())(w)
    by_one = network.apply({**network.weights, "w": w.at[3, 2, 1, 0].add(1)}, X).sum() - network(X).sum()
    assert gradient[3, 2, 1, 0] == by_one
    by_image = jax.grad(lambda x: network.apply(network.weights, x).sum())(X)
    chex.assert_trees_all_equal(jax.grad(lambda x: network(x).sum())(X), by_image)


def test_folded_filters_are_stored() -> None:
    node = helper.make_node("Mul", ["w", "half"], ["scaled"])
    third = helper.make_node("Conv", ["h", "scaled"], ["z"])
    network = layers(node, third, outputs=("y", "z"), half=np.float32(0.5))
    chex.assert_trees_all_equal(network(X), network.apply(network.weights, X))
    assert network._plan._folded.filters == {"v", "w", "scaled"}


OTHERS = {
    "a filter that another node reads": (
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Mul", ["w", "m"], ["z"]),
    ),
    "a filter that is a result": (helper.make_node("Conv", ["y", "h"], ["z"], pads=[9] * 4),),
    "an integer filter": (
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("ConvInteger", ["q", "q"], ["z"]),
    ),
}


@pytest.mark.parametrize("nodes", OTHERS.values(), ids=OTHERS)
def test_filters_stay_as_they_are_beside(nodes: Any) -> None:
    network = layers(*nodes, outputs=("y", "z"))
    network._plan.call_weights(network.weights)
    assert not network._plan._folded.filters


def test_filters_of_groups_and_of_one_element_stay_as_they_are() -> None:
    groups = helper.make_node("Conv", ["y", "g"], ["z"], group=2)
    element = helper.make_node("Conv", ["y", "e"], ["t"])
    constants = {"g": np.ones((24, 12, 2, 2), "float32"), "e": np.ones((24, 24, 1, 1), "float32")}
    network = layers(groups, element, outputs=("z", "t"), **constants)
    chex.assert_trees_all_equal(network(X), network.apply(network.weights, X))
    assert network._plan._folded.filters == {"v", "w"}


def test_filters_beyond_a_bound_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MAX_STORED", FIRST.nbytes + SECOND.nbytes - 1)
    network = layers()
    network._plan.call_weights(network.weights)
    assert not network._plan._folded.filters
