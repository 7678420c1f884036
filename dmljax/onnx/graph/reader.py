"""Reads ONNX files as plain graphs.

The package `onnx` has the format's own parser; everything else in dmljax works without it.
"""

import contextlib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, Where, inside, require
from dmljax.foundation.checks import integer_in
from dmljax.foundation.files import MAX_POINTER_BYTES, find_foreign_content, open_file, unreadable
from dmljax.foundation.programs.progress import BYTES, has_listener, report
from dmljax.onnx.graph.graph import MAIN, Function, FunctionKey, Node, OnnxGraph, Reference, TensorType, sort_nodes
from dmljax.text import one_line, show

MAX_FILE_BYTES = 2**31  # protobuf's limit; larger weights are stored in separate files
NEWEST = {MAIN: 28, "com.microsoft": 1}  # the versions of operators that dmljax knows
MAX_VERSION = 2**31 - 1  # of other operators: the onnx package looks versions up as 32-bit integers
MAX_ELEMENTS = 2**40  # of an array: more than any memory holds
MAX_DEPTH = 64  # of nested function calls, and of nested subgraphs
_FIRST_FIELD = b"\x08"  # of almost every file: the number of its format's version


class InvalidModelFile(InvalidDesc):
    """A file or bytes are not an ONNX model in protobuf."""


class NoGraph(InvalidDesc):
    """A file or bytes have no graph, as empty ones."""


def read_model(source: Any) -> tuple["onnx.ModelProto", Path | None]:
    """The model from a file, bytes or a ModelProto, and the folder of its external data."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, bytes | bytearray | memoryview):
        return _parse_proto(bytes(source)), None
    if not isinstance(source, str | Path):
        remedy = "load(file.read())" if hasattr(source, "read") else None
        raise InvalidType(Problem("source", "must be a path, bytes or a ModelProto", show(source), remedy=remedy))
    path = Path(source)
    with open_file(path, MAX_FILE_BYTES) as file:
        report(f"reading {one_line(path.name)}", 0, os.fstat(file.fileno()).st_size, BYTES)
        data = file.read(MAX_FILE_BYTES)
    return _parse_proto(data, f"'{one_line(path)}'"), path.parent


def read_types_of_inputs(source: Any) -> dict[str, TensorType]:
    """The types of a model's inputs, without its weights."""
    proto, _ = read_model(source)
    return {tensor.name: tensor for tensor in map(tensor_type, proto.graph.input)}


def _parse_proto(data: bytes, source: str = "") -> "onnx.ModelProto":
    """The model in bytes, which came from the source that messages name."""
    if foreign := find_foreign_content(data):
        error = InvalidModelFile if data else NoGraph
        raise error(Problem((), f"{source or 'the model'} {foreign.rule}", remedy=foreign.remedy))
    model, size = onnx.ModelProto(), f"{len(data)} bytes{f' in {source}' if source else ''}"
    try:
        model.ParseFromString(data)
    except Exception:  # each implementation of protobuf raises different errors
        remedy = "the file may be cut short" if data.startswith(_FIRST_FIELD) else None
        raise InvalidModelFile(Problem((), "not an ONNX model in protobuf", size, remedy=remedy)) from None
    if not model.HasField("graph"):
        raise NoGraph(Problem((), "not an ONNX model, because it has no graph", size))
    return model


