"""Generated files are up to date."""

from pathlib import Path

import pytest
from generated import GENERATED


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_a_generated_file_is_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    assert path.read_text() == GENERATED[path](), "run python tests/tools/generated.py"
