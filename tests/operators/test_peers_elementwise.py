"""The elementwise operators and activations beside ONNX Runtime and PyTorch, on special, random and ordinary values.

Integers, predicates and copies are compared bit for bit, any NaN with any. For floats, both errors together must be
within our own bound (`helpers.UNITS`), unless the peer's error is larger; a `Peer` then says how large. A backend may
treat a subnormal input as zero, so the peer's result for that zero is also accepted. A `Difference` marks where a peer
computes something else, and the tests check that it still does.
"""

import functools
import operator
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from helpers import FEW_TYPES, FULL, GATE, SAMPLED, UNITS, X64, assert_same_bits, random_array, specials, units_off
from numpy.typing import NDArray
from test_peers import onnxruntime_run, same

import dmljax
from dmljax import directml
from dmljax.directml import IsInfinityMode, RoundingMode

pytestmark = GATE


Arr = NDArray[Any]
Mask = Callable[..., Any]
NARROW_FLOATS = ("float32", "float16")
FLOATS = (*NARROW_FLOATS, "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTEGERS)
# PyTorch has few functions of the other unsigned integers, ONNX Runtime few of 16-bit ones.
TORCH_INTEGERS = (*SIGNED, "uint8")
TORCH_NUMBERS = (*FLOATS, *TORCH_INTEGERS)
ONNX_INTEGERS = tuple(kind for kind in INTEGERS if not kind.endswith("16"))
ONNX_NUMBERS = (*FLOATS, *ONNX_INTEGERS)


@dataclass(frozen=True)
class Difference:
    """Where a peer computes something else, and why."""

    reason: str
    where: Mask
    types: tuple[str, ...] = FLOATS
    is_certain: bool = True  # it varies with the machine's vector width, or with an element's position in a vector


@dataclass(frozen=True)
class Peer:
    """How a peer spells an operator, the types it supports, and its error."""

    run: Callable[..., Any]
    types: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    units: float = 0  # the peer's error in units in the last place
    absolute: float = 0  # the peer's absolute error where the result is a small difference
    tensors: Callable[..., Any] | None = None  # PyTorch's function of tensors
    node: tuple[str, tuple[float | None, ...], int, dict[str, Any]] | None = None  # ONNX's, with its constants


@dataclass(frozen=True)
class Case:
    """An operator's function, and its peers."""

    function: Callable[..., Any]
    peers: dict[str, Peer] = field(default_factory=dict)
    inputs: int = 1
    domain: tuple[float, float] = (-3, 3)
    is_exact: bool = False  # bit for bit


def torch(
    path: str | Callable[..., Any],
    types: tuple[str, ...] = NARROW_FLOATS,
    *differences: Difference,
    units: float = 0,
    absolute: float = 0,
    **attributes: Any,
) -> dict[str, Peer]:
    def tensors(*given: Any) -> Any:
        module = pytest.importorskip("torch")
        function = operator.attrgetter(path)(module) if isinstance(path, str) else path
        return function(*given, **attributes)

    def run(*arrays: Arr) -> Any:
        module = pytest.importorskip("torch")
        return tensors(*map(module.from_numpy, arrays)).numpy()

    return {"torch": Peer(run, types, differences, units, absolute, tensors)}


def onnx(
    name: str,
    types: tuple[str, ...] = NARROW_FLOATS,
    *differences: Difference,
    units: float = 0,
    absolute: float = 0,
    constants: tuple[float | None, ...] = (),
    opset: int = 21,
    **attributes: Any,
) -> dict[str, Peer]:
    def run(*arrays: Arr) -> Any:
        # Earlier versions have fewer types, and other differences.
        pytest.importorskip("onnxruntime", minversion="1.31")
        more = [None if number is None else np.array(number, arrays[0].dtype) for number in constants]
        return onnxruntime_run(name, [*arrays, *more], opset, **attributes)

    return {"onnxruntime": Peer(run, types, differences, units, absolute, node=(name, constants, opset, attributes))}


fixed = functools.partial


# Differences


def is_nan(*arrays: Arr) -> Any:
    return np.logical_or.reduce([np.isnan(x) for x in arrays])


def is_signaling(x: Arr) -> Any:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    quiet_bit = unsigned.type(1 << (np.finfo(x.dtype).nmant - 1))
    return np.isnan(x) & (x.view(unsigned) & quiet_bit == 0)


def is_zero_or_subnormal(x: Arr) -> Any:
    return np.abs(x) < np.finfo(x.dtype).tiny if x.dtype.kind == "f" else np.zeros_like(x, bool)


def is_subnormal(x: Arr) -> Any:
    return is_zero_or_subnormal(x) & (x != 0)


def is_negative_zero(x: Arr) -> Any:
    return (x == 0) & np.signbit(x)


def is_smallest_negative(x: Arr) -> Any:
    return np.signbit(x) & (np.abs(x) < 2 * np.finfo(x.dtype).tiny)


def are_opposite_zeros(a: Arr, b: Arr) -> Any:
    return (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))


def is_beyond(limit: float) -> Mask:
    return lambda *arrays: np.logical_or.reduce([np.abs(x) > limit for x in arrays])


