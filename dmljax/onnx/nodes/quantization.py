"""Quantization and its inverse."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import dmljax as dml
from dmljax.onnx.file import dtype_of
from dmljax.onnx.nodes.shapes import normal
from dmljax.onnx.registry import handles


def _spread(parameter: Any, x: Any, axis: int, block_size: int) -> Any:
    # ONNX has a scale and a zero point for the tensor, for each index of an axis, or for each block of one.
    if parameter is None or parameter.ndim == 0 or (parameter.size == 1 and parameter.ndim == 1):
        return parameter if parameter is None else parameter.reshape(())
    if block_size:
        return parameter
    axis = normal(axis, x.ndim)
    return jnp.expand_dims(parameter, [other for other in range(x.ndim) if other != axis])


@handles("QuantizeLinear")
def quantize_linear(
    x: Any,
    scale: Any,
    zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Any:
    """Divides by a scale, rounds halves to even, and saturates."""
    parameters = [_spread(one, x, axis, block_size) for one in (scale, zero_point)]
    dtype = jnp.uint8 if zero_point is None else zero_point.dtype
    dtype = dtype_of(output_dtype) if output_dtype else dtype
    if x.dtype == jnp.int32:
        x = x.astype(scale.dtype)
    if parameters[0].dtype != x.dtype:
        parameters[0] = parameters[0].astype(x.dtype)
    return dml.quantize(x, *parameters, dtype=dtype)


@handles("DequantizeLinear")
def dequantize_linear(
    x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    """Subtracts a zero point and multiplies by a scale."""
    parameters = [_spread(one, x, axis, block_size) for one in (scale, zero_point)]
    result = dml.dequantize(x, *parameters)
    return result.astype(dtype_of(output_dtype)) if output_dtype else result


@handles("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Any) -> Any:
    """Eight bits for the range of the input, with the scale and the zero point of that range."""
    return tuple(dml.dynamic_quantize_linear(x, dtype=np.uint8))
