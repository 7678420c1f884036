"""Texts as tokens, and conversations as texts, by the files beside a language model."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dmljax.errors import InvalidDesc, Problem, Unsupported, inside, require
from dmljax.foundation.extras import command_for
from dmljax.foundation.files import open_file, read_object
from dmljax.text import one_line, reason_of, show

_MOST_BYTES = 2**28


class Tokenizer:
    """The tokenizer of a folder, by Hugging Face's package `tokenizers`, which made the file."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        self._folder, self._stream = folder, _package().decoders.DecodeStream
        self._reader = _read(folder / "tokenizer.json", "tokenizer.json")
        self._vocabulary = vocabulary

    def tokens(self, text: str, *, is_whole: bool = False) -> list[int]:
        """The tokens of a text, at least one; `is_whole` says that the text has all special tokens."""
        tokens = self.encode(text, add_special_tokens=not is_whole)
        if not tokens:
            raise InvalidDesc(Problem("prompt", "must have at least one token", show(text)))
        return tokens

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The tokens of a text."""
        ids = self._reader.encode(text, add_special_tokens=add_special_tokens).ids
        require_tokens_below(self._vocabulary, max(ids, default=0))
        return [int(token) for token in ids]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of tokens."""
        return str(self._reader.decode(tokens, skip_special_tokens=skip_special_tokens))

    def token(self, text: str) -> int | None:
        """The token that stands for a text as a whole, or None."""
        token: int | None = self._reader.token_to_id(text)
        return token

    def pieces(self, *, skip_special_tokens: bool = True) -> Any:
        """A function that takes each next token and returns the text that it completes."""
        stream = self._stream(skip_special_tokens=skip_special_tokens)
        return lambda token: stream.step(self._reader, token) or ""

    @property
    def _settings(self) -> Any:
        return json.loads(_text(self._folder / "tokenizer_config.json"))

    @property
    def chat_template(self) -> Any:
        """The folder's template of conversations; None if it has none."""
        file = self._folder / "chat_template.jinja"
        return _text(file) if file.exists() else self._settings.get("chat_template")

    def conversation(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation up to where the model answers, by the folder's chat template."""
        return self.tokens(self.render(messages), is_whole=True)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        template: str | None = None,
        tools: Any = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """A conversation as text, by `template`, which defaults to the folder's chat template."""
        try:
            import jinja2
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            rule = "conversations need the package jinja2"
            raise Unsupported(Problem((), rule, remedy=command_for("genai"))) from None
        settings = self._settings
        if template is None:
            template = self.chat_template
        if not isinstance(template, str):
            rule = "must have a chat_template, as models for conversations do"
            raise InvalidDesc(Problem("tokenizer_config.json", rule, "none"))
        names = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in settings.items()
            if name.endswith("_token") and isinstance(value, str | dict)
        }
        names |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # Jinja's own escapes HTML
        try:
            return environment.from_string(template).render(**names)
        except jinja2.TemplateError as error:
            raise InvalidDesc(Problem("chat_template", "must render a conversation", reason_of(error))) from None


