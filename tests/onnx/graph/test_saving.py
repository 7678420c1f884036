"""Files that a model writes with trained weights, which ONNX Runtime reads the same way."""

import errno
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from helpers import GATE
from onnx import TensorProto, helper, numpy_helper
from onnx_models import FLOAT, by_onnxruntime, model, small_network, value

import dmljax.onnx
from dmljax import DmlError
from dmljax.onnx.graph import saving

PICTURE = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype("float32")


@GATE
def test_a_trained_model_runs_in_onnx_runtime(tmp_path: Path) -> None:
    network = dmljax.onnx.load(small_network())
    grads = jax.grad(lambda weights: jnp.sum(network.apply(weights, PICTURE) ** 2))(network.weights)
    trained = jax.tree.map(lambda weight, grad: weight - 0.01 * grad, network.weights, grads)
    network.save(tmp_path / "trained.onnx", trained)
    expected = network.apply(trained, PICTURE)
    np.testing.assert_allclose(by_onnxruntime(tmp_path / "trained.onnx", [PICTURE])[0], expected, rtol=1e-5, atol=1e-5)
    again = dmljax.onnx.load(tmp_path / "trained.onnx")
    assert list(again.weights) == list(network.weights)
    np.testing.assert_array_equal(again(PICTURE), jax.jit(lambda x: again(x))(PICTURE))
    np.testing.assert_allclose(again(PICTURE), expected, rtol=1e-5, atol=1e-5)


def test_nothing_else_of_the_file_changes(tmp_path: Path) -> None:
    proto = small_network()
    proto.metadata_props.add(key="license", value="none")
    original = proto.SerializeToString()
    network = dmljax.onnx.load(proto)
    network.save(tmp_path / "same.onnx")
    assert onnx.load(tmp_path / "same.onnx").SerializeToString() == original == proto.SerializeToString()


def test_weights_are_saved_wherever_the_file_has_them(tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([4.0], "float32"), "sparse"), numpy_helper.from_array(np.array([1]), ""), [3]
    )
    constant = numpy_helper.from_array(np.array([1, 2, 3], "float32"))
    nodes = [
        helper.make_node("Constant", [], ["constant"], value=constant),
        helper.make_node("Sum", ["x", "sparse", "constant"], ["y"]),
    ]
    proto = model(nodes, [value("x", FLOAT, [3])], ["y"])
    proto.graph.sparse_initializer.append(sparse)
    network = dmljax.onnx.load(proto)
    network.save(tmp_path / "new.onnx", {"sparse": jnp.float32([1, 2, 3]), "constant": jnp.float32([10, 20, 30])})
    again = dmljax.onnx.load(tmp_path / "new.onnx")
    np.testing.assert_array_equal(again(np.zeros(3, "float32")), [11, 22, 33])


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_the_file_keeps_its_types(dtype: Any, tmp_path: Path) -> None:
    weight = (np.arange(2000) % 8).astype(dtype)
    nodes = [helper.make_node("Cast", ["w"], ["y"], to=FLOAT)]
    proto = model(nodes, [], [value("y", FLOAT, [2000])], {"w": weight}, opset=23)
    network = dmljax.onnx.load(proto)
    network.save(tmp_path / "saved.onnx")  # without 64-bit types, JAX holds float64 as float32
    (saved,) = onnx.load(tmp_path / "saved.onnx").graph.initializer
    assert saved.data_type == proto.graph.initializer[0].data_type
    np.testing.assert_array_equal(numpy_helper.to_array(saved), weight)


def test_external_data_is_moved_into_the_new_file(tmp_path: Path) -> None:
    proto = small_network()
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    network = dmljax.onnx.load(tmp_path / "model.onnx")
    (tmp_path / "weights").unlink()
    network.save(tmp_path / "whole.onnx")
    expected = network(PICTURE)
    np.testing.assert_allclose(by_onnxruntime(tmp_path / "whole.onnx", [PICTURE])[0], expected, rtol=1e-5, atol=1e-5)


