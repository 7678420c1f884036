"""Checks the arguments of ONNX Runtime's functions, with its classes of errors, and its words where programs look."""

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem, Where
from dmljax.onnx.graph.graph import TensorType
from dmljax.run.answers import Refusal, refusing
from dmljax.run.onnxruntime.values import OrtValue, type_of_dtype, value_of
from dmljax.text import did_you_mean, one_line, show

_REMEDY = "Please fix either the inputs/outputs or the model."


def require_kind(where: Where, value: Any, kind: type) -> None:
    """Raises the AttributeError that ONNX Runtime raises for an argument without the methods of `kind`."""
    if not isinstance(value, kind):
        problem = Problem(where, f"must be of type {kind.__name__}", show(value))
        raise AttributeError(f"onnxruntime: {problem}")


def require_type(name: str, value: Any, kind: type, *others: type) -> None:
    """Raises a TypeError if an argument has another type than `kind`; `others` convert to it."""
    with refusing("onnxruntime", type):
        if not isinstance(value, (kind, *others)):
            raise InvalidType(Problem(name, f"must be of type {kind.__name__}", show(value)))


def to_int32(name: str, value: Any) -> int:
    """The integer that an argument is; raises a TypeError if it is none or has more than 32 bits."""
    require_type(name, value, int, np.integer)
    with refusing("onnxruntime", type):
        if not _INT32.min <= value <= _INT32.max:
            raise InvalidType(Problem(name, "must fit into 32 bits", show(value)))
    return int(value)


_INT32 = np.iinfo(np.int32)


def read_names(names: Any) -> list[str] | None:
    """Reads the names of outputs from any collection of them; raises a TypeError if they are anything else."""
    if names is None:
        return None
    with refusing("onnxruntime", type):
        is_collection = isinstance(names, Iterable) and not isinstance(names, str | bytes | Mapping)
        found: list[Any] = list(names) if is_collection else [None]
        if not all(isinstance(name, str) for name in found):
            raise InvalidType(Problem("output_names", "must be a list of names", show(names)))
        return found


def require_callback(callback: Any) -> None:
    """Raises a TypeError unless a callback is a function, or None."""
    with refusing("onnxruntime", type):
        if callback is not None and not callable(callback):
            raise InvalidType(Problem("callback", "must be a function", show(callback)))


def require_optimizers(names: Any) -> None:
    """Raises a TypeError unless the names of optimizers, none of which dmljax has, are a collection of names."""
    with refusing("onnxruntime", type):
        if names is not None and not (isinstance(names, Iterable) and all(isinstance(name, str) for name in names)):
            raise InvalidType(Problem("disabled_optimizers", "must be a set of names", show(names)))


def warn_of_unknown(place: str, function: Callable[..., Any], others: Mapping[str, Any]) -> None:
    """Warns of keywords that resemble an argument; ONNX Runtime ignores all that it does not know."""
    for name in others:
        if hint := did_you_mean(name, list(inspect.signature(function).parameters)[1:]):
            warn(f"{place} ignores the argument {one_line(name)}{hint}")


def warn(message: str) -> None:
    """Warns at the line of the program that led here."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals["__name__"].startswith("dmljax."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def require_feed(name: str, feed: Any, inputs: Sequence[TensorType]) -> None:
    """Raises unless a feed has a value for each input that needs one."""
    require_kind(name, feed, Mapping)
    with refusing("onnxruntime", type):
        if not all(isinstance(key, str) for key in feed):
            raise InvalidType(Problem(name, "must have names as keys", show(list(feed))))
    missing = [tensor.name for tensor in inputs if tensor.name not in feed and tensor.kind != "optional"]
    if missing:
        raise InvalidDesc(f"Required inputs ({missing}) are missing from input feed ({list(feed)}).")


def require_values(name: str, feed: Any) -> None:
    """Raises unless the values of a feed are OrtValues."""
    for key, value in feed.items():
        require_kind((name, key), value, OrtValue)


def require_outputs(names: Sequence[str], outputs: Sequence[str]) -> None:
    """Raises if a name is not an output's."""
    for name in names:
        if name not in outputs:
            raise InvalidDesc(f"Invalid output name:{one_line(name)}{_hint(name, 'outputs', outputs)}")


def require_inputs(names: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Raises if a name is not an input's."""
    for name in names:
        if name not in inputs:
            raise InvalidDesc(f"Invalid input name: {one_line(name)}{_hint(name, 'inputs', inputs)}")


def _hint(name: str, side: str, known: Any) -> str:
    return f"{did_you_mean(name, known)} (the {side} are {', '.join(known)})"


def convert_feed(requested: TensorType, value: Any) -> Any:
    """Converts a value of a feed for dmljax, and checks its type and sizes."""
    value = value_of(value)
    if requested.kind != "tensor" or requested.dtype is None:
        return value
    if isinstance(value, list):
        try:
            value = np.array(value, requested.dtype)
        except ValueError as error:
            rule = "Could not create tensor from given input list"
            raise Refusal(Problem(requested.name, rule, remedy=str(error))) from None
    is_number = isinstance(value, bool | int | float)
    if not isinstance(value, np.ndarray | np.generic | jax.Array) and not (is_number and requested.sizes == ()):
        raise Refusal(Problem(requested.name, "must be an array", show(value)))
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        value = value.astype(object)
    if isinstance(value, np.ndarray | jax.Array):
        check_array(requested, value)
    return value


def check_array(requested: TensorType, array: Any) -> None:
    """Raises if an array has another type than an input, or sizes that do not fit."""
    _check_type(requested, array)
    _check_sizes(requested, array.shape)


def _check_type(requested: TensorType, value: Any) -> None:
    if requested.dtype is not None and value.dtype != requested.dtype:
        try:
            actual = type_of_dtype(value.dtype)
        except ValueError:
            raise Refusal(Problem(requested.name, "must have a data type of ONNX", value.dtype)) from None
        if value.dtype.kind == "c":
            raise Refusal(Problem(requested.name, "must have real elements", value.dtype))
        rule = f"Unexpected input data type. Actual: ({actual}) , expected: ({type_of_dtype(requested.dtype)})"
        raise InvalidType(Problem((), f"{rule} for input: {requested.name}"))


def _check_sizes(requested: TensorType, sizes: Sequence[int]) -> None:
    if not requested.sizes:  # ONNX Runtime lets a scalar have any shape
        return
    name, rank = requested.name, len(requested.sizes)
    if len(sizes) != rank:
        raise InvalidDesc(f"Invalid rank for input: {name} Got: {len(sizes)} Expected: {rank} {_REMEDY}")
    wrong = [
        f" index: {i} Got: {size} Expected: {expected}"
        for i, (size, expected) in enumerate(zip(sizes, requested.sizes, strict=True))
        if isinstance(expected, int) and size != expected
    ]
    if wrong:
        head = f"Got invalid dimensions for input: {name} for the following indices"
        raise InvalidDesc("\n".join((head, *wrong, f" {_REMEDY}")))
