"""Runs variants of workloads on a device beside dmljax, JAX and PyTorch, checks them, and writes tables."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attention_variants
import jax
import jax.numpy as jnp
import layer_variants
import numpy as np
import recurrent_variants
from device_calls import kernel_times, left_out, reason, repeated, torch_call, tried
from timing import Effort, medians
from variant import Race, Variant
from workloads import DMLJAX, IDIOM, SEED, TORCH, Work

from dmljax.command_line.describe import markdown_table

THREADS = 8  # that compile
MOST_ERROR = {4: 2**-8, 2: 2**-5}  # of the largest element, by the bytes of a float; products round float32 to TF32


@dataclass
class Result:
    """What a rival takes, in microseconds, and how far it is from the formula, relative to the largest element."""

    error: float | None = None
    kernels: float | None = None  # as JAX profiles them
    clock: float | None = None
    remark: str = ""
    by_kernel: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return self.error is not None and not self.remark

    @property
    def microseconds(self) -> float | None:
        return self.kernels or self.clock


@dataclass(frozen=True)
class RacePlan:
    """The races, and the seconds for all of them."""

    races: Mapping[str, Race]
    seconds: float
    effort: Effort
    batch_seconds: float  # of calls between two synchronizations
    most_variants: int | None = None  # of each race


# One race


def fill(work: Work, race: Race, device: Any) -> tuple[Any, ...]:
    """Random numbers in place of shapes, by which each key, weight and mask matters."""
    keys = iter(jax.random.split(jax.random.key(SEED), 64))
    spread = iter((*race.spread, *[1] * len(work.inputs)))

    def fill_shape(x: Any) -> Any:
        if not isinstance(x, jax.ShapeDtypeStruct):
            return jax.device_put(x, device)
        return (jax.random.normal(next(keys), x.shape) * next(spread)).astype(x.dtype)

    with jax.default_device(device):
        return tuple(jax.tree.map(fill_shape, x) for x in work.inputs)


def compute_formula(work: Work, race: Race, arrays: Any) -> list[Any]:
    """The results of the formula in float32."""
    function: Any = race.formula or work.jax
    wide = jax.tree.map(lambda x: x.astype(np.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, arrays)
    with jax.default_matmul_precision("highest"):
        return [np.asarray(x) for x in jax.tree.leaves(jax.jit(lambda *arrays: function(*arrays))(*wide))]


def error_of(results: Any, expected: list[Any]) -> float:
    """The largest error of any result, relative to its largest element; NaN and other shapes are infinitely wrong."""
    leaves = [np.asarray(x, np.float32) for x in jax.tree.leaves(results)]
    if [x.shape for x in leaves] != [x.shape for x in expected]:
        return np.inf
    errors = [np.max(np.abs(a - b)) / np.max(np.abs(b)) for a, b in zip(leaves, expected, strict=True)]
    return float(np.max(np.nan_to_num(errors, nan=np.inf)))


@dataclass(frozen=True)
class Lowered:
    """A rival that is ready to be compiled."""

    variant: Variant
    inputs: tuple[Any, ...]
    program: Any

    def compile(self) -> Any:
        return self.program.compile(compiler_options=dict(self.variant.options) or None)


def lower(variant: Variant, arrays: Any) -> Lowered:
    inputs = jax.jit(lambda *arrays: variant.arrange(*arrays))(*arrays)
    jax.clear_caches()  # of what was traced in another context
    with variant.context():
        return Lowered(variant, inputs, jax.jit(lambda *inputs: variant.function(*inputs)).lower(*inputs))


def run(race: Race, device: Any, plan: RacePlan, end: float) -> dict[str, Result | None]:
    """The results of all rivals, or None where the time is over."""
    work = race.build()
    arrays = fill(work, race, device)
    expected = compute_formula(work, race, arrays)
    rivals = {name: Variant(function) for name, function in work.of_jax.items()}
    rivals |= dict(itertools.islice(race.variants(work).items(), plan.most_variants))
    lowered = {name: tried(partial(lower, variant, arrays), end) for name, variant in rivals.items()}
    ready = {name: one for name, one in lowered.items() if isinstance(one, Lowered)}
    with ThreadPoolExecutor(THREADS) as pool:
        programs = dict(zip(ready, pool.map(lambda one: tried(one.compile, end), ready.values()), strict=True))
    found: dict[str, Result | None] = {}
    calls: dict[str, tuple[Callable[[], Any], int]] = {}
    most = MOST_ERROR[min(x.dtype.itemsize for x in jax.tree.leaves(arrays) if jnp.issubdtype(x.dtype, jnp.floating))]
    for name in rivals:
        program = programs.get(name, lowered[name])
        if program is None or isinstance(program, str) or time.monotonic() > end:
            found[name] = Result(remark=program) if isinstance(program, str) else None
            continue
        found[name] = result = Result()
        try:
            call: Callable[[], Any] = partial(program, *ready[name].inputs)
            result.error = error_of(rivals[name].restore(call()), expected)
            result.by_kernel = kernel_times(call)
            result.kernels = sum(microseconds for microseconds, _ in result.by_kernel.values()) or None
            calls[name] = repeated(call, jax.block_until_ready, plan.batch_seconds)
        except Exception as error:  # a kernel may ask for more than the device has
            result.remark = reason(error)
        if result.error is not None and result.error > most:
            result.remark = "wrong"
    if work.torch is not None and find_spec("torch"):
        found[TORCH] = torch = Result()
        call, wait = torch_call(work.torch, arrays, device)
        torch.error = error_of(jax.tree.map(lambda x: x.cpu().float().numpy(), call()), expected)
        calls[TORCH] = repeated(call, wait, plan.batch_seconds)
    seconds = medians({name: call for name, (call, _) in calls.items()}, plan.effort)
    for name, (_, count) in calls.items():
        result = found[name] or Result()
        result.clock = 1e6 * seconds[name] / count
    return found


# Tables

HEAD = ("rival", "kernels, us", "clock, us", "x dmljax's", "x PyTorch's", "error", "remark")
KERNELS_HEAD = ("kernel", "us", "launches")
MOST_KERNELS = 40


def rows(found: Mapping[str, Result | None]) -> Iterator[tuple[str, ...]]:
    def over(name: str, rival: str) -> str:
        one, other = (getattr(found.get(key), "microseconds", None) for key in (name, rival))
        return f"{one / other:.2f}" if one and other else ""

    for name, result in found.items():
        if result is not None:
            figures = ("" if x is None else f"{x:.1f}" for x in (result.kernels, result.clock))
            error = "" if result.error is None else f"{result.error:.1e}"
            yield name, *figures, over(name, DMLJAX), over(name, TORCH), error, result.remark


def best(found: Mapping[str, Result | None]) -> str:
    """A sentence on the fastest rival that is right, without PyTorch."""
    right = {name: one.microseconds for name, one in found.items() if one and one.is_right and name != TORCH}
    times = {name: microseconds for name, microseconds in right.items() if microseconds}
    return f"The fastest: {min(times, key=lambda name: times[name])}." if times else "None is right."


def table(name: str, race: Race, found: Mapping[str, Result | None] | str, seconds: float) -> Iterator[str]:
    yield from (f"## {name}", "")
    if isinstance(found, str):
        yield from (found, "")
        return
    yield from markdown_table(list(rows(found)), HEAD)
    yield from ("", best(found), left_out(found, seconds), "")
    for rival in (DMLJAX, IDIOM) if race.lists_kernels else ():
        result = found.get(rival)
        by_time = sorted(result.by_kernel.items(), key=lambda item: -item[1][0]) if result else []
        if by_time:
            cells = [(kernel, f"{us:.1f}", f"{count:.0f}") for kernel, (us, count) in by_time[:MOST_KERNELS]]
            yield from (f"Kernels of {rival}:", "", *markdown_table(cells, KERNELS_HEAD), "")


def run_all(plan: RacePlan, device: Any, folder: Path) -> Iterator[str]:
    """Runs the races in their order, writes the tables after each, and tells how far it is."""
    end, left = time.monotonic() + plan.seconds, sum(race.share for race in plan.races.values())
    results: dict[str, Any] = {}
    text = [f"# Variants on {device.device_kind}, with JAX {jax.__version__}", ""]
    for name, race in plan.races.items():
        start = time.monotonic()
        seconds = max(end - start, 0) * race.share / left
        left -= race.share
        found = tried(partial(run, race, device, plan, start + seconds), end)
        if found is None:
            found = f"Left out when {plan.seconds:.0f} s were over."
        results[name] = found if isinstance(found, str) else {k: x and asdict(x) for k, x in found.items()}
        text += table(name, race, found, seconds)
        (folder / "variants.json").write_text(json.dumps(results, indent=1) + "\n")
        (folder / "variants.md").write_text("\n".join(text) + "\n")
        yield f"{name}: {found if isinstance(found, str) else best(found)} {time.monotonic() - start:.0f} s"


def plan_of(networks: Mapping[str, Callable[[], Work]], *, is_small: bool) -> RacePlan:
    """All races, the most important first, or small ones that any device runs in seconds."""
    if is_small:
        modules = (attention_variants, recurrent_variants, layer_variants)
        races = {name: race for module in modules for name, race in module.SMALL_RACES.items()}
        return RacePlan(races, 300, Effort(rounds=3, block_seconds=0.001), 0.001, most_variants=6)
    races = {
        **attention_variants.RACES,
        **recurrent_variants.RACES,
        **layer_variants.RACES,
        **layer_variants.network_races(networks),
        **attention_variants.LONG_RACES,
    }
    return RacePlan(races, 310, Effort(rounds=5, block_seconds=0.01), 0.005)
