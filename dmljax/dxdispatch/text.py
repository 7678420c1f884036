"""Parses JSON as DxDispatch does, and keeps the line of each value.

RapidJSON, as DxDispatch configures it, accepts comments and trailing commas, and stops after the first value.

A plain list holds only numbers and the strings "nan" and "inf", with or without a minus sign and in any case. Buffers
are written as plain lists and may be long, so one pattern matches a whole plain list, and an element's line is computed
only when a message needs it. All other values are parsed individually.
"""

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from dmljax.errors import MAX_PROBLEMS, InvalidDesc, Path, Problem
from dmljax.text import show

Place = Path  # inside a model

MAX_DEPTH = 64
MAX_VALUES = 2**20  # not counting elements of plain lists, which take far less memory

# Possessive quantifiers do not backtrack, so each pattern takes linear time on any text.
_COMMENT = r"(?://[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)"
_BLANK = rf"(?:[ \t\r\n]++|{_COMMENT})*+"
_NUMBER = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
_ELEMENT = rf'(?:{_NUMBER}|"-?+(?i:nan|inf)")'
_NEXT = re.compile(rf"{_BLANK}(.?)", re.DOTALL)
_PLAIN_LIST = re.compile(rf"\[{_BLANK}(?:{_ELEMENT}{_BLANK},{_BLANK})*+(?:{_ELEMENT}{_BLANK})?+\]")
_COMMENT_OR_ELEMENT = re.compile(rf"{_COMMENT}|({_ELEMENT})")
_LAST_COMMA = re.compile(r",\s*+\]\Z")
_TOKEN = re.compile(rf"(?P<number>{_NUMBER})|(?P<word>true|false|null)")
_DECODER = json.JSONDecoder()
_NO_SPOTS: Mapping[str | int, Any] = {}
_WORDS = {"true": True, "false": False, "null": None}


class InvalidJson(InvalidDesc):
    """The text is not valid JSON; `line` and `column` locate the syntax error."""

    def __init__(self, problem: Problem, line: int, column: int) -> None:
        super().__init__(problem)
        self.line, self.column = line, column

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.problems, self.line, self.column)


@dataclass(frozen=True, eq=False, slots=True)
class Spot:
    """The offset of a value in the text, and the spots of the values inside it except elements of plain lists."""

    offset: int
    inside: "Mapping[str | int, Spot]"


@dataclass(frozen=True, eq=False)
class Document:
    """A parsed text: its value, the spots of the parts, and the places and lines of repeated names."""

    text: str
    root: Any
    spot: Spot
    repeated: list[tuple[Place, int]]
    lines: "_Lines"
    plain_lists: "dict[int, array[int]]" = field(default_factory=dict)  # the offsets of elements that were looked up

    def line(self, path: Place) -> int:
        """The line of the value at `path`, or of the innermost value around it that exists."""
        spot, offset = self.spot, self.spot.offset
        for key in path:
            if key not in spot.inside:
                offset = self._element(spot.offset, key)
                break
            spot = spot.inside[key]
            offset = spot.offset
        return self.lines.line(offset)

    def _element(self, offset: int, index: str | int) -> int:
        """The offset of an element of the plain list at `offset`; `offset` itself if there is no such element."""
        if not isinstance(index, int):
            return offset
        if offset not in self.plain_lists:
            plain = _PLAIN_LIST.match(self.text, offset)
            parts = _elements(self.text, offset, plain.end() if plain else offset)
            self.plain_lists[offset] = array("Q", (begin for begin, _ in parts))
        elements = self.plain_lists[offset]
        return elements[index] if index < len(elements) else offset


