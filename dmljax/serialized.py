"""Reads and writes DirectML's serialized graphs, the flatbuffers that ONNX Runtime's DirectML provider writes.

Constants are stored in the file itself or in files beside it named after them. A constant takes the data type and
sizes of the first tensor that reads it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dmljax.directml  # noqa: F401  # which knows every operator that a file may name
from dmljax.calls.binding import check_arguments
from dmljax.descriptors.base import Operator
from dmljax.descriptors.bases import Activation
from dmljax.descriptors.json_form import Fused, operator_of_type
from dmljax.descriptors.members import SCALAR_TYPE, Array, Boolean, Integer, Member, MemberKind, Number, Struct
from dmljax.descriptors.tensor import TensorDesc
from dmljax.descriptors.validation import validate
from dmljax.errors import InvalidDesc, InvalidType, Problem, inside, require, within
from dmljax.foundation import checks
from dmljax.foundation.checks import UINT64_MAX, integer_in, parse_enum
from dmljax.foundation.files import find_foreign_content, open_file, open_output
from dmljax.foundation.scalars import Scalar
from dmljax.graphs.assembly import Assembly, first_readers
from dmljax.graphs.flatbuffer import Buffer, Packed, Table, TableReader, build
from dmljax.graphs.graph import Graph
from dmljax.ops.elementwise.elementary import ElementWiseIdentityDesc
from dmljax.text import hint_by_table, join_words, no_attribute, show, unused_name
from dmljax.types import DataType

__all__ = ["load", "parse", "save", "serialize"]

OPERATOR_NODE, CONSTANT_NODE = 1, 2
NAMED_CONSTANT, RAW_CONSTANT = 1, 2
# Attribute values in the order of the schema's union: numbers are structs, all others tables.
ACTIVATION, ACTIVATIONS, UINT32, UINT64, INT32, FLOAT32, UINTS, INTS, FLOATS, SCALE_BIAS, SIZE_2D, SCALAR, BOOL = range(
    1, 14
)
BYTES = 1  # the only kind of scalar that DirectML writes
_FORMS = {UINT32: "I", UINT64: "Q", INT32: "i", FLOAT32: "f", BOOL: "?", SCALE_BIAS: "ff", SIZE_2D: "II"}
_DTYPES = {UINTS: "uint32", INTS: "int32", FLOATS: "float32"}


MAX_BYTES = 2**32  # of a graph and its constants; the same limit as for a DxDispatch model


@check_arguments
def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Graph:
    """Loads a graph from a file, and its constants from the files beside it.

    All of these files together may hold at most `max_bytes`, 4 GiB by default. Larger files, and any
    that are not regular files, are refused before they are read.

    >>> load("notebooks/models/gemm.bin")
    Graph(1 node, 3 edges, 1 input, 1 output, 2 constants, 0 views)
    """
    with within("serialized graph"):
        path, left = checks.path("path", path), integer_in("max_bytes", max_bytes, 0, UINT64_MAX)

    def content(file: Path) -> bytes:
        nonlocal left
        with open_file(file, left, remedy="max_bytes of load counts all files together") as stream:
            data: bytes = stream.read(left)
        left -= len(data)
        return data

    with within("serialized graph"):
        data = content(path)
        if foreign := find_foreign_content(data):
            rule = f"must be a DirectML serialized graph, but {foreign.rule}"
            raise InvalidDesc(Problem((), rule, remedy=foreign.remedy))
        return parse(data, lambda name: content(file_of_constant(path, name)))


def file_of_constant(path: Path, name: str) -> Path:
    """The file of a constant beside the graph at `path`."""
    require((), Path(name).name == name, "a constant's name must be a plain file name", show(name))
    return path.with_name(f"{name}.bin")


@check_arguments
def parse(data: bytes, read_constant: Callable[[str], bytes]) -> Graph:
    """Parses the bytes of a graph file; `read_constant` returns the bytes of a constant stored in another file."""
    with within("serialized graph"):
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType(Problem("data", "must be bytes", show(data)))
        root = Buffer(data).root()
        inputs, outputs = root.texts(6), root.texts(8)
        assembly = Assembly()
        sources: dict[str, str] = {}  # the node's output or constant behind each edge name
        constants: dict[str, bytes] = {}
        for i, node in enumerate(root.tables(4)):
            with inside(("nodes", i)):
                name = node.text(8) or f"node_{i}"
                desc = node.table(6)
                if desc is None:
                    raise InvalidDesc(Problem("desc", f"node {name} has no desc"))
                if name in assembly.nodes or name in constants:
                    raise InvalidDesc(Problem("name", "must be unique among nodes", name))
                if node.number(4, "B") == CONSTANT_NODE:
                    constants[name] = _constant(desc, read_constant)
                    new_sources = dict.fromkeys(node.texts(12), name)
                else:
                    operator, read, made = _operator(node, desc)
                    new_sources = dict(zip(made, assembly.add_node(name, operator, read), strict=True))
                for edge, source in new_sources.items():
                    rule = "must be unique among inputs and outputs"
                    require("outputNames", edge not in sources and edge not in inputs, rule, edge)
                    sources[edge] = source
        assembly.rename(sources)
        readers = first_readers(assembly.nodes, assembly.edges)
        for name in inputs:
            require(("graphInputNames",), name in readers, "must each be read by a node", name)
        unknown = [name for name in outputs if name not in sources]
        if unknown:
            raise InvalidDesc(Problem("graphOutputNames", "must name outputs of nodes", join_words(unknown)))
        # Zeros, which many files of arrays begin with, read as an empty table.
        require((), bool(assembly.nodes or constants), "must be a DirectML serialized graph, but has no nodes")
        assembly.inputs = {name: _layout(readers[name]) for name in inputs}
        assembly.constants = {name: _array(data, readers.get(name)) for name, data in constants.items()}
        return assembly.finish({name: sources[name] for name in outputs})


def _layout(tensor: TensorDesc) -> TensorDesc:
    return TensorDesc(tensor.data_type, tensor.sizes, tensor.strides)


def _array(data: bytes, reader: TensorDesc | None) -> np.ndarray[Any, Any]:
    """A constant in its reader's data type and sizes, or as bytes if their number does not match."""
    is_whole = reader is not None and len(data) in (reader.span_in_bytes, reader.minimum_size_in_bytes)
    if reader is not None and reader.is_packed and is_whole:
        return reader.read(data)
    return np.frombuffer(data, np.uint8)


