"""Arithmetic sequences of floats, on a CPU with each element rounded once.

A GPU and a TPU compute the formula as it stands, in one kernel.

On a CPU, `start + i * delta` is too long for its type: `i` by itself has up to 32 bits. But the elements are the sums
of a few rows and columns, `start + first * delta` and `i * delta` for a small `i`. Each of these is written as a sum of
parts that are multiples of one unit, the unit of each part being the one before it divided by a power of two. The parts
of a row and of a column add up without rounding, so that only the sum of the parts rounds.
"""

import math
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.arithmetic.floats import power_of_two, sum_error, times_power_of_two
from dmljax.lowerings.conversion import converted
from dmljax.lowerings.platform import choose
from dmljax.lowerings.sizes import is_symbolic, number
from dmljax.types import widened

MOST = 2**32  # elements of a sequence


def arithmetic_sequence(start: Array, delta: Array, count: int) -> Array:
    """`start + i * delta` for each `i` below `count`, in the type of `start` and `delta`, on a CPU rounded once.

    The first element is `start` itself, also where `delta` is infinite.
    """
    return _sequence(count, start, delta)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _sequence(count: Any, start: Array, delta: Array) -> Array:
    whole, plain = partial(_elements, count, is_branching=False), partial(_by_formula, count)

    @jax.custom_batching.custom_vmap
    def elements(start: Array, delta: Array) -> Array:
        by_need = partial(_elements, count, is_branching=True)
        return choose(start, delta, cpu=by_need, default=plain)

    @elements.def_vmap
    def _(size: int, are_batched: Any, start: Array, delta: Array) -> tuple[Array, bool]:
        # A branch for each element of a batch would be computed in all cases.
        axes = [0 if is_batched else None for is_batched in are_batched]
        return choose(start, delta, cpu=jax.vmap(whole, axes), default=jax.vmap(plain, axes)), True

    return cast(Array, elements(start, delta))


def _by_formula(count: Any, start: Array, delta: Array) -> Array:
    wide, i = widened(start.dtype), lax.iota(np.uint32, count)
    elements = start.astype(wide) + i.astype(wide) * delta.astype(wide)
    return jnp.where(i == 0, start, elements.astype(start.dtype))


def _elements(count: Any, start: Array, delta: Array, *, is_branching: bool) -> Array:
    wide = widened(start.dtype)
    parts = _Parts(converted(start, wide), converted(delta, wide), count, start.dtype)
    elements = parts.elements_by_need() if is_branching else parts.any_elements()
    return elements.reshape(-1)[:count]


@_sequence.defjvp
def _sequence_jvp(count: Any, primals: Any, tangents: Any) -> tuple[Array, Array]:
    dtype = primals[0].dtype
    start, delta = (tangent.astype(widened(dtype)) for tangent in tangents)
    tangent = start + lax.iota(np.uint32, count).astype(start.dtype) * delta
    return _sequence(count, *primals), tangent.astype(dtype)


