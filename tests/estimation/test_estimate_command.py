"""The command `dmljax estimate`: models of each kind, and what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from models import GPT, MODELS
from onnx import helper
from onnx_models import FLOAT, model, small_network, value

from dmljax.command_line.cli import main
from dmljax.estimation import TARGETS


@pytest.fixture
def path(tmp_path: Path) -> str:
    pytest.importorskip("jax_cuda12_plugin", reason="the extra `accelerators` is not installed")
    path = tmp_path / "network.onnx"
    path.write_bytes(small_network().SerializeToString())
    return str(path)


def test_the_batches_of_a_model_are_side_by_side(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", path, "--for", "h100", "--for", "h100:2", "--batch", "2", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == path
    assert lines[1] == "x: float32[2,3,4,4] or float32[4,3,4,4]"
    assert [line.split() for line in lines[2:4]] == [["h100", "h100:2"] * 2, ["batch", *"2244"]]
    assert lines[5].split() == ["chips", *"1212"]
    assert sum(line.startswith("The time is a lower bound") for line in lines) == 1


def test_a_mesh_divides_the_weights_of_a_model(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole, divided = ["--for", "h100"], ["--for", "h100:4", "--mesh", "data=2,model=2", "--batch", "2"]
    reports = []
    for options in (whole, divided):
        assert main(["estimate", path, *options, "--json"]) == 0
        reports += json.loads(capsys.readouterr().out)
    assert reports[1]["weight_bytes"] < reports[0]["weight_bytes"]
    assert main(["estimate", path, "--for", "h100:4", "--mesh", "data=2"]) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1] == "error: estimate: mesh must have as many chips as h100:4, 4; got 2"
    )
    with pytest.raises(SystemExit):
        main(["estimate", path, "--for", "h100:4", "--mesh", "4"])
    assert "--mesh: must give each axis a size once, as in data=32,model=8; got '4'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["estimate", path, "--for", "h100:4", "--mesh", "data=2,data=2"])
    assert "--mesh: must give each axis a size once, " in capsys.readouterr().err


def test_a_program_reads_json_and_several_chips_have_an_example_each(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", path, "--for", "h100", "--for", "h100:2", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["program"], first["target"], second["target"]) == (path, "h100", "h100:2")
    assert first["cost"]["products"] == second["cost"]["products"]
    assert any(node["name"] == "/features/Conv" for node in first["nodes"])
    assert main(["estimate", path, "--for", "h100", "--gradient", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cost"]["products"] > first["cost"]["products"]


def test_indivisible_and_fixed_sizes_give_a_one_line_error(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", path, "--for", "h100", "--for", "h100:2", "--batch", "2", "3"]) == 2
    expected = "inputs[0]: first dimension must be divisible by 2 devices; got (3, 3, 4, 4)"
    assert capsys.readouterr().err.splitlines() == [  # nothing is compiled before
        f"error: estimate: {expected}",
        "tip: use a batch that 2 divides, or one chip",
    ]
    assert main(["estimate", path, "--for", "h100", "--batch", "3", "-f", "n:2"]) == 2
    assert (
        "batch: needs a model with an input whose first dimension is open; got x: float32[2, 3, 4, 4]\n"
        in capsys.readouterr().err
    )


def test_open_sizes_must_be_given_and_spelled_right(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = {
        (): "sizes that the model leaves open must be given; got tokens: int64[batch, length]\ntip: -f length:256",
        ("-f", "lenght:8"): "-f must name an open size of the inputs, tokens: int64[batch, length]; got 'lenght'\n"
        "tip: did you mean length?",
    }
    for options, message in refused.items():
        assert main(["estimate", str(GPT), "--for", "h100", *options]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
    image = value("x", FLOAT, [None, 3, None, "width"])
    Path(path).write_bytes(model([helper.make_node("Relu", ["x"], ["y"])], [image], ["y"]).SerializeToString())
    assert main(["estimate", path, "--for", "h100"]) == 2
    assert capsys.readouterr().err.endswith("\ntip: -f width:256 -b x:1,3,256,256\n")
    assert main(["estimate", path, "--for", "h100", "-b", "x:2,3,4,5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["inputs"] == {"x": "float32[2,3,4,5]"}


def test_too_little_memory_exits_with_status_1(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", path, "--for", "h100", "--for", "h100:2", "--batch", "220000000"]) == 1
    remarks = [line for line in capsys.readouterr().out.splitlines() if "does not fit in memory" in line]
    assert remarks[0].startswith("h100, batch 220000000 does not fit in memory: ")


def test_a_model_that_draws_random_numbers_is_given_a_key(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("RandomNormalLike", ["x"], ["y"])
    Path(path).write_bytes(model([node], [value("x", FLOAT, [8])], ["y"]).SerializeToString())
    assert main(["estimate", path, "--for", "h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["reason"] == ""


def test_operators_and_serialized_graphs_are_estimated(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(MODELS / "top1_routing.json"), str(MODELS / "gemm.bin"), "--for", "h100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [f"{name}: DML_OPERATOR_{operator}" for name, operator in DISPATCHABLES.items()]
    assert [line for line in lines if line in titles] == titles
    assert f"{MODELS / 'gemm.bin'}" in lines
    assert main(["estimate", str(MODELS / "gemm.bin"), "--for", "h100", "--batch", "3"]) == 2
    assert capsys.readouterr().err == f"error: --batch is only for ONNX models; got {MODELS / 'gemm.bin'}\n"


def test_compilers_are_silent_wherever_jax_would_run(path: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "TPU_"))}
    command = [sys.executable, "-m", "dmljax", "estimate", str(MODELS / "gemm.bin"), "--for", "h100", "--for", "v5e"]
    finished = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert b"takes at least" in finished.stdout
    program = """
import dmljax, jax.numpy as jnp
x = jnp.ones(8)  # JAX has looked for chips
print(dmljax.estimate(jnp.sin, x, target="h100").reason, dmljax.estimate(jnp.sin, x, target="v5e").reason, "done")
"""
    finished = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert finished.stdout == b"  done\n"


DISPATCHABLES = {"route": "ACTIVATION_HARDMAX", "list": "NONZERO_COORDINATES", "fetch": "GATHER_ND1"}


def test_an_unknown_chip_gives_a_one_line_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(MODELS / "gemm.bin"), "--for", "rtx4090"]) == 2
    known = f"{', '.join(TARGETS)}, or several chips such as h100:8, v5e:16 or v5e:4x4"
    assert capsys.readouterr().err == f"error: unknown chip 'rtx4090'\ntip: choose {known}\n"
