"""The options that several commands have, and how to read them."""

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import dmljax
from dmljax.command_line.terminal import quiet, show_progress

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(subparsers: Subparsers, name: str, summary: str, examples: str) -> argparse.ArgumentParser:
    """Adds a command's parser, with the options that all commands have."""
    parser = subparsers.add_parser(
        name,
        help=summary.rstrip("."),
        description=summary,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(command=name)
    parser.add_argument("--json", action="store_true", help="print JSON for a program to read")
    parser.add_argument("-d", "--debug", action="store_true", help="print the traceback of an error")
    parser.add_argument("--no-cache", action="store_true", help="do not keep compiled programs, nor look for them")
    progress = parser.add_mutually_exclusive_group()
    progress.add_argument("--quiet", action="store_true", help="do not show how far the command is")
    progress.add_argument("--verbose", action="store_true", help="show it on lines of their own, also in files")
    return parser


def add_model_options(
    parser: argparse.ArgumentParser,
    *,
    is_one: bool = False,
    is_optional: bool = False,
    may_be_artifact: bool = False,
    may_be_folder: bool = False,
    may_be_open: bool = False,
) -> None:
    """Adds the model, or the models, and the options about reading them."""
    kinds = "DxDispatch (.json, or - for the standard input), ONNX (.onnx) or a serialized graph (.bin)"
    kinds = f"{kinds}, or what `dmljax compile` wrote" if may_be_artifact else kinds
    kinds = f"a language model's folder, {kinds}" if may_be_folder else kinds
    if is_one:
        parser.add_argument("model", help=kinds)
    else:
        parser.add_argument("models", nargs="*" if is_optional else "+", metavar="model", help=kinds)
    add_options(
        parser,
        ("--input_path", "the folder of the files that the model reads (default: the model's folder)", FOLDER),
        (
            "--dml_feature_level",
            "DirectML feature level to check against, such as 3_0 or 6.2 (default: 6_4)",
            {"type": _parse_level, "metavar": "LEVEL"},
        ),
    )
    add_options(
        parser.add_argument_group("sizes of ONNX models, which override those in a DxDispatch model"),
        (
            "-f --onnx_free_dim_name_override",
            f"the size of open dimensions by name, repeatable{'; 8*h is an open multiple of 8' if may_be_open else ''}",
            pairs_of("NAME:SIZE", _parse_open_size if may_be_open else parse_integer),
        ),
        (
            "-F --onnx_free_dim_denotation_override",
            "the same by denotation, repeatable",
            pairs_of("DENOTATION:SIZE", parse_integer),
        ),
        (
            "-b --binding_shape",
            "the shape of an input or output, repeatable",
            pairs_of("TENSOR:1,3,224,224", parse_sizes),
        ),
    )


def add_options(parser: argparse._ActionsContainer, *options: tuple[str, str, dict[str, Any]]) -> None:
    """Adds options: names, help, and how to read them."""
    for names, help_text, reading in options:
        default = f" (default: {reading['default']})" if type(reading.get("default")) is int else ""
        parser.add_argument(*names.split(), help=help_text + default, **reading)


def add_ignored_options(parser: argparse.ArgumentParser) -> None:
    """Adds DxDispatch's options that have no meaning for XLA, for scripts that set them."""
    for names, reading in (option for options in IGNORED.values() for option in options.items()):
        parser.add_argument(*names.split(), help=argparse.SUPPRESS, **{"default": None, **reading})
    names = ", ".join(name for options in IGNORED.values() for names in options for name in names.split()[-1:])
    parser.add_argument_group("DxDispatch's options that only give a warning", "\n  ".join(textwrap.wrap(names, 78)))


def find_ignored_options(options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Yields what DxDispatch's ignored options are about, with the names of those that the user set."""
    for subject, known in IGNORED.items():
        names = [names.split()[-1].removeprefix("--") for names in known]
        if names := [name for name in names if getattr(options, name) is not None]:
            yield subject, names


def pairs_of(form: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Returns how to read a repeatable option of this form: a name, a colon or equals sign, and what `parse` reads."""

    def read(text: str) -> tuple[str, Any]:
        name, _, value = text.rpartition("=" if "=" in form else ":")
        if not name or not value:
            raise argparse.ArgumentTypeError(f"must be {form}; got {text!r}")
        return name, parse(value)

    return {"type": read, "action": "append", "default": [], "metavar": form}


def _parse_level(text: str) -> Any:
    with show_progress(is_quiet="--quiet" in sys.argv, as_json=True), quiet():
        from dmljax.directml import FeatureLevel
    from dmljax.foundation.checks import parse_enum

    try:
        return parse_enum(FeatureLevel, (), text.replace(".", "_"))
    except dmljax.DmlError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


UINT_MAX = 2**32 - 1


def parse_integer(text: str, lowest: int = 0) -> int:
    """Parses a whole number that a UINT can hold."""
    if not text.isdecimal() or not lowest <= int(text) <= UINT_MAX:
        raise argparse.ArgumentTypeError(f"must be a whole number in [{lowest}, {UINT_MAX}]; got {text!r}")
    return int(text)


def _parse_open_size(text: str) -> int | tuple[int, str]:
    """A size, or the factor and the symbol of a size that is a multiple, such as 8*height."""
    factor, star, symbol = text.partition("*")
    return (parse_count(factor), symbol) if star and symbol.isidentifier() else parse_integer(text)


def parse_count(text: str) -> int:
    """Parses a whole number of at least 1."""
    return parse_integer(text, 1)


def _parse_mesh(text: str) -> Sequence[tuple[str, int]]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs) or len({name for name, _, _ in pairs}) < len(pairs):
        raise argparse.ArgumentTypeError(f"must give each axis a size once, as in data=32,model=8; got {text!r}")
    return [(name, parse_count(size)) for name, _, size in pairs]


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parses sizes between commas."""
    return tuple(map(parse_integer, text.split(",")))


MESH = (
    "--mesh",
    "the mesh that the chips form; its first axis divides the inputs, `model` the weights of an ONNX model",
    {"type": _parse_mesh, "default": (), "metavar": "data=32,model=8"},
)
FLAG = {"action": "store_true"}
FOLDER = {"type": Path, "metavar": "FOLDER"}
COUNT = {"type": parse_count, "default": 1, "metavar": "N"}
NUMBER = {"type": float, "metavar": "X"}
SEED = {"type": parse_integer, "default": 0, "metavar": "N"}
MILLISECONDS = {"type": parse_integer, "metavar": "MS"}
# The options of DxDispatch that have no meaning for XLA, by whose they are
IGNORED: dict[str, dict[str, dict[str, Any]]] = {
    "Direct3D": {
        "--max_gpu_time_measurements": {"type": parse_integer},
        "-q --queue_type": {"choices": ("compute", "direct")},
        "--disable_custom_heaps": FLAG,
        "--disable_gpu_timeout": FLAG,
        "--enable_dred": FLAG,
        "--disable_background_processing": FLAG,
        "--set_stable_power_state": FLAG,
        "--disable_agility_sdk": FLAG,
        "--print_hlsl_disassembly": FLAG,
        "--post_dispatch_barriers": {"choices": ("none", "uav", "uav+aliasing")},
        "-c --pix_capture_type": {"choices": ("gpu", "timing", "manual")},
        "-o --pix_capture_name": {},
        "--present_separator": FLAG,
        "--xbox_allow_precompile": FLAG,
    },
    "ONNX Runtime": {
        "-e --onnx_session_config_entry": pairs_of("KEY:VALUE", str) | {"default": None},
        "-l --onnx_graph_optimization_level": {"type": int, "choices": (0, 1, 2, 99)},
        "-L --onnx_logging_level": {"type": int, "choices": (0, 1, 2, 3, 4)},
        "-x --enable_ort_extensions": FLAG,
        "--enable_onnx_profiling": FLAG,
    },
}
