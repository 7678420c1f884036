"""UPSAMPLE_2D, RESAMPLE to RESAMPLE3 and the gradients; examples run in test_every_operator.py."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import cases_resampling as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_resampling import WITH_OFFSETS
from helpers import (
    FULL,
    GATE,
    REALS,
    SAMPLED,
    X64,
    assert_same_bits,
    at_once,
    f32,
    few_of,
    random_array,
    refuses,
    transposes,
)
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import directml
from dmljax.calls.decorator import record_calls
from dmljax.directml import AxisDirection, InterpolationMode, InvalidDesc, Size2D
from dmljax.graphs.to_graph.converter import Converter
from dmljax.lowerings.images import resampling as lowerings
from dmljax.lowerings.images.channels import network_layout
from dmljax.lowerings.images.resampling import linear_taps, locate, positions, simplest_fraction, wide_taps

NEAREST_NEIGHBOR, LINEAR = InterpolationMode
UP, DOWN = AxisDirection
ROW = np.array([1, 2, 3, 4], np.float32)
FORWARD = (dmljax.resample, dmljax.resample1, dmljax.resample2, dmljax.resample3)


def gather_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_phases", "_repeats"):
        monkeypatch.setattr(lowerings, name, lambda taps: None)
    jax.clear_caches()


@pytest.fixture(params=["sliced", "gathered"])
def neighbors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a test with sliced neighbors, as for simple ratios of sizes, and with gathered ones."""
    if request.param == "gathered":
        gather_neighbors(monkeypatch)
    yield
    jax.clear_caches()


# Positions


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300))
def test_a_scale_is_the_simplest_fraction_that_rounds_to_it(numerator: int, denominator: int) -> None:
    number = float(np.float32(numerator / denominator))
    assert simplest_fraction(number) == Fraction(numerator, denominator) == oracles.fraction_of(number)
    assert simplest_fraction(-number) == -Fraction(numerator, denominator)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 0x7F7FFFFE))
@GATE
def test_any_float_is_a_fraction_that_rounds_to_it(bits: int) -> None:
    number = float(np.uint32(bits).view(np.float32))
    actual = simplest_fraction(number)
    assert 2 * abs(actual - Fraction(number)) <= Fraction(float(np.spacing(np.float32(number))))
    assert actual.denominator == 1 or actual.denominator <= Fraction(number).denominator


def test_the_simplest_fraction_at_the_ends_of_the_range() -> None:
    for number in (0.0, 1.0, 0.5, -0.5, 3.0, 2.0**20):
        assert simplest_fraction(number) == Fraction(number)
    assert math.isclose(simplest_fraction(float(np.finfo(np.float32).max)), 2.0**128, rel_tol=1e-7)


@FULL
@pytest.mark.parametrize(
    ("size", "count", "step", "start"),
    [
        (50, 40, Fraction(147, 160), Fraction(1, 7)),
        (2**26, 3000, Fraction(2**25 + 1, 4099), Fraction(-5, 3)),  # products exceed 32 bits
        (5000, 4000, Fraction(16777213, 16777216), Fraction(-7, 2)),  # a scale near 1
        (10, 2000, Fraction(4093, 2**28 - 1), Fraction(1, 3)),
        (7, 9, Fraction(10**38), Fraction(-3)),
        (7, 9, Fraction(1, 10**38), Fraction(5, 2)),
        (7, 9, Fraction(3, 2), Fraction(-4)),
    ],
)
def test_positions_of_any_size_are_exact(size: int, count: int, step: Fraction, start: Fraction) -> None:
    where = positions(size, count, step, start)
    index, rest = jax.jit(lambda: locate(where))()
    for i in range(count):
        position = min(max(Fraction(where.step * i + where.start, where.unit), Fraction(0)), Fraction(size - 1))
        given_position = min(max(step * i + start, Fraction(0)), Fraction(size - 1))
        assert abs(position - given_position) < Fraction(1, 10**5)
        assert int(index[i]) == math.floor(position)
        assert int(index[i]) * where.unit + int(rest[i]) == position * where.unit


