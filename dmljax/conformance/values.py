"""Values for the inputs of a kit: small numbers, and those that break careless code.

All of them come from fixed tables and from the raw bits of a generator whose stream NumPy does not change, so that a
kit is the same everywhere.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors.tensor import TensorDesc

Array = NDArray[Any]


def fit_values(values: Array | None, tensor: TensorDesc, name: str) -> Array:
    """The values with a tensor's type and sizes, repeated or cut off as needed; small numbers if there are none.

    Numbers that an integer type does not have become its nearest, and NaN becomes 0.
    """
    if values is None:
        values = draw_small(name, tensor)
    flat = np.resize(values.reshape(-1), tensor.element_count).reshape(tensor.sizes)
    return flat if flat.dtype == tensor.dtype else _convert(flat, tensor.dtype)


def _convert(values: Array, dtype: np.dtype[Any]) -> Array:
    if not jnp.issubdtype(dtype, jnp.integer):
        with np.errstate(over="ignore"):
            return values.astype(np.float64).astype(dtype)
    limits = jnp.iinfo(dtype)
    wide = [0 if number != number else number for number in values.reshape(-1).tolist()]
    nearest = [int(min(max(number, int(limits.min)), int(limits.max))) for number in wide]
    return np.array(nearest, np.uint64 if dtype == np.uint64 else np.int64).astype(dtype).reshape(values.shape)


def draw_small(name: str, tensor: TensorDesc) -> Array:
    """Whole numbers from 1 to 4, which the name draws: exact in every type, and valid as scales and variances."""
    raw = np.random.PCG64(zlib.crc32(name.encode())).random_raw(tensor.element_count)
    return (raw % 4 + 1).astype(tensor.dtype).reshape(tensor.sizes)


# Surprises

FLOATS = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, -7.0, 10.0, 100.0, 1 / 3)


def specials_of(dtype: np.dtype[Any]) -> Array:
    """The values of a type that break careless code, without subnormals, which devices may flush to zero."""
    if jnp.issubdtype(dtype, jnp.integer):
        limits = jnp.iinfo(dtype)
        lowest, highest = int(limits.min), int(limits.max)
        numbers = dict.fromkeys([lowest, lowest + 1, 0, 1, 2, highest // 2, highest - 1, highest, max(-1, lowest)])
        return np.array([*numbers], np.uint64 if dtype == np.uint64 else np.int64).astype(dtype)
    largest, smallest = float(jnp.finfo(dtype).max), float(jnp.finfo(dtype).tiny)
    ends = (largest, -largest, smallest, np.inf, -np.inf, np.nan)
    return np.array([*FLOATS, *ends], np.float64).astype(dtype)


def pair_up(values: Array, position: int, count: int) -> Array:
    """The operand at a position of `count`, so that each value meets many others: stepped, not all pairs."""
    step = (1, 7, 3, 5)[position % 4]
    length = len(values)
    repeats = 1 if count == 1 else 4
    places = [(step * i + position * (i // length)) % length for i in range(length * repeats)]
    return values[places]


def surprises_of(dtype: np.dtype[Any], values: Array) -> Sequence[tuple[str, Array]]:
    """The values changed to what surprises, each with its name: an element of NaN, infinities, ties, or the ends."""
    flat = values.reshape(-1)

    def replace_first(*others: Any) -> Array:
        changed = flat.copy()
        changed[: len(others)] = np.array(others[: len(flat)]).astype(dtype)
        return changed.reshape(values.shape)

    ties = "ties", np.full(values.shape, flat[0])
    if jnp.issubdtype(dtype, jnp.integer):
        lowest, highest = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
        ends = np.array([highest, lowest, highest], np.uint64 if dtype == np.uint64 else np.int64).astype(dtype)
        return [ties, ("ends of the range", np.resize(ends, values.shape))]
    zeros = np.resize(np.array([0.0, -0.0]).astype(dtype), values.shape)
    return [
        ("NaN", replace_first(np.nan)),
        ("infinity", replace_first(np.inf)),
        ("both infinities", replace_first(-np.inf, np.inf)),
        ties,
        ("zeros of both signs", zeros),
    ]
