"""TensorDesc: how a tensor lies in a buffer. Nothing else in dmljax knows of strides, flags or bytes."""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax._errors import InvalidDesc, InvalidType, Unsupported
from dmljax._types import DataType, TensorFlags

MAX_DIMENSION_COUNT = 8
UINT_MAX = 2**32 - 1
UINT64_MAX = 2**64 - 1


@dataclass(frozen=True)
class TensorDesc:
    """`DML_BUFFER_TENSOR_DESC`: data type, sizes, and where each element lies in its buffer.

    `strides` count elements, not bytes; 0 repeats one element along a dimension, None means packed.

    >>> columns = TensorDesc("INT16", sizes=(2, 3), strides=(1, 2))
    >>> columns.read(np.array([1, 4, 2, 5, 3, 6], "int16")).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    flags: TensorFlags = TensorFlags.NONE
    total_tensor_size_in_bytes: int | None = None
    guaranteed_base_offset_alignment: int = 0

    def __post_init__(self) -> None:
        total, alignment = self.total_tensor_size_in_bytes, self.guaranteed_base_offset_alignment
        settle(
            self,
            data_type=named(DataType, "DataType", self.data_type),
            sizes=unsigned_integers("Sizes", self.sizes),
            strides=None if self.strides is None else unsigned_integers("Strides", self.strides),
            flags=named(TensorFlags, "Flags", self.flags),
            total_tensor_size_in_bytes=None
            if total is None
            else integer("TotalTensorSizeInBytes", total, 0, UINT64_MAX),
            guaranteed_base_offset_alignment=integer("GuaranteedBaseOffsetAlignment", alignment, 0, UINT_MAX),
        )
        for rule in self._broken_rules():
            raise InvalidDesc(rule)

    def _broken_rules(self) -> Iterable[str]:
        if self.data_type is DataType.UNKNOWN:
            yield "DataType must be a known data type; got UNKNOWN"
        if not 1 <= self.rank <= MAX_DIMENSION_COUNT:
            yield f"DimensionCount must be in [1, {MAX_DIMENSION_COUNT}]; got {self.rank}"
        if 0 in self.sizes:
            yield f"Sizes must be at least 1 each; got {braced(self.sizes)}"
        if self.strides is not None and len(self.strides) != self.rank:
            yield f"Strides must have {self.rank} elements, as Sizes has; got {braced(self.strides)}"
        # The second limit keeps DMLCalcBufferTensorSize's 32-bit index of the last element from wrapping.
        if max(self.element_count, self._last_element + 1) > UINT_MAX:
            yield f"Sizes and Strides must span at most 2^32 - 1 elements; got {self}"
        total = self.total_tensor_size_in_bytes
        if total is not None and total < self.minimum_size_in_bytes:
            yield f"TotalTensorSizeInBytes must be at least {self.minimum_size_in_bytes}; got {total}"
        alignment = self.guaranteed_base_offset_alignment
        if alignment and (alignment & (alignment - 1) or alignment * 8 < self.data_type.bits):
            yield f"GuaranteedBaseOffsetAlignment must be a power of two of at least the element size; got {alignment}"

    @property
    def rank(self) -> int:
        """`DimensionCount`."""
        return len(self.sizes)

    @property
    def effective_rank(self) -> int:
        """`DimensionCount` less the leading dimensions of size 1."""
        return len(without_leading_ones(self.sizes))

    @property
    def element_count(self) -> int:
        """How many elements the logical tensor has."""
        return math.prod(self.sizes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the logical array."""
        return self.data_type.dtype

    @property
    def shape_dtype(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the logical array."""
        return jax.ShapeDtypeStruct(self.sizes, self.dtype)

    @property
    def minimum_size_in_bytes(self) -> int:
        """The least size of a buffer for this tensor, as `DMLCalcBufferTensorSize` computes it.

        >>> TensorDesc("UINT8", (1, 1, 1, 5)).minimum_size_in_bytes
        8
        """
        bits = (self._last_element + 1) * self.data_type.bits
        return -(-bits // 32) * 4

    @property
    def _last_element(self) -> int:
        strides = self.strides or packed_strides(self.sizes)
        return sum((size - 1) * stride for size, stride in zip(self.sizes, strides, strict=False))

    def read(self, buffer: Any) -> NDArray[Any]:
        """Copies the logical array out of `buffer`, any object that holds its bytes in one piece."""
        return self._view(np.frombuffer(_bytes_of(buffer), np.uint8)).copy()

    def write(self, buffer: Any, array: Any) -> None:
        """Copies a logical array into `buffer`; the bytes between its elements stay as they are."""
        array = np.asarray(array)
        if array.shape != self.sizes or array.dtype != self.dtype:
            raise InvalidDesc(f"array must be {self.dtype}{list(self.sizes)}; got {array.dtype}{list(array.shape)}")
        target = np.frombuffer(_bytes_of(buffer), np.uint8)
        if not target.flags.writeable:
            raise InvalidType(f"buffer must be writable; got a read-only {type(buffer).__name__}")
        if self._overlaps():
            raise InvalidDesc(f"Strides must give each element of an output a place of its own; got {self}")
        self._view(target)[...] = array

    def _view(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        if self.data_type.bits < 8:
            raise Unsupported(f"buffers of {self.data_type.name} cannot be read or written")
        itemsize = self.dtype.itemsize
        needed = (self._last_element + 1) * itemsize
        if data.size < needed:
            raise InvalidDesc(f"buffer must hold at least {needed} bytes for {self}; got {data.size}")
        strides = [stride * itemsize for stride in self.strides or packed_strides(self.sizes)]
        # NumPy checks the bounds once more: it refuses a view that leaves the buffer.
        return np.ndarray(self.sizes, self.dtype, buffer=data.data, strides=strides)

    def _overlaps(self) -> bool:
        steps = sorted((stride, size) for size, stride in zip(self.sizes, self.strides or (), strict=False) if size > 1)
        reach = 0
        for stride, size in steps:
            if stride <= reach or stride == 0:
                break
            reach += (size - 1) * stride
        else:  # each dimension steps over everything that the smaller ones reach
            return False
        places = np.zeros((), np.int64)
        for stride, size in steps:
            places = places[..., None] + np.arange(size) * stride
        return np.unique(places).size < places.size

    def __str__(self) -> str:
        strides = "" if self.strides is None else f" strides {braced(self.strides)}"
        return f"{self.data_type.name} {braced(self.sizes)}{strides}"


def settle(frozen: object, **fields: Any) -> None:
    """Sets fields of a frozen dataclass, from its own `__post_init__` alone."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)


def braced(sizes: Iterable[int]) -> str:
    """Sizes as DirectML's pages write them: `{1,2,3}`."""
    return "{" + ",".join(map(str, sizes)) + "}"


def without_leading_ones(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """`sizes` from the first that is not 1."""
    leading = next((i for i, size in enumerate(sizes) if size != 1), len(sizes))
    return sizes[leading:]


def packed_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, the last dimension changing fastest."""
    return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def named(enumeration: Any, member: str, value: Any) -> Any:
    """`value` as a member of `enumeration`, given by member, number or name."""
    try:
        return enumeration(value)
    except ValueError:
        expected = ", ".join(enumeration.__members__)
        raise InvalidDesc(f"{member} must be one of {expected}; got {value!r}") from None


def integer(member: str, value: Any, lowest: int, highest: int) -> int:
    """`value` as an int in [lowest, highest]."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        whole = operator.index(value)
    except TypeError:
        raise InvalidType(f"{member} must be an integer; got {value!r}") from None
    if not lowest <= whole <= highest:
        raise InvalidDesc(f"{member} must be in [{lowest}, {highest}]; got {whole}")
    return whole


def unsigned_integers(member: str, values: Any) -> tuple[int, ...]:
    """`values` as a tuple of UINTs."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidType(f"{member} must be a sequence of integers; got {values!r}")
    return tuple(integer(f"{member}[{i}]", value, 0, UINT_MAX) for i, value in enumerate(values))


def _bytes_of(buffer: Any) -> memoryview:
    try:
        return memoryview(buffer).cast("B")
    except TypeError as error:
        raise InvalidType(f"buffer must hold its bytes in one piece; got {type(buffer).__name__} ({error})") from None
