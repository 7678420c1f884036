"""Regions of interest: ROI_POOLING, ROI_ALIGN, ROI_ALIGN1 and ROI_ALIGN_GRAD.

Each region is a rectangle in one image of a batch, given by two of its corners, and all results have the same size.
16-bit floats are computed in float32 and rounded once; a region whose corners are not finite gives NaN. On an explicit
mesh, results are sharded along regions like `roi`, and along channels like `input`. If the number of samples, or of
elements in a bin, depends on the regions, devices that share them exchange the largest of these numbers.

Args:
    input: Images, (batch, channels, height, width), as floats.
    roi: Corners of each region, [x1, y1, x2, y2], in rows.
    batch_indices: Index of the image of each region; a negative index counts from the end.
    out_of_bounds_input_value: What a sample reads that is farther than half a pixel from the image.
    output_size: Height and width of the resized regions: one number, or a `directml.Size2D`.
    reduction_function: Whether an element is the average or the maximum of its samples ("average" or "max").
    spatial_scale_x: Factor of the x-coordinates in `roi`.
    spatial_scale_y: Factor of the y-coordinates in `roi`.
    minimum_samples_per_output: Least number of samples along each dimension of an element.
    maximum_samples_per_output: Largest number of samples along each dimension of an element.
    input_pixel_offset: Subtracted from positions in the image; 0.5 for pixels whose centers are at 0.5.
    output_pixel_offset: Subtracted from the number of a sample; -0.5 for samples in the middle of their share.
    align_regions_to_corners: Whether the first and last samples lie at the corners of the region.

Returns:
    Array of (regions, channels, height, width), in the type of `input`.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.descriptors.members import Tensor
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import InvalidDesc, Problem, require
from dmljax.foundation.checks import INT_MAX, UINT_MAX, integer_in, require_count
from dmljax.foundation.dimensions import number, require_positions
from dmljax.foundation.scalars import Size2D
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes, match_varying_axes
from dmljax.foundation.sizes import (
    Sizes,
    argument_name,
    require_dimensions,
    require_one_each,
    require_sizes,
    with_leading_ones,
)
from dmljax.lowerings.copies import check_sizes, maximum
from dmljax.lowerings.images.regions import (
    Axis,
    Bins,
    Spans,
    count_samples_inside,
    largest_pixel,
    largest_sample,
    sample_counts,
    sums,
)
from dmljax.lowerings.numbers.special import rounded_quotient
from dmljax.lowerings.workarounds import product, quotient
from dmljax.ops.data.gathering import gather
from dmljax.types import (
    FLOAT,
    UINT32,
    UINT32_OR_64,
    DataType,
    InterpolationMode,
    InterpolationModeLike,
    ReduceFunction,
    ReduceFunctionLike,
    widened,
)

AVERAGE, MAX = ReduceFunction.AVERAGE, ReduceFunction.MAX
LINEAR = InterpolationMode.LINEAR

# Arguments


def _require_image(name: str, sizes: Sizes) -> None:
    require(name, len(sizes) == 4, "must have 4 dimensions: batch, channels, height and width", len(sizes))


def _region_count(roi: Sizes, columns: int) -> int:
    require_dimensions("roi", roi, 2)
    require_sizes("roi", roi, with_leading_ones((roi[-2], columns), len(roi)), why=": a row for each region")
    return roi[-2]


def _require_bins(name: str, size: Size2D) -> None:
    for dimension, count in size._asdict().items():
        require_count((name, dimension), count, 1)


def _require_readable(image: Array) -> None:
    """Raises if an image has no elements, or a dimension that is too large for positions."""
    require("input", 0 not in (image.shape[0], *image.shape[2:]), "must not be empty", f"shape {image.shape}")
    require_positions("each dimension of input", *image.shape)


def _normalize_batch_indices(indices: Array, image: Array) -> Array:
    """The index of each region's image; as in `gather`, negative indices count from the end, and others are clamped."""
    return gather(lax.iota(np.int32, image.shape[0]), indices, axis=0)


