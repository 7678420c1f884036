"""DxDispatch models: Microsoft's JSON format for DirectML operators, their data, and what to do with them.

`load` reads a model and names the place of everything that is wrong with it; `dmljax.importers.execution` carries its
commands out. The format is what DxDispatch's parser accepts, which is more than its schema says. Where this reader
differs: a null is an absent field; `initialValuesOffsetInBytes` moves the initial values, where DxDispatch checks it
and puts them first all the same; FLOAT16 rounds to the nearest, where DxDispatch truncates; and what cannot be bound is
refused before anything runs.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmljax._checks import UINT_MAX, integer_in, named, nearest, shown, uints
from dmljax._errors import DmlError, InvalidDesc, InvalidType, Unsupported, prefixed
from dmljax._members import NOT_FINITE, Tensor, json_string
from dmljax._operator import Operator, broken_rules, lower, operator_named, settled_members
from dmljax._tensor import UINT64_MAX, TensorDesc
from dmljax._types import FLOATS, LATEST, DataType, FeatureLevel, HeaderEnum, TensorFlags
from dmljax.importers._files import check_writable, opened, read_values
from dmljax.importers._json import MAX_CHARACTERS, Document, InvalidJson, Place, parse

MAX_RESOURCE_BYTES = 2**31  # the largest buffer of Direct3D 12
MAX_MODEL_BYTES = 2**32
MAX_FINDINGS = 1000

# What a model consists of


@dataclass(frozen=True, eq=False)
class Resource:
    """A buffer: its size and first values, and the type in which the model shows them."""

    data_type: DataType
    size_in_bytes: int
    initial_values: NDArray[np.uint8] = field(repr=False)
    offset_in_bytes: int = 0

    def buffer(self) -> NDArray[np.uint8]:
        """A new buffer with the initial values in it."""
        buffer = np.zeros(self.size_in_bytes, np.uint8)
        buffer[self.offset_in_bytes : self.offset_in_bytes + self.initial_values.size] = self.initial_values
        return buffer


@dataclass(frozen=True)
class Binding:
    """The place of a tensor: a resource, and the byte at which it begins."""

    resource: str
    offset_in_bytes: int = 0


Bindings = Mapping[str, Binding]  # by the field of the operator's desc


@dataclass(frozen=True, eq=False)
class Dispatchable:
    """An operator of a model: a function of arrays, as `dmljax.lower` gives it, to call under any transformation."""

    desc: Operator
    bindings: Bindings = field(default_factory=dict)  # of the inputs that DirectML owns: read before the first command

    @cached_property
    def function(self) -> Any:
        """The function, for what asks a function for its signature and name."""
        return lower(self.desc)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Dispatch:
    """A command to run an operator on resources."""

    dispatchable: str
    bindings: Bindings


@dataclass(frozen=True)
class Print:
    """A command to show the values of a resource."""

    resource: str
    verbose: bool = False


@dataclass(frozen=True)
class WriteFile:
    """A command to write a resource into a file below the output folder."""

    resource: str
    target_path: str
    dimensions: tuple[int, ...] = ()


Command = Dispatch | Print | WriteFile


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a model, and where: file, line, column if it is not JSON, and path inside it."""

    file: str
    line: int
    path: str
    message: str
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        joint = "" if not self.path or self.message.startswith(",") else " " if _CONTINUES.match(self.message) else ": "
        return f"{place}: {self.path}{joint}{self.message}"


_CONTINUES = re.compile(r"must\b|and\b")


class InvalidModel(DmlError, ValueError):
    """A model that cannot be run; `findings` are all that is wrong with it."""

    def __init__(self, findings: Sequence[Finding], warnings: Sequence[Finding] = ()) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings, self.warnings = tuple(findings), tuple(warnings)


class UnreadableModel(InvalidModel):
    """A file that is no model, so that no more can be said of it."""


