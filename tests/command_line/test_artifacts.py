"""`dmljax run`, `check` and `explain` take what `dmljax compile` and `jax.export` write, by its content."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import MODELS

import dmljax
from dmljax.command_line.cli import main
from dmljax.errors import InvalidDesc
from dmljax.estimation import artifacts
from dmljax.foundation.extras import command_for

REMEDY = "`dmljax run` and jax.export.deserialize take it"


def export(path: str, function: Any, *types: Any, platforms: tuple[str, ...] = ("cpu",)) -> str:
    program = jax.export.export(jax.jit(function), platforms=platforms)(*types)
    Path(path).write_bytes(bytes(program.serialize()))
    return path


def floats(*sizes: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The outputs that `dmljax run` prints as JSON."""
    assert main(["run", *arguments, "--json"]) == 0
    outputs: dict[str, Any] = json.loads(capsys.readouterr().out)["outputs"]
    return outputs


@pytest.mark.parametrize("name", ["gemm.stablehlo", "gemm", "gemm.bin", "gemm.onnx"])
def test_what_compile_writes_runs_by_the_line_that_it_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(MODELS / "gemm.bin"), "--for", "cpu", "-o", name]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"`dmljax run {name}` runs it, ")
    assert main(["run", name]) == 0
    device, signature, times, result = capsys.readouterr().out.splitlines()
    assert device == "Running on 'cpu'"
    assert signature == f"{name}: artifact (float32[1,1,1,2]) -> (float32[1,1,1,2])"
    assert times.endswith(" ms for a call")
    assert result.startswith("result: float32[1,1,1,2] ")


def test_inputs_come_from_files_and_results_have_names(capsys: pytest.CaptureFixture[str]) -> None:
    export("f", lambda x, pair: {"sum": x + pair["y"], "both": (x, pair["y"])}, floats(2), {"y": floats(2)})
    np.save("x.npy", np.array([1, 2], np.float32))
    arrays: Any = {"0": np.array([1, 2], np.float32), "1.y": np.array([5, 5], np.float32)}
    np.savez("all.npz", **arrays)
    first = np.random.default_rng(0).standard_normal(2).astype(np.float32)
    results = result_of(capsys, "f", "--input", "0=x.npy")
    assert results["sum"]["values"] == (np.array([1, 2], np.float32) + first).tolist()
    assert results.keys() == {"both.0", "both.1", "sum"}
    assert result_of(capsys, "f", "--input", "all.npz")["sum"] == {"type": "float32[2]", "values": [6, 7]}


def test_open_sizes_are_1_or_set_by_options(capsys: pytest.CaptureFixture[str]) -> None:
    rows, width = jax.export.symbolic_shape("rows, 8*width + 2")
    export("f", lambda x: x * 2, floats(rows, width))
    assert result_of(capsys, "f")["result"]["type"] == "float32[1,10]"
    assert result_of(capsys, "f", "-f", "rows:3", "-f", "width:2")["result"]["type"] == "float32[3,18]"
    assert result_of(capsys, "f", "--shape", "0=5,10")["result"]["type"] == "float32[5,10]"


def test_keys_and_integers_are_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    key = jax.eval_shape(lambda: jax.random.key(0))
    export("f", lambda key, i: jax.random.bits(key, (2,), "uint32") + i, key, jax.ShapeDtypeStruct((2,), jnp.uint32))
    assert result_of(capsys, "f")["result"]["type"] == "uint32[2]"


def test_64_bit_types_need_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    with jax.enable_x64(True):
        export("f", lambda x: x * 2, jax.ShapeDtypeStruct((2,), jnp.float64))
    with jax.enable_x64(False):
        assert main(["run", "f"]) == 2
        assert capsys.readouterr().err == "error: f has inputs of 64 bits: (float64[2]) -> (float64[2])\ntip: --x64\n"
    with jax.enable_x64(True):
        assert result_of(capsys, "f")["result"]["type"] == "float64[2]"


