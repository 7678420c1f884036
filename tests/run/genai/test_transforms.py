"""Transforms of recordings and images: the numbers beside their formulas."""

import struct
import sys
from typing import Any

import numpy as np
import pytest
from helpers import refuses
from media_files import RNG, image_file, pixels_of, png, tone, wav

from dmljax.run.onnxruntime_genai.transforms import IMAGE_OPERATIONS, SOUND_OPERATIONS
from dmljax.run.onnxruntime_genai.transforms.features import log_mel, mel_filters, spectrum
from dmljax.run.onnxruntime_genai.transforms.sounds import decode_sound, silence_of_mp3

# Recordings


@pytest.mark.parametrize(
    ("dtype", "scale", "zero", "kind"),
    [("u1", 127, 127.5, 1), ("<i2", 2**15, 0, 1), ("<i4", 2**31, 0, 1), ("<f4", 1, 0, 3), ("<f8", 1, 0, 3)],
)
def test_samples_of_wav_files_are_floats(dtype: str, scale: float, zero: float, kind: int) -> None:
    stored = (tone(16000)[:, None] * scale + zero).astype(dtype)
    samples = decode_sound(wav(stored, 16000, kind), {})
    np.testing.assert_allclose(samples, tone(16000), rtol=0, atol=0.01 if dtype == "u1" else 4e-5)


def test_samples_of_24_bits_are_read() -> None:
    numbers = (tone(16000) * 2**23).astype("<i4")
    stored = numbers.view(np.uint8).reshape(-1, 4)[:, :3]
    header = bytearray(wav(np.ascontiguousarray(stored), 16000))
    header[20 + 2 : 20 + 16] = struct.pack("<HIIHH", 1, 16000, 48000, 3, 24)
    np.testing.assert_allclose(decode_sound(bytes(header), {}), tone(16000), rtol=0, atol=1e-6)


def test_two_channels_become_one_at_16_kilohertz() -> None:
    stereo = np.stack([tone(48000), np.zeros(9600)], 1).astype("<f4")
    samples = decode_sound(wav(stereo, 48000, 3), {})
    assert len(samples) == 3200
    # The filter delays, so compare the tone's spectrum.
    peaks = [np.argmax(np.abs(np.fft.rfft(x))) for x in (samples, tone(16000))]
    assert peaks[0] == peaks[1]
    np.testing.assert_allclose(np.abs(samples[800:2400]).max(), 0.25, rtol=0.02)


def test_a_low_pass_removes_what_the_lower_rate_cannot_hold() -> None:
    high = 0.5 * np.sin(2 * np.pi * 15000 * np.arange(9600) / 48000)
    samples = decode_sound(wav(high[:, None].astype("<f4"), 48000, 3), {})
    assert np.abs(samples[800:2400]).max() < 0.05


def test_only_the_samples_that_count_are_converted() -> None:
    long = RNG.standard_normal((9600, 1)).astype("<f4") / 8
    whole = decode_sound(wav(long, 48000, 3), {"max_samples": 0})
    np.testing.assert_array_equal(decode_sound(wav(long, 48000, 3), {"max_samples": 900}), whole[:900])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            wav(tone(8000)[:, None].astype("<f4"), 8000, 3),
            "audio must have at least 16000 samples in a second; got 8000",
        ),
        (wav(np.zeros((99, 3), "<f4"), 16000, 3), "audio must have at most two channels; got 3"),
        (
            wav(np.zeros((99, 1), "<i2"), 16000, 6),
            "audio must have samples of 8 to 32 bits, or of floats; got format 6",
        ),
        (b"RIFF", "audio must be a WAV file with a format and samples"),
    ],
)
def test_recordings_that_cannot_be_read_are_refused(content: bytes, message: str) -> None:
    with refuses(message):
        decode_sound(content, {})


def test_other_files_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with refuses(
        "audio must be a WAV file; got a file that begins with b'fLaC' (convert it, or pip install soundfile)"
    ):
        decode_sound(b"fLaC....", {})


