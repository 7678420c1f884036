"""Helpers to transcribe the pages' tensor support tables and the members of directml.h.

The families' `tests/ops/<room>/cases_<family>.py` repeat both on purpose, to check `support` against the pages. If
versions of a page differ, the newest counts; a table begins at the level in its heading. Operators are named without
DML_OPERATOR_.
"""

import re
import textwrap
from collections.abc import Mapping
from typing import TypeVar

FLOATS = "FLOAT32 FLOAT16"
INTEGERS_32 = "INT32 INT16 INT8 UINT32 UINT16 UINT8"
UP_TO_32 = "FLOAT32 FLOAT16 INT32 INT16 INT8 UINT32 UINT16 UINT8"
ALL = "FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8"
UP_TO_64 = UP_TO_32 + " INT64 UINT64"
INDICES = "INT64 INT32 UINT64 UINT32"

LISTS = {
    "FLOATS": FLOATS,
    "INTEGERS_32": INTEGERS_32,
    "UP_TO_32": UP_TO_32,
    "UP_TO_64": UP_TO_64,
    "ALL": ALL,
    "INDICES": INDICES,
}

# One page's tables, by level: a row has the tensor, its lowest and highest dimension count, and its data types.
Tables = dict[str, list[tuple[str, int, int, str]]]
Value = TypeVar("Value")


def merge(*dictionaries: Mapping[str, Value]) -> dict[str, Value]:
    """Joins dictionaries; a key in two of them is an error."""
    merged: dict[str, Value] = {}
    for dictionary in dictionaries:
        repeated = sorted(merged.keys() & dictionary.keys())
        if repeated:
            raise ValueError(f"given twice: {', '.join(repeated)}")
        merged |= dictionary
    return merged


def of_all(operators: str, value: Value) -> dict[str, Value]:
    """The same value for several operators, whose names are separated by spaces."""
    return merge(*({name: value} for name in operators.split()))


def tables(text: str) -> dict[str, Tables]:
    """Tables by operator, from text: a head lists operators and groups of tensors, and each row is a level.

    A row has each group's ranks and data types, or "-" if the level's table does not have the group.
    """
    tables_of_page: dict[str, Tables] = {}
    for line in re.sub(r"\n {8}", " ", textwrap.dedent(text)).strip().splitlines():
        if not line.startswith(" "):
            operators, _, heads = line.partition(": ")
            groups = [names.split() for names in heads.split("; ")]
            by_level: Tables = {}
            tables_of_page = merge(tables_of_page, of_all(operators, by_level))
        else:
            level, _, cells = line.strip().partition(" ")
            pairs = zip(groups, cells.split("; "), strict=True)
            by_level[level] = [(name, *ranks_and_types(cell)) for names, cell in pairs if cell != "-" for name in names]
    return tables_of_page


def ranks_and_types(cell: str) -> tuple[int, int, str]:
    ranks, *types = cell.split()
    lowest, _, highest = ranks.partition("-")
    return int(lowest), int(highest or lowest), " ".join(LISTS.get(name, name) for name in types)
