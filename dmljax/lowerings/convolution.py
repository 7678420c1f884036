"""Convolutions: sums of products of an image's windows with filters, in both directions, and which lowering is fastest.

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

from dmljax.checks import INT_MAX
from dmljax.lowerings.channels import are_channels_last, with_channels_last
from dmljax.lowerings.columns import unfolded
from dmljax.lowerings.platform import choose
from dmljax.lowerings.sharding import may_be_sharded
from dmljax.lowerings.sizes import is_symbolic, replaced
from dmljax.lowerings.windows import Window
from dmljax.lowerings.workarounds import in_memory
from dmljax.types import widened

# Both directions


def correlated(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, precision: PrecisionLike
) -> Array:
    """The products of each window of the image with each filter, added up in float32, or in float64 if that is given.

    The result has the type of the sums.
    """
    if 0 in (*image.shape, *filter.shape):
        sizes = (image.shape[0], filter.shape[0], *(one.blocks for one in windows))
        return jnp.zeros_like(image, shape=sizes, dtype=widened(image.dtype))
    plain = partial(_plain, windows=windows, group_count=group_count, precision=precision)
    on_cpu = partial(_on_cpu, windows=windows, group_count=group_count, precision=precision)
    # Save no intermediates for the backward pass on a CPU.
    result: Array = choose(image, filter, cpu=jax.checkpoint(on_cpu), default=plain)
    return result


def transposed(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, precision: PrecisionLike
) -> Array:
    """The gradient of `correlated`: each element of the image, times the filter, is added to a window of the result.

    `windows` slide over the result, and the image has an element for each of them, or for the first of them. The filter
    has input channels first, and then the output channels of a group.
    """
    if 0 in (*image.shape, *filter.shape):
        sizes = (image.shape[0], filter.shape[1] * group_count, *(one.input_size for one in windows))
        return jnp.zeros_like(image, shape=sizes, dtype=widened(image.dtype))
    plain = partial(_plain_transposed, windows=windows, group_count=group_count, precision=precision)
    on_cpu = partial(_transposed_on_cpu, windows=windows, group_count=group_count, precision=precision)
    result: Array = choose(image, filter, cpu=jax.checkpoint(on_cpu), default=plain)
    return result


# One operation of XLA


def _plain(
    image: Array,
    filter: Array,
    windows: Sequence[Window],
    group_count: int,
    precision: PrecisionLike,
    *,
    is_on_cpu: bool = False,
) -> Array:
    padding = [(one.start_padding, one.end_padding) for one in windows]
    steps = _Steps.of(windows, padding, group_count, precision, is_on_cpu)
    return _convolution(image, filter, steps)


def _plain_transposed(
    image: Array,
    filter: Array,
    windows: Sequence[Window],
    group_count: int,
    precision: PrecisionLike,
    *,
    is_on_cpu: bool = False,
) -> Array:
    padding = []
    for one, count in zip(windows, image.shape[2:], strict=True):
        before = one.extent - 1 - one.start_padding
        dilated = (count - 1) * one.stride + 1
        padding.append((before, one.input_size + one.extent - 1 - before - dilated))
    steps = _Steps.of(windows, padding, group_count, precision, is_on_cpu)
    flipped = lax.rev(_swapped(filter, group_count), range(2, filter.ndim))
    return _convolution(image, flipped, steps._replace(strides=steps.image_dilation, image_dilation=steps.strides))


def _swapped(filter: Array, group_count: int) -> Array:
    """A filter with output channels first, of one with input channels first, or the other way round."""
    first, second, *space = filter.shape
    of_groups = filter.reshape(group_count, first // group_count, second, *space)
    return jnp.swapaxes(of_groups, 1, 2).reshape(group_count * second, first // group_count, *space)


class _Steps(NamedTuple):
    """How filters step along each dimension of space, as `lax.conv_general_dilated` has it."""

    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    image_dilation: tuple[int, ...]
    filter_dilation: tuple[int, ...]
    group_count: int
    precision: PrecisionLike
    is_on_cpu: bool

    @classmethod
    def of(cls, windows: Sequence[Window], padding: Sequence[tuple[int, int]], *options: Any) -> "_Steps":
        """The steps of windows over an image without gaps."""
        strides, dilations = tuple(one.stride for one in windows), tuple(one.dilation for one in windows)
        return cls(strides, tuple(padding), (1,) * len(windows), dilations, *options)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _convolution(image: Array, filter: Array, steps: _Steps) -> Array:
    @custom_vmap
    def convolution(image: Array, filter: Array) -> Array:
        return _general_dilated(image, filter, steps)

    @convolution.def_vmap
    def _(size: int, is_batched: list[bool], image: Array, filter: Array) -> tuple[Array, bool]:
        if all(is_batched):
            # JAX makes groups of images with filters of their own, whose number must be known, and which XLA gathers
            # from all devices. Products of matrices stay where they are.
            return jax.vmap(partial(_in_columns, steps=steps))(image, filter), True
        return (_of_images if is_batched[0] else _of_filters)(image, filter, steps), True

    result: Array = convolution(image, filter)
    return result


def _of_images(images: Array, filter: Array, steps: _Steps) -> Array:
    """`_convolution` of several batches of images."""
    found = _convolution(images.reshape(-1, *images.shape[2:]), filter, steps)
    return found.reshape(*images.shape[:2], *found.shape[1:])


def _of_filters(image: Array, filters: Array, steps: _Steps) -> Array:
    """`_convolution` with several sets of filters."""
    count, outputs, *sizes = filters.shape
    groups = steps.group_count
    by_group = jnp.swapaxes(filters.reshape(count, groups, outputs // groups, *sizes), 0, 1)
    found = _convolution(image, by_group.reshape(count * outputs, *sizes), steps)
    apart = found.reshape(found.shape[0], groups, count, outputs // groups, *found.shape[2:])
    return jnp.moveaxis(apart, 2, 0).reshape(count, found.shape[0], outputs, *found.shape[2:])


def _general_dilated(image: Array, filter: Array, steps: _Steps) -> Array:
    if not steps.is_on_cpu:
        return _ordered(image, filter, steps, _Orders.of_directml(image.ndim))
    outputs, channels, *_ = filter.shape
    return _ordered(
        image, filter, _with_gaps(steps, image.shape[2], channels, outputs), _Orders.of_libraries(image.ndim)
    )


@_convolution.defjvp
def _convolution_jvp(steps: _Steps, primals: Any, tangents: Any) -> tuple[Array, Array]:
    # JAX does not transpose a convolution whose result is wider than its operands: derivatives are of wide operands.
    wide = widened(primals[0].dtype)
    (image, filter), (of_image, of_filter) = ([x.astype(wide) for x in both] for both in (primals, tangents))
    return _convolution(*primals, steps), _by_image(of_image, filter, steps) + _by_filter(image, of_filter, steps)


def _by_image(tangent: Array, filter: Array, steps: _Steps) -> Array:
    """The convolution of a tangent of the image; a gradient is computed by its transpose."""
    if not steps.is_on_cpu:
        return _general_dilated(tangent, filter, steps)
    if math.prod(steps.strides) == 1:  # otherwise, the transpose has gaps already
        channels, outputs, *_ = filter.shape
        suited = _with_gaps(steps, tangent.shape[2], channels, outputs)
    else:
        suited = steps
    return _ordered(tangent, filter, suited, _Orders.of_libraries_by_image(tangent.ndim))


def _by_filter(image: Array, tangent: Array, steps: _Steps) -> Array:
    """The convolution with a tangent of the filter; a gradient is computed by its transpose."""
    if not steps.is_on_cpu:
        return _general_dilated(image, tangent, steps)
    return _ordered(image, tangent, steps, _Orders.of_libraries_by_filter(image.ndim))


class _Orders(NamedTuple):
    """The orders in which XLA has the dimensions of image, filter and result, which are numbered as in DirectML."""

    image: tuple[int, ...]
    filter: tuple[int, ...]
    result: tuple[int, ...]

    @classmethod
    def of_directml(cls, rank: int) -> "_Orders":
        return cls(*[tuple(range(rank))] * 3)

    @classmethod
    def of_libraries(cls, rank: int) -> "_Orders":
        """Channels last, the only order that XLA's libraries on CPU know.

        XLA reorders a convolution by itself at the top of a computation, but not in a loop or a branch, where one in
        another order is computed without the libraries and takes 25 times as long.
        """
        space = range(2, rank)
        return cls((0, *space, 1), (*space, 1, 0), (0, *space, 1))

    @classmethod
    def of_libraries_by_image(cls, rank: int) -> "_Orders":
        """The order whose transpose by the image, as JAX has it, is that of libraries."""
        space = range(2, rank)
        return cls((0, *space, 1), (*space, 0, 1), (0, *space, 1))

    @classmethod
    def of_libraries_by_filter(cls, rank: int) -> "_Orders":
        """The order whose transpose by the filter, as JAX has it, is that of libraries."""
        space = range(2, rank)
        return cls((1, *space, 0), (1, *space, 0), (*space, 0, 1))


def _ordered(image: Array, filter: Array, steps: _Steps, orders: _Orders) -> Array:
    places = [tuple(order.index(axis) for axis in range(image.ndim)) for order in orders]
    found = lax.conv_general_dilated(
        lax.transpose(image, orders.image),
        lax.transpose(filter, orders.filter),
        steps.strides,
        steps.padding,
        lhs_dilation=steps.image_dilation,
        rhs_dilation=steps.filter_dilation,
        dimension_numbers=lax.ConvDimensionNumbers(*places),
        feature_group_count=steps.group_count,
        precision=steps.precision,
        preferred_element_type=widened(image.dtype),
    )
    return lax.transpose(found, places[2])


_FEWEST_CHANNELS = 16


def _with_gaps(steps: _Steps, rows: int, channels: int, outputs: int) -> _Steps:
    """The same convolution, of an image with gaps between its rows and filters with gaps that step over them.

    XLA on CPU leaves a convolution over two dimensions to YNNPACK, which computes one of 64 channels in one thread, but
    one with gaps to Eigen, which computes it in all threads. Eigen has those of few channels and outputs anyway, and
    images of few channels are slower with gaps. Of a symbolic size, JAX does not see that the result has as many rows
    as without gaps.
    """
    if len(steps.strides) != 2 or max(steps.image_dilation) > 1 or is_symbolic(rows) or is_symbolic(channels):
        return steps
    if channels < _FEWEST_CHANNELS or max(channels, outputs) <= _FEWEST_CHANNELS:
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
    """As a product of matrices, of the filters and of all elements of each window."""
    wide = widened(image.dtype)
    image, filter = image.astype(wide), filter.astype(wide)
    apart = [(0, 0, 0), (0, 0, 0), *((0, 0, dilation - 1) for dilation in steps.image_dilation)]
    dilated = lax.pad(image, jnp.zeros((), wide), apart)
    sizes = zip(dilated.shape[2:], filter.shape[2:], steps.strides, steps.filter_dilation, strict=True)
    windows = [Window(*numbers, *padding) for numbers, padding in zip(sizes, steps.padding, strict=True)]
    return _product_of_columns(dilated, filter, windows, steps.group_count, steps.precision)


def _product_of_columns(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, precision: PrecisionLike
) -> Array:
    batch, outputs = image.shape[0], filter.shape[0]
    terms, places = math.prod(filter.shape[1:]), math.prod(one.blocks for one in windows)
    columns = unfolded(image, windows).reshape(batch, group_count, terms, places)
    matrix = filter.reshape(1, group_count, outputs // group_count, terms)
    matrix = jnp.broadcast_to(matrix, (batch, *matrix.shape[1:]))
    found = lax.dot_general(matrix, columns, (((3,), (2,)), ((0, 1), (0, 1))), precision=precision)
    return found.reshape(batch, outputs, *(one.blocks for one in windows))


# On a CPU


# Which lowering a forward convolution has on a CPU, by milliseconds on two cores, of batch 1 and 8, beside those of
# `lax.conv_general_dilated`:
#   each channel of its own, 3 x 3, 96 x 112 x 112   shifted products       0.9 and 44, beside 194 and 485
#   32 groups of 4 channels, 3 x 3, 128 x 56 x 56    shifted products       0.8 and 6.3, beside 18 and 199; matrices 3.0
#   32 groups of 16 channels, 3 x 3, 512 x 14 x 14   matrices               0.65, beside 1.8
#   1 x 1, 16 x 112 x 112 to 96                      matrices               0.55 and 17, beside 2.1 and 104
#   1 x 1, 512 x 13 x 13 to 1000                     matrices               1.3 and 19, beside 4.0 and 30
#   16 x 16, 16 apart, 3 x 224 x 224 to 768          matrices               2.7, beside 3.6
#   3 x 3, 2 apart, 3 x 224 x 224 to 64              matrices (few terms)   0.52 and 6.9, beside 1.1 and 13
#   7 x 7, 2 apart, 3 x 224 x 224 to 64              matrices (few terms)   2.3 and 28, beside 2.8 and 42
#   3 x 3, 512 x 7 x 7 to 512                        matrices (few places)  2.4, beside 4.6; gaps 3.7
#     of batch 8                                     gaps                   11, beside 13; matrices 14
#   3 x 3, 256 x 14 x 14 to 256                      matrices (few places)  1.4, beside 1.7; gaps 1.7
#   3 x 3, 128 x 28 x 28 to 128                      gaps                   1.4 and 11, beside 1.5 and 12
#   3 x 3, 64 x 56 x 56 to 64                        gaps                   1.6 and 18, beside 2.6 and 24
#   3 x 3, 2 apart, 64 x 56 x 56 to 128              gaps                   0.83 and 8.0, beside 1.4 and 14
#   3 x 3, 32 x 27 x 27 to 128                       gaps                   0.48 and 3.2, beside 0.66 and 5.6
#   3 x 3, 8 x 112 x 112 to 16                       plain                  0.52 and 4.2; gaps 0.64 and 5.0
#   9 x 9, 16 x 180 x 180 to 3                       rows                   13, beside 64 (another, busy machine)
#   9 x 9, 16 x 180 x 180 to 16                      plain                  60; rows 92
#   7 x 7, 16 x 90 x 90 to 3                         rows                   1.4, beside 8.0
#   7 x 7, 64 x 56 x 56 to 3                         plain                  2.0; rows 2.0
#   3 x 3, 64 x 112 x 112 to 3                       plain                  3.5; rows 4.1
# The columns of few places, and those of few terms, are larger than input and output together, for one image of a batch
# at a time.
_MOST_PRODUCTS = 49  # that are added up one after the other, and compiled in one loop
_FEW_CHANNELS = 4
_FEW_TERMS = 150
_FEW_PLACES = 300
_FEW_OUTPUTS = 8
_MOST_NARROW_CHANNELS = 16
_MANY_ROWS = 7


def _on_cpu(
    image: Array,
    filter: Array,
    windows: Sequence[Window],
    group_count: int,
    precision: PrecisionLike,
    *,
    is_filter_given: bool = True,
) -> Array:
    wide = widened(image.dtype)
    image, filter = image.astype(wide), filter.astype(wide)
    channels = filter.shape[1]
    terms = channels * math.prod(one.size for one in windows)
    if are_channels_last() and (lowering := _with_channels_last(filter, windows, group_count, precision)) is not None:
        return with_channels_last(lowering, image)
    if group_count > 1 and channels <= _FEW_CHANNELS and terms <= _MOST_PRODUCTS:
        return _shifted_products(image, filter, windows, group_count)
    if group_count > 1 or _is_matrix(image, filter, windows, is_filter_given=is_filter_given):
        return _in_matrices(image, filter, windows, group_count, precision)
    is_narrow = filter.shape[0] <= _FEW_OUTPUTS and channels <= _MOST_NARROW_CHANNELS
    if is_narrow and windows[0].stride == 1 and windows[0].size >= _MANY_ROWS:
        return _in_rows(image, filter, windows, precision)
    return _plain(image, filter, windows, 1, precision, is_on_cpu=True)


def _is_matrix(image: Array, filter: Array, windows: Sequence[Window], *, is_filter_given: bool) -> bool:
    """Whether a product of matrices is quickest: of windows that do not overlap, have few elements, or are few.

    For few windows, XLA's convolution takes longest to reorder the filters. A product saves that, unless the filters
    were reordered before, as they are in the other direction.
    """
    if all(one.stride >= one.extent for one in windows):
        return True
    outputs, channels, *_ = filter.shape
    if channels <= _FEW_CHANNELS and math.prod(filter.shape[1:]) <= _FEW_TERMS and not are_channels_last():
        return True
    places = image.shape[0] * math.prod(one.blocks for one in windows)
    return is_filter_given and not is_symbolic(places) and places <= min(outputs, _FEW_PLACES)


def _transposed_on_cpu(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, precision: PrecisionLike
) -> Array:
    wide = widened(image.dtype)
    image, filter = image.astype(wide), filter.astype(wide)
    if math.prod(one.stride for one in windows) > _MOST_PHASES or any(map(is_symbolic, image.shape[2:])):
        return _plain_transposed(image, filter, windows, group_count, precision, is_on_cpu=True)
    return _in_phases(image, filter, windows, group_count, precision)


_MOST_PHASES = 27


class _Phase(NamedTuple):
    """Elements of a result that are a stride apart, as a convolution of stride 1 with some elements of the filter."""

    window: Window
    taps: slice


def _phases(one: Window, count: int) -> list[_Phase | None]:
    """For each phase of a dimension, its convolution over `count` elements of the image, or None for zeros."""
    common = math.gcd(one.stride, one.dilation)
    step, dilation = one.stride // common, one.dilation // common
    places = -(-one.input_size // one.stride)
    found: list[_Phase | None] = []
    for phase in range(one.stride):
        # The element i of the image, times the element k of the filter, is added at i * stride + k * dilation.
        first = next((k for k in range(step) if (phase + one.start_padding - k * one.dilation) % one.stride == 0), None)
        if first is None or first >= one.size:
            found.append(None)
            continue
        taps = slice(first, one.size, step)
        size = len(range(one.size)[taps])
        lowest = (phase + one.start_padding - first * one.dilation) // one.stride - (size - 1) * dilation
        end = places + (size - 1) * dilation - count + lowest
        found.append(_Phase(Window(count, size, 1, dilation, -lowest, end), taps))
    return found


def _in_phases(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, precision: PrecisionLike
) -> Array:
    swapped = _swapped(filter, group_count)
    each = [_phases(one, count) for one, count in zip(windows, image.shape[2:], strict=True)]
    places = [-(-one.input_size // one.stride) for one in windows]
    # Phases that look at the same elements of the image are one convolution, of which each has some of the filters.
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
        found = _on_cpu(image, filters, of_phases, group_count, precision, is_filter_given=False)
        for number, part in zip(numbers, _apart(found, len(numbers), group_count), strict=True):
            parts[number] = part
    whole = _interleaved(parts, [one.stride for one in windows])
    return lax.slice(whole, (0,) * whole.ndim, (*whole.shape[:2], *(one.input_size for one in windows)))


def _side_by_side(filters: Sequence[Array], group_count: int) -> Array:
    """Several sets of filters as one, with the outputs of a group beside each other."""
    by_group = [one.reshape(group_count, -1, *one.shape[1:]) for one in filters]
    stacked = jnp.stack(by_group, 1)
    return stacked.reshape(-1, *stacked.shape[3:])


def _apart(found: Array, count: int, group_count: int) -> list[Array]:
    """The results of each of `count` sets of filters that were side by side."""
    batch, outputs, *space = found.shape
    by_set = jnp.moveaxis(found.reshape(batch, group_count, count, -1, *space), 2, 0)
    return list(by_set.reshape(count, batch, outputs // count, *space))


def _interleaved(parts: Sequence[Array], strides: Sequence[int]) -> Array:
    """An image of parts with elements that are `strides` apart, those of the last dimension first."""
    for axis, stride in reversed(list(enumerate(strides, 2))):
        sizes = replaced(parts[0].shape, axis, stride * parts[0].shape[axis])
        rows = [parts[i : i + stride] for i in range(0, len(parts), stride)]
        parts = [jnp.stack(row, axis + 1).reshape(sizes) for row in rows]
    return parts[0]


# With channels last, in a network


def _with_channels_last(
    filter: Array, windows: Sequence[Window], group_count: int, precision: PrecisionLike
) -> Callable[[Array], Array] | None:
    """The lowering of a convolution with these filters, or None where it is as it is without a network."""
    outputs, channels = filter.shape[:2]
    places = math.prod(one.size for one in windows)
    if group_count == outputs and channels == 1 and places <= _MOST_PRODUCTS:
        return partial(_products_of_channels, filter=filter, windows=windows)
    if group_count == 1 and (places == 1 or (channels > 1 and channels * places <= _FEW_TERMS_BESIDE)):
        return partial(_product_of_taps, filter=filter, windows=windows, precision=precision)
    return None


# Of three channels and 3 x 3 filters, 2 apart, 224 x 224 to 32, a product takes 0.73 ms, and XLA's convolution 1.5. Of
# one channel, 128 x 128 to 32, it takes 0.47 ms, and the convolution 0.24; of 7 x 7 filters, 3.5 and 2.5 ms.
_FEW_TERMS_BESIDE = 32


def _products_of_channels(image: Array, filter: Array, windows: Sequence[Window]) -> Array:
    """Of a filter for each channel: the sum of shifted images, each times an element of all filters."""
    # In memory, because XLA would read elements of the filters that lie apart again in each step of the loop.
    factors = in_memory(filter.reshape(filter.shape[0], -1).T).reshape(-1, *[1] * (image.ndim - 1), image.shape[-1])
    products = (tap * factor for tap, factor in zip(_taps_before_channels(image, windows), factors, strict=True))
    total: Array = functools.reduce(operator.add, products)
    return total


def _product_of_taps(image: Array, filter: Array, windows: Sequence[Window], precision: PrecisionLike) -> Array:
    """Of filters of few elements: the product of all elements of a window, side by side, and the filters."""
    beside = lax.concatenate(_taps_before_channels(image, windows), image.ndim - 1)
    matrix = jnp.moveaxis(filter, 1, -1).reshape(filter.shape[0], -1)
    return lax.dot_general(beside, matrix, (((beside.ndim - 1,), (1,)), ((), ())), precision)


def _taps_before_channels(image: Array, windows: Sequence[Window]) -> list[Array]:
    """For each place of a window, the elements there."""
    padded = _padded(image, windows, first_axis=1)
    return [_tap(padded, windows, place, first_axis=1) for place in _places(windows)]


# With channels before the dimensions of space


def _padded(image: Array, windows: Sequence[Window], first_axis: int = 2) -> Array:
    amounts = [(0, 0, 0)] * image.ndim
    amounts[first_axis : first_axis + len(windows)] = [(one.start_padding, one.end_padding, 0) for one in windows]
    return lax.pad(image, jnp.zeros((), image.dtype), amounts)


def _tap(padded: Array, windows: Sequence[Window], place: Sequence[int], first_axis: int = 2) -> Array:
    """The element at `place` of every window; the first dimension of windows is `first_axis`."""
    for axis, (i, one) in enumerate(zip(place, windows, strict=True), first_axis):
        start = i * one.dilation
        padded = lax.slice_in_dim(padded, start, start + (one.blocks - 1) * one.stride + 1, one.stride, axis)
    return padded


def _places(windows: Sequence[Window]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(one.size) for one in windows)))


def _shifted_products(image: Array, filter: Array, windows: Sequence[Window], group_count: int) -> Array:
    """Of groups of few channels: the sum of shifted images, each times an element of the filters."""
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


def _in_rows(image: Array, filter: Array, windows: Sequence[Window], precision: PrecisionLike) -> Array:
    """Of few filters: the sum of shifted convolutions, of which each row of the filters is one, computed together."""
    first, *others = windows
    outputs, channels, rows, *space = filter.shape
    each = jnp.moveaxis(filter, 2, 0).reshape(rows * outputs, channels, 1, *space)
    found = _plain(image, each, [first._replace(size=1, dilation=1), *others], 1, precision, is_on_cpu=True)
    parts = found.reshape(replaced(found.shape, 1, rows, outputs))
    shifted = (
        lax.slice_in_dim(parts[:, row], row * first.dilation, row * first.dilation + first.blocks, axis=2)
        for row in range(rows)
    )
    total: Array = functools.reduce(operator.add, shifted)
    return total


def _in_matrices(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, precision: PrecisionLike
) -> Array:
    """As products of matrices, of which one for each image of a batch takes down to half the time of one for all."""

    def convolve(image: Array) -> Array:
        return _product_of_columns(image, filter, windows, group_count, precision)

    batch = image.shape[0]
    if is_symbolic(batch) or batch == 1 or may_be_sharded(image):
        return convolve(image)
    found: Array = lax.map(lambda one: convolve(one[None])[0], image)
    return found


# Integers

_EXACT = 2**24  # up to which float32 holds every whole number


def integer_correlated(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, largest: tuple[int, int]
) -> list[Array]:
    """`correlated` of whole numbers in float32, exactly, as int32 parts that are yet to be added up.

    `largest` are the largest magnitudes in the image and in the filter, of at most 8 bits.
    """
    by_floats = partial(_parts_of_floats, windows=windows, group_count=group_count, largest=largest)
    if _terms(filter, windows) * math.prod(largest) > INT_MAX or 0 in (*image.shape, *filter.shape):
        return by_floats(image, filter)
    by_integers = partial(_of_integers, windows=windows, group_count=group_count)
    in_all = lambda *both: functools.reduce(operator.add, by_floats(*both))  # noqa: E731
    return [choose(image, filter, tpu=by_integers, default=in_all)]


def _of_integers(image: Array, filter: Array, windows: Sequence[Window], group_count: int) -> Array:
    return _plain(image.astype(np.int32), filter.astype(np.int32), windows, group_count, None)


def _terms(filter: Array, windows: Sequence[Window]) -> int:
    """How many products each element of a convolution is the sum of."""
    return int(filter.shape[1] * math.prod(one.size for one in windows))


def _parts_of_floats(
    image: Array, filter: Array, windows: Sequence[Window], group_count: int, largest: tuple[int, int]
) -> list[Array]:
    of_image, of_filter = largest
    terms = _terms(filter, windows)
    if terms * of_image * of_filter <= _EXACT:
        return [correlated(image, filter, windows, group_count, _ANY_PRECISION).astype(np.int32)]
    if terms * of_image * 16 <= _EXACT:
        return [_in_two_digits(image, filter, windows, group_count)]
    halves = _halves_of_channels if filter.shape[1] > 1 else _halves_of_windows
    return [
        part
        for pieces in halves(image, filter, windows, group_count)
        for part in _parts_of_floats(*pieces, group_count, largest)
    ]


_ANY_PRECISION = lax.Precision.DEFAULT  # bfloat16 and TF32 hold whole numbers of 8 bits, too


def _in_two_digits(image: Array, filter: Array, windows: Sequence[Window], group_count: int) -> Array:
    """With filters as `16 * high + low`, whose sums are exact where theirs are not, in one convolution."""
    outputs, channels, *space = filter.shape
    high = jnp.floor(filter / 16)
    digits = jnp.stack([high, filter - 16 * high], axis=1)  # the digits of an output channel are neighbors
    both = correlated(
        image, digits.reshape(2 * outputs, channels, *space), windows, group_count, _ANY_PRECISION
    ).astype(np.int32)
    pairs = both.reshape(replaced(both.shape, 1, outputs, 2))
    return 16 * pairs[:, :, 0] + pairs[:, :, 1]


_Pieces = list[tuple[Array, Array, tuple[Window, ...]]]  # image, filter and windows of a part of all products


def _halves_of_channels(image: Array, filter: Array, windows: Sequence[Window], group_count: int) -> _Pieces:
    channels = filter.shape[1]
    of_groups = image.reshape(replaced(image.shape, 1, group_count, channels))
    found: _Pieces = []
    for start, stop in ((0, channels // 2), (channels // 2, channels)):
        chosen = lax.slice_in_dim(of_groups, start, stop, axis=2)
        part = chosen.reshape(replaced(image.shape, 1, group_count * (stop - start)))
        found.append((part, lax.slice_in_dim(filter, start, stop, axis=1), tuple(windows)))
    return found


def _halves_of_windows(image: Array, filter: Array, windows: Sequence[Window], group_count: int) -> _Pieces:
    axis = max(range(len(windows)), key=lambda i: windows[i].size)
    one = windows[axis]
    found: _Pieces = []
    for start, stop in ((0, one.size // 2), (one.size // 2, one.size)):
        before = one.start_padding - start * one.dilation
        half = one._replace(size=stop - start, start_padding=before)
        reached = (one.blocks - 1) * one.stride + half.extent
        half = half._replace(end_padding=reached - one.input_size - before)
        part = lax.slice_in_dim(filter, start, stop, axis=axis + 2)
        found.append((image, part, replaced(tuple(windows), axis, half)))
    return found
