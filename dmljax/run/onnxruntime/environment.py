"""What ONNX Runtime says of itself, and the settings of its process, which mean nothing here."""

import platform
from collections.abc import Callable
from importlib.metadata import version as _installed_version
from typing import Any

import jax
import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.run.answers import refusing
from dmljax.run.onnxruntime.arguments import require_type
from dmljax.run.onnxruntime.providers import AVAILABLE, KNOWN, VERSION


def get_available_providers() -> list[str]:
    """The providers that dmljax stands for."""
    return list(AVAILABLE)


def get_all_providers() -> list[str]:
    """The providers that some build of ONNX Runtime has."""
    return list(KNOWN)


def get_device() -> str:
    """The device that ONNX Runtime's build for DirectML names."""
    return "CPU-DML"


def get_version_string() -> str:
    """The version of ONNX Runtime whose interface this is."""
    return VERSION


def get_build_info() -> str:
    """The versions of dmljax and JAX."""
    return f"dmljax {_installed_version('dmljax')}, jax {jax.__version__}"


def print_debug_info() -> None:
    """Prints the versions and the devices that dmljax computes with."""
    print(f"onnxruntime {VERSION}: {get_build_info()}")
    print(f"platform: {platform.platform()}")
    print(f"devices: {', '.join(device.device_kind for device in jax.devices())}")


def has_collective_ops() -> bool:
    """Whether models may have ONNX Runtime's operators for several processes; they may not."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Does nothing, because dmljax has no log."""
    require_type("severity", severity, int, np.integer)
    with refusing("onnxruntime"):
        if not 0 <= severity <= 4:
            raise InvalidDesc(Problem("severity", "must be from 0 to 4", severity))


def set_default_logger_verbosity(verbosity: int) -> None:
    """Does nothing, because dmljax has no log."""
    require_type("verbosity", verbosity, int, np.integer)


def set_default_logger_callback(callback: Callable[..., Any] | None, severity: int = 2) -> None:
    """Does nothing, because dmljax has no log."""
    require_type("severity", severity, int, np.integer)


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Does nothing, because XLA chooses its threads."""
    require_type("intra_op_num_threads", intra_op_num_threads, int)
    require_type("inter_op_num_threads", inter_op_num_threads, int)


def disable_telemetry_events() -> None:
    """Does nothing, because dmljax sends nothing."""


enable_telemetry_events = disable_telemetry_events


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Does nothing, because JAX loads its own libraries."""
