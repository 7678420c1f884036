"""TOP_K and TOP_K1; the pages' examples run in test_every_operator.py."""

from typing import Any

import cases_selection as oracles
import jax
import jax.export
import numpy as np
import pytest
from helpers import (
    FULL,
    REALS,
    SAMPLED,
    X64,
    assert_same_bits,
    assert_same_trees,
    f32,
    mesh_of,
    random_array,
    refuses,
    specials,
    tensor,
)
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import dmljax
from dmljax import directml
from dmljax.directml import AxisDirection

INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING
NAN = np.nan
KEPT = [dtype for dtype in REALS if np.dtype(dtype) != bool]


def check(input: Any, axis: int, k: int) -> None:
    """Both directions against the pseudo-code, compiled at once."""
    directions = list(AxisDirection)
    select = jax.jit(lambda x: [dmljax.top_k1(x, axis=axis, k=k, axis_direction=direction) for direction in directions])
    for direction, (values, indices) in zip(directions, select(input), strict=True):
        expected, places = oracles.top_k(input, axis=axis, k=k, largest=direction is DECREASING)
        assert_same_bits(indices, places.astype(np.int32))
        assert_same_bits(values, expected)


@FULL
@pytest.mark.parametrize(("sizes", "axis", "k"), [((6,), 0, 6), ((3, 5), 1, 2), ((4, 1, 2), 0, 3), ((2, 5, 3), 1, 1)])
def test_every_shape_equals_the_pseudo_code(sizes: tuple[int, ...], axis: int, k: int) -> None:
    check(random_array(np.random.default_rng(0), np.float32, sizes), axis, k)


@FULL
@pytest.mark.parametrize("dtype", KEPT, ids=str)
def test_special_values_are_ordered_and_copied_bit_for_bit(dtype: Any) -> None:
    values = specials(dtype)
    rows = np.stack([np.random.default_rng(seed).permutation(values) for seed in range(4)])
    for k in (1, 3, len(values)):
        check(rows, 1, k)


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_every_platform_selects_the_same_numbers(dtype: Any, lowering: str) -> None:
    row = np.array([3, 1, 2, 1, 0, 3, 2] if np.dtype(dtype) != bool else [1, 0, 1, 1, 0, 0, 1]).astype(dtype)
    for direction in AxisDirection:
        top = lambda x, direction=direction: dmljax.top_k1(x, axis=1, k=5, axis_direction=direction)  # noqa: E731
        values, indices = top(np.stack([row, row[::-1]]))
        keys = row.astype(np.int32) * (-1 if direction is DECREASING else 1)
        expected = np.stack([np.argsort(row, kind="stable")[:5] for row in (keys, keys[::-1])])
        assert_same_bits(indices, expected.astype(np.int32))
        assert_same_bits(values, np.stack([row[expected[0]], row[::-1][expected[1]]]))


@pytest.mark.gate(but=1)
def test_every_platform_has_nan_at_its_end_and_the_gradient(lowering: str) -> None:
    x = np.array([2, NAN, 1, 5], np.float32)
    for direction, places in ((INCREASING, [2, 0, 3, 1]), (DECREASING, [1, 3, 0, 2])):
        top = lambda x, direction=direction: dmljax.top_k1(x, axis=0, k=4, axis_direction=direction).values  # noqa: E731
        values, *derivatives = jax.jit(lambda x, top=top: (top(x), jax.jacrev(top)(x), jax.jacfwd(top)(x)))(x)
        np.testing.assert_array_equal(values, x[places])
        for derivative in derivatives:
            np.testing.assert_array_equal(derivative, np.eye(4)[places])


def test_nan_of_either_sign_comes_after_the_smallest_on_every_platform(lowering: str) -> None:
    row = np.array([2, NAN, 1, -NAN], np.float32)
    assert dmljax.top_k1(row, axis=0, k=2, axis_direction=INCREASING).indices.tolist() == [2, 0]


@FULL
@pytest.mark.parametrize(
    ("dtype", "size", "k"),
    [
        *((np.float32, size, k) for size, k in ((64, 2), (3000, 40), (1000, 999))),
        *(pytest.param(dtype, 1023, 500, marks=FULL) for dtype in (np.int8, np.uint32, np.float16)),
        (np.float16, 10_001, 3),
    ],
)
def test_long_rows_with_many_ties_equal_the_pseudo_code(dtype: Any, size: int, k: int) -> None:
    # Few different values in one row; in another the lowest ones, which also pad blocks; a rising row; one whose last
    # element is the largest of equal ones; and any bits elsewhere.
    rng = np.random.default_rng(size)
    rows = random_array(rng, dtype, (6, size))
    rows[2], rows[3] = np.arange(size) // (size // 100 + 1), np.arange(size) == size - 1
    rows[0] = rng.integers(0, 3, size).astype(dtype)
    rows[1] = specials(dtype).min() if np.dtype(dtype).kind != "f" else -np.inf
    select = jax.jit(lambda x: [dmljax.top_k1(x, axis=1, k=k, axis_direction=direction) for direction in AxisDirection])
    for direction, (values, indices) in zip(AxisDirection, select(rows), strict=True):
        with np.errstate(invalid="ignore"):  # signaling NaNs
            exact = rows.astype(np.float64) + 0.0  # no -0
        exact = exact if direction is INCREASING else -exact
        is_nan = np.isnan(exact)
        exact[is_nan] = np.inf if direction is INCREASING else -np.inf
        order = np.lexsort(
            (np.broadcast_to(np.arange(size), rows.shape), is_nan if direction is INCREASING else ~is_nan, exact),
            axis=-1,
        )
        assert_same_bits(indices, order[:, :k].astype(np.int32))
        assert_same_bits(values, np.take_along_axis(rows, order[:, :k], axis=1))


