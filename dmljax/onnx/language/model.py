"""Language models that continue sequences of tokens, from folders in the format of ONNX Runtime GenAI.

`LanguageModel` checks what it is given. `generation` reads prompts and adds tokens to a `state`, and `sampling` chooses
them.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dmljax.calls.binding import bind_arguments, check_arguments
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, within
from dmljax.foundation import checks
from dmljax.foundation.checks import integer_in
from dmljax.foundation.programs.progress import Progress, listen, report
from dmljax.onnx.graph.adapters import read_adapter
from dmljax.onnx.language.drafts import MOST_DRAFTS, Drafter, DraftOptions
from dmljax.onnx.language.generation import (
    BeamStream,
    GenerationProgram,
    GenerationRun,
    Inputs,
    Stream,
    decoder_of,
    generation_programs,
)
from dmljax.onnx.language.parts import (
    DECODER,
    FolderModels,
    load_parts,
    problems_of_adapted,
    problems_of_names,
    types_of_inputs,
)
from dmljax.onnx.language.rounds import DraftStream
from dmljax.onnx.language.sampling import Search, require_effect, with_options
from dmljax.onnx.language.settings import Settings, read_settings, with_layers_of_model
from dmljax.onnx.language.state import (
    State,
    is_traced,
    pad_rows,
    place_on_mesh,
    round_up,
    rows_of_prompts,
    to_numpy,
    tokens_of_array,
)
from dmljax.onnx.language.translation import translation_decoder_of
from dmljax.onnx.model import Model, loaded_graph
from dmljax.onnx.rewrites.fewer_layers import graph_with_layers, renumber_caches
from dmljax.onnx.several_models import FolderModel, check_folder
from dmljax.onnx.values.types import DType
from dmljax.text import show


@check_arguments
def language_model(
    folder: str | Path, *, dtype: Any = None, progress: bool | Callable[[Progress], Any] | None = None
) -> "LanguageModel":
    """Loads a folder in the format of ONNX Runtime GenAI, as `onnxruntime_genai.models.builder` makes it.

    `dtype` converts its floats: a TPU computes with bfloat16, not with the float16 of most folders. `progress=True`
    shows how far it is, as `load` does.
    """
    with within("onnx"), listen(progress):
        path, floats = check_folder(folder, dtype)
        model = model_of(read_settings(path), floats)
        if problems := [*problems_of_adapted(model.settings, model.model)]:
            raise InvalidDesc(*problems)
        return model


def model_of(settings: Settings, dtype: DType | None = None) -> "LanguageModel":
    """Loads the models of a folder, and converts their floats to a type if one is given."""
    by_part = load_parts(settings, dtype)
    return LanguageModel(with_layers_of_model(settings, types_of_inputs(by_part[DECODER])), by_part)


def search_with_beams(
    model: "LanguageModel", inputs: Inputs, options: Mapping[str, Any], weights: Mapping[str, Any] | None
) -> BeamStream:
    """Reads prompts, and searches for their best continuations a step at a time."""
    run = model._prefill(inputs, None, weights, options)
    return BeamStream(run.with_beams(), 1)


class LanguageModel(FolderModel):
    """A language model: `generate` continues prompts, `stream` gives tokens as they come, `logits` scores texts.

    `settings` are the folder's, and `model` is the ONNX model that decodes. Each method takes `weights`
    with other values: trained, in another float type, or on several devices as `shard` places them.

    Some folders have several models, whose weights' names then begin with `decoder.`, `encoder.`, `embedding.` or
    `vision.`. With an encoder, as Whisper has, each method takes `audio`: an array of features, such as (sequences, mel
    bins, frames), that you compute. With a vision model it takes `images`: a mapping with the arrays of that model's
    inputs, where the prompts have tokens for their places. A `state` has heard and seen what came before. A folder
    whose encoder reads texts, as Marian's does, translates: the new tokens are the prompt's translation.

    A first call compiles two programs: the first reads prompts, whose lengths are rounded up to a power of two, and the
    second chooses all further tokens. Calls with as many sequences and the same `max_length` use them again.
    """

    models: FolderModels

    def __init__(self, settings: Settings, by_part: Mapping[str, Model]) -> None:
        model = by_part[DECODER]
        self.settings, self.model = settings, model
        types, outputs = types_of_inputs(model), {tensor.name: tensor for tensor in model.outputs}
        if problems := [*problems_of_names(settings, types, outputs)]:
            raise InvalidDesc(*problems)
        self.models = FolderModels(settings, by_part)
        report("preparing the decoder")
        self.decoder = (translation_decoder_of if settings.translates else decoder_of)(settings, self.models)

    def __repr__(self) -> str:
        sizes = f"{self.settings.vocabulary} tokens, context of {self.settings.context_length}"
        return f"LanguageModel({sizes}; {', '.join(map(repr, self.models.by_part.values()))})"

    def can_shorten(self, length: int, to: int) -> bool:
        """Whether caches of `length` tokens can serve for their first `to` tokens.

        They do not if layers of convolutions or of linear attention have states, from which no token can be removed,
        or if rotary angles differ for short and for long sequences.
        """
        return not self.decoder.batch_axes and self.decoder.are_long(length) == self.decoder.are_long(to)

    @property
    def equal_layers(self) -> int:
        """The number of equal layers of the model that decodes, as `Model.equal_layers` counts them."""
        return self.model.equal_layers

    @check_arguments
    def with_layers(self, count: int) -> "LanguageModel":
        """Makes a language model with only the first of the `equal_layers`, as `Model.with_layers` does."""
        with within("onnx"):
            prefixes = ("past_", "present_")
            caches = [name for role, name in self.settings.names.items() if role.startswith(prefixes) and "%d" in name]
            loaded = loaded_graph(self.model)
            graph, layers = renumber_caches(graph_with_layers(loaded, count), caches, self.settings.layers)
            by_part = self.models.by_part | {DECODER: Model(loaded.part(graph), self.model.weights)}
            return LanguageModel(self.settings._replace(layers=layers), by_part)

    @check_arguments
    def load_adapter(self, path: str | Path, *, weights: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Reads an adapter of ONNX Runtime, a file whose name ends in `.onnx_adapter`: the weights with its arrays.

        It replaces inputs of the model that decodes, such as the matrices of LoRA, for the calls that take these
        weights: `generate(prompts, weights=model.load_adapter(path))`. Adapters of the same sizes share programs.
        `weights` are those that it changes, by default the model's own.
        """
        with within("onnx"):
            arrays = read_adapter(checks.path("path", path)).arrays
            return self.models.adapt(self.weights if weights is None else weights, arrays)

    @check_arguments
    def with_low_rank(self, rank: int, names: Iterable[str] | None = None, *, key: Array) -> "LanguageModel":
        """Adds products of two narrow matrices to the model's products, for LoRA, as `Model.with_low_rank` does."""
        tuned = self.model.with_low_rank(rank, names, key=key)
        return LanguageModel(self.settings, self.models.by_part | {DECODER: tuned})

    @check_arguments
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
        num_beams: int | None = None,
        num_return_sequences: int | None = None,
        length_penalty: float | None = None,
        early_stopping: bool | None = None,
        key: Array | None = None,
        state: State | None = None,
        weights: Mapping[str, Any] | None = None,
        audio: Any = None,
        images: Mapping[str, Any] | None = None,
        draft: Any = None,
        progress: bool | Callable[[Progress], Any] | None = None,
    ) -> Any:
        """Continues prompts up to an end token, or to `max_length` tokens with the prompt.

        `prompts` is a list of tokens, or a list of such lists, whose lengths may differ. The result has the same form,
        and begins with the earlier tokens. Options default to the folder's. `do_sample` draws tokens with `key`: from
        the `top_k` likeliest, and of these from the fewest whose probabilities add up to `top_p`. Without it, these
        options and `temperature` are refused. No token completes `no_repeat_ngram_size` tokens that the sequence
        already has in a row. `state`, from `start`, has the sequences that the prompts follow; it is not changed.
        `progress=True` shows how far it is, as `load` does.

        `num_beams` above 1 grows as many sequences of each prompt, by the likeliest of all their continuations. The
        result has the best `num_return_sequences` of each prompt in one list, without end tokens: those with the
        largest sums of log probabilities, divided by `length**length_penalty`. `early_stopping` ends the search when as
        many have ended as there are beams, even if others could still become better.

        `draft` guesses tokens, of which the model reads several in one run and keeps those that it would have chosen:
        a smaller language model with the same tokens, or the number of tokens, such as 3, whose repetitions are looked
        up in a single prompt and what follows it.

        Under `jax.jit`, `prompts` may be an argument: integers of the shape (tokens,) or (sequences, tokens). The
        result is then an array with `max_length` tokens of each sequence, zeros after its end.
        """
        options = {
            "max_length": max_length,
            "min_length": min_length,
            "do_sample": do_sample,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "repetition_penalty": repetition_penalty,
            "no_repeat_ngram_size": no_repeat_ngram_size,
            "num_beams": num_beams,
            "num_return_sequences": num_return_sequences,
            "length_penalty": length_penalty,
            "early_stopping": early_stopping,
        }
        with within("onnx"), listen(progress):
            if draft is not None:
                self._require_no_beams(num_beams, "drafts tokens")
            run = self._prefill(Inputs(prompts, audio, images), state, weights, options, key, is_continued=True)
            if draft is None:
                return run.with_beams().advance(run.search.max_length).sequences()
            stream = self._stream_of_drafts(run._replace(is_single=True), draft, progress)
            sequence = [*np.asarray(run.state.tokens)[0, : stream.length].tolist(), *stream]
            return sequence if run.is_single else [sequence]

    @check_arguments
    def stream(
        self,
        prompts: Any = None,
        *,
        block: int = 8,
        progress: bool | Callable[[Progress], Any] | None = None,
        **options: Any,
    ) -> Stream:
        """Generates as `generate` does, with the same options, and gives new tokens after each `block` of them."""
        with within("onnx"):
            names = ("key", "state", "weights", "audio", "images", "draft")
            known = {name: options.pop(name, None) for name in names}
            unknown = options.keys() - {*Search._fields}
            if unknown:
                bind_arguments("generate", inspect.signature(self.generate), (), dict.fromkeys(sorted(unknown)))
            self._require_no_beams(options.get("num_beams"), "gives tokens as they come")
            inputs = Inputs(prompts, known["audio"], known["images"])
            with listen(progress):
                given = known["state"], known["weights"], options, known["key"]
                run = self._prefill(inputs, *given, is_continued=True)
            if is_traced(run.state.tokens):
                rule = "not supported under jax.jit and other transformations, because it gives tokens as they come"
                raise Unsupported(Problem("stream", rule, remedy="generate works there"))
            size = integer_in("block", block, 1, 2**31 - 1)
            if known["draft"] is not None:
                return self._stream_of_drafts(run, known["draft"], progress)
            return Stream(run, size, progress)

    def _require_no_beams(self, num_beams: int | None, use: str) -> None:
        beams = self.settings.search.num_beams if num_beams is None else num_beams
        if beams != 1:
            rule = f"must be 1 for a call that {use}: which sequence is best shows at the end"
            raise Unsupported(Problem("num_beams", rule, beams, remedy="generate works with beams"))

    def _stream_of_drafts(self, run: GenerationRun, draft: Any, progress: Any) -> DraftStream:
        """New tokens that `draft` guesses: a language model, the size of n-grams, or a drafter that counts."""
        if len(run.state.tokens) != 1 or self.settings.translates or self.decoder.batch_axes:
            rule = "not supported for several prompts, models that translate, and layers with states"
            raise Unsupported(Problem("draft", rule))
        if is_traced(run.state.tokens):
            raise Unsupported(Problem("draft", "not supported under jax.jit and other transformations"))
        if isinstance(draft, Drafter):
            return DraftStream(run, draft, progress)
        boundary = None if self.decoder.tables is None else self.decoder.tables.most + 1
        if not isinstance(draft, LanguageModel):
            size = integer_in("draft", draft, 2, MOST_DRAFTS)
            return DraftStream(run, Drafter(DraftOptions(ngram_size=size), boundary=boundary), progress)
        if draft.settings.vocabulary != self.settings.vocabulary or draft.decoder.batch_axes:
            rule = "must be a model with the same tokens, and without states of layers"
            raise InvalidDesc(Problem("draft", rule, draft))
        return DraftStream(run, Drafter(DraftOptions(), draft.decoder, boundary=boundary), progress)

    @check_arguments
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
            inputs = Inputs(prompts, audio, images)
            return self._prefill(inputs, state, weights, {"max_length": max_length}).state

    @check_arguments
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
            if is_traced(prompts):
                return self._logits_of_array(Inputs(prompts, audio, images), weights)
            rows, is_single = self._check_prompts(prompts, images)
            longest = max(map(len, rows))
            self._require_in_context(longest)
            tokens, counts = pad_rows(rows, round_up(longest, self.settings.context_length))
            arrays, _ = self.models.call_weights(weights)
            audio_caches = self.decoder.encode_audio(arrays, audio, len(rows))
            logits = self.decoder.jit_score_tokens(
                arrays, tokens, counts, audio_caches, self.decoder.embed_images(arrays, tokens, images)
            )
            parts = [x[:count] for x, count in zip(logits, counts.tolist(), strict=True)]
            return parts[0] if is_single else parts

    def generation_programs(self, batch: int, prompt: int, room: int) -> tuple[GenerationProgram, GenerationProgram]:
        """The programs that read `prompt` tokens of each sequence, and add a token, as `dmljax.estimate` needs them."""
        if self.settings.translates:
            raise Unsupported(Problem("estimate", "not supported for models that translate"))
        self.models.call_weights(None)
        return generation_programs(self.decoder, batch, prompt, room)

    def _logits_of_array(self, inputs: Inputs, weights: Mapping[str, Any] | None) -> Array:
        tokens = tokens_of_array(inputs.prompts, inputs.images)
        self._require_in_context(tokens.shape[1])
        arrays, _ = self.models.call_weights(weights)
        audio_caches = self.decoder.encode_audio(arrays, inputs.audio, len(tokens))
        logits: Array = self.decoder.jit_score_tokens(
            arrays, tokens, jnp.full(len(tokens), tokens.shape[1]), audio_caches, None
        )
        return logits.reshape(*inputs.prompts.shape, -1)

    def _require_in_context(self, longest: int) -> None:
        most = self.settings.context_length
        if longest > most:
            raise InvalidDesc(Problem("prompts", f"must have at most {most} tokens, the model's context", longest))

    def _prefill(
        self,
        inputs: Inputs,
        state: State | None,
        weights: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        key: Array | None = None,
        *,
        is_continued: bool = False,
    ) -> GenerationRun:
        """The prompts read, after the sequences of `state`; raises if they are to be continued without room."""
        search = self._require_options(options, key, inputs.prompts, state)
        arrays, mesh = self.models.call_weights(weights)
        rows, is_single = self._rows_of_inputs(inputs, state)
        # Copies of a state's lengths may be traced where these are known.
        lengths = np.zeros(len(rows), np.int32) if state is None else to_numpy(state.lengths)
        if is_continued and rows and not is_traced(lengths):
            self._require_room(lengths + np.array([len(row) for row in rows]), search.max_length)
        first = self._first_state(rows, inputs.audio, state, arrays, search.max_length)
        if state is None:
            first = place_on_mesh(first, mesh, self.decoder.batch_axes)
        if rows:
            first = self.decoder.extend(arrays, mesh, first, lengths, rows, search.max_length, inputs.images)
        return GenerationRun(self.decoder, arrays, mesh, first, search, is_single, key)

    def _require_options(self, options: Mapping[str, Any], key: Any, prompts: Any, state: Any) -> Search:
        """The folder's search with the options; raises if something that it needs is not given."""
        settings = self.settings
        search = with_options(settings.search, options, settings.context_length)
        require_effect(search, options)
        if search.do_sample and key is None:
            raise InvalidType(Problem("key", "needed for do_sample", remedy="key=jax.random.key(0)"))
        if state is None:
            if prompts is None:
                raise InvalidType(Problem("prompts", "must be given without state"))
            return search
        if not isinstance(state, State):
            raise InvalidType(Problem("state", "must be a State, as start returns it", show(state)))
        room = state.tokens.shape[1]
        if options.get("max_length") is None:
            search = search._replace(max_length=min(search.max_length, room))
        if search.max_length > room:
            raise InvalidDesc(Problem("max_length", f"must be at most {room}, the room of state", search.max_length))
        return search

    def _require_room(self, lengths: Any, max_length: int) -> None:
        """Raises before anything is compiled if no sequence may get another token."""
        shortest, context = int(min(lengths)), self.settings.context_length
        if shortest < max_length:
            return
        if shortest >= context:
            rule = f"must have fewer than {context} tokens, the model's context"
            raise InvalidDesc(Problem("prompts", rule, shortest))
        rule = f"must be more than {shortest}, because it counts the tokens of the prompt"
        raise InvalidDesc(Problem("max_length", rule, max_length))

    def _rows_of_inputs(self, inputs: Inputs, state: State | None) -> tuple[list[Any], bool]:
        """The tokens of each sequence, and whether there is a single one, without a list around it."""
        prompts, _, images = inputs
        if is_traced(prompts):
            return [*tokens_of_array(prompts, images)], prompts.ndim == 1
        if prompts is not None:
            return self._check_prompts(prompts, images)
        if images is not None:
            raise InvalidType(Problem("images", "must be given with prompts, which have places for them"))
        return [], state is not None and state.tokens.shape[0] == 1

    def _first_state(
        self, rows: list[Any], audio: Any, state: State | None, weights: Mapping[str, Any], room: int
    ) -> State:
        """The state that the rows follow: a copy of `state`, or an empty one with the encoder's results."""
        if state is not None:
            batch = len(state.tokens)
            if audio is not None:
                raise InvalidType(Problem("audio", "must be left out with state, which has heard what came before"))
            if rows and is_traced(state.lengths):
                rule = (
                    "must not be an argument of a transformed function if prompts follow, as its lengths decide sizes"
                )
                raise Unsupported(Problem("state", rule, remedy="call start with these prompts outside"))
            if rows and len(rows) != batch:
                rule = f"must be {batch} lists of tokens, as many as state has"
                raise InvalidDesc(Problem("prompts", rule, len(rows)))
            copied: State = jax.tree.map(jnp.copy, state)  # its buffers are donated, and the caller keeps his
            return copied
        for i, row in enumerate(rows):
            if not len(row):
                raise InvalidDesc(Problem(("prompts", i), "must have at least one token", "none"))
        empty = self.decoder.empty_state(len(rows), room, weights)
        return empty._replace(caches=empty.caches | self.decoder.encode_audio(weights, audio, len(rows)))

    def _check_prompts(self, prompts: Any, images: Any) -> tuple[list[list[int]], bool]:
        """The prompts as lists of tokens; the places of images may be negative."""
        return rows_of_prompts(prompts, self.settings.vocabulary, 0 if images is None else np.iinfo(np.int32).min)
