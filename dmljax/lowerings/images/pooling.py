"""Pooling of windows: the largest element, sums and norms, and the transposes of the linear ones.

A GPU and a TPU reduce windows with `lax.reduce_window`. A CPU reduces one dimension after another, the last one first,
as slices that lie `stride` apart: XLA fuses the slices of a dimension into one loop, which compares the elements of a
window in row-major order, in a half to a tenth of the time.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import index_dtype, number, replace_at
from dmljax.foundation.sharding import match_varying_axes
from dmljax.lowerings.copies import copy_exactly
from dmljax.lowerings.images.loops import counted_loop
from dmljax.lowerings.images.windows import Window
from dmljax.lowerings.numbers.conversion import convert_positions
from dmljax.lowerings.numbers.derivatives import custom_jvps
from dmljax.lowerings.numbers.floats import sort_keys
from dmljax.lowerings.platform import choose
from dmljax.lowerings.rows.along_axes import extreme, extreme_position, positions_along
from dmljax.lowerings.rows.norms import magnitude, root
from dmljax.types import FLOATS, widened

Windows = Sequence[Window]
Places = tuple[Array, ...]  # for the last dimension first: the element's number along the window's dimension
Parts = tuple[Array, ...]  # arrays of one shape that are reduced together

_FIRST_AXIS = 2  # after batch and channels; dimensions after those of the windows are left alone
# Slices combined in one loop over the results. XLA on CPU merges the loops of several dimensions, so it combines 25
# slices of 5 x 5 windows, as fast as with the rows in memory. For 9 x 9 windows, that takes 30 times as long. XLA does
# not merge a loop over more slices than this.
_MOST_SLICES = 5


def pooled_sizes(sizes: Sequence[int], windows: Windows) -> tuple[int, ...]:
    """The sizes of an image that keeps one element per window."""
    return (*sizes[:_FIRST_AXIS], *(window.blocks for window in windows), *sizes[_FIRST_AXIS + len(windows) :])


def _pad(x: Array, windows: Windows, value: Any) -> Array:
    """`x` with the padding that windows read, and without trailing elements that none of them reads."""
    amounts = [(0, 0, 0)] * x.ndim
    for axis, window in enumerate(windows, _FIRST_AXIS):
        amounts[axis] = (window.start_padding, window.needed_size - window.start_padding - window.input_size, 0)
    return lax.pad(x, np.array(value, x.dtype), amounts)


def _element(x: Array, axis: int, window: Window, i: int) -> Array:
    """Element `i` of each window along `axis`."""
    start = i * window.dilation
    return lax.slice_in_dim(x, start, start + (window.blocks - 1) * window.stride + 1, window.stride, axis)


def _position_dtype(axis: int, size: int) -> np.dtype[Any]:
    """The integer type for positions along a dimension of `size`, padding included."""
    return index_dtype(("input", "padded_shape", axis), size)


Combine = Callable[[Sequence[tuple[Any, Parts]]], Parts]  # combines parts, each with its number in the window


def _reduce(parts: Parts, axis: int, window: Window, combine: Combine, *, has_loop: bool = True) -> Parts:
    """Combines each window along `axis` to one element, in a loop if the windows are large and `has_loop` allows it."""

    def number(i: Any) -> tuple[Any, Parts]:
        if isinstance(i, int):
            return i, tuple(_element(x, axis, window, i) for x in parts)
        length = (window.blocks - 1) * window.stride + 1
        spans = [lax.dynamic_slice_in_dim(x, i * window.dilation, length, axis) for x in parts]
        return i, tuple(lax.slice_in_dim(x, 0, length, window.stride, axis) for x in spans)

    if window.size <= _MOST_SLICES or not has_loop:
        return combine([number(i) for i in range(window.size)])
    first: Parts = combine([number(0)])
    number_of = _position_dtype(axis, window.input_size).type
    bounds = number_of(1), number_of(window.size)
    result: Parts = counted_loop(*bounds, lambda i, total: combine([(0, total), number(i)]), first)
    return result


def _by_xla(operands: Any, init: Any, combine: Callable[..., Any], windows: Windows, rank: int) -> Any:
    """Combines each window of an array, or of several, of `rank` to an element; padding is `init`."""
    padded_windows = [window.on_padded_input for window in windows]
    before, after = [1] * _FIRST_AXIS, [1] * (rank - _FIRST_AXIS - len(windows))
    padding = [(window.start_padding, window.end_padding) for window in windows]
    return lax.reduce_window(
        operands,
        init,
        combine,
        (*before, *(window.size for window in padded_windows), *after),
        (*before, *(min(window.stride, window.padded_size) for window in windows), *after),
        [*((0, 0) for _ in before), *padding, *((0, 0) for _ in after)],
        window_dilation=(*before, *(window.dilation for window in padded_windows), *after),
    )


def _lowest(dtype: Any) -> Any:
    """The lowest element of a type."""
    if dtype == np.bool_:
        return np.array(False)
    return np.array(-np.inf if dtype in FLOATS else np.iinfo(dtype).min, dtype)


# The largest element


def largest_places(x: Array, windows: Windows) -> Places:
    """The place of the largest element in each window, the first in row-major order.

    NaN is larger than every number, and -0 equals +0.
    """
    keys = sort_keys(x, nan_is_largest=True)
    keys = _pad(keys, windows, np.iinfo(keys.dtype).min)
    places = []
    for axis, window in reversed(list(enumerate(windows, _FIRST_AXIS))):
        keys, place = _largest_along(keys, axis, window.on_padded_input)
        if x.dtype not in FLOATS and window.start_padding:
            # An integer may equal its padding, which comes first, but only if the whole window is that low. (The keys
            # of floats are all higher.)
            first = _count_elements_before(window.start_padding, window, axis, place.shape)
            place = jnp.maximum(place, first.astype(place.dtype))
        places.append(place)
    return tuple(places)


def _largest_along(keys: Array, axis: int, window: Window) -> tuple[Array, Array]:
    if window.blocks == 1 and window.size > _MOST_SLICES:
        elements = lax.slice_in_dim(keys, 0, window.input_size, window.dilation, axis)
        return extreme(elements, (axis,), largest=True), extreme_position(elements, (axis,), largest=True)
    is_small = window.size <= np.iinfo(np.int8).max
    dtype = np.dtype(np.int8) if is_small else index_dtype(("window_sizes", axis), window.size)

    def first_largest(parts: Sequence[tuple[int, Parts]]) -> Parts:
        _, (largest, place) = parts[0]
        for first, (key, later) in parts[1:]:
            is_larger = key > largest
            largest = jnp.where(is_larger, key, largest)
            place = jnp.where(is_larger, later + jnp.asarray(first, dtype), place)
        return largest, place

    largest, place = _reduce((keys, jnp.zeros_like(keys, dtype)), axis, window, first_largest)
    return largest, place


def _count_elements_before(end: int, window: Window, axis: int, shape: Sequence[int]) -> Array:
    """The number of elements of each window before the position `end` of the padded dimension."""
    padded, dtype = window.on_padded_input, _position_dtype(axis, window.padded_size)
    start = lax.broadcasted_iota(dtype, shape, axis) * np.array(padded.stride, dtype)
    before = number(end, dtype)
    # Keep unsigned numbers from falling below 0.
    last = jnp.where(start < before, before - 1 - start, 0) // np.array(padded.dilation, dtype)
    return jnp.where(start < before, jnp.minimum(last + 1, np.array(padded.size, dtype)), 0)


def _stages(windows: Windows, places: Places) -> list[tuple[int, Window, Array]]:
    """Each dimension with its window and its places, the last dimension first."""
    axes = reversed(range(_FIRST_AXIS, _FIRST_AXIS + len(windows)))
    return list(zip(axes, reversed(windows), places, strict=True))


def largest_elements(x: Array, windows: Windows) -> Array:
    """The largest element of each window; its gradient goes to the `largest_places`."""

    def move(floats: tuple[Array, ...], x: Array) -> Array:
        return choose(floats[0], x, cpu=by_places, default=by_xla)

    def by_places(bits: Array, x: Array) -> Array:
        return _take_places(bits, largest_places(x, windows), windows)

    def by_xla(bits: Array, x: Array) -> Array:
        largest: Array = _by_xla(x, _lowest(x.dtype), lax.max, windows, x.ndim)
        return lax.bitcast_convert_type(largest, bits.dtype)

    def derivative(floats: tuple[Array, ...], x: Array) -> Array:
        return _derivative_at(floats[0], largest_places(x, windows), windows)

    return copy_exactly(move, (x,), x, derivative=derivative, sums_are_wide=True)


def spread_to_largest(gradient: Array, x: Array, windows: Windows) -> Array:
    """Adds each element of `gradient` at the `largest_places` of `x`, in the type of `gradient`."""

    def by_places(gradient: Array, x: Array) -> Array:
        return spread_elements(gradient, largest_places(x, windows), windows)

    # XLA's own operation has no dilation, and its derivative picks any of equal elements.
    is_dilated = any(window.dilation > 1 and window.size > 1 for window in windows)
    by_xla = None if is_dilated else partial(_spread_by_xla, windows=windows)

    def spread(gradient: Array, x: Array) -> Array:
        return choose(gradient, x, tpu=by_xla, default=by_places)

    def jvp(tangent: Array, _: Array, x: Array) -> Array:
        return by_places(tangent, x)

    zero_jvp = lambda tangent, gradient, x: jnp.zeros(x.shape, gradient.dtype)  # noqa: E731
    return custom_jvps(jvp, zero_jvp)(spread)(*match_varying_axes((gradient, x)))


def _spread_by_xla(gradient: Array, x: Array, windows: Windows) -> Array:
    """Does `spread_to_largest` by XLA's own rule.

    XLA skips NaN and may select its padding instead of -infinity. Moving all numbers one step towards zero makes room
    for NaN above them and for the padding below, at the expense of the smallest: it becomes subnormal, and equals zero.
    """
    wide = x.astype(gradient.dtype)
    numbers = jnp.where(jnp.isnan(x), np.array(np.inf, wide.dtype), lax.nextafter(wide, jnp.zeros_like(wide)))
    largest = lambda x: _by_xla(x, _lowest(x.dtype), lax.max, windows, x.ndim)  # noqa: E731
    spread: Array = jax.vjp(largest, numbers)[1](gradient)[0]
    return spread


def largest_with_indices(x: Array, windows: Windows, dtype: Any) -> tuple[Array, Array]:
    """The largest element of each window with its index in the flattened image; the first of equal elements."""

    def by_places(x: Array) -> tuple[Array, Array]:
        places = largest_places(x, windows)
        values = copy_exactly(lambda floats, places: _take_places(floats[0], places, windows), (x,), places)
        return values, convert_positions(dtype, _flat_indices(places, x.shape, windows))

    def by_xla(x: Array) -> tuple[Array, Array]:
        # Converting the result instead would take another kernel.
        index = convert_positions(dtype, positions_along(x, tuple(range(x.ndim))))
        init = _lowest(x.dtype), np.array(np.iinfo(index.dtype).max, index.dtype)
        largest: tuple[Array, Array] = _by_xla((x, index), init, _first_larger, windows, x.ndim)
        return largest

    def both(x: Array) -> tuple[Array, Array]:
        return choose(x, cpu=by_places, default=by_xla)

    if x.dtype not in FLOATS:
        return both(x)

    def jvp(tangent: Array, values: Array, x: Array) -> Array:
        wide = tangent.astype(widened(tangent.dtype))
        return _derivative_at(wide, largest_places(x, windows), windows).astype(tangent.dtype)

    values, indices = both(lax.stop_gradient(x))
    return custom_jvps(lambda tangent, *_: tangent, jvp)(lambda values, x: values)(values, x), indices


def _first_larger(first: Any, second: Any) -> Any:
    """The larger of two elements, with its index; NaN is larger than every number."""
    (a, i), (b, j) = first, second
    is_first = i < j
    takes_first = (a > b) | ((a == b) & is_first)
    if a.dtype in FLOATS:
        takes_first |= (a != a) & ((b == b) | is_first)
    return jnp.where(takes_first, a, b), jnp.where(takes_first, i, j)


def _take_places(x: Array, places: Places, windows: Windows) -> Array:
    elements = _pad(x, windows, 0)
    for axis, window, place in _stages(windows, places):
        elements = _take(elements, axis, window.on_padded_input, place)
    return elements


def _derivative_at(tangent: Array, places: Places, windows: Windows) -> Array:
    """The elements of a tangent at `places`.

    The transpose of a transpose: the gradient is then what MAX_POOLING_GRAD computes, in a quarter of the time that the
    transpose of slices takes.
    """
    example = jnp.zeros_like(tangent, shape=places[-1].shape)  # only its type matters
    spread = lambda gradient: spread_elements(gradient, places, windows)  # noqa: E731
    elements: Array = jax.linear_transpose(spread, example)(tangent)[0]
    return elements


def _take(x: Array, axis: int, window: Window, place: Array) -> Array:
    """Element `place` of each window along `axis`."""
    if window.size > _MOST_SLICES:
        return jnp.take_along_axis(x, _index(place, axis, window), axis=axis, mode="promise_in_bounds")
    elements = _element(x, axis, window, 0)
    for i in range(1, window.size):
        elements = jnp.where(place == np.array(i, place.dtype), _element(x, axis, window, i), elements)
    return elements


def _index(place: Array, axis: int, window: Window) -> Array:
    """The index along `axis` of element `place` of each window."""
    dtype = _position_dtype(axis, window.input_size)
    start = lax.broadcasted_iota(dtype, place.shape, axis) * np.array(window.stride, dtype)
    return start + place.astype(dtype) * np.array(window.dilation, dtype)


def spread_elements(gradient: Array, places: Places, windows: Windows) -> Array:
    """Adds each element at its place in the image: the transpose of `_take_places`."""
    for axis, window, place in reversed(_stages(windows, places)):
        gradient = _spread(gradient, axis, window.on_padded_input, place)
    for axis, window in enumerate(windows, _FIRST_AXIS):
        gradient = _crop(gradient, axis, window)
    return gradient


def _spread(gradient: Array, axis: int, window: Window, place: Array) -> Array:
    """The transpose of `_take`."""
    stride = window.input_size if window.blocks == 1 else window.stride
    reach = ((window.size - 1) * window.dilation) // stride + 1  # how many windows an element may belong to
    if reach > _MOST_SLICES:
        index = _index(place, axis, window)
        take = partial(jnp.take_along_axis, indices=index, axis=axis, mode="promise_in_bounds")
        whole = jnp.zeros_like(gradient, shape=replace_at(gradient.shape, axis, window.input_size))
        spread: Array = jax.linear_transpose(take, whole)(gradient)[0]
        return spread
    # Where `reach` windows overlap, each group of `stride` neighbors gets elements from the window that begins at it,
    # from the window before, and so on.
    groups = -(-window.input_size // stride)
    config = replace_at([(0, 0, 0)] * gradient.ndim, axis, (reach - 1, groups - window.blocks, 0))
    near = lax.pad(gradient, np.zeros((), gradient.dtype), config)
    dtype = _position_dtype(axis, window.input_size)
    offset = place.astype(dtype) * np.array(window.dilation, dtype)
    near_offsets = lax.pad(offset, np.array(np.iinfo(dtype).max, dtype), config)  # in no window
    place_in_group = lax.broadcasted_iota(dtype, replace_at(gradient.shape, axis, groups, stride), axis + 1)

    def part(i: int) -> Array:
        first = reach - 1 - i
        values, targets = (
            jnp.expand_dims(lax.slice_in_dim(x, first, first + groups, axis=axis), axis + 1)
            for x in (near, near_offsets)
        )
        return jnp.where(targets == place_in_group + np.array(i * stride, dtype), values, jnp.zeros((), values.dtype))

    total = reduce(lax.add, map(part, range(reach)))
    whole = total.reshape(replace_at(gradient.shape, axis, groups * stride))
    return lax.slice_in_dim(whole, 0, window.input_size, axis=axis)


def _crop(x: Array, axis: int, window: Window) -> Array:
    """The input's part of a padded dimension, with zeros where no window reads."""
    beyond = window.start_padding + window.input_size - x.shape[axis]
    config = replace_at([(0, 0, 0)] * x.ndim, axis, (-window.start_padding, beyond, 0))
    return lax.pad(x, np.zeros((), x.dtype), config)


