"""Models: how they are called, what must be known while tracing, what is refused, and broken files."""

import copy
import errno
import os
import pickle
import re
from pathlib import Path
from typing import Any

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import GATE, X64, refuses
from onnx import TensorProto, helper, numpy_helper
from onnx_models import BOOL, FLOAT, INT64, by_onnxruntime, model, small_network, value

import dmljax.onnx
import dmljax.onnx.running.plan
from dmljax import DmlError
from dmljax.directml import InvalidDesc, InvalidType, Unsupported
from dmljax.foundation import checks
from dmljax.onnx.graph.graph import MAIN
from dmljax.onnx.handlers.registry import REGISTRY, make_handler
from dmljax.onnx.running.plan import Plan, PlanMode


@pytest.fixture(scope="module")
def picture() -> Any:
    return np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype("float32")


@pytest.fixture(scope="module")
def network() -> Any:
    return dmljax.onnx.load(small_network())


def test_a_model_is_a_function_of_arrays(network: Any, picture: Any) -> None:
    (expected,) = by_onnxruntime(small_network(), [picture])
    np.testing.assert_allclose(network(picture), expected, rtol=1e-5, atol=1e-5)
    chex.assert_trees_all_equal(network(picture), network(x=picture), jax.jit(network)(jnp.asarray(picture)))


def test_a_model_describes_its_inputs_and_outputs(network: Any) -> None:
    assert [(tensor.name, tensor.dtype, tensor.sizes) for tensor in network.inputs] == [
        ("x", np.float32, ("n", 3, 4, 4))
    ]
    assert [tensor.name for tensor in network.outputs] == ["y"]
    assert sorted(network.weights) == ["bias", "filter", "matrix"], "arrays that decide sizes are not weights"
    assert repr(network) == "Model(9 nodes, 3 weights; x: float32[n, 3, 4, 4] -> y: tensor[?])"


def test_a_model_is_compiled_once_for_numpy_and_jax_arrays(picture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "JAX_ARRAYS", set())  # as in a new process, which has seen no array
    monkeypatch.setattr("dmljax.onnx.running.plan.JAX_ARRAYS", checks.JAX_ARRAYS)
    run, traces = Plan.trace, []

    def traced(*arrays: Any) -> Any:
        traces.append(arrays)
        return run(*arrays)

    monkeypatch.setattr(Plan, "trace", traced)
    network = dmljax.onnx.load(small_network())
    for arrays in (picture, jnp.asarray(picture), jnp.asarray(picture)):
        chex.assert_trees_all_equal(network(arrays), network(x=arrays))
    assert len(traces) == 1


def test_weights_are_constants_of_calls_unless_they_are_many(monkeypatch: pytest.MonkeyPatch, picture: Any) -> None:
    x = jnp.asarray(picture)
    arguments, results = [], []
    for most in (dmljax.onnx.running.plan.MAX_INLINED, 0):
        monkeypatch.setattr(dmljax.onnx.running.plan, "MAX_INLINED", most)
        network = dmljax.onnx.load(small_network())
        # With weights as arguments, a call's program reads them; as constants, it only reads the picture.
        (call,) = jax.make_jaxpr(network)(x).eqns
        arguments.append(len(call.invars))
        results.append(network(x))
        np.testing.assert_allclose(results[-1], network.apply(network.weights, x), rtol=1e-5, atol=1e-5)
    assert arguments == [1, 4]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-5)


