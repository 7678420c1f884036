"""What commands write to a terminal while they work."""

import sys
from io import StringIO
from threading import Event

import pytest

from dmljax.command_line import terminal


class Terminal(StringIO):
    """A terminal that notices when it has so many lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._lines, self.has_all = lines, Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        if self.getvalue().count("\n") >= self._lines:
            self.has_all.set()


def test_slow_work_is_named_and_then_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", 0.001)
    monkeypatch.setattr(terminal, "SIGN_OF_LIFE", 0.002)
    monkeypatch.setattr(sys, "stderr", written := Terminal(3))
    with terminal.announce("compiling a model"):
        assert written.has_all.wait(60)
    first, second, *_ = written.getvalue().splitlines()
    assert (first, second) == ("compiling a model", "compiling a model: 0 s")


def test_fast_work_and_files_show_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := Terminal(1))
    with terminal.announce("compiling a model"):
        pass
    assert written.getvalue() == ""
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", file := StringIO())
    with terminal.announce("compiling a model"):
        assert not file.getvalue()
