"""Serialized graphs in models: bound by the names of their inputs and outputs, and checked like operators."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import needs_x32
from models import MODELS, dispatch, findings, listed, load_model, run, write_model, zeros
from test_serialized import product_with_named_constants

from dmljax import directml, serialized
from dmljax.directml import ElementWiseAddDesc, ElementWiseIdentityDesc, Graph
from dmljax.dxdispatch import Execution, InvalidModel, Repetition, load
from dmljax.dxdispatch.reading import context

TensorDesc: Any = directml.TensorDesc  # which also takes names of data types
DequantizeDesc: Any = directml.DequantizeDesc
GEMM = {"type": "dmlSerializedGraph", "sourcePath": "gemm.bin"}
IO = {"in": listed("FLOAT32", [1, 2, 3, 4]), "out": zeros("FLOAT32", 4)}
RUN = dispatch("product", x="in", y="out")


@pytest.fixture(autouse=True)
def gemm(tmp_path: Path) -> None:
    (tmp_path / "gemm.bin").write_bytes((MODELS / "gemm.bin").read_bytes())


def sums(data_type: str = "FLOAT32", size: int = 4) -> Graph:
    """Two outputs whose names are not in alphabetical order."""
    desc = TensorDesc(data_type, (size,))
    return Graph(
        nodes={
            "sum": ElementWiseAddDesc(a=desc, b=desc, output=desc),
            "copy\n": ElementWiseIdentityDesc(input=desc, output=desc),
        },
        edges={"sum.a": "x", "sum.b": "bias", "copy\n.input": "x"},
        inputs={"x": desc},
        outputs={"the sum": "sum.output", "a copy": "copy\n.output"},
        constants={"bias": np.arange(size).astype(desc.dtype)},
    )


def test_graphs_are_bound_by_input_and_output_names(tmp_path: Path) -> None:
    model = load_model(tmp_path, IO, {"product": GEMM}, [RUN])
    execution = run(model)
    assert execution.values("out").tolist() == [10, 21, 0, 0]  # [1, 2] @ [[1, 3], [2, 4]] + [10, 20] / 2
    assert model.dispatchables["product"](np.array([[[[1, 2]]]], "float32")).ravel().tolist() == [10, 21]


@pytest.mark.parametrize("type_name", ["dmlSerializedGraph", "DMLSERIALIZEDGRAPH"])
@pytest.mark.parametrize("field", ["type", "Type"])
def test_outputs_go_where_their_names_say(field: str, type_name: str, tmp_path: Path) -> None:
    serialized.save(sums(), tmp_path / "sums.bin")
    resources = IO | {"other": zeros("FLOAT32", 8)}
    bindings: dict[str, Any] = {"x": "in", "the sum": "out", "a copy": {"name": "other", "elementOffset": 4}}
    graph = {field: type_name, "sourcePath": "sums.bin", "executionFlags": "NONE"}
    model = load_model(tmp_path, resources, {"sums": graph}, [dispatch("sums", **bindings)])
    assert not model.warnings
    execution = Execution(model)
    for repetition in (Repetition(), Repetition(iterations=2, runs=2)):
        execution.result(0, repetition)
        assert execution.values("out").tolist() == [1, 3, 5, 7]
        assert execution.values("other").tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    assert execution.compile("sums") is execution.compile("sums")


def test_constants_are_found_next_to_the_graph(tmp_path: Path) -> None:
    """As in DxDispatch's guide, whose models have a folder for each graph."""
    folder = tmp_path / "inputs" / "deep"
    folder.mkdir(parents=True)
    (folder / "Partition_0.bin").write_bytes(product_with_named_constants("weights"))
    (folder / "weights.bin").write_bytes(np.array([[0, 10], [1, 0]], "float32").tobytes())
    product = GEMM | {"sourcePath": "deep\\Partition_0.bin"}  # as models from Windows spell it
    model = load_model(tmp_path, IO, {"product": product}, [RUN], input_path=tmp_path / "inputs")
    execution = run(model)
    assert execution.values("out").tolist() == [2, 10, 4, 30]


def test_constants_of_4_bits_are_read_as_the_operators_do(tmp_path: Path) -> None:
    narrow, wide, scale = TensorDesc("INT4", (1, 5)), TensorDesc("FLOAT32", (1, 5)), TensorDesc("FLOAT32", (1, 1))
    scaled = DequantizeDesc(input=narrow, quantization_type="SCALE", quantization_tensors=[scale], output=wide)
    graph = Graph(
        nodes={"scaled": scaled},
        edges={"scaled.input": "weights", "scaled.quantization_tensors[0]": "scale"},
        inputs={"scale": scale},
        outputs={"y": "scaled.output"},
        constants={"weights": np.array([[-8, 7, 0, 1, -1]], narrow.dtype)},
    )
    serialized.save(graph, tmp_path / "scaled.bin")
    resources = {"scale": listed("FLOAT32", [0.5]), "y": zeros("FLOAT32", 5)}
    commands = [dispatch("scaled", scale="scale", y="y")]
    model = load_model(tmp_path, resources, {"scaled": GEMM | {"sourcePath": "scaled.bin"}}, commands)
    execution = run(model)
    assert execution.values("y").tolist() == [-4, 3.5, 0, 0.5, -0.5]


