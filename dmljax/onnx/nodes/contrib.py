"""ONNX Runtime's own operators, but for its attentions: the domains com.microsoft and com.microsoft.dml.

Most of them are what its optimizations make of several operators of ONNX. Its definitions decide the results, where
its DirectML provider computes something else.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import dmljax as dml
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.interpreter import as_sizes, promoted
from dmljax.onnx.nodes import (
    elementwise as elementwise,
    indexing as indexing,
    normalization as normalization,
    quantization as quantization,
    shapes,
    windows,
)
from dmljax.onnx.nodes.products import of_rows
from dmljax.onnx.nodes.recurrence import lstm
from dmljax.onnx.parameters import Images, Matrix, Rows, Vector, Vectors
from dmljax.onnx.registry import REGISTRY, Call, Handler, handles, one_of
from dmljax.types import widened

# ruff: noqa: N803  # attributes are spelled as ONNX Runtime has them

MICROSOFT = "com.microsoft"
DIRECTML = "com.microsoft.dml"
contributed = functools.partial(handles, domain=MICROSOFT)

# Operators that mean what those of ONNX of the same name mean in their newest version.
for _operator in ("DequantizeLinear", "GatherND", "Gelu", "Pad", "QuantizeLinear", "Range", "Trilu"):
    if ("", _operator) in REGISTRY.handlers:
        REGISTRY.add(MICROSOFT, _operator, replace(REGISTRY.handlers["", _operator][0], since=1))


def _is_of_one_array(handler: Handler) -> bool:
    return handler.required == 1 and not handler.required_attributes and not handler.takes_call


def activated(x: Any, name: str | None, **numbers: float | None) -> Any:
    """The activation of ONNX's main domain that has this name, with those of the numbers that are attributes of it."""
    if not name:
        return x
    known = {
        operator: entries
        for (domain, operator), entries in REGISTRY.handlers.items()
        if domain == "" and _is_of_one_array(entries[0])
    }
    given = {key: value for key, value in numbers.items() if value is not None}
    entries = one_of("activation", name, known)
    fitting = [one for one in entries if given.keys() <= one.attributes.keys()]
    handler = fitting[0] if fitting else entries[0]
    return handler.function(x, **{key: value for key, value in given.items() if key in handler.attributes})


_PARAMETERS = {"Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",)}


def _activated_by_list(x: Any, name: str | None, parameters: Sequence[float]) -> Any:
    names = _PARAMETERS.get(name or "", ("alpha", "beta", "gamma"))
    return activated(x, name, **dict(zip(names, parameters, strict=False)))


