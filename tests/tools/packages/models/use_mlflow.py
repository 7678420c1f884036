# /// script
# dependencies = ["mlflow", "onnx", "pandas", "numpy"]
# ///
"""Saves a model, loads it as a Python function, and predicts from an array, a mapping and a data frame."""

import mlflow.onnx
import mlflow.pyfunc
import numpy as np
import onnx.parser
import pandas as pd

MODEL = """\
<ir_version: 8, opset_import: ["": 17]>
network (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, -1, 0.5, 2, -0.25, 1}>
{
    z = MatMul(x, w)
    y = Softmax<axis = 1>(z)
}
"""

model = onnx.parser.parse_model(MODEL)
mlflow.onnx.save_model(
    model,
    "saved",
    onnx_execution_providers=["CPUExecutionProvider"],
    onnx_session_options={"execution_mode": "sequential", "graph_optimization_level": 99, "intra_op_num_threads": 1},
    pip_requirements=["onnxruntime"],
)
loaded = mlflow.pyfunc.load_model("saved")
x = np.linspace(-1, 2, 12, dtype=np.float32).reshape(4, 3)
for value in (x, {"x": x}, pd.DataFrame(x, columns=["a", "b", "c"])):
    for name, result in loaded.predict(value).items():
        print(name, np.asarray(result).tolist())
