"""Arrays made of elements of other arrays, bit for bit and on any mesh."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.arithmetic.floats import sort_keys
from dmljax.checks import require_counts
from dmljax.lowerings.platform import choose
from dmljax.lowerings.sharding import dimension_axes, dividing_axes, may_be_sharded, partitioned
from dmljax.lowerings.workarounds import bfloat16_of
from dmljax.types import FLOATS, widened

R = TypeVar("R")  # an array, or a tree of arrays
Move = Callable[[tuple[Array, ...], Any], R]


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
    return choose(bits, cpu=bfloat16_of, default=partial(lax.bitcast_convert_type, new_dtype=jnp.bfloat16))


@_copied_apart.defjvp
def _copied_apart_jvp(move: Move[R], derivative: Move[R], primals: Any, tangents: Any) -> tuple[R, R]:
    floats, guide = primals
    return _copied_apart(move, derivative, floats, guide), derivative(tangents[0], guide)


def selected(condition: Array, a: Array, b: Array) -> Array:
    """`a` where the condition holds, and `b` elsewhere, bit for bit."""
    return copied(_select, (a, b), condition)


def _select(arrays: tuple[Array, ...], condition: Array) -> Array:
    a, b = arrays
    return jnp.where(condition, a, b)


def maximum(a: Array, b: Array) -> Array:
    """The larger of `a` and `b`, or `a` if they are equal; NaN is larger than every number, and +0 than -0."""
    keys = partial(sort_keys, nan_is_largest=True, zeros_are_equal=False)
    return selected(keys(a) >= keys(b), a, b)


def minimum(a: Array, b: Array) -> Array:
    """The smaller of `a` and `b`, or `a` if they are equal; NaN is smaller than every number, and -0 than +0."""
    keys = partial(sort_keys, nan_is_largest=False, zeros_are_equal=False)
    return selected(keys(a) <= keys(b), a, b)


def of_sort_keys(keys: Array, dtype: Any) -> Array:
    """The elements that have these `sort_keys`, made with `zeros_are_equal=False`; a NaN is the usual one."""
    if dtype not in FLOATS:
        return keys.astype(dtype)
    limits = np.iinfo(keys.dtype)
    magnitude = jnp.where(keys < 0, ~keys, keys)
    numbers = lax.bitcast_convert_type(jnp.where(keys < 0, magnitude | limits.min, magnitude), dtype)
    is_number = (keys > limits.min) & (keys < limits.max)
    return selected(is_number, numbers, jnp.full_like(numbers, np.nan))


def moved(inputs: Sequence[Array], sizes: Sequence[int], move: Callable[..., Array], *numbers: Array) -> Array:
    """`move(*inputs, *numbers)`, which has `sizes` and as many dimensions as each of the inputs.

    `move` must only copy elements. Numbers are scalars of the type of the inputs.
    """
    check_sizes(sizes)
    operands = [(x, dimension_axes(x)) for x in (*inputs, *numbers)]
    copy = lambda *given: copied(lambda floats, _: move(*floats), given)  # noqa: E731
    return partitioned(copy, operands, kept_axes(inputs, sizes))


def check_sizes(sizes: Sequence[int]) -> None:
    """Refuses a result whose sizes DirectML's UINTs cannot hold."""
    require_counts(("result", "shape"), sizes, 0)


def kept_axes(inputs: Sequence[Array], sizes: Sequence[int]) -> list[Any]:
    """The mesh axes of each dimension of a result: those of the first input that shards it, if they divide its size."""
    kept = []
    for i, size in enumerate(sizes):
        sharded = ((dimension_axes(x)[i], x) for x in inputs if dimension_axes(x)[i] is not None)
        first, x = next(sharded, (None, inputs[0]))
        kept.append(dividing_axes(first, size, x))
    return kept
