"""Resources of INT4 and UINT4: two values to a byte, the first in the low half."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import dispatch, findings, listed, load_model, run, tensor, write_file, zeros

from dmljax.dxdispatch import DispatchModel, Execution
from dmljax.dxdispatch.printing import json_values, print_pieces, result_json


def bytes_and_values(model: DispatchModel, name: str = "x") -> tuple[str, list[int]]:
    return model.resources[name].buffer().tobytes().hex(), Execution(model).values(name).tolist()


@pytest.mark.parametrize(
    ("data_type", "given", "stored", "expected"),
    [
        ("UINT4", [1, 2, 15, 0, 3, 4, 5, 6], "210f4365", [1, 2, 15, 0, 3, 4, 5, 6]),
        ("INT4", [1, -8, 7, -1], "81f70000", [1, -8, 7, -1]),
        ("DML_TENSOR_DATA_TYPE_INT4", [-1, -2, -3], "ef0d0000", [-1, -2, -3]),
        ("UINT4", [9], "09000000", [9]),
        ("INT4", {"valueCount": 5, "value": -3}, "dddd0d00", [-3] * 5),
        ("UINT4", {"valueCount": 6, "valueStart": 13, "valueDelta": 1}, "ed0f2100", [13, 14, 15, 0, 1, 2]),
        ("INT4", {"valueCount": 4, "valueStart": 6, "valueDelta": 1}, "76980000", [6, 7, -8, -7]),
        ("INT4", {"valueCount": 3, "valueStart": -7, "valueDelta": -1}, "89070000", [-7, -8, 7]),
    ],
)
def test_initial_values_may_have_every_form(
    data_type: str, given: Any, stored: str, expected: list[int], tmp_path: Path
) -> None:
    model = load_model(tmp_path, {"x": listed(data_type, given)})
    assert bytes_and_values(model) == (stored, expected)


def test_sizes_and_offsets_count_bytes(tmp_path: Path) -> None:
    resource = listed("UINT4", [1, 2, 3], sizeInBytes=5, initialValuesOffsetInBytes=1)
    assert bytes_and_values(load_model(tmp_path, {"x": resource})) == ("0021030000", [0, 0, 1, 2, 3])
    (finding,) = findings(tmp_path, {"x": listed("UINT4", [1, 2, 3], sizeInBytes=1)})
    assert "sizeInBytes must be at least 2, for 2 bytes of initialValues from byte 0 on; got 1" in finding


def test_files_hold_packed_bytes_or_one_byte_per_element(tmp_path: Path) -> None:
    (tmp_path / "x.dat").write_bytes(bytes([0x21, 0x8F]))
    model = load_model(tmp_path, {"x": listed("INT4", {"sourcePath": "x.dat"})})
    assert bytes_and_values(model) == ("218f0000", [1, 2, -1, -8])
    np.save(tmp_path / "x.npy", np.array([[1, -8, 7]], "int8"))
    model = load_model(tmp_path, {"x": listed("INT4", {"sourcePath": "x.npy"})})
    assert bytes_and_values(model) == ("81070000", [1, -8, 7])


@pytest.mark.parametrize(
    ("data_type", "array", "message"),
    [
        ("INT4", np.array([1], "uint8"), "must hold INT8 for INT4 to match initialValuesDataType; got UINT8"),
        ("UINT4", np.array([1], "int32"), "must hold UINT8 for UINT4 to match initialValuesDataType; got INT32"),
        ("INT4", np.array([7, 8], "int8"), "sourcePath must hold values in [-8, 7]; got 8"),
        ("INT4", np.array([-9], "int8"), "sourcePath must hold values in [-8, 7]; got -9"),
        ("UINT4", np.array([16], "uint8"), "sourcePath must hold values in [0, 15]; got 16"),
    ],
)
def test_invalid_files_are_refused_with_the_reason(data_type: str, array: Any, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    (finding,) = findings(tmp_path, {"x": listed(data_type, {"sourcePath": "x.npy"})})
    assert message in finding


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 16], "initialValues[1] must be a whole number in [0, 15] for UINT4; got 16"),
        ([1.0], "initialValues[0] must be a whole number in [0, 15] for UINT4; got 1.0"),
        ({"valueCount": 2, "value": -1}, "initialValues.value must be a whole number in [0, 15] for UINT4; got -1"),
        ({"valueCount": 2, "valueStart": 0, "valueDelta": -1}, "initialValues.valueDelta must be a whole number in"),
        ({"valueCount": 2**32 - 1, "value": 1}, "initialValues.valueCount must take at most 2147483648 bytes"),
    ],
)
def test_invalid_values_are_refused_with_the_reason(given: Any, message: str, tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, {"x": listed("UINT4", given)})
    assert message in finding


def test_integers_of_4_bits_are_printed_as_numbers(tmp_path: Path) -> None:
    execution = Execution(load_model(tmp_path, {"x": listed("INT4", [0, -8, 7, 5, -1]), "y": listed("UINT4", [15])}))
    values = execution.values("x")
    assert "".join(print_pieces("x", values, verbose=False)) == "Resource 'x': 0, -8, 7, 5, -1"
    lines = "".join(print_pieces("x", values, verbose=True)).splitlines()
    assert lines == ["Resource 'x':", "[0] 0 (0x0)", "[1] -8 (0x8)", "[2] 7 (0x7)", "[3] 5 (0x5)", "[4] -1 (0xF)"]
    assert "".join(print_pieces("y", execution.values("y"), verbose=True)) == "Resource 'y':\n[0] 15 (0xF)\n"
    assert json_values(values) == [0, -8, 7, 5, -1]


def test_buffers_are_written_packed_or_one_byte_per_element(tmp_path: Path) -> None:
    commands = [write_file("x.dat"), write_file("x.npy", dimensions=[1, 3]), write_file("all.npy")]
    resources = {"x": listed("INT4", [1, -8, 7]), "y": listed("UINT4", [15, 1])}
    commands.append(write_file("y.npy", "y", dimensions=[2]))
    model = load_model(tmp_path, resources, {}, [*commands, {"type": "print", "resource": "x"}])
    execution = Execution(model, output_path=tmp_path)
    results = [execution.result(index) for index in range(5)]
    assert (tmp_path / "x.dat").read_bytes() == bytes([0x81, 0x07, 0, 0])
    all_of_x = [1, -8, 7, 0, 0, 0, 0, 0]
    for name, dtype, expected in (("x", "int8", [[1, -8, 7]]), ("all", "int8", all_of_x), ("y", "uint8", [15, 1])):
        array = np.load(tmp_path / f"{name}.npy")
        assert (array.dtype, array.tolist()) == (np.dtype(dtype), expected)
    assert result_json(results[4], 0) == {"type": "print", "resource": "x", "data_type": "INT4", "values": [1, -8, 7]}
    (finding,) = findings(tmp_path, resources, {}, [write_file("x.npy", dimensions=[9])])
    assert "commands[0].dimensions must describe at most 8 elements; got (9,)" in finding


def test_operators_read_and_write_buffers_of_4_bits(tmp_path: Path) -> None:
    """Offsets of bindings count elements, two to a byte."""
    integers, floats, scale = tensor("INT4", 1, 3), tensor("FLOAT32", 1, 3), [tensor("FLOAT32", 1, 1)]
    scheme = {"QuantizationType": "SCALE", "QuantizationTensors": scale}
    resources = {
        "x": listed("INT4", [0] * 32 + [1, -8, 7]),
        "scale": listed("FLOAT32", [0.5]),
        "floats": zeros("FLOAT32", 3),
        "again": listed("INT4", [5] * 5, sizeInBytes=8),
    }
    dispatchables = {
        "down": {"type": "DEQUANTIZE", "InputTensor": integers, **scheme, "OutputTensor": floats},
        "up": {"type": "QUANTIZE", "InputTensor": floats, **scheme, "OutputTensor": integers},
    }
    source = {"name": "x", "elementOffset": 32}
    commands = [
        dispatch("down", InputTensor=source, QuantizationTensors=["scale"], OutputTensor="floats"),
        dispatch("up", InputTensor="floats", QuantizationTensors=["scale"], OutputTensor="again"),
    ]
    model = load_model(tmp_path, resources, dispatchables, commands)
    assert not model.warnings
    execution = run(model)
    assert execution.values("floats").tolist() == [0.5, -4, 3.5]
    assert execution.values("again").tolist() == [1, -8, 7, 5, 5]
    commands[0]["bindings"]["InputTensor"] = {"name": "x", "elementOffset": 31}
    (finding,) = findings(tmp_path, resources, dispatchables, commands)
    assert "InputTensor.elementOffset must be even for elements of 4 bits; got 31" in finding
    commands[0]["bindings"]["InputTensor"] = {"name": "x", "elementOffset": 31, "elementSizeInBytes": 1}
    assert findings(tmp_path, resources, dispatchables, commands)[0].endswith("got 0, in 'x' from byte 31 on")
