"""Keeps compiled programs in a folder, so that later processes need not trace and compile them again.

Commands and `dmljax.run` open a store; the library itself never does. An entry is found only by the same version of
dmljax and JAX, with the same options, on the same kind of processor.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

NO_CACHE = "DMLJAX_NO_CACHE"  # the environment variable that turns the cache off
LIMIT = 2 * 10**9  # bytes of all entries
_LEFT = 0.9  # of the limit, after the least recently used entries are gone
_CHECK_BYTES = 4  # of a checksum, at the beginning of each file
_ENDING, _PREFIX = ".program", "unfinished-"


def cache_folder() -> Path:
    """The folder for a user's compiled programs, by the custom of the system."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        named = os.environ.get("XDG_CACHE_HOME", "")
        base = named if os.path.isabs(named) else Path.home() / ".cache"  # the standard ignores relative paths
    return Path(base) / "dmljax"


class Size(NamedTuple):
    """How much a store holds."""

    entries: int
    bytes: int


class ProgramStore:
    """A folder of entries by key; several processes may use it at a time.

    `warn` gets one line, once, if the folder cannot be written; nothing is kept from then on.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None] = print, *, limit: int = LIMIT) -> None:
        self.folder, self._warn, self._limit = folder, warn, limit
        self._is_writable = True

    def get(self, key: str) -> bytes | None:
        """The entry of a key, or None; an entry that is damaged counts as absent."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)  # so that it is not the least recently used
        except OSError:
            return None
        checksum, entry = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
        return entry if checksum == _checksum(entry) else None

    def put(self, key: str, entry: bytes) -> None:
        """Keeps an entry; removes those least recently used beyond the limit."""
        if not self._is_writable:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Other processes see the file only when it is complete.
            with tempfile.NamedTemporaryFile(prefix=_PREFIX, dir=self.folder, delete=False) as file:
                try:
                    file.write(_checksum(entry) + entry)
                    file.close()
                    os.replace(file.name, self._path(key))
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)  # another process may have cleared the folder
                    raise
            self._remove_oldest()
        except OSError as error:
            self._is_writable = False
            self._warn(f"compiled programs are not kept in '{self.folder}': {error.strerror or error}")

    def size(self) -> Size:
        """How much the folder holds."""
        sizes = [status.st_size for _, status in self._files()]
        return Size(len(sizes), sum(sizes))

    def clear(self) -> None:
        """Removes all entries."""
        for path, _ in self._files():
            path.unlink(missing_ok=True)

    def _remove_oldest(self) -> None:
        files = sorted(self._files(), key=lambda file: file[1].st_mtime_ns)
        total = sum(status.st_size for _, status in files)
        if total <= self._limit:
            return
        for path, status in files:
            if total <= self._limit * _LEFT:
                return
            path.unlink(missing_ok=True)  # another process may have removed it
            total -= status.st_size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The entries, and what processes left that ended while they wrote one."""
        for path in [*self.folder.glob(f"*{_ENDING}"), *self.folder.glob(f"{_PREFIX}*")]:
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                yield path, path.stat()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_ENDING}"


def _checksum(entry: bytes) -> bytes:
    return zlib.crc32(entry).to_bytes(_CHECK_BYTES, "little")


def digest_of(*parts: bytes | memoryview | str) -> str:
    """A digest of a sequence of parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
