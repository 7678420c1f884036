"""Shared by the modules that answer for foreign libraries: errors of the library's kinds, and names that are absent."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from dmljax.errors import DmlError, Problem, Unsupported, hide_frames
from dmljax.text import did_you_mean, is_imported, show

_HERE = "dmljax.run."


def absent(place: str, name: str, reason: str = "", known: Iterable[str] = ()) -> AttributeError:
    """Makes the error for a name that dmljax does not have at `place`, although the foreign library may.

    It has the reason, or the nearest of the `known` names there.
    """
    library = place.partition(".")[0]
    why = f" ({reason})" if reason else _hint(name, tuple(known))
    return AttributeError(f"{place}.{name}: dmljax's version of {library} does not have it{why}")


@functools.lru_cache(256)  # programs may ask often whether something has a name
def _hint(name: str, known: tuple[str, ...]) -> str:
    public = [other for other in known if not other.startswith("_")]
    return "" if name.startswith("_") else did_you_mean(name, public)


def absent_from(module: str, reasons: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a module of dmljax; `reasons` say why it does not have a name."""
    by_name = reasons or {}

    def refuse(name: str) -> Any:
        known = dir(sys.modules[module])
        error = absent(module.removeprefix(_HERE), name, by_name.get(name, ""), known)
        if (name in by_name or _hint(name, tuple(known))) and is_imported("dmljax"):
            raise ImportError(str(error), name=module)  # Python drops the text of an AttributeError
        raise error

    return refuse


WORKS, IGNORED, REFUSED = "works", "accepted and ignored", "refused"


class Answer(NamedTuple):
    """What becomes of a name of a foreign library, and why."""

    word: str
    reason: str


def documented_answer(thing: Any) -> Answer:
    """The answer that the documentation of a function or a class begins with."""
    summary = (inspect.getdoc(thing) or "").partition("\n")[0].rstrip(".")
    for start, word in (("Does nothing, because ", IGNORED), ("Raises, because ", REFUSED)):
        if summary.startswith(start):
            return Answer(word, summary.removeprefix(start))
    return Answer(WORKS, "")


def declared_answer(cls: type, name: str) -> Answer | None:
    """The answer for an option, or None if `name` is none."""
    kept, ignored, defaults = (getattr(cls, names, {}) for names in ("_KEPT", "_IGNORED", "_DEFAULTS"))
    if name in kept:
        return Answer(REFUSED, f"must be `{defaults[name]!r}`, because {kept[name]}")
    if name in ignored:
        return Answer(IGNORED, ignored[name])
    return Answer(WORKS, "") if name in defaults else None


def place_of(cls: type) -> str:
    """The name of a class in its library."""
    return f"{cls.__module__.removeprefix(_HERE).removeprefix('dmljax.').partition('.')[0]}.{cls.__qualname__}"


class _Answering(type):
    """Raises if a class does not have an attribute."""

    def __getattr__(cls, name: str) -> Any:
        named = next(base for base in cls.__mro__ if base.__module__.startswith(_HERE))  # programs derive classes
        refused: Mapping[str, str] = vars(named).get("_REFUSED", {})
        raise absent(place_of(named), name, refused.get(name, ""), dir(cls))


class Answering(metaclass=_Answering):
    """A class of a foreign library, as far as dmljax answers for it; other attributes can be neither read nor set."""

    def __getattr__(self, name: str) -> Any:
        return getattr(type(self), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            getattr(type(self), name)
        object.__setattr__(self, name, value)


class Refusal(DmlError, RuntimeError):
    """A refusal where the foreign library raises a RuntimeError."""


class refusing:  # noqa: N801  # a statement's word, as `within` is
    """Raises a DmlError from inside as the kind of error that the foreign library raises there."""

    def __init__(
        self, library: str, kind_of: Callable[[DmlError], Callable[..., DmlError]] = lambda error: Refusal
    ) -> None:
        self._library, self._kind_of = library, kind_of

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, DmlError):
            raised = self._kind_of(error)(*error.problems)
            raised.operator = self._library
            hide_frames(raised)
            raise raised from None


def require_first_device(provider: str, options: Mapping[str, Any]) -> None:
    """Raises if a provider's options choose a device."""
    device = options.get("device_id", 0)
    if str(device) != "0":
        remedy = "JAX chooses the device: set CUDA_VISIBLE_DEVICES or JAX_PLATFORMS"
        raise Unsupported(Problem((provider, "device_id"), "must be 0", show(device), remedy=remedy))
