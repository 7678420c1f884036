# fmt: off
from dmljax import directml
from dmljax.errors import DmlError
from dmljax.estimation.entry import estimate
from dmljax.estimation.report import Estimate, NodeCost
from dmljax.pictures import show
from dmljax.ops.data.gathering import (
    gather, gather_elements, gather_nd, gather_nd1, reverse_subsequences, scatter, scatter_nd
)
from dmljax.ops.data.generation import (
    RandomGenerator, diagonal_matrix, diagonal_matrix1, fill_value_constant, fill_value_sequence, random_generator
)
from dmljax.ops.data.indexing import NonzeroCoordinates, nonzero_coordinates, one_hot
from dmljax.ops.data.movement import (
    depth_to_space, depth_to_space1, join, slice, slice1, slice_grad, space_to_depth, space_to_depth1, split, tile
)
from dmljax.ops.elementwise.activation import (
    activation_celu, activation_elu, activation_gelu, activation_hard_sigmoid, activation_hard_swish,
    activation_identity, activation_leaky_relu, activation_linear, activation_parameterized_relu,
    activation_parametric_softplus, activation_relu, activation_relu_grad, activation_scaled_elu,
    activation_scaled_tanh, activation_shrink, activation_sigmoid, activation_softplus, activation_softsign,
    activation_swish, activation_tanh, activation_thresholded_relu
)
from dmljax.ops.elementwise.arithmetic import (
    element_wise_add, element_wise_add1, element_wise_atan_yx, element_wise_constant_pow,
    element_wise_difference_square, element_wise_divide, element_wise_max, element_wise_mean, element_wise_min,
    element_wise_modulus_floor, element_wise_modulus_truncate, element_wise_multiply, element_wise_pow,
    element_wise_subtract
)
from dmljax.ops.elementwise.bitwise import (
    element_wise_bit_and, element_wise_bit_count, element_wise_bit_not, element_wise_bit_or,
    element_wise_bit_shift_left, element_wise_bit_shift_right, element_wise_bit_xor
)
from dmljax.ops.elementwise.clipping import (
    element_wise_clip, element_wise_clip1, element_wise_clip_grad, element_wise_clip_grad1, element_wise_threshold
)
from dmljax.ops.elementwise.elementary import (
    cast, element_wise_abs, element_wise_acos, element_wise_acosh, element_wise_asin, element_wise_asinh,
    element_wise_atan, element_wise_atanh, element_wise_ceil, element_wise_cos, element_wise_cosh, element_wise_erf,
    element_wise_exp, element_wise_floor, element_wise_identity, element_wise_log, element_wise_negate,
    element_wise_recip, element_wise_round, element_wise_sign, element_wise_sin, element_wise_sinh, element_wise_sqrt,
    element_wise_tan, element_wise_tanh, value_scale_2d
)
from dmljax.ops.elementwise.logic import (
    element_wise_if, element_wise_is_infinity, element_wise_is_nan, element_wise_logical_and,
    element_wise_logical_equals, element_wise_logical_greater_than, element_wise_logical_greater_than_or_equal,
    element_wise_logical_less_than, element_wise_logical_less_than_or_equal, element_wise_logical_not,
    element_wise_logical_or, element_wise_logical_xor
)
from dmljax.ops.elementwise.quantization import (
    DynamicQuantizeLinear, dequantize, dynamic_quantize_linear, element_wise_dequantize_linear,
    element_wise_quantize_linear, element_wise_quantized_linear_add, quantize
)
from dmljax.ops.images.convolution import convolution, convolution_integer, quantized_linear_convolution
from dmljax.ops.images.padding import fold, padding, padding1, unfold
from dmljax.ops.images.pooling import (
    MaxPooling, average_pooling, average_pooling1, average_pooling_grad, lp_pooling, lp_pooling1, max_pooling,
    max_pooling1, max_pooling2, max_pooling_grad, max_unpooling, quantized_linear_average_pooling
)
from dmljax.ops.images.regions import RoiAlignGradients, roi_align, roi_align1, roi_align_grad, roi_pooling
from dmljax.ops.images.resampling import (
    resample, resample1, resample2, resample3, resample_grad, resample_grad1, upsample_2d
)
from dmljax.ops.networks.attention import MultiheadAttention, multihead_attention, multihead_attention1
from dmljax.ops.networks.products import (
    gemm, matrix_multiply_integer, matrix_multiply_integer_to_float, quantized_linear_matrix_multiply
)
from dmljax.ops.networks.recurrence import Lstm, RecurrentNetwork, gru, lstm, rnn
from dmljax.ops.networks.training import AdamOptimizer, adam_optimizer
from dmljax.ops.rows.normalization import (
    BatchNormalizationGradients, BatchNormalizationTraining, batch_normalization, batch_normalization_grad,
    batch_normalization_training, batch_normalization_training_grad, local_response_normalization,
    local_response_normalization_grad, lp_normalization, mean_variance_normalization, mean_variance_normalization1,
    mean_variance_normalization2
)
from dmljax.ops.rows.reduction import argmax, argmin, reduce
from dmljax.ops.rows.scans import cumulative_product, cumulative_summation
from dmljax.ops.rows.selection import TopK, top_k, top_k1
from dmljax.ops.rows.softmax import (
    activation_hardmax, activation_hardmax1, activation_log_softmax, activation_log_softmax1, activation_softmax,
    activation_softmax1
)
from dmljax.ops.elementwise.activation import activation_celu as celu
from dmljax.ops.elementwise.activation import activation_elu as elu
from dmljax.ops.elementwise.activation import activation_hard_swish as hard_swish
from dmljax.ops.elementwise.activation import activation_leaky_relu as leaky_relu
from dmljax.ops.rows.softmax import activation_log_softmax as log_softmax
from dmljax.ops.elementwise.activation import activation_relu as relu
from dmljax.ops.elementwise.activation import activation_sigmoid as sigmoid
from dmljax.ops.rows.softmax import activation_softmax as softmax
from dmljax.ops.elementwise.activation import activation_softplus as softplus
from dmljax.ops.elementwise.activation import activation_swish as swish
from dmljax.ops.elementwise.activation import activation_tanh as tanh
__all__ = [
    "AdamOptimizer", "BatchNormalizationGradients", "BatchNormalizationTraining", "DmlError", "DynamicQuantizeLinear",
    "Estimate", "Lstm", "MaxPooling", "MultiheadAttention", "NodeCost", "NonzeroCoordinates", "RandomGenerator",
    "RecurrentNetwork", "RoiAlignGradients", "TopK", "activation_celu", "activation_elu", "activation_gelu",
    "activation_hard_sigmoid", "activation_hard_swish", "activation_hardmax", "activation_hardmax1",
    "activation_identity", "activation_leaky_relu", "activation_linear", "activation_log_softmax",
    "activation_log_softmax1", "activation_parameterized_relu", "activation_parametric_softplus", "activation_relu",
    "activation_relu_grad", "activation_scaled_elu", "activation_scaled_tanh", "activation_shrink",
    "activation_sigmoid", "activation_softmax", "activation_softmax1", "activation_softplus", "activation_softsign",
    "activation_swish", "activation_tanh", "activation_thresholded_relu", "adam_optimizer", "argmax", "argmin",
    "average_pooling", "average_pooling1", "average_pooling_grad", "batch_normalization", "batch_normalization_grad",
    "batch_normalization_training", "batch_normalization_training_grad", "cast", "celu", "convolution",
    "convolution_integer", "cumulative_product", "cumulative_summation", "depth_to_space", "depth_to_space1",
    "dequantize", "diagonal_matrix", "diagonal_matrix1", "directml", "dynamic_quantize_linear", "element_wise_abs",
    "element_wise_acos", "element_wise_acosh", "element_wise_add", "element_wise_add1", "element_wise_asin",
    "element_wise_asinh", "element_wise_atan", "element_wise_atan_yx", "element_wise_atanh", "element_wise_bit_and",
    "element_wise_bit_count", "element_wise_bit_not", "element_wise_bit_or", "element_wise_bit_shift_left",
    "element_wise_bit_shift_right", "element_wise_bit_xor", "element_wise_ceil", "element_wise_clip",
    "element_wise_clip1", "element_wise_clip_grad", "element_wise_clip_grad1", "element_wise_constant_pow",
    "element_wise_cos", "element_wise_cosh", "element_wise_dequantize_linear", "element_wise_difference_square",
    "element_wise_divide", "element_wise_erf", "element_wise_exp", "element_wise_floor", "element_wise_identity",
    "element_wise_if", "element_wise_is_infinity", "element_wise_is_nan", "element_wise_log",
    "element_wise_logical_and", "element_wise_logical_equals", "element_wise_logical_greater_than",
    "element_wise_logical_greater_than_or_equal", "element_wise_logical_less_than",
    "element_wise_logical_less_than_or_equal", "element_wise_logical_not", "element_wise_logical_or",
    "element_wise_logical_xor", "element_wise_max", "element_wise_mean", "element_wise_min",
    "element_wise_modulus_floor", "element_wise_modulus_truncate", "element_wise_multiply", "element_wise_negate",
    "element_wise_pow", "element_wise_quantize_linear", "element_wise_quantized_linear_add", "element_wise_recip",
    "element_wise_round", "element_wise_sign", "element_wise_sin", "element_wise_sinh", "element_wise_sqrt",
    "element_wise_subtract", "element_wise_tan", "element_wise_tanh", "element_wise_threshold", "elu", "estimate",
    "fill_value_constant", "fill_value_sequence", "fold", "gather", "gather_elements", "gather_nd", "gather_nd1",
    "gemm", "gru", "hard_swish", "join", "leaky_relu", "local_response_normalization",
    "local_response_normalization_grad", "log_softmax", "lp_normalization", "lp_pooling", "lp_pooling1", "lstm",
    "matrix_multiply_integer", "matrix_multiply_integer_to_float", "max_pooling", "max_pooling1", "max_pooling2",
    "max_pooling_grad", "max_unpooling", "mean_variance_normalization", "mean_variance_normalization1",
    "mean_variance_normalization2", "multihead_attention", "multihead_attention1", "nonzero_coordinates", "one_hot",
    "padding", "padding1", "quantize", "quantized_linear_average_pooling", "quantized_linear_convolution",
    "quantized_linear_matrix_multiply", "random_generator", "reduce", "relu", "resample", "resample1", "resample2",
    "resample3", "resample_grad", "resample_grad1", "reverse_subsequences", "rnn", "roi_align", "roi_align1",
    "roi_align_grad", "roi_pooling", "scatter", "scatter_nd", "show", "sigmoid", "slice", "slice1", "slice_grad",
    "softmax", "softplus", "space_to_depth", "space_to_depth1", "split", "swish", "tanh", "tile", "top_k", "top_k1",
    "unfold", "upsample_2d", "value_scale_2d"
]
# fmt: on
HOMES: dict[str, str]
ALIASES: dict[str, str]
