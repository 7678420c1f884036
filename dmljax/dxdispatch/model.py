"""The parts of a DxDispatch model as data, and the errors that describe its problems."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors import Operator, lower
from dmljax.descriptors.tensor import TensorDesc
from dmljax.dxdispatch.networks import SizedNetwork
from dmljax.dxdispatch.text import Document, Place
from dmljax.errors import DmlError, InvalidType, MissingFile, Problem, UnusableFile, spell_path
from dmljax.foundation.checks import NamedThings, set_fields
from dmljax.graphs.graph import Graph
from dmljax.text import escape_controls, hint_for_spelling, no_attribute_of, show
from dmljax.types import DataType, Results, TensorFlags


@dataclass(frozen=True, eq=False)
class Resource:
    """A buffer: its size, its initial values, and the data type that commands print and write it in.

    4-bit values are stored two to a byte; `padding_bits` is 4 if the last byte of the initial values is half full.
    """

    data_type: DataType
    size_in_bytes: int
    initial_values: NDArray[np.uint8] = field(repr=False)
    offset_in_bytes: int = 0
    padding_bits: int = 0
    is_deferred: bool = False  # an output sets its size, when the model is read or when it runs

    @property
    def is_open(self) -> bool:
        """Whether only a run knows its size."""
        return self.is_deferred and not self.size_in_bytes

    @property
    def value_count(self) -> int:
        """The number of values up to the end of the initial ones."""
        bits = 8 * (self.offset_in_bytes + self.initial_values.size) - self.padding_bits
        return bits // self.data_type.bits

    def buffer(self) -> NDArray[np.uint8]:
        """A new buffer of zeros, with the initial values at their offset."""
        buffer = np.zeros(self.size_in_bytes, np.uint8)
        buffer[self.offset_in_bytes : self.offset_in_bytes + self.initial_values.size] = self.initial_values
        return buffer


@dataclass(frozen=True)
class Binding:
    """Where a tensor is stored: a resource, and the byte offset in it."""

    resource: str
    offset_in_bytes: int = 0


Bindings = Mapping[str, Binding]  # by the keys of bind points, such as "input"


class BindPoint(NamedTuple):
    """A tensor that can be bound to a resource: an operator's tensor, or an input or output of a graph or a model."""

    name: str  # in bindings; all tensors of an array share it
    key: str  # unique to this tensor
    path: Place
    tensor: TensorDesc
    is_input: bool
    is_open: bool = False  # values decide its sizes, and the tensor has only its type

    @property
    def is_owned(self) -> bool:
        """Whether DirectML copies the tensor at initialization."""
        return self.is_input and bool(self.tensor.flags & TensorFlags.OWNED_BY_DML)

    @property
    def size_in_bytes(self) -> int:
        """The number of bytes that the tensor takes in a resource."""
        return self.tensor.total_tensor_size_in_bytes or self.tensor.minimum_size_in_bytes


def bind_points(desc: Operator | Graph | SizedNetwork) -> tuple[BindPoint, ...]:
    """The tensors of an operator, a graph or a model: inputs in order, then outputs in order."""
    if not isinstance(desc, Operator):
        is_open = isinstance(desc, SizedNetwork) and desc.is_open
        return tuple(
            BindPoint(name, name, (name,), tensor, is_input, not is_input and is_open)
            for is_input, tensors in ((True, desc.inputs), (False, desc.results))
            for name, tensor in tensors.items()
        )
    return tuple(
        BindPoint(leaf.member.name, leaf.key, leaf.path, leaf.tensor, is_input)
        for is_input in (True, False)
        for leaf in desc.leaves(is_input=is_input)
    )


@dataclass(frozen=True, eq=False)
class Dispatchable:
    """An operator, a graph or an ONNX model, callable as by `dmljax.directml.lower`, under any JAX transformation.

    An ONNX model that needs values for its sizes works only outside transformations.
    """

    desc: Operator | Graph | SizedNetwork
    bindings: Bindings = field(default_factory=dict)  # for OWNED_BY_DML inputs, which are read at initialization
    rounds_between_nodes: bool = False  # as if each joined dispatch stored its result in a buffer

    @cached_property
    def points(self) -> tuple[BindPoint, ...]:
        """The tensors to which a dispatch binds resources."""
        return bind_points(self.desc)

    @cached_property
    def function(self) -> Any:
        """The result of `dmljax.directml.lower`, for callers that inspect a function's signature or name."""
        return self.desc if isinstance(self.desc, SizedNetwork) else lower(self.desc)

    def __call__(self, *args: Any, **kwargs: Any) -> Results:
        results: Results = self.function(*args, **kwargs)
        return results


