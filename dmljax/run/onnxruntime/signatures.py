"""The types of a model's inputs and outputs as ONNX Runtime shows them, with the sizes that follow from its nodes."""

from dataclasses import replace

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


def infer_outputs(model: Model) -> tuple[tuple[TensorType, ...], dict[str, onnx.TypeProto]]:
    """Returns the types of the outputs, with the sizes and types that their declarations leave open."""
    declared = loaded_graph(model).file
    outputs = declared.graph.output
    if any(not output.HasField("type") for output in outputs) or any(_is_open(output) for output in model.outputs):
        outputs = onnx.shape_inference.infer_shapes(_with_sizes_of_weights(model)).graph.output
    return tuple(map(tensor_type, outputs)), {output.name: output.type for output in outputs}


def _is_open(tensor: TensorType) -> bool:
    return tensor.sizes is None or not all(isinstance(size, int) for size in tensor.sizes)


def _with_sizes_of_weights(model: Model) -> onnx.ModelProto:
    """Copies a file without its weights, whose sizes it gets back."""
    loaded = loaded_graph(model)
    file = copy_proto(loaded.file)
    sizes = {name: weight.shape for name, weight in loaded.types.items() if name not in loaded.origins}
    for name, tensor in weights_of(file.graph, sizes.keys()):
        tensor.dims.extend(sizes[name])
    restored = {origin.name for origin in loaded.origins.values()}
    unknown = [tensor for tensor in file.graph.initializer if tensor.name in restored]
    for tensor in unknown:
        file.graph.initializer.remove(tensor)
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
