"""The folders of ONNX Runtime GenAI: the settings of a language model and its search in `genai_config.json`."""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dmljax.errors import InvalidDesc, Problem, Unsupported, all_checked, inside
from dmljax.foundation.checks import integer_in
from dmljax.foundation.files import read_object, require_folder
from dmljax.onnx.graph.reader import read_types_of_inputs
from dmljax.onnx.language.sampling import Search, with_options
from dmljax.text import did_you_mean, join_words, show

FILE = "genai_config.json"
DIFFUSION_FILE = "model_index.json"  # of the folders that have a diffusion model instead
TRANSLATION = "marian-ssru"  # the kind of models that read a whole text before they write another
_MOST_BYTES = 2**20

_ABSENT = object()


class FileSettings(NamedTuple):
    """The settings of a model that works for the decoder."""

    file: Path
    names: Mapping[str, str]  # of inputs and outputs


class TextSettings(NamedTuple):
    """The settings of a folder's texts and of its search, whichever models it has."""

    vocabulary: int
    context_length: int
    end_tokens: tuple[int, ...]
    search: Search


class Settings(NamedTuple):
    """The settings of a folder's decoder, and of the models that work for it."""

    file: Path
    names: Mapping[str, str]  # of inputs and outputs; `%d` in a cache's name stands for the layer
    layers: int
    key_heads: int
    head_size: int
    vocabulary: int
    context_length: int
    end_tokens: tuple[int, ...]
    search: Search
    kind: str | None = None  # of model, such as llama
    heads: int | None = None
    others: Mapping[str, FileSettings] = {}  # encoder, embedding and vision, those that the folder has
    image_token: int | None = None  # that stands in prompts for a row of an image's features
    start_token: int | None = None
    pad_token: int | None = None
    contents: Mapping[Path, bytes] = {}  # of files that are in memory

    @property
    def files(self) -> dict[str, Path]:
        """The file of each model, by part."""
        return {"decoder": self.file, **{part: other.file for part, other in self.others.items()}}

    @property
    def translates(self) -> bool:
        """Whether an encoder reads a whole text before the decoder writes another."""
        return self.kind == TRANSLATION

    @property
    def cross_caches(self) -> dict[str, str]:
        """The decoder's inputs that an encoder computes, once, with the encoder's outputs for them."""
        encoder = self.others["encoder"].names
        caches = {self.names["encoder_hidden_states"]: encoder["encoder_hidden_states"]}
        for role in ("key", "value"):
            past, present = self.names[f"cross_past_{role}_names"], encoder[f"cross_present_{role}_names"]
            caches |= {past % layer: present % layer for layer in range(self.layers)}
        return caches

    def caches(self, inputs: Collection[str]) -> dict[str, str]:
        """The inputs that keep what the model has read, with the outputs that follow them.

        A layer has keys and values, or states of convolutions and of linear attention.
        """
        states = self.states(inputs)
        pairs: dict[str, str] = {}
        for layer in range(self.layers):
            of_layer = self._pairs(layer, "conv", "recurrent")
            layer_states = {past: present for past, present in of_layer.items() if past in states}
            stacked = {past: present for past, present in self._stacked_pair(layer).items() if past in inputs}
            if not (layer_states or stacked) or self.names["past_key_names"] % layer in inputs:
                pairs |= self._pairs(layer, "key", "value")
            pairs |= stacked | layer_states
        return pairs

    def states(self, inputs: Collection[str]) -> set[str]:
        """The inputs that are states, which each token changes."""
        return {past for i in range(self.layers) for past in self._pairs(i, "conv", "recurrent") if past in inputs}

    def stacked(self, inputs: Collection[str]) -> set[str]:
        """The inputs that have the keys and the values of a layer in one array, as GPT-2's do."""
        return {past for i in range(self.layers) for past in self._stacked_pair(i) if past in inputs}

    def _stacked_pair(self, layer: int) -> dict[str, str]:
        return {self.names["past_names"] % layer: self.names["present_names"] % layer}

    def _pairs(self, layer: int, *roles: str) -> dict[str, str]:
        names = self.names
        return {names[f"past_{role}_names"] % layer: names[f"present_{role}_names"] % layer for role in roles}


def read_settings(folder: Path) -> Settings:
    """Reads the configuration in a folder."""
    return settings_of(folder, read_configuration(folder))


def read_configuration(folder: Path) -> dict[str, Any]:
    """Reads the content of the configuration in a folder."""
    require_folder(folder)
    if not (folder / FILE).exists():
        is_of_diffusion = (folder / DIFFUSION_FILE).exists()
        remedy = (
            f"dmljax.onnx.diffusion_model loads a folder with {DIFFUSION_FILE}"
            if is_of_diffusion
            else "a folder that onnxruntime_genai.models.builder made"
        )
        raise InvalidDesc(Problem("folder", f"must have a {FILE}", show(str(folder)), remedy=remedy))
    return read_object(folder, FILE, _MOST_BYTES)