@dataclass(frozen=True, eq=False)
class Model:
    """A valid model; `warnings` are about what counts for nothing, or for DirectML alone."""

    path: Path
    resources: Mapping[str, Resource]
    dispatchables: Mapping[str, Dispatchable]
    commands: Sequence[Command]
    warnings: Sequence[Finding]
    document: Document = field(repr=False)

    def finding(self, place: Place, message: str) -> Finding:
        """A finding at `place`, or at the part of it that the message begins with."""
        inner = _INNER.match(message)
        keys = re.findall(r"\w+", inner[0]) if inner else []
        path = (*place, *(int(key) if key.isdecimal() else key for key in keys))
        rest = message[inner.end() :].lstrip(" ") if inner else message
        return Finding(str(self.path), self.document.line(path), _spelled(path), rest)

    @contextmanager
    def part(self, *place: str | int) -> Iterator[None]:
        """Says of what is refused which part of the model it is."""
        try:
            yield
        except InvalidModel:
            raise
        except DmlError as error:
            raise InvalidModel([self.finding(place, str(error))], self.warnings) from error


# What an error of dmljax begins with: the member that it is about
_INNER = re.compile(r"[A-Za-z]\w*(?:\.\w+|\[\d+\])*(?=,? (?:must|and)\b|, [A-Z])")


def _spelled(path: Place) -> str:
    keys = [f"[{key}]" if isinstance(key, int) else f".{key}" if key.isidentifier() else f'["{key}"]' for key in path]
    return "".join(keys).lstrip(".")


def load(
    path: str | Path, *, input_path: str | Path | None = None, feature_level: FeatureLevel | str = LATEST
) -> Model:
    """The model in a JSON file. Other files are sought in `input_path`, by default the model's folder, then as named.

    >>> model = load("notebooks/models/top1_routing.json")
    >>> model.dispatchables["route"](np.eye(4, dtype="float32")[::-1]).tolist()[0]
    [0.0, 0.0, 0.0, 1.0]
    """
    level = named(FeatureLevel, "feature_level", feature_level)
    beside = Path(path) if input_path is None else Path(input_path) / path
    file = Path(path) if os.path.exists(path) or not os.path.exists(beside) else beside  # any str
    reader = _Reader(file, file.parent if input_path is None else Path(input_path), level, _document(file))
    reader.read()
    if reader.findings:
        raise InvalidModel(reader.findings, reader.warnings)
    return reader.model


