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
    **dict.fromkeys(("InferenceSession", "run", "predict", "infer"), "dmljax.onnx.load(path)(x)"),
    **dict.fromkeys(("convert", "from_onnx", "load_model", "read", "ModelProto", "to_jax"), "dmljax.onnx.load"),
    **dict.fromkeys(
        ("check", "check_model", "checker", "validate", "is_supported"),
        "dmljax.onnx.load(path), whose error lists unsupported operators; `dmljax check FILE` asks for DirectML",
    ),
    **dict.fromkeys(("infer_shapes", "shape_inference"), "jax.eval_shape(dmljax.onnx.load(path), x)"),
    "quantize": "onnxruntime.quantization.quantize_dynamic(path, new_path), and load that",
    **dict.fromkeys(
        ("optimize", "simplify", "fuse"), "dmljax.onnx.load(path), which rewrites the graph; XLA does the rest"
    ),
    **dict.fromkeys(("compile", "jit"), "jax.jit(dmljax.onnx.load(path))"),
    **dict.fromkeys(
        ("from_jax", "to_onnx"),
        "jax.export.export(jax.jit(function))(x): dmljax reads ONNX, and writes only what it read",
    ),
    **dict.fromkeys(
        ("generate", "pipeline", "Generator", "Tokenizer"), "dmljax.onnx.language_model(folder).generate(prompts)"
    ),
    "export": "Model.save, and jax.export for a program",
    **dict.fromkeys(("save", "save_model"), "Model.save"),
    **dict.fromkeys(("estimate", "cost"), "dmljax.estimate(dmljax.onnx.load(path), x, target='h100')"),
    **dict.fromkeys(("helper", "parser", "numpy_helper", "make_model"), "the package onnx, whose models load takes"),
}


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise _no_attribute("dmljax.onnx", name, _hint(name, _ELSEWHERE, __all__))
    value = globals()[name] = getattr(_import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
