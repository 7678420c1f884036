"""The command line: `dmljax run`, `check`, `estimate`, `ops` and `explain`.

The docstrings of the command functions are also their help texts.
"""

import argparse
import json
import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import jax

import dmljax
from dmljax import DmlError
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
from dmljax.directml import FeatureLevel
from dmljax.dxdispatch.execution import Dispatched, Execution, Repetition, trace
from dmljax.dxdispatch.fusion import fuse
from dmljax.dxdispatch.model import DispatchModel, Finding, InvalidModel, UnreadableModel
from dmljax.dxdispatch.printing import result_json, result_pieces, total_milliseconds
from dmljax.dxdispatch.reader import load
from dmljax.errors import InvalidDesc, Problem
from dmljax.estimation import table as estimate_table
from dmljax.estimation.targets import Place, place_of
from dmljax.text import escape_controls, json_text, one_line, reason_of
from dmljax.types import LATEST

FINDINGS, REFUSED, INTERRUPTED = 1, 2, 130  # exit statuses; 130 is that of a shell command after Ctrl-C

# The values of --platform, each with the name that JAX's lowering has for it.
PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "rocm", "tpu": "tpu"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit status.

    The status is 0 for success, 1 if `check` has findings, 2 for an error, and 130 after an interrupt.
    """
    if sys.stderr is None:  # closed, as by 2>&-; messages are dropped
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    if sys.stdout is None:
        print("dmljax: the standard output must be open; got it closed", file=sys.stderr)
        return REFUSED
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names and bytes of a model may be no valid text
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdout else "backslashreplace")
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return REFUSED
    try:
        status = _run_command(options)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # a broken pipe: the reader, such as head, has stopped
            print(f"dmljax: the standard output must be writable; got {reason_of(error)}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run_command(options: argparse.Namespace) -> int:
    """Runs the command and reports its errors, except those of writing the output, which `main` reports."""
    try:
        status: int = options.command(options)
    except BrokenPipeError:
        raise
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        if isinstance(error, OSError) and not isinstance(error, DmlError) and error.filename is None:
            raise
        return _report_error(error, as_json=options.json)
    return status


def _report_error(error: Exception, *, as_json: bool) -> int:
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
    """Runs DxDispatch models and ONNX models, or prints a model's operators as StableHLO, HLO or jaxprs."""
    if options.x64:
        jax.config.update("jax_enable_x64", True)
    for path in options.models:
        if _is_onnx(path):
            _run_onnx(path, options)
            continue
        model = _load(path, options)
        _warn(model.warnings)
        if len(options.models) > 1 and not options.json:
            print(f"{escape_controls(path)}:")
        _run_model(model, options)
    return 0


def _load(path: str, options: argparse.Namespace) -> DispatchModel:
    return load(
        sys.stdin.buffer if path == "-" else path,
        input_path=options.input_path,
        feature_level=options.dml_feature_level,
        free_dimension_name_overrides=dict(options.onnx_free_dim_name_override),
        free_dimension_denotation_overrides=dict(options.onnx_free_dim_denotation_override),
        binding_shapes=dict(options.binding_shape),
    )


def _is_onnx(path: str) -> bool:
    return path.lower().endswith(".onnx")


