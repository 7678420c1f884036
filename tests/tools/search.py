"""Searches for the arguments for which a function of float32 is furthest from its formula.

Random numbers rarely meet the worst case: a cancellation, an attribute of -0.3, a subnormal product beside a normal
one. So the worst of many draws get offspring, which differ from them in a few digits, in all digits, or in the exponent
of some arguments. A function of one argument has only 2**32 of them: there, the worst of all blocks of neighbors are
tried whole.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arr = NDArray[Any]
Errors = Callable[..., Arr]  # the errors of a function for float32 arrays, one for each of its arguments

DRAWN, KEPT = 2**16, 2**10  # for functions of one argument, which are cheaper, four times as many
BLOCK = 2**16  # neighbors, which share a sign, an exponent and 7 digits
TRIED, WHOLE = 2**8, 2**8  # numbers of every block, and blocks of which all numbers are tried
AT_ONCE = 2**5  # numbers of every block, or whole blocks, which fit into memory


def largest_error(errors: Errors, count: int) -> float:
    """The largest error that a long search finds for a function of `count` arguments."""
    return _largest_of_blocks(errors) if count == 1 else worst_arguments(errors, count, rounds=256)[0]


def _largest_of_blocks(errors: Errors) -> float:
    rng = np.random.default_rng(1)
    blocks = np.arange(2**32 // BLOCK, dtype=np.uint32) * np.uint32(BLOCK)
    largest = np.zeros(blocks.size)
    for _ in range(TRIED // AT_ONCE):
        bits = blocks | rng.integers(0, BLOCK, (AT_ONCE, blocks.size), dtype=np.uint32)
        largest = np.maximum(largest, errors(bits.view(np.float32).ravel()).reshape(bits.shape).max(axis=0))
    worst = blocks[np.argsort(-largest, kind="stable")[:WHOLE]].reshape(-1, AT_ONCE, 1)
    whole = [errors((some | np.arange(BLOCK, dtype=np.uint32)).view(np.float32).ravel()).max() for some in worst]
    return float(max(largest.max(), *whole))


def worst_arguments(errors: Errors, count: int, rounds: int) -> tuple[float, tuple[float, ...]]:
    """The largest error of a function of `count` arguments that a search finds, and the arguments that produce it."""
    rng, more = np.random.default_rng(count), 4 if count == 1 else 1
    kept, found = np.empty((count, 0), np.float32), np.empty(0)
    for round_ in range(rounds):
        drawn = draw(rng, count, more) if round_ == 0 else _offspring(rng, kept, more)
        kept, found = np.concatenate([kept, drawn], axis=1), np.concatenate([found, errors(*drawn)])
        distinct = _distinct(rng, kept)
        order = distinct[np.argsort(-found[distinct], kind="stable")][: KEPT * more]
        kept, found = kept[:, order], found[order]
    return float(found[0]), tuple(map(float, kept[:, 0]))


def _distinct(rng: np.random.Generator, arguments: Arr) -> Arr:
    """The places of distinct arguments, in random order: copies of the worst would soon be all that is kept."""
    order = np.lexsort(arguments)
    is_new = np.any(np.diff(arguments[:, order].view(np.uint32), axis=1, prepend=np.uint32(0)) != 0, axis=0)
    is_new[0] = True
    places: Arr = rng.permutation(order[is_new])
    return places


def draw(rng: np.random.Generator, count: int, more: int = 1) -> Arr:
    """Draws a third of all magnitudes, a third of everyday numbers, and a third of simple ones."""
    kind = rng.integers(0, 3, (count, DRAWN * more))
    every = rng.integers(0, 2**32, kind.shape, dtype=np.uint32).view(np.float32)
    everyday = (np.exp(rng.uniform(-7, 7, kind.shape)) * rng.choice([-1, 1], kind.shape)).astype(np.float32)
    simple = rng.choice(np.array(SIMPLE + [-x for x in SIMPLE], np.float32), kind.shape)
    return _normal(np.choose(kind, [every, everyday, simple]))


SIMPLE = [0, 1, 0.5, 2, 0.1, 0.7, 3, 1e-10, 1e-20, 1e-30, 1e-37, 1e10, 1e20, 1e30, 3e38, np.inf, 60, 88, 104]


def _offspring(rng: np.random.Generator, parents: Arr, more: int) -> Arr:
    bits = parents[:, np.arange(DRAWN * more) % parents.shape[1]].view(np.uint32)
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
