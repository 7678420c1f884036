"""Real processes in a pseudo-terminal."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

WAIT = 120  # seconds for a moment to come, however busy the machine is
SOON = 30  # seconds to end: far more than the two that a quiet machine has to keep


class Terminal:
    """A process in a pseudo-terminal, and what it has written."""

    def __init__(self, command: Sequence[str], folder: Path, **variables: str) -> None:
        self._ours, self._theirs = os.openpty()
        os.set_blocking(self._ours, False)
        paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "TERM": "xterm", "PYTHONPATH": paths} | variables
        # The first of a session that opens a terminal gets its Ctrl-C.
        shell = ["/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&0', os.ttyname(self._theirs)]
        self._process = subprocess.Popen(
            [*shell, sys.executable, "-m", *command], cwd=folder, env=environment, start_new_session=True
        )
        self.text = ""

    def read_until(self, pattern: str) -> None:
        """Reads until what was written matches."""
        deadline = time.monotonic() + WAIT
        while not re.search(pattern, self.text):
            assert self._process.poll() is None, (pattern, self.text)
            assert time.monotonic() < deadline, (pattern, self.text)
            self._read()

    def interrupt(self, number: int) -> None:
        if number == signal.SIGINT:
            os.write(self._ours, b"\x03")
        else:
            self._process.send_signal(number)

    def status(self) -> int:
        """Reads to the end, and returns the exit status."""
        deadline = time.monotonic() + SOON
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read()
        self._read()
        os.close(self._ours)
        os.close(self._theirs)
        return self._process.returncode

    @property
    def shown(self) -> list[str]:
        """The lines that stay on the terminal."""
        lines = re.sub(r"[^\n]*\r\x1b\[K", "", self.text.replace("\r\n", "\n")).splitlines()
        return [line for line in lines if line]

    def _read(self) -> None:
        time.sleep(0.01)
        with contextlib.suppress(BlockingIOError):
            self.text += os.read(self._ours, 1 << 16).decode()
