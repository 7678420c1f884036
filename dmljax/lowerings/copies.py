"""Arrays that copy elements of other arrays, bit for bit and on any mesh."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.checks import require_counts
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes, dividing_axes, may_be_sharded
from dmljax.lowerings.numbers.floats import sort_keys
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import bits_to_bfloat16
from dmljax.types import FLOATS, widened

R = TypeVar("R")  # an array, or a tree of arrays
Move = Callable[[tuple[Array, ...], Any], R]


def copy_exactly(
    move: Move[R],
    floats: tuple[Array, ...],
    guide: Any = None,
    *,
    derivative: Move[R] | None = None,
    sums_are_wide: bool = False,
) -> R:
    """Calls `move(floats, guide)` and keeps every bit; `move` must only copy elements of `floats`.

    XLA changes the bits of two kinds of floats, which therefore move as integers. On a CPU it selects and concatenates
    bfloat16 as float32, which makes signaling NaNs quiet. And it collects the parts of several devices by adding them
    up, which turns -0 and subnormal numbers into +0.

    Derivatives move in the floats' own type. If `sums_are_wide`, derivatives of 16-bit floats move in float32, so that
    a gradient that adds up many is rounded once. They move by `derivative` where JAX cannot differentiate `move`
    itself. Integers and such a `move` have no transpose, so `jax.linear_transpose` fails; `jax.vjp` works.
    """
    dtype = floats[0].dtype
    if sums_are_wide and widened(dtype) != dtype:
        derivative = partial(_move_widened, derivative or move)
    if dtype in FLOATS and (derivative is not None or _moves_as_bits(floats)):
        return cast(R, _copy_with_derivative(move, derivative or move, floats, guide))
    return move(floats, guide)


def _moves_as_bits(floats: tuple[Array, ...]) -> bool:
    return floats[0].dtype == jnp.bfloat16 or any(map(may_be_sharded, floats))


def _move_widened(move: Move[R], floats: tuple[Array, ...], guide: Any) -> R:
    dtype = floats[0].dtype
    wide = move(tuple(x.astype(widened(dtype)) for x in floats), guide)
    return cast(R, jax.tree.map(lambda x: x.astype(dtype), wide))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _copy_with_derivative(move: Move[R], derivative: Move[R], floats: tuple[Array, ...], guide: Any) -> R:
    """Computes `copy_exactly` with a separate derivative."""
    if not _moves_as_bits(floats):
        return move(floats, guide)
    dtype = floats[0].dtype
    unsigned = np.dtype(f"uint{dtype.itemsize * 8}")
    as_floats = _to_bfloat16 if dtype == jnp.bfloat16 else partial(lax.bitcast_convert_type, new_dtype=dtype)
    bits = tuple(lax.bitcast_convert_type(x, unsigned) for x in floats)
    return cast(R, jax.tree.map(as_floats, move(bits, guide)))


def _to_bfloat16(bits: Array) -> Array:
    return choose(bits, cpu=bits_to_bfloat16, default=partial(lax.bitcast_convert_type, new_dtype=jnp.bfloat16))


@_copy_with_derivative.defjvp
def _copy_with_derivative_jvp(move: Move[R], derivative: Move[R], primals: Any, tangents: Any) -> tuple[R, R]:
    floats, guide = primals
    return _copy_with_derivative(move, derivative, floats, guide), derivative(tangents[0], guide)


def select_exactly(condition: Array, a: Array, b: Array) -> Array:
    """`a` where the condition holds, and `b` elsewhere, bit for bit."""
    if a.dtype == jnp.bfloat16:
        return copy_exactly(_select, (a, b), condition)
    # Devices exchange nothing here, so floats need not move as bits, which would keep XLA from compiling a softmax for
    # a GPU.
    return _select((a, b), condition)


def _select(arrays: tuple[Array, ...], condition: Array) -> Array:
    a, b = arrays
    return jnp.where(condition, a, b)


def maximum(a: Array, b: Array) -> Array:
    """The larger of `a` and `b`, or `a` if they are equal; NaN is larger than every number, and +0 than -0."""
    keys = partial(sort_keys, nan_is_largest=True, zeros_are_equal=False)
    return select_exactly(keys(a) >= keys(b), a, b)


def minimum(a: Array, b: Array) -> Array:
    """The smaller of `a` and `b`, or `a` if they are equal; NaN is smaller than every number, and -0 than +0."""
    keys = partial(sort_keys, nan_is_largest=False, zeros_are_equal=False)
    return select_exactly(keys(a) <= keys(b), a, b)


def from_sort_keys(keys: Array, dtype: Any) -> Array:
    """The elements with these `sort_keys`, made with `zeros_are_equal=False`; NaNs become the usual NaN."""
    if dtype not in FLOATS:
        return keys.astype(dtype)
    limits = np.iinfo(keys.dtype)
    magnitude = jnp.where(keys < 0, ~keys, keys)
    numbers = lax.bitcast_convert_type(jnp.where(keys < 0, magnitude | limits.min, magnitude), dtype)
    is_number = (keys > limits.min) & (keys < limits.max)
    return select_exactly(is_number, numbers, jnp.full_like(numbers, np.nan))


def copy_with_auto_axes(
    inputs: Sequence[Array], sizes: Sequence[int], move: Callable[..., Array], *numbers: Array
) -> Array:
    """Calls `move(*inputs, *numbers)`, whose result has `sizes` and the rank of the inputs.

    `move` must only copy elements. The numbers are scalars of the inputs' type.
    """
    check_sizes(sizes)
    operands = [(x, dimension_axes(x)) for x in (*inputs, *numbers)]
    copy = lambda *arrays: copy_exactly(lambda floats, _: move(*floats), arrays)  # noqa: E731
    return call_with_auto_axes(copy, operands, result_axes(inputs, sizes))


def check_sizes(sizes: Sequence[int]) -> None:
    """Raises if DirectML's UINTs cannot hold the sizes of a result."""
    require_counts(("result", "shape"), sizes, 0)


def result_axes(inputs: Sequence[Array], sizes: Sequence[int]) -> list[Any]:
    """The mesh axes for each dimension of a result: those of the first input that shards it, where they divide it."""
    axes = []
    for i, size in enumerate(sizes):
        candidates = ((dimension_axes(x)[i], x) for x in inputs if dimension_axes(x)[i] is not None)
        first, x = next(candidates, (None, inputs[0]))
        axes.append(dividing_axes(first, size, x))
    return axes
