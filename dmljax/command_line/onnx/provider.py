"""Finds the nodes that ONNX Runtime's DirectML provider leaves to the CPU, from its table of kernels."""

from collections.abc import Callable, Iterator, Mapping

from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph
from dmljax.onnx.handlers.refusals import LAYOUTS, MACHINE_LEARNING, TRAINING

# The ONNX operators for which the provider has a kernel
KERNELS = frozenset(
    """
Abs Acos Acosh Add Affine And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift BitwiseAnd
BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Col2Im Concat ConcatFromSequence ConstantOfShape Conv
ConvInteger ConvTranspose Cos Cosh Crop CumSum DFT DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear
Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements GatherND Gemm GlobalAveragePool
GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid Hardmax Identity If ImageScaler
InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
LpNormalization LpPool MatMul MatMulInteger Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization Min Mod
Mul Neg NonZero Not OneHot OptionalGetElement OptionalHasElement Or PRelu Pad ParametricSoftplus Pow QLinearConv
QLinearMatMul QuantizeLinear RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RoiAlign Round STFT ScaledTanh
Scatter ScatterElements ScatterND Selu SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
SequenceLength Shape Shrink Sigmoid Sign SimplifiedLayerNormalization Sin Sinh Size Slice Softmax Softplus Softsign
SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor
""".split()  # noqa: SIM905  # a list takes a line for each
)


def _is_set(name: str, *usual: object) -> Callable[[Node], bool]:
    return lambda node: node.attributes.get(name, usual[0]) not in usual


_SKIPPED = (("number of outputs", lambda node: any(node.outputs[1:3])),)  # the sum, after them, is supported

# Conditions under which the provider leaves a node to the CPU despite having a kernel
_LEFT: Mapping[str, tuple[tuple[str, Callable[[Node], bool]], ...]] = {
    "BatchNormalization": (("training_mode", _is_set("training_mode", 0)),),
    "LayerNormalization": (("number of outputs", lambda node: any(node.outputs[1:])),),
    "MaxPool": (("storage_order", _is_set("storage_order", 0)),),
    "Resize": (
        ("mode", _is_set("mode", "nearest", "linear")),
        ("exclude_outside", _is_set("exclude_outside", 0)),
        ("extrapolation_value", _is_set("extrapolation_value", 0.0)),
    ),
    "ScatterElements": (("reduction", _is_set("reduction", "none")),),
    "ScatterND": (("reduction", _is_set("reduction", "none")),),
    "SkipLayerNormalization": _SKIPPED,
    "SkipSimplifiedLayerNormalization": _SKIPPED,
    **{name: (("layout", _is_set("layout", 0)),) for name in ("GRU", "LSTM", "RNN")},
}


_ABSENT = frozenset({LAYOUTS, MACHINE_LEARNING, TRAINING})  # the domains for which the provider has no kernels


def left_to_cpu(graph: OnnxGraph) -> Iterator[tuple[Node, str]]:
    """Yields the nodes that the provider leaves to the CPU, with the reasons.

    Assumes that the provider has kernels for the whole domain com.microsoft, because we do not have that table.
    """
    for node in graph.nodes:
        has_kernel = node.operator in KERNELS or node.operator == "Constant"
        if node.domain in _ABSENT or (node.domain == MAIN and not has_kernel):
            yield node, "it has no kernel for the operator"
        if node.domain in (MAIN, "com.microsoft"):
            for name, decides in _LEFT.get(node.operator, ()):
                if decides(node):
                    yield node, f"its kernel is not for this {name}"
        for inner in node.subgraphs:
            yield from left_to_cpu(inner)
