"""Reads and writes the flatbuffer features that DirectML's graphs and ONNX Runtime's adapters use.

These are tables, numbers, text and vectors.

A table's fields are named by slot: 4, 6, 8 and so on, in the order of the schema. Wherever a file's offsets point, the
number of bytes read is bounded by the file's size. A malformed file raises InvalidDesc.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dmljax.errors import InvalidDesc, Problem

# Reading


class Buffer:
    """The bytes of a file, with a limit on the total of all reads, because many offsets may point to the same part.

    `content` says what the file must be.
    """

    def __init__(self, data: bytes, content: str = "a DirectML serialized graph") -> None:
        self.data, self._content = data, content
        self._left = 64 * len(data) + 1024

    def root(self) -> "TableReader":
        """The root table."""
        return TableReader(self, self.unpack("<I", 0))

    def unpack(self, form: str, position: int) -> Any:
        """The number at a position, in a `struct` format."""
        return struct.unpack_from(form, self.data, self._check(position, struct.calcsize(form)))[0]

    def bytes(self, position: int, count: int) -> bytes:
        """The bytes from a position on."""
        return self.data[self._check(position, count) : position + count]

    def _check(self, position: int, count: int) -> int:
        self._left -= count + 1
        if position < 0 or position + count > len(self.data):
            within = f"offsets must be within the {len(self.data)} bytes of the file"
            raise InvalidDesc(Problem((), f"must be {self._content}; its {within}", position))
        if self._left < 0:
            raise InvalidDesc(Problem((), "too many offsets lead to the same parts of the file"))
        return position


class TableReader:
    """A table, whose fields are read by slot."""

    def __init__(self, buffer: Buffer, position: int) -> None:
        self._buffer, self._position = buffer, position
        self._slots = position - buffer.unpack("<i", position)
        self._end = buffer.unpack("<H", self._slots)

    def _field(self, slot: int) -> int | None:
        offset = self._buffer.unpack("<H", self._slots + slot) if slot + 2 <= self._end else 0
        return self._position + offset if offset else None

    def _target(self, slot: int) -> int | None:
        field = self._field(slot)
        return None if field is None else field + self._buffer.unpack("<I", field)

    def number(self, slot: int, form: str) -> Any:
        """The number in a slot, in a `struct` format; 0 if absent."""
        field = self._field(slot)
        return 0 if field is None else self._buffer.unpack(f"<{form}", field)

    def structure(self, slot: int, form: str) -> tuple[Any, ...] | None:
        """The numbers of the struct in a slot, in a `struct` format; None if absent."""
        target = self._target(slot)
        if target is None:
            return None
        return struct.unpack(f"<{form}", self._buffer.bytes(target, struct.calcsize(f"<{form}")))

    def table(self, slot: int) -> "TableReader | None":
        """The table in a slot; None if absent."""
        target = self._target(slot)
        return None if target is None else TableReader(self._buffer, target)

    def text(self, slot: int) -> str:
        """The text in a slot; empty if absent."""
        target = self._target(slot)
        return "" if target is None else self._text(target)

    def texts(self, slot: int) -> list[str]:
        """The strings of the vector in a slot; empty if absent."""
        return [self._text(target) for target in self._targets(slot)]

    def tables(self, slot: int) -> "list[TableReader]":
        """The tables of the vector in a slot; empty if absent."""
        return [TableReader(self._buffer, target) for target in self._targets(slot)]

    def numbers(self, slot: int, dtype: str) -> np.ndarray[Any, Any] | None:
        """The numbers of the vector in a slot; None if absent."""
        target = self._target(slot)
        if target is None:
            return None
        count, kind = self._buffer.unpack("<I", target), np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self._buffer.bytes(target + 4, count * kind.itemsize), kind).astype(dtype)

    def _targets(self, slot: int) -> Iterable[int]:
        offsets = self.numbers(slot, "uint32")
        if offsets is None:
            return []
        first = (self._target(slot) or 0) + 4
        return [first + 4 * i + int(offset) for i, offset in enumerate(offsets)]

    def _text(self, target: int) -> str:
        data = self._buffer.bytes(target + 4, self._buffer.unpack("<I", target))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise InvalidDesc(Problem((), "text must be UTF-8", repr(data[:40]))) from None


# Writing


class Packed(NamedTuple):
    """A struct to write: its numbers, and one `struct` format for all of them."""

    form: str
    numbers: tuple[Any, ...]


Number = tuple[str, int | float]  # a `struct` format, and the number
Table = Mapping[int, Any]  # by slots: a Number, text, bytes, an array of numbers, a Packed, a table, or a list of those


def build(root: Table, identifier: bytes = b"") -> bytes:
    """Builds the bytes of a flatbuffer with this root, and the four bytes that identify a format if it has any."""
    data = bytearray(4) + identifier
    _write_offset(data, 0, _write_table(data, root))
    return bytes(data)


def _write_table(data: bytearray, table: Table) -> int:
    fields = {slot: value for slot, value in table.items() if value is not None}
    # Put the largest numbers first, so that each is aligned to its size.
    sizes = {slot: struct.calcsize(value[0]) if _is_number(value) else 4 for slot, value in fields.items()}
    slots = sorted(fields, key=lambda slot: -sizes[slot])
    _align(data, 8)
    data.extend(bytes(4 if any(size == 8 for size in sizes.values()) else 0))
    position, offsets, end = len(data), {}, 4
    for slot in slots:
        offsets[slot] = end
        end += sizes[slot]
    data.extend(bytes(end))
    for slot in slots:
        if _is_number(fields[slot]):
            form, number = fields[slot]
            struct.pack_into(f"<{form}", data, position + offsets[slot], number)
    count = max(fields, default=2) + 2
    _align(data, 2)
    entries = [count, end, *(offsets.get(slot, 0) for slot in range(4, count, 2))]
    struct.pack_into("<i", data, position, position - len(data))
    data.extend(struct.pack(f"<{len(entries)}H", *entries))
    for slot in slots:
        if not _is_number(fields[slot]):
            _write_offset(data, position + offsets[slot], _write(data, fields[slot]))
    return position


def _is_number(value: Any) -> bool:
    return isinstance(value, tuple) and not isinstance(value, Packed)


def _write(data: bytearray, value: Any) -> int:
    if isinstance(value, Mapping):
        return _write_table(data, value)
    _align(data, 8 if isinstance(value, Packed) else 4)
    if isinstance(value, Packed):
        data.extend(struct.pack(f"<{value.form}", *value.numbers))
        return len(data) - struct.calcsize(f"<{value.form}")
    if isinstance(value, list):
        position = len(data)
        data.extend(struct.pack("<I", len(value)) + bytes(4 * len(value)))
        for i, element in enumerate(value):
            _write_offset(data, position + 4 + 4 * i, _write(data, element))
        return position
    is_text = isinstance(value, str)
    if isinstance(value, bytes):
        content, count, alignment = value, len(value), _LARGEST
    elif is_text:
        content = value.encode()
        count, alignment = len(content), 1
    else:
        content = value.astype(value.dtype.newbyteorder("<")).tobytes()
        count, alignment = len(value), value.dtype.itemsize
    data.extend(bytes(-(len(data) + _COUNT) % alignment))
    position = len(data)
    data.extend(struct.pack("<I", count) + content + (b"\0" if is_text else b""))
    return position


_COUNT = 4  # bytes of the number of a vector's elements
_LARGEST = 8  # bytes of a number; where bytes of an unknown kind begin


def _write_offset(data: bytearray, field: int, target: int) -> None:
    struct.pack_into("<I", data, field, target - field)


def _align(data: bytearray, size: int) -> None:
    data.extend(bytes(-len(data) % size))
