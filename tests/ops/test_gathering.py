"""GATHER, SCATTER, their kin and REVERSE_SUBSEQUENCES; the pages' examples run in test_every_operator.py."""

from collections.abc import Callable
from typing import Any

import cases_gathering as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    FULL,
    INT32_MAX,
    INT32_MIN,
    INTEGERS,
    REALS,
    assert_same_bits,
    assert_same_trees,
    check_linear_gradients,
    few_of,
    few_types,
    needs_x64,
    random_array,
    random_indices,
    specials,
)
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

FLOAT32, INT32, UINT32 = DataType.FLOAT32, DataType.INT32, DataType.UINT32
CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
UNSIGNED = [dtype for dtype in INTEGERS if dtype.kind == "u"]
EVERY = np.arange(2**16, dtype=np.uint16)  # every bfloat16, subnormals and signalling NaNs among them

# GATHER and GATHER_ELEMENTS


def test_the_dimensions_of_the_indices_replace_the_axis(call: Any) -> None:
    indices = np.array([[2, 0], [1, 1]], np.int32)
    assert_same_bits(call(dmljax.gather, CUBE, indices, axis=1), CUBE[:, [[2, 0], [1, 1]]])
    assert_same_bits(call(dmljax.gather, CUBE, indices[0, 1], axis=-1), CUBE[..., 0])


def test_gather_elements_reads_along_the_axis_where_the_index_stands(call: Any) -> None:
    indices = np.array([[[2, 0, 1, 1]], [[0, 0, 0, 2]]], np.int32)
    assert_same_bits(call(dmljax.gather_elements, CUBE, indices, axis=1), np.take_along_axis(CUBE, indices, 1))


def test_gathers_count_from_the_end_and_clamp(call: Any) -> None:
    indices = np.array([-1, -3, 0, 3, -4, INT32_MIN, INT32_MAX], np.int32)
    row = np.array([5, 6, 7], np.int32)
    for function in (dmljax.gather, dmljax.gather_elements):
        assert call(function, row, indices, axis=0).tolist() == [7, 5, 5, 7, 5, 5, 7]


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_gathers_do_not_wrap_narrow_indices_into_a_large_dimension(call: Any, dtype: Any) -> None:
    input, indices = np.arange(300, dtype=np.int32), specials(dtype)
    assert_same_bits(call(dmljax.gather, input, indices, axis=0), oracles.gather(input, indices, axis=0))
    assert_same_bits(call(dmljax.gather_elements, input, indices, axis=0), oracles.gather(input, indices, axis=0))


