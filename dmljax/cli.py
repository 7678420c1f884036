"""The command line: `dmljax run`, `check`, `ops` and `explain`."""

import argparse
import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

import dmljax
from dmljax import DmlError, FeatureLevel
from dmljax.checks import UINT_MAX, integer_in, parse_enum
from dmljax.describe import (
    OPERATORS_HEAD,
    coverage,
    explained,
    explanation,
    find_operator,
    markdown_table,
    operator_rows,
    summaries,
    table,
)
from dmljax.dxdispatch.execution import Execution, Repetition, trace
from dmljax.dxdispatch.model import Finding, InvalidModel, Model, UnreadableModel
from dmljax.dxdispatch.printing import result_json, result_pieces
from dmljax.dxdispatch.reader import load
from dmljax.errors import InvalidDesc, Problem
from dmljax.text import escape_controls, json_text, one_line, reason_of
from dmljax.types import LATEST

FINDINGS, REFUSED, INTERRUPTED = 1, 2, 130  # exit statuses

PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "rocm", "tpu": "tpu"}  # and what XLA lowers for


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit status: 0, 1 where `check` found something, 2 where something is wrong."""
    if sys.stderr is None:  # closed, as by 2>&-: to whoever closed it, the status tells enough
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the process lives
    if sys.stdout is None:
        print("dmljax: the standard output must be open; got it closed", file=sys.stderr)
        return REFUSED
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names and characters out of a model go through as they are
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdout else "backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        status = _status(options)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # whoever reads the output has read enough
            print(f"dmljax: the standard output must take what is printed; got {reason_of(error)}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _status(options: argparse.Namespace) -> int:
    """The exit status of a command; raised is only what is about no file, but the output."""
    try:
        status: int = options.command(options)
    except BrokenPipeError:
        raise
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        if isinstance(error, OSError) and error.filename is None:
            raise
        return _refused(error, as_json=options.json)
    return status


def _refused(error: Exception, *, as_json: bool) -> int:
    findings = error.findings if isinstance(error, InvalidModel) else ()
    message = str(error)
    if not isinstance(error, DmlError):
        message = f"{type(error).__name__}: {message} (--debug shows where)"
    if as_json:
        print(json.dumps({"error": message, "findings": [finding.to_json() for finding in findings]}))
    print(f"dmljax: {message}" if not findings else message, file=sys.stderr)
    return REFUSED


# The commands


def run(options: argparse.Namespace) -> int:
    """Runs a model, or writes its operators' modules."""
    if options.x64:
        jax.config.update("jax_enable_x64", True)
    model = load(options.model, input_path=options.input_path, feature_level=options.dml_feature_level)
    _warn(model.warnings)
    device = _device(None if options.emit else options.platform)
    if options.emit:
        return _emit(model, options)
    execution = Execution(model, output_path=options.output_path, device=device)
    say: Callable[[str], None] = (lambda text: None) if options.json else print
    say(f"Running on '{device.device_kind}'")
    compiled = {}
    for name in model.dispatchables:
        begin = time.perf_counter()
        execution.compile(name)
        compiled[name] = (time.perf_counter() - begin) * 1e3
        if options.timing_verbosity >= 1:
            say(f"Initialize '{escape_controls(name)}': {compiled[name]:.4f} ms")
    repetition = Repetition(
        iterations=2**32 - 1 if options.milliseconds_to_run is not None else options.dispatch_iterations,
        runs=options.dispatch_repeat,
        milliseconds=options.milliseconds_to_run,
        interval_in_milliseconds=options.dispatch_interval,
    )
    results = []
    for index, command in enumerate(model.document.root["commands"]):
        if options.print_commands:
            say(f"[StartCmd][{index:04}]\t: {json_text(command)}")
        result = execution.result(index, repetition)
        if options.json:
            results.append(result_json(result, options.warmup_samples))
        else:
            sys.stdout.writelines(
                result_pieces(result, device.platform, options.timing_verbosity, options.warmup_samples)
            )
            print(flush=True)
        if options.print_commands:
            say(f"[EndCmd][{index:04}]\t: hr=0x00000000 \n")
    if options.json:
        print(json.dumps({"device": device.device_kind, "compile_milliseconds": compiled, "results": results}))
    return 0


