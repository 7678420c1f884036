"""Guesses the tokens that may follow a sequence: by a smaller model, or by what followed the same tokens before.

How many tokens are guessed may adapt to how many of them are right, and how long that takes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
import numpy as np
from jax import Array

from dmljax.onnx.language.generation import Decoder, GenerationRun
from dmljax.onnx.language.sampling import numbers_of, sampling_of
from dmljax.onnx.language.state import State

MOST_DRAFTS = 16  # of a round


class DraftOptions(NamedTuple):
    """How tokens are drafted, with the names of `genai_config.json`."""

    max_draft_tokens: int = 4
    ngram_size: int = 0  # 0 for a model that drafts
    ngram_chained_lookup: bool = False
    min_adaptive_k: int = 0  # 0 for `max_draft_tokens` in each round
    cooldown: bool = False


@dataclass
class DraftCounts:
    """What drafts cost and gained, with GenAI's names."""

    rounds: int = 0
    completed_rounds: int = 0
    interrupted_rounds: int = 0
    draft_tokens_proposed: int = 0
    draft_tokens_evaluated: int = 0
    draft_tokens_accepted: int = 0
    correction_tokens: int = 0
    bonus_tokens: int = 0
    tokens_queued: int = 0
    tokens_emitted: int = 0
    tokens_discarded: int = 0
    draft_forward_passes: int = 0
    standard_fallback_steps: int = 0
    full_accept_rounds: int = 0
    partial_accept_rounds: int = 0
    zero_accept_rounds: int = 0
    target_verify_forward_passes: int = 0
    target_reanchor_forward_passes: int = 0
    target_reconciliation_forward_passes: int = 0
    ngram_lookup_hits: int = 0
    ngram_lookup_misses: int = 0
    ngram_lookup_tokens_proposed: int = 0
    ngram_chained_tokens_proposed: int = 0
    ngram_history_syncs: int = 0
    ngram_history_tokens_synced: int = 0
    total_draft_ms: float = 0.0
    total_reconciliation_ms: float = 0.0
    total_target_verify_ms: float = 0.0
    total_target_reanchor_ms: float = 0.0
    total_ngram_history_sync_ms: float = 0.0
    total_ngram_lookup_ms: float = 0.0
    rounds_by_width: dict[int, int] = field(default_factory=dict)  # by the number of drafts


class Proposal(NamedTuple):
    """The tokens that may come next."""

    tokens: Sequence[int]
    probs: Array | None = None  # that they were drawn with; None if they are certain


class Proposer(Protocol):
    """What guesses tokens."""

    def begin(self, run: GenerationRun, tokens: Sequence[int]) -> None:
        """Reads the tokens that a generation begins with."""

    def propose(self, run: GenerationRun, tokens: Sequence[int], count: int) -> Proposal:
        """At most `count` tokens that may follow `tokens`."""


