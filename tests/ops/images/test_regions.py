"""ROI_POOLING, ROI_ALIGN, ROI_ALIGN1 and ROI_ALIGN_GRAD; examples run in test_every_operator.py."""

import itertools
from dataclasses import replace
from typing import Any

import cases_regions as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_regions import ALIGN_DESC, AVERAGE, GRADIENT_DESC, LINEAR, MAX, NEAREST_NEIGHBOR, UINT_MAX, Sampling
from helpers import (
    FLOATS,
    FULL,
    GATE,
    assert_same_bits,
    few_of,
    few_types,
    random_array,
    refuses,
)

import dmljax
from dmljax import directml
from dmljax.directml import Size2D, Unsupported

RNG = np.random.default_rng(5)
IMAGE = RNG.random((2, 3, 7, 6), np.float32)
INDICES = np.array([1, 0, 1, 1, 0], np.int32)
# Inside, across an edge, outside, empty, inverted.
ROI = np.array(
    [[0.3, 1.1, 4.9, 6.2], [-4.2, 2.4, 2.7, 9.7], [7.1, 8.3, 9.9, 9.9], [2.4, 3.3, 2.4, 3.3], [5.1, 6.3, 0.7, 0.2]],
    np.float32,
)
SIZE = Size2D(width=2, height=3)


def sampling(**changes: Any) -> dict[str, Any]:
    """The arguments of roi_align1 that say how to sample regions."""
    return {
        "reduction_function": AVERAGE,
        "interpolation_mode": LINEAR,
        "spatial_scale_x": 1.0,
        "spatial_scale_y": 1.0,
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "minimum_samples_per_output": 1,
        "maximum_samples_per_output": UINT_MAX,
        "align_regions_to_corners": False,
    } | changes


def oracle_of(arguments: dict[str, Any]) -> Sampling:
    reduction, mode, scale_x, scale_y, *others = arguments.values()
    return Sampling(reduction, mode, (scale_x, scale_y), *others)


WAYS = [
    {},
    {"minimum_samples_per_output": 3, "maximum_samples_per_output": 3},
    {"spatial_scale_x": 0.75, "spatial_scale_y": 1.5, "minimum_samples_per_output": 2},
    {"input_pixel_offset": 0.0, "output_pixel_offset": -0.25, "maximum_samples_per_output": 2},
    {"align_regions_to_corners": True, "minimum_samples_per_output": 2, "input_pixel_offset": 0.0},
    {"interpolation_mode": NEAREST_NEIGHBOR},
]
each_way = pytest.mark.parametrize("way", few_of(WAYS, WAYS[4]), ids=lambda way: ", ".join(way) or "default")
each_reduction = pytest.mark.parametrize("reduction", few_of([AVERAGE, MAX], AVERAGE), ids=lambda one: one.name)


