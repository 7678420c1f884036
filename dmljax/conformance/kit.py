"""Writes a kit: models that DxDispatch runs, their inputs, our results, and scripts that run them all on Windows."""

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from dmljax.conformance.promises import promise_of
from dmljax.conformance.samples import Arrays, Sample, compute_all, samples_of
from dmljax.descriptors.base import OPERATORS, Operator
from dmljax.descriptors.json_form import to_json
from dmljax.descriptors.tensor import TensorDesc
from dmljax.descriptors.validation import find_minimum_feature_level
from dmljax.dxdispatch.files import bytes_of
from dmljax.errors import Problem, require, unusable_file
from dmljax.foundation.files import open_replacement
from dmljax.foundation.programs.progress import report
from dmljax.text import one_line, reason_of
from dmljax.types import INTEGER_4

MANIFEST, FORMAT = "kit.json", 1
SCRIPTS = ("run.ps1", "run.bat")
PARTS = ("models", "inputs", "expected")  # the folders that a kit replaces when it is written again
FILL = 77  # what buffers of results hold before a dispatch


class KitSize(NamedTuple):
    """How much a kit holds."""

    operators: int
    dispatches: int
    files: int
    bytes: int


def write_kit(folder: Path, operators: Sequence[type[Operator]] = ()) -> KitSize:
    """Writes the kit of these operators, or of all, into a folder that is empty or has a kit."""
    require_own(folder)
    files: dict[str, bytes] = {}
    manifest: dict[str, list[dict[str, Any]]] = {}
    chosen = [operator for operator in OPERATORS.values() if not operators or operator in operators]
    for i, operator in enumerate(chosen, 1):
        report(f"computing {operator.short_name}", i, len(chosen), "operator")
        with jax.enable_x64(True):
            samples = samples_of(operator)
            results = compute_all(samples)
        model = _Model(operator.short_name, files)
        pairs = enumerate(zip(samples, results, strict=True))
        manifest[model.name] = [model.add(f"{number:03}", *sample_and_results) for number, sample_and_results in pairs]
        files[f"models/{model.name}.json"] = model.text().encode()
    for script in SCRIPTS:
        files[script] = resources.files("dmljax.conformance").joinpath(script).read_bytes()
    _replace_files(folder, files, _manifest_text(manifest))
    size = sum(map(len, files.values()))
    return KitSize(len(chosen), sum(map(len, manifest.values())), len(files) + 1, size)


def require_own(folder: Path) -> None:
    """Raises unless a kit may be written into a folder."""
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    is_own = is_free or (folder / MANIFEST).is_file()
    require("folder", is_own, "must be a new or empty folder, or one that has a kit", f"'{one_line(folder)}'")


