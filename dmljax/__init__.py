"""The operators of DirectML for JAX: a function of arrays for each.

`dmljax.directml` has their descriptors, which mirror directml.h. `dmljax.examples`, `dmljax.dxdispatch`, `dmljax.onnx`,
`dmljax.pydirectml` and `dmljax.serialized` are public as well; nothing else is.
`python tests/public_names.py` writes this file.
"""

import typing as _typing

from dmljax.errors import DmlError as DmlError
from dmljax.pictures import show as show
from dmljax.ops.activation import (
    activation_celu as activation_celu,
    activation_elu as activation_elu,
    activation_gelu as activation_gelu,
    activation_hard_sigmoid as activation_hard_sigmoid,
    activation_hard_swish as activation_hard_swish,
    activation_identity as activation_identity,
    activation_leaky_relu as activation_leaky_relu,
    activation_linear as activation_linear,
    activation_parameterized_relu as activation_parameterized_relu,
    activation_parametric_softplus as activation_parametric_softplus,
    activation_relu as activation_relu,
    activation_relu_grad as activation_relu_grad,
    activation_scaled_elu as activation_scaled_elu,
    activation_scaled_tanh as activation_scaled_tanh,
    activation_shrink as activation_shrink,
    activation_sigmoid as activation_sigmoid,
    activation_softplus as activation_softplus,
    activation_softsign as activation_softsign,
    activation_swish as activation_swish,
    activation_tanh as activation_tanh,
    activation_thresholded_relu as activation_thresholded_relu,
)
from dmljax.ops.arithmetic import (
    element_wise_add as element_wise_add,
    element_wise_add1 as element_wise_add1,
    element_wise_atan_yx as element_wise_atan_yx,
    element_wise_constant_pow as element_wise_constant_pow,
    element_wise_difference_square as element_wise_difference_square,
    element_wise_divide as element_wise_divide,
    element_wise_max as element_wise_max,
    element_wise_mean as element_wise_mean,
    element_wise_min as element_wise_min,
    element_wise_modulus_floor as element_wise_modulus_floor,
    element_wise_modulus_truncate as element_wise_modulus_truncate,
    element_wise_multiply as element_wise_multiply,
    element_wise_pow as element_wise_pow,
    element_wise_subtract as element_wise_subtract,
)
from dmljax.ops.attention import (
    MultiheadAttention as MultiheadAttention,
    multihead_attention as multihead_attention,
    multihead_attention1 as multihead_attention1,
)
from dmljax.ops.bitwise import (
    element_wise_bit_and as element_wise_bit_and,
    element_wise_bit_count as element_wise_bit_count,
    element_wise_bit_not as element_wise_bit_not,
    element_wise_bit_or as element_wise_bit_or,
    element_wise_bit_shift_left as element_wise_bit_shift_left,
    element_wise_bit_shift_right as element_wise_bit_shift_right,
    element_wise_bit_xor as element_wise_bit_xor,
)
from dmljax.ops.clipping import (
    element_wise_clip as element_wise_clip,
    element_wise_clip1 as element_wise_clip1,
    element_wise_clip_grad as element_wise_clip_grad,
    element_wise_clip_grad1 as element_wise_clip_grad1,
    element_wise_threshold as element_wise_threshold,
)
from dmljax.ops.convolution import (
    convolution as convolution,
    convolution_integer as convolution_integer,
    quantized_linear_convolution as quantized_linear_convolution,
)
from dmljax.ops.elementary import (
    cast as cast,
    element_wise_abs as element_wise_abs,
    element_wise_acos as element_wise_acos,
    element_wise_acosh as element_wise_acosh,
    element_wise_asin as element_wise_asin,
    element_wise_asinh as element_wise_asinh,
    element_wise_atan as element_wise_atan,
    element_wise_atanh as element_wise_atanh,
    element_wise_ceil as element_wise_ceil,
    element_wise_cos as element_wise_cos,
    element_wise_cosh as element_wise_cosh,
    element_wise_erf as element_wise_erf,
    element_wise_exp as element_wise_exp,
    element_wise_floor as element_wise_floor,
    element_wise_identity as element_wise_identity,
    element_wise_log as element_wise_log,
    element_wise_negate as element_wise_negate,
    element_wise_recip as element_wise_recip,
    element_wise_round as element_wise_round,
    element_wise_sign as element_wise_sign,
    element_wise_sin as element_wise_sin,
    element_wise_sinh as element_wise_sinh,
    element_wise_sqrt as element_wise_sqrt,
    element_wise_tan as element_wise_tan,
    element_wise_tanh as element_wise_tanh,
    value_scale_2d as value_scale_2d,
)
from dmljax.ops.gathering import (
    gather as gather,
    gather_elements as gather_elements,
    gather_nd as gather_nd,
    gather_nd1 as gather_nd1,
    reverse_subsequences as reverse_subsequences,
    scatter as scatter,
    scatter_nd as scatter_nd,
)
from dmljax.ops.generation import (
    RandomGenerator as RandomGenerator,
    diagonal_matrix as diagonal_matrix,
    diagonal_matrix1 as diagonal_matrix1,
    fill_value_constant as fill_value_constant,
    fill_value_sequence as fill_value_sequence,
    random_generator as random_generator,
)
from dmljax.ops.indexing import (
    NonzeroCoordinates as NonzeroCoordinates,
    nonzero_coordinates as nonzero_coordinates,
    one_hot as one_hot,
)
from dmljax.ops.logic import (
    element_wise_if as element_wise_if,
    element_wise_is_infinity as element_wise_is_infinity,
    element_wise_is_nan as element_wise_is_nan,
    element_wise_logical_and as element_wise_logical_and,
    element_wise_logical_equals as element_wise_logical_equals,
    element_wise_logical_greater_than as element_wise_logical_greater_than,
    element_wise_logical_greater_than_or_equal as element_wise_logical_greater_than_or_equal,
    element_wise_logical_less_than as element_wise_logical_less_than,
    element_wise_logical_less_than_or_equal as element_wise_logical_less_than_or_equal,
    element_wise_logical_not as element_wise_logical_not,
    element_wise_logical_or as element_wise_logical_or,
    element_wise_logical_xor as element_wise_logical_xor,
)
from dmljax.ops.movement import (
    depth_to_space as depth_to_space,
    depth_to_space1 as depth_to_space1,
    join as join,
    slice as slice,
    slice1 as slice1,
    slice_grad as slice_grad,
    space_to_depth as space_to_depth,
    space_to_depth1 as space_to_depth1,
    split as split,
    tile as tile,
)
from dmljax.ops.normalization import (
    BatchNormalizationGradients as BatchNormalizationGradients,
    BatchNormalizationTraining as BatchNormalizationTraining,
    batch_normalization as batch_normalization,
    batch_normalization_grad as batch_normalization_grad,
    batch_normalization_training as batch_normalization_training,
    batch_normalization_training_grad as batch_normalization_training_grad,
    local_response_normalization as local_response_normalization,
    local_response_normalization_grad as local_response_normalization_grad,
    lp_normalization as lp_normalization,
    mean_variance_normalization as mean_variance_normalization,
    mean_variance_normalization1 as mean_variance_normalization1,
    mean_variance_normalization2 as mean_variance_normalization2,
)
from dmljax.ops.padding import fold as fold, padding as padding, padding1 as padding1, unfold as unfold
from dmljax.ops.pooling import (
    MaxPooling as MaxPooling,
    average_pooling as average_pooling,
    average_pooling1 as average_pooling1,
    average_pooling_grad as average_pooling_grad,
    lp_pooling as lp_pooling,
    lp_pooling1 as lp_pooling1,
    max_pooling as max_pooling,
    max_pooling1 as max_pooling1,
    max_pooling2 as max_pooling2,
    max_pooling_grad as max_pooling_grad,
    max_unpooling as max_unpooling,
    quantized_linear_average_pooling as quantized_linear_average_pooling,
)
from dmljax.ops.products import (
    gemm as gemm,
    matrix_multiply_integer as matrix_multiply_integer,
    matrix_multiply_integer_to_float as matrix_multiply_integer_to_float,
    quantized_linear_matrix_multiply as quantized_linear_matrix_multiply,
)
from dmljax.ops.quantization import (
    DynamicQuantizeLinear as DynamicQuantizeLinear,
    dequantize as dequantize,
    dynamic_quantize_linear as dynamic_quantize_linear,
    element_wise_dequantize_linear as element_wise_dequantize_linear,
    element_wise_quantize_linear as element_wise_quantize_linear,
    element_wise_quantized_linear_add as element_wise_quantized_linear_add,
    quantize as quantize,
)
from dmljax.ops.recurrence import (
    Lstm as Lstm,
    RecurrentNetwork as RecurrentNetwork,
    gru as gru,
    lstm as lstm,
    rnn as rnn,
)
from dmljax.ops.reduction import argmax as argmax, argmin as argmin, reduce as reduce
from dmljax.ops.regions import (
    RoiAlignGradients as RoiAlignGradients,
    roi_align as roi_align,
    roi_align1 as roi_align1,
    roi_align_grad as roi_align_grad,
    roi_pooling as roi_pooling,
)
from dmljax.ops.resampling import (
    resample as resample,
    resample1 as resample1,
    resample2 as resample2,
    resample3 as resample3,
    resample_grad as resample_grad,
    resample_grad1 as resample_grad1,
    upsample_2d as upsample_2d,
)
from dmljax.ops.scans import cumulative_product as cumulative_product, cumulative_summation as cumulative_summation
from dmljax.ops.selection import TopK as TopK, top_k as top_k, top_k1 as top_k1
from dmljax.ops.softmax import (
    activation_hardmax as activation_hardmax,
    activation_hardmax1 as activation_hardmax1,
    activation_log_softmax as activation_log_softmax,
    activation_log_softmax1 as activation_log_softmax1,
    activation_softmax as activation_softmax,
    activation_softmax1 as activation_softmax1,
)
from dmljax.ops.training import AdamOptimizer as AdamOptimizer, adam_optimizer as adam_optimizer
from dmljax import directml as directml

__version__ = "0.1.0"

_ROOMS = ("dxdispatch", "onnx", "pydirectml", "serialized")  # which are imported when they are needed
_PUBLIC = [name for name, value in globals().items() if getattr(value, "__module__", "").startswith("dmljax.")]

for _name in _PUBLIC:
    globals()[_name].__module__ = "dmljax"  # where users find it, whatever file it is in

if not _typing.TYPE_CHECKING:  # type checkers know the names that there are

    def __dir__():
        return ["__version__", "directml", *_ROOMS, *_PUBLIC]

    def __getattr__(name):
        if name in _ROOMS:
            from importlib import import_module

            return import_module(f"dmljax.{name}")
        if not name.startswith("_") and hasattr(directml, name):
            raise AttributeError(f"module 'dmljax' has no attribute {name!r}, did you mean dmljax.directml.{name}?")
        from dmljax.relatives import hint

        raise AttributeError(f"module 'dmljax' has no attribute {name!r}{hint(name)}")
