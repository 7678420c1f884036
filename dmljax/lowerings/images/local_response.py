"""Local response normalization of floats of at least 32 bits, and its gradient."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import is_symbolic, replace_at
from dmljax.lowerings.numbers.derivatives import custom_jvps
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import quotient


def local_response(
    x: Array, alpha: Array, beta: Array, bias: Array, *, axes: tuple[int, ...], local_size: int
) -> Array:
    """`x / (bias + alpha / float(local_size) * squares) ** beta`, with the sum of the squares around each element."""
    return _divide_by_power(x, _base(x, alpha, bias, axes, local_size), beta)


def local_response_gradient(
    gradient: Array, x: Array, alpha: Array, beta: Array, bias: Array, *, axes: tuple[int, ...], local_size: int
) -> Array:
    """The gradient with respect to `x`, from `gradient`, the gradient with respect to the result."""
    base = _base(x, alpha, bias, axes, local_size)
    direct = _divide_by_power(gradient, base, beta)
    # An element contributes to the sums of the elements whose regions contain it, which are those in its mirrored
    # region.
    sums = _sums_around(direct * x / base, axes, local_size, is_mirrored=True)
    return direct - 2 * beta * alpha / float(local_size) * x * sums


def _divide_by_power(x: Array, base: Array, exponent: Array) -> Array:
    return quotient(x, lax.pow(base, jnp.broadcast_to(exponent, base.shape)))


def _base(x: Array, alpha: Array, bias: Array, axes: tuple[int, ...], local_size: int) -> Array:
    return bias + alpha / float(local_size) * _sums_around(x * x, axes, local_size)


def _sums_around(x: Array, axes: tuple[int, ...], local_size: int, *, is_mirrored: bool = False) -> Array:
    ends = (local_size - 1) // 2, local_size // 2
    sums, adjoint = (partial(_sums, axes=axes, before=before, after=after) for before, after in (ends, ends[::-1]))
    if is_mirrored:
        return adjoint(x)

    def jvp(tangent: Array, _: Array) -> Array:
        # A transpose of a transpose, so that the gradient adds up neighbors: JAX's own takes 3 times as long.
        result: Array = jax.linear_transpose(adjoint, tangent)(tangent)[0]
        return result

    return custom_jvps(jvp)(sums)(x)


def _sums(x: Array, axes: tuple[int, ...], before: int, after: int) -> Array:
    reach = [
        (before, after) if is_symbolic(size) else (min(before, size - 1), min(after, size - 1))
        for size in (x.shape[axis] for axis in axes)
    ]

    def by_slices(x: Array) -> Array:
        for axis, (low, high) in zip(axes, reach, strict=True):
            padded = lax.pad(x, np.zeros((), x.dtype), replace_at([(0, 0, 0)] * x.ndim, axis, (low, high, 0)))
            slices = (lax.slice_in_dim(padded, i, i + x.shape[axis], axis=axis) for i in range(low + 1 + high))
            x = functools.reduce(lax.add, slices)
        return x

    def by_windows(x: Array) -> Array:
        padding = [(0, 0)] * x.ndim
        for axis, ends in zip(axes, reach, strict=True):
            padding[axis] = ends
        sizes = [sum(ends) + 1 for ends in padding]
        sums: Array = lax.reduce_window(x, np.zeros((), x.dtype), lax.add, sizes, [1] * x.ndim, padding)
        return sums

    if x.size == 0:
        return x
    if max(low + 1 + high for low, high in reach) > _MOST_SLICES:
        return by_windows(x)
    return choose(x, tpu=by_windows, default=by_slices)


_MOST_SLICES = 32
