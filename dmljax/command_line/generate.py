"""The command `dmljax generate`: continues texts, converses and makes pictures."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dmljax.command_line.options import COUNT, FLAG, NUMBER, SEED, Subparsers, add_command, add_options, parse_integer
from dmljax.command_line.terminal import YELLOW, color_text, count_text, pause_progress
from dmljax.text import escape_controls, one_line

SUMMARY = "Continues a text, converses, or makes a picture, with the folder of a language or diffusion model."

EXAMPLES = """examples:
  dmljax generate phi-3-mini-directml "Once upon a time"
  dmljax generate phi-3-mini-directml --chat         # a conversation, line by line
  dmljax generate whisper-directml "<|startoftranscript|>" --audio features.npy
  dmljax generate phi-3-mini-directml "A haiku" --do_sample --temperature 0.8 --seed 3 --max_length 200
  cat prompt.txt | dmljax generate phi-3-mini-directml --json
  dmljax generate stable-diffusion-v1-5-onnx "A lighthouse in fog" -o picture.png --steps 30 --seed 3

The folder of a language model is in the format of ONNX Runtime GenAI: genai_config.json, an ONNX model and a tokenizer.
The folder of a diffusion model is Stable Diffusion exported to ONNX: model_index.json, tokenizer, text_encoder, unet,
vae_decoder and scheduler. Options that you leave out are those of the folder. The extra genai installs what reads
tokenizers, and the extra images what writes pictures."""


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command with its options."""
    parser = add_command(subparsers, "generate", SUMMARY, EXAMPLES)
    parser.add_argument("folder", type=Path, help="the folder of the model")
    parser.add_argument("prompt", nargs="?", help="the text to continue or to show (default: the standard input)")
    add_options(parser, ("--seed", "the seed of what is drawn (default: 0)", SEED | {"default": None}))
    add_options(
        parser.add_argument_group("language models"),
        ("--chat", "converse: each line is a message, and the folder's template puts them together", FLAG),
        (
            "--audio",
            "what a model with an encoder hears: an array of features, with a batch of 1",
            {"metavar": "FILE.npy"},
        ),
        (
            "--max_length",
            "most tokens, counting those of the prompt; caches have room for as many",
            COUNT | {"default": None},
        ),
        ("--min_length", "tokens, with the prompt, before which the text does not end", COUNT | {"default": None}),
        (
            "--do_sample",
            "draw tokens instead of the likeliest; --temperature, --top_k, --top_p and --seed need it",
            FLAG | {"default": None},
        ),
        ("--temperature", "above 1 for more even probabilities, below 1 for less even ones", NUMBER),
        ("--top_k", "draw from the likeliest K tokens; 0 for all", COUNT | {"type": parse_integer, "default": None}),
        ("--top_p", "draw from the fewest tokens whose probabilities add up to P", NUMBER),
        ("--repetition_penalty", "above 1, tokens that came before are less likely", NUMBER),
        (
            "--no_repeat_ngram_size",
            "never write N tokens in a row again; 0 for no limit",
            COUNT | {"type": parse_integer, "default": None},
        ),
        (
            "--num_beams",
            "grow N sequences and print the likeliest; nothing shows before the end",
            COUNT | {"default": None},
        ),
        ("--length_penalty", "above 0, beams that end later are better; needs --num_beams", NUMBER),
    )
    add_options(
        parser.add_argument_group("diffusion models"),
        ("-o --output", "the picture to write", {"type": Path, "metavar": "FILE"}),
        ("--negative", "a text that the picture should not show", {"metavar": "TEXT"}),
        ("--steps", "the number of steps (default: 50)", COUNT | {"default": None}),
        ("--guidance", "above 1, follows the prompt more closely (default: 7.5)", NUMBER),
        ("--height", "the picture's height (default: the model's)", COUNT | {"default": None}),
        ("--width", "the picture's width (default: the model's)", COUNT | {"default": None}),
        ("--scheduler", "ddim, pndm, euler, euler_ancestral, lcm or dpmsolver++", {"metavar": "NAME"}),
    )
    parser.set_defaults(elsewhere=_ELSEWHERE)


