"""Calls of operators: the decorator, arguments before `jax.jit`, and arrays inside it.

Every family imports what it needs from here. This package knows nothing about descriptors.
"""

# fmt: off
from dmljax.calls.arguments import (
    ArrayKind, Axes, AxisName, EachDimension, EachNumber, Float, FloatNumber, FloatScaleBias, IntegerDType, LowerBound,
    Number, OneEach, Operand, OperandOfAnyType, Precision, Quantized, QuantizedDType, Size, StepNumber, TruncatedNumber,
    UpperBound, WideFloat, WideNumber, unify_types
)
from dmljax.calls.arrays import (
    apply_to_floats, arrays_of_one_type, broadcast, broadcast_operands, float_array, floats_of_one_type, integer_array,
    normal_axes, normal_axis, number_array, quantized_array, real_array, require_holds, require_same_shape, require_type
)
from dmljax.calls.decorator import operator_function, result

__all__ = [
    "ArrayKind", "Axes", "AxisName", "EachDimension", "EachNumber", "Float", "FloatNumber", "FloatScaleBias",
    "IntegerDType", "LowerBound", "Number", "OneEach", "Operand", "OperandOfAnyType", "Precision", "Quantized",
    "QuantizedDType", "Size", "StepNumber", "TruncatedNumber", "UpperBound", "WideFloat", "WideNumber",
    "apply_to_floats", "arrays_of_one_type", "broadcast", "broadcast_operands", "float_array", "floats_of_one_type",
    "integer_array", "normal_axes", "normal_axis", "number_array", "operator_function", "quantized_array", "real_array",
    "require_holds", "require_same_shape", "require_type", "result", "unify_types"
]
# fmt: on
