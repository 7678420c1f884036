"""GenAI's processors, which make a model's inputs of a prompt with images or recordings."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported, inside
from dmljax.foundation.files import read_object
from dmljax.onnx.graph.reader import read_types_of_inputs
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY, Folder
from dmljax.run.onnxruntime_genai.image_transforms import IMAGE_OPERATIONS
from dmljax.run.onnxruntime_genai.media import Audios, Images
from dmljax.run.onnxruntime_genai.sounds import SOUND_OPERATIONS
from dmljax.run.onnxruntime_genai.tensors import NamedTensors
from dmljax.run.onnxruntime_genai.texts import Tokenizer, TokenizerStream
from dmljax.text import show

_MOST_BYTES = 2**24  # of a configuration


class MultiModalProcessor(Answering):
    """Makes a model's inputs of a prompt with images or recordings, and texts of tokens."""

    def __init__(self, model: Folder) -> None:
        with refusing(LIBRARY):
            if model.type not in PROCESSORS:
                rule = f"must be one of {', '.join(PROCESSORS)} for a processor"
                raise Unsupported(Problem(("model", "type"), rule, show(model.type)))
        self._model, self._tokenizer = model, Tokenizer(model)
        with refusing(LIBRARY):
            self._process = PROCESSORS[model.type](model, self._tokenizer)

    def __call__(
        self, prompt: Any = None, *, images: Images | None = None, audios: Audios | None = None
    ) -> NamedTensors:
        """The inputs for a prompt, or for a list of prompts with a recording each."""
        with refusing(LIBRARY):
            prompts = [prompt] if isinstance(prompt, str) else prompt or []
            if not isinstance(prompts, list) or not all(isinstance(text, str) for text in prompts):
                raise InvalidType(Problem("prompt", "must be a text or a list of texts", show(prompt)))
            return self._process(prompts, images, audios)

    def decode(self, tokens: Any) -> str:
        """Decodes tokens."""
        return self._tokenizer.decode(tokens)

    def create_stream(self) -> TokenizerStream:
        """Makes a reader of successive tokens."""
        return self._tokenizer.create_stream()


_Process = Callable[[list[str], Images | None, Audios | None], NamedTensors]
_Operations = Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]


def _whisper(model: Folder, tokenizer: Tokenizer) -> _Process:
    """Log-mel features of recordings, each with a prompt."""
    run = _pipeline(
        model, "speech", "audio_processor_config.json", ("feature_extraction", "sequence"), SOUND_OPERATIONS
    )
    dtype = _input_type(model, "encoder", "audio_features")

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        contents = _contents("audios", audios)
        if not contents or not prompts:
            raise InvalidType(Problem("audios", "must be given with a prompt for each"))
        features = np.stack([run(content)[0] for content in contents])
        return _named(audio_features=features.astype(dtype), input_ids=tokenizer.encode_batch(prompts).as_numpy())

    return process


def _phi3(model: Folder, tokenizer: Tokenizer) -> _Process:
    """Tiles of images, and prompts where `<|image_1|>` has as many tokens of -1 as the image has features."""
    run, dtype = _images_pipeline(model), _input_type(model, "vision", "pixel_values")

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        text = _only(prompts)
        contents = _contents("images", images)
        pixels, sizes, counts = _stack([run(content) for content in contents], 3)
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
            return _named(input_ids=input_ids)
        return _named(
            input_ids=input_ids, pixel_values=pixels.astype(dtype), image_sizes=sizes, num_image_tokens=counts
        )

    return process


