"""Resampling along the dimensions of an array: the positions of the result's elements in the input, and sums over taps.

Positions are exact, and the same on every platform, under every transformation, and for arrays of any size: they are
integers that count fractions of the distance between two elements of the input. Python fractions hold only what is
known while tracing; indices and weights are computed from a few integers, so that no table of them becomes a constant
of the program.
"""

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import is_symbolic, number, replace_at
from dmljax.foundation.sharding import may_be_sharded
from dmljax.lowerings.copies import copy_exactly
from dmljax.lowerings.numbers.derivatives import custom_jvps
from dmljax.lowerings.numbers.special import rounded_quotient
from dmljax.lowerings.platform import choose
from dmljax.types import FLOATS, widened


def simplest_fraction(scale: float) -> Fraction:
    """The fraction with the smallest denominator, in binary digits, that rounds to `scale`, a finite float32.

    The scale 0.33333334 is 1/3. Read as the exact float32, three elements would be slightly less than one pixel, and
    rounding down would find the pixel before.
    """
    value = np.float32(scale)
    exact = Fraction(float(value))
    nearest = (exact.limit_denominator(2**digits) for digits in range(150))  # the last is exact
    return next(fraction for fraction in nearest if np.float32(float(fraction)) == value)


class Positions(NamedTuple):
    """Element `i` of the result lies at `(step * i + start) / unit` in the input, along one dimension."""

    input_size: int
    output_size: int
    step: int
    start: int
    unit: int

    def is_symbolic(self) -> bool:
        """Whether a size is open, so that the positions inside the input are unknown."""
        return is_symbolic(self.input_size) or is_symbolic(self.output_size)

    def inside(self) -> range:
        """The elements of the result between the first and the last element of the input."""
        end = (self.input_size - 1) * self.unit
        if self.step == 0:
            before = self.output_size if self.start < 0 else 0
            return range(self.output_size) if 0 <= self.start <= end else range(before, before)
        first = min(max(-(self.start // self.step), 0), self.output_size)
        last = min((end - self.start) // self.step, self.output_size - 1)
        return range(first, max(first, last + 1))


_LARGEST_UNIT = 2**29  # so that an int32 holds twice as much


def positions(
    input_size: int, output_size: int, step: Fraction, start: Fraction, largest_unit: int = _LARGEST_UNIT
) -> Positions:
    """The positions `step * i + start`, rounded to multiples of 1 / `largest_unit` if their unit is smaller."""
    unit = math.lcm(step.denominator, start.denominator)
    if unit > largest_unit:  # for a scale near 1 with six digits, or offsets with many
        step = step.limit_denominator(largest_unit)
        unit = step.denominator * (largest_unit // step.denominator)
    return Positions(input_size, output_size, int(step * unit), round(start * unit), unit)


def locate(where: Positions) -> tuple[Array, Array]:
    """The index of the input's element at or before each position, and the position's distance from it.

    The distance is in units. A position outside the input counts as its first or last element.
    """
    i = lax.iota(np.int32, where.output_size)
    if where.is_symbolic():
        return _locate_by_clamping(i, where)
    inside = where.inside()
    if not inside:
        return jnp.where(i < inside.start, 0, where.input_size - 1), jnp.zeros_like(i)
    first, more = divmod(where.step * inside.start + where.start, where.unit)
    turns, rest = _divide(
        jnp.clip(i, inside.start, inside.stop - 1) - inside.start, where.step, more, where.unit, len(inside)
    )
    index = first + turns
    if inside.start > 0:
        index, rest = (jnp.where(i < inside.start, 0, x) for x in (index, rest))
    if inside.stop < where.output_size:
        index = jnp.where(i < inside.stop, index, where.input_size - 1)
        rest = jnp.where(i < inside.stop, rest, 0)
    return index, rest


def _locate_by_clamping(i: Array, where: Positions) -> tuple[Array, Array]:
    # After every `unit` elements of the result, positions are a whole number of input elements apart again.
    turn, place = jnp.divmod(i, where.unit)
    first, more = divmod(where.start, where.unit)
    turns, rest = _divide(place, where.step, more, where.unit, where.unit)
    index, last = first + turns + turn * where.step, number(where.input_size - 1, np.int32)
    is_inside = (index >= 0) & (index < last)
    return jnp.clip(index, 0, last), jnp.where(is_inside, rest, 0)


def _divide(i: Array, factor: int, summand: int, unit: int, count: int) -> tuple[Array, Array]:
    """The quotient and the remainder of `i * factor + summand` by `unit`, for `i` in [0, count)."""
    whole, part = divmod(factor if count > 1 else 0, unit)
    if part * (count - 1) + summand < 2**31:
        quotients, remainder = _divmod(i * part + summand, unit)
    else:
        with jax.enable_x64(True):  # these lines enable 64-bit types if JAX has none
            wide = lax.convert_element_type(i, np.int64)
            both = _divmod(wide * lax.full_like(wide, part) + lax.full_like(wide, summand), lax.full_like(wide, unit))
            quotients, remainder = (lax.convert_element_type(x, np.int32) for x in both)
    return i * whole + quotients, remainder


def _divmod(a: Array, b: Any) -> tuple[Array, Array]:
    """The quotient and the remainder of nonnegative numbers."""
    quotients = lax.div(a, lax.full_like(a, b) if isinstance(b, int) else b)
    return quotients, a - quotients * b


# Weighted averages along one dimension


class Taps(NamedTuple):
    """Each element of a result as the weighted average of neighbors in the input, along the dimension `axis`.

    The neighbors are the elements at `offsets` after the position in `where`, which counts from `margin` elements
    before the input. Outside the input, its first or last element repeats. The weights fall to 0 over `reach` units on
    both sides of the position; without a reach, it copies the only neighbor.
    """

    axis: int
    input_size: int
    where: Positions
    offsets: range
    margin: int = 0
    reach: int = 0

    def is_identity(self) -> bool:
        """Whether the result is the input."""
        _, output_size, step, start, unit = self.where
        is_start = start == 0 if self.reach else 0 <= start < unit
        return self.input_size == output_size and step == unit and is_start and self.margin == 0

    @property
    def most(self) -> int:
        """A bound for the sum of the weights, which are integers."""
        return self.reach * (self.reach // self.where.unit + 2) if self.margin else self.reach

    def weights(self, rest: Array) -> Array:
        """The weights of the neighbors, a row for each, at positions `rest` units after the index."""
        offsets = lax.iota(np.int32, len(self.offsets))[:, None] + self.offsets.start
        return jnp.maximum(self.reach - jnp.abs(offsets * self.where.unit - rest[None]), 0)


def nearest_taps(
    axis: int, input_size: int, output_size: int, step: Fraction, start: Fraction, rounding: Fraction | None
) -> Taps:
    """The elements at the positions `step * i + start`, rounded down after adding `rounding`, or up if that is None."""
    where = positions(input_size, output_size, step, start + (rounding or 0))
    if rounding is None:
        where = where._replace(start=where.start + where.unit - 1)
    return Taps(axis, input_size, where, range(1))


def linear_taps(axis: int, input_size: int, output_size: int, step: Fraction, start: Fraction) -> Taps:
    """The two neighbors of the positions `step * i + start`."""
    where = positions(input_size, output_size, step, start)
    return Taps(axis, input_size, where, range(2), reach=where.unit)


def wide_taps(axis: int, input_size: int, output_size: int, step: Fraction, start: Fraction) -> Taps:
    """The neighbors less than `step` away from the positions `step * i + start`."""
    margin = math.ceil(step)
    largest_unit = max(2**29 // (margin + 2) ** 2, 1)  # so that an int32 holds the sum of the weights
    where = positions(input_size + 2 * margin, output_size, step, start + margin, largest_unit)
    return Taps(axis, input_size, where, range(1 - margin, 1 + margin), margin, where.step)


_MOST_UNROLLED = 16  # taps; more of them become one operation, which compiles faster


def _places(taps: Taps) -> tuple[Array, Array]:
    """The place in the input and the weight of each neighbor, a row, for each element of the result."""
    index, rest = locate(taps.where)
    offsets = lax.iota(np.int32, len(taps.offsets))[:, None] + (taps.offsets.start - taps.margin)
    places = jnp.clip(index[None] + offsets, 0, number(taps.input_size - 1, np.int32))
    return places, taps.weights(rest) if taps.reach else jnp.ones_like(places)


def _take(x: Array, axis: int, places: Array) -> Array:
    return x.at[(*(slice(None) for _ in range(axis)), places)].get(mode="promise_in_bounds")


def _broadcast_along(x: Array, axis: int, values: Array) -> Array:
    """One value per index of a dimension of `x`, in a shape that broadcasts."""
    return values.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _weighted_sum(x: Array, axis: int, places: Array, weights: Array, fill: float = 0.0) -> Array:
    """Adds up the elements of `x` at each row of `places`, times the weights; without a weight, adds `fill`."""
    # Compute the indices and weights of one dimension once, and not again for each element of the result.
    places, weights = lax.optimization_barrier((places, weights))

    def term(places: Array, weights: Array) -> Array:
        weights = _broadcast_along(x, axis, weights)
        return jnp.where(weights == 0, jnp.asarray(fill, x.dtype), _take(x, axis, places) * weights)

    if len(places) <= _MOST_UNROLLED:
        total = term(places[0], weights[0])
        for row in range(1, len(places)):
            total += term(places[row], weights[row])
        return total
    # JAX 0.8 cannot transpose a scan here. XLA fuses the gather into the sum.
    weights = jnp.expand_dims(weights, [i for i in range(x.ndim + 1) if i not in (axis, axis + 1)])
    several = jnp.where(weights == 0, jnp.zeros((), x.dtype), _take(x, axis, places) * weights)
    return several.sum(axis, dtype=x.dtype)


# Results whose size is a whole multiple of the input's, or has another simple ratio to it


class Phase(NamedTuple):
    """Every n-th element of a result: the input place of its first neighbor, and the weights of the neighbors.

    Places beyond the ends of the input mean its first and last element.
    """

    first: int
    weights: tuple[int, ...]


class Phases(NamedTuple):
    """The elements of a result that lie inside the input, as alternating phases.

    From one element of a phase to the next, the neighbors move by `stride` elements of the input.
    """

    inside: range
    stride: int
    phases: tuple[Phase, ...]

    @property
    def turns(self) -> int:
        """The number of elements in each phase, if the last turn is complete."""
        return -(-len(self.inside) // len(self.phases))


def _phases(taps: Taps) -> Phases | None:
    """The phases of taps that repeat after a few elements, as for a ratio of sizes such as 2, or 3 to 2.

    They turn a gather into a few slices, which XLA vectorizes. Phases of nearest neighbors would take longer than a
    gather.
    """
    where = taps.where
    common = math.gcd(where.step, where.unit)
    count = where.unit // common
    if not taps.reach or where.is_symbolic() or count * len(taps.offsets) > _MOST_UNROLLED:
        return None
    inside = where.inside()
    if not inside:
        return None

    def phase(i: int) -> Phase:
        index, rest = divmod(where.step * i + where.start, where.unit)
        weights = (max(taps.reach - abs(offset * where.unit - rest), 0) for offset in taps.offsets)
        return Phase(index + taps.offsets.start - taps.margin, tuple(weights))

    return Phases(inside, where.step // common, tuple(phase(inside.start + i) for i in range(count)))


def _average_by_phases(taps: Taps, phases: Phases, x: Array) -> Array:
    axis, part = taps.axis, partial(lax.slice_in_dim, axis=taps.axis)
    span = phases.stride * (phases.turns - 1)
    places = [phase.first for phase in phases.phases]
    before, after = max(0, -min(places)), max(0, max(places) + span + len(taps.offsets) - taps.input_size)
    wide = _replicate_ends(x, x, axis, before, after)

    def neighbor(first: int) -> Any:
        return part(wide, first + before, first + before + span + 1, phases.stride)

    def average(phase: Phase) -> Any:
        terms = [
            neighbor(phase.first + i) * (np.asarray(weight, x.dtype) / np.asarray(sum(phase.weights), x.dtype))
            for i, weight in enumerate(phase.weights)
            if weight  # an element without a weight may be infinite
        ]
        return functools.reduce(jnp.add, terms)

    several = jnp.stack([average(phase) for phase in phases.phases], axis + 1)
    inside = part(several.reshape(replace_at(x.shape, axis, -1)), 0, len(phases.inside))
    return _replicate_ends(inside, x, axis, phases.inside.start, taps.where.output_size - phases.inside.stop)


def _replicate_ends(middle: Array, x: Array, axis: int, before: int, after: int) -> Array:
    """`middle` between copies of the first and the last element of `x` along a dimension."""
    part, size = partial(lax.slice_in_dim, x, axis=axis), x.shape[axis]
    first = jnp.broadcast_to(part(0, 1), replace_at(x.shape, axis, before))
    last = jnp.broadcast_to(part(size - 1, size), replace_at(x.shape, axis, after))
    return jnp.concatenate([first, middle, last], axis) if before or after else middle


class Repeats(NamedTuple):
    """Nearest neighbors that repeat each element of the input `times` times, starting with repeat `first`."""

    times: int
    first: int


def _repeats(taps: Taps) -> Repeats | None:
    """How elements repeat, if the result has a whole number of them for each element of the input."""
    where = taps.where
    if taps.reach or where.step <= 0 or where.unit % where.step:
        return None
    repeats = Repeats(where.unit // where.step, where.start // where.step)
    if where.is_symbolic():
        is_whole = repeats.first == 0 and where.output_size == repeats.times * where.input_size
        return repeats if is_whole else None
    return repeats if where.inside() else None


def _repeat(taps: Taps, repeats: Repeats, x: Array) -> Array:
    axis, (times, first) = taps.axis, repeats
    several = jnp.broadcast_to(jnp.expand_dims(x, axis + 1), (*x.shape[: axis + 1], times, *x.shape[axis + 1 :]))
    last, size = first + taps.where.output_size, taps.input_size * times
    whole = several.reshape(replace_at(x.shape, axis, size))
    inside = lax.slice_in_dim(whole, max(first, 0), min(last, size), axis=axis)
    return _replicate_ends(inside, x, axis, max(-first, 0), max(last - size, 0))


def _average(taps: Taps, x: Array) -> Array:
    """`x` resampled along one dimension, in its own type."""
    phases, repeats = _phases(taps), _repeats(taps)
    if phases is not None:
        return _average_by_phases(taps, phases, x)
    if repeats is not None:
        return _repeat(taps, repeats, x)
    places, weights = _places(taps)
    if not taps.reach:
        return _take(x, taps.axis, lax.optimization_barrier(places[0]))
    shares = _normalize_weights(weights, weights.sum(0, dtype=np.int32), x.dtype)
    return _weighted_sum(x, taps.axis, places, shares, -0.0)  # changes no sum, not even a sum of -0


def _normalize_weights(weights: Array, totals: Array, dtype: Any) -> Array:
    """The weights of averages: quotients rounded once, the same on every platform."""
    return rounded_quotient(weights.astype(dtype), jnp.broadcast_to(totals, weights.shape).astype(dtype))


def _adjoint(taps: Taps, x: Array) -> Array:
    """The transpose of `_average`: adds up, at each element of the input, those that have it as a neighbor."""
    average, shape = partial(_average_of_tangent, taps), replace_at(x.shape, taps.axis, taps.input_size)
    result: Array = jax.linear_transpose(average, jnp.zeros_like(x, shape=shape))(x)[0]
    return result


def _average_of_tangent(taps: Taps, tangent: Array) -> Array:
    """Computes `_average`, written so that its transpose is fast: that of a gather is a scatter."""
    is_gather = taps.reach and not taps.where.is_symbolic() and _phases(taps) is None
    if is_gather and 0 < taps.where.step < 2**31:
        return _apply_with_transpose(taps, partial(_average, taps), partial(_average_transpose, taps), tangent)
    average = _average(taps, tangent)
    # The transpose keeps the barrier, so that devices exchange a gradient once, and not each of its slices.
    return lax.optimization_barrier(average) if may_be_sharded(tangent) else average


def _apply_with_transpose(
    taps: Taps, function: Callable[[Array], Array], transpose: Callable[[Array], Array], x: Array
) -> Array:
    """Applies a linear function whose transpose is given.

    `custom_linear_solve` takes one under all transformations, for arrays of equal shape. XLA removes the padding.
    """
    sizes = taps.input_size, taps.where.output_size

    def square(function: Callable[[Array], Array], size: int) -> Callable[[Any, Array], Array]:
        return lambda _, x: _pad_to(function(_pad_to(x, taps.axis, size)), taps.axis, max(sizes))

    wide = _pad_to(x, taps.axis, max(sizes))
    result = lax.custom_linear_solve(lambda x: x, wide, square(function, sizes[0]), square(transpose, sizes[1]))
    return _pad_to(result, taps.axis, sizes[1])


def _pad_to(x: Array, axis: int, size: int, before: int = 0) -> Array:
    """Pads a dimension to a size with zeros, `before` of them before `x`; drops its last elements if it is larger."""
    config = replace_at([(0, 0, 0)] * x.ndim, axis, (before, size - x.shape[axis] - before, 0))
    return lax.pad(x, np.zeros((), x.dtype), config)


_MOST_GATHERED = 5  # elements, which a CPU gathers as fast as it multiplies matrices


def _average_transpose(taps: Taps, x: Array) -> Array:
    """The transpose of `_average`: each element of the input gathers the elements of `x` that it is a neighbor of."""
    is_small = taps.input_size * taps.where.output_size <= _LARGEST_MATRIX
    products = partial(_multiply, [taps], is_transposed=True) if is_small else None
    is_short = not taps.margin and _count_neighbors(taps) <= _MOST_GATHERED
    return choose(
        x, cpu=None if is_short else products, tpu=products, default=partial(_average_transpose_by_gathers, taps)
    )


def _count_neighbors(taps: Taps) -> int:
    """The most elements of the result between the ends of the input that have one neighbor in common, and one more."""
    return min(-(-2 * taps.reach // taps.where.step) + 1, len(taps.where.inside()))


def _average_transpose_by_gathers(taps: Taps, x: Array) -> Array:
    where, axis, size = taps.where, taps.axis, taps.input_size
    inside, beyond = where.inside(), 2 * taps.margin  # positions reach so many elements beyond the input
    count = _count_neighbors(taps)
    # The last position too low to have the element as a neighbor, and those after it.
    start = -(where.start + taps.reach + taps.margin * where.unit)
    low, _ = locate(Positions(where.output_size, size + 2 * beyond, where.unit, start, where.step))
    places = jnp.clip(low, inside.start, inside.stop - count)[None] + lax.iota(np.int32, count)[:, None]
    index, rest = locate(where)
    weights = _weights_at(taps, _columns(taps)[None], index[places], rest[places])
    totals = taps.weights(rest).sum(0, dtype=np.int32)[places]
    shares = _normalize_weights(weights, totals, x.dtype)
    shape = replace_at(x.shape, axis, size + 2 * beyond)
    sums = _weighted_sum(x, axis, places, shares) if count else jnp.zeros_like(x, shape=shape)
    part = partial(lax.slice_in_dim, axis=axis)
    result = part(sums, beyond, beyond + size)
    # The first and the last element also stand for what is before and after them.
    before = part(sums, 0, beyond), part(x, 0, inside.start)
    after = part(sums, beyond + size, size + 2 * beyond), part(x, inside.stop, where.output_size)
    for place, several in ((0, before), (size - 1, after)):
        for elements in several:
            if elements.shape[axis]:
                result += _pad_to(elements.sum(axis, keepdims=True, dtype=x.dtype), axis, size, place)
    return result


# Products with matrices of weights, which are fastest on a TPU, and for some gradients on a CPU

_LARGEST_MATRIX = 2**24  # elements
_SMALL_MATRIX = 2**19  # elements; with fewer, products are fast with any number of rows
_MOST_PER_ROW = 64  # elements of a dimension of an image, for each row along it


def _matrix(taps: Taps, dtype: Any) -> Array:
    """The weights of averages as a matrix: a row per element of the result, a column per element of the input."""
    index, rest = locate(taps.where)
    weights = _weights_at(taps, _columns(taps)[None], index[:, None], rest[:, None])
    if not taps.margin:
        return weights.astype(dtype) / np.asarray(taps.reach, dtype)
    shares = weights.astype(dtype) / weights.sum(1, keepdims=True, dtype=np.int32).astype(dtype)
    # The first and the last element have the weights of all columns that repeat them.
    first, last = 2 * taps.margin + 1, 2 * taps.margin + taps.input_size - 1
    ends = [part.sum(1, keepdims=True) for part in (shares[:, :first], shares[:, last:])]
    if taps.input_size == 1:
        return jnp.ones_like(ends[0])
    return jnp.concatenate([ends[0], shares[:, first:last], ends[1]], 1)


def _columns(taps: Taps) -> Array:
    """The places of the input's elements, as `taps.where` counts them.

    `margin` more come before those of `where` and after them, because a position may be at their end.
    """
    return lax.iota(np.int32, taps.where.input_size + 2 * taps.margin) - taps.margin


def _weights_at(taps: Taps, columns: Array, index: Array, rest: Array) -> Array:
    """The weights of the elements at `columns` for positions `rest` units after `index`."""
    farthest = len(taps.offsets)  # a distance too large for a weight would overflow
    distances = jnp.clip(columns - index, -farthest, farthest) * taps.where.unit - rest
    return jnp.maximum(taps.reach - jnp.abs(distances), 0)


def _multiply(axis_taps: Sequence[Taps], x: Array, *, is_transposed: bool = False) -> Array:
    """Averages `x` along several dimensions by products with matrices, or computes the transpose."""
    for taps in axis_taps:
        matrix, axes = _matrix(taps, x.dtype), list(range(x.ndim))
        columns = [x.ndim, taps.axis] if not is_transposed else [taps.axis, x.ndim]
        result = [x.ndim if axis == taps.axis else axis for axis in axes]
        x = jnp.einsum(x, axes, matrix, columns, result, precision=lax.Precision.HIGHEST)
    return x


def _are_worth_products(axis_taps: Sequence[Taps], shape: Sequence[Any]) -> bool:
    """Whether products are faster on a TPU for averaging an array of this shape, or for the transpose.

    The work of a product grows with the square of a size, and most of its weights are 0. Estimates for doubling the
    size on a v5e: 64 channels of 64 x 64 take 19 us by products and 94 by slices, 3 of 16 x 1024 take 19 and 48; 512
    rows of 2048 elements take 272 and 85, a single row of 1024 takes 17 and 4.
    """

    def is_worth_it(taps: Taps) -> bool:
        rows = math.prod(size for axis, size in enumerate(shape) if axis != taps.axis and not is_symbolic(size))
        is_small = taps.input_size * taps.where.output_size <= _SMALL_MATRIX
        return is_small or (len(axis_taps) > 1 and taps.input_size <= _MOST_PER_ROW * rows)

    have_matrices = all(taps.reach and not taps.where.is_symbolic() for taps in axis_taps)
    return have_matrices and all(is_worth_it(taps) for taps in axis_taps)


# Several dimensions, one after another


def nearest(x: Array, axis_taps: Sequence[Taps]) -> Array:
    """The elements of `x` nearest to the positions, bit for bit."""

    def move(floats: tuple[Array, ...], _: Any) -> Array:
        return _apply_in_turn(_average, axis_taps, floats[0])

    def derivative(floats: tuple[Array, ...], _: Any) -> Array:
        return _apply_in_turn(_average_of_tangent, axis_taps, floats[0])

    return copy_exactly(move, (x,), derivative=derivative, sums_are_wide=True)


def _apply_in_turn(function: Callable[[Taps, Array], Array], axis_taps: Sequence[Taps], x: Array) -> Array:
    for taps in axis_taps:
        x = function(taps, x)
    return x


def average(x: Array, axis_taps: Sequence[Taps]) -> Array:
    """The weighted averages of the neighbors of the positions, rounded once to the type of `x`."""
    if x.dtype not in FLOATS:
        return _average_integers(x, axis_taps)
    wide = x.astype(widened(x.dtype))
    one_by_one = partial(_apply_in_turn, _average_with_jvp, axis_taps)
    return _multiply_on_tpu(partial(_multiply, axis_taps), one_by_one, axis_taps, wide).astype(x.dtype)


def adjoint(x: Array, axis_taps: Sequence[Taps]) -> Array:
    """The transpose of `nearest` or `average`, rounded once to the type of `x`."""
    wide, axis_taps = x.astype(widened(x.dtype)), axis_taps[::-1]
    one_by_one = partial(_apply_in_turn, _adjoint, axis_taps)
    return _multiply_on_tpu(partial(_multiply, axis_taps, is_transposed=True), one_by_one, axis_taps, wide).astype(
        x.dtype
    )


def _average_with_jvp(taps: Taps, x: Array) -> Array:
    jvp = lambda tangent, x: _average_of_tangent(taps, tangent)  # noqa: E731
    return custom_jvps(jvp)(partial(_average, taps))(x)


def _multiply_on_tpu(
    products: Callable[[Array], Array], one_by_one: Callable[[Array], Array], axis_taps: Sequence[Taps], x: Array
) -> Array:
    if not _are_worth_products(axis_taps, x.shape):
        return one_by_one(x)
    return choose(x, tpu=products, default=one_by_one)


def _average_integers(x: Array, axis_taps: Sequence[Taps]) -> Array:
    """Averages of 8-bit integers, rounded to nearest, ties to even."""
    if 255 * math.prod(taps.most for taps in axis_taps) >= 2**31:
        floats = _apply_in_turn(_average, axis_taps, x.astype(np.float32))
        return lax.round(floats, lax.RoundingMethod.TO_NEAREST_EVEN).astype(x.dtype)
    sums, totals = x.astype(np.int32), jnp.ones((1,) * x.ndim, np.int32)
    for taps in axis_taps:
        places, weights = _places(taps)
        sums = _weighted_sum(sums, taps.axis, places, weights)
        totals = totals * _broadcast_along(x, taps.axis, weights.sum(0, dtype=np.int32))
    below = jnp.floor_divide(sums, totals)
    rest = sums - below * totals
    is_above = (2 * rest > totals) | ((2 * rest == totals) & (below & 1 == 1))
    return (below + is_above.astype(np.int32)).astype(x.dtype)
