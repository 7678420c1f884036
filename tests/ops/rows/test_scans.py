"""CUMULATIVE_SUMMATION and CUMULATIVE_PRODUCT; the pages' examples run in test_every_operator.py."""

import itertools
from typing import Any

import cases_scans as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    FULL,
    assert_same_bits,
    assert_same_trees,
    at_once,
    collectives,
    mesh_of,
    random_array,
)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import dmljax
from dmljax.directml import AxisDirection

INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING
WAYS = list(itertools.product(AxisDirection, (False, True)))


def summed(x: Any, axis: int = 0, direction: AxisDirection = INCREASING, is_exclusive: bool = False) -> Any:
    return dmljax.cumulative_summation(x, axis=axis, axis_direction=direction, has_exclusive_sum=is_exclusive)


def multiplied(x: Any, axis: int = 0, direction: AxisDirection = INCREASING, is_exclusive: bool = False) -> Any:
    return dmljax.cumulative_product(x, axis=axis, axis_direction=direction, has_exclusive_product=is_exclusive)


BOTH = [(summed, np.add, 0), (multiplied, np.multiply, 1)]


@FULL
@pytest.mark.parametrize(("sizes", "axis"), [((7,), 0), ((20, 3), 0), ((2, 17), 1), ((3, 9, 2), 1)])
def test_scans_of_integers_of_any_shape_wrap_around(sizes: tuple[int, ...], axis: int) -> None:
    x = random_array(np.random.default_rng(0), np.int32, sizes)
    for function, combine, first in BOTH:
        results = jax.jit(lambda x, function=function: [function(x, axis, *options) for options in WAYS])(x)
        for (direction, is_exclusive), result in zip(WAYS, results, strict=True):
            expected = oracles.tallied(combine, first, x, axis=axis, direction=direction, is_exclusive=is_exclusive)
            assert_same_bits(result, expected)


@FULL
@pytest.mark.parametrize("size", [8, 9, 64, 65, 513])
def test_rows_that_end_at_block_boundaries(size: int) -> None:
    rng = np.random.default_rng(size)
    for function, combine, first in BOTH:
        numbers = [1, 2, 3] if combine is np.add else [0.5, 1, 2, -1]
        x = rng.choice(numbers, (size, 2)).astype(np.float32)
        results = jax.jit(lambda x, function=function: [function(x, 0, *options) for options in WAYS])(x)
        for (direction, is_exclusive), result in zip(WAYS, map(np.asarray, results), strict=True):
            with np.errstate(over="ignore", under="ignore"):
                exact = oracles.tallied(combine, first, x, axis=0, direction=direction, is_exclusive=is_exclusive)
                expected = exact.astype(np.float32)
            is_normal = (np.abs(expected) > 2e-38) | (expected == 0)
            np.testing.assert_array_equal(result[is_normal], expected[is_normal])


def test_zeros_infinities_and_nan_spread_only_onward(call: Any) -> None:
    row = np.array([2, -0.0, 3, np.inf, 1, np.nan], np.float32)
    products = np.asarray(call(multiplied, row))
    assert_same_bits(products[:3], np.array([2, -0.0, -0.0], np.float32))
    assert np.isnan(products[3:]).all()
    assert call(summed, np.array([np.inf, 1, -np.inf, 1], np.float32)).tolist()[:2] == [np.inf, np.inf]
    assert np.isnan(np.asarray(call(summed, np.array([1, np.inf, -np.inf, 1], np.float32)))[2:]).all()
    # Later elements change nothing, whichever block they are in.
    row = np.ones(100, np.float32)
    row[70:] = np.nan
    assert np.asarray(call(summed, row))[:70].tolist() == list(range(1, 71))


@FULL
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_16_bit_floats_are_computed_in_float32_and_rounded_once(dtype: Any, call: Any) -> None:
    ones = np.ones(5000, dtype)
    assert_same_bits(call(summed, ones), np.arange(1, 5001, dtype=np.float32).astype(dtype))
    small = np.full(2000, 1 + 2.0**-7, dtype)
    exact = np.cumprod(small.astype(np.float64))
    error = np.abs(np.asarray(call(multiplied, small)).astype(np.float64) / exact - 1)[exact < 6e4]
    assert error.max() < 2.0**-11 * 1.01 if dtype == np.float16 else error.max() < 2.0**-8 * 1.01


