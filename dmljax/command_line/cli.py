"""The command line: `dmljax run`, `check`, `estimate`, `compile`, `generate`, `conformance` and others.

Each command has a module with its options and its `run`. JAX takes seconds to import, so these modules import it, and
what needs it, only in functions.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import dmljax
from dmljax.command_line import cache, check, compile, estimate, generate, run
from dmljax.command_line.operators import conformance, explain, ops
from dmljax.command_line.terminal import (
    INTERRUPTED,
    MODEL_SUFFIXES,
    REFUSED,
    YELLOW,
    color_text,
    quiet,
    report_error,
    run_apart,
    say_error,
    show_progress,
)


def main(arguments: Sequence[str] | None = None, *, keeps_programs: bool | None = None) -> int:
    """Runs a command, and returns its exit status.

    Without arguments, runs the command of this process, and keeps the programs that it compiles.

    The status is 0 for success, 1 if `check` or `estimate` has findings, 2 for an error, and 130 after an interrupt.
    """
    if sys.stderr is None:  # closed, as by 2>&-; messages are dropped
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    if sys.stdout is None:
        return say_error("the standard output is closed")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a model's names and bytes may not be valid text
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdout else "backslashreplace")
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # set by the shell that completes a line
        import argcomplete

        argcomplete.autocomplete(parser)
    try:
        options = parser.parse_args(arguments)
        if options.command is None:
            parser.print_help()
            return REFUSED
        if problem := options.find_problem(options):
            raise SystemExit(say_error(problem, f"`dmljax {options.command} --help` lists the options"))
        keeps = (arguments is None if keeps_programs is None else keeps_programs) and not options.no_cache
        is_apart = arguments is None and options.command in COMPILING  # not in a process that calls this function
        status = run_apart(sys.argv[1:]) if is_apart else _run_command(options, keeps)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader, such as head, has stopped
            return 0
        return say_error(f"cannot write to the standard output: {error.strerror}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run_command(options: argparse.Namespace, keeps_programs: bool) -> int:
    """Runs the command and reports its errors; `main` reports errors of writing the output."""
    try:
        with show_progress(is_quiet=options.quiet, is_verbose=options.verbose, as_json=options.json):
            if options.command not in WITHOUT_JAX:
                with quiet():
                    import_module("dmljax.command_line.models")  # imports JAX
                if keeps_programs:
                    _open_cache()
            status: int = COMMANDS[options.command].run(options)
    except BrokenPipeError:
        raise
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        if isinstance(error, OSError) and not isinstance(error, dmljax.DmlError) and error.filename is None:
            raise
        return report_error(error, as_json=options.json)
    return status


def _open_cache() -> None:
    from dmljax.foundation.programs.compiling import open_cache

    open_cache(lambda line: print(f"{color_text('warning', YELLOW, sys.stderr)}: {line}", file=sys.stderr))


DESCRIPTION = """The operators of DirectML on XLA: run, check or estimate models, and look up operators."""


class _CommandParser(argparse.ArgumentParser):
    """A parser that prints an error on a single line, followed by the nearest option or command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        args = sys.argv[1:] if args is None else [*args]
        if self._subparsers and args and not args[0].startswith("-") and args[0] not in COMMANDS:
            self.error(f"unrecognized command: {args[0]}", _tip_for_command(args[0], args))
        known, others = super().parse_known_args(args, namespace)
        if others:
            option, known_options = others[0].partition("=")[0], self._option_string_actions
            elsewhere = (self.get_default("elsewhere") or {}).get(f"--{option.strip('-').replace('-', '_')}")
            longer = [other for other in known_options if other.startswith(option)]
            near = longer or get_close_matches(option, known_options, n=1, cutoff=0.7)
            tip = elsewhere or (f"did you mean {near[0]}?" if near else None)
            self.error(f"unrecognized arguments: {' '.join(others)}", tip)
        return known, others

    def error(self, message: str, tip: str | None = None) -> NoReturn:
        raise SystemExit(say_error(message, tip or f"`{self.prog} --help` lists the options"))


def _tip_for_command(command: str, arguments: Sequence[str]) -> str:
    if command.lower().endswith(MODEL_SUFFIXES):
        return f"`dmljax run {command}` runs a model"
    if command in ("help", "version"):
        return f"did you mean --{command}?"
    functions = [argument for argument in arguments if _is_operator(argument)]
    if functions:
        return f"`dmljax explain {functions[0]}` explains the function"
    near = get_close_matches(command, COMMANDS, n=1)
    return f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"


def _is_operator(name: str) -> bool:
    """Whether a word is the name of an operator's function, without importing JAX."""
    from dmljax.functions import ALIASES, HOMES

    return HOMES.get(ALIASES.get(name, name), "").startswith("dmljax.ops.")


class _Version(argparse.Action):
    """Prints the versions from the packages' metadata, without importing JAX."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version  # slower to import than the rest of this module

        print(f"dmljax {dmljax.__version__}, jax {version('jax')}")
        parser.exit()


COMMANDS = {
    "run": run,
    "check": check,
    "estimate": estimate,
    "compile": compile,
    "generate": generate,
    "ops": ops,
    "explain": explain,
    "conformance": conformance,
    "cache": cache,
}
WITHOUT_JAX = ("cache",)
COMPILING = ("estimate", "compile")  # the commands that need no platform, but other platforms' compilers


def _parser() -> argparse.ArgumentParser:
    parser = _CommandParser("dmljax", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the versions of dmljax and JAX")
    parser.set_defaults(command=None, find_problem=lambda options: None)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_parser(subparsers)
    return parser
