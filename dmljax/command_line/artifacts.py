"""Runs and describes artifacts: programs that `dmljax compile` or `jax.export` wrote.

The package onnx need not be installed for them.
"""

import argparse
import ast
import json
import operator
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.command_line.models import OF_DXDISPATCH_MODELS, find_device, require_unset, warn_without_effect
from dmljax.command_line.onnx import timing
from dmljax.command_line.onnx.arrays import SEED, array_of_input, draw_array, files_by_name
from dmljax.command_line.terminal import count_text
from dmljax.errors import DmlError, InvalidDesc, Problem, Unsupported, require
from dmljax.estimation import artifacts
from dmljax.foundation.programs.compiling import Program
from dmljax.text import did_you_mean, escape_controls, join_words, one_line, reason_of
from dmljax.types import x64_enabled

_PLATFORMS = {"cpu": {"cpu"}, "gpu": {"cuda", "rocm"}, "tpu": {"tpu"}}  # of a device, as artifacts name them


def describe_artifact(path: str) -> dict[str, Any]:
    """Describes an artifact's platforms, devices and types, ready for JSON."""
    artifact, _ = artifacts.read(path)
    weights = artifacts.types_of_weights(artifact) if artifact.nr_devices > 1 else None
    return {**artifacts.describe(artifact), **({} if weights is None else {"weights": len(weights)})}


def artifact_lines(path: str) -> Iterator[str]:
    """Describes an artifact in lines, with what runs it."""
    artifact, _ = artifacts.read(path)
    file = escape_controls(path)
    yield f"{file}: an artifact for {join_words(artifact.platforms)}"
    yield f"{file}: {artifacts.signature(artifact)}"
    if artifact.nr_devices > 1:
        weights = count_text(len(artifacts.types_of_weights(artifact) or ()), "weight")
        yield f"{file}: divided among {artifact.nr_devices} devices, with {weights} as an argument"


def run_artifact(path: str, options: argparse.Namespace) -> None:
    """Runs an artifact on arrays from files, or on random numbers, and times it."""
    require_unset(path, "is not for artifacts", compare=options.compare, fuse=options.fuse)
    begin = time.perf_counter()
    artifact, digest = artifacts.read(path)
    loaded = time.perf_counter() - begin
    if options.emit:
        remedy = "--emit stablehlo"
        require("emit", options.emit == "stablehlo", "must be what the artifact holds", options.emit, remedy=remedy)
        text = artifact.mlir_module()
        print(json.dumps({path: text}) if options.json else f"// {escape_controls(path)}\n{text.rstrip()}\n")
        return
    device = find_device(options.platform, options.adapter)
    if not options.json:
        print(f"Running on '{device.device_kind}'", flush=True)
    _require_runnable(path, artifact, device)
    ignored = (*OF_DXDISPATCH_MODELS, "onnx_free_dim_denotation_override", "print_onnx_bindings")
    warn_without_effect(options, ignored, "on artifacts")
    inputs = _make_inputs(artifact, options)
    arguments, keywords = jax.tree.unflatten(artifact.in_tree, [*inputs.values()])
    program = Program(artifact.call, "the artifact", source=lambda: digest)

    def call() -> Sequence[Any]:
        return jax.tree.leaves(jax.block_until_ready(program(*arguments, **keywords)))

    places, _ = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(artifact.out_tree, artifact.out_avals))
    try:
        with jax.default_device(device):
            names = [_spell(place) or "result" for place, _ in places]
            timed = timing.measure_calls(names, call, options.dispatch_iterations or timing.CALLS)
    except DmlError:
        raise
    except (TypeError, ValueError) as error:  # from jax.export, for arrays that do not fit
        raise InvalidDesc(Problem("input", "must fit the artifact", reason_of(error))) from None
    if options.json:
        print(json.dumps({"device": device.device_kind, **timing.to_json(timed, loaded)}))
        return
    print(f"{escape_controls(path)}: artifact {artifacts.signature(artifact)}")
    print("\n".join(timing.timing_lines(timed, loaded)))


