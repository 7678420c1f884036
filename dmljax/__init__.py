"""The operators of DirectML for JAX: functions of arrays, and descriptors that mirror directml.h."""

from dmljax._errors import DmlError as DmlError
from dmljax._errors import InvalidDesc as InvalidDesc
from dmljax._errors import InvalidType as InvalidType
from dmljax._errors import Unsupported as Unsupported

# Descriptors
from dmljax._operator import OPERATORS as OPERATORS
from dmljax._operator import Operator as Operator
from dmljax._operator import broken_rules as broken_rules
from dmljax._operator import from_json as from_json
from dmljax._operator import lower as lower
from dmljax._operator import minimum_feature_level as minimum_feature_level
from dmljax._operator import to_json as to_json
from dmljax._operator import validate as validate
from dmljax._scalars import Scalar as Scalar
from dmljax._scalars import ScaleBias as ScaleBias
from dmljax._tensor import TensorDesc as TensorDesc
from dmljax._types import AxisDirection as AxisDirection
from dmljax._types import DataType as DataType
from dmljax._types import FeatureLevel as FeatureLevel
from dmljax._types import IsInfinityMode as IsInfinityMode
from dmljax._types import RoundingMode as RoundingMode
from dmljax._types import TensorFlags as TensorFlags

# Activations
from dmljax.ops.activation import ActivationCeluDesc as ActivationCeluDesc
from dmljax.ops.activation import ActivationEluDesc as ActivationEluDesc
from dmljax.ops.activation import ActivationGeluDesc as ActivationGeluDesc
from dmljax.ops.activation import ActivationHardmax1Desc as ActivationHardmax1Desc
from dmljax.ops.activation import ActivationHardmaxDesc as ActivationHardmaxDesc
from dmljax.ops.activation import ActivationHardSigmoidDesc as ActivationHardSigmoidDesc
from dmljax.ops.activation import ActivationHardSwishDesc as ActivationHardSwishDesc
from dmljax.ops.activation import ActivationIdentityDesc as ActivationIdentityDesc
from dmljax.ops.activation import ActivationLeakyReluDesc as ActivationLeakyReluDesc
from dmljax.ops.activation import ActivationLinearDesc as ActivationLinearDesc
from dmljax.ops.activation import ActivationLogSoftmax1Desc as ActivationLogSoftmax1Desc
from dmljax.ops.activation import ActivationLogSoftmaxDesc as ActivationLogSoftmaxDesc
from dmljax.ops.activation import ActivationParameterizedReluDesc as ActivationParameterizedReluDesc
from dmljax.ops.activation import ActivationParametricSoftplusDesc as ActivationParametricSoftplusDesc
from dmljax.ops.activation import ActivationReluDesc as ActivationReluDesc
from dmljax.ops.activation import ActivationReluGradDesc as ActivationReluGradDesc
from dmljax.ops.activation import ActivationScaledEluDesc as ActivationScaledEluDesc
from dmljax.ops.activation import ActivationScaledTanhDesc as ActivationScaledTanhDesc
from dmljax.ops.activation import ActivationShrinkDesc as ActivationShrinkDesc
from dmljax.ops.activation import ActivationSigmoidDesc as ActivationSigmoidDesc
from dmljax.ops.activation import ActivationSoftmax1Desc as ActivationSoftmax1Desc
from dmljax.ops.activation import ActivationSoftmaxDesc as ActivationSoftmaxDesc
from dmljax.ops.activation import ActivationSoftplusDesc as ActivationSoftplusDesc
from dmljax.ops.activation import ActivationSoftsignDesc as ActivationSoftsignDesc
from dmljax.ops.activation import ActivationSwishDesc as ActivationSwishDesc
from dmljax.ops.activation import ActivationTanhDesc as ActivationTanhDesc
from dmljax.ops.activation import ActivationThresholdedReluDesc as ActivationThresholdedReluDesc
from dmljax.ops.activation import activation_celu as activation_celu
from dmljax.ops.activation import activation_elu as activation_elu
from dmljax.ops.activation import activation_gelu as activation_gelu
from dmljax.ops.activation import activation_hard_sigmoid as activation_hard_sigmoid
from dmljax.ops.activation import activation_hard_swish as activation_hard_swish
from dmljax.ops.activation import activation_hardmax as activation_hardmax
from dmljax.ops.activation import activation_hardmax1 as activation_hardmax1
from dmljax.ops.activation import activation_identity as activation_identity
from dmljax.ops.activation import activation_leaky_relu as activation_leaky_relu
from dmljax.ops.activation import activation_linear as activation_linear
from dmljax.ops.activation import activation_log_softmax as activation_log_softmax
from dmljax.ops.activation import activation_log_softmax1 as activation_log_softmax1
from dmljax.ops.activation import activation_parameterized_relu as activation_parameterized_relu
from dmljax.ops.activation import activation_parametric_softplus as activation_parametric_softplus
from dmljax.ops.activation import activation_relu as activation_relu
from dmljax.ops.activation import activation_relu_grad as activation_relu_grad
from dmljax.ops.activation import activation_scaled_elu as activation_scaled_elu
from dmljax.ops.activation import activation_scaled_tanh as activation_scaled_tanh
from dmljax.ops.activation import activation_shrink as activation_shrink
from dmljax.ops.activation import activation_sigmoid as activation_sigmoid
from dmljax.ops.activation import activation_softmax as activation_softmax
from dmljax.ops.activation import activation_softmax1 as activation_softmax1
from dmljax.ops.activation import activation_softplus as activation_softplus
from dmljax.ops.activation import activation_softsign as activation_softsign
from dmljax.ops.activation import activation_swish as activation_swish
from dmljax.ops.activation import activation_tanh as activation_tanh
from dmljax.ops.activation import activation_thresholded_relu as activation_thresholded_relu
from dmljax.ops.arithmetic import ElementWiseAdd1Desc as ElementWiseAdd1Desc

