"""Estimates of programs, and a table with a column for each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from dmljax.estimation.cost import Cost
from dmljax.estimation.targets import Times

MOST = 10  # nodes to list
LESS_MEMORY = "use a smaller batch, or a mesh that divides the weights"

NOTE = """\
The time is a lower bound computed from XLA's compiled program, not a measurement. Kernels run one after another, and
each takes the longest of its launch, bytes, operations and exchange at the chip's published rates, or on a TPU the
cycles that its compiler expects. A Pallas kernel counts with the cost that it declares, or with its operands and
results. A kernel's time counts toward the node of its last operation. The roof is the time for reading the arguments
and writing the results once, or for the products at the chip's peak rate, whichever is longer."""


class NodeCost(NamedTuple):
    """The minimum seconds and the kernels of a model's node, or of an operation in another function.

    >>> NodeCost("/stem/Conv", seconds=1e-4, kernels=2).name
    '/stem/Conv'
    """

    name: str
    seconds: float
    kernels: int


class Estimate(NamedTuple):
    """The cost of a program on each chip of a target; prints as a table.

    If the program does not compile, `reason` says why, `refused` names the node, and all other figures are 0. `times`
    splits the seconds by what bounds them; their sum, `seconds`, is a lower bound. `roof` is the seconds that the
    arguments, results and products take at least, however they are computed. `nodes` lists the nodes that take time,
    costliest first, and `called` the Pallas kernels. All figures are per chip.

    >>> Estimate("v5e", devices=1, reason="no memory", compile_seconds=2.0).to_json()[
    ...     "reason"
    ... ]
    'no memory'
    """

    target: str
    devices: int
    reason: str
    compile_seconds: float
    weight_bytes: int = 0
    peak_bytes: int = 0
    memory_bytes: int = 0
    cost: Cost = Cost()
    times: Times = Times()
    nodes: tuple[NodeCost, ...] = ()
    roof: float = 0
    called: tuple[str, ...] = ()
    refused: str = ""

    @property
    def seconds(self) -> float:
        return sum(self.times)

    @property
    def fits(self) -> bool:
        """Whether the program compiles and fits in a chip's memory."""
        return not self.reason and self.peak_bytes <= self.memory_bytes

    def __str__(self) -> str:
        return "\n".join(table([self]))

    def to_json(self) -> dict[str, Any]:
        """The figures by name, ready for JSON."""
        own = self._asdict() | {"cost": asdict(self.cost), "seconds": self.seconds, "times": self.times._asdict()}
        return own | {"nodes": [node._asdict() for node in self.nodes]}


def table(estimates: Sequence[Estimate], batches: Sequence[int | None] = (), width: int | None = None) -> list[str]:
    """Returns the lines of a table; `batches` adds a second heading, and columns beyond `width` wrap."""
    headings = batches or [None] * len(estimates)
    named = [
        (f"{estimate.target}, batch {batch}," if batch else estimate.target, estimate)
        for estimate, batch in zip(estimates, headings, strict=True)
    ]
    lines = side_by_side(*_titles_and_columns(estimates, batches), width)
    return [*lines, *remarks(named), *NOTE.splitlines()]


def side_by_side(titles: Sequence[str], columns: Sequence[list[str]], width: int | None) -> list[str]:
    """Returns the lines of columns beside their titles, with an empty line below each block."""
    first = max(map(len, titles))
    lines: list[str] = []
    for block in _blocks(columns, (width or 0) - first):
        rows = zip(titles, *([cell.rjust(_width(column)) for cell in column] for column in block), strict=True)
        lines += [f"{title.ljust(first)}  {'  '.join(cells)}".rstrip() for title, *cells in rows]
        lines.append("")
    return lines


