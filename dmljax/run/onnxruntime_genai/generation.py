"""GenAI's generators, which read a token at a time from a language model."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.foundation.checks import integer_in
from dmljax.onnx import State, Stream
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY, GeneratorParams, Model, options_of_generation
from dmljax.run.onnxruntime_genai.texts import Tensor
from dmljax.text import show


class Generator(Answering):
    """Grows sequences a token at a time. As in GenAI, a single sequence does not include its end token."""

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        with refusing(LIBRARY):
            if not isinstance(model, Model) or not isinstance(params, GeneratorParams):
                raise InvalidType(Problem((), "takes a Model and GeneratorParams", f"{show(model)} and {show(params)}"))
            self._model, self._pad, self._ends = model._model, model._pad, model._model.settings.end_tokens
            self._batch = integer_in("batch_size", params._options["batch_size"], 1, 2**31 - 1)
            self._options = options_of_generation(params._options)
            self._most = params._options["max_length"]
            self._clear()

    def _clear(self) -> None:
        self._rows = np.zeros((self._batch, 0), np.int32)  # as the program sees them, filled up after their ends
        self._next = np.zeros(0, np.int32)
        self._has_ended = np.zeros(self._batch, bool)
        self._stream: Stream | None = None

    def append_tokens(self, tokens: Any) -> None:
        """Reads tokens: a row for each sequence, filled up with the padding token where a batch has several."""
        with refusing(LIBRARY):
            rows = self._rows_of_tokens(tokens)
            length = self._rows.shape[1]
            if length and self._batch > 1:
                rule = "sequences of a batch can be given only once"
                raise Unsupported(Problem("tokens", rule, remedy="rewind_to(0) begins anew"))
            if length + rows.shape[1] > self._most:
                rule = f"must leave at most max_length = {self._most} tokens in all"
                raise InvalidDesc(Problem("tokens", rule, length + rows.shape[1]))
            prompts = [row if self._batch == 1 else _without_padding(row, self._pad) for row in rows]
            self._read([row.tolist() for row in prompts], length)
            self._rows = np.concatenate([self._rows, rows], 1)

    def _rows_of_tokens(self, tokens: Any) -> Any:
        try:
            array = np.asarray(tokens.as_numpy() if isinstance(tokens, Tensor) else tokens)
        except ValueError:  # rows of different lengths
            array = np.zeros(0)
        if not array.size or array.dtype.kind not in "iu" or array.size % self._batch:
            rule = f"must be integers, as many in each of {self._batch} rows, which is the search's batch_size"
            raise InvalidType(Problem("tokens", rule, show(tokens)))
        return array.reshape(self._batch, -1).astype(np.int32)

    def _read(self, rows: list[list[int]], length: int) -> None:
        """Reads rows after the first `length` tokens of the sequences; may have to read those tokens again."""
        stream, self._stream = self._stream, None
        state = stream.state if stream and length else None
        if state is not None and not self._model.can_shorten(int(state.lengths[0]), length):
            rows, state = [[*self._rows[0, :length].tolist(), *rows[0]]], None
        state = None if state is None else _shorten(state, length)
        self._stream = self._model.stream(rows, block=1, state=state, **self._options)
        self._has_ended[:] = False
        if "key" in self._options:
            self._options["key"] = jax.random.split(self._options["key"])[0]

    def generate_next_token(self) -> None:
        """Chooses a token for each sequence; does nothing once all have ended."""
        with refusing(LIBRARY):
            stream = self._require_stream()
            if self._has_ended.all():
                return
            if self._rows.shape[1] >= self._most:
                raise InvalidDesc(Problem((), f"the sequences have max_length = {self._most} tokens"))
            next_tokens = next(stream)
            self._next = np.array([self._pad if token is None else token for token in next_tokens], np.int32)
            self._has_ended |= np.isin(self._next, self._ends)
            if not self._has_ended.all():
                self._rows = np.concatenate([self._rows, self._next[:, None]], 1)

    def _require_stream(self) -> Stream:
        if self._stream is None:
            raise InvalidDesc(Problem((), "there are no tokens yet", remedy="append_tokens gives some"))
        return self._stream

    def is_done(self) -> bool:
        """Whether all sequences have ended or are as long as they may be."""
        return bool(self._has_ended.all()) or self._rows.shape[1] >= self._most

    def get_next_tokens(self) -> Any:
        return self._next.copy()

    def get_sequence(self, index: int) -> Any:
        with refusing(LIBRARY):
            return self._rows[integer_in("index", index, 0, self._batch - 1)].copy()

    def token_count(self) -> int:
        """Counts the tokens of each sequence."""
        return int(self._rows.shape[1])

    def get_logits(self) -> Any:
        """The logits (sequences, 1, vocabulary) of the next token."""
        with refusing(LIBRARY):
            return np.array(self._require_stream().logits)[:, None]

    def rewind_to(self, new_length: int) -> None:
        """Forgets all but the first tokens."""
        with refusing(LIBRARY):
            length = integer_in("new_length", new_length, 0, self._rows.shape[1])
            if length and self._batch > 1:
                raise Unsupported(Problem("new_length", "must be 0 for sequences of a batch", length))
            if not length:
                self._clear()
                return
            self._rows = self._rows[:, :length]
            self._read(self._rows[:, -1:].tolist(), length - 1)  # the last token again, for its logits


def _shorten(state: State, length: int) -> State:
    """Cuts the state of a single sequence to its first tokens."""
    is_kept = jnp.arange(state.tokens.shape[1]) < length
    return state._replace(
        tokens=jnp.where(is_kept, state.tokens, 0), lengths=jnp.minimum(state.lengths, jnp.int32(length))
    )


def _without_padding(row: Any, pad: int) -> Any:
    """Strips padding from both ends of a row; a row of padding keeps a single token."""
    places = np.flatnonzero(row != pad)
    return row[places[0] : places[-1] + 1] if places.size else row[:1]
