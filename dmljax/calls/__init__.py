"""How operators are called: the decorator of their functions, arguments before `jax.jit`, and arrays inside it.

Every family imports what it needs from here. Knows nothing of descriptors.
"""

# fmt: off
from dmljax.calls.arguments import (
    ARRAYS, AXES, BOOLEAN, DTYPE, EACH_DIMENSION, EACH_NUMBER, FINITE_NUMBER, FLOAT_NUMBER, FLOAT_SCALE_BIAS, INTEGER,
    INTEGER_DTYPE, LOWER_BOUND, NUMBER, OPERAND, PRECISION, QUANTIZED, QUANTIZED_DTYPE, SCALE_BIAS, SIZE, SIZE_2D,
    SIZES, STEP, TRUNCATED_NUMBER, UPPER_BOUND, WIDE_NUMBER, Axes, EachDimension, EachNumber, bring_into_one_type,
    one_of
)
from dmljax.calls.arrays import (
    broadcast, float_array, integer_array, normal_axes, normal_axis, number_array, of_floats, operands,
    quantized_array, real_array, require_rank, require_same_shape, require_type
)
from dmljax.calls.decorator import operator_function

__all__ = [
    "ARRAYS", "AXES", "BOOLEAN", "DTYPE", "EACH_DIMENSION", "EACH_NUMBER", "FINITE_NUMBER", "FLOAT_NUMBER",
    "FLOAT_SCALE_BIAS", "INTEGER", "INTEGER_DTYPE", "LOWER_BOUND", "NUMBER", "OPERAND", "PRECISION", "QUANTIZED",
    "QUANTIZED_DTYPE", "SCALE_BIAS", "SIZE", "SIZES", "SIZE_2D", "STEP", "TRUNCATED_NUMBER", "UPPER_BOUND",
    "WIDE_NUMBER", "Axes", "EachDimension", "EachNumber", "bring_into_one_type", "broadcast", "float_array",
    "integer_array", "normal_axes", "normal_axis", "number_array", "of_floats", "one_of", "operands",
    "operator_function", "quantized_array", "real_array", "require_rank", "require_same_shape", "require_type"
]
# fmt: on
