"""Comparison by bits, and arrays that hold what breaks careless code."""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from numpy.typing import NDArray

from dmljax import DataType

X64 = bool(jax.config.read("jax_enable_x64"))
needs_x64 = pytest.mark.skipif(not X64, reason="needs 64-bit types")
needs_x32 = pytest.mark.skipif(X64, reason="tells what happens without 64-bit types")

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
FLOATS = [jnp.dtype(name) for name in ("float32", "float16", "bfloat16", *(("float64",) if X64 else ()))]
INTEGERS = [jnp.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64) if bits < 64 or X64]
REALS = [*FLOATS, *INTEGERS, jnp.dtype("bool")]


def available(data_types: Iterable[DataType]) -> list[DataType]:
    """Those data types that JAX has, as it is configured, in the header's order."""
    return sorted(data_type for data_type in data_types if data_type.bits <= 32 or X64)


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Equal in shape, dtype and every bit: NaN equals itself, -0 is not 0."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype == jax.dtypes.float0:  # the tangents of integers hold nothing
        actual, expected = actual.astype(bool), expected.astype(bool)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    unsigned = f"u{actual.dtype.itemsize}"
    np.testing.assert_array_equal(
        actual.view(unsigned), expected.view(unsigned), err_msg=f"{actual}\nis not\n{expected}"
    )


def assert_same_trees(actual: Any, expected: Any) -> None:
    """Trees of one structure whose leaves are equal in shape, dtype and every bit."""
    structures = [str(jax.tree.structure(tree)) for tree in (actual, expected)]
    assert structures[0] == structures[1]
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert_same_bits(one, other)


def mesh_of(axis_type: jax.sharding.AxisType, **axes: int) -> jax.sharding.Mesh:
    """A mesh of devices with these axes, all of one type."""
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(axis_type,) * len(axes))


_COLLECTIVE = re.compile(
    r" = (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter|ragged-all-to-all)(?:-start)?\("
)


def collectives(compiled: Any) -> list[tuple[str, int]]:
    """What devices exchange in a compiled computation: each collective with the bytes of its results on one device."""
    return [
        (name, sum(_bytes(dtype) * math.prod(map(int, filter(None, sizes.split(",")))) for dtype, sizes in arrays))
        for results, name in _COLLECTIVE.findall(compiled.as_text())
        if (arrays := re.findall(r"(\w+)\[([\d,]*)\]", results))
    ]


def _bytes(hlo_dtype: str) -> int:
    return 1 if hlo_dtype == "pred" else int(re.sub(r"\D", "", hlo_dtype)) // 8


def check_gradients(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """First and second derivatives, forward and backward, against finite differences.

    The operators are linear in their floats, so that wide steps are exact and keep float32's rounding out.
    """
    check_grads(function, arguments, order=2, eps=0.5)


def specials(dtype: Any) -> NDArray[Any]:
    """The values of a dtype that break careless code."""
    dtype = jnp.dtype(dtype)
    if dtype == np.bool_:
        return np.array([False, True])
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        return np.array([info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max, info.max // 2], dtype)
    bits = dtype.itemsize * 8
    infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    smallest_normal = int(np.array(jnp.finfo(dtype).tiny, dtype).view(f"u{dtype.itemsize}"))
    positive = [
        0,
        1,  # the smallest subnormal
        2,
        smallest_normal - 1,  # the largest subnormal
        smallest_normal,
        int(np.array(1, dtype).view(f"u{dtype.itemsize}")),
        infinity - 1,  # the largest number
        infinity,
        infinity + 1,  # a signalling NaN
        infinity | ((infinity & -infinity) >> 1),  # the usual quiet NaN
        2 ** (bits - 1) - 1,  # a quiet NaN with all bits set
    ]
    raw = np.array(positive + [value | 1 << (bits - 1) for value in positive], f"u{dtype.itemsize}")
    return raw.view(dtype)


def random_array(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """A third special values, a third random bits, a third small numbers, so that ties and zeros are frequent."""
    dtype = jnp.dtype(dtype)
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    count = int(np.prod(shape))
    unsigned = f"u{dtype.itemsize}"
    special = rng.choice(specials(dtype).view(unsigned), count)
    bits = np.frombuffer(rng.bytes(count * dtype.itemsize), unsigned)
    small = rng.integers(0, 3, count).astype(dtype).view(unsigned)
    chosen = np.choose(rng.integers(0, 3, count), [special, bits, small])
    return np.asarray(chosen.view(dtype).reshape(shape))


def random_indices(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...], size: int) -> NDArray[Any]:
    """Indices in range from either end, just outside, and at the extremes of their type."""
    info = np.iinfo(dtype)
    near = rng.integers(max(-size - 2, info.min), min(size + 2, info.max), shape, endpoint=True)
    extreme = rng.choice(np.array([info.min, info.min + 1, info.max - 1, info.max], dtype), shape)
    return np.where(rng.random(shape) < 0.2, extreme, near.astype(dtype))
