"""GenAI's configurations: a folder's file, and what a program lays over it."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.onnx.language.settings import read_configuration, text_settings_of
from dmljax.run.answers import Answering, refusing, require_first_device
from dmljax.run.onnxruntime.arguments import warn
from dmljax.text import reason_of, show

LIBRARY = "onnxruntime_genai"


class Config(Answering):
    """The configuration of a folder. JAX chooses the device, whichever providers it names."""

    _REFUSED = {"from_package_ep": "packages of models are not supported; name the folder of one of its models"}

    def __init__(self, config_path: str) -> None:
        require_type("config_path", config_path, (str, PathLike), "the path of a folder")
        with refusing(LIBRARY):
            self._folder = Path(config_path)
            self._content = read_configuration(self._folder)
            self._files: dict[str, bytes] = {}  # in memory, by name

    def overlay(self, config: str) -> None:
        """Replaces the settings that a JSON text contains."""
        with refusing(LIBRARY):
            self._content = _merge(self._content, json_of("config", config, dict))

    def clear_providers(self) -> None:
        """Does nothing, because JAX chooses the device."""

    def append_provider(self, provider: str) -> None:
        """Does nothing, because JAX chooses the device."""
        _warn_of_unknown(provider)

    def set_provider_option(self, provider: str, name: str, value: str) -> None:
        """Raises if an option chooses another device than the first; other options have no effect."""
        _warn_of_unknown(provider)
        with refusing(LIBRARY):
            require_first_device(provider, {name: value})

    def set_decoder_provider_options_hardware_device_type(self, provider: str, value: str) -> None:
        """Does nothing, because JAX chooses the device."""

    def clear_decoder_provider_options_hardware_device_type(self, provider: str) -> None:
        """Does nothing, because JAX chooses the device."""

    set_decoder_provider_options_hardware_device_id = set_decoder_provider_options_hardware_device_type
    set_decoder_provider_options_hardware_vendor_id = set_decoder_provider_options_hardware_device_type
    clear_decoder_provider_options_hardware_device_id = clear_decoder_provider_options_hardware_device_type
    clear_decoder_provider_options_hardware_vendor_id = clear_decoder_provider_options_hardware_device_type

    def add_model_data(self, model_filename: str, data: Any) -> None:
        """Gives the content of a model's file, which is read instead of the file."""
        with refusing(LIBRARY):
            if not isinstance(data, bytes | bytearray | memoryview):
                raise InvalidType(Problem("data", "must be bytes", show(data)))
            self._files[model_filename] = bytes(data)

    def remove_model_data(self, model_filename: str) -> None:
        """Forgets the content of a model's file; models that are loaded keep it."""
        self._files.pop(model_filename, None)


class Folder(Answering):
    """A folder as it is configured."""

    def __init__(self, config: Any) -> None:
        configuration = config if isinstance(config, Config) else Config(config)
        self._folder, self._content = configuration._folder, configuration._content
        with refusing(LIBRARY):
            self._texts = text_settings_of(self._content)
            self._pad = int(self._content["model"].get("pad_token_id", 0))

    @property
    def type(self) -> str:
        """The architecture that the file names."""
        return str(self._content["model"].get("type", ""))


def require_type(name: str, value: Any, kind: type | tuple[type, ...], requirement: str) -> None:
    """Raises a TypeError, as GenAI does, if an argument has another type."""
    with refusing(LIBRARY, type):
        if not isinstance(value, kind):
            raise InvalidType(Problem(name, f"must be {requirement}", show(value)))


_NAMES_OF_DML = {"directml": "dml", "directmlexecutionprovider": "DmlExecutionProvider"}  # where GenAI has others


def _warn_of_unknown(provider: str) -> None:
    """Warns of names of DirectML's provider that GenAI refuses when it loads the model."""
    require_type("provider", provider, str, "the name of a provider")
    if name := _NAMES_OF_DML.get(provider.lower()):
        warn(f"GenAI knows no provider {provider!r}, did you mean {name}?")


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
