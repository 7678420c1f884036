"""Generated files are up to date."""

from pathlib import Path

import pytest
from generated import GENERATED
from helpers import GATE

PATHS = [pytest.param(path, marks=GATE if path.name == "at-a-glance.md" else ()) for path in GENERATED]


@pytest.mark.parametrize("path", PATHS, ids=[path.name for path in GENERATED])
def test_a_generated_file_is_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    assert path.read_text() == GENERATED[path](), "run python tests/tools/generated.py"
