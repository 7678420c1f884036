"""Views of a graph's buffers: an operation that only moves elements changes the view and needs no node."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from dmljax.descriptors.tensor import TensorDesc, packed_strides
from dmljax.errors import Problem, Unsupported
from dmljax.text import join_sizes
from dmljax.types import DataType


@dataclass(frozen=True)
class View:
    """The layout of an array in the buffer of an input, a constant or a node's output."""

    source: str
    dtype: np.dtype[Any]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    is_weak: bool = False

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.sizes, self.dtype, weak_type=self.is_weak)

    @property
    def desc(self) -> TensorDesc:
        whole = desc_of(self.dtype, self.sizes)
        return whole if self.is_packed else TensorDesc(whole.data_type, whole.sizes, self.strides)

    @property
    def is_packed(self) -> bool:
        steps = zip(self.sizes, self.strides, packed_strides(self.sizes), strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in steps)

    def transpose(self, axes: Sequence[int]) -> "View":
        return replace(self, sizes=tuple(self.sizes[i] for i in axes), strides=tuple(self.strides[i] for i in axes))

    def broadcast_in_dim(self, sizes: Sequence[int], axes: Sequence[int]) -> "View":
        """Broadcasts like `lax.broadcast_in_dim`: dimension `i` becomes `axes[i]`, and others repeat elements."""
        strides = [0] * len(sizes)
        for axis, size, stride in zip(axes, self.sizes, self.strides, strict=True):
            strides[axis] = stride if size == sizes[axis] else 0
        return replace(self, sizes=tuple(sizes), strides=tuple(strides))

    def broadcast(self, sizes: Sequence[int]) -> "View":
        """Broadcasts like NumPy."""
        return self.broadcast_in_dim(sizes, range(len(sizes) - len(self.sizes), len(sizes)))

    def reshape(self, sizes: Sequence[int]) -> "View | None":
        """Reshapes the view; None if no strides can express the result."""
        if 0 in sizes:
            return replace(self, sizes=tuple(sizes), strides=packed_strides(tuple(sizes)))
        runs: list[tuple[int, int]] = []  # sizes and strides of runs of mergeable dimensions
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size > 1 and runs and runs[-1][1] == size * stride:
                runs[-1] = (runs[-1][0] * size, stride)
            elif size > 1:
                runs.append((size, stride))
        strides: list[int] = []
        count, stride = 1, 1
        for size in reversed(sizes):
            if size > 1 and count == 1:
                count, stride = runs.pop()
            if count % size:
                return None
            strides.append(stride)
            count, stride = count // size, stride * size
        return replace(self, sizes=tuple(sizes), strides=tuple(reversed(strides)))


def desc_of(dtype: Any, sizes: Sequence[int]) -> TensorDesc:
    """The desc of a packed tensor; DirectML stores booleans as bytes, and requires at least one dimension."""
    name = "UINT8" if np.dtype(dtype).kind == "b" else np.dtype(dtype).name.upper()
    if name not in DataType.__members__:
        raise Unsupported(Problem((), "must have a DirectML data type", name.lower()))
    if 0 in sizes:
        raise Unsupported(Problem((), "must not be empty, because DirectML has no empty tensors", join_sizes(sizes)))
    return TensorDesc(DataType[name], tuple(sizes) or (1,))