@dataclass(frozen=True)
class Dispatch:
    """A command that runs an operator or a graph on resources."""

    dispatchable: str
    bindings: Bindings  # for ONNX models, missing inputs are zeros, and missing outputs are dropped
    network: str | None = None  # the ONNX model from which the dispatchable was made

    @property
    def title(self) -> str:
        """The name in results: the dispatchable's, or the ONNX model's regardless of sizes."""
        return self.network or self.dispatchable


@dataclass(frozen=True)
class Print:
    """A command that prints the values of a resource."""

    resource: str
    verbose: bool = False


@dataclass(frozen=True)
class WriteFile:
    """A command that writes a resource to a file below the output folder."""

    resource: str
    target_path: str
    dimensions: tuple[int, ...] = ()


Command = Dispatch | Print | WriteFile


@dataclass(frozen=True)
class Finding:
    """An error or warning about a model: its file, its line, and a problem with a path inside the model.

    Only JSON syntax errors have a column.
    """

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
        """The broken rule and the value, without the path."""
        return self.problem.message

    def to_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
            "message": self.message,
            "others": [spell_path(path) for path in self.problem.others],
            "rule": self.problem.rule,
            "given": self.problem.given,
        }

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (escape_controls(self.file), self.line, self.column) if part)
        return f"{place}: {escape_controls(str(self.problem))}"


class InvalidModel(DmlError, ValueError):
    """A model cannot run; `findings` lists every error in it, and `warnings` every warning."""

    def __init__(self, findings: Sequence[Finding], warnings: Sequence[Finding] = ()) -> None:
        super().__init__(*(finding.problem for finding in findings))
        self.findings, self.warnings = tuple(findings), tuple(warnings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.findings, self.warnings)


class UnreadableModel(InvalidModel):
    """A file is not valid JSON; its contents are not checked further."""


class UnopenedModel(UnreadableModel, UnusableFile):
    """A file cannot be opened; also an OSError."""

    def __reduce__(self) -> tuple[Any, ...]:
        _, _, state = UnusableFile.__reduce__(self)
        return type(self), (self.findings, self.warnings), state


class MissingModel(UnopenedModel, MissingFile):
    """There is no file of that name; also a FileNotFoundError."""


@dataclass(frozen=True, eq=False)
class DispatchModel:
    """A valid model.

    Its `warnings` name ignored fields, values that become infinite, and offsets that only DirectML refuses.
    """

    path: Path
    resources: Mapping[str, Resource]
    dispatchables: Mapping[str, Dispatchable]
    commands: Sequence[Command]
    warnings: Sequence[Finding]
    document: Document = field(repr=False)
    numbers: Sequence[tuple[int, ...]] | None = None  # see `numbers_of`; None if no commands were joined

    def __post_init__(self) -> None:
        set_fields(self, resources=NamedThings("resource of the model", self.resources))
        set_fields(self, dispatchables=NamedThings("dispatchable of the model", self.dispatchables))

    if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

        def __getattr__(self, name):
            raise no_attribute_of(self, name, hint_for_spelling(self, name, _ELSEWHERE))

    def numbers_of(self, index: int) -> tuple[int, ...]:
        """The indices in the document that a command of this model came from; several if dispatches were joined."""
        return (index,) if self.numbers is None else self.numbers[index]

    def command_place(self, index: int) -> Place:
        """The place of a command, or of the first of joined dispatches."""
        return ("commands", self.numbers_of(index)[0])

    def finding(self, place: Place, problem: Problem) -> Finding:
        """A finding for a problem whose path is relative to `place` in the model."""
        whole = problem.inside(place)
        return Finding(str(self.path), self.document.line(whole.path), whole)

    def desc_place(self, dispatchable: str) -> Place:
        """The place of a dispatchable's desc: its field `Desc` or `desc`, or otherwise the dispatchable itself.

        For joined dispatches, it is the place of the first.
        """
        fields = self.document.root["dispatchables"].get(dispatchable)
        if fields is None:
            names = [command.dispatchable if isinstance(command, Dispatch) else None for command in self.commands]
            return self.command_place(names.index(dispatchable))
        keys = [key for key in ("Desc", "desc") if fields.get(key) is not None]
        return ("dispatchables", dispatchable, *keys[:1])

    @contextmanager
    def part(self, *place: str | int) -> Iterator[None]:
        """Turns a DmlError raised inside into an InvalidModel with its place in the model."""
        try:
            yield
        except InvalidModel:
            raise
        except DmlError as error:
            raise InvalidModel([self.finding(place, problem) for problem in error.problems], self.warnings) from error


_ELSEWHERE = dict.fromkeys(
    ("run", "execute", "dispatch", "compute", "result"), "dmljax.dxdispatch.Execution(model).run()"
) | {"values": 'dmljax.dxdispatch.Execution(model).values("x") for the resource x'}


def require_model(model: Any) -> None:
    """Raises if an argument is not a model."""
    if not isinstance(model, DispatchModel):
        raise InvalidType(Problem("model", "must be a DispatchModel, as load returns it", show(model)))
