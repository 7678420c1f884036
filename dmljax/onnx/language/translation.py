"""Translates: an encoder reads a whole text, and a decoder of simple recurrent units writes another, as Marian's does.

The decoder reads a token at a time. A state of each layer is all that it remembers of the earlier tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.onnx.language.generation import Decoder, NewTokens
from dmljax.onnx.language.parts import DECODER, ENCODER, FolderModels, types_of_inputs
from dmljax.onnx.language.settings import FILE, Settings
from dmljax.onnx.language.state import State, is_traced, pad_rows, place_on_mesh, round_up
from dmljax.onnx.model import loaded_graph
from dmljax.onnx.running.plan import function_of_graph

_BATCH_AXIS = 1  # of the recurrent units' states


@dataclass(frozen=True, eq=False)
class TranslationDecoder(Decoder):
    """A decoder that reads an encoder's results of the whole prompt with every token."""

    @cached_property
    def jit_begin(self) -> Any:
        return jax.jit(self.begin)

    def encode_audio(self, weights: Mapping[str, Any], audio: Any, count: int) -> dict[str, Array]:
        """No caches, because there is no audio."""
        if audio is not None:
            raise InvalidType(Problem("audio", "must be left out, because the folder's encoder reads texts"))
        return {}

    def extend(
        self,
        weights: Mapping[str, Any],
        mesh: Mesh | None,
        state: State,
        lengths: Any,
        rows: list[Any],
        max_length: int,
        images: Any = None,
    ) -> State:
        """The state after encoding the rows, each with the token that ends texts."""
        if images is not None:
            raise InvalidType(Problem("images", "must be left out, because the folder's encoder reads texts"))
        if lengths.any():
            rule = "cannot follow earlier tokens, because the encoder reads a whole text at once"
            raise Unsupported(Problem("prompts", rule, remedy="begin a new state"))
        if any(map(is_traced, rows)):
            raise Unsupported(Problem("prompts", "must be known outside of jax.jit for models that translate"))
        longest = max(map(len, rows))
        if longest > max_length:
            rule = f"must leave at most max_length = {max_length} tokens in all"
            raise InvalidDesc(Problem("prompts", rule, longest))
        end, pad = self.settings.end_tokens[0], self.settings.pad_token or 0
        size = self._size_of_texts(longest + 1)
        texts, counts = pad_rows([[*row, end] for row in rows], size)
        is_text = np.arange(size)[None] < counts[:, None]
        tokens, _ = pad_rows(rows, state.tokens.shape[1])
        begun = self.jit_begin(weights, state, np.where(is_text, texts, pad), is_text, tokens, counts - 1)
        return place_on_mesh(begun, mesh, self.batch_axes)

    def _size_of_texts(self, longest: int) -> int:
        """The size that the encoder reads: the file's, or a power of two, so that few sizes are compiled."""
        sizes = types_of_inputs(self.models.by_part[ENCODER])[self._encoder_names["input_ids"]].sizes or (None,)
        if not isinstance(sizes[-1], int):
            return round_up(longest, np.iinfo(np.int32).max)
        if longest > sizes[-1]:
            rule = f"must have at most {sizes[-1] - 1} tokens, as {self.settings.files[ENCODER].name} has it"
            raise InvalidDesc(Problem("prompts", rule, longest - 1))
        return sizes[-1]

    @property
    def _encoder_names(self) -> Mapping[str, str]:
        return self.settings.others[ENCODER].names

    def begin(self, weights: Any, state: State, texts: Array, is_text: Array, tokens: Array, lengths: Array) -> State:
        """The state after the encoder has read the texts, and the decoder the token that begins each translation."""
        names, encoder = self.settings.names, self._encoder_names
        inputs = {encoder["input_ids"]: texts, encoder["attention_mask"]: is_text}
        read = self.models.run(ENCODER, weights, _in_types(inputs, types_of_inputs(self.models.by_part[ENCODER])))
        caches = {
            **state.caches,
            names["encoder_hidden_states"]: read[encoder["encoder_outputs"]],
            names["encoder_attention_mask"]: is_text.astype(jnp.int32),
            names["past_key_values_length"]: jnp.zeros(1, jnp.int32),
        }
        starts = jnp.full((len(texts), 1), self.settings.start_token or 0, jnp.int32)
        logits, caches = self.run_decoder(weights, caches, NewTokens(starts, starts, is_text, lengths))
        return State(tokens.astype(jnp.int32), lengths, logits[:, 0], caches)

    def run_decoder(self, weights: Any, caches: Mapping[str, Array], new: NewTokens) -> tuple[Array, dict[str, Array]]:
        """The logits after a token of each row, and the states of the recurrent units with what the encoder read."""
        results = self.run_graph(weights, caches, new)
        logits = results[self.settings.names["logits"]].astype(jnp.float32)
        steps = self.settings.names["past_key_values_length"]
        changed = {past: results[present].astype(caches[past].dtype) for past, present in self.caches.items()}
        return logits[:, None], {**caches, **changed, steps: caches[steps] + 1}

    def run_graph(self, weights: Any, caches: Mapping[str, Array], new: NewTokens) -> dict[str, Any]:
        inputs = _in_types({self.settings.names["input_ids"]: new.tokens[:, 0], **caches}, self.roles)
        outputs = self.graph_function(self.models.weights_of(DECODER, weights), inputs)
        return dict(zip(self.outputs, outputs, strict=True))

    def row_axis(self, cache: str) -> int | None:
        return None if cache == self.settings.names["past_key_values_length"] else super().row_axis(cache)

    def score_tokens(
        self, weights: Any, tokens: Array, counts: Array, audio_caches: Mapping[str, Array], embeds: Array | None
    ) -> Array:
        raise Unsupported(Problem("logits", "not supported for models that translate", remedy="generate works"))


def translation_decoder_of(settings: Settings, models: FolderModels) -> TranslationDecoder:
    """Fits the decoder of a folder that translates to sequences in buffers."""
    for field, token in (("bos_token_id", settings.start_token), ("eos_token_id", settings.end_tokens or None)):
        if token is None:
            raise InvalidDesc(Problem((FILE, "model", field), "must be given for models that translate", "none"))
    model, names = models.by_part[DECODER], settings.names
    types, loaded = types_of_inputs(model), loaded_graph(model)
    states = names["rnn_states_prev"]
    function = function_of_graph(loaded, loaded.joined)
    return TranslationDecoder(
        settings=settings,
        models=models,
        graph_function=function,
        prompt_function=function,
        block_function=function,
        outputs=[output.name for output in model.outputs],
        roles=types,
        caches={states: names["rnn_states"]},
        types_of_caches={states: types[states]},
        batch_axes={states: _BATCH_AXIS},
        stacked=frozenset(),
        tables=None,
        zeros={},
        position_streams=(),
    )


def _in_types(values: Mapping[str, Array], types: Mapping[str, Any]) -> dict[str, Array]:
    """The values in the types of a model's integer inputs; floats keep theirs."""
    wanted = {name: jax.dtypes.canonicalize_dtype(types[name].dtype) for name in values}
    return {
        name: value.astype(wanted[name]) if jnp.issubdtype(wanted[name], jnp.integer) else value
        for name, value in values.items()
    }