@FULL
@each_way
@each_reduction
def test_regions_and_their_gradients_equal_the_pseudo_code(way: Any, reduction: Any) -> None:
    arguments = sampling(reduction_function=reduction, **way)
    gradient = RNG.random((5, 3, 3, 2), np.float32)

    @jax.jit
    def both(image: Any, roi: Any, gradient: Any) -> Any:
        aligned = dmljax.roi_align1(image, roi, INDICES, -2.5, output_size=SIZE, **arguments)
        pushed = dmljax.roi_align_grad(image, gradient, roi, INDICES, of_roi=True, **arguments)
        return aligned, pushed

    aligned, pushed = both(IMAGE, ROI, gradient)
    expected = oracles.aligned(IMAGE, ROI, INDICES, (3, 2), oracle_of(arguments), -2.5)
    np.testing.assert_allclose(aligned, expected, rtol=1e-5, atol=1e-5)
    # The gradient treats samples outside as 0; as all images here are positive, none of these is the largest.
    of_input, of_roi = oracles.gradients(IMAGE, gradient, ROI, INDICES, IMAGE.shape, oracle_of(arguments))
    np.testing.assert_allclose(pushed.input, of_input, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(pushed.roi, of_roi, rtol=1e-4, atol=1e-4)


@FULL
@each_reduction
def test_the_gradient_of_roi_align1_is_roi_align_grad(reduction: Any) -> None:
    arguments = sampling(reduction_function=reduction)
    align = lambda image, roi: dmljax.roi_align1(image, roi, INDICES, output_size=SIZE, **arguments)  # noqa: E731
    gradient = RNG.random((5, 3, 3, 2), np.float32)
    pulled = jax.vjp(align, IMAGE, ROI)[1](gradient)
    pushed = dmljax.roi_align_grad(IMAGE, gradient, ROI, INDICES, of_roi=True, **arguments)
    for reverse, other in zip(pulled, pushed, strict=True):  # compiled separately, and perhaps rounded differently
        np.testing.assert_allclose(reverse, other, rtol=1e-5, atol=1e-5)
    alone = dmljax.roi_align_grad(IMAGE, gradient, ROI, INDICES, of_input=False, of_roi=True, **arguments)
    assert alone.input is None
    np.testing.assert_allclose(alone.roi, pushed.roi, rtol=1e-5, atol=1e-5)


@FULL
def test_derivatives_of_the_image_are_right_in_any_order() -> None:
    # As many samples as the regions have pixels: the length of the loop is unknown while tracing.
    image, direction = jnp.asarray(IMAGE[:, :1]), jnp.asarray(RNG.random((2, 1, 7, 6), np.float32))
    align = lambda image: dmljax.roi_align(image, ROI, INDICES, output_size=SIZE)  # noqa: E731
    square = lambda image: (align(image) ** 2).sum()  # noqa: E731

    @jax.jit
    def derivatives(image: Any) -> Any:
        twice = (
            jax.jvp(jax.grad(square), (image,), (direction,))[1],
            jax.grad(lambda image: jax.jvp(square, (image,), (direction,))[1])(image),
            jax.grad(lambda image: (jax.grad(square)(image) * direction).sum())(image),
        )
        return jax.jacfwd(align)(image), jax.jacrev(align)(image), twice

    forward, backward, twice = derivatives(image)
    np.testing.assert_allclose(forward, backward, atol=1e-6)
    matrix = np.asarray(forward, np.float64).reshape(-1, image.size)
    for derivative in twice:
        np.testing.assert_allclose(
            np.ravel(derivative), 2 * matrix.T @ (matrix @ np.ravel(direction)), rtol=1e-5, atol=1e-6
        )


@GATE
def test_regions_are_not_differentiated_in_a_gradient_of_the_image() -> None:
    def of_image(roi: Any) -> Any:
        align = lambda image: (dmljax.roi_align(image, roi, INDICES, output_size=SIZE) ** 2).sum()  # noqa: E731
        return jax.grad(align)(IMAGE).sum()

    with refuses("cannot differentiate a gradient of the image by the regions", Unsupported):
        jax.grad(of_image)(ROI)


# Positions of samples


def row(*values: float) -> Any:
    return np.array([[[values]]], np.float32)


def aligned_row(values: Any, first: float, last: float, count: int, **arguments: Any) -> list[float]:
    roi = np.array([[first, 0, last, 1]], np.float32)
    size = Size2D(width=count, height=1)
    result = dmljax.roi_align1(
        row(*values), roi, np.array([0]), arguments.pop("outside", 0.0), output_size=size, **arguments
    )
    elements: list[float] = np.asarray(result).ravel().tolist()
    return elements


@FULL
def test_an_element_has_as_many_samples_as_pixels_rounded_up() -> None:
    # Of 5 pixels for 2 elements, three samples each: at 5/12 - 1/2, 15/12 - 1/2 and so on.
    positions = [max((2 * i + 1) * 5 / 12 - 0.5, 0) for i in range(6)]
    expected = [sum(positions[:3]) / 3, sum(min(position, 4) for position in positions[3:]) / 3]
    np.testing.assert_allclose(aligned_row(range(5), 0, 5, 2), expected, rtol=1e-6)
    assert aligned_row(range(5), 0, 5, 2, maximum_samples_per_output=1) == [0.75, 3.25]
    # Four samples in an empty region are all the same.
    assert aligned_row(range(5), 2, 2, 1, minimum_samples_per_output=4) == [1.5]
    assert aligned_row(range(5), 2, 2, 1, minimum_samples_per_output=0) == [1.5]


@GATE
def test_an_inverted_region_is_mirrored() -> None:
    assert aligned_row(range(4), 4, 0, 4) == aligned_row(range(4), 0, 4, 4)[::-1] == [3, 2, 1, 0]


@FULL
@pytest.mark.parametrize("mode", [LINEAR, NEAREST_NEIGHBOR], ids=lambda one: one.name)
def test_a_sample_reads_the_edge_up_to_one_pixel_from_its_center(mode: Any) -> None:
    above = float(np.nextafter(np.float32(4), np.float32(5)))
    expected = {-1: 10, -1.001: 7, -0.5: 10, 3.5: 40, 4: 40, above: 7, 1e30: 7, -1e30: 7}
    arguments = {"input_pixel_offset": 0.0, "interpolation_mode": mode, "outside": 7.0}
    for position, value in expected.items():
        assert aligned_row((10, 20, 30, 40), position, position, 1, **arguments) == [value]


@GATE
def test_samples_outside_the_image_are_counted() -> None:
    # Two of four samples lie beyond the margin.
    arguments = {"minimum_samples_per_output": 4, "maximum_samples_per_output": 4, "outside": 100.0}
    assert aligned_row((2, 2), -3, 1, 1, **arguments) == [51]
    assert aligned_row((2, 2), -3, 1, 1, reduction_function=MAX, **arguments) == [100]
    assert aligned_row((2, 2), -3, 1, 1, reduction_function=MAX, **arguments | {"outside": -1.0}) == [2]
    assert aligned_row((-2, -2), 5, 9, 1, reduction_function=MAX, **arguments | {"outside": -5.0}) == [-5]


@FULL
def test_the_first_of_two_equally_near_pixels_is_taken() -> None:
    arguments = {"interpolation_mode": NEAREST_NEIGHBOR, "maximum_samples_per_output": 1}
    assert aligned_row((1, 2, 3, 4), 0, 4, 2, **arguments) == [1, 3]
    # Positions are divided last: two thirds of one and a half are one.
    assert aligned_row((1, 2), 0, 2, 3, **arguments) == [1, 1, 2]
    for count in (5, 7, 11, 13, 49):
        assert aligned_row((1, 2), 0, 2, count, **arguments)[count // 2] == 1


@FULL
def test_corners_are_reached_at_any_output_offset() -> None:
    for offset in (-0.5, 0.0, 3.0):
        arguments = {"align_regions_to_corners": True, "input_pixel_offset": 0.0, "output_pixel_offset": offset}
        assert aligned_row(range(5), 1, 4, 4, **arguments) == [1, 2, 3, 4]
        assert aligned_row(range(5), 1, 4, 1, maximum_samples_per_output=1, **arguments) == [2.5]
        assert aligned_row(range(5), 0, 4, 1, minimum_samples_per_output=5, reduction_function=MAX, **arguments) == [4]


def crop_and_resize(image: Any, boxes: Any, indices: Any, height: int, width: int) -> Any:
    """TensorFlow's, for boxes inside the image, in the layout NCHW: `[y1, x1, y2, x2]` in [0, 1]."""
    result = np.empty((len(boxes), image.shape[1], height, width))
    spans = np.array(image.shape[2:]) - 1
    for r, (y1, x1, y2, x2) in enumerate(boxes.astype(np.float64)):
        positions = []
        for first, last, count, span in ((y1, y2, height, spans[0]), (x1, x2, width, spans[1])):
            step = (last - first) * span / (count - 1) if count > 1 else 0
            start = first * span if count > 1 else 0.5 * (first + last) * span
            positions.append([start + i * step for i in range(count)])
        for (j, y), (i, x) in itertools.product(*map(enumerate, positions)):
            top, left = int(np.floor(y)), int(np.floor(x))
            bottom, right = int(np.ceil(y)), int(np.ceil(x))
            of = image[indices[r]].astype(np.float64)
            upper = of[:, top, left] + (of[:, top, right] - of[:, top, left]) * (x - left)
            lower = of[:, bottom, left] + (of[:, bottom, right] - of[:, bottom, left]) * (x - left)
            result[r, :, j, i] = upper + (lower - upper) * (y - top)
    return result


@FULL
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (1, 1)])
def test_corner_alignment_equals_tensorflows_crop_and_resize(size: tuple[int, int]) -> None:
    # With the members that TensorFlow's plugin for DirectML sets.
    boxes = RNG.random((5, 4), np.float32)
    crops = dmljax.roi_align1(
        IMAGE,
        boxes[:, [1, 0, 3, 2]],
        INDICES,
        output_size=Size2D(width=size[1], height=size[0]),
        spatial_scale_x=5.0,
        spatial_scale_y=6.0,
        input_pixel_offset=0.0,
        output_pixel_offset=0.0,
        maximum_samples_per_output=1,
        align_regions_to_corners=True,
    )
    np.testing.assert_allclose(crops, crop_and_resize(IMAGE, boxes, INDICES, *size), rtol=1e-5, atol=1e-6)


