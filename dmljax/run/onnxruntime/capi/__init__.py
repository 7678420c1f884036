"""The place of ONNX Runtime's compiled module, and of the Python classes over it."""

from dmljax.run.answers import absent_from
from dmljax.run.onnxruntime.capi import (
    _pybind_state as _pybind_state,
    convert_npz_to_onnx_adapter as convert_npz_to_onnx_adapter,
    onnxruntime_inference_collection as onnxruntime_inference_collection,
    onnxruntime_pybind11_state as onnxruntime_pybind11_state,
)
from dmljax.run.onnxruntime.refusals import REFUSED

__getattr__ = absent_from(__name__, REFUSED)
