"""Mixtures of experts beside ONNX Runtime, and beside formulas where its CPU has no kernel."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, GATE, SAMPLED
from jax.test_util import check_grads
from onnx_models import by_onnxruntime, one_node

import dmljax.onnx
from dmljax import DmlError
from dmljax.directml import InvalidDesc, Unsupported

RNG = np.random.default_rng(3)
EXPERTS, HIDDEN, UNITS = 4, 32, 16
GATED: Any = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def dense(tokens: int, *, rows: int = UNITS, has_third: bool = False) -> list[Any]:
    """The inputs of MoE, whose first matrices have `rows` outputs."""
    inputs = [floats(tokens, HIDDEN), floats(tokens, EXPERTS)]
    inputs += [floats(EXPERTS, rows, HIDDEN), floats(EXPERTS, rows), floats(EXPERTS, HIDDEN, UNITS) / 4]
    third = [floats(EXPERTS, UNITS, HIDDEN), floats(EXPERTS, UNITS)] if has_third else []
    return [*inputs, floats(EXPERTS, HIDDEN), *third]


def run(model: Any, inputs: list[Any]) -> Any:
    return np.asarray(jax.jit(dmljax.onnx.load(model))(*(x for x in inputs if x is not None)))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def mix(inputs: list[Any], best_experts: Any, weights: Any, activated: Any) -> Any:
    """The mixture, token by token, in float64; `activated` takes the products of an expert's first matrices."""
    x, _, *layers = (x.astype(np.float64) for x in inputs)
    pairs = list(zip(layers[::2], layers[1::2], strict=True))
    result = np.zeros(x.shape)
    for token, (experts, shares) in enumerate(zip(best_experts, weights, strict=True)):
        for expert, share in zip(experts, shares, strict=True):
            firsts = [matrix[expert] @ x[token] + bias[expert] for matrix, bias in (pairs[0], *pairs[2:])]
            matrix, bias = pairs[1]
            result[token] += share * (matrix[expert] @ activated(*firsts) + bias[expert])
    return result


def best(scores: Any, count: int) -> Any:
    return np.argsort(-scores, axis=1, kind="stable")[:, :count]


def shares(scores: Any, experts: Any) -> Any:
    return softmax(np.take_along_axis(scores, experts, 1))


def swiglu(gate: Any, linear: Any, limit: float = math.inf) -> Any:
    gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    return gate * sigmoid(1.702 * gate) * (linear + 1)


@SAMPLED
@pytest.mark.parametrize("tokens", [1, pytest.param(9, marks=FULL)])
@pytest.mark.parametrize(
    ("rows", "attributes"),
    [
        (UNITS, {"k": 1}),
        (UNITS, {"k": 2, "activation_type": "gelu", "normalize_routing_weights": 1}),
        (UNITS, {"k": 3, "activation_type": "silu"}),
        (2 * UNITS, {"k": 2, **GATED, "swiglu_fusion": 1, "swiglu_limit": 1.0, "normalize_routing_weights": 1}),
    ],
)
def test_mixtures_equal_onnxruntime(tokens: int, rows: int, attributes: Any) -> None:
    inputs = dense(tokens, rows=rows)
    model = one_node("MoE", inputs, **attributes)
    np.testing.assert_allclose(run(model, inputs), by_onnxruntime(model, inputs)[0], rtol=1e-5, atol=2e-5)


