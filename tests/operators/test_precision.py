"""The precision of products: JAX's in functions and ONNX models, full for what DirectML promises in FLOAT32."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from helpers import GATE, SAMPLED, f32, few_of
from onnx import helper
from onnx_models import FLOAT, model, value
from operator_calls import differentiable_call, float_call

import dmljax
from dmljax import directml, pydirectml
from dmljax.directml import OPERATORS
from dmljax.dxdispatch.networks import SizedNetwork
from dmljax.lowerings.numbers.few_bits import Weights, multiply_by_weights
from dmljax.onnx import load

MATRIX = jax.ShapeDtypeStruct((4, 4), np.float32)
IMAGE = jax.ShapeDtypeStruct((1, 4, 8, 8), np.float32)
FILTER = jax.ShapeDtypeStruct((4, 4, 3, 3), np.float32)
TOKENS = jax.ShapeDtypeStruct((1, 8, 4), np.float32)
GATES, STATES = jax.ShapeDtypeStruct((1, 16, 4), np.float32), jax.ShapeDtypeStruct((1, 16, 4), np.float32)
Types = tuple[Any, ...]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Types]] = {
    "gemm": (dmljax.gemm, (MATRIX, MATRIX)),
    "convolution": (dmljax.convolution, (IMAGE, FILTER)),
    "multihead_attention": (lambda x, **given: dmljax.multihead_attention(x, x, x, head_count=2, **given), (TOKENS,)),
    "lstm": (lambda x, w, r, **given: dmljax.lstm(x, w, r, **given)[0], (TOKENS, GATES, STATES)),
}


def precisions(function: Callable[..., Any], *types: Any, platforms: tuple[str, ...] = ("tpu",)) -> set[str]:
    """The precisions of all products of floats in the program for these platforms."""
    text = jax.export.export(jax.jit(function), platforms=platforms)(*types).mlir_module()
    products = [line for line in text.splitlines() if re.search(r"stablehlo\.(dot_general|convolution)", line)]
    of_floats = (line for line in products if not re.search(r": \(tensor<(\w+x)*u?i\d+>", line))
    return {(re.findall(r"HIGHEST|HIGH", line) or ["DEFAULT"])[0] for line in of_floats}


# Transformations run their rules when the call, and the setting that it saw, are over.


def transformed(function: Callable[..., Any], inputs: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """A function of a tree of floats under every transformation; its results are a list of floats."""

    def loss(floats: Any) -> Any:
        return sum(jnp.sum(x * x) for x in function(floats))

    def push(function: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda floats: jax.jvp(function, (floats,), (floats,))

    yield "value", function
    yield "jvp", push(function)
    yield "linearize", lambda floats: jax.linearize(function, floats)[1](floats)
    yield "vjp", jax.grad(loss)
    yield "value and gradient", jax.value_and_grad(loss)
    yield "second derivative", push(jax.grad(loss))
    yield "checkpoint", jax.grad(jax.checkpoint(loss))
    yield "scan", jax.grad(lambda floats: jax.lax.scan(lambda sum, _: (sum + loss(floats), None), 0.0, length=2)[0])
    for key in inputs:
        batched = jax.vmap(jax.grad(loss), ({name: 0 if name == key else None for name in inputs},))
        yield f"vmap of {key}", partial(_with_two, batched, (key,))
    yield "vmap of all", partial(_with_two, jax.vmap(jax.grad(loss)), tuple(inputs))


def _with_two(batched: Callable[[Any], Any], keys: tuple[str, ...], floats: dict[str, Any]) -> Any:
    return batched(floats | {key: jnp.stack([floats[key]] * 2) for key in keys})


def precisions_when_transformed(
    function: Callable[..., Any], inputs: Any, *, has_second: bool = True
) -> dict[str, set[str]]:
    """The precisions of all products by transformation, for three platforms."""
    every = dict(transformed(jax.jit(function), inputs))
    if not has_second:
        del every["second derivative"]
    return {name: precisions(program, inputs, platforms=("cpu", "cuda", "tpu")) for name, program in every.items()}


# Integers of 8 bits, and sums of their products, which every precision holds
EXACT = {"CONVOLUTION_INTEGER", "QUANTIZED_LINEAR_CONVOLUTION"}


@pytest.mark.parametrize(
    "operator", few_of(OPERATORS, "DML_OPERATOR_CONVOLUTION", "DML_OPERATOR_MULTIHEAD_ATTENTION", "DML_OPERATOR_GRU")
)
@GATE
def test_descriptors_keep_full_precision_under_every_transformation(operator: str) -> None:
    if operator.removeprefix("DML_OPERATOR_") in EXACT:
        return
    function, floats = float_call(operator)
    assert precisions(function, floats) <= {"HIGHEST"}
    differentiable, floats = differentiable_call(operator)
    every = precisions_when_transformed(differentiable, floats, has_second=operator != "DML_OPERATOR_ROI_ALIGN")
    assert {name: names for name, names in every.items() if not names <= {"HIGHEST"}} == {}


@pytest.mark.parametrize("name", few_of(FUNCTIONS, "convolution"))
def test_functions_keep_the_setting_of_their_call_under_every_transformation(name: str) -> None:
    function, types = FUNCTIONS[name]

    def of_arrays(arrays: dict[str, Any]) -> list[Any]:
        with jax.default_matmul_precision("high"):
            return [function(*arrays.values())]

    inputs = {str(i): np.ones(type_.shape, type_.dtype) for i, type_ in enumerate(types)}
    every = precisions_when_transformed(of_arrays, inputs)
    assert {name: precisions for name, precisions in every.items() if precisions != {"HIGH"}} == {}


def attention_of_16_bits(x: Any) -> Any:
    return dmljax.multihead_attention(x, x, x, head_count=2)


def product_with_4_bits(x: Any) -> Any:
    weights = Weights(jnp.ones((16, 8, 16), np.uint8), jnp.ones((16, 8), np.float16), jnp.ones((1, 1), np.uint8))
    return multiply_by_weights(x[0], weights, 4)


@pytest.mark.parametrize("function", [attention_of_16_bits, product_with_4_bits])
@pytest.mark.gate(but=1)
def test_operations_with_kernels_keep_the_setting_of_their_call(function: Callable[[Any], Any]) -> None:
    """They become a kernel, or in exported programs the formula, when the program is lowered."""

    @jax.jit
    def of_call(x: Any) -> Any:
        with jax.default_matmul_precision("high"):
            return function(x).astype(np.float32)

    one, three = (jax.ShapeDtypeStruct((*batch, 1, 128, 256), np.float16) for batch in ((), (3,)))
    gradient = jax.grad(lambda x: jnp.sum(of_call(x)))
    for program, x in ((of_call, one), (gradient, one), (jax.vmap(of_call), three), (jax.vmap(gradient), three)):
        assert precisions(program, x, platforms=("cuda",)) == {"HIGH"}


# One call


@SAMPLED
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_jaxs_precision(name: str) -> None:
    function, types = FUNCTIONS[name]
    assert precisions(function, *types) == {"DEFAULT"}
    assert precisions(lambda *arrays: function(*arrays, precision="highest"), *types) == {"HIGHEST"}
    with jax.default_matmul_precision("high"):
        assert precisions(function, *types) == {"HIGH"}
        assert precisions(lambda *arrays: function(*arrays, precision="default"), *types) == {"DEFAULT"}


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