@FULL
def test_scales_of_a_third_do_not_drift_over_many_elements(call: Any) -> None:
    row = np.arange(3000, dtype=np.int32)
    offsets: dict[str, Any] = {"input_pixel_offsets": 0, "output_pixel_offsets": 0}
    assert_same_bits(call(dmljax.resample2, row, scales=0.33333334, **offsets), row[::3])
    assert_same_bits(call(dmljax.resample2, row, scales=1 / 3, **offsets), row[::3])
    long = np.arange(2**24 + 8, dtype=np.uint32)  # float32 would not distinguish neighbors
    result = np.asarray(dmljax.resample(long, scales=2.0))
    assert_same_bits(result[-8:], np.repeat(long[-4:], 2))


# Any resampling


# Sizes of the image and the result, the ratios, and the input's and output's offsets
RESAMPLINGS: list[tuple[Any, Any, Any, Any, Any]] = [
    ((4, 3), (6, 5), (1.5, 5 / 3), (0.5, 0.5), (-0.5, -0.5)),
    ((4, 3), (6, 5), (2.0, 0.75), (-0.5, 1.0), (0.3, 0.0)),
    ((1, 7), (1, 3), (5.0, 0.3), (0.5, 0.5), (-0.5, -0.5)),
    ((5, 6), (2, 6), (0.6, 11 / 9), (2.25, -7.0), (0.0, -1.0)),
]
each_resampling = pytest.mark.parametrize("resampling", RESAMPLINGS, ids=str)


@FULL
@each_resampling
@pytest.mark.parametrize("mode", InterpolationMode)
@pytest.mark.parametrize(
    ("rounding", "antialiased"), [("half", False), ("down", False), ("up", False), ("down", True), ("up", True)]
)
def test_every_resampling_follows_the_pages_formula(
    resampling: Any, rounding: str, mode: Any, antialiased: bool
) -> None:
    size, new, *floats = resampling
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal(size).astype(np.float32), rng.standard_normal(new).astype(np.float32)
    names = ("scales", "input_pixel_offsets", "output_pixel_offsets")
    arguments: dict[str, Any] = {"interpolation_mode": mode, **dict(zip(names, floats, strict=True))}
    forward, backward = dmljax.resample1, dmljax.resample_grad
    if rounding != "half":
        forward, backward = dmljax.resample2, dmljax.resample_grad1
        arguments["rounding_direction"] = {"up": UP, "down": DOWN}[rounding]
    if antialiased:
        forward, arguments = dmljax.resample3, arguments | {"antialiased": True}
    weights = oracles.all_weights(size, new, *floats, mode=mode, rounding=rounding, antialiased=antialiased)
    expected = oracles.resampled(x, weights, mode)
    is_twin = not antialiased  # the gradient of these is an operator

    @jax.jit
    def both(x: Any, g: Any) -> Any:
        result, pull = jax.vjp(lambda x: forward(x, output_sizes=new, **arguments), x)
        return result, pull(g)[0], *([backward(g, output_sizes=size, **arguments)] if is_twin else [])

    result, *gradients = both(x, g)
    if mode is NEAREST_NEIGHBOR:
        assert_same_bits(result, expected)
    else:
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6)
    for gradient in gradients:
        np.testing.assert_allclose(gradient, oracles.added_up(g, weights, size), rtol=0, atol=3e-6)


@FULL
@each_resampling
@pytest.mark.parametrize("antialiased", [False, True])
def test_averages_of_8_bit_integers_are_exact_and_round_half_to_even(resampling: Any, antialiased: bool) -> None:
    size, new, *floats = resampling
    weights = oracles.all_weights(size, new, *floats, mode=LINEAR, rounding="half", antialiased=antialiased)
    several = [random_array(np.random.default_rng(0), dtype, size) for dtype in (np.int8, np.uint8)]
    scales, offsets, others = floats
    how: dict[str, Any] = {"scales": scales, "input_pixel_offsets": offsets, "output_pixel_offsets": others}
    how |= {"output_sizes": new, "interpolation_mode": LINEAR, "antialiased": antialiased}
    for x, result in zip(several, at_once(lambda x: dmljax.resample3(x, **how), several), strict=True):
        assert_same_bits(result, oracles.resampled(x, weights, LINEAR))


