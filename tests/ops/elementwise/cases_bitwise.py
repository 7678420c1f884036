"""The bitwise operators: the pages' tables and members, and the formulas."""

from functools import partial

import numpy as np
from cases import AB, Elementwise, RefusedDesc
from formulas import Formula, bits_of, by_python
from helpers import tensor
from pages import merge, of_all, tables

from dmljax import directml

SUPPORT = tables(
    """
    ELEMENT_WISE_BIT_AND ELEMENT_WISE_BIT_OR ELEMENT_WISE_BIT_XOR: ATensor BTensor OutputTensor
        3_0 1-8 UINT32 UINT16 UINT8
        4_1 1-8 ALL
    ELEMENT_WISE_BIT_COUNT: InputTensor; OutputTensor
        3_0 1-8 UINT32 UINT16 UINT8; 1-8 UINT32 UINT8
        4_1 1-8 ALL; 1-8 UINT32 UINT8
    ELEMENT_WISE_BIT_NOT: InputTensor OutputTensor
        3_0 1-8 UINT32 UINT16 UINT8
        4_1 1-8 ALL
    ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT: ATensor BTensor OutputTensor
        2_1 4 UINT32 UINT16 UINT8
        3_0 1-8 UINT32 UINT16 UINT8
        4_1 1-8 UINT64 UINT32 UINT16 UINT8
    """
)

MEMBERS = merge(
    of_all(
        """
        ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT ELEMENT_WISE_BIT_AND ELEMENT_WISE_BIT_OR
        ELEMENT_WISE_BIT_XOR
        """,
        "ATensor BTensor OutputTensor",
    ),
    of_all("ELEMENT_WISE_BIT_NOT ELEMENT_WISE_BIT_COUNT", "InputTensor OutputTensor"),
)

# Formulas on the bits of numbers, which have no derivative


def of_bits(function: Formula) -> Formula:
    return lambda *arrays: function(*map(bits_of, arrays)).view(arrays[0].dtype)


def shifted(direction: int) -> Formula:
    def shift(a: int, b: int) -> int:
        return 0 if b >= 64 else a << b if direction > 0 else a >> b

    return by_python(shift)


bitwise = partial(Elementwise, is_exact=True, has_derivative=False)
ELEMENTWISE = {
    "ELEMENT_WISE_BIT_AND": bitwise(of_bits(np.bitwise_and), AB),
    "ELEMENT_WISE_BIT_OR": bitwise(of_bits(np.bitwise_or), AB),
    "ELEMENT_WISE_BIT_XOR": bitwise(of_bits(np.bitwise_xor), AB),
    "ELEMENT_WISE_BIT_NOT": bitwise(of_bits(np.invert)),
    "ELEMENT_WISE_BIT_COUNT": bitwise(lambda x: np.bitwise_count(bits_of(x))),
    "ELEMENT_WISE_BIT_SHIFT_LEFT": bitwise(shifted(1), AB),
    "ELEMENT_WISE_BIT_SHIFT_RIGHT": bitwise(shifted(-1), AB),
}


# Refusals

UBYTE = tensor("UINT8", 2, 3)
XOR = directml.ElementWiseBitXorDesc(a=UBYTE, b=UBYTE, output=UBYTE)
NOT = directml.ElementWiseBitNotDesc(input=UBYTE, output=UBYTE)
COUNT = directml.ElementWiseBitCountDesc(input=UBYTE, output=UBYTE)

REFUSED_DESCS: list[RefusedDesc] = [
    (XOR, {"b": tensor("INT8", 2, 3)}, "must have the same DataType; got UINT8, INT8 and UINT8"),
    (NOT, {"output": tensor("INT8", 2, 3)}, "must have the same DataType; got UINT8 and INT8"),
    (COUNT, {"output": tensor("UINT16", 2, 3)}, "OutputTensor.DataType must be one of UINT32, UINT8; got UINT16"),
    (COUNT, {"output": tensor("UINT8", 3, 2)}, "must have the same Sizes; got {2,3} and {3,2}"),
    (COUNT, {"output": tensor("UINT8", 1, 2, 3)}, "must have the same DimensionCount; got 2 and 3"),
]
