"""The methods of WebNN that the operators' pages name as equivalents.

Each was compared with the operator by its definition in https://www.w3.org/TR/webnn/, over the attributes that both
have. Neither definition changes, and `tests/ops` checks each operator against its page.
"""

import re
from collections.abc import Iterator
from pathlib import Path

PAGES = Path(__file__).parents[1] / "notebooks" / "operators"
# Every operation of MLGraphBuilder except `reshape` and `transpose`, for which a TensorDesc has sizes and strides.
EQUIVALENTS = {
    "activation_elu": "elu",
    "activation_gelu": "gelu",
    "activation_hard_sigmoid": "hardSigmoid",
    "activation_hard_swish": "hardSwish",
    "activation_identity": "identity",
    "activation_leaky_relu": "leakyRelu",
    "activation_linear": "linear",
    "activation_parameterized_relu": "prelu",
    "activation_relu": "relu",
    "activation_sigmoid": "sigmoid",
    "activation_softmax": "softmax",
    "activation_softmax1": "softmax",
    "activation_softplus": "softplus",
    "activation_softsign": "softsign",
    "activation_tanh": "tanh",
    "argmax": "argMax",
    "argmin": "argMin",
    "average_pooling": "averagePool2d",
    "average_pooling1": "averagePool2d",
    "batch_normalization": "batchNormalization",
    "cast": "cast",
    "convolution": "conv2d convTranspose2d",
    "cumulative_summation": "cumulativeSum",
    "dequantize": "dequantizeLinear",
    "diagonal_matrix1": "triangular",
    "element_wise_abs": "abs",
    "element_wise_add": "add",
    "element_wise_ceil": "ceil",
    "element_wise_clip": "clamp",
    "element_wise_clip1": "clamp",
    "element_wise_constant_pow": "pow",
    "element_wise_cos": "cos",
    "element_wise_dequantize_linear": "dequantizeLinear",
    "element_wise_divide": "div",
    "element_wise_erf": "erf",
    "element_wise_exp": "exp",
    "element_wise_floor": "floor",
    "element_wise_identity": "identity",
    "element_wise_if": "where",
    "element_wise_is_infinity": "isInfinite",
    "element_wise_is_nan": "isNaN",
    "element_wise_log": "log",
    "element_wise_logical_and": "logicalAnd",
    "element_wise_logical_equals": "equal notEqual",
    "element_wise_logical_greater_than": "greater",
    "element_wise_logical_greater_than_or_equal": "greaterOrEqual",
    "element_wise_logical_less_than": "lesser",
    "element_wise_logical_less_than_or_equal": "lesserOrEqual",
    "element_wise_logical_not": "logicalNot",
    "element_wise_logical_or": "logicalOr",
    "element_wise_logical_xor": "logicalXor",
    "element_wise_max": "max",
    "element_wise_min": "min",
    "element_wise_multiply": "mul",
    "element_wise_negate": "neg",
    "element_wise_pow": "pow",
    "element_wise_quantize_linear": "quantizeLinear",
    "element_wise_recip": "reciprocal",
    "element_wise_round": "roundEven",
    "element_wise_sign": "sign",
    "element_wise_sin": "sin",
    "element_wise_sqrt": "sqrt",
    "element_wise_subtract": "sub",
    "element_wise_tan": "tan",
    "element_wise_tanh": "tanh",
    "element_wise_threshold": "clamp",
    "fill_value_constant": "expand",
    "gather": "gather",
    "gather_elements": "gatherElements",
    "gather_nd": "gatherND",
    "gather_nd1": "gatherND",
    "gemm": "gemm matmul",
    "gru": "gru gruCell",
    "join": "concat",
    "lp_pooling": "l2Pool2d",
    "lp_pooling1": "l2Pool2d",
    "lstm": "lstm lstmCell",
    "max_pooling": "maxPool2d",
    "max_pooling1": "maxPool2d",
    "max_pooling2": "maxPool2d",
    "mean_variance_normalization": "instanceNormalization layerNormalization",
    "mean_variance_normalization1": "instanceNormalization layerNormalization",
    "mean_variance_normalization2": "layerNormalization",
    "padding": "pad",
    "padding1": "pad",
    "quantize": "quantizeLinear",
    "reduce": "reduceL1 reduceL2 reduceLogSum reduceLogSumExp reduceMax reduceMean reduceMin reduceProduct reduceSum"
    " reduceSumSquare",
    "resample2": "resample2d",
    "scatter": "scatterElements",
    "scatter_nd": "scatterND",
    "slice": "slice",
    "slice1": "reverse slice",
    "split": "split",
    "tile": "tile",
    "upsample_2d": "resample2d",
}
PAIRS = {(page, method) for page, methods in EQUIVALENTS.items() for method in methods.split()}
METHODS = {method for _, method in PAIRS}


def equivalents() -> Iterator[tuple[str, str]]:
    """The methods of WebNN that pages name as equivalents, each with its page."""
    for page in sorted(PAGES.glob("*.md")):
        for cell in re.findall(r"^\| WebNN \| (?!none)(.*?) \|", page.read_text(), re.MULTILINE):
            yield from ((page.stem, name) for name in re.findall(r"`(\w+)`", cell) if name in METHODS)


def test_the_pages_cover_every_webnn_method_and_only_compared_ones() -> None:
    assert set(equivalents()) == PAIRS
