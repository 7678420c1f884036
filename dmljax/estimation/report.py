"""Estimates of programs, and a table with a column for each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from dmljax.estimation.chips import Times
from dmljax.estimation.hlo.cost import Cost
from dmljax.text import join_words

MOST = 10  # nodes to list
COMPILED = (2, 4)  # layers of the models from which a deep one is extrapolated
LESS_MEMORY = "use a smaller batch, or a mesh that divides the weights"

NOTE = """\
The time is a lower bound computed from XLA's compiled program, not a measurement. Kernels run one after another, and
each takes the longest of its launch, bytes, operations and exchange at the chip's peak rates. Utilization, examples
and tokens per second are upper bounds. The largest batch fits if all memory grows with it but that of weights,
returned gradients and an optimizer's state. A kernel's cost counts toward the node of its last operation. All figures
are per chip, but for the batch, examples and tokens. The roof is the time for reading the arguments and writing the
results once, or for the products at the peak rate, whichever is longer."""


class NodeCost(NamedTuple):
    """The cost of a model's node, or of an operation in another function, and what bounds most of its time.

    `operations` counts both products and elementwise operations. `bound` is one of `launches`, `memory`, `arithmetic`
    and `exchange`.

    >>> NodeCost("/stem/Conv", seconds=1e-4, kernels=2).name
    '/stem/Conv'
    """

    name: str
    seconds: float
    kernels: int
    bytes: int = 0
    operations: int = 0
    bound: str = ""

    @classmethod
    def of(cls, name: str, cost: Cost, times: Times) -> "NodeCost":
        bound = max(times._fields, key=lambda field: getattr(times, field))
        operations = cost.products + cost.element_operations
        return cls(name, sum(times), cost.kernels, cost.bytes, operations, bound)


class Batch(NamedTuple):
    """The examples and tokens that a program computes, and the number of parts in which chips divide them."""

    examples: int = 0
    tokens: int = 0
    shares: int = 1


class Estimate(NamedTuple):
    """The cost of a program on each chip of a target; prints as a table.

    If the program does not compile, `reason` says why, `refused` names the node, and all other figures are 0. `times`
    splits the seconds by what bounds them; their sum, `seconds`, is a lower bound, and so is `overlapped_seconds`, if
    chips compute while they exchange. `expected_seconds` is what the compiler of a TPU expects. `roof` is the seconds
    that the arguments, results and products take at least, however they are computed, and `product_seconds` those of
    the products. `nodes` lists the nodes that take time, costliest first, `called` the Pallas kernels, and
    `custom_calls` calls that declare no cost. All figures are per chip, but for `work`.

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
    state_bytes: int = 0  # of an optimizer
    fixed_bytes: int = 0  # that do not depend on the batch
    peak_bytes: int = 0
    memory_bytes: int = 0
    cost: Cost = Cost()
    times: Times = Times()
    overlapped_seconds: float = 0
    expected_seconds: float = 0
    product_seconds: float = 0
    roof: float = 0
    nodes: tuple[NodeCost, ...] = ()
    work: Batch = Batch()
    called: tuple[str, ...] = ()
    custom_calls: tuple[str, ...] = ()
    layers: int = 0  # that are extrapolated
    refused: str = ""

    @property
    def seconds(self) -> float:
        return sum(self.times)

    @property
    def fits(self) -> bool:
        """Whether the program compiles and fits in a chip's memory."""
        return not self.reason and self.peak_bytes <= self.memory_bytes

    @property
    def utilization(self) -> float:
        """The share of the chip's peak rate of products that the program reaches at most."""
        return self.product_seconds / self.seconds if self.seconds else 0.0

    @property
    def examples_per_second(self) -> float:
        return self.work.examples / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.work.tokens / self.seconds if self.seconds else 0.0

    @property
    def largest_batch(self) -> int:
        """About the most examples that fit: if all memory but `fixed_bytes` grows with them; 0 if there are none."""
        return 0 if self.reason else largest_batch(self, self.peak_bytes, self.fixed_bytes, self.work)

    def __str__(self) -> str:
        return "\n".join(table([self]))

    def to_json(self) -> dict[str, Any]:
        """The figures by name, ready for JSON."""
        names = ("seconds", "utilization", "examples_per_second", "tokens_per_second", "largest_batch")
        figures = self._asdict() | {name: getattr(self, name) for name in names}
        figures |= {"cost": asdict(self.cost), "times": self.times._asdict(), "work": self.work._asdict()}
        return figures | {"nodes": [node._asdict() for node in self.nodes]}


def largest_batch(estimate: Estimate, peak: int, fixed_bytes: int, work: Batch) -> int:
    """The most examples that fit on an estimate's chips, if `peak` grows with them but for the fixed bytes."""
    growing = peak - fixed_bytes
    if not work.examples or growing <= 0:
        return 0
    fitting = max(estimate.memory_bytes - fixed_bytes, 0) * work.examples // growing
    return fitting // work.shares * work.shares


def table(estimates: Sequence[Estimate], batches: Sequence[int | None] = (), width: int | None = None) -> list[str]:
    """Returns the lines of a table with a column for each estimate, and of a table of each one's costliest nodes.

    `batches` adds a second heading, and columns beyond `width` wrap.
    """
    headings = batches or [None] * len(estimates)
    rows = [
        (f"{estimate.target}, batch {batch}" if batch else estimate.target, estimate)
        for estimate, batch in zip(estimates, headings, strict=True)
    ]
    lines = side_by_side(*_titles_and_columns(estimates, batches), width)
    for name, estimate in rows:
        lines += _format_nodes(name, estimate, width)
    return [*lines, *remarks(rows), *NOTE.splitlines()]


