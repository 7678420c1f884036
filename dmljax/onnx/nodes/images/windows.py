"""Operators with windows over images: convolution, pooling, and regions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax import directml
from dmljax.calls.windows import window_arguments
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.foundation.checks import integer_in
from dmljax.foundation.dimensions import is_symbolic
from dmljax.lowerings.images.windows import Window
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib, look_up
from dmljax.onnx.handlers.signatures import (
    Attributes,
    ConvolutionAttributes,
    Image,
    Images,
    Known,
    KnownVector,
    Matrix,
    PoolingAttributes,
    QuantizedImages,
    Rows,
    Vector,
    WindowAttributes,
)
from dmljax.onnx.nodes.data.indexing import counting_type
from dmljax.onnx.nodes.numbers.products import result_factor
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.symbols import as_sizes
from dmljax.onnx.values.types import Array

_AUTOMATIC = {"NOTSET": None, "": None, "VALID": None, "SAME_UPPER": True, "SAME_LOWER": False}


def read_windows(space: Sequence[int], sizes: Sequence[int], window: WindowAttributes) -> tuple[Window, ...]:
    """Converts ONNX's attributes to windows, with automatic padding resolved."""
    count = len(space)
    strides, dilations = tuple(window.strides or [1] * count), tuple(window.dilations or [1] * count)
    pads = tuple(window.pads or [0] * (2 * count))
    for name, values, length in (
        ("kernel_shape", sizes, count),
        ("strides", strides, count),
        ("dilations", dilations, count),
        ("pads", pads, 2 * count),
    ):
        if len(values) != length:
            raise InvalidDesc(Problem(name, f"must have {length} numbers", tuple(values)))
    for name, values in (("kernel_shape", sizes), ("strides", strides), ("dilations", dilations)):
        if any(isinstance(value, int) and value < 1 for value in values):
            raise InvalidDesc(Problem(name, "must each be at least 1", tuple(values)))
    is_upper = look_up("auto_pad", window.auto_pad, _AUTOMATIC)
    if window.auto_pad == "VALID":
        pads = (0,) * (2 * count)
    windows = tuple(map(Window, space, sizes, strides, dilations, pads[:count], pads[count:]))
    return windows if is_upper is None else tuple(_pad_automatically(each, is_upper) for each in windows)


