"""DirectML's serialized graphs survive a round trip, and any broken file raises one clear error."""

import os
import random
import struct
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import SAMPLED, assert_same_bits

from dmljax import DmlError, directml, serialized
from dmljax.directml import Graph, InvalidDesc
from dmljax.examples import examples_of
from dmljax.graphs.flatbuffer import Packed, build

TensorDesc: Any = directml.TensorDesc
GemmDesc: Any = directml.GemmDesc
MODELS = Path(__file__).parents[2] / "notebooks" / "models"
ROW, MATRIX = TensorDesc("FLOAT32", (1, 1, 1, 2)), TensorDesc("FLOAT32", (1, 1, 2, 2))
WEIGHTS = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 2, 2)
BIAS = np.array([10, 20], np.float32).reshape(1, 1, 1, 2)


def product(**more: Any) -> Graph:
    """A product of matrices with constants, and a ReLU."""
    gemm = GemmDesc(a=ROW, b=MATRIX, c=ROW, output=ROW, trans_a="NONE", trans_b="TRANSPOSE", alpha=1, beta=0.5)
    relu = directml.ActivationReluDesc(input=ROW, output=ROW)
    members: dict[str, Any] = {
        "nodes": {"gemm": gemm, "relu": relu},
        "edges": {"gemm.a": "x", "gemm.b": "weights", "gemm.c": "bias", "relu.input": "gemm.output"},
        "inputs": {"x": ROW},
        "constants": {"weights": WEIGHTS, "bias": BIAS},
        "outputs": {"y": "relu.output"},
    }
    return Graph(**members | more)


def parsed(data: bytes) -> Graph:
    return serialized.parse(data, lambda name: {"weights": WEIGHTS, "bias": BIAS}[name].tobytes())


def normal(desc: Any) -> Any:
    """A desc whose tensors state their sizes in bytes, as those in files do, and have no flags."""
    json = directml.to_json(desc)
    for value in json["Desc"].values():
        for tensor in value if isinstance(value, list) else [value]:
            if isinstance(tensor, dict) and "Sizes" in tensor:
                read = TensorDesc(tensor["DataType"], tensor["Sizes"], tensor.get("Strides"))
                tensor["TotalTensorSizeInBytes"] = tensor.get("TotalTensorSizeInBytes", read.minimum_size_in_bytes)
                tensor.pop("Flags", None)
                tensor.pop("GuaranteedBaseOffsetAlignment", None)
    return json


# Both ways


def test_a_graph_is_read_back_and_computes_the_same(tmp_path: Path) -> None:
    graph = product()
    serialized.save(graph, tmp_path / "graph.bin")
    read = serialized.load(tmp_path / "graph.bin")
    assert (dict(read.edges), dict(read.outputs)) == (dict(graph.edges), dict(graph.outputs))
    assert serialized.serialize(read) == (tmp_path / "graph.bin").read_bytes()
    x = np.array([1, -1], np.float32).reshape(1, 1, 1, 2)
    expected = np.maximum(x @ np.swapaxes(WEIGHTS, 2, 3) + BIAS / 2, 0)
    assert_same_bits(directml.lower(read)(x), expected)


def test_constants_of_4_bits_are_packed_two_to_a_byte() -> None:
    input, scale = TensorDesc("INT4", (1, 3)), TensorDesc("FLOAT32", (1, 1))
    node = directml.DequantizeDesc(
        input=input,
        quantization_type=directml.QuantizationType.SCALE,
        quantization_tensors=(scale,),
        output=TensorDesc("FLOAT32", (1, 3)),
    )
    graph = Graph(
        nodes={"node": node},
        edges={"node.input": "weights", "node.quantization_tensors[0]": "scale"},
        inputs={"scale": scale},
        constants={"weights": input.read(bytes([0xF1, 0x08]))},
        outputs={"y": "node.output"},
    )
    read = serialized.parse(serialized.serialize(graph), lambda name: b"")
    assert_same_bits(read.constants["weights"], graph.constants["weights"])
    assert_same_bits(directml.lower(read)(np.full((1, 1), 2, np.float32)), np.array([[2, -2, -16]], np.float32))


