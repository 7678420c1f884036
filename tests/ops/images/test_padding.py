"""PADDING, PADDING1, UNFOLD and FOLD; the pages' examples run in test_every_operator.py."""

import math
from dataclasses import replace
from typing import Any

import cases_padding as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_padding import FOLD, OF_BYTES, PADDING, PADDING1, UNFOLD, window_arguments
from helpers import (
    FLOATS,
    FULL,
    GATE,
    REALS,
    SAMPLED,
    assert_same_bits,
    check_linear_gradients,
    random_array,
    refuses,
)

import dmljax
from dmljax import DmlError, directml
from dmljax.directml import InvalidDesc, PaddingMode

ROW = np.arange(1, 5, dtype=np.int32)
REPEATING = [mode for mode in PaddingMode if mode is not PaddingMode.CONSTANT]


# Padding


@FULL
@pytest.mark.parametrize("mode", PaddingMode)
@pytest.mark.parametrize(
    ("shape", "start", "end"),
    [
        ((4,), (6,), (23,)),  # several periods
        ((4,), (-6,), (20,)),  # some are cropped
        ((1,), (3,), (-2,)),
        ((3, 5), (-1, 12), (5, -9)),
        ((2, 1, 3), (2, -1, 0), (-1, 4, 8)),
    ],
)
def test_paddings_equal_the_pseudo_code(mode: PaddingMode, shape: Any, start: Any, end: Any) -> None:
    input = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    arguments: dict[str, Any] = {"padding_mode": mode, "start_padding": start, "end_padding": end}
    expected = oracles.padded(input, -7, mode=mode, start=start, end=end)
    assert_same_bits(dmljax.padding1(input, -7, **arguments), expected)
    assert_same_bits(dmljax.padding(input, -7.9, **arguments), expected)


@SAMPLED
@pytest.mark.parametrize("mode", PaddingMode)
@pytest.mark.parametrize("dtype", REALS)
def test_every_bit_is_padded(dtype: Any, mode: PaddingMode, call: Any) -> None:
    input = random_array(np.random.default_rng(0), dtype, (3, 4, 5))
    value = random_array(np.random.default_rng(1), dtype, (1,))[0]
    start, end = (1, -1, 30), (0, 7, 2)
    arguments = {"padding_mode": mode, "start_padding": start, "end_padding": end}
    expected = oracles.padded(input, value, mode=mode, start=start, end=end)
    assert_same_bits(call(dmljax.padding1, input, value, **arguments), expected)


EVERY = np.arange(2**16, dtype=np.uint16).reshape(1, 1, 256, 256)  # every bfloat16 and float16


@FULL
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize(
    "move",
    [
        *(
            lambda x, mode=mode: dmljax.padding1(
                x, 0, padding_mode=mode, start_padding=(1, 0, -3, 900), end_padding=(0, 1, 700, 5)
            )
            for mode in PaddingMode
        ),
        lambda x: dmljax.unfold(x, window_sizes=(3, 5), strides=(2, 2), start_padding=(1, 0), end_padding=(2, 3)),
        lambda x: dmljax.unfold(x, window_sizes=(3, 3), strides=(2, 3), dilations=(2, 2)),
        lambda x: dmljax.unfold(x, window_sizes=(60, 40), strides=(9, 30)),
    ],
)
def test_every_16_bit_float_is_copied(move: Any, dtype: Any, call: Any) -> None:
    expected = np.asarray(move(EVERY))
    np.testing.assert_array_equal(np.asarray(call(move, EVERY.view(dtype))).view(np.uint16), expected)


@SAMPLED
@pytest.mark.parametrize("mode", REPEATING)
def test_a_single_element_is_repeated(mode: PaddingMode, call: Any) -> None:
    assert call(dmljax.padding, ROW[:1], padding_mode=mode, start_padding=(3,), end_padding=(2,)).tolist() == [1] * 6


def test_reflection_of_two_elements_alternates() -> None:
    arguments: dict[str, Any] = {"padding_mode": PaddingMode.REFLECTION, "start_padding": (3,), "end_padding": (40,)}
    assert dmljax.padding(ROW[:2], **arguments).tolist() == [2, 1] * 22 + [2]


@FULL
@pytest.mark.parametrize("mode", REPEATING)
def test_padding_may_be_thousands_of_periods(mode: PaddingMode) -> None:
    padded = dmljax.padding(ROW, padding_mode=mode, start_padding=(7,), end_padding=(99_999,))
    in_numpy = {PaddingMode.REFLECTION: "reflect"}.get(mode, mode.name.lower())
    assert_same_bits(padded, np.pad(ROW, (7, 99_999), mode=in_numpy))  # type: ignore[call-overload]


