"""The operators' pages name each method of WebNN (https://www.w3.org/TR/webnn/) as an equivalent of some operator."""

import re
from pathlib import Path

# Every operation of MLGraphBuilder but `reshape` and `transpose`, for which a TensorDesc has sizes and strides
METHODS = {
    *("abs", "add", "argMax", "argMin", "averagePool2d", "batchNormalization", "cast", "ceil", "clamp", "concat"),
    *("conv2d", "convTranspose2d", "cos", "cumulativeSum", "dequantizeLinear", "div", "elu", "equal", "erf", "exp"),
    *("expand", "floor", "gather", "gatherElements", "gatherND", "gelu", "gemm", "greater", "greaterOrEqual", "gru"),
    *("gruCell", "hardSigmoid", "hardSwish", "identity", "instanceNormalization", "isInfinite", "isNaN", "l2Pool2d"),
    *("layerNormalization", "leakyRelu", "lesser", "lesserOrEqual", "linear", "log", "logicalAnd", "logicalNot"),
    *("logicalOr", "logicalXor", "lstm", "lstmCell", "matmul", "max", "maxPool2d", "min", "mul", "neg", "notEqual"),
    *("pad", "pow", "prelu", "quantizeLinear", "reciprocal", "reduceL1", "reduceL2", "reduceLogSum"),
    *("reduceLogSumExp", "reduceMax", "reduceMean", "reduceMin", "reduceProduct", "reduceSum", "reduceSumSquare"),
    *("relu", "resample2d", "reverse", "roundEven", "scatterElements", "scatterND", "sigmoid", "sign", "sin", "slice"),
    *("softmax", "softplus", "softsign", "split", "sqrt", "sub", "tan", "tanh", "tile", "triangular", "where"),
}
PAGES = Path(__file__).parents[1] / "notebooks" / "operators"


def test_the_pages_name_every_method_of_webnn() -> None:
    text = "\n".join(page.read_text() for page in PAGES.glob("*.md"))
    rows = re.findall(r"^\| WebNN \| (?!none)(.*?) \|", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} >= METHODS