def _run_onnx(path: str, options: argparse.Namespace) -> None:
    # Imported here: the package onnx is an extra.
    from dmljax.onnx import trial

    if options.emit or options.fuse:
        given = "--emit" if options.emit else "--fuse"
        raise InvalidDesc(Problem((), f"{given} must be for DxDispatch models alone", escape_controls(path)))
    device = _device(options.platform)
    begin = time.perf_counter()
    model = trial.load(path)
    loaded = time.perf_counter() - begin
    inputs = trial.make_inputs(
        model,
        trial.files_by_name(options.input),
        _shapes_of_inputs(model, options) | dict(options.shape),
        dict(options.onnx_free_dim_name_override),
        dict(options.onnx_free_dim_denotation_override),
    )
    own = trial.try_model(model, inputs)
    other = trial.try_onnxruntime(path, inputs) if options.compare else None
    differences = {
        name: trial.greatest_difference(result, other.results[name]) for name, result in own.results.items() if other
    }
    if options.json:
        outputs = {
            name: {"type": jax.typeof(one).str_short(), "values": one.tolist()} for name, one in own.results.items()
        }
        times = {"load": loaded, "compile": own.compilation, "call": own.median}
        compared = {"onnxruntime_call": other.median, "differences": differences} if other else {}
        print(json.dumps({"device": device.device_kind, "outputs": outputs, "seconds": times, **compared}))
        return
    print(f"Running on '{device.device_kind}'")
    print(f"{escape_controls(path)}: {model}")
    print(f"{loaded:.2f} s to load, {own.compilation:.2f} s to compile, {own.median * 1e3:.3f} ms for a call")
    for name, result in own.results.items():
        print(f"{escape_controls(name)}: {trial.shown(result)}")
    if other:
        print(f"onnxruntime takes {other.median * 1e3:.3f} ms, and differs by at most:")
        for name, difference in differences.items():
            print(f"{escape_controls(name)}: {difference:.3g}")


def _shapes_of_inputs(model: Any, options: argparse.Namespace) -> dict[str, Sequence[int]]:
    """The shapes that `--binding_shape` gives, without those of outputs, which the model computes."""
    outputs = {one.name for one in model.outputs}
    return {name: shape for name, shape in options.binding_shape if name not in outputs}


def _run_model(model: DispatchModel, options: argparse.Namespace) -> None:
    device = _device(None if options.emit else options.platform)
    if options.fuse:
        is_repeated = options.milliseconds_to_run is not None
        model = fuse(model, is_repeated=is_repeated or max(options.dispatch_iterations, options.dispatch_repeat) > 1)
    if options.emit:
        _emit(model, options)
        return
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
    results: list[Any] = []
    dispatched: list[Dispatched] = []
    for index in range(len(model.commands)):
        numbers = model.numbers_of(index) if options.print_commands else ()
        for number in numbers:
            say(f"[StartCmd][{number:04}]\t: {json_text(model.document.root['commands'][number])}")
        result = execution.result(index, repetition)
        if options.json:
            results.append(result_json(result, options.warmup_samples))
        else:
            sys.stdout.writelines(
                result_pieces(result, device.platform, options.timing_verbosity, options.warmup_samples)
            )
            print(flush=True)
        dispatched += [result] if isinstance(result, Dispatched) else []
        for number in numbers:
            say(f"[EndCmd][{number:04}]\t: hr=0x00000000 \n")
    milliseconds = total_milliseconds(dispatched, options.warmup_samples)
    if len(dispatched) > 1 and options.timing_verbosity >= 1:
        say(f"All {len(dispatched)} dispatches: {milliseconds:.4f} ms, the sum of the hot medians")
    if options.json:
        times = {"compile_milliseconds": compiled, "dispatch_milliseconds": milliseconds}
        print(json.dumps({"device": device.device_kind, **times, "results": results}))


def _device(platform: str | None) -> jax.Device:
    if platform:
        jax.config.update("jax_platforms", platform)
    try:
        return jax.local_devices()[0]
    except Exception as error:  # JAX asserts that it has a device, besides its RuntimeErrors
        reason = one_line(_REMEDY.sub("", str(error))) or "JAX gives no reason"
        if platform:
            # JAX tells of a plugin that nobody asked for where it was installed without one.
            is_installed = "list of known backends" not in reason
            given = f"{platform} ({reason})" if is_installed else platform
            remedy = None if is_installed else _INSTALLED_BY.get(platform)
            rule = "--platform must name a platform that JAX has on this machine"
            raise InvalidDesc(Problem((), rule, given, remedy=remedy)) from None
        raise InvalidDesc(Problem((), f"JAX must have a platform ({reason})")) from None


