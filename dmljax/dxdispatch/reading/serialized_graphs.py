"""Turns a serialized graph into a model, for commands that take either."""

import json
from pathlib import Path
from typing import Any

from dmljax.descriptors.tensor import TensorDesc
from dmljax.serialized import load


def model_text(path: Path) -> str:
    """The JSON of a model that dispatches a graph once and prints its outputs.

    Float inputs run from 0 to 1 in even steps. Integers may be indices, so they are 0.
    """
    graph = load(path)
    resources = {name: _fill_sizes(desc) for name, desc in [*graph.inputs.items(), *graph.results.items()]}
    dispatchable = {"type": "dmlSerializedGraph", "sourcePath": str(path.absolute())}
    dispatch = {"type": "dispatch", "dispatchable": path.stem, "bindings": {name: name for name in resources}}
    prints = [{"type": "print", "resource": name} for name in graph.results]
    commands = [dispatch, *prints]
    return json.dumps({"resources": resources, "dispatchables": {path.stem: dispatchable}, "commands": commands})


def _fill_sizes(desc: TensorDesc) -> dict[str, Any]:
    is_float = desc.data_type.name.startswith("FLOAT")
    values = {"valueStart": 0, "valueDelta": 1 / max(desc.span - 1, 1)} if is_float else {"value": 0}
    return {"initialValuesDataType": desc.data_type.name, "initialValues": values | {"valueCount": desc.span}}
