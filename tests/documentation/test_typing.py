"""Type checkers accept the documented code, as users write it in their own programs.

Needs the extra `lint`; a type checker that is missing is skipped. Both take half a minute.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documented_code import ROOT, programs
from helpers import GATE

pytestmark = GATE


# Expected messages: words of each, by program, with the reason.
KNOWN = {
    "docstring_InvalidType": {"list[float]": "the example shows what is refused"},
    "notebook_1_from_jax_numpy": {"list[float]": "the notebook shows what is refused"},
    "notebook_6_directml_programs": {'"type"': "a graph has no `type`, but this model only has operators"},
    "notebook_7_many_devices": {
        "findall": "JAX may have no text of a compiled program",
        "str | None": "likewise",
        '"shape"': "JAX declares that an exported program returns functions",
    },
    "notebook_8_style_transfer": {
        "ndarray": "matplotlib's sample data are files or arrays",
        "imread": "likewise",
        "IO[": "likewise",
        "Params": "optax's parameters are any tree",
    },
    "notebook_9_graphs": {
        "OptionalScaleBias": "pyright assumes that a dictionary's keys may be any argument",
        "findall": "JAX may have no text of a compiled program",
        "str | None": "likewise",
        "spec": "only JAX's named shardings have a spec",
    },
    "notebook_10_onnx_models": {
        "StrPath": "a package may be without a file",
        "list[object]": "mypy infers `object` for a list of names and sizes",
        "pyplot": "matplotlib exports itself there",
    },
    "notebook_11_onnx_shapes": {"JitWrapped": "a name holds a model first and a jitted model later"},
    "notebook_12_fine_tuning": {
        "SparseTensor": "ONNX Runtime's results may be sparse",
        "__getitem__": "likewise",
        "slice": "likewise",
    },
    "notebook_13_training_on_a_mesh": {
        "SparseTensor": "ONNX Runtime's results may be sparse",
        "__getitem__": "likewise",
        "slice": "likewise",
    },
    "page_for-jax": {"tril": "the example shows what is refused"},
    "page_serving": {"bytearray": "JAX also reads an exported program from bytes"},
    "page_adam_optimizer": {
        "positional": "a type checker does not count the leaves of a tree",
        "Literal[0]": "the structure of a tree may have any leaves",
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, each in a file."""
    place = tmp_path_factory.mktemp("documented")
    for name, text in programs():
        (place / f"{name}.py").write_text(text)
    return place


def said_by_mypy(folder: Path) -> Iterator[tuple[str, str]]:
    options = ["--ignore-missing-imports", "--allow-redefinition", "--no-strict-optional", "--config-file="]
    run = [sys.executable, "-m", "mypy", *options, "--output=json", "--cache-dir=mypy", "."]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    checked = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert checked.returncode in (0, 1), checked.stderr
    for error in map(json.loads, checked.stdout.splitlines()):
        yield Path(error["file"]).stem, error["message"]


def said_by_pyright(folder: Path) -> Iterator[tuple[str, str]]:
    # JAX declares that many methods may return None; libraries of the notebooks may be missing.
    off = dict.fromkeys(("reportOptionalMemberAccess", "reportMissingImports"), False)
    options = {"typeCheckingMode": "basic", "extraPaths": [str(ROOT)], **off}
    (folder / "pyrightconfig.json").write_text(json.dumps(options))
    run = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    checked = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    assert checked.returncode in (0, 1), checked.stderr
    for error in json.loads(checked.stdout)["generalDiagnostics"]:
        if error["severity"] == "error":
            yield Path(error["file"]).stem, error["message"]


@pytest.mark.parametrize(("checker", "said_by"), [("mypy", said_by_mypy), ("basedpyright", said_by_pyright)])
def test_the_documented_code_is_typed(checker: str, said_by: Any, folder: Path) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    said = list(said_by(folder))
    assert ("docstring_InvalidType", "list[float]") in [
        (program, word) for program, message in said for word in KNOWN.get(program, ()) if word in message
    ]  # the checker has run
    unknown = [
        (program, message) for program, message in said if not any(map(message.__contains__, KNOWN.get(program, ())))
    ]
    assert "\n".join(f"{program}: {message}" for program, message in unknown) == ""
