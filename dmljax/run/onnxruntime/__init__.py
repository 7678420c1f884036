"""Stands in for `import onnxruntime`: sessions, bindings, values and options.

Names, and the types and shapes of results, match ONNX Runtime's Python interface. dmljax replaces its DirectML
provider.
"""

from dmljax.run.answers import absent_from as _absent_from
from dmljax.run.onnxruntime import capi as capi
from dmljax.run.onnxruntime.binding import IOBinding as IOBinding
from dmljax.run.onnxruntime.options import (
    ExecutionMode as ExecutionMode,
    ExecutionOrder as ExecutionOrder,
    GraphOptimizationLevel as GraphOptimizationLevel,
    RunOptions as RunOptions,
    SessionOptions as SessionOptions,
)
from dmljax.run.onnxruntime.providers import AVAILABLE as _AVAILABLE
from dmljax.run.onnxruntime.session import (
    InferenceSession as InferenceSession,
    ModelMetadata as ModelMetadata,
    NodeArg as NodeArg,
    set_seed as set_seed,
)
from dmljax.run.onnxruntime.values import NO_SPARSE_VALUES as _NO_SPARSE_VALUES, OrtValue as OrtValue

__version__ = "1.32.0"  # of the interface
__getattr__ = _absent_from(__name__, {"SparseTensor": _NO_SPARSE_VALUES})


def get_available_providers() -> list[str]:
    """The providers that dmljax stands for."""
    return list(_AVAILABLE)


get_all_providers = get_available_providers


def get_device() -> str:
    """The device that ONNX Runtime's build for DirectML names."""
    return "CPU-DML"


def get_version_string() -> str:
    """The version of ONNX Runtime whose interface this is."""
    return __version__


def set_default_logger_severity(severity: int) -> None:
    """Does nothing, because dmljax has no log."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Does nothing, because dmljax has no log."""


def disable_telemetry_events() -> None:
    """Does nothing, because dmljax sends nothing."""


enable_telemetry_events = disable_telemetry_events


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Does nothing, because JAX loads its own libraries."""
