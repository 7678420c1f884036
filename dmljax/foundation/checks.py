"""Checks and normalizes arguments; errors name them: integers, enumerators, arrays and weights."""

import operator
import os
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, UnknownName, Where, path_of
from dmljax.text import did_you_mean, join_words, show
from dmljax.types import HeaderEnum

UINT_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def element_path(where: Where, index: int) -> Path:
    """The path of an element of the sequence at `where`."""
    return (*path_of(where), index)


def integer(where: Where, value: Any) -> int:
    """`value` as an int: a Python or NumPy integer, or any object with an index; bool is refused."""
    if type(value) is int:
        return value
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InvalidType(static_problem(where, "must be an integer", value, jax.core.Tracer)) from None


def static_problem(where: Where, rule: str, value: Any, unknown: type[Any]) -> Problem:
    """Describes a value that breaks a rule; if it is of the type `unknown`, the remedy is to make it static."""
    if not isinstance(value, unknown):
        return Problem(where, rule, show(value))
    argument = str(path_of(where)[0])
    remedy = f"make it static: jax.jit(..., static_argnames={argument!r}); jax.vmap cannot map it"
    return Problem(where, f"{rule} that is known while tracing", show(value), remedy=remedy)


def integer_in(where: Where, value: Any, lowest: int, highest: int, *, remedy: str | None = None) -> int:
    """`value` as an int in [lowest, highest]."""
    whole = value if type(value) is int else integer(where, value)
    if not lowest <= whole <= highest:
        raise InvalidDesc(Problem(where, f"must be in [{lowest}, {highest}]", show(whole), remedy=remedy))
    return whole


def require_count(where: Where, value: int, lowest: int) -> int:
    """Raises if a number is below `lowest`, or if DirectML's UINT cannot hold it; accepts symbolic sizes."""
    if not is_symbolic_dim(value):
        if value < lowest:
            raise InvalidDesc(Problem(where, f"must be at least {lowest}", show(value)))
        integer_in(where, value, lowest, UINT_MAX)
    return value


def require_counts(where: Where, values: Sequence[int], lowest: int) -> None:
    """Raises if `require_count` raises for any of the numbers."""
    for i, value in enumerate(values):
        require_count(element_path(where, i), value, lowest)


def integers(where: Where, values: Any, convert: Callable[[Where, Any], int] = integer) -> tuple[int, ...]:
    """A sequence or an array of one dimension as a tuple of ints."""
    path = path_of(where)
    return tuple(convert((*path, i), value) for i, value in enumerate(sequence(where, values, "integers")))


def sequence(where: Where, values: Any, elements: str) -> Any:
    """`values`, if they are a sequence or an array of one dimension."""
    is_sequence = isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray)
    if not is_sequence and not (isinstance(values, np.ndarray) and values.ndim == 1):
        raise InvalidType(Problem(where, f"must be a sequence of {elements}", show(values)))
    return values


def uints(where: Where, values: Any) -> tuple[int, ...]:
    """`values` as a tuple of UINTs."""
    return integers(where, values, lambda place, value: integer_in(place, value, 0, UINT_MAX))


def path(where: Where, value: Any) -> pathlib.Path:
    """`value` as a path of a file or folder, if it is a string or a path."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidType(Problem(where, "must be a path", show(value)))
    return pathlib.Path(value)


def mapping(where: Where, value: Any, entries: str) -> Mapping[str, Any]:
    """`value` as a mapping; empty for None. `entries` says of what to what."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidType(Problem(where, f"must be a mapping from {entries}", show(value)))
    return value


def known_name(where: Where, value: Any, known: Collection[str], rule: str) -> str:
    """`value`, if it is among the known names."""
    if isinstance(value, str) and value in known:
        return value
    hint = did_you_mean(value, known) if isinstance(value, str) else ""
    raise InvalidDesc(Problem(where, rule, show(value) + hint))


