"""The modules that have what `dmljax` exports, each of which is imported when one of its names is first used.

`python tests/tools/generated.py` writes this file, and `functions.pyi`, which type checkers read.
"""

# fmt: off
_NAMES = {
    "dmljax.errors": """
        DmlError""",
    "dmljax.estimation.entry": """
        estimate""",
    "dmljax.estimation.report": """
        Estimate NodeCost""",
    "dmljax.pictures": """
        show""",
    "dmljax.ops.data.gathering": """
        gather gather_elements gather_nd gather_nd1 reverse_subsequences scatter scatter_nd""",
    "dmljax.ops.data.generation": """
        RandomGenerator diagonal_matrix diagonal_matrix1 fill_value_constant fill_value_sequence random_generator""",
    "dmljax.ops.data.indexing": """
        NonzeroCoordinates nonzero_coordinates one_hot""",
    "dmljax.ops.data.movement": """
        depth_to_space depth_to_space1 join slice slice1 slice_grad space_to_depth space_to_depth1 split tile""",
    "dmljax.ops.elementwise.activation": """
        activation_celu activation_elu activation_gelu activation_hard_sigmoid activation_hard_swish
        activation_identity activation_leaky_relu activation_linear activation_parameterized_relu
        activation_parametric_softplus activation_relu activation_relu_grad activation_scaled_elu
        activation_scaled_tanh activation_shrink activation_sigmoid activation_softplus activation_softsign
        activation_swish activation_tanh activation_thresholded_relu""",
    "dmljax.ops.elementwise.arithmetic": """
        element_wise_add element_wise_add1 element_wise_atan_yx element_wise_constant_pow
        element_wise_difference_square element_wise_divide element_wise_max element_wise_mean element_wise_min
        element_wise_modulus_floor element_wise_modulus_truncate element_wise_multiply element_wise_pow
        element_wise_subtract""",
    "dmljax.ops.elementwise.bitwise": """
        element_wise_bit_and element_wise_bit_count element_wise_bit_not element_wise_bit_or
        element_wise_bit_shift_left element_wise_bit_shift_right element_wise_bit_xor""",
    "dmljax.ops.elementwise.clipping": """
        element_wise_clip element_wise_clip1 element_wise_clip_grad element_wise_clip_grad1 element_wise_threshold""",
    "dmljax.ops.elementwise.elementary": """
        cast element_wise_abs element_wise_acos element_wise_acosh element_wise_asin element_wise_asinh
        element_wise_atan element_wise_atanh element_wise_ceil element_wise_cos element_wise_cosh element_wise_erf
        element_wise_exp element_wise_floor element_wise_identity element_wise_log element_wise_negate
        element_wise_recip element_wise_round element_wise_sign element_wise_sin element_wise_sinh element_wise_sqrt
        element_wise_tan element_wise_tanh value_scale_2d""",
    "dmljax.ops.elementwise.logic": """
        element_wise_if element_wise_is_infinity element_wise_is_nan element_wise_logical_and
        element_wise_logical_equals element_wise_logical_greater_than element_wise_logical_greater_than_or_equal
        element_wise_logical_less_than element_wise_logical_less_than_or_equal element_wise_logical_not
        element_wise_logical_or element_wise_logical_xor""",
    "dmljax.ops.elementwise.quantization": """
        DynamicQuantizeLinear dequantize dynamic_quantize_linear element_wise_dequantize_linear
        element_wise_quantize_linear element_wise_quantized_linear_add quantize""",
    "dmljax.ops.images.convolution": """
        convolution convolution_integer quantized_linear_convolution""",
    "dmljax.ops.images.padding": """
        fold padding padding1 unfold""",
    "dmljax.ops.images.pooling": """
        MaxPooling average_pooling average_pooling1 average_pooling_grad lp_pooling lp_pooling1 max_pooling
        max_pooling1 max_pooling2 max_pooling_grad max_unpooling quantized_linear_average_pooling""",
    "dmljax.ops.images.regions": """
        RoiAlignGradients roi_align roi_align1 roi_align_grad roi_pooling""",
    "dmljax.ops.images.resampling": """
        resample resample1 resample2 resample3 resample_grad resample_grad1 upsample_2d""",
    "dmljax.ops.networks.attention": """
        MultiheadAttention multihead_attention multihead_attention1""",
    "dmljax.ops.networks.products": """
        gemm matrix_multiply_integer matrix_multiply_integer_to_float quantized_linear_matrix_multiply""",
    "dmljax.ops.networks.recurrence": """
        Lstm RecurrentNetwork gru lstm rnn""",
    "dmljax.ops.networks.training": """
        AdamOptimizer adam_optimizer""",
    "dmljax.ops.rows.normalization": """
        BatchNormalizationGradients BatchNormalizationTraining batch_normalization batch_normalization_grad
        batch_normalization_training batch_normalization_training_grad local_response_normalization
        local_response_normalization_grad lp_normalization mean_variance_normalization mean_variance_normalization1
        mean_variance_normalization2""",
    "dmljax.ops.rows.reduction": """
        argmax argmin reduce""",
    "dmljax.ops.rows.scans": """
        cumulative_product cumulative_summation""",
    "dmljax.ops.rows.selection": """
        TopK top_k top_k1""",
    "dmljax.ops.rows.softmax": """
        activation_hardmax activation_hardmax1 activation_log_softmax activation_log_softmax1 activation_softmax
        activation_softmax1""",
}
_NAMES_OF_JAX = "celu elu hard_swish leaky_relu log_softmax relu sigmoid softmax softplus swish tanh"
# fmt: on
HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
ALIASES = {name: f"activation_{name}" for name in _NAMES_OF_JAX.split()}
