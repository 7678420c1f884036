"""Sessions write the model that they loaded, and take values in place of its initializers."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import external_data_helper, numpy_helper

from dmljax.run import onnxruntime as ort

GRAPH = """g (float[N, 2] x) => (float[N, M] y, int64[K] n) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, int64[2] s = {-1, 6}> {
    h = MatMul(x, w)  c = Constant<value = float[3] {1.5, 0, -2}>()
    a = Add(h, c)  y = Reshape(a, s)  n = Shape(y)
}"""
MODEL = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {GRAPH}')
for tensor in MODEL.graph.initializer:
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))  # bytes, which files may have
X = np.arange(8, dtype=np.float32).reshape(4, 2)
W = np.arange(6, dtype=np.float32).reshape(2, 3) - 3


def value(library: Any, array: np.ndarray[Any, Any]) -> Any:
    return library.OrtValue.ortvalue_from_numpy(array)


def save_with_weights_beside(path: Path) -> str:
    """Saves the model with its matrix in another file."""
    model = onnx.load_from_string(MODEL.SerializeToString())
    external_data_helper.set_external_data(model.graph.initializer[0], location="weights")
    onnx.save(model, path)
    return str(path)


def run(library: Any, source: Any, **initializers: Any) -> list[Any]:
    options = library.SessionOptions()
    for name, array in initializers.items():
        options.add_initializer(name, array)
    results = library.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, {"x": X})
    return [result.tolist() for result in results]


def test_a_session_writes_its_model(tmp_path: Path) -> None:
    path = save_with_weights_beside(tmp_path / "model.onnx")
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "written" / "optimized.onnx")
    with pytest.raises(RuntimeError, match="must be a file in a folder that exists"):
        ort.InferenceSession(path, options)
    (tmp_path / "written").mkdir()
    ort.InferenceSession(path, options)
    written = onnx.load(options.optimized_model_filepath)
    onnx.checker.check_model(written, full_check=True)
    assert [node.op_type for node in written.graph.node] == [node.op_type for node in MODEL.graph.node]
    for library in (ort, onnxruntime):
        assert run(library, options.optimized_model_filepath) == run(onnxruntime, MODEL.SerializeToString())


def test_values_replace_initializers() -> None:
    model, sizes = MODEL.SerializeToString(), np.array([2, -1])
    kept = value(onnxruntime, W), value(onnxruntime, sizes)  # ONNX Runtime reads their memory
    theirs = run(onnxruntime, model, w=kept[0], s=kept[1])
    assert run(ort, model, w=value(ort, W), s=value(ort, sizes)) == theirs != run(ort, model)
    with pytest.warns(UserWarning, match="add_initializer has no effect, because the model has no weight"):
        assert run(ort, model, weight=value(ort, W)) == run(onnxruntime, model, weight=kept[0])
    for wrong in (W[:1], W.astype(np.float64)):
        with pytest.raises(Exception, match=r"initializers.w must be float of shape \(2, 3\); got (float|double) of"):
            run(ort, model, w=value(ort, wrong))


def test_values_replace_initializers_in_other_files(tmp_path: Path) -> None:
    path = save_with_weights_beside(tmp_path / "model.onnx")
    results = []
    for library in (ort, onnxruntime):
        options, array = library.SessionOptions(), value(library, W)
        options.add_external_initializers(["w"], [array])
        session = library.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        results.append([result.tolist() for result in session.run(None, {"x": X})])
    assert results[0] == results[1]
    for names, source in ((["w"], MODEL.SerializeToString()), (["q"], path)):
        kinds = []
        for library in (ort, onnxruntime):
            options, array = library.SessionOptions(), value(library, W)
            options.add_external_initializers(names, [array])
            with pytest.raises(library.capi.onnxruntime_pybind11_state.Fail) as error:
                library.InferenceSession(source, options)
            kinds.append(error.type.__name__)
        assert kinds == ["Fail", "Fail"]
    options = ort.SessionOptions()
    options.add_initializer("w", value(ort, W))
    with pytest.raises(RuntimeError, match="An OrtValue for this name has already been added: w"):
        options.add_initializer("w", value(ort, W))
    with pytest.raises(RuntimeError, match="ort_value must be an OrtValue"):
        ort.SessionOptions().add_initializer("w", None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="ort_values must be 1, as many as names; got 0"):
        ort.SessionOptions().add_external_initializers(["w"], [])
