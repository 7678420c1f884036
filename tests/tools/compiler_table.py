"""What every operator costs on chips beside JAX's idiom, according to `benchmarks/compilers.py`: lines, and a page."""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dmljax import directml
from dmljax.command_line.describe import markdown_table
from dmljax.estimation.chips import COPIED, SECONDS_PER_ITERATION, SECONDS_PER_KERNEL, SUSTAINED, TARGETS

DMLJAX, IDIOM = "dmljax", "jax.numpy"
COUNTS = ("kernels", "loops", "conditionals", "sorts")
REFUSED, ROOF = "refused", "roof"
FAR = 3  # times the roof

Figures = Mapping[str, Any]  # numbers, or only the reason why XLA cannot compile it
Rivals = Mapping[str, Any]  # dmljax's figures, the idiom's if there is one, and the roof in microseconds
Results = Mapping[str, Mapping[str, Rivals]]  # by operator, real size or network, and chip

FILE = Path(__file__).parents[1] / "benchmarks" / "figures" / "compilers.json"
PAGE = Path(__file__).parents[2] / "notebooks" / "compilers.md"
OPERATORS = {name.removeprefix("DML_OPERATOR_") for name in directml.OPERATORS}
CHIPS = {"h100": "NVIDIA H100", "v5e": "TPU v5e"}

TEXT = """\
# On a GPU and a TPU

These are estimates; `tests/benchmarks/RESULTS.md` in the repository has what an H100 measured, and nobody has run
dmljax on a TPU. XLA's compilers for both run on any x86-64 CPU, and a compiled program shows how many kernels it
launches and how many bytes they move. This page compares a workload for every operator with the idiom: what a JAX user
would write instead, with no setting. For your own model, `dmljax estimate MODEL.onnx --for h100 --for v5e` prints [such
estimates](command-line.md).

{summary}

- **x JAX's**: dmljax's estimated time over the idiom's, then both in microseconds; only dmljax's where JAX has no idiom
  or XLA cannot compile the idiom for the chip.
- **x the roof**: dmljax's time over the least time for the work, however it is computed: each array moves once, or the
  products that the formula needs run at the chip's peak rate, whichever takes longer. Launches count, so small work is
  far from the roof; what reads only a part of an array may be below it.
- **kernels**: dmljax's, then the idiom's after a slash if the numbers differ. Loops, conditionals and sorts are listed
  where there are any.

{peaks}

On the H100, the estimate is a lower bound: {launch} us for each kernel, and {iteration} us more for an iteration of a
loop, then the bytes of its operands and results at {copied} TB/s with an operation for each element and lane at {clock}
GHz, where XLA's own `exp` or `tanh` counts as one, or the kernel's products at the peak rate, whichever takes longer.
Integers of more than 8 bits are multiplied by half of the lanes. dmljax's Pallas kernels count with what they declare.
On the v5e, the estimate is the cycles that XLA's own compiler expects, at {tpu_clock} GHz. XLA does not estimate
gathers, scatters and sorts, which take the time for their bytes, and Pallas kernels, which take the time for the bytes
and operations that they declare. The gradient of JAX's maximum pooling is such a scatter. In ResNet-18, the compiler
schedules 100,000 instructions or more for it, 67 us, which do not count. With them, dmljax's gradient takes at most
1.06 times as long as plain JAX.

Where dmljax costs clearly more, it computes something else:

- SCATTER and SCATTER_ND keep the last of several updates of an element, as DirectML's page says; `x.at[i].set`
  promises no order. With [`unique_indices=True`](operators/scatter.md), they are one scatter, like the idiom.
- RANDOM_GENERATOR is Philox, bit for bit; `jax.random.bits` is Threefry, which needs no multiplications. A TPU has no
  64-bit integers, so dmljax [multiplies in halves](operators/random_generator.md) there.

## Real sizes

Products, attention, rows and decoding in the sizes and types that users compute with. Weights of 4 bits are bytes with
two codes each, as in ONNX files, and JAX's own `uint4` in the idiom. XLA does not know how long a kernel computes: the
bundles that a TPU's compiler schedules for ours, counted by hand, take a v5e 24 us for 1 and 16 rows, and not 15.

{real_sizes}

{far}

## Networks

Networks that PyTorch exports to ONNX, beside the same networks in plain JAX: inference on one input, and the gradients
of all weights.

{networks}

## Operators

About 2^20 float32 elements each.

{operators}
"""


def compiled(rivals: Rivals) -> list[Figures]:
    """dmljax's figures and the idiom's, where XLA can compile them."""
    return [rivals[name] for name in (DMLJAX, IDIOM) if name in rivals and REFUSED not in rivals[name]]


def ratio(rivals: Rivals, figure: str = "microseconds") -> float | None:
    """dmljax's cost relative to the idiom's."""
    both = compiled(rivals)
    return both[0][figure] / both[1][figure] if len(both) == 2 else None


def over_roof(rivals: Rivals, name: str = DMLJAX) -> float | None:
    """A rival's time over the least time for the work."""
    microseconds: float | None = rivals.get(name, {}).get("microseconds")
    return None if microseconds is None else microseconds / rivals[ROOF]


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
    return " / ".join(dict.fromkeys(f"{of[figure] / unit:.{digits}f}" for of in compiled(rivals)))


def structure(rivals: Rivals) -> str:
    """The kernels, and the loops, conditionals and sorts that either rival has."""
    shown = [name for name in COUNTS if name == "kernels" or any(of[name] for of in compiled(rivals))]
    counts = {name: beside(rivals, name) for name in shown}
    return ", ".join(f"{count} {name.removesuffix('s') if count == '1' else name}" for name, count in counts.items())


