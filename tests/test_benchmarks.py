"""The benchmarks run as their users run them, on few workloads; every rival's result is compared before it is timed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    for name in ("torch", "onnxruntime", "onnx", "matplotlib"):
        pytest.importorskip(name)
    return subprocess.run([sys.executable, str(BENCHMARKS), *arguments], capture_output=True, text=True, check=False)


def test_the_benchmarks_write_a_table_the_measurements_and_a_picture(tmp_path: Path) -> None:
    finished = run(str(tmp_path), "--quick", "--operator", "argmax", "--operator", "gather_elements")
    assert finished.returncode == 0, finished.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"results.md", "results.json", "results.png"}
    assert (tmp_path / "results.md").read_text() == finished.stdout.removesuffix("\n")
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert {result["operator"] for result in results} == {"gather_elements", "argmax"}
    for result in results:
        assert {"dmljax", "jax.numpy", "torch", "onnxruntime", "numpy"} <= set(result["seconds"])
        assert all(seconds > 0 for seconds in result["seconds"].values())


def test_an_unknown_operator_is_refused_before_anything_runs(tmp_path: Path) -> None:
    finished = run(str(tmp_path / "results"), "--operator", "gather_nd2")
    assert finished.returncode == 2
    assert "--operator must be one of activation_hardmax, argmax" in finished.stderr
    assert "got gather_nd2" in finished.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.full
def test_the_cost_of_a_call_is_told_for_twelve_operators() -> None:
    finished = subprocess.run(
        [sys.executable, str(BENCHMARKS / "calls.py"), "--quick"], capture_output=True, text=True, check=True
    )
    head, _, *rows, means = finished.stdout.splitlines()
    assert len(rows) == 12
    assert head.count("|") == means.count("|") == 8


@pytest.mark.full
def test_layers_of_a_batch_that_is_shared_among_devices_exchange_nothing() -> None:
    finished = subprocess.run(
        [sys.executable, str(BENCHMARKS / "exchanges.py")], capture_output=True, text=True, check=True
    )
    _, head, _, *rows = (line.strip("| ").split(" | ") for line in finished.stdout.splitlines())
    assert head == ["layer", "batch", "channels", "height"]
    assert len(rows) == 10
    assert {row[1] for row in rows} == {"nothing"}
    (dense,) = (row for row in rows if row[0] == "convolution, 3 x 3")
    assert dense[2:] == ["all-reduce 16,777,216", "collective-permute 524,288"]


def test_every_operator_is_measured_beside_its_rivals() -> None:
    pytest.importorskip("torch")
    own = "{f'DML_OPERATOR_{name}' for name in every.every()}"
    names = f"import every; from dmljax import directml; print({own} ^ set(directml.OPERATORS))"
    listed = subprocess.run([sys.executable, "-c", names], cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    assert listed.stdout == "set()\n"
    measured = subprocess.run(
        [sys.executable, "every.py", "bit_xor"], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert measured.stdout.startswith("ELEMENT_WISE_BIT_XOR  jax.numpy ")
    assert "  torch " in measured.stdout


def test_whole_networks_are_measured_beside_pytorch_and_onnx_runtime() -> None:
    for name in ("torch", "onnxruntime", "onnx"):
        pytest.importorskip(name)
    command = [sys.executable, "networks.py", "squeezenet", "--batch", "1", "--rounds", "1"]
    finished = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=True)
    first, _, _, row = finished.stdout.splitlines()
    assert first.startswith("`compute` beside the compiled function: one sum ")
    assert row.startswith("| squeezenet | 1 | ")
