"""Opening files that strangers name: regular ones alone, of bounded size."""

import stat
from pathlib import Path
from typing import Any

from dmljax.errors import InvalidDesc, Problem
from dmljax.text import one_line, reason_of


def opened(path: Path, at_most: int, *, remedy: str | None = None) -> Any:
    """Opens a regular file of at most `at_most` bytes for reading; `remedy` says how to read a larger one."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
            raise InvalidDesc(Problem((), "must be a regular file", f"'{one_line(path)}'"))
        if status.st_size > at_most:
            raise InvalidDesc(
                Problem(
                    (), f"must hold at most {at_most} bytes", f"{status.st_size} in '{one_line(path)}'", remedy=remedy
                )
            )
        return path.open("rb")
    except InvalidDesc:
        raise
    except (OSError, ValueError) as error:  # ValueError comes of a NUL in the name
        raise InvalidDesc(
            Problem((), "must be a file that can be read", f"'{one_line(path)}' ({reason_of(error)})")
        ) from None
