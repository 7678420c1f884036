"""Running models: buffers of bytes, commands in order, and files only in the output folder."""

import os
import resource
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import SAMPLED, assert_same_bits, needs_x32, needs_x64
from models import MODELS, dispatch, hardmax, listed, load_model, run, tensor, write_file, write_model, zeros

from dmljax.command_line.cli import main
from dmljax.directml import OPERATORS
from dmljax.dxdispatch.execution import Dispatched, Execution, Printed, Repetition, Written
from dmljax.dxdispatch.model import DispatchModel, InvalidModel
from dmljax.dxdispatch.printing import print_pieces
from dmljax.dxdispatch.reading.reader import load
from dmljax.examples import examples_of

IDENTITY_1 = {  # adds nothing, and fills the diagonal with ones
    "type": "DIAGONAL_MATRIX1",
    "InputTensor": tensor("FLOAT32", 2, 2),
    "OutputTensor": tensor("FLOAT32", 2, 2),
    "ValueDataType": "FLOAT32",
    "Value": 1,
    "DiagonalFillBegin": 0,
    "DiagonalFillEnd": 1,
}


@SAMPLED
@pytest.mark.parametrize(
    "name", ["activation_hardmax", "diagonal_matrix1", "gather_nd1", "nonzero_coordinates", "one_hot"]
)
def test_models_reproduce_the_pages_examples(name: str) -> None:
    model = load(MODELS / f"{name}.json")
    execution = Execution(model)
    results = [execution.result(index) for index in range(len(model.commands))]
    printed_values = [result.values for result in results if isinstance(result, Printed)]
    examples = examples_of(OPERATORS[f"DML_OPERATOR_{name.upper()}"])
    assert [part.desc for part in model.dispatchables.values()] == [example.desc for example in examples]
    expected = [array.ravel() for example in examples for array in example.arrays(of_inputs=False).values()]
    for result, other in zip(printed_values, expected, strict=True):
        assert_same_bits(result, other)


def test_operators_run_in_sequence(tmp_path: Path) -> None:
    execution = run(load(MODELS / "top1_routing.json"))
    assert execution.values("count").tolist() == [4]
    assert execution.values("pairs")[:8].tolist() == [0, 1, 1, 0, 2, 1, 3, 3]
    weights = execution.values("weights").reshape(4, 3)
    assert_same_bits(execution.values("routed").reshape(4, 3), weights[[1, 0, 1, 3]])


def test_a_partial_write_leaves_the_rest_untouched(tmp_path: Path) -> None:
    strided = hardmax(2, 2, output={"Strides": [4, 2]})
    resources = {"in": listed("FLOAT32", [1, 2, 2, 1]), "out": listed("FLOAT32", [9] * 9 + [7])}
    binding = {"name": "out", "elementOffset": 1}
    model = load_model(tmp_path, resources, {"max": strided}, [dispatch("max", InputTensor="in", OutputTensor=binding)])
    assert run(model).values("out").tolist() == [9, 0, 9, 1, 9, 1, 9, 0, 9, 7]


def test_a_buffer_has_views_of_several_types(tmp_path: Path) -> None:
    """Uses the bits of 0.0 and 1.0 as indices, and reads the result as bytes."""
    gather = {
        "type": "GATHER_ND1",
        "InputTensor": tensor("UINT8", 4, Strides=[1]),
        "IndicesTensor": tensor("INT32", 1),
        "OutputTensor": tensor("UINT8", 1),
        "InputDimensionCount": 1,
        "IndicesDimensionCount": 1,
        "BatchDimensionCount": 0,
    }
    resources = {"x": listed("FLOAT32", [1.0, 0.0]), "out": zeros("UINT8", 4)}
    index = {"name": "x", "elementOffset": 1}
    commands = [dispatch("get", InputTensor="x", IndicesTensor=index, OutputTensor="out")]
    execution = run(load_model(tmp_path, resources, {"get": gather}, commands))
    assert execution.values("out").tolist() == [0, 0, 0, 0]
    execution.buffers["x"][4:8] = np.frombuffer(np.int32(3).tobytes(), np.uint8)
    execution.result(0)
    assert execution.values("out").tolist() == [0x3F, 0, 0, 0]  # the last byte of 1.0


