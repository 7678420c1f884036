"""A model's own operators, as PyTorch's older exporters write them: functions that nodes call."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import FLOAT, model, value

import dmljax.onnx
from dmljax import DmlError

X = np.array([[-2.0, 1.0, 3.0]], np.float32)
VERSIONS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]


def referring(operator: str, inputs: Any, outputs: Any, domain: str = "", **references: tuple[str, Any]) -> Any:
    """A node whose attributes refer to those of the enclosing function."""
    node = helper.make_node(operator, inputs, outputs, domain=domain)
    for name, (outer_name, attribute_type) in references.items():
        node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=outer_name, type=attribute_type))
    return node


def leaky(overload: str = "", factor: float = 0.5) -> Any:
    nodes = [referring("LeakyRelu", ["a"], ["b"], alpha=("slope", onnx.AttributeProto.FLOAT))]
    default = [helper.make_attribute("slope", factor)]
    function = helper.make_function("own", "Leaky", ["a"], ["b"], nodes, VERSIONS, [], default)
    function.overload = overload
    return function


def of_node(node: Any, functions: Any, **more: Any) -> Any:
    inputs = [value("x", FLOAT, [1, 3])]
    return dmljax.onnx.load(model([node], inputs, ["y"], functions=functions, domains={"own": 1}, **more))


def test_an_attribute_has_the_default_of_the_function_unless_the_node_gives_it() -> None:
    plain = of_node(helper.make_node("Leaky", ["x"], ["y"], domain="own"), [leaky()])
    explicit_run = of_node(helper.make_node("Leaky", ["x"], ["y"], domain="own", slope=0.25), [leaky()])
    assert plain(X).tolist() == [[-1.0, 1.0, 3.0]]
    assert explicit_run(X).tolist() == [[-0.5, 1.0, 3.0]]


def test_functions_call_functions_with_their_own_attributes() -> None:
    nodes = [
        referring("Leaky", ["a"], ["b"], "own", slope=("outer", onnx.AttributeProto.FLOAT)),
        helper.make_node("Leaky", ["a"], ["c"], domain="own"),
        helper.make_node("Add", ["b", "c"], ["d"]),
    ]
    outer = helper.make_function("own", "Twice", ["a"], ["d"], nodes, VERSIONS, ["outer"])
    run = of_node(helper.make_node("Twice", ["x"], ["y"], domain="own", outer=2.0), [outer, leaky()])
    assert run(X).tolist() == [[-5.0, 2.0, 6.0]]
    without = of_node(helper.make_node("Twice", ["x"], ["y"], domain="own"), [outer, leaky()])
    assert without(X).tolist() == [[-2.0, 2.0, 6.0]], "an attribute that the call omits is also absent inside"


def test_a_function_has_its_own_opset_versions() -> None:
    nodes = [helper.make_node("Softmax", ["a"], ["b"])]  # before version 13, over axis 1 and all later ones
    function = helper.make_function("own", "Old", ["a"], ["b"], nodes, [helper.make_opsetid("", 11)])
    node = helper.make_node("Old", ["x"], ["y"], domain="own")
    x = np.zeros((2, 2, 2), np.float32)
    run = dmljax.onnx.load(
        model([node], [value("x", FLOAT, [2, 2, 2])], ["y"], functions=[function], domains={"own": 1})
    )
    assert run(x).ravel().tolist() == [0.25] * 8


def test_overloads_of_one_name_are_distinct() -> None:
    node = helper.make_node("Leaky", ["x"], ["y"], domain="own", overload="strong")
    run = of_node(node, [leaky(), leaky("strong", 4.0)])
    assert run(X).tolist() == [[-8.0, 1.0, 3.0]]


def test_an_optional_input_of_a_function_may_be_absent() -> None:
    nodes = [helper.make_node("Clip", ["a", "low"], ["b"])]
    function = helper.make_function("own", "Bounded", ["a", "low"], ["b"], nodes, VERSIONS)
    run = of_node(helper.make_node("Bounded", ["x"], ["y"], domain="own"), [function])
    assert run(X).tolist() == X.tolist()


def test_sizes_that_follow_from_an_input_of_a_function_are_known() -> None:
    nodes = [helper.make_node("Reshape", ["a", "sizes"], ["b"])]
    function = helper.make_function("own", "Shaped", ["a", "sizes"], ["b"], nodes, VERSIONS)
    node = helper.make_node("Shaped", ["x", "s"], ["y"], domain="own")
    run = of_node(node, [function], constants={"s": np.array([3, -1])})
    assert run(X).shape == (3, 1)


def test_a_function_that_calls_itself_is_refused() -> None:
    nodes = [helper.make_node("Round", ["a"], ["b"], domain="own")]
    function = helper.make_function("own", "Round", ["a"], ["b"], nodes, VERSIONS)
    with pytest.raises(DmlError, match="must not call itself"):
        of_node(helper.make_node("Round", ["x"], ["y"], domain="own"), [function])
