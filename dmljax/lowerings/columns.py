"""Windows of an image as columns, each with all elements of a window: im2col."""

import math
import operator
from collections.abc import Sequence
from functools import partial, reduce
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dmljax.lowerings.platform import choose
from dmljax.lowerings.sizes import is_symbolic, replaced
from dmljax.lowerings.windows import Window


def column_sizes(image_sizes: Sequence[int], windows: Sequence[Window]) -> tuple[int, int, int]:
    """Batch, elements of a window over all channels, and number of windows."""
    batch, channels, *_ = image_sizes
    return batch, channels * math.prod(one.size for one in windows), math.prod(one.blocks for one in windows)


def unfolded(image: Array, windows: Sequence[Window]) -> Array:
    """The windows of an image as columns; `folded` is its transpose."""
    by_dimension = partial(_by_dimension, windows=windows)
    if math.prod(one.size for one in windows) > _MOST_SLICES:
        return by_dimension(image)
    return choose(image, cpu=by_dimension, default=partial(_at_once, windows=windows))


def folded(columns: Array, image_sizes: Sequence[int], windows: Sequence[Window]) -> Array:
    """Adds up the columns at the places of their windows in an image."""
    at_once, by_dimension = (
        partial(add, image_sizes=tuple(image_sizes), windows=windows) for add in (_added_at_once, _added_by_dimension)
    )
    if math.prod(one.size for one in windows) > _MOST_SLICES:
        return by_dimension(columns)
    is_dense = all(one.stride == 1 for one in windows)  # XLA on CPU adds interior-padded arrays slowly
    return choose(columns, cpu=at_once if is_dense else by_dimension, default=at_once)


def _added_at_once(columns: Array, image_sizes: tuple[int, ...], windows: Sequence[Window]) -> Array:
    parts = columns.reshape(*image_sizes[:2], *(one.size for one in windows), *(one.blocks for one in windows))

    def spread(part: Array, *places: int) -> Array:
        padding = [(0, 0, 0), (0, 0, 0)]
        for i, one in zip(places, windows, strict=True):
            before, length = i * one.dilation - one.start_padding, (one.blocks - 1) * one.stride + 1
            padding.append((before, one.input_size - before - length, one.stride - 1))
        return lax.pad(part, jnp.zeros((), part.dtype), padding)

    every = product(*(range(one.size) for one in windows))
    total: Array = reduce(operator.add, (spread(parts[:, :, *places], *places) for places in every))
    return total


def _added_by_dimension(columns: Array, image_sizes: tuple[int, ...], windows: Sequence[Window]) -> Array:
    image = jnp.zeros_like(columns, shape=image_sizes)  # only its type matters
    total: Array = jax.linear_transpose(partial(_by_dimension, windows=windows), image)(columns)[0]
    return total


def _at_once(image: Array, windows: Sequence[Window]) -> Array:
    """Takes a slice for each element of a window."""
    padding = [(0, 0, 0), (0, 0, 0), *((one.start_padding, one.end_padding, 0) for one in windows)]
    padded, strides = lax.pad(image, jnp.zeros((), image.dtype), padding), [one.stride for one in windows]
    lengths = [(one.blocks - 1) * one.stride + 1 for one in windows]

    def slice_at(*starts: int) -> Array:
        ends = map(operator.add, starts, lengths)
        return lax.slice(padded, (0, 0, *starts), (*image.shape[:2], *ends), (1, 1, *strides))

    places = product(*([i * one.dilation for i in range(one.size)] for one in windows))
    return jnp.stack([slice_at(*starts) for starts in places], 2).reshape(column_sizes(image.shape, windows))


def _by_dimension(image: Array, windows: Sequence[Window]) -> Array:
    """Handles one dimension after another, which takes fewer operations and is faster on a CPU."""
    slides = [_slide(one) for one in windows]
    amounts = [
        (one.start_padding, slide.length - one.start_padding - one.input_size, 0)
        for one, slide in zip(windows, slides, strict=True)
    ]
    found = lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), (0, 0, 0), *amounts])
    for slide in reversed(slides):
        # The dimensions are: batch, channels, windows of later dimensions, those before this one, this one, later
        # counts.
        found = _slid(found, len(windows) + 1, slide)
    return found.reshape(column_sizes(image.shape, windows))


