"""Shows that the tests can fail: plants one fault at a time in a copy of dmljax, and checks that a test catches it.

Run `python tests/plant_faults.py` for all faults, and `python tests/plant_faults.py narrow bands` for those whose
sentence has one of these words. `--changed main` plants those in modules, or for tests, that differ from branch `main`.

The files in `tests/faults` list the faults under the function, class or constant that they are planted in:

    [largest_positions]
    "the last of equal elements is the largest" = ["key > largest", "key >= largest", "test_the_first_is_taken"]

The first text is an expression, or statements, that occurs there once; the second replaces it, and the test fails. Both
are parsed, so spaces and line breaks do not matter. Write `Class.method` for a method, and `module.function` or
`file.py::test` if several modules or files have that name. A fourth text sets an environment variable.
"""

import argparse
import ast
import compileall
import functools
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "dmljax"
SURVIVES = "SURVIVES"
PRELOADED = ["chex", "jax.experimental", "optax", "pytest"]
RECORDS = TESTS / "faults"
SECONDS = 300  # a test that takes longer does not end


@dataclass(frozen=True)
class Fault:
    """A change to one place in dmljax that a test must catch."""

    what: str
    anchor: str  # the name of the function, class or constant
    right: str
    wrong: str
    test: str
    environment: tuple[str, ...]


def _faults(table: dict[str, Any], *names: str) -> Iterator[Fault]:
    for key, value in table.items():
        if isinstance(value, dict):  # `[Class.method]` is a nested table
            yield from _faults(value, *names, key)
        else:
            right, wrong, test, *environment = value
            yield Fault(key, ".".join(names), right, wrong, test, tuple(environment))


FAULTS = [fault for file in sorted(RECORDS.rglob("*.toml")) for fault in _faults(tomllib.loads(file.read_text()))]


# Where faults are planted


@dataclass(frozen=True)
class Definition:
    """The code under a name."""

    module: Path
    tree: ast.Module
    code: ast.AST


def definitions(package: Path) -> dict[str, list[Definition]]:
    """Modules, classes, functions and constants by the ends of their full names: `f`, `module.f`, `room.module.f`."""
    found: dict[str, list[Definition]] = {}
    for module in sorted(package.rglob("*.py")):
        tree = ast.parse(module.read_text())
        name = ".".join(module.relative_to(package).with_suffix("").parts)
        for full_name, code in [(name, tree), *_named(tree.body, name)]:
            parts = full_name.split(".")
            for i in range(len(parts)):
                found.setdefault(".".join(parts[i:]), []).append(Definition(module.relative_to(package), tree, code))
    return found


def _named(body: Sequence[ast.stmt], scope: str) -> Iterator[tuple[str, ast.AST]]:
    for code in body:
        match code:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield f"{scope}.{name}", code
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{scope}.{name}", code
        if isinstance(code, ast.ClassDef):
            yield from _named(code.body, f"{scope}.{code.name}")


@dataclass(frozen=True)
class Place:
    """A place in a module: some of the nodes in a field of `owner`."""

    module: Path
    tree: ast.Module
    owner: ast.AST
    field: str
    start: int
    end: int

    def with_instead(self, nodes: Sequence[ast.AST]) -> str:
        """The source of the module with these nodes replaced."""
        value = getattr(self.owner, self.field)
        changed: Any = nodes[0] if nodes else None
        if isinstance(value, list):
            changed = [*value[: self.start], *nodes, *value[self.end :]] or [ast.Pass()]
        setattr(self.owner, self.field, changed)
        source = ast.unparse(self.tree)
        setattr(self.owner, self.field, value)
        return source


def parse(fault: Fault) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
    """The right and the wrong code, each an expression or statements."""
    try:
        right, wrong = (ast.parse(text, mode="eval").body for text in (fault.right, fault.wrong))
    except SyntaxError:
        return ast.parse(fault.right).body, ast.parse(fault.wrong).body
    return [right], [wrong]


