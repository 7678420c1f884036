"""Norms, means and variances along axes, in range wherever their results are, whatever the squares on the way are.

16-bit floats are computed in float32.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from dmljax.numerics.along_axes import fast_sum
from dmljax.numerics.exact import mantissa_and_exponent, power_of_two, product, quotient
from dmljax.numerics.sharding import sharded_alike
from dmljax.numerics.sizes import number
from dmljax.types import widened

T = TypeVar("T")


def plain_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum along `axes`, which keep size 1, as derivatives take it: its transpose repeats the cotangent."""
    return jnp.sum(x, axis=axes, keepdims=True)


def sum_of_terms(x: Array, axes: tuple[int, ...], term: Callable[[Array], Array]) -> Array:
    """The sum of what `term` makes of the elements along `axes`, which keep size 1, with few rounding errors.

    XLA adds up rows in memory in blocks by itself, in half of the time of `fast_sum`, with which it takes 10 times as
    long where elements of a row are not next to each other.
    """
    if x.ndim - 1 in axes:
        return plain_sum(term(x), axes)
    return fast_sum(x, axes, term)


# Scales, by which squares stay in range


def _in_range_or(x: Array, is_in_range: Array, plain: T, of_scaled: Callable[[], T]) -> T:
    """`plain`, but what `of_scaled` returns for rows of `x` that are not in range."""
    if math.prod(x.shape) == 0:
        return plain  # nothing has no largest element
    if jax.device_count() > 1 or _is_inside_shard_map(x):  # where a condition for all rows would be an exchange
        where: T = jax.tree.map(lambda one, other: jnp.where(is_in_range, one, other), plain, of_scaled())
        return where
    chosen: T = lax.cond(jnp.all(is_in_range), lambda: plain, of_scaled)
    return chosen


def _is_inside_shard_map(x: Array) -> bool:
    kind = jax.typeof(x)
    return bool(getattr(getattr(kind, "mat", kind), "varying", None) or getattr(kind, "vma", None))


def _is_in_range(squares: Array) -> Array:
    """Whether a sum of squares is so far from the ends of its type's range that no square was lost beyond them."""
    return (squares > jnp.finfo(squares.dtype).tiny * 2.0**62) & jnp.isfinite(squares)


def _scale_of(x: Array, axes: tuple[int, ...], least: Array | None) -> Array:
    """A power of 2 for each row along `axes` that brings its largest magnitude, if not less than `least`, to 1 or 2.

    It is a normal number, and so is its reciprocal. In a row with infinities or NaN it is 1.
    """
    # As integers, magnitudes are in order, subnormal numbers and NaN, too. Few rows need a scale: this loop is the
    # simplest, and compiles in the least time.
    magnitudes = lax.bitcast_convert_type(jnp.abs(x), np.dtype(f"int{8 * x.dtype.itemsize}"))
    largest = lax.bitcast_convert_type(magnitudes.max(axes, keepdims=True), x.dtype).astype(widened(x.dtype))
    if least is not None:
        largest = jnp.where(largest < least, least, largest)
    _, exponent = mantissa_and_exponent(largest)
    most = int(jnp.finfo(largest.dtype).maxexp) - 2
    return power_of_two(jnp.clip(-exponent, -most, most), largest.dtype)


# Norms


class ScaledNorm(NamedTuple):
    """The norm of each row after its multiplication by `scale`, a power of 2."""

    scale: Array
    norm: Array


