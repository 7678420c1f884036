"""Padding, and windows as columns: PADDING, PADDING1, UNFOLD and FOLD.

All copy bit for bit, except FOLD, which adds. On an explicit mesh, each dimension of a padded array is sharded as in
the input, if its size allows it; windows and images are sharded along batches and channels.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.calls.windows import WindowPlan, fit_windows, require_representable
from dmljax.errors import Problem, require
from dmljax.foundation.checks import UINT_MAX, integer_in, require_counts
from dmljax.foundation.dimensions import is_symbolic, number, replace_at
from dmljax.foundation.scalars import truncate
from dmljax.foundation.sharding import MeshAxes, call_with_auto_axes, dimension_axes, dividing_axes
from dmljax.foundation.sizes import Sizes, require_image, require_one_each, require_sizes, spell_sizes
from dmljax.lowerings.copies import check_sizes, copy_exactly, copy_with_auto_axes
from dmljax.lowerings.images.columns import column_sizes, fold_windows, unfold_windows
from dmljax.types import (
    FLOAT,
    UP_TO_32_BIT,
    UP_TO_64_BIT,
    DataType,
    FeatureLevel,
    PaddingMode,
    PaddingModeLike,
    widened,
)

# PADDING and PADDING1


def _padding_sizes(input: Sizes, start_padding: Sequence[int], end_padding: Sequence[int]) -> Sizes:
    for name, amounts in (("start_padding", start_padding), ("end_padding", end_padding)):
        require_one_each(name, amounts, "input", len(input))
        for i, amount in enumerate(amounts):
            if not is_symbolic(amount):
                integer_in((name, i), amount, -UINT_MAX, UINT_MAX)
    sizes = tuple(map(sum, zip(input, start_padding, end_padding, strict=True)))
    both = {"start_padding": start_padding, "end_padding": end_padding}
    require_representable("the size of the result", sizes, both)
    return sizes


@calls.operator_function
def padding(
    input: ArrayLike,
    padding_value: calls.TruncatedNumber = 0,
    *,
    padding_mode: PaddingModeLike = PaddingMode.CONSTANT,
    start_padding: calls.OneEach,
    end_padding: calls.OneEach,
) -> Array:
    """Pads each dimension `i` with `start_padding[i]` elements before, and `end_padding[i]` after.

    The mode CONSTANT pads with `padding_value`; the other modes pad with elements of the same row, ignore
    `padding_value`, and refuse to pad an empty dimension.

    Args:
        padding_value: What CONSTANT pads with; a Python number is truncated to an integer type.
        padding_mode: What 2 elements before [1, 2, 3] are: a number, or edge 1 1, reflection 3 2, symmetric 2 1.
        start_padding: Number of elements before each dimension; a negative number crops.
        end_padding: Number of elements after each dimension; a negative number crops.

    Returns:
        Array of the sizes `start_padding[i] + input.shape[i] + end_padding[i]`.

    >>> padding(jnp.array([1, 2, 3]), 9.5, start_padding=(2,), end_padding=(-1,)).tolist()
    [9, 9, 1, 2]
    """
    return _pad(input, padding_value, PaddingMode.of(padding_mode), start_padding, end_padding)


@calls.operator_function
def padding1(
    input: ArrayLike,
    padding_value: calls.Number = 0,
    *,
    padding_mode: PaddingModeLike = PaddingMode.CONSTANT,
    start_padding: calls.OneEach,
    end_padding: calls.OneEach,
) -> Array:
    """Pads each dimension `i` with `start_padding[i]` elements before, and `end_padding[i]` after.

    Everything else is as in `padding`.

    Args:
        padding_value: What CONSTANT pads with; an integer type must hold a Python number exactly.

    >>> padding1(jnp.array([1, 2, 3]), 9, start_padding=(2,), end_padding=(1,)).tolist()
    [9, 9, 1, 2, 3, 9]
    >>> padding1(
    ...     jnp.array([1, 2, 3]),
    ...     padding_mode="wrap",
    ...     start_padding=(2,),
    ...     end_padding=(5,),
    ... ).tolist()
    [2, 3, 1, 2, 3, 1, 2, 3, 1, 2]
    """
    return _pad(input, padding_value, PaddingMode.of(padding_mode), start_padding, end_padding)


def _pad(
    input: ArrayLike, value: ArrayLike, mode: PaddingMode, start_padding: Sequence[int], end_padding: Sequence[int]
) -> Array:
    input, value = calls.real_array("input", input), calls.real_array("padding_value", value)
    sizes = _padding_sizes(input.shape, start_padding, end_padding)
    ranges = [_Range(-start, size - start) for start, size in zip(start_padding, sizes, strict=True)]
    both = list(zip(start_padding, end_padding, strict=True))
    if mode is PaddingMode.CONSTANT:
        config = [(start, end, 0) for start, end in both]
        return copy_with_auto_axes([input], sizes, lambda x, value: _constant_padded(x, value, config), value)
    padded_axes = [i for i, (start, end) in enumerate(both) if (start, end) != (0, 0)]
    for i in padded_axes:
        _require_elements(input, i, mode)

    def move(input: Array) -> Array:
        for i in reversed(padded_axes):  # the outermost dimension last, because that copies whole rows
            input = _extend(input, i, mode, ranges[i])
        return input

    return copy_with_auto_axes([input], sizes, move)


class _Range(NamedTuple):
    """The indices of a result along one dimension, counted from the first element of the input."""

    start: int
    stop: int


def _constant_padded(input: Array, value: Array, config: Sequence[tuple[int, int, int]]) -> Array:
    # The gradient of a pad's own value would be a difference of two sums. On a CPU, a selection takes down to a sixth
    # of the pad's time for large arrays of 8 and 16 bits, about as long for others, and 60 us more for small ones.
    is_input = lax.pad(jnp.ones(input.shape, bool), jnp.zeros((), bool), config)
    return jnp.where(is_input, lax.pad(input, jnp.zeros((), input.dtype), config), value)


def _require_elements(input: Array, axis: int, mode: PaddingMode) -> None:
    """Raises if a dimension is empty."""
    size = input.shape[axis]
    rule = f"must not be empty along axis {axis}, for {mode.name}"
    require("input", is_symbolic(size) or size != 0, rule, f"shape {input.shape}")


def _extend(input: Array, axis: int, mode: PaddingMode, indices: _Range) -> Array:
    """The elements at `indices` of one dimension, which `mode` extends in both directions."""
    size = input.shape[axis]
    if mode is PaddingMode.EDGE:
        return _extend_edges(input, axis, indices)
    least = jax.core.max_dim(2 * size - 2, 1)
    period = {PaddingMode.WRAP: size, PaddingMode.SYMMETRIC: 2 * size, PaddingMode.REFLECTION: least}[mode]
    if any(map(is_symbolic, (size, *indices))):
        first, whole = number(indices.start, np.int32), number(period, np.int32)
        place = (lax.iota(np.int32, indices.stop - indices.start) + first) % whole
        back = whole - int(mode is PaddingMode.SYMMETRIC) - place  # the reversed part repeats the last element first
        return jnp.take(input, jnp.where(place < number(size, np.int32), place, back), axis=axis, mode="clip")
    return _extend_periodically(input, axis, period, indices)


def _extend_edges(input: Array, axis: int, indices: _Range) -> Array:
    size = input.shape[axis]
    if is_symbolic(indices.start) or is_symbolic(indices.stop - size):  # padded or cropped
        place = lax.iota(np.int32, indices.stop - indices.start) + number(indices.start, np.int32)
        return jnp.take(input, jnp.clip(place, 0, number(size - 1, np.int32)), axis=axis, mode="clip")
    start, stop = (min(max(index, 0), size) for index in indices)
    parts = [lax.slice_in_dim(input, start, stop, axis=axis)]
    if indices.start < 0:
        count = min(indices.stop, 0) - indices.start
        parts.insert(0, _repeat(lax.slice_in_dim(input, 0, 1, axis=axis), axis, count))
    if indices.stop > size:
        count = indices.stop - max(indices.start, size)
        parts.append(_repeat(lax.slice_in_dim(input, size - 1, size, axis=axis), axis, count))
    return lax.concatenate(parts, axis)


def _repeat(input: Array, axis: int, count: int) -> Array:
    """Repeats `input`, which has size 1 along `axis`, to size `count`."""
    return jnp.broadcast_to(input, replace_at(input.shape, axis, count))


_MOST_PIECES = 8  # to join along a dimension; beyond that, tile a period


def _extend_periodically(input: Array, axis: int, period: int, indices: _Range) -> Array:
    """The elements at `indices` of a periodic sequence: the input, then the rest of the period in reverse order."""
    size = input.shape[axis]
    start, stop = indices
    count = stop - start
    if count > period * _MOST_PIECES // 2:
        once = _extend_periodically(input, axis, period, _Range(start, start + period))
        periods = jnp.tile(once, [count // period if i == axis else 1 for i in range(input.ndim)])
        return lax.concatenate([periods, lax.slice_in_dim(once, 0, count % period, axis=axis)], axis)
    pieces = []
    while start < stop:
        place = start % period
        if place < size:
            end = min(size, place + stop - start)
            pieces.append(lax.slice_in_dim(input, place, end, axis=axis))
        else:
            end = min(period, place + stop - start)
            # With the mirrored edges, the period has as many elements backward as forward; otherwise two fewer.
            last = size + (size if period == 2 * size else size - 1)
            pieces.append(lax.rev(lax.slice_in_dim(input, last - end, last - place, axis=axis), (axis,)))
        start += end - place
    return lax.concatenate(pieces, axis) if pieces else lax.slice_in_dim(input, 0, 0, axis=axis)


class _Padding(dml.Resized, infer=_padding_sizes):
    """The first members of PADDING and PADDING1, and the rules that they share."""

    padding_mode: dml.Enumerator[PaddingMode]

    def _unsupported_modes(self: Any, feature_level: FeatureLevel) -> Iterator[Problem]:
        introduced = _INTRODUCED.get(self.padding_mode, feature_level)
        if feature_level < introduced:
            yield Problem("PaddingMode", f"must not be {self.padding_mode.name} below {introduced}", feature_level)

    rules = dml.page_rules(
        *dml.Resized.rules,
        *dml.infer_rules(
            "StartPadding and EndPadding have one number for each dimension of InputTensor.",
            "OutputTensor.Sizes are those of InputTensor plus StartPadding plus EndPadding.",
        ),
        dml.LevelRule("PaddingMode SYMMETRIC needs level 3_0, and WRAP level 6_4.", _unsupported_modes),
    )

    def attributes(self) -> dict[str, Any]:
        attributes = super().attributes()
        if self.padding_mode is not PaddingMode.CONSTANT:
            del attributes["padding_value"]  # the page ignores it then, so it need not fit the type
        return attributes


_INTRODUCED = {PaddingMode.SYMMETRIC: FeatureLevel.FL_3_0, PaddingMode.WRAP: FeatureLevel.FL_6_4}


class PaddingDesc(_Padding, function=padding):
    padding_value: dml.Float
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4_TO_5, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )

    def _misfits(self) -> Iterator[Problem]:
        if self.padding_mode is PaddingMode.CONSTANT:
            yield from dml.find_refusals(truncate, "PaddingValue", self.padding_value, self.output.dtype)

    rules = dml.page_rules(
        *_Padding.rules,
        dml.Rule(
            "If PaddingMode is CONSTANT, PaddingValue fits OutputTensor.DataType; for an integer type, it is truncated "
            "toward zero first.",
            _misfits,
        ),
    )


class Padding1Desc(_Padding, function=padding1):
    padding_value_data_type: dml.Enumerator[DataType]
    padding_value: dml.ScalarUnion
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    support = dml.support(FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT))
    rules = dml.page_rules(*_Padding.rules, dml.has_type("padding_value_data_type", "output"))


# UNFOLD and FOLD


def _unfold_sizes(
    input: Sizes,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension,
    dilations: calls.EachDimension,
    start_padding: calls.EachDimension,
    end_padding: calls.EachDimension,
) -> WindowPlan:
    require_image("input", input)
    windows = fit_windows("input", input, window_sizes, strides, dilations, start_padding, end_padding)
    sizes = column_sizes(input, windows)
    check_sizes(sizes)
    return WindowPlan(windows, sizes)


def _fold_sizes(
    input: Sizes,
    output_sizes: Sizes,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension,
    dilations: calls.EachDimension,
    start_padding: calls.EachDimension,
    end_padding: calls.EachDimension,
) -> WindowPlan:
    require("input", len(input) == 3, "must have 3 dimensions: batch, columns and windows", len(input))
    rule = "must be batch, channels and the sizes of one or more dimensions"
    require("output_sizes", len(output_sizes) >= 3, rule, spell_sizes(output_sizes))
    require_counts("output_sizes", output_sizes, 0)
    windows = fit_windows("output_sizes", output_sizes, window_sizes, strides, dilations, start_padding, end_padding)
    require_sizes("input", input, column_sizes(output_sizes, windows), why=", by output_sizes")
    return WindowPlan(windows, output_sizes)


@calls.operator_function
def unfold(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
) -> Array:
    """Copies each window of an image, or of an array of one or more spatial dimensions, into a column: im2col.

    A column has the elements of a window, channel by channel. The padding is 0.

    Args:
        input: Images, (batch, channels, spatial dimensions).

    Returns:
        Columns, (batch, channels * elements of a window, windows).

    >>> unfold(jnp.arange(5).reshape(1, 1, 5), window_sizes=(3,)).tolist()
    [[[0, 1, 2], [1, 2, 3], [2, 3, 4]]]
    """
    input = calls.real_array("input", input)
    steps = window_sizes, strides, dilations, start_padding, end_padding
    windows = _unfold_sizes(input.shape, *steps).windows

    def copy(input: Array) -> Array:
        return copy_exactly(lambda floats, _: unfold_windows(floats[0], windows), (input,), sums_are_wide=True)

    axes = dimension_axes(input)
    return call_with_auto_axes(copy, [(input, axes)], [*axes[:2], None])


@calls.operator_function
def fold(
    input: ArrayLike,
    *,
    output_sizes: Sequence[int],
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
) -> Array:
    """Adds columns back to the places that `unfold` takes them from (col2im): the gradient of `unfold`.

    Overlapping windows are summed, elements outside every window are 0, and elements in the padding are dropped. Sums
    of 16-bit floats are rounded once; sums of integers wrap around.

    Args:
        input: Columns, (batch, channels * elements of a window, windows).
        output_sizes: Shape of the result, (batch, channels, spatial dimensions).

    Returns:
        Array of the shape `output_sizes`.

    >>> columns = unfold(jnp.ones((1, 1, 5)), window_sizes=(3,))
    >>> fold(columns, output_sizes=(1, 1, 5), window_sizes=(3,)).tolist()
    [[[1.0, 2.0, 3.0, 2.0, 1.0]]]
    """
    x = calls.number_array("input", input)
    steps = window_sizes, strides, dilations, start_padding, end_padding
    windows, sizes = _fold_sizes(x.shape, tuple(output_sizes), *steps)

    def add(columns: Array) -> Array:
        total = fold_windows(columns.astype(widened(columns.dtype)), sizes, windows)
        return total.astype(columns.dtype)

    batch, columns, _ = axes = dimension_axes(x)
    channels: MeshAxes = dividing_axes(columns, sizes[1], x)
    return call_with_auto_axes(add, [(x, axes)], [batch, channels, *(None for _ in windows)])


class _Windows(dml.Operator):
    """InputTensor, OutputTensor, and the windows that slide over one of these tensors, the image."""

    input: dml.Input
    output: dml.Output
    window_sizes: dml.UintDimensions
    strides: dml.UintDimensions
    dilations: dml.UintDimensions
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    # The page's table gives no data types.
    support = dml.support(FL_6_4=dml.rows(dml.RANK_3_TO_8, FLOAT))


def _windows_fit(image: str, columns: str) -> tuple[dml.Rule, ...]:
    # The page asks that both tensors have the same DimensionCount, but none of its examples does so.
    return dml.page_rules(
        dml.same_type("input", "output"),
        *dml.infer_rules(
            dml.spatial_sentence("WindowSizes, Strides, Dilations, StartPadding and EndPadding", image),
            f"No window is larger than the padded {{{image}}}.",
            f"{{{columns}}} has three dimensions: batch, the elements of a window of all channels, and windows.",
        ),
    )


class UnfoldDesc(_Windows, function=unfold, infer=_unfold_sizes):
    rules = _windows_fit("input", "output")


class FoldDesc(_Windows, function=fold, infer=_fold_sizes):
    rules = _windows_fit("output", "input")
