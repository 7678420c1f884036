"""CONVOLUTION, CONVOLUTION_INTEGER and QUANTIZED_LINEAR_CONVOLUTION."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import cases_convolution as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_convolution import BACK, CONVOLUTION, FILTERS, IMAGE, INTEGER, QUANTIZED
from helpers import (
    FULL,
    GATE,
    INT32_MAX,
    INT32_MIN,
    SAMPLED,
    X64,
    assert_same_bits,
    f32,
    few_of,
    refuses,
)
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import directml
from dmljax.directml import ConvolutionDirection, ConvolutionMode
from dmljax.lowerings.images.channels import network_layout

BACKWARD, FLIPPED = ConvolutionDirection.BACKWARD, ConvolutionMode.CONVOLUTION
RNG = np.random.default_rng(3)


def whole(*shape: int, dtype: Any = np.float32) -> Any:
    """Integers, whose products and sums are exact."""
    return RNG.integers(-4, 5, shape).astype(dtype)


def expected(input: Any, filter: Any, bias: Any = None, **arguments: Any) -> Any:
    """The oracle's result for a call of `convolution`."""
    count = input.ndim - 2
    defaults = {"strides": 1, "dilations": 1, "start_padding": 0, "end_padding": 0, "output_padding": 0}
    space = {name: each(arguments.get(name, default), count) for name, default in defaults.items()}
    appended, groups = space.pop("output_padding"), arguments.get("group_count", 1)
    direction = arguments.get("direction", ConvolutionDirection.FORWARD)
    if direction is BACKWARD:
        sizes, channels = oracles.backward_sizes(input.shape[2:], filter.shape[2:], space), filter.shape[1] * groups
    else:
        sizes, channels = oracles.forward_sizes(input.shape[2:], filter.shape[2:], space), filter.shape[0]
    sizes = [size + more for size, more in zip(sizes, appended, strict=True)]
    output = oracles.convolve(
        input,
        filter,
        bias,
        mode=arguments.get("mode", ConvolutionMode.CROSS_CORRELATION),
        direction=direction,
        output_padding=appended,
        group_count=groups,
        output_sizes=arguments.get("output_sizes", (input.shape[0], channels, *sizes)),
        **space,
    )
    return output.astype(input.dtype)


def assert_same_sums(actual: Any, exact: Any) -> None:
    """Checks that bits are equal, except for the sign of a zero: a sum of only negative zeros may be either."""
    assert_same_bits(np.asarray(actual) + 0, np.asarray(exact) + 0)


def each(value: Any, count: int) -> tuple[int, ...]:
    return (value,) * count if isinstance(value, int) else tuple(value)


# Both directions


