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
from dmljax.foundation.open_sizes import fits
from dmljax.lowerings.channels import are_channels_last, with_channels_last
from dmljax.lowerings.columns import unfolded
from dmljax.lowerings.platform import choose
from dmljax.lowerings.sharding import may_be_sharded
from dmljax.lowerings.sizes import at_most, is_symbolic, replaced
from dmljax.lowerings.windows import Window
from dmljax.lowerings.workarounds import in_memory, meeting
from dmljax.types import widened


class Sliding(NamedTuple):
    """How filters slide over an image."""

    windows: tuple[Window, ...]
    group_count: int
    precision: PrecisionLike


# Both directions


def convolved(image: Array, filter: Array, sliding: Sliding, *, is_forward: bool = True) -> Array:
    """Adds up the products of each window of the image with each filter, in float32, or in float64 for float64 inputs.

    The result has the type of the sums. If `is_forward` is false, this is the gradient: each element of the image,
    times the filter, is added to a window of the result. The windows slide over the result; the image has an element
    for each of them, or for the first few. The filter has input channels first, then the output channels of a group.
    """
    wide, (batch, *_), (first, second, *_) = widened(image.dtype), image.shape, filter.shape
    if 0 in (*image.shape, *filter.shape):
        space = (one.blocks if is_forward else one.input_size for one in sliding.windows)
        return jnp.zeros_like(image, wide, shape=(batch, first if is_forward else second * sliding.group_count, *space))
    plain = _plain if is_forward else _plain_transposed

    def on_gpu(image: Array, filter: Array) -> Array:
        # Libraries add up in float32 whatever they return. XLA calls them for bfloat16 only if they return it.
        return plain(image, filter, sliding, sums=image.dtype).astype(wide)

    @jax.checkpoint  # save no intermediates for the backward pass
    def on_cpu(image: Array, filter: Array) -> Array:
        return (_on_cpu if is_forward else _transposed_on_cpu)(image.astype(wide), filter.astype(wide), sliding)

    result: Array = choose(image, filter, cpu=on_cpu, gpu=on_gpu, default=partial(plain, sliding=sliding, sums=wide))
    return result


# One operation of XLA


class _Steps(NamedTuple):
    """How filters step along each spatial dimension, as `lax.conv_general_dilated` takes it."""

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    image_dilation: tuple[int, ...]
    filter_dilation: tuple[int, ...]
    group_count: int
    precision: PrecisionLike
    sums: Any  # the type of the result
    is_on_cpu: bool


def _steps(sliding: Sliding, sums: Any, *, is_on_cpu: bool = False) -> _Steps:
    windows, group_count, precision = sliding
    strides, dilations = tuple(one.stride for one in windows), tuple(one.dilation for one in windows)
    padding = tuple((one.start_padding, one.end_padding) for one in windows)
    return _Steps(strides, padding, (1,) * len(windows), dilations, group_count, precision, sums, is_on_cpu)


def _plain(image: Array, filter: Array, sliding: Sliding, sums: Any) -> Array:
    return _convolution(image, filter, _steps(sliding, sums))


def _plain_transposed(image: Array, filter: Array, sliding: Sliding, sums: Any, *, is_on_cpu: bool = False) -> Array:
    _require_known_windows(filter)
    padding = []
    for one, count in zip(sliding.windows, image.shape[2:], strict=True):
        before = one.extent - 1 - one.start_padding
        dilated = (count - 1) * one.stride + 1
        padding.append((before, one.input_size + one.extent - 1 - before - dilated))
    steps = _steps(sliding, sums, is_on_cpu=is_on_cpu)
    steps = steps._replace(padding=tuple(padding), strides=steps.image_dilation, image_dilation=steps.strides)
    return _convolution(image, lax.rev(_swapped(filter, sliding.group_count), range(2, filter.ndim)), steps)


