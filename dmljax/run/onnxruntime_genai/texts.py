"""GenAI's tokenizers."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.onnx.language.tokens import Tokenizer as Reader
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY, Config, Folder, json_of, require_type
from dmljax.run.onnxruntime_genai.tensors import Tensor
from dmljax.text import show


class Tokenizer(Answering):
    """The tokenizer beside a model. As in GenAI, encoding adds no special tokens, and decoding skips them."""

    def __init__(self, model: Folder | Config | str) -> None:
        requirement = "a Model, a Config or the path of a folder"
        require_type("model", model, (Folder, Config, str, PathLike), requirement)
        with refusing(LIBRARY):
            if isinstance(model, str | PathLike) and not Path(model).is_dir():
                raise InvalidDesc(Problem("model", f"must be {requirement}", show(model)))
            self._model = model if isinstance(model, Folder) else Folder(model)
            self._reader = Reader(self._model._folder, self._model._texts.vocabulary)
        self._ends, self._pad = self._model._texts.end_tokens, self._model._pad
        self._flags = {"add_special_tokens": False, "skip_special_tokens": True}

    @property
    def bos_token_id(self) -> int:
        """The token that begins a text."""
        with refusing(LIBRARY):
            first = self._model._content["model"].get("bos_token_id")
            if not isinstance(first, int):
                raise InvalidDesc(Problem("bos_token_id", "must be in genai_config.json", "none"))
            return first

    @property
    def eos_token_ids(self) -> Any:
        """The tokens that end a text."""
        return np.array(self._ends, np.int32)

    @property
    def pad_token_id(self) -> int:
        """The token that fills up shorter rows of a batch."""
        return self._pad

    @property
    def bot_token_id(self) -> int:
        """The token that begins the call of a tool."""
        return self._tag("bot_token_id")

    @property
    def eot_token_id(self) -> int:
        """The token that ends the call of a tool."""
        return self._tag("eot_token_id")

    @property
    def bor_token_id(self) -> int:
        """The token that begins reasoning."""
        return self._tag("bor_token_id")

    @property
    def eor_token_id(self) -> int:
        """The token that ends reasoning."""
        return self._tag("eor_token_id")

    def _tag(self, name: str) -> int:
        with refusing(LIBRARY):
            token = self._model._content["model"].get(name, _TAGS.get(self._model.type, {}).get(name))
            if not isinstance(token, int):
                raise InvalidDesc(Problem(name, "must be in genai_config.json", "none"))
            return token

    def update_options(self, **options: Any) -> None:
        with refusing(LIBRARY):
            for name, value in options.items():
                if name not in self._flags:
                    raise InvalidType(Problem(name, f"must be {' or '.join(self._flags)}", show(value)))
                if (word := str(value).lower()) not in _WORDS:
                    raise InvalidType(Problem(name, "must be true or false", show(value)))
                self._flags[name] = _WORDS[word]

    def encode(self, text: str) -> Any:
        require_type("text", text, str, "a text")
        with refusing(LIBRARY):
            tokens = self._reader.encode(text, add_special_tokens=self._flags["add_special_tokens"])
            return np.array(tokens, np.int32)

    def encode_batch(self, texts: Sequence[str]) -> Tensor:
        """The tokens of each text in a row, filled up at the end."""
        with refusing(LIBRARY, type):
            if isinstance(texts, str):  # whose letters are texts as well
                raise InvalidType(Problem("texts", "must be a list of texts", show(texts)))
        rows = [self.encode(text) for text in texts]
        longest = max(map(len, rows), default=0)
        return Tensor(np.array([np.pad(row, (0, longest - len(row)), constant_values=self._pad) for row in rows]))

    def decode(self, tokens: Any) -> str:
        """Decodes tokens."""
        with refusing(LIBRARY):
            numbers = [int(token) for token in np.ravel(np.asarray(tokens))]
            return self._reader.decode(numbers, skip_special_tokens=self._flags["skip_special_tokens"])

    def decode_batch(self, tokens: Tensor) -> list[str]:
        """Decodes each row."""
        require_type("tokens", tokens, Tensor, "a Tensor, as encode_batch returns it")
        return [self.decode(row) for row in tokens.as_numpy()]

    def to_token_id(self, text: str) -> int:
        """Returns the token of a whole text; -1 if there is none."""
        token = self._reader.token(text)
        return -1 if token is None else token

    def create_stream(self) -> "TokenizerStream":
        """Makes a reader of successive tokens."""
        stream = TokenizerStream.__new__(TokenizerStream)
        stream._piece = self._reader.pieces(skip_special_tokens=self._flags["skip_special_tokens"])
        return stream

    def apply_chat_template(
        self,
        messages: str,
        *,
        template_str: str | None = None,
        tools: str | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Writes a conversation, which is JSON, by the folder's template or by `template_str`."""
        with refusing(LIBRARY):
            template = template_str or self._reader.chat_template
            if not template:
                rule = "Empty chat template: the folder has none"  # GenAI's words, which programs look for
                raise InvalidDesc(Problem((), rule, remedy="give template_str, or encode the text as it is"))
            return self._reader.render(
                json_of("messages", messages, list),
                template=template,
                tools=json_of("tools", tools, list) if tools else None,
                add_generation_prompt=add_generation_prompt,
            )


_QWEN_TOOLS = {"bot_token_id": 151657, "eot_token_id": 151658}
_TAGS: Mapping[str, Mapping[str, int]] = {  # of folders that are older than the settings
    "qwen2": _QWEN_TOOLS,
    "qwen3": {**_QWEN_TOOLS, "bor_token_id": 151667, "eor_token_id": 151668},
    "phi3": {"bot_token_id": 200025, "eot_token_id": 200026},
}
_WORDS = {"true": True, "1": True, "false": False, "0": False}


class TokenizerStream(Answering):
    """Decodes successive tokens; made by `Tokenizer.create_stream`."""

    _piece: Any

    def decode(self, token: int) -> str:
        """Returns the text that the next token completes."""
        return str(self._piece(int(token)))
