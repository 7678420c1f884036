"""Positions of elements along several axes taken together: what the hardmax and the arg reductions share."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax._floats import sort_keys
from dmljax._function import index_dtype, number


def positions_along(shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """The position of each element among those along `axes`, the last axis changing fastest."""
    sizes = [shape[axis] for axis in axes]
    dtype = index_dtype("the number of elements along axes", math.prod(sizes))
    position = jnp.zeros(shape, dtype)
    for i, axis in enumerate(axes):
        stride = number(math.prod(sizes[i + 1 :]), dtype)
        position = position + lax.broadcasted_iota(dtype, shape, axis) * stride
    return position


def extreme_position(input: Array, axes: tuple[int, ...], *, largest: bool, last: bool = False) -> Array:
    """The position along `axes` of the first (or last) largest (or smallest) element; the axes stay, with size 1.

    A NaN is more extreme than every number, and all NaN are equal: so have it ONNX, NumPy and JAX.
    """
    keys = sort_keys(input, nan_is_largest=largest)
    extreme = jnp.max if largest else jnp.min
    is_extreme = keys == extreme(keys, axis=axes, keepdims=True)
    position = positions_along(input.shape, axes)
    limits = np.iinfo(position.dtype)
    if last:
        return jnp.max(jnp.where(is_extreme, position, np.array(limits.min, position.dtype)), axis=axes, keepdims=True)
    return jnp.min(jnp.where(is_extreme, position, np.array(limits.max, position.dtype)), axis=axes, keepdims=True)
