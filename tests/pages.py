"""What it takes to transcribe the pages' tensor support tables, and the members of directml.h.

The families' `tests/ops/cases_<family>.py` write both down a second time on purpose: what `support` says is checked
against what the pages say. Where Microsoft's pages differ in age, the newest counts; the level at which a table begins
is that of its heading. Operators are named without their DML_OPERATOR_ there.
"""

from collections.abc import Mapping
from typing import TypeVar

FLOATS = "FLOAT32 FLOAT16"
INTEGERS_32 = "INT32 INT16 INT8 UINT32 UINT16 UINT8"
UP_TO_32 = "FLOAT32 FLOAT16 INT32 INT16 INT8 UINT32 UINT16 UINT8"
ALL = "FLOAT64 FLOAT32 FLOAT16 INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8"
INDICES = "INT64 INT32 UINT64 UINT32"

# One page's tables, by level: a row gives the tensor, its lowest and highest dimension count, and its data types.
Tables = dict[str, list[tuple[str, int, int, str]]]
Value = TypeVar("Value")


def merge(*dictionaries: Mapping[str, Value]) -> dict[str, Value]:
    """One dictionary of several; a key that two of them have is an error."""
    merged: dict[str, Value] = {}
    for dictionary in dictionaries:
        repeated = sorted(merged.keys() & dictionary.keys())
        if repeated:
            raise ValueError(f"given twice: {', '.join(repeated)}")
        merged |= dictionary
    return merged


def of_all(operators: str, value: Value) -> dict[str, Value]:
    """The same value for several operators, whose names are given with spaces between them."""
    return merge(*({name: value} for name in operators.split()))


def alike(tensors: str, tables: dict[str, tuple[int, int, str]]) -> Tables:
    """Tables whose rows are the same for all tensors."""
    return {level: [(tensor, *row) for tensor in tensors.split()] for level, row in tables.items()}
