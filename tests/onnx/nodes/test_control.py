"""Subgraphs, sequences and optional values, which are traced depending on what is known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, SAMPLED, refuses
from onnx import TensorProto, helper
from onnx_models import BOOL, FLOAT, INT64, model, value

import dmljax.onnx
from dmljax.directml import InvalidDesc, Unsupported


def floats(values: Any) -> Any:
    return jnp.asarray(values, jnp.float32)


def graph(nodes: Any, inputs: Any, outputs: Any, **constants: Any) -> Any:
    return model(nodes, inputs, [value(output, FLOAT, None) for output in outputs], constants).graph


def choice(then_branch: Any, else_branch: Any) -> Any:
    node = helper.make_node("If", ["condition"], ["y"], then_branch=then_branch, else_branch=else_branch)
    return dmljax.onnx.load(model([node], [value("condition", BOOL, []), value("x", FLOAT, ["n"])], ["y"]))


def branch(operator: str, *inputs: str, **constants: Any) -> Any:
    return graph([helper.make_node(operator, [*inputs], ["made"])], [], ["made"], **constants)


@pytest.fixture(scope="module")
def doubled_or_squared() -> Any:
    two = np.float32(2)
    return choice(branch("Mul", "x", "two", two=two), branch("Mul", "x", "x"))


def test_a_branch_is_chosen_under_every_transformation(doubled_or_squared: Any) -> None:
    x = floats([3.0, 4.0])
    assert doubled_or_squared(True, x).tolist() == jax.jit(doubled_or_squared)(jnp.array(True), x).tolist() == [6, 8]
    assert jax.jit(doubled_or_squared)(jnp.array(False), x).tolist() == [9, 16]
    rows = jax.vmap(doubled_or_squared)(jnp.array([True, False]), jnp.stack([x, x]))
    assert rows.tolist() == [[6, 8], [9, 16]]
    gradient = jax.grad(lambda x, condition: doubled_or_squared(condition, x).sum())
    assert gradient(x, jnp.array(False)).tolist() == jax.jit(gradient)(x, jnp.array(False)).tolist() == [6, 8]


def test_a_known_condition_leaves_the_other_branch_out(doubled_or_squared: Any) -> None:
    program = str(jax.make_jaxpr(lambda x: doubled_or_squared(True, x))(floats(jnp.ones(2))))
    assert "cond" not in program
    assert "cond" in str(jax.make_jaxpr(doubled_or_squared)(jnp.array(True), floats(jnp.ones(2))))


def test_branches_of_different_sizes_need_a_known_condition() -> None:
    zero = np.array([0])
    shorter = choice(branch("Gather", "x", "zero", zero=zero), branch("Neg", "x"))
    assert shorter(True, floats(jnp.ones(3))).shape == (1,)
    assert shorter(False, floats(jnp.ones(3))).shape == (3,)
    with pytest.raises(
        Unsupported, match=r"y must have the same type in both branches of a traced condition; got float32"
    ):
        jax.jit(shorter)(jnp.array(True), floats(jnp.ones(3)))


def loop(body: Any, outputs: int = 1, count: str = "count", condition: str = "", **constants: Any) -> Any:
    names = [f"out{i}" for i in range(outputs)]
    node = helper.make_node("Loop", [count, condition, "x"], names, name="again", body=body)
    inputs = [value("x", FLOAT, None)]
    inputs += [value("count", INT64, [])] if count and count not in constants else []
    return dmljax.onnx.load(model([node], inputs, names, constants))


def body(*nodes: Any, rows: bool = False, going: str = "going", **constants: Any) -> Any:
    """A loop body that passes `state` on as `next`, and may collect it."""
    inputs = [value("i", INT64, []), value("going", BOOL, []), value("state", FLOAT, None)]
    keep = helper.make_node("Identity", [going], ["goes_on"])
    return graph([*nodes, keep], inputs, ["goes_on", "next", *(["next"] if rows else [])], **constants)


def halved(**options: Any) -> Any:
    return body(helper.make_node("Mul", ["state", "half"], ["next"]), half=np.float32(0.5), **options)


@SAMPLED
@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_a_loop_of_a_known_count_collects_rows(count: int) -> None:
    run = loop(halved(rows=True), outputs=2)
    x = floats([8.0, 4.0])
    last, rows = run(x, count)
    expected = [np.array([8, 4]) / np.float32(2) ** i for i in range(1, count + 1)]
    np.testing.assert_array_equal(rows, np.reshape(expected, (count, 2)).astype("float32"))
    np.testing.assert_array_equal(last, expected[-1] if count else x)


def test_a_long_loop_is_traced_once_and_differentiated() -> None:
    run = loop(halved(), count="n", n=np.array(20))
    assert "scan" in str(jax.make_jaxpr(run)(floats(jnp.ones(2))))
    assert jax.grad(lambda x: run(x).sum())(floats(jnp.ones(2))).tolist() == [2.0**-20] * 2


def test_a_traced_count_collects_no_rows() -> None:
    assert jax.jit(loop(halved()))(floats([8.0]), jnp.array(3)).tolist() == [1]
    with pytest.raises(Unsupported, match=r"again\.Loop: needs a count and a condition that are known.*outside jit"):
        jax.jit(loop(halved(rows=True), outputs=2))(floats([8.0]), jnp.array(3))


def until_small(rows: bool = False) -> Any:
    nodes = [
        helper.make_node("Mul", ["state", "half"], ["next"]),
        helper.make_node("Greater", ["next", "one"], ["more"]),
    ]
    return body(*nodes, going="more", rows=rows, half=np.float32(0.5), one=np.float32(1))


@GATE
def test_a_data_dependent_condition_ends_a_loop_exactly() -> None:
    run = loop(until_small(rows=True), outputs=2, count="")
    last, rows = run(jnp.float32(20))
    assert rows.tolist() == [10, 5, 2.5, 1.25, 0.625]
    assert last == 0.625
    with pytest.raises(Unsupported, match="condition that is known while tracing"):
        jax.jit(run)(jnp.float32(20))
    without_rows = loop(until_small(), count="")
    assert jax.jit(without_rows)(jnp.float32(20)) == without_rows(jnp.float32(20)) == 0.625
    assert jax.vmap(without_rows)(floats([20.0, 3.0])).tolist() == [0.625, 0.75]


def test_a_condition_ends_a_loop_before_its_count() -> None:
    run = loop(until_small(), count="n", n=np.array(100))
    assert run(jnp.float32(20)) == jax.jit(run)(jnp.float32(20)) == 0.625


def test_a_maximal_trip_count_means_no_limit() -> None:  # as PyTorch's exporter writes `while`
    count = np.array(2**63 - 1)
    run = loop(until_small(), count="n", n=count)
    assert run(jnp.float32(20)) == jax.jit(run)(jnp.float32(20)) == 0.625
    _, rows = loop(until_small(rows=True), outputs=2, count="n", n=count)(jnp.float32(20))
    assert rows.tolist() == [10, 5, 2.5, 1.25, 0.625]
    with pytest.raises(InvalidDesc, match="never ends"):
        loop(halved(), count="n", n=count)(jnp.float32(1))


def test_a_condition_may_end_a_loop_after_few_rows() -> None:
    _, rows = loop(until_small(rows=True), outputs=2, count="n", n=np.array(2**31 - 1))(jnp.float32(20))
    assert rows.tolist() == [10, 5, 2.5, 1.25, 0.625]


def test_a_loop_that_cannot_end_is_refused() -> None:
    with pytest.raises(InvalidDesc, match="never ends: it has no count"):
        loop(halved(), count="")(jnp.float32(1))


def test_sizes_may_grow_in_a_loop_of_a_known_count() -> None:
    grow = body(helper.make_node("Concat", ["state", "state"], ["next"], axis=0))
    run = loop(grow)
    assert run(floats(jnp.ones(1)), 7).shape == (128,)
    with pytest.raises(Unsupported, match="sizes change"):
        jax.jit(run)(floats(jnp.ones(1)), jnp.array(7))


def scan(version: int, *arrays: str, **options: Any) -> Any:
    names = ["total", "row"]
    inputs = [value(name, FLOAT, None) for name in names]
    nodes = [helper.make_node("Add", names, ["sum"]), helper.make_node("Identity", ["sum"], ["made"])]
    inner = graph(nodes, inputs, ["sum", "made"])
    node = helper.make_node("Scan", [*arrays], ["last", "sums"], body=inner, num_scan_inputs=1, **options)
    kinds = {"lengths": INT64}
    infos = [value(name, kinds.get(name, FLOAT), None) for name in arrays if name]
    return dmljax.onnx.load(model([node], infos, ["last", "sums"], opset=version))


def test_a_scan_goes_backwards_along_any_axis() -> None:
    run = scan(11, "x", "rows", scan_input_axes=[-1], scan_input_directions=[1], scan_output_axes=[1])
    rows = floats([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
    last, sums = jax.jit(run)(floats(jnp.zeros(2)), rows)
    assert last.tolist() == [6, 60]
    assert sums.tolist() == [[3, 5, 6], [30, 50, 60]]


def test_a_scan_of_batches_stops_at_the_length_of_each() -> None:
    run = scan(8, "lengths", "x", "rows")
    last, sums = run(
        jnp.array([2, 3]), floats(jnp.zeros((2, 1))), floats([[[1.0], [2.0], [4.0]], [[1.0], [2.0], [4.0]]])
    )
    assert last.tolist() == [[3], [7]]
    assert sums[..., 0].tolist() == [[1, 3, 0], [1, 3, 7]]


def test_sequences_are_lists_and_their_positions_are_known() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "y"], ["pair"]),
        helper.make_node("SequenceInsert", ["pair", "x", "place"], ["three"]),
        helper.make_node("SequenceAt", ["three", "last"], ["z"]),
    ]
    inputs = [value("x", FLOAT, [2]), value("y", FLOAT, [2]), value("place", INT64, [])]
    run = dmljax.onnx.load(model(nodes, inputs, ["three", "z"], {"last": np.array(-1)}))
    three, last = run(floats(jnp.zeros(2)), floats(jnp.ones(2)), np.array(0))
    assert [array.tolist() for array in three] == [[0, 0], [0, 0], [1, 1]]
    assert last.tolist() == [1, 1]
    with pytest.raises(InvalidDesc, match=r"position must be in \[-2, 2\); got 3"):
        run(floats(jnp.zeros(2)), floats(jnp.ones(2)), np.array(3))
    with pytest.raises(Unsupported, match="place must be known while tracing"):
        jax.jit(run)(floats(jnp.zeros(2)), floats(jnp.ones(2)), jnp.array(0))


def test_a_model_takes_sequences_and_none() -> None:
    optional_type = helper.make_optional_type_proto(
        helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    )
    node = helper.make_node("OptionalHasElement", ["x"], ["y"])
    run = dmljax.onnx.load(model([node], [helper.make_value_info("x", optional_type)], ["y"], opset=18))
    assert run([floats(jnp.ones(2))])
    assert not run(None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([jnp.ones(2, jnp.float32), jnp.ones(3, jnp.int32)], "x[1] must be float32; got int32"),
        ([np.ones(2, bool)], "x[0] must be float32; got bool"),
        ([np.array(["a"], object)], "x[0] must be float32; got text"),
        (np.ones(2, np.float32), "x must be a list, as the input is a sequence; got array("),
    ],
)
def test_elements_of_a_sequence_have_its_type(given: Any, message: str) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, ["n"]))
    run = dmljax.onnx.load(
        model([helper.make_node("Identity", ["x"], ["y"])], [helper.make_value_info("x", kind)], ["y"])
    )
    assert [element.shape for element in run([floats(jnp.ones(2)), floats(jnp.ones(3))])] == [(2,), (3,)]
    with refuses(message):
        run(given)


@pytest.mark.parametrize("given", [np.ones(2, np.int32), np.array(["a", "b"], object), [np.ones(2, np.float32)]])
def test_an_optional_holds_its_type(given: Any) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    node = helper.make_node("OptionalHasElement", ["x"], ["y"])
    run = dmljax.onnx.load(model([node], [helper.make_value_info("x", kind)], ["y"], opset=18))
    assert run(np.ones(2, np.float32))
    with refuses("x must be "):
        run(given)


@pytest.mark.parametrize("operator", ["SequenceConstruct", "SequenceInsert"])
def test_sequences_have_elements_of_one_type(operator: str) -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["x1"]), helper.make_node(operator, ["x", "k"], ["y"])]
    nodes[1].input[0] = "x1" if operator == "SequenceInsert" else "x"
    run = dmljax.onnx.load(model(nodes, [value("x", FLOAT, [2]), value("k", INT64, [2])], ["y"]))
    with refuses("a sequence must have elements of one type, here float32; got int"):
        run(floats(jnp.ones(2)), np.ones(2, np.int64))


def test_training_and_classical_machine_learning_are_refused_at_loading_each_once() -> None:
    nodes = [
        helper.make_node("Gradient", ["x"], ["dx"], domain="ai.onnx.preview.training", xs=["x"], y="x"),
        helper.make_node("Scaler", ["x"], ["scaled"], domain="ai.onnx.ml", name="scale", offset=[0.0], scale=[1.0]),
        helper.make_node("TreeEnsembleClassifier", ["scaled"], ["label", "votes"], domain="ai.onnx.ml"),
        helper.make_node("Scaler", ["votes"], ["y"], domain="ai.onnx.ml", offset=[0.0], scale=[1.0]),
    ]
    domains = {"ai.onnx.preview.training": 1, "ai.onnx.ml": 3}
    with pytest.raises(Unsupported) as refusal:
        dmljax.onnx.load(model(nodes, [value("x", FLOAT, [2])], ["dx", "y"], domains=domains))
    first, second = refusal.value.rules
    assert first.endswith("(cut the model before them and differentiate its output with jax.grad)")
    assert "got Scaler and TreeEnsembleClassifier of ai.onnx.ml 3, 3 times, first at 'scale' (cut the model" in second


def test_layouts_for_one_processor_are_refused_with_a_remedy() -> None:
    node = helper.make_node("Conv", ["x", "x"], ["y"], domain="com.microsoft.nchwc")
    proto = model([node], [value("x", FLOAT, [1, 8, 3, 3])], ["y"], domains={"com.microsoft.nchwc": 1})
    with pytest.raises(Unsupported, match=r"layout that ONNX Runtime chose .* with ORT_ENABLE_EXTENDED instead"):
        dmljax.onnx.load(proto)


def test_known_strings_are_computed() -> None:
    text_type = TensorProto.STRING
    nodes = [
        helper.make_node("StringConcat", ["x", "end"], ["whole"]),
        helper.make_node("RegexFullMatch", ["whole"], ["is_it"], pattern="a.*z"),
    ]
    inputs = [value("x", text_type, ["n"]), value("end", text_type, [1])]
    run = dmljax.onnx.load(model(nodes, inputs, ["whole", "is_it"]))
    whole, is_it = run(np.array(["ab", "ba"], object), np.array(["z"], object))
    assert whole.tolist() == ["abz", "baz"]
    assert is_it.tolist() == [True, False]
    whole, is_it = run(np.array([], object), np.array(["z"], object))
    assert whole.shape == is_it.shape == (0,)