def test_a_call_sees_weights_that_are_replaced(picture: Any) -> None:
    network = dmljax.onnx.load(small_network())
    before = network(picture)
    network.weights["bias"] = network.weights["bias"] + 1
    np.testing.assert_allclose(network(picture), before + 1, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(network(x=picture), before + 1, rtol=1e-5, atol=1e-5)


def test_weights_are_an_argument_that_gradients_flow_to(network: Any, picture: Any) -> None:
    @jax.jit
    def loss(weights: Any, x: Any) -> Any:
        return jnp.sum(network.apply(weights, x) ** 2)

    gradients = jax.jit(jax.grad(loss))(network.weights, jnp.asarray(picture))
    assert {name: weight.shape for name, weight in gradients.items()} == {
        name: weight.shape for name, weight in network.weights.items()
    }
    step = 1e-3
    for name, weight in network.weights.items():
        direction = jnp.sign(gradients[name])
        moved = [loss({**network.weights, name: weight + sign * step * direction}, picture) for sign in (1, -1)]
        np.testing.assert_allclose((moved[0] - moved[1]) / (2 * step), jnp.sum(jnp.abs(gradients[name])), rtol=2e-2)


def test_arrays_in_constant_nodes_are_weights_and_scalars_are_not(network: Any, picture: Any) -> None:
    proto = small_network()
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in proto.graph.initializer]
    constants += [helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32(0.5)))]
    nodes = [*constants, *proto.graph.node, helper.make_node("Mul", ["y", "half"], ["halves"])]
    written = dmljax.onnx.load(model(nodes, [value("x", FLOAT, ["n", 3, 4, 4])], ["halves"]))
    assert sorted(written.weights) == ["bias", "filter", "matrix"]
    doubled = {**written.weights, "matrix": 2 * written.weights["matrix"], "bias": 2 * written.weights["bias"]}
    # Not `network(picture)`, whose weights are constants: XLA may then add up in another order.
    expected = network.apply(network.weights, picture)
    chex.assert_trees_all_close(written.apply(doubled, picture), expected, rtol=1e-6)


def test_vmap_is_a_larger_batch(network: Any) -> None:
    pictures = jnp.asarray(np.random.default_rng(2).standard_normal((5, 2, 3, 4, 4)), jnp.float32)
    mapped = jax.vmap(network)(pictures)
    np.testing.assert_allclose(mapped.reshape(10, 5), network(pictures.reshape(10, 3, 4, 4)), rtol=1e-5, atol=1e-5)


@GATE
def test_an_open_batch_survives_export(network: Any, picture: Any) -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    exported = jax.export.export(jax.jit(network))(jax.ShapeDtypeStruct((batch, 3, 4, 4), "float32"))
    assert str(exported.out_avals[0].shape) == "(batch, 5)"
    for count in (1, 2):
        np.testing.assert_allclose(exported.call(picture[:count]), network(picture[:count]), rtol=1e-6)


@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.gate(but=1)
def test_images_of_an_open_batch_are_resized(by: str) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Concat", ["shape", "rest"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", *(["scales"] if by == "scales" else ["", "sizes"])], ["y"], mode="linear"),
    ]
    constants = {"scales": np.array([1, 1, 2, 2], "float32"), "rest": np.array([1, 4, 4])}
    resize = dmljax.onnx.load(model(nodes, [value("x", FLOAT, ["n", 1, 2, 2])], ["y"], constants))
    assert ("scales" in resize.weights) is (by == "sizes"), "arrays that decide sizes are not weights"
    (batch,) = jax.export.symbolic_shape("batch")
    exported = jax.export.export(jax.jit(resize))(jax.ShapeDtypeStruct((batch, 1, 2, 2), "float32"))
    x = np.arange(12, dtype="float32").reshape(3, 1, 2, 2)
    np.testing.assert_array_equal(exported.call(x), resize(x))


