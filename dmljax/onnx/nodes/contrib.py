"""ONNX Runtime's own operators except attention: the domains com.microsoft and com.microsoft.dml.

Most of them are fusions of several ONNX operators. Where ONNX Runtime's definition and its DirectML provider disagree,
we follow the definition.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import dmljax
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.sharding import reshape
from dmljax.onnx.handlers.registry import (
    MICROSOFT,
    REGISTRY,
    Handler,
    NodeCall,
    contributed,
    handles,
    make_handler,
    one_of,
)
from dmljax.onnx.handlers.signatures import (
    Attributes,
    ConvolutionAttributes,
    Images,
    KeptVector,
    Known,
    KnownNumber,
    Matrices,
    Matrix,
    PoolingAttributes,
    Quantized,
    QuantizedImages,
    QuantizedMatrix,
    RecurrentAttributes,
    RecurrentInputs,
    Rows,
    Vector,
    Vectors,
    Wanted,
)
from dmljax.onnx.nodes.data import indexing as indexing, shapes
from dmljax.onnx.nodes.images import vision as vision, windows
from dmljax.onnx.nodes.numbers import elementwise as elementwise, normalization
from dmljax.onnx.nodes.numbers.products import GemmAttributes, float_gemm, float_product, of_result, of_rows
from dmljax.onnx.nodes.quantized import quantization as quantization
from dmljax.onnx.nodes.randomness import dropout, may_drop
from dmljax.onnx.nodes.recurrence import lstm
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.symbols import as_sizes
from dmljax.onnx.values.types import Array, DType, Results

# ruff: noqa: N803, N815  # attributes are spelled as ONNX Runtime has them

DIRECTML = "com.microsoft.dml"

# Operators that equal the newest version of the ONNX operator with the same name.
for _operator in ("DequantizeLinear", "GatherND", "Gelu", "GridSample", "Pad", "QuantizeLinear", "Range", "Trilu"):
    REGISTRY.add(MICROSOFT, _operator, replace(REGISTRY.handlers["", _operator][0], since=1))


def _is_of_one_array(handler: Handler) -> bool:
    is_ready = not any(attribute.is_required for attribute in handler.attributes.values())
    return handler.required == 1 and is_ready and not handler.takes_call


def activate(x: Array, name: str | None, numbers: Mapping[str, float | None]) -> Array:
    """Applies the ONNX activation of this name, with those `numbers` that are attributes of it."""
    if not name:
        return x
    known = {
        operator: entries
        for (domain, operator), entries in REGISTRY.handlers.items()
        if domain == "" and _is_of_one_array(entries[0])
    }
    chosen = {key: value for key, value in numbers.items() if value is not None}
    entries = one_of("activation", name, known)
    handler = next((entry for entry in entries if chosen.keys() <= entry.attributes.keys()), entries[0])
    result: Array = handler.function(x, **handler.arguments(chosen))  # type: ignore[assignment]  # of one array
    return result


# The attributes of activations that do not take alpha, beta and gamma
_PARAMETERS = {"Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",)}


def _sum(x: Array, *others: Array | None) -> Array:
    return functools.reduce(dmljax.element_wise_add, (other for other in others if other is not None), x)


# Activations


@contributed("BiasGelu")
def _gelu_of_sum(x: Array, bias: Array) -> Array:
    return dmljax.element_wise_add1(x, bias, fused_activation=directml.ActivationGeluDesc())


@contributed("FastGelu")
def _fast_gelu(x: Array, bias: Array | None = None) -> Array:
    # The DirectML provider computes the exact GELU, but the definition is this approximation.
    return jax.nn.gelu(_sum(x, bias), approximate=True)


@contributed("QuickGelu")
def _quick_gelu(x: Array, *, alpha: float = 1.702) -> Array:
    return dmljax.activation_swish(x, alpha)


@contributed("BiasAdd")
def _sum_with_skip(x: Array, bias: Array, skip: Array) -> Array:
    return _sum(x, bias, skip)


@contributed("BiasSplitGelu")
def _gated_gelu(x: Vectors, bias: Array) -> Array:
    total = dmljax.element_wise_add(x, bias)
    left, right = dmljax.split(total, sizes=[total.shape[-1] // 2] * 2, axis=-1)
    return dmljax.element_wise_multiply(left, dmljax.activation_gelu(right))


@contributed("BiasSoftmax")
def _softmax_of_sum(x: Array, bias: Array, *, axis: int = 1, is_inner_broadcast: int) -> Array:
    axis = shapes.normalize_axis(axis, x.ndim)
    if is_inner_broadcast:  # the bias repeats along inner dimensions
        repeated = x.ndim - bias.ndim
        bias = bias if repeated <= 0 else bias.reshape((1,) * repeated + bias.shape)
    return dmljax.activation_softmax1(dmljax.element_wise_add(x, bias), axes=range(axis, x.ndim))


@contributed("BiasDropout", draws=lambda node: may_drop(node, 4))
def _dropout_of_sum(
    x: Array,
    bias: Array,
    residual: Array | None = None,
    ratio: Wanted | None = None,
    training_mode: Wanted | None = None,
    *,
    seed: int | None = None,
    call: NodeCall,
) -> tuple[Array, Array]:
    dropped, mask = dropout(_sum(x, bias), ratio, training_mode, seed=seed, call=call)
    return _sum(dropped, residual), mask


# Elements


@contributed("ExpandDims")
def _with_dimension(x: Array, axis: KnownNumber) -> Array:
    return jnp.expand_dims(x, int(axis.item()))


@contributed("Inverse")
def _inverse(x: Matrices) -> Array:
    inverse: Array = jnp.linalg.inv(x.astype(promote(x.dtype, jnp.float32)))
    return inverse.astype(x.dtype)


@contributed("Unique")
def _unique_in_order(x: KeptVector, *, call: NodeCall) -> Results:
    unique: Any = REGISTRY.handlers["", "Unique"][0].function
    values, _, places, counts = unique(x, sorted=0, call=call)
    return values, places, counts


@contributed("MulInteger")
def _integer_product(a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None = None) -> Array:
    left, right = (
        x.astype(jnp.int32) - (0 if zero is None else zero.astype(jnp.int32).reshape(()))
        for x, zero in ((a, a_zero_point), (b, b_zero_point))
    )
    return dmljax.element_wise_multiply(left, right)


# Normalizations


@handles("SimplifiedLayerNormalization")  # ONNX Runtime defines it in ONNX's domain
def _simplified_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, call: NodeCall
) -> Results:
    output, _, inverse = normalization.normalize(x, scale, None, epsilon, call, axis=axis, is_simple=True)
    return output, inverse


@contributed("SkipLayerNormalization")
def _skip_layer_normalization(
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
    call: NodeCall,
) -> Results:
    total = _sum(x, skip, bias)
    return *normalization.normalize(total, gamma, beta, epsilon, call), total


@contributed("SkipSimplifiedLayerNormalization")
def _skip_simplified_normalization(
    x: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float = 1e-12, call: NodeCall
) -> Results:
    total = _sum(x, skip, bias)
    return *normalization.normalize(total, gamma, None, epsilon, call, is_simple=True), total


@dataclass(frozen=True, kw_only=True)
class _GroupAttributes(Attributes):
    activation: int
    channels_last: int = 1
    epsilon: float = 1e-5
    groups: int


@contributed("GroupNorm")
def _group_norm(x: Images, gamma: Vector, beta: Vector, *, norm: _GroupAttributes) -> Array:
    image = x if norm.channels_last else jnp.moveaxis(x, 1, -1)
    channels, groups = image.shape[-1], norm.groups
    if groups < 1 or channels % groups:
        raise InvalidDesc(Problem("groups", f"must divide {channels} channels", groups))
    wide = image.astype(promote(x.dtype, gamma.dtype))
    parts = reshape(wide, (image.shape[0], math.prod(image.shape[1:-1]), groups, channels // groups))
    parts = dmljax.mean_variance_normalization1(parts, axes=(1, 3), epsilon=norm.epsilon)
    gamma, beta = gamma.astype(wide.dtype), beta.astype(wide.dtype)
    result = dmljax.element_wise_add(dmljax.element_wise_multiply(reshape(parts, image.shape), gamma), beta)
    result = (dmljax.activation_swish(result) if norm.activation else result).astype(x.dtype)
    return result if norm.channels_last else jnp.moveaxis(result, -1, 1)


@contributed("SkipGroupNorm")
def _skip_group_norm(
    x: Images, gamma: Vector, beta: Vector, skip: Array, bias: Vector | None = None, *, norm: _GroupAttributes
) -> tuple[Array, Array]:
    place = -1 if norm.channels_last else 1

    def of_channels(rows: Array) -> Array:
        return jnp.expand_dims(rows, [axis for axis in range(1, x.ndim) if axis != place % x.ndim])

    total = _sum(x, of_channels(skip) if skip.ndim == 2 else skip, None if bias is None else of_channels(bias[None]))
    return _group_norm(total, gamma, beta, norm=norm), total


@contributed("EmbedLayerNormalization")
def _embed_layer_normalized(
    ids: Matrix,
    segments: Matrix | None,
    words: Matrix,
    positions: Matrix,
    of_segments: Array | None,
    gamma: Vector,
    beta: Vector,
    mask: Matrix | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Results:
    batch, length = ids.shape
    total = dmljax.gather(words, ids, axis=0)
    places = positions[None, :length] if position_ids is None else dmljax.gather(positions, position_ids, axis=0)
    total = dmljax.element_wise_add(total, places)
    if segments is not None and of_segments is not None:
        total = dmljax.element_wise_add(total, dmljax.gather(of_segments, segments, axis=0))
    output = dmljax.mean_variance_normalization1(total, gamma, beta, epsilon, axes=-1)
    mask_index = jnp.zeros((batch,), ids.dtype) if mask is None else jnp.sum(mask == 1, axis=1, dtype=ids.dtype)
    return output, mask_index, total


class _QuantizedRows(NamedTuple):
    """The inputs of a quantized BERT embedding, in ONNX Runtime's order."""

    ids: Matrix
    segments: Matrix | None
    words: Matrix
    positions: Matrix
    of_segments: Array | None
    gamma: Vector
    beta: Vector
    mask: Matrix | None
    words_scale: Array
    positions_scale: Array
    of_segments_scale: Array | None
    gamma_scale: Array
    beta_scale: Array
    words_zero_point: Array
    positions_zero_point: Array
    of_segments_zero_point: Array | None
    gamma_zero_point: Array
    beta_zero_point: Array

    def numbers(self, name: str) -> Any:
        parts = [getattr(self, f"{name}{part}") for part in ("", "_scale", "_zero_point")]
        return None if parts[0] is None else _numbers(Quantized(*parts))