def _channels_last(image: Array) -> Array:
    # Without the barrier, XLA mixes up a constant's elements if it folds this with a conversion to bits in a loop.
    return cast(Array, lax.optimization_barrier(image.transpose(0, 2, 3, 1)))


def _finish(value: Array, is_finite: Array, dtype: Any) -> Array:
    """The elements of the regions in the layout NCHW and in their type; NaN for a region that is not finite."""
    whole = jnp.where(is_finite[:, None, None, None], value, jnp.full_like(value, np.nan))
    return whole.transpose(0, 3, 1, 2).astype(dtype)


_Roi = Annotated[TensorDesc, Tensor(is_input=True), "ROITensor"]


# ROI_POOLING


def _roi_pooling_sizes(input: Sizes, roi: Sizes, pooled_size: Size2D) -> Sizes:
    _require_image("input", input)
    _require_bins("pooled_size", pooled_size)
    return (_region_count(roi, 5), input[1], pooled_size.height, pooled_size.width)


@calls.operator_function
def roi_pooling(input: ArrayLike, roi: ArrayLike, *, pooled_size: Size2D | int, spatial_scale: float = 1.0) -> Array:
    """Divides regions of images into `pooled_size` bins, and selects the largest element of each bin.

    The corners are multiplied by `spatial_scale` and rounded to the nearest element, halves away from zero; both belong
    to the region, which is at least one element wide and high. Bins overlap where the region is not a multiple of
    `pooled_size`. A bin has no elements outside the image; a bin without elements gives 0. NaN is larger than every
    number; of equal elements, the first in row-major order gets the gradient.

    Args:
        roi: Image and corners of each region, [batch, x1, y1, x2, y2], in rows.
        pooled_size: Height and width of the result, in bins: one number, or a `directml.Size2D`.
        spatial_scale: Factor of the corners in `roi`.

    >>> image = jnp.arange(16.0).reshape(1, 1, 4, 4)
    >>> roi_pooling(image, jnp.array([[0.0, 1.0, 1.0, 3.0, 3.0]]), pooled_size=2).tolist()
    [[[[10.0, 11.0], [14.0, 15.0]]]]
    """
    image, regions = calls.float_array("input", input), calls.float_array("roi", roi)
    shape = _roi_pooling_sizes(image.shape, regions.shape, Size2D(*pooled_size))  # type: ignore[misc]  # not a number any more
    regions = regions.reshape(regions.shape[-2:])
    *_, height, width = shape
    check_sizes(shape)
    if 0 in shape[:2]:
        return jnp.zeros(shape, image.dtype)
    _require_readable(image)

    def pool(image: Array, regions: Array) -> Array:
        image, regions = match_varying_axes((image, regions))
        wide = lax.stop_gradient(regions.astype(widened(regions.dtype)))
        numbers, *corners = jnp.unstack(wide, axis=1)
        pixels = [product(corner, jnp.full_like(corner, spatial_scale)) for corner in corners]
        x1, y1, x2, y2 = (lax.round(corner, lax.RoundingMethod.AWAY_FROM_ZERO) for corner in pixels)
        is_finite = jnp.isfinite(numbers) & jnp.isfinite(x2 - x1) & jnp.isfinite(y2 - y1)
        bins = (_bins(y1, y2, is_finite, height, image.shape[2]), _bins(x1, x2, is_finite, width, image.shape[3]))
        indices = jnp.where(is_finite, jnp.clip(numbers, INDEX_MIN, -INDEX_MIN), 0).astype(np.int32)
        largest = largest_pixel(_channels_last(image), bins, _normalize_batch_indices(indices, image))
        return _finish(largest, is_finite, image.dtype)

    image_axes, roi_axes = dimension_axes(image), dimension_axes(regions)
    operands = [(image, [None, image_axes[1], None, None]), (regions, [roi_axes[0], None])]
    return call_with_auto_axes(pool, operands, [roi_axes[0], image_axes[1], None, None])


INDEX_MIN = -(2.0**30)  # an index that is out of range on both sides, and fits an int32


