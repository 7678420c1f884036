"""The command `dmljax run`: runs models, and times and compares them."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmljax.command_line.options import (
    COUNT,
    FLAG,
    FOLDER,
    MILLISECONDS,
    Subparsers,
    add_command,
    add_ignored_options,
    add_model_options,
    add_options,
    find_ignored_options,
    pairs_of,
    parse_integer,
    parse_sizes,
)
from dmljax.foundation.programs.progress import report
from dmljax.text import escape_controls, json_text, one_line

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
  dmljax run network.stablehlo --input 0=x.npy       # what `dmljax compile` wrote; inputs have numbers

8-bit integers are printed as characters, as by DxDispatch; --json prints them as numbers.
Times include only the computation, not compilation or copies between buffers and the device."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "run", SUMMARY, EXAMPLES)
    add_model_options(parser, is_optional=True, may_be_artifact=True)
    add_options(
        parser,
        ("-m --model", "a model, as a script for DxDispatch may name it", {"action": "append", "default": []}),
        ("--output_path", "the folder of the files that the model writes (default: the current folder)", FOLDER),
        ("--print_commands", "print each command before and after it runs", FLAG),
        (
            "-a --adapter",
            "run on the first of JAX's devices that has this text in its name, such as NVIDIA",
            {"metavar": "NAME"},
        ),
        ("-s --show_adapters", "list the devices that JAX has here; needs no model", FLAG),
        ("-S --show_dependencies", "list the versions of what dmljax uses; needs no model", FLAG),
    )
    add_options(
        parser.add_argument_group("timing"),
        (
            "-i --dispatch_iterations",
            "iterations of each dispatch (default: 1), or calls of an ONNX model or artifact (default: 5)",
            COUNT | {"default": None},
        ),
        ("-r --dispatch_repeat", "runs in each iteration (default: 1)", COUNT | {"default": None}),
        ("-t --milliseconds_to_run", "repeat each dispatch for this long; replaces -i", MILLISECONDS),
        ("-I --dispatch_interval", "least time from one iteration's start to the next", MILLISECONDS),
        (
            "-w --warmup_samples",
            "most iterations to count as cold (default: 1)",
            COUNT | {"type": parse_integer, "default": None},
        ),
        (
            "-v --timing_verbosity",
            "0: hot median; 1: also compilation, cold and hot statistics, and the sum of all dispatches;"
            " 2: also every iteration (default: 0)",
            {"type": int, "choices": (0, 1, 2)},
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
        ("--clear_shader_caches", "the same as --no-cache", FLAG | {"dest": "no_cache"}),
        ("--x64", "enable 64-bit data types in JAX", FLAG),
    )
    add_options(
        parser.add_argument_group("ONNX models and artifacts"),
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
        ("-p --print_onnx_bindings", "print the type of each input and output, and what is bound to it", FLAG),
    )
    add_ignored_options(parser)
    parser.set_defaults(find_problem=_find_problem, elsewhere=_ELSEWHERE)


# Options of other commands that print programs, and what to write instead
_ELSEWHERE = {
    **dict.fromkeys(("--hlo", "--print_hlo", "--dump_hlo", "--print"), "--emit hlo prints each operator's HLO"),
    **dict.fromkeys(("--stablehlo", "--mlir"), "--emit stablehlo prints each operator's StableHLO"),
    "--jaxpr": "--emit jaxpr prints each operator's jaxpr",
    **dict.fromkeys(("--device", "--backend"), "--platform cpu, gpu or tpu chooses where to run"),
    **dict.fromkeys(("--batch", "--batch_size"), "-f n:SIZE gives the size that the model calls n"),
    **dict.fromkeys(("--benchmark", "--iterations"), "-i 100 computes 100 times; -v 1 prints more times"),
}


def _find_problem(options: argparse.Namespace) -> str | None:
    is_answered = options.models or options.model or options.show_adapters or options.show_dependencies
    return None if is_answered else "the following arguments are required: model"


def run(options: argparse.Namespace) -> int:
    """Runs DxDispatch models and ONNX models, or prints a model's operators as StableHLO, HLO or jaxprs."""
    import jax

    from dmljax.command_line.models import (
        OF_DXDISPATCH_MODELS,
        is_onnx,
        load_model,
        require_file,
        require_unset,
        warn,
        warn_without_effect,
    )
    from dmljax.errors import require
    from dmljax.foundation.files import is_exported_file

    if options.x64:
        jax.config.update("jax_enable_x64", True)
    if options.output_path is not None:
        is_folder = options.output_path.is_dir() or not options.output_path.exists()
        require("output_path", is_folder, "must be a folder, not a file", one_line(options.output_path))
    for subject, names in find_ignored_options(options):
        warn_without_effect(options, names, f"without {subject}")
    _show(options)
    paths = [*options.model, *options.models]
    for path in paths:
        require_file(path, f"`dmljax generate {escape_controls(path)}` continues texts")
        if is_exported_file(Path(path)):
            from dmljax.command_line.artifacts import run_artifact

            warn_without_effect(options, _OF_DISPATCHES, "on artifacts")
            run_artifact(path, options)
        elif is_onnx(path):
            warn_without_effect(options, (*_OF_DISPATCHES, *OF_DXDISPATCH_MODELS), "on ONNX models")
            _run_onnx(path, options)
        else:
            of_onnx = {"input": options.input, "shape": options.shape, "compare": options.compare}
            require_unset(path, "is only for ONNX models and artifacts", **of_onnx)
            model = load_model(path, options)
            warn(model.warnings)
            if len(paths) > 1 and not options.json:
                print(f"{escape_controls(path)}:")
            _run_model(model, options)
    return 0


