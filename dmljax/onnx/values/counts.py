"""Sizes that depend on values, such as the number of nonzero elements or of boxes that are kept.

Under `jax.jit`, an array whose size depends on values has a fixed, larger size, and the true size is a number that the
program computes. A `Count` is such a number: it computes like an integer and knows its bounds, and so do sizes that are
computed from it.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dmljax.errors import Problem, Unsupported
from dmljax.foundation.dimensions import is_symbolic
from dmljax.foundation.open_sizes import Undecided


class NotKnown(Unsupported):
    """A value must be known while tracing, but is not."""


OUTSIDE = "call the model outside jit"  # where all sizes are known, and bounds are not needed


class UndecidedCount(NotKnown, Undecided):  # type: ignore[misc, valid-type]  # its module depends on JAX's version
    """A comparison that bounds do not decide, of a size that depends on values."""


@dataclass(frozen=True, eq=False)
class BoundedNumber:
    """A number that the program computes, between two bounds."""

    value: Array
    least: int
    largest: int


class Subtractable:
    """A number that can be added and negated, and so subtracted."""

    __slots__ = ()

    def __sub__(self: Any, other: Any) -> Any:
        return self + -other

    def __rsub__(self: Any, other: Any) -> Any:
        return -self + other


class Count(Subtractable):
    """The number `factor * base + offset`; two counts of the same base are comparable and have exact quotients."""

    __slots__ = ("base", "factor", "offset")

    def __init__(self, base: BoundedNumber, factor: int = 1, offset: int = 0) -> None:
        self.base, self.factor, self.offset = base, factor, offset

    @classmethod
    def of(cls, value: Array, largest: int, least: int = 0) -> "Count":
        """A number that the program computes; only its bounds are known."""
        return cls(BoundedNumber(value.astype(jnp.int32), least, largest))

    def __repr__(self) -> str:
        return f"a size of {self.least} to {self.largest}"

    @property
    def value(self) -> Array:
        """The number as an array."""
        value = self.base.value
        value = value if self.factor == 1 else value * self.factor
        return value if is_zero(self.offset) else value + self.offset

    @property
    def least(self) -> int:
        return self.factor * (self.base.least if self.factor > 0 else self.base.largest) + self.offset

    @property
    def largest(self) -> int:
        return self.factor * (self.base.largest if self.factor > 0 else self.base.least) + self.offset

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Count):
            return Count(self.base, self.factor, self.offset + other)
        if other.base is not self.base:
            return Count.of(self.value + other.value, self.largest + other.largest, self.least + other.least)
        factor, offset = self.factor + other.factor, self.offset + other.offset
        return Count(self.base, factor, offset) if factor else offset

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Count):
            return 0 if is_zero(other) else Count(self.base, self.factor * other, self.offset * other)
        corners = [a * b for a in (self.least, self.largest) for b in (other.least, other.largest)]
        return Count.of(self.value * other.value, max(corners), min(corners))

    def __neg__(self) -> Any:
        return self * -1

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, Count):
            if other.base is self.base and self.factor * other.offset == self.offset * other.factor:
                whole, rest = divmod(self.factor, other.factor)
                if rest == 0:  # also if both are 0, as 0 elements of a size of 4 have 0 rows of 4
                    return whole
            return _quotient(self, other)
        if self.factor % other == 0:
            return Count(self.base, self.factor // other, self.offset // other)
        return _quotient(self, other) if other > 0 else _quotient(-self, -other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(other, self)

    def __mod__(self, other: Any) -> Any:
        if not isinstance(other, Count) and self.factor % other == 0:
            return self.offset % other
        return self - self // other * other

    def __rmod__(self, other: Any) -> Any:
        return -(other // self * self) + other

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: int) -> Any:
        return 1 if other == 0 else self * self ** (other - 1)

    def __int__(self) -> int:
        raise _undecided(self, "this size")

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __ge__(self, other: Any) -> bool:
        return is_at_least(self, other)

    def __le__(self, other: Any) -> bool:
        return is_at_least(other, self)

    def __gt__(self, other: Any) -> bool:
        return not self <= other

    def __eq__(self, other: object) -> bool:
        difference: Any = self - other
        if not isinstance(difference, Count):
            return bool(difference == 0)
        if difference.least > 0 or difference.largest < 0:
            return False
        raise _undecided(self, f"whether it is {other}")

    __radd__, __rmul__, __index__ = __add__, __mul__, __int__
    __hash__ = None  # type: ignore[assignment]  # counts that are equal only for some values cannot share a hash


def _undecided(count: Count, what: str) -> UndecidedCount:
    return UndecidedCount(Problem((), f"values decide {what} while the program runs", count, remedy=OUTSIDE))


def is_zero(number: Any) -> bool:
    """Whether a number is 0 in any case."""
    return isinstance(number, int) and number == 0


def is_open(size: Any) -> bool:
    """Whether a size is a symbol or a count: its value is not known while tracing."""
    return isinstance(size, Count) or is_symbolic(size)


def is_same(first: Any, second: Any) -> bool:
    """Whether two sizes are equal in any case."""
    try:
        return bool(first == second)
    except Undecided:
        return False


def is_at_least(first: Any, second: Any) -> bool:
    """Whether `first >= second`, where at least one is a count."""
    difference = first - second
    if not isinstance(difference, Count):
        return bool(difference >= 0)
    if difference.least >= 0:
        return True
    if difference.largest < 0:
        return False
    raise _undecided(first if isinstance(first, Count) else second, f"which is larger, it or {second}")


def _quotient(dividend: Any, divisor: Any) -> Any:
    """The floor of a quotient, which the program computes; 0 if the divisor is 0."""
    number = value_of(divisor)
    bounds = (divisor.least, divisor.largest) if isinstance(divisor, Count) else (divisor, divisor)
    dividends = (dividend.least, dividend.largest) if isinstance(dividend, Count) else (dividend, dividend)
    if bounds[0] < 0:
        raise _undecided(divisor if isinstance(divisor, Count) else dividend, "the sign of a divisor")
    value = jnp.asarray(value_of(dividend)) // jnp.maximum(number, 1)
    corners = [a // max(b, 1) for a in dividends for b in bounds] + [0] * (bounds[0] == 0)
    return Count.of(jnp.where(number == 0, 0, value), max(corners), min(corners))


def value_of(number: Any) -> Any:
    """A number, as an array if values decide it."""
    return number.value if isinstance(number, Count) else number


def bound_of(size: Any) -> int:
    """The largest value that a size can have, which is the size of its array's dimension."""
    return size.largest if isinstance(size, Count) else size


def larger(first: Any, second: Any) -> Any:
    """The larger of two sizes."""
    if not _has_count(first, second):
        return jax.core.max_dim(first, second)
    return _choose(first, second, operator.ge, jnp.maximum, max)


def smaller(first: Any, second: Any) -> Any:
    """The smaller of two sizes."""
    if not _has_count(first, second):
        return jax.core.min_dim(first, second)
    return _choose(first, second, operator.le, jnp.minimum, min)


def _has_count(*sizes: Any) -> bool:
    return any(isinstance(size, Count) for size in sizes)


def _choose(first: Any, second: Any, is_first: Any, choose_arrays: Callable[..., Array], choose_bounds: Any) -> Any:
    try:
        return first if is_first(first, second) else second
    except UndecidedCount:
        least = choose_bounds(*(size.least if isinstance(size, Count) else size for size in (first, second)))
        largest = choose_bounds(*map(bound_of, (first, second)))
        return Count.of(choose_arrays(value_of(first), value_of(second)), largest, least)