def test_the_stablehlo_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    export("f", jnp.tanh, floats(2), platforms=("tpu",))
    assert main(["run", "f", "--emit", "stablehlo"]) == 0
    assert "stablehlo.tanh" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--input", "x=x.npy"], "input.x must be the number of an input: 0 or 1; got x\n"),
        (["--shape", "0=3"], "input must fit the artifact; got Shape mismatch for args[0].shape[0]"),
        (["--input", "0=x.npy"], "input must fit the artifact; got "),
        (["-f", "m:2"], "-f must name an open size of the inputs, (float32[2], float32[2]) -> (float32[2]); got 'm'\n"),
        (["--compare", "onnxruntime"], "--compare is not for artifacts; got f\n"),
        (["--fuse"], "--fuse is not for artifacts; got f\n"),
        (["--emit", "hlo"], "emit must be what the artifact holds; got hlo\ntip: --emit stablehlo\n"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    export("f", jnp.add, floats(2), floats(2))
    np.save("x.npy", np.zeros(2, np.int8))
    assert main(["run", "f", *options]) == 2
    assert capsys.readouterr().err.startswith(f"error: {error}")


def test_an_artifact_for_other_platforms_or_several_devices_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    export("f", jnp.tanh, floats(2), platforms=("cuda", "tpu"))
    assert main(["run", "f"]) == 2
    remedy = "`dmljax compile MODEL --for cpu` makes one"
    assert capsys.readouterr().err == f"error: f runs on cuda and tpu; got cpu\ntip: {remedy}\n"
    assert main(["compile", str(MODELS / "dense.onnx"), "--for", "cpu:2", "-o", "divided"]) == 0
    assert main(["run", "divided"]) == 2
    rule = "divided is divided among 2 devices, which `dmljax run` does not place"
    assert capsys.readouterr().err == f"error: {rule}\ntip: notebooks/serving.md shows how to run it\n"


def test_check_and_explain_say_what_an_artifact_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(MODELS / "dense.onnx"), "--for", "cpu", "--for", "v5e", "-o", "f"]) == 0
    assert main(["compile", str(MODELS / "dense.onnx"), "--for", "cpu:2", "-o", "divided"]) == 0
    capsys.readouterr()
    lines = ["f: an artifact for cpu and tpu", "f: (float32[n,2]) -> (float32[n,3])"]
    assert main(["explain", "f"]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert main(["check", "f"]) == 0
    assert capsys.readouterr().out.splitlines() == [*lines, "f: no findings"]
    assert main(["check", "divided"]) == 0
    assert "divided: divided among 2 devices, with 2 weights as an argument" in capsys.readouterr().out.splitlines()
    assert main(["check", "divided", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["findings"], report["devices"], report["weights"]) == ([], 2, 2)
    assert report["inputs"] == ["float32[2*n,2]"]


def test_an_option_that_artifacts_do_not_need_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    export("f", jnp.tanh, floats(2))
    for command in ("run", "check"):
        assert main([command, "f", "--dml_feature_level", "5_0"]) == 0
        assert capsys.readouterr().err == "warning: --dml_feature_level has no effect on artifacts\n"


def test_a_cut_artifact_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    export("f", lambda x: x + np.arange(9999.0, dtype=np.float32), floats(9999))
    data = Path("f").read_bytes()
    Path("cut").write_bytes(data[: len(data) // 2])
    for command in ("run", "check", "explain"):
        assert main([command, "cut"]) == 2
        assert capsys.readouterr().err.startswith("error: cut must be an artifact; got ")


def test_loading_functions_name_an_artifact(capsys: pytest.CaptureFixture[str]) -> None:
    export("f", jnp.tanh, floats(2))
    with pytest.raises(InvalidDesc, match="onnx: 'f' is an artifact of dmljax compile"):
        dmljax.onnx.load("f")
    with pytest.raises(InvalidDesc, match="serialized graph, but is an artifact of dmljax compile"):
        dmljax.serialized.load("f")
    assert main(["compile", "f", "--for", "cpu", "-o", "out"]) == 2
    assert capsys.readouterr().err == f"f: the model is an artifact of dmljax compile ({REMEDY})\n"


def test_the_extra_that_reads_artifacts_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export("f", jnp.tanh, floats(2))
    monkeypatch.setattr(artifacts, "find_spec", lambda name: None)
    assert main(["run", "f"]) == 2
    message = "what jax.export reads files with is not installed: no flatbuffers"
    assert capsys.readouterr().err == f"error: {message}\ntip: {command_for('export')}\n"


@pytest.mark.parametrize("name", ["zero.onnx", "zero.json", "zero.bin", "zero.stablehlo"])
@pytest.mark.parametrize("command", ["explain", "ops"])
def test_commands_for_operators_name_the_one_for_models(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, name]) == 2
    tip = f"`dmljax check {name}` checks a model"
    assert capsys.readouterr().err == f"error: unknown operator '{name}'\ntip: {tip}\n"
