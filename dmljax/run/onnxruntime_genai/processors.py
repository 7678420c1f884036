"""GenAI's processors, which make a model's inputs of a prompt with images or recordings."""

from collections.abc import Callable, Mapping
from typing import Any

from dmljax.errors import InvalidType, Problem, Unsupported
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY, Folder, require_type
from dmljax.run.onnxruntime_genai.media import Audios, Images
from dmljax.run.onnxruntime_genai.pipelines import Process
from dmljax.run.onnxruntime_genai.speech import process_gemma4, process_phi4, process_whisper
from dmljax.run.onnxruntime_genai.tensors import NamedTensors
from dmljax.run.onnxruntime_genai.texts import Tokenizer, TokenizerStream
from dmljax.run.onnxruntime_genai.vision import (
    process_gemma3,
    process_mistral3,
    process_phi3,
    process_qwen,
    process_video_chat,
)
from dmljax.text import show


class MultiModalProcessor(Answering):
    """Makes a model's inputs of a prompt with images or recordings, and texts of tokens."""

    def __init__(self, model: Folder) -> None:
        require_type("model", model, Folder, "a Model")
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


PROCESSORS: Mapping[str, Callable[[Folder, Tokenizer], Process]] = {
    "whisper": process_whisper,
    "phi3v": process_phi3,
    "phi4mm": process_phi4,
    "gemma3": process_gemma3,
    "gemma4": process_gemma4,
    "mistral3": process_mistral3,
    "videochat_flash_qwen": process_video_chat,
    **dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_5_moe", "fara"), process_qwen),
}
