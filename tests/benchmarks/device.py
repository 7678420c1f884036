"""The day a GPU is at hand: what dmljax computes on it, and how fast, in less than eight minutes.

`python tests/benchmarks/device.py` compares all operators with this machine's CPU, and then times real sizes and
networks beside plain JAX and PyTorch, and beside the lower bound that `dmljax.estimate` would give. It prints Markdown,
or writes it to `--output FILE`; `figures/h100.md` has what it printed on an H100. It needs the extra `test`, and
PyTorch for its column and the networks. `--variants FOLDER` instead times other ways to compute what takes longer
than PyTorch, counts the conversions and quotients that differ, and compares the operators after that; it writes tables
into the folder as it goes. `--small` tries everything on little work, on any device.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from real_sizes import REAL_SIZES, attention, gradients, product
from timing import Effort, medians
from workloads import DMLJAX, IDIOM, SEED, TORCH, Work

sys.path.extend(map(str, Path(__file__).parents[1].glob("**/")))
import numbers_of_device
import races
from device_calls import filled, kernel_microseconds, left_out, repeated, torch_call, tried
from families import CASES
from helpers import units_off

from dmljax import directml
from dmljax.command_line.describe import markdown_table
from dmljax.estimation import TARGETS, Target, roof
from dmljax.estimation.hlo.cost import steps_of

THREADS = 8  # that compile operators
UNITS = 16  # in the last place, or this much of a result's largest element, that values may be apart


@dataclass(frozen=True)
class Plan:
    """The parts to try, and the seconds for each."""

    operators: Sequence[str]
    works: Mapping[str, Callable[[], Work]]
    seconds_of_values: float
    seconds_of_works: float
    effort: Effort
    batch_seconds: float  # of calls between two synchronizations


# What operators compute


def desc_of(operator: str) -> directml.Operator:
    """A descriptor of the highest rank, of float32 where the operator takes it."""
    case, support = CASES[operator], directml.OPERATORS[operator].support
    table = support[max(support)]
    kinds = {field: [one for one in table[field].data_types if one.bits <= 32] for field in case.free}
    chosen = {
        field: directml.DataType.FLOAT32 if directml.DataType.FLOAT32 in types else min(types)
        for field, types in kinds.items()
    }
    return case.make(chosen, table[case.free[0]].ranks[-1])


def apart(operator: str, device: Any, cpu: Any) -> float:
    """How far the results on a device are from those on the CPU: units in the last place, or of the largest element."""
    desc = desc_of(operator)
    inputs = list(CASES[operator].inputs(desc, np.random.default_rng(SEED)).values())
    found = []
    for place in (device, cpu):
        with jax.default_device(place):
            results = jax.jit(directml.lower(desc))(*jax.device_put(inputs, place))
            found.append([np.asarray(one) for one in jax.tree.leaves(results)])
    return max((_apart(*both) for both in zip(*found, strict=True)), default=0.0)


def _apart(one: Any, other: Any) -> float:
    if not jnp.issubdtype(other.dtype, jnp.floating):
        return 0.0 if np.array_equal(one, other) else np.inf
    with np.errstate(all="ignore"):
        error = units_off(one, other)
        largest = np.max(np.abs(other), initial=0, where=np.isfinite(other))
        of_largest = np.abs(one - other).astype(float) / (float(largest) * float(jnp.finfo(other.dtype).eps))
    return float(np.max(np.fmin(error, of_largest), initial=0))


def values(plan: Plan, device: Any) -> Iterator[str]:
    """Sentences on the operators whose results differ from the CPU's."""
    end, cpu = time.monotonic() + plan.seconds_of_values, jax.devices("cpu")[0]
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(lambda operator: tried(lambda: apart(operator, device, cpu), end), plan.operators)
        found = dict(zip(plan.operators, results, strict=True))
    units = {operator: one for operator, one in found.items() if isinstance(one, float)}
    same = sum(error == 0 for error in units.values())
    near = sum(0 < error <= UNITS for error in units.values())
    most = f"{near} differ by at most {UNITS} units in the last place, their own or the largest element's"
    yield f"Of {len(units)} operators, {same} give the CPU's results, and {most}."
    for operator, one in found.items():
        if isinstance(one, str) or (isinstance(one, float) and not one <= UNITS):
            what = one if isinstance(one, str) else f"{one:.3g} units"
            yield f"- {operator.removeprefix('DML_OPERATOR_')}: {what}"
    yield left_out(found, plan.seconds_of_values)


