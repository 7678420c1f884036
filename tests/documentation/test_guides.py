"""The code of the site's guides and recipes runs, and prints the output shown below it."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from helpers import few_of

ROOT = Path(__file__).parents[2]
GUIDES = [ROOT / "notebooks" / name for name in ("index.md", "recipes.md")]
GUIDES += sorted((ROOT / "notebooks").glob("for-*.md"))


@contextlib.contextmanager
def as_users_have_it() -> Iterator[None]:
    """Uses JAX's default settings, on which the printed random numbers depend."""
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        yield


# The recipes take longer than all others.
@pytest.mark.parametrize("path", few_of(GUIDES, *(x for x in GUIDES if x.stem != "recipes")), ids=lambda x: x.stem)
@pytest.mark.gate(but=2)
def test_a_guides_code_prints_the_output_shown_below_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the extra `pictures` is not installed").use("agg")
    monkeypatch.chdir(tmp_path)  # one writes a picture
    Path("notebooks").symlink_to(ROOT / "notebooks")  # one reads a model in notebooks/models
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        said = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
        with contextlib.redirect_stdout(io.StringIO()) as output, as_users_have_it():
            exec(block, names)
        assert output.getvalue().splitlines() == said, block


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)
def test_a_guide_has_code_and_none_of_its_lines_is_clipped(path: Path) -> None:
    blocks = re.findall(r"```(?:python|console)\n(.*?)```", path.read_text(), re.DOTALL)
    assert blocks
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 88
