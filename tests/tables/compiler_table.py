"""What every operator costs on chips beside JAX's idiom, according to `benchmarks/compilers.py`: lines, and a page."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path

from dmljax import directml
from dmljax.describe import markdown_table
from dmljax.estimation.targets import COPIED, SECONDS_PER_KERNEL, SUSTAINED, TARGETS

DMLJAX, IDIOM = "dmljax", "jax.numpy"
COUNTS = ("kernels", "loops", "conditionals", "sorts")

Figures = Mapping[str, float]
Rivals = Mapping[str, Figures]  # dmljax's cost, and the idiom's if there is one that XLA can compile
Results = Mapping[str, Mapping[str, Rivals]]  # by operator or network, and chip

FILE = Path(__file__).parents[1] / "benchmarks" / "compilers.json"
PAGE = Path(__file__).parents[2] / "notebooks" / "compilers.md"
OPERATORS = {name.removeprefix("DML_OPERATOR_") for name in directml.OPERATORS}
CHIPS = {"h100": "NVIDIA H100", "v5e": "TPU v5e"}

TEXT = """\
# On a GPU and a TPU

These are estimates: we have run nothing on a GPU or a TPU. XLA's compilers for both run on any x86-64 CPU, and a
compiled program shows how many kernels it launches and how many bytes they move. `python
tests/benchmarks/compilers.py` compiles a workload of about 2^20 float32 elements for every operator, and what a JAX
user would write instead, and writes this page.

{summary}

- **time**: dmljax's estimated time over the idiom's, then both in microseconds. It is empty where JAX has no idiom or
  XLA cannot compile the idiom for the chip.
- **kernels**: dmljax's, then the idiom's after a slash if the numbers differ. Loops, conditionals and sorts are listed
  where there are any.

On the H100, the estimate is a lower bound: {launch} us for each kernel, the bytes of its operands and results at
{copied} TB/s, and an operation for each element and lane at {clock} GHz; XLA's own `exp` or `tanh` counts as one.
Products of matrices and convolutions count by their bytes only.
On the v5e, the estimate is the cycles that XLA's own compiler expects, at
{tpu_clock} GHz, and for gathers, scatters and sorts, which it does not
estimate, their bytes at {tpu_bandwidth} GB/s. dmljax and the idioms both compute
products with `precision="highest"`.

Where dmljax costs clearly more, it computes something else:

- SCATTER and SCATTER_ND keep the last of several updates of an element, as DirectML's page says; `x.at[i].set`
  promises no order.
- RANDOM_GENERATOR is Philox, bit for bit; `jax.random.bits` is Threefry, which needs no multiplications. A TPU has no
  64-bit integers, so dmljax multiplies in halves there.
- Products of 8-bit integers with zero points multiply int8 and subtract sums of rows and columns. The idiom multiplies
  int32, whose arithmetic the estimate for the H100 does not count.

## Operators

{operators}

## Networks

Networks that PyTorch exports to ONNX, beside the same networks in plain JAX: inference on one input, and the gradients
of all weights.

