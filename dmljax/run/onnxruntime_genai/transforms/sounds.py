"""Samples of recordings, as GenAI computes them."""

import io
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dmljax.errors import InvalidDesc, Problem, Unsupported, require
from dmljax.text import reason_of, show

_RATE = 16000  # samples in a second, unless a configuration has another number
_MOST_SAMPLES = 480_000
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE  # the formats of a WAV file


def decode_sound(content: bytes, attributes: Mapping[str, Any]) -> Any:
    """The samples of a recording as float32, in one channel at the rate that the configuration has."""
    return decode_sound_and_rate(content, attributes)[0]


def decode_sound_and_rate(content: bytes, attributes: Mapping[str, Any]) -> tuple[Any, int]:
    """The samples of a recording as float32 in one channel, and their rate, of those that the configuration has."""
    samples, rate = _wav(content) if content[:4] == b"RIFF" else _other_sound(content)
    if attributes.get("stereo_to_mono", 1) and samples.shape[1] > 1:
        if samples.shape[1] > 2:
            raise Unsupported(Problem("audio", "must have at most two channels", samples.shape[1]))
        samples = samples.mean(1, dtype=np.float32, keepdims=True)
    wanted = sorted(attributes.get("target_sample_rates", [attributes.get("target_sample_rate", _RATE)]))
    require("audio", rate >= wanted[0], f"must have at least {wanted[0]} samples in a second", rate)
    lower = max(number for number in wanted if number <= rate)
    most = attributes.get("max_samples", _MOST_SAMPLES) or len(samples)
    if lower == rate:
        return samples[:most, 0], lower
    needed = int(most * rate / lower) + _reach(rate, lower) + 2
    return _downsample(samples[:needed, 0], rate, lower)[:most], lower


def _wav(content: bytes) -> tuple[Any, int]:
    """The samples (samples, channels) in a WAV file, and their rate."""
    chunks = dict(_chunks(content))
    header, data = chunks.get(b"fmt ", b""), chunks.get(b"data", b"")
    require("audio", len(header) >= 16 and b"data" in chunks, "must be a WAV file with a format and samples")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", header)
    if kind == _EXTENSIBLE and len(header) >= 26:
        kind = struct.unpack_from("<H", header, 24)[0]
    if channels < 1 or (kind, bits) not in _SAMPLES:
        rule, given = "must have samples of 8 to 32 bits, or of floats", f"format {kind} of {bits} bits"
        raise Unsupported(Problem("audio", rule, given, remedy="convert it to 16 bits"))
    dtype, zero, scale = _SAMPLES[kind, bits]
    width = bits // 8
    whole = np.frombuffer(data, np.uint8)[: len(data) // (width * channels) * width * channels].reshape(-1, width)
    if bits == 24:  # the upper bytes of 32 bits
        whole = np.concatenate([np.zeros((len(whole), 1), np.uint8), whole], 1)
    samples = (np.ascontiguousarray(whole).view(dtype).astype(np.float64) - zero) / scale
    return samples.astype(np.float32).reshape(-1, channels), rate


# The type of samples by format and bits, with what is subtracted from them, and what they are divided by
_SAMPLES: Mapping[tuple[int, int], tuple[str, float, float]] = {
    (_PCM, 8): ("<u1", 127.5, 127.5),
    (_PCM, 16): ("<i2", 0, 2**15),
    (_PCM, 24): ("<i4", 0, 2**31),
    (_PCM, 32): ("<i4", 0, 2**31),
    (_FLOAT, 32): ("<f4", 0, 1),
    (_FLOAT, 64): ("<f8", 0, 1),
}


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 12
    while place + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, place)
        yield name, content[place + 8 : place + 8 + size]
        place += 8 + size + size % 2


def _other_sound(content: bytes) -> tuple[Any, int]:
    """The samples (samples, channels) in a file of another kind, by the package `soundfile`, and their rate."""
    try:
        import soundfile
    except ImportError:
        rule, remedy = "must be a WAV file", "convert it, or pip install soundfile"
        raise Unsupported(
            Problem("audio", rule, f"a file that begins with {show(content[:4])}", remedy=remedy)
        ) from None
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except (RuntimeError, ValueError, TypeError) as error:  # all that it raises
        raise InvalidDesc(Problem("audio", "must be a recording", reason_of(error))) from None
    return np.pad(samples, ((silence_of_mp3(content), 0), (0, 0))), int(rate)


