"""Operators that move elements or create arrays: shapes, reshapes, joins, slices, padding, and constants."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.dimensions import is_symbolic, number
from dmljax.foundation.sharding import reshape
from dmljax.lowerings.copies import copy_exactly
from dmljax.onnx.graph.reader import dtype_of, require_possible_sizes
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib, look_up, takes_attributes
from dmljax.onnx.handlers.signatures import (
    Image,
    KeptMatrix,
    KeptNumber,
    KeptValue,
    Known,
    KnownNumber,
    KnownVector,
    Matrices,
    Measured,
    Number,
    Vector,
)
from dmljax.onnx.running.interpreter import MAX_FOLDED, as_array
from dmljax.onnx.values.symbols import Symbols, as_sizes, size_of, sizes_array
from dmljax.onnx.values.types import Array, Elements, Results, Tensor, Value
from dmljax.types import REALS

# Sizes


@handles("Shape", folds=True)
def _shape(x: Measured, *, start: int = 0, end: int | None = None) -> Known:
    return sizes_array(x.shape[start:end])


@handles("Size", folds=True)
def _size(x: Measured) -> Known:
    return sizes_array([math.prod(x.shape)]).reshape(())


# Constants


@handles("Constant", folds=True)
def _constant(
    *,
    value: Elements | None = None,
    sparse_value: Elements | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Known:
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value
    for dtype, scalar in ((np.float32, value_float), (np.int64, value_int), (object, value_string)):
        if scalar is not None:
            return np.array(scalar, dtype)
    for dtype, several in ((np.float32, value_floats), (np.int64, value_ints), (object, value_strings)):
        if several is not None:
            return np.array(several, dtype)
    raise InvalidDesc(Problem((), "no attribute gives its value"))


def _number_of(value: Elements | None) -> Known:
    """Returns the fill value: the only element of a tensor, or 0 by default."""
    if value is None:
        return np.zeros((), np.float32)
    if value.size != 1:
        raise InvalidDesc(Problem("value", "must have one element", value.shape))
    return value.reshape(())


def _fill(shape: Known, *, value: Elements | None = None) -> Known | None:
    number, sizes = _number_of(value), as_sizes(shape)
    if any(not isinstance(size, int) for size in sizes):
        return None
    return np.broadcast_to(number, sizes)


@handles("ConstantOfShape", fold=_fill)
def _constant_of_shape(shape: KnownVector, *, value: Elements | None = None) -> Array:
    number, sizes = as_array(_number_of(value)), as_sizes(shape)
    require_possible_sizes((), sizes, "must have results of")  # a node of constants runs at once
    if number.dtype not in REALS:
        return jnp.full(sizes, number)
    return dmljax.fill_value_constant(number, output_sizes=sizes, dtype=number.dtype)


def _fold_range(start: Known, limit: Known, delta: Known) -> Known | None:
    if any(isinstance(value, Symbols) for value in (start, limit, delta)) or _count(start, limit, delta) > MAX_FOLDED:
        return None
    count = _count(start, limit, delta)
    return np.asarray(start.reshape(()) + np.arange(count).astype(start.dtype) * delta.reshape(()), start.dtype)


def _count(start: Known, limit: Known, delta: Known) -> Any:
    first, last, step = (value.reshape(()).item() for value in (start, limit, delta))
    if step == 0:
        raise InvalidDesc(Problem("delta", "must not be 0", step))
    return _clamp_to_zero(size_of(math.ceil((last - first) / step)))


@handles("Range", fold=_fold_range)
def _range(start: KnownNumber, limit: KnownNumber, delta: KnownNumber) -> Array:
    first, step = (as_array(value.reshape(())) for value in (start, delta))
    return dmljax.fill_value_sequence(first, step, output_sizes=(_count(start, limit, delta),))


@handles("EyeLike")
def _eye_like(x: KeptMatrix, *, dtype: int = 0, k: int = 0) -> Array:
    result_type = jax.dtypes.canonicalize_dtype(dtype_of(dtype) if dtype else x.dtype)
    return dmljax.diagonal_matrix(1, offset=k, output_sizes=x.shape, dtype=jnp.dtype(result_type))


# Reshapes

BEYOND = 10**9  # a slice's bound from here on means the end of an open size

X = TypeVar("X", Array, Known)


@handles("Identity", folds=True)
def _identity(x: KeptValue) -> Value:
    return x


@handles("Reshape", since=5, folds=True)
def _reshape(x: X, shape: KnownVector, *, allowzero: int = 0) -> X:
    sizes = list(as_sizes(shape))
    for i, size in enumerate(sizes):
        if isinstance(size, int) and size == 0 and not allowzero:
            if i >= x.ndim:
                raise InvalidDesc(Problem("shape", f"must have 0 only in the first {x.ndim} dimensions", sizes))
            sizes[i] = x.shape[i]
    open_places = [i for i, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    if len(open_places) == 1:
        others = math.prod(size for i, size in enumerate(sizes) if i != open_places[0])
        whole = math.prod(x.shape)
        sizes[open_places[0]] = 0 if isinstance(others, int) and others == 0 else whole // others
    _require_count(x, sizes)
    return _reshape_value(x, sizes)


def _require_count(x: Tensor, sizes: Sequence[int]) -> None:
    whole, wanted = math.prod(x.shape), math.prod(sizes)
    if isinstance(whole, int) and isinstance(wanted, int) and (whole != wanted or any(size < 0 for size in sizes)):
        raise InvalidDesc(Problem("shape", f"must describe {whole} elements, like the input", tuple(sizes)))


@handles("Reshape", since=1)
def _reshape_to_attribute(x: Array, *, shape: Sequence[int] = ()) -> Array:
    return _reshape(x, np.array(shape, np.int64))


@handles("Flatten", folds=True)
def _flatten(x: X, *, axis: int = 1) -> X:
    axis = axis if axis >= 0 else axis + x.ndim
    return _reshape_value(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _reshape_value(x: X, sizes: Sequence[int]) -> X:
    return reshape(x, sizes) if isinstance(x, jax.Array) else x.reshape(sizes)


@handles("Squeeze", since=13, folds=True)
def _squeeze(x: X, axes: Known | None = None) -> X:
    if axes is None:
        ones = [i for i, size in enumerate(x.shape) if isinstance(size, int) and size == 1]
        return x.reshape([size for i, size in enumerate(x.shape) if i not in ones])
    dropped = {normalize_axis(axis, x.ndim) for axis in as_sizes(axes)}
    for axis in dropped:
        if x.shape[axis] != 1:
            raise InvalidDesc(Problem("axes", "must name dimensions of size 1", f"{axis} of {x.shape}"))
    return x.reshape([size for i, size in enumerate(x.shape) if i not in dropped])


@handles("Unsqueeze", since=13, folds=True)
def _unsqueeze(x: X, axes: Known) -> X:
    chosen = as_sizes(axes)
    rank = x.ndim + len(chosen)
    added = {normalize_axis(axis, rank) for axis in chosen}
    if len(added) < len(chosen):
        raise InvalidDesc(Problem("axes", "must not repeat", chosen))
    sizes = iter(x.shape)
    return x.reshape([1 if i in added else next(sizes) for i in range(rank)])


@handles_contrib("ExpandDims")
def _expand_dims(x: Array, axis: KnownNumber) -> Array:
    return jnp.expand_dims(x, int(axis.item()))


def normalize_axis(axis: int, rank: int) -> int:
    """Converts a negative axis to a positive one."""
    if not -rank <= axis < rank:
        raise InvalidDesc(Problem("axis", f"must be in [{-rank}, {rank})", axis))
    return axis % rank


takes_attributes("Squeeze", since=1, axes=Sequence[int] | None)
takes_attributes("Unsqueeze", since=1, axes=Sequence[int])


# Movement


@handles("Transpose", folds=True)
def _transpose(x: X, *, perm: Sequence[int] | None = None) -> X:
    if perm is not None and sorted(perm) != list(range(x.ndim)):
        raise InvalidDesc(Problem("perm", f"must be a permutation of {x.ndim} dimensions", tuple(perm)))
    return x.transpose(perm)


def _broadcast_sizes(x: Tensor, shape: Known) -> tuple[int, ...]:
    wanted = as_sizes(shape)
    try:
        return jnp.broadcast_shapes(x.shape, wanted)
    except ValueError:
        raise InvalidDesc(Problem("shape", f"must broadcast with the input's shape {x.shape}", wanted)) from None


@handles("Expand", since=8, fold=lambda x, shape: np.broadcast_to(x, _broadcast_sizes(x, shape)))
def _expand(x: Array, shape: KnownVector) -> Array:
    sizes = _broadcast_sizes(x, shape)
    return copy_exactly(lambda floats, _: jnp.broadcast_to(floats[0], sizes), (x,))


def _repeat(x: Known, repeats: Known) -> Known | None:
    times = as_sizes(repeats)
    return np.tile(x, times) if math.prod(times) * x.size <= MAX_FOLDED else None


@handles("Tile", since=6, fold=_repeat)
def _tile(x: Array, repeats: KnownVector) -> Array:
    times = as_sizes(repeats)
    if len(times) != x.ndim:
        raise InvalidDesc(Problem("repeats", f"must have {x.ndim} numbers, one per dimension", times))
    is_known = all(isinstance(count, int) and count for count in times)
    return dmljax.tile(x, repeats=times) if is_known else jnp.tile(x, times)


@handles("Tile", since=1)
def _tile_along(x: Array, tiles: KnownNumber, axis: KnownNumber) -> Array:
    repeats = [1] * x.ndim
    repeats[normalize_axis(int(axis.item()), x.ndim)] = size_of(tiles.item())
    return _tile(x, sizes_array(repeats))


def _fold_concat(*inputs: Known, axis: int = 1) -> Known:
    axis = normalize_axis(axis, inputs[0].ndim)
    others = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in inputs}
    if len(others) > 1 or len({x.ndim for x in inputs}) > 1:
        rule = "inputs must have the same sizes, except along the axis"
        raise InvalidDesc(Problem((), rule, " and ".join(str(x.shape) for x in inputs)))
    return np.concatenate(inputs, axis=axis)


@handles("Concat", since=4, fold=_fold_concat)
def _concat(*inputs: Array, axis: int) -> Array:
    return join_arrays(inputs, axis)


@handles("Concat", since=1)
def _first_concat(*inputs: Array, axis: int = 1) -> Array:
    return join_arrays(inputs, axis)


def join_arrays(inputs: Sequence[Array], axis: int) -> Array:
    """Joins arrays along an axis; empty arrays are skipped."""
    if inputs[0].dtype not in REALS:
        return jnp.concatenate(inputs, axis=axis)
    return dmljax.join(list(inputs), axis=axis)


def split_sizes(whole: int, count: int) -> list[int]:
    """Splits a size into equal parts; the last may be smaller."""
    part = -(-whole // count)
    return [part] * (count - 1) + [whole - part * (count - 1)]


def _split_into(x: Tensor, sizes: Sequence[int], axis: int) -> Results:
    if any(isinstance(size, int) and size < 0 for size in sizes):
        raise InvalidDesc(Problem("split", "must each be at least 0", tuple(sizes)))
    if isinstance(x, np.ndarray) or not all(isinstance(size, int) and size > 0 for size in sizes):
        ends = np.cumsum(sizes)
        if isinstance(ends[-1], np.integer) and ends[-1] != x.shape[axis]:
            raise InvalidDesc(Problem("split", f"must add up to {x.shape[axis]}", tuple(sizes)))
        return tuple((np if isinstance(x, np.ndarray) else jnp).split(x, ends[:-1].tolist(), axis=axis))
    return tuple(dmljax.split(x, sizes=sizes, axis=axis))


@handles("Split", since=13, folds=True)
def _split(
    x: Tensor, split: KnownVector | None = None, *, axis: int = 0, num_outputs: int | None = None, call: NodeCall
) -> Results:
    count = len(call.node.outputs)
    if num_outputs not in (None, count):
        raise InvalidDesc(Problem("num_outputs", f"must be {count}, the number of outputs", num_outputs))
    axis = normalize_axis(axis, x.ndim)
    return _split_into(x, split_sizes(x.shape[axis], count) if split is None else as_sizes(split), axis)


takes_attributes("Split", since=2, split=Sequence[int] | None)


@handles("Split", since=1)
def _first_split(x: Array, split: Known | None = None, *, axis: int = 0, call: NodeCall) -> Results:
    return _split(x, split, axis=axis, call=call)


# Slices


def slices(shape: Sequence[int], starts: Known, ends: Known, axes: Known | None, steps: Known | None) -> list[slice]:
    """Returns the slice along each axis."""
    count = starts.size
    chosen = (*range(count),) if axes is None else as_sizes(axes)
    strides = (1,) * count if steps is None else as_sizes(steps)
    bounds = (as_sizes(starts), as_sizes(ends), chosen, strides)
    if len({*map(len, bounds)}) > 1:
        rule = "starts, ends, axes and steps must have the same length"
        raise InvalidDesc(Problem((), rule, tuple(map(len, bounds))))
    windows = [slice(None)] * len(shape)
    for start, end, axis, step in zip(*bounds, strict=True):
        if step == 0:
            raise InvalidDesc(Problem("steps", "must not be 0", strides))
        axis = normalize_axis(axis, len(shape))
        if all(isinstance(value, int) for value in (start, step, shape[axis])) and step < 0:
            start = max(start, -shape[axis])  # before the first element, where Python would find none
        windows[axis] = slice(start, end, step)
    return windows


def _fold_slice(x: Known, starts: Known, ends: Known, axes: Known | None = None, steps: Known | None = None) -> Known:
    return np.asarray(x[tuple(slices(x.shape, starts, ends, axes, steps))])


@handles("Slice", since=10, fold=_fold_slice)
def _slice(
    x: Array, starts: KnownVector, ends: KnownVector, axes: KnownVector | None = None, steps: KnownVector | None = None
) -> Array:
    windows = slices(x.shape, starts, ends, axes, steps)
    bounds = (*x.shape, *(bound for window in windows for bound in (window.start, window.stop, window.step)))
    if any(map(is_symbolic, bounds)) or x.dtype not in REALS:
        return _slice_by_symbols(x, windows)
    ranges = [range(size)[window] for size, window in zip(x.shape, windows, strict=True)]
    if not all(map(len, ranges)):
        return x[tuple(windows)]  # DirectML has no empty tensors
    return dmljax.slice1(
        x,
        starts=[min(places[0], places[-1]) for places in ranges],
        sizes=[abs(places[-1] - places[0]) + 1 for places in ranges],
        strides=[places.step for places in ranges],
    )


def _slice_by_symbols(x: Array, windows: Sequence[slice]) -> Array:
    """Slices an array with open sizes; a bound of `BEYOND` or more means the end."""

    def bound(value: int | None) -> int | None:
        return None if isinstance(value, int) and abs(value) >= BEYOND else value

    return x[tuple(slice(bound(window.start), bound(window.stop), window.step) for window in windows)]


takes_attributes("Slice", since=1, starts=Sequence[int], ends=Sequence[int], axes=Sequence[int] | None)


# Padding

_MODES = {
    "constant": directml.PaddingMode.CONSTANT,
    "edge": directml.PaddingMode.EDGE,
    "reflect": directml.PaddingMode.REFLECTION,
    "wrap": directml.PaddingMode.WRAP,
}


def _pad_array(x: Array, pads: Sequence[int], value: Tensor | None, axes: Sequence[int], mode: str) -> Array:
    start, end = [0] * x.ndim, [0] * x.ndim
    if len(pads) != 2 * len(axes):
        raise InvalidDesc(Problem("pads", f"must have {2 * len(axes)} numbers", tuple(pads)))
    for i, axis in enumerate(axes):
        start[normalize_axis(axis, x.ndim)], end[normalize_axis(axis, x.ndim)] = pads[i], pads[len(axes) + i]
    padding_mode = look_up("mode", mode, _MODES)
    # DirectML has no negative padding; crop first.
    windows = [
        slice(_clamp_to_zero(-a), size - _clamp_to_zero(-b)) for a, b, size in zip(start, end, x.shape, strict=True)
    ]
    x = x[tuple(windows)]
    start, end = ([_clamp_to_zero(amount) for amount in amounts] for amounts in (start, end))
    if not any(start) and not any(end):
        return x
    value = jnp.zeros((), x.dtype) if value is None else value.reshape(()).astype(x.dtype)
    return dmljax.padding1(x, value, padding_mode=padding_mode, start_padding=start, end_padding=end)


def _clamp_to_zero(amount: int) -> int:
    return jax.core.max_dim(0, amount)


@handles("Pad", since=11)
def _pad(
    x: Array, pads: KnownVector, value: Number | None = None, axes: KnownVector | None = None, *, mode: str = "constant"
) -> Array:
    chosen = range(x.ndim) if axes is None else as_sizes(axes)
    return _pad_array(x, as_sizes(pads), value, chosen, mode)


takes_attributes("Pad", since=2, pads=Sequence[int], value=float | None)


@handles("Pad", since=1)
def _first_pad(x: Array, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    return _pad_array(x, paddings, jnp.asarray(value, x.dtype), range(x.ndim), mode)


@handles("Crop")
def _crop(x: Image, *, border: Sequence[int] = (0, 0, 0, 0), scale: Sequence[int] = ()) -> Array:
    for name, numbers, count in (("border", border, 4), ("scale", scale or (0, 0), 2)):
        if len(numbers) != count:
            raise InvalidDesc(Problem(name, f"must have {count} numbers", tuple(numbers)))
    left, top, right, bottom = border
    height, width = scale or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    return dmljax.slice(x, starts=(0, 0, top, left), sizes=(*x.shape[:2], height, width))


@handles("CenterCropPad")
def _center_crop_pad(x: Array, shape: KnownVector, *, axes: Sequence[int] | None = None) -> Array:
    chosen, sizes = range(x.ndim) if axes is None else axes, as_sizes(shape)
    if len(sizes) != len(chosen):
        raise InvalidDesc(Problem("shape", f"must have {len(chosen)} numbers", sizes))
    for axis, size in zip(chosen, sizes, strict=True):
        axis = normalize_axis(axis, x.ndim)
        more = size - x.shape[axis]
        if is_symbolic(more):  # may be padding or cropping
            places = jax.lax.iota(np.int32, size) - jax.lax.div(number(more, np.int32), np.int32(2))
            outside = jnp.where(places < 0, number(x.shape[axis], np.int32), places)
            x = jnp.take(x, outside, axis=axis, mode="fill", fill_value=0)
        else:
            half = abs(more) // 2 if more > 0 else -((-more) // 2)
            x = _pad_array(x, (half, more - half), None, [axis], "constant")
    return x


# Blocks and images

_ORDERS = {"DCR": directml.DepthSpaceOrder.DEPTH_COLUMN_ROW, "CRD": directml.DepthSpaceOrder.COLUMN_ROW_DEPTH}


@handles("DepthToSpace")
def _depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    return dmljax.depth_to_space1(x, block_size=blocksize, order=look_up("mode", mode, _ORDERS))


@handles("SpaceToDepth")
def _space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    return dmljax.space_to_depth1(x, block_size=blocksize, order=look_up("mode", mode, _ORDERS))


@handles("ReverseSequence")
def _reverse_sequence(x: Array, lengths: Vector, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    # ONNX has a length per index of the batch axis; DirectML has a length per sequence.
    time_axis, batch_axis = normalize_axis(time_axis, x.ndim), normalize_axis(batch_axis, x.ndim)
    sizes = [1 if axis == time_axis else size for axis, size in enumerate(x.shape)]
    others = [axis for axis in range(x.ndim) if axis != batch_axis]
    return dmljax.reverse_subsequences(x, jnp.broadcast_to(jnp.expand_dims(lengths, others), sizes), axis=time_axis)


INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def _fold_triangle(x: Known, k: Known | None = None, *, upper: int = 1) -> Known:
    side = np.triu if upper else np.tril
    return side(x, 0 if k is None else max(INT32_MIN, min(INT32_MAX - 1, int(k.item()))))


@handles("Trilu", fold=_fold_triangle)
def _triangle(x: Matrices, k: KeptNumber | None = None, *, upper: int = 1) -> Array:
    # ONNX keeps one side of diagonal k; DirectML zeros the other.
    if k is not None and (isinstance(k, Symbols) or not isinstance(k, np.ndarray)):
        k = as_array(k)
        diagonals = jnp.arange(x.shape[-1])[None, :] - jnp.arange(x.shape[-2])[:, None]
        is_kept = diagonals >= k.reshape(()) if upper else diagonals <= k.reshape(())
        return jnp.where(jnp.broadcast_to(is_kept, x.shape), x, jnp.zeros((), x.dtype))
    diagonal = max(INT32_MIN, min(INT32_MAX - 1, 0 if k is None else int(k.item())))
    begin, end = (INT32_MIN, diagonal) if upper else (diagonal + 1, INT32_MAX)
    return dmljax.diagonal_matrix1(x, 0, diagonal_fill_begin=begin, diagonal_fill_end=end)