@GATE
def test_averages_of_8_bit_integers_round_to_nearest_with_large_denominators() -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 31, 37), np.uint8)
    scales = (1, 1.0001234, 1.0004321)
    result = np.asarray(dmljax.resample(x, scales=scales, interpolation_mode=LINEAR))
    floats = dmljax.resample(x.astype(np.float32), scales=scales, interpolation_mode=LINEAR)
    assert result.dtype == np.uint8
    np.testing.assert_allclose(result, floats, atol=0.5001)
    constant = dmljax.resample(np.full_like(x, 255), scales=scales, interpolation_mode=LINEAR)
    assert np.all(np.asarray(constant) == 255)


# Nearest neighbors


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_every_bit_is_copied(dtype: Any, call: Any) -> None:
    x = random_array(np.random.default_rng(0), dtype, (3, 4, 5))
    how: dict[str, Any] = {"output_sizes": (3, 7, 4), "scales": (1, 1.5, 0.75)}
    weights = oracles.all_weights(
        x.shape, (3, 7, 4), how["scales"], [0.5] * 3, [-0.5] * 3, mode=NEAREST_NEIGHBOR, rounding="half"
    )
    expected = oracles.resampled(x, weights, NEAREST_NEIGHBOR)
    for function in (dmljax.resample, dmljax.resample2):
        assert_same_bits(call(function, x, **how), expected)
    assert_same_bits(call(dmljax.upsample_2d, x, scale_size=Size2D(3, 2)), x.repeat(2, axis=1).repeat(3, axis=2))


def test_halfway_points_take_the_second_element_unless_a_direction_is_given() -> None:
    half: dict[str, Any] = {"scales": 0.5}
    assert dmljax.resample(ROW, **half).tolist() == dmljax.resample1(ROW, **half).tolist() == [2, 4]
    assert dmljax.resample2(ROW, **half, rounding_direction=DOWN).tolist() == [2, 4]
    assert dmljax.resample2(ROW, **half, rounding_direction=UP).tolist() == [1, 3]
    # The page's offsets are those of pixel centers, whose positions are rounded.
    pages: dict[str, Any] = {"input_pixel_offsets": 0.5, "output_pixel_offsets": -0.5}
    assert dmljax.resample2(ROW, scales=2, **pages, rounding_direction=DOWN).tolist() == [1, 1, 1, 2, 2, 3, 3, 4]
    assert dmljax.resample2(ROW, scales=2, **pages, rounding_direction=UP).tolist() == [1, 2, 2, 3, 3, 4, 4, 4]


@FULL
@pytest.mark.usefixtures("neighbors")
def test_the_result_is_cropped_or_its_edges_are_repeated() -> None:
    how: dict[str, Any] = {"scales": 2.0, "output_sizes": (12,)}
    assert dmljax.resample(ROW, **how).tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4]
    assert dmljax.resample(ROW, scales=2.0, output_sizes=(3,)).tolist() == [1, 1, 2]
    linear = dmljax.resample(ROW, **how, interpolation_mode=LINEAR)
    assert linear.tolist() == [1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4, 4, 4, 4, 4]
    ones = np.ones(12, np.float32)
    assert dmljax.resample_grad(ones, scales=2.0, output_sizes=(4,)).tolist() == [2, 2, 2, 6]
    wide = dmljax.resample_grad(ones, scales=2.0, output_sizes=(4,), interpolation_mode=LINEAR)
    assert wide.tolist() == [2, 2, 2, 6]


@FULL
def test_sizes_follow_from_scales_and_scales_from_sizes() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert dmljax.resample(x, scales=(0.4, 1.3)).shape == (1, 5)
    assert dmljax.resample(x, scales=1 / 3).shape == (1, 1)
    for function in FORWARD:
        by_sizes = function(x, output_sizes=(6, 3), interpolation_mode=LINEAR)
        several: Any = np.array([2, 0.75])
        assert_same_bits(by_sizes, function(x, scales=several, interpolation_mode=LINEAR))
        assert_same_bits(function(x, scales=float(np.float32(2))), function(x, scales=[2, 2.0]))
        assert_same_bits(function(x, scales=1), x)


SHIFTED: dict[str, Any] = {"input_pixel_offsets": 0, "output_pixel_offsets": 0}


