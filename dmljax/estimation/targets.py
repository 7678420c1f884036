"""Chips for which XLA can compile on a CPU, and the time of programs at their peak rates.

The extra `accelerators` installs the compilers.
"""

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, resources
from importlib.util import find_spec
from string import Template
from typing import Any, NamedTuple

import jax
from jax.sharding import SingleDeviceSharding

from dmljax.errors import InvalidDesc, Problem, Unsupported, require
from dmljax.estimation.cost import Cost, called_kernels, steps_of
from dmljax.estimation.exchange import Exchange
from dmljax.foundation.extras import command_for
from dmljax.text import did_you_mean, one_line

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

# What an H100 took: a kernel in a chain of 100 (tests/benchmarks/RESULTS.md), and an iteration of a loop besides
SECONDS_PER_KERNEL = 1e-6
SECONDS_PER_ITERATION = 9e-6
COPIED = 2.8 / 3.35232  # the fraction of a GPU's memory bandwidth that copies reach
SUSTAINED = 1.7 / 1.98  # the fraction of its boost clock that it keeps
PREALLOCATED = 0.75  # the fraction of a GPU's memory that JAX takes, unless XLA_PYTHON_CLIENT_MEM_FRACTION says more


class Times(NamedTuple):
    """The minimum seconds that a cost takes, by what bounds them."""

    launches: float = 0
    memory: float = 0
    arithmetic: float = 0
    exchange: float = 0


def sum_of_times(times: Iterable[Times]) -> Times:
    """Adds the parts of each."""
    return Times(*(sum(parts) for parts in zip(Times(), *times, strict=True)))


class Gpu(NamedTuple):
    """The properties of a GPU, most of which XLA needs to know."""

    name: str
    cores: int
    lanes: int  # per core
    shared_kib: int
    cache_mib: float
    major: int  # major version of the compute capability
    features: str = "ACCELERATED_FEATURES"
    doubles_per_second: float = math.inf  # of matrix products in float64, if fewer than in float32
    machine: int = 8  # GPUs that NVLink connects
    network_per_second: float = 50e9  # bytes from other machines


class Tpu(NamedTuple):
    """The properties of a TPU: XLA's name of it, and its vector units' lanes, of which each computes an operation."""

    name: str
    lanes: int
    config: str = "default"
    devices: int = 1  # of a chip, each with its own part of the memory


@dataclass(frozen=True)
class Target:
    """A chip and its maker's figures."""

    topology: str  # the smallest with this chip
    memory: float  # bytes
    bytes_per_second: float  # to and from its memory
    halves_per_second: float  # 16-bit operations of matrix products
    exchanged_per_second: float  # bytes from other chips: half the published figure, which counts both directions
    clock: float  # in Hz; for a TPU, derived from its peak rate and the size of its matrix units
    kind: Gpu | Tpu

    @property
    def gpu(self) -> Gpu | None:
        return self.kind if isinstance(self.kind, Gpu) else None

    @property
    def platform(self) -> str:
        return "cuda" if self.gpu else "tpu"

    @property
    def usable_memory(self) -> int:
        """The bytes that programs have."""
        return int(self.memory * (PREALLOCATED if self.gpu else 1))

    @property
    def element_rate(self) -> float:
        """The elementwise operations per second."""
        return (self.kind.cores * self.kind.lanes if isinstance(self.kind, Gpu) else self.kind.lanes) * self.clock

    def products_per_second(self, bits: int, is_full: bool = False) -> float:
        """The peak rate of products of factors with this many bits, at JAX's default precision or at full precision.

        By default, JAX rounds float32 factors to TF32 on a GPU and to bfloat16 on a TPU. At full precision, a GPU
        multiplies elementwise, and a TPU multiplies six pairs of bfloat16 parts.
        """
        if self.gpu is None:
            return self.halves_per_second / (6 if is_full else 1 if bits > 8 else 0.5)
        if bits > 32:
            return min(2 * self.element_rate, self.gpu.doubles_per_second)
        return 2 * self.element_rate if is_full else self.halves_per_second * 16 / max(bits, 8)

    def seconds(self, cost: Cost) -> float:
        """Estimates the seconds of a kernel, to compare programs by the sum over their kernels.

        A TPU's compiler expects cycles, and none for Pallas kernels.
        """
        if self.gpu is None:
            declared = cost.declared / self.halves_per_second
            return cost.cycles / self.clock + max(cost.unestimated_bytes / self.bytes_per_second, declared)
        memory = cost.bytes / (COPIED * self.bytes_per_second)
        elements = cost.element_operations / (SUSTAINED * self.element_rate)
        return self._launches(cost) + max(memory + elements, sum(self._products(cost)))

    def times(self, cost: Cost) -> Times:
        """The minimum times of a kernel at the peak rates; the longest of them bounds the kernel."""
        on_lanes, on_matrix_units = self._products(cost)
        return Times(
            self._launches(cost),
            cost.bytes / self.bytes_per_second,
            max(cost.element_operations / self.element_rate + on_lanes, on_matrix_units),
            cost.linked / self.exchanged_per_second,
        )

    def _launches(self, cost: Cost) -> float:
        of_gpu = cost.kernels * SECONDS_PER_KERNEL + cost.iterations * SECONDS_PER_ITERATION
        return of_gpu if self.gpu else 0

    def _products(self, cost: Cost) -> tuple[float, float]:
        """The seconds of products on a GPU's lanes, and on matrix units."""
        if self.gpu is None:
            return 0, cost.passes / self.halves_per_second
        on_lanes = (cost.full_products - cost.doubles) / self.products_per_second(32, True)
        return on_lanes, cost.halves / self.halves_per_second + cost.doubles / self.products_per_second(64)