def _constant(desc: TableReader, read_constant: Callable[[str], bytes]) -> bytes:
    detail = desc.table(6)
    storage = desc.number(4, "B")
    if detail is None or storage not in (NAMED_CONSTANT, RAW_CONSTANT):
        raise InvalidDesc(
            Problem("data", "must be a constant's name (kind 1) or its bytes (kind 2)", f"kind {storage}")
        )
    if storage == NAMED_CONSTANT:
        return read_constant(detail.text(4))
    data = detail.numbers(4, "uint8")
    return b"" if data is None else data.tobytes()


# Operators


def header_fields(operator: type[Operator]) -> Iterator[Member | str]:
    """Yields the members in the header's order, and the name of a count such as AxisCount before its arrays."""
    counts = set()
    for member in operator.members():
        count = member.kind.count
        if count is not None and count not in counts:
            counts.add(count)
            yield count
        yield member


def _operator(node: TableReader, desc: TableReader) -> tuple[Operator, list[str], list[str]]:
    """An operator, and the names of the edges of its inputs and its outputs."""
    operator_type = operator_of_type("type", desc.text(4))
    with inside(operator_type.short_name):
        read, made = _Tensors(desc.tables(6), node.texts(10)), _Tensors(desc.tables(8), node.texts(12))
        operator = operator_type(**_members(operator_type, desc.tables(10), read, made))
    return operator, read.edges, made.edges


