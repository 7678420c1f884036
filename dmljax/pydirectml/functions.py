"""The functions of PyDirectML: each adds one operator to the builder of its expressions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmljax import directml
from dmljax.descriptors import Operator
from dmljax.errors import InvalidDesc, InvalidType, Problem, within
from dmljax.pydirectml.builder import (
    Expression,
    GraphBuilder,
    binary,
    operator,
    require_builder,
    result,
    unary,
)
from dmljax.pydirectml.enumerations import (
    ConvolutionDirection,
    ConvolutionMode,
    InterpolationMode,
    MatrixTransform,
    OperatorType,
    OutputOptions,
    PaddingMode,
    RecurrentNetworkDirection,
    TensorDataType,
)
from dmljax.pydirectml.tensors import TensorDesc
from dmljax.text import show
from dmljax.types import DataType

Numbers = Sequence[int]


class Size2D:
    """A width and a height, in this order."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height


class FusedActivation:
    """An activation that is applied to the result of an operator, with up to two numbers; INVALID is none."""

    def __init__(self, activation: Any = OperatorType.INVALID, param_1: float = 0, param_2: float = 0) -> None:
        with within("FusedActivation"):
            self.activation = OperatorType.check("activation", activation)
        self.param_1, self.param_2 = param_1, param_2

    def desc(self) -> Operator | None:
        """The descriptor of the activation."""
        if self.activation == OperatorType.INVALID:
            return None
        name = self.activation.name.removeprefix("ACTIVATION_")
        if name not in _NUMBERS:
            raise InvalidDesc(
                Problem("fused_activation", f"must be one of {', '.join(_NUMBERS)}", self.activation.name)
            )
        activation = directml.OPERATORS[f"DML_OPERATOR_{self.activation.name}"]
        return activation(**dict(zip(_NUMBERS[name], (self.param_1, self.param_2), strict=False)))


# What the two numbers of each activation are.
_NUMBERS: dict[str, tuple[str, ...]] = {
    "ELU": ("alpha",),
    "HARD_SIGMOID": ("alpha", "beta"),
    "IDENTITY": (),
    "LEAKY_RELU": ("alpha",),
    "LINEAR": ("alpha", "beta"),
    "PARAMETRIC_SOFTPLUS": ("alpha", "beta"),
    "RELU": (),
    "SCALED_ELU": ("alpha", "gamma"),
    "SCALED_TANH": ("alpha", "beta"),
    "SHRINK": ("bias", "threshold"),
    "SIGMOID": (),
    "SOFTPLUS": ("steepness",),
    "SOFTSIGN": (),
    "TANH": (),
    "THRESHOLDED_RELU": ("alpha",),
}
NO_ACTIVATION = FusedActivation()


class MaxPoolingOutputs:
    """The largest elements, and their indices where they are asked for."""

    def __init__(self, values: Expression | None = None, indices: Expression | None = None) -> None:
        self.values = Expression() if values is None else values
        self.indices = Expression() if indices is None else indices


class GRUOutputs:
    """The states of all steps, and the last ones; what is not asked for is an empty expression."""

    def __init__(self, sequence: Expression | None = None, single: Expression | None = None) -> None:
        self.sequence = Expression() if sequence is None else sequence
        self.single = Expression() if single is None else single


def _fused(activation: Any) -> Operator | None:
    """The descriptor of a fused activation."""
    if not isinstance(activation, FusedActivation):
        raise InvalidType(Problem("fused_activation", "must be a FusedActivation", show(activation)))
    return activation.desc()


def _list(name: str, values: Any) -> list[Any]:
    """Numbers that are given as a list, a tuple or an array."""
    if not isinstance(values, Sequence | np.ndarray):
        raise InvalidType(Problem(name, "must be a list of numbers", show(values)))
    return list(values)


# Inputs, and other views of bytes


def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    """An input of the graph: data is bound to it in the order of the indices.

    Further tensors of an index bind new data to a model; the operators of one model read only one of them.
    """
    with within("input_tensor"):
        if not isinstance(scope, GraphBuilder):
            raise InvalidType(Problem("scope", "must be a GraphBuilder", show(scope)))
        if not isinstance(tensor_desc, TensorDesc):
            raise InvalidType(Problem("tensor_desc", "must be a TensorDesc", show(tensor_desc)))
        if not isinstance(input_index, int) or input_index < 0:
            raise InvalidType(Problem("input_index", "must be an integer of at least 0", show(input_index)))
        return scope._input(input_index, tensor_desc)


