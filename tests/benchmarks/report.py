"""The measurements as a table, and as a picture."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from workloads import DMLJAX, IDIOM, LARGE, MEDIUM, MEMORY, ONNX, RIVALS, TORCH

Results = Sequence[Mapping[str, Any]]

COLORS = {IDIOM: "#3b6fb6", TORCH: "#d1495b", ONNX: "#66a182"}  # of the rivals that are drawn


def ratio(result: Mapping[str, Any], rival: str) -> float | None:
    """How many times as long as dmljax a rival needs, if it does this work at all."""
    seconds = result["seconds"]
    return float(seconds[rival] / seconds[DMLJAX]) if rival in seconds else None


def size_name(elements: int) -> str:
    return f"2^{elements.bit_length() - 1}"


def lines(results: Results, overheads: Mapping[str, Any], header: Mapping[str, str]) -> Iterator[str]:
    """The whole report in Markdown."""
    yield from (f"- {key}: {value}" for key, value in header.items())
    yield ""
    yield "A number is how many times as long as dmljax a rival needs: above 1, dmljax is the faster."
    yield ""
    yield from _summary(results)
    yield from _growth(results)
    yield from _overheads(overheads)
    for operator in _operators(results):
        yield from _details(operator, [result for result in results if result["operator"] == operator])


def _summary(results: Results) -> Iterator[str]:
    yield "## In the geometric mean, and the least"
    for title, least in (("all sizes", 0), ("2^20 elements and more", MEDIUM)):
        kept = [result for result in results if result["elements"] >= least]
        yield ""
        yield from _row([title, *RIVALS])
        yield from _rule(1 + len(RIVALS))
        for operator in _operators(kept):
            yield from _row([operator, *(_mean_and_least(kept, operator, rival) for rival in RIVALS)])
    yield ""


def _mean_and_least(results: Results, operator: str, rival: str) -> str:
    ratios = [(ratio(result, rival), result) for result in results if result["operator"] == operator]
    known = [(value, result) for value, result in ratios if value is not None]
    if not known:
        return ""
    mean = statistics.geometric_mean(value for value, _ in known)
    least, result = min(known, key=lambda pair: pair[0])
    return f"**{mean:.2f}**, {least:.2f} ({result['dtype']} {size_name(result['elements'])} {result['detail']})"


def _growth(results: Results) -> Iterator[str]:
    """How the time for an element at 2^24 elements compares with that at 2^20, where both were measured."""
    each = {
        (result["operator"], result["dtype"], result["detail"], result["elements"]): result["seconds"]
        for result in results
    }
    grown = [(key, seconds) for key, seconds in each.items() if key[3] == LARGE and (*key[:3], MEDIUM) in each]
    if not grown:
        return
    rivals = [DMLJAX, MEMORY, IDIOM, TORCH]
    yield "## Time for an element at 2^24, over that at 2^20"
    yield ""
    yield from _row(["geometric mean", *rivals])
    yield from _rule(1 + len(rivals))
    for operator in _operators(results):
        cells = []
        for rival in rivals:
            growths = [
                seconds[rival] / each[*key[:3], MEDIUM][rival] * MEDIUM / LARGE
                for key, seconds in grown
                if key[0] == operator and rival in seconds
            ]
            cells.append(f"{statistics.geometric_mean(growths):.2f}" if growths else "")
        yield from _row([operator, *cells])
    yield ""


def _overheads(overheads: Mapping[str, Any]) -> Iterator[str]:
    yield "## Before the work, and beside it"
    yield ""
    yield f"`import dmljax` adds {overheads['import'] * 1e3:.0f} ms to `import jax`."
    yield ""
    compiling, dispatch, memory = overheads["compile"], overheads["dispatch"], overheads["memory"]
    columns = ["trace and compile", "jax.numpy", "eager dispatch", "jitted", "jax.numpy, eager", "jax.nn.one_hot"]
    yield from _row(["operator", *columns, "eager / jitted, 2^20 elements", "temporary memory / output"])
    yield from _rule(3 + len(columns))
    for operator, seconds in compiling.items():
        compiles = [f"{value * 1e3:.0f} ms" for value in seconds.values()]
        calls = [f"{value * 1e6:.0f} us" for value in dispatch[operator].values()]
        shares = overheads["eager over jitted"][operator], memory[operator]["temporary"] / memory[operator]["output"]
        yield from _row([operator, *compiles, *calls, *(f"{share:.2f}" for share in shares)])
    yield ""


def _details(operator: str, results: Results) -> Iterator[str]:
    rivals = [rival for rival in RIVALS if any(rival in result["seconds"] for result in results)]
    yield f"## {operator}"
    yield ""
    yield from _row(["type", "elements", "", "dmljax", "ns an element", *rivals])
    yield from _rule(5 + len(rivals))
    for result in results:
        seconds = result["seconds"][DMLJAX]
        ratios = (ratio(result, rival) for rival in rivals)
        yield from _row(
            [
                result["dtype"],
                size_name(result["elements"]),
                result["detail"],
                f"{seconds * 1e6:.0f} us",
                f"{seconds / result['elements'] * 1e9:.2f}",
                *("" if value is None else f"{value:.2f}" for value in ratios),
            ]
        )
    yield ""


def _row(cells: Iterable[str]) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"


def _rule(count: int) -> Iterator[str]:
    yield "|" + "---|" * count


def _operators(results: Results) -> list[str]:
    return list(dict.fromkeys(result["operator"] for result in results))


def draw(results: Results, path: Path) -> None:
    """A panel for each operator: every workload a dot, how many times as fast as a rival dmljax is by its size."""
    operators = _operators(results)
    columns = min(3, len(operators))
    rows = math.ceil(len(operators) / columns)
    figure = Figure(figsize=(4 * columns, 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, operator in zip(panels, operators, strict=False):
        panel.axhline(1, color="#222222", linewidth=0.8)
        for place, (rival, color) in enumerate(COLORS.items()):
            dots = [
                (result["elements"] * 1.3 ** (place - 1), value)
                for result in results
                if result["operator"] == operator and (value := ratio(result, rival)) is not None
            ]
            if dots:
                panel.plot(*zip(*dots, strict=True), ".", color=color, alpha=0.6, label=rival)
        panel.set(title=operator, yscale="log")
        panel.set_xscale("log", base=2)
    for panel in panels[len(operators) :]:
        panel.set_axis_off()
    handles = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(COLORS))
    figure.supxlabel("elements")
    figure.supylabel("times as fast as a rival")
    figure.savefig(path, dpi=120)