def is_beyond_doubles(base: Arr, exponent: Arr) -> Any:
    wide = [x.astype(float) for x in (base, exponent)]
    return (np.abs(wide) >= 2**53).any(0) | (np.abs(np.power(*wide)) >= min(2**53, np.iinfo(base.dtype).max))


def prelu(x: Any, slope: Any) -> Any:
    # A slope for each channel, the elements of one row.
    import torch

    return torch.nn.functional.prelu(x[None], slope)[0]


FROM_32_BITS = ("float32", "float64")
NAN_PASSES = Difference("the page has 0 where no comparison holds; PyTorch returns NaN for NaN", is_nan)
NAN_HAS_NO_SIGN = Difference(
    "the page has 0 for elements neither above nor below 0; ONNX Runtime has NaN", is_nan, FROM_32_BITS
)
ZERO_KEEPS_SIGN = Difference(
    "the page has 0 for elements not above 0, so ours is +0; the peer's is -0", is_negative_zero
)
ZERO_LOSES_SIGN = Difference(
    "ONNX Runtime has +0 for -0, and for numbers so small that their exponential is 1", is_smallest_negative
)
TINY_LOSES_SIGN = Difference("ONNX Runtime has +0 where the exponential is 1", is_smallest_negative, ("float32",))
ZERO_IS_MULTIPLIED = Difference(
    "the page copies elements from zero on; PyTorch copies those above zero", lambda x, _: x == 0
)
EITHER_ZERO = Difference(
    "of opposite zeros, ours selects by sign; the peer's may return either", are_opposite_zeros, is_certain=False
)
SHRINKS_TO_SIGN = Difference(
    "the page has 0 between the thresholds; PyTorch, at the end of its vectors, has the element times 0",
    lambda x: np.signbit(x) & (x >= -1.5),
    is_certain=False,
)
SHRINKS_FLOATS = Difference(
    "ONNX Runtime computes in float32",
    lambda x: np.abs(x.astype(float)) >= 2**24,
    tuple(kind for kind in INTEGERS if kind.endswith(("32", "64"))),
)
LOWEST_IS_LEFT = Difference("ONNX uses the lowest number for a missing bound", np.isneginf)
HIGHEST_IS_LEFT = Difference("ONNX uses the highest number for a missing bound", np.isposinf)
PRODUCT_OVERFLOWS = Difference(
    "PyTorch's product overflows before it is divided", is_beyond(1e37), ("float32",), is_certain=False
)
ZERO_IS_POSITIVE = Difference(
    "PyTorch gives 0 for -0 on processors without AVX-512",
    lambda x: (np.abs(x) < 1e-37) | (x < -5),
    ("float32",),
    is_certain=False,
)
SOFTPLUS_OVERFLOWS = Difference(
    "ONNX Runtime's product overflows before it is halved", is_beyond(2e38), ("float32",), is_certain=False
)
MEAN_OVERFLOWS = Difference(
    "ours is finite if only the sum overflows, not its half",
    lambda a, b: np.isinf(a + b) & np.isfinite(a) & np.isfinite(b),
    ("float32",),
)
PRODUCT_OF_SUBNORMAL = Difference(
    "ours distinguishes a subnormal from zero, but XLA multiplies it as a zero",
    lambda x, slope: is_subnormal(x) & (x < 0) & (np.abs(slope) > 1),
    FROM_32_BITS,
)
INEXACT_MODULUS = Difference(
    "PyTorch's quotient overflows, or is rounded up to a whole number",
    lambda a, b: np.abs(a) > 2**20 * np.abs(b),
    FROM_32_BITS,
    is_certain=False,
)
SIGN_OF_MODULUS = Difference(
    "a zero has the divisor's sign in ours, as in Python, and the dividend's in PyTorch",
    lambda a, b: (np.fmod(a, b) == 0) & (np.signbit(a) != np.signbit(b)) | is_zero_or_subnormal(a),
)
SIGNALLING_POWER = Difference(
    "a signaling NaN to the power 0, or 1 to a signaling NaN, is NaN or 1: IEEE 754 allows both",
    lambda base, exponent: is_signaling(base) | is_signaling(exponent),
    is_certain=False,
)
POWER_OF_ZERO = Difference(
    "a negative power of the integer 0 is 1 / 0, which is -1 in ours; in PyTorch it is 0",
    lambda base, exponent: (base == 0) & (exponent < 0),
    SIGNED,
)
POWER_OF_DOUBLES = Difference(
    "the page's results are exact, and wrap around in ours; ONNX Runtime computes in float64, and saturates",
    is_beyond_doubles,
    SIGNED,
)

