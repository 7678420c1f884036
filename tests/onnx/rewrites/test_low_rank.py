"""Low-rank additions to the products of a model, beside NumPy, dense gradients and ONNX Runtime."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import FULL, GATE, SAMPLED, few_of, mesh_of, refuses
from jax.sharding import AxisType, PartitionSpec as P
from onnx_models import FLOAT, model, value
from small_language_models import LAYERS, VOCABULARY, Reference, write_folder

import dmljax.onnx
from dmljax.onnx import LanguageModel, language_model

RNG = np.random.default_rng(3)
KEY = jax.random.key(0)
PROMPT = [5, 11, 40, 7, 23]
X = RNG.standard_normal((3, 40)).astype(np.float32)
CODES = RNG.integers(0, 16, (6, 40), np.uint8)
SCALES = RNG.uniform(0.5, 1, 18).astype(np.float32)
WEIGHT = RNG.standard_normal((40, 6)).astype(np.float32)


def weights_of_blocks() -> Any:
    """The matrix of CODES, whose blocks have 16 rows, the last one 8."""
    return ((CODES - np.float32(8)) * np.repeat(SCALES.reshape(6, 3), 16, 1)[:, :40]).T


def packed_codes() -> Any:
    codes = np.pad(CODES, [(0, 0), (0, 8)]).reshape(6, 3, 8, 2)
    return (codes[..., 0] | codes[..., 1] << 4).astype(np.uint8)


WAYS: dict[str, tuple[Any, str, Mapping[str, Any]]] = {
    "MatMul": (WEIGHT, "y = MatMul(x, w)", {"w": WEIGHT}),
    "Gemm": (2 * WEIGHT, "y = Gemm<alpha = 2.0, transB = 1>(x, w)", {"w": WEIGHT.T}),
    "Transpose": (WEIGHT, "i = Identity(w) t = Transpose(i) y = MatMul(x, t)", {"w": WEIGHT.T}),
    "DequantizeLinear": (
        (CODES - 8.0).T * SCALES[:6],
        "d = DequantizeLinear<axis = 0>(w, scales, zeros) t = Transpose<perm = [1, 0]>(d) y = MatMul(x, t)",
        {"w": CODES, "scales": SCALES[:6], "zeros": np.full(6, 8, np.uint8)},
    ),
    "MatMulNBits": (
        weights_of_blocks(),
        "y = com.microsoft.MatMulNBits<K = 40, N = 6, block_size = 16>(x, w, scales)",
        {"w": packed_codes(), "scales": SCALES},
    ),
    "float16": (
        WEIGHT.astype(np.float16),
        "c = Cast<to = 10>(x) h = MatMul(c, w) y = Cast<to = 1>(h)",
        {"w": WEIGHT.astype(np.float16)},
    ),
}


def read(nodes: str, constants: Mapping[str, Any]) -> dmljax.onnx.Model:
    head = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> f (float[N, 40] x) => (float[N, 6] y)'
    proto = onnx.parser.parse_model(f"{head} {{ {nodes} }}")
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return dmljax.onnx.load(proto)


def random_additions(tuned: Any, scale: float = 0.3) -> dict[str, Any]:
    """Random numbers in place of the zeros that additions begin with."""
    names = [name for name in tuned.weights if ".lora_" in name]
    like = {name: tuned.weights[name] for name in names}
    return {name: jnp.asarray(scale * RNG.standard_normal(weight.shape), weight.dtype) for name, weight in like.items()}


@SAMPLED
@pytest.mark.parametrize("product_form", WAYS)
def test_a_product_has_the_weight_and_the_product_of_its_additions(product_form: str) -> None:
    matrix, nodes, constants = WAYS[product_form]
    base = read(nodes, constants)
    tuned = base.with_low_rank(2, key=KEY)
    np.testing.assert_allclose(tuned(X), base(X), rtol=1e-5, atol=1e-5)  # the second factors are zeros
    added = random_additions(tuned)
    a, b = added["w.lora_a"], added["w.lora_b"]
    assert (a.shape, b.shape) == ((40, 2), (2, 6))
    assert a.dtype == (np.float16 if product_form == "float16" else np.float32)
    expected = X @ (matrix.astype(np.float32) + np.asarray(a, np.float32) @ np.asarray(b, np.float32))
    tolerance = 0.05 if product_form == "float16" else 1e-4
    np.testing.assert_allclose(tuned.apply(tuned.weights | added, X), expected, rtol=tolerance, atol=tolerance)


@GATE
def test_gradients_are_those_of_a_dense_product() -> None:
    matrix, nodes, constants = WAYS["MatMulNBits"]
    tuned = read(nodes, constants).with_low_rank(2, key=KEY)
    added = random_additions(tuned)

    def loss(added: Any) -> Any:
        return jnp.sum(jnp.sin(tuned.apply(tuned.weights | added, X)))

    def dense_loss(added: Any) -> Any:
        return jnp.sum(jnp.sin(X @ (matrix + added["w.lora_a"] @ added["w.lora_b"])))

    expected = jax.grad(dense_loss)(added)
    for grads in (jax.grad(loss)(added), jax.jit(jax.grad(loss))(added)):
        jax.tree.map(lambda grad, other: np.testing.assert_allclose(grad, other, rtol=1e-3, atol=1e-3), grads, expected)


@GATE
def test_first_factors_are_drawn_and_the_weights_are_shared() -> None:
    base = read(*WAYS["MatMul"][1:])
    tuned = base.with_low_rank(300, key=KEY)
    assert [*base.weights] == ["w"]
    assert tuned.weights["w"] is base.weights["w"]
    a = np.asarray(tuned.weights["w.lora_a"])
    assert abs(a.std() * 40**0.5 - 1) < 0.05
    assert not np.any(tuned.weights["w.lora_b"])
    assert np.any(a != base.with_low_rank(300, key=jax.random.key(1)).weights["w.lora_a"])


@GATE
def test_products_are_chosen_by_parts_of_names_and_may_share_a_weight() -> None:
    nodes = "a = MatMul(x, up_w) b = MatMul(a, down_w) c = MatMul(b, up_w) y = Add(c, bias)"
    random = {name: RNG.standard_normal(sizes) for name, sizes in (("up_w", (40, 6)), ("down_w", (6, 40)))}
    constants = {name: array.astype(np.float32) for name, array in random.items()} | {"bias": np.ones(6, np.float32)}
    base = read(nodes, constants)
    up = base.with_low_rank(2, ["up"], key=KEY)
    assert {*up.weights} - {*base.weights} == {"up_w.lora_a", "up_w.lora_b"}
    added = random_additions(up)
    matrix = constants["up_w"] + np.asarray(added["up_w.lora_a"] @ added["up_w.lora_b"])
    expected = X @ matrix @ constants["down_w"] @ matrix + 1
    np.testing.assert_allclose(up.apply(up.weights | added, X), expected, rtol=1e-4, atol=1e-3)
    both = up.with_low_rank(3, ["down"], key=KEY)
    assert both.weights["down_w.lora_b"].shape == (3, 40)
    np.testing.assert_allclose(both.apply(both.weights | added, X), expected, rtol=1e-4, atol=1e-3)


def test_a_file_without_operators_of_onnx_gets_them(tmp_path: Path) -> None:
    _, _, constants = WAYS["MatMulNBits"]
    sizes = {"K": 40, "N": 6, "block_size": 16, "bits": 4}
    product = onnx.helper.make_node("MatMulNBits", ["x", "w", "scales"], ["y"], domain="com.microsoft", **sizes)
    types = value("x", FLOAT, ["n", 40]), value("y", FLOAT, ["n", 6])
    proto = model([product], types[:1], types[1:], constants, domains={"com.microsoft": 1})
    del proto.opset_import[0]
    tuned = dmljax.onnx.load(proto).with_low_rank(2, key=KEY)
    added = random_additions(tuned)
    tuned.save(tmp_path / "tuned.onnx", tuned.weights | added)
    again = dmljax.onnx.load(tmp_path / "tuned.onnx")
    np.testing.assert_allclose(again(X), tuned.apply(tuned.weights | added, X), rtol=1e-5, atol=1e-5)
    with refuses("onnx: names must be of weights without additions; got 'w'"):
        again.with_low_rank(2, key=KEY)


# Language models


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return language_model(write_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def tuned(base: LanguageModel) -> LanguageModel:
    return base.with_low_rank(4, ["0.q", "1.out", "logits"], key=KEY)


@pytest.fixture(scope="module")
def weights(tuned: LanguageModel) -> dict[str, Any]:
    return tuned.weights | random_additions(tuned, 0.1)


@GATE
def test_a_language_model_generates_with_additions_as_onnxruntime_does(
    base: LanguageModel, tuned: LanguageModel, weights: Any, tmp_path: Path
) -> None:
    assert len(base.with_low_rank(4, key=KEY).weights) - len(base.weights) == 2 * (4 * LAYERS + 1)
    tuned.model.save(tmp_path / "tuned.onnx", weights)
    reference = Reference(onnx.load(tmp_path / "tuned.onnx"))
    assert tuned.generate(PROMPT, weights=weights, max_length=12, min_length=12) == reference.greedy(PROMPT, 12)
    np.testing.assert_allclose(tuned.logits(PROMPT, weights=weights), reference.logits(PROMPT), rtol=1e-4, atol=1e-4)


@GATE
def test_additions_are_divided_as_their_products(tuned: LanguageModel, weights: Any) -> None:
    mesh = mesh_of(AxisType.Auto, data=2, model=4)
    specs = tuned.partition(mesh)
    assert (specs["0.q.codes.lora_a"], specs["0.q.codes.lora_b"]) == (P(), P(None, "model"))
    assert (specs["1.out.codes.lora_a"], specs["1.out.codes.lora_b"]) == (P("model"), P())
    assert specs["1.out.codes"] == P(None, "model")
    placed = {name: jax.device_put(weight, jax.NamedSharding(mesh, specs[name])) for name, weight in weights.items()}
    expected = tuned.logits(PROMPT, weights=weights)
    np.testing.assert_allclose(tuned.logits(PROMPT, weights=placed), expected, rtol=1e-4, atol=1e-4)


@GATE
def test_additions_to_converted_weights_are_converted(base: LanguageModel, tuned: LanguageModel, weights: Any) -> None:
    half = language_model(base.settings.file.parent, dtype=jnp.bfloat16).with_low_rank(
        4, ["0.q", "1.out", "logits"], key=KEY
    )
    converted = half.weights | {name: weights[name].astype(jnp.bfloat16) for name in weights if ".lora_" in name}
    assert half.weights["0.q.codes.lora_a"].dtype == jnp.bfloat16
    state = half.start(PROMPT, weights=converted)
    assert {cache.dtype for cache in state.caches.values()} == {jnp.dtype(jnp.bfloat16)}
    np.testing.assert_allclose(state.logits[0], tuned.logits(PROMPT, weights=weights)[-1], rtol=0, atol=0.2)


@pytest.mark.parametrize("is_divided", few_of([False, True], False))
@GATE
def test_gradients_reach_additions_through_a_whole_model(tuned: LanguageModel, weights: Any, is_divided: bool) -> None:
    placed = tuned.shard(mesh_of(AxisType.Auto, data=2, model=4)) if is_divided else tuned.weights
    frozen = {name: weight for name, weight in placed.items() if ".lora_" not in name}
    added = {name: jax.device_put(weights[name], placed[name].sharding) for name in placed if ".lora_" in name}

    def loss(added: Any, tokens: Any) -> Any:
        likely = jax.nn.log_softmax(tuned.logits(tokens, weights={**frozen, **added})[:-1])
        return -jnp.mean(jnp.take_along_axis(likely, tokens[1:, None], 1))

    grads = jax.jit(jax.grad(loss))(added, jnp.array(PROMPT))
    assert grads.keys() == added.keys()
    moved = {name: jnp.asarray(RNG.standard_normal(weight.shape), weight.dtype) for name, weight in added.items()}

    def loss_beside(step: float) -> Any:
        likely = jax.nn.log_softmax(
            tuned.logits(PROMPT, weights=weights | {x: weights[x] + step * moved[x] for x in added})
        )
        return -np.mean([likely[i, token] for i, token in enumerate(PROMPT[1:])])

    along = sum(float(jnp.vdot(grads[name], moved[name])) for name in added)
    np.testing.assert_allclose(along, (loss_beside(1e-3) - loss_beside(-1e-3)) / 2e-3, rtol=0.02)


@FULL
def test_traced_prompts_may_be_a_batch(tuned: LanguageModel) -> None:
    tokens = jnp.array([PROMPT, PROMPT[::-1]])
    logits = jax.jit(tuned.logits)(tokens)
    assert logits.shape == (2, 5, VOCABULARY)
    for row, expected in zip(logits, tuned.logits(tokens), strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.with_low_rank(0, key=KEY), "rank must be in [1, 2147483647]; got 0"),
        (lambda m: m.with_low_rank(2, key=3), "key must be a single jax.random key; got 3"),
        (lambda m: m.with_low_rank(2, "q", key=KEY), "names must be a list of parts of names of weights; got 'q'"),
        (lambda m: m.with_low_rank(2, [], key=KEY), "names must be a list of parts of names of weights; got []"),
        (
            lambda m: m.with_low_rank(2, ["q", "norm"], key=KEY),
            "names[1] must be part of the name of a product's weight; got 'norm' (a name is '0.q.codes')",
        ),
        (
            lambda m: m.with_low_rank(2, ["0.q.coods"], key=KEY),
            "names[0] must be part of the name of a product's weight; got '0.q.coods', did you mean 0.q.codes?",
        ),
        (
            lambda m: m.with_low_rank(2, ["0.q"], key=KEY).with_low_rank(2, ["codes"], key=KEY),
            "names must be of weights without additions; got '0.q.codes'",
        ),
        (
            lambda m: m.with_low_rank(2, ["0.q"], key=KEY).generate(PROMPT, weights=m.weights),
            "weights must have the same names as model.weights; got no 0.q.codes.lora_a",
        ),
        (
            lambda m: jax.jit(m.logits)(np.ones((2, 3), np.float32)),
            "prompts must be integers of the shape (tokens,) or (sequences, tokens); got float32 of (2, 3)",
        ),
        (
            lambda m: jax.jit(m.logits)(np.ones(65, np.int32)),
            "prompts must have at most 64 tokens, the model's context; got 65",
        ),
    ],
)
@pytest.mark.gate(but=3)
def test_wrong_calls_are_refused(base: LanguageModel, call: Callable[[Any], Any], message: str) -> None:
    with refuses(f"onnx: {message}"):
        call(base)


@GATE
def test_gradients_need_automatic_axes(tuned: LanguageModel) -> None:
    placed = tuned.shard(mesh_of(AxisType.Explicit, data=2, model=4))
    added = {name: weight for name, weight in placed.items() if ".lora_" in name}
    with refuses("onnx: weights.embedding must be divided along axes of the type Auto while JAX traces weights; got"):
        jax.grad(lambda added: tuned.logits(PROMPT, weights=placed | added).sum())(added)


def test_a_model_without_products_is_refused() -> None:
    no_products = read("y = Slice(x, starts, ends)", {"starts": np.array([0, 0]), "ends": np.array([9, 6])})
    with refuses("onnx: the model has no product with a weight that low-rank additions could change"):
        no_products.with_low_rank(1, key=KEY)