def test_an_export_that_needs_values_leaves_calls_compiled_as_one_program() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=1),
        helper.make_node("Cast", ["shape"], ["number"], to=FLOAT),
        helper.make_node("Sqrt", ["number"], ["root"]),
        helper.make_node("Cast", ["root"], ["count"], to=INT64),
        helper.make_node("Concat", ["count", "rest"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    constants = {"rest": np.array([-1])}
    network = dmljax.onnx.load(model(nodes, [value("x", FLOAT, ["n", 2, 3])], ["y"], constants))
    (batch,) = jax.export.symbolic_shape("batch")
    for _ in range(2):  # the second time, the type of traced arrays is cached
        with pytest.raises(Unsupported, match="sizes"):
            jax.export.export(jax.jit(network))(jax.ShapeDtypeStruct((batch, 2, 3), jnp.float32))
    assert network(jnp.ones((4, 2, 3), jnp.float32)).shape == (2, 12)
    assert network._plan._mode is PlanMode.BY_PLACE


def reshaping() -> Any:
    nodes = [helper.make_node("Reshape", ["x", "sizes"], ["y"], name="to sizes")]
    return dmljax.onnx.load(model(nodes, [value("x", FLOAT, [2, 3]), value("sizes", INT64, [2])], ["y"]))


@pytest.mark.parametrize("operator", ["Pow", "Softmax", "LogSoftmax"])
@pytest.mark.gate(but=1)
def test_an_open_batch_survives_powers_and_softmax_over_trailing_axes(operator: str) -> None:
    inputs, constants = (["x", "two"], {"two": np.float32(2)}) if operator == "Pow" else (["x"], {})
    node = helper.make_node(operator, inputs, ["y"], **({} if operator == "Pow" else {"axis": 2}))
    function = dmljax.onnx.load(model([node], [value("x", FLOAT, ["n", 3, 4])], ["y"], constants, opset=11))
    (count,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((count, 3, 4), jnp.float32))
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    chex.assert_trees_all_close(exported.call(x), function(x))


def test_an_input_that_decides_sizes_is_read_eagerly_and_refused_when_traced() -> None:
    reshape = reshaping()
    x = np.arange(6, dtype="float32").reshape(2, 3)
    assert reshape(x, np.array([3, 2])).shape == (3, 2)
    assert reshape(x, np.array([6, -1])).shape == (6, 1)
    rule = r"onnx: nodes\[\"to sizes\"\].Reshape.sizes must be known while tracing.*load\(\.\.\., cons"
    with pytest.raises(Unsupported, match=rule):
        jax.jit(reshape)(x, np.array([3, 2]))
    assert jax.jit(lambda x: reshape(x, np.array([3, 2])))(x).shape == (3, 2), "a NumPy array is known inside jit"


def test_a_fixed_input_is_no_longer_an_input() -> None:
    nodes = [helper.make_node("Reshape", ["x", "sizes"], ["y"])]
    proto = model(nodes, [value("x", FLOAT, [2, 3]), value("sizes", INT64, [2])], ["y"])
    reshape = dmljax.onnx.load(proto, constants={"sizes": [3, 2]})
    assert [x.name for x in reshape.inputs] == ["x"]
    assert jax.jit(reshape)(np.zeros((2, 3), "float32")).shape == (3, 2)
    with pytest.raises(InvalidDesc, match=r"constants.size must be the name of an input; got 'size', did you mean siz"):
        dmljax.onnx.load(proto, constants={"size": [3, 2]})


def test_sizes_do_not_pass_through_32_bits() -> None:
    ends = {"starts": np.array([1]), "ends": np.array([2**63 - 1]), "axes": np.array([0])}
    nodes = [helper.make_node("Slice", ["x", *ends], ["y"])]
    result = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [5])], ["y"], ends))(np.arange(5, dtype="float32"))
    assert result.tolist() == [1, 2, 3, 4]


def test_integers_beyond_32_bits_are_refused_without_64_bit_types() -> None:
    nodes = [helper.make_node("Add", ["x", "large"], ["y"])]
    add = dmljax.onnx.load(model(nodes, [value("x", INT64, [1])], ["y"], {"large": np.array([2**40])}))
    if X64:
        assert add(np.array([1])).tolist() == [2**40 + 1]
    else:
        with pytest.raises(
            Unsupported, match="large must fit int32 unless 64-bit types are enabled; got 1099511627776"
        ):
            add(np.array([1]))


def nonzero(**options: Any) -> Any:
    nodes = [helper.make_node("NonZero", ["x"], ["places"])]
    return dmljax.onnx.load(model(nodes, [value("x", FLOAT, [None])], ["places"]), **options)


