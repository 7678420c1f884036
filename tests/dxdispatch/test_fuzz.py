"""Mutated models: dmljax either runs each, or refuses it with an expected error.

The suite draws a few; `pytest --gate tests/dxdispatch/test_fuzz.py --models 50000` draws as many as you ask for.
"""

import contextlib
import io
import json
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from helpers import GATE
from hypothesis import HealthCheck, given, settings, strategies as st
from models import MODELS, dispatch, hardmax, listed, tensor, zeros
from test_serialized import product_with_named_constants

from dmljax.command_line.cli import main
from dmljax.dxdispatch.reading import context, dispatchables
from dmljax.dxdispatch.text import InvalidJson, parse

EVERYTHING = {
    "$schema": "./_schema.json",
    "resources": {
        "list": listed("FLOAT32", [1, 2.5, "nan", "-inf"]),
        "raw": listed("INT8", {"sourcePath": "x.dat"}, sizeInBytes=64, initialValuesOffsetInBytes=16),
        "npy": {"initialValues": {"sourcePath": "x.npy"}},
        "half": listed("FLOAT16", {"valueCount": 6, "valueStart": 0.1, "valueDelta": 0.1}),
        "struct": {"initialValues": [{"name": "n", "type": "UINT32", "value": 1}], "sizeInBytes": 64},
        "out": zeros("FLOAT32", 8),
        "index": zeros("INT64", 2),
        "nibbles": listed("INT4", [1, -8, 7, 0, 3], sizeInBytes=32),
        "more": listed("UINT4", {"valueCount": 7, "valueStart": 13, "valueDelta": 1}),
    },
    "dispatchables": {
        "max": hardmax(2, 2, input={"Flags": "OWNED_BY_DML"}, output={"Strides": [4, 2]})
        | {"bindings": {"InputTensor": "list"}, "executionFlags": ["NONE"], "dmlCompileType": "DmlCompileOp"},
        "band": {
            "type": "DIAGONAL_MATRIX1",
            "InputTensor": None,
            "OutputTensor": tensor("FLOAT16", 2, 3, DimensionCount=2),
            "ValueDataType": "FLOAT16",
            "Value": {"UInt16": 15360},
            "DiagonalFillBegin": -1,
            "DiagonalFillEnd": 2147483647,
        },
        "top": {
            "type": "ARGMAX",
            "desc": {
                "InputTensor": tensor("FLOAT32", 4),
                "OutputTensor": tensor("UINT32", 1),
                "Axes": [0],
                "AxisDirection": "DECREASING",
            },
        },
        "hot": {
            "type": "ONE_HOT",
            "IndicesTensor": {"Type": "BUFFER", "Desc": tensor("INT32", 1, 1)},
            "ValuesTensor": tensor("FLOAT32", 1, 2),
            "OutputTensor": tensor("FLOAT32", 1, 4),
            "Axis": 1,
        },
        "down": {
            "type": "DEQUANTIZE",
            "InputTensor": tensor("INT4", 1, 5),
            "QuantizationType": "SCALE",
            "QuantizationTensors": [tensor("FLOAT32", 1, 1)],
            "OutputTensor": tensor("FLOAT32", 1, 5),
        },
        "graph": {"type": "dmlSerializedGraph", "sourcePath": "x.bin", "executionFlags": "NONE"},
        "again": {"type": "DMLSERIALIZEDGRAPH", "sourcePath": "named.bin"},
    },
    "commands": [
        dispatch("max", OutputTensor={"name": "out", "elementOffset": 1, "elementCount": 4}),
        dispatch("band", OutputTensor=["half"]),
        dispatch("top", InputTensor="list", OutputTensor="index"),
        dispatch("hot", IndicesTensor="index", ValuesTensor="list", OutputTensor="out"),
        dispatch("down", InputTensor="nibbles", QuantizationTensors=["list"], OutputTensor="out"),
        dispatch("graph", x="out", y="list"),
        dispatch("again", x="out", y={"name": "out", "elementOffset": 4}),
        {"type": "print", "resource": "out", "verbose": True},
        {"type": "print", "resource": "raw"},
        {"type": "print", "resource": "nibbles", "verbose": True},
        {"type": "writeFile", "resource": "more", "targetPath": "more.npy", "dimensions": [7]},
        {"type": "writeFile", "resource": "half", "targetPath": "deep/half.npy", "dimensions": [2, 3]},
        {"type": "writeFile", "resource": "out", "targetPath": "out.dat"},
    ],
}
# A model whose nodes compute sizes for each other, with a default for an input, and a smaller one with denotations.
NETWORK = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    f (float[N, 4] x, float[4] w) => (float[N, 4] y, float[M, 2] z, float[N, 4] s)
    <float[4] w = {1, 2, 3, 4}, float[4, 4] m = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
     int64[2] begin = {0, 1}, int64[2] end = {9, 2}, int64[4] pads = {0, 1, 0, 0}, int64[1] k = {2}>
    {
        a = Add (x, w)
        b = Pad <mode = "reflect"> (a, pads)
        c = Slice (b, begin, end)
        z, i = TopK (a, k)
        d = Shape (x)
        e = Expand (c, d)
        g = Gemm <alpha = 0.5, transB = 1> (e, m)
        h = Concat <axis = 1> (a, g)
        r = ReduceMean <keepdims = 1> (h)
        s = Sub (a, r)
        y = Softmax <axis = 1> (a)
    }
