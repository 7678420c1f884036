"""Pooling, its gradients and inverse; the pages' examples run in test_every_operator.py."""

import itertools
import math
from dataclasses import replace
from typing import Any

import cases_pooling as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_padding import blocks_of
from cases_pooling import INPUT, LARGEST
from helpers import (
    FLOATS,
    FULL,
    GATE,
    REALS,
    SAMPLED,
    X64,
    assert_same_bits,
    at_once,
    check_linear_gradients,
    f32,
    few_of,
    random_array,
    random_indices,
    specials,
    tensor,
)
from jax.test_util import check_grads

import dmljax
from dmljax import directml
from dmljax.directml import InvalidDesc
from dmljax.lowerings.images.channels import network_layout

NAN, INF = np.nan, np.inf
RNG = np.random.default_rng(0)


def sliding(*rows: tuple[int, ...]) -> dict[str, Any]:
    names = ("window_sizes", "strides", "dilations", "start_padding", "end_padding")
    return dict(zip(names, rows, strict=True))


def whole_numbers(*shape: int) -> Any:
    """Floats whose sums are exact."""
    return RNG.integers(-9, 10, shape).astype(np.float32)


# Against the pseudo-code


def check(image: Any, windows: dict[str, Any]) -> None:
    """Pooling by its pseudo-code, compiled at once; the sums of the image are exact."""
    gradient = RNG.integers(-9, 10, oracles.pooled_sizes(image.shape, windows)).astype(image.dtype)

    def layers(image: Any) -> Any:
        return (
            dmljax.max_pooling2(image, has_indices=False, **windows).values,
            dmljax.average_pooling1(image, include_padding=False, **windows),
            dmljax.average_pooling1(image, include_padding=True, **windows),
            dmljax.lp_pooling1(image, p=1, **windows),
        )

    @jax.jit
    def pool(image: Any, gradient: Any) -> Any:
        with network_layout(2):
            in_network = layers(image)
        others = dmljax.max_pooling2(image, **windows), dmljax.max_pooling_grad(image, gradient, **windows)
        return layers(image), in_network, *others

    *both, (values, indices), spread = pool(image, gradient)
    expected, places = oracles.max_pooling(image, **windows)
    assert_same_bits(values, expected)
    assert_same_bits(indices, places.astype(np.int32))
    np.testing.assert_array_equal(spread, oracles.max_pooling_gradient(image, gradient, **windows))
    for largest, *averages, norm in both:
        assert_same_bits(largest, expected)
        for include_padding, average in zip((False, True), averages, strict=True):
            exact = oracles.averages(image, include_padding=include_padding, **windows)
            np.testing.assert_array_equal(average, exact.astype(image.dtype))
        np.testing.assert_array_equal(norm, oracles.norms(image, p=1, **windows))


@FULL
@pytest.mark.parametrize(
    ("image", "rows"),
    [
        ((1, 1, 5), ((3,), (1,), (1,), (2,), (2,))),
        ((2, 1, 7), ((1,), (3,), (2,), (0,), (0,))),
        ((2, 2, 5, 7), ((3, 2), (2, 5), (1, 3), (1, 0), (2, 3))),
        ((1, 2, 8, 4), ((4, 1), (6, 1), (2, 3), (0, 0), (5, 0))),
        ((1, 2, 4, 3, 5), ((2, 3, 1), (1, 2, 4), (2, 1, 3), (2, 0, 0), (0, 1, 0))),
        ((1, 2, 130), ((50,), (2,), (2,), (1,), (7,))),  # more elements in a window than are combined at once
        ((1, 2, 70), ((35,), (3,), (1,), (34,), (34,))),
        ((1, 2, 50), ((40,), (7,), (1,), (0,), (0,))),  # a single window
        ((1, 2, 30), ((1,), (2**32 - 1,), (2**32 - 1,), (0,), (0,))),
    ],
    ids=str,
)
def test_windows_equal_the_pseudo_code(image: Any, rows: Any) -> None:
    check(whole_numbers(*image), sliding(*rows))