def _bins(first: Array, last: Array, is_finite: Array, count: int, size: int) -> Bins:
    """The elements of the bins of regions along one dimension, by the page's formulas, clamped to the image."""
    first, last = (jnp.where(is_finite, bound, jnp.zeros_like(bound))[:, None] for bound in (first, last))
    extent = jnp.maximum(last - first + 1, 1)
    i = lax.broadcasted_iota(first.dtype, (first.shape[0], count), 1)
    whole = partial(jnp.full_like, i, count)
    begin = jnp.floor(rounded_quotient(i * extent, whole())) + first
    end = jnp.ceil(rounded_quotient((i + 1) * extent, whole())) + first
    begin, end = (jnp.clip(bound, 0, number(size, i.dtype)).astype(np.int32) for bound in (begin, end))
    return Bins(begin, end, size)


def _infinite_scales(desc: Any) -> Iterator[Problem]:
    for member in desc.members():
        if member.field.startswith("spatial_scale") or member.field.endswith("pixel_offset"):
            value = float(getattr(desc, member.field).item)
            if not np.isfinite(value):
                yield Problem(member.name, "must be finite", value)


_SCALES_FINITE = dml.Rule("Scales and any offsets are finite.", _infinite_scales)


class RoiPoolingDesc(dml.Operator, function=roi_pooling, infer=_roi_pooling_sizes):
    input: dml.Input
    roi: _Roi
    output: dml.Output
    spatial_scale: dml.Float
    pooled_size: dml.Size
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT))
    rules = dml.page_rules(
        dml.same_type("input", "roi", "output"),
        _SCALES_FINITE,
        *dml.infer_rules(
            "ROITensor has the Sizes {{1, 1, NumROIs, 5}}, and OutputTensor the Sizes {{NumROIs, channels of "
            "InputTensor, PooledSize.Height, PooledSize.Width}}."
        ),
    )


# ROI_ALIGN and ROI_ALIGN1


class _Sampling(NamedTuple):
    """How regions are sampled: the arguments that ROI_ALIGN1 and its gradient share."""

    reduction_function: ReduceFunction
    interpolation_mode: InterpolationMode
    spatial_scale_x: float
    spatial_scale_y: float
    minimum_samples_per_output: int
    maximum_samples_per_output: int
    input_pixel_offset: float = 0.5
    output_pixel_offset: float = -0.5
    align_regions_to_corners: bool = False

    def check(self) -> None:
        """Raises if an argument is out of range."""
        fewest, most = self.minimum_samples_per_output, self.maximum_samples_per_output
        if self.reduction_function not in (AVERAGE, MAX):
            raise InvalidDesc(Problem("reduction_function", "must be AVERAGE or MAX", self.reduction_function.name))
        require_count("maximum_samples_per_output", most, 1)
        rule = f"must be at most {most}, {argument_name('maximum_samples_per_output')}"
        require("minimum_samples_per_output", fewest <= most, rule, fewest)
        integer_in("minimum_samples_per_output", fewest, 0, INT_MAX)

    def axes(self, size: Size2D) -> tuple[Axis, Axis]:
        """How regions are sampled along the height and along the width."""
        make_axis = lambda size: Axis(  # noqa: E731
            size,
            self.minimum_samples_per_output,
            self.maximum_samples_per_output,
            self.output_pixel_offset,
            self.align_regions_to_corners,
            self.interpolation_mode is LINEAR,
        )
        return make_axis(size.height), make_axis(size.width)

    def spans(self, regions: Array) -> tuple[tuple[Spans, Spans], Array]:
        """Where regions lie along the height and along the width, and which of them are finite; others are empty."""
        wide = regions.astype(widened(regions.dtype))
        corners = jnp.unstack(wide, axis=1)
        scales = (self.spatial_scale_x, self.spatial_scale_y) * 2
        x1, y1, x2, y2 = (product(x, jnp.full_like(x, by)) for x, by in zip(corners, scales, strict=True))
        is_finite = jnp.isfinite(x2 - x1) & jnp.isfinite(y2 - y1)

        def span(first: Array, last: Array) -> Spans:
            both = first - self.input_pixel_offset, last - first
            return Spans(*(jnp.where(is_finite, bound, jnp.zeros_like(bound)) for bound in both))

        return (span(y1, y2), span(x1, x2)), is_finite