class _Tensors:
    """A queue of the descs and names of a node's inputs or outputs, which its members take in turn."""

    def __init__(self, descs: list[TableReader], names: list[str]) -> None:
        self._descs, self._names = descs, names
        self.edges: list[str] = []  # the names of present tensors

    def next(self, member: Member) -> Any:
        """Takes the desc of the next member, or None if its name is empty; an array member takes all that remain."""
        if isinstance(member.kind, Array):
            return tuple(self._tensor(member.name) for _ in range(len(self._descs)))
        if not self._names:
            raise InvalidDesc(Problem(member.name, "no name", remedy="use an empty name to leave a tensor out"))
        if not self._names[0]:
            self._names.pop(0)
            return None
        return self._tensor(member.name)

    def _tensor(self, member: str) -> TensorDesc:
        require(member, bool(self._descs and self._names), "needs a desc and a name")
        desc = self._descs.pop(0)
        self.edges.append(self._names.pop(0))
        sizes, strides = desc.numbers(6, "uint32"), desc.numbers(8, "uint32")
        with inside(member):
            return TensorDesc(
                desc.text(4),  # the name of a data type
                () if sizes is None else tuple(sizes.tolist()),
                None if strides is None else tuple(strides.tolist()),
                total_tensor_size_in_bytes=desc.number(10, "Q"),
            )


def _members(
    operator_type: type[Operator],
    attributes: list[TableReader],
    read: _Tensors | None = None,
    made: _Tensors | None = None,
) -> dict[str, Any]:
    """Reads the members of an operator, or of a fused activation, which has no tensors."""
    members: dict[str, Any] = {}
    left = iter(attributes)
    data_type = None
    for field in header_fields(operator_type):
        if isinstance(field, str):
            next(left, None)  # skip the count; arrays store their own length
        elif field.tensor_kind is not None:
            tensors = read if field.tensor_kind.is_input else made
            members[field.field] = None if tensors is None else tensors.next(field)
        else:
            attribute = next(left, None)
            with inside(field.name):
                value = None if attribute is None else _value(field.kind, attribute, data_type)
            if field.kind == SCALAR_TYPE:
                data_type = value = parse_enum(DataType, field.name, value)
            members[field.field] = value
    return members


def _value(kind: MemberKind, attribute: TableReader, data_type: DataType | None) -> Any:
    """Reads an attribute in the form that a descriptor takes."""
    form = attribute.number(6, "B")
    if form in _FORMS:
        return _numbers(kind, attribute.structure(8, _FORMS[form]))
    value = attribute.table(8)
    if value is None:
        return None
    if form == ACTIVATION:
        return _activation(value)
    if form == ACTIVATIONS:
        return [_activation(table) for table in value.tables(4)]
    if form in _DTYPES:
        numbers = value.numbers(4, _DTYPES[form])
        return [] if numbers is None else numbers.tolist()
    if form == SCALAR and data_type is not None:
        return _scalar(value, data_type)
    raise InvalidDesc(Problem((), "wrong kind of value for this member", form))


def _numbers(kind: MemberKind, numbers: tuple[Any, ...] | None) -> Any:
    """The value of a struct: a number, or the two numbers of a ScaleBias or Size2D."""
    if numbers is None:
        return None
    if isinstance(kind, Struct) and len(numbers) == len(kind.fields):
        return kind.form(*numbers)
    return bool(numbers[0]) if isinstance(kind, Boolean) else numbers[0]


def _scalar(value: TableReader, data_type: DataType) -> Scalar:
    content = value.table(6)
    data = None if content is None or value.number(4, "B") != BYTES else content.numbers(4, "uint8")
    if data is None or len(data) * 8 < data_type.bits:
        raise InvalidDesc(Problem((), f"must have the bytes of a {data_type.name} number", "fewer, or none"))
    return Scalar(data_type, int.from_bytes(data.tobytes(), "little") % 2**data_type.bits)


def _activation(value: TableReader) -> Operator:
    operator_type = operator_of_type("type", value.text(4))
    if not isinstance(operator_type, type) or not issubclass(operator_type, Activation):
        raise InvalidDesc(Problem("type", "must be an activation", operator_type.type))
    return operator_type(**_members(operator_type, value.tables(6)))