class NamedThings(dict[str, Any]):
    """Things by name; an unknown name is refused with the nearest."""

    def __init__(self, kind: str, things: Mapping[str, Any]) -> None:
        super().__init__(things)
        self._kind = kind

    def __missing__(self, name: Any) -> Any:
        names = f"; the names are {join_words(map(repr, self))}" if 0 < len(self) <= 8 else ""
        hint = did_you_mean(name, self) or names
        raise UnknownName(Problem((), f"no {self._kind} has the name {show(name)}{hint}"))

    def __reduce__(self) -> Any:
        return type(self), (self._kind, dict(self))


def boolean(where: Where, value: Any) -> bool:
    """`value`, if it is True or False, of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidType(Problem(where, "must be true or false", show(value)))
    return bool(value)


def parse_enum(enumeration: type[HeaderEnum], where: Where, value: Any) -> Any:
    """`value` as a member of `enumeration`: one of its members, or a member's number or name."""
    is_foreign = isinstance(value, HeaderEnum) and not isinstance(value, enumeration)
    if isinstance(value, str | int) and not isinstance(value, bool) and not is_foreign:
        try:
            return enumeration(value)
        except ValueError:
            pass
    raise InvalidDesc(enumerator_problem(enumeration, where, value))


def enumerator_problem(enumeration: type[HeaderEnum], where: Where, value: Any) -> Problem:
    """Describes a value that is neither a member of `enumeration` nor its name."""
    names = enumeration.names()
    suggestion = _suggest_enumerator(enumeration, value)
    remedy = f"use {suggestion!r}" if suggestion in names else None
    hint = enumeration.hint(value) if isinstance(value, str) and remedy is None else ""
    return Problem(where, f"must be one of {', '.join(names)}", show(value) + hint, remedy=remedy)


def _suggest_enumerator(enumeration: type[HeaderEnum], value: Any) -> str | None:
    """Returns the name in directml.h of a dtype, of a feature level with a point, or of true and false."""
    if isinstance(value, bool):
        return enumeration.elsewhere.get(str(value).upper())
    if isinstance(value, type | np.dtype):
        name = (value.__name__ if isinstance(value, type) else value.name).upper()
        return enumeration.elsewhere.get(name, name)
    return str(value).replace(".", "_") if isinstance(value, str | float) else None


JAX_ARRAYS: set[type] = (
    set()
)  # the types of JAX arrays that `array` has seen, including tracers: looking up a type is quick


def array(where: Where, value: Any) -> jax.Array | np.ndarray[Any, Any]:
    """`value`, if it is a JAX or NumPy array or converts itself to a JAX array, in the machine's byte order."""
    if not isinstance(value, jax.Array) and hasattr(type(value), "__jax_array__"):
        value = value.__jax_array__()
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        is_convertible = isinstance(value, list | tuple) or hasattr(value, "__array__")
        remedy = "jnp.asarray converts it" if is_convertible else _REMEDIES.get(type(value))
        raise InvalidType(Problem(where, "must be a JAX or NumPy array", type(value).__name__, remedy=remedy))
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidType(Problem(where, "must be an array without a mask", "MaskedArray"))
    if isinstance(value, jax.Array):
        if isinstance(value.dtype, np.dtype):  # random keys have their own type, with a dtype of JAX's own
            JAX_ARRAYS.add(type(value))
        return value
    native = np.asarray(value)
    return native if native.dtype.isnative else native.astype(native.dtype.newbyteorder("="))


_REMEDIES: dict[type, str] = {
    str: "jnp.asarray(float(text)) converts the text of a number",
    type(None): "a function without a return statement gives None",
}


def set_fields(frozen: object, **fields: Any) -> None:
    """Sets fields of a frozen dataclass, for use in its own `__init__` or `__post_init__`."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)


def find_nonfinite(weights: Mapping[str, Any]) -> Iterator[Problem]:
    """Names weights that have NaN, or infinities beside numbers other than 0, as no mask has."""
    for name, weight in weights.items():
        numbers = np.asarray(weight)
        if not jnp.issubdtype(numbers.dtype, jnp.floating) or (is_finite := np.isfinite(numbers)).all():
            continue
        has_nan = np.isnan(numbers).any()
        if has_nan or np.any(numbers[is_finite] != 0):
            damage, count = "NaN" if has_nan else "infinity", np.sum(~is_finite)
            yield Problem(("weights", name), f"has {damage} in {count} of {numbers.size} elements")
