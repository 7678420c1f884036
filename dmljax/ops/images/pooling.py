"""Pooling: averages, norms and maxima of windows that slide over an image, with gradients and inverses.

The dimensions of an image are batch, channels and the spatial dimensions: two or three in the descriptors, and one or
more in the functions. 16-bit floats are computed in float32 and rounded once; a largest element is copied bit for bit.
On an explicit mesh, results are sharded along batch and channels like the image.

Args:
    input: Images, (batch, channels, spatial dimensions).
    ceil_mode: Whether trailing elements that do not fill a window get one of their own.
    include_padding: Whether the padding counts in the average.
    p: Exponent of the norm, at least 1.
    has_indices: Whether to compute the indices.
    dtype: Integer type of the indices.

Returns:
    Array of (batch, channels, windows along each spatial dimension), in the type of `input`.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.calls.windows import WindowPlan, fit_windows
from dmljax.descriptors.tensor import without_leading_ones
from dmljax.errors import InvalidType, Problem, require
from dmljax.foundation.checks import require_count
from dmljax.foundation.dimensions import largest_size
from dmljax.foundation.sharding import MeshAxes, call_with_auto_axes, dimension_axes, dividing_axes
from dmljax.foundation.sizes import Sizes, argument_name, require_image, require_one_each, require_sizes, spell_sizes
from dmljax.lowerings.copies import check_sizes
from dmljax.lowerings.images import pooling
from dmljax.lowerings.images.channels import choose_layout
from dmljax.lowerings.images.windows import Window
from dmljax.lowerings.workarounds import product, quotient
from dmljax.ops.data.gathering import scatter_checked
from dmljax.ops.elementwise.quantization import ZeroPointOfInput, ZeroPointOfOutputLikeInput, quantize_rounded
from dmljax.types import (
    FLOAT,
    INTEGER_8,
    INTEGER_64,
    ONLY_FLOAT32,
    UINT32,
    UINT32_OR_64,
    UP_TO_32_BIT,
    widened,
)


class _Plan(NamedTuple):
    """Windows over an image, with and without what `ceil_mode` adds to them, and the sizes of the result."""

    windows: tuple[Window, ...]
    without_ceil: tuple[Window, ...]
    sizes: Sizes


def _plan(
    input: Sizes,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
) -> _Plan:
    require_image("input", input)
    without_ceil = fit_windows("input", input, window_sizes, strides, dilations, start_padding, end_padding)
    windows = tuple(window.rounded_up for window in without_ceil) if ceil_mode else without_ceil
    sizes = pooling.pooled_sizes(input, windows)
    check_sizes(sizes)
    return _Plan(windows, without_ceil, sizes)


# Averages


@calls.operator_function
def average_pooling(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
    include_padding: bool = False,
) -> Array:
    """Averages the elements of each window of an NCHW image, or of an array of one or more spatial dimensions.

    Trailing elements that do not fill a window are dropped; with `ceil_mode`, they get a window that ends with the
    padding. The padding is 0. With `include_padding`, padding counts in the average; otherwise a window is divided by
    the number of its elements that belong to the input.

    Use `average_pooling1` for dilations.

    >>> row = jnp.array([[[2.0, 4.0, 6.0]]])
    >>> average_pooling(row, window_sizes=2, start_padding=1).tolist()
    [[[2.0, 3.0, 5.0]]]
    >>> average_pooling(row, window_sizes=2, start_padding=1, include_padding=True).tolist()
    [[[1.0, 3.0, 5.0]]]
    """
    image = calls.float_array("input", input)
    plan = _plan(image.shape, window_sizes, strides, 1, start_padding, end_padding, ceil_mode)
    return _average_pool(image, plan, include_padding)


@calls.operator_function
def average_pooling1(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
    include_padding: bool = False,
) -> Array:
    """Averages the elements of each window of an NCHW image, which are `dilations` apart.

    Everything else is as in `average_pooling`.

    >>> average_pooling1(
    ...     jnp.array([[[2.0, 4.0, 6.0, 8.0]]]), window_sizes=2, dilations=2
    ... ).tolist()
    [[[4.0, 6.0]]]
    """
    image = calls.float_array("input", input)
    plan = _plan(image.shape, window_sizes, strides, dilations, start_padding, end_padding, ceil_mode)
    return _average_pool(image, plan, include_padding)


def _average_pool(image: Array, plan: _Plan, include_padding: bool) -> Array:
    counts_padding = include_padding and plan.windows != plan.without_ceil

    def average(image: Array, windows: Sequence[Window]) -> Array:
        # Count the requested padding, but not what windows reach beyond it.
        divisors = tuple(map(Window.after_padding, windows, plan.without_ceil)) if counts_padding else windows
        total = pooling.window_sums(image.astype(widened(image.dtype)), windows)
        return _divide(total, divisors, include_padding and not counts_padding).astype(image.dtype)

    return _pool(average, image, plan.windows)


def _pool(function: Callable[[Array, Sequence[Window]], Array], image: Array, windows: Sequence[Window]) -> Array:
    """Applies `function` to the windows of the image, on any mesh."""

    def pool(image: Array) -> Array:
        if all(window.is_whole for window in windows):
            return reduce_windows(image)
        return choose_layout(reduce_windows, reduce_windows_before_channels, image)

    def reduce_windows(image: Array) -> Array:
        return function(*_flatten(image, windows)).reshape(pooling.pooled_sizes(image.shape, windows))

    def reduce_windows_before_channels(image: Array) -> Array:
        # The batch and one more dimension come before those of the windows; those after them stay whole.
        return jnp.squeeze(reduce_windows(jnp.expand_dims(image, 1)), 1)

    axes = dimension_axes(image)
    return call_with_auto_axes(pool, [(image, axes)], _batch_and_channel_axes(axes))


def _flatten(image: Array, windows: Sequence[Window]) -> tuple[Array, Sequence[Window]]:
    """Flattens the image and its windows to one spatial dimension, if a single window has all elements.

    Reducing one dimension takes half as long as reducing several.
    """
    if not all(window.is_whole for window in windows):
        return image, windows
    size = math.prod(window.size for window in windows)
    return image.reshape(*image.shape[:2], size), (Window(size, size, 1, 1, 0, 0),)


def _divide(total: Array, windows: Sequence[Window], include_padding: bool) -> Array:
    counts = pooling.element_counts(windows, total.ndim, total.dtype, include_padding=include_padding)
    return quotient(total, jnp.broadcast_to(counts, total.shape))


def _batch_and_channel_axes(axes: Sequence[MeshAxes]) -> list[MeshAxes]:
    """The mesh axes of a pooled image, or of its gradient: those of batch and channels."""
    return [*axes[:2], *(None for _ in axes[2:])]


def _average_pooling_grad_sizes(
    input_gradient: Sizes,
    output_sizes: Sizes,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension,
    start_padding: calls.EachDimension,
    end_padding: calls.EachDimension,
) -> WindowPlan:
    require_one_each("output_sizes", output_sizes, "input_gradient", len(input_gradient))
    require_image("input_gradient", input_gradient)
    check_sizes(output_sizes)
    windows = fit_windows("output_sizes", output_sizes, window_sizes, strides, 1, start_padding, end_padding)
    expected = pooling.pooled_sizes(output_sizes, windows)
    require_sizes("input_gradient", input_gradient, expected, why=_FOR_EACH_WINDOW)
    return WindowPlan(windows, output_sizes)


_FOR_EACH_WINDOW = ", one element for each window"


@calls.operator_function
def average_pooling_grad(
    input_gradient: ArrayLike,
    *,
    output_sizes: Sequence[int],
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    include_padding: bool = False,
) -> Array:
    """Computes the gradient of `average_pooling` from the gradient of its result.

    Each element is the sum of the gradients of its windows, each divided by the number of elements that the window
    averages.

    Args:
        output_sizes: Shape of the result, which is the shape of the images that were averaged.

    Returns:
        Gradient with respect to the images.

    >>> average_pooling_grad(
    ...     jnp.array([[[2.0, 4.0]]]), output_sizes=(1, 1, 3), window_sizes=2
    ... ).tolist()
    [[[1.0, 3.0, 2.0]]]
    """
    gradient = calls.float_array("input_gradient", input_gradient)
    sizes = tuple(output_sizes)
    windows = _average_pooling_grad_sizes(
        gradient.shape, sizes, window_sizes, strides, start_padding, end_padding
    ).windows

    def spread(gradient: Array) -> Array:
        wide = gradient.astype(widened(gradient.dtype))
        total = pooling.spread_sums(_divide(wide, windows, include_padding), windows)
        return total.astype(gradient.dtype)

    axes = dimension_axes(gradient)
    return call_with_auto_axes(spread, [(gradient, axes)], _batch_and_channel_axes(axes))


# Norms


@calls.operator_function
def lp_pooling(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
    p: int = 2,
) -> Array:
    """Computes the `p`-norm of each window of an NCHW image: the sum of magnitudes to the power `p`, to the power 1/p.

    Trailing elements that do not fill a window are dropped; with `ceil_mode`, they get a window that ends with the
    padding. The padding is 0. The powers of float32 elements may overflow. The gradient is 0 where the norm is 0.

    Use `lp_pooling1` for dilations.

    >>> lp_pooling(jnp.array([[[3.0, -4.0, 0.0]]]), window_sizes=2).tolist()
    [[[5.0, 4.0]]]
    """
    image = calls.float_array("input", input)
    plan = _plan(image.shape, window_sizes, strides, 1, start_padding, end_padding, ceil_mode)
    return _lp_pool(image, plan, p)


@calls.operator_function
def lp_pooling1(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
    p: int = 2,
) -> Array:
    """Computes the `p`-norm of each window of an NCHW image, whose elements are `dilations` apart.

    The norm is the sum of the magnitudes to the power `p`, to the power 1/p.

    Everything else is as in `lp_pooling`.

    >>> lp_pooling1(
    ...     jnp.array([[[3.0, 1.0, -4.0]]]), window_sizes=2, dilations=2, p=1
    ... ).tolist()
    [[[7.0]]]
    """
    image = calls.float_array("input", input)
    plan = _plan(image.shape, window_sizes, strides, dilations, start_padding, end_padding, ceil_mode)
    return _lp_pool(image, plan, p)


def _lp_pool(image: Array, plan: _Plan, p: int) -> Array:
    require_count("p", p, 1)
    norms = lambda image, windows: pooling.window_norms(image, windows, p).astype(image.dtype)  # noqa: E731
    return _pool(norms, image, plan.windows)


# The largest elements


@calls.result
class MaxPooling(NamedTuple):
    """The result of `max_pooling1` and `max_pooling2`: the largest elements, and their indices in the flattened image.

    >>> values, indices = max_pooling1(jnp.array([[[1, 5, 3]]]), window_sizes=2)
    >>> values.tolist(), indices.tolist()
    ([[[5, 5]]], [[[1, 1]]])
    """

    values: Array
    indices: Any  # an array, or None without `has_indices`


@functools.wraps(_plan)
def _plan_max_pooling(*arguments: Any, **keywords: Any) -> _Plan:
    plan = _plan(*arguments, **keywords)
    # The pages do not say what the largest of no elements is.
    for i, window in enumerate(plan.windows):
        rule = f"must cover an element of {argument_name('input')} at every position of the window"
        require(("window_sizes", i), not window.misses_input, rule, window.size)
    return plan


def _max_pooling_grad_sizes(
    input: Sizes,
    input_gradient: Sizes,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension,
    dilations: calls.EachDimension,
    start_padding: calls.EachDimension,
    end_padding: calls.EachDimension,
) -> WindowPlan:
    windows, _, expected = _plan_max_pooling(input, window_sizes, strides, dilations, start_padding, end_padding)
    require_sizes("input_gradient", input_gradient, expected, why=_FOR_EACH_WINDOW)
    return WindowPlan(windows, input)


@calls.operator_function
def max_pooling(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
) -> Array:
    """Selects the largest element of each window of an NCHW image, or of an array of one or more spatial dimensions.

    Trailing elements that do not fill a window are dropped; with `ceil_mode`, they get a window that ends with the
    padding. The padding is never selected, and each window must have an element of the input. NaN is larger than every
    number, -0 equals +0, and subnormal numbers are not flushed to zero. Elements are copied bit for bit. Among equal
    elements, the first in row-major order is selected, and gets the gradient.

    Use `max_pooling2` for indices or dilations.

    >>> max_pooling(
    ...     jnp.array([[[-3.0, -1.0, -2.0]]]), window_sizes=2, strides=2, end_padding=1
    ... ).tolist()
    [[[-1.0, -2.0]]]
    """
    image = calls.real_array("input", input)
    plan = _plan_max_pooling(image.shape, window_sizes, strides, 1, start_padding, end_padding, ceil_mode)
    return _pool(pooling.largest_elements, image, plan.windows)


@calls.operator_function
def max_pooling1(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
    has_indices: bool = True,
    dtype: calls.IntegerDType = jnp.int32,
) -> MaxPooling:
    """Selects the largest element of each window of an NCHW image, and returns the elements and their indices.

    Indices refer to the flattened image, all batches and channels included; `max_unpooling` takes them. Without
    `has_indices`, they are None.

    Everything else is as in `max_pooling`.

    Use `max_pooling2` for dilations.

    Returns:
        The largest elements, (batch, channels, windows along each spatial dimension), and their indices.

    >>> values, indices = max_pooling1(jnp.array([[[1, 5, 3], [7, 7, 6]]]), window_sizes=2)
    >>> values.tolist(), indices.tolist()
    ([[[5, 5], [7, 7]]], [[[1, 1], [3, 4]]])
    """
    image = calls.real_array("input", input)
    plan = _plan_max_pooling(image.shape, window_sizes, strides, 1, start_padding, end_padding, ceil_mode)
    return _max_pool(image, plan, dtype if has_indices else None)


@calls.operator_function
def max_pooling2(
    input: ArrayLike,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    ceil_mode: bool = False,
    has_indices: bool = True,
    dtype: calls.IntegerDType = jnp.int32,
) -> MaxPooling:
    """Selects the largest element of each window of an NCHW image, whose elements are `dilations` apart, and its index.

    Everything else is as in `max_pooling1`.

    >>> values, indices = max_pooling2(
    ...     jnp.array([[[1, 5, 3, 4]]]), window_sizes=2, dilations=2
    ... )
    >>> values.tolist(), indices.tolist()
    ([[[3, 5]]], [[[2, 1]]])
    """
    image = calls.real_array("input", input)
    plan = _plan_max_pooling(image.shape, window_sizes, strides, dilations, start_padding, end_padding, ceil_mode)
    return _max_pool(image, plan, dtype if has_indices else None)


def _max_pool(image: Array, plan: _Plan, dtype: Any) -> MaxPooling:
    """The largest elements, and their indices in `dtype`; without a type, no indices."""
    if dtype is None:
        return MaxPooling(_pool(pooling.largest_elements, image, plan.windows), None)
    calls.require_holds(dtype, "indices", largest_size(image.size) - 1)

    def pool_with_indices(image: Array) -> tuple[Array, Array]:
        results = pooling.largest_with_indices(*_flatten(image, plan.windows), dtype)
        values, indices = (x.reshape(pooling.pooled_sizes(image.shape, plan.windows)) for x in results)
        return values, indices

    axes = dimension_axes(image)
    return MaxPooling(
        *call_with_auto_axes(
            pool_with_indices, [(image, axes)], _batch_and_channel_axes(axes), _batch_and_channel_axes(axes)
        )
    )


@calls.operator_function
def max_pooling_grad(
    input: calls.Operand,
    input_gradient: calls.Operand,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
) -> Array:
    """Computes the gradient of `max_pooling2` from its input and the gradient of its values.

    Each element of `input_gradient` is added where `max_pooling2` selects an element of `input`, the first among
    equals; elements that no window selects are 0. Sums of 16-bit floats are rounded once.

    Args:
        input: What `max_pooling2` took.

    Returns:
        Gradient with respect to `input`.

    >>> max_pooling_grad(
    ...     jnp.array([[[1.0, 3.0, 2.0]]]), jnp.array([[[4.0, 5.0]]]), window_sizes=2
    ... ).tolist()
    [[[0.0, 9.0, 0.0]]]
    """
    gradient = calls.float_array("input_gradient", input_gradient)
    input = calls.float_array("input", input)
    calls.require_type("input_gradient", gradient, input.dtype, "input")
    windows, _ = _max_pooling_grad_sizes(
        input.shape, gradient.shape, window_sizes, strides, dilations, start_padding, end_padding
    )

    def spread(input: Array, gradient: Array) -> Array:
        flat, flat_windows = _flatten(input, windows)
        wide = gradient.astype(widened(gradient.dtype)).reshape(pooling.pooled_sizes(flat.shape, flat_windows))
        return pooling.spread_to_largest(wide, flat, flat_windows).astype(gradient.dtype).reshape(input.shape)

    axes = dimension_axes(input)
    return call_with_auto_axes(
        spread, [(input, axes), (gradient, _batch_and_channel_axes(axes))], _batch_and_channel_axes(axes)
    )


def _unpooling_sizes(input: Sizes, indices: Sizes, output_sizes: Sizes) -> Sizes:
    require_sizes("indices", indices, input, of="input")
    require_one_each("output_sizes", output_sizes, "input", len(input))
    check_sizes(output_sizes)
    return output_sizes


@calls.operator_function
def max_unpooling(input: ArrayLike, indices: ArrayLike, *, output_sizes: Sequence[int]) -> Array:
    """Puts each element at its index in a flattened array of zeros: the inverse of `max_pooling1`.

    Indices refer to the flattened result, all batches and channels included; an index that is out of range writes
    nothing. Elements with the same index should be equal, as in a result of `max_pooling1`: the last gets the gradient,
    and on a CPU it wins; a GPU and a TPU may write any of them.

    Args:
        input: Elements to put into the result.
        indices: Positions in the flattened result, in the shape of `input`; a negative one counts from the end.

    Returns:
        Array of the shape `output_sizes`, in the type of `input`.

    >>> values, indices = max_pooling1(
    ...     jnp.array([[[1, 5, 3, 4]]]), window_sizes=2, strides=2
    ... )
    >>> max_unpooling(values, indices, output_sizes=(1, 1, 4)).tolist()
    [[[0, 5, 0, 4]]]
    """
    values, indices = calls.real_array("input", input), calls.integer_array("indices", indices)
    sizes = _unpooling_sizes(values.shape, indices.shape, tuple(output_sizes))

    def put(values: Array, indices: Array) -> Array:
        zeros = jnp.zeros_like(values, shape=sizes).ravel()
        return scatter_checked(zeros, indices.ravel(), values.ravel(), 0, "any").reshape(sizes)

    axes = dimension_axes(values)
    space_axes = [
        dividing_axes(mesh_axes, size, values)
        for mesh_axes, size in zip(_batch_and_channel_axes(axes), sizes, strict=True)
    ]
    return call_with_auto_axes(put, [(values, axes), (indices, axes)], space_axes)


# QUANTIZED_LINEAR_AVERAGE_POOLING


@calls.operator_function
def quantized_linear_average_pooling(
    input: ArrayLike,
    input_scale: calls.Float,
    input_zero_point: ZeroPointOfInput | None,
    output_scale: calls.Float,
    output_zero_point: ZeroPointOfOutputLikeInput | None = None,
    *,
    window_sizes: calls.EachDimension,
    strides: calls.EachDimension = 1,
    dilations: calls.EachDimension = 1,
    start_padding: calls.EachDimension = 0,
    end_padding: calls.EachDimension = 0,
    include_padding: bool = False,
    dtype: DTypeLike | None = None,
) -> Array:
    """Averages the elements of each window of a quantized image: dequantizes it, averages it, and quantizes the result.

    The padding is 0, which is quantized as `input_zero_point`. A scale or zero point for each channel has the shape
    (C,) or (1, C, 1, 1). The integer sums are exact; halves are rounded to even.

    Args:
        input: Images, (batch, channels, spatial dimensions), of integers of 8 or 16 bits.
        input_scale: Scale of `input`: one number, or one for each channel.
        input_zero_point: Subtracted from `input`, and its padding: one, or one for each channel. None means 0.
        output_scale: Scale of the result: one number, or one for each channel.
        output_zero_point: Zero point of the result: one, or one for each channel. None means 0.
        dtype: Integer type of the result; None means that of `output_zero_point`, else of `input`.

    Returns:
        Array of (batch, channels, windows along each spatial dimension), quantized.

    >>> quantized_linear_average_pooling(
    ...     jnp.array([[[10, 20, 255]]], "uint8"),
    ...     0.5,
    ...     jnp.array(10, "uint8"),
    ...     2.0,
    ...     jnp.array(3, "int8"),
    ...     window_sizes=2,
    ... ).tolist()
    [[[4, 35]]]
    """
    image = calls.integer_array("input", input)
    windows = _plan(image.shape, window_sizes, strides, dilations, start_padding, end_padding).windows
    if image.dtype.itemsize > 2:
        raise InvalidType(Problem("input", "must be of an integer type of 8 or 16 bits", image.dtype))
    scales = {"input_scale": input_scale, "output_scale": output_scale}
    points = {"input_zero_point": input_zero_point, "output_zero_point": output_zero_point}
    arrays = {name: calls.float_array(name, scale) for name, scale in scales.items()}
    arrays |= {name: calls.integer_array(name, point) for name, point in points.items() if point is not None}
    parameters = {name: _reshape_parameter(name, parameter, image) for name, parameter in arrays.items()}
    zero = parameters.get("input_zero_point")
    if zero is not None:
        calls.require_type("input_zero_point", zero, image.dtype, "input")

    def average(image: Array, *values: Array) -> Array:
        known = dict(zip(parameters, values, strict=True))
        total = pooling.window_sums(_subtract_zero_point(image, known.get("input_zero_point"), windows), windows)
        scale = known["input_scale"]
        scale = scale.astype(widened(scale.dtype))
        total = product(*calls.broadcast(input=total.astype(scale.dtype), input_scale=scale))
        mean = _divide(total, windows, include_padding)
        return quantize_rounded(
            "output", mean, known["output_scale"], known.get("output_zero_point"), dtype, image.dtype
        )

    axes = dimension_axes(image)
    operands = [(image, axes), *((value, dimension_axes(value)) for value in parameters.values())]
    return call_with_auto_axes(average, operands, _batch_and_channel_axes(axes))


def _reshape_parameter(name: str, parameter: Array, image: Array) -> Array:
    """A scale or zero point of the whole image, or of each of its channels, in a shape that broadcasts."""
    if parameter.shape != image.shape[1:2]:
        _require_parameter(name, parameter.shape, image.shape)
    return parameter.reshape(() if parameter.size == 1 else _channel_sizes(image.shape))


def _channel_sizes(image_sizes: Sequence[int]) -> tuple[int, ...]:
    return (1, image_sizes[1], *(1 for _ in image_sizes[2:]))


def _require_parameter(name: str, sizes: Sizes, image_sizes: Sizes) -> None:
    """Raises unless a scale or zero point has a single element or an element for each channel.

    Leading 1s do not matter. The page has {1, ChannelCount, 1, 1} even for images of five dimensions.
    """
    expected = _channel_sizes(image_sizes)
    is_of_channels = without_leading_ones(sizes) in (expected[1:], (*expected[1:2], 1, 1))
    rule = f"must have one element, or one for each channel in the shape {spell_sizes(expected)}"
    require(name, math.prod(sizes) == 1 or is_of_channels, rule, spell_sizes(sizes))


def _subtract_zero_point(image: Array, zero: Array | None, windows: Sequence[Window]) -> Array:
    """The image without its zero point, in a type that holds the sum of each window."""
    most = math.prod(window.size for window in windows) * (2 ** (8 * image.dtype.itemsize) - 1)
    # Beyond some 2^23 elements of 8 bits, or 2^15 of 16 bits, the sums are rounded.
    dtype = np.int32 if most <= np.iinfo(np.int32).max else np.float32
    return image.astype(dtype) - (np.zeros((), dtype) if zero is None else zero.astype(dtype))


# Descriptors


class _WindowedOperator(dml.Operator):
    """The members of windows, which follow the tensors; operators with Dilations declare it after these."""

    strides: dml.UintDimensions
    window_size: dml.UintDimensions
    start_padding: dml.UintDimensions
    end_padding: dml.UintDimensions
    arguments = {"window_size": "window_sizes"}
    has_images = True


def _windows_fit(image: str, *results: str) -> tuple[str, ...]:
    return (
        dml.spatial_sentence("WindowSize, Strides, StartPadding, EndPadding and any Dilations", image),
        f"No window is larger than the padded {{{image}}}.",
        f"{dml.members_have(results)} the batch and channels of {{{image}}}, and one element for each position of the "
        "window.",
    )


_REACH_INPUT = "Each window covers an element that is not padding."


class _Pooling(_WindowedOperator, dml.Unary, infer=_plan):
    """InputTensor, which is the image, OutputTensor, and windows."""

    rules = dml.page_rules(
        *dml.same_type_and_rank("input", "output"),
        *dml.infer_rules(*_windows_fit("input", "output")),
    )


_FLOATS = dml.rows(dml.RANK_4_TO_5, FLOAT)


class AveragePoolingDesc(_Pooling, function=average_pooling):
    include_padding: dml.Bool
    support = dml.support(FL_1_0=_FLOATS)


class AveragePooling1Desc(_Pooling, function=average_pooling1):
    dilations: dml.UintDimensions
    include_padding: dml.Bool
    support = dml.support(FL_6_2=_FLOATS)


class AveragePoolingGradDesc(
    _WindowedOperator, dml.Adjoint, function=average_pooling_grad, infer=_average_pooling_grad_sizes
):
    include_padding: dml.Bool
    support = dml.support(FL_3_0=dml.rows(dml.RANK_4_TO_5, FLOAT))
    rules = dml.page_rules(
        *dml.Adjoint.rules,
        *dml.infer_rules(*_windows_fit("output_gradient", "input_gradient")),
    )


class _LpPooling(_Pooling):
    rules = dml.page_rules(
        *_Pooling.rules, dml.require_rule("P is at least 1.", lambda desc: require_count("p", desc.p, 1))
    )


class LpPoolingDesc(_LpPooling, function=lp_pooling):
    p: dml.Uint
    support = dml.support(FL_1_0=_FLOATS)


class LpPooling1Desc(_LpPooling, function=lp_pooling1):
    dilations: dml.UintDimensions
    p: dml.Uint
    support = dml.support(FL_6_2=_FLOATS)


_FLOATS_AND_8_BITS, _NUMBERS = FLOAT | INTEGER_8, UP_TO_32_BIT | INTEGER_64


class MaxPoolingDesc(_Pooling, function=max_pooling, infer=_plan_max_pooling):
    support = dml.support(
        FL_1_0=_FLOATS, FL_3_0=dml.rows(dml.RANK_4_TO_5, _FLOATS_AND_8_BITS), FL_5_0=dml.rows(dml.RANK_4_TO_5, _NUMBERS)
    )
    rules = dml.page_rules(
        *dml.same_type_and_rank("input", "output"),
        *dml.infer_rules(*_windows_fit("input", "output"), _REACH_INPUT),
    )


class _IndexedTensors(dml.Unary):
    output_indices: dml.OptionalOutput = None


class _IndexedPooling(_WindowedOperator, _IndexedTensors, infer=_plan_max_pooling):
    """The rules of MAX_POOLING1 and MAX_POOLING2, and their optional output."""

    rules = dml.page_rules(
        dml.same_rank("input", "output", "output_indices"),
        dml.same_type("input", "output"),
        *dml.infer_rules(*_windows_fit("input", "output", "output_indices"), _REACH_INPUT),
    )

    derived = {
        "has_indices": dml.HasOutput(("output_indices",)),
        "dtype": lambda desc: jnp.uint32 if desc.output_indices is None else desc.output_indices.dtype,
    }


_INDEXED_FLOATS = dml.rows(dml.RANK_4_TO_5, FLOAT, output_indices=UINT32)
_INDEXED_SINCE_3_0 = dml.support(
    FL_3_0=dml.rows(dml.RANK_4_TO_5, _FLOATS_AND_8_BITS, output_indices=UINT32),
    FL_5_0=dml.rows(dml.RANK_4_TO_5, _NUMBERS, output_indices=UINT32_OR_64),
)


class MaxPooling1Desc(_IndexedPooling, function=max_pooling1):
    support = dml.support(FL_2_0=_INDEXED_FLOATS) | _INDEXED_SINCE_3_0


class MaxPooling2Desc(_IndexedPooling, function=max_pooling2):
    dilations: dml.UintDimensions
    support = dml.support(FL_2_1=_INDEXED_FLOATS) | _INDEXED_SINCE_3_0


class MaxPoolingGradDesc(_WindowedOperator, dml.Gradient, function=max_pooling_grad, infer=_max_pooling_grad_sizes):
    dilations: dml.UintDimensions
    support = dml.support(FL_3_0=dml.rows(dml.RANK_4, FLOAT), FL_4_0=dml.rows(dml.RANK_4_TO_5, FLOAT))
    rules = dml.page_rules(
        *dml.same_type_and_rank("input", "input_gradient", "output_gradient"),
        *dml.infer_rules(
            *_windows_fit("input", "input_gradient"),
            _REACH_INPUT,
            "OutputGradientTensor.Sizes are InputTensor.Sizes.",
        ),
    )


class MaxUnpoolingDesc(dml.Operator, function=max_unpooling, infer=_unpooling_sizes):
    input: dml.Input
    indices: dml.Input
    output: dml.Output
    has_images = True
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_4, FLOAT, indices=UINT32),
        FL_5_0=dml.rows(dml.RANK_4, _NUMBERS, indices=UINT32_OR_64),
    )
    rules = dml.page_rules(
        dml.same_type("input", "output"),
        dml.same_rank("input", "indices", "output"),
        *dml.infer_rules("IndicesTensor.Sizes are InputTensor.Sizes."),
    )


class _QuantizedTensors(dml.Operator):
    input: dml.Input
    input_scale: dml.Input
    input_zero_point: dml.OptionalInput = None
    output_scale: dml.Input
    output_zero_point: dml.OptionalInput = None
    output: dml.Output


class QuantizedLinearAveragePoolingDesc(
    _WindowedOperator,
    _QuantizedTensors,
    function=quantized_linear_average_pooling,
    infer=_plan,
):
    dilations: dml.UintDimensions
    include_padding: dml.Bool
    support = dml.support(
        FL_6_2=dml.rows(
            dml.RANK_1_TO_5,
            ONLY_FLOAT32,
            input=dml.Cell(dml.RANK_4_TO_5, INTEGER_8),
            input_zero_point=INTEGER_8,
            output_zero_point=INTEGER_8,
            output=dml.Cell(dml.RANK_4_TO_5, INTEGER_8),
        )
    )

    def _require_parameters(self) -> None:
        for field, tensor in self.tensors().items():
            if field not in ("input", "output"):
                _require_parameter(field, tensor.sizes, self.input.sizes)

    rules = dml.page_rules(
        dml.same_rank("input", "output"),
        dml.same_type("input", "input_zero_point"),
        dml.same_type("output", "output_zero_point"),
        *dml.infer_rules(*_windows_fit("input", "output")),
        dml.require_sizes_rule(
            "All scales and zero points have one element, or one for each channel: their sizes are then 1, except in "
            "the channel dimension.",
            _require_parameters,
        ),
    )