@calls.operator_function
def roi_align(
    input: ArrayLike,
    roi: ArrayLike,
    batch_indices: ArrayLike,
    out_of_bounds_input_value: calls.WideNumber = 0.0,
    *,
    output_size: Size2D | int,
    reduction_function: ReduceFunctionLike = AVERAGE,
    interpolation_mode: InterpolationModeLike = LINEAR,
    spatial_scale_x: float = 1.0,
    spatial_scale_y: float = 1.0,
    minimum_samples_per_output: int = 1,
    maximum_samples_per_output: int = UINT_MAX,
) -> Array:
    """Crops regions from images and resizes them to `output_size`, as Mask R-CNN does.

    The corners of a region are multiplied by the scales; the first pixel reaches from 0 to 1, and its center is at 0.5.
    Along each dimension, the number of samples of an element is the number of pixels of the region per element, rounded
    up and clamped between `minimum_samples_per_output` and `maximum_samples_per_output`. A region may be empty, and is
    mirrored where `x2 < x1`. A sample up to half a pixel outside the image reads the pixels at its edge; a sample
    farther away is `out_of_bounds_input_value`. A batch index that is out of range is clamped.

    Use `roi_align1` for pixel offsets or regions that end at the corners.

    >>> image = jnp.arange(16.0).reshape(1, 1, 4, 4)
    >>> roi_align(
    ...     image, jnp.array([[0.0, 0.0, 4.0, 4.0]]), jnp.array([0]), output_size=2
    ... ).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """
    modes = ReduceFunction.of(reduction_function), InterpolationMode.of(interpolation_mode)
    scales = spatial_scale_x, spatial_scale_y
    sampling = _Sampling(*modes, *scales, minimum_samples_per_output, maximum_samples_per_output)
    return _align(input, roi, batch_indices, out_of_bounds_input_value, output_size, sampling)


@calls.operator_function
def roi_align1(
    input: ArrayLike,
    roi: ArrayLike,
    batch_indices: ArrayLike,
    out_of_bounds_input_value: calls.WideNumber = 0.0,
    *,
    output_size: Size2D | int,
    reduction_function: ReduceFunctionLike = AVERAGE,
    interpolation_mode: InterpolationModeLike = LINEAR,
    spatial_scale_x: float = 1.0,
    spatial_scale_y: float = 1.0,
    input_pixel_offset: float = 0.5,
    output_pixel_offset: float = -0.5,
    minimum_samples_per_output: int = 1,
    maximum_samples_per_output: int = UINT_MAX,
    align_regions_to_corners: bool = False,
) -> Array:
    """Crops regions from images and resizes them to `output_size`, with offsets of the pixels.

    Sample `i` along a dimension of a region lies at `(i - output_pixel_offset) * size / samples + x1 -
    input_pixel_offset`, where the center of the first pixel is 0. With `align_regions_to_corners`, the first and the
    last sample lie at the corners of the region instead, and a single one in its middle, as in TensorFlow's
    `crop_and_resize`.

    The corners of a region are multiplied by the scales. Along each dimension, the number of samples of an element is
    the number of pixels of the region per element, rounded up and clamped between `minimum_samples_per_output` and
    `maximum_samples_per_output`. A region may be empty, and is mirrored where `x2 < x1`. A sample up to half a pixel
    outside the image reads the pixels at its edge; a sample farther away is `out_of_bounds_input_value`. A batch index
    that is out of range is clamped.

    >>> from dmljax.directml import Size2D
    >>> image, box = (
    ...     jnp.array([[[[0.0, 10.0, 20.0, 30.0]]]]),
    ...     jnp.array([[0.0, 0.0, 3.0, 0.0]]),
    ... )
    >>> size = Size2D(width=4, height=1)
    >>> roi_align1(
    ...     image, box, jnp.array([0]), output_size=size, input_pixel_offset=0
    ... ).tolist()
    [[[[3.75, 11.25, 18.75, 26.25]]]]
    >>> roi_align1(
    ...     image,
    ...     box,
    ...     jnp.array([0]),
    ...     output_size=size,
    ...     input_pixel_offset=0,
    ...     align_regions_to_corners=True,
    ... ).tolist()
    [[[[0.0, 10.0, 20.0, 30.0]]]]
    """
    modes = ReduceFunction.of(reduction_function), InterpolationMode.of(interpolation_mode)
    scales = spatial_scale_x, spatial_scale_y
    counts = minimum_samples_per_output, maximum_samples_per_output
    sampling = _Sampling(*modes, *scales, *counts, input_pixel_offset, output_pixel_offset, align_regions_to_corners)
    return _align(input, roi, batch_indices, out_of_bounds_input_value, output_size, sampling)