""")
SUM = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> f (float[N] a, float[N] b) => (float[N] c) { c = Add (a, b) }'
)
for one in SUM.graph.input:
    one.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"

NETWORKS = {
    "resources": {
        "x": listed("FLOAT32", [1, 2.5, "nan", "-inf", 3, 4, 5, 6]),
        "y": zeros("FLOAT32", 16),
        "z": listed("FLOAT32", "deferred"),
    },
    "dispatchables": {
        "net": {"type": "onnx", "sourcePath": "net.onnx", "freeDimensionNameOverrides": {"N": 2}},
        "sum": {
            "type": "ONNX",
            "sourcePath": "sum.onnx",
            "freeDimensionDenotationOverrides": {"DATA_BATCH": 4},
            "sessionOptionsConfigEntries": {"a": "b"},
            "graphOptimizationLevel": 99,
            "loggingLevel": 2,
        },
    },
    "commands": [
        dispatch("net", x={"name": "x", "shape": [2, 4]}, y="y", z="z"),
        dispatch("sum", a="z", b={"name": "y", "elementOffset": 4}, c="y"),
        dispatch("net", w="x", s={"name": "y", "shape": [2, 4], "elementOffset": 8}),
        {"type": "print", "resource": "z"},
        {"type": "print", "resource": "y", "verbose": True},
    ],
}
VALUES = [parse(path.read_text()).root for path in sorted(MODELS.glob("*.json"))] + [EVERYTHING] * 3 + [NETWORKS] * 2

NPY_FILES = 40  # with mutated headers
GRAPHS = 40  # with mutated bytes

# Values that a mutation puts in place of others
ODD: list[Any] = [
    *(None, True, False, "", [], {}, [[]], {"": None}, "nan", "-INF", "deferred", "\0", "é", "a" * 300),
    *(0, 1, -1, 2, 3, 7, 8, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63, 2**64 - 1, 10**30),
    *(0.0, -0.0, 0.5, 1e-45, 65504.0, 65520.0, 1e39, 1e308, [0], [1, 2], [0] * 9, [-1], [2**32], ["x"], [None]),
    *("FLOAT32", "FLOAT16", "FLOAT64", "INT4", "UNKNOWN", "DML_TENSOR_DATA_TYPE_INT64", "OWNED_BY_DML", "hlsl", "onnx"),
    *("../x", "/etc/passwd", "x/../../y", "C:\\x", ".", "x.npy", "x.dat", "x.png", "no.npy", "/dev/zero"),
    *("a\n  x must be 1; got 2", "\x1b[31m\x7f\u2028", "\n", "a\nb.npy"),
    *("link", "link/x.dat", "link/new", "pipe", "pipe/x", "deep/../link/x.dat"),
    *("print", "dispatch", "writeFile", "list", "out", "max", "ARGMIN", "GATHER_ND1", "ACTIVATION_HARDMAX1"),
    {"valueCount": 2**32 - 1, "value": 0},
    {"valueCount": 5, "valueStart": 250, "valueDelta": 1e30},
    {"sourcePath": "x.npy"},
    {"sourcePath": "cut.npy"},
    *({"sourcePath": f"odd{index}.npy"} for index in range(NPY_FILES)),
    *({"type": "dmlSerializedGraph", "sourcePath": f"odd{index}.bin"} for index in range(GRAPHS)),
    {"type": "dmlSerializedGraph", "sourcePath": "x.bin"},
    {"type": "onnx", "sourcePath": "odd.onnx"},
    {"type": "onnx", "sourcePath": "sum.onnx"},
    *("net.onnx", "odd.onnx", "x.onnx", "pipe.onnx", "net", "sum", "x0", "N", "DATA_BATCH"),
    {"name": "x", "shape": [2, 2]},
    {"name": "y", "shape": [2**20, 2**20]},
    *("x.bin", "odd1.bin", "named.bin", "pipe.bin", "UINT4", "dmlSerializedGraph"),
    {"name": "out", "elementOffset": 2**63},
    {"DataType": "FLOAT32", "Sizes": [2, 2], "Strides": [0, 0]},
    {"Float32": "nan"},
]


def mutated_value(rng: random.Random) -> str:
    """A model as JSON, with some of its parts replaced, removed, renamed, doubled or exchanged."""
    model = json.loads(json.dumps(rng.choice(VALUES)))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        places = list(_places(model))
        if not places:
            break
        container, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1:
                container[key] = _copy(rng.choice(ODD))
            case 2:
                del container[key]
            case 3 if isinstance(container, dict):
                container[rng.choice([key[:-1], key.lower(), key + "s", "Desc", "x"])] = container.pop(key)
            case 3 | 4:
                other, other_key = rng.choice(places)
                container[key], other[other_key] = _copy(other[other_key]), _copy(container[key])
            case 5 if isinstance(container[key], bool | str | None):
                container[key] = [_copy(container[key])] * rng.randint(0, 3)
            case 5 if isinstance(container[key], int | float):
                container[key] += rng.choice([-1, 1, 2, -256, 2**31, 0.5])
            case 5 if isinstance(container[key], list):
                container[key] = container[key] * rng.randint(0, 3)
    return json.dumps(model, indent=rng.choice([None, 1]))


def mutated_network(rng: random.Random) -> str:
    """A model of ONNX models, one of which is the mutated file that `attempt` writes."""
    text = json.dumps(NETWORKS)
    return text.replace(rng.choice(["net.onnx", "sum.onnx"]), "odd.onnx")


def odd_network(rng: random.Random) -> bytes:
    """An ONNX file with some of its fields or bytes replaced, removed or doubled."""
    model = onnx.ModelProto()
    model.CopyFrom(rng.choice([NETWORK, NETWORK, SUM]))
    if rng.randrange(2):
        data = bytearray(model.SerializeToString())
        for _ in range(rng.choice([1, 1, 2, 4])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data[: rng.randrange(len(data)) if rng.randrange(8) == 0 else None])
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        message, field, index = rng.choice(list(_fields(model)))
        value = getattr(message, field.name)
        if index is None:
            message.ClearField(field.name)
            if field.cpp_type != field.CPPTYPE_MESSAGE and rng.randrange(8):
                setattr(message, field.name, _odd_number_or_text(rng, field, value))
        elif rng.randrange(4) == 0:
            del value[index]
        elif field.cpp_type == field.CPPTYPE_MESSAGE:
            value.add().CopyFrom(value[index])
        else:
            value[index] = _odd_number_or_text(rng, field, value[index])
    return bytes(model.SerializeToString())


def _fields(message: Any) -> Any:
    """The fields of a message and of those inside it: each with its index, if it is repeated."""
    for field, value in message.ListFields():
        for index, element in enumerate(value) if hasattr(value, "append") else [(None, value)]:
            yield message, field, index
            if field.cpp_type == field.CPPTYPE_MESSAGE:
                yield from _fields(element)


def _odd_number_or_text(rng: random.Random, field: Any, value: Any) -> Any:
    if isinstance(value, str):
        names = ["", "x", "y", "a", "b", "w", "N", "axes", "to", "Add", "Loop", "If", "Reshape", "Resize", "Range", "é"]
        return rng.choice([*names, value + "1", value[:-1]])
    if isinstance(value, bytes):
        return rng.choice([b"", value[:-1], value * 2, b"\xff" * len(value), rng.randbytes(len(value))])
    if isinstance(value, float):
        return rng.choice([0.0, -1.0, 1e30, float("nan"), float("inf")])
    if field.enum_type:
        return rng.choice([*field.enum_type.values_by_number])
    small = [0, 1, -1, 2, 3, 7, 16, 255, 2**20, 2**31 - 1]
    return rng.choice([*small, 2**40, 2**63 - 1, -(2**63)] if field.cpp_type == field.CPPTYPE_INT64 else small)


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with the files that models name, both intact and mutated."""
    rng = random.Random(5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "x.dat").write_bytes(bytes(range(40)))
        np.save(folder / "x.npy", np.arange(6, dtype="float32"))
        whole = (folder / "x.npy").read_bytes()
        (folder / "cut.npy").write_bytes(whole[:-3])
        for index in range(NPY_FILES):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(80)] = rng.choice(b"0123456789<>|fiuVSO()[],'{} \x00\xff")
            (folder / f"odd{index}.npy").write_bytes(data)
        (folder / "x.png").write_bytes(b"no image")
        os.mkfifo(folder / "pipe.bin")
        (folder / "x.bin").write_bytes((MODELS / "gemm.bin").read_bytes())
        (folder / "named.bin").write_bytes(product_with_named_constants("w"))
        (folder / "w.bin").write_bytes(bytes(range(16)))
        for index in range(GRAPHS):
            data = bytearray((folder / rng.choice(["x.bin", "named.bin"])).read_bytes())
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            (folder / f"odd{index}.bin").write_bytes(data)
        onnx.save(NETWORK, folder / "net.onnx")
        onnx.save(SUM, folder / "sum.onnx")
        (folder / "x.onnx").write_bytes(b"no network")
        os.mkfifo(folder / "pipe.onnx")
        yield folder


