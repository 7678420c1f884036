"""Chips that XLA compiles for on a CPU, and what their work takes by the published rates.

The compilers come with the extra `accelerators`. With it installed, JAX looks for the chips themselves unless
`JAX_PLATFORMS=cpu` is set before `import jax`.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from dmljax.errors import Problem, Unsupported, require
from dmljax.estimate.cost import Cost, cost_of

# libtpu asks its surroundings which chips there are, unless it is told, and lets only one process load it.
TPU_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}


@dataclass(frozen=True)
class Target:
    """A chip: how JAX names it, and the rates that bound its time.

    A GPU's kernels wait for each other; a TPU's compiler estimates the cycles of most kernels itself.
    """

    platform: str
    topology: str
    module: str  # of the package that has the compiler
    bytes_per_second: float
    seconds_per_kernel: float = 0
    operations_per_second: float = 0
    cycles_per_second: float = 0
    config: str | None = None  # the file with XLA's GpuTargetConfigProto

    def seconds(self, cost: Cost) -> float:
        """A lower bound of the time, without products of matrices on a GPU."""
        if self.cycles_per_second:
            return cost.cycles / self.cycles_per_second + cost.unestimated_bytes / self.bytes_per_second
        launches, memory = cost.kernels * self.seconds_per_kernel, cost.bytes / self.bytes_per_second
        return launches + memory + cost.element_operations / self.operations_per_second


TARGETS: Mapping[str, Target] = {
    # 132 multiprocessors of 128 lanes at 1.7 GHz; 2.8 of the 3.35 TB/s, as copies reach.
    "h100": Target(
        "cuda",
        "1x1x1",
        "jax_cuda12_plugin",
        bytes_per_second=2.8e12,
        seconds_per_kernel=1.5e-6,
        operations_per_second=132 * 128 * 1.7e9,
        config="h100.txtpb",
    ),
    "v5e": Target("tpu", "v5e:2x2", "libtpu", bytes_per_second=819e9, cycles_per_second=1.5e9),
}


@dataclass(frozen=True)
class Compiled:
    """A function as it was compiled for a target."""

    cost: Cost
    estimated_seconds: float
    compile_seconds: float


def compile_for(target: str, function: Callable[..., Any], *arguments: Any) -> Compiled:
    """Compiles `function` for one chip. Of the arguments, arrays or `jax.ShapeDtypeStruct`s, only the types count."""
    place = SingleDeviceSharding(_devices(target)[0])
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), arguments)
    start = time.perf_counter()
    # A new function: JAX keeps what it lowered for another chip by the function that it came from.
    # A function without arrays would be compiled for this CPU if its results had no place.
    lowered = jax.jit(lambda *arrays: function(*arrays), out_shardings=place).lower(*shapes)
    text = lowered.compile().as_text()
    seconds = time.perf_counter() - start
    cost = cost_of(text or "")
    return Compiled(cost, TARGETS[target].seconds(cost), seconds)


@cache
def _devices(name: str) -> Any:
    """The devices of a target, which nothing can run on."""
    require("target", name in TARGETS, f"must be {' or '.join(TARGETS)}", repr(name))
    target = TARGETS[name]
    if find_spec(target.module) is None:
        remedy = "pip install 'dmljax[accelerators]' has it"
        raise Unsupported(Problem((), f"the compiler for {name} is not installed: no {target.module}", remedy=remedy))
    for variable, value in TPU_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    config = resources.files("dmljax.estimate").joinpath(target.config).read_text() if target.config else None
    if target.platform == "cuda":
        topology = topologies.get_topology_desc("", platform="cuda", topology=target.topology, target_config=config)
    else:
        topology = topologies.get_topology_desc(target.topology, platform=target.platform)
    return topology.devices