def test_constants_may_lie_beside_the_graph(tmp_path: Path) -> None:
    with_names = product_with_named_constants("weights")
    (tmp_path / "graph.bin").write_bytes(with_names)
    (tmp_path / "weights.bin").write_bytes(WEIGHTS.tobytes())
    assert_same_bits(serialized.load(tmp_path / "graph.bin").constants["weights"], WEIGHTS)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(InvalidDesc, match=r"nodes\[0\] must be a readable file; got .*weights.bin") as missing:
        serialized.load(tmp_path / "graph.bin")
    assert isinstance(missing.value, FileNotFoundError)
    assert missing.value.filename == str(tmp_path / "weights.bin")
    with pytest.raises(FileNotFoundError):
        serialized.load(tmp_path / "none.bin")


def test_a_file_larger_than_its_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    data = product_with_named_constants("weights")
    (tmp_path / "graph.bin").write_bytes(data)
    (tmp_path / "weights.bin").write_bytes(WEIGHTS.tobytes())
    whole = len(data) + WEIGHTS.nbytes
    serialized.load(tmp_path / "graph.bin", max_bytes=whole)
    rule = rf"serialized graph: nodes\[0\] must hold at most {WEIGHTS.nbytes - 1} bytes; got {WEIGHTS.nbytes} in "
    with pytest.raises(InvalidDesc, match=rule + r"'.*weights.bin' \(max_bytes of load counts all files together\)"):
        serialized.load(tmp_path / "graph.bin", max_bytes=whole - 1)
    with pytest.raises(InvalidDesc, match=r"serialized graph: must hold at most 8 bytes; got .* in '.*graph.bin'"):
        serialized.load(tmp_path / "graph.bin", max_bytes=8)
    with pytest.raises(InvalidDesc, match="max_bytes must be in"):
        serialized.load(tmp_path / "graph.bin", max_bytes=-1)
    with (tmp_path / "sparse.bin").open("wb") as file:
        file.truncate(2**33)  # takes no room on the disk
    with pytest.raises(InvalidDesc, match="must hold at most 4294967296 bytes; got 8589934592 in"):
        serialized.load(tmp_path / "sparse.bin")


def test_a_pipe_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "weights.bin")  # opening it would wait for a writer
    (tmp_path / "graph.bin").write_bytes(product_with_named_constants("weights"))
    for name in ("graph.bin", "weights.bin"):
        with pytest.raises(InvalidDesc, match=r"serialized graph: .*must be a regular file; got '.*weights.bin'"):
            serialized.load(tmp_path / name)


def test_a_null_byte_in_a_file_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.bin").write_bytes(product_with_named_constants("a\0b"))
    with pytest.raises(InvalidDesc, match=r"nodes\[0\] must be a readable file; got .*null (byte|character)"):
        serialized.load(tmp_path / "graph.bin")
    with pytest.raises(InvalidDesc, match=r"serialized graph: must be a readable file; got .*null (byte|character)"):
        serialized.load("a\0b")


@pytest.mark.parametrize("name", ["../weights", "a/b", "/etc/passwd", "..", ""])
def test_a_constant_cannot_escape_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "graph.bin").write_bytes(product_with_named_constants(name))
    with pytest.raises(InvalidDesc, match=r"a constant's name must be a plain file name|must be a readable file"):
        serialized.load(tmp_path / "graph.bin")


def product_with_named_constants(name: str) -> bytes:
    """A graph of one product whose weights are a file of that name, as the schema has it."""
    tensor = {4: "DML_TENSOR_DATA_TYPE_FLOAT32", 6: np.array([1, 1, 2, 2], np.uint32), 10: ("Q", 16)}
    attributes = [
        {4: "TransA", 6: ("B", 3), 8: Packed("I", (0,))},
        {4: "TransB", 6: ("B", 3), 8: Packed("I", (0,))},
        {4: "Alpha", 6: ("B", 6), 8: Packed("f", (1.0,))},
        {4: "Beta", 6: ("B", 6), 8: Packed("f", (1.0,))},
        {6: ("B", 1)},
    ]
    gemm = {4: "DML_OPERATOR_GEMM", 6: [tensor, tensor], 8: [tensor], 10: attributes}
    constant = {4: ("B", 1), 6: {4: name}}
    nodes = [
        {4: ("B", 2), 6: constant, 8: "weights", 12: ["edge"]},
        {4: ("B", 1), 6: gemm, 8: "gemm", 10: ["x", "edge", ""], 12: ["y"]},
    ]
    return build({4: nodes, 6: ["x"], 8: ["y"]})


