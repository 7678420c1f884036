"""Generates in rounds: tokens are drafted, and the model reads them in one run, which tells how many are right.

A round gives the drafts that the model accepts, and one token more, which the model reads together with the next
round's drafts.
"""

from collections import deque
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dmljax.foundation.programs.progress import listen
from dmljax.onnx.language.drafts import MOST_DRAFTS, Drafter, Proposal, Round, milliseconds_since
from dmljax.onnx.language.generation import GenerationRun, Stream
from dmljax.onnx.language.sampling import numbers_of, sampling_of
from dmljax.onnx.language.state import State, shorten

# Of the blocks of tokens that programs are compiled for: a token with 0, 1, 2, 4, 8 and 16 drafts
_SIZES = (1, *(1 + (1 << i) for i in range(MOST_DRAFTS.bit_length())))


_NO_ROUND = Round(0, 0, 0, 0, False, 0.0)


class _Output(NamedTuple):
    """A token that a round has decided, and the random key after it."""

    token: int
    key: Any


class DraftStream(Stream):
    """New tokens of a single sequence, which come out one at a time from rounds of drafts."""

    def __init__(self, run: GenerationRun, drafter: Drafter, progress: Any = None) -> None:
        super().__init__(run, 1, progress)
        self._drafter, self._counts = drafter, drafter.counts
        self._tokens: list[int] = np.asarray(run.state.tokens)[0, : int(run.state.lengths[0])].tolist()
        self._pending: deque[_Output] = deque()
        self._finished = _NO_ROUND  # what is known of the round whose tokens are pending
        self._rows: Any = None  # the logits after each of its drafts
        self._is_unread = False  # whether the caches lack the last token
        self._is_over = len(self._tokens) >= run.search.max_length
        with listen(progress):
            drafter.begin(run, self._tokens)

    def __next__(self) -> Any:
        if self._is_over:
            raise StopIteration
        with listen(self._progress):
            token = None if self._pending else self._begin_round()
            if token is None:
                return self._row(self._emit())
        self._tokens.append(token)
        self._is_over = self._run.is_over
        return self._row(token)

    def _row(self, token: int) -> Any:
        return token if self._run.is_single else [token]

    # Rounds

    def _begin_round(self) -> int | None:
        """Decides tokens; returns the token instead if it comes without drafts."""
        drafter, length = self._drafter, len(self._tokens)
        most, boundary = self._run.search.max_length, drafter.boundary
        if length == boundary and self._is_unread:
            drafter.reset()
            self._read_last(None)
        if drafter.cooldown.remaining:
            token = self._step()
            drafter.cooldown.complete_step()
            return token
        wanted = drafter.width.current
        count = min(wanted, most - length)
        if boundary is not None and length < boundary:
            count = min(count, max(1, boundary - length - 1))
        begin = perf_counter()
        proposal = drafter.propose(self._run, self._tokens, count)
        self._counts.total_draft_ms += (drafted := milliseconds_since(begin))
        if not proposal.tokens:
            return self._step()
        self._verify(proposal, drafted, is_full=len(proposal.tokens) == wanted)
        return None

    def _step(self) -> int:
        """Decides a token without drafts."""
        self._read_last("target_reanchor")
        self._counts.standard_fallback_steps += 1
        length = len(self._tokens)
        self._run = self._run.advance(1)
        return int(self._run.state.tokens[0, length])

    def _verify(self, proposal: Proposal, drafted: float, *, is_full: bool) -> None:
        counts, tokens, begin = self._counts, proposal.tokens, perf_counter()
        accepted, final, keys = self._read(tokens, proposal.probs)
        counts.target_verify_forward_passes += 1
        counts.total_target_verify_ms += (verified := milliseconds_since(begin))
        count, outputs = len(tokens), [*tokens[:accepted], final]
        self._pending.extend(_Output(*output) for output in zip(outputs, keys, strict=False))
        evaluated = min(accepted + 1, count)
        counts.rounds += 1
        counts.draft_tokens_proposed += count
        counts.draft_tokens_evaluated += evaluated
        counts.draft_tokens_accepted += accepted
        counts.bonus_tokens += accepted == count
        counts.correction_tokens += accepted < count
        counts.tokens_queued += len(outputs)
        counts.rounds_by_width[count] = counts.rounds_by_width.get(count, 0) + 1
        self._finished = Round(count, evaluated, accepted, 0, is_full, drafted + verified)

    def _emit(self) -> int:
        """The next of the decided tokens, after which the round may end."""
        counts, output, finished = self._counts, self._pending.popleft(), self._finished
        run = self._run
        self._run = run._replace(key=output.key) if run.search.do_sample else run
        self._tokens.append(output.token)
        self._is_unread = True
        is_end = output.token in run.decoder.settings.end_tokens
        counts.tokens_discarded += is_end
        counts.tokens_emitted += not is_end
        self._finished = finished = finished._replace(emitted=finished.emitted + 1)
        length = len(self._tokens)
        self._is_over = is_end or length >= run.search.max_length
        if self._is_over or length == self._drafter.boundary:
            self._end_round(is_interrupted=is_end or bool(self._pending))
        elif not self._pending:
            begin = perf_counter()
            if finished.drafted == 1 or length + 1 == self._drafter.boundary:
                self._read_last("target_reanchor")
            self._finished = finished._replace(milliseconds=finished.milliseconds + milliseconds_since(begin))
            self._end_round(is_interrupted=False)
        return output.token

    def _end_round(self, *, is_interrupted: bool) -> None:
        """Counts a round, and learns from it unless it was interrupted."""
        counts, finished, drafter = self._counts, self._finished, self._drafter
        if finished is _NO_ROUND:
            return
        if self._pending:
            self._run = self._run._replace(state=shorten(self._run.state, len(self._tokens) - 1))
        counts.tokens_discarded += len(self._pending)
        self._pending.clear()
        self._finished, self._rows = _NO_ROUND, None
        if is_interrupted:
            counts.interrupted_rounds += 1
            return
        counts.completed_rounds += 1
        counts.zero_accept_rounds += not finished.accepted
        counts.full_accept_rounds += finished.accepted == finished.evaluated
        counts.partial_accept_rounds += 0 < finished.accepted < finished.evaluated
        drafter.cooldown.learn(finished, drafter.width.least)
        drafter.width.learn(finished)

    # Runs of the model

    def _read(self, drafts: Any, probs: Array | None) -> tuple[int, int, Any]:
        """Reads the last token, if it is unread, and drafts: how many are accepted, the token after them, and keys."""
        run, unread = self._run, self._tokens[-1:] if self._is_unread else []
        tokens = np.zeros((1, next(size for size in _SIZES if size >= len(unread) + len(drafts))), np.int32)
        tokens[0, : len(unread) + len(drafts)] = [*unread, *drafts]
        form, numbers, key = sampling_of(run.search), numbers_of(run.search), run.key if run.search.do_sample else None
        counts = np.int32(len(unread)), np.int32(len(drafts))
        state, verdict = run.decoder.jit_verify(
            run.weights, run.state, tokens, *counts, probs, key, numbers, form=form, mesh=run.mesh
        )
        self._run, self._is_unread, self._rows = run._replace(state=state), False, verdict.rows
        accepted = int(verdict.accepted)
        return accepted, int(verdict.token), [None] * (accepted + 1) if verdict.keys is None else verdict.keys

    def _read_last(self, kind: str | None) -> None:
        """Reads the last token if it is unread; `kind` says where the run counts."""
        if not self._is_unread:
            return
        counts, begin, run = self._counts, perf_counter(), self._run
        lengths, room = np.asarray(run.state.lengths), run.state.tokens.shape[1]
        if run.decoder.become_long(lengths, lengths + 1):
            state = run.decoder.extend(run.weights, run.mesh, run.state, lengths, [self._tokens[-1:]], room)
            self._run, self._is_unread = run._replace(state=state), False
        else:
            self._read([], None)
        if kind:
            passes, total = f"{kind}_forward_passes", "total_reconciliation_ms"
            total = f"total_{kind}_ms" if kind == "target_reanchor" else total
            jax.block_until_ready(self._run.state.logits)
            setattr(counts, passes, getattr(counts, passes) + 1)
            setattr(counts, total, getattr(counts, total) + milliseconds_since(begin))

    # What callers see between tokens

    @property
    def pending(self) -> int:
        """The number of tokens that are decided but have not come out."""
        return len(self._pending)

    def discard(self) -> None:
        """Forgets the tokens that are decided but have not come out."""
        self._end_round(is_interrupted=bool(self._pending))

    def _settle(self) -> None:
        """Forgets the tokens that have not come out, and reads the others."""
        self.discard()
        self._read_last("target_reconciliation")

    @property
    def logits(self) -> Array:
        """The logits (1, vocabulary) of the token that comes next; setting them changes what it will be."""
        if self._pending:
            row: Array = self._rows[self._finished.emitted][None]
            return row
        self._read_last(None)
        return self._run.state.logits

    @logits.setter
    def logits(self, logits: Array) -> None:
        self._settle()
        self._drafter.reset()
        self._run = self._run._replace(state=self._run.state._replace(logits=logits))

    @property
    def state(self) -> State:
        """The sequence with all tokens so far, to continue it later."""
        self._settle()
        kept: State = jax.tree.map(jnp.copy, self._run.state)
        return kept

    def state_before(self, length: int) -> State:
        """The first `length` tokens, without the logits after them if there are more."""
        if length == len(self._tokens):
            return self.state
        self.discard()
        return shorten(jax.tree.map(jnp.copy, self._run.state), length)