# One of each kind of convolution that has its own lowering on some platform
SHAPES: dict[str, tuple[Any, Any, Any]] = {
    "dense": ((2, 3, 6, 7), (4, 3, 3, 2), {"start_padding": (1, 0), "end_padding": (0, 2)}),
    "strided": ((2, 3, 7, 9), (4, 3, 3, 3), {"strides": (2, 3), "start_padding": 1, "end_padding": 1}),
    "dilated": ((1, 2, 9, 8), (3, 2, 2, 3), {"dilations": (3, 2), "start_padding": 2}),
    "pointwise": ((2, 5, 4, 3), (6, 5, 1, 1), {}),
    "pointwise, strided": ((2, 5, 5, 4), (6, 5, 1, 1), {"strides": 2, "start_padding": 1}),
    "pointwise, of groups": ((2, 4, 4, 3), (6, 2, 1, 1), {"group_count": 2}),
    "depthwise": ((2, 4, 6, 5), (4, 1, 3, 3), {"group_count": 4, "start_padding": 1, "end_padding": 1}),
    "depthwise, strided": ((2, 4, 7, 8), (4, 1, 3, 3), {"group_count": 4, "strides": 2, "start_padding": 1}),
    "depthwise, of large windows": ((1, 3, 12, 11), (3, 1, 9, 9), {"group_count": 3, "start_padding": 2}),
    "depthwise, of three dimensions": ((2, 3, 4, 5, 3), (3, 1, 2, 3, 1), {"group_count": 3, "strides": (1, 2, 1)}),
    "depthwise, of two filters each": ((2, 3, 5, 6), (6, 1, 3, 2), {"group_count": 3, "dilations": 2}),
    "depthwise, of two channels each": ((2, 4, 4, 5), (2, 2, 2, 3), {"group_count": 2, "start_padding": 1}),
    "of groups": ((2, 10, 4, 5), (4, 5, 2, 3), {"group_count": 2, "strides": (1, 2), "end_padding": 1}),
    "of groups of few channels": ((2, 4, 4, 5), (6, 2, 2, 2), {"group_count": 2, "strides": 2, "start_padding": 1}),
    "of many terms": ((2, 8, 9, 7), (3, 8, 3, 3), {"strides": 2, "start_padding": 1, "end_padding": 1}),
    "of many channels": ((2, 256, 5, 6), (3, 256, 3, 2), {"dilations": (2, 1), "start_padding": (1, 2)}),
    "of many channels, strided": ((1, 256, 7, 9), (3, 256, 3, 2), {"strides": (2, 3), "end_padding": (2, 1)}),
    "of many rows": ((1, 5, 15, 39), (3, 5, 7, 2), {"dilations": (2, 1), "start_padding": (1, 0), "end_padding": 2}),
    "of one dimension": ((2, 3, 9), (4, 3, 4), {"strides": 2, "dilations": 2, "start_padding": 3}),
    "beside the image": ((1, 32, 1, 9), (3, 32, 1, 2), {"strides": (2, 1), "start_padding": (1, 0)}),
    "of little more than padding": ((1, 16, 1, 40), (3, 16, 3, 3), {"start_padding": (3, 1), "end_padding": (5, 4)}),
    "mostly of padding": (
        (2, 3, 9, 9),
        (2, 3, 3, 3),
        {"dilations": (6, 9), "start_padding": (6, 9), "end_padding": (5, 9)},
    ),
    "of three dimensions": ((1, 2, 4, 5, 3), (3, 2, 2, 3, 1), {"strides": (1, 2, 1), "start_padding": 1}),
    "of three dimensions and many channels": (
        (2, 5, 6, 6, 4),
        (3, 5, 3, 2, 2),
        {"strides": (2, 1, 1), "dilations": (2, 1, 2), "start_padding": (1, 0, 1)},
    ),
}
BACKWARD_SHAPES: dict[str, tuple[Any, Any, Any]] = {
    "dense": ((2, 3, 5, 4), (3, 4, 3, 2), {"start_padding": (1, 0), "end_padding": (0, 1)}),
    "of blocks": ((2, 3, 4, 5), (3, 4, 2, 2), {"strides": 2}),
    "blocks of groups": ((2, 4, 2, 3), (4, 3, 2, 2), {"group_count": 2, "strides": 2}),
    "of many channels": ((1, 256, 4, 5), (256, 3, 3, 2), {"start_padding": (1, 0)}),
    "overlapping": ((2, 3, 4, 5), (3, 4, 4, 3), {"strides": 2, "start_padding": 1, "end_padding": 1}),
    "with gaps": ((2, 3, 4, 3), (3, 2, 2, 1), {"strides": (3, 2), "output_padding": (1, 1)}),
    "dilated": ((1, 2, 4, 5), (2, 3, 3, 2), {"strides": (2, 3), "dilations": (3, 2), "output_padding": 1}),
    "dilated as strided": ((1, 2, 4, 5), (2, 3, 3, 2), {"strides": 2, "dilations": 2, "end_padding": 1}),
    "of groups": ((2, 4, 4, 3), (4, 3, 3, 3), {"group_count": 2, "strides": 2, "start_padding": 1}),
    "depthwise": ((2, 4, 4, 3), (4, 1, 4, 4), {"group_count": 4, "strides": 2, "start_padding": 1}),
    "depthwise, one apart": (
        (2, 4, 4, 5),
        (4, 1, 3, 2),
        {"group_count": 4, "start_padding": (1, 0), "dilations": (1, 2)},
    ),
    "of one dimension": ((2, 3, 5), (3, 2, 5), {"strides": 3, "start_padding": 2, "output_padding": 2}),
    "of one row": (
        (1, 16, 1, 4),
        (16, 3, 3, 2),
        {"strides": (3, 1), "start_padding": 1, "end_padding": 1, "output_padding": (2, 0)},
    ),
    "of one row, one apart": ((1, 32, 1, 4), (32, 16, 1, 2), {"start_padding": (1, 0), "output_padding": (2, 0)}),
    "of three dimensions": ((1, 2, 3, 2, 3), (2, 3, 2, 3, 2), {"strides": (1, 2, 2), "start_padding": (0, 1, 0)}),
}
EVERY: dict[str, tuple[Any, Any, Any]] = SHAPES | {
    f"{name}, backward": (image, filters, {"direction": BACKWARD, **arguments})
    for name, (image, filters, arguments) in BACKWARD_SHAPES.items()
}
# One for each lowering on a CPU, a GPU or a TPU.


@SAMPLED
@pytest.mark.parametrize("name", EVERY)
def test_every_lowering_and_its_derivatives_equal_sums_in_loops(name: str) -> None:
    check_derivatives(*EVERY[name])


