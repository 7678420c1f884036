"""State shared by the readers of a model's parts: fields, findings, and the bytes that the model may still request."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any, TypeGuard

from dmljax.descriptors.members import json_enum, json_string, require_json_value
from dmljax.dxdispatch.model import Dispatchable, DispatchModel, Finding, Resource
from dmljax.dxdispatch.networks import Network, Overrides
from dmljax.dxdispatch.text import Document, Place
from dmljax.errors import MAX_PROBLEMS, DmlError, InvalidDesc, InvalidType, Problem, Where, all_checked, require
from dmljax.foundation.checks import UINT64_MAX, UINT_MAX, integer_in
from dmljax.foundation.files import open_file
from dmljax.text import did_you_mean, show
from dmljax.types import DataType, FeatureLevel

MAX_RESOURCE_BYTES = 2**31  # the largest buffer of Direct3D 12
MAX_MODEL_BYTES = 2**32


Read = Callable[[str, Any], Any]  # takes a field's name, and its value or None
Readers = Mapping[str, Read | None]  # by field name; None for fields without effect


class Fields(dict[str, Any]):
    """The known fields of an object; null fields count as absent."""

    def value(self, name: str, read: Read) -> Any:
        """Reads the value of a field."""
        return read(name, self.get(name))

    def all(self, readers: Readers) -> dict[str, Any]:
        """Reads the values of the fields that have readers; raises one error with all of their problems."""
        checks = {name: partial(read, name, self.get(name)) for name, read in readers.items() if read is not None}
        return dict(zip(checks, all_checked(*checks.values()), strict=True))


def optional(read: Read, default: Any = None) -> Read:
    """Reads a field that may be absent."""
    return lambda name, value: default if value is None else read(name, value)


def require_form(form: type, where: Where, value: Any) -> Any:
    """Checks that `value` is an object (a dict) or a list."""
    if not isinstance(value, form):
        raise InvalidType(Problem(where, f"must be {'an object' if form is dict else 'a list'}", show(value)))
    return value


def require_given_form(form: type, name: str, value: Any) -> Any:
    """Checks that `value` is present, and an object (a dict) or a list."""
    return require_form(form, name, require_json_value(name, value))


def uint(name: str, value: Any, highest: int = UINT_MAX) -> int:
    """Reads a UINT."""
    return integer_in(name, require_json_value(name, value), 0, highest)


uint64 = partial(uint, highest=UINT64_MAX)
data_type = partial(json_enum, DataType)


def sizes_by_name(name: str, value: Mapping[str, Any]) -> dict[str, int]:
    """Reads an object of sizes."""
    return {key: integer_in((name, key), size, 0, UINT_MAX) for key, size in require_form(dict, name, value).items()}


class TooManyFindingsError(Exception):
    """Stops the reader once a model has MAX_PROBLEMS errors."""


class Context:
    """The parts of a model read so far, and their problems."""

    def __init__(
        self, file: Path, document: Document, input_path: Path, feature_level: FeatureLevel, overrides: Overrides
    ) -> None:
        self.input_path, self.feature_level, self.overrides = input_path, feature_level, overrides
        # A part with a finding is stored as None, so that references to its name are not reported as unknown.
        self.resources: dict[str, Any] = {}
        self.dispatchables: dict[str, Dispatchable | Network | None] = {}
        self.commands: dict[int, Any] = {}
        # By dispatchable, with or without findings: the names that bindings may have, and whether each takes a list.
        self.names: dict[str, Mapping[str, bool]] = {}
        self.networks: dict[str, Dispatchable] = {}  # from ONNX models, for the sizes of dispatches
        self.sized: dict[tuple[Any, ...], str | None] = {}  # their names, by network and sizes
        self.sizes_of_outputs: dict[str, int] = {}  # of the first output by deferred resource; 0 if values decide it
        self.warnings: list[Finding] = []
        self.findings: list[Finding] = []
        self.model = DispatchModel(file, {}, {}, [], self.warnings, document)
        self.bytes_left = MAX_MODEL_BYTES

    def finish(self) -> DispatchModel:
        """The model; its dispatchables include its ONNX models for the sizes of dispatches."""
        operators = {name: part for name, part in self.dispatchables.items() if isinstance(part, Dispatchable)}
        commands = list(self.commands.values())
        return replace(self.model, resources=self.resources, dispatchables=operators | self.networks, commands=commands)

    # Findings

    @contextmanager
    def part(self, *place: str | int) -> Iterator[None]:
        """Records the problems of a DmlError raised inside as findings at `place`, and continues after the block."""
        try:
            yield
        except DmlError as error:
            for problem in error.problems:
                self.add_finding(place, problem)

    def add_finding(self, place: Place, problem: Problem, line: int | None = None) -> None:
        """Records a problem at `place`; `line` overrides the place's line."""
        finding = self.model.finding(place, problem)
        self.findings.append(finding if line is None else replace(finding, line=line))
        if len(self.findings) >= MAX_PROBLEMS:
            raise TooManyFindingsError

    def warn(self, place: Place, problem: Problem) -> None:
        """Records a warning, which does not keep the model from running."""
        if len(self.warnings) < MAX_PROBLEMS:
            self.warnings.append(self.model.finding(place, problem))

    # Fields

    def fields(self, place: Place, value: Any, names: Sequence[str]) -> Fields:
        """The fields of an object that are in `names` and not null; warns about others, which DxDispatch ignores."""
        known = set(names)
        for name in require_form(dict, (), value):
            if name not in known and value[name] is not None and not name.startswith(("$", "//")):
                hint = did_you_mean(name, names)
                rule = f"unknown field {show(name)} is ignored; known fields are {', '.join(names)}{hint}"
                self.warn(place, Problem(name, rule))
        return Fields({name: value[name] for name in names if value.get(name) is not None})

    def read(self, place: Place, value: Any, readers: Readers) -> dict[str, Any]:
        """The values of an object's fields; fields without a reader are known but have no effect."""
        return self.fields(place, value, tuple(readers)).all(readers)

    def read_name(self, subject: str, known: Collection[str], field: str, value: Any) -> str:
        """Reads the name of an existing part of the model."""
        name = json_string(field, value)
        if name not in known:
            choice = show(name) + did_you_mean(name, known)
            raise InvalidDesc(Problem(field, f"must be a {subject} of the model", choice))
        return name

    def resource(self, field: str, value: Any) -> tuple[str, Resource | None]:
        """Reads the name of a resource; returns it with the resource, or with None if the resource has findings."""
        name = self.read_name("resource", self.resources, field, value)
        rule = "must be an output of an ONNX model before it is used, because its initialValues are deferred"
        require(field, not self.is_unsized(name), rule, show(name))
        return name, self.resources[name]

    def is_unsized(self, name: str | None) -> TypeGuard[str]:
        """Whether a resource is deferred and still waits for its size from an output."""
        resource = self.resources.get(name) if name is not None else None
        return resource is not None and resource.is_deferred and name not in self.sizes_of_outputs

    # Bytes

    def file(self, name: str) -> Path:
        """The file of this name in the input folder, or otherwise in the current folder."""
        # Models come from Windows, where a backslash separates folders too.
        names = dict.fromkeys((name, PureWindowsPath(name).as_posix()))
        candidates = [folder / spelling for folder in (self.input_path, Path()) for spelling in names]
        return next((path for path in candidates if os.path.exists(path)), candidates[0])

    def content(self, path: Path) -> bytes:
        """The bytes of a file, counted against the limit of the model."""
        with open_file(path, self.affordable_bytes) as file:
            data: bytes = file.read(self.affordable_bytes)
        self.bytes_left -= len(data)
        return data

    @property
    def affordable_bytes(self) -> int:
        """The largest size that a part may still request."""
        return min(MAX_RESOURCE_BYTES, self.bytes_left)

    def require_affordable(self, member: Where, size: int) -> None:
        """Raises if a size is beyond the limit of a buffer or of the model."""
        limits = f"{MAX_RESOURCE_BYTES} bytes for one resource and {MAX_MODEL_BYTES} for all"
        require(member, size <= self.affordable_bytes, f"must take at most {limits}", size)

    def take_bytes(self, member: Where, size: int) -> None:
        """Counts a buffer against the limit of the model."""
        self.require_affordable(member, size)
        self.bytes_left -= size
