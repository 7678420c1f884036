"""The page `notebooks/onnxruntime-names.md`: what becomes of each public name of ONNX Runtime under `dmljax.run`."""

import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any

from dmljax.command_line.describe import markdown_table
from dmljax.run import INSTALLED_PARTS, MODULES
from dmljax.run.answers import IGNORED, REFUSED, WORKS, Answer, declared_answer, documented_answer

LIBRARY = "onnxruntime"
PLACES = (
    "onnxruntime",
    "onnxruntime.capi",
    "onnxruntime.capi.onnxruntime_inference_collection",
    "onnxruntime.capi.onnxruntime_pybind11_state",
    "onnxruntime.backend",
    "onnxruntime.datasets",
)
OWN = "ONNX Runtime's own Python, over dmljax's sessions"

TEXT = """\
% `python tests/tools/generated.py` writes this page.

# ONNX Runtime's names

Each public name of ONNX Runtime {version}'s Python modules has an answer under `python -m dmljax.run`:

- **works**: it does what it does there, as far as [the page on programs](for-programs.md) names no difference.
- **accepted and ignored**: a program may use it, and it has no effect.
- **refused**: using it raises an error with the reason. `from onnxruntime import NAME` raises an ImportError, and
  `onnxruntime.NAME` an AttributeError. Values of an option that are refused raise a RuntimeError.

A class that is ignored or refused has the same answer for all of its members, and one that several modules have is
shown once. `onnxruntime.capi._pybind_state` has the names of `onnxruntime.capi.onnxruntime_pybind11_state`.
`quantization`, `tools` and `transformers` are ONNX Runtime's own files, with all of their names.
{sections}
"""


def text() -> str:
    """The text of the page."""
    version, shown = import_module(LIBRARY).__version__, set[tuple[type, str]]()
    return TEXT.format(version=version, sections="".join(section(place, shown) for place in PLACES))


def section(place: str, shown: set[tuple[type, str]]) -> str:
    """The names of a module, with their answers, without members of classes that are `shown` before."""
    groups: dict[tuple[str, Answer], list[str]] = {}
    for holder, name in names(place):
        member = (getattr(_stand_in(place), holder), name) if holder else None
        if member not in shown:
            groups.setdefault((holder, answer(place, holder, name)), []).append(name)
        if member is not None:
            shown.add(member)
    order = {word: i for i, word in enumerate((WORKS, IGNORED, REFUSED))}
    keys = sorted(groups, key=lambda key: (key[0], order[key[1].word]))
    rows = [(_cell(holder, groups[holder, found]), found.word, found.reason) for holder, found in keys]
    return "\n".join(["", f"## {place}", "", *markdown_table(rows, ("names", "answer", "why")), ""])


def _cell(holder: str, found: Sequence[str]) -> str:
    """The cell of a class and its members, or of names of a module."""
    listed = ", ".join(f"`{name}`" for name in found)
    return f"`{holder}`: {listed}" if holder else listed


def names(place: str) -> Iterator[tuple[str, str]]:
    """The public names of one of ONNX Runtime's modules, and of the classes in it that dmljax does not refuse whole.

    A name comes with the class that has it, or with an empty text.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what ONNX Runtime imports from onnx
        module = import_module(place)
    modules = pkgutil.iter_modules(getattr(module, "__path__", []))
    inner = {found.name for found in modules if not found.name.startswith("lib")}  # libraries that are no modules
    for name in sorted({*dir(module), *inner}):
        if name.startswith("_") or not (name in inner or _is_of(place, getattr(module, name))):
            continue
        yield "", name
        value = getattr(module, name, None)
        if isinstance(value, type) and answer(place, "", name).word == WORKS and answer(place, "", name).reason != OWN:
            yield from ((name, member) for member in members(value))


def members(cls: type) -> list[str]:
    """The public members of a class, without those of Python's own classes."""
    python = {name for base in (BaseException, int, Enum) for name in dir(base)} - {"name", "value"}
    return [name for name in dir(cls) if not name.startswith("_") and name not in python]


def _is_of(place: str, value: Any) -> bool:
    """Whether a value in a module is not only imported there from elsewhere."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith(f"{place}.")
    home = getattr(value, "__module__", None) or LIBRARY
    return home.partition(".")[0] == LIBRARY


def answer(place: str, holder: str, name: str) -> Answer:
    """What dmljax answers for a name; raises a LookupError if it has no answer."""
    part = place.removeprefix(f"{LIBRARY}.")
    if part in INSTALLED_PARTS[LIBRARY] or (place == LIBRARY and name in INSTALLED_PARTS[LIBRARY]):
        return Answer(WORKS, OWN)
    where = _stand_in(place)
    if holder:
        where = getattr(where, holder)
        declared = declared_answer(where, name)
        if declared is not None:
            return declared
    try:
        value = inspect.getattr_static(where, name, None) if holder else None
        value = getattr(where, name) if value is None else value
    except AttributeError as error:
        reason = re.search(r" does not have it \((.+)\)$", str(error))
        if reason is None:
            raise LookupError(f"{place}: {holder} {name} has no answer") from None
        return Answer(REFUSED, reason[1])
    return documented_answer(value)


def _stand_in(place: str) -> Any:
    """dmljax's module for one of ONNX Runtime's."""
    return import_module(place.replace(LIBRARY, MODULES[LIBRARY], 1))