def small_convolution(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """A convolution of one to three rows, whose channels are next to a lowering's limit; much of it may be padding."""
    count, is_forward = int(rng.integers(1, 4)), bool(rng.integers(2))
    pick = lambda *choices: tuple(map(int, rng.choice(choices, count)))  # noqa: E731
    while True:
        image, filter, strides, dilations = pick(1, 1, 2, 3), pick(1, 2, 3, 7), pick(1, 2, 3), pick(1, 1, 2)
        start, end, appended = pick(0, 1, 2, 5), pick(0, 1, 2, 5), pick(0, 1, 2)
        space = dict(zip(oracles.NAMES, (strides, dilations, start, end), strict=True))
        sizes = (oracles.forward_sizes if is_forward else oracles.backward_sizes)(image, filter, space)
        if min(sizes) + (0 if is_forward else min(appended)) < 1 or math.prod(filter) > 100:
            continue
        groups = int(rng.choice([1, 1, 1, 2]))
        channels, outputs = rng.choice([1, 4, 5, 15, 16, 17, 32], 2).tolist()
        filters = (groups * outputs, channels) if is_forward else (groups * channels, outputs)
        arguments = {**space, "output_padding": appended, "group_count": groups}
        direction = ConvolutionDirection.FORWARD if is_forward else BACKWARD
        return (1, groups * channels, *image), (*filters, *filter), {"direction": direction, **arguments}


@SAMPLED
@pytest.mark.parametrize("seed", range(200))
def test_small_convolutions_and_their_derivatives_equal_sums_in_loops(seed: int) -> None:
    check_derivatives(*small_convolution(np.random.default_rng(seed)))


@FULL
@pytest.mark.parametrize("seed", range(200, 260))
def test_networks_of_small_convolutions_equal_sums_in_loops(seed: int) -> None:
    with network_layout(2):
        check_derivatives(*small_convolution(np.random.default_rng(seed)))


@pytest.mark.parametrize(
    "name",
    few_of(
        ["strided", *(name for name in SHAPES if name.startswith(("pointwise", "depthwise")))], "strided", "depthwise"
    ),
)
@pytest.mark.gate(but=1)
def test_networks_compute_with_channels_last(name: str) -> None:
    with network_layout(2):
        check_derivatives(*EVERY[name])


def check_derivatives(image: Any, filters: Any, arguments: Any) -> None:
    x, w, dx, dw = whole(*image), whole(*filters), whole(*image), whole(*filters)

    @jax.jit
    def derivatives(x: Any, w: Any, dx: Any, dw: Any) -> Any:
        convolve = lambda x, w: dmljax.convolution(x, w, **arguments)  # noqa: E731
        y, pull = jax.vjp(convolve, x, w)
        return y, jax.jvp(convolve, (x, w), (dx, dw))[1], pull(y)

    y, pushed, (of_x, of_w) = derivatives(x, w, dx, dw)
    assert_same_sums(y, expected(x, w, **arguments))
    # Products are linear in each operand, and the adjoint of a linear function is its transpose.
    by_x, by_w = expected(dx, w, **arguments), expected(x, dw, **arguments)
    assert_same_sums(pushed, by_x + by_w)
    assert float(np.vdot(of_x, dx)) == float(np.vdot(y, by_x))
    assert float(np.vdot(of_w, dw)) == float(np.vdot(y, by_w))


def test_grouped_convolutions_avoid_xlas_convolution_on_a_cpu() -> None:
    """XLA's grouped convolution takes up to 200 times as long."""
    x, w = whole(1, 8, 6, 7), whole(8, 1, 3, 3)

    def convolve(x: Any, w: Any) -> Any:
        return dmljax.convolution(x, w, group_count=8)

    gradient = jax.grad(lambda x, w: convolve(x, w).sum(), argnums=(0, 1))
    for function in (convolve, gradient):
        text = jax.jit(function).trace(x, w).lower(lowering_platforms=("cpu",)).as_text()
        assert "stablehlo.convolution" not in text


@SAMPLED
@pytest.mark.parametrize("name", ["of many terms", "depthwise", "pointwise", "of groups", "dense, backward"])
@GATE
def test_images_and_filters_may_be_mapped(name: str) -> None:
    image, filters, arguments = EVERY[name]
    x, w = whole(3, *image), whole(3, *filters)
    convolve = lambda x, w: dmljax.convolution(x, w, **arguments)  # noqa: E731
    both, of_x, of_w = jax.jit(
        lambda x, w: [
            jax.vmap(convolve)(x, w),
            jax.vmap(convolve, in_axes=(1, None), out_axes=1)(jnp.moveaxis(x, 0, 1), w[0]),
            jax.vmap(convolve, in_axes=(None, 0))(x[0], w),
        ]
    )(x, w)
    assert_same_sums(both, np.stack([expected(*item, **arguments) for item in zip(x, w, strict=True)]))
    assert_same_sums(np.moveaxis(of_x, 1, 0), np.stack([expected(item, w[0], **arguments) for item in x]))
    assert_same_sums(of_w, np.stack([expected(x[0], item, **arguments) for item in w]))


def test_filters_are_flipped_in_one_mode() -> None:
    x, w = np.array([[[1, 2, 4]]], np.float32), np.array([[[1, 10]]], np.float32)
    assert dmljax.convolution(x, w).tolist() == [[[21, 42]]]
    assert dmljax.convolution(x, w, mode=FLIPPED).tolist() == [[np.convolve([1, 2, 4], [1, 10], "valid").tolist()]]
    assert dmljax.convolution(x, w, direction=BACKWARD).tolist() == [[[1, 12, 24, 40]]]
    assert dmljax.convolution(x, w, direction=BACKWARD, mode=FLIPPED).tolist() == [[[10, 21, 42, 4]]]


def test_output_padding_holds_only_the_bias_forward_and_window_sums_backward() -> None:
    x, w, bias = np.array([[[1, 2]]], np.float32), np.array([[[1, 10, 100]]], np.float32), np.array([0.5], np.float32)
    forward = dmljax.convolution(x, w[:, :, :2], bias, output_padding=2)
    assert forward.tolist() == [[[21.5, 0.5, 0.5]]]
    whole_ = dmljax.convolution(x, w, bias, direction=BACKWARD, strides=2)
    assert whole_.tolist() == [[[1.5, 10.5, 102.5, 20.5, 200.5]]]
    cut: dict[str, Any] = {"direction": BACKWARD, "strides": 2, "end_padding": 2}
    assert dmljax.convolution(x, w, bias, **cut, output_padding=1).tolist() == [[[1.5, 10.5, 102.5, 20.5]]]
    assert dmljax.convolution(x, w, bias, **cut, output_padding=4).tolist() == [
        [[1.5, 10.5, 102.5, 20.5, 200.5, 0.5, 0.5]]
    ]
    # Elements beyond the formula's size only have the bias, whatever a window would add there.
    assert dmljax.convolution(x, w, bias, **cut, output_sizes=(1, 1, 4)).tolist() == [[[1.5, 10.5, 102.5, 0.5]]]


def test_a_single_number_applies_to_all_spatial_dimensions() -> None:
    x, w = whole(1, 2, 6, 7), whole(3, 2, 2, 3)
    single: dict[str, Any] = {"strides": 2, "dilations": np.int64(2), "start_padding": 1, "end_padding": 2}
    both: dict[str, Any] = {name: (int(number),) * 2 for name, number in single.items()}
    assert_same_bits(dmljax.convolution(x, w, **single), dmljax.convolution(x, w, **both))


def test_a_bias_has_a_number_for_each_output_channel_in_either_shape() -> None:
    x, w, bias = whole(1, 2, 3, 3), whole(4, 2, 2, 2), whole(4)
    assert_same_bits(dmljax.convolution(x, w, bias), dmljax.convolution(x, w, bias.reshape(1, 4, 1, 1)))


def test_a_fused_activation_applies_to_the_sum_with_the_bias() -> None:
    x, w = np.array([[[1, -3, 2]]], np.float32), np.array([[[1]], [[2]]], np.float32)
    arguments: dict[str, Any] = {"fused_activation": directml.ActivationReluDesc()}
    fused = dmljax.convolution(x, w, np.array([1, -3], np.float32), **arguments)
    assert fused.tolist() == [[[2, 0, 3], [0, 0, 1]]]


# Numbers


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.gate(but=1)
def test_the_sum_of_16_bit_floats_and_their_bias_is_rounded_once_before_the_activation(dtype: Any) -> None:
    odd = 2**11 + 1 if dtype == np.float16 else 2**8 + 1  # halfway between two neighbors
    x, w = np.array([[[odd - 1, 1]]], dtype), np.ones((1, 1, 2), dtype)
    assert dmljax.convolution(x, w).tolist() == [[[odd - 1]]]
    assert dmljax.convolution(x, w, np.array([-1], dtype)).tolist() == [[[odd - 1]]]
    less = directml.ActivationLinearDesc(alpha=1, beta=-1)
    assert dmljax.convolution(x, w, fused_activation=less).tolist() == [[[odd - 2]]]
    large = np.array([[[jnp.finfo(dtype).max, jnp.finfo(dtype).max]]], dtype)
    assert dmljax.convolution(large, np.array([[[1, -1]]], dtype)).tolist() == [[[0]]]
    assert np.isinf(dmljax.convolution(large, w).astype(np.float32)).all()


@FULL
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_16_bit_floats_have_gradients_of_their_type(dtype: Any) -> None:
    image, filters, arguments = EVERY["strided"]
    x, w = whole(*image, dtype=dtype), whole(*filters, dtype=dtype)
    loss = lambda x, w: dmljax.convolution(x, w, **arguments).astype(np.float32).sum()  # noqa: E731
    narrow, wide = (jax.grad(loss, argnums=(0, 1))(x.astype(kind), w.astype(kind)) for kind in (dtype, np.float32))
    for gradient, other in zip(narrow, wide, strict=True):
        assert_same_bits(gradient, np.asarray(other).astype(dtype))


@SAMPLED
@pytest.mark.parametrize(
    "name", ["dense", "depthwise", "pointwise", "of groups", "of many rows", "overlapping, backward"]
)
def test_nan_and_infinity_stay_within_their_windows(name: str) -> None:
    image, filters, arguments = EVERY[name]
    w = np.abs(whole(*filters)) + 1
    x = np.ones(image, np.float32)
    reached = expected(x * 0 + (np.arange(x.size).reshape(image) == 7), w, **arguments) != 0
    plain = expected(x, w, **arguments)
    for special in (np.inf, -np.inf, np.nan):
        x.flat[7] = special
        computed = np.asarray(dmljax.convolution(x, w, **arguments))
        assert_same_sums(computed[~reached], plain[~reached])
        np.testing.assert_array_equal(computed[reached], np.full(reached.sum(), special))


LAYERS: list[tuple[tuple[int, ...], tuple[int, ...], int, int]] = [  # images, filters, padding and groups
    ((1, 64, 28, 28), (32, 64, 3, 3), 1, 1),
    ((1, 3, 32, 32), (16, 3, 7, 7), 3, 1),
    ((1, 256, 7, 7), (64, 256, 3, 3), 1, 1),
    ((2, 512, 5, 5), (64, 512, 1, 1), 0, 1),
    ((1, 64, 14, 14), (64, 1, 3, 3), 1, 64),
]


@SAMPLED
@pytest.mark.skipif(not X64, reason="compares with sums of float64")
@pytest.mark.parametrize(("image", "filters", "padding", "groups"), LAYERS, ids=str)
def test_sums_of_float32_are_as_accurate_as_rounding_allows(
    image: Any, filters: Any, padding: int, groups: int
) -> None:
    """Where all products are positive, partial sums and their rounding errors are as large as they can be."""
    x, w = RNG.random(image, np.float32), RNG.random(filters, np.float32)
    computed = dmljax.convolution(x, w, start_padding=padding, end_padding=padding, group_count=groups)
    wide = x.astype(np.float64), w.astype(np.float64)
    exact = jax.lax.conv_general_dilated(*wide, (1, 1), [(padding, padding)] * 2, feature_group_count=groups)
    # XLA's own convolution on processors with AVX2 stays below 28 units.
    np.testing.assert_allclose(computed, exact, rtol=28 / 2**24)


# What is compiled


def modules(function: Any, *shapes: Any) -> dict[str, str]:
    """The lowered modules for each platform."""
    return {
        platform: jax.export.export(jax.jit(function), platforms=[platform])(*shapes).mlir_module()
        for platform in ("cuda", "tpu")
    }


@SAMPLED
@pytest.mark.parametrize("name", ["dense", "depthwise", "pointwise", "of groups", "of blocks, backward"])
def test_a_gpu_and_a_tpu_run_one_plain_convolution(name: str) -> None:
    image, filters, arguments = EVERY[name]
    for dtype in (np.float32, np.float16) if name == "dense" else (np.float32,):
        shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in (image, filters)]
        for text in modules(lambda x, w: dmljax.convolution(x, w, **arguments), *shapes).values():
            assert text.count("stablehlo.convolution") == 1
            assert "stablehlo.dot_general" not in text
            if dtype == np.float16:  # stays 16 bits until it is read
                assert "xf16>, tensor" in text.partition("stablehlo.convolution")[2]
    if name == "dense":
        bytes_, filter = jax.ShapeDtypeStruct((1, 64, 8, 8), np.uint8), jax.ShapeDtypeStruct((32, 64, 3, 3), np.int8)
        for text in modules(lambda x, w: dmljax.convolution_integer(x, None, w), bytes_, filter).values():
            assert text.count("stablehlo.convolution") == 1


