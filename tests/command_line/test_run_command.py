"""ONNX models on the command line, and the nodes that the DirectML provider would leave to the CPU."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import FLOAT, INT64, model, small_network, value

import dmljax
from dmljax.command_line.cli import main
from dmljax.command_line.onnx.provider import KERNELS
from dmljax.command_line.onnx.timing import greatest_difference
from dmljax.onnx.handlers.registry import REGISTRY


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "network.onnx"
    path.write_bytes(small_network().SerializeToString())
    return str(path)


def test_a_model_runs_with_random_inputs(path: str, capsys: Any) -> None:
    assert main(["run", path, "--compare", "onnxruntime"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Running on 'cpu'"
    assert lines[1] == f"{path}: Model(9 nodes, 3 weights; x: float32[n, 3, 4, 4] -> y: tensor[?])"
    assert re.fullmatch(r"\d+\.\d\d s to load, \d+\.\d\d s to compile, \d+\.\d{3} ms for a call", lines[2])
    assert re.fullmatch(r"y: float32\[1,5\] (-?[\d.]+(, )?){5}", lines[3])
    assert re.fullmatch(r"onnxruntime takes \d+\.\d{3} ms, and differs by at most:", lines[4])
    assert float(lines[5].removeprefix("y: ")) < 1e-4


def test_inputs_come_from_files_and_shapes(path: str, tmp_path: Path, capsys: Any) -> None:
    x = np.arange(96, dtype="float32").reshape(2, 3, 4, 4)
    np.save(tmp_path / "x.npy", x)
    assert main(["run", path, "--input", f"x={tmp_path}/x.npy", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    expected = np.asarray(dmljax.onnx.load(path)(x))
    np.testing.assert_allclose(printed["outputs"]["y"]["values"], expected, rtol=1e-6)
    assert main(["run", path, "--shape", "x=7,3,4,4"]) == 0
    assert "y: float32[7,5] " in capsys.readouterr().out


def run_model(arguments: list[str], capsys: Any) -> Any:
    """The line that a model prints of its output y."""
    assert main(["run", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["outputs"]["y"]["values"]


def test_one_file_may_hold_all_inputs(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "sub.onnx"
    node = helper.make_node("Sub", ["a", "b"], ["y"])
    path.write_bytes(model([node], [value("a", FLOAT, [2]), value("b", FLOAT, [2])], ["y"]).SerializeToString())
    np.savez(tmp_path / "both.npz", a=np.array([5, 7], "float32"), b=np.array([1, 2], "float32"))
    np.savez(tmp_path / "other.npz", first=np.array([4, 4], "float32"))
    assert run_model([str(path), "--input", f"{tmp_path}/both.npz"], capsys) == [4, 5]
    assert run_model(
        [str(path), *("--input", f"{tmp_path}/both.npz"), *("--input", f"b={tmp_path}/other.npz")], capsys
    ) == [1, 3]
    assert main(["run", str(path), "--input", f"a={tmp_path}/both.npz", "--input", f"b={tmp_path}/both.npz"]) == 0


IMAGE = np.arange(24, dtype="uint8").reshape(2, 4, 3)


@pytest.mark.parametrize(
    ("element_type", "sizes", "expected"),
    [
        (FLOAT, ["n", 3, "h", "w"], IMAGE.transpose(2, 0, 1)[None] / np.float32(255)),
        (FLOAT, [1, 2, 4, 3], IMAGE[None] / np.float32(255)),
        (TensorProto.UINT8, [None, None, 3], IMAGE),
        (TensorProto.UINT8, [1, 3, 1, 2], None),  # scaled
    ],
)
def test_an_image_takes_the_channel_order_of_the_input(
    element_type: int, sizes: Any, expected: Any, tmp_path: Path, capsys: Any
) -> None:
    pytest.importorskip("PIL.Image").fromarray(IMAGE).save(tmp_path / "image.png")
    path = tmp_path / "same.onnx"
    proto = model([helper.make_node("Identity", ["x"], ["y"])], [value("x", element_type, sizes)], ["y"])
    path.write_bytes(proto.SerializeToString())
    pixels = np.asarray(run_model([str(path), "--input", f"x={tmp_path}/image.png"], capsys))
    if expected is None:
        assert pixels.shape == (1, 3, 1, 2)
    else:
        np.testing.assert_array_equal(pixels.astype("float32"), expected)


def test_only_image_inputs_take_images(path: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "image.png").write_bytes(b"none")
    assert main(["run", path, "--input", f"x={tmp_path}/image.png"]) == 2
    assert "error: image.png must be an image; got cannot identify image file" in capsys.readouterr().err
    tokens = tmp_path / "tokens.onnx"
    proto = model([helper.make_node("Identity", ["x"], ["y"])], [value("x", INT64, [1, 3, 4, 4])], ["y"])
    tokens.write_bytes(proto.SerializeToString())
    assert main(["run", str(tokens), "--input", f"x={tmp_path}/image.png"]) == 2
    assert "must have 1, 3 or 4 channels, first or last, of floats or uint8" in capsys.readouterr().err


def test_sizes_are_given_as_dxdispatch_takes_them(path: str, capsys: Any) -> None:
    for options, expected in (
        (["-f", "n:3"], "[3,5]"),
        (["-f", "n:3", "-b", "x:2,3,4,4", "-b", "y:2,5"], "[2,5]"),
        (["-F", "DATA_BATCH:3"], "[1,5]"),  # which the model does not have
    ):
        assert main(["run", path, *options]) == 0
        assert f"y: float32{expected} " in capsys.readouterr().out


def test_an_input_with_a_default_may_be_set(tmp_path: Path, capsys: Any) -> None:
    inputs = [value("x", FLOAT, [2]), value("w", FLOAT, [2])]
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], inputs, ["y"], {"w": np.zeros(2, "float32")})
    path = tmp_path / "product.onnx"
    path.write_bytes(proto.SerializeToString())
    for name, array in (("x", [2, 3]), ("w", [5, 7])):
        np.save(tmp_path / f"{name}.npy", np.array(array, "float32"))
    for names, expected in (("x", [0, 0]), ("xw", [10, 21])):
        options = [text for name in names for text in ("--input", f"{name}={tmp_path}/{name}.npy")]
        assert main(["run", str(path), "--compare", "onnxruntime", "--json", *options]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["outputs"]["y"]["values"] == expected
        assert report["differences"] == {"y": 0}


WRONG = {
    ("--input", "x"): "error: input must be NAME=FILE, or an .npz file; got x",
    ("--input", "z=a.npy"): "error: input.z must name one of the inputs x; got z",
    ("--input", "x=none.npy"): "error: none.npy: no such file",
    ("--input", "x=none.png"): "error: none.png: no such file",
    ("--shape", "x"): "argument --shape: must be NAME=1,3,224,224; got 'x'",
    ("--shape", "x=1,a"): "argument --shape: must be a whole number in [0, 4294967295]; got 'a'",
    ("--shape", "x=2,3"): "onnx: x must have 4 dimensions; got (2, 3)",
    ("--emit", "hlo"): "--emit is only for DxDispatch models",
    ("--fuse",): "--fuse is only for DxDispatch models",
}


@pytest.mark.parametrize("options", WRONG, ids=" ".join)
def test_wrong_options_are_refused(options: tuple[str, ...], path: str, capsys: Any) -> None:
    with contextlib.suppress(SystemExit):
        assert main(["run", path, *options]) == 2
    assert WRONG[options] in capsys.readouterr().err


def test_check_reports_what_is_missing_and_what_falls_back_to_the_cpu(tmp_path: Path, capsys: Any) -> None:
    nodes = [
        helper.make_node("Wobble", ["x"], ["a"], name="first"),
        helper.make_node("CumProd", ["a", "a"], ["b"], name="second"),
        helper.make_node("ScatterElements", ["b", "i", "b"], ["y"], name="third", reduction="add"),
    ]
    path = tmp_path / "model.onnx"
    inputs = [value("x", FLOAT, [2, 2]), value("i", INT64, [2, 2])]
    path.write_bytes(model(nodes, inputs, ["y"]).SerializeToString())
    assert main(["check", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "Wobble of ai.onnx 21, at 'first'" in lines[0]
    assert lines[-3:] == [
        f"{path}: CumProd 'second' is left to the CPU: it has no kernel for the operator",
        f"{path}: ScatterElements 'third' is left to the CPU: its kernel is not for this reduction",
        f"{path}: 1 finding, 3 nodes that ONNX Runtime's DirectML provider leaves to the CPU",
    ]


def test_the_provider_normalizes_rows_unless_their_statistics_are_wanted(tmp_path: Path, capsys: Any) -> None:
    nodes = [
        helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["a"], name="first"),
        *(
            helper.make_node("SkipSimplifiedLayerNormalization", ["x", "a", "g"], outputs, name, domain="com.microsoft")
            for name, outputs in (("second", ["y", "", "", "sum"]), ("third", ["z", "", "deviation"]))
        ),
    ]
    inputs, path = [value("x", FLOAT, [2, 3, 4]), value("g", FLOAT, [4])], tmp_path / "model.onnx"
    path.write_bytes(model(nodes, inputs, ["y"], domains={"com.microsoft": 1}).SerializeToString())
    assert main(["check", str(path)]) == 0
    finding = (
        "SkipSimplifiedLayerNormalization 'third' is left to the CPU: its kernel is not for this number of outputs"
    )
    assert capsys.readouterr().out.splitlines()[:-1] == [f"{path}: {finding}"]


def test_a_valid_model_has_no_findings(path: str, capsys: Any) -> None:
    assert main(["check", path]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: no findings, no nodes that ONNX Runtime's")


def test_every_operator_of_the_provider_has_a_handler() -> None:
    assert len(KERNELS) == 164
    assert [operator for operator in KERNELS if ("", operator) not in REGISTRY.handlers] == []


def test_the_greatest_difference_detects_shapes_and_nan() -> None:
    nan, inf = np.nan, np.inf
    assert greatest_difference([1, nan, inf], [2, nan, inf]) == 1
    for result, other in (([1], [1, 1]), ([nan], [1]), ([inf], [-inf])):
        assert greatest_difference(result, other) == inf
