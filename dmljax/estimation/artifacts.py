"""Serializes programs with `jax.export`, for processes that do not have dmljax."""

import math
import zipfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.sharding import AbstractMesh

from dmljax.errors import InvalidDesc, Problem, Unsupported, require, unusable_file
from dmljax.estimation.chips import TARGETS
from dmljax.estimation.placement import Program, on_mesh
from dmljax.estimation.targets import chips_of
from dmljax.foundation.extras import command_for
from dmljax.text import join_words, one_line

CPU = "cpu"
MAX_BYTES = 2**31 - 2**24  # of an artifact, which is a flatbuffer; leaves room for everything but weights


def platforms_of(targets: Sequence[str]) -> tuple[list[str], int]:
    """The platforms of these chips, or of the CPU, without duplicates, and how many chips each target has."""
    chips = [chips_of(target, CPU) for target in targets]
    counts = {math.prod(sizes) for _, sizes in chips}
    if len(counts) > 1:
        raise InvalidDesc(Problem("target", "must have the same number of chips as the others", join_words(targets)))
    platforms = (CPU if chip == CPU else TARGETS[chip].platform for chip, _ in chips)
    return [*dict.fromkeys(platforms)], counts.pop()


def exported(program: Program, platforms: Sequence[str], mesh: AbstractMesh | None) -> export.Exported:
    """Exports a program for all of these platforms: its weights are included, or an argument that a mesh divides."""
    if mesh is not None:
        weights, inputs = on_mesh(program, mesh)
        function, arguments = program.function, (weights, *inputs)
    else:
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(program.weights))
        if size > MAX_BYTES:
            remedy = "compile for several chips, or export model.apply, which takes the weights as an argument"
            raise InvalidDesc(
                Problem((), f"weights in a file must take at most {MAX_BYTES} bytes", size, remedy=remedy)
            )
        function, arguments = lambda *inputs: program.function(program.weights, *inputs), program.inputs
    with jax.disable_jit(False):
        return export.export(jax.jit(function), platforms=platforms)(*arguments)


def require_file(path: str) -> None:
    """Refuses a path that cannot name a file, before an export that may take minutes."""
    shown = one_line(path)
    require("output", not Path(path).is_dir(), "must be a file, not a folder", shown)
    require("output", Path(path).parent.is_dir(), "must be a file in a folder that exists", shown)
    if find_spec("flatbuffers") is None:
        rule = "what jax.export writes files with is not installed: no flatbuffers"
        raise Unsupported(Problem((), rule, remedy=command_for("export")))


def write(artifact: export.Exported, path: str) -> int:
    """Writes an artifact, and returns its size in bytes."""
    data = bytes(artifact.serialize())
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise _unwritable(path, error) from None
    return len(data)


def write_weights(weights: Mapping[str, Any], path: str) -> None:
    """Writes weights as an .npz file, for `np.load`."""
    try:
        with zipfile.ZipFile(path, "w") as archive:  # np.savez has no weight named "file"
            for name, weight in weights.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(weight))
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: str, error: OSError) -> InvalidDesc:
    return unusable_file(Problem("output", f"cannot write {one_line(path)}: {error.strerror}"), error, path)


def described(artifact: export.Exported, weights: int = 0) -> dict[str, Any]:
    """Describes the platforms and types of an artifact, whose first `weights` arguments are weights."""
    return {
        "platforms": [*artifact.platforms],
        "devices": artifact.nr_devices,
        "inputs": [_spelled(aval) for aval in artifact.in_avals[weights:]],
        "outputs": [_spelled(aval) for aval in artifact.out_avals],
    }


def _spelled(type_: Any) -> str:
    text: str = jax.core.ShapedArray(type_.shape, type_.dtype).str_short()  # without a sharding
    return text
