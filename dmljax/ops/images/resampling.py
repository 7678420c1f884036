"""Resampling: UPSAMPLE_2D, RESAMPLE, RESAMPLE1, RESAMPLE2 and RESAMPLE3, and the gradients of RESAMPLE1 and RESAMPLE2.

All do the same computation: element `i` of the result lies at `(i - output_pixel_offset) / scale - input_pixel_offset`
in the input. A scale or offset stands for the simplest fraction that rounds to the same float32, so 0.33333334 means a
third; positions are computed exactly. Positions outside of the input are moved to its edges. On an explicit mesh, each
dimension of the result is sharded like that of the input, if its size allows it.

Args:
    output_sizes: Shape of the result; None means what `scales` give, rounded down.
    scales: Factor of each dimension, or of all spatial ones; None means what `output_sizes` give.
    rounding_direction: Whether the position of the nearest element is rounded down (decreasing) or up.
    input_pixel_offsets: Added to positions in the input before `scales`, for each dimension or all spatial ones.
    output_pixel_offsets: Added to positions in the result after `scales`, for each dimension or all spatial ones.

Returns:
    Array of the shape `output_sizes`, in the type of `input`.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, all_checked, require
from dmljax.foundation.checks import require_count, require_counts
from dmljax.foundation.dimensions import is_symbolic, require_positions
from dmljax.foundation.scalars import Size2D
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes
from dmljax.foundation.sizes import Sizes, expand_spatial, require_dimensions, require_one_each
from dmljax.lowerings.copies import check_sizes, result_axes
from dmljax.lowerings.images.channels import choose_layout
from dmljax.lowerings.images.resampling import (
    Taps,
    adjoint,
    average,
    linear_taps,
    nearest,
    nearest_taps,
    simplest_fraction,
    wide_taps,
)
from dmljax.types import (
    FLOAT,
    FLOATS,
    INTEGER_8,
    AxisDirection,
    AxisDirectionLike,
    InterpolationMode,
    InterpolationModeLike,
)

NEAREST_NEIGHBOR, LINEAR = InterpolationMode


class _Sampling(NamedTuple):
    """Where the elements of a result lie in the input, and how their neighbors there are weighted."""

    mode: InterpolationModeLike
    center: float = 0.5  # the offset of the input that samples the center of each pixel
    input_offsets: calls.EachNumber = 0.5
    output_offsets: calls.EachNumber = -0.5
    rounding: Fraction | None = Fraction(1, 2)  # added to a position before it is rounded down; None rounds it up
    antialiased: bool = False


def _directed_sampling(
    mode: InterpolationModeLike,
    direction: AxisDirectionLike,
    input_offsets: calls.EachNumber | None,
    output_offsets: calls.EachNumber,
    antialiased: bool = False,
) -> _Sampling:
    """The sampling with a rounding direction, by default at the centers of the pixels."""
    center = _center(mode, direction)
    rounding = Fraction(0) if direction is AxisDirection.DECREASING else None
    offsets = center if input_offsets is None else input_offsets
    return _Sampling(mode, center, offsets, output_offsets, rounding, antialiased)


def _center(mode: InterpolationModeLike, direction: AxisDirectionLike) -> float:
    return 0.5 if mode is LINEAR else 0.0 if direction is AxisDirection.DECREASING else 1.0


# UPSAMPLE_2D


def _upsample_sizes(input: Sizes, scale_size: Size2D) -> Sizes:
    require_dimensions("input", input, 2)
    for name, scale in scale_size._asdict().items():
        require_count(("scale_size", name), scale, 1)
    *batch, height, width = input
    return (*batch, height * scale_size.height, width * scale_size.width)


@calls.operator_function
def upsample_2d(
    input: ArrayLike,
    *,
    scale_size: Size2D | int,
    interpolation_mode: InterpolationModeLike = NEAREST_NEIGHBOR,
) -> Array:
    """Enlarges the last two dimensions, height and width, by whole factors.

    Args:
        input: Images, with the height and width in the last two dimensions.
        scale_size: Factors of the height and width, at least 1: one number, or a `directml.Size2D`.

    Returns:
        Array of the enlarged shape, in the type of `input`.

    >>> from dmljax.directml import Size2D
    >>> upsample_2d(jnp.array([[1.0, 2.0]]), scale_size=Size2D(width=2, height=2)).tolist()
    [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0]]
    """
    input = calls.real_array("input", input)
    scale = Size2D(*scale_size)  # type: ignore[misc]  # not a number any more
    sizes = _upsample_sizes(input.shape, scale)
    factors = (*(1 for _ in input.shape[2:]), scale.height, scale.width)
    steps = [(Fraction(1, factor), Fraction(1, 2 * factor) - Fraction(1, 2)) for factor in factors]
    return _resample_array(input, sizes, steps, _Sampling(interpolation_mode))


class Upsample2DDesc(dml.Resized, function=upsample_2d, infer=_upsample_sizes):
    scale_size: dml.Size
    interpolation_mode: dml.Enumerator[InterpolationMode]
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4_TO_5, FLOAT))

    rules = dml.page_rules(
        *dml.Resized.rules,
        *dml.infer_rules(
            "Both numbers of ScaleSize are at least 1.",
            "OutputTensor has the sizes of InputTensor, with ScaleSize.Height times the height and ScaleSize.Width "
            "times the width.",
        ),
    )


# RESAMPLE and RESAMPLE1


@calls.operator_function
def resample(
    input: ArrayLike,
    *,
    output_sizes: Sequence[int] | None = None,
    scales: calls.EachNumber | None = None,
    interpolation_mode: InterpolationModeLike = NEAREST_NEIGHBOR,
) -> Array:
    """Resizes an array: the positions of the centers of its elements, as of pixels, are multiplied by `scales`.

    All dimensions have a size and a scale, batch and channels included; a single scale, and a single offset of the
    functions that take them, applies to the spatial dimensions. If both are given, the result is cropped to
    `output_sizes`, or its edges are repeated. LINEAR averages are rounded once to 16-bit floats; averages of integers,
    which must have 8 bits, are rounded to the nearest integer, halves to even.

    Use `resample3` for pixel offsets, other rounding or antialiasing; the versions in between have fewer of these
    options.

    >>> resample(jnp.array([1, 2, 3], "int8"), scales=1.5).tolist()
    [1, 2, 2, 3]
    >>> image = jnp.array([[[[0.0, 8.0]]]])
    >>> resample(image, output_sizes=(1, 1, 1, 4), interpolation_mode="linear").tolist()
    [[[[0.0, 2.0, 6.0, 8.0]]]]
    """
    return _resample_by_scales(input, output_sizes, scales, _Sampling(interpolation_mode))


@calls.operator_function
def resample1(
    input: ArrayLike,
    *,
    output_sizes: Sequence[int] | None = None,
    scales: calls.EachNumber | None = None,
    interpolation_mode: InterpolationModeLike = NEAREST_NEIGHBOR,
    input_pixel_offsets: calls.EachNumber = 0.5,
    output_pixel_offsets: calls.EachNumber = -0.5,
) -> Array:
    """Resizes an array, with offsets of its elements, as of pixels, by default those of their centers.

    The element at `x` goes to `(x + input_pixel_offsets) * scales + output_pixel_offsets`. A position halfway between
    two elements is nearest to the second.

    Everything else is as in `resample`.

    >>> row = jnp.array([1, 2, 3, 4], "int8")
    >>> resample1(row, scales=0.5).tolist()
    [2, 4]
    >>> resample1(row, scales=0.5, input_pixel_offsets=0, output_pixel_offsets=0).tolist()
    [1, 3]
    """
    sampling = _Sampling(interpolation_mode, 0.5, input_pixel_offsets, output_pixel_offsets)
    return _resample_by_scales(input, output_sizes, scales, sampling)


# RESAMPLE2 and RESAMPLE3


@calls.operator_function
def resample2(
    input: ArrayLike,
    *,
    output_sizes: Sequence[int] | None = None,
    scales: calls.EachNumber | None = None,
    interpolation_mode: InterpolationModeLike = NEAREST_NEIGHBOR,
    rounding_direction: AxisDirectionLike = AxisDirection.DECREASING,
    input_pixel_offsets: calls.EachNumber | None = None,
    output_pixel_offsets: calls.EachNumber = -0.5,
) -> Array:
    """Resizes an array, with offsets of its elements, and a choice of whether NEAREST_NEIGHBOR rounds down or up.

    The element at `x` goes to `(x + input_pixel_offsets) * scales + output_pixel_offsets`. By default,
    `input_pixel_offsets` sample the center of each pixel: 0.5 for LINEAR; for NEAREST_NEIGHBOR, 0 when rounding down
    (DECREASING) or 1 when rounding up (INCREASING), which find the nearest element; of two equally near ones, rounding
    down finds the second, and rounding up the first.

    Everything else is as in `resample`.

    >>> row = jnp.array([1, 2, 3, 4], "int8")
    >>> [
    ...     resample2(row, scales=0.5, rounding_direction=one).tolist()
    ...     for one in ("increasing", "decreasing")
    ... ]
    [[1, 3], [2, 4]]
    >>> resample2(row, scales=0.75, input_pixel_offsets=0, output_pixel_offsets=0).tolist()
    [1, 2, 3]
    """
    sampling = _directed_sampling(interpolation_mode, rounding_direction, input_pixel_offsets, output_pixel_offsets)
    return _resample_by_scales(input, output_sizes, scales, sampling)


@calls.operator_function
def resample3(
    input: ArrayLike,
    *,
    output_sizes: Sequence[int] | None = None,
    scales: calls.EachNumber | None = None,
    interpolation_mode: InterpolationModeLike = NEAREST_NEIGHBOR,
    rounding_direction: AxisDirectionLike = AxisDirection.DECREASING,
    input_pixel_offsets: calls.EachNumber | None = None,
    output_pixel_offsets: calls.EachNumber = -0.5,
    antialiased: bool = False,
) -> Array:
    """Resizes an array; if `antialiased`, LINEAR averages all elements that a smaller pixel covers.

    The weights of these averages fall to 0 over the distance between two elements of the result, if that is more than
    one element of the input. Beyond the edges, the elements at the edges repeat.

    Everything else is as in `resample2`.

    Args:
        antialiased: Whether linear averages cover all elements that a smaller pixel covers.

    >>> row = jnp.array([0.0, 0.0, 8.0, 0.0, 0.0, 0.0])
    >>> resample3(row, scales=0.5, interpolation_mode="linear").tolist()
    [0.0, 4.0, 0.0]
    >>> resample3(row, scales=0.5, interpolation_mode="linear", antialiased=True).tolist()
    [1.0, 3.0, 0.0]
    """
    offsets = input_pixel_offsets, output_pixel_offsets
    return _resample_by_scales(
        input, output_sizes, scales, _directed_sampling(interpolation_mode, rounding_direction, *offsets, antialiased)
    )


# RESAMPLE_GRAD and RESAMPLE_GRAD1


@calls.operator_function
def resample_grad(
    input_gradient: ArrayLike,
    *,
    output_sizes: Sequence[int],
    scales: calls.EachNumber | None = None,
    interpolation_mode: InterpolationModeLike = NEAREST_NEIGHBOR,
    input_pixel_offsets: calls.EachNumber = 0.5,
    output_pixel_offsets: calls.EachNumber = -0.5,
) -> Array:
    """Computes the gradient of `resample1`: adds each element to its neighbors in the input, times their weights.

    Sums of 16-bit floats are rounded once.

    Args:
        output_sizes: Shape of the result, which is the shape of the input of `resample1`.

    Returns:
        Gradient with respect to the input of `resample1`.

    >>> resample_grad(jnp.array([4.0, 5.0, 6.0, 7.0]), output_sizes=(3,)).tolist()
    [4.0, 11.0, 7.0]
    """
    sampling = _Sampling(interpolation_mode, 0.5, input_pixel_offsets, output_pixel_offsets)
    return _gradient(input_gradient, output_sizes, scales, sampling)


@calls.operator_function
def resample_grad1(
    input_gradient: ArrayLike,
    *,
    output_sizes: Sequence[int],
    scales: calls.EachNumber | None = None,
    interpolation_mode: InterpolationModeLike = NEAREST_NEIGHBOR,
    rounding_direction: AxisDirectionLike = AxisDirection.DECREASING,
    input_pixel_offsets: calls.EachNumber | None = None,
    output_pixel_offsets: calls.EachNumber = -0.5,
) -> Array:
    """Computes the gradient of `resample2`: adds each element to its neighbors in the input, times their weights.

    By default, `input_pixel_offsets` are those of `resample2`. Sums of 16-bit floats are rounded once.

    Args:
        output_sizes: Shape of the result, which is the shape of the input of `resample2`.

    Returns:
        Gradient with respect to the input of `resample2`.

    >>> gradient = jnp.array([4.0, 5.0, 6.0, 7.0])
    >>> resample_grad1(
    ...     gradient, output_sizes=(2,), rounding_direction="increasing"
    ... ).tolist()
    [9.0, 13.0]
    """
    sampling = _directed_sampling(interpolation_mode, rounding_direction, input_pixel_offsets, output_pixel_offsets)
    return _gradient(input_gradient, output_sizes, scales, sampling)


# The computation


def _resample_by_scales(
    input: ArrayLike, output_sizes: Sequence[int] | None, scales: calls.EachNumber | None, sampling: _Sampling
) -> Array:
    input = calls.real_array("input", input)
    factors = None if scales is None else _fractions("scales", scales, 1.0, "input", input.ndim)
    if output_sizes is None:
        if factors is None:
            raise InvalidDesc(Problem((), "output_sizes or scales must be given", "neither"))
        pairs = zip(input.shape, factors, strict=True)
        output_sizes = [size * factor.numerator // factor.denominator for size, factor in pairs]
    require_one_each("output_sizes", output_sizes, "input", input.ndim)
    steps = _axis_positions("input", input.shape, output_sizes, factors, sampling)
    return _resample_array(input, output_sizes, steps, sampling)


def _gradient(
    input_gradient: ArrayLike, output_sizes: Sequence[int], scales: calls.EachNumber | None, sampling: _Sampling
) -> Array:
    gradient = calls.float_array("input_gradient", input_gradient)
    require_one_each("output_sizes", output_sizes, "input_gradient", gradient.ndim)
    require_counts("output_sizes", output_sizes, 0)
    factors = None if scales is None else _fractions("scales", scales, 1.0, "input_gradient", gradient.ndim)
    steps = _axis_positions("output_sizes", output_sizes, gradient.shape, factors, sampling)
    axis_taps = _taps(output_sizes, gradient.shape, steps, sampling)

    def add(x: Array) -> Array:
        return adjoint(x, axis_taps) if 0 not in (*x.shape, *output_sizes) else jnp.zeros(tuple(output_sizes), x.dtype)

    return call_with_auto_axes(add, [(gradient, dimension_axes(gradient))], result_axes([gradient], output_sizes))


def _expand_numbers(name: str, numbers: calls.EachNumber, elsewhere: float, image: str, rank: int) -> Sequence[float]:
    """A finite number for each dimension of `image`, above 0 if it is a scale.

    One number is for the spatial dimensions, beside `elsewhere` for batch and channels.
    """
    each = expand_spatial(name, numbers, elsewhere, image, rank) if isinstance(numbers, int | float) else numbers
    require_one_each(name, each, image, rank)
    for i, number in enumerate(each):
        place = name if each is not numbers else (name, i)
        require(place, math.isfinite(number), "must be finite", number)
        require(place, name != "scales" or number > 0, "must be above 0", number)
    return each


def _fractions(name: str, numbers: calls.EachNumber, elsewhere: float, image: str, rank: int) -> list[Fraction]:
    return [simplest_fraction(number) for number in _expand_numbers(name, numbers, elsewhere, image, rank)]


AxisPositions = tuple[Fraction, Fraction]  # how far apart positions are, and the first position


def _axis_positions(
    smaller: str,
    input_sizes: Sequence[int],
    output_sizes: Sequence[int],
    factors: Sequence[Fraction] | None,
    sampling: _Sampling,
) -> list[AxisPositions]:
    """The positions along each dimension; `smaller` names the argument that gives the input's sizes."""
    rank = len(input_sizes)
    before = _fractions("input_pixel_offsets", sampling.input_offsets, sampling.center, smaller, rank)
    after = _fractions("output_pixel_offsets", sampling.output_offsets, -0.5, smaller, rank)
    steps = []
    for i, (size, new) in enumerate(zip(input_sizes, output_sizes, strict=True)):
        if factors is not None:
            step = 1 / factors[i]
        elif size == new or is_symbolic(size) or is_symbolic(new) or new == 0:
            step = Fraction(1)
        else:
            step = Fraction(size, new)
        if factors is None and size != new and (is_symbolic(size) or is_symbolic(new)):
            rule = f"must have a size along axis {i} that is known while tracing, because it is resampled"
            raise Unsupported(Problem(smaller, rule, f"{size} and {new}", remedy="or pass scales"))
        if not is_symbolic(size) and size == 0 and new != 0:
            raise InvalidDesc(Problem(smaller, f"must not be empty along axis {i}", f"{tuple(input_sizes)}"))
        steps.append((step, -after[i] * step - before[i]))
    return steps


