"""Generates tokens: a prompt is read in one call, and one compiled loop chooses tokens until every sequence has ended.

Layers of convolutions and of linear attention have states that each token changes: later tokens cannot overwrite
padding there. Models with such layers read prompts without padding, in pieces whose lengths are powers of two.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.foundation.programs.compiling import Program
from dmljax.foundation.programs.progress import listen, report
from dmljax.foundation.programs.store import digest_of
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.language.acceptance import Drafts, Verdict, draw_draft, judge_drafts
from dmljax.onnx.language.beams import Beams, finish, first_beams, grow, over_rows
from dmljax.onnx.language.parts import (
    DECODER,
    ROLES,
    FolderModels,
    require_appending_attention,
    types_of_inputs,
    zero_inputs,
)
from dmljax.onnx.language.sampling import Sampling, Search, choose_tokens, numbers_of, sampling_of
from dmljax.onnx.language.settings import Settings
from dmljax.onnx.language.state import (
    State,
    append_stacked,
    batch_axis,
    empty_state,
    iota,
    is_traced,
    mask_after_buffer,
    pad_rows,
    place_on_mesh,
    restore_inactive,
    rewind,
    round_up,
    shorten,
    to_numpy,
)
from dmljax.onnx.model import loaded_graph
from dmljax.onnx.rewrites.decoders import (
    COUNTS,
    ROWS,
    Tables,
    with_counted_tokens,
    with_counts,
    with_logits,
    with_one_table,
)
from dmljax.onnx.running.plan import function_of_graph
from dmljax.types import FLOATS

GraphFunction = Callable[[Mapping[str, Array], Mapping[str, Any]], Sequence[Any]]
_TOKENS, _STACKED_TOKENS = 2, 3  # the axis of tokens in a cache
Progress = tuple[State, Array, Any]  # the state, which sequences are over, and the random key


class Inputs(NamedTuple):
    """The prompts of a call, with their audio and images."""

    prompts: Any = None
    audio: Any = None
    images: Mapping[str, Any] | None = None


class NewTokens(NamedTuple):
    """Tokens that a decoder reads after those in its caches: a row for each sequence."""

    tokens: Array
    positions: Array
    mask: Array  # of all tokens that the new ones may see
    ends: Array  # how many tokens the sequences have after these
    counts: Array | None = None  # how many of each row are tokens
    embeds: Array | None = None  # rows in place of the embedding's
    of_last: bool = True  # whether the decoder gives only the logits of the last of the counted tokens


@dataclass(frozen=True, eq=False)
class Decoder:
    """A folder's decoder in the buffers of a state, and the models that work for it."""

    settings: Settings
    models: FolderModels
    graph_function: GraphFunction  # of weights and inputs; gives the logits of all tokens
    prompt_function: GraphFunction  # gives the logits of one token of each sequence
    block_function: GraphFunction  # gives the logits of all tokens, of which the last may be padding
    outputs: Sequence[str]
    roles: Mapping[str, TensorType]  # of the inputs besides caches
    caches: Mapping[str, str]  # the inputs that keep what was read, with the outputs that follow them
    types_of_caches: Mapping[str, TensorType]
    batch_axes: Mapping[str, int]  # of states, which each token changes; other caches are keys and values
    stacked: frozenset[str]  # the caches that have a layer's keys and values in one array
    tables: Tables | None  # of rotary angles, if there are others for long sequences
    zeros: Mapping[str, Any]  # inputs that are always 0
    position_streams: tuple[Any, ...]  # the sizes of positions in time, height and width

    @cached_property
    def digest(self) -> str:
        """A digest of the folder's settings and models, but not of the weights' numbers."""
        return digest_of(repr(self.settings), self.models.digest)

    @cached_property
    def jit_read_block(self) -> Callable[..., Any]:
        return _jit_in_place(self, self.read_block, ("is_first", "mesh"), "the prompt", 1)

    @cached_property
    def jit_decode(self) -> Callable[..., Any]:
        return _jit_in_place(self, self.decode, ("form", "mesh"), "the decoder", 2)

    @cached_property
    def jit_search(self) -> Callable[..., Any]:
        return _jit_in_place(self, self.search, ("form", "mesh"), "the decoder", 2)

    @cached_property
    def jit_widen(self) -> Callable[..., Any]:
        return jax.jit(self.widen, static_argnums=1)

    @cached_property
    def jit_verify(self) -> Callable[..., Any]:
        return _jit_in_place(self, self.verify, ("form", "mesh"), "the drafts' verification", 1)

    @cached_property
    def jit_draft(self) -> Callable[..., Any]:
        return _jit_in_place(self, self.draft, ("form", "most"), "the drafts", 2)

    @cached_property
    def jit_score_tokens(self) -> Callable[..., Any]:
        return Program(self.score_tokens, "the decoder", source=lambda: self.digest)

    @cached_property
    def jit_read_anew(self) -> Callable[..., Any]:
        return jax.jit(self.read_anew)

    @cached_property
    def jit_encode_audio(self) -> Callable[..., Any]:
        return Program(self.models.encode_audio, "the encoder", source=lambda: self.digest)

    @cached_property
    def jit_embed_tokens(self) -> Callable[..., Any]:
        return Program(self.models.embed_tokens, "the embedding", source=lambda: self.digest)

    def empty_state(self, batch: int, room: int, weights: Mapping[str, Any]) -> State:
        """The state of sequences without tokens, with room for `room` tokens of each."""
        settings, float_type = self.settings, self.models.float_type(weights)
        shape = (batch, settings.key_heads, room, settings.head_size)

        def type_of_cache(name: str, cache_type: TensorType) -> jax.ShapeDtypeStruct:
            sizes = (size if isinstance(size, int) else batch for size in cache_type.sizes or ())
            dtype = cache_type.dtype if float_type is None or cache_type.dtype not in FLOATS else float_type
            of_cache = (2, *shape) if name in self.stacked else shape
            return jax.ShapeDtypeStruct((*sizes,) if name in self.batch_axes else of_cache, dtype)

        types = {name: type_of_cache(name, cache_type) for name, cache_type in self.types_of_caches.items()}
        return empty_state(batch, room, settings.vocabulary, types)

    def encode_audio(self, weights: Mapping[str, Any], audio: Any, count: int) -> dict[str, Array]:
        """The encoder's results for the audio of `count` sequences, as the decoder reads them."""
        features = self.models.check_audio(audio, count, self.models.float_type(weights))
        return {} if features is None else self.jit_encode_audio(weights, features)

    def embed_images(self, weights: Mapping[str, Any], tokens: Any, images: Any) -> Array | None:
        """The rows of tokens with the features of images; None without images."""
        if images is not None and self.position_streams:
            rule = "not supported for models with positions in time, height and width"
            raise Unsupported(Problem("images", rule, self.roles["position_ids"]))
        if images is not None and self.tables is not None:  # tokens that are read again would need all earlier images
            raise Unsupported(Problem("images", "not supported for models with other rotary angles for long sequences"))
        features = self.models.encode_images(weights, images, self.models.float_type(weights))
        if features is None:
            return None
        places = int(np.sum((tokens < 0) | (tokens == self.settings.image_token)))
        count = int(np.prod(features.shape[:-1]))
        if places != count and (places or self.settings.image_token is not None):
            rule = f"must have {count} tokens in the places of images, which have as many features"
            raise InvalidDesc(Problem("prompts", rule, places))
        embeds: Array = self.jit_embed_tokens(weights, tokens, features)
        return embeds

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
        """The state, whose sequences have `lengths`, after reading the rows: lists or arrays of tokens."""
        counts = np.array([len(row) for row in rows], np.int32)
        ends = lengths + counts
        if max(ends) > max_length:
            rule = f"must leave at most max_length = {max_length} tokens in all"
            raise InvalidDesc(Problem("prompts", rule, int(max(ends))))
        embeds = self.embed_images(weights, pad_rows(rows, round_up(max(map(len, rows)), max_length))[0], images)
        if lengths.any() and self.become_long(lengths, ends):
            state, rows = rewind(state, lengths, rows, self.batch_axes)
            lengths = np.zeros_like(lengths)
        before = lengths
        while any(len(row) for row in rows):
            is_first = not lengths.any()
            if self.batch_axes:
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
            report("reading the prompt", int(max(lengths)), int(max(ends)), "token")
            state = self.jit_read_block(weights, state, tokens, counts, ends, piece, is_first=is_first, mesh=mesh)
            lengths, rows = lengths + counts, [row[count:] for row, count in zip(rows, counts, strict=True)]
        return state

    def are_long(self, lengths: Any) -> Any:
        """Whether sequences are so long that a model has other rotary angles for all of their tokens."""
        return lengths > (2**31 - 1 if self.tables is None else self.tables.most)

    def become_long(self, before: Any, after: Any) -> bool:
        return self.tables is not None and bool(np.any(self.are_long(np.asarray(after)) & ~self.are_long(before)))

    def steps_until_long(self, lengths: Any) -> int | None:
        """The tokens until the first of the sequences becomes long; None if none can."""
        short = lengths[~self.are_long(lengths)]
        return None if self.tables is None or not short.size else self.tables.most + 1 - int(max(short))

    def require_short(self, length: int) -> None:
        """Raises if traced sequences may become long, as all of their tokens are then read again."""
        if self.tables is not None and length > self.tables.most:
            rule = (
                f"must be at most {self.tables.most} under jax.jit, because longer sequences have other rotary angles"
            )
            raise Unsupported(Problem("max_length", rule, length))

    def run_decoder(self, weights: Any, caches: Mapping[str, Array], new: NewTokens) -> tuple[Array, dict[str, Array]]:
        """The logits of new tokens, and the caches."""
        results = self.run_graph(weights, caches, new)
        logits = results[self.settings.names["logits"]].astype(jnp.float32)
        presents = {past: results[present].astype(caches[past].dtype) for past, present in self.caches.items()}
        presents |= {past: append_stacked(caches[past], presents[past], new.positions) for past in self.stacked}
        return logits, {**caches, **presents}

    def run_graph(self, weights: Any, caches: Mapping[str, Array], new: NewTokens) -> dict[str, Any]:
        """The outputs of the graph for new tokens, by name."""
        positions, mask, embeds = new.positions, new.mask, new.embeds
        if self.stacked:
            room = next(caches[past].shape[-2] for past in self.stacked)
            mask, before = mask_after_buffer(mask, positions, room)
            caches = {name: x[..., :before, :] if name in self.stacked else x for name, x in caches.items()}
        if self.tables is not None:
            positions = positions + jnp.where(self.are_long(new.ends), self.tables.short, 0)[:, None]
        positions = jnp.broadcast_to(positions, (*self.position_streams, *positions.shape))
        values = {"input_ids": new.tokens, "attention_mask": mask, "position_ids": positions}
        if "inputs_embeds" in self.roles:
            if embeds is None:
                embeds = self.models.embed_tokens(weights, new.tokens, dtype=self.models.float_type(weights))
            values["inputs_embeds"] = embeds
        inputs = {
            tensor.name: values[role]
            if tensor.dtype in FLOATS
            else values[role].astype(jax.dtypes.canonicalize_dtype(tensor.dtype))
            for role, tensor in self.roles.items()
        }
        inputs |= {**caches, **self.zeros}
        decoder_weights = self.models.weights_of(DECODER, weights)
        if new.counts is None:
            outputs = self.graph_function(decoder_weights, inputs)
        elif not new.of_last:
            outputs = self.block_function(decoder_weights, {**inputs, COUNTS: new.counts})
        else:
            last = jnp.maximum(new.counts - 1, 0)[:, None, None]
            outputs = self.prompt_function(decoder_weights, {**inputs, ROWS: last, COUNTS: new.counts})
        return dict(zip(self.outputs, outputs, strict=True))

    def read_block(
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
        new = NewTokens(tokens, places, mask, ends, counts, embeds)
        logits, caches = self.run_decoder(weights, state.caches, new)
        written = state.tokens.at[iota(batch)[:, None], places].set(tokens, mode="drop")
        read = State(
            written, state.lengths + counts, *restore_inactive(state, logits[:, 0], caches, counts > 0, self.batch_axes)
        )
        return place_on_mesh(read, mesh, self.batch_axes)

    def decode(
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
    ) -> Progress:
        """The state after choosing at most `max_steps` tokens for each sequence, and which sequences are over."""

        def is_going(carried: Any) -> Any:
            count, (_, is_over, _) = carried
            return (count < max_steps) & ~jnp.all(is_over)

        def step(carried: Any) -> Any:
            count, progress = carried
            state, *rest = self.decode_step(weights, progress, numbers, form=form)
            return count + 1, (place_on_mesh(state, mesh, self.batch_axes), *rest)

        progress: Progress = state, is_over, key
        _, progress = lax.while_loop(is_going, step, (jnp.int32(0), progress))
        return progress

    def decode_step(self, weights: Any, progress: Progress, numbers: Any, *, form: Sampling) -> Progress:
        """The progress after choosing a token for each sequence that is not over."""
        state, is_over, key = progress
        step_key = key
        if key is not None:
            key, step_key = jax.random.split(key)
        chosen = choose_tokens(state.logits, state.tokens, state.lengths, form, numbers, self._end_tokens, step_key)
        state = self.append_tokens(weights, state, chosen, ~is_over)
        is_over |= jnp.any(chosen[:, None] == self._end_tokens[None], 1) | (state.lengths >= numbers["max_length"])
        return state, is_over, key

    def append_tokens(self, weights: Any, state: State, tokens: Array, are_new: Array) -> State:
        """The state after reading a new token of some sequences."""
        batch, room = state.tokens.shape
        rows = iota(batch)
        written = state.tokens.at[rows, jnp.where(are_new, state.lengths, room)].set(tokens, mode="drop")
        lengths = state.lengths + are_new.astype(jnp.int32)
        # A sequence without a new token reads its last one again, which changes nothing that is kept.
        last = lengths - 1
        mask = iota(room)[None] < lengths[:, None]
        new = NewTokens(written[rows, last][:, None], last[:, None], mask, lengths)
        logits, caches = self.run_decoder(weights, state.caches, new)
        return State(written, lengths, *restore_inactive(state, logits[:, -1], caches, are_new, self.batch_axes))

    def search(
        self,
        weights: Any,
        state: State,
        beams: Beams,
        max_steps: Array,
        numbers: Any,
        *,
        form: Sampling,
        mesh: Mesh | None,
    ) -> tuple[State, Beams]:
        """The state, which has a row for each beam, and the beams after at most `max_steps` more tokens of each."""

        def is_going(carried: Any) -> Any:
            count, state, beams = carried
            return (count < max_steps) & ~jnp.all(over_rows(beams, state.lengths, numbers["max_length"]))

        def step(carried: Any) -> Any:
            count, state, beams = carried
            are_new = ~over_rows(beams, state.lengths, numbers["max_length"])
            beams, rows, tokens = grow(beams, state, form, numbers, self._end_tokens)
            state = self.append_tokens(weights, self.take_rows(state, rows), tokens, are_new)
            return count + 1, place_on_mesh(state, mesh, self.batch_axes), beams

        _, state, beams = lax.while_loop(is_going, step, (jnp.int32(0), state, beams))
        return state, beams

    def widen(self, state: State, count: int) -> State:
        """The state with each row `count` times."""
        rows = jnp.repeat(iota(len(state.tokens)), count)
        return self.take_rows(state, rows, [*state.caches])

    def take_rows(self, state: State, rows: Array, caches: Sequence[str] | None = None) -> State:
        """The state of the sequences at `rows`, with new rows of these caches, or of all that new tokens change."""
        axes = {name: self.row_axis(name) for name in (self.caches if caches is None else caches)}
        taken = {name: jnp.take(state.caches[name], rows, axis=axis) for name, axis in axes.items() if axis is not None}
        return State(state.tokens[rows], state.lengths[rows], state.logits[rows], {**state.caches, **taken})

    def row_axis(self, cache: str) -> int | None:
        """The axis of the sequences in a cache; None if they share it."""
        return 1 if cache in self.stacked else self.batch_axes.get(cache, 0)

    def verify(
        self,
        weights: Any,
        state: State,
        tokens: Array,
        unread: Array,
        drafted: Array,
        draft_probs: Array | None,
        key: Any,
        numbers: Any,
        *,
        form: Sampling,
        mesh: Mesh | None,
    ) -> tuple[State, Verdict]:
        """The state of a single sequence after reading `unread` tokens and those of the drafts that are accepted.

        `tokens` has both, and padding after them. `drafted` counts the drafts, which were drawn with `draft_probs`;
        None stands for drafts that are certain. Caches keep the drafts that are rejected until later tokens overwrite
        them.
        """
        (_, size), room = tokens.shape, state.tokens.shape[1]
        counts = (unread + drafted)[None]
        places = state.lengths[:, None] + iota(size)[None]
        ends = state.lengths + counts
        new = NewTokens(tokens, places, iota(room)[None] < ends[:, None], ends, counts, of_last=False)
        logits, caches = self.run_decoder(weights, state.caches, new)
        written = state.tokens.at[iota(1)[:, None], places].set(tokens, mode="drop")
        before = state.lengths[0] + unread
        # The first row is of the token that follows what was read, the next ones of those that follow each draft.
        rows = jnp.concatenate([state.logits, logits[0], logits[0, -1:]])
        rows = lax.dynamic_slice_in_dim(rows, unread, size + 1)
        drafts = Drafts(jnp.take(tokens[0], unread + iota(size + 1), mode="clip"), drafted, draft_probs)
        verdict = judge_drafts(rows, written, before, drafts, form, numbers, self._end_tokens, key)
        length = before + verdict.accepted
        kept = jnp.where(iota(room)[None] < length, written, 0)
        read = State(kept, length[None], rows[verdict.accepted][None], caches)
        return place_on_mesh(read, mesh, self.batch_axes), verdict

    def draft(
        self,
        weights: Any,
        state: State,
        tokens: Array,
        count: Array,
        wanted: Array,
        key: Any,
        numbers: Any,
        *,
        form: Sampling,
        most: int,
    ) -> tuple[State, Array, Array | None]:
        """The state of a single sequence after reading `count` tokens and all but the last of `wanted` drafts.

        With it come the drafts, of which there are at most `most`, and the probabilities that they were drawn with.
        """
        state = self.read_block(weights, state, tokens, count[None], state.lengths + count, is_first=False)
        drafts = jnp.zeros(most, jnp.int32)
        probs = jnp.zeros((most, state.logits.shape[1]), jnp.float32) if form.is_drawn else None

        def choose(i: Any, state: State, drafts: Array, probs: Any, key: Any) -> Any:
            drawn, key = draw_draft(state.logits, state.tokens, state.lengths, form, numbers, self._end_tokens, key)
            probs = None if probs is None else probs.at[i].set(drawn.probs)
            return drafts.at[i].set(drawn.token), probs, key

        def step(carried: Any) -> Any:
            i, state, drafts, probs, key = carried
            one = jnp.ones(1, jnp.int32)
            state = self.read_block(weights, state, drafts[i][None, None], one, state.lengths + 1, is_first=False)
            return i + 1, state, *choose(i + 1, state, drafts, probs, key)

        first = jnp.int32(0), state, *choose(0, state, drafts, probs, key)
        _, state, drafts, probs, _ = lax.while_loop(lambda carried: carried[0] + 1 < wanted, step, first)
        return state, drafts, probs

    @property
    def _end_tokens(self) -> Array:
        return jnp.array(self.settings.end_tokens, jnp.int32)

    def outputs_of(
        self, weights: Mapping[str, Any], rows: Sequence[Any], caches: Mapping[str, Array], images: Any = None
    ) -> dict[str, Any]:
        """All outputs of the graph, by name, for rows of tokens, which it reads from their beginning.

        `caches` has an encoder's results. Outputs have a row for each token up to the longest row.
        """
        longest = max(map(len, rows))
        size = longest if self.batch_axes else round_up(longest, self.settings.context_length)
        tokens, counts = pad_rows(rows, size)
        audio_caches = {name: x for name, x in caches.items() if name not in self.caches}
        embeds = self.embed_images(weights, tokens, images)
        results = self.jit_read_anew(weights, tokens, counts, audio_caches, embeds)
        axes = {present: _STACKED_TOKENS if past in self.stacked else _TOKENS for past, present in self.caches.items()}
        states = {self.caches[past] for past in self.batch_axes}

        def cut(name: str, x: Any) -> Any:
            axis = axes.get(name, 1)
            if name in states or x.ndim <= axis or x.shape[axis] != size:
                return x
            return lax.slice_in_dim(x, 0, longest, axis=axis)

        return {name: cut(name, x) for name, x in results.items()}

    def read_anew(
        self, weights: Any, tokens: Array, counts: Array, audio_caches: Mapping[str, Array], embeds: Array | None
    ) -> dict[str, Any]:
        places = jnp.broadcast_to(iota(tokens.shape[1])[None], tokens.shape)
        caches = {**self.empty_state(len(tokens), 0, weights).caches, **audio_caches}
        new = NewTokens(tokens, places, places < counts[:, None], ends=counts, embeds=embeds)
        return self.run_graph(weights, caches, new)

    def score_tokens(
        self, weights: Any, tokens: Array, counts: Array, audio_caches: Mapping[str, Array], embeds: Array | None
    ) -> Array:
        results = self.read_anew(weights, tokens, counts, audio_caches, embeds)
        logits: Array = results[self.settings.names["logits"]].astype(jnp.float32)
        return logits


def decoder_of(settings: Settings, models: FolderModels) -> Decoder:
    """Fits the decoder of a folder to sequences in buffers."""
    model, names = models.by_part[DECODER], settings.names
    types = types_of_inputs(model)
    caches, states = settings.caches(types), settings.states(types)
    batch_axes = {past: batch_axis(past, types[past].sizes) for past in caches if past in states}
    positions = TensorType(names["position_ids"], np.dtype(np.int64), (None, None))
    loaded = loaded_graph(model)
    stacked = frozenset(settings.stacked(types))
    if stacked:
        require_appending_attention(loaded.graph, stacked, names["attention_mask"], names["position_ids"])
    stored = {**loaded.constants, **model.weights}
    graph, tables = with_one_table(loaded.joined, stored, names["attention_mask"], positions)
    graph = with_counted_tokens(graph, stored, names["attention_mask"])
    types |= {tensor.name: tensor for tensor in graph.inputs}
    logits = with_logits(graph, stored, loaded.find, names["logits"])
    roles = {role: types[names[role]] for role in ROLES if names[role] in types}
    sizes = roles["position_ids"].sizes if "position_ids" in roles else None
    return Decoder(
        settings=settings,
        models=models,
        graph_function=function_of_graph(loaded, logits.all),
        prompt_function=function_of_graph(loaded, with_counts(logits.chosen)),
        block_function=function_of_graph(loaded, with_counts(logits.all)),
        outputs=[output.name for output in model.outputs],
        roles=roles,
        caches=caches,
        types_of_caches={past: types[past] for past in caches},
        batch_axes=batch_axes,
        stacked=stacked,
        tables=tables,
        zeros=zero_inputs(types),
        position_streams=sizes[:-2] if sizes else (),
    )


class GenerationRun(NamedTuple):
    """A generation: its sequences so far, and the arguments of the next steps."""

    decoder: Decoder
    weights: Mapping[str, Any]
    mesh: Mesh | None
    state: State
    search: Search
    is_single: bool
    key: Any
    over: Any = None  # which sequences are over
    beams: Beams | None = None

    def with_beams(self) -> "GenerationRun":
        """The run with a row for each beam, if the search has beams."""
        prompts, room = self.state.tokens.shape
        count = self.search.num_beams
        if count == 1:
            return self
        beams = first_beams(prompts, count, room)
        return self._replace(state=self.decoder.jit_widen(self.state, count), beams=beams)

    @property
    def is_over(self) -> bool:
        return self.over is not None and bool(np.all(self.over))

    def advance(self, max_steps: int) -> "GenerationRun":
        """The run after at most `max_steps` more tokens of each sequence."""
        decoder, before = self.decoder, to_numpy(self.state.lengths)
        over = before >= self.search.max_length if self.over is None else self.over
        if not is_traced(before):
            report("generating", int(max(before)), self.search.max_length, "token")
        steps = max_steps if is_traced(before) else min(max_steps, decoder.steps_until_long(before[~over]) or max_steps)
        run = self.decode(over, steps)
        if is_traced(run.state.lengths):
            decoder.require_short(self.search.max_length)
            return run
        if decoder.become_long(before, run.state.lengths):
            state, rows = rewind(run.state, np.asarray(run.state.lengths), [[]] * len(before), decoder.batch_axes)
            state = decoder.extend(self.weights, self.mesh, state, np.zeros_like(before), rows, state.tokens.shape[1])
            run = run._replace(state=state)
        return run if steps == max_steps or run.is_over else run.advance(max_steps - steps)

    def decode(self, over: Any, max_steps: int) -> "GenerationRun":
        key = self.key if self.search.do_sample else None
        numbers, form = numbers_of(self.search), sampling_of(self.search)
        if self.beams is not None:
            state, beams = self.decoder.jit_search(
                self.weights, self.state, self.beams, np.int32(max_steps), numbers, form=form, mesh=self.mesh
            )
            over = to_numpy(over_rows(beams, state.lengths, self.search.max_length))
            return self._replace(state=state, beams=beams, over=over)
        state, over, key = self.decoder.jit_decode(
            self.weights, self.state, over, key, np.int32(max_steps), numbers, form=form, mesh=self.mesh
        )
        return self._replace(state=state, over=to_numpy(over), key=key)

    def sequences(self) -> Any:
        tokens, lengths = self.state.tokens, self.state.lengths
        if self.beams is not None:
            found, sizes = _jit_finish(self.beams, self.state, numbers_of(self.search))
            kept = self.search.num_return_sequences
            tokens, lengths = found[:, :kept].reshape(-1, found.shape[2]), sizes[:, :kept].reshape(-1)
        is_single = self.is_single and self.search.num_return_sequences == 1
        if is_traced(tokens):
            most = tokens[:, : self.search.max_length]
            return most[0] if is_single else most
        rows = [row[:length].tolist() for row, length in zip(np.asarray(tokens), np.asarray(lengths), strict=True)]
        return rows[0] if is_single else rows


_jit_finish = jax.jit(finish)


class Stream(Iterator[Any]):
    """New tokens as they come: a token for a single prompt; for several, a list with None where a sequence is over."""

    def __init__(self, run: GenerationRun, block: int, progress: Any = None) -> None:
        self._run, self._block, self._progress = run, block, progress
        self._waiting: deque[list[Any]] = deque()

    def __next__(self) -> Any:
        while not self._waiting:
            if self._run.is_over:
                raise StopIteration
            before = np.asarray(self._run.state.lengths)
            with listen(self._progress):
                self._run = self._run.advance(self._block)
            self._waiting.extend(new_tokens(self._run.state, before))
        row = self._waiting.popleft()
        return row[0] if self._run.is_single else row

    @property
    def logits(self) -> Array:
        """The logits (sequences, vocabulary) of the token that comes next; setting them changes what it will be."""
        return self._run.state.logits

    @logits.setter
    def logits(self, logits: Array) -> None:
        self._run = self._run._replace(state=self._run.state._replace(logits=logits))

    @property
    def state(self) -> State:
        """The sequences with all tokens so far, to continue them later."""
        kept: State = jax.tree.map(jnp.copy, self._run.state)  # the next tokens take the memory of the run's own
        return kept

    @property
    def length(self) -> int:
        """The number of tokens that the model has read of the first sequence."""
        return int(self._run.state.lengths[0])

    def state_before(self, length: int) -> State:
        """A single sequence with its first `length` tokens; the logits stay those of its end."""
        return shorten(self.state, length)


class BeamStream(Stream):
    """The new tokens of each beam, step by step, and the best sequences so far."""

    def __next__(self) -> list[int | None]:
        if self.is_over:
            raise StopIteration
        before = np.asarray(self._run.state.lengths)
        with listen(self._progress):
            self._run = self._run.advance(1)
        return next(new_tokens(self._run.state, before))

    @property
    def is_over(self) -> bool:
        """Whether the best sequences are found."""
        return self._run.is_over

    def sequences(self) -> list[list[int]]:
        """The best sequences of each prompt, if the search ended here."""
        found: list[list[int]] = self._run._replace(is_single=False).sequences()
        return found


def new_tokens(state: State, before: Any) -> Iterator[list[int | None]]:
    """The new tokens of all sequences, step by step, since they had the lengths `before`."""
    tokens, lengths = np.asarray(state.tokens), np.asarray(state.lengths)
    for step in range(max(lengths - before)):
        places = enumerate(before + step)
        yield [int(tokens[row, place]) if place < lengths[row] else None for row, place in places]


class GenerationProgram(NamedTuple):
    """A program of a generation: a function of weights and `inputs`, which updates the first input in place."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]  # their types


def generation_programs(
    decoder: Decoder, batch: int, prompt: int, room: int
) -> tuple[GenerationProgram, GenerationProgram]:
    """The programs of a generation with the folder's search: reading `prompt` tokens, and a step of the loop.

    The first includes an encoder, if there is one, and then also takes audio.
    """

    def integers(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.int32)

    search, weights = decoder.settings.search, decoder.models.weights
    state = jax.eval_shape(lambda: decoder.empty_state(batch, room, weights))
    prompts: tuple[Any, ...] = integers(batch, round_up(prompt, room)), integers(batch), integers(batch)
    reading = functools.partial(decoder.read_block, is_first=True)
    if "encoder" in decoder.settings.others:
        audio = decoder.models.type_of_audio(batch, decoder.models.float_type(weights))
        state = state._replace(caches=state.caches | jax.eval_shape(decoder.models.encode_audio, weights, audio))
        prompts, reading = (*prompts, audio), functools.partial(_encode_and_prefill, decoder)
    key = jax.eval_shape(lambda: jax.random.key(0)) if search.do_sample else None
    progress = state, jax.ShapeDtypeStruct((batch,), jnp.bool_), key
    numbers = jax.tree.map(lambda number: jax.ShapeDtypeStruct((), number.dtype), numbers_of(search))
    step = functools.partial(decoder.decode_step, form=sampling_of(search))
    return GenerationProgram(reading, (state, *prompts)), GenerationProgram(step, (progress, numbers))


def _encode_and_prefill(
    decoder: Decoder, weights: Any, state: State, tokens: Array, counts: Array, ends: Array, audio: Array
) -> State:
    audio_caches = decoder.models.encode_audio(weights, audio)
    return decoder.read_block(
        weights, state._replace(caches=state.caches | audio_caches), tokens, counts, ends, is_first=True
    )


def _jit_in_place(
    decoder: Decoder, function: Callable[..., Any], static: Sequence[str], name: str, number: int
) -> Callable[..., Any]:
    """Compiles a function of weights and a state, which it updates in place unless it is transformed."""
    options: Any = {"donate_argnums": 1, "static_argnames": static}
    donating = Program(function, name, number, 2, source=lambda: decoder.digest, **options)
    transformed = jax.jit(function, static_argnames=static)

    def call(*arguments: Any, **options: Any) -> Any:
        has_traced = any(map(is_traced, jax.tree.leaves((arguments, options))))
        return (transformed if has_traced else donating)(*arguments, **options)

    return call
