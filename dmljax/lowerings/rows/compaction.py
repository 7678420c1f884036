"""Stream compaction: predicates packed into 32-bit words, and the element index of each set bit.

Working on words instead of elements costs 1/32 as much. *Rows* number the set bits in order: row r belongs to the set
bit that has r set bits before it. A word with set bits *begins* at the row of its first set bit, and a row belongs to
the last word that begins at or before it. Rows are handled in groups of 32.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.foundation.dimensions import is_symbolic, number
from dmljax.lowerings.rows.scans import running_sum


def pack_bits(present: Array) -> Array:
    """Packs predicates into words of 32 bits, the first predicate of a word in its lowest bit."""
    run, run_count = _run_size_and_count(present.shape)
    words_per_run = (run + 31) // 32
    padding = (0, 0), (0, words_per_run * 32 - run)
    runs = jnp.pad(present.reshape(run_count, run), padding).reshape(run_count, words_per_run, 32)
    place = lax.broadcasted_iota(jnp.uint32, runs.shape, 2)
    return jnp.sum(runs.astype(jnp.uint32) << place, axis=2, dtype=jnp.uint32).reshape(-1)


def _run_size_and_count(shape: tuple[int, ...]) -> tuple[int, int]:
    """The size of a run, which is packed into its own words, and the number of runs.

    A run covers the fewest trailing dimensions that fill words of 32 bits well. The dimensions before them may be
    sharded: each device packs its own runs.
    """
    for axis in reversed(range(len(shape))):
        run = math.prod(shape[axis:])
        if run % 32 == 0 or (not is_symbolic(run) and run >= 128):
            return run, math.prod(shape[:axis])
    return math.prod(shape), 1


def _first_element(word: Array, shape: tuple[int, ...]) -> Array:
    """The index of the element whose predicate is the lowest bit of a word."""
    run, _ = _run_size_and_count(shape)
    if run % 32 == 0:
        return word * np.uint32(32)
    words_per_run = number((run + 31) // 32, jnp.uint32)
    first: Array = lax.div(word, words_per_run) * number(run, jnp.uint32)
    return first + lax.rem(word, words_per_run) * np.uint32(32)


def count_and_elements(words: Array, size: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The number of set bits in `words`, and the element index of each of the first `size` rows.

    Rows from the count on have an arbitrary index. `shape` is the shape of the predicates before packing.
    """
    bits = _locate_words(words, (size + 31) // 32)
    return bits.row_count, _elements(bits, shape).reshape(-1)[:size]


def count_and_elements_by_scatter(present: Array, size: int) -> tuple[Array, Array]:
    """Does the same for up to INT_MAX predicates and rows.

    Row r belongs to element e if exactly e elements have a running count of at most r. A scatter makes a histogram of
    the running counts, whose running sum is e. On a TPU this is faster than gathering from three tables.
    """
    ends = jnp.cumsum(present.reshape(-1), dtype=np.int32)
    # Without the clip, a TPU's compiler changes the layout of the positions, which takes 1.5 times as long.
    counts = jnp.zeros(size, np.int32).at[jnp.clip(ends, 0)].add(1, mode="drop")
    return jnp.sum(present, dtype=np.int32), jnp.cumsum(counts, dtype=np.uint32)


class _Bits(NamedTuple):
    """The packed words, and tables to find the word and the bit of a row."""

    words: Array
    first_row: Array  # for each word, the row of its first set bit, if any
    words_with_rows: Array  # the indices of the words that begin in one of the groups, in order
    begins: Array  # for each group of 32 rows, a bit mask of the rows at which a word begins
    begun_before: Array  # for each group, the number of words that begin in the groups before it
    row_count: Array


def _locate_words(words: Array, group_count: int) -> _Bits:
    counts = lax.population_count(words)
    ends = _running_sum(counts)
    first_row = ends - counts
    group = first_row >> 5
    has_rows = (counts != 0) & (group < number(group_count, jnp.uint32))

    # Write words without rows to a spare place at the end. `mode="drop"` takes XLA on CPU twice as long.
    word_count = words.shape[0]
    with_rows = pack_bits(has_rows)
    place = _bits_up_to(with_rows, _bits_before(with_rows)).reshape(-1)[:word_count] - 1
    place = jnp.where(has_rows, place, number(word_count, jnp.uint32))
    words_with_rows = jnp.zeros(word_count + 1, jnp.uint32)
    words_with_rows = words_with_rows.at[place].set(lax.iota(jnp.uint32, word_count), mode="promise_in_bounds")

    group = jnp.where(has_rows, group, number(group_count, jnp.uint32))
    begins = jnp.zeros(group_count + 1, jnp.uint32)
    begins = begins.at[group].add(jnp.uint32(1) << (first_row & 31), mode="promise_in_bounds")[:-1]
    return _Bits(words, first_row, words_with_rows, begins, _bits_before(begins), ends[-1])


def _elements(bits: _Bits, shape: tuple[int, ...]) -> Array:
    """The element index of each row, as an array [group, 32]."""
    group, row = (lax.broadcasted_iota(jnp.uint32, (*bits.begins.shape, 32), axis) for axis in (0, 1))
    word = _take(bits.words_with_rows, jnp.maximum(_bits_up_to(bits.begins, bits.begun_before), 1) - 1)
    rank = group * 32 + row - _take(bits.first_row, word)
    return _first_element(word, shape) + _select_set_bit(_take(bits.words, word), rank)


# Words and bits


def _select_set_bit(bits: Array, rank: Array) -> Array:
    """The place of the set bit of `bits` that has `rank` set bits below it, found by bisection."""
    place = jnp.zeros_like(rank)
    for exponent in reversed(range(5)):
        half = 2**exponent
        below = lax.population_count((bits >> place) & jnp.uint32(2**half - 1))
        is_above = rank >= below
        rank = rank - jnp.where(is_above, below, jnp.uint32(0))
        # Shift instead of selecting from two constants: under vmap, such a select makes JAX lose the explicit mesh.
        place = place | is_above.astype(jnp.uint32) << exponent
    return place


def _bits_before(words: Array) -> Array:
    """The number of set bits in the words before each word."""
    counts = lax.population_count(words)
    return _running_sum(counts) - counts


def _bits_up_to(words: Array, before: Array) -> Array:
    """The number of set bits up to and including each bit, as an array [word, 32].

    `before` is the number of set bits before each word.
    """
    place = lax.broadcasted_iota(jnp.uint32, (*words.shape, 32), 1)
    return before[:, None] + lax.population_count(words[:, None] & ((jnp.uint32(2) << place) - 1))


def _running_sum(counts: Array) -> Array:
    """The inclusive prefix sum."""
    return running_sum(counts, 0, reverse=False, exclusive=False)


def _take(table: Array, index: Array) -> Array:
    return table.at[index].get(mode="promise_in_bounds")
