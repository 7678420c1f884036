"""Convolutions of images with filters: CONVOLUTION, CONVOLUTION_INTEGER and QUANTIZED_LINEAR_CONVOLUTION.

The dimensions of an image are batch, channels, and one to three spatial dimensions. Sums of 16-bit floats are computed
in float32 and rounded once; sums of integers are exact. On an explicit mesh, the dimensions of the result are sharded
like those of the input, and its channels like the filters, if their sizes allow it.

Args:
    input: Images, (batch, channels, spatial dimensions), with one to three spatial dimensions.
    filter: Filters, (output channels, input channels of a group, spatial dimensions).
    group_count: Number of groups into which the channels are divided; each is convolved for itself.
    input_zero_point: Subtracted from `input`, and its padding; None means 0.
    filter_zero_point: Subtracted from `filter`: one number, or one for each output channel. None means 0.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.calls.windows import (
    WindowPlan,
    for_each_dimension,
    make_windows,
    require_representable,
    require_room,
    window_arguments,
)
from dmljax.errors import InvalidDesc, InvalidType, Problem, require
from dmljax.foundation.open_sizes import fits, spell_equalities
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes, dividing_axes
from dmljax.foundation.sizes import (
    Sizes,
    argument_name,
    remedy_for_channels_last,
    remedy_for_image,
    remedy_for_open,
    remedy_for_rank,
    require_sizes,
    spell_sizes,
)
from dmljax.lowerings.copies import check_sizes
from dmljax.lowerings.images.convolution import ConvSpec, convolve, convolve_integers
from dmljax.lowerings.images.windows import Window
from dmljax.lowerings.numbers.products import multiply_scales, sum_as_floats
from dmljax.ops.elementwise.quantization import (
    ZeroPointOfFilter,
    ZeroPointOfInput,
    ZeroPointOfOutputLikeInput,
    quantize_rounded,
)
from dmljax.types import (
    FLOAT,
    INTEGER_8,
    ONLY_FLOAT32,
    ONLY_INT32,
    ConvolutionDirection,
    ConvolutionDirectionLike,
    ConvolutionMode,
    ConvolutionModeLike,
    widened,
)

CROSS_CORRELATION, FORWARD = ConvolutionMode.CROSS_CORRELATION, ConvolutionDirection.FORWARD


def _infer_convolution(
    input: Sizes,
    filter: Sizes,
    strides: calls.EachDimension,
    dilations: calls.EachDimension,
    start_padding: calls.EachDimension,
    end_padding: calls.EachDimension,
    group_count: int,
    bias: Sizes | None = None,
    direction: ConvolutionDirectionLike = FORWARD,
    output_padding: calls.EachDimension = 0,
    output_sizes: Sizes | None = None,
) -> WindowPlan:
    """The windows slide over the input, or in the direction BACKWARD over the result."""
    rule = "must have 3 to 5 dimensions: batch, channels and spatial dimensions"
    require("input", 3 <= len(input) <= 5, rule, len(input), remedy=remedy_for_image("input", input))
    rule, remedy = f"must have {len(input)} dimensions, like input", remedy_for_rank("filter", filter, len(input))
    require("filter", len(filter) == len(input), rule, len(filter), remedy=remedy)
    require("filter", 0 not in filter[2:], "must not be empty in a spatial dimension", f"shape {filter}")
    windows = make_windows("input", input[2:], filter[2:], strides, dilations, start_padding, end_padding)
    (extra,) = for_each_dimension("input", len(windows), ("output_padding", output_padding, 0))
    arguments = window_arguments(windows) | {"output_padding": extra}
    require("group_count", group_count >= 1, "must be at least 1", group_count)
    rule = f"must divide the {input[1]} channels of {argument_name('input')}"
    rest = input[1] % group_count
    require("group_count", rest == 0, rule, group_count, remedy=spell_equalities((rest, 0)))
    if direction is FORWARD:
        last = remedy_for_channels_last(input, _CHANNELS_LAST) if filter[2:3] == input[3:] else None
        _require_channels(1, filter[1], input[1] // group_count, "the input channels of a group", last)
        rule = f"must be a multiple of {group_count}, {argument_name('group_count')}"
        rest = filter[0] % group_count
        require(("filter", "shape", 0), rest == 0, rule, filter[0], remedy=spell_equalities((rest, 0)))
        channels = filter[0]
        require_room("input", windows, lambda i: ("filter", "shape", i + 2))
        space = tuple(window.blocks + more for window, more in zip(windows, extra, strict=True))
        beyond = [0] * len(space)
        padded = [window.padded_size + more for window, more in zip(windows, extra, strict=True)]
        amounts = {name: arguments[name] for name in ("start_padding", "end_padding", "output_padding")}
        require_representable(f"the padded size of {argument_name('input')}", padded, amounts, input[:2])
    else:
        why = f"the channels of {argument_name('input')}, with direction BACKWARD"
        _require_channels(0, filter[0], input[1], why)
        channels = filter[1] * group_count
        windows = tuple(map(Window.on_transposed_result, windows, extra))
        space = tuple(window.input_size for window in windows)
        beyond = [window.stride - 1 for window in windows]
        for i, (size, window) in enumerate(zip(space, windows, strict=True)):
            paddings = ("start_padding", window.start_padding), ("end_padding", window.end_padding)
            name, amount = max(paddings, key=lambda padding: padding[1])
            rule = "must leave at least one element of the result"
            require((name, i), size >= 1, rule, f"{amount}, and {size} elements")
        amounts = {name: arguments[name] for name in ("strides", "dilations", "output_padding")}
        require_representable("the size of the result", space, amounts, (input[0], channels))
    least = (input[0], channels, *space)
    most = (*least[:2], *(size + more for size, more in zip(space, beyond, strict=True)))
    sizes = least if output_sizes is None else tuple(output_sizes)
    between = zip(least, sizes, most, strict=False)
    if len(sizes) != len(least) or not all(fits(low, size) and fits(size, high) for low, size, high in between):
        rule = f"must be {spell_sizes(least)}" + (f", or up to {spell_sizes(most)}" if any(beyond) else "")
        raise InvalidDesc(Problem("output_sizes", rule, spell_sizes(sizes)))
    check_sizes(sizes)
    if bias is not None:
        bias_shape = (channels,) if len(bias) == 1 else _channel_sizes(channels, input)
        require_sizes("bias", bias, bias_shape, why=", one number for each output channel")
    return WindowPlan(windows, sizes)


_CHANNELS_LAST = "convolution(jnp.transpose(x, (0, 3, 1, 2)), jnp.transpose(kernel, (3, 2, 0, 1)))"


def _require_channels(axis: int, channels: int, expected: int, why: str, remedy: str | None = None) -> None:
    """Raises if a filter does not have the `expected` channels along `axis`."""
    remedy = remedy or spell_equalities((channels, expected))
    require(("filter", "shape", axis), channels == expected, f"must be {expected}, {why}", channels, remedy=remedy)


def _channel_sizes(channels: int, input: Sizes) -> Sizes:
    """Returns the shape in which one number for each output channel broadcasts to the result."""
    return (1, channels, *(1 for _ in input[2:]))


# CONVOLUTION


@calls.operator_function
def convolution(
    input: calls.Operand,
    filter: calls.Operand,
    bias: calls.Operand | None = None,
    *,
    mode: ConvolutionModeLike = CROSS_CORRELATION,
    direction: ConvolutionDirectionLike = FORWARD,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    output_padding: calls.EachDimension = 0,
    group_count: int = 1,
    fused_activation: Annotated[dml.ActivationLike, dml.FusableInto("DML_OPERATOR_CONVOLUTION")] | None = None,
    output_sizes: Sequence[int] | None = None,
    precision: lax.Precision | str | None = None,
) -> Array:
    """Computes the convolution of an image with filters, or its gradient, the transposed convolution.

    A filter slides over the image. At each place, it is multiplied by the elements that it covers, one by one, in all
    input channels, and the sum of the products is one element of the result. Each filter gives an output channel.

    In the direction BACKWARD, the first two dimensions of `filter` are input channels and output channels of a group.

    By default, filters are not flipped (mode CROSS_CORRELATION). In the direction FORWARD, `output_padding` appends
    elements that hold only the bias. In the direction BACKWARD, it appends what the windows add there; `output_sizes`
    may then be larger by less than a stride, and the rest holds only the bias. Sums of 16-bit floats are computed in
    float32.

    Args:
        bias: Added to the result, one number for each output channel; None adds nothing.
        mode: Whether the filters are flipped (convolution) or not (cross-correlation).
        direction: Forward, or backward for the transposed convolution.
        strides: Distances between windows; backward, these lie in the result.
        start_padding: Padding before each spatial dimension; backward, elements to remove from the result.
        end_padding: Padding after each spatial dimension; backward, elements to remove from the result.
        output_padding: Elements to append to each spatial dimension of the result: one number, or one for each.
        output_sizes: Shape of the result; None means the smallest that holds all windows, forward the only one.

    Returns:
        Array of (batch, output channels, spatial dimensions), in the type of `input`.

    >>> image, filter = jnp.arange(5.0).reshape(1, 1, 5), jnp.array([[[-1.0, 0.0, 1.0]]])
    >>> convolution(image, filter, jnp.array([0.5])).tolist()
    [[[2.5, 2.5, 2.5]]]
    >>> convolution(image, filter, strides=2, start_padding=1, end_padding=1).tolist()
    [[[1.0, 2.0, -3.0]]]
    """
    input, filter = calls.float_array("input", input), calls.float_array("filter", filter)
    calls.require_type("filter", filter, input.dtype, "input")
    is_forward = direction is FORWARD
    window_arguments = strides, dilations, start_padding, end_padding
    bias_shape = None if bias is None else jnp.shape(bias)
    result_sizes = None if output_sizes is None else tuple(output_sizes)
    windows, sizes = _infer_convolution(
        input.shape, filter.shape, *window_arguments, group_count, bias_shape, direction, output_padding, result_sizes
    )
    biases = [] if bias is None else [calls.number_array("bias", bias).reshape(_channel_sizes(sizes[1], input.shape))]
    for x in biases:
        calls.require_type("bias", x, input.dtype, "input")
    wide = widened(input.dtype)

    def compute(input: Array, filter: Array, *bias: Array) -> Array:
        if mode is ConvolutionMode.CONVOLUTION:
            filter = lax.rev(filter, range(2, filter.ndim))
        total = convolve(input, filter, ConvSpec(windows, group_count, precision), is_forward=is_forward)
        beyond = [(0, size - part, 0) for size, part in zip(sizes, total.shape, strict=True)]
        total = lax.pad(total, jnp.zeros((), total.dtype), beyond)
        for summand in bias:
            total = total + summand.astype(wide)
        return dml.apply_fused_activation(total.astype(input.dtype), fused_activation)

    return _call_sharded(compute, input, filter, sizes, *biases, is_forward=is_forward)


def _call_sharded(
    compute: Callable[..., Array], input: Array, filter: Array, sizes: Sequence[int], *others: Array, is_forward: bool
) -> Array:
    batch, input_channels, *space = dimension_axes(input)
    filter_axes = dimension_axes(filter)
    # A backward filter counts the output channels of a group, which is not a dimension of the result.
    channels = dividing_axes(filter_axes[0], sizes[1], filter) if is_forward else None
    space_axes = [dividing_axes(mesh_axes, size, input) for mesh_axes, size in zip(space, sizes[2:], strict=True)]
    if is_forward and filter.shape[1] == input.shape[1]:
        # XLA does so on an auto mesh: several convolutions of an input share all of its channels, and a filter that is
        # not divided has its gradient by the channels of each device.
        filter_axes[1] = input_channels or filter_axes[1]
        input_channels = None if input_channels == channels else input_channels
    operands = [
        (input, [batch, input_channels, *space]),
        (filter, filter_axes),
        *((x, dimension_axes(x)) for x in others),
    ]
    return call_with_auto_axes(compute, operands, [batch, channels, *space_axes])


_CHANNELS = (
    "GroupCount divides the channels of InputTensor. FilterTensor.Sizes begin with the output channels, a multiple of "
    "GroupCount, and the input channels of a group."
)
_BIAS = "BiasTensor.Sizes are 1, the output channels, and 1 for each spatial dimension."
_OUTPUT = "The windows fit in the padded InputTensor. OutputTensor.Sizes follow from the others."


class ConvolutionDesc(dml.Operator, function=convolution, infer=_infer_convolution):
    input: dml.Input
    filter: dml.Input
    bias: dml.OptionalInput = None
    output: dml.Output
    mode: dml.Enumerator[ConvolutionMode]
    direction: dml.Enumerator[ConvolutionDirection]
    strides: dml.UintDimensions
    dilations: dml.UintDimensions
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    output_padding: dml.UintDimensions
    group_count: dml.Uint
    fused_activation: dml.FusedActivation = None
    has_images = True
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4_TO_5, FLOAT), FL_4_0=dml.rows(dml.RANK_3_TO_5, FLOAT))
    rules = dml.page_rules(
        *dml.same_type_and_rank("input", "filter", "bias", "output"),
        *dml.infer_rules(
            dml.spatial_sentence("Strides, Dilations, StartPadding, EndPadding and OutputPadding"),
            f"{_CHANNELS} If Direction is BACKWARD, they begin with the input channels and the output channels of a "
            "group.",
            _BIAS,
            f"{_OUTPUT} If Direction is BACKWARD, a spatial dimension may be larger by less than a stride.",
        ),
        dml.FUSED_ACTIVATION,
    )


# CONVOLUTION_INTEGER


@calls.operator_function
def convolution_integer(
    input: ArrayLike,
    input_zero_point: ZeroPointOfInput | None,
    filter: ArrayLike,
    filter_zero_point: ZeroPointOfFilter | None = None,
    *,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    group_count: int = 1,
) -> Array:
    """Computes the convolution of an image of int8 or uint8 with filters of int8 or uint8, exactly in int32.

    The zero points are subtracted from `input` and `filter`. The padding is the zero point of `input`, so it adds
    nothing. Filters are not flipped. Sums wrap around where int32 cannot hold them, which takes more than 33,025
    products.

    Returns:
        Array of (batch, output channels, spatial dimensions), in int32.

    >>> image, filter = (
    ...     jnp.array([[[0, 255, 7]]], "uint8"),
    ...     jnp.array([[[-128, 127]]], "int8"),
    ... )
    >>> convolution_integer(image, jnp.array(7, "uint8"), filter).tolist()
    [[[32392, -31744]]]
    """
    window_arguments = strides, dilations, start_padding, end_padding
    parts = _prepare_integers(input, input_zero_point, filter, filter_zero_point, None, window_arguments, group_count)
    return parts.convolve(sum, wraps=True)


_WindowArguments = tuple[calls.EachDimension, calls.EachDimension, calls.EachDimension, calls.EachDimension]


class _IntegerConvolution(NamedTuple):
    """The convolution of integers minus their zero points, and how its result is sharded."""

    input: Array
    filter: Array
    plan: WindowPlan
    group_count: int
    largest: tuple[int, int]

    def convolve(self, finish: Callable[..., Array], *others: Array, wraps: bool = False) -> Array:
        """Calls `finish` with the parts, which it adds up, and with other arrays that broadcast to the result.

        If the sum `wraps`, it may wrap around as int32 does.
        """
        windows, sizes = self.plan
        # bfloat16 and TF32 also hold all integers of 8 bits.
        spec = ConvSpec(windows, self.group_count, lax.Precision.DEFAULT)

        def compute(input: Array, filter: Array, *others: Array) -> Array:
            return finish(convolve_integers(input, filter, spec, self.largest, wraps=wraps), *others)

        return _call_sharded(compute, self.input, self.filter, sizes, *others, is_forward=True)


def _prepare_integers(
    input: ArrayLike,
    input_zero_point: ArrayLike | None,
    filter: ArrayLike,
    filter_zero_point: ArrayLike | None,
    bias: ArrayLike | None,
    window_arguments: _WindowArguments,
    group_count: int,
) -> _IntegerConvolution:
    image, weights = _check_bytes("input", input), _check_bytes("filter", filter)
    bias_shape = None if bias is None else jnp.shape(bias)
    plan = _infer_convolution(image.shape, weights.shape, *window_arguments, group_count, bias_shape)
    image, largest_in_image = _subtract_zero("input_zero_point", image, input_zero_point, (1,) * image.ndim)
    zero_point_shape = (plan.sizes[1], *(1 for _ in weights.shape[1:]))
    weights, largest_in_filter = _subtract_zero("filter_zero_point", weights, filter_zero_point, zero_point_shape)
    return _IntegerConvolution(image, weights, plan, group_count, (largest_in_image, largest_in_filter))


def _check_bytes(where: str, value: ArrayLike) -> Array:
    array = calls.integer_array(where, value)
    require(where, array.dtype.itemsize <= 1, "must be of int8 or uint8", array.dtype, InvalidType)
    return array


def _subtract_zero(where: str, x: Array, zero: ArrayLike | None, sizes: tuple[int, ...]) -> tuple[Array, int]:
    """Subtracts a zero point, of `sizes` or one element, in float32; also returns the largest possible magnitude."""
    if zero is None:
        return x.astype(np.float32), 128 if x.dtype == np.int8 else 255
    point = calls.integer_array(where, zero)
    calls.require_type(where, point, x.dtype, where.removesuffix("_zero_point"))
    return x.astype(np.float32) - _reshape_parameter(where, point, sizes).astype(np.float32), 255


def _reshape_parameter(where: str, x: Array, sizes: tuple[int, ...]) -> Array:
    """Returns a scale or zero point in a shape that broadcasts to `sizes`, which are 1 except for the channels."""
    _require_parameter(where, x.shape, math.prod(sizes))
    return x.reshape((1,) * len(sizes) if x.size == 1 else sizes)


def _require_parameter(where: str, sizes: Sizes, channels: int) -> None:
    """Raises unless a scale or zero point has a single element or an element for each of the channels."""
    channel_shape = (channels,) if len(sizes) < 2 else (1, channels, *(1 for _ in sizes[2:]))
    if math.prod(sizes) != 1 and (channels == 1 or sizes != channel_shape):
        rule = "must have one element" + (
            "" if channels == 1 else f", or {channels} in the shape {spell_sizes(channel_shape)}"
        )
        raise InvalidDesc(
            Problem(where, rule, f"shape {spell_sizes(sizes)}", remedy=remedy_for_open(sizes, channel_shape))
        )


def _parameter_rule(*fields: str, per_channel: bool = False) -> dml.Rule:
    """The tensors `fields` that are present have one element, or with `per_channel` one for each output channel."""

    def check(desc: Any) -> None:
        for field in fields:
            if getattr(desc, field) is not None:
                _require_parameter(field, getattr(desc, field).sizes, desc.filter.sizes[0] if per_channel else 1)

    more = ", or one for each output channel" if per_channel else ""
    return dml.require_sizes_rule(f"{dml.members_have(fields)} one element{more}.", check)


_ZERO_POINT_TYPES = dml.page_rules(
    dml.same_type("input", "input_zero_point"), dml.same_type("filter", "filter_zero_point")
)
_ZERO_POINT_SIZES = dml.spatial_sentence("Strides, Dilations, StartPadding and EndPadding"), _CHANNELS


class ConvolutionIntegerDesc(dml.Operator, function=convolution_integer, infer=_infer_convolution):
    input: dml.Input
    input_zero_point: dml.OptionalInput = None
    filter: dml.Input
    filter_zero_point: dml.OptionalInput = None
    output: dml.Output
    strides: dml.UintDimensions
    dilations: dml.UintDimensions
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    group_count: dml.Uint
    has_images = True
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, INTEGER_8, output=ONLY_INT32),
        FL_4_0=dml.rows(
            dml.RANK_1_TO_4,
            INTEGER_8,
            **dict.fromkeys(("input", "filter"), dml.Cell(dml.RANK_3_TO_4, INTEGER_8)),
            output=dml.Cell(dml.RANK_3_TO_4, ONLY_INT32),
        ),
    )
    rules = dml.page_rules(
        dml.same_rank("input", "filter", "output"),
        *dml.infer_rules(*_ZERO_POINT_SIZES, _OUTPUT),
        dml.same_rank("input_zero_point", "filter_zero_point"),
        _parameter_rule("input_zero_point"),
        _parameter_rule("filter_zero_point", per_channel=True),
        *_ZERO_POINT_TYPES,
    )


# QUANTIZED_LINEAR_CONVOLUTION


@calls.operator_function
def quantized_linear_convolution(
    input: ArrayLike,
    input_scale: calls.Float,
    input_zero_point: ZeroPointOfInput | None,
    filter: ArrayLike,
    filter_scale: calls.Float,
    filter_zero_point: ZeroPointOfFilter | None,
    bias: ArrayLike | None,
    output_scale: calls.Float,
    output_zero_point: ZeroPointOfOutputLikeInput | None = None,
    *,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    group_count: int = 1,
    dtype: DTypeLike | None = None,
) -> Array:
    """Computes the convolution of a quantized image with quantized filters, and quantizes it.

    The integer sums, plus the bias, are exact. They are multiplied in float32 by the scale of the input, then by the
    scale of the filter. The product is divided by `output_scale`, rounded with halves to even, and saturated to the
    output's type.

    Args:
        input_scale: Scale of `input`, a number.
        filter_scale: Scale of `filter`: one number, or one for each output channel.
        bias: Added to the sums, one int32 for each output channel; None adds nothing.
        dtype: Integer type of the result; None means that of `output_zero_point`, else of `input`.

    Returns:
        Array of (batch, output channels, spatial dimensions), quantized.

    >>> image, filter = jnp.array([[[10, 20, 250]]], "uint8"), jnp.array([[[1, 2]]], "int8")
    >>> quantized_linear_convolution(
    ...     image,
    ...     0.5,
    ...     jnp.array(10, "uint8"),
    ...     filter,
    ...     1.0,
    ...     None,
    ...     jnp.array([1], "int32"),
    ...     1.0,
    ... ).tolist()
    [[[10, 246]]]
    """
    window_arguments = strides, dilations, start_padding, end_padding
    parts = _prepare_integers(input, input_zero_point, filter, filter_zero_point, bias, window_arguments, group_count)
    default = calls.integer_array("input", input).dtype
    scales = [calls.float_array("input_scale", input_scale), calls.float_array("filter_scale", filter_scale)]
    wide = np.promote_types(*(widened(scale.dtype) for scale in scales))
    flat = _channel_sizes(parts.filter.shape[0], parts.input.shape)
    input_factor = _reshape_parameter("input_scale", scales[0], (1,) * len(flat)).astype(wide)
    filter_factor = _reshape_parameter("filter_scale", scales[1], flat).astype(wide)
    output_scale = _reshape_parameter("output_scale", calls.float_array("output_scale", output_scale), (1,) * len(flat))
    others = [input_factor, filter_factor, output_scale]
    zero = None
    if output_zero_point is not None:
        zero = calls.integer_array("output_zero_point", output_zero_point)
        others.append(_reshape_parameter("output_zero_point", zero, (1,) * len(flat)))
    if bias is not None:
        numbers = calls.integer_array("bias", bias)
        require("bias", numbers.dtype == np.int32, "must be of int32", numbers.dtype, InvalidType)
        others.append(numbers.reshape(flat))

    def finish(
        parts: Sequence[Array], input_factor: Array, filter_factor: Array, output_scale: Array, *more: Array
    ) -> Array:
        rest = list(more)
        point = None if zero is None else rest.pop(0)
        value = multiply_scales(sum_as_floats([*parts, *rest], wide), input_factor, filter_factor)
        return quantize_rounded("output", value, output_scale, point, dtype, default)

    return parts.convolve(finish, *others)


def _quantized_table(images: range, numbers: range, filter_scale: range) -> dml.Table:
    return dml.rows(
        numbers,
        INTEGER_8,
        **dict.fromkeys(("input", "filter", "output"), dml.Cell(images, INTEGER_8)),
        **dict.fromkeys(("input_scale", "output_scale"), ONLY_FLOAT32),
        filter_scale=dml.Cell(filter_scale, ONLY_FLOAT32),
        bias=dml.Cell(images, ONLY_INT32),
    )


class QuantizedLinearConvolutionDesc(dml.Operator, function=quantized_linear_convolution, infer=_infer_convolution):
    input: dml.Input
    input_scale: dml.Input
    input_zero_point: dml.OptionalInput = None
    filter: dml.Input
    filter_scale: dml.Input
    filter_zero_point: dml.OptionalInput = None
    bias: dml.OptionalInput = None
    output_scale: dml.Input
    output_zero_point: dml.OptionalInput = None
    output: dml.Output
    strides: dml.UintDimensions
    dilations: dml.UintDimensions
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    group_count: dml.Uint
    has_images = True
    support = dml.support(
        FL_2_1=_quantized_table(dml.RANK_4, dml.RANK_4, dml.RANK_4),
        FL_4_0=_quantized_table(dml.RANK_3_TO_4, dml.RANK_1_TO_4, dml.RANK_3_TO_4),
        FL_5_2=_quantized_table(dml.RANK_3_TO_4, dml.RANK_1_TO_4, dml.RANK_1_TO_4),
    )
    rules = dml.page_rules(
        dml.same_rank("input", "filter", "bias", "output"),
        *dml.infer_rules(*_ZERO_POINT_SIZES, _BIAS, _OUTPUT),
        dml.same_type("output", "output_zero_point"),
        _parameter_rule("input_scale", "input_zero_point", "output_scale", "output_zero_point"),
        _parameter_rule("filter_scale", "filter_zero_point", per_channel=True),
        *_ZERO_POINT_TYPES,
    )
