"""GenAI's images and recordings, from files or from bytes."""

from pathlib import Path
from typing import Any

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.foundation.files import open_file
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY
from dmljax.text import show

_MOST_BYTES = 2**30  # of a file


class _Media(Answering):
    """Contents of files."""

    def __init__(self, contents: list[bytes]) -> None:
        self._contents = contents

    @classmethod
    def open(cls, *paths: str) -> Any:
        """Reads files."""
        with refusing(LIBRARY):
            if not paths or not all(isinstance(path, str) for path in paths):
                raise InvalidType(Problem("paths", "must be one or more texts", ", ".join(map(show, paths)) or "none"))
            contents = []
            for path in paths:
                with open_file(Path(path), _MOST_BYTES) as file:
                    contents.append(file.read())
            return cls(contents)

    @classmethod
    def open_bytes(cls, *contents: bytes) -> Any:
        """Takes the contents of files."""
        with refusing(LIBRARY):
            if not contents or not all(isinstance(content, bytes) for content in contents):
                rule = "must be one or more contents of files as bytes"
                raise InvalidType(Problem("contents", rule, ", ".join(map(show, contents)) or "none"))
            if not all(contents):
                raise InvalidDesc(Problem("contents", "must not be empty"))
            return cls([*contents])


class Images(_Media):
    """Images in files, which a processor decodes; that needs the extra `images`."""


class Audios(_Media):
    """Recordings in files, which a processor decodes: WAV, and with the package `soundfile` others such as MP3."""
