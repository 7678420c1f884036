"""What is paid before the work and beside it: import, trace and compile, eager dispatch, memory."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from timing import Effort, medians
from workloads import (
    DMLJAX,
    MEDIUM,
    SMALL,
    Work,
    activation_hardmax,
    argmax,
    diagonal_band,
    gather_rows,
    nonzero_coordinates,
    one_hot,
)

Builders = Mapping[str, Callable[[int], Work]]
OPERATORS: Builders = {
    "nonzero_coordinates": lambda elements: nonzero_coordinates("float32", elements, 0.1, all_rows=True),
    "activation_hardmax": lambda elements: activation_hardmax("float32", elements, 128),
    "argmax": lambda elements: argmax("float32", elements, 128),
    "one_hot": lambda elements: one_hot("float32", elements, 128),
    "diagonal_matrix1": lambda elements: diagonal_band("float32", elements),
    "gather_nd1": lambda elements: gather_rows("float32", elements),
}

NN_ONE_HOT = "jax.nn.one_hot"


def compile_seconds(operators: Builders, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds to trace, lower and compile, with nothing cached."""
    table = {}
    for name, build in operators.items():
        work = build(MEDIUM)
        functions = work.of_jax
        times: dict[str, list[float]] = {rival: [] for rival in functions}
        for turn in range(rounds + 1):
            for rival, function in functions.items() if turn % 2 else reversed(functions.items()):
                jax.clear_caches()
                start = time.perf_counter()
                jax.jit(function).lower(*work.inputs).compile()
                times[rival].append(time.perf_counter() - start)
        table[name] = {rival: statistics.median(seconds[1:]) for rival, seconds in times.items()}
    return table


def dispatch_seconds(operators: Builders, effort: Effort) -> dict[str, dict[str, float]]:
    """Seconds until an eager call on few elements returns; `jax.nn.one_hot` of 8 indices is the measure."""
    indices = jnp.arange(8)
    table = {}
    for name, build in operators.items():
        work = build(SMALL)
        arrays = jax.device_put(work.inputs)
        calls: dict[str, Callable[[], Any]] = {
            **{name: partial(function, *arrays) for name, function in work.of_jax.items()},
            f"{DMLJAX}, jitted": partial(jax.jit(work.dmljax), *arrays),
            NN_ONE_HOT: partial(jax.nn.one_hot, indices, 8),
        }
        table[name] = medians(calls, effort)
    return table


def eager_over_jitted(operators: Builders, effort: Effort) -> dict[str, float]:
    """How many times as long as a jitted call an eager one takes until its result is there, on many elements."""
    table = {}
    for name, build in operators.items():
        work = build(MEDIUM)
        arrays = jax.device_put(work.inputs)
        calls: dict[str, Callable[..., Any]] = {"eager": work.dmljax, "jitted": jax.jit(work.dmljax)}
        seconds = medians({kind: partial(_finished, call, arrays) for kind, call in calls.items()}, effort)
        table[name] = seconds["eager"] / seconds["jitted"]
    return table


def _finished(call: Callable[..., Any], arrays: Any) -> Any:
    return jax.block_until_ready(call(*arrays))


def memory(operators: Builders) -> dict[str, dict[str, int]]:
    """Bytes of the result of each operator, and those that it needs besides."""
    table = {}
    for name, build in operators.items():
        work = build(MEDIUM)
        needed: Any = jax.jit(work.dmljax).lower(*work.inputs).compile().memory_analysis()
        table[name] = {"output": needed.output_size_in_bytes, "temporary": needed.temp_size_in_bytes}
    return table


IMPORT = """
import time
import jax, jax.numpy
start = time.perf_counter()
import dmljax
print(time.perf_counter() - start)
"""


def import_seconds(folder: Path, rounds: int) -> float:
    """Seconds that `import dmljax` adds to `import jax`, from byte code that Python keeps in `folder` meanwhile."""
    command = [sys.executable, "-c", IMPORT]
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        runs = [subprocess.run(command, env=environment, capture_output=True, check=True) for _ in range(rounds + 1)]
    return statistics.median(float(run.stdout) for run in runs[1:])