def test_data_dependent_sizes_are_exact_eagerly_and_need_a_bound_when_traced() -> None:
    x = np.array([0, 3, 0, 4], "float32")
    assert nonzero()(x).tolist() == [[1, 3]]
    assert nonzero()(x[:2]).tolist() == [[1]]
    with pytest.raises(Unsupported, match=r"NonZero.x must be known while tracing.*=\{'places': 4\} or .*=\"largest\""):
        jax.jit(nonzero())(x)
    assert jax.jit(nonzero(maximum_sizes={"places": 3}))(x).tolist() == [[1, 3, 0]]
    assert jax.jit(nonzero(maximum_sizes="largest"))(x).tolist() == [[1, 3, 0, 0]]
    with pytest.raises(
        InvalidType, match="maximum_sizes must map names of outputs to sizes, or be \"largest\"; got 'all'"
    ):
        nonzero(maximum_sizes="all")


def test_everything_unsupported_is_reported_at_loading() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Wobble", ["a"], ["b"], name="first"),
        helper.make_node("Wobble", ["b"], ["c"]),
        helper.make_node("Convv", ["c"], ["y"], domain="com.example"),
    ]
    with pytest.raises(Unsupported) as refusal:
        dmljax.onnx.load(model(nodes, [value("x", FLOAT, [2])], ["y"], domains={"com.example": 1}))
    assert len(refusal.value.problems) == 2
    assert "Wobble of ai.onnx 21, 2 times, first at 'first'" in str(refusal.value)
    assert "Convv of com.example 1, at 'y'" in str(refusal.value)


WRONG_CALLS = {
    r"takes arrays, not a dict of them \(model\(\*\*inputs\) gives inputs by name\)": lambda f, x: f({"x": x}),
    r"takes at most 1 array by position; got 2": lambda f, x: f(x, x),
    r"no array for input x": lambda f, x: f(),
    r"xx: unknown input \(the inputs are x\)": lambda f, x: f(xx=x),
    r"x: given both by position and by name": lambda f, x: f(x, x=x),
    r"x must be float32; got float16 \(x.astype\('float32'\)\)": lambda f, x: f(x.astype("float16")),
    r"x must have 4 dimensions; got \(3, 4, 4\)": lambda f, x: f(x[0]),
    r"x must be a float32\[n, 3, 4, 4\]; got \(2, 3, 4, 3\)": lambda f, x: f(x[..., :3]),
    r"x must be a JAX or NumPy array; got list": lambda f, x: f(x.tolist()),
    r"weights must have the same names as model.weights; got no bias": lambda f, x: f.apply({}, x),
    r"weights.bias must have shape \(5,\); got \(2,\)": lambda f, x: f.apply({**f.weights, "bias": jnp.zeros(2)}, x),
    r"weights.params must be an array; got a mapping \(pass the inner one, weights\['params'\]\)": (
        lambda f, x: f.apply({"params": f.weights}, x)
    ),
    r"weights.bias must be a float of 16 to 64 bits; got int8 \(weights\['bias'\].astype\('float32'\)": (
        lambda f, x: f.apply({**f.weights, "bias": jnp.zeros(5, jnp.int8)}, x)
    ),
    r"weights.bias must be a float of 16 to 64 bits; got float8_e4m3fn": (
        lambda f, x: f.apply({**f.weights, "bias": jnp.zeros(5, jnp.float8_e4m3fn)}, x)
    ),
    r"weights.\w+ must have known values; got a traced .*call save outside of jax.jit": (
        lambda f, x: jax.jit(lambda weights: f.save("traced.onnx", weights))(f.weights)
    ),
}


@pytest.mark.parametrize("message", WRONG_CALLS)
def test_a_wrong_call_is_refused(message: str, network: Any, picture: Any) -> None:
    with pytest.raises((InvalidDesc, InvalidType), match=f"^onnx: .*{message}"):
        WRONG_CALLS[message](network, picture)


