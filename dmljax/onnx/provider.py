"""What ONNX Runtime's DirectML provider makes of ONNX's operators, and which nodes it leaves to the CPU.

Facts of its table of kernels. dmljax computes what ONNX's pages say where the two part.
"""

from collections.abc import Callable, Iterator, Mapping

from dmljax.onnx.file import MAIN, Graph, Node
from dmljax.onnx.refusals import LAYOUTS, MACHINE_LEARNING, TRAINING

# The DirectML operators of each operator of ONNX that the provider has; () where it only moves bytes, or has a shader.
TABLE = """
Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Sign Sin Sinh Sqrt Tan Round = ELEMENT_WISE_*
Add = ELEMENT_WISE_ADD
Affine = ELEMENT_WISE_IDENTITY
And Or Xor Not = ELEMENT_WISE_LOGICAL_*
ArgMax ArgMin = *
AveragePool = AVERAGE_POOLING1
BatchNormalization = BATCH_NORMALIZATION
BitShift = ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT
BitwiseAnd = ELEMENT_WISE_BIT_AND
BitwiseNot = ELEMENT_WISE_BIT_NOT
BitwiseOr = ELEMENT_WISE_BIT_OR
BitwiseXor = ELEMENT_WISE_BIT_XOR
Cast CastLike = CAST
Celu Elu Relu Shrink Sigmoid Softplus Softsign Tanh = ACTIVATION_*
Clip = ELEMENT_WISE_CLIP1
Col2Im = FOLD
Concat ConcatFromSequence = JOIN
ConstantOfShape = FILL_VALUE_CONSTANT
Conv ConvTranspose = CONVOLUTION
ConvInteger = CONVOLUTION_INTEGER
Crop = SLICE
CumSum = CUMULATIVE_SUMMATION
DepthToSpace = DEPTH_TO_SPACE1
DequantizeLinear = DEQUANTIZE
DFT STFT GridSample Shape Size =
Div = ELEMENT_WISE_DIVIDE
Dropout = ACTIVATION_IDENTITY
DynamicQuantizeLinear = DYNAMIC_QUANTIZE_LINEAR
Einsum = GEMM
Equal = ELEMENT_WISE_LOGICAL_EQUALS
Expand Flatten Identity Reshape Squeeze Transpose Unsqueeze = ELEMENT_WISE_IDENTITY
EyeLike = DIAGONAL_MATRIX
Gather = GATHER
GatherElements = GATHER_ELEMENTS
GatherND = GATHER_ND1
Gemm GRU LSTM RNN Split Tile = *
GlobalAveragePool = AVERAGE_POOLING
GlobalLpPool = LP_POOLING
GlobalMaxPool = MAX_POOLING
Greater = ELEMENT_WISE_LOGICAL_GREATER_THAN
GreaterOrEqual = ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL
Hardmax = ACTIVATION_HARDMAX1
HardSigmoid = ACTIVATION_HARD_SIGMOID
ImageScaler = VALUE_SCALE_2D
InstanceNormalization MeanVarianceNormalization = MEAN_VARIANCE_NORMALIZATION1
IsInf = ELEMENT_WISE_IS_INFINITY
IsNaN = ELEMENT_WISE_IS_NAN
LayerNormalization = MEAN_VARIANCE_NORMALIZATION2
LeakyRelu = ACTIVATION_LEAKY_RELU
Less = ELEMENT_WISE_LOGICAL_LESS_THAN
LessOrEqual = ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL
LogSoftmax = ACTIVATION_LOG_SOFTMAX1
LpNormalization = LP_NORMALIZATION
LpPool = LP_POOLING1
LRN = LOCAL_RESPONSE_NORMALIZATION
MatMul = GEMM
MatMulInteger = MATRIX_MULTIPLY_INTEGER
Max = ELEMENT_WISE_MAX
MaxPool = MAX_POOLING2
MaxRoiPool = ROI_POOLING
MaxUnpool = MAX_UNPOOLING
Mean = ELEMENT_WISE_MEAN
Min = ELEMENT_WISE_MIN
Mod = ELEMENT_WISE_MODULUS_FLOOR ELEMENT_WISE_MODULUS_TRUNCATE
Mul = ELEMENT_WISE_MULTIPLY
Neg = ELEMENT_WISE_NEGATE
NonZero = NONZERO_COORDINATES
OneHot = ONE_HOT
Pad = PADDING1
ParametricSoftplus = ACTIVATION_PARAMETRIC_SOFTPLUS
Pow = ELEMENT_WISE_POW
PRelu = ACTIVATION_PARAMETERIZED_RELU
QLinearConv = QUANTIZED_LINEAR_CONVOLUTION
QLinearMatMul = QUANTIZED_LINEAR_MATRIX_MULTIPLY
QuantizeLinear = QUANTIZE
Range = FILL_VALUE_SEQUENCE
Reciprocal = ELEMENT_WISE_RECIP
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum = REDUCE
ReduceSumSquare = REDUCE
Resize Upsample = RESAMPLE3
ReverseSequence = REVERSE_SUBSEQUENCES
RoiAlign = ROI_ALIGN1
ScaledTanh = ACTIVATION_SCALED_TANH
Scatter ScatterElements = SCATTER
ScatterND = SCATTER_ND
Selu = ACTIVATION_SCALED_ELU
SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength =
If OptionalGetElement OptionalHasElement =
Slice = SLICE1
Softmax = ACTIVATION_SOFTMAX1
SpaceToDepth = SPACE_TO_DEPTH
Sub = ELEMENT_WISE_SUBTRACT
Sum = ELEMENT_WISE_ADD
ThresholdedRelu = ACTIVATION_THRESHOLDED_RELU
TopK = TOP_K1
Trilu = DIAGONAL_MATRIX1
Where = ELEMENT_WISE_IF
"""


