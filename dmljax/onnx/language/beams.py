"""Searches with beams: several sequences of each prompt grow at once, and the likeliest as a whole are kept."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dmljax.onnx.language.sampling import Sampling, penalize
from dmljax.onnx.language.state import State, iota

_UNLIKELY = -1e9  # the first score of all beams but one, as all begin with the same tokens


class Beams(NamedTuple):
    """The search of each prompt: the scores of its beams, and the best sequences that have ended.

    A state has the beams' tokens, in a row for each beam. Its sequences end before their end token. They stand in the
    order of their scores, and where fewer have ended than there are beams, the last have the length 0.
    """

    scores: Array  # (prompts, beams), sums of the tokens' log probabilities
    tokens: Array  # (prompts, beams, room) of the sequences that have ended
    lengths: Array  # (prompts, beams)
    ended_scores: Array  # (prompts, beams), by the sequences' lengths
    are_done: Array  # (prompts,), whether no beam can become one of the best sequences


class Growth(NamedTuple):
    """A step of a search: the row that each beam continues, and its next token."""

    beams: Beams
    rows: Array
    tokens: Array


def first_beams(prompts: int, count: int, room: int) -> Beams:
    """The search of prompts with `count` beams each, before the first step."""
    shape = (prompts, count)
    return Beams(
        jnp.full(shape, _UNLIKELY, jnp.float32).at[:, 0].set(0),
        jnp.zeros((*shape, room), jnp.int32),
        jnp.zeros(shape, jnp.int32),
        jnp.zeros(shape, jnp.float32),
        jnp.zeros(prompts, bool),
    )


def over_rows(beams: Beams, lengths: Array, max_length: Any) -> Array:
    """Whether each row of a state grows no more: the beams of a prompt that is done, and sequences without room."""
    are_over: Array = jnp.repeat(beams.are_done, beams.scores.shape[1]) | (lengths >= max_length)
    return are_over


def grow(beams: Beams, state: State, form: Sampling, numbers: Mapping[str, Array], ends: Array) -> Growth:
    """Chooses the likeliest continuations of the beams of each prompt; those with an end token are sequences."""
    prompts, count = beams.scores.shape
    logits = penalize(state.logits, state.tokens, state.lengths, form, numbers, ends)
    vocabulary = logits.shape[1]
    totals = (jax.nn.log_softmax(logits) + beams.scores.reshape(-1, 1)).reshape(prompts, -1)
    scores, places = lax.top_k(totals, min(count * (1 + ends.size), count * vocabulary))  # enough without end tokens
    parents, tokens = jnp.divmod(places, vocabulary)
    are_ends = jnp.isin(tokens, ends)
    lengths = state.lengths.reshape(prompts, count)
    added = _add(beams, scores[:, :count], parents[:, :count], are_ends[:, :count], state, numbers)
    best = _by_length(scores[:, 0], lengths[:, 0], numbers)
    are_full = added.lengths[:, -1] > 0
    are_done = are_full if form.stops_early else are_full & ~(added.ended_scores[:, -1] < best)
    going = jnp.argsort(are_ends, axis=1, stable=True)[:, :count]
    scores, parents, tokens = (jnp.take_along_axis(x, going, 1) for x in (scores, parents, tokens))
    grown = added._replace(scores=scores, are_done=are_done)
    # Rows that grow no more keep their tokens and scores.
    is_over = over_rows(beams, state.lengths, numbers["max_length"]).reshape(prompts, count)
    kept = jax.tree.map(lambda new, old: jnp.where(_like(is_over[:, 0], new), old, new), grown, beams)
    parents = jnp.where(is_over, iota(count)[None], parents) + count * iota(prompts)[:, None]
    return Growth(kept, parents.reshape(-1), tokens.reshape(-1).astype(jnp.int32))


def finish(beams: Beams, state: State, numbers: Mapping[str, Array]) -> tuple[Array, Array]:
    """The best sequences of each prompt and their lengths; beams that still grow count as sequences."""
    shape = beams.scores.shape
    rows = jnp.broadcast_to(iota(shape[1])[None], shape)
    added = _add(beams, beams.scores, rows, jnp.broadcast_to(~beams.are_done[:, None], shape), state, numbers)
    return added.tokens, added.lengths


def _add(
    beams: Beams, scores: Array, parents: Array, are_new: Array, state: State, numbers: Mapping[str, Array]
) -> Beams:
    """The search with the new among the sequences at `parents`, in the order of their scores."""
    prompts, count = beams.scores.shape
    tokens, lengths = (
        jnp.take_along_axis(x.reshape(prompts, count, *x.shape[1:]), _like(parents, x, 1), 1)
        for x in (state.tokens, state.lengths)
    )
    new = tokens, jnp.where(are_new, lengths, 0), _by_length(scores, lengths, numbers)
    tokens, lengths, ended = (
        jnp.concatenate(pair, 1) for pair in zip((beams.tokens, beams.lengths, beams.ended_scores), new, strict=True)
    )
    order = jnp.lexsort((-ended, lengths == 0))[:, :count]  # of equal scores, the earlier sequence is first
    tokens, lengths, ended = (jnp.take_along_axis(x, _like(order, x), 1) for x in (tokens, lengths, ended))
    return beams._replace(tokens=tokens, lengths=lengths, ended_scores=ended)


def _by_length(scores: Array, lengths: Array, numbers: Mapping[str, Array]) -> Array:
    return scores / lengths.astype(jnp.float32) ** numbers["length_penalty"]


def _like(x: Array, other: Array, more: int = 0) -> Any:
    """An array with dimensions of size 1 after its own, as many as `other` has with `more`."""
    return x.reshape(*x.shape, *[1] * (other.ndim + more - x.ndim))
