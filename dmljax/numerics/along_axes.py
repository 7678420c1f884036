"""Reductions along several axes at once: the position of the largest or smallest element, and accurate sums.

The loops are shaped for XLA on CPU, which is slow for the plain reductions; comments give the measured factors.
"""

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
    """The position of each element in the flattened `axes`, of which the last changes fastest (row-major order)."""
    sizes = [elements.shape[axis] for axis in axes]
    dtype = index_dtype(("input", "size"), math.prod(sizes))
    position = sharded_like(elements, jnp.zeros(elements.shape, dtype))
    for i, axis in enumerate(axes):
        stride = number(math.prod(sizes[i + 1 :]), dtype)
        position = position + lax.broadcasted_iota(dtype, elements.shape, axis) * stride
    return position


def extreme_position(input: Array, axes: tuple[int, ...], *, largest: bool, last: bool = False) -> Array:
    """The position along `axes` of the first (or last) largest (or smallest) element; the axes keep size 1.

    As in ONNX, NumPy and JAX, a NaN is larger (or smaller) than every number, and all NaNs are equal.
    """
    is_row = axes == (input.ndim - 1,) and _is_known_and_unsharded(input, -1)
    if is_row and input.shape[-1] <= _SHORT_ROW:
        return _position_in_short_row(input, largest=largest, last=last)
    keys = sort_keys(input, nan_is_largest=largest)
    extreme = _extreme(keys, axes, largest=largest)
    if is_row:
        # The barrier makes XLA on CPU compute the keys again for the second pass: if XLA knew that the keys are the
        # same, it would materialise them.
        input, extreme = lax.optimization_barrier((input, extreme))
        keys = sort_keys(input, nan_is_largest=largest)
    position = positions_along(input, axes)
    limits = np.iinfo(position.dtype)
    none = np.array(limits.min if last else limits.max, position.dtype)
    return _extreme(jnp.where(keys == extreme, position, none), axes, largest=last)


def _is_known_and_unsharded(x: Array, axis: int) -> bool:
    """Whether the size of `axis` is not symbolic, and the axis is not sharded over an explicit mesh."""
    return not is_symbolic(x.shape[axis]) and not dimension_axes(x)[axis]


_SHORT_ROW = 16


def _position_in_short_row(input: Array, *, largest: bool, last: bool) -> Array:
    """The position of the extreme element in each short row, by comparing element after element.

    This is a single pass, which XLA fuses into its consumers. For rows of 10 elements it takes half the time of the two
    passes that longer rows need.
    """
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
        if axis == integers.ndim - 1 and _is_known_and_unsharded(integers, axis) and integers.shape[axis] > _RUN:
            integers = lax.platform_dependent(integers, cpu=partial(_reduce_in_parts, reduce, combine), default=whole)
        else:
            integers = whole(integers)
    return integers


_PARTS, _RUN = 8, 16


def _reduce_in_parts(reduce: Callable[..., Array], combine: Callable[..., Array], rows: Array) -> Array:
    """Reduces the last axis to size 1 by maxima or minima, in a shape that suits XLA on CPU.

    Each round combines 8 parts of the row element by element, which XLA on CPU vectorizes, and then reduces runs of 16
    elements, which it fuses. A longer axis would be materialised before the reduction, which takes four times as long.
    If 8 parts do not divide the row, they overlap: a repeated element does not change a maximum or minimum.
    """
    size = rows.shape[-1]
    if size <= _RUN:
        return reduce(rows, axis=-1, keepdims=True)
    width = _RUN * -(-size // (_RUN * _PARTS))
    starts = (min(start, size - width) for start in range(0, size, width))
    parts = [lax.slice_in_dim(rows, start, start + width, axis=-1) for start in starts]
    runs = functools.reduce(combine, parts).reshape(*rows.shape[:-1], width // _RUN, _RUN)
    return _reduce_in_parts(reduce, combine, lax.optimization_barrier(reduce(runs, axis=-1)))


# Sums


def sum_along(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum along `axes`, which keep size 1.

    The sum is as accurate as if it were rounded only once, however many summands there are and however much their
    magnitudes differ.
    """
    high, low = x, zeros_of(x)
    for axis in reversed(axes):
        if _is_known_and_unsharded(high, axis) and high.shape[axis] > 4 * _LANES:
            # First, 16 lanes are summed side by side: XLA on CPU vectorizes this, which halves the time for a long row.
            high, low = _exact_sums(_split_into_lanes(high, axis), _split_into_lanes(low, axis), axis)
        high, low = (jnp.expand_dims(part, axis) for part in _exact_sums(high, low, axis))
    return high + low


_LANES = 16


def _split_into_lanes(x: Array, axis: int) -> Array:
    """Splits `axis` into two axes, the first of size 16; `axis` is padded with zeros to a multiple of 16."""
    width = -(-x.shape[axis] // _LANES)
    filling = [(0, _LANES * width - size if i == axis else 0) for i, size in enumerate(x.shape)]
    return jnp.pad(x, filling).reshape(*x.shape[:axis], _LANES, width, *x.shape[axis + 1 :])


def _exact_sums(high: Array, low: Array, axis: int) -> tuple[Array, Array]:
    """Sums numbers `high + low` along `axis`.

    The sum is such a pair, too; its second part is the sum of the low parts and of all rounding errors of the first.
    """

    def add(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        total, error = exact_sum(a[0], b[0])
        return total, (a[1] + b[1]) + error

    zero = np.zeros((), high.dtype)
    sums: tuple[Array, Array] = lax.reduce((high, low), (zero, zero), add, (axis,))
    return sums