def silence_of_mp3(content: bytes) -> int:
    """The samples at the beginning of an MP3 file that `soundfile` leaves out, and GenAI does not; 0 for other files.

    They are the first frame, if it tells of the encoder, and the delay of the encoder and of the decoder.
    """
    if len(content) < 4 or content[0] != 0xFF or content[1] & 0xE0 != 0xE0:
        return 0
    is_first_version, is_mono = content[1] >> 3 & 3 == 3, content[3] >> 6 == 3
    start = 4 + ((17 if is_mono else 32) if is_first_version else (9 if is_mono else 17))
    if content[start : start + 4] not in (b"Xing", b"Info") or len(content) < start + _LONGEST_TAG:
        return 0
    flags = content[start + 7]
    of_encoder = start + 8 + sum(size for bit, size in ((1, 4), (2, 4), (4, 100), (8, 4)) if flags & bit)
    delay = content[of_encoder + 21] << 4 | content[of_encoder + 22] >> 4
    return (1152 if is_first_version else 576) + delay + _DECODER_DELAY


_LONGEST_TAG, _DECODER_DELAY = 156, 529


def _downsample(samples: Any, rate: int, lower: int) -> Any:
    """Samples at a lower rate: a Butterworth filter of order 4, then sinc interpolation under a Kaiser window."""
    filtered = _filter_low(samples, 0.5 * lower / rate)
    factor = np.float32(lower) / np.float32(rate)
    places = np.arange(int(np.ceil(np.float32(len(samples)) * factor)), dtype=np.float32) / factor
    reach = _reach(rate, lower)
    first = np.maximum(places.astype(np.int64) - reach, 0)
    counts = np.minimum(places.astype(np.int64) + reach, len(samples) - 1) - first + 1
    result = np.empty(len(places), np.float32)
    for count in np.unique(counts):  # the windows are shorter at both ends
        window = _kaiser(int(count))
        for rows in np.array_split(chosen := np.flatnonzero(counts == count), len(chosen) // 2**14 + 1):
            taken = first[rows, None] + np.arange(count)
            weights = window * np.sinc(np.abs(taken - places[rows, None].astype(np.float64)))
            result[rows] = (filtered[taken] * weights).sum(1)
    return result


_BETA = 6.0  # of the Kaiser window


def _reach(rate: int, lower: int) -> int:
    """The samples on each side of a place that count for it."""
    return int(np.ceil(_BETA * rate / (2 * lower)))


def _kaiser(count: int) -> Any:
    return np.kaiser(count, _BETA) if count > 1 else np.ones(1)


def _filter_low(samples: Any, cutoff: float) -> Any:
    """Samples without the frequencies above a part of their rate."""
    numerator, denominator = _butterworth(cutoff)
    b0, b1, b2, b3, b4 = numerator.tolist()
    _, a1, a2, a3, a4 = denominator.tolist()
    x1 = x2 = x3 = x4 = y1 = y2 = y3 = y4 = 0.0
    result = []
    for x in samples.tolist():
        y = b0 * x + b1 * x1 + b2 * x2 + b3 * x3 + b4 * x4 - a1 * y1 - a2 * y2 - a3 * y3 - a4 * y4
        x1, x2, x3, x4, y1, y2, y3, y4 = x, x1, x2, x3, y, y1, y2, y3
        result.append(y)
    return np.array(result, np.float32)


def _butterworth(cutoff: float) -> tuple[Any, Any]:
    """The coefficients of a Butterworth filter of order 4, by the bilinear transformation."""
    warped = np.tan(np.pi * cutoff)
    numerator, denominator = np.ones(1), np.ones(1)
    for k in (1, 2):
        damping = 2 * np.sin(np.pi * (2 * k - 1) / 8)
        section = np.array([1 + damping * warped + warped**2, 2 * (warped**2 - 1), 1 - damping * warped + warped**2])
        numerator = np.convolve(numerator, warped**2 * np.array([1.0, 2.0, 1.0]) / section[0])
        denominator = np.convolve(denominator, section / section[0])
    return numerator, denominator