class Parameter:
    """A weight in a box, as Flax has them."""

    def __init__(self, value: jax.Array) -> None:
        self.value = value

    def __jax_array__(self) -> jax.Array:
        return self.value


def test_weights_may_be_what_converts_itself_to_an_array(network: Any, picture: Any) -> None:
    boxed = {name: Parameter(weight) for name, weight in network.weights.items()}
    chex.assert_trees_all_equal(network.apply(boxed, picture), network.apply(network.weights, picture))


def test_types_of_tensors_are_shown_as_errors_write_them(network: Any) -> None:
    assert repr(network.inputs) == "(TensorType(x: float32[n, 3, 4, 4]),)"


def test_open_sizes_that_share_a_name_must_be_equal() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    add = dmljax.onnx.load(model(nodes, [value("a", FLOAT, ["n"]), value("b", FLOAT, ["n"])], ["y"]))
    with pytest.raises(InvalidDesc, match=r"b must have size 2 for n, like a; got \(1,\)"):
        add(np.zeros(2, "float32"), np.zeros(1, "float32"))


def test_names_that_are_not_identifiers_work_as_keywords() -> None:
    nodes = [helper.make_node("Relu", ["input.1:0"], ["1/out put"])]
    relu = dmljax.onnx.load(model(nodes, [value("input.1:0", FLOAT, [1])], ["1/out put"]))
    assert relu(**{"input.1:0": np.array([-1], "float32")}).tolist() == [0]


def test_several_outputs_are_a_tuple() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"])]
    both = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [1])], ["a", "b"]))
    a, b = both(np.array([2], "float32"))
    assert (a.tolist(), b.tolist()) == ([2], [-2])


def test_nodes_may_be_in_any_order() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    assert dmljax.onnx.load(model(nodes, [value("x", FLOAT, [1])], ["y"]))(np.array([2], "float32")).tolist() == [-2]


def test_before_ir_version_4_initializers_are_inputs_with_defaults() -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    inputs = [value("x", FLOAT, [1]), value("w", FLOAT, [1])]
    add = dmljax.onnx.load(model(nodes, inputs, ["y"], {"w": np.array([5], "float32")}, ir_version=3))
    x = np.array([1], "float32")
    assert [x.name for x in add.inputs] == ["x"]
    assert (add(x).tolist(), add(x, w=x).tolist()) == ([6], [2])


def test_an_operator_has_the_meaning_of_its_version() -> None:
    x = np.zeros((1, 2, 2), "float32")
    for opset, each in ((11, 0.25), (13, 0.5)):  # from version 13 on, only along the axis
        nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=1)]
        softmax = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [1, 2, 2])], ["y"], opset=opset))
        np.testing.assert_array_equal(softmax(x), np.full_like(x, each))


def test_known_integers_divide_like_traced_ones() -> None:
    nodes = [helper.make_node("Div", ["a", "b"], ["y"]), helper.make_node("Div", ["x", "b"], ["z"])]
    constants = {"a": np.array([-7]), "b": np.array([2])}
    divide = dmljax.onnx.load(model(nodes, [value("x", INT64, [1])], ["y", "z"], constants))
    assert [quotient.tolist() for quotient in divide(constants["a"])] == [[-3], [-3]]


# Broken files

RELU = helper.make_node("Relu", ["x"], ["y"])
X, Z = value("x", FLOAT, [1]), value("z", FLOAT, [1])


def twice(part: str, *arguments: Any) -> Any:
    """A model in which something is there twice."""
    proto = model([helper.make_node("Relu", ["x"], ["y"])], arguments[0], ["y"], *arguments[1:])
    proto.graph.node[0].attribute.add(name="a", type="INT")
    function = helper.make_function("f", "F", ["x"], ["y"], [RELU], [helper.make_opsetid("", 18)])
    proto.functions.append(function)
    repeated = getattr({"attribute": proto.graph.node[0], "initializer": proto.graph}.get(part, proto), part)
    repeated.append(repeated[0])
    return proto


