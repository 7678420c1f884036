"""The names of ONNX Runtime's compiled module, under the name by which its Python imports them."""

from typing import Any

from dmljax.run.onnxruntime.capi import onnxruntime_pybind11_state


def __getattr__(name: str) -> Any:
    return getattr(onnxruntime_pybind11_state, name)