def _roi_align_sizes(input: Sizes, roi: Sizes, batch_indices: Sizes, output_size: Size2D) -> Sizes:
    _require_image("input", input)
    _require_bins("output_size", output_size)
    return (_batch_size(roi, batch_indices), input[1], output_size.height, output_size.width)


def _batch_size(roi: Sizes, batch_indices: Sizes) -> int:
    """Returns the number of regions; raises unless each of them has an index in `batch_indices`."""
    count = _region_count(roi, 4)
    require_dimensions("batch_indices", batch_indices, 1)
    expected = with_leading_ones((count,), len(batch_indices))
    require_sizes("batch_indices", batch_indices, expected, why=", one index for each region")
    return count


def _align(
    input: ArrayLike,
    roi: ArrayLike,
    batch_indices: ArrayLike,
    outside: ArrayLike,
    output_size: Any,
    sampling: _Sampling,
) -> Array:
    image, roi = calls.float_array("input", input), calls.float_array("roi", roi)
    numbers, size = calls.integer_array("batch_indices", batch_indices), Size2D(*output_size)
    sampling.check()
    shape = _roi_align_sizes(image.shape, roi.shape, numbers.shape, size)
    regions, indices = roi.reshape(roi.shape[-2:]), numbers.reshape(-1)
    check_sizes(shape)
    if 0 in shape[:2]:
        return jnp.zeros(shape, image.dtype)
    _require_readable(image)

    def align(image: Array, regions: Array, indices: Array, outside: Array) -> Array:
        return _resize(image, regions, _normalize_batch_indices(indices, image), outside, size, sampling)

    image_axes, roi_axes = dimension_axes(image), dimension_axes(regions)[:1]
    operands = [
        (image, [None, image_axes[1], None, None]),
        (regions, [*roi_axes, None]),
        (indices, roi_axes),
        (jnp.asarray(outside, widened(image.dtype)), []),
    ]
    return call_with_auto_axes(align, operands, [*roi_axes, image_axes[1], None, None])


def _resize(image: Array, regions: Array, batch: Array, outside: Array, size: Size2D, sampling: _Sampling) -> Array:
    image, regions, batch, outside = match_varying_axes((image, regions, batch, outside))
    axes, (spans, is_finite) = sampling.axes(size), sampling.spans(regions)
    wide = _channels_last(image.astype(widened(image.dtype)))
    inside = _outer_product(map(count_samples_inside, axes, image.shape[2:], spans), wide.dtype)
    counts = _outer_product(
        (sample_counts(axis, span.extent)[:, None] for axis, span in zip(axes, spans, strict=True)), wide.dtype
    )
    if sampling.reduction_function is MAX:
        largest = largest_sample(wide, spans, batch, axes)
        with_outside = jnp.where(inside > 0, maximum(largest, jnp.broadcast_to(outside, largest.shape)), outside)
        value = jnp.where(inside < counts, with_outside, largest)
    else:
        total = sums(wide, spans, batch, axes)
        with_outside = jnp.where(inside < counts, total + outside * (counts - inside), total)
        value = quotient(with_outside, jnp.broadcast_to(counts, total.shape))
    return _finish(value, is_finite, image.dtype)


def _outer_product(numbers: Iterable[Array], dtype: Any) -> Array:
    """The products of numbers for rows and for columns, in a shape that broadcasts to (regions, rows, columns, 1)."""
    rows, columns = numbers
    return (rows[:, :, None] * columns[:, None, :])[..., None].astype(dtype)