def _hopper(name: str, memory: float, bytes_per_second: float) -> Target:
    gpu = Gpu(name, 132, 128, shared_kib=228, cache_mib=50, major=9)
    return Target("1x1x1", memory, bytes_per_second, 989.17e12, 450e9, 1.98e9, gpu)


def _ampere(name: str, memory: float, bytes_per_second: float) -> Target:
    gpu = Gpu(name, 108, 64, shared_kib=164, cache_mib=40, major=8, features="NONE", network_per_second=25e9)
    return Target("1x1x1", memory, bytes_per_second, 311.87e12, 300e9, 1.41e9, gpu)


# GPUs: as XLA describes them (openxla/xla, xla/backends/gpu/target_config/specs), all but the PCIe versions. The rates
# of matrix products follow from that, without sparsity: 132 cores x 4 units x 1024 operations x 1.8295 GHz on an H100,
# and 108 x 4 x 512 x 1.41 GHz on an A100; those of a B200 and a GB200, and of their memory, are NVIDIA's. NVLink has 18
# links of 25 GB/s, 12 of 25 and 18 of 50, and each GPU of a DGX a network adapter of 400 Gbit/s, or 200 with an A100
# (https://jax-ml.github.io/scaling-book/gpus).
# TPUs: as Google gives them (https://docs.cloud.google.com/tpu/docs/v4, v5e, v5p, v6e and tpu7x), but for the memory,
# which is what libtpu leaves to a program. The clocks of v5p and v6e follow from their peak rates and the sizes of
# their matrix units; that of v7x is what libtpu expects. Each core has four vector units of 8 x 128 lanes
# (https://jax-ml.github.io/scaling-book/tpus).
TARGETS: Mapping[str, Target] = {
    "h100": _hopper("NVIDIA H100 80GB HBM3", 84942979072, 3.35232e12),
    "h200": _hopper("NVIDIA H200 141GB HBM3e", 151397597184, 4.8e12),
    "a100": _ampere("NVIDIA A100-SXM4-80GB", 85100068864, 2.03904e12),
    "a100-40": _ampere("NVIDIA A100-SXM4-40GB", 42331013120, 1.5552e12),
    "b200": Target(
        *("1x1x1", 191514411008, 8e12, 2250e12, 900e9, 1.965e9),
        Gpu("NVIDIA B200", 148, 128, shared_kib=228, cache_mib=126.5, major=10, doubles_per_second=40e12),
    ),
    "gb200": Target(
        *("1x1x1", 197897748480, 8e12, 2500e12, 900e9, 2.062e9),
        Gpu("NVIDIA GB200", 152, 128, shared_kib=228, cache_mib=129.25, major=10, doubles_per_second=40e12, machine=72),
    ),
    "v4": Target("2x2x1", 30.75 * 2**30, 1228e9, 275e12, 300e9, 1.05e9, Tpu("v4", 8192, "megacore")),
    "v5e": Target("2x2", 15.75 * 2**30, 819e9, 197e12, 200e9, 1.5e9, Tpu("v5e", 4096)),
    "v5p": Target("2x2x1", 95.74 * 2**30, 2765e9, 459e12, 600e9, 1.75e9, Tpu("v5p", 8192)),
    "v6e": Target("2x2", 31.25 * 2**30, 1638e9, 918e12, 400e9, 1.75e9, Tpu("v6e", 4096)),
    # A device is half of a chip, as for JAX.
    "v7x": Target("2x2x1", 94.75 * 2**30, 3690e9, 1153.5e12, 300e9, 1.9e9, Tpu("tpu7x", 4096, devices=2)),
}


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
            between = exchange.received(lambda chip: chip // gpu.machine)
            return max(exchange.received(), between * self.target.exchanged_per_second / gpu.network_per_second)
        places = [tuple(device.coords) for device in self.devices]
        axes = range(len(_sizes_in(self.target.topology)))
        used = [axis for axis in axes if any(len({places[i][axis] for i in group}) > 1 for group in exchange.groups)]
        links = sum(min(len({place[axis] for place in places}) - 1, 2) for axis in used)
        return exchange.received(places.__getitem__) * 2 * len(axes) / max(links, 1)


def chips_of(name: str, *others: str) -> tuple[str, tuple[int, ...]]:
    """A chip of `TARGETS` or of `others`, and how many there are: `v5e:4x4` and `v5e:16` mean `("v5e", (4, 4))`."""
    chip, colon, sizes = name.partition(":")
    known = (*others, *TARGETS)
    if chip not in known:
        remedy = f"choose {', '.join(known)}, or several chips such as h100:8, v5e:16 or v5e:4x4"
        raise InvalidDesc(Problem((), f"unknown chip {chip!r}{did_you_mean(chip, known)}", remedy=remedy))
    smallest = () if chip in others or TARGETS[chip].gpu else _sizes_in(TARGETS[chip].topology)
    rank = len(smallest) or 1
    form = "x".join("4" * rank)
    is_sized = re.fullmatch(r"[1-9]\d{0,3}" + r"x[1-9]\d{0,3}" * (rank - 1), sizes) is not None
    usual = _usual_slices(smallest)
    largest = ", at most 16x16" if rank == 2 else ""
    counts = f"{largest}, or be one of {chip}:{', '.join(map(str, usual))}" if usual else ""
    rule = f"must be written like {chip}:{form}{counts}"
    is_sized = is_sized and (rank != 2 or max(_sizes_in(sizes)) <= 16)  # or else libtpu aborts
    require("target", not colon or is_sized or sizes in map(str, usual), rule, repr(name))
    if not colon:
        return chip, ()
    return chip, _sizes_in(sizes) if is_sized else usual[int(sizes)]


def _sizes_in(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


_LARGEST_SLICES = {2: 256, 3: 4096}  # chips that are powers of two, by the dimensions of a topology


def _usual_slices(smallest: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """The topology of each number of TPUs that is a power of two: the most cubic, as clouds offer it."""
    rank, least = len(smallest), math.prod(smallest)
    found = {least: smallest} if rank > 1 else {}
    for count in (2**i for i in range(least.bit_length(), _LARGEST_SLICES.get(rank, 0).bit_length())):
        exponent = count.bit_length() - 1
        found[count] = tuple(2 ** ((exponent + i) // rank) for i in range(rank))
    return found


@cache
def place_of(name: str) -> Place:
    """The chips for a name: `h100`, `h100:8` in a machine, `h100:16` in two, `v5e`, or `v5e:4x4` in a slice."""
    chip, sizes = chips_of(name)
    target = TARGETS[chip]
    if gpu := target.gpu:
        rule = f"must be at most {gpu.machine} GPUs of a machine, or several machines of as many"
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

    kind = target.kind
    try:
        if isinstance(kind, Tpu):
            shape = "x".join(map(str, sizes)) or target.topology
            options = {"chip_config_name": kind.config}
            return topologies.get_topology_desc(f"{kind.name}:{shape}", platform="tpu", **options).devices
        count = math.prod(sizes)
        options = {
            "topology": f"{max(count // kind.machine, 1)}x1x{min(count, kind.machine)}",
            "target_config": gpu_config(target, kind),
        }
        try:
            return topologies.get_topology_desc("", platform="cuda", **options).devices
        except NotImplementedError:  # JAX refused the plugin when it looked for the chips of this machine
            import_module(PLUGIN).initialize()
            return topologies.get_topology_desc("", platform="cuda", **options).devices
    except Exception as error:  # JAX's runtime errors and ValueErrors, which are long
        reason = one_line(str(error).splitlines()[0])
        usual = ", ".join(map(str, _usual_slices(_sizes_in(target.topology))))
        remedy = f"{name.partition(':')[0]}:{usual} work" if usual and target.gpu is None else None
        raise Unsupported(Problem("target", f"XLA has no topology {name}: {reason}", remedy=remedy)) from None


def gpu_config(target: Target, gpu: Gpu) -> str:
    """XLA's GpuTargetConfigProto as text."""
    facts = {
        "shared": gpu.shared_kib * 2**10,
        "optin": (gpu.shared_kib - 1) * 2**10,  # a block may use all but one KiB
        "cache": int(gpu.cache_mib * 2**20),
        "memory": int(target.memory),
        "bandwidth": int(target.bytes_per_second),
        "ghz": target.clock / 1e9,
    }
    text = resources.files("dmljax.estimation").joinpath("gpu.txtpb").read_text()
    return Template(text).substitute(gpu._asdict() | facts)


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a function for a target."""

    cost: Cost
    estimated_seconds: float
    compile_seconds: float
    called: tuple[str, ...]  # Pallas kernels


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
    lowered = jitted.lower(*shapes)
    text = lowered.compile().as_text()
    seconds = time.perf_counter() - start
    steps = steps_of(text or "")
    estimated = sum(chip.target.seconds(step.cost) for step in steps)
    return Compiled(sum((step.cost for step in steps), Cost()), estimated, seconds, called_kernels(steps))
