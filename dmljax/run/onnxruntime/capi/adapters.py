"""ONNX Runtime's adapters: arrays that take the places of a model's inputs in the runs that name them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dmljax.onnx.graph import adapters
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime.arguments import require_kind, require_type, require_values, to_int32
from dmljax.run.onnxruntime.values import OrtValue


class AdapterFormat(Answering):
    """The content of an adapter's file: arrays by the names of a model's inputs, and two versions."""

    def __init__(self, adapter: adapters.Adapter | None = None) -> None:
        self._adapter = adapters.Adapter({}) if adapter is None else adapter
        require_kind("adapter", self._adapter, adapters.Adapter)

    @staticmethod
    def read_adapter(file_path: str) -> "AdapterFormat":
        """Reads a file."""
        return AdapterFormat(read_adapter(file_path))

    def export_adapter(self, file_path: str) -> None:
        """Writes a file."""
        require_type("file_path", file_path, str)
        with refusing("onnxruntime"):
            adapters.write_adapter(Path(file_path), self._adapter)

    def get_format_version(self) -> int:
        return adapters.VERSION

    def set_adapter_version(self, adapter_version: int) -> None:
        self._adapter = self._adapter._replace(adapter_version=to_int32("adapter_version", adapter_version))

    def get_adapter_version(self) -> int:
        return self._adapter.adapter_version

    def set_model_version(self, model_version: int) -> None:
        self._adapter = self._adapter._replace(model_version=to_int32("model_version", model_version))

    def get_model_version(self) -> int:
        return self._adapter.model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Sets the arrays."""
        require_kind("params", params, Mapping)
        for name in params:
            require_type("params", name, str)
        require_values("params", params)
        self._adapter = self._adapter._replace(arrays={name: np.asarray(x._tensor()) for name, x in params.items()})

    def get_parameters(self) -> dict[str, OrtValue]:
        """Returns the arrays, which share the memory of what was read or set."""
        return {name: OrtValue(array, "cpu") for name, array in self._adapter.arrays.items()}


def read_adapter(path: Any) -> adapters.Adapter:
    """Reads the file of an adapter."""
    require_type("file_path", path, str)
    with refusing("onnxruntime"):
        return adapters.read_adapter(Path(path))


class LoraAdapter(Answering):
    """An adapter on JAX's device, which `RunOptions.add_active_adapter` gives to runs."""

    def __init__(self) -> None:
        self._arrays: dict[str, jax.Array] = {}

    def Load(self, file_path: str) -> None:  # noqa: N802  # ONNX Runtime's name
        """Reads a file, in place of what was read before."""
        adapter = read_adapter(file_path)
        with jax.enable_x64(True):
            self._arrays = {name: jax.device_put(array) for name, array in adapter.arrays.items()}
