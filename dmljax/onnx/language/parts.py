"""The models of a language model's folder: a decoder, and models that work for it.

An encoder computes keys and values from audio, which the decoder reads with every token. An embedding replaces the
decoder's table: it makes rows of features from tokens, and puts the features of a vision model where the prompt has
places for images.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, inside
from dmljax.foundation.checks import array
from dmljax.onnx.graph.graph import OnnxGraph, TensorType, names_read
from dmljax.onnx.language.settings import FILE, Settings, with_layers_of_model
from dmljax.onnx.loading import Revision, load_graph
from dmljax.onnx.model import Model, loaded_graph
from dmljax.onnx.rewrites.fixed_caches import NamesOfInputs, with_fixed_caches
from dmljax.onnx.rewrites.packed_weights import with_packed_weights
from dmljax.onnx.several_models import SeveralModels, in_floats
from dmljax.onnx.values.types import DType
from dmljax.text import did_you_mean, join_words, show
from dmljax.types import FLOATS

DECODER, ENCODER = "decoder", "encoder"
ROLES = ("input_ids", "inputs_embeds", "attention_mask", "position_ids")  # of a decoder's inputs, besides its caches

# Of the inputs of a decoder that translates
TRANSLATION_ROLES: Sequence[str] = (
    *("input_ids", "encoder_hidden_states", "encoder_attention_mask", "rnn_states_prev", "past_key_values_length"),
)


def load_parts(settings: Settings, dtype: DType | None) -> dict[str, Model]:
    """The models of a folder by part, with their floats converted to a type if one is given."""
    models = {}
    for part, file in settings.files.items():
        with inside((file.name,) if settings.others else ()):
            models[part] = load_part(settings, part, dtype)
    return models


def load_part(settings: Settings, part: str, dtype: DType | None = None) -> Model:
    """Loads a model of a folder, and revises its graph."""
    # The number of places for images depends on the prompt.
    maximum_sizes: Any = "largest" if part == "embedding" else {}
    file = settings.files[part]
    source, folder = settings.contents.get(file, file), file.parent
    loaded, weights = load_graph(source, {}, maximum_sizes, partial(revise, settings, part), folder=folder)
    return Model(loaded, in_floats(weights, dtype))


def revise(settings: Settings, part: str, graph: OnnxGraph) -> Revision:
    """Packs a graph's 4-bit weights, and gives a decoder caches of a fixed size, and inputs that adapters replace."""
    if part == DECODER:
        settings = with_layers_of_model(settings, {tensor.name: tensor for tensor in graph.inputs})
        names, caches = settings.names, settings.caches(graph.input_names)
        graph = with_fixed_caches(graph, NamesOfInputs(names["attention_mask"], names["position_ids"], caches))
    packed, origins = with_packed_weights(graph)
    if part != DECODER:
        return Revision(packed, origins)
    supplied = supplied_inputs(settings, {tensor.name: tensor for tensor in packed.inputs})
    adapted = [tensor for tensor in packed.inputs if tensor.name not in supplied]
    inputs = tuple(tensor for tensor in packed.inputs if tensor.name in supplied)
    return Revision(replace(packed, inputs=inputs), origins, adapted)


def supplied_inputs(settings: Settings, inputs: Mapping[str, TensorType]) -> list[str]:
    """The names of inputs that a decoder gets when it runs; further inputs are adapters' to give."""
    if settings.translates:
        return [settings.names[role] for role in TRANSLATION_ROLES]
    names = [*(settings.names[role] for role in ROLES), *settings.caches(inputs)]
    if ENCODER in settings.others:
        names += [past for past in settings.cross_caches if past in inputs]
    return [*names, *zero_inputs(inputs)]