# Writing


@check_arguments
def save(graph: Graph, path: str | Path) -> None:
    """Writes a graph and its constants to one file, which `load` reads back.

    The format stores no descs for a graph's inputs and outputs. So we insert an ELEMENT_WISE_IDENTITY after an input
    whose first reader uses a different desc, and before an output that is a view or shares its source with another
    output. A graph is refused if an output has the name of an input, or if an identity would copy a tensor with gaps or
    4-bit elements.

    >>> graph = load("notebooks/models/gemm.bin")
    >>> save(graph, "copy.bin")
    >>> to_json(load("copy.bin")) == to_json(graph)
    True
    """
    with within("serialized graph"):
        path = checks.path("path", path)
    data = serialize(graph)
    with open_output(path) as file:
        file.write(data)


@check_arguments
def serialize(graph: Graph) -> bytes:
    """The bytes that `save` writes."""
    validate(graph)
    with within("serialized graph"):
        graph = _with_identities(graph)
        edges = _edge_names(graph)
        constants = [
            {
                4: ("B", CONSTANT_NODE),
                6: {4: ("B", RAW_CONSTANT), 6: {4: _bytes_of(graph.sources[name], value)}},
                8: name,
                12: [edges[name]],
            }
            for name, value in graph.constants.items()
        ]
        nodes = [_node(graph, name, edges) for name in graph.order]
        return build({4: [*constants, *nodes], 6: list(graph.inputs), 8: list(graph.outputs)})