def _device(platform: str | None) -> jax.Device:
    if platform:
        jax.config.update("jax_platforms", platform)
    try:
        return jax.local_devices()[0]
    except Exception as error:  # JAX asserts that it has found one
        reason = one_line(_REMEDY.sub("", str(error))) or "JAX gives no reason"
        if platform:
            raise InvalidDesc(
                Problem((), "--platform must be one that JAX has here", f"{platform} ({reason})")
            ) from None
        raise InvalidDesc(Problem((), f"JAX must have a platform ({reason})")) from None


_REMEDY = re.compile(r" \((?:you may need|set JAX_PLATFORMS).*", re.DOTALL)  # which --platform has made useless


def _emit(model: Model, options: argparse.Namespace) -> int:
    platform = PLATFORMS[options.platform] if options.platform else None
    texts = {}
    for name, dispatchable in model.dispatchables.items():
        with model.part(*model.desc_place(name)):
            traced = trace(dispatchable.desc)
        if options.emit == "jaxpr":
            texts[name] = str(traced.jaxpr)
            continue
        with jax.disable_jit(False):
            lowered = traced.lower(lowering_platforms=(platform,)) if platform else traced.lower()
        texts[name] = lowered.as_text(options.emit)
    if options.json:
        print(json.dumps(texts))
    else:
        for name, text in texts.items():
            print(f"// {escape_controls(name)}: {model.dispatchables[name].desc.type}\n{text.rstrip()}\n")
    return 0


def check(options: argparse.Namespace) -> int:
    """Lists all that is wrong with a model."""
    findings: Sequence[Finding] = ()
    try:
        model = load(options.model, input_path=options.input_path, feature_level=options.dml_feature_level)
        warnings = model.warnings
    except UnreadableModel:
        raise
    except InvalidModel as error:
        findings, warnings = error.findings, error.warnings
    if options.json:
        lists = {"findings": findings, "warnings": warnings}
        print(json.dumps({key: [one.to_json() for one in listed] for key, listed in lists.items()}))
    else:
        _warn(warnings, file=sys.stdout)
        for finding in findings:
            print(finding)
        counted = _counted(len(findings), "finding")
        print(f"{escape_controls(str(options.model))}: {counted} at {options.dml_feature_level}")
    return FINDINGS if findings else 0


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _warn(warnings: Sequence[Finding], file: Any = None) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=file or sys.stderr)


def ops(options: argparse.Namespace) -> int:
    """Lists the operators."""
    if options.json:
        print(json.dumps(summaries(), indent=1))
        return 0
    show = markdown_table if options.markdown else table
    print("\n".join(show(operator_rows(), OPERATORS_HEAD)))
    print(f"\n{coverage()}")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Explains an operator."""
    operator = find_operator(options.operator)
    _device(None)  # its examples are arrays
    width = min(shutil.get_terminal_size().columns, 120)
    print(json.dumps(explanation(operator), indent=1) if options.json else explained(operator, width))
    return 0


# What they are called with

DESCRIPTION = """The operators of DirectML on XLA: run DxDispatch models, check them, and look operators up."""

RUN_EXAMPLES = """examples:
  dmljax run notebooks/models/top1_routing.json
  dmljax run model.json --output_path results        # what the model writes lands there, and nowhere else
  dmljax run model.json -i 100 -w 10 -v 1            # times of 100 iterations, the first 10 apart
  dmljax run model.json --emit stablehlo             # the module of each operator, instead of running them
  dmljax run model.json --emit hlo --platform tpu    # for a platform that need not be here
  dmljax run model.json --json | jq '.results'