class _Slide(NamedTuple):
    """How a window slides along a dimension if only every `common`-th element counts."""

    common: int
    size: int
    stride: int
    dilation: int
    blocks: int

    @property
    def groups(self) -> int:
        """How many groups of `stride` neighbors the elements of a window form; 0 if they are not neighbors."""
        return -(-self.size // self.stride) if self.dilation == 1 < self.stride and self.size > 1 else 0

    @property
    def length(self) -> int:
        """How many elements of the dimension the windows need."""
        if self.groups:
            looked_at = (self.blocks + self.groups - 1) * self.stride
        else:
            looked_at = (self.size - 1) * self.dilation + (self.blocks - 1) * self.stride + 1
        return (looked_at - 1) * self.common + 1


def _slide(window: Window) -> _Slide:
    # A single window does not need its stride, nor a window of one element its dilation, however large they are.
    stride = 1 if window.blocks == 1 else window.stride
    dilation = 1 if window.size == 1 else window.dilation
    common = math.gcd(stride, dilation)
    return _Slide(common, window.size, stride // common, dilation // common, window.blocks)


def _slid(input: Array, axis: int, slide: _Slide) -> Array:
    """The windows along `axis`, whose size becomes their number; the elements of a window are the new dimension 2."""
    common, size, stride, _, blocks = slide
    if common > 1:
        input = lax.slice_in_dim(input, 0, None, common, axis)
    if not slide.groups:
        return _windows_along(input, axis, slide)
    # Begin a group of neighbors where one of the next windows begins, so that no slice has strides and the gradient
    # needs no interior padding: windows of 7 with stride 2 take half the time.
    places = blocks + slide.groups - 1
    grouped = input.reshape(replaced(input.shape, axis, places, stride))
    found = _windows_along(jnp.moveaxis(grouped, axis + 1, 2), axis + 1, _Slide(1, slide.groups, 1, 1, blocks))
    merged = found.reshape(*found.shape[:2], slide.groups * stride, *found.shape[4:])
    return lax.slice_in_dim(merged, 0, size, axis=2)


_MOST_SLICES = 32  # stacked at once; more are stacked in two steps, which compile faster


def _windows_along(input: Array, axis: int, slide: _Slide) -> Array:
    _, size, stride, dilation, blocks = slide
    if size > _MOST_SLICES and not is_symbolic(blocks) and blocks < size:
        return jnp.moveaxis(_stacked(input, axis, _Slide(1, blocks, dilation, stride, size), axis), axis + 1, 2)
    return _stacked(input, axis, slide, 2)


def _stacked(input: Array, axis: int, slide: _Slide, new_axis: int) -> Array:
    """The elements at each place of a window, from all windows: slices along `axis`, stacked along `new_axis`."""
    _, size, stride, dilation, blocks = slide
    if size <= _MOST_SLICES:
        length = (blocks - 1) * stride + 1
        starts = [i * dilation for i in range(size)]
        return jnp.stack([lax.slice_in_dim(input, i, i + length, stride, axis) for i in starts], new_axis)
    inner = math.isqrt(size - 1) + 1
    outer = -(-size // inner)
    # The last outer step may go beyond the window.
    beyond = [(0, (outer * inner - size) * dilation if i == axis else 0, 0) for i in range(input.ndim)]
    whole = lax.pad(input, jnp.zeros((), input.dtype), beyond)
    every = whole.shape[axis] - (inner - 1) * dilation
    near = _stacked(whole, axis, _Slide(1, inner, 1, dilation, every), new_axis)
    moved_axis = axis + 1 if new_axis <= axis else axis
    far = _stacked(near, moved_axis, _Slide(1, outer, stride, inner * dilation, blocks), new_axis)
    merged = far.reshape(*far.shape[:new_axis], outer * inner, *far.shape[new_axis + 2 :])
    return lax.slice_in_dim(merged, 0, size, axis=new_axis)