def scaled_norm(x: Array, axes: tuple[int, ...], order: int = 2, least: Array | None = None) -> ScaledNorm:
    """The norm of each row along `axes`, which keep size 1: the sum of magnitudes, or the root of the sum of squares.

    It does not matter below `least`, if that is given. The scale is 1 where nothing on the way is out of range.
    """
    wide = widened(x.dtype)
    term = jnp.abs if order == 1 else jnp.square
    total = sum_of_terms(x, axes, lambda part: term(part.astype(wide)))

    def of_scaled() -> tuple[Array, Array]:
        scale = _scale_of(x, axes, least)
        return scale, sum_of_terms(x, axes, lambda part: term(part.astype(wide) * scale))

    if order == 1:
        is_in_range = jnp.isfinite(total)
    else:
        is_in_range = _is_in_range(total if least is None else jnp.maximum(total, jnp.square(least)))
    plain = jnp.ones_like(total), total
    # Squares of float16, and sums of them, are numbers of float32.
    scale, total = plain if x.dtype == jnp.float16 else _in_range_or(x, is_in_range, plain, of_scaled)
    return ScaledNorm(scale, total if order == 1 else lax.sqrt(total))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _differentiable_norm(axes: tuple[int, ...], order: int, x: Array, least: Array) -> ScaledNorm:
    return scaled_norm(x, axes, order, least)


@_differentiable_norm.defjvp
def _norm_jvp(axes: tuple[int, ...], order: int, primals: Any, tangents: Any) -> tuple[ScaledNorm, ScaledNorm]:
    x, _ = primals
    scale, norm = value = _differentiable_norm(axes, order, *primals)
    # 0 at 0, as that of REDUCE's L2.
    direction = jnp.sign(x) if order == 1 else x * scale / jnp.where(norm == 0, 1, norm)
    return value, ScaledNorm(jnp.zeros_like(scale), plain_sum(direction * (tangents[0] * scale), axes))


def divided_by_norm(x: Array, epsilon: Array, axes: tuple[int, ...], order: int) -> Array:
    """`x`, of at least 32 bits, divided by the norm of its rows along `axes`, or by `epsilon` where that is larger."""
    scale, norm = _differentiable_norm(axes, order, x, lax.stop_gradient(epsilon))
    least = epsilon * scale
    divisor = jnp.broadcast_to(jnp.where(norm < least, least, norm), x.shape)
    return quotient(*sharded_alike(x * scale, divisor))


# Means and variances


class Moments(NamedTuple):
    """What rows are normalised with: `centred * inverse` has mean 0 and variance 1, but for epsilon.

    `centred` is what the mean is subtracted from, and `scale`, a power of 2, multiplied with; `inverse` is the
    reciprocal of the root of the variance plus epsilon, all of it scaled.
    """

    centred: Array
    inverse: Array
    scale: Array
    mean: Array
    variance: Array


def moments(
    x: Array, epsilon: Array, axes: tuple[int, ...], *, use_mean: bool = True, use_variance: bool = True
) -> Moments:
    """The moments of the rows along `axes`; without `use_mean` the mean counts as 0.

    Without `use_variance`, `variance` is 1, and `inverse` undoes the scale.
    """
    if not axes:  # each element is a row
        x = x[..., None]
        found = moments(x, epsilon, (x.ndim - 1,), use_mean=use_mean, use_variance=use_variance)
        return Moments(*(jnp.squeeze(one, -1) for one in found))
    return _moments(axes, use_mean, use_variance, x, epsilon)


def _mean(x: Array, axes: tuple[int, ...], term: Callable[[Array], Array]) -> Array:
    total = sum_of_terms(x, axes, term)
    # Computed again in each loop, and rounded to the same number there, as a product within a sum would not be.
    with np.errstate(divide="ignore"):  # the mean of nothing is NaN
        return product(total, jnp.asarray(1 / _count(x, axes, total.dtype)))