8-bit integers print as characters, as DxDispatch prints them; --json has their numbers."""

CHECK_EXAMPLES = """examples:
  dmljax check model.json                            # every rule that a device of the newest level would mind
  dmljax check model.json --dml_feature_level 3_0    # or one of an older level

The exit status is 0 if nothing was found, 1 if something was, and 2 if the file is no model."""

OPS_EXAMPLES = """examples:
  dmljax ops
  dmljax ops --markdown > operators.md
  dmljax ops --json | jq -r '.[].operator'"""

EXPLAIN_EXAMPLES = """examples:
  dmljax explain one_hot
  dmljax explain DML_OPERATOR_GATHER_ND1 --json"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("dmljax", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dmljax {dmljax.__version__}, jax {jax.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(function: Callable[[argparse.Namespace], int], examples: str) -> argparse.ArgumentParser:
        adding = commands.add_parser(
            function.__name__,
            help=(function.__doc__ or "").rstrip("."),
            description=function.__doc__,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        adding.set_defaults(command=function)
        adding.add_argument("--json", action="store_true", help="print JSON, for a program")
        adding.add_argument("--debug", action="store_true", help="show where an error comes from")
        return adding

    running = command(run, RUN_EXAMPLES)
    _add_model(running)
    running.add_argument("--output_path", type=Path, metavar="FOLDER", help="where the model may write files")
    running.add_argument("--print_commands", action="store_true", help="print each command before and after it runs")
    timing = running.add_argument_group("timing")
    timing.add_argument(
        "-i", "--dispatch_iterations", type=_count, default=1, metavar="N", help="run each dispatch so often (1)"
    )
    timing.add_argument(
        "-r", "--dispatch_repeat", type=_count, default=1, metavar="N", help="runs within each iteration (1)"
    )
    timing.add_argument(
        "-t", "--milliseconds_to_run", type=_whole, metavar="MS", help="run each dispatch for that long instead of -i"
    )
    timing.add_argument(
        "-I", "--dispatch_interval", type=_whole, default=0, metavar="MS", help="the least time between iterations (0)"
    )
    timing.add_argument(
        "-w", "--warmup_samples", type=_whole, default=1, metavar="N", help="iterations that count as cold, at most (1)"
    )
    timing.add_argument(
        "-v",
        "--timing_verbosity",
        type=int,
        choices=(0, 1, 2),
        default=0,
        help="0: the hot median; 1: compilation, cold and hot samples too; 2: every iteration (0)",
    )
    xla = running.add_argument_group("XLA")
    xla.add_argument("--platform", choices=PLATFORMS, help="where to run, or what to emit for (what JAX chooses)")
    xla.add_argument(
        "--emit", choices=("stablehlo", "hlo", "jaxpr"), help="print each operator's module and do not run"
    )
    xla.add_argument("--x64", action="store_true", help="switch 64-bit types on, for a model that has them")

    _add_model(command(check, CHECK_EXAMPLES))

    listing = command(ops, OPS_EXAMPLES)
    listing.add_argument("--markdown", action="store_true", help="print a table of Markdown")

    explaining = command(explain, EXPLAIN_EXAMPLES)
    explaining.add_argument("operator", help="its name, such as one_hot or DML_OPERATOR_ONE_HOT")
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a DxDispatch model, a JSON file")
    parser.add_argument(
        "--input_path", type=Path, metavar="FOLDER", help="where the files lie that the model names (beside it)"
    )
    parser.add_argument(
        "--dml_feature_level",
        type=_level,
        default=LATEST,
        metavar="LEVEL",
        help="what a device promises: 3_0, 6.2 (6_4)",
    )


def _level(text: str) -> FeatureLevel:
    try:
        level: FeatureLevel = parse_enum(FeatureLevel, (), text.replace(".", "_"))
    except DmlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return level


def _whole(text: str, lowest: int = 0) -> int:
    try:
        return integer_in((), int(text), lowest, UINT_MAX)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number in [{lowest}, {UINT_MAX}]; got {text!r}") from None


def _count(text: str) -> int:
    return _whole(text, 1)