def _swapped(filter: Array, group_count: int) -> Array:
    """Swaps the input and output channels of a filter."""
    first, second, *space = filter.shape
    of_groups = filter.reshape(group_count, first // group_count, second, *space)
    return jnp.swapaxes(of_groups, 1, 2).reshape(group_count * second, first // group_count, *space)


def _convolution(image: Array, filter: Array, steps: _Steps) -> Array:
    """Convolves the parts of the image and the filter that meet; windows that read only padding are 0."""
    parts = [_meeting(*one) for one in zip(image.shape[2:], filter.shape[2:], *steps[:4], strict=True)]
    if 0 in (one.windows for one in parts):
        sizes = image.shape[0], filter.shape[0], *(one.windows + sum(one.beside) for one in parts)
        return jnp.zeros_like(image, steps.sums, shape=sizes)
    image, filter = image[:, :, *(one.image for one in parts)], filter[:, :, *(one.taps for one in parts)]
    found = _convolution_of_meeting(image, filter, steps._replace(padding=tuple(one.padding for one in parts)))
    beside = [(0, 0, 0), (0, 0, 0), *((*one.beside, 0) for one in parts)]
    return lax.pad(found, jnp.zeros((), found.dtype), beside) if any(map(any, beside)) else found


class _Meeting(NamedTuple):
    """What meets along a dimension: parts of the image and the filter, and a number of windows with others beside."""

    image: slice
    taps: slice
    padding: tuple[int, int]
    windows: int
    beside: tuple[int, int]


def _meeting(size: int, taps: int, stride: int, padding: tuple[int, int], gap: int, dilation: int) -> _Meeting:
    start, end = padding
    count = ((size - 1) * gap + start + end - (taps - 1) * dilation) // stride + 1
    all_of_it = _Meeting(slice(None), slice(None), padding, count, (0, 0))
    if is_symbolic(size):
        return all_of_it
    every = range(start, start + size * gap, gap), range(0, count * stride, stride), range(0, taps * dilation, dilation)
    image, windows, offsets = met = meeting(*every)
    if met == every and min(padding) >= 0:
        return all_of_it  # with padding that no window reads: a GPU's library takes only the same at both ends
    if not all(met):
        return _Meeting(slice(0), slice(0), (0, 0), 0, (count, 0))
    of_image, of_windows, of_taps = (
        slice(first := whole.index(part[0]), first + len(part)) for whole, part in zip(every, met, strict=True)
    )
    around = image[0] - windows[0] - offsets[0], max(0, windows[-1] + offsets[-1] - image[-1])
    return _Meeting(of_image, of_taps, around, len(windows), (of_windows.start, count - of_windows.stop))


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _convolution_of_meeting(image: Array, filter: Array, steps: _Steps) -> Array:
    suited, layouts = steps, _OF_DIRECTML
    if steps.is_on_cpu:
        outputs, channels, *_ = filter.shape
        suited, layouts = _with_gaps(steps, image.shape, channels, outputs), _OF_LIBRARIES
    plain = partial(_general_dilated, steps=suited, layouts=layouts)
    convolution = custom_vmap(plain)

    @convolution.def_vmap
    def mapped(size: int, is_batched: list[bool], image: Array, filter: Array) -> tuple[Array, bool]:
        # If every image has its own filters, JAX makes groups, whose number must be known, and XLA gathers them from
        # all devices. Matrix products stay sharded.
        way = partial(_in_columns, steps=steps) if all(is_batched) else plain
        return jax.vmap(way, [0 if one else None for one in is_batched])(image, filter), True

    result: Array = convolution(image, filter)
    return result


@_convolution_of_meeting.defjvp
def _convolution_jvp(steps: _Steps, primals: Any, tangents: Any) -> tuple[Array, Array]:
    # JAX does not transpose a convolution whose result is wider than its operands, so widen the operands.
    value = _convolution_of_meeting(*primals, steps)
    _require_known_windows(primals[1])  # JAX's derivative pads by them
    (image, filter), (of_image, of_filter) = ([x.astype(steps.sums) for x in both] for both in (primals, tangents))
    if any(stride > 1 and is_symbolic(size) for stride, size in zip(steps.strides, image.shape[2:], strict=True)):
        image, of_image = (_padded_to_windows(x, filter, steps) for x in (image, of_image))
        steps = steps._replace(padding=((0, 0),) * len(steps.padding))
    by_image = by_filter = partial(_general_dilated, steps=steps, layouts=_OF_DIRECTML)
    if steps.is_on_cpu:
        channels, outputs, *_ = filter.shape
        is_dense = math.prod(steps.strides) == 1  # otherwise the transpose has gaps already
        suited = _with_gaps(steps, image.shape, channels, outputs) if is_dense else steps
        by_image = partial(_general_dilated, steps=suited, layouts=_OF_LIBRARIES_BY_IMAGE)
        by_filter = partial(_general_dilated, steps=steps, layouts=_OF_LIBRARIES_BY_FILTER)
    return value, by_image(of_image, filter) + by_filter(image, of_filter)


def _require_known_windows(filter: Array) -> None:
    rule = "must have spatial sizes that are known while tracing"
    require("filter", not any(map(is_symbolic, filter.shape[2:])), rule, f"shape {filter.shape}", Unsupported)


def _padded_to_windows(image: Array, filter: Array, steps: _Steps) -> Array:
    """The image with its padding, up to where the last window ends.

    JAX cannot transpose a convolution if an open size decides how much remains behind it.
    """
    amounts = [(0, 0, 0), (0, 0, 0)]
    each = zip(image.shape[2:], filter.shape[2:], steps.strides, steps.filter_dilation, steps.padding, strict=True)
    for image_size, size, stride, dilation, (before, after) in each:
        window = Window(image_size, size, stride, dilation, before, after)
        end = (window.blocks - 1) * window.stride + window.extent
        amounts.append((window.start_padding, end - window.start_padding - window.input_size, 0))
    return lax.pad(image, jnp.zeros((), image.dtype), amounts)


# The orders of dimensions for XLA, of image, filter and result, with {} for space. XLA's libraries on CPU know one
# order. XLA reorders a convolution itself at the top level of a computation, but in a loop or a branch it runs any
# other order without the libraries, 25 times as slowly. The last two are orders whose transposes by the image and by
# the filter, as JAX writes them, have the libraries' order.
_OF_DIRECTML = "NC{}", "OI{}", "NC{}"
_OF_LIBRARIES = "N{}C", "{}IO", "N{}C"
_OF_LIBRARIES_BY_IMAGE = "N{}C", "{}OI", "N{}C"
_OF_LIBRARIES_BY_FILTER = "C{}N", "I{}O", "{}NC"


def _general_dilated(image: Array, filter: Array, steps: _Steps, layouts: Sequence[str]) -> Array:
    space = "DHW"[-len(steps.strides) :]
    own, wanted = ([one.format(space) for one in several] for several in (_OF_DIRECTML, layouts))
    there = [[mine.index(axis) for axis in other] for mine, other in zip(own, wanted, strict=True)]
    found = lax.conv_general_dilated(
        lax.transpose(image, there[0]),
        lax.transpose(filter, there[1]),
        steps.strides,
        steps.padding,
        lhs_dilation=steps.image_dilation,
        rhs_dilation=steps.filter_dilation,
        dimension_numbers=(wanted[0], wanted[1], wanted[2]),
        feature_group_count=steps.group_count,
        precision=steps.precision,
        preferred_element_type=steps.sums,
    )
    return lax.transpose(found, [wanted[2].index(axis) for axis in own[2]])


_FEWEST_CHANNELS = 16
_FEWEST_PLACES, _MANY_CHANNELS = 512, 256


def _with_gaps(steps: _Steps, image_sizes: Sequence[int], channels: int, outputs: int) -> _Steps:
    """The same convolution with gaps between the rows of the image, and filters that step over them.

    XLA on CPU gives a two-dimensional convolution to YNNPACK, which computes 64 channels in one thread, but one with
    gaps to Eigen, which uses all threads. Eigen gets convolutions with few channels and outputs anyway. Gaps slow down
    small images and those with few channels: 64 x 6 x 6 to 32 takes 0.12 ms with gaps, and 0.04 without. With a
    symbolic size, JAX does not see that the result has as many rows as without gaps.
    """
    batch, _, rows, *columns = image_sizes
    if len(steps.strides) != 2 or max(steps.image_dilation) > 1 or any(map(is_symbolic, (rows, channels, outputs))):
        return steps
    if channels < _FEWEST_CHANNELS or max(channels, outputs) <= _FEWEST_CHANNELS:
        return steps
    places = batch * rows * math.prod(columns) // math.prod(steps.strides)
    if channels < _MANY_CHANNELS and at_most(places, _FEWEST_PLACES - 1):
        return steps
    (stride, *strides), ((before, after), *padding) = steps.strides, steps.padding
    dilation, *dilations = steps.filter_dilation
    return steps._replace(
        strides=(2 * stride, *strides),
        padding=((2 * before, 2 * after), *padding),
        image_dilation=(2, 1),
        filter_dilation=(2 * dilation, *dilations),
    )


def _in_columns(image: Array, filter: Array, steps: _Steps) -> Array:
    """Computes the product of two matrices: the filters, and all elements of each window."""
    image, filter = image.astype(steps.sums), filter.astype(steps.sums)
    apart = [(0, 0, 0), (0, 0, 0), *((0, 0, dilation - 1) for dilation in steps.image_dilation)]
    dilated = lax.pad(image, jnp.zeros((), image.dtype), apart)
    sizes = zip(dilated.shape[2:], filter.shape[2:], steps.strides, steps.filter_dilation, strict=True)
    windows = tuple(Window(*numbers, *padding) for numbers, padding in zip(sizes, steps.padding, strict=True))
    return _product_of_columns(dilated, filter, Sliding(windows, steps.group_count, steps.precision))


def _product_of_columns(image: Array, filter: Array, sliding: Sliding) -> Array:
    windows, group_count, precision = sliding
    batch, outputs = image.shape[0], filter.shape[0]
    terms, places = math.prod(filter.shape[1:]), math.prod(one.blocks for one in windows)
    columns = unfolded(image, windows).reshape(batch, group_count, terms, places)
    matrix = filter.reshape(1, group_count, outputs // group_count, terms)
    matrix = jnp.broadcast_to(matrix, (batch, *matrix.shape[1:]))
    found = lax.dot_general(matrix, columns, (((3,), (2,)), ((0, 1), (0, 1))), precision=precision)
    return found.reshape(batch, outputs, *(one.blocks for one in windows))


# On a CPU


# The lowering of a forward convolution on a CPU, with milliseconds on two cores for batch 1 and 8, against those of
# `lax.conv_general_dilated`:
#   groups of one channel, 3 x 3, 96 x 112 x 112     shifted products       0.9 and 44 vs. 194 and 485
#   32 groups of 4 channels, 3 x 3, 128 x 56 x 56    shifted products       0.8 and 6.3 vs. 18 and 199; matrices 3.0
#   32 groups of 16 channels, 3 x 3, 512 x 14 x 14   matrices               0.65 vs. 1.8
#   1 x 1, 16 x 112 x 112 to 96                      matrices               0.55 and 17 vs. 2.1 and 104
#   1 x 1, 512 x 13 x 13 to 1000                     matrices               1.3 and 19 vs. 4.0 and 30
#   16 x 16, stride 16, 3 x 224 x 224 to 768         matrices               2.7 vs. 3.6
#   3 x 3, stride 2, 3 x 224 x 224 to 64             matrices (few terms)   0.52 and 6.9 vs. 1.1 and 13
#   7 x 7, stride 2, 3 x 224 x 224 to 64             matrices (few terms)   2.3 and 28 vs. 2.8 and 42
#   3 x 3, 512 x 7 x 7 to 512                        matrices (few places)  2.4 vs. 4.6; gaps 3.7
#     of batch 8                                     gaps                   11 vs. 13; matrices 14
#   3 x 3, 256 x 14 x 14 to 256                      matrices (few places)  1.4 vs. 1.7; gaps 1.7
#   3 x 3, 128 x 28 x 28 to 128                      gaps                   1.4 and 11 vs. 1.5 and 12
#   3 x 3, 64 x 56 x 56 to 64                        gaps                   1.6 and 18 vs. 2.6 and 24
#   3 x 3, stride 2, 64 x 56 x 56 to 128             gaps                   0.83 and 8.0 vs. 1.4 and 14
#   3 x 3, 32 x 27 x 27 to 128                       gaps                   0.48 and 3.2 vs. 0.66 and 5.6
#   3 x 3, 8 x 112 x 112 to 16                       plain                  0.52 and 4.2; gaps 0.64 and 5.0
#   9 x 9, 16 x 180 x 180 to 3                       rows                   13 vs. 64 (another, busy machine)
#   9 x 9, 16 x 180 x 180 to 16                      plain                  60; rows 92
#   7 x 7, 16 x 90 x 90 to 3                         rows                   1.4 vs. 8.0
#   7 x 7, 64 x 56 x 56 to 3                         plain                  2.0; rows 2.0
#   3 x 3, 64 x 112 x 112 to 3                       plain                  3.5; rows 4.1
#   3 x 3, 64 x 14 x 14 to 64                        plain                  0.19; gaps 0.26 (from here on, busy as well)
#   3 x 3, dilation 12, 960 x 14 x 14 to 256         inner products         4.7; matrices 22
#   3 x 3, dilation 24, 64 x 33 x 33 to 64           inner products         0.41; gaps 1.1
#   3 x 3, dilation 3, 256 x 4 x 4 to 256            matrices               0.25; inner products 0.44
#   7 x 7 x 7, stride 2, 3 x 16 x 32 x 32 to 64      slices                 4.4 vs. 30
#   3 x 3 x 3, 64 x 8 x 14 x 14 to 64                slices                 4.5 vs. 15
#   3, 64 x 100 to 64                                matrices               0.05 vs. 0.1
#   5, 256 x 400 to 256                              matrices               2.6 vs. 2.8
#   7, 32 x 16000 to 1                               plain                  0.97; matrices 1.7
# With few places or few terms, the columns of one image are larger than its input and output together.
_MOST_PRODUCTS = 49  # added up one after another, and compiled as one loop
_FEW_CHANNELS = 4
_FEW_TERMS = 150
_FEW_PLACES = 300
_FEW_OUTPUTS = 8
_MOST_NARROW_CHANNELS = 16
_MANY_ROWS = 7
_FEW_PLACES_OF_LINES = 1000
_FEW_TERMS_OF_LINES = 2**27
_MOST_TAPS = 27
_FEWEST_PLACES_OF_TAPS = 64


def _on_cpu(image: Array, filter: Array, sliding: Sliding, *, is_filter_given: bool = True) -> Array:
    windows, group_count, _ = sliding
    channels = filter.shape[1]
    if any(is_symbolic(one.size) for one in windows):
        return _convolution(image, filter, _steps(sliding, image.dtype, is_on_cpu=True))
    if are_channels_last() and (lowering := _with_channels_last(filter, sliding)) is not None:
        return with_channels_last(lowering, image)
    if group_count > 1 and at_most(channels, _FEW_CHANNELS) and at_most(_terms(filter), _MOST_PRODUCTS):
        return _shifted_products(image, filter, sliding)
    if group_count == 1 and _is_mostly_padding(filter, windows):
        return with_channels_last(partial(_inner_products, filter=filter, sliding=sliding), image)
    if group_count > 1 or _is_matrix(image, filter, windows, is_filter_given=is_filter_given):
        return _in_matrices(image, filter, sliding)
    if len(windows) == 3:
        return _in_slices(image, filter, sliding, is_filter_given=is_filter_given)
    is_narrow = at_most(filter.shape[0], _FEW_OUTPUTS) and at_most(channels, _MOST_NARROW_CHANNELS)
    if is_narrow and windows[0].stride == 1 and windows[0].size >= _MANY_ROWS:
        return _in_rows(image, filter, sliding)
    return _convolution(image, filter, _steps(sliding, image.dtype, is_on_cpu=True))


def _is_matrix(image: Array, filter: Array, windows: Sequence[Window], *, is_filter_given: bool) -> bool:
    """Whether a matrix product is fastest: for windows that do not overlap, have few elements, or are few.

    With few windows, XLA's convolution spends most of its time reordering the filters. A product avoids that, unless
    the filters are in order already, as in the other direction.
    """
    if all(at_most(one.extent, one.stride) for one in windows):
        return True
    outputs, channels, *_ = filter.shape
    if at_most(channels, _FEW_CHANNELS) and at_most(_terms(filter), _FEW_TERMS) and not are_channels_last():
        return True
    places = image.shape[0] * math.prod(one.blocks for one in windows)
    terms = places * math.prod(filter.shape)
    if len(windows) == 1 and at_most(places, _FEW_PLACES_OF_LINES) and at_most(terms, _FEW_TERMS_OF_LINES):
        return True
    return is_filter_given and at_most(places, _FEW_PLACES) and at_most(places - outputs, 0)


def _is_mostly_padding(filter: Array, windows: Sequence[Window]) -> bool:
    """Whether at least half of what windows with a stride of 1 read is padding, as with large dilations.

    Splitting the filters does not pay for small images.
    """
    if any(one.stride > 1 or is_symbolic(one.blocks) for one in windows):
        return False
    taps, places = math.prod(filter.shape[2:]), math.prod(one.blocks for one in windows)
    if taps > _MOST_TAPS or places < _FEWEST_PLACES_OF_TAPS:
        return False
    inside = math.prod(sum(len(_inside(one, i)) for i in range(one.size)) for one in windows)
    return 0 < 2 * inside <= taps * places


def _inside(one: Window, i: int) -> range:
    """The windows of stride 1 whose element `i` is not padding."""
    shift = i * one.dilation - one.start_padding
    return range(max(0, -shift), min(one.blocks, one.input_size - shift))


def _transposed_on_cpu(image: Array, filter: Array, sliding: Sliding) -> Array:
    phases = math.prod(one.stride for one in sliding.windows)
    if phases > _MOST_PHASES or any(map(is_symbolic, (*image.shape[2:], *filter.shape[2:]))):
        return _plain_transposed(image, filter, sliding, image.dtype, is_on_cpu=True)
    return _in_phases(image, filter, sliding)


_MOST_PHASES = 27


class _Phase(NamedTuple):
    """Elements of a result that are a stride apart: a convolution of stride 1 with some elements of the filter."""

    window: Window
    taps: slice


def _phases(one: Window, count: int) -> list[_Phase | None]:
    """For each phase of a dimension, its convolution over `count` elements of the image, or None for zeros."""
    common = math.gcd(one.stride, one.dilation)
    step, dilation = one.stride // common, one.dilation // common
    places = -(-one.input_size // one.stride)
    found: list[_Phase | None] = []
    for phase in range(one.stride):
        # Element i of the image, times element k of the filter, is added at i * stride + k * dilation.
        first = next((k for k in range(step) if (phase + one.start_padding - k * one.dilation) % one.stride == 0), None)
        if first is None or first >= one.size:
            found.append(None)
            continue
        taps = slice(first, one.size, step)
        size = len(range(one.size)[taps])
        lowest = (phase + one.start_padding - first * one.dilation) // one.stride - (size - 1) * dilation
        end = places + (size - 1) * dilation - count + lowest
        meets_image = lowest < count and places + (size - 1) * dilation + lowest > 0
        window = Window(count, size, 1, dilation, -lowest, end)
        found.append(_Phase(window, taps) if meets_image else None)
    return found


def _in_phases(image: Array, filter: Array, sliding: Sliding) -> Array:
    windows, group_count, _ = sliding
    swapped = _swapped(filter, group_count)
    each = [_phases(one, count) for one, count in zip(windows, image.shape[2:], strict=True)]
    places = [-(-one.input_size // one.stride) for one in windows]
    # Compute phases that read the same elements of the image as one convolution, each with some of the filters.
    numbers_by_windows: dict[tuple[Window, ...], list[int]] = {}
    parts: list[Any] = []
    for phases in itertools.product(*each):
        known = [one for one in phases if one is not None]
        if len(known) < len(phases):
            parts.append(jnp.zeros((image.shape[0], swapped.shape[0], *places), image.dtype))
            continue
        numbers_by_windows.setdefault(tuple(one.window for one in known), []).append(len(parts))
        taps = swapped[(slice(None), slice(None), *(one.taps for one in known))]
        parts.append(lax.rev(taps, range(2, filter.ndim)))
    for of_phases, numbers in numbers_by_windows.items():
        filters = _side_by_side([parts[number] for number in numbers], group_count)
        found = _on_cpu(image, filters, sliding._replace(windows=of_phases), is_filter_given=False)
        for number, part in zip(numbers, _apart(found, len(numbers), group_count), strict=True):
            parts[number] = part
    whole = _interleaved(parts, [one.stride for one in windows])
    return lax.slice(whole, (0,) * whole.ndim, (*whole.shape[:2], *(one.input_size for one in windows)))


def _side_by_side(filters: Sequence[Array], group_count: int) -> Array:
    """Joins several sets of filters, with the outputs of a group next to each other."""
    by_group = [one.reshape(group_count, -1, *one.shape[1:]) for one in filters]
    stacked = jnp.stack(by_group, 1)
    return stacked.reshape(-1, *stacked.shape[3:])


def _apart(found: Array, count: int, group_count: int) -> list[Array]:
    """Splits the results of `count` joined sets of filters."""
    batch, outputs, *space = found.shape
    by_set = jnp.moveaxis(found.reshape(batch, group_count, count, -1, *space), 2, 0)
    return list(by_set.reshape(count, batch, outputs // count, *space))


def _interleaved(parts: Sequence[Array], strides: Sequence[int]) -> Array:
    """Interleaves parts of an image whose elements are `strides` apart; parts of the last dimension come first."""
    for axis, stride in reversed(list(enumerate(strides, 2))):
        sizes = replaced(parts[0].shape, axis, stride * parts[0].shape[axis])
        rows = [parts[i : i + stride] for i in range(0, len(parts), stride)]
        parts = [jnp.stack(row, axis + 1).reshape(sizes) for row in rows]
    return parts[0]


# With channels last, in a network


def _with_channels_last(filter: Array, sliding: Sliding) -> Callable[[Array], Array] | None:
    """Returns a lowering with channels last for these filters, or None if they gain nothing from it."""
    windows, group_count, precision = sliding
    outputs, channels = filter.shape[:2]
    places = math.prod(one.size for one in windows)
    if group_count == outputs and channels == 1 and places <= _MOST_PRODUCTS:
        return partial(_products_of_channels, filter=filter, windows=windows)
    if group_count == 1 and (places == 1 or (channels > 1 and channels * places <= _FEW_TERMS_BESIDE)):
        return partial(_product_of_taps, filter=filter, windows=windows, precision=precision)
    return None


# For 3 x 3 filters, stride 2, 3 x 224 x 224 to 32, a product takes 0.73 ms, and XLA's convolution 1.5. For one channel,
# 128 x 128 to 32, it takes 0.47 ms, and the convolution 0.24; for 7 x 7 filters, 3.5 and 2.5 ms.
_FEW_TERMS_BESIDE = 32


def _products_of_channels(image: Array, filter: Array, windows: Sequence[Window]) -> Array:
    """Adds up shifted images, each times an element of all filters, if each channel has its own filter."""
    # Keep them in memory: otherwise XLA would read scattered elements of the filters in each step of the loop.
    factors = in_memory(filter.reshape(filter.shape[0], -1).T).reshape(-1, *[1] * (image.ndim - 1), image.shape[-1])
    products = (tap * factor for tap, factor in zip(_taps_before_channels(image, windows), factors, strict=True))
    total: Array = functools.reduce(operator.add, products)
    return total


def _product_of_taps(image: Array, filter: Array, windows: Sequence[Window], precision: PrecisionLike) -> Array:
    """Multiplies all elements of a window, side by side, by the filters, if these have few elements."""
    beside = lax.concatenate(_taps_before_channels(image, windows), image.ndim - 1)
    matrix = jnp.moveaxis(filter, 1, -1).reshape(filter.shape[0], -1)
    return lax.dot_general(beside, matrix, (((beside.ndim - 1,), (1,)), ((), ())), precision)


def _taps_before_channels(image: Array, windows: Sequence[Window]) -> list[Array]:
    """The elements at each place of a window."""
    padded = _padded(image, windows, first_axis=1)
    return [_tap(padded, windows, place, first_axis=1) for place in _places(windows)]


# With channels before the spatial dimensions


def _padded(image: Array, windows: Sequence[Window], first_axis: int = 2) -> Array:
    amounts = [(0, 0, 0)] * image.ndim
    amounts[first_axis : first_axis + len(windows)] = [(one.start_padding, one.end_padding, 0) for one in windows]
    return lax.pad(image, jnp.zeros((), image.dtype), amounts)


def _tap(padded: Array, windows: Sequence[Window], place: Sequence[int], first_axis: int = 2) -> Array:
    """The element at `place` of every window; `first_axis` is the first spatial dimension."""
    for axis, (i, one) in enumerate(zip(place, windows, strict=True), first_axis):
        start = i * one.dilation
        padded = lax.slice_in_dim(padded, start, start + (one.blocks - 1) * one.stride + 1, one.stride, axis)
    return padded


def _places(windows: Sequence[Window]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(one.size) for one in windows)))


def _shifted_products(image: Array, filter: Array, sliding: Sliding) -> Array:
    """Adds up shifted images, each times an element of the filters, for groups of few channels."""
    windows, group_count, _ = sliding
    outputs, channels = filter.shape[:2]
    padded = _padded(image, windows)
    of_groups = padded.reshape(replaced(padded.shape, 1, group_count, channels))
    filters = filter.reshape(group_count, outputs // group_count, *filter.shape[1:])
    products = []
    for channel in range(channels):
        for place in _places(windows):
            tap = _tap(of_groups[:, :, channel], windows, place)
            factor = filters[(slice(None), slice(None), channel, *place)]
            products.append(tap[:, :, None] * factor.reshape(1, *factor.shape, *(1 for _ in windows)))
    total: Array = functools.reduce(operator.add, products)
    return total.reshape(image.shape[0], outputs, *total.shape[3:])


def _in_rows(image: Array, filter: Array, sliding: Sliding) -> Array:
    """Adds up shifted convolutions, one for each row of the filters and computed together, for few filters."""
    first, *others = sliding.windows
    outputs, channels, rows, *space = filter.shape
    each = jnp.moveaxis(filter, 2, 0).reshape(rows * outputs, channels, 1, *space)
    of_rows = sliding._replace(windows=(first._replace(size=1, dilation=1), *others))
    found = _convolution(image, each, _steps(of_rows, image.dtype, is_on_cpu=True))
    parts = found.reshape(replaced(found.shape, 1, rows, outputs))
    shifted = (
        lax.slice_in_dim(parts[:, row], row * first.dilation, row * first.dilation + first.blocks, axis=2)
        for row in range(rows)
    )
    total: Array = functools.reduce(operator.add, shifted)
    return total


def _in_slices(image: Array, filter: Array, sliding: Sliding, *, is_filter_given: bool) -> Array:
    """Convolves three dimensions as the last two, with the slices of each window as channels."""
    first, *others = sliding.windows
    padded = _padded(image, [first])
    slices = [_tap(padded, [first], [i]) for i in range(first.size)]
    images = jnp.moveaxis(lax.concatenate(slices, 1), 2, 1)
    filters = jnp.moveaxis(filter, 2, 1)
    found = _on_cpu(
        images.reshape(-1, *images.shape[2:]),
        filters.reshape(filter.shape[0], -1, *filter.shape[3:]),
        sliding._replace(windows=tuple(others)),
        is_filter_given=is_filter_given,
    )
    return jnp.moveaxis(found.reshape(*images.shape[:2], *found.shape[1:]), 1, 2)


def _inner_products(image: Array, filter: Array, sliding: Sliding) -> Array:
    """Adds up matrix products, one for each place of a window, without padding; channels are last."""
    windows, _, precision = sliding
    products = []
    for place in _places(windows):
        inside = [_inside(one, i) for i, one in zip(place, windows, strict=True)]
        if not all(inside):
            continue
        part = image
        for axis, (i, one, blocks) in enumerate(zip(place, windows, inside, strict=True), 1):
            shift = i * one.dilation - one.start_padding
            part = lax.slice_in_dim(part, blocks.start + shift, blocks.stop + shift, axis=axis)
        taps = filter[(slice(None), slice(None), *place)]
        product = lax.dot_general(part, taps, (((part.ndim - 1,), (1,)), ((), ())), precision)
        around = [(blocks.start, one.blocks - blocks.stop, 0) for one, blocks in zip(windows, inside, strict=True)]
        products.append(lax.pad(product, jnp.zeros((), product.dtype), [(0, 0, 0), *around, (0, 0, 0)]))
    total: Array = functools.reduce(operator.add, products)
    return total


def _in_matrices(image: Array, filter: Array, sliding: Sliding) -> Array:
    """Computes matrix products, one per image of a batch, which takes down to half the time of one for all."""
    batch = image.shape[0]
    if is_symbolic(batch) or batch == 1 or may_be_sharded(image):
        return _product_of_columns(image, filter, sliding)
    found: Array = lax.map(lambda one: _product_of_columns(one[None], filter, sliding)[0], image)
    return found


# Integers

_EXACT = 2**24  # float32 holds every integer up to this


def integer_convolved(
    image: Array, filter: Array, sliding: Sliding, largest: tuple[int, int], *, wraps: bool
) -> list[Array]:
    """Computes `convolved` of integers exactly in float32; returns int32 parts that the caller adds up.

    `largest` has the largest magnitudes in the image and in the filter, of at most 8 bits. If the sum `wraps`, it may
    wrap around as int32 does.
    """
    terms = _terms(filter)
    if is_symbolic(terms):
        _require_known_windows(filter)
        most = INT_MAX // math.prod(largest)
        rule = f"must have at most {most} products in a sum, so that int32 holds it"
        require("filter", wraps or fits(terms, most), rule, terms, Unsupported)
        in_columns = partial(_product_of_columns, sliding=sliding)
        operands = image.astype(np.int32), filter.astype(np.int32)
        return [choose(*operands, tpu=partial(_of_integers, sliding=sliding), default=in_columns)]
    if terms * math.prod(largest) > INT_MAX or 0 in (*image.shape, *filter.shape):
        return _parts_of_floats(image, filter, sliding, largest)

    def in_all(image: Array, filter: Array) -> Array:
        return functools.reduce(operator.add, _parts_of_floats(image, filter, sliding, largest))

    return [choose(image, filter, tpu=partial(_of_integers, sliding=sliding), default=in_all)]


def _of_integers(image: Array, filter: Array, sliding: Sliding) -> Array:
    return _plain(image.astype(np.int32), filter.astype(np.int32), sliding, sums=np.int32)


def _terms(filter: Array) -> int:
    """The number of products in each sum of a convolution."""
    return math.prod(filter.shape[1:])


def _parts_of_floats(image: Array, filter: Array, sliding: Sliding, largest: tuple[int, int]) -> list[Array]:
    of_image, of_filter = largest
    terms, (_, channels, *_) = _terms(filter), filter.shape
    if terms * of_image * of_filter <= _EXACT:
        return [convolved(image, filter, sliding).astype(np.int32)]
    if terms * of_image * 16 <= _EXACT:
        return [_in_two_digits(image, filter, sliding)]
    if channels == 1:
        return [_of_integers(image, filter, sliding)]
    of_groups = image.reshape(replaced(image.shape, 1, sliding.group_count, channels))
    parts: list[Array] = []
    for half in (slice(channels // 2), slice(channels // 2, None)):
        some = filter[:, half]
        of_some = of_groups[:, :, half].reshape(replaced(image.shape, 1, sliding.group_count * some.shape[1]))
        parts += _parts_of_floats(of_some, some, sliding, largest)
    return parts


def _in_two_digits(image: Array, filter: Array, sliding: Sliding) -> Array:
    """Splits filters into `16 * high + low`, whose sums are exact, and computes both in one convolution."""
    outputs, channels, *space = filter.shape
    high = jnp.floor(filter / 16)
    digits = jnp.stack([high, filter - 16 * high], axis=1)  # the two digits of an output channel are neighbors
    both = convolved(image, digits.reshape(2 * outputs, channels, *space), sliding).astype(np.int32)
    pairs = both.reshape(replaced(both.shape, 1, outputs, 2))
    return 16 * pairs[:, :, 0] + pairs[:, :, 1]
