"""Tensor descriptions, and the data that programs bind and get back."""

import inspect
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dmljax import directml
from dmljax.descriptors.tensor import packed_strides
from dmljax.errors import InvalidDesc, InvalidType, Problem, within
from dmljax.foundation.checks import integers
from dmljax.pydirectml.enumerations import TensorDataType, TensorFlags
from dmljax.pydirectml.names import Hinting
from dmljax.text import show
from dmljax.types import DataType


class TensorPolicy:
    """Chooses the strides of a new TensorDesc from its sizes: packed, or with channels last in memory."""

    default: "TensorPolicy"
    interleaved_channel: "TensorPolicy"

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"TensorPolicy.{self._name}"

    def strides(self, sizes: Sequence[int]) -> tuple[int, ...] | None:
        """The strides for these sizes; None if packed."""
        if self is TensorPolicy.default or len(sizes) < 2:
            return None
        batch, channels, *space = sizes
        packed = packed_strides((batch, *space, channels))
        return (packed[0], packed[-1], *packed[1:-1])


TensorPolicy.default = TensorPolicy("default")
TensorPolicy.interleaved_channel = TensorPolicy("interleaved_channel")


_FORMS = tuple(
    inspect.signature(form)
    for form in (
        lambda data_type, sizes, tensor_policy=TensorPolicy.default: None,
        lambda data_type, flags, sizes, tensor_policy=TensorPolicy.default: None,
        lambda data_type, sizes, strides: None,
        lambda data_type, flags, sizes, strides, total_tensor_size_in_bytes, guaranteed_base_offset_alignment: None,
    )
)
_KINDS = {
    "data_type": lambda value: isinstance(value, TensorDataType),
    "flags": lambda value: isinstance(value, TensorFlags),
    "sizes": lambda value: _is_integers(value),
    "strides": lambda value: value is None or _is_integers(value),
    "tensor_policy": lambda value: isinstance(value, TensorPolicy),
    "total_tensor_size_in_bytes": lambda value: isinstance(value, int | np.integer),
    "guaranteed_base_offset_alignment": lambda value: isinstance(value, int | np.integer),
}


