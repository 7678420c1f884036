"""ONNX Runtime's errors: its classes and codes, and its words where programs look for them."""

import functools
from collections.abc import Callable, Mapping
from typing import ClassVar

from dmljax.errors import DmlError, InvalidType, MissingFile, Problem, Unsupported, UnusableFile
from dmljax.onnx.graph.graph import UndefinedName, UnsortableNodes
from dmljax.onnx.graph.reader import InvalidModelFile, NoGraph
from dmljax.onnx.handlers.finder import UnknownOperator
from dmljax.run.answers import Refusal
from dmljax.text import one_line


class _Status(DmlError):
    """An error with a code; like ONNX Runtime's, it is no ValueError, TypeError or RuntimeError."""

    _CODE: ClassVar[tuple[int, str]]

    def __init__(self, *problems: Problem | str, start: str = "") -> None:
        super().__init__(*problems)
        self._start = start

    def __str__(self) -> str:
        number, name = self._CODE
        return f"[ONNXRuntimeError] : {number} : {name} : {self._start}{message_of(self)}"


class Fail(_Status):
    """A model cannot be loaded, or a node cannot compute its outputs."""

    _CODE = (1, "FAIL")


class InvalidArgument(_Status):
    """A call does not fit the model."""

    _CODE = (2, "INVALID_ARGUMENT")


class NoSuchFile(_Status):
    """There is no file with this name."""

    _CODE = (3, "NO_SUCHFILE")


class NoModel(_Status):
    """Does nothing, because no session is without a model."""

    _CODE = (4, "NO_MODEL")


class EngineError(_Status):
    """Does nothing, because XLA's errors are a Fail."""

    _CODE = (5, "ENGINE_ERROR")


class RuntimeException(_Status):
    """Does nothing, because failures inside a node are a Fail."""

    _CODE = (6, "RUNTIME_EXCEPTION")


class InvalidProtobuf(_Status):
    """A file or bytes are not a model."""

    _CODE = (7, "INVALID_PROTOBUF")


class ModelLoaded(_Status):
    """Does nothing, because a session loads its model once."""

    _CODE = (8, "MODEL_LOADED")


class NotImplemented(_Status):
    """A model needs something that dmljax does not support."""

    _CODE = (9, "NOT_IMPLEMENTED")


class InvalidGraph(_Status):
    """A node of a model breaks a rule of its operator."""

    _CODE = (10, "INVALID_GRAPH")


class EPFail(_Status):
    """Does nothing, because no provider falls back to another."""

    _CODE = (11, "EP_FAIL")


class ModelLoadCanceled(_Status):
    """Does nothing, because nothing cancels a load."""

    _CODE = (12, "MODEL_LOAD_CANCELED")


class ModelRequiresCompilation(_Status):
    """Does nothing, because XLA compiles each model."""

    _CODE = (13, "MODEL_REQUIRES_COMPILATION")


class NotFound(_Status):
    """Does nothing, because names that are not found are an InvalidArgument."""

    _CODE = (14, "NOT_FOUND")


class DeviceReset(_Status):
    """Does nothing, because JAX reports what happens to its device."""

    _CODE = (15, "DEVICE_RESET")


def message_of(error: DmlError) -> str:
    """Returns an error's text without its code, as `run_async` passes it to its callback."""
    return "\n  ".join(error.rules)


def kind_of_load_from(path: str | None) -> Callable[[DmlError], Callable[..., DmlError]]:
    """Returns a function like `kind_of_load`, whose errors begin as ONNX Runtime's do for a model in this file."""

    def kind_of(error: DmlError) -> Callable[..., DmlError]:
        kind = kind_of_load(error)
        if not issubclass(kind, _Status):
            return kind
        rule = "Invalid model. " if isinstance(error, UndefinedName) else _STARTS_OF_LOAD.get(kind, "")
        if path is None and kind is InvalidProtobuf:
            rule = "Failed to load model because protobuf parsing failed: "
        place = "" if path is None else f"Load model from {one_line(path)} failed:"
        return functools.partial(kind, start=place + rule)

    return kind_of


_STARTS_OF_LOAD: Mapping[type, str] = {
    InvalidGraph: "This is an invalid model. ",
    InvalidProtobuf: "Protobuf parsing failed: ",
    NoSuchFile: "File doesn't exist: ",
}


def kind_of_load(error: DmlError) -> type[DmlError]:
    """Returns ONNX Runtime's class for an error while loading a model."""
    if isinstance(error, _Status | Refusal | InvalidType):
        return type(error)
    if isinstance(error, MissingFile):
        return NoSuchFile
    if isinstance(error, InvalidModelFile | UnusableFile):
        return InvalidProtobuf
    if isinstance(error, UnknownOperator):
        return InvalidGraph
    if isinstance(error, Unsupported):
        return NotImplemented
    if isinstance(error, UnsortableNodes):
        return Fail
    depth = _depth(error)
    if isinstance(error, NoGraph) or (isinstance(error, UndefinedName) and depth == 1):
        return InvalidArgument
    return InvalidGraph if depth else Fail


def kind_of_run(error: DmlError) -> type[DmlError]:
    """Returns ONNX Runtime's class for an error while calling a model."""
    if isinstance(error, _Status | Refusal):
        return type(error)
    if isinstance(error, Unsupported):
        return NotImplemented
    return Fail if _depth(error) else InvalidArgument


def _depth(error: DmlError) -> int:
    """How many nodes an error is in: 1 for a node of the model, more in its branches and loops."""
    return error.problems[0].path.count("nodes")
