"""Convolutions: sums of products of an image's windows with filters, in both directions, by the fastest lowering.

Images have the dimensions batch, channels and space; filters have output channels, the input channels of a group and
space, and are not flipped.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.lax import PrecisionLike

from dmljax.errors import Unsupported, require
from dmljax.foundation.checks import INT_MAX
from dmljax.foundation.dimensions import at_most, is_symbolic, replace_at
from dmljax.foundation.open_sizes import fits
from dmljax.lowerings.images.channels import apply_channels_last, are_filters_stored
from dmljax.lowerings.images.columns import unfold_by_axis, unfold_windows
from dmljax.lowerings.images.windows import Window
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import crop_to_overlap, materialize
from dmljax.types import widened


class ConvSpec(NamedTuple):
    """The windows that filters have on an image, and the groups and the precision of their products."""

    windows: tuple[Window, ...]
    group_count: int
    precision: PrecisionLike


# Both directions


def convolve(image: Array, filter: Array, spec: ConvSpec, *, is_forward: bool = True) -> Array:
    """Adds up the products of each window of the image with each filter, in float32, or in float64 for float64 inputs.

    The result has the type of the sums. If `is_forward` is false, this is the gradient: each element of the image,
    times the filter, is added to a window of the result. The windows slide over the result; the image has an element
    for each of them, or for the first few. The filter has input channels first, then the output channels of a group.
    """
    wide, (batch, *_), (first, second, *_) = widened(image.dtype), image.shape, filter.shape
    if 0 in (*image.shape, *filter.shape):
        space = (window.blocks if is_forward else window.input_size for window in spec.windows)
        return jnp.zeros_like(image, wide, shape=(batch, first if is_forward else second * spec.group_count, *space))
    plain = _convolve_by_xla if is_forward else _convolve_backward

    def on_gpu(image: Array, filter: Array) -> Array:
        # Libraries add up in float32 whatever they return. XLA calls them for bfloat16 only if they return it.
        return plain(image, filter, spec, sums=image.dtype).astype(wide)

    @jax.checkpoint  # save no intermediates for the backward pass
    def on_cpu(image: Array, filter: Array) -> Array:
        of_cpu = _convolve_on_cpu if is_forward else partial(_convolve_backward, sums=wide, is_on_cpu=True)
        return of_cpu(image.astype(wide), filter.astype(wide), spec)

    result: Array = choose(image, filter, cpu=on_cpu, gpu=on_gpu, default=partial(plain, spec=spec, sums=wide))
    return result


# One operation of XLA


def _convolve_backward(image: Array, filter: Array, spec: ConvSpec, sums: Any, *, is_on_cpu: bool = False) -> Array:
    _require_known_windows(filter)
    windows = []
    for window, count in zip(spec.windows, image.shape[2:], strict=True):
        before = window.extent - 1 - window.start_padding
        span = (count - 1) * window.stride + 1
        after = window.input_size + window.extent - 1 - before - span
        windows.append(Window(count, window.size, 1, window.dilation, before, after, input_dilation=window.stride))
    filter = lax.rev(_swap_channels(filter, spec.group_count), range(2, filter.ndim))
    return _convolve_by_xla(image, filter, spec._replace(windows=tuple(windows)), sums, is_on_cpu)


def _swap_channels(filter: Array, group_count: int) -> Array:
    """Swaps the input and output channels of a filter."""
    first, second, *space = filter.shape
    of_groups = filter.reshape(group_count, first // group_count, second, *space)
    return jnp.swapaxes(of_groups, 1, 2).reshape(group_count * second, first // group_count, *space)


def _convolve_by_xla(image: Array, filter: Array, spec: ConvSpec, sums: Any, is_on_cpu: bool = False) -> Array:
    """Convolves the parts of the image and the filter that meet; windows that read only padding are 0."""
    parts = [part for part in map(_overlap, spec.windows) if part is not None]
    if len(parts) < len(spec.windows):
        sizes = image.shape[0], filter.shape[0], *(window.blocks for window in spec.windows)
        return jnp.zeros_like(image, sums, shape=sizes)
    image, filter = image[:, :, *(part.image for part in parts)], filter[:, :, *(part.taps for part in parts)]
    spec = spec._replace(windows=tuple(part.window for part in parts))
    result = _convolve_overlap(image, filter, spec, sums, is_on_cpu)
    beside = [(0, 0, 0), (0, 0, 0), *((*part.beside, 0) for part in parts)]
    return lax.pad(result, jnp.zeros((), result.dtype), beside) if any(map(any, beside)) else result


class _Overlap(NamedTuple):
    """The parts of an image and a filter that meet along a dimension, the window over them, and places `beside` it."""

    image: slice
    taps: slice
    window: Window
    beside: tuple[int, int]


def _overlap(window: Window) -> _Overlap | None:
    """The parts that meet along the dimension of a window; None if it reads only padding at every place."""
    whole = _Overlap(slice(None), slice(None), window, (0, 0))
    size, start, count, gap = window.input_size, window.start_padding, window.blocks, window.input_dilation
    if is_symbolic(size):
        return whole
    all_ranges = (
        range(start, start + size * gap, gap),
        range(0, count * window.stride, window.stride),
        range(0, window.extent, window.dilation),
    )
    parts = crop_to_overlap(*all_ranges)
    if parts == all_ranges and min(start, window.end_padding) >= 0:
        return whole  # with padding that no window reads: a GPU's library takes only the same at both ends
    if not all(parts):
        return None
    image_slice, place_slice, tap_slice = (
        slice(first := every.index(part[0]), first + len(part)) for every, part in zip(all_ranges, parts, strict=True)
    )
    elements, places, taps = parts
    window = window._replace(
        input_size=len(elements),
        size=len(taps),
        start_padding=elements[0] - places[0] - taps[0],
        end_padding=max(0, places[-1] + taps[-1] - elements[-1]),
    )
    return _Overlap(image_slice, tap_slice, window, (place_slice.start, count - place_slice.stop))


@partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _convolve_overlap(image: Array, filter: Array, spec: ConvSpec, sums: Any, is_on_cpu: bool) -> Array:
    plain = partial(_general_dilated, spec=spec, sums=sums, layouts=_LIBRARY_LAYOUT if is_on_cpu else _DIRECTML_LAYOUT)
    convolution = custom_vmap(plain)

    @convolution.def_vmap
    def batch(size: int, is_batched: list[bool], image: Array, filter: Array) -> tuple[Array, bool]:
        # If every image has its own filters, JAX makes groups, whose number must be known, and XLA gathers them from
        # all devices. Matrix products stay sharded.
        lowering = partial(_convolve_in_columns, spec=spec, sums=sums) if all(is_batched) else plain
        return jax.vmap(lowering, [0 if is_mapped else None for is_mapped in is_batched])(image, filter), True

    result: Array = convolution(image, filter)
    return result


@_convolve_overlap.defjvp
def _convolve_overlap_jvp(
    spec: ConvSpec, sums: Any, is_on_cpu: bool, primals: Any, tangents: Any
) -> tuple[Array, Array]:
    # JAX does not transpose a convolution whose result is wider than its operands, so widen the operands.
    value = _convolve_overlap(*primals, spec, sums, is_on_cpu)
    _require_known_windows(primals[1])  # JAX's derivative pads by them
    (image, filter), (image_tangent, filter_tangent) = ([x.astype(sums) for x in both] for both in (primals, tangents))
    if any(window.stride > 1 and is_symbolic(window.input_size) for window in spec.windows):
        image, image_tangent = (_pad_to_windows(x, spec.windows) for x in (image, image_tangent))
        spec = spec._replace(windows=tuple(window.on_padded_input for window in spec.windows))
    layouts = (_IMAGE_GRAD_LAYOUT, _FILTER_GRAD_LAYOUT) if is_on_cpu else (_DIRECTML_LAYOUT,) * 2
    by_image, by_filter = (partial(_general_dilated, spec=spec, sums=sums, layouts=order) for order in layouts)
    return value, by_image(image_tangent, filter) + by_filter(image, filter_tangent)


def _require_known_windows(filter: Array) -> None:
    rule = "must have spatial sizes that are known while tracing"
    require("filter", not any(map(is_symbolic, filter.shape[2:])), rule, f"shape {filter.shape}", Unsupported)


def _pad_to_windows(image: Array, windows: Sequence[Window]) -> Array:
    """The image with its padding, up to where the last window ends.

    JAX cannot transpose a convolution if an open size decides how much remains behind it.
    """
    ends = [window.needed_size - window.start_padding - window.input_size for window in windows]
    amounts = [(window.start_padding, end, 0) for window, end in zip(windows, ends, strict=True)]
    return lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), (0, 0, 0), *amounts])


# The orders of dimensions for XLA, of image, filter and result, with {} for space. XLA's libraries on CPU know one
# order. XLA reorders a convolution itself at the top level of a computation, but in a loop or a branch it runs any
# other order without the libraries, 25 times as slowly. The last two are orders whose transposes by the image and by
# the filter, as JAX writes them, have the libraries' order.
_DIRECTML_LAYOUT = "NC{}", "OI{}", "NC{}"
_LIBRARY_LAYOUT = "N{}C", "{}IO", "N{}C"
_IMAGE_GRAD_LAYOUT = "N{}C", "{}OI", "N{}C"
_FILTER_GRAD_LAYOUT = "C{}N", "I{}O", "{}NC"


def _general_dilated(image: Array, filter: Array, spec: ConvSpec, sums: Any, layouts: Sequence[str]) -> Array:
    windows, group_count, precision = spec
    space = "DHW"[-len(windows) :]
    layouts_of_directml, layouts_of_xla = (
        [order.format(space) for order in orders] for orders in (_DIRECTML_LAYOUT, layouts)
    )
    axes = [
        [source.index(axis) for axis in target]
        for source, target in zip(layouts_of_directml, layouts_of_xla, strict=True)
    ]
    result = lax.conv_general_dilated(
        lax.transpose(image, axes[0]),
        lax.transpose(filter, axes[1]),
        [window.stride for window in windows],
        [(window.start_padding, window.end_padding) for window in windows],
        lhs_dilation=[window.input_dilation for window in windows],
        rhs_dilation=[window.dilation for window in windows],
        dimension_numbers=(layouts_of_xla[0], layouts_of_xla[1], layouts_of_xla[2]),
        feature_group_count=group_count,
        precision=precision,
        preferred_element_type=sums,
    )
    return lax.transpose(result, [layouts_of_xla[2].index(axis) for axis in layouts_of_directml[2]])


def _convolve_in_columns(image: Array, filter: Array, spec: ConvSpec, sums: Any) -> Array:
    """Computes the product of two matrices: the filters, and all elements of each window."""
    image, filter = image.astype(sums), filter.astype(sums)
    gaps = [(0, 0, 0), (0, 0, 0), *((0, 0, window.input_dilation - 1) for window in spec.windows)]
    spread_image = lax.pad(image, jnp.zeros((), image.dtype), gaps)
    sizes = zip(spec.windows, spread_image.shape[2:], strict=True)
    windows = tuple(window._replace(input_size=size, input_dilation=1) for window, size in sizes)
    return _product_of_columns(spread_image, filter, spec._replace(windows=windows))


def _product_of_columns(
    image: Array, filter: Array, spec: ConvSpec, unfold: Callable[..., Array] = unfold_windows
) -> Array:
    windows, group_count, precision = spec
    batch, outputs = image.shape[0], filter.shape[0]
    terms, places = math.prod(filter.shape[1:]), math.prod(window.blocks for window in windows)
    columns = unfold(image, windows).reshape(batch, group_count, terms, places)
    matrix = filter.reshape(1, group_count, outputs // group_count, terms)
    matrix = jnp.broadcast_to(matrix, (batch, *matrix.shape[1:]))
    products = lax.dot_general(matrix, columns, (((3,), (2,)), ((0, 1), (0, 1))), precision=precision)
    return products.reshape(batch, outputs, *(window.blocks for window in windows))


# On a CPU

_MOST_PRODUCTS = 49  # added up one after another, and compiled as one loop
_FEW_PLACES = 300


def _convolve_on_cpu(image: Array, filter: Array, spec: ConvSpec) -> Array:
    """Convolves by products where XLA's convolution is slow: for groups, windows of one element, and few windows.

    With few windows, XLA spends most of its time reordering filters that are not stored in its order.
    """
    windows, group_count, precision = spec
    outputs, channels, *sizes = filter.shape
    elements, places = math.prod(sizes), image.shape[0] * math.prod(window.blocks for window in windows)
    if group_count == outputs and channels == 1 and at_most(elements, _MOST_PRODUCTS):
        return apply_channels_last(partial(_products_of_channels, filter=filter, windows=windows), image)
    if group_count == 1 and at_most(elements, 1):
        product = partial(_product_of_elements, filter=filter, windows=windows, precision=precision)
        return apply_channels_last(product, image)
    has_few_places = at_most(places, _FEW_PLACES) and at_most(places - outputs, 0)
    if (group_count > 1 or (has_few_places and not are_filters_stored())) and not is_symbolic(elements):
        return _product_of_columns(image, filter, spec, unfold_by_axis)
    return _convolve_by_xla(image, filter, spec, image.dtype, is_on_cpu=True)


def _products_of_channels(image: Array, filter: Array, windows: Sequence[Window]) -> Array:
    """Adds up shifted images, each times an element of all filters, if each channel has its own filter."""
    # Keep them in memory: otherwise XLA would read scattered elements of the filters in each step of the loop.
    factors = materialize(filter.reshape(filter.shape[0], -1).T).reshape(-1, *[1] * (image.ndim - 1), image.shape[-1])
    total: Array = functools.reduce(operator.add, map(operator.mul, _taps(image, windows), factors))
    return total


def _product_of_elements(image: Array, filter: Array, windows: Sequence[Window], precision: PrecisionLike) -> Array:
    """Multiplies the channels of each window, which is one element, by the filters."""
    ((elements,), matrix) = _taps(image, windows), filter.reshape(filter.shape[:2])
    return lax.dot_general(elements, matrix, (((image.ndim - 1,), (1,)), ((), ())), precision)


def _taps(image: Array, windows: Sequence[Window]) -> list[Array]:
    """The elements at each place of the windows; the image has its channels last."""
    amounts = [(0, 0, 0), *((window.start_padding, window.end_padding, 0) for window in windows), (0, 0, 0)]
    padded, strides = lax.pad(image, jnp.zeros((), image.dtype), amounts), [window.stride for window in windows]

    def at(place: Sequence[int]) -> Array:
        starts = [i * window.dilation for i, window in zip(place, windows, strict=True)]
        ends = [start + (window.blocks - 1) * window.stride + 1 for start, window in zip(starts, windows, strict=True)]
        return lax.slice(padded, (0, *starts, 0), (image.shape[0], *ends, image.shape[-1]), (1, *strides, 1))

    return [*map(at, itertools.product(*(range(window.size) for window in windows)))]


# Integers

_EXACT = 2**24  # float32 holds every integer up to this


def convolve_integers(
    image: Array, filter: Array, spec: ConvSpec, largest: tuple[int, int], *, wraps: bool
) -> list[Array]:
    """Computes `convolve` of integers exactly in float32; returns int32 parts that the caller adds up.

    `largest` has the largest magnitudes in the image and in the filter, of at most 8 bits. If the sum `wraps`, it may
    wrap around as int32 does.
    """
    terms = _count_terms(filter)
    if is_symbolic(terms):
        _require_known_windows(filter)
        most = INT_MAX // math.prod(largest)
        rule = f"must have at most {most} products in a sum, so that int32 holds it"
        require("filter", wraps or fits(terms, most), rule, terms, Unsupported)
        in_columns = partial(_product_of_columns, spec=spec)
        operands = image.astype(np.int32), filter.astype(np.int32)
        return [choose(*operands, tpu=partial(_convolve_exactly, spec=spec), default=in_columns)]
    if terms * math.prod(largest) > INT_MAX or 0 in (*image.shape, *filter.shape):
        return _parts_of_floats(image, filter, spec, largest)

    def add_parts(image: Array, filter: Array) -> Array:
        return functools.reduce(operator.add, _parts_of_floats(image, filter, spec, largest))

    return [choose(image, filter, tpu=partial(_convolve_exactly, spec=spec), default=add_parts)]


def _convolve_exactly(image: Array, filter: Array, spec: ConvSpec) -> Array:
    return _convolve_by_xla(image.astype(np.int32), filter.astype(np.int32), spec, sums=np.int32)


def _count_terms(filter: Array) -> int:
    """The number of products in each sum of a convolution."""
    return math.prod(filter.shape[1:])


def _parts_of_floats(image: Array, filter: Array, spec: ConvSpec, largest: tuple[int, int]) -> list[Array]:
    largest_in_image, largest_in_filter = largest
    terms, (_, channels, *_) = _count_terms(filter), filter.shape
    if terms * largest_in_image * largest_in_filter <= _EXACT:
        return [convolve(image, filter, spec).astype(np.int32)]
    if terms * largest_in_image * 16 <= _EXACT:
        return [_convolve_two_digits(image, filter, spec)]
    if channels == 1:
        return [_convolve_exactly(image, filter, spec)]
    of_groups = image.reshape(replace_at(image.shape, 1, spec.group_count, channels))
    parts: list[Array] = []
    for half in (slice(channels // 2), slice(channels // 2, None)):
        some = filter[:, half]
        half_image = of_groups[:, :, half].reshape(replace_at(image.shape, 1, spec.group_count * some.shape[1]))
        parts += _parts_of_floats(half_image, some, spec, largest)
    return parts


def _convolve_two_digits(image: Array, filter: Array, spec: ConvSpec) -> Array:
    """Splits filters into `16 * high + low`, whose sums are exact, and computes both in one convolution."""
    outputs, channels, *space = filter.shape
    high = jnp.floor(filter / 16)
    digits = jnp.stack([high, filter - 16 * high], axis=1)  # the two digits of an output channel are neighbors
    both = convolve(image, digits.reshape(2 * outputs, channels, *space), spec).astype(np.int32)
    pairs = both.reshape(replace_at(both.shape, 1, outputs, 2))
    return 16 * pairs[:, :, 0] + pairs[:, :, 1]
