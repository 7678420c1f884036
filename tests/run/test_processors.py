"""Processors of recordings and images: the numbers beside their formulas, and the prompts."""

import io
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import refuses

import dmljax.run.onnxruntime_genai as og
from dmljax.run.onnxruntime_genai import image_transforms
from dmljax.run.onnxruntime_genai.sounds import decode_sound, log_mel, mel_filters, silence_of_mp3, spectrum

RNG = np.random.default_rng(0)
IMAGE_OPERATIONS: dict[str, Any] = {**image_transforms.IMAGE_OPERATIONS}


def folder_of(path: Path, kind: str, parts: dict[str, Any], processor: tuple[str, Any], words: list[str]) -> Path:
    """A folder with a tokenizer and a processor, and none of the models that it names."""
    tokenizers = pytest.importorskip("tokenizers")
    path.mkdir()
    special = ["<pad>", *words]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    reader = tokenizers.Tokenizer(tokenizers.models.BPE({word: i for i, word in enumerate([*special, *alphabet])}, []))
    reader.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    reader.decoder = tokenizers.decoders.ByteLevel()
    reader.add_special_tokens(special)
    reader.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text("{}")
    model = {"type": kind, "vocab_size": 300, "context_length": 4096, "eos_token_id": 0, "pad_token_id": 0, **parts}
    (path / "genai_config.json").write_text(json.dumps({"model": model}))
    (path / processor[0]).write_text(json.dumps(processor[1]))
    return path


# Recordings


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


HEARING = (
    "audio_processor_config.json",
    {
        "feature_extraction": {
            "sequence": [
                {"operation": {"type": "AudioDecoder"}},
                {"operation": {"type": "STFTNorm", "attrs": SIZES}},
                {
                    "operation": {
                        "type": "LogMelSpectrum",
                        "attrs": {"n_fft": 400, "hop_length": 160, "n_mel": 8, "chunk_size": 1},
                    }
                },
            ]
        }
    },
)


def test_recordings_and_prompts_become_inputs(tmp_path: Path) -> None:
    parts = {"encoder": {"filename": "encoder.onnx"}, "decoder": {"filename": "decoder.onnx"}}
    folder = folder_of(tmp_path / "hearing", "whisper", parts, HEARING, ["<|start|>"])
    model = og.Model(str(folder))  # without the models, which the processor does not need
    processor = model.create_multimodal_processor()
    recording = wav(tone(16000)[:, None].astype("<f4"), 16000, 3)
    (tmp_path / "a.wav").write_bytes(recording)
    inputs = processor(
        ["<|start|>", "<|start|>a"], audios=og.Audios.open(str(tmp_path / "a.wav"), str(tmp_path / "a.wav"))
    )
    assert inputs["audio_features"].shape() == [2, 8, 100]
    tokens = inputs["input_ids"].as_numpy()
    assert (tokens[0].tolist(), tokens[1, 0]) == ([1, 0], 1)
    assert processor.decode(tokens[1]) == "a"
    one = processor("<|start|>", audios=og.Audios.open_bytes(recording))
    np.testing.assert_array_equal(one["audio_features"].as_numpy(), inputs["audio_features"].as_numpy()[:1])
    with refuses("audios must be given with a prompt for each", RuntimeError):
        processor("<|start|>")
    with refuses("encoder.filename must be a file in the folder; got 'encoder.onnx'", RuntimeError):
        og.Generator(model, og.GeneratorParams(model))


UNTYPED: Any = (3, "a")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: og.Images.open(), "paths must be one or more texts; got none"),
        (lambda: og.Images.open(UNTYPED[0]), "paths must be one or more texts; got 3"),
        (lambda: og.Audios.open("/none/a.wav"), "must be a readable file"),
        (lambda: og.Images.open_bytes(UNTYPED[1]), "contents must be one or more contents of files as bytes; got 'a'"),
        (lambda: og.Audios.open_bytes(b""), "contents must not be empty"),
    ],
)
def test_files_are_checked(call: Callable[[], Any], message: str) -> None:
    with refuses(message, RuntimeError):
        call()


# Images


def png(pixels: Any) -> bytes:
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def pixels_of(height: int, width: int, channels: int = 3) -> Any:
    return RNG.integers(0, 256, (height, width, channels), np.uint8)


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


SEEING: Any = {"vision": {"filename": "vision.onnx", "spatial_merge_size": 2}}


def transforms(*operations: tuple[str, dict[str, Any]]) -> tuple[str, Any]:
    listed = [{"operation": {"type": name, "attrs": attributes}} for name, attributes in operations]
    return "processor_config.json", {"processor": {"transforms": listed}}