WINDOWS = sliding((3, 2), (2, 1), (1, 2), (2, 1), (1, 1))


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_max_pooling_keeps_every_bit_and_never_selects_padding(dtype: Any, call: Any) -> None:
    lowest = np.full((2, 2, 6, 5), -INF if dtype in FLOATS else specials(dtype).min(), dtype)
    for image in (random_array(np.random.default_rng(0), dtype, (2, 2, 6, 5)), lowest):
        values, indices = call(dmljax.max_pooling2, image, **WINDOWS)
        expected, places = oracles.max_pooling(image, **WINDOWS)
        assert_same_bits(values, expected)
        assert_same_bits(indices, places.astype(np.int32))
        for layers in (1, 2):  # channels are last in a network
            with network_layout(layers):
                assert_same_bits(call(dmljax.max_pooling2, image, has_indices=False, **WINDOWS).values, expected)


# The largest elements


def selected(call: Any, row: Any) -> Any:
    """The maxima of windows of two elements and their indices; checks that the maxima are the same without indices."""
    values, indices = call(dmljax.max_pooling1, row, window_sizes=2)
    assert_same_bits(call(dmljax.max_pooling1, row, window_sizes=2, has_indices=False).values, values)
    return values, indices


def test_nan_is_larger_than_every_number_and_the_first_is_selected(call: Any) -> None:
    row = np.array([[[1, INF, NAN, -NAN, 2, 3]]], np.float32)
    values, indices = selected(call, row)
    assert_same_bits(values, row[..., [1, 2, 2, 3, 5]])
    assert indices.tolist() == [[[1, 2, 2, 3, 5]]]


def test_zeros_are_equal_and_keep_their_sign(call: Any) -> None:
    row = np.array([[[-0.0, 0.0, -0.0]]], np.float32)
    values, indices = selected(call, row)
    assert_same_bits(values, row[..., :2])
    assert indices.tolist() == [[[0, 1]]]


def test_subnormals_are_distinct_numbers(call: Any) -> None:
    row = np.array([[[1e-45, 3e-45, 0, -1e-45]]], np.float32)
    values, indices = selected(call, row)
    assert indices.tolist() == [[[1, 1, 2]]]
    assert_same_bits(values, row[..., [1, 1, 2]])


def test_the_first_of_equal_elements_comes_first_in_row_major_order(call: Any) -> None:
    image = np.array([[[[0, 7], [7, 0]]]], np.int32)
    assert call(dmljax.max_pooling1, image, window_sizes=2).indices.tolist() == [[[[1]]]]


def test_indices_count_all_batches_and_channels() -> None:
    image = np.zeros((2, 3, 4), np.int8)
    image[..., 2] = 1
    indices = dmljax.max_pooling1(image, window_sizes=4).indices
    assert indices.tolist() == [[[2], [6], [10]], [[14], [18], [22]]]
    assert dmljax.max_pooling1(image, window_sizes=4, dtype="int8").indices.dtype == np.int8
    with pytest.raises(InvalidDesc, match="max_pooling1: dtype must hold indices up to 299; got uint8"):
        dmljax.max_pooling1(np.zeros((3, 1, 100)), window_sizes=1, dtype="uint8")


def test_indices_are_returned_only_on_request() -> None:
    image = whole_numbers(1, 1, 5)
    for function in (dmljax.max_pooling1, dmljax.max_pooling2):
        values, indices = function(image, window_sizes=2, has_indices=False)
        assert indices is None
        assert_same_bits(values, dmljax.max_pooling(image, window_sizes=2))


@pytest.mark.parametrize("dtype", few_of(FLOATS, np.dtype("float32")), ids=str)
@pytest.mark.parametrize("padding", few_of([0, 1], 1))
@pytest.mark.gate(but=1)
def test_the_gradient_goes_to_the_element_that_is_selected(dtype: Any, padding: int, lowering: str) -> None:
    largest = np.array(jnp.finfo(dtype).max, dtype)
    values = [np.array(x, dtype) for x in (NAN, INF, -INF, 0, -1)] + [largest, -largest]
    image = np.array(list(itertools.product(values, repeat=3)), dtype)[None]
    windows: dict[str, Any] = {"window_sizes": 2, "start_padding": padding, "end_padding": padding}
    pooled = dmljax.max_pooling2(image, has_indices=True, **windows)
    gradient = np.exp2(RNG.integers(-3, 4, pooled.values.shape)).astype(dtype)  # whose sums are exact
    expected = np.zeros(image.shape, dtype)
    np.add.at(expected.ravel(), np.asarray(pooled.indices), gradient)
    of_jax = jax.vjp(lambda x: dmljax.max_pooling(x, **windows), image)[1](gradient)[0]
    for actual in (dmljax.max_pooling_grad(image, gradient, **windows), of_jax):
        np.testing.assert_array_equal(actual, expected)
    assert_same_bits(image.ravel()[np.asarray(pooled.indices)], dmljax.max_pooling(image, **windows))