def reinterpret(input: Expression, new_type: Any, new_size: Numbers, new_strides: Numbers | None) -> Expression:
    """The bytes of an expression with another type, other sizes and strides; nothing is computed."""
    with within("reinterpret"):
        builder = require_builder("input", input)
        TensorDataType.check("new_type", new_type)
        own = input._view
        sizes = tuple(_list("new_size", new_size))
        strides = None if new_strides is None else tuple(_list("new_strides", new_strides))
        total = own.total_tensor_size_in_bytes or own.minimum_size_in_bytes
        alignment = own.guaranteed_base_offset_alignment
        view = directml.TensorDesc(DataType(int(new_type)), sizes, strides, own.flags, total, alignment)
    return builder._expression(input._source, view)


# Activations


def activation_identity(input: Expression) -> Expression:
    """A copy."""
    return unary(directml.ActivationIdentityDesc, input)


def activation_linear(input: Expression, alpha: float, beta: float) -> Expression:
    """`alpha * input + beta`."""
    return unary(directml.ActivationLinearDesc, input, alpha=alpha, beta=beta)


def activation_relu(input: Expression) -> Expression:
    """`max(input, 0)`."""
    return unary(directml.ActivationReluDesc, input)


def activation_sigmoid(input: Expression) -> Expression:
    """`1 / (1 + exp(-input))`."""
    return unary(directml.ActivationSigmoidDesc, input)


def activation_soft_max(input: Expression) -> Expression:
    """The softmax along the last dimension."""
    return unary(directml.ActivationSoftmaxDesc, input)


def activation_tanh(input: Expression) -> Expression:
    """The hyperbolic tangent."""
    return unary(directml.ActivationTanhDesc, input)


# Arithmetic


def add(a: Expression, b: Expression, fused_activation: FusedActivation = NO_ACTIVATION) -> Expression:
    """`a + b`; nothing broadcasts but by strides of 0."""
    return binary(directml.ElementWiseAdd1Desc, a, b, fused_activation=_fused(fused_activation))


def subtract(a: Expression, b: Expression) -> Expression:
    """`a - b`."""
    return binary(directml.ElementWiseSubtractDesc, a, b)


def multiply(a: Expression, b: Expression) -> Expression:
    """`a * b`."""
    return binary(directml.ElementWiseMultiplyDesc, a, b)


def divide(a: Expression, b: Expression) -> Expression:
    """`a / b`."""
    return binary(directml.ElementWiseDivideDesc, a, b)


