"""The notebooks run from top to bottom in under a minute each, beside the folder `models`, and print what they show.

They need the extra `notebooks`, and run with `--notebooks`, as in the gate; together they take two minutes of a core.
`pytest tests/test_notebooks.py --write-notebooks` writes their output and drawings into the files.
"""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import pytest

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_reproduces_its_stored_output(
    path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    if not pytestconfig.getoption("--notebooks") and not pytestconfig.getoption("--write-notebooks"):
        pytest.skip("runs with --notebooks")
    needed = re.findall(r"find_spec\(\"(\w+)\"\)", path.read_text().replace("\\", ""))
    if not all(map(importlib.util.find_spec, needed)):
        pytest.skip(f"needs {', '.join(needed)}, which this Python may not have")
    import nbformat  # these take seconds to import
    from nbclient import NotebookClient

    shutil.copytree(NOTEBOOKS / "models", tmp_path / "models")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    executed = nbformat.from_dict(stored)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(executed, timeout=120, kernel_name="python3", resources=place, record_timing=False).execute()
    if pytestconfig.getoption("--write-notebooks"):
        executed.metadata = {"kernelspec": executed.metadata["kernelspec"], "jax": jax.__version__}
        nbformat.write(executed, path)
        return
    for before, after in zip(_code_cells(stored), _code_cells(executed), strict=True):
        assert _count(before, "image/png") == _count(after, "image/png"), before.source
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
    assert (prose[0], prose[-1]) == (cells[0], cells[-1])
    assert prose[0]["source"][0].startswith("# ")
    assert len(prose) >= len(code) // 2
    last = "".join(prose[-1]["source"])
    assert re.search(r"(Next:\*\*|^## Where to go from here)", last)
    for name in re.findall(r"\]\(([^)]+)\)", last):
        assert (NOTEBOOKS / name).exists()


def _code_cells(notebook: Any) -> Any:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def _count(cell: Any, kind: str) -> int:
    return sum(kind in output.get("data", ()) for output in cell.outputs)


def _text(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
