"""What a DxDispatch model consists of, and what can be wrong with one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors import Operator, lower
from dmljax.dxdispatch.text import Document, Place
from dmljax.errors import DmlError, Problem, spell_path
from dmljax.text import escape_controls
from dmljax.types import DataType


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
    problem: Problem
    column: int | None = None

    @property
    def path(self) -> str:
        """The path inside the model as text."""
        return spell_path(self.problem.path)

    @property
    def message(self) -> str:
        """What is wrong there."""
        return self.problem.message

    def to_json(self) -> dict[str, Any]:
        """The finding for a program."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
            "message": self.message,
            "rule": self.problem.rule,
            "given": self.problem.given,
        }

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (escape_controls(self.file), self.line, self.column) if part)
        return f"{place}: {escape_controls(str(self.problem))}"


class InvalidModel(DmlError, ValueError):
    """A model that cannot be run; `findings` are all that is wrong with it."""

    def __init__(self, findings: Sequence[Finding], warnings: Sequence[Finding] = ()) -> None:
        super().__init__(*(finding.problem for finding in findings))
        self.findings, self.warnings = tuple(findings), tuple(warnings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.findings, self.warnings)


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

    def finding(self, place: Place, problem: Problem) -> Finding:
        """A finding about the part of the model at `place`, inside which the problem is."""
        whole = problem.inside(place)
        return Finding(str(self.path), self.document.line(whole.path), whole)

    def desc_place(self, dispatchable: str) -> Place:
        """Where the desc of a dispatchable stands: inside it, or beside its type."""
        fields = self.document.root["dispatchables"][dispatchable]
        nested = [key for key in ("Desc", "desc") if fields.get(key) is not None]
        return ("dispatchables", dispatchable, *nested[:1])

    @contextmanager
    def part(self, *place: str | int) -> Iterator[None]:
        """Says of what is refused which part of the model it is."""
        try:
            yield
        except InvalidModel:
            raise
        except DmlError as error:
            raise InvalidModel([self.finding(place, one) for one in error.problems], self.warnings) from error
