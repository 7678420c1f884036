"""Models that draw random numbers: a key decides them, under every transformation."""

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx.parser
import pytest
from helpers import GATE, SAMPLED
from onnx import helper
from onnx_models import BOOL, FLOAT, INT64, model, value

import dmljax.onnx
from dmljax.command_line.cli import main
from dmljax.command_line.onnx.timing import describe_result
from dmljax.directml import InvalidType, Unsupported

KEY = jax.random.key(7)
MANY = 20000


def load_model(signature: str, body: str) -> Any:
    text = f'<ir_version: 10, opset_import: ["": 21]> f {signature} {{ {body} }}'
    return dmljax.onnx.load(onnx.parser.parse_model(text))


def noisy() -> Any:
    """A model with two random nodes, and a node between them that is folded into the weights."""
    body = "w = Constant <value = float[3] {1, 2, 3}> ()  a = RandomNormalLike (x)  v = Neg (w)  p = Mul (x, v)"
    return load_model(
        "(float[n, 3] x) => (float[n, 3] y, float[3] b)", f"{body} y = Add (p, a) b = RandomUniform <shape = [3]> ()"
    )


X = np.ones((2, 3), np.float32)


@SAMPLED
@pytest.mark.parametrize(
    ("operator", "low", "high", "mean", "deviation"),
    [
        ("RandomNormal <shape = [20000], mean = 3.0, scale = 0.5> ()", -np.inf, np.inf, 3, 0.5),
        ("RandomUniform <shape = [20000], low = -1.0, high = 2.0> ()", -1, 2, 0.5, 3 / 12**0.5),
        ("RandomNormalLike <mean = -1.0> (x)", -np.inf, np.inf, -1, 1),
        ("RandomUniformLike <high = 4.0> (x)", 0, 4, 2, 4 / 12**0.5),
        ("Bernoulli (x)", 0, 1, 0.25, (0.25 * 0.75) ** 0.5),
    ],
)
def test_numbers_have_the_distribution_that_the_node_says(
    operator: str, low: float, high: float, mean: float, deviation: float
) -> None:
    run = load_model("(float[20000] x) => (float[20000] y)", f"y = {operator}")
    numbers = np.asarray(run(np.full(MANY, 0.25, np.float32), key=KEY), float)
    assert low <= numbers.min() < numbers.max() <= high
    assert abs(numbers.mean() - mean) < 5 * deviation / MANY**0.5
    assert numbers.std() == pytest.approx(deviation, rel=0.05)


@GATE
def test_multinomial_draws_classes_by_their_log_probabilities() -> None:
    run = load_model("(float[2, 3] x) => (int64[2, 20000] y)", "y = Multinomial <sample_size = 20000, dtype = 7> (x)")
    chances = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]], np.float32)
    with np.errstate(divide="ignore"):
        drawn = np.asarray(run(np.log(8 * chances), key=KEY))
    shares = [np.bincount(row, minlength=3) / MANY for row in drawn]
    np.testing.assert_allclose(shares, chances, atol=0.02)


@GATE
def test_a_key_gives_the_same_numbers_under_every_transformation() -> None:
    run = noisy()
    expected = run(X, key=KEY)

    def close(results: Any) -> None:
        for result, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, other, rtol=1e-6)

    close(jax.jit(run)(X, key=KEY))
    close(run.apply(run.weights, X, key=KEY))  # without the folded nodes
    keys = jnp.stack([jax.random.key(1), KEY])
    mapped = jax.vmap(run)(jnp.stack([X, X]), key=keys)
    close([result[1] for result in mapped])
    assert np.all(np.asarray(mapped[0][0]) != mapped[0][1])
    np.testing.assert_array_equal(jax.grad(lambda x: run(x, key=KEY)[0].sum())(X), [[-1, -2, -3]] * 2)
    (batch,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(run))(jax.ShapeDtypeStruct((batch, 3), np.float32), key=KEY)
    close(jax.export.deserialize(exported.serialize()).call(X, key=KEY))


@GATE
def test_each_node_and_seed_draws_its_own_numbers() -> None:
    body = "a = RandomUniform <shape = [4]> () b = RandomUniform <shape = [4]> () c = Add (a, x)"
    draw = load_model("(float[4] x) => (float[4] a, float[4] b, float[4] c)", body)
    results = draw(np.zeros(4, np.float32), key=KEY)
    np.testing.assert_array_equal(results[0], results[2])
    assert np.all(np.asarray(results[0]) != results[1])
    seeded = load_model("(float[4] x) => (float[4] a)", "a = RandomUniform <shape = [4], seed = 3.0> ()")
    assert np.all(np.asarray(seeded(np.zeros(4, np.float32), key=KEY)) != results[0])


