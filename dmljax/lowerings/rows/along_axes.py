"""Reductions along several axes at once: extreme elements and their positions."""

import functools
import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import index_dtype, is_symbolic, number
from dmljax.foundation.sharding import dimension_axes, shard_like
from dmljax.lowerings.copies import from_sort_keys
from dmljax.lowerings.numbers.floats import sort_keys
from dmljax.lowerings.platform import choose


def positions_along(elements: Array, axes: tuple[int, ...]) -> Array:
    """The position of each element in the flattened `axes`, in row-major order."""
    dtype = index_dtype(("input", "size"), math.prod(elements.shape[axis] for axis in axes))
    position = shard_like(elements, jnp.zeros(elements.shape, dtype))
    for axis in axes:  # by Horner's rule: for the sum of products, a TPU runs a kernel for each product
        position = position * number(elements.shape[axis], dtype) + lax.broadcasted_iota(dtype, elements.shape, axis)
    return position


def extreme_position(input: Array, axes: tuple[int, ...], *, largest: bool, last: bool = False) -> Array:
    """The position along `axes` of the first (or last) largest (or smallest) element; the axes keep size 1.

    As in ONNX, NumPy and JAX, a NaN is larger (or smaller) than every number, and all NaNs are equal. A CPU
    distinguishes subnormal numbers; elsewhere, elements compare as on the platform.
    """
    by_keys = partial(_position_by_keys, axes=axes, largest=largest, last=last)
    if len(axes) != 1 or last:
        return choose(input, cpu=by_keys, default=partial(_position, axes=axes, largest=largest, last=last))
    (axis,) = axes
    dtype = index_dtype(("input", "size"), input.shape[axis])
    by_xla = partial(lax.argmax if largest else lax.argmin, axis=axis, index_dtype=dtype)
    return choose(input, cpu=by_keys, default=lambda x: jnp.expand_dims(by_xla(x), axis))


def _position(input: Array, *, axes: tuple[int, ...], largest: bool, last: bool) -> Array:
    extreme = (jnp.max if largest else jnp.min)(input, axis=axes, keepdims=True)
    return _position_where((input == extreme) | (input != input), axes, last=last)


def _position_where(is_extreme: Array, axes: tuple[int, ...], *, last: bool) -> Array:
    """The first (or last) position along `axes` where something is true; the axes keep size 1."""
    position = positions_along(is_extreme, axes)
    limits = np.iinfo(position.dtype)
    none = np.array(limits.min if last else limits.max, position.dtype)
    return _extreme(jnp.where(is_extreme, position, none), axes, largest=last)


def _position_by_keys(input: Array, *, axes: tuple[int, ...], largest: bool, last: bool) -> Array:
    is_row = axes == (input.ndim - 1,) and _has_known_unsharded_rows(input)
    if is_row and input.shape[-1] <= _SHORT_ROW:
        return _position_in_short_row(input, largest=largest, last=last)
    keys = sort_keys(input, nan_is_largest=largest)
    extreme = _extreme(keys, axes, largest=largest)
    if is_row:
        # The barrier makes XLA on CPU compute the keys again for the second pass. Otherwise it would keep them in
        # memory.
        input, extreme = lax.optimization_barrier((input, extreme))
        keys = sort_keys(input, nan_is_largest=largest)
    return _position_where(keys == extreme, axes, last=last)


def _has_known_unsharded_rows(x: Array) -> bool:
    """Whether the size of the last axis is known and the axis is not sharded over an explicit mesh."""
    return not is_symbolic(x.shape[-1]) and not dimension_axes(x)[-1]


_SHORT_ROW = 16


def _position_in_short_row(input: Array, *, largest: bool, last: bool) -> Array:
    """The position of the extreme element in each short row, found by comparing its elements in sequence.

    XLA fuses this single pass into its consumers. For rows of 10 elements it takes half the time of the two passes that
    longer rows need.
    """
    size = input.shape[-1]
    elements = [lax.slice_in_dim(input, i, i + 1, axis=-1) for i in range(size)]
    order = reversed(range(size)) if last else iter(range(size))
    best = next(order)
    position = shard_like(elements[0], jnp.full(elements[0].shape, best, np.int32))
    extreme = sort_keys(elements[best], nan_is_largest=largest)
    for i in order:
        key = sort_keys(elements[i], nan_is_largest=largest)
        is_better = key > extreme if largest else key < extreme
        position = jnp.where(is_better, np.int32(i), position)
        extreme = jnp.where(is_better, key, extreme)
    return position


def extreme(x: Array, axes: tuple[int, ...], *, largest: bool) -> Array:
    """The largest (or smallest) element along `axes`, which keep size 1.

    As in `floats.maximum` and `minimum`, a NaN is larger (or smaller) than every number. A CPU orders +0 above -0 and
    distinguishes subnormal numbers.
    """
    keys = partial(sort_keys, nan_is_largest=largest, zeros_are_equal=False)

    def by_keys(x: Array) -> Array:
        return from_sort_keys(_extreme(keys(x), axes, largest=largest), x.dtype)

    return choose(x, cpu=by_keys, default=partial(jnp.max if largest else jnp.min, axis=axes, keepdims=True))


def _extreme(keys: Array, axes: tuple[int, ...], *, largest: bool) -> Array:
    """The largest (or smallest) of integers along `axes`."""
    reduce, combine = (jnp.max, jnp.maximum) if largest else (jnp.min, jnp.minimum)
    whole = partial(reduce, axis=axes, keepdims=True)
    if axes != (keys.ndim - 1,) or not _has_known_unsharded_rows(keys) or keys.shape[-1] <= _RUN:
        return whole(keys)
    return choose(keys, cpu=partial(_reduce_in_parts, reduce, combine), default=whole)


_PARTS, _RUN = 8, 16


def _reduce_in_parts(reduce: Callable[..., Array], combine: Callable[..., Array], rows: Array) -> Array:
    """Reduces the last axis to size 1 by maxima or minima, in a shape that suits XLA on CPU.

    Each round combines 8 parts of the row element by element, which XLA on CPU vectorizes, and then reduces runs of 16
    elements, which it fuses. It would write a longer axis to memory before the reduction, which takes four times as
    long. If the row does not split into 8 parts, they overlap: repeating an element does not change a maximum or
    minimum.
    """
    size = rows.shape[-1]
    if size <= _RUN:
        return reduce(rows, axis=-1, keepdims=True)
    width = _RUN * -(-size // (_RUN * _PARTS))
    starts = (min(start, size - width) for start in range(0, size, width))
    parts = [lax.slice_in_dim(rows, start, start + width, axis=-1) for start in starts]
    runs = functools.reduce(combine, parts).reshape(*rows.shape[:-1], width // _RUN, _RUN)
    return _reduce_in_parts(reduce, combine, lax.optimization_barrier(reduce(runs, axis=-1)))
