"""Writes a model with new weights, which replace tensors in the file that it was loaded from."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import onnx
from onnx import numpy_helper

from dmljax.errors import InvalidType, Problem, require
from dmljax.foundation.files import open_output
from dmljax.foundation.interrupts import call_if_interrupted
from dmljax.onnx.graph.graph import MAIN
from dmljax.onnx.graph.reader import MAX_FILE_BYTES, Reader
from dmljax.text import one_line

OTHER_BYTES = 2**24  # room for everything in a file besides its weights


def copy_proto(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model."""
    """A copy of a model."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def drop_weights(model: Any, reader: Reader, names: Collection[str]) -> None:
    """Empties the tensors of these weights, and embeds the external data of all other tensors."""
    sparse = [tensor for tensor in model.graph.sparse_initializer if tensor.values.name in names]
    for tensor in sparse:
        model.graph.initializer.append(onnx.TensorProto(name=tensor.values.name, data_type=tensor.values.data_type))
        model.graph.sparse_initializer.remove(tensor)
    for _, tensor in weights_of(model.graph, names):
        tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type))
    graphs = [model.graph, *model.functions]
    for tensor in (tensor for graph in graphs for tensor in _tensors(graph)):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(reader.embed(tensor))


def save(model: Any, path: Path, weights: Mapping[str, Any]) -> None:
    """Writes a model stripped by `drop_weights`, with these weights."""
    filled = copy_proto(model)
    arrays = jax.device_get(dict(weights))
    for name, tensor in weights_of(filled.graph, arrays.keys()):
        filled_tensor = numpy_helper.from_array(
            _convert_to_file_type(name, arrays[name], tensor.data_type), tensor.name
        )
        tensor.CopyFrom(filled_tensor)
    path = path.resolve()
    require("path", not path.is_dir(), "must be a file, not a folder", f"'{one_line(path)}'")
    require("path", path.parent.is_dir(), "must be a file in a folder that exists", f"'{one_line(path)}'")
    if sum(array.nbytes for array in arrays.values()) > MAX_FILE_BYTES - OTHER_BYTES:
        # Large weights go into a second file beside the model, where readers look for it. onnx appends to an old one.
        data = path.with_name(f"{path.name}.data")
        folder = TemporaryDirectory(prefix=".dmljax-", dir=path.parent)
        with folder as beside, call_if_interrupted(folder.cleanup):
            onnx.save(filled, Path(beside, path.name), save_as_external_data=True, location=data.name)
            Path(beside, data.name).replace(data)
            Path(beside, path.name).replace(path)
        return
    with open_output(path) as file:
        file.write(filled.SerializeToString())


def _convert_to_file_type(name: str, array: np.ndarray[Any, Any], type_number: int) -> np.ndarray[Any, Any]:
    """Converts an array to the file's type, which may be wider if JAX has 64-bit types disabled."""
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(type_number))
    if array.dtype not in (dtype, jax.dtypes.canonicalize_dtype(dtype)):
        remedy = f"weights[{name!r}].astype({dtype.name!r})"
        raise InvalidType(Problem(("weights", name), f"must be {dtype.name}", array.dtype, remedy=remedy))
    return array.astype(dtype)


def weights_of(graph: Any, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yields the tensors of weights by name: initializers, and values of Constant nodes."""
    for tensor in graph.initializer:
        if tensor.name in names:
            yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in (MAIN, "ai.onnx") and node.output[0] in names:
            yield from ((node.output[0], attribute.t) for attribute in node.attribute if attribute.name == "value")


def _tensors(graph: Any) -> Iterator[Any]:
    """Yields all tensors of a graph or function, including its subgraphs."""
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    yield from getattr(graph, "initializer", ())
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)