def _pad_automatically(window: Window, is_upper: bool) -> Window:
    """The window with the padding that gives it a place for each stride of the input."""
    size, stride = window.input_size, window.stride
    return _split_padding(window, max((-(-size // stride) - 1) * stride + window.extent - size, 0), is_upper)


def _split_padding(window: Window, total: int, is_upper: bool) -> Window:
    """The window with half of `total` on either side; if it is odd, the rest goes after the input if `is_upper`."""
    half = total // 2
    start, end = (half, total - half) if is_upper else (total - half, half)
    return window._replace(start_padding=start, end_padding=end)


def _pad_image(x: Array, windows: tuple[Window, ...], value: float) -> tuple[Array, tuple[Window, ...]]:
    """Pads the image if its padding depends on open sizes, and removes that padding from the windows."""
    if not any(is_symbolic(amount) for window in windows for amount in (window.start_padding, window.end_padding)):
        return x, windows
    return _pad(x, windows, jnp.asarray(value, x.dtype))


def _pad(x: Array, windows: Sequence[Window], value: Array | float) -> tuple[Array, tuple[Window, ...]]:
    start, end = ((0, 0, *window_arguments(windows)[name]) for name in ("start_padding", "end_padding"))
    x = dmljax.padding1(x, value, start_padding=start, end_padding=end)
    return x, tuple(window.after_padding(window) for window in windows)


# Convolutions


def _filter_windows(x: Array, filter: Array, window: ConvolutionAttributes) -> tuple[Window, ...]:
    """The windows of a convolution; the filter determines their sizes."""
    if window.kernel_shape is not None and tuple(window.kernel_shape) != filter.shape[2:]:
        rule = f"must match W, {filter.shape[2:]}"
        raise InvalidDesc(Problem("kernel_shape", rule, tuple(window.kernel_shape)))
    return read_windows(x.shape[2:], filter.shape[2:], window)


@handles("Conv")
def convolution(x: Images, filter: Images, bias: Array | None = None, *, window: ConvolutionAttributes) -> Array:
    """Computes a cross-correlation."""
    x, windows = _pad_image(x, _filter_windows(x, filter, window), 0)
    return dmljax.convolution(x, filter, bias, group_count=window.group, **window_arguments(windows))


@handles("ConvInteger")
def _integer_convolution(
    x: Images,
    filter: Images,
    x_zero_point: Array | None = None,
    zero_point: Array | None = None,
    *,
    window: ConvolutionAttributes,
) -> Array:
    steps = window_arguments(_filter_windows(x, filter, window))
    return dmljax.convolution_integer(x, x_zero_point, filter, zero_point, group_count=window.group, **steps)


@handles("QLinearConv")
def quantized_convolution(
    x: QuantizedImages,
    filter: QuantizedImages,
    scale: Array,
    zero_point: Array,
    bias: Array | None = None,
    *,
    window: ConvolutionAttributes,
) -> Array:
    """Computes a cross-correlation of quantized arrays."""
    steps = window_arguments(_filter_windows(x.array, filter.array, window))
    unit = jnp.ones((), jnp.float32)
    arguments = (
        *x._replace(scale=unit),
        *filter._replace(scale=result_factor(x.scale, filter.scale, scale)),
        bias,
        unit,
    )
    return dmljax.quantized_linear_convolution(*arguments, zero_point, group_count=window.group, **steps)


@handles("ConvTranspose")
def transposed_convolution(
    x: Images,
    filter: Images,
    bias: Array | None = None,
    *,
    window: ConvolutionAttributes,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
) -> Array:
    """A transposed convolution; the output's sizes may replace the padding."""
    windows = _filter_windows(x, filter, replace(window, auto_pad="NOTSET"))
    appended = tuple(output_padding or [0] * (x.ndim - 2))
    for name, values in (("output_padding", appended), ("output_shape", output_shape or appended)):
        if len(values) not in (x.ndim - 2, x.ndim if name == "output_shape" else 0):
            raise InvalidDesc(Problem(name, f"must have {x.ndim - 2} numbers", tuple(values)))
    is_upper = look_up("auto_pad", window.auto_pad, _AUTOMATIC)
    if output_shape or is_upper is not None:
        result_sizes = output_shape or [window.input_size * window.stride for window in windows]
        unpadded = [window._replace(start_padding=0, end_padding=0) for window in windows]
        largest = [each.on_transposed_result(more).input_size for each, more in zip(unpadded, appended, strict=True)]
        excess = [whole - size for whole, size in zip(largest, result_sizes[-len(largest) :], strict=True)]
        windows = tuple(
            _split_padding(each, max(0, more), bool(is_upper)) for each, more in zip(windows, excess, strict=True)
        )
        appended = tuple(max(0, -less) + more for less, more in zip(excess, appended, strict=True))
    return dmljax.convolution(
        x,
        filter,
        bias,
        direction=directml.ConvolutionDirection.BACKWARD,
        group_count=window.group,
        output_padding=appended,
        **window_arguments(windows),
    )


@handles_contrib("ConvTransposeWithDynamicPads")
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
    return transposed_convolution(x, filter, bias, window=window, output_padding=output_padding)


# Poolings


def _pooling_windows(x: Array, window: PoolingAttributes) -> tuple[Window, ...]:
    return read_windows(x.shape[2:], window.kernel_shape, window)


def _pooling_arguments(windows: Sequence[Window]) -> dict[str, Any]:
    return {"window_sizes": tuple(window.size for window in windows), **window_arguments(windows)}


def _round_up(windows: tuple[Window, ...], window: PoolingAttributes) -> tuple[Window, ...]:
    """The windows that also cover what remains after the last whole one, if the attributes say so."""
    return tuple(each.rounded_up for each in windows) if window.ceil_mode else windows


def average_pool(
    x: Array,
    window: PoolingAttributes,
    count_include_pad: int,
    average: Callable[..., Array],
    padding_value: Array | float = 0.0,
) -> Array:
    """Pools by a DirectML function whose neutral padding value is `padding_value`."""
    windows = _pooling_windows(x, window)
    rounded = _round_up(windows, window)
    paddings = (amount for each in (*windows, *rounded) for amount in (each.start_padding, each.end_padding))
    open_amount = next(filter(is_symbolic, paddings), None)
    if open_amount is not None:
        remedy = "export the model with fixed sizes"
        raise Unsupported(Problem((), "padding must not depend on open sizes", open_amount, remedy=remedy))
    if count_include_pad and rounded != windows:  # elements beyond the padding do not count
        x, _ = _pad(x, windows, padding_value)
        rounded = tuple(map(Window.after_padding, rounded, windows))
        count_include_pad = 0
    return average(x, include_padding=bool(count_include_pad), **_pooling_arguments(rounded))


@handles("AveragePool")
def _average_pool(x: Images, *, window: PoolingAttributes, count_include_pad: int = 0) -> Array:
    return average_pool(x, window, count_include_pad, dmljax.average_pooling1)


def max_pool(x: Array, window: PoolingAttributes) -> Array:
    """The maximum of each window."""
    windows = _round_up(_pooling_windows(x, window), window)
    lowest = -math.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    x, windows = _pad_image(x, windows, lowest)
    return dmljax.max_pooling2(x, has_indices=False, **_pooling_arguments(windows)).values


@handles("MaxPool")
def _max_pool(
    x: Images, *, window: PoolingAttributes, storage_order: int = 0, call: NodeCall
) -> Array | tuple[Array, Array]:
    if not call.wants(1):
        return max_pool(x, window)
    values, indices = dmljax.max_pooling2(x, **_pooling_arguments(_round_up(_pooling_windows(x, window), window)))
    if storage_order:  # count indices column-major
        places = jnp.unravel_index(indices, x.shape)
        shape = (*x.shape[:2], *x.shape[:1:-1])
        indices = jnp.ravel_multi_index((*places[:2], *places[:1:-1]), shape, mode="clip")
    return values, indices.astype(counting_type())


@handles("LpPool")
def _lp_pool(x: Images, *, window: PoolingAttributes, p: float = 2) -> Array:  # a float in version 1, an integer later
    return dmljax.lp_pooling1(x, p=int(p), **_pooling_arguments(_round_up(_pooling_windows(x, window), window)))


# If sizes are open, a global pooling is a reduction.


def _reduce_space(x: Array, function: directml.ReduceFunction) -> Array:
    return dmljax.reduce(x, function=function, axes=tuple(range(2, x.ndim)))


@handles("GlobalAveragePool")
def _global_average_pool(x: Images) -> Array:
    if any(map(is_symbolic, x.shape[2:])):
        return _reduce_space(x, directml.ReduceFunction.AVERAGE)
    return dmljax.average_pooling(x, window_sizes=x.shape[2:])


@handles("GlobalMaxPool")
def _global_max_pool(x: Images) -> Array:
    if any(map(is_symbolic, x.shape[2:])):
        return _reduce_space(x, directml.ReduceFunction.MAX)
    return dmljax.max_pooling(x, window_sizes=x.shape[2:])


@handles("GlobalLpPool")
def _global_lp_pool(x: Images, *, p: float = 2) -> Array:
    if any(map(is_symbolic, x.shape[2:])):
        wide = x.astype(promote(x.dtype, jnp.float32))
        total = _reduce_space(jnp.abs(wide) ** int(p), directml.ReduceFunction.SUM)
        return (total ** (1 / int(p))).astype(x.dtype)
    return dmljax.lp_pooling(x, window_sizes=x.shape[2:], p=int(p))


@handles("MaxUnpool")
def _max_unpool(
    x: Images,
    indices: Array,
    output_shape: KnownVector | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    windows = read_windows(x.shape[2:], kernel_shape, WindowAttributes(pads=pads, strides=strides))
    space = [window.on_transposed_result().input_size for window in windows]
    result = dmljax.max_unpooling(x, indices, output_sizes=(*x.shape[:2], *space))
    if output_shape is None:
        return result
    # The indices refer to the result before it is padded.
    more = [size - actual for size, actual in zip(as_sizes(output_shape), result.shape, strict=True)]
    return dmljax.padding(result, start_padding=(0,) * result.ndim, end_padding=more)


@handles("Col2Im")
def _fold(x: Rows, image: KnownVector, block: KnownVector, *, window: WindowAttributes) -> Array:
    space, sizes = as_sizes(image), as_sizes(block)
    if min(sizes, default=0) < 1:
        raise InvalidDesc(Problem("block_shape", "must each be at least 1", sizes))
    whole = (x.shape[0], x.shape[1] // math.prod(sizes), *space)
    steps = window_arguments(read_windows(space, sizes, window))
    return dmljax.fold(x, output_sizes=whole, window_sizes=sizes, **steps)


# Regions


@handles("MaxRoiPool")
def _max_roi_pool(x: Image, rois: Matrix, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Array:
    height, width = pooled_shape
    return dmljax.roi_pooling(
        x, rois, pooled_size=directml.Size2D(width=width, height=height), spatial_scale=spatial_scale
    )


@dataclass(frozen=True, kw_only=True)
class _RegionAttributes(Attributes):
    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0


@handles("RoiAlign", since=16)
def _roi_align(
    x: Image,
    rois: Matrix,
    batch_indices: Vector,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    regions: _RegionAttributes,
) -> Array:
    modes = {"half_pixel": True, "output_half_pixel": False}
    is_half = look_up("coordinate_transformation_mode", coordinate_transformation_mode, modes)
    scale, samples = regions.spatial_scale, regions.sampling_ratio
    if not is_half:  # regions then span at least one pixel
        rois = jnp.concatenate([rois[:, :2], jnp.maximum(rois[:, 2:], rois[:, :2] + 1 / scale)], axis=1)
    if look_up("mode", regions.mode, {"avg": False, "max": True}):
        space = (regions.output_height, regions.output_width)
        return _max_of_regions(x, rois, batch_indices, space, samples, scale, 0.5 if is_half else 0)
    return dmljax.roi_align1(
        x,
        rois,
        batch_indices,
        output_size=directml.Size2D(width=regions.output_width, height=regions.output_height),
        spatial_scale_x=scale,
        spatial_scale_y=scale,
        input_pixel_offset=0.5 if is_half else 0.0,
        minimum_samples_per_output=samples or 1,
        maximum_samples_per_output=samples or 2**32 - 1,
    )


@handles("RoiAlign", since=10)
def _first_roi_align(x: Image, rois: Matrix, batch_indices: Vector, *, regions: _RegionAttributes) -> Array:
    mode = "output_half_pixel"
    return _roi_align(x, rois, batch_indices, coordinate_transformation_mode=mode, regions=regions)


def _max_of_regions(
    x: Array, rois: Array, batch_indices: Array, space: tuple[int, int], samples: int, scale: float, offset: float
) -> Array:
    """The maximum over the weighted pixels of all samples; DirectML takes the maximum over whole samples."""
    if samples < 1:
        raise Unsupported(Problem("sampling_ratio", "must be at least 1 in mode max", samples))
    for name, value in (("sampling_ratio", samples), ("output_height", space[0]), ("output_width", space[1])):
        integer_in(name, value, 1, 2**15)
    edges = rois * scale - offset
    pixels = []  # per spatial dimension: two indices for each sample of each region, and their weights
    for start, end, size, count in ((1, 3, x.shape[2], space[0]), (0, 2, x.shape[3], space[1])):
        length = edges[:, end] - edges[:, start]
        steps = (np.arange(count * samples) + 0.5) / (count * samples)
        place = edges[:, start, None] + length[:, None] * steps.astype(rois.dtype)[None, :]
        is_inside = (place >= -1) & (place <= size)
        place = jnp.clip(place, 0, size - 1)
        low = jnp.floor(place).astype(jnp.int32)
        more = place - low.astype(place.dtype)
        weights = jnp.where(is_inside[..., None], jnp.stack([1 - more, more], -1), 0)
        pixels.append((jnp.stack([low, jnp.minimum(low + 1, size - 1)], -1), weights))
    (rows, row_weights), (columns, column_weights) = pixels
    weights = row_weights[:, :, None, :, None] * column_weights[:, None, :, None, :]
    images = x[batch_indices.astype(jnp.int32)]
    regions = jnp.arange(len(rois))[:, None, None, None, None]
    values = jnp.moveaxis(images, 1, -1)[regions, rows[:, :, None, :, None], columns[:, None, :, None, :]]
    weighted = jnp.max(values * weights[..., None], axis=(3, 4))
    blocks = weighted.reshape(len(rois), space[0], samples, space[1], samples, -1)
    return jnp.moveaxis(jnp.max(blocks, axis=(2, 4)), -1, 1)
