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
_refuse = _absent_from(__name__, {"SparseTensor": _NO_SPARSE_VALUES})


def __getattr__(name: str) -> _Any:
    if name not in _INSTALLED_PARTS["onnxruntime"]:
        return _refuse(name)
    if _sys.modules.get("onnxruntime") is not _sys.modules[__name__]:  # importing it would import ONNX Runtime itself
        reason = "it is ONNX Runtime's own Python, over dmljax's sessions with python -m dmljax.run program.py"
        raise _absent("onnxruntime", name, reason)
    return _import_module(f"onnxruntime.{name}")


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