def with_attributes_of(base: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a handler that passes `*inputs` and `**attributes` on to another one have the parameters of that, too."""

    def sign(function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function).parameters.values()
        others = inspect.signature(base).parameters.values()
        due = {one.name: one.annotation for one in others}
        named = {
            one.name: one.replace(annotation=due[one.name]) if one.annotation is Any and one.name in due else one
            for one in own
            if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        }
        inputs = [one for one in named.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        if any(one.kind is one.VAR_POSITIONAL for one in own):
            inputs += [one for one in others if one.kind not in (one.KEYWORD_ONLY, one.VAR_KEYWORD)][len(inputs) :]
        taken = {one.name for one in inputs}
        keywords = {
            one.name: one
            for one in (*others, *named.values())
            if one.kind is one.KEYWORD_ONLY and one.name not in taken
        }
        function.__signature__ = inspect.Signature([*inputs, *keywords.values()])  # type: ignore[attr-defined]
        return function

    return sign


# Activations


@contributed("BiasGelu")
def _gelu_of_sum(x: Any, bias: Any) -> Any:
    return dml.element_wise_add1(x, bias, fused_activation=directml.ActivationGeluDesc())


@contributed("FastGelu")
def _fast_gelu(x: Any, bias: Any = None) -> Any:
    # The DirectML provider computes the exact one; the definition is this approximation.
    return jax.nn.gelu(x if bias is None else dml.element_wise_add(x, bias), approximate=True)


@contributed("QuickGelu")
def _quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    return dml.activation_swish(x, alpha)


@contributed("BiasAdd")
def _sum_with_skip(x: Any, bias: Any, skip: Any) -> Any:
    return dml.element_wise_add(dml.element_wise_add(x, bias), skip)


@contributed("BiasSplitGelu")
def _gated_gelu(x: Vectors, bias: Any) -> Any:
    total = dml.element_wise_add(x, bias)
    left, right = dml.split(total, sizes=[total.shape[-1] // 2] * 2, axis=-1)
    return dml.element_wise_multiply(left, dml.activation_gelu(right))


@contributed("BiasSoftmax")
def _softmax_of_sum(x: Any, bias: Any, *, axis: int = 1, is_inner_broadcast: int) -> Any:
    axis = shapes.normal(axis, x.ndim)
    if is_inner_broadcast:  # the bias has the outer dimensions but for a batch that repeats in the innermost of them
        repeated = x.ndim - bias.ndim
        bias = bias if repeated <= 0 else bias.reshape((1,) * repeated + bias.shape)
    total = dml.element_wise_add(x, bias)
    rows = total.reshape(*total.shape[:axis], -1)
    return dml.activation_softmax1(rows, axes=-1).reshape(x.shape)


# Normalizations


def _normalized_from(
    x: Any, scale: Any, bias: Any, epsilon: float, axes: Sequence[int], call: Call, first: int, *, is_simple: bool
) -> tuple[Any, Any, Any]:
    """A layer's normalization, with the mean and the inverse of its deviation, if outputs from `first` on want them."""
    dtype = scale.dtype
    wide = promoted(x.dtype, dtype)
    bias = None if bias is None else bias.astype(wide)
    output = dml.mean_variance_normalization2(
        x.astype(wide), scale.astype(wide), bias, epsilon, axes=tuple(axes), use_mean=not is_simple
    ).astype(dtype)
    if not (call.wants(first) or call.wants(first + 1)):
        return output, None, None
    values = x.astype(widened(x.dtype))
    mean = jnp.mean(values, axis=tuple(axes), keepdims=True)
    squares = values if is_simple else values - mean
    variance = jnp.mean(jnp.square(squares), axis=tuple(axes), keepdims=True)
    return output, mean, 1 / jnp.sqrt(variance + epsilon)


@handles("SimplifiedLayerNormalization")  # ONNX Runtime has it in ONNX's domain
def _simplified_normalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, call: Call
) -> Any:
    axes = range(shapes.normal(axis, x.ndim), x.ndim)
    output, _, inverse = _normalized_from(x, scale, None, epsilon, axes, call, 1, is_simple=True)
    return output, inverse


def _skip_normalized(x: Any, skip: Any, bias: Any, *more: Any, call: Call, is_simple: bool) -> Any:
    total = dml.element_wise_add(x, skip)
    total = total if bias is None else dml.element_wise_add(total, bias)
    scale, shift, epsilon = more
    axes = [total.ndim - 1]
    return *_normalized_from(total, scale, shift, epsilon, axes, call, 1, is_simple=is_simple), total


@contributed("SkipLayerNormalization")
def _skip_layer_normalization(
    x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12, call: Call
) -> Any:
    return _skip_normalized(x, skip, bias, gamma, beta, epsilon, call=call, is_simple=False)


@contributed("SkipSimplifiedLayerNormalization")
def _skip_simplified_normalization(
    x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12, call: Call
) -> Any:
    return _skip_normalized(x, skip, bias, gamma, None, epsilon, call=call, is_simple=True)