WRONG_FILES = {
    r"nodes.y.Relu: undefined name; got 'z'": model([helper.make_node("Relu", ["z"], ["y"])], [X], ["y"]),
    r"outputs: undefined name; got 'z'": model([RELU], [X], ["z"]),
    r"nodes.y.Relu: output name already in use; got 'y'": model([RELU, RELU], [X], ["y"]),
    r"nodes.a.Relu must not be part of a cycle; got \('a',\)": model(
        [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])], [X], ["a"]
    ),
    r"nodes.y.Relu must have at most 1 input; got 2": model([helper.make_node("Relu", ["x", "x"], ["y"])], [X], ["y"]),
    r"nodes.y.Add: no input 1; it needs its first 2 inputs": model([helper.make_node("Add", ["x"], ["y"])], [X], ["y"]),
    r"nodes.y.Elu: unknown attribute alhpa, did you mean alpha\? \(it takes alpha\)": model(
        [helper.make_node("Elu", ["x"], ["y"], alhpa=1.0)], [X], ["y"]
    ),
    r"nodes.y.Relu: unknown attribute alpha \(it takes none\)": model(
        [helper.make_node("Relu", ["x"], ["y"], alpha=1.0)], [X], ["y"]
    ),
    r"nodes.y.Concat: missing attribute axis": model([helper.make_node("Concat", ["x"], ["y"])], [X], ["y"]),
    r"nodes.y.Relu.domain must be imported by the model; got other": model(
        [helper.make_node("Relu", ["x"], ["y"], domain="other")], [X], ["y"]
    ),
    r"nodes.x.Relu: output name already in use; got 'x'": model(
        [helper.make_node("Relu", ["z"], ["x"]), RELU], [X, Z], ["y"]
    ),
    r"nodes.z.Relu: output name already in use; got 'z'": model(
        [helper.make_node("Relu", ["x"], ["z"]), RELU], [X], ["y"], {"z": np.zeros(1)}
    ),
    r"inputs: names must be unique; got 'x'": model([RELU], [X, X], ["y"]),
    r"initializers: names must be unique; got 'z'": twice("initializer", [X], {"z": np.zeros(1)}),
    r"nodes.y.Relu.attributes: names must be unique; got 'a'": twice("attribute", [X]),
    r"functions.F: the model must define a function once; got 'F'": twice("functions", [X]),
    r"x must have fewer than 2\^40 elements; got \(1099511627776,\)": model(
        [RELU], [value("x", FLOAT, [2**40])], ["y"]
    ),
    r"opset_import.other must be in \[0, 2147483647\]; got 2147483648": model(
        [helper.make_node("Relu", ["x"], ["y"], domain="other")], [X], ["y"], domains={"other": 2**31}
    ),
}


def test_an_attribute_of_another_kind_is_refused_with_the_node() -> None:
    cast = model([helper.make_node("Cast", ["x"], ["y"], to=1)], [X], ["y"], opset=1)  # a name, in that version
    with pytest.raises(InvalidDesc, match=r"nodes\.y\.Cast\.to must be text; got 1"):
        dmljax.onnx.load(cast)


