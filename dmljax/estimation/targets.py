"""Chips for which XLA can compile on a CPU, and the time of programs at their peak rates.

The extra `accelerators` installs the compilers.
"""

import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
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

GPUS = 8  # of a machine

SECONDS_PER_KERNEL = 1.5e-6  # launch overhead on a GPU; an H100 took 1e-6 in a chain of 100 kernels
COPIED = 2.8 / 3.35232  # the fraction of a GPU's memory bandwidth that copies reach
SUSTAINED = 1.7 / 1.98  # the fraction of its boost clock that it keeps


class Times(NamedTuple):
    """The minimum seconds that a cost takes, by what bounds them."""

    launches: float = 0
    memory: float = 0
    arithmetic: float = 0
    exchange: float = 0


class Gpu(NamedTuple):
    """The properties of a GPU that XLA needs to know."""

    name: str
    cores: int
    lanes: int  # per core
    shared_kib: int
    cache_mib: float
    major: int  # major version of the compute capability
    features: str = "ACCELERATED_FEATURES"


@dataclass(frozen=True)
class Target:
    """A chip and its maker's figures."""

    platform: str
    topology: str  # the smallest with this chip
    memory: float  # bytes
    bytes_per_second: float  # to and from its memory
    halves_per_second: float  # 16-bit operations of matrix products
    exchanged_per_second: float  # bytes from other chips: half the published figure, which counts both directions
    clock: float  # in Hz; for a TPU, derived from its peak rate and the size of its matrix units
    gpu: Gpu | None = None

    @property
    def element_rate(self) -> float:
        """The elementwise operations of a GPU per second."""
        return self.gpu.cores * self.gpu.lanes * self.clock if self.gpu else math.inf

    def products_per_second(self, bits: int, is_full: bool = False) -> float:
        """The peak rate of products of factors with this many bits, at JAX's default precision or at full precision.

        By default, JAX rounds float32 factors to TF32 on a GPU and to bfloat16 on a TPU. At full precision, a GPU
        multiplies elementwise, and a TPU multiplies six pairs of bfloat16 parts.
        """
        if self.gpu is None:
            return self.halves_per_second / (6 if is_full else 1 if bits > 8 else 0.5)
        return 2 * self.element_rate if is_full or bits > 32 else self.halves_per_second * 16 / max(bits, 8)

    def seconds(self, cost: Cost) -> float:
        """Estimates the seconds of a kernel, to compare programs by the sum over their kernels."""
        if self.gpu is None:
            declared = cost.declared / self.halves_per_second
            return cost.cycles / self.clock + max(cost.unestimated_bytes / self.bytes_per_second, declared)
        memory = cost.bytes / (COPIED * self.bytes_per_second)
        elements = cost.element_operations / (SUSTAINED * self.element_rate)
        products = cost.full_products / self.products_per_second(32, True) + cost.halves / self.halves_per_second
        return cost.kernels * SECONDS_PER_KERNEL + max(memory + elements, products)

    def times(self, cost: Cost) -> Times:
        """The minimum times of a kernel at the peak rates; the longest of them bounds the kernel.

        A TPU's compiler estimates cycles itself. We attribute them to memory if it needs at least half of them, and to
        arithmetic otherwise.
        """
        memory = cost.bytes / self.bytes_per_second
        exchange = cost.exchanged / self.exchanged_per_second
        if self.gpu is None:
            expected = self.seconds(cost)
            return Times(0, expected, 0, exchange) if 2 * memory >= expected else Times(0, 0, expected, exchange)
        elements = cost.element_operations + cost.full_products / 2  # a lane computes a multiply-add at once
        arithmetic = max(elements / self.element_rate, cost.halves / self.halves_per_second)
        return Times(cost.kernels * SECONDS_PER_KERNEL, memory, arithmetic, exchange)