@pytest.mark.parametrize(("rank", "spatial"), [(1, 1), (2, 2), (4, 2), (5, 3)])
@pytest.mark.gate(but=1)
def test_a_single_number_applies_to_the_spatial_dimensions(rank: int, spatial: int) -> None:
    x = np.arange(2.0 * 3**rank, dtype=np.float32)[: 3 ** (rank - 1) * 2].reshape(2, *(3,) * (rank - 1))

    def each(number: float, elsewhere: float) -> tuple[float, ...]:
        return (elsewhere,) * (rank - spatial) + (number,) * spatial

    for mode in InterpolationMode:
        wide = dmljax.resample(x, scales=each(2, 1), interpolation_mode=mode)
        assert_same_bits(dmljax.resample(x, scales=2, interpolation_mode=mode), wide)
    offsets: dict[str, Any] = {"input_pixel_offsets": each(0, 0.5), "output_pixel_offsets": each(0, -0.5)}
    wide = dmljax.resample1(x, scales=each(2, 1), **offsets)
    assert_same_bits(dmljax.resample1(x, scales=2, **SHIFTED), wide)
    back = dmljax.resample_grad(wide, output_sizes=x.shape, scales=each(2, 1), **offsets)
    assert_same_bits(dmljax.resample_grad(wide, output_sizes=x.shape, scales=2, **SHIFTED), back)


@pytest.mark.parametrize("function", [dmljax.resample, partial(dmljax.resample1, **SHIFTED), dmljax.resample2])
def test_a_graph_has_a_number_for_each_dimension(function: Any) -> None:
    scaled, x = partial(function, scales=2), np.arange(36, dtype=np.float32).reshape(2, 2, 3, 3)
    builder = Converter()
    view = builder.input("x", jax.ShapeDtypeStruct(x.shape, x.dtype))
    with record_calls() as calls:
        program = jax.make_jaxpr(scaled)(x)
    (result,) = builder.convert(("nodes", "resample"), program, calls, [view])
    assert_same_bits(directml.lower(builder.finish({"y": result.source}))(x), scaled(x))


def test_a_single_number_for_three_dimensions_is_refused() -> None:
    image = np.ones((3, 4, 4), np.float32)
    remedy = "(scales=(1, 1, 2) for (N, C, W), scales=(1, 2, 2) for (C, H, W))"
    with refuses(f"rank of 3 does not say which are spatial; got 2 {remedy}"):
        dmljax.resample(image, scales=2)
    with refuses("output_pixel_offsets must have one number for each dimension of input, ...; got 0 ..., 0, 0) for (C"):
        dmljax.resample3(image, output_sizes=(3, 8, 8), output_pixel_offsets=0)
    assert_same_bits(dmljax.resample(image, scales=1), image)


def test_empty_arrays_may_be_resampled() -> None:
    for mode in InterpolationMode:
        empty = dmljax.resample(np.zeros((0, 4), np.float32), output_sizes=(0, 8), interpolation_mode=mode)
        assert empty.shape == (0, 8)
        assert dmljax.resample(np.ones((2, 4)), output_sizes=(2, 0), interpolation_mode=mode).shape == (2, 0)
        gradient = dmljax.resample_grad(np.zeros((2, 0), np.float32), output_sizes=(2, 4), interpolation_mode=mode)
        assert gradient.tolist() == [[0] * 4] * 2


# Averages


@FULL
@pytest.mark.usefixtures("neighbors")
def test_elements_of_weight_zero_are_ignored(call: Any) -> None:
    x = np.array([1, np.inf, -0.0, np.nan, 5, -0.0], np.float32)
    corners: dict[str, Any] = {"scales": 2, "input_pixel_offsets": 0, "output_pixel_offsets": 0}
    result = call(dmljax.resample1, x, interpolation_mode=LINEAR, **corners)
    assert_same_bits(result[np.array([0, 2, 4, 8, 10, 11])], x[[0, 1, 2, 4, 5, 5]])
    assert np.isnan(result[np.array([5, 6, 7])]).all()
    assert np.isinf(result[np.array([1, 3])]).all()
    narrow = call(dmljax.resample3, x, scales=0.5, interpolation_mode=LINEAR, antialiased=True)
    assert np.isnan(narrow).tolist() == [False, True, True]


