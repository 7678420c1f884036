"""Compares what other people's packages print on ONNX Runtime and on dmljax.

Run `python tests/tools/compare_packages.py [NAME...]` in an environment with the packages that it names; it installs
nothing. It prints the table in `notebooks/for-programs.md`.

Each program `packages/*/use_NAME.py` uses a package as its users do, with inputs, and where the package has none a
model, that it makes in its working folder. Its docstring tells what it does. The comment at its start, `# /// script`,
names its packages as Python's inline metadata does: first the one that the table lists. Under `[tool.dmljax]`, a
`tolerance` replaces 1e-4, and a `remark` says why results differ.
"""

import math
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from ast import get_docstring, parse
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from dmljax.command_line.describe import markdown_table

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(Path(__file__).with_name("packages").glob("*/use_*.py"))
HEAD = ("package", "what it ran", "result")
TOLERANCE = 1e-4  # of numbers with a point, relative above 1 and absolute below
SECONDS = 900
_METADATA = re.compile(r"^# /// script\n((?:#.*\n)+?)# ///$", re.MULTILINE)
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*(?:e[-+]?\d+)?|\.?\d+e[-+]?\d+|nan\b|inf\b)")


class Program(NamedTuple):
    """A program that uses packages."""

    path: Path
    purpose: str
    packages: Sequence[str]
    tolerance: float
    remark: str

    @property
    def name(self) -> str:
        return self.path.stem.removeprefix("use_")


class Printed(NamedTuple):
    """What a program printed, and the last line of its error if it failed."""

    text: str
    error: str = ""


Runner = Callable[[Program, Sequence[str]], Printed]  # with the options of Python before the program


def read(path: Path) -> Program:
    """Reads what a program says about itself."""
    text = path.read_text()
    block = _METADATA.search(text)
    assert block, f"{path} has no inline metadata"
    metadata = tomllib.loads(re.sub(r"^# ?", "", block[1], flags=re.MULTILINE))
    options = {"tolerance": TOLERANCE, "remark": ""} | metadata.get("tool", {}).get("dmljax", {})
    purpose = " ".join((get_docstring(parse(text)) or "").split())
    return Program(path, purpose.removesuffix("."), metadata["dependencies"], **options)


def absent(program: Program) -> list[str]:
    """The packages of a program that are not installed here."""
    return [package for package in program.packages if version_of(package) is None]


def version_of(package: str) -> str | None:
    """The version of an installed package, whose name may have extras."""
    try:
        return version(package.partition("[")[0])
    except PackageNotFoundError:
        return None


def run(program: Program, options: Sequence[str]) -> Printed:
    """Runs a program in an empty folder, without the network's help."""
    offline = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, *options, str(program.path)],
            cwd=folder,
            env=os.environ | offline,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    if ended.returncode == 0:
        return Printed(ended.stdout)
    lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
    return Printed(ended.stdout, next((line for line in reversed(lines) if line[:1] != " "), lines[-1]))


def compare(program: Program, run: Runner = run) -> str:
    """The result of a program: `same`, or what differs."""
    theirs = run(program, [])
    if theirs.error:
        return f"fails on ONNX Runtime: {theirs.error}"
    ours = run(program, ["-m", "dmljax.run"])
    if ours.error:
        _, refusal, reason = ours.error.partition(" : NOT_IMPLEMENTED : ")
        return f"refused: {reason.partition(' (')[0]}" if refusal else f"fails: {ours.error}"
    result = difference(ours.text, theirs.text, program.tolerance)
    return f"{result}; {program.remark}" if program.remark and result != "same" else result


def difference(ours: str, theirs: str, tolerance: float) -> str:
    """How two texts differ; numbers with a point may differ by a tolerance."""
    if not theirs.strip():
        return "prints nothing"
    (our_words, our_numbers), (their_words, their_numbers) = split(ours), split(theirs)
    if our_words != their_words:
        return f"differs: {first_difference(ours, theirs)}"
    errors = [distance(one, other) for one, other in zip(our_numbers, their_numbers, strict=True)]
    largest = max(errors, default=0.0)
    if largest > tolerance:
        worst = errors.index(largest)
        return f"differs: {our_numbers[worst]:g}, on ONNX Runtime {their_numbers[worst]:g}"
    return f"same, numbers to {largest:.0e}" if largest else "same"


def split(text: str) -> tuple[list[str], list[float]]:
    """The words between numbers with a point, and the numbers; how an array is spaced depends on them."""
    return [" ".join(part.split()) for part in _FLOAT.split(text)], [float(each) for each in _FLOAT.findall(text)]


def distance(one: float, other: float) -> float:
    """The difference of two numbers, relative to the second if that is above 1."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    return abs(one - other) / max(1.0, abs(other)) if math.isfinite(one) and math.isfinite(other) else math.inf


def first_difference(ours: str, theirs: str) -> str:
    """The first line that differs, on both sides."""
    for one, other in zip(ours.splitlines(), theirs.splitlines(), strict=False):
        if split(one)[0] != split(other)[0]:
            return f"`{one.strip()[:60]}`, on ONNX Runtime `{other.strip()[:60]}`"
    return f"{len(ours.splitlines())} lines, on ONNX Runtime {len(theirs.splitlines())}"


def row(program: Program, run: Runner = run) -> tuple[str, str, str]:
    """A program's row in the table."""
    missing = absent(program)
    result = f"not installed: {', '.join(missing)}" if missing else compare(program, run)
    package = program.packages[0].partition("[")[0]
    return f"{package} {version_of(package) or ''}".strip(), program.purpose, result.replace("|", r"\|")


def main(names: Sequence[str]) -> Iterator[str]:
    """Runs the programs of these names, or all, and makes the lines of the table."""
    programs = [read(path) for path in PROGRAMS]
    unknown = set(names) - {program.name for program in programs}
    if unknown:
        sys.exit(f"no program {', '.join(sorted(unknown))}; there are {', '.join(each.name for each in programs)}")
    rows = []
    for program in programs:
        if not names or program.name in names:
            rows.append(row(program))
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    needed = sorted({package for path in PROGRAMS for package in absent(read(path))})
    if needed:
        print(f"for all programs: pip install {' '.join(needed)}", file=sys.stderr)
    yield from markdown_table(sorted(rows), HEAD)


if __name__ == "__main__":
    print(*main(sys.argv[1:]), sep="\n")