# The names of options in transformers and diffusers, with what to write here
_ELSEWHERE = {
    "--max_new_tokens": "--max_length counts the tokens of the prompt as well",
    "--max_tokens": "--max_length counts the tokens of the prompt as well",
    "--min_new_tokens": "--min_length counts the tokens of the prompt as well",
    "--num_return_sequences": "in Python, generate(num_beams=4, num_return_sequences=4) gives several",
    "--early_stopping": "beams stop when as many have ended; in Python, generate(early_stopping=False) goes on",
    "--random_seed": "did you mean --seed?",
    "--sample": "did you mean --do_sample?",
    "--prompt": "the prompt follows the folder: dmljax generate FOLDER PROMPT",
    "--model": "the folder follows the command: dmljax generate FOLDER PROMPT",
    "--num_inference_steps": "did you mean --steps?",
    "--guidance_scale": "did you mean --guidance?",
    "--negative_prompt": "did you mean --negative?",
}


def run(options: argparse.Namespace) -> int:
    """Continues a text, or converses, with a language model, or makes a picture of a text with a diffusion model."""
    import jax

    from dmljax.command_line.models import is_of_diffusion, require_unset
    from dmljax.errors import InvalidDesc, Problem, require, within
    from dmljax.foundation.extras import require_onnx
    from dmljax.foundation.files import require_folder

    require_folder(options.folder)
    if is_of_diffusion(options.folder):
        return _generate_picture(options)
    _refuse_options(options, _OF_DIFFUSION, "is only for folders of diffusion models")
    # Imported after the options are checked: the package onnx is an extra.
    require_onnx("language models", "genai")
    from dmljax.command_line.onnx.arrays import array_in
    from dmljax.onnx import language_model
    from dmljax.onnx.language.sampling import Search, with_options
    from dmljax.onnx.language.settings import read_settings
    from dmljax.onnx.language.tokens import Tokenizer

    if options.chat:
        require_unset(str(options.folder), "is not for conversations", audio=options.audio)
        rule = "a conversation has no prompt: its messages come line by line"
        require((), options.prompt is None, rule, repr(options.prompt))
    # Refuse before weights are read and programs compiled, which may take minutes.
    settings = read_settings(options.folder)
    search: dict[str, Any] = {name: getattr(options, name, None) for name in Search._fields}
    with within("generate"):
        chosen = with_options(settings.search, search, settings.context_length)
    for name, value in _set_options(options, _OF_DRAWS).items():
        rule, remedy = f"--{name} has no effect without --do_sample", "--do_sample draws tokens"
        require((), chosen.do_sample, rule, value, remedy=remedy)
    if options.length_penalty is not None:
        rule, remedy = "--length_penalty has no effect without --num_beams", "--num_beams 4 keeps four sequences"
        require((), chosen.num_beams > 1, rule, options.length_penalty, remedy=remedy)
    if "encoder" in settings.others and not settings.translates and options.audio is None:
        rule, remedy = "--audio must be given, because the folder has an encoder", "--audio FEATURES.npy"
        raise InvalidDesc(Problem((), rule, "none", remedy=remedy))
    audio = None if options.audio is None else array_in(options.audio)
    tokenizer = Tokenizer(options.folder, settings.vocabulary)
    search["key"] = jax.random.key(options.seed or 0) if chosen.do_sample else None
    if options.chat:
        _converse(language_model(options.folder), tokenizer, search, as_json=options.json)
        return 0
    tokens = tokenizer.tokens(_prompt(options))
    _require_room(len(tokens), chosen.max_length, settings.context_length)
    model = language_model(options.folder)
    begin = time.perf_counter()
    stream: Iterator[int]
    with within("generate"):
        if chosen.num_beams == 1:
            stream = model.stream(tokens, block=_BLOCK, audio=audio, **search)
        else:
            stream = iter(model.generate(tokens, audio=audio, **search | {"num_return_sequences": 1})[len(tokens) :])
    text, news, first, rate = _print_stream(tokenizer, stream, begin, is_silent=options.json)
    rate = rate if chosen.num_beams == 1 else None  # beams give all tokens at once
    if options.json:
        times = {"seconds_to_first_token": first, "tokens_per_second": rate}
        print(json.dumps({"text": text, "tokens": news, "prompt_tokens": len(tokens), **times}))
        return 0
    speed = f", then {rate:.1f} tokens per second" if rate else ""
    count = count_text(len(tokens), "token")
    print(f"\nprompt of {count}, {len(news)} new: {first:.2f} s with compilation{speed}", file=sys.stderr)
    return 0


def _require_room(prompt: int, max_length: int, context: int) -> None:
    """Raises if no token can follow the prompt."""
    from dmljax.errors import require

    require((), prompt < context, f"the prompt must have fewer than {context} tokens, the model's context", prompt)
    rule = f"--max_length must be more than the {count_text(prompt, 'token')} of the prompt, which it counts"
    require((), prompt < max_length, rule, max_length, remedy=f"--max_length {min(prompt + 100, context)}")


