"""Operators that gather, scatter and find elements by index."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import dmljax
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.dimensions import is_symbolic, replace_at
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib, look_up, takes_attributes
from dmljax.onnx.handlers.signatures import Kept, KeptVector, Known, KnownNumber, Matrices, Vector, Vectors
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.running.interpreter import as_array, is_known
from dmljax.onnx.values.counts import Count
from dmljax.onnx.values.padded import Padded
from dmljax.onnx.values.symbols import Symbols, size_of
from dmljax.onnx.values.types import Array, DType, Results
from dmljax.types import REALS


def wrap_indices(indices: Kept, size: int) -> Array:
    """Wraps negative indices once; raises if known indices are out of range."""
    if is_known(indices) and indices.dtype != object and isinstance(size, int):
        _require_inside(np.asarray(indices), size)
    array = as_array(indices)
    return jnp.where(array < 0, array + size, array)


def _require_inside(indices: Known, size: int) -> None:
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise InvalidDesc(Problem("indices", f"must be in [{-size}, {size})", outside.flat[0]))


def _take(x: Known, indices: Known, *, axis: int = 0) -> Known:
    _require_inside(indices, x.shape[normalize_axis(axis, x.ndim)])
    return np.take(x, indices.astype(np.int64), axis=axis)


def _take_along(x: Known, indices: Known, *, axis: int = 0) -> Known:
    axis = normalize_axis(axis, x.ndim)
    _require_inside(indices, x.shape[axis])
    return np.take_along_axis(x, indices.astype(np.int64), axis)


@handles("Gather", fold=_take)
def _gather(x: Array, indices: Kept, *, axis: int = 0) -> Array:
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(indices, np.ndarray) and indices.dtype != object and indices.ndim == 0 and isinstance(size, int):
        _require_inside(indices, size)
        # Devices exchange x once for all of its slices, such as the queries, keys and values of stacked heads.
        return lax.index_in_dim(x, int(indices), axis, keepdims=False)
    places = wrap_indices(indices, size)
    if x.dtype not in REALS:
        return jnp.take(x, places, axis=axis)
    return dmljax.gather(x, places, axis=axis)


@handles("GatherElements", fold=_take_along)
def _gather_elements(x: Array, indices: Kept, *, axis: int = 0) -> Array:
    axis = normalize_axis(axis, x.ndim)
    places = wrap_indices(indices, x.shape[axis])
    return dmljax.gather_elements(_crop_to_indices(x, places, axis), places, axis=axis)


def _crop_to_indices(x: Array, indices: Array, axis: int) -> Array:
    """Crops an array to the sizes of `indices` off the axis: ONNX lets indices be smaller, but DirectML does not."""
    if indices.ndim != x.ndim:
        raise InvalidDesc(Problem("indices", f"must have {x.ndim} dimensions, like data", indices.shape))
    sizes = [whole if i == axis else size for i, (whole, size) in enumerate(zip(x.shape, indices.shape, strict=True))]
    if tuple(sizes) == x.shape:
        return x
    ints = [pair for pair in zip(x.shape, sizes, strict=True) if all(isinstance(number, int) for number in pair)]
    if any(size > whole for whole, size in ints):
        rule = f"must be no larger than data {x.shape}, except along axis {axis}"
        raise InvalidDesc(Problem("indices", rule, indices.shape))
    return x[tuple(map(slice, sizes))]


def _replace_first(part: Array, x: Array) -> Array:
    """Replaces the first elements of an array along each axis with `part`."""
    for axis, size in enumerate(x.shape):
        if part.shape[axis] != size:
            window = [slice(size) for size in part.shape]
            window[axis] = slice(part.shape[axis], size)
            part = dmljax.join([part, x[tuple(window)]], axis=axis)
    return part


def _wrap_nd(indices: Array, sizes: Sequence[int]) -> Array:
    count = indices.shape[-1]
    whole = jnp.asarray(sizes[:count], indices.dtype).reshape(*[1] * (indices.ndim - 1), count)
    return jnp.where(indices < 0, indices + whole, indices)


@handles("GatherND")
def _gather_nd(x: Array, indices: Vectors, *, batch_dims: int = 0) -> Array:
    return dmljax.gather_nd1(x, _wrap_nd(indices, x.shape[batch_dims:]), batch_dimension_count=batch_dims)


_SCATTERS = {
    "none": None,  # DirectML's scatters only overwrite
    "add": jax.lax.scatter_add,
    "mul": jax.lax.scatter_mul,
    "max": jax.lax.scatter_max,
    "min": jax.lax.scatter_min,
}


@handles("Scatter", "ScatterElements")
def _scatter_elements(x: Array, indices: Kept, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    axis = normalize_axis(axis, x.ndim)
    places = wrap_indices(indices, x.shape[axis])
    part = _crop_to_indices(x, places, axis)
    scatter = look_up("reduction", reduction, _SCATTERS)
    if scatter is None:
        return _replace_first(dmljax.scatter(part, places, updates, axis=axis), x)
    others = tuple(i for i in range(x.ndim) if i != axis)
    numbers = jax.lax.ScatterDimensionNumbers((), (axis,), (axis,), others, others)
    mode = jax.lax.GatherScatterMode.FILL_OR_DROP
    return _replace_first(scatter(part, places[..., None], updates, numbers, mode=mode), x)


@handles("ScatterND")
def _scatter_nd(x: Array, indices: Vectors, updates: Array, *, reduction: str = "none") -> Array:
    indices = _wrap_nd(indices, x.shape)
    scatter = look_up("reduction", reduction, _SCATTERS)
    if scatter is None:
        return dmljax.scatter_nd(x, indices, updates)
    scattered, windows = tuple(range(indices.shape[-1])), tuple(range(indices.ndim - 1, updates.ndim))
    numbers = jax.lax.ScatterDimensionNumbers(windows, scattered, scattered)
    return scatter(x, indices, updates, numbers, mode=jax.lax.GatherScatterMode.FILL_OR_DROP)


@handles("TensorScatter", since=24)
def _tensor_scatter(
    x: Matrices, update: Matrices, indices: Vector | None = None, *, axis: int = -2, mode: str = "linear"
) -> Array:
    axis = normalize_axis(axis, x.ndim)
    if update.ndim != x.ndim:
        raise InvalidDesc(Problem("update", f"must have {x.ndim} dimensions, like past_cache", update.shape))
    first = jnp.zeros(x.shape[0], jnp.int32) if indices is None else indices
    places = first[:, None] + jnp.arange(update.shape[axis], dtype=first.dtype)[None, :]
    if look_up("mode", mode, {"linear": False, "circular": True}):
        places = places % x.shape[axis]
    spread = [1] * x.ndim
    spread[0], spread[axis] = places.shape
    return dmljax.scatter(x, jnp.broadcast_to(places.reshape(spread), update.shape), update, axis=axis)


def _depth(depth: Known) -> int:
    count = size_of(depth.item())
    if not is_symbolic(count) and count < 1:
        raise InvalidDesc(Problem("depth", "must be at least 1", count))
    return count


def _one_hot_symbols(indices: Known, depth: Known, values: Known, *, axis: int = -1) -> Known | None:
    if not isinstance(values, Symbols):
        return None
    axis, count = normalize_axis(axis, indices.ndim + 1), _depth(depth)
    places = np.arange(count).reshape(-1, *[1] * (indices.ndim - axis))
    positions = np.expand_dims(indices.astype(np.int64), axis)
    return np.asarray(np.where((positions == places) | (positions + count == places), values[1], values[0]))


@handles("OneHot", fold=_one_hot_symbols)
def _one_hot(indices: Array, depth: KnownNumber, values: Array, *, axis: int = -1) -> Array:
    # ONNX inserts the axis and takes indices of any type; DirectML's indices are integers with an axis of size 1.
    axis, count = normalize_axis(axis, indices.ndim + 1), _depth(depth)
    return dmljax.one_hot(jnp.expand_dims(indices.astype(jnp.int32), axis), values, axis=axis, depth=count)


@handles("TopK", since=10)
def _top_k(x: Array, k: KnownNumber, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Results:
    direction = directml.AxisDirection.DECREASING if largest else directml.AxisDirection.INCREASING
    count = size_of(k.item())
    if count == 0:
        empty = jax.lax.slice_in_dim(x, 0, 0, axis=normalize_axis(axis, x.ndim))
        return empty, empty.astype(counting_type())
    values, indices = dmljax.top_k1(x, axis=axis, k=count, axis_direction=direction, dtype=counting_type())
    return values, indices


takes_attributes("TopK", since=1, k=int)


def counting_type() -> DType:
    """The type of ONNX's counts: int64, or int32 if JAX's 64-bit types are disabled."""
    return jax.dtypes.canonicalize_dtype(np.int64)


@handles("NonZero")
def _nonzero(x: Kept, *, call: NodeCall) -> Results:
    # ONNX's result has a column for each nonzero element.
    size = call.maximum(x.size)
    if size is None or isinstance(x, np.ndarray):
        known = call.known(call.node.inputs[0], x, x.size)
        return np.array(np.nonzero(np.atleast_1d(known)), np.int64)[: known.ndim]  # a scalar's coordinates have no rows
    count, coordinates = dmljax.nonzero_coordinates(x, size=size, dtype=counting_type())
    return Padded(coordinates.T, (x.ndim, Count.of(jnp.minimum(count, size), size)))


@handles("Compress")
def _compress(x: Array, condition: KeptVector, *, axis: int | None = None, call: NodeCall) -> Results:
    x, axis = (x.ravel(), 0) if axis is None else (x, normalize_axis(axis, x.ndim))
    if not is_symbolic(x.shape[axis]):
        condition = condition[: x.shape[axis]]
    size = call.maximum(condition.size)
    if size is None:
        known = call.known(call.node.inputs[1], condition, condition.size)
        return jnp.take(x, np.flatnonzero(known), axis=axis)
    places = jnp.flatnonzero(condition, size=size, fill_value=x.shape[axis])
    rows = jnp.take(x, places, axis=axis, mode="fill", fill_value=0)
    return Padded(rows, replace_at(x.shape, axis, Count.of(jnp.minimum(jnp.count_nonzero(condition), size), size)))


@handles("Unique")
def _unique(x: Kept, *, axis: int | None = None, sorted: int = 1, call: NodeCall) -> Results:
    at_most = x.size if axis is None else x.shape[axis]
    size = call.maximum(at_most)
    if size is None:
        x = call.known(call.node.inputs[0], x, at_most)
        result = np.unique(x, True, True, True, axis=axis)
    else:
        result = jnp.unique(jnp.asarray(x), True, True, True, axis=axis, size=size)
    values, first, inverse, counts = result
    inverse = inverse.reshape(-1)
    if not sorted:  # in order of appearance
        number = np if size is None else jnp
        order = number.argsort(number.where(counts > 0, first, x.size))
        values = number.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], number.argsort(order)[inverse]
    if size is None:
        return values, *(array.astype(np.int64) for array in (first, inverse, counts))
    count = Count.of(jnp.count_nonzero(counts), size)
    sizes = (count,) if axis is None else replace_at(values.shape, axis, count)
    firsts, places, tallies = (jnp.asarray(array, counting_type()) for array in (first, inverse, counts))
    return Padded(jnp.asarray(values), sizes), Padded(firsts, (count,)), places, Padded(tallies, (count,))


@handles_contrib("Unique")
def _unique_in_order(x: KeptVector, *, call: NodeCall) -> Results:
    results: Any = _unique(x, sorted=0, call=call)
    values, _, places, counts = results
    return values, places, counts
