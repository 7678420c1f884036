"""The folders of ONNX Runtime GenAI: what `genai_config.json` says of a language model and of its search."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dmljax.errors import InvalidDesc, Problem, Unsupported, inside
from dmljax.files import opened
from dmljax.text import reason_of, show

FILE = "genai_config.json"
_MOST_BYTES = 2**20

_ABSENT = object()


class Search(NamedTuple):
    """How the next tokens are chosen, with the names of `genai_config.json`."""

    max_length: int
    min_length: int = 0
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0


class Settings(NamedTuple):
    """The settings of a folder's decoder."""

    file: Path
    names: Mapping[str, str]  # of inputs and outputs; `%d` in a cache's name stands for the layer
    layers: int
    key_heads: int
    head_size: int
    vocabulary: int
    context_length: int
    end_tokens: tuple[int, ...]
    search: Search


def read_settings(folder: Path) -> Settings:
    """Reads the configuration in a folder."""
    path = folder / FILE
    if folder.is_dir() and not path.exists():
        remedy = "a folder that onnxruntime_genai.models.builder made"
        raise InvalidDesc(Problem("folder", f"must have a {FILE}", show(str(folder)), remedy=remedy))
    with opened(path, _MOST_BYTES) as file:
        try:
            content = json.loads(file.read())
        except ValueError as error:
            raise InvalidDesc(Problem(FILE, "must be JSON", reason_of(error))) from None
    whole = _Fields((), content if isinstance(content, dict) else {})
    model = whole.inner("model")
    decoder = model.inner("decoder")
    for part in ("encoder", "embedding", "vision", "speech"):
        if part in model.values:
            raise Unsupported(Problem((FILE, "model", part), "models of several files are not supported"))
    ends = model.values.get("eos_token_id", [])
    ends = ends if isinstance(ends, list) else [ends]
    if not all(isinstance(one, int) for one in ends):
        raise InvalidDesc(Problem((FILE, "model", "eos_token_id"), "must be an integer, or a list of them", show(ends)))
    names = {**_NAMES, **decoder.inner("inputs").values, **decoder.inner("outputs").values}
    for name in (one for one in _NAMES if one.endswith("_names")):
        if str(names[name]).count("%d") != 1:
            raise InvalidDesc(
                Problem((FILE, "model", "decoder", name), "must have %d for the layer", show(names[name]))
            )
    filename = decoder.text("filename")
    if not (folder / filename).resolve().parent.is_relative_to(folder.resolve()) and Path(filename).name != filename:
        raise InvalidDesc(Problem((FILE, *decoder.path, "filename"), "must be a file in the folder", show(filename)))
    context_length = model.integer("context_length")
    return Settings(
        folder / filename,
        {name: str(value) for name, value in names.items()},
        decoder.integer("num_hidden_layers"),
        decoder.integer("num_key_value_heads"),
        decoder.integer("head_size"),
        model.integer("vocab_size"),
        context_length,
        tuple(ends),
        _search(whole.inner("search"), context_length),
    )


_NAMES = {
    "input_ids": "input_ids",
    "attention_mask": "attention_mask",
    "position_ids": "position_ids",
    "past_key_names": "past_key_values.%d.key",
    "past_value_names": "past_key_values.%d.value",
    "past_conv_names": "past.%d.conv",
    "past_recurrent_names": "past.%d.recurrent",
    "logits": "logits",
    "present_key_names": "present.%d.key",
    "present_value_names": "present.%d.value",
    "present_conv_names": "present.%d.conv",
    "present_recurrent_names": "present.%d.recurrent",
}


class _Fields(NamedTuple):
    """An object of the file."""

    path: tuple[str, ...]
    values: Mapping[str, Any]

    def taken(self, name: str, kind: type, wanted: str) -> Any:
        value = self.values.get(name, _ABSENT)
        if not isinstance(value, kind) or isinstance(value, bool):
            given = "none" if value is _ABSENT else show(value)
            raise InvalidDesc(Problem((FILE, *self.path, name), f"must be {wanted}", given))
        return value

    def inner(self, name: str) -> "_Fields":
        return _Fields((*self.path, name), self.taken(name, dict, "an object"))

    def integer(self, name: str) -> int:
        return int(self.taken(name, int, "an integer"))

    def text(self, name: str) -> str:
        return str(self.taken(name, str, "a text"))


def _search(fields: _Fields, context_length: int) -> Search:
    values = fields.values
    if values.get("num_beams", 1) != 1:
        raise Unsupported(Problem((FILE, "search", "num_beams"), "beams are not supported", values["num_beams"]))
    given = {name: values[name] for name in Search._fields if name in values}
    if isinstance(given.get("max_length"), int):
        given["max_length"] = min(given["max_length"], context_length)
    with inside((FILE, *fields.path)):
        return with_options(Search(context_length), given, context_length)


def with_options(search: Search, given: Mapping[str, Any], context_length: int) -> Search:
    """The search with the options that are given and not None, after checking them."""
    options = {name: value for name, value in given.items() if value is not None}
    for name, value in options.items():
        kinds, lowest, highest, rule = _RULES[name]
        if name == "max_length":
            highest, rule = context_length, f"an integer from 1 to {context_length}, the model's context"
        is_right = isinstance(value, kinds) and (bool in kinds) == isinstance(value, bool)
        if not is_right or not lowest <= value <= highest:
            raise InvalidDesc(Problem(name, f"must be {rule}", show(value)))
    return search._replace(**options)


_LARGE = float(2**31)
_RULES: dict[str, tuple[tuple[type, ...], float, float, str]] = {
    "max_length": ((int,), 1, _LARGE, ""),
    "min_length": ((int,), 0, _LARGE, "an integer of at least 0"),
    "do_sample": ((bool,), 0, 1, "True or False"),
    "temperature": ((int, float), 1e-6, _LARGE, "a positive number"),
    "top_k": ((int,), 0, _LARGE, "an integer of at least 0, where 0 keeps all tokens"),
    "top_p": ((int, float), 1e-6, 1, "a number above 0 and at most 1"),
    "repetition_penalty": ((int, float), 1e-6, _LARGE, "a positive number"),
}
