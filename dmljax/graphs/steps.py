"""Steps that read and make named values: finds those that results need, and those worth computing once."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

MAX_FOLDED_BYTES = 2**29  # of all folded results, which take memory in addition to the constants

Key = TypeVar("Key")
Name = Any  # any that a set takes


class GraphStep(NamedTuple):
    """A part of a computation: the names of the values that it reads and makes."""

    reads: Collection[Name]
    makes: Collection[Name]


def find_needed(steps: dict[Key, GraphStep], results: Iterable[Name], known: Iterable[Name] = ()) -> list[Key]:
    """The steps that the results depend on, in order; the known values need none."""
    names, keys = {*results}.difference(known), []
    for key, step in reversed(steps.items()):
        if not names.isdisjoint(step.makes):
            keys.append(key)
            names |= {*step.reads}.difference(known)
    return keys[::-1]


def run_at_each_call(
    steps: dict[Key, GraphStep],
    results: Iterable[Name],
    sizes: Mapping[Name, int],
    is_worth: Callable[[Name], bool],
) -> list[Key]:
    """The steps that are not folded into constants, in order.

    `sizes` are the bytes of the values that depend only on constants. A step is folded if it makes only such values,
    and those that other steps still read are worth their bytes.
    """
    names, keys, left = {*results}, [], MAX_FOLDED_BYTES
    for key, step in reversed(steps.items()):
        read = [name for name in step.makes if name in names]
        size = sum(sizes.get(name, 0) for name in read)
        if all(name in sizes for name in step.makes) and size <= left and all(map(is_worth, read)):
            left -= size
        else:
            keys.append(key)
            names |= {*step.reads}
    return keys[::-1]
