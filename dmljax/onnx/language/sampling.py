"""The options of a search, and how it chooses next tokens: the likeliest, or drawn by their probabilities."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.language.state import iota
from dmljax.text import show

_LARGE = 2**31 - 1
_RULES: dict[str, tuple[tuple[type, ...], float, float, str]] = {
    "max_length": ((int,), 1, _LARGE, ""),
    "min_length": ((int,), 0, _LARGE, f"an integer from 0 to {_LARGE}"),
    "do_sample": ((bool,), 0, 1, "True or False"),
    "temperature": ((int, float), 1e-6, _LARGE, f"a number from 1e-06 to {_LARGE}"),
    "top_k": ((int,), 0, _LARGE, f"an integer from 0 to {_LARGE}, where 0 keeps all tokens"),
    "top_p": ((int, float), math.ulp(0), 1, "a number above 0 and at most 1"),
    "repetition_penalty": ((int, float), 1e-6, _LARGE, f"a number from 1e-06 to {_LARGE}"),
    "no_repeat_ngram_size": ((int,), 0, _LARGE, f"an integer from 0 to {_LARGE}, where 0 lets tokens repeat"),
    "num_beams": ((int,), 1, _LARGE, f"an integer from 1 to {_LARGE}, where 1 chooses token by token"),
    "num_return_sequences": ((int,), 1, _LARGE, f"an integer from 1 to {_LARGE}"),
    "length_penalty": ((int, float), -_LARGE, _LARGE, f"a number from {-_LARGE} to {_LARGE}"),
    "early_stopping": ((bool,), 0, 1, "True or False"),
}


class Search(NamedTuple):
    """How the next tokens are chosen, with the names of `genai_config.json`."""

    max_length: int
    min_length: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = True


def with_options(search: Search, changes: Mapping[str, Any], context_length: int) -> Search:
    """The search with the `changes` that are not None, after checking them."""
    options = {name: value for name, value in changes.items() if value is not None}
    for name, value in options.items():
        kinds, lowest, highest, rule = _RULES[name]
        if name == "max_length":
            highest, rule = context_length, f"an integer from 1 to {context_length}, the model's context"
        is_right = isinstance(value, kinds) and (bool in kinds) == isinstance(value, bool)
        if not is_right or not lowest <= value <= highest:
            raise InvalidDesc(Problem(name, f"must be {rule}", show(value)))
    changed = search._replace(**options)
    if changed.num_return_sequences > changed.num_beams:
        rule = f"must be at most {changed.num_beams}, which is num_beams"
        raise InvalidDesc(Problem("num_return_sequences", rule, changed.num_return_sequences))
    return changed


_OF_DRAWS = ("temperature", "top_k", "top_p")
OF_BEAMS = ("num_beams", "num_return_sequences", "length_penalty", "early_stopping")


def require_effect(search: Search, changes: Mapping[str, Any]) -> None:
    """Raises if `changes` set how tokens are drawn or beams end, but the search does not draw or has no beams."""
    if search.num_beams > 1 and search.do_sample:
        rule, remedy = "not supported with beams, which take the likeliest tokens", "num_beams=1"
        raise Unsupported(Problem("do_sample", rule, remedy=remedy))
    for names, is_used, option, remedy in (
        (_OF_DRAWS, search.do_sample, "do_sample", "do_sample=True draws tokens"),
        (OF_BEAMS[2:], search.num_beams > 1, "num_beams", "num_beams=4 keeps four sequences"),
    ):
        given = [name for name in names if changes.get(name) is not None and not is_used]
        if given:
            rule = f"has no effect without {option}"
            raise InvalidDesc(*(Problem(name, rule, show(changes[name]), remedy=remedy) for name in given))


class Sampling(NamedTuple):
    """The parts of a search that a program is compiled for; the others are its arguments."""

    is_drawn: bool
    kept: int  # the likeliest tokens that are drawn from; 0 for all
    has_top_p: bool
    has_penalty: bool
    has_least: bool
    ngram_size: int  # that may not repeat; 0 if all may
    stops_early: bool  # whether beams stop at as many ended sequences


def sampling_of(search: Search) -> Sampling:
    """The parts of a search that a program is compiled for."""
    return Sampling(
        is_drawn=search.do_sample,
        kept=search.top_k if search.do_sample else 0,
        has_top_p=search.do_sample and search.top_p < 1,
        has_penalty=search.repetition_penalty != 1,
        has_least=search.min_length > 0,
        ngram_size=search.no_repeat_ngram_size,
        stops_early=search.num_beams > 1 and search.early_stopping,
    )


def numbers_of(search: Search) -> dict[str, Any]:
    """The options of a search as arguments of its program."""
    integers = ("max_length", "min_length", "no_repeat_ngram_size")
    return {name: (np.int32 if name in integers else np.float32)(value) for name, value in search._asdict().items()}


def choose_tokens(
    logits: Array,
    tokens: Array,
    lengths: Array,
    form: Sampling,
    numbers: Mapping[str, Array],
    ends: Array,
    key: Any,
) -> Array:
    """The next token of each sequence, which has `lengths` of the `tokens`."""
    logits = penalize(logits, tokens, lengths, form, numbers, ends)
    if not form.is_drawn:
        return jnp.argmax(logits, 1).astype(jnp.int32)
    values, places = _truncate(logits, form, numbers)
    drawn = jax.random.categorical(key, values, axis=1).astype(jnp.int32)
    return drawn if places is None else jnp.take_along_axis(places, drawn[:, None], 1)[:, 0].astype(jnp.int32)


def next_probs(
    logits: Array, tokens: Array, lengths: Array, form: Sampling, numbers: Mapping[str, Array], ends: Array
) -> Array:
    """The probabilities from which `choose_tokens` draws, of the whole vocabulary."""
    values, places = _truncate(penalize(logits, tokens, lengths, form, numbers, ends), form, numbers)
    probs = jax.nn.softmax(values, 1)
    return probs if places is None else jnp.zeros_like(logits).at[iota(len(logits))[:, None], places].set(probs)


def penalize(
    logits: Array, tokens: Array, lengths: Array, form: Sampling, numbers: Mapping[str, Array], ends: Array
) -> Array:
    """The logits with what the search takes from tokens that repeat, or that end a sequence too early."""
    room = tokens.shape[1]
    if form.has_penalty:
        seen = _present(tokens, iota(room)[None] < lengths[:, None], logits.shape)
        penalty = numbers["repetition_penalty"]
        logits = jnp.where(seen, jnp.where(logits > 0, logits / penalty, logits * penalty), logits)
    if 0 < form.ngram_size < room:  # shorter sequences have nothing to repeat
        logits = jnp.where(
            _completing_ngrams(tokens, lengths[:, None], form.ngram_size, logits.shape), -jnp.inf, logits
        )
    if form.has_least:
        is_end = jnp.zeros(logits.shape[1], bool).at[ends].set(True)
        is_short = lengths < numbers["min_length"]
        logits = jnp.where(is_short[:, None] & is_end[None], -jnp.inf, logits)
    return logits


def _truncate(logits: Array, form: Sampling, numbers: Mapping[str, Array]) -> tuple[Array, Array | None]:
    """The logits of the tokens that are drawn from, with these tokens; None stands for the whole vocabulary."""
    logits = logits / numbers["temperature"]
    count = logits.shape[1]
    kept = min(form.kept or count, count)
    if kept == count and not form.has_top_p:
        return logits, None
    values, places = lax.top_k(logits, kept)
    if form.has_top_p:
        probs = jax.nn.softmax(values, 1)
        before = jnp.cumsum(probs, 1) - probs
        is_kept = (before < numbers["top_p"]) | (iota(kept)[None] == 0)  # also where float32 rounds top_p to 0
        values = jnp.where(is_kept, values, -jnp.inf)
    return values, places


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