@contributed("QEmbedLayerNormalization")
def _quantized_embedding(inputs: _QuantizedRows, *, epsilon: float = 1e-12) -> Results:
    tables = map(inputs.numbers, ("words", "positions", "of_segments", "gamma", "beta"))
    return _embed_layer_normalized(*(inputs.ids, inputs.segments, *tables, inputs.mask), epsilon=epsilon)


# Products


@contributed("GemmFastGelu")
def _product_with_fast_gelu(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return _fast_gelu(float_product(x, weight), bias)


@dataclass(frozen=True, kw_only=True)
class _ProductAttributes(Attributes):
    alpha: float = 1.0
    transA: int = 0
    transB: int = 0
    transBatchA: int = 0
    transBatchB: int = 0


@dataclass(frozen=True, kw_only=True)
class _ActivationNumbers(Attributes):
    activation_alpha: float | None = None
    activation_axis: int | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None

    def by_name(self) -> dict[str, float | None]:
        return {name.removeprefix("activation_"): value for name, value in asdict(self).items()}


def _matrices(x: Array, *, is_transposed: int, is_batch_last: int) -> Array:
    if is_batch_last:
        x = jnp.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if is_transposed and x.ndim > 1 else x


@contributed("FusedMatMul", "TransposeMatMul")
def _fused_matmul(a: Array, b: Array, *, product: _ProductAttributes) -> Array:
    a = _matrices(a, is_transposed=product.transA, is_batch_last=product.transBatchA)
    b = _matrices(b, is_transposed=product.transB, is_batch_last=product.transBatchB)
    return float_product(a, b, product.alpha)


@contributed("FusedMatMulActivation")
def _fused_matmul_activation(
    a: Array, b: Array, *, activation: str, numbers: _ActivationNumbers, product: _ProductAttributes
) -> Array:
    return activate(_fused_matmul(a, b, product=product), activation, numbers.by_name())


@contributed("FusedGemm")
def _fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    activation: str | None = None,
    numbers: _ActivationNumbers,
    product: GemmAttributes,
) -> Array:
    return activate(float_gemm(a, b, c, product), activation, numbers.by_name())


