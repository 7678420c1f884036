"""Opens files that untrusted input names, if they are regular and of bounded size; writes files and pictures."""

import errno
import json
import mmap
import os
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from dmljax.errors import DmlError, InvalidDesc, Problem, Unsupported, UnusableFile, require, unusable_file
from dmljax.foundation.extras import command_for
from dmljax.foundation.interrupts import call_if_interrupted
from dmljax.text import one_line, reason_of


def open_file(path: Path, at_most: int, *, remedy: str | None = None) -> Any:
    """Opens a regular file of at most `at_most` bytes for reading; `remedy` tells how to read a larger file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a pipe would block
            number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
            problem = Problem((), "must be a regular file", f"'{one_line(path)}'")
            raise unusable_file(problem, OSError(number, os.strerror(number)), str(path))
        if status.st_size > at_most:
            raise InvalidDesc(
                Problem(
                    (), f"must hold at most {at_most} bytes", f"{status.st_size} in '{one_line(path)}'", remedy=remedy
                )
            )
        return path.open("rb")
    except InvalidDesc:
        raise
    except (OSError, ValueError) as error:  # a NUL in the name raises ValueError
        raise unreadable(path, error) from None


@contextmanager
def open_replacement(path: Path) -> Iterator[Any]:
    """Opens a new file that replaces `path` once it is complete; a full disk or an interrupt leaves the old file."""
    mode = None
    if path.exists():
        with path.open("r+b") as file:  # fails if the old file is not writable
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    beside = path.with_name(f".dmljax-{uuid4().hex}")
    remove = partial(beside.unlink, missing_ok=True)
    with call_if_interrupted(remove):
        try:
            with beside.open("xb") as file:
                yield file
            if mode is not None:
                beside.chmod(mode)
            beside.replace(path)
        finally:
            remove()


@contextmanager
def open_output(path: Path) -> Iterator[Any]:
    """Opens the file that a user named: a replacement, unless the name leads to something like /dev/stdout."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
    else:
        with open_replacement(path) as file:
            yield file


MAX_POINTER_BYTES = 1024  # of Git LFS


class ForeignContent(NamedTuple):
    """The content of a file that is no model: a phrase that follows the file's name, and what to do with it."""

    rule: str
    remedy: str | None = None


def is_exported(data: bytes | mmap.mmap) -> bool:
    """Whether data is a program that `jax.export` wrote."""
    return data[2:4] == b"\0\0" and data.find(b"StableHLO_v") >= 0  # a flatbuffer begins with a small offset


def is_exported_file(path: Path) -> bool:
    """Whether a file is a program that `jax.export` wrote; false if it cannot be read."""
    try:
        with open_file(path, sys.maxsize) as file:
            if file.read(4)[2:] != b"\0\0":  # most other files are not read further, however large they are
                return False
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return is_exported(data)
    except (InvalidDesc, OSError, ValueError):
        return False


def find_foreign_content(data: bytes) -> ForeignContent | None:
    """Finds what stands where a model should: nothing, a pointer that was not replaced, or a compiled model."""
    if not data:
        return ForeignContent("is empty")
    if data.startswith(b"version https://git-lfs.github.com/spec/"):
        return ForeignContent("is a Git LFS pointer", "`git lfs pull` fetches the file")
    if is_exported(data):
        return ForeignContent("is an artifact of dmljax compile", "`dmljax run` and jax.export.deserialize take it")
    return None


def require_folder(folder: Path) -> None:
    """Raises if a path does not name the folder of a model, but a file or nothing."""
    if folder.is_dir():
        return
    location = f"'{one_line(folder)}'"
    if folder.exists():
        is_onnx = folder.suffix.lower() == ".onnx"
        remedy = f"`dmljax run {one_line(folder)}` or dmljax.onnx.load runs a single model" if is_onnx else None
        error, problem = errno.ENOTDIR, Problem("folder", "must be a folder, not a file", location, remedy=remedy)
    else:
        error, problem = errno.ENOENT, Problem("folder", "must exist", location)
    raise unusable_file(problem, OSError(error, os.strerror(error)), str(folder))