# How fast they are


class Row(NamedTuple):
    """Microseconds of each rival by the clock and in kernels, and the least that program and work take."""

    name: str
    times: Mapping[str, float]
    kernels: Mapping[str, float]  # empty where JAX does not profile kernels, as on a CPU
    bound: float | None
    roof: float | None

    def ratio(self, rival: str) -> float | None:
        """How many times as long as a rival dmljax takes: in kernels if both have them, else by the clock."""
        times = self.kernels if {DMLJAX, rival} <= {*self.kernels} else self.times
        return times[DMLJAX] / times[rival] if rival in times else None

    @property
    def cells(self) -> tuple[str, ...]:
        kernels = self.kernels.get(DMLJAX)
        inside = kernels or self.times[DMLJAX]
        bounds = (inside / least if least else None for least in (self.bound, self.roof))
        figures = (kernels, self.times[DMLJAX])
        ratios = (self.ratio(IDIOM), self.ratio(TORCH), *bounds)
        return (
            self.name,
            *("" if one is None else f"{one:.1f}" for one in figures),
            *("" if one is None else f"{one:.2f}" for one in ratios),
        )


HEAD = ("work", "kernels, us", "clock, us", "x JAX's", "x PyTorch's", "x estimate", "x the roof")


def timed(name: str, build: Callable[[], Work], device: Any, target: str | None, plan: Plan) -> Row:
    """Times a workload's rivals by turns."""
    work = build()
    arrays = jax.tree.map(lambda one: filled(one, device), work.inputs)
    calls: dict[str, tuple[Callable[[], Any], int]] = {}
    kernels: dict[str, float] = {}
    bound = None
    for rival, function in work.of_jax.items():
        jitted = jax.jit(function)
        if rival == DMLJAX and target is not None:
            bound = 1e6 * lower_bound(TARGETS[target], jitted.lower(*arrays).compile().as_text() or "")
        calls[rival] = repeated(partial(jitted, *arrays), jax.block_until_ready, plan.batch_seconds)
        spent = kernel_microseconds(partial(jitted, *arrays))
        kernels |= {rival: spent} if spent else {}
    if work.torch is not None and find_spec("torch"):
        calls[TORCH] = repeated(*torch_call(work.torch, arrays, device), plan.batch_seconds)
    seconds = medians({rival: run for rival, (run, _) in calls.items()}, plan.effort)
    times = {rival: 1e6 * seconds[rival] / count for rival, (_, count) in calls.items()}
    shapes = jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype), arrays)
    least = target and 1e6 * roof(target, work.jax or work.dmljax, *shapes, share=work.share)
    return Row(name, times, kernels, bound, least or None)


def lower_bound(target: Target, text: str) -> float:
    """The seconds that `dmljax.estimate` gives a compiled program at least."""
    return sum(max(target.times(step.cost)) for step in steps_of(text))


def target_of(device: Any) -> str | None:
    """The chip whose rates apply to a device."""
    models = {name: one.gpu.name.split()[1].split("-")[0] for name, one in TARGETS.items() if one.gpu}
    return next((name for name, model in models.items() if model in device.device_kind), None)


