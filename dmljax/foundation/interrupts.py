"""Ends a process at once after an interrupt, also while C++ compiles.

Python runs signal handlers between bytecodes of the main thread, so none runs while XLA compiles. The exceptions that
they raise crash NumPy's and JAX's imports, and are lost in callbacks. So a thread waits for signals, and ends the
process without JAX's teardown, which may crash as well. Only commands install it; an import never does.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

GRACE = 1.0  # seconds in which a program's main thread can run its handler
LAST_GRACE = 0.5  # seconds to write the last line, for which a full pipe has no room
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class _State:
    """The interrupts that this process has received."""

    number: int | None = None  # the signal that ends it
    is_handled = False  # the main thread came to run the handler
    delays = 0  # open blocks of `delay`
    is_delayed = False  # an interrupt is raised when they have
    is_ending = False
    stream: int | None = 2  # for the last line


_state = _State()
_cleanups: list[Callable[[], object]] = []


def install(*, is_silent: bool = False) -> None:
    """Makes SIGINT and SIGTERM end this process; a silent process leaves the last line to its parent."""
    # A copy, because the standard error may be redirected when a signal arrives.
    _state.stream = None if is_silent or sys.stderr is None else os.dup(2)
    for number in _WORDS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _note)
    _start_watching(_end_by)


def install_for_programs() -> None:
    """Makes SIGINT end this process if the main thread is stuck; otherwise the program decides what it does."""
    if signal.getsignal(signal.SIGINT) != signal.default_int_handler:
        return
    handler: Any = _raise
    signal.default_int_handler = handler  # asyncio cancels its tasks only where this is the handler
    signal.signal(signal.SIGINT, handler)
    _start_watching(_end_if_stuck)


@contextlib.contextmanager
def call_if_interrupted(cleanup: Callable[[], object]) -> Iterator[None]:
    """Calls `cleanup` if the process is interrupted in the meantime."""
    _cleanups.append(cleanup)
    try:
        yield
    finally:
        _cleanups.remove(cleanup)


@contextlib.contextmanager
def delay() -> Iterator[None]:
    """Delays a program's interrupt to the end of the block: it would crash the imports of NumPy and JAX."""
    _state.delays += 1
    try:
        yield
    finally:
        _state.delays -= 1
    if _state.is_delayed and not _state.delays:
        _state.is_delayed, _state.is_handled = False, True
        raise KeyboardInterrupt


def ending_signal() -> int | None:
    """The signal that ends this process; None without one."""
    return _state.number


def end(number: int = signal.SIGINT) -> NoReturn:
    """Writes the last line, and ends the process."""
    number = _state.number = _state.number or number
    threading.Thread(target=_leave_in_time, args=(128 + number,), daemon=True).start()
    if _state.is_ending:  # another thread writes the line
        time.sleep(2 * LAST_GRACE)
    _write_last_line(number)
    _flush()
    os._exit(128 + number)


def end_program() -> NoReturn:
    """Writes the last line of a program that did not handle an interrupt, whose exit functions run."""
    _state.number = signal.SIGINT
    _write_last_line(signal.SIGINT)
    sys.exit(128 + signal.SIGINT)


def skip_teardown() -> None:
    """Ends a process that has written its last line before exit functions that were registered earlier run."""
    if _state.number is not None and _state.is_ending:
        _flush()
        os._exit(128 + _state.number)


def _write_last_line(number: int) -> None:
    _state.is_ending = True
    for cleanup in reversed(_cleanups):
        with contextlib.suppress(Exception):
            cleanup()
    if _state.stream is not None:
        with contextlib.suppress(OSError):
            os.write(_state.stream, f"{_WORDS[signal.Signals(number)]}\n".encode())


def leave(status: int) -> NoReturn:
    """Ends the process after flushing its streams; after a signal, by `end`."""
    _flush()
    if _state.number is not None:
        end()
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or without a reader
            stream.flush()


def _leave_in_time(status: int) -> None:
    time.sleep(LAST_GRACE)
    os._exit(status)


def _note(number: int, frame: FrameType | None) -> None:
    _state.number = _state.number or number


def _raise(number: int, frame: FrameType | None) -> None:
    if _state.delays:
        _state.is_delayed = True
        return
    _state.is_handled = True
    raise KeyboardInterrupt


def _start_watching(act: Callable[[int], None]) -> None:
    reader, writer = os.pipe()
    if hasattr(os, "set_blocking"):
        os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, act), daemon=True).start()


def _watch(reader: int, act: Callable[[int], None]) -> None:
    while True:
        for number in os.read(reader, 64):
            act(number)


def _end_by(number: int) -> None:
    if signal.getsignal(number) is _note:
        end(number)


def _end_if_stuck(number: int) -> None:
    """Ends the process if its main thread does not come to run the handler."""
    deadline = time.monotonic() + GRACE
    while signal.getsignal(number) is _raise:
        if _state.is_handled:
            _state.is_handled = False
            return
        if time.monotonic() > deadline:
            end(number)
        time.sleep(0.05)