@pytest.mark.parametrize("dtype", few_of(FLOATS, np.dtype("float32")), ids=str)
@pytest.mark.parametrize("dilation", few_of([1, 2], 2))
@pytest.mark.gate(but=1)
def test_the_gradient_of_max_pooling_is_max_pooling_grad(dtype: Any, dilation: int, lowering: str) -> None:
    windows = WINDOWS | {"dilations": (dilation, dilation)}
    # Few different values and NaN, so that ties are everywhere.
    image = RNG.integers(0, 3, (2, 3, 9, 8)).astype(dtype)
    image[0, 0, 2:4, 1:3], image[1] = NAN, -INF
    gradient = RNG.integers(-9, 10, oracles.pooled_sizes(image.shape, windows)).astype(dtype)
    tangent = RNG.integers(-9, 10, image.shape).astype(dtype)
    expected = oracles.max_pooling_gradient(image, gradient, **windows).astype(dtype)
    _, places = oracles.max_pooling(image, **windows)

    @jax.jit  # one compilation for all of them
    def derivatives(image: Any, gradient: Any, tangent: Any) -> Any:
        actual, pull = jax.vjp(lambda x, g: dmljax.max_pooling_grad(x, g, **windows), image, gradient)
        of_layers = []
        for has_indices, layers in ((True, 1), (False, 1), (False, 2)):
            values = lambda x: dmljax.max_pooling2(x, has_indices=has_indices, **windows).values  # noqa: B023, E731
            with network_layout(layers):
                of_layers.append((jax.vjp(values, image)[1](gradient)[0], jax.jvp(values, (image,), (tangent,))[1]))
        return actual, of_layers, pull(actual)

    actual, of_layers, (by_image, by_gradient) = derivatives(image, gradient, tangent)
    np.testing.assert_array_equal(actual, expected)
    for backward, forward in of_layers:
        assert_same_bits(backward, actual)
        assert_same_bits(forward, tangent.ravel()[places.astype(int)])
    # The gradient is linear in its argument; its derivative with respect to the image is 0.
    assert not by_image.any()
    np.testing.assert_array_equal(by_gradient, expected.ravel()[places.astype(int)])


@FULL
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_sums_of_16_bit_floats_are_rounded_once(dtype: Any, call: Any) -> None:
    # 2048 + 1 would always be 2048 in float16, and 256 + 1 would always be 256 in bfloat16.
    large = {jnp.float16: 2048, jnp.bfloat16: 256}[dtype]
    gradient = np.ones((1, 1, 9), dtype)
    gradient[0, 0, 4] = large
    image = np.zeros((1, 1, 17), dtype)
    image[0, 0, 8] = 1
    assert call(dmljax.max_pooling_grad, image, gradient, window_sizes=9)[0, 0, 8] == np.asarray(large + 8, dtype)
    for pooled in (dmljax.max_pooling, lambda x, **how: dmljax.max_pooling1(x, **how).values):
        _, pull = jax.vjp(lambda x, pooled=pooled: pooled(x, window_sizes=9), image)
        assert pull(jnp.asarray(gradient))[0][0, 0, 8] == np.asarray(large + 8, dtype)
    pooled = call(dmljax.average_pooling, gradient, window_sizes=8, strides=8)
    assert_same_bits(pooled, np.array([[[(large + 7) / 8]]], dtype))
    norm = call(dmljax.lp_pooling, gradient, window_sizes=9, p=1)
    assert_same_bits(norm, np.array([[[large + 8]]], dtype))
    spread = call(dmljax.average_pooling_grad, gradient, window_sizes=9, output_sizes=(1, 1, 17), include_padding=True)
    assert_same_bits(spread[0, 0, 8], np.asarray((large + 8) / 9, dtype))
    _, pull = jax.vjp(lambda x: dmljax.average_pooling(x, window_sizes=9), image)
    assert_same_bits(pull(jnp.asarray(gradient))[0], spread)


