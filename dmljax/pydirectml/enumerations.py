"""The enumerations of PyDirectML, with the values of directml.h."""

import enum
from typing import Any

from dmljax import directml
from dmljax.errors import InvalidType, Problem
from dmljax.text import show
from dmljax.types import HintingEnumType


class BindingEnum(enum.IntEnum, metaclass=HintingEnumType):
    """The base of PyDirectML's enumerations: members are ints, but functions do not accept other ints for them."""

    __str__ = enum.Enum.__str__

    @classmethod
    def check(cls, name: str, value: Any) -> Any:
        """`value`, if it is a member."""
        if not isinstance(value, cls):
            rule = f"must be a member of {cls.__name__}"
            raise InvalidType(Problem(name, rule, show(value), remedy=cls.remedy(value)))
        return value

    @classmethod
    def remedy(cls, value: Any) -> str | None:
        """Returns what to write for the name or number of a member, or for a member in `dmljax.directml`."""
        names = [str(getattr(value, "name", value)).upper(), cls.elsewhere.get(str(value).upper())]
        number = value if type(value) is int else None
        found = next((member for member in cls if member.name.upper() in names or member.value == number), None)
        return None if found is None else f"use dml.{cls.__name__}.{found.name}"


def _enumeration(name: str, members: dict[str, int] | str) -> Any:
    numbers = members if isinstance(members, dict) else {member: i for i, member in enumerate(members.split())}
    enumeration = BindingEnum(name, numbers, module="dmljax.pydirectml")  # type: ignore[call-arg, arg-type]
    enumeration.room = "dml"  # type: ignore[attr-defined]
    return enumeration


TensorDataType = _enumeration(
    "TensorDataType", "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64"
)
TensorDataType.elsewhere = directml.DataType.elsewhere
TensorFlags = _enumeration("TensorFlags", "NONE OWNED_BY_DML")
MatrixTransform = _enumeration("MatrixTransform", "NONE TRANSPOSE")
MatrixTransform.elsewhere = directml.MatrixTransform.elsewhere
RecurrentNetworkDirection = _enumeration("RecurrentNetworkDirection", "FORWARD BACKWARD BIDIRECTIONAL")
OutputOptions = _enumeration("OutputOptions", "Both Sequence Single")
ConvolutionMode = _enumeration("ConvolutionMode", "CONVOLUTION CROSS_CORRELATION")
ConvolutionDirection = _enumeration("ConvolutionDirection", "FORWARD BACKWARD")
InterpolationMode = _enumeration("InterpolationMode", "NEAREST_NEIGHBOR LINEAR")
PaddingMode = _enumeration("PaddingMode", "CONSTANT EDGE REFLECTION")
ExecutionFlags = _enumeration(
    "ExecutionFlags",
    {"NONE": 0, "ALLOW_HALF_PRECISION_COMPUTATION": 1, "DISABLE_META_COMMANDS": 2, "DESCRIPTORS_VOLATILE": 4},
)
ExecutionFlags._missing_ = classmethod(lambda cls, value: _combine_flags(cls, value))
# The operators of DML_FEATURE_LEVEL_2_0, in the order of directml.h.
OperatorType = _enumeration(
    "OperatorType",
    "INVALID"
    + "".join(
        f" ELEMENT_WISE_{name}"
        for name in (
            *("IDENTITY", "ABS", "ACOS", "ADD", "ASIN", "ATAN", "CEIL", "CLIP", "COS", "DIVIDE", "EXP", "FLOOR", "LOG"),
            *("LOGICAL_AND", "LOGICAL_EQUALS", "LOGICAL_GREATER_THAN", "LOGICAL_LESS_THAN", "LOGICAL_NOT"),
            *("LOGICAL_OR", "LOGICAL_XOR", "MAX", "MEAN", "MIN", "MULTIPLY", "POW", "CONSTANT_POW", "RECIP", "SIN"),
            *("SQRT", "SUBTRACT", "TAN", "THRESHOLD", "QUANTIZE_LINEAR", "DEQUANTIZE_LINEAR"),
        )
    )
    + "".join(
        f" ACTIVATION_{name}"
        for name in (
            *("ELU", "HARDMAX", "HARD_SIGMOID", "IDENTITY", "LEAKY_RELU", "LINEAR", "LOG_SOFTMAX"),
            *("PARAMETERIZED_RELU", "PARAMETRIC_SOFTPLUS", "RELU", "SCALED_ELU", "SCALED_TANH", "SIGMOID", "SOFTMAX"),
            *("SOFTPLUS", "SOFTSIGN", "TANH", "THRESHOLDED_RELU"),
        )
    )
    + " CONVOLUTION GEMM REDUCE AVERAGE_POOLING LP_POOLING MAX_POOLING ROI_POOLING SLICE CAST SPLIT JOIN PADDING"
    " VALUE_SCALE_2D UPSAMPLE_2D GATHER SPACE_TO_DEPTH DEPTH_TO_SPACE TILE TOP_K BATCH_NORMALIZATION"
    " MEAN_VARIANCE_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LP_NORMALIZATION RNN LSTM GRU ELEMENT_WISE_SIGN"
    " ELEMENT_WISE_IS_NAN ELEMENT_WISE_ERF ELEMENT_WISE_SINH ELEMENT_WISE_COSH ELEMENT_WISE_TANH ELEMENT_WISE_ASINH"
    " ELEMENT_WISE_ACOSH ELEMENT_WISE_ATANH ELEMENT_WISE_IF ELEMENT_WISE_ADD1 ACTIVATION_SHRINK MAX_POOLING1"
    " MAX_UNPOOLING DIAGONAL_MATRIX SCATTER ONE_HOT RESAMPLE",
)


OperatorType.elsewhere = {
    name.removeprefix("ACTIVATION_"): name for name in OperatorType.__members__ if name.startswith("ACTIVATION_")
}


def _combine_flags(flags: Any, value: Any) -> Any:
    """The unnamed member for flags combined by `|`."""
    if not isinstance(value, int) or not 0 <= value < 8:
        return None
    member = int.__new__(flags, value)
    member._name_, member._value_ = f"{value}", value
    return member


# The module's names; if enumerations share a name, the later wins. `OutputOptions` exports none.
EXPORTED = {
    name: member
    for enumeration in (
        *(TensorDataType, TensorFlags, MatrixTransform, RecurrentNetworkDirection, ConvolutionMode),
        *(ConvolutionDirection, InterpolationMode, PaddingMode, ExecutionFlags, OperatorType),
    )
    for name, member in enumeration.__members__.items()
}
