"""Windows of an image as columns, each with all elements of a window: im2col."""

import math
import operator
from collections.abc import Sequence
from functools import partial, reduce
from itertools import product

import jax
import jax.numpy as jnp
from jax import Array, lax

from dmljax.foundation.dimensions import replace_at
from dmljax.lowerings.images.windows import Window


def column_sizes(image_sizes: Sequence[int], windows: Sequence[Window]) -> tuple[int, int, int]:
    """Batch, elements of a window over all channels, and number of windows."""
    batch, channels, *_ = image_sizes
    return (
        batch,
        channels * math.prod(window.size for window in windows),
        math.prod(window.blocks for window in windows),
    )


def unfold_windows(image: Array, windows: Sequence[Window]) -> Array:
    """The windows of an image as columns; `fold_windows` is its transpose."""
    return (_slice_windows if _is_small(windows) else unfold_by_axis)(image, windows)


def fold_windows(columns: Array, image_sizes: Sequence[int], windows: Sequence[Window]) -> Array:
    """Adds up the columns at the places of their windows in an image."""
    if _is_small(windows):
        return _add_at_once(columns, image_sizes, windows)
    image = jnp.zeros_like(columns, shape=tuple(image_sizes))  # only its type matters
    total: Array = jax.linear_transpose(partial(unfold_by_axis, windows=windows), image)(columns)[0]
    return total


def _is_small(windows: Sequence[Window]) -> bool:
    return math.prod(window.size for window in windows) <= _MOST_SLICES


def _add_at_once(columns: Array, image_sizes: Sequence[int], windows: Sequence[Window]) -> Array:
    """Adds an image for each element of a window; the transpose of `_slice_windows` takes more kernels on a TPU."""
    parts = columns.reshape(
        *image_sizes[:2], *(window.size for window in windows), *(window.blocks for window in windows)
    )

    def spread(part: Array, *places: int) -> Array:
        padding = [(0, 0, 0), (0, 0, 0)]
        for i, window in zip(places, windows, strict=True):
            before, length = i * window.dilation - window.start_padding, (window.blocks - 1) * window.stride + 1
            padding.append((before, window.input_size - before - length, window.stride - 1))
        return lax.pad(part, jnp.zeros((), part.dtype), padding)

    every = product(*(range(window.size) for window in windows))
    total: Array = reduce(operator.add, (spread(parts[:, :, *places], *places) for places in every))
    return total


def _slice_windows(image: Array, windows: Sequence[Window]) -> Array:
    """Takes a slice for each element of a window."""
    padding = [(0, 0, 0), (0, 0, 0), *((window.start_padding, window.end_padding, 0) for window in windows)]
    padded, strides = lax.pad(image, jnp.zeros((), image.dtype), padding), [window.stride for window in windows]
    lengths = [(window.blocks - 1) * window.stride + 1 for window in windows]

    def slice_at(*starts: int) -> Array:
        ends = map(operator.add, starts, lengths)
        return lax.slice(padded, (0, 0, *starts), (*image.shape[:2], *ends), (1, 1, *strides))

    places = product(*([i * window.dilation for i in range(window.size)] for window in windows))
    return jnp.stack([slice_at(*starts) for starts in places], 2).reshape(column_sizes(image.shape, windows))


def unfold_by_axis(image: Array, windows: Sequence[Window]) -> Array:
    """`unfold_windows`, one dimension after another: fewer operations, which compile faster, but more kernels."""
    amounts = [
        (window.start_padding, window.needed_size - window.start_padding - window.input_size, 0) for window in windows
    ]
    columns = lax.pad(image, jnp.zeros((), image.dtype), [(0, 0, 0), (0, 0, 0), *amounts])
    for window in reversed(windows):
        # The dimensions are: batch, channels, windows of later dimensions, earlier dimensions, this dimension,
        # later counts.
        columns = _stack(columns, len(windows) + 1, window.on_padded_input)
    return columns.reshape(column_sizes(image.shape, windows))


_MOST_SLICES = 32  # stacked at once; more are stacked in two steps, which compile faster


def _stack(input: Array, axis: int, window: Window) -> Array:
    """The windows along `axis`, whose size becomes their number; the elements of a window are the new dimension 2."""
    size, stride, dilation = window.size, window.stride, window.dilation
    if size <= _MOST_SLICES:
        length = (window.blocks - 1) * stride + 1
        starts = [i * dilation for i in range(size)]
        return jnp.stack([lax.slice_in_dim(input, i, i + length, stride, axis) for i in starts], 2)
    inner = math.isqrt(size - 1) + 1
    outer = -(-size // inner)
    # The last outer step may go beyond the window.
    beyond = replace_at([(0, 0, 0)] * input.ndim, axis, (0, (outer * inner - size) * dilation, 0))
    whole = lax.pad(input, jnp.zeros((), input.dtype), beyond)
    near = _stack(whole, axis, Window(whole.shape[axis], inner, 1, dilation, 0, 0))
    far = _stack(near, axis + 1, Window(near.shape[axis + 1], outer, stride, inner * dilation, 0, 0))
    elements = far.reshape(*far.shape[:2], outer * inner, *far.shape[4:])
    return lax.slice_in_dim(elements, 0, size, axis=2)
