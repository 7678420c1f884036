"""The command line of `python -m dmljax.run`: options before the program, whose arguments follow it."""

import sys
from typing import NamedTuple, NoReturn

_USAGE = """\
usage: python -m {name} [options] PROGRAM.py [arguments]
       python -m {name} [options] -m MODULE [arguments]
       python -m {name} [options] -c CODE [arguments]
"""

_HELP = """\
Runs a Python program that uses ONNX Runtime, ONNX Runtime GenAI or PyDirectML, unchanged. In its process, `import
onnxruntime`, `import onnxruntime_genai` and `import pydirectml` get dmljax's modules, whether or not the libraries are
installed. They run models with JAX, on the device that JAX chooses.

options, which stand before the program:
  -m MODULE       run a module, or a package's __main__, as `python -m` does
  -c CODE         run a text, as `python -c` does
  --show-missing  run nothing; list the names that the program uses and that dmljax lacks or ignores
  --no-cache      do not keep compiled programs, nor look for them
  -h, --help      show this help message and exit

variables:
  JAX_PLATFORMS=cpu                     compute on the CPU; cuda and tpu need JAX's packages for them
  CUDA_VISIBLE_DEVICES=1                choose a GPU
  JAX_DEFAULT_MATMUL_PRECISION=highest  multiply float32 in full on GPUs and TPUs, which round its factors by default
  DMLJAX_NO_CACHE=1                     the same as --no-cache

examples:
  python -m {name} detect.py --image cat.png        # --image is an option of detect.py
  python -m {name} -m magika report.pdf             # an installed package
  python -m {name} --show-missing detect.py         # also reads the modules in its folder that it imports

What XLA compiles stays in your cache folder, so that the next start is quicker; `dmljax cache` says where that is and
clears it.

The exit status is the program's, or 130 if an interrupt ended it. With --show-missing it is 0 if no name is missing, 1
if one is, and 2 if a file cannot be read."""

FLAGS = ("--show-missing", "--no-cache")


class Command(NamedTuple):
    """What the command line asks for."""

    form: str  # of the program: "file", "-m" or "-c"
    program: str  # a path, the name of a module, or code
    arguments: list[str]
    flags: frozenset[str]


def read_command(name: str, arguments: list[str]) -> Command:
    """Reads the arguments of the module `name`; prints the help or an error, and exits, if they name no program."""
    flags, rest = set(), [*arguments]
    while rest:
        argument = rest.pop(0)
        if argument in FLAGS:
            flags.add(argument)
        elif argument in ("-h", "--help"):
            print(f"{_USAGE}\n{_HELP}".format(name=name))
            sys.exit()
        elif argument[:2] in ("-m", "-c"):
            text = [argument[2:]] if argument[2:] else rest[:1]  # `-mMODULE` is Python's as well
            if not text:
                wanted = "the name of a module" if argument == "-m" else "code"
                exit_with_error(f"{argument} needs {wanted} after it")
            return Command(argument[:2], text[0], rest if argument[2:] else rest[1:], frozenset(flags))
        elif argument.startswith("-"):
            from dmljax.text import did_you_mean

            hint = did_you_mean(argument, (*FLAGS, "--help")) or f", python -m {name} --help lists the options"
            exit_with_error(f"unrecognized option: {argument}", hint.removeprefix(", "))
        else:
            return Command("file", argument, rest, frozenset(flags))
    print(_USAGE.format(name=name), f"tip: python -m {name} --help explains", sep="\n", file=sys.stderr)
    sys.exit(2)


def exit_with_error(message: str, tip: str | None = None) -> NoReturn:
    """Prints an error and a tip as the command `dmljax` does, and exits."""
    print(f"error: {message}", *([f"tip: {tip}"] if tip else []), sep="\n", file=sys.stderr)
    sys.exit(2)
