"""Writes errors, colors and signs of life to a terminal, and defines the exit statuses of commands."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from dmljax.foundation import interrupts
from dmljax.foundation.programs.progress import ProgressLine, can_redraw, listen, report, show_line
from dmljax.text import one_line

FINDINGS, REFUSED, INTERRUPTED = 1, 2, 130  # exit statuses; a shell command exits with 130 after Ctrl-C
MODEL_SUFFIXES = (".json", ".onnx", ".bin", ".stablehlo", ".shlo")  # of the files that commands take
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


PATIENCE = 0.2  # seconds of a command that need no sign of life
PATIENCE_OF_FILES = 10.0  # where a line cannot be redrawn


class _Guarded:
    """A stream that clears the line of progress before anything else is written."""

    def __init__(self, stream: Any, line: ProgressLine) -> None:
        self._stream, self.line = stream, line

    def write(self, text: str) -> Any:
        with self.line.pause():
            if text and self._stream.isatty():
                self.line.is_at_start = text.endswith("\n")
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def show_progress(*, is_quiet: bool = False, is_verbose: bool = False, as_json: bool = False) -> Iterator[None]:
    """Shows on the standard error how far long work is: a terminal's line is redrawn; files get lines after a while."""
    is_terminal = sys.stderr.isatty()
    if is_quiet or (as_json and not is_terminal and not is_verbose):
        yield
        return
    with _error_stream() as stream:
        is_redrawn = can_redraw(stream) and not is_verbose
        patience = 0.0 if is_verbose else PATIENCE if is_redrawn else PATIENCE_OF_FILES
        line = ProgressLine(stream, patience=patience, is_redrawn=is_redrawn)
        with contextlib.ExitStack() as stack:
            if is_terminal:
                out, err = (_Guarded(stream, line) for stream in (sys.stdout, sys.stderr))
                stack.enter_context(contextlib.redirect_stdout(out))
                stack.enter_context(contextlib.redirect_stderr(err))
            stack.enter_context(interrupts.call_if_interrupted(line.end))
            stack.enter_context(show_line(line))
            stack.enter_context(listen(line))
            report("starting")
            yield


@contextmanager
def pause_progress() -> Iterator[None]:
    """Leaves a terminal's line to the user, who types."""
    line = getattr(sys.stderr, "line", None)
    if isinstance(line, ProgressLine) and sys.stdin.isatty():
        with line.pause():
            line.is_at_start = False
        yield
        line.is_at_start = True
    else:
        yield


@contextmanager
def _error_stream() -> Iterator[Any]:
    """The standard error, as a copy that `quiet` does not redirect."""
    try:
        descriptor = os.dup(sys.stderr.fileno())
    except OSError:  # not of a file
        yield sys.stderr
    else:
        stream = open(descriptor, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115  # closed below
        try:
            yield stream
        finally:
            with contextlib.suppress(OSError):  # nobody reads what is left
                stream.close()


_PROGRAM = """
import os, sys
sys.path[:] = {path!r}
sys.stderr = os.fdopen({stream}, "w", 1)
from dmljax.foundation import interrupts
interrupts.install(is_silent=True)
from dmljax.command_line.cli import main
interrupts.leave(main(sys.argv[1:], keeps_programs=True))
"""


def run_apart(arguments: Sequence[str]) -> int:
    """Runs a command in a process of its own, where compilers may log, and end the process."""
    with tempfile.TemporaryFile() as log, open(os.dup(2), "wb") as stream:
        program = _PROGRAM.format(path=sys.path, stream=stream.fileno())
        command = [sys.executable, "-c", program, *arguments]
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}  # or else JAX would look for the chips
        process = subprocess.Popen(command, env=environment, stderr=log, pass_fds=[stream.fileno()])  # noqa: S603
        with interrupts.call_if_interrupted(partial(_end_process, process)):
            status = process.wait()
        if number := interrupts.ending_signal():
            return 128 + number
        if status >= 0:
            return status
        log.seek(0)
        words = log.read().decode(errors="replace")
    fatal = re.search(r"^F\d{4} .*?\] (.*)", words, re.MULTILINE)
    return say_error(f"XLA's compiler stopped: {fatal[1].strip() if fatal else f'signal {-status}'}")


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process, and waits for it while there is time."""
    process.terminate()
    for _ in range(30):
        if process.poll() is not None:
            return
        time.sleep(0.01)
    process.kill()
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)  # the line that it drew


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