def test_padding_that_strides_skip_stays_the_same_at_both_ends() -> None:
    """For which a GPU's library needs no other kernel."""
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((1, 8, 56, 56), (8, 8, 3, 3))]
    convolve = partial(dmljax.convolution, strides=2, start_padding=1, end_padding=1)
    for text in modules(convolve, *shapes).values():
        assert "pad = [[1, 1], [1, 1]]" in text


@pytest.mark.parametrize("name", ["depthwise", "pointwise"])
def test_large_images_need_little_temporary_memory(name: str) -> None:
    filters = (32, 1, 3, 3) if name == "depthwise" else (64, 32, 1, 1)
    arguments: dict[str, Any] = {"group_count": 32} if name == "depthwise" else {}
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((1, 32, 64, 64), filters)]
    compiled = jax.jit(lambda x, w: dmljax.convolution(x, w, **arguments)).lower(*shapes).compile()
    memory: Any = compiled.memory_analysis()
    assert memory.temp_size_in_bytes <= 2 * (memory.argument_size_in_bytes + memory.output_size_in_bytes)


@SAMPLED
@pytest.mark.parametrize(
    ("filters", "arguments"),
    [
        ((17, 17, 3, 3), {}),
        ((17, 17, 3, 3), {"strides": 2}),
        ((17, 17, 3, 3), {"direction": BACKWARD}),
        ((17, 17, 3, 3), {"direction": BACKWARD, "strides": 2}),
        pytest.param((17, 1, 3, 3), {"group_count": 17}, marks=FULL),
        pytest.param((17, 17, 1, 1), {}, marks=FULL),
    ],
    ids=str,
)
def test_sizes_may_be_symbolic_whatever_the_strides(filters: Any, arguments: Any) -> None:
    sizes = jax.export.symbolic_shape("batch, 17, height, width", constraints=["height >= 4", "width >= 4"])
    x, w = whole(2, 17, 7, 9), whole(*filters)

    def convolve(x: Any) -> Any:
        return dmljax.convolution(x, w, start_padding=1, **arguments)

    shape = jax.ShapeDtypeStruct(sizes, np.float32)
    assert_same_sums(jax.export.export(jax.jit(convolve))(shape).call(x), convolve(x))


