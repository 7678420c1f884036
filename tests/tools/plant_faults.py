"""Shows that the tests can fail: plants one fault at a time in a copy of dmljax, and checks that its test fails.

Run `python tests/tools/plant_faults.py` for all faults, or `python tests/tools/plant_faults.py narrow bands` for those
whose sentence has one of these words. `tests/tools/faults.toml` lists them under the function, class or constant that
they are planted in:

    [largest_positions]
    "the last of equal elements is the largest" = ["key > largest", "key >= largest", "test_the_first_is_taken"]

The first text is an expression, or statements, that occurs there once; the second replaces it. Both are parsed, so
spaces and line breaks do not matter. Write `module.function` or `room/file.py::test` if several have the name.
"""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "dmljax"


@dataclass(frozen=True)
class Fault:
    """A change to one place in dmljax that a test must catch."""

    what: str
    anchor: str  # the name of the function, class or constant
    right: str
    wrong: str
    test: str


def _faults(table: dict[str, Any], *names: str) -> Iterator[Fault]:
    for key, value in table.items():
        if isinstance(value, dict):  # `[Class.method]` is a nested table
            yield from _faults(value, *names, key)
        else:
            yield Fault(key, ".".join(names), *value)


FAULTS = [*_faults(tomllib.loads((Path(__file__).with_name("faults.toml")).read_text()))]


@dataclass(frozen=True)
class Place:
    """Some of the nodes in a field of `owner`, in a module."""

    module: Path
    tree: ast.Module
    owner: ast.AST
    field: str
    nodes: slice

    def replaced(self, code: Sequence[ast.AST]) -> str:
        """Returns the source of the module with this code instead."""
        value = getattr(self.owner, self.field)
        changed: Any = code[0]
        if isinstance(value, list):
            changed = [*value[: self.nodes.start], *code, *value[self.nodes.stop :]]
        setattr(self.owner, self.field, changed)
        source = ast.unparse(self.tree)
        setattr(self.owner, self.field, value)
        return source


def parsed(text: str) -> Sequence[ast.AST]:
    """Returns an expression, or else statements."""
    try:
        return [ast.parse(text, mode="eval").body]
    except SyntaxError:
        return ast.parse(text).body


def places(fault: Fault) -> list[Place]:
    """Finds all places that match the fault; there should be one."""
    right = parsed(fault.right)
    code = list(map(ast.dump, right))
    found = []
    for module, tree, definition in _definitions().get(fault.anchor, []):
        for owner in ast.walk(definition):
            for field, value in ast.iter_fields(owner):
                nodes = value if isinstance(value, list) else [value]
                for start in range(len(nodes) - len(code) + 1):
                    some = nodes[start : start + len(code)]
                    if list(map(type, some)) == list(map(type, right)) and list(map(ast.dump, some)) == code:
                        found.append(Place(module, tree, owner, field, slice(start, start + len(code))))
    return found


@functools.cache
def _definitions() -> dict[str, list[tuple[Path, ast.Module, ast.AST]]]:
    """Returns what dmljax defines by the ends of its full name: `f`, `module.f`, `room.module.f`."""
    found: dict[str, list[tuple[Path, ast.Module, ast.AST]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree, module = ast.parse(path.read_text()), path.relative_to(PACKAGE)
        for name, code in _named(tree.body, ".".join(module.with_suffix("").parts)):
            parts = name.split(".")
            for i in range(len(parts)):
                found.setdefault(".".join(parts[i:]), []).append((module, tree, code))
    return found


def _named(body: Sequence[ast.stmt], scope: str) -> Iterator[tuple[str, ast.AST]]:
    for code in body:
        match code:
            case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                yield f"{scope}.{name}", code
            case ast.ClassDef(name=name):
                yield f"{scope}.{name}", code
                yield from _named(code.body, f"{scope}.{name}")


@functools.cache
def _files_by_test() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE):
            found.setdefault(name, []).append(file)
    return found


def files_of(test: str) -> list[Path]:
    """Finds the files that have a fault's test; there should be one."""
    file, _, name = test.rpartition("::")
    return [one for one in _files_by_test().get(name, []) if not file or one == TESTS / file]


def is_caught(fault: Fault) -> bool:
    """Plants a fault, runs its test, and prints whether that fails."""
    (place,), (file,) = places(fault), files_of(fault.test)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "dmljax")
        (Path(folder) / "dmljax" / place.module).write_text(place.replaced(parsed(fault.wrong)))
        test = f"{file}::{fault.test.rpartition('::')[2]}"
        project = ["-c", f"{TESTS.parent}/pyproject.toml", "--rootdir", str(TESTS.parent), "-p", "no:cacheprovider"]
        process = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--full", *project, test],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    print("caught  " if process.returncode == 1 else "SURVIVES", fault.what, flush=True)
    if process.returncode > 1:  # no test ran
        print(process.stdout, process.stderr)
    return process.returncode == 1


def main(*words: str) -> int:
    chosen = [fault for fault in FAULTS if any(word in fault.what for word in words or [""])]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        caught = sum(pool.map(is_caught, chosen))
    print(f"{caught} of {len(chosen)} faults caught")
    return int(caught < len(chosen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
