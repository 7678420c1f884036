"""Linear attention, causal convolutions, their gates and norms beside ONNX Runtime, and windows of states."""

from typing import Any

import jax
import numpy as np
import pytest
from helpers import FULL, SAMPLED
from onnx_models import by_onnxruntime, one_node

import dmljax.onnx
from dmljax.directml import InvalidDesc, Unsupported

RNG = np.random.default_rng(5)
BATCH, SIZE, VALUES = 2, 8, 4
ENDS = np.array([0, 3, 9], np.int32)  # of packed sequences


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def units(*shape: int) -> Any:
    x = floats(*shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def rates(*shape: int) -> Any:
    return RNG.uniform(0.1, 0.9, shape).astype(np.float32)


def run(model: Any, inputs: list[Any]) -> list[Any]:
    function = jax.jit(dmljax.onnx.load(model))
    return [np.asarray(x) for x in jax.tree.leaves(function(*(x for x in inputs if x is not None)))]


def linear(tokens: int, rule: str, heads: tuple[int, int, int] = (2, 2, 4), *, is_per_key: bool = False) -> Any:
    """A node of LinearAttention, with its heads of queries, keys and values."""
    queries, keys, values = heads
    decays = (BATCH, tokens, values * SIZE if is_per_key else values)
    inputs = [
        units(BATCH, tokens, queries, SIZE).reshape(BATCH, tokens, -1),
        units(BATCH, tokens, keys, SIZE).reshape(BATCH, tokens, -1),
        *(floats(BATCH, tokens, values * VALUES), floats(BATCH, values, SIZE, VALUES)),
        -rates(*decays) if "gated" in rule else None,
        rates(BATCH, tokens, values) if "delta" in rule else None,
    ]
    return "LinearAttention", inputs, 2, {"q_num_heads": queries, "kv_num_heads": values, "update_rule": rule}


def network(form: str, rule: str, **attributes: Any) -> Any:
    """A node of GatedDeltaNet with two sequences, which may differ in length, or have packed heads."""
    tokens = (9,) if form == "ragged" else (2, 5) if form == "rank 4" else (10,)
    heads = [units(*tokens, 2, SIZE), units(*tokens, 2, SIZE), floats(*tokens, 4, VALUES)]
    if form == "packed":
        heads = [np.concatenate([x.reshape(10, -1) for x in heads], 1), None, None]
    gates = [-rates(*tokens, 4) if "gated" in rule else None, rates(*tokens, 4) if "delta" in rule else None]
    more = [floats(4), floats(4)] if "gate_activation" in attributes else []
    inputs = [*heads, ENDS if form == "ragged" else None, *gates, floats(2, 4, VALUES, SIZE), *more]
    return "GatedDeltaNet", inputs, 2, {"update_rule": rule, **attributes}


def convolved(**attributes: Any) -> Any:
    before = 3 * attributes.get("dilation", 1)
    return "CausalConvWithState", [floats(2, 6, 5), floats(6, 1, 4), floats(6), floats(2, 6, before)], 2, attributes


def packed(*more: Any, **attributes: Any) -> Any:
    before = 3 * attributes.get("dilation", 1)
    inputs = [floats(9, 6), floats(6, 1, 4), ENDS, floats(6), floats(2, 6, before), *more]
    return "VarlenCausalConvWithState", inputs, 2 + len(more), attributes


CASES: dict[str, Any] = {
    "linear": linear(5, "linear"),
    "gated": linear(1, "gated", (4, 2, 2)),
    "delta": linear(5, "delta", (4, 4, 4)),
    "gated delta": linear(5, "gated_delta", (2, 4, 4)),
    "decay per key": linear(20, "gated_delta", is_per_key=True),
    "chunks": linear(70, "gated_delta"),
    "linear chunks": linear(70, "linear"),
    "delta chunks": linear(130, "delta", (4, 2, 2)),
    "gates": ("LinearAttentionGate", [floats(2, 3, 4), floats(4), -rates(4), floats(2, 3, 4)], 2, {}),
    "norm": ("GatedRMSNorm", [floats(2, 3, 8), floats(4), floats(2, 3, 8)], 1, {"epsilon": 1e-3}),
    "norm sigmoid": ("GatedRMSNorm", [floats(3, 4), floats(4), floats(3, 4)], 1, {"activation": "sigmoid"}),
    "sum": ("GatedAdd", [floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 1)], 1, {}),
    "convolution": convolved(activation="silu", dilation=2),
    "convolution of last channels": (
        "CausalConvWithState",
        [floats(2, 5, 3, 2), floats(6, 1, 4), None, floats(2, 3, 3, 2)],
        2,
        {"channels_last": 1},
    ),
    "packed convolution": packed(activation="silu", dilation=2),
    "packed convolution with updates": packed(np.array([4, 2], np.int32), state_update_capacity=3),
    "network": network("uniform", "gated_delta", gate_activation="softplus", beta_activation="sigmoid", qk_l2_norm=1),
    "network of rank 4": network("rank 4", "gated", gate_activation="kda"),
    "ragged network": network("ragged", "gated_delta", scale=0.5),
    "packed network": network("packed", "delta"),
}


