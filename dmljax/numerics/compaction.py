"""Predicates packed into words of 32 bits, and the element that each set bit stands for.

What is done once for a word instead of an element costs a 32nd. Set bits have *rows*, in their order, which come in
groups of 32; a row belongs to the last word that begins at or before it.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from dmljax.numerics.sizes import is_symbolic, number


def packed(present: Array) -> Array:
    """Predicates 32 to a word, the first in the lowest bit."""
    run, run_count = _runs(present.shape)
    words_per_run = (run + 31) // 32
    padding = (0, 0), (0, words_per_run * 32 - run)
    runs = jnp.pad(present.reshape(run_count, run), padding).reshape(run_count, words_per_run, 32)
    place = lax.broadcasted_iota(jnp.uint32, runs.shape, 2)
    return jnp.sum(runs.astype(jnp.uint32) << place, axis=2, dtype=jnp.uint32).reshape(-1)


def _runs(shape: tuple[int, ...]) -> tuple[int, int]:
    """The size of the fewest last dimensions that fill words of 32 bits well, and that of the others.

    The others may then be sharded, and each device packs what it has.
    """
    for axis in reversed(range(len(shape))):
        run = math.prod(shape[axis:])
        if run % 32 == 0 or (not is_symbolic(run) and run >= 128):
            return run, math.prod(shape[:axis])
    return math.prod(shape), 1


def _first_element(word: Array, shape: tuple[int, ...]) -> Array:
    """The element that the lowest bit of a word stands for."""
    run, _ = _runs(shape)
    if run % 32 == 0:
        return word * np.uint32(32)
    words_per_run = number((run + 31) // 32, jnp.uint32)
    first: Array = lax.div(word, words_per_run) * number(run, jnp.uint32)
    return first + lax.rem(word, words_per_run) * np.uint32(32)


def count_and_elements(words: Array, size: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """How many bits of `words` are set, and the element that each of `size` rows is for; rows past the count have any.

    `shape` is that of the predicates that were packed.
    """
    group_count = (size + 31) // 32
    bits = _found(words, group_count)
    every, needed = partial(_elements, shape=shape), partial(_needed_elements, shape=shape)
    if is_symbolic(group_count) or group_count <= _TINY or jax.device_count() > 1:
        elements = every(bits)  # several devices may share the rows, as they cannot share a loop over them
    else:
        elements = lax.platform_dependent(bits, cpu=needed, default=every)
    return bits.row_count, elements.reshape(-1)[:size]


class _Bits(NamedTuple):
    words: Array
    first_row: Array  # of each word
    listed: Array  # the words that have rows, in their order
    begins: Array  # a word for each group: a bit for each row, set where a word begins
    begun: Array  # how many words begin before each group
    row_count: Array


def _found(words: Array, group_count: int) -> _Bits:
    counts = lax.population_count(words)
    ends = _running_sum(counts)
    first_row = ends - counts
    group = first_row >> 5
    has_rows = (counts != 0) & (group < number(group_count, jnp.uint32))

    # Words without rows go to a spare place at the end: `mode="drop"` takes XLA on CPU twice as long.
    word_count = words.shape[0]
    with_rows = packed(has_rows)
    place = _set_up_to(with_rows, _set_before(with_rows)).reshape(-1)[:word_count] - 1
    place = jnp.where(has_rows, place, number(word_count, jnp.uint32))
    listed = jnp.zeros(word_count + 1, jnp.uint32)
    listed = listed.at[place].set(lax.iota(jnp.uint32, word_count), mode="promise_in_bounds")

    group = jnp.where(has_rows, group, number(group_count, jnp.uint32))
    begins = jnp.zeros(group_count + 1, jnp.uint32)
    begins = begins.at[group].add(jnp.uint32(1) << (first_row & 31), mode="promise_in_bounds")[:-1]
    return _Bits(words, first_row, listed, begins, _set_before(begins), ends[-1])


def _elements(bits: _Bits, shape: tuple[int, ...], first_group: Array | int = 0) -> Array:
    """The element of each row of the groups in `bits`, which begin at `first_group`, [group, 32]."""
    group, row = (lax.broadcasted_iota(jnp.uint32, (*bits.begins.shape, 32), axis) for axis in (0, 1))
    word = _at(bits.listed, jnp.maximum(_set_up_to(bits.begins, bits.begun), 1) - 1)
    rank = (first_group + group) * 32 + row - _at(bits.first_row, word)
    return _first_element(word, shape) + _place_of_set_bit(_at(bits.words, word), rank)


def _needed_elements(bits: _Bits, shape: tuple[int, ...]) -> Array:
    """`_elements` of all groups, or, where few rows count, of those alone in a loop.

    XLA on CPU runs a loop in one thread, so that a row costs 2.5 times as much in it. In a batch the loop would go on
    for all until the fullest member is done: batches have every row at once.
    """
    every, first = partial(_elements, shape=shape), partial(_first_elements, shape=shape)

    @custom_vmap
    def needed(bits: _Bits) -> Array:
        few = np.uint32(bits.begins.shape[0] * 32 // 3)
        elements: Array = lax.cond(bits.row_count > few, every, first, bits)
        return elements

    @needed.def_vmap
    def needed_by_a_batch(_: int, is_batched: list[_Bits], bits: _Bits) -> tuple[Array, bool]:
        in_axes = jax.tree.map(lambda batched: 0 if batched else None, is_batched[0])
        return jax.vmap(every, in_axes=(in_axes,))(bits), True

    elements: Array = needed(bits)
    return elements


_TINY = 8  # groups: for as many, a loop takes longer to compile than it ever saves
_CHUNK = 32  # groups: for more at once XLA on CPU wakes another thread, which takes longer than to find them


def _first_elements(bits: _Bits, shape: tuple[int, ...]) -> Array:
    """As `_elements`, chunk by chunk up to the last row that counts."""
    group_count = bits.begins.shape[0]
    size = min(_CHUNK, group_count)

    def is_left(state: tuple[Array, Array]) -> Array:
        return state[0] * (size * 32) < bits.row_count

    def find(state: tuple[Array, Array]) -> tuple[Array, Array]:
        chunk, elements = state
        first_group = chunk * size  # ends before the last group: no more than a third of the rows count here
        begins, begun = (lax.dynamic_slice(x, (first_group,), (size,)) for x in (bits.begins, bits.begun))
        found = _elements(bits._replace(begins=begins, begun=begun), shape, first_group)
        return chunk + 1, lax.dynamic_update_slice(elements, found, (first_group, jnp.uint32(0)))

    # Out of the words, so that inside shard_map it varies over the same axes of the mesh as what is found
    nothing = jnp.broadcast_to(jnp.zeros_like(bits.begins)[:, None], (group_count, 32))
    return lax.while_loop(is_left, find, (jnp.uint32(0), nothing))[1]


# Words and bits


def _place_of_set_bit(bits: Array, rank: Array) -> Array:
    """The place of the set bit of `bits` that has `rank` set bits below it, found by halves."""
    place = jnp.zeros_like(rank)
    for exponent in reversed(range(5)):
        half = 2**exponent
        below = lax.population_count((bits >> place) & jnp.uint32(2**half - 1))
        is_above = rank >= below
        rank = rank - jnp.where(is_above, below, jnp.uint32(0))
        # Not a select of two constants: under vmap JAX loses the explicit mesh there.
        place = place | is_above.astype(jnp.uint32) << exponent
    return place


def _set_before(words: Array) -> Array:
    """How many bits are set before each word."""
    counts = lax.population_count(words)
    return _running_sum(counts) - counts


def _set_up_to(words: Array, before: Array) -> Array:
    """How many bits are set up to and with each bit of each word, [word, 32]."""
    place = lax.broadcasted_iota(jnp.uint32, (*words.shape, 32), 1)
    return before[:, None] + lax.population_count(words[:, None] & ((jnp.uint32(2) << place) - 1))


_BLOCK = 32  # XLA on CPU fuses a sum of up to 32


def _running_sum(counts: Array) -> Array:
    """The sum up to and with each, by blocks in blocks: XLA on CPU takes two to five times as long for `jnp.cumsum`."""
    size = counts.shape[0]
    if is_symbolic(size):
        return jnp.cumsum(counts, dtype=counts.dtype)
    block_count = -(-size // _BLOCK)
    blocks = jnp.pad(counts, (0, block_count * _BLOCK - size)).reshape(block_count, 1, _BLOCK)
    last, summand = (lax.broadcasted_iota(jnp.uint32, (1, _BLOCK, _BLOCK), axis) for axis in (1, 2))
    sums = jnp.sum(jnp.where(summand <= last, blocks, jnp.uint32(0)), axis=2, dtype=counts.dtype)
    if block_count > 1:
        totals = sums[:, -1]
        sums = sums + (_running_sum(totals) - totals)[:, None]
    return sums.reshape(-1)[:size]


def _at(table: Array, index: Array) -> Array:
    return table.at[index].get(mode="promise_in_bounds")
