"""Operators that move elements and make arrays: sizes, reshapes, joins, slices, padding, and constants."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmljax as dml
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem
from dmljax.lowerings.copies import copied
from dmljax.onnx.file import dtype_of
from dmljax.onnx.interpreter import MAX_FOLDED, as_array, as_sizes
from dmljax.onnx.parameters import Image, Matrices, Matrix, Number, Rows, Tensor, Vector
from dmljax.onnx.registry import Call, handles, one_of
from dmljax.types import REALS

# Sizes, which are known of any array


@handles("Shape", kept=[0], fold=lambda x, **bounds: _shape(x, **bounds))
def _shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Any:
    return sizes_array(x.shape[start:end])


@handles("Size", kept=[0], fold=lambda x: _size(x))
def _size(x: Tensor) -> Any:
    return sizes_array([math.prod(x.shape)]).reshape(())


def sizes_array(sizes: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Sizes as an array, which holds symbols where sizes are symbols."""
    dtype = np.int64 if all(isinstance(one, int | np.integer) for one in sizes) else object
    return np.array([*sizes], dtype)


# Constants


def _constant_value(
    *,
    value: np.ndarray[Any, Any] | None = None,
    sparse_value: np.ndarray[Any, Any] | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Any:
    if value is not None:
        return value
    if sparse_value is not None:
        return sparse_value
    for dtype, one in ((np.float32, value_float), (np.int64, value_int), (object, value_string)):
        if one is not None:
            return np.array(one, dtype)
    for dtype, several in ((np.float32, value_floats), (np.int64, value_ints), (object, value_strings)):
        if several is not None:
            return np.array(several, dtype)
    raise InvalidDesc(Problem((), "must have one of the attributes that give a value", "none"))


handles("Constant", fold=_constant_value)(_constant_value)


def _number_of(value: np.ndarray[Any, Any] | None) -> Any:
    """The element of a tensor that fills others: 0 if it is left out."""
    if value is None:
        return np.zeros((), np.float32)
    if value.size != 1:
        raise InvalidDesc(Problem("value", "must have one element", value.shape))
    return value.reshape(())


def _filled(shape: Any, *, value: np.ndarray[Any, Any] | None = None) -> Any:
    number, sizes = _number_of(value), as_sizes(shape)
    if any(not isinstance(one, int) for one in sizes) or math.prod(sizes) > MAX_FOLDED:
        return NotImplemented
    return np.full(sizes, number, number.dtype)


@handles("ConstantOfShape", known=[0], fold=_filled)
def _constant_of_shape(shape: Vector, *, value: np.ndarray[Any, Any] | None = None) -> Any:
    number = as_array(_number_of(value))
    if number.dtype not in REALS:
        return jnp.full(as_sizes(shape), number)
    return dml.fill_value_constant(number, output_sizes=as_sizes(shape), dtype=number.dtype)


def _folded_range(start: Any, limit: Any, delta: Any) -> Any:
    if any(one.dtype == object for one in (start, limit, delta)) or _count(start, limit, delta) > MAX_FOLDED:
        return NotImplemented
    count = _count(start, limit, delta)
    return (start.reshape(()) + np.arange(count).astype(start.dtype) * delta.reshape(())).astype(start.dtype)


def _count(start: Any, limit: Any, delta: Any) -> Any:
    first, last, step = (one.reshape(()).item() for one in (start, limit, delta))
    if isinstance(step, int | float) and step == 0:
        raise InvalidDesc(Problem("delta", "must not be 0", step))
    if all(isinstance(one, int | float) for one in (first, last, step)):
        return max(0, math.ceil((last - first) / step))
    return jax.core.max_dim(0, -((first - last) // step))


@handles("Range", known=[0, 1, 2], fold=_folded_range)
def _range(start: Number, limit: Number, delta: Number) -> Any:
    count = _count(start, limit, delta)
    if start.dtype == object:
        start, delta = (one.astype(np.int64) for one in (start, delta))
    return dml.fill_value_sequence(as_array(start.reshape(())), as_array(delta.reshape(())), output_sizes=(count,))


@handles("EyeLike", kept=[0])
def _eye_like(x: Matrix, *, dtype: int = 0, k: int = 0) -> Any:
    kind = jax.dtypes.canonicalize_dtype(dtype_of(dtype) if dtype else x.dtype)
    return dml.diagonal_matrix(1, offset=k, output_sizes=x.shape, dtype=jnp.dtype(kind))


# The same elements with other sizes


def _identity(x: Any) -> Any:
    return x


handles("Identity", kept=[0], fold=_identity)(_identity)


def _reshaped(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = list(as_sizes(shape))
    for i, size in enumerate(sizes):
        if isinstance(size, int) and size == 0 and not allowzero:
            if i >= x.ndim:
                raise InvalidDesc(Problem("shape", f"must have 0 only for {x.ndim} dimensions", sizes))
            sizes[i] = x.shape[i]
    open_places = [i for i, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    if len(open_places) == 1:
        others = math.prod(size for i, size in enumerate(sizes) if i != open_places[0])
        whole = math.prod(x.shape)
        sizes[open_places[0]] = 0 if isinstance(others, int) and others == 0 else whole // others
    _require_count(x, sizes)
    return x.reshape(sizes)


def _require_count(x: Any, sizes: Sequence[Any]) -> None:
    whole, wanted = math.prod(x.shape), math.prod(sizes)
    if isinstance(whole, int) and isinstance(wanted, int) and (whole != wanted or any(one < 0 for one in sizes)):
        raise InvalidDesc(Problem("shape", f"must have {whole} elements, as the input does", tuple(sizes)))


@handles("Reshape", since=5, known=[1], fold=_reshaped)
def _reshape(x: Any, shape: Vector, *, allowzero: int = 0) -> Any:
    return _reshaped(x, shape, allowzero=allowzero)


@handles("Reshape", since=1)
def _reshape_to_attribute(x: Any, *, shape: Sequence[int] = ()) -> Any:
    return _reshaped(x, np.array(shape, np.int64))


@handles("Flatten")
def _flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis if axis >= 0 else axis + x.ndim
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _squeezed(x: Any, axes: Any = None) -> Any:
    if axes is None:
        ones = [i for i, size in enumerate(x.shape) if isinstance(size, int) and size == 1]
        return x.reshape([size for i, size in enumerate(x.shape) if i not in ones])
    dropped = {normal(axis, x.ndim) for axis in as_sizes(axes)}
    for axis in dropped:
        if x.shape[axis] != 1:
            raise InvalidDesc(Problem("axes", "must be of dimensions of size 1", f"{axis} of {x.shape}"))
    return x.reshape([size for i, size in enumerate(x.shape) if i not in dropped])


def _unsqueezed(x: Any, axes: Any) -> Any:
    given = as_sizes(axes)
    rank = x.ndim + len(given)
    added = {normal(axis, rank) for axis in given}
    if len(added) < len(given):
        raise InvalidDesc(Problem("axes", "must be different", given))
    own = iter(x.shape)
    return x.reshape([1 if i in added else next(own) for i in range(rank)])


def normal(axis: int, rank: int) -> int:
    """An axis counted from the first dimension."""
    if not -rank <= axis < rank:
        raise InvalidDesc(Problem("axis", f"must be in [{-rank}, {rank})", axis))
    return axis % rank


for _operator, _function in (("Squeeze", _squeezed), ("Unsqueeze", _unsqueezed)):
    handles(_operator, since=13, known=[1], fold=_function)(_function)


def _squeeze_of_attribute(x: Any, *, axes: Sequence[int] | None = None) -> Any:
    return _squeezed(x, None if axes is None else np.array(axes))


def _unsqueeze_of_attribute(x: Any, *, axes: Sequence[int]) -> Any:
    return _unsqueezed(x, np.array(axes))


handles("Squeeze", since=1, fold=_squeeze_of_attribute)(_squeeze_of_attribute)
handles("Unsqueeze", since=1, fold=_unsqueeze_of_attribute)(_unsqueeze_of_attribute)


# Elements moved


def _transposed(x: Any, *, perm: Sequence[int] | None = None) -> Any:
    if perm is not None and sorted(perm) != list(range(x.ndim)):
        raise InvalidDesc(Problem("perm", f"must be a permutation of {x.ndim} dimensions", tuple(perm)))
    return x.transpose(perm)


handles("Transpose", fold=_transposed)(_transposed)


def _expanded(x: Any, shape: Any) -> Any:
    sizes = np.broadcast_shapes(x.shape, as_sizes(shape))
    return np.broadcast_to(x, sizes) if math.prod(sizes) <= MAX_FOLDED else NotImplemented


@handles("Expand", since=8, known=[1], fold=_expanded)
def _expand(x: Any, shape: Vector) -> Any:
    sizes = jnp.broadcast_shapes(x.shape, as_sizes(shape))
    return copied(lambda floats, _: jnp.broadcast_to(floats[0], sizes), (x,))


def _tiled(x: Any, repeats: Any) -> Any:
    times = as_sizes(repeats)
    return np.tile(x, times) if math.prod(times) * x.size <= MAX_FOLDED else NotImplemented


@handles("Tile", since=6, known=[1], fold=_tiled)
def _tile(x: Any, repeats: Vector) -> Any:
    times = as_sizes(repeats)
    if len(times) != x.ndim:
        raise InvalidDesc(Problem("repeats", f"must have one number for each of {x.ndim} dimensions", times))
    return dml.tile(x, repeats=times) if all(isinstance(one, int) and one for one in times) else jnp.tile(x, times)


@handles("Tile", since=1, known=[1, 2])
def _tile_along(x: Any, tiles: Number, axis: Number) -> Any:
    repeats = [1] * x.ndim
    repeats[normal(int(axis.item()), x.ndim)] = int(tiles.item())
    return dml.tile(x, repeats=repeats)


def _concatenated(*inputs: Any, axis: int = 1) -> Any:
    axis = normal(axis, inputs[0].ndim)
    others = {(*x.shape[:axis], *x.shape[axis + 1 :]) for x in inputs}
    if len(others) > 1 or len({x.ndim for x in inputs}) > 1:
        rule = "must have inputs of the same sizes, but for the axis"
        raise InvalidDesc(Problem((), rule, " and ".join(str(x.shape) for x in inputs)))
    return np.concatenate(inputs, axis=axis)


@handles("Concat", since=4, fold=_concatenated)
def _concat(*inputs: Any, axis: int) -> Any:
    return joined(inputs, axis)


@handles("Concat", since=1)
def _first_concat(*inputs: Any, axis: int = 1) -> Any:
    return joined(inputs, axis)


def joined(inputs: Sequence[Any], axis: int) -> Any:
    """Arrays joined along an axis, of which empty ones add nothing."""
    if inputs[0].dtype not in REALS:
        return jnp.concatenate(inputs, axis=axis)
    return dml.join(list(inputs), axis=axis)


def split_sizes(whole: Any, count: int) -> list[Any]:
    """The sizes of equal parts, of which the last may be smaller."""
    part = -(-whole // count)
    return [part] * (count - 1) + [whole - part * (count - 1)]


def _split_into(x: Any, sizes: Any, axis: int) -> Any:
    if any(isinstance(one, int) and one < 0 for one in sizes):
        raise InvalidDesc(Problem("split", "must be at least 0 each", tuple(sizes)))
    if isinstance(x, np.ndarray) or not all(isinstance(one, int) and one > 0 for one in sizes):
        ends = np.cumsum(sizes)
        if isinstance(ends[-1], np.integer) and ends[-1] != x.shape[axis]:
            raise InvalidDesc(Problem("split", f"must add up to {x.shape[axis]}", tuple(sizes)))
        return tuple((np if isinstance(x, np.ndarray) else jnp).split(x, ends[:-1].tolist(), axis=axis))
    return tuple(dml.split(x, sizes=sizes, axis=axis))


@handles("Split", since=13, known=[1], fold=lambda *inputs, **options: _split(*inputs, **options))
def _split(x: Any, split: Vector = None, *, axis: int = 0, num_outputs: int | None = None, call: Call) -> Any:
    count = len(call.node.outputs)
    if num_outputs not in (None, count):
        raise InvalidDesc(Problem("num_outputs", f"must be {count}, the number of outputs", num_outputs))
    axis = normal(axis, x.ndim)
    return _split_into(x, split_sizes(x.shape[axis], count) if split is None else as_sizes(split), axis)


@handles("Split", since=2)
def _split_of_attribute(x: Any, *, axis: int = 0, split: Sequence[int] | None = None, call: Call) -> Any:
    return _split(x, None if split is None else np.array(split), axis=axis, call=call)


@handles("Split", since=1)
def _first_split(x: Any, split: Any = None, *, axis: int = 0, **more: Any) -> Any:
    return _split(x, split, axis=axis, **more)


# Slices and padding


def _windows(shape: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> list[slice]:
    starts, ends = as_sizes(starts), as_sizes(ends)
    axes = range(len(starts)) if axes is None else as_sizes(axes)
    steps = [1] * len(starts) if steps is None else as_sizes(steps)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        lengths = (len(starts), len(ends), len(axes), len(steps))
        raise InvalidDesc(Problem((), "starts, ends, axes and steps must be of one length", lengths))
    windows = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            raise InvalidDesc(Problem("steps", "must not be 0", tuple(steps)))
        windows[normal(axis, len(shape))] = slice(start, end, step)
    return windows


def _indexed(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    return x[tuple(_windows(x.shape, starts, ends, axes, steps))]


@handles("Slice", since=10, known=[1, 2, 3, 4], fold=_indexed)
def _slice(x: Any, starts: Vector, ends: Vector, axes: Vector = None, steps: Vector = None) -> Any:
    windows = _windows(x.shape, starts, ends, axes, steps)
    is_fixed = all(isinstance(one, int) for one in x.shape)
    if not is_fixed or x.dtype not in REALS:
        return _sliced_by_symbols(x, windows)
    ranges = [range(size)[window] for size, window in zip(x.shape, windows, strict=True)]
    if not all(map(len, ranges)):
        return x[tuple(windows)]  # empty, which DirectML's tensors are not
    return dml.slice1(
        x,
        starts=[min(one[0], one[-1]) for one in ranges],
        sizes=[abs(one[-1] - one[0]) + 1 for one in ranges],
        strides=[one.step for one in ranges],
    )


def _sliced_by_symbols(x: Any, windows: Sequence[slice]) -> Any:
    """A slice of an array with sizes that are symbols, which cannot be compared with all numbers."""
    clamped = []
    for size, window in zip(x.shape, windows, strict=True):
        start, end, step = window.start, window.stop, window.step
        if isinstance(end, int) and end >= 2**31 - 1:
            end = None
        if isinstance(end, int) and end <= -(2**31) and step is not None and step < 0:
            end = None
        if isinstance(start, int) and abs(start) >= 2**31 - 1:
            start = None
        del size
        clamped.append(slice(start, end, step))
    return x[tuple(clamped)]


def _slice_of_attributes(
    x: Any, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Any:
    return _slice(x, np.array(starts), np.array(ends), None if axes is None else np.array(axes))


def _folded_slice_of_attributes(
    x: Any, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Any:
    return _indexed(x, np.array(starts), np.array(ends), None if axes is None else np.array(axes))


handles("Slice", since=1, fold=_folded_slice_of_attributes)(_slice_of_attributes)

_MODES = {
    "constant": directml.PaddingMode.CONSTANT,
    "edge": directml.PaddingMode.EDGE,
    "reflect": directml.PaddingMode.REFLECTION,
    "wrap": directml.PaddingMode.WRAP,
}


def _padded(x: Any, pads: Sequence[Any], value: Any, axes: Sequence[int], mode: str) -> Any:
    start, end = [0] * x.ndim, [0] * x.ndim
    if len(pads) != 2 * len(axes):
        raise InvalidDesc(Problem("pads", f"must have {2 * len(axes)} numbers", tuple(pads)))
    for i, axis in enumerate(axes):
        start[normal(axis, x.ndim)], end[normal(axis, x.ndim)] = pads[i], pads[len(axes) + i]
    padding_mode = one_of("mode", mode, _MODES)
    # Negative padding crops, which DirectML's does not.
    windows = [slice(max(0, -a), size - max(0, -b)) for a, b, size in zip(start, end, x.shape, strict=True)]
    x = x[tuple(windows)]
    start, end = ([max(0, one) for one in amounts] for amounts in (start, end))
    if not any(start) and not any(end):
        return x
    value = jnp.zeros((), x.dtype) if value is None else value.reshape(()).astype(x.dtype)
    return dml.padding1(x, value, padding_mode=padding_mode, start_padding=start, end_padding=end)


@handles("Pad", since=11, known=[1, 3])
def _pad(x: Any, pads: Vector, value: Number = None, axes: Vector = None, *, mode: str = "constant") -> Any:
    chosen = range(x.ndim) if axes is None else as_sizes(axes)
    return _padded(x, as_sizes(pads), value, chosen, mode)


@handles("Pad", since=2)
def _pad_of_attributes(x: Any, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Any:
    return _padded(x, pads, jnp.asarray(value, x.dtype), range(x.ndim), mode)


@handles("Pad", since=1)
def _first_pad(x: Any, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Any:
    return _padded(x, paddings, jnp.asarray(value, x.dtype), range(x.ndim), mode)


@handles("Crop")
def _crop(x: Image, *, border: Sequence[int] = (0, 0, 0, 0), scale: Sequence[int] = ()) -> Any:
    for name, numbers, count in (("border", border, 4), ("scale", scale or (0, 0), 2)):
        if len(numbers) != count:
            raise InvalidDesc(Problem(name, f"must have {count} numbers", tuple(numbers)))
    left, top, right, bottom = border
    height, width = scale or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    return dml.slice(x, starts=(0, 0, top, left), sizes=(*x.shape[:2], height, width))


@handles("CenterCropPad", known=[1])
def _center_crop_pad(x: Any, shape: Vector, *, axes: Sequence[int] | None = None) -> Any:
    chosen, sizes = range(x.ndim) if axes is None else axes, as_sizes(shape)
    if len(sizes) != len(chosen):
        raise InvalidDesc(Problem("shape", f"must have {len(chosen)} numbers", sizes))
    for axis, size in zip(chosen, sizes, strict=True):
        axis = normal(axis, x.ndim)
        more = size - x.shape[axis]
        half = abs(more) // 2 if more > 0 else -((-more) // 2)
        pads = (half, more - half)
        x = _padded(x, pads, None, [axis], "constant")
    return x


# Blocks and images

_ORDERS = {"DCR": directml.DepthSpaceOrder.DEPTH_COLUMN_ROW, "CRD": directml.DepthSpaceOrder.COLUMN_ROW_DEPTH}


@handles("DepthToSpace")
def _depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    return dml.depth_to_space1(x, block_size=blocksize, order=one_of("mode", mode, _ORDERS))


@handles("SpaceToDepth")
def _space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    return dml.space_to_depth1(x, block_size=blocksize, order=one_of("mode", mode, _ORDERS))


@handles("Col2Im", known=[1, 2])
def _fold(
    x: Rows,
    image: Vector,
    block: Vector,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    count = len(block)
    if min(as_sizes(block), default=0) < 1:
        raise InvalidDesc(Problem("block_shape", "must be at least 1 each", as_sizes(block)))
    pads = pads or [0] * (2 * count)
    return dml.fold(
        x,
        output_sizes=(x.shape[0], x.shape[1] // int(np.prod(block)), *as_sizes(image)),
        window_sizes=as_sizes(block),
        strides=strides or 1,
        dilations=dilations or 1,
        start_padding=pads[:count],
        end_padding=pads[count:],
    )


@handles("ReverseSequence")
def _reverse_sequence(x: Any, lengths: Vector, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    # ONNX has a length for each index of the batch axis; DirectML has one for each sequence.
    time_axis, batch_axis = normal(time_axis, x.ndim), normal(batch_axis, x.ndim)
    sizes = [1 if axis == time_axis else size for axis, size in enumerate(x.shape)]
    others = [axis for axis in range(x.ndim) if axis != batch_axis]
    return dml.reverse_subsequences(x, jnp.broadcast_to(jnp.expand_dims(lengths, others), sizes), axis=time_axis)


INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@handles("Trilu", kept=[1])
def _triangle(x: Matrices, k: Number = None, *, upper: int = 1) -> Any:
    # ONNX keeps one side of diagonal k; DirectML fills the other with zeros.
    if k is not None and not isinstance(k, np.ndarray):
        diagonals = jnp.arange(x.shape[-1])[None, :] - jnp.arange(x.shape[-2])[:, None]
        is_kept = diagonals >= k.reshape(()) if upper else diagonals <= k.reshape(())
        return jnp.where(jnp.broadcast_to(is_kept, x.shape), x, jnp.zeros((), x.dtype))
    diagonal = max(INT32_MIN, min(INT32_MAX - 1, 0 if k is None else int(k.item())))
    begin, end = (INT32_MIN, diagonal) if upper else (diagonal + 1, INT32_MAX)
    return dml.diagonal_matrix1(x, 0, diagonal_fill_begin=begin, diagonal_fill_end=end)