def unreadable(path: Path, error: OSError | ValueError) -> InvalidDesc:
    """The error for a file that cannot be read, with Python's reason."""
    problem = Problem((), "must be a readable file", f"'{one_line(path)}' ({reason_of(error)})")
    return unusable_file(problem, error, str(path)) if isinstance(error, OSError) else InvalidDesc(problem)


def read_object(folder: Path, name: str, at_most: int, *, is_optional: bool = False) -> dict[str, Any]:
    """The JSON object in a file of a folder, which messages call `name`; empty if it is optional and missing."""
    if not (folder / name).exists():
        if is_optional:
            return {}
        require(name, not folder.is_dir(), "must be in the folder", f"'{one_line(folder)}'")
    with open_file(folder / name, at_most) as file:
        data = file.read()
        if foreign := find_foreign_content(data):
            raise InvalidDesc(Problem(name, foreign.rule, remedy=foreign.remedy))
        try:
            content = json.loads(data)
        except ValueError as error:
            raise InvalidDesc(Problem(name, "must be JSON", reason_of(error))) from None
    if not isinstance(content, dict):
        raise InvalidDesc(Problem(name, "must be a JSON object", type(content).__name__))
    return content


def import_pillow() -> Any:
    """Pillow's image module, which the extra `images` installs."""
    try:
        from PIL import Image
    except ImportError:
        raise Unsupported(
            Problem((), "reading or writing an image needs Pillow", remedy=command_for("images"))
        ) from None
    return Image


PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")  # formats that Pillow reads
MODES: dict[Any, str] = {1: "L", 3: "RGB", 4: "RGBA"}  # by the number of channels
_MOST_PICTURE_BYTES = 2**30  # of a file


def read_picture(path: Path, mode: str, height: int | None, width: int | None) -> np.ndarray[Any, Any]:
    """Reads an image in a mode of Pillow, as bytes (height, width, channels); None keeps the height or the width."""
    module = import_pillow()
    try:
        with open_file(path, _MOST_PICTURE_BYTES) as file, module.open(file) as image:
            image = image.convert(mode)
            size = (width or image.width, height or image.height)
            pixels = np.asarray(image if image.size == size else image.resize(size, module.Resampling.BICUBIC))
    except DmlError:
        raise
    except (OSError, ValueError, SyntaxError, module.DecompressionBombError) as error:  # all that decoders raise
        raise InvalidDesc(Problem((), f"{path.name} must be an image", reason_of(error))) from None
    return pixels.reshape(size[1], size[0], -1)


def require_picture(path: Path) -> None:
    """Raises if a path cannot name a picture, before what it shows is computed, which may take minutes."""
    module = import_pillow()
    suffixes = {suffix for suffix, format_name in module.registered_extensions().items() if format_name in module.SAVE}
    require_picture_file("output", path, suffixes)


def require_picture_file(where: str, path: Path, suffixes: Collection[str]) -> None:
    """Raises if a path has none of the suffixes of pictures, is a folder, or is in none that exists."""
    location = one_line(path)
    require(where, path.suffix.lower() in suffixes, "must end as a picture's name does", location, remedy="picture.png")
    require(where, not path.is_dir(), "must be a file, not a folder", location)
    require(where, path.parent.is_dir(), "must be a file in a folder that exists", location)


def unwritable(where: str, path: Path, error: OSError) -> UnusableFile:
    """The error for a file that cannot be written, with the system's reason."""
    return unusable_file(
        Problem(where, "must be a writable file", f"{one_line(path)} ({reason_of(error)})"), error, str(path)
    )


def write_picture(path: Path, pixels: Any) -> None:
    """Writes an image (height, width, 3) of numbers from 0 to 1, in the format that the file's name says."""
    image = import_pillow().fromarray(np.asarray(np.round(np.asarray(pixels) * 255), np.uint8))
    try:
        with open_output(path) as file:
            image.save(file, format=import_pillow().registered_extensions()[path.suffix.lower()])
    except OSError as error:
        raise unwritable("output", path, error) from None
