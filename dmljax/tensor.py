"""TensorDesc: how a tensor lies in a buffer. Nothing else in dmljax computes with strides or bytes."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, product
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.checks import UINT64_MAX, UINT_MAX, array, integer_in, parse_enum, set_fields, uints
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, all_checked
from dmljax.text import join_sizes
from dmljax.types import DataType, TensorFlags

MAX_DIMENSION_COUNT = 8


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
        data_type, sizes, strides, flags, total, alignment = all_checked(
            lambda: parse_enum(DataType, "DataType", self.data_type),
            lambda: uints("Sizes", self.sizes),
            lambda: None if self.strides is None else uints("Strides", self.strides),
            lambda: parse_enum(TensorFlags, "Flags", self.flags),
            lambda: None if total is None else integer_in("TotalTensorSizeInBytes", total, 0, UINT64_MAX),
            lambda: integer_in("GuaranteedBaseOffsetAlignment", alignment, 0, UINT_MAX),
        )
        set_fields(
            self,
            data_type=data_type,
            sizes=sizes,
            strides=strides,
            flags=flags,
            total_tensor_size_in_bytes=total or None,  # 0 is what a C program leaves there that wants the minimum
            guaranteed_base_offset_alignment=alignment,
        )
        for problem in self._problems():
            raise InvalidDesc(problem)

    def _problems(self) -> Iterator[Problem]:
        if self.data_type is DataType.UNKNOWN:
            yield Problem("DataType", "must be a known data type", "UNKNOWN")
        if not 1 <= self.rank <= MAX_DIMENSION_COUNT:
            yield Problem("DimensionCount", f"must be in [1, {MAX_DIMENSION_COUNT}]", self.rank)
        if 0 in self.sizes:
            yield Problem("Sizes", "must be at least 1 each", join_sizes(self.sizes))
        if self.strides is not None and len(self.strides) != self.rank:
            yield Problem("Strides", f"must have {self.rank} elements, as Sizes has", join_sizes(self.strides))
        # The second limit keeps DMLCalcBufferTensorSize's 32-bit index of the last element from wrapping.
        if max(self.element_count, self._last_element + 1) > UINT_MAX:
            yield Problem("Sizes", "and Strides must span at most 2^32 - 1 elements", self)
        total = self.total_tensor_size_in_bytes
        if total is not None and total < self.minimum_size_in_bytes:
            yield Problem("TotalTensorSizeInBytes", f"must be at least {self.minimum_size_in_bytes}", total)
        alignment = self.guaranteed_base_offset_alignment
        if alignment and (alignment & (alignment - 1) or alignment * 8 < self.data_type.bits):
            yield Problem(
                "GuaranteedBaseOffsetAlignment", "must be a power of two of at least the element size", alignment
            )

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

    def write(self, buffer: Any, logical: Any) -> None:
        """Copies a logical array into `buffer`; the bytes between its elements stay as they are."""
        logical = np.asarray(array("array", logical))
        if logical.shape != self.sizes or logical.dtype != self.dtype:
            expected, given = f"{self.dtype}{list(self.sizes)}", f"{logical.dtype}{list(logical.shape)}"
            raise InvalidDesc(Problem("array", f"must be {expected}", given))
        data = np.frombuffer(_bytes_of(buffer), np.uint8)
        if not data.flags.writeable:
            raise InvalidType(Problem("buffer", "must be writable", f"a read-only {type(buffer).__name__}"))
        view = self._view(data)
        if self.overlaps:
            raise InvalidDesc(Problem("Strides", "must give each element of an output a place of its own", self))
        view[...] = logical

    def _view(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        if self.data_type.bits < 8:
            raise Unsupported(Problem((), f"buffers of {self.data_type.name} cannot be read or written"))
        itemsize = self.dtype.itemsize
        needed = (self._last_element + 1) * itemsize
        if data.size < needed:
            raise InvalidDesc(Problem("buffer", f"must hold at least {needed} bytes for {self}", data.size))
        strides = [stride * itemsize for stride in self.strides or packed_strides(self.sizes)]
        # NumPy checks the bounds once more: it refuses a view that leaves the buffer.
        return np.ndarray(self.sizes, self.dtype, buffer=data.data, strides=strides)

    @property
    def overlaps(self) -> bool:
        """Whether two elements share a place in the buffer, as no two of an output may."""
        strides = self.strides or packed_strides(self.sizes)
        steps = sorted((stride, size - 1) for size, stride in zip(self.sizes, strides, strict=True) if size > 1)
        # A dimension that steps over everything that the smaller ones reach keeps apart what they keep apart.
        while steps and steps[-1][0] > _reach(steps[:-1]):
            steps.pop()
        if not steps:
            return False
        if steps[0][0] == 0 or math.prod(count + 1 for _, count in steps) > _reach(steps) + 1:
            return True
        return _some_meet(tuple(steps))

    def __str__(self) -> str:
        strides = "" if self.strides is None else f" strides {join_sizes(self.strides)}"
        return f"{self.data_type.name} {join_sizes(self.sizes)}{strides}"


# Two elements share a place if some steps along the dimensions, not all 0, lead from one to the other and yet nowhere.
# The dimensions are parted into two groups: the steps along one must lead as far as those along the other lead back. Of
# 8 dimensions of 15 there are 29^8 ways to step, and 29^4 in each group; the most there is to look at are the 10^7 ways
# along two dimensions of 1625, whose third is a division.

_Steps = tuple[tuple[int, int], ...]  # for each dimension its stride, and how many steps there are along it


def _reach(steps: Iterable[tuple[int, int]]) -> int:
    """How far all steps together lead."""
    return sum(stride * count for stride, count in steps)


@lru_cache(maxsize=1024)
def _some_meet(steps: _Steps) -> bool:
    """Whether some steps that are not all 0 lead nowhere."""
    group, others = min(_groups(steps), key=_work)
    back = np.sort(np.concatenate(list(_distances(others)))) if len(others) > 1 else np.zeros(1, np.int64)
    if np.count_nonzero(back == 0) > 1:
        return True
    zeros = 0
    for away in _distances(group):
        zeros += int(np.count_nonzero(away == 0))
        if zeros > 1 or _leads_back(away[away != 0], others, back):
            return True
    return False


def _leads_back(away: NDArray[np.int64], others: _Steps, back: NDArray[np.int64]) -> bool:
    """Whether one of the distances `away` is also one of steps along the `others`, which are `back` if several."""
    if len(others) == 1:
        ((stride, count),) = others
        return bool(((away % stride == 0) & (away <= stride * count)).any())
    found = np.searchsorted(back, away)
    return bool((back[np.minimum(found, back.size - 1)] == away).any())


def _groups(steps: _Steps) -> Iterator[tuple[_Steps, _Steps]]:
    """All ways to part the dimensions into two groups that are not empty."""
    for chosen in product((False, True), repeat=len(steps)):
        if any(chosen) and not all(chosen):
            yield tuple(compress(steps, chosen)), tuple(compress(steps, (not one for one in chosen)))


def _work(groups: tuple[_Steps, _Steps]) -> int:
    """How many distances there are to compare; whether one is some steps along one dimension, a division tells."""
    group, others = groups
    return _ways(group) + (_ways(others) if len(others) > 1 else 0)


def _ways(steps: _Steps) -> int:
    return math.prod(2 * count + 1 for _, count in steps)


def _distances(steps: _Steps) -> Iterator[NDArray[np.int64]]:
    """How far all steps lead, some at a time; those the other way round lead as far."""
    (stride, count), *rest = sorted(steps, key=lambda step: step[1], reverse=True)
    inner = np.zeros(1, np.int64)
    for inner_stride, inner_count in rest:
        inner = np.add.outer(np.arange(-inner_count, inner_count + 1) * inner_stride, inner).ravel()
    at_once = max(1, 2**18 // inner.size)
    for begin in range(0, count + 1, at_once):
        first = np.arange(begin, min(begin + at_once, count + 1)) * stride
        yield np.abs(np.add.outer(first, inner)).ravel()


def without_leading_ones(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """`sizes` from the first that is not 1."""
    leading = next((i for i, size in enumerate(sizes) if size != 1), len(sizes))
    return sizes[leading:]


def packed_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, the last dimension changing fastest."""
    return tuple(math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


def _bytes_of(buffer: Any) -> memoryview:
    try:
        return memoryview(buffer).cast("B")
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidType(
            Problem("buffer", "must hold its bytes in one piece", f"{type(buffer).__name__} ({error})")
        ) from None