def _qwen(model: Folder, tokenizer: Tokenizer) -> _Process:
    """Patches of images, and prompts where each place of an image has a token for every feature."""
    run, dtype = _images_pipeline(model), _input_type(model, "vision", "pixel_values")
    merged = int(model._content["model"].get("vision", {}).get("spatial_merge_size", 2))

    def process(prompts: list[str], images: Images | None, audios: Audios | None) -> NamedTensors:
        text = _only(prompts)
        results = [run(content) for content in _contents("images", images)]
        if any(len(result) != 2 for result in results):
            raise Unsupported(Problem("processor_config.json", "must end with PatchImage"))
        counts = [int(np.prod(grid)) // merged**2 for _, grid in results]
        text = text or " ".join(["<|vision_start|> <|vision_end|>"] * len(counts))
        before, *after = text.split("<|vision_start|>")
        if len(after) != len(counts):
            rule = f"must have <|vision_start|> for each of {len(counts)} images"
            raise InvalidDesc(Problem("prompt", rule, len(after)))
        for count, part in zip(counts, after, strict=True):
            rest = part.partition("<|vision_end|>")[2] if "<|vision_end|>" in part else part
            before += f"<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>{rest}"
        input_ids, total = tokenizer.encode(before)[None], np.array([sum(counts)])
        if not results:
            return _named(input_ids=input_ids, num_image_tokens=total)
        pixels, grids = np.concatenate([patches for patches, _ in results]), np.stack([grid for _, grid in results])
        return _named(
            input_ids=input_ids, pixel_values=pixels.astype(dtype), image_grid_thw=grids, num_image_tokens=total
        )

    return process


PROCESSORS: Mapping[str, Callable[[Folder, Tokenizer], _Process]] = {
    "whisper": _whisper,
    "phi3v": _phi3,
    **dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_5_moe", "fara"), _qwen),
}


def _named(**arrays: Any) -> NamedTensors:
    tensors = NamedTensors()
    for name, array in arrays.items():
        tensors[name] = array
    return tensors


def _only(prompts: list[str]) -> str:
    if len(prompts) > 1:
        raise Unsupported(Problem("prompt", "must be one text", len(prompts), remedy="process one prompt at a time"))
    return prompts[0] if prompts else ""


def _contents(name: str, media: Any) -> Sequence[bytes]:
    if media is not None and not isinstance(media, Images if name == "images" else Audios):
        raise InvalidType(Problem(name, f"must be {name.capitalize()}", show(media)))
    return [] if media is None else media._contents


def _images_pipeline(model: Folder) -> Callable[[bytes], tuple[Any, ...]]:
    return _pipeline(model, "vision", "processor_config.json", ("processor", "transforms"), IMAGE_OPERATIONS)


def _pipeline(
    model: Folder, part: str, usual: str, path: tuple[str, str], operations: _Operations
) -> Callable[[bytes], tuple[Any, ...]]:
    """The operations that a folder's configuration lists, as a function of the content of a file."""
    section = model._content["model"].get(part)
    file = section.get("config_filename", usual) if isinstance(section, dict) else usual
    listed: Any = read_object(model._folder, file, _MOST_BYTES)
    for name in path:
        listed = listed.get(name) if isinstance(listed, dict) else None
    steps = []
    for entry in listed if isinstance(listed, list) else []:
        operation = entry.get("operation", {}) if isinstance(entry, dict) else {}
        if operation.get("type") not in operations:
            rule = f"must be operations among {', '.join(operations)}"
            raise Unsupported(Problem((file, *path), rule, show(operation.get("type"))))
        steps.append((operation["type"], operation.get("attrs", {})))
    if not steps:
        raise InvalidDesc(Problem((file, *path), "must be a list of operations"))

    def run(content: bytes) -> tuple[Any, ...]:
        value: Any = content
        for name, attributes in steps:
            with inside((file, name)):
                try:
                    value = operations[name](value, attributes)
                except (KeyError, TypeError, ValueError) as error:
                    if isinstance(error, DmlError):
                        raise
                    raise InvalidDesc(Problem((), "must have all of its attributes", error)) from None
        return value if isinstance(value, tuple) else (value,)

    return run


def _stack(results: list[tuple[Any, ...]], count: int) -> list[Any]:
    """The results of several images by kind."""
    if any(len(result) != count for result in results):
        raise Unsupported(Problem("processor_config.json", f"must give {count} arrays for an image"))
    return [np.stack(arrays) for arrays in zip(*results, strict=True)] if results else [np.zeros((0, 1))] * count


def _input_type(model: Folder, part: str, role: str) -> Any:
    """The type of a model's input, or float32 if the model is not in the folder."""
    section = model._content["model"].get(part, {})
    name = section.get("inputs", {}).get(role, role)
    path = model._folder / str(section.get("filename", ""))
    types = read_types_of_inputs(path) if path.is_file() else {}
    return types[name].dtype if name in types else np.dtype(np.float32)
