"""The functions of PyDirectML: each adds an operator to the builder of its expressions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmljax import directml
from dmljax.descriptors import Operator
from dmljax.descriptors.json_form import Fused
from dmljax.descriptors.members import Array, Boolean, Enumeration, Member, Struct
from dmljax.errors import InvalidDesc, InvalidType, Problem, require, within
from dmljax.pydirectml import enumerations
from dmljax.pydirectml.builder import Expression, GraphBuilder, add_operator, require_builder, require_flag
from dmljax.pydirectml.enumerations import (
    ConvolutionDirection,
    ConvolutionMode,
    MatrixTransform,
    OperatorType,
    OutputOptions,
    PaddingMode,
    TensorDataType,
)
from dmljax.pydirectml.tensors import TensorDesc
from dmljax.text import show
from dmljax.types import DataType

Numbers = Sequence[int]


class Size2D:
    """A width and a height, in this order."""

    width: int
    height: int

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height


class FusedActivation:
    """An activation to apply to an operator's result, with up to two numbers; INVALID means none."""

    activation: Any
    param_1: float
    param_2: float

    def __init__(self, activation: Any = OperatorType.INVALID, param_1: float = 0, param_2: float = 0) -> None:
        with within("FusedActivation"):
            self.activation = OperatorType.check("activation", activation)
        self.param_1, self.param_2 = param_1, param_2

    def __repr__(self) -> str:
        return f"dml.FusedActivation of {self.activation.name}"

    def desc(self) -> Operator | None:
        """The descriptor of the activation."""
        if self.activation == OperatorType.INVALID:
            return None
        name = self.activation.name.removeprefix("ACTIVATION_")
        require("fused_activation", name in NUMBERS, f"must be one of {', '.join(NUMBERS)}", self.activation.name)
        activation = directml.OPERATORS[f"DML_OPERATOR_{self.activation.name}"]
        return activation(**dict(zip(NUMBERS[name], (self.param_1, self.param_2), strict=False)))