def _flat_indices(places: Places, shape: Sequence[int], windows: Windows) -> Array:
    """The index in the flattened image, of `shape`, for the element of each window at `places`."""
    dtype = index_dtype(("input", "size"), math.prod(shape))
    index, stride = jnp.zeros((), dtype), 1  # neighbors along a dimension are this many elements apart
    for axis, window, place in _stages(windows, places):
        index = _take(index, axis, window.on_padded_input, place) if index.ndim else index
        position = _index(place, axis, window.on_padded_input).astype(dtype) - np.array(window.start_padding, dtype)
        index, stride = index + position * number(stride, dtype), stride * shape[axis]
    for axis in (1, 0):
        position = lax.broadcasted_iota(dtype, index.shape, axis)
        index, stride = index + position * number(stride, dtype), stride * shape[axis]
    return index


# Sums


def window_sums(x: Array, windows: Windows) -> Array:
    """The sum of each window, in which the padding is 0."""

    def sums(x: Array) -> Array:
        in_slices, whole = partial(_sums_of_slices, windows=windows), partial(_sums, windows=windows)
        total: Array = choose(x, cpu=in_slices, default=whole)
        return total

    def jvp(tangent: Array, x: Array) -> Array:
        # A transpose of a transpose, for the same reason as in `_derivative_at`.
        example = jnp.zeros_like(x, shape=pooled_sizes(x.shape, windows))
        spread = partial(_spread_slices, windows=windows, has_loop=False)  # JAX 0.8 cannot transpose it
        total: Array = jax.linear_transpose(spread, example)(tangent)[0]
        return total

    return custom_jvps(jvp)(sums)(x) if x.dtype in FLOATS else sums(x)


