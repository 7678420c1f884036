"""Attention of packed sequences beside that of padded ones, because ONNX Runtime packs only on GPUs."""

from typing import Any

import jax
import numpy as np
import pytest
from helpers import GATE
from onnx_models import by_onnxruntime, one_node

import dmljax.onnx

RNG = np.random.default_rng(4)
LENGTHS = np.array([1, 2, 4], np.int32)
IS_TOKEN = np.arange(4)[None] < LENGTHS[:, None]
PLACES = np.argsort(~IS_TOKEN.ravel(), kind="stable").reshape(3, 4).astype(np.int32)
ENDS = np.array([0, 1, 3, 7], np.int32)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def run(operator: str, arrays: list[Any], outputs: int = 1, **attributes: Any) -> Any:
    proto = one_node(operator, arrays, outputs, **attributes)
    return dmljax.onnx.load(proto)(*(array for array in arrays if array is not None))


@GATE
def test_padding_is_removed_and_restored() -> None:
    x = floats(3, 4, 5)
    tokens, places, ends, longest = run("RemovePadding", [x, LENGTHS], 4)
    np.testing.assert_array_equal(tokens, x[IS_TOKEN])
    np.testing.assert_array_equal(places, PLACES)
    np.testing.assert_array_equal(ends, ENDS)
    np.testing.assert_array_equal(longest, [4])
    restored = run("RestorePadding", [np.asarray(tokens), PLACES])
    np.testing.assert_array_equal(restored, np.where(IS_TOKEN[..., None], x, 0))
    bounded = dmljax.onnx.load(one_node("RemovePadding", [x, LENGTHS], 4), maximum_sizes={"y0": 9})
    tokens, *_ = jax.jit(bounded)(x, LENGTHS)
    np.testing.assert_array_equal(tokens, np.concatenate([x[IS_TOKEN], np.zeros((2, 5), np.float32)]))


@pytest.mark.parametrize("is_together", [False, True])
@pytest.mark.gate(but=1)
def test_packed_sequences_attend_as_padded_ones(is_together: bool) -> None:
    padded, bias = [floats(3, 4, 8) for _ in range(3)], floats(24)
    mask = IS_TOKEN.astype(np.int32)
    inputs = [*padded, bias, mask]
    (expected,) = by_onnxruntime(one_node("MultiHeadAttention", inputs, num_heads=2), inputs)
    query, key, value = (x[IS_TOKEN] for x in padded)
    if is_together:
        parts = [np.stack([x.reshape(-1, 2, 4) for x in (query, key, value)], 2), None, None]
    else:
        parts = [query, key, value]
    result = run("PackedMultiHeadAttention", [*parts, bias, PLACES, ENDS], num_heads=2)
    np.testing.assert_allclose(result, expected[IS_TOKEN], rtol=1e-5, atol=1e-5)


@GATE
def test_packed_sequences_are_projected_before_they_attend() -> None:
    x, weight, bias = floats(3, 4, 6), floats(6, 24), floats(24)
    inputs = [x, weight, bias, IS_TOKEN.astype(np.int32)]
    (expected,) = by_onnxruntime(one_node("Attention", inputs, num_heads=2), inputs)
    result = run("PackedAttention", [x[IS_TOKEN], weight, bias, PLACES, ENDS], num_heads=2)
    np.testing.assert_allclose(result, expected[IS_TOKEN], rtol=1e-5, atol=1e-5)