@pytest.mark.parametrize("error_type", [AttributeError, LookupError, TypeError, ValueError])
def test_a_bug_in_a_handler_is_not_disguised(error_type: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(x: Any) -> Any:
        raise error_type("our own fault")

    monkeypatch.setitem(REGISTRY.handlers, (MAIN, "Relu"), [make_handler(faulty)])
    relu = dmljax.onnx.load(model([helper.make_node("Relu", ["x"], ["y"])], [X], ["y"]))
    with pytest.raises(error_type, match=r"^our own fault"):
        relu(np.zeros(1, "float32"))


@pytest.mark.parametrize("message", WRONG_FILES)
def test_a_wrong_model_is_refused_at_loading(message: str) -> None:
    with pytest.raises(DmlError, match=f"^onnx: .*{message}"):
        dmljax.onnx.load(WRONG_FILES[message])


@pytest.mark.parametrize("version", [0, 29, 999])
def test_versions_that_are_not_known_are_refused(version: int, tmp_path: Path) -> None:
    known = onnx.defs.onnx_opset_version()
    assert known <= 28, "learn what the new version changes"
    for domain, rule in (("", "from 1 to 28"), ("com.microsoft", "1")):
        domains = {domain: version} if domain else {}
        proto = model([RELU], [X], ["y"], opset=18 if domain else version, domains=domains)
        with refuses(f'opset_import["{domain or "ai.onnx"}"] must be {rule}, which dmljax knows; got {version}'):
            dmljax.onnx.load(proto)


def test_results_that_no_memory_holds_are_refused() -> None:
    sizes = {"sizes": np.array([2**20, 2**20])}
    for operator, inputs in (("Expand", ["x", "sizes"]), ("ConstantOfShape", ["sizes"])):
        proto = model([helper.make_node(operator, inputs, ["y"])], [X], ["y"], sizes)
        run = dmljax.onnx.load(proto)
        with refuses(f"nodes.y.{operator}"):
            run(np.zeros(1, np.float32))
        with refuses(f"nodes.y.{operator} must have results of fewer than 2^40 elements; got (1048576, 1048576)"):
            jax.eval_shape(run, jax.ShapeDtypeStruct((1,), np.float32))


def test_anything_but_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDesc, match=r"must be a readable file; got '.*none.onnx' \(No such file") as none:
        dmljax.onnx.load(tmp_path / "none.onnx")
    assert isinstance(none.value, FileNotFoundError)
    assert (none.value.errno, none.value.filename) == (errno.ENOENT, str(tmp_path / "none.onnx"))
    with pytest.raises(OSError, match="must be a regular file"):
        dmljax.onnx.load(tmp_path)
    with pytest.raises(InvalidDesc, match=r"onnx: must be a readable file; got .*null"):
        dmljax.onnx.load("a\0.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(InvalidDesc, match="not an ONNX model in protobuf; got 8 bytes"):
        dmljax.onnx.load(tmp_path / "text.onnx")
    with pytest.raises(InvalidDesc, match="the model is empty"):
        dmljax.onnx.load(b"")
    with pytest.raises(InvalidDesc, match="not an ONNX model, because it has no graph; got 2 bytes"):
        dmljax.onnx.load(b"\x08\x0a")
    with pytest.raises(InvalidType, match="source must be a path, bytes or a ModelProto; got 3"):
        dmljax.onnx.load(3)


def external(location: str, **more: Any) -> onnx.ModelProto:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [X], ["y"], {"w": np.array([5], "float32")})
    (tensor,) = proto.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, entry in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(entry))
    return proto


def save_model(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_lies_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\0" * 4 + np.array([7], "float32").tobytes())
    add = dmljax.onnx.load(save_model(external("data.bin", offset=4, length=4), tmp_path))
    assert add(np.array([1], "float32")).tolist() == [8]


def test_external_data_that_is_missing_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"initializers\.w\.location must be a readable file") as missing:
        dmljax.onnx.load(save_model(external("data.bin"), tmp_path))
    assert isinstance(missing.value, DmlError)


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 4)
    (inner / "link").symlink_to(tmp_path / "secret")
    for location in ("../secret", str(tmp_path / "secret"), "link", "", "."):
        with pytest.raises(InvalidDesc, match="location must be a file in the model's folder"):
            dmljax.onnx.load(save_model(external(location), inner))
    (inner / "short").write_bytes(b"\0" * 3)
    for more in ({}, {"offset": 9}, {"offset": -1}, {"length": 2**40}, {"length": "many"}):
        with pytest.raises(InvalidDesc, match=r"initializers\.w"):
            dmljax.onnx.load(save_model(external("short", **more), inner))
    os.mkfifo(inner / "pipe")  # opening it would wait for a writer
    with pytest.raises(InvalidDesc, match="location must be a regular file; got"):
        dmljax.onnx.load(save_model(external("pipe"), inner))
    with pytest.raises(InvalidDesc, match="location: no folder to read from, because the model came without a path"):
        dmljax.onnx.load(external("secret"))