{networks}
"""


def ratio(rivals: Rivals, figure: str = "microseconds") -> float | None:
    """dmljax's cost relative to the idiom's."""
    return rivals[DMLJAX][figure] / rivals[IDIOM][figure] if len(rivals) == 2 else None


def worst_first(results: Results) -> list[str]:
    """The operators, by the larger ratio of both chips; those without an idiom come last."""
    return sorted(results, key=lambda name: max(ratio(rivals) or 0 for rivals in results[name].values()), reverse=True)


def mean(results: Results, target: str, figure: str) -> float:
    """The geometric mean of the ratios for a chip; not a number where no operator has an idiom."""
    values = [ratio(chips[target], figure) for chips in results.values()]
    known = [value for value in values if value is not None]
    return statistics.geometric_mean(known) if known else math.nan


def targets(results: Results) -> list[str]:
    """The chips."""
    return list(next(iter(results.values()), {}))


def beside(rivals: Rivals, figure: str, unit: float = 1) -> str:
    """dmljax's figure and the idiom's, such as `3 / 1`, or one number if they are equal."""
    digits = 0 if figure in COUNTS else 1
    return " / ".join(dict.fromkeys(f"{of[figure] / unit:.{digits}f}" for of in rivals.values()))


def structure(rivals: Rivals) -> str:
    """The kernels, and the loops, conditionals and sorts that either rival has."""
    shown = [name for name in COUNTS if name == "kernels" or any(of[name] for of in rivals.values())]
    counts = {name: beside(rivals, name) for name in shown}
    return ", ".join(f"{count} {name.removesuffix('s') if count == '1' else name}" for name, count in counts.items())


def cells(rivals: Rivals) -> Iterator[str]:
    """A table's cells for one operator and one chip."""
    if DMLJAX not in rivals:
        yield from ("does not compile", *[""] * 4)
        return
    value, compiling = ratio(rivals), ratio(rivals, "compile seconds")
    yield "" if value is None else f"{value:.2f}"
    yield beside(rivals, "microseconds")
    yield structure(rivals)
    yield beside(rivals, "bytes", 1e6)
    seconds = f"{rivals[DMLJAX]['compile seconds']:.1f}"
    yield seconds if compiling is None else f"{seconds} ({compiling:.1f})"


def lines(results: Results) -> Iterator[str]:
    """Lines for a terminal."""
    for name in worst_first(results):
        for target, rivals in results[name].items():
            times, us, counts, megabytes, compiling = cells(rivals)
            yield f"{name:36} {target:5} {times:>6}  {us + ' us':22} {counts:34} {megabytes + ' MB':16} {compiling} s"
    yield from summary(results)


def summary(results: Results) -> Iterator[str]:
    """A sentence for each chip."""
    for target in targets(results):
        times, compiling = mean(results, target, "microseconds"), mean(results, target, "compile seconds")
        counts = f"{sum(IDIOM in chips[target] for chips in results.values())} operators"
        chip = CHIPS[target]
        yield f"{chip}: {times:.2f} x the idiom's time in the geometric mean of {counts}, {compiling:.1f} x to compile."


def text() -> str:
    """The text of the page."""
    results: Results = json.loads(FILE.read_text())
    operators = {name: chips for name, chips in results.items() if name in OPERATORS}
    networks = {name: chips for name, chips in results.items() if name not in OPERATORS}
    sentences = "\n".join(f"- {sentence}" for sentence in summary(operators))
    return TEXT.format(
        summary=sentences,
        operators=table(operators, "function"),
        networks=table(networks, "network"),
        **rates(),
    )


def rates() -> dict[str, str]:
    """The rates behind the estimates."""
    gpu, tpu = TARGETS["h100"], TARGETS["v5e"]
    found = {
        "launch": SECONDS_PER_KERNEL * 1e6,
        "copied": COPIED * gpu.bytes_per_second / 1e12,
        "clock": SUSTAINED * gpu.clock / 1e9,
        "tpu_clock": tpu.clock / 1e9,
        "tpu_bandwidth": tpu.bytes_per_second / 1e9,
    }
    return {name: f"{rate:.3g}" for name, rate in found.items()}


def table(results: Results, what: str) -> str:
    """A table in Markdown."""
    head = (what, *(f"{CHIPS[target]}: {column}" for target in targets(results) for column in ("time", "kernels")))
    return "\n".join(markdown_table([row(name, results[name]) for name in worst_first(results)], head))


def row(name: str, chips: Mapping[str, Rivals]) -> tuple[str, ...]:
    """An operator's row in the page's table."""
    function = name.lower()
    found = [f"[`{function}`](operators/{function}.md)" if name in OPERATORS else name]
    for rivals in chips.values():
        times, us, counts, *_ = cells(rivals)
        found += [f"{times} ({us} us)" if times and us else times or f"{us} us", counts]
    return tuple(found)