CASES: dict[str, Case] = {
    "ABS": Case(dmljax.element_wise_abs, torch("abs", TORCH_NUMBERS) | onnx("Abs", NUMBERS), is_exact=True),
    "NEGATE": Case(
        dmljax.element_wise_negate, torch("neg", TORCH_NUMBERS) | onnx("Neg", (*FLOATS, *SIGNED)), is_exact=True
    ),
    "IDENTITY": Case(dmljax.element_wise_identity, torch("clone", NUMBERS) | onnx("Identity", NUMBERS), is_exact=True),
    "SIGN": Case(
        dmljax.element_wise_sign, torch("sign", TORCH_NUMBERS) | onnx("Sign", NUMBERS, NAN_HAS_NO_SIGN), is_exact=True
    ),
    "CEIL": Case(dmljax.element_wise_ceil, torch("ceil", FLOATS) | onnx("Ceil", FLOATS)),
    "FLOOR": Case(dmljax.element_wise_floor, torch("floor", FLOATS) | onnx("Floor", FLOATS)),
    "ROUND": Case(dmljax.element_wise_round, torch("round", FLOATS) | onnx("Round", FLOATS)),
    "ROUND toward zero": Case(
        fixed(dmljax.element_wise_round, rounding_mode=RoundingMode.TOWARD_ZERO), torch("trunc", FLOATS)
    ),
    "SQRT": Case(dmljax.element_wise_sqrt, torch("sqrt", FLOATS) | onnx("Sqrt", FLOATS), domain=(0, 20)),
    "RECIP": Case(dmljax.element_wise_recip, torch("reciprocal", FLOATS) | onnx("Reciprocal", FLOATS)),
    "EXP": Case(dmljax.element_wise_exp, torch("exp") | onnx("Exp"), domain=(-80, 80)),
    "LOG": Case(dmljax.element_wise_log, torch("log") | onnx("Log"), domain=(0.01, 20)),
    "ERF": Case(dmljax.element_wise_erf, torch("erf", ("float32",)) | onnx("Erf")),
    "ERF of 16 bits": Case(dmljax.element_wise_erf, torch("erf", ("float16",), units=3)),
    "SIN": Case(dmljax.element_wise_sin, torch("sin") | onnx("Sin"), domain=(-20, 20)),
    "COS": Case(dmljax.element_wise_cos, torch("cos") | onnx("Cos"), domain=(-20, 20)),
    "TAN": Case(dmljax.element_wise_tan, torch("tan") | onnx("Tan"), domain=(-9, 9)),
    "ASIN": Case(dmljax.element_wise_asin, torch("asin") | onnx("Asin"), domain=(-1, 1)),
    "ACOS": Case(dmljax.element_wise_acos, torch("acos") | onnx("Acos"), domain=(-1, 1)),
    "ATAN": Case(dmljax.element_wise_atan, torch("atan") | onnx("Atan"), domain=(-20, 20)),
    "SINH": Case(dmljax.element_wise_sinh, torch("sinh") | onnx("Sinh"), domain=(-20, 20)),
    "COSH": Case(dmljax.element_wise_cosh, torch("cosh") | onnx("Cosh"), domain=(-20, 20)),
    "TANH": Case(dmljax.element_wise_tanh, torch("tanh") | onnx("Tanh", absolute=1e-41), domain=(-9, 9)),
    "ASINH": Case(dmljax.element_wise_asinh, torch("asinh") | onnx("Asinh"), domain=(-20, 20)),
    "ACOSH": Case(dmljax.element_wise_acosh, torch("acosh") | onnx("Acosh"), domain=(1, 20)),
    "ATANH": Case(dmljax.element_wise_atanh, torch("atanh") | onnx("Atanh"), domain=(-1, 1)),
    "CONSTANT_POW": Case(
        fixed(dmljax.element_wise_constant_pow, exponent=1.5),
        torch("pow", FLOATS, exponent=1.5) | onnx("Pow", FLOATS, constants=(1.5,)),
        domain=(0, 9),
    ),
    "CONSTANT_POW of 3": Case(
        fixed(dmljax.element_wise_constant_pow, exponent=3),
        torch("pow", FLOATS, exponent=3) | onnx("Pow", FLOATS, constants=(3,)),
        domain=(-9, 9),
    ),
    "IS_NAN": Case(dmljax.element_wise_is_nan, torch("isnan", FLOATS) | onnx("IsNaN", FLOATS)),
    "IS_INFINITY": Case(dmljax.element_wise_is_infinity, torch("isinf", FLOATS) | onnx("IsInf", FLOATS)),
    "IS_INFINITY of +": Case(
        fixed(dmljax.element_wise_is_infinity, infinity_mode=IsInfinityMode.POSITIVE),
        torch("isposinf", FLOATS) | onnx("IsInf", FLOATS, detect_negative=0),
    ),
    "IS_INFINITY of -": Case(
        fixed(dmljax.element_wise_is_infinity, infinity_mode=IsInfinityMode.NEGATIVE),
        torch("isneginf", FLOATS) | onnx("IsInf", FLOATS, detect_positive=0),
    ),
    "CLIP": Case(
        fixed(dmljax.element_wise_clip, min=1, max=3),
        torch("clamp", TORCH_NUMBERS, min=1, max=3) | onnx("Clip", ONNX_NUMBERS, constants=(1, 3)),
        domain=(0, 4),
        is_exact=True,
    ),
    "CLIP1": Case(
        fixed(dmljax.element_wise_clip1, min=None, max=3),
        torch("clamp", TORCH_NUMBERS, max=3) | onnx("Clip", ONNX_NUMBERS, LOWEST_IS_LEFT, constants=(None, 3)),
        domain=(0, 4),
        is_exact=True,
    ),
    "THRESHOLD": Case(
        fixed(dmljax.element_wise_threshold, min=2),
        torch("clamp", TORCH_NUMBERS, min=2) | onnx("Clip", ONNX_NUMBERS, HIGHEST_IS_LEFT, constants=(2,)),
        domain=(0, 4),
        is_exact=True,
    ),
    "BIT_NOT": Case(dmljax.element_wise_bit_not, torch("bitwise_not", TORCH_INTEGERS) | onnx("BitwiseNot", INTEGERS)),
    "LOGICAL_NOT": Case(
        dmljax.element_wise_logical_not,
        torch("logical_not", (*TORCH_NUMBERS, "bool")) | onnx("Not", ("bool",)),
    ),
    # Two inputs
    "ADD": Case(dmljax.element_wise_add, torch("add", TORCH_NUMBERS) | onnx("Add", NUMBERS), inputs=2),
    "ADD1": Case(
        fixed(dmljax.element_wise_add1, fused_activation=directml.ActivationLeakyReluDesc(alpha=0.5)),
        torch(lambda a, b: (a + b).max(0.5 * (a + b)), FLOATS),
        inputs=2,
    ),
    "SUBTRACT": Case(dmljax.element_wise_subtract, torch("sub", TORCH_NUMBERS) | onnx("Sub", NUMBERS), inputs=2),
    "MULTIPLY": Case(dmljax.element_wise_multiply, torch("mul", TORCH_NUMBERS) | onnx("Mul", NUMBERS), inputs=2),
    "DIVIDE": Case(dmljax.element_wise_divide, torch("div", FLOATS) | onnx("Div", NUMBERS), inputs=2),
    "DIVIDE of integers": Case(
        dmljax.element_wise_divide, torch("div", TORCH_INTEGERS, rounding_mode="trunc"), inputs=2
    ),
    "MODULUS_TRUNCATE": Case(
        dmljax.element_wise_modulus_truncate,
        torch("fmod", TORCH_NUMBERS, INEXACT_MODULUS) | onnx("Mod", NUMBERS, fmod=1),
        inputs=2,
    ),
    "MODULUS_FLOOR": Case(
        dmljax.element_wise_modulus_floor,
        torch("remainder", TORCH_NUMBERS, INEXACT_MODULUS, SIGN_OF_MODULUS) | onnx("Mod", INTEGERS),
        inputs=2,
    ),
    "MEAN": Case(dmljax.element_wise_mean, onnx("Mean", NARROW_FLOATS, MEAN_OVERFLOWS), inputs=2),
    "DIFFERENCE_SQUARE": Case(
        dmljax.element_wise_difference_square,
        torch("nn.functional.mse_loss", FLOATS, units=1, reduction="none"),
        inputs=2,
    ),
    "MAX": Case(
        dmljax.element_wise_max,
        torch("maximum", TORCH_NUMBERS, EITHER_ZERO) | onnx("Max", ONNX_NUMBERS, EITHER_ZERO),
        inputs=2,
        is_exact=True,
    ),
    "MIN": Case(
        dmljax.element_wise_min,
        torch("minimum", TORCH_NUMBERS, EITHER_ZERO) | onnx("Min", ONNX_NUMBERS, EITHER_ZERO),
        inputs=2,
        is_exact=True,
    ),
    "ATAN_YX": Case(dmljax.element_wise_atan_yx, torch("atan2"), inputs=2),
    "POW": Case(
        dmljax.element_wise_pow,
        torch("pow", TORCH_NUMBERS, SIGNALLING_POWER, POWER_OF_ZERO)
        | onnx("Pow", (*FLOATS, "int32", "int64"), SIGNALLING_POWER, POWER_OF_DOUBLES),
        inputs=2,
        domain=(0.1, 6),
    ),
    **{
        f"LOGICAL_{name}": Case(
            getattr(dmljax, f"element_wise_logical_{name.lower()}"),
            torch(torch_name, (*TORCH_NUMBERS, "bool")) | onnx(onnx_name, (*NUMBERS, *kinds)),
            inputs=2,
        )
        for name, torch_name, onnx_name, kinds in (
            ("EQUALS", "eq", "Equal", ("bool",)),
            ("GREATER_THAN", "gt", "Greater", ()),
            ("GREATER_THAN_OR_EQUAL", "ge", "GreaterOrEqual", ()),
            ("LESS_THAN", "lt", "Less", ()),
            ("LESS_THAN_OR_EQUAL", "le", "LessOrEqual", ()),
        )
    },
    **{
        f"LOGICAL_{name}": Case(
            getattr(dmljax, f"element_wise_logical_{name.lower()}"),
            torch(f"logical_{name.lower()}", (*TORCH_NUMBERS, "bool")) | onnx(name.title(), ("bool",)),
            inputs=2,
        )
        for name in ("AND", "OR", "XOR")
    },
    **{
        f"BIT_{name}": Case(
            getattr(dmljax, f"element_wise_bit_{name.lower()}"),
            torch(f"bitwise_{name.lower()}", INTEGERS) | onnx(f"Bitwise{name.title()}", INTEGERS),
            inputs=2,
        )
        for name in ("AND", "OR", "XOR")
    },
    # The pages only have unsigned integers; shifted left, a sign is a bit like the others.
    "BIT_SHIFT_LEFT": Case(
        dmljax.element_wise_bit_shift_left,
        torch("bitwise_left_shift", TORCH_INTEGERS) | onnx("BitShift", ("uint8", "uint32", "uint64"), direction="LEFT"),
        inputs=2,
    ),
    "BIT_SHIFT_RIGHT": Case(
        dmljax.element_wise_bit_shift_right,
        torch("bitwise_right_shift", ("uint8",)) | onnx("BitShift", ("uint8", "uint32", "uint64"), direction="RIGHT"),
        inputs=2,
    ),
    # Activations. The digits that ONNX Runtime's exp(x) - 1 and both peers' 1 + erf(x) lose below zero are large beside
    # the result; ONNX Runtime's sigmoid is a rational function, as far off at 0 as at 1; a result near 0 at -3 is a
    # difference as well.
    "RELU": Case(
        dmljax.activation_relu,
        torch("relu", (*FLOATS, *SIGNED), ZERO_KEEPS_SIGN) | onnx("Relu", (*FLOATS, "int8", "int32"), ZERO_KEEPS_SIGN),
        is_exact=True,
    ),
    "LEAKY_RELU": Case(
        fixed(dmljax.activation_leaky_relu, alpha=0.3),
        torch("nn.functional.leaky_relu", FLOATS, negative_slope=0.3) | onnx("LeakyRelu", alpha=0.3),
    ),
    "PARAMETERIZED_RELU": Case(
        dmljax.activation_parameterized_relu,
        torch(prelu, FLOATS, ZERO_IS_MULTIPLIED) | onnx("PRelu", NARROW_FLOATS, PRODUCT_OF_SUBNORMAL),
        inputs=2,
    ),
    "THRESHOLDED_RELU": Case(
        fixed(dmljax.activation_thresholded_relu, alpha=0.7),
        torch("nn.functional.threshold", FLOATS, NAN_PASSES, threshold=0.7, value=0)
        | onnx("ThresholdedRelu", alpha=0.7),
    ),
    "SHRINK hard": Case(
        fixed(dmljax.activation_shrink, bias=0.0, threshold=0.5),
        torch("nn.functional.hardshrink", FLOATS, NAN_PASSES, lambd=0.5) | onnx("Shrink", NARROW_FLOATS, lambd=0.5),
    ),
    "SHRINK soft": Case(
        fixed(dmljax.activation_shrink, bias=1.5, threshold=1.5),
        torch("nn.functional.softshrink", FLOATS, NAN_PASSES, SHRINKS_TO_SIGN, lambd=1.5)
        | onnx("Shrink", NARROW_FLOATS, bias=1.5, lambd=1.5),
    ),
    "SHRINK of integers": Case(
        fixed(dmljax.activation_shrink, bias=2, threshold=1.5),
        onnx("Shrink", INTEGERS, SHRINKS_FLOATS, bias=2.0, lambd=1.5),
    ),
    "ELU": Case(
        fixed(dmljax.activation_elu, alpha=0.7),
        torch("nn.functional.elu", alpha=0.7) | onnx("Elu", NARROW_FLOATS, TINY_LOSES_SIGN, alpha=0.7, absolute=1e-7),
        domain=(-20, 5),
    ),
    "CELU": Case(
        fixed(dmljax.activation_celu, alpha=0.7),
        torch("nn.functional.celu", alpha=0.7) | onnx("Celu", ("float32",), ZERO_LOSES_SIGN, alpha=0.7, absolute=1e-7),
        domain=(-20, 5),
    ),
    "SCALED_ELU": Case(
        fixed(dmljax.activation_scaled_elu, alpha=1.6732632423543772, gamma=1.0507009873554805),
        torch("selu") | onnx("Selu", NARROW_FLOATS, ZERO_LOSES_SIGN, absolute=2e-7),
        domain=(-20, 5),
    ),
    "SOFTPLUS": Case(dmljax.activation_softplus, torch("nn.functional.softplus") | onnx("Softplus"), domain=(-20, 20)),
    "SOFTPLUS of 1.5": Case(
        fixed(dmljax.activation_softplus, steepness=1.5),
        torch("nn.functional.softplus", ("float32",), units=16, beta=1.5),
        domain=(-20, 20),
    ),
    "PARAMETRIC_SOFTPLUS": Case(
        fixed(dmljax.activation_parametric_softplus, alpha=0.5, beta=1.5),
        onnx("ParametricSoftplus", ("float32",), SOFTPLUS_OVERFLOWS, absolute=1e-7, opset=9, alpha=0.5, beta=1.5),
        domain=(-20, 20),
    ),
    "SIGMOID": Case(dmljax.activation_sigmoid, torch("sigmoid") | onnx("Sigmoid", absolute=1e-7), domain=(-20, 20)),
    "HARD_SIGMOID": Case(
        fixed(dmljax.activation_hard_sigmoid, alpha=1 / 6),
        torch("nn.functional.hardsigmoid", absolute=1e-7) | onnx("HardSigmoid", alpha=1 / 6, absolute=1e-7),
        domain=(-4, 4),
    ),
    "activation TANH": Case(dmljax.activation_tanh, torch("tanh") | onnx("Tanh", absolute=1e-41), domain=(-9, 9)),
    "SCALED_TANH": Case(
        fixed(dmljax.activation_scaled_tanh, alpha=0.5, beta=1.5),
        onnx("ScaledTanh", ("float32",), opset=9, alpha=0.5, beta=1.5),
    ),
    "SOFTSIGN": Case(dmljax.activation_softsign, torch("nn.functional.softsign") | onnx("Softsign")),
    "GELU": Case(
        dmljax.activation_gelu,
        torch("nn.functional.gelu", NARROW_FLOATS, PRODUCT_OVERFLOWS, ZERO_IS_POSITIVE, absolute=1e-6)
        | onnx("Gelu", absolute=1e-6),
        domain=(-6, 6),
    ),
    "SWISH": Case(
        dmljax.activation_swish,
        torch("nn.functional.silu") | onnx("QuickGelu", absolute=2e-6, alpha=1.0, domain="com.microsoft"),
        domain=(-20, 20),
    ),
    "SWISH of 1.5": Case(
        fixed(dmljax.activation_swish, sigmoid_input_scale=1.5),
        onnx("QuickGelu", absolute=2e-6, alpha=1.5, domain="com.microsoft"),
        domain=(-20, 20),
    ),
    "HARD_SWISH": Case(
        dmljax.activation_hard_swish,
        torch("nn.functional.hardswish", NARROW_FLOATS, PRODUCT_OVERFLOWS, absolute=4e-7)
        | onnx("HardSwish", absolute=4e-7),
        domain=(-4, 4),
    ),
    "activation IDENTITY": Case(
        dmljax.activation_identity, torch("clone", FLOATS) | onnx("Identity", FLOATS), is_exact=True
    ),
    "LINEAR": Case(
        fixed(dmljax.activation_linear, alpha=0.3, beta=0.4),
        onnx("Affine", ("float32",), absolute=1e-7, opset=9, alpha=0.3, beta=0.4),
    ),
}
ROWS = [
    pytest.param(
        name, peer, np.dtype(kind), id=f"{name}-{peer}-{kind}", marks=[FULL] * (np.dtype(kind) not in FEW_TYPES)
    )
    for name, case in CASES.items()
    for peer, spelled in case.peers.items()
    for kind in spelled.types
    if X64 or np.dtype(kind).itemsize < 8
]


