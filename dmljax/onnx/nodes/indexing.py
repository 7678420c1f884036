"""Operators that read and write elements at places that arrays give."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmljax as dml
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.interpreter import is_known
from dmljax.onnx.nodes.shapes import normal
from dmljax.onnx.parameters import Matrices, Number, Tensor, Vector, Vectors
from dmljax.onnx.registry import Call, handles, one_of
from dmljax.types import REALS


def wrapped(name: str, indices: Any, size: Any) -> Any:
    """Indices of which negative ones count from the end, once; known ones that are outside are refused."""
    if is_known(indices) and isinstance(size, int):
        _require_inside(name, np.asarray(indices), size)
    return jnp.where(indices < 0, indices + size, indices)


def _require_inside(name: str, indices: Any, size: int) -> None:
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise InvalidDesc(Problem(name, f"must be in [{-size}, {size})", outside.flat[0]))


def _taken(x: Any, indices: Any, *, axis: int = 0) -> Any:
    _require_inside("indices", indices, x.shape[normal(axis, x.ndim)])
    return np.take(x, indices.astype(np.int64), axis=axis)


@handles("Gather", fold=_taken)
def _gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    axis = normal(axis, x.ndim)
    indices = wrapped("indices", indices, x.shape[axis])
    if x.dtype not in REALS:
        return jnp.take(x, indices, axis=axis)
    return dml.gather(x, indices, axis=axis)


@handles("GatherElements")
def _gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    axis = normal(axis, x.ndim)
    return dml.gather_elements(x, wrapped("indices", indices, x.shape[axis]), axis=axis)


def _wrapped_nd(indices: Any, sizes: Any) -> Any:
    count = indices.shape[-1]
    sizes = jnp.asarray(sizes[:count], indices.dtype).reshape(*[1] * (indices.ndim - 1), count)
    return jnp.where(indices < 0, indices + sizes, indices)


@handles("GatherND")
def _gather_nd(x: Any, indices: Vectors, *, batch_dims: int = 0) -> Any:
    return dml.gather_nd1(x, _wrapped_nd(indices, x.shape[batch_dims:]), batch_dimension_count=batch_dims)


_REDUCTIONS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


@handles("Scatter", "ScatterElements")
def _scatter_elements(x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    axis = normal(axis, x.ndim)
    if indices.ndim != x.ndim:
        raise InvalidDesc(Problem("indices", f"must have {x.ndim} dimensions, as data has", indices.shape))
    indices = wrapped("indices", indices, x.shape[axis])
    method = one_of("reduction", reduction, _REDUCTIONS)
    if method == "set":
        return dml.scatter(x, indices, updates, axis=axis)
    places = list(jnp.indices(indices.shape, sparse=True))  # DirectML's scatters overwrite alone
    places[axis] = indices
    return getattr(x.at[tuple(places)], method)(updates)


@handles("ScatterND")
def _scatter_nd(x: Any, indices: Vectors, updates: Any, *, reduction: str = "none") -> Any:
    indices = _wrapped_nd(indices, x.shape)
    method = one_of("reduction", reduction, _REDUCTIONS)
    if method == "set":
        return dml.scatter_nd(x, indices, updates)
    return getattr(x.at[tuple(jnp.moveaxis(indices, -1, 0))], method)(updates)


@handles("TensorScatter", since=24)
def _tensor_scatter(
    x: Matrices, update: Matrices, indices: Vector = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    axis = normal(axis, x.ndim)
    if update.ndim != x.ndim:
        raise InvalidDesc(Problem("update", f"must have {x.ndim} dimensions, as past_cache has", update.shape))
    first = jnp.zeros(x.shape[0], jnp.int32) if indices is None else indices
    places = first[:, None] + jnp.arange(update.shape[axis], dtype=first.dtype)[None, :]
    if one_of("mode", mode, {"linear": False, "circular": True}):
        places = places % x.shape[axis]
    spread = [1] * x.ndim
    spread[0], spread[axis] = places.shape
    return dml.scatter(x, jnp.broadcast_to(places.reshape(spread), update.shape), update, axis=axis)


@handles("OneHot", known=[1])
def _one_hot(indices: Any, depth: Number, values: Any, *, axis: int = -1) -> Any:
    # ONNX inserts the axis and takes indices of any type; DirectML's have the axis, with size 1, and are integers.
    axis, count = normal(axis, indices.ndim + 1), int(depth.item())
    if count < 1:
        raise InvalidDesc(Problem("depth", "must be at least 1", count))
    return dml.one_hot(jnp.expand_dims(indices.astype(jnp.int32), axis), values, axis=axis, depth=count)


@handles("TopK", since=10, known=[1])
def _top_k(x: Any, k: Number, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    return _largest(x, int(k.item()), axis, largest)


@handles("TopK", since=1)
def _top_k_of_attribute(x: Any, *, k: int, axis: int = -1) -> Any:
    return _largest(x, k, axis, 1)


def _largest(x: Any, k: int, axis: int, largest: int) -> Any:
    direction = directml.AxisDirection.DECREASING if largest else directml.AxisDirection.INCREASING
    if k == 0:
        empty = jax.lax.slice_in_dim(x, 0, 0, axis=normal(axis, x.ndim))
        return empty, empty.astype(counting_type())
    values, indices = dml.top_k1(x, axis=axis, k=k, axis_direction=direction)
    return values, indices.astype(counting_type())


def counting_type() -> Any:
    """ONNX counts in int64, which is int32 where JAX has no 64-bit types."""
    return jax.dtypes.canonicalize_dtype(np.int64)


def _places(x: Any) -> Any:
    """The coordinates of what is not zero, in columns; those of a scalar have no rows."""
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)[: x.ndim]


@handles("NonZero", kept=[0], fold=lambda x, *, call: _places(x))
def _nonzero(x: Tensor, *, call: Call) -> Any:
    # ONNX has a coordinate in each column, and as many columns as elements that are not zero.
    if call.maximum is None:
        return _places(call.known(call.node.inputs[0], x))
    _, coordinates = dml.nonzero_coordinates(x, size=call.maximum)
    return coordinates.T.astype(counting_type())


@handles("Compress", kept=[1])
def _compress(x: Any, condition: Vector, *, axis: int | None = None, call: Call) -> Any:
    # A bound fills with zeros, as it does for NonZero.
    x, axis = (x.ravel(), 0) if axis is None else (x, normal(axis, x.ndim))
    condition = condition[: x.shape[axis]]
    if call.maximum is None:
        return jnp.take(x, np.flatnonzero(call.known(call.node.inputs[1], condition)), axis=axis)
    places = jnp.flatnonzero(condition, size=call.maximum, fill_value=x.shape[axis])
    return jnp.take(x, places, axis=axis, mode="fill", fill_value=0)


@handles("Unique", kept=[0])
def _unique(x: Tensor, *, axis: int | None = None, sorted: int = 1, call: Call) -> Any:
    # A bound fills with the smallest element, which has the count 0 there.
    if call.maximum is None:
        x = call.known(call.node.inputs[0], x)
        result = np.unique(x, True, True, True, axis=axis)
    else:
        result = jnp.unique(jnp.asarray(x), True, True, True, axis=axis, size=call.maximum)
    values, first, inverse, counts = result
    inverse = inverse.reshape(-1)
    if not sorted:  # in the order in which they appear
        number = np if call.maximum is None else jnp
        order = number.argsort(number.where(counts > 0, first, x.size))
        values = number.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], number.argsort(order)[inverse]
    dtype = np.int64 if call.maximum is None else counting_type()
    return values, *(one.astype(dtype) for one in (first, inverse, counts))