def _count(x: Array, axes: tuple[int, ...], dtype: Any) -> Any:
    return number(math.prod(x.shape[axis] for axis in axes), dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _moments(axes: tuple[int, ...], use_mean: bool, use_variance: bool, x: Array, epsilon: Array) -> Moments:
    wide = widened(x.dtype)

    def of_scaled(scale: Array | None) -> tuple[Array, ...]:
        """The mean as a number and what rounding takes from it, and the variance, of those that are used.

        Of scaled elements it is exact whatever they are. Otherwise NaN takes the place of a variance that is not.
        """
        scaled = lambda part: part.astype(wide) if scale is None else part.astype(wide) * scale  # noqa: E731
        if not use_mean:
            return (_mean(x, axes, lambda part: jnp.square(scaled(part))),)
        # A mean that is rounded takes digits from all that it is subtracted from. What is left of elements near it is
        # exact, and so is the mean of that.
        rounded = _mean(x, axes, scaled)
        rest = _mean(x, axes, lambda part: scaled(part) - rounded)
        high = rounded + rest
        low = (rounded - high) + rest
        # What the mean of the rest is rounded by does not count, least of all where all elements are the same.
        low = jnp.where(jnp.abs(low) <= jnp.abs(rest) * float(2 * jnp.finfo(wide).eps), jnp.zeros_like(low), low)
        if not use_variance:
            return high, low
        if scale is not None:
            # The deviation may be less than what the mean is rounded by, even twice.
            low = low + _mean(x, axes, lambda part: scaled(part) - high - low)
            return high, low, _mean(x, axes, lambda part: jnp.square(scaled(part) - high - low))
        # Of what is left, XLA computes the sum and the sum of squares in one loop, which takes two thirds of the time
        # of two loops. It is as exact where the rounded mean is off by little beside the variance.
        squares = _mean(x, axes, lambda part: jnp.square(scaled(part) - rounded))
        is_exact = rest * rest <= (squares + epsilon) * 2.0**-6
        return high, low, jnp.where(is_exact, jnp.maximum(squares - rest * rest, 0), np.nan)

    def rescued() -> tuple[Array, ...]:
        scale = _scale_of(x, axes, lax.sqrt(epsilon) if use_variance else None)
        found = of_scaled(scale)
        if use_variance:
            # Where all elements are the same, epsilon alone counts, which scales of large elements would let vanish.
            unscaled = jnp.where(found[-1] == 0, 1 / scale, 1)
            found = (*(one * unscaled for one in found[:-1]), found[-1])
            scale = scale * unscaled
        return scale, epsilon * scale * scale, *found

    found = of_scaled(None)
    one = jnp.ones_like(found[0])
    found = one, epsilon * one, *found
    is_in_range = _is_in_range(found[-1] + epsilon) if use_variance else jnp.isfinite(found[-1])
    found = _in_range_or(x, is_in_range, found, rescued)
    scale, least, *mean = found
    centred = x.astype(wide) * scale
    variance = mean.pop() if use_variance else one
    if use_mean:
        centred = centred - mean[0] - mean[1]
    root = lax.sqrt(variance + least) if use_variance else scale
    average = mean[0] / scale if use_mean else jnp.zeros_like(one)
    return Moments(centred, one / root, scale, average, variance / scale / scale if use_variance else one)


def _moments_jvp(
    axes: tuple[int, ...], use_mean: bool, use_variance: bool, primals: Any, tangents: Any
) -> tuple[Moments, Moments]:
    x, epsilon = primals
    centred, inverse, scale, mean, _ = value = _moments(axes, use_mean, use_variance, x, epsilon)
    count = _count(x, axes, centred.dtype)
    x_slope, epsilon_slope = tangents
    slopes = Moments(*map(jnp.zeros_like, value))
    if type(x_slope) is not SymbolicZero:
        scaled = x_slope.astype(centred.dtype) * scale
        mean_slope = plain_sum(scaled, axes) / count if use_mean else jnp.zeros_like(mean)
        slopes = slopes._replace(centred=scaled - mean_slope, mean=mean_slope / scale)
        if use_variance:
            of_squares = plain_sum(centred * inverse * scaled, axes) / count
            slopes = slopes._replace(
                inverse=-of_squares * inverse * inverse,
                variance=2 * plain_sum(centred * x_slope.astype(centred.dtype), axes) / count / scale,
            )
    if type(epsilon_slope) is not SymbolicZero and use_variance:
        of_epsilon = -inverse * inverse * inverse * scale * scale * epsilon_slope / 2
        slopes = slopes._replace(inverse=slopes.inverse + of_epsilon)
    return value, slopes


_moments.defjvp(_moments_jvp, symbolic_zeros=True)
