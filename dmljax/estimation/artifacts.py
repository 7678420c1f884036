"""Keeps a program as `jax.export` serializes it, for processes that do not have dmljax."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax import export

from dmljax.errors import InvalidDesc, Problem, unusable_file
from dmljax.estimation.placement import Program
from dmljax.estimation.targets import TARGETS
from dmljax.text import did_you_mean, one_line

CPU = "cpu"
MAX_BYTES = 2**31 - 2**24  # of an artifact, which is a flatbuffer; leaves room for everything but weights


def platforms_of(targets: Sequence[str]) -> list[str]:
    """The platforms of these chips, or of the CPU, without duplicates."""
    platforms = {CPU: CPU, **{name: target.platform for name, target in TARGETS.items()}}
    for target in targets:
        if target not in platforms:
            known = ", ".join(platforms)
            remedy = None
            if target.partition(":")[0] in platforms:
                remedy = "see notebooks/serving.md to export a model for several chips"
            given = repr(target) + did_you_mean(target, platforms)
            raise InvalidDesc(Problem("target", f"must be one of {known}", given, remedy=remedy))
    return [*dict.fromkeys(platforms[target] for target in targets)]


def exported(program: Program, platforms: Sequence[str]) -> export.Exported:
    """Exports a program for all of these platforms, with its weights included."""
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(program.weights))
    if size > MAX_BYTES:
        remedy = "jax.export.export(jax.jit(model.apply)) takes the weights as an argument"
        raise InvalidDesc(Problem((), f"weights must be at most {MAX_BYTES} bytes in a file", size, remedy=remedy))
    with jax.disable_jit(False):
        function = jax.jit(lambda *inputs: program.function(program.weights, *inputs))
        return export.export(function, platforms=platforms)(*program.inputs)


def write(artifact: export.Exported, path: str) -> int:
    """Writes an artifact, and returns its size in bytes."""
    data = bytes(artifact.serialize())
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        problem = Problem((), f"cannot write {one_line(path)}: {error.strerror}")
        raise unusable_file(problem, error, path) from None
    return len(data)


def described(artifact: export.Exported) -> dict[str, Any]:
    """The platforms and types of an artifact, for a program to read."""
    return {
        "platforms": [*artifact.platforms],
        "inputs": [one.str_short() for one in artifact.in_avals],
        "outputs": [one.str_short() for one in artifact.out_avals],
    }
