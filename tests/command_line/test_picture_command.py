"""`dmljax generate` and `dmljax check` of folders of diffusion models."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import GATE
from small_diffusion_models import PROTOS, write_folder
from small_language_models import write_folder as write_language_folder

from dmljax.command_line.cli import main
from dmljax.onnx import DiffusionModel

pillow = pytest.importorskip("PIL.Image")
pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model") / "folder")


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> Any:
    """The text that the command writes to the standard output and the standard error."""
    assert main([*map(str, arguments)]) == status
    return capsys.readouterr()


@GATE
def test_a_text_becomes_a_picture(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures: list[Any] = []
    generate = DiffusionModel.generate

    def kept(*arguments: Any, **options: Any) -> Any:
        pictures.append((arguments[1:], options, generate(*arguments, **options)))
        return pictures[-1][-1]

    monkeypatch.setattr(DiffusionModel, "generate", kept)
    monkeypatch.setattr("sys.stdin", io.StringIO("red cat\n"))
    file = tmp_path / "picture.png"
    options = [
        "--steps",
        3,
        "--guidance",
        2,
        "--height",
        16,
        "--seed",
        4,
        "--scheduler",
        "ddim",
        "--negative",
        "bed " * 9,
    ]
    out, warning = run_command(capsys, "generate", folder, "-o", file, "--json", *options)
    ((prompt,), arguments, images) = pictures[0]
    assert (prompt, arguments.pop("key")) == ("red cat", jax.random.key(4))
    assert arguments == {"steps": 3, "guidance": 2, "height": 16, "scheduler": "ddim", "negative": "bed " * 9}
    with pillow.open(file) as image:
        np.testing.assert_allclose(np.asarray(image) / 255, images[0], atol=0.5001 / 255)
    report = json.loads(out)
    assert (report["file"], report["height"], report["width"]) == (str(file), 16, 32)
    assert warning == f"warning: the end is lost: the text encoder reads 6 tokens of {'bed ' * 9!r}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "error: --output must name the picture's file\ntip: -o picture.png\n"),
        (["-o", "picture"], "error: output must end as a picture's name does; got picture\ntip: picture.png\n"),
        (["-o", "none/picture.png"], "error: output must be a file in a folder that exists; got none/picture.png\n"),
        (["-o", "x.png", "--chat"], "error: --chat is only for folders of language models; got "),
        (["-o", "x.png", "--audio", "x.npy"], "error: --audio is only for folders of language models; got "),
        (["-o", "x.png", "--top_k", "0"], "error: --top_k is only for folders of language models; got "),
        (["-o", "x.png", "--scheduler", "heun"], "error: generate: scheduler must be one of ddim, pndm"),
        (["-o", "x.png", "--height", "20"], "error: generate: height must be a multiple of 8; got 20\n"),
        (["-o", "x.png", "--steps", "2000"], "error: generate: steps must be in [1, 1000]; got 2000\n"),
    ],
    ids=str,
)
def test_wrong_calls_are_refused_in_a_line(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    error = run_command(capsys, "generate", folder, "red cat", *options, status=2).err
    assert error.startswith(message)
    assert not [*tmp_path.iterdir()]


def test_language_models_refuse_options_of_diffusion_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    language = write_language_folder(tmp_path / "language")
    for option in (["-o", "x.png"], ["--guidance", "0"], ["--steps", "3"]):
        error = run_command(capsys, "generate", language, "w7", *option, status=2).err
        name = "--output" if option[0] == "-o" else option[0]
        assert error == f"error: {name} is only for folders of diffusion models; got {language}\n"


@pytest.mark.parametrize("command", [["run"], ["compile", "--for", "cpu", "-o", "x"]])
def test_other_commands_name_the_models_of_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    error = run_command(capsys, *command, folder, status=2).err
    assert "the model must be a file, not a folder" in error
    assert "tip: its models are text_encoder/model.onnx, unet/model.onnx and vae_decoder/model.onnx" in error


# Checks


def changed(name: str, **fields: Any) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **fields}))

    return write


def test_a_valid_folder_has_no_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_command(capsys, "check", folder).out
    assert text == f"{folder}: no findings, no nodes that ONNX Runtime's DirectML provider leaves to the CPU\n"
    report = json.loads(run_command(capsys, "check", folder, "--json").out)
    assert report == {"findings": [], "left_to_cpu": [], "nodes_left_to_cpu": 0, "model": None}
    text = run_command(capsys, "check", folder, "-f", "batch:2", status=2).err
    assert text.startswith("error: --onnx_free_dim_name_override is not for folders of diffusion models; got ")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (changed("scheduler/scheduler_config.json", beta_end=3), ".beta_end must be a number between 0 and 1; got 3"),
        (changed("tokenizer/vocab.json", new=24), "tokenizer must have tokens below 24, as many as the text encoder"),
        (changed("tokenizer/vocab.json", new="24"), '["tokenizer/vocab.json"] must have an integer for each token'),
        (lambda folder: (folder / "tokenizer/merges.txt").unlink(), '["tokenizer/merges.txt"] must be in the folder'),
        (lambda folder: (folder / "unet/model.onnx").unlink(), '["unet/model.onnx"] must be in the folder; got'),
        (
            lambda folder: (folder / "unet/model.onnx").write_bytes(PROTOS["vae_decoder"]().SerializeToString()),
            '["unet/model.onnx"].inputs must be sample, timestep and encoder_hidden_states; others are not',
        ),
        (lambda folder: (folder / "vae_decoder/model.onnx").write_bytes(b"x"), "vae_decoder/model.onnx: "),
    ],
    ids=range(7),
)
def test_a_finding_names_the_file_and_the_field(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], object], finding: str
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    change(copied)
    lines = run_command(capsys, "check", copied, status=1).out.splitlines()
    assert [finding in line for line in lines] == [True, False]
    assert lines[-1].startswith(f"{copied}: 1 finding")


def test_one_check_lists_findings_of_all_files(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(folder, tmp_path / "copied")
    for name in ("unet", "text_encoder"):
        (copied / name / "model.onnx").unlink()
    lines = run_command(capsys, "check", copied, status=1).out.splitlines()
    assert [line.partition(" must")[0] for line in lines[:-1]] == [
        f'{copied}: ["text_encoder/model.onnx"]',
        f'{copied}: ["unet/model.onnx"]',
    ]
