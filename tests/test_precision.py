"""The precision of products: JAX's in functions and ONNX models, full for what DirectML promises in FLOAT32."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from helpers import SAMPLED, f32
from onnx import helper
from onnx_models import FLOAT, model, value

import dmljax
from dmljax import directml, pydirectml
from dmljax.dxdispatch.networks import SizedNetwork
from dmljax.onnx import load

MATRIX = jax.ShapeDtypeStruct((4, 4), np.float32)
IMAGE = jax.ShapeDtypeStruct((1, 4, 8, 8), np.float32)
FILTER = jax.ShapeDtypeStruct((4, 4, 3, 3), np.float32)
TOKENS = jax.ShapeDtypeStruct((1, 8, 4), np.float32)
GATES, STATES = jax.ShapeDtypeStruct((1, 16, 4), np.float32), jax.ShapeDtypeStruct((1, 16, 4), np.float32)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gemm": (dmljax.gemm, (MATRIX, MATRIX)),
    "convolution": (dmljax.convolution, (IMAGE, FILTER)),
    "multihead_attention": (lambda x, **given: dmljax.multihead_attention(x, x, x, head_count=2, **given), (TOKENS,)),
    "lstm": (lambda x, w, r, **given: dmljax.lstm(x, w, r, **given)[0], (TOKENS, GATES, STATES)),
}


def precisions(function: Callable[..., Any], *types: Any) -> set[str]:
    """The precisions of all products in the program for a TPU."""
    text = jax.export.export(jax.jit(function), platforms=["tpu"])(*types).mlir_module()
    products = [line for line in text.splitlines() if re.search(r"stablehlo\.(dot_general|convolution)", line)]
    assert products
    return {(re.findall(r"HIGHEST|HIGH", line) or ["DEFAULT"])[0] for line in products}


@SAMPLED
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_jaxs_precision(name: str) -> None:
    function, types = FUNCTIONS[name]
    assert precisions(function, *types) == {"DEFAULT"}
    assert precisions(lambda *given: function(*given, precision="highest"), *types) == {"HIGHEST"}
    with jax.default_matmul_precision("high"):
        assert precisions(function, *types) == {"HIGH"}
        assert precisions(lambda *given: function(*given, precision="default"), *types) == {"DEFAULT"}


def product_model() -> onnx.ModelProto:
    matrices = [value(name, FLOAT, [4, 4]) for name in "abc"]
    return model([helper.make_node("MatMul", ["a", "b"], ["c"])], matrices[:2], matrices[2:])


def directml_programs() -> Iterator[tuple[str, Callable[..., Any]]]:
    gemm = directml.GemmDesc(
        a=f32(1, 1, 4, 4), b=f32(1, 1, 4, 4), output=f32(1, 1, 4, 4), trans_a="NONE", trans_b="NONE", alpha=1, beta=0
    )
    yield "a descriptor", directml.lower(gemm)
    graph = directml.Graph(
        nodes={"product": gemm},
        edges={"product.a": "a", "product.b": "b"},
        inputs=dict.fromkeys("ab", f32(1, 1, 4, 4)),
        outputs={"c": "product.output"},
    )
    yield "a graph", directml.lower(graph)
    builder = pydirectml.GraphBuilder(pydirectml.Device(False))
    tensor = pydirectml.TensorDesc(pydirectml.TensorDataType.FLOAT32, [1, 1, 4, 4])
    a, b = (pydirectml.input_tensor(builder, i, tensor) for i in range(2))
    yield "PyDirectML", builder.build(pydirectml.ExecutionFlags.NONE, [pydirectml.gemm(a, b)]).function
    yield (
        "an ONNX model in a DxDispatch model",
        SizedNetwork(load(product_model()), dict.fromkeys("ab", jax.ShapeDtypeStruct((4, 4), np.float32))),
    )


@SAMPLED
@pytest.mark.parametrize(("name", "function"), [*directml_programs()])
def test_directml_programs_compute_in_full_precision_unless_jax_is_set(name: str, function: Any) -> None:
    sizes = (4, 4) if "ONNX" in name else (1, 1, 4, 4)
    types = [jax.ShapeDtypeStruct(sizes, np.float32)] * 2
    assert precisions(lambda a, b: function(a, b), *types) == {"HIGHEST"}
    with jax.default_matmul_precision("bfloat16"):
        assert precisions(lambda a, b: function(a, b), *types) == {"DEFAULT"}


def test_onnx_models_take_jaxs_precision() -> None:
    loaded = load(product_model())
    assert precisions(lambda a, b: loaded(a, b), MATRIX, MATRIX) == {"DEFAULT"}
    with jax.default_matmul_precision("highest"):
        assert precisions(lambda a, b: loaded(a, b), MATRIX, MATRIX) == {"HIGHEST"}


def test_algorithms_are_taken_and_the_setting_is_read_at_each_call() -> None:
    algorithm = jax.lax.DotAlgorithmPreset.TF32_TF32_F32
    exported = jax.export.export(jax.jit(lambda a, b: dmljax.gemm(a, b, precision=algorithm)), platforms=["cuda"])(
        MATRIX, MATRIX
    )
    assert "tf32" in exported.mlir_module()
    a = np.ones((2, 2), np.float32)
    dmljax.gemm(a, a)
    with jax.default_matmul_precision("bfloat16"):
        assert "Precision.DEFAULT" in str(jax.make_jaxpr(dmljax.gemm)(a, a))
    assert "Precision" not in str(jax.make_jaxpr(dmljax.gemm)(a, a))
