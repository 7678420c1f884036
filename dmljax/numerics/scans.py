"""Running tallies along an axis in linear time: sums, and products that stay in range on the way.

An axis is split into blocks of 8. The totals of the blocks are tallied in the same way, and then every block adds its
own elements to the tally before it. On a CPU, `jnp.cumsum` takes 2 to 10 times as long.
"""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.numerics.exact import mantissa_and_exponent, power_of_two, times_power_of_two, with_slopes
from dmljax.numerics.sizes import is_symbolic, replaced
from dmljax.types import FLOATS

Tally = tuple[Array, ...]  # arrays of one shape; of a scalar product, for example, mantissas and exponents
Combine = Callable[[Tally, Tally], Tally]

_BLOCK = 8


def running_sum(x: Array, axis: int, *, reverse: bool, exclusive: bool) -> Array:
    """The sum of each element along `axis` and of those before it, or after it if `reverse`, without it if `exclusive`.

    A sum of floats has at most 8 rounding errors for every factor of 8 in the size.
    """

    def sums(x: Array) -> Array:
        if is_symbolic(x.shape[axis]):
            return _tallied_by_jax(lax.cumsum, x, 0, axis, reverse, exclusive)
        return _tallied(_sum, (x,), (0,), axis, reverse, exclusive)[0]

    return with_slopes(lambda tangent, x: sums(tangent))(sums)(x) if x.dtype in FLOATS else sums(x)


def running_product(x: Array, axis: int, *, reverse: bool, exclusive: bool) -> Array:
    """The products of elements where `running_sum` has their sums.

    A product of floats is infinite or 0 only where its exact value is out of range, whatever it is on the way. Each
    factor may add a rounding error of half a unit in the last place.
    """
    if is_symbolic(x.shape[axis]):
        return _tallied_by_jax(lax.cumprod, x, 1, axis, reverse, exclusive)
    if x.dtype not in FLOATS:
        return _tallied(_product, (x,), (1,), axis, reverse, exclusive)[0]

    def products(x: Array) -> Array:
        tally = _tallied(_scaled_product, _scaled(x), (1, 0), axis, reverse, exclusive, between=_rescaled)
        return times_power_of_two(*tally)

    def slope(tangent: Array, x: Array) -> Array:
        # The derivative of a product divided by its power of 2, without a division: factors may be 0.
        mantissas, exponents = _scaled(x)
        scaled = mantissas, exponents, times_power_of_two(tangent, -exponents)
        start = 1, 0, 0
        _, exponents, derivatives = _tallied(
            _derivative_of_product, scaled, start, axis, reverse, exclusive, between=_rescaled
        )
        return times_power_of_two(derivatives, exponents)

    return with_slopes(slope)(products)(x)


def full_product(x: Array, axes: tuple[int, ...]) -> Array:
    """The product of the floats along `axes`, which keep size 1; it is out of range only where its exact value is."""
    tally: Tally = _scaled(x)
    for axis in reversed(axes):
        while tally[0].shape[axis] > 1:
            tally = _rescaled(_product_of_blocks(tally, axis))
    return times_power_of_two(*tally)


def _product_of_blocks(tally: Tally, axis: int) -> Tally:
    mantissas, exponents = tally
    size = mantissas.shape[axis]
    block = min(size, 32)  # mantissas whose product is below 2**32
    filling = (0, -size % block, 0)
    mantissas = _split(mantissas, axis, block, filling, fill=1)
    exponents = _split(exponents, axis, block, filling)
    return jnp.prod(mantissas, axis + 1), jnp.sum(exponents, axis + 1, dtype=exponents.dtype)


