# /// script
# dependencies = ["skl2onnx", "scikit-learn", "numpy"]
# ///
"""Converts estimators of scikit-learn to ONNX's own operators, and predicts."""

import numpy as np
import onnxruntime as ort
from skl2onnx import to_onnx
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression
from sklearn.mixture import GaussianMixture
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

x, labels = load_iris(return_X_y=True)
x = x.astype(np.float32)
ESTIMATORS = {
    "principal components": make_pipeline(StandardScaler(), PCA(2)),
    "singular values": make_pipeline(MinMaxScaler(), TruncatedSVD(2, random_state=0)),
    "clusters": KMeans(3, random_state=0, n_init=2),
    "linear": LinearRegression(),
    "perceptron": MLPRegressor(hidden_layer_sizes=(8,), random_state=0, max_iter=900),
    "mixture": GaussianMixture(3, random_state=0),
    "process": GaussianProcessRegressor(random_state=0),
}
for name, estimator in ESTIMATORS.items():
    estimator.fit(x, labels)
    options = {"zipmap": False} if hasattr(estimator, "classes_") else None
    model = to_onnx(
        estimator, x[:1], options=options, black_op={"LinearClassifier", "LinearRegressor", "Normalizer", "Scaler"}
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    print(name, [f"{node.domain}.{node.op_type}" for node in model.graph.node if node.domain])
    for output, result in zip(session.get_outputs(), session.run(None, {"X": x[::30]}), strict=True):
        print(output.name, output.type, output.shape, np.round(result, 4))