def _format_nodes(name: str, estimate: Estimate, width: int | None) -> list[str]:
    nodes = estimate.nodes[:MOST]
    if not nodes:
        return []
    columns = [[title, *map(tell, nodes)] for title, tell in NODE_COLUMNS.items()]
    columns.insert(1, ["share", *(_share(node.seconds, estimate) for node in nodes)])
    return side_by_side([f"nodes of {name}", *(f"  {_shorten(node.name)}" for node in nodes)], columns, width)


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
    """The rows that say something about at least one estimate."""
    rows = [["", *(estimate.target for estimate in estimates)]]
    rows += [["batch", *(str(batch or "") for batch in batches)]] if batches else []
    rows += [
        ["compiles", *("no" if estimate.reason else f"{estimate.compile_seconds:.1f} s" for estimate in estimates)]
    ]
    rows += [
        [title, *("" if estimate.reason else tell(estimate) for estimate in estimates)] for title, tell in ROWS.items()
    ]
    titles, *columns = zip(*(row for row in rows if any(row[1:])), strict=True)
    return [*titles], [[*column] for column in columns]


def _blocks(columns: Sequence[list[str]], space: int) -> Iterator[list[list[str]]]:
    """Yields groups of columns that fit side by side, or all columns if the space is unknown."""
    block: list[list[str]] = []
    line_width = 0
    for column in columns:
        line_width += 2 + _width(column)
        if block and 0 < space < line_width:
            yield block
            block, line_width = [], 2 + _width(column)
        block.append(column)
    yield block


def _width(column: Sequence[str]) -> int:
    return max(map(len, column))


def remarks(estimates: Iterable[tuple[str, Estimate]]) -> Iterator[str]:
    """Yields a sentence and an empty line about each refusal, lack of memory, kernel of Pallas, and unknown cost."""
    for name, estimate in estimates:
        if estimate.layers:
            compiled = join_words(COMPILED)
            note = f"extrapolated to {estimate.layers} equal layers from models with {compiled}"
            yield from (f"{name}: {note}", "")
        if estimate.reason:
            yield from (f"{name} does not compile: {estimate.reason}", "")
        elif not estimate.fits:
            need, room = format_amount(estimate.peak_bytes, "B"), format_amount(estimate.memory_bytes, "B")
            yield from (f"{name} does not fit in memory: {need} needed, {room} available ({LESS_MEMORY})", "")
        if estimate.called:
            yield from (f"{name}: kernels called: {', '.join(estimate.called)}", "")
        if estimate.custom_calls:
            calls = ", ".join(estimate.custom_calls)
            yield from (f"{name}: custom calls without a declared cost count with operands and results: {calls}", "")
        if loops := estimate.cost.unbounded_loops:
            subject = "a loop" if loops == 1 else f"{loops} loops"
            yield from (f"{name}: {subject} of unknown length counted as one iteration", "")


def _shorten(name: str) -> str:
    return name if len(name) <= 40 else f"...{name[-37:]}"


def _share(seconds: float, estimate: Estimate) -> str:
    return f"{seconds / estimate.seconds:.0%}" if seconds else ""


def format_amount(value: float, unit: str) -> str:
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


def _amount_or_blank(value: float, unit: str) -> str:
    return format_amount(value, unit) if value else ""


ROWS: Mapping[str, Callable[[Estimate], str]] = {
    "chips": lambda estimate: str(estimate.devices),
    "weights": lambda estimate: _amount_or_blank(estimate.weight_bytes, "B"),
    "optimizer's state": lambda estimate: _amount_or_blank(estimate.state_bytes, "B"),
    "peak memory": lambda estimate: format_amount(estimate.peak_bytes, "B"),
    "  of": lambda estimate: format_amount(estimate.memory_bytes, "B"),
    "largest batch, about": lambda estimate: str(estimate.largest_batch or ""),
    "kernels": lambda estimate: str(estimate.cost.kernels),
    "moved": lambda estimate: format_amount(estimate.cost.bytes, "B"),
    "operations: products": lambda estimate: format_amount(estimate.cost.products, ""),
    "operations: others": lambda estimate: format_amount(estimate.cost.element_operations, ""),
    "exchanged": lambda estimate: _amount_or_blank(estimate.cost.exchanged, "B"),
    "takes at least": lambda estimate: _time(estimate.seconds),
    "  for launches": lambda estimate: _share(estimate.times.launches, estimate),
    "  for memory": lambda estimate: _share(estimate.times.memory, estimate),
    "  for arithmetic": lambda estimate: _share(estimate.times.arithmetic, estimate),
    "  for exchange": lambda estimate: _share(estimate.times.exchange, estimate),
    "  if exchange overlaps": lambda estimate: _time(estimate.overlapped_seconds) if estimate.times.exchange else "",
    "its compiler expects": lambda estimate: _time(estimate.expected_seconds) if estimate.expected_seconds else "",
    "roof": lambda estimate: _time(estimate.roof),
    "utilization": lambda estimate: f"{estimate.utilization:.0%}" if estimate.product_seconds else "",
    "examples per second": lambda estimate: _amount_or_blank(estimate.examples_per_second, ""),
    "tokens per second": lambda estimate: _amount_or_blank(estimate.tokens_per_second, ""),
}
NODE_COLUMNS: Mapping[str, Callable[[NodeCost], str]] = {
    "time": lambda node: _time(node.seconds),
    "kernels": lambda node: str(node.kernels),
    "moved": lambda node: format_amount(node.bytes, "B"),
    "operations": lambda node: format_amount(node.operations, ""),
    "bound by": lambda node: node.bound,
}