@needs_x64
def test_gathers_do_not_cut_64_bit_indices(call: Any) -> None:
    indices = np.array([2**32 + 1, -(2**32) + 1, -(2**63), 2**63 - 1], np.int64)
    for function in (dmljax.gather, dmljax.gather_elements):
        assert call(function, np.arange(5), indices, axis=0).tolist() == [4, 0, 0, 4]


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_gathers_copy_bit_for_bit(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    indices = np.arange(len(input), dtype=np.int32)[::-1]
    for function in (dmljax.gather, dmljax.gather_elements):
        assert_same_bits(call(function, input, indices, axis=0), input[::-1])


def test_gathers_of_nothing_are_empty(call: Any) -> None:
    none = np.zeros((0, 2), np.int32)
    assert call(dmljax.gather, np.zeros((2, 3)), none, axis=1).shape == (2, 0, 2)
    assert call(dmljax.gather, np.zeros((0, 3)), none, axis=0).shape == (0, 2, 3)
    assert call(dmljax.gather, np.zeros((0, 3)), np.zeros(4, np.int32), axis=1).shape == (0, 4)
    assert call(dmljax.gather_elements, np.zeros((3, 2)), none, axis=0).shape == (0, 2)
    assert call(dmljax.gather_elements, np.zeros((0, 2)), none, axis=0).shape == (0, 2)


@FULL
@settings(deadline=None, max_examples=15)
@given(st.data())
def test_gathers_equal_the_pseudo_code(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    own = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    elements = (*shape[:axis], data.draw(st.integers(1, 5)), *shape[axis + 1 :])
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    input = random_array(rng, data.draw(st.sampled_from(REALS)), shape)
    dtype = data.draw(st.sampled_from(INTEGERS))
    indices = random_indices(rng, dtype, own, 4)
    assert_same_bits(dmljax.gather(input, indices, axis=axis), oracles.gather(input, indices, axis=axis))
    indices = random_indices(rng, dtype, elements, 4)
    gathered = dmljax.gather_elements(input, indices, axis=axis - len(shape))
    assert_same_bits(gathered, oracles.gather_elements(input, indices, axis=axis))


@FULL
@pytest.mark.parametrize("function", [dmljax.gather, dmljax.gather_elements])
def test_the_gradient_of_a_gather_adds_up_where_indices_repeat_or_are_clamped(function: Any) -> None:
    indices, weights = np.array([0, -2, 9, -9, 1], np.int32), jnp.array([1.0, 2, 4, 8, 16])
    gradient = jax.grad(lambda input: (function(input, indices, axis=0) * weights).sum())(jnp.zeros(2))
    assert gradient.tolist() == [1 + 2 + 8, 4 + 16]
    check_linear_gradients(lambda input: function(input, indices, axis=0), (jnp.array([3.0, 4.0]),))


def test_a_gather_may_be_mapped_over_either_or_both_arguments() -> None:
    input, indices = CUBE, np.array([[[2, -1]], [[0, 9]]], np.int32)
    for axes in ((0, None), (None, 0), (0, 0)):
        gather = lambda x, i: dmljax.gather(x, i, axis=1)  # noqa: E731
        arguments = [a if axis == 0 else a[0] for a, axis in zip((input, indices), axes, strict=True)]
        rows = [[a[k] if axis == 0 else a for a, axis in zip(arguments, axes, strict=True)] for k in range(2)]
        assert_same_bits(jax.vmap(gather, in_axes=axes)(*arguments), jnp.stack([gather(*row) for row in rows]))


# GATHER_ND and GATHER_ND1


def test_gather_nd_fetches_blocks_for_short_tuples(call: Any) -> None:
    input = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert_same_bits(call(dmljax.gather_nd, input, np.array([[1, 2], [0, 0]], np.int32)), input[[1, 0], [2, 0]])


def test_gather_nd_has_batches(call: Any) -> None:
    input = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    result = call(dmljax.gather_nd1, input, np.array([[[2]], [[0]]], np.int32), batch_dimension_count=1)
    assert_same_bits(result, np.stack([input[0, [2]], input[1, [0]]]))


def test_gather_nd_clamps_each_coordinate_into_its_own_dimension(call: Any) -> None:
    input = np.arange(6, dtype=np.int32).reshape(2, 3)
    indices = np.array([[-3, 5], [5, -4], [INT32_MIN, 2**31 - 1], [-2, -3]], np.int32)
    assert_same_bits(call(dmljax.gather_nd, input, indices), input[[0, 1, 0, 0], [2, 0, 2, 0]])


@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if dtype.kind == "u"], ids=str)
def test_gather_nd_clamps_the_largest_unsigned_index_to_the_last_element(call: Any, dtype: Any) -> None:
    indices = np.array([[np.iinfo(dtype).max], [np.iinfo(dtype).max // 2 + 1]], dtype)
    assert call(dmljax.gather_nd, np.array([1, 2, 3], np.int32), indices).tolist() == [3, 3]


@needs_x64
def test_gather_nd_does_not_cut_64_bit_indices(call: Any) -> None:
    indices = np.array([[2**32 + 1], [-(2**32) + 1], [-(2**63)], [2**63 - 1]], np.int64)
    assert call(dmljax.gather_nd, np.arange(5), indices).tolist() == [4, 0, 0, 4]


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_gather_nd_copies_bit_for_bit(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    indices = np.arange(len(input), dtype=np.int32)[::-1, None]
    assert_same_bits(call(dmljax.gather_nd, input, indices), oracles.gather_nd1(input, indices))


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_gather_nd_does_not_wrap_narrow_indices_into_a_large_dimension(call: Any, dtype: Any) -> None:
    input, indices = np.arange(300, dtype=np.int32), specials(dtype)[:, None]
    assert_same_bits(call(dmljax.gather_nd, input, indices), oracles.gather_nd1(input, indices))


def test_gather_nd_of_no_tuples_is_empty(call: Any) -> None:
    assert call(dmljax.gather_nd, np.zeros((2, 3)), np.zeros((0, 1), np.int32)).shape == (0, 3)
    assert call(dmljax.gather_nd, np.zeros((0, 3)), np.zeros((0, 1), np.int32)).shape == (0, 3)
    assert call(dmljax.gather_nd, np.zeros((2, 0)), np.zeros((4, 1), np.int32)).shape == (4, 0)


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_gather_nd_equals_the_pseudo_code(data: st.DataObject) -> None:
    input_shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    batch = data.draw(st.integers(0, len(input_shape) - 1))
    tuple_size = data.draw(st.integers(1, len(input_shape) - batch))
    middle = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    input = random_array(rng, data.draw(st.sampled_from(REALS)), input_shape)
    index_dtype = data.draw(st.sampled_from(INTEGERS))
    indices = random_indices(rng, index_dtype, (*input_shape[:batch], *middle, tuple_size), 4)
    expected = oracles.gather_nd1(input, indices, batch_dimension_count=batch)
    assert_same_bits(dmljax.gather_nd1(input, indices, batch_dimension_count=batch), expected)


def test_the_gradient_of_gather_nd_adds_up_where_tuples_repeat_or_are_clamped() -> None:
    indices = np.array([[0], [-2], [9], [-9], [1]], np.int32)
    gradient = jax.grad(lambda input: (dmljax.gather_nd(input, indices) * jnp.array([1.0, 2, 4, 8, 16])).sum())
    assert gradient(jnp.array([0.0, 0.0])).tolist() == [1 + 2 + 8, 4 + 16]
    check_linear_gradients(lambda input: dmljax.gather_nd(input, indices), (jnp.array([3.0, 4.0]),))


@FULL
def test_the_gradient_of_gather_nd_stays_in_its_batch() -> None:
    indices = np.array([[[0], [0]], [[1], [0]]], np.int32)
    gather = lambda input: dmljax.gather_nd1(input, indices, batch_dimension_count=1)  # noqa: E731
    gradient = jax.grad(lambda input: gather(input).sum())(jnp.zeros((2, 2, 2)))
    assert gradient.tolist() == [[[2, 2], [0, 0]], [[1, 1], [1, 1]]]
    check_linear_gradients(gather, (jnp.arange(8.0).reshape(2, 2, 2),))


def test_gather_nd_may_be_mapped_over_either_or_both_arguments() -> None:
    input, indices = jnp.arange(12).reshape(2, 2, 3), jnp.array([[[[0]], [[-1]]], [[[7]], [[1]]]])
    for axes in ((0, None), (None, 0), (0, 0)):
        gather = lambda x, i: dmljax.gather_nd1(x, i, batch_dimension_count=1)  # noqa: E731
        arguments = [a if axis == 0 else a[0] for a, axis in zip((input, indices), axes, strict=True)]
        rows = [[a[k] if axis == 0 else a for a, axis in zip(arguments, axes, strict=True)] for k in range(2)]
        assert_same_bits(jax.vmap(gather, in_axes=axes)(*arguments), jnp.stack([gather(*row) for row in rows]))


GATHER_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "floating indices": ({"indices": jnp.ones((2, 1))}, InvalidType, "indices must be of an integer type; got float"),
    "bool indices": ({"indices": jnp.ones((2, 1), bool)}, InvalidType, "indices must be of an integer type; got bool"),
    "a list of indices": ({"indices": [[0]]}, InvalidType, "indices must be a JAX or NumPy array; got list"),
    "a scalar input": ({"input": jnp.array(1)}, InvalidDesc, "input must have at least 1 dimension; got 0"),
    "scalar indices": ({"indices": jnp.array(1)}, InvalidDesc, "indices must have at least 1 dimension; got 0"),
    "tuples too long": ({"indices": jnp.zeros((2, 3), int)}, InvalidDesc, "1 to 2 coordinates; got 3"),
    "empty tuples": ({"indices": jnp.zeros((2, 0), int)}, InvalidDesc, "1 to 2 coordinates; got 0"),
    "other batch sizes": (
        {"indices": jnp.zeros((3, 1), int), "batch_dimension_count": 1},
        InvalidDesc,
        r"input and indices must have the same batch sizes; got \(2,\) and \(3,\)",
    ),
    "tuples too long for the batch": (
        {"indices": jnp.zeros((2, 2), int), "batch_dimension_count": 1},
        InvalidDesc,
        "1 to 1 coordinates; got 2",
    ),
    "too many batches": (
        {"batch_dimension_count": 2},
        InvalidDesc,
        r"batch_dimension_count must be in \[0, 2\); got 2",
    ),
    "negative batches": ({"batch_dimension_count": -1}, InvalidDesc, "batch_dimension_count must be in"),
    "nothing to fetch": ({"input": jnp.zeros((0, 3))}, InvalidDesc, r"must have elements to fetch; got shape \(0, 3\)"),
}


@pytest.mark.parametrize("case", GATHER_REFUSED)
def test_gather_nd_refuses(case: str) -> None:
    change, error, message = GATHER_REFUSED[case]
    arguments: dict[str, Any] = {"input": jnp.zeros((2, 3)), "indices": jnp.zeros((2, 1), int)} | change
    with pytest.raises(error, match=r"^gather_nd1: .*" + message):
        dmljax.gather_nd1(**arguments)


# SCATTER and SCATTER_ND


@FULL
def test_scatter_overwrites_along_the_axis_where_the_index_stands(call: Any, lowering: str) -> None:
    input, updates = np.zeros((3, 3), np.float32), np.array([[10, 11, 12], [20, 21, 22]], np.float32)
    indices = np.array([[1, 0, 2], [0, 2, 1]], np.int32)
    down = call(dmljax.scatter, input, indices, updates, axis=0)
    assert down.tolist() == [[20, 11, 0], [10, 0, 22], [0, 21, 12]]
    assert_same_bits(call(dmljax.scatter, input, indices.T, updates.T, axis=1), down.T)


def test_scatter_nd_overwrites_blocks_for_short_tuples(call: Any, lowering: str) -> None:
    updates = -np.arange(8, dtype=np.int32).reshape(2, 4)
    written = call(dmljax.scatter_nd, CUBE, np.array([[1, 2], [0, 0]], np.int32), updates)
    expected = CUBE.copy()
    expected[1, 2], expected[0, 0] = updates
    assert_same_bits(written, expected)


def test_the_last_of_several_updates_wins(call: Any, lowering: str) -> None:
    rng = np.random.default_rng(0)
    input, indices = np.full((3, 5), -1, np.int32), rng.integers(-5, 5, (3, 400))
    updates = np.arange(1200, dtype=np.int32).reshape(3, 400)
    for axis, (x, i, u) in ((1, (input, indices, updates)), (0, (input.T, indices.T, updates.T))):
        assert_same_bits(call(dmljax.scatter, x, i, u, axis=axis), oracles.scatter(x, i, u, axis=axis))
    tuples = np.stack([rng.integers(-3, 3, (40, 50)), rng.integers(-5, 5, (40, 50))], axis=-1)
    updates = np.arange(2000, dtype=np.int32).reshape(40, 50)
    assert_same_bits(call(dmljax.scatter_nd, input, tuples, updates), oracles.scatter_nd(input, tuples, updates))
    blocks = np.arange(2000 * 5, dtype=np.int32).reshape(40, 50, 5)
    written = call(dmljax.scatter_nd, input, tuples[..., :1], blocks)
    assert_same_bits(written, oracles.scatter_nd(input, tuples[..., :1], blocks))


def test_the_last_update_wins_inside_of_loops_and_fusions(lowering: str) -> None:
    rng = np.random.default_rng(1)
    input, indices = np.zeros((2, 6), np.float32), rng.integers(-6, 2, (2, 500))
    updates = rng.integers(0, 99, (2, 500)).astype(np.float32)
    scatter = lambda x, i, u: dmljax.scatter(x, i, u, axis=1)  # noqa: E731
    fused = jax.jit(lambda x, i, u: scatter(x + 1, i // 2, u * 2) / 2)(input, indices, updates)
    assert_same_bits(fused, oracles.scatter(input + 1, indices // 2, updates * 2, axis=1) / 2)
    expected = oracles.scatter(input, indices, updates, axis=1)
    looped = jax.jit(lambda x, i, u: jax.lax.fori_loop(0, 3, lambda _, x: scatter(x, i, u), x))
    assert_same_bits(looped(input, indices, updates), expected)


@pytest.mark.parametrize("axis", few_of([0, 1, -1], -1))
@pytest.mark.parametrize("dtype", few_of([np.float32, jnp.bfloat16], jnp.bfloat16))
@pytest.mark.parametrize("count", [2, 90])
def test_one_device_writes_elements_to_one_dimension(axis: int, dtype: Any, count: int) -> None:
    rng, sizes = np.random.default_rng(2), [3, 4, 5]
    input = random_array(rng, dtype, tuple(sizes))
    sizes[axis] = count
    updates, indices = random_array(rng, dtype, tuple(sizes)), random_indices(rng, np.int16, tuple(sizes), 4)
    expected = oracles.scatter(input, indices, updates, axis=axis % 3)
    assert_same_bits(dmljax.scatter(input, indices, updates, axis=axis), expected)
    mapped = jax.vmap(lambda u: dmljax.scatter(input, indices, u, axis=axis))(np.stack([updates, updates[::-1]]))
    assert_same_bits(mapped[0], expected)
    assert_same_bits(mapped[1], oracles.scatter(input, indices, updates[::-1], axis=axis % 3))


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_scatters_ignore_what_is_out_of_range(call: Any, lowering: str, dtype: Any) -> None:
    input, indices = np.zeros(300, np.int32), specials(dtype)
    updates = np.arange(1, 1 + len(indices), dtype=np.int32)
    expected = oracles.scatter(input, indices, updates, axis=0)
    assert_same_bits(call(dmljax.scatter, input, indices, updates, axis=0), expected)
    assert_same_bits(call(dmljax.scatter_nd, input, indices[:, None], updates), expected)


@needs_x64
def test_scatters_do_not_cut_64_bit_indices(call: Any, lowering: str) -> None:
    indices = np.array([2**32 + 1, -(2**32) + 1, -(2**63), 2**63 - 1, -5], np.int64)
    expected = [7, 0, 0, 0, 0]
    assert call(dmljax.scatter, np.zeros(5), indices, np.full(5, 7.0), axis=0).tolist() == expected
    assert call(dmljax.scatter_nd, np.zeros(5), indices[:, None], np.full(5, 7.0)).tolist() == expected


def test_a_tuple_with_one_index_out_of_range_overwrites_nothing(call: Any, lowering: str) -> None:
    tuples = np.array([[0, 3], [2, 0], [-3, 0], [0, -4], [-2, -3]], np.int32)
    written = call(dmljax.scatter_nd, np.zeros((2, 3), np.int32), tuples, np.arange(1, 6, dtype=np.int32))
    assert written.tolist() == [[5, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_scatters_copy_bit_for_bit(call: Any, lowering: str, dtype: Any) -> None:
    input, updates = random_array(np.random.default_rng(0), dtype, (5, 7)), specials(dtype)[:5]
    updates = np.resize(updates, (5, 2))
    indices = np.array([[1, -1]] * 5, np.int32)
    expected = oracles.scatter(input, indices, updates, axis=1)
    assert_same_bits(call(dmljax.scatter, input, indices, updates, axis=1), expected)
    tuples = np.array([[3], [0]], np.int32)
    blocks = random_array(np.random.default_rng(1), dtype, (2, 7))
    assert_same_bits(call(dmljax.scatter_nd, input, tuples, blocks), oracles.scatter_nd(input, tuples, blocks))


@pytest.mark.parametrize(
    "move",
    [
        lambda x, i: dmljax.gather(x, i[0], axis=1),
        pytest.param(lambda x, i: dmljax.gather_elements(x, i, axis=0), marks=FULL),
        pytest.param(lambda x, i: dmljax.gather_nd(x, i[:, :1]), marks=FULL),
        pytest.param(lambda x, i: dmljax.scatter(x, i, x[::-1], axis=1), marks=FULL),
        pytest.param(lambda x, i: dmljax.scatter_nd(x, i[:, :1], x[::-1]), marks=FULL),
        lambda x, i: dmljax.scatter_nd(x, i[:, :2], x[::-1, 0]),
        lambda x, i: dmljax.reverse_subsequences(x, i[:, :1], axis=1),
        lambda x, i: dmljax.scatter(dmljax.gather(x, i[0], axis=1), i, dmljax.gather_elements(x, i, axis=0), axis=1),
    ],
)
def test_every_bfloat16_is_copied_inside_one_computation_and_outside(move: Any, lowering: str) -> None:
    bits, indices = EVERY.reshape(256, 256), np.random.default_rng(0).integers(-260, 260, (256, 256))
    expected = np.asarray(move(bits, indices))
    for run in (move, jax.jit(move)):
        moved = np.asarray(run(bits.view(jnp.bfloat16), indices))
        np.testing.assert_array_equal(moved.view(np.uint16), expected)


def test_scatters_of_nothing_copy_the_input(call: Any) -> None:
    input, none = np.ones((2, 3), np.float32), np.zeros((2, 0), np.int32)
    assert_same_bits(call(dmljax.scatter, input, none, none.astype(np.float32), axis=1), input)
    empty = np.zeros((0, 3), np.float32)
    assert call(dmljax.scatter, empty, np.zeros((2, 3), np.int32), np.ones((2, 3), np.float32), axis=0).shape == (0, 3)
    assert call(dmljax.scatter_nd, empty, np.zeros((2, 1), np.int32), np.ones((2, 3), np.float32)).shape == (0, 3)
    assert_same_bits(call(dmljax.scatter_nd, input, np.zeros((0, 1), np.int32), empty), input)


@FULL
@settings(deadline=None, max_examples=15)
@given(st.data())
def test_scatters_equal_the_pseudo_code(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    elements = (*shape[:axis], data.draw(st.integers(1, 5)), *shape[axis + 1 :])
    length = data.draw(st.integers(1, len(shape)))
    rows = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    value, index = data.draw(st.sampled_from(REALS)), data.draw(st.sampled_from(INTEGERS))
    input, updates = random_array(rng, value, shape), random_array(rng, value, elements)
    indices = random_indices(rng, index, elements, 4)
    written = dmljax.scatter(input, indices, updates, axis=axis - len(shape))
    assert_same_bits(written, oracles.scatter(input, indices, updates, axis=axis))
    tuples, blocks = random_indices(rng, index, (*rows, length), 4), random_array(rng, value, rows + shape[length:])
    assert_same_bits(dmljax.scatter_nd(input, tuples, blocks), oracles.scatter_nd(input, tuples, blocks))


SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lambda x, u: dmljax.scatter(x, np.array([-1, 1, 9, 3, 1, -5]), u, axis=0),
    "scatter_nd": lambda x, u: dmljax.scatter_nd(x, np.array([[-1], [1], [9], [3], [1], [-5]]), u),
}


@FULL
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", few_of(["float32", "bfloat16"], "bfloat16"))
def test_the_gradient_of_a_scatter_is_of_what_is_seen(name: str, dtype: Any, lowering: str) -> None:
    scatter = SCATTERS[name]
    input, updates, weights = jnp.ones(4, dtype), jnp.ones(6, dtype), jnp.array([1, 2, 4, 8], dtype)
    loss = lambda x, u: (scatter(x, u) * weights).sum()  # noqa: E731
    for gradient in (jax.grad(loss, argnums=(0, 1)), jax.jit(jax.grad(loss, argnums=(0, 1)))):
        of_input, of_updates = gradient(input, updates)
        assert (of_input.dtype, of_updates.dtype) == (dtype, dtype)
        assert of_input.tolist() == [1, 0, 4, 0]
        assert of_updates.tolist() == [0, 0, 0, 8, 2, 0]
    tangents = jnp.array([1, 2, 3, 4], dtype), jnp.array([5, 6, 7, 8, 9, 10], dtype)
    _, tangent = jax.jvp(scatter, (input, updates), tangents)
    assert tangent.tolist() == [1, 9, 3, 8]


@FULL
@pytest.mark.parametrize("name", SCATTERS)
def test_the_gradient_of_a_scatter_keeps_infinities_where_they_belong(name: str) -> None:
    input, updates = jnp.ones(4), jnp.ones(6)
    _, pull = jax.vjp(SCATTERS[name], input, updates)
    of_input, of_updates = pull(jnp.array([jnp.inf, -jnp.inf, jnp.nan, 1.0], input.dtype))
    assert_same_bits(of_input, np.array([np.inf, 0, np.nan, 0], input.dtype))
    assert_same_bits(of_updates, np.array([0, 0, 0, 1, -np.inf, 0], input.dtype))
    check_linear_gradients(SCATTERS[name], (input, updates))


@FULL
def test_scatters_may_be_mapped_over_any_arguments(lowering: str) -> None:
    input, indices = np.zeros((2, 5), np.int32), np.array([[0, 0, -1], [7, 2, 2]], np.int32)
    updates = np.arange(1, 7, dtype=np.int32).reshape(2, 3)
    for function in (
        lambda x, i, u: dmljax.scatter(x, i, u, axis=0),
        lambda x, i, u: dmljax.scatter_nd(x, i[:, None], u),
    ):
        for axes in ((0, 0, 0), (None, 0, 0), (0, None, 0), (0, 0, None), (None, 0, None), (None, None, 0)):
            pairs = list(zip((input, indices, updates), axes, strict=True))
            arguments = [a if axis == 0 else a[0] for a, axis in pairs]
            rows = [[a[k] if axis == 0 else a[0] for a, axis in pairs] for k in range(2)]
            assert_same_bits(jax.vmap(function, in_axes=axes)(*arguments), np.stack([function(*row) for row in rows]))


def test_a_scatter_takes_weakly_typed_updates() -> None:
    weak = jnp.broadcast_to(2.0, (1,))
    written = dmljax.scatter(jnp.ones(2, jnp.bfloat16), np.array([1]), weak, axis=0)
    assert (written.dtype, written.tolist()) == (jnp.bfloat16, [1, 2])


# REVERSE_SUBSEQUENCES


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_lengths_are_clamped_and_negative_ones_reverse_nothing(call: Any, dtype: Any) -> None:
    row, lengths = np.arange(300, dtype=np.int32), specials(dtype)[:, None]
    rows = np.tile(row, (len(lengths), 1))
    expected = oracles.reverse_subsequences(rows, lengths, axis=1)
    assert_same_bits(call(dmljax.reverse_subsequences, rows, lengths, axis=1), expected)
    assert_same_bits(call(dmljax.reverse_subsequences, rows.T, lengths.T, axis=0), expected.T)


@needs_x64
def test_lengths_of_64_bits_are_not_cut(call: Any) -> None:
    lengths = np.array([[2**32 + 1], [-(2**32) + 2], [2**63 - 1]], np.int64)
    reversed_rows = call(dmljax.reverse_subsequences, np.tile(np.arange(3), (3, 1)), lengths, axis=-1)
    assert reversed_rows.tolist() == [[2, 1, 0], [0, 1, 2], [2, 1, 0]]


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_reversal_copies_bit_for_bit(call: Any, dtype: Any) -> None:
    input = random_array(np.random.default_rng(0), dtype, (4, 5, 3))
    lengths = np.random.default_rng(1).integers(0, 7, (4, 1, 3)).astype(np.uint32)
    expected = oracles.reverse_subsequences(input, lengths, axis=1)
    assert_same_bits(call(dmljax.reverse_subsequences, input, lengths, axis=1), expected)


@FULL
def test_a_reversal_inverts_itself_and_so_does_its_gradient() -> None:
    input, lengths = jnp.arange(12.0).reshape(3, 4), np.array([[2], [0], [9]], np.int32)
    reverse = lambda x: dmljax.reverse_subsequences(x, lengths, axis=1)  # noqa: E731
    assert_same_bits(reverse(reverse(input)), input)
    (gradient,) = jax.vjp(reverse, input)[1](input)
    assert_same_bits(gradient, reverse(input))
    check_linear_gradients(reverse, (input,))


def test_a_reversal_of_nothing_is_empty(call: Any) -> None:
    none = np.zeros((0, 1), np.int32)
    assert call(dmljax.reverse_subsequences, np.zeros((0, 3)), none, axis=1).shape == (0, 3)
    assert call(dmljax.reverse_subsequences, np.zeros((2, 0)), np.ones((2, 1), np.int32), axis=1).shape == (2, 0)


# All of them


@pytest.mark.full
def test_sizes_may_be_symbolic(lowering: str) -> None:
    rows, depth = jax.export.symbolic_shape("rows, depth")
    rng = np.random.default_rng(0)
    input, indices = rng.integers(0, 9, (5, 7)).astype(np.float32), rng.integers(-9, 9, (5, 3)).astype(np.int8)
    updates = -rng.integers(1, 9, (5, 3)).astype(np.float32)
    shapes = (rows, depth), (rows, 3), (rows, 3)
    arrays: tuple[Any, ...] = input, indices, updates
    for function in (
        lambda x, i, u: dmljax.gather(x, i, axis=1),
        lambda x, i, u: dmljax.gather_elements(x, i, axis=1),
        lambda x, i, u: dmljax.gather_nd(x, i[:, :2]),
        lambda x, i, u: dmljax.scatter(x, i, u, axis=1),
        lambda x, i, u: dmljax.scatter(u, i, u, axis=0),
        lambda x, i, u: dmljax.scatter_nd(x, i[:, :2], u[:, 0]),
        lambda x, i, u: dmljax.scatter_nd(x, i[:, :1], x),
        lambda x, i, u: dmljax.reverse_subsequences(x, i[:, :1], axis=1),
    ):
        symbolic = [jax.ShapeDtypeStruct(s, a.dtype) for s, a in zip(shapes, arrays, strict=True)]
        exported = jax.export.export(jax.jit(function))(*symbolic)
        assert_same_trees(exported.call(*arrays), function(*arrays))


ROWS, ROW_INDICES = jnp.zeros((2, 3)), jnp.zeros((2, 1), int)


@pytest.mark.parametrize(
    ("call_", "error", "message"),
    [
        (lambda: dmljax.gather(ROWS, ROWS, axis=0), InvalidType, "indices must be of an integer type; got float"),
        (lambda: dmljax.gather(ROWS, ROW_INDICES, axis=2), InvalidDesc, r"axis must be in \[-2, 2\); got 2"),
        (
            lambda: dmljax.gather(jnp.array(1), ROW_INDICES, axis=0),
            InvalidDesc,
            "input must have at least 1 dimension; got 0",
        ),
        (
            lambda: dmljax.gather(jnp.zeros((2, 0)), ROW_INDICES, axis=1),
            InvalidDesc,
            r"input must have elements to fetch; got shape \(2, 0\)",
        ),
        (
            lambda: dmljax.gather_elements(ROWS, ROW_INDICES, axis=0),
            InvalidDesc,
            r"indices must have the shape of input except along axis 0, \(2, 3\); got \(2, 1\)",
        ),
        (
            lambda: dmljax.gather_elements(ROWS, ROW_INDICES[0], axis=0),
            InvalidDesc,
            r"indices must have the shape of input except .*; got \(1,\)",
        ),
        (
            lambda: dmljax.gather_elements(jnp.zeros((2, 0)), ROW_INDICES, axis=1),
            InvalidDesc,
            r"input must have elements to fetch; got shape \(2, 0\)",
        ),
        (
            lambda: dmljax.gather_elements(ROWS, ROWS > 0, axis=0),
            InvalidType,
            "indices must be .* integer .*; got bool",
        ),
        (
            lambda: dmljax.scatter(ROWS, ROW_INDICES, jnp.zeros((2, 1), int), axis=1),
            InvalidType,
            f"updates must be of {ROWS.dtype}, as input is; got int",
        ),
        (
            lambda: dmljax.scatter(ROWS, ROW_INDICES, ROWS, axis=1),
            InvalidDesc,
            r"updates must have the shape of indices, \(2, 1\); got \(2, 3\)",
        ),
        (
            lambda: dmljax.scatter(ROWS, ROW_INDICES, ROWS, axis=0),
            InvalidDesc,
            r"indices must have the shape of input except along axis 0, \(2, 3\); got \(2, 1\)",
        ),
        (lambda: dmljax.scatter(ROWS, ROW_INDICES, ROWS, axis=-3), InvalidDesc, r"axis must be in \[-2, 2\); got -3"),
        (
            lambda: dmljax.scatter_nd(ROWS, ROW_INDICES, jnp.zeros((2, 2))),
            InvalidDesc,
            r"updates must have the shape of indices before .*, \(2, 3\); got \(2, 2\)",
        ),
        (
            lambda: dmljax.scatter_nd(ROWS, jnp.zeros((2, 3), int), ROWS),
            InvalidDesc,
            "indices must hold tuples of 1 to 2 coordinates; got 3",
        ),
        (
            lambda: dmljax.scatter_nd(ROWS, jnp.array(1), ROWS),
            InvalidDesc,
            "indices must have at least 1 dimension; got 0",
        ),
        (
            lambda: dmljax.scatter_nd(ROWS, ROW_INDICES, ROWS.astype(bool)),
            InvalidType,
            f"updates must be of {ROWS.dtype}, as input is; got bool",
        ),
        (
            lambda: dmljax.reverse_subsequences(ROWS, ROW_INDICES, axis=0),
            InvalidDesc,
            r"sequence_lengths must have the shape of input with size 1 along axis 0, \(1, 3\); got \(2, 1\)",
        ),
        (
            lambda: dmljax.reverse_subsequences(ROWS, ROWS[:, :1], axis=1),
            InvalidType,
            "sequence_lengths must be of an integer type; got float",
        ),
    ],
)
def test_a_wrong_call_is_refused(call_: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call_()


# Descriptors


def blocks_desc(**change: Any) -> directml.GatherDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (1, 3, 4)),
        "indices": TensorDesc(INT32, (1, 2, 5)),
        "output": TensorDesc(FLOAT32, (3, 2, 5)),
        "axis": 2,
        "index_dimensions": 2,
    }
    return directml.GatherDesc(**members | change)


def elements_desc(**change: Any) -> directml.GatherElementsDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (3, 4)),
        "indices": TensorDesc(INT32, (3, 5)),
        "output": TensorDesc(FLOAT32, (3, 5)),
        "axis": 1,
    }
    return directml.GatherElementsDesc(**members | change)


def scatter_desc(**change: Any) -> directml.ScatterDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (3, 4)),
        "indices": TensorDesc(INT32, (3, 5)),
        "updates": TensorDesc(FLOAT32, (3, 5)),
        "output": TensorDesc(FLOAT32, (3, 4)),
        "axis": 1,
    }
    return directml.ScatterDesc(**members | change)


def scatter_nd_desc(**change: Any) -> directml.ScatterNdDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (1, 3, 2, 5)),
        "indices": TensorDesc(INT32, (1, 1, 4, 2)),
        "updates": TensorDesc(FLOAT32, (1, 1, 4, 5)),
        "output": TensorDesc(FLOAT32, (1, 3, 2, 5)),
        "input_dimension_count": 3,
        "indices_dimension_count": 2,
    }
    return directml.ScatterNdDesc(**members | change)


def reverse_desc(**change: Any) -> directml.ReverseSubsequencesDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (2, 3, 4)),
        "sequence_lengths": TensorDesc(UINT32, (2, 1, 4)),
        "output": TensorDesc(FLOAT32, (2, 3, 4)),
        "axis": 1,
    }
    return directml.ReverseSubsequencesDesc(**members | change)