def test_results_equal_the_directml_numbers_noted_by_onnxruntime() -> None:
    # From roialign_test.cc, which also lists different results for CPUs, where regions are at least one pixel large.
    image = np.arange(75, dtype=np.float32).reshape(1, 3, 5, 5)
    regions = [[7, 5, 7, 5], [-15, -15, -15, -15], [-10, 21, -10, 21], [13, 8, 13, 8], [-14, 19, -14, 19]]
    aligned = dmljax.roi_align1(
        image,
        np.array(regions, np.float32),
        np.zeros(5, np.int32),
        output_size=Size2D(width=4, height=3),
        spatial_scale_x=1 / 16,
        spatial_scale_y=1 / 16,
        input_pixel_offset=0.0,
        minimum_samples_per_output=2,
        maximum_samples_per_output=2,
    )
    for region, value in zip(np.asarray(aligned), (2, 0, 6.5625, 3.3125, 5.9375), strict=True):
        expected = np.full((3, 3, 4), value) + np.arange(0, 75, 25)[:, None, None]
        np.testing.assert_array_equal(region, expected)


@FULL
def test_a_region_far_larger_than_the_image_takes_few_steps() -> None:
    # There are millions of samples; only the hundreds in the image are visited.
    for reduction in (AVERAGE, MAX):
        actual = aligned_row((3, 5), -1e6, 1e6, 2, reduction_function=reduction, outside=1.0)
        np.testing.assert_allclose(actual, [1, 1] if reduction is AVERAGE else actual, atol=1e-4)
    # Each element has so many samples that dmljax skips some before the image, but none inside.
    arguments = sampling(input_pixel_offset=0.0)
    roi = np.array([[-40.3, -20.2, 61.9, 45.7]], np.float32)
    for reduction in (AVERAGE, MAX):
        given = arguments | {"reduction_function": reduction}
        aligned = dmljax.roi_align1(IMAGE, roi, np.array([1]), 0.25, output_size=2, **given)
        expected = oracles.aligned(IMAGE, roi, np.array([1]), (2, 2), oracle_of(given), 0.25)
        np.testing.assert_allclose(aligned, expected, rtol=1e-5)


