"""Runs a program of a foreign library unchanged: `python -m dmljax.run [options] program.py [arguments]`.

`import pydirectml`, `import onnxruntime` and `import onnxruntime_genai` get dmljax's modules, in that process only, and
even where the libraries themselves are installed.
"""

import atexit
import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_tb
from types import ModuleType, TracebackType
from typing import Any

from dmljax.foundation import interrupts
from dmljax.foundation.programs.store import NO_CACHE
from dmljax.run.options import Command, exit_with_error, read_command

MODULES = {
    "pydirectml": "dmljax.pydirectml",
    "onnxruntime": "dmljax.run.onnxruntime",
    "onnxruntime_genai": "dmljax.run.onnxruntime_genai",
}

ELSEWHERE = {
    "torch_directml": "dmljax does not run PyTorch's own networks; export the network with torch.onnx.export, and run "
    "the file with onnxruntime",
}  # libraries of DirectML without a module of dmljax, and what to use; they stay what they are where they are installed

INSTALLED_PARTS = {
    "onnxruntime": ("backend", "datasets", "quantization", "tools", "transformers"),
    "onnxruntime_genai": ("models",),
}  # which are Python, and which dmljax takes from the libraries' own packages


def main(name: str) -> None:
    """Runs the program that is named after the module `name` on the command line."""
    command = read_command(name, sys.argv[1:])
    if command.form == "file" and not Path(command.program).exists():
        exit_with_error(f"{command.program}: no such file", "-m runs a module")
    if command.form == "file":
        _require_program(Path(command.program))
    if "--show-missing" in command.flags:
        from dmljax.run.missing import show_missing

        sys.exit(show_missing(command))
    if "--no-cache" in command.flags:
        os.environ[NO_CACHE] = "1"
    sys.argv = [command.program if command.form != "-c" else "-c", *command.arguments]
    sys.meta_path.insert(0, _Finder())
    interrupts.install_for_programs()
    try:
        _run(command)
    except KeyboardInterrupt:
        interrupts.end_program()
    except BaseException as error:
        if _is_of_runpy(error) or _is_of_stand_in(error):
            exit_with_error(str(error))
        _hide_frames_before(_frames_of_program(error))
        raise


_COMMANDS = {
    **dict.fromkeys((".bin", ".json", ".mlir", ".onnx", ".stablehlo"), "dmljax run {}"),
    ".ort": "convert it to ONNX, for dmljax run",
}  # that take other files than programs


def _require_program(path: Path) -> None:
    """Exits with the command to use if a file is a model, which Python might read as a program without effect."""
    command = _COMMANDS.get(path.suffix.lower()) if path.is_file() else None
    if (path / "genai_config.json").is_file():
        command = "dmljax generate {} PROMPT"
    if command is not None:
        exit_with_error(f"{path}: not a Python program", command.format(path))


def _run(command: Command) -> None:
    """Runs a program as Python does, which puts the place of its modules before all others."""
    if command.form == "file":
        path = Path(command.program).resolve()
        _put_first(str(path if path.is_dir() else path.parent))
        runpy.run_path(command.program, run_name="__main__")
    elif command.form == "-m":
        _put_first(str(Path.cwd()))
        runpy.run_module(command.program, run_name="__main__", alter_sys=True)
    else:
        _put_first("")
        module = sys.modules["__main__"] = ModuleType("__main__")  # where pickle looks for its classes
        exec(compile(command.program, "<string>", "exec"), vars(module))  # noqa: S102  # the user's code


def _put_first(folder: str) -> None:
    """Replaces the folder that Python has put before all others for `dmljax.run` itself."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _frames_of_program(error: BaseException) -> TracebackType | None:
    """Returns the traceback from the program's first line on; None if Python has run none."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not _run.__code__:
        traceback = traceback.tb_next
    traceback = traceback and traceback.tb_next
    machinery = (runpy.run_module.__code__.co_filename, "<frozen importlib")
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(machinery):
        traceback = traceback.tb_next
    return traceback


def _hide_frames_before(traceback: TracebackType | None) -> None:
    """Passes the error that ends the program to the hook that prints it, with `traceback`."""
    hook = sys.excepthook

    def print_error(kind: type[BaseException], error: BaseException, whole: TracebackType | None) -> None:
        sys.excepthook = hook  # for what `python -i` runs next
        hook(kind, error.with_traceback(traceback), traceback)

    sys.excepthook = print_error


def _is_of_runpy(error: BaseException) -> bool:
    """Whether Python has found nothing to run, rather than failed to import what a program asks for."""
    return isinstance(error, ImportError) and _frames_of_program(error) is None


def _is_of_stand_in(error: BaseException) -> bool:
    """Whether importing dmljax's own module has failed, because a package that it needs is absent."""
    frames = walk_tb(error.__traceback__)
    is_refusal = isinstance(error, NotImplementedError)
    return is_refusal and any(frame.f_code is _Loader.create_module.__code__ for frame, _ in frames)


class _Finder:
    """Finds dmljax's modules under the names of the foreign ones."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library, dot, inner = fullname.partition(".")
        if library in ELSEWHERE and PathFinder.find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {fullname!r}: {ELSEWHERE[library]}", name=fullname)
        if library not in MODULES:
            return None
        part, inside_part, _ = inner.partition(".")
        if part in INSTALLED_PARTS.get(library, ()):
            return None if inside_part else _find_installed(library, part)
        module_name = MODULES[library] + dot + inner
        if not _has_module(module_name):
            message = f"No module named {fullname!r}: dmljax's version of {library} does not have it"
            raise ModuleNotFoundError(message, name=fullname)
        loader: Any = _Loader(module_name)  # importlib.abc has its type, but takes longer to import than the rest
        return ModuleSpec(fullname, loader)


def _find_installed(library: str, part: str) -> ModuleSpec:
    """Finds a part of a foreign library in its own package."""
    name = f"{library}.{part}"
    package = PathFinder.find_spec(library)
    spec = PathFinder.find_spec(name, package.submodule_search_locations) if package else None
    if spec is None:
        message = f"No module named {name!r}: dmljax takes it from {library}'s own package (pip install {library})"
        raise ModuleNotFoundError(message, name=name)
    return spec


def _has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # inside a module that is no package
        return False


def find_stand_in(name: str) -> str | None:
    """Finds the module of dmljax for a foreign one; None if the library's own is taken."""
    spec = _Finder().find_spec(name)
    return spec.loader.module_name if spec is not None and isinstance(spec.loader, _Loader) else None


class _Loader:
    def __init__(self, module_name: str) -> None:
        self.module_name = module_name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        with interrupts.delay():
            module = importlib.import_module(self.module_name)
            _open_cache()
            atexit.register(interrupts.skip_teardown)  # JAX's, which may crash after an interrupt
        return module

    def exec_module(self, module: ModuleType) -> None:
        return  # importing it has run it


def _open_cache() -> None:
    from dmljax.foundation.programs.compiling import open_cache

    open_cache(lambda line: print(f"dmljax: {line}", file=sys.stderr))