@GATE
def test_padding_may_be_cropped_back_beyond_the_input() -> None:
    crop = lambda mode, **kw: dmljax.padding(ROW, 9, padding_mode=mode, **kw).tolist()  # noqa: E731
    before, after = ({"start_padding": (start,), "end_padding": (end,)} for start, end in ((6, -7), (-6, 5)))
    expected = {
        "CONSTANT": ([9, 9, 9], [9, 9, 9]),
        "EDGE": ([1, 1, 1], [4, 4, 4]),
        "REFLECTION": ([1, 2, 3], [1, 2, 3]),
        "SYMMETRIC": ([3, 4, 4], [2, 1, 1]),
        "WRAP": ([3, 4, 1], [3, 4, 1]),
    }
    for name, of_both in expected.items():
        assert (crop(PaddingMode[name], **before), crop(PaddingMode[name], **after)) == of_both
        assert crop(PaddingMode[name], start_padding=(-4,), end_padding=(0,)) == []


def test_an_empty_dimension_can_only_be_padded_with_a_constant() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert dmljax.padding(empty, 3, start_padding=(0, 1), end_padding=(0, 1)).tolist() == [[3, 3], [3, 3]]
    for mode in REPEATING:
        pads: dict[str, Any] = {"padding_mode": mode, "start_padding": (1, 0), "end_padding": (0, 0)}
        assert dmljax.padding(empty, **pads).shape == (3, 0)
        with pytest.raises(InvalidDesc, match=f"input must not be empty along axis 1, for {mode.name}; got shape"):
            dmljax.padding(empty, padding_mode=mode, start_padding=(0, 1), end_padding=(0, 0))


def test_padding_truncates_its_value_while_padding1_requires_an_exact_one() -> None:
    pads: dict[str, Any] = {"start_padding": (1,), "end_padding": (0,)}
    assert dmljax.padding(ROW, -10.6, **pads).tolist() == [-10, 1, 2, 3, 4]
    assert dmljax.padding(ROW.astype(np.uint8), -0.5, **pads).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InvalidDesc, match=r"padding_value must be a whole number .* to fit int32; got 0\.5"):
        dmljax.padding1(ROW, 0.5, **pads)
    for function in (dmljax.padding, dmljax.padding1):
        with pytest.raises(InvalidDesc, match=r"padding_value must be a whole number in .* to fit uint8; got 300"):
            function(ROW.astype(np.uint8), 300, **pads)
        with pytest.raises(DmlError, match=r"padding_value must be a scalar; got shape \(2,\)"):
            function(np.ones(3, np.float32), np.ones(2, np.float32), **pads)


