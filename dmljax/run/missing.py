"""Lists the names that a program uses of foreign libraries and that dmljax lacks or ignores, without running it."""

import ast
import importlib
import inspect
import sys
import warnings
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from dmljax.errors import DmlError
from dmljax.foundation.files import open_file
from dmljax.run import ELSEWHERE, MODULES, find_stand_in
from dmljax.run.answers import (
    IGNORED,
    REFUSED,
    WORKS,
    Answer,
    Answering,
    absent,
    declared_answer,
    documented_answer,
    place_of,
)
from dmljax.run.options import Command, exit_with_error
from dmljax.run.programs import OTHERS, Known, Program, Use, Values, collect
from dmljax.run.reader import find_uses
from dmljax.text import escape_controls, one_line

_MOST_BYTES = 2**24  # of a file


def show_missing(command: Command) -> int:
    """Prints what a program uses and dmljax lacks or ignores, and returns the exit status."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of Python, about the program's code
            uses = find_uses(_read_program(command), _Libraries())
    except (DmlError, ModuleNotFoundError) as error:
        exit_with_error(str(error))
    except SyntaxError as error:
        exit_with_error(f"{one_line(error.filename or command.program)}:{error.lineno or 1}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, or expressions inside expressions
        exit_with_error(f"{one_line(command.program)}: must be Python that can be parsed ({error})")
    lines: dict[str, bool] = {}  # whether each is a finding
    for use in uses:
        word, reason = _answer(use)
        if word != WORKS:
            lines.setdefault(escape_controls(f"{use.path}:{use.line}: {reason}"), word == REFUSED)
    for line in lines:
        print(line)
    findings = sum(lines.values())
    ignored = len(lines) - findings
    name = "<string>" if command.form == "-c" else escape_controls(command.program)
    for argument in command.arguments:
        if argument.endswith(".py") and Path(argument).is_file():
            print(f"tip: {one_line(argument)} is an argument of {name}, and was not read", file=sys.stderr)
    print(f"{name}: {_count(findings, 'finding')}, {_count(ignored, 'use')} without effect")
    return 1 if findings else 0


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


# Files


def _read_program(command: Command) -> Program:
    """Reads the file of a program, or the files of a package; others follow when these import them."""
    if command.form == "-m":
        return _read_module(command.program)
    if command.form == "-c":
        program = Program(Path(), None, _read)
        program.add("__main__", "<string>", command.program.encode())
        return program
    path = Path(command.program)
    path = path / "__main__.py" if path.is_dir() else path
    program = Program(path.parent, None, _read)
    program.add("__main__", str(path), _read(path))
    return program


def _read_module(name: str) -> Program:
    """Reads a module, or all files of a package; imports nothing."""
    top, *rest = name.split(".")
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)
    spec = next((spec for spec in specs if spec is not None), None)
    folders = [Path(folder).parent for folder in (spec and spec.submodule_search_locations) or ()]
    is_package = bool(folders)
    if spec is not None and spec.has_location and not is_package:
        folders = [Path(str(spec.origin)).parent]
    for folder in folders:  # a namespace has several
        here = Path.cwd()
        folder = folder.relative_to(here) if folder.is_relative_to(here) else folder
        program = Program(folder, top if is_package or folder != Path() else None, _read)
        inside = folder.joinpath(top, *rest)
        if is_package and inside.is_dir():
            for path in sorted(inside.rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                program.find(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        elif program.find(name):
            for i in range(len(rest)):
                program.find(".".join((top, *rest[:i])))
        if program.modules:
            return program
    raise ModuleNotFoundError(f"No module named {name}")


def _read(path: Path) -> bytes:
    with open_file(path, _MOST_BYTES) as file:
        return bytes(file.read())


# What dmljax has


def _answer(use: Use) -> Answer:
    """Returns what becomes of a name where a program uses it; the reason begins with the name's place."""
    if use.owner is None or use.error:
        return Answer(REFUSED, use.error)
    place, thing = f"{use.owner.name}.{use.name}", use.owner.thing
    if use.assigned is not None:
        return _answer_to_value(place, thing, use.name, use.assigned)
    functions = vars(thing) if isinstance(thing, ModuleType) else _attributes_of(thing)
    function = _function_of(functions.get(use.name))
    word, reason = documented_answer(function) if inspect.isroutine(function) else (WORKS, "")
    return Answer(word, f"{place} {'has no effect' if word == IGNORED else 'is refused'}: {reason}")