def test_an_operator_may_write_where_it_reads(tmp_path: Path) -> None:
    resources = {"x": listed("FLOAT32", [5, 6, 7, 8])}
    in_place = dispatch("eye", InputTensor="x", OutputTensor="x")
    assert run(load_model(tmp_path, resources, {"eye": IDENTITY_1}, [in_place])).values("x").tolist() == [1, 6, 7, 1]
    transposed = IDENTITY_1 | {"OutputTensor": tensor("FLOAT32", 2, 2, Strides=[1, 2])}
    model = load_model(tmp_path, resources, {"eye": transposed}, [in_place])
    assert run(model).values("x").tolist() == [1, 7, 6, 1]
    again = Execution(model)  # each iteration and each run continues with the values that the last one left
    again.result(0, Repetition(iterations=2, runs=2))
    assert again.values("x").tolist() == [1, 6, 7, 1]


def test_buffers_keep_what_commands_leave_and_models_do_not(tmp_path: Path) -> None:
    model = load(MODELS / "top1_routing.json")
    run(model)
    assert Execution(model).values("choices").tolist() == [0] * 16


def test_owned_tensors_keep_their_initial_values(tmp_path: Path) -> None:
    owned = tensor("FLOAT32", 2, 2, Flags="OWNED_BY_DML")
    eye = IDENTITY_1 | {"InputTensor": owned, "bindings": {"InputTensor": "x"}}
    resources = {"x": listed("FLOAT32", [5, 6, 7, 8]), "out": zeros("FLOAT32", 4)}
    commands = [dispatch("max", InputTensor="out", OutputTensor="x"), dispatch("eye", OutputTensor="out")]
    execution = run(load_model(tmp_path, resources, {"eye": eye, "max": hardmax(2, 2)}, commands))
    assert execution.values("x").tolist() == [1, 0, 1, 0]
    assert execution.values("out").tolist() == [1, 6, 7, 1]


def test_an_optional_tensor_may_be_absent(tmp_path: Path) -> None:
    without = IDENTITY_1 | {"InputTensor": None}
    model = load_model(
        tmp_path, {"x": listed("FLOAT32", [9] * 4)}, {"eye": without}, [dispatch("eye", OutputTensor="x")]
    )
    assert run(model).values("x").tolist() == [1, 0, 0, 1]


def test_a_dispatch_repeats_as_requested(tmp_path: Path) -> None:
    execution = Execution(load(MODELS / "activation_hardmax.json"))

    def iterations(**how: Any) -> int:
        result = execution.result(0, Repetition(**how))
        assert isinstance(result, Dispatched)
        assert all(sample > 0 for sample in result.milliseconds)
        return len(result.milliseconds)

    assert iterations() == 1
    assert iterations(iterations=7, runs=3) == 7
    assert 2 <= iterations(iterations=2**32 - 1, milliseconds=50) < 2**20
    assert iterations(iterations=2**32 - 1, milliseconds=0) == 1
    assert 1 <= iterations(iterations=2**32 - 1, milliseconds=90, interval_in_milliseconds=30) <= 4


def test_compilation_is_not_timed_as_part_of_a_dispatch(tmp_path: Path) -> None:
    execution = Execution(load(MODELS / "nonzero_coordinates.json"))
    compiled = execution.compile("nonzero_coordinates")
    assert execution.compile("nonzero_coordinates") is compiled
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", None)  # nothing more is compiled
        execution.result(0)


def largest_of_three(folder: Path, data_type: str, index_type: str, values: list[int]) -> DispatchModel:
    largest: dict[str, Any] = {
        "type": "ARGMAX",
        "InputTensor": tensor(data_type, 3),
        "OutputTensor": tensor(index_type, 1),
    }
    largest |= {"Axes": [0], "AxisDirection": "INCREASING"}
    resources = {"x": listed(data_type, values), "out": zeros(index_type, 1)}
    return load_model(folder, resources, {"top": largest}, [dispatch("top", InputTensor="x", OutputTensor="out")])


@needs_x32
def test_a_64_bit_model_says_which_switch_it_needs(tmp_path: Path) -> None:
    model = largest_of_three(tmp_path, "FLOAT32", "INT64", [1, 3, 2])
    with pytest.raises(InvalidModel, match=r":\d+: dispatchables.top.OutputTensor.DataType must be .* --x64 .*INT64"):
        Execution(model)


@needs_x64
def test_a_64_bit_model_runs(tmp_path: Path) -> None:
    model = largest_of_three(tmp_path, "INT64", "UINT64", [1, 2**62 + 1, 2**62])
    assert run(model).values("out").tolist() == [1]


