"""One or more chips, and programs that XLA compiles for them on a CPU.

The extra `accelerators` installs the compilers.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, SingleDeviceSharding

from dmljax.errors import Problem, Unsupported, require
from dmljax.estimation.chips import TARGETS, Target, Tpu, chips_of, gpu_config, usual_slices
from dmljax.estimation.declared import with_declared_costs
from dmljax.estimation.hlo.cost import Cost, called_kernels, calls_without_cost, steps_of
from dmljax.estimation.hlo.exchange import Exchange
from dmljax.foundation.extras import command_for
from dmljax.text import one_line

ENVIRONMENT = {  # of a process that compiles
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # or else JAX refuses its plugin for CUDA, because there is no GPU
    # Without these, libtpu queries its environment for chips, and only one process may load it.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
MODULES = {"cuda": "jax_cuda12_plugin", "tpu": "libtpu"}  # that contain the compilers
PLUGIN = "jax_plugins.xla_cuda12"  # that registers the former with JAX


def without_mesh() -> AbstractContextManager[Any]:
    """Hides the mesh of `jax.set_mesh`, so that a program can be traced for other devices."""
    no_mesh: AbstractContextManager[Any] = jax.set_mesh(Mesh(np.empty((), object), ()))
    return no_mesh


class Place(NamedTuple):
    """One or more identical chips, such as `h100:8`."""

    name: str
    target: Target
    devices: tuple[Any, ...]  # for compiling only

    def links(self, exchange: Exchange) -> float:
        """The bytes that all links of a chip could carry during an exchange.

        A GPU has NVLink in its machine, and a network to others. A TPU has two links in each dimension of its slice, of
        which one is left where two chips are side by side; an exchange along a dimension uses its links only.
        """
        if gpu := self.target.gpu:
            between = exchange.received_bytes(lambda chip: chip // gpu.machine)
            over_network = between * self.target.exchanged_per_second / gpu.network_per_second
            return max(exchange.received_bytes() - between, over_network)
        places = [tuple(device.coords) for device in self.devices]
        axes = range(len(self.target.smallest))
        linked_axes = [
            axis for axis in axes if any(len({places[i][axis] for i in group}) > 1 for group in exchange.groups)
        ]
        links = sum(min(len({place[axis] for place in places}) - 1, 2) for axis in linked_axes)
        return exchange.received_bytes(places.__getitem__) * 2 * len(axes) / max(links, 1)


@cache
def place_of(name: str) -> Place:
    """The chips for a name: `h100`, `h100:8` in a machine, `h100:16` in two, `v5e`, or `v5e:4x4` in a slice."""
    chip, sizes = chips_of(name)
    target = TARGETS[chip]
    if gpu := target.gpu:
        rule = f"must be at most {gpu.machine} GPUs, or a multiple of {gpu.machine} for several machines"
        is_whole = math.prod(sizes) <= gpu.machine or math.prod(sizes) % gpu.machine == 0
        require("target", is_whole, rule, repr(name), remedy=f"{chip}:{gpu.machine} or {chip}:{2 * gpu.machine}")
    module = MODULES[target.platform]
    if find_spec(module) is None:
        rule = f"the compiler for {chip} is not installed: no {module}"
        raise Unsupported(Problem((), rule, remedy=f"{command_for('accelerators')}, in an environment of its own"))
    jax.default_backend()  # JAX looks for the chips of this machine before the environment changes
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    devices = _devices(name, target, sizes)
    count = math.prod(sizes) * (target.kind.devices if sizes and isinstance(target.kind, Tpu) else 1)
    require("target", len(devices) >= count, f"too few chips for {name}", len(devices))
    return Place(name, target, tuple(devices[:count]))


def _devices(name: str, target: Target, sizes: Sequence[int]) -> Any:
    from jax.experimental import topologies  # slow to import

    hardware = target.kind
    try:
        if isinstance(hardware, Tpu):
            shape = "x".join(map(str, sizes or hardware.smallest))
            options = {"chip_config_name": hardware.config}
            return topologies.get_topology_desc(f"{hardware.name}:{shape}", platform="tpu", **options).devices
        count = math.prod(sizes)
        options = {
            "topology": f"{max(count // hardware.machine, 1)}x1x{min(count, hardware.machine)}",
            "target_config": gpu_config(target, hardware),
        }
        try:
            return topologies.get_topology_desc("", platform="cuda", **options).devices
        except NotImplementedError:  # JAX refused the plugin when it looked for the chips of this machine
            import_module(PLUGIN).initialize()
            return topologies.get_topology_desc("", platform="cuda", **options).devices
    except Exception as error:  # JAX's runtime errors and ValueErrors, which are long
        reason = one_line(str(error).splitlines()[0])
        usual = ", ".join(map(str, usual_slices(target.smallest)))
        remedy = f"{name.partition(':')[0]}:{usual} work" if usual and target.gpu is None else None
        raise Unsupported(Problem("target", f"XLA has no topology {name}: {reason}", remedy=remedy)) from None


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a function for a target."""

    cost: Cost
    estimated_seconds: float
    compile_seconds: float
    called: tuple[str, ...]  # Pallas kernels
    custom_calls: tuple[str, ...]  # that declare no cost


def compile_for(
    target: str, function: Callable[..., Any], *arguments: Any, donate_argnums: Sequence[int] = ()
) -> Compiled:
    """Compiles `function` for one chip; only the types of the arrays or `jax.ShapeDtypeStruct`s matter.

    Results may take the memory of the arguments with the indices in `donate_argnums`, as in `jax.jit`.
    """
    chip = place_of(target)
    place = SingleDeviceSharding(chip.devices[0])
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), arguments)
    start = time.perf_counter()
    # Wrap in a new function, because JAX caches lowered code by function, even for another chip. Place the results of
    # a function without arrays, which would otherwise be compiled for this CPU. In other functions, placing a result
    # would make XLA keep a kernel that chooses the only way.
    results: Any = {} if jax.tree.leaves(shapes) else {"out_shardings": place}
    jitted = jax.jit(lambda *arrays: function(*arrays), donate_argnums=donate_argnums, **results)
    with without_mesh():
        traced = jitted.trace(*shapes)
        text = traced.lower().compile().as_text()
    seconds = time.perf_counter() - start
    steps = with_declared_costs(steps_of(text or ""), traced.jaxpr.jaxpr, chip.target.platform, 1)
    estimate = sum(chip.target.seconds(step.cost) for step in steps)
    cost = sum((step.cost for step in steps), Cost())
    return Compiled(cost, estimate, seconds, called_kernels(steps), calls_without_cost(steps))
