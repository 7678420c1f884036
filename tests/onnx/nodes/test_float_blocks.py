"""Products with weights in floats of 4 or 8 bits, beside NumPy: ONNX Runtime has no kernel for its CPU."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx_models import one_node

import dmljax.onnx
from dmljax.directml import InvalidDesc

RNG = np.random.default_rng(9)
FP8 = ml_dtypes.float8_e4m3fn
FP4 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float16)


def run(operator: str, inputs: list[Any], **attributes: Any) -> Any:
    function = dmljax.onnx.load(one_node(operator, inputs, **attributes))
    return np.asarray(function(*(x for x in inputs if x is not None)))


@pytest.mark.parametrize("has_scale", [False, True])
def test_weights_of_8_bits_have_a_scale_per_block(has_scale: bool) -> None:
    a, b, bias = floats(2, 3, 40), floats(6, 40).astype(FP8), floats(6)
    scales = RNG.uniform(0.5, 1, (6, 3)).astype(np.float32)
    step = np.array(0.01, np.float32)  # too small for the largest activations, which saturate
    actual = run("MatMulBlockQuantizedFp8Weight", [a, b, scales, step if has_scale else None, bias], block_size=16)
    assert actual.dtype == np.float16
    if has_scale:
        a = np.clip(a / step, -448, 448).astype(FP8).astype(np.float32) * step
    weight = b.astype(np.float64) * np.repeat(scales, 16, 1)[:, :40]
    np.testing.assert_allclose(actual, a.astype(np.float64) @ weight.T + bias, rtol=5e-3, atol=5e-3)


def test_weights_of_4_bits_have_a_scale_per_block_and_one_of_all() -> None:
    a, b, bias = floats(3, 40), RNG.integers(0, 256, (6, 20), np.uint8), floats(6)
    scales, scale = RNG.uniform(0.5, 1, (6, 3)).astype(FP8), np.array([0.25], np.float32)
    actual = run("MatMulBlockQuantizedFp4Weight", [a, b, scales.view(np.uint8), scale, None, bias])
    table = np.array([*FP4, *(-x for x in FP4)])
    weight = table[np.stack([b & 15, b >> 4], -1).reshape(6, 40)] * np.repeat(scales.astype(float), 16, 1)[:, :40]
    np.testing.assert_allclose(actual, a.astype(np.float64) @ weight.T * 0.25 + bias, rtol=5e-3, atol=1e-2)


def test_scales_that_do_not_fit_the_blocks_are_refused() -> None:
    inputs = [floats(3, 40), floats(6, 40).astype(FP8), np.ones((6, 2), np.float32)]
    with pytest.raises(InvalidDesc, match=r"block_size must have a scale for each block of 16 along the 40 columns"):
        run("MatMulBlockQuantizedFp8Weight", inputs, block_size=16)
