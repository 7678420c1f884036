"""Sizes of dimensions, which may be symbolic.

While `jax.export` traces a function with symbolic shapes, a symbolic size has no value until the exported function is
called.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from dmljax.errors import Problem, Unsupported, Where
from dmljax.foundation.checks import INT_MAX, require_count
from dmljax.types import INTEGERS_4

T = TypeVar("T")


def is_symbolic(size: int) -> bool:
    """Whether `size` is a symbolic dimension size of `jax.export`."""
    return bool(is_symbolic_dim(size))


def at_most(size: int, most: int) -> bool:
    """Whether `size` is known and at most `most`; lowerings for small sizes leave symbolic ones to the default."""
    return not is_symbolic(size) and size <= most


def require_positions(subject: str, *sizes: int) -> None:
    """Raises if int32 cannot hold a size where positions are int32; accepts symbolic sizes."""
    for size in sizes:
        if not is_symbolic(size) and size > INT_MAX:
            rule = f"{subject} must have at most {INT_MAX} elements, so that int32 holds every position"
            raise Unsupported(Problem((), rule, size))


MAX_BYTES = "2**63 bytes, the most that XLA can address"


def is_addressable(sizes: Sequence[int], dtype: Any = np.float64) -> bool:
    """Whether XLA can compile with such an array: it counts bytes in an int64, and aborts the process beyond."""
    bits = 4 if dtype in INTEGERS_4 else 8 * np.dtype(dtype).itemsize
    return math.prod(size for size in sizes if not is_symbolic(size)) * bits < 2**66


def largest_size(size: int) -> int:
    """The largest value that `size` may have; for a symbolic size, the largest int32."""
    return np.iinfo(np.int32).max if is_symbolic(size) else size  # jax.export represents sizes in at least 32 bits


def replace_at(sizes: Sequence[T], axis: int, *new: T) -> tuple[T, ...]:
    """`sizes`, or any tuple with one entry per dimension, with `new` at `axis`."""
    return (*sizes[:axis], *new, *sizes[axis + 1 :])


def number(size: int, dtype: Any) -> Any:
    """A size, symbolic or not, as a scalar of `dtype`."""
    return jnp.asarray(size).astype(dtype) if is_symbolic(size) else np.array(size, dtype)


def index_dtype(where: Where, *sizes: int) -> np.dtype[Any]:
    """The integer type for positions in dimensions of these sizes: int32, or uint32 if a size may not fit int32.

    The type also holds the sizes themselves.
    """
    for size in sizes:
        require_count(where, size, 0)
    int32_holds = all(not is_symbolic(size) and size <= np.iinfo(np.int32).max for size in sizes)
    return np.dtype(np.int32 if int32_holds else np.uint32)