class PromptTokenizer:
    """The tokenizer of the texts that describe images: CLIP's vocabulary and merges, or a tokenizer.json.

    All texts become `length` tokens: shorter texts are padded, and longer texts lose their end.
    """

    def __init__(self, folder: Path, vocabulary: int | None) -> None:
        file = "tokenizer/tokenizer_config.json"
        settings: dict[str, Any] = {**_CLIP, **read_object(folder, file, _MOST_BYTES, is_optional=True)}
        names = {name: value["content"] if isinstance(value, dict) else value for name, value in settings.items()}
        whole = "tokenizer/tokenizer.json"
        reader = _read(folder / whole, whole) if (folder / whole).exists() else _clip(folder, names)
        words = reader.get_vocab(with_added_tokens=True)
        pad, length = names["pad_token"], names["model_max_length"]
        require((file, "pad_token"), pad in words, "must be a token of the tokenizer", show(pad))
        is_length = type(length) is int and 2 < length < 2**16
        require((file, "model_max_length"), is_length, "must be an integer from 3 to 65535", show(length))
        require_prompt_tokens_below(vocabulary, max(words.values()))
        reader.enable_truncation(length)
        reader.enable_padding(length=length, pad_id=words[pad], pad_token=pad)
        self._reader, self.length = reader, length

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of texts, `length` of each."""
        return [[*encoding.ids] for encoding in self._reader.encode_batch(texts)]

    def is_cut(self, text: str) -> bool:
        """Whether the end of a text is lost."""
        return bool(self._reader.encode(text).overflowing)


_START, _END = "<|startoftext|>", "<|endoftext|>"
_CLIP = {"bos_token": _START, "eos_token": _END, "unk_token": _END, "pad_token": _END, "model_max_length": 77}
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"  # the pieces that CLIP splits a text into


def _clip(folder: Path, names: Mapping[str, Any]) -> Any:
    """CLIP's tokenizer: pairs of bytes, merged within words whose last piece ends in `</w>`."""
    package = _package()
    vocabulary = read_object(folder, "tokenizer/vocab.json", _MOST_BYTES)
    require("tokenizer/merges.txt", (folder / "tokenizer" / "merges.txt").exists(), "must be in the folder")
    lines = _text(folder / "tokenizer/merges.txt", "tokenizer/merges.txt").splitlines()
    merges = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
    start, end, unknown = (names[name] for name in ("bos_token", "eos_token", "unk_token"))
    for token in (start, end):
        rule = f"must have the token {show(token)}"
        require("tokenizer/vocab.json", token in vocabulary, rule)
    try:
        model = package.models.BPE(
            vocab=vocabulary, merges=merges, unk_token=unknown, end_of_word_suffix="</w>", fuse_unk=False
        )
    except Exception as error:  # the package raises Exception itself
        rule = "must have pairs of tokens in vocab.json"
        raise InvalidDesc(Problem("tokenizer/merges.txt", rule, one_line(error))) from None
    reader, normalizers, splits = package.Tokenizer(model), package.normalizers, package.pre_tokenizers
    space = normalizers.Replace(package.Regex(r"\s+"), " ")
    reader.normalizer = normalizers.Sequence([normalizers.NFC(), space, normalizers.Lowercase()])
    words = splits.Split(package.Regex(_WORDS), behavior="removed", invert=True)
    reader.pre_tokenizer = splits.Sequence([words, splits.ByteLevel(add_prefix_space=False)])
    reader.post_processor = package.processors.RobertaProcessing(
        (end, vocabulary[end]), (start, vocabulary[start]), trim_offsets=False, add_prefix_space=False
    )
    special = dict.fromkeys((start, end, unknown, names["pad_token"]))
    reader.add_special_tokens([word for word in special if word in vocabulary])
    return reader


def _package() -> Any:
    try:
        import tokenizers
    except ImportError:
        rule = "texts need the package tokenizers"
        raise Unsupported(Problem((), rule, remedy=command_for("genai"))) from None
    return tokenizers


def _read(path: Path, name: str) -> Any:
    """Reads a tokenizer from its file, which messages call `name`."""
    text = _text(path, name)
    try:
        return _package().Tokenizer.from_str(text)
    except Exception as error:  # the package raises Exception itself
        raise InvalidDesc(Problem(name, "must be a tokenizer", one_line(error))) from None


def require_tokens_below(vocabulary: int, highest: int) -> None:
    """Raises if a tokenizer has tokens that its model does not have."""
    rule = f"must have tokens below {vocabulary}, the model's vocab_size"
    require("tokenizer.json", highest < vocabulary, rule, highest)


def tokens_in(folder: Path) -> list[int]:
    """The tokens of a folder's tokenizer, from its file; no package is needed."""
    try:
        content = json.loads(_text(folder / "tokenizer.json"))
        words = content["model"]["vocab"]  # a list where words have scores
        added = [entry["id"] for entry in content.get("added_tokens", ())]
        return [*map(int, range(len(words)) if isinstance(words, list) else words.values()), *map(int, added)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InvalidDesc):
            raise
        raise InvalidDesc(Problem("tokenizer.json", "must be a tokenizer", reason_of(error))) from None


def require_prompt_tokens_below(vocabulary: int | None, highest: int) -> None:
    """Raises if a tokenizer has tokens that its text encoder does not embed, as far as their number is known."""
    rule = f"must have tokens below {vocabulary}, as many as the text encoder embeds"
    require("tokenizer", vocabulary is None or highest < vocabulary, rule, highest)


def prompt_tokens_in(folder: Path) -> list[int]:
    """The tokens of the tokenizer beside a text encoder, from its files; no package is needed."""
    if (folder / "tokenizer" / "tokenizer.json").exists():
        with inside("tokenizer"):
            return tokens_in(folder / "tokenizer")
    require("tokenizer/merges.txt", (folder / "tokenizer" / "merges.txt").exists(), "must be in the folder")
    tokens = read_object(folder, "tokenizer/vocab.json", _MOST_BYTES).values()
    is_right = all(type(token) is int for token in tokens)
    require("tokenizer/vocab.json", is_right, "must have an integer for each token")
    return [*tokens]


def _refuse(message: str) -> None:
    raise InvalidDesc(Problem("chat_template", f"refuses the conversation: {one_line(message)}"))


def _text(path: Path, name: str | None = None) -> str:
    with open_file(path, _MOST_BYTES) as file:
        content: bytes = file.read()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidDesc(Problem(name or path.name, "must be UTF-8", one_line(error))) from None