def _is_integers(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and all(isinstance(number, int | np.integer) for number in value)


class TensorDesc(Hinting):
    """A tensor's type, sizes and layout in a buffer; strides are in elements, and None for a packed tensor.

    There are four forms: `(data_type, sizes, tensor_policy)` and `(data_type, flags, sizes, tensor_policy)`, both with
    an optional policy, `(data_type, sizes, strides)`, and `(data_type, flags, sizes, strides,
    total_tensor_size_in_bytes, guaranteed_base_offset_alignment)`.

    >>> import dmljax.pydirectml as dml
    >>> dml.TensorDesc(dml.FLOAT32, [1, 3, 2, 2])
    dml.TensorDesc of type 1 and shape [1,3,2,2] with flags 0
    """

    _elsewhere = {
        **dict.fromkeys(("shape", "dims"), "desc.sizes"),
        **dict.fromkeys(("dtype", "type"), "desc.data_type"),
        **dict.fromkeys(("dimensioncount", "ndim", "rank"), "len(desc.sizes)"),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        arguments = _bind(args, kwargs)
        policy = arguments.get("tensor_policy", TensorPolicy.default)
        strides = arguments.get("strides", policy.strides(arguments["sizes"]))
        with within("TensorDesc"):
            self._desc = directml.TensorDesc(
                DataType(int(arguments["data_type"])),
                tuple(arguments["sizes"]),
                None if strides is None else tuple(strides),
                directml.TensorFlags(int(arguments.get("flags", TensorFlags.NONE))),
                arguments.get("total_tensor_size_in_bytes"),
                arguments.get("guaranteed_base_offset_alignment", 0),
            )

    @classmethod
    def _from_desc(cls, desc: directml.TensorDesc) -> "TensorDesc":
        result = cls.__new__(cls)
        result._desc = desc
        return result

    @property
    def data_type(self) -> Any:
        """The type of the elements."""
        return TensorDataType(int(self._desc.data_type))

    @property
    def flags(self) -> Any:
        """OWNED_BY_DML or NONE, which give the same results."""
        return TensorFlags(int(self._desc.flags))

    @property
    def sizes(self) -> list[int]:
        """The size of each dimension."""
        return list(self._desc.sizes)

    @property
    def strides(self) -> list[int] | None:
        """The distance in elements between neighbors along each dimension; None if the tensor is packed."""
        return None if self._desc.strides is None else list(self._desc.strides)

    @property
    def total_tensor_size_in_bytes(self) -> int:
        """The size of the buffer, a multiple of 4."""
        return self._desc.total_tensor_size_in_bytes or self._desc.minimum_size_in_bytes

    @property
    def guaranteed_base_offset_alignment(self) -> int:
        """The alignment in bytes, or 0."""
        return self._desc.guaranteed_base_offset_alignment

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        return f"dml.TensorDesc of type {int(self.data_type)} and shape [{sizes}] with flags {int(self.flags)}"


def _bind(args: Any, kwargs: Any) -> dict[str, Any]:
    """Binds the arguments to the first form that fits them."""
    for form in _FORMS:
        try:
            arguments = form.bind(*args, **kwargs).arguments
        except TypeError:
            continue
        if all(_KINDS[name](value) for name, value in arguments.items()):
            return arguments
    _require_integers(args, kwargs)
    texts = [*map(show, args), *(f"{name}={show(value)}" for name, value in kwargs.items())]
    forms = " or ".join(str(form) for form in _FORMS)
    remedy = TensorDataType.remedy(kwargs.get("data_type", *args[:1]))
    raise InvalidType(Problem((), f"TensorDesc takes {forms}", ", ".join(texts) or "nothing", remedy=remedy))


def _require_integers(args: Any, kwargs: Any) -> None:
    """Raises if the sizes or the strides have an element that is no integer, and all else fits a form."""
    for form in _FORMS:
        try:
            arguments = form.bind(*args, **kwargs).arguments
        except TypeError:
            continue
        wrong = [name for name, value in arguments.items() if not _KINDS[name](value)]
        if wrong in (["sizes"], ["strides"]) and isinstance(arguments[wrong[0]], list | tuple | np.ndarray):
            with within("TensorDesc"):
                integers(wrong[0], arguments[wrong[0]])


def storage_desc(desc: directml.TensorDesc) -> directml.TensorDesc:
    """The desc of the array that represents an input: packed, with size 1 where a stride of 0 repeats an element.

    If other strides remain, it is the one-dimensional buffer.
    """
    if desc.strides is None:
        return directml.TensorDesc(desc.data_type, desc.sizes)
    sizes = tuple(size if stride else 1 for size, stride in zip(desc.sizes, desc.strides, strict=True))
    full_desc = directml.TensorDesc(desc.data_type, sizes, desc.strides)
    return directml.TensorDesc(desc.data_type, sizes if full_desc.is_packed else (desc.span,))


def storage_array(desc: directml.TensorDesc, data: Any) -> jax.Array:
    """Converts the data that a program binds to an input to the array of `storage_desc`.

    As in the binding, data is converted to float32 and its bytes are reinterpreted as the tensor's type; but data that
    already has the tensor's type is taken as is.
    """
    buffer_desc = storage_desc(desc)
    try:
        array = np.asarray(data)
    except ValueError as error:  # rows of different lengths
        raise InvalidType(Problem("data", "must be convertible to a NumPy array", str(error))) from None
    if array.dtype.kind not in "biuf" and array.dtype != buffer_desc.dtype:
        raise InvalidType(Problem("data", "must be real numbers", f"an array of {array.dtype}"))
    if array.dtype not in (buffer_desc.dtype, np.dtype(np.float32)):
        array = array.astype(np.float32)
    buffer = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    size = buffer_desc.span_in_bytes
    if buffer.size not in (size, desc.total_tensor_size_in_bytes or desc.minimum_size_in_bytes):
        raise InvalidDesc(
            Problem("data", f"must have {size} bytes, like {desc}", f"{buffer.size}, an array {array.shape}")
        )
    return jax.numpy.array(buffer_desc.read(buffer))


class TensorData(Hinting):
    """A result of `Device.compute`, which `numpy.array` reads as float32 if elements have 4 bytes.

    To read other 4-byte types, use `numpy.array(result).view(numpy.uint32)`.

    >>> import dmljax.pydirectml as dml
    >>> np.array(dml.TensorData(np.array([1.0, 2.0], "float32"))).tolist()
    [1.0, 2.0]
    """

    _elsewhere = {
        **dict.fromkeys(("numpy", "array", "data", "values", "tensor"), "numpy.array(result)"),
        **dict.fromkeys(("shape", "sizes"), "numpy.array(result).shape"),
        "tolist": "numpy.array(result).tolist()",
    }

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = np.asarray(self._array)
        read = array.view(np.float32) if array.dtype.itemsize == 4 else array
        return np.array(read, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"dml.TensorData of shape {list(np.shape(self._array))}"
