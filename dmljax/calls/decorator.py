"""The decorator that makes a plain function of arrays an operator of the library."""

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import register_namedtuple_serialization

from dmljax.calls.arguments import (
    ARRAY,
    ARRAYS,
    ArgumentKind,
    ArrayKind,
    NumberKind,
    ShownText,
    as_array,
    as_arrays,
    convert_arguments,
    groups_of,
    is_number,
    read_annotation,
    require_available,
    spell_type,
)
from dmljax.calls.binding import bind_arguments
from dmljax.calls.documentation import documentation
from dmljax.errors import DmlError, Path, Problem, Unsupported, hide_frames
from dmljax.foundation.checks import JAX_ARRAYS
from dmljax.foundation.dimensions import MAX_BYTES, is_addressable
from dmljax.foundation.open_sizes import Undecided, explain_undecided
from dmljax.foundation.precision import resolve_precision
from dmljax.foundation.scalars import ScaleBias
from dmljax.text import did_you_mean, join_words
from dmljax.types import x64_enabled

P = ParamSpec("P")
R = TypeVar("R")


def operator_function(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a plain function of arrays an operator: an eager call is one dispatch of one compiled computation.

    Annotations say the kinds of arguments; those that are neither arrays nor numbers are static. JAX arrays are checked
    while tracing, once for each combination of types and shapes, so a call costs little more than a call of a
    function under `jax.jit`.
    """
    result = function.__annotations__.pop("return", None)
    read = {key: read_annotation(annotation) for key, annotation in function.__annotations__.items()}
    kinds = {key: kind for key, (kind, _) in read.items()}
    function.__annotations__ = {key: plain for key, (_, plain) in read.items()} | {"return": result}
    operator: _Call | None = None  # made at the first call, as programs call few of the operators

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal operator
        if operator is None:
            operator = _Call(function, kinds)
        try:
            statics, values = operator.bind(args, kwargs)
            record = _RECORD.get()
            try:
                if record is None:
                    return operator.compiled(statics, *values)
                return operator.record_call(record, statics, values)
            except DmlError:
                raise
            except Undecided as error:
                raise Unsupported(explain_undecided(error, operator.shapes(values))) from None
        except DmlError as error:
            error.operator = function.__name__
            hide_frames(error)
            raise

    signature = inspect.signature(function)
    call.__module__ = "dmljax"  # the module that users import it from
    call.__signature__ = _shown_signature(signature)  # type: ignore[attr-defined]
    call.__doc__ = documentation(function, signature, kinds)
    return call


def _shown_signature(signature: inspect.Signature) -> inspect.Signature:
    """A signature with short names of types, as `help` shows it."""
    parameters = [p.replace(annotation=ShownText(spell_type(p.annotation))) for p in signature.parameters.values()]
    return signature.replace(
        parameters=parameters, return_annotation=ShownText(spell_type(signature.return_annotation))
    )


def result(form: type[R]) -> type[R]:
    """Registers a named tuple as the result of an operator, so that `jax.export` can serialize it."""
    form.__module__ = "dmljax"  # the module that users import it from
    form.__getattr__ = _refuse_field  # type: ignore[attr-defined]
    register_namedtuple_serialization(form, serialized_name=f"dmljax.{form.__name__}")
    return form


def _refuse_field(results: Any, name: str) -> Any:
    """Names the fields of results after a wrong attribute."""
    kind, fields = type(results).__name__, results._fields
    hint = "" if name.startswith("_") else did_you_mean(name, fields)
    message = f"{kind!r} has no attribute {name!r}{hint}; its fields are {join_words(fields)}"
    raise AttributeError(message, name=name, obj=results)


class RecordedCall(NamedTuple):
    """A call of an operator while a program is traced: `label` is the name of its equation in the program's jaxpr."""

    label: str
    operator: str
    arrays: dict[str, Any]  # the arguments that may be arrays, as the equation takes them
    statics: dict[str, Any]
    results: Any


_RECORD: ContextVar[list[RecordedCall] | None] = ContextVar("_RECORD", default=None)


@contextmanager
def record_calls() -> Iterator[list[RecordedCall]]:
    """Records the calls of operators in a block, except those made by other operators."""
    calls: list[RecordedCall] = []
    token = _RECORD.set(calls)
    try:
        yield calls
    finally:
        _RECORD.reset(token)


@contextmanager
def ignore_calls() -> Iterator[None]:
    """Records no calls of operators in a block."""
    token = _RECORD.set(None)
    try:
        yield
    finally:
        _RECORD.reset(token)


_MISSING = inspect.Parameter.empty  # the default of a parameter that must be given


class _Parameter:
    """A parameter of an operator's function; its kind says how its values are checked."""

    def __init__(self, declared: inspect.Parameter, kind: ArgumentKind) -> None:
        self.name, self.default, self.kind = declared.name, declared.default, kind
        self.may_be_none = type(None) in get_args(declared.annotation)

    def normalize(self, value: Any) -> Any:
        """A static value by its kind."""
        is_absent = value is _MISSING or (value is None and self.may_be_none)
        return value if is_absent else self.kind(self.name, value)  # type: ignore[operator]


class _Call:
    """Calls one operator: binds and normalizes the arguments, and passes them to the jitted function."""

    def __init__(self, function: Callable[..., Any], kinds: dict[str, ArgumentKind]) -> None:
        self.name, self.family, self.signature = function.__name__, function.__globals__, inspect.signature(function)
        declared = self.signature.parameters
        self.parameters = {key: _Parameter(parameter, kinds[key]) for key, parameter in declared.items()}
        self.by_position = [p.name for p in declared.values() if p.kind is not p.KEYWORD_ONLY]
        self.required = {key for key, parameter in self.parameters.items() if parameter.default is _MISSING}
        self.kinds = {key: kinds[key] for key in declared if isinstance(kinds[key], ArrayKind | NumberKind)}
        self.arrays = {key: self.parameters[key] for key in self.kinds}
        self.statics = {key: parameter for key, parameter in self.parameters.items() if key not in self.kinds}
        self.default_statics = tuple(parameter.normalize(parameter.default) for parameter in self.statics.values())
        self.tails = self._omitted_defaults()
        self.typed_together = {key for keys in groups_of(self.kinds).values() for key in keys}
        self.has_sequences = ARRAYS in self.kinds.values()
        self.numbers: dict[tuple[Any, ...], dict[int, Any]] = {}
        self.compiled = jax.jit(self._computation(function), static_argnums=0)

    def _omitted_defaults(self) -> dict[int, tuple[Any, ...]]:
        """The defaults of the arrays that a call omits, by the number of arrays that it passes by position."""
        if self.required & self.statics.keys():
            return {}
        defaults = [parameter.default for parameter in self.arrays.values()]
        tails = (tuple(defaults[count:]) for count in range(len(defaults) + 1))
        return {count: tail for count, tail in enumerate(tails) if _MISSING not in tail}

    def _computation(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def compute(statics: tuple[Any, ...], *values: Any) -> Any:
            values = jax.tree.map(jnp.asarray, values)  # under `jax.disable_jit()`, numbers are still numbers
            arguments = dict(zip(self.arrays, values, strict=True)) | dict(zip(self.statics, statics, strict=True))
            for key, value in arguments.items():
                if isinstance(value, jax.Array):
                    require_available(key, value, self.kinds.get(key, ARRAY))
                elif self.kinds.get(key) is ARRAYS:
                    for i, array in enumerate(value):
                        require_available((key, i), jnp.asarray(array))
            if "precision" in arguments:
                arguments["precision"] = resolve_precision(arguments["precision"])
            results = function(**convert_arguments(self.kinds, arguments))
            for array in jax.tree.leaves(results):
                if not is_addressable(array.shape, array.dtype):
                    rule = f"must have fewer than {MAX_BYTES}"
                    raise Unsupported(Problem("result", rule, f"{array.dtype} of the shape {array.shape}"))
            return results

        compute.__name__ = compute.__qualname__ = function.__name__  # the name of the compiled module
        return compute

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Sequence[Any]]:
        """The static arguments and the arrays of a call, which `compiled` takes."""
        if kwargs or len(args) not in self.tails:
            values, statics = self._bind_names(args, kwargs)
        else:
            values, statics = args + self.tails[len(args)], self.default_statics
        if self.has_sequences:
            return statics, self._coerce(values, statics)
        for value, parameter in zip(values, self.arrays.values(), strict=True):
            if type(value) not in JAX_ARRAYS and not (value is None and parameter.may_be_none):
                return statics, self._coerce(values, statics)
        return statics, values

    def shapes(self, values: Sequence[Any]) -> dict[Path, Sequence[int]]:
        """The shapes of the arrays of a call, by their paths."""
        each = zip(self.arrays, values, strict=True)
        leaves = ((key, path, x) for key, value in each for path, x in jax.tree_util.tree_leaves_with_path(value))
        return {(key, *(place.idx for place in path)): np.shape(x) for key, path, x in leaves}

    def record_call(self, record: list[RecordedCall], statics: tuple[Any, ...], values: Sequence[Any]) -> Any:
        """Calls `compiled` under a unique name, and records the arguments that the jaxpr lacks."""

        def run(*values: Any) -> Any:
            with ignore_calls():
                return self.compiled(statics, *values)

        run.__name__ = run.__qualname__ = f"{self.name}:{len(record)}"
        arrays, static = dict(zip(self.arrays, values, strict=True)), dict(zip(self.statics, statics, strict=True))
        results = jax.jit(run)(*values)
        record.append(RecordedCall(run.__name__, self.name, arrays, static, results))
        return results

    def _bind_names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Returns the arrays and numbers, and the static arguments, each in the order of the parameters."""
        if "axis" in kwargs and "axes" in self.statics and "axes" not in kwargs:  # as jax.numpy calls it
            kwargs = {"axes" if key == "axis" else key: value for key, value in kwargs.items()}
        arguments = dict(zip(self.by_position, args, strict=False)) | kwargs
        is_each_once = len(arguments) == len(args) + len(kwargs)
        if not (is_each_once and self.required <= arguments.keys() <= self.parameters.keys()):
            bind_arguments(self.name, self.signature, args, kwargs, self.twins())  # which refuses them
        statics = list(self.default_statics)
        for i, (key, parameter) in enumerate(self.statics.items()):
            if key in arguments:
                statics[i] = parameter.normalize(arguments[key])
        return [arguments.get(key, parameter.default) for key, parameter in self.arrays.items()], tuple(statics)

    def twins(self) -> dict[str, inspect.Signature]:
        """Returns the signatures of the functions for other versions of the operator, from its family's module."""
        plain = self.name.rstrip("0123456789")
        family = {name: self.family.get(name) for name in (plain, *(f"{plain}{i}" for i in range(1, 4)))}
        return {name: inspect.signature(twin) for name, twin in family.items() if twin and name != self.name}

    def _coerce(self, values: Sequence[Any], statics: tuple[Any, ...]) -> Sequence[Any]:
        """Converts Python's and NumPy's values without loss to the types that JAX needs beside the arrays."""
        key = _key(values, statics)
        if key is None:
            return self._convert(values, statics)
        numbers = self.numbers.get(key)
        if numbers is None:  # a program makes the same call with the same few numbers many times
            results = self._convert(values, statics)
            numbers = {i: number for i, number in enumerate(results) if type(number) not in JAX_ARRAYS}
            arrays = [value for value in values if type(value) in JAX_ARRAYS]
            if arrays and all(map(_is_uncommitted, arrays)):
                numbers = {i: _put_on_device(number) for i, number in numbers.items()}
            if len(self.numbers) >= _MAX_NUMBERS:
                self.numbers.clear()
            self.numbers[key] = numbers
        return [numbers.get(i, value) for i, value in enumerate(values)]

    def _convert(self, values: Sequence[Any], statics: tuple[Any, ...]) -> list[Any]:
        arrays = dict(zip(self.arrays, values, strict=True))
        for key, value in arrays.items():
            kind = self.kinds[key]
            # Convert these later, to the type of the arrays beside them.
            waits = isinstance(kind, NumberKind) or (key in self.typed_together and is_number(value))
            is_absent = value is None and self.arrays[key].may_be_none
            if kind is ARRAYS:
                arrays[key] = as_arrays(key, value)
            elif not is_absent and (value is None or not waits):
                arrays[key] = as_array(key, value, kind)
        static = dict(zip(self.statics, statics, strict=True))
        arguments = convert_arguments(self.kinds, arrays | static, exempt=jax.Array)
        return [arguments[key] for key in self.arrays]


_MAX_NUMBERS = 1024  # combinations of numbers that an operator remembers


def _key(values: Sequence[Any], statics: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Returns a key of all that the conversion of `values` depends on; None unless all are numbers or JAX arrays."""
    keys = [_key_of(value) for value in values]
    return None if None in keys else (statics, x64_enabled(), *keys)


def _key_of(value: Any) -> tuple[Any, ...] | None:
    value_type = type(value)
    if value_type in JAX_ARRAYS:
        return (value.dtype, value.weak_type, value.sharding if _is_uncommitted(value) else None)
    if value_type is float:
        return (value_type, value, math.copysign(1, value))  # -0.0 equals 0.0
    if value_type is int or value is None:
        return (value_type, value)
    if value_type is ScaleBias and not any(type(number) in JAX_ARRAYS for number in value):
        keys = [_key_of(number) for number in value]
        return None if None in keys else (value_type, *keys)
    return (value_type, value.tobytes()) if isinstance(value, np.generic) else None


def _is_uncommitted(value: jax.Array) -> bool:
    """Whether JAX may move an array: it is then on the default device, where numbers may also be put."""
    return not isinstance(value, jax.core.Tracer) and not value.committed


def _put_on_device(number: Any) -> Any:
    """Puts a number on the device once: doing so at each call takes 6 of its 10 us."""
    if not isinstance(number, np.generic | bool | int | float):
        return number
    with jax.ensure_compile_time_eval():  # the call may be made while a program is traced
        return jax.device_put(number)