PHI3 = transforms(("DecodeImage", {"color_space": "BGR"}), ("ConvertRGB", {}), ("Phi3ImageTransform", {}))


def test_places_of_images_in_prompts_have_a_token_for_each_feature(tmp_path: Path) -> None:
    processor = og.Model(
        str(folder_of(tmp_path / "phi", "phi3v", SEEING, PHI3, ["<|end|>"]))
    ).create_multimodal_processor()
    wide, square = png(pixels_of(10, 40)), png(pixels_of(10, 10))
    inputs = processor("a<|image_2|>b<|image_1|><|end|>", images=og.Images.open_bytes(wide, square))
    counts = inputs["num_image_tokens"].as_numpy()[:, 0].tolist()
    tokens = inputs["input_ids"].as_numpy()[0]
    assert [int((tokens == -number).sum()) for number in (1, 2)] == counts
    a, b = (processor("ab")["input_ids"].as_numpy()[0]).tolist()
    assert [int(tokens[0]), int(tokens[1 + counts[1]]), int(tokens[-1])] == [a, b, 1]
    assert inputs["pixel_values"].shape() == [2, 17, 3, 336, 336]
    assert inputs["image_sizes"].as_numpy().tolist()[1] == [1344, 1344]
    for prompt in ("a", "<|image_1|><|image_3|>"):
        with refuses("prompt must have the images <|image_1|> to <|image_2|>, as many as are given", RuntimeError):
            processor(prompt, images=og.Images.open_bytes(wide, square))
    with refuses("prompt must have no images, as none is given; got [1]", RuntimeError):
        processor("<|image_1|>")
    with refuses("prompt must be one text; got 2", RuntimeError):
        processor(["a", "b"], images=og.Images.open_bytes(wide))


QWEN = transforms(
    ("DecodeImage", {"color_space": "RGB"}),
    ("ConvertRGB", {}),
    ("Resize", {"smart_resize": 1, "patch_size": 2, "merge_size": 2, "min_pixels": 16, "max_pixels": 400}),
    ("Rescale", {}),
    ("Normalize", {"qwen2_5_vl": 1}),
    ("PatchImage", {"patch_size": 2, "temporal_patch_size": 2, "merge_size": 2}),
)
MARKS = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]


def test_patches_of_images_have_tokens(tmp_path: Path) -> None:
    model = og.Model(str(folder_of(tmp_path / "qwen", "qwen2_5_vl", SEEING, QWEN, MARKS)))
    processor = model.create_multimodal_processor()
    images = og.Images.open_bytes(png(pixels_of(8, 12)), png(pixels_of(4, 4)))
    place = "".join(MARKS)
    inputs = processor(f"{place}a{place}", images=images)
    tokens = inputs["input_ids"].as_numpy()[0].tolist()
    assert [*tokens[:8], *tokens[9:]] == [1, *[2] * 6, 3, 1, 2, 3]
    assert inputs["image_grid_thw"].as_numpy().tolist() == [[1, 4, 6], [1, 2, 2]]
    assert inputs["pixel_values"].shape() == [28, 24]
    assert inputs["num_image_tokens"].as_numpy().tolist() == [7]
    empty = processor("", images=og.Images.open_bytes(png(pixels_of(4, 4))))
    assert empty["input_ids"].as_numpy()[0].tolist() == [1, 2, 3]
    assert processor("a")["num_image_tokens"].as_numpy().tolist() == [0]
    with refuses("prompt must have <|vision_start|> for each of 2 images; got 1", RuntimeError):
        processor(place, images=images)


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (transforms(("Sharpen", {})), "processor.transforms must be operations among DecodeImage"),
        (transforms(), "processor.transforms must be a list of operations"),
        (("processor_config.json", []), "must be a JSON object; got list"),
    ],
)
def test_configurations_of_processors_are_checked(processor: Any, message: str, tmp_path: Path) -> None:
    model = og.Model(str(folder_of(tmp_path / "phi", "phi3v", SEEING, processor, [])))
    with refuses(message, RuntimeError):
        model.create_multimodal_processor()


def test_attributes_of_operations_are_checked(tmp_path: Path) -> None:
    steps = transforms(("DecodeImage", {}), ("Permute3D", {"dims": [0]}))
    processor = og.Model(str(folder_of(tmp_path / "phi", "phi3v", SEEING, steps, []))).create_multimodal_processor()
    with refuses("Permute3D must have all of its attributes; got axes don't match array", RuntimeError):
        processor("<|image_1|>", images=og.Images.open_bytes(png(pixels_of(4, 4))))
