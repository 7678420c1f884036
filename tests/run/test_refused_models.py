"""A session refuses models whose types and sizes contradict each other, with ONNX Runtime's classes and first words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import helper

from dmljax.run import onnxruntime as ort

Change = Callable[[onnx.ModelProto], Any]
NEG = "g (float[N] x) => (float[N] y) { y = Neg(x) }"
WORDS = 8  # that dmljax's error and ONNX Runtime's share


def model_of(graph: str, change: Change = lambda model: None) -> bytes:
    imports = '"": 21, "com.microsoft": 1'
    model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {graph}")
    change(model)
    return bytes(model.SerializeToString())


def declare(element: int) -> Change:
    return lambda model: setattr(model.graph.output[0].type.tensor_type, "elem_type", element)


def add_attribute(name: str, value: Any) -> Change:
    return lambda model: model.graph.node[0].attribute.append(helper.make_attribute(name, value))


IF = """g (bool c, float[N] x, int64[N] i) => (float[N] y) {{
    y = If(c) <
        then_branch = t () => (float[N] p) {{ p = {0} }},
        else_branch = e () => ({1}[N] q) {{ q = {2} }}>
}}"""
FAULTS: dict[str, bytes] = {
    "two types": model_of("g (float[N] x, int64[N] i) => (float[N] y) { y = Add(x, i) }"),
    "two types after a cast": model_of("g (float[N] x) => (float[N] y) { [n] c = Cast<to=7>(x)  y = Add(x, c) }"),
    "two types in a list": model_of("g (float[N] x, int64[N] i) => (float[M] y) { y = Concat<axis=0>(x, i) }"),
    "two types of an unused node": model_of("g (float[N] x, int64[N] i) => (float[N] y) { y = Neg(x)  z = Add(x, i) }"),
    "a type that is not allowed": model_of("g (int64[N] x) => (int64[N] y) { y = Softmax(x) }"),
    "a type of indices": model_of("g (float[N] x, float[M] i) => (float[M] y) { y = Gather(x, i) }"),
    "a sequence": model_of("g (seq(float[N]) x) => (seq(float[N]) y) { y = Neg(x) }"),
    "a declared output": model_of(NEG, declare(onnx.TensorProto.INT64)),
    "a declared output of a shape": model_of("g (float[N] x) => (float[K] y) { y = Shape(x) }"),
    "a declared value": model_of(
        "g (float[N] x) => (float[N] y) { a = Neg(x)  y = Neg(a) }",
        lambda model: model.graph.value_info.append(helper.make_tensor_value_info("a", 7, ["N"])),
    ),
    "an undefined type": model_of(NEG, declare(onnx.TensorProto.UNDEFINED)),
    "an input without a type": model_of(NEG, lambda model: model.graph.input[0].ClearField("type")),
    "an attribute that is an integer": model_of(
        "g (float[N] x) => (float[N] y) { y = LeakyRelu(x) }", add_attribute("alpha", 1)
    ),
    "an attribute that is a text": model_of(
        "g (float[N] x) => (float[N] y) { y = Softmax(x) }", add_attribute("axis", "a")
    ),
    "a number that is no type": model_of("g (float[N] x) => (float[N] y) { y = Cast<to=99>(x) }"),
    "a default of another type": model_of(
        NEG, lambda model: model.graph.initializer.append(helper.make_tensor("x", 7, [1], [1]))
    ),
    "a default of another size": model_of(
        NEG.replace("N]", "1]"), lambda model: model.graph.initializer.append(helper.make_tensor("x", 1, [2], [1, 2]))
    ),
    "a fault in a branch": model_of(IF.format("Add(x, i)", "float", "Neg(x)")),
    "branches of two types": model_of(IF.format("Neg(x)", "int64", "Neg(i)")),
    "a fault in a loop": model_of(
        "g (int64 n, int64[N] i, float[N] x) => (float[N] y) { y = Loop(n, , x)"
        "<body = b (int64 t, bool c, float[N] p) => (bool d, float[N] q) { d = Identity(c)  q = Add(p, i) }> }"
    ),
    "sizes": model_of("g (float[2] x, float[3] i) => (float[2] y) { y = Add(x, i) }"),
    "sizes of a product": model_of("g (float[2, 3] x, float[4, 5] w) => (float[2, 5] y) { y = MatMul(x, w) }"),
    "an axis": model_of("g (float[2, 3] x) => (float[A] y) <int64[1] s = {0}> { y = Squeeze(x, s) }"),
    "a circle": model_of("g (float[N] x) => (float[N] y) { y = Add(x, z)  z = Neg(y) }"),
    "a name that two nodes make": model_of("g (float[N] x) => (float[N] y) { y = Neg(x)  y = Abs(x) }"),
    "an unknown name": model_of("g (float[N] x) => (float[N] y) { y = Neg(q) }"),
    "too many outputs": model_of("g (float[N] x) => (float[N] y, float[N] z) { y, z = Add(x, x) }"),
}


def refusal(library: Any, source: Any) -> tuple[str, str]:
    """The class of the error with which a library refuses a model, and its text after the code."""
    with pytest.raises(Exception, match="ONNXRuntimeError") as error:
        library.InferenceSession(source, providers=["CPUExecutionProvider"])
    return error.type.__name__, str(error.value).split(" : ", 3)[3]


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_model_is_refused_as_by_onnx_runtime(name: str) -> None:
    (kind, text), (their_kind, their_text) = (refusal(library, FAULTS[name]) for library in (ort, onnxruntime))
    assert kind == their_kind
    if text.startswith(("Type Error", "Node", "Failed")):
        assert text.split()[:WORDS] == their_text.split()[:WORDS]
    if text.startswith(("This is", "Invalid model")):  # ONNX Runtime goes on with the node's inputs and outputs
        assert text.split()[:2] == their_text.split()[:2]


def test_errors_begin_with_the_path_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (FAULTS["two types"], FAULTS["a type that is not allowed"], b"nothing"):
        path.write_bytes(content)
        theirs = refusal(onnxruntime, str(path))
        assert refusal(ort, str(path))[1][: len(str(path)) + 40] == theirs[1][: len(str(path)) + 40]
    path.unlink()
    assert refusal(ort, str(path))[1].startswith(f"Load model from {path} failed:File doesn't exist")


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[N] x, int64[N] i) => (float[N] y) { y = Pow(x, i) }",
        "g (float[N] x) => (float y) { y = Neg(x) }",
        "g (float[2] x) => (float[3] y) { y = Neg(x) }",
        "g (float[N] x) => (float[N] y) { z = com.microsoft.Gelu(x)  y = Neg(z) }",
        "g (float[N] x) => (float[M] y) { y = Neg(x) }",
        IF.format("Neg(x)", "float", "Cast<to=1>(i)"),
    ],
)
def test_models_that_onnx_runtime_loads_load(graph: str) -> None:
    for library in (ort, onnxruntime):
        library.InferenceSession(model_of(graph), providers=["CPUExecutionProvider"])


def test_a_branch_that_does_not_run_may_be_for_other_sizes() -> None:
    graph = IF.format("Squeeze(x, i)", "float", "Neg(x)").replace("float[N] x, int64[N] i", "float[2] x")
    graph = graph.replace("(float[N] y) {", "(float[N] y) <int64[1] i = {0}> {", 1)
    session = ort.InferenceSession(model_of(graph))
    (result,) = session.run(None, {"c": np.array(False), "x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(result, np.full(2, -1, np.float32))
