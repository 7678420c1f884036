"""Folders of older kinds, GPT-2's and Marian's, beside ONNX Runtime."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import GATE, mesh_of, refuses
from jax.sharding import AxisType
from small_older_folders import (
    TRANSLATING,
    WORDS,
    stacked_outputs,
    translate,
    write_stacked_folder,
    write_translating_folder,
)

from dmljax.command_line.cli import main
from dmljax.onnx import LanguageModel, language_model

PROMPTS = [[5, 7, 4], [9, 6, 10, 11, 4]]


def greedy(folder: Path, tokens: list[int], length: int) -> list[int]:
    """The likeliest continuation by ONNX Runtime, without an end."""
    sequence = [*tokens]
    while len(sequence) < length:
        logits = stacked_outputs(folder, sequence)["logits"][0, -1]
        logits[2] = -np.inf
        sequence.append(int(np.argmax(logits)))
    return sequence


# GPT-2's


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stacked_folder(tmp_path_factory.mktemp("stacked"))


@pytest.fixture(scope="module")
def model(folder: Path) -> LanguageModel:
    return language_model(folder)


def test_a_model_tells_what_its_configuration_leaves_out(model: LanguageModel) -> None:
    settings = model.settings
    assert (settings.layers, settings.key_heads, settings.head_size, settings.search.max_length) == (2, 2, 8, 20)


def test_stacked_caches_keep_what_was_read(folder: Path, model: LanguageModel) -> None:
    expected = [greedy(folder, prompt, 14) for prompt in PROMPTS]
    assert model.generate(PROMPTS, max_length=14, min_length=14) == expected
    state = model.start(PROMPTS, max_length=20)
    assert model.generate([[8], [3, 3]], state=state, max_length=14, min_length=14) == [
        greedy(folder, [*prompt, *more], 14) for prompt, more in zip(PROMPTS, ([8], [3, 3]), strict=True)
    ]


@GATE
def test_stacked_caches_are_divided_by_sequences_and_heads(folder: Path, model: LanguageModel) -> None:
    weights = model.shard(mesh_of(AxisType.Auto, data=2, model=2))
    expected = [greedy(folder, prompt, 14) for prompt in PROMPTS]
    assert model.generate(PROMPTS, max_length=14, min_length=14, weights=weights) == expected


def test_all_outputs_can_be_had(folder: Path, model: LanguageModel) -> None:
    weights, _ = model.models.call_weights(None)
    outputs = model.decoder.outputs_of(weights, [PROMPTS[1]], {})
    for name, expected in stacked_outputs(folder, PROMPTS[1]).items():
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"reads_mask": False}, "reads past tokens in a way that is not supported; got past_"),
        ({"unidirectional": 0}, "reads past tokens in a way that is not supported; got past_"),
    ],
)
def test_stacked_caches_of_other_attention_are_refused(options: dict[str, Any], rule: str, tmp_path: Path) -> None:
    with refuses(rule):
        language_model(write_stacked_folder(tmp_path / "other", **options))


def test_check_knows_stacked_caches(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(WORDS)}}}))
    assert main(["check", str(folder)]) == 0
    assert "caches of 5.12 kB for a sequence of 20 tokens, the context" in capsys.readouterr().out


# Marian's


@pytest.fixture(scope="module")
def translating_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_translating_folder(tmp_path_factory.mktemp("translating"))


@pytest.fixture(scope="module")
def translating(translating_folder: Path) -> LanguageModel:
    return language_model(translating_folder)


def test_texts_are_translated(translating_folder: Path, translating: LanguageModel) -> None:
    expected = [translate(translating_folder, prompt, 14) for prompt in PROMPTS]
    assert translating.generate(PROMPTS, max_length=14, min_length=14) == expected
    assert translating.generate(PROMPTS[0], max_length=14, min_length=14) == expected[0]


def test_an_encoder_may_fix_the_sizes_of_texts(translating_folder: Path, tmp_path: Path) -> None:
    fixed = language_model(write_translating_folder(tmp_path / "fixed", sizes=(2, 6)))
    expected = [translate(translating_folder, prompt, 10) for prompt in PROMPTS]
    assert fixed.generate(PROMPTS, max_length=10, min_length=10) == expected
    with refuses("prompts must have at most 5 tokens, as encoder.onnx has it; got 6"):
        fixed.generate([[5] * 6, [4]])


def test_what_translates_refuses_what_it_cannot_do(translating: LanguageModel) -> None:
    state = translating.start(PROMPTS, max_length=14)
    with refuses("prompts: cannot follow earlier tokens, because the encoder reads a whole text"):
        translating.generate(PROMPTS, state=state)
    with refuses("logits: not supported for models that translate"):
        translating.logits(PROMPTS)
    with refuses("prompts must be known outside of jax.jit"):
        jax.jit(translating.generate)(np.array([5, 6]))
    with refuses("estimate: not supported for models that translate"):
        translating.generation_programs(1, 8, 16)
    with refuses("audio must be left out, because the folder's encoder reads texts"):
        translating.generate(PROMPTS, audio={})
    with refuses("images must be left out, because the folder's encoder reads texts"):
        translating.generate(PROMPTS, images={})


def test_check_knows_translations(translating_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"model": {"vocab": {str(i): i for i in range(WORDS)}}}
    (translating_folder / "tokenizer.json").write_text(json.dumps(words))
    assert main(["check", str(translating_folder)]) == 0
    assert capsys.readouterr().out.startswith(f"{translating_folder}: marian-ssru of 24 tokens\n")


def test_the_command_translates_a_text(
    translating: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {str(i): i for i in range(WORDS)}
    reader = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="0"))
    reader.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    reader.save(str(write_translating_folder(tmp_path / "folder") / "tokenizer.json"))
    lengths = ["--max_length", "14", "--min_length", "14"]
    assert main(["generate", str(tmp_path / "folder"), "5 7 4", *lengths, "--json"]) == 0
    expected = translating.generate(PROMPTS[0], max_length=14, min_length=14)[len(PROMPTS[0]) :]
    assert json.loads(capsys.readouterr().out)["tokens"] == expected


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_names_that_a_translation_needs_are_in_its_models(part: str, tmp_path: Path) -> None:
    folder = write_translating_folder(tmp_path / "wrong")
    content = json.loads(json.dumps(TRANSLATING))
    content["model"][part]["inputs"]["input_ids"] = "none"
    (folder / "genai_config.json").write_text(json.dumps(content))
    with refuses(f"model.{part}.inputs.input_ids must name inputs of {part}.onnx; got none"):
        language_model(folder)


def test_a_translation_needs_its_first_token(tmp_path: Path) -> None:
    folder = write_translating_folder(tmp_path / "wrong")
    content = json.loads(json.dumps(TRANSLATING))
    del content["model"]["bos_token_id"]
    (folder / "genai_config.json").write_text(json.dumps(content))
    with refuses("].model.bos_token_id must be given for models that translate; got none"):
        language_model(folder)
