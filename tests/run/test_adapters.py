"""Adapters replace inputs of a model, in ONNX Runtime's sessions and in GenAI's generators, and their files are its."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from helpers import assert_same_bits, compilations, refuses

from dmljax.run import onnxruntime as ort

GRAPH = """\
<ir_version: 10, opset_import: ["": 21]>
f (float[N, 2] x, float[2, R] a, float[R, 2] b, int64[1] n) => (float[N, 2] y)
<float[2, 0] a = {}, float[0, 2] b = {}, int64[1] n = {3}> {
    p = MatMul(x, a)
    q = MatMul(p, b)
    s = Cast<to = 1>(n)
    t = Add(x, q)
    y = Mul(t, s)
}"""
X = np.array([[1, 2], [3, 4]], np.float32)
LIBRARIES = [onnxruntime, ort]


def low_rank(rank: int, number: float) -> dict[str, Any]:
    return {"a": np.full((2, rank), number, np.float32), "b": np.full((rank, 2), 3, np.float32)}


ADAPTERS: dict[str, dict[str, Any]] = {
    "narrow": low_rank(1, 2),
    "wide": low_rank(2, 0.5),
    "other": low_rank(2, 0.25),
    "times": {"n": np.array([7])},
    "input": {"x": X + 1},
    "unknown": {"zz": np.ones(2)},
    "long": {"n": np.array([7, 8])},
    "flat": {"a": np.ones(2, np.float32)},
    "double": {"a": np.ones((2, 1))},
}
TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def write(library: Any, path: Path, arrays: dict[str, Any]) -> Path:
    adapter = library.AdapterFormat()
    adapter.set_adapter_version(5)
    adapter.set_model_version(-9)
    values = {name: library.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    adapter.set_parameters(values)
    adapter.export_adapter(str(path))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    onnx.save(onnx.parser.parse_model(GRAPH), folder / "model.onnx")
    for i, (name, arrays) in enumerate(ADAPTERS.items()):
        write(LIBRARIES[i % 2], folder / name, arrays)  # either library reads what the other writes
    return folder


# Files


@pytest.mark.parametrize(("writer", "reader"), [LIBRARIES, LIBRARIES[::-1]])
def test_each_library_reads_the_files_of_the_other(writer: Any, reader: Any, tmp_path: Path) -> None:
    arrays = {dtype: np.arange(6).astype(dtype).reshape(2, 3) for dtype in TYPES} | {"empty": np.zeros((0, 3))}
    read = reader.AdapterFormat.read_adapter(str(write(writer, tmp_path / "all", arrays)))
    assert (read.get_format_version(), read.get_adapter_version(), read.get_model_version()) == (1, 5, -9)
    values = read.get_parameters()
    assert values.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same_bits(values[name].numpy(), array)
        assert values[name].data_ptr() % 8 == 0 or not array.size  # ONNX Runtime computes with the file's memory


def test_bfloat16_has_its_own_type_in_files(tmp_path: Path) -> None:
    adapter = ort.AdapterFormat()
    bits = np.arange(4, dtype=np.uint16)
    adapter.set_parameters({"w": ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)})
    adapter.export_adapter(str(tmp_path / "halves"))
    value = onnxruntime.AdapterFormat.read_adapter(str(tmp_path / "halves")).get_parameters()["w"]
    assert (value.element_type(), value.shape()) == (16, [4])


def test_arrays_of_numpy_become_an_adapter(tmp_path: Path) -> None:
    from dmljax.run.onnxruntime.capi.convert_npz_to_onnx_adapter import export_lora_parameters

    np.savez(tmp_path / "arrays.npz", **low_rank(2, 1))
    export_lora_parameters(tmp_path / "arrays.npz", 1, 2, str(tmp_path / "adapter"))
    read = onnxruntime.AdapterFormat.read_adapter(str(tmp_path / "adapter"))
    assert (read.get_adapter_version(), read.get_model_version(), {*read.get_parameters()}) == (1, 2, {"a", "b"})


def test_files_that_are_no_adapters_say_why(folder: Path, tmp_path: Path) -> None:
    data = (folder / "narrow").read_bytes()
    changed = {
        b"": "must be an adapter of ONNX Runtime, with TORT after the first four bytes",
        data[:100]: "must be an adapter of ONNX Runtime; its offsets must be within the 100 bytes of the file",
        data.replace(b"\1\0\0\0\5\0\0\0", b"\2\0\0\0\5\0\0\0"): "format_version must be 1; got 2",
    }
    for content, message in changed.items():
        (tmp_path / "file").write_bytes(content)
        for read in (ort.LoraAdapter().Load, ort.AdapterFormat.read_adapter):
            with refuses(message, RuntimeError):
                read(str(tmp_path / "file"))
    with refuses("must be a readable file", RuntimeError):
        ort.LoraAdapter().Load(str(tmp_path / "absent"))
    wrong: Any = tmp_path
    with refuses("file_path must be of type str", TypeError):
        ort.LoraAdapter().Load(wrong)
    for array in (np.array(7.0), np.array([True])):
        with refuses("w must be integers from 8 bits on, or floats, with at least one dimension", RuntimeError):
            write(ort, tmp_path / "file", {"w": array})
    with refuses("must be a writable file", RuntimeError):
        write(ort, tmp_path / "absent" / "file", {})


# Sessions


def run(library: Any, folder: Path, names: list[str], feed: dict[str, Any]) -> Any:
    session = library.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    options, adapters = library.RunOptions(), []
    for name in names:
        adapters.append(library.LoraAdapter())  # which ONNX Runtime's options do not keep
        adapters[-1].Load(str(folder / name))
        options.add_active_adapter(adapters[-1])
    (array,) = session.run(None, feed, options)
    values = {name: library.OrtValue.ortvalue_from_numpy(value) for name, value in feed.items()}
    assert_same_bits(session.run_with_ort_values(None, values, options)[0].numpy(), array)
    return array


@pytest.mark.parametrize(
    ("names", "fed"),
    [
        ([], {}),
        (["narrow"], {}),
        (["wide", "times"], {}),
        (["narrow", "wide"], {}),
        (["times"], {"n": np.array([2])}),
        (["input"], {}),
    ],
)
def test_adapters_replace_inputs_as_in_onnx_runtime(names: list[str], fed: dict[str, Any], folder: Path) -> None:
    expected, result = (run(library, folder, names, {"x": X, **fed}) for library in LIBRARIES)
    assert_same_bits(result, expected)


@pytest.mark.parametrize("name", ["unknown", "long", "flat", "double"])
def test_adapters_that_do_not_fit_raise_the_words_of_onnx_runtime(name: str, folder: Path) -> None:
    messages = []
    for library in LIBRARIES:
        with pytest.raises(library.capi.onnxruntime_pybind11_state.InvalidArgument) as raised:
            run(library, folder, [name], {"x": X})
        messages.append(str(raised.value).rstrip())
    assert messages[1].startswith(messages[0])


def test_another_adapter_of_the_same_sizes_compiles_nothing(folder: Path) -> None:
    session = ort.InferenceSession(str(folder / "model.onnx"))
    results = []
    for name in ("wide", "other"):
        options, adapter = ort.RunOptions(), ort.LoraAdapter()
        adapter.Load(str(folder / name))
        options.add_active_adapter(adapter)
        with compilations() as events:
            results += session.run(None, {"x": X}, options)
    assert events == []
    assert not np.array_equal(*results)


def test_only_adapters_are_given_to_runs() -> None:
    wrong: Any = ort.AdapterFormat()
    with refuses("adapter must be of type LoraAdapter", TypeError):
        ort.RunOptions().add_active_adapter(wrong)
    assert ort.LoraAdapter is ort.capi.onnxruntime_pybind11_state.LoraAdapter
