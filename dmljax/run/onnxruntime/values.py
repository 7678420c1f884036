"""ONNX Runtime's values: arrays whose types have ONNX Runtime's names."""

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
import onnx
from onnx import helper

from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.foundation.checks import integers
from dmljax.run.answers import Answering, Refusal, refusing
from dmljax.text import show

NO_SPARSE_VALUES = "dmljax has no sparse values, because XLA has none"
DEVICES = ("cpu", "dml")  # both are JAX's device


class OrtValue(Answering):
    """An array, or a sequence of arrays, that stays on JAX's device until `numpy` asks for it."""

    def __init__(self, value: Any, device: str) -> None:
        self._value, self._device = value, device

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> "OrtValue":
        """A value that shares the array's memory."""
        with refusing("onnxruntime"):
            if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "OUS":
                raise InvalidType(Problem("numpy_obj", "must be a NumPy array of numbers", show(numpy_obj)))
            return OrtValue(numpy_obj, device_of_name(device_type, device_id))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> "OrtValue":
        """A value of zeros."""
        with refusing("onnxruntime"):
            sizes = integers("shape", shape)
            return OrtValue(np.zeros(sizes, dtype_of(element_type)), device_of_name(device_type, device_id))

    def numpy(self) -> Any:
        """A copy as a NumPy array."""
        return as_numpy(self._value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def shape(self) -> list[int]:
        return list(self._value.shape)

    def data_type(self) -> str:
        """The type in ONNX Runtime's words, such as tensor(float)."""
        return _type_of_value(self._value)

    def element_type(self) -> int:
        """The number of the type of elements in ONNX."""
        return int(helper.np_dtype_to_tensor_dtype(self._value.dtype))

    def tensor_size_in_bytes(self) -> int:
        return int(self._value.nbytes)

    def device_name(self) -> str:
        """The device that the program named."""
        return self._device

    def has_value(self) -> bool:
        """Whether there is a value; only an optional may be empty."""
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray | jax.Array)

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Whether the value is sparse; no value is."""
        return False

    def data_ptr(self) -> int:
        """The address of the elements, which lives as long as the value."""
        with refusing("onnxruntime"):
            return int(self._memory().ctypes.data)

    def _memory(self) -> Any:
        """The elements in the CPU's memory, where they stay from now on."""
        require_memory(self._device)
        if not isinstance(self._value, np.ndarray):
            self._value = self.numpy()
        return self._value

    def update_inplace(self, data: Any) -> None:
        """Overwrites the elements with those of an array or of another value."""
        with refusing("onnxruntime", _kind_of_update):
            source = value_of(data)
            if not isinstance(source, np.ndarray | jax.Array):
                raise InvalidType(Problem("data", "must be a NumPy array or an OrtValue", show(data)))
            if source.size != self._value.size or source.dtype != self._value.dtype:
                rule = f"must be {self.data_type()} of shape {tuple(self.shape())}"
                raise InvalidDesc(Problem("data", rule, f"{source.dtype} of shape {source.shape}"))
            elements = np.asarray(source).reshape(self._value.shape)
            if isinstance(self._value, np.ndarray) and self._value.flags.writeable:
                np.copyto(self._value, elements)
            else:
                self._value = elements.copy()

    # Sparse values

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> "OrtValue":
        """Raises, because no value is sparse."""
        with refusing("onnxruntime"):
            raise Unsupported(Problem("ort_value_from_sparse_tensor", NO_SPARSE_VALUES))

    def as_sparse_tensor(self) -> Any:
        """Raises, because no value is sparse."""
        with refusing("onnxruntime"):
            raise Unsupported(Problem("as_sparse_tensor", NO_SPARSE_VALUES))

    # DLPack

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """The elements for other libraries, which share the CPU's memory."""
        with refusing("onnxruntime"):
            return self._memory().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        with refusing("onnxruntime"):
            require_memory(self._device)
            return _DLPACK_CPU

    @classmethod
    def from_dlpack(cls, data: Any, /) -> "OrtValue":
        """A value that shares the CPU's memory with another library's array, or with a capsule of one."""
        with refusing("onnxruntime", type):
            is_capsule = type(data).__name__ == "PyCapsule"
            source = _Capsule(data) if is_capsule else data
            if not hasattr(source, "__dlpack__"):
                raise InvalidType(Problem("data", "must be an array or a capsule of DLPack", show(data)))
            if source.__dlpack_device__() != _DLPACK_CPU:
                rule = "must be in the CPU's memory"
                raise Refusal(Problem("data", rule, f"device {source.__dlpack_device__()} of DLPack"))
            array = np.from_dlpack(source)
            if not array.flags.c_contiguous:
                raise Refusal(Problem("data", "must be contiguous", show(array)))
            return cls(np.asarray(_Writable(array)) if is_capsule else array, "cpu")


