"""ONNX Runtime's matrix products with blockwise-scaled weights in floats of 4 or 8 bits."""

import jax.numpy as jnp
import numpy as np
from jax import lax

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.lowerings.numbers.few_bits import unpack
from dmljax.onnx.handlers.registry import handles_contrib
from dmljax.onnx.handlers.signatures import Matrices, Matrix, Number, Vector
from dmljax.onnx.nodes.quantized.few_bits import NO_ZEROS, dequantize_blocks
from dmljax.onnx.values.types import Array

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def _scale_blocks(numbers: Array, scales: Array, block: int) -> Array:
    """Rows of numbers, in float32, times the scales that blocks share."""
    count = numbers.shape[1]
    if block < 1 or scales.shape != (numbers.shape[0], -(-count // block)):
        rule = f"must have a scale for each block of {block} along the {count} columns of the weight"
        raise InvalidDesc(Problem("block_size", rule, scales.shape))
    return dequantize_blocks(numbers.astype(jnp.float32), scales, NO_ZEROS, block, np.dtype(np.float32))


@handles_contrib("MatMulBlockQuantizedFp8Weight")
def _matmul_of_8_bits(
    a: Matrices,
    b: Matrix,
    scales: Matrix,
    a_scale: Number | None = None,
    bias: Vector | None = None,
    *,
    block_size: int = 128,
) -> Array:
    weight = _scale_blocks(b, scales, block_size)
    if a_scale is not None:
        step, largest = a_scale.reshape(()), float(jnp.finfo(b.dtype).max)
        steps = jnp.clip(a.astype(jnp.float32) / step, -largest, largest).astype(b.dtype)
        a = (steps.astype(jnp.float32) * step).astype(a.dtype)
    return dmljax.gemm(a, weight.astype(a.dtype), bias, transpose_b=True)


@handles_contrib("MatMulBlockQuantizedFp4Weight")
def _matmul_of_4_bits(
    a: Matrices,
    b: Matrix,
    scales: Matrix,
    scale: Number,
    input_scale: Number | None = None,  # for hardware that rounds the activations, too
    bias: Vector | None = None,
    *,
    block_size: int = 16,
) -> Array:
    numbers = jnp.asarray(_E2M1)[unpack(b, 4).astype(jnp.int32)]
    if scales.dtype == jnp.uint8:
        scales = lax.bitcast_convert_type(scales, jnp.float8_e4m3fn)
    weight = _scale_blocks(numbers, scales, block_size) * scale.reshape(())
    return dmljax.gemm(a, weight.astype(a.dtype), bias, transpose_b=True)
