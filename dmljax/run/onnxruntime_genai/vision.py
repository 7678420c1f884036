"""Processors of images: what models that see read of a prompt with images."""

import itertools
import re

import numpy as np

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.run.onnxruntime_genai.configuration import Folder
from dmljax.run.onnxruntime_genai.media import Audios, Images
from dmljax.run.onnxruntime_genai.pipelines import (
    IMAGE_FILE,
    Process,
    contents_of,
    image_pipeline,
    input_type,
    named,
    only_prompt,
    require_count,
    stack,
    to_type,
)
from dmljax.run.onnxruntime_genai.tensors import NamedTensors
from dmljax.run.onnxruntime_genai.texts import Tokenizer


def process_phi3(model: Folder, tokenizer: Tokenizer) -> Process:
    """Tiles of images, and prompts where `<|image_1|>` has as many tokens of -1 as the image has features."""
    run, dtype = image_pipeline(model), input_type(model, "vision", "pixel_values")

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        text = only_prompt(prompts)
        contents = contents_of("images", images)
        pixels, sizes, counts = stack([run(content) for content in contents], 3, IMAGE_FILE)
        parts = re.split(r"<\|image_(\d+)\|>", text)
        numbers = [int(number) for number in parts[1::2]]
        if {*numbers} != {*range(1, len(contents) + 1)}:
            rule = f"must have the images <|image_1|> to <|image_{len(contents)}|>, as many as are given"
            raise InvalidDesc(Problem("prompt", rule if contents else "must have no images, as none is given", numbers))
        tokens = [tokenizer.encode(part).tolist() if part else [] for part in parts[::2]]
        for place, number in enumerate(numbers):
            tokens[place] += [-number] * int(counts[number - 1, 0])
        input_ids = np.array([[*itertools.chain(*tokens)]], np.int32)
        if not contents:
            return named(input_ids=input_ids)
        return named(
            input_ids=input_ids, pixel_values=to_type(pixels, dtype), image_sizes=sizes, num_image_tokens=counts
        )

    return process