@contributed("GroupNorm")
def _group_norm(
    x: Images,
    gamma: Vector,
    beta: Vector,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Any:
    image = x if channels_last else jnp.moveaxis(x, 1, -1)
    channels = image.shape[-1]
    if groups < 1 or channels % groups:
        raise InvalidDesc(Problem("groups", f"must divide {channels} channels", groups))
    wide = image.astype(promoted(x.dtype, gamma.dtype))
    parts = wide.reshape(image.shape[0], -1, groups, channels // groups)
    parts = dml.mean_variance_normalization1(parts, axes=(1, 3), epsilon=epsilon)
    gamma, beta = gamma.astype(wide.dtype), beta.astype(wide.dtype)
    result = dml.element_wise_add(dml.element_wise_multiply(parts.reshape(image.shape), gamma), beta)
    result = (dml.activation_swish(result) if activation else result).astype(x.dtype)
    return result if channels_last else jnp.moveaxis(result, -1, 1)


@contributed("SkipGroupNorm")
def _skip_group_norm(
    x: Images,
    gamma: Vector,
    beta: Vector,
    skip: Any,
    bias: Vector = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Any:
    place = -1 if channels_last else 1

    def of_channels(one: Any) -> Any:
        return jnp.expand_dims(one, [axis for axis in range(1, x.ndim) if axis != place % x.ndim])

    total = dml.element_wise_add(x, of_channels(skip) if skip.ndim == 2 else skip)
    if bias is not None:
        total = dml.element_wise_add(total, of_channels(bias[None]))
    numbers = {"activation": activation, "channels_last": channels_last, "epsilon": epsilon, "groups": groups}
    return _group_norm(total, gamma, beta, **numbers), total


@contributed("EmbedLayerNormalization")
def _embedded(
    ids: Matrix,
    segments: Matrix | None,
    words: Matrix,
    positions: Matrix,
    of_segments: Any | None,
    gamma: Vector,
    beta: Vector,
    mask: Matrix = None,
    position_ids: Any = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
    call: Call,
) -> Any:
    batch, length = ids.shape
    total = dml.gather(words, ids, axis=0)
    places = positions[None, :length] if position_ids is None else dml.gather(positions, position_ids, axis=0)
    total = dml.element_wise_add(total, places)
    if segments is not None and of_segments is not None:
        total = dml.element_wise_add(total, dml.gather(of_segments, segments, axis=0))
    output = dml.mean_variance_normalization1(total, gamma, beta, epsilon, axes=-1)
    seen = jnp.zeros((batch,), ids.dtype) if mask is None else jnp.sum(mask == 1, axis=1, dtype=ids.dtype)
    return output, seen, total


# Products


def _matrices(x: Any, *, is_transposed: int, is_batch_last: int) -> Any:
    if is_batch_last:
        x = jnp.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if is_transposed and x.ndim > 1 else x


def _fused_product(
    a: Any, b: Any, *, alpha: float, transA: int, transB: int, transBatchA: int = 0, transBatchB: int = 0
) -> Any:
    a = _matrices(a, is_transposed=transA, is_batch_last=transBatchA)
    b = _matrices(b, is_transposed=transB, is_batch_last=transBatchB)
    product = dml.gemm(a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b, None, alpha)
    product = product[..., 0] if b.ndim == 1 else product
    if a.ndim > 1:
        return product
    return product[..., 0] if b.ndim == 1 else product[..., 0, :]


@contributed("FusedMatMul", "TransposeMatMul")
def _fused_matmul(
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Any:
    transposes = {"transA": transA, "transB": transB, "transBatchA": transBatchA, "transBatchB": transBatchB}
    return _fused_product(a, b, alpha=alpha, **transposes)


@contributed("FusedMatMulActivation")
def _fused_matmul_activation(
    a: Any,
    b: Any,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Any:
    transposes = {"transA": transA, "transB": transB, "transBatchA": transBatchA, "transBatchB": transBatchB}
    product = _fused_product(a, b, alpha=alpha, **transposes)
    numbers = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma, "axis": activation_axis}
    return activated(product, activation, **numbers)


@contributed("FusedGemm")
def _fused_gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    product = dml.gemm(a, b, c, alpha, beta, transpose_a=bool(transA), transpose_b=bool(transB))
    return activated(product, activation, alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)


@contributed("MatMulIntegerToFloat")
def _scaled_integer_matmul(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero_point: Any = None,
    b_zero_point: Any = None,
    bias: Any = None,
) -> Any:
    rows = (of_rows(a_scale), b_scale, of_rows(a_zero_point), b_zero_point)
    return dml.matrix_multiply_integer_to_float(a, b, *rows, bias)


@contributed("DynamicQuantizeMatMul")
def _dynamically_quantized_matmul(a: Any, b: Any, b_scale: Any, b_zero_point: Any = None, bias: Any = None) -> Any:
    quantized, scale, zero_point = dml.dynamic_quantize_linear(a)
    return dml.matrix_multiply_integer_to_float(quantized, b, scale, b_scale, zero_point, b_zero_point, bias)


def _unpacked(packed: Any, bits: int) -> Any:
    """Numbers of few bits, which lie in bytes one after the other, the lowest bits first."""
    if bits == 8:
        return packed
    shifts = jnp.arange(0, 8, bits, dtype=jnp.uint8)
    shifts = shifts.reshape((1,) * packed.ndim + shifts.shape)
    parts = (packed[..., None] >> shifts) & jnp.uint8(2**bits - 1)
    return parts.reshape(*packed.shape[:-1], -1)


@contributed("MatMulNBits")
def _matmul_of_few_bits(
    a: Any,
    b: Any,
    scales: Any,
    zero_points: Any = None,
    groups: Vector = None,
    bias: Any = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Any:
    if bits not in (2, 4, 8) or weight_prepacked:
        given = f"{bits} bits" if not weight_prepacked else "weight_prepacked"
        raise Unsupported(Problem((), "must have 2, 4 or 8 bits, as they are", given))
    if min(K, N, block_size) < 1:
        raise InvalidDesc(Problem((), "must have K, N and block_size of at least 1", f"{K}, {N} and {block_size}"))
    blocks = -(-K // block_size)
    quantized = _unpacked(b.reshape(N, blocks, -1), bits)
    scales = scales.reshape(N, blocks)
    if zero_points is None:
        zeros = jnp.full((N, blocks), 2 ** (bits - 1), jnp.uint8)
    elif zero_points.dtype == jnp.uint8:
        zeros = _unpacked(zero_points.reshape(N, -1), bits)[:, :blocks]
    else:
        zeros = zero_points.reshape(N, blocks)
    if groups is not None:  # the block of each row, whatever place it has
        places = groups.astype(jnp.int32)
        factor, zero = scales[:, places], zeros[:, places].astype(scales.dtype)
        weight = (quantized.reshape(N, -1)[:, :K].astype(scales.dtype) - zero) * factor
    elif zeros.dtype == jnp.uint8:
        weight = dml.dequantize(quantized.reshape(N, -1), scales, zeros)[:, :K]
    else:
        weight = (quantized.astype(scales.dtype) - zeros[..., None]) * scales[..., None]
        weight = weight.reshape(N, -1)[:, :K]
    return dml.gemm(a, weight.astype(a.dtype), bias, transpose_b=True)


# Arithmetic of quantized arrays


@contributed("QLinearAdd")
def _quantized_sum(
    a: Any,
    a_scale: Any,
    a_zero_point: Any | None,
    b: Any,
    b_scale: Any,
    b_zero_point: Any | None,
    scale: Any,
    zero_point: Any = None,
) -> Any:
    of_both = (a, a_scale, a_zero_point, b, b_scale, b_zero_point)
    return dml.element_wise_quantized_linear_add(*of_both, scale, zero_point)


@contributed("QLinearMul")
def _quantized_product(
    a: Any,
    a_scale: Any,
    a_zero_point: Any | None,
    b: Any,
    b_scale: Any,
    b_zero_point: Any | None,
    scale: Any,
    zero_point: Any = None,
) -> Any:
    factors = (_dequantized(a, a_scale, a_zero_point), _dequantized(b, b_scale, b_zero_point))
    return _quantized(dml.element_wise_multiply(*factors), scale, zero_point, a.dtype)


def _dequantized(x: Any, scale: Any, zero_point: Any) -> Any:
    return dml.element_wise_dequantize_linear(x, scale, zero_point)


def _quantized(x: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    return dml.element_wise_quantize_linear(x, scale, zero_point, dtype=dtype)


def _of_dequantized(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a quantized array that is dequantized before it, and quantized after it."""

    def run(
        x: Any, x_scale: Any, x_zero_point: Any | None, scale: Any, zero_point: Any = None, **attributes: Any
    ) -> Any:
        result = function(_dequantized(x, x_scale, x_zero_point), **attributes)
        return _quantized(result, scale, zero_point, x.dtype)

    return run


_sigmoid_of = _of_dequantized(dml.activation_sigmoid)
_leaky_relu_of = _of_dequantized(dml.activation_leaky_relu)


@contributed("QLinearSigmoid")
def _quantized_sigmoid(x: Any, x_scale: Any, x_zero_point: Any | None, scale: Any, zero_point: Any = None) -> Any:
    return _sigmoid_of(x, x_scale, x_zero_point, scale, zero_point)


@contributed("QLinearLeakyRelu")
def _quantized_leaky_relu(
    x: Any, x_scale: Any, x_zero_point: Any | None, scale: Any, zero_point: Any = None, *, alpha: float = 0.01
) -> Any:
    return _leaky_relu_of(x, x_scale, x_zero_point, scale, zero_point, alpha=alpha)


@contributed("QLinearSoftmax")
def _quantized_softmax(
    x: Any, x_scale: Any, x_zero_point: Any | None, scale: Any, zero_point: Any = None, *, axis: int = -1, opset: int
) -> Any:
    def softmax(values: Any) -> Any:
        if opset >= 13:
            return dml.activation_softmax1(values, axes=axis)
        rows = values.reshape(*values.shape[: shapes.normal(axis, values.ndim)], -1)
        return dml.activation_softmax1(rows, axes=-1).reshape(values.shape)

    return _of_dequantized(softmax)(x, x_scale, x_zero_point, scale, zero_point)


@contributed("QLinearReduceMean")
def _quantized_mean(
    x: Any,
    x_scale: Any,
    x_zero_point: Any | None,
    scale: Any,
    zero_point: Any = None,
    *,
    axes: Sequence[int],
    keepdims: int,
) -> Any:
    def mean(values: Any) -> Any:
        return jnp.mean(values, axis=tuple(axes), keepdims=bool(keepdims))

    return _of_dequantized(mean)(x, x_scale, x_zero_point, scale, zero_point)


@contributed("QLinearConcat")
def _quantized_concatenation(scale: Any, zero_point: Any, *inputs: Any, axis: int) -> Any:
    if len(inputs) % 3:
        raise InvalidDesc(Problem("inputs", "must be arrays, each with a scale and a zero point", len(inputs)))
    parts = [_dequantized(*inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return _quantized(dml.join(parts, axis=axis), scale, zero_point, zero_point.dtype)


@contributed("QLinearWhere")
def _quantized_choice(
    condition: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any | None,
    y: Any,
    y_scale: Any,
    y_zero_point: Any,
    scale: Any,
    zero_point: Any,
) -> Any:
    values = (_dequantized(x, x_scale, x_zero_point), _dequantized(y, y_scale, y_zero_point))
    return _quantized(dml.element_wise_if(condition, *values), scale, zero_point, x.dtype)


@contributed("QGemm")
def _quantized_gemm(
    a: Matrix,
    a_scale: Any,
    a_zero_point: Any | None,
    b: Matrix,
    b_scale: Any,
    b_zero_point: Any | None,
    c: Any = None,
    scale: Any = None,
    zero_point: Any = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    left, right = a.T if transA else a, b.T if transB else b
    total = dml.matrix_multiply_integer(left, right, of_rows(a_zero_point), b_zero_point)
    total = total if c is None else dml.element_wise_add(total, c)
    factor = dml.element_wise_multiply(a_scale, b_scale) * alpha
    result = dml.element_wise_multiply(total.astype(a_scale.dtype), factor)
    return result if scale is None else _quantized(result, scale, zero_point, a.dtype)


def _channels_first(x: Any) -> Any:
    return jnp.moveaxis(x, -1, 1)


def _channels_last(x: Any) -> Any:
    return jnp.moveaxis(x, 1, -1)


@contributed("QLinearAveragePool")
def _quantized_average_pool(
    x: Images,
    x_scale: Any,
    x_zero_point: Any | None,
    scale: Any,
    zero_point: Any = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    image = _channels_first(x) if channels_last else x
    sliding, beyond = windows.pooled(image, kernel_shape, ceil_mode, auto_pad=auto_pad, pads=pads, strides=strides)
    include = bool(count_include_pad)
    if include and any(beyond):  # what is beyond the padding counts for nothing
        padding = [(0, 0), (0, 0), *zip(sliding.start, sliding.end, strict=True)]
        image = jnp.pad(image, padding, constant_values=0 if x_zero_point is None else x_zero_point.reshape(()))
        include = False
        sliding = sliding._replace(start=(0,) * len(beyond), end=(0,) * len(beyond))
    result = dml.quantized_linear_average_pooling(
        *(image, x_scale, x_zero_point, scale, zero_point),
        include_padding=include,
        **windows.with_ends(sliding, beyond),
    )
    return _channels_last(result) if channels_last else result


@contributed("QLinearGlobalAveragePool")
def _quantized_global_average_pool(
    x: Images, x_scale: Any, x_zero_point: Any | None, scale: Any, zero_point: Any, *, channels_last: int = 0
) -> Any:
    image = _channels_first(x) if channels_last else x
    result = dml.quantized_linear_average_pooling(
        *(image, x_scale, x_zero_point, scale, zero_point), window_sizes=image.shape[2:]
    )
    return _channels_last(result) if channels_last else result


@contributed("QLinearConv")
@with_attributes_of(windows.quantized_convolution)
def _quantized_convolution(x: Any, *parameters: Any, channels_last: int = 0, **attributes: Any) -> Any:
    result = windows.quantized_convolution(_channels_first(x) if channels_last else x, *parameters, **attributes)
    return _channels_last(result) if channels_last else result


# Convolutions


@contributed("FusedConv")
@with_attributes_of(windows.convolution)
def _fused_convolution(
    x: Any,
    filter: Any,
    bias: Any = None,
    summand: Any = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **attributes: Any,
) -> Any:
    result = windows.convolution(x, filter, bias, **attributes)
    result = result if summand is None else dml.element_wise_add(result, summand)
    return _activated_by_list(result, activation, activation_params)


@contributed("NhwcFusedConv")
@with_attributes_of(windows.convolution)
def _fused_convolution_of_last_channels(
    x: Any,
    filter: Any,
    bias: Any = None,
    summand: Any = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **attributes: Any,
) -> Any:
    result = _fused_convolution(
        _channels_first(x),
        filter,
        bias,
        None if summand is None else _channels_first(summand),
        activation=activation,
        activation_params=activation_params,
        **attributes,
    )
    return _channels_last(result)


@contributed("NhwcConv")
@with_attributes_of(windows.convolution)
def _convolution_of_last_channels(x: Any, filter: Any, bias: Any = None, **attributes: Any) -> Any:
    # Here the filter has its channels last, too.
    return _channels_last(windows.convolution(_channels_first(x), _channels_first(filter), bias, **attributes))


@contributed("NhwcMaxPool")
@with_attributes_of(windows.max_pool)
def _max_pool_of_last_channels(x: Any, *, call: Call, **attributes: Any) -> Any:
    return _channels_last(windows.max_pool(_channels_first(x), call=call, **attributes))


@contributed("ConvTransposeWithDynamicPads", known=[2])
@with_attributes_of(windows.transposed_convolution)
def _transposed_convolution_of_input_pads(
    x: Any, filter: Any, pads: Any = None, bias: Any = None, **attributes: Any
) -> Any:
    if pads is not None:
        attributes["pads"] = as_sizes(pads)
    return windows.transposed_convolution(x, filter, bias, **attributes)


# What the DirectML provider fuses with an activation


def _fused_with_activation(base: Callable[..., Any]) -> Callable[..., Any]:
    @with_attributes_of(base)
    def run(
        *inputs: Any,
        fused_activation: str,
        fused_activation_domain: str = "",
        fused_activation_since_version: int = 1,
        fused_alpha: float | None = None,
        fused_beta: float | None = None,
        fused_gamma: float | None = None,
        fused_ratio: float | None = None,
        **attributes: Any,
    ) -> Any:
        numbers = {"alpha": fused_alpha, "beta": fused_beta, "gamma": fused_gamma}
        return activated(base(*inputs, **attributes), fused_activation, **numbers)

    return run


for _operator in (
    *("Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "MatMul"),
    *("MeanVarianceNormalization", "Sum"),
):
    _newest = REGISTRY.handlers["", _operator][0].function
    handles(f"DmlFused{_operator}", domain=DIRECTML)(_fused_with_activation(_newest))


# Recurrent networks


@contributed("DynamicQuantizeLSTM")
@with_attributes_of(lstm)
def _lstm_of_quantized_weights(
    x: Any,
    weight: Rows,
    recurrence: Rows,
    bias: Any | None,
    lengths: Any | None,
    hidden: Any | None,
    cell: Any | None,
    peephole: Any | None,
    weight_scale: Any,
    weight_zero_point: Any,
    recurrence_scale: Any,
    recurrence_zero_point: Any,
    *,
    call: Call,
    **attributes: Any,
) -> Any:
    # ONNX Runtime also rounds the factors of each product to 8 bits, which here stay as they are.
    def of_directions(quantized: Any, scale: Any, zero_point: Any) -> Any:
        # There is a scale for each direction, or for each of its outputs; the weights are transposed.
        spread = [one.reshape(quantized.shape[0], 1, -1) for one in (scale, zero_point)]
        return _dequantized(quantized, *spread).swapaxes(1, 2)

    weights = of_directions(weight, weight_scale, weight_zero_point)
    recurrences = of_directions(recurrence, recurrence_scale, recurrence_zero_point)
    return lstm(x, weights, recurrences, bias, lengths, hidden, cell, peephole, call=call, **attributes)
