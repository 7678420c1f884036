"""What processors share: the operations that a folder's configuration lists, and inputs by name."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported, inside
from dmljax.foundation.files import read_object
from dmljax.onnx.graph.reader import read_types_of_inputs
from dmljax.run.onnxruntime_genai.configuration import Folder
from dmljax.run.onnxruntime_genai.media import Audios, Images
from dmljax.run.onnxruntime_genai.tensors import NamedTensors
from dmljax.run.onnxruntime_genai.transforms import IMAGE_OPERATIONS, SOUND_OPERATIONS, Operations
from dmljax.text import show

IMAGE_FILE, SOUND_FILE = "processor_config.json", "audio_processor_config.json"  # unless a folder names others
_MOST_BYTES = 2**24  # of a configuration

Process = Callable[[list[str], Images | None, Audios | None], NamedTensors]
Pipeline = Callable[[bytes], tuple[Any, ...]]


def image_pipeline(model: Folder) -> Pipeline:
    """The operations on an image that a folder's configuration lists."""
    return _pipeline(model, "vision", IMAGE_FILE, ("processor", "transforms"), IMAGE_OPERATIONS)


def sound_pipeline(model: Folder) -> Pipeline:
    """The operations on a recording that a folder's configuration lists."""
    path = ("feature_extraction", "sequence")
    return _pipeline(model, "speech", SOUND_FILE, path, SOUND_OPERATIONS)


def _pipeline(model: Folder, part: str, usual: str, path: tuple[str, str], operations: Operations) -> Pipeline:
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
        steps.append(operation)
    if not steps:
        raise InvalidDesc(Problem((file, *path), "must be a list of operations"))

    def run(content: bytes) -> tuple[Any, ...]:
        values: tuple[Any, ...] = (content,)
        by_operation: dict[Any, tuple[Any, ...]] = {}
        for operation in steps:
            with inside((file, operation["type"])):
                try:
                    inputs = _inputs(operation.get("inputs"), values, by_operation)
                    result = operations[operation["type"]](*inputs, operation.get("attrs", {}))
                except (KeyError, TypeError, ValueError) as error:
                    if isinstance(error, DmlError):
                        raise
                    raise InvalidDesc(Problem((), "must have all of its attributes", error)) from None
            values = result if isinstance(result, tuple) else (result,)
            by_operation[operation.get("name")] = values
        return values

    return run


def _inputs(names: Any, values: tuple[Any, ...], by_operation: dict[Any, tuple[Any, ...]]) -> list[Any]:
    """The inputs that an operation names, such as `:0`, of the operation before it, or `resize:0`; or all of these."""
    inputs: list[Any] = []
    for name in [":*"] if names is None else names:
        operation, _, place = name.partition(":")
        known = by_operation.get(operation, ()) if operation else values
        if place == "*":
            inputs += known
        elif place.isdigit() and int(place) < len(known):
            inputs.append(known[int(place)])
        else:
            raise InvalidDesc(Problem("inputs", "must be results of the operations before", show(name)))
    return inputs


def stack(results: list[tuple[Any, ...]], count: int, part: str) -> list[Any]:
    """The results of several files by kind; smaller ones have zeros at their ends."""
    if any(len(result) != count for result in results):
        raise Unsupported(Problem(part, f"must give {count} arrays for a file"))
    return [_stack_padded(arrays) for arrays in zip(*results, strict=True)] if results else [np.zeros((0, 1))] * count


def _stack_padded(arrays: Sequence[Any]) -> Any:
    sizes = np.max([np.shape(array) for array in arrays], 0)
    ends = [[(0, most - size) for most, size in zip(sizes, np.shape(array), strict=True)] for array in arrays]
    return np.stack([np.pad(array, end) for array, end in zip(arrays, ends, strict=True)])


def named(**arrays: Any) -> NamedTensors:
    """Arrays by name."""
    tensors = NamedTensors()
    for name, array in arrays.items():
        tensors[name] = array
    return tensors


def only_prompt(prompts: list[str]) -> str:
    """The prompt; the empty text if there is none."""
    if len(prompts) > 1:
        raise Unsupported(Problem("prompt", "must be one text", len(prompts), remedy="process one prompt at a time"))
    return prompts[0] if prompts else ""


def contents_of(name: str, media: Any) -> Sequence[bytes]:
    """The contents of images or recordings."""
    if media is not None and not isinstance(media, Images if name == "images" else Audios):
        raise InvalidType(Problem(name, f"must be {name.capitalize()}", show(media)))
    return [] if media is None else media._contents


def require_count(mark: str, count: int, places: int) -> None:
    """Raises unless a prompt has as many marks as there are images or recordings."""
    if places != count:
        kind = "recordings" if "audio" in mark else "images"
        raise InvalidDesc(Problem("prompt", f"must have {mark} for each of {count} {kind}", places))


def input_type(model: Folder, part: str, role: str, usual: Any = np.float32) -> Any:
    """The type of a model's input; the usual one if the model is not in the folder or has no such input."""
    section = model._content["model"].get(part, {})
    name = section.get("inputs", {}).get(role, role)
    path = model._folder / str(section.get("filename", ""))
    types = read_types_of_inputs(path) if path.is_file() else {}
    return types[name].dtype if name in types else np.dtype(usual)


def to_type(values: Any, dtype: Any) -> Any:
    """Converts floats to a model's type; what lies between two halves becomes the larger one, as in GenAI."""
    if dtype == np.float16:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        values = (bits | (bits & 0x1FFF == 0x1000)).view(np.float32)
    return values.astype(dtype)
