"""ONNX's attention: features that DirectML's lacks, and queries that see no key."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GATE, SAMPLED
from onnx import helper
from onnx_models import BOOL, FLOAT, model, value

import dmljax.onnx
from dmljax import DmlError

RNG = np.random.default_rng(9)
QUERY, KEY, VALUE = (RNG.standard_normal((1, 2, 3, 4)).astype(np.float32) for _ in range(3))
SHAPES = [value(name, FLOAT, [None, 2, 3, 4]) for name in "qkv"]


def attention(*outputs: str, mask: Any = None, **attributes: Any) -> Any:
    names = ["q", "k", "v", *(["mask"] if mask is not None else [])]
    node = helper.make_node("Attention", names, list(outputs) or ["y"], **attributes)
    inputs = [*SHAPES, *([mask] if mask is not None else [])]
    return dmljax.onnx.load(model([node], inputs, [tensor for tensor in node.output if tensor], opset=24))


@GATE
def test_a_fully_masked_query_gives_zeros_and_finite_derivatives() -> None:
    attend = attention(mask=value("mask", BOOL, [3, 3]))
    mask = np.array([[True, False, False], [False, False, False], [True, True, True]])
    result = attend(QUERY, KEY, VALUE, mask)
    assert np.all(np.asarray(result)[0, :, 1] == 0)
    np.testing.assert_allclose(result[0, :, 0], VALUE[0, :, 0], rtol=1e-6)
    grads = jax.jit(jax.grad(lambda query: jnp.sum(attend(query, KEY, VALUE, mask))))(QUERY)
    assert np.all(np.isfinite(grads))
    assert np.all(np.asarray(grads)[0, :, 1] == 0)


@GATE
def test_a_large_softcap_changes_nothing() -> None:
    plain = attention(is_causal=1)(QUERY, KEY, VALUE)
    bounded = attention(is_causal=1, softcap=1e4)(QUERY, KEY, VALUE)
    np.testing.assert_allclose(bounded, plain, rtol=1e-4, atol=1e-5)
    near = attention(is_causal=1, softcap=0.1)(QUERY, KEY, VALUE)
    assert np.abs(np.asarray(near) - plain).max() > 1e-2


@SAMPLED
@pytest.mark.parametrize("mode", range(4))
def test_scores_are_returned_from_the_requested_stage(mode: int) -> None:
    attend = attention("y", "", "", "s", is_causal=1, softcap=2.0, qk_matmul_output_mode=mode)
    output, scores = attend(QUERY, KEY, VALUE)
    products = QUERY @ KEY.swapaxes(2, 3) / 2
    bounded = 2 * np.tanh(products / 2)
    masked = np.where(np.tril(np.ones((3, 3), bool)), bounded, -np.inf)
    weights = np.exp(masked) / np.exp(masked).sum(-1, keepdims=True)
    np.testing.assert_allclose(scores, [products, bounded, masked, weights][mode], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(output, weights @ VALUE, rtol=1e-4, atol=1e-5)


def test_attention_is_mapped() -> None:
    attend = attention(is_causal=1)
    several = jax.vmap(attend)(*(jnp.stack([x, -x]) for x in (QUERY, KEY, VALUE)))
    np.testing.assert_allclose(several[1], attend(-QUERY, -KEY, -VALUE), rtol=1e-5, atol=1e-6)


def test_a_number_of_heads_that_does_not_divide_is_refused() -> None:
    node = helper.make_node("Attention", ["q", "q", "q"], ["y"], q_num_heads=3, kv_num_heads=3)
    attend = dmljax.onnx.load(model([node], [value("q", FLOAT, [1, 3, 8])], ["y"], opset=24))
    with pytest.raises(DmlError, match="num_heads must divide the last dimension"):
        attend(np.zeros((1, 3, 8), np.float32))