_INSTALLED_BY = {
    "gpu": "pip install 'jax[cuda13]' brings it for NVIDIA's GPUs",
    "cuda": "pip install 'jax[cuda13]' brings it",
    "tpu": "pip install 'jax[tpu]' brings it",
}
_REMEDY = re.compile(r" \((?:you may need|set JAX_PLATFORMS).*", re.DOTALL)  # JAX's advice, useless beside --platform


def _emit(model: DispatchModel, options: argparse.Namespace) -> None:
    platform = PLATFORMS[options.platform] if options.platform else None
    texts = {}
    for name, dispatchable in model.dispatchables.items():
        with model.part(*model.desc_place(name)):
            traced = trace(dispatchable)
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
            print(f"// {escape_controls(name)}: {model.dispatchables[name].desc.title}\n{text.rstrip()}\n")


def check(options: argparse.Namespace) -> int:
    """Lists every error in DxDispatch models, and all that is missing for ONNX models."""
    statuses = []
    for path in options.models:
        try:
            statuses.append((_check_onnx if _is_onnx(path) else _check_model)(path, options))
        except UnreadableModel as error:  # the other models are checked all the same
            statuses.append(_report_error(error, as_json=options.json))
    return max(statuses)


def _check_onnx(path: str, options: argparse.Namespace) -> int:
    from dmljax.onnx.trial import checked

    problems, left, nodes_left = checked(path)
    if options.json:
        print(json.dumps({"findings": [*problems], "left_to_cpu": [*left], "nodes_left_to_cpu": nodes_left}))
    else:
        for problem in problems:
            print(f"{escape_controls(path)}: {escape_controls(problem)}")
        for sentence in left:
            print(f"{escape_controls(path)}: {escape_controls(sentence)}")
        count = _colored(_count_text(len(problems), "finding"), _RED if problems else _GREEN)
        nodes = f"{_count_text(nodes_left, 'node')} that ONNX Runtime's DirectML provider leaves to the CPU"
        print(f"{escape_controls(path)}: {count}, {nodes}")
    return FINDINGS if problems else 0


def _check_model(path: str, options: argparse.Namespace) -> int:
    findings: Sequence[Finding] = ()
    try:
        model = _load(path, options)
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
        count = _colored(_count_text(len(findings), "finding"), _RED if findings else _GREEN)
        name = "<stdin>" if path == "-" else escape_controls(path)
        print(f"{name}: {count} at {options.dml_feature_level}")
    return FINDINGS if findings else 0


def estimate(options: argparse.Namespace) -> int:
    """Estimates what DxDispatch and ONNX models cost on GPUs and TPUs that are not here."""
    jax.config.update("jax_platforms", "cpu")  # JAX would look for the chips of the compilers that are installed
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for target in options.targets:
        place_of(target)  # fail early if the chip is unknown or the extra is missing
    listed = []
    for path in options.models:
        for title, function, inputs, weights in (_onnx_programs if _is_onnx(path) else _programs)(path, options):
            estimates = []
            for target in options.targets:
                print(f"compiling {title} for {target}", file=sys.stderr, flush=True)
                given = inputs(place_of(target)) if callable(inputs) else inputs
                estimates.append(
                    dmljax.estimate(function, *given, target=target, weights=weights, gradient=options.gradient)
                )
            listed += [{"program": title, **one.to_json()} for one in estimates]
            if not options.json:
                print(title, *estimate_table(estimates), "", sep="\n")
    if options.json:
        print(json.dumps(listed, indent=1))
    return FINDINGS if any(one["reason"] for one in listed) else 0


def _programs(path: str, options: argparse.Namespace) -> Iterator[tuple[str, Any, Any, Any]]:
    """The dispatchables of a DxDispatch model, or a serialized graph: title, function, inputs and weights of each."""
    if options.batch:
        raise InvalidDesc(Problem((), "--batch must be for ONNX models alone", escape_controls(path)))
    if path.lower().endswith(".bin"):
        yield escape_controls(path), dmljax.serialized.load(path), (), None
        return
    model = _load(path, options)
    _warn(model.warnings)
    for name, dispatchable in model.dispatchables.items():
        yield f"{escape_controls(name)}: {dispatchable.desc.title}", dispatchable.desc, (), None


