"""The benchmarks run as for their users, on few workloads; every rival's result is compared before it is timed."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import pytest
from helpers import GATE

from dmljax.lowerings.attention import dot_product

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


@pytest.fixture
def races(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with JAX as the benchmarks have it, and dmljax's kernels for any number of positions."""
    for folder in (BENCHMARKS, BENCHMARKS / "variants"):
        monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(dot_product, "_FEWEST_IN_KERNELS", 16)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield import_module("races")


@GATE
def test_variants_of_a_gpu_are_right_in_the_interpreter(
    races: Any, tmp_path: Path, lower_for: Callable[[str], None]
) -> None:
    lower_for("gpu")
    import_module("device").main(["--small", "--variants", str(tmp_path), "--output", str(tmp_path / "printed.md")])
    results = json.loads((tmp_path / "variants.json").read_text())
    assert [*results] == [*races.plan_of({}, is_small=True).races]
    for name, rivals in results.items():
        ours = rivals["dmljax"]
        assert not ours["remark"], name
        assert ours["clock"] > 0
        remarks = {rival: result["remark"] for rival, result in rivals.items() if result["remark"]}
        lacking = ("cuDNN", "Mosaic GPU", "JAX's kernel for decoding")
        assert all(rival.startswith(lacking) for rival in remarks), (name, remarks)
        right = [rival for rival, result in rivals.items() if result["error"] is not None and rival != "torch"]
        assert len(right) > 2, name
    text = (tmp_path / "variants.md").read_text()
    assert text.count("The fastest: ") == len(results)
    assert "| rival | kernels, us | clock, us | x dmljax's | x PyTorch's | error | remark |" in text
    numbers = (tmp_path / "numbers.md").read_text()
    assert numbers.startswith("0 of 4,096 quotients are not rounded to nearest.")
    assert "conversions differ from the CPU's." in numbers
    assert (tmp_path / "operators.md").read_text().startswith("Of 3 operators, 3 give the CPU's results")


@GATE
def test_a_wrong_variant_is_found(races: Any) -> None:
    variant: Any = import_module("variant")
    race = races.plan_of({}, is_small=True).races["gemm 64, bfloat16"]
    wrong = {"transposed": variant.Variant(lambda a, b: a.T @ b), "narrow": variant.Variant(lambda a, b: (a @ b)[:1])}
    plan = races.plan_of({}, is_small=True)
    found = races.run(replace(race, variants=lambda _: wrong), jax.devices()[0], plan, math.inf)
    assert {name: found[name].remark for name in ("dmljax", *wrong)} == {
        "dmljax": "",
        "transposed": "wrong",
        "narrow": "wrong",
    }
    assert races.best(found) in ("The fastest: dmljax.", "The fastest: jax.numpy.")
    assert races.run(race, jax.devices()[0], plan, -math.inf)["no Triton"] is None


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