_DLPACK_CPU = (1, 0)  # kDLCPU, and the number of the device


class _Capsule:
    """A capsule of DLPack that says that it is in the CPU's memory, as ONNX Runtime assumes too."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU


class _Writable:
    """An array that may be written to; NumPy guesses that a capsule's may not."""

    def __init__(self, array: Any) -> None:
        self._array = array  # owns the memory
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _kind_of_update(error: DmlError) -> type[DmlError]:
    return InvalidType if isinstance(error, InvalidType) else Refusal


def value_of(value: Any) -> Any:
    """Returns the content of an OrtValue, or the value itself."""
    return value._value if isinstance(value, OrtValue) else value


def as_numpy(value: Any) -> Any:
    """Converts a result to what ONNX Runtime returns: a writable array, or a list of writable arrays."""
    if isinstance(value, list):
        return [as_numpy(element) for element in value]
    if value is None:
        return None
    # ONNX Runtime's int64 is C's long long, which NumPy prints with its dtype where its own int64 is C's long.
    return np.array(value, np.longlong if value.dtype == np.int64 else None)


def device_of_name(name: str, index: int) -> str:
    """The name of a device, if it can stand for JAX's."""
    if name not in DEVICES or index != 0:
        rule = f"must be {' or '.join(DEVICES)} with index 0, both of which stand for JAX's device"
        raise Unsupported(Problem("device_type", rule, f"{show(name)} with index {index}"))
    return name


def require_memory(device: str) -> None:
    """Raises if an address is on a device other than the CPU."""
    if device != "cpu":
        raise Unsupported(Problem("device_type", "must be cpu for addresses of memory", show(device)))


def memory_at(address: int, element_type: Any, shape: Sequence[int]) -> Any:
    """The array at an address of the CPU's memory."""
    dtype, sizes = dtype_of(element_type), integers("shape", shape)
    buffer = (ctypes.c_byte * (prod(sizes) * dtype.itemsize)).from_address(address)
    return np.ndarray(sizes, dtype, memoryview(buffer))


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """Converts an element type, ONNX's number or anything that NumPy takes, to a NumPy type."""
    dtype: np.dtype[Any] = np.dtype(
        helper.tensor_dtype_to_np_dtype(element_type) if isinstance(element_type, int) else element_type
    )
    return dtype


def type_text(proto: onnx.TypeProto) -> str:
    """A type in ONNX Runtime's words, such as seq(tensor(float)); empty if it is unknown."""
    field = proto.WhichOneof("value")
    if field is None:
        return ""
    inner = getattr(proto, field)
    if field == "map_type":
        return f"map({_element_text(inner.key_type)},{type_text(inner.value_type)})"
    if field in _OUTER:
        return f"{_OUTER[field]}({type_text(inner.elem_type)})"
    return f"{field.removesuffix('_type')}({_element_text(inner.elem_type)})"


_OUTER: Mapping[str, str] = {"sequence_type": "seq", "optional_type": "optional"}


def _element_text(element: int) -> str:
    return str(onnx.TensorProto.DataType.Name(element)).lower()


def _type_of_value(value: Any) -> str:
    if isinstance(value, list):
        return f"seq({_type_of_value(value[0])})" if value else "seq(tensor(float))"
    return type_of_dtype(value.dtype)


def type_of_dtype(dtype: np.dtype[Any]) -> str:
    """The type of an array in ONNX Runtime's words, such as tensor(float)."""
    return f"tensor({'string' if dtype.kind == 'O' else _element_text(helper.np_dtype_to_tensor_dtype(dtype))})"
