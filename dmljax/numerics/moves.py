"""Arrays made of elements of other arrays, bit for bit and on any mesh."""

from collections.abc import Callable, Sequence
from typing import Any

from jax import Array

from dmljax.numerics.floats import copied
from dmljax.numerics.sharding import dimension_axes, dividing_axes, partitioned
from dmljax.numerics.sizes import check_size


def moved(inputs: Sequence[Array], sizes: Sequence[int], move: Callable[..., Array], *numbers: Array) -> Array:
    """`move(*inputs, *numbers)`, which has `sizes` and as many dimensions as each of the inputs.

    `move` must only copy elements. Numbers are scalars of the type of the inputs.
    """
    check_sizes(sizes)
    operands = [(x, dimension_axes(x)) for x in (*inputs, *numbers)]
    copy = lambda *given: copied(lambda floats, _: move(*floats), given)  # noqa: E731
    return partitioned(copy, operands, kept_axes(inputs, sizes))


def check_sizes(sizes: Sequence[int]) -> None:
    """Refuses a result whose sizes DirectML's UINTs cannot hold."""
    for i, size in enumerate(sizes):
        check_size(("result", "shape", i), size, 0)


def kept_axes(inputs: Sequence[Array], sizes: Sequence[int]) -> list[Any]:
    """The mesh axes of each dimension of a result: those of the first input that shards it, if they divide its size."""
    kept = []
    for i, size in enumerate(sizes):
        sharded = ((dimension_axes(x)[i], x) for x in inputs if dimension_axes(x)[i] is not None)
        first, x = next(sharded, (None, inputs[0]))
        kept.append(dividing_axes(first, size, x))
    return kept
