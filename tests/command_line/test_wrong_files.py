"""Every command says in a line what is wrong with a file or folder, and exits with status 2."""

from pathlib import Path

import onnx
import pytest
from models import GPT, MODELS
from small_language_models import write_folder, write_tokenizer

from dmljax.command_line.cli import main

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n"
CONTENTS = {"empty": b"", "pointer": POINTER, "text": b"# notes", "cut": GPT.read_bytes()[:5000]}
FETCH = "`git lfs pull` fetches the file"
FORMATS = "models are .json, .onnx, .bin or artifacts of dmljax compile; `python -m dmljax.run` runs programs"
COMMANDS = ("run", "check", "compile")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in CONTENTS.items():
        for suffix in ("onnx", "json", "bin"):
            Path(f"{name}.{suffix}").write_bytes(content)
    Path("folder").mkdir()
    return tmp_path


def error_of(command: str, path: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The error of a command, without the command's name and the word `error`."""
    output = ["--for", "cpu", "-o", "out"] if command == "compile" else []
    assert main([command, path, *output]) == 2
    return capsys.readouterr().err.removeprefix("error: ").removeprefix("compile: ").removeprefix("onnx: ")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("empty.onnx", "'empty.onnx' is empty\n"),
        ("empty.json", "empty.json: the model is empty\n"),
        ("empty.bin", "must be a DirectML serialized graph, but is empty\n"),
        ("pointer.onnx", f"'pointer.onnx' is a Git LFS pointer\ntip: {FETCH}\n"),
        ("pointer.json", f"pointer.json: the model is a Git LFS pointer ({FETCH})\n"),
        ("pointer.bin", "must be a DirectML serialized graph, but is a Git LFS pointer"),
        ("text.onnx", "not an ONNX model in protobuf; got 7 bytes in 'text.onnx'\n"),
        ("text.json", f"text.json:1:1: expected a value; got '# notes' ({FORMATS})\n"),
        ("text.bin", "must be a DirectML serialized graph; its offsets must be within the 7 bytes of the file"),
        (
            "cut.onnx",
            "not an ONNX model in protobuf; got 5000 bytes in 'cut.onnx'\ntip: the file may be cut short\n",
        ),
        ("cut.json", f"cut.json:2: the model must be UTF-8 text; got invalid continuation byte ({FORMATS})\n"),
        ("absent.onnx", "absent.onnx: no such file\n"),
        ("absent.json", "absent.json: no such file\n"),
        ("absent.bin", "absent.bin: no such file\n"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("folder")
def test_a_file_without_a_model_is_named(
    command: str, path: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error in error_of(command, path, capsys)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        (["run", "--input_path", "absent"], "input_path must be a folder that exists; got absent\n"),
        (["check", "--input_path", "text.json"], "input_path must be a folder that exists; got text.json\n"),
        (["run", "--output_path", "text.json"], "output_path must be a folder, not a file; got text.json\n"),
        (["check", "--weights", "x.npz"], "one_hot.json must be an artifact\n"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("folder")
def test_a_file_or_nothing_instead_of_a_folder_is_refused(
    option: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = option
    assert main([command, str(MODELS / "one_hot.json"), *options]) == 2
    assert capsys.readouterr().err.endswith(error)


@pytest.mark.parametrize("kind", ["empty", "pointer"])
@pytest.mark.usefixtures("folder")
def test_arrays_and_weights_are_named_as_models_are(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = {"empty": "a.npz is empty\n", "pointer": f"a.npz is a Git LFS pointer\ntip: {FETCH}\n"}[kind]
    Path("a.npz").write_bytes(CONTENTS[kind])
    dense = str(MODELS / "dense.onnx")
    assert main(["run", dense, "--input", "x=a.npz"]) == 2
    assert capsys.readouterr().err == f"error: {message}"
    assert main(["compile", dense, "--for", "cpu:2", "-o", "divided"]) == 0
    capsys.readouterr()
    assert main(["check", "divided", "--weights", "a.npz"]) == 2
    assert capsys.readouterr().err == f"error: {message}"


@pytest.mark.usefixtures("folder")
def test_a_pointer_in_the_place_of_a_models_weights_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    proto = onnx.load(MODELS / "dense.onnx")
    onnx.save(proto, "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    Path("weights").write_bytes(POINTER)
    assert main(["check", "model.onnx"]) == 1
    finding, last = capsys.readouterr().out.splitlines()
    assert finding.startswith("model.onnx: initializers.")
    assert finding.endswith(f".location: weights is a Git LFS pointer ({FETCH})")
    assert last == "model.onnx: 1 finding"


@pytest.mark.usefixtures("folder")
def test_models_after_an_unreadable_one_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    dense = str(MODELS / "dense.onnx")
    assert main(["check", "text.onnx", "folder", dense]) == 2
    out, err = capsys.readouterr()
    assert out == f"{dense}: no findings, no nodes that ONNX Runtime's DirectML provider leaves to the CPU\n"
    assert [line.partition(":")[0] for line in err.splitlines()] == ["error", "error", "tip"]


def test_nodes_that_cannot_be_read_are_not_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tokenizer(write_folder(tmp_path))
    (tmp_path / "model.onnx").write_bytes(POINTER)
    assert main(["check", str(tmp_path)]) == 1
    finding, last = capsys.readouterr().out.splitlines()[-2:]
    assert finding == f"{tmp_path / 'model.onnx'}: '{tmp_path / 'model.onnx'}' is a Git LFS pointer ({FETCH})"
    assert last == f"{tmp_path}: 1 finding"
