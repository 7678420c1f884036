"""Arrays with padding: their true sizes depend on values, so they have the largest possible sizes.

The true elements come first along each axis. Elements after them are never read: an operator's rule in
`dmljax.onnx.nodes.padded_rules` computes the result that only the true elements would give.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
from jax import Array

from dmljax.onnx.values.counts import BoundedNumber, Count, bound_of, value_of


@jax.tree_util.register_pytree_node_class
class Padded:
    """An array, its true sizes, which may be counts, and the number that fills its padding as a model's output."""

    def __init__(self, array: Array, sizes: Sequence[Any], fill: int = 0) -> None:
        self.array, self.shape, self.fill = array, tuple(sizes), fill

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def filled(self, number: Any, axes: Collection[int] | None = None) -> Array:
        """The array with its padding along these axes, by default all, replaced by a number or a broadcast array."""
        true_axes = range(self.ndim) if axes is None else axes
        is_true = are_inside([size if i in true_axes else bound_of(size) for i, size in enumerate(self.shape)])
        return self.array if is_true is None else jnp.where(is_true, self.array, jnp.asarray(number, self.dtype))

    def tree_flatten(self) -> tuple[Any, Any]:
        bases = [*{id(size.base): size.base for size in self.shape if isinstance(size, Count)}.values()]
        places = {id(base): i for i, base in enumerate(bases)}
        spelled = tuple(
            (places[id(size.base)], size.factor, size.offset) if isinstance(size, Count) else size
            for size in self.shape
        )
        bounds = tuple((base.least, base.largest) for base in bases)
        return (self.array, *(base.value for base in bases)), (spelled, bounds, self.fill)

    @classmethod
    def tree_unflatten(cls, structure: Any, children: Any) -> "Padded":
        spelled, bounds, fill = structure
        array, *values = children
        bases = [BoundedNumber(value, *bound) for value, bound in zip(values, bounds, strict=True)]
        sizes = [Count(bases[size[0]], *size[1:]) if isinstance(size, tuple) else size for size in spelled]
        return cls(array, sizes, fill)


def padded(array: Array, sizes: Sequence[Any], fill: int = 0) -> Array | Padded:
    """Makes an array with these true sizes; returns it unchanged unless a size is a count."""
    return Padded(array, sizes, fill) if any(isinstance(size, Count) for size in sizes) else array


def sizes_of(value: Any) -> Array:
    """The true sizes of an array, as an array."""
    return jnp.array([value_of(size) for size in value.shape], jnp.int32)


def are_inside(sizes: Sequence[Any]) -> Array | None:
    """Whether each element of an array with these true sizes is a true element; None if all are."""
    is_true = None
    for axis, size in enumerate(sizes):
        if isinstance(size, Count):
            spread = [-1 if i == axis else 1 for i in range(len(sizes))]
            place = jnp.arange(size.largest, dtype=jnp.int32).reshape(spread)
            is_true = place < size.value if is_true is None else is_true & (place < size.value)
    return is_true


def is_padded_array(value: object) -> TypeGuard[Padded]:
    """Whether a value is an array with padding."""
    return isinstance(value, Padded)


def is_padded(value: object) -> bool:
    """Whether a value, or an element of a sequence, has padding."""
    return isinstance(value, Padded) or (isinstance(value, list) and any(map(is_padded, value)))


# Results of two branches


@dataclass(frozen=True)
class BranchType:
    """The type of an array that either of two branches computes, and the largest sizes of both."""

    bounds: tuple[int, ...]
    are_equal: tuple[bool, ...]  # for each axis, whether its size is the same in both

    @classmethod
    def of(cls, first: Any, second: Any) -> "BranchType | None":
        """The type of two arrays; None if they differ in more than sizes."""
        kinds = {(x.dtype, x.ndim) if isinstance(x, jax.Array | Padded) else None for x in (first, second)}
        if None in kinds or len(kinds) > 1:
            return None
        pairs = [*zip(first.shape, second.shape, strict=True)]
        bounds = tuple(max(map(bound_of, pair)) for pair in pairs)
        return cls(bounds, tuple(isinstance(a, int) and isinstance(b, int) and a == b for a, b in pairs))

    def enlarge(self, value: Any) -> tuple[Array, Array]:
        """An array of the largest sizes, and its true sizes."""
        array = value.array if isinstance(value, Padded) else value
        more = [(0, bound - size) for bound, size in zip(self.bounds, array.shape, strict=True)]
        return jnp.pad(array, more), sizes_of(value)

    def padded(self, array: Array, sizes: Array) -> Array | Padded:
        """The array of the branch that was taken."""
        rows = zip(self.bounds, self.are_equal, sizes, strict=True)
        return padded(array, [bound if is_equal else Count.of(size, bound) for bound, is_equal, size in rows])