# Averages


def test_padding_counts_only_if_it_is_included() -> None:
    row = np.array([[[2, 4, 6]]], np.float32)
    pads: dict[str, Any] = {"window_sizes": 3, "start_padding": 2, "end_padding": 1}
    assert dmljax.average_pooling(row, **pads).tolist() == [[[2, 3, 4, 5]]]
    expected = np.array([2, 6, 12, 10], np.float32) / np.float32(3)
    assert_same_bits(dmljax.average_pooling(row, include_padding=True, **pads)[0, 0], expected)
    # A window entirely in the padding has nothing to divide by.
    beside = dmljax.average_pooling(row, window_sizes=1, start_padding=1)
    assert beside.tolist()[0][0][1:] == [2, 4, 6]
    assert np.isnan(beside[0, 0, 0])
    assert dmljax.average_pooling(row, window_sizes=1, start_padding=1, include_padding=True)[0, 0, 0] == 0


def test_infinities_and_nan_stay_in_their_windows() -> None:
    row = np.array([[[INF, 1, NAN, -INF, 2, 4]]], np.float32)
    for pool in (
        dmljax.average_pooling,
        lambda x, **kw: dmljax.lp_pooling(x, p=1, **kw),
        lambda x, **kw: dmljax.lp_pooling(x, p=2, **kw),
        lambda x, **kw: dmljax.lp_pooling(x, p=5, **kw),
    ):
        (pooled,) = pool(row, window_sizes=2)[0].tolist()
        assert pooled[0] == INF
        assert np.isnan(pooled[1:3]).all()
        assert abs(pooled[3]) == INF
        assert math.isfinite(pooled[4])
    gradient = dmljax.average_pooling_grad(row, window_sizes=2, output_sizes=(1, 1, 7))
    np.testing.assert_array_equal(gradient, [[[INF, INF, NAN, NAN, -INF, 3, 2]]])


@FULL
@pytest.mark.parametrize("include_padding", [False, True])
def test_the_gradient_of_average_pooling_is_average_pooling_grad(include_padding: bool) -> None:
    windows: dict[str, Any] = {"window_sizes": (3, 20), "strides": (2, 3), "start_padding": (1, 0)}
    windows |= {"end_padding": (2, 5), "include_padding": include_padding}
    image = whole_numbers(1, 2, 6, 26)
    average = lambda x: dmljax.average_pooling(x, **windows)  # noqa: E731
    pooled, pull = jax.vjp(average, image)
    spread = lambda g: dmljax.average_pooling_grad(g, output_sizes=image.shape, **windows)  # noqa: E731
    gradient = whole_numbers(*pooled.shape)
    exact = oracles.averages_gradient(gradient, output_sizes=image.shape, **windows)
    for actual in (pull(gradient)[0], spread(gradient)):
        np.testing.assert_allclose(actual, exact, rtol=1e-6, atol=1e-6)
    check_linear_gradients(average, (image,), order=1)
    check_linear_gradients(spread, (gradient,), order=1)


# Norms


@SAMPLED
@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_norms_of_any_order_follow_the_formula(p: int) -> None:
    windows = sliding((2, 2), (1, 1), (1, 1), (0, 1), (1, 0))
    image = (RNG.uniform(0.5, 1, (1, 6, 4, 3)) * RNG.choice([-1, 1], (1, 6, 4, 3))).astype(np.float32)
    image *= np.array([1e-4, 1e-2, 1, 1e2, 1e4, 0], np.float32)[:, None, None]
    exact = np.zeros(oracles.pooled_sizes(image.shape, windows))
    for place, elements in oracles.places(image.shape, windows):
        exact[place] = sum(abs(float(image[element])) ** p for element in elements) ** (1 / p)
    np.testing.assert_allclose(dmljax.lp_pooling1(image, p=p, **windows), exact, rtol=1e-6)  # powers round