class Reader:
    """The functions, the folder and the domains' versions that all graphs of a file share."""

    def __init__(self, model: "onnx.ModelProto", folder: Path | None) -> None:
        self.folder = folder
        self._bytes_read, self._bytes_stored = 0, _bytes_stored(model.graph) if has_listener() else None
        self.versions = _versions(model.opset_import)
        self.functions: dict[FunctionKey, Function] = {}
        for proto in model.functions:
            name = _text("name", proto.name)
            with inside(("functions", name)):
                versions = self.versions | _versions(proto.opset_import)
                key = (_domain(proto.domain), name, _text("overload", proto.overload))
                require((), key not in self.functions, "the model must define a function once", show(name))
                self.functions[key] = self.function(proto, versions)

    def read(self, proto: Any) -> OnnxGraph:
        """The main graph. The reader keeps no reference to it, so that the model can free its arrays."""
        return self._graph(proto, self.versions, {}, 0)

    def function(self, proto: Any, versions: Mapping[str, int]) -> Function:
        """A function of the model or of ONNX itself, with the versions of its nodes."""
        _require_unique("inputs", proto.input)
        defaults = {attribute.name: self.attribute(attribute, versions) for attribute in proto.attribute_proto}
        inputs = tuple(TensorType(name, None, None) for name in proto.input)
        defined = {*proto.input, *(name for node in proto.node for name in node.output)}
        # A body that ONNX builds for a node omits the nodes for outputs that the node does not have.
        outputs = tuple(TensorType(name if name in defined else "", None, None) for name in proto.output)
        names = dict.fromkeys(defined)
        nodes = [self._node(node, versions, names, 0, index) for index, node in enumerate(proto.node)]
        named = [output.name for output in outputs if output.name]
        ordered = sort_nodes(nodes, set(proto.input), named, {*proto.input})
        graph = OnnxGraph(ordered, inputs, outputs)
        return Function(graph, tuple(proto.attribute), defaults)

    def _graph(self, proto: Any, versions: Mapping[str, int], outer: Mapping[str, Any], depth: int) -> OnnxGraph:
        if depth > MAX_DEPTH:
            raise InvalidDesc(Problem((), f"subgraphs must be nested at most {MAX_DEPTH} deep", "more"))
        constants: dict[str, Any] = {}
        for tensor in proto.initializer:
            name = _text("name", tensor.name)
            constants[name] = self.tensor(("initializers", name), tensor)
        for sparse in proto.sparse_initializer:
            name = _text("name", sparse.values.name)
            constants[name] = self._sparse(("initializers", name), sparse)
        inputs = tuple(tensor_type(info) for info in proto.input)
        outputs = tuple(tensor_type(info) for info in proto.output)
        for own in () if depth else inputs:
            require_possible_sizes(own.name, own.sizes or ())
        own_names = [*(tensor.name for tensor in inputs), *constants]
        _require_unique("inputs", own_names[: len(inputs)])
        sparse_names = (tensor.values.name for tensor in proto.sparse_initializer)
        _require_unique("initializers", [*(tensor.name for tensor in proto.initializer), *sparse_names])
        defined = {**outer, **dict.fromkeys(own_names)}
        results = dict.fromkeys(name for node in proto.node for name in node.output)
        outer = {**defined, **results}
        nodes = [self._node(node, versions, outer, depth, index) for index, node in enumerate(proto.node)]
        ordered = sort_nodes(nodes, set(defined), [output.name for output in outputs], {*own_names})
        return OnnxGraph(ordered, inputs, outputs, constants, proto if depth else None)

    def _node(self, proto: Any, versions: Mapping[str, int], outer: Mapping[str, Any], depth: int, index: int) -> Node:
        operator, domain = _text("op_type", proto.op_type), _domain(proto.domain)
        inputs, outputs = (tuple(_text("name", name) for name in names) for names in (proto.input, proto.output))
        own_name = _text("name", proto.name)
        with inside(("nodes", own_name or next(iter(filter(None, outputs)), ""), operator)):
            if domain not in versions:
                spelled = domain or "ai.onnx"
                raise InvalidDesc(Problem("domain", "must be imported by the model", spelled))
            _require_unique("attributes", [attribute.name for attribute in proto.attribute])
            attributes = {
                _text("name", attribute.name): self.attribute(attribute, versions, outer, depth)
                for attribute in proto.attribute
            }
        overload = _text("overload", proto.overload)
        return Node(operator, domain, versions[domain], own_name, inputs, outputs, attributes, overload, index)

    def attribute(
        self, proto: Any, versions: Mapping[str, int], outer: Mapping[str, Any] | None = None, depth: int = 0
    ) -> Any:
        """The value of an attribute; a graph in it may read the names in `outer`."""
        if proto.ref_attr_name:
            return Reference(_text("ref_attr_name", proto.ref_attr_name))
        kinds = onnx.AttributeProto
        match proto.type:
            case kinds.FLOAT | kinds.INT:
                return proto.f if proto.type == kinds.FLOAT else proto.i
            case kinds.STRING:
                return _text(proto.name, proto.s)
            case kinds.FLOATS | kinds.INTS:
                return tuple(proto.floats if proto.type == kinds.FLOATS else proto.ints)
            case kinds.STRINGS:
                return tuple(_text(proto.name, text) for text in proto.strings)
            case kinds.TENSOR:
                return self.tensor(proto.name, proto.t)
            case kinds.TENSORS:
                return tuple(self.tensor(proto.name, tensor) for tensor in proto.tensors)
            case kinds.SPARSE_TENSOR:
                return self._sparse((proto.name,), proto.sparse_tensor)
            case kinds.GRAPH:
                with inside(proto.name):
                    return self._graph(proto.g, versions, outer or {}, depth + 1)
            case kinds.TYPE_PROTO:
                return _type_of(proto.name, proto.tp)
        raise InvalidDesc(Problem(proto.name, "unknown kind of attribute", proto.type))

    def tensor(self, where: Where, proto: Any) -> Any:
        """A tensor as a NumPy array."""
        with inside(where):
            if proto.data_location == onnx.TensorProto.EXTERNAL:
                proto = self.embed(proto)
            dtype_of(proto.data_type)
            if any(size < 0 for size in proto.dims):
                raise InvalidDesc(Problem("dims", "must each be at least 0", tuple(proto.dims)))
            try:
                return numpy_helper.to_array(proto)
            except Exception as error:  # each kind of data raises different errors
                rule = f"cannot read a tensor of sizes {tuple(proto.dims)}: {error}"
                raise InvalidDesc(Problem((), rule)) from None

    def embed(self, proto: Any) -> Any:
        """A tensor with its external data embedded."""
        copy = onnx.TensorProto()
        copy.CopyFrom(proto)
        copy.ClearField("external_data")
        copy.data_location = onnx.TensorProto.DEFAULT
        copy.raw_data = self._external(proto)
        return copy

    def _external(self, proto: Any) -> bytes:
        """The bytes of a tensor's external data, whose file must be in the model's folder."""
        entries = {entry.key: entry.value for entry in proto.external_data}
        location = entries.get("location", "")
        if self.folder is None:
            remedy = "load the model by its path, or load its data with onnx.load_external_data_for_model"
            rule = "no folder to read from, because the model came without a path"
            raise InvalidDesc(Problem("location", rule, location, remedy=remedy))
        folder = self.folder.resolve()
        try:
            path = (folder / location).resolve()
            if Path(location).is_absolute() or not path.is_relative_to(folder) or path == folder:
                raise InvalidDesc(Problem("location", "must be a file in the model's folder", show(location)))
            with inside("location"):
                file = open_file(path, sys.maxsize)  # a file of weights may be of any size
            with file:
                size = os.fstat(file.fileno()).st_size
                offset = int(entries.get("offset", 0))
                length = int(entries.get("length", size - offset))
                if 0 < size <= MAX_POINTER_BYTES and (foreign := find_foreign_content(file.read())):
                    raise InvalidDesc(Problem("location", f"{location} {foreign.rule}", remedy=foreign.remedy))
                if not (0 <= offset <= size and 0 <= length <= size - offset):
                    rule = f"offset and length must be within the {size} bytes of {location}"
                    raise InvalidDesc(Problem("external_data", rule, f"{offset} and {length}"))
                file.seek(offset)
                report("reading weights", self._bytes_read, self._bytes_stored, BYTES)
                self._bytes_read += length
                return bytes(file.read(length))
        except InvalidDesc:
            raise
        except (OSError, ValueError) as error:
            with inside("location"):
                raise unreadable(folder / location, error) from None

    def _sparse(self, where: Where, proto: Any) -> Any:
        """A sparse tensor made dense."""
        with inside(where):
            values, indices = self.tensor("values", proto.values), self.tensor("indices", proto.indices)
            sizes = tuple(proto.dims)
            if any(size < 0 for size in sizes) or np.prod(sizes, dtype=object) > MAX_SPARSE:
                raise InvalidDesc(Problem("dims", f"must describe at most {MAX_SPARSE} elements", sizes))
            dense = np.zeros(sizes, values.dtype)
            try:
                places = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, sizes)
                if len(places) != dense.ndim:
                    raise IndexError("there must be an index for each dimension")
                dense[places] = values
            except (IndexError, ValueError) as error:
                raise InvalidDesc(Problem("indices", "must be within the tensor", str(error))) from None
            return dense


