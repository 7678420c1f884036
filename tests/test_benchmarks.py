"""The benchmarks run as for their users, on few workloads; every rival's result is compared before it is timed."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent / "benchmarks"


def printed(*command: str) -> str:
    run = subprocess.run([sys.executable, *command], cwd=BENCHMARKS, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_operator_is_measured_beside_its_rivals() -> None:
    for name in ("torch", "onnxruntime", "onnx"):
        pytest.importorskip(name)
    own = "{f'DML_OPERATOR_{name}' for name in every.every()}"
    names = f"import every; from dmljax import directml; print({own} ^ set(directml.OPERATORS))"
    assert printed("-c", names) == "set()\n"
    measured = printed("every.py", "bit_xor", "argmax")
    assert measured.startswith("ELEMENT_WISE_BIT_XOR  jax.numpy ")
    assert "  torch " in measured
    assert "ARGMAX  jax.numpy " in measured


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
