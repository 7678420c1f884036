"""JSON as DxDispatch reads it, with the line on which each value stands.

RapidJSON, as DxDispatch sets it up, takes comments and trailing commas, and stops after the first value.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dmljax._checks import shown
from dmljax._errors import InvalidDesc

Place = tuple[str | int, ...]

MAX_DEPTH = 64
MAX_VALUES = 2**20  # besides numbers in plain lists, which take far less room

# Possessive quantifiers: each pattern reads a text once, whatever it holds.
_COMMENT = r"(?://[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)"
_BLANK = rf"(?:[ \t\r\n]++|{_COMMENT})*+"
_NUMBER = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_ELEMENT = rf'(?:{_NUMBER}|"-?+(?i:nan|inf)")'
_SPACE = re.compile(_BLANK)
_PLAIN_LIST = re.compile(rf"\[{_BLANK}(?:{_ELEMENT}{_BLANK},{_BLANK})*+(?:{_ELEMENT}{_BLANK})?+\]")
_COMMENT_OR_ELEMENT = re.compile(rf"{_COMMENT}|({_ELEMENT})")
_LAST_COMMA = re.compile(r",\s*+\]\Z")
_TOKEN = re.compile(rf"(?P<number>{_NUMBER})|(?P<word>true|false|null)")
_DECODER = json.JSONDecoder()
_WORDS = {"true": True, "false": False, "null": None}


class InvalidJson(InvalidDesc):
    """A text that is not JSON, with the line and column at which it stops being so."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line, self.column = line, column


@dataclass(frozen=True, eq=False)
class Document:
    """A parsed text: its value, where each part of it begins, and the lines of names that an object repeats."""

    text: str
    root: Any
    offsets: dict[Place, int]
    repeated: list[tuple[Place, int]]

    def line(self, path: Place) -> int:
        """The line of the value at `path`, or of the nearest value around it."""
        known = next(path[:length] for length in range(len(path), -1, -1) if path[:length] in self.offsets)
        offset = self.offsets[known] if known == path else self._element(known, path[len(known)])
        return _line_and_column(self.text, offset)[0]

    def _element(self, path: Place, index: str | int) -> int:
        """Where an element of a plain list begins, or its container if it is none."""
        offset = self.offsets[path]
        plain = _PLAIN_LIST.match(self.text, offset)
        if plain is None or not isinstance(index, int):
            return offset
        return next(islice(_elements(self.text, offset, plain.end()), index, None), (offset, ""))[0]


def _elements(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    """The elements of a plain list, each with the place where it begins."""
    return ((found.start(), found[1]) for found in _COMMENT_OR_ELEMENT.finditer(text, begin, end) if found[1])


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def parse(text: str) -> Document:
    """The first value in `text`.

    >>> parse('{"Sizes": [1, 2,], /* batch, row */ "Flags": []} and the rest').root
    {'Sizes': [1, 2], 'Flags': []}
    """
    parser = _Parser(text)
    root = parser.value(())
    return Document(text, root, parser.offsets, parser.repeated)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.offsets: dict[Place, int] = {}
        self.repeated: list[tuple[Place, int]] = []

    def value(self, path: Place) -> Any:
        self.space()
        if len(path) > MAX_DEPTH:
            raise self.refused(f"objects and lists must be nested at most {MAX_DEPTH} deep")
        if len(self.offsets) >= MAX_VALUES:
            raise self.refused(f"there must be at most {MAX_VALUES} values besides numbers in lists")
        self.offsets[path] = self.at
        match self.text[self.at : self.at + 1]:
            case "{":
                return self.object(path)
            case "[":
                return self.array(path)
            case '"':
                return self.string()
        token = _TOKEN.match(self.text, self.at)
        if token is None:
            raise self.refused("a value must be here")
        number = None if token["number"] is None else self.number(token[0])
        self.at = token.end()
        return _WORDS[token[0]] if number is None else number

    def object(self, path: Place) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self.at += 1
        while not self.taken("}"):
            if self.next() != '"':
                raise self.refused("a name in double quotes, or }, must be here")
            start = self.at
            name = self.string()
            if not self.taken(":"):
                raise self.refused(f"a colon must follow {shown(name)}")
            if name in members:
                self.repeated.append(((*path, name), _line_and_column(self.text, start)[0]))
            members[name] = self.value((*path, name))
            if not self.taken(",") and self.next() != "}":
                raise self.refused("a comma or } must be here")
        return members

    def array(self, path: Place) -> list[Any]:
        plain = _PLAIN_LIST.match(self.text, self.at)
        if plain is not None:
            elements = self.plain_list(plain.end())
            self.at = plain.end()
            return elements
        elements = []
        self.at += 1
        while not self.taken("]"):
            elements.append(self.value((*path, len(elements))))
            if not self.taken(",") and self.next() != "]":
                raise self.refused("a comma or ] must be here")
        return elements

    def plain_list(self, end: int) -> list[Any]:
        """A list of numbers up to `end`, at the speed of the standard library's parser where it has no comments."""
        text = self.text[self.at : end]
        try:
            elements: list[Any] = json.loads(_LAST_COMMA.sub("]", text))
            numbers = [element for element in elements if not isinstance(element, str)]
            if not numbers or (min(numbers) >= -(2**63) and max(numbers) < 2**64):
                return elements
        except ValueError:  # a comment, or an integer with thousands of digits
            pass
        elements = []
        for offset, token in _elements(self.text, self.at, end):
            self.at = offset
            elements.append(token[1:-1] if token.startswith('"') else self.number(token))
        return elements

    def number(self, token: str) -> int | float:
        """An integer where 64 bits hold it, a double where they do not or the token is one."""
        if len(token) <= 20 and not set(token) & set(".eE"):
            whole = int(token)
            if -(2**63) <= whole < 2**64:
                return whole
        double = float(token)
        if math.isinf(double):
            raise self.refused(f"a number must fit FLOAT64; got {token if len(token) < 40 else token[:36] + ' ...'}")
        return double

    def string(self) -> str:
        try:
            value: str
            value, end = _DECODER.raw_decode(self.text, self.at)
            value.encode()
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self.refused(f"a string must end, and have no raw control character ({error.msg})") from None
        except UnicodeEncodeError:
            raise self.refused("a string must be of whole Unicode characters; got half a surrogate pair") from None
        self.at = end
        return value

    def space(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches nothing, too

    def next(self) -> str:
        self.space()
        return self.text[self.at : self.at + 1]

    def taken(self, character: str) -> bool:
        is_next = self.next() == character
        self.at += is_next
        return is_next

    def refused(self, message: str) -> InvalidJson:
        here = self.text[self.at : self.at + 20].split("\n")[0]
        got = repr(here) if here else "the end of the line" if self.at < len(self.text) else "the end of the text"
        return InvalidJson(
            message if "; got " in message else f"{message}; got {got}", *_line_and_column(self.text, self.at)
        )