# Arithmetic
from dmljax.ops.arithmetic import ElementWiseAddDesc as ElementWiseAddDesc
from dmljax.ops.arithmetic import ElementWiseAtanYxDesc as ElementWiseAtanYxDesc
from dmljax.ops.arithmetic import ElementWiseConstantPowDesc as ElementWiseConstantPowDesc
from dmljax.ops.arithmetic import ElementWiseDifferenceSquareDesc as ElementWiseDifferenceSquareDesc
from dmljax.ops.arithmetic import ElementWiseDivideDesc as ElementWiseDivideDesc
from dmljax.ops.arithmetic import ElementWiseMaxDesc as ElementWiseMaxDesc
from dmljax.ops.arithmetic import ElementWiseMeanDesc as ElementWiseMeanDesc
from dmljax.ops.arithmetic import ElementWiseMinDesc as ElementWiseMinDesc
from dmljax.ops.arithmetic import ElementWiseModulusFloorDesc as ElementWiseModulusFloorDesc
from dmljax.ops.arithmetic import ElementWiseModulusTruncateDesc as ElementWiseModulusTruncateDesc
from dmljax.ops.arithmetic import ElementWiseMultiplyDesc as ElementWiseMultiplyDesc
from dmljax.ops.arithmetic import ElementWisePowDesc as ElementWisePowDesc
from dmljax.ops.arithmetic import ElementWiseSubtractDesc as ElementWiseSubtractDesc
from dmljax.ops.arithmetic import element_wise_add as element_wise_add
from dmljax.ops.arithmetic import element_wise_add1 as element_wise_add1
from dmljax.ops.arithmetic import element_wise_atan_yx as element_wise_atan_yx
from dmljax.ops.arithmetic import element_wise_constant_pow as element_wise_constant_pow
from dmljax.ops.arithmetic import element_wise_difference_square as element_wise_difference_square
from dmljax.ops.arithmetic import element_wise_divide as element_wise_divide
from dmljax.ops.arithmetic import element_wise_max as element_wise_max
from dmljax.ops.arithmetic import element_wise_mean as element_wise_mean
from dmljax.ops.arithmetic import element_wise_min as element_wise_min
from dmljax.ops.arithmetic import element_wise_modulus_floor as element_wise_modulus_floor
from dmljax.ops.arithmetic import element_wise_modulus_truncate as element_wise_modulus_truncate
from dmljax.ops.arithmetic import element_wise_multiply as element_wise_multiply
from dmljax.ops.arithmetic import element_wise_pow as element_wise_pow
from dmljax.ops.arithmetic import element_wise_subtract as element_wise_subtract

