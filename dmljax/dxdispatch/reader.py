"""Reads and validates DxDispatch models.

The reader goes on after an error, so that one run reports every error in a model. Models come from strangers: sizes and
numbers of findings are bounded, and the time is proportional to the size of the model.
"""

import os
from collections import ChainMap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path, PureWindowsPath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dmljax.checks import UINT64_MAX, UINT_MAX, boolean, integer_in, parse_enum, uints
from dmljax.descriptors import Operator
from dmljax.descriptors.json_form import members_from_json, operator_of_type
from dmljax.descriptors.members import Array, Kind, json_given, json_string
from dmljax.dxdispatch.files import bytes_of, check_writable, read_values, target_path
from dmljax.dxdispatch.hints import checks_of_hints
from dmljax.dxdispatch.model import (
    Binding,
    Bindings,
    BindPoint,
    Command,
    Dispatch,
    Dispatchable,
    DispatchModel,
    Finding,
    InvalidModel,
    MissingModel,
    Print,
    Resource,
    UnopenedModel,
    UnreadableModel,
    WriteFile,
    bind_points,
)
from dmljax.dxdispatch.networks import (
    ONNX_FIELDS,
    Network,
    Overrides,
    Sizes,
    parse_overrides,
    require_shapes_of_outputs,
    resource_bound,
    single_binding,
    sizes_by_name,
)
from dmljax.dxdispatch.numbers import convert, sequence
from dmljax.dxdispatch.text import Document, InvalidJson, Place, parse
from dmljax.errors import (
    MAX_PROBLEMS,
    DmlError,
    InvalidDesc,
    InvalidType,
    MissingFile,
    Problem,
    Unsupported,
    UnusableFile,
    Where,
    all_checked,
    inside,
    spell_path,
)
from dmljax.files import opened
from dmljax.graph import Graph
from dmljax.serialized import file_of_constant, parse as parse_graph
from dmljax.tensor import TensorDesc
from dmljax.text import did_you_mean, one_line, show, unused_name
from dmljax.types import INTEGERS_4, LATEST, DataType, FeatureLevel

MAX_RESOURCE_BYTES = 2**31  # the largest buffer of Direct3D 12
MAX_MODEL_BYTES = 2**32
MAX_TEXT_BYTES = 2**26  # of the JSON file; larger data belongs in files that the model names
MAX_PRINTED_VALUES = 2**24
MAX_FINDINGS = MAX_PROBLEMS


def load(
    path: str | Path | BinaryIO,
    *,
    input_path: str | Path | None = None,
    feature_level: FeatureLevel | str = LATEST,
    free_dimension_name_overrides: Mapping[str, int] | None = None,
    free_dimension_denotation_overrides: Mapping[str, int] | None = None,
    binding_shapes: Mapping[str, Sequence[int]] | None = None,
) -> DispatchModel:
    """Reads a DxDispatch model from a JSON file, and checks it against DirectML's rules at a feature level.

    Files that the model names are looked up in `input_path`, which is the model's folder by default, and then relative
    to the current folder. The model itself is looked up in `input_path` if `path` does not exist. A stream of bytes
    serves as well as a path; its folder is the current one.

    The last three give sizes of ONNX models, and come before those that the JSON gives: of open dimensions by their
    names or denotations, and of the tensors of all dispatches by the names of inputs and outputs.

    >>> model = load("notebooks/models/top1_routing.json")
    >>> model.dispatchables["route"](np.eye(4, dtype="float32")[::-1]).tolist()[0]
    [0.0, 0.0, 0.0, 1.0]
    """
    level = parse_enum(FeatureLevel, "feature_level", feature_level)
    overrides = Overrides(
        sizes_by_name("free_dimension_name_overrides", free_dimension_name_overrides or {}),
        sizes_by_name("free_dimension_denotation_overrides", free_dimension_denotation_overrides or {}),
        {name: uints(("binding_shapes", name), shape) for name, shape in (binding_shapes or {}).items()},
    )
    if isinstance(path, str | Path):
        beside = Path(path) if input_path is None else Path(input_path) / path
        # os.path.exists takes any text; Path.exists raises for some.
        file = Path(path) if os.path.exists(path) or not os.path.exists(beside) else beside
        document = _document(file, partial(_read_file, file))
    else:
        file = Path(getattr(path, "name", "<stream>"))
        document = _document(file, partial(_read_stream, path))
    reader = _Reader(file, file.parent if input_path is None else Path(input_path), level, document, overrides)
    reader.read()
    if reader.findings:
        listed, rest = reader.findings[:MAX_FINDINGS], reader.findings[MAX_FINDINGS:]
        raise InvalidModel([*sorted(listed, key=lambda finding: finding.line), *rest], reader.warnings)
    return reader.model