def products_of_others(x: Array, axes: tuple[int, ...]) -> Array:
    """For each element, the product of all other floats along `axes`: the derivative of `full_product`."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*kept, *axes]
    moved = x.transpose(order)
    rows = moved.reshape(*(x.shape[axis] for axis in kept), -1)
    sides = [
        _tallied(_scaled_product, _scaled(rows), (1, 0), len(kept), reverse, True, between=_rescaled)
        for reverse in (False, True)
    ]
    others = times_power_of_two(*_rescaled(_scaled_product(*sides)))
    return others.reshape(moved.shape).transpose(np.argsort(order))


def _sum(a: Tally, b: Tally) -> Tally:
    return (a[0] + b[0],)


def _product(a: Tally, b: Tally) -> Tally:
    return (a[0] * b[0],)


def _scaled_product(a: Tally, b: Tally) -> Tally:
    return a[0] * b[0], a[1] + b[1]


def _derivative_of_product(a: Tally, b: Tally) -> Tally:
    return *_scaled_product(a, b), a[2] * b[0] + a[0] * b[2]


def _scaled(x: Array) -> tuple[Array, Array]:
    """The mantissas and exponents of floats; the exponent of a 0 is 0."""
    mantissa, exponent = mantissa_and_exponent(x)
    return mantissa, jnp.where(mantissa == 0, jnp.zeros_like(exponent), exponent)


_FARTHEST = 2**26  # an exponent that no float brings back into range, unless a million of them do


def _rescaled(tally: Tally) -> Tally:
    """A tally whose mantissas are at most 2 again: those of a block of 8 are at most 512."""
    mantissas, exponents, *derivatives = tally
    mantissas, more = _scaled(mantissas)
    exponents = jnp.clip(exponents + more, -_FARTHEST, _FARTHEST)
    return mantissas, exponents, *(one * power_of_two(-more, one.dtype) for one in derivatives)


def _tallied(
    combine: Combine,
    x: Tally,
    start: tuple[int, ...],
    axis: int,
    reverse: bool,
    exclusive: bool,
    between: Callable[[Tally], Tally] = lambda tally: tally,
) -> Tally:
    """The tally of the elements before each element, and of itself unless `exclusive`; `between` is applied to totals.

    The tally before the first element is `start`.
    """
    size = x[0].shape[axis]
    if size == 0:
        return x
    count = -(-size // _BLOCK)
    block = size if count == 1 else _BLOCK
    filling = (count * block - size, 0, 0) if reverse else (0, count * block - size, 0)
    blocks = tuple(_split(one, axis, block, filling) for one in x)
    order = range(block)[::-1] if reverse else range(block)
    columns = [tuple(lax.index_in_dim(one, i, axis + 1, keepdims=False) for one in blocks) for i in order]
    if count == 1:
        tally = tuple(jnp.full_like(one, value) for one, value in zip(columns[0], start, strict=True))
    else:
        totals = between(functools.reduce(combine, columns))
        before = _tallied(combine, totals, start, axis, reverse, True, between)
        # Without the barrier, XLA on a CPU computes what is before a block for each of its elements.
        tally = tuple(map(lax.optimization_barrier, before))
    tallies = []
    for column in columns:
        after = combine(tally, column)
        tallies.append(tally if exclusive else after)
        tally = after
    in_order = tallies[::-1] if reverse else tallies
    return tuple(_joined(list(of_one), axis, size, filling[0]) for of_one in zip(*in_order, strict=True))


def _split(x: Array, axis: int, block: int, filling: tuple[int, int, int], fill: int = 0) -> Array:
    """Splits `axis`, filled up to a multiple of `block`, into blocks and their elements."""
    padded = lax.pad(x, jnp.full((), fill, x.dtype), [filling if i == axis else (0, 0, 0) for i in range(x.ndim)])
    return padded.reshape(replaced(x.shape, axis, padded.shape[axis] // block, block))


def _joined(columns: list[Array], axis: int, size: int, first: int) -> Array:
    """The columns of the blocks as one axis again, without what it was filled up with."""
    blocks = jnp.stack(columns, axis + 1)
    count, block = blocks.shape[axis : axis + 2]
    whole = blocks.reshape(*blocks.shape[:axis], count * block, *blocks.shape[axis + 2 :])
    return lax.slice_in_dim(whole, first, first + size, axis=axis)


def _tallied_by_jax(
    tally: Callable[..., Array], x: Array, start: int, axis: int, reverse: bool, exclusive: bool
) -> Array:
    """The tally by JAX's own function, for an axis of symbolic size, which cannot be split into blocks."""
    tallies = tally(x, axis=axis, reverse=reverse)
    if not exclusive:
        return tallies
    first = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=axis), start)
    others = lax.slice_in_dim(tallies, 1, None, axis=axis) if reverse else lax.slice_in_dim(tallies, 0, -1, axis=axis)
    return lax.concatenate([others, first] if reverse else [first, others], axis)