@FULL
@pytest.mark.parametrize("function", [dmljax.padding, dmljax.padding1])
def test_a_value_may_be_traced_and_has_a_gradient(function: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    pad = lambda x, v: function(x, v, start_padding=(1, 0), end_padding=(0, 2))  # noqa: E731
    check_linear_gradients(pad, (x, np.float32(3)))
    weights = np.full((3, 5), 2, np.float32)
    weights[1, 1] = np.inf  # this is not the value's gradient, and must not make it NaN
    of_input, of_value = jax.grad(lambda x, v: (pad(x, v) * weights).sum(), argnums=(0, 1))(x, np.float32(3))
    assert_same_bits(of_input, weights[1:, :3])
    assert of_value == 18
    several = jax.vmap(pad, in_axes=(None, 0))(x, np.array([1, 2], np.float32))
    assert_same_bits(several, np.stack([pad(x, np.float32(1)), pad(x, np.float32(2))]))


@FULL
@pytest.mark.parametrize("mode", REPEATING)
def test_the_gradient_of_padding_counts_the_copies(mode: PaddingMode) -> None:
    pads: dict[str, Any] = {"padding_mode": mode, "start_padding": (-1, 30), "end_padding": (5, 2)}
    places = np.asarray(dmljax.padding(np.arange(12, dtype=np.int32).reshape(3, 4), **pads))
    gradient = jax.grad(lambda x: dmljax.padding(x, 9, **pads).sum())(np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(gradient, np.bincount(places.ravel(), minlength=12).reshape(3, 4))
    assert jax.grad(lambda v: dmljax.padding(np.ones((3, 4), np.float32), v, **pads).sum())(np.float32(1)) == 0


# Windows


# The sizes of an image, and the window, stride and dilation in each of its dimensions
EVERY_WINDOW: list[tuple[Any, ...]] = [
    ((150,), (100,), (1,), (1,)),  # more elements in a window than are stacked at once, and fewer windows
    ((300,), (100,), (1,), (1,)),  # and more windows
    ((500,), (100,), (3,), (1,)),  # in groups of neighbors
    ((400,), (200,), (4,), (1,)),
    ((500,), (90,), (2,), (4,)),
    ((700,), (90,), (3,), (6,)),
    ((400,), (70,), (3,), (2,)),
    ((400,), (40,), (500,), (9,)),  # one window
    ((400,), (1,), (7,), (2**32 - 1,)),
    ((60,), (60,), (2**32 - 1,), (1,)),
    ((9, 7), (3, 4), (2, 1), (3, 1)),
    ((3, 8), (2, 3), (6, 2), (2, 2)),
    ((5, 4, 6), (2, 1, 3), (1, 4, 2), (4, 3, 1)),
]


@FULL
@pytest.mark.parametrize(("spatial", "windows", "strides", "dilations"), EVERY_WINDOW, ids=str)
def test_windows_equal_the_pseudo_code(spatial: Any, windows: Any, strides: Any, dilations: Any) -> None:
    count = len(spatial)
    arguments = window_arguments(windows, strides, dilations, (1, 0, 3)[:count], (3, 2, 0)[:count])
    shape = (1 + count % 2, 1 + count // 2, *spatial)
    image = np.arange(1, 1 + math.prod(shape), dtype=np.int32).reshape(shape)
    columns = np.asarray(dmljax.unfold(image, **arguments))
    assert_same_bits(columns, oracles.unfolded(image, **arguments))
    given = columns.astype(np.int8)  # sums wrap around
    folded = dmljax.fold(given, output_sizes=shape, **arguments)
    assert_same_bits(folded, oracles.folded(given, output_sizes=shape, **arguments))


def test_windows_may_have_thousands_of_elements() -> None:
    image = np.arange(10_000, dtype=np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(image, 4096)[::256]
    assert_same_bits(dmljax.unfold(image[None, None], window_sizes=4096, strides=256)[0], windows.T)


@SAMPLED
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.usefixtures("lowering")
def test_every_bit_is_unfolded(dtype: Any, call: Any) -> None:
    image = random_array(np.random.default_rng(0), dtype, (2, 2, 5, 6))
    arguments = window_arguments((2, 3), (2, 1), (1, 2), (0, 1), (2, 1))
    assert_same_bits(call(dmljax.unfold, image, **arguments), oracles.unfolded(image, **arguments))


def test_infinities_and_nan_do_not_spread() -> None:
    image = np.array([[[np.inf, 1, np.nan, -np.inf, 2]]], np.float32)
    columns = dmljax.unfold(image, window_sizes=(2,))
    assert_same_bits(columns[0], np.stack([image[0, 0, :4], image[0, 0, 1:]]))
    folded = dmljax.fold(columns, output_sizes=(1, 1, 5), window_sizes=(2,))
    np.testing.assert_array_equal(folded, [[[np.inf, 2, np.nan, -np.inf, 2]]])


@FULL
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16], ids=["float16", "bfloat16"])
def test_sums_of_16_bit_floats_are_rounded_once(dtype: Any, call: Any) -> None:
    # 2048 + 1 would always be 2048 in float16, and 256 + 1 would always be 256 in bfloat16.
    large = {jnp.float16: 2048, jnp.bfloat16: 256}[dtype]
    columns = np.ones((1, 9, 1), dtype)
    columns[0, 4] = large
    arguments: dict[str, Any] = {"window_sizes": (9,), "start_padding": (0,)}
    several = np.broadcast_to(columns, (1, 9, 9)).astype(dtype)
    folded = call(dmljax.fold, several, output_sizes=(1, 1, 17), **arguments)
    assert folded.dtype == dtype
    assert_same_bits(folded[0, 0, 8], np.asarray(large + 8, dtype))
    # The gradient of unfold is the same.
    image = np.zeros((1, 1, 17), dtype)
    _, pull = jax.vjp(lambda x: dmljax.unfold(x, **arguments), image)
    assert_same_bits(pull(jnp.asarray(several))[0], folded)


@FULL
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "arguments",
    [
        window_arguments((3, 2), (1, 1), (1, 1), (1, 0), (0, 1)),
        pytest.param(window_arguments((3, 5), (2, 3), (1, 1), (0, 0), (0, 0)), marks=FULL),
        pytest.param(window_arguments((3, 2), (3, 2), (2, 3), (2, 1), (1, 2)), marks=FULL),
    ],
)
@pytest.mark.usefixtures("lowering")
def test_fold_and_unfold_are_each_others_gradients(arguments: Any, dtype: Any, call: Any) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(-9, 10, (2, 3, 9, 8)).astype(dtype)  # every order of sums is exact
    unfold = lambda x: dmljax.unfold(x, **arguments)  # noqa: E731
    fold = lambda y: dmljax.fold(y, output_sizes=image.shape, **arguments)  # noqa: E731
    columns = rng.integers(-9, 10, unfold(image).shape).astype(dtype)
    assert_same_bits(call(lambda y: jax.vjp(unfold, image)[1](y)[0], columns), fold(columns))
    assert_same_bits(call(lambda x: jax.vjp(fold, columns)[1](x)[0], image), unfold(image))
    assert_same_bits(jax.jvp(unfold, (image,), (image[::-1],))[1], unfold(image[::-1]))
    assert_same_bits(jax.jvp(fold, (columns,), (columns[::-1],))[1], fold(columns[::-1]))


def test_fold_gives_0_outside_all_windows_and_drops_the_padding() -> None:
    columns = np.array([[[1, 2, 3], [4, 5, 6]]], np.int32)
    windows: dict[str, Any] = {"window_sizes": (2,), "strides": (3,), "start_padding": (1,)}
    assert dmljax.fold(columns, output_sizes=(1, 1, 9), **windows).tolist() == [[[4, 0, 2, 5, 0, 3, 6, 0, 0]]]
    assert dmljax.fold(columns, output_sizes=(1, 1, 6), end_padding=(1,), **windows).tolist() == [[[4, 0, 2, 5, 0, 3]]]


def test_a_single_number_applies_to_all_spatial_dimensions() -> None:
    image = np.arange(2 * 3 * 7 * 8, dtype=np.int32).reshape(2, 3, 7, 8)
    single: dict[str, Any] = {
        "window_sizes": 3,
        "strides": 2,
        "dilations": np.int64(2),
        "start_padding": 1,
        "end_padding": 2,
    }
    each: dict[str, Any] = {name: (int(number),) * 2 for name, number in single.items()}
    columns = dmljax.unfold(image, **each)
    assert_same_bits(dmljax.unfold(image, **single), columns)
    assert_same_bits(
        dmljax.fold(columns, output_sizes=image.shape, **single), dmljax.fold(columns, output_sizes=image.shape, **each)
    )


def test_arrays_without_batches_or_channels_are_empty() -> None:
    for shape in ((0, 2, 5), (2, 0, 5)):
        columns = dmljax.unfold(np.zeros(shape, np.float32), window_sizes=(2,))
        assert columns.shape == (shape[0], 2 * shape[1], 4)
        assert dmljax.fold(columns, output_sizes=shape, window_sizes=(2,)).shape == shape
    padding: dict[str, Any] = {"start_padding": (1,), "end_padding": (2,)}
    assert dmljax.unfold(np.zeros((1, 1, 0)), window_sizes=(2,), **padding).tolist() == [[[0, 0], [0, 0]]]


# Descriptors


@pytest.mark.parametrize(
    ("desc", "mode", "below", "introduced"),
    [(PADDING, "SYMMETRIC", "2_1", "3_0"), (PADDING, "WRAP", "6_3", "6_4"), (PADDING1, "WRAP", "6_3", "6_4")],
)
def test_a_mode_needs_its_level(desc: Any, mode: str, below: str, introduced: str) -> None:
    desc = replace(desc, padding_mode=mode)
    with refuses(f"PaddingMode must not be {mode} below DML_FEATURE_LEVEL_{introduced}; got ...{below}"):
        directml.validate(desc, feature_level=below)
    assert directml.find_minimum_feature_level(desc) is directml.FeatureLevel[f"FL_{introduced}"]


def test_a_descs_value_is_used_only_in_constant_mode() -> None:
    input = np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3)
    truncated = directml.lower(replace(PADDING, **OF_BYTES, padding_value=7.9))(input)
    assert truncated.tolist() == [[[[7] * 5, [0, 1, 2, 7, 7], [3, 4, 5, 7, 7]]]]
    for value in (300, math.nan, -1):
        edges = directml.lower(replace(PADDING, **OF_BYTES, padding_mode=PaddingMode.EDGE, padding_value=value))(input)
        assert edges.tolist() == [[[[0, 1, 2, 2, 2], [0, 1, 2, 2, 2], [3, 4, 5, 5, 5]]]]


@pytest.mark.parametrize(
    ("desc", "change"),
    [(UNFOLD, {"dilations": (1, 3)}), (UNFOLD, {"strides": (0, 1)}), (FOLD, {"window_sizes": (4, 1)})],
)
def test_refusals_suggest_only_sizes_that_windows_can_have(desc: Any, change: dict[str, Any]) -> None:
    assert len(directml.find_broken_rules(replace(desc, **change))) == 1


@pytest.mark.parametrize("desc", [PADDING1, FOLD])
def test_a_desc_stores_its_dimension_count_in_json(desc: Any) -> None:
    json = directml.to_json(desc)
    json["Desc"]["DimensionCount"] = 2
    assert directml.from_json(json) == desc
    json["Desc"]["DimensionCount"] = 3
    with refuses("DimensionCount must be 2", InvalidDesc):
        directml.from_json(json)