def test_weights_too_large_for_protobuf_go_into_an_external_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmljax.onnx.graph.saving.MAX_FILE_BYTES", saving.OTHER_BYTES)
    matrix = np.arange(4096, dtype="float32").reshape(64, 64)
    proto = model([helper.make_node("MatMul", ["x", "m"], ["y"])], [value("x", FLOAT, [1, 64])], ["y"], {"m": matrix})
    for _ in range(2):  # the second replaces both files
        dmljax.onnx.load(proto).save(tmp_path / "large.onnx")
    assert (tmp_path / "large.onnx.data").stat().st_size == matrix.nbytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data"]
    again = dmljax.onnx.load(tmp_path / "large.onnx")
    np.testing.assert_array_equal(again.weights["m"], matrix)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"bias": jnp.zeros(5)}, "onnx: weights must have the same names as model.weights; got no filter"),
        ({"bias": jnp.zeros(6)}, "onnx: weights.bias must have shape (5,); got (6,)"),
        ({"bias": jnp.zeros(5, "bfloat16")}, "must be float32; got bfloat16 (weights['bias'].astype('float32'))"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: Any, message: str, tmp_path: Path) -> None:
    network = dmljax.onnx.load(small_network())
    all_weights = {**network.weights, **weights} if "no filter" not in message else weights
    with pytest.raises(DmlError, match=re.escape(message)):
        network.save(tmp_path / "refused.onnx", all_weights)
    assert not [*tmp_path.iterdir()]


def test_tensors_inside_nodes_are_embedded(tmp_path: Path) -> None:
    """Including those in subgraphs, which are not weights."""
    tensor = TensorProto(name="c", data_type=FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, entry in {"location": "beside", "offset": "0", "length": "8"}.items():
        tensor.external_data.add(key=key, value=entry)
    (tmp_path / "beside").write_bytes(np.array([1, 2], "float32").tobytes())
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=tensor)], "branch", [], [value("c", FLOAT, [2])]
    )
    node = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    proto = model([node], [value("x", TensorProto.BOOL, [])], [value("y", FLOAT, [2])])
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    network = dmljax.onnx.load(tmp_path / "model.onnx")
    (tmp_path / "beside").unlink()
    network.save(tmp_path / "whole.onnx")
    np.testing.assert_array_equal(dmljax.onnx.load(tmp_path / "whole.onnx")(True), [1, 2])


def test_a_place_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", FLOAT, [1])], ["y"], {})
    with pytest.raises(DmlError, match="path must be a file, not a folder; got '"):
        dmljax.onnx.load(proto).save(tmp_path)
    with pytest.raises(DmlError, match=r"path must be a file in a folder that exists; got '.*nowhere"):
        dmljax.onnx.load(proto).save(tmp_path / "nowhere" / "model.onnx")


@pytest.mark.parametrize("is_large", [False, True], ids=["one file", "two files"])
def test_a_full_disk_leaves_the_old_model(is_large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, weights = helper.make_node("Mul", ["x", "w"], ["y"]), {"w": np.ones(400, "f")}
    proto = model([node], [value("x", FLOAT, [1])], ["y"], weights)
    network, path = dmljax.onnx.load(proto), tmp_path / "model.onnx"
    network.save(path)
    before = path.read_bytes()
    if is_large:
        monkeypatch.setattr("dmljax.onnx.graph.saving.MAX_FILE_BYTES", saving.OTHER_BYTES)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        network.save(path, {"w": jnp.zeros(400, "f")})
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory use from Linux")
@GATE
def test_a_loaded_model_has_its_weights_once(tmp_path: Path) -> None:
    size = 2**27
    weight = np.ones(size // 4, np.float32)
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], [value("x", FLOAT, [1])], ["y"], {"w": weight})
    onnx.save(proto, tmp_path / "large.onnx")
    program = """
import ctypes, gc, sys, jax, dmljax.onnx
def bytes_held():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
jax.numpy.ones(3).block_until_ready()
before = bytes_held()
model = dmljax.onnx.load(sys.argv[1])
model.weights["w"].block_until_ready()
print(bytes_held() - before)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "large.onnx"], check=True, capture_output=True, text=True
    )
    assert size <= int(run.stdout) < 1.5 * size
