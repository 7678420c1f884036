"""ONNX Runtime's devices and memories: descriptions, because JAX chooses its device and allocates there itself."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime.arguments import require_type
from dmljax.run.onnxruntime.enumerations import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from dmljax.run.onnxruntime.providers import AVAILABLE, VERSION
from dmljax.text import show

_NUMBERS = {"cpu": 0, "cuda": 1, "dml": 4, "cann": 3, "fpga": 2, "gpu": 1, "npu": 3, "webgpu": 1}  # of devices' types
_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
    "webgpu": OrtDeviceVendorId.NONE,
}


def get_ort_device_type(device_type: str) -> int:
    """The number of a type of device."""
    if device_type not in _NUMBERS:
        with refusing("onnxruntime"):
            raise Unsupported(Problem("device_type", f"must be one of {', '.join(_NUMBERS)}", show(device_type)))
    return _NUMBERS[device_type]


def get_vendor_id_for_device_type(device_type: str) -> OrtDeviceVendorId | None:
    """The vendor of a type of device, if there is only one."""
    return _VENDORS.get(device_type)


class OrtDevice(Answering):
    """A device's type, kind of memory, vendor and index."""

    def __init__(self, device_type: int, memory_type: int, vendor_id: int, device_id: int | None = None) -> None:
        self._type = OrtDevice.gpu() if device_type == OrtDevice.dml() else device_type  # as ONNX Runtime tells it
        self._memory = memory_type
        self._vendor, self._index = (0, vendor_id) if device_id is None else (vendor_id, device_id)

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> "OrtDevice":
        """Makes the device of a name, such as cpu or dml."""
        require_type("device_id", device_id, int, np.integer)
        vendor = get_vendor_id_for_device_type(ort_device_name) or 0 if vendor_id < 0 else vendor_id
        return OrtDevice(get_ort_device_type(ort_device_name), OrtDevice.default_memory(), int(vendor), device_id)

    def device_type(self) -> int:
        return self._type

    def device_id(self) -> int:
        return self._index

    def device_mem_type(self) -> int:
        return self._memory

    mem_type = device_mem_type

    def device_vendor_id(self) -> int:
        return self._vendor

    vendor_id = device_vendor_id

    @staticmethod
    def default_memory() -> int:
        return int(OrtDeviceMemoryType.DEFAULT)

    @staticmethod
    def cpu() -> int:
        return _NUMBERS["cpu"]

    @staticmethod
    def gpu() -> int:
        return _NUMBERS["gpu"]

    cuda = webgpu = gpu

    @staticmethod
    def npu() -> int:
        return _NUMBERS["npu"]

    cann = npu

    @staticmethod
    def dml() -> int:
        return _NUMBERS["dml"]

    @staticmethod
    def fpga() -> int:
        return _NUMBERS["fpga"]


_MEMORIES = {"Cpu": 0, "Cuda": OrtDeviceVendorId.NVIDIA, "DML": OrtDeviceVendorId.MICROSOFT}  # and their vendors


class OrtMemoryInfo(Answering):
    """What a memory is called, which device has it, and how it is allocated."""

    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType = OrtMemType.DEFAULT
    ) -> None:
        require_type("allocator_type", allocator_type, OrtAllocatorType)
        require_type("mem_type", mem_type, OrtMemType)
        if name not in _MEMORIES:
            with refusing("onnxruntime"):
                rule = f"must be one of {', '.join(_MEMORIES)}"
                raise Unsupported(Problem("name", rule, show(name), remedy="create_v2 takes other names"))
        self._name, self._allocator, self._mem_type = name, allocator_type, mem_type
        self._index, self._vendor = 0 if name == "Cpu" else device_id, int(_MEMORIES[name])
        self._device_mem_type = OrtDeviceMemoryType.DEFAULT

    @classmethod
    def create_v2(
        cls,
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> "OrtMemoryInfo":
        """Describes the memory of any device."""
        require_type("device_type", device_type, OrtMemoryInfoDeviceType)
        require_type("device_mem_type", device_mem_type, OrtDeviceMemoryType)
        is_shared = device_mem_type == OrtDeviceMemoryType.HOST_ACCESSIBLE
        memory = cls("Cpu", allocator_type, 0, OrtMemType.CPU if is_shared else OrtMemType.DEFAULT)
        memory._name, memory._index, memory._vendor = name, device_id, vendor_id
        memory._device_mem_type = device_mem_type
        return memory

    @property
    def name(self) -> str:
        return self._name

    @property
    def device_id(self) -> int:
        return self._index

    @property
    def device_vendor_id(self) -> int:
        return self._vendor

    @property
    def device_mem_type(self) -> OrtDeviceMemoryType:
        return self._device_mem_type

    @property
    def mem_type(self) -> OrtMemType:
        return self._mem_type

    @property
    def allocator_type(self) -> OrtAllocatorType:
        return self._allocator


CPU_MEMORY = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0)  # where inputs and outputs are