# Bits
from dmljax.ops.bits import ElementWiseBitAndDesc as ElementWiseBitAndDesc
from dmljax.ops.bits import ElementWiseBitCountDesc as ElementWiseBitCountDesc
from dmljax.ops.bits import ElementWiseBitNotDesc as ElementWiseBitNotDesc
from dmljax.ops.bits import ElementWiseBitOrDesc as ElementWiseBitOrDesc
from dmljax.ops.bits import ElementWiseBitShiftLeftDesc as ElementWiseBitShiftLeftDesc
from dmljax.ops.bits import ElementWiseBitShiftRightDesc as ElementWiseBitShiftRightDesc
from dmljax.ops.bits import ElementWiseBitXorDesc as ElementWiseBitXorDesc
from dmljax.ops.bits import element_wise_bit_and as element_wise_bit_and
from dmljax.ops.bits import element_wise_bit_count as element_wise_bit_count
from dmljax.ops.bits import element_wise_bit_not as element_wise_bit_not
from dmljax.ops.bits import element_wise_bit_or as element_wise_bit_or
from dmljax.ops.bits import element_wise_bit_shift_left as element_wise_bit_shift_left
from dmljax.ops.bits import element_wise_bit_shift_right as element_wise_bit_shift_right
from dmljax.ops.bits import element_wise_bit_xor as element_wise_bit_xor
from dmljax.ops.clipping import ElementWiseClip1Desc as ElementWiseClip1Desc

# Bounds
from dmljax.ops.clipping import ElementWiseClipDesc as ElementWiseClipDesc
from dmljax.ops.clipping import ElementWiseClipGrad1Desc as ElementWiseClipGrad1Desc
from dmljax.ops.clipping import ElementWiseClipGradDesc as ElementWiseClipGradDesc
from dmljax.ops.clipping import ElementWiseThresholdDesc as ElementWiseThresholdDesc
from dmljax.ops.clipping import element_wise_clip as element_wise_clip
from dmljax.ops.clipping import element_wise_clip1 as element_wise_clip1
from dmljax.ops.clipping import element_wise_clip_grad as element_wise_clip_grad
from dmljax.ops.clipping import element_wise_clip_grad1 as element_wise_clip_grad1
from dmljax.ops.clipping import element_wise_threshold as element_wise_threshold

