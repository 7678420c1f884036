"""Comparisons, logical operators and IF: the pages' tables and members, the formulas, and the case of IF."""

from collections.abc import Mapping

import numpy as np
from cases import AB, Case, Elementwise, RefusedDesc, ones
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, IsInfinityMode, TensorDesc

SUPPORT = tables(
    """
    ELEMENT_WISE_IF: ConditionTensor; ATensor BTensor OutputTensor
        2_0 4 UINT8; 4 FLOAT16
        3_0 1-8 UINT8; 1-8 UP_TO_32
        5_0 1-8 UINT8; 1-8 ALL
    ELEMENT_WISE_IS_INFINITY: InputTensor; OutputTensor
        2_1 4 FLOATS; 4 UINT8
        3_0 1-8 FLOATS; 1-8 UINT8
    ELEMENT_WISE_IS_NAN: InputTensor; OutputTensor
        2_0 4 FLOATS; 4 UINT32 UINT8
        3_0 1-8 FLOATS; 1-8 UINT32 UINT8
    ELEMENT_WISE_LOGICAL_AND ELEMENT_WISE_LOGICAL_OR ELEMENT_WISE_LOGICAL_XOR: ATensor BTensor OutputTensor
        1_0 4 UINT32
        2_0 4 UINT32 UINT8
        3_0 1-8 UINT32 UINT8
    ELEMENT_WISE_LOGICAL_EQUALS ELEMENT_WISE_LOGICAL_GREATER_THAN ELEMENT_WISE_LOGICAL_LESS_THAN: ATensor
            BTensor; OutputTensor
        1_0 4 FLOATS; 4 UINT32
        2_0 4 FLOATS; 4 UINT32 UINT8
        2_1 4 UP_TO_32; 4 UINT32 UINT8
        3_0 1-8 UP_TO_32; 1-8 UINT32 UINT8
        4_1 1-8 UP_TO_64; 1-8 UINT32 UINT8
    ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL: ATensor BTensor;
            OutputTensor
        3_0 1-8 UP_TO_32; 1-8 UINT32 UINT8
        4_1 1-8 UP_TO_64; 1-8 UINT32 UINT8
    ELEMENT_WISE_LOGICAL_NOT: InputTensor OutputTensor
        1_0 4 UINT32
        2_0 4 UINT32 UINT8
        3_0 1-8 UINT32 UINT8
    """
)

MEMBERS = merge(
    of_all(
        """
        ELEMENT_WISE_LOGICAL_AND ELEMENT_WISE_LOGICAL_EQUALS ELEMENT_WISE_LOGICAL_GREATER_THAN
        ELEMENT_WISE_LOGICAL_LESS_THAN ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL
        ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL ELEMENT_WISE_LOGICAL_OR ELEMENT_WISE_LOGICAL_XOR
        """,
        "ATensor BTensor OutputTensor",
    ),
    of_all("ELEMENT_WISE_LOGICAL_NOT ELEMENT_WISE_IS_NAN", "InputTensor OutputTensor"),
    of_all("ELEMENT_WISE_IF", "ConditionTensor ATensor BTensor OutputTensor"),
    of_all("ELEMENT_WISE_IS_INFINITY", "InputTensor OutputTensor InfinityMode"),
)

# Formulas

INFINITIES = {
    IsInfinityMode.EITHER: lambda x: np.isinf(x),
    IsInfinityMode.POSITIVE: lambda x: np.isinf(x) & (x > 0),
    IsInfinityMode.NEGATIVE: lambda x: np.isinf(x) & (x < 0),
}
ELEMENTWISE = {
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
}


def if_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = ones(rank, 2, 3, 4)
    tensor = TensorDesc(types["a"], sizes)
    return directml.ElementWiseIfDesc(condition=TensorDesc(DataType.UINT8, sizes), a=tensor, b=tensor, output=tensor)


CASES = {
    "ELEMENT_WISE_IF": Case(("a",), if_desc, lambda desc, condition, a, b: np.where(condition != 0, a, b)),
}


# Refusals

SIZES = (1, 1, 2, 3)
SINGLE, HALF = f32(*SIZES), tensor("FLOAT16", *SIZES)
UBYTE, WIDE = tensor("UINT8", *SIZES), tensor("UINT32", *SIZES)
EQUALS = directml.ElementWiseLogicalEqualsDesc(a=SINGLE, b=SINGLE, output=UBYTE)
AND = directml.ElementWiseLogicalAndDesc(a=UBYTE, b=UBYTE, output=UBYTE)
NOT = directml.ElementWiseLogicalNotDesc(input=UBYTE, output=UBYTE)
IS_NAN = directml.ElementWiseIsNanDesc(input=SINGLE, output=UBYTE)
IS_INFINITY = directml.ElementWiseIsInfinityDesc(input=SINGLE, output=UBYTE, infinity_mode=IsInfinityMode.EITHER)
IF = directml.ElementWiseIfDesc(condition=UBYTE, a=SINGLE, b=SINGLE, output=SINGLE)

REFUSED_DESCS: list[RefusedDesc] = [
    (EQUALS, {"b": HALF}, "ATensor and BTensor must have the same DataType; got FLOAT32 and FLOAT16"),
    (EQUALS, {"output": tensor("UINT8", 6)}, "must have the same DimensionCount; got 4, 4 and 1"),
    (EQUALS, {"b": f32(1, 1, 2, 2)}, "must have the same Sizes; got {1,1,2,3}, {1,1,2,2} and {1,1,2,3}"),
    (AND, {"output": WIDE}, "ATensor, BTensor and OutputTensor must have the same DataType; got UINT8, UINT8 and"),
    (NOT, {"output": WIDE}, "InputTensor and OutputTensor must have the same DataType; got UINT8 and UINT32"),
    (IS_NAN, {"output": tensor("UINT8", 1, 1, 3, 2)}, "must have the same Sizes; got {1,1,2,3} and {1,1,3,2}"),
    (IS_INFINITY, {"output": WIDE}, "OutputTensor.DataType must be UINT8; got UINT32"),
    (IF, {"b": HALF}, "ATensor, BTensor and OutputTensor must have the same DataType; got FLOAT32, FLOAT16 and"),
    (IF, {"condition": tensor("UINT8", 1, 1, 2, 1)}, "must have the same Sizes; got {1,1,2,1}, {1,1,2,3}, "),
    (IF, {"condition": tensor("UINT8", 2, 3)}, "must have the same DimensionCount; got 2, 4, 4 and 4"),
    (IF, {"condition": SINGLE}, "ConditionTensor.DataType must be UINT8; got FLOAT32"),
]
