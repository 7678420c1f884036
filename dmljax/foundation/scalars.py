"""Scalars with a data type: converts numbers, raises if they do not fit, and compares by bits."""

import math
import numbers
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.foundation.checks import integer_in, parse_enum, set_fields
from dmljax.text import show
from dmljax.types import FLOATS, INTEGERS, REALS, DataType


def convert_exactly(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """Converts a number to a scalar of `dtype`, or raises.

    A number is rounded to a floating type as in NumPy, and must be exactly representable in any other type.

    >>> (
    ...     convert_exactly(7.0, np.dtype("uint8")).item(),
    ...     convert_exactly(0.1, np.dtype("float16")).item(),
    ... )
    (7, 0.0999755859375)
    """
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 and value.dtype == dtype:
        return np.asarray(value).reshape(1)[0]  # type: ignore[no-any-return]  # keeps every bit of a NaN
    number = _python_number(value)
    return _round(number, dtype) if dtype in FLOATS else _equal(number, dtype, number)


def truncate(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """Converts a number to a scalar of `dtype`, truncated toward zero if that is an integer type, or raises."""
    number = _python_number(value)
    if dtype in INTEGERS and -(2**64) < number < 2**64:
        return _equal(int(number), dtype, number)
    return convert_exactly(value, dtype)


def convert_step(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """Works like `convert_exactly`, but wraps a negative step of an unsigned type around.

    >>> convert_step(-2, np.dtype("uint8")).item()
    254
    """
    number = _python_number(value)
    if dtype.name.startswith("uint") and number < 0:
        highest = int(jnp.iinfo(dtype).max)
        if number < -highest or number != int(number):
            rule = f"must be a whole number in [-{highest}, {highest}], a step between two numbers of {dtype.name}"
            raise InvalidDesc(Problem((), rule, show(value)))
        value = highest + 1 + int(number)
    return convert_exactly(value, dtype)


def convert_lower_bound(value: Any, dtype: np.dtype[Any]) -> np.generic | None:
    """Casts a lower bound to `dtype`; None if it is below the range of an integer type, where it limits nothing.

    Programs give such bounds, mostly -FLT_MAX or -infinity, to say "no limit". A bound above the range, which would
    leave no integer, is refused.
    """
    return None if dtype in INTEGERS and _python_number(value) < np.iinfo(dtype).min else _cast(value, dtype)


def convert_upper_bound(value: Any, dtype: np.dtype[Any]) -> np.generic | None:
    """Casts an upper bound like `convert_lower_bound`; None if it is above the range of an integer type."""
    return None if dtype in INTEGERS and _python_number(value) > np.iinfo(dtype).max else _cast(value, dtype)


def _cast(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """Truncates `value` to an integer, or rounds it to the nearest float, which may be infinite."""
    if dtype not in FLOATS:
        return truncate(value, dtype)
    return _nearest(_python_number(value), dtype)


def _python_number(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 and value.dtype in REALS:
        return value.item()
    if not isinstance(value, numbers.Real) or isinstance(value, np.generic):
        raise InvalidType(Problem((), "must be a real number", show(value)))
    return value


def _round(number: Any, dtype: np.dtype[Any]) -> np.generic:
    nearest = _nearest(number, dtype)
    if math.isinf(nearest) and not math.isinf(number):
        raise InvalidDesc(Problem((), f"must fit {dtype.name}", show(number)))
    return nearest


def _nearest(number: Any, dtype: np.dtype[Any]) -> np.generic:
    try:
        double = np.float64(number)
    except OverflowError:  # an int beyond 2**1024
        raise InvalidDesc(Problem((), f"must fit {dtype.name}", show(number))) from None
    with np.errstate(over="ignore"):
        nearest: np.generic = double.astype(dtype)
        return nearest


def _equal(number: Any, dtype: np.dtype[Any], value: Any) -> np.generic:
    # np.iinfo does not know the 4-bit types; jnp.iinfo does.
    limits = None if dtype == np.bool_ else jnp.iinfo(dtype)
    lowest, highest = (int(limits.min), int(limits.max)) if limits else (0, 1)
    if not lowest <= number <= highest or number != int(number):
        rule = f"must be a whole number in [{lowest}, {highest}] to fit {dtype.name}"
        raise InvalidDesc(Problem((), rule, show(value)))
    whole: np.generic = dtype.type(int(number))
    return whole


@dataclass(frozen=True)
class Scalar:
    """A number with its data type, compared by type and bits: -0.0 is not 0.0, NaN equals itself, 1 is not 1.0."""

    data_type: DataType
    bits: int

    def __post_init__(self) -> None:
        data_type = parse_enum(DataType, "data_type", self.data_type)
        set_fields(self, data_type=data_type, bits=integer_in("bits", self.bits, 0, 2**data_type.bits - 1))

    @classmethod
    def of(cls, data_type: DataType, value: Any) -> Self:
        """Makes a scalar of `data_type` from a number; raises if the number does not fit.

        >>> Scalar.of(DataType.FLOAT32, -0.0) == Scalar.of(DataType.FLOAT32, 0.0)
        False
        """
        data_type = parse_enum(DataType, "data_type", data_type)
        if isinstance(value, Scalar):
            if value.data_type is not data_type:
                raise InvalidDesc(Problem((), f"must be of {data_type.name}", value))
            value = value.item
        raw = np.asarray(convert_exactly(value, data_type.dtype)).view(f"u{data_type.dtype.itemsize}")
        return cls(data_type, int(raw) & (2**data_type.bits - 1))

    @cached_property
    def item(self) -> np.generic:
        """The number as a NumPy scalar."""
        dtype = self.data_type.dtype
        raw = np.array([self.bits], f"u{dtype.itemsize}")
        number: np.generic = raw.view(dtype)[0]
        return number

    @property
    def as_code(self) -> str:
        """The Python expression of a number that this is in its data type: `0.1`, `float('inf')`."""
        text = str(self.item)
        if text.lstrip("-") not in ("inf", "nan"):
            return text
        is_usual = self == Scalar.of(self.data_type, float(text))
        return f"float({text!r})" if is_usual else f"Scalar({self.data_type.name!r}, {self.bits:#x})"

    def __repr__(self) -> str:
        return f"Scalar.of({self.data_type.name!r}, {self.as_code})"

    def __str__(self) -> str:
        return f"{self.data_type.name} {self.item}"


class ScaleBias(NamedTuple):
    """`DML_SCALE_BIAS`: an operator first multiplies its input by `scale` and then adds `bias`.

    >>> element_wise_sqrt(jnp.array([1.5, 4.0]), ScaleBias(2.0, 1.0)).tolist()
    [2.0, 3.0]
    """

    scale: Any
    bias: Any


class Size2D(NamedTuple):
    """`DML_SIZE_2D`: a width and a height, in this order.

    >>> Size2D(width=3, height=2)
    Size2D(width=3, height=2)
    """

    width: Any
    height: Any
