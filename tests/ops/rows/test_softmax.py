"""ACTIVATION_SOFTMAX, LOG_SOFTMAX and HARDMAX; the pages' own examples run in test_every_operator.py."""

import math
from typing import Any

import cases_softmax as oracles
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    FLOATS,
    FULL,
    REALS,
    SAMPLED,
    assert_same_bits,
    at_once,
    f32,
    pairs,
    random_array,
    specials,
    units_off,
)

import dmljax
from dmljax import directml

NAN, INF = math.nan, math.inf

LN_2 = math.log(2)

# Softmax and its logarithm

SOFTMAX = ["softmax", "log_softmax"]
BOTH = [*SOFTMAX, "hardmax"]


def function(name: str) -> Any:
    return getattr(dmljax, f"activation_{name}")


@SAMPLED
@pytest.mark.parametrize(
    ("row", "softmax", "logarithms"),
    [
        ([3e38, 3e38], [0.5, 0.5], [-LN_2, -LN_2]),
        ([3e38, -3e38], [1.0, 0.0], [0.0, -INF]),
        ([1e4, 1e4 - 1000, 0.0], [1.0, 0.0, 0.0], [0.0, -1000.0, -10000.0]),
        ([0.0, -INF], [1.0, 0.0], [0.0, -INF]),
        ([-INF, -INF], [NAN, NAN], [NAN, NAN]),
        ([INF, 0.0], [NAN, NAN], [NAN, NAN]),
        ([NAN, 0.0], [NAN, NAN], [NAN, NAN]),
        ([7.0], [1.0], [0.0]),
        ([-3e38], [1.0], [0.0]),
        ([INF], [NAN], [NAN]),
        ([-0.0, 0.0], [0.5, 0.5], [-LN_2, -LN_2]),
    ],
)
def test_softmax_of_huge_infinite_and_single_elements(
    row: list[float], softmax: list[float], logarithms: list[float]
) -> None:
    input = np.array([row], np.float32)
    assert str(dmljax.activation_softmax(input).tolist()) == str([softmax])
    assert units_off(dmljax.activation_log_softmax(input), np.array([logarithms])).max() <= 1


def test_softmax_of_the_largest_float16(call: Any) -> None:
    input = np.array([[65504.0, -65504.0], [65504.0, 65504.0]], np.float16)
    assert call(dmljax.activation_softmax, input).tolist() == [[1.0, 0.0], [0.5, 0.5]]
    half = float(np.float16(-LN_2))
    assert call(dmljax.activation_log_softmax, input).tolist() == [[0.0, -INF], [half, half]]


def test_log_softmax_of_n_equal_elements_is_minus_log_n(call: Any) -> None:
    result = call(dmljax.activation_log_softmax, np.zeros((2, 1000), np.float32))
    assert units_off(result, np.full((2, 1000), -math.log(1000))).max() <= 1


@SAMPLED
@pytest.mark.parametrize("axes", [(0, 2), (2, 0), (-1, -3), [0, -1]])
def test_softmax1_flattens_several_axes_in_any_order(axes: Any) -> None:
    input = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    exponentials = np.exp(input.astype(np.float64))
    exact = exponentials / exponentials.sum(axis=(0, 2), keepdims=True)
    assert units_off(dmljax.activation_softmax1(input, axes=axes), exact).max() <= 4
    assert units_off(dmljax.activation_log_softmax1(input, axes=axes), np.log(exact)).max() <= 4


def test_softmax_defaults_to_the_last_axis(call: Any) -> None:
    input = np.array([[[0.0, 0.0], [0.0, -INF]]], np.float32)
    assert call(dmljax.activation_softmax, input).tolist() == [[[0.5, 0.5], [1.0, 0.0]]]
    assert call(dmljax.activation_softmax1, input, axes=1).tolist() == [[[0.5, 1.0], [0.5, 0.0]]]


@SAMPLED
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("name", BOTH)
def test_softmax_and_hardmax_of_empty_arrays_are_empty(call: Any, name: str, shape: tuple[int, ...]) -> None:
    assert call(function(name), np.zeros(shape, np.float32)).shape == shape
    assert call(function(f"{name}1"), np.zeros(shape, np.float32), axes=0).shape == shape


# Hardmax


