"""The names of ONNX Runtime's compiled module, from which programs import its errors, options and values."""

from dmljax.run.answers import absent_from
from dmljax.run.onnxruntime.capi.adapters import LoraAdapter as LoraAdapter
from dmljax.run.onnxruntime.capi.block_quantization import (
    quantize_matmul_2bits as quantize_matmul_2bits,
    quantize_matmul_4bits as quantize_matmul_4bits,
    quantize_matmul_8bits as quantize_matmul_8bits,
    quantize_qdq_matmul_4bits as quantize_qdq_matmul_4bits,
)
from dmljax.run.onnxruntime.devices import (
    OrtArenaCfg as OrtArenaCfg,
    OrtDevice as OrtDevice,
    OrtEpDevice as OrtEpDevice,
    OrtHardwareDevice as OrtHardwareDevice,
    OrtMemoryInfo as OrtMemoryInfo,
    create_and_register_allocator as create_and_register_allocator,
    create_and_register_allocator_v2 as create_and_register_allocator_v2,
    get_ep_devices as get_ep_devices,
    get_hardware_devices as get_hardware_devices,
)
from dmljax.run.onnxruntime.enumerations import (
    ArenaExtendStrategy as ArenaExtendStrategy,
    ExecutionMode as ExecutionMode,
    ExecutionOrder as ExecutionOrder,
    GraphOptimizationLevel as GraphOptimizationLevel,
    OrtAllocatorType as OrtAllocatorType,
    OrtDeviceMemoryType as OrtDeviceMemoryType,
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
    set_default_logger_callback as set_default_logger_callback,
    set_default_logger_severity as set_default_logger_severity,
    set_default_logger_verbosity as set_default_logger_verbosity,
    set_global_thread_pool_sizes as set_global_thread_pool_sizes,
)
from dmljax.run.onnxruntime.errors import (
    DeviceReset as DeviceReset,
    EngineError as EngineError,
    EPFail as EPFail,
    Fail as Fail,
    InvalidArgument as InvalidArgument,
    InvalidGraph as InvalidGraph,
    InvalidProtobuf as InvalidProtobuf,
    ModelLoadCanceled as ModelLoadCanceled,
    ModelLoaded as ModelLoaded,
    ModelRequiresCompilation as ModelRequiresCompilation,
    NoModel as NoModel,
    NoSuchFile as NoSuchFile,
    NotFound as NotFound,
    NotImplemented as NotImplemented,
    RuntimeException as RuntimeException,
)
from dmljax.run.onnxruntime.options import RunOptions as RunOptions, SessionOptions as SessionOptions
from dmljax.run.onnxruntime.refusals import REFUSED
from dmljax.run.onnxruntime.session import (
    ModelMetadata as ModelMetadata,
    NodeArg as NodeArg,
    set_seed as set_seed,
)
from dmljax.run.onnxruntime.values import OrtValue as OrtValue, copy_tensors as copy_tensors

kNextPowerOfTwo, kSameAsRequested = ArenaExtendStrategy  # noqa: N816  # ONNX Runtime's names
__getattr__ = absent_from(__name__, REFUSED)


def get_default_session_options() -> SessionOptions:
    """New options with their defaults."""
    return SessionOptions()