def _taps(
    input_sizes: Sequence[int], output_sizes: Sequence[int], steps: Sequence[AxisPositions], sampling: _Sampling
) -> list[Taps]:
    """The neighbors of the positions along each dimension that changes, first the dimension that shrinks most."""
    axis_taps = []
    for axis, (size, new, step) in enumerate(zip(input_sizes, output_sizes, steps, strict=True)):
        if new == 0:
            continue  # nothing moves
        if sampling.mode is NEAREST_NEIGHBOR:
            taps = nearest_taps(axis, size, new, *step, sampling.rounding)
        elif sampling.antialiased and step[0] > 1:
            taps = wide_taps(axis, size, new, *step)
        else:
            taps = linear_taps(axis, size, new, *step)
        if not taps.is_identity():
            # A neighbor's position may be as large as the size itself.
            require_positions(f"axis {axis}, which is resampled,", *(size + 1 for size in taps.where[:2]))
            axis_taps.append(taps)
    return sorted(axis_taps, key=lambda taps: -taps.where.step / taps.where.unit)


def _resample_array(input: Array, sizes: Sequence[int], steps: Sequence[AxisPositions], sampling: _Sampling) -> Array:
    if sampling.mode is LINEAR and input.dtype not in FLOATS and input.dtype not in (np.int8, np.uint8):
        rule = "must be of a floating type, or of an integer type of 8 bits, for LINEAR"
        raise InvalidType(Problem("input", rule, input.dtype))
    check_sizes(sizes)
    axis_taps = _taps(input.shape, sizes, steps, sampling)
    compute = nearest if sampling.mode is NEAREST_NEIGHBOR else average

    def resample(x: Array) -> Array:
        if 0 in sizes:  # a dimension without elements has no neighbors
            return jnp.zeros(tuple(sizes), x.dtype)
        if not axis_taps or any(taps.axis <= 1 for taps in axis_taps):
            return compute(x, axis_taps)
        earlier_taps = [taps._replace(axis=taps.axis - 1) for taps in axis_taps]
        return choose_layout(partial(compute, axis_taps=axis_taps), partial(compute, axis_taps=earlier_taps), x)

    return call_with_auto_axes(resample, [(input, dimension_axes(input))], result_axes([input], sizes))