@pytest.mark.parametrize("scale", few_of([1.37, 7.31, 1.5, 0.71], 1.37))
@pytest.mark.parametrize("antialiased", few_of([False, True], False))
@pytest.mark.parametrize("platform", few_of(["cpu", "gpu"], "cpu"))
@GATE
def test_an_infinite_element_touches_its_neighbors_only(
    scale: float, antialiased: bool, platform: str, lower_for: Any
) -> None:
    if platform == "cpu" and (antialiased or scale > 2):
        pytest.skip("multiplies by matrices, as the page says")
    lower_for(platform)
    resampled = partial(dmljax.resample3, scales=scale, interpolation_mode=LINEAR, antialiased=antialiased)
    size, new = 9, int(9 * scale)
    twin = partial(dmljax.resample_grad1, output_sizes=(size,), scales=scale, interpolation_mode=LINEAR)
    x, g = np.zeros(size, np.float32), np.zeros(new, np.float32)

    def forward_mode(tangent: Any) -> Any:
        return jax.jvp(resampled, (x,), (tangent,))[1]

    def reverse_mode(g: Any) -> Any:
        return jax.vjp(resampled, x)[1](g)[0]

    functions: list[tuple[Any, Any]] = [
        (resampled, x),
        (forward_mode, x),
        (reverse_mode, g),
        *([] if antialiased else [(twin, g)]),
    ]
    for function, zeros in functions:
        for place in (0, 3, zeros.size - 1):
            element = np.arange(zeros.size) == place
            expected = np.where(function(element.astype(np.float32)) == 0, 0, np.inf)
            np.testing.assert_array_equal(function(np.where(element, np.inf, zeros).astype(np.float32)), expected)
            np.testing.assert_array_equal(
                np.isnan(function(np.where(element, np.nan, zeros).astype(np.float32))), expected != 0
            )


@FULL
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_16_bit_floats_are_rounded_once(dtype: Any, call: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 6)).astype(dtype)
    how: dict[str, Any] = {"scales": (1.5, 4 / 3), "interpolation_mode": LINEAR}
    wide = dmljax.resample(x.astype(np.float32), **how)
    assert_same_bits(call(dmljax.resample, x, **how), wide.astype(dtype))
    g = rng.standard_normal(wide.shape).astype(dtype)
    backward = lambda g: dmljax.resample_grad(g, output_sizes=x.shape, **how)  # noqa: E731
    assert_same_bits(call(backward, g), backward(g.astype(np.float32)).astype(dtype))
    pulled = jax.vjp(lambda x: dmljax.resample(x, **how), jnp.asarray(x))[1](jnp.asarray(g))[0]
    assert_same_bits(pulled, backward(g))
    large = np.full(9, 2048 if dtype == jnp.float16 else 256, dtype)
    large[1:] = 1
    total = jax.vjp(lambda x: dmljax.resample(x, output_sizes=(9,)), jnp.ones(1, dtype))[1](jnp.asarray(large))[0]
    assert_same_bits(total, np.array([float(large[0]) + 8], dtype))


@pytest.mark.skipif(not X64, reason="needs 64-bit types")
def test_averages_of_float64_are_computed_in_float64() -> None:
    x = np.random.default_rng(0).standard_normal(7)
    result = dmljax.resample(x, scales=3, interpolation_mode=LINEAR)
    assert result.dtype == np.float64
    assert float(result[2]) == pytest.approx(x[0] * 2 / 3 + x[1] / 3, rel=1e-14)


@FULL
def test_a_wide_filter_averages_all_that_it_covers() -> None:
    shrink = lambda x: dmljax.resample3(x, scales=0.05, interpolation_mode=LINEAR, antialiased=True)  # noqa: E731
    x = np.random.default_rng(0).standard_normal(90).astype(np.float32)
    weights = oracles.all_weights((90,), (4,), [0.05], [0.5], [-0.5], mode=LINEAR, rounding="half", antialiased=True)
    result, pull = jax.vjp(shrink, x)
    np.testing.assert_allclose(result, oracles.resampled(x, weights, LINEAR), rtol=0, atol=1e-6)
    g = np.arange(1, 5, dtype=np.float32)
    np.testing.assert_allclose(pull(g)[0], oracles.added_up(g, weights, x.shape), rtol=0, atol=1e-6)
    large = dmljax.resample_grad(np.ones(400, np.float32), output_sizes=(4,), interpolation_mode=LINEAR)
    np.testing.assert_allclose(large, [100] * 4, rtol=1e-6)