@FULL
@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_gradient_of_a_norm_is_finite_differences_and_0_at_0(p: int) -> None:
    windows = sliding((2, 3), (2, 1), (1, 2), (1, 0), (0, 1))
    image = RNG.permutation(np.linspace(-3, 3, 60)).astype(np.float32).reshape(1, 2, 5, 6)
    norm = lambda x: dmljax.lp_pooling1(x, p=p, **windows)  # noqa: E731
    check_grads(norm, (image,), order=1, eps=1e-2, atol=2e-2, rtol=2e-2)
    for value in (0.0, 1e-6, 1e6):
        grad = jax.grad(lambda x: dmljax.lp_pooling(x, window_sizes=4, p=p)[0, 0, 0])(
            np.full((1, 1, 4), value, np.float32)
        )
        np.testing.assert_allclose(grad, np.full((1, 1, 4), 0 if value == 0 else 4 ** (1 / p - 1)), rtol=1e-6)


# The inverse


@SAMPLED
@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int32] + [np.uint64] * X64, ids=str)
def test_every_platform_returns_indices_of_any_type(dtype: Any, lowering: str) -> None:
    image = RNG.integers(0, 3, (1, 2, 7, 9)).astype(np.float32)
    values, indices = dmljax.max_pooling2(image, dtype=dtype, **WINDOWS)
    expected = oracles.max_pooling(image, **WINDOWS)
    assert_same_bits(values, expected[0])
    assert_same_bits(indices, expected[1].astype(dtype))
    assert_same_bits(
        dmljax.max_unpooling(values, indices, output_sizes=image.shape),
        oracles.unpooled(np.asarray(values), np.asarray(indices), output_sizes=image.shape),
    )


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_unpooling_keeps_every_bit_and_the_last_write_to_an_index_wins(dtype: Any, call: Any) -> None:
    values = random_array(np.random.default_rng(0), dtype, (2, 2, 5))
    for indices in (
        random_indices(np.random.default_rng(1), np.int32, values.shape, 40),
        np.random.default_rng(2).integers(0, 2**32, values.shape, np.uint64).astype(np.uint32) >> 26,
    ):
        actual = call(dmljax.max_unpooling, values, indices, output_sizes=(2, 4, 5))
        assert_same_bits(actual, oracles.unpooled(values, indices, output_sizes=(2, 4, 5)))


def test_the_gradient_of_unpooling_goes_to_the_element_that_was_written() -> None:
    indices = np.array([[[3, 1, 3, 9]]], np.uint32)
    weights = np.array([[[1, 2, 3, 4, 5]]], np.float32)
    loss = lambda x: (dmljax.max_unpooling(x, indices, output_sizes=(1, 1, 5)) * weights).sum()  # noqa: E731
    assert jax.grad(loss)(np.ones((1, 1, 4), np.float32)).tolist() == [[[0, 2, 4, 0]]]


# Quantized averages


@SAMPLED
@pytest.mark.parametrize("include_padding", [False, True])
@pytest.mark.parametrize(("dtype", "result"), [("uint8", "int8"), ("int8", "uint8"), ("int16", "uint16")])
def test_quantized_averages_equal_the_pseudo_code(dtype: str, result: str, include_padding: bool, call: Any) -> None:
    rng = np.random.default_rng(0)
    image = random_array(rng, dtype, (2, 3, 5, 4))
    limits, final = np.iinfo(dtype), np.iinfo(result)
    for zeros, final_zero in (([limits.min, 0, limits.max], final.max), ([5, 5, 5], final.min), ([0, 1, 2], 0)):
        arguments = (
            image,
            rng.uniform(0.1, 3, (1, 3, 1, 1)).astype(np.float32),
            np.array(zeros, dtype).reshape(1, 3, 1, 1),
            np.array([0.37], np.float32),
            np.array(final_zero, result),
        )
        actual = call(dmljax.quantized_linear_average_pooling, *arguments, include_padding=include_padding, **WINDOWS)
        expected = oracles.quantized_averages(
            *arguments, dtype=np.dtype(result), include_padding=include_padding, **WINDOWS
        )
        assert_same_bits(actual, expected)


