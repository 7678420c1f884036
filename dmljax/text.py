"""Text for messages: values abridged, names escaped, the nearest known name."""

import inspect
import json
import re
import reprlib
from collections.abc import Container, Iterable, Mapping
from difflib import get_close_matches
from enum import Enum
from itertools import count, islice
from opcode import opmap
from types import MappingProxyType
from typing import Any


def show(value: Any) -> str:
    """A short representation of `value` for a message."""
    import jax  # takes seconds, and the command line needs only other functions of this module
    import numpy as np

    if isinstance(value, jax.core.Tracer):
        return f"a traced {str(value.aval).lstrip('~')}"  # without JAX's mark of a weak type
    if isinstance(value, jax.Array | np.ndarray) and value.size > 8:
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, Enum) and (room := getattr(type(value), "room", "")):
        return f"{room}.{type(value).__name__}.{value.name}"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an int of {value.bit_length()} bits"
    return _ABRIDGED.repr(value) if isinstance(value, str | list | tuple | dict) else repr(value)


_ABRIDGED = reprlib.Repr()
_ABRIDGED.maxstring, _ABRIDGED.maxlist, _ABRIDGED.maxtuple, _ABRIDGED.maxlevel = 80, 8, 8, 3


def one_line(thing: Any) -> str:
    """The text of a path, a name or a reason on one line, abridged if it is long."""
    text = str(thing)
    return escape_controls(text if len(text) <= 300 else f"{text[:140]} ... {text[-140:]}")


def escape_controls(text: str) -> str:
    """`text` with the characters escaped that a terminal would act on."""
    return text if text.isprintable() else json_text(text)[1:-1]


def json_text(value: Any) -> str:
    """`value` as JSON on one line, with the characters escaped that a terminal would act on."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value, separators=(",", ":"))


def correct_grammar(text: str) -> str:
    """Writes `1 arrays` as `1 array`, and `a int64` as `an int64`, in a text with numbers and types filled in.

    >>> from dmljax.text import correct_grammar
    >>> correct_grammar("takes at most 1 arrays, of 21 nodes, each a int64[1]")
    'takes at most 1 array, of 21 nodes, each an int64[1]'
    """
    return re.sub(r"\ba (?=int\d)", "an ", _PLURAL_AFTER_ONE.sub(r"\1", text))


_COUNTED = (
    "array|binding|byte|channel|column|constant|device|dimension|edge|element|expression|head|image|input|layer|name"
    "|node|number|output|resource|row|size|token|value|view|weight"
)
_PLURAL_AFTER_ONE = re.compile(rf"(?<![\w.,-])(?<!- )(?<!the )(1 (?:{_COUNTED}))s\b")


def reason_of(error: BaseException) -> str:
    """The reason that an exception gives, on one line."""
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def join_words(words: Iterable[Any], conjunction: str = "and") -> str:
    """The words as a sentence lists them: `a, b and c`."""
    *most, last = map(str, words)
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def join_sizes(sizes: Iterable[float]) -> str:
    """Sizes as DirectML's pages write them, `{1,2,3}`; a long list is cut off after 16."""
    texts = [str(size) for size in islice(sizes, 17)]
    return "{" + ",".join(texts if len(texts) < 17 else [*texts[:16], "..."]) + "}"


def unused_name(name: str, used: Container[str], spelled: str = "{} ({})") -> str:
    """The name, or the first unused name with a number, counting from 2."""
    if name not in used:
        return name
    return next(new for i in count(2) if (new := spelled.format(name, i)) not in used)


def no_attribute(module: str, name: str, hint: str) -> AttributeError | ImportError:
    """The error for a name that a module does not have, with a hint."""
    if hint and is_imported("dmljax"):  # Python drops the text of an AttributeError
        return ImportError(f"cannot import name {name!r} from {module!r}{hint}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)


def is_imported(library: str) -> bool:
    """Whether the code that asks a module of `library` for a name says `from module import name`."""
    frame = inspect.currentframe()
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith(f"{library}."):
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "_handle_fromlist":  # of importlib, for packages
        return frame is not None
    return frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]


def no_attribute_of(thing: Any, name: str, hint: str) -> AttributeError:
    """The error for an attribute that an object does not have, with a hint."""
    return AttributeError(f"{type(thing).__name__!r} has no attribute {name!r}{hint}", name=name, obj=thing)


def hint_for_spelling(
    thing: Any, name: str, elsewhere: Mapping[str, str], members: Mapping[str, str] = MappingProxyType({})
) -> str:
    """`, did you mean X?` for an attribute in another spelling, `; use X` for one that is something else here; or "".

    `elsewhere` and `members` have plain names: in lower case, without underscores. `members` maps them to attributes.
    """
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    public = [attribute for attribute in dir(thing) if not attribute.startswith("_")]
    plain, spellings = name.replace("_", "").lower(), {each.replace("_", "").lower(): each for each in public}
    if plain in elsewhere:
        return f"; use {elsewhere[plain]}"
    meant = (dict(members) | spellings).get(plain)
    return did_you_mean(name, public) if meant is None else f", did you mean {meant}?"


def hint_by_table(name: str, elsewhere: Mapping[str, str], exported: Iterable[str]) -> str:
    """`; use X` for a name that other libraries have, or `, did you mean X?` for a similar name; or ""."""
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    return f"; use {elsewhere[name]}" if name in elsewhere else did_you_mean(name, exported)


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """`, did you mean X?` for the nearest known name; or ""."""
    meant = nearest(name, known)
    return "" if meant is None else f", did you mean {escape_controls(meant)}?"


def nearest(name: Any, known: Iterable[str]) -> str | None:
    """The known name that starts with `name`, or resembles it in whole or at its end; or None."""
    # A comparison takes some 20 us, so compare only the first 200 names, and a few endings of each.
    by_lower: dict[str, str] = {}
    for other in islice(known, 200):
        if len(other) <= 100:
            by_lower.setdefault(other.lower(), other)
    wanted = str(name)[:100].lower()
    suffixed = [wanted + suffix for suffix in ("s", "tensor") if wanted + suffix in by_lower]
    longer = suffixed or [other for other in by_lower if other.startswith((f"{wanted}_", f"{wanted}."))]
    endings = {ending: x for x in reversed(by_lower) for ending in _endings(x)} | {x: x for x in by_lower}
    cutoff = 0.68 if len(wanted) > 3 else 0.85  # three letters resemble too much
    close = longer or [endings[ending] for ending in get_close_matches(wanted, endings, n=1, cutoff=cutoff)]
    return by_lower[close[0]] if close else None


def _endings(name: str) -> list[str]:
    """Returns what follows each of the first three underscores of a name."""
    words = name.split("_")
    return ["_".join(words[i:]) for i in range(1, min(len(words), 4))]
