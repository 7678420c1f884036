"""TensorDesc: the layout of a tensor in a buffer.

Only this module computes with strides and bytes, and lowerings/strides.py does the same in JAX.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.calls.binding import check_arguments
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, all_checked
from dmljax.foundation.checks import UINT64_MAX, UINT_MAX, array, integer_in, parse_enum, set_fields, uints
from dmljax.lowerings.strides import read_strided, reinterpret
from dmljax.text import hint_for_spelling, join_sizes, no_attribute_of
from dmljax.types import INTEGER_4, NEEDS_X64, DataType, TensorFlags, x64_enabled

MAX_DIMENSION_COUNT = 8


@dataclass(frozen=True, init=False)
class TensorDesc:
    """`DML_BUFFER_TENSOR_DESC`: the data type and sizes of a tensor, and the layout of its elements in a buffer.

    `strides` are in elements, not bytes. A stride of 0 repeats an element along a dimension; `strides=None` means that
    the tensor is packed, without gaps between elements. Elements of 4 bits are stored two to a byte, the first in the
    low half.

    >>> columns = TensorDesc("INT16", sizes=(2, 3), strides=(1, 2))
    >>> columns.read(np.array([1, 4, 2, 5, 3, 6], "int16")).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None
    flags: TensorFlags
    total_tensor_size_in_bytes: int | None
    guaranteed_base_offset_alignment: int

    @check_arguments
    def __init__(
        self,
        data_type: DataType | str | int,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        flags: TensorFlags | str | int = TensorFlags.NONE,
        total_tensor_size_in_bytes: int | None = None,
        guaranteed_base_offset_alignment: int = 0,
    ) -> None:
        total, alignment = total_tensor_size_in_bytes, guaranteed_base_offset_alignment
        data_type, sizes, strides, flags, total, alignment = all_checked(
            lambda: parse_enum(DataType, "DataType", data_type),
            lambda: uints("Sizes", sizes),
            lambda: None if strides is None else uints("Strides", strides),
            lambda: parse_enum(TensorFlags, "Flags", flags),
            lambda: None if total is None else integer_in("TotalTensorSizeInBytes", total, 0, UINT64_MAX),
            lambda: integer_in("GuaranteedBaseOffsetAlignment", alignment, 0, UINT_MAX),
        )
        set_fields(
            self,
            data_type=data_type,
            sizes=sizes,
            strides=strides,
            flags=flags,
            total_tensor_size_in_bytes=total or None,  # a C program leaves 0 for the minimum size
            guaranteed_base_offset_alignment=alignment,
        )
        for problem in self._problems():
            raise InvalidDesc(problem)

    if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

        def __getattr__(self, name):
            raise no_attribute_of(self, name, hint_for_spelling(self, name, _COMPUTED, _ELSEWHERE))

    def _problems(self) -> Iterator[Problem]:
        if self.data_type is DataType.UNKNOWN:
            yield Problem("DataType", "must be a known data type", "UNKNOWN")
        if not 1 <= self.rank <= MAX_DIMENSION_COUNT:
            yield Problem("DimensionCount", f"must be in [1, {MAX_DIMENSION_COUNT}]", self.rank)
        if 0 in self.sizes:
            yield Problem("Sizes", "must each be at least 1", join_sizes(self.sizes))
        if self.strides is not None and len(self.strides) != self.rank:
            yield Problem("Strides", f"must have {self.rank} elements, as Sizes has", join_sizes(self.strides))
        # The second limit keeps DMLCalcBufferTensorSize's 32-bit index of the last element from wrapping.
        if max(self.element_count, self.span) > UINT_MAX:
            yield Problem("Sizes", "must span at most 2^32 - 1 elements", self, [("Strides",)])
        total = self.total_tensor_size_in_bytes
        if total is not None and total < self.minimum_size_in_bytes:
            yield Problem("TotalTensorSizeInBytes", f"must be at least {self.minimum_size_in_bytes}", total)
        alignment = self.guaranteed_base_offset_alignment
        if alignment and (alignment & (alignment - 1) or alignment * 8 < self.data_type.bits):
            yield Problem(
                "GuaranteedBaseOffsetAlignment", "must be a power of two of at least the element size", alignment
            )

    def __repr__(self) -> str:
        layout = {
            "strides": self.strides,
            "flags": self.flags,
            "total_tensor_size_in_bytes": self.total_tensor_size_in_bytes,
            "guaranteed_base_offset_alignment": self.guaranteed_base_offset_alignment,
        }
        parts = [repr(self.data_type.name), repr(self.sizes)]
        parts += [f"{name}={value!r}" for name, value in layout.items() if value]
        return f"TensorDesc({', '.join(parts)})"

    @property
    def rank(self) -> int:
        """`DimensionCount`."""
        return len(self.sizes)

    @property
    def effective_rank(self) -> int:
        """`DimensionCount` without the leading dimensions of size 1."""
        return len(without_leading_ones(self.sizes))

    @property
    def element_count(self) -> int:
        """The number of elements of the logical tensor, whatever its strides."""
        return math.prod(self.sizes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the logical array."""
        return self.data_type.dtype

    @property
    def shape_dtype(self) -> jax.ShapeDtypeStruct:
        """The shape and dtype of the logical array."""
        return jax.ShapeDtypeStruct(self.sizes, self.dtype)

    @property
    def minimum_size_in_bytes(self) -> int:
        """The minimum size in bytes of a buffer for this tensor, as `DMLCalcBufferTensorSize` computes it.

        >>> TensorDesc("UINT8", (1, 1, 1, 5)).minimum_size_in_bytes
        8
        """
        return -(-self.span * self.data_type.bits // 32) * 4

    @property
    def span(self) -> int:
        """The number of elements in the buffer up to the tensor's last element."""
        strides = self.strides or packed_strides(self.sizes)
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, strides, strict=False))

    @property
    def span_in_bytes(self) -> int:
        """The number of bytes in the buffer up to the tensor's last element."""
        return -(-self.span * self.data_type.bits // 8)

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides of the dimensions with several elements; the others do not matter."""
        strides = self.strides or packed_strides(self.sizes)
        return tuple(stride for size, stride in zip(self.sizes, strides, strict=True) if size > 1)

    @property
    def is_packed(self) -> bool:
        """Whether the elements lie in the buffer without gaps, in the order of their indices."""
        rows = zip(self.sizes, self.strides or (), packed_strides(self.sizes), strict=False)
        return all(size == 1 or stride == packed for size, stride, packed in rows)

    @overload
    def read(self, buffer: jax.Array) -> jax.Array: ...

    @overload
    def read(self, buffer: Any) -> NDArray[Any]: ...

    def read(self, buffer: Any) -> Any:
        """Copies the logical array out of `buffer`, a contiguous bytes-like object or a JAX array.

        A NumPy array must have the tensor's type, or be of bytes: `uint8` or `int8`.
        From a JAX array, it returns a JAX array, under every transformation: strides that transpose and repeat become a
        transpose and a broadcast. Bytes of another type than `data_type` have no gradient.

        >>> TensorDesc("INT4", (3,)).read(bytes([0x21, 0x0F])).tolist()
        [1, 2, -1]
        """
        if isinstance(buffer, jax.Array):
            return self._read_array(buffer)
        data = self._bytes_in(buffer)
        return self._view(unpack(data) if self.data_type in INTEGER_4 else data).copy()

    def _read_array(self, buffer: jax.Array) -> jax.Array:
        if self.data_type.bits == 64 and not x64_enabled():
            raise Unsupported(Problem("DataType", NEEDS_X64, self.data_type.name))
        flat = buffer.astype(np.uint8) if buffer.dtype == bool else buffer
        elements = reinterpret(flat.ravel(), self.dtype)
        if elements.size < self.span:
            rule = f"must hold at least {self.span_in_bytes} bytes for {self}"
            raise InvalidDesc(Problem("buffer", rule, flat.size * flat.dtype.itemsize))
        return read_strided(elements, self.sizes, self.strides or packed_strides(self.sizes))

    def write(self, buffer: Any, logical: Any) -> None:
        """Copies a logical array into `buffer`, a writable, contiguous bytes-like object.

        The bits between the elements stay unchanged.
        """
        logical = np.asarray(array("array", logical))
        if logical.shape != self.sizes or logical.dtype != self.dtype:
            expected, actual = f"{self.dtype}{list(self.sizes)}", f"{logical.dtype}{list(logical.shape)}"
            raise InvalidDesc(Problem("array", f"must be {expected}", actual))
        data = self._bytes_in(buffer)
        if not data.flags.writeable:
            raise InvalidType(Problem("buffer", "must be writable", f"a read-only {type(buffer).__name__}"))
        if not self.is_nested:
            raise InvalidDesc(Problem("Strides", "must not let elements of an output overlap or interleave", self))
        if self.data_type in INTEGER_4:
            halves = unpack(data)
            self._view(halves)[...] = logical
            data[:] = pack(halves)
        else:
            self._view(data)[...] = logical

    def buffer_of(self, logical: Any) -> bytearray:
        """A new buffer that holds a logical array, with zeros between its elements."""
        buffer = bytearray(self.span_in_bytes)
        self.write(buffer, logical)
        return buffer

    def _bytes_in(self, buffer: Any) -> NDArray[np.uint8]:
        """The bytes of `buffer` up to the last element."""
        if isinstance(buffer, np.ndarray | np.generic) and not self._may_hold(buffer.dtype):
            remedy = f"buffer.astype({self.dtype.name!r}) converts the numbers, and buffer.view('uint8') has the bytes"
            raise InvalidType(
                Problem("buffer", f"must be of {self.dtype.name} or bytes", buffer.dtype.name, remedy=remedy)
            )
        data = np.frombuffer(_bytes_of(buffer), np.uint8)
        if data.size < self.span_in_bytes:
            raise InvalidDesc(Problem("buffer", f"must hold at least {self.span_in_bytes} bytes for {self}", data.size))
        return data[: self.span_in_bytes]

    def _may_hold(self, dtype: np.dtype[Any]) -> bool:
        """Whether a NumPy array of this type has the tensor's elements, or bytes."""
        is_bool = dtype.kind == "b" and self.data_type.bits == 8
        return dtype == self.dtype or dtype.kind in "SV" or (dtype.kind in "iu" and dtype.itemsize == 1) or is_bool

    def _view(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        """Views bytes as the logical array, where each element has its own bytes."""
        strides = [stride * self.dtype.itemsize for stride in self.strides or packed_strides(self.sizes)]
        # NumPy also refuses a view that exceeds the buffer, as a second check.
        return np.ndarray(self.sizes, self.dtype, buffer=data.data, strides=strides)

    @property
    def is_nested(self) -> bool:
        """Whether each stride steps over all elements along smaller strides, so that no two share a place.

        Outputs must be nested. DirectML also takes strides that interleave without overlap, such as (3, 4) for (3, 2).
        """
        strides = self.strides or packed_strides(self.sizes)
        reach = 0
        for stride, size in sorted(zip(strides, self.sizes, strict=True)):
            if size > 1 and stride <= reach:
                return False
            reach += (size - 1) * stride
        return True

    def __str__(self) -> str:
        strides = "" if self.strides is None else f" strides {join_sizes(self.strides)}"
        return f"{self.data_type.name} {join_sizes(self.sizes)}{strides}"


# Attributes in directml.h, NumPy and PyTorch
_ELSEWHERE = {
    **dict.fromkeys(("dimensioncount", "ndim", "dim"), "rank"),
    **dict.fromkeys(("shape", "dimensions", "dims"), "sizes"),
    **dict.fromkeys(("size", "numel"), "element_count"),
    **dict.fromkeys(("nbytes", "dmlcalcbuffertensorsize", "calcbuffertensorsize"), "minimum_size_in_bytes"),
    "type": "data_type",
}
_COMPUTED = dict.fromkeys(("itemsize", "elementsize"), "tensor.data_type.bits // 8")


def without_leading_ones(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """`sizes` without leading 1s."""
    leading = next((i for i, size in enumerate(sizes) if size != 1), len(sizes))
    return sizes[leading:]


def packed_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps in row-major order, in which the last dimension changes fastest."""
    return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def pack(halves: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Packs an even number of 4-bit elements two to a byte, the first in the low half; `halves` has a byte for each.

    >>> pack(np.array([1, 2, 15, 0], "uint8")).tobytes().hex()
    '210f'
    """
    return (halves[0::2] & np.uint8(15)) | (halves[1::2] << np.uint8(4))


def unpack(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Gives each 4-bit element a byte: the inverse of `pack`."""
    halves = np.empty(2 * data.size, np.uint8)
    halves[0::2], halves[1::2] = data & 15, data >> 4
    return halves


def _bytes_of(buffer: Any) -> memoryview:
    try:
        return memoryview(buffer).cast("B")
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidType(
            Problem("buffer", "must be a contiguous bytes-like object", f"{type(buffer).__name__} ({error})")
        ) from None
