"""GenAI's generators, which read a token at a time from a language model."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.foundation.checks import integer_in
from dmljax.onnx import State, Stream
from dmljax.onnx.language.generation import BeamStream, Inputs
from dmljax.onnx.language.model import search_with_beams
from dmljax.onnx.language.parts import types_of_inputs
from dmljax.onnx.language.rounds import DraftStream
from dmljax.onnx.language.state import shorten
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.adapters import ActiveAdapters, Adapters
from dmljax.run.onnxruntime_genai.configuration import LIBRARY, require_type
from dmljax.run.onnxruntime_genai.logs import log, log_logits, log_tokens
from dmljax.run.onnxruntime_genai.models import GeneratorParams, Model, options_of_generation
from dmljax.run.onnxruntime_genai.speculation import drafter_of, statistics_of
from dmljax.run.onnxruntime_genai.tensors import NamedTensors, Tensor
from dmljax.text import show

_MOST_BEAMS = 32  # as in GenAI


class Generator(Answering):
    """Grows sequences a token at a time. As in GenAI, a single sequence does not include its end token."""

    _REFUSED = {
        "compute_logits": "GenAI no longer has it; leave it out, because generate_next_token computes the logits",
        **dict.fromkeys(
            ("generate_next_token_top_k", "generate_next_token_top_k_top_p", "generate_next_token_top_p"),
            "GenAI no longer has it; write params.set_search_options(do_sample=True, top_k=..., top_p=...) and "
            "generate_next_token",
        ),
        "get_input": "the program has buffers of fixed sizes instead; get_output gives outputs as the model has them",
        "set_hidden_states": "it belongs to models that draft tokens",
        "set_model_input": "set_inputs takes the inputs of models that see or hear",
        "set_runtime_option": "to end a generation, stop calling generate_next_token",
        "snapshot_state": "rewind_to goes back to an earlier length",
    }

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        with refusing(LIBRARY):
            if not isinstance(model, Model) or not isinstance(params, GeneratorParams):
                raise InvalidType(Problem((), "takes a Model and GeneratorParams", f"{show(model)} and {show(params)}"))
            self._model, self._pad, self._ends = model._model, model._pad, model._texts.end_tokens
            self._batch = integer_in("batch_size", params._options["batch_size"], 1, 2**31 - 1)
            self._options = options_of_generation(params._options)
            self._most = params._options["max_length"]
            self._beams = integer_in("num_beams", params._options["num_beams"], 1, _MOST_BEAMS)
            self._returned = integer_in("num_return_sequences", params._options["num_return_sequences"], 1, self._beams)
            self._drafter = drafter_of(model, self._model, model._draft, params._draft_options, params._options)
            self._audio: Any = None
            self._images: dict[str, Any] | None = None
            self._adapters = ActiveAdapters(self._model)
            self._clear()

    def _clear(self) -> None:
        self._rows = np.zeros((self._batch, 0), np.int32)  # as the program sees them, filled up after their ends
        self._is_token = np.zeros((self._batch, 0), bool)  # where rows are not filled up
        self._next = np.zeros(0, np.int32)
        self._has_ended = np.zeros(self._batch, bool)
        self._stream: Stream | None = None
        self._block = slice(0, 0)  # of the rows that GenAI's model read last
        self._is_unread = False  # whether GenAI's model has not read the last token yet
        self._has_new_adapters = False  # since the stream began

    def set_inputs(self, named_tensors: NamedTensors) -> None:
        """Reads what a processor made: the tokens of a prompt, with audio or images."""
        require_type("named_tensors", named_tensors, NamedTensors, "NamedTensors")
        with refusing(LIBRARY):
            parts, settings = self._model.models.by_part, self._model.settings
            if settings.translates or not {"encoder", "vision"} & {*parts}:
                rule, remedy = "not supported for models that read only texts", "append_tokens reads tokens"
                raise Unsupported(Problem("set_inputs", rule, remedy=remedy))
            names = named_tensors.keys()
            arrays = {name: named_tensors[name].as_numpy() for name in names}
            if "input_ids" not in arrays:
                raise InvalidDesc(Problem("input_ids", "must be among the inputs", ", ".join(arrays) or "none"))
            if "encoder" in parts:
                self._audio = arrays.get("audio_features")
            if "vision" in parts:
                graph_names, known = settings.others["vision"].names, types_of_inputs(parts["vision"])
                self._images = {name: x for name, x in arrays.items() if graph_names.get(name, name) in known} or None
        self.append_tokens(arrays["input_ids"])

    def set_active_adapter(self, adapters: Adapters, adapter_name: str) -> None:
        """Uses an adapter, besides those that it uses already, for all tokens that GenAI's model reads later."""
        self._adapters.add(adapters, adapter_name)
        self._has_new_adapters = self._stream is not None

    def append_tokens(self, tokens: Any) -> None:
        """Reads tokens: a row for each sequence, filled up with the padding token where a batch has several."""
        with refusing(LIBRARY):
            rows = self._rows_of_tokens(tokens)
            length = self._rows.shape[1]
            if length and self._beams > 1:
                raise Unsupported(Problem("tokens", "can be given only once to a search with beams"))
            if length and (self._batch > 1 or self._model.settings.translates):
                of_whom = "sequences of a batch" if self._batch > 1 else "texts to translate"
                raise Unsupported(
                    Problem("tokens", f"{of_whom} can be given only once", remedy="rewind_to(0) begins anew")
                )
            if length + rows.shape[1] > self._most:
                rule = f"must leave at most max_length = {self._most} tokens in all"
                raise InvalidDesc(Problem("tokens", rule, length + rows.shape[1]))
            are_tokens = np.array(
                [np.ones(len(row), bool) if self._batch == 1 else _tokens_in(row, self._pad) for row in rows]
            )
            log_tokens("append_next_tokens", rows)
            self._read([row[are].tolist() for row, are in zip(rows, are_tokens, strict=True)], length)
            self._extend(rows, are_tokens)
            self._block, self._is_unread = slice(length, length + rows.shape[1]), False

    def _extend(self, rows: Any, are_tokens: Any) -> None:
        self._rows = np.concatenate([self._rows, rows], 1)
        self._is_token = np.concatenate([self._is_token, are_tokens], 1)

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
        weights = self._adapters.weights()
        stream, self._stream = self._stream, None
        state = None
        if stream is not None and length:
            if self._model.can_shorten(stream.length, length):
                state = stream.state_before(length)
            else:
                self._discard_drafts(stream)
                rows = [[*self._rows[0, :length].tolist(), *rows[0]]]
        heard = {"audio": self._audio, "images": self._images} if state is None else {}
        log_tokens("model_input_values", rows)
        before = 0 if state is None else length
        if self._beams > 1:
            inputs = Inputs(rows, self._audio, self._images)
            self._stream = search_with_beams(self._model, inputs, self._options, weights)
        elif before + min(map(len, rows)) >= self._most:  # GenAI reads a prompt even if no token can follow
            state = self._model.start(rows, max_length=self._most, state=state, weights=weights, **heard)
            self._begin_stream(None, state, weights)
        else:
            self._begin_stream(rows, state, weights, **heard)
        log_logits(lambda: np.asarray(self._require_stream().logits))
        self._has_ended[:] = False

    def _begin_stream(self, rows: Any, state: State | None, weights: Any, **heard: Any) -> None:
        options = {**heard, **self._options, "draft": self._drafter}
        self._stream = self._model.stream(rows, block=1, state=state, weights=weights, **options)
        self._has_new_adapters = False
        if "key" in self._options:
            self._options["key"] = jax.random.split(self._options["key"])[0]

    def _discard_drafts(self, stream: Stream | None) -> None:
        if isinstance(stream, DraftStream):
            stream.discard()

    def generate_next_token(self) -> None:
        """Chooses a token for each sequence; does nothing once all have ended."""
        with refusing(LIBRARY):
            stream = self._require_stream()
            if self._has_ended.all() or (isinstance(stream, BeamStream) and stream.is_over):
                return
            if self._rows.shape[1] >= self._most:
                raise InvalidDesc(Problem((), f"the sequences have max_length = {self._most} tokens"))
            stream = self._read_last()
            next_tokens = self._next_of(stream)
            are_tokens = np.array([token is not None for token in next_tokens])
            self._next = np.array([self._pad if token is None else token for token in next_tokens], np.int32)
            log_tokens("generate_next_token", self._next)
            log_logits(lambda: np.asarray(stream.logits))
            if isinstance(stream, BeamStream):
                self._extend(np.full((self._batch, 1), self._pad), np.ones((self._batch, 1), bool))
                return
            self._has_ended |= np.isin(self._next, self._ends)
            if not self._has_ended.all():
                self._extend(self._next[:, None], are_tokens[:, None])
                self._is_unread = True
            if self._has_ended.all():
                log("hit_eos", lambda: f"{self._rows.shape[1]} tokens")
            elif self._rows.shape[1] >= self._most:
                log("hit_max_length", lambda: f"{self._most} tokens")

    def _next_of(self, stream: Stream) -> list[int | None]:
        """The next token of each sequence, None where it has ended, also if the stream began after that."""
        token = next(stream)
        tokens: list[int | None] = token if isinstance(token, list) else [token]
        if isinstance(stream, BeamStream):  # tokens of beams
            return tokens
        return [None if has_ended else token for token, has_ended in zip(tokens, self._has_ended, strict=True)]

    def _read_last(self) -> Stream:
        """The stream, once GenAI's model would have read the last token, whose logits are needed now."""
        if self._has_new_adapters:
            self._change_adapters()
        if self._is_unread:
            length = self._rows.shape[1]
            self._block, self._is_unread = slice(length - 1, length), False
        return self._require_stream()

    def _change_adapters(self) -> None:
        """Goes on with the weights of new adapters, and reads with them what GenAI's model has not read yet."""
        if self._beams > 1:
            raise Unsupported(Problem("set_active_adapter", "must come before append_tokens in a search with beams"))
        state, weights = self._require_stream().state, self._adapters.weights()
        if self._is_unread:
            lengths, is_going = np.asarray(state.lengths), ~self._has_ended
            if not all(self._model.can_shorten(length, length - 1) for length in lengths[is_going]):
                rule, remedy = "must come before append_tokens for models whose states forget no token", "rewind_to(0)"
                raise Unsupported(Problem("set_active_adapter", rule, remedy=remedy))
            rows = [row[-1:].tolist() if going else [] for row, going in zip(self._rows, is_going, strict=True)]
            state = shorten(state, lengths - is_going)
            state = self._model.start(rows, max_length=self._most, state=state, weights=weights)
        self._begin_stream(None, state, weights)

    def _require_stream(self) -> Stream:
        if self._stream is None:
            raise InvalidDesc(Problem((), "there are no tokens yet", remedy="append_tokens gives some"))
        return self._stream

    def is_done(self) -> bool:
        """Whether all sequences have ended or are as long as they may be."""
        if isinstance(self._stream, BeamStream):
            return self._stream.is_over
        return bool(self._has_ended.all()) or self._rows.shape[1] >= self._most

    def get_next_tokens(self) -> Any:
        return self._next.copy()

    def get_sequence(self, index: int) -> Any:
        with refusing(LIBRARY):
            place = integer_in("index", index, 0, self._batch * self._returned - 1)
            if not isinstance(self._stream, BeamStream):
                return self._rows[place].copy()
            row, are_tokens = self._rows[place // self._returned], self._is_token[place // self._returned]
            prompt = row[: self._block.stop]
            new = self._stream.sequences()[place][int(are_tokens[: self._block.stop].sum()) :]
            return np.array([*prompt, *new], np.int32)

    def token_count(self) -> int:
        """Counts the tokens of each sequence."""
        return int(self._rows.shape[1])

    def get_logits(self) -> Any:
        """The logits (sequences, 1, vocabulary) of the next token."""
        with refusing(LIBRARY):
            return np.array(self._read_last().logits)[:, None]

    def set_logits(self, new_logits: Any) -> None:
        """Replaces the logits of the next token."""
        with refusing(LIBRARY):
            stream, logits = self._read_last(), np.asarray(new_logits, np.float32)
            if logits.size != stream.logits.size:
                sizes = (self._batch, 1, stream.logits.shape[1])
                raise InvalidDesc(Problem("new_logits", f"must have the shape {sizes}", logits.shape))
            stream.logits = jnp.asarray(logits.reshape(stream.logits.shape))

    def get_output(self, name: str) -> Any:
        """An output of the model that decodes, for the tokens that GenAI's model reads last, as its file has it.

        These are the prompt's tokens up to the second call of `generate_next_token`, and later the token before the
        last. Tokens that fill up a prompt have zeros. All tokens are read again for it.
        """
        with refusing(LIBRARY):
            stream, decoder = self._require_stream(), self._model.decoder
            if name not in decoder.outputs:
                rule = f"must be an output of the model: {', '.join(decoder.outputs)}"
                raise InvalidDesc(Problem("name", rule, show(name)))
            if self._model.settings.translates or self._beams > 1:
                rule = f"not supported for {'searches with beams' if self._beams > 1 else 'models that translate'}"
                raise Unsupported(Problem("get_output", rule, show(name)))
            block, are_tokens = self._block, self._is_token[:, : self._block.stop]
            rows = [row[: block.stop][are].tolist() for row, are in zip(self._rows, are_tokens, strict=True)]
            weights, _ = self._model.models.call_weights(self._adapters.weights())
            output = np.array(decoder.outputs_of(weights, rows, stream.state.caches, self._images)[name])
            if name in decoder.caches.values() or output.shape[1:2] != (max(map(len, rows)),):
                return output
            of_block = np.zeros((self._batch, block.stop - block.start, *output.shape[2:]), output.dtype)
            for part, whole, are in zip(of_block, output, are_tokens, strict=True):
                places = np.cumsum(are) - 1
                part[are[block]] = whole[places[block][are[block]]]
            return of_block

    def get_speculative_stats(self) -> dict[str, Any]:
        """Counts the tokens that were drafted and accepted, and the runs of the models."""
        pending = self._stream.pending if isinstance(self._stream, DraftStream) else 0
        return statistics_of(self._drafter, pending)

    def rewind_to(self, new_length: int) -> None:
        """Forgets all but the first tokens."""
        with refusing(LIBRARY):
            length = integer_in("new_length", new_length, 0, self._rows.shape[1])
            if self._beams > 1:
                raise Unsupported(Problem("rewind_to", "not supported with beam search"))
            if length and (self._batch > 1 or self._model.settings.translates):
                of_whom = "sequences of a batch" if self._batch > 1 else "models that translate"
                raise Unsupported(Problem("new_length", f"must be 0 for {of_whom}", length))
            if self._drafter is not None and length < self._rows.shape[1]:
                self._discard_drafts(self._stream)
                self._drafter.reset()
            if not length:
                self._clear()
                return
            self._rows, self._is_token = self._rows[:, :length], self._is_token[:, :length]
            self._read(self._rows[:, -1:].tolist(), length - 1)  # the last token again, for its logits
            self._block, self._is_unread = slice(length - 1, length), False


def _tokens_in(row: Any, pad: int) -> Any:
    """Where a row has tokens, without padding at its ends; a row of padding keeps its first token."""
    places = np.flatnonzero(row != pad)
    first, last = (places[0], places[-1]) if places.size else (0, 0)
    return (np.arange(len(row)) >= first) & (np.arange(len(row)) <= last)
