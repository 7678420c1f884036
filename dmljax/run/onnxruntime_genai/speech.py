"""Processors of recordings: what models that hear, some of which also see, read of a prompt."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmljax.errors import InvalidType, Problem, Unsupported
from dmljax.run.onnxruntime_genai.configuration import Folder
from dmljax.run.onnxruntime_genai.media import Audios, Images
from dmljax.run.onnxruntime_genai.pipelines import (
    IMAGE_FILE,
    SOUND_FILE,
    Pipeline,
    Process,
    contents_of,
    image_pipeline,
    input_type,
    named,
    only_prompt,
    require_count,
    sound_pipeline,
    stack,
    to_type,
)
from dmljax.run.onnxruntime_genai.tensors import NamedTensors
from dmljax.run.onnxruntime_genai.texts import Tokenizer


def process_whisper(model: Folder, tokenizer: Tokenizer) -> Process:
    """Log-mel features of recordings, each with a prompt."""
    run, dtype = sound_pipeline(model), input_type(model, "encoder", "audio_features")

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        contents = contents_of("audios", audios)
        if not contents or not prompts:
            raise InvalidType(Problem("audios", "must be given with a prompt for each"))
        features = np.stack([run(content)[0] for content in contents])
        return named(audio_features=to_type(features, dtype), input_ids=tokenizer.encode_batch(prompts).as_numpy())

    return process


def _optional_sound_pipeline(model: Folder) -> Pipeline | None:
    """The operations on a recording; None if the folder has no model for speech."""
    section = model._content["model"].get("speech", {})
    return sound_pipeline(model) if section.get("filename") else None


def _features(run: Pipeline | None, contents: Sequence[bytes], count: int) -> list[Any]:
    if run is None:
        rule, remedy = "must be without recordings", "genai_config.json has no model for speech"
        raise Unsupported(Problem("audios", rule, remedy=remedy))
    return stack([run(content) for content in contents], count, SOUND_FILE)


def process_phi4(model: Folder, tokenizer: Tokenizer) -> Process:
    """Tiles of images, features of recordings, and prompts with a token for each feature of these."""
    see, hear = image_pipeline(model), _optional_sound_pipeline(model)
    pixel_type, mask_type = (input_type(model, "vision", role) for role in ("pixel_values", "attention_mask"))
    audio_type = input_type(model, "speech", "audio_embeds")

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        contents, sounds = contents_of("images", images), contents_of("audios", audios)
        inputs: dict[str, Any] = {}
        image_counts = audio_counts = np.zeros((0, 1), np.int64)
        if contents:
            pixels, sizes, masks, image_counts = stack([see(content) for content in contents], 4, IMAGE_FILE)
            masks[masks[:, :, 0, 0] == 0] = 1  # tiles that only other images have
            inputs = {
                "pixel_values": to_type(pixels, pixel_type),
                "image_sizes": sizes,
                "image_attention_mask": to_type(masks, mask_type),
                "num_image_tokens": image_counts,
            }
        if sounds:
            features, masks, audio_counts = _features(hear, sounds, 3)
            inputs |= {
                "audio_embeds": to_type(features, audio_type),
                "audio_attention_mask": masks,
                "audio_sizes": audio_counts[:, 0],
            }
        text = re.sub(r"<\|image_\d+\|>", "<|endoftext10|>", only_prompt(prompts))
        tokens = tokenizer.encode(re.sub(r"<\|audio_\d+\|>", "<|endoftext11|>", text))
        repeats = np.ones(len(tokens), np.int64)
        for mark, token, counts in (("<|image_1|>", _IMAGE, image_counts), ("<|audio_1|>", _AUDIO, audio_counts)):
            places = tokens == token
            require_count(mark, len(counts), int(places.sum()))
            repeats[places] = counts[:, 0]
        mode = np.array([bool(contents) + 2 * bool(sounds)])
        return named(input_ids=np.repeat(tokens, repeats)[None], audio_projection_mode=mode, **inputs)

    return process


_IMAGE, _AUDIO = 200010, 200011  # tokens of Phi-4's vocabulary


def process_gemma4(model: Folder, tokenizer: Tokenizer) -> Process:
    """Patches of images, features of a recording, and prompts with a token for each image's and recording's feature."""
    see, hear = image_pipeline(model), _optional_sound_pipeline(model)
    pixel_type, audio_type = input_type(model, "vision", "pixel_values"), input_type(model, "speech", "audio_embeds")
    place_type = input_type(model, "vision", "pixel_position_ids", np.int64)

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        contents, sounds = contents_of("images", images), contents_of("audios", audios)
        inputs: dict[str, Any] = {}
        text, image_counts, audio_count = only_prompt(prompts), np.zeros(0, np.int64), 0
        if sounds:
            features, masks = _features(hear, sounds, 2)
            if len(sounds) > 1:
                raise Unsupported(Problem("audios", "must be one recording", len(sounds)))
            audio_count = -(-features.shape[1] // 4)  # the model for speech halves the frames twice
            inputs = {
                "audio_embeds": to_type(features, audio_type),
                "audio_attention_mask": masks,
                "audio_sizes": np.array([audio_count]),
            }
        if contents:
            pixels, places, counts = stack([see(content) for content in contents], 3, IMAGE_FILE)
            image_counts = counts[:, 0]
            most = int(image_counts.max()) * _POOL
            inputs |= {
                "pixel_values": to_type(pixels[:, :most], pixel_type),
                "pixel_position_ids": to_type(places[:, :most], place_type),
                "num_image_tokens": image_counts,
            }
        before, *after = _mark_images(text, len(contents)).split("<|image>")
        require_count("<|image>", len(contents), len(after))
        places_of_images = [f"\n\n<|image>{'<|image|>' * count}<image|>\n\n" for count in image_counts]
        text = before + "".join(itertools.chain(*zip(places_of_images, after, strict=True)))
        tokens = tokenizer.encode(_fill_audio(text, audio_count) if sounds else text)[None]
        if inputs:
            inputs["token_type_ids"] = (tokens == tokenizer.to_token_id("<|image|>")).astype(np.int32)
        return named(input_ids=tokens, **inputs)

    return process


_POOL = 9  # patches for a token


def _mark_images(text: str, count: int) -> str:
    """Puts `<|image>` for each image at the beginning of a text that has no marks."""
    if not count or "<|image>" in text:
        return text
    if text.count("<|image|>") == count:
        return text.replace("<|image|>", "<|image>")
    return " ".join(["<|image>"] * count) + (f" {text}" if text else "")


def _fill_audio(text: str, count: int) -> str:
    """Puts the tokens of a recording at its mark, or at the beginning of a text that has none."""
    marks = text.count("<|audio|>")
    if marks > 1:
        raise Unsupported(Problem("prompt", "must have one <|audio|>", marks))
    tokens = f"\n\n<|audio>{'<|audio|>' * count}<audio|>\n\n"
    mark = "<|audio|>" if marks else "<|audio>"
    return text.replace(mark, tokens) if mark in text else tokens + text
