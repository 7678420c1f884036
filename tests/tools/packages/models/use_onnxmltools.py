# /// script
# dependencies = ["onnxmltools", "lightgbm", "numpy"]
# ///
"""Converts LightGBM's trees, and predicts."""

import lightgbm
import numpy as np
import onnxruntime as ort
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

rng = np.random.default_rng(0)
x = rng.normal(size=(300, 4)).astype(np.float32)
targets = {
    "regressor": x[:, 0] * 2 - np.abs(x[:, 1]) + rng.normal(size=300) * 0.1,
    "classifier": (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(int) + (x[:, 2] > 1),
}
for name, target in targets.items():
    maker = lightgbm.LGBMRegressor if name == "regressor" else lightgbm.LGBMClassifier
    trees = maker(n_estimators=10, num_leaves=8, random_state=0, verbose=-1).fit(x, target)
    model = convert_lightgbm(trees, initial_types=[("x", FloatTensorType([None, 4]))], target_opset=15, zipmap=False)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, result in zip(session.get_outputs(), session.run(None, {"x": x[:5]}), strict=True):
        print(name, output.name, output.type, np.round(result, 4).tolist())