# NaN and out-of-range values


@FULL
@each_reduction
def test_a_region_that_is_not_finite_is_nan_and_has_no_gradient(reduction: Any) -> None:
    arguments = sampling(reduction_function=reduction, spatial_scale_x=2.0)
    for bad in (np.nan, np.inf, -np.inf, 3e38):  # the scale makes it infinite
        roi = ROI.copy()
        roi[1, 2] = bad
        aligned = dmljax.roi_align1(IMAGE, roi, INDICES, output_size=2, **arguments)
        assert np.isnan(aligned).all(axis=(1, 2, 3)).tolist() == [False, True, False, False, False]
        gradient = np.ones(aligned.shape, np.float32)
        gradients = dmljax.roi_align_grad(IMAGE, gradient, roi, INDICES, of_roi=True, **arguments)
        assert np.isfinite(gradients.input).all()
        assert np.asarray(gradients.roi)[1].tolist() == [0, 0, 0, 0]
        pooled = dmljax.roi_pooling(IMAGE, np.c_[INDICES, roi].astype(np.float32), pooled_size=2, spatial_scale=2)
        assert np.isnan(pooled).all(axis=(1, 2, 3)).tolist() == [False, True, False, False, False]


@FULL
def test_pixels_beside_a_sample_do_not_reach_it() -> None:
    values = (1, np.nan, 3, np.inf, -np.inf)
    # Samples at pixel centers, one for each element.
    assert np.array_equal(aligned_row(values, 0, 5, 5), values, equal_nan=True)
    gradient = np.array([[[[1, np.nan, 2, np.inf, 4]]]], np.float32)
    roi = np.array([[0, 0, 5, 1]], np.float32)
    of_input = dmljax.roi_align_grad(None, gradient, roi, np.array([0]), output_sizes=(1, 1, 1, 5)).input
    assert np.array_equal(np.asarray(of_input), gradient, equal_nan=True)


