"""Stands in for `import onnxruntime`: sessions, bindings, values and options.

Names, and the types and shapes of results, match ONNX Runtime's Python interface. dmljax replaces its DirectML
provider.
"""

import sys as _sys
from importlib import import_module as _import_module
from typing import Any as _Any

from dmljax.run import INSTALLED_PARTS as _INSTALLED_PARTS
from dmljax.run.answers import absent as _absent, absent_from as _absent_from
from dmljax.run.onnxruntime import capi as capi
from dmljax.run.onnxruntime.binding import IOBinding as IOBinding
from dmljax.run.onnxruntime.capi.adapters import AdapterFormat as AdapterFormat, LoraAdapter as LoraAdapter
from dmljax.run.onnxruntime.devices import (
    OrtArenaCfg as OrtArenaCfg,
    OrtDevice as OrtDevice,
    OrtEpDevice as OrtEpDevice,
    OrtHardwareDevice as OrtHardwareDevice,
    OrtMemoryInfo as OrtMemoryInfo,
    create_and_register_allocator as create_and_register_allocator,
    create_and_register_allocator_v2 as create_and_register_allocator_v2,
    get_ep_devices as get_ep_devices,
)
from dmljax.run.onnxruntime.enumerations import (
    ExecutionMode as ExecutionMode,
    ExecutionOrder as ExecutionOrder,
    GraphOptimizationLevel as GraphOptimizationLevel,
    OrtAllocatorType as OrtAllocatorType,
    OrtDeviceMemoryType as OrtDeviceMemoryType,
    OrtDeviceVendorId as OrtDeviceVendorId,
    OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType as OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType as OrtMemoryInfoDeviceType,
    OrtMemType as OrtMemType,
)
from dmljax.run.onnxruntime.environment import (
    disable_telemetry_events as disable_telemetry_events,
    enable_telemetry_events as enable_telemetry_events,
    get_all_providers as get_all_providers,
    get_available_providers as get_available_providers,
    get_build_info as get_build_info,
    get_device as get_device,
    get_version_string as get_version_string,
    has_collective_ops as has_collective_ops,
    preload_dlls as preload_dlls,
    print_debug_info as print_debug_info,
    set_default_logger_callback as set_default_logger_callback,
    set_default_logger_severity as set_default_logger_severity,
    set_default_logger_verbosity as set_default_logger_verbosity,
    set_global_thread_pool_sizes as set_global_thread_pool_sizes,
)
from dmljax.run.onnxruntime.options import RunOptions as RunOptions, SessionOptions as SessionOptions
from dmljax.run.onnxruntime.providers import VERSION as _VERSION
from dmljax.run.onnxruntime.refusals import REFUSED as _REFUSED
from dmljax.run.onnxruntime.session import (
    InferenceSession as InferenceSession,
    ModelMetadata as ModelMetadata,
    NodeArg as NodeArg,
    set_seed as set_seed,
)
from dmljax.run.onnxruntime.values import OrtValue as OrtValue, copy_tensors as copy_tensors

__version__ = version = _VERSION  # of the interface
package_name, cuda_version = "onnxruntime-directml", ""
_refuse = _absent_from(__name__, _REFUSED)


def __getattr__(name: str) -> _Any:
    if name not in _INSTALLED_PARTS["onnxruntime"]:
        return _refuse(name)
    if _sys.modules.get("onnxruntime") is not _sys.modules[__name__]:  # importing it would import ONNX Runtime itself
        reason = "it is ONNX Runtime's own Python, over dmljax's sessions with python -m dmljax.run program.py"
        raise _absent("onnxruntime", name, reason)
    return _import_module(f"onnxruntime.{name}")