def test_scales_and_zero_points_of_channels_need_no_other_dimension() -> None:
    image = random_array(np.random.default_rng(0), "uint8", (2, 3, 5, 3))  # as wide as there are channels
    parameters: list[Any] = [np.array([0.5, 1, 2], np.float32), np.array([1, 2, 3], np.uint8)] * 2
    shaped = [parameter.reshape(1, 3, 1, 1) for parameter in parameters]
    flat, expected = (
        dmljax.quantized_linear_average_pooling(image, *numbers, window_sizes=2) for numbers in (parameters, shaped)
    )
    assert_same_bits(flat, expected)


@pytest.mark.parametrize("sizes", [(1, 2, 1, 1), (1, 2, 1, 1, 1)], ids=str)
def test_scales_of_channels_beside_five_dimensions_have_four_or_five(sizes: tuple[int, ...]) -> None:
    zero, each = tensor("UINT8", *sizes), (1, 1, 1)
    desc = directml.QuantizedLinearAveragePoolingDesc(
        input=tensor("UINT8", 1, 2, 1, 4, 5),
        input_scale=f32(*sizes),
        input_zero_point=zero,
        output_scale=f32(*sizes),
        output_zero_point=zero,
        output=tensor("UINT8", 1, 2, 1, 3, 4),
        strides=each,
        window_size=(1, 2, 2),
        start_padding=(0, 0, 0),
        end_padding=(0, 0, 0),
        dilations=each,
        include_padding=False,
    )
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        name: np.exp2(rng.integers(-1, 2, member.sizes)).astype(np.float32)
        if member.dtype == np.float32
        else random_array(rng, member.dtype, member.sizes)
        for name, member in desc.tensors(is_input=True).items()
    }
    expected = oracles.quantized_averages(**given, dtype=np.dtype("uint8"), **oracles.window_arguments(desc))
    assert_same_bits(directml.lower(desc)(**given), expected)


def test_quantized_averages_round_half_to_even(call: Any) -> None:
    row = np.array([[[1, 2, 3, 4, 255]]], np.uint8)
    pool = lambda *given, **kw: call(dmljax.quantized_linear_average_pooling, row, *given, window_sizes=2, **kw)  # noqa: E731
    one = np.float32(1)
    assert pool(one, None, one).tolist() == [[[2, 2, 4, 130]]]
    assert pool(one, np.uint8(255), one, dtype="int8").tolist() == [[[-128, -128, -128, -126]]]
    assert pool(one, None, one, np.int8(-3)).tolist() == [[[-1, -1, 1, 127]]]


def test_quantized_sums_of_any_length_are_exact() -> None:
    # 70,001 elements of 255 add up to 17,850,255, which float32 rounds to 17,850,256: once, and not at each step.
    row = np.full((1, 1, 70_001), 255, np.uint8)
    row[..., 0] = 254
    scale = np.float32(1 / 255)
    average = np.float32(17_850_254) * scale / np.float32(70_001)
    actual = dmljax.quantized_linear_average_pooling(row, scale, None, np.float32(1 / 128), window_sizes=70_001)
    assert actual.tolist() == [[[int(np.rint(average * np.float32(128)))]]]


# Shapes, transformations and wrong calls


def all_functions() -> dict[str, Any]:
    """Each function of an image, with small windows."""
    windows: dict[str, Any] = {"window_sizes": 2, "start_padding": 1}
    quantized = lambda x: dmljax.quantized_linear_average_pooling(  # noqa: E731
        jnp.clip(x, -100, 100).astype(np.int8), 0.5, None, 1.0, **windows
    )

    def gradients(x: Any) -> Any:
        values = dmljax.max_pooling(x, **windows)
        return (
            dmljax.max_pooling_grad(x, values, **windows),
            dmljax.average_pooling_grad(values, output_sizes=x.shape, **windows),
        )

    return {
        "averages": lambda x: dmljax.average_pooling1(x, dilations=2, **windows),
        "norms": lambda x: dmljax.lp_pooling(x, **windows),
        "largest": lambda x: dmljax.max_pooling2(x, **windows),
        "gradients": gradients,
        "quantized": quantized,
    }


