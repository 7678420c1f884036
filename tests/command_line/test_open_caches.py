"""Open sizes of caches, which `dmljax run` and `dmljax compile` find by themselves."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from helpers import FULL, GATE
from onnx import helper
from onnx_models import DOMAINS, FLOAT, model, small_network, value
from small_language_models import KEY_HEADS, LAYERS, SIZE, VOCABULARY, language_proto

import dmljax.onnx
from dmljax.command_line.cli import main
from dmljax.command_line.onnx.open_caches import OpenCaches, open_caches

TOTALS = {"total": ("past", "length")}


def with_open_caches() -> onnx.ModelProto:
    """The small language model as GenAI's builder writes it, with a name for each size of a cache."""
    proto = language_proto()
    for tensor in proto.graph.input:
        if tensor.name.startswith("past_key_values"):
            _, heads, _, size = tensor.type.tensor_type.shape.dim
            heads.dim_param, size.dim_param = "heads", "size"
    return proto


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("open") / "model.onnx"
    onnx.save(with_open_caches(), path)
    return str(path)


def test_attention_decides_the_sizes_of_caches() -> None:
    caches = open_caches(dmljax.onnx.load(with_open_caches()))
    assert caches == OpenCaches({"heads": KEY_HEADS, "size": SIZE}, TOTALS)
    assert open_caches(dmljax.onnx.load(language_proto())) == OpenCaches({}, TOTALS)
    assert open_caches(dmljax.onnx.load(small_network())) == OpenCaches({}, {})


def test_sizes_from_the_user_come_first() -> None:
    caches = OpenCaches({"size": 16}, TOTALS)
    assert caches.with_sizes({}) == {"size": 16, "total": 2}
    assert caches.with_sizes({"past": 7}, 3) == {"size": 16, "past": 7, "total": 10}
    assert caches.with_sizes({"total": 9, "size": 8}) == {"size": 8, "total": 9}


def of_attention(operator: str, query: Any, others: Any, **attributes: Any) -> onnx.ModelProto:
    """A model of one attention, whose two last inputs are the caches; names of inputs are those of their sizes."""
    sizes = [query, *others, ["b", "h", "p", "s"], ["b", "h", "p", "t"]]
    names = ["" if size is None else f"x{i}" for i, size in enumerate(sizes)]
    inputs = [value(name, FLOAT, size) for name, size in zip(names, sizes, strict=True) if size is not None]
    constants = {}
    if operator == "GroupQueryAttention":
        constants = {"last": np.array([3], np.int32), "total": np.array(4, np.int32)}
    node = helper.make_node(operator, [*names, *constants], ["y"], domain="com.microsoft", **attributes)
    return model([node], inputs, ["y"], constants, domains=DOMAINS)


@pytest.mark.parametrize(
    ("proto", "sizes"),
    [
        (of_attention("GroupQueryAttention", ["b", "q", 40], [None, None], num_heads=3, kv_num_heads=1), (1, 8, 8)),
        (
            of_attention(
                "GroupQueryAttention", ["b", "q", 32], [["b", "q", 16]] * 2, num_heads=4, kv_num_heads=2,
                kv_cache_bit_width=4,
            ),
            (2, 4, 4),
        ),
        (
            of_attention(
                "MultiHeadAttention", ["b", "q", 8], [["b", "q", 8], ["b", "q", 6], None, None, None], num_heads=2
            ),
            (2, 4, 3),
        ),
    ],
    ids=["packed", "of 4 bits", "of several heads"],
)  # fmt: skip
def test_heads_have_the_size_of_new_keys_and_values(proto: onnx.ModelProto, sizes: tuple[int, int, int]) -> None:
    assert open_caches(dmljax.onnx.load(proto)).decided == dict(zip("hst", sizes, strict=True))


@GATE
def test_a_model_with_open_caches_runs(path: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["run", path, "--compare", "onnxruntime", "--json"]) == 0
    report = json.loads(out.getvalue())
    assert (
        report["outputs"]["present.0.key"]["type"] == f"float32[1,{KEY_HEADS},2,{SIZE}]"
    )  # a past token, and a new one
    assert max(report["differences"].values()) < 1e-3


@GATE
def test_an_artifact_takes_any_past(path: str, tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    assert main(["compile", path, "--for", "cpu", "-o", str(file)]) == 0
    exported = jax.export.deserialize(bytearray(file.read_bytes()))
    assert str(exported.in_avals[1].shape[1]) in ("past + length", "length + past")
    random = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    past, length = 5, 3
    caches = [random.standard_normal((1, KEY_HEADS, past, SIZE)).astype(np.float32) for _ in range(2 * LAYERS)]
    mask, tokens = np.ones((1, past + length), np.int64), random.integers(0, VOCABULARY, (1, length))
    inputs: list[Any] = [tokens, mask, past + np.arange(length)[None], *caches]
    names = (x.name for x in session.get_inputs())
    expected = session.run(None, dict(zip(names, inputs, strict=True)))
    types = (x.dtype for x in exported.in_avals)
    results = exported.call(*(x.astype(dtype) for x, dtype in zip(inputs, types, strict=True)))
    for actual, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, other, rtol=1e-3, atol=1e-3)


@FULL
def test_an_artifact_takes_sizes_from_the_user(path: str, tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    options = ["-f", "length:1", "-f", "past:6", "-o", str(file)]
    assert main(["compile", path, "--for", "cpu", *options]) == 0
    exported = jax.export.deserialize(bytearray(file.read_bytes()))
    assert [aval.shape[1] for aval in exported.in_avals[:3]] == [1, 7, 1]