def test_an_edge_may_have_several_readers_and_be_an_output() -> None:
    graph = product(outputs={"product": "gemm.output", "y": "relu.output"})
    read = parsed(serialized.serialize(graph))
    assert dict(read.outputs) == dict(graph.outputs)
    assert dict(read.edges) == dict(graph.edges)


def test_a_constant_has_the_type_of_its_first_reader() -> None:
    flat = TensorDesc("FLOAT32", (1, 1, 1, 4))
    graph = product(
        nodes={
            "first": directml.ActivationReluDesc(input=MATRIX, output=MATRIX),
            "second": directml.ActivationReluDesc(input=flat, output=flat),
        },
        edges={"first.input": "weights", "second.input": "weights"},
        inputs={},
        constants={"weights": WEIGHTS},
        outputs={"y": "first.output", "z": "second.output"},
    )
    read = parsed(serialized.serialize(graph))
    assert_same_bits(read.constants["weights"], WEIGHTS)
    assert_same_bits(directml.lower(read)()["z"], WEIGHTS.reshape(1, 1, 1, 4))


def test_a_constant_of_other_bytes_is_read_as_bytes() -> None:
    half = product(constants={"weights": WEIGHTS.view(np.uint16).reshape(8), "bias": BIAS})
    assert_same_bits(parsed(serialized.serialize(half)).constants["weights"], WEIGHTS)
    rows = TensorDesc("FLOAT32", (1, 1, 2, 2), (0, 0, 0, 1))
    gemm = GemmDesc(a=ROW, b=rows, output=ROW, trans_a="NONE", trans_b="NONE", alpha=1, beta=0)
    strided = Graph(
        nodes={"gemm": gemm},
        edges={"gemm.a": "x", "gemm.b": "row"},
        inputs={"x": ROW},
        constants={"row": BIAS},
        outputs={"y": "gemm.output"},
    )
    read = parsed(serialized.serialize(strided))
    assert read.constants["row"].dtype == np.uint8
    x = np.array([1, 2], np.float32).reshape(1, 1, 1, 2)
    assert_same_bits(directml.lower(read)(x), directml.lower(strided)(x))


@SAMPLED
@pytest.mark.parametrize("operator", directml.OPERATORS)
def test_each_operator_is_read_back(operator: str) -> None:
    for example in examples_of(directml.OPERATORS[operator]):
        desc = example.desc
        if directml.find_broken_rules(desc):
            continue
        inputs = {
            f"x{i}": TensorDesc(leaf.tensor.data_type, leaf.tensor.sizes, leaf.tensor.strides)
            for i, leaf in enumerate(desc.leaves(is_input=True))
        }
        graph = Graph(
            nodes={"node": desc},
            edges={f"node.{leaf.key}": f"x{i}" for i, leaf in enumerate(desc.leaves(is_input=True))},
            inputs=inputs,
            outputs={f"y{i}": f"node.{leaf.key}" for i, leaf in enumerate(desc.leaves(is_input=False))},
        )
        read = parsed(serialized.serialize(graph))
        assert directml.to_json(read.nodes["node"]) == normal(desc)
        assert (dict(read.edges), dict(read.outputs)) == (dict(graph.edges), dict(graph.outputs))


