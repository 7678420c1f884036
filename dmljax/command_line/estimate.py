"""The command `dmljax estimate`: estimates the cost of models on chips that are not here."""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dmljax
from dmljax.command_line.options import (
    COUNT,
    FLAG,
    MESH,
    Subparsers,
    add_command,
    add_model_options,
    add_options,
    parse_count,
)
from dmljax.command_line.terminal import FINDINGS, terminal_width
from dmljax.foundation.programs.progress import report
from dmljax.text import escape_controls, join_words

if TYPE_CHECKING:
    from dmljax.estimation import generation
    from dmljax.estimation.targets import Place

SUMMARY = "Estimates the cost of models on GPUs and TPUs that you do not have."

EXAMPLES = """examples:
  dmljax estimate network.onnx --for h100 --for v5e  # a column for each chip
  dmljax estimate network.onnx --for v5e:4x4 --for h100:8 --batch 16 64 --gradient
  dmljax estimate network.onnx --for v5e:16x16 --mesh data=32,model=8 --batch 256
  dmljax estimate network.onnx --for h200:8 --optimizer adamw --dtype bfloat16
  dmljax estimate model.json --for h100              # each operator and graph of a DxDispatch model
  dmljax estimate graph.bin --for a100               # a graph that DirectML serialized
  dmljax estimate phi-3-mini-directml --for h100 --prompt 2048 --generate 256 --batch 1 16 --extrapolate
  dmljax estimate network.onnx --for b200 --json | jq '.[].seconds'

XLA compiles for the chips on this CPU; the extra accelerators installs the compilers. Several chips split inputs along
their first dimension; each holds all weights, unless --mesh divides them. Several chips with a language model divide
its weights, unless --mesh says otherwise. The time is a lower bound from peak rates, not a measurement. The
exit status is 1 if a program does not compile, or needs more memory than a chip has."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "estimate", SUMMARY, EXAMPLES)
    add_model_options(parser, may_be_folder=True)
    add_options(
        parser,
        (
            "--for",
            "a chip such as h100, or several such as h100:8, v5e:16 or v5e:4x4; repeatable",
            {"action": "append", "required": True, "dest": "targets", "metavar": "CHIP"},
        ),
        (
            "--batch",
            "batch sizes for ONNX models whose first dimension is open (default: one example per chip)",
            {"type": parse_count, "nargs": "+", "default": [], "metavar": "N"},
        ),
        ("--prompt", "tokens of each prompt of a language model (default: 512)", COUNT | {"default": None}),
        ("--generate", "tokens that a language model adds to each prompt (default: 128)", COUNT | {"default": None}),
        ("--gradient", "estimate the gradient of the weights, or of the inputs if there are none", FLAG),
        ("--optimizer", "estimate a step of training, with the state of sgd, momentum or adamw", {"metavar": "NAME"}),
        ("--precision", "default, high or highest: of products of float32 (default: JAX's)", {"metavar": "NAME"}),
        ("--dtype", "bfloat16 or float16, for float32 in the file (default: the file's)", {"metavar": "TYPE"}),
        ("--extrapolate", "compile 2 and 4 of a model's equal layers, and extrapolate to all", FLAG),
        MESH,
    )


def run(options: argparse.Namespace) -> int:
    """Estimates the cost of DxDispatch and ONNX models on GPUs and TPUs that you do not have."""
    import jax

    from dmljax.command_line.models import is_of_diffusion, is_onnx, require_file, require_unset
    from dmljax.errors import within
    from dmljax.estimation import generation, table as estimate_table
    from dmljax.estimation.programs import prepare, require_choices
    from dmljax.estimation.targets import place_of

    jax.config.update("jax_platforms", "cpu")  # or else JAX would look for the chips of the installed compilers
    with within("estimate"):
        require_choices(options.precision, options.dtype, options.optimizer)
    for target in options.targets:
        place_of(target)  # fail early if the chip is unknown or the extra is missing
    width = terminal_width()
    listed: list[dict[str, Any]] = []
    all_fit = True
    for path in options.models:
        if Path(path).is_dir() and not is_of_diffusion(Path(path)):
            generations = _estimate_folder(path, options)
            listed += [{"program": escape_controls(path), **estimated.to_json()} for estimated in generations]
            all_fit &= all(estimated.fits for estimated in generations)
            if not options.json:
                print(escape_controls(path), *generation.table(generations, width), "", sep="\n")
            continue
        require_file(path)
        require_unset(path, "is only for folders of language models", prompt=options.prompt, generate=options.generate)
        for title, function, inputs_of in (_onnx_programs if is_onnx(path) else programs_of)(path, options):
            columns = [*product(options.batch or [None], options.targets)]
            mesh = dict(options.mesh) or None
            inputs = [inputs_of(place_of(target), batch) for batch, target in columns]
            report(f"preparing {title}")
            # All are prepared before the first is compiled, which may take minutes.
            names = ("precision", "dtype", "extrapolate")
            choices = {name: getattr(options, name) for name in names}
            all_prepared = [
                prepare(function, (*types.values(),), target, mesh=mesh, **choices)
                for types, (_, target) in zip(inputs, columns, strict=True)
            ]
            estimates = []
            prepared = zip(columns, inputs, all_prepared, strict=True)
            for number, ((batch, target), types, program) in enumerate(prepared, 1):
                of_batch = f", batch {batch}" if batch else ""
                report(f"compiling {title}{of_batch} for {target}", number, len(columns), "program")
                estimates.append(program.estimate(gradient=options.gradient, optimizer=options.optimizer))
                shapes = {name: jax.typeof(type_).str_short() for name, type_ in types.items()}
                listed.append({"program": title, "batch": batch, "inputs": shapes, **estimates[-1].to_json()})
                all_fit &= estimates[-1].fits
            if not options.json:
                batches = [batch for batch, _ in columns] if options.batch else []
                print(title, *_shapes(inputs), *estimate_table(estimates, batches, width), "", sep="\n")
    if options.json:
        print(json.dumps(listed, indent=1))
    return 0 if all_fit else FINDINGS


def _shapes(inputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Tells the types of each input that were compiled."""
    import jax

    for name in inputs[0]:
        types = dict.fromkeys(jax.typeof(types[name]).str_short() for types in inputs)
        yield f"{escape_controls(name)}: {join_words(types, 'or')}"


