"""GenAI's configurations: a folder's file, and what a program lays over it."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.onnx.language.model import model_of
from dmljax.onnx.language.settings import read_configuration, settings_of
from dmljax.run.answers import Answering, refusing, require_first_device
from dmljax.text import did_you_mean, reason_of, show

LIBRARY = "onnxruntime_genai"


class Config(Answering):
    """The configuration of a folder. JAX chooses the device, whichever providers it names."""

    def __init__(self, config_path: str) -> None:
        with refusing(LIBRARY):
            self._folder = Path(config_path)
            self._content = read_configuration(self._folder)

    def overlay(self, config: str) -> None:
        """Replaces the settings that a JSON text contains."""
        with refusing(LIBRARY):
            self._content = _merge(self._content, json_of("config", config, dict))

    def clear_providers(self) -> None:
        """Does nothing, because JAX chooses the device."""

    def append_provider(self, provider: str) -> None:
        """Does nothing, because JAX chooses the device."""

    def set_provider_option(self, provider: str, name: str, value: str) -> None:
        """Raises if an option chooses another device than the first; other options have no effect."""
        with refusing(LIBRARY):
            require_first_device(provider, {name: value})


class Model(Answering):
    """The language model of a folder."""

    def __init__(self, config: Any) -> None:
        configuration = config if isinstance(config, Config) else Config(config)
        with refusing(LIBRARY):
            self._folder, self._content = configuration._folder, configuration._content
            self._model = model_of(settings_of(configuration._folder, configuration._content))
            self._pad = int(self._content["model"].get("pad_token_id", 0))

    @property
    def type(self) -> str:
        """The architecture that the file names."""
        return str(self._content["model"].get("type", ""))

    @property
    def device_type(self) -> str:
        """The device that JAX computes on, as GenAI spells it."""
        return {"cpu": "CPU", "gpu": "CUDA"}.get(jax.default_backend(), jax.default_backend().upper())


class GeneratorParams(Answering):
    """How the next tokens are chosen."""

    def __init__(self, model: Model) -> None:
        self._model = model
        with refusing(LIBRARY):
            self._options = _with_options(DEFAULTS, model._content.get("search", {}))
        settings = model._model.settings
        if not self._options["max_length"]:
            self._options["max_length"] = settings.context_length

    def set_search_options(self, **options: Any) -> None:
        with refusing(LIBRARY):
            changed = _with_options(self._options, options)
            most = self._model._model.settings.context_length
            if changed["max_length"] > most:
                rule = f"must be at most {most}, the model's context_length"
                raise InvalidDesc(Problem("max_length", rule, changed["max_length"]))
            self._options = changed

    def get_search_options(self) -> dict[str, Any]:
        return {name: value if isinstance(value, bool) else float(value) for name, value in self._options.items()}


DEFAULTS: Mapping[str, Any] = {
    "batch_size": 1,
    "chunk_size": 0,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": True,
    "length_penalty": 1.0,
    "max_length": 0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "past_present_share_buffer": False,
    "random_seed": -1,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 0.0,
}
_KEPT = ("num_beams", "num_return_sequences")  # dmljax searches greedily, or draws


def _with_options(known: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sets options after checking them; dmljax has no beams, and ignores options that tune memory."""
    options = dict(known)
    for name, value in changes.items():
        if name not in options:
            rule = f"must be an option of GenAI's search{did_you_mean(name, options)}"
            raise InvalidType(Problem(("search", name), rule, show(value)))
        default = DEFAULTS[name]
        is_whole = not isinstance(value, float) or value.is_integer()
        is_right = isinstance(value, bool) if isinstance(default, bool) else isinstance(value, int | float)
        if not is_right or isinstance(value, bool) != isinstance(default, bool):
            requirement = "True or False" if isinstance(default, bool) else "a number"
            raise InvalidType(Problem(("search", name), f"must be {requirement}", show(value)))
        if isinstance(default, int) and not is_whole:
            raise InvalidType(Problem(("search", name), "must be an integer", show(value)))
        options[name] = type(default)(value)
        if name in _KEPT and options[name] != default:
            raise Unsupported(Problem(("search", name), f"must be {default}: dmljax has no beams", show(value)))
    return options


def options_of_generation(options: Mapping[str, Any]) -> dict[str, Any]:
    """Converts options to those of `LanguageModel.generate`, with a key if tokens are drawn."""
    names = ("max_length", "min_length", "repetition_penalty", "no_repeat_ngram_size")
    search = {name: options[name] for name in names}
    is_drawn = options["do_sample"] and options["top_k"] != 1 and options["temperature"] != 0
    if not is_drawn:
        return {**search, "do_sample": False}
    seed = options["random_seed"]
    key = jax.random.key(secrets.randbits(32) if seed < 0 else seed)
    top_p = options["top_p"] or 1.0  # GenAI's 0 keeps all tokens
    drawn = {"temperature": options["temperature"], "top_k": options["top_k"], "top_p": top_p}
    return {**search, "do_sample": True, "key": key, **drawn}


def json_of(name: str, text: str, form: type) -> Any:
    """Parses a JSON text."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError) as error:
        raise InvalidDesc(Problem(name, "must be JSON", reason_of(error))) from None
    if not isinstance(value, form):
        raise InvalidDesc(Problem(name, f"must be JSON of a {form.__name__}", show(value)))
    return value


def _merge(whole: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(whole)
    for name, value in over.items():
        known = merged.get(name)
        merged[name] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