def test_flatbuffers_reads_what_is_written() -> None:
    flatbuffers = pytest.importorskip("flatbuffers")
    types = flatbuffers.number_types
    data = bytearray(serialized.serialize(product()))
    assert b"gemm\0" in data  # C reads a string up to its zero

    def table(position: int) -> Any:
        return flatbuffers.table.Table(data, position)

    def at(one: Any, slot: int) -> int:
        return int(one.Pos + one.Offset(slot))

    def texts(one: Any, slot: int) -> list[str]:
        first = one.Vector(one.Offset(slot))
        return [one.String(first + 4 * i).decode() for i in range(one.VectorLen(one.Offset(slot)))]

    def tables(one: Any, slot: int) -> list[Any]:
        first = one.Vector(one.Offset(slot))
        return [table(one.Indirect(first + 4 * i)) for i in range(one.VectorLen(one.Offset(slot)))]

    root = table(flatbuffers.encode.Get(flatbuffers.packer.uoffset, data, 0))
    assert (texts(root, 6), texts(root, 8)) == (["x"], ["y"])
    weights, _, gemm, _ = tables(root, 4)
    assert weights.Get(types.Uint8Flags, at(weights, 4)) == 2
    raw = table(table(weights.Indirect(at(weights, 6))).Pos)
    content = table(raw.Indirect(at(raw, 6)))
    first, count = content.Vector(content.Offset(4)), content.VectorLen(content.Offset(4))
    assert bytes(data[first : first + count]) == WEIGHTS.tobytes()
    assert (texts(gemm, 10), texts(gemm, 12)) == (["x", "weights", "bias"], ["gemm.output"])
    operator = table(gemm.Indirect(at(gemm, 6)))
    assert operator.String(at(operator, 4)) == b"DML_OPERATOR_GEMM"
    tensor = tables(operator, 6)[1]
    assert tensor.Get(types.Uint64Flags, at(tensor, 10)) == 16
    assert at(tensor, 10) % 8 == 0  # aligned
    attributes = {one.String(at(one, 4)): one for one in tables(operator, 10) if one.Offset(4)}
    beta = attributes[b"Beta"]
    assert beta.Get(types.Uint8Flags, at(beta, 6)) == 6
    assert beta.Get(types.Float32Flags, beta.Indirect(at(beta, 8))) == 0.5
    transposed = attributes[b"TransB"]
    assert transposed.Get(types.Uint32Flags, transposed.Indirect(at(transposed, 8))) == 1


def test_numbers_are_aligned_to_their_sizes() -> None:
    values = [(10.0**i, 2**40 + i) for i in range(4)]
    tables = [{4: "odd" * i, 6: ("B", 1), 8: ("Q", large), 10: ("f", small)} for i, (small, large) in enumerate(values)]
    data = build({4: tables})
    for small, large in values:
        assert data.index(struct.pack("<Q", large)) % 8 == 0
        assert data.index(struct.pack("<f", small)) % 4 == 0


# Identities


@pytest.mark.parametrize(
    ("change", "nodes"),
    [
        ({"inputs": {"x": TensorDesc("FLOAT32", (2,))}}, ["x identity", "gemm", "relu"]),
        ({"inputs": {"x": TensorDesc("FLOAT32", (1, 1, 1, 2), (9, 9, 2, 1))}}, ["x identity", "gemm", "relu"]),
        ({"inputs": {"unread": ROW, "x": ROW}}, ["unread identity", "gemm", "relu"]),
        ({"views": {"y": TensorDesc("FLOAT32", (2, 3), (0, 0))}}, ["gemm", "relu", "y identity"]),
        ({"outputs": {"y": "relu.output", "z": "relu.output", "g": "gemm.output"}}, ["gemm", "relu", "z identity"]),
    ],
    ids=str,
)
@pytest.mark.gate(but=1)
def test_identities_express_what_the_file_format_cannot(change: Any, nodes: list[str]) -> None:
    graph = product(**change)
    data = serialized.serialize(graph)
    read = parsed(data)
    assert list(read.nodes) == nodes
    assert [tensor.sizes for tensor in read.inputs.values()] == [tensor.sizes for tensor in graph.inputs.values()]
    assert serialized.serialize(read) == data
    arrays = {name: np.arange(1, 3, dtype=np.float32).reshape(tensor.sizes) for name, tensor in graph.inputs.items()}
    expected = directml.lower(graph)(**arrays)
    results = directml.lower(read)(**arrays)
    assert list(read.outputs) == list(graph.outputs)
    jax.tree.map(assert_same_bits, results, expected)