def _answer_to_value(place: str, thing: Any, name: str, assigned: ast.expr) -> Answer:
    word, reason = (isinstance(thing, type) and declared_answer(thing, name)) or (WORKS, "")
    if word == REFUSED and _is_literally(assigned, thing._DEFAULTS[name]):
        return Answer(WORKS, "")
    return Answer(word, f"{place} has no effect: {reason}" if word == IGNORED else f"{place} {reason}")


def _is_literally(node: ast.expr, value: Any) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value == value)


def _attributes_of(cls: type) -> dict[str, Any]:
    return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}


def _function_of(attribute: Any) -> Any:
    return attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute


class _Libraries:
    """The modules of dmljax that answer for libraries."""

    def owns(self, module: str) -> bool:
        return module.partition(".")[0] in {*MODULES, *ELSEWHERE}

    def open_module(self, name: str) -> Values:
        library = name.partition(".")[0]
        if library in ELSEWHERE:
            raise ModuleNotFoundError(f"{library}: {ELSEWHERE[library]}")
        stand_in = find_stand_in(name)
        return OTHERS if stand_in is None else frozenset([Known(name, importlib.import_module(stand_in))])

    def member(self, owner: Known, name: str) -> Values:
        if isinstance(owner.thing, ModuleType):
            return self._member_of_module(owner, name)
        if not isinstance(owner.thing, type):
            return OTHERS
        attributes = _attributes_of(owner.thing)
        if name in attributes:
            return self._values_of(f"{owner.name}.{name}", attributes[name], is_instance=owner.is_instance)
        if name in attributes.get("__annotations__", ()):
            return _instances_of(get_type_hints(owner.thing)[name])
        if isinstance(owner.thing, type(Answering)):
            getattr(owner.thing, name)  # raises the reason
        raise absent(owner.name, name, known=attributes)

    def _member_of_module(self, owner: Known, name: str) -> Values:
        try:
            return self._values_of(f"{owner.name}.{name}", getattr(owner.thing, name))
        except AttributeError:
            with suppress(ImportError):
                return self.open_module(f"{owner.name}.{name}")
            raise

    def _values_of(self, place: str, attribute: Any, *, is_instance: bool = False) -> Values:
        """Returns what an attribute is to a program."""
        attribute = _function_of(attribute)
        if isinstance(attribute, type):
            return frozenset([Known(place_of(attribute), attribute)]) if _is_answer(attribute) else OTHERS
        if isinstance(attribute, ModuleType | FunctionType):
            return frozenset([Known(place, attribute)])
        if isinstance(attribute, property | cached_property) and is_instance:
            return _returned(attribute.fget if isinstance(attribute, property) else attribute.func)
        return _instances_of(type(attribute))

    def call(self, function: Known) -> Values:
        if isinstance(function.thing, type):
            if function.is_instance:
                return _returned(_attributes_of(function.thing).get("__call__"))
            return _instances_of(function.thing)
        return _returned(function.thing)


def _is_answer(cls: type) -> bool:
    """Whether a class is one of the libraries'."""
    return cls.__module__.startswith(tuple(MODULES.values()))


def _returned(function: Any) -> Values:
    """Returns what a function of a library returns, by its annotation."""
    try:
        return _instances_of(get_type_hints(function).get("return"))
    except (NameError, TypeError):  # names that only type checkers import, or no function
        return OTHERS


def _instances_of(hint: Any) -> Values:
    if isinstance(hint, type) and _is_answer(hint):
        return frozenset([Known(place_of(hint), hint, is_instance=True)])
    values = [_instances_of(argument) for argument in get_args(hint) if argument is not type(None)]
    if get_origin(hint) in (Union, UnionType):
        return frozenset().union(*values)
    return collect(values[-1]) if values else OTHERS