def _estimate_folder(path: str, options: argparse.Namespace) -> "list[generation.Generation]":
    """Estimates the prompts and tokens of a language model for each batch and target."""
    from dmljax.command_line.models import refuse_model_options
    from dmljax.errors import require
    from dmljax.estimation import generation
    from dmljax.onnx import language_model

    refuse_model_options(path, options, gradient=options.gradient, optimizer=options.optimizer)
    model = language_model(path, dtype=options.dtype)
    default = generation.Work()
    prompt, generated = options.prompt or default.prompt, options.generate or default.generated
    context = model.settings.context_length
    rule = f"and --generate must be at most {context} tokens in all, the model's context"
    require((), prompt + generated <= context, f"--prompt {rule}", f"{prompt} and {generated}")
    choices = {"precision": options.precision, "extrapolate": options.extrapolate}
    prepared = []
    for batch, target in product(options.batch or [1], options.targets):
        work = generation.Work(batch, prompt, generated)
        mesh = dict(options.mesh)
        prepared.append(generation.prepare_generation(model, work, target, mesh, **choices))
    estimates = []
    for number, program in enumerate(prepared, 1):
        title = f"{escape_controls(path)}, batch {program.work.batch} for {program.token.place.name}"
        report(f"compiling {title}", number, len(prepared), "pair of programs")
        estimates.append(program.estimate())
    return estimates


Inputs = Callable[["Place", int | None], Mapping[str, Any]]  # the types of inputs for some chips and a batch


def programs_of(path: str, options: argparse.Namespace) -> Iterator[tuple[str, Any, Inputs]]:
    """The dispatchables of a DxDispatch model, or a serialized graph: the title, function and inputs of each."""
    from dmljax.command_line.models import OF_DXDISPATCH_MODELS, OF_SIZES, load_model, warn, warn_without_effect
    from dmljax.errors import InvalidDesc, Problem

    if options.batch:
        raise InvalidDesc(Problem((), "--batch is only for ONNX models", escape_controls(path)))
    if path.lower().endswith(".bin"):
        warn_without_effect(options, (*OF_DXDISPATCH_MODELS, *OF_SIZES), "on serialized graphs")
        yield escape_controls(path), dmljax.serialized.load(path), lambda place, batch: {}
        return
    model = load_model(path, options)
    warn(model.warnings)
    for name, dispatchable in model.dispatchables.items():
        yield f"{escape_controls(name)}: {dispatchable.desc.title}", dispatchable.desc, lambda place, batch: {}


def _onnx_programs(path: str, options: argparse.Namespace) -> Iterator[tuple[str, Any, Inputs]]:
    """Yields an ONNX model; without `--batch`, each chip gets one example."""
    from dmljax.command_line.models import OF_DXDISPATCH_MODELS, sizes_of_inputs, warn_without_effect
    from dmljax.command_line.onnx.input_types import types_of_inputs
    from dmljax.estimation.targets import Place
    from dmljax.onnx import load as load_onnx

    warn_without_effect(options, OF_DXDISPATCH_MODELS, "on ONNX models")
    model = load_onnx(path)
    sizes = sizes_of_inputs(model, options)

    def inputs_of(place: Place, batch: int | None) -> Mapping[str, Any]:
        count = len(place.devices)
        types = types_of_inputs(model, sizes, batch or (count if count > 1 else None))
        return dict(zip((tensor.name for tensor in model.inputs), types, strict=True))

    yield escape_controls(path), model, inputs_of
