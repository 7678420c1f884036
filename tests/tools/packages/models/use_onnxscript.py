# /// script
# dependencies = ["onnxscript", "numpy"]
# ///
"""Calls script functions eagerly, which runs a session for each operator, and the models made from them."""

# ruff: noqa: F821, SIM108  # names of sizes, and an If of ONNX

import numpy as np
import onnxruntime as ort
from onnxscript import FLOAT, opset18 as op, script


@script()
def normalize(x: FLOAT["N", 4], scale: FLOAT[4]) -> FLOAT["N", 4]:
    mean = op.ReduceMean(x, op.Constant(value_ints=[1]), keepdims=1)
    centered = x - mean
    variance = op.ReduceMean(centered * centered, op.Constant(value_ints=[1]), keepdims=1)
    return centered / op.Sqrt(variance + 1e-5) * scale


@script()
def count(x: FLOAT["N"]) -> FLOAT["N"]:
    total = op.CumSum(x, op.Constant(value_int=0))
    if op.ReduceSum(x, keepdims=0) > 3.0:
        result = op.Neg(total)
    else:
        result = op.Identity(total)
    return result


x = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
scale = np.array([1, 2, 0.5, -1], np.float32)
print(normalize(x, scale))
for row in (np.ones(2, np.float32), np.ones(5, np.float32)):
    print(count(row))
session = ort.InferenceSession(normalize.to_model_proto().SerializeToString(), providers=["CPUExecutionProvider"])
print([(one.name, one.type, one.shape) for one in (*session.get_inputs(), *session.get_outputs())])
print(session.run(None, {"x": x, "scale": scale})[0])