# Refusals


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": {"x": "relu.output"}}, r"outputs\.x must have a unique name; got x"),
        (
            {"inputs": {"x": TensorDesc("FLOAT32", (2,), (3,))}},
            r"inputs\.x must be packed, or its first reader must use the same desc; got FLOAT32 \{2\} strides \{3\}",
        ),
        (
            {"inputs": {"x": ROW, "few": TensorDesc("INT4", (2,))}},
            r"inputs\.few.*InputTensor.DataType must be one of .*; got INT4",
        ),
        ({"edges": {}}, "GEMM.ATensor must have an edge"),
    ],
    ids=str,
)
def test_graphs_that_a_file_cannot_express_are_not_written(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidDesc, match=message):
        serialized.save(product(**change), tmp_path / "graph.bin")
    assert not list(tmp_path.iterdir())


def constant(name: str, *edges: str) -> Any:
    return {4: ("B", 2), 6: {4: ("B", 2), 6: {4: np.zeros(4, np.uint8)}}, 8: name, 12: list(edges)}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "offsets must be within the 0 bytes of the file"),
        (b"\x04\0\0\0", "offsets must be within the 4 bytes"),
        (b"\xff" * 40, "offsets must be within"),
        (b"\x04\0\0\0\x10\0\0\0", "offsets must be within the 8 bytes of the file; got -12"),
        (build({8: ["name"]}).replace(b"name", b"nam\xe9"), "text must be UTF-8; got b'nam"),
        (build({4: [constant("a"), constant("a")]}), r"nodes\[1\].name must be unique among nodes; got a"),
        (
            build({4: [constant("a", "e"), constant("b", "e")]}),
            r"nodes\[1\].outputNames must be unique among inputs and outputs",
        ),
        (build({8: ["y"]}), "graphOutputNames must name outputs of nodes; got y"),
        (build({6: ["x"]}), "graphInputNames must each be read by a node; got x"),
        (bytes(64), "must be a DirectML serialized graph, but has no nodes"),
        (build({4: [{4: ("B", 1)}]}), r"nodes\[0\].desc: node node_0 has no desc"),
        (build({4: [{4: ("B", 1), 6: {4: "DML_OPERATOR_NONE"}}]}), "unknown operator 'DML_OPERATOR_NONE'"),
        (
            build({4: [{4: ("B", 2), 6: {4: ("B", 7)}}]}),
            r"nodes\[0\]\.data must be a constant's name \(kind 1\) or its bytes",
        ),
        (build({4: [{4: ("B", 1), 6: {4: "DML_OPERATOR_ACTIVATION_RELU"}}]}), "InputTensor: no name"),
    ],
    ids=str,
)
def test_a_wrong_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DmlError, match=f"serialized graph: .*{message}"):
        parsed(data)


def test_excessive_sharing_of_parts_is_refused() -> None:
    count, text = 5000, "x" * 10_000
    data = bytearray(build({8: [""] * count + [text]}))
    vector = data.index((count + 1).to_bytes(4, "little")) + 4
    target = data.index(text.encode()) - 4
    for i in range(count):  # all offsets lead to the last string
        data[vector + 4 * i : vector + 4 * i + 4] = (target - vector - 4 * i).to_bytes(4, "little")
    with pytest.raises(InvalidDesc, match="too many offsets lead to the same parts of the file"):
        parsed(bytes(data))


def test_mutated_files_raise_a_single_kind_of_error(pytestconfig: pytest.Config) -> None:
    rng = random.Random(6)
    originals = [serialized.serialize(product()), product_with_named_constants("weights")]
    survivors = 0
    for _ in range(pytestconfig.getoption("--models") * 5):
        data = bytearray(rng.choice(originals))
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at : at + 4] = rng.choice((0, 1, 2**31, 2**32 - 1, 65535)).to_bytes(4, "little")
                case 2:
                    del data[at : at + rng.randrange(1, 9)]
                case 3:
                    data[at : at + 4] = data[rng.randrange(len(data)) :][:4]
            if not data:
                data = bytearray(1)
        try:
            graph = parsed(bytes(data))
            directml.find_broken_rules(graph)
            survivors += 1
        except (DmlError, KeyError):  # names no constant
            pass
    assert survivors