class _Lines:
    """Finds line numbers of offsets in a text; a lookup counts line ends only in a part of the text."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def before(self) -> list[int]:
        """The number of line ends before each part of the text."""
        ends = (self.text.count("\n", begin, begin + _PART) for begin in range(0, len(self.text), _PART))
        return list(accumulate(ends, initial=0))

    def line(self, offset: int) -> int:
        part = offset // _PART
        return self.before[part] + self.text.count("\n", part * _PART, offset) + 1


_PART = 4096


def _elements(text: str, begin: int, end: int) -> Iterator[tuple[int, str]]:
    """Yields the offset and the text of each element of a plain list."""
    return ((match.start(), match[1]) for match in _COMMENT_OR_ELEMENT.finditer(text, begin, end) if match[1])


def parse(text: str) -> Document:
    """Parses the first value in `text`, and ignores what follows.

    >>> parse('{"Sizes": [1, 2,], /* batch, row */ "Flags": []} and the rest').root
    {'Sizes': [1, 2], 'Flags': []}
    """
    parser = _JsonParser(text)
    root, spot = parser.value()
    repetitions = [(place, parser.lines.line(offset)) for place, offset in parser.repeated]
    return Document(text, root, spot, repetitions, parser.lines)


class _JsonParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = _Lines(text)
        self.at = 0
        self.path: list[str | int] = []  # the path of the current value
        self.count = 0  # values parsed so far, including values of repeated names
        self.repeated: list[tuple[Place, int]] = []

    def value(self, *key: str | int) -> tuple[Any, Spot]:
        """Parses the root, or the value of a member or element."""
        self.path += key
        first = self.peek()
        if len(self.path) > MAX_DEPTH:
            raise self.error(f"objects and lists must be nested at most {MAX_DEPTH} deep")
        if self.count >= MAX_VALUES:
            raise self.error(f"the text must hold at most {MAX_VALUES} values, not counting numbers in lists")
        self.count += 1
        begin = self.at
        value: Any
        inside: Mapping[str | int, Spot] = _NO_SPOTS
        match first:
            case "{":
                value, inside = self.object()
            case "[":
                value, inside = self.array()
            case '"':
                value = self.string()
            case _:
                value = self.number_or_word()
        if key:
            self.path.pop()
        return value, Spot(begin, inside)

    def number_or_word(self) -> Any:
        token = _TOKEN.match(self.text, self.at)
        if token is None:
            raise self.error("expected a value")
        number = None if token["number"] is None else self.number(token[0])
        self.at = token.end()
        return _WORDS[token[0]] if number is None else number

    def object(self) -> tuple[dict[str, Any], dict[str | int, Spot]]:
        members: dict[str, Any] = {}
        inside: dict[str | int, Spot] = {}
        self.at += 1
        while (first := self.peek()) != "}":
            if first != '"':
                raise self.error("expected a name in double quotes or }")
            start = self.at
            name = self.string()
            if not self.take(":"):
                raise self.error(f"expected a colon after {show(name)}")
            if name in members and len(self.repeated) < MAX_PROBLEMS:
                self.repeated.append(((*self.path, name), start))
            members[name], inside[name] = self.value(name)
            if not self.take(",") and self.peek() != "}":
                raise self.error("expected a comma or }")
        self.at += 1
        return members, inside

    def array(self) -> tuple[list[Any], Mapping[str | int, Spot]]:
        plain = _PLAIN_LIST.match(self.text, self.at)
        if plain is not None:
            elements = self.plain_list(plain.end())
            self.at = plain.end()
            return elements, _NO_SPOTS
        elements = []
        inside: dict[str | int, Spot] = {}
        self.at += 1
        while self.peek() != "]":
            element, inside[len(elements)] = self.value(len(elements))
            elements.append(element)
            if not self.take(",") and self.peek() != "]":
                raise self.error("expected a comma or ]")
        self.at += 1
        return elements, inside

    def plain_list(self, end: int) -> list[Any]:
        """Parses a plain list up to `end`, with the standard library's fast parser if the list has no comments."""
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
        """Converts a token to an int, or to a double if it has a fraction or an exponent or does not fit 64 bits."""
        if len(token) <= 20 and not set(token) & set(".eE"):
            whole = int(token)
            if -(2**63) <= whole < 2**64:
                return whole
        double = float(token)
        if math.isinf(double):
            raise self.error("a number must fit FLOAT64", token if len(token) < 40 else token[:36] + " ...")
        return double

    def string(self) -> str:
        try:
            value: str
            value, end = _DECODER.raw_decode(self.text, self.at)
            value.encode()
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self.error(f"invalid string ({error.msg})") from None
        except UnicodeEncodeError:
            raise self.error("invalid Unicode in a string", "half a surrogate pair") from None
        self.at = end
        return value

    def peek(self) -> str:
        """The next character after blanks and comments; empty at the end."""
        match: Any = _NEXT.match(self.text, self.at)  # also matches empty text
        self.at = match.start(1)
        return str(match[1])

    def take(self, character: str) -> bool:
        is_next = self.peek() == character
        self.at += is_next
        return is_next

    def error(self, rule: str, given: str | None = None) -> InvalidJson:
        excerpt = self.text[self.at : self.at + 20].split("\n")[0]
        got = repr(excerpt) if excerpt else "the end of the line" if self.at < len(self.text) else "the end of the text"
        column = self.at - self.text.rfind("\n", 0, self.at)
        return InvalidJson(Problem((), rule, given or got), self.lines.line(self.at), column)
