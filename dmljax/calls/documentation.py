"""The documentation that `help` and the site show: a docstring completed from the signature and from the family.

Each argument is documented once, in the section `Args:` of the docstring of its function, else of its family's module,
else of the package of all families; so is the result, in the section `Returns:`. A paragraph that says
"Everything else is as in `x`." stands for the paragraphs of the docstring of `x` after its first, and for its lines.
"""

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, get_args

from dmljax.calls.arguments import ArgumentKind, ArrayKind, NumberKind, OneOf, groups_of, spell_type
from dmljax.types import HeaderEnum

WIDTH = 116  # without the margin of a docstring


def documentation(function: Callable[..., Any], signature: inspect.Signature, kinds: Mapping[str, ArgumentKind]) -> str:
    """Returns the docstring of a function with a line for each argument and for its result, before its examples."""
    if not function.__doc__:  # under `python -OO`
        return ""
    lines, paragraphs = _collect_lines(function), _paragraphs(function)
    entries = [
        _wrap_entry(f"{name} ({_type_of(parameter, kinds)}): ", lines.get(name, ""))
        for name, parameter in signature.parameters.items()
    ]
    result = _wrap_entry(_parts(signature.return_annotation), lines.get("Returns", ""))
    sections = ["\n".join(["Args:", *entries]), "\n".join(["Returns:", result])]
    end = _first_example(paragraphs)
    return "\n\n".join([*paragraphs[:end], *sections, *paragraphs[end:]])


def _wrap_entry(head: str, line: str) -> str:
    """Wraps an entry of a section; `textwrap` would take a tenth of the time in which all families are imported."""
    rest, lines = f"    {head}{line}", []
    while len(rest) > WIDTH:
        end = rest.rindex(" ", 0, WIDTH + 1)
        lines.append(rest[:end])
        rest = f"        {rest[end + 1 :]}"
    return "\n".join([*lines, rest])


def _type_of(parameter: inspect.Parameter, kinds: Mapping[str, ArgumentKind]) -> str:
    """The type of a parameter, how it relates to the other arguments, and its default."""
    kind, default = kinds[parameter.name], parameter.default
    type_ = kind.choices if isinstance(kind, OneOf) else spell_type(parameter.annotation)
    relation, is_needed = _describe_type(parameter.name, kind, kinds), default is parameter.empty
    return ", ".join([type_, *relation, *([] if is_needed else [f"default {spell_default(default)}"])])


def _describe_type(name: str, kind: ArgumentKind, kinds: Mapping[str, ArgumentKind]) -> list[str]:
    if isinstance(kind, NumberKind):
        return [] if kind.is_scale_bias else ["a scalar"]
    if not isinstance(kind, ArrayKind) or not kind.like or kind.may_differ:
        return []
    if kind.like == "dtype":
        return ["of the type `dtype`"]
    first = groups_of(kinds)[kind][0]
    return [] if first == name else [f"of the type of `{first}`{' or wider' if kind.is_wide else ''}"]


def spell_default(default: Any) -> str:
    """A default as a user writes it."""
    if isinstance(default, HeaderEnum):
        return f'"{default.name.lower()}"'
    return default.__name__ if isinstance(default, type) else repr(default)


def _parts(result: Any) -> str:
    """The name of a named tuple and of its parts; nothing for another result."""
    tuple_type = next((type_ for type_ in (result, *get_args(result)) if hasattr(type_, "_fields")), None)
    return f"{tuple_type.__name__} ({', '.join(tuple_type._fields)}): " if tuple_type else ""


# Docstrings


def _paragraphs(function: Callable[..., Any]) -> list[str]:
    """The paragraphs of a docstring and of the one that it refers to, without their sections."""
    paragraphs = [
        text for text in _split(function.__doc__) if not text.startswith(("Args:\n", "Returns:\n", _REFERENCE))
    ]
    other = _find_reference(function)
    if other is None:
        return paragraphs
    end = _first_example(paragraphs)
    shared = [text for text in _paragraphs(other)[1:] if not text.startswith((">>>", "Use `"))]
    return [*paragraphs[:end], *shared, *paragraphs[end:]]


def _collect_lines(function: Callable[..., Any]) -> dict[str, str]:
    family, other = function.__globals__, _find_reference(function)
    shared: dict[str, str] = {}
    for name in accumulate(family["__name__"].split("."), "{}.{}".format):
        shared |= _lines_of_module(name)
    return shared | (_collect_lines(other) if other else {}) | _lines_in(function.__doc__)


_REFERENCE = "Everything else is as in `"


def _find_reference(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function that a docstring refers to, as it was before it became an operator."""
    _, reference, rest = (function.__doc__ or "").partition(_REFERENCE)
    return inspect.unwrap(function.__globals__[rest.partition("`")[0]]) if reference else None


def _first_example(paragraphs: Sequence[str]) -> int:
    return next(i for i, text in enumerate(paragraphs) if text.startswith(">>>"))


@cache
def _lines_of_module(name: str) -> dict[str, str]:
    return _lines_in(sys.modules[name].__doc__)


def _lines_in(docstring: str | None) -> dict[str, str]:
    """The lines about arguments, by their names, and the line about the result, by the name `Returns`."""
    lines: dict[str, str] = {}
    for text in _split(docstring):
        if text.startswith("Args:\n"):
            entries = (entry.partition(": ") for entry in re.split(r"\n    (?! )", text)[1:])
            lines |= {name: " ".join(line.split()) for name, _, line in entries}
        elif text.startswith("Returns:\n"):
            lines["Returns"] = " ".join(text.split()[1:])
    return lines


def _split(docstring: str | None) -> list[str]:
    """The paragraphs of a docstring, as from `inspect.cleandoc`, which is slow."""
    text = docstring or ""
    margin = re.search(r"\n( *)\S", text)
    return text.replace(f"\n{margin[1]}", "\n").strip().split("\n\n") if margin else [text]
