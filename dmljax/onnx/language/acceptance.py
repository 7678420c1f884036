"""Accepts or rejects drafts: tokens that were guessed, and that the model has read in one run.

A draft is accepted where the search would have chosen the same token. If a draft was drawn from probabilities of its
own, it is accepted as often as the ratio of the model's probability to them allows, and a token that replaces it is
drawn from what is left of the model's: then the tokens are distributed as without drafts.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dmljax.onnx.language.sampling import Sampling, choose_tokens, next_probs
from dmljax.onnx.language.state import iota


class Drafts(NamedTuple):
    """The tokens that may follow a sequence."""

    tokens: Array  # a token for each row of logits, of which the first `drafted` are drafts
    drafted: Array
    probs: Array | None = None  # (drafts, vocabulary) that they were drawn with; None if they are certain


class Verdict(NamedTuple):
    """The drafts that are accepted, and what follows them."""

    accepted: Array  # how many
    token: Array  # the search's own after them
    rows: Array  # of logits, after no draft, the first, and so on
    keys: Any  # after each new token; None if tokens are not drawn


class Draw(NamedTuple):
    """A draft, and the probabilities that it was drawn with, if it was."""

    token: Array
    probs: Array | None


_FINAL, _DRAFT, _CHANCE = range(3)  # the draws that a step with drafts makes with its key


def judge_drafts(
    rows: Array,
    tokens: Array,
    length: Array,
    drafts: Drafts,
    form: Sampling,
    numbers: Mapping[str, Array],
    ends: Array,
    key: Any,
) -> Verdict:
    """Accepts drafts up to the first that is wrong; `rows` are the logits of the tokens after `length` of `tokens`."""
    count = len(rows)
    keys: Any = None
    step_keys: Any = None
    if form.is_drawn:
        keys, step_keys = _split_keys(key, count)
    lengths = length + iota(count)
    is_draft = iota(count) < drafts.drafted
    if drafts.probs is None or not form.is_drawn:
        chosen = _of_rows(choose_tokens, form, numbers, ends)(rows, tokens, lengths, step_keys)
        accepted = _count_first((chosen == drafts.tokens) & is_draft)
        return Verdict(accepted, chosen[accepted], rows, keys)
    probs = _of_rows(lambda *arguments: next_probs(*arguments[:-1]), form, numbers, ends)(rows, tokens, lengths, None)
    draft_probs = jnp.pad(drafts.probs, ((0, max(count - len(drafts.probs), 0)), (0, 0)))[:count]
    target, drawn = (jnp.take_along_axis(x, drafts.tokens[:, None], 1)[:, 0] for x in (probs, draft_probs))
    chance_keys = jax.vmap(lambda key: jax.random.fold_in(key, _CHANCE))(step_keys)
    chance = jax.vmap(lambda key: jax.random.uniform(key, dtype=jnp.float32))(chance_keys)
    accepted = _count_first((chance * drawn < target) & is_draft)
    left = jnp.maximum(probs[accepted] - jnp.where(accepted < drafts.drafted, draft_probs[accepted], 0), 0)
    weights = jnp.where(jnp.sum(left) > 0, left, probs[accepted])
    final_key = jax.random.fold_in(step_keys[accepted], _FINAL)
    token = jax.random.categorical(final_key, jnp.log(weights)).astype(jnp.int32)
    return Verdict(accepted, token, rows, keys)


def draw_draft(
    logits: Array,
    tokens: Array,
    lengths: Array,
    form: Sampling,
    numbers: Mapping[str, Array],
    ends: Array,
    key: Any,
) -> tuple[Draw, Any]:
    """The draft that follows a single sequence, and the key of the next one."""
    if not form.is_drawn:
        return Draw(choose_tokens(logits, tokens, lengths, form, numbers, ends, None)[0], None), None
    key, step_key = jax.random.split(key)
    probs = next_probs(logits, tokens, lengths, form, numbers, ends)[0]
    draft_key = jax.random.fold_in(step_key, _DRAFT)
    return Draw(jax.random.categorical(draft_key, jnp.log(probs)).astype(jnp.int32), probs), key


def _split_keys(key: Any, count: int) -> tuple[Any, Any]:
    """The keys after each of `count` steps, and those of the steps, as decoding without drafts splits them."""

    def split(key: Any, _: Any) -> Any:
        key, step_key = jax.random.split(key)
        return key, (key, step_key)

    keys: tuple[Any, Any] = lax.scan(split, key, length=count)[1]
    return keys


def _of_rows(function: Any, form: Sampling, numbers: Mapping[str, Array], ends: Array) -> Any:
    """A function of the search for each row of logits after the same tokens, of which rows have different lengths."""

    def of_row(row: Array, tokens: Array, length: Array, key: Any) -> Array:
        result: Array = function(row[None], tokens, length[None], form, numbers, ends, key)[0]
        return result

    return jax.vmap(of_row, (0, None, 0, 0))


def _count_first(are_right: Array) -> Array:
    """How many are right before the first that is not."""
    return jnp.sum(jnp.cumprod(are_right.astype(jnp.int32)), dtype=jnp.int32)