def gemm(
    a: Expression,
    b: Expression,
    c: Expression | None = None,
    trans_a: Any = MatrixTransform.NONE,
    trans_b: Any = MatrixTransform.NONE,
    alpha: float = 1,
    beta: float = 1,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    """`alpha * a @ b + beta * c`, of matrices that may be transposed first."""
    with within("gemm"):
        MatrixTransform.check("trans_a", trans_a)
        MatrixTransform.check("trans_b", trans_b)
    return result(
        directml.GemmDesc,
        {"a": a, "b": b, "c": c},
        trans_a=int(trans_a),
        trans_b=int(trans_b),
        alpha=alpha,
        beta=beta,
        fused_activation=_fused(fused_activation),
    )


# Windows


def _each(name: str, values: Numbers, default: int, count: int) -> list[int]:
    """One number for each dimension of space; an empty list stands for the default."""
    given = _list(name, values) or [default] * count
    if len(given) != count:
        raise InvalidDesc(Problem(name, f"must have {count} numbers, one for each dimension of space, or none", given))
    return given


def _sliding(
    count: int, strides: Numbers, dilations: Numbers, start_padding: Numbers, end_padding: Numbers
) -> dict[str, list[int]]:
    """The members that say how windows slide."""
    return {
        "strides": _each("strides", strides, 1, count),
        "dilations": _each("dilations", dilations, 1, count),
        "start_padding": _each("start_padding", start_padding, 0, count),
        "end_padding": _each("end_padding", end_padding, 0, count),
    }


def convolution(
    input: Expression,
    filter: Expression,
    bias: Expression | None = None,
    mode: Any = ConvolutionMode.CROSS_CORRELATION,
    direction: Any = ConvolutionDirection.FORWARD,
    strides: Numbers = (),
    dilations: Numbers = (),
    start_padding: Numbers = (),
    end_padding: Numbers = (),
    output_padding: Numbers = (),
    group_count: int = 1,
    fused_activation: FusedActivation = NO_ACTIVATION,
    output_sizes: Numbers = (),
) -> Expression:
    """A convolution of images with filters, or BACKWARD its transpose, which needs `output_sizes`."""
    with within("convolution"):
        ConvolutionMode.check("mode", mode)
        ConvolutionDirection.check("direction", direction)
        require_builder("input", input)
        count = len(input._view.sizes) - 2
        slide = _sliding(count, strides, dilations, start_padding, end_padding)
        if direction == ConvolutionDirection.BACKWARD and not output_sizes:
            raise InvalidDesc(Problem("output_sizes", "must be given in the direction BACKWARD", "none"))
    return result(
        directml.ConvolutionDesc,
        {"input": input, "filter": filter, "bias": bias},
        mode=int(mode),
        direction=int(direction),
        **slide,
        output_padding=_each("output_padding", output_padding, 0, count),
        group_count=group_count,
        fused_activation=_fused(fused_activation),
        output_sizes=output_sizes,
    )


def average_pooling(
    input: Expression,
    strides: Numbers,
    window_sizes: Numbers,
    start_padding: Numbers,
    end_padding: Numbers,
    include_padding: bool,
) -> Expression:
    """The mean of each window, whose strides come before its sizes."""
    with within("average_pooling"):
        members = {
            "strides": _list("strides", strides),
            "window_size": _list("window_sizes", window_sizes),
            "start_padding": _list("start_padding", start_padding),
            "end_padding": _list("end_padding", end_padding),
        }
    return unary(directml.AveragePoolingDesc, input, **members, include_padding=bool(include_padding))


def max_pooling(
    input: Expression,
    window_sizes: Numbers,
    strides: Numbers = (),
    start_padding: Numbers = (),
    end_padding: Numbers = (),
    dilations: Numbers = (),
    output_indices: bool = False,
) -> MaxPoolingOutputs:
    """The largest element of each window, and if asked for, where in the input it is: the first of equal ones."""
    with within("max_pooling"):
        require_builder("input", input)
        count = len(_list("window_sizes", window_sizes))
        slide = _sliding(count, strides, dilations, start_padding, end_padding)
    types = {"output": input._view.data_type} | ({"output_indices": DataType.UINT32} if output_indices else {})
    found = operator(directml.MaxPooling2Desc, {"input": input}, types, window_size=list(window_sizes), **slide)
    return MaxPoolingOutputs(found["output"], found.get("output_indices"))


# Images


def up_sample_2d(input: Expression, scale_size: Size2D, interpolation_mode: Any) -> Expression:
    """The last two dimensions, height and width, a whole number of times as large."""
    with within("up_sample_2d"):
        InterpolationMode.check("interpolation_mode", interpolation_mode)
        if not isinstance(scale_size, Size2D):
            raise InvalidType(Problem("scale_size", "must be a Size2D", show(scale_size)))
    return unary(
        directml.Upsample2DDesc,
        input,
        scale_size=directml.Size2D(scale_size.width, scale_size.height),
        interpolation_mode=int(interpolation_mode),
    )


def value_scale_2d(input: Expression, scale: float, bias: Sequence[float]) -> Expression:
    """`scale * input + bias`, with a bias for each of 1 or 3 channels."""
    return unary(directml.ValueScale2DDesc, input, scale=scale, bias=_list("bias", bias))


# Copies


def _require_reflectable(name: str, amounts: Sequence[Any], sizes: Sequence[int]) -> None:
    """Refuses more padding than a reflection has elements for; the page's own example mirrors all of a row."""
    for i, (amount, size) in enumerate(zip(amounts, sizes, strict=False)):
        if not isinstance(amount, int | np.integer):
            raise InvalidType(Problem((name, i), "must be an integer", show(amount)))
        if amount > size:
            rule = f"must be at most {size}, the input's size there, for REFLECTION; pad in several steps, or by EDGE"
            raise InvalidDesc(Problem((name, i), rule, amount))


def padding(
    input: Expression, padding_mode: Any, padding_value: float, start_padding: Numbers, end_padding: Numbers
) -> Expression:
    """The input with more elements before and after it; REFLECTION adds at most as many as the input has there."""
    with within("padding"):
        start_padding = _list("start_padding", start_padding)
        end_padding = _list("end_padding", end_padding)
        PaddingMode.check("padding_mode", padding_mode)
        if padding_mode == PaddingMode.REFLECTION:
            require_builder("input", input)
            _require_reflectable("start_padding", start_padding, input._view.sizes)
            _require_reflectable("end_padding", end_padding, input._view.sizes)
    return unary(
        directml.PaddingDesc,
        input,
        padding_mode=int(padding_mode),
        padding_value=padding_value,
        start_padding=start_padding,
        end_padding=end_padding,
    )


def slice(
    input: Expression, input_window_offsets: Numbers, input_window_sizes: Numbers, input_window_strides: Numbers
) -> Expression:
    """Elements of a window, a stride apart; a negative stride begins at its end."""
    with within("slice"):
        members = {
            "input_window_offsets": _list("input_window_offsets", input_window_offsets),
            "input_window_sizes": _list("input_window_sizes", input_window_sizes),
            "input_window_strides": _list("input_window_strides", input_window_strides),
        }
    return unary(directml.Slice1Desc, input, **members)


def join(input: Sequence[Expression], axis: int) -> Expression:
    """Expressions one after the other along an axis."""
    with within("join"):
        if not isinstance(input, list | tuple) or not input:
            raise InvalidType(Problem("input", "must be a list of expressions", show(input)))
    return result(directml.JoinDesc, {"inputs": list(input)}, axis=axis)


def gather(input: Expression, indices: Expression, axis: int, index_dimensions: int) -> Expression:
    """The elements or blocks that indices name along an axis."""
    inputs: dict[str, Any] = {"input": input, "indices": indices}
    return result(directml.GatherDesc, inputs, axis=axis, index_dimensions=index_dimensions)


# Normalization


def batch_normalization(
    input: Expression,
    mean: Expression,
    variance: Expression,
    scale: Expression,
    bias: Expression,
    spatial: bool,
    epsilon: float,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    """`scale * (input - mean) / sqrt(variance + epsilon) + bias`."""
    return result(
        directml.BatchNormalizationDesc,
        {"input": input, "mean": mean, "variance": variance, "scale": scale, "bias": bias},
        spatial=bool(spatial),
        epsilon=epsilon,
        fused_activation=_fused(fused_activation),
    )


def mean_variance_normalization(
    input: Expression,
    scale: Expression | None = None,
    bias: Expression | None = None,
    axes: Numbers = (),
    normalize_variance: bool | None = None,
    epsilon: float | None = None,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    """The same with the mean and the variance of the elements along `axes`; the last two numbers must be given."""
    with within("mean_variance_normalization"):
        for name, value in (("normalize_variance", normalize_variance), ("epsilon", epsilon)):
            if value is None:
                raise InvalidType(Problem(name, "must be given", "none"))
    return result(
        directml.MeanVarianceNormalization1Desc,
        {"input": input, "scale": scale, "bias": bias},
        axes=_list("axes", axes),
        normalize_variance=bool(normalize_variance),
        epsilon=epsilon,
        fused_activation=_fused(fused_activation),
    )


def local_response_normalization(
    input: Expression, cross_channel: bool, local_size: int, alpha: float, beta: float, bias: float
) -> Expression:
    """`input / (bias + alpha / local_size * sum of squares nearby) ** beta`."""
    return unary(
        directml.LocalResponseNormalizationDesc,
        input,
        cross_channel=bool(cross_channel),
        local_size=local_size,
        alpha=alpha,
        beta=beta,
        bias=bias,
    )


# Recurrence


def gru(
    input: Expression,
    weight: Expression,
    recurrence: Expression,
    bias: Expression | None = None,
    hidden_init: Expression | None = None,
    sequence_lengths: Expression | None = None,
    activation_descs: Sequence[FusedActivation] | None = None,
    direction: Any = None,
    linear_before_reset: bool = True,
    output_options: Any = None,
) -> GRUOutputs:
    """A network of gated recurrent units; its activations, direction and outputs must be given."""
    with within("gru"):
        RecurrentNetworkDirection.check("direction", direction)
        OutputOptions.check("output_options", output_options)
        if not isinstance(activation_descs, list | tuple):
            raise InvalidType(Problem("activation_descs", "must be a list of FusedActivations", show(activation_descs)))
        activations = [one.desc() for one in activation_descs]
        if None in activations or len(activations) > 4:
            rule = "must be at most four activations, none of them INVALID"
            raise InvalidDesc(Problem("activation_descs", rule, f"{len(activations)}"))
        require_builder("input", input)
    wanted = {"output_sequence": OutputOptions.Single, "output_single": OutputOptions.Sequence}
    found = operator(
        directml.GruDesc,
        {
            "input": input,
            "weight": weight,
            "recurrence": recurrence,
            "bias": bias,
            "hidden_init": hidden_init,
            "sequence_lengths": sequence_lengths,
        },
        {field: input._view.data_type for field, other in wanted.items() if output_options != other},
        activation_descs=activations,
        direction=int(direction),
        linear_before_reset=bool(linear_before_reset),
    )
    return GRUOutputs(found.get("output_sequence"), found.get("output_single"))
