"""Chips, and the time of programs at their peak rates."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import NamedTuple

from dmljax.errors import InvalidDesc, Problem, require
from dmljax.estimation.hlo.cost import Cost
from dmljax.text import did_you_mean

# Measured on an H100 (tests/benchmarks/RESULTS.md): a kernel in a chain, and the extra time of a loop's iteration
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
    smallest: tuple[int, ...]  # slice
    lanes: int
    config: str = "default"
    devices: int = 1  # of a chip, each with its own part of the memory


@dataclass(frozen=True)
class Target:
    """A chip and its maker's figures."""

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
    def smallest(self) -> tuple[int, ...]:
        """The sizes of the smallest slice of TPUs; empty for GPUs."""
        return self.kind.smallest if isinstance(self.kind, Tpu) else ()

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
        at_once = 2 if self.gpu else 1  # a lane of a GPU multiplies and adds
        return Times(
            self._launches(cost),
            cost.bytes / self.bytes_per_second,
            max(cost.element_operations / (self.element_rate * at_once) + on_lanes, on_matrix_units),
            cost.linked / self.exchanged_per_second,
        )

    def _launches(self, cost: Cost) -> float:
        seconds = cost.kernels * SECONDS_PER_KERNEL + cost.iterations * SECONDS_PER_ITERATION
        return seconds if self.gpu else 0

    def _products(self, cost: Cost) -> tuple[float, float]:
        """The seconds of products on a GPU's lanes, and on matrix units."""
        if self.gpu is None:
            return 0, cost.passes / self.halves_per_second
        on_lanes = (cost.full_products - cost.doubles) / self.products_per_second(32, True)
        on_lanes += cost.integer_products / self.element_rate  # half of the lanes multiply integers
        return on_lanes, cost.halves / self.halves_per_second + cost.doubles / self.products_per_second(64)


def _hopper(name: str, memory: float, bytes_per_second: float) -> Target:
    gpu = Gpu(name, 132, 128, shared_kib=228, cache_mib=50, major=9)
    return Target(memory, bytes_per_second, 989.17e12, 450e9, 1.98e9, gpu)


def _ampere(name: str, memory: float, bytes_per_second: float) -> Target:
    gpu = Gpu(name, 108, 64, shared_kib=164, cache_mib=40, major=8, features="NONE", network_per_second=25e9)
    return Target(memory, bytes_per_second, 311.87e12, 300e9, 1.41e9, gpu)


# GPUs: as XLA describes them (openxla/xla, xla/backends/gpu/target_config/specs), all but the PCIe versions. The rates
# of matrix products follow from that, without sparsity: 132 cores x 4 units x 1024 operations x 1.8295 GHz on an H100,
# and 108 x 4 x 512 x 1.41 GHz on an A100; NVIDIA publishes those of a B200 and a GB200. NVLink has 18 links of 25 GB/s
# on Hopper, 12 of 25 on Ampere and 18 of 50 on Blackwell. Each GPU of a DGX has a network adapter of 400 Gbit/s, or of
# 200 with an A100 (https://jax-ml.github.io/scaling-book/gpus).
# TPUs: as Google gives them (https://docs.cloud.google.com/tpu/docs/v4, v5e, v5p, v6e and tpu7x), but for the memory,
# which is what libtpu leaves to a program. The clocks of v5p and v6e follow from their peak rates and the sizes of
# their matrix units; libtpu expects the one of v7x. Each core has four vector units of 8 x 128 lanes
# (https://jax-ml.github.io/scaling-book/tpus).
TARGETS: Mapping[str, Target] = {
    "h100": _hopper("NVIDIA H100 80GB HBM3", 84942979072, 3.35232e12),
    "h200": _hopper("NVIDIA H200 141GB HBM3e", 151397597184, 4.8e12),
    "a100": _ampere("NVIDIA A100-SXM4-80GB", 85100068864, 2.03904e12),
    "a100-40": _ampere("NVIDIA A100-SXM4-40GB", 42331013120, 1.5552e12),
    "b200": Target(
        *(191514411008, 8e12, 2250e12, 900e9, 1.965e9),
        Gpu("NVIDIA B200", 148, 128, shared_kib=228, cache_mib=126.5, major=10, doubles_per_second=40e12),
    ),
    "gb200": Target(
        *(197897748480, 8e12, 2500e12, 900e9, 2.062e9),
        Gpu("NVIDIA GB200", 152, 128, shared_kib=228, cache_mib=129.25, major=10, doubles_per_second=40e12, machine=72),
    ),
    "v4": Target(30.75 * 2**30, 1228e9, 275e12, 300e9, 1.05e9, Tpu("v4", (2, 2, 1), 8192, "megacore")),
    "v5e": Target(15.75 * 2**30, 819e9, 197e12, 200e9, 1.5e9, Tpu("v5e", (2, 2), 4096)),
    "v5p": Target(95.74 * 2**30, 2765e9, 459e12, 600e9, 1.75e9, Tpu("v5p", (2, 2, 1), 8192)),
    "v6e": Target(31.25 * 2**30, 1638e9, 918e12, 400e9, 1.75e9, Tpu("v6e", (2, 2), 4096)),
    # A device is half of a chip, as for JAX.
    "v7x": Target(94.75 * 2**30, 3690e9, 1153.5e12, 300e9, 1.9e9, Tpu("tpu7x", (2, 2, 1), 4096, devices=2)),
}


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


def chips_of(name: str, *others: str) -> tuple[str, tuple[int, ...]]:
    """A chip of `TARGETS` or of `others`, and how many there are: `v5e:4x4` and `v5e:16` mean `("v5e", (4, 4))`."""
    chip, colon, sizes = name.partition(":")
    known = (*others, *TARGETS)
    if chip not in known:
        remedy = f"choose {', '.join(known)}, or several chips such as h100:8, v5e:16 or v5e:4x4"
        raise InvalidDesc(Problem((), f"unknown chip {chip!r}{did_you_mean(chip, known)}", remedy=remedy))
    smallest = () if chip in others else TARGETS[chip].smallest
    rank = len(smallest) or 1
    form = "x".join("4" * rank)
    is_sized = re.fullmatch(r"[1-9]\d{0,3}" + r"x[1-9]\d{0,3}" * (rank - 1), sizes) is not None
    usual = usual_slices(smallest)
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


def usual_slices(smallest: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """The topology of each number of TPUs that is a power of two: the most cubic, as clouds offer it."""
    rank, least = len(smallest), math.prod(smallest)
    slices = {least: smallest} if rank > 1 else {}
    for count in (2**i for i in range(least.bit_length(), _LARGEST_SLICES.get(rank, 0).bit_length())):
        exponent = count.bit_length() - 1
        slices[count] = tuple(2 ** ((exponent + i) // rank) for i in range(rank))
    return slices
