"""Reads what chips exchange in a collective operation of an HLO module, and which chips do."""

import math
import re
from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from dmljax.estimation.hlo.parser import Computation, Instruction

_KINDS = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"),
    *("collective-permute", "collective-broadcast"),
)
# Instructions that exchange data between devices, which wait for each other
EXCHANGING = frozenset(f"{collective}{suffix}" for collective in _KINDS for suffix in ("", "-start"))

Groups = tuple[tuple[int, ...], ...]


class Exchange(NamedTuple):
    """A collective operation: the bytes that a chip puts in and gets out, and the groups of chips that take part.

    The groups of a collective-permute are its pairs of a source and a target.
    """

    collective: str
    operand_bytes: int
    result_bytes: int
    groups: Groups

    def received_bytes(self, part_of: Callable[[int], Hashable] = lambda chip: chip) -> float:
        """The bytes that a chip receives at least from other chips, or from the chips outside its own part.

        A part is a machine, for instance. Chips that hold or add equal arrays pass them around in rings; each array
        enters a part once, divided among the part's chips.
        """
        is_sum_or_move = self.collective in ("all-reduce", "collective-permute")  # a sum goes around twice
        whole = 2 * self.result_bytes if is_sum_or_move else max(self.operand_bytes, self.result_bytes)
        most = 0.0
        for group in self.groups:
            parts = len({part_of(chip) for chip in group})
            sharing = 1 if self.collective.endswith("all-to-all") else len(set(group)) // parts
            most = max(most, whole * (parts - 1) / parts / sharing)
        return most


def exchange_of(instruction: Instruction, computation: Computation, devices: int) -> Exchange:
    """The exchange of an instruction in a module for this many devices."""
    operands = [tensor for operand in computation.operands(instruction) for tensor in operand.results]
    results = instruction.results
    if instruction.opcode.endswith("-start") and len(results) > len(operands):  # the operands come first
        results = results[len(operands) : 2 * len(operands)]
    collective = instruction.opcode.removesuffix("-start")
    groups = _groups(instruction.attributes) or (tuple(range(devices)),)
    return Exchange(collective, sum(x.bytes for x in operands), sum(x.bytes for x in results), groups)


_LISTED = re.compile(r"\b(?:replica_groups|source_target_pairs)=\{(\{[\d,{}]*\})\}")
_COUNTED = re.compile(r"\breplica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"\breplica_groups=mesh\[([^\]]*)\](?:, device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\))? \{([^}]*)\}")
_AXIS = re.compile(r"'(\w+)'(?::\((\d+)\)(\d+))?")


def _groups(attributes: str) -> Groups:
    """The groups of devices in an instruction's attributes, which XLA writes in three ways."""
    if match := _LISTED.search(attributes):
        return tuple(_numbers(group) for group in re.findall(r"\{([\d,]+)\}", match[1]))
    if match := _COUNTED.search(attributes):
        return _as_groups(_iota(match[2], match[3]).reshape(_numbers(match[1])))
    if match := _MESH.search(attributes):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", match[1])}
        ids = _iota(match[2] or str(math.prod(sizes.values())), match[3])
        return _group_along_axes(ids, sizes, {name: (before, size) for name, before, size in _AXIS.findall(match[4])})
    return ()


def _group_along_axes(ids: np.ndarray, sizes: dict[str, int], axes: dict[str, tuple[str, str]]) -> Groups:
    """Groups devices of a mesh along some of its axes, of which each may be a part: `'x':(2)4` of 16 comes after 2."""
    split: list[int] = []
    group_axes: list[int] = []
    for name, size in sizes.items():
        before, part = axes.get(name, ("1", "1"))
        sizes_of_parts = [int(before or 1), int(part or size)]
        group_axes.append(len(split) + 1)
        split += [*sizes_of_parts, size // math.prod(sizes_of_parts)]
    count = math.prod(split[axis] for axis in group_axes)
    return _as_groups(np.moveaxis(ids.reshape(split), group_axes, range(-len(group_axes), 0)).reshape(-1, count))


def _iota(sizes: str, order: str | None) -> np.ndarray:
    """Numbers from 0 in an array of these sizes, whose dimensions are then reordered."""
    shape = _numbers(sizes)
    return np.arange(np.prod(shape)).reshape(shape).transpose(_numbers(order) if order else None)


def _as_groups(rows: np.ndarray) -> Groups:
    return tuple(map(tuple, rows.tolist()))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
