"""GenAI's adapters: files of arrays that replace inputs of the model that decodes, for the generators that ask."""

import weakref
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.onnx import LanguageModel
from dmljax.onnx.graph.adapters import read_adapter
from dmljax.onnx.model import loaded_graph
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime.arguments import convert_feed, require_inputs
from dmljax.run.onnxruntime_genai.configuration import LIBRARY, require_type
from dmljax.run.onnxruntime_genai.models import Model
from dmljax.text import show


class Adapters(Answering):
    """The adapters of a model, by the names that a program gives them."""

    def __init__(self, model: Model) -> None:
        require_type("model", model, Model, "a Model")
        self._model = model
        self._loaded: dict[str, Mapping[str, np.ndarray[Any, Any]]] = {}
        self._placed: dict[str, dict[str, Any]] = {}  # on JAX's device, by the names of weights
        self._uses = Counter[str]()  # by generators

    def load(self, adapter_file_path: str, adapter_name: str) -> None:
        """Reads the file of an adapter."""
        require_type("adapter_file_path", adapter_file_path, str, "a text")
        require_type("adapter_name", adapter_name, str, "a text")
        with refusing(LIBRARY):
            if adapter_name in self._loaded:
                raise InvalidDesc(f"Adapter already loaded: {adapter_name}")
            self._loaded[adapter_name] = read_adapter(Path(adapter_file_path)).arrays

    def unload(self, adapter_name: str) -> None:
        """Forgets an adapter that no generator uses."""
        with refusing(LIBRARY):
            self._require(adapter_name)
            if self._uses[adapter_name]:
                raise InvalidDesc(f"Adapter still in use: {adapter_name}")
            del self._loaded[adapter_name]
            self._placed.pop(adapter_name, None)

    def _require(self, name: str) -> None:
        if name not in self._loaded:
            raise InvalidDesc(f"Adapter not found: {name}")

    def _acquire(self, name: str) -> None:
        self._require(name)
        self._uses[name] += 1

    def _release(self, name: str) -> None:
        self._uses[name] -= 1

    def _weights_of(self, name: str) -> Mapping[str, Any]:
        """The weights that an adapter replaces; raises with ONNX Runtime's words if its arrays do not fit the model."""
        if name not in self._placed:
            model = self._model._model
            types = {tensor.name: tensor for tensor in loaded_graph(model.model).adapted}
            require_inputs(self._loaded[name], types)
            arrays = {name: convert_feed(types[name], array) for name, array in self._loaded[name].items()}
            self._placed[name] = model.models.adapt({}, arrays)
        return self._placed[name]


class ActiveAdapters:
    """The adapters that a generator uses, which are not unloaded meanwhile; of two for an input, the last counts."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._active: list[tuple[Adapters, str]] = []

    def add(self, adapters: Any, name: Any) -> None:
        """Uses another adapter from now on."""
        with refusing(LIBRARY, type):
            if not isinstance(adapters, Adapters) or not isinstance(name, str):
                raise InvalidType(Problem((), "takes Adapters and a name", f"{show(adapters)} and {show(name)}"))
        with refusing(LIBRARY):
            if any(container is not adapters for container, _ in self._active):
                raise InvalidDesc("Generator state can only register a single Adapters container.")
            adapters._acquire(name)
        self._active.append((adapters, name))
        weakref.finalize(self, adapters._release, name)

    def weights(self) -> Mapping[str, Any] | None:
        """The model's weights with those of the adapters; raises if an input has no value. None for the model's own."""
        models = self._model.models
        if not (self._active or models.adapted):
            return None
        weights = models.weights
        for adapters, name in self._active:
            weights = {**weights, **adapters._weights_of(name)}
        if missing := [name for name in models.adapted if name not in weights]:
            raise InvalidDesc(f"Missing Input: {missing[0]}")
        return weights