def _bytes_of(desc: TensorDesc, value: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(desc.buffer_of(np.asarray(value).reshape(desc.sizes)), np.uint8)


def _with_identities(graph: Graph) -> Graph:
    """Inserts identities so that inputs are first read with their own descs, and outputs have different sources."""
    readers = first_readers({name: graph.nodes[name] for name in graph.order}, graph.edges)
    first, last = Assembly(), Assembly()
    passed_on: dict[str, str] = {}
    for name, desc in graph.inputs.items():
        if name not in readers or _layout(readers[name]) != _layout(desc):
            if name in readers and not desc.is_packed:
                raise InvalidDesc(
                    Problem(("inputs", name), "must be packed, or its first reader must use the same desc", desc)
                )
            passed_on[name] = _identity(first, ("inputs", name), graph, name, desc)
    outputs: dict[str, str] = {}
    for name, source in graph.outputs.items():
        is_own = name not in graph.views and source not in outputs.values()
        outputs[name] = source if is_own else _identity(last, ("outputs", name), graph, source, graph.results[name])
    edges = {to: passed_on.get(source, source) for to, source in graph.edges.items()}
    return Graph(
        nodes={**first.nodes, **graph.nodes, **last.nodes},
        edges={**first.edges, **edges, **last.edges},
        inputs=graph.inputs,
        outputs=outputs,
        constants=graph.constants,
    )


def _identity(assembly: Assembly, place: tuple[str, str], graph: Graph, source: str, desc: TensorDesc) -> str:
    """Adds an identity that reads a source with this desc; returns its packed output."""
    node = ElementWiseIdentityDesc(input=_layout(desc), output=TensorDesc(desc.data_type, desc.sizes))
    with inside(place):
        validate(node)
    (output,) = assembly.add_node(unused_name(f"{place[1]} identity", graph.nodes), node, [source])
    return output


def _edge_names(graph: Graph) -> dict[str, str]:
    """The name of the edge from each source; for a source of a graph output, the output's name."""
    names = {source: source for source in graph.sources}
    for name, source in graph.outputs.items():
        if name in names:
            raise InvalidDesc(Problem(("outputs", name), "must have a unique name", name))
        names[source] = name
    return names


def _node(graph: Graph, name: str, edges: dict[str, str]) -> Table:
    node = graph.nodes[name]
    named = {f"{name}.{leaf.key}": f"{name}.{leaf.key}" for leaf in node.leaves(is_input=False)} | dict(graph.edges)
    # In the header's order; empty if a tensor is left out
    names: dict[bool, list[str]] = {True: [], False: []}
    for member in node.members():
        if member.tensor_kind is not None:
            keys = [leaf.key for leaf in node.leaves() if leaf.member is member]
            names[member.tensor_kind.is_input] += [edges[named[f"{name}.{key}"]] for key in keys] or [""]
    operator = {
        4: type(node).type,
        6: [_tensor_table(leaf.tensor) for leaf in node.leaves(is_input=True)],
        8: [_tensor_table(leaf.tensor) for leaf in node.leaves(is_input=False)],
        10: _attributes(node),
    }
    return {4: ("B", OPERATOR_NODE), 6: operator, 8: name, 10: names[True], 12: names[False]}


def _tensor_table(tensor: TensorDesc) -> Table:
    return {
        4: tensor.data_type.spelling,
        6: np.array(tensor.sizes, np.uint32),
        8: None if tensor.strides is None else np.array(tensor.strides, np.uint32),
        10: ("Q", tensor.total_tensor_size_in_bytes or tensor.minimum_size_in_bytes),
    }


def _attributes(node: Operator) -> list[Table]:
    tables: list[Table] = []
    lengths = {field.kind.count: len(getattr(node, field.field) or ()) for field in node.members() if field.kind.count}
    for field in header_fields(type(node)):
        if isinstance(field, str):
            tables.append(_attribute(field, UINT32, Packed("I", (lengths[field],))))
        elif field.tensor_kind is None:
            tables.append(_attribute_of(node, field))
    return tables


def _attribute(name: str | None, form: int, value: Table | Packed | None) -> Table:
    return {4: name, 6: ("B", form), 8: value}


def _attribute_of(node: Operator, field: Member) -> Table:
    kind, value = field.kind, getattr(node, field.field)
    form = _form_of(kind, type(node).type)
    if value is None:
        return _attribute(None, form, None)
    if form == ACTIVATION:
        return _attribute(field.name, form, _activation_table(value))
    if form == ACTIVATIONS:
        return _attribute(field.name, form, {4: [_activation_table(fused) for fused in value]})
    if form == SCALAR:
        data = np.frombuffer(value.bits.to_bytes(8, "little"), np.uint8)
        return _attribute(field.name, form, {4: ("B", BYTES), 6: {4: data}})
    elements = value if isinstance(value, tuple) else (value,)
    plain = [element.item.item() if isinstance(element, Scalar) else int(element) for element in elements]
    if form in _FORMS:
        return _attribute(field.name, form, Packed(_FORMS[form], tuple(plain)))
    return _attribute(field.name, form, {4: np.array(plain, _DTYPES[form])})


def _activation_table(value: Operator) -> Table:
    return {4: type(value).type, 6: _attributes(value)}


def _form_of(kind: MemberKind, operator: str) -> int:
    """The storage form of a kind of member in DirectML's schema: a BOOL is a UINT, except in one operator."""
    match kind:
        case Fused():
            return ACTIVATION
        case Array(of=Fused()):
            return ACTIVATIONS
        case Array(of=Number()):
            return FLOATS
        case Array(of=Integer(name="INT")):
            return INTS
        case Array():
            return UINTS
        case Struct(name="DML_SIZE_2D"):
            return SIZE_2D
        case Struct():
            return SCALE_BIAS
        case Number(own_type=None):
            return SCALAR
        case Number():
            return FLOAT32
        case Integer(name="UINT64"):
            return UINT64
        case Integer(name="INT"):
            return INT32
        case Boolean() if operator == "DML_OPERATOR_LOCAL_RESPONSE_NORMALIZATION_GRAD":
            return BOOL
    return UINT32


if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

    def __getattr__(name):
        elsewhere = {"read": "load", "loads": "parse", "write": "save", "dump": "save", "dumps": "serialize"}
        raise no_attribute("dmljax.serialized", name, hint_by_table(name, elsewhere, __all__))


def __dir__() -> list[str]:
    return __all__
