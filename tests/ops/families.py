"""Collects what the files `tests/ops/<room>/cases_<family>.py` say about operators.

It finds these dictionaries and tables in each file, so no other list is needed.
"""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import Case, Elementwise, RefusedCall, RefusedDesc, same_type_case
from pages import Tables, merge

from dmljax import directml

FAMILIES = {
    path.stem.removeprefix("cases_"): importlib.import_module(path.stem)
    for path in sorted(Path(__file__).parent.glob("*/cases_*.py"))
}


def family_of(operator: str) -> str:
    """The file of `dmljax/ops` that has an operator."""
    return Path(inspect.unwrap(directml.OPERATORS[operator].function).__code__.co_filename).stem


def collect(dictionary: str) -> dict[str, Any]:
    """Joins the dictionaries of this name from all families; an operator in two of them is an error."""
    return merge(*(getattr(family, dictionary, {}) for family in FAMILIES.values()))


def collect_by_family(table: str) -> dict[str, list[Any]]:
    """Collects the tables of this name from all families that have one."""
    return {name: getattr(family, table) for name, family in FAMILIES.items() if hasattr(family, table)}


def by_whole_name(values: dict[str, Any]) -> dict[str, Any]:
    return {f"DML_OPERATOR_{name}": value for name, value in values.items()}


# The elementwise operators and activations, by their names without DML_OPERATOR_
ELEMENTWISE: dict[str, Elementwise] = collect("ELEMENTWISE")
# An operator's own case wins over the one made from its formula.
CASES: dict[str, Case] = by_whole_name(
    {name: same_type_case(name, elementwise) for name, elementwise in ELEMENTWISE.items()} | collect("CASES")
)
# The tensor support tables of the pages, and the members in the header's order
SUPPORT: dict[str, Tables] = by_whole_name(collect("SUPPORT"))
MEMBERS: dict[str, str] = by_whole_name(collect("MEMBERS"))
# Which data types a page allows together at a level, beyond its tables.
REMARKS: dict[str, Callable[[str, dict[str, str]], bool]] = by_whole_name(collect("REMARKS"))
# What validation and functions refuse, and for the functions in it, arguments that they take
REFUSED_DESCS: dict[str, list[RefusedDesc]] = collect_by_family("REFUSED_DESCS")
CALLS: dict[str, dict[str, Any]] = collect("CALLS")
REFUSED_CALLS: dict[str, list[RefusedCall]] = collect_by_family("REFUSED_CALLS")


def pages_minimum_level(operator: str, tensors: dict[str, tuple[int, str]]) -> str | None:
    """The first level whose table lists every tensor's dimension count and data type."""
    is_allowed = REMARKS.get(operator, lambda level, data_types: True)
    data_types = {name: data_type for name, (_, data_type) in tensors.items()}
    for level, table in SUPPORT[operator].items():
        cells = {name: (range(lowest, highest + 1), types.split()) for name, lowest, highest, types in table}
        is_listed = all(
            rank in cells[name][0] and data_type in cells[name][1] for name, (rank, data_type) in tensors.items()
        )
        if is_listed and is_allowed(level, data_types):
            return level
    return None
