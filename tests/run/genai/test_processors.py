"""Processors of recordings and images: what a prompt with these becomes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import refuses
from media_files import pixels_of, png, tone, wav

import dmljax.run.onnxruntime_genai as og
from dmljax.run.onnxruntime_genai.pipelines import to_type


def folder_of(
    path: Path, kind: str, parts: dict[str, Any], processor: tuple[str, Any], words: Mapping[str, int]
) -> Path:
    """A folder with a tokenizer and a processor, and none of the models that it names."""
    tokenizers = pytest.importorskip("tokenizers")
    path.mkdir()
    special = {"<pad>": 0, **words}
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    letters = {letter: i + 100 for i, letter in enumerate(alphabet)}
    reader = tokenizers.Tokenizer(tokenizers.models.BPE({**special, **letters}, []))
    reader.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    reader.decoder = tokenizers.decoders.ByteLevel()
    reader.add_special_tokens([*special])
    reader.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text("{}")
    model = {"type": kind, "vocab_size": 200100, "context_length": 4096, "eos_token_id": 0, "pad_token_id": 0, **parts}
    (path / "genai_config.json").write_text(json.dumps({"model": model}))
    (path / processor[0]).write_text(json.dumps(processor[1]))
    return path


def processor_of(tmp_path: Path, kind: str, parts: Any, processor: tuple[str, Any], words: Mapping[str, int]) -> Any:
    return og.Model(str(folder_of(tmp_path / kind, kind, parts, processor, words))).create_multimodal_processor()


# Recordings


HEARING = (
    "audio_processor_config.json",
    {
        "feature_extraction": {
            "sequence": [
                {"operation": {"type": "AudioDecoder"}},
                {"operation": {"type": "STFTNorm", "attrs": {"n_fft": 400, "hop_length": 160, "frame_length": 400}}},
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
    folder = folder_of(tmp_path / "hearing", "whisper", parts, HEARING, {"<|start|>": 1})
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


# Images


SEEING: Any = {"vision": {"filename": "vision.onnx", "spatial_merge_size": 2}}


def transforms(*operations: tuple[str, dict[str, Any]]) -> tuple[str, Any]:
    listed = [{"operation": {"name": name, "type": name, "attrs": attributes}} for name, attributes in operations]
    return "processor_config.json", {"processor": {"transforms": listed}}


PHI3 = transforms(("DecodeImage", {"color_space": "BGR"}), ("ConvertRGB", {}), ("Phi3ImageTransform", {}))


def test_places_of_images_in_prompts_have_a_token_for_each_feature(tmp_path: Path) -> None:
    processor = og.Model(
        str(folder_of(tmp_path / "phi", "phi3v", SEEING, PHI3, {"<|end|>": 1}))
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
MARKS = {"<|vision_start|>": 1, "<|image_pad|>": 2, "<|vision_end|>": 3}


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
    model = og.Model(str(folder_of(tmp_path / "phi", "phi3v", SEEING, processor, {})))
    with refuses(message, RuntimeError):
        model.create_multimodal_processor()


def test_attributes_of_operations_are_checked(tmp_path: Path) -> None:
    steps = transforms(("DecodeImage", {}), ("Permute3D", {"dims": [0]}))
    processor = og.Model(str(folder_of(tmp_path / "phi", "phi3v", SEEING, steps, {}))).create_multimodal_processor()
    with refuses("Permute3D must have all of its attributes; got axes don't match array", RuntimeError):
        processor("<|image_1|>", images=og.Images.open_bytes(png(pixels_of(4, 4))))


GEMMA3 = transforms(
    ("DecodeImage", {}),
    ("Resize", {"height": 6, "width": 8}),
    ("Rescale", {}),
    ("Normalize", {"mean": [0.5] * 3, "std": [0.5] * 3}),
    ("Permute3D", {"dims": [2, 0, 1]}),
)


def test_images_for_gemma3_have_256_tokens_each(tmp_path: Path) -> None:
    marks = {"<start_of_image>": 1, "<image_soft_token>": 2, "<end_of_image>": 3}
    processor = processor_of(tmp_path, "gemma3", SEEING, GEMMA3, marks)
    images = og.Images.open_bytes(png(pixels_of(12, 16)), png(pixels_of(3, 5)))
    inputs = processor("a<start_of_image><start_of_image>", images=images)
    line, a = (processor(text)["input_ids"].as_numpy()[0, 0] for text in ("\n", "a"))
    tokens = [line, line, 1, *[2] * 256, 3, line, line]
    assert inputs["input_ids"].as_numpy().tolist() == [[a, *tokens, *tokens]]
    assert inputs["token_type_ids"].as_numpy().sum() == 512
    assert inputs["pixel_values"].shape() == [2, 3, 6, 8]
    assert inputs["num_image_tokens"].as_numpy().tolist() == [256]
    assert processor("a").keys() == ["input_ids"]
    assert processor("", images=images)["token_type_ids"].as_numpy().sum() == 512
    with refuses("prompt must have <start_of_image> for each of 2 images; got 0", RuntimeError):
        processor("a", images=images)


MISTRAL3 = transforms(
    ("DecodeImage", {}),
    ("Resize", {"smart_resize": 1, "patch_size": 2, "merge_size": 2, "min_pixels": 16, "max_pixels": 400}),
    ("Rescale", {}),
    ("Permute3D", {"dims": [2, 0, 1]}),
    ("PixtralImageSizes", {}),
)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("[INST][IMG]a[IMG][IMG]", [4, "wide", "a", "high"]),
        ("[INST][IMG]a", [4, "high", "wide", "a"]),
        ("a", ["wide", "high", "a"]),
        ("[IMG]a[IMG]a[IMG]", ["wide", "a", "high", "a", 1]),
    ],
)
def test_images_for_mistral3_have_a_token_for_each_square(prompt: str, expected: list[Any], tmp_path: Path) -> None:
    vision = {"vision": {"filename": "vision.onnx", "patch_size": 2, "spatial_merge_size": 2}}
    marks = {"[IMG]": 1, "[IMG_BREAK]": 2, "[IMG_END]": 3, "[INST]": 4}
    processor = processor_of(tmp_path, "mistral3", vision, MISTRAL3, marks)
    inputs = processor(prompt, images=og.Images.open_bytes(png(pixels_of(4, 12)), png(pixels_of(8, 4))))
    places = {"wide": [1, 1, 1, 3], "high": [1, 2, 1, 3], "a": processor("a")["input_ids"].as_numpy()[0].tolist()}
    tokens = [token for part in expected for token in places.get(part, [part])]
    assert inputs["input_ids"].as_numpy().tolist() == [tokens]
    assert inputs["image_sizes"].as_numpy().tolist() == [[4, 12], [8, 4]]
    assert inputs["num_image_tokens"].as_numpy().tolist() == [5]
    pixels = inputs["pixel_values"].as_numpy()
    assert pixels.shape == (2, 3, 8, 12)
    assert not pixels[0, :, 4:].any()
    assert not pixels[1, :, :, 4:].any()


def test_images_for_mistral3_must_have_whole_squares(tmp_path: Path) -> None:
    processor = processor_of(tmp_path, "mistral3", SEEING, MISTRAL3, {"[IMG]": 1, "[IMG_BREAK]": 2, "[IMG_END]": 3})
    with refuses("images must have sides that 28 divides; got [[4, 12]]", RuntimeError):
        processor("[IMG]", images=og.Images.open_bytes(png(pixels_of(4, 12))))
    assert processor("a")["num_image_tokens"].as_numpy().tolist() == [0]


VIDEO: Any = (("DecodeImage", {}), ("Resize", {"height": 6, "width": 8}), ("Rescale", {}))


@pytest.mark.parametrize("end", [(), (("Permute3D", {"dims": [2, 0, 1]}),)])
def test_frames_of_videos_have_the_same_number_of_tokens(end: Any, tmp_path: Path) -> None:
    vision = {"vision": {"filename": "vision.onnx", "num_visual_tokens": 2}}
    processor = processor_of(tmp_path, "videochat_flash_qwen", vision, transforms(*VIDEO, *end), MARKS)
    images = og.Images.open_bytes(png(pixels_of(12, 16)), png(pixels_of(3, 5)))
    inputs = processor("<|vision_start|><|vision_end|><|vision_start|>", images=images)
    assert inputs["input_ids"].as_numpy().tolist() == [[1, 2, 2, 3] * 2]
    assert inputs["pixel_values"].shape() == [1, 2, 3, 6, 8]
    assert inputs["image_grid_thw"].as_numpy().tolist() == [[1, 6, 8]] * 2
    assert inputs["num_image_tokens"].as_numpy().tolist() == [4]
    assert processor("<|vision_start|>")["input_ids"].as_numpy().tolist() == [[1]]


def test_videos_need_a_number_of_tokens(tmp_path: Path) -> None:
    with refuses("num_visual_tokens must be positive; got 0", RuntimeError):
        processor_of(tmp_path, "videochat_flash_qwen", SEEING, transforms(*VIDEO), MARKS)


# Images and recordings


def with_hearing(folder: Path, operations: tuple[str, Any]) -> None:
    """Adds a configuration for recordings to a folder."""
    path = folder / "genai_config.json"
    content = json.loads(path.read_text())
    content["model"]["speech"] = {"filename": "speech.onnx"}
    path.write_text(json.dumps(content))
    sequence = operations[1]["processor"]["transforms"]
    (folder / "audio_processor_config.json").write_text(json.dumps({"feature_extraction": {"sequence": sequence}}))


RECORDING = wav(tone(16000)[:, None].astype("<f4"), 16000, 3)
PHI4 = transforms(
    ("DecodeImage", {}),
    ("Phi4VisionDynamicPreprocess", {"dyhd_base_resolution": 28}),
    ("Rescale", {}),
    ("Phi4VisionProcessor", {"dyhd_base_resolution": 28}),
)
PHI4[1]["processor"]["transforms"][2]["operation"]["inputs"] = [":0"]
PHI4[1]["processor"]["transforms"][3]["operation"]["inputs"] = [":0", "Phi4VisionDynamicPreprocess:1"]
PHI4_HEARING = transforms(
    ("AudioDecoderEx", {"target_sample_rates": [8000, 16000]}),
    (
        "Phi4AudioEmbed",
        {
            "stft_normal/n_fft": 512,
            "stft_normal/frame_length": 400,
            "stft_normal/hop_length": 160,
            "logmel/n_fft": 512,
            "logmel/n_mel": 8,
        },
    ),
)


def test_images_and_recordings_for_phi4_have_tokens(tmp_path: Path) -> None:
    marks = {"<|endoftext10|>": 200010, "<|endoftext11|>": 200011}
    folder = folder_of(tmp_path / "phi4", "phi4mm", SEEING, PHI4, marks)
    images, audios = og.Images.open_bytes(png(pixels_of(28, 28)), png(pixels_of(28, 56))), og.Audios
    silent = og.Model(str(folder)).create_multimodal_processor()
    with refuses("audios must be without recordings (genai_config.json has no model for speech)", RuntimeError):
        silent("<|audio_1|>", audios=audios.open_bytes(RECORDING))
    with_hearing(folder, PHI4_HEARING)
    processor = og.Model(str(folder)).create_multimodal_processor()
    inputs = processor("<|audio_1|><|image_1|><|image_2|>", images=images, audios=audios.open_bytes(RECORDING))
    assert inputs["num_image_tokens"].as_numpy().tolist() == [[275], [276]]
    assert inputs["input_ids"].as_numpy().tolist() == [[*[200011] * 3, *[200010] * 551]]
    assert inputs["audio_sizes"].as_numpy().tolist() == [3]
    assert inputs["audio_embeds"].shape() == [1, 18, 8]
    assert inputs["audio_attention_mask"].as_numpy().tolist() == [[True] * 18]
    assert inputs["audio_projection_mode"].as_numpy().tolist() == [3]
    assert inputs["image_sizes"].as_numpy().tolist() == [[28, 28], [28, 56]]
    assert inputs["pixel_values"].shape() == [2, 3, 3, 28, 28]
    assert not inputs["pixel_values"].as_numpy()[0, 2].any()
    np.testing.assert_array_equal(inputs["image_attention_mask"].as_numpy(), np.ones((2, 3, 2, 2), np.float32))
    assert processor("a")["audio_projection_mode"].as_numpy().tolist() == [0]
    with refuses("prompt must have <|image_1|> for each of 2 images; got 1", RuntimeError):
        processor("<|image_7|>", images=images)
    with refuses("prompt must have <|audio_1|> for each of 0 recordings; got 1", RuntimeError):
        processor("<|audio_1|>")


GEMMA4 = transforms(
    ("DecodeImage", {}), ("Gemma4ImageTransform", {"patch_size": 2, "max_soft_tokens": 4, "pooling_kernel_size": 3})
)
GEMMA4_HEARING = transforms(("AudioDecoder", {}), ("Gemma4LogMel", {"feature_size": 8}))


@pytest.fixture
def gemma4(tmp_path: Path) -> Any:
    words = ("<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "\n\n")
    marks = {word: i + 1 for i, word in enumerate(words)}
    folder = folder_of(tmp_path / "gemma4", "gemma4", SEEING, GEMMA4, marks)
    with_hearing(folder, GEMMA4_HEARING)
    return og.Model(str(folder)).create_multimodal_processor()


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a<|image><|image>", ["a", 0, 1]), ("<|image|>a<|image|>", [0, "a", 1]), ("a", [0, " ", 1, " ", "a"])],
)
def test_images_for_gemma4_have_as_many_tokens_as_fit(prompt: str, expected: list[Any], gemma4: Any) -> None:
    inputs = gemma4(prompt, images=og.Images.open_bytes(png(pixels_of(20, 20)), png(pixels_of(20, 65))))
    letters = {text: gemma4(text)["input_ids"].as_numpy()[0].tolist() for text in ("a", " ")}
    places = [[7, 1, *[2] * count, 3, 7] for count in (4, 3)]
    tokens = [token for part in expected for token in (letters[part] if isinstance(part, str) else places[part])]
    assert inputs["input_ids"].as_numpy().tolist() == [tokens]
    assert inputs["token_type_ids"].as_numpy().sum() == 7
    assert inputs["num_image_tokens"].as_numpy().tolist() == [4, 3]
    assert inputs["pixel_values"].shape() == [2, 36, 12]
    assert inputs["pixel_position_ids"].as_numpy()[1, 26:28].tolist() == [[8, 2], [-1, -1]]


@pytest.mark.parametrize("prompt", ["<|audio|>a", "<|audio>a", "a"])
def test_recordings_for_gemma4_have_a_token_for_four_frames(prompt: str, gemma4: Any) -> None:
    inputs = gemma4(prompt, audios=og.Audios.open_bytes(RECORDING))
    a = gemma4("a")["input_ids"].as_numpy()[0].tolist()
    assert inputs["audio_embeds"].shape() == [1, 19, 8]
    assert inputs["audio_attention_mask"].as_numpy().all()
    assert inputs["audio_sizes"].as_numpy().tolist() == [5]
    assert inputs["input_ids"].as_numpy().tolist() == [[7, 4, *[5] * 5, 6, 7, *a]]


def test_prompts_for_gemma4_are_checked(gemma4: Any) -> None:
    assert gemma4("a").keys() == ["input_ids"]
    images, audios = og.Images.open_bytes(png(pixels_of(9, 9))), og.Audios.open_bytes(RECORDING)
    with refuses("prompt must have <|image> for each of 1 image; got 2", RuntimeError):
        gemma4("<|image><|image>", images=images)
    with refuses("prompt must have one <|audio|>; got 2", RuntimeError):
        gemma4("<|audio|><|audio|>", audios=audios)
    with refuses("audios must be one recording; got 2", RuntimeError):
        gemma4("a", audios=og.Audios.open_bytes(RECORDING, RECORDING))


def test_operations_can_name_only_results_before_them(tmp_path: Path) -> None:
    steps = transforms(("DecodeImage", {}), ("Rescale", {}))
    steps[1]["processor"]["transforms"][1]["operation"]["inputs"] = ["Resize:0"]
    processor = processor_of(tmp_path, "gemma3", SEEING, steps, {"<start_of_image>": 1})
    with refuses("inputs must be results of the operations before; got 'Resize:0'", RuntimeError):
        processor("<start_of_image>", images=og.Images.open_bytes(png(pixels_of(4, 4))))


def test_what_lies_between_two_halves_becomes_the_larger() -> None:
    step = 2.0**-10
    numbers = np.array([1 + step / 2, -1 - step / 2, 1 + step * 0.49, 1 + step * 1.5], np.float32)
    expected = np.array([1 + step, -1 - step, 1, 1 + 2 * step], np.float16)
    np.testing.assert_array_equal(to_type(numbers, np.float16), expected)
