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


def test_long_work_says_what_it_is_and_then_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", 0.001)
    monkeypatch.setattr(terminal, "SIGN_OF_LIFE", 0.002)
    monkeypatch.setattr(sys, "stderr", written := Terminal(3))
    with terminal.announce("compiling a model"):
        assert written.has_all.wait(60)
    first, second, *_ = written.getvalue().splitlines()
    assert (first, second) == ("compiling a model", "compiling a model: 0 s")


def test_short_work_and_files_get_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", written := Terminal(1))
    with terminal.announce("compiling a model"):
        pass
    assert written.getvalue() == ""
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", file := StringIO())
    with terminal.announce("compiling a model"):
        assert not file.getvalue()