def quantized(bits: int, block: int, *, has_zeros: bool, rows: int = UNITS) -> list[Any]:
    inputs, parts = dense(5, rows=rows), []
    for weight, bias in ((inputs[2], inputs[3]), (inputs[4], inputs[5])):
        experts, outputs, width = weight.shape
        scales = (experts, outputs, width // block) if block else (experts, outputs)
        codes = RNG.integers(0, 256, (experts, outputs, width * bits // 8), np.uint8)
        zeros = RNG.integers(0, 256, (*scales[:-1], -(-scales[-1] * bits // 8)), np.uint8) if has_zeros else None
        parts.append((codes, np.abs(floats(*scales)) / 2**bits, bias, zeros))
    return [*inputs[:2], *parts[0][:3], *parts[1][:3], None, None, None, parts[0][3], parts[1][3]]


@pytest.mark.parametrize(
    ("bits", "block", "has_zeros"),
    [
        (4, 16, True),
        *(pytest.param(*case, marks=FULL) for case in [(4, 0, True), (8, 16, False), (8, 0, False), (2, 16, True)]),
    ],
)
def test_mixtures_of_few_bits_equal_onnxruntime(bits: int, block: int, has_zeros: bool) -> None:
    inputs = quantized(bits, block, has_zeros=has_zeros)
    blocks = {"block_size": block} if block else {}
    attributes: Any = {"expert_weight_bits": bits, "normalize_routing_weights": 1, **blocks}
    model = one_node("QMoE", inputs, k=2, activation_type="silu", **attributes)
    expected = by_onnxruntime(model, [x for x in inputs if x is not None])[0]
    np.testing.assert_allclose(run(model, inputs), expected, rtol=1e-5, atol=2e-5)


@FULL
@pytest.mark.parametrize("is_normalized", [0, 1])
def test_experts_may_be_mixed_by_weights_other_than_scores(is_normalized: int) -> None:
    inputs = [*quantized(4, 16, has_zeros=False), None, np.abs(floats(5, EXPERTS))]
    attributes: Any = {"activation_type": "silu", "block_size": 16, "normalize_routing_weights": is_normalized}
    model = one_node("QMoE", inputs, k=2, **attributes)
    expected = by_onnxruntime(model, [x for x in inputs if x is not None])[0]
    np.testing.assert_allclose(run(model, inputs), expected, rtol=1e-5, atol=2e-5)


@FULL
@pytest.mark.parametrize("fusion", [0, 2])
def test_gates_may_be_stored_apart_from_their_linear_parts(fusion: int) -> None:
    inputs = dense(5, rows=2 * UNITS if fusion else UNITS, has_third=not fusion)
    model = one_node("MoE", inputs, k=2, **GATED, swiglu_fusion=fusion, swiglu_limit=0.5, normalize_routing_weights=1)
    experts = best(inputs[1], 2)

    def activated(*firsts: Any) -> Any:
        gate, linear = firsts if not fusion else np.split(firsts[0], 2)
        return swiglu(gate, linear, 0.5)

    expected = mix(inputs, experts, shares(inputs[1], experts), activated)
    np.testing.assert_allclose(run(model, inputs), expected, rtol=1e-5, atol=2e-5)


@GATE
def test_the_limit_may_come_after_the_activation() -> None:
    inputs = dense(5, rows=2 * UNITS)
    model = one_node("MoE", inputs, **GATED, swiglu_fusion=1, swiglu_limit=0.3, swiglu_limit_after_activation=1)

    def activated(first: Any) -> Any:
        gate, linear = first[::2], first[1::2]
        return np.minimum(gate * sigmoid(1.702 * gate), 0.3) * (np.clip(linear, -0.3, 0.3) + 1)

    experts = best(inputs[1], 1)
    weights = np.take_along_axis(softmax(inputs[1]), experts, 1)
    np.testing.assert_allclose(run(model, inputs), mix(inputs, experts, weights, activated), rtol=1e-5, atol=2e-5)


@GATE
def test_a_sparse_mixer_compares_each_expert_with_those_close_to_it() -> None:
    # ONNX Runtime's CPU ignores the attribute; these are the formulas of arXiv:2409.12136 for inference.
    inputs = dense(40)
    inputs[1] = (1 + inputs[1] / 50).astype(np.float32)
    experts, weights, left = [], [], inputs[1].astype(np.float64)
    for _ in range(2):
        largest = left.max(1, keepdims=True)
        is_far = (largest - inputs[1]) / np.maximum(np.abs(inputs[1]), largest) > 0.02
        experts.append(left.argmax(1))
        weights.append(softmax(np.where(is_far, -np.inf, left)).max(1))
        left[np.arange(40), experts[-1]] = -np.inf
    model = one_node("MoE", inputs, k=2, use_sparse_mixer=1)
    expected = mix(inputs, np.stack(experts, 1), np.stack(weights, 1), lambda x: np.maximum(x, 0))
    assert 0 < np.mean(np.stack(weights) == 1) < 1, "some scores have others close to them"
    np.testing.assert_allclose(run(model, inputs), expected, rtol=1e-5, atol=2e-5)


@GATE
def test_experts_that_no_token_chooses_are_not_read() -> None:
    inputs = dense(1)
    model = one_node("MoE", inputs, k=2)
    expected = run(model, inputs)
    for expert in set(range(EXPERTS)) - set(best(inputs[1], 2)[0].tolist()):
        for array in inputs[2:]:
            array[expert] = np.nan
    np.testing.assert_array_equal(run(model, inputs), expected)


@pytest.mark.parametrize("is_one_sided", [False, pytest.param(True, marks=FULL)])
@GATE
def test_many_tokens_equal_single_ones(is_one_sided: bool) -> None:
    inputs = dense(150)
    if is_one_sided:  # all tokens choose the last expert
        inputs[1][:, -1] += 100
    whole = run(one_node("MoE", inputs, k=2), inputs)
    few = [*(x[:3] for x in inputs[:2]), *inputs[2:]]
    np.testing.assert_allclose(run(one_node("MoE", few, k=2), few), whole[:3], rtol=1e-5, atol=2e-5)
    experts = best(inputs[1], 2)
    weights = np.take_along_axis(softmax(inputs[1]), experts, 1)
    expected = mix(inputs, experts, weights, lambda x: np.maximum(x, 0))
    np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=5e-5)


@pytest.mark.parametrize("tokens", [1, pytest.param(12, marks=FULL)])
@GATE
def test_mixtures_have_derivatives_and_are_mapped(tokens: int) -> None:
    x, router, *weights = map(jnp.asarray, dense(tokens))
    attributes: Any = {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    function = jax.jit(dmljax.onnx.load(one_node("MoE", [x, router, *weights], **attributes)))

    def of_values(x: Any, down: Any) -> Any:
        return function(x, router, *weights[:2], down, weights[3])

    check_grads(of_values, (x, weights[2]), order=1, atol=2e-2, rtol=2e-2)
    several = jnp.stack([x, 2 * x]), jnp.stack([router, -router])
    mapped = jax.vmap(lambda x, router: function(x, router, *weights))(*several)
    for actual, *given in zip(mapped, *several, strict=True):
        np.testing.assert_allclose(actual, function(*given, *weights), rtol=1e-5, atol=2e-5)


@FULL
def test_sums_of_16_bits_are_float32() -> None:
    inputs = [x.astype(np.float16) for x in dense(7)]
    actual = run(one_node("MoE", inputs, k=2), inputs)
    wide = [x.astype(np.float32) for x in inputs]
    assert actual.dtype == np.float16
    np.testing.assert_allclose(actual, run(one_node("MoE", wide, k=2), wide), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("operator", "change", "attributes", "error", "message"),
    [
        ("MoE", {}, {"k": 5}, InvalidDesc, "k must be from 1 to 4, the number of experts; got 5"),
        ("MoE", {}, {"k": 1, "use_sparse_mixer": 1}, InvalidDesc, "k must be 2 with use_sparse_mixer; got 1"),
        ("MoE", {}, {"activation_type": "tanh"}, InvalidDesc, "activation_type must be one of .*; got 'tanh'"),
        ("MoE", {}, GATED, InvalidDesc, "needs fc3_experts_weights if swiglu_fusion is 0"),
        (
            "MoE",
            {4: floats(EXPERTS, HIDDEN, 7)},
            {},
            InvalidDesc,
            r"fc2_experts_weights must have shape \(4, outputs, 16",
        ),
        ("QMoE", {}, {"quant_type": "fp4"}, Unsupported, "supports only integers that are not prepacked; got fp4"),
        ("QMoE", {}, {"weights_prepacked": 1}, Unsupported, "got weights_prepacked 1 .*make the model for the CPU"),
        ("QMoE", {}, {"expert_weight_bits": 3}, Unsupported, "fc1_expert_weight_bits must be 2, 4 or 8; got 3"),
        ("QMoE", {}, {"expert_weight_bits": 8}, InvalidDesc, "prepacked for CUDA are not supported"),
        ("QMoE", {3: None}, {}, InvalidDesc, "fc1_scales must be given for integers; got none"),
    ],
)
def test_wrong_mixtures_are_refused(operator: str, change: Any, attributes: Any, error: Any, message: str) -> None:
    inputs = dense(2) if operator == "MoE" else quantized(4, 0, has_zeros=False)
    for place, value in change.items():
        inputs[place] = value
    with pytest.raises(error, match=message):
        run(one_node(operator, inputs, **attributes), inputs)
    assert issubclass(error, DmlError)