def _read_file(file: Path) -> bytes:
    if file.suffix.lower() == ".onnx":
        raise Unsupported(Problem((), "must be JSON, in which a dispatchable names an ONNX model"))
    with opened(file, MAX_TEXT_BYTES) as stream:
        data: bytes = stream.read()
    return data


def _read_stream(stream: BinaryIO) -> bytes:
    data = stream.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise InvalidDesc(Problem((), f"must hold at most {MAX_TEXT_BYTES} bytes", "more"))
    return data


def _document(file: Path, read: Callable[[], bytes]) -> Document:
    line, column = 0, None
    refusal: UnusableFile | None = None
    try:
        data = read()
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = Problem((), "the model must be UTF-8 text", error.reason)
    except InvalidJson as error:
        line, column, problem = error.line, error.column, error.problems[0]
    except DmlError as error:
        (refused,) = error.problems
        problem = Problem((), f"the model {refused.rule}", refused.given)
        refusal = error if isinstance(error, UnusableFile) else None
    findings = [Finding(str(file), line, problem, column)]
    if refusal is None:
        raise UnreadableModel(findings)
    unopened = (MissingModel if isinstance(refusal, MissingFile) else UnopenedModel)(findings)
    unopened.errno, unopened.strerror, unopened.filename = refusal.errno, refusal.strerror, refusal.filename
    raise unopened


# Reading

_BUFFER_FIELDS = (
    "initialValuesDataType",
    "initialValues",
    "initialValuesOffsetInBytes",
    "sizeInBytes",
    "resampleSize",
    "resampleMode",
)
_BINDING_FIELDS = (
    "name",
    "elementCount",
    "elementSizeInBytes",
    "elementOffset",
    "format",
    "counter",
    "counterOffsetBytes",
    "shape",
)
_COMMAND_FIELDS = {
    "dispatch": ("type", "dispatchable", "bindings", "threadGroupCount"),
    "print": ("type", "resource", "verbose"),
    "writefile": ("type", "resource", "targetPath", "dimensions"),
}
_MINIMUM_ALIGNMENT = 16  # DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT


class _TooManyFindingsError(Exception):
    """A model has MAX_FINDINGS errors, so that the reader stops."""


