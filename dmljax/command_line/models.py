"""The models that several commands read, and the options about them.

Commands import this module only when they run, because it imports JAX.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
from jax.extend.backend import backends

import dmljax
from dmljax.command_line.terminal import YELLOW, color_text, quiet
from dmljax.dxdispatch.model import DispatchModel, Finding
from dmljax.dxdispatch.reading.reader import load
from dmljax.errors import InvalidDesc, Problem, require
from dmljax.text import did_you_mean, escape_controls, join_words, one_line
from dmljax.types import LATEST

# Options about reading models, by what they are for
OF_DXDISPATCH_MODELS = ("input_path", "dml_feature_level")
OF_SIZES = ("onnx_free_dim_name_override", "onnx_free_dim_denotation_override", "binding_shape")


def load_model(path: str, options: argparse.Namespace) -> DispatchModel:
    """Loads a DxDispatch model, from the standard input if the path is a dash."""
    if options.input_path is not None:
        require("input_path", options.input_path.is_dir(), "must be a folder that exists", one_line(options.input_path))
    return load(
        sys.stdin.buffer if path == "-" else path,
        input_path=options.input_path,
        feature_level=options.dml_feature_level or LATEST,
        free_dimension_name_overrides=dict(options.onnx_free_dim_name_override),
        free_dimension_denotation_overrides=dict(options.onnx_free_dim_denotation_override),
        binding_shapes=dict(options.binding_shape),
    )


def require_file(path: str, remedy: str | None = None) -> None:
    """Raises if a path is a folder, or another program's file; the remedy is for a language model's folder."""
    if Path(path).is_dir():
        if is_of_diffusion(Path(path)):
            remedy = "its models are text_encoder/model.onnx, unet/model.onnx and vae_decoder/model.onnx"
        elif not (Path(path) / "genai_config.json").exists():
            remedy = None
        rule = "the model must be a file, not a folder"
        raise InvalidDesc(Problem((), rule, escape_controls(path), remedy=remedy))
    for suffix, (program, purpose) in _PROGRAMS.items():
        if path.lower().endswith(suffix):
            remedy = f"`{program} {escape_controls(path)}` {purpose} it"
            raise InvalidDesc(Problem((), f"{escape_controls(path)} is no model", remedy=remedy))


_PROGRAMS = {".ipynb": ("jupyter lab", "opens"), ".py": ("python", "runs")}  # for files that only look like models


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


def find_device(platform: str | None, adapter: str | None = None) -> jax.Device:
    """Finds the device to run on, of JAX's choice if there is no platform and no part of a device's name."""
    if adapter is not None:
        devices = find_devices(platform)
        matches = [device for device in devices if adapter.lower() in _name_of(device).lower()]
        remedy = f"JAX has {join_words(dict.fromkeys(map(_name_of, devices)))} on this machine"
        require((), bool(matches), "--adapter must be a part of a device's name", repr(adapter), remedy=remedy)
        return matches[0]
    if platform:
        jax.config.update("jax_platforms", platform)
    try:
        with quiet():
            return jax.local_devices()[0]
    except Exception as error:  # JAX raises an AssertionError or a RuntimeError if it has no device
        reason = one_line(_REMEDY.sub("", str(error))) or "it has no such device, or no plugin for it"
        wanted = platform or os.environ.get("JAX_PLATFORMS")
        if wanted:
            # Without plugins, JAX complains about a plugin that nobody asked for.
            is_installed = bool(str(error)) and "list of known backends" not in reason
            given = wanted if "list of known backends" in reason else f"{wanted} ({reason})"
            option = "--platform" if platform else "JAX_PLATFORMS"
            rule = f"{option} must name a platform that JAX has on this machine"
            extra = None if is_installed else _INSTALLED_BY.get(wanted)
            raise InvalidDesc(Problem((), rule, given, remedy=extra)) from None
        raise InvalidDesc(Problem((), f"JAX found no platform to run on ({reason})")) from None


def find_devices(platform: str | None = None) -> list[jax.Device]:
    """Finds the devices of a platform, or all devices of this machine, first those that JAX would choose."""
    first = find_device(platform)
    devices = [device for client in backends().values() for device in client.local_devices()]
    return sorted(devices, key=lambda device: device.platform != first.platform)


def _name_of(device: jax.Device) -> str:
    platform, name = device.platform, device.device_kind
    return name if platform in name.lower() else f"{name} ({platform})"


def describe_device(device: jax.Device) -> dict[str, str]:
    """Describes a device: its name, its platform and, where JAX knows it, the memory that JAX may use."""
    from dmljax.estimation.report import format_amount

    memory = (device.memory_stats() or {}).get("bytes_limit")
    known_memory = {"memory": format_amount(memory, "B")} if memory else {}
    return {"name": device.device_kind, "platform": device.platform, **known_memory}


def versions() -> dict[str, str]:
    """The versions of dmljax, of its dependencies, and of the packages that its extras install."""
    versions = {"dmljax": dmljax.__version__}
    for package in ("jax", "jaxlib", "numpy", "onnx", "onnxruntime", "tokenizers", "pillow"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


_INSTALLED_BY = {
    "gpu": "for NVIDIA GPUs, pip install 'jax[cuda13]'",
    "cuda": "pip install 'jax[cuda13]'",
    "tpu": "pip install 'jax[tpu]'",
}
_REMEDY = re.compile(r" \((?:you may need|set JAX_PLATFORMS).*", re.DOTALL)  # JAX's advice, useless beside --platform


def refuse_model_options(path: str, options: argparse.Namespace, **others: object) -> None:
    """Raises if options are set that apply only to model files."""
    names = (*OF_DXDISPATCH_MODELS, *OF_SIZES)
    values = {name: getattr(options, name) for name in names}
    family = "diffusion" if is_of_diffusion(Path(path)) else "language"
    require_unset(path, f"is not for folders of {family} models", **values, **others)


def require_unset(path: str, rule: str, **values: object) -> None:
    """Raises if options are set that do not apply to a path."""
    for name, value in values.items():
        if value:
            raise InvalidDesc(Problem((), f"--{name} {rule}", escape_controls(path)))


def warn_without_effect(options: argparse.Namespace, names: Iterable[str], reason: str) -> None:
    """Warns of options that a user set although they change nothing."""
    values = {name: getattr(options, name) for name in names}
    ignored = [f"--{name}" for name, value in values.items() if not (value is None or value is False or value == [])]
    if ignored:
        words = f"{join_words(ignored)} {'has' if len(ignored) == 1 else 'have'} no effect {reason}"
        print(f"{color_text('warning', YELLOW, sys.stderr)}: {words}", file=sys.stderr)


def warn(warnings: Sequence[Finding], file: Any = None) -> None:
    """Prints warnings, to the standard error unless there is a file."""
    file = file or sys.stderr
    for warning in warnings:
        print(f"{color_text('warning', YELLOW, file)}: {warning}", file=file)