@FULL
@each_reduction
def test_nan_is_larger_than_every_number(reduction: Any) -> None:
    arguments = {"reduction_function": reduction, "minimum_samples_per_output": 4, "maximum_samples_per_output": 4}
    assert np.isnan(aligned_row((np.inf, np.nan, 0, 0), 0, 4, 1, **arguments))
    assert aligned_row((np.nan, 1, 2, 3), 1, 4, 1, **arguments | {"minimum_samples_per_output": 3}) != []


@FULL
def test_batch_indices_are_those_of_gather(call: Any) -> None:
    image = np.arange(3, dtype=np.float32).reshape(3, 1, 1, 1)
    indices = [0, 2, -1, -3, -9, 7]
    expected = [0, 2, 2, 0, 0, 2]
    roi = np.zeros((6, 4), np.float32)
    for dtype in ("int8", "int32"):
        aligned = call(dmljax.roi_align, image, roi, np.array(indices, dtype), output_size=1)
        assert np.asarray(aligned).ravel().tolist() == expected
    aligned = call(dmljax.roi_align, image, roi[:2], np.array([2**32 - 1, 1], np.uint32), output_size=1)
    assert np.asarray(aligned).ravel().tolist() == [2, 1]
    rows = np.zeros((6, 5), np.float32)
    rows[:, 0] = [0.75, 2, -1, -3, -3e38, 3e38]
    pooled = call(dmljax.roi_pooling, image, rows, pooled_size=1)
    assert np.asarray(pooled).ravel().tolist() == expected


# Types


@FULL
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_16_bit_floats_are_rounded_once(dtype: Any) -> None:
    image = RNG.random(IMAGE.shape).astype(dtype)
    wide = np.promote_types(dtype, np.float32) if dtype != jnp.bfloat16 else np.float32
    gradient = RNG.random((5, 3, 3, 2)).astype(dtype)
    for reduction in (AVERAGE, MAX):
        arguments = sampling(reduction_function=reduction)

        @jax.jit
        def both(image: Any, gradient: Any, roi: Any, arguments: Any = arguments) -> Any:
            aligned = dmljax.roi_align1(image, roi, INDICES, output_size=SIZE, **arguments)
            return aligned, dmljax.roi_align_grad(image, gradient, roi, INDICES, **arguments).input

        # The regions may have another float type.
        for result, exact in zip(
            both(image, gradient, ROI), both(image.astype(wide), gradient.astype(wide), ROI), strict=True
        ):
            assert result.dtype == dtype
            assert_same_bits(result, np.asarray(exact).astype(dtype))


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
@pytest.mark.gate(but=1)
def test_every_bit_is_pooled(dtype: Any, call: Any) -> None:
    if dtype == jnp.bfloat16:
        pytest.skip("XLA on CPU selects bfloat16 as float32, which turns signaling NaNs into quiet ones")
    image = random_array(RNG, dtype, (3, 2, 6, 7))
    regions = np.c_[RNG.integers(-3, 3, 9), RNG.integers(-4, 10, (9, 4))].astype(dtype)
    pooled = call(dmljax.roi_pooling, image, regions, pooled_size=Size2D(width=3, height=2), spatial_scale=0.75)
    assert_same_bits(pooled, oracles.pooled(image, regions, 0.75, Size2D(width=3, height=2)))


def test_halves_of_corners_are_rounded_away_from_zero() -> None:
    image = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    pool = lambda first, last: dmljax.roi_pooling(image, np.array([[0, first, 0, last, 0]], np.float32), pooled_size=1)  # noqa: E731
    assert [float(pool(0, last).squeeze()) for last in (1.5, 2.5, 2.49, 9)] == [2, 3, 2, 7]
    assert float(dmljax.roi_pooling(-image, np.array([[0, 2.5, 0, 9, 0]], np.float32), pooled_size=1).squeeze()) == -3
    assert float(pool(-9, -1).squeeze()) == 0  # outside every element
    assert (
        float(dmljax.roi_pooling(-image, np.array([[0, -0.5, 0, -0.5, 0]], np.float32), pooled_size=1).squeeze()) == 0
    )