@pytest.mark.parametrize("dtype", [np.int32, np.float16], ids=lambda dtype: dtype.__name__)
def test_rows_are_not_sorted_on_a_cpu(dtype: Any) -> None:
    # XLA's top_k of float32 takes at most a sixth of the time.
    x = np.ones((2, 1000), dtype)
    text = str(jax.jit(lambda x: dmljax.top_k(x, axis=1, k=300)).lower(x).compile().as_text())
    assert 'custom_call_target="TopK"' in text
    assert " sort(" not in text


@pytest.mark.usefixtures("lowering")
def test_rows_beyond_int32_do_not_use_xlas_top_k() -> None:
    # The row is too large to compute here.
    row = jax.ShapeDtypeStruct((2**31 + 8,), np.int8)
    jaxpr = jax.make_jaxpr(lambda x: dmljax.top_k(x, axis=0, k=2, dtype="uint32"))(row)
    assert "top_k[" not in str(jaxpr)
    assert jaxpr.out_avals[1].dtype == np.uint32


@FULL
@pytest.mark.skipif(not X64, reason="64-bit integers")
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64], ids=lambda dtype: dtype.__name__)
def test_rows_of_64_bits_equal_the_pseudo_code(dtype: Any) -> None:
    rows = random_array(np.random.default_rng(0), dtype, (2, 130))
    for k in (2, 20):
        check(rows, 1, k)


def test_equal_elements_are_in_the_order_of_their_indices_in_both_directions(call: Any) -> None:
    row = np.array([2, 1, 2, 1, 2], np.float32)
    for direction, expected in ((DECREASING, [0, 2, 4, 1]), (INCREASING, [1, 3, 0, 2])):
        assert call(dmljax.top_k1, row, axis=0, k=4, axis_direction=direction).indices.tolist() == expected
    assert call(dmljax.top_k, np.array([-0.0, 0.0, -0.0], np.float32), axis=0, k=3).indices.tolist() == [0, 1, 2]


def test_nan_is_larger_than_every_number_in_both_directions(call: Any) -> None:
    row = np.array([1, NAN, np.inf, -NAN, -np.inf], np.float32)
    for direction, expected in ((DECREASING, [1, 3, 2, 0, 4]), (INCREASING, [4, 0, 2, 1, 3])):
        assert call(dmljax.top_k1, row, axis=0, k=5, axis_direction=direction).indices.tolist() == expected


def test_subnormals_are_distinct_numbers(call: Any) -> None:
    row = np.array([1e-45, 3e-45, 0, -1e-45], np.float32)
    assert call(dmljax.top_k, row, axis=0, k=4).indices.tolist() == [1, 0, 2, 3]


@FULL
@pytest.mark.parametrize("k", [1, 3, 40])
def test_the_gradient_goes_to_what_was_selected(k: int) -> None:
    x = np.random.default_rng(0).permutation(200).astype(np.float32).reshape(2, 100)
    values, pull = jax.vjp(lambda x: dmljax.top_k1(x, axis=1, k=k, axis_direction=INCREASING).values, x)
    weights = np.arange(1, 2 * k + 1, dtype=np.float32).reshape(2, k)
    expected = np.zeros_like(x)
    np.put_along_axis(expected, np.argsort(x, axis=1)[:, :k], weights, axis=1)
    assert_same_bits(pull(weights)[0], expected)
    tangent = np.random.default_rng(1).random(x.shape).astype(np.float32)
    forward = jax.jvp(lambda x: dmljax.top_k1(x, axis=1, k=k, axis_direction=INCREASING).values, (x,), (tangent,))
    assert_same_bits(forward[1], np.take_along_axis(tangent, np.argsort(x, axis=1)[:, :k], axis=1))
    assert values.shape == (2, k)


def test_the_indices_have_the_requested_type() -> None:
    assert dmljax.top_k(np.arange(5), axis=0, k=2, dtype="int8").indices.dtype == np.int8
    with refuses("top_k: dtype must hold indices up to 299; got uint8 (use dtype=jnp.int32)"):
        dmljax.top_k(np.arange(300), axis=0, k=2, dtype=np.uint8)


@FULL
@pytest.mark.parametrize("axis_type", [AxisType.Explicit, AxisType.Auto], ids=lambda kind: kind.name)
@pytest.mark.parametrize("spec", [P("devices"), P(None, "devices")], ids=str)
def test_rows_that_are_sharded_are_selected_from(spec: Any, axis_type: AxisType) -> None:
    x = np.random.default_rng(0).random((8, 2048)).astype(np.float32)
    mesh = mesh_of(axis_type, devices=8)
    sharded = jax.device_put(x, NamedSharding(mesh, spec))
    selected = jax.jit(lambda x: [dmljax.top_k(x, axis=1, k=k) for k in (1, 5)])(sharded)
    assert_same_trees(selected, [dmljax.top_k(x, axis=1, k=k) for k in (1, 5)])


def test_empty_batches_stay_empty() -> None:
    values, indices = dmljax.top_k(np.zeros((0, 3), np.float32), axis=1, k=2)
    assert (values.shape, indices.shape, indices.dtype.name) == ((0, 2), (0, 2), "int32")


MEMBERS: dict[str, Any] = {"input": f32(1, 1, 2, 3), "output_value": f32(1, 1, 2, 2), "axis": 3, "k": 2}
MEMBERS |= {"output_index": tensor("UINT32", 1, 1, 2, 2)}


def test_k_may_be_the_size_which_sorts() -> None:
    whole = {"k": 3, "output_value": f32(1, 1, 2, 3), "output_index": tensor("UINT32", 1, 1, 2, 3)}
    directml.validate(directml.TopKDesc(**MEMBERS | whole))