@GATE
def test_empty_batches_stay_empty() -> None:
    for image in (np.zeros((0, 3, 4), np.float32), np.zeros((2, 0, 4, 5), np.float32)):
        for function in all_functions().values():
            for result in jax.tree.leaves(function(image)):
                assert result.shape[:2] == image.shape[:2]
                assert result.size == 0
    assert dmljax.max_unpooling(np.zeros((0, 1, 4)), np.zeros((0, 1, 4), int), output_sizes=(1, 1, 2)).tolist() == [
        [[0, 0]]
    ]


def test_a_single_number_applies_to_all_dimensions() -> None:
    image = whole_numbers(1, 1, 6, 7)
    pooled = dmljax.max_pooling2(image, window_sizes=2, strides=2, dilations=3, start_padding=1, end_padding=1)
    two = sliding((2, 2), (2, 2), (3, 3), (1, 1), (1, 1))
    assert_same_bits(pooled.values, dmljax.max_pooling2(image, **two).values)
    assert pooled.values.shape[2:] == tuple(blocks_of((6, 7), **two))


# Descriptors


def test_indices_are_an_optional_output() -> None:
    image = whole_numbers(*INPUT.sizes)
    values, indices = directml.lower(LARGEST)(image)
    alone = directml.lower(replace(LARGEST, output_indices=None))(image)
    assert alone.output_indices is None
    assert_same_bits(alone.output, values)
    assert indices.dtype == np.uint32
    if X64:
        wide = directml.lower(replace(LARGEST, output_indices=tensor("UINT64", 1, 2, 3, 4)))(image)
        assert_same_bits(wide.output_indices, np.asarray(indices).astype(np.uint64))


def rounded_up(x: Any, size: int, stride: int, dilation: int, padding: tuple[int, int]) -> list[list[Any]]:
    """The elements of the padded row in the window at each place; None is padding."""
    row = [*[None] * padding[0], *x, *[None] * padding[1]]
    extent = 1 + (size - 1) * dilation
    places = -(-(len(row) - extent) // stride) + 1
    places -= (places - 1) * stride >= padding[0] + len(x)
    return [row[i * stride : i * stride + extent : dilation] for i in range(places)]


@pytest.mark.parametrize("padding", few_of([(0, 0), (1, 0), (1, 1)], (1, 0)))
@pytest.mark.parametrize("steps", few_of([(1, 1), (2, 1), (3, 1), (3, 2), (5, 1)], (2, 1), (3, 2)))
@pytest.mark.gate(but=1)
def test_sizes_may_be_rounded_up(steps: tuple[int, int], padding: tuple[int, int]) -> None:
    stride, dilation = steps
    sliding: Any = {"window_sizes": 2, "strides": stride, "dilations": dilation, "ceil_mode": True}
    sliding |= {"start_padding": padding[0], "end_padding": padding[1]}
    images = [RNG.standard_normal((1, 1, length)).astype(np.float32) for length in range(3, 9)]

    def pooled(image: Any) -> Any:
        averages = [dmljax.average_pooling1(image, **sliding, include_padding=counts) for counts in (False, True)]
        return *averages, dmljax.max_pooling2(image, **sliding).values, dmljax.lp_pooling1(image, **sliding)

    for image, results in zip(images, at_once(pooled, images), strict=True):
        average, with_padding, maxima, norms = (result[0, 0] for result in results)
        windows = rounded_up(image[0, 0], 2, stride, dilation, padding)
        inside = [[element for element in window if element is not None] for window in windows]
        np.testing.assert_allclose(average, [np.mean(values) for values in inside], rtol=1e-6)
        expected = [np.sum(values) / len(window) for values, window in zip(inside, windows, strict=True)]
        np.testing.assert_allclose(with_padding, expected, rtol=1e-6)
        assert_same_bits(maxima, np.array([max(values) for values in inside]))
        np.testing.assert_allclose(norms, [np.sqrt(np.sum(np.square(values))) for values in inside], rtol=1e-6)
    if dilation == 1:
        del sliding["dilations"]
        for name in ("average_pooling", "lp_pooling"):
            function = getattr(dmljax, name)
            assert_same_bits(function(image, **sliding), getattr(dmljax, f"{name}1")(image, **sliding))
        assert_same_bits(dmljax.max_pooling(image, **sliding), dmljax.max_pooling1(image, **sliding).values)