@SAMPLED
@pytest.mark.parametrize(
    "name",
    CASES,
)
def test_operators_of_linear_attention_equal_onnxruntime(name: str) -> None:
    operator, inputs, outputs, attributes = CASES[name]
    model = one_node(operator, inputs, outputs, **attributes)
    expected = by_onnxruntime(model, [x for x in inputs if x is not None])
    for actual, other in zip(run(model, inputs), expected, strict=True):
        assert actual.dtype == other.dtype
        np.testing.assert_allclose(actual, other, rtol=1e-5, atol=2e-5)


@FULL
@pytest.mark.parametrize("window", [2, 7])
@pytest.mark.parametrize("case", ["gated delta", "convolution"])
def test_a_window_of_states_has_those_of_the_last_tokens(case: str, window: int) -> None:
    # ONNX Runtime's CPU has no windows: the state after each token is that of a call with the tokens up to it.
    operator, inputs, outputs, attributes = linear(5, "gated_delta") if case == "gated delta" else convolved()
    inputs = [x for x in inputs if x is not None]
    axis, several = (1, 3) if case == "gated delta" else (2, 3)
    windowed = [*inputs[:several], np.stack([inputs[several]] * window), *inputs[several + 1 :]]
    output, states = run(one_node(operator, windowed, outputs, **attributes, state_window=window), windowed)
    for slot in range(window):
        count = 5 - window + 1 + slot
        if count < 1:
            assert not states[slot].any()
            continue
        first_tokens = [x.take(range(count), axis) if x.shape[axis:][:1] == (5,) else x for x in inputs]
        part, state = run(one_node(operator, first_tokens, outputs, **attributes), first_tokens)
        np.testing.assert_allclose(states[slot], state, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(output.take(range(count), axis), part, rtol=1e-5, atol=1e-5)


def test_a_weight_may_project_the_gate_of_a_sum() -> None:
    x, y, gate, weight = floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 5), floats(5, 1)
    (actual,) = run(one_node("GatedAdd", [x, y, gate, weight]), [x, y, gate, weight])
    np.testing.assert_allclose(actual, x + y / (1 + np.exp(-gate @ weight)), rtol=1e-5, atol=1e-6)


def changed(case: Any, place: int | None = None, value: Any = None, **attributes: Any) -> Any:
    operator, inputs, outputs, given = case
    return operator, [value if i == place else x for i, x in enumerate(inputs)], outputs, {**given, **attributes}


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        (changed(CASES["delta"], 5), InvalidDesc, "beta must be given for update_rule delta; got none"),
        (changed(CASES["delta"], update_rule="sum"), InvalidDesc, "update_rule must be one of .*; got 'sum'"),
        (changed(CASES["delta"], state_window=9), InvalidDesc, "state_window must be from 0 to 8; got 9"),
        (changed(CASES["delta"], q_num_heads=3), InvalidDesc, "q_num_heads"),
        (linear(2, "linear", (3, 2, 2)), InvalidDesc, "query must have a number of heads that divides 2 or is a mult"),
        (changed(CASES["convolution"], dilation=0), InvalidDesc, "dilation must be at least 1; got 0"),
        (changed(CASES["convolution"], ndim=2), Unsupported, "ndim must be 1; got 2"),
        (changed(CASES["packed convolution"], state_update_capacity=2), InvalidDesc, "exactly with capture_count"),
        (changed(CASES["packed network"], 6), InvalidDesc, "initial_state must be given with packed queries"),
        (changed(CASES["network"], 7), InvalidDesc, "gate_activation: needs a_log and dt_bias; got softplus"),
        (changed(CASES["network"], state_update_capacity=1), Unsupported, "state_update_capacity must be 0"),
        (changed(CASES["norm"], 1, floats(3)), InvalidDesc, "X must have a last dimension that 3 divides"),
    ],
)
def test_wrong_nodes_of_linear_attention_are_refused(case: Any, error: Any, message: str) -> None:
    operator, inputs, outputs, attributes = case
    with pytest.raises(error, match=message):
        run(one_node(operator, inputs, outputs, **attributes), inputs)