# Printing


def printed(name: str, values: Any, *, verbose: bool) -> str:
    return "".join(print_pieces(name, values, verbose=verbose))


@pytest.mark.parametrize(
    ("values", "plain"),
    [
        (np.array([1, 0.1, 1e6, 1e5, 123456.5, 1e-5, -0.0], "float32"), "1, 0.1, 1e+06, 100000, 123456, 1e-05, -0"),
        (np.array([np.nan, np.inf, -np.inf], "float32"), "nan, inf, -inf"),
        (np.array([1e-45, 3.4028235e38], "float32"), "1.4013e-45, 3.40282e+38"),
        (np.array([0.1, 65504, 6e-8], "float16"), "0.0999756, 65504, 5.96046e-08"),
        (np.array([0.1, 1 / 3, 1e300], "float64"), "0.1, 0.333333, 1e+300"),
        (np.array([-(2**63), 2**63 - 1], "int64"), "-9223372036854775808, 9223372036854775807"),
        (np.array([0, 2**32 - 1], "uint32"), "0, 4294967295"),
        (np.array([-7, 300], "int16"), "-7, 300"),
        (np.array([72, 105], "uint8"), "H, i"),
        (np.array([33, 10, 0], "int8"), "!, \n, \0"),
        (np.array([200], "uint8"), "\udcc8"),
    ],
)
def test_values_are_printed_as_cpp_streams_print_them(values: Any, plain: str) -> None:
    assert printed("x", values, verbose=False) == f"Resource 'x': {plain}"


def test_verbose_values_have_indices_and_bits() -> None:
    values = np.array([0, 1, -1, 2, 3, 4, 5, 6, 7, 8, 9], "float32")
    lines = printed("x", values, verbose=True).split("\n")
    assert lines[:4] == ["Resource 'x':", "[ 0] 0 (0x       0)", "[ 1] 1 (0x3F800000)", "[ 2] -1 (0xBF800000)"]
    assert lines[11:] == ["[10] 9 (0x41100000)", ""]
    many = np.arange(100_000, dtype="uint32")
    assert printed("x", many, verbose=False) == "Resource 'x': " + ", ".join(map(str, range(100_000)))
    assert printed("x", many, verbose=True).endswith("\n[ 99999] 99999 (0x   1869F)\n")
    assert printed("\x1b[31m", many[:1], verbose=False) == "Resource '\\u001b[31m': 0"
    assert printed("x", np.array([-1, 1], "int16"), verbose=True) == "Resource 'x':\n[0] -1 (0xFFFF)\n[1] 1 (0x   1)\n"


def test_a_resource_is_shown_without_its_padding(tmp_path: Path) -> None:
    resources = {
        "five": listed("FLOAT16", [1, 2, 3, 4, 5]),
        "room": listed("FLOAT32", [1, 2], sizeInBytes=64),
        "later": listed("FLOAT32", [1, 2], sizeInBytes=64, initialValuesOffsetInBytes=8),
    }
    execution = Execution(load_model(tmp_path, resources))
    assert [execution.values(name).tolist() for name in resources] == [[1, 2, 3, 4, 5], [1, 2], [0, 0, 1, 2]]


# Files


def test_files_are_written_into_the_folder_that_is_named(tmp_path: Path) -> None:
    resources = {"x": listed("FLOAT16", [1, 2, 3, 4, 5])}
    commands = [
        write_file("x.npy", dimensions=[5, 1]),
        write_file("deep\\er/flat.NPY"),
        write_file("x.dat"),
        write_file("none.npy", dimensions=[0]),
    ]
    model = load_model(tmp_path, resources, {}, commands)
    execution = Execution(model, output_path=tmp_path / "out")
    results = [execution.result(index) for index in range(4)]
    assert results[0] == Written("x", tmp_path / "out" / "x.npy")
    assert_same_bits(np.load(tmp_path / "out" / "x.npy"), np.array([[1], [2], [3], [4], [5]], "float16"))
    flat = np.load(tmp_path / "out" / "deep" / "er" / "flat.NPY")
    assert_same_bits(flat, np.array([1, 2, 3, 4, 5, 0], "float16"))  # the whole buffer, as DxDispatch writes it
    assert (tmp_path / "out" / "x.dat").read_bytes() == flat.tobytes()
    assert np.load(tmp_path / "out" / "none.npy").shape == (0,)