def test_mutated_models_load_or_raise_a_documented_error(picture: Any) -> None:
    data = small_network().SerializeToString()
    random = np.random.default_rng(3)
    loaded = 0
    for _ in range(300):
        bytes_ = bytearray(data)
        for _ in range(random.integers(1, 4)):
            bytes_[random.integers(len(bytes_))] = random.integers(256)
        try:
            dmljax.onnx.load(bytes(bytes_[: random.integers(1, len(bytes_))] if random.random() < 0.1 else bytes_))
            loaded += 1
        except DmlError:
            pass
    assert 50 < loaded < 299


@pytest.mark.parametrize("name", ["FLOAT6E2M3", "FLOAT6E3M2"])
def test_floats_of_6_bits_are_refused(name: str) -> None:
    float_type = getattr(TensorProto, name, None)
    if float_type is None:
        pytest.skip("this version of onnx has no such type")
    numbers = np.array([1, 2], np.float32).astype(helper.tensor_dtype_to_np_dtype(float_type))
    constant = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(numbers))
    cast = helper.make_node("Cast", ["x"], ["y"], to=float_type)
    with pytest.raises(Unsupported, match="data_type: not supported by XLA; got float6"):
        dmljax.onnx.load(model([constant], [], ["y"]))
    with pytest.raises(Unsupported, match="data_type: not supported by XLA; got float6"):
        dmljax.onnx.load(model([cast], [value("x", FLOAT, [2])], ["y"]))(np.array([1, 2], np.float32))


def test_bool_and_numbers_are_inputs_without_dimensions() -> None:
    nodes = [helper.make_node("Where", ["c", "a", "b"], ["y"])]
    inputs = [value("c", BOOL, []), value("a", FLOAT, []), value("b", FLOAT, [])]
    where = dmljax.onnx.load(model(nodes, inputs, ["y"]))
    assert float(where(True, 1.0, 2.0)) == 1.0
    assert re.match(r"Model\(1 node,", repr(where))


def test_tensors_of_all_types_are_read() -> None:
    for name in ("bfloat16", "float16", "int4", "uint4", "int8", "uint64", "bool", "float8_e4m3fn", "complex64"):
        array = np.array([0, 1, 1]).astype(jnp.dtype(name))
        nodes = [helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(array))]
        result = dmljax.onnx.load(model(nodes, [], ["y"]))()
        wide = jax.dtypes.canonicalize_dtype(array.dtype)
        assert result.dtype == wide
        np.testing.assert_array_equal(np.asarray(result).astype(complex), array.astype(complex))


def test_a_model_can_be_copied() -> None:
    graph = "f (float[N] x) => (float[N] y) { y = Neg(x) }"
    loaded = dmljax.onnx.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}'))
    for copied in (copy.copy(loaded), copy.deepcopy(loaded)):
        assert copied(np.ones(2, np.float32)).tolist() == [-1, -1]
    with pytest.raises(InvalidType, match=r"cannot be pickled \(load it again where it is needed, or model.save"):
        pickle.dumps(loaded)


@pytest.mark.parametrize("node", ["y = Identity(x)", "y = Add(x, x)"])
def test_a_caller_may_change_its_array_after_a_call(node: str) -> None:
    model = dmljax.onnx.load(
        onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> f (float[N] x) => (float[N] y) {{ {node} }}')
    )
    memory = np.empty(1_000_016, np.float32)
    x = memory[-memory.ctypes.data // 4 % 16 :][:1_000_000]  # aligned, so that JAX could share it
    for _ in range(5):
        x[:] = 1
        y = model(x)
        x[:] = 5
        assert np.ptp(y) == 0
        assert y[0] in (1, 2)
