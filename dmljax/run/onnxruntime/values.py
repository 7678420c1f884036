"""ONNX Runtime's values: arrays whose types have ONNX Runtime's names."""

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import jax
import numpy as np
import onnx
from onnx import helper

from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.foundation.checks import integers
from dmljax.onnx.running.rounded_sizes import RoundedArray
from dmljax.run.answers import Answering, Refusal, refusing
from dmljax.text import show

NO_SPARSE_VALUES = "dmljax has no sparse values, because XLA has none; pass dense arrays"
DEVICES = ("cpu", "dml")  # both are JAX's device


class OrtValue(Answering):
    """An array, or a sequence of arrays, that stays on JAX's device until `numpy` asks for it."""

    _REFUSED: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "ortvalue_from_shape_and_onnx_type",
            "ortvalue_from_shape_and_onnx_type_for_memory_info",
            "ortvalue_from_shape_and_type_for_memory_info",
        ),
        "it is beneath ONNX Runtime's Python classes; write ortvalue_from_shape_and_type",
    )
    _value: Any
    _device: str

    def __init__(self, value: Any, device: str) -> None:
        vars(self).update(_value=value, _device=device)  # faster than the checks of names

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> "OrtValue":
        """A value that shares a contiguous array's memory on the CPU, and copies it to JAX's device for `dml`."""
        with refusing("onnxruntime"):
            if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "OUS":
                raise InvalidType(Problem("numpy_obj", "must be a NumPy array of numbers", show(numpy_obj)))
            return _place(numpy_obj, device_of_name(device_type, device_id))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Any, onnx_element_type: int) -> "OrtValue":
        """A value that shares an array's memory, and reads it as elements of a type of ONNX, such as bfloat16."""
        with refusing("onnxruntime", type):
            if not isinstance(data, np.ndarray) or not isinstance(onnx_element_type, int):
                raise InvalidType(Problem("data", "must be a NumPy array, with the number of a type", show(data)))
            dtype = dtype_of(onnx_element_type)
            if dtype.kind == "O" or dtype.itemsize != data.dtype.itemsize:
                raise Refusal(Problem("data", f"must have elements as long as those of {dtype}", data.dtype))
            return OrtValue(np.asarray(data, order="C").view(dtype), "cpu")

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> "OrtValue":
        """A value of zeros, in the CPU's memory if `memory_info` describes any."""
        require_shape(shape)
        with refusing("onnxruntime"):
            if memory_info is not None:
                device_type, device_id = "cpu", 0
            device, dtype = device_of_name(device_type, device_id), dtype_of(element_type)
            if dtype.kind in "OUS":
                raise InvalidType(Problem("element_type", "must be a type of numbers", show(element_type)))
            return _place(_zeros(_sizes(shape), dtype), device)

    def numpy(self) -> Any:
        """A copy as a NumPy array."""
        return as_numpy(self._tensor())

    def _tensor(self) -> Any:
        """The array; raises if the value is not a tensor."""
        if not self.is_tensor():
            with refusing("onnxruntime"):
                found = "no value" if self._value is None else self.data_type()
                raise InvalidType(Problem((), "only values that are tensors are supported", found))
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def shape(self) -> list[int]:
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """The type in ONNX Runtime's words, such as tensor(float)."""
        return _type_of_value(self._value)

    def element_type(self) -> int:
        """The number of the type of elements in ONNX."""
        elements = self._value if self.is_tensor_sequence() else [self._tensor()]
        return int(helper.np_dtype_to_tensor_dtype(elements[0].dtype)) if elements else onnx.TensorProto.FLOAT

    def tensor_size_in_bytes(self) -> int:
        return int(self._tensor().nbytes)

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
        """The address of the elements, which lives as long as the value; that of a `dml` value is for bindings only."""
        self._tensor()
        if self._device == "cpu":
            return int(self._memory().ctypes.data)
        _BY_HANDLE[id(self)] = self
        return id(self)

    def _memory(self) -> Any:
        """The elements in the CPU's memory, where they stay from now on."""
        if not isinstance(self._tensor(), np.ndarray):
            self._value = self.numpy()
        return self._value

    def update_inplace(self, data: Any) -> None:
        """Overwrites the elements with those of an array or of another value."""
        tensor = self._tensor()
        with refusing("onnxruntime", _kind_of_update):
            source = value_of(data)
            if not isinstance(source, np.ndarray | jax.Array):
                raise InvalidType(Problem("data", "must be a NumPy array or an OrtValue", show(data)))
            if source.size != tensor.size or source.dtype != tensor.dtype:
                rule = f"must be {self.data_type()} of shape {tuple(tensor.shape)}"
                raise InvalidDesc(Problem("data", rule, f"{source.dtype} of shape {source.shape}"))
            if self._device == "dml" and isinstance(source, jax.Array) and source.shape == tensor.shape:
                self._value = source
                return
            elements = np.asarray(source).reshape(tensor.shape)
            if self._device == "dml":
                self._value = _place(elements, "dml")._value
            elif isinstance(tensor, np.ndarray) and tensor.flags.writeable:
                np.copyto(tensor, elements)
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
        """The elements for other libraries, which share the memory: the CPU's, or that of JAX's device for `dml`."""
        if self._device == "cpu":
            memory = self._memory()
            if memory.dtype.kind == "V":  # bfloat16 and other types that NumPy cannot share
                memory = jax.device_put(memory, jax.devices("cpu")[0])
            return memory.__dlpack__(**options)
        return self._tensor().__dlpack__(stream=stream, **options)

    def to_dlpack(self) -> Any:
        """A capsule of DLPack."""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        platform, index = _DLPACK_CPU if self._device == "cpu" else self._tensor().__dlpack_device__()
        return int(platform), int(index)

    def _get_c_value(self) -> "OrtValue":
        """The value for PyTorch's ONNXProgram, which takes it from DLPack."""
        return self

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