def test_antialiasing_applies_only_to_shrinking_averages() -> None:
    cases: list[dict[str, Any]] = [
        {"scales": 2, "interpolation_mode": LINEAR},
        {"scales": 0.5},
        {"scales": 1, "interpolation_mode": LINEAR},
    ]
    for how in cases:
        assert_same_bits(dmljax.resample3(ROW, antialiased=True, **how), dmljax.resample2(ROW, **how))
    ratio: dict[str, Any] = {"scales": 0.75, "interpolation_mode": LINEAR}  # 1 / 0.75 is not above 2
    assert dmljax.resample3(ROW, **ratio, antialiased=True).tolist() != dmljax.resample2(ROW, **ratio).tolist()


# Transformations


@pytest.mark.parametrize("mode", few_of(InterpolationMode, LINEAR))
@pytest.mark.parametrize("sizes", few_of([(6, 10), (2, 5), (3, 4)], (2, 5)))
@GATE
def test_networks_resample_with_channels_last(mode: InterpolationMode, sizes: tuple[int, int]) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 3, 5)).astype(np.float32)

    def resampled(x: Any) -> Any:
        return dmljax.resample2(x, output_sizes=(2, 3, *sizes), interpolation_mode=mode)

    def both(x: Any) -> Any:
        y, pull = jax.vjp(resampled, x)
        return y, *pull(jnp.ones_like(y))

    expected = jax.jit(both)(x)
    with network_layout(2):
        actual = jax.jit(both)(x)
        count = transposes(resampled, x)
    assert (count["cpu"], count["cuda"]) == (2, 0)
    # On a TPU, XLA chooses the layouts of products, so there are as many transposes as in JAX's own resizing.
    idiom = lambda x: jax.image.resize(x, (2, 3, *sizes), "linear", antialias=False)  # noqa: E731
    assert count["tpu"] == (transposes(idiom, x)["tpu"] if mode is LINEAR else 0)
    # Means of a few integers are exact, except thirds.
    for result, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-6, atol=1e-6)


@FULL
def test_slices_and_gathers_return_the_same_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    x, offsets = jnp.asarray(np.random.default_rng(0).standard_normal(7), np.float32), (-9.0, -0.2, 1.5)
    every: list[dict[str, Any]] = [
        {"scales": scale, "output_sizes": (size,), "interpolation_mode": mode, "output_pixel_offsets": offset}
        for scale, size in ((3, 21), (2, 9), (1.5, 10))
        for mode in InterpolationMode
        for offset in offsets
    ]

    def both_ways(x: Any) -> Any:
        results = [dmljax.resample2(x, **how) for how in every]
        return results, jax.vjp(lambda x: [dmljax.resample2(x, **how) for how in every], x)[1](results)

    sliced = jax.jit(both_ways)(x)
    gather_neighbors(monkeypatch)
    gathered = jax.jit(lambda x: both_ways(x))(x)
    jax.clear_caches()
    for leaf, other in zip(jax.tree.leaves(sliced), jax.tree.leaves(gathered), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-5, atol=1e-6)


@SAMPLED
@pytest.mark.parametrize(("size", "is_gathered"), [(8, False), (6, False), (2, False), (41, True)])
def test_simple_size_ratios_slice_and_never_scatter(size: int, is_gathered: bool) -> None:
    resample = lambda x: dmljax.resample(x, output_sizes=(3, size), interpolation_mode=LINEAR)  # noqa: E731

    def pull(g: Any) -> Any:
        return jax.vjp(resample, jnp.ones((3, 4)))[1](g)

    for function, sizes in ((resample, (3, 4)), (pull, (3, size))):
        text = jax.jit(function).lower(jnp.ones(sizes)).as_text()
        assert ("stablehlo.gather" in text) == (is_gathered and function is resample)
        assert "stablehlo.scatter" not in text


