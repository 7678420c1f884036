"""ADD to ATAN_YX and the powers: the pages' tables and members, the formulas, and the case of POW."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import AB, Case, Elementwise, RefusedDesc, ones
from formulas import Arr, by_python, of_kind
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, ScaleBias, TensorDesc

SUPPORT = tables(
    """
    ELEMENT_WISE_ADD ELEMENT_WISE_MULTIPLY: ATensor BTensor OutputTensor
        1_0 4-5 FLOATS
        2_1 4-5 FLOATS INT32 UINT32
        3_0 1-8 FLOATS INT32 UINT32
        4_1 1-8 FLOATS INT32 UINT32 INT64 UINT64
        5_1 1-8 UP_TO_64
    ELEMENT_WISE_ADD1: ATensor BTensor OutputTensor
        2_0 4-5 FLOATS
        3_0 1-8 FLOATS
    ELEMENT_WISE_ATAN_YX: ATensor BTensor OutputTensor
        3_1 1-8 FLOATS
    ELEMENT_WISE_CONSTANT_POW: InputTensor OutputTensor
        1_0 4 FLOATS
        3_0 1-8 FLOATS
    ELEMENT_WISE_DIFFERENCE_SQUARE: ATensor BTensor OutputTensor
        3_1 1-8 FLOATS INT32 UINT32
    ELEMENT_WISE_DIVIDE: ATensor BTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 FLOATS INT32 UINT32
        3_0 1-8 FLOATS INT32 UINT32
        5_1 1-8 UP_TO_32
        6_0 1-8 UP_TO_64
    ELEMENT_WISE_MAX ELEMENT_WISE_MIN: ATensor BTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 UP_TO_32
        3_0 1-8 UP_TO_32
        5_0 1-8 UP_TO_64
    ELEMENT_WISE_MEAN: ATensor BTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 FLOATS INT32 UINT32
        3_0 1-8 FLOATS INT32 UINT32
    ELEMENT_WISE_MODULUS_FLOOR ELEMENT_WISE_MODULUS_TRUNCATE: ATensor BTensor OutputTensor
        2_1 4 UP_TO_32
        3_0 1-8 UP_TO_32
        6_0 1-8 UP_TO_64
    ELEMENT_WISE_POW: InputTensor ExponentTensor OutputTensor
        1_0 4 FLOATS
        3_0 1-8 UP_TO_32
    ELEMENT_WISE_SUBTRACT: ATensor BTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 FLOATS INT32 UINT32
        3_0 1-8 FLOATS INT32 UINT32
        4_1 1-8 FLOATS INT32 UINT32 INT64 UINT64
        5_1 1-8 UP_TO_64
    """
)

MEMBERS = merge(
    of_all(
        """
        ELEMENT_WISE_ADD ELEMENT_WISE_DIVIDE ELEMENT_WISE_MAX ELEMENT_WISE_MEAN ELEMENT_WISE_MIN ELEMENT_WISE_MULTIPLY
        ELEMENT_WISE_DIFFERENCE_SQUARE ELEMENT_WISE_ATAN_YX ELEMENT_WISE_SUBTRACT ELEMENT_WISE_MODULUS_TRUNCATE
        ELEMENT_WISE_MODULUS_FLOOR
        """,
        "ATensor BTensor OutputTensor",
    ),
    of_all("ELEMENT_WISE_POW", "InputTensor ExponentTensor OutputTensor ScaleBias"),
    of_all("ELEMENT_WISE_CONSTANT_POW", "InputTensor OutputTensor ScaleBias Exponent"),
    of_all("ELEMENT_WISE_ADD1", "ATensor BTensor OutputTensor FusedActivation"),
)

# The page of POW says that until 3_0 its tensors share a data type.
REMARKS = of_all("ELEMENT_WISE_POW", lambda level, data_types: level >= "3_0" or len(set(data_types.values())) == 1)

# Formulas, on floats as float64 and on integers as they are


def truncated_quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def truncated_remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * truncated_quotient(a, b)


def half_of_sum(a: int, b: int) -> int:
    return truncated_quotient(a + b, 2)


def larger(a: Arr, b: Arr) -> Arr:
    """The larger of floats or integers: NaN if either is NaN, the first NaN if both are, and +0 if both are zeros."""
    return np.where(np.isnan(a) | np.where((a == 0) & (b == 0), ~np.signbit(a), a >= b), a, b)


def smaller(a: Arr, b: Arr) -> Arr:
    return np.where(np.isnan(a) | np.where((a == 0) & (b == 0), np.signbit(a), a <= b), a, b)


def integer_power(base: int, exponent: int) -> Any:
    if exponent >= 0:
        return pow(base, exponent, 2**64)
    return -1 if base == 0 else base ** (exponent % 2) if base in (1, -1) else 0


def power(base: Arr, exponent: Any) -> Any:
    if base.dtype.kind == "f":
        result = [
            _c_pow(float(x), float(y))
            for x, y in zip(base.ravel(), np.broadcast_to(exponent, base.shape).ravel(), strict=True)
        ]
        return np.reshape(result, base.shape)
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
    """C's pow, where Python's raises errors."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        return math.nan if x != 0 else math.copysign(math.inf, x) if y % 2 == 1 else math.inf


