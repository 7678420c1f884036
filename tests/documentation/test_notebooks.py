"""The notebooks run from top to bottom in under a minute each, in a folder with the models that they name at most.

They print what they show, and need the extra `notebooks`. They run with `--notebooks`, as in the gate; together they
take two minutes of a core.
`pytest tests/documentation/test_notebooks.py --write-notebooks` writes their output and drawings into the files.
"""

import ast
import base64
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_reproduces_its_stored_output(
    path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    if not pytestconfig.getoption("--notebooks") and not pytestconfig.getoption("--write-notebooks"):
        pytest.skip("runs with --notebooks")
    import nbformat  # these take seconds to import
    from nbclient import NotebookClient

    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    if "models/gpt.onnx" in path.read_text():
        shutil.copytree(NOTEBOOKS / "models", here / "models")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    executed = nbformat.from_dict(stored)
    place = {"metadata": {"path": str(here)}}
    NotebookClient(executed, timeout=600, kernel_name="python3", resources=place, record_timing=False).execute()
    # ONNX Runtime itself writes `.ses`.
    assert not [path for path in (*here.iterdir(), *temporary.iterdir()) if path.name not in (".ses", "models")]
    if pytestconfig.getoption("--write-notebooks"):
        executed.metadata = {"kernelspec": executed.metadata["kernelspec"], "jax": jax.__version__}
        nbformat.write(executed, path)
        return
    for before, after in zip(_code_cells(stored), _code_cells(executed), strict=True):
        assert _count(before, "image/png") == _count(after, "image/png"), before.source
        assert bool(before.outputs) == bool(after.outputs), before.source
        # Another version of JAX may print something else; a cell with this tag always does.
        if stored.metadata["jax"] == jax.__version__ and "varies" not in before.metadata.get("tags", ()):
            assert _text(before) == _text(after), before.source


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_can_be_read_without_running_it(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    code, prose = ([cell for cell in cells if cell["cell_type"] == kind] for kind in ("code", "markdown"))
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(output["output_type"] in ("stream", "display_data") for output in outputs)
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]
    assert not [cell["source"] for cell in code if _shows("".join(cell["source"])) and not cell["outputs"]]
    assert (prose[0], prose[-1]) == (cells[0], cells[-1])
    assert prose[0]["source"][0].startswith("# ")
    assert len(prose) >= len(code) // 2
    last = "".join(prose[-1]["source"])
    assert re.search(r"(Next:\*\*|^## Where to go from here)", last)
    for name in re.findall(r"\]\(([^)]+)\)", last):
        assert (NOTEBOOKS / name).exists()


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_picture_that_is_not_transparent_says_whether_it_turns_dark_with_the_page(path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra `images` is not installed")
    for cell in json.loads(path.read_text())["cells"]:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", ()):
                data = base64.b64decode("".join(output["data"]["image/png"]))
                *_, alpha = image.open(io.BytesIO(data)).convert("RGBA").getpixel((0, 0))
                assert alpha == 0 or cell["metadata"]["mystnb"]["image"].get("classes") in ("plot", "photo")


def _shows(source: str) -> bool:
    """Whether a cell ends with a value, or calls `print` or `show` outside of what it defines."""
    cell = ast.parse(source)
    last, waiting = cell.body[-1], list[ast.AST]([cell])
    if isinstance(last, ast.Expr) and not isinstance(last.value, ast.Call):
        return True
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("print", "show")):
            return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return False


def _code_cells(notebook: Any) -> Any:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def _count(cell: Any, kind: str) -> int:
    return sum(kind in output.get("data", ()) for output in cell.outputs)


def _text(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
