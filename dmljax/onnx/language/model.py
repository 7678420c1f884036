"""Language models that continue sequences of tokens, from folders in the format of ONNX Runtime GenAI.

All sequences of a batch have a row in buffers of a fixed size: their tokens, and the keys and values of each layer. A
prompt is read in one call; then one compiled loop chooses tokens until every sequence has ended.

Layers of convolutions and of linear attention have states instead, which each token changes: later tokens cannot
overwrite padding there. Models with such layers read prompts without padding, in pieces whose lengths are powers of
two.

The encoder's results for audio stand beside the caches and never change.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, within
from dmljax.foundation.checks import integer_in
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.language.parts import DECODER, ROLES, FolderModels, load_parts, missing_name, types_of_inputs
from dmljax.onnx.language.sampling import Sampling, choose_tokens, iota, numbers_of, sampling_of
from dmljax.onnx.language.settings import FILE, Search, Settings, read_settings, with_options
from dmljax.onnx.model import Model, finder_of, function_of_graph, graph_of, graph_with_layers, part_of, stored_in
from dmljax.onnx.rewrites.decoders import COUNTS, ROWS, with_counts, with_logits, with_one_table
from dmljax.onnx.rewrites.equal_layers import with_caches_numbered
from dmljax.onnx.several_models import in_floats
from dmljax.onnx.sharding import divide_along
from dmljax.text import join_words, show
from dmljax.types import FLOATS

_FEWEST = 16  # tokens that a prompt is padded to


class State(NamedTuple):
    """Sequences that a model has read, as a pytree: keep it to continue or fork a conversation."""

    tokens: Array  # (batch, room), zeros after each sequence's end
    lengths: Array  # (batch,)
    logits: Array  # (batch, vocabulary) of each sequence's next token, in float32
    caches: dict[str, Array]  # keys and values or states of each layer, and an encoder's results, by input name


def language_model(folder: str | Path, *, dtype: Any = None) -> "LanguageModel":
    """Loads a folder in the format of ONNX Runtime GenAI, as `onnxruntime_genai.models.builder` makes it.

    `dtype` converts its floats: a TPU computes with bfloat16, not with the float16 of most folders.
    """
    with within("onnx"):
        return in_floats(dtype, folder, lambda path: model_of(read_settings(path)))


def model_of(settings: Settings) -> "LanguageModel":
    """Loads the models of a folder."""
    return LanguageModel(settings, load_parts(settings))


class LanguageModel:
    """A language model: `generate` continues prompts, `stream` gives tokens as they come, `logits` scores texts.

    `settings` are the folder's, and `model` is the ONNX model that decodes. Each method takes `weights`
    with other values: trained, in another float type, or on several devices as `shard` places them.

    Some folders have several models, whose weights' names then begin with `decoder.`, `encoder.`, `embedding.` or
    `vision.`. With an encoder, as Whisper has, each method takes `audio`: an array of features, such as (sequences, mel
    bins, frames), that you compute. With a vision model it takes `images`: a mapping with the arrays of that model's
    inputs, where the prompts have tokens for their places. A `state` has heard and seen what came before.

    A first call compiles two programs: the first reads prompts, whose lengths are rounded up to a power of two, and the
    second chooses all further tokens. Calls with as many sequences and the same `max_length` use them again.
    """

    def __init__(self, settings: Settings, by_part: Mapping[str, Model]) -> None:
        model = by_part[DECODER]
        self.settings, self.model = settings, model
        types = types_of_inputs(model)
        outputs = {tensor.name: tensor for tensor in model.outputs}
        names = settings.names
        self._caches = settings.caches(types)
        if problems := [*problems_of_names(settings, types, outputs)]:
            raise InvalidDesc(*problems)
        self.models = FolderModels(settings, by_part)
        states = settings.states(types)
        self._batch_axes = {past: _batch_axis(past, types[past].sizes) for past in self._caches if past in states}
        positions = TensorType(names["position_ids"], np.dtype(np.int64), (None, None))
        graph, self._tables = with_one_table(graph_of(model), stored_in(model), names["attention_mask"], positions)
        types |= {tensor.name: tensor for tensor in graph.inputs}
        logits = with_logits(graph, stored_in(model), finder_of(model), names["logits"])
        self._run, self._run_prompt = (
            function_of_graph(model, logits.all),
            function_of_graph(model, with_counts(logits.chosen)),
        )
        self._outputs = [*outputs]
        self._roles = {role: types[names[role]] for role in ROLES if names[role] in types}
        self._types_of_caches = {past: types[past] for past in self._caches}
        sizes = self._roles["position_ids"].sizes if "position_ids" in self._roles else None
        self._position_streams = sizes[:-2] if sizes else ()  # of positions in time, height and width
        self._jit_read_block = _compiled(self._read_block, "is_first", "mesh")
        self._jit_decode = _compiled(self._decode, "form", "mesh")
        self._jit_score_tokens = jax.jit(self._score_tokens)
        self._jit_encode_audio = jax.jit(self.models.encode_audio)
        self._jit_embed_tokens = jax.jit(self.models.embed_tokens)

    def __repr__(self) -> str:
        return f"LanguageModel({', '.join(map(repr, self.models.by_part.values()))})"

    @property
    def weights(self) -> dict[str, Array]:
        """The weights of the ONNX models."""
        return self.models.weights

    def can_shorten(self, length: int, to: int) -> bool:
        """Whether caches of `length` tokens can serve for their first `to` tokens.

        They do not if layers of convolutions or of linear attention have states, from which no token can be removed,
        or if rotary angles differ for short and for long sequences.
        """
        return not self._batch_axes and self._are_long(length) == self._are_long(to)

    @property
    def equal_layers(self) -> int:
        """The number of equal layers of the model that decodes, as `Model.equal_layers` counts them."""
        return self.model.equal_layers

    def with_layers(self, count: int) -> "LanguageModel":
        """Makes a language model with only the first of the `equal_layers`, as `Model.with_layers` does."""
        with within("onnx"):
            caches = [name for role, name in self.settings.names.items() if role.startswith(("past_", "present_"))]
            graph, layers = with_caches_numbered(graph_with_layers(self.model, count), caches, self.settings.layers)
            by_part = self.models.by_part | {DECODER: part_of(self.model, graph)}
            return LanguageModel(self.settings._replace(layers=layers), by_part)

    def partition(self, mesh: Mesh | AbstractMesh, axis: str = "model") -> dict[str, PartitionSpec]:
        """Chooses how the devices along a mesh axis divide each weight, as `Model.partition` does."""
        return self.models.partition(mesh, axis)

    def shard(
        self, mesh: Mesh, specs: Mapping[str, PartitionSpec] | PartitionSpec | None = None
    ) -> dict[str, jax.Array]:
        """Places the weights on the devices of a mesh, divided by `specs`, which default to `partition`.

        With these weights, `generate` and its like divide sequences along the axis `data` of the mesh, and the heads of
        keys and values along `model`, where their numbers are divisible.
        """
        with within("onnx"):
            return self.models.shard(mesh, specs)

    def with_low_rank(self, rank: int, names: Iterable[str] | None = None, *, key: Array) -> "LanguageModel":
        """Adds products of two narrow matrices to the model's products, for LoRA, as `Model.with_low_rank` does."""
        tuned = self.model.with_low_rank(rank, names, key=key)
        return LanguageModel(self.settings, self.models.by_part | {DECODER: tuned})

    def generate(
        self,
        prompts: Any = None,
        *,
        max_length: int | None = None,
        min_length: int | None = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        no_repeat_ngram_size: int | None = None,
        key: Array | None = None,
        state: State | None = None,
        weights: Mapping[str, Any] | None = None,
        audio: Any = None,
        images: Mapping[str, Any] | None = None,
    ) -> Any:
        """Continues prompts up to an end token, or to `max_length` tokens with the prompt.

        `prompts` is a list of tokens, or a list of such lists, whose lengths may differ. The result has the same form,
        and begins with the earlier tokens. Options default to the folder's. `do_sample` draws tokens with `key`: from
        the `top_k` likeliest, and of these from the fewest whose probabilities add up to `top_p`. No token completes
        `no_repeat_ngram_size` tokens that the sequence already has in a row. `state`, from `start`, has the sequences
        that the prompts follow; it is not changed.

        Under `jax.jit`, `prompts` may be an argument: integers of the shape (tokens,) or (sequences, tokens). The
        result is then an array with `max_length` tokens of each sequence, zeros after its end.
        """
        sampling = (do_sample, temperature, top_k, top_p)
        values = (max_length, min_length, *sampling, repetition_penalty, no_repeat_ngram_size)
        options = dict(zip(Search._fields, values, strict=True))
        with within("onnx"):
            run = self._prefill(prompts, options, key, state, weights, Media(audio, images))
            return run.advance(run.search.max_length).sequences()

    def stream(self, prompts: Any = None, *, block: int = 8, **options: Any) -> "Stream":
        """Generates as `generate` does, with the same options, and gives new tokens after each `block` of them."""
        with within("onnx"):
            known = {name: options.pop(name, None) for name in ("key", "state", "weights")}
            media = Media(*(options.pop(name, None) for name in Media._fields))
            unknown = options.keys() - {*Search._fields}
            if unknown:
                names = join_words([*Search._fields, *known, *Media._fields], "or")
                rule = f"must be options of generate: {names}"
                raise InvalidType(Problem("options", rule, ", ".join(sorted(unknown))))
            run = self._prefill(prompts, options, known["key"], known["state"], known["weights"], media)
            if _is_traced(run.state.tokens):
                rule = "not supported under jax.jit and other transformations, because it gives tokens as they come"
                raise Unsupported(Problem("stream", rule, remedy="generate works there"))
            return Stream(run, integer_in("block", block, 1, 2**31 - 1))

    def start(
        self,
        prompts: Any,
        *,
        max_length: int | None = None,
        state: State | None = None,
        weights: Mapping[str, Any] | None = None,
        audio: Any = None,
        images: Mapping[str, Any] | None = None,
    ) -> State:
        """Reads prompts, with room for `max_length` tokens, after the sequences of `state` if there is one."""
        with within("onnx"):
            options, media = {"max_length": max_length}, Media(audio, images)
            return self._prefill(prompts, options, None, state, weights, media).state

    def logits(
        self,
        prompts: Any,
        *,
        weights: Mapping[str, Any] | None = None,
        audio: Any = None,
        images: Mapping[str, Any] | None = None,
    ) -> Any:
        """The logits of the token that follows each token of the prompts, as arrays (tokens, vocabulary).

        `jax.grad` differentiates them by the weights. Under `jax.jit`, `prompts` may be an argument: integers of the
        shape (tokens,) or (sequences, tokens).
        """
        with within("onnx"):
            if _is_traced(prompts):
                return self._logits_of_array(prompts, weights, Media(audio, images))
            rows, is_single = self._check_prompts(prompts, images)
            longest = max(map(len, rows))
            self._require_in_context(longest)
            tokens, counts = pad_rows(rows, round_up(longest, self.settings.context_length))
            arrays, _ = self.models.call_weights(weights)
            audio_caches = self._encode_audio(arrays, audio, len(rows))
            logits = self._jit_score_tokens(
                arrays, tokens, counts, audio_caches, self._embed_images(arrays, tokens, images)
            )
            parts = [x[:count] for x, count in zip(logits, counts.tolist(), strict=True)]
            return parts[0] if is_single else parts

    def _logits_of_array(self, prompts: Array, weights: Mapping[str, Any] | None, media: "Media") -> Array:
        tokens = _tokens_of_array(prompts, media.images)
        self._require_in_context(tokens.shape[1])
        arrays, _ = self.models.call_weights(weights)
        audio_caches = self._encode_audio(arrays, media.audio, len(tokens))
        logits: Array = self._jit_score_tokens(
            arrays, tokens, jnp.full(len(tokens), tokens.shape[1]), audio_caches, None
        )
        return logits.reshape(*prompts.shape, -1)

    def _require_in_context(self, longest: int) -> None:
        most = self.settings.context_length
        if longest > most:
            raise InvalidDesc(Problem("prompts", f"must have at most {most} tokens, the model's context", longest))

    def _prefill(
        self,
        prompts: Any,
        options: Mapping[str, Any],
        key: Array | None,
        state: State | None,
        weights: Mapping[str, Any] | None,
        media: "Media",
    ) -> "GenerationRun":
        """The prompts read, after the sequences of `state`."""
        settings = self.settings
        search = with_options(settings.search, options, settings.context_length)
        if search.do_sample and key is None:
            raise InvalidType(Problem("key", "needed for do_sample", remedy="key=jax.random.key(0)"))
        if prompts is None and state is None:
            raise InvalidType(Problem("prompts", "must be given without state"))
        arrays, mesh = self.models.call_weights(weights)
        if state is not None:
            if not isinstance(state, State):
                raise InvalidType(Problem("state", "must be a State, as start returns it", show(state)))
            lengths = _known(state.lengths)
            state = jax.tree.map(jnp.copy, state)  # its buffers are donated, and the caller keeps his
            if options.get("max_length") is None:
                search = search._replace(max_length=min(search.max_length, state.tokens.shape[1]))
        is_single = state is not None and state.tokens.shape[0] == 1
        rows: Any = []
        if _is_traced(prompts):
            rows, is_single = [*_tokens_of_array(prompts, media.images)], prompts.ndim == 1
        elif prompts is not None:
            rows, is_single = self._check_prompts(prompts, media.images)
        elif media.images is not None:
            raise InvalidType(Problem("images", "must be given with prompts, which have places for them"))
        if state is not None and media.audio is not None:
            raise InvalidType(Problem("audio", "must be left out with state, which has heard what came before"))
        if state is None:
            for i, row in enumerate(rows):
                if not len(row):
                    raise InvalidDesc(Problem(("prompts", i), "must have at least one token", "none"))
            lengths = np.zeros(len(rows), np.int32)
            state = self._empty_state(len(rows), search.max_length, arrays)
            audio_caches = self._encode_audio(arrays, media.audio, len(rows))
            state = self._place(state._replace(caches=state.caches | audio_caches), mesh)
        elif rows and _is_traced(lengths):
            rule = "must not be an argument of a transformed function if prompts follow, as its lengths decide sizes"
            raise Unsupported(Problem("state", rule, remedy="call start with these prompts outside"))
        batch, room = state.tokens.shape
        if search.max_length > room:
            raise InvalidDesc(Problem("max_length", f"must be at most {room}, the room of state", search.max_length))
        if rows and len(rows) != batch:
            raise InvalidDesc(Problem("prompts", f"must be {batch} lists of tokens, as many as state has", len(rows)))
        if rows:
            state = self._extend(arrays, mesh, state, lengths, rows, search.max_length, media.images)
        return GenerationRun(self, arrays, mesh, state, search, is_single, key)

    def _check_prompts(self, prompts: Any, images: Any) -> tuple[list[list[int]], bool]:
        """The prompts as lists of tokens; the places of images may be negative."""
        return rows_of_prompts(prompts, self.settings.vocabulary, 0 if images is None else np.iinfo(np.int32).min)

    def _encode_audio(self, weights: Mapping[str, Any], audio: Any, count: int) -> dict[str, Array]:
        """The encoder's results for the audio of `count` sequences, as the decoder reads them."""
        features = self.models.check_audio(audio, count, self.models.float_type(weights))
        return {} if features is None else self._jit_encode_audio(weights, features)

    def _embed_images(self, weights: Mapping[str, Any], tokens: Any, images: Any) -> Array | None:
        """The rows of tokens with the features of images; None without images."""
        if images is not None and self._position_streams:
            rule = "not supported for models with positions in time, height and width"
            raise Unsupported(Problem("images", rule, self._roles["position_ids"]))
        if images is not None and self._tables is not None:  # tokens that are read again would need all earlier images
            raise Unsupported(Problem("images", "not supported for models with other rotary angles for long sequences"))
        features = self.models.encode_images(weights, images, self.models.float_type(weights))
        if features is None:
            return None
        places = int(np.sum((tokens < 0) | (tokens == self.settings.image_token)))
        count = int(np.prod(features.shape[:-1]))
        if places != count and (places or self.settings.image_token is not None):
            rule = f"must have {count} tokens in the places of images, which have as many features"
            raise InvalidDesc(Problem("prompts", rule, places))
        embeds: Array = self._jit_embed_tokens(weights, tokens, features)
        return embeds

    def _extend(
        self,
        weights: Mapping[str, Any],
        mesh: Mesh | None,
        state: State,
        lengths: Any,
        rows: list[Any],
        max_length: int,
        images: Any = None,
    ) -> State:
        """The state, whose sequences have `lengths`, after reading the rows: lists or arrays of tokens."""
        counts = np.array([len(row) for row in rows], np.int32)
        ends = lengths + counts
        if max(ends) > max_length:
            rule = f"must leave at most max_length = {max_length} tokens in all"
            raise InvalidDesc(Problem("prompts", rule, int(max(ends))))
        embeds = self._embed_images(weights, pad_rows(rows, round_up(max(map(len, rows)), max_length))[0], images)
        if lengths.any() and self._become_long(lengths, ends):
            state, rows = self._rewind(state, lengths, rows)
            lengths = np.zeros_like(lengths)
        before = lengths
        while any(len(row) for row in rows):
            is_first = not lengths.any()
            if self._batch_axes:
                longest_read = min(map(len, rows)) if is_first else max(map(len, rows))
                size = 1 << (longest_read.bit_length() - 1)
                parts = [row[:size] if len(row) >= size else [] for row in rows]
            else:
                size = round_up(max(map(len, rows)), max_length)
                parts = [row[:size] for row in rows]
            tokens, counts = pad_rows(parts, size)
            piece = None
            if embeds is not None:
                places = (lengths - before)[:, None] + np.arange(size)[None]
                piece = jnp.take_along_axis(embeds, places[..., None], axis=1, mode="clip")
            state = self._jit_read_block(weights, state, tokens, counts, ends, piece, is_first=is_first, mesh=mesh)
            lengths, rows = lengths + counts, [row[count:] for row, count in zip(rows, counts, strict=True)]
        return state

    def _are_long(self, lengths: Any) -> Any:
        """Whether sequences are so long that a model has other rotary angles for all of their tokens."""
        return lengths > (2**31 - 1 if self._tables is None else self._tables.most)

    def _become_long(self, before: Any, after: Any) -> bool:
        return self._tables is not None and bool(np.any(self._are_long(np.asarray(after)) & ~self._are_long(before)))

    def _steps_until_long(self, lengths: Any) -> int | None:
        """The tokens until the first of the sequences becomes long; None if none can."""
        short = lengths[~self._are_long(lengths)]
        return None if self._tables is None or not short.size else self._tables.most + 1 - int(max(short))

    def _require_short(self, length: int) -> None:
        """Refuses sequences that may become long while they are traced, as all of their tokens are then read again."""
        if self._tables is not None and length > self._tables.most:
            rule = (
                f"must be at most {self._tables.most} under jax.jit, because longer sequences have other rotary angles"
            )
            raise Unsupported(Problem("max_length", rule, length))

    def _rewind(self, state: State, lengths: Any, rows: Any) -> tuple[State, list[list[int]]]:
        """The state before its first token, and all of its tokens with the rows after them, to be read again."""
        known = zip(np.asarray(state.tokens), lengths, rows, strict=True)
        whole = [[*tokens[:length].tolist(), *row] for tokens, length, row in known]
        states = {name: jnp.zeros_like(state.caches[name]) for name in self._batch_axes}
        return state._replace(lengths=jnp.zeros_like(state.lengths), caches=state.caches | states), whole

    def _empty_state(self, batch: int, room: int, weights: Mapping[str, Any]) -> State:
        settings = self.settings
        shape = (batch, settings.key_heads, room, settings.head_size)
        other = self.models.float_type(weights)

        def empty_cache(name: str, cache_type: TensorType) -> Array:
            sizes = [size if isinstance(size, int) else batch for size in cache_type.sizes or ()]
            dtype = cache_type.dtype if other is None or cache_type.dtype not in FLOATS else other
            return jnp.zeros(sizes if name in self._batch_axes else shape, dtype)

        return State(
            jnp.zeros((batch, room), jnp.int32),
            jnp.zeros(batch, jnp.int32),
            jnp.zeros((batch, settings.vocabulary), jnp.float32),
            {name: empty_cache(name, cache_type) for name, cache_type in self._types_of_caches.items()},
        )

    def _place(self, state: State, mesh: Mesh | None) -> State:
        """The state on a mesh: sequences along its axis `data`, and heads of keys and values along `model`."""
        if mesh is None:
            return state

        def axes_of(name: str, dimensions: int) -> tuple[str | None, ...]:
            has_heads = name not in self._batch_axes and dimensions == 4
            return ("data", "model") if has_heads else (*[None] * self._batch_axes.get(name, 0), "data")

        caches = {name: divide_along(mesh, x, axes_of(name, x.ndim)) for name, x in state.caches.items()}
        tokens, lengths, logits = (divide_along(mesh, x, ("data",)) for x in state[:3])
        return State(tokens, lengths, logits, caches)

    def _run_decoder(
        self,
        weights: Any,
        caches: Mapping[str, Array],
        tokens: Array,
        places: Array,
        mask: Array,
        ends: Array,
        counts: Array | None = None,
        embeds: Array | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """The logits of all tokens, or only of the last of each row's first `counts`, and the caches.

        The rows have `ends` tokens once all are read; `embeds` replaces the embedding's rows.
        """
        if self._tables is not None:
            places = places + jnp.where(self._are_long(ends), self._tables.short, 0)[:, None]
        places = jnp.broadcast_to(places, (*self._position_streams, *places.shape))
        values = {"input_ids": tokens, "attention_mask": mask, "position_ids": places}
        if "inputs_embeds" in self._roles:
            if embeds is None:
                embeds = self.models.embed_tokens(weights, tokens, dtype=self.models.float_type(weights))
            values["inputs_embeds"] = embeds
        inputs = {
            tensor.name: values[role]
            if tensor.dtype in FLOATS
            else values[role].astype(jax.dtypes.canonicalize_dtype(tensor.dtype))
            for role, tensor in self._roles.items()
        }
        inputs |= caches
        of_decoder = self.models.weights_of(DECODER, weights)
        if counts is None:
            outputs = self._run(of_decoder, inputs)
        else:
            last = jnp.maximum(counts - 1, 0)[:, None, None]
            outputs = self._run_prompt(of_decoder, {**inputs, ROWS: last, COUNTS: counts})
        results: dict[str, Any] = dict(zip(self._outputs, outputs, strict=True))
        logits = results[self.settings.names["logits"]].astype(jnp.float32)
        presents = {past: results[present].astype(caches[past].dtype) for past, present in self._caches.items()}
        return logits, {**caches, **presents}

    def _restore_inactive(
        self, old: State, logits: Array, caches: dict[str, Array], is_read: Array
    ) -> tuple[Array, dict[str, Array]]:
        """The logits and states of the rows that read a token; other rows keep theirs."""

        def select_rows(x: Array, before: Array, axis: int) -> Array:
            return jnp.where(jnp.expand_dims(is_read, [i for i in range(x.ndim) if i != axis]), x, before)

        states = {name: select_rows(caches[name], old.caches[name], axis) for name, axis in self._batch_axes.items()}
        return select_rows(logits, old.logits, 0), caches | states

    def _read_block(
        self,
        weights: Any,
        state: State,
        tokens: Array,
        counts: Array,
        ends: Array,
        embeds: Array | None = None,
        *,
        is_first: bool,
        mesh: Mesh | None = None,
    ) -> State:
        """The state after reading `counts` tokens of each row, of the `ends` that they will have."""
        (batch, size), room = tokens.shape, state.tokens.shape[1]
        places = state.lengths[:, None] + iota(size)[None]
        # A mask that is as long as the tokens tells the model that nothing came before.
        mask = places < counts[:, None] if is_first else iota(room)[None] < (state.lengths + counts)[:, None]
        logits, caches = self._run_decoder(weights, state.caches, tokens, places, mask, ends, counts, embeds)
        written = state.tokens.at[iota(batch)[:, None], places].set(tokens, mode="drop")
        read = State(written, state.lengths + counts, *self._restore_inactive(state, logits[:, 0], caches, counts > 0))
        return self._place(read, mesh)

    def _decode(
        self,
        weights: Any,
        state: State,
        is_over: Array,
        key: Any,
        max_steps: Array,
        numbers: Any,
        *,
        form: Sampling,
        mesh: Mesh | None,
    ) -> "Progress":
        """The state after choosing at most `max_steps` tokens for each sequence, and which sequences are over."""

        def is_going(carried: Any) -> Any:
            count, (_, is_over, _) = carried
            return (count < max_steps) & ~jnp.all(is_over)

        def step(carried: Any) -> Any:
            count, progress = carried
            state, *rest = self._decode_step(weights, progress, numbers, form=form)
            return count + 1, (self._place(state, mesh), *rest)

        progress: Progress = state, is_over, key
        _, progress = lax.while_loop(is_going, step, (jnp.int32(0), progress))
        return progress

    def _decode_step(self, weights: Any, progress: "Progress", numbers: Any, *, form: Sampling) -> "Progress":
        """The progress after choosing a token for each sequence that is not over."""
        state, is_over, key = progress
        batch, room = state.tokens.shape
        rows, ends = iota(batch), jnp.array(self.settings.end_tokens, jnp.int32)
        step_key = key
        if key is not None:
            key, step_key = jax.random.split(key)
        chosen = choose_tokens(state.logits, state.tokens, state.lengths, form, numbers, ends, step_key)
        tokens = state.tokens.at[rows, jnp.where(is_over, room, state.lengths)].set(chosen, mode="drop")
        lengths = state.lengths + (~is_over).astype(jnp.int32)
        is_read = ~is_over
        is_over |= jnp.any(chosen[:, None] == ends[None], 1) | (lengths >= numbers["max_length"])
        # A sequence that is over reads its last token again, which changes nothing that is kept.
        last = lengths - 1
        mask = iota(room)[None] < lengths[:, None]
        logits, caches = self._run_decoder(
            weights, state.caches, tokens[rows, last][:, None], last[:, None], mask, lengths
        )
        return State(tokens, lengths, *self._restore_inactive(state, logits[:, -1], caches, is_read)), is_over, key

    def _score_tokens(
        self, weights: Any, tokens: Array, counts: Array, audio_caches: Mapping[str, Array], embeds: Array | None
    ) -> Array:
        places = jnp.broadcast_to(iota(tokens.shape[1])[None], tokens.shape)
        caches = {**self._empty_state(len(tokens), 0, weights).caches, **audio_caches}
        return self._run_decoder(weights, caches, tokens, places, places < counts[:, None], counts, embeds=embeds)[0]


class Media(NamedTuple):
    """The audio and the images of a call."""

    audio: Any = None
    images: Any = None


Progress = tuple[State, Array, Any]  # the state, which sequences are over, and the random key


class GenerationRun(NamedTuple):
    """A generation: its sequences so far, and the arguments of the next steps."""

    model: LanguageModel
    weights: Mapping[str, Any]
    mesh: Mesh | None
    state: State
    search: Search
    is_single: bool
    key: Any
    over: Any = None  # which sequences are over

    @property
    def is_over(self) -> bool:
        return self.over is not None and bool(np.all(self.over))

    def advance(self, max_steps: int) -> "GenerationRun":
        """The run after at most `max_steps` more tokens of each sequence."""
        model, before = self.model, _known(self.state.lengths)
        over = before >= self.search.max_length if self.over is None else self.over
        steps = max_steps if _is_traced(before) else min(max_steps, model._steps_until_long(before[~over]) or max_steps)
        run = self.decode(over, steps)
        if _is_traced(run.state.lengths):
            model._require_short(self.search.max_length)
            return run
        if model._become_long(before, run.state.lengths):
            state, rows = model._rewind(run.state, np.asarray(run.state.lengths), [[]] * len(before))
            state = model._extend(self.weights, self.mesh, state, np.zeros_like(before), rows, state.tokens.shape[1])
            run = run._replace(state=state)
        return run if steps == max_steps or run.is_over else run.advance(max_steps - steps)

    def decode(self, over: Any, max_steps: int) -> "GenerationRun":
        key = self.key if self.search.do_sample else None
        numbers, form = numbers_of(self.search), sampling_of(self.search)
        state, over, key = self.model._jit_decode(
            self.weights, self.state, over, key, np.int32(max_steps), numbers, form=form, mesh=self.mesh
        )
        return self._replace(state=state, over=_known(over), key=key)

    def sequences(self) -> Any:
        if _is_traced(self.state.tokens):
            most = self.state.tokens[:, : self.search.max_length]
            return most[0] if self.is_single else most
        tokens, lengths = np.asarray(self.state.tokens), np.asarray(self.state.lengths)
        rows = [row[:length].tolist() for row, length in zip(tokens, lengths, strict=True)]
        return rows[0] if self.is_single else rows


class GenerationProgram(NamedTuple):
    """A program of a generation: a function of weights and `inputs`, which updates the first input in place."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]  # their types


def generation_programs(
    model: LanguageModel, batch: int, prompt: int, room: int
) -> tuple[GenerationProgram, GenerationProgram]:
    """The programs of a generation with the folder's search: reading `prompt` tokens, and a step of the loop.

    The first includes an encoder, if there is one, and then also takes audio.
    """

    def integers(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.int32)

    search, weights = model.settings.search, model.weights
    state = jax.eval_shape(lambda: model._empty_state(batch, room, weights))
    prompts: tuple[Any, ...] = integers(batch, round_up(prompt, room)), integers(batch), integers(batch)
    reading = functools.partial(model._read_block, is_first=True)
    if "encoder" in model.settings.others:
        audio = model.models.type_of_audio(batch, model.models.float_type(weights))
        state = state._replace(caches=state.caches | jax.eval_shape(model.models.encode_audio, weights, audio))
        prompts, reading = (*prompts, audio), functools.partial(_encode_and_prefill, model)
    key = jax.eval_shape(lambda: jax.random.key(0)) if search.do_sample else None
    progress = state, jax.ShapeDtypeStruct((batch,), jnp.bool_), key
    numbers = jax.tree.map(lambda number: jax.ShapeDtypeStruct((), number.dtype), numbers_of(search))
    step = functools.partial(model._decode_step, form=sampling_of(search))
    return GenerationProgram(reading, (state, *prompts)), GenerationProgram(step, (progress, numbers))


def _encode_and_prefill(
    model: LanguageModel, weights: Any, state: State, tokens: Array, counts: Array, ends: Array, audio: Array
) -> State:
    audio_caches = model.models.encode_audio(weights, audio)
    return model._read_block(
        weights, state._replace(caches=state.caches | audio_caches), tokens, counts, ends, is_first=True
    )


class Stream(Iterator[Any]):
    """New tokens as they come: a token for a single prompt; for several, a list with None where a sequence is over."""

    def __init__(self, run: GenerationRun, block: int) -> None:
        self._run, self._block = run, block
        self._waiting: deque[list[Any]] = deque()

    def __next__(self) -> Any:
        while not self._waiting:
            if self._run.is_over:
                raise StopIteration
            before = np.asarray(self._run.state.lengths)
            self._run = self._run.advance(self._block)
            self._waiting.extend(new_tokens(self._run.state, before))
        row = self._waiting.popleft()
        return row[0] if self._run.is_single else row

    @property
    def logits(self) -> Array:
        """The logits (sequences, vocabulary) of the token that comes next."""
        return self._run.state.logits

    @property
    def state(self) -> State:
        """The sequences with all tokens so far, to continue them later."""
        kept: State = jax.tree.map(jnp.copy, self._run.state)  # the next tokens take the memory of the run's own
        return kept


def new_tokens(state: State, before: Any) -> Iterator[list[int | None]]:
    """The new tokens of all sequences, step by step, since they had the lengths `before`."""
    tokens, lengths = np.asarray(state.tokens), np.asarray(state.lengths)
    for step in range(max(lengths - before)):
        places = enumerate(before + step)
        yield [int(tokens[row, place]) if place < lengths[row] else None for row, place in places]


def problems_of_names(
    settings: Settings, inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]
) -> Iterator[Problem]:
    """Lists names in the settings that a model does not have, and sizes that differ from the model's."""
    names, caches, states = settings.names, settings.caches(inputs), settings.states(inputs)
    used = {*caches, *caches.values()}
    reads = "inputs_embeds" if "embedding" in settings.others else "input_ids"
    sides = {"inputs": ("past", inputs, [reads, "attention_mask"]), "outputs": ("present", outputs, ["logits"])}
    for side, (past, known, roles) in sides.items():
        for role in (*roles, *(f"{past}_{cache}_names" for cache in ("key", "value", "conv", "recurrent"))):
            of_layers = (name for i in range(settings.layers) if (name := names[role] % i) in used)
            wanted = of_layers if role.endswith("_names") else [names[role]]
            missing = next((name for name in wanted if name not in known), None)
            if missing is not None:
                yield missing_name(settings, (DECODER, side, role), missing, known)
    fields = [("model", "vocab_size", settings.vocabulary, outputs.get(names["logits"]), -1)]
    for name in (name for name in caches if name not in states):
        fields.append(("decoder", "num_key_value_heads", settings.key_heads, inputs.get(name), 1))
        fields.append(("decoder", "head_size", settings.head_size, inputs.get(name), 3))
    reported = set()
    for part, field, declared, tensor, axis in fields:
        size = tensor.sizes[axis] if tensor is not None and tensor.sizes else None
        if isinstance(size, int) and size != declared and field not in reported:
            reported.add(field)
            yield Problem(
                (FILE, *dict.fromkeys(("model", part)), field), f"must be {size}, as {tensor} has it", declared
            )


def _batch_axis(name: str, sizes: Sequence[int | str | None] | None) -> int:
    """The axis of a state's batch, which is the only open axis."""
    is_open = [not isinstance(size, int) for size in sizes or ()]
    if sum(is_open) != 1:
        raise InvalidDesc(Problem(name, "must have sizes of which only the batch is open", show(sizes)))
    return is_open.index(True)


def rows_of_prompts(prompts: Any, vocabulary: int, lowest: int) -> tuple[list[list[int]], bool]:
    """The prompts as lists of tokens, and whether there is a single prompt, without a list around it."""
    nested = prompts.tolist() if isinstance(prompts, np.ndarray | jax.Array) else prompts
    wanted = "must be a list of tokens, or a list of such lists"
    if not isinstance(nested, Sequence) or isinstance(nested, str) or len(nested) == 0:
        raise InvalidType(Problem("prompts", wanted, show(nested)))
    is_single = not isinstance(nested[0], Sequence)
    rows = [list(row) if isinstance(row, Sequence) else row for row in ([nested] if is_single else nested)]
    for i, row in enumerate(rows):
        if not isinstance(row, list) or not all(isinstance(token, int | np.integer) for token in row):
            raise InvalidType(Problem(("prompts", i), wanted, show(row)))
        for token in row:
            if not lowest <= token < vocabulary:
                rule = f"must have tokens from 0 to {vocabulary - 1}, the model's vocabulary"
                raise InvalidDesc(Problem(("prompts", i), rule, token))
    return [[int(token) for token in row] for row in rows], is_single


def _tokens_of_array(prompts: Array, images: Any) -> Array:
    """Prompts that are an argument of a transformed function, as an array of two dimensions."""
    if prompts.ndim not in (1, 2) or not jnp.issubdtype(prompts.dtype, jnp.integer) or not prompts.size:
        rule = "must be integers of the shape (tokens,) or (sequences, tokens)"
        raise InvalidType(Problem("prompts", rule, f"{prompts.dtype} of {prompts.shape}"))
    if images is not None:
        raise Unsupported(Problem("images", "not supported with an array of tokens under jax.jit"))
    return jnp.atleast_2d(prompts).astype(jnp.int32)


def _compiled(function: Callable[..., Any], *static: str) -> Callable[..., Any]:
    """Compiles a function of weights and a state, which it updates in place unless it is transformed."""
    donating = jax.jit(function, donate_argnums=1, static_argnames=static)
    transformed = jax.jit(function, static_argnames=static)

    def call(*arguments: Any, **options: Any) -> Any:
        is_traced = any(map(_is_traced, jax.tree.leaves((arguments, options))))
        return (transformed if is_traced else donating)(*arguments, **options)

    return call


def _is_traced(value: Any) -> bool:
    return isinstance(value, jax.core.Tracer)


def _known(value: Any) -> Any:
    """The array in NumPy, unless it is traced."""
    return value if _is_traced(value) else np.asarray(value)


def round_up(count: int, limit: int) -> int:
    """A power of two that holds `count` tokens, so that few lengths are compiled."""
    return min(max(_FEWEST, 1 << max(count - 1, 0).bit_length()), limit)


def pad_rows(rows: Any, size: int) -> tuple[Any, Any]:
    """The rows in one array with zeros after their ends, and their lengths."""
    if any(map(_is_traced, rows)):  # of equal lengths
        stacked = jnp.pad(jnp.stack(rows), ((0, 0), (0, size - rows[0].shape[0])))
        return stacked, np.full(len(rows), rows[0].shape[0], np.int32)
    tokens = np.zeros((len(rows), size), np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
    return tokens, np.array([len(row) for row in rows], np.int32)
