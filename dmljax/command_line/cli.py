"""The command line: `dmljax run`, `check`, `estimate`, `compile`, `ops` and `explain`.

This module reads the options. Import `commands`, which does the work, only when needed: JAX takes seconds to import.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import dmljax
from dmljax.command_line.terminal import INTERRUPTED, REFUSED, quiet, run_apart, say_error

MODELS = (".json", ".onnx", ".bin")  # the files that commands take


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, and returns its exit status.

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
        is_apart = arguments is None and options.command in COMPILING  # not in a process that calls this function
        status = run_apart(sys.argv[1:]) if is_apart else _run_command(options)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader, such as head, has stopped
            return 0
        return say_error(f"cannot write to the standard output: {error.strerror}")
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def _run_command(options: argparse.Namespace) -> int:
    """Runs the command and reports its errors; `main` reports errors of writing the output."""
    with quiet():
        from dmljax.command_line import commands

    try:
        status: int = getattr(commands, options.command)(options)
    except BrokenPipeError:
        raise
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        if isinstance(error, OSError) and not isinstance(error, dmljax.DmlError) and error.filename is None:
            raise
        return commands.report_error(error, as_json=options.json)
    return status


# The options

DESCRIPTION = """The operators of DirectML on XLA: run, check or estimate models, and look up operators."""

RUN_EXAMPLES = """examples:
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

CHECK_EXAMPLES = """examples:
  dmljax check model.json                            # check the rules of the newest feature level
  dmljax check model.json --dml_feature_level 3_0    # check the rules of an older feature level
  dmljax check models/*.json                         # check several models
  generate_model | dmljax check -                    # check what another program writes
  dmljax check model.onnx                            # missing operators, and nodes that refuse or need a CPU
  dmljax check phi-3-mini-directml                   # a folder of a language model
  dmljax check net.stablehlo --weights FILE.npz      # compare weights with an artifact's

The exit status is 0 without findings, 1 with findings, and 2 if a file cannot be read as JSON."""

ESTIMATE_EXAMPLES = """examples:
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

COMPILE_EXAMPLES = """examples:
  dmljax compile network.onnx --for h100 -o network.stablehlo
  dmljax compile network.onnx --for cpu --for v5e --batch 8 -o network.stablehlo
  dmljax compile network.onnx --for v5e:4x4 --mesh data=2,model=8 -o network.stablehlo
  dmljax compile unet.onnx --for cpu -f steps:1 -f height:8*h -f width:8*w -o unet.stablehlo
  python -c "import jax; f = jax.export.deserialize(open('network.stablehlo', 'rb').read()); print(f.in_avals)"

The artifact is StableHLO for the platform of the chip, and includes the weights. Sizes that a model leaves open stay
open, unless --batch, -f or -b give them. Sizes that a network halves and doubles must be multiples, as -f height:8*h
says. `.call(x)` runs it on that platform, with JAX but without dmljax.
For several chips, the weights of an ONNX model are an argument, stored in FILE.npz, and open batches must be multiples
of the mesh's first axis. `dmljax check FILE --weights FILE.npz` compares weights with an artifact's."""

GENERATE_EXAMPLES = """examples:
  dmljax generate phi-3-mini-directml "Once upon a time"
  dmljax generate phi-3-mini-directml --chat         # a conversation, line by line
  dmljax generate whisper-directml "<|startoftranscript|>" --audio features.npy
  dmljax generate phi-3-mini-directml "A haiku" --do_sample --temperature 0.8 --seed 3 --max_length 200
  cat prompt.txt | dmljax generate phi-3-mini-directml --json
  dmljax generate stable-diffusion-v1-5-onnx "A lighthouse in fog" -o picture.png --steps 30 --seed 3