ELEMENTWISE = {
    "ELEMENT_WISE_ADD": Elementwise(of_kind(np.add, lambda a, b: a + b), AB),
    "ELEMENT_WISE_ADD1": Elementwise(
        lambda a, b, fused_activation: np.where(a + b >= 0, a + b, 0.5 * (a + b)),
        AB,
        attributes={"fused_activation": directml.ActivationLeakyReluDesc(alpha=0.5)},
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
}


def pow_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    input, exponent = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("input", "exponent"))
    return directml.ElementWisePowDesc(input=input, exponent=exponent, output=input)


CASES = {
    "ELEMENT_WISE_POW": Case(
        ("input", "exponent"),
        pow_desc,
        lambda desc, input, exponent: ELEMENTWISE["ELEMENT_WISE_POW"].exact_value(desc, input, exponent),
        is_exact=False,
        domain=(1.1, 1.9),
    )
}


# Refusals

LIKE = f32(1, 1, 2, 3)
ADD = directml.ElementWiseAddDesc(a=LIKE, b=LIKE, output=LIKE)
POW = directml.ElementWisePowDesc(input=LIKE, exponent=tensor("FLOAT16", 1, 1, 2, 3), output=LIKE)

REFUSED_DESCS: list[RefusedDesc] = [
    (ADD, {"b": tensor("FLOAT16", 1, 1, 2, 3)}, "must have the same DataType; got FLOAT32, FLOAT16 and FLOAT32"),
    (ADD, {"output": tensor("INT32", 1, 1, 2, 3)}, "must have the same DataType; got FLOAT32, FLOAT32 and INT32"),
    (ADD, {"b": f32(3)}, "ATensor, BTensor and OutputTensor must have the same DimensionCount; got 4, 1 and 4"),
    (ADD, {"b": f32(1, 1, 1, 3)}, "must have the same Sizes; got {1,1,2,3}, {1,1,1,3} and {1,1,2,3}"),
    (POW, {"output": tensor("FLOAT16", 1, 1, 2, 3)}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (
        POW,
        dict.fromkeys(("input", "output"), tensor("INT8", 1, 1, 2, 3)) | {"scale_bias": ScaleBias(1, 0.5)},
        "ScaleBias.Bias must be a whole number in [-128, 127] to fit int8; got ",
    ),
    (POW, {"exponent": f32(1, 1, 1, 3)}, "must have the same Sizes; got {1,1,2,3}, {1,1,1,3} and {1,1,2,3}"),
    (POW, {"exponent": f32(3)}, "must have the same DimensionCount; got 4, 1 and 4"),
]
