"""The command `dmljax run`: runs models, and times and compares them."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dmljax.command_line.options import (
    COUNT,
    FLAG,
    FOLDER,
    MILLISECONDS,
    Subparsers,
    add_command,
    add_model_options,
    add_options,
    pairs_of,
    parse_integer,
    parse_sizes,
)
from dmljax.foundation.programs.progress import report
from dmljax.text import escape_controls, json_text

if TYPE_CHECKING:
    from dmljax.dxdispatch.model import DispatchModel

SUMMARY = "Runs models, or prints their operators as StableHLO, HLO or jaxprs."

EXAMPLES = """examples:
  dmljax run notebooks/models/top1_routing.json
  dmljax run model.json --output_path results        # the model may write files only below this folder
  dmljax run model.json -i 100 -w 10 -v 1            # time 100 iterations; the first 10 are warm-up
  dmljax run model.json --fuse -v 1                  # compile dispatches together; time each and all of them
  dmljax run model.json --emit stablehlo             # print the StableHLO of each operator; run nothing
  dmljax run model.json --emit hlo --platform tpu    # for a platform that this machine may lack
  dmljax run model.json --json | jq '.results'
  dmljax run model.onnx --input x=picture.jpg        # an ONNX model; random numbers for the other inputs
  dmljax run model.onnx --compare onnxruntime        # compare times and results with ONNX Runtime

8-bit integers are printed as characters, as by DxDispatch; --json prints them as numbers.
Times include only the computation, not compilation or copies between buffers and the device."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "run", SUMMARY, EXAMPLES)
    add_model_options(parser)
    add_options(
        parser,
        ("--output_path", "the folder for the files that the model writes", FOLDER),
        ("--print_commands", "print each command before and after it runs", FLAG),
    )
    add_options(
        parser.add_argument_group("timing"),
        ("-i --dispatch_iterations", "iterations of each dispatch", COUNT),
        ("-r --dispatch_repeat", "runs in each iteration", COUNT),
        ("-t --milliseconds_to_run", "repeat each dispatch for this long; replaces -i", MILLISECONDS),
        ("-I --dispatch_interval", "least time from one iteration's start to the next", MILLISECONDS | {"default": 0}),
        ("-w --warmup_samples", "most iterations to count as cold", COUNT | {"type": parse_integer}),
        (
            "-v --timing_verbosity",
            "0: hot median; 1: also compilation, cold and hot statistics, and the sum of all dispatches;"
            " 2: also every iteration",
            {"type": int, "choices": (0, 1, 2), "default": 0},
        ),
    )
    add_options(
        parser.add_argument_group("XLA"),
        (
            "--platform",
            "where to run, or what to emit for (default: JAX's choice)",
            {"choices": ("cpu", "gpu", "cuda", "rocm", "tpu")},
        ),
        (
            "--emit",
            "print this form of each operator or graph instead of running it",
            {"choices": ("stablehlo", "hlo", "jaxpr")},
        ),
        ("--fuse", "compile consecutive dispatches as one graph; the output stays the same", FLAG),
        ("--x64", "enable 64-bit data types in JAX", FLAG),
    )
    add_options(
        parser.add_argument_group("ONNX models"),
        (
            "--input",
            "an array (.npy, .npz) or an image for an input, or only FILE.npz for all (default: random numbers)",
            {"action": "append", "default": [], "metavar": "NAME=FILE"},
        ),
        (
            "--shape",
            "the shape of a random input (default: 1 for each open size)",
            pairs_of("NAME=1,3,224,224", parse_sizes),
        ),
        ("--compare", "also run the model there, and print times and differences", {"choices": ("onnxruntime",)}),
    )


def run(options: argparse.Namespace) -> int:
    """Runs DxDispatch models and ONNX models, or prints a model's operators as StableHLO, HLO or jaxprs."""
    import jax

    from dmljax.command_line.models import is_onnx, load_model, require_file, warn

    if options.x64:
        jax.config.update("jax_enable_x64", True)
    for path in options.models:
        require_file(path, f"`dmljax generate {escape_controls(path)}` continues texts")
        if is_onnx(path):
            _run_onnx(path, options)
            continue
        model = load_model(path, options)
        warn(model.warnings)
        if len(options.models) > 1 and not options.json:
            print(f"{escape_controls(path)}:")
        _run_model(model, options)
    return 0


def _run_onnx(path: str, options: argparse.Namespace) -> None:
    import jax

    from dmljax.command_line.models import find_device, sizes_of_inputs
    from dmljax.command_line.onnx import timing
    from dmljax.command_line.onnx.example_inputs import files_by_name, make_inputs
    from dmljax.errors import InvalidDesc, Problem
    from dmljax.onnx import load as load_onnx

    if options.emit or options.fuse:
        option = "--emit" if options.emit else "--fuse"
        raise InvalidDesc(Problem((), f"{option} is only for DxDispatch models", escape_controls(path)))
    device = find_device(options.platform)
    if not options.json:
        print(f"Running on '{device.device_kind}'", flush=True)
    begin = time.perf_counter()
    model = load_onnx(path)
    loaded = time.perf_counter() - begin
    inputs = make_inputs(model, files_by_name(options.input), sizes_of_inputs(model, options, dict(options.shape)))
    timed = timing.measure(model, inputs)
    other = timing.measure_in_onnxruntime(path, inputs) if options.compare else None
    differences = {
        name: timing.greatest_difference(result, other.results[name]) for name, result in timed.results.items() if other
    }
    if options.json:
        outputs = {
            name: {"type": jax.typeof(array).str_short(), "values": array.tolist()}
            for name, array in timed.results.items()
        }
        times = {"load": loaded, "compile": timed.compilation, "call": timed.median}
        compared = {"onnxruntime_call": other.median, "differences": differences} if other else {}
        print(json.dumps({"device": device.device_kind, "outputs": outputs, "seconds": times, **compared}))
        return
    print(f"{escape_controls(path)}: {model}")
    print(f"{loaded:.2f} s to load, {timed.compilation:.2f} s to compile, {timed.median * 1e3:.3f} ms for a call")
    for name, result in timed.results.items():
        print(f"{escape_controls(name)}: {timing.describe_result(result)}")
    if other:
        print(f"onnxruntime takes {other.median * 1e3:.3f} ms, and differs by at most:")
        for name, difference in differences.items():
            print(f"{escape_controls(name)}: {difference:.3g}")


def _run_model(model: "DispatchModel", options: argparse.Namespace) -> None:
    from dmljax.command_line.models import find_device
    from dmljax.dxdispatch.execution import Dispatched, Execution, Repetition
    from dmljax.dxdispatch.fusion import fuse
    from dmljax.dxdispatch.printing import result_json, result_pieces, total_milliseconds

    device = find_device(None if options.emit else options.platform)
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
    for number, name in enumerate(model.dispatchables, 1):
        begin = time.perf_counter()
        report(f"compiling {escape_controls(name)}", number, len(model.dispatchables), "program")
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
        report("running")
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


def _emit(model: "DispatchModel", options: argparse.Namespace) -> None:
    import jax

    from dmljax.dxdispatch.execution import trace

    platform = "cuda" if options.platform == "gpu" else options.platform  # as JAX's lowering calls it
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