class _Model:
    """An operator's model, with a line for each resource, dispatchable and command.

    All lines of a dispatch, and no others, have its number after a quotation mark, so that a script can take it out.
    """

    def __init__(self, name: str, files: dict[str, bytes]) -> None:
        self.name, self.files = name, files
        self.inputs: dict[bytes, str] = {}  # files by their bytes: many dispatches share an input
        self.resources: list[str] = []
        self.dispatchables: list[str] = []
        self.commands: list[str] = []

    def add(self, number: str, sample: Sample, results: Arrays) -> dict[str, Any]:
        """Adds a dispatch and its files, and returns what the manifest says of it."""
        bindings: dict[str, Any] = {}
        records: dict[str, dict[str, Any]] = {}
        first_write = len(self.commands)
        for leaf in sample.desc.leaves():
            label = f"{number}.{leaf.key.replace('[', '').replace(']', '')}"
            if leaf.key in sample.inputs:
                self.add_input(label, leaf.tensor, sample.inputs[leaf.key])
            else:
                path = self.add_output(label, leaf.tensor, results[leaf.key])
                records[leaf.key] = {"file": path, "promise": promise_of(sample.desc, leaf.tensor)}
                if leaf.tensor.data_type in INTEGER_4:
                    records[leaf.key] |= {"type": leaf.tensor.data_type.name, "count": leaf.tensor.element_count}
            if leaf.index is None:
                bindings[leaf.member.name] = label
            else:
                bindings.setdefault(leaf.member.name, []).append(label)
        self.dispatchables.append(f'"{number}": {json.dumps(to_json(sample.desc))}')
        dispatch = {"type": "dispatch", "dispatchable": number, "bindings": bindings}
        self.commands.insert(first_write, json.dumps(dispatch))
        level = find_minimum_feature_level(sample.desc).name.removeprefix("FL_")
        largest = max(map(_find_largest, sample.inputs.values()), default=0.0)
        return {"number": number, "reason": sample.reason, "level": level, "largest": largest, "results": records}

    def add_input(self, label: str, tensor: TensorDesc, values: NDArray[Any]) -> None:
        """Adds a resource with the values of an input, and their file."""
        stored, data_type = _store(tensor, values)
        data = _npy(stored)
        path = self.inputs.setdefault(data, f"inputs/{self.name}/{len(self.inputs):03}.npy")
        self.files[path] = data
        self.add_resource(label, data_type, {"sourcePath": path})

    def add_output(self, label: str, tensor: TensorDesc, values: NDArray[Any]) -> str:
        """Adds a resource for an output, the command that writes it, and our result; returns the file's name."""
        stored, data_type = _store(tensor, values)
        path = f"{self.name}/{label}.npy"
        self.files[f"expected/{path}"] = _npy(stored)
        self.add_resource(label, data_type, {"valueCount": stored.size, "value": FILL})
        write = {"type": "writeFile", "resource": label, "targetPath": path, "dimensions": [*stored.shape]}
        self.commands.append(json.dumps(write))
        return path

    def add_resource(self, label: str, data_type: str, values: Mapping[str, Any]) -> None:
        """Adds a buffer with these initial values."""
        self.resources.append(f'"{label}": {json.dumps({"initialValuesDataType": data_type, "initialValues": values})}')

    def text(self) -> str:
        """The JSON of the model."""
        resources, dispatchables, commands = map(",\n".join, (self.resources, self.dispatchables, self.commands))
        return (
            f'{{\n"resources": {{\n{resources}\n}},\n"dispatchables": {{\n{dispatchables}\n}},\n'
            f'"commands": [\n{commands}\n]\n}}\n'
        )


def _manifest_text(manifest: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    operators = (
        f'"{name}": [\n' + ",\n".join(map(json.dumps, dispatches)) + "\n]" for name, dispatches in manifest.items()
    )
    return f'{{\n"format": {FORMAT},\n"operators": {{\n' + ",\n".join(operators) + "\n}\n}\n"


def _store(tensor: TensorDesc, values: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """An array as files and buffers have it, and its data type there: 4-bit elements are bytes of two."""
    if tensor.data_type in INTEGER_4:
        return bytes_of(values), "UINT8"
    return np.ascontiguousarray(values), tensor.data_type.name


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _find_largest(values: NDArray[Any]) -> float:
    """The largest magnitude among floats: sums of them are compared in its units."""
    if values.dtype.kind != "f":
        return 0.0
    magnitudes = np.abs(values[np.isfinite(values)].astype(np.float64))
    return float(magnitudes.max(initial=0))


def _replace_files(folder: Path, files: Mapping[str, bytes], manifest: str) -> None:
    """Writes the files, and the manifest last; until then, the manifest says that the kit is not whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / MANIFEST, json.dumps({"format": FORMAT}).encode())
        for part in PARTS:
            shutil.rmtree(folder / part, ignore_errors=True)
        for i, (name, data) in enumerate(files.items(), 1):
            if i % 100 == 0:
                report("writing", i, len(files), "file")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        _write(folder / MANIFEST, manifest.encode())
    except OSError as error:
        problem = Problem("folder", "must be writable", f"'{one_line(folder)}' ({reason_of(error)})")
        raise unusable_file(problem, error, str(folder)) from None


def _write(path: Path, data: bytes) -> None:
    with open_replacement(path) as file:
        file.write(data)