class _Parts:
    """The rows and columns of a sequence, in parts, as multiples of `2**exponent`.

    Part `k` is a multiple of `2**(exponent - k * step)`, and the last one is what is left. An element of 16
    bits is first rounded to the odd one of its two neighbors, so that it can be rounded again to fewer digits.
    """

    def __init__(self, start: Array, delta: Array, count: Any, dtype: Any) -> None:
        self.start, self.delta, self.dtype, self.is_short = start, delta, dtype, dtype != start.dtype
        wide, self.digits = start.dtype, int(jnp.finfo(start.dtype).nmant) + 1
        index_bits = 32 if is_symbolic(count) else max(int(count) - 1, 0).bit_length()
        # An index is cut into pieces, and delta into factors, with so few digits that their products are exact.
        self.index_width = 12 if self.digits == 24 else 16
        self.factor_width = self.digits - self.index_width
        pieces = -(-max(index_bits, 1) // self.index_width)
        factors = -(-self.digits // self.factor_width)
        terms = 1 + (pieces + 1) * factors  # of a row and a column, which add up to an integer below 2**digits
        self.step = self.digits - (2 if terms <= 8 else 3)

        start_number, start_exponent = _integer_and_exponent(start)
        delta_number, delta_exponent = _integer_and_exponent(delta)
        highest = jnp.maximum(start_exponent, delta_exponent + index_bits) + 2
        # What is less than this cannot change the rounding of what sets the exponent.
        least = -4 * self.digits
        start_unit, delta_unit = (
            power_of_two(jnp.maximum(exponent - highest, least), wide) for exponent in (start_exponent, delta_exponent)
        )
        self.scaled_start = start_number.astype(wide) * start_unit
        self.scaled_delta = delta_number.astype(wide) * delta_unit
        # As large as it can be while the largest element, in multiples of it, has all digits of the type.
        largest = (jnp.abs(self.scaled_start) + 2.0**index_bits * jnp.abs(self.scaled_delta)) * 1.0009765625
        _, used = _integer_and_exponent(largest)
        spare = jnp.clip(-used, 0, self.digits)
        self.exponent = highest - spare
        grown = power_of_two(spare, wide)
        self.scaled_start, self.scaled_delta = self.scaled_start * grown, self.scaled_delta * grown
        sign, magnitude = jnp.sign(delta_number), jnp.abs(delta_number)
        self.factors = [
            (sign * (magnitude & (2 ** min(place + self.factor_width, self.digits) - 2**place))).astype(wide)
            * (delta_unit * grown)
            for place in range(0, self.digits, self.factor_width)
        ]

        columns = _columns(count)
        rows = -(-count // columns)
        self.first_of_row = lax.iota(np.uint32, rows) * number(columns, np.uint32)
        self.column = lax.iota(np.uint32, columns)
        cuts = range(0, pieces * self.index_width, self.index_width)
        masks = [np.uint32(((1 << self.index_width) - 1) << place & 0xFFFFFFFF) for place in cuts]
        multiples = [one for mask in masks for one in self._multiples(self.first_of_row & mask)]
        self.rows = self._in_parts([*multiples, jnp.zeros_like(multiples[0]) + self.scaled_start])
        self.columns = self._in_parts(self._multiples(self.column))

    def _multiples(self, index: Array) -> list[Array]:
        return [index.astype(self.start.dtype) * factor for factor in self.factors]

    def _in_parts(self, terms: list[Array]) -> list[Array]:
        parts = []
        for place in range(3):
            whole = [lax.round(term, lax.RoundingMethod.TO_NEAREST_EVEN) for term in terms]
            parts.append(sum(whole[1:], start=whole[0]) * 2.0 ** (-place * self.step))
            terms = [(term - one) * 2.0**self.step for term, one in zip(terms, whole, strict=True)]
        parts.append(sum(terms[1:], start=terms[0]) * 2.0 ** (-3 * self.step))
        return list(lax.optimization_barrier(tuple(parts)))

    def elements_by_need(self) -> Array:
        """The elements from two parts if they suffice, and none is subnormal, infinite or a zero to look after."""
        ends = [x * 2.0**self.step for x in (self.scaled_start, self.scaled_delta)]
        limits = jnp.finfo(self.start.dtype)
        is_simple = (self.exponent >= int(limits.minexp) + self.step) & (
            self.exponent < int(limits.maxexp) - self.digits
        )
        for end in ends:
            is_simple &= lax.round(end, lax.RoundingMethod.TO_NEAREST_EVEN) == end
        is_simple &= (self.start != 0) | ~jnp.signbit(self.start)
        return cast(Array, lax.cond(is_simple, self._few_elements, self.any_elements))

    def _few_elements(self) -> Array:
        unit = power_of_two(self.exponent, self.start.dtype)
        first, second = self._sums(
            [row * unit for row in self.rows[:2]], [column * unit for column in self.columns[:2]]
        )
        return converted(_sum_to_odd(first, second) if self.is_short else first + second, self.dtype)

    def any_elements(self) -> Array:
        """The elements, whatever `start` and `delta` are."""
        first, second, third, rest = self._sums(self.rows, self.columns)
        total, error = _two_sum(first, second)
        low, lower = _two_sum(error, third)
        low = _sum_to_odd(low, lower + rest)
        scaled = _sum_to_odd(total, low) if self.is_short else total + low
        value = self._unscaled(scaled)
        # Of zeros and of what is not finite, no multiple of delta is another summand than delta itself.
        is_special = ~(jnp.isfinite(self.start) & jnp.isfinite(self.delta)) | (
            (self.scaled_start == 0) & (self.scaled_delta == 0)
        )
        value = jnp.where(is_special, self.start + self.delta, value)
        is_first = (self.first_of_row == 0)[:, None] & (self.column == 0)[None]
        return converted(jnp.where(is_first, self.start, value), self.dtype)

    def _sums(self, rows: list[Array], columns: list[Array]) -> list[Array]:
        return [row[:, None] + column[None] for row, column in zip(rows, columns, strict=True)]

    def _unscaled(self, scaled: Array) -> Array:
        """`scaled * 2**exponent`, also where that is subnormal, and then exact."""
        dtype = self.start.dtype
        bits = np.dtype(f"int{dtype.itemsize * 8}")
        places = 1 - int(jnp.finfo(dtype).minexp) + self.digits - 2  # of the smallest number, 2**-places
        counted = times_power_of_two(scaled, self.exponent + places)
        small = lax.bitcast_convert_type(jnp.abs(counted).astype(bits), dtype)
        sign = lax.bitcast_convert_type(scaled, bits) & np.iinfo(bits).min
        small = lax.bitcast_convert_type(lax.bitcast_convert_type(small, bits) | sign, dtype)
        is_small = jnp.abs(counted) < 2.0 ** (self.digits - 1)
        return jnp.where(is_small, small, times_power_of_two(scaled, self.exponent))


def _columns(count: Any) -> int:
    """How many columns the table of a sequence has: all of a short one, or as many as rows, if that is a divisor."""
    if is_symbolic(count):
        return 2048
    if count <= 512:
        return max(int(count), 1)
    square = min(max(math.isqrt(int(count)), 256), 2048)
    near = sorted(range(square // 2, 2 * square + 1), key=lambda columns: abs(columns - square))
    return next((columns for columns in near if count % columns == 0), square)


def _integer_and_exponent(x: Array) -> tuple[Array, Array]:
    """`x` as `integer * 2**exponent`, also where it is subnormal; of what is not finite, anything."""
    limits = jnp.finfo(x.dtype)
    signed, digits = np.dtype(f"int{limits.bits}"), int(limits.nmant)
    bits = lax.bitcast_convert_type(x, signed)
    field = (bits >> digits) & signed.type(2 * int(limits.maxexp) - 1)
    fraction = bits & signed.type((1 << digits) - 1)
    magnitude = jnp.where(field == 0, fraction, fraction | signed.type(1 << digits))
    exponent = jnp.maximum(field, signed.type(1)) + signed.type(int(limits.minexp) - 1 - digits)
    return jnp.where(bits < 0, -magnitude, magnitude), exponent.astype(np.int32)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`a + b` rounded, and its rounding error."""
    total = a + b
    return total, sum_error(total, a, b)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """`a + b`, or the one of its two neighbors whose last bit is 1."""
    total, error = _two_sum(a, b)
    signed = np.dtype(f"int{a.dtype.itemsize * 8}")
    bits = lax.bitcast_convert_type(total, signed)
    away = jnp.where((error < 0) == (total < 0), signed.type(1), signed.type(-1))
    is_even = (error != 0) & ((bits & signed.type(1)) == 0)
    return lax.bitcast_convert_type(bits + jnp.where(is_even, away, jnp.zeros_like(bits)), a.dtype)
