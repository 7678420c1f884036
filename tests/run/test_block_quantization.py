"""Weights of few bits are those of ONNX Runtime, to the bit."""

from typing import Any

import numpy as np
import onnxruntime.capi.onnxruntime_pybind11_state as theirs
import pytest

import dmljax.run.onnxruntime.capi.onnxruntime_pybind11_state as ours

RNG = np.random.default_rng()


def weights(rows: int, columns: int, dtype: Any) -> Any:
    """A matrix with a block of zeros, blocks of one sign, and elements at half of a scale."""
    weight = RNG.normal(size=(rows, columns)).astype(dtype)
    weight[:16, 0], weight[:16, 1], weight[16:32, 1] = 0, np.abs(weight[:16, 1]), -np.abs(weight[16:32, 1])
    weight[16:32, 2] = (np.arange(16) - 7.5) / 4
    return weight


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_columns_are_equal(bits: int, is_symmetric: bool, dtype: Any) -> None:
    for rows, columns, block_size in ((64, 5, 16), (96, 7, 32), (256, 3, 128)):
        weight, blocks = weights(rows, columns, dtype), rows // block_size
        results = []
        for module in (ours, theirs):
            packed = np.zeros((columns, blocks, block_size * bits // 8), np.uint8)
            scales = np.zeros((columns, blocks), dtype)
            zeros = np.zeros((columns, -(-blocks * bits // 8)), np.uint8)
            function = getattr(module, f"quantize_matmul_{bits}bits")
            function(packed, weight, scales, zeros, block_size, columns, rows, is_symmetric)
            results.append((packed, scales, zeros))
        for our_array, their_array in zip(*results, strict=True):
            np.testing.assert_array_equal(our_array, their_array)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_weights_of_rows_are_equal(is_symmetric: bool, dtype: Any) -> None:
    for rows, columns, block_size in ((64, 5, 16), (40, 4, 16), (33, 3, 33), (96, 8, 32)):
        weight, blocks = weights(rows, columns, dtype), -(-rows // block_size)
        results = []
        for module in (ours, theirs):
            packed, zeros = (np.zeros(-(-size * columns // 2), np.uint8) for size in (rows, blocks))
            scales = np.zeros((blocks, columns), dtype)
            is_signed = module.quantize_qdq_matmul_4bits(
                packed, weight, scales, zeros, block_size, columns, rows, is_symmetric
            )
            results.append((packed, scales, zeros, is_signed))
        for our_array, their_array in zip(*results, strict=True):
            np.testing.assert_array_equal(our_array, their_array)


def test_wrong_weights_are_refused() -> None:
    packed, scales, zeros = np.zeros((2, 1, 16), np.uint8), np.zeros((2, 1), np.float32), np.zeros((2, 1), np.uint8)
    weight = np.zeros((32, 2), np.float32)
    with pytest.raises(TypeError, match="weight must be an array of float32 or float16; got an array of float64"):
        ours.quantize_matmul_4bits(packed, weight.astype(np.float64), scales, zeros, 32, 2, 32, True)
    with pytest.raises(RuntimeError, match=r"weight must have the shape \(16, 2\); got \(32, 2\)"):
        ours.quantize_matmul_4bits(packed, weight, scales, zeros, 16, 2, 16, True)
    with pytest.raises(RuntimeError, match=r"rows must be a multiple of 24; got 32 \(pad with zeros\)"):
        ours.quantize_matmul_4bits(packed, weight, scales, zeros, 24, 2, 32, True)
    with pytest.raises(RuntimeError, match="packed must be an array of 32 elements; got an array of uint8"):
        ours.quantize_matmul_4bits(packed[:, :, :8], weight, scales, zeros, 32, 2, 32, True)
