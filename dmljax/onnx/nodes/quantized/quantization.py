"""Quantization and its inverse."""

import jax
import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.dimensions import is_symbolic
from dmljax.onnx.graph.reader import dtype_of
from dmljax.onnx.handlers.registry import handles
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.nodes.numbers.elementwise import convert
from dmljax.onnx.values.types import Array, DType, Results
from dmljax.types import INTEGERS, INTEGERS_4


def _spread(parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    # ONNX has a scale and a zero point per tensor, per index of an axis, or per block of an axis.
    if parameter.ndim == 0 or (parameter.size == 1 and parameter.ndim == 1):
        return parameter.reshape(())
    axis = normalize_axis(axis, x.ndim)
    if block_size:
        return _spread_blocks(parameter, x, axis, block_size)
    return jnp.expand_dims(parameter, [other for other in range(x.ndim) if other != axis])


def _spread_blocks(parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    """Repeats parameters of blocks if the last block is shorter, which DirectML does not have."""
    size = x.shape[axis]
    if parameter.ndim != x.ndim or is_symbolic(size) or parameter.shape[axis] * block_size == size:
        return parameter
    count = -(-size // block_size)
    if parameter.shape[axis] != count:
        rule = f"must have {count} blocks of {block_size} along axis {axis} of an input of shape {x.shape}"
        raise InvalidDesc(Problem("scale and zero point", rule, f"shape {parameter.shape}"))
    return jax.lax.slice_in_dim(jnp.repeat(parameter, block_size, axis=axis), 0, size, axis=axis)


@handles("QuantizeLinear")
def quantize_linear(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Array:
    """Divides by a scale, rounds halves to even, and saturates."""
    dtype = np.dtype(np.uint8) if zero_point is None else zero_point.dtype
    dtype = dtype_of(output_dtype) if output_dtype else dtype
    if x.dtype == jnp.int32:
        x = x.astype(scale.dtype)
    scale = _spread(scale, x, axis, block_size).astype(x.dtype)
    zero_point = None if zero_point is None else _spread(zero_point, x, axis, block_size)
    if dtype not in _QUANTIZED:
        return _quantize_to_small_type(x, scale, zero_point, dtype, saturate)
    return dmljax.quantize(x, scale, zero_point, dtype=dtype)


_QUANTIZED = INTEGERS | INTEGERS_4  # by DirectML's operators


def _quantize_to_small_type(x: Array, scale: Array, zero_point: Array | None, dtype: DType, saturate: int) -> Array:
    """Quantizes to a type that DirectML does not have: 2-bit integers, and floats of 4 and 8 bits."""
    wide = x.astype(jnp.float32) / _repeat_blocks(scale, x.shape)
    more = _repeat_blocks(zero_point, x.shape)
    if not dtype.name.startswith("float"):
        limits = jnp.iinfo(dtype)
        return jnp.clip(jnp.round(wide) + more, int(limits.min), int(limits.max)).astype(jnp.int32).astype(dtype)
    if dtype.name == "float4_e2m1fn":
        wide = jnp.clip(wide, -6, 6)
    return convert(wide + more, dtype, saturate)


def _repeat_blocks(parameter: Array | None, shape: tuple[int, ...]) -> Array:
    """Repeats a blockwise parameter for each element, in float32."""
    parameter = jnp.zeros((), jnp.float32) if parameter is None else parameter.astype(jnp.float32)
    if parameter.ndim == 0:
        return parameter
    if parameter.ndim != len(shape):
        raise InvalidDesc(Problem("scale", f"must have {len(shape)} dimensions, like the input", parameter.shape))
    for axis, (size, count) in enumerate(zip(shape, parameter.shape, strict=True)):
        if count not in (1, size):
            parameter = jnp.repeat(parameter, -(-size // count), axis=axis)
            parameter = jax.lax.slice_in_dim(parameter, 0, size, axis=axis)
    return jnp.broadcast_to(parameter, shape)


@handles("DequantizeLinear")
def dequantize_linear(
    x: Array,
    scale: Array,
    zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """Subtracts a zero point and multiplies by a scale."""
    dtype, scale = scale.dtype, _spread(scale, x, axis, block_size)
    zero_point = None if zero_point is None else _spread(zero_point, x, axis, block_size)
    if x.dtype in _QUANTIZED:
        result = dmljax.dequantize(x, scale, zero_point)
    else:
        number = x.astype(jnp.float32) - _repeat_blocks(zero_point, x.shape)
        result = (number * _repeat_blocks(scale, x.shape)).astype(dtype)
    return result.astype(dtype_of(output_dtype)) if output_dtype else result


@handles("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Array) -> Results:
    """Quantizes the input to 8 bits over its own range; also returns the scale and the zero point."""
    return tuple(dmljax.dynamic_quantize_linear(x, dtype=np.uint8))