@FULL
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        *((dmljax.upsample_2d, {"scale_size": Size2D(3, 2), "interpolation_mode": mode}) for mode in InterpolationMode),
        *((dmljax.resample, {"scales": (1, 1, 1.5, 0.4), "interpolation_mode": mode}) for mode in InterpolationMode),
        (dmljax.resample1, {"scales": (1, 1, 2, 1), "input_pixel_offsets": 0.3, "interpolation_mode": LINEAR}),
        (dmljax.resample2, {"scales": (1, 1, 1.3, 2.5)}),
        (dmljax.resample3, {"scales": (1, 1, 0.3, 0.7), "interpolation_mode": LINEAR, "antialiased": True}),
        (dmljax.resample, {"scales": (1, 1, 1.000001, 0.700003), "interpolation_mode": LINEAR}),
    ],
)
def test_an_image_of_any_size_is_exported_with_its_gradient(function: Any, arguments: Any) -> None:
    sizes = jax.export.symbolic_shape("h, w")
    resample = lambda x: function(x, **arguments)  # noqa: E731
    gradient = jax.grad(lambda x: jnp.sum(resample(x) ** 2))
    for direction in resample, gradient:
        exported = jax.export.export(jax.jit(direction))(jax.ShapeDtypeStruct((1, 1, *sizes), np.float32))
        for known in ((5, 7), (9, 33)):
            x = np.random.default_rng(0).random((1, 1, *known), np.float32)
            np.testing.assert_allclose(exported.call(x), direction(x), rtol=1e-6, atol=1e-6)


def test_positions_are_computed_once_and_not_stored_as_constants() -> None:
    text = jax.jit(lambda x: dmljax.resample(x, output_sizes=(999, 777), interpolation_mode=LINEAR)).lower(
        jnp.zeros((500, 500))
    )
    assert len(text.as_text()) < 40_000


# Products with matrices of weights, on a TPU