@SAMPLED
@pytest.mark.parametrize(
    ("row", "hot"),
    [
        ([1, 5, 5, 2], 1),
        ([-0.0, 0.0, -1.0], 0),
        ([0.0, -0.0, -1.0], 0),
        ([-np.inf, -np.inf], 0),
        ([np.inf, np.inf, NAN, np.inf, NAN], 2),
        ([-NAN, NAN], 0),
        ([3, np.inf], 1),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_hardmax_marks_the_first_largest_element(call: Any, dtype: Any, row: list[float], hot: int) -> None:
    input = np.array([row], dtype)
    assert_same_bits(call(dmljax.activation_hardmax, input), np.eye(len(row), dtype=dtype)[[hot]])


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_hardmax_orders_every_pair_of_special_values(call: Any, dtype: Any) -> None:
    rows = np.stack(pairs(specials(dtype)), axis=1)
    assert_same_bits(call(dmljax.activation_hardmax, rows), oracles.hardmax(rows))


@FULL
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint8", "bool"])
def test_hardmax_of_wide_rows(lowering: str, dtype: str) -> None:
    # Rows of up to 16 elements are compared element by element; longer ones in parts that overlap at the end.
    least = {"int8": -128, "uint8": 0, "bool": False}.get(dtype, -np.inf)
    every = []
    for width in (15, 16, 17, 31, 33, 127, 128, 129, 1000) if dtype == "float32" else (16, 17, 129):
        rows = np.full((4, width), least, jnp.dtype(dtype))
        rows[1, -1] = rows[2, width // 2] = rows[2, -1] = 1
        rows[3] = random_array(np.random.default_rng(width), dtype, (width,))
        every.append(rows)
    for rows, result in zip(every, at_once(dmljax.activation_hardmax, every), strict=True):
        assert_same_bits(result, oracles.hardmax(rows))


@FULL
def test_hardmax_orders_every_pair_of_special_values_in_a_wide_row() -> None:
    every = []
    for dtype in REALS:
        values = specials(dtype)
        least = -np.inf if dtype in FLOATS else min(values.tolist())
        rows = np.full((len(values) ** 2, 40), least, dtype)
        rows[:, 7], rows[:, 33] = np.repeat(values, len(values)), np.tile(values, len(values))
        every.append(rows)
    for rows, result in zip(every, at_once(dmljax.activation_hardmax, every), strict=True):
        assert_same_bits(result, oracles.hardmax(rows))


@pytest.mark.full(but=8)
@pytest.mark.parametrize("position", range(150))
def test_hardmax_finds_the_largest_at_any_position(position: int) -> None:
    rows = np.zeros((1, 150), np.float32)
    rows[0, position] = 1
    assert_same_bits(dmljax.activation_hardmax(rows), rows)


def test_hardmax1_flattens_several_axes_in_any_order(call: Any) -> None:
    input = np.random.default_rng(2).integers(0, 2, (2, 3, 4)).astype(np.float32)
    for axes in ([0, 2], (2, 0), (-1, -3), np.array([2, 0])):
        assert_same_bits(call(dmljax.activation_hardmax1, input, axes=axes), oracles.hardmax(input, axes=(0, 2)))


# Descriptors


def test_hardmax_desc_takes_two_dimensions_after_any_number_of_ones() -> None:
    desc = directml.ActivationHardmaxDesc(input=f32(1, 1, 1, 2, 3), output=f32(1, 1, 1, 2, 3))
    assert directml.find_minimum_feature_level(desc) is directml.FeatureLevel.FL_2_0
    input = np.arange(6, dtype=np.float32).reshape(desc.input.sizes)
    assert_same_bits(directml.lower(desc)(input), oracles.hardmax(input))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.gate(but=1)
def test_one_row_may_be_the_last_axis_all_axes_or_no_axis(name: str) -> None:
    function, of_last = getattr(dmljax, f"activation_{name}1"), getattr(dmljax, f"activation_{name}")
    x = jnp.array([[1.0, 3.0], [2.0, 3.0]])
    assert_same_bits(function(x), of_last(x))
    assert_same_bits(function(x, axes=None), of_last(x.ravel()).reshape(2, 2))
    assert_same_bits(function(x[0, 0], axes=None), of_last(x[0, :1])[0])
    assert_same_bits(function(x, axes=()), of_last(x[..., None])[..., 0])