# GPUs: as XLA describes the H100 SXM, the A100 SXM and the B200 (openxla/xla, xla/backends/gpu/target_config/specs).
# The rates of their matrix products follow from that, without sparsity: 132 cores x 4 units x 1024 operations x 1.8295
# GHz on an H100, and 108 x 4 x 512 x 1.41 GHz on an A100; those of a B200 and of its memory are NVIDIA's. NVLink has 18
# links of 25 GB/s, 12 of 25 and 18 of 50 (https://jax-ml.github.io/scaling-book/gpus).
# TPUs: as Google gives them (https://docs.cloud.google.com/tpu/docs/v5e, v5p and v6e), except for the memory, which is
# what libtpu leaves to a program. The clocks of v5p and v6e follow from their peak rates and the sizes of their matrix
# units.
TARGETS: Mapping[str, Target] = {
    "h100": Target(
        *("cuda", "1x1x1"),
        memory=84942979072,
        bytes_per_second=3.35232e12,
        halves_per_second=989.17e12,
        exchanged_per_second=450e9,
        clock=1.98e9,
        gpu=Gpu("NVIDIA H100 80GB HBM3", 132, 128, shared_kib=228, cache_mib=50, major=9),
    ),
    "a100": Target(
        *("cuda", "1x1x1"),
        memory=85100068864,
        bytes_per_second=2.03904e12,
        halves_per_second=311.87e12,
        exchanged_per_second=300e9,
        clock=1.41e9,
        gpu=Gpu("NVIDIA A100-SXM4-80GB", 108, 64, shared_kib=164, cache_mib=40, major=8, features="NONE"),
    ),
    "b200": Target(
        *("cuda", "1x1x1"),
        memory=191514411008,
        bytes_per_second=8e12,
        halves_per_second=2250e12,
        exchanged_per_second=900e9,
        clock=1.965e9,
        gpu=Gpu("NVIDIA B200", 148, 128, shared_kib=228, cache_mib=126.5, major=10),
    ),
    "v5e": Target("tpu", "2x2", 15.75 * 2**30, 819e9, 197e12, 200e9, 1.5e9),
    "v5p": Target("tpu", "2x2x1", 95.74 * 2**30, 2765e9, 459e12, 600e9, 1.75e9),
    "v6e": Target("tpu", "2x2", 31.25 * 2**30, 1638e9, 918e12, 400e9, 1.75e9),
}


class Place(NamedTuple):
    """One or more identical chips, such as `h100:8`."""

    name: str
    target: Target
    devices: tuple[Any, ...]  # for compiling only


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
    """The chips for a name: `h100`, `h100:8` in one node, `v5e`, `v5e:16` or `v5e:4x4` in a slice."""
    chip, sizes = chips_of(name)
    target = TARGETS[chip]
    rule, remedy = f"must be at most {GPUS} GPUs, which share a machine's NVLink", f"{chip}:{GPUS}"
    require("target", target.gpu is None or math.prod(sizes) <= GPUS, rule, repr(name), remedy=remedy)
    module = MODULES[target.platform]
    if find_spec(module) is None:
        rule = f"the compiler for {chip} is not installed: no {module}"
        raise Unsupported(Problem((), rule, remedy=f"{command_for('accelerators')}, in an environment of its own"))
    jax.default_backend()  # JAX looks for the chips of this machine before the environment changes
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    devices = _devices(name, chip, target, "x".join(map(str, sizes)))
    count = math.prod(sizes)
    require("target", len(devices) >= count, f"too few chips for {name}", len(devices))
    return Place(name, target, tuple(devices[:count]))


def _devices(name: str, chip: str, target: Target, sizes: str) -> Any:
    from jax.experimental import topologies  # slow to import

    try:
        if target.gpu is None:
            return topologies.get_topology_desc(f"{chip}:{sizes or target.topology}", platform="tpu").devices
        options = {
            "topology": f"1x1x{sizes}" if sizes else target.topology,
            "target_config": gpu_config(target, target.gpu),
        }
        try:
            return topologies.get_topology_desc("", platform="cuda", **options).devices
        except NotImplementedError:  # JAX refused the plugin when it looked for the chips of this machine
            import_module(PLUGIN).initialize()
            return topologies.get_topology_desc("", platform="cuda", **options).devices
    except Exception as error:  # JAX's runtime errors and ValueErrors, which are long
        reason = one_line(str(error).splitlines()[0])
        usual = ", ".join(map(str, _usual_slices(_sizes_in(target.topology))))
        remedy = f"{chip}:{usual} work" if usual and target.gpu is None else None
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