def test_python_writes_no_file_where_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = load_model(tmp_path, {"x": zeros("INT8", 4)}, {}, [write_file("x.dat")])
    with pytest.raises(InvalidModel, match=r"commands\[0\].targetPath: no output folder \(name it: ") as refused:
        Execution(model)
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]
    remedy = str(refused.value.problems[0].remedy).removeprefix("name it: ")
    assert eval(remedy, {"Execution": Execution, "model": model}).result(0).path == tmp_path / "results" / "x.dat"


def test_the_command_writes_below_the_current_folder_as_dxdispatch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    model = write_model(tmp_path / "models", {"x": zeros("INT8", 4)}, {}, [write_file("new/x.dat")])
    assert main(["check", str(model)]) == 0
    assert main(["run", str(model)]) == 0
    assert capsys.readouterr().out.endswith(f"Resource 'x' written to '{tmp_path / 'here' / 'new' / 'x.dat'}'\n")
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["model.json"]


@pytest.mark.parametrize("target", ["link/x.dat", "file.dat", "loop/x.dat", "taken", "file/x.dat", "pipe"])
def test_links_and_special_files_are_refused_as_targets(tmp_path: Path, target: str) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    (out / "taken").mkdir(parents=True)
    elsewhere.mkdir()
    (out / "file").write_bytes(b"")
    os.mkfifo(out / "pipe")
    (out / "link").symlink_to(elsewhere)
    (out / "file.dat").symlink_to(elsewhere / "file.dat")
    (out / "loop").symlink_to(out / "loop")
    model = load_model(tmp_path, {"x": zeros("INT8", 4)}, {}, [write_file(target)])
    with pytest.raises(InvalidModel, match=r"commands\[0\].targetPath must"):
        run(model, output_path=out)
    assert not list(elsewhere.iterdir())


def test_a_link_created_later_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    model = load_model(tmp_path, {"x": zeros("INT8", 4)}, {}, [write_file("a/x.dat")])
    execution = Execution(model, output_path=tmp_path / "out")
    (tmp_path / "out" / "a").symlink_to(tmp_path)
    with pytest.raises(InvalidModel, match="must be a file inside"):
        execution.result(0)
    assert not (tmp_path / "x.dat").exists()