_ARENA = {
    "max_mem": 0,
    "arena_extend_strategy": -1,
    "initial_chunk_size_bytes": -1,
    "max_dead_bytes_per_chunk": -1,
    "initial_growth_chunk_size_bytes": -1,
    "max_power_of_two_extend_bytes": -1,
}


class OrtArenaCfg(Answering):
    """Does nothing, because JAX allocates the memory."""

    max_mem: int
    arena_extend_strategy: int
    initial_chunk_size_bytes: int
    max_dead_bytes_per_chunk: int
    initial_growth_chunk_size_bytes: int
    max_power_of_two_extend_bytes: int

    def __init__(self, *settings: Any) -> None:
        entries = settings[0] if len(settings) == 1 else dict(zip(_ARENA, settings, strict=False))
        require_type("settings", entries, Mapping)
        with refusing("onnxruntime"):
            for name in entries:
                if name not in _ARENA:
                    raise InvalidDesc(Problem("settings", f"must be among {', '.join(_ARENA)}", show(name)))
        vars(self).update(_ARENA | entries)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _ARENA:
            getattr(type(self), name)  # raises
        vars(self)[name] = value


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None) -> None:
    """Does nothing, because JAX allocates the memory."""
    require_type("mem_info", mem_info, OrtMemoryInfo)
    require_type("arena_cfg", arena_cfg, OrtArenaCfg, type(None))


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg | None
) -> None:
    """Does nothing, because JAX allocates the memory."""
    create_and_register_allocator(mem_info, arena_cfg)


class OrtHardwareDevice(Answering):
    """A device that computes."""

    def __init__(self, device: Any) -> None:
        self._device = device

    @property
    def type(self) -> OrtHardwareDeviceType:
        kinds = {"cpu": OrtHardwareDeviceType.CPU, "tpu": OrtHardwareDeviceType.NPU}
        return kinds.get(self._device.platform, OrtHardwareDeviceType.GPU)

    @property
    def vendor(self) -> str:
        """The name of the platform's maker, which JAX does not tell."""
        return ""

    @property
    def vendor_id(self) -> int:
        return int(OrtDeviceVendorId.NONE)

    @property
    def device_id(self) -> int:
        return int(self._device.id)

    @property
    def metadata(self) -> dict[str, str]:
        return {"Description": self._device.device_kind}


class OrtEpDevice(Answering):
    """A device with a provider that computes on it."""

    _REFUSED: ClassVar[Mapping[str, str]] = {"create_sync_stream": "XLA orders its work itself"}

    def __init__(self, name: str, device: OrtHardwareDevice) -> None:
        self._name, self._device = name, device

    @property
    def ep_name(self) -> str:
        return self._name

    @property
    def ep_vendor(self) -> str:
        return "dmljax"

    @property
    def ep_metadata(self) -> dict[str, str]:
        return {"version": VERSION}

    @property
    def ep_options(self) -> dict[str, str]:
        return {}

    @property
    def device(self) -> OrtHardwareDevice:
        return self._device

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """The memory that a program may allocate there; JAX allocates it instead."""
        require_type("memory_type", memory_type, OrtDeviceMemoryType)
        return None


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The device that JAX computes on."""
    return [OrtHardwareDevice(jax.devices()[0])]


def get_ep_devices() -> list[OrtEpDevice]:
    """The providers that dmljax stands for, on the device that JAX computes on."""
    (device,) = get_hardware_devices()
    return [OrtEpDevice(name, device) for name in AVAILABLE]
