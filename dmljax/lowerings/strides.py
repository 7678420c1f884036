"""Arrays read from flat buffers at strides, and written to them: `TensorDesc.read` and `write` in JAX.

Strides are in elements. If they nest, as for transposed, repeated and padded tensors, reading and writing are reshapes,
slices, transposes and pads, which XLA fuses. Otherwise elements are gathered and scattered individually.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.sharding import call_with_auto_axes
from dmljax.types import bits_of


class _Nest(NamedTuple):
    """Dimensions that each step over everything the next ones hold, from the largest stride to the smallest."""

    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def blocks(self) -> tuple[int, ...]:
        """The sizes including everything that strides step over: the shape of the buffer, except before its end."""
        if not self.axes:
            return (1,)
        inner = (outer // stride for outer, stride in zip(self.strides, self.strides[1:], strict=False))
        return (self.sizes[0], *inner, self.strides[-1])


def _nest(sizes: Sequence[int], strides: Sequence[int]) -> _Nest | None:
    """The dimensions with strides, if they nest."""
    steps = sorted(((stride, axis) for axis, stride in enumerate(strides) if sizes[axis] > 1 and stride), reverse=True)
    for (outer, _), (inner, axis) in itertools.pairwise(steps):
        if outer % inner or sizes[axis] * inner > outer:
            return None
    return _Nest(tuple(axis for _, axis in steps), tuple(sizes[axis] for _, axis in steps), tuple(s for s, _ in steps))


def read_strided(buffer: Array, sizes: Sequence[int], strides: Sequence[int]) -> Array:
    """The array of `sizes` whose elements lie in a flat buffer at `strides`, with zeros beyond the buffer's end."""
    read = partial(_read, sizes=tuple(sizes), strides=tuple(strides))
    return call_with_auto_axes(read, [(buffer, [None])], [None] * len(sizes))


def _read(buffer: Array, *, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    nest = _nest(sizes, strides)
    if nest is None:
        return buffer.at[_places(sizes, strides)].get(mode="fill", fill_value=0)
    blocks = _resize(buffer, math.prod(nest.blocks)).reshape(nest.blocks)
    if blocks.size > math.prod(nest.sizes):
        blocks = lax.slice(blocks, [0] * blocks.ndim, [*nest.sizes, 1])
    inside = blocks.reshape(nest.sizes)
    in_order = sorted(range(len(nest.axes)), key=nest.axes.__getitem__)
    return lax.broadcast_in_dim(lax.transpose(inside, in_order), sizes, sorted(nest.axes))


def write_strided(x: Array, strides: Sequence[int], size: int) -> Array:
    """A flat buffer of `size` that holds the elements of `x` at `strides`, with zeros between them.

    No two elements may share a place.
    """
    write = partial(_write, strides=tuple(strides), size=size)
    return call_with_auto_axes(write, [(x, [None] * x.ndim)], [None])


def _write(x: Array, *, strides: tuple[int, ...], size: int) -> Array:
    nest = _nest(x.shape, strides)
    if nest is None:
        places = _places(x.shape, strides).ravel()
        return jnp.zeros((size,), x.dtype).at[places].set(x.ravel(), unique_indices=True)
    axes = [axis for axis in range(x.ndim) if axis in nest.axes]
    dense = lax.transpose(x.reshape([x.shape[axis] for axis in axes]), [axes.index(axis) for axis in nest.axes])
    sizes = (*nest.sizes, 1)
    gaps = [(0, block - size_of_axis, 0) for block, size_of_axis in zip(nest.blocks, sizes, strict=True)]
    return _resize(lax.pad(dense.reshape(sizes), jnp.zeros((), x.dtype), gaps).ravel(), size)


def _resize(flat: Array, size: int) -> Array:
    return flat if size == flat.size else lax.pad(flat, jnp.zeros((), flat.dtype), [(0, size - flat.size, 0)])


def _places(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """The place of each element in the buffer."""
    places = jnp.zeros(sizes, np.uint32)
    for axis, stride in enumerate(strides):
        if stride:
            places = places + lax.broadcasted_iota(np.uint32, sizes, axis) * np.uint32(stride)
    return places


def reinterpret(flat: Array, dtype: Any) -> Array:
    """The bytes of a flat buffer as elements of another type; the last element may be padded with zeros."""
    if flat.dtype == dtype:
        return flat
    bits, new_bits = bits_of(flat.dtype), bits_of(np.dtype(dtype))
    if bits != new_bits and 8 not in (bits, new_bits):
        # XLA merges two conversions in a row into one of a wrong shape if they go from 16 bits to 32 to 8, or from 32
        # to 16 to 8 (JAX 0.10.2). Two conversions through bytes work.
        return reinterpret(reinterpret(flat, np.uint8), dtype)
    parts = -(-new_bits // bits)
    whole = -(-flat.size // parts)
    padded = _resize(flat, whole * parts)
    return lax.bitcast_convert_type(padded.reshape(whole, parts) if parts > 1 else padded, dtype).ravel()
