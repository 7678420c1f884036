"""Open sizes: the names of sizes that a model leaves to its inputs, and symbols while `jax.export` traces a function.

Inputs whose open sizes share a name must agree. Symbols have no values yet: JAX raises an error where a comparison
depends on them, which becomes a refusal with the constraint to write.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.export
from jax.export import is_symbolic_dim

from dmljax.errors import Path, Problem
from dmljax.text import json_text

# JAX raises these where a comparison of sizes depends on the values of symbols
_errors: Any = jax.errors if hasattr(jax.errors, "InconclusiveDimensionOperation") else jax.core  # before JAX 0.10
Undecided: type[Exception] = _errors.InconclusiveDimensionOperation

_COMPARISON = re.compile(r"comparison '(.+?)' (>=|<=|>|<|==) '(.+?)' is inconclusive")
_CONSTANT = re.compile(r"'(.+?)' used in a context that requires a constant")
_SYMBOL = re.compile(r"\b(?!(?:floordiv|mod|max|min)\b)[A-Za-z_]\w*")
_CHOICE = re.compile(r"\b(?:max|min)\(")
_CONSTANT_TERM = re.compile(r"(.+) ([+-]) (\d+)")

OpenSizes = dict[str, tuple[int, str]]  # by name: the size, and the first input that has it


class SizeConflict(NamedTuple):
    """The size that an input must have instead; for an open size, its name and the input that fixed it."""

    expected: int
    name: str | None = None
    first_input: str | None = None


def unify_sizes(
    input: str, sizes: Sequence[int], declared: Sequence[int | str | None], open_sizes: OpenSizes
) -> SizeConflict | None:
    """Adds the open sizes of an input to `open_sizes`; returns the first conflict with these or a fixed size.

    A `declared` size is a number, the name of an open size, or None for any size.
    """
    for size, declared_size in zip(sizes, declared, strict=True):
        if isinstance(declared_size, str):
            expected, first_input = open_sizes.setdefault(declared_size, (size, input))
            if expected is not size and expected != size:
                return SizeConflict(expected, declared_size, first_input)
        elif declared_size is not None and size != declared_size:
            return SizeConflict(declared_size)
    return None


Shapes = Mapping[Path, Sequence[int]]
_NONE: Shapes = MappingProxyType({})


def explain_undecided(error: Exception, shapes: Shapes = _NONE) -> Problem:
    """The problem with a comparison of open sizes that JAX cannot decide, and the constraint that would decide it.

    Most comparisons require a size to be large enough. The problem's place is the first size in the `shapes` of arrays,
    by their paths, that the comparison needs.
    """
    match = _COMPARISON.search(str(error))
    if match is None:
        symbol = _CONSTANT.search(str(error))
        size = symbol[1] if symbol else "an open size"
        remedy = "export the model with that size fixed"
        return Problem(_place_of(size, shapes), "needs a fixed size here", size, remedy=remedy)
    left, comparison, right = match.groups()
    constraint = _spell_greater(left, right, 0 if comparison in ("<", ">=") else 1)
    rule = f"open sizes do not decide whether {constraint}"
    return Problem(_place_of(constraint, shapes), rule, remedy=spell_constraints(constraint))


def fits(size: int, most: int) -> bool:
    """Whether `size` is at most `most`; raises `Undecided` such that the constraint is that it is."""
    return most - size >= 0


def spell_equalities(*pairs: tuple[int, int]) -> str | None:
    """Returns how to make both sizes of each pair equal, if that only takes equations of open sizes.

    A maximum or minimum is decided by an inequality instead.
    """
    unequal = [sorted(pair, key=lambda size: not is_symbolic_dim(size)) for pair in pairs if pair[0] != pair[1]]
    if not unequal or not all(is_symbolic_dim(left) for left, _ in unequal) or _CHOICE.search(str(unequal)):
        return None
    return spell_constraints(*(f"{left} == {right}" for left, right in unequal))


def spell_constraints(*constraints: str) -> str:
    """The call that gives symbols these constraints."""
    return f"jax.export.symbolic_shape(..., constraints={json_text([*constraints])})"


def _place_of(expression: str, shapes: Shapes) -> Path:
    symbols = {*_SYMBOL.findall(expression)}
    sizes = ((path, i, size) for path, shape in shapes.items() for i, size in enumerate(shape))
    return next(((*path, "shape", i) for path, i, size in sizes if symbols & {*_SYMBOL.findall(str(size))}), ())


def _spell_greater(left: str, right: str, by: int) -> str:
    """Spells that an expression is greater than another by at least `by`, with the symbols on the left."""
    first, second = jax.export.symbolic_shape(f"{left}, {right}")
    difference = first - second - by
    match = _CONSTANT_TERM.fullmatch(str(difference))
    constant = int(match[2] + match[3]) if match else 0
    rest = difference - constant
    return f"{-rest} <= {constant}" if str(rest).startswith("-") else f"{rest} >= {-constant}"
