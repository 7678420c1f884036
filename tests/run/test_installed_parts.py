"""Parts of ONNX Runtime's own package run over dmljax's sessions; its quantizers write the same files."""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from helpers import GATE
from test_run import printed

import dmljax.run

CNN = """\
<ir_version: 10, opset_import: ["": 17]> cnn (float[N, 3, 8, 8] x) => (float[N, 5] y) {
    [conv1] a = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)
    [relu1] b = Relu(a)
    [pool] c = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(b)
    [conv2] d = Conv<pads = [1, 1, 1, 1]>(c, w2, b2)
    [relu2] e = Relu(d)
    [mean] f = GlobalAveragePool(e)
    [flatten] g = Flatten(f)
    [dense] y = Gemm<transB = 1>(g, w3, b3)
}"""
BLOCK = """\
<ir_version: 10, opset_import: ["": 17]> block (float[N, 6, 16] x) => (float[N, 6, 16] y)
<int64[4] heads = {0, 0, 2, 8}, int64[3] flat = {0, 0, 16}, float scale = {0.35355339}> {
    [q] q0 = MatMul(x, wq)
    [k] k0 = MatMul(x, wk)
    [v] v0 = MatMul(x, wv)
    [split_q] q1 = Reshape(q0, heads)
    [split_k] k1 = Reshape(k0, heads)
    [split_v] v1 = Reshape(v0, heads)
    [turn_q] q2 = Transpose<perm = [0, 2, 1, 3]>(q1)
    [turn_k] k2 = Transpose<perm = [0, 2, 3, 1]>(k1)
    [turn_v] v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
    [scores] s0 = MatMul(q2, k2)
    [scale] s1 = Mul(s0, scale)
    [probs] p = Softmax<axis = -1>(s1)
    [mix] o0 = MatMul(p, v2)
    [turn] o1 = Transpose<perm = [0, 2, 1, 3]>(o0)
    [join] o2 = Reshape(o1, flat)
    [out] o3 = MatMul(o2, wo)
    [add1] r1 = Add(x, o3)
    [norm1] n1 = LayerNormalization(r1, g1, b1)
    [wide] f1 = MatMul(n1, w1)
    [bias] f2 = Add(f1, c1)
    [relu] f3 = Relu(f2)
    [narrow] f4 = MatMul(f3, w2)
    [add2] r2 = Add(n1, f4)
    [norm2] y = LayerNormalization(r2, g2, b2)
}"""
CNN_WEIGHTS = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (16, 8, 3, 3), "b2": (16,), "w3": (5, 16), "b3": (5,)}
BLOCK_WEIGHTS = {
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (16, 16)),
    "w1": (16, 32),
    "c1": (32,),
    "w2": (32, 16),
    **dict.fromkeys(("g1", "b1", "g2", "b2"), (16,)),
}

QUANTIZERS = """\
import logging, sys
import numpy as np
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType,
    quant_pre_process, quantize_dynamic, quantize_static,
)

logging.disable(logging.CRITICAL)
folder, input_shape = sys.argv[1], [int(size) for size in sys.argv[2].split(",")]

class Reader(CalibrationDataReader):
    def __init__(self):
        rng = np.random.default_rng(3)
        self.feeds = iter([{"x": rng.integers(-8, 9, input_shape).astype(np.float32) / 8} for _ in range(4)])

    def get_next(self):
        return next(self.feeds, None)

quant_pre_process("model.onnx", f"{folder}/model.onnx", skip_optimization=True, skip_symbolic_shape=True)
quantize_dynamic("model.onnx", f"{folder}/dynamic.onnx", weight_type=QuantType.QInt8)
for layout in QuantFormat:
    for method in (CalibrationMethod.MinMax, CalibrationMethod.Entropy, CalibrationMethod.Percentile):
        quantize_static(
            "model.onnx",
            f"{folder}/{layout.name}-{method.name}.onnx",
            Reader(),
            quant_format=layout,
            calibrate_method=method,
            per_channel=layout == QuantFormat.QDQ,
        )
print("dmljax" in str(onnxruntime.InferenceSession))
"""


