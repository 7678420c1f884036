"""Calls on a device by JAX and PyTorch: their inputs, and the time that they take."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from workloads import SEED, Function

PROFILED = 5  # calls


def tried(function: Callable[[], Any], end: float) -> Any:
    """The function's result, or a sentence if it fails, because the others are worth trying; None after the end."""
    if time.monotonic() > end:
        return None
    try:
        return function()
    except Exception as error:
        return reason(error)


def reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:120]}"


def left_out(found: Mapping[str, Any], seconds: float) -> str:
    """The names without a result."""
    names = [name for name, one in found.items() if one is None]
    return f"Left out when {seconds:.0f} s were over: {', '.join(names)}." if names else ""


def filled(shape: Any, device: Any) -> Any:
    """Random numbers near 0 of a shape, or small integers; arrays as they are."""
    if not isinstance(shape, jax.ShapeDtypeStruct):
        return jax.device_put(shape, device)
    with jax.default_device(device):
        if jnp.issubdtype(shape.dtype, jnp.integer):
            return jnp.full(shape.shape, 7, shape.dtype)
        return jax.random.uniform(jax.random.key(SEED), shape.shape, shape.dtype, 0.01, 0.1)


def repeated(call: Callable[[], Any], wait: Callable[[Any], Any], seconds: float) -> tuple[Callable[[], Any], int]:
    """A call that repeats another for about this long and waits for the last result, and how often it does."""
    for _ in range(2):  # compiles and warms up
        wait(call())
    start = time.perf_counter()
    wait(call())
    count = max(1, min(1000, int(seconds / (time.perf_counter() - start))))

    def run() -> None:
        for _ in range(count - 1):
            call()
        wait(call())

    return run, count


def kernel_times(call: Callable[[], Any]) -> dict[str, tuple[float, float]]:
    """The microseconds that a GPU spends in each kernel of a call, and how often it runs; none on other devices."""
    with TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(PROFILED):
                result = call()
            jax.block_until_ready(result)
        (file,) = Path(folder).rglob("*.xplane.pb")
        profile = jax.profiler.ProfileData.from_file(str(file))
    lines = (line for plane in profile.planes if "GPU" in plane.name for line in plane.lines if "Stream" in line.name)
    durations: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        for event in line.events:
            durations[event.name].append(event.duration_ns / 1000)
    return {name: (sum(each) / PROFILED, len(each) / PROFILED) for name, each in durations.items()}


def kernel_microseconds(call: Callable[[], Any]) -> float:
    """The time that a GPU spends in the kernels of a call; 0 on other devices."""
    return sum(microseconds for microseconds, _ in kernel_times(call).values())


def torch_call(function: Function, arrays: Any, device: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """PyTorch's call with the same numbers on the same kind of device, and how to wait for its result."""
    import torch

    place = "cuda" if device.platform == "gpu" and torch.cuda.is_available() else "cpu"

    def tensor(one: Any) -> Any:
        array = np.array(one, np.float32 if jnp.issubdtype(one.dtype, jnp.floating) else None)
        return torch.from_numpy(array).to(place, getattr(torch, one.dtype.name))

    tensors = jax.tree.map(tensor, arrays)
    wait = (lambda _: torch.cuda.synchronize()) if place == "cuda" else (lambda result: result)
    return torch.no_grad()(partial(function, *tensors)), wait
