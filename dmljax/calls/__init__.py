"""How operators are called: the decorator of their functions, arguments before `jax.jit`, and arrays inside it.

Every family imports what it needs from here. Knows nothing of descriptors.
"""

from dmljax.calls.arguments import (
    ARRAYS as ARRAYS,
    AXES as AXES,
    BOOLEAN as BOOLEAN,
    DTYPE as DTYPE,
    EACH_DIMENSION as EACH_DIMENSION,
    EACH_NUMBER as EACH_NUMBER,
    FINITE_NUMBER as FINITE_NUMBER,
    FLOAT_NUMBER as FLOAT_NUMBER,
    FLOAT_SCALE_BIAS as FLOAT_SCALE_BIAS,
    INTEGER as INTEGER,
    INTEGER_DTYPE as INTEGER_DTYPE,
    LOWER_BOUND as LOWER_BOUND,
    NUMBER as NUMBER,
    OPERAND as OPERAND,
    PRECISION as PRECISION,
    QUANTIZED as QUANTIZED,
    QUANTIZED_DTYPE as QUANTIZED_DTYPE,
    SCALE_BIAS as SCALE_BIAS,
    SIZE as SIZE,
    SIZE_2D as SIZE_2D,
    SIZES as SIZES,
    STEP as STEP,
    TRUNCATED_NUMBER as TRUNCATED_NUMBER,
    UPPER_BOUND as UPPER_BOUND,
    WIDE_NUMBER as WIDE_NUMBER,
    Axes as Axes,
    EachDimension as EachDimension,
    EachNumber as EachNumber,
    bring_into_one_type as bring_into_one_type,
    one_of as one_of,
)
from dmljax.calls.arrays import (
    broadcast as broadcast,
    float_array as float_array,
    integer_array as integer_array,
    normal_axes as normal_axes,
    normal_axis as normal_axis,
    number_array as number_array,
    of_floats as of_floats,
    operands as operands,
    quantized_array as quantized_array,
    real_array as real_array,
    require_rank as require_rank,
    require_same_shape as require_same_shape,
    require_type as require_type,
)
from dmljax.calls.decorator import operator_function as operator_function
