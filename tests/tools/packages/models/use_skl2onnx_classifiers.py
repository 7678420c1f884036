# /// script
# dependencies = ["skl2onnx", "scikit-learn", "numpy"]
# ///
"""Converts classifiers of scikit-learn with its default options, and predicts."""

import numpy as np
import onnxruntime as ort
from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

x, labels = load_iris(return_X_y=True)
x = x.astype(np.float32)
for classifier in (LogisticRegression(max_iter=500), RandomForestClassifier(5, random_state=0), SVC(random_state=0)):
    model = to_onnx(classifier.fit(x, labels), x[:1], options={"zipmap": False})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for result in session.run(None, {"X": x[::30]}):
        print(type(classifier).__name__, result.dtype, np.round(result, 4))
