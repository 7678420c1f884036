"""DirectML's descriptors, which mirror directml.h: validated, lowered to functions of arrays, read and written as JSON.

`python tests/public_names.py` writes this file.
"""

from dmljax.descriptors import (
    OPERATORS as OPERATORS,
    Operator as Operator,
    broken_rules as broken_rules,
    lower as lower,
    minimum_feature_level as minimum_feature_level,
    to_json as to_json,
    validate as validate,
)
from dmljax.graph import Graph as Graph, from_json as from_json
from dmljax.errors import (
    InvalidDesc as InvalidDesc,
    InvalidType as InvalidType,
    Problem as Problem,
    Unsupported as Unsupported,
)
from dmljax.scalars import Scalar as Scalar, ScaleBias as ScaleBias, Size2D as Size2D
from dmljax.tensor import TensorDesc as TensorDesc
from dmljax.types import (
    AxisDirection as AxisDirection,
    ConvolutionDirection as ConvolutionDirection,
    ConvolutionMode as ConvolutionMode,
    DataType as DataType,
    DepthSpaceOrder as DepthSpaceOrder,
    FeatureLevel as FeatureLevel,
    InterpolationMode as InterpolationMode,
    IsInfinityMode as IsInfinityMode,
    MatrixTransform as MatrixTransform,
    MultiheadAttentionMaskType as MultiheadAttentionMaskType,
    PaddingMode as PaddingMode,
    QuantizationType as QuantizationType,
    RandomGeneratorType as RandomGeneratorType,
    RecurrentNetworkDirection as RecurrentNetworkDirection,
    ReduceFunction as ReduceFunction,
    RoundingMode as RoundingMode,
    TensorFlags as TensorFlags,
)
from dmljax.ops.activation import (
    ActivationCeluDesc as ActivationCeluDesc,
    ActivationEluDesc as ActivationEluDesc,
    ActivationGeluDesc as ActivationGeluDesc,
    ActivationHardSigmoidDesc as ActivationHardSigmoidDesc,
    ActivationHardSwishDesc as ActivationHardSwishDesc,
    ActivationIdentityDesc as ActivationIdentityDesc,
    ActivationLeakyReluDesc as ActivationLeakyReluDesc,
    ActivationLinearDesc as ActivationLinearDesc,
    ActivationParameterizedReluDesc as ActivationParameterizedReluDesc,
    ActivationParametricSoftplusDesc as ActivationParametricSoftplusDesc,
    ActivationReluDesc as ActivationReluDesc,
    ActivationReluGradDesc as ActivationReluGradDesc,
    ActivationScaledEluDesc as ActivationScaledEluDesc,
    ActivationScaledTanhDesc as ActivationScaledTanhDesc,
    ActivationShrinkDesc as ActivationShrinkDesc,
    ActivationSigmoidDesc as ActivationSigmoidDesc,
    ActivationSoftplusDesc as ActivationSoftplusDesc,
    ActivationSoftsignDesc as ActivationSoftsignDesc,
    ActivationSwishDesc as ActivationSwishDesc,
    ActivationTanhDesc as ActivationTanhDesc,
    ActivationThresholdedReluDesc as ActivationThresholdedReluDesc,
)
from dmljax.ops.arithmetic import (
    ElementWiseAdd1Desc as ElementWiseAdd1Desc,
    ElementWiseAddDesc as ElementWiseAddDesc,
    ElementWiseAtanYxDesc as ElementWiseAtanYxDesc,
    ElementWiseConstantPowDesc as ElementWiseConstantPowDesc,
    ElementWiseDifferenceSquareDesc as ElementWiseDifferenceSquareDesc,
    ElementWiseDivideDesc as ElementWiseDivideDesc,
    ElementWiseMaxDesc as ElementWiseMaxDesc,
    ElementWiseMeanDesc as ElementWiseMeanDesc,
    ElementWiseMinDesc as ElementWiseMinDesc,
    ElementWiseModulusFloorDesc as ElementWiseModulusFloorDesc,
    ElementWiseModulusTruncateDesc as ElementWiseModulusTruncateDesc,
    ElementWiseMultiplyDesc as ElementWiseMultiplyDesc,
    ElementWisePowDesc as ElementWisePowDesc,
    ElementWiseSubtractDesc as ElementWiseSubtractDesc,
)
from dmljax.ops.attention import (
    MultiheadAttention1Desc as MultiheadAttention1Desc,
    MultiheadAttentionDesc as MultiheadAttentionDesc,
)
from dmljax.ops.bitwise import (
    ElementWiseBitAndDesc as ElementWiseBitAndDesc,
    ElementWiseBitCountDesc as ElementWiseBitCountDesc,
    ElementWiseBitNotDesc as ElementWiseBitNotDesc,
    ElementWiseBitOrDesc as ElementWiseBitOrDesc,
    ElementWiseBitShiftLeftDesc as ElementWiseBitShiftLeftDesc,
    ElementWiseBitShiftRightDesc as ElementWiseBitShiftRightDesc,
    ElementWiseBitXorDesc as ElementWiseBitXorDesc,
)
from dmljax.ops.clipping import (
    ElementWiseClip1Desc as ElementWiseClip1Desc,
    ElementWiseClipDesc as ElementWiseClipDesc,
    ElementWiseClipGrad1Desc as ElementWiseClipGrad1Desc,
    ElementWiseClipGradDesc as ElementWiseClipGradDesc,
    ElementWiseThresholdDesc as ElementWiseThresholdDesc,
)
from dmljax.ops.convolution import (
    ConvolutionDesc as ConvolutionDesc,
    ConvolutionIntegerDesc as ConvolutionIntegerDesc,
    QuantizedLinearConvolutionDesc as QuantizedLinearConvolutionDesc,
)
from dmljax.ops.elementary import (
    CastDesc as CastDesc,
    ElementWiseAbsDesc as ElementWiseAbsDesc,
    ElementWiseAcosDesc as ElementWiseAcosDesc,
    ElementWiseAcoshDesc as ElementWiseAcoshDesc,
    ElementWiseAsinDesc as ElementWiseAsinDesc,
    ElementWiseAsinhDesc as ElementWiseAsinhDesc,
    ElementWiseAtanDesc as ElementWiseAtanDesc,
    ElementWiseAtanhDesc as ElementWiseAtanhDesc,
    ElementWiseCeilDesc as ElementWiseCeilDesc,
    ElementWiseCosDesc as ElementWiseCosDesc,
    ElementWiseCoshDesc as ElementWiseCoshDesc,
    ElementWiseErfDesc as ElementWiseErfDesc,
    ElementWiseExpDesc as ElementWiseExpDesc,
    ElementWiseFloorDesc as ElementWiseFloorDesc,
    ElementWiseIdentityDesc as ElementWiseIdentityDesc,
    ElementWiseLogDesc as ElementWiseLogDesc,
    ElementWiseNegateDesc as ElementWiseNegateDesc,
    ElementWiseRecipDesc as ElementWiseRecipDesc,
    ElementWiseRoundDesc as ElementWiseRoundDesc,
    ElementWiseSignDesc as ElementWiseSignDesc,
    ElementWiseSinDesc as ElementWiseSinDesc,
    ElementWiseSinhDesc as ElementWiseSinhDesc,
    ElementWiseSqrtDesc as ElementWiseSqrtDesc,
    ElementWiseTanDesc as ElementWiseTanDesc,
    ElementWiseTanhDesc as ElementWiseTanhDesc,
    ValueScale2DDesc as ValueScale2DDesc,
)
from dmljax.ops.gathering import (
    GatherDesc as GatherDesc,
    GatherElementsDesc as GatherElementsDesc,
    GatherNd1Desc as GatherNd1Desc,
    GatherNdDesc as GatherNdDesc,
    ReverseSubsequencesDesc as ReverseSubsequencesDesc,
    ScatterDesc as ScatterDesc,
    ScatterNdDesc as ScatterNdDesc,
)
from dmljax.ops.generation import (
    DiagonalMatrix1Desc as DiagonalMatrix1Desc,
    DiagonalMatrixDesc as DiagonalMatrixDesc,
    FillValueConstantDesc as FillValueConstantDesc,
    FillValueSequenceDesc as FillValueSequenceDesc,
    RandomGeneratorDesc as RandomGeneratorDesc,
)
from dmljax.ops.indexing import NonzeroCoordinatesDesc as NonzeroCoordinatesDesc, OneHotDesc as OneHotDesc
from dmljax.ops.logic import (
    ElementWiseIfDesc as ElementWiseIfDesc,
    ElementWiseIsInfinityDesc as ElementWiseIsInfinityDesc,
    ElementWiseIsNanDesc as ElementWiseIsNanDesc,
    ElementWiseLogicalAndDesc as ElementWiseLogicalAndDesc,
    ElementWiseLogicalEqualsDesc as ElementWiseLogicalEqualsDesc,
    ElementWiseLogicalGreaterThanDesc as ElementWiseLogicalGreaterThanDesc,
    ElementWiseLogicalGreaterThanOrEqualDesc as ElementWiseLogicalGreaterThanOrEqualDesc,
    ElementWiseLogicalLessThanDesc as ElementWiseLogicalLessThanDesc,
    ElementWiseLogicalLessThanOrEqualDesc as ElementWiseLogicalLessThanOrEqualDesc,
    ElementWiseLogicalNotDesc as ElementWiseLogicalNotDesc,
    ElementWiseLogicalOrDesc as ElementWiseLogicalOrDesc,
    ElementWiseLogicalXorDesc as ElementWiseLogicalXorDesc,
)
from dmljax.ops.movement import (
    DepthToSpace1Desc as DepthToSpace1Desc,
    DepthToSpaceDesc as DepthToSpaceDesc,
    JoinDesc as JoinDesc,
    Slice1Desc as Slice1Desc,
    SliceDesc as SliceDesc,
    SliceGradDesc as SliceGradDesc,
    SpaceToDepth1Desc as SpaceToDepth1Desc,
    SpaceToDepthDesc as SpaceToDepthDesc,
    SplitDesc as SplitDesc,
    TileDesc as TileDesc,
)
from dmljax.ops.normalization import (
    BatchNormalizationDesc as BatchNormalizationDesc,
    BatchNormalizationGradDesc as BatchNormalizationGradDesc,
    BatchNormalizationTrainingDesc as BatchNormalizationTrainingDesc,
    BatchNormalizationTrainingGradDesc as BatchNormalizationTrainingGradDesc,
    LocalResponseNormalizationDesc as LocalResponseNormalizationDesc,
    LocalResponseNormalizationGradDesc as LocalResponseNormalizationGradDesc,
    LpNormalizationDesc as LpNormalizationDesc,
    MeanVarianceNormalization1Desc as MeanVarianceNormalization1Desc,
    MeanVarianceNormalization2Desc as MeanVarianceNormalization2Desc,
    MeanVarianceNormalizationDesc as MeanVarianceNormalizationDesc,
)
from dmljax.ops.padding import (
    FoldDesc as FoldDesc,
    Padding1Desc as Padding1Desc,
    PaddingDesc as PaddingDesc,
    UnfoldDesc as UnfoldDesc,
)
from dmljax.ops.pooling import (
    AveragePooling1Desc as AveragePooling1Desc,
    AveragePoolingDesc as AveragePoolingDesc,
    AveragePoolingGradDesc as AveragePoolingGradDesc,
    LpPooling1Desc as LpPooling1Desc,
    LpPoolingDesc as LpPoolingDesc,
    MaxPooling1Desc as MaxPooling1Desc,
    MaxPooling2Desc as MaxPooling2Desc,
    MaxPoolingDesc as MaxPoolingDesc,
    MaxPoolingGradDesc as MaxPoolingGradDesc,
    MaxUnpoolingDesc as MaxUnpoolingDesc,
    QuantizedLinearAveragePoolingDesc as QuantizedLinearAveragePoolingDesc,
)
from dmljax.ops.products import (
    GemmDesc as GemmDesc,
    MatrixMultiplyIntegerDesc as MatrixMultiplyIntegerDesc,
    MatrixMultiplyIntegerToFloatDesc as MatrixMultiplyIntegerToFloatDesc,
    QuantizedLinearMatrixMultiplyDesc as QuantizedLinearMatrixMultiplyDesc,
)
from dmljax.ops.quantization import (
    DequantizeDesc as DequantizeDesc,
    DynamicQuantizeLinearDesc as DynamicQuantizeLinearDesc,
    ElementWiseDequantizeLinearDesc as ElementWiseDequantizeLinearDesc,
    ElementWiseQuantizeLinearDesc as ElementWiseQuantizeLinearDesc,
    ElementWiseQuantizedLinearAddDesc as ElementWiseQuantizedLinearAddDesc,
    QuantizeDesc as QuantizeDesc,
)
from dmljax.ops.recurrence import GruDesc as GruDesc, LstmDesc as LstmDesc, RnnDesc as RnnDesc
from dmljax.ops.reduction import ArgmaxDesc as ArgmaxDesc, ArgminDesc as ArgminDesc, ReduceDesc as ReduceDesc
from dmljax.ops.regions import (
    RoiAlign1Desc as RoiAlign1Desc,
    RoiAlignDesc as RoiAlignDesc,
    RoiAlignGradDesc as RoiAlignGradDesc,
    RoiPoolingDesc as RoiPoolingDesc,
)
from dmljax.ops.resampling import (
    Resample1Desc as Resample1Desc,
    Resample2Desc as Resample2Desc,
    Resample3Desc as Resample3Desc,
    ResampleDesc as ResampleDesc,
    ResampleGrad1Desc as ResampleGrad1Desc,
    ResampleGradDesc as ResampleGradDesc,
    Upsample2DDesc as Upsample2DDesc,
)
from dmljax.ops.scans import (
    CumulativeProductDesc as CumulativeProductDesc,
    CumulativeSummationDesc as CumulativeSummationDesc,
)
from dmljax.ops.selection import TopK1Desc as TopK1Desc, TopKDesc as TopKDesc
from dmljax.ops.softmax import (
    ActivationHardmax1Desc as ActivationHardmax1Desc,
    ActivationHardmaxDesc as ActivationHardmaxDesc,
    ActivationLogSoftmax1Desc as ActivationLogSoftmax1Desc,
    ActivationLogSoftmaxDesc as ActivationLogSoftmaxDesc,
    ActivationSoftmax1Desc as ActivationSoftmax1Desc,
    ActivationSoftmaxDesc as ActivationSoftmaxDesc,
)
from dmljax.ops.training import AdamOptimizerDesc as AdamOptimizerDesc

for _public in list(globals().values()):
    if getattr(_public, "__module__", "").startswith("dmljax."):
        _public.__module__ = "dmljax.directml"  # where users find it, whatever file it is in