def speeds(plan: Plan, device: Any, target: str | None) -> Iterator[str]:
    """The table, and what it lacks."""
    end = time.monotonic() + plan.seconds_of_works
    found = {name: tried(partial(timed, name, build, device, target, plan), end) for name, build in plan.works.items()}
    rows = [one for one in found.values() if isinstance(one, Row)]
    yield from markdown_table([row.cells for row in rows], HEAD)
    yield ""
    for rival in (IDIOM, TORCH):
        ratios = [ratio for row in rows if (ratio := row.ratio(rival)) is not None]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            yield f"- {mean:.2f} x the time of {rival} in the geometric mean of {len(ratios)}."
    yield from (f"- {name}: {reason}" for name, reason in found.items() if isinstance(reason, str))
    yield left_out(found, plan.seconds_of_works)


def networks() -> Mapping[str, Callable[[], Work]]:
    """Networks of ONNX models, if PyTorch and ONNX are there to make them."""
    if not all(map(find_spec, ("torch", "onnx", "onnxruntime"))):
        return {}
    from plain_networks import NETWORKS

    return NETWORKS


def plan_of(*, is_small: bool) -> Plan:
    """Everything, or little work that any device does in seconds."""
    if is_small:
        works: dict[str, Callable[[], Work]] = {
            "gemm 64, float32": partial(product, 64, "float32"),
            "attention 1x16x2x8, gradient, float32": lambda: gradients(attention(1, 16, 2, 8, "float32")),
        }
        return Plan([*directml.OPERATORS][::60], works, 60, 60, Effort(rounds=3, block_seconds=0.001), 0.001)
    # The most telling work comes first, in case the time is up before the rest.
    first = {name: work for name, work in REAL_SIZES.items() if name.startswith(("attention", "gemm", "decoding"))}
    works = {**first, **networks(), **REAL_SIZES}
    return Plan([*directml.OPERATORS], works, 150, 250, Effort(rounds=5, block_seconds=0.03), 0.01)


SECONDS_OF_OPERATORS = 110  # after the variants


def run_variants(folder: Path, device: Any, plan: Plan, *, is_small: bool) -> Iterator[str]:
    """Compares numbers, times the variants and compares the operators; each part is in the folder when it is done."""
    folder.mkdir(parents=True, exist_ok=True)
    many = 2**12 if is_small else 2**20
    plan = replace(plan, seconds_of_values=min(plan.seconds_of_values, SECONDS_OF_OPERATORS))
    yield from write_lines(folder / "numbers.md", numbers_of_device.differences(device, many, many // 16))
    yield from races.run_all(races.plan_of({} if is_small else networks(), is_small=is_small), device, folder)
    yield from write_lines(folder / "operators.md", values(plan, device))


def write_lines(file: Path, lines: Iterator[str]) -> Iterator[str]:
    """Writes lines to a file as they come, and passes them on."""
    with file.open("w") as opened:
        for line in lines:
            print(line, file=opened, flush=True)
            yield line


def measure(plan: Plan, device: Any, target: str | None) -> Iterator[str]:
    """Compares the operators, and times the workloads."""
    yield from (f"On {device.device_kind}, with JAX {jax.__version__}.", "")
    yield from values(plan, device)
    yield from speeds(plan, device, target)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the Markdown there instead of printing it")
    parser.add_argument("--variants", type=Path, metavar="FOLDER", help="time variants, and write tables there")
    parser.add_argument("--target", choices=TARGETS, help="the chip whose rates apply, if its name does not say")
    parser.add_argument("--small", action="store_true", help="try everything on little work, on any device")
    given = parser.parse_args(arguments)
    device, plan = jax.devices()[0], plan_of(is_small=given.small)
    start = time.monotonic()
    if given.variants:
        parts = run_variants(given.variants, device, plan, is_small=given.small)
    else:
        parts = measure(plan, device, given.target or target_of(device))
    lines = []
    for line in parts:
        print(line, file=sys.stderr, flush=True)  # in case the run is cut short
        lines.append(line)
    lines.append(f"It took {time.monotonic() - start:.0f} s.")
    text = "\n".join(lines) + "\n"
    if given.output:
        given.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    with TemporaryDirectory() as compiled:  # twice: for the text of programs, and to call them
        jax.config.update("jax_compilation_cache_dir", compiled)
        main()