class _Reader:
    """Reads a model part by part, and collects the findings of each."""

    def __init__(
        self, file: Path, input_path: Path, feature_level: FeatureLevel, document: Document, overrides: Overrides
    ) -> None:
        self.input_path = input_path
        self.overrides = overrides
        self.feature_level = feature_level
        # A part with a finding is stored as None, so that references to its name are not reported as unknown.
        self.resources: dict[str, Any] = {}
        self.dispatchables: dict[str, Any] = {}
        # By dispatchable, also a wrong one: the names that bindings may have, and whether each has a list of tensors.
        self.names: dict[Any, Mapping[str, bool]] = {}
        self.networks: dict[str, Network] = {}
        self.graphs: dict[str, Dispatchable] = {}  # of networks, which take their places in the end
        self.sized: dict[tuple[Any, ...], str | None] = {}  # the names of the graphs, by network and sizes
        self.deferred: set[str] = set()  # resources of which no output has said the size so far
        self.sizes_of_outputs: dict[str, int] = {}  # of those of which one has
        self.commands: list[Any] = []
        self.targets: dict[str, int] = {}  # each file that commands write, and the first command that writes it
        self.warnings: list[Finding] = []
        self.findings: list[Finding] = []
        self.model = DispatchModel(file, self.resources, self.dispatchables, self.commands, self.warnings, document)
        self.bytes_left = MAX_MODEL_BYTES

    @contextmanager
    def part(self, *place: str | int) -> Iterator[None]:
        """Records the problems of a DmlError raised inside as findings at `place`, and goes on after the block."""
        try:
            yield
        except DmlError as error:
            for problem in error.problems:
                self.add_finding(place, problem)

    def add_finding(self, place: Place, problem: Problem, line: int | None = None) -> None:
        finding = self.model.finding(place, problem)
        self.findings.append(finding if line is None else replace(finding, line=line))
        if len(self.findings) >= MAX_FINDINGS:
            raise _TooManyFindingsError

    def warn(self, place: Place, problem: Problem) -> None:
        if len(self.warnings) < MAX_FINDINGS:
            self.warnings.append(self.model.finding(place, problem))

    def fields(self, place: Place, value: Any, names: Sequence[str]) -> dict[str, Any]:
        """The fields of an object that are in `names` and not null; warns of others, which DxDispatch ignores."""
        known = set(names)
        for name in _require_object(value):
            if name not in known and value[name] is not None and not name.startswith(("$", "//")):
                hint = did_you_mean(name, names)
                rule = f"unknown field {show(name)} is ignored; known fields are {', '.join(names)}{hint}"
                self.warn(place, Problem(name, rule))
        return {name: value[name] for name in names if value.get(name) is not None}

    def read(self) -> None:
        try:
            self.read_all()
        except _TooManyFindingsError:
            last = self.findings[-1]
            rest = Problem((), f"only {MAX_FINDINGS} findings are listed; the rest of the model was not read")
            self.findings.append(Finding(last.file, last.line, rest))

    def read_all(self) -> None:
        document = self.model.document
        for place, line in document.repeated:
            self.add_finding(place, Problem((), "must be given only once", "a repeated name"), line)
        with self.part():
            root = self.fields((), document.root, ("resources", "dispatchables", "commands"))
            for name, value in self.section(root, "resources", dict).items():
                self.resources[name] = None
                with self.part("resources", name):
                    self.resources[name] = self.resource(("resources", name), value)
            for name, value in self.section(root, "dispatchables", dict).items():
                self.dispatchables[name] = None
                with self.part("dispatchables", name):
                    self.dispatchables[name] = self.dispatchable(("dispatchables", name), value)
            for index, value in enumerate(self.section(root, "commands", list)):
                with self.part("commands", index):
                    self.commands.append(self.command(("commands", index), value))
                    if isinstance(self.commands[-1], WriteFile):
                        self.targets.setdefault(self.commands[-1].target_path, index)
            self.check_targets()
            for name in self.overrides.shapes:
                if not any(name in network.names for network in self.networks.values()):
                    rule = f"the shape of {show(name)} is ignored, because no ONNX model has such an input or output"
                    self.warn((), Problem((), rule))
            for name in self.networks:
                del self.dispatchables[name]
            self.dispatchables |= self.graphs

    def check_targets(self) -> None:
        """Finds a file that another file of the model would need as its folder."""
        # With "/" sorted before all other characters, a folder comes directly before the first path inside it.
        targets = sorted(self.targets, key=lambda target: target.replace("/", "\0"))
        for folder, target in pairwise(targets):
            if target.startswith(f"{folder}/"):
                problem = Problem("targetPath", "must not use another file of the model as a folder", show(target))
                self.add_finding(("commands", self.targets[target]), problem)

    def section(self, root: Mapping[str, Any], name: str, kind: type) -> Any:
        with self.part():
            return _required_of_kind(root, name, kind)
        return kind()

    # Resources

    def resource(self, place: Place, value: Any) -> Resource:
        fields = self.fields(place, value, _BUFFER_FIELDS)
        if fields.get("initialValues") == "deferred":
            data_type = _data_type(fields, "initialValuesDataType", DataType.UNKNOWN)
            self.deferred.add(str(place[-1]))
            return Resource(data_type, 0, np.zeros(0, np.uint8))
        offset, size, (data_type, values) = all_checked(
            lambda: _uint64(fields, "initialValuesOffsetInBytes", 0),
            lambda: _uint64(fields, "sizeInBytes", None),
            lambda: self.initial_values(place, fields),
        )
        if not values.size:
            raise InvalidDesc(Problem("initialValues", "must hold at least one value", "none"))
        data = bytes_of(values)
        size = -(-data.size // 4) * 4 if size is None else size
        if data.size + offset > size:
            needed = f"{data.size + offset}, for {data.size} bytes of initialValues from byte {offset} on"
            raise InvalidDesc(Problem("sizeInBytes", f"must be at least {needed}", size))
        self.require_affordable("sizeInBytes", size)
        self.bytes_left -= size
        padding_bits = 4 if values.dtype in INTEGERS_4 and values.size % 2 else 0
        return Resource(data_type, size, data, offset, padding_bits)

    def initial_values(self, place: Place, fields: Mapping[str, Any]) -> tuple[DataType, NDArray[Any]]:
        data_type = _data_type(fields, "initialValuesDataType", DataType.UNKNOWN)
        source = _required(fields, "initialValues")
        if isinstance(source, list):
            is_struct = data_type is DataType.UNKNOWN
            return data_type, self.struct(place, source) if is_struct else self.numbers(place, source, data_type)
        if not isinstance(source, dict):
            raise InvalidType(Problem("initialValues", "must be a list or an object", show(source)))
        kinds = [kind for kind in ("value", "valueStart", "sourcePath") if kind in source]
        if not kinds or (kinds[0] == "value" and len(kinds) > 1):
            given = ", ".join(map(one_line, kinds or list(source)[:8])) or "none"
            raise InvalidDesc(Problem("initialValues", "must have one of value, valueStart and sourcePath", given))
        place = (*place, "initialValues")
        if kinds[0] == "sourcePath":
            return self.file_values(self.fields(place, source, ("sourcePath",)), data_type, fields)
        with inside("initialValues"):
            return data_type, self.generate(place, source, data_type, kinds[0])

    def generate(self, place: Place, source: Any, data_type: DataType, kind: str) -> NDArray[Any]:
        """Makes `valueCount` values: `value` repeated, or a sequence from `valueStart` with the step `valueDelta`."""
        names = (kind, "valueDelta") if kind == "valueStart" else (kind,)
        fields = self.fields(place, source, (*names, "valueCount"))
        if data_type is DataType.UNKNOWN:
            raise InvalidDesc(Problem(kind, "must come with initialValuesDataType", "none"))
        count = integer_in("valueCount", _required(fields, "valueCount"), 0, UINT_MAX)
        self.require_affordable("valueCount", count * data_type.dtype.itemsize)
        first, *delta = (self.number(place, name, _required(fields, name), data_type) for name in names)
        return sequence(first, delta[0], count) if delta else np.full(count, first)

    def struct(self, place: Place, source: Sequence[Any]) -> NDArray[np.uint8]:
        """The bytes of a list of {name, type, value} objects, packed without padding."""
        if any(not isinstance(element, dict) for element in source):
            raise InvalidDesc(
                Problem("initialValuesDataType", "must be given, unless all of initialValues are objects", "none")
            )
        parts = []
        for index, part in enumerate(source):
            inner = (*place, "initialValues", index)
            with inside(("initialValues", index)):
                fields = self.fields(inner, part, ("name", "type", "value"))
                data_type = _data_type(fields, "type", None)
                parts.append(self.number(inner, "value", _required(fields, "value"), data_type).tobytes())
        return np.frombuffer(b"".join(parts), np.uint8)

    def numbers(self, place: Place, values: Sequence[Any], data_type: DataType) -> NDArray[Any]:
        converted, too_large = convert("initialValues", values, data_type)
        for index in too_large[:MAX_FINDINGS].tolist():
            self.warn_of_infinity((*place, "initialValues", index), values[index], data_type)
        return converted

    def number(self, place: Place, name: str, value: Any, data_type: DataType) -> Any:
        converted, too_large = convert(name, [value], data_type, is_list=False)
        if too_large.size:
            self.warn_of_infinity((*place, name), value, data_type)
        return converted[0]

    def warn_of_infinity(self, place: Place, value: Any, data_type: DataType) -> None:
        self.warn(place, Problem((), f"must be in range for {data_type.name} not to become infinite", value))

    def file_values(
        self, source: Mapping[str, Any], data_type: DataType, fields: Mapping[str, Any]
    ) -> tuple[DataType, NDArray[Any]]:
        name = json_string(("initialValues", "sourcePath"), _required(source, "sourcePath"))
        if fields.get("resampleMode", "scale") != "scale":
            raise InvalidDesc(Problem("resampleMode", "must be 'scale'", show(fields["resampleMode"])))
        size = uints("resampleSize", fields.get("resampleSize", []))
        if len(size) not in (0, 4):
            raise InvalidDesc(
                Problem("resampleSize", "must be batch, channels, height and width", f"{len(size)} elements")
            )
        with inside(("initialValues", "sourcePath")):
            data_type, values = read_values(self.file(name), data_type, size, self.affordable_bytes)
            self.require_affordable((), values.nbytes)
        return data_type, values

    def file(self, name: str) -> Path:
        """The file of this name in the input folder, or else in the current one."""
        # Models come from Windows, so that a backslash in a path separates folders, too.
        names = dict.fromkeys((name, PureWindowsPath(name).as_posix()))
        candidates = [folder / spelled for folder in (self.input_path, Path()) for spelled in names]
        return next((path for path in candidates if os.path.exists(path)), candidates[0])

    @property
    def affordable_bytes(self) -> int:
        return min(MAX_RESOURCE_BYTES, self.bytes_left)

    def require_affordable(self, member: Where, size: int) -> None:
        if size > self.affordable_bytes:
            limits = f"{MAX_RESOURCE_BYTES} bytes for one resource and {MAX_MODEL_BYTES} for all"
            raise InvalidDesc(Problem(member, f"must ask for at most {limits}", size))

    # Dispatchables

    def dispatchable(self, place: Place, value: Any) -> Dispatchable | None:
        type_field = next((key for key in ("Type", "type") if key in _require_object(value)), "type")
        kind = json_string(type_field, value.get(type_field))
        if kind.lower() == "hlsl":
            rule = "must be an operator, dmlSerializedGraph or onnx"
            raise Unsupported(Problem(type_field, rule, f"{kind!r}, and shaders of Direct3D do not run on XLA"))
        if kind.lower() == "onnx":
            self.network(place, value)
            return None  # the dispatches say of which sizes it is
        if kind.lower() == "dmlserializedgraph":
            return self.serialized_graph(place, value)
        return self.operator(place, value, operator_of_type(type_field, kind))

    def operator(self, place: Place, value: Any, operator: type[Operator]) -> Dispatchable | None:
        members = [member for member in operator.members() if member.tensor_kind]
        names = self.names[place[-1]] = {member.name: isinstance(member.kind, Array) for member in members}
        desc_place = self.model.desc_place(str(place[-1]))
        inside = operator.json_fields() if desc_place == place else (str(desc_place[-1]),)
        fields = self.fields(place, value, ("type", "Type", "bindings", "executionFlags", "dmlCompileType", *inside))
        with self.part(*place):
            all_checked(*checks_of_hints(fields))
        desc = self.desc(desc_place, operator, fields if desc_place == place else fields[inside[0]])
        points = None if desc is None else bind_points(desc)
        wanted = {point.key for point in points or () if point.is_owned}
        bindings = self.bindings(
            (*place, "bindings"), names, points, fields.get("bindings", {}), wanted, "in a dispatch"
        )
        return None if desc is None else Dispatchable(desc, bindings)

    def serialized_graph(self, place: Place, value: Any) -> Dispatchable | None:
        """Reads a graph, whose bindings go by the names of its inputs and outputs, and its constants beside it."""
        fields = self.fields(place, value, ("type", "Type", "sourcePath", "executionFlags"))
        with self.part(*place):
            all_checked(*checks_of_hints(fields))
        place = (*place, "sourcePath")
        path = self.file(json_string("sourcePath", _required(fields, "sourcePath")))
        with inside("sourcePath"):
            graph = parse_graph(self.content(path), lambda name: self.content(file_of_constant(path, name)))
        self.names[place[-2]] = dict.fromkeys((*graph.inputs, *graph.outputs), False)
        return Dispatchable(graph) if self.is_valid(place, graph, _leaves(graph)) else None

    def network(self, place: Place, value: Any) -> None:
        """Reads an ONNX model, whose bindings go by the names of its inputs and outputs."""
        fields = self.fields(place, value, ("type", "Type", *ONNX_FIELDS))
        (names, denotations), name = all_checked(
            lambda: parse_overrides(fields), lambda: json_string("sourcePath", _required(fields, "sourcePath"))
        )
        with inside("sourcePath"):
            path = self.file(name)
            with opened(path, self.affordable_bytes) as file:
                self.bytes_left -= os.fstat(file.fileno()).st_size
            names, denotations = names | self.overrides.names, denotations | self.overrides.denotations
            network = self.networks[str(place[-1])] = Network(path, names, denotations)
        self.names[place[-1]] = network.names

    def network_of(self, place: Place, name: str, shapes: Sizes, bound: Container[str]) -> str | None:
        """The name of the dispatchable that is an ONNX model for inputs of these sizes; None if it has findings.

        The first one has the name of the model, and others have their sizes in theirs, too.
        """
        network = self.networks[name]
        with self.part(*place):
            sizes = network.sizes(shapes, bound)
            for one, count in network.bytes_of_inputs(sizes).items():
                self.require_affordable((one, "shape"), count)
            key = (name, *sizes.items())
            if key in self.sized:
                return self.sized[key]
            self.sized[key] = None
            own_place = ("dispatchables", name, "sourcePath")
            with self.part(*own_place):
                graph = network.graph(sizes)
                if self.is_valid(own_place, graph, _leaves(graph)):
                    spelled = ", ".join(f"{one} {'x'.join(map(str, its))}" for one, its in sizes.items())
                    used = ChainMap(self.graphs, self.dispatchables)
                    own = unused_name(f"{name} ({spelled})", used) if name in self.graphs else name
                    self.graphs[own], self.sized[key] = Dispatchable(graph), own
            return self.sized[key]
        return None

    def content(self, path: Path) -> bytes:
        with opened(path, self.affordable_bytes) as file:
            data: bytes = file.read(self.affordable_bytes)
        self.bytes_left -= len(data)
        return data

    def desc(self, place: Place, operator: type[Operator], value: Any) -> Operator | None:
        """Reads a desc and checks its rules; None if the desc has findings."""
        before = len(self.findings)
        with self.part(*place):
            if place[-1] in ("Desc", "desc"):
                value = self.fields(place, value, operator.json_fields())
            known = value | {
                member.name: self.nested_fields((*place, member.name), member.kind, value[member.name])
                for member in operator.members()
                if value.get(member.name) is not None
            }
            members = members_from_json(operator, known, lambda: self.part(*place))
            if len(self.findings) > before:
                return None
            desc = operator(**members)
            if self.is_valid(place, desc, [(leaf.path, leaf.tensor) for leaf in desc.leaves()]):
                return desc
        return None

    def is_valid(self, place: Place, desc: Operator | Graph, tensors: Sequence[tuple[Place, TensorDesc]]) -> bool:
        """Whether a desc or a graph breaks no rule, and none of its tensors, at their places in it, is too large."""
        before = len(self.findings)
        for problem in desc.problems(self.feature_level):
            self.add_finding(place, self.with_level(problem))
        for path, tensor in tensors:
            if tensor.element_count * tensor.dtype.itemsize > MAX_RESOURCE_BYTES:
                rule = f"must describe at most {MAX_RESOURCE_BYTES} bytes"
                self.add_finding(place, Problem((*path, "Sizes"), rule, tensor))
        return len(self.findings) == before

    def with_level(self, problem: Problem) -> Problem:
        """The problem with the feature level appended, unless its message names the level already."""
        if str(self.feature_level) in problem.message:
            return problem
        level = f" (at {self.feature_level})"
        if problem.given is None:
            return replace(problem, rule=problem.rule + level)
        return replace(problem, given=problem.given + level)

    def nested_fields(self, place: Place, kind: Kind, value: Any) -> Any:
        """Keeps the known fields of the objects inside a desc: tensors, fused activations, and arrays of either."""
        if isinstance(kind, Array) and isinstance(value, list):
            return [self.nested_fields((*place, i), kind.of, one) for i, one in enumerate(value)]
        if not isinstance(value, dict) or not kind.json_fields(value):
            return value
        fields = self.fields(place, value, kind.json_fields(value))
        if isinstance(fields.get("Desc"), dict):
            inner = [name for name in kind.json_fields(fields["Desc"]) if name not in ("Type", "Desc")]
            fields["Desc"] = self.fields((*place, "Desc"), fields["Desc"], inner)
        return fields

    # Bindings

    def bindings(
        self,
        place: Place,
        names: Mapping[str, bool],
        points: Sequence[BindPoint] | None,
        value: Any,
        wanted: set[str],
        otherwise: str,
    ) -> Bindings:
        """Reads where each tensor whose key is in `wanted` is stored; others must be bound elsewhere.

        `otherwise` says where, for the error. If the points are None because the dispatchable has findings, the
        resources that the bindings name are checked, but not whether they fit the tensors.
        """
        bound: dict[str, Binding | None] = {}
        with self.part(*place):
            for name, source in self.fields(place, value, tuple(names)).items():
                own = [point for point in points or () if point.name == name]
                bound |= dict.fromkeys(point.key for point in own)
                with self.part(*place, name):
                    for inner, point, one in _sources((*place, name), own, source, is_array=names[name]):
                        with self.part(*inner):
                            binding = self.binding(inner, one, point.tensor if point else None)
                            if points is not None and point is None:
                                raise InvalidDesc(Problem((), "must not be bound, because the desc has no such tensor"))
                            if point is not None and point.key not in wanted:
                                rule = f"must be bound {otherwise} instead of here, because of its Flags"
                                raise InvalidDesc(Problem((), rule))
                            if point is not None:
                                bound[point.key] = binding
            for point in points or ():
                if point.key in wanted and point.key not in bound:
                    self.add_finding(place, Problem(point.path, "must be bound", "none"))
        return {key: binding for key, binding in bound.items() if binding is not None}

    def binding(self, place: Place, source: Any, tensor: TensorDesc | None) -> Binding | None:
        """Reads where a tensor is stored; None if its resource or its desc has findings."""
        if not isinstance(source, str | dict):
            rule = "must be the name of a resource, an object with it, or a list of these"
            raise InvalidType(Problem((), rule, show(source)))
        fields = {"name": source} if isinstance(source, str) else self.fields(place, source, _BINDING_FIELDS)
        (resource_name, resource), _, element_size, element_offset, *_ = all_checked(
            lambda: self.named_resource(fields, "name"),
            lambda: self.named_resource(fields, "counter") if "counter" in fields else None,
            lambda: _uint64(fields, "elementSizeInBytes"),
            lambda: _uint64(fields, "elementOffset"),
            lambda: _uint64(fields, "elementCount"),  # this field and the counter have a meaning for shaders only
            lambda: _uint64(fields, "counterOffsetBytes"),
        )
        if resource is None or tensor is None:
            return None
        element_bits = 8 * element_size
        if resource.data_type is not DataType.UNKNOWN:
            element_bits = element_bits or resource.data_type.bits
        if element_offset and not element_bits:
            rule = f"must come with elementSizeInBytes for {show(resource_name)}"
            raise InvalidDesc(Problem("elementOffset", rule, "none"))
        if element_offset * element_bits % 8:
            raise InvalidDesc(Problem("elementOffset", "must be even for elements of 4 bits", element_offset))
        offset, size = element_offset * element_bits // 8, _size_in_bytes(tensor)
        if offset + size > resource.size_in_bytes:
            room = max(resource.size_in_bytes - offset, 0)
            given = f"{room}, in {show(resource_name)} from byte {offset} on"
            raise InvalidDesc(Problem((), f"must have {size} bytes", given))
        alignment = tensor.guaranteed_base_offset_alignment or _MINIMUM_ALIGNMENT
        if offset % alignment:
            self.warn(place, Problem((), f"must begin at a multiple of {alignment} bytes for DirectML", offset))
        return Binding(resource_name, offset)

    def named_resource(self, fields: Mapping[str, Any], field: str) -> tuple[str, Resource | None]:
        name = json_string(field, _required(fields, field))
        if name not in self.resources:
            hint = did_you_mean(name, self.resources)
            raise InvalidDesc(Problem(field, "must be a resource of the model", f"{show(name)}{hint}"))
        if name in self.deferred:
            rule = "must be an output of an ONNX model before it is used, because its initialValues are deferred"
            raise InvalidDesc(Problem(field, rule, show(name)))
        return name, self.resources[name]

    # Commands

    def command(self, place: Place, value: Any) -> Command | None:
        kind = json_string("type", _require_object(value).get("type")).lower()
        if kind not in _COMMAND_FIELDS:
            kinds = ("dispatch", "print", "writeFile")
            raise InvalidDesc(
                Problem(
                    "type", f"must be one of {', '.join(kinds)}", f"{show(value['type'])}{did_you_mean(kind, kinds)}"
                )
            )
        fields = self.fields(place, value, _COMMAND_FIELDS[kind])
        if kind == "dispatch":
            return self.dispatch(place, fields)
        return self.print(fields) if kind == "print" else self.write_file(fields)

    def print(self, fields: Mapping[str, Any]) -> Print:
        (name, resource), verbose = all_checked(
            lambda: self.named_resource(fields, "resource"), lambda: boolean("verbose", fields.get("verbose", False))
        )
        if resource is not None:
            if resource.data_type is DataType.UNKNOWN:
                raise InvalidDesc(Problem("resource", "must have an initialValuesDataType to be printed", show(name)))
            count = resource.size_in_bytes * 8 // resource.data_type.bits
            if count > MAX_PRINTED_VALUES:
                most = f"at most {MAX_PRINTED_VALUES} values to be printed"
                raise InvalidDesc(Problem("resource", f"must have {most}", f"{count}, in {show(name)}"))
        return Print(name, verbose)

    def write_file(self, fields: Mapping[str, Any]) -> WriteFile:
        (name, resource), target, dimensions = all_checked(
            lambda: self.named_resource(fields, "resource"),
            lambda: target_path("targetPath", json_string("targetPath", _required(fields, "targetPath"))),
            lambda: uints("dimensions", fields.get("dimensions", [])),
        )
        if resource is not None:
            check_writable(target.suffix, resource.size_in_bytes, resource.data_type, dimensions)
        return WriteFile(name, target.as_posix(), dimensions)

    def dispatch(self, place: Place, fields: Mapping[str, Any]) -> Dispatch | None:
        with self.part(*place):
            groups = uints("threadGroupCount", fields.get("threadGroupCount", [1, 1, 1]))
            if len(groups) != 3:
                raise InvalidDesc(Problem("threadGroupCount", "must have 3 elements", len(groups)))
        name = json_string("dispatchable", _required(fields, "dispatchable"))
        if name not in self.dispatchables:
            hint = did_you_mean(name, self.dispatchables)
            raise InvalidDesc(Problem("dispatchable", "must be a dispatchable of the model", f"{show(name)}{hint}"))
        given = _required_of_kind(fields, "bindings", dict)
        if name not in self.names:
            return None
        place, names = (*place, "bindings"), self.names[name]
        dispatchable = self.dispatchables[name]
        is_network, shapes, own = name in self.networks, None, None
        bound: set[str] = set()
        if is_network:
            shapes = self.shapes(place, names, given)
            bound = {one for one, source in given.items() if source is not None}
            own = None if shapes is None else self.network_of(place, name, shapes, bound)
            dispatchable = None if own is None else self.graphs[own]
        points = None if dispatchable is None else dispatchable.points
        if is_network:
            wanted = {point.key for point in points or () if point.name in bound}
            with self.part(*place):
                require_shapes_of_outputs(points or (), shapes or {})
            self.size_deferred(place, points, given)
        else:
            wanted = {point.key for point in points or () if not point.is_owned}
        bindings = self.bindings(place, names, points, given, wanted, "at initialization")
        self.check_outputs(place, points or (), bindings)
        return Dispatch(own or name, bindings, name if is_network else None)

    def shapes(self, place: Place, names: Mapping[str, bool], given: Mapping[str, Any]) -> Sizes | None:
        """The shapes that bindings of an ONNX model give, or a caller of `load`; None if they have findings."""
        before = len(self.findings)
        shapes: dict[str, tuple[int, ...]] = {}
        for name, source in given.items():
            one = single_binding(source)
            if name in names and isinstance(one, dict) and one.get("shape") is not None:
                with self.part(*place, name):
                    shapes[name] = uints("shape", one["shape"])
        shapes |= {name: shape for name, shape in self.overrides.shapes.items() if name in names}
        return shapes if len(self.findings) == before else None

    def size_deferred(self, place: Place, points: Sequence[BindPoint] | None, given: Mapping[str, Any]) -> None:
        """Gives deferred resources the size of the outputs that are bound to them, always the same one."""
        resources = {name: resource_bound(source) for name, source in given.items()}
        if points is None:  # the sizes are not known, which is told already
            unknown = self.deferred.intersection(resources.values())
            self.resources |= dict.fromkeys(unknown)
            self.deferred -= unknown
            return
        read = {resources.get(point.name) for point in points if point.is_input}
        for point in points:
            resource = resources.get(point.name)
            if point.is_input or resource is None or resource in read & self.deferred:
                continue
            size = _size_in_bytes(point.tensor)
            if resource in self.deferred:
                with self.part(*place, point.name):
                    self.require_affordable("name", size)
                    self.bytes_left -= size
                    declared = self.resources[resource].data_type
                    data_type = point.tensor.data_type if declared is DataType.UNKNOWN else declared
                    whole = -(-size // 4) * 4
                    self.resources[resource] = Resource(data_type, whole, np.zeros(size, np.uint8))
                    self.sizes_of_outputs[resource] = size
                    self.deferred.remove(resource)
            elif size < self.sizes_of_outputs.get(resource, 0):
                rule = f"must have {self.sizes_of_outputs[resource]} bytes, as the first output in {show(resource)} has"
                self.add_finding((*place, point.name), Problem((), rule, size))

    def check_outputs(self, place: Place, points: Sequence[BindPoint], bindings: Bindings) -> None:
        """Finds outputs that share bytes of a buffer, and outputs whose strides make their own elements overlap."""
        areas: list[tuple[str, int, int, str]] = []
        for point in points:
            if point.is_input or point.key not in bindings:
                continue
            tensor, binding = point.tensor, bindings[point.key]
            if tensor.overlaps:
                self.add_finding(place, Problem(point.path, "must have a place of its own for each element", tensor))
            begin, end = binding.offset_in_bytes, binding.offset_in_bytes + _size_in_bytes(tensor)
            for resource, other_begin, other_end, other in areas:
                if resource == binding.resource and begin < other_end and other_begin < end:
                    problem = Problem(point.path, f"must not overlap {other}", f"both in {show(resource)}")
                    self.add_finding(place, problem)
            areas.append((binding.resource, begin, end, spell_path(point.path)))


def _sources(
    place: Place, points: Sequence[BindPoint], source: Any, *, is_array: bool
) -> Iterator[tuple[Place, BindPoint | None, Any]]:
    """Yields the place of each binding of a name, the tensor that it binds, if any, and its JSON value.

    A name of an array of tensors has a list with a binding for each.
    """
    sources = source if isinstance(source, list) else [source]
    count = len(points) if is_array else 1
    if len(sources) != count and (points or not is_array):
        raise InvalidDesc(Problem((), f"must have {count} resource{'' if count == 1 else 's'}", len(sources)))
    for i, one in enumerate(sources):
        yield (*place, i) if is_array else place, points[i] if i < len(points) else None, one


def _leaves(graph: Graph) -> list[tuple[Place, TensorDesc]]:
    """The tensors of a graph's nodes at their places."""
    return [
        (("nodes", name, node.short_name, *leaf.path), leaf.tensor)
        for name, node in graph.nodes.items()
        for leaf in node.leaves()
    ]


def _require_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidType(Problem((), "must be an object", show(value)))
    return value


def _required(fields: Mapping[str, Any], name: str) -> Any:
    return json_given(name, fields.get(name))


def _required_of_kind(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    value = _required(fields, name)
    if not isinstance(value, kind):
        raise InvalidType(Problem(name, f"must be {'an object' if kind is dict else 'a list'}", show(value)))
    return value


def _uint64(fields: Mapping[str, Any], name: str, default: int | None = 0) -> Any:
    return integer_in(name, fields[name], 0, UINT64_MAX) if name in fields else default


def _data_type(fields: Mapping[str, Any], name: str, default: DataType | None) -> DataType:
    if default is not None and name not in fields:
        return default
    data_type: DataType = parse_enum(DataType, name, json_string(name, _required(fields, name)))
    if default is None and data_type in (DataType.UNKNOWN, DataType.UINT4, DataType.INT4):
        raise InvalidDesc(Problem(name, "must be a data type of whole bytes", data_type.name))
    return data_type


def _size_in_bytes(tensor: TensorDesc) -> int:
    return tensor.total_tensor_size_in_bytes or tensor.minimum_size_in_bytes