def test_arrays_without_batches_or_channels_are_empty_or_only_the_bias() -> None:
    w, bias = whole(3, 2, 2), whole(3)
    assert dmljax.convolution(np.zeros((0, 2, 5), np.float32), w, bias).shape == (0, 3, 4)
    alone = dmljax.convolution(np.zeros((2, 0, 5), np.float32), np.zeros((3, 0, 2), np.float32), bias)
    assert_same_bits(alone, np.broadcast_to(bias[:, None], (2, 3, 4)))
    back = dmljax.convolution(np.zeros((2, 0, 5), np.float32), np.zeros((0, 3, 2), np.float32), direction=BACKWARD)
    assert_same_bits(back, np.zeros((2, 3, 6), np.float32))
    none = dmljax.convolution_integer(np.zeros((1, 0, 5), np.int8), None, np.zeros((3, 0, 2), np.int8))
    assert_same_bits(none, np.zeros((1, 3, 4), np.int32))


# Integers


def random_bytes(dtype: Any, *shape: int) -> Any:
    """Any integers, many of them at the ends of their type."""
    limits = np.iinfo(dtype)
    extremes = RNG.choice([limits.min, limits.max], shape)
    return np.where(RNG.random(shape) < 0.5, extremes, RNG.integers(limits.min, limits.max + 1, shape)).astype(dtype)


