"""Models whose sizes depend on values: everything that does not need such a size compiles as one program."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, compilations
from onnx import TensorProto, helper
from onnx_models import FLOAT, INT64, by_onnxruntime, model, value

import dmljax.onnx

STRING = TensorProto.STRING
X = np.array([[0, 3, 0], [4, 0, 5]], np.float32)


def selected() -> Any:
    """Doubles x, and selects its nonzero elements in two columns, with their count."""
    constants = {"two": np.float32(2), "columns": np.array([-1, 1]), "axis": np.array([1])}
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Log", ["e"], ["l"]),
        helper.make_node("Mul", ["l", "two"], ["twice"]),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("Shape", ["places"], ["sizes"]),
        helper.make_node("GatherND", ["twice", "rows"], ["found"]),
        helper.make_node("Reshape", ["found", "columns"], ["column"]),
        helper.make_node("Concat", ["column", "column"], ["y"], axis=1),
        helper.make_node("Gather", ["sizes", "axis"], ["count"]),
    ]
    return model(nodes, [value("x", FLOAT, [None, 3])], ["y", "count"], constants)


def events_of(function: Callable[[], Any]) -> list[str]:
    with compilations() as events:
        jax.block_until_ready(function())
    return [event for event in events if event.endswith("backend_compile_duration")]


def test_data_dependent_sizes_equal_onnxruntime() -> None:
    proto = selected()
    network = dmljax.onnx.load(proto)
    for x in (X, X.T.reshape(2, 3), X[:1], np.ones((4, 3), np.float32), np.zeros((2, 3), np.float32)):
        expected = by_onnxruntime(proto, [x])
        for results in (network(x), network(jnp.asarray(x))):
            np.testing.assert_allclose(results[0], expected[0], rtol=1e-5)
            assert results[1].tolist() == expected[1].tolist()


def test_a_second_call_of_the_same_sizes_compiles_nothing() -> None:
    network = dmljax.onnx.load(selected())
    assert events_of(lambda: network(X))
    assert events_of(lambda: network(X[::-1] + 0)) == []
    assert events_of(lambda: network(X + 1)) != []


@GATE
def test_nodes_around_data_dependent_ones_compile_together() -> None:
    before = ["Neg", "Sin", "Cos", "Tanh", "Floor", "Sign"]
    beside = ["Abs", "Sqrt", "Exp", "Sigmoid", "Erf", "Softplus"]
    nodes = [
        *(helper.make_node(name, [f"a{i}"], [f"a{i + 1}"]) for i, name in enumerate(before)),
        helper.make_node("NonZero", ["a6"], ["places"]),
        *(helper.make_node(name, [f"b{i}"], [f"b{i + 1}"]) for i, name in enumerate(beside)),
    ]
    network = dmljax.onnx.load(model(nodes, [value(name, FLOAT, [None]) for name in ("a0", "b0")], ["places", "b6"]))
    x = jnp.asarray(X.ravel())
    assert 1 <= len(events_of(lambda: network(x, x))) < 6
    places, result = network(x, x)
    assert places.tolist() == np.stack(np.nonzero(np.tanh(np.cos(np.sin(-x))) // 1)).tolist()
    np.testing.assert_allclose(result[0], np.log1p(np.exp(math.erf(1 / (1 + np.exp(-1))))), rtol=1e-5)


def test_known_values_follow_from_the_shapes_of_a_call() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Concat", ["sizes", "sizes"], ["twice"], axis=0),
    ]
    network = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [None])], ["places", "twice"]))
    for count in (2, 4, 2):
        places, twice = network(np.ones(count, np.float32))
        assert (places.shape, twice.tolist()) == ((1, count), [count, count])


def test_known_values_decide_what_is_compiled() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["n"], ["more"], to=FLOAT),
        helper.make_node("Expand", ["more", "n"], ["filled"]),
        helper.make_node("ReduceSum", ["filled"], ["sum"], keepdims=0),
    ]
    inputs = [value("x", FLOAT, [None, 3]), value("n", INT64, [1])]
    network = dmljax.onnx.load(model(nodes, inputs, ["places", "sum"]))
    for n in (2, 3, 2):
        places, total = network(X, np.array([n]))
        assert (places.tolist(), float(total)) == ([[0, 1, 1], [1, 0, 2]], n * n)


def test_sequences_and_strings_are_passed_on() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["both"]),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("StringConcat", ["t", "t"], ["tt"]),
        helper.make_node("ConcatFromSequence", ["both"], ["y"], axis=0),
    ]
    inputs = [value("x", FLOAT, [None, 3]), value("t", STRING, [None])]
    network = dmljax.onnx.load(model(nodes, inputs, ["places", "y", "tt"]))
    for text in ("a", "b"):
        places, y, texts = network(X, np.array([text], object))
        assert places.tolist() == [[0, 1, 1], [1, 0, 2]]
        np.testing.assert_array_equal(y, np.concatenate([X, X]))
        assert texts.tolist() == [2 * text]


def test_weights_may_be_replaced() -> None:
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("NonZero", ["m"], ["y"])]
    network = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [3])], ["y"], {"w": np.ones(3, np.float32)}))
    x = X[1]
    assert network(x).tolist() == [[0, 2]]
    assert network.apply({"w": np.array([0, 1, 1], np.float32)}, x).tolist() == [[2]]


def test_errors_name_the_node_wherever_it_is() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
        helper.make_node("Reshape", ["places", "sizes"], ["y"], name="wrong"),
    ]
    network = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [None, 3])], ["y"], {"sizes": np.array([7, -1])}))
    with pytest.raises(dmljax.DmlError, match="wrong"):
        network(X)


@GATE
def test_the_number_of_cached_programs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmljax.onnx.running.static_part.MAX_KEPT", 3)
    network = dmljax.onnx.load(selected())
    for count in (1, 2, 3, 4, 1):
        assert network(np.ones((count, 3), np.float32))[1].tolist() == [3 * count]
        assert len(network._plan._static_part._kept) <= 3


def test_a_model_of_only_data_dependent_nodes_runs() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Shape", ["a"], ["y"])]
    network = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [None])], ["y"]))
    assert network(X[1]).tolist() == [1, 2]
    with jax.disable_jit():
        assert network(X[1]).tolist() == [1, 2]
