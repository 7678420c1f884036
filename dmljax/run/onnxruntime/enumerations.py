"""ONNX Runtime's enumerations, which are also numbers."""

from enum import EnumMeta, IntEnum
from typing import Any

from dmljax.run.answers import absent


class _Named(EnumMeta):
    """Raises with a hint if an enumeration does not have a name."""

    def __getattr__(cls, name: str) -> Any:
        members = vars(cls).get("_member_map_", {})
        if name in members:
            return members[name]
        raise absent(f"onnxruntime.{cls.__name__}", name, known=members)


class _Enumeration(IntEnum, metaclass=_Named):
    """An enumeration that prints as ONNX Runtime's do."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class GraphOptimizationLevel(_Enumeration):
    """Does nothing, because XLA always compiles the whole graph."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Enumeration):
    """Does nothing, because XLA schedules the nodes."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Enumeration):
    """Does nothing, because XLA schedules the nodes."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(_Enumeration):
    """How memory is allocated; JAX allocates all of it."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class ArenaExtendStrategy(_Enumeration):
    """Does nothing, because JAX allocates the memory."""

    kNextPowerOfTwo = 0  # noqa: N815  # ONNX Runtime's names
    kSameAsRequested = 1  # noqa: N815


class OrtMemType(_Enumeration):
    """Whether memory is for a program on the CPU or for its device."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(_Enumeration):
    """Whether the CPU may access a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(_Enumeration):
    """The kinds of devices that have memory."""

    CPU = 0
    GPU = 1
    NPU = 3
    FPGA = 2


class OrtHardwareDeviceType(_Enumeration):
    """The kinds of devices that compute; a TPU is an NPU."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtExecutionProviderDevicePolicy(_Enumeration):
    """Does nothing, because JAX chooses the device."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtDeviceVendorId(IntEnum):
    """The numbers of those who make devices."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086
