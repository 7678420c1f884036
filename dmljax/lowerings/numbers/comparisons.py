"""Comparisons of IEEE 754, in which every comparison with NaN is false.

XLA on a CPU flushes subnormal numbers to zero before it compares floats, so a CPU compares their bits.
"""

import operator
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from dmljax.lowerings.numbers.floats import infinity_bits, to_ordered_integers
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
    result: Array = choose(a, b, cpu=lambda a, b: compare(_lhs_keys(a), _rhs_keys(b)), default=compare)
    return result


def _lhs_keys(x: Array) -> Array:
    """Keys to compare with the keys of `_rhs_keys`: a NaN neither equals nor exceeds anything there."""
    keys = to_ordered_integers(x)
    return jnp.where(keys <= infinity_bits(x), keys, np.iinfo(keys.dtype).min)


def _rhs_keys(x: Array) -> Array:
    keys = to_ordered_integers(x)
    return jnp.where(keys >= -infinity_bits(x), keys, np.iinfo(keys.dtype).max)
