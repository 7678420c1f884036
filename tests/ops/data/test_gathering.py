"""GATHER, SCATTER, their kin and REVERSE_SUBSEQUENCES; the pages' examples run in test_every_operator.py."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cases_gathering as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_gathering import BLOCKS
from helpers import (
    FULL,
    GATE,
    INT32_MAX,
    INT32_MIN,
    INTEGERS,
    REALS,
    SAMPLED,
    assert_same_bits,
    check_linear_gradients,
    check_refused,
    f32,
    few_of,
    few_types,
    needs_x64,
    random_array,
    random_indices,
    specials,
    tensor,
)

import dmljax
from dmljax import directml

CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
# Gathers of a vector by a vector of indices
GATHERS: dict[str, Callable[[Any, Any], Any]] = {
    "gather": lambda x, i: dmljax.gather(x, i, axis=0),
    "gather_elements": lambda x, i: dmljax.gather_elements(x, i, axis=0),
    "gather_nd": lambda x, i: dmljax.gather_nd(x, i[:, None]),
}
of_each_gather = pytest.mark.parametrize("gather", GATHERS.values(), ids=GATHERS)
EVERY = np.arange(2**16, dtype=np.uint16)  # every bfloat16, including subnormals and signaling NaNs

# GATHER and GATHER_ELEMENTS


@of_each_gather
def test_gathers_count_from_the_end_and_clamp(call: Any, gather: Any) -> None:
    indices = np.array([-1, -3, 0, 3, -4, INT32_MIN, INT32_MAX], np.int32)
    assert call(gather, np.array([5, 6, 7], np.int32), indices).tolist() == [7, 5, 5, 7, 5, 5, 7]


@SAMPLED
@of_each_gather
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_gathers_do_not_wrap_narrow_indices_into_a_large_dimension(call: Any, gather: Any, dtype: Any) -> None:
    input, indices = np.arange(300, dtype=np.int32), specials(dtype)
    assert_same_bits(call(gather, input, indices), oracles.gather(input, indices, axis=0))


@needs_x64
@of_each_gather
def test_gathers_do_not_truncate_64_bit_indices(call: Any, gather: Any) -> None:
    indices = np.array([2**32 + 1, -(2**32) + 1, -(2**63), 2**63 - 1], np.int64)
    assert call(gather, np.arange(5), indices).tolist() == [4, 0, 0, 4]


@SAMPLED
@of_each_gather
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_gathers_copy_bit_for_bit(call: Any, gather: Any, dtype: Any) -> None:
    input = specials(dtype)
    assert_same_bits(call(gather, input, np.arange(len(input), dtype=np.int32)[::-1]), input[::-1])


def test_gathers_from_empty_arrays_are_empty(call: Any) -> None:
    none, tuples = np.zeros((0, 2), np.int32), np.zeros((0, 1), np.int32)
    assert call(dmljax.gather, np.zeros((2, 3)), none, axis=1).shape == (2, 0, 2)
    assert call(dmljax.gather, np.zeros((0, 3)), none, axis=0).shape == (0, 2, 3)
    assert call(dmljax.gather, np.zeros((0, 3)), np.zeros(4, np.int32), axis=1).shape == (0, 4)
    for rows in (3, 0):
        assert call(dmljax.gather_elements, np.zeros((rows, 2)), none, axis=0).shape == (0, 2)
        assert call(dmljax.gather_nd, np.zeros((rows, 3)), tuples).shape == (0, 3)
    assert call(dmljax.gather_nd, np.zeros((2, 0)), np.zeros((4, 1), np.int32)).shape == (4, 0)


SHAPES = [((4,), 0), ((2, 3), 1), ((3, 1, 4), 0), ((2, 2, 3, 2), 2)]


@FULL
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("indices_shape", [(), (3,), (2, 3)], ids=str)
def test_gathers_equal_the_pseudo_code(shape: tuple[int, ...], axis: int, indices_shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    input, indices = random_array(rng, np.float32, shape), random_indices(rng, np.int8, indices_shape, 4)
    assert_same_bits(dmljax.gather(input, indices, axis=axis), oracles.gather(input, indices, axis=axis))
    indices = random_indices(rng, np.int32, (*shape[:axis], 5, *shape[axis + 1 :]), 4)
    gathered = dmljax.gather_elements(input, indices, axis=axis - len(shape))
    assert_same_bits(gathered, oracles.gather_elements(input, indices, axis=axis))


@FULL
@of_each_gather
def test_the_gradient_of_a_gather_adds_up_where_indices_repeat_or_are_clamped(gather: Any) -> None:
    indices, weights = np.array([0, -2, 9, -9, 1], np.int32), jnp.array([1.0, 2, 4, 8, 16])
    gradient = jax.grad(lambda input: (gather(input, indices) * weights).sum())(jnp.zeros(2))
    assert gradient.tolist() == [1 + 2 + 8, 4 + 16]
    check_linear_gradients(lambda input: gather(input, indices), (jnp.array([3.0, 4.0]),))


@SAMPLED
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize(
    "gather",
    [
        lambda x, i: dmljax.gather(x, i, axis=1),
        lambda x, i: dmljax.gather_nd1(x, jnp.swapaxes(i, 0, 1)[..., None], batch_dimension_count=1),
    ],
    ids=["gather", "gather_nd1"],
)
def test_a_gather_may_be_mapped_over_either_or_both_arguments(gather: Any, axes: Any) -> None:
    input, indices = np.stack([CUBE[0], -CUBE[1]]), np.array([[[2, -1, 0]], [[0, 9, -7]]], np.int32)
    arguments = [a if axis == 0 else a[0] for a, axis in zip((input, indices), axes, strict=True)]
    rows = [[a[k] if axis == 0 else a for a, axis in zip(arguments, axes, strict=True)] for k in range(2)]
    assert_same_bits(jax.vmap(gather, in_axes=axes)(*arguments), jnp.stack([gather(*row) for row in rows]))


# GATHER_ND and GATHER_ND1


def test_gather_nd_has_batches(call: Any) -> None:
    input = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    result = call(dmljax.gather_nd1, input, np.array([[[2]], [[0]]], np.int32), batch_dimension_count=1)
    assert_same_bits(result, np.stack([input[0, [2]], input[1, [0]]]))


@SAMPLED
@pytest.mark.parametrize(
    ("shape", "batch", "coordinates", "middle"),
    [
        ((4,), 0, 1, ()),
        ((2, 3), 0, 2, (3,)),
        ((2, 3, 4), 1, 1, (2, 3)),
        ((2, 1, 3, 2), 2, 1, ()),
        ((3, 2, 2), 0, 1, (5,)),
    ],
    ids=str,
)
def test_gather_nd_equals_the_pseudo_code(shape: Any, batch: int, coordinates: int, middle: Any) -> None:
    rng = np.random.default_rng(0)
    input = random_array(rng, np.float32, shape)
    indices = random_indices(rng, np.int16, (*shape[:batch], *middle, coordinates), 4)
    expected = oracles.gather_nd1(input, indices, batch_dimension_count=batch)
    assert_same_bits(dmljax.gather_nd1(input, indices, batch_dimension_count=batch), expected)


@FULL
def test_the_gradient_of_gather_nd_stays_in_its_batch() -> None:
    indices = np.array([[[0], [0]], [[1], [0]]], np.int32)
    gather = lambda input: dmljax.gather_nd1(input, indices, batch_dimension_count=1)  # noqa: E731
    gradient = jax.grad(lambda input: gather(input).sum())(jnp.zeros((2, 2, 2)))
    assert gradient.tolist() == [[[2, 2], [0, 0]], [[1, 1], [1, 1]]]
    check_linear_gradients(gather, (jnp.arange(8.0).reshape(2, 2, 2),))


# SCATTER and SCATTER_ND


@FULL
def test_scatter_overwrites_along_the_axis_where_the_index_stands(call: Any, lowering: str) -> None:
    input, updates = np.zeros((3, 3), np.float32), np.array([[10, 11, 12], [20, 21, 22]], np.float32)
    indices = np.array([[1, 0, 2], [0, 2, 1]], np.int32)
    down = call(dmljax.scatter, input, indices, updates, axis=0)
    assert down.tolist() == [[20, 11, 0], [10, 0, 22], [0, 21, 12]]
    assert_same_bits(call(dmljax.scatter, input, indices.T, updates.T, axis=1), down.T)


@pytest.mark.gate(but=1)
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


@pytest.mark.gate(but=1)
def test_the_last_update_wins_inside_loops_and_fusions(lowering: str) -> None:
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
@pytest.mark.gate(but=1)
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


@SAMPLED
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_scatters_ignore_what_is_out_of_range(call: Any, lowering: str, dtype: Any) -> None:
    input, indices = np.zeros(300, np.int32), specials(dtype)
    updates = np.arange(1, 1 + len(indices), dtype=np.int32)
    expected = oracles.scatter(input, indices, updates, axis=0)
    assert_same_bits(call(dmljax.scatter, input, indices, updates, axis=0), expected)
    assert_same_bits(call(dmljax.scatter_nd, input, indices[:, None], updates), expected)


@needs_x64
@pytest.mark.gate(but=1)
def test_scatters_do_not_truncate_64_bit_indices(call: Any, lowering: str) -> None:
    indices = np.array([2**32 + 1, -(2**32) + 1, -(2**63), 2**63 - 1, -5], np.int64)
    expected = [7, 0, 0, 0, 0]
    assert call(dmljax.scatter, np.zeros(5), indices, np.full(5, 7.0), axis=0).tolist() == expected
    assert call(dmljax.scatter_nd, np.zeros(5), indices[:, None], np.full(5, 7.0)).tolist() == expected


@pytest.mark.gate(but=1)
def test_a_tuple_with_one_index_out_of_range_overwrites_nothing(call: Any, lowering: str) -> None:
    tuples = np.array([[0, 3], [2, 0], [-3, 0], [0, -4], [-2, -3]], np.int32)
    written = call(dmljax.scatter_nd, np.zeros((2, 3), np.int32), tuples, np.arange(1, 6, dtype=np.int32))
    assert written.tolist() == [[5, 0, 0], [0, 0, 0]]


@SAMPLED
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
@GATE
def test_every_bfloat16_is_copied_eagerly_and_inside_jit(move: Any, lowering: str) -> None:
    bits, indices = EVERY.reshape(256, 256), np.random.default_rng(0).integers(-260, 260, (256, 256))
    expected = np.asarray(move(bits, indices))
    for run in (move, jax.jit(move)):
        copies = np.asarray(run(bits.view(jnp.bfloat16), indices))
        np.testing.assert_array_equal(copies.view(np.uint16), expected)


def test_empty_scatters_copy_the_input(call: Any) -> None:
    input, none = np.ones((2, 3), np.float32), np.zeros((2, 0), np.int32)
    assert_same_bits(call(dmljax.scatter, input, none, none.astype(np.float32), axis=1), input)
    empty = np.zeros((0, 3), np.float32)
    assert call(dmljax.scatter, empty, np.zeros((2, 3), np.int32), np.ones((2, 3), np.float32), axis=0).shape == (0, 3)
    assert call(dmljax.scatter_nd, empty, np.zeros((2, 1), np.int32), np.ones((2, 3), np.float32)).shape == (0, 3)
    assert_same_bits(call(dmljax.scatter_nd, input, np.zeros((0, 1), np.int32), empty), input)


@FULL
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("rows", [(), (3,), (2, 3)], ids=str)
def test_scatters_equal_the_pseudo_code(shape: tuple[int, ...], axis: int, rows: tuple[int, ...]) -> None:
    rng, elements = np.random.default_rng(0), (*shape[:axis], 5, *shape[axis + 1 :])
    input, updates = random_array(rng, np.float32, shape), random_array(rng, np.float32, elements)
    indices = random_indices(rng, np.int32, elements, 4)
    written = dmljax.scatter(input, indices, updates, axis=axis - len(shape))
    assert_same_bits(written, oracles.scatter(input, indices, updates, axis=axis))
    tuples = random_indices(rng, np.int8, (*rows, axis + 1), 4)
    blocks = random_array(rng, np.float32, rows + shape[axis + 1 :])
    assert_same_bits(dmljax.scatter_nd(input, tuples, blocks), oracles.scatter_nd(input, tuples, blocks))


SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lambda x, u: dmljax.scatter(x, np.array([-1, 1, 9, 3, 1, -5]), u, axis=0),
    "scatter_nd": lambda x, u: dmljax.scatter_nd(x, np.array([[-1], [1], [9], [3], [1], [-5]]), u),
}


@FULL
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_a_scatter_reaches_only_elements_in_the_result(name: str, dtype: Any, lowering: str) -> None:
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


@pytest.mark.gate(but=1)
def test_the_last_of_few_updates_wins_in_a_large_array(call: Any, lowering: str) -> None:
    input, indices = np.zeros((2, 12), np.float32), np.array([[3, 3, -1], [12, -9, 3]], np.int32)
    updates = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    assert_same_bits(
        call(dmljax.scatter, input, indices, updates, axis=1), oracles.scatter(input, indices, updates, axis=1)
    )


# Distinct indices, of which some count from the end or are out of range; all of the latter may be equal
UNIQUE = np.array([[4, -1, 9], [9, 0, 9]], np.int32)
UNIQUE_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lambda x, u: dmljax.scatter(x, UNIQUE, u, axis=1, unique_indices=True),
    "scatter_nd": lambda x, u: dmljax.scatter_nd(x.T, UNIQUE[0][:, None], u.T, unique_indices=True).T,
}


@pytest.mark.parametrize(("name", "rows"), [("scatter", UNIQUE), ("scatter_nd", UNIQUE[[0, 0]])])
@pytest.mark.gate(but=1)
def test_unique_indices_write_the_same_and_have_the_same_gradient(
    call: Any, lowering: str, name: str, rows: Any
) -> None:
    scatter = UNIQUE_SCATTERS[name]
    input, updates = np.split(np.arange(16, dtype=np.float32), [10])
    input, updates = input.reshape(2, 5), updates.reshape(2, 3)
    written = oracles.scatter(input, rows, updates, axis=1)
    assert_same_bits(call(scatter, input, updates), written)
    assert_same_bits(jax.vmap(scatter, (None, 0))(input, updates[None])[0], written)
    of_input, of_updates = jax.grad(lambda x, u: (scatter(x, u) * input).sum(), (0, 1))(input, updates)
    assert_same_bits(of_input, np.where(written < 10, input, 0))
    assert_same_bits(of_updates, np.where(rows < 5, np.take_along_axis(input, rows % 5, 1), 0))


@pytest.mark.parametrize("name", UNIQUE_SCATTERS)
def test_unique_indices_take_one_scatter(name: str) -> None:
    arrays = np.zeros((2, 5), np.float32), np.zeros((2, 3), np.float32)
    for platform in ("cpu", "cuda", "tpu"):
        text = jax.export.export(jax.jit(UNIQUE_SCATTERS[name]), platforms=[platform])(*arrays).mlir_module()
        assert text.count('"stablehlo.scatter"') == text.count("unique_indices = true") == 1
        assert "stablehlo.gather" not in text


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
def test_64_bit_lengths_are_not_truncated(call: Any) -> None:
    lengths = np.array([[2**32 + 1], [-(2**32) + 2], [2**63 - 1]], np.int64)
    reversed_rows = call(dmljax.reverse_subsequences, np.tile(np.arange(3), (3, 1)), lengths, axis=-1)
    assert reversed_rows.tolist() == [[2, 1, 0], [0, 1, 2], [2, 1, 0]]


@FULL
def test_a_reversal_inverts_itself_and_so_does_its_gradient() -> None:
    input, lengths = jnp.arange(12.0).reshape(3, 4), np.array([[2], [0], [9]], np.int32)
    reverse = lambda x: dmljax.reverse_subsequences(x, lengths, axis=1)  # noqa: E731
    assert_same_bits(reverse(reverse(input)), input)
    (gradient,) = jax.vjp(reverse, input)[1](input)
    assert_same_bits(gradient, reverse(input))
    check_linear_gradients(reverse, (input,))


def test_a_reversal_of_an_empty_array_is_empty(call: Any) -> None:
    none = np.zeros((0, 1), np.int32)
    assert call(dmljax.reverse_subsequences, np.zeros((0, 3)), none, axis=1).shape == (0, 3)
    assert call(dmljax.reverse_subsequences, np.zeros((2, 0)), np.ones((2, 1), np.int32), axis=1).shape == (2, 0)


# Descriptors


def test_gather_desc_crops_leading_ones_only_from_the_input() -> None:
    input, indices = np.arange(12, dtype=np.float32).reshape(1, 3, 4), np.array([[[2, -1]]], np.int32)
    desc = replace(BLOCKS, indices=tensor("INT32", 1, 1, 2), output=f32(3, 1, 2))
    assert_same_bits(directml.lower(desc)(input, indices), input[0][:, [[2, 3]]])
    # {1,3,1,1,2} would also fit three dimensions without its leading 1 and one of the indices.
    check_refused(desc, {"index_dimensions": 3}, "IndexDimensions must be at most 2")


def test_gather_desc_prepends_ones_for_scalar_indices() -> None:
    input = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    desc = replace(BLOCKS, indices=tensor("INT32", 1, 1, 1), output=f32(1, 1, 3), index_dimensions=0)
    assert_same_bits(directml.lower(desc)(input, np.array([[[-1]]], np.int32)), input[None, :, :, -1])


PAGES: dict[str, Any] = {
    "input": f32(3, 4, 5, 6, 7),
    "indices": tensor("UINT32", 1, 1, 1, 2, 3),
    "input_dimension_count": 5,
    "indices_dimension_count": 3,
}


def test_scatter_nd_desc_has_the_sizes_of_the_pages_worked_example() -> None:
    directml.validate(directml.ScatterNdDesc(updates=f32(1, 1, 2, 6, 7), output=f32(3, 4, 5, 6, 7), **PAGES))


def test_gather_nd_desc_pads_the_output_with_leading_ones() -> None:
    # The page's own sizes: {3,4,5,6,7} gathered by {1,2} tuples of 3 coordinates gives {1, 1,2,6,7}.
    desc = directml.GatherNdDesc(output=f32(1, 1, 2, 6, 7), **PAGES)
    input = np.arange(3 * 4 * 5 * 6 * 7, dtype=np.float32).reshape(3, 4, 5, 6, 7)
    result = directml.lower(desc)(input, np.array([[[[[2, 3, 4], [0, 1, 2]]]]], np.uint32))
    assert_same_bits(result, np.stack([input[2, 3, 4], input[0, 1, 2]])[None, None])
