"""JPEG images, as GenAI's decoder reads them: it enlarges colors by their frequencies, Pillow's by interpolation."""

import io
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from dmljax.foundation.files import import_pillow

_FRAMES, _SCAN, _PROGRESSIVE = {0xC0, 0xC1, 0xC2}, 0xDA, 0xC2  # frames in Huffman's code
_NOTES = {*range(0xE0, 0xF0), 0xFE}  # segments that do not describe the pixels
_HALVED, _NARROW, _LOW = (bytes([first, 0x11, 0x11]) for first in (0x22, 0x21, 0x12))  # how colors are sampled


def decode_sampled_colors(content: bytes) -> Any:
    """The pixels (height, width, 3) of a JPEG image that has fewer colors than pixels; None for other images.

    GenAI's decoder, libjpeg 9, makes 16 rows or columns of eight frequencies. The frequencies follow from the colors,
    because only multiples of the table of quantization can occur. Where its steps are smaller than the rounding of the
    colors, which are images of the highest quality, the result differs by up to 4.
    """
    segments = {kind: (place, body) for kind, place, body in _segments(content)}
    kind = next(iter(_FRAMES & {*segments}), None)
    if kind is None or _SCAN not in segments:
        return None
    place, frame = segments[kind]
    height, width = struct.unpack_from(">HH", frame, 1)
    sampling = frame[7::3]
    has_scans = kind == _PROGRESSIVE or segments[_SCAN][1][:1] != b"\3"  # one for each color
    if sampling not in ((_HALVED,) if has_scans else (_HALVED, _NARROW, _LOW)) or not height or not width:
        return None
    factors = 1 if sampling == _NARROW else 2, 1 if sampling == _LOW else 2
    blocks = -(-height // (8 * factors[0])), -(-width // (8 * factors[1]))
    module = import_pillow()
    with module.open(io.BytesIO(content)) as image:
        if image.info.get("adobe_transform", 1) != 1:  # red, green and blue
            return None
        tables = [np.array(image.quantization[table]).reshape(8, 8) for table in frame[8::3]]
        image.draft("L", image.size)
        light = np.asarray(image).astype(np.int32)
    if sampling == _HALVED:
        colors = _decode_half(content, place, (height, width), blocks, has_scans)
    else:
        colors = _decode_apart(content, frame, segments[_SCAN], blocks)
    blue, red = (_enlarge(colors[i], tables[i + 1], factors)[:height, :width] for i in (0, 1))
    return _to_rgb(light, blue, red)


def _segments(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The kind, place and content of a JPEG file's segments up to the scan; nothing of other files."""
    place = 2
    while content[:2] == b"\xff\xd8" and place + 4 <= len(content) and content[place] == 0xFF:
        kind, size = content[place + 1], struct.unpack_from(">H", content, place + 2)[0]
        yield kind, place, content[place + 4 : place + 2 + size]
        if kind == _SCAN:
            return
        place += 2 + size


def _decode_half(
    content: bytes, place: int, sides: tuple[int, int], blocks: tuple[int, int], has_scans: bool
) -> list[Any]:
    """The two colors of whole blocks, at their own size, which they have in an image that Pillow decodes to half.

    An image with a scan for each color must keep its number of blocks of luminance; the last pixels are repeated.
    """
    unit = 8 if has_scans else 16
    whole = [-(-side // unit) * unit for side in sides]
    larger = bytearray(content)
    struct.pack_into(">HH", larger, place + 5, *whole)
    with import_pillow().open(io.BytesIO(bytes(larger))) as image:
        image.draft("YCbCr", (whole[1] // 2, whole[0] // 2))
        colors = np.asarray(image)[..., 1:]
    ends = [(0, 8 * count - size) for count, size in zip(blocks, colors.shape, strict=False)]
    return [np.pad(colors[..., i], ends, mode="edge") for i in (0, 1)]


def _decode_apart(content: bytes, frame: bytes, scan: tuple[int, bytes], blocks: tuple[int, int]) -> list[Any]:
    """The two colors of whole blocks, at their own size, by Pillow from an image that has four colors without sampling.

    The first two are every other block of luminance, which are of no use, and the others follow these in the file.
    """
    order = (0, 0, 1, 2)
    tables = [frame[8 + 3 * i] for i in order]
    selectors = [scan[1][2 + 2 * i] for i in order]
    parts = [
        struct.pack(">BBH", 0xFF, kind, len(body) + 2) + body
        for kind, _, body in _segments(content)
        if kind not in _NOTES and kind not in _FRAMES and kind != _SCAN
    ]
    described = b"".join(bytes([i, 0x11, table]) for i, table in enumerate(tables))
    parts.append(struct.pack(">HHBHHB", 0xFFC1, 8 + 12, 8, 8 * blocks[0], 8 * blocks[1], 4) + described)
    selected = b"".join(bytes([i, selector]) for i, selector in enumerate(selectors))
    parts.append(struct.pack(">HHB", 0xFFDA, 6 + 8, 4) + selected + b"\0\x3f\0")
    data = content[scan[0] + 4 + len(scan[1]) :]
    with import_pillow().open(io.BytesIO(b"".join([b"\xff\xd8", *parts, data]))) as image:
        colors = 255 - np.asarray(image)  # Pillow inverts them
    return [colors[..., i] for i in (2, 3)]


def _enlarge(colors: Any, table: Any, factors: tuple[int, int]) -> Any:
    """One of the colors, less 128, with more rows and columns, by sums of integers as libjpeg's."""
    rows, columns = (side // 8 for side in colors.shape)
    blocks = colors.reshape(rows, 8, columns, 8).transpose(0, 2, 1, 3).astype(np.float64) - 128
    frequencies = np.round(_FORWARD @ blocks @ _FORWARD.T / table) * table
    of_columns = np.floor((_BACKWARD[factors[0]] @ frequencies + 2**10) / 2**11)
    pixels = np.floor((of_columns @ _BACKWARD[factors[1]].T + 2**17) / 2**18)
    whole = pixels.transpose(0, 2, 1, 3).reshape(8 * factors[0] * rows, 8 * factors[1] * columns)
    return np.clip(whole, -128, 127).astype(np.int32)


def _cosines(points: int) -> Any:
    """The cosines (points, 8) of eight frequencies."""
    return np.cos(np.outer(2 * np.arange(points) + 1, np.arange(8)) * np.pi / (2 * points))


_FIRST = np.where(np.arange(8) == 0, np.sqrt(0.5), 1.0)
_FORWARD = (_cosines(8) * _FIRST).T / 2
_BACKWARD = {factor: np.round(_cosines(8 * factor) * _FIRST * np.sqrt(2) * 2**13) for factor in (1, 2)}


def _to_rgb(light: Any, blue: Any, red: Any) -> Any:
    """Red, green and blue of luminance and two differences of colors, by sums of integers."""
    half = 2**15
    pixels = [
        light + ((_fixed(1.402) * red + half) >> 16),
        light + ((half - _fixed(0.344136286) * blue - _fixed(0.714136286) * red) >> 16),
        light + ((_fixed(1.772) * blue + half) >> 16),
    ]
    return np.clip(np.stack(pixels, -1), 0, 255).astype(np.uint8)


def _fixed(number: float) -> int:
    return round(number * 2**16)