def _titles_and_columns(
    estimates: Sequence[Estimate], batches: Sequence[int | None]
) -> tuple[list[str], list[list[str]]]:
    names = _dearest(estimates)
    titles = ["", *(["batch"] if batches else []), *(title for title, _ in ROWS), *(["nodes"] if names else [])]
    columns = []
    for i, estimate in enumerate(estimates):
        batch = [str(batches[i] or "")] if batches else []
        cells = [
            "no" if estimate.reason and title == "compiles" else "" if estimate.reason else tell(estimate)
            for title, tell in ROWS
        ]
        shares = {node.name: _share(node.seconds, estimate) for node in estimate.nodes}
        columns.append(
            [estimate.target, *batch, *cells, *([""] if names else []), *(shares.get(name, "") for name in names)]
        )
    return [*titles, *(f"  {_shortened(name)}" for name in names)], columns


def _dearest(estimates: Sequence[Estimate]) -> list[str]:
    """The nodes with the greatest share of the time in any column."""
    shares: dict[str, float] = {}
    for estimate in estimates:
        for node in estimate.nodes:
            shares[node.name] = max(shares.get(node.name, 0), node.seconds / estimate.seconds)
    return sorted(shares, key=lambda name: -shares[name])[:MOST]


def _blocks(columns: Sequence[list[str]], space: int) -> Iterator[list[list[str]]]:
    """Yields groups of columns that fit side by side, or all columns if the space is unknown."""
    block: list[list[str]] = []
    taken = 0
    for column in columns:
        taken += 2 + _width(column)
        if block and 0 < space < taken:
            yield block
            block, taken = [], 2 + _width(column)
        block.append(column)
    yield block


def _width(column: Sequence[str]) -> int:
    return max(map(len, column))


def remarks(named: Iterable[tuple[str, Estimate]]) -> Iterator[str]:
    """Yields a sentence and an empty line about each refusal, lack of memory, and use of Pallas kernels."""
    for name, estimate in named:
        if estimate.reason:
            yield from (f"{name} does not compile: {estimate.reason}", "")
        elif not estimate.fits:
            needed, there = amount(estimate.peak_bytes, "B"), amount(estimate.memory_bytes, "B")
            yield from (f"{name} does not fit in memory: {needed} needed, {there} available ({LESS_MEMORY})", "")
        if estimate.called:
            yield from (f"{name} kernels called: {', '.join(estimate.called)}", "")


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"...{name[-37:]}"


def _share(seconds: float, estimate: Estimate) -> str:
    return f"{seconds / estimate.seconds:.0%}" if seconds else ""


def amount(value: float, unit: str) -> str:
    """Formats a number with three digits: `44.7 MB`."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def _time(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


ROWS: Sequence[tuple[str, Callable[[Estimate], str]]] = (
    ("compiles", lambda estimate: f"{estimate.compile_seconds:.1f} s"),
    ("chips", lambda estimate: str(estimate.devices)),
    ("weights", lambda estimate: amount(estimate.weight_bytes, "B")),
    ("peak memory", lambda estimate: amount(estimate.peak_bytes, "B")),
    ("  of", lambda estimate: amount(estimate.memory_bytes, "B")),
    ("kernels", lambda estimate: str(estimate.cost.kernels)),
    ("moved", lambda estimate: amount(estimate.cost.bytes, "B")),
    ("operations: products", lambda estimate: amount(estimate.cost.products, "")),
    ("operations: others", lambda estimate: amount(estimate.cost.element_operations, "")),
    ("exchanged", lambda estimate: amount(estimate.cost.exchanged, "B")),
    ("takes at least", lambda estimate: _time(estimate.seconds)),
    ("  for launches", lambda estimate: _share(estimate.times.launches, estimate)),
    ("  for memory", lambda estimate: _share(estimate.times.memory, estimate)),
    ("  for arithmetic", lambda estimate: _share(estimate.times.arithmetic, estimate)),
    ("  for exchange", lambda estimate: _share(estimate.times.exchange, estimate)),
    ("roof", lambda estimate: _time(estimate.roof)),
)
