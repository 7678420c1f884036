"""Loads models with values of a program in place of their initializers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import onnx
from onnx import numpy_helper

from dmljax.errors import Problem, within
from dmljax.onnx import Model, load
from dmljax.onnx.graph.reader import read_model
from dmljax.onnx.loading import load_graph
from dmljax.run.onnxruntime.arguments import warn
from dmljax.run.onnxruntime.errors import Fail
from dmljax.run.onnxruntime.values import OrtValue, as_numpy
from dmljax.text import did_you_mean, one_line


class Initializer(NamedTuple):
    """A value in place of an initializer, which must have its data in another file if `is_external`."""

    value: OrtValue
    is_external: bool


def load_with(source: Any, initializers: Mapping[str, Initializer]) -> Model:
    """Loads a model, with values in place of initializers of these names."""
    if not initializers:
        return load(source)
    with within("onnx"):
        proto, folder = read_model(source)
        tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
        for name, initializer in initializers.items():
            if name in tensors:
                _replace(tensors[name], initializer)
            elif initializer.is_external:
                raise Fail(f"Failed to find existing initializer with name {_spell(name, tensors)}")
            else:
                warn(f"add_initializer has no effect, because the model has no {_spell(name, tensors)}")
        return Model(*load_graph(proto, None, None, folder=folder))


def _spell(name: str, known: Mapping[str, Any]) -> str:
    return f"{one_line(name)}{did_you_mean(name, known)}"


def _replace(tensor: onnx.TensorProto, initializer: Initializer) -> None:
    if initializer.is_external and tensor.data_location != onnx.TensorProto.EXTERNAL:
        raise Fail(f"Trying to replace non-external initializer with external data: {one_line(tensor.name)}")
    new = numpy_helper.from_array(as_numpy(initializer.value._tensor()), tensor.name)
    if (tensor.data_type, tensor.dims) != (new.data_type, new.dims):
        raise Fail(Problem(("initializers", tensor.name), f"must be {_describe(tensor)}", _describe(new)))
    tensor.CopyFrom(new)


def _describe(tensor: onnx.TensorProto) -> str:
    return f"{onnx.TensorProto.DataType.Name(tensor.data_type).lower()} of shape {tuple(tensor.dims)}"
