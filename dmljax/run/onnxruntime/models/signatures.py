"""The types of a model's inputs and outputs as ONNX Runtime shows them, with the sizes that follow from its nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import onnx
import onnx.shape_inference

from dmljax.onnx import Model
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.graph.reader import tensor_type
from dmljax.onnx.graph.saving import copy_proto, weights_of
from dmljax.onnx.model import loaded_graph


def sizes_of(tensor: TensorType) -> list[int | str | None]:
    """Returns the sizes of a tensor, or of the tensor in an optional."""
    if tensor.kind == "optional" and tensor.element is not None:
        return sizes_of(tensor.element)
    return list(tensor.sizes or ())


def infer_outputs(
    model: Model, inputs: Sequence[TensorType]
) -> tuple[tuple[TensorType, ...], dict[str, onnx.TypeProto]]:
    """Returns the types of the outputs, with what their declarations leave open and the types of `inputs` decide."""
    outputs = loaded_graph(model).file.graph.output
    if any(not output.HasField("type") for output in outputs) or any(_is_open(output) for output in model.outputs):
        file = _with_sizes(model, inputs)
        outputs = onnx.shape_inference.infer_shapes(file, data_prop=True).graph.output
        declared = {
            dimension.dim_param for value in (*file.graph.input, *file.graph.output) for dimension in _sizes(value)
        }
        for dimension in (dimension for output in outputs for dimension in _sizes(output)):
            if dimension.dim_param not in declared and dimension.dim_param.startswith(_UNKNOWN):
                dimension.Clear()
    return tuple(map(tensor_type, outputs)), {output.name: output.type for output in outputs}


_UNKNOWN = "unk__"  # how the onnx package names sizes that it cannot infer


def _sizes(value: onnx.ValueInfoProto) -> Iterable[Any]:
    """The sizes of a tensor in a file."""
    dimensions: Iterable[Any] = value.type.tensor_type.shape.dim
    return dimensions


def _is_open(tensor: TensorType) -> bool:
    return tensor.sizes is None or not all(isinstance(size, int) for size in tensor.sizes)


def _with_sizes(model: Model, inputs: Sequence[TensorType]) -> onnx.ModelProto:
    """Copies a file without its weights, and sets their sizes and those of `inputs`."""
    loaded = loaded_graph(model)
    file = copy_proto(loaded.file)
    sizes = {name: weight.shape for name, weight in loaded.types.items() if name not in loaded.origins}
    for name, tensor in weights_of(file.graph, sizes.keys()):
        tensor.dims.extend(sizes[name])
    packed = {origin.name for origin in loaded.origins.values()}  # arrays whose sizes in the file are not known
    for tensor in [tensor for tensor in file.graph.initializer if tensor.name in packed]:
        file.graph.initializer.remove(tensor)
    for node in [node for node in file.graph.node if node.op_type == "Constant" and node.output[0] in packed]:
        file.graph.node.remove(node)
    types = {tensor.name: tensor for tensor in inputs}
    for proto in file.graph.input:
        if proto.name in types:
            for dimension, size in zip(_sizes(proto), types[proto.name].sizes or (), strict=False):
                if isinstance(size, int):
                    dimension.dim_value = size
    return file


def with_open_scalars(model: Model) -> Model:
    """Returns the model with inputs of any shape in place of scalars."""
    loaded = loaded_graph(model)

    def open_scalar(tensor: TensorType) -> TensorType:
        return replace(tensor, sizes=None) if tensor.sizes == () else tensor

    graph, joined = (
        replace(each, inputs=tuple(map(open_scalar, each.inputs))) for each in (loaded.graph, loaded.joined)
    )
    defaults = tuple(map(open_scalar, loaded.defaults))
    return Model(replace(loaded, graph=graph, joined=joined, defaults=defaults), model.weights)
