"""ONNX Runtime's operators of quantized arrays, with a scale and a zero point for each array and for the result."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.registry import MICROSOFT, REGISTRY, handles_contrib, make_handler
from dmljax.onnx.handlers.signatures import (
    ConvolutionAttributes,
    PoolingAttributes,
    Quantized,
    QuantizedImages,
    QuantizedMatrix,
)
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.nodes.images import windows
from dmljax.onnx.nodes.images.channels_last import apply_to_channels_last
from dmljax.onnx.nodes.numbers.elementwise import add_arrays
from dmljax.onnx.nodes.numbers.products import reshape_to_rows, result_factor
from dmljax.onnx.values.types import Array, DType

# ruff: noqa: N803  # attributes are spelled as ONNX Runtime has them


def dequantize(x: Quantized) -> Array:
    """The numbers that a quantized array stands for."""
    return dmljax.element_wise_dequantize_linear(*x)


def _quantize(x: Array, scale: Array, zero_point: Array | None, dtype: DType) -> Array:
    return dmljax.element_wise_quantize_linear(x, scale, zero_point, dtype=dtype)


def _handles_quantized(operator: str) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Registers a function as the handler for a quantized array, dequantizing before and quantizing after it."""

    def register(function: Callable[..., Array]) -> Callable[..., Array]:
        def run(x: Quantized, scale: Array, zero_point: Array | None = None, **attributes: Any) -> Array:
            return _quantize(function(dequantize(x), **attributes), scale, zero_point, x.array.dtype)

        handler = make_handler(function)
        REGISTRY.add(
            MICROSOFT, operator, replace(make_handler(run), attributes=handler.attributes, groups=handler.groups)
        )
        return function

    return register


_handles_quantized("QLinearSigmoid")(lambda x: dmljax.activation_sigmoid(x))


@_handles_quantized("QLinearLeakyRelu")
def _leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    return dmljax.activation_leaky_relu(x, alpha)


@handles_contrib("QLinearSoftmax")
def _quantized_softmax(
    x: Quantized, scale: Array, zero_point: Array | None = None, *, axis: int = -1, opset: int
) -> Array:
    # ONNX Runtime drops what is left of 1 beyond whole steps. Quotients on a GPU are up to 2 ULP off whole numbers.
    enough = jnp.full_like(scale, 1 + 2**-21)
    steps = dmljax.element_wise_floor(dmljax.element_wise_divide(enough, scale))
    result = dmljax.element_wise_multiply(_softmax(dequantize(x), axis, opset), steps)
    return _quantize(result, jnp.ones_like(scale), zero_point, x.array.dtype)


def _softmax(x: Array, axis: int, opset: int) -> Array:
    if opset >= 13:
        return dmljax.activation_softmax1(x, axes=axis)
    rows = x.reshape(*x.shape[: normalize_axis(axis, x.ndim)], -1)
    return dmljax.activation_softmax1(rows, axes=-1).reshape(x.shape)


@_handles_quantized("QLinearReduceMean")
def _mean(x: Array, *, axes: Sequence[int], keepdims: int) -> Array:
    return jnp.mean(x, axis=tuple(axes), keepdims=bool(keepdims))


@handles_contrib("QLinearAdd")
def _quantized_sum(a: Quantized, b: Quantized, scale: Array, zero_point: Array | None = None) -> Array:
    return dmljax.element_wise_quantized_linear_add(*a, *b, scale, zero_point)


@handles_contrib("QLinearMul")
def _quantized_product(a: Quantized, b: Quantized, scale: Array, zero_point: Array | None = None) -> Array:
    steps = dmljax.element_wise_divide(dmljax.element_wise_multiply(dequantize(a), dequantize(b)), scale)
    if zero_point is not None:  # ONNX Runtime adds it before rounding
        steps = dmljax.element_wise_add(steps, zero_point.astype(steps.dtype))
    return _quantize(steps, jnp.ones((), steps.dtype), None, a.array.dtype)


@handles_contrib("QLinearConcat")
def _quantized_concatenation(scale: Array, zero_point: Array, *inputs: Array, axis: int) -> Array:
    if len(inputs) % 3:
        raise InvalidDesc(Problem("inputs", "must come in threes: array, scale, zero point", len(inputs)))
    parts = [dequantize(Quantized(*inputs[i : i + 3])) for i in range(0, len(inputs), 3)]
    return _quantize(dmljax.join(parts, axis=axis), scale, zero_point, zero_point.dtype)


@handles_contrib("QLinearWhere")
def _quantized_choice(condition: Array, x: Quantized, y: Quantized, scale: Array, zero_point: Array) -> Array:
    choice = dmljax.element_wise_if(condition, dequantize(x), dequantize(y))
    return _quantize(choice, scale, zero_point, x.array.dtype)


@handles_contrib("QGemm")
def _quantized_gemm(
    a: QuantizedMatrix,
    b: QuantizedMatrix,
    c: Array | None = None,
    scale: Array | None = None,
    zero_point: Array | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    left, right = a.array.T if transA else a.array, b.array.T if transB else b.array
    total = add_arrays(dmljax.matrix_multiply_integer(left, right, reshape_to_rows(a.zero_point), b.zero_point), c)
    unit = jnp.ones((), a.scale.dtype)
    factor = result_factor(a.scale * alpha, b.scale, unit if scale is None else scale)
    result = dmljax.element_wise_multiply(total.astype(factor.dtype), factor)
    return result if scale is None else _quantize(result, unit, zero_point, a.array.dtype)


@handles_contrib("QLinearAveragePool")
def _quantized_average_pool(
    x: QuantizedImages,
    scale: Array,
    zero_point: Array | None = None,
    *,
    window: PoolingAttributes,
    channels_last: int = 0,
    count_include_pad: int = 0,
) -> Array:
    def average(image: Array, **members: Any) -> Array:
        return dmljax.quantized_linear_average_pooling(*x._replace(array=image), scale, zero_point, **members)

    nothing = 0 if x.zero_point is None else x.zero_point.reshape(())
    averages = functools.partial(
        windows.average_pool, window=window, count_include_pad=count_include_pad, average=average, padding_value=nothing
    )
    return apply_to_channels_last(averages, x.array, channels_last)


@handles_contrib("QLinearGlobalAveragePool")
def _quantized_global_average_pool(
    x: QuantizedImages, scale: Array, zero_point: Array, *, channels_last: int = 0
) -> Array:
    def average(image: Array) -> Array:
        quantized = x._replace(array=image)
        return dmljax.quantized_linear_average_pooling(*quantized, scale, zero_point, window_sizes=image.shape[2:])

    return apply_to_channels_last(average, x.array, channels_last)


@handles_contrib("QLinearConv")
def _quantized_convolution(
    x: QuantizedImages,
    filter: QuantizedImages,
    scale: Array,
    zero_point: Array,
    bias: Array | None = None,
    *,
    window: ConvolutionAttributes,
    channels_last: int = 0,
) -> Array:
    def convolution(image: Array) -> Array:
        quantized = x._replace(array=image)
        return windows.quantized_convolution(quantized, filter, scale, zero_point, bias, window=window)

    return apply_to_channels_last(convolution, x.array, channels_last)
