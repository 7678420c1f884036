"""ONNX models as JAX functions: `load` reads a model, which you call with arrays.

Needs the package `onnx`, which the extra `onnx` installs.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from dmljax.onnx.graph.graph import TensorType as TensorType
from dmljax.onnx.model import Model as Model, load as load
from dmljax.text import hint_by_table as _hint, no_attribute as _no_attribute

if _TYPE_CHECKING:
    from dmljax.onnx.diffusion.model import DiffusionModel as DiffusionModel, diffusion_model as diffusion_model
    from dmljax.onnx.language.generation import Stream as Stream
    from dmljax.onnx.language.model import LanguageModel as LanguageModel, language_model as language_model
    from dmljax.onnx.language.state import State as State

_MODULES = {  # imported when they are first used
    "DiffusionModel": "dmljax.onnx.diffusion.model",
    "LanguageModel": "dmljax.onnx.language.model",
    "State": "dmljax.onnx.language.state",
    "Stream": "dmljax.onnx.language.generation",
    "diffusion_model": "dmljax.onnx.diffusion.model",
    "language_model": "dmljax.onnx.language.model",
}

__all__ = ["Model", "TensorType", "load", *_MODULES]
_ELSEWHERE = {  # names that ONNX Runtime, onnx and converters have
    "InferenceSession": "dmljax.onnx.load(path)(x)",
    "convert": "dmljax.onnx.load",
    "export": "Model.save, and jax.export for a program",
    "from_onnx": "dmljax.onnx.load",
    "load_model": "dmljax.onnx.load",
    "run": "dmljax.onnx.load(path)(x)",
    "save": "Model.save",
    "save_model": "Model.save",
}


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise _no_attribute("dmljax.onnx", name, _hint(name, _ELSEWHERE, __all__))
    value = globals()[name] = getattr(_import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