def _require_runnable(path: str, artifact: jax.export.Exported, device: jax.Device) -> None:
    """Raises if an artifact is for other platforms than the device's, or for several devices."""
    platforms = join_words(artifact.platforms)
    if not _PLATFORMS.get(device.platform, {device.platform}) & {*artifact.platforms}:
        remedy = f"`dmljax compile MODEL --for {device.platform}` makes one" if device.platform == "cpu" else None
        raise InvalidDesc(Problem((), f"{one_line(path)} runs on {platforms}", device.platform, remedy=remedy))
    if not x64_enabled() and any(jax.dtypes.canonicalize_dtype(x.dtype) != x.dtype for x in artifact.in_avals):
        rule = f"{one_line(path)} has inputs of 64 bits: {artifacts.signature(artifact)}"
        raise Unsupported(Problem((), rule, remedy="--x64"))
    if artifact.nr_devices > 1:
        rule = f"{one_line(path)} is divided among {artifact.nr_devices} devices, which `dmljax run` does not place"
        raise Unsupported(Problem((), rule, remedy="notebooks/serving.md shows how to run it"))


def _make_inputs(artifact: jax.export.Exported, options: argparse.Namespace) -> dict[str, Any]:
    """Makes the inputs by name: arrays from files, and random numbers for the others."""
    places, _ = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(artifact.in_tree, artifact.in_avals))
    types = {_spell(place[1:]): type_ for place, type_ in places}  # without the number of positional or of named ones
    files, shapes = files_by_name(options.input), {**dict(options.binding_shape), **dict(options.shape)}
    for option, name in (*(("input", name) for name in files), *(("shape", name) for name in shapes)):
        rule = f"must be the number of an input: {join_words(types, 'or')}"
        require((option, name), name in types, rule, name + did_you_mean(name, types))
    symbols = {name for type_ in types.values() for size in type_.shape for name in _symbols(size)}
    sizes = {name: size for name, size in options.onnx_free_dim_name_override if isinstance(size, int)}
    for name in sizes:
        rule = f"-f must name an open size of the inputs, {artifacts.signature(artifact)}"
        require((), name in symbols, rule, repr(name) + did_you_mean(name, symbols))
    random = np.random.default_rng(SEED)
    inputs: dict[str, Any] = {}
    for name, type_ in types.items():
        shape = shapes.get(name) or tuple(_size(size, sizes) for size in type_.shape)
        if name in files:
            inputs[name] = array_of_input(files[name], name)
        elif jnp.issubdtype(type_.dtype, jax.dtypes.prng_key):
            inputs[name] = jax.random.key(SEED)
        else:
            inputs[name] = draw_array(random, shape, type_.dtype)
    return inputs


def _spell(place: Sequence[Any]) -> str:
    """The name of an array among the arguments or results: the positions and keys that lead to it."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in place)


# Open sizes, such as 2*batch or floordiv(length, 4), as JAX spells them

_OPERATORS: Mapping[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitXor: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: Mapping[str, Any] = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}


def _symbols(size: Any) -> set[str]:
    """The names in an open size."""
    nodes = ast.walk(ast.parse(str(size), mode="eval"))
    return {node.id for node in nodes if isinstance(node, ast.Name)} - _FUNCTIONS.keys()


def _size(size: Any, values: Mapping[str, int]) -> int:
    """The number that a size is where names have these values, or else 1."""

    def evaluate(node: Any) -> int:
        match node:
            case ast.Constant(value=number):
                return int(str(number))
            case ast.Name(id=name):
                return values.get(name, 1)
            case ast.UnaryOp(op=op, operand=operand):
                return int(_OPERATORS[type(op)](evaluate(operand)))
            case ast.BinOp(left=left, op=op, right=right):
                return int(_OPERATORS[type(op)](evaluate(left), evaluate(right)))
        return int(_FUNCTIONS[node.func.id](*map(evaluate, node.args)))

    return evaluate(ast.parse(str(size), mode="eval").body)