# Descriptors


_FLOATS = ("scales", "input_pixel_offsets", "output_pixel_offsets")
_SINCE_5_1 = dml.support(FL_5_1=dml.rows(dml.RANK_1_TO_4, FLOAT), FL_6_2=dml.rows(dml.RANK_1_TO_4, FLOAT | INTEGER_8))


def _rules(input: str, output: str) -> tuple[dml.Rule, ...]:
    def check(desc: Any) -> None:
        rank = getattr(desc, input).rank
        numbers = {field: getattr(desc, field) for field in _FLOATS if hasattr(desc, field)}
        floats = {field: [float(number.item) for number in several] for field, several in numbers.items()}
        all_checked(*(partial(_expand_numbers, field, several, 0.0, input, rank) for field, several in floats.items()))

    each = "one finite number for each dimension"
    return dml.page_rules(
        *dml.same_type_and_rank(input, output),
        dml.require_sizes_rule(f"Scales and any offsets have {each}. Scales are above 0.", check),
    )


def _implied_numbers(call: dml.Call, name: str, elsewhere: float) -> Sequence[float] | None:
    ((_, sizes),) = call.outputs
    numbers = call.argument(name)
    return None if numbers is None else _expand_numbers(name, numbers, elsewhere, "input", len(sizes))


def _implied_scales(call: dml.Call) -> Any:
    ((_, sizes),) = call.outputs
    ratios = [new / old for new, old in zip(sizes, call.arrays["input"].sizes, strict=True)]
    return _implied_numbers(call, "scales", 1.0) or ratios


