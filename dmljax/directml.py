"""DirectML's descriptors, which mirror directml.h: validated, lowered to functions of arrays, read and written as JSON.

`python tests/tools/generated.py` writes this file.
"""

# fmt: off
import typing as _typing

from dmljax.descriptors import (
    OPERATORS, Operator, find_broken_rules, lower, find_minimum_feature_level, to_json, validate
)
from dmljax.graphs.graph import Graph, from_json
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.foundation.scalars import Scalar, ScaleBias, Size2D
from dmljax.descriptors.tensor import TensorDesc
from dmljax.types import (
    AxisDirection, ConvolutionDirection, ConvolutionMode, DataType, DepthSpaceOrder, FeatureLevel, InterpolationMode,
    IsInfinityMode, MatrixTransform, MultiheadAttentionMaskType, PaddingMode, QuantizationType, RandomGeneratorType,
    RecurrentNetworkDirection, ReduceFunction, RoundingMode, TensorFlags
)
from dmljax.ops.data.gathering import (
    GatherDesc, GatherElementsDesc, GatherNd1Desc, GatherNdDesc, ReverseSubsequencesDesc, ScatterDesc,
    ScatterElementsDesc, ScatterNdDesc
)
from dmljax.ops.data.generation import (
    DiagonalMatrix1Desc, DiagonalMatrixDesc, FillValueConstantDesc, FillValueSequenceDesc, RandomGeneratorDesc
)
from dmljax.ops.data.indexing import NonzeroCoordinatesDesc, OneHotDesc
from dmljax.ops.data.movement import (
    DepthToSpace1Desc, DepthToSpaceDesc, JoinDesc, Slice1Desc, SliceDesc, SliceGradDesc, SpaceToDepth1Desc,
    SpaceToDepthDesc, SplitDesc, TileDesc
)
from dmljax.ops.elementwise.activation import (
    ActivationCeluDesc, ActivationEluDesc, ActivationGeluDesc, ActivationHardSigmoidDesc, ActivationHardSwishDesc,
    ActivationIdentityDesc, ActivationLeakyReluDesc, ActivationLinearDesc, ActivationParameterizedReluDesc,
    ActivationParametricSoftplusDesc, ActivationReluDesc, ActivationReluGradDesc, ActivationScaledEluDesc,
    ActivationScaledTanhDesc, ActivationShrinkDesc, ActivationSigmoidDesc, ActivationSoftplusDesc,
    ActivationSoftsignDesc, ActivationSwishDesc, ActivationTanhDesc, ActivationThresholdedReluDesc
)
from dmljax.ops.elementwise.arithmetic import (
    ElementWiseAdd1Desc, ElementWiseAddDesc, ElementWiseAtanYxDesc, ElementWiseConstantPowDesc,
    ElementWiseDifferenceSquareDesc, ElementWiseDivideDesc, ElementWiseMaxDesc, ElementWiseMeanDesc,
    ElementWiseMinDesc, ElementWiseModulusFloorDesc, ElementWiseModulusTruncateDesc, ElementWiseMultiplyDesc,
    ElementWisePowDesc, ElementWiseSubtractDesc
)
from dmljax.ops.elementwise.bitwise import (
    ElementWiseBitAndDesc, ElementWiseBitCountDesc, ElementWiseBitNotDesc, ElementWiseBitOrDesc,
    ElementWiseBitShiftLeftDesc, ElementWiseBitShiftRightDesc, ElementWiseBitXorDesc
)
from dmljax.ops.elementwise.clipping import (
    ElementWiseClip1Desc, ElementWiseClipDesc, ElementWiseClipGrad1Desc, ElementWiseClipGradDesc,
    ElementWiseThresholdDesc
)
from dmljax.ops.elementwise.elementary import (
    CastDesc, ElementWiseAbsDesc, ElementWiseAcosDesc, ElementWiseAcoshDesc, ElementWiseAsinDesc, ElementWiseAsinhDesc,
    ElementWiseAtanDesc, ElementWiseAtanhDesc, ElementWiseCeilDesc, ElementWiseCosDesc, ElementWiseCoshDesc,
    ElementWiseErfDesc, ElementWiseExpDesc, ElementWiseFloorDesc, ElementWiseIdentityDesc, ElementWiseLogDesc,
    ElementWiseNegateDesc, ElementWiseRecipDesc, ElementWiseRoundDesc, ElementWiseSignDesc, ElementWiseSinDesc,
    ElementWiseSinhDesc, ElementWiseSqrtDesc, ElementWiseTanDesc, ElementWiseTanhDesc, ValueScale2DDesc
)
from dmljax.ops.elementwise.logic import (
    ElementWiseIfDesc, ElementWiseIsInfinityDesc, ElementWiseIsNanDesc, ElementWiseLogicalAndDesc,
    ElementWiseLogicalEqualsDesc, ElementWiseLogicalGreaterThanDesc, ElementWiseLogicalGreaterThanOrEqualDesc,
    ElementWiseLogicalLessThanDesc, ElementWiseLogicalLessThanOrEqualDesc, ElementWiseLogicalNotDesc,
    ElementWiseLogicalOrDesc, ElementWiseLogicalXorDesc
)
from dmljax.ops.elementwise.quantization import (
    DequantizeDesc, DynamicQuantizeLinearDesc, ElementWiseDequantizeLinearDesc, ElementWiseQuantizeLinearDesc,
    ElementWiseQuantizedLinearAddDesc, QuantizeDesc
)
from dmljax.ops.images.convolution import ConvolutionDesc, ConvolutionIntegerDesc, QuantizedLinearConvolutionDesc
from dmljax.ops.images.padding import FoldDesc, Padding1Desc, PaddingDesc, UnfoldDesc
from dmljax.ops.images.pooling import (
    AveragePooling1Desc, AveragePoolingDesc, AveragePoolingGradDesc, LpPooling1Desc, LpPoolingDesc, MaxPooling1Desc,
    MaxPooling2Desc, MaxPoolingDesc, MaxPoolingGradDesc, MaxUnpoolingDesc, QuantizedLinearAveragePoolingDesc
)
from dmljax.ops.images.regions import RoiAlign1Desc, RoiAlignDesc, RoiAlignGradDesc, RoiPoolingDesc
from dmljax.ops.images.resampling import (
    Resample1Desc, Resample2Desc, Resample3Desc, ResampleDesc, ResampleGrad1Desc, ResampleGradDesc, Upsample2DDesc
)
from dmljax.ops.networks.attention import MultiheadAttention1Desc, MultiheadAttentionDesc
from dmljax.ops.networks.products import (
    GemmDesc, MatrixMultiplyIntegerDesc, MatrixMultiplyIntegerToFloatDesc, QuantizedLinearMatrixMultiplyDesc
)
from dmljax.ops.networks.recurrence import GruDesc, LstmDesc, RnnDesc
from dmljax.ops.networks.training import AdamOptimizerDesc
from dmljax.ops.rows.normalization import (
    BatchNormalizationDesc, BatchNormalizationGradDesc, BatchNormalizationTrainingDesc,
    BatchNormalizationTrainingGradDesc, LocalResponseNormalizationDesc, LocalResponseNormalizationGradDesc,
    LpNormalizationDesc, MeanVarianceNormalization1Desc, MeanVarianceNormalization2Desc, MeanVarianceNormalizationDesc
)
from dmljax.ops.rows.reduction import ArgmaxDesc, ArgminDesc, ReduceDesc
from dmljax.ops.rows.scans import CumulativeProductDesc, CumulativeSummationDesc
from dmljax.ops.rows.selection import TopK1Desc, TopKDesc
from dmljax.ops.rows.softmax import (
    ActivationHardmax1Desc, ActivationHardmaxDesc, ActivationLogSoftmax1Desc, ActivationLogSoftmaxDesc,
    ActivationSoftmax1Desc, ActivationSoftmaxDesc
)
__all__ = [
    "OPERATORS", "ActivationCeluDesc", "ActivationEluDesc", "ActivationGeluDesc", "ActivationHardSigmoidDesc",
    "ActivationHardSwishDesc", "ActivationHardmax1Desc", "ActivationHardmaxDesc", "ActivationIdentityDesc",
    "ActivationLeakyReluDesc", "ActivationLinearDesc", "ActivationLogSoftmax1Desc", "ActivationLogSoftmaxDesc",
    "ActivationParameterizedReluDesc", "ActivationParametricSoftplusDesc", "ActivationReluDesc",
    "ActivationReluGradDesc", "ActivationScaledEluDesc", "ActivationScaledTanhDesc", "ActivationShrinkDesc",
    "ActivationSigmoidDesc", "ActivationSoftmax1Desc", "ActivationSoftmaxDesc", "ActivationSoftplusDesc",
    "ActivationSoftsignDesc", "ActivationSwishDesc", "ActivationTanhDesc", "ActivationThresholdedReluDesc",
    "AdamOptimizerDesc", "ArgmaxDesc", "ArgminDesc", "AveragePooling1Desc", "AveragePoolingDesc",
    "AveragePoolingGradDesc", "AxisDirection", "BatchNormalizationDesc", "BatchNormalizationGradDesc",
    "BatchNormalizationTrainingDesc", "BatchNormalizationTrainingGradDesc", "CastDesc", "ConvolutionDesc",
    "ConvolutionDirection", "ConvolutionIntegerDesc", "ConvolutionMode", "CumulativeProductDesc",
    "CumulativeSummationDesc", "DataType", "DepthSpaceOrder", "DepthToSpace1Desc", "DepthToSpaceDesc",
    "DequantizeDesc", "DiagonalMatrix1Desc", "DiagonalMatrixDesc", "DynamicQuantizeLinearDesc", "ElementWiseAbsDesc",
    "ElementWiseAcosDesc", "ElementWiseAcoshDesc", "ElementWiseAdd1Desc", "ElementWiseAddDesc", "ElementWiseAsinDesc",
    "ElementWiseAsinhDesc", "ElementWiseAtanDesc", "ElementWiseAtanYxDesc", "ElementWiseAtanhDesc",
    "ElementWiseBitAndDesc", "ElementWiseBitCountDesc", "ElementWiseBitNotDesc", "ElementWiseBitOrDesc",
    "ElementWiseBitShiftLeftDesc", "ElementWiseBitShiftRightDesc", "ElementWiseBitXorDesc", "ElementWiseCeilDesc",
    "ElementWiseClip1Desc", "ElementWiseClipDesc", "ElementWiseClipGrad1Desc", "ElementWiseClipGradDesc",
    "ElementWiseConstantPowDesc", "ElementWiseCosDesc", "ElementWiseCoshDesc", "ElementWiseDequantizeLinearDesc",
    "ElementWiseDifferenceSquareDesc", "ElementWiseDivideDesc", "ElementWiseErfDesc", "ElementWiseExpDesc",
    "ElementWiseFloorDesc", "ElementWiseIdentityDesc", "ElementWiseIfDesc", "ElementWiseIsInfinityDesc",
    "ElementWiseIsNanDesc", "ElementWiseLogDesc", "ElementWiseLogicalAndDesc", "ElementWiseLogicalEqualsDesc",
    "ElementWiseLogicalGreaterThanDesc", "ElementWiseLogicalGreaterThanOrEqualDesc", "ElementWiseLogicalLessThanDesc",
    "ElementWiseLogicalLessThanOrEqualDesc", "ElementWiseLogicalNotDesc", "ElementWiseLogicalOrDesc",
    "ElementWiseLogicalXorDesc", "ElementWiseMaxDesc", "ElementWiseMeanDesc", "ElementWiseMinDesc",
    "ElementWiseModulusFloorDesc", "ElementWiseModulusTruncateDesc", "ElementWiseMultiplyDesc",
    "ElementWiseNegateDesc", "ElementWisePowDesc", "ElementWiseQuantizeLinearDesc",
    "ElementWiseQuantizedLinearAddDesc", "ElementWiseRecipDesc", "ElementWiseRoundDesc", "ElementWiseSignDesc",
    "ElementWiseSinDesc", "ElementWiseSinhDesc", "ElementWiseSqrtDesc", "ElementWiseSubtractDesc",
    "ElementWiseTanDesc", "ElementWiseTanhDesc", "ElementWiseThresholdDesc", "FeatureLevel", "FillValueConstantDesc",
    "FillValueSequenceDesc", "FoldDesc", "GatherDesc", "GatherElementsDesc", "GatherNd1Desc", "GatherNdDesc",
    "GemmDesc", "Graph", "GruDesc", "InterpolationMode", "InvalidDesc", "InvalidType", "IsInfinityMode", "JoinDesc",
    "LocalResponseNormalizationDesc", "LocalResponseNormalizationGradDesc", "LpNormalizationDesc", "LpPooling1Desc",
    "LpPoolingDesc", "LstmDesc", "MatrixMultiplyIntegerDesc", "MatrixMultiplyIntegerToFloatDesc", "MatrixTransform",
    "MaxPooling1Desc", "MaxPooling2Desc", "MaxPoolingDesc", "MaxPoolingGradDesc", "MaxUnpoolingDesc",
    "MeanVarianceNormalization1Desc", "MeanVarianceNormalization2Desc", "MeanVarianceNormalizationDesc",
    "MultiheadAttention1Desc", "MultiheadAttentionDesc", "MultiheadAttentionMaskType", "NonzeroCoordinatesDesc",
    "OneHotDesc", "Operator", "Padding1Desc", "PaddingDesc", "PaddingMode", "Problem", "QuantizationType",
    "QuantizeDesc", "QuantizedLinearAveragePoolingDesc", "QuantizedLinearConvolutionDesc",
    "QuantizedLinearMatrixMultiplyDesc", "RandomGeneratorDesc", "RandomGeneratorType", "RecurrentNetworkDirection",
    "ReduceDesc", "ReduceFunction", "Resample1Desc", "Resample2Desc", "Resample3Desc", "ResampleDesc",
    "ResampleGrad1Desc", "ResampleGradDesc", "ReverseSubsequencesDesc", "RnnDesc", "RoiAlign1Desc", "RoiAlignDesc",
    "RoiAlignGradDesc", "RoiPoolingDesc", "RoundingMode", "Scalar", "ScaleBias", "ScatterDesc", "ScatterElementsDesc",
    "ScatterNdDesc", "Size2D", "Slice1Desc", "SliceDesc", "SliceGradDesc", "SpaceToDepth1Desc", "SpaceToDepthDesc",
    "SplitDesc", "TensorDesc", "TensorFlags", "TileDesc", "TopK1Desc", "TopKDesc", "UnfoldDesc", "Unsupported",
    "Upsample2DDesc", "ValueScale2DDesc", "find_broken_rules", "find_minimum_feature_level", "from_json", "lower",
    "to_json", "validate"
]
# fmt: on

for _name in __all__:
    if _name != "OPERATORS":
        globals()[_name].__module__ = "dmljax.directml"  # the module that users import it from

if not _typing.TYPE_CHECKING:  # a type checker refuses unknown names by itself

    def __getattr__(name):
        from dmljax.descriptors.spellings import hint
        from dmljax.text import no_attribute

        raise no_attribute("dmljax.directml", name, hint(name, __all__))


def __dir__() -> list[str]:
    return __all__
