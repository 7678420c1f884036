"""ONNX Runtime's conversion of NumPy's files into adapters."""

import os

import numpy as np

from dmljax.run.onnxruntime.capi.adapters import AdapterFormat
from dmljax.run.onnxruntime.values import OrtValue


def export_lora_parameters(
    npz_file_path: str | os.PathLike[str], adapter_version: int, model_version: int, output_file_path: str
) -> None:
    """Writes the arrays of a file of NumPy's as an adapter."""
    adapter = AdapterFormat()
    adapter.set_adapter_version(adapter_version)
    adapter.set_model_version(model_version)
    with np.load(npz_file_path) as arrays:
        adapter.set_parameters({name: OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()})
    adapter.export_adapter(output_file_path)