def inputs(name: str, dtype: Any) -> list[Arr]:
    """Special values (every pair for two inputs), random bits, and numbers of the domain."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    case = CASES[name]
    special = specials(dtype)
    first = [np.repeat(special, len(special)), np.tile(special, len(special))] if case.inputs == 2 else [special]
    arrays = [np.concatenate([given, random_array(rng, dtype, (400,)), ordinary(rng, case, dtype)]) for given in first]
    if name.startswith(("DIVIDE", "MODULUS")) and dtype.kind in "iu":
        # The peers raise errors for a division by an integer 0, and crash for the smallest integer divided by -1.
        a, b = arrays
        can_be_asked = (b != 0) & ((b + 1 != 0) | (a != np.iinfo(dtype).min))
        return [a[can_be_asked], b[can_be_asked]]
    return arrays


def ordinary(rng: np.random.Generator, case: Case, dtype: Any, count: int = 400) -> Arr:
    if dtype.kind != "f":
        return rng.integers(0, 2 if dtype.kind == "b" else 100, count).astype(dtype)
    return rng.uniform(*case.domain, count).astype(dtype)


def without_subnormals(array: Arr) -> Arr:
    return np.where(is_zero_or_subnormal(array), np.copysign(np.zeros_like(array), array), array)


def is_same(case: Case, peer: Peer, actual: Arr, expected: Arr) -> Any:
    if actual.dtype.kind != "f":
        return actual == expected
    if case.is_exact:
        unsigned = f"u{actual.dtype.itemsize}"
        return (actual.view(unsigned) == expected.view(unsigned)) | (np.isnan(actual) & np.isnan(expected))
    units = UNITS[actual.dtype.name] + peer.units
    with np.errstate(invalid="ignore", over="ignore"):
        is_near = (np.abs(actual - expected) <= peer.absolute) & (actual != expected)  # zeros have their signs
        return is_near | (units_off(actual, expected) <= units)


def check(name: str, peer_name: str, arrays: list[Arr]) -> None:
    case = CASES[name]
    peer = case.peers[peer_name]
    expected = peer.run(*arrays)  # first, because it skips the test if the peer is not installed
    actual = np.asarray(case.function(*arrays))
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    agrees = is_same(case, peer, actual, expected)
    if not np.all(agrees) and not case.is_exact and arrays[0].dtype.kind == "f":
        agrees |= is_same(case, peer, actual, peer.run(*map(without_subnormals, arrays)))
    known = np.zeros_like(agrees)
    for difference in peer.differences:
        if arrays[0].dtype.name in difference.types:
            with np.errstate(all="ignore"):
                where = difference.where(*arrays)
            assert not difference.is_certain or np.any(where & ~agrees), f"no more: {difference.reason}"
            known |= where
    wrong = np.argwhere(~agrees & ~known)
    places = [tuple(place) for place in wrong[:5]]
    shown = [(*(x[at] for x in np.broadcast_arrays(*arrays)), actual[at], expected[at]) for at in places]
    assert not wrong.size, f"{len(wrong)} of {agrees.size}: inputs, ours, {peer_name}'s: {shown}"


@pytest.mark.full(but=24)
@pytest.mark.parametrize(("name", "peer_name", "dtype"), ROWS)
def test_an_operator_equals_its_peers_except_as_listed(name: str, peer_name: str, dtype: Any) -> None:
    check(name, peer_name, inputs(name, dtype))


@SAMPLED
@pytest.mark.parametrize("peer_name", ["torch", "onnxruntime"])
@pytest.mark.parametrize("name", ["ADD", "SUBTRACT", "MULTIPLY", "DIVIDE", "LOGICAL_GREATER_THAN", "BIT_XOR"])
def test_operands_broadcast_as_the_peers_do(name: str, peer_name: str) -> None:
    # A divisor for a row or column has a reciprocal, which may be subnormal where the quotient is not.
    dtype = np.dtype("int32" if name.startswith("BIT") else "float32")
    column = np.concatenate([specials(dtype), ordinary(np.random.default_rng(8), CASES[name], dtype, 20)])[:, None]
    check(name, peer_name, [column, column[:, 0]])
    check(name, peer_name, [column, np.array(column[-1, 0])])


def float32s(rng: np.random.Generator, limit: float, *shape: int) -> Arr:
    return rng.uniform(-limit, limit, shape).astype(np.float32)


# Rows


@SAMPLED
@pytest.mark.parametrize("dtype", NARROW_FLOATS)
@pytest.mark.parametrize("peer_name", ["torch", "onnxruntime"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_and_log_softmax_equal_the_peers(axis: int, peer_name: str, dtype: str) -> None:
    # The peers round the distance from the largest element, up to 8, before the exponential, and the logarithm near 1.
    array = np.random.default_rng(axis + 5).uniform(-4, 4, (5, 6, 7)).astype(dtype)
    array[np.arange(5), np.arange(5), np.arange(5)] = [np.nan, np.inf, -np.inf, 0, -0.0]
    for name, function, units, absolute in (
        ("Softmax", dmljax.activation_softmax1, 16, 0),
        ("LogSoftmax", dmljax.activation_log_softmax1, 4, {"float32": 5e-7, "float16": 2e-3}[dtype]),
    ):
        actual = np.asarray(function(array, axes=axis))
        expected = SOFTMAX[peer_name](name, array, axis)
        assert actual.dtype == expected.dtype
        with np.errstate(invalid="ignore"):
            is_near = np.abs(actual - expected) <= absolute
            assert np.all(is_near | (units_off(actual, expected) <= units)), name
        if axis == -1:
            plain = {"Softmax": dmljax.activation_softmax, "LogSoftmax": dmljax.activation_log_softmax}[name]
            assert_same_bits(plain(array), actual)


def torch_softmax(name: str, array: Arr, axis: int) -> Any:
    module = pytest.importorskip("torch")
    function = {"Softmax": module.softmax, "LogSoftmax": module.log_softmax}[name]
    return function(module.from_numpy(array), axis).numpy()


SOFTMAX: dict[str, Callable[..., Any]] = {
    "torch": torch_softmax,
    "onnxruntime": lambda name, array, axis: onnxruntime_run(name, [array], axis=axis),
}


# Selection, mixed types, quantization


def selection(dtype: Any) -> list[Arr]:
    rng = np.random.default_rng(12)
    a, b = (np.concatenate([specials(dtype), random_array(rng, dtype, (300,))]) for _ in range(2))
    return [rng.random(a.shape) < 0.5, a, np.flip(b).copy()]


@SAMPLED
@pytest.mark.parametrize("dtype", [np.dtype(kind) for kind in NUMBERS if X64 or np.dtype(kind).itemsize < 8], ids=str)
def test_if_equals_pytorch(dtype: Any) -> None:
    module = pytest.importorskip("torch")
    expected = module.where(*map(module.from_numpy, selection(dtype))).numpy()
    assert_same_bits(dmljax.element_wise_if(*selection(dtype)), expected)


@SAMPLED
@pytest.mark.parametrize("kind", ["float32", "float16", "uint8", "int32"])
def test_if_equals_onnxruntime_except_for_the_sign_of_zero(kind: str) -> None:
    actual = np.asarray(dmljax.element_wise_if(*selection(kind)))
    expected = onnxruntime_run("Where", selection(kind))
    same(actual, expected)
    # ONNX Runtime adds the chosen element to a zero, so -0 loses its sign.
    assert kind not in FLOATS or np.any(np.signbit(actual) != np.signbit(expected))


def test_clip_prefers_min_where_the_peers_prefer_max() -> None:
    # The page has max(Min, min(x, Max)).
    input, low, high = np.arange(5, dtype=np.float32), np.float32(3), np.float32(1)
    assert dmljax.element_wise_clip(input, low, high).tolist() == [3] * 5
    assert onnxruntime_run("Clip", [input, np.array(low), np.array(high)]).tolist() == [1] * 5
    module = pytest.importorskip("torch")
    assert module.clamp(module.from_numpy(input), 3, 1).tolist() == [1] * 5


@SAMPLED
@pytest.mark.parametrize("exponent_kind", ["float32", "float16", "int32", "int64"])
@pytest.mark.parametrize("kind", ["float32", "int32", "int64"])
def test_pow_of_mixed_types_equals_onnxruntime_where_float64_is_exact(kind: str, exponent_kind: str) -> None:
    if not X64 and "int64" in (kind, exponent_kind):
        pytest.skip("needs 64-bit types")
    rng = np.random.default_rng(13)
    base, exponent = rng.integers(-9, 10, 500).astype(kind), rng.integers(0, 8, 500).astype(exponent_kind)
    same(dmljax.element_wise_pow(base, exponent), onnxruntime_run("Pow", [base, exponent]))


@SAMPLED
@pytest.mark.parametrize("scale", [0.37, 2.0, 7.0, 41.0])
@pytest.mark.parametrize("quantized", ["uint8", "int8", "uint16", "int16"])
def test_quantize_linear_equals_onnxruntime_except_for_nan(quantized: str, scale: float) -> None:
    # A scale of 7 distinguishes a quotient from a product with the reciprocal, which misses exact halves.
    rng = np.random.default_rng(14)
    halves = (np.arange(-300, 300) + 0.5) * np.float32(scale)
    input = np.concatenate([specials("float32"), random_array(rng, "float32", (300,)), halves.astype(np.float32)])
    factor, zero_point = np.array(scale, np.float32), np.array(3, quantized)
    actual = np.asarray(dmljax.element_wise_quantize_linear(input, factor, zero_point))
    expected = onnxruntime_run("QuantizeLinear", [input, factor, zero_point], 21)
    number = ~np.isnan(input)
    same(actual[number], expected[number])
    # NaN is 0 steps from the zero point; in ONNX Runtime, it becomes the lowest number.
    assert set(actual[~number]) == {3}
    assert set(expected[~number]) == {np.iinfo(quantized).min}


@SAMPLED
@pytest.mark.parametrize("factor_kind", NARROW_FLOATS)
@pytest.mark.parametrize("quantized", ["uint8", "int8", "uint16", "int16", "int32"])
def test_dequantize_linear_equals_onnxruntime(quantized: str, factor_kind: str) -> None:
    input, factor = random_array(np.random.default_rng(15), quantized, (500,)), np.array(0.3, factor_kind)
    expected = onnxruntime_run("DequantizeLinear", [input, factor], 21)
    same(dmljax.element_wise_dequantize_linear(input, factor), expected)
    if quantized != "int32":  # ONNX Runtime needs a zero point of 0
        zero_point = np.array(3, quantized)
        expected = onnxruntime_run("DequantizeLinear", [input, factor, zero_point], 21)
        same(dmljax.element_wise_dequantize_linear(input, factor, zero_point), expected)


@pytest.mark.parametrize("bounds", [(0, 255), (-128, 127)], ids=["uint8", "int8"])
def test_quantizing_and_back_equals_pytorch_except_for_nan(bounds: tuple[int, int]) -> None:
    module = pytest.importorskip("torch")
    rng = np.random.default_rng(16)
    input = np.concatenate([specials("float32"), random_array(rng, "float32", (300,)), float32s(rng, 99, 300)])
    kind, factor = np.dtype("uint8" if bounds[0] == 0 else "int8"), np.array(0.5, np.float32)
    expected = module.fake_quantize_per_tensor_affine(module.from_numpy(input), 0.5, 3, *bounds).numpy()
    steps = dmljax.element_wise_quantize_linear(input, factor, np.array(3, kind))
    actual = np.asarray(dmljax.element_wise_dequantize_linear(steps, factor, np.array(3, kind)))
    number = ~np.isnan(input)
    same(actual[number], expected[number])


@SAMPLED
@pytest.mark.parametrize("factors", [(0.5, 0.25, 0.75), (3.5, 7.0, 7.0)], ids=str)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_quantized_linear_add_equals_onnxruntime(kind: str, factors: tuple[float, ...]) -> None:
    rng = np.random.default_rng(17)
    a, b = (random_array(rng, kind, (2000,)) for _ in range(2))
    scales = [np.array(factor, np.float32) for factor in factors]
    # ONNX Runtime adds the output's zero point before it rounds: an odd one would send halves the other way.
    points = [np.array(point, kind) for point in (3, 7, 6)]
    arguments = [a, scales[0], points[0], b, scales[1], points[1], scales[2], points[2]]
    expected = onnxruntime_run("QLinearAdd", arguments, domain="com.microsoft")
    same(dmljax.element_wise_quantized_linear_add(*arguments), expected)


# All of them

BESIDES = (
    *(dmljax.activation_softmax, dmljax.activation_softmax1),
    *(dmljax.activation_log_softmax, dmljax.activation_log_softmax1),
    *(dmljax.element_wise_if, dmljax.element_wise_quantize_linear, dmljax.element_wise_dequantize_linear),
    dmljax.element_wise_quantized_linear_add,
)


def test_every_operator_has_a_peer_except_gradients_and_exact_ones() -> None:
    functions = [*(getattr(case.function, "func", case.function) for case in CASES.values()), *BESIDES]
    operators = [name.removeprefix("DML_OPERATOR_").lower() for name in directml.OPERATORS]
    with_peers = {function.__name__ for function in functions}
    elementwise = {name for name in operators if name.startswith(("element_wise_", "activation_"))}
    gradients = {"activation_relu_grad", "element_wise_clip_grad", "element_wise_clip_grad1"}
    others = {"activation_hardmax", "activation_hardmax1", "element_wise_bit_count"}
    assert elementwise - with_peers == others | gradients
