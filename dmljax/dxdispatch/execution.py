"""Carries out the commands of a model: on buffers of bytes, in order, on the platform that JAX chooses."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors.base import Operator
from dmljax.descriptors.lowering import lower, require_64_bits_available
from dmljax.dxdispatch.files import target_in, whole_elements, write_values
from dmljax.dxdispatch.model import Binding, Dispatch, Model, Print, WriteFile
from dmljax.errors import InvalidDesc, Problem
from dmljax.tensor import TensorDesc
from dmljax.types import DataType, x64_enabled


@dataclass(frozen=True)
class Repetition:
    """How often a dispatch runs: so many iterations, or as many as begin within a time, of some runs each."""

    iterations: int = 1
    runs: int = 1
    milliseconds: float | None = None
    interval_in_milliseconds: float = 0


@dataclass(frozen=True)
class Dispatched:
    """What a dispatch took: the milliseconds of a run, by iteration."""

    dispatchable: str
    milliseconds: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Printed:
    """The values of a resource, flat, in the type of its initial values."""

    resource: str
    values: NDArray[Any]
    verbose: bool


@dataclass(frozen=True)
class Written:
    """The file that a resource was written into."""

    resource: str
    path: Path


Result = Dispatched | Printed | Written


class Execution:
    """One run of a model, whose buffers keep what its commands leave in them.

    Refused at once is a model that would write a file and has no `output_path` for it, or that needs 64-bit types.

    >>> from dmljax.dxdispatch import load
    >>> execution = Execution(load("notebooks/models/top1_routing.json"))
    >>> [execution.result(index) for index in range(3)][-1].dispatchable
    'fetch'
    >>> execution.values("count").tolist()
    [4]
    """

    def __init__(
        self, model: Model, *, output_path: str | Path | None = None, device: jax.Device | None = None
    ) -> None:
        self.model = model
        self.device = jax.local_devices()[0] if device is None else device
        self._output_path = None if output_path is None else Path(output_path)
        for index, command in enumerate(model.commands):
            if isinstance(command, WriteFile):
                with model.part("commands", index):
                    self._target(command)
        for name, dispatchable in model.dispatchables.items():
            with model.part(*model.desc_place(name)):
                require_64_bits_available(dispatchable.desc)
        self.buffers = {name: resource.buffer() for name, resource in model.resources.items()}
        # What DirectML owns it copies before any command; the initial values are what it finds then.
        owned = {binding.resource for one in model.dispatchables.values() for binding in one.bindings.values()}
        self._owned = {name: self.buffers[name].copy() for name in owned}

    def compile(self, dispatchable: str) -> Any:
        """The compiled operator, so that no dispatch takes that time."""
        with self.model.part(*self.model.desc_place(dispatchable)):
            return _compiled(self.model.dispatchables[dispatchable].desc, self.device, x64_enabled())

    def result(self, index: int, repetition: Repetition = Repetition()) -> Result:
        """Carries out a command of the model, and says what came of it."""
        command = self.model.commands[index]
        with self.model.part("commands", index):
            match command:
                case Dispatch():
                    return Dispatched(command.dispatchable, tuple(self._dispatched(command, repetition)))
                case Print():
                    return Printed(command.resource, self.values(command.resource).copy(), command.verbose)
                case WriteFile():
                    return self._written(command)

    def values(self, resource: str) -> NDArray[Any]:
        """A view of the values of a resource, flat: as many as it began with, for what pads them is nobody's."""
        description = self.model.resources[resource]
        if description.data_type is DataType.UNKNOWN:
            raise InvalidDesc(Problem("resource", "must have an initialValuesDataType to have values", repr(resource)))
        end = description.offset_in_bytes + description.initial_values.size
        return whole_elements(self.buffers[resource][:end], description.data_type)

    # Commands

    def _dispatched(self, command: Dispatch, repetition: Repetition) -> Iterator[float]:
        """Runs, and yields what a run took in milliseconds for each iteration."""
        compiled = self.compile(command.dispatchable)
        begin, done = time.perf_counter(), 0
        while done < repetition.iterations:
            iteration_begin = time.perf_counter()
            yield sum(self._run(command, compiled) for _ in range(repetition.runs)) / repetition.runs * 1e3
            done += 1
            passed = (time.perf_counter() - iteration_begin) * 1e3
            pause = max(0.0, repetition.interval_in_milliseconds - passed)
            elapsed = (time.perf_counter() - begin) * 1e3
            if repetition.milliseconds is not None and elapsed + pause > repetition.milliseconds:
                return
            time.sleep(pause / 1e3)

    def _run(self, command: Dispatch, compiled: Any) -> float:
        """Runs an operator on the buffers, and returns the seconds between its inputs and its outputs being there."""
        dispatchable = self.model.dispatchables[command.dispatchable]
        desc, owned = dispatchable.desc, dispatchable.bindings
        inputs = [
            _read(tensor, self._owned, owned[key])
            if key in owned
            else _read(tensor, self.buffers, command.bindings[key])
            for key, tensor in desc.tensors(is_input=True).items()
        ]
        arrays = jax.block_until_ready(jax.device_put(inputs, self.device))
        with jax.disable_jit(False):
            begin = time.perf_counter()
            outputs = jax.block_until_ready(compiled(*arrays))
            seconds = time.perf_counter() - begin
        for (key, tensor), output in zip(desc.tensors(is_input=False).items(), jax.tree.leaves(outputs), strict=True):
            tensor.write(_bytes_at(self.buffers, command.bindings[key]), np.asarray(output))
        return seconds

    def _written(self, command: WriteFile) -> Written:
        path = self._target(command)
        data_type = self.model.resources[command.resource].data_type
        write_values(path, self.buffers[command.resource], data_type, command.dimensions)
        return Written(command.resource, path)

    def _target(self, command: WriteFile) -> Path:
        if self._output_path is None:
            raise InvalidDesc(Problem("targetPath", "must have a folder to lie in, which --output_path names", "none"))
        return target_in(self._output_path, command.target_path)


def _read(tensor: TensorDesc, buffers: Mapping[str, NDArray[np.uint8]], binding: Binding) -> NDArray[Any]:
    return tensor.read(_bytes_at(buffers, binding))


def _bytes_at(buffers: Mapping[str, NDArray[np.uint8]], binding: Binding) -> memoryview:
    return buffers[binding.resource][binding.offset_in_bytes :].data


def trace(desc: Operator) -> Any:
    """The traced operator: `.jaxpr`, and `.lower()` for its module."""
    inputs = [tensor.shape_dtype for tensor in desc.tensors(is_input=True).values()]
    with jax.disable_jit(False):  # JAX_DISABLE_JIT=1 would have nothing that could be lowered, compiled or called
        return jax.jit(lower(desc)).trace(*inputs)


@lru_cache(maxsize=256)
def _compiled(desc: Operator, device: jax.Device, x64: bool) -> Any:
    """The compiled operator; `x64` tells apart what was compiled with 64-bit types from what was not."""
    with jax.default_device(device), jax.disable_jit(False):
        return trace(desc).lower().compile()