_OF_DISPATCHES = (
    "output_path",
    "print_commands",
    "dispatch_repeat",
    "milliseconds_to_run",
    "dispatch_interval",
    "warmup_samples",
    "timing_verbosity",
)


def _show(options: argparse.Namespace) -> None:
    """Lists the versions and devices that the user asks for."""
    from dmljax.command_line.models import describe_device, find_devices, versions

    if options.show_dependencies:
        installed = versions()
        lines = [f"{name}: {text}" for name, text in installed.items()]
        print(json.dumps(installed) if options.json else "\n".join(lines))
    if options.show_adapters:
        described = [describe_device(device) for device in find_devices()]
        print(json.dumps(described) if options.json else "\n\n".join(map(_device_text, described)))


def _device_text(described: Mapping[str, str]) -> str:
    """The text about a device, in the form in which DxDispatch lists adapters."""
    name, *others = described.items()
    return "\n".join([name[1], *(f"-{key.capitalize()}: {text}" for key, text in others)])


def _run_onnx(path: str, options: argparse.Namespace) -> None:
    import jax

    from dmljax.command_line.models import find_device, require_unset, sizes_of_inputs
    from dmljax.command_line.onnx import timing
    from dmljax.command_line.onnx.arrays import files_by_name
    from dmljax.command_line.onnx.example_inputs import make_inputs
    from dmljax.onnx import load as load_onnx

    require_unset(path, "is only for DxDispatch models", emit=options.emit, fuse=options.fuse)
    device = find_device(options.platform, options.adapter)
    if not options.json:
        print(f"Running on '{device.device_kind}'", flush=True)
    begin = time.perf_counter()
    model = load_onnx(path)
    loaded = time.perf_counter() - begin
    files = files_by_name(options.input)
    inputs = make_inputs(model, files, sizes_of_inputs(model, options, dict(options.shape)))
    with jax.default_device(device if options.adapter else None):
        timed = timing.measure(model, inputs, options.dispatch_iterations or timing.CALLS)
    other = timing.measure_in_onnxruntime(path, inputs) if options.compare else None
    differences = {
        name: timing.greatest_difference(result, other.results[name]) for name, result in timed.results.items() if other
    }
    compared = {"onnxruntime_call": other.median, "differences": differences} if other else {}
    if options.json:
        print(json.dumps({"device": device.device_kind, **timing.to_json(timed, loaded), **compared}))
        return
    print(f"{escape_controls(path)}: {model}")
    if options.print_onnx_bindings:
        for name, array in inputs.items():
            source = f"from {escape_controls(files[name])}" if name in files else "random numbers"
            print(f"Input '{escape_controls(name)}': {jax.typeof(array).str_short()}, {source}")
    print("\n".join(timing.timing_lines(timed, loaded)))
    if other:
        print(f"onnxruntime takes {other.median * 1e3:.3f} ms, and differs by at most:")
        for name, difference in differences.items():
            print(f"{escape_controls(name)}: {difference:.3g}")


