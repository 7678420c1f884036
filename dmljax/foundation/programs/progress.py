"""Reports how far long work is, such as reading weights or compiling.

Reports go to a listener, such as a `ProgressLine`; without one, to the logger `dmljax`, at the level DEBUG.
"""

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Event, RLock, Thread
from typing import Any, NamedTuple


class Progress(NamedTuple):
    """The stage of long work, and how much of it is done: `unit` counts `done` and `total`, where they are known.

    >>> print(Progress("reading weights", 5_000_000, 80_000_000, "B"))
    reading weights: 5 of 80 MB
    >>> print(Progress("compiling the prompt", 1, 2, "program"))
    compiling the prompt: program 1 of 2
    """

    stage: str
    done: float | None = None
    total: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.stage}: {amount}" if (amount := self._amount()) else self.stage

    def _amount(self) -> str:
        done, total, unit = self.done, self.total, self.unit
        if unit == BYTES and done is not None:
            scale, unit = next((each for each in _SCALES if max(done, total or 0) >= each[0]), (1, unit))
            of_total = "" if total is None else f" of {total / scale:.3g}"
            return f"{done / scale:.3g}{of_total} {unit}"
        if done is None:
            return "" if total is None else _count(total, unit)
        if total is None:
            return _count(done, unit)
        return f"{unit} {done:g} of {total:g}"


def _count(number: float, unit: str) -> str:
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


BYTES = "B"
_SCALES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))

Listener = Callable[[Progress], Any]


class _Subscriber:
    """A listener, and what it was told last."""

    latest: Progress | None = None

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def tell(self, progress: Progress) -> None:
        self.latest = progress
        self.listener(progress)


_subscriber: ContextVar[_Subscriber | None] = ContextVar("subscriber", default=None)


_logger = logging.getLogger("dmljax")


def has_listener() -> bool:
    """Whether reports go anywhere."""
    return _subscriber.get() is not None or _logger.isEnabledFor(logging.DEBUG)


def report(stage: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
    """Reports a stage and how far it is to the listener, or to the logger."""
    subscriber = _subscriber.get()
    if subscriber is not None:
        subscriber.tell(Progress(stage, done, total, unit))
    elif _logger.isEnabledFor(logging.DEBUG):
        _logger.debug("%s", Progress(stage, done, total, unit))


@contextmanager
def report_again() -> Iterator[None]:
    """Reports again what was reported before, after other stages inside."""
    subscriber = _subscriber.get()
    before = None if subscriber is None else subscriber.latest
    yield
    if subscriber is not None and before is not None:
        subscriber.tell(before)


@contextmanager
def listen(progress: Any) -> Iterator[None]:
    """Lets `progress` hear all reports: a function of a `Progress`, or True to show them; None keeps the listener."""
    if progress is None or progress is False:
        yield
        return
    if progress is True:
        line = ProgressLine(sys.stderr, patience=0.0, is_redrawn=can_redraw(sys.stderr))
        with show_line(line), _subscribe(line):
            yield
        return
    if not callable(progress):
        from dmljax.errors import InvalidType, Problem  # imports JAX, which a command need not wait for
        from dmljax.text import show

        raise InvalidType(Problem("progress", "must be True, False or a function", show(progress)))
    with _subscribe(progress):
        yield


@contextmanager
def _subscribe(listener: Listener) -> Iterator[None]:
    token = _subscriber.set(_Subscriber(listener))
    try:
        yield
    finally:
        _subscriber.reset(token)


TICK = 0.25  # seconds between drawings
REPEAT = 10.0  # seconds between lines where they cannot be redrawn


def can_redraw(stream: Any) -> bool:
    """Whether a stream is a terminal that can clear a line."""
    return bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """Shows progress on one line of a terminal, which it redraws, or as plain lines.

    Nothing is written in the first seconds, the `patience`. Then a redrawn line shows the seconds pass even while the
    main thread compiles, and a plain line is written when the stage changes, and every ten seconds.
    """

    def __init__(self, stream: Any, *, patience: float, is_redrawn: bool) -> None:
        self._stream, self._patience, self._is_redrawn = stream, patience, is_redrawn
        self._lock = RLock()
        self._begin = self._stage_begin = time.monotonic()
        self._progress: Progress | None = None
        self._first: tuple[float, float] | None = None  # when the stage's amount was first known, and the amount
        self._drawn = ""
        self._written: tuple[str, float] = "", 0.0  # the last plain line's stage, and when it was written
        self.is_at_start = True  # of a line: other output ended with its line

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            now = time.monotonic()
            if self._progress is None or progress.stage != self._progress.stage:
                self._stage_begin, self._first = now, None
            if self._first is None and progress.done is not None:
                self._first = now, progress.done
            self._progress = progress
            if not self._is_redrawn and now - self._begin >= self._patience and self.is_at_start:
                self._write_line(now)

    def draw(self) -> None:
        """Shows what was heard last, unless other output has not ended its line."""
        with self._lock:
            now = time.monotonic()
            if self._progress is None or now - self._begin < self._patience or not self.is_at_start:
                return
            if not self._is_redrawn:
                self._write_line(now)
                return
            text = self._describe(now)[: shutil.get_terminal_size().columns - 1]
            if text != self._drawn:
                self._write(f"\r{text}\033[K")
                self._drawn = text

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Clears the line, and draws nothing in the meantime."""
        with self._lock:
            if self._drawn:
                self._write("\r\033[K")
                self._drawn = ""
            yield

    def end(self) -> None:
        """Makes room for the last line of an interrupted process, and draws nothing any more."""
        self._lock.acquire(timeout=TICK)  # the thread that has it may be stuck, and the others shall be
        if can_redraw(self._stream):
            # Also removes the ^C that a terminal shows.
            self._write("\r\033[K" if self.is_at_start else "\n")

    def _write_line(self, now: float) -> None:
        stage, written = self._written
        if self._progress is not None and (self._progress.stage != stage or now - written >= REPEAT):
            self._written = self._progress.stage, now
            self._write(f"{self._describe(now)}\n")

    def _describe(self, now: float) -> str:
        """The progress with the seconds of its stage, and a rate where tokens are counted."""
        assert self._progress is not None  # noqa: S101  # callers have checked
        text, seconds = str(self._progress), now - self._stage_begin
        if self._progress.unit == "token" and self._first is not None and self._progress.done is not None:
            begin, before = self._first
            count = self._progress.done - before
            return f"{text}, {count / (now - begin):.1f} per second" if count and now > begin else text
        if seconds < 1:
            return text
        return f"{text}{', ' if ': ' in text else ': '}{seconds:.0f} s"

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more
            self._stream.write(text)
            self._stream.flush()


@contextmanager
def show_line(line: ProgressLine) -> Iterator[ProgressLine]:
    """Draws a line again and again, and clears it at the end."""
    is_done = Event()

    def draw_often() -> None:
        while not is_done.wait(TICK):
            line.draw()

    drawer = Thread(target=draw_often, daemon=True)
    drawer.start()
    try:
        yield line
    finally:
        is_done.set()
        drawer.join()
        with line.pause():
            pass
