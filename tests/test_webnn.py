"""The methods of WebNN that the operators' pages name, by the definitions of https://www.w3.org/TR/webnn/ in NumPy.

A page names a method as an equivalent only if a comparison here shows its operator to compute the same, or if WebNN
defines the method as DirectML's page defines the operator.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import FULL
from kinds import FIRST_OF_EVERY_KIND
from numpy.typing import NDArray
from scipy import special

import dmljax
from dmljax.directml import AxisDirection, PaddingMode, ReduceFunction

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
RNG = np.random.default_rng(11)
Floats = NDArray[np.float64]
Pairs = Iterable[tuple[Any, Any]]  # what dmljax and what WebNN's definition computes
Comparison = Callable[[Any], Pairs]  # of an operator's function


def floats(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


# Element by element

X, Y = (
    np.concatenate([floats(3, 5), np.array([one], np.float32)]) for one in ([0, 1, -1, 2.5, 3.5], [0, 2, -1, 0.5, 3])
)
MANY = np.array([*X.ravel(), np.nan, np.inf, -np.inf], np.float32)
UINTS = RNG.integers(0, 3, (2, 3, 4)).astype(np.uint8)


def on(*arrays: NDArray[Any]) -> Callable[[Callable[..., Any]], Comparison]:
    """Makes comparisons of definitions, on these arrays."""

    def compared(definition: Callable[..., Any]) -> Comparison:
        def compare(ours: Any) -> Pairs:
            with np.errstate(all="ignore"):
                yield ours(*arrays), definition(*(x.astype(np.float64) for x in arrays))

        return compare

    return compared


unary, binary, logical = on(MANY), on(X, Y), on(UINTS, UINTS[::-1].copy())
ELEMENTWISE: dict[tuple[str, str], Comparison] = {
    ("activation_elu", "elu"): unary(lambda x: np.maximum(0, x) + np.expm1(np.minimum(0, x))),
    ("activation_gelu", "gelu"): on(X)(lambda x: 0.5 * x * (1 + special.erf(x / math.sqrt(2)))),
    ("activation_hard_sigmoid", "hardSigmoid"): unary(lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    ("activation_hard_swish", "hardSwish"): on(X)(lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ("activation_identity", "identity"): unary(lambda x: x),
    ("activation_leaky_relu", "leakyRelu"): unary(lambda x: np.maximum(0, x) + 0.01 * np.minimum(0, x)),
    ("activation_linear", "linear"): lambda ours: [(ours(X, 3.0, 0.5), 3 * X.astype(np.float64) + 0.5)],
    ("activation_parameterized_relu", "prelu"): binary(lambda x, slope: np.maximum(0, x) + slope * np.minimum(0, x)),
    ("activation_relu", "relu"): on(X)(lambda x: np.maximum(0, x)),
    ("activation_sigmoid", "sigmoid"): unary(lambda x: 1 / (np.exp(-x) + 1)),
    ("activation_softplus", "softplus"): unary(lambda x: np.log(1 + np.exp(x))),
    ("activation_softsign", "softsign"): on(X)(lambda x: x / (1 + np.abs(x))),
    ("activation_tanh", "tanh"): unary(np.tanh),
    ("element_wise_abs", "abs"): unary(np.abs),
    ("element_wise_add", "add"): binary(np.add),
    ("element_wise_ceil", "ceil"): unary(np.ceil),
    ("element_wise_clip", "clamp"): lambda ours: [(ours(X, min=-0.5, max=1.0), np.clip(X, -0.5, 1))],
    ("element_wise_clip1", "clamp"): lambda ours: [(ours(X, min=-0.5, max=1.0), np.clip(X, -0.5, 1))],
    ("element_wise_constant_pow", "pow"): lambda ours: [(ours(np.abs(X), 2.5), np.abs(X) ** np.full_like(X, 2.5))],
    ("element_wise_cos", "cos"): unary(np.cos),
    ("element_wise_divide", "div"): binary(np.divide),
    ("element_wise_erf", "erf"): unary(special.erf),
    ("element_wise_exp", "exp"): unary(np.exp),
    ("element_wise_floor", "floor"): unary(np.floor),
    ("element_wise_identity", "identity"): unary(lambda x: x),
    ("element_wise_if", "where"): on(UINTS[0, :, :1], X[:3], Y[:3])(lambda c, a, b: np.where(c != 0, a, b)),
    ("element_wise_is_infinity", "isInfinite"): unary(np.isinf),
    ("element_wise_is_nan", "isNaN"): unary(np.isnan),
    ("element_wise_log", "log"): unary(np.log),
    ("element_wise_logical_and", "logicalAnd"): logical(np.logical_and),
    ("element_wise_logical_equals", "equal"): binary(np.equal),
    ("element_wise_logical_equals", "notEqual"): lambda ours: [(1 - np.asarray(ours(X, Y)), X != Y)],
    ("element_wise_logical_greater_than", "greater"): binary(np.greater),
    ("element_wise_logical_greater_than_or_equal", "greaterOrEqual"): binary(np.greater_equal),
    ("element_wise_logical_less_than", "lesser"): binary(np.less),
    ("element_wise_logical_less_than_or_equal", "lesserOrEqual"): binary(np.less_equal),
    ("element_wise_logical_not", "logicalNot"): on(UINTS)(np.logical_not),
    ("element_wise_logical_or", "logicalOr"): logical(np.logical_or),
    ("element_wise_logical_xor", "logicalXor"): logical(np.logical_xor),
    ("element_wise_max", "max"): binary(np.maximum),
    ("element_wise_min", "min"): binary(np.minimum),
    ("element_wise_multiply", "mul"): binary(np.multiply),
    ("element_wise_negate", "neg"): unary(np.negative),
    ("element_wise_pow", "pow"): on(np.abs(X), Y)(np.power),
    ("element_wise_recip", "reciprocal"): unary(np.reciprocal),
    ("element_wise_round", "roundEven"): unary(np.round),
    ("element_wise_sign", "sign"): unary(lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0))),
    ("element_wise_sin", "sin"): unary(np.sin),
    ("element_wise_sqrt", "sqrt"): unary(np.sqrt),
    ("element_wise_subtract", "sub"): binary(np.subtract),
    ("element_wise_tan", "tan"): unary(np.tan),
    ("element_wise_tanh", "tanh"): unary(np.tanh),
    ("element_wise_threshold", "clamp"): lambda ours: [(ours(X, min=-0.5), np.maximum(X, -0.5))],
}


# Elements at other places

TENSOR = floats(2, 3, 4)


def gathers_nd(ours: Any) -> Pairs:
    for coordinates in (1, 2, 3):
        indices = np.stack([RNG.integers(-size, size, (5, 2)) for size in TENSOR.shape[:coordinates]], -1)
        yield ours(TENSOR, indices), TENSOR[tuple(np.moveaxis(indices, -1, 0))]


def gathers(ours: Any) -> Pairs:
    indices = np.array([[0, -1], [2, 1]])
    yield ours(TENSOR, indices, axis=1), TENSOR[:, indices]


def gathers_of_elements(ours: Any) -> Pairs:
    indices = RNG.integers(-3, 3, (2, 5, 4))
    yield ours(TENSOR, indices, axis=1), np.take_along_axis(TENSOR, indices, 1)


def scatters_of_elements(ours: Any) -> Pairs:
    indices, updates, expected = np.argsort(TENSOR, 1)[:, :2] - 3, floats(2, 2, 4), TENSOR.copy()
    np.put_along_axis(expected, indices, updates, 1)
    yield ours(TENSOR, indices, updates, axis=1), expected


def scatters_nd(ours: Any) -> Pairs:
    indices, updates, expected = np.array([[0, 1], [1, -1]]), floats(2, 4), TENSOR.copy()
    expected[indices[:, 0], indices[:, 1]] = updates
    yield ours(TENSOR, indices, updates), expected


def pads(ours: Any) -> Pairs:
    modes: Any = {PaddingMode.CONSTANT: "constant", PaddingMode.EDGE: "edge", PaddingMode.REFLECTION: "reflect"}
    for mode, name in modes.items():
        padded = ours(TENSOR, padding_mode=mode, start_padding=(1, 2, 3), end_padding=(0, 1, 2))
        yield padded, np.pad(TENSOR, ((1, 0), (2, 1), (3, 2)), name)


def triangles(ours: Any) -> Pairs:
    for diagonal in range(-4, 6):
        yield ours(TENSOR, 0, diagonal_fill_end=diagonal), np.triu(TENSOR, diagonal)
        yield ours(TENSOR, 0, diagonal_fill_begin=diagonal + 1), np.tril(TENSOR, diagonal)


def splits(ours: Any) -> Pairs:
    yield from zip(ours(TENSOR, sizes=(1, 3), axis=2), (TENSOR[..., :1], TENSOR[..., 1:]), strict=True)


def windows_with_strides(ours: Any) -> Pairs:
    yield ours(TENSOR, starts=(0, 1, 0), sizes=(2, 2, 4), strides=(1, 1, 3)), TENSOR[:, 1:3, 0:4:3]


def elements_with_strides(ours: Any) -> Pairs:
    yield ours(TENSOR, starts=(0, 1, 0), sizes=(2, 2, 2), strides=(1, 1, 3)), TENSOR[:, 1:3, 0:4:3]


def reversals(ours: Any) -> Pairs:
    yield ours(TENSOR, starts=(0, 0, 0), sizes=(2, 3, 4), strides=(1, -1, -1)), np.flip(TENSOR, (1, 2))


MOVEMENT: dict[tuple[str, str], Comparison] = {
    ("diagonal_matrix1", "triangular"): triangles,
    ("fill_value_constant", "expand"): lambda ours: [(ours(np.float32(3), output_sizes=(2, 3)), np.full((2, 3), 3))],
    ("gather", "gather"): gathers,
    ("gather_elements", "gatherElements"): gathers_of_elements,
    ("gather_nd", "gatherND"): gathers_nd,
    ("gather_nd1", "gatherND"): gathers_nd,
    ("join", "concat"): lambda ours: [(ours([X, Y[:, :2]], axis=1), np.concatenate([X, Y[:, :2]], 1))],
    ("padding", "pad"): pads,
    ("padding1", "pad"): pads,
    ("scatter", "scatterElements"): scatters_of_elements,
    ("scatter_nd", "scatterND"): scatters_nd,
    ("slice", "slice"): elements_with_strides,
    ("slice1", "reverse"): reversals,
    ("slice1", "slice"): windows_with_strides,
    ("split", "split"): splits,
    ("tile", "tile"): lambda ours: [(ours(TENSOR, repeats=(1, 2, 3)), np.tile(TENSOR, (1, 2, 3)))],
}

# Along axes


def reductions(function: ReduceFunction, definition: Callable[..., Any], ours: Any) -> Pairs:
    x = np.abs(TENSOR) + np.float32(0.5)
    for axes in ((1,), (0, 2), (0, 1, 2)):
        yield ours(x, function=function, axes=axes), definition(x, axis=axes, keepdims=True)


def sum_of(function: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, **axes: then(function(x).sum(**axes))


root_of_squares = sum_of(np.square, np.sqrt)
REDUCTIONS: dict[str, tuple[ReduceFunction, Callable[..., Any]]] = {
    "reduceL1": (ReduceFunction.L1, sum_of(np.abs, np.positive)),
    "reduceL2": (ReduceFunction.L2, root_of_squares),
    "reduceLogSum": (ReduceFunction.LOG_SUM, sum_of(np.positive, np.log)),
    "reduceLogSumExp": (ReduceFunction.LOG_SUM_EXP, sum_of(np.exp, np.log)),
    "reduceMax": (ReduceFunction.MAX, np.max),
    "reduceMean": (ReduceFunction.AVERAGE, np.mean),
    "reduceMin": (ReduceFunction.MIN, np.min),
    "reduceProduct": (ReduceFunction.MULTIPLY, np.prod),
    "reduceSum": (ReduceFunction.SUM, np.sum),
    "reduceSumSquare": (ReduceFunction.SUM_SQUARE, sum_of(np.square, np.positive)),
}


def running_sums(ours: Any) -> Pairs:
    numbers = np.array([1, 2, 3, 4], np.float32)
    yield ours(numbers, axis=0), [1, 3, 6, 10]
    yield ours(numbers, axis=0, has_exclusive_sum=True), [0, 1, 3, 6]
    yield ours(numbers, axis=0, axis_direction=AxisDirection.DECREASING), [10, 9, 7, 4]


IMAGE = floats(2, 3, 5, 6)


def normalizations(sizes: Sequence[int], reduced: tuple[int, ...], ours: Any, **given: Any) -> Pairs:
    """By the mean and variance along the axes that are reduced, with scales and biases of these sizes."""
    scale, bias = floats(*sizes), floats(*sizes)
    mean, variance = (moment(IMAGE.astype(np.float64), axis=reduced, keepdims=True) for moment in (np.mean, np.var))
    yield ours(IMAGE, scale, bias, **given), scale * (IMAGE - mean) / np.sqrt(variance + 1e-5) + bias


def batch_normalizations(ours: Any) -> Pairs:
    mean, variance, scale, bias = floats(3, 1, 1), np.abs(floats(3, 1, 1)), floats(3, 1, 1), floats(3, 1, 1)
    expected = scale * (IMAGE - mean) / np.sqrt(variance.astype(np.float64) + 1e-5) + bias
    yield ours(IMAGE, mean, variance, scale, bias), expected


along_1_and_3 = partial(normalizations, (1, 3, 1, 6), (1, 3), axes=(1, 3))
ALONG_AXES: dict[tuple[str, str], Comparison] = {
    ("activation_softmax", "softmax"): lambda ours: [(ours(TENSOR), special.softmax(TENSOR, 2))],
    ("activation_softmax1", "softmax"): lambda ours: [(ours(TENSOR, axes=1), special.softmax(TENSOR, 1))],
    ("argmax", "argMax"): lambda ours: [(ours(TENSOR, axes=1), np.argmax(TENSOR, 1, keepdims=True))],
    ("argmin", "argMin"): lambda ours: [(ours(TENSOR, axes=1), np.argmin(TENSOR, 1, keepdims=True))],
    ("batch_normalization", "batchNormalization"): batch_normalizations,
    ("cumulative_summation", "cumulativeSum"): running_sums,
    ("mean_variance_normalization", "instanceNormalization"): partial(normalizations, (1, 3, 1, 1), (2, 3)),
    ("mean_variance_normalization", "layerNormalization"): partial(
        normalizations, (1, 3, 5, 6), (1, 2, 3), cross_channel=True
    ),
    ("mean_variance_normalization1", "instanceNormalization"): partial(
        normalizations, (1, 3, 1, 1), (2, 3), axes=(2, 3)
    ),
    ("mean_variance_normalization1", "layerNormalization"): along_1_and_3,
    ("mean_variance_normalization2", "layerNormalization"): along_1_and_3,
    **{("reduce", method): partial(reductions, *how) for method, how in REDUCTIONS.items()},
}

# Matrix products


def matrix_products(ours: Any) -> Pairs:
    a, b = floats(3, 4), floats(4, 5)
    for c in (floats(), floats(5), floats(3, 1), floats(3, 5)):
        expected = 0.5 * (a.astype(np.float64) @ b) + 2.0 * c
        yield ours(a, b, c, 0.5, 2.0), expected
        yield ours(a.T.copy(), b.T.copy(), c, 0.5, 2.0, transpose_a=True, transpose_b=True), expected


def products_of_batches(ours: Any) -> Pairs:
    for left, right in (((3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 5))):
        a, b = floats(*left), floats(*right)
        yield ours(a, b), np.matmul(a.astype(np.float64), b)


COMPARISONS: dict[tuple[str, str], Comparison] = {
    **(ELEMENTWISE | MOVEMENT | ALONG_AXES),
    ("gemm", "gemm"): matrix_products,
    ("gemm", "matmul"): products_of_batches,
}
# Those that WebNN defines as DirectML's page does, by the same sums over windows, steps or blocks: the cases of
# tests/ops have these in NumPy.
DEFINED_ALIKE = {
    *(("average_pooling", "averagePool2d"), ("average_pooling1", "averagePool2d")),
    *(("lp_pooling", "l2Pool2d"), ("lp_pooling1", "l2Pool2d")),
    *(("max_pooling", "maxPool2d"), ("max_pooling1", "maxPool2d"), ("max_pooling2", "maxPool2d")),
    *(("convolution", "conv2d"), ("convolution", "convTranspose2d")),
    *(("resample2", "resample2d"), ("upsample_2d", "resample2d")),
    *(("gru", "gru"), ("gru", "gruCell"), ("lstm", "lstm"), ("lstm", "lstmCell")),
    *(("quantize", "quantizeLinear"), ("element_wise_quantize_linear", "quantizeLinear")),
    *(("dequantize", "dequantizeLinear"), ("element_wise_dequantize_linear", "dequantizeLinear")),
    ("cast", "cast"),
}


@pytest.mark.parametrize(
    ("page", "method"),
    [
        pytest.param(*names, marks=[FULL] * (f"DML_OPERATOR_{names[0].upper()}" not in FIRST_OF_EVERY_KIND))
        for names in COMPARISONS
    ],
)
def test_an_operator_computes_what_its_equivalent_in_webnn_does(page: str, method: str) -> None:
    for actual, expected in COMPARISONS[page, method](getattr(dmljax, page)):
        actual = np.asarray(actual)
        np.testing.assert_allclose(actual, np.asarray(expected).astype(actual.dtype), rtol=2e-6, atol=1e-6, strict=True)


def equivalents() -> Iterator[tuple[str, str]]:
    """The methods of WebNN that pages name as equivalents, each with its page."""
    for page in sorted(PAGES.glob("*.md")):
        for cell in re.findall(r"^\| WebNN \| (?!none)(.*?) \|", page.read_text(), re.MULTILINE):
            yield from ((page.stem, name) for name in re.findall(r"`(\w+)`", cell) if name in METHODS)


def test_the_pages_name_every_method_of_webnn_and_nothing_that_is_not_compared() -> None:
    assert {method for _, method in equivalents()} == METHODS
    assert set(equivalents()) == {*COMPARISONS, *DEFINED_ALIKE}
