"""Small ONNX models, as the tests write them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

DOMAINS = {"com.microsoft": 1, "com.microsoft.dml": 1}
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, element_type: int, sizes: Sequence[int | str | None] | None) -> Any:
    return helper.make_tensor_value_info(name, element_type, sizes)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    functions: Sequence[Any] = (),
    domains: Mapping[str, int] | None = None,
    ir_version: int = 10,
) -> onnx.ModelProto:
    """A model of these nodes, whose outputs may be names or have types."""
    typed = [
        output if isinstance(output, onnx.ValueInfoProto) else onnx.ValueInfoProto(name=output) for output in outputs
    ]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, typed, tensors)
    imports = [helper.make_opsetid(domain, version) for domain, version in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=ir_version)


def small_network() -> onnx.ModelProto:
    """A convolution, a pooling and a product, with an open batch and, as exporters write them, computed sizes."""
    random = np.random.default_rng(0)
    constants = {
        "filter": random.standard_normal((4, 3, 3, 3)).astype("float32"),
        "matrix": random.standard_normal((16, 5)).astype("float32"),
        "bias": random.standard_normal(5).astype("float32"),
        "zero": np.array(0),
        "axis": np.array([0]),
        "rest": np.array([-1]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "filter"], ["c"], name="/features/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["batches"]),
        helper.make_node("Concat", ["batches", "rest"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["p", "sizes"], ["rows"]),
        helper.make_node("Gemm", ["rows", "matrix", "bias"], ["y"]),
    ]
    return model(nodes, [value("x", FLOAT, ["n", 3, 4, 4])], ["y"], constants)


def one_node(
    operator: str, inputs: Any, outputs: Any = 1, *, domain: str = "com.microsoft", version: int = 17, **attributes: Any
) -> Any:
    """A model of one node; `outputs` is their number, or whether each is present."""
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = [f"y{i}" if is_there else "" for i, is_there in enumerate(wanted)]
    node = helper.make_node(operator, names, made, domain=domain, **attributes)
    types = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    graph = helper.make_graph([node], "g", types, [onnx.ValueInfoProto(name=name) for name in made if name])
    imports = [helper.make_opsetid(name, version) for name, version in {"": version, **DOMAINS}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def by_onnxruntime(model: Any, arrays: Sequence[Any], threads: int = 0) -> list[Any]:
    """The outputs of a model, or of the one in a file, by ONNX Runtime, by default with a thread for each core."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip((x.name for x in session.get_inputs()), arrays, strict=True))))