@pytest.mark.parametrize("target", ["x.dat", "x.npy", "deep/x.dat"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, target: str, is_there: bool) -> None:
    out = tmp_path / "out"
    if is_there:
        (out / target).parent.mkdir(parents=True)
        (out / target).write_bytes(b"precious")
    model = load_model(tmp_path, {"x": zeros("INT8", 2**20)}, {}, [write_file(target)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    try:
        with pytest.raises(InvalidModel, match=r"targetPath must be a writable file; got '.*' \("):
            run(model, output_path=out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    left = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert left == ({out / target: b"precious"} if is_there else {})
    run(model, output_path=out)
    assert [path for path in out.rglob("*") if path.is_file()] == [out / target]
    assert (out / target).stat().st_size >= 2**20


def test_an_interrupted_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", interrupted)
    model = load_model(tmp_path, {"x": zeros("INT8", 4)}, {}, [write_file("x.npy")])
    with pytest.raises(KeyboardInterrupt):
        run(model, output_path=tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_written_file_has_the_mode_of_an_ordinary_write(tmp_path: Path) -> None:
    for name, mode in (("kept.dat", 0o640), ("other.dat", 0o606)):
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(mode)
    (tmp_path / "plain").write_bytes(b"")
    (tmp_path / "link.dat").symlink_to("kept.dat")
    targets = ("new.dat", "link.dat", "other.dat")
    run(
        load_model(tmp_path, {"x": zeros("INT8", 4)}, {}, [write_file(target) for target in targets]),
        output_path=tmp_path,
    )
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("*.dat")}
    plain = (tmp_path / "plain").stat().st_mode & 0o777
    assert modes == {"new.dat": plain, "kept.dat": 0o640, "link.dat": 0o640, "other.dat": 0o606}
    assert (tmp_path / "link.dat").is_symlink()
    assert (tmp_path / "kept.dat").read_bytes() == bytes(4)


@SAMPLED
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("data_type", ["FLOAT32", "FLOAT16"])
def test_images_are_read_and_written(tmp_path: Path, suffix: str, channels: int, data_type: str) -> None:
    image_module = pytest.importorskip("PIL.Image", reason="images are an extra")
    if suffix == ".jpg" and channels == 4:
        pytest.skip("JPEG has no fourth channel: tested below")
    values = np.linspace(-0.2, 1.2, channels * 16 * 8).astype(np.float32).reshape(1, channels, 16, 8)
    resources = {"x": listed(data_type, values.ravel().tolist())}
    model = load_model(tmp_path, resources, {}, [write_file("x" + suffix, dimensions=[1, channels, 16, 8])])
    run(model, output_path=tmp_path)
    with image_module.open(tmp_path / f"x{suffix}") as image:
        assert (image.size, len(image.getbands())) == ((8, 16), channels)
    read = {"y": listed(data_type, {"sourcePath": "x" + suffix}, resampleSize=[1, channels, 16, 8])}
    back = Execution(load_model(tmp_path, read)).values("y").reshape(values.shape)
    # One step of 8 bits, plus FLOAT16's rounding; JPEG loses more.
    tolerance = 0.05 if suffix == ".jpg" else 1.1 / 255
    np.testing.assert_allclose(back.astype(np.float32), values.clip(0, 1), atol=tolerance)
    scaled = {"y": listed(data_type, {"sourcePath": "x" + suffix}, resampleSize=[1, channels, 4, 2])}
    assert Execution(load_model(tmp_path, scaled)).values("y").size == channels * 4 * 2
    natural = {"y": listed(data_type, {"sourcePath": "x" + suffix})}
    assert Execution(load_model(tmp_path, natural)).values("y").size == 3 * 16 * 8


def test_an_image_without_an_encoder_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image", reason="images are an extra")
    command = write_file("x.jpg", dimensions=[1, 1, 1, 70_000])  # JPEG ends at 65,500
    model = load_model(tmp_path, {"x": zeros("FLOAT32", 70_000)}, {}, [command])
    with pytest.raises(InvalidModel, match="targetPath must be a writable file"):
        run(model, output_path=tmp_path)
    assert not (tmp_path / "x.jpg").exists()


def test_printed_values_do_not_change_with_the_buffer(tmp_path: Path) -> None:
    commands = [{"type": "print", "resource": "x"}, dispatch("eye", InputTensor="x", OutputTensor="x")]
    execution = Execution(load_model(tmp_path, {"x": listed("FLOAT32", [5, 6, 7, 8])}, {"eye": IDENTITY_1}, commands))
    printed = execution.result(0)
    execution.result(1)
    assert isinstance(printed, Printed)
    assert printed.values.tolist() == [5, 6, 7, 8]


def test_an_image_keeps_its_pixels(tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image", reason="images are an extra")
    pixels = np.arange(24, dtype="uint8").reshape(2, 4, 3)
    image_module.fromarray(pixels).save(tmp_path / "x.png")
    model = load_model(tmp_path, {"x": listed("FLOAT32", {"sourcePath": "x.png"}, resampleSize=[1, 3, 2, 4])})
    expected = pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(255)
    assert_same_bits(Execution(model).values("x"), expected.ravel())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"initialValuesDataType": "INT8"}, "must be read as FLOAT32 or FLOAT16, because it is an image; got INT8"),
        ({"resampleSize": [2, 3, 4, 4]}, "must be scaled to resampleSize"),
        ({"resampleSize": [1, 2, 4, 4]}, "must be scaled to resampleSize"),
        ({"resampleSize": [1, 3, 0, 4]}, "must be scaled to resampleSize"),
        ({"resampleSize": [1, 3, 2**31, 4]}, "must take at most 2147483648 bytes"),
        ({"initialValues": {"sourcePath": "no.png"}}, r"must be an image; got '.*no.png'"),
    ],
)
def test_invalid_images_are_refused_with_the_reason(tmp_path: Path, fields: Any, message: str) -> None:
    image_module = pytest.importorskip("PIL.Image", reason="images are an extra")
    image_module.fromarray(np.zeros((2, 2, 3), "uint8")).save(tmp_path / "x.png")
    (tmp_path / "no.png").write_bytes(b"nothing of the kind")
    with pytest.raises(InvalidModel, match=message):
        load_model(tmp_path, {"x": listed("FLOAT32", {"sourcePath": "x.png"}) | fields})


def test_missing_image_support_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(InvalidModel, match=r"an image needs Pillow \(pip install .*\[images\]'\)"):
        load_model(tmp_path, {"x": listed("FLOAT32", {"sourcePath": "x.png"})})