_SAMPLES_FIT = dml.require_rule(
    "ReductionFunction is AVERAGE or MAX. MaximumSamplesPerOutput is at least 1, and at least MinimumSamplesPerOutput.",
    lambda desc: _Sampling._make(getattr(desc, name, None) for name in _Sampling._fields).check(),
)


_REGIONS_FIT = dml.infer_rules(
    "ROITensor has the Sizes {{NumROIs, 4}}, and BatchIndicesTensor the Sizes {{NumROIs}}, each after any number of "
    "1s.",
    "The result has the Sizes {{NumROIs, channels of InputTensor, any, any}}.",
)


class _AlignTensors(dml.Operator, infer=_roi_align_sizes):
    """The tensors and the rules of ROI_ALIGN and ROI_ALIGN1."""

    input: dml.Input
    roi: _Roi
    batch_indices: dml.Input
    output: dml.Output
    reduction_function: dml.Enumerator[ReduceFunction]
    interpolation_mode: dml.Enumerator[InterpolationMode]
    spatial_scale_x: dml.Float
    spatial_scale_y: dml.Float
    rules = dml.page_rules(dml.same_type("input", "roi", "output"), *_REGIONS_FIT, _SCALES_FINITE, _SAMPLES_FIT)

    derived = {"output_size": lambda desc: Size2D(desc.output.sizes[-1], desc.output.sizes[-2])}


def _align_support(indices: frozenset[DataType]) -> dml.Table:
    return dml.rows(
        dml.RANK_4, FLOAT, roi=dml.Cell(dml.RANK_2_TO_4, FLOAT), batch_indices=dml.Cell(dml.RANK_1_TO_4, indices)
    )


class RoiAlignDesc(_AlignTensors, function=roi_align):
    out_of_bounds_input_value: dml.Float
    minimum_samples_per_output: dml.Uint
    maximum_samples_per_output: dml.Uint
    support = dml.support(FL_3_0=_align_support(UINT32), FL_5_0=_align_support(UINT32_OR_64))


class RoiAlign1Desc(_AlignTensors, function=roi_align1):
    input_pixel_offset: dml.Float
    output_pixel_offset: dml.Float
    out_of_bounds_input_value: dml.Float
    minimum_samples_per_output: dml.Uint
    maximum_samples_per_output: dml.Uint
    align_regions_to_corners: dml.Bool
    support = dml.support(FL_4_0=_align_support(UINT32), FL_5_0=_align_support(UINT32_OR_64))


# ROI_ALIGN_GRAD


@calls.result
class RoiAlignGradients(NamedTuple):
    """The gradients of `roi_align1` with respect to its input and its regions, or None if not requested.

    >>> image, roi = jnp.ones((1, 1, 2, 2)), jnp.array([[0.0, 0.0, 2.0, 2.0]])
    >>> roi_align_grad(image, jnp.ones((1, 1, 1, 1)), roi, jnp.array([0])).input.tolist()
    [[[[0.25, 0.25], [0.25, 0.25]]]]
    """

    input: Any  # an array, or None without `of_input`
    roi: Any  # an array, or None without `of_roi`


def _align_gradient_sizes(
    input: Sizes | None, input_gradient: Sizes, roi: Sizes, batch_indices: Sizes, output_sizes: Sizes | None = None
) -> dict[str, Sizes]:
    image = (input_gradient if output_sizes is None else output_sizes) if input is None else input
    _require_image("input", image)
    _require_image("input_gradient", input_gradient)
    expected = (_batch_size(roi, batch_indices), image[1], *input_gradient[2:])
    require_sizes("input_gradient", input_gradient, expected, why=", as the result of roi_align1 has")
    for axis in (2, 3):
        require_count(("input_gradient", "shape", axis), input_gradient[axis], 1)
    return {"output_gradient": image, "output_roi_gradient": roi}