def places(fault: Fault) -> list[Place]:
    """All places that match the fault; there should be one."""
    right, _ = parse(fault)
    code = list(map(ast.dump, right))
    found = {}
    for definition in package_definitions().get(fault.anchor, []):
        for owner in ast.walk(definition.code):
            for field, value in ast.iter_fields(owner):
                nodes = value if isinstance(value, list) else [value]
                for start in range(len(nodes) - len(code) + 1):
                    some = nodes[start : start + len(code)]
                    if list(map(type, some)) == list(map(type, right)) and list(map(ast.dump, some)) == code:
                        place = Place(definition.module, definition.tree, owner, field, start, start + len(code))
                        found[id(owner), field, start] = place
    return list(found.values())


@functools.cache
def package_definitions() -> dict[str, list[Definition]]:
    return definitions(PACKAGE)


def planted(fault: Fault) -> dict[str, str]:
    """The module that a fault changes, with its source."""
    found = places(fault)
    if len(found) != 1:
        raise SystemExit(f"{fault.anchor} must have {fault.right!r} once, not {len(found)} times: {fault.what!r}")
    return {str(found[0].module): found[0].with_instead(parse(fault)[1])}


# The tests that catch faults


@functools.cache
def tests_by_name() -> dict[str, list[Path]]:
    """The files that have a test of a given name."""
    found: dict[str, list[Path]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE):
            found.setdefault(name, []).append(file)
    return found


def files_of(test: str) -> list[Path]:
    """The files that may have a fault's test; there should be one."""
    file, _, name = test.rpartition("::")
    files = tests_by_name().get(name.partition("[")[0], [])
    return [one for one in files if not file or one == TESTS / file]


def node_id(test: str) -> str:
    """pytest's name for a test."""
    files = files_of(test)
    if len(files) != 1:
        raise SystemExit(f"{test} must stand in one file of {TESTS}, not in {len(files)}")
    return f"{files[0]}::{test.rpartition('::')[2]}"


def tests_of(faults: Sequence[Fault]) -> list[tuple[Sequence[str], Sequence[str]]]:
    """The tests of faults in each environment, file by file."""
    found: dict[Any, set[str]] = {}
    for fault in faults:
        found.setdefault((fault.environment, *files_of(fault.test)), set()).add(node_id(fault.test))
    return [(environment, sorted(tests)) for (environment, *_), tests in found.items()]


def run_tests(folder: Path, tests: Sequence[str], options: Sequence[str], environment: Sequence[str]) -> None:
    """Runs tests of the dmljax in a folder, writes pytest's output there, and exits as pytest does."""
    printed = (folder / "printed").open("w")
    os.dup2(printed.fileno(), 1)
    os.dup2(printed.fileno(), 2)
    os.chdir(folder)
    os.environ |= {"PYTHONPATH": str(folder)} | dict(one.split("=", 1) for one in environment)
    sys.path.insert(0, str(folder))
    project = ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(TESTS.parent), "-p", "no:cacheprovider"]
    arguments = [*project, "-x", "-q", "--no-header", *options, *tests]
    sys.exit(pytest.main(arguments, plugins=[WithoutShrinking()]))


