"""Programs run where dmljax is not installed: the page's code prints what it says, and `dmljax compile` works."""

import contextlib
import hashlib
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
from helpers import GATE, X64
from models import GPT, MODELS

import dmljax
from dmljax import directml
from dmljax.command_line.cli import main
from dmljax.estimation import artifacts
from dmljax.foundation.extras import command_for

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


@GATE
def test_the_code_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notebooks").symlink_to(GPT.parents[1])
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(BLOCKS[0], {})
    assert output.getvalue().splitlines() == said(BLOCKS[0])
    assert printed_without_dmljax(BLOCKS[1], tmp_path) == said(BLOCKS[1])


@GATE
def test_a_compiled_model_runs_without_dmljax(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "gpt.stablehlo")
    assert main(["compile", str(GPT), "--for", "cpu", "--for", "h100", "-o", path, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["platforms"] == ["cpu", "cuda"]
    assert report["inputs"] == [f"int{64 if X64 else 32}[batch,length]"]
    code = (
        "import jax; f = jax.export.deserialize(open('gpt.stablehlo', 'rb').read()); print(f.call([[1, 2, 3]]).shape)"
    )
    code = code.replace("[[1, 2, 3]]", "jax.numpy.ones((2, 3), int)")
    assert printed_without_dmljax(code, tmp_path) == ["(2, 3, 10)"]


def test_the_extra_that_writes_programs_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(artifacts, "find_spec", lambda name: None)
    assert main(["compile", str(MODELS / "gemm.bin"), "--for", "cpu", "-o", "gemm.stablehlo"]) == 2
    message = "what jax.export writes files with is not installed: no flatbuffers"
    assert capsys.readouterr().err == f"error: {message}\ntip: {command_for('export')}\n"


ADDED = """<ir_version: 10, opset_import: ["": 21]> f (float[n, height] x, float[n, width] z) => (float[n, height] y)
{ y = Add (x, z) }"""


def test_sizes_that_must_be_known_are_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.onnx").write_bytes(parser.parse_model(ADDED).SerializeToString())
    command = ["compile", str(tmp_path / "model.onnx"), "--for", "cpu", "-o", str(tmp_path / "model.stablehlo")]
    assert main(command) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "tip: -f height:SIZE -f width:SIZE"
    assert main([*command, "-f", "height:4", "-f", "width:4"]) == 0


def test_an_artifact_stores_the_results_that_depend_only_on_weights(tmp_path: Path) -> None:
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> f (float[N, 2] x) => (float[N, 2] y)
        <float[2, 2] w = {1, 2, 3, 4}> { square = MatMul(w, w) y = MatMul(x, square) }"""
    )
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    path = tmp_path / "model.stablehlo"
    assert main(["compile", str(tmp_path / "model.onnx"), "--for", "cpu", "-o", str(path)]) == 0
    artifact = jax.export.deserialize(bytearray(path.read_bytes()))
    assert artifact.mlir_module().count("stablehlo.dot_general") == 1


HALVED = """<ir_version: 10, opset_import: ["": 21]> f (float[1, 1, height, width] x) => (float[1, 1, h, w] y)
<float[4] scales = {1, 1, 2, 2}> {
    half = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
    whole = Resize <mode = "nearest"> (half, , scales)
    y = Add (x, whole)
}"""


@GATE
def test_open_sizes_may_be_multiples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.onnx").write_bytes(parser.parse_model(HALVED).SerializeToString())
    path = tmp_path / "model.stablehlo"
    command = ["compile", str(tmp_path / "model.onnx"), "--for", "cpu", "-o", str(path)]
    assert main(command) == 2
    remedy = re.search(r"dmljax compile takes (-f height:2\*height) (-f width:2\*width)\)?$", capsys.readouterr().err)
    assert remedy is not None
    assert main([*command, *remedy[1].split(), "-f", "width:6*w", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == ["float32[1,1,2*height,6*w]"]
    artifact = jax.export.deserialize(bytearray(path.read_bytes()))
    assert artifact.call(jax.numpy.ones((1, 1, 4, 12), "float32")).tolist() == [[[[2] * 12] * 4]]
    assert main(["compile", str(MODELS / "top1_routing.json"), "--for", "cpu", "-o", "x", "-f", "n:2*n"]) == 2
    assert "error: compile: 2*n is only for ONNX models; got " in capsys.readouterr().err


ON_EIGHT_DEVICES = 'import jax; jax.config.update("jax_num_cpu_devices", 8)\n'
SAVED = """
print(min(one.addressable_data(0).size / one.size for one in weights.values()))
np.save("logits.npy", logits)
"""


@GATE
def test_a_divided_model_runs_on_eight_devices_without_dmljax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notebooks").symlink_to(GPT.parents[1])
    compile_divided(tmp_path)
    printed = printed_without_dmljax(ON_EIGHT_DEVICES + BLOCKS[2] + SAVED, tmp_path)
    assert printed == [*said(BLOCKS[2]), "0.25"]
    expected = dmljax.onnx.load(GPT)(np.ones((4, 8), "int64"))
    np.testing.assert_allclose(np.load("logits.npy"), expected, rtol=1e-4, atol=1e-5)


def test_several_chips_share_batches_and_take_the_weights_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> f (bfloat16[N, 2] x) => (bfloat16[N, 2] y)
        <bfloat16[2, 2] file = {16256, 16384, 16448, 16512}> { y = MatMul(x, file) }"""
    )  # the bits of 1, 2, 3 and 4
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    path = str(tmp_path / "model.stablehlo")
    assert main(["compile", str(tmp_path / "model.onnx"), "--for", "h100:4", "-o", path, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["weights"], report["devices"], report["platforms"]) == (f"{path}.npz", 4, ["cuda"])
    assert (report["inputs"], report["outputs"]) == (["bfloat16[4*N,2]"], ["bfloat16[4*N,2]"])
    weight = np.load(f"{path}.npz")["file"]
    assert weight.view(jax.numpy.bfloat16).tolist() == [[1, 2], [3, 4]]


def compile_divided(folder: Path) -> None:
    """Runs the page's command in a folder, the current one; its weights are those whose SHA-256 the page has."""
    (command,) = re.findall(r"^\$ dmljax (compile .*)$", PAGE.read_text(), re.MULTILINE)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(command.split()) == 0
    (line,) = re.findall(r"^gpt8.stablehlo.npz: .*$", output.getvalue(), re.MULTILINE)
    assert line in PAGE.read_text().splitlines()


@GATE
def test_the_page_refuses_other_weights_without_dmljax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notebooks").symlink_to(GPT.parents[1])
    compile_divided(tmp_path)
    weights = dict(np.load("gpt8.stablehlo.npz"))
    np.savez("gpt8.stablehlo.npz", **{name: weight + 1 for name, weight in weights.items()})
    with pytest.raises(AssertionError, match=r"ValueError: gpt8\.stablehlo\.npz: not the artifact's weights"):
        printed_without_dmljax(ON_EIGHT_DEVICES + BLOCKS[2], tmp_path)


DIVIDED = """<ir_version: 10, opset_import: ["": 21]> f (float[N, 2] x) => (float[N, 2] y)
<float[2, 2] layer_weight = {1, 2, 3, 4}, bfloat16[2] scale = {16256, 16384}, float[2] shift = {1, 2}> {
    product = MatMul(x, layer_weight)
    shifted = Add(product, shift)
    s = Cast<to = 1>(scale)
    y = Mul(shifted, s)
}"""


@pytest.fixture
def divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The weights of an artifact for two devices, `model`, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(parser.parse_model(DIVIDED).SerializeToString())
    assert main(["compile", "model.onnx", "--for", "cpu:2", "-o", "model", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["weights_sha256"] == hashlib.sha256(Path("model.npz").read_bytes()).hexdigest()
    return dict(np.load("model.npz"))


def checked(weights: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The findings of `dmljax check` in other weights, also as JSON."""
    np.savez("other.npz", **weights)
    command = ["check", "model", "--weights", "other.npz"]
    assert main(command) == 1
    *lines, last = capsys.readouterr().out.splitlines()
    assert main([*command, "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert lines == [f"other.npz: {finding}" for finding in findings]
    assert last == f"other.npz: {len(lines)} finding{'s' * (len(lines) > 1)} as the weights of model"
    return list(findings)


def test_the_weights_of_an_artifact_are_accepted(divided: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "model", "--weights", "model.npz"]) == 0
    assert capsys.readouterr().out == "model.npz: no findings as the weights of model\n"
    first = Path("model.npz").read_bytes()
    assert main(["compile", "model.onnx", "--for", "cpu:2", "-o", "model"]) == 0
    assert Path("model.npz").read_bytes() == first


def test_weights_of_other_names_and_types_are_named(divided: Any, capsys: pytest.CaptureFixture[str]) -> None:
    renamed = {"layer.weight": divided["layer_weight"], "shift": divided["shift"].astype("float16")}
    assert checked(renamed, capsys) == [
        "weights.layer_weight: is missing, did you mean layer.weight?",
        "weights.scale: is missing",
        'weights["layer.weight"]: is no weight of the artifact, did you mean layer_weight?',
        "weights.shift must be float32[2]; got float16[2]",
    ]
    assert checked(divided | {"scale": divided["scale"][:1]}, capsys) == [
        "weights.scale must be bfloat16[2]; got void16[1]"
    ]


def test_weights_of_another_model_are_detected_by_their_checksum(
    divided: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = checked(divided | {"shift": divided["shift"] + 1}, capsys)
    digest = hashlib.sha256(Path("other.npz").read_bytes()).hexdigest()
    assert finding == f"these are not the weights that the artifact was compiled with; got SHA-256 {digest}"
    *_, finding = checked(divided | {"shift": divided["shift"] * np.float32("nan")}, capsys)
    assert finding == "weights.shift: has NaN in 2 of 2 elements"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ("model none.npz", "none.npz: no such file"),
        ("model cut.npz", "cut.npz must be a whole .npz file"),
        ("model.onnx model.npz", "model.onnx must be an artifact\n"),
        ("whole model.npz", "whole must be an artifact for several chips, because others include their weights"),
    ],
)
def test_files_other_than_artifacts_and_weights_are_refused(
    files: str, message: str, divided: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cut.npz").write_bytes(Path("model.npz").read_bytes()[:400])
    assert main(["compile", "model.onnx", "--for", "cpu", "-o", "whole"]) == 0
    artifact, weights = files.split()
    assert main(["check", artifact, "--weights", weights]) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


DAMAGED = """<ir_version: 10, opset_import: ["": 21]> f (float[N, 3] x) => (float[N, 3] y)
<float[3] good = {1, 2, 3}, float[3] bad = {0, 0, 0}, float[3] mask = {0, 0, 0}, float[3] overflown = {0, 0, 0}> {
    a = Add(x, good)
    b = Add(a, bad)
    c = Add(b, mask)
    y = Add(c, overflown)
}"""


@pytest.mark.parametrize("chips", ["cpu", "cpu:2"])
def test_compiling_and_checking_name_weights_with_nan_and_infinities(
    chips: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = dmljax.onnx.load(parser.parse_model(DAMAGED))
    infinity, nan = np.inf, np.nan
    bad = {"bad": [1, nan, nan], "mask": [0, -infinity, -infinity], "overflown": [infinity, 1, 2]}
    path = str(tmp_path / "model.onnx")
    model.save(path, model.weights | {name: np.array(values, np.float32) for name, values in bad.items()})
    assert main(["compile", path, "--for", chips, "-o", str(tmp_path / "model")]) == 0
    problems = ["weights.bad: has NaN in 2 of 3 elements", "weights.overflown: has infinity in 1 of 3 elements"]
    assert capsys.readouterr().err.splitlines() == [f"warning: {path}: {problem}" for problem in problems]
    assert main(["compile", path, "--for", chips, "-o", str(tmp_path / "model"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == problems
    assert main(["check", path, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"] == problems


def test_compiling_names_constants_of_graphs_with_nan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensor = directml.TensorDesc("FLOAT32", (1, 2))
    add = directml.ElementWiseAddDesc(a=tensor, b=tensor, output=tensor)
    bias = np.array([[1, np.nan]], np.float32)
    edges, outputs = {"add.a": "x", "add.b": "bias"}, {"y": "add.output"}
    graph = directml.Graph(
        nodes={"add": add}, edges=edges, inputs={"x": tensor}, outputs=outputs, constants={"bias": bias}
    )
    path = str(tmp_path / "graph.bin")
    dmljax.serialized.save(graph, path)
    assert main(["compile", path, "--for", "cpu", "-o", str(tmp_path / "graph")]) == 0
    assert capsys.readouterr().err == f"warning: {path}: weights.bias: has NaN in 1 of 2 elements\n"


QUANTIZED = """<ir_version: 10, opset_import: ["": 21]> f (float[N, 4] x) => (float[N, 3] y)
<int8[4, 3] w = {1, -2, 3, 127, 5, -128, 7, 8, 9, -10, 11, 12}, float scale = {0.25}> {
    q, s, z = DynamicQuantizeLinear(x)
    p = MatMulInteger(q, w, z)
    sums = Cast<to = 1>(p)
    both = Mul(s, scale)
    y = Mul(sums, both)
}"""


@GATE
def test_a_quantized_model_runs_without_dmljax(tmp_path: Path) -> None:
    model = dmljax.onnx.load(parser.parse_model(QUANTIZED))
    x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
    (size,) = jax.export.symbolic_shape("n")
    served = jax.export.export(jax.jit(model), platforms=["cpu", "cuda", "tpu"])(
        jax.ShapeDtypeStruct((size, 4), np.float32)
    )
    (tmp_path / "quantized.stablehlo").write_bytes(served.serialize())
    np.save(tmp_path / "x.npy", x)
    code = """
import jax, numpy as np
print(jax.export.deserialize(open("quantized.stablehlo", "rb").read()).call(np.load("x.npy")).tolist())
"""
    assert json.loads(printed_without_dmljax(code, tmp_path)[0]) == model(x).tolist()


REFUSED = [
    ("gemm.bin --for h1000", "unknown chip 'h1000', did you mean h100\\?\ntip: choose cpu, h100, "),
    ("gemm.bin --for cpu:4x4", "target must be written like cpu:4; got 'cpu:4x4'"),
    ("gpt.onnx --for h100:8 --for v5e", "target must have the same number of chips as the others; got h100:8 and v5e"),
    ("gpt.onnx --for v5e --mesh data=2", "compile: mesh must have as many chips as v5e, 1; got 2"),
    ("gpt.onnx --for cpu:2 --batch 3", r"compile: inputs\[0\]: first dimension must be divisible by 2 devices"),
    ("gemm.bin --for h100:8", "compile: several chips are only for ONNX models; got "),
    ("top1_routing.json --for cpu", "compile: .* must have exactly one dispatchable; got 3"),
    ("gemm.bin --for cpu -o .", r"output must be a file, not a folder; got \."),
    ("gemm.bin --for cpu -o a/b", r"output must be a file in a folder that exists; got a/b"),
    ("gemm.bin --for cpu -o /dev/full", "compile: output: cannot write /dev/full: "),
    ("gpt.onnx --for cpu:2 -o /dev/full", "compile: output: cannot write /dev/full: "),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[arguments for arguments, _ in REFUSED])
@pytest.mark.gate(but=3)
def test_a_model_that_cannot_be_compiled_gives_a_one_line_error(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, *options = arguments.split()
    path = GPT if model == GPT.name else MODELS / model
    assert main(["compile", str(path), "-o", "file.stablehlo", *options]) == 2
    assert re.search(f"^error: {message}", capsys.readouterr().err, re.MULTILINE)
    assert not [*tmp_path.iterdir()]


def test_weights_that_an_artifact_cannot_hold_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(artifacts, "MAX_BYTES", 1000)
    path = str(tmp_path / "gpt.stablehlo")
    assert main(["compile", str(GPT), "--for", "cpu", "-o", path]) == 2
    error, tip = capsys.readouterr().err.splitlines()[-2:]
    assert error.startswith("error: compile: weights in a file must take at most 1000 bytes; got ")
    assert tip == "tip: compile for several chips, or export model.apply, which takes the weights as an argument"
