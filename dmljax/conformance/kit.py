"""Writes a kit: models that DxDispatch runs, their inputs, our results, and scripts that run them all on Windows."""

import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
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


class Written(NamedTuple):
    """What a kit has."""

    operators: int
    dispatches: int
    files: int
    bytes: int


def write_kit(folder: Path, operators: Sequence[type[Operator]] = ()) -> Written:
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
        manifest[operator.short_name] = list(_write_operator(operator, samples, results, files))
    for script in SCRIPTS:
        files[script] = resources.files("dmljax.conformance").joinpath(script).read_bytes()
    _replace_files(folder, files, _manifest_text(manifest))
    size = sum(map(len, files.values()))
    return Written(len(chosen), sum(map(len, manifest.values())), len(files) + 1, size)


def require_own(folder: Path) -> None:
    """Raises unless a kit may be written into a folder."""
    is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    is_own = is_free or (folder / MANIFEST).is_file()
    require("folder", is_own, "must be a new or empty folder, or one that has a kit", f"'{one_line(folder)}'")


def _write_operator(
    operator: type[Operator], samples: Sequence[Sample], results: Sequence[Arrays], files: dict[str, bytes]
) -> Iterator[dict[str, Any]]:
    """Adds an operator's files, and yields what the manifest says of its dispatches."""
    name = operator.short_name
    parts: dict[str, list[str]] = {"resources": [], "dispatchables": [], "commands": []}
    inputs: dict[bytes, str] = {}
    for i, (sample, arrays) in enumerate(zip(samples, results, strict=True)):
        number = f"{i:03}"
        bindings: dict[str, Any] = {}
        commands, records = [], {}
        largest = 0.0
        for leaf in sample.desc.leaves():
            key, tensor = leaf.key, leaf.tensor
            label = f"{number}.{key.replace('[', '').replace(']', '')}"
            values = (sample.inputs if leaf.member.tensor_kind.is_input else arrays)[key]  # type: ignore[union-attr]
            stored, data_type = _store(tensor, values)
            if leaf.member.tensor_kind.is_input:  # type: ignore[union-attr]
                data = _npy(stored)
                path = inputs.setdefault(data, f"inputs/{name}/{len(inputs):03}.npy")
                files[path] = data
                initial: dict[str, Any] = {"sourcePath": path}
                largest = max(largest, _largest(values))
            else:
                path = f"{name}/{label}.npy"
                files[f"expected/{path}"] = _npy(stored)
                initial = {"valueCount": stored.size, "value": FILL}
                target = {"type": "writeFile", "resource": label, "targetPath": path, "dimensions": [*stored.shape]}
                commands.append(json.dumps(target))
                record: dict[str, Any] = {"file": path, "promise": promise_of(sample.desc, tensor)}
                if tensor.data_type in INTEGER_4:
                    record |= {"type": tensor.data_type.name, "count": tensor.element_count}
                records[key] = record
            resource = {"initialValuesDataType": data_type, "initialValues": initial}
            parts["resources"].append(f'"{label}": {json.dumps(resource)}')
            member = leaf.member.name
            if leaf.index is None:
                bindings[member] = label
            else:
                bindings.setdefault(member, []).append(label)
        parts["dispatchables"].append(f'"{number}": {json.dumps(to_json(sample.desc))}')
        dispatch = {"type": "dispatch", "dispatchable": number, "bindings": bindings}
        parts["commands"] += [json.dumps(dispatch), *commands]
        level = find_minimum_feature_level(sample.desc).name.removeprefix("FL_")
        yield {"number": number, "reason": sample.reason, "level": level, "largest": largest, "results": records}
    files[f"models/{name}.json"] = _model_text(parts).encode()


def _model_text(parts: Mapping[str, Sequence[str]]) -> str:
    """A model with a line for each resource, dispatchable and command, so that a script can take out a dispatch."""
    resources, dispatchables, commands = (",\n".join(lines) for lines in parts.values())
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


def _largest(values: NDArray[Any]) -> float:
    """The largest magnitude of floats, which sums of them are measured by."""
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
