"""The elementary functions, CAST and VALUE_SCALE_2D: the pages' tables and members, and the formulas."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases import Arrays, Case, Elementwise, RefusedDesc, ones
from conversions import convert, one_nan
from formulas import Formula
from helpers import f32, tensor
from pages import merge, of_all, tables
from scipy import special

from dmljax import directml
from dmljax.directml import DataType, RoundingMode, ScaleBias, TensorDesc

SUPPORT = tables(
    """
    CAST: InputTensor OutputTensor
        1_0 4 FLOATS INT16 INT8 UINT16 UINT8
        3_0 4 FLOATS INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8
        3_1 1-8 FLOATS INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8
        4_1 1-8 ALL
    ELEMENT_WISE_ABS: InputTensor OutputTensor
        1_0 4 FLOATS
        2_1 4 FLOATS INT32 INT16 INT8
        3_0 1-8 FLOATS INT32 INT16 INT8
        4_1 1-8 FLOATS INT32 INT16 INT8 INT64
    ELEMENT_WISE_ACOS ELEMENT_WISE_ASIN ELEMENT_WISE_ATAN ELEMENT_WISE_CEIL ELEMENT_WISE_COS ELEMENT_WISE_EXP
            ELEMENT_WISE_FLOOR ELEMENT_WISE_LOG ELEMENT_WISE_RECIP ELEMENT_WISE_SIN ELEMENT_WISE_SQRT
            ELEMENT_WISE_TAN: InputTensor OutputTensor
        1_0 4 FLOATS
        3_0 1-8 FLOATS
    ELEMENT_WISE_ACOSH ELEMENT_WISE_ASINH ELEMENT_WISE_ATANH ELEMENT_WISE_COSH ELEMENT_WISE_ERF
            ELEMENT_WISE_SINH ELEMENT_WISE_TANH: InputTensor OutputTensor
        2_0 4 FLOATS
        3_0 1-8 FLOATS
    ELEMENT_WISE_IDENTITY: InputTensor OutputTensor
        1_0 4-5 FLOATS
        2_1 4-5 UP_TO_32
        3_0 1-8 UP_TO_32
        4_1 1-8 ALL
    ELEMENT_WISE_NEGATE: InputTensor OutputTensor
        5_0 1-8 FLOATS INT32 INT16 INT8 INT64
    ELEMENT_WISE_ROUND: InputTensor OutputTensor
        2_1 4 FLOATS
        3_0 1-8 FLOATS
    ELEMENT_WISE_SIGN: InputTensor OutputTensor
        2_0 4 FLOATS
        2_1 4 UP_TO_32
        3_0 1-8 UP_TO_32
        4_1 1-8 UP_TO_64
    VALUE_SCALE_2D: InputTensor OutputTensor
        1_0 4 FLOATS
    """
)

MEMBERS = merge(
    of_all(
        """
        ELEMENT_WISE_IDENTITY ELEMENT_WISE_ABS ELEMENT_WISE_ACOS ELEMENT_WISE_ASIN ELEMENT_WISE_ATAN ELEMENT_WISE_CEIL
        ELEMENT_WISE_COS ELEMENT_WISE_EXP ELEMENT_WISE_FLOOR ELEMENT_WISE_LOG ELEMENT_WISE_RECIP ELEMENT_WISE_SIN
        ELEMENT_WISE_SQRT ELEMENT_WISE_TAN ELEMENT_WISE_ERF ELEMENT_WISE_SINH ELEMENT_WISE_COSH ELEMENT_WISE_TANH
        ELEMENT_WISE_ASINH ELEMENT_WISE_ACOSH ELEMENT_WISE_ATANH
        """,
        "InputTensor OutputTensor ScaleBias",
    ),
    of_all("CAST ELEMENT_WISE_SIGN ELEMENT_WISE_NEGATE", "InputTensor OutputTensor"),
    of_all("ELEMENT_WISE_ROUND", "InputTensor OutputTensor RoundingMode"),
    of_all("VALUE_SCALE_2D", "InputTensor OutputTensor Scale ChannelCount Bias"),
)

# Formulas, on floats as float64

ROUNDINGS: dict[RoundingMode, Formula] = {
    RoundingMode.HALVES_TO_NEAREST_EVEN: np.rint,
    RoundingMode.TOWARD_ZERO: np.trunc,
    RoundingMode.TOWARD_INFINITY: lambda x: np.where(np.abs(x) < 2.0**30, np.copysign(np.floor(np.abs(x) + 0.5), x), x),
}
SCALED_UNARY = {
    "ELEMENT_WISE_ABS": Elementwise(np.abs),
    "ELEMENT_WISE_ACOS": Elementwise(np.arccos, domain=(-0.9, 0.9)),
    "ELEMENT_WISE_ACOSH": Elementwise(np.arccosh, domain=(1.2, 3)),
    "ELEMENT_WISE_ASIN": Elementwise(np.arcsin, domain=(-0.9, 0.9)),
    "ELEMENT_WISE_ASINH": Elementwise(np.arcsinh),
    "ELEMENT_WISE_ATAN": Elementwise(np.arctan),
    "ELEMENT_WISE_ATANH": Elementwise(np.arctanh),
    "ELEMENT_WISE_CEIL": Elementwise(np.ceil),
    "ELEMENT_WISE_COS": Elementwise(np.cos),
    "ELEMENT_WISE_COSH": Elementwise(np.cosh),
    "ELEMENT_WISE_ERF": Elementwise(special.erf),
    "ELEMENT_WISE_EXP": Elementwise(np.exp),
    "ELEMENT_WISE_FLOOR": Elementwise(np.floor),
    "ELEMENT_WISE_IDENTITY": Elementwise(lambda x: x, is_exact=True),
    "ELEMENT_WISE_LOG": Elementwise(np.log),
    "ELEMENT_WISE_RECIP": Elementwise(lambda x: 1 / x),
    "ELEMENT_WISE_SIN": Elementwise(np.sin),
    "ELEMENT_WISE_SINH": Elementwise(np.sinh),
    "ELEMENT_WISE_SQRT": Elementwise(np.sqrt),
    "ELEMENT_WISE_TAN": Elementwise(np.tan),
    "ELEMENT_WISE_TANH": Elementwise(np.tanh),
}
ELEMENTWISE = merge(
    SCALED_UNARY,
    {
        "ELEMENT_WISE_NEGATE": Elementwise(np.negative, is_exact=True),
        "ELEMENT_WISE_SIGN": Elementwise(lambda x: np.where(x > 0, 1, np.where(x < 0, -1, 0)), is_exact=True),
        "ELEMENT_WISE_ROUND": Elementwise(
            lambda x, rounding_mode: ROUNDINGS[rounding_mode](x),
            attributes={"rounding_mode": RoundingMode.TOWARD_INFINITY},
            domain=(0.1, 0.4),
        ),
    },
)


# CAST


@dataclass(frozen=True)
class CastCase(Case):
    """A case whose inputs only have the quiet NaN, because the bits of other NaNs are not promised."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> Arrays:
        return {field: one_nan(array) for field, array in super().inputs(desc, rng).items()}