def _sums(x: Array, windows: Windows) -> Array:
    total: Array = _by_xla(x, np.zeros((), x.dtype), lax.add, windows, x.ndim)
    return total


def _sums_of_slices(x: Array, windows: Windows) -> Array:
    x = _pad(x, windows, 0)
    for axis, window in reversed(list(enumerate(windows, _FIRST_AXIS))):
        x = _sum_along(x, axis, window.on_padded_input)
    return x


def _sum_along(x: Array, axis: int, window: Window) -> Array:
    if window.blocks == 1 and window.dilation == 1:
        return jnp.sum(x, axis=axis, keepdims=True, dtype=x.dtype)
    return _reduce((x,), axis, window, _sum_of_parts)[0]


def _sum_of_parts(parts: Sequence[tuple[int, Parts]]) -> Parts:
    return (reduce(lax.add, (part for _, (part,) in parts)),)


def spread_sums(gradient: Array, windows: Windows) -> Array:
    """Adds each element to all elements of its window in the image: the transpose of `window_sums`."""

    def by_xla(gradient: Array) -> Array:
        beside = gradient.shape[_FIRST_AXIS + len(windows) :]
        image = (*gradient.shape[:_FIRST_AXIS], *(window.input_size for window in windows), *beside)
        transpose = jax.linear_transpose(partial(_sums, windows=windows), jnp.zeros_like(gradient, shape=image))
        spread: Array = transpose(gradient)[0]
        return spread

    return choose(gradient, cpu=partial(_spread_slices, windows=windows), default=by_xla)


