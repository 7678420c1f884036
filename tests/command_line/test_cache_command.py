"""`dmljax cache`: where compiled programs are, how large they are, and how they go."""

import json
from pathlib import Path

import pytest

from dmljax.command_line.cli import main
from dmljax.foundation.programs.store import LIMIT, ProgramStore


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "dmljax"


def test_it_says_where_programs_are_and_how_large(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 0
    ProgramStore(folder).put("key", bytes(1_500_000))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{folder}: no programs, 0.0 MB\n{folder}: 1 program, 1.5 MB\n"


def test_it_removes_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ProgramStore(folder).put("key", bytes(1_500_000))
    (folder / "of-somebody-else").touch()
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{folder}: removed 1 program, 1.5 MB\n"
    assert [path.name for path in folder.iterdir()] == ["of-somebody-else"]


def test_it_prints_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"folder": str(folder), "programs": 0, "bytes": 0, "limit": LIMIT, "cleared": False}
