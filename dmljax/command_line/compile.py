"""The command `dmljax compile`: saves a model as an artifact of StableHLO."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dmljax.command_line.options import COUNT, MESH, Subparsers, add_command, add_model_options, add_options
from dmljax.command_line.terminal import YELLOW, color_text
from dmljax.foundation.programs.progress import report
from dmljax.text import escape_controls, join_words

if TYPE_CHECKING:
    from jax.sharding import AbstractMesh

    from dmljax.estimation.placement import ChipProgram

SUMMARY = "Saves a model as an artifact that jax.export runs without dmljax."

EXAMPLES = """examples:
  dmljax compile network.onnx --for h100 -o network.stablehlo
  dmljax compile network.onnx --for cpu --for v5e --batch 8 -o network.stablehlo
  dmljax compile network.onnx --for v5e:4x4 --mesh data=2,model=8 -o network.stablehlo
  dmljax compile unet.onnx --for cpu -f steps:1 -f height:8*h -f width:8*w -o unet.stablehlo
  python -c "import jax; f = jax.export.deserialize(open('network.stablehlo', 'rb').read()); print(f.in_avals)"

The artifact is StableHLO for the platform of the chip, and includes the weights. Sizes that a model leaves open stay
open, unless --batch, -f or -b give them. Sizes that a network halves and doubles must be multiples, as -f height:8*h
says. `.call(x)` runs it on that platform, with JAX but without dmljax.
For several chips, the weights of an ONNX model are an argument, stored in FILE.npz, and open batches must be multiples
of the mesh's first axis. `dmljax check FILE --weights FILE.npz` compares weights with an artifact's."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "compile", SUMMARY, EXAMPLES)
    add_model_options(parser, is_one=True, may_be_open=True)
    add_options(
        parser,
        (
            "--for",
            "cpu, a chip such as h100, or several such as cpu:8, h100:8, v5e:16 or v5e:4x4; repeatable",
            {"action": "append", "required": True, "dest": "targets", "metavar": "CHIP"},
        ),
        (
            "--batch",
            "the batch size of an ONNX model (default: it stays open)",
            COUNT | {"default": None},
        ),
        MESH,
        ("-o --output", "the file to write", {"required": True, "metavar": "FILE"}),
    )


def run(options: argparse.Namespace) -> int:
    """Saves a model as a StableHLO artifact that `jax.export` runs without dmljax."""
    import jax
    from jax.sharding import AbstractMesh

    from dmljax.command_line.models import require_file
    from dmljax.errors import within
    from dmljax.estimation import artifacts
    from dmljax.estimation.placement import auto_axis_types, sizes_of_mesh
    from dmljax.foundation.checks import find_nonfinite

    jax.config.update("jax_platforms", "cpu")  # JAX would look for the chips of the compilers that are installed
    platforms, count = artifacts.platforms_of(options.targets)
    path, file = options.model, escape_controls(options.output)
    require_file(path, f"compile its ONNX model, or `dmljax estimate {escape_controls(path)}` tells its cost")
    artifacts.require_file(options.output)
    with within("compile"), _advise_sizes():
        sizes = sizes_of_mesh((), join_words(options.targets), count, dict(options.mesh) or None)
        mesh = (
            AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=auto_axis_types(sizes)) if count > 1 else None
        )
        program = _program_to_serve(path, options, mesh)
        report(f"exporting {escape_controls(path)} for {join_words(platforms)}")
        artifact = artifacts.export_program(program, platforms, mesh)
        report(f"writing {file}")
        if mesh:
            size, digest = artifacts.write_with_weights(artifact, program.weights, options.output)
        else:
            size = artifacts.write(artifact, options.output)
    description = artifacts.describe(artifact)
    damaged = [str(problem) for problem in find_nonfinite(program.weights)]
    if options.json:
        weights = {"weights": f"{options.output}.npz", "weights_sha256": digest} if mesh else {}
        print(json.dumps({"file": options.output, "bytes": size, **weights, **description, "warnings": damaged}))
        return 0
    for warning in damaged:
        print(f"{color_text('warning', YELLOW, sys.stderr)}: {escape_controls(f'{path}: {warning}')}", file=sys.stderr)
    print(f"{file}: {size} bytes for {join_words(platforms)}")
    types = artifacts.signature(artifact)
    if mesh:
        axes = ",".join(f"{name}={size}" for name, size in sizes.items())
        print(f"{file}.npz: the weights, an argument, SHA-256 {digest}\n{types} on a mesh of {axes}")
        print(f"`dmljax check {file} --weights {file}.npz` compares them; notebooks/serving.md shows how to run it")
    else:
        print(f"{types}\n`dmljax run {file}` runs it, and so does jax.export.deserialize(data).call(...)")
    return 0