@SAMPLED
@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("dense", ("uint8", "int8")),
        pytest.param("strided", ("int8", "uint8"), marks=FULL),
        pytest.param("pointwise", ("int8", "int8"), marks=FULL),
        ("depthwise", ("uint8", "uint8")),
        pytest.param("of groups", ("int8", "uint8"), marks=FULL),
        pytest.param("of one dimension", ("uint8", "int8"), marks=FULL),
    ],
)
@GATE
def test_integers_of_every_zero_point_are_exact(name: str, types: Any, lowering: str) -> None:
    image, filters, arguments = EVERY[name]
    count = len(image) - 2
    space = {key: each(arguments.get(key, int(key in ("strides", "dilations"))), count) for key in oracles.NAMES}
    groups = arguments.get("group_count", 1)
    x, w = random_bytes(types[0], *image), random_bytes(types[1], *filters)
    limits = [np.iinfo(dtype) for dtype in types]
    ends = np.array([limits[1].min, limits[1].max] * filters[0], types[1])[: filters[0]]
    zeros = [
        (None, None),
        (np.array(limits[0].max, types[0]), None),
        (np.array([limits[0].min], types[0]), np.array(limits[1].max, types[1])),
        (None, ends),
        (np.full((1,) * len(image), 7, types[0]), ends.reshape(1, -1, *(1 for _ in range(count)))),
    ]
    convolve = lambda zeros: dmljax.convolution_integer(x, zeros[0], w, zeros[1], group_count=groups, **space)  # noqa: E731
    for computed, zero in zip(jax.jit(lambda every: [*map(convolve, every)])(zeros), zeros, strict=True):
        exact = oracles.of_integers(x, zero[0], w, zero[1], group_count=groups, **space)
        assert_same_bits(computed, exact.astype(np.int32))


