"""Norms, means and variances along axes, written so that XLA fuses each into one GPU kernel.

16-bit floats are computed in float32, where squares do not overflow.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from dmljax.lowerings.numbers.derivatives import custom_derivatives
from dmljax.types import widened


@custom_derivatives(jnp.sign)
def magnitude(x: Array) -> Array:
    """The absolute value, with a derivative of 0 at 0."""
    return jnp.abs(x)


def norm(x: Array, axes: tuple[int, ...], order: int = 2) -> Array:
    """The norm of each row along `axes`, which keep size 1: the sum of magnitudes, or the root of the sum of squares.

    Its gradient is 0 at 0.
    """
    if order == 1:
        return jnp.sum(magnitude(x), axis=axes, keepdims=True)
    return root(jnp.sum(jnp.square(x), axis=axes, keepdims=True))


def root(x: Array, degree: int = 2) -> Array:
    """The root of nonnegative numbers, with a derivative of 0 at 0."""

    def derivative(x: Array) -> Array:
        is_zero = x == 0
        safe = jnp.where(is_zero, jnp.ones_like(x), x)
        return jnp.where(is_zero, jnp.zeros_like(x), root(safe, degree) / (degree * safe))

    def value(x: Array) -> Array:
        return lax.sqrt(x) if degree == 2 else lax.pow(x, jnp.full_like(x, 1 / degree))

    result: Array = custom_derivatives(derivative)(value)(x)
    return result


class Moments(NamedTuple):
    """The moments of rows: `centered * inverse` has mean 0 and variance 1, except for epsilon."""

    centered: Array
    inverse: Array  # 1 / sqrt(variance + epsilon)
    mean: Array
    variance: Array


def moments(
    x: Array, epsilon: Array, axes: tuple[int, ...], *, use_mean: bool = True, use_variance: bool = True
) -> Moments:
    """The moments of the rows along `axes`, which keep size 1.

    Without `use_mean`, the mean counts as 0; without `use_variance`, the variance counts as 1 and `inverse` is 1.
    """
    x = x.astype(widened(x.dtype))
    mean = jnp.mean(x, axis=axes, keepdims=True)
    mean = mean if use_mean else jnp.zeros_like(mean)
    deviations = x - mean
    if not use_variance:
        return Moments(deviations, jnp.ones_like(mean), mean, jnp.ones_like(mean))
    # The mean of centered squares keeps digits that the mean of squares minus the square of the mean loses.
    variance = jnp.mean(jnp.square(deviations), axis=axes, keepdims=True)
    return Moments(deviations, lax.rsqrt(variance + epsilon), mean, variance)