def text_settings_of(content: Mapping[str, Any]) -> TextSettings:
    """The settings of texts and of the search in a configuration; one error lists all wrong fields."""
    whole = _Fields((), content)
    model = whole.inner("model")
    search, context_length, vocabulary, ends = all_checked(
        lambda: whole.inner("search", is_optional=True),
        lambda: model.integer("context_length"),
        lambda: model.integer("vocab_size"),
        lambda: _end_tokens(model),
    )
    return TextSettings(vocabulary, context_length, ends, _search(search, context_length))


def settings_of(
    folder: Path, content: Mapping[str, Any], files_in_memory: Mapping[str, bytes] | None = None
) -> Settings:
    """The settings in the configuration of a folder; one error lists all wrong fields."""
    contents = {folder / name: data for name, data in (files_in_memory or {}).items()}
    model = _Fields((), content).inner("model")
    _require_known_parts(model)
    decoder = model.inner("decoder")
    texts, *counts, file, names, others = all_checked(
        lambda: text_settings_of(content),
        *(partial(decoder.integer, name, is_optional=True) for name in _COUNTS),
        lambda: _file(folder, decoder, contents),
        lambda: _names(decoder, _NAMES),
        lambda: _others(folder, model, contents),
    )
    layers, key_heads, head_size = counts
    settings = Settings(
        file=file,
        names=names,
        layers=layers,
        key_heads=key_heads,
        head_size=head_size,
        **texts._asdict(),
        kind=model.values.get("type"),
        heads=decoder.values.get("num_attention_heads"),
        others=others,
        image_token=model.values.get("image_token_id"),
        start_token=model.values.get("bos_token_id"),
        pad_token=model.values.get("pad_token_id"),
        contents=contents,
    )
    return _with_counts_of_model(settings) if None in counts else settings


_COUNTS = ("num_hidden_layers", "num_key_value_heads", "head_size")


def _with_counts_of_model(settings: Settings) -> Settings:
    """Finds the numbers of layers, of key heads and of their elements, where they are left out, in the decoder."""
    types = read_types_of_inputs(settings.contents.get(settings.file, settings.file))
    if settings.layers is None:
        settings = settings._replace(layers=_count_layers(settings.names, types))
    caches = settings.caches(types).keys() - settings.states(types)
    sizes = next((types[name].sizes for name in sorted(caches) if name in types), None) or (0, 0, 0)
    key_heads, _, head_size = (size if isinstance(size, int) else 0 for size in sizes[-3:])
    return settings._replace(
        key_heads=key_heads if settings.key_heads is None else settings.key_heads,
        head_size=head_size if settings.head_size is None else settings.head_size,
    )


def with_layers_of_model(settings: Settings, inputs: Collection[str]) -> Settings:
    """Adds layers that the decoder has and the configuration does not count, and finds their states as GenAI does.

    States may have the names of keys with another ending.
    """
    if settings.translates:
        return settings
    names, places = dict(settings.names), range(len(inputs))
    for kind in ("conv", "recurrent"):
        before = {side: names[f"{side}_key_names"].rpartition(".")[0] for side in ("past", "present")}
        if not all("%d" in name for name in before.values()):
            continue
        found = {f"{side}_{kind}_names": f"{name}.{kind}_state" for side, name in before.items()}
        configured, other = (of_side[f"past_{kind}_names"] for of_side in (names, found))
        if any(other % i in inputs for i in places) and not any(configured % i in inputs for i in places):
            names |= found
    return settings._replace(names=names, layers=max(settings.layers, _count_layers(names, inputs)))


def _count_layers(names: Mapping[str, str], inputs: Collection[str]) -> int:
    pasts = [name for role, name in names.items() if role.startswith("past_") and "%d" in name]
    numbered = [i for i in range(len(inputs)) if any(name % i in inputs for name in pasts)]
    return max(numbered, default=-1) + 1


def _require_known_parts(model: "_Fields") -> None:
    """Raises if a model has other parts, or a part that is a chain of models."""
    for part in ("speech", "joiner"):
        if part in model.values:
            raise Unsupported(Problem((FILE, "model", part), "not supported", remedy=f"known are {_KNOWN}"))
    for part in ("decoder", *_NAMES_OF_OTHERS):
        fields = model.values.get(part)
        if isinstance(fields, dict) and "pipeline" in fields:
            rule = "not supported; a part must be one file"
            raise Unsupported(Problem((FILE, "model", part, "pipeline"), rule))
    if "vision" in model.values and "embedding" not in model.values:
        raise InvalidDesc(Problem((FILE, "model", "embedding"), "must be an object beside vision", "none"))