def _run_model(model: "DispatchModel", options: argparse.Namespace) -> None:
    from dmljax.command_line.models import find_device, warn_without_effect
    from dmljax.dxdispatch.execution import Dispatched, Execution, Repetition
    from dmljax.dxdispatch.fusion import fuse
    from dmljax.dxdispatch.model import Dispatch
    from dmljax.dxdispatch.printing import binding_lines, result_json, result_pieces, total_milliseconds

    device = find_device(None) if options.emit else find_device(options.platform, options.adapter)
    iterations, runs = options.dispatch_iterations or 1, options.dispatch_repeat or 1
    warmup_samples = 1 if options.warmup_samples is None else options.warmup_samples
    verbosity = options.timing_verbosity or 0
    if options.fuse:
        model = fuse(model, is_repeated=options.milliseconds_to_run is not None or max(iterations, runs) > 1)
    if options.emit:
        names = (*_OF_DISPATCHES, "adapter", "dispatch_iterations", "print_onnx_bindings")
        warn_without_effect(options, names, "beside --emit, which runs nothing")
        _emit(model, options)
        return
    execution = Execution(model, output_path=options.output_path or Path(), device=device)
    say: Callable[[str], None] = (lambda text: None) if options.json else print
    say(f"Running on '{device.device_kind}'")
    compiled = {}
    for number, name in enumerate(model.dispatchables, 1):
        begin = time.perf_counter()
        report(f"compiling {escape_controls(name)}", number, len(model.dispatchables), "program")
        execution.compile(name)
        compiled[name] = (time.perf_counter() - begin) * 1e3
        if verbosity >= 1:
            say(f"Initialize '{escape_controls(name)}': {compiled[name]:.4f} ms")
    repetition = Repetition(
        iterations=2**32 - 1 if options.milliseconds_to_run is not None else iterations,
        runs=runs,
        milliseconds=options.milliseconds_to_run,
        interval_in_milliseconds=options.dispatch_interval or 0,
    )
    results: list[Any] = []
    dispatched: list[Dispatched] = []
    for index in range(len(model.commands)):
        numbers = model.numbers_of(index) if options.print_commands else ()
        for number in numbers:
            say(f"[StartCmd][{number:04}]\t: {json_text(model.document.root['commands'][number])}")
        command = model.commands[index]
        if options.print_onnx_bindings and isinstance(command, Dispatch):
            for line in binding_lines(command, model.dispatchables):
                say(line)
        report("running")
        result = execution.result(index, repetition)
        if options.json:
            results.append(result_json(result, warmup_samples))
        else:
            sys.stdout.writelines(result_pieces(result, device.platform, verbosity, warmup_samples))
            print(flush=True)
        dispatched += [result] if isinstance(result, Dispatched) else []
        for number in numbers:
            say(f"[EndCmd][{number:04}]\t: hr=0x00000000 \n")
    milliseconds = total_milliseconds(dispatched, warmup_samples)
    if len(dispatched) > 1 and verbosity >= 1:
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