@contextmanager
def _advise_sizes() -> Iterator[None]:
    """Advises options instead of constraints of `jax.export`, which commands do not take."""
    from dataclasses import replace

    from dmljax.errors import DmlError

    try:
        yield
    except DmlError as error:
        error.args = tuple(replace(problem, remedy=_as_options(problem.remedy)) for problem in error.problems)
        raise


def _as_options(remedy: str | None) -> str | None:
    match = _CONSTRAINTS.fullmatch(remedy or "")
    return " ".join(f"-f {name}:SIZE" for name in dict.fromkeys(_NAMES.findall(match[1]))) if match else remedy


_CONSTRAINTS = re.compile(r"jax\.export\.symbolic_shape\(\.\.\., constraints=(.*)\)")
_NAMES = re.compile(r"\b(?!(?:floordiv|mod|max|min)\b)[A-Za-z_]\w*")


def _program_to_serve(path: str, options: argparse.Namespace, mesh: "AbstractMesh | None") -> "ChipProgram":
    """Builds the program to serve; open sizes stay open."""
    from dmljax.command_line.estimate import programs_of
    from dmljax.command_line.models import OF_DXDISPATCH_MODELS, is_onnx, sizes_of_inputs, warn_without_effect
    from dmljax.dxdispatch.model import Dispatchable
    from dmljax.errors import InvalidDesc, Problem, Unsupported
    from dmljax.estimation.placement import ChipProgram, program_of

    names = dict(options.onnx_free_dim_name_override)
    multiples = {name: size for name, size in names.items() if not isinstance(size, int)}
    if not is_onnx(path):
        for factor, symbol in multiples.values():
            raise InvalidDesc(Problem((), f"{factor}*{symbol} is only for ONNX models", escape_controls(path)))
        if mesh:
            raise InvalidDesc(Problem((), "several chips are only for ONNX models", escape_controls(path)))
        descs = [desc for _, desc, _ in programs_of(path, options)]
        if len(descs) != 1:
            raise InvalidDesc(Problem((), f"{escape_controls(path)} must have exactly one dispatchable", len(descs)))
        function = Dispatchable(descs[0])
        program = program_of(descs[0], (), None)
        weights = dict(getattr(descs[0], "constants", program.weights or {}))
        return program._replace(function=lambda weights, *inputs: function(*inputs), weights=weights)
    from dmljax.command_line.onnx.input_types import open_types_of_inputs
    from dmljax.onnx import load as load_onnx

    warn_without_effect(options, OF_DXDISPATCH_MODELS, "on ONNX models")
    model = load_onnx(path)
    if model.is_random:
        remedy = "export it in Python, as a function of a key, with jax.export.export"
        raise Unsupported(Problem((), f"{escape_controls(path)} draws random numbers", remedy=remedy))
    divisor = mesh.axis_sizes[0] if mesh else 1
    types = open_types_of_inputs(model, sizes_of_inputs(model, options), options.batch, divisor, multiples)
    if mesh:
        return program_of(model, tuple(types), None)
    # Call the model itself, not `apply`: it computes now whatever depends only on its weights.
    return ChipProgram(lambda weights, *inputs: model(*inputs), model.weights, tuple(types))