@FULL
@pytest.mark.parametrize(
    ("channels", "window"),
    [
        pytest.param(259, 1, marks=FULL),  # more than float32 sums exactly
        pytest.param(4113, 1, marks=FULL),  # and more in two digits
        (33_026, 1),  # and more than int32 holds: the sum wraps around
        (3, 4113),  # more elements in a window than that
    ],
)
def test_sums_of_any_length_are_exact_at_the_extremes(channels: int, window: int) -> None:
    x, w = np.full((1, channels, window), 255, np.uint8), np.full((2, channels, window), 255, np.uint8)
    w[1, 0, 0] = 254
    x[0, 0, [0, -1]] = 254, 253  # so that counting the first or the last position twice, or not at all, changes the sum
    zero = np.array(0, np.uint8)
    exact = (x.astype(np.int64) * w).sum((1, 2)).astype(np.int32).reshape(1, 2, 1)
    assert_same_bits(dmljax.convolution_integer(x, zero, w, zero), exact)
    assert_same_bits(dmljax.convolution_integer(x, None, w, None), exact)


def test_the_padding_of_integers_is_the_zero_point() -> None:
    x, w = np.array([[[9, 11]]], np.uint8), np.array([[[1, 1, 1]]], np.int8)
    zero = np.array(10, np.uint8)
    computed = dmljax.convolution_integer(x, zero, w, start_padding=2, end_padding=2)
    assert computed.tolist() == [[[-1, 0, 0, 1]]]


# Quantization


def quantized(x: Any, w: Any, **changes: Any) -> Any:
    """A call with scales of 1 and without zero points, except for the changes."""
    names = ("input_scale", "input_zero_point", "filter_scale", "filter_zero_point", "bias", "output_scale")
    arguments = dict(zip(names, (1.0, None, 1.0, None, None, 1.0), strict=True)) | changes
    return dmljax.quantized_linear_convolution(x, filter=w, **arguments)


def test_results_round_half_to_even_and_saturate(call: Any) -> None:
    x = np.array([[[1, 3, 5, 250, 0]]], np.uint8)
    w = np.array([[[1]], [[-1]]], np.int8)
    assert call(quantized, x, w, output_scale=2.0).tolist() == [[[0, 2, 2, 125, 0], [0, 0, 0, 0, 0]]]
    zero = np.array(-1, np.int8)
    computed = call(quantized, x, w, output_scale=2.0, output_zero_point=zero)
    assert computed.tolist() == [[[-1, 1, 1, 124, -1], [-1, -3, -3, -126, -1]]]
    assert computed.dtype == np.int8
    assert call(quantized, x, w, output_scale=0.5, output_zero_point=zero).tolist()[0][1] == [-3, -7, -11, -128, -1]
    assert call(quantized, x, w, dtype="int8").tolist() == [[[1, 3, 5, 127, 0], [-1, -3, -5, -128, 0]]]


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), types=st.sampled_from(["ui i", "iu u", "uu i", "ii u"]))
@GATE
def test_quantized_convolutions_round_the_exact_sum_in_the_pages_steps(seed: int, types: str) -> None:
    rng = np.random.default_rng(seed)
    of_input, of_filter, of_output = (np.dtype("uint8" if kind == "u" else "int8") for kind in types.replace(" ", ""))
    any_of = lambda dtype, *shape: rng.integers(*(lambda i: (i.min, i.max + 1))(np.iinfo(dtype)), shape).astype(dtype)  # noqa: E731
    x, w = any_of(of_input, 2, 4, 5), any_of(of_filter, 6, 2, 3)
    zeros = any_of(of_input, 1), any_of(of_filter, 6), any_of(of_output, 1)
    scales = [np.exp(rng.uniform(-6, 3, count)).astype(np.float32) for count in (1, 6, 1)]
    bias = rng.integers(-(2**20), 2**20, 6).astype(np.int32)
    arguments: dict[str, Any] = {"strides": 2, "start_padding": 1, "end_padding": 1, "group_count": 2}
    computed = dmljax.quantized_linear_convolution(
        x, scales[0], zeros[0], w, scales[1], zeros[1], bias, scales[2], zeros[2], **arguments
    )
    space = {"strides": (2,), "dilations": (1,), "start_padding": (1,), "end_padding": (1,)}
    sums = oracles.of_integers(x, zeros[0], w, zeros[1], group_count=2, **space)
    exact = oracles.of_quantized(sums, bias, scales[0], scales[1], scales[2], zeros[2], of_output)
    assert_same_bits(computed, exact)
    # In exact fractions: float32 results are off by at most one step, and only next to a half.
    for place in np.ndindex(*sums.shape):
        scale = Fraction(float(scales[0][0])) * Fraction(float(scales[1][place[1]])) / Fraction(float(scales[2][0]))
        steps = (int(sums[place]) + int(bias[place[1]])) * scale
        limits = np.iinfo(of_output)
        nearest = min(max(round(steps) + int(zeros[2][0]), limits.min), limits.max)
        if int(exact[place]) != nearest:
            assert abs(abs(steps - math.floor(steps)) - Fraction(1, 2)) < abs(steps) * Fraction(1, 2**21)