def attempt(folder: Path, data: bytes, rng: random.Random) -> str:
    """Runs or checks a model on the command line, which must end with an expected status and output."""
    (folder / "model.json").write_bytes(data)
    (folder / "odd.onnx").write_bytes(odd_network(rng))
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "link").symlink_to("..")
    os.mkfifo(out / "pipe")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    command = rng.choice([["run", "--output_path", str(out)]] * 5 + [["run"], ["run", "--emit", "jaxpr"], ["check"]])
    arguments = [command[0], str(folder / "model.json"), *command[1:], *rng.choice([[], [], ["--json"]])]
    if command[0] == "run":
        arguments += rng.choice([[], ["--fuse"], ["--fuse", "-i", "2"]])
    with (
        contextlib.chdir(out),  # where models write without --output_path
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        status = main(arguments)
    assert status in ((0, 1, 2) if command[0] == "check" else (0, 2))
    assert "--debug" not in errors.getvalue()  # which only unexpected errors suggest
    assert bool(errors.getvalue().replace("warning: ", "")) or status < 2
    assert len(output.getvalue()) + len(errors.getvalue()) < 1_000_000
    if "--json" in arguments:
        report = json.loads(output.getvalue())
        if status == 2:
            assert errors.getvalue().count("\n") == max(1, len(report["findings"])) + warnings_in(errors)
    elif command[0] == "check" and status < 2:
        *findings, summary = output.getvalue().removesuffix("\n").split("\n")
        count = sum(not finding.startswith("warning: ") for finding in findings)
        assert f": {count or 'no'} finding" in summary
    if status == 2 or command[0] == "check":
        lines = (output if status < 2 else errors).getvalue().removesuffix("\n").split("\n")
        assert all(line.isprintable() for line in lines)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    return f"{command[0]} {status}"


def warnings_in(complained: io.StringIO) -> int:
    return sum(line.startswith("warning: ") for line in complained.getvalue().split("\n"))


@pytest.mark.parametrize("mutated", [mutated_value, mutated_network])
@pytest.mark.gate(but=1)
def test_mutated_models_are_run_or_refused(
    mutated: Callable[[random.Random], str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A buffer of two gigabytes is allowed, and takes its time.
    for module in (context, dispatchables):
        monkeypatch.setattr(module, "MAX_RESOURCE_BYTES", 2**20)
    monkeypatch.chdir(folder / "..")  # which has none of the files that models name
    count = pytestconfig.getoption("--models") // 2
    outcomes: Counter[str] = Counter()

    @settings(deadline=None, max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**64 - 1))
    def attempts(seed: int) -> None:
        rng = random.Random(seed)
        outcomes[attempt(folder, mutated(rng).encode(errors="surrogatepass"), rng)] += 1

    attempts()
    with capsys.disabled():
        if count >= 1000:
            print(f"\n{mutated.__name__}: {sum(outcomes.values())} models, {dict(outcomes)}")
    checks = sum(count for outcome, count in outcomes.items() if outcome.startswith("check"))
    assert (
        count < 80 or min(outcomes["run 0"], outcomes["run 2"], checks) > 0
    )  # a few models may include none that runs


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from('{}[]",:/*\\ntfalsebu01-.eE+ \n\x00é')) | st.text())
@GATE
def test_any_text_is_parsed_or_refused(text: str) -> None:
    line = column = 1
    try:
        parse(text)
    except InvalidJson as refused:
        line, column = refused.line, refused.column
    assert 1 <= line <= text.count("\n") + 1
    assert 1 <= column <= len(text) + 1
