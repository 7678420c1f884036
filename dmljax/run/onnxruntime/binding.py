"""ONNX Runtime's bindings: inputs and outputs that are named once, and stay on JAX's device between runs."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime.arguments import require_kind, require_type
from dmljax.run.onnxruntime.values import (
    OrtValue,
    as_numpy,
    content_of,
    device_of_name,
    memory_at,
    require_shape,
    value_of_result,
)
from dmljax.text import show


class IOBinding(Answering):
    """The inputs and outputs of runs."""

    _REFUSED: ClassVar[Mapping[str, str]] = {
        "get_outputs_as_ortvaluevector": "it is beneath ONNX Runtime's Python classes; write get_outputs",
    }

    def __init__(self, session: Any) -> None:
        self._session = session
        inputs = (*session.get_inputs(), *session.get_overridable_initializers())
        self._names = [[argument.name for argument in inputs], session._output_names]
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Any] = {}  # where each output goes: an OrtValue, an array, or the name of a device
        self._found: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array, which each run reads anew."""
        with refusing("onnxruntime"):
            if not isinstance(arr_on_cpu, np.ndarray | jax.Array):
                raise InvalidType(Problem("arr_on_cpu", "must be an array", show(arr_on_cpu)))
        self._bind(0, name, arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        require_kind("ortvalue", ortvalue, OrtValue)
        self._bind(0, name, ortvalue)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Binds memory of the CPU, or a value of `dml` by its `data_ptr()`, which each run reads anew."""
        require_shape(shape)
        require_type("buffer_ptr", buffer_ptr, int)
        with refusing("onnxruntime"):
            device = device_of_name(device_type, device_id)
            self._bind(0, name, memory_at(device, buffer_ptr, element_type, shape))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output to memory of the CPU, to a value of `dml` by its `data_ptr()`, or to a new value each run."""
        with refusing("onnxruntime", type):
            if buffer_ptr is not None and (element_type is None or shape is None):
                raise InvalidDesc(Problem("buffer_ptr", "needs an element_type and a shape"))
        if buffer_ptr is not None:
            require_shape(shape)
            require_type("buffer_ptr", buffer_ptr, int)
        with refusing("onnxruntime"):
            device = device_of_name(device_type, device_id)
            is_new = buffer_ptr is None
            self._bind(1, name, device if is_new else memory_at(device, buffer_ptr, element_type, shape or ()))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to a value, which each run overwrites."""
        require_kind("ortvalue", ortvalue, OrtValue)
        self._bind(1, name, ortvalue)

    def _bind(self, side: int, name: str, place: Any) -> None:
        require_type("name", name, str)
        with refusing("onnxruntime"):
            if name not in self._names[side]:
                word = ("inputs", "outputs")[side]
                rule = f"must be among the {word}: {', '.join(self._names[side])}"
                raise InvalidDesc(Problem("name", rule, show(name)))
        (self._inputs, self._outputs)[side][name] = place
        if side == 1:
            self._found[name] = _empty_value(place)

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._found.clear()

    def synchronize_inputs(self) -> None:
        """Does nothing, because runs wait for their inputs."""

    def synchronize_outputs(self) -> None:
        """Waits for the outputs."""
        jax.block_until_ready([content_of(value) for value in self._found.values()])

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound; they are empty before it."""
        return list(self._found.values())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as NumPy arrays."""
        return [as_numpy(content_of(value)) for value in self._found.values()]

    def _fill(self, results: Sequence[Any]) -> None:
        """Puts the results where the outputs are bound."""
        for (name, place), result in zip(self._outputs.items(), results, strict=True):
            if isinstance(place, str):
                self._found[name] = value_of_result(result, place)
            else:
                value = value_of_result(result, "cpu")
                _require_place(name, self._found[name], value)
                self._found[name].update_inplace(value)


def _require_place(name: str, value: OrtValue, result: OrtValue) -> None:
    """Raises unless a result has the type and the shape of the value or the memory that an output is bound to."""
    expected, found = ((each.data_type(), each.shape()) for each in (result, value))
    if expected[0] != found[0]:
        raise InvalidType(f"Unexpected output data type. Actual: ({found[0]}) , expected: ({expected[0]})")
    if expected[1] != found[1]:
        rule = f"Got invalid dimensions for output: {name} Got: {found[1]} Expected: {expected[1]}"
        raise InvalidDesc(rule)


def _empty_value(place: Any) -> OrtValue:
    """The value at a place before a run, which has none yet if the place is a device."""
    if isinstance(place, str):
        return OrtValue(None, place)
    return OrtValue(place, "cpu") if isinstance(place, np.ndarray) else place