def quantize(
    graph: str, weights: dict[str, tuple[int, ...]], feed: str, folder: Path
) -> dict[str, tuple[bytes, bytes]]:
    """What the quantizers write over dmljax's sessions and over ONNX Runtime's, by the names of their files.

    Weights and feeds are multiples of 1/8, so that sums of products are exact in any order.
    """
    rng = np.random.default_rng(7)
    model = onnx.parser.parse_model(graph)
    for name, shape in weights.items():
        values = rng.integers(-8, 9, shape).astype(np.float32) / 8
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, folder / "model.onnx")
    for library, runner in (("ours", "dmljax.run"), ("theirs", None)):
        (folder / library).mkdir()
        output = printed(QUANTIZERS, folder, library, feed, runner=runner)
        assert output.endswith(f"{library == 'ours'}\n")
    names = sorted(path.name for path in (folder / "theirs").iterdir())
    assert len(names) == 8
    return {name: ((folder / "ours" / name).read_bytes(), (folder / "theirs" / name).read_bytes()) for name in names}


@GATE
def test_quantizers_write_the_same_file_for_a_convolutional_network(tmp_path: Path) -> None:
    for name, (ours, theirs) in quantize(CNN, CNN_WEIGHTS, "2,3,8,8", tmp_path).items():
        assert ours == theirs, name


@GATE
def test_quantizers_write_the_same_file_for_a_transformer_up_to_rounded_scales(tmp_path: Path) -> None:
    for name, (ours, theirs) in quantize(BLOCK, BLOCK_WEIGHTS, "2,6,16", tmp_path).items():
        if name in ("dynamic.onnx", "model.onnx"):
            assert ours == theirs
            continue
        models = [onnx.load_from_string(each) for each in (ours, theirs)]
        for our_weight, their_weight in zip(*(model.graph.initializer for model in models), strict=True):
            if (
                our_weight.name.endswith("_scale") and our_weight.name.removesuffix("_scale") not in BLOCK_WEIGHTS
            ):  # softmax and normalization round in the last places
                scales = [onnx.numpy_helper.to_array(each) for each in (our_weight, their_weight)]
                np.testing.assert_array_max_ulp(scales[0], scales[1], maxulp=4)
                our_weight.CopyFrom(their_weight)
        assert models[0] == models[1], name


def test_parts_of_a_package_that_is_not_installed_say_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = dmljax.run._Finder()
    spec = finder.find_spec("onnxruntime.quantization")
    assert spec is not None
    assert Path(str(spec.origin)).parts[-3:] == ("onnxruntime", "quantization", "__init__.py")
    assert finder.find_spec("onnxruntime.quantization.calibrate") is None  # Python finds it beside the package's own
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ModuleNotFoundError, match=r"'onnxruntime.quantization': .* \(pip install onnxruntime\)$"):
        finder.find_spec("onnxruntime.quantization")


@GATE
def test_genai_s_builder_is_the_package_s_own_over_dmljax(tmp_path: Path) -> None:
    package = tmp_path / "onnxruntime_genai" / "models"
    package.mkdir(parents=True)
    (tmp_path / "onnxruntime_genai" / "__init__.py").write_text("raise ImportError('it is not for this process')")
    (package / "__init__.py").write_text("")
    (package / "builder.py").write_text("import onnxruntime_genai\nprint(__name__, onnxruntime_genai.Model.__module__)")
    printed_lines = printed("import onnxruntime_genai.models.builder", tmp_path, runner="dmljax.run").splitlines()
    assert printed_lines == ["onnxruntime_genai.models.builder dmljax.run.onnxruntime_genai.models"]


def test_parts_are_missing_where_the_program_does_not_run_under_dmljax() -> None:
    import dmljax.run.onnxruntime as ort

    with pytest.raises(AttributeError, match=r"onnxruntime.quantization: .* python -m dmljax.run program.py\)"):
        _ = ort.quantization


PARTS = """\
import numpy as np
import onnx
import onnxruntime.backend
from onnxruntime import datasets, quantization
from onnxruntime.transformers.onnx_model import OnnxModel

path = datasets.get_example("sigmoid.onnx")
x = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)
print(onnxruntime.backend.supports_device("CPU"), np.round(onnxruntime.backend.prepare(onnx.load(path)).run(x)[0], 4))
print(OnnxModel(onnx.load(path)).get_graphs_input_names())
"""


@GATE
def test_a_program_of_the_package_s_other_parts_prints_the_same(tmp_path: Path) -> None:
    ours, theirs = (printed(PARTS, tmp_path, runner=runner) for runner in ("dmljax.run", None))
    assert ours == theirs
