"""Runs the commands of a model on buffers of bytes in host memory.

A dispatch reads its inputs from the buffers, computes on a JAX device, and writes its outputs back into the buffers.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.calls.binding import check_arguments
from dmljax.descriptors.base import Operator
from dmljax.descriptors.lowering import lower
from dmljax.descriptors.validation import validate
from dmljax.dxdispatch.files import bytes_of, target_in, view_elements, write_values
from dmljax.dxdispatch.model import (
    Binding,
    BindPoint,
    Dispatch,
    Dispatchable,
    DispatchModel,
    Print,
    WriteFile,
    require_model,
)
from dmljax.dxdispatch.networks import SizedNetwork
from dmljax.dxdispatch.reading.bindings import require_room
from dmljax.errors import InvalidDesc, InvalidType, Problem, inside, require
from dmljax.foundation import checks
from dmljax.foundation.platforms import traced_for
from dmljax.foundation.programs.compiling import compile_once
from dmljax.graphs.graph import Graph
from dmljax.text import hint_for_spelling, no_attribute_of, show
from dmljax.types import INTEGERS_4, DataType, x64_enabled


@dataclass(frozen=True)
class Repetition:
    """How often a dispatch runs: `iterations` times, each of them the mean of `runs` runs.

    With `milliseconds`, no iteration but the first starts after that time. Iterations start at least
    `interval_in_milliseconds` apart.
    """

    iterations: int = 1
    runs: int = 1
    milliseconds: float | None = None
    interval_in_milliseconds: float = 0


@dataclass(frozen=True)
class Dispatched:
    """The times of a dispatch: the mean milliseconds per run, for each iteration."""

    dispatchable: str
    milliseconds: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Printed:
    """The values of a resource as a flat array, in the data type of its initial values."""

    resource: str
    values: NDArray[Any]
    verbose: bool


@dataclass(frozen=True)
class Written:
    """The file to which a resource was written."""

    resource: str
    path: Path


Result = Dispatched | Printed | Written


class Execution:
    """Runs a model's commands on buffers that persist between commands.

    A model may write files only below `output_path`, and none without it. The constructor refuses a model that would,
    and a model with 64-bit data types unless they are enabled in JAX.

    >>> from dmljax.dxdispatch import load
    >>> execution = Execution(load("notebooks/models/top1_routing.json"))
    >>> print(execution.run()[0].dispatchable)
    route
    >>> execution.values("count").tolist()
    [4]
    """

    @check_arguments
    def __init__(
        self, model: DispatchModel, *, output_path: str | Path | None = None, device: jax.Device | None = None
    ) -> None:
        require_model(model)
        self.model = model
        if not isinstance(device, jax.Device | None):
            remedy = f"use jax.devices({device!r})[0]" if isinstance(device, str) else None
            raise InvalidType(Problem("device", "must be a device of JAX", show(device), remedy=remedy))
        self.device = jax.local_devices()[0] if device is None else device
        self._output_path = None if output_path is None else checks.path("output_path", output_path)
        for index, command in enumerate(model.commands):
            if isinstance(command, WriteFile):
                with model.part(*model.command_place(index)):
                    self._target(command)
        for name, dispatchable in model.dispatchables.items():
            with model.part(*model.desc_place(name)):
                dispatchable.desc.require_available()
        self.buffers = {name: resource.buffer() for name, resource in model.resources.items()}
        # DirectML copies OWNED_BY_DML inputs at initialization, when buffers still hold their initial values.
        resources = {binding.resource for part in model.dispatchables.values() for binding in part.bindings.values()}
        self._owned = {name: self.buffers[name].copy() for name in resources}
        self._compiled: dict[tuple[str, bool], Any] = {}  # a global cache would keep constants in memory

    if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

        def __getattr__(self, name):
            raise no_attribute_of(self, name, hint_for_spelling(self, name, _ELSEWHERE))

    @check_arguments
    def compile(self, dispatchable: str) -> Any:
        """Compiles a dispatchable or takes it from the cache, so that the times of dispatches exclude compilation."""
        checks.known_name("dispatchable", dispatchable, self.model.dispatchables, "must be a dispatchable of the model")
        entry, key = self.model.dispatchables[dispatchable], (dispatchable, x64_enabled())
        desc: Any = entry.desc
        with self.model.part(*self.model.desc_place(dispatchable)):
            if isinstance(desc, Operator):
                return _compile_operator(desc, self.device, x64_enabled())
            if key not in self._compiled:
                is_network = isinstance(desc, SizedNetwork)
                self._compiled[key] = (
                    _call_network(desc, self.device) if is_network else _compile_with_constants(entry, self.device)
                )
            return self._compiled[key]

    @check_arguments
    def run(self, repetition: Repetition = Repetition()) -> list[Result]:
        """Runs all commands of the model in order, and returns their results."""
        return [self.result(index, repetition) for index in range(len(self.model.commands))]

    @check_arguments
    def result(self, index: int, repetition: Repetition = Repetition()) -> Result:
        """Runs the command at `index` of the model, and returns its result."""
        if not isinstance(repetition, Repetition):
            raise InvalidType(Problem("repetition", "must be a Repetition", show(repetition)))
        index = checks.integer_in("index", index, -len(self.model.commands), len(self.model.commands) - 1)
        command = self.model.commands[index]
        with self.model.part(*self.model.command_place(index)):
            match command:
                case Dispatch():
                    return Dispatched(command.title, tuple(self._dispatch(command, repetition)))
                case Print():
                    return Printed(command.resource, self.values(command.resource).copy(), command.verbose)
                case WriteFile():
                    return self._write(command)

    @check_arguments
    def values(self, resource: str) -> NDArray[Any]:
        """The values of a resource, without the padding after its initial values.

        Returns a flat view of the buffer, or a copy for 4-bit values.
        """
        checks.known_name("resource", resource, self.model.resources, "must be a resource of the model")
        description = self.model.resources[resource]
        is_typed = description.data_type is not DataType.UNKNOWN
        require("resource", is_typed, "must have an initialValuesDataType to have values", repr(resource))
        count = None if description.is_open else description.value_count
        return view_elements(self.buffers[resource], description.data_type)[:count]

    # Commands

    def _dispatch(self, command: Dispatch, repetition: Repetition) -> Iterator[float]:
        """Runs a dispatchable, and yields the mean milliseconds per run for each iteration."""
        compiled = self.compile(command.dispatchable)
        begin, count = time.perf_counter(), 0
        while count < repetition.iterations:
            iteration_begin = time.perf_counter()
            yield sum(self._run(command, compiled) for _ in range(repetition.runs)) / repetition.runs * 1e3
            count += 1
            duration = (time.perf_counter() - iteration_begin) * 1e3
            pause = max(0.0, repetition.interval_in_milliseconds - duration)
            total = (time.perf_counter() - begin) * 1e3
            if repetition.milliseconds is not None and total + pause > repetition.milliseconds:
                return
            time.sleep(pause / 1e3)

    def _run(self, command: Dispatch, compiled: Any) -> float:
        """Runs a dispatchable on the buffers, and returns the seconds of its computation, without the copies."""
        dispatchable = self.model.dispatchables[command.dispatchable]
        bindings = dispatchable.bindings
        inputs = [
            _read(point, self._owned, bindings[point.key])
            if point.key in bindings
            else _read(point, self.buffers, command.bindings[point.key])
            if point.key in command.bindings
            else np.zeros(point.tensor.sizes, point.tensor.dtype)
            for point in dispatchable.points
            if point.is_input
        ]
        arrays = [_put_on_device(x, self.device) for x in inputs]
        jax.block_until_ready(arrays)
        with jax.disable_jit(False):
            begin = time.perf_counter()
            outputs = jax.block_until_ready(compiled(*arrays))
            seconds = time.perf_counter() - begin
        leaves = iter(jax.tree.leaves(outputs))
        for point in dispatchable.points:
            if not point.is_input:
                output = np.asarray(next(leaves))
                if point.key in command.bindings:
                    self._store(point, command.bindings[point.key], output)
        return seconds

    def _store(self, point: BindPoint, binding: Binding, output: NDArray[Any]) -> None:
        """Writes an output to its buffer; a deferred resource takes the size that values decide."""
        name, begin = binding.resource, binding.offset_in_bytes
        is_deferred = self.model.resources[name].is_deferred
        if point.is_open and is_deferred:
            self.buffers[name] = bytes_of(output.copy())
        elif point.is_open:
            data, buffer = bytes_of(output), self.buffers[name][begin:]
            with inside(("bindings", *point.path)):
                require_room(data.size, buffer.size, name, begin)
            buffer[: data.size] = data
        else:
            if is_deferred and (missing := begin + point.size_in_bytes - self.buffers[name].size) > 0:
                self.buffers[name] = np.pad(self.buffers[name], (0, missing))
            point.tensor.write(_bytes_at(self.buffers, binding), output)

    def _write(self, command: WriteFile) -> Written:
        path = self._target(command)
        data_type = self.model.resources[command.resource].data_type
        write_values(path, self.buffers[command.resource], data_type, command.dimensions)
        return Written(command.resource, path)

    def _target(self, command: WriteFile) -> Path:
        if self._output_path is None:
            raise InvalidDesc(
                Problem("targetPath", "no output folder", remedy='name it: Execution(model, output_path="results")')
            )
        return target_in(self._output_path, command.target_path)


_ELSEWHERE = {
    **dict.fromkeys(("dispatch", "execute", "compute"), "execution.run()"),
    **{each: f"execution.model.{each}" for each in ("resources", "dispatchables", "commands")},
    "print": "execution.values(name)",
}


def _read(point: BindPoint, buffers: Mapping[str, NDArray[np.uint8]], binding: Binding) -> NDArray[Any]:
    with inside(("bindings", *point.path)):  # a deferred resource may have shrunk
        return point.tensor.read(_bytes_at(buffers, binding))


def _bytes_at(buffers: Mapping[str, NDArray[np.uint8]], binding: Binding) -> memoryview:
    return buffers[binding.resource][binding.offset_in_bytes :].data


def _put_on_device(x: Any, device: jax.Device) -> Any:
    # Ahead-of-time compiled functions in JAX 0.10 refuse 4-bit arrays on the device, but take NumPy's.
    return np.asarray(x) if x.dtype in INTEGERS_4 else jax.device_put(x, device)


def trace(dispatchable: Dispatchable) -> Any:
    """Traces a dispatchable; the result has `jaxpr`, and `lower()` gives its StableHLO module.

    A graph or an ONNX model takes its constants as the first argument, so that the module does not contain their
    values.
    """
    desc = dispatchable.desc
    with jax.disable_jit(False):  # JAX_DISABLE_JIT=1 would leave nothing to lower or compile
        if isinstance(desc, Operator):
            return jax.jit(lower(desc)).trace(*(tensor.shape_dtype for tensor in desc.tensors(is_input=True).values()))
        if isinstance(desc, Graph):
            validate(desc)
            function = desc.computation(rounds_between_nodes=dispatchable.rounds_between_nodes)
        else:
            function = desc.computation()
        return function.trace(desc.types_of_constants, *(tensor.shape_dtype for tensor in desc.inputs.values()))


@lru_cache(maxsize=256)
def _compile_operator(desc: Operator, device: jax.Device, x64: bool) -> Any:
    """Compiles an operator; `x64` is in the cache key because the setting changes what is compiled."""
    return _compile(Dispatchable(desc), device)


def _compile_with_constants(dispatchable: Dispatchable, device: jax.Device) -> Any:
    """Compiles a graph, and puts its constants on the device."""
    graph: Any = dispatchable.desc
    with jax.default_device(device):
        desc = graph.folded()
    constants = {name: _put_on_device(value, device) for name, value in desc.constants.items()}
    return partial(_compile(replace(dispatchable, desc=desc), device), constants)


def _call_network(network: SizedNetwork, device: jax.Device) -> Any:
    """An ONNX model, after a call that compiles it, unless it needs true values for its sizes."""
    if not network.is_open:
        zeros = (np.zeros(tensor.sizes, tensor.dtype) for tensor in network.inputs.values())
        with jax.disable_jit(False):
            jax.block_until_ready(network.compute(*(_put_on_device(x, device) for x in zeros)))
    return network.compute


def _compile(dispatchable: Dispatchable, device: jax.Device) -> Any:
    with jax.default_device(device), jax.disable_jit(False), traced_for(device.platform):
        return compile_once(trace(dispatchable), device)