def _onnx_programs(path: str, options: argparse.Namespace) -> Iterator[tuple[str, Any, Any, Any]]:
    """An ONNX model for each batch; without one, each chip is given one example."""
    from dmljax.onnx import trial

    model = trial.load(path)
    function = partial(model.apply, key=jax.random.key(trial.SEED)) if model.is_random else model.apply
    shapes = _shapes_of_inputs(model, options)
    sizes = dict(options.onnx_free_dim_name_override), dict(options.onnx_free_dim_denotation_override)
    for batch in options.batch or [None]:

        def inputs(place: Place, batch: int | None = batch) -> list[Any]:
            count = len(place.devices)
            return trial.types_of_inputs(model, shapes, *sizes, batch or (count if count > 1 else None))

        title = escape_controls(path) + (f", batch {batch}" if batch else "")
        yield title, function, inputs, model.weights


def _count_text(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _warn(warnings: Sequence[Finding], file: Any = None) -> None:
    file = file or sys.stderr
    for warning in warnings:
        print(f"{_colored('warning', _YELLOW, file)}: {warning}", file=file)


_RED, _GREEN, _YELLOW = "31", "32", "33"  # codes of the ANSI escape sequence for colors


def _colored(text: str, color: str, file: Any = None) -> str:
    """The text in a color, if it goes to a terminal; https://no-color.org says how users switch that off."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not (file or sys.stdout).isatty()
    return text if is_plain else f"\033[{color}m{text}\033[0m"


def ops(options: argparse.Namespace) -> int:
    """Lists the operators that dmljax has."""
    if options.json:
        print(json.dumps(summaries(), indent=1))
        return 0
    make_table = markdown_table if options.markdown else table
    print("\n".join(make_table(operator_rows(), OPERATORS_HEAD)))
    print(f"\n{coverage()}")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Explains an operator: its function, members, rules, data types and an example."""
    operator = find_operator(options.operator)
    _device(None)  # refuses early if JAX has no platform to compute the example on
    width = min(shutil.get_terminal_size().columns, 120)
    print(json.dumps(explanation(operator), indent=1) if options.json else explained(operator, width))
    return 0


# The options

DESCRIPTION = """The operators of DirectML on XLA: run, check or estimate models, and look up operators."""

RUN_EXAMPLES = """examples:
  dmljax run notebooks/models/top1_routing.json
  dmljax run model.json --output_path results        # the model may write files below this folder only
  dmljax run model.json -i 100 -w 10 -v 1            # time 100 iterations; the first 10 are warm-up
  dmljax run model.json --fuse -v 1                  # compile dispatches together; time each and all of them
  dmljax run model.json --emit stablehlo             # print the StableHLO of each operator; run nothing
  dmljax run model.json --emit hlo --platform tpu    # for a platform that this machine may lack
  dmljax run model.json --json | jq '.results'
  dmljax run model.onnx --input x=picture.jpg        # an ONNX model; random numbers for the other inputs
  dmljax run model.onnx --compare onnxruntime        # times and differences beside ONNX Runtime

8-bit integers are printed as characters, as by DxDispatch; --json prints them as numbers.
Times are those of the computation, without compilation and copies between buffers and the device."""

CHECK_EXAMPLES = """examples:
  dmljax check model.json                            # check the rules of the newest feature level
  dmljax check model.json --dml_feature_level 3_0    # check the rules of an older feature level
  dmljax check models/*.json                         # check several models
  generate_model | dmljax check -                    # check what another program writes
  dmljax check model.onnx                            # operators that are missing, and nodes that need a CPU

The exit status is 0 without findings, 1 with findings, and 2 if the file cannot be read as JSON."""

ESTIMATE_EXAMPLES = """examples:
  dmljax estimate network.onnx --for h100 --for v5e  # a column for each chip
  dmljax estimate network.onnx --for v5e:4x4 --for h100:8 --batch 16 64 --gradient
  dmljax estimate model.json --for h100              # each operator and graph of a DxDispatch model
  dmljax estimate graph.bin --for a100               # a graph that DirectML serialized
  dmljax estimate network.onnx --for b200 --json | jq '.[].seconds'

XLA compiles for the chips on this CPU; pip install 'dmljax[accelerators]' has the compilers for h100, a100, b200, v5e,
v5p and v6e. Inputs are divided by their first dimension among several chips, and weights are on each. The time is a
bound by the published rates, not a measurement. The exit status is 1 if a program does not compile."""

OPS_EXAMPLES = """examples:
  dmljax ops
  dmljax ops --markdown > operators.md
  dmljax ops --json | jq -r '.[].operator'"""

EXPLAIN_EXAMPLES = """examples:
  dmljax explain one_hot
  dmljax explain DML_OPERATOR_GATHER_ND1 --json"""


class _Parser(argparse.ArgumentParser):
    """A parser that refuses unknown options itself: with the usage of its own command, and the nearest option."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, others = super().parse_known_args(args, namespace)
        if others:
            near = get_close_matches(others[0].partition("=")[0], self._option_string_actions, n=1)
            self.error(f"unrecognized arguments: {' '.join(others)}" + (f", did you mean {near[0]}?" if near else ""))
        return known, others


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("dmljax", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"dmljax {dmljax.__version__}, jax {jax.__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(function: Callable[[argparse.Namespace], int], examples: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(
            function.__name__,
            help=(function.__doc__ or "").rstrip("."),
            description=function.__doc__,
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        subparser.set_defaults(command=function)
        subparser.add_argument("--json", action="store_true", help="print JSON for a program to read")
        subparser.add_argument("--debug", action="store_true", help="print the traceback of an error")
        return subparser

    run_parser = command(run, RUN_EXAMPLES)
    _add_model_options(run_parser)
    _add_options(
        run_parser,
        ("--output_path", "the folder for the files that the model writes", _FOLDER),
        ("--print_commands", "print each command before and after it runs", _FLAG),
    )
    _add_options(
        run_parser.add_argument_group("timing"),
        ("-i --dispatch_iterations", "iterations of each dispatch", _COUNT),
        ("-r --dispatch_repeat", "runs in each iteration", _COUNT),
        ("-t --milliseconds_to_run", "repeat each dispatch for this long; replaces -i", _MILLISECONDS),
        ("-I --dispatch_interval", "least time from one iteration's start to the next", _MILLISECONDS | {"default": 0}),
        ("-w --warmup_samples", "most iterations to count as cold", _COUNT | {"type": _parse_integer}),
        (
            "-v --timing_verbosity",
            "0: hot median; 1: also compilation, cold and hot statistics, and the sum of all dispatches;"
            " 2: also every iteration",
            {"type": int, "choices": (0, 1, 2), "default": 0},
        ),
    )
    _add_options(
        run_parser.add_argument_group("XLA"),
        ("--platform", "where to run, or what to emit for (default: JAX's choice)", {"choices": PLATFORMS}),
        (
            "--emit",
            "print this form of each operator or graph instead of running it",
            {"choices": ("stablehlo", "hlo", "jaxpr")},
        ),
        ("--fuse", "compile dispatches that follow each other as one graph; prints stay the same", _FLAG),
        ("--x64", "enable 64-bit data types in JAX", _FLAG),
    )
    _add_options(
        run_parser.add_argument_group("ONNX models"),
        (
            "--input",
            "an array (.npy, .npz) or an image for an input, or FILE.npz alone for all (default: random numbers)",
            {"action": "append", "default": [], "metavar": "NAME=FILE"},
        ),
        (
            "--shape",
            "the shape of a random input (default: 1 for each open size)",
            _pairs("NAME=1,3,224,224", _parse_sizes),
        ),
        ("--compare", "run the model there, too, and print times and differences", {"choices": ("onnxruntime",)}),
    )
    _add_model_options(command(check, CHECK_EXAMPLES))
    estimate_parser = command(estimate, ESTIMATE_EXAMPLES)
    _add_model_options(estimate_parser)
    _add_options(
        estimate_parser,
        (
            "--for",
            "a chip, or several as in h100:8 and v5e:4x4; repeatable",
            {"action": "append", "required": True, "dest": "targets", "metavar": "CHIP"},
        ),
        (
            "--batch",
            "first dimensions of an ONNX model's inputs, where they are open (default: one example a chip)",
            {"type": _parse_count, "nargs": "+", "default": [], "metavar": "N"},
        ),
        ("--gradient", "estimate the gradient of the weights, or else of the inputs", _FLAG),
    )
    _add_options(command(ops, OPS_EXAMPLES), ("--markdown", "print a Markdown table", _FLAG))
    explain_parser = command(explain, EXPLAIN_EXAMPLES)
    explain_parser.add_argument("operator", help="name of an operator, such as one_hot or DML_OPERATOR_ONE_HOT")
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="model", help="a DxDispatch model, a JSON file; - reads the standard input"
    )
    _add_options(
        parser,
        ("--input_path", "the folder of the files that the model reads (default: the model's folder)", _FOLDER),
        (
            "--dml_feature_level",
            "DirectML feature level to check against, such as 3_0 or 6.2 (default: 6_4)",
            {"type": _parse_level, "default": LATEST, "metavar": "LEVEL"},
        ),
    )
    _add_options(
        parser.add_argument_group("sizes of ONNX models, which come before those in a DxDispatch model"),
        (
            "-f --onnx_free_dim_name_override",
            "the size of open dimensions by name, repeatable",
            _pairs("NAME:SIZE", _parse_integer),
        ),
        (
            "-F --onnx_free_dim_denotation_override",
            "the same by denotation, repeatable",
            _pairs("DENOTATION:SIZE", _parse_integer),
        ),
        (
            "-b --binding_shape",
            "the shape of an input or output, repeatable",
            _pairs("TENSOR:1,3,224,224", _parse_sizes),
        ),
    )


def _add_options(parser: argparse._ActionsContainer, *options: tuple[str, str, dict[str, Any]]) -> None:
    """Adds options: their names, what they say, and how they are read."""
    for names, told, reading in options:
        default = f" (default: {reading['default']})" if type(reading.get("default")) is int else ""
        parser.add_argument(*names.split(), help=told + default, **reading)


def _pairs(form: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    """How a repeatable option of this form is read: a name, a colon or an equals sign, and what `parse` reads."""

    def read(text: str) -> tuple[str, Any]:
        name, _, given = text.rpartition("=" if "=" in form else ":")
        if not name or not given:
            raise argparse.ArgumentTypeError(f"must be {form}; got {text!r}")
        return name, parse(given)

    return {"type": read, "action": "append", "default": [], "metavar": form}


def _parse_level(text: str) -> FeatureLevel:
    try:
        level: FeatureLevel = parse_enum(FeatureLevel, (), text.replace(".", "_"))
    except DmlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return level


def _parse_integer(text: str, lowest: int = 0) -> int:
    try:
        return integer_in((), int(text), lowest, UINT_MAX)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number in [{lowest}, {UINT_MAX}]; got {text!r}") from None


def _parse_count(text: str) -> int:
    return _parse_integer(text, 1)


def _parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(map(_parse_integer, text.split(",")))


_FLAG = {"action": "store_true"}
_FOLDER = {"type": Path, "metavar": "FOLDER"}
_COUNT = {"type": _parse_count, "default": 1, "metavar": "N"}
_MILLISECONDS = {"type": _parse_integer, "metavar": "MS"}
