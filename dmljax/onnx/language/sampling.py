"""Chooses the next tokens of sequences: the likeliest, or drawn by their probabilities."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.onnx.language.settings import Search


class Sampling(NamedTuple):
    """The parts of a search that a program is compiled for; the others are its arguments."""

    is_drawn: bool
    kept: int  # the likeliest tokens that are drawn from; 0 for all
    has_top_p: bool
    has_penalty: bool
    has_least: bool
    ngram_size: int  # that may not repeat; 0 if all may


def sampling_of(search: Search) -> Sampling:
    """The parts of a search that a program is compiled for."""
    return Sampling(
        search.do_sample,
        search.top_k if search.do_sample else 0,
        search.do_sample and search.top_p < 1,
        search.repetition_penalty != 1,
        search.min_length > 0,
        search.no_repeat_ngram_size,
    )


def numbers_of(search: Search) -> dict[str, Any]:
    """The options of a search as arguments of its program."""
    integers = ("max_length", "min_length", "no_repeat_ngram_size")
    return {name: (np.int32 if name in integers else np.float32)(value) for name, value in search._asdict().items()}


def choose_tokens(
    logits: Array,
    tokens: Array,
    lengths: Array,
    way: Sampling,
    numbers: Mapping[str, Array],
    ends: Array,
    key: Any,
) -> Array:
    """The next token of each sequence, which has `lengths` of the `tokens`."""
    room = tokens.shape[1]
    if way.has_penalty:
        seen = _present(tokens, iota(room)[None] < lengths[:, None], logits.shape)
        penalty = numbers["repetition_penalty"]
        logits = jnp.where(seen, jnp.where(logits > 0, logits / penalty, logits * penalty), logits)
    if 0 < way.ngram_size < room:  # shorter sequences have nothing to repeat
        logits = jnp.where(_completing_ngrams(tokens, lengths[:, None], way.ngram_size, logits.shape), -jnp.inf, logits)
    if way.has_least:
        is_end = jnp.zeros(logits.shape[1], bool).at[ends].set(True)
        is_short = lengths < numbers["min_length"]
        logits = jnp.where(is_short[:, None] & is_end[None], -jnp.inf, logits)
    if not way.is_drawn:
        return jnp.argmax(logits, 1).astype(jnp.int32)
    logits = logits / numbers["temperature"]
    count = logits.shape[1]
    kept = min(way.kept or count, count)
    if kept == count and not way.has_top_p:
        return jax.random.categorical(key, logits, axis=1).astype(jnp.int32)
    values, places = lax.top_k(logits, kept)
    if way.has_top_p:
        powers = jax.nn.softmax(values, 1)
        before = jnp.cumsum(powers, 1) - powers
        is_kept = (before < numbers["top_p"]) | (iota(kept)[None] == 0)  # also where float32 rounds top_p to 0
        values = jnp.where(is_kept, values, -jnp.inf)
    drawn = jax.random.categorical(key, values, axis=1)[:, None]
    return jnp.take_along_axis(places, drawn, 1)[:, 0].astype(jnp.int32)


def _present(tokens: Array, is_counted: Array, shape: Sequence[int]) -> Array:
    """Which tokens of the vocabulary are among the counted tokens of each sequence."""
    tokens = jnp.where(tokens < 0, shape[1], tokens)  # the places of images, which are dropped
    return jnp.zeros(shape, bool).at[iota(shape[0])[:, None], tokens].max(is_counted, mode="drop")


def _completing_ngrams(tokens: Array, lengths: Array, size: int, shape: Sequence[int]) -> Array:
    """Which next tokens would complete `size` tokens that each sequence already has."""
    count = tokens.shape[1] - size + 1  # places where an n-gram may begin

    def compare(i: Any, are_equal: Array) -> Array:
        last = jnp.take_along_axis(tokens, lengths - (size - 1) + i, 1, mode="clip")
        return are_equal & (lax.dynamic_slice_in_dim(tokens, i, count, 1) == last)

    is_within = iota(count)[None] + size <= lengths
    are_equal = lax.fori_loop(0, size - 1, compare, is_within, unroll=min(max(size - 1, 1), 8))
    return _present(tokens[:, size - 1 :], are_equal, shape)


def iota(count: int) -> Array:
    """The numbers below `count`, in int32."""
    return lax.iota(np.int32, count)