@contributed("MatMulIntegerToFloat")
def _scaled_integer_matmul(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    return dmljax.matrix_multiply_integer_to_float(
        *(a, b, of_rows(a_scale), b_scale), of_rows(a_zero_point), b_zero_point, bias
    )


@contributed("DynamicQuantizeMatMul")
def _dynamically_quantized_matmul(
    a: Array, b: Array, b_scale: Array, b_zero_point: Array | None = None, bias: Array | None = None
) -> Array:
    quantized, scale, zero_point = dmljax.dynamic_quantize_linear(a)
    return dmljax.matrix_multiply_integer_to_float(quantized, b, scale, b_scale, zero_point, b_zero_point, bias)


# Arithmetic of quantized arrays


@contributed("QLinearAdd")
def _quantized_sum(a: Quantized, b: Quantized, scale: Array, zero_point: Array | None = None) -> Array:
    return dmljax.element_wise_quantized_linear_add(*a, *b, scale, zero_point)


@contributed("QLinearMul")
def _quantized_product(a: Quantized, b: Quantized, scale: Array, zero_point: Array | None = None) -> Array:
    steps = dmljax.element_wise_divide(dmljax.element_wise_multiply(_numbers(a), _numbers(b)), scale)
    if zero_point is not None:  # ONNX Runtime adds it before rounding
        steps = dmljax.element_wise_add(steps, zero_point.astype(steps.dtype))
    return _quantize(steps, jnp.ones((), steps.dtype), None, a.array.dtype)


def _numbers(x: Quantized) -> Array:
    return dmljax.element_wise_dequantize_linear(*x)


def _quantize(x: Array, scale: Array, zero_point: Array | None, dtype: DType) -> Array:
    return dmljax.element_wise_quantize_linear(x, scale, zero_point, dtype=dtype)


def _of_quantized(operator: str) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Registers a function as the handler for a quantized array, dequantizing before and quantizing after it."""

    def register(function: Callable[..., Array]) -> Callable[..., Array]:
        def run(x: Quantized, scale: Array, zero_point: Array | None = None, **attributes: Any) -> Array:
            return _quantize(function(_numbers(x), **attributes), scale, zero_point, x.array.dtype)

        handler = make_handler(function)
        REGISTRY.add(
            MICROSOFT, operator, replace(make_handler(run), attributes=handler.attributes, groups=handler.groups)
        )
        return function

    return register


_of_quantized("QLinearSigmoid")(lambda x: dmljax.activation_sigmoid(x))


@_of_quantized("QLinearLeakyRelu")
def _leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    return dmljax.activation_leaky_relu(x, alpha)


@_of_quantized("QLinearSoftmax")
def _softmax(x: Array, *, axis: int = -1, opset: int) -> Array:
    if opset >= 13:
        return dmljax.activation_softmax1(x, axes=axis)
    rows = x.reshape(*x.shape[: shapes.normalize_axis(axis, x.ndim)], -1)
    return dmljax.activation_softmax1(rows, axes=-1).reshape(x.shape)


@_of_quantized("QLinearReduceMean")
def _mean(x: Array, *, axes: Sequence[int], keepdims: int) -> Array:
    return jnp.mean(x, axis=tuple(axes), keepdims=bool(keepdims))


@contributed("QLinearConcat")
def _quantized_concatenation(scale: Array, zero_point: Array, *inputs: Array, axis: int) -> Array:
    if len(inputs) % 3:
        raise InvalidDesc(Problem("inputs", "must come in threes: array, scale, zero point", len(inputs)))
    parts = [_numbers(Quantized(*inputs[i : i + 3])) for i in range(0, len(inputs), 3)]
    return _quantize(dmljax.join(parts, axis=axis), scale, zero_point, zero_point.dtype)


@contributed("QLinearWhere")
def _quantized_choice(condition: Array, x: Quantized, y: Quantized, scale: Array, zero_point: Array) -> Array:
    chosen = dmljax.element_wise_if(condition, _numbers(x), _numbers(y))
    return _quantize(chosen, scale, zero_point, x.array.dtype)


@contributed("QGemm")
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
    total = _sum(dmljax.matrix_multiply_integer(left, right, of_rows(a.zero_point), b.zero_point), c)
    unit = jnp.ones((), a.scale.dtype)
    factor = of_result(a.scale * alpha, b.scale, unit if scale is None else scale)
    result = dmljax.element_wise_multiply(total.astype(factor.dtype), factor)
    return result if scale is None else _quantize(result, unit, zero_point, a.array.dtype)


def _channels_first(x: Array) -> Array:
    return jnp.moveaxis(x, -1, 1)


def _of_last_channels(function: Callable[[Array], Array], x: Array, channels_last: int = 1) -> Array:
    """Applies a function of channels-first images to images that may have channels last."""
    return jnp.moveaxis(function(_channels_first(x)), 1, -1) if channels_last else function(x)


@contributed("QLinearAveragePool")
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
    return _of_last_channels(averages, x.array, channels_last)


@contributed("QLinearGlobalAveragePool")
def _quantized_global_average_pool(
    x: QuantizedImages, scale: Array, zero_point: Array, *, channels_last: int = 0
) -> Array:
    def average(image: Array) -> Array:
        quantized = x._replace(array=image)
        return dmljax.quantized_linear_average_pooling(*quantized, scale, zero_point, window_sizes=image.shape[2:])

    return _of_last_channels(average, x.array, channels_last)


@contributed("QLinearConv")
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

    return _of_last_channels(convolution, x.array, channels_last)


# Convolutions


@dataclass(frozen=True, kw_only=True)
class _ListedActivation(Attributes):
    activation: str = ""
    activation_params: Sequence[float] = ()


class _Fused(NamedTuple):
    x: Images
    filter: Images
    bias: Array | None = None
    summand: Array | None = None


@contributed("FusedConv")
def _fused_convolution(inputs: _Fused, *, window: ConvolutionAttributes, fused: _ListedActivation) -> Array:
    names = _PARAMETERS.get(fused.activation, ("alpha", "beta", "gamma"))
    numbers = dict(zip(names, fused.activation_params, strict=False))
    total = _sum(windows.convolution(*inputs[:3], window=window), inputs.summand)
    return activate(total, fused.activation, numbers)


@contributed("NhwcFusedConv")
def _fused_convolution_of_last_channels(
    inputs: _Fused, *, window: ConvolutionAttributes, fused: _ListedActivation
) -> Array:
    summand = None if inputs.summand is None else _channels_first(inputs.summand)

    def convolution(image: Array) -> Array:
        return _fused_convolution(inputs._replace(x=image, summand=summand), window=window, fused=fused)

    return _of_last_channels(convolution, inputs.x)


@contributed("NhwcConv")
def _convolution_of_last_channels(
    x: Images, filter: Images, bias: Array | None = None, *, window: ConvolutionAttributes
) -> Array:
    filter_channels_first = _channels_first(filter)  # here the filter has channels last too
    return _of_last_channels(lambda image: windows.convolution(image, filter_channels_first, bias, window=window), x)


@contributed("NhwcMaxPool")
def _max_pool_of_last_channels(x: Images, *, window: PoolingAttributes, storage_order: int = 0) -> Array:
    return _of_last_channels(lambda image: windows.max_pool(image, window), x)


@contributed("ConvTransposeWithDynamicPads")
def _transposed_convolution_of_input_pads(
    x: Images,
    filter: Images,
    pads: Known | None = None,
    bias: Array | None = None,
    *,
    window: ConvolutionAttributes,
    output_padding: Sequence[int] | None = None,
) -> Array:
    window = window if pads is None else replace(window, pads=as_sizes(pads))
    return windows.transposed_convolution(x, filter, bias, window=window, output_padding=output_padding)


# Operators that the DirectML provider fuses with an activation


@dataclass(frozen=True, kw_only=True)
class _FusedActivation(Attributes):
    fused_activation: str
    fused_activation_domain: str = ""
    fused_activation_since_version: int = 1
    fused_alpha: float | None = None
    fused_beta: float | None = None
    fused_gamma: float | None = None
    fused_ratio: float | None = None


def _with_activation(base: Handler) -> Handler:
    """The handler that applies an activation to the result of `base`."""

    def run(*inputs: Any, fused: _FusedActivation, **more: Any) -> Array:
        numbers = {"alpha": fused.fused_alpha, "beta": fused.fused_beta, "gamma": fused.fused_gamma}
        result: Any = base.function(*inputs, **more)
        return activate(result, fused.fused_activation, numbers)

    handler = make_handler(run)
    attributes, groups = {**base.attributes, **handler.attributes}, {**base.groups, **handler.groups}
    return replace(base, function=run, since=1, attributes=attributes, groups=groups, fold=None, is_elementwise=False)


for _operator in (
    *("Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "MatMul"),
    *("MeanVarianceNormalization", "Sum"),
):
    _newest = REGISTRY.handlers["", _operator][0]
    REGISTRY.add(DIRECTML, f"DmlFused{_operator}", _with_activation(_newest))


# Recurrent networks


@contributed("DynamicQuantizeLSTM")
def _lstm_of_quantized_weights(
    x: Rows,
    weight: Rows,
    recurrence: Rows,
    bias: Array | None,
    lengths: Array | None,
    hidden: Array | None,
    cell: Array | None,
    peephole: Array | None,
    weight_scale: Array,
    weight_zero_point: Array,
    recurrence_scale: Array,
    recurrence_zero_point: Array,
    *,
    network: RecurrentAttributes,
    input_forget: int = 0,
    call: NodeCall,
) -> Results:
    # ONNX Runtime also quantizes the inputs of each product to 8 bits; we do not.
    def of_directions(quantized: Array, scale: Array, zero_point: Array) -> Array:
        # Scales are per direction or per output; the weights are transposed.
        spread = [parameter.reshape(quantized.shape[0], 1, -1) for parameter in (scale, zero_point)]
        return dmljax.element_wise_dequantize_linear(quantized, *spread).swapaxes(1, 2)

    weights = of_directions(weight, weight_scale, weight_zero_point)
    recurrences = of_directions(recurrence, recurrence_scale, recurrence_zero_point)
    inputs = RecurrentInputs(x, weights, recurrences, bias, lengths, hidden)
    return lstm(inputs, cell, peephole, network=network, input_forget=input_forget, call=call)