def test_an_inverted_region_is_pooled_from_one_element() -> None:
    image = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    pooled = dmljax.roi_pooling(image, np.array([[0, 5, 0, 2, 0]], np.float32), pooled_size=Size2D(3, 1))
    assert np.asarray(pooled).ravel().tolist() == [5, 5, 5]


@FULL
def test_bins_are_exact_even_where_rounding_would_add_an_element() -> None:
    # 1/7 as a float32, times 7 * 3, is more than 3.
    image = np.arange(49, dtype=np.float32).reshape(1, 1, 1, 49)
    roi = np.array([[0, 0, 0, 48, 0]], np.float32)
    for count in (7, 49):
        pooled = dmljax.roi_pooling(image, roi, pooled_size=Size2D(count, 1))
        assert np.asarray(pooled).ravel().tolist() == [49 // count * (i + 1) - 1 for i in range(count)]


@FULL
def test_the_gradient_of_pooling_goes_to_the_first_largest_element() -> None:
    image = np.array([[[[1, 3, 3, 2], [3, 0, -0.0, 0]]]], np.float32)
    roi = np.array([[0, 0, 0, 3, 1], [0, 0, 0, 1, 0], [0, 7, 7, 9, 9]], np.float32)
    pool = lambda image, roi: dmljax.roi_pooling(image, roi, pooled_size=1).sum()  # noqa: E731
    of_image, of_roi = jax.jit(jax.grad(pool, (0, 1)))(image, roi)
    assert np.asarray(of_image).tolist() == [[[[0, 2, 0, 0], [0, 0, 0, 0]]]]
    assert not np.asarray(of_roi).any()


# Shapes


@FULL
def test_leading_dimensions_of_size_1_do_not_matter() -> None:
    aligned = dmljax.roi_align(IMAGE, ROI, INDICES, output_size=2)
    assert_same_bits(dmljax.roi_align(IMAGE, ROI[None, None], INDICES[None], output_size=2), aligned)
    gradients = dmljax.roi_align_grad(IMAGE, aligned, ROI[None], INDICES, of_roi=True)
    assert gradients.roi.shape == (1, 5, 4)


def test_results_without_regions_or_channels_are_empty() -> None:
    none, no_index = ROI[:0], INDICES[:0]
    assert dmljax.roi_align(IMAGE, none, no_index, output_size=2).shape == (0, 3, 2, 2)
    assert dmljax.roi_align(IMAGE[:, :0], ROI, INDICES, output_size=2).shape == (5, 0, 2, 2)
    assert dmljax.roi_pooling(IMAGE, np.zeros((0, 5), np.float32), pooled_size=2).shape == (0, 3, 2, 2)
    gradients = dmljax.roi_align_grad(IMAGE, np.zeros((0, 3, 2, 2), np.float32), none, no_index, of_roi=True)
    assert not np.asarray(gradients.input).any()
    assert gradients.input.shape == IMAGE.shape
    assert gradients.roi.shape == (0, 4)


# Descriptors


@FULL
def test_either_gradient_may_be_left_out() -> None:
    inputs = oracles.CASES["ROI_ALIGN_GRAD"].inputs(GRADIENT_DESC, np.random.default_rng(3))
    both = directml.lower(GRADIENT_DESC)(**inputs)
    for absent, present in (("output_roi_gradient", "output_gradient"), ("output_gradient", "output_roi_gradient")):
        alone = directml.lower(replace(GRADIENT_DESC, **{absent: None}))(**inputs)
        assert getattr(alone, absent) is None
        np.testing.assert_allclose(getattr(alone, present), getattr(both, present), rtol=1e-6)


@FULL
def test_any_number_of_samples_is_allowed() -> None:
    # The largest UINT, which means no bound; no loop is that long.
    desc = replace(ALIGN_DESC, minimum_samples_per_output=1, maximum_samples_per_output=UINT_MAX)
    inputs = oracles.CASES["ROI_ALIGN1"].inputs(desc, np.random.default_rng(4))
    oracles.CASES["ROI_ALIGN1"].check(desc, inputs, directml.lower(desc)(**inputs))
