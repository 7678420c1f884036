"""Writes errors and colors to a terminal, and defines the exit statuses of commands."""

import os
import sys
from typing import Any

FINDINGS, REFUSED, INTERRUPTED = 1, 2, 130  # exit statuses; a shell command exits with 130 after Ctrl-C
RED, GREEN, YELLOW = "31", "32", "33"  # codes of the ANSI escape sequence for colors


def say_error(message: str, tip: str | None = None) -> int:
    """Prints an error and a tip on a line each, and returns the exit status."""
    print(f"error: {message}", *([f"tip: {tip}"] if tip else []), sep="\n", file=sys.stderr)
    return REFUSED


def colored(text: str, color: str, file: Any = None) -> str:
    """Colors the text if it goes to a terminal; https://no-color.org says how users switch that off."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not (file or sys.stdout).isatty()
    return text if is_plain else f"\033[{color}m{text}\033[0m"