@SAMPLED
@pytest.mark.parametrize("dtype", [np.float32, np.float64] if X64 else [np.float32])
@pytest.mark.parametrize(
    "taps",
    [
        linear_taps(1, 5, 10, Fraction(1, 2), Fraction(-1, 4)),
        linear_taps(1, 7, 4, Fraction(7, 4), Fraction(3, 8)),
        linear_taps(1, 5, 9, Fraction(1, 2), Fraction(-7, 2)),
        linear_taps(1, 5, 9, Fraction(1, 2), Fraction(30)),
        linear_taps(1, 1, 6, Fraction(1, 6), Fraction(-5, 12)),
        linear_taps(1, 200, 90, Fraction(16777213, 16777216), Fraction(-7, 2)),  # units that exceed 32 bits
        wide_taps(1, 9, 4, Fraction(9, 4), Fraction(5, 8)),
        wide_taps(1, 9, 6, Fraction(9, 4), Fraction(-11, 2)),
        wide_taps(1, 1, 3, Fraction(3, 2), Fraction(-1)),
        wide_taps(1, 200, 90, Fraction(16777217, 12582912), Fraction(1, 3)),
    ],
)
@GATE
def test_weight_matrices_compute_averages_and_their_transposes(taps: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, g = (jnp.asarray(rng.standard_normal((2, size, 3)), dtype) for size in (taps.input_size, taps.where.output_size))
    near: dict[str, Any] = {"rtol": 0, "atol": 64 * float(jnp.finfo(dtype).eps)}
    products = jax.jit(lambda x: lowerings._multiply([taps], x))(x)
    np.testing.assert_allclose(products, jax.jit(lambda x: lowerings._average(taps, x))(x), **near)
    transposed = jax.jit(lambda g: lowerings._multiply([taps], g, is_transposed=True))(g)
    np.testing.assert_allclose(transposed, jax.jit(lambda g: lowerings._adjoint(taps, g))(g), **near)
    assert products.dtype == transposed.dtype == dtype


@pytest.mark.usefixtures("as_on_a_tpu")
@GATE
def test_products_repeat_the_last_element_behind_it() -> None:
    x = np.array([9, 4, 1, 0, 1, 4, 9], np.float32)
    how: dict[str, Any] = {"output_sizes": (3,), "interpolation_mode": LINEAR, "antialiased": True}
    weights = oracles.all_weights((7,), (3,), [0.3], [0.5], [-0.5], mode=LINEAR, rounding="half", antialiased=True)
    result = dmljax.resample3(x, scales=0.3, **how)
    np.testing.assert_allclose(result, oracles.resampled(x, weights, LINEAR), rtol=1e-6)


@pytest.mark.usefixtures("as_on_a_tpu")
@pytest.mark.parametrize("antialiased", [False, True])
@pytest.mark.gate(but=1)
def test_products_along_several_dimensions_are_rounded_once(antialiased: bool) -> None:
    rng = np.random.default_rng(0)
    x, size = rng.standard_normal((2, 5, 6)).astype(np.float16), (2, 8, 4)
    how: dict[str, Any] = {"interpolation_mode": LINEAR}
    resample = lambda x: dmljax.resample3(x, output_sizes=size, antialiased=antialiased, **how)  # noqa: E731
    ratios = [new / old for new, old in zip(size, x.shape, strict=True)]
    weights = oracles.all_weights(
        x.shape, size, ratios, [0.5] * 3, [-0.5] * 3, mode=LINEAR, rounding="half", antialiased=antialiased
    )
    wide = x.astype(np.float32)
    result, pull = jax.vjp(resample, wide)
    np.testing.assert_allclose(result, oracles.resampled(wide, weights, LINEAR), rtol=0, atol=1e-6)
    g = rng.standard_normal(size).astype(np.float16)
    pulled = pull(g.astype(np.float32))[0]
    np.testing.assert_allclose(pulled, oracles.added_up(g.astype(np.float32), weights, x.shape), rtol=0, atol=1e-5)
    assert_same_bits(resample(x), np.asarray(result).astype(np.float16))
    if not antialiased:
        backward = lambda g: dmljax.resample_grad(g, output_sizes=x.shape, **how)  # noqa: E731
        np.testing.assert_allclose(backward(g.astype(np.float32)), pulled, rtol=0, atol=1e-6)
        assert_same_bits(backward(g), np.asarray(backward(g.astype(np.float32))).astype(np.float16))


@SAMPLED
@pytest.mark.parametrize(
    ("shape", "size", "are_products"),
    [
        ((1, 8, 64, 64), (1, 8, 128, 128), True),
        ((1, 3, 1024, 1024), (1, 3, 2048, 2048), True),
        ((1, 512), (1, 768), True),
        ((1, 1024), (1, 2048), False),
        ((1, 1, 4, 2048), (1, 1, 8, 4096), False),
    ],
)
def test_only_a_tpu_resamples_by_matrix_products_where_they_are_fast(shape: Any, size: Any, are_products: bool) -> None:
    forward = lambda x: dmljax.resample2(x, output_sizes=size, interpolation_mode=LINEAR)  # noqa: E731
    backward = lambda g: dmljax.resample_grad(g, output_sizes=shape, interpolation_mode=LINEAR)  # noqa: E731
    for function, sizes in ((forward, shape), (backward, size)):
        traced = jax.jit(function).trace(jax.ShapeDtypeStruct(sizes, np.float32))
        for platform in ("cpu", "cuda", "tpu"):
            text = traced.lower(lowering_platforms=(platform,)).as_text()
            assert ("stablehlo.dot_general" in text) == (are_products and platform == "tpu")


def test_a_tpu_resamples_a_batch_of_any_size_by_matrix_products() -> None:
    (batch,) = jax.export.symbolic_shape("n")
    resample = lambda x: dmljax.resample2(x, output_sizes=(x.shape[0], 3, 8, 8), interpolation_mode=LINEAR)  # noqa: E731
    shape = jax.ShapeDtypeStruct((batch, 3, 4, 4), np.float32)
    exported = jax.export.export(jax.jit(resample), platforms=["tpu"])(shape)
    assert "stablehlo.dot_general" in exported.mlir_module()


# Refusals


def test_scales_must_be_known_while_tracing() -> None:
    with refuses("scales must be a number that is known while tracing; ...static_argnames='scales'"):
        jax.jit(lambda s: dmljax.resample(ROW, scales=s))(2.0)


def test_a_desc_converts_its_floats_to_fractions() -> None:
    desc = directml.Resample2Desc(
        input=f32(9),
        output=f32(3),
        interpolation_mode=NEAREST_NEIGHBOR,
        rounding_direction=DOWN,
        scales=(1 / 3,),
        input_pixel_offsets=(0,),
        output_pixel_offsets=(0,),
    )
    assert directml.lower(desc)(np.arange(9, dtype=np.float32)).tolist() == [0, 3, 6]
    assert directml.from_json(directml.to_json(desc)) == desc


@pytest.mark.parametrize("desc", WITH_OFFSETS, ids=lambda desc: desc.short_name)
def test_scales_and_offsets_have_one_length(desc: Any) -> None:
    with refuses("must have the same length, DimensionCount; got 3, 4 and 4", InvalidDesc):
        replace(desc, scales=(1, 1, 1))
