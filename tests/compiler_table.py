"""The table of what every operator costs on chips, beside JAX's idiom, as `benchmarks/compilers.py` measured it."""

import math
import statistics
from collections.abc import Iterator, Mapping

DMLJAX, IDIOM = "dmljax", "jax.numpy"
COUNTS = ("kernels", "loops", "conditionals", "sorts")

Figures = Mapping[str, float]
Rivals = Mapping[str, Figures]  # dmljax's and the idiom's, if there is one, and if XLA can compile it
Results = Mapping[str, Mapping[str, Rivals]]  # by operator and chip


def ratio(rivals: Rivals, figure: str = "microseconds") -> float | None:
    """How many times as much as the idiom dmljax takes."""
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
    """`3 / 1`: dmljax's figure, and the idiom's; a single one where both are the same."""
    digits = 0 if figure in COUNTS else 1
    return " / ".join(dict.fromkeys(f"{of[figure] / unit:.{digits}f}" for of in rivals.values()))


def structure(rivals: Rivals) -> str:
    """The kernels, and the loops, conditionals and sorts that either rival has."""
    parts = [f"{beside(rivals, 'kernels')} kernels"]
    parts += [f"{beside(rivals, name)} {name}" for name in COUNTS[1:] if any(of[name] for of in rivals.values())]
    return ", ".join(parts)


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
        means = mean(results, target, "microseconds"), mean(results, target, "compile seconds")
        yield "{}: {:.3f} x the idiom's time, {:.2f} x its compile time, in the geometric mean".format(target, *means)
