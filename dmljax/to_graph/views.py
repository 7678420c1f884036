"""How arrays lie in the buffers of a graph: what only moves elements changes this, and is no node."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from dmljax.errors import Problem, Unsupported
from dmljax.tensor import TensorDesc, packed_strides
from dmljax.text import join_sizes
from dmljax.types import DataType


@dataclass(frozen=True)
class View:
    """How an array lies in the buffer of an input, a constant or an output of a node."""

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
        strided = TensorDesc(whole.data_type, whole.sizes, self.strides or (1,))
        return whole if strided.is_packed else strided

    @property
    def is_packed(self) -> bool:
        steps = zip(self.sizes, self.strides, packed_strides(self.sizes), strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in steps)

    def transposed(self, axes: Sequence[int]) -> "View":
        return replace(self, sizes=tuple(self.sizes[i] for i in axes), strides=tuple(self.strides[i] for i in axes))

    def placed(self, sizes: Sequence[int], axes: Sequence[int]) -> "View":
        """As `lax.broadcast_in_dim`: dimension `i` becomes `axes[i]`, and the others repeat what there is."""
        strides = [0] * len(sizes)
        for axis, size, stride in zip(axes, self.sizes, self.strides, strict=True):
            strides[axis] = stride if size == sizes[axis] else 0
        return replace(self, sizes=tuple(sizes), strides=tuple(strides))

    def broadcast(self, sizes: Sequence[int]) -> "View":
        """As NumPy broadcasts."""
        return self.placed(sizes, range(len(sizes) - len(self.sizes), len(sizes)))

    def reshaped(self, sizes: Sequence[int]) -> "View | None":
        """The same elements in the same order, unless no strides reach them."""
        if 0 in sizes:
            return replace(self, sizes=tuple(sizes), strides=packed_strides(tuple(sizes)))
        runs: list[tuple[int, int]] = []  # dimensions that are one, as the elements lie
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
    """A packed tensor: DirectML has a byte for a truth value, and one dimension at least."""
    name = "UINT8" if np.dtype(dtype).kind == "b" else np.dtype(dtype).name.upper()
    if name not in DataType.__members__:
        raise Unsupported(Problem((), "must be of a data type that DirectML has", name.lower()))
    if 0 in sizes:
        raise Unsupported(Problem((), "must not be empty, as no tensor of DirectML is", join_sizes(sizes)))
    return TensorDesc(DataType[name], tuple(sizes) or (1,))
