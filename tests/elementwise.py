"""The element-wise operators and activations: the pages' formulas in NumPy, and cases for `test_every_operator.py`.

A formula is computed in float64, or in Python's integers, and shares no code with the lowerings.
What a page asks for bit by bit is compared so; the others have a number of units in the last place.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import dmljax
from dmljax import DataType, IsInfinityMode, RoundingMode, TensorDesc

Arr = NDArray[Any]
INT32, FLOAT32, UINT8 = DataType.INT32, DataType.FLOAT32, DataType.UINT8
Formula = Callable[..., Any]


@dataclass(frozen=True)
class Elementwise:
    """One operator: its formula, and what its cases need to know."""

    formula: Formula
    tensors: tuple[str, ...] = ("input",)  # the inputs that share a type, which is the first one's
    output: str = "output"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    is_exact: bool = False  # bit for bit, NaN included
    domain: tuple[float, float] = (0.2, 0.9)  # where finite differences tell the derivative

    def desc(self, operator: str, data_type: DataType, sizes: tuple[int, ...], **more: Any) -> dmljax.Operator:
        """A descriptor whose tensors are all of one type and size, but for those in `more`."""
        kind = dmljax.OPERATORS[f"DML_OPERATOR_{operator}"]
        tensor = TensorDesc(data_type, sizes)
        attributes = dict(self.attributes)
        if "min_max_data_type" in attributes:
            attributes["min_max_data_type"] = data_type
        return kind(**dict.fromkeys((*self.tensors, self.output), tensor) | attributes | more)


# Formulas. Floats come as float64, integers as themselves.


def by_python(function: Callable[..., Any]) -> Formula:
    """A formula of Python's integers, whose results wrap around."""

    def formula(*arrays: Arr) -> Arr:
        dtype = arrays[0].dtype
        bits = dtype.itemsize * 8
        wrapped = [
            function(*(int(x) for x in row)) & (2**bits - 1) for row in zip(*(x.ravel() for x in arrays), strict=True)
        ]
        return np.array(wrapped, f"u{dtype.itemsize}").view(dtype).reshape(arrays[0].shape)

    return formula


def of_kind(floats: Formula, integers: Callable[..., int]) -> Formula:
    """One formula for floats, another for integers."""
    return lambda *arrays, **attributes: (
        floats(*arrays, **attributes) if arrays[0].dtype.kind == "f" else by_python(integers)(*arrays, **attributes)
    )


def truncated_quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def truncated_remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * truncated_quotient(a, b)


def integer_power(base: int, exponent: int) -> Any:
    if exponent >= 0:
        return pow(base, exponent, 2**64)
    return -1 if base == 0 else base ** (exponent % 2) if base in (1, -1) else 0


def power(base: Arr, exponent: Any) -> Any:
    if base.dtype.kind == "f":
        whole = np.isnan(exponent) | np.isinf(exponent) | (np.trunc(exponent) == exponent)
        result = [
            _c_pow(float(x), float(y))
            for x, y in zip(base.ravel(), np.broadcast_to(exponent, base.shape).ravel(), strict=True)
        ]
        return np.where((base < 0) & ~whole, np.nan, np.reshape(result, base.shape))
    if exponent.dtype.kind != "f":
        return by_python(integer_power)(base, exponent)
    limits = np.iinfo(base.dtype)
    bits = base.dtype.itemsize * 8

    def mixed(x: int, y: float) -> Any:
        if abs(y) <= 2**24 and y == int(y):
            wrapped = integer_power(x, int(y)) & (2**bits - 1)
            return wrapped if wrapped <= limits.max else wrapped - 2**bits
        value = math.nan if x < 0 and math.isfinite(y) and y != int(y) else _c_pow(float(x), y)
        return 0 if math.isnan(value) else int(min(max(value, limits.min), limits.max))

    pairs = zip(base.ravel(), exponent.ravel(), strict=True)
    return np.array([mixed(int(x), float(y)) for x, y in pairs], base.dtype).reshape(base.shape)


