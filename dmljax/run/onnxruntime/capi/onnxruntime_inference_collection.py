"""The names of ONNX Runtime's Python classes, under the module that has them there."""

from dmljax.run.answers import absent_from
from dmljax.run.onnxruntime.binding import IOBinding as IOBinding
from dmljax.run.onnxruntime.capi.adapters import AdapterFormat as AdapterFormat
from dmljax.run.onnxruntime.devices import (
    OrtDevice as OrtDevice,
    get_ort_device_type as get_ort_device_type,
    get_vendor_id_for_device_type as get_vendor_id_for_device_type,
)
from dmljax.run.onnxruntime.enumerations import OrtDeviceVendorId as OrtDeviceVendorId
from dmljax.run.onnxruntime.refusals import REFUSED
from dmljax.run.onnxruntime.session import InferenceSession as InferenceSession
from dmljax.run.onnxruntime.values import OrtValue as OrtValue, copy_tensors as copy_tensors

Session = InferenceSession  # its base, of which there is no other kind
__getattr__ = absent_from(__name__, REFUSED)
