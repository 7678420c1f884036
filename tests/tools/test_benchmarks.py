"""The benchmarks run as for their users, on few workloads; every rival's result is compared before it is timed."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import pytest
from helpers import GATE

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def printed(*command: str) -> str:
    run = subprocess.run([sys.executable, *command], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_operator_is_measured_beside_its_rivals() -> None:
    for name in ("torch", "onnxruntime", "onnx"):
        pytest.importorskip(name)
    own = "{f'DML_OPERATOR_{name}' for name in every.every()}"
    names = f"import every; from dmljax import directml; print({own} - set(directml.OPERATORS))"
    assert printed("-c", names) == "set()\n"
    measured = printed("every.py", "bit_xor", "argmax")
    assert measured.startswith("ELEMENT_WISE_BIT_XOR  jax.numpy ")
    assert "  torch " in measured
    assert "ARGMAX  jax.numpy " in measured


@GATE
def test_a_device_is_measured_on_little_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    device: Any = import_module("device")
    output = tmp_path / "device.md"
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        device.main(["--small", "--target", "h100", "--output", str(output)])
    text = output.read_text()
    assert text.startswith("On cpu, with JAX ")
    assert "Of 3 operators, 3 give the CPU's results, and 0 differ" in text
    assert "| work | kernels, us | clock, us | x JAX's | x PyTorch's | x estimate | x the roof |" in text
    assert text.count("\n| gemm 64, float32 | ") == text.count("\n| attention 1x16x2x8, gradient, float32 | ") == 1
    assert "Left out" not in text
    assert "Error" not in text


@pytest.mark.full
def test_networks_compute_the_same_in_plain_jax() -> None:
    for name in ("torch", "onnxruntime", "onnx"):
        pytest.importorskip(name)
    differences = """
import jax, numpy, plain_networks
for build in plain_networks.FORWARD.values():
    work = build()
    own, plain = (jax.tree.leaves(jax.jit(function)(*work.inputs)) for function in work.of_jax.values())
    for one, other in zip(own, plain, strict=True):
        numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
"""
    assert printed("-c", differences) == ""