The folder of a language model is in the format of ONNX Runtime GenAI: genai_config.json, an ONNX model and a tokenizer.
The folder of a diffusion model is Stable Diffusion exported to ONNX: model_index.json, tokenizer, text_encoder, unet,
vae_decoder and scheduler. Options that you leave out are those of the folder. The extra genai installs what reads
tokenizers, and the extra images what writes pictures."""

OPS_EXAMPLES = """examples:
  dmljax ops
  dmljax ops softmax                     # operators with softmax in their names
  dmljax ops --markdown > operators.md
  dmljax ops --json | jq -r '.[].operator'"""

EXPLAIN_EXAMPLES = """examples:
  dmljax explain one_hot
  dmljax explain causal mask                         # what an operator does, or what another library calls it
  dmljax explain DML_OPERATOR_GATHER_ND1 --json"""


class _CommandParser(argparse.ArgumentParser):
    """A parser that prints an error on a single line, followed by the nearest option or command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        args = sys.argv[1:] if args is None else [*args]
        if self._subparsers and args and not args[0].startswith("-") and args[0] not in COMMANDS:
            self.error(f"unrecognized command: {args[0]}", _tip_for_command(args[0]))
        known, others = super().parse_known_args(args, namespace)
        if others:
            option, known_options = others[0].partition("=")[0], self._option_string_actions
            longer = [other for other in known_options if other.startswith(option)]
            near = longer or get_close_matches(option, known_options, n=1)
            self.error(f"unrecognized arguments: {' '.join(others)}", f"did you mean {near[0]}?" if near else None)
        return known, others

    def error(self, message: str, tip: str | None = None) -> NoReturn:
        raise SystemExit(say_error(message, tip or f"`{self.prog} --help` lists the options"))


def _tip_for_command(command: str) -> str:
    if Path(command).suffix.lower() in MODELS:
        return f"`dmljax run {command}` runs a model"
    if command in ("help", "version"):
        return f"did you mean --{command}?"
    near = get_close_matches(command, COMMANDS, n=1)
    return f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"


