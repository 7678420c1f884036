"""Comparisons of IEEE 754, in which every comparison with NaN is false.

XLA on a CPU flushes subnormal numbers to zero before it compares floats, so a CPU compares their bits.
"""

import operator
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from dmljax.lowerings.numbers.floats import infinity_bits, order
from dmljax.lowerings.platform import choose
from dmljax.types import FLOATS

Compare = Callable[[Array, Array], Array]


def greater(a: Array, b: Array) -> Array:
    """True where `a > b`."""
    return _compare(operator.gt, a, b)


def greater_equal(a: Array, b: Array) -> Array:
    """True where `a >= b`."""
    return _compare(operator.ge, a, b)


def equal(a: Array, b: Array) -> Array:
    """True where `a == b`."""
    return _compare(operator.eq, a, b)


def _compare(compare: Compare, a: Array, b: Array) -> Array:
    if a.dtype not in FLOATS:
        return compare(a, b)
    result: Array = choose(a, b, cpu=lambda a, b: compare(_left(a), _right(b)), default=compare)
    return result


def _left(x: Array) -> Array:
    """Keys to compare with the keys of `_right`: a NaN neither equals nor exceeds anything there."""
    keys = order(x)
    return jnp.where(keys <= infinity_bits(x), keys, np.iinfo(keys.dtype).min)


def _right(x: Array) -> Array:
    keys = order(x)
    return jnp.where(keys >= -infinity_bits(x), keys, np.iinfo(keys.dtype).max)
