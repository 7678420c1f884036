"""Comparison, selection and copying of floats by their bits.

Comparisons use the bits because a backend may flush subnormal operands to zero before it compares them, as XLA on CPU
does. Copies use the bits where moving floats would change them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.numerics.platform import choose
from dmljax.numerics.sharding import may_be_sharded
from dmljax.types import FLOATS, widened

R = TypeVar("R")  # an array, or a tree of arrays
Move = Callable[[tuple[Array, ...], Any], R]


def is_nonzero(x: Array) -> Array:
    """True where `x` is neither +0 nor -0; NaN and subnormal numbers are not zero."""
    if x.dtype in FLOATS:
        return _magnitude(x) != 0
    return x != np.zeros((), x.dtype)


def sort_keys(x: Array, *, nan_is_largest: bool, zeros_are_equal: bool = True) -> Array:
    """Maps `x` to integers that compare as the elements of `x` do.

    -0 equals +0 if `zeros_are_equal`, and is less than +0 otherwise. All NaNs have the same key, which is above or
    below the keys of all numbers.
    """
    if x.dtype == bool:
        return x.astype(jnp.uint8)
    if x.dtype not in FLOATS:
        return x
    magnitude = _magnitude(x)
    is_negative = lax.bitcast_convert_type(x, magnitude.dtype) < 0
    limits = np.iinfo(magnitude.dtype)
    nan_key = np.array(limits.max if nan_is_largest else limits.min, magnitude.dtype)
    negative = -magnitude if zeros_are_equal else ~magnitude
    return jnp.where(magnitude > _infinity(x), nan_key, jnp.where(is_negative, negative, magnitude))


def of_sort_keys(keys: Array, dtype: Any) -> Array:
    """The elements that have these `sort_keys`, made with `zeros_are_equal=False`; a NaN is the usual one."""
    if dtype not in FLOATS:
        return keys.astype(dtype)
    limits = np.iinfo(keys.dtype)
    magnitude = jnp.where(keys < 0, ~keys, keys)
    numbers = lax.bitcast_convert_type(jnp.where(keys < 0, magnitude | limits.min, magnitude), dtype)
    is_number = (keys > limits.min) & (keys < limits.max)
    return selected(is_number, numbers, jnp.full_like(numbers, np.nan))


def _magnitude(x: Array) -> Array:
    """The bits of `x` without the sign bit, as a signed integer; they are in the order of the absolute values."""
    signed = np.dtype(f"int{x.dtype.itemsize * 8}")
    return lax.bitcast_convert_type(x, signed) & np.array(np.iinfo(signed).max, signed)


def _infinity(x: Array) -> Array:
    """The `_magnitude` of an infinity of the type of `x`."""
    return _magnitude(jnp.full((), np.inf, x.dtype))


def is_nan(x: Array) -> Array:
    """True where `x` is NaN, which no integer is."""
    return _magnitude(x) > _infinity(x) if x.dtype in FLOATS else jnp.zeros_like(x, bool)


def is_not_negative(x: Array) -> Array:
    """True where `x` is NaN, +0 or positive; of floats by one comparison, which is quick where XLA cannot vectorize."""
    if x.dtype not in FLOATS:
        return x >= np.zeros((), x.dtype)
    bits, infinity, negative_zero = _unsigned(x)
    # From -0 to -inf the bits are in one piece; those of all others lie around its end and its beginning.
    return lax.gt(bits - negative_zero, infinity)


def is_infinite(x: Array) -> Array:
    """True where `x`, which must have a float type, is infinite."""
    return _magnitude(x) == _infinity(x)


def is_above_zero(x: Array) -> Array:
    """True where `x > 0`, by IEEE 754; of floats by one comparison."""
    if x.dtype not in FLOATS:
        return x > np.zeros((), x.dtype)
    bits, infinity, _ = _unsigned(x)
    return lax.lt(bits - bits.dtype.type(1), infinity)  # 0 - 1 is the largest integer


def is_below_zero(x: Array) -> Array:
    """True where `x < 0`, by IEEE 754; of floats by one comparison."""
    if x.dtype not in FLOATS:
        return x < np.zeros((), x.dtype)
    bits, infinity, negative_zero = _unsigned(x)
    return lax.lt(bits - (negative_zero + bits.dtype.type(1)), infinity)


def _unsigned(x: Array) -> tuple[Array, Array, Any]:
    """The bits of `x`, of infinity and of -0, as unsigned integers."""
    unsigned = np.dtype(f"uint{x.dtype.itemsize * 8}")
    bits, infinity = (lax.bitcast_convert_type(y, unsigned) for y in (x, jnp.full((), np.inf, x.dtype)))
    return bits, infinity, np.array(np.iinfo(unsigned).max // 2 + 1, unsigned)


# Comparisons of IEEE 754, in which any comparison with NaN is false: here a NaN on the left is below all numbers, and a
# NaN on the right is above all numbers and above a NaN on the left.


def greater(a: Array, b: Array) -> Array:
    """True where `a > b`, by IEEE 754."""
    return sort_keys(a, nan_is_largest=False) > sort_keys(b, nan_is_largest=True)


def greater_equal(a: Array, b: Array) -> Array:
    """True where `a >= b`, by IEEE 754."""
    return sort_keys(a, nan_is_largest=False) >= sort_keys(b, nan_is_largest=True)


def equal(a: Array, b: Array) -> Array:
    """True where `a == b`, by IEEE 754."""
    return sort_keys(a, nan_is_largest=False) == sort_keys(b, nan_is_largest=True)


def maximum(a: Array, b: Array) -> Array:
    """The larger of `a` and `b`, or `a` if they are equal; NaN is larger than every number, and +0 than -0."""
    keys = partial(sort_keys, nan_is_largest=True, zeros_are_equal=False)
    return selected(keys(a) >= keys(b), a, b)


def minimum(a: Array, b: Array) -> Array:
    """The smaller of `a` and `b`, or `a` if they are equal; NaN is smaller than every number, and -0 than +0."""
    keys = partial(sort_keys, nan_is_largest=False, zeros_are_equal=False)
    return selected(keys(a) <= keys(b), a, b)


def selected(condition: Array, a: Array, b: Array) -> Array:
    """`a` where the condition holds, and `b` elsewhere, bit for bit."""
    return copied(_select, (a, b), condition)


def _select(arrays: tuple[Array, ...], condition: Array) -> Array:
    a, b = arrays
    return jnp.where(condition, a, b)


def copied(
    move: Move[R],
    floats: tuple[Array, ...],
    guide: Any = None,
    *,
    derivative: Move[R] | None = None,
    sums_are_wide: bool = False,
) -> R:
    """`move(floats, guide)` bit for bit, where `move` must only copy elements of `floats`.

    XLA changes the bits of two kinds of floats, which therefore move as integers: on a CPU it selects and concatenates
    bfloat16 as float32, which turns signalling NaNs into quiet NaNs; and it collects what several devices hold by
    adding it up, which turns -0 and subnormal numbers into +0.

    Derivatives move in the floats' own type, or, if `sums_are_wide`, those of 16-bit floats in float32, so that a
    gradient that adds up many of them is rounded once. They move by `derivative` where JAX cannot differentiate `move`
    itself. Neither integers nor such a `move` has a transpose: `jax.linear_transpose` then fails; `jax.vjp` works.
    """
    dtype = floats[0].dtype
    if sums_are_wide and widened(dtype) != dtype:
        derivative = partial(_moved_in_wide, derivative or move)
    if dtype in FLOATS and (derivative is not None or _moves_as_bits(floats)):
        return cast(R, _copied_apart(move, derivative or move, floats, guide))
    return move(floats, guide)


def _moves_as_bits(floats: tuple[Array, ...]) -> bool:
    return floats[0].dtype == jnp.bfloat16 or any(map(may_be_sharded, floats))


def _moved_in_wide(move: Move[R], floats: tuple[Array, ...], guide: Any) -> R:
    dtype = floats[0].dtype
    moved = move(tuple(x.astype(widened(dtype)) for x in floats), guide)
    return cast(R, jax.tree.map(lambda one: one.astype(dtype), moved))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _copied_apart(move: Move[R], derivative: Move[R], floats: tuple[Array, ...], guide: Any) -> R:
    """`copied`, whose derivative is a computation of its own."""
    if not _moves_as_bits(floats):
        return move(floats, guide)
    dtype = floats[0].dtype
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    as_floats = _as_bfloat16 if dtype == jnp.bfloat16 else partial(lax.bitcast_convert_type, new_dtype=dtype)
    bits = tuple(lax.bitcast_convert_type(x, unsigned) for x in floats)
    return cast(R, jax.tree.map(as_floats, move(bits, guide)))


def _as_bfloat16(bits: Array) -> Array:
    """The bfloat16 that have these bits.

    XLA on CPU makes one loop of a move and this conversion, and LLVM then moves bfloat16 again, by way of float32 where
    the processor has no bfloat16 of its own. It does not where integers are computed in between. Here they are joined
    with a zero of which the compiler does not know that it is one: no square leaves 5 or 7 when it is divided by 8.
    """

    def hidden(bits: Array) -> Array:
        square = bits * bits
        return bits | (square & (square >> 2) & 1)

    bits = choose(bits, cpu=hidden, default=lambda bits: bits)
    return lax.bitcast_convert_type(bits, jnp.bfloat16)


@_copied_apart.defjvp
def _copied_apart_jvp(move: Move[R], derivative: Move[R], primals: Any, tangents: Any) -> tuple[R, R]:
    floats, guide = primals
    return _copied_apart(move, derivative, floats, guide), derivative(tangents[0], guide)