class _Version(argparse.Action):
    """Prints the versions from the packages' metadata, without importing JAX."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"dmljax {dmljax.__version__}, jax {version('jax')}")
        parser.exit()


# The summary of each command in `dmljax --help`.
COMMANDS = {
    "run": "Runs models, or prints their operators as StableHLO, HLO or jaxprs.",
    "check": "Lists every error in models, and everything in ONNX models that dmljax does not support.",
    "estimate": "Estimates the cost of models on GPUs and TPUs that you do not have.",
    "compile": "Saves a model as an artifact that jax.export runs without dmljax.",
    "generate": "Continues a text, converses, or makes a picture, with the folder of a language or diffusion model.",
    "ops": "Lists the operators.",
    "explain": "Explains an operator: its function, members, rules, data types and an example.",
}
COMPILING = ("estimate", "compile")  # the commands that need no platform, but other platforms' compilers


def _parser() -> argparse.ArgumentParser:
    parser = _CommandParser("dmljax", description=DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the versions of dmljax and JAX")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(name: str, examples: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(
            name,
            help=COMMANDS[name].rstrip("."),
            description=COMMANDS[name],
            epilog=examples,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        subparser.set_defaults(command=name)
        subparser.add_argument("--json", action="store_true", help="print JSON for a program to read")
        subparser.add_argument("--debug", action="store_true", help="print the traceback of an error")
        return subparser

    run_parser = command("run", RUN_EXAMPLES)
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
        ("--fuse", "compile consecutive dispatches as one graph; the output stays the same", _FLAG),
        ("--x64", "enable 64-bit data types in JAX", _FLAG),
    )
    _add_options(
        run_parser.add_argument_group("ONNX models"),
        (
            "--input",
            "an array (.npy, .npz) or an image for an input, or only FILE.npz for all (default: random numbers)",
            {"action": "append", "default": [], "metavar": "NAME=FILE"},
        ),
        (
            "--shape",
            "the shape of a random input (default: 1 for each open size)",
            _pairs("NAME=1,3,224,224", _parse_sizes),
        ),
        ("--compare", "also run the model there, and print times and differences", {"choices": ("onnxruntime",)}),
    )
    check_parser = command("check", CHECK_EXAMPLES)
    _add_model_options(check_parser, may_be_folder=True)
    _add_options(
        check_parser,
        (
            "--weights",
            "the weights of an artifact that `dmljax compile` wrote for several chips",
            {"metavar": "FILE.npz"},
        ),
    )
    estimate_parser = command("estimate", ESTIMATE_EXAMPLES)
    _add_model_options(estimate_parser, may_be_folder=True)
    _add_options(
        estimate_parser,
        (
            "--for",
            "a chip such as h100, or several such as h100:8, v5e:16 or v5e:4x4; repeatable",
            {"action": "append", "required": True, "dest": "targets", "metavar": "CHIP"},
        ),
        (
            "--batch",
            "batch sizes for ONNX models whose first dimension is open (default: one example per chip)",
            {"type": _parse_count, "nargs": "+", "default": [], "metavar": "N"},
        ),
        ("--prompt", "tokens of each prompt of a language model (default: 512)", _COUNT | {"default": None}),
        ("--generate", "tokens that a language model adds to each prompt (default: 128)", _COUNT | {"default": None}),
        ("--gradient", "estimate the gradient of the weights, or of the inputs if there are none", _FLAG),
        ("--optimizer", "estimate a step of training, with the state of sgd, momentum or adamw", {"metavar": "NAME"}),
        ("--precision", "default, high or highest: of products of float32 (default: JAX's)", {"metavar": "NAME"}),
        ("--dtype", "bfloat16 or float16, for float32 in the file (default: the file's)", {"metavar": "TYPE"}),
        ("--extrapolate", "compile 2 and 4 of a model's equal layers, and extrapolate to all", _FLAG),
        _MESH,
    )
    compile_parser = command("compile", COMPILE_EXAMPLES)
    _add_model_options(compile_parser, is_one=True, may_be_open=True)
    _add_options(
        compile_parser,
        (
            "--for",
            "cpu, a chip such as h100, or several such as cpu:8, h100:8, v5e:16 or v5e:4x4; repeatable",
            {"action": "append", "required": True, "dest": "targets", "metavar": "CHIP"},
        ),
        (
            "--batch",
            "the batch size of an ONNX model (default: it stays open)",
            _COUNT | {"default": None},
        ),
        _MESH,
        ("-o --output", "the file to write", {"required": True, "metavar": "FILE"}),
    )
    generate_parser = command("generate", GENERATE_EXAMPLES)
    generate_parser.add_argument("folder", type=Path, help="the folder of the model")
    generate_parser.add_argument(
        "prompt", nargs="?", help="the text to continue or to show (default: the standard input)"
    )
    _add_options(generate_parser, ("--seed", "the seed of what is drawn", _SEED))
    _add_options(
        generate_parser.add_argument_group("language models"),
        ("--chat", "converse: each line is a message, and the folder's template puts them together", _FLAG),
        (
            "--audio",
            "what a model with an encoder hears: an array of features, with a batch of 1",
            {"metavar": "FILE.npy"},
        ),
        ("--max_length", "most tokens, with the prompt; caches have room for as many", _COUNT | {"default": None}),
        ("--min_length", "tokens before which the text does not end", _COUNT | {"default": None}),
        ("--do_sample", "draw tokens instead of the likeliest", _FLAG | {"default": None}),
        ("--temperature", "above 1 for more even probabilities, below 1 for less even ones", _NUMBER),
        ("--top_k", "draw from the likeliest K tokens; 0 for all", _COUNT | {"type": _parse_integer, "default": None}),
        ("--top_p", "draw from the fewest tokens whose probabilities add up to P", _NUMBER),
        ("--repetition_penalty", "above 1, tokens that came before are less likely", _NUMBER),
        (
            "--no_repeat_ngram_size",
            "never write N tokens in a row again; 0 for no limit",
            _COUNT | {"type": _parse_integer, "default": None},
        ),
    )
    _add_options(
        generate_parser.add_argument_group("diffusion models"),
        ("-o --output", "the picture to write", {"type": Path, "metavar": "FILE"}),
        ("--negative", "a text that the picture should not show", {"metavar": "TEXT"}),
        ("--steps", "the number of steps (default: 50)", _COUNT | {"default": None}),
        ("--guidance", "above 1, follows the prompt more closely (default: 7.5)", _NUMBER),
        ("--height", "the picture's height (default: the model's)", _COUNT | {"default": None}),
        ("--width", "the picture's width (default: the model's)", _COUNT | {"default": None}),
        ("--scheduler", "ddim, pndm, euler, euler_ancestral, lcm or dpmsolver++", {"metavar": "NAME"}),
    )
    ops_parser = command("ops", OPS_EXAMPLES)
    ops_parser.add_argument("words", nargs="*", help="words in the names of the operators to list, or what they do")
    _add_options(ops_parser, ("--markdown", "print a Markdown table", _FLAG))
    explain_parser = command("explain", EXPLAIN_EXAMPLES)
    explain_parser.add_argument(
        "words", nargs="+", help="name of an operator, such as one_hot or DML_OPERATOR_ONE_HOT, or what it does"
    )
    return parser


def _add_model_options(
    parser: argparse.ArgumentParser,
    *,
    is_one: bool = False,
    may_be_folder: bool = False,
    may_be_open: bool = False,
) -> None:
    kinds = "DxDispatch (.json, or - for the standard input), ONNX (.onnx) or a serialized graph (.bin)"
    kinds = f"a language model's folder, {kinds}" if may_be_folder else kinds
    if is_one:
        parser.add_argument("model", help=kinds)
    else:
        parser.add_argument("models", nargs="+", metavar="model", help=kinds)
    _add_options(
        parser,
        ("--input_path", "the folder of the files that the model reads (default: the model's folder)", _FOLDER),
        (
            "--dml_feature_level",
            "DirectML feature level to check against, such as 3_0 or 6.2 (default: 6_4)",
            {"type": _parse_level, "metavar": "LEVEL"},
        ),
    )
    _add_options(
        parser.add_argument_group("sizes of ONNX models, which override those in a DxDispatch model"),
        (
            "-f --onnx_free_dim_name_override",
            f"the size of open dimensions by name, repeatable{'; 8*h is an open multiple of 8' if may_be_open else ''}",
            _pairs("NAME:SIZE", _parse_open_size if may_be_open else _parse_integer),
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
    """Adds options: names, help, and how to read them."""
    for names, help_text, reading in options:
        default = f" (default: {reading['default']})" if type(reading.get("default")) is int else ""
        parser.add_argument(*names.split(), help=help_text + default, **reading)


def _pairs(form: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Returns how to read a repeatable option of this form: a name, a colon or equals sign, and what `parse` reads."""

    def read(text: str) -> tuple[str, Any]:
        name, _, value = text.rpartition("=" if "=" in form else ":")
        if not name or not value:
            raise argparse.ArgumentTypeError(f"must be {form}; got {text!r}")
        return name, parse(value)

    return {"type": read, "action": "append", "default": [], "metavar": form}