# The names of each activation's numbers
NUMBERS: dict[str, tuple[str, ...]] = {
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
    """The largest elements, and their indices if requested."""

    values: Expression
    indices: Expression

    def __init__(self, values: Expression | None = None, indices: Expression | None = None) -> None:
        self.values = Expression() if values is None else values
        self.indices = Expression() if indices is None else indices


class GRUOutputs:
    """The states of all steps and the last states; outputs that were not requested are empty expressions."""

    sequence: Expression
    single: Expression

    def __init__(self, sequence: Expression | None = None, single: Expression | None = None) -> None:
        self.sequence = Expression() if sequence is None else sequence
        self.single = Expression() if single is None else single


def _list(name: str, values: Any) -> list[Any]:
    """Converts a list, a tuple or an array of numbers to a list."""
    if not isinstance(values, Sequence | np.ndarray):
        raise InvalidType(Problem(name, "must be a list of numbers", show(values)))
    return list(values)


# Inputs, and other views of bytes


def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    """Adds an input to the graph; `compute` takes bindings in the order of the input indices.

    Further tensors with the same index bind new data to a model; a model's operators read only one of these tensors.
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
    """Views the bytes of an expression with another type, sizes and strides, without computing anything.

    Without strides, the view is packed and has all of the bytes.
    """
    with within("reinterpret"):
        builder = require_builder("input", input)
        TensorDataType.check("new_type", new_type)
        input_desc = input._view
        sizes = tuple(_list("new_size", new_size))
        strides = None if new_strides is None else tuple(_list("new_strides", new_strides)) or None
        total = input_desc.total_tensor_size_in_bytes or input_desc.minimum_size_in_bytes
        alignment = input_desc.guaranteed_base_offset_alignment
        if strides is None:
            packed, size = directml.TensorDesc(DataType(int(new_type)), sizes), input_desc.span_in_bytes
            rule, given = f"must take up {size} bytes, as input does", f"{packed.span_in_bytes} bytes of {packed}"
            require("new_size", packed.span_in_bytes in (size, total), rule, given)
        view = directml.TensorDesc(DataType(int(new_type)), sizes, strides, input_desc.flags, total, alignment)
    return builder._expression(input._source, view)


# Operators


def _add(
    name: str, operator: type[Operator], arguments: Mapping[str, Any], outputs: Sequence[str] = ("output",)
) -> dict[str, Expression]:
    """Adds the operator of a function called with these arguments; returns the outputs with these fields."""
    inputs: dict[str, Any] = {}
    attributes: dict[str, Any] = {"output_sizes": arguments.get("output_sizes", ())}
    with within(name):
        for member in operator.members():
            argument = _SPELLED.get(member.field, member.field)
            if member.tensor_kind is None:
                attributes[member.field] = _attribute(operator, member, argument, arguments)
            elif isinstance(member.kind, Array):
                if not isinstance(arguments[argument], list | tuple) or not arguments[argument]:
                    raise InvalidType(Problem(argument, "must be a list of expressions", show(arguments[argument])))
                inputs[member.field] = list(arguments[argument])
            elif member.tensor_kind.is_input:
                inputs[member.field] = arguments[argument]
    return add_operator(operator, inputs, outputs, **attributes)


_SPELLED = {"window_size": "window_sizes", "inputs": "input"}  # the binding's names for members
_IN_SPACE = {"strides": 1, "dilations": 1, "start_padding": 0, "end_padding": 0, "output_padding": 0}


def _attribute(operator: type[Operator], member: Member, name: str, arguments: Mapping[str, Any]) -> Any:
    """Converts an argument to its member; an empty list means the default in each spatial dimension."""
    value = arguments[name]
    if value is None and not member.is_optional:
        raise InvalidType(Problem(name, "must be given", "none"))
    match member.kind:
        case Enumeration():
            return int(getattr(enumerations, member.kind.enumeration.__name__).check(name, value))
        case Boolean():
            return require_flag(name, value)
        case Fused():
            return _fused_activation(name, value)
        case Array(of=Fused()):
            activations = [_fused_activation(name, activation) for activation in _list(name, value)]
            rule = "must have at most four activations, none INVALID"
            require(name, None not in activations and len(activations) <= 4, rule, len(activations))
            return activations
        case Array():
            numbers = _list(name, value)
            if operator.has_images and name in _IN_SPACE:
                require_builder("input", arguments["input"])
                count = len(arguments["input"]._view.sizes) - 2
                numbers = numbers or [_IN_SPACE[name]] * count
                rule = f"must have {count} numbers, one for each spatial dimension, or be empty"
                require(name, len(numbers) == count, rule, numbers)
            return numbers
        case Struct():
            if not isinstance(value, Size2D):
                is_pair = isinstance(value, list | tuple) and len(value) == 2
                remedy = f"use dml.Size2D({value[0]!r}, {value[1]!r})" if is_pair else None
                raise InvalidType(Problem(name, "must be a Size2D", show(value), remedy=remedy))
            return directml.Size2D(value.width, value.height)
    return value


def _fused_activation(name: str, activation: Any) -> Operator | None:
    """The descriptor of a fused activation; None for INVALID."""
    if not isinstance(activation, FusedActivation):
        remedy = f"use dml.FusedActivation({show(activation)})" if isinstance(activation, OperatorType) else None
        raise InvalidType(Problem(name, "must be a FusedActivation", show(activation), remedy=remedy))
    return activation.desc()


# Activations


def activation_identity(input: Expression) -> Expression:
    """A copy."""
    return _add("activation_identity", directml.ActivationIdentityDesc, locals())["output"]


def activation_linear(input: Expression, alpha: float, beta: float) -> Expression:
    """`alpha * input + beta`."""
    return _add("activation_linear", directml.ActivationLinearDesc, locals())["output"]


def activation_relu(input: Expression) -> Expression:
    """`max(input, 0)`."""
    return _add("activation_relu", directml.ActivationReluDesc, locals())["output"]


def activation_sigmoid(input: Expression) -> Expression:
    """`1 / (1 + exp(-input))`."""
    return _add("activation_sigmoid", directml.ActivationSigmoidDesc, locals())["output"]


def activation_soft_max(input: Expression) -> Expression:
    """The softmax along the last dimension."""
    return _add("activation_soft_max", directml.ActivationSoftmaxDesc, locals())["output"]


def activation_tanh(input: Expression) -> Expression:
    """The hyperbolic tangent."""
    return _add("activation_tanh", directml.ActivationTanhDesc, locals())["output"]


# Arithmetic


def add(a: Expression, b: Expression, fused_activation: FusedActivation = NO_ACTIVATION) -> Expression:
    """`a + b`; broadcasting requires strides of 0."""
    return _add("add", directml.ElementWiseAdd1Desc, locals())["output"]


def subtract(a: Expression, b: Expression) -> Expression:
    """`a - b`."""
    return _add("subtract", directml.ElementWiseSubtractDesc, locals())["output"]


def multiply(a: Expression, b: Expression) -> Expression:
    """`a * b`."""
    return _add("multiply", directml.ElementWiseMultiplyDesc, locals())["output"]


def divide(a: Expression, b: Expression) -> Expression:
    """`a / b`."""
    return _add("divide", directml.ElementWiseDivideDesc, locals())["output"]


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
    """`alpha * a @ b + beta * c`; either matrix may be transposed first."""
    return _add("gemm", directml.GemmDesc, locals())["output"]


# Windows


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
    """Convolves images with filters; direction BACKWARD computes the transpose, and needs `output_sizes`."""
    if direction == ConvolutionDirection.BACKWARD and not output_sizes:
        with within("convolution"):
            raise InvalidDesc(Problem("output_sizes", "must be given for direction BACKWARD", "none"))
    return _add("convolution", directml.ConvolutionDesc, locals())["output"]


def average_pooling(
    input: Expression,
    strides: Numbers,
    window_sizes: Numbers,
    start_padding: Numbers,
    end_padding: Numbers,
    include_padding: bool,
) -> Expression:
    """The mean of each window; note that strides come before window sizes."""
    return _add("average_pooling", directml.AveragePoolingDesc, locals())["output"]


def max_pooling(
    input: Expression,
    window_sizes: Numbers,
    strides: Numbers = (),
    start_padding: Numbers = (),
    end_padding: Numbers = (),
    dilations: Numbers = (),
    output_indices: bool = False,
) -> MaxPoolingOutputs:
    """The largest element of each window and, if requested, its index in the input; ties go to the first."""
    with within("max_pooling"):
        has_indices = require_flag("output_indices", output_indices)
    fields = ("output", "output_indices") if has_indices else ("output",)
    outputs = _add("max_pooling", directml.MaxPooling2Desc, locals(), fields)
    return MaxPoolingOutputs(outputs["output"], outputs.get("output_indices"))


# Images


def up_sample_2d(input: Expression, scale_size: Size2D, interpolation_mode: Any) -> Expression:
    """Enlarges height and width, the last two dimensions, by integer factors."""
    return _add("up_sample_2d", directml.Upsample2DDesc, locals())["output"]


def value_scale_2d(input: Expression, scale: float, bias: Sequence[float]) -> Expression:
    """`scale * input + bias`, with a bias for each of 1 or 3 channels."""
    return _add("value_scale_2d", directml.ValueScale2DDesc, locals())["output"]


# Copies


def _require_reflectable(name: str, amounts: Sequence[Any], sizes: Sequence[int]) -> None:
    """Raises if reflection lacks elements for the padding; in the page's own example, it mirrors a whole row."""
    for i, (amount, size) in enumerate(zip(amounts, sizes, strict=False)):
        if not isinstance(amount, int | np.integer):
            raise InvalidType(Problem((name, i), "must be an integer", show(amount)))
        rule = f"must be at most {size}, the input's size, for REFLECTION; pad in several steps, or use EDGE"
        require((name, i), bool(amount <= size), rule, amount)


def padding(
    input: Expression, padding_mode: Any, padding_value: float, start_padding: Numbers, end_padding: Numbers
) -> Expression:
    """Pads the input on both sides; REFLECTION adds at most the input's size."""
    arguments = locals()
    if padding_mode == PaddingMode.REFLECTION:
        with within("padding"):
            require_builder("input", input)
            for name in ("start_padding", "end_padding"):
                _require_reflectable(name, _list(name, arguments[name]), input._view.sizes)
    return _add("padding", directml.PaddingDesc, arguments)["output"]


def slice(
    input: Expression, input_window_offsets: Numbers, input_window_sizes: Numbers, input_window_strides: Numbers
) -> Expression:
    """Slices a window with strides; a negative stride starts at the window's end."""
    return _add("slice", directml.Slice1Desc, locals())["output"]


def join(input: Sequence[Expression], axis: int) -> Expression:
    """Concatenates expressions along an axis."""
    return _add("join", directml.JoinDesc, locals())["output"]


def gather(input: Expression, indices: Expression, axis: int, index_dimensions: int) -> Expression:
    """Gathers elements or blocks by indices along an axis."""
    return _add("gather", directml.GatherDesc, locals())["output"]


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
    return _add("batch_normalization", directml.BatchNormalizationDesc, locals())["output"]


def mean_variance_normalization(
    input: Expression,
    scale: Expression | None = None,
    bias: Expression | None = None,
    axes: Numbers = (),
    normalize_variance: bool | None = None,
    epsilon: float | None = None,
    fused_activation: FusedActivation = NO_ACTIVATION,
) -> Expression:
    """Normalizes by the mean and variance along `axes`; `normalize_variance` and `epsilon` are required."""
    return _add("mean_variance_normalization", directml.MeanVarianceNormalization1Desc, locals())["output"]


def local_response_normalization(
    input: Expression, cross_channel: bool, local_size: int, alpha: float, beta: float, bias: float
) -> Expression:
    """`input / (bias + alpha / local_size * sum of squares nearby) ** beta`."""
    return _add("local_response_normalization", directml.LocalResponseNormalizationDesc, locals())["output"]


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
    """Runs a gated recurrent unit; `activation_descs`, `direction` and `output_options` are required."""
    with within("gru"):
        OutputOptions.check("output_options", output_options)
    fields = {"output_sequence": OutputOptions.Single, "output_single": OutputOptions.Sequence}
    output_fields = [field for field, without in fields.items() if output_options != without]
    outputs = _add("gru", directml.GruDesc, locals(), output_fields)
    return GRUOutputs(outputs.get("output_sequence"), outputs.get("output_single"))