@calls.operator_function
def roi_align_grad(
    input: calls.Operand | None,
    input_gradient: calls.Operand,
    roi: ArrayLike,
    batch_indices: ArrayLike,
    *,
    output_sizes: Sequence[int] | None = None,
    of_input: bool = True,
    of_roi: bool = False,
    reduction_function: ReduceFunctionLike = AVERAGE,
    interpolation_mode: InterpolationModeLike = LINEAR,
    spatial_scale_x: float = 1.0,
    spatial_scale_y: float = 1.0,
    input_pixel_offset: float = 0.5,
    output_pixel_offset: float = -0.5,
    minimum_samples_per_output: int = 1,
    maximum_samples_per_output: int = UINT_MAX,
    align_regions_to_corners: bool = False,
) -> RoiAlignGradients:
    """Computes the gradients of `roi_align1` with respect to its input and, with `of_roi`, to its regions.

    The input itself is needed for MAX and for the gradient of the regions; otherwise `output_sizes`, its shape, is
    enough. The gradient of the regions is 0 where a sample lies on a pixel or beyond the centers of the pixels at the
    image's edges, and for NEAREST_NEIGHBOR.

    Args:
        input: What `roi_align1` took; None if it is not needed, for averages and `of_input`.
        output_sizes: Shape of the images; None means that of `input`.
        of_input: Whether to compute the gradient with respect to the images.
        of_roi: Whether to compute the gradient with respect to the regions.

    Returns:
        Gradients with respect to the images and the regions; None for what is not asked for.

    >>> image, roi = jnp.array([[[[0.0, 10.0, 40.0]]]]), jnp.array([[0.0, 0.0, 2.5, 1.0]])
    >>> gradients = roi_align_grad(
    ...     image,
    ...     jnp.array([[[[8.0]]]]),
    ...     roi,
    ...     jnp.array([0]),
    ...     of_roi=True,
    ...     maximum_samples_per_output=1,
    ... )
    >>> gradients.input.tolist(), gradients.roi.tolist()
    ([[[[2.0, 6.0, 0.0]]]], [[40.0, 0.0, 40.0, 0.0]])
    """
    gradient, regions = calls.float_array("input_gradient", input_gradient), calls.float_array("roi", roi)
    indices = calls.integer_array("batch_indices", batch_indices)
    modes = ReduceFunction.of(reduction_function), InterpolationMode.of(interpolation_mode)
    scales = spatial_scale_x, spatial_scale_y
    counts = minimum_samples_per_output, maximum_samples_per_output
    sampling = _Sampling(*modes, *scales, *counts, input_pixel_offset, output_pixel_offset, align_regions_to_corners)
    sampling.check()
    require((), of_input or of_roi, "of_input or of_roi must be true", "neither")
    image = _sampled_image(input, gradient, output_sizes, is_needed=of_roi or sampling.reduction_function is MAX)
    _align_gradient_sizes(image.shape, gradient.shape, regions.shape, indices.shape)
    wrt = ["input"] * of_input + ["roi"] * of_roi
    if 0 in gradient.shape[:2]:
        gradients = {"input": jnp.zeros_like(image), "roi": jnp.zeros_like(regions)}
    else:
        gradients = _gradients(wrt, image, gradient, regions.reshape(regions.shape[-2:]), indices.reshape(-1), sampling)
    return RoiAlignGradients(
        gradients["input"] if of_input else None, gradients["roi"].reshape(regions.shape) if of_roi else None
    )


def _gradients(
    wrt: Sequence[str], image: Array, gradient: Array, regions: Array, indices: Array, sampling: _Sampling
) -> dict[str, Array]:
    """The gradients with respect to the arrays named in `wrt`: `input`, `roi`, or both."""
    _require_readable(image)
    size, zero = Size2D(gradient.shape[3], gradient.shape[2]), jnp.zeros((), widened(image.dtype))

    def pull(*arrays: Array) -> Any:
        image, gradient, regions, indices = match_varying_axes(arrays)
        both = {"input": image, "roi": regions}

        def align(replacements: dict[str, Array]) -> Array:
            image, regions = (both | replacements).values()
            return _resize(image, regions, _normalize_batch_indices(indices, image), zero, size, sampling)

        _, pull_back = jax.vjp(align, {name: both[name] for name in wrt})
        (gradients,) = pull_back(gradient)
        return tuple(gradients[name] for name in wrt) if len(wrt) > 1 else gradients[wrt[0]]

    image_axes, roi_axes = dimension_axes(image), dimension_axes(regions)[:1]
    image_mesh_axes, region_mesh_axes = [None, image_axes[1], None, None], [*roi_axes, None]
    operands = [
        (image, image_mesh_axes),
        (gradient, [*roi_axes, image_axes[1], None, None]),
        (regions, region_mesh_axes),
        (indices, roi_axes),
    ]
    results = {"input": image_mesh_axes, "roi": region_mesh_axes}
    gradients = call_with_auto_axes(pull, operands, *(results[name] for name in wrt))
    return dict(zip(wrt, gradients if len(wrt) > 1 else [gradients], strict=True))