_BLOCK = 8  # tokens that come at once
_OF_DRAWS = ("temperature", "top_k", "top_p", "seed")
_OF_DIFFUSION = ("output", "negative", "steps", "guidance", "height", "width", "scheduler")
_OF_LANGUAGE = (
    "chat",
    "audio",
    "max_length",
    "min_length",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "num_beams",
    "length_penalty",
)


def _set_options(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Returns the options that the user set."""
    return {name: value for name in names if (value := getattr(options, name)) is not None and value is not False}


def _refuse_options(options: argparse.Namespace, names: Sequence[str], rule: str) -> None:
    """Raises if options are set that another kind of folder takes."""
    from dmljax.errors import InvalidDesc, Problem

    for name in _set_options(options, names):
        raise InvalidDesc(Problem((), f"--{name} {rule}", escape_controls(str(options.folder))))


def _prompt(options: argparse.Namespace) -> str:
    text: str | None = options.prompt
    if text is not None:
        return text
    with pause_progress():
        return sys.stdin.read().removesuffix("\n")


def _generate_picture(options: argparse.Namespace) -> int:
    """Draws a picture of a prompt, and writes it to a file."""
    import jax

    from dmljax.errors import require, within
    from dmljax.foundation.extras import require_onnx
    from dmljax.foundation.files import require_picture, write_picture

    require_onnx("diffusion models", "genai")
    from dmljax.onnx.diffusion.model import diffusion_model, read_diffusion_settings
    from dmljax.onnx.diffusion.schedulers import scheduler_of

    _refuse_options(options, _OF_LANGUAGE, "is only for folders of language models")
    require((), options.output is not None, "--output must name the picture's file", remedy="-o picture.png")
    require_picture(options.output)
    choices = _set_options(options, _OF_DIFFUSION[1:])
    with within("generate"):
        scheduler_of(read_diffusion_settings(options.folder).scheduler, options.scheduler)  # before weights are read
        model = diffusion_model(options.folder)
        prompt = _prompt(options)
        for text in (prompt, options.negative or ""):
            if model.tokenizer.is_cut(text):
                message = (
                    f"the end is lost: the text encoder reads {model.tokenizer.length} tokens of {one_line(text)!r}"
                )
                print(f"{color_text('warning', YELLOW, sys.stderr)}: {message}", file=sys.stderr)
        begin = time.perf_counter()
        image = jax.block_until_ready(model.generate(prompt, key=jax.random.key(options.seed or 0), **choices))[0]
        seconds = time.perf_counter() - begin
        write_picture(options.output, image)
    height, width, _ = image.shape
    if options.json:
        sizes = {"height": height, "width": width}
        print(json.dumps({"file": str(options.output), **sizes, "seconds": seconds}))
        return 0
    print(f"{escape_controls(str(options.output))}: {width} x {height} pixels, {seconds:.2f} s with compilation")
    return 0


def _print_stream(
    tokenizer: Any, stream: Iterator[int], begin: float, *, is_silent: bool
) -> tuple[str, list[int], float, float | None]:
    """Prints text as it arrives; returns it with its tokens, the seconds to the first block, and the rate after it."""
    piece, texts, tokens, times = tokenizer.pieces(), [], [], []
    for token in stream:
        times.append(time.perf_counter())
        tokens.append(token)
        texts.append(piece(token))
        if not is_silent:
            print("\n".join(map(escape_controls, texts[-1].split("\n"))), end="", flush=True)
    first = (times[0] if times else time.perf_counter()) - begin
    rate = (len(times) - _BLOCK) / (times[-1] - times[0]) if len(times) > _BLOCK else None
    return "".join(texts), tokens, first, rate


def _converse(model: Any, tokenizer: Any, search: dict[str, Any], *, as_json: bool) -> None:
    """Answers each line of standard input as the next message of a conversation."""
    from dmljax.errors import within

    messages: list[dict[str, str]] = []
    state: Any = None
    before: list[int] = []
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        with pause_progress():
            line = sys.stdin.readline()
        if not line:
            return
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line.strip()})
        tokens = tokenizer.conversation(messages)
        if tokens[: len(before)] != before:  # the template does not write the answer as the model did
            state, before = None, []
        with within("generate"):
            stream = model.stream(tokens[len(before) :], block=_BLOCK, state=state, **search)
        text, news, *_ = _print_stream(tokenizer, stream, time.perf_counter(), is_silent=as_json)
        print(json.dumps({"text": text, "tokens": news}) if as_json else "", flush=True)
        messages.append({"role": "assistant", "content": text})
        state, before = stream.state, tokens + news
