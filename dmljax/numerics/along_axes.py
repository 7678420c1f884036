"""What is computed along several axes taken together: the position of the largest element, and sums."""

import functools
import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.numerics.exact import exact_sum, zeros_of
from dmljax.numerics.floats import sort_keys
from dmljax.numerics.sharding import dimension_axes, sharded_like
from dmljax.numerics.sizes import index_dtype, is_symbolic, number


def positions_along(elements: Array, axes: tuple[int, ...]) -> Array:
    """The position of each of `elements` among those along `axes`, the last axis changing fastest."""
    sizes = [elements.shape[axis] for axis in axes]
    dtype = index_dtype(("input", "size"), math.prod(sizes))
    position = sharded_like(elements, jnp.zeros(elements.shape, dtype))
    for i, axis in enumerate(axes):
        stride = number(math.prod(sizes[i + 1 :]), dtype)
        position = position + lax.broadcasted_iota(dtype, elements.shape, axis) * stride
    return position


def extreme_position(input: Array, axes: tuple[int, ...], *, largest: bool, last: bool = False) -> Array:
    """The position along `axes` of the first (or last) largest (or smallest) element; the axes stay, with size 1.

    A NaN is more extreme than every number, and all NaN are equal: so have it ONNX, NumPy and JAX.
    """
    is_row = axes == (input.ndim - 1,) and _is_whole(input, -1)
    if is_row and input.shape[-1] <= _SHORT:
        return _position_in_short_row(input, largest=largest, last=last)
    keys = sort_keys(input, nan_is_largest=largest)
    extreme = _extreme(keys, axes, largest=largest)
    if is_row:
        # XLA on CPU would keep the keys in memory for the second pass if it knew them to be the same.
        input, extreme = lax.optimization_barrier((input, extreme))
        keys = sort_keys(input, nan_is_largest=largest)
    position = positions_along(input, axes)
    limits = np.iinfo(position.dtype)
    none = np.array(limits.min if last else limits.max, position.dtype)
    return _extreme(jnp.where(keys == extreme, position, none), axes, largest=last)


def _is_whole(x: Array, axis: int) -> bool:
    """Whether the size of `axis` is known, and every device has all of it."""
    return not is_symbolic(x.shape[axis]) and not dimension_axes(x)[axis]


_SHORT = 16


def _position_in_short_row(input: Array, *, largest: bool, last: bool) -> Array:
    """Element by element, in one pass that XLA fuses with what follows; for 10 it takes half the time of two."""
    size = input.shape[-1]
    elements = [lax.slice_in_dim(input, i, i + 1, axis=-1) for i in range(size)]
    order = reversed(range(size)) if last else iter(range(size))
    best = next(order)
    position = sharded_like(elements[0], jnp.full(elements[0].shape, best, np.int32))
    extreme = sort_keys(elements[best], nan_is_largest=largest)
    for i in order:
        key = sort_keys(elements[i], nan_is_largest=largest)
        is_better = key > extreme if largest else key < extreme
        position = jnp.where(is_better, np.int32(i), position)
        extreme = jnp.where(is_better, key, extreme)
    return position


def _extreme(integers: Array, axes: tuple[int, ...], *, largest: bool) -> Array:
    reduce, combine = (jnp.max, jnp.maximum) if largest else (jnp.min, jnp.minimum)
    for axis in reversed(axes):
        whole = partial(reduce, axis=axis, keepdims=True)
        if axis == integers.ndim - 1 and _is_whole(integers, axis) and integers.shape[axis] > _RUN:
            integers = lax.platform_dependent(integers, cpu=partial(_folded, reduce, combine), default=whole)
        else:
            integers = whole(integers)
    return integers


_PARTS, _RUN = 8, 16


def _folded(reduce: Callable[..., Array], combine: Callable[..., Array], rows: Array) -> Array:
    """Reduces the last axis: 8 parts side by side, which XLA on CPU vectorizes, and then runs of 16, which it fuses.

    A longer axis it has in memory before it reduces it, and needs four times as long. Parts overlap where 8 do not
    divide a row: no element is more extreme for being looked at twice.
    """
    size = rows.shape[-1]
    if size <= _RUN:
        return reduce(rows, axis=-1, keepdims=True)
    width = _RUN * -(-size // (_RUN * _PARTS))
    starts = (min(start, size - width) for start in range(0, size, width))
    parts = [lax.slice_in_dim(rows, start, start + width, axis=-1) for start in starts]
    runs = functools.reduce(combine, parts).reshape(*rows.shape[:-1], width // _RUN, _RUN)
    return _folded(reduce, combine, lax.optimization_barrier(reduce(runs, axis=-1)))


# Sums


def sum_along(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum along `axes`, which stay, with size 1: rounded as if once, however many and unequal the summands are."""
    high, low = x, zeros_of(x)
    for axis in reversed(axes):
        if _is_whole(high, axis) and high.shape[axis] > 4 * _LANES:
            # Side by side first: XLA on CPU vectorizes that, and needs half the time for a long row
            high, low = _exact_sums(_in_lanes(high, axis), _in_lanes(low, axis), axis)
        high, low = (jnp.expand_dims(part, axis) for part in _exact_sums(high, low, axis))
    return high + low


_LANES = 16


def _in_lanes(x: Array, axis: int) -> Array:
    """`axis` as two, of 16 and of what is left, filled up with zeros."""
    width = -(-x.shape[axis] // _LANES)
    filling = [(0, _LANES * width - size if i == axis else 0) for i, size in enumerate(x.shape)]
    return jnp.pad(x, filling).reshape(*x.shape[:axis], _LANES, width, *x.shape[axis + 1 :])


def _exact_sums(high: Array, low: Array, axis: int) -> tuple[Array, Array]:
    """Sums of numbers in two parts along `axis`, in two parts, of which the second has all that rounding took."""

    def add(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        total, error = exact_sum(a[0], b[0])
        return total, (a[1] + b[1]) + error

    zero = np.zeros((), high.dtype)
    sums: tuple[Array, Array] = lax.reduce((high, low), (zero, zero), add, (axis,))
    return sums