@FULL
@pytest.mark.parametrize("size", [2**10, 2**17])
def test_rounding_errors_do_not_accumulate_along_long_rows(size: int) -> None:
    rng = np.random.default_rng(0)
    levels = np.ceil(np.log2(size) / 3)
    rows = [
        np.full(size, 0.1, np.float32),
        rng.random(size).astype(np.float32),
        (rng.random(size) * 10.0 ** rng.integers(-10, 10, size)).astype(np.float32),
        np.where(np.arange(size) % 2, 1, -1).astype(np.float32) * rng.random(size).astype(np.float32),
    ]
    for row, result in zip(rows, at_once(summed, rows), strict=True):
        exact, magnitude = np.cumsum(row.astype(np.float64)), np.cumsum(np.abs(row.astype(np.float64)))
        assert np.all(np.abs(np.asarray(result, np.float64) - exact) <= 8 * levels * 2.0**-24 * magnitude)
    row = (1 + rng.standard_normal(size) / 1000).astype(np.float32)
    exact = np.cumprod(row.astype(np.float64))
    errors = np.abs(np.asarray(multiplied(row), np.float64) / exact - 1)
    assert np.all(errors <= np.arange(1, size + 1) * 2.0**-24)


@FULL
def test_the_derivative_of_a_product_is_right_where_factors_are_0(call: Any) -> None:
    row = np.array([2, 0, 3, 0, 5], np.float32)
    for place, expected in ((2, [0, 6, 0, 0, 0]), (4, [0] * 5), (1, [0, 2, 0, 0, 0])):
        assert jax.grad(lambda x, place=place: call(multiplied, x)[place])(row).tolist() == expected
    jacobian = np.asarray(jax.jacfwd(multiplied)(row))
    np.testing.assert_array_equal(jacobian, np.asarray(jax.jacrev(multiplied)(row)))


@pytest.mark.parametrize(("factor", "tangent"), [(1e-30, 1e9), (1e30, 1e-9)])
def test_the_derivative_of_a_product_stays_in_range_where_the_product_does(factor: float, tangent: float) -> None:
    row, direction = np.array([factor, 1], np.float32), np.array([tangent, 0], np.float32)
    _, pushed = jax.jvp(multiplied, (row,), (direction,))
    np.testing.assert_allclose(pushed, [tangent, tangent], rtol=1e-6)


@FULL
@pytest.mark.parametrize(("function", "of_row"), [(summed, jnp.sum), (multiplied, jnp.prod)])
@pytest.mark.parametrize(("direction", "is_exclusive"), WAYS)
def test_derivatives_are_those_of_the_formula(function: Any, of_row: Any, direction: Any, is_exclusive: bool) -> None:
    x, weights = np.array([2, 0, 3, 5], np.float32), np.array([1, 2, 3, 4], np.float32)
    tally = lambda x: function(x, 0, direction, is_exclusive)  # noqa: E731

    def formula(x: Any) -> Any:
        row = x if direction is INCREASING else x[::-1]
        tallies = jnp.stack([of_row(row[: i + (not is_exclusive)]) for i in range(4)])
        return tallies if direction is INCREASING else tallies[::-1]

    for jacobian in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jacobian(tally)(x), jax.jacrev(formula)(x), rtol=1e-6)
    loss = lambda x: tally(x) @ weights  # noqa: E731
    expected = jax.hessian(lambda x: formula(x) @ weights)(x)
    np.testing.assert_allclose(jax.jacfwd(jax.grad(loss))(x), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jacrev(jax.jacfwd(loss))(x), expected, rtol=1e-6)


@FULL
def test_scans_exchange_nothing_across_rows_and_little_along_a_sharded_axis() -> None:
    # Positive, because devices may exchange numbers by adding zeros, which turns -0 into 0.
    x = np.random.default_rng(0).choice([0.5, 1, 2], (16, 4096)).astype(np.float32)
    for function, axis_type in ((summed, AxisType.Explicit), (multiplied, AxisType.Auto)):
        mesh = mesh_of(axis_type, devices=8)
        for spec, most in ((P("devices"), 0), (P(None, "devices"), x.nbytes / 2)):
            given_ = jax.device_put(x, NamedSharding(mesh, spec))
            compiled = jax.jit(lambda x, function=function: function(x, 1)).lower(given_).compile()
            exchanged = sum(size for _, size in collectives(compiled))
            assert exchanged <= most, (function, axis_type, spec, collectives(compiled))
            assert_same_trees(compiled(given_), function(x, 1))


def test_empty_arrays_stay_empty() -> None:
    for function in (summed, multiplied):
        assert function(np.zeros((0, 3), np.float32)).shape == (0, 3)
        assert function(np.zeros((3, 0), np.int32)).shape == (3, 0)
