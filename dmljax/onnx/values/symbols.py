"""Known numbers that depend on open sizes, which are symbols while `jax.export` traces a model, or on counts.

NumPy applies Python's operators to the elements of object arrays. `Symbols` are such arrays, so that the `fold` of an
operator works for numbers and symbols alike.
"""

import math
import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import combinations
from typing import Any, TypeGuard

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from dmljax.errors import Problem
from dmljax.foundation.dimensions import is_symbolic
from dmljax.foundation.open_sizes import Undecided, spell_constraints
from dmljax.onnx.values.counts import Count, Subtractable, is_open, is_zero, larger, smaller, value_of
from dmljax.onnx.values.types import Array, DType, Elements
from dmljax.text import join_words

MAX_FACTOR = 64  # by which a network may divide sizes before it multiplies them
MAX_DENOMINATOR = 1000  # limit for a float that multiplies a symbol, so that 0.1 means exactly a tenth


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compare_numbers(self: Any, other: Any) -> bool:
        a, b, _ = _to_common_divisor(self, other)
        return compare(a, b)

    return compare_numbers


class SizeExpression(Subtractable):
    """A symbol, or a number computed from symbols: a size of `jax.export`, or a count, divided by an integer.

    A result without such a form raises TypeError; a comparison that symbols do not decide raises `Undecided`.
    """

    __slots__ = ("dividend", "divisor")

    def __init__(self, dividend: Any, divisor: int = 1) -> None:
        self.dividend, self.divisor = dividend, divisor

    def __repr__(self) -> str:
        return str(self.dividend) if self.divisor == 1 else f"({self.dividend})/{self.divisor}"

    def __add__(self, other: Any) -> Any:
        a, b, divisor = _to_common_divisor(self, other)
        return _fraction(a + b, divisor)

    def __mul__(self, other: Any) -> Any:
        (a, c), (b, d) = _split_divisor(self), _split_divisor(other)
        return _fraction(a * b, c * d)

    def __neg__(self) -> Any:
        return SizeExpression(-self.dividend, self.divisor)

    def __truediv__(self, other: Any) -> Any:
        (a, c), (b, d) = _split_divisor(self), _split_divisor(other)
        return _fraction(a * d, c * b)

    def __rtruediv__(self, other: Any) -> Any:
        (a, c), (b, d) = _split_divisor(other), _split_divisor(self)
        return _fraction(a * d, c * b)

    def __floordiv__(self, other: Any) -> Any:
        a, b, _ = _to_common_divisor(self, other)
        return _fraction(a // b)

    def __rfloordiv__(self, other: Any) -> Any:
        a, b, _ = _to_common_divisor(other, self)
        return _fraction(a // b)

    def __mod__(self, other: Any) -> Any:
        a, b, divisor = _to_common_divisor(self, other)
        return _fraction(a % b, divisor)

    def __rmod__(self, other: Any) -> Any:
        a, b, divisor = _to_common_divisor(other, self)
        return _fraction(a % b, divisor)

    def __pow__(self, other: Any) -> Any:
        return _fraction(self.dividend ** operator.index(other), self.divisor ** operator.index(other))

    def __abs__(self) -> Any:
        return _larger(self, -self)

    def __floor__(self) -> Any:
        return self // 1

    def __ceil__(self) -> Any:
        return -(-self // 1)

    def __trunc__(self) -> Any:
        return self if self.divisor == 1 else _truncate_quotient(self, 1)

    def __int__(self) -> int:
        return int(self.dividend)  # raises Undecided

    def __eq__(self, other: object) -> bool:
        a, b, _ = _to_common_divisor(self, other)
        if not is_symbolic(a - b):
            return bool(a == b)  # of counts may raise Undecided
        for is_apart in (operator.lt, operator.gt):
            with suppress(Undecided):
                if is_apart(a, b):
                    return False
        raise Undecided(f"Symbolic dimension comparison '{a}' == '{b}' is inconclusive.")

    __lt__, __le__, __gt__, __ge__ = map(_comparison, (operator.lt, operator.le, operator.gt, operator.ge))
    __radd__, __rmul__, __index__ = __add__, __mul__, __int__
    __hash__ = None  # type: ignore[assignment]  # numbers that are equal only for some symbols cannot share a hash


def _split_divisor(number: Any) -> tuple[Any, int]:
    """Splits a number into a size and its integer divisor."""
    if isinstance(number, SizeExpression):
        return number.dividend, number.divisor
    if isinstance(number, float | np.floating) and math.isfinite(number):
        nearest = Fraction(float(number)).limit_denominator(MAX_DENOMINATOR)
        if any(float(dtype(float(nearest))) == number for dtype in (np.float16, np.float32, np.float64)):
            return nearest.numerator, nearest.denominator
        raise TypeError(f"no size times {number}")
    return operator.index(number), 1


def _to_common_divisor(first: Any, second: Any) -> tuple[Any, Any, int]:
    """The dividends of two numbers over a common divisor."""
    (a, c), (b, d) = _split_divisor(first), _split_divisor(second)
    divisor = math.lcm(c, d)
    return a * (divisor // c), b * (divisor // d), divisor


def _fraction(dividend: Any, divisor: Any = 1) -> Any:
    whole, rest = divmod(dividend, divisor)
    if is_zero(rest):
        return SizeExpression(whole) if is_open(whole) else whole
    if is_open(divisor):
        raise TypeError(f"no size divided by {divisor}")
    if not is_open(dividend):
        return dividend / divisor
    return SizeExpression(dividend, divisor) if divisor > 0 else SizeExpression(-dividend, -divisor)


def _larger(first: Any, second: Any) -> Any:
    a, b, divisor = _to_common_divisor(first, second)
    return _fraction(larger(a, b), divisor)


def _smaller(first: Any, second: Any) -> Any:
    a, b, divisor = _to_common_divisor(first, second)
    return _fraction(smaller(a, b), divisor)


def _truncate_quotient(first: Any, second: Any) -> Any:
    """The quotient truncated toward zero, as in ONNX's integer division."""
    a, b, _ = _to_common_divisor(first, second)
    if b < 0:
        a, b = -a, -b
    return _fraction(larger(a, 0) // b - larger(-a, 0) // b)


# Choices that JAX leaves open

_FUNCTIONS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": jax.core.max_dim, "min": jax.core.min_dim}
_NAME = re.compile(rf"\b(?!(?:{'|'.join(_FUNCTIONS)})\b)[A-Za-z_]\w*")  # of a symbol
_CHOICE = re.compile(r"\b(min|max)\(([^(),]+), ([^(),]+)\)")


def choice_of_sizes(inputs: Sequence[Any]) -> Problem | None:
    """The remedy for open sizes in a node's inputs that do not fit together."""
    shapes = [_sizes_in(value) for value in inputs if isinstance(value, jax.Array | Symbols)]
    return _simplifying_constraints(shapes) or _find_multiples(shapes)


def _simplifying_constraints(shapes: Sequence[Sequence[Any]]) -> Problem | None:
    """The constraints that would resolve each min or max in these shapes, which JAX cannot compare with other sizes."""
    constraints: dict[str, None] = {}
    for choice, first, second in _CHOICE.findall(", ".join(str(size) for shape in shapes for size in shape)):
        left, right = (second, first) if first.lstrip("-").isdigit() else (first, second)
        constraints[f"{left} {'<=' if choice == 'min' else '>='} {right}"] = None
    return (
        Problem((), "sizes depend on an undecided min or max", remedy=spell_constraints(*constraints))
        if constraints
        else None
    )


def _find_multiples(shapes: Sequence[Sequence[Any]]) -> Problem | None:
    """The multiples of symbols that a network can halve and double without changing sizes."""
    factors: dict[str, int] = {}
    for some, others in combinations(shapes, 2):
        for first, second in [*zip(reversed(some), reversed(others), strict=False)][::-1]:
            for name, factor in _equalizing_factor(first, second).items():
                factors[name] = math.lcm(factor, factors.get(name, 1))
    if not factors:
        return None
    rule = f"sizes are equal only if {join_words(f'{symbol} is a multiple of {k}' for symbol, k in factors.items())}"
    written = join_words(f"{k}*{symbol} for {symbol}" for symbol, k in factors.items())
    options = " ".join(f"-f {symbol}:{k}*{symbol}" for symbol, k in factors.items())
    return Problem((), rule, remedy=f"write {written} in jax.export.symbolic_shape; dmljax compile takes {options}")


def _sizes_in(value: Any) -> Sequence[Any]:
    """The sizes of an array, or the sizes among known numbers."""
    return (
        [element.dividend if isinstance(element, SizeExpression) else element for element in value.flat]
        if isinstance(value, Symbols)
        else value.shape
    )


def _equalizing_factor(first: Any, second: Any) -> dict[str, int]:
    """The least factor for the symbols of two sizes that makes the sizes equal; empty if they are, or none does."""
    if not (is_symbolic(first) and is_symbolic(second)) or not is_symbolic(first - second):
        return {}
    names = [*dict.fromkeys(_NAME.findall(f"{first} {second}"))]
    symbols = dict(zip(names, jax.export.symbolic_shape(", ".join(names)), strict=True))
    for factor in range(2, MAX_FACTOR + 1):
        multiples = {name: factor * symbol for name, symbol in symbols.items()}
        a, b = (eval(str(size).replace("^", "**"), _FUNCTIONS | multiples) for size in (first, second))  # noqa: S307  # JAX's text
        if not is_symbolic(a - b) and a - b == 0:
            return dict.fromkeys(names, factor)
    return {}


# Arrays


class Symbols(np.ndarray[Any, Any]):
    """An object array, with some expressions among its elements, that represents numbers of type `kind`."""

    kind: DType

    def __array_finalize__(self, other: Any) -> None:
        self.kind = getattr(other, "kind", np.dtype(np.int64))

    def to_kind(self, dtype: DType) -> Elements:
        """Converts the numbers to another type, truncating to integers."""
        elements = self if dtype.kind == "f" else np.array([*map(math.trunc, self.flat)], object).reshape(self.shape)
        return known_numbers(elements, dtype)


def known_numbers(elements: Any, dtype: DType) -> Elements:
    """Builds an array of the numbers, or `Symbols` if any of them is an expression."""
    objects = np.empty(np.shape(elements), object)
    objects[...] = elements
    if not any(isinstance(element, SizeExpression) for element in objects.flat):
        return objects.astype(dtype)
    result = objects.view(Symbols)
    result.kind = dtype
    return result


def sizes_array(sizes: Sequence[int]) -> Elements:
    """Converts sizes to an array of integers, which may include symbols."""
    return known_numbers([SizeExpression(size) if is_open(size) else size for size in sizes], np.dtype(np.int64))


def size_of(number: Any) -> int:
    """Converts a known number to a size: an integer, or a symbol or count, which behaves like an integer."""
    whole = math.trunc(number)
    size: int = whole.dividend if isinstance(whole, SizeExpression) else whole
    return size


def as_sizes(values: Elements) -> tuple[int, ...]:
    """Converts known numbers to sizes."""
    return tuple(map(size_of, np.ravel(values).tolist()))


def kind_of(value: Array | Elements) -> DType:
    """The type of the numbers in an array."""
    return value.kind if isinstance(value, Symbols) else np.dtype(value.dtype)


def trace_symbols(symbols: Symbols) -> Array:
    """Converts symbols to an array whose values are known when the exported program runs."""
    dtype = jax.dtypes.canonicalize_dtype(symbols.kind)

    def number(element: Any) -> Array:
        if not isinstance(element, SizeExpression):
            return jnp.asarray(element, dtype)
        whole = jnp.asarray(value_of(element.dividend)).astype(dtype)
        return whole if element.divisor == 1 else whole / jnp.asarray(element.divisor, dtype)

    return jnp.stack([number(element) for element in symbols.flat]).reshape(symbols.shape)


def has_counts(value: object) -> TypeGuard["Symbols"]:
    """Whether values decide some of these numbers while the program runs."""
    return isinstance(value, Symbols) and any(
        isinstance(element, SizeExpression) and isinstance(element.dividend, Count) for element in value.flat
    )


# NumPy functions that compare elements, which symbols may leave undecided

_LARGER, _SMALLER, truncated_quotients = (
    np.frompyfunc(function, 2, 1) for function in (_larger, _smaller, _truncate_quotient)
)
_SYMBOL_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.maximum: _LARGER,
    np.minimum: _SMALLER,
    np.max: _LARGER.reduce,
    np.min: _SMALLER.reduce,
}


def compute_known(function: Callable[..., Any], *inputs: Elements, **options: Any) -> Any:
    """Calls a NumPy function with known numbers, which may include symbols."""
    has_symbols = any(isinstance(array, Symbols) for array in inputs)
    return (_SYMBOL_FUNCTIONS.get(function, function) if has_symbols else function)(*inputs, **options)
