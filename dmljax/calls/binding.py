"""Binds the arguments of calls to parameters, or raises an error that says what to write instead."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from dmljax.calls.foreign_arguments import remedy_for, remedy_for_missing
from dmljax.errors import DmlError, InvalidType, Problem, hide_frames, within
from dmljax.text import join_words, show

P = ParamSpec("P")
R = TypeVar("R")


def bind_arguments(
    function: str,
    signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    twins: Mapping[str, inspect.Signature] = MappingProxyType({}),
) -> dict[str, Any]:
    """Binds the arguments of a call to parameters, and raises where Python would raise.

    `twins` are the signatures of functions that may take other arguments.
    """
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        parameters = signature.parameters
        call = spell_call(function, signature)
        by_name = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
        if len(args) > len(parameters) - len(by_name):
            left = [key for key in by_name if key not in kwargs]
            left = [key for key in left if parameters[key].default is inspect.Parameter.empty] or left
            instead = f"give {join_words(left)} by name" if left else call
            raise InvalidType(Problem((), "too many positional arguments", remedy=instead)) from None
        problems = [
            Problem((), f"got an unexpected keyword argument {name!r}{'' if remedy else f'; {call}'}", remedy=remedy)
            for name in kwargs
            if name not in parameters
            for remedy in [remedy_for(name, function, signature, twins, kwargs)]
        ]
        missing = missing_arguments(signature, args, kwargs)
        if not problems and missing:
            remedy = remedy_for_missing(missing, function, signature)
            problems = [Problem((), f"missing {', '.join(missing)}; {call}", remedy=remedy)]
        raise InvalidType(*(problems or [Problem((), str(error))])) from None


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function or an `__init__` check arguments as `bind_arguments` does, and hides dmljax's frames."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except DmlError as error:
            hide_frames(error)
            raise
        except TypeError:
            parameters = [*inspect.signature(function).parameters.values()]
            start = 1 if parameters[:1] and parameters[0].name == "self" else 0
            name = type(args[0]).__name__ if function.__name__ == "__init__" else function.__qualname__
            with within(name):
                bind_arguments(name, inspect.Signature(parameters[start:]), args[start:], kwargs)
            raise

    return call


def spell_call(function: str, signature: inspect.Signature) -> str:
    """Returns a call of a function with all of its parameters, without annotations."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    call = f"{function}{inspect.Signature(plain)}"
    for enumerator in (p.default for p in plain if isinstance(p.default, Enum)):
        call = call.replace(repr(enumerator), show(enumerator))
    return re.sub(r"<class '(\w+)'>", r"\1", re.sub(r"<class 'jax\.numpy\.(\w+)'>", r"jnp.\1", call))


def missing_arguments(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Returns the arguments without a default that a call does not give."""
    parameters = signature.parameters.values()
    by_position = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][: len(args)]
    required = (p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return [name for name in required if name not in kwargs and name not in by_position]