@pytest.mark.parametrize("count", [3, 9])
@GATE
def test_each_iteration_of_a_loop_draws_its_own_numbers(count: int) -> None:
    nodes = [
        helper.make_node("Identity", ["goes"], ["going"]),
        helper.make_node("RandomUniform", [], ["noise"], shape=[2]),
        helper.make_node("Add", ["total", "noise"], ["sum"]),
        helper.make_node("Identity", ["noise"], ["row"]),
    ]
    inputs = [value("i", INT64, []), value("goes", BOOL, []), value("total", FLOAT, [2])]
    body = helper.make_graph(
        nodes, "body", inputs, [value("going", BOOL, []), value("sum", FLOAT, [2]), value("row", FLOAT, [2])]
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y", "rows"], body=body)
    proto = model([loop], [value("x", FLOAT, [2])], ["y", "rows"], {"count": np.array(count)})
    run = dmljax.onnx.load(proto)
    total, rows = run(np.zeros(2, np.float32), key=KEY)
    assert len(np.unique(rows)) == 2 * count
    np.testing.assert_allclose(total, np.sum(rows, 0), rtol=1e-6)
    for result, other in zip(jax.jit(run)(np.zeros(2, np.float32), key=KEY), (total, rows), strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-6)


def test_calls_of_a_function_draw_their_own_numbers() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "own": 1]>
    f (float[4] x) => (float[4] a, float[4] b) { a = own.noise (x) b = own.noise (x) }
    <domain: "own", opset_import: ["": 21]> noise (x) => (y) { y = RandomNormalLike (x) }"""
    a, b = dmljax.onnx.load(onnx.parser.parse_model(text))(np.zeros(4, np.float32), key=KEY)
    assert np.all(np.asarray(a) != b)


DROPOUT = (
    "(float[n] x, float ratio, bool training) => (float[n] y, bool[n] mask)",
    "y, mask = Dropout (x, ratio, training)",
)


@GATE
def test_dropout_drops_a_fraction_in_training() -> None:
    run = load_model(*DROPOUT)
    x = np.linspace(1, 2, MANY, dtype=np.float32)
    y, mask = run(x, np.float32(0.25), np.array(True), key=KEY)
    assert np.mean(mask) == pytest.approx(0.75, abs=0.02)
    np.testing.assert_allclose(y, np.where(mask, x / np.float32(0.75), 0), rtol=1e-6)
    traced = jax.jit(lambda *inputs: run(*inputs, key=KEY))(x, np.float32(0.25), np.array(True))
    np.testing.assert_array_equal(traced[1], mask)
    grads = jax.grad(lambda x: run(x, np.float32(0.25), np.array(True), key=KEY)[0].sum())(x)
    np.testing.assert_allclose(grads, np.asarray(mask) / np.float32(0.75), rtol=1e-6)


def test_dropout_is_the_identity_in_inference() -> None:
    run = load_model(*DROPOUT)
    for results in (
        run(X[0], np.float32(0.25), np.array(False)),  # needs no key
        jax.jit(lambda *inputs: run(*inputs, key=KEY))(X[0], np.float32(0.25), np.array(False)),
    ):
        np.testing.assert_array_equal(results[0], X[0])
        assert np.all(results[1])


def test_models_that_need_a_key_ask_for_it_and_others_refuse_it() -> None:
    run = noisy()
    for call in (lambda: run(X), lambda: jax.jit(run)(X), lambda: run(X, key=None)):
        with pytest.raises(InvalidType, match=r"RandomNormalLike: no key .* \(call model\(..., key=jax.random.key\(0"):
            call()
    with pytest.raises(InvalidType, match=r"key must be a single jax.random key; got .*wrap_key_data"):
        run(X, key=jax.random.PRNGKey(0))
    with pytest.raises(InvalidType, match=r"key must be a single jax.random key; got keys of \(2,\)"):
        run(X, key=jax.random.split(KEY))
    without = load_model("(float[3] x) => (float[3] y)", "y = Dropout (x)")
    assert not without.is_random
    np.testing.assert_array_equal(without(X[0], key=None), X[0])
    with pytest.raises(InvalidType, match="key: not needed, because no node draws random numbers"):
        without(X[0], key=KEY)


def test_an_input_may_be_named_key() -> None:
    run = load_model("(float[3] key) => (float[3] y)", "noise = RandomNormalLike (key) y = Add (key, noise)")
    np.testing.assert_allclose(run(X[0], key=KEY), run(2 * X[0], key=KEY) - X[0], rtol=1e-5)
    plain = load_model("(float[3] key) => (float[3] y)", "y = Neg (key)")
    np.testing.assert_array_equal(plain(key=X[0]), -X[0])


def test_conversion_to_directml_refuses_random_numbers() -> None:
    with pytest.raises(Unsupported, match=r"RandomNormalLike: no DirectML graph, because DirectML and jax.random draw"):
        noisy().graph({"x": (2, 3)})


def test_the_command_line_draws_the_same_numbers_each_time(tmp_path: Any, capsys: Any) -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[2])
    path = str(tmp_path / "noise.onnx")
    onnx.save(model([node], [], ["y"]), path)
    printed = []
    for _ in range(2):
        assert main(["run", path]) == 0
        printed.append(capsys.readouterr().out.splitlines()[3])
    assert printed[0] == printed[1] == f"y: {describe_result(dmljax.onnx.load(path)(key=jax.random.key(0)))}"