HALF = DataType.FLOAT16
REFUSED: list[tuple[Callable[..., directml.Operator], dict[str, Any], str]] = [
    (blocks_desc, {"output": TensorDesc(FLOAT32, (3, 10))}, "must have the same DimensionCount; got 3, 3 and 2"),
    (blocks_desc, {"output": TensorDesc(HALF, (3, 2, 5))}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (blocks_desc, {"axis": 3}, "Axis must be less than 3; got 3"),
    (blocks_desc, {"index_dimensions": 4}, r"IndexDimensions must be in \[0, 3\]; got 4"),
    (blocks_desc, {"index_dimensions": 1}, r"IndicesTensor\.Sizes must be 1 before the last 1; got \{1,2,5\}"),
    (blocks_desc, {"index_dimensions": 3}, "IndexDimensions must be at most 2, for OutputTensor has .* 3 dim.*; got 3"),
    (blocks_desc, {"axis": 0}, "IndexDimensions must be at most 1, .*; got 2"),
    (blocks_desc, {"input": TensorDesc(FLOAT32, (2, 3, 4))}, "IndexDimensions must be at most 1, .*; got 2"),
    (blocks_desc, {"axis": 1}, r"OutputTensor\.Sizes must be \{2,5,4\}; got \{3,2,5\}"),
    (elements_desc, {"indices": TensorDesc(INT32, (1, 3, 5))}, "must have the same DimensionCount; got 3, 2 and 2"),
    (elements_desc, {"output": TensorDesc(UINT32, (3, 5))}, "must have the same DataType; got FLOAT32 and UINT32"),
    (elements_desc, {"axis": 2}, "Axis must be less than 2; got 2"),
    (elements_desc, {"axis": 0}, r"IndicesTensor\.Sizes must be \{3,4\}; got \{3,5\}"),
    (elements_desc, {"output": TensorDesc(FLOAT32, (3, 4))}, r"OutputTensor\.Sizes must be \{3,5\}; got \{3,4\}"),
    (scatter_desc, {"updates": TensorDesc(FLOAT32, (5,))}, "must have the same DimensionCount; got 2, 2, 2 and 1"),
    (scatter_desc, {"updates": TensorDesc(HALF, (3, 5))}, "must have the same DataType; got FLOAT32, FLOAT32 and FLO"),
    (scatter_desc, {"axis": 2}, "Axis must be less than 2; got 2"),
    (scatter_desc, {"axis": 0}, r"IndicesTensor\.Sizes must be \{3,4\}; got \{3,5\}"),
    (scatter_desc, {"updates": TensorDesc(FLOAT32, (3, 4))}, r"UpdatesTensor\.Sizes must be \{3,5\}; got \{3,4\}"),
    (scatter_desc, {"output": TensorDesc(FLOAT32, (3, 5))}, r"OutputTensor\.Sizes must be \{3,4\}; got \{3,5\}"),
    (scatter_nd_desc, {"updates": TensorDesc(FLOAT32, (4, 5))}, "must have the same DimensionCount; got 4, 4, 4 and 2"),
    (scatter_nd_desc, {"updates": TensorDesc(HALF, (1, 1, 4, 5))}, "must have the same DataType; got FLOAT32, FLOAT32"),
    (scatter_nd_desc, {"input_dimension_count": 5}, r"InputDimensionCount must be in \[1, 4\]; got 5"),
    (scatter_nd_desc, {"indices_dimension_count": 0}, r"IndicesDimensionCount must be in \[1, 4\]; got 0"),
    (scatter_nd_desc, {"input_dimension_count": 2}, r"InputTensor\.Sizes must be 1 before the last 2; got \{1,3,2,5\}"),
    (scatter_nd_desc, {"indices": TensorDesc(INT32, (1, 1, 4, 4))}, "must hold tuples of 1 to 3 coordinates; got 4"),
    (
        scatter_nd_desc,
        {"updates": TensorDesc(FLOAT32, (1, 4, 2, 5))},
        r"Tensor\.Sizes must be \{1,1,4,5\}; got \{1,4,2",
    ),
    (scatter_nd_desc, {"output": TensorDesc(FLOAT32, (1, 1, 4, 5))}, r"OutputTensor\.Sizes must be \{1,3,2,5\}; got"),
    (
        reverse_desc,
        {"sequence_lengths": TensorDesc(UINT32, (2, 4))},
        "must have the same DimensionCount; got 3, 3 and 2",
    ),
    (reverse_desc, {"output": TensorDesc(HALF, (2, 3, 4))}, "must have the same DataType; got FLOAT32 and FLOAT16"),
    (
        reverse_desc,
        {"output": TensorDesc(FLOAT32, (2, 3, 5))},
        r"OutputTensor\.Sizes must be \{2,3,4\}; got \{2,3,5\}",
    ),
    (reverse_desc, {"axis": 3}, "Axis must be less than 3; got 3"),
    (reverse_desc, {"axis": 2}, r"SequenceLengthsTensor\.Sizes must be \{2,3,1\}; got \{2,1,4\}"),
    (reverse_desc, {"sequence_lengths": TensorDesc(INT32, (2, 1, 4))}, "must be one of UINT32, UINT64; got INT32"),
]


@pytest.mark.parametrize(("make", "change", "message"), REFUSED)
def test_a_desc_that_breaks_a_rule_is_refused(make: Any, change: dict[str, Any], message: str) -> None:
    desc = make()
    directml.validate(desc)
    with pytest.raises(InvalidDesc, match=f"{desc.short_name} at DML_FEATURE_LEVEL_6_4: (.|\n)*{message}"):
        directml.validate(make(**change))


def test_gather_desc_crops_leading_ones_of_the_input_alone() -> None:
    input, indices = np.arange(12, dtype=np.float32).reshape(1, 3, 4), np.array([[[2, -1]]], np.int32)
    desc = blocks_desc(indices=TensorDesc(INT32, (1, 1, 2)), output=TensorDesc(FLOAT32, (3, 1, 2)))
    assert_same_bits(directml.lower(desc)(input, indices), input[0][:, [[2, 3]]])
    # {1,3,1,1,2} would also fit three dimensions without its leading 1 and one of the indices.
    with pytest.raises(InvalidDesc, match="IndexDimensions must be at most 2"):
        directml.validate(
            blocks_desc(**{field: getattr(desc, field) for field in ("indices", "output")}, index_dimensions=3)
        )


def test_gather_desc_prepends_ones_where_the_indices_have_no_dimension() -> None:
    input = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    desc = blocks_desc(
        indices=TensorDesc(INT32, (1, 1, 1)), output=TensorDesc(FLOAT32, (1, 1, 3)), index_dimensions=0, axis=2
    )
    assert_same_bits(directml.lower(desc)(input, np.array([[[-1]]], np.int32)), input[None, :, :, -1])


def test_the_third_example_of_gathers_page_overflows() -> None:
    desc = directml.GatherDesc(
        input=TensorDesc(FLOAT32, (3, 2)),
        indices=TensorDesc(UINT32, (1, 2)),
        output=TensorDesc(FLOAT32, (3, 2)),
        axis=1,
        index_dimensions=2,
    )
    with pytest.raises(InvalidDesc, match=r"IndexDimensions must be at most 1, .* 2 dimensions; got 2"):
        directml.validate(desc)


def test_scatter_nd_desc_has_the_sizes_of_the_pages_worked_example() -> None:
    directml.validate(
        directml.ScatterNdDesc(
            input=TensorDesc(FLOAT32, (3, 4, 5, 6, 7)),
            indices=TensorDesc(UINT32, (1, 1, 1, 2, 3)),
            updates=TensorDesc(FLOAT32, (1, 1, 2, 6, 7)),
            output=TensorDesc(FLOAT32, (3, 4, 5, 6, 7)),
            input_dimension_count=5,
            indices_dimension_count=3,
        )
    )


def tuples_desc(**change: Any) -> directml.GatherNd1Desc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (1, 3, 2, 5)),
        "indices": TensorDesc(INT32, (1, 3, 4, 1)),
        "output": TensorDesc(FLOAT32, (1, 3, 4, 5)),
        "input_dimension_count": 3,
        "indices_dimension_count": 3,
        "batch_dimension_count": 1,
    }
    return directml.GatherNd1Desc(**members | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output": TensorDesc(FLOAT32, (3, 4, 5))}, "must have the same DimensionCount; got 4, 4 and 3"),
        (
            {"output": TensorDesc(DataType.FLOAT16, (1, 3, 4, 5))},
            "must have the same DataType; got FLOAT32 and FLOAT16",
        ),
        ({"output": TensorDesc(FLOAT32, (1, 3, 4, 1))}, r"OutputTensor.Sizes must be \{1,3,4,5\}; got \{1,3,4,1\}"),
        ({"input_dimension_count": 0}, r"InputDimensionCount must be in \[1, 4\]; got 0"),
        ({"indices_dimension_count": 5}, r"IndicesDimensionCount must be in \[1, 4\]; got 5"),
        ({"input_dimension_count": 2}, r"InputTensor.Sizes must be 1 before the last 2; got \{1,3,2,5\}"),
        ({"batch_dimension_count": 3}, r"BatchDimensionCount must be in \[0, 3\); got 3"),
        (
            {"indices": TensorDesc(INT32, (1, 2, 4, 1))},
            r"InputTensor and IndicesTensor must have the same batch sizes; got \{3\} and \{2\}",
        ),
        ({"indices": TensorDesc(INT32, (1, 3, 4, 3))}, "IndicesTensor must hold tuples of 1 to 2 coordinates; got 3"),
    ],
)
def test_gather_nd_desc_refuses(change: dict[str, Any], message: str) -> None:
    directml.validate(tuples_desc())
    with pytest.raises(InvalidDesc, match=r"DML_OPERATOR_GATHER_ND1 at DML_FEATURE_LEVEL_6_4: (.|\n)*" + message):
        directml.validate(tuples_desc(**change))


def test_gather_nd_desc_pads_the_output_with_leading_ones() -> None:
    # The page's own sizes: {3,4,5,6,7} gathered by {1,2} tuples of 3 coordinates gives {1, 1,2,6,7}.
    desc = directml.GatherNdDesc(
        input=TensorDesc(FLOAT32, (3, 4, 5, 6, 7)),
        indices=TensorDesc(UINT32, (1, 1, 1, 2, 3)),
        output=TensorDesc(FLOAT32, (1, 1, 2, 6, 7)),
        input_dimension_count=5,
        indices_dimension_count=3,
    )
    input = np.arange(3 * 4 * 5 * 6 * 7, dtype=np.float32).reshape(3, 4, 5, 6, 7)
    result = directml.lower(desc)(input, np.array([[[[[2, 3, 4], [0, 1, 2]]]]], np.uint32))
    assert_same_bits(result, np.stack([input[2, 3, 4], input[0, 1, 2]])[None, None])