def cells(rivals: Rivals) -> Iterator[str]:
    """A table's cells for one operator and one chip."""
    if REFUSED in rivals[DMLJAX]:
        yield from (rivals[DMLJAX][REFUSED], *[""] * 5)
        return
    value, compiling = ratio(rivals), ratio(rivals, "compile seconds")
    yield "" if value is None else f"{value:.2f}"
    yield beside(rivals, "microseconds")
    yield f"{over_roof(rivals):.1f}"
    yield structure(rivals)
    yield beside(rivals, "bytes", 1e6)
    seconds = f"{rivals[DMLJAX]['compile seconds']:.1f}"
    yield seconds if compiling is None else f"{seconds} ({compiling:.1f})"


def refusal(rivals: Rivals) -> str:
    """Why XLA cannot compile the idiom, such as `; JAX: out of memory`."""
    reason = rivals.get(IDIOM, {}).get(REFUSED)
    return f"; JAX: {reason}" if reason else ""


def lines(results: Results) -> Iterator[str]:
    """Lines for a terminal."""
    for name in worst_first(results):
        for target, rivals in results[name].items():
            times, us, above, counts, megabytes, compiling = cells(rivals)
            costs = f"{us + ' us' + refusal(rivals):22} {counts:34} {megabytes + ' MB':16} {compiling} s"
            yield f"{name:52} {target:5} {times:>6} {above:>6}  {costs}"
    yield from summary(results)


def summary(results: Results) -> Iterator[str]:
    """A sentence for each chip."""
    for target in targets(results):
        times, compiling = mean(results, target, "microseconds"), mean(results, target, "compile seconds")
        count = sum(ratio(chips[target]) is not None for chips in results.values())
        told = f"{times:.2f} x JAX's time in the geometric mean of {count}, {compiling:.1f} x to compile"
        yield f"{CHIPS[target]}: {told}."


def far(results: Results) -> Iterator[str]:
    """A sentence for each chip that names the work for which both rivals are far from the roof, whatever its type."""
    for target in targets(results):
        both_far: dict[str, list[str]] = {}
        for name, chips in results.items():
            of_jax, ours = (over_roof(chips[target], rival) or 0 for rival in (IDIOM, DMLJAX))
            if min(of_jax, ours) > FAR:
                both_far.setdefault(name.rpartition(", ")[0], []).append(f"{of_jax:.1f}")
        if both_far:
            named = "; ".join(f"{name} ({' and '.join(times)} x)" for name, times in both_far.items())
            yield f"- On the {CHIPS[target]}, XLA is far from the roof with JAX's own formula as well: {named}."


def text() -> str:
    """The text of the page."""
    results: Results = json.loads(FILE.read_text())
    groups: dict[str, dict[str, Any]] = {"operators": {}, "real sizes": {}, "networks": {}}
    for name, chips in results.items():
        groups[group(name)][name] = chips
    operators, sizes, networks = groups.values()
    means = (f"- {kind}: {sentence}" for kind, those in groups.items() for sentence in summary(those))
    return TEXT.format(
        summary="\n".join(means),
        peaks="\n".join(markdown_table([peaks(target) for target in CHIPS], PEAKS)),
        real_sizes=table(sizes, sizes, "work"),
        far="\n".join(far(sizes)),
        operators=table(operators, worst_first(operators), "function"),
        networks=table(networks, worst_first(networks), "network"),
        **rates(),
    )


def group(name: str) -> str:
    """What a name belongs to; real sizes end with their type."""
    if name in OPERATORS:
        return "operators"
    return "real sizes" if name.rpartition(", ")[2] in ("float32", "float16", "bfloat16") else "networks"


PEAKS = ("peak rates", "memory, TB/s", "16 bits, TFLOP/s", "float32 by default", "float32, highest precision", "int8")


def peaks(chip: str) -> tuple[str, ...]:
    """A row with the rates behind the roof."""
    target = TARGETS[chip]
    rates = (target.products_per_second(*factors) for factors in ((16,), (32,), (32, True), (8,)))
    return CHIPS[chip], f"{target.bytes_per_second / 1e12:.3g}", *(f"{rate / 1e12:.0f}" for rate in rates)


def rates() -> dict[str, str]:
    """The rates behind the estimates."""
    gpu, tpu = TARGETS["h100"], TARGETS["v5e"]
    found = {
        "launch": SECONDS_PER_KERNEL * 1e6,
        "iteration": SECONDS_PER_ITERATION * 1e6,
        "copied": COPIED * gpu.bytes_per_second / 1e12,
        "clock": SUSTAINED * gpu.clock / 1e9,
        "tpu_clock": tpu.clock / 1e9,
        "tpu_bandwidth": tpu.bytes_per_second / 1e9,
    }
    return {name: f"{rate:.3g}" for name, rate in found.items()}


def table(results: Results, names: Iterable[str], what: str) -> str:
    """A table in Markdown."""
    columns = ("x JAX's", "x the roof", "kernels")
    head = (what, *(f"{CHIPS[target]}: {column}" for target in targets(results) for column in columns))
    return "\n".join(markdown_table([row(name, results[name]) for name in names], head))


def row(name: str, chips: Mapping[str, Rivals]) -> tuple[str, ...]:
    """An operator's row in the page's table."""
    function = name.lower()
    found = [f"[`{function}`](operators/{function}.md)" if name in OPERATORS else name]
    for rivals in chips.values():
        times, us, above, counts, *_ = cells(rivals)
        us = us and f"{us} us{refusal(rivals)}"
        found += [f"{times} ({us})" if times and us else times or us, above, counts]
    return tuple(found)