@pytest.mark.parametrize(
    ("graph", "bindings", "message"),
    [
        ({}, {"x": "in"}, "commands[0].bindings.y must be bound; got none"),
        ({}, {"x": "small", "y": "out"}, "commands[0].bindings.x must have 8 bytes; got 4, in 'small' from byte 0 on"),
        ({}, {"x": ["in", "in"], "y": "out"}, "commands[0].bindings.x must have 1 resource; got 2"),
        ({}, {"x": "im", "y": "out"}, "commands[0].bindings.x.name must be a resource of the model; got 'im'"),
        ({"sourcePath": 3}, {}, "dispatchables.product.sourcePath must be a name; got 3"),
        ({"sourcePath": None}, {}, "dispatchables.product.sourcePath must be given; got none"),
        ({"sourcePath": "no.bin"}, {}, "dispatchables.product.sourcePath must be a readable file; got"),
        ({"sourcePath": "pipe"}, {}, "dispatchables.product.sourcePath must be a regular file; got"),
        ({"sourcePath": "huge.bin"}, {}, "dispatchables.product.sourcePath must hold at most 2147483648 bytes; got"),
        (
            {"sourcePath": "model.json"},
            {},
            "dispatchables.product.sourcePath must be a DirectML serialized graph; its offsets ",
        ),
        ({"sourcePath": "lost.bin"}, {}, "dispatchables.product.sourcePath.nodes[0] must be a readable file"),
        ({"sourcePath": "piped.bin"}, {}, "dispatchables.product.sourcePath.nodes[0] must be a regular file; got"),
        ({"sourcePath": "nul.bin"}, {}, "dispatchables.product.sourcePath.nodes[0] must be a readable file"),
        ({"sourcePath": "away.bin"}, {}, "sourcePath.nodes[0]: a constant's name must be a plain file name"),
        ({"executionFlags": "FAST"}, {"x": "in", "y": "out"}, "product.executionFlags must be one of NONE"),
    ],
)
def test_invalid_graphs_are_refused_with_the_reason(graph: Any, bindings: Any, message: str, tmp_path: Path) -> None:
    for pipe in ("pipe", "in_pipe.bin"):
        os.mkfifo(tmp_path / pipe)
    for name, constant in (("lost", "lost"), ("piped", "in_pipe"), ("nul", "a\0b"), ("away", "../gemm")):
        (tmp_path / f"{name}.bin").write_bytes(product_with_named_constants(constant.replace("lost", "nowhere")))
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(2**40)
    resources = IO | {"small": listed("FLOAT32", [1])}
    (finding,) = findings(tmp_path, resources, {"product": GEMM | graph}, [dispatch("product", **bindings)])
    assert message in finding
    (tmp_path / "huge.bin").unlink()


def test_the_rules_of_operators_hold_inside_graphs(tmp_path: Path) -> None:
    model = write_model(tmp_path, IO, {"product": GEMM}, [RUN | {"bindings": {"x": "unknown", "y": "out"}}])
    data = product_with_named_constants("w").replace(b"DATA_TYPE_FLOAT32", b"DATA_TYPE_UINT32\0")
    (tmp_path / "gemm.bin").write_bytes(data.replace(b"\x1c\0\0\0DML_TENSOR", b"\x1b\0\0\0DML_TENSOR"))
    (tmp_path / "w.bin").write_bytes(bytes(16))
    with pytest.raises(InvalidModel, match=r"product.sourcePath.nodes.gemm.GEMM.ATensor.DataType must be"):
        load(model)
    serialized.save(sums("INT64"), tmp_path / "gemm.bin")
    with pytest.raises(InvalidModel) as refused:
        load(model, feature_level="1_0")
    first, *others = map(str, refused.value.findings)
    place = "dispatchables.product.sourcePath.nodes.sum.ELEMENT_WISE_ADD"
    assert f"{place}.ATensor.DimensionCount must be 4 to 5; got 1" in first
    assert "(at DML_FEATURE_LEVEL_1_0)" in first
    assert any(
        "commands[0].bindings.x.name must be a resource of the model; got 'unknown'" in message for message in others
    )


def test_unknown_names_of_a_graph_give_a_warning(tmp_path: Path) -> None:
    graph = GEMM | {"bindings": {"weights": "in"}}  # which DxDispatch overwrites
    model = load_model(tmp_path, IO, {"product": graph}, [RUN | {"bindings": {"x": "in", "y": "out", "Y": "out"}}])
    assert [f"{warning.path} {warning.message}" for warning in model.warnings] == [
        "dispatchables.product.bindings unknown field 'bindings' is ignored; known fields are type, Type, sourcePath, "
        "executionFlags",
        "commands[0].bindings.Y unknown field 'Y' is ignored; known fields are x, y, did you mean y?",
    ]


def test_outputs_of_a_graph_must_not_overlap(tmp_path: Path) -> None:
    serialized.save(sums(), tmp_path / "sums.bin")
    graph = GEMM | {"sourcePath": "sums.bin"}
    commands = [dispatch("sums", **{"x": "in", "the sum": "out", "a copy": "out"})]
    (finding,) = findings(tmp_path, IO, {"sums": graph}, commands)
    assert 'commands[0].bindings["a copy"] must not overlap ["the sum"]; got both in \'out\'' in finding


def test_graphs_count_toward_a_models_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (tmp_path / "gemm.bin").stat().st_size
    monkeypatch.setattr(context, "MAX_MODEL_BYTES", 3 * size)
    (finding,) = findings(tmp_path, {}, dict.fromkeys("abcd", GEMM))
    assert f"dispatchables.d.sourcePath must hold at most 0 bytes; got {size} in" in finding


@needs_x32
def test_a_64_bit_graph_says_which_switch_it_needs(tmp_path: Path) -> None:
    serialized.save(sums("INT64"), tmp_path / "sums.bin")
    model = load_model(tmp_path, {}, {"sums": GEMM | {"sourcePath": "sums.bin"}})
    with pytest.raises(InvalidModel, match=r"dispatchables.sums.nodes.sum.*--x64 on the command line; got INT64"):
        Execution(model)
