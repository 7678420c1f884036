"""A program that is read without running it: its files, the names in them, and the values that these may have."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Known:
    """A module, class or function of a library as programs name it, or an instance of the class."""

    name: str
    thing: Any
    is_instance: bool = False


@dataclass(frozen=True)
class Several:
    """A collection of values."""

    elements: "Values"


@dataclass(eq=False)
class Scope:
    """A module, a class or a function of the program, with the values of its names.

    What a function returns has the name `return`.
    """

    outer: "Scope | None" = None
    kind: str = "module"  # or "class", "function", "property"
    names: "dict[str, Values]" = field(default_factory=dict)
    annotated: set[str] = field(default_factory=set)  # names that get no other values
    globals: set[str] = field(default_factory=set)  # names that belong to the module
    bases: "Values" = frozenset()  # of a class
    parameters: tuple[str, ...] = ()  # of a function, without `self`

    def lookup(self, name: str) -> "Values":
        """Returns the values of a name that code in this scope reads; none if they are not known yet."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or scope.kind != "class"):  # methods do not see a class's names
                return scope.names[name]
            scope = scope.outer
        return frozenset()

    def bind(self, name: str, values: "Values") -> None:
        """Adds values to a name."""
        scope = self
        while name in self.globals and scope.outer is not None:
            scope = scope.outer
        if name not in scope.annotated:
            scope.names[name] = scope.names.get(name, frozenset()) | values

    def annotate(self, name: str, values: "Values") -> None:
        """Gives a name the values that an annotation tells, whatever is assigned to it."""
        self.annotated.discard(name)
        self.bind(name, values)
        self.annotated.add(name)


@dataclass(frozen=True)
class Object:
    """An instance of a class of the program."""

    scope: Scope


class Other:
    """Whatever is not followed."""


def collect(values: "Values") -> "Values":
    """Returns a collection of values; those of collections in collections are not followed."""
    is_deep = any(isinstance(x, Several) and any(isinstance(y, Several) for y in x.elements) for x in values)
    return frozenset([Several(OTHERS if is_deep else values)])


Value = Known | Several | Scope | Object | Other
Values = frozenset[Value]
OTHERS: Values = frozenset([Other()])


class Library(Protocol):
    """Tells what the names of libraries mean."""

    def owns(self, module: str) -> bool:
        """Whether a module is of a library."""

    def open_module(self, name: str) -> Values:
        """Imports a module; raises an ImportError if that is not possible."""

    def member(self, owner: Known, name: str) -> Values:
        """Returns an attribute; raises an AttributeError if there is none."""

    def call(self, function: Known) -> Values:
        """Returns what a class or a function returns."""


@dataclass(frozen=True)
class Use:
    """A name that a program uses of a library, and where; an absent module has no owner."""

    path: str
    line: int
    column: int
    name: str
    owner: Known | None = None
    error: str = ""  # if it is absent
    assigned: ast.expr | None = None


@dataclass(eq=False)
class Module:
    """A file of the program."""

    path: str
    package: tuple[str, ...]  # to which relative imports refer
    tree: ast.Module
    scope: Scope = field(default_factory=Scope)


class Program:
    """The modules of a program, which are read from a folder when another one imports them.

    `package` is the only package that is read, or None for all modules in the folder. `unresolved` is what a name has
    whose values are not known: none as long as they may be found elsewhere in the program, and later others.
    """

    unresolved: Values = frozenset()

    def __init__(self, folder: Path, package: str | None, read: Callable[[Path], bytes]) -> None:
        self._folder, self._package, self._read = folder, package, read
        self.modules: dict[str, Module] = {}
        self.scopes: dict[ast.AST, Scope] = {}  # of classes, functions and comprehensions

    def add(self, name: str, path: str, source: bytes, *, is_package: bool = False) -> Module:
        """Adds a module."""
        parts = tuple(name.split("."))
        module = Module(path, parts if is_package else parts[:-1], ast.parse(source, path))
        self.modules[name] = module
        return module

    def find(self, name: str) -> Scope | None:
        """Finds a module; None if it is none of the program's."""
        if name not in self.modules:
            parts = name.split(".")
            if not all(parts) or self._package not in (None, parts[0]):
                return None
            stem = self._folder.joinpath(*parts)
            paths = (stem / "__init__.py", stem.with_name(f"{stem.name}.py"))
            path = next((path for path in paths if path.is_file()), None)
            if path is None:
                return None
            self.add(name, str(path), self._read(path), is_package=path.stem == "__init__")
        return self.modules[name].scope

    def size(self) -> int:
        """Counts the values of all names; a number that stays says that all are known."""
        scopes = [*self.scopes.values(), *(module.scope for module in self.modules.values())]
        return sum(sum(map(len, scope.names.values())) for scope in scopes)