def _bytes_stored(proto: Any) -> int | None:
    """The bytes of a graph's weights in other files; None if the file does not say how many."""
    entries = (entry for tensor in proto.initializer for entry in tensor.external_data if entry.key == "length")
    with contextlib.suppress(ValueError):
        return sum(int(entry.value) for entry in entries) or None
    return None


MAX_SPARSE = 2**28  # elements of a sparse tensor, which is stored dense


def _versions(imports: Any) -> dict[str, int]:
    versions: dict[str, int] = {}
    for entry in imports:
        domain, version = _domain(entry.domain), entry.version
        where, newest = ("opset_import", domain or "ai.onnx"), NEWEST.get(domain)
        integer_in(where, version, 0, MAX_VERSION)
        if newest is not None and not 1 <= version <= newest:
            rule = f"must be {'1' if newest == 1 else f'from 1 to {newest}'}, which dmljax knows"
            remedy = None if domain else f"onnx.version_converter.convert_version(model, {newest})"
            raise Unsupported(Problem(where, rule, version, remedy=remedy))
        if versions.setdefault(domain, version) != version:
            raise InvalidDesc(Problem(where, f"must be {versions[domain]} throughout", version))
    return versions


def require_possible_sizes(where: Where, sizes: Sequence[Any], rule: str = "must have") -> None:
    """Refuses an array that no memory holds, unless one of its sizes is open."""
    if all(isinstance(size, int) for size in sizes) and math.prod(sizes) >= MAX_ELEMENTS:
        raise Unsupported(Problem(where, f"{rule} fewer than 2^40 elements", tuple(sizes)))


