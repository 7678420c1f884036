"""`dmljax check` of folders of language models, and of nodes that refuse what they are given."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from helpers import GATE
from onnx import helper
from onnx_models import DOMAINS, FLOAT, INT64, model, value
from small_language_models import CONFIGURATION, HEADS, HIDDEN, LAYERS, VOCABULARY, language_proto, write_folder

from dmljax.command_line.cli import main

FILE = "genai_config.json"
WORDS = {"model": {"vocab": {"a": 0, "b": 47}}, "added_tokens": [{"id": 46}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS))
    return tmp_path


def run_check(capsys: pytest.CaptureFixture[str], path: Path, *options: str, status: int = 0) -> list[str]:
    """The lines that the command prints of a path, without its name."""
    assert main(["check", str(path), *options]) == status
    return [line.removeprefix(f"{path}: ") for line in capsys.readouterr().out.splitlines()]


def changed(folder: Path, text: Any, *path: str) -> None:
    """Changes a field of the configuration."""
    content = json.loads((folder / FILE).read_text())
    inner = content
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = text
    (folder / FILE).write_text(json.dumps(content))


@GATE
def test_a_check_describes_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(folder, "llama", "model", "type")
    changed(folder, HEADS, "model", "decoder", "num_attention_heads")
    kinds = "17.3 kB of 4-bit codes, 19.8 kB of other weights and 8.64 kB of scales and zero points"
    assert run_check(capsys, folder) == [
        "llama of 2 layers, 4 heads, 2 key heads of 16, 48 tokens",
        "context of 64 tokens; ends at 2",
        "search: max_length 64, min_length 0, do_sample False, temperature 1.0, top_k 50, top_p 1.0,"
        " repetition_penalty 1.0, no_repeat_ngram_size 0",
        f"weights of 45.7 kB: {kinds}",
        "caches of 32.8 kB for a sequence of 64 tokens, the context",
        "no findings, no nodes that ONNX Runtime's DirectML provider leaves to the CPU",
    ]


def test_caches_of_a_long_context_are_those_of_1000_tokens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(folder, 4096, "model", "context_length")
    assert "caches of 512 kB for 1,000 tokens of a sequence" in run_check(capsys, folder)


def test_a_check_describes_a_folder_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads("".join(run_check(capsys, folder, "--json")))
    blocks = HIDDEN // 16 * (HEADS + 2 * 2) * 16 + HEADS * HIDDEN  # of codes, in a layer
    assert report["model"]["weight_bytes"]["4-bit codes"] == 8 * (LAYERS * blocks + HIDDEN // 16 * VOCABULARY)
    assert report["model"]["cache_bytes_of_1000_tokens"] == 2 * LAYERS * 2 * 16 * 4 * 1000
    assert report["search"]["top_k"] == CONFIGURATION["search"]["top_k"]
    assert (report["findings"], report["nodes_left_to_cpu"]) == ([], 0)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_text(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def with_field(value: Any, *path: str) -> Callable[[Path], None]:
    return lambda folder: changed(folder, value, *path)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (without("model.onnx"), f"[\"{FILE}\"].model.decoder.filename must be a file in the folder; got 'model.onnx'"),
        (without("tokenizer.json"), '["tokenizer.json"] must be in the folder for texts'),
        (with_text("tokenizer.json", "[]"), '["tokenizer.json"] must be a tokenizer; got '),
        (
            with_text("tokenizer.json", json.dumps({"model": {"vocab": [["a", 0.0]] * 50}})),
            '["tokenizer.json"] must have tokens below 48, the model\'s vocab_size; got 49',
        ),
        (with_field(47, "model", "vocab_size"), "model.vocab_size must be 48, as logits: float32[batch, length, 48]"),
        (
            with_field(8, "model", "decoder", "head_size"),
            "model.decoder.head_size must be 16, as past_key_values.0.key",
        ),
        (with_field("x.%d", "model", "decoder", "inputs", "past_key_names"), "must name inputs of model.onnx; got x.0"),
        (with_field(3, "search", "temprature"), "search.temprature: unknown field, did you mean temperature?"),
        (
            with_field(0, "search", "num_beams"),
            "must be an integer from 1 to 2147483647, where 1 chooses token by token",
        ),
    ],
    ids=range(9),
)
@pytest.mark.gate(but=4)
def test_a_finding_names_the_file_and_the_field(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], object], finding: str
) -> None:
    change(folder)
    lines = run_check(capsys, folder, status=1)
    assert sum(finding in line for line in lines) == 1
    assert lines[-1].startswith("1 finding" if "vocab_size must be" not in finding else "2 findings, ")


def test_one_check_lists_all_wrong_fields(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(folder, "48", "model", "vocab_size")
    changed(folder, None, "model", "decoder", "head_size")
    assert run_check(capsys, folder, status=1)[:2] == [
        f"[\"{FILE}\"].model.vocab_size must be an integer; got '48'",
        f'["{FILE}"].model.decoder.head_size must be an integer; got None',
    ]


def test_a_folder_without_a_readable_configuration_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / FILE).write_text("{")
    onnx.save(language_proto(), folder / "other.onnx")
    assert main(["check", str(folder), str(folder / "other.onnx")]) == 2
    out, err = capsys.readouterr()
    assert f'error: ["{FILE}"] must be JSON' in err
    assert out.startswith(f"{folder}/other.onnx: no findings")  # other models are checked all the same
    (folder / FILE).unlink()
    assert main(["check", str(folder)]) == 2
    assert capsys.readouterr().err.startswith(f"error: folder must have a {FILE}; got '{folder}'\ntip: ")


def test_the_model_of_a_folder_is_checked_as_a_file_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = language_proto()
    refuses(proto, qk_output=1)
    onnx.save(proto, folder / "model.onnx")
    path = folder / "model.onnx"
    line = f'{path}: nodes["0.attended"].GroupQueryAttention.qk_output: not supported; got 1'
    assert line in run_check(capsys, folder, status=1)
    assert f"{path}: {run_check(capsys, path, status=1)[0]}" == line


def test_other_commands_point_to_those_that_take_folders(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = f"error: the model must be a file, not a folder; got {folder}\n"
    assert main(["run", str(folder)]) == 2
    assert capsys.readouterr().err == f"{error}tip: `dmljax generate {folder}` continues texts\n"
    assert main(["compile", str(folder), "--for", "cpu", "-o", "f.bin"]) == 2
    tip = f"compile its ONNX model, or `dmljax estimate {folder}` tells its cost"
    assert capsys.readouterr().err == f"{error}tip: {tip}\n"
    (folder / FILE).unlink()
    assert main(["run", str(folder)]) == 2
    assert capsys.readouterr().err == error
    assert main(["check", str(folder), "-f", "a:1"]) == 2


# What nodes refuse


def refuses(proto: onnx.ModelProto, **attributes: Any) -> None:
    """Sets attributes of the first attention."""
    node = next(node for node in proto.graph.node if node.op_type == "GroupQueryAttention")
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())


@pytest.mark.parametrize(
    ("attributes", "finding"),
    [
        ({"qk_output": 1}, "GroupQueryAttention.qk_output: not supported; got 1"),
        ({"k_quant_type": "PER_TENSOR"}, "GroupQueryAttention.k_quant_type: needs a cache and its scale; got none"),
        ({"v_quant_type": "PER_ROW"}, "v_quant_type must be one of NONE, PER_TENSOR, PER_CHANNEL; got 'PER_ROW'"),
    ],
)
def test_a_node_that_refuses_its_attributes_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attributes: dict[str, Any], finding: str
) -> None:
    proto = language_proto()
    refuses(proto, **attributes)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    lines = run_check(capsys, path, status=1)
    assert finding in lines[0]
    assert lines[-1].startswith("1 finding, ")  # later nodes need what this one does not compute


def checked(tmp_path: Path, capsys: pytest.CaptureFixture[str], *given: Any, status: int = 0) -> str:
    """The findings in a model of nodes and inputs."""
    nodes, inputs = given
    onnx.save(model(nodes, inputs, ["y"], domains=DOMAINS), tmp_path / "model.onnx")
    return "\n".join(run_check(capsys, tmp_path / "model.onnx", status=status))


def test_open_sizes_that_might_not_fit_are_not_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heads = {"num_heads": 6, "domain": "com.microsoft"}
    nodes = [helper.make_node("MultiHeadAttention", ["x", "x", "x"], ["y"], **heads)]
    assert "no findings" in checked(tmp_path, capsys, nodes, [value("x", FLOAT, ["b", "n", "d"])])
    line = checked(tmp_path, capsys, nodes, [value("x", FLOAT, [2, 3, 8])], status=1)
    assert "MultiHeadAttention.num_heads must divide the last dimension of (2, 3, 8); got 6" in line
    nodes = [helper.make_node("Pad", ["x", "sizes"], ["y"])]
    inputs = [value("x", FLOAT, ["a"]), value("sizes", INT64, [2])]
    assert "no findings" in checked(tmp_path, capsys, nodes, inputs)
    many = helper.make_node("Constant", [], ["sizes"], value_ints=[0, 2**40])
    assert "Pad.end_padding[0] must be in" in checked(tmp_path, capsys, [many, *nodes], inputs[:1], status=1)
    nodes = [helper.make_node("MatMul", ["x", "z"], ["y"])]
    inputs = [value("x", FLOAT, ["a", 3]), value("z", FLOAT, ["b", "c"])]
    assert "no findings" in checked(tmp_path, capsys, nodes, inputs)


def test_sizes_left_to_the_call_are_not_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Expand", ["x", "sizes"], ["e"]), helper.make_node("RandomNormalLike", ["e"], ["y"])]
    inputs = [value("x", FLOAT, [1]), value("sizes", INT64, [2])]
    assert "no findings" in checked(tmp_path, capsys, nodes, inputs)