class FolderModels(SeveralModels):
    """The models of a folder, as a function of all their weights."""

    def __init__(self, settings: Settings, by_part: Mapping[str, Model]) -> None:
        super().__init__(by_part)
        self._settings = settings
        if problems := [*problems_between(settings, by_part)]:
            raise InvalidDesc(*problems)
        self._inputs = {part: types_of_inputs(model) for part, model in by_part.items()}
        self._cross_caches = _cross_caches(settings, by_part)

    def adapt(self, weights: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The weights with an adapter's arrays, by the names of the decoder's inputs, in place of theirs."""
        types = {tensor.name: tensor for tensor in loaded_graph(self.by_part[DECODER]).adapted}
        prefix, floats = "" if len(self.by_part) == 1 else f"{DECODER}.", self.float_type(weights)
        adapted = dict(weights)
        for name, x in arrays.items():
            if name not in types:
                rule = f"must be an input of {self._settings.files[DECODER].name} that adapters replace"
                raise InvalidDesc(Problem(("adapter", name), f"{rule}{did_you_mean(name, types)}"))
            dtype = types[name].dtype
            if x.dtype != dtype:
                raise InvalidType(Problem(("adapter", name), f"must be {dtype}", x.dtype))
            adapted[prefix + name] = jnp.asarray(x, floats if dtype in FLOATS else None)
        return adapted

    # Audio

    def check_audio(self, audio: Any, count: int, dtype: Any) -> Array | None:
        """Checks the audio of `count` sequences for `encode_audio`; `dtype` is that of floats, if not the file's."""
        if ENCODER not in self.by_part:
            if audio is not None:
                raise InvalidType(
                    Problem("audio", "must be left out, because the folder has no encoder", _describe(audio))
                )
            return None
        wanted = self._type_of_audio
        if audio is None:
            rule = f"must be given: {self._settings.files['encoder'].name} reads {wanted}"
            raise InvalidType(Problem("audio", rule, "none", remedy="audio=features"))
        features = array("audio", audio)
        sizes = wanted.sizes or ()
        differs = features.ndim != len(sizes) or any(
            isinstance(declared, int) and declared != size for declared, size in zip(sizes, features.shape, strict=True)
        )
        if differs:
            rule = f"must be {wanted}, as {self._settings.files['encoder'].name} has it"
            raise InvalidDesc(Problem("audio", rule, features.shape))
        if len(features) != count:
            raise InvalidDesc(Problem("audio", f"must have {count} rows, one for each prompt", len(features)))
        return jnp.asarray(features, dtype or jax.dtypes.canonicalize_dtype(wanted.dtype))

    def type_of_audio(self, batch: int, dtype: Any) -> jax.ShapeDtypeStruct:
        """The type of the audio of `batch` sequences, if the encoder fixes its sizes."""
        wanted = self._type_of_audio
        sizes: Any = (wanted.sizes or ())[1:]
        if not all(isinstance(size, int) for size in sizes):
            file = self._settings.files["encoder"].name
            raise Unsupported(Problem((file, wanted.name), "must have fixed sizes after the first", wanted))
        return jax.ShapeDtypeStruct((batch, *sizes), dtype or jax.dtypes.canonicalize_dtype(wanted.dtype))

    @property
    def _type_of_audio(self) -> TensorType:
        return self._inputs["encoder"][self._settings.others["encoder"].names["audio_features"]]

    def encode_audio(self, weights: Mapping[str, Any], audio: Array) -> dict[str, Array]:
        """The encoder's results for audio, by the names of the decoder's inputs."""
        results = self.run("encoder", weights, {self._type_of_audio.name: audio})
        return {past: results[present] for past, present in self._cross_caches.items()}

    # Images

    def encode_images(self, weights: Mapping[str, Any], images: Any, dtype: Any) -> Array | None:
        """The features of images, which are the inputs of the vision model by name; None if there are no images."""
        if images is None:
            return None
        if "vision" not in self.by_part:
            raise InvalidType(
                Problem("images", "must be left out, because the folder has no vision model", _describe(images))
            )
        if not isinstance(images, Mapping):
            wanted = join_words(self._inputs["vision"])
            raise InvalidType(Problem("images", f"must be a mapping with arrays for {wanted}", _describe(images)))
        names, types = self._settings.others["vision"].names, self._inputs["vision"]
        inputs = {names.get(role, role): value for role, value in images.items()}
        with inside("images"):
            arrays = {name: array(name, value) for name, value in inputs.items()}
            floats = (name for name, tensor in types.items() if tensor.dtype in FLOATS and name in arrays)
            arrays |= {name: jnp.asarray(arrays[name], dtype or types[name].dtype) for name in floats}
            return self.run("vision", weights, arrays)[names["image_features"]]

    def embed_tokens(
        self, weights: Mapping[str, Any], tokens: Array, features: Array | None = None, dtype: Any = None
    ) -> Array:
        """The rows that the embedding makes of tokens, with the features of images in their places.

        `dtype` is the type of floats, if not the file's.
        """
        names, types = self._settings.others["embedding"].names, self._inputs["embedding"]
        wanted = types[names["input_ids"]]
        inputs = {wanted.name: tokens.astype(jax.dtypes.canonicalize_dtype(wanted.dtype))}
        if (of_images := types.get(names["image_features"])) is not None:
            inputs[of_images.name] = self._unused_features(of_images, dtype) if features is None else features
        rows: Array = self.run("embedding", weights, inputs)[names["inputs_embeds"]]
        is_constant = rows.shape[:-1] == (1, 1)  # whichever tokens there are
        return jnp.broadcast_to(rows, (*tokens.shape, rows.shape[-1])) if is_constant else rows

    def _unused_features(self, of_images: TensorType, dtype: Any) -> Array:
        """Features for a text without images; embeddings may read a row even if they then take none."""
        rows = self._inputs[DECODER][self._settings.names["inputs_embeds"]]
        *sizes, last = of_images.sizes or (None,)
        width = next((size for size in (last, (rows.sizes or (None,))[-1]) if isinstance(size, int)), 1)
        return jnp.zeros([*(size if isinstance(size, int) else 1 for size in sizes), width], dtype or of_images.dtype)


def types_of_inputs(model: Model) -> dict[str, TensorType]:
    """The types of a model's inputs, including those with a default and those that adapters replace."""
    return {tensor.name: tensor for tensor in (*model.inputs, *model.defaults, *loaded_graph(model).adapted)}


def _cross_caches(settings: Settings, by_part: Mapping[str, Model]) -> dict[str, str]:
    """The decoder's inputs that the encoder computes, with the encoder's outputs for them."""
    if ENCODER not in by_part or settings.translates:
        return {}
    inputs = types_of_inputs(by_part[DECODER])
    return {past: present for past, present in settings.cross_caches.items() if past in inputs}


def require_appending_attention(graph: OnnxGraph, stacked: frozenset[str], mask: str, positions: str) -> None:
    """Raises if caches of keys and values in one array have another reader than causal attention under the mask."""
    masks = {mask}
    for node in graph.nodes:
        if node.operator in ("Cast", "Identity") and masks.issuperset(node.inputs):
            masks.update(node.outputs)
    for node in graph.nodes:
        if not (caches := stacked.intersection(names_read(node))):
            continue
        *_, mask_read, past = (*node.inputs, *[""] * _PAST)[: _PAST + 1]
        attributes = node.attributes
        is_causal = attributes.get("unidirectional") == 1 and not attributes.get("do_rotary")
        if node.operator != "Attention" or not is_causal or caches != {past} or mask_read not in masks:
            rule, remedy = "reads past tokens in a way that is not supported", "known is causal Attention with a mask"
            raise Unsupported(Problem(node.place, rule, min(caches), remedy=remedy))
    if positions not in graph.input_names:
        rule = "must have an input for positions beside caches with keys and values in one array"
        raise Unsupported(Problem((), rule, positions))


_PAST = 4  # the place of the cache among the inputs of Attention, after the mask

_AUDIO_ROLES = ((ENCODER, "inputs", "audio_features"),)
_TEXT_ROLES = (
    (ENCODER, "inputs", "input_ids"),
    (ENCODER, "inputs", "attention_mask"),
    (ENCODER, "outputs", "encoder_outputs"),
)
_ROLES = (
    ("embedding", "inputs", "input_ids"),
    ("embedding", "outputs", "inputs_embeds"),
    ("vision", "outputs", "image_features"),
)


def problems_between(settings: Settings, by_part: Mapping[str, Model]) -> Iterator[Problem]:
    """Lists the inputs and outputs that the loaded models lack for each other or for the settings."""
    of_encoder = _TEXT_ROLES if settings.translates else _AUDIO_ROLES
    of_images = (("embedding", "inputs", "image_features"),) if "vision" in by_part else ()
    for part, side, role in (*of_encoder, *_ROLES, *of_images):
        if part in by_part:
            name, known = settings.others[part].names[role], [tensor.name for tensor in getattr(by_part[part], side)]
            if name not in known:
                yield missing_name(settings, (part, side, role), name, known)
    if DECODER not in by_part or (ENCODER in settings.others and ENCODER not in by_part):
        return
    cross_caches = _cross_caches(settings, by_part)
    known = [output.name for output in by_part["encoder"].outputs] if cross_caches else []
    if missing := next((name for name in cross_caches.values() if name not in known), None):
        yield missing_name(settings, ("encoder", "outputs"), missing, known)
    supplied = {}
    for part, roles in ((ENCODER, [role for _, _, role in of_encoder]), ("embedding", ["input_ids", "image_features"])):
        if part in by_part:
            supplied[part] = [settings.others[part].names[role] for role in roles]
    for part, names in supplied.items():
        for tensor in by_part[part].inputs:
            if tensor.name not in names:
                yield _unknown_input(settings, part, tensor, names)


def problems_of_adapted(settings: Settings, decoder: Model) -> Iterator[Problem]:
    """Lists the inputs that a decoder needs and that do not look like an adapter's: matrices or vectors of floats."""
    for tensor in loaded_graph(decoder).adapted:
        looks_adapted = tensor.dtype in FLOATS and len(tensor.sizes or ()) in (1, 2)
        if tensor.name not in decoder.weights and not looks_adapted:
            yield _unknown_input(settings, DECODER, tensor, supplied_inputs(settings, types_of_inputs(decoder)))


def _unknown_input(settings: Settings, part: str, tensor: TensorType, known: Sequence[str]) -> Problem:
    rule, remedy = "not supported as an input", f"known are {join_words(known)}"
    return Problem((settings.files[part].name, tensor.name), rule, tensor, remedy=remedy)


def zero_inputs(inputs: Mapping[str, TensorType]) -> dict[str, Any]:
    """The inputs that say how many tokens have logits, which are 0 for all; PyTorch may name them by an operator."""
    return {
        name: np.zeros([1] * len(tensor.sizes or ()), tensor.dtype)
        for name, tensor in inputs.items()
        if name == "num_logits_to_keep" or name.startswith("onnx::Neg_")
    }


def problems_of_names(
    settings: Settings, inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]
) -> Iterator[Problem]:
    """Lists names in the settings that a model does not have, and sizes that differ from the model's."""
    names, caches, states = settings.names, settings.caches(inputs), settings.states(inputs)
    if settings.translates:
        yield from _problems_of_translation(settings, inputs, outputs)
        return
    used = {*caches, *caches.values()}
    reads = "inputs_embeds" if "embedding" in settings.others else "input_ids"
    sides = {"inputs": ("past", inputs, [reads, "attention_mask"]), "outputs": ("present", outputs, ["logits"])}
    for side, (past, known, roles) in sides.items():
        kinds = ("key_", "value_", "", "conv_", "recurrent_")
        for role in (*roles, *(f"{past}_{kind}names" for kind in kinds)):
            of_layers = (name for i in range(settings.layers) if (name := names[role] % i) in used)
            wanted = of_layers if role.endswith("_names") else [names[role]]
            missing = next((name for name in wanted if name not in known), None)
            if missing is not None:
                yield missing_name(settings, (DECODER, side, role), missing, known)
    fields = [("model", "vocab_size", settings.vocabulary, outputs.get(names["logits"]), -1)]
    stacked = settings.stacked(inputs)
    for name in (name for name in caches if name not in states):
        heads = 2 if name in stacked else 1
        fields.append(("decoder", "num_key_value_heads", settings.key_heads, inputs.get(name), heads))
        fields.append(("decoder", "head_size", settings.head_size, inputs.get(name), -1))
    reported = set()
    for part, field, declared, tensor, axis in fields:
        size = tensor.sizes[axis] if tensor is not None and tensor.sizes else None
        if isinstance(size, int) and size != declared and field not in reported:
            reported.add(field)
            yield Problem(
                (FILE, *dict.fromkeys(("model", part)), field), f"must be {size}, as {tensor} has it", declared
            )


def _problems_of_translation(
    settings: Settings, inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]
) -> Iterator[Problem]:
    sides = {"inputs": (inputs, TRANSLATION_ROLES), "outputs": (outputs, ("logits", "rnn_states"))}
    for side, (known, roles) in sides.items():
        for role in (role for role in roles if settings.names[role] not in known):
            yield missing_name(settings, (DECODER, side, role), settings.names[role], known)


def missing_name(settings: Settings, where: tuple[str, ...], name: str, known: Any) -> Problem:
    """The problem of a name that a model does not have among its inputs or outputs."""
    part, side, *_ = where
    rule, remedy = f"must name {side} of {settings.files[part].name}", f"it has {join_words(known)}"
    return Problem((FILE, "model", *where), rule, name, remedy=remedy)


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return show(value) if shape is None else f"an array of {shape}"
