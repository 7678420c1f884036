"""Writes errors and colors to a terminal, and defines the exit statuses of commands."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from dmljax.text import one_line

FINDINGS, REFUSED, INTERRUPTED = 1, 2, 130  # exit statuses; a shell command exits with 130 after Ctrl-C
RED, GREEN, YELLOW = "31", "32", "33"  # codes of the ANSI escape sequence for colors


def say_error(message: str, tip: str | None = None) -> int:
    """Prints an error and a tip on a line each, and returns the exit status."""
    print(f"error: {message}", *([f"tip: {tip}"] if tip else []), sep="\n", file=sys.stderr)
    return REFUSED


def report_error(error: Exception, *, as_json: bool) -> int:
    """Prints an error, for programs also as JSON, and returns the exit status."""
    from dmljax.dxdispatch.model import InvalidModel, UnopenedModel
    from dmljax.errors import DmlError, MissingFile

    findings = error.findings if isinstance(error, InvalidModel) else ()
    text = str(error) if isinstance(error, DmlError) else f"{type(error).__name__}: {error}"
    message, tip = text, None
    if not isinstance(error, DmlError):
        tip = "--debug prints the traceback"
    elif isinstance(error, MissingFile) and not error.problems[0].path and not findings:
        message = f"{one_line(error.filename)}: no such file"
    elif len(error.problems) == 1 and (remedy := error.problems[0].remedy):
        message, tip = text.removesuffix(f" ({remedy})"), remedy
    elif meant := _MEANT.search(text):
        message, tip = text[: meant.start()], meant[1]
    if as_json:
        print(json.dumps({"error": text, "findings": [finding.to_json() for finding in findings]}))
    if findings and not isinstance(error, UnopenedModel):
        print(text, file=sys.stderr)
        return REFUSED
    return say_error(message, tip)


_MEANT = re.compile(r", (did you mean .*\?)$")


@contextmanager
def quiet() -> Iterator[None]:
    """Drops what libraries write to the standard error, as JAX's plugins do on machines without their chips."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


PATIENCE = 2.0  # seconds before a user wants to know
SIGN_OF_LIFE = 10.0  # seconds between signs that it goes on


@contextmanager
def announce(text: str) -> Iterator[None]:
    """Says what takes longer than users wait, and then how long it has taken, if the standard error is a terminal."""
    done = Event()

    def print_elapsed() -> None:
        start = time.monotonic()
        if not done.wait(PATIENCE):
            print(text, file=sys.stderr, flush=True)
        while not done.wait(SIGN_OF_LIFE):
            print(f"{text}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)

    teller = Thread(target=print_elapsed, daemon=True)
    if sys.stderr.isatty():
        teller.start()
    try:
        yield
    finally:
        done.set()
        if teller.is_alive():
            teller.join()


_PROGRAM = """
import os, sys
sys.path[:] = {path!r}
sys.stderr = os.fdopen({stream}, "w", 1)
from dmljax.command_line.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run_apart(arguments: Sequence[str]) -> int:
    """Runs a command in a process of its own, where compilers may log, and end the process."""
    with tempfile.TemporaryFile() as log, open(os.dup(2), "wb") as stream:
        program = _PROGRAM.format(path=sys.path, stream=stream.fileno())
        command = [sys.executable, "-c", program, *arguments]
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}  # or else JAX would look for the chips
        status = subprocess.call(command, env=environment, stderr=log, pass_fds=[stream.fileno()])  # noqa: S603
        if status >= 0:
            return status
        log.seek(0)
        words = log.read().decode(errors="replace")
    fatal = re.search(r"^F\d{4} .*?\] (.*)", words, re.MULTILINE)
    return say_error(f"XLA's compiler stopped: {fatal[1].strip() if fatal else f'signal {-status}'}")


def color_text(text: str, color: str, file: Any = None) -> str:
    """Colors the text if it goes to a terminal; https://no-color.org says how users switch that off."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not (file or sys.stdout).isatty()
    return text if is_plain else f"\033[{color}m{text}\033[0m"


def terminal_width() -> int | None:
    """The width of the terminal, or None where the output goes to a file or another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def count_text(count: int, noun: str) -> str:
    """A count with its noun, such as `no findings` or `1 finding`."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
