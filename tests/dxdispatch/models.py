"""Models for tests, written out as JSON."""

import json
from pathlib import Path
from typing import Any

from dmljax.dxdispatch.execution import Execution
from dmljax.dxdispatch.model import DispatchModel, InvalidModel
from dmljax.dxdispatch.reading.reader import load

MODELS = Path(__file__).parents[2] / "notebooks" / "models"
GPT = Path(__file__).parents[2] / "notebooks" / "models" / "gpt.onnx"


def tensor(data_type: str, *sizes: int, **fields: Any) -> dict[str, Any]:
    return {"DataType": data_type, "Sizes": list(sizes)} | fields


def zeros(data_type: str, count: int, **fields: Any) -> dict[str, Any]:
    return {"initialValuesDataType": data_type, "initialValues": {"valueCount": count, "value": 0}} | fields


def listed(data_type: Any, values: Any, **fields: Any) -> dict[str, Any]:
    return {"initialValuesDataType": data_type, "initialValues": values} | fields


def hardmax(*sizes: int, input: dict[str, Any] | None = None, output: dict[str, Any] | None = None) -> dict[str, Any]:
    desc = {
        "InputTensor": tensor("FLOAT32", *sizes) | (input or {}),
        "OutputTensor": tensor("FLOAT32", *sizes) | (output or {}),
    }
    return {"type": "DML_OPERATOR_ACTIVATION_HARDMAX", "desc": desc}


def dispatch(dispatchable: str, **bindings: Any) -> dict[str, Any]:
    return {"type": "dispatch", "dispatchable": dispatchable, "bindings": bindings}


def write_file(target: str, resource: str = "x", **fields: Any) -> dict[str, Any]:
    return {"type": "writeFile", "resource": resource, "targetPath": target} | fields


def write_model(folder: Path, resources: Any = None, dispatchables: Any = None, commands: Any = None) -> Path:
    """A file with a model of these parts."""
    path = folder / "model.json"
    parts = {"resources": resources or {}, "dispatchables": dispatchables or {}, "commands": commands or []}
    path.write_text(json.dumps(parts, indent=1), encoding="utf-8")
    return path


def load_model(
    folder: Path, resources: Any = None, dispatchables: Any = None, commands: Any = None, **how: Any
) -> DispatchModel:
    return load(write_model(folder, resources, dispatchables, commands), **how)


def run(model: DispatchModel, **how: Any) -> Execution:
    """Carries out all commands."""
    execution = Execution(model, **how)
    for index in range(len(model.commands)):
        execution.result(index)
    return execution


def findings(folder: Path, resources: Any = None, dispatchables: Any = None, commands: Any = None) -> list[str]:
    """The findings of a model, without the file's name."""
    path = write_model(folder, resources, dispatchables, commands)
    try:
        load(path)
    except InvalidModel as error:
        return [str(finding).removeprefix(f"{path}:") for finding in error.findings]
    return []
