"""ONNX files as plain graphs: tensors are NumPy arrays, nodes are in order, and every name is defined.

Reads files with the package `onnx`, which has the format's own parser; everything else in dmljax works without it.
"""

import functools
import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, Where, inside, require
from dmljax.foundation.checks import integer_in
from dmljax.foundation.extras import command_for
from dmljax.foundation.files import open_file, unreadable
from dmljax.text import one_line, show

try:
    import onnx
    from onnx import numpy_helper
except ImportError as error:  # pragma: no cover  # the tests have it
    raise Unsupported(
        Problem((), "ONNX models need the package onnx", str(error), remedy=command_for("onnx"))
    ) from error

MAIN = ""  # the domain of ONNX's own operators, also spelled ai.onnx
MAX_FILE_BYTES = 2**31  # protobuf's limit; larger weights are stored in separate files
NEWEST = {MAIN: 28, "com.microsoft": 1}  # the versions of operators that dmljax knows
MAX_VERSION = 2**31 - 1  # of other operators: the onnx package looks versions up as 32-bit integers
MAX_ELEMENTS = 2**40  # of an array: more than any memory holds
MAX_DEPTH = 64  # of nested function calls, and of nested subgraphs


@dataclass(frozen=True, eq=False)
class TensorType:
    """The type of an input or an output: its dtype and its sizes, with a name or None for each open size.

    `sizes` is None if even the rank is open, and `dtype` is None if the value is not a tensor. `denotations` say what
    each dimension means, such as DATA_BATCH; most models have none. `element` is what a sequence or an optional holds.
    """

    name: str
    dtype: np.dtype[Any] | None
    sizes: tuple[int | str | None, ...] | None
    kind: str = "tensor"
    denotations: tuple[str, ...] = ()
    element: "TensorType | None" = None

    def __str__(self) -> str:
        sizes = "?" if self.sizes is None else ", ".join("?" if size is None else str(size) for size in self.sizes)
        return f"{self.name}: {self.kind if self.dtype is None else self.dtype.name}[{sizes}]"

    @property
    def has_numbers(self) -> bool:
        """Whether the value is a tensor of numbers, not of text."""
        return self.dtype is not None and self.dtype.kind != "O"

    def overridden(self, names: Mapping[str, int], denotations: Mapping[str, int]) -> "TensorType":
        """The type with open sizes replaced by name or by denotation, as ONNX Runtime overrides them.

        Denotations ignore case. A fixed size must equal its override.
        """
        if self.sizes is None:
            return self
        by_denotation = {denotation.lower(): size for denotation, size in denotations.items()}
        sizes: list[int | str | None] = []
        for declared, denotation in zip_longest(self.sizes, self.denotations, fillvalue=""):
            expected = names.get(declared) if isinstance(declared, str) else declared
            denoted = by_denotation.get(denotation.lower()) if denotation else None
            if denoted is not None and expected not in (None, denoted):
                rule = f"must have size {expected} in the dimension denoted {denotation}"
                raise InvalidDesc(Problem(self.name, rule, denoted))
            sizes.append(next((size for size in (denoted, expected) if size is not None), declared))
        return replace(self, sizes=tuple(sizes))


@dataclass(frozen=True, eq=False)
class Reference:
    """A node's attribute that takes the value of the surrounding function's attribute of this name."""

    name: str


@dataclass(frozen=True, eq=False)
class Node:
    """A node; an empty name among its inputs or outputs marks an absent optional."""

    operator: str
    domain: str
    version: int  # that the model imports for the domain
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    overload: str = ""  # selects among functions of the model
    index: int = 0  # position in the file's graph

    @property
    def label(self) -> str:
        """The node's name; an unnamed node goes by its first output."""
        return self.name or next(iter(filter(None, self.outputs)), "")

    @property
    def place(self) -> tuple[str, ...]:
        """The node's path in errors."""
        return ("nodes", self.label, self.operator)

    @property
    def subgraphs(self) -> Iterator["OnnxGraph"]:
        return (value for value in self.attributes.values() if isinstance(value, OnnxGraph))

    def bind(self, attributes: Mapping[str, Any]) -> "Node":
        """The node with references replaced by the surrounding function's attributes."""
        values = {}
        for name, value in self.attributes.items():
            if isinstance(value, Reference):
                if value.name in attributes:
                    values[name] = attributes[value.name]
            else:
                values[name] = value.bind(attributes) if isinstance(value, OnnxGraph) else value
        return replace(self, attributes=values)


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """Nodes sorted so that each follows the nodes it reads from; an absent output has an empty name."""

    nodes: tuple[Node, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    source: Any = None  # the GraphProto, for a subgraph

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.outputs)

    @functools.cached_property
    def makers(self) -> Mapping[str, Node]:
        """The nodes by the names of their outputs."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @functools.cached_property
    def free_names(self) -> frozenset[str]:
        """The names that the graph reads from enclosing graphs."""
        read = {name for node in self.nodes for name in names_read(node)} | set(self.output_names)
        defined = {*self.input_names, *self.constants, *(name for node in self.nodes for name in node.outputs)}
        return frozenset(read - defined - {""})

    @functools.cached_property
    def last_uses(self) -> Mapping[int, Sequence[str]]:
        """For each node, the names that no later node reads, except outputs."""
        nodes = enumerate(self.nodes)
        last = {name: i for i, node in nodes for name in (*names_read(node), *filter(None, node.outputs))}
        uses: dict[int, list[str]] = {}
        for name, i in last.items():
            if name not in self.output_names:
                uses.setdefault(i, []).append(name)
        return uses

    def bind(self, attributes: Mapping[str, Any]) -> "OnnxGraph":
        nodes = tuple(node.bind(attributes) for node in self.nodes)
        return replace(self, nodes=nodes)


@dataclass(frozen=True, eq=False)
class Function:
    """An operator that the model defines: a graph, and default values for its attributes."""

    graph: OnnxGraph
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any]


FunctionKey = tuple[str, str, str]  # domain, name, overload


def read_model(source: Any) -> tuple["onnx.ModelProto", Path | None]:
    """The model from a file, bytes or a ModelProto, and the folder of its external data."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, bytes | bytearray | memoryview):
        return _parse_proto(bytes(source)), None
    if not isinstance(source, str | Path):
        raise InvalidType(Problem("source", "must be a path, bytes or a ModelProto", show(source)))
    path = Path(source)
    with open_file(path, MAX_FILE_BYTES) as file:
        data = file.read(MAX_FILE_BYTES)
    return _parse_proto(data, f" in '{one_line(path)}'"), path.parent


