"""`dmljax generate`, with a small language model and a tokenizer of words."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import jax
import pytest
from helpers import FULL, GATE
from small_language_models import TEMPLATE, WORDS, write_folder, write_tokenizer

from dmljax.command_line.cli import main
from dmljax.onnx import language_model
from dmljax.onnx.language import model as language_models

pytest.importorskip("tokenizers")

NAMES = [*WORDS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("model"))
    write_tokenizer(folder)
    return folder


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    """The text that the command writes to the standard output and the standard error."""
    assert main(["generate", *arguments]) == status
    return capsys.readouterr()


def test_a_text_is_continued(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, timing = run_command(capsys, str(folder), "w7 w30 w9", "--max_length", "30", "--min_length", "30")
    expected = language_model(folder).generate([7, 30, 9], max_length=30, min_length=30)[3:]
    assert out.split() == [NAMES[token] for token in expected]
    assert "prompt of 3 tokens, 27 new: " in timing
    assert "tokens per second" in timing


def test_the_absence_of_onnx_leads_to_all_that_texts_need(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    error = run_command(capsys, str(folder), "w7", status=2).err
    assert error.startswith("error: language models need the package onnx")
    assert "[genai]'" in error


@GATE
def test_beams_find_the_likeliest_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("w5 w11", "--max_length", "9", "--num_beams", "3", "--length_penalty", "2", "--json")
    report = json.loads(run_command(capsys, str(folder), *options).out)
    expected = language_model(folder).generate([5, 11], max_length=9, num_beams=3, length_penalty=2.0)
    assert report["tokens"] == expected[2:]
    assert report["tokens_per_second"] is None
    error = run_command(capsys, str(folder), "w5", "--length_penalty", "2", status=2).err
    assert error.startswith("error: --length_penalty has no effect without --num_beams; got 2.0")


@FULL
def test_the_prompt_may_come_from_the_standard_input(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("w7 w30 w9\n"))
    options = [
        "--max_length",
        "11",
        "--do_sample",
        "--seed",
        "5",
        "--top_k",
        "4",
        "--no_repeat_ngram_size",
        "1",
        "--json",
    ]
    report = json.loads(run_command(capsys, str(folder), *options).out)
    drawn: Any = {"do_sample": True, "top_k": 4, "no_repeat_ngram_size": 1, "key": jax.random.key(5)}
    assert report["tokens"] == language_model(folder).generate([7, 30, 9], max_length=11, **drawn)[3:]
    assert (report["prompt_tokens"], report["tokens_per_second"]) == (3, None)
    assert report["text"].split() == [NAMES[token] for token in report["tokens"] if token > 2]


@FULL
@pytest.mark.parametrize("expression", ["m.content", "m.content.split()[0]"])  # the second does not repeat the answer
def test_a_conversation_goes_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    settings = json.loads((folder / "genai_config.json").read_text())
    is_whole = expression == "m.content"
    penalty: Any = {"repetition_penalty": 2.0}  # so that no answer is one token
    prompt = [5, 7, *([8] if is_whole else []), 2, 4]
    end = language_model(folder).generate(prompt, max_length=20, min_length=20, **penalty)[len(prompt) + 3]
    settings["model"]["eos_token_id"] = [end]
    (tmp_path / "genai_config.json").unlink()
    (tmp_path / "genai_config.json").write_text(json.dumps(settings))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE.replace("m.content", expression))
    monkeypatch.setattr("sys.stdin", io.StringIO("w7 w8\n\nw9\n"))
    lines = run_command(capsys, str(tmp_path), "--chat", "--json", "--repetition_penalty", "2").out.splitlines()
    first, second = (json.loads(line)["tokens"] for line in lines)
    model = language_model(tmp_path)
    assert first == model.generate(prompt, **penalty)[len(prompt) :]
    assert first[-1] == end
    again = [*prompt, *(first if is_whole else first[:1]), 2, 5, 9, 2, 4]
    assert second == model.generate(again, **penalty)[len(again) :]


@pytest.mark.parametrize(
    ("changed", "arguments", "message"),
    [
        ({}, [""], "prompt must have at least one token; got ''"),
        ({}, ["w7", "--top_p", "2"], "top_p must be a number above 0 and at most 1; got 2.0"),
        (
            {},
            ["w7 w7", "--max_length", "1"],
            "--max_length must be more than the 2 tokens of the prompt, which it counts; got 1\ntip: --max_length 64\n",
        ),
        ({}, ["w7 w7 w7", "--max_length", "3"], "--max_length must be more than the 3 tokens of the prompt"),
        ({}, ["w7 " * 64], "the prompt must have fewer than 64 tokens, the model's context; got 64\n"),
        ({}, ["w7", "--max_length", "65"], "max_length must be an integer from 1 to 64, the model's context; got 65"),
        (
            {},
            ["w7", "--temperature", "0.7"],
            "--temperature has no effect without --do_sample; got 0.7\ntip: --do_sample draws tokens\n",
        ),
        ({}, ["w7", "--top_k", "0"], "--top_k has no effect without --do_sample; got 0"),
        ({}, ["w7", "--seed", "0"], "--seed has no effect without --do_sample; got 0"),
        ({}, ["w7", "--chat"], "a conversation has no prompt: its messages come line by line; got 'w7'"),
        ({"tokenizer.json": "{}"}, ["w7"], '["tokenizer.json"] must be a tokenizer; got'),
        ({"tokenizer.json": None}, ["w7"], "tokenizer.json"),
        ({"tokenizer_config.json": "{}"}, ["--chat"], '["tokenizer_config.json"] must have a chat_template'),
        ({"chat_template.jinja": "{{"}, ["--chat"], "chat_template must render a conversation"),
        (
            {"chat_template.jinja": "{{ raise_exception('no system') }}"},
            ["--chat"],
            "chat_template: refuses the conversation: no system",
        ),
    ],
    ids=str,
)
def test_wrong_calls_are_refused_in_a_line(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, str | None],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("w7\n"))
    for file in folder.iterdir():
        if changed.get(file.name, "") is not None:
            (tmp_path / file.name).symlink_to(file)
    for name, text in changed.items():
        if text is not None:
            (tmp_path / name).unlink(missing_ok=True)
            (tmp_path / name).write_text(text)
    if {*arguments} & {"--max_length", "--temperature", "--top_k", "--seed"}:
        monkeypatch.setattr(language_models, "load_parts", None)  # refused before weights are read
    error = run_command(capsys, str(tmp_path), *arguments, status=2).err
    assert message in error
    assert error.startswith("error: ")


def test_a_tokenizer_of_another_vocabulary_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    changed = json.loads((folder / "tokenizer.json").read_text())
    changed["model"]["vocab"]["w7"] = 900
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").write_text(json.dumps(changed))
    error = run_command(capsys, str(tmp_path), "w7", status=2).err
    assert "must have tokens below 48, the model's vocab_size; got 900" in error


@pytest.mark.parametrize(
    ("option", "tip"),
    [
        ("--max_new_tokens=20", "--max_length counts the tokens of the prompt as well"),
        ("--max-new-tokens=20", "--max_length counts the tokens of the prompt as well"),
        (
            "--num_return_sequences=4",
            "in Python, generate(num_beams=4, num_return_sequences=4) gives several",
        ),
        ("--guidance-scale=4", "did you mean --guidance?"),
        ("--do-sample", "did you mean --do_sample?"),
    ],
)
def test_names_of_other_libraries_get_a_remedy(option: str, tip: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["generate", "folder", "hi", option])
    assert capsys.readouterr().err == f"error: unrecognized arguments: {option}\ntip: {tip}\n"


def test_a_file_or_nothing_instead_of_a_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(b"")
    assert run_command(capsys, "none", "hi", status=2).err == "error: folder must exist; got 'none'\n"
    error = "error: folder must be a folder, not a file; got 'model.onnx'\n"
    tip = "tip: `dmljax run model.onnx` or dmljax.onnx.load runs a single model\n"
    assert run_command(capsys, "model.onnx", "hi", status=2).err == error + tip