class Lookup:
    """Guesses that what followed the last tokens before follows them again.

    It knows the last place of each n-gram without its last token. A chained lookup looks each guess up with the tokens
    before it; otherwise the guesses are the tokens that followed the last occurrence.
    """

    def __init__(self, size: int, is_chained: bool, counts: DraftCounts) -> None:
        self._length, self._is_chained, self._counts = size - 1, is_chained, counts
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}  # of the token after these

    def begin(self, run: GenerationRun, tokens: Sequence[int]) -> None:
        """Forgets tokens that are no more."""
        if self._tokens != tokens[: len(self._tokens)]:
            self._tokens, self._places = [], {}

    def propose(self, run: GenerationRun, tokens: Sequence[int], count: int) -> Proposal:
        counts, begin = self._counts, perf_counter()
        if added := tokens[len(self._tokens) :]:
            self._append(added)
            counts.ngram_history_syncs += 1
            counts.ngram_history_tokens_synced += len(added)
            counts.total_ngram_history_sync_ms += milliseconds_since(begin)
        begin = perf_counter()
        found = self._follow(count) if self._is_chained else self._find(count)
        counts.total_ngram_lookup_ms += milliseconds_since(begin)
        counts.ngram_lookup_hits += bool(found)
        counts.ngram_lookup_misses += not found
        counts.ngram_lookup_tokens_proposed += len(found)
        counts.ngram_chained_tokens_proposed += max(len(found) - 1, 0) if self._is_chained else 0
        return Proposal(found)

    def _append(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            if len(self._tokens) >= self._length:
                self._places[(*self._tokens[-self._length :],)] = len(self._tokens)
            self._tokens.append(token)

    def _find(self, count: int) -> list[int]:
        place = self._places.get((*self._tokens[-self._length :],))
        return [] if place is None else self._tokens[place : place + count]

    def _follow(self, count: int) -> list[int]:
        last, found = (*self._tokens[-self._length :],), list[int]()
        while len(found) < count and (place := self._places.get(last)) is not None:
            found.append(self._tokens[place])
            last = (*last[1:], found[-1])
        return found


_UNREAD = 2  # tokens that the drafts' program reads at most: an accepted draft, and what the model added


class DraftModel:
    """Guesses with a smaller model, which reads the same tokens."""

    def __init__(self, decoder: Decoder, weights: Mapping[str, Any], counts: DraftCounts) -> None:
        self._decoder, self._weights, self._counts = decoder, weights, counts
        self._state: State | None = None
        self._tokens: list[int] = []  # that the state has

    def begin(self, run: GenerationRun, tokens: Sequence[int]) -> None:
        """Reads all tokens but the last, which is read with the first draft."""
        room = run.state.tokens.shape[1]
        state = self._state
        if state is None or state.tokens.shape[1] != room:
            state, self._tokens = self._decoder.empty_state(1, room, self._weights), []
        self._state = self._read(state, tokens, room)

    def _read(self, state: State, tokens: Sequence[int], room: int) -> State:
        """The state without what is not among the tokens, and with all but few of them."""
        length = min(len(self._tokens), len(tokens) - 1)
        if self._tokens[:length] != tokens[:length]:
            pairs = zip(self._tokens, tokens, strict=False)
            length = next(i for i, (token, other) in enumerate(pairs) if token != other)
        lengths = np.array([length], np.int32)
        state = state._replace(lengths=jnp.asarray(lengths))
        if len(tokens) - length > _UNREAD:
            state = self._decoder.extend(self._weights, None, state, lengths, [tokens[length:-1]], room)
            length = len(tokens) - 1
        self._tokens = [*tokens[:length]]
        return state

    def propose(self, run: GenerationRun, tokens: Sequence[int], count: int) -> Proposal:
        search, decoder = run.search, self._decoder
        room = run.state.tokens.shape[1]
        empty = self._decoder.empty_state(1, room, self._weights) if self._state is None else self._state
        state = self._read(empty, tokens, room)
        unread = tokens[len(self._tokens) :]
        form, numbers = sampling_of(search), numbers_of(search)
        key = run.key if search.do_sample else None
        padded = np.zeros((1, _UNREAD), np.int32)
        padded[0, : len(unread)] = unread
        read, wanted = np.int32(len(unread)), np.int32(count)
        self._state, drafts, probs = decoder.jit_draft(
            self._weights, state, padded, read, wanted, key, numbers, form=form, most=MOST_DRAFTS
        )
        guesses = np.asarray(drafts)[:count].tolist()
        self._tokens = [*tokens, *guesses[:-1]]
        self._counts.draft_forward_passes += count
        return Proposal(guesses, probs)


class Drafter:
    """Guesses tokens for one generation after another, and counts what comes of it.

    No round of drafts crosses `boundary`: a length at which the model reads all tokens again.
    """

    def __init__(
        self,
        options: DraftOptions,
        decoder: Decoder | None = None,
        weights: Mapping[str, Any] | None = None,
        boundary: int | None = None,
    ) -> None:
        self.counts, self.boundary = DraftCounts(), boundary
        self.width, self.cooldown = Width(options), Cooldown(options.cooldown)
        self._proposer: Proposer
        if decoder is None:
            self._proposer = Lookup(options.ngram_size, options.ngram_chained_lookup, self.counts)
        else:
            self._proposer = DraftModel(decoder, decoder.models.weights if weights is None else weights, self.counts)
        self.begin, self.propose = self._proposer.begin, self._proposer.propose

    def reset(self) -> None:
        """Forgets how good drafts were."""
        self.width.reset()
        self.cooldown.reset()


class Round(NamedTuple):
    """A round of drafts whose tokens all came out."""

    drafted: int
    evaluated: int
    accepted: int
    emitted: int
    is_full: bool  # whether there were as many drafts as wanted
    milliseconds: float


@dataclass
class _Estimate:
    """Moving averages of the rounds of a width."""

    tokens: float
    milliseconds: float
    acceptance: float
    samples: int = 1

    def update(self, other: "_Estimate") -> None:
        for name in ("tokens", "milliseconds", "acceptance"):
            mean = getattr(self, name)
            setattr(self, name, mean + _SHARE * (getattr(other, name) - mean))
        self.samples += 1

    @property
    def throughput(self) -> float:
        return self.tokens / self.milliseconds


# GenAI's rules: the share of a new round in averages, the acceptance below which a width shrinks and from which it
# grows, the throughput that a tried width must keep, at once and after its samples, and the rounds before the next.
_SHARE, _LOW, _HIGH, _LEAST, _SAFE, _SAMPLES = 0.25, 0.5, 0.75, 0.8, 0.97, 2
_ROUNDS_AFTER = {True: 1, False: 6}  # whether the width was kept


class Width:
    """The number of drafts of a round: fixed, or such that most tokens come out in a time."""

    def __init__(self, options: DraftOptions) -> None:
        self._is_adaptive = options.min_adaptive_k > 0
        self.least = options.min_adaptive_k if self._is_adaptive else options.max_draft_tokens
        self.increases = self.decreases = self.observations = self.probes = 0
        self.reset()

    def reset(self) -> None:
        self.current = self.least
        self._estimates: dict[int, _Estimate] = {}
        self._origin: int | None = None  # the width before the one that is tried
        self._tried = self._stable = self._pause = 0

    @property
    def throughput(self) -> float:
        """Tokens in a millisecond."""
        estimate = self._estimates.get(self.current) or self._estimates.get(self._origin or 0)
        return estimate.throughput if estimate else 0.0

    def learn(self, finished: Round) -> None:
        """Learns from a round, and may change the width."""
        is_right = finished.drafted == self.current and finished.evaluated and finished.emitted and finished.is_full
        if not self._is_adaptive or not is_right or not 0 < finished.milliseconds < math.inf:
            return
        sample = _Estimate(finished.emitted, finished.milliseconds, finished.accepted / finished.evaluated)
        estimate = self._estimates.setdefault(self.current, sample)
        if estimate is not sample:
            estimate.update(sample)
        self.observations += 1
        if self._origin is not None:
            self._judge(estimate, self._origin)
            return
        self._stable += 1
        if self._pause:
            self._pause -= 1
        elif estimate.samples >= _SAMPLES:
            if estimate.acceptance < _LOW and self.current > self.least:
                self._try(self.current - 1)
            elif estimate.acceptance >= _HIGH and self.current < MOST_DRAFTS and self._stable >= _SAMPLES:
                self._try(self.current + 1)

    def _judge(self, estimate: _Estimate, origin: int) -> None:
        """Keeps the tried width, or goes back, once it is clear which is better."""
        self._tried += 1
        before = self._estimates[origin].throughput
        if estimate.throughput < before * _LEAST:
            self._end_trial(origin, is_kept=False)
        elif self._tried >= _SAMPLES:
            is_accepted = self.current < origin or estimate.acceptance >= _HIGH
            self._end_trial(origin, is_kept=is_accepted and estimate.throughput >= before * _SAFE)

    def _try(self, width: int) -> None:
        self._origin, self._tried, self._stable = self.current, 0, 0
        self.probes += 1
        self._move(width)

    def _end_trial(self, origin: int, *, is_kept: bool) -> None:
        if not is_kept:
            self._move(origin)
        self._origin, self._tried, self._stable = None, 0, 0
        self._pause = _ROUNDS_AFTER[is_kept]

    def _move(self, width: int) -> None:
        self.increases += width > self.current
        self.decreases += width < self.current
        self.current = width


_FAILURES = 3  # rounds in a row without an accepted draft


class Cooldown:
    """Leaves drafts out for a token, after rounds in which none was right."""

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self.entries = self.steps = 0
        self.reset()

    def reset(self) -> None:
        self.remaining = self._failures = 0

    def learn(self, finished: Round, least: int) -> None:
        """Learns from a round; `least` is the smallest width."""
        if not self._is_on or not finished.evaluated:
            return
        self._failures = 0 if finished.accepted or finished.drafted != least else self._failures + 1
        if self._failures == _FAILURES:
            self.remaining, self._failures = 1, 0
            self.entries += 1

    def complete_step(self) -> None:
        """Notes that a token came without drafts."""
        self.remaining -= 1
        self.steps += 1


def milliseconds_since(begin: float) -> float:
    """The time since `perf_counter` gave `begin`."""
    return 1000 * (perf_counter() - begin)
