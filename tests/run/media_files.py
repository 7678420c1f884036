"""Recordings and images, made in memory as files."""

import io
import struct
from typing import Any

import numpy as np
import pytest

RNG = np.random.default_rng(0)


def wav(samples: Any, rate: int, kind: int = 1) -> bytes:
    """A WAV file with samples (samples, channels) as they are stored."""
    data, width = samples.tobytes(), samples.dtype.itemsize
    channels = samples.shape[1]
    header = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * width, channels * width, 8 * width)
    chunks = b"fmt " + struct.pack("<I", len(header)) + header + b"junk\x01\0\0\0a\0data" + struct.pack("<I", len(data))
    content: bytes = b"RIFF" + struct.pack("<I", len(chunks) + len(data) + 4) + b"WAVE" + chunks + data
    return content


def tone(rate: int, seconds: float = 0.2) -> Any:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)


def png(pixels: Any) -> bytes:
    return image_file(pixels, "PNG")


def image_file(pixels: Any, kind: str, mode: str | None = None, **options: Any) -> bytes:
    """A file of an image whose colors are as `mode` has them."""
    module = pytest.importorskip("PIL.Image")
    image = module.fromarray(pixels) if mode is None else module.merge(mode, [*map(module.fromarray, pixels)])
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels_of(height: int, width: int, channels: int = 3) -> Any:
    return RNG.integers(0, 256, (height, width, channels), np.uint8)