# Elementary functions
from dmljax.ops.elementary import ElementWiseAbsDesc as ElementWiseAbsDesc
from dmljax.ops.elementary import ElementWiseAcosDesc as ElementWiseAcosDesc
from dmljax.ops.elementary import ElementWiseAcoshDesc as ElementWiseAcoshDesc
from dmljax.ops.elementary import ElementWiseAsinDesc as ElementWiseAsinDesc
from dmljax.ops.elementary import ElementWiseAsinhDesc as ElementWiseAsinhDesc
from dmljax.ops.elementary import ElementWiseAtanDesc as ElementWiseAtanDesc
from dmljax.ops.elementary import ElementWiseAtanhDesc as ElementWiseAtanhDesc
from dmljax.ops.elementary import ElementWiseCeilDesc as ElementWiseCeilDesc
from dmljax.ops.elementary import ElementWiseCosDesc as ElementWiseCosDesc
from dmljax.ops.elementary import ElementWiseCoshDesc as ElementWiseCoshDesc
from dmljax.ops.elementary import ElementWiseErfDesc as ElementWiseErfDesc
from dmljax.ops.elementary import ElementWiseExpDesc as ElementWiseExpDesc
from dmljax.ops.elementary import ElementWiseFloorDesc as ElementWiseFloorDesc
from dmljax.ops.elementary import ElementWiseIdentityDesc as ElementWiseIdentityDesc
from dmljax.ops.elementary import ElementWiseLogDesc as ElementWiseLogDesc
from dmljax.ops.elementary import ElementWiseNegateDesc as ElementWiseNegateDesc
from dmljax.ops.elementary import ElementWiseRecipDesc as ElementWiseRecipDesc
from dmljax.ops.elementary import ElementWiseRoundDesc as ElementWiseRoundDesc
from dmljax.ops.elementary import ElementWiseSignDesc as ElementWiseSignDesc
from dmljax.ops.elementary import ElementWiseSinDesc as ElementWiseSinDesc
from dmljax.ops.elementary import ElementWiseSinhDesc as ElementWiseSinhDesc
from dmljax.ops.elementary import ElementWiseSqrtDesc as ElementWiseSqrtDesc
from dmljax.ops.elementary import ElementWiseTanDesc as ElementWiseTanDesc
from dmljax.ops.elementary import ElementWiseTanhDesc as ElementWiseTanhDesc
from dmljax.ops.elementary import element_wise_abs as element_wise_abs
from dmljax.ops.elementary import element_wise_acos as element_wise_acos
from dmljax.ops.elementary import element_wise_acosh as element_wise_acosh
from dmljax.ops.elementary import element_wise_asin as element_wise_asin
from dmljax.ops.elementary import element_wise_asinh as element_wise_asinh
from dmljax.ops.elementary import element_wise_atan as element_wise_atan
from dmljax.ops.elementary import element_wise_atanh as element_wise_atanh
from dmljax.ops.elementary import element_wise_ceil as element_wise_ceil
from dmljax.ops.elementary import element_wise_cos as element_wise_cos
from dmljax.ops.elementary import element_wise_cosh as element_wise_cosh
from dmljax.ops.elementary import element_wise_erf as element_wise_erf
from dmljax.ops.elementary import element_wise_exp as element_wise_exp
from dmljax.ops.elementary import element_wise_floor as element_wise_floor
from dmljax.ops.elementary import element_wise_identity as element_wise_identity
from dmljax.ops.elementary import element_wise_log as element_wise_log
from dmljax.ops.elementary import element_wise_negate as element_wise_negate
from dmljax.ops.elementary import element_wise_recip as element_wise_recip
from dmljax.ops.elementary import element_wise_round as element_wise_round
from dmljax.ops.elementary import element_wise_sign as element_wise_sign
from dmljax.ops.elementary import element_wise_sin as element_wise_sin
from dmljax.ops.elementary import element_wise_sinh as element_wise_sinh
from dmljax.ops.elementary import element_wise_sqrt as element_wise_sqrt
from dmljax.ops.elementary import element_wise_tan as element_wise_tan
from dmljax.ops.elementary import element_wise_tanh as element_wise_tanh
from dmljax.ops.generation import DiagonalMatrix1Desc as DiagonalMatrix1Desc

# Generators
from dmljax.ops.generation import DiagonalMatrixDesc as DiagonalMatrixDesc
from dmljax.ops.generation import FillValueConstantDesc as FillValueConstantDesc
from dmljax.ops.generation import diagonal_matrix as diagonal_matrix
from dmljax.ops.generation import diagonal_matrix1 as diagonal_matrix1
from dmljax.ops.generation import fill_value_constant as fill_value_constant
from dmljax.ops.indexing import GatherNd1Desc as GatherNd1Desc