def _others(folder: Path, model: "_Fields", contents: Collection[Path]) -> dict[str, FileSettings]:
    """The settings of the models that work for the decoder."""
    fields = {part: model.inner(part) for part in _NAMES_OF_OTHERS if part in model.values}
    known = _NAMES_OF_OTHERS.items()
    return {
        part: FileSettings(_file(folder, fields[part], contents), _names(fields[part], roles))
        for part, roles in known
        if part in fields
    }


def _file(folder: Path, part: "_Fields", contents: Collection[Path]) -> Path:
    name = part.text("filename")
    path = folder / name
    is_inside = path.resolve().parent.is_relative_to(folder.resolve()) or Path(name).name == name
    if not is_inside or not (path in contents or path.exists()):
        raise InvalidDesc(Problem((FILE, *part.path, "filename"), "must be a file in the folder", show(name)))
    return path


def _names(part: "_Fields", known: Mapping[str, str]) -> dict[str, str]:
    names = {**known, **part.inner("inputs").values, **part.inner("outputs").values}
    for name in (field for field in known if field.endswith("_names")):
        if str(names[name]).count("%d") != 1:
            rule = "must have %d for the layer"
            raise InvalidDesc(Problem((FILE, *part.path, name), rule, show(names[name])))
    return {name: str(value) for name, value in names.items()}


def _end_tokens(model: "_Fields") -> tuple[int, ...]:
    value = model.values.get("eos_token_id", [])
    ends = value if isinstance(value, list) else [value]
    if not all(isinstance(token, int) for token in ends):
        rule = "must be an integer, or a list of them"
        raise InvalidDesc(Problem((FILE, "model", "eos_token_id"), rule, show(ends)))
    return tuple(ends)


_NAMES = {
    "input_ids": "input_ids",
    "inputs_embeds": "inputs_embeds",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
    "past_names": "past_%d",
    "past_conv_names": "past.%d.conv",
    "past_recurrent_names": "past.%d.recurrent",
    "encoder_hidden_states": "encoder_hidden_states",
    "cross_past_key_names": "past_key_cross_%d",
    "cross_past_value_names": "past_value_cross_%d",
    "encoder_attention_mask": "encoder_attention_mask",
    "rnn_states_prev": "rnn_states_prev",
    "past_key_values_length": "past_key_values_length",
    "logits": "logits",
    "rnn_states": "rnn_states",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
    "present_names": "present_%d",
    "present_conv_names": "present.%d.conv",
    "present_recurrent_names": "present.%d.recurrent",
}
_NAMES_OF_OTHERS = {
    "encoder": {
        "audio_features": "audio_features",
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "encoder_outputs": "encoder_outputs",
        "encoder_hidden_states": "encoder_hidden_states",
        "cross_present_key_names": "present_key_cross_%d",
        "cross_present_value_names": "present_value_cross_%d",
    },
    "embedding": {"input_ids": "input_ids", "image_features": "image_features", "inputs_embeds": "inputs_embeds"},
    "vision": {"image_features": "image_features"},
}
_KNOWN = join_words(["decoder", *_NAMES_OF_OTHERS])


class _Fields(NamedTuple):
    """An object of the file."""

    path: tuple[str, ...]
    values: Mapping[str, Any]

    def take(self, name: str, expected_type: type, wanted: str) -> Any:
        value = self.values.get(name, _ABSENT)
        if not isinstance(value, expected_type) or isinstance(value, bool):
            given = "none" if value is _ABSENT else show(value)
            raise InvalidDesc(Problem((FILE, *self.path, name), f"must be {wanted}", given))
        return value

    def inner(self, name: str, *, is_optional: bool = False) -> "_Fields":
        is_left_out = is_optional and name not in self.values
        return _Fields((*self.path, name), {} if is_left_out else self.take(name, dict, "an object"))

    def integer(self, name: str, *, is_optional: bool = False) -> Any:
        """An integer of at least 0; None if it is optional and left out."""
        if is_optional and name not in self.values:
            return None
        return int(integer_in((FILE, *self.path, name), self.take(name, int, "an integer"), 0, _LARGE))

    def text(self, name: str) -> str:
        return str(self.take(name, str, "a text"))


def _search(fields: _Fields, context_length: int) -> Search:
    values = fields.values
    known = (*Search._fields, *_WITHOUT_EFFECT)
    for name in values:
        if name not in known:
            raise InvalidDesc(Problem((FILE, *fields.path, name), f"unknown field{did_you_mean(name, known)}"))
    options = {name: values[name] for name in Search._fields if name in values}
    if isinstance(options.get("max_length"), int):
        options["max_length"] = min(options["max_length"], context_length)
    with inside((FILE, *fields.path)):
        return with_options(Search(context_length), options, context_length)


_WITHOUT_EFFECT = (  # with sizes and keys from calls
    *("batch_size", "chunk_size", "diversity_penalty", "past_present_share_buffer", "random_seed"),
)
_LARGE = 2**31 - 1
