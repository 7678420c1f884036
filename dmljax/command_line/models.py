"""The models that several commands read, and the options about them.

Commands import this module only when they run, because it imports JAX.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from dmljax.command_line.terminal import YELLOW, color_text, quiet
from dmljax.dxdispatch.model import DispatchModel, Finding
from dmljax.dxdispatch.reading.reader import load
from dmljax.errors import InvalidDesc, Problem, require
from dmljax.text import did_you_mean, escape_controls, join_words, one_line
from dmljax.types import LATEST


def load_model(path: str, options: argparse.Namespace) -> DispatchModel:
    """Loads a DxDispatch model, from the standard input if the path is a dash."""
    return load(
        sys.stdin.buffer if path == "-" else path,
        input_path=options.input_path,
        feature_level=options.dml_feature_level or LATEST,
        free_dimension_name_overrides=dict(options.onnx_free_dim_name_override),
        free_dimension_denotation_overrides=dict(options.onnx_free_dim_denotation_override),
        binding_shapes=dict(options.binding_shape),
    )


def require_file(path: str, remedy: str | None = None) -> None:
    """Raises if a path is a folder; the remedy is for a language model's folder."""
    if Path(path).is_dir():
        if is_of_diffusion(Path(path)):
            remedy = "its models are text_encoder/model.onnx, unet/model.onnx and vae_decoder/model.onnx"
        elif not (Path(path) / "genai_config.json").exists():
            remedy = None
        rule = "the model must be a file, not a folder"
        raise InvalidDesc(Problem((), rule, escape_controls(path), remedy=remedy))


def is_of_diffusion(path: Path) -> bool:
    """Whether a folder is of a diffusion model."""
    return (path / "model_index.json").exists()


def is_onnx(path: str) -> bool:
    """Whether a path names an ONNX model."""
    return path.lower().endswith(".onnx")


def sizes_of_inputs(
    model: Any, options: argparse.Namespace, shapes: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Any:
    """Collects the sizes of inputs from options; `--binding_shape` may also name outputs, which the model computes."""
    from dmljax.command_line.onnx.input_types import GivenSizes

    outputs = {tensor.name for tensor in model.outputs}
    names = {size for tensor in model.inputs for size in tensor.sizes or () if isinstance(size, str)}
    for name, _ in options.onnx_free_dim_name_override:
        rule = f"-f must name an open size of the inputs, {join_words(map(str, model.inputs))}"
        require((), name in names, rule, repr(name) + did_you_mean(name, names))
    of_inputs = {name: shape for name, shape in options.binding_shape if name not in outputs}
    known = {name: size for name, size in options.onnx_free_dim_name_override if isinstance(size, int)}
    return GivenSizes({**of_inputs, **shapes}, known, dict(options.onnx_free_dim_denotation_override))


def find_device(platform: str | None) -> jax.Device:
    """Finds the device to run on, of JAX's choice if there is no platform."""
    if platform:
        jax.config.update("jax_platforms", platform)
    try:
        with quiet():
            return jax.local_devices()[0]
    except Exception as error:  # JAX raises an AssertionError or a RuntimeError if it has no device
        reason = one_line(_REMEDY.sub("", str(error))) or "JAX gave no reason"
        if platform:
            # Without plugins, JAX complains about a plugin that nobody asked for.
            is_installed = "list of known backends" not in reason
            given = f"{platform} ({reason})" if is_installed else platform
            remedy = None if is_installed else _INSTALLED_BY.get(platform)
            rule = "--platform must name a platform that JAX has on this machine"
            raise InvalidDesc(Problem((), rule, given, remedy=remedy)) from None
        raise InvalidDesc(Problem((), f"JAX found no platform to run on ({reason})")) from None


_INSTALLED_BY = {
    "gpu": "for NVIDIA GPUs, pip install 'jax[cuda13]'",
    "cuda": "pip install 'jax[cuda13]'",
    "tpu": "pip install 'jax[tpu]'",
}
_REMEDY = re.compile(r" \((?:you may need|set JAX_PLATFORMS).*", re.DOTALL)  # JAX's advice, useless beside --platform


def refuse_model_options(path: str, options: argparse.Namespace, **others: object) -> None:
    """Raises if options are set that apply only to model files."""
    names = ("input_path", "dml_feature_level", *_SIZES)
    values = {name: getattr(options, name) for name in names}
    family = "diffusion" if is_of_diffusion(Path(path)) else "language"
    require_unset(path, f"is not for folders of {family} models", **values, **others)


_SIZES = ("onnx_free_dim_name_override", "onnx_free_dim_denotation_override", "binding_shape")


def require_unset(path: str, rule: str, **values: object) -> None:
    """Raises if options are set that do not apply to a path."""
    for name, value in values.items():
        if value:
            raise InvalidDesc(Problem((), f"--{name} {rule}", escape_controls(path)))


def warn(warnings: Sequence[Finding], file: Any = None) -> None:
    """Prints warnings, to the standard error unless there is a file."""
    file = file or sys.stderr
    for warning in warnings:
        print(f"{color_text('warning', YELLOW, file)}: {warning}", file=file)