def _parse_proto(data: bytes, note: str = "") -> "onnx.ModelProto":
    model, size = onnx.ModelProto(), f"{len(data)} bytes{note}"
    try:
        model.ParseFromString(data)
    except Exception:  # each implementation of protobuf raises different errors
        raise InvalidDesc(Problem((), "not an ONNX model in protobuf", size)) from None
    if not model.HasField("graph"):
        raise InvalidDesc(Problem((), "not an ONNX model, because it has no graph", size))
    return model


class Reader:
    """The functions, the folder and the domains' versions that all graphs of a file share."""

    def __init__(self, model: "onnx.ModelProto", folder: Path | None) -> None:
        self.folder = folder
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
        made = {*proto.input, *(name for node in proto.node for name in node.output)}
        # A body that ONNX builds for a node omits the nodes for outputs that the node does not have.
        outputs = tuple(TensorType(name if name in made else "", None, None) for name in proto.output)
        names = dict.fromkeys(made)
        nodes = [self._node(node, versions, names, 0, index) for index, node in enumerate(proto.node)]
        named = [output.name for output in outputs if output.name]
        ordered = _sort_nodes(nodes, set(proto.input), named, {*proto.input})
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
        inputs = tuple(_tensor_type(info) for info in proto.input)
        outputs = tuple(_tensor_type(info) for info in proto.output)
        for own in () if depth else inputs:
            require_possible_sizes(own.name, own.sizes or ())
        own_names = [*(tensor.name for tensor in inputs), *constants]
        _require_unique("inputs", own_names[: len(inputs)])
        sparse_names = (tensor.values.name for tensor in proto.sparse_initializer)
        _require_unique("initializers", [*(tensor.name for tensor in proto.initializer), *sparse_names])
        defined = {**outer, **dict.fromkeys(own_names)}
        made = dict.fromkeys(name for node in proto.node for name in node.output)
        outer = {**defined, **made}
        nodes = [self._node(node, versions, outer, depth, index) for index, node in enumerate(proto.node)]
        ordered = _sort_nodes(nodes, set(defined), [output.name for output in outputs], {*own_names})
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
                if not (0 <= offset <= size and 0 <= length <= size - offset):
                    rule = f"offset and length must be within the {size} bytes of {location}"
                    raise InvalidDesc(Problem("external_data", rule, f"{offset} and {length}"))
                file.seek(offset)
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


def _tensor_type(info: Any) -> TensorType:
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


# Order


def names_read(node: Node) -> Iterator[str]:
    """The names that a node reads, including those its subgraphs read."""
    yield from filter(None, node.inputs)
    for graph in node.subgraphs:
        yield from graph.free_names


def _sort_nodes(
    nodes: Sequence[Node], defined: set[str], outputs: Sequence[str], in_use: Collection[str]
) -> tuple[Node, ...]:
    """The nodes sorted so that each follows the nodes it reads from; exporters sometimes break this order.

    No output may have a name in use, as an input or an initializer of the same graph has.
    """
    makers: dict[str, int] = {}
    problems: list[Problem] = []
    for i, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in makers or name in in_use:
                problems.append(Problem(node.place, "output name already in use", show(name)))
            makers[name] = i
    before: list[set[int]] = []
    for i, node in enumerate(nodes):
        read = set(names_read(node))
        missing = sorted(name for name in read if name not in makers and name not in defined)
        problems += [Problem(node.place, "undefined name", show(name)) for name in missing]
        before.append({makers[name] for name in read if name in makers} - ({i} if not missing else set()))
        if any(makers.get(name) == i for name in node.inputs):
            problems.append(Problem(node.place, "must not read its own output", show(node.outputs)))
    missing = [name for name in outputs if name not in makers and name not in defined]
    problems += [Problem("outputs", "undefined name", show(name)) for name in missing]
    if problems:
        raise InvalidDesc(*problems[:20])
    if all(j < i for i, needed in enumerate(before) for j in needed):
        return tuple(nodes)
    try:
        return tuple(nodes[i] for i in TopologicalSorter(dict(enumerate(before))).static_order())
    except CycleError as error:
        node = nodes[min(error.args[1])]
        raise InvalidDesc(Problem(node.place, "must not be part of a cycle", show(node.outputs))) from None