def cast_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = ones(rank, 2, 3, 4)
    return directml.CastDesc(input=TensorDesc(types["input"], sizes), output=TensorDesc(types["output"], sizes))


def cast(desc: Any, input: Any) -> Any:
    return convert(input, desc.output.dtype)


# VALUE_SCALE_2D


def value_scale_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    tensor = TensorDesc(types["input"], ones(rank, 2, 3, 2, 2))
    return directml.ValueScale2DDesc(input=tensor, output=tensor, scale=1.5, bias=(0.5, -3, 0))


def value_scale(desc: Any, input: Any) -> Any:
    return input.astype(np.float64) * 1.5 + np.array([0.5, -3, 0]).reshape(3, 1, 1)


CASES = {
    "CAST": CastCase(("input", "output"), cast_desc, cast),
    "VALUE_SCALE_2D": Case(("input",), value_scale_desc, value_scale, is_exact=False),
}


# Refusals

NAN, INF = math.nan, math.inf
IDENTITY = directml.ElementWiseIdentityDesc(input=f32(2, 3), output=f32(2, 3))
SQRT = directml.ElementWiseSqrtDesc(input=f32(2, 3), output=f32(2, 3))
NEGATE = directml.ElementWiseNegateDesc(input=f32(2, 3), output=f32(2, 3))
CAST = directml.CastDesc(input=f32(1, 1, 2, 3), output=tensor("INT8", 1, 1, 2, 3))
IMAGE, BYTE, UBYTE = f32(1, 3, 4, 4), tensor("INT8", 2, 3), tensor("UINT8", 2, 3)
VALUE_SCALE = directml.ValueScale2DDesc(input=IMAGE, output=IMAGE, scale=1, bias=(1, 2, 3))
BYTES, UBYTES = {"input": BYTE, "output": BYTE}, {"input": UBYTE, "output": UBYTE}

REFUSED_DESCS: list[RefusedDesc] = [
    *((desc, {"output": tensor("FLOAT16", 2, 3)}, "have the same DataType; got") for desc in (SQRT, NEGATE)),
    *((desc, {"output": f32(1, 2, 3)}, "the same DimensionCount; got 2 and 3") for desc in (SQRT, NEGATE)),
    *((desc, {"output": f32(3, 2)}, "the same Sizes; got {2,3} and {3,2}") for desc in (SQRT, NEGATE)),
    (IDENTITY, BYTES | {"scale_bias": ScaleBias(1.5, 0)}, "Scale must be a whole number in [-128, 127] to fit"),
    (IDENTITY, BYTES | {"scale_bias": ScaleBias(1, -200)}, "Bias must be a whole number in [-128, 127] to fit"),
    (IDENTITY, UBYTES | {"scale_bias": ScaleBias(-1, 0)}, "Scale must be a whole number in [0, 255] to fit uint8"),
    (IDENTITY, BYTES | {"scale_bias": ScaleBias(NAN, 0)}, "ScaleBias.Scale must be a whole number "),
    (IDENTITY, BYTES | {"scale_bias": ScaleBias(1, INF)}, "ScaleBias.Bias must be a whole number "),
    (CAST, {"output": tensor("INT8", 1, 1, 3, 2)}, "must have the same Sizes; got {1,1,2,3} and"),
    (CAST, {"output": tensor("INT8", 2, 3)}, "must have the same DimensionCount; got 4 and 2"),
    (CAST, {"output": tensor("INT4", 1, 1, 2, 3)}, "OutputTensor.DataType must be one of ...; got INT4"),
    (VALUE_SCALE, {"bias": (1, 2)}, "ChannelCount must be 1 or 3; got 2"),
    (VALUE_SCALE, {"bias": (1,)}, "ChannelCount must be 3, the size of dimension 1 of InputTensor; got 1"),
]
