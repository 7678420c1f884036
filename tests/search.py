"""Searches for the arguments for which a function of float32 is furthest from its formula.

Random numbers rarely meet the worst case: a cancellation, an attribute of -0.3, a subnormal product beside a normal
one. So the worst of many draws get offspring, which differ from them in a few digits, in all digits, or in the exponent
of some arguments.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from helpers import units_beyond
from numpy.typing import NDArray

Arr = NDArray[Any]

DRAWN, KEPT = 2**16, 2**10  # for functions of one argument, which are cheaper, four times as many


def worst_arguments(
    function: Callable[..., Any],
    formula: Callable[..., Arr],
    count: int,
    rounds: int,
    is_concerned: Callable[..., Any] = lambda *_: True,
    rival: Callable[..., Any] | None = None,
) -> tuple[float, tuple[float, ...]]:
    """The largest error of a function of `count` scalars in units in the last place, and the arguments that produce it.

    The function and its rival take float32 scalars, the formula and the condition float64 arrays. Arguments for which
    the function is at most as far off as its rival do not count.
    """
    rng, more = np.random.default_rng(count), 4 if count == 1 else 1
    compiled = jax.jit(jax.vmap(function))
    rivals = None if rival is None else jax.jit(jax.vmap(rival))
    kept, errors = np.empty((count, 0), np.float32), np.empty(0)
    for round_ in range(rounds):
        drawn = draw(rng, count, more) if round_ == 0 else _offspring(rng, kept, more)
        wide = drawn.astype(np.float64)
        with np.errstate(all="ignore"):
            other = None if rivals is None else rivals(*drawn)
            found = np.where(is_concerned(*wide), units_beyond(compiled(*drawn), formula(*wide), other), 0)
        kept, errors = np.concatenate([kept, drawn], axis=1), np.concatenate([errors, found])
        order = np.argsort(-errors, kind="stable")[: KEPT * more]
        kept, errors = kept[:, order], errors[order]
    return float(errors[0]), tuple(map(float, kept[:, 0]))


def draw(rng: np.random.Generator, count: int, more: int = 1) -> Arr:
    """Draws a third of all magnitudes, a third of everyday numbers, and a third of simple ones."""
    kind = rng.integers(0, 3, (count, DRAWN * more))
    every = rng.integers(0, 2**32, kind.shape, dtype=np.uint32).view(np.float32)
    everyday = (np.exp(rng.uniform(-7, 7, kind.shape)) * rng.choice([-1, 1], kind.shape)).astype(np.float32)
    simple = rng.choice(np.array(SIMPLE + [-x for x in SIMPLE], np.float32), kind.shape)
    return _normal(np.choose(kind, [every, everyday, simple]))


SIMPLE = [0, 1, 0.5, 2, 0.1, 0.7, 3, 1e-10, 1e-20, 1e-30, 1e-37, 1e10, 1e20, 1e30, 3e38, np.inf, 60, 88, 104]


def _offspring(rng: np.random.Generator, parents: Arr, more: int) -> Arr:
    bits = np.repeat(parents, DRAWN * more // parents.shape[1], axis=1).view(np.uint32)
    few = rng.integers(-8, 9, bits.shape).astype(np.uint32)
    digits = rng.integers(0, 2**23, bits.shape, dtype=np.uint32)
    exponents = (rng.integers(-2, 3, bits.shape) * 2**23).astype(np.uint32)
    changed = np.choose(
        rng.integers(0, 4, bits.shape), [bits, bits + few, bits & np.uint32(0xFF800000) | digits, bits + exponents]
    )
    return _normal(changed.view(np.float32))


def _normal(x: Arr) -> Arr:
    """Leaves out subnormals, which may count as zeros, and NaNs with unusual digits: other tests try them."""
    quiet = np.where(np.isnan(x), np.float32(np.nan), x)
    return np.where(np.abs(quiet) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), quiet), quiet)