def _require_unique(where: Where, names: Sequence[str]) -> None:
    """Refuses names that occur more than once; the last would silently win."""
    if len({*names}) < len(names):
        name = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidDesc(Problem(where, "names must be unique", show(name)))


def _domain(name: str) -> str:
    return MAIN if name == "ai.onnx" else _text("domain", name)


def _text(where: Where, data: bytes | str) -> str:
    """Text of a file, which protobuf returns as bytes if it is not valid UTF-8."""
    if isinstance(data, str):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidDesc(Problem(where, "must be UTF-8 text", repr(data[:40]))) from None


def dtype_of(type_number: int) -> np.dtype[Any]:
    """The NumPy type for an ONNX type number."""
    try:
        dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(type_number))
    except (KeyError, TypeError, ValueError):
        raise InvalidDesc(Problem("data_type", "unknown data type", type_number)) from None
    if dtype.name in _WITHOUT_XLA:
        raise Unsupported(Problem("data_type", "not supported by XLA", dtype.name))
    return dtype


# JAX 0.8 and 0.10 refuse arrays of these types; JAX 0.12 crashes when it converts them.
_WITHOUT_XLA = frozenset({"float6_e2m3fn", "float6_e3m2fn"})


def tensor_type(info: Any) -> TensorType:
    """The type of an input or an output in a file."""
    name = _text("name", info.name)
    with inside(name):
        return _type_of(name, info.type)


def _type_of(name: str, proto: Any) -> TensorType:
    field = proto.WhichOneof("value")
    if field in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, field)
        dtype = dtype_of(tensor.elem_type) if tensor.elem_type else None
        sizes = tuple(map(_size, tensor.shape.dim)) if tensor.HasField("shape") else None
        denotations = tuple(_text("denotation", dimension.denotation) for dimension in tensor.shape.dim)
        return TensorType(name, dtype, sizes, denotations=denotations if any(denotations) else ())
    holds = field in ("sequence_type", "optional_type") and getattr(proto, field).HasField("elem_type")
    element = _type_of(name, getattr(proto, field).elem_type) if holds else None
    return TensorType(name, None, None, (field or "tensor_type").removesuffix("_type"), element=element)


def _size(dimension: Any) -> int | str | None:
    """A size, the name of an open size, or None: exporters also write 0, -1 and "?" for open sizes."""
    if dimension.WhichOneof("value") == "dim_param":
        return _text("dim_param", dimension.dim_param) if dimension.dim_param not in ("", "?") else None
    return dimension.dim_value if dimension.dim_value > 0 else None