def _c_pow(x: float, y: float) -> float:
    """C's pow, which Python's raises errors of."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        return math.nan if x != 0 else math.copysign(math.inf, x) if y % 2 == 1 else math.inf


def larger(a: Arr, b: Arr) -> Arr:
    """The larger of floats or integers: NaN of any NaN, the first of two; +0 of zeros."""
    both_zero = (a == 0) & (b == 0)
    takes_a = np.isnan(a) | np.where(both_zero, ~np.signbit(a), a >= b) if a.dtype.kind == "f" else a >= b
    return np.where(takes_a, a, b)


def smaller(a: Arr, b: Arr) -> Arr:
    both_zero = (a == 0) & (b == 0)
    takes_a = np.isnan(a) | np.where(both_zero, np.signbit(a), a <= b) if a.dtype.kind == "f" else a <= b
    return np.where(takes_a, a, b)


def clipped(x: Arr, min: Any = None, max: Any = None) -> Arr:
    for bound, passes in ((max, np.greater_equal), (min, np.less_equal)):
        if bound is not None:
            limit = np.asarray(bound).astype(x.dtype)
            x = np.where(passes(x, limit), limit, x)
    return x


def clipped_gradient(x: Arr, gradient: Arr, min: Any, max: Any) -> Arr:
    low, high = (np.asarray(bound).astype(x.dtype) for bound in (min, max))
    return np.where((x <= low) | (x >= high), np.zeros_like(gradient), gradient)


def shrunk(x: Arr, bias: float, threshold: float) -> Any:
    if x.dtype.kind == "f":
        return np.where(x > threshold, x - bias, np.where(x < -threshold, x + bias, 0.0))
    return by_python(lambda v: v - int(bias) if v > threshold else v + int(bias) if v < -threshold else 0)(x)


def half_of_sum(a: int, b: int) -> int:
    return truncated_quotient(a + b, 2)


def bits_of(*arrays: Arr) -> list[Arr]:
    return [x.view(f"u{x.dtype.itemsize}") for x in arrays]


def bitwise(function: Formula) -> Formula:
    return lambda *arrays: function(*bits_of(*arrays)).view(arrays[0].dtype)


def shifted(direction: int) -> Formula:
    def shift(a: int, b: int) -> int:
        return 0 if b >= 64 else a << b if direction > 0 else a >> b

    return by_python(shift)


def log_softmax(x: Arr, axes: tuple[int, ...]) -> Any:
    """The sum is taken without the 1 of one largest element, which would round little ones away."""
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = x.astype(np.longdouble) - np.max(x, axis=axes, keepdims=True)
        is_largest = distance == 0
        others = np.sum(np.where(is_largest, 0, np.exp(distance)), axis=axes, keepdims=True)
        logarithm = distance - np.log1p(others + (np.sum(is_largest, axis=axes, keepdims=True) - 1))
        # What is too little for the type leaves 1, whose logarithm is +0.
        return np.where(np.abs(logarithm) < np.finfo(np.float32).tiny, 0, logarithm)


def quantized(input: Arr, scale: Arr, zero_point: Arr | None, dtype: Any) -> Arr:
    limits = np.iinfo(dtype)
    steps = np.rint(input.astype(np.float32) / scale.astype(np.float32))
    zero = 0 if zero_point is None else zero_point.astype(np.float64)
    return np.clip(np.nan_to_num(steps).astype(np.float64) + zero, limits.min, limits.max).astype(dtype)


def dequantized(input: Arr, scale: Arr, zero_point: Arr | None = None) -> Arr:
    zero = 0 if zero_point is None else zero_point.astype(np.int64)
    return (input.astype(np.int64) - zero).astype(np.float64) * scale.astype(np.float64)


INFINITIES = {
    IsInfinityMode.EITHER: lambda x: np.isinf(x),
    IsInfinityMode.POSITIVE: lambda x: np.isinf(x) & (x > 0),
    IsInfinityMode.NEGATIVE: lambda x: np.isinf(x) & (x < 0),
}
ROUNDINGS: dict[RoundingMode, Formula] = {
    RoundingMode.HALVES_TO_NEAREST_EVEN: np.rint,
    RoundingMode.TOWARD_ZERO: np.trunc,
    RoundingMode.TOWARD_INFINITY: lambda x: np.where(np.abs(x) < 2.0**30, np.copysign(np.floor(np.abs(x) + 0.5), x), x),
}
SCALED_UNARY: dict[str, Elementwise] = {
    "ABS": Elementwise(np.abs),
    "ACOS": Elementwise(np.arccos, domain=(-0.9, 0.9)),
    "ACOSH": Elementwise(np.arccosh, domain=(1.2, 3)),
    "ASIN": Elementwise(np.arcsin, domain=(-0.9, 0.9)),
    "ASINH": Elementwise(np.arcsinh),
    "ATAN": Elementwise(np.arctan),
    "ATANH": Elementwise(np.arctanh),
    "CEIL": Elementwise(np.ceil),
    "COS": Elementwise(np.cos),
    "COSH": Elementwise(np.cosh),
    "ERF": Elementwise(special.erf),
    "EXP": Elementwise(np.exp),
    "FLOOR": Elementwise(np.floor),
    "IDENTITY": Elementwise(lambda x: x, is_exact=True),
    "LOG": Elementwise(np.log),
    "RECIP": Elementwise(lambda x: 1 / x),
    "SIN": Elementwise(np.sin),
    "SINH": Elementwise(np.sinh),
    "SQRT": Elementwise(np.sqrt),
    "TAN": Elementwise(np.tan),
    "TANH": Elementwise(np.tanh),
}
AB = ("a", "b")
GRADIENT = ("input", "input_gradient")
OPERATORS: dict[str, Elementwise] = {
    **{f"ELEMENT_WISE_{name}": case for name, case in SCALED_UNARY.items()},
    "ELEMENT_WISE_NEGATE": Elementwise(np.negative, is_exact=True),
    "ELEMENT_WISE_SIGN": Elementwise(lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0)), is_exact=True),
    "ELEMENT_WISE_ROUND": Elementwise(
        lambda x, rounding_mode: ROUNDINGS[rounding_mode](x),
        attributes={"rounding_mode": RoundingMode.TOWARD_INFINITY},
        domain=(0.1, 0.4),
    ),
    "ELEMENT_WISE_ADD": Elementwise(of_kind(np.add, lambda a, b: a + b), AB),
    "ELEMENT_WISE_ADD1": Elementwise(
        lambda a, b, fused_activation: np.where(a + b >= 0, a + b, 0.5 * (a + b)),
        AB,
        attributes={"fused_activation": dmljax.ActivationLeakyReluDesc(alpha=0.5)},
    ),
    "ELEMENT_WISE_SUBTRACT": Elementwise(of_kind(np.subtract, lambda a, b: a - b), AB),
    "ELEMENT_WISE_MULTIPLY": Elementwise(of_kind(np.multiply, lambda a, b: a * b), AB),
    "ELEMENT_WISE_DIVIDE": Elementwise(of_kind(np.divide, truncated_quotient), AB),
    "ELEMENT_WISE_MODULUS_TRUNCATE": Elementwise(of_kind(np.fmod, truncated_remainder), AB, domain=(2.1, 2.9)),
    "ELEMENT_WISE_MODULUS_FLOOR": Elementwise(
        of_kind(np.mod, lambda a, b: a if b == 0 else a % b), AB, domain=(2.1, 2.9)
    ),
    "ELEMENT_WISE_MEAN": Elementwise(of_kind(lambda a, b: (a + b) / 2, half_of_sum), AB),
    "ELEMENT_WISE_DIFFERENCE_SQUARE": Elementwise(of_kind(lambda a, b: (a - b) ** 2, lambda a, b: (a - b) ** 2), AB),
    "ELEMENT_WISE_MAX": Elementwise(larger, AB, is_exact=True),
    "ELEMENT_WISE_MIN": Elementwise(smaller, AB, is_exact=True),
    "ELEMENT_WISE_ATAN_YX": Elementwise(np.arctan2, AB),
    "ELEMENT_WISE_POW": Elementwise(power, ("input",)),
    "ELEMENT_WISE_CONSTANT_POW": Elementwise(
        lambda x, exponent: power(x, np.float64(exponent)), attributes={"exponent": 1.5}, domain=(1.1, 1.9)
    ),
    "ELEMENT_WISE_CLIP": Elementwise(clipped, attributes={"min": 1, "max": 3}, domain=(1.2, 2.8), is_exact=True),
    "ELEMENT_WISE_CLIP1": Elementwise(
        clipped, attributes={"min_max_data_type": UINT8, "min": 1, "max": 3}, domain=(1.2, 2.8), is_exact=True
    ),
    "ELEMENT_WISE_CLIP_GRAD": Elementwise(
        clipped_gradient, GRADIENT, "output_gradient", attributes={"min": 1, "max": 3}, domain=(1.2, 2.8), is_exact=True
    ),
    "ELEMENT_WISE_CLIP_GRAD1": Elementwise(
        clipped_gradient,
        GRADIENT,
        "output_gradient",
        attributes={"min_max_data_type": UINT8, "min": 1, "max": 3},
        domain=(1.2, 2.8),
        is_exact=True,
    ),
    "ELEMENT_WISE_THRESHOLD": Elementwise(clipped, attributes={"min": 2}, domain=(2.1, 3), is_exact=True),
    "ELEMENT_WISE_LOGICAL_EQUALS": Elementwise(np.equal, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_GREATER_THAN": Elementwise(np.greater, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL": Elementwise(np.greater_equal, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_LESS_THAN": Elementwise(np.less, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL": Elementwise(np.less_equal, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_AND": Elementwise(np.logical_and, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_OR": Elementwise(np.logical_or, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_XOR": Elementwise(np.logical_xor, AB, is_exact=True),
    "ELEMENT_WISE_LOGICAL_NOT": Elementwise(np.logical_not, is_exact=True),
    "ELEMENT_WISE_IS_NAN": Elementwise(np.isnan, is_exact=True),
    "ELEMENT_WISE_IS_INFINITY": Elementwise(
        lambda x, infinity_mode: INFINITIES[infinity_mode](x),
        attributes={"infinity_mode": IsInfinityMode.NEGATIVE},
        is_exact=True,
    ),
    "ELEMENT_WISE_BIT_AND": Elementwise(bitwise(np.bitwise_and), AB, is_exact=True),
    "ELEMENT_WISE_BIT_OR": Elementwise(bitwise(np.bitwise_or), AB, is_exact=True),
    "ELEMENT_WISE_BIT_XOR": Elementwise(bitwise(np.bitwise_xor), AB, is_exact=True),
    "ELEMENT_WISE_BIT_NOT": Elementwise(bitwise(np.invert), is_exact=True),
    "ELEMENT_WISE_BIT_COUNT": Elementwise(lambda x: np.bitwise_count(*bits_of(x)), is_exact=True),
    "ELEMENT_WISE_BIT_SHIFT_LEFT": Elementwise(shifted(1), AB, is_exact=True),
    "ELEMENT_WISE_BIT_SHIFT_RIGHT": Elementwise(shifted(-1), AB, is_exact=True),
    "ACTIVATION_CELU": Elementwise(
        lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)), attributes={"alpha": 0.7}
    ),
    "ACTIVATION_ELU": Elementwise(
        lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), attributes={"alpha": 0.7}
    ),
    "ACTIVATION_GELU": Elementwise(lambda x: x * special.ndtr(x)),
    "ACTIVATION_HARD_SIGMOID": Elementwise(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), attributes={"alpha": 0.3, "beta": 0.4}
    ),
    "ACTIVATION_HARD_SWISH": Elementwise(
        lambda x, alpha, beta: x * np.clip(alpha * x + beta, 0, 1), attributes={"alpha": 0.3, "beta": 0.4}
    ),
    "ACTIVATION_IDENTITY": Elementwise(lambda x: x, is_exact=True),
    "ACTIVATION_LEAKY_RELU": Elementwise(lambda x, alpha: np.where(x >= 0, x, alpha * x), attributes={"alpha": 0.3}),
    "ACTIVATION_LINEAR": Elementwise(lambda x, alpha, beta: alpha * x + beta, attributes={"alpha": 0.3, "beta": 0.4}),
    "ACTIVATION_LOG_SOFTMAX": Elementwise(lambda x: log_softmax(x, (-1,))),
    "ACTIVATION_LOG_SOFTMAX1": Elementwise(log_softmax),
    "ACTIVATION_PARAMETERIZED_RELU": Elementwise(
        of_kind(lambda x, slope: np.where(x >= 0, x, slope * x), lambda x, slope: x if x >= 0 else slope * x),
        ("input", "slope"),
    ),
    "ACTIVATION_PARAMETRIC_SOFTPLUS": Elementwise(
        lambda x, alpha, beta: alpha * np.logaddexp(0, beta * x), attributes={"alpha": 0.5, "beta": 1.5}
    ),
    "ACTIVATION_RELU": Elementwise(lambda x: np.where(x > 0, x, np.where(x != x, x, 0)), is_exact=True),
    "ACTIVATION_RELU_GRAD": Elementwise(
        lambda x, gradient: np.where(x > 0, gradient, 0), GRADIENT, "output_gradient", is_exact=True
    ),
    "ACTIVATION_SCALED_ELU": Elementwise(
        lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x)),
        attributes={"alpha": 1.6732, "gamma": 1.0507},
    ),
    "ACTIVATION_SCALED_TANH": Elementwise(
        lambda x, alpha, beta: alpha * np.tanh(beta * x), attributes={"alpha": 0.5, "beta": 1.5}
    ),
    "ACTIVATION_SHRINK": Elementwise(shrunk, attributes={"bias": 2, "threshold": 0.5}, domain=(0.6, 0.9)),
    "ACTIVATION_SIGMOID": Elementwise(special.expit),
    "ACTIVATION_SOFTMAX": Elementwise(lambda x: np.exp(log_softmax(x, (-1,)))),
    "ACTIVATION_SOFTMAX1": Elementwise(lambda x, axes: np.exp(log_softmax(x, axes))),
    "ACTIVATION_SOFTPLUS": Elementwise(
        lambda x, steepness: np.logaddexp(0, steepness * x) / steepness, attributes={"steepness": 1.5}
    ),
    "ACTIVATION_SOFTSIGN": Elementwise(lambda x: x / (1 + np.abs(x))),
    "ACTIVATION_SWISH": Elementwise(
        lambda x, sigmoid_input_scale: x * special.expit(sigmoid_input_scale * x),
        attributes={"sigmoid_input_scale": 1.5},
    ),
    "ACTIVATION_TANH": Elementwise(np.tanh),
    "ACTIVATION_THRESHOLDED_RELU": Elementwise(
        lambda x, alpha: np.where(x > alpha, x, 0), attributes={"alpha": 0.7}, domain=(0.75, 0.95)
    ),
}


def exact_value(operator: str, attributes: Mapping[str, Any], *arrays: Arr) -> Arr:
    """The formula's value: of the arrays as they are where it is exact, otherwise of floats in float64."""
    case = OPERATORS[operator]
    if not case.is_exact:
        arrays = tuple(x.astype(np.float64) if x.dtype.kind == "f" else x for x in arrays)
    numbers = {key: plain(value) for key, value in attributes.items() if key != "min_max_data_type"}
    scale_bias = numbers.pop("scale_bias", None)
    if scale_bias is not None:
        scale, bias = map(plain, scale_bias)
        arrays = (arrays[0] * scale + bias, *arrays[1:])
    with np.errstate(all="ignore"):
        return np.asarray(case.formula(*arrays, **numbers))


def plain(value: Any) -> Any:
    """A Scalar as a number."""
    return value.item.item() if isinstance(value, dmljax.Scalar) else value
