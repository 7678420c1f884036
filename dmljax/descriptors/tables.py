"""Support tables: for each feature level that changed them, the ranks and data types that each tensor may have."""

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import Path, Problem
from dmljax.types import DataType, FeatureLevel

RANK_4 = range(4, 5)
RANK_4_TO_5 = range(4, 6)
RANK_1_TO_4 = range(1, 5)
RANK_1_TO_5 = range(1, 6)
RANK_1_TO_8 = range(1, 9)
RANK_2_TO_8 = range(2, 9)
RANK_3_TO_4 = range(3, 5)
RANK_3_TO_5 = range(3, 6)
RANK_3_TO_8 = range(3, 9)
RANK_2_TO_4 = range(2, 5)


@dataclass(frozen=True)
class Cell:
    """The dimension counts and data types that a support table lists for one tensor."""

    ranks: range
    data_types: frozenset[DataType]

    @property
    def data_type_names(self) -> list[str]:
        """The data types in the order of the header."""
        return [data_type.name for data_type in DataType if data_type in self.data_types]

    def problems(self, path: Path, tensor: TensorDesc) -> Iterator[Problem]:
        """Yields a problem if this cell does not list the rank of the tensor at `path`, or its data type."""
        if tensor.rank not in self.ranks:
            lowest, highest = self.ranks[0], self.ranks[-1]
            ranks = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
            yield Problem((*path, "DimensionCount"), f"must be {ranks}", tensor.rank)
        if tensor.data_type not in self.data_types:
            names = self.data_type_names
            rule = f"must be {names[0]}" if len(names) == 1 else f"must be one of {', '.join(names)}"
            yield Problem((*path, "DataType"), rule, tensor.data_type.name)


Table = Mapping[str, Cell]  # by the field of the tensor, or of the array of tensors


_OTHERS = ""  # the key of the cell of tensors that are not named


def rows(ranks: range, others: frozenset[DataType] | None = None, /, **tensors: frozenset[DataType] | Cell) -> Table:
    """One support table. `ranks` apply to tensors without their own Cell, and `types` to tensors that are not named."""
    cells = tensors if others is None else {_OTHERS: others, **tensors}
    return {field: cell if isinstance(cell, Cell) else Cell(ranks, cell) for field, cell in cells.items()}


def fill_tables(tables: Mapping[FeatureLevel, Table], fields: Sequence[str]) -> Mapping[FeatureLevel, Table]:
    """Support tables with a cell for each of the tensors `fields`."""

    def fill(table: Table) -> Table:
        return types.MappingProxyType({field: table[field if field in table else _OTHERS] for field in fields})

    return {level: fill(table) for level, table in tables.items()}


def support(**tables: Table) -> dict[FeatureLevel, Table]:
    """The support tables of an operator by the level that introduced each: `support(FL_1_0=..., FL_3_0=...)`."""
    return {FeatureLevel[name]: table for name, table in tables.items()}