@pytest.mark.parametrize(
    ("header", "start", "frame"), [(b"\xff\xfb\x90\x00", 36, 1152), (b"\xff\xf3\x90\xc0", 13, 576), (b"fLaC", 0, None)]
)
def test_silence_of_mp3_files_is_kept(header: bytes, start: int, frame: int | None) -> None:
    sizes = {1: 4, 4: 100}  # of the optional parts of the tag
    tag = b"Info\0\0\0" + bytes([sum(sizes)]) + bytes(sum(sizes.values()) + 21) + bytes([576 >> 4, (576 & 15) << 4, 0])
    content = header.ljust(start, b"\0") + tag + bytes(99)
    assert silence_of_mp3(content) == (0 if frame is None else frame + 576 + 529)
    assert silence_of_mp3(content.replace(b"Info", b"none")) == 0


SIZES: dict[str, Any] = {"n_fft": 400, "hop_length": 160, "frame_length": 400}


def test_log_mel_features_are_those_of_their_formula() -> None:
    samples = RNG.standard_normal(800).astype(np.float32)
    power = spectrum(samples, SIZES)
    padded = np.concatenate([np.zeros(200), samples, np.zeros(200)])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    expected = np.stack([np.abs(waves @ (padded[i : i + 400] * window)) ** 2 for i in range(0, 801, 160)], 1)
    np.testing.assert_allclose(power, expected, rtol=1e-4, atol=1e-4)
    features = log_mel(power, {"n_fft": 400, "hop_length": 160, "n_mel": 80, "chunk_size": 1})
    logs = np.log10(np.maximum(mel_filters(400, 80) @ expected[:, :-1], 1e-10))
    clipped = np.maximum(logs, logs.max() - 8) / 4 + 1
    assert features.shape == (80, 100)
    np.testing.assert_allclose(features[:, :5], clipped, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(features[:, 5:], (logs.max() - 8) / 4 + 1, rtol=1e-4, atol=1e-4)
    whole = {"n_fft": 400, "n_mel": 80, "no_padding": 1, "feature_first": 0}
    np.testing.assert_allclose(log_mel(power, whole), clipped.T, rtol=1e-4, atol=1e-4)


def test_mel_filters_have_equal_areas() -> None:
    filters = mel_filters(4000, 40)
    assert filters.shape == (40, 2001)
    np.testing.assert_allclose(filters.sum(1) * 16000 / 4000, 1, rtol=0.02)
    peaks = np.argmax(filters, 1) * 4
    assert (np.diff(peaks) > 0).all()
    assert peaks[-1] < 8000


@pytest.mark.parametrize("rate", [8000, 16000])
def test_features_for_phi4_are_those_of_their_formula(rate: int) -> None:
    size, length, hop = 512 * rate // 16000, 400 * rate // 16000, 160 * rate // 16000
    names = ("n_fft", "frame_length", "hop_length")
    attributes: dict[str, Any] = {"audio_compression_rate": 3}
    for suffix, factor in (("", 1), ("_8k", 2)):
        attributes |= {
            f"stft_normal{suffix}/{name}": x // factor for name, x in zip(names, (512, 400, 160), strict=True)
        }
        attributes |= {f"logmel{suffix}/n_fft": 512, f"logmel{suffix}/n_mel": 20}
    samples = (RNG.standard_normal(length + 4 * hop) / 4).astype(np.float32)
    features, is_heard, count = SOUND_OPERATIONS["Phi4AudioEmbed"](samples, rate, attributes)
    window = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(length) / (length - 1))
    mels = 1127 * np.log(1 + np.arange(257) * 16000 / 512 / 700)
    width = 1127 * np.log(1 + 7689 / 700) / 21
    filters = np.maximum(0, 1 - np.abs(mels - width * np.arange(1, 21)[:, None]) / width)
    filters[:, [0, *range(127 if rate == 8000 else 246, 257)]] = 0
    for row, start in zip(features, range(0, 4 * hop + 1, hop), strict=True):
        frame = samples[start : start + length].astype(np.float64)
        emphasized = frame - 0.97 * np.concatenate([frame[:1], frame[:-1]])
        power = np.abs(np.fft.rfft(emphasized * window * 32768, size)) ** 2
        expected = np.log(np.maximum(filters[:, : len(power)] @ power, 1))
        np.testing.assert_allclose(row, expected, rtol=1e-4)
    assert is_heard.all()
    assert (is_heard.shape, count.tolist()) == ((5,), [2])
    with refuses("audio must have 8000 or 16000 samples in a second; got 11025"):
        SOUND_OPERATIONS["Phi4AudioEmbed"](samples, 11025, attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"preemphasis": 0.5},
        {"preemphasis": 0.5, "preemphasis_htk_flavor": 0, "fft_overdrive": 1},
        {"per_bin_mean": [0.5] * 30, "per_bin_stddev": [2.0] * 29 + [0.0]},
    ],
)
def test_features_for_gemma4_are_those_of_their_formula(attributes: dict[str, Any]) -> None:
    samples = (RNG.standard_normal(700) / 4).astype(np.float32)
    features, is_heard = SOUND_OPERATIONS["Gemma4LogMel"](samples, {"feature_size": 30, **attributes})
    size = 1024 if "fft_overdrive" in attributes else 512
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 32)
    places = 700 * (10 ** (mels / 2595) - 1) * size / 16000
    filters = np.stack([np.interp(np.arange(size // 2 + 1), places[i : i + 3], [0, 1, 0]) for i in range(30)])
    padded = np.concatenate([np.zeros(160), samples])
    emphasis = attributes.get("preemphasis", 0)
    for row, start in zip(features, (0, 160, 320, 480), strict=True):
        frame = padded[start : start + 321]
        if attributes.get("preemphasis_htk_flavor", 1):
            emphasized = frame[:320] - emphasis * np.concatenate([frame[:1], frame[:319]])
        else:
            emphasized = frame[1:] - emphasis * frame[:-1]
        window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(320) / 320)
        expected = np.log(filters @ np.abs(np.fft.rfft(emphasized * window, size)) + 0.001)
        if "per_bin_mean" in attributes:
            expected = (expected - 0.5) / np.array([2.0] * 29 + [1.0])
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)
    assert is_heard.tolist() == [True] * 4


def test_short_recordings_are_refused() -> None:
    with refuses("audio must have more than 160 samples; got 9"):
        SOUND_OPERATIONS["Gemma4LogMel"](np.zeros(9, np.float32), {})
    with refuses("per_bin_mean must have a number for each of 128 mel bins; got 1"):
        SOUND_OPERATIONS["Gemma4LogMel"](np.zeros(900, np.float32), {"per_bin_mean": [1.0]})


# Images


def test_images_are_decoded_in_their_own_colors() -> None:
    decode = IMAGE_OPERATIONS["DecodeImage"]
    pixels = pixels_of(3, 4, 4)
    np.testing.assert_array_equal(decode(png(pixels), {}), pixels[..., :3])
    np.testing.assert_array_equal(decode(png(pixels[..., :3]), {"color_space": "BGR"}), pixels[..., 2::-1])
    gray = pixels[..., 0]
    np.testing.assert_array_equal(decode(png(gray), {}), np.repeat(gray[..., None], 3, 2))
    deep = pixels[..., 0].astype(np.uint16) * 256 + 7
    np.testing.assert_array_equal(decode(png(deep), {}), np.repeat(gray[..., None], 3, 2))
    with refuses("images must be images; got"):
        decode(b"nothing", {})


@pytest.mark.parametrize(
    ("height", "width", "expected"), [(30, 45, (28, 56)), (10, 12, (56, 84)), (300, 400, (140, 196))]
)
def test_images_are_scaled_to_whole_patches(height: int, width: int, expected: tuple[int, int]) -> None:
    attributes = {"smart_resize": 1, "patch_size": 14, "merge_size": 2, "min_pixels": 1500, "max_pixels": 30000}
    if (height, width) == (10, 12):
        attributes["min_pixels"] = 3136
    scaled = IMAGE_OPERATIONS["Resize"](pixels_of(height, width), attributes)
    assert scaled.shape == (*expected, 3)


def test_colors_are_scaled_and_normalized() -> None:
    pixels = pixels_of(2, 3)
    floats = IMAGE_OPERATIONS["Rescale"](pixels, {})
    np.testing.assert_allclose(floats, pixels / 255, rtol=1e-6)
    attributes = {"mean": [0.5, 0.25, 0], "std": [0.5, 2, 1]}
    expected = (pixels / 255 - [0.5, 0.25, 0]) / [0.5, 2, 1]
    np.testing.assert_allclose(IMAGE_OPERATIONS["Normalize"](floats, attributes), expected, rtol=1e-5, atol=1e-6)
    swapped = IMAGE_OPERATIONS["Normalize"](floats, {**attributes, "qwen2_5_vl": 1})
    np.testing.assert_allclose(swapped, (pixels[..., ::-1] / 255 - [0.5, 0.25, 0]) / [0.5, 2, 1], rtol=1e-5, atol=1e-6)


def test_images_are_cropped_and_their_axes_moved() -> None:
    pixels = pixels_of(7, 8)
    np.testing.assert_array_equal(IMAGE_OPERATIONS["CenterCrop"](pixels, {"height": 3, "width": 4}), pixels[2:5, 2:6])
    np.testing.assert_array_equal(IMAGE_OPERATIONS["Permute3D"](pixels, {"dims": [2, 0, 1]}), np.moveaxis(pixels, 2, 0))
    kept, sizes = IMAGE_OPERATIONS["PixtralImageSizes"](np.moveaxis(pixels, 2, 0), {})
    assert (kept.shape, sizes.tolist()) == ((3, 7, 8), [7, 8])
    with refuses("images must have at least 9x3 pixels; got 8x7"):
        IMAGE_OPERATIONS["CenterCrop"](pixels, {"height": 3, "width": 9})


def test_patches_that_are_merged_follow_each_other() -> None:
    size, merged = 2, 2
    pixels = RNG.standard_normal((8, 12, 3)).astype(np.float32)
    attributes = {"patch_size": size, "temporal_patch_size": 2, "merge_size": merged}
    patches, grid = IMAGE_OPERATIONS["PatchImage"](pixels, attributes)
    expected = [
        np.stack([np.moveaxis(pixels[y : y + size, x : x + size], 2, 0)] * 2, 1).ravel()
        for top in range(0, 8, size * merged)
        for left in range(0, 12, size * merged)
        for y in range(top, top + size * merged, size)
        for x in range(left, left + size * merged, size)
    ]
    np.testing.assert_array_equal(patches, expected)
    assert grid.tolist() == [1, 4, 6]
    with refuses("images must have sides that 4 divides; got (8, 10)"):
        IMAGE_OPERATIONS["PatchImage"](pixels[:, :10], attributes)


@pytest.mark.parametrize(("height", "width", "tiles"), [(40, 90, (3, 5)), (90, 40, (5, 3)), (50, 50, (4, 4))])
def test_large_images_become_tiles(height: int, width: int, tiles: tuple[int, int]) -> None:
    color = np.array([200, 100, 50], np.uint8)
    pixels = np.broadcast_to(color, (height, width, 3))
    values, sizes, counts = IMAGE_OPERATIONS["Phi3ImageTransform"](pixels, {})
    rows, columns = tiles
    assert sizes.tolist() == [336 * rows, 336 * columns]
    assert counts.tolist() == [(rows * columns + 1) * 144 + 1 + (rows + 1) * 12]
    assert values.shape == (17, 3, 336, 336)
    mean, std = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    middle = values[
        1 + (rows // 2) * columns + columns // 2, :, 0 if rows % 2 == 0 else 168, 0 if columns % 2 == 0 else 168
    ]
    np.testing.assert_allclose(middle, (color / 255 - mean) / std, rtol=1e-4)
    assert not values[1 + rows * columns :].any()


@pytest.mark.parametrize(
    ("height", "width", "tiles", "size"), [(56, 28, (2, 1), (56, 28)), (30, 200, (1, 7), (28, 186))]
)
def test_images_for_phi4_fit_whole_tiles(
    height: int, width: int, tiles: tuple[int, int], size: tuple[int, int]
) -> None:
    attributes = {"dyhd_base_resolution": 28, "dynamic_hd": 7}
    pixels = np.broadcast_to(np.array([200, 100, 50], np.uint8), (height, width, 3))
    padded, is_shown = IMAGE_OPERATIONS["Phi4VisionDynamicPreprocess"](pixels, attributes)
    assert padded.shape == (28 * tiles[0], 28 * tiles[1], 3)
    np.testing.assert_array_equal(padded[: size[0], : size[1]], np.broadcast_to(pixels[0, 0], (*size, 3)))
    assert (padded[size[0] :] == 255).all()
    assert (padded[:, size[1] :] == 255).all()
    values, sizes, masks, count = IMAGE_OPERATIONS["Phi4VisionProcessor"](
        padded.astype(np.float32), is_shown, attributes
    )
    assert values.shape == (tiles[0] * tiles[1] + 1, 3, 28, 28)
    np.testing.assert_array_equal(values[1], np.moveaxis(padded[:28, :28], 2, 0))
    np.testing.assert_array_equal(values[-1], np.moveaxis(padded[-28:, -28:], 2, 0))
    np.testing.assert_allclose(values[0, :, 14, 5], [200, 100, 50], rtol=1e-5)
    assert sizes.tolist() == [28 * tiles[0], 28 * tiles[1]]
    assert (masks == 1).all()
    assert masks.shape == (tiles[0] * tiles[1] + 1, 2, 2)
    assert count.tolist() == [256 + 1 + tiles[0] * tiles[1] + tiles[0] + 16]


def test_images_for_phi4_hide_what_is_added() -> None:
    pixels = pixels_of(28, 43)
    _, is_shown = IMAGE_OPERATIONS["Phi4VisionDynamicPreprocess"](pixels, {"dyhd_base_resolution": 28})
    assert is_shown.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1]]
    _, is_shown = IMAGE_OPERATIONS["Phi4VisionDynamicPreprocess"](pixels_of(28, 30), {"dyhd_base_resolution": 28})
    assert is_shown.tolist() == [[1, 1, 1, 0], [1, 1, 1, 0]]
    with refuses("images must not be so narrow; got 900x2"):
        IMAGE_OPERATIONS["Phi4VisionDynamicPreprocess"](pixels_of(2, 900), {"dyhd_base_resolution": 28})


@pytest.mark.parametrize(("height", "width", "grid"), [(50, 90, (4, 10)), (2, 300, (2, 30)), (300, 2, (30, 2))])
def test_images_for_gemma4_are_patches_with_places(height: int, width: int, grid: tuple[int, int]) -> None:
    attributes = {"patch_size": 4, "max_soft_tokens": 15, "pooling_kernel_size": 2}
    pixels = np.broadcast_to(np.array([255, 51, 0], np.uint8), (height, width, 3))
    patches, places, count = IMAGE_OPERATIONS["Gemma4ImageTransform"](pixels, attributes)
    rows, columns = grid
    assert count.tolist() == [rows * columns // 4]
    assert places[: rows * columns].tolist() == [[x, y] for y in range(rows) for x in range(columns)]
    assert (places[rows * columns :] == -1).all()
    expected = np.tile([1, 0.2, 0], (rows * columns, 16))
    np.testing.assert_allclose(patches[: rows * columns], expected, atol=1e-6)
    assert patches.shape == (60, 48)
    assert not patches[rows * columns :].any()


@pytest.mark.parametrize("options", [{"subsampling": 1}, {"subsampling": 2}, {"subsampling": 2, "progressive": True}])
def test_sampled_colors_of_jpeg_images_are_enlarged_by_their_frequencies(options: dict[str, Any]) -> None:
    blue = 40 * np.cos((2 * (np.arange(50) % 16) + 1) * np.pi / 32)  # the second of a block's frequencies
    light = np.full((37, 50), 128, np.uint8)
    colors = [light, np.broadcast_to(np.round(128 + blue), light.shape).astype(np.uint8), light]
    content = image_file(colors, "JPEG", "YCbCr", quality=95, **options)
    pixels = IMAGE_OPERATIONS["DecodeImage"](content, {})
    assert pixels.shape == (37, 50, 3)
    assert (pixels[..., 0] == 128).all()
    error = np.abs(pixels[..., 2] - (128 + 1.772 * blue))[:, :48]
    assert error.max() < 3  # interpolation is off by 36


def test_jpeg_images_without_sampled_colors_are_read() -> None:
    pixels = np.broadcast_to(np.array([200, 100, 50], np.uint8), (20, 30, 3)).copy()
    for content in (
        image_file(pixels, "JPEG", subsampling=0),
        image_file(pixels, "JPEG", subsampling=1, progressive=True),
    ):
        np.testing.assert_allclose(IMAGE_OPERATIONS["DecodeImage"](content, {}), pixels, rtol=0, atol=2)
    gray = image_file(pixels[..., 0], "JPEG")
    np.testing.assert_allclose(IMAGE_OPERATIONS["DecodeImage"](gray, {}), np.full((20, 30, 3), 200), rtol=0, atol=2)
    four = image_file([pixels[..., 0]] * 4, "JPEG", "CMYK")
    with refuses("images must have three colors; got CMYK"):
        IMAGE_OPERATIONS["DecodeImage"](four, {})
    for size in (30, 200, 500):
        with refuses("images must be images; got"):
            IMAGE_OPERATIONS["DecodeImage"](image_file(pixels, "JPEG", subsampling=2)[:size], {})
