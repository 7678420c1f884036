"""The folder of compiled programs: what is found there, what goes first, and what happens when it cannot be written."""

import errno
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dmljax.foundation.programs.store import ProgramStore, cache_folder, digest_of


def test_an_entry_is_found_by_its_key(tmp_path: Path) -> None:
    ProgramStore(tmp_path / "new" / "cache").put("key", b"entry")
    store = ProgramStore(tmp_path / "new" / "cache")
    assert (store.get("key"), store.get("other")) == (b"entry", None)
    assert store.size() == (1, len(b"entry") + 4)
    store.clear()
    assert (store.get("key"), store.size()) == (None, (0, 0))


def test_a_damaged_entry_counts_as_absent(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path)
    store.put("key", b"entry")
    (path,) = tmp_path.iterdir()
    for damaged in (b"", b"\0", path.read_bytes()[:-1], path.read_bytes() + b"\0"):
        path.write_bytes(damaged)
        assert store.get("key") is None


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path, limit=1000)
    for i, key in enumerate("abcd"):
        store.put(key, bytes(196))
        os.utime(tmp_path / f"{key}.program", (i, i))
    store.get("a")
    store.put("e", bytes(396))
    assert [key for key in "abcde" if store.get(key) is not None] == ["a", "d", "e"]


def test_what_an_ended_process_left_unfinished_is_removed_too(tmp_path: Path) -> None:
    store = ProgramStore(tmp_path, limit=1000)
    (tmp_path / "unfinished-1").write_bytes(bytes(2000))
    os.utime(tmp_path / "unfinished-1", (0, 0))
    store.put("key", b"entry")
    assert store.size().entries == 1


def test_threads_and_processes_may_use_a_folder_at_a_time(tmp_path: Path) -> None:
    entries = {str(i): bytes([i]) * 10_000 for i in range(8)}

    def use(key: str) -> Sequence[bytes | None]:
        store, found = ProgramStore(tmp_path, limit=50_000), []
        for _ in range(50):
            store.put(key, entries[key])
            found.append(store.get(key))
        return found

    with ThreadPoolExecutor(8) as pool:
        for key, found in zip(entries, pool.map(use, entries), strict=True):
            assert {*found} <= {entries[key], None}
    assert ProgramStore(tmp_path).size().bytes <= 50_000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    lines: list[str] = []
    store = ProgramStore(tmp_path, lines.append)
    for key in "ab":
        store.put(key, b"entry")
        assert store.get(key) is None
    assert lines == [f"compiled programs are not kept in '{tmp_path}': {os.strerror(number)}"]
    assert [*tmp_path.iterdir()] == []


def test_a_path_below_a_file_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lines: list[str] = []
    ProgramStore(tmp_path / "file" / "cache", lines.append).put("key", b"entry")
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("system", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/var/caches"}, "/var/caches/dmljax"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/dmljax"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/me/.cache/dmljax"),
        ("darwin", {}, "/home/me/Library/Caches/dmljax"),
        ("win32", {"LOCALAPPDATA": "/data"}, "/data/dmljax"),
    ],
)
def test_the_folder_is_where_the_system_keeps_caches(
    system: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


def test_a_digest_keeps_parts_apart() -> None:
    assert digest_of("a", "b") == digest_of(b"a", memoryview(b"b")) != digest_of("ab")
