"""Matrix products: floats at the precision that JAX's setting asks for, and integers exactly.

The last two dimensions are the matrices; those before them are batches, which broadcast as in NumPy.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.errors import Unsupported, require
from dmljax.foundation.dimensions import is_symbolic, number
from dmljax.foundation.open_sizes import fits
from dmljax.foundation.sharding import (
    MeshAxes,
    broadcast_with_sharding,
    call_with_auto_axes,
    dimension_axes,
    may_be_sharded,
)
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import product
from dmljax.types import widened

# Floats


def matrix_product(a: Array, b: Array, precision: Any = None) -> Array:
    """`a @ b`, where 16-bit floats are added up in float32 and stay float32."""
    wide = widened(a.dtype)

    def multiply(a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, precision=precision, preferred_element_type=wide)

    return _multiply_with_auto_axes(multiply, a, b)


def _multiply_with_auto_axes(multiply: Callable[..., Array], a: Array, b: Array, *others: Array | None) -> Array:
    """`multiply(a, b, *others)`, with batches, rows and columns sharded as in `a` and `b`.

    If the dimension of the sums is sharded, XLA adds up their parts.
    """
    axes = [dimension_axes(x) for x in (a, b)]
    batches = [list(reversed(batch[:-2])) for batch in axes]
    rank = max(map(len, batches))
    both = zip(*(batch + [None] * (rank - len(batch)) for batch in batches), strict=True)
    batch_axes: list[MeshAxes] = [first or second for first, second in both]
    result = [*reversed(batch_axes), axes[0][-2], axes[1][-1]]
    present = [x for x in others if x is not None]

    def call(a: Array, b: Array, *rest: Array) -> Array:
        remaining = iter(rest)
        return multiply(a, b, *(None if x is None else next(remaining) for x in others))

    operands = [(x, dimension_axes(x)) for x in (a, b, *present)]
    return call_with_auto_axes(call, operands, result)


# Integers


def integer_product(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """The product of the 8-bit integer matrices `a - a_zero` and `b - b_zero` in int32, modulo 2**32.

    All have the same rank. A zero point has the type of its matrix and the shape (..., 1, 1), or one value for each row
    of `a`, (..., M, 1), or for each column of `b`, (..., 1, N).
    """
    return _multiply_with_auto_axes(_integer_product, a, b, a_zero, b_zero)


def _integer_product(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    # A product of int8 is the fastest on every platform. Zero points enter through the sums of columns and rows, which
    # are such products as well.
    (a, a_zero), (b, b_zero) = _as_int8(a, a_zero), _as_int8(b, b_zero)
    terms, leading = a.shape[-1], (1,) * (a.ndim - 2)
    if a_zero is None:
        total = _product_of_int8(a, b)
    else:
        operands = a, b, a_zero, jnp.zeros((), np.int32) if b_zero is None else number(terms, np.int32) * b_zero
        on_cpu = _multiply_in_two_passes if may_be_sharded(a) else _multiply_in_one_pass
        total = choose(*operands, cpu=on_cpu, default=_multiply_in_two_passes)
    if b_zero is not None:
        total -= _product_of_int8(a, jnp.ones((*leading, terms, 1), np.int8)) * b_zero
    return total


_product_of_int8: Callable[..., Array] = partial(jnp.matmul, preferred_element_type=np.int32)


def _multiply_in_two_passes(a: Array, b: Array, a_zero: Array, b_zero_sums: Array) -> Array:
    """Computes `a @ b - a_zero * (sums - b_zero_sums)`, where `sums` are the sums of the columns of `b`."""
    row_of_ones = jnp.ones((*(1 for _ in a.shape[:-2]), 1, a.shape[-1]), np.int8)
    return _product_of_int8(a, b) - a_zero * (_product_of_int8(row_of_ones, b) - b_zero_sums)


def _multiply_in_one_pass(a: Array, b: Array, a_zero: Array, b_zero_sums: Array) -> Array:
    """Does the same in one pass over `b`, whose reading takes most of the time for few rows."""
    both = _product_of_int8(jnp.concatenate([a, jnp.ones((*a.shape[:-2], 1, a.shape[-1]), np.int8)], axis=-2), b)
    return both[..., :-1, :] - a_zero * (both[..., -1:, :] - b_zero_sums)


def _as_int8(x: Array, zero: Array | None) -> tuple[Array, Array | None]:
    """8-bit integers as int8, and their zero point as int32, both reduced by 128 if unsigned."""
    if x.dtype == np.int8:
        return x, None if zero is None else zero.astype(np.int32)
    numbers = lax.bitcast_convert_type(x ^ np.uint8(128), np.int8)
    return numbers, (jnp.zeros((), np.int32) if zero is None else zero.astype(np.int32)) - 128


def integer_product_as_floats(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None, dtype: Any) -> Array:
    """The product of the integer matrices `a - a_zero` and `b - b_zero`, of up to 32 bits, as floats of `dtype`.

    For 8-bit integers it is exact before the rounding, for which an open number of terms must have a bound. Wider
    integers are multiplied as floats.
    """
    columns = a.shape[-1]

    def multiply(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
        if max(a.dtype.itemsize, b.dtype.itemsize) > 1:
            factors = _subtract_zero(a, a_zero, dtype), _subtract_zero(b, b_zero, dtype)
            return jnp.matmul(*factors, precision=lax.Precision.HIGHEST)
        if is_symbolic(columns):
            rule = f"must have at most {_MOST_TERMS_IN_INT32} columns, or a number that is known while tracing"
            require("a", fits(columns, _MOST_TERMS_IN_INT32), rule, f"shape {a.shape}", Unsupported)
            return _integer_product(a, b, a_zero, b_zero).astype(dtype)
        chunks = range(0, max(columns, 1), _MOST_TERMS_IN_INT32)
        pieces = (slice(start, start + _MOST_TERMS_IN_INT32) for start in chunks)
        return sum_as_floats([_integer_product(a[..., i], b[..., i, :], a_zero, b_zero) for i in pieces], dtype)

    return _multiply_with_auto_axes(multiply, a, b, a_zero, b_zero)


_MOST_TERMS_IN_INT32 = 2**15  # of products of differences of 8 bits, at most 255 * 255 each


def _subtract_zero(x: Array, zero: Array | None, dtype: Any) -> Array:
    """`x - zero` as floats, because the integers' type may not hold it."""
    if zero is None:
        return x.astype(dtype)
    is_less = x < zero
    magnitude = jnp.where(is_less, zero - x, x - zero)
    unsigned = lax.bitcast_convert_type(magnitude, np.dtype(f"uint{8 * x.dtype.itemsize}")).astype(dtype)
    return jnp.where(is_less, -unsigned, unsigned)


def sum_as_floats(parts: Sequence[Array], dtype: Any) -> Array:
    """The sum of int32 arrays, which may exceed int32, rounded once."""
    if len(parts) == 1:
        return parts[0].astype(dtype)
    halves = [part >> 16 for part in parts], [part & 0xFFFF for part in parts]
    high, low = (reduce(operator.add, half).astype(dtype) for half in halves)
    return high * 2**16 + low


def multiply_scales(total: Array, *scales: Array) -> Array:
    """Multiplies `total` by one scale after another and rounds each product, so that platforms agree."""
    shape = jnp.broadcast_shapes(total.shape, *(scale.shape for scale in scales))
    return reduce(product, broadcast_with_sharding(shape, total, *scales))
