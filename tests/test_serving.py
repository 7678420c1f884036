"""Programs run where dmljax is not installed: the page's code prints what it says, and `dmljax compile` works."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import X64
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
from models import MODELS

import dmljax
from dmljax.cli import main
from dmljax.lowerings import byte_products

parser = pytest.importorskip("onnx.parser", reason="the extra `onnx` is not installed")

PAGE = MODELS.parent / "serving.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
WITHOUT = "import sys; sys.modules['dmljax'] = None\n"


def said(block: str) -> list[str]:
    return [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]


def printed_without_dmljax(code: str, folder: Path) -> list[str]:
    command = [sys.executable, "-c", WITHOUT + code]
    environment = os.environ | {"JAX_ENABLE_X64": str(int(X64))}
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def test_the_code_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notebooks").symlink_to(MODELS.parent)
    names: dict[str, object] = {}
    for block in (BLOCKS[0], BLOCKS[2]):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(block, names)
        assert output.getvalue().splitlines() == said(block)
    assert printed_without_dmljax(BLOCKS[1], tmp_path) == said(BLOCKS[1])


def test_a_compiled_model_runs_without_dmljax(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "gpt.bin")
    assert main(["compile", str(MODELS / "gpt.onnx"), "--for", "cpu", "--for", "h100", "-o", path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["platforms"] == ["cpu", "cuda"]
    assert told["inputs"] == [f"int{64 if X64 else 32}[batch,length]"]
    code = "import jax; f = jax.export.deserialize(open('gpt.bin', 'rb').read()); print(f.call([[1, 2, 3]]).shape)"
    code = code.replace("[[1, 2, 3]]", "jax.numpy.ones((2, 3), int)")
    assert printed_without_dmljax(code, tmp_path) == ["(2, 3, 10)"]


DIVIDED = """
import jax, numpy as np
from jax.sharding import AxisType
jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
served = jax.export.deserialize(open("divided.bin", "rb").read())
shardings = served.in_shardings_jax(mesh)
weights = np.load("weights.npz")
placed = [jax.device_put(one, to) for one, to in zip([*(weights[n] for n in sorted(weights)), TOKENS], shardings)]
arguments = jax.tree.unflatten(served.in_tree, placed)
result = jax.jit(served.call)(*arguments[0])
parts = {name: one.sharding.shard_shape(one.shape) for name, one in arguments[0][0].items()}
print(len(result.sharding.device_set), min(np.prod(parts[n]) / weights[n].size for n in parts))
np.save("result.npy", result)
"""


def test_a_divided_model_runs_on_eight_devices_without_dmljax(tmp_path: Path) -> None:
    model = dmljax.onnx.load(MODELS / "gpt.onnx")
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    specs = model.partition(mesh)

    def on_mesh(one: Any, spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=NamedSharding(mesh, spec))

    weights = {name: on_mesh(one, specs[name]) for name, one in model.weights.items()}
    tokens = np.arange(32).reshape(4, 8) % 10
    tokens = tokens.astype(jax.dtypes.canonicalize_dtype(np.int64))
    served = jax.export.export(jax.jit(model.apply))(weights, on_mesh(tokens, P("data")))
    (tmp_path / "divided.bin").write_bytes(served.serialize())
    arrays: dict[str, Any] = {name: np.asarray(one) for name, one in model.weights.items()}
    np.savez(tmp_path / "weights.npz", **arrays)
    code = DIVIDED.replace("TOKENS", f"np.arange(32).reshape(4, 8).astype({tokens.dtype.name!r}) % 10")
    assert printed_without_dmljax(code, tmp_path) == ["8 0.25"]
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), model(tokens), rtol=1e-4, atol=1e-5)


QUANTIZED = """<ir_version: 10, opset_import: ["": 21]> f (float[N, 4] x) => (float[N, 3] y)
<int8[4, 3] w = {1, -2, 3, 127, 5, -128, 7, 8, 9, -10, 11, 12}, float scale = {0.25}> {
    q, s, z = DynamicQuantizeLinear(x)
    p = MatMulInteger(q, w, z)
    sums = Cast<to = 1>(p)
    both = Mul(s, scale)
    y = Mul(sums, both)
}"""


def test_a_quantized_model_runs_without_dmljax(tmp_path: Path) -> None:
    model = dmljax.onnx.load(parser.parse_model(QUANTIZED))
    x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
    (size,) = jax.export.symbolic_shape("n")
    served = jax.export.export(jax.jit(model), platforms=["cpu", "cuda", "tpu"])(
        jax.ShapeDtypeStruct((size, 4), np.float32)
    )
    (tmp_path / "quantized.bin").write_bytes(served.serialize())
    np.save(tmp_path / "x.npy", x)
    code = """
import jax, numpy as np
print(jax.export.deserialize(open("quantized.bin", "rb").read()).call(np.load("x.npy")).tolist())
"""
    assert json.loads(printed_without_dmljax(code, tmp_path)[0]) == model(x).tolist()


def test_what_cannot_be_compiled_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "file.bin")
    for model, target, message in (
        ("gemm.bin", "h100:8", "target must be one of cpu, h100, "),
        ("top1_routing.json", "cpu", "must have one dispatchable; got 3"),
    ):
        assert main(["compile", str(MODELS / model), "--for", target, "-o", path]) == 2
        assert message in capsys.readouterr().err
    assert main(["compile", str(MODELS / "gemm.bin"), "--for", "cpu", "-o", str(tmp_path)]) == 2
    assert "error: compile: cannot write " in capsys.readouterr().err


def test_the_processor_that_exports_decides_nothing_for_other_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.arange(48, dtype=np.uint8).reshape(6, 8), np.arange(-28, 28, dtype=np.int8).reshape(8, 7)

    def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
        return dmljax.matrix_multiply_integer(a, b, np.uint8(3))

    texts = set()
    for is_fast in (True, False):
        monkeypatch.setattr(byte_products, "are_fast", lambda is_fast=is_fast: is_fast)
        jax.clear_caches()
        for platform in ("cuda", "tpu"):
            texts.add((platform, jax.export.export(jax.jit(multiply), platforms=[platform])(a, b).mlir_module()))
        artifact = jax.export.export(jax.jit(multiply), platforms=["cpu"])(a, b)
        result = jax.export.deserialize(artifact.serialize()).call(a, b)
        np.testing.assert_array_equal(result, (a.astype(np.int32) - 3) @ b.astype(np.int32))
    jax.clear_caches()
    assert len(texts) == 2