def process_qwen(model: Folder, tokenizer: Tokenizer) -> Process:
    """Patches of images, and prompts where each place of an image has a token for every feature."""
    run, dtype = image_pipeline(model), input_type(model, "vision", "pixel_values")
    merged = int(model._content["model"].get("vision", {}).get("spatial_merge_size", 2))

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        text = only_prompt(prompts)
        results = [run(content) for content in contents_of("images", images)]
        if any(len(result) != 2 for result in results):
            raise Unsupported(Problem(IMAGE_FILE, "must end with PatchImage"))
        counts = [int(np.prod(grid)) // merged**2 for _, grid in results]
        text = text or " ".join(["<|vision_start|> <|vision_end|>"] * len(counts))
        input_ids, total = tokenizer.encode(_fill_marks(text, counts))[None], np.array([sum(counts)])
        if not results:
            return named(input_ids=input_ids, num_image_tokens=total)
        pixels, grids = np.concatenate([patches for patches, _ in results]), np.stack([grid for _, grid in results])
        return named(
            input_ids=input_ids, pixel_values=to_type(pixels, dtype), image_grid_thw=grids, num_image_tokens=total
        )

    return process


def process_gemma3(model: Folder, tokenizer: Tokenizer) -> Process:
    """Scaled images, and prompts where each `<start_of_image>` begins 256 tokens of an image."""
    run, dtype = image_pipeline(model), input_type(model, "vision", "pixel_values")

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        contents = contents_of("images", images)
        text = only_prompt(prompts) or " ".join(["<start_of_image>"] * len(contents))
        require_count("<start_of_image>", len(contents), text.count("<start_of_image>"))
        place = f"\n\n<start_of_image>{'<image_soft_token>' * _GEMMA_TOKENS}<end_of_image>\n\n"
        tokens = tokenizer.encode(text.replace("<start_of_image>", place))[None]
        if not contents:
            return named(input_ids=tokens)
        (pixels,) = stack([run(content) for content in contents], 1, IMAGE_FILE)
        return named(
            input_ids=tokens,
            token_type_ids=(tokens == tokenizer.to_token_id("<image_soft_token>")).astype(np.int32),
            pixel_values=to_type(pixels, dtype),
            num_image_tokens=np.array([_GEMMA_TOKENS]),
        )

    return process


_GEMMA_TOKENS = 256


def process_mistral3(model: Folder, tokenizer: Tokenizer) -> Process:
    """Images in their own shapes, and prompts with a token for each square of patches and one at each row's end."""
    run, dtype = image_pipeline(model), input_type(model, "vision", "pixel_values")
    vision = model._content["model"].get("vision", {})
    side = int(vision.get("patch_size", 14)) * int(vision.get("spatial_merge_size", 2))
    marks = ("[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]")

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        text, contents = only_prompt(prompts), contents_of("images", images)
        tokens = tokenizer.encode(text).tolist() if text else []
        if not contents:
            return named(input_ids=np.array([tokens], np.int32), num_image_tokens=np.array([0]))
        image, end_of_row, end, start = (tokenizer.to_token_id(mark) for mark in marks)
        pixels, sizes = stack([run(content) for content in contents], 2, IMAGE_FILE)
        if (sizes % side).any():
            raise InvalidDesc(Problem("images", f"must have sides that {side} divides", sizes.tolist()))
        grids = (sizes // side).tolist()
        places = [[*([*[image] * columns, end_of_row] * rows)[:-1], end] for rows, columns in grids]
        whole, rest = _fill_places(tokens, image, places)
        after = whole.index(start) + 1 if start in whole else 0
        whole[after:after] = rest
        count = sum(rows * columns for rows, columns in grids)
        return named(
            input_ids=np.array([whole], np.int32),
            pixel_values=to_type(pixels, dtype),
            image_sizes=sizes,
            num_image_tokens=np.array([count]),
        )

    return process


def _fill_places(tokens: list[int], mark: int, places: list[list[int]]) -> tuple[list[int], list[int]]:
    """Puts the tokens of an image at each run of marks; returns those of images without a place, too."""
    remaining, whole = list(places), list[int]()
    for is_mark, run in itertools.groupby(tokens, lambda token: token == mark):
        whole += remaining.pop(0) if is_mark and remaining else run
    return whole, [*itertools.chain(*remaining)]


def process_video_chat(model: Folder, tokenizer: Tokenizer) -> Process:
    """Frames of a video, and prompts where each has the number of tokens that the configuration has."""
    run, dtype = image_pipeline(model), input_type(model, "vision", "pixel_values")
    count = int(model._content["model"].get("vision", {}).get("num_visual_tokens", 0))
    if count <= 0:
        raise InvalidDesc(Problem(("vision", "num_visual_tokens"), "must be positive", count))

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        text, contents = only_prompt(prompts), contents_of("images", images)
        total = np.array([count * len(contents)])
        if not contents:
            return named(input_ids=tokenizer.encode(text)[None], num_image_tokens=total)
        tokens = tokenizer.encode(_fill_marks(text, [count] * len(contents)))[None]
        (pixels,) = stack([run(content) for content in contents], 1, IMAGE_FILE)
        if pixels.shape[3] < pixels.shape[1]:  # the colors are last
            pixels = np.moveaxis(pixels, 3, 1)
        return named(
            input_ids=tokens,
            num_image_tokens=total,
            pixel_values=to_type(pixels[None], dtype),
            image_grid_thw=np.array([[1, *pixels.shape[2:]]] * len(contents)),
        )

    return process


def _fill_marks(text: str, counts: list[int]) -> str:
    """Puts as many `<|image_pad|>` between each pair of marks as an image has tokens."""
    before, *after = text.split("<|vision_start|>")
    require_count("<|vision_start|>", len(counts), len(after))
    for count, part in zip(counts, after, strict=True):
        rest = part.partition("<|vision_end|>")[2] if "<|vision_end|>" in part else part
        before += f"<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>{rest}"
    return before
