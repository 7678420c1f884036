"""Arguments brought to one form, or refused by name: integers, enumerators, arrays, and whole calls."""

import inspect
import json
import operator
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

import jax
import numpy as np

from dmljax._errors import InvalidDesc, InvalidType
from dmljax._types import HeaderEnum

UINT_MAX = 2**32 - 1


def shown(value: Any) -> str:
    """`value` for a message; what is too long to read is abridged."""
    if isinstance(value, jax.core.Tracer):
        return f"a traced {value.aval}"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an int of {value.bit_length()} bits"
    return _ABRIDGED.repr(value) if isinstance(value, str | list | tuple | dict) else repr(value)


def one_line(thing: Any) -> str:
    """A path, a name or a reason for a message: on one line, and abridged if it is too long to read."""
    text = str(thing)
    return printable(text if len(text) <= 300 else f"{text[:140]} ... {text[-140:]}")


def printable(text: str) -> str:
    """`text`, as it is unless a terminal would act on it."""
    return text if text.isprintable() else json_text(text)[1:-1]


def json_text(value: Any) -> str:
    """`value` as JSON on one line, without anything that a terminal would act on."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value, separators=(",", ":"))


def reason_of(error: BaseException) -> str:
    """Why something failed, in the words of whoever failed."""
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__)


_ABRIDGED = reprlib.Repr()
_ABRIDGED.maxstring, _ABRIDGED.maxlist, _ABRIDGED.maxtuple, _ABRIDGED.maxlevel = 80, 8, 8, 3


def listed(things: Iterable[Any]) -> str:
    """`things` as a sentence lists them: `a, b and c`."""
    *most, last = map(str, things)
    return f"{', '.join(most)} and {last}" if most else last


def integer(name: str, value: Any) -> int:
    """`value` as an int: a Python or NumPy integer, or anything else that knows its index; True is none."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return operator.index(value)
    except TypeError:
        known = " that is known while tracing" if isinstance(value, jax.core.Tracer) else ""
        raise InvalidType(f"{name} must be an integer{known}; got {shown(value)}") from None


def integer_in(name: str, value: Any, lowest: int, highest: int) -> int:
    """`value` as an int in [lowest, highest]."""
    whole = integer(name, value)
    if not lowest <= whole <= highest:
        raise InvalidDesc(f"{name} must be in [{lowest}, {highest}]; got {shown(whole)}")
    return whole


def integers(name: str, values: Any, convert: Callable[[str, Any], int] = integer) -> tuple[int, ...]:
    """`values`, a sequence or an array of one dimension, as a tuple of ints."""
    is_sequence = isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray)
    if not is_sequence and not (isinstance(values, np.ndarray) and values.ndim == 1):
        raise InvalidType(f"{name} must be a sequence of integers; got {shown(values)}")
    return tuple(convert(f"{name}[{i}]", value) for i, value in enumerate(values))


def uints(name: str, values: Any) -> tuple[int, ...]:
    """`values` as a tuple of UINTs."""
    return tuple(integer_in(f"{name}[{i}]", value, 0, UINT_MAX) for i, value in enumerate(integers(name, values)))


def named(enumeration: type[HeaderEnum], name: str, value: Any) -> Any:
    """`value` as a member of `enumeration`: one of its members, or a member's number or name."""
    is_foreign = isinstance(value, HeaderEnum) and not isinstance(value, enumeration)
    if isinstance(value, str | int) and not isinstance(value, bool) and not is_foreign:
        try:
            return enumeration(value)  # type: ignore[arg-type]  # names are found by its _missing_
        except ValueError:
            pass
    hint = nearest(value.removeprefix(enumeration.prefix), enumeration.__members__) if isinstance(value, str) else ""
    raise InvalidDesc(f"{name} must be one of {', '.join(enumeration.__members__)}; got {shown(value)}{hint}")


def nearest(name: Any, names: Iterable[str]) -> str:
    """A question after the one of `names` that `name` begins or comes near to, if there is one."""
    # To compare takes some 20 us for each; a name that is longer than any of DirectML's is no typing error.
    by_lower = {known.lower(): known for known in islice(names, 200) if len(known) <= 100}
    wanted = str(name)[:100].lower()
    longer = [known for known in by_lower if known.startswith(f"{wanted}_")]
    close = longer or get_close_matches(wanted, by_lower, n=1)
    return f", did you mean {printable(by_lower[close[0]])}?" if close else ""


def array(name: str, value: Any) -> jax.Array | np.ndarray[Any, Any]:
    """`value`, if it is a JAX or NumPy array or knows its JAX array, in the machine's byte order."""
    if not isinstance(value, jax.Array) and hasattr(type(value), "__jax_array__"):
        value = value.__jax_array__()
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        raise InvalidType(f"{name} must be a JAX or NumPy array; got {type(value).__name__}")
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidType(f"{name} must be an array without a mask; got MaskedArray")
    if isinstance(value, jax.Array):
        return value
    native = np.asarray(value)
    return native if native.dtype.isnative else native.astype(native.dtype.newbyteorder("="))


def bound_arguments(signature: inspect.Signature, args: Any, kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments of a call by parameter, or the refusal that Python itself would give."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidType(str(error)) from None


def settle(frozen: object, **fields: Any) -> None:
    """Sets fields of a frozen dataclass, from its own `__post_init__` alone."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)
