"""Quantization and its inverse."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmljax as dml
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.file import dtype_of
from dmljax.onnx.nodes.elementwise import converted
from dmljax.onnx.nodes.shapes import normal
from dmljax.onnx.registry import handles
from dmljax.types import INTEGERS, INTEGERS_4


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
    if dtype not in _QUANTIZED:
        return _in_small_type(x, parameters[0], parameters[1], jnp.dtype(dtype), saturate)
    return dml.quantize(x, *parameters, dtype=dtype)


_QUANTIZED = INTEGERS | INTEGERS_4  # which DirectML has


def _in_small_type(x: Any, scale: Any, zero_point: Any, dtype: Any, saturate: int) -> Any:
    """Numbers in a type that DirectML has not: integers of 2 bits, and floats of 4 and 8 bits."""
    scale, zero_point = (_repeated(one, x.shape) for one in (scale, zero_point))
    wide = x.astype(jnp.float32) / scale.astype(jnp.float32)
    more = jnp.zeros((), jnp.float32) if zero_point is None else zero_point.astype(jnp.float32)
    if not dtype.name.startswith("float"):
        limits = jnp.iinfo(dtype)
        return jnp.clip(jnp.round(wide) + more, int(limits.min), int(limits.max)).astype(jnp.int32).astype(dtype)
    if dtype.name == "float4_e2m1fn":
        wide = jnp.clip(wide, -6, 6)
    return converted(wide + more, dtype, saturate)


def _repeated(parameter: Any, shape: tuple[int, ...]) -> Any:
    """A parameter for each element, of which blocks share one."""
    if parameter is None or parameter.ndim == 0:
        return parameter
    if parameter.ndim != len(shape):
        raise InvalidDesc(Problem("scale", f"must have {len(shape)} dimensions, as the input has", parameter.shape))
    for axis, (size, count) in enumerate(zip(shape, parameter.shape, strict=True)):
        if count not in (1, size):
            parameter = jnp.repeat(parameter, -(-size // count), axis=axis)
            parameter = jax.lax.slice_in_dim(parameter, 0, size, axis=axis)
    return jnp.broadcast_to(parameter, shape)


@handles("DequantizeLinear")
def dequantize_linear(
    x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    """Subtracts a zero point and multiplies by a scale."""
    parameters = [_spread(one, x, axis, block_size) for one in (scale, zero_point)]
    if x.dtype in _QUANTIZED:
        result = dml.dequantize(x, *parameters)
    else:
        wide, zero = (_repeated(one, x.shape) for one in parameters)
        number = x.astype(jnp.float32) - (jnp.zeros((), jnp.float32) if zero is None else zero.astype(jnp.float32))
        result = (number * wide.astype(jnp.float32)).astype(scale.dtype)
    return result.astype(dtype_of(output_dtype)) if output_dtype else result


@handles("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Any) -> Any:
    """Eight bits for the range of the input, with the scale and the zero point of that range."""
    return tuple(dml.dynamic_quantize_linear(x, dtype=np.uint8))