def _read(table: str) -> dict[str, tuple[str, ...]]:
    found = {}
    for line in table.strip().splitlines():
        operators, _, names = line.partition("=")
        for operator in operators.split():
            found[operator] = tuple(name.replace("*", operator.upper()) for name in names.split())
    return found


DIRECTML: Mapping[str, tuple[str, ...]] = _read(TABLE)


def _is_set(name: str, *usual: object) -> Callable[[Node], bool]:
    return lambda node: node.attributes.get(name, usual[0]) not in usual


def _has_output(index: int) -> Callable[[Node], bool]:
    return lambda node: any(node.outputs[index:])


# What decides that the provider leaves a node of an operator that it has to the CPU
_LEFT: Mapping[str, tuple[tuple[str, Callable[[Node], bool]], ...]] = {
    "BatchNormalization": (("training_mode", _is_set("training_mode", 0)),),
    "LayerNormalization": (("number of outputs", _has_output(1)),),
    "MaxPool": (("storage_order", _is_set("storage_order", 0)),),
    "Resize": (
        ("mode", _is_set("mode", "nearest", "linear")),
        ("exclude_outside", _is_set("exclude_outside", 0)),
        ("extrapolation_value", _is_set("extrapolation_value", 0.0)),
    ),
    "ScatterElements": (("reduction", _is_set("reduction", "none")),),
    "ScatterND": (("reduction", _is_set("reduction", "none")),),
    **{name: (("layout", _is_set("layout", 0)),) for name in ("GRU", "LSTM", "RNN")},
}


_ABSENT = frozenset({LAYOUTS, MACHINE_LEARNING, TRAINING})  # the domains for which the provider has no kernels


def left_to_cpu(graph: Graph) -> Iterator[tuple[Node, str]]:
    """The nodes that the provider leaves to the CPU, each with its reasons.

    Its kernels for the domain com.microsoft are not known here: none of its nodes is among them.
    """
    for node in graph.nodes:
        has_kernel = node.operator in DIRECTML or node.operator == "Constant"
        if node.domain in _ABSENT or (node.domain == MAIN and not has_kernel):
            yield node, "it has no kernel for the operator"
        if node.domain == MAIN:
            for name, decides in _LEFT.get(node.operator, ()):
                if decides(node):
                    yield node, f"its kernel is not for this {name}"
        for inner in node.subgraphs:
            yield from left_to_cpu(inner)