def _document(file: Path) -> Document:
    line, column = 0, None
    try:
        if file.suffix.lower() == ".onnx":
            raise Unsupported("the model must be JSON; ONNX models are not run yet")
        with prefixed("the model", " "), opened(file, 4 * MAX_CHARACTERS) as stream:
            data = stream.read()
        return parse(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line, message = data.count(b"\n", 0, error.start) + 1, f"the model must be UTF-8 text; got {error.reason}"
    except InvalidJson as error:
        line, column, message = error.line, error.column, str(error)
    except DmlError as error:
        message = str(error)
    raise UnreadableModel([Finding(str(file), line, "", message, column)])


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
_OTHER_KINDS = {
    "hlsl": "shaders of Direct3D do not run on XLA",
    "onnx": "ONNX models are not run yet",
    "dmlserializedgraph": "serialized graphs are not run yet",
}
_COMPILE_TYPES = ("DmlCompileOp", "DmlCompileGraph")
_MINIMUM_ALIGNMENT = 16  # DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT


class _ExecutionFlags(HeaderEnum, prefix="DML_EXECUTION_FLAG_"):
    """`DML_EXECUTION_FLAGS`: hints to DirectML, which mean nothing to XLA."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


class _Reader:
    """Reads a model part by part, and goes on after a part that is wrong, to find what else is."""

    def __init__(self, file: Path, input_path: Path, feature_level: FeatureLevel, document: Document) -> None:
        self.input_path = input_path
        self.feature_level = feature_level
        # A part that is wrong leaves None behind, so that nothing that refers to it is called unknown.
        self.resources: dict[str, Any] = {}
        self.dispatchables: dict[str, Any] = {}
        self.commands: list[Any] = []
        self.warnings: list[Finding] = []
        self.findings: list[Finding] = []
        self.model = Model(file, self.resources, self.dispatchables, self.commands, self.warnings, document)
        self.bytes_left = MAX_MODEL_BYTES

    @contextmanager
    def part(self, *place: str | int) -> Iterator[None]:
        """Notes what is wrong with a part of the model, and goes on after it."""
        try:
            yield
        except DmlError as error:
            self.find(place, str(error))

    def find(self, place: Place, message: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(self.model.finding(place, message))

    def warn(self, place: Place, message: str) -> None:
        if len(self.warnings) < MAX_FINDINGS:
            self.warnings.append(self.model.finding(place, message))

    def fields(self, place: Place, value: Any, names: Sequence[str]) -> dict[str, Any]:
        """Those fields of an object that count and are not null; DxDispatch passes over others without a word."""
        if not isinstance(value, dict):
            raise InvalidType(f"must be an object; got {shown(value)}")
        for name in value:
            if name not in names and value[name] is not None and not name.startswith(("$", "//")):
                hint = nearest(name, names)
                self.warn((*place, name), f"must be one of {', '.join(names)} to count{hint}")
        return {name: value[name] for name in names if value.get(name) is not None}

    def read(self) -> None:
        document = self.model.document
        for place in document.repeated:
            self.warn(place, "must be given once to count; the first one does")
        with self.part():
            root = self.fields((), document.root, ("resources", "dispatchables", "commands"))
            for name, value in _of_kind(root, "resources", dict).items():
                self.resources[name] = None
                with self.part("resources", name):
                    self.resources[name] = self.resource(("resources", name), value)
            for name, value in _of_kind(root, "dispatchables", dict).items():
                self.dispatchables[name] = None
                with self.part("dispatchables", name):
                    self.dispatchables[name] = self.dispatchable(("dispatchables", name), value)
            for index, value in enumerate(_of_kind(root, "commands", list)):
                with self.part("commands", index):
                    self.commands.append(self.command(("commands", index), value))

    # Resources

    def resource(self, place: Place, value: Any) -> Resource:
        fields = self.fields(place, value, _BUFFER_FIELDS)
        data_type, values = self.initial_values(place, fields)
        if not values.size:
            raise InvalidDesc("initialValues must hold something; got nothing")
        offset = _uint64(fields, "initialValuesOffsetInBytes", 0)
        size = _uint64(fields, "sizeInBytes", -(-values.nbytes // 4) * 4)
        if values.nbytes + offset > size:
            needed = f"{values.nbytes + offset}, for {values.nbytes} bytes of initialValues from byte {offset} on"
            raise InvalidDesc(f"sizeInBytes must be at least {needed}; got {size}")
        self.require_affordable("sizeInBytes", size)
        self.bytes_left -= size
        return Resource(data_type, size, values.reshape(-1).view(np.uint8), offset)

    def initial_values(self, place: Place, fields: Mapping[str, Any]) -> tuple[DataType, NDArray[Any]]:
        data_type = _data_type(fields, "initialValuesDataType", DataType.UNKNOWN)
        source = _given(fields, "initialValues")
        if isinstance(source, list):
            is_mixed = data_type is DataType.UNKNOWN
            return data_type, self.struct(place, source) if is_mixed else _numbers("initialValues", source, data_type)
        if source == "deferred":
            raise Unsupported("initialValues must be known; 'deferred' ones come out of ONNX models, not run yet")
        if not isinstance(source, dict):
            raise InvalidType(f"initialValues must be a list or an object; got {shown(source)}")
        kinds = [kind for kind in ("value", "valueStart", "sourcePath") if kind in source]
        if not kinds or (kinds[0] == "value" and len(kinds) > 1):
            given = ", ".join(kinds or list(source)[:8]) or "none"
            raise InvalidDesc(f"initialValues must have one of value, valueStart and sourcePath; got {given}")
        place = (*place, "initialValues")
        if kinds[0] == "sourcePath":
            return self.file_values(self.fields(place, source, ("sourcePath",)), data_type, fields)
        with prefixed("initialValues"):
            return data_type, self.generated(place, source, data_type, kinds[0])

    def generated(self, place: Place, source: Any, data_type: DataType, kind: str) -> NDArray[Any]:
        """One value many times, or a sequence."""
        names = (kind, "valueDelta") if kind == "valueStart" else (kind,)
        fields = self.fields(place, source, (*names, "valueCount"))
        if data_type is DataType.UNKNOWN:
            raise InvalidDesc(f"{kind} must come with initialValuesDataType; got none")
        count = integer_in("valueCount", _given(fields, "valueCount"), 0, UINT_MAX)
        self.require_affordable("valueCount", count * data_type.dtype.itemsize)
        first, *delta = (_numbers(name, [_given(fields, name)], data_type, is_list=False)[0] for name in names)
        return _sequence(first, delta[0], count) if delta else np.full(count, first)

    def struct(self, place: Place, source: Sequence[Any]) -> NDArray[np.uint8]:
        """A list of {name, type, value}, one after the other."""
        parts = []
        for index, element in enumerate(source):
            with prefixed(f"initialValues[{index}]", "." if isinstance(element, dict) else " "):
                fields = self.fields((*place, "initialValues", index), element, ("name", "type", "value"))
                data_type = _data_type(fields, "type", None)
                parts.append(_numbers("value", [_given(fields, "value")], data_type, is_list=False).tobytes())
        return np.frombuffer(b"".join(parts), np.uint8)

    def file_values(
        self, source: Mapping[str, Any], data_type: DataType, fields: Mapping[str, Any]
    ) -> tuple[DataType, NDArray[Any]]:
        name = json_string("initialValues.sourcePath", _given(source, "sourcePath"))
        if fields.get("resampleMode", "scale") != "scale":
            raise InvalidDesc(f"resampleMode must be 'scale'; got {shown(fields['resampleMode'])}")
        size = uints("resampleSize", fields.get("resampleSize", []))
        if len(size) not in (0, 4):
            raise InvalidDesc(f"resampleSize must be batch, channels, height and width; got {len(size)} elements")
        # Models come from Windows, with its paths.
        names = dict.fromkeys((name, PureWindowsPath(name).as_posix()))
        candidates = [folder / spelled for folder in (self.input_path, Path()) for spelled in names]
        path = next((path for path in candidates if os.path.exists(path)), candidates[0])  # any str
        with prefixed("initialValues.sourcePath", " "):
            data_type, values = read_values(path, data_type, size, min(MAX_RESOURCE_BYTES, self.bytes_left))
        self.require_affordable("initialValues.sourcePath", values.nbytes)
        return data_type, values

    def require_affordable(self, member: str, size: int) -> None:
        if size > min(MAX_RESOURCE_BYTES, self.bytes_left):
            limits = f"{MAX_RESOURCE_BYTES} bytes for one resource and {MAX_MODEL_BYTES} for all"
            raise InvalidDesc(f"{member} must ask for at most {limits}; got {size}")

    # Dispatchables

    def dispatchable(self, place: Place, value: Any) -> Dispatchable | None:
        if not isinstance(value, dict):
            raise InvalidType(f"must be an object; got {shown(value)}")
        type_field = next((key for key in ("Type", "type") if key in value), "type")
        kind = json_string(type_field, value.get(type_field))
        if kind.lower() in _OTHER_KINDS:
            raise Unsupported(f"{type_field} must be an operator; got {kind!r}, and {_OTHER_KINDS[kind.lower()]}")
        operator = operator_named(type_field, kind)
        desc_field = next((key for key in ("Desc", "desc") if value.get(key) is not None), None)
        inside = operator.json_fields() if desc_field is None else (desc_field,)
        fields = self.fields(place, value, ("type", "Type", "bindings", "executionFlags", "dmlCompileType", *inside))
        with self.part(*place):
            _check_hints(fields)
        desc_place, given = (place, fields) if desc_field is None else ((*place, desc_field), fields[desc_field])
        desc = self.desc(desc_place, operator, given)
        if desc is None:
            return None
        owned = {key for key, tensor in desc.tensors(is_input=True).items() if _is_owned(tensor)}
        bindings = self.bindings((*place, "bindings"), desc, fields.get("bindings", {}), owned)
        return Dispatchable(desc, bindings)

    def desc(self, place: Place, operator: type[Operator], value: Any) -> Operator | None:
        """The desc, unless something is wrong with it."""
        before = len(self.findings)
        with self.part(*place):
            if place[-1] in ("Desc", "desc"):
                value = self.fields(place, value, operator.json_fields())
            counting = value | {
                member.name: self.nested_fields((*place, member.name), member.kind.json_fields, value[member.name])
                for member in operator.members()
                if member.kind.json_fields and isinstance(value.get(member.name), dict)
            }
            settled = settled_members(operator, counting, lambda: self.part(*place))
            if len(self.findings) > before:
                return None
            desc = operator(**settled)
            for rule in broken_rules(desc, feature_level=self.feature_level):
                level = "" if str(self.feature_level) in rule else f" (at {self.feature_level})"
                self.find(place, rule + level)
            for key, tensor in desc.tensors().items():
                if tensor.element_count * tensor.dtype.itemsize > MAX_RESOURCE_BYTES:
                    limit = f"of at most {MAX_RESOURCE_BYTES} bytes"
                    self.find(place, f"{desc.member(key).name}.Sizes must be those {limit}; got {tensor}")
        return desc if len(self.findings) == before else None

    def nested_fields(self, place: Place, names: tuple[str, ...], value: dict[str, Any]) -> dict[str, Any]:
        """A tensor's fields, or a DML_TENSOR_DESC's around them."""
        fields = self.fields(place, value, ("Type", "Desc", *names))
        if isinstance(fields.get("Desc"), dict):
            fields["Desc"] = self.fields((*place, "Desc"), fields["Desc"], names)
        return fields

    # Bindings

    def bindings(self, place: Place, desc: Operator, value: Any, wanted: set[str]) -> Bindings:
        """Where each of the `wanted` tensors lies."""
        tensors = desc.tensors()
        names = {member.name: member.field for member in desc.members() if isinstance(member.kind, Tensor)}
        bound = {}
        with self.part(*place):
            for name, source in self.fields(place, value, tuple(names)).items():
                key = names[name]
                with self.part(*place, name):
                    if key not in tensors:
                        raise InvalidDesc("must not be bound, for the desc has no such tensor")
                    if key not in wanted:
                        when = "in a dispatch" if wanted <= desc.tensors(is_input=True).keys() else "at initialisation"
                        raise InvalidDesc(f"must not be bound here, but {when}, for its Flags")
                    bound[key] = self.binding((*place, name), source, tensors[key])
            for name, key in names.items():
                if key in wanted and (not isinstance(value, dict) or value.get(name) is None):
                    self.find(place, f"{name} must be bound; got none")
        return {key: binding for key, binding in bound.items() if binding is not None}

    def binding(self, place: Place, source: Any, tensor: TensorDesc) -> Binding | None:
        if isinstance(source, list):
            if len(source) != 1:
                raise InvalidDesc(f"must have 1 resource; got {len(source)}")
            (source,) = source
        fields = {"name": source} if isinstance(source, str) else self.fields(place, source, _BINDING_FIELDS)
        for name in ("elementCount", "counterOffsetBytes"):  # for shaders: checked, and without meaning here
            _uint64(fields, name, 0)
        resource_name, resource = self.named_resource(fields, "name")
        if "counter" in fields:
            self.named_resource(fields, "counter")
        if resource is None:
            return None
        is_typed = resource.data_type is not DataType.UNKNOWN
        default_size = resource.data_type.dtype.itemsize if is_typed else 0
        element_size = _uint64(fields, "elementSizeInBytes", 0) or default_size
        element_offset = _uint64(fields, "elementOffset", 0)
        if element_offset and not element_size:
            raise InvalidDesc(f"elementOffset must come with elementSizeInBytes for {resource_name!r}; got none")
        offset, size = element_offset * element_size, _size_in_bytes(tensor)
        if offset + size > resource.size_in_bytes:
            room = max(resource.size_in_bytes - offset, 0)
            raise InvalidDesc(f"must have {size} bytes; got {room}, in {resource_name!r} from byte {offset} on")
        alignment = tensor.guaranteed_base_offset_alignment or _MINIMUM_ALIGNMENT
        if offset % alignment:
            self.warn(place, f"must begin at a multiple of {alignment} bytes for DirectML; got {offset}")
        return Binding(resource_name, offset)

    def named_resource(self, fields: Mapping[str, Any], field: str) -> tuple[str, Resource | None]:
        name = json_string(field, _given(fields, field))
        if name not in self.resources:
            raise InvalidDesc(f"{field} must be a resource of the model; got {name!r}{nearest(name, self.resources)}")
        return name, self.resources[name]

    # Commands

    def command(self, place: Place, value: Any) -> Command | None:
        if not isinstance(value, dict):
            raise InvalidType(f"must be an object; got {shown(value)}")
        kind = json_string("type", value.get("type")).lower()
        if kind not in _COMMAND_FIELDS:
            kinds = ("dispatch", "print", "writeFile")
            raise InvalidDesc(f"type must be one of {', '.join(kinds)}; got {value['type']!r}{nearest(kind, kinds)}")
        fields = self.fields(place, value, _COMMAND_FIELDS[kind])
        if kind == "dispatch":
            return self.dispatch(place, fields)
        resource_name, resource = self.named_resource(fields, "resource")
        if kind == "print":
            verbose = fields.get("verbose", False)
            if not isinstance(verbose, bool):
                raise InvalidType(f"verbose must be true or false; got {shown(verbose)}")
            if resource is not None and resource.data_type is DataType.UNKNOWN:
                raise InvalidDesc(f"resource must have an initialValuesDataType to be printed; got {resource_name!r}")
            return Print(resource_name, verbose)
        target = json_string("targetPath", _given(fields, "targetPath"))
        windows = PureWindowsPath(target)
        if ".." in windows.parts or windows.anchor or PurePosixPath(target).is_absolute():
            raise InvalidDesc(f"targetPath must stay inside the output folder; got {target!r}")
        dimensions = uints("dimensions", fields.get("dimensions", []))
        if resource is not None:
            check_writable(windows.suffix, resource.size_in_bytes, resource.data_type, dimensions)
        return WriteFile(resource_name, windows.as_posix(), dimensions)

    def dispatch(self, place: Place, fields: Mapping[str, Any]) -> Dispatch | None:
        name = json_string("dispatchable", _given(fields, "dispatchable"))
        if name not in self.dispatchables:
            hint = nearest(name, self.dispatchables)
            raise InvalidDesc(f"dispatchable must be one of the model; got {name!r}{hint}")
        groups = uints("threadGroupCount", fields.get("threadGroupCount", [1, 1, 1]))
        if len(groups) != 3:
            raise InvalidDesc(f"threadGroupCount must have 3 elements; got {len(groups)}")
        given = _of_kind(fields, "bindings", dict)
        dispatchable = self.dispatchables[name]
        if dispatchable is None:
            return None
        desc = dispatchable.desc
        wanted = {key for key in desc.tensors() if key not in dispatchable.bindings}
        bindings = self.bindings((*place, "bindings"), desc, given, wanted)
        self.check_outputs((*place, "bindings"), desc, bindings)
        return Dispatch(name, bindings)

    def check_outputs(self, place: Place, desc: Operator, bindings: Bindings) -> None:
        """No two elements of outputs share a byte."""
        areas: list[tuple[str, int, int, str]] = []
        for key, tensor in desc.tensors(is_input=False).items():
            if key not in bindings:
                continue
            name, binding = desc.member(key).name, bindings[key]
            if tensor.overlaps:
                self.find(place, f"{name} must have a place of its own for each element; got {tensor}")
            begin, end = binding.offset_in_bytes, binding.offset_in_bytes + _size_in_bytes(tensor)
            for resource, other_begin, other_end, other in areas:
                if resource == binding.resource and begin < other_end and other_begin < end:
                    self.find(place, f"{name} must not overlap {other}; got both in {resource!r}")
            areas.append((binding.resource, begin, end, name))


def _given(fields: Mapping[str, Any], name: str) -> Any:
    if fields.get(name) is None:
        raise InvalidDesc(f"{name} must be given; got none")
    return fields[name]


def _of_kind(fields: Mapping[str, Any], name: str, kind: type) -> Any:
    value = _given(fields, name)
    if not isinstance(value, kind):
        raise InvalidType(f"{name} must be {'an object' if kind is dict else 'a list'}; got {shown(value)}")
    return value


def _uint64(fields: Mapping[str, Any], name: str, default: int) -> int:
    return integer_in(name, fields.get(name, default), 0, UINT64_MAX)


def _data_type(fields: Mapping[str, Any], name: str, default: DataType | None) -> DataType:
    if default is not None and name not in fields:
        return default
    data_type: DataType = named(DataType, name, json_string(name, _given(fields, name)))
    if data_type in (DataType.UINT4, DataType.INT4) or (default is None and data_type is DataType.UNKNOWN):
        raise InvalidDesc(f"{name} must be a data type that whole bytes hold; got {data_type.name}")
    return data_type


def _check_hints(fields: Mapping[str, Any]) -> None:
    flags = fields.get("executionFlags", [])
    for flag in flags if isinstance(flags, list) else [flags]:
        named(_ExecutionFlags, "executionFlags", json_string("executionFlags", flag))
    compile_type = fields.get("dmlCompileType", _COMPILE_TYPES[0])
    if compile_type not in _COMPILE_TYPES:
        raise InvalidDesc(f"dmlCompileType must be one of {', '.join(_COMPILE_TYPES)}; got {shown(compile_type)}")


def _is_owned(tensor: TensorDesc) -> bool:
    return bool(tensor.flags & TensorFlags.OWNED_BY_DML)


def _size_in_bytes(tensor: TensorDesc) -> int:
    return tensor.total_tensor_size_in_bytes or tensor.minimum_size_in_bytes


# Numbers


def _numbers(name: str, values: Sequence[Any], data_type: DataType, *, is_list: bool = True) -> NDArray[Any]:
    """JSON numbers in a data type: integers exact, floats to the nearest, and nothing out of range."""
    dtype = data_type.dtype

    def refuse(index: int, rule: str) -> None:
        where = f"{name}[{index}]" if is_list else name
        raise InvalidDesc(f"{where} must be {rule} for {data_type.name}; got {shown(values[index])}")

    if dtype not in FLOATS:
        limits = np.iinfo(dtype)
        for index, value in enumerate(values):
            if type(value) is not int or not limits.min <= value <= limits.max:
                refuse(index, f"a whole number in [{limits.min}, {limits.max}]")
        return np.array(values, dtype)
    doubles = np.empty(len(values), np.float64)
    for index, value in enumerate(values):
        if isinstance(value, str) and value.lower() in NOT_FINITE:
            doubles[index] = NOT_FINITE[value.lower()]
        elif type(value) is float or (type(value) is int and int(float(value)) == value):
            doubles[index] = value
        else:
            refuse(index, "a number, 'nan', 'inf' or '-inf'")
    with np.errstate(over="ignore"):
        rounded = doubles.astype(dtype)
    overflowed = np.isinf(rounded) & ~np.isinf(doubles)
    if overflowed.any():
        refuse(int(overflowed.argmax()), "a number in range")
    return rounded


def _sequence(start: Any, delta: Any, count: int) -> NDArray[Any]:
    """`start`, and each next one a `delta` more than the last, rounded or wrapped each time as its type does."""
    steps = np.full(count, delta)
    steps[:1] = start
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.accumulate(steps, dtype=steps.dtype)
