"""Reading DxDispatch models: what the parser accepts, and how it reports what it refuses."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits
from models import MODELS, dispatch, findings, hardmax, listed, load_model, tensor, write_file, write_model, zeros

import dmljax
from dmljax.directml import ActivationHardmaxDesc, InvalidDesc
from dmljax.dxdispatch.execution import Execution
from dmljax.dxdispatch.model import Binding, InvalidModel, Print, UnreadableModel
from dmljax.dxdispatch.reading.reader import load

IO = {"in": zeros("FLOAT32", 6), "out": zeros("FLOAT32", 6)}
ROUTE = dispatch("max", InputTensor="in", OutputTensor="out")


def values(resource: Any) -> Any:
    """The buffer of a resource in the type of its initial values."""
    return resource.buffer().view(resource.data_type.dtype)


# Resources


@pytest.mark.parametrize(
    ("data_type", "given", "expected"),
    [
        ("FLOAT32", [1, 2.5, "nan", "inf", "-inf", -0.0], [1, 2.5, np.nan, np.inf, -np.inf, -0.0]),
        ("FLOAT32", ["NaN", "INF", "-Inf"], [np.nan, np.inf, -np.inf]),
        ("DML_TENSOR_DATA_TYPE_FLOAT32", [0.1, 16777217], [np.float32(0.1), 16777216]),
        ("FLOAT16", [65504, 1e-8, 0.1, 65519], [65504, 0, np.float16(0.1), 65504]),
        ("FLOAT64", [0.1, 1.7976931348623157e308, 5e-324], [0.1, 1.7976931348623157e308, 5e-324]),
        ("INT8", [-128, 127, 0, 1], [-128, 127, 0, 1]),
        ("UINT8", [0, 255, 1, 2], [0, 255, 1, 2]),
        ("INT16", [-32768, 32767], [-32768, 32767]),
        ("UINT16", [0, 65535], [0, 65535]),
        ("INT32", [-(2**31), 2**31 - 1], [-(2**31), 2**31 - 1]),
        ("UINT32", [0, 2**32 - 1], [0, 2**32 - 1]),
        ("INT64", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ("UINT64", [0, 2**64 - 1], [0, 2**64 - 1]),
        ("FLOAT32", {"valueCount": 3, "value": "-inf"}, [-np.inf] * 3),
        ("UINT64", {"valueCount": 2, "value": 2**64 - 1}, [2**64 - 1] * 2),
        ("FLOAT32", {"valueCount": 4, "valueStart": 1, "valueDelta": 2.5}, [1, 3.5, 6, 8.5]),
        ("INT32", {"valueCount": 3, "valueStart": 5, "valueDelta": -5}, [5, 0, -5]),
        ("UINT8", {"valueCount": 4, "valueStart": 250, "valueDelta": 3}, [250, 253, 0, 3]),
        ("FLOAT32", {"valueCount": 1, "valueStart": "nan", "valueDelta": 1}, [np.nan]),
    ],
)
def test_initial_values_may_have_every_form(tmp_path: Path, data_type: str, given: Any, expected: Any) -> None:
    resource = load_model(tmp_path, {"x": listed(data_type, given)}).resources["x"]
    dtype = np.dtype(data_type.removeprefix("DML_TENSOR_DATA_TYPE_").lower())
    assert_same_bits(values(resource)[: len(expected)], np.array(expected, dtype))
    assert resource.size_in_bytes == -(-len(expected) * dtype.itemsize // 4) * 4


@pytest.mark.parametrize(("data_type", "start", "delta"), [("float16", 0, 0.1), ("float32", 0.5, 0.1)])
def test_a_sequence_rounds_at_each_step(tmp_path: Path, data_type: str, start: float, delta: float) -> None:
    generated = {"valueCount": 5000, "valueStart": start, "valueDelta": delta}
    resource = load_model(tmp_path, {"x": listed(data_type.upper(), generated)}).resources["x"]
    scalar = np.dtype(data_type).type
    value, expected = scalar(start), []
    for _ in range(5000):
        expected.append(value)
        value = scalar(value + scalar(delta))
    assert_same_bits(values(resource), np.array(expected))
    assert expected[-1] != scalar(start + delta * 4999)


def test_a_list_of_types_and_values_is_a_struct(tmp_path: Path) -> None:
    fields = [
        {"name": "count", "type": "UINT32", "value": 6},
        {"type": "FLOAT32", "value": "inf"},
        {"type": "INT8", "value": -1},
        {"type": "FLOAT64", "value": 0.1},
    ]
    resource = load_model(tmp_path, {"x": {"initialValues": fields, "sizeInBytes": 256}}).resources["x"]
    expected = np.uint32(6).tobytes() + np.float32(np.inf).tobytes() + b"\xff" + np.float64(0.1).tobytes()
    assert resource.buffer().tobytes() == expected.ljust(256, b"\0")


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8", "i1", "u1", ">i2", "<u4", ">u8", "<i8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_files_bring_their_type(tmp_path: Path, dtype: str, order: Any) -> None:
    array = np.asarray(np.array([[0, 1, 2], [1, 0, 1]]).astype(dtype), order=order)
    np.save(tmp_path / "x.NPY.npy", array)
    resource = load_model(tmp_path, {"x": {"initialValues": {"sourcePath": "x.NPY.npy"}}}).resources["x"]
    native = np.ascontiguousarray(array).astype("uint8" if dtype == "?" else array.dtype.newbyteorder("="))
    assert resource.data_type.dtype == native.dtype
    assert_same_bits(values(resource)[: native.size], native.ravel())


def test_raw_files_take_the_type_that_the_model_gives(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.dat").write_bytes(np.arange(5, dtype="float16").tobytes())
    given = listed("FLOAT16", {"sourcePath": "deep\\x.dat"})  # as models from Windows spell it
    resource = load_model(tmp_path, {"x": given}).resources["x"]
    assert_same_bits(values(resource), np.array([0, 1, 2, 3, 4, 0], "float16"))


def test_the_input_path_precedes_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, content in (("inputs", b"1234"), ("here", b"5678")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.bin").write_bytes(content)
    monkeypatch.chdir(tmp_path / "here")
    resources = {"x": listed("UINT8", {"sourcePath": "x.bin"})}
    assert load_model(tmp_path, resources).resources["x"].buffer().tobytes() == b"5678"
    assert load_model(tmp_path, resources, input_path=tmp_path / "inputs").resources["x"].buffer().tobytes() == b"1234"
    write_model(tmp_path / "inputs", resources)
    assert load("model.json", input_path=tmp_path / "inputs").resources["x"].buffer().tobytes() == b"1234"


def test_sizes_and_offsets_count_bytes(tmp_path: Path) -> None:
    given = listed("FLOAT16", [1, 2, 3], sizeInBytes=13, initialValuesOffsetInBytes=4)
    resource = load_model(tmp_path, {"x": given}).resources["x"]
    expected = b"\0" * 4 + np.array([1, 2, 3], "float16").tobytes()
    assert resource.buffer().tobytes() == expected.ljust(13, b"\0")


def file(name: Any, data_type: str = "INT8", **fields: Any) -> dict[str, Any]:
    return listed(data_type, {"sourcePath": name}, **fields)


STRUCT = {"initialValues": [{"type": "INT8", "value": 1}]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, " must be an object; got 3"),
        ({}, ".initialValues must be given; got none"),
        (listed("FLOAT32", None), ".initialValues must be given; got none"),
        (listed("FLOAT32", []), ".initialValues must hold at least one value; got none"),
        (zeros("FLOAT32", 0), ".initialValues must hold at least one value; got none"),
        (listed("FLOAT32", 5), ".initialValues must be a list or an object; got 5"),
        (listed("FLOAT33", [1]), ".initialValuesDataType must be one of UNKNOWN, FLOAT32, .*; got 'FLOAT33'"),
        (listed(1, [1]), ".initialValuesDataType must be a name; got 1"),
        (listed("INT8", [1, 128]), r".initialValues\[1\] must be a whole number in \[-128, 127\] for INT8; got 128"),
        (listed("UINT8", [-1]), r".initialValues\[0\] must be a whole number in \[0, 255\] for UINT8; got -1"),
        (listed("INT32", [1.0]), r".initialValues\[0\] must be a whole number in .* for INT32; got 1.0"),
        (listed("INT32", [True]), r".initialValues\[0\] must be a whole number in .* for INT32; got True"),
        (listed("INT32", ["nan"]), r".initialValues\[0\] must be a whole number in .*; got 'nan'"),
        (listed("UINT64", [2**64]), r".initialValues\[0\] must be a whole number in"),
        (listed("FLOAT32", ["infinity"]), r".initialValues\[0\] must be a number, 'nan', 'inf' or '-inf'"),
        (listed("FLOAT32", [False]), r".initialValues\[0\] must be a number"),
        (listed("FLOAT32", [[1]]), r".initialValues\[0\] must be a number"),
        (listed("FLOAT32", [2**53 + 1]), r".initialValues\[0\] must be a number"),
        (listed("FLOAT32", {}), ".initialValues must have one of value, valueStart or sourcePath; got none"),
        (listed("FLOAT32", {"valueCount": 1}), "one of value, valueStart or sourcePath; got valueCount"),
        (listed("FLOAT32", {"value": 1, "valueStart": 1}), "sourcePath; got value, valueStart"),
        (listed("FLOAT32", {"value": 1}), ".initialValues.valueCount must be given; got none"),
        (zeros("FLOAT32", -1), r".initialValues.valueCount must be in \[0, 4294967295\]; got -1"),
        (listed("FLOAT32", {"value": "x", "valueCount": 1}), ".initialValues.value must be a number"),
        (listed("FLOAT32", {"valueStart": 1, "valueCount": 1}), ".initialValues.valueDelta must be given"),
        ({"initialValues": {"valueCount": 1, "value": 1}}, "value: needs initialValuesDataType; got none"),
        ({"initialValues": [1]}, "DataType must be given, unless all of initialValues are objects; got none"),
        ({"initialValues": [{"type": "UINT8", "value": 256}]}, r".initialValues\[0\].value must be a whole number"),
        ({"initialValues": [{"type": "UNKNOWN", "value": 1}]}, r".initialValues\[0\].type must be a data type"),
        ({"initialValues": [{"type": "INT4", "value": 1}]}, r"\[0\].type must be a data type of whole bytes; got INT4"),
        ({"initialValues": [{"value": 1}]}, r".initialValues\[0\].type must be given; got none"),
        (listed("INT32", [1, 2], sizeInBytes=7), "sizeInBytes must be at least 8, for 8 bytes of .* from byte 0"),
        (listed("INT32", [1], initialValuesOffsetInBytes=1), "sizeInBytes must be at least 5, .* byte 1 on; got 4"),
        (listed("INT32", [1], sizeInBytes=-1), r".sizeInBytes must be in \[0, 18446744073709551615\]"),
        (listed("INT32", [1], sizeInBytes=4.5), ".sizeInBytes must be an integer; got 4.5"),
        (zeros("FLOAT64", 2**32 - 1), "valueCount must take at most 2147483648 bytes for one .*; got 34359738360"),
        (listed("INT8", [1], sizeInBytes=2**40), "sizeInBytes must take at most 2147483648 .*; got 1099511627776"),
        (file(1), ".initialValues.sourcePath must be a name; got 1"),
        (file("no"), r"sourcePath must be a readable file; got '.*no' \(No such file"),
        (file("a\0b"), "sourcePath must be a readable file"),
        (file("a" * 5000), "sourcePath must be a readable file"),
        (file("a" * 300), r"sourcePath must be a readable file; .* \(File name too"),
        (file("loop"), "sourcePath must be a readable file"),
        (file("pipe"), "sourcePath must be a regular file"),
        (file("."), "sourcePath must be a regular file"),
        (file("/dev/zero"), "sourcePath must be a regular file; got '/dev/zero'"),
        (file("x.bin", "UNKNOWN"), "sourcePath: needs initialValuesDataType, because only .npy"),
        (file("f4.npy"), "sourcePath must hold INT8 to match initialValuesDataType; got FLOAT32"),
        (file("c8.npy", "UNKNOWN"), "sourcePath must hold numbers of a DirectML data type; got complex64"),
        (file("cut.npy", "UNKNOWN"), "sourcePath must be a complete .npy file"),
        (file("liar.npy", "UNKNOWN"), "sourcePath must be a complete .npy file"),
        (file("no.npy", "UNKNOWN"), "sourcePath must be a complete .npy file"),
        (file("empty.npy", "UNKNOWN"), ".initialValues must hold at least one value; got none"),
        (file("f4.npy", resampleMode="crop"), "resampleMode must be 'scale'; got 'crop'"),
        (file("f4.npy", resampleSize=[1, 2]), "resampleSize must be .batch, channels, height"),
    ],
)
def test_invalid_resources_are_refused_with_the_reason(tmp_path: Path, given: Any, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "x.bin").write_bytes(b"1234")
    np.save(tmp_path / "f4.npy", np.ones(2, "f4"))
    np.save(tmp_path / "c8.npy", np.ones(2, "c8"))
    np.save(tmp_path / "empty.npy", np.ones((0, 2), "f4"))
    whole = (tmp_path / "f4.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-1])
    (tmp_path / "liar.npy").write_bytes(whole.replace(b"(2,), }" + b" " * 20, b"(2000000000000000000,), }  "))
    (tmp_path / "no.npy").write_bytes(b"not NumPy's")
    (finding,) = findings(tmp_path, {"x": given})
    assert_message(finding, rf"resources\.x.*{message}")


def assert_message(finding: str, pattern: str) -> None:
    assert re.search(r"^\d+: .*" + pattern, finding), finding


def test_all_resources_together_are_bounded(tmp_path: Path) -> None:
    big = listed("INT8", [1], sizeInBytes=2**31)
    (finding,) = findings(tmp_path, {"a": big, "b": big, "c": big})
    assert "resources.c.sizeInBytes must take at most" in finding


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '(2,)<f4', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '|V0', 'fortran_order': False, 'shape': (0,), }",
        "{'descr': '|S0', 'fortran_order': False, 'shape': (0,), }",
        f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 70}, }}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -6), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,), }",
        "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (3,), }",
        "__import__('os').system('true')",
    ],
)
def test_odd_headers_of_npy_files_are_refused(tmp_path: Path, header: str) -> None:
    text = header.encode().ljust(118) + b"\n"
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(24))
    (finding,) = findings(tmp_path, {"x": {"initialValues": {"sourcePath": "x.npy"}}})
    assert_message(finding, "resources.x.initialValues.sourcePath must (be a complete .npy file|hold numbers)")


def test_float_overflow_gives_infinity_and_a_warning(tmp_path: Path) -> None:
    values_of_x = {"valueCount": 2, "value": 1e39}
    resources = {"mask": listed("FLOAT16", [0, -1e9, 65519, 65520]), "x": listed("FLOAT32", values_of_x)}
    model = load_model(tmp_path, resources)
    assert values(model.resources["mask"]).tolist() == [0, -np.inf, 65504, np.inf]
    assert values(model.resources["x"]).tolist() == [np.inf] * 2
    assert [f"{warning.path} {warning.message}" for warning in model.warnings] == [
        "resources.mask.initialValues[1] overflows to infinity in FLOAT16; got -1000000000.0",
        "resources.mask.initialValues[3] overflows to infinity in FLOAT16; got 65520",
        "resources.x.initialValues.value overflows to infinity in FLOAT32; got 1e+39",
    ]


# Dispatchables

DESC = hardmax(2, 3)["desc"]


@pytest.mark.parametrize(
    "given",
    [
        {"type": "DML_OPERATOR_ACTIVATION_HARDMAX", "desc": DESC},
        {"type": "ACTIVATION_HARDMAX", "Desc": DESC},
        {"Type": "ACTIVATION_HARDMAX"} | DESC,
        {"type": "ACTIVATION_HARDMAX", "desc": None, "bindings": None, "executionFlags": None} | DESC,
        hardmax(2, 3) | {"executionFlags": "NONE", "dmlCompileType": "DmlCompileGraph"},
        hardmax(2, 3) | {"executionFlags": ["DML_EXECUTION_FLAG_NONE"], "dmlCompileType": "DmlCompileOp"},
        hardmax(2, 3) | {"executionFlags": ["NONE", "ALLOW_HALF_PRECISION_COMPUTATION"], "bindings": {}},
        hardmax(2, 3, input={"Type": "DML_TENSOR_TYPE_BUFFER", "DimensionCount": 2, "Strides": None, "Flags": None}),
        hardmax(2, 3, input={"Sizes": [2, 3, 7], "DimensionCount": 2, "Strides": []}),
        hardmax(2, 3, input={"DataType": "DML_TENSOR_DATA_TYPE_FLOAT32", "Flags": ["NONE"], "Strides": [3, 1]}),
        {
            "type": "ACTIVATION_HARDMAX",
            "InputTensor": {"Type": "BUFFER", "Desc": tensor("FLOAT32", 2, 3, TotalTensorSizeInBytes=24)},
            "OutputTensor": tensor("FLOAT32", 2, 3, GuaranteedBaseOffsetAlignment=0, TotalTensorSizeInBytes=0),
        },
    ],
)
def test_operators_may_be_spelled_in_several_ways(tmp_path: Path, given: Any) -> None:
    model = load_model(tmp_path, IO, {"max": given}, [ROUTE])
    assert not model.warnings
    assert isinstance(model.dispatchables["max"].desc, ActivationHardmaxDesc)
    result = model.dispatchables["max"](jnp.array([[1, 5, 5], [0, -1, -2]], jnp.float32))
    assert result.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_dispatchables_work_with_transformations(tmp_path: Path) -> None:
    route = load_model(tmp_path, IO, {"max": hardmax(2, 3)}, [ROUTE]).dispatchables["max"]
    rows = jnp.arange(12, dtype="float32").reshape(2, 2, 3)
    expected = route(rows[0])
    assert_same_bits(jax.jit(route)(input=rows[0]), expected)
    assert_same_bits(jax.vmap(route)(rows)[0], expected)
    assert not jax.grad(lambda x: route(x).sum())(rows[0]).any()
    with pytest.raises(InvalidDesc, match=r"InputTensor must have Sizes \{2,3\}"):
        route(rows)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], r"dispatchables.max must be an object; got \[\]"),
        ({}, "dispatchables.max.type must be given; got none"),
        ({"type": "HLSL"}, "max.type must be an operator, dmlSerializedGraph or onnx; got 'HLSL', but XLA"),
        ({"type": "onnx"}, "dispatchables.max.sourcePath must be given; got none"),
        ({"type": "dmlSerializedGraph"}, "dispatchables.max.sourcePath must be given; got none"),
        ({"type": "ONEHOT"}, r"type: unknown operator 'ONEHOT', did you mean ONE_HOT\? \(`dmljax ops` lists them\)"),
        ({"type": "LSTN"}, r"unknown operator 'LSTN', did you mean LSTM\?"),
        (hardmax(2, 3) | {"desc": 3}, "dispatchables.max.desc must be an object; got 3"),
        (hardmax(2, 3) | {"executionFlags": "FAST"}, "executionFlags must be one of NONE"),
        (hardmax(2, 3) | {"dmlCompileType": "No"}, "dmlCompileType must be one of DmlComp"),
        (hardmax(2, 3) | {"bindings": 5}, "dispatchables.max.bindings must be an object"),
        (hardmax(2, 3, input={"DataType": "FLOAT8"}), "desc.InputTensor.DataType must be one of .*; got 'FLOAT8'"),
        (hardmax(2, 3, input={"Sizes": [2, -3]}), r"desc.InputTensor.Sizes\[1\] must be in \[0, 4294967295\]; got -3"),
        (hardmax(2, 3, input={"Sizes": None}), "desc.InputTensor.Sizes must be given"),
        (hardmax(2, 3, input={"Sizes": [3, 2]}), "desc.InputTensor and OutputTensor must have the same Sizes"),
        (hardmax(2, 3, input={"DimensionCount": 3}), r"desc.InputTensor.DimensionCount must be in \[0, 2\]; got 3"),
        (hardmax(2, 3, input={"Strides": [1]}), "desc.InputTensor.Strides must have 2 elements"),
        (hardmax(2, 3, input={"Flags": "OWNED"}), "desc.InputTensor.Flags must be one of NONE, OWNED_BY_DML"),
        (hardmax(2, 3, output={"Flags": "OWNED_BY_DML"}), "desc.OutputTensor.Flags must be NONE; got OWNED_BY_DML"),
        (hardmax(2, 3, input={"Type": "TEXTURE"}), "desc.InputTensor.Type must be DML_TENSOR_TYPE_BUFFER"),
        (hardmax(2, 3, output={"Strides": [0, 1]}), "OutputTensor must not store two elements in the same place"),
    ],
)
def test_invalid_dispatchables_are_refused_with_the_reason(tmp_path: Path, given: Any, message: str) -> None:
    reported = findings(tmp_path, {}, {"max": given})
    commands = findings(tmp_path, IO, {"max": given}, [ROUTE])
    assert_message((reported or commands)[0], message)
    assert len(reported or commands) == 1


def test_all_findings_in_a_part_are_reported(tmp_path: Path) -> None:
    bad = {"DataType": "FLOAT8", "Sizes": [2, -3], "Strides": [1.5, 1], "Flags": ["NONE", "OWNED"]}
    desc = {"InputTensor": bad, "OutputTensor": {"Sizes": 3}}
    operator = {"type": "ARGMAX", "desc": desc | {"Axes": ["x"]}, "executionFlags": ["NONE", "FAST"]}
    binding = {"name": "inn", "elementOffset": -1, "counter": 5}
    resources = {"in": listed("INT8", [300], sizeInBytes="x", initialValuesOffsetInBytes=-1)}
    command = {"type": "writeFile", "resource": "inn", "targetPath": "..", "dimensions": 3}
    reported = findings(tmp_path, resources, {"top": operator}, [dispatch("top", InputTensor=binding), command])
    places = {
        "resources.in.": "initialValues[0] sizeInBytes initialValuesOffsetInBytes",
        "dispatchables.top.desc.": "AxisDirection InputTensor.DataType InputTensor.Sizes[1] InputTensor.Flags[1]"
        " OutputTensor.DataType OutputTensor.Sizes Axes[0]",
        "dispatchables.top.": "executionFlags[1]",
        "commands[0].bindings.InputTensor.": "name elementOffset counter",
        "commands[1].": "resource targetPath dimensions",
    }
    fields_reported = [finding.partition(": ")[2].partition(" must")[0] for finding in reported]
    assert fields_reported == [place + field for place, fields in places.items() for field in fields.split()]


def test_a_repeated_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(
        '{"resources": {\n"x": {"initialValues": 1},\n"x": {"initialValuesDataType": "INT8",\n'
        '"initialValues": [1]}}, "dispatchables": {}, "commands": []}'
    )
    with pytest.raises(InvalidModel) as refused:
        load(path)
    assert str(refused.value) == f"{path}:3: resources.x must be given only once; got a repeated name"


def test_each_finding_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("""{
    "resources": {
        "in": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, "x"]},
        "short": {"initialValuesDataType": "FLOAT32", "initialValues": [1]},
    },
    "dispatchables": {
        "max": {"type": "ACTIVATION_HARDMAX", "desc": {
            "InputTensor": {"DataType": "FLOAT64", "Sizes": [2, 3]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [
                2,
                4294967296]}}},
        "first": {"type": "ARGMAX", "AxisCount": 1, "Axes": [2],
            "InputTensor": {"DataType": "FLOAT32", "Sizes": [2, 3]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [2, 1]},
            "AxisDirection": "UP"},
        "good": {"type": "ACTIVATION_HARDMAX",
            "InputTensor": {"DataType": "FLOAT32", "Sizes": [1, 3]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [1, 3]}},
    },
    "commands": [
        {"type": "dispatch", "dispatchable": "goood", "bindings": {}},
        {"type": "dispatch", "dispatchable": "good",
            "bindings": {"InputTensor": "shor", "OutputTensor": "short"}},
        {"type": "print", "resource": "in"},
        {"type": "prnt", "resource": "in"},
        {"type": "writeFile", "resource": "short", "targetPath": "../x.npy"},
    ],
}""")
    with pytest.raises(InvalidModel) as refused:
        load(path)
    assert [str(finding).removeprefix(f"{path}:") for finding in refused.value.findings] == [
        "3: resources.in.initialValues[2] must be a number, 'nan', 'inf' or '-inf' for FLOAT32; got 'x'",
        "11: dispatchables.max.desc.OutputTensor.Sizes[1] must be in [0, 4294967295]; got 4294967296",
        "15: dispatchables.first.AxisDirection must be one of INCREASING, DECREASING; got 'UP'",
        "21: commands[0].dispatchable must be a dispatchable of the model; got 'goood', did you mean good?",
        "23: commands[1].bindings.InputTensor.name must be a resource of the model; got 'shor', did you mean short?",
        "23: commands[1].bindings.OutputTensor must have 12 bytes; got 4, in 'short' from byte 0 on",
        "25: commands[3].type must be one of dispatch, print, writeFile; got 'prnt', did you mean print?",
        "26: commands[4].targetPath must be a file inside the output folder; got '../x.npy'",
    ]
    assert str(refused.value).count("\n") == 7


def test_the_rules_of_the_level_apply(tmp_path: Path) -> None:
    path = write_model(tmp_path, IO, {"max": hardmax(2, 3)}, [ROUTE])
    load(path, feature_level="3_0")
    with pytest.raises(InvalidModel) as refused:
        load(path, feature_level="1_0")
    places = [f"dispatchables.max.desc.{name}.DimensionCount" for name in ("InputTensor", "OutputTensor")]
    assert [finding.path for finding in refused.value.findings] == places
    assert refused.value.findings[0].message == "must be 4; got 2 (at DML_FEATURE_LEVEL_1_0)"
    with pytest.raises(InvalidDesc, match="feature_level must be one of 1_0"):
        load(path, feature_level="0_1")


def test_ignored_parts_of_a_model_give_warnings(tmp_path: Path) -> None:
    max_ = hardmax(2, 3, input={"Stride": [3, 1]})
    max_["desc"]["Axis"] = 1
    resources = IO | {"in": zeros("FLOAT32", 6, comment="x", sizeInByte=4), "$ignored": zeros("INT8", 1)}
    binding = {"name": "in", "elementOffset": 0, "elementCount": 6, "elementStride": 4, "//": "a remark"}
    commands = [dispatch("max", InputTensor=binding, OutputTensor="out", Bias="in", Output="out")]
    path = write_model(tmp_path, resources, {"max": max_ | {"execution": "x"}}, commands)
    parts = json.loads(path.read_text()) | {"$schema": "./_schema.json", "Resources": {}}
    path.write_text(json.dumps(parts))
    buffer = "initialValuesDataType, initialValues, initialValuesOffsetInBytes, sizeInBytes, resampleSize, resampleMode"
    sizes = "DimensionCount, Sizes, Strides, TotalTensorSizeInBytes, GuaranteedBaseOffsetAlignment"
    tensor_fields = f"Type, Desc, DataType, {sizes}, Flags"
    binding_fields = "name, elementCount, elementSizeInBytes, elementOffset, format, counter, counterOffsetBytes, shape"
    operator_fields = "type, Type, bindings, executionFlags, dmlCompileType, desc"
    unknown = [
        ("Resources", ", did you mean resources?", "resources, dispatchables, commands"),
        ("resources.in.comment", "", buffer),
        ("resources.in.sizeInByte", ", did you mean sizeInBytes?", buffer),
        ("dispatchables.max.execution", ", did you mean executionFlags?", operator_fields),
        ("dispatchables.max.desc.Axis", "", "InputTensor, OutputTensor"),
        ("dispatchables.max.desc.InputTensor.Stride", ", did you mean Strides?", tensor_fields),
        ("commands[0].bindings.Bias", "", "InputTensor, OutputTensor"),
        ("commands[0].bindings.Output", ", did you mean OutputTensor?", "InputTensor, OutputTensor"),
        ("commands[0].bindings.InputTensor.elementStride", ", did you mean elementOffset?", binding_fields),
    ]
    assert [(warning.path, warning.message) for warning in load(path).warnings] == [
        (place, f"unknown field '{place.rpartition('.')[2]}' is ignored; known fields are {known}{hint}")
        for place, hint, known in unknown
    ]


# Bindings


@pytest.mark.parametrize(
    ("binding", "offset"),
    [
        ("in", 0),
        (["in"], 0),
        ({"name": "in"}, 0),
        ([{"name": "in", "elementOffset": 4, "elementCount": 1}], 16),
        ({"name": "in", "elementOffset": 2, "elementSizeInBytes": 16}, 32),
        ({"name": "struct", "elementOffset": 1, "elementSizeInBytes": 16}, 16),
        ({"name": "in", "format": "R32_FLOAT", "counter": "in", "counterOffsetBytes": 4, "shape": [1]}, 0),
    ],
)
def test_bindings_are_a_name_an_object_or_a_list(tmp_path: Path, binding: Any, offset: int) -> None:
    struct = STRUCT | {"initialValuesDataType": "UNKNOWN", "sizeInBytes": 64}
    commands = [ROUTE, dispatch("max", InputTensor=binding, OutputTensor="out")]
    model = load_model(tmp_path, IO | {"in": zeros("FLOAT32", 16), "struct": struct}, {"max": hardmax(2, 3)}, commands)
    name = binding[0] if isinstance(binding, list) else binding
    name = name if isinstance(name, str) else name["name"]
    assert model.commands[1].bindings["input"] == Binding(name, offset)  # type: ignore[union-attr]
    assert not model.warnings


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        (None, " must be bound; got none"),
        (3, " must be the name of a resource, an object with it, or a list of these; got 3"),
        ([], " must have 1 resource; got 0"),
        (["in", "in"], " must have 1 resource; got 2"),
        ({}, ".name must be given; got none"),
        ({"name": "in", "elementOffset": -1}, ".elementOffset must be in"),
        ({"name": "in", "elementOffset": 2**63}, " must have 24 bytes; got 0, in 'in' from byte 36893488147419103232"),
        ({"name": "in", "elementOffset": 1}, " must have 24 bytes; got 20, in 'in' from byte 4 on"),
        ({"name": "in", "elementCount": "6"}, ".elementCount must be an integer; got '6'"),
        ({"name": "in", "counter": "unknown"}, ".counter must be a resource of the model; got 'unknown'"),
        ({"name": "struct", "elementOffset": 1}, ".elementOffset: needs elementSizeInBytes for 'struct'; got"),
    ],
)
def test_invalid_bindings_are_refused_with_the_reason(tmp_path: Path, binding: Any, message: str) -> None:
    resources = IO | {"struct": STRUCT | {"sizeInBytes": 64}}
    commands = [dispatch("max", InputTensor=binding, OutputTensor="out")]
    (finding,) = findings(tmp_path, resources, {"max": hardmax(2, 3)}, commands)
    assert f"commands[0].bindings.InputTensor{message}" in finding
    (finding,) = findings(tmp_path, resources, {"max": hardmax(2, 3)}, [dispatch("max", InputTensor="in")])
    assert "commands[0].bindings.OutputTensor must be bound; got none" in finding


def test_absent_tensors_must_not_be_bound(tmp_path: Path) -> None:
    desc = {"OutputTensor": tensor("FLOAT32", 2, 3), "ValueDataType": "FLOAT32", "Value": 1}
    desc |= {"DiagonalFillBegin": 0, "DiagonalFillEnd": 1}
    operator = {"type": "DIAGONAL_MATRIX1", "desc": desc}
    assert not findings(tmp_path, IO, {"eye": operator}, [dispatch("eye", OutputTensor="out")])
    (finding,) = findings(tmp_path, IO, {"eye": operator}, [dispatch("eye", InputTensor="in", OutputTensor="out")])
    assert finding.endswith("commands[0].bindings.InputTensor must not be bound, because the desc has no such tensor")


def test_tensors_owned_by_dml_are_bound_at_initialization(tmp_path: Path) -> None:
    owned = hardmax(2, 3, input={"Flags": "OWNED_BY_DML"}) | {"bindings": {"InputTensor": "in"}}
    model = load_model(tmp_path, IO, {"max": owned}, [dispatch("max", OutputTensor="out")])
    assert model.dispatchables["max"].bindings == {"input": Binding("in")}
    assert [point.is_owned for point in model.dispatchables["max"].points] == [True, False]
    (finding,) = findings(tmp_path, IO, {"max": owned}, [ROUTE])
    rule = "bindings.InputTensor must be bound {}, not here, because of its Flags"
    assert f"commands[0].{rule.format('at initialization')}" in finding
    (finding,) = findings(tmp_path, IO, {"max": hardmax(2, 3) | {"bindings": {"InputTensor": "in"}}}, [ROUTE])
    assert f"dispatchables.max.{rule.format('in a dispatch')}" in finding
    (finding,) = findings(tmp_path, IO, {"max": hardmax(2, 3, input={"Flags": "OWNED_BY_DML"})})
    assert "dispatchables.max.bindings.InputTensor must be bound; got none" in finding


def test_outputs_must_not_overlap(tmp_path: Path) -> None:
    nonzero = {
        "type": "NONZERO_COORDINATES",
        "InputTensor": tensor("FLOAT32", 6),
        "OutputCountTensor": tensor("UINT32", 1),
        "OutputCoordinatesTensor": tensor("UINT32", 6, 1),
    }
    resources = IO | {"both": zeros("UINT32", 16)}
    apart = {"name": "both", "elementOffset": 8}
    commands = [dispatch("list", InputTensor="in", OutputCountTensor=apart, OutputCoordinatesTensor="both")]
    assert not findings(tmp_path, resources, {"list": nonzero}, commands)
    apart["elementOffset"] = 4
    (finding,) = findings(tmp_path, resources, {"list": nonzero}, commands)
    assert finding.endswith("OutputCoordinatesTensor must not overlap OutputCountTensor; got both in 'both'")


def test_an_unaligned_offset_gives_a_warning_about_directml(tmp_path: Path) -> None:
    resources = {"in": zeros("FLOAT32", 16), "out": zeros("FLOAT32", 6)}
    commands = [dispatch("max", InputTensor={"name": "in", "elementOffset": 1}, OutputTensor="out")]
    model = load_model(tmp_path, resources, {"max": hardmax(2, 3)}, commands)
    (warning,) = model.warnings
    assert str(warning).endswith("InputTensor must begin at a multiple of 16 bytes for DirectML; got 4")
    aligned = hardmax(2, 3, input={"GuaranteedBaseOffsetAlignment": 4})
    assert not load_model(tmp_path, resources, {"max": aligned}, commands).warnings


def test_a_tensor_that_strides_make_huge_is_refused(tmp_path: Path) -> None:
    huge = hardmax(60000, 60000, input={"Strides": [0, 0]}, output={"Strides": [0, 0]})
    reported = findings(tmp_path, IO, {"max": huge}, [ROUTE])
    tensor_text = "FLOAT32 {60000,60000} strides {0,0}"
    assert [finding.split(": ")[1] for finding in reported] == [
        f"dispatchables.max.desc.{name}.Sizes must describe at most 2147483648 bytes; got {tensor_text}"
        for name in ("InputTensor", "OutputTensor")
    ]


# Commands


OUTSIDE = ("", ".", "a/", "a\\", "/x", "../x", "a/../../x", "a/../x", "..")
OUTSIDE_ON_WINDOWS = ("C:\\x", "\\x", "a\\..\\x", "C:x", "\\\\host\\x")


def write(target: str, resource: str = "in", **fields: Any) -> dict[str, Any]:
    return write_file(target, resource, **fields)


@pytest.mark.parametrize("order", [1, -1])
def test_one_target_file_may_not_be_a_folder_of_another(tmp_path: Path, order: int) -> None:
    commands = [write("a/b"), write("a/b-"), write("a/b/c\\d"), write("z")][::order]
    message = rf"commands\[{2 if order > 0 else 1}\]\.targetPath must not use another file .*; got 'a/b/c/d'"
    with pytest.raises(InvalidModel, match=message):
        load(write_model(tmp_path, {"in": listed("INT8", [1])}, commands=commands))
    load(
        write_model(tmp_path, {"in": listed("INT8", [1])}, commands=[write(x) for x in ("a/b", "a/c", "a/b", "A/B/c")])
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (3, "commands[0] must be an object; got 3"),
        ({}, "commands[0].type must be given; got none"),
        ({"type": "dispatch"}, "commands[0].dispatchable must be given; got none"),
        ({"type": "dispatch", "dispatchable": "max"}, "commands[0].bindings must be given; got none"),
        ({"type": "dispatch", "dispatchable": "max", "bindings": "in"}, "commands[0].bindings must be an object"),
        (ROUTE | {"threadGroupCount": [1, 1]}, "commands[0].threadGroupCount must have 3 elements; got 2"),
        (ROUTE | {"threadGroupCount": "x"}, "commands[0].threadGroupCount must be a sequence of integers"),
        ({"type": "print"}, "commands[0].resource must be given; got none"),
        ({"type": "print", "resource": "int"}, "must be a resource of the model; got 'int', did you mean ints?"),
        ({"type": "print", "resource": "in", "verbose": 1}, "commands[0].verbose must be true or false; got 1"),
        ({"type": "print", "resource": "huge"}, "must have at most 16777216 values to be printed; got 16777217"),
        ({"type": "print", "resource": "struct"}, "resource must have an initialValuesDataType to be printed"),
        ({"type": "writeFile", "resource": "in"}, "commands[0].targetPath must be given; got none"),
        *((write(path), "must be a file inside the output folder") for path in (*OUTSIDE, *OUTSIDE_ON_WINDOWS)),
        (write("a\0b"), r"targetPath must not contain control characters; got 'a\x00b'"),
        (write("a\nb.npy"), "targetPath must not contain control characters"),
        (write("a\x7f"), "targetPath must not contain control characters"),
        (write("a/" + "b" * 256), "targetPath must be a path of at most 1024 bytes, 255 in each part; got 'a/bbb"),
        (write("a\\" + "é" * 128), "targetPath must be a path of at most 1024 bytes, 255 in each part"),
        (write("a/" * 600 + "b"), "targetPath must be a path of at most 1024 bytes, 255 in each part"),
        (write("x.npy", dimensions=[1] * 65), "dimensions must have at most 64 elements; got 65"),
        (write("x.npy", resource="struct"), "must have an initialValuesDataType"),
        (write("x.npy", dimensions=[7]), "at most 6 elements"),
        (write("x.npy", dimensions=[2**32 - 1] * 8), "at most 6"),
        (write("x.PNG"), "with 1 or 3 or 4 channels"),
        (write("x.jpg", dimensions=[1, 4, 1, 1]), "with 1 or 3 channels; got (1, 4, 1, 1)"),
        (write("x.jpg", "ints", dimensions=[1] * 4), "of FLOAT32 or FLOAT16 to be written as an image; got INT32"),
    ],
)
def test_invalid_commands_are_refused_with_the_reason(tmp_path: Path, command: Any, message: str) -> None:
    resources = IO | {"struct": STRUCT, "ints": zeros("INT32", 4), "huge": zeros("INT8", 1, sizeInBytes=2**24 + 1)}
    (finding,) = findings(tmp_path, resources, {"max": hardmax(2, 3)}, [command])
    assert message in finding


def test_command_names_ignore_case(tmp_path: Path) -> None:
    commands = [ROUTE | {"type": "Dispatch", "threadGroupCount": [1, 1, 1]}, {"type": "PRINT", "resource": "out"}]
    assert load_model(tmp_path, IO, {"max": hardmax(2, 3)}, commands).commands[1] == Print("out")


# Files that are not models


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ": the model is empty"),
        (b" ", ":1:2: expected a value; got the end of the text"),
        (b'{"resources": {', ":1:16: expected a name in double quotes or }; got the end of the text"),
        (b"{}\n\xff", ":2: the model must be UTF-8 text; got invalid start byte"),
        (b"PK\x03\x04", ":1:1: expected a value; got 'PK"),
    ],
)
def test_a_file_other_than_json_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "model.json").write_bytes(content)
    with pytest.raises(UnreadableModel) as refused:
        load(tmp_path / "model.json")
    assert str(refused.value).startswith(f"{tmp_path / 'model.json'}{message}")


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("[]", [": must be an object; got []"]),
        ("{}", [f": {name} must be given; got none" for name in ("resources", "dispatchables", "commands")]),
        ('{"resources": [], "dispatchables": {}, "commands": []}', [": resources must be an object; got []"]),
        ('{"resources": {}, "dispatchables": {}, "commands": {}}', [": commands must be a list; got {}"]),
    ],
)
def test_json_other_than_models_is_refused(tmp_path: Path, content: str, messages: list[str]) -> None:
    path = tmp_path / "model.json"
    path.write_text(content)
    with pytest.raises(InvalidModel) as refused:
        load(path)
    assert [str(finding).removeprefix(f"{path}:1") for finding in refused.value.findings] == messages


def test_unusable_files_are_refused_unread(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match=r"no\.json: no such file$") as missing:
        load(tmp_path / "no.json")
    assert isinstance(missing.value, FileNotFoundError)
    assert (missing.value.errno, missing.value.filename) == (errno.ENOENT, str(tmp_path / "no.json"))
    with pytest.raises(UnreadableModel, match="the model must be a regular file") as folder:
        load(tmp_path)
    assert isinstance(folder.value, OSError)
    assert folder.value.errno == errno.EISDIR
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UnreadableModel, match="the model must be a readable file"):
        load(tmp_path / "loop")
    with pytest.raises(
        UnreadableModel, match="the model must be JSON; to run an ONNX model, name it in a dispatchable"
    ):
        load(tmp_path / "x.onnx")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(UnreadableModel, match="the model must hold at most 67108864 bytes; got 1099511627776"):
        load(huge)
    huge.unlink()


@pytest.mark.parametrize(
    ("name", "spelled"),
    [("a b.c", '"a b.c"'), ('\x1b[31m"\n\x7f', '"\\u001b[31m\\"\\n\\u007f"')],
    ids=["odd", "controls"],
)
def test_odd_names_and_escapes_are_quoted(tmp_path: Path, name: str, spelled: str) -> None:
    (finding,) = findings(tmp_path, {name: 3})
    assert finding == f"3: resources[{spelled}] must be an object; got 3"


def test_findings_are_bounded(tmp_path: Path) -> None:
    reported = findings(tmp_path, {}, {}, [3] * 5000)
    assert len(reported) == 1001
    assert reported[-1] == "1004: only 1000 findings are listed; the rest of the model was not read"
    names = {f"r{i}": {"initialValues": [{"type": "INT8", "value": 1}]} for i in range(5000)}
    wrong = {"type": "ACTIVATION_HARDMAX", "desc": {}}
    assert len(findings(tmp_path, names, {"a": wrong}, [{"type": "print", "resource": "unknown"}] * 5000)) == 1001
    assert len(findings(tmp_path, [3] * 999 and {str(i): 3 for i in range(999)}, {"a": wrong})) == 1001


def test_messages_are_bounded(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    resources: dict[str, Any] = {"in": zeros("FLOAT32", 6), "y": listed(long, [1]), "z": listed("INT8", [long])}
    resources |= {long: 3, "f": file(long), "g": listed("INT8", {long: 1}), f"{long[:100]}_": 3}
    operators = {
        "a": {"type": long},
        "b": hardmax(2, 3, input={"Strides": list(range(100_000))}),
        "c": hardmax(2, 3, input={"Sizes": [1] * 100_000}),
        "d": hardmax(2, 3, input={"Flags": long}),
    }
    commands = [{"type": long}, dispatch(long), {"type": "print", "resource": long}, write(f"../{long}")]
    reported = findings(tmp_path, resources, operators, commands)
    assert len(reported) == 13
    assert max(map(len, reported)) < 700


ODD = "a\n  x.json:1: resources must\x1b[31m be\u2028\x7f\x9b"


def test_model_texts_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / f"{ODD}.npy").write_bytes(b"no")
    resources: dict[str, Any] = {
        ODD: zeros("INT8", 1),
        "raw": listed("INT8", {"sourcePath": ODD}),
        "array": {"initialValues": {"sourcePath": f"{ODD}.npy"}},
        "typed": listed(ODD, [1]),
        "fields": listed("INT8", {ODD: 1}),
        "number": listed("INT8", [ODD]),
        "field": zeros("INT8", 1, **{ODD: 1}),
    }
    dispatchables = {
        "type": {"type": ODD},
        "flags": hardmax(2, 3, input={"Flags": ODD, "DataType": ODD}),
        "more": hardmax(2, 3) | {"dmlCompileType": ODD, "executionFlags": [ODD]},
        "bound": hardmax(2, 3) | {"bindings": {ODD: 1}},
        "add": {"type": "ELEMENT_WISE_ADD1", "FusedActivation": {"Type": ODD, ODD: 1}},
    }
    commands = [
        *({"type": "print", "resource": f"{ODD[:-1]}"}, {"type": ODD}, {"type": "dispatch", "dispatchable": ODD}),
        write(ODD, "raw"),
        dispatch("bound", InputTensor=ODD, OutputTensor={"name": ODD, ODD: 1}),
    ]
    path = write_model(tmp_path, resources, dispatchables, commands)
    path = path.rename(tmp_path / f"{ODD}.json")
    with pytest.raises(InvalidModel) as refused:
        load(path)
    problems = [*refused.value.findings, *refused.value.warnings]
    assert len(problems) > 18
    assert all(text.isprintable() for problem in problems for text in (str(problem), problem.path, problem.message))
    assert str(refused.value).count("\n") == len(refused.value.findings) - 1
    with pytest.raises(UnreadableModel) as unread:
        load(tmp_path / f"{ODD}no.json")
    assert str(unread.value).isprintable()


# The models in notebooks/models


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.json")), ids=lambda path: path.stem)
def test_the_models_of_the_repository_are_valid(path: Path) -> None:
    assert not load(path).warnings


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda model: model.dispatchables["rout"],
            "no dispatchable of the model has the name 'rout', did you mean route?",
        ),
        (lambda model: model.resources["X"], "no resource of the model has the name 'X'; the names are 'scores', "),
        (
            lambda model: Execution(model, device="cpu"),
            "device must be a device of JAX; got 'cpu' (use jax.devices('cpu')",
        ),
        (lambda model: Execution(model).run("route"), "repetition must be a Repetition; got 'route'"),  # type: ignore[arg-type]
        (
            lambda model: Execution(model).commands,  # type: ignore[attr-defined]
            "'Execution' has no attribute 'commands'; use execution.model.commands",
        ),
        (lambda model: load("x.json", level="3_0"), "load: got ... 'level' (did you mean feature_level for level?)"),  # type: ignore[call-arg]
        (lambda model: model.run(), "'DispatchModel' has no attribute 'run'; use dmljax.dxdispatch.Execution(model)"),
        (lambda model: model.Commands, "'DispatchModel' has no attribute 'Commands', did you mean commands?"),
    ],
)
def test_what_a_model_lacks_leads_to_what_it_has(use: Any, message: str) -> None:
    with pytest.raises((KeyError, AttributeError, TypeError)) as refused:
        use(load(MODELS / "top1_routing.json"))
    assert re.match(re.escape(message).replace(r"\.\.\.", ".*"), str(refused.value))


def test_a_models_hint_runs_its_commands() -> None:
    model = load(MODELS / "top1_routing.json")
    with pytest.raises(AttributeError) as refused:
        model.run()  # type: ignore[attr-defined]
    results = eval(str(refused.value).partition("; use ")[2], {"dmljax": dmljax, "model": model})
    assert len(results) == len(model.commands)