class WithoutShrinking:
    """A pytest plugin: one failing example is enough, and shrinking it takes minutes."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # only after pytest, which rewrites hypothesis

        settings.register_profile("faults", phases=[Phase.explicit, Phase.generate], derandomize=True)
        settings.load_profile("faults")


@dataclass(frozen=True)
class Runner:
    """Runs tests in processes that start with JAX imported."""

    context: ForkServerContext
    package: Path  # a compiled copy of dmljax, so that a fault recompiles only its module

    def run(
        self, tests: Sequence[str], *options: str, environment: Sequence[str], **changed: str
    ) -> tuple[int | None, str]:
        """Pytest's exit status, or None if it did not end, and its output."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(self.package, folder / "dmljax")
            for module, source in changed.items():
                (folder / "dmljax" / module).write_text(source)
            process = self.context.Process(target=run_tests, args=(folder, tests, options, environment))
            process.start()
            process.join(SECONDS)
            status = process.exitcode
            process.kill()
            process.join()
            return status, (folder / "printed").read_text()

    def outcome(self, fault: Fault, changed: dict[str, str]) -> str:
        """Runs the fault's test; returns and prints whether the fault is caught, survives, or the test is skipped."""
        start = time.monotonic()
        for options in ((), ("--full",)):  # with the cases that every run tries, or with all
            status, printed = self.run([node_id(fault.test)], *options, environment=fault.environment, **changed)
            if status == pytest.ExitCode.TESTS_FAILED:
                break
        else:
            if status != pytest.ExitCode.OK:  # no test ran, or it did not end, so there is no result
                print(printed)
        is_skipped = status == pytest.ExitCode.OK and " passed" not in printed  # for want of an extra
        outcome = "caught" if status == pytest.ExitCode.TESTS_FAILED else "skipped" if is_skipped else SURVIVES
        seconds = time.monotonic() - start
        print(f"{outcome:8} {fault.what}: {fault.test} ({seconds:.0f} s)", flush=True)
        return outcome

    def passes(self, environment: Sequence[str], tests: Sequence[str]) -> bool:
        """Whether all tests pass without a fault; prints which one fails."""
        status, printed = self.run(tests, environment=environment)
        if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return True
        print(printed, "fails without any fault", sep="\n")
        return False


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="plant only faults whose sentence has one of these words")
    parser.add_argument("--changed", metavar="COMMIT", help="plant only faults in modules or tests changed since")
    parser.add_argument("--at-most", metavar="COUNT", type=int, default=len(FAULTS), help="plant only so many faults")
    given = parser.parse_args(arguments)
    chosen = [fault for fault in FAULTS if any(word in fault.what for word in given.words or [""])]
    random.Random(git("rev-parse", "HEAD")).shuffle(chosen)  # different ones at each commit, but the same in each run
    if given.changed:
        chosen = changed_since(given.changed, chosen)
    if len(chosen) > given.at_most:
        print(f"plants {given.at_most} of {len(chosen)} faults and leaves out {len(chosen) - given.at_most}")
    chosen = chosen[: given.at_most]
    changed = [planted(fault) for fault in chosen]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        options = os.environ.get("PYTEST_ADDOPTS", "")
        os.environ["PYTEST_ADDOPTS"] = f"--compilation-cache={folder}/compiled {options}"  # unless set
        package = shutil.copytree(PACKAGE, Path(folder) / "dmljax")
        compileall.compile_dir(package, quiet=1)
        runner = Runner(context, package)
        if not all([*pool.map(runner.passes, *zip(*tests_of(chosen), strict=True))]):
            return 1
        outcomes = [*pool.map(runner.outcome, chosen, changed)]
    print(f"{outcomes.count('caught')} of {len(chosen)} faults caught, {outcomes.count('skipped')} skipped")
    return int(SURVIVES in outcomes)


def changed_since(commit: str, faults: Sequence[Fault]) -> list[Fault]:
    """The faults in modules or tests that differ from a commit; those in functions that differ come first."""
    files = {TESTS.parent / name for name in git("diff", "--name-only", commit).splitlines()}
    with tempfile.TemporaryDirectory() as folder:
        git("archive", f"--output={folder}/dmljax.zip", commit, "dmljax")
        shutil.unpack_archive(f"{folder}/dmljax.zip", folder)
        old = definitions(Path(folder) / "dmljax")

    def code(named: dict[str, list[Definition]], anchor: str) -> set[str]:
        return {ast.dump(definition.code) for definition in named.get(anchor, [])}

    touched = [one for one in faults if files & {PACKAGE / places(one)[0].module, *files_of(one.test)}]
    return sorted(touched, key=lambda one: code(package_definitions(), one.anchor) <= code(old, one.anchor))


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
