"""Convolutions of images with filters: CONVOLUTION, CONVOLUTION_INTEGER and QUANTIZED_LINEAR_CONVOLUTION.

The dimensions of an image are batch, channels and one to three of space. Sums of 16-bit floats are computed in float32
and rounded once, those of integers are exact. On an explicit mesh, the dimensions of the result are sharded as those of
the input are, and its channels as the filters are, if their sizes allow it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.lowerings.convolution import correlated, integer_correlated, transposed
from dmljax.lowerings.products import chosen_precision, exact_sum, scaled
from dmljax.lowerings.sharding import dimension_axes, dividing_axes, partitioned
from dmljax.lowerings.sizes import check_size
from dmljax.lowerings.windows import Steps, Window, checked_steps, for_each_dimension
from dmljax.ops.quantization import ONLY_FLOAT32, quantized, type_of_scale
from dmljax.text import join_sizes
from dmljax.types import (
    FLOAT,
    INTEGER_8,
    ConvolutionDirection,
    ConvolutionMode,
    DataType,
    widened,
)

INT32 = frozenset({DataType.INT32})
CROSS_CORRELATION, FORWARD = ConvolutionMode.CROSS_CORRELATION, ConvolutionDirection.FORWARD
_GROUPS_AND_STEPS = {
    "group_count": calls.INTEGER,
    **dict.fromkeys(("strides", "dilations", "start_padding", "end_padding"), calls.EACH_DIMENSION),
}

# CONVOLUTION


@calls.operator_function(
    mode=calls.one_of(ConvolutionMode),
    direction=calls.one_of(ConvolutionDirection),
    **_GROUPS_AND_STEPS,
    output_padding=calls.EACH_DIMENSION,
    fused_activation=dml.fusable_into("DML_OPERATOR_CONVOLUTION"),
    output_sizes=calls.SIZES,
    precision=calls.PRECISION,
)
def convolution(
    input: ArrayLike,
    filter: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    mode: ConvolutionMode = CROSS_CORRELATION,
    direction: ConvolutionDirection = FORWARD,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    output_padding: calls.EachDimension = 0,
    group_count: int = 1,
    fused_activation: dml.Operator | None = None,
    output_sizes: Sequence[int] | None = None,
    precision: lax.Precision | str | None = None,
) -> Array:
    """Computes the convolution of an image with filters, or its gradient, the transposed convolution.

    The dimensions of `input` are batch, channels and one to three of space. Those of `filter` are output channels,
    input channels of a group, and space; in the direction BACKWARD, input channels and output channels of a group.
    `bias` has one number for each output channel. One number stands for all dimensions of space.

    By default, filters are not flipped: mode CROSS_CORRELATION. FORWARD, `output_padding` appends elements that are
    the bias alone. BACKWARD, it appends what the windows add there, and `output_sizes`, the shape of the result, may be
    larger by less than a stride: what is beyond is the bias alone. Sums of 16-bit floats and the bias are computed in
    float32 and rounded once; the activation, a descriptor without tensors, is applied to what was rounded. By default,
    products of float32 are computed in float32 on all platforms; `precision` is JAX's.

    >>> image, filter = jnp.arange(5.0).reshape(1, 1, 5), jnp.array([[[-1.0, 0.0, 1.0]]])
    >>> convolution(image, filter, jnp.array([0.5])).tolist()
    [[[2.5, 2.5, 2.5]]]
    >>> convolution(image, filter, strides=2, start_padding=1, end_padding=1).tolist()
    [[[1.0, 2.0, -3.0]]]
    """
    input = calls.float_array("input", input)
    _require_space("input", input)
    filter = calls.float_array("filter", filter)
    calls.require_type("filter", filter, input.dtype, "input")
    is_forward = direction is FORWARD
    if group_count < 1:
        raise InvalidDesc(Problem("group_count", "must be at least 1", group_count))
    channels = _require_channels(input, filter, group_count, is_forward=is_forward)
    steps = checked_steps(filter.shape[2:], strides, dilations, start_padding, end_padding)
    appended = for_each_dimension("output_padding", output_padding, len(steps.sizes), lowest=0)
    windows = steps.over(input.shape[2:]) if is_forward else steps.onto(input.shape[2:], appended)
    _require_room(windows, is_forward=is_forward)
    if is_forward:
        computed = [one.blocks + more for one, more in zip(windows, appended, strict=True)]
    else:
        computed = [one.input_size for one in windows]
    least = (input.shape[0], channels, *computed)
    sizes = least if output_sizes is None else tuple(output_sizes)
    _require_sizes(sizes, least, (0, 0, *(0 if is_forward else one.stride - 1 for one in windows)))
    if bias is not None:
        bias = _of_channels("bias", bias, channels, input)
        calls.require_type("bias", bias, input.dtype, "input")
    wide = widened(input.dtype)
    if isinstance(precision, lax.DotAlgorithmPreset):
        raise InvalidType(Problem("precision", "must be a jax.lax.Precision or the name of one", precision.name))
    precision = chosen_precision(precision)

    def compute(input: Array, filter: Array, *bias: Array) -> Array:
        if mode is ConvolutionMode.CONVOLUTION:
            filter = lax.rev(filter, range(2, filter.ndim))
        direct = correlated if is_forward else transposed
        total = direct(input, filter, windows, group_count, precision)
        beyond = [(0, size - own, 0) for size, own in zip(sizes, total.shape, strict=True)]
        total = lax.pad(total, jnp.zeros((), total.dtype), beyond)
        for one in bias:
            total = total + one.astype(wide)
        return dml.fused(total.astype(input.dtype), fused_activation)

    return _partitioned(compute, input, filter, sizes, *([] if bias is None else [bias]), is_forward=is_forward)


def _require_space(where: str, given: Array) -> None:
    if not 3 <= given.ndim <= 5:
        raise InvalidDesc(Problem(where, "must have 3 to 5 dimensions: batch, channels and space", given.ndim))


def _require_channels(input: Array, filter: Array, group_count: int, *, is_forward: bool) -> int:
    """The number of output channels; refuses filters that do not suit the channels of the input."""
    if filter.ndim != input.ndim:
        raise InvalidDesc(Problem("filter", f"must have {input.ndim} dimensions, as input does", filter.ndim))
    if 0 in filter.shape[2:]:
        raise InvalidDesc(Problem("filter", "must have elements in each dimension of space", f"shape {filter.shape}"))
    channels = input.shape[1]
    if channels % group_count:
        rule = f"must divide the {channels} channels of input"
        raise InvalidDesc(Problem("group_count", rule, group_count))
    if is_forward:
        if filter.shape[1] != channels // group_count:
            rule = f"must have {channels // group_count} input channels along axis 1, those of one group"
            raise InvalidDesc(Problem("filter", rule, f"shape {filter.shape}"))
        if filter.shape[0] % group_count:
            rule = f"must have a multiple of {group_count} output channels along axis 0, as many for each group"
            raise InvalidDesc(Problem("filter", rule, f"shape {filter.shape}"))
        return filter.shape[0]
    if filter.shape[0] != channels:
        rule = f"must have the {channels} channels of input along axis 0, in the direction BACKWARD"
        raise InvalidDesc(Problem("filter", rule, f"shape {filter.shape}"))
    return filter.shape[1] * group_count


def _require_room(windows: Sequence[Window], *, is_forward: bool) -> None:
    for i, one in enumerate(windows):
        if is_forward and one.extent > one.padded_size:
            extent = f"the extent of filter along axis {i + 2}, 1 + (size - 1) * dilations[{i}],"
            raise InvalidDesc(Problem((), f"{extent} must be at most {one.padded_size}, the padded size", one.extent))
        if not is_forward and one.input_size < 1:
            rule = "must leave elements of the result"
            raise InvalidDesc(
                Problem(("start_padding", i), rule, f"{one.start_padding}, and {one.input_size} elements")
            )


def _require_sizes(sizes: Sequence[int], least: Sequence[int], more: Sequence[int]) -> None:
    """Refuses `output_sizes` that are less than `least`, or exceed that by more than `more`."""
    if len(sizes) != len(least) or any(
        not low <= size <= low + extra for size, low, extra in zip(sizes, least, more, strict=True)
    ):
        most = tuple(low + extra for low, extra in zip(least, more, strict=True))
        rule = f"must be {tuple(least)}" + (f", or up to {most}" if any(more) else "")
        raise InvalidDesc(Problem("output_sizes", rule, tuple(sizes)))
    for i, size in enumerate(sizes):
        check_size(("result", "shape", i), size, 0)


def _of_channels(where: str, given: ArrayLike, channels: int, input: Array) -> Array:
    """What has a number for each output channel, in a shape that broadcasts to the result."""
    array = calls.number_array(where, given)
    flat = (1, channels, *(1 for _ in input.shape[2:]))
    if array.shape not in ((channels,), flat):
        rule = f"must have the shape {(channels,)} or {flat}, one number for each output channel"
        raise InvalidDesc(Problem(where, rule, array.shape))
    return array.reshape(flat)


def _partitioned(
    compute: Callable[..., Array], input: Array, filter: Array, sizes: Sequence[int], *others: Array, is_forward: bool
) -> Array:
    batch, _, *space = axes = dimension_axes(input)
    filter_axes = dimension_axes(filter)
    # A backward filter's output channels are those of a group, which are no dimension of the result.
    channels = dividing_axes(filter_axes[0], sizes[1], filter) if is_forward else None
    kept = [dividing_axes(one, size, input) for one, size in zip(space, sizes[2:], strict=True)]
    operands = [(input, axes), (filter, filter_axes), *((one, dimension_axes(one)) for one in others)]
    return partitioned(compute, operands, [batch, channels, *kept])


class _Convolution(dml.Operator):
    """The rules that convolutions share: `self` has the members that they name."""

    @property
    def _is_forward(self) -> bool:
        return getattr(self, "direction", FORWARD) is FORWARD

    @property
    def _has_space(self: Any) -> bool:
        return bool(3 <= self.input.rank == self.filter.rank == self.output.rank <= 5)  # the support table reports it

    @property
    def _appended(self: Any) -> Sequence[int]:
        return getattr(self, "output_padding", (0,) * len(self.strides))

    @property
    def _output_channels(self: Any) -> int:
        channels: int = self.filter.sizes[0] if self._is_forward else self.filter.sizes[1] * self.group_count
        return channels

    def _misfits_of_channels(self: Any) -> Iterator[Problem]:
        if not self._has_space or any(_STEPS.check(self)):
            return
        channels, filter = self.input.sizes[1], self.filter.sizes
        if self.group_count == 0 or channels % self.group_count:
            yield Problem("GroupCount", f"must divide the {channels} channels of InputTensor", self.group_count)
            return
        wanted = {1: channels // self.group_count} if self._is_forward else {0: channels}
        for axis, size in wanted.items():
            if filter[axis] != size:
                yield Problem(("FilterTensor", "Sizes", axis), f"must be {size}", filter[axis])
        if self._is_forward and filter[0] % self.group_count:
            rule = f"must be a multiple of {self.group_count}, GroupCount"
            yield Problem(("FilterTensor", "Sizes", 0), rule, filter[0])

    @property
    def _has_channels(self: Any) -> bool:
        return self._has_space and not any((*_STEPS.check(self), *self._misfits_of_channels()))

    def _misfits_of_bias(self: Any) -> Iterator[Problem]:
        if self.bias is not None and self._has_channels:
            yield from dml.sizes_are(self, "bias", (1, self._output_channels, *(1 for _ in self.input.sizes[2:])))

    def _steps(self: Any) -> Steps:
        return Steps(self.filter.sizes[2:], self.strides, self.dilations, self.start_padding, self.end_padding)

    def _misfits_of_output(self: Any) -> Iterator[Problem]:
        if self._has_channels:
            yield from (self._forward_misfits if self._is_forward else self._backward_misfits)()

    def _forward_misfits(self: Any) -> Iterator[Problem]:
        windows = self._steps().over(self.input.sizes[2:])
        fits = True
        for i, one in enumerate(windows):
            if one.extent > one.padded_size:
                extent = f"1 + (Sizes[{i + 2}] - 1) * Dilations[{i}]"
                rule = f"must keep {extent} at most {one.padded_size}, the padded size"
                yield Problem(("FilterTensor", "Sizes", i + 2), rule, one.extent)
                fits = False
        if fits:
            space = (one.blocks + more for one, more in zip(windows, self._appended, strict=True))
            yield from dml.sizes_are(self, "output", (self.input.sizes[0], self.filter.sizes[0], *space))

    def _backward_misfits(self: Any) -> Iterator[Problem]:
        windows = self._steps().onto(self.input.sizes[2:], self.output_padding)
        least = (self.input.sizes[0], self._output_channels, *(one.input_size for one in windows))
        most = (*least[:2], *(one.input_size + one.stride - 1 for one in windows))
        sizes = self.output.sizes
        if any(not max(low, 1) <= size <= high for low, size, high in zip(least, sizes, most, strict=True)):
            rule = f"must be {join_sizes(least)}" + (f", or up to {join_sizes(most)}" if most != least else "")
            yield Problem(("OutputTensor", "Sizes"), rule, join_sizes(sizes))


def _steps_rule(*more: str) -> dml.Rule:
    names = ("strides", "dilations", "start_padding", "end_padding", *more)

    def check(desc: Any) -> Iterator[Problem]:
        if desc._has_space:
            yield from dml.spatial_rules(desc, "input", *names)

    each = "one number for each dimension of InputTensor after the first two, batch and channels"
    return dml.Rule(f"{dml.named(names)} have {each}; no stride or dilation is 0.", check)


_STEPS = _steps_rule()
_CHANNELS = dml.Rule(
    "GroupCount divides the channels of InputTensor. FilterTensor.Sizes begin with the output channels, a multiple of "
    "GroupCount, and the input channels of a group.",
    _Convolution._misfits_of_channels,
)
_BIAS = dml.Rule(
    "BiasTensor.Sizes are 1, the output channels, and 1 for each dimension of space.", _Convolution._misfits_of_bias
)
_OUTPUT = dml.Rule(
    "The windows have room in the padded InputTensor. OutputTensor.Sizes follow from the others.",
    _Convolution._misfits_of_output,
)


class ConvolutionDesc(_Convolution, function=convolution):
    input: dml.Input
    filter: dml.Input
    bias: dml.OptionalInput = None
    output: dml.Output
    mode: dml.Orientation
    direction: dml.Propagation
    strides: dml.UintDimensions
    dilations: dml.UintDimensions
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    output_padding: dml.UintDimensions
    group_count: dml.Uint
    fused_activation: dml.FusedActivation = None
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4_TO_5, input=FLOAT, filter=FLOAT, bias=FLOAT, output=FLOAT),
        FL_4_0=dml.rows(dml.RANK_3_TO_5, input=FLOAT, filter=FLOAT, bias=FLOAT, output=FLOAT),
    )
    rules = dml.page_rules(
        dml.same_type("input", "filter", "bias", "output"),
        dml.same_rank("input", "filter", "bias", "output"),
        dml.FUSED_ACTIVATION,
        _steps_rule("output_padding"),
        dml.Rule(
            f"{_CHANNELS.sentence} In the direction BACKWARD, they begin with the input channels and the output "
            "channels of a group.",
            _CHANNELS.check,
        ),
        _BIAS,
        dml.Rule(
            f"{_OUTPUT.sentence} In the direction BACKWARD, a dimension of space may be larger by less than a stride.",
            _OUTPUT.check,
        ),
    )


# CONVOLUTION_INTEGER


@calls.operator_function(**_GROUPS_AND_STEPS)
def convolution_integer(
    input: ArrayLike,
    input_zero_point: ArrayLike | None,
    filter: ArrayLike,
    filter_zero_point: ArrayLike | None = None,
    *,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    group_count: int = 1,
) -> Array:
    """Computes the convolution of an image of int8 or uint8 with filters of int8 or uint8, exactly in int32.

    A zero point is subtracted from each element of `input`, and one from each of `filter`, or one for each output
    channel. The padding is the zero point of `input`, so that it adds nothing. Filters are not flipped. Sums that
    int32 cannot hold, which are of more than 33,025 products, wrap around.

    >>> image, filter = jnp.array([[[0, 255, 7]]], "uint8"), jnp.array([[[-128, 127]]], "int8")
    >>> convolution_integer(image, jnp.array(7, "uint8"), filter).tolist()
    [[[32392, -31744]]]
    """
    parts = _integer_parts(
        input, input_zero_point, filter, filter_zero_point, strides, dilations, start_padding, end_padding, group_count
    )
    return parts.computed(sum)


class _Products(NamedTuple):
    """The convolution of integers without their zero points, and how its result is sharded."""

    input: Array
    filter: Array
    windows: tuple[Window, ...]
    group_count: int
    largest: tuple[int, int]

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.input.shape[0], self.filter.shape[0], *(one.blocks for one in self.windows))

    def computed(self, finish: Callable[..., Array], *others: Array) -> Array:
        """What `finish` makes of the parts, to be added up, and of other arrays that broadcast to the result."""

        def compute(input: Array, filter: Array, *others: Array) -> Array:
            return finish(integer_correlated(input, filter, self.windows, self.group_count, self.largest), *others)

        return _partitioned(compute, self.input, self.filter, self.sizes, *others, is_forward=True)


def _integer_parts(
    input: ArrayLike,
    input_zero_point: ArrayLike | None,
    filter: ArrayLike,
    filter_zero_point: ArrayLike | None,
    strides: calls.EachDimension,
    dilations: calls.EachDimension,
    start_padding: calls.EachDimension,
    end_padding: calls.EachDimension,
    group_count: int,
) -> _Products:
    image, weights = _bytes("input", input), _bytes("filter", filter)
    _require_space("input", image)
    if group_count < 1:
        raise InvalidDesc(Problem("group_count", "must be at least 1", group_count))
    channels = _require_channels(image, weights, group_count, is_forward=True)
    steps = checked_steps(weights.shape[2:], strides, dilations, start_padding, end_padding)
    windows = steps.over(image.shape[2:])
    _require_room(windows, is_forward=True)
    image, of_image = _without_zero("input_zero_point", image, input_zero_point, (1,) * image.ndim)
    of_filters = (channels, *(1 for _ in weights.shape[1:]))
    weights, of_filter = _without_zero("filter_zero_point", weights, filter_zero_point, of_filters)
    return _Products(image, weights, windows, group_count, (of_image, of_filter))


def _bytes(where: str, given: ArrayLike) -> Array:
    array = calls.integer_array(where, given)
    if array.dtype.itemsize > 1:
        raise InvalidType(Problem(where, "must be of int8 or uint8", array.dtype))
    return array


def _without_zero(where: str, given: Array, zero: ArrayLike | None, sizes: tuple[int, ...]) -> tuple[Array, int]:
    """The float32 differences of `given` and its zero point, which has `sizes` or one element, and the largest."""
    if zero is None:
        return given.astype(np.float32), 128 if given.dtype == np.int8 else 255
    point = calls.integer_array(where, zero)
    calls.require_type(where, point, given.dtype, where.removesuffix("_zero_point"))
    return given.astype(np.float32) - _quantized_by(where, point, sizes).astype(np.float32), 255


def _quantized_by(where: str, given: Array, sizes: tuple[int, ...]) -> Array:
    """A scale or zero point in a shape that broadcasts to `sizes`, of which at most one, of channels, is not 1."""
    channels = max(sizes)
    forms = [(channels,), *((1, channels, *(1,) * more) for more in range(4))]
    if given.size == 1:
        return given.reshape((1,) * len(sizes))
    if given.shape not in forms or channels == 1:
        of_each = "" if channels == 1 else f", or {channels} in the shape {(channels,)} or {(1, channels)}, then 1s"
        raise InvalidDesc(Problem(where, f"must have one element{of_each}", f"shape {given.shape}"))
    return given.reshape(sizes)


def _single(*fields: str) -> dml.Rule:
    """The tensors `fields`, if they are present, have one element."""

    def check(desc: Any) -> Iterator[Problem]:
        for field in fields:
            tensor = getattr(desc, field)
            if tensor is not None and tensor.element_count != 1:
                yield Problem((desc.member(field).name, "Sizes"), "must be 1 each", join_sizes(tensor.sizes))

    return dml.Rule(f"{dml.named(fields)} {'has' if len(fields) == 1 else 'have'} one element.", check)


def _of_filters(*fields: str) -> dml.Rule:
    """The tensors `fields`, if they are present, have one element, or one for each output channel."""

    def check(desc: Any) -> Iterator[Problem]:
        channels = desc.filter.sizes[0]
        for field in fields:
            tensor = getattr(desc, field)
            if tensor is None or tensor.element_count == 1:
                continue
            wanted = (channels,) if tensor.rank == 1 else (1, channels, *(1,) * (tensor.rank - 2))
            if tensor.sizes != wanted:
                rule = f"must be 1 each, or {join_sizes(wanted)}"
                yield Problem((desc.member(field).name, "Sizes"), rule, join_sizes(tensor.sizes))

    have = "has" if len(fields) == 1 else "have"
    return dml.Rule(f"{dml.named(fields)} {have} one element, or one for each output channel.", check)


_OF_INTEGERS = dml.page_rules(
    dml.same_type("input", "input_zero_point"), dml.same_type("filter", "filter_zero_point"), _STEPS, _CHANNELS, _OUTPUT
)


class ConvolutionIntegerDesc(_Convolution, function=convolution_integer):
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
    support = dml.support(
        FL_2_1=dml.rows(
            dml.RANK_4,
            input=INTEGER_8,
            input_zero_point=INTEGER_8,
            filter=INTEGER_8,
            filter_zero_point=INTEGER_8,
            output=INT32,
        ),
        FL_4_0=dml.rows(
            dml.RANK_3_TO_4,
            input=INTEGER_8,
            input_zero_point=dml.Cell(dml.RANK_1_TO_4, INTEGER_8),
            filter=INTEGER_8,
            filter_zero_point=dml.Cell(dml.RANK_1_TO_4, INTEGER_8),
            output=INT32,
        ),
    )
    rules = dml.page_rules(
        dml.same_rank("input", "filter", "output"),
        dml.same_rank("input_zero_point", "filter_zero_point"),
        _single("input_zero_point"),
        _of_filters("filter_zero_point"),
        *_OF_INTEGERS,
    )


# QUANTIZED_LINEAR_CONVOLUTION


@calls.operator_function(**_GROUPS_AND_STEPS, dtype=calls.DTYPE)
def quantized_linear_convolution(
    input: ArrayLike,
    input_scale: ArrayLike,
    input_zero_point: ArrayLike | None,
    filter: ArrayLike,
    filter_scale: ArrayLike,
    filter_zero_point: ArrayLike | None,
    bias: ArrayLike | None,
    output_scale: ArrayLike,
    output_zero_point: ArrayLike | None = None,
    *,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    group_count: int = 1,
    dtype: DTypeLike | None = None,
) -> Array:
    """Computes the convolution of a quantized image with quantized filters, and quantizes it.

    The convolution of the dequantized arrays, plus `bias` of int32, one for each output channel, is rounded once, to
    float32: its sums of integers are exact. Then it is quantized as in `element_wise_quantize_linear`: divided by
    `output_scale`, rounded, halves to the nearest even integer, and saturated to the range of the output's type. That
    type is `dtype`, otherwise that of `output_zero_point`, otherwise that of `input`. The scale and the zero point of
    `filter` are one number, or one for each output channel.

    >>> image, filter = jnp.array([[[10, 20, 250]]], "uint8"), jnp.array([[[1, 2]]], "int8")
    >>> quantized_linear_convolution(
    ...     image, 0.5, jnp.array(10, "uint8"), filter, 1.0, None, jnp.array([1], "int32"), 1.0
    ... ).tolist()
    [[[10, 246]]]
    """
    parts = _integer_parts(
        input, input_zero_point, filter, filter_zero_point, strides, dilations, start_padding, end_padding, group_count
    )
    channels, default = parts.filter.shape[0], calls.integer_array("input", input).dtype
    scales = [calls.float_array("input_scale", input_scale), calls.float_array("filter_scale", filter_scale)]
    wide = np.promote_types(*map(type_of_scale, scales))
    flat = (1, channels, *(1 for _ in parts.windows))
    of_input = _quantized_by("input_scale", scales[0], (1,) * len(flat)).astype(wide)
    of_filter = _quantized_by("filter_scale", scales[1], flat).astype(wide)
    output_scale = _quantized_by("output_scale", calls.float_array("output_scale", output_scale), (1,) * len(flat))
    others = [of_input, of_filter, output_scale]
    zero = None
    if output_zero_point is not None:
        zero = calls.integer_array("output_zero_point", output_zero_point)
        others.append(_quantized_by("output_zero_point", zero, (1,) * len(flat)))
    if bias is not None:
        others.append(_of_channels("bias", _int32("bias", bias), channels, parts.input))

    def finish(parts: Sequence[Array], of_input: Array, of_filter: Array, output_scale: Array, *more: Array) -> Array:
        rest = list(more)
        point = None if zero is None else rest.pop(0)
        value = scaled(exact_sum([*parts, *rest], wide), of_input, of_filter)
        return quantized("output", value, output_scale, point, dtype, default)

    return parts.computed(finish, *others)


def _int32(where: str, given: ArrayLike) -> Array:
    array = calls.integer_array(where, given)
    if array.dtype != np.int32:
        raise InvalidType(Problem(where, "must be of int32", array.dtype))
    return array


def _quantized_table(images: range, numbers: range, filter_scale: range) -> dml.Table:
    scale, zero_point = dml.Cell(numbers, ONLY_FLOAT32), dml.Cell(numbers, INTEGER_8)
    return dml.rows(
        images,
        input=INTEGER_8,
        input_scale=scale,
        input_zero_point=zero_point,
        filter=INTEGER_8,
        filter_scale=dml.Cell(filter_scale, ONLY_FLOAT32),
        filter_zero_point=zero_point,
        bias=INT32,
        output_scale=scale,
        output_zero_point=zero_point,
        output=INTEGER_8,
    )


class QuantizedLinearConvolutionDesc(_Convolution, function=quantized_linear_convolution):
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
    support = dml.support(
        FL_2_1=_quantized_table(dml.RANK_4, dml.RANK_4, dml.RANK_4),
        FL_4_0=_quantized_table(dml.RANK_3_TO_4, dml.RANK_1_TO_4, dml.RANK_3_TO_4),
        FL_5_2=_quantized_table(dml.RANK_3_TO_4, dml.RANK_1_TO_4, dml.RANK_1_TO_4),
    )
    rules = dml.page_rules(
        dml.same_rank("input", "filter", "bias", "output"),
        dml.same_type("output", "output_zero_point"),
        _single("input_scale", "input_zero_point", "output_scale", "output_zero_point"),
        _of_filters("filter_scale", "filter_zero_point"),
        _BIAS,
        *_OF_INTEGERS,
    )