class RoundedValue(OrtValue):
    """An array that a decoder has returned with padding, and takes back as it is; others get its true elements."""

    rounded: RoundedArray | None  # until someone may write to the elements

    def __init__(self, rounded: RoundedArray, device: str) -> None:
        vars(self).update(rounded=rounded, _device=device)

    @property
    def _value(self) -> Any:
        if self.rounded is not None:
            self._value = self.rounded.cut()
        return vars(self)["_cut"]

    @_value.setter
    def _value(self, value: Any) -> None:
        vars(self).update(_cut=value, rounded=None)

    def numpy(self) -> Any:
        return as_numpy(content_of(self))

    def shape(self) -> list[int]:
        return list(content_of(self).shape)

    def data_type(self) -> str:
        return type_of_dtype(content_of(self).dtype)

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True

    def is_tensor_sequence(self) -> bool:
        return False


def content_of(value: OrtValue) -> Any:
    """Returns the content of a value, with padding if it still has it."""
    rounded = value.rounded if isinstance(value, RoundedValue) else None
    return value._value if rounded is None else rounded


def value_of_result(result: Any, device: str) -> OrtValue:
    """Makes a value of what a run has computed."""
    return RoundedValue(result, device) if isinstance(result, RoundedArray) else OrtValue(result, device)


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


_BY_HANDLE: WeakValueDictionary[int, OrtValue] = WeakValueDictionary()  # the values of `dml` that programs bind


def _place(array: Any, device: str) -> OrtValue:
    """Makes a value of a NumPy array: with its memory on the CPU, with a copy of it on JAX's device for `dml`."""
    if device == "cpu":
        return OrtValue(np.asarray(array, order="C"), device)
    with jax.enable_x64(True):
        return OrtValue(jax.device_put(np.array(array)), device)


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copies the elements of values to as many others."""
    with refusing("onnxruntime"):
        if len(src) != len(dst):
            raise InvalidDesc(Problem("dst", f"must be {len(src)}, as many as src", len(dst)))
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


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
    return np.array(value, np.longlong if value.dtype == _INT64 else None)


_INT64 = np.dtype(np.int64)
_ALIGNMENT = 64  # bytes; XLA copies inputs that begin elsewhere


def _zeros(sizes: Sequence[int], dtype: np.dtype[Any]) -> Any:
    size = prod(sizes) * dtype.itemsize
    memory = np.zeros(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(sizes)


def device_of_name(name: Any, index: int) -> str:
    """The name of a device, or of an OrtDevice, if it can stand for JAX's."""
    if isinstance(name, Answering):  # an OrtDevice
        name, index = ("cpu" if name.device_type() == 0 else "dml"), name.device_id()
    if name not in DEVICES or (index != 0 and name != "cpu"):
        rule = f"must be {' or '.join(DEVICES)} with index 0, both of which stand for JAX's device"
        raise Unsupported(Problem("device_type", rule, f"{show(name)} with index {index}"))
    return str(name)


def memory_at(device: str, address: Any, element_type: Any, shape: Sequence[int]) -> Any:
    """The array at an address of the CPU's memory, or the value of `dml` whose handle is the address."""
    dtype, sizes = dtype_of(element_type), _sizes(shape)
    if not isinstance(address, int):
        raise InvalidType(Problem("buffer_ptr", "must be an address", show(address)))
    if device == "cpu":
        buffer = (ctypes.c_byte * (prod(sizes) * dtype.itemsize)).from_address(address)
        return np.ndarray(sizes, dtype, memoryview(buffer))
    value = _BY_HANDLE.get(address)
    if value is None:
        raise Refusal(Problem("buffer_ptr", "must be the data_ptr() of a dml value that is still in use", address))
    if (value._value.dtype, value._value.shape) != (dtype, sizes):
        rule = f"must be {value.data_type()} of shape {value._value.shape}, as the value at this data_ptr()"
        raise Refusal(Problem("shape", rule, f"{dtype} of shape {sizes}"))
    return value


def require_shape(shape: Any) -> None:
    """Raises a TypeError unless a shape is a sequence of integers."""
    with refusing("onnxruntime", type):
        integers("shape", shape)


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = integers("shape", shape)
    if min(sizes, default=0) < 0:
        raise InvalidDesc(Problem("shape", "must not be negative", show(sizes)))
    return tuple(sizes)


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """Converts an element type, ONNX's number or anything that NumPy takes, to a NumPy type."""
    try:
        is_number = isinstance(element_type, int)
        dtype: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(element_type) if is_number else element_type)
    except (KeyError, TypeError):
        raise InvalidType(Problem("element_type", "must be a type of NumPy or ONNX", show(element_type))) from None
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