def _parse_level(text: str) -> Any:
    with quiet():
        from dmljax.directml import FeatureLevel
    from dmljax.foundation.checks import parse_enum

    try:
        return parse_enum(FeatureLevel, (), text.replace(".", "_"))
    except dmljax.DmlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


UINT_MAX = 2**32 - 1


def _parse_integer(text: str, lowest: int = 0) -> int:
    if not text.isdecimal() or not lowest <= int(text) <= UINT_MAX:
        raise argparse.ArgumentTypeError(f"must be a whole number in [{lowest}, {UINT_MAX}]; got {text!r}")
    return int(text)


def _parse_open_size(text: str) -> int | tuple[int, str]:
    """A size, or the factor and the symbol of a size that is a multiple, such as 8*height."""
    factor, star, symbol = text.partition("*")
    return (_parse_count(factor), symbol) if star and symbol.isidentifier() else _parse_integer(text)


def _parse_count(text: str) -> int:
    return _parse_integer(text, 1)


def _parse_mesh(text: str) -> Sequence[tuple[str, int]]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise argparse.ArgumentTypeError(f"must give each axis a size once, as in data=32,model=8; got {text!r}")
    return [(name, _parse_count(size)) for name, _, size in pairs]


def _parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(map(_parse_integer, text.split(",")))


_MESH = (
    "--mesh",
    "the mesh that the chips form; its first axis divides the inputs, `model` the weights of an ONNX model",
    {"type": _parse_mesh, "default": (), "metavar": "data=32,model=8"},
)
_FLAG = {"action": "store_true"}
_FOLDER = {"type": Path, "metavar": "FOLDER"}
_COUNT = {"type": _parse_count, "default": 1, "metavar": "N"}
_NUMBER = {"type": float, "metavar": "X"}
_SEED = {"type": _parse_integer, "default": 0, "metavar": "N"}
_MILLISECONDS = {"type": _parse_integer, "metavar": "MS"}