def _sampled_image(input: ArrayLike | None, gradient: Array, sizes: Sequence[int] | None, is_needed: bool) -> Array:
    """Returns the image that was sampled, or zeros of its shape if it is absent and not needed."""
    if input is not None:
        image = calls.float_array("input", input)
        calls.require_type("input_gradient", gradient, image.dtype, "input")
        if sizes is not None and tuple(sizes) != image.shape:
            raise InvalidDesc(Problem("output_sizes", f"must be the shape of input, {image.shape}", tuple(sizes)))
        return image
    require("input", not is_needed, "must be given for MAX and for the gradient of the regions", "none")
    if sizes is None:
        raise InvalidDesc(Problem("output_sizes", "must be given without input", "none"))
    require_one_each("output_sizes", sizes, "input_gradient", gradient.ndim)
    check_sizes(sizes)
    return jnp.zeros_like(gradient, shape=tuple(sizes))


class RoiAlignGradDesc(dml.Operator, function=roi_align_grad, infer=_align_gradient_sizes):
    input: dml.OptionalInput = None
    input_gradient: dml.Input
    roi: _Roi
    batch_indices: dml.Input
    output_gradient: dml.OptionalOutput = None
    output_roi_gradient: Annotated[TensorDesc | None, Tensor(is_input=False), "OutputROIGradientTensor"] = None
    reduction_function: dml.Enumerator[ReduceFunction]
    interpolation_mode: dml.Enumerator[InterpolationMode]
    spatial_scale_x: dml.Float
    spatial_scale_y: dml.Float
    input_pixel_offset: dml.Float
    output_pixel_offset: dml.Float
    minimum_samples_per_output: dml.Uint
    maximum_samples_per_output: dml.Uint
    align_regions_to_corners: dml.Bool
    support = dml.support(
        FL_4_1=dml.rows(
            dml.RANK_4,
            FLOAT,
            roi=dml.Cell(dml.RANK_2_TO_4, FLOAT),
            batch_indices=dml.Cell(dml.RANK_1_TO_4, UINT32),
            output_roi_gradient=dml.Cell(dml.RANK_2_TO_4, FLOAT),
        )
    )

    def _missing(self) -> Iterator[Problem]:
        if self.output_gradient is None and self.output_roi_gradient is None:
            yield Problem("OutputGradientTensor", "must be given, unless OutputROIGradientTensor is", "none")
        if self.input is None and (self.output_roi_gradient is not None or self.reduction_function is MAX):
            rule = "must be given if OutputROIGradientTensor is, or if ReductionFunction is MAX"
            yield Problem("InputTensor", rule, "none")

    rules = dml.page_rules(
        dml.same_type("input", "input_gradient", "roi", "output_gradient", "output_roi_gradient"),
        dml.Rule(
            "OutputGradientTensor or OutputROIGradientTensor is given. InputTensor is given if OutputROIGradientTensor "
            "is, or if ReductionFunction is MAX.",
            _missing,
        ),
        dml.same_rank("roi", "output_roi_gradient"),
        *_REGIONS_FIT,
        dml.same_sizes("input", "output_gradient"),
        dml.same_sizes("roi", "output_roi_gradient"),
        _SCALES_FINITE,
        _SAMPLES_FIT,
    )

    derived = {
        "output_sizes": lambda desc: None if desc.output_gradient is None else desc.output_gradient.sizes,
        "of_input": dml.HasOutput(("output_gradient",)),
        "of_roi": dml.HasOutput(("output_roi_gradient",)),
    }
