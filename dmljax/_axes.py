"""Positions of elements along several axes taken together: what the hardmax and the arg reductions share."""

import math
from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax._floats import sort_keys
from dmljax._function import index_dtype, is_symbolic, number
from dmljax._sharding import dimension_axes, sharded_like


def positions_along(elements: Array, axes: tuple[int, ...]) -> Array:
    """The position of each of `elements` among those along `axes`, the last axis changing fastest."""
    sizes = [elements.shape[axis] for axis in axes]
    dtype = index_dtype("the number of elements along axes", math.prod(sizes))
    position = sharded_like(elements, jnp.zeros(elements.shape, dtype))
    for i, axis in enumerate(axes):
        stride = number(math.prod(sizes[i + 1 :]), dtype)
        position = position + lax.broadcasted_iota(dtype, elements.shape, axis) * stride
    return position


def extreme_position(input: Array, axes: tuple[int, ...], *, largest: bool, last: bool = False) -> Array:
    """The position along `axes` of the first (or last) largest (or smallest) element; the axes stay, with size 1.

    A NaN is more extreme than every number, and all NaN are equal: so have it ONNX, NumPy and JAX.
    """
    keys = sort_keys(input, nan_is_largest=largest)
    is_extreme = keys == _extreme(keys, axes, largest=largest)
    position = positions_along(input, axes)
    limits = np.iinfo(position.dtype)
    none = np.array(limits.min if last else limits.max, position.dtype)
    return _extreme(jnp.where(is_extreme, position, none), axes, largest=last)


def _extreme(integers: Array, axes: tuple[int, ...], *, largest: bool) -> Array:
    limits = np.iinfo(integers.dtype)
    reduce, weakest = (jnp.max, limits.min) if largest else (jnp.min, limits.max)
    for axis in reversed(axes):
        whole = partial(reduce, axis=axis, keepdims=True)
        size = integers.shape[axis]
        is_row = axis == integers.ndim - 1 and not is_symbolic(size) and size > _FUSED
        if is_row and not dimension_axes(integers)[axis]:
            in_blocks = partial(_reduce_in_blocks, reduce, weakest)
            integers = lax.platform_dependent(integers, cpu=in_blocks, default=whole)
        else:
            integers = whole(integers)
    return integers


# XLA on CPU reduces up to 32 elements where they are computed, and has more than that in memory first.
_FUSED = 32
_RUN = 8


def _reduce_in_blocks(reduce: Callable[..., Array], weakest: int, integers: Array) -> Array:
    """Reduces the last axis in two steps: a row becomes [part, block, run], of which the first step leaves the blocks.

    Neither part nor run is larger than what is fused, nor do they lie side by side, for XLA would make them one again.
    """
    *batch, size = integers.shape
    blocks = max(2, -(-size // (_FUSED * _RUN)))
    parts = -(-size // (blocks * _RUN))
    padding = [(0, 0)] * len(batch) + [(0, parts * blocks * _RUN - size)]
    split = jnp.pad(integers, padding, constant_values=np.array(weakest, integers.dtype)).reshape(
        *batch, parts, blocks, _RUN
    )
    return reduce(lax.optimization_barrier(reduce(split, axis=(-3, -1))), axis=-1, keepdims=True)