@FULL
@pytest.mark.parametrize("end", [INT32_MIN, INT32_MAX])
def test_the_sum_with_the_bias_may_exceed_int32(end: int) -> None:
    x, w = np.full((1, 2, 1), 255, np.uint8), np.full((1, 2, 1), 127 if end > 0 else -128, np.int8)
    scale = 2.0**25
    bias = np.array([end], np.int32)
    computed = quantized(x, w, bias=bias, output_scale=scale, dtype="int8")
    total = end + 2 * 255 * int(w[0, 0, 0])
    assert computed.tolist() == [[[round(total / scale)]]] == [[[64 if end > 0 else -64]]]
    channels = 33_026  # even without a bias, the sum exceeds int32
    many = np.full((1, channels, 1), 255, np.uint8)
    assert quantized(many, many, output_scale=scale).tolist() == [[[round(255 * 255 * channels / scale)]]] == [[[64]]]


@FULL
def test_scales_and_zero_points_have_one_element_or_one_for_each_output_channel() -> None:
    x, w = random_bytes("uint8", 1, 2, 4, 4), random_bytes("int8", 3, 2, 2, 2)
    each_, zeros = np.array([0.5, 2, 4], np.float32), np.array([1, -2, 3], np.int8)
    expected_ = quantized(x, w, filter_scale=each_, filter_zero_point=zeros, output_scale=64.0)
    for shape in ((1, 3), (1, 3, 1), (1, 3, 1, 1)):
        changes: dict[str, Any] = {"filter_scale": each_.reshape(shape), "filter_zero_point": zeros.reshape(shape)}
        one = np.full((1,) * len(shape), 64, np.float32)
        assert_same_bits(quantized(x, w, **changes, output_scale=one), expected_)


# Descriptors


def convolve(**changes: Any) -> Any:
    return dmljax.convolution(**{"input": IMAGE, "filter": FILTERS} | changes)


@pytest.mark.parametrize("desc", [CONVOLUTION, QUANTIZED])
def test_a_bias_may_be_left_out(desc: Any) -> None:
    directml.validate(replace(desc, bias=None))


@pytest.mark.parametrize(
    ("activation", "below", "level"),
    [(directml.ActivationGeluDesc(), "5_0", "5_1"), (directml.ElementWiseClipDesc(min=0, max=6), "5_2", "6_0")],
)
def test_a_fused_activation_needs_its_level(activation: Any, below: str, level: str) -> None:
    desc = replace(CONVOLUTION, fused_activation=activation)
    with refuses(f"FusedActivation.Type must be one of DML_FEATURE_LEVEL_{below}"):
        directml.validate(desc, feature_level=below)
    directml.validate(desc, feature_level=level)


@pytest.mark.parametrize(
    ("desc", "change"),
    [(CONVOLUTION, {"dilations": (1, 3)}), (CONVOLUTION, {"strides": (0, 1)}), (INTEGER, {"dilations": (3, 1)})],
)
def test_refusals_suggest_only_sizes_that_windows_can_have(desc: Any, change: dict[str, Any]) -> None:
    assert len(directml.find_broken_rules(replace(desc, **change))) == 1


def test_extra_backward_output_of_a_desc_holds_only_the_bias() -> None:
    x, w, bias = whole(2, 4, 5, 6), whole(4, 3, 3, 3), whole(1, 6, 1, 1)
    computed = directml.lower(replace(BACK, output=f32(2, 6, 7, 14)))(x, w, bias)
    assert_same_bits(computed[..., :13], directml.lower(BACK)(x, w, bias))
    assert_same_bits(computed[..., 13:], np.broadcast_to(bias, (2, 6, 7, 1)))
