"""The platform that a program is traced for, where the process that traces it also runs it."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import jax

_platform = jax.make_user_context(default_value="")  # JAX keeps traced functions apart by it


def traced_for(platform: str) -> AbstractContextManager[Any]:
    """The context for tracing a program that runs only on a platform: cpu, gpu or tpu."""
    context: AbstractContextManager[Any] = _platform(platform)
    return context


def known_platform() -> str:
    """The only platform of the program that is traced now; empty if any may run it."""
    return str(_platform.value)


def device_of(arguments: Iterable[Any]) -> jax.Device:
    """The device, or the first of several, that JAX runs a function of these arguments on."""
    for argument in arguments:
        if getattr(argument, "committed", False):
            return min(argument.devices(), key=lambda device: device.id)
    default: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    return default if isinstance(default, jax.Device) else jax.local_devices(backend=default)[0]
