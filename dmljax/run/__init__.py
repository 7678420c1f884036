"""Runs a program of a foreign library unchanged: `python -m dmljax.run [--no-cache] program.py [arguments]`.

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
from types import ModuleType
from typing import Any

from dmljax.foundation import interrupts

MODULES = {
    "pydirectml": "dmljax.pydirectml",
    "onnxruntime": "dmljax.run.onnxruntime",
    "onnxruntime_genai": "dmljax.run.onnxruntime_genai",
}

INSTALLED_PARTS = {
    "onnxruntime": ("backend", "datasets", "quantization", "tools", "transformers"),
}  # which are Python, and which dmljax takes from the libraries' own packages


def main(command: str) -> None:
    """Runs the program named on the command line with the arguments after it."""
    if sys.argv[1:2] == ["--no-cache"]:
        os.environ["DMLJAX_NO_CACHE"] = "1"
        del sys.argv[1]
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(f"usage: python -m {command} [--no-cache] program.py [arguments]")
        sys.exit(0 if len(sys.argv) > 1 else 2)
    program = sys.argv[1]
    if not Path(program).is_file():
        sys.exit(f"there is no file {program}")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(program).resolve().parent)
    sys.meta_path.insert(0, _Finder())
    interrupts.install_for_programs()
    try:
        runpy.run_path(program, run_name="__main__")
    except KeyboardInterrupt:
        interrupts.end_program()


class _Finder:
    """Finds dmljax's modules under the names of the foreign ones."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library, dot, inner = fullname.partition(".")
        if library not in MODULES:
            return None
        part, inside_part, _ = inner.partition(".")
        if part in INSTALLED_PARTS.get(library, ()):
            return None if inside_part else _find_installed(library, part)
        module_name = MODULES[library] + dot + inner
        if find_spec(module_name) is None:
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


class _Loader:
    def __init__(self, module_name: str) -> None:
        self._module_name = module_name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        with interrupts.delay():
            module = importlib.import_module(self._module_name)
            _open_cache()
            atexit.register(interrupts.skip_teardown)  # JAX's, which may crash after an interrupt
        return module

    def exec_module(self, module: ModuleType) -> None:
        return  # importing it has run it


def _open_cache() -> None:
    from dmljax.foundation.programs.compiling import open_cache

    open_cache(lambda line: print(f"dmljax: {line}", file=sys.stderr))