def _spread_slices(gradient: Array, windows: Windows, *, has_loop: bool = True) -> Array:
    for axis, window in enumerate(windows, _FIRST_AXIS):
        padded = window.on_padded_input
        if padded.blocks == 1 and padded.dilation == 1:
            whole = jnp.broadcast_to(gradient, replace_at(gradient.shape, axis, padded.size))
        else:
            reach = (padded.size - 1) * padded.dilation
            config = replace_at([(0, 0, 0)] * gradient.ndim, axis, (reach, reach, padded.stride - 1))
            elements = lax.pad(gradient, np.zeros((), gradient.dtype), config)
            every = Window(elements.shape[axis], padded.size, 1, padded.dilation, 0, 0)
            (whole,) = _reduce((elements,), axis, every, _sum_of_parts, has_loop=has_loop)
        gradient = _crop(whole, axis, window)
    return gradient


def element_counts(windows: Windows, rank: int, dtype: Any, *, include_padding: bool) -> Array:
    """The number of elements in each window, with or without padding; it broadcasts to `rank` dimensions."""
    if include_padding or not any(window.start_padding or window.end_padding for window in windows):
        return jnp.full((), math.prod(window.size for window in windows), dtype)
    counts = jnp.ones((1,) * rank, dtype)
    for axis, window in enumerate(windows, _FIRST_AXIS):
        ends = window.start_padding, window.start_padding + window.input_size
        shape = replace_at((1,) * rank, axis, window.blocks)
        before, to_end = (_count_elements_before(end, window, axis, shape) for end in ends)
        counts = counts * (to_end - before).astype(dtype)
    return counts


# Norms


def window_norms(x: Array, windows: Windows, p: int) -> Array:
    """The `p`-norm of each window, in at least 32 bits. Its gradient is 0 where the norm is 0."""
    magnitudes = magnitude(x.astype(widened(x.dtype)))
    if p == 1:
        return window_sums(magnitudes, windows)
    return root(window_sums(lax.integer_pow(magnitudes, p), windows), p)