def _implied_offsets(call: dml.Call) -> Any:
    rank, center = len(call.outputs[0][1]), 0.5
    if issubclass(call.operator, _Directed):
        center = _center(call.argument("interpolation_mode"), call.argument("rounding_direction"))
    return _implied_numbers(call, "input_pixel_offsets", center) or (center,) * rank


class _Forward(dml.Resized):
    interpolation_mode: dml.Enumerator[InterpolationMode]
    implied = {"scales": _implied_scales}
    rules = _rules("input", "output")


class _Backward(dml.Adjoint):
    interpolation_mode: dml.Enumerator[InterpolationMode]
    implied = {"scales": lambda call: _implied_numbers(call, "scales", 1.0)}
    rules = _rules("input_gradient", "output_gradient")


class _Directed(dml.Operator):
    rounding_direction: dml.Enumerator[AxisDirection]


class _Shifted(dml.Operator):
    scales: dml.FloatDimensions
    input_pixel_offsets: dml.FloatDimensions
    output_pixel_offsets: dml.FloatDimensions


_OFFSETS: dml.Implied = {
    "input_pixel_offsets": _implied_offsets,
    "output_pixel_offsets": lambda call: _implied_numbers(call, "output_pixel_offsets", -0.5),
}


class ResampleDesc(_Forward, function=resample):
    scales: dml.Scales
    support = dml.support(FL_2_0=dml.rows(dml.RANK_4, FLOAT)) | _SINCE_5_1


class Resample1Desc(_Shifted, _Forward, function=resample1):
    implied = _Forward.implied | _OFFSETS
    support = dml.support(FL_2_1=dml.rows(dml.RANK_4, FLOAT)) | _SINCE_5_1


class Resample2Desc(_Shifted, _Directed, _Forward, function=resample2):
    implied = _Forward.implied | _OFFSETS
    support = _SINCE_5_1


class Resample3Desc(Resample2Desc, function=resample3):
    antialiased: dml.Bool
    support = dml.support(FL_6_4=dml.rows(dml.RANK_1_TO_4, FLOAT | INTEGER_8))


class ResampleGradDesc(_Shifted, _Backward, function=resample_grad):
    implied = _Backward.implied | _OFFSETS
    support = dml.support(FL_3_0=dml.rows(dml.RANK_4, FLOAT), FL_5_1=dml.rows(dml.RANK_1_TO_4, FLOAT))


class ResampleGrad1Desc(_Shifted, _Directed, _Backward, function=resample_grad1):
    implied = _Backward.implied | _OFFSETS
    support = dml.support(FL_5_1=dml.rows(dml.RANK_1_TO_4, FLOAT))
