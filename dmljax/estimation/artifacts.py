"""Serializes programs with `jax.export`, for processes that do not have dmljax.

Weights in a file of their own are tied to their artifact by the SHA-256 of that file, which is in the artifact's name.
"""

import hashlib
import math
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.sharding import AbstractMesh

from dmljax.errors import DmlError, InvalidDesc, Problem, Unsupported, require, unusable_file
from dmljax.estimation.chips import TARGETS, chips_of
from dmljax.estimation.placement import ChipProgram, place_on_mesh
from dmljax.foundation.checks import find_nonfinite
from dmljax.foundation.extras import command_for
from dmljax.foundation.files import (
    MAX_POINTER_BYTES,
    ForeignContent,
    find_foreign_content,
    is_exported,
    open_file,
    open_output,
)
from dmljax.text import did_you_mean, join_words, one_line, reason_of

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


def export_program(program: ChipProgram, platforms: Sequence[str], mesh: AbstractMesh | None) -> export.Exported:
    """Exports a program for all of these platforms: its weights are included, or an argument that a mesh divides."""
    if mesh is not None:
        weights, inputs = place_on_mesh(program, mesh)
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
    """Raises if a path cannot name a file, before an export that may take minutes."""
    location = one_line(path)
    require("output", not Path(path).is_dir(), "must be a file, not a folder", location)
    require("output", Path(path).parent.is_dir(), "must be a file in a folder that exists", location)
    _require_flatbuffers("writes")


def _require_flatbuffers(verb: str) -> None:
    if find_spec("flatbuffers") is None:
        rule = f"what jax.export {verb} files with is not installed: no flatbuffers"
        raise Unsupported(Problem((), rule, remedy=command_for("export")))


def write(artifact: export.Exported, path: str) -> int:
    """Writes an artifact, and returns its size in bytes."""
    data = bytes(artifact.serialize())
    try:
        with open_output(Path(path)) as file:
            file.write(data)
    except OSError as error:
        raise _unwritable(path, error) from None
    return len(data)


def write_with_weights(artifact: export.Exported, weights: Mapping[str, Any], path: str) -> tuple[int, str]:
    """Writes an artifact and its weights, and returns the artifact's size in bytes and the SHA-256 of the weights."""
    file = f"{path}.npz"
    _write_weights(weights, file)
    digest = _digest_of(file)
    try:
        return write(replace(artifact, fun_name=f"{artifact.fun_name}_of_weights_{digest}"), path), digest
    except DmlError:
        Path(file).unlink()
        raise


def _write_weights(weights: Mapping[str, Any], path: str) -> None:
    """Writes weights as an .npz file, for `np.load`; the same weights give the same bytes."""
    try:
        # np.savez has no weight named "file"
        with open_output(Path(path)) as output, zipfile.ZipFile(output, "w") as archive:
            for name, weight in weights.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(weight))
    except OSError as error:
        raise _unwritable(path, error) from None


def _digest_of(path: str) -> str:
    with open_file(Path(path), sys.maxsize) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_weight_problems(artifact_path: str, weights_path: str) -> list[Problem]:
    """Lists how a file of weights differs from the one that was written with an artifact, and its damaged weights."""
    artifact, _ = read(artifact_path)
    types = types_of_weights(artifact)
    rule = f"{one_line(artifact_path)} must be an artifact for several chips, because others include their weights"
    require((), types is not None, rule)
    weights = _read_weights(weights_path)
    problems = [*_find_mismatches(types or {}, weights)]
    if not problems and not artifact.fun_name.endswith(digest := _digest_of(weights_path)):
        problems = [Problem((), "these are not the weights that the artifact was compiled with", f"SHA-256 {digest}")]
    return [*problems, *find_nonfinite(weights)]


def types_of_weights(artifact: export.Exported) -> Mapping[str, Any] | None:
    """The types of the weights that an artifact takes as its first argument; None if it includes its weights."""
    arguments, _ = jax.tree.unflatten(artifact.in_tree, artifact.in_avals)
    return arguments[0] if arguments and isinstance(arguments[0], Mapping) else None


def read(path: str) -> tuple[export.Exported, str]:
    """Reads an artifact, and returns it with a digest of its file."""
    _require_flatbuffers("reads")
    with open_file(Path(path), sys.maxsize) as file:
        data = file.read()
    if not is_exported(data):
        foreign = find_foreign_content(data) or ForeignContent("must be an artifact")
        raise InvalidDesc(Problem((), f"{one_line(path)} {foreign.rule}", remedy=foreign.remedy))
    try:
        return export.deserialize(bytearray(data)), hashlib.sha256(data).hexdigest()
    except Exception as error:  # from wherever in another file's bytes flatbuffers stops
        raise InvalidDesc(Problem((), f"{one_line(path)} must be an artifact", reason_of(error))) from None


def _read_weights(path: str) -> dict[str, Any]:
    rule = f"{one_line(path)} must be a whole .npz file"
    with open_file(Path(path), sys.maxsize) as file:
        if foreign := find_foreign_content(file.read(MAX_POINTER_BYTES)):
            raise InvalidDesc(Problem((), f"{one_line(path)} {foreign.rule}", remedy=foreign.remedy))
        require((), zipfile.is_zipfile(file), rule)
        file.seek(0)
        try:
            return dict(np.load(file, allow_pickle=False))
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InvalidDesc(Problem((), rule, reason_of(error))) from None


def _find_mismatches(types: Mapping[str, Any], weights: Mapping[str, Any]) -> Iterator[Problem]:
    missing = [name for name in types if name not in weights]
    unknown = [name for name in weights if name not in types]
    for name in missing:
        yield Problem(("weights", name), f"is missing{did_you_mean(name, unknown)}")
    for name in unknown:
        yield Problem(("weights", name), f"is no weight of the artifact{did_you_mean(name, missing)}")
    for name, array in weights.items():
        if name in types and not _has_type(array, expected := types[name]):
            sizes = ",".join(map(str, array.shape))
            yield Problem(("weights", name), f"must be {_spell(expected)}", f"{array.dtype.name}[{sizes}]")


def _has_type(array: Any, expected: Any) -> bool:
    """Whether an array has a type; NumPy reads types that it lacks, such as bfloat16, as bytes."""
    return array.shape == expected.shape and array.dtype in (
        expected.dtype,
        np.dtype((np.void, expected.dtype.itemsize)),
    )


def _unwritable(path: str, error: OSError) -> InvalidDesc:
    return unusable_file(Problem("output", f"cannot write {one_line(path)}: {error.strerror}"), error, path)


def describe(artifact: export.Exported) -> dict[str, Any]:
    """Describes the platforms and types of an artifact, without weights that are arguments."""
    weights = len(types_of_weights(artifact) or ()) if artifact.nr_devices > 1 else 0
    return {
        "platforms": [*artifact.platforms],
        "devices": artifact.nr_devices,
        "inputs": [_spell(aval) for aval in artifact.in_avals[weights:]],
        "outputs": [_spell(aval) for aval in artifact.out_avals],
    }


def _spell(type_: Any) -> str:
    text: str = jax.core.ShapedArray(type_.shape, type_.dtype).str_short()  # without a sharding
    return text


def signature(artifact: export.Exported) -> str:
    """The types of an artifact's inputs and outputs as a line of text."""
    description = describe(artifact)
    return f"({', '.join(description['inputs'])}) -> ({', '.join(description['outputs'])})"