# Indexing
from dmljax.ops.indexing import GatherNdDesc as GatherNdDesc
from dmljax.ops.indexing import NonzeroCoordinates as NonzeroCoordinates
from dmljax.ops.indexing import NonzeroCoordinatesDesc as NonzeroCoordinatesDesc
from dmljax.ops.indexing import OneHotDesc as OneHotDesc
from dmljax.ops.indexing import _GatherDesc as _GatherDesc
from dmljax.ops.indexing import gather_nd as gather_nd
from dmljax.ops.indexing import gather_nd1 as gather_nd1
from dmljax.ops.indexing import nonzero_coordinates as nonzero_coordinates
from dmljax.ops.indexing import one_hot as one_hot

# Logic
from dmljax.ops.logic import ElementWiseIfDesc as ElementWiseIfDesc
from dmljax.ops.logic import ElementWiseIsInfinityDesc as ElementWiseIsInfinityDesc
from dmljax.ops.logic import ElementWiseIsNanDesc as ElementWiseIsNanDesc
from dmljax.ops.logic import ElementWiseLogicalAndDesc as ElementWiseLogicalAndDesc
from dmljax.ops.logic import ElementWiseLogicalEqualsDesc as ElementWiseLogicalEqualsDesc
from dmljax.ops.logic import ElementWiseLogicalGreaterThanDesc as ElementWiseLogicalGreaterThanDesc
from dmljax.ops.logic import ElementWiseLogicalGreaterThanOrEqualDesc as ElementWiseLogicalGreaterThanOrEqualDesc
from dmljax.ops.logic import ElementWiseLogicalLessThanDesc as ElementWiseLogicalLessThanDesc
from dmljax.ops.logic import ElementWiseLogicalLessThanOrEqualDesc as ElementWiseLogicalLessThanOrEqualDesc
from dmljax.ops.logic import ElementWiseLogicalNotDesc as ElementWiseLogicalNotDesc
from dmljax.ops.logic import ElementWiseLogicalOrDesc as ElementWiseLogicalOrDesc
from dmljax.ops.logic import ElementWiseLogicalXorDesc as ElementWiseLogicalXorDesc
from dmljax.ops.logic import element_wise_if as element_wise_if
from dmljax.ops.logic import element_wise_is_infinity as element_wise_is_infinity
from dmljax.ops.logic import element_wise_is_nan as element_wise_is_nan
from dmljax.ops.logic import element_wise_logical_and as element_wise_logical_and
from dmljax.ops.logic import element_wise_logical_equals as element_wise_logical_equals
from dmljax.ops.logic import element_wise_logical_greater_than as element_wise_logical_greater_than
from dmljax.ops.logic import element_wise_logical_greater_than_or_equal as element_wise_logical_greater_than_or_equal
from dmljax.ops.logic import element_wise_logical_less_than as element_wise_logical_less_than
from dmljax.ops.logic import element_wise_logical_less_than_or_equal as element_wise_logical_less_than_or_equal
from dmljax.ops.logic import element_wise_logical_not as element_wise_logical_not
from dmljax.ops.logic import element_wise_logical_or as element_wise_logical_or
from dmljax.ops.logic import element_wise_logical_xor as element_wise_logical_xor

# Quantization
from dmljax.ops.quantization import ElementWiseDequantizeLinearDesc as ElementWiseDequantizeLinearDesc
from dmljax.ops.quantization import ElementWiseQuantizedLinearAddDesc as ElementWiseQuantizedLinearAddDesc
from dmljax.ops.quantization import ElementWiseQuantizeLinearDesc as ElementWiseQuantizeLinearDesc
from dmljax.ops.quantization import element_wise_dequantize_linear as element_wise_dequantize_linear
from dmljax.ops.quantization import element_wise_quantize_linear as element_wise_quantize_linear
from dmljax.ops.quantization import element_wise_quantized_linear_add as element_wise_quantized_linear_add

# Reductions
from dmljax.ops.reduction import ArgmaxDesc as ArgmaxDesc
from dmljax.ops.reduction import ArgminDesc as ArgminDesc
from dmljax.ops.reduction import _ArgReduceDesc as _ArgReduceDesc
from dmljax.ops.reduction import argmax as argmax
from dmljax.ops.reduction import argmin as argmin

__version__ = "0.1.0"
