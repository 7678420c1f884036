"""SLICE, SPLIT, JOIN, TILE, SPACE_TO_DEPTH and DEPTH_TO_SPACE; the pages' examples run in test_every_operator.py."""

from dataclasses import replace
from typing import Any

import cases_movement as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_movement import JOIN, SLICE1, SPLIT, TILE, TO_DEPTH, TO_SPACE
from helpers import (
    FULL,
    REALS,
    SAMPLED,
    X64,
    assert_same_bits,
    random_array,
    refuses,
)

import dmljax
from dmljax import DmlError, directml
from dmljax.directml import DepthSpaceOrder, InvalidDesc

ROW = np.arange(10, dtype=np.int32)


@FULL
@pytest.mark.parametrize(
    ("shape", "starts", "sizes", "strides", "output_sizes"),
    [
        ((6,), (1,), (5,), (2,), (3,)),
        ((6,), (0,), (5,), (-3,), (1,)),
        ((4, 5), (1, 0), (3, 5), (-2, 2), (2, 3)),
        ((1, 6, 3), (0, 2, 1), (1, 4, 2), (7, -1, 1), (1, 4, 2)),
        ((5, 2, 4), (4, 0, 0), (1, 2, 4), (-7, 1, -3), (1, 1, 2)),
    ],
)
def test_every_window_equals_the_pseudo_code(
    shape: Any, starts: Any, sizes: Any, strides: Any, output_sizes: Any
) -> None:
    input = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    window = {"starts": starts, "sizes": sizes, "strides": strides}
    counts = {"output_sizes": output_sizes}
    assert_same_bits(dmljax.slice1(input, **window, **counts), oracles.windowed(input, **window, **counts))
    gradient = np.arange(1, 1 + np.prod(output_sizes), dtype=np.int16).reshape(output_sizes)
    put_back = dmljax.slice_grad(gradient, **window, output_sizes=shape)
    assert_same_bits(put_back, oracles.put_back(gradient, **window, output_sizes=shape))
    same = {"starts": starts, "sizes": output_sizes, "strides": tuple(map(abs, strides))}
    assert_same_bits(dmljax.slice(input, **same), oracles.sliced(input, **same))


@SAMPLED
@pytest.mark.parametrize("dtype", REALS)
def test_every_bit_is_copied(dtype: Any, call: Any) -> None:
    input = random_array(np.random.default_rng(0), dtype, (4, 4, 6))
    backwards = call(dmljax.slice1, input, starts=(0, 0, 1), sizes=(4, 4, 5), strides=(1, -1, -2))
    assert_same_bits(backwards, input[:, ::-1, 5:0:-2])
    assert_same_bits(call(dmljax.slice, input, starts=(1, 0, 3), sizes=(3, 4, 3)), input[1:, :, 3:])
    assert_same_bits(call(dmljax.tile, input, repeats=(1, 2, 3)), np.tile(input, (1, 2, 3)))
    deep = call(dmljax.space_to_depth, input, block_size=2)
    assert deep.shape == (16, 2, 3)
    assert_same_bits(call(dmljax.depth_to_space, np.asarray(deep), block_size=2), input)


def test_a_negative_stride_begins_at_the_end_of_the_window(call: Any) -> None:
    assert call(dmljax.slice1, ROW, starts=(2,), sizes=(7,), strides=(-3,)).tolist() == [8, 5, 2]
    assert call(dmljax.slice1, ROW, starts=(2,), sizes=(7,), strides=(-4,)).tolist() == [8, 4]
    assert call(dmljax.slice1, ROW, starts=(0,), sizes=(10,), strides=(-1,)).tolist() == ROW[::-1].tolist()


@SAMPLED
@pytest.mark.parametrize("stride", [2**31 - 1, -(2**31), 10, -10])
def test_a_stride_beyond_the_window_copies_one_element(stride: int) -> None:
    expected = [2] if stride > 0 else [8]
    assert dmljax.slice1(ROW, starts=(2,), sizes=(7,), strides=(stride,)).tolist() == expected


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_join_inverts_split(axis: int, call: Any) -> None:
    input = np.arange(7 * 7, dtype=np.uint16).reshape(7, 7)
    parts = call(dmljax.split, input, sizes=(1, 4, 2), axis=axis)
    assert isinstance(parts, tuple)
    for part, expected in zip(parts, oracles.split(input, sizes=(1, 4, 2), axis=axis % 2), strict=True):
        assert_same_bits(part, expected)
    assert_same_bits(dmljax.join(parts, axis=axis), input)
    assert_same_bits(jax.jit(lambda parts: dmljax.join(parts, axis=axis))(list(parts)), input)


@SAMPLED
@pytest.mark.parametrize("dtype", REALS)
def test_every_bit_is_joined(dtype: Any) -> None:
    first, second = random_array(np.random.default_rng(0), dtype, (2, 5, 3))
    for join in (dmljax.join, jax.jit(dmljax.join, static_argnames="axis")):
        assert_same_bits(join([first, second], axis=1), np.concatenate([first, second], axis=1))


EVERY = np.arange(2**16, dtype=np.uint16)  # every bfloat16, including subnormals and signaling NaNs


@SAMPLED
@pytest.mark.parametrize(
    "move",
    [
        lambda x: dmljax.slice_grad(x, starts=(1, 0), sizes=(256, 511), strides=(1, 2), output_sizes=(258, 512)),
        lambda x: dmljax.slice_grad(x, starts=(0, 1), sizes=(256, 766), strides=(-1, -3), output_sizes=(256, 768)),
        lambda x: dmljax.tile(x, repeats=(2, 2)),
        lambda x: dmljax.slice1(dmljax.join([x, x[:3]], axis=0), starts=(0, 0), sizes=(259, 256), strides=(-2, 3)),
        lambda x: dmljax.split(dmljax.join([x, x[:3]], axis=0), sizes=(100, 159), axis=0)[1],
        lambda x: dmljax.space_to_depth(dmljax.join([x, x], axis=1)[None], block_size=4),
    ],
)
def test_every_bfloat16_is_moved_eagerly_and_inside_jit(move: Any) -> None:
    bits = EVERY.reshape(256, 256)
    expected = np.asarray(move(bits))
    for run in (move, jax.jit(move)):
        np.testing.assert_array_equal(np.asarray(run(bits.view(jnp.bfloat16))).view(np.uint16), expected)


def test_a_join_takes_weakly_typed_arrays_as_other_operators_do() -> None:
    weak = jnp.broadcast_to(2.0, (2,))
    joined = dmljax.join([weak, jnp.ones(1, jnp.bfloat16)], axis=0)
    assert (joined.dtype, joined.tolist()) == (jnp.bfloat16, [2, 2, 1])


def test_a_join_requires_a_sequence_even_after_other_calls() -> None:
    array = jnp.ones((2, 3))
    dmljax.slice(array, starts=(0, 0), sizes=(1, 1))
    join: Any = dmljax.join
    for call_ in (lambda x: join(x, axis=0), jax.jit(lambda x: join(x, axis=0))):
        with pytest.raises(DmlError, match=r"inputs must be a sequence of arrays; got one array of shape \(2, 3\)"):
            call_(array)


@pytest.mark.parametrize(
    "move",
    [
        lambda x: dmljax.join([x[:999], x[999:]], axis=0),
        lambda x: dmljax.slice_grad(x, starts=(1,), sizes=x.shape, output_sizes=(x.size + 2,))[1:-1],
        lambda x: dmljax.slice_grad(x, starts=(1,), sizes=(2 * x.size,), strides=(2,), output_sizes=(2 * x.size + 2,))[
            1:-1:2
        ],
    ],
    ids=["joined", "put_back", "put_back_apart"],
)
def test_every_bfloat16_is_copied(move: Any) -> None:
    every = EVERY.view(jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(move(every)).view(np.uint16), every.view(np.uint16))


def test_one_array_is_joined_to_a_copy_of_itself() -> None:
    assert dmljax.join((ROW,), axis=0).tolist() == ROW.tolist()
    assert dmljax.split(ROW, sizes=(10,), axis=0)[0].tolist() == ROW.tolist()


def test_a_lowered_split_returns_a_tuple_and_a_lowered_join_takes_arrays_by_position_or_a_sequence_by_name() -> None:
    parts = directml.lower(SPLIT)(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert [part.tolist() for part in parts] == [[[0], [3]], [[1, 2], [4, 5]]]
    join = directml.lower(JOIN)
    assert_same_bits(join(*parts), join(inputs=list(parts)))
    assert join(*parts).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_slice_grad_is_the_gradient_of_slice1() -> None:
    input, window = np.ones((4, 6), np.float32), {"starts": (1, 1), "sizes": (3, 5), "strides": (-2, 2)}
    sliced, pull = jax.vjp(lambda x: dmljax.slice1(x, **window), input)
    weights = np.arange(1, 7, dtype=np.float32).reshape(sliced.shape)
    assert_same_bits(dmljax.slice_grad(weights, **window, output_sizes=(4, 6)), pull(weights)[0])


@SAMPLED
@pytest.mark.parametrize("rows", [2, 130])
@pytest.mark.parametrize("dtype", REALS)
def test_every_bit_is_put_back(dtype: Any, rows: int, call: Any) -> None:
    gradient = random_array(np.random.default_rng(0), dtype, (rows, 3))
    all_rows = rows if rows > 128 else rows + 1
    window = {"starts": (0, 1), "sizes": (rows, 5), "strides": (1, -2), "output_sizes": (all_rows, 7)}
    assert_same_bits(call(dmljax.slice_grad, gradient, **window), oracles.put_back(gradient, **window))


@pytest.mark.parametrize("stride", [2**31 - 1, -(2**31)])
def test_a_single_element_is_put_back_whatever_the_stride(stride: int) -> None:
    expected = [0, 5, 0, 0, 0] if stride > 0 else [0, 0, 0, 5, 0]
    window = {"starts": (1,), "sizes": (3,), "strides": (stride,), "output_sizes": (5,)}
    assert dmljax.slice_grad(np.array([5], np.int32), **window).tolist() == expected


def test_output_sizes_may_be_smaller_than_the_window() -> None:
    fewer = dmljax.slice1(ROW, starts=(0,), sizes=(10,), strides=(-2,), output_sizes=(3,))
    assert fewer.tolist() == [9, 7, 5]


@SAMPLED
@pytest.mark.parametrize("order", DepthSpaceOrder)
@pytest.mark.parametrize("block", [1, 2, 3])
def test_depth_to_space_inverts_space_to_depth(order: DepthSpaceOrder, block: int) -> None:
    image = np.arange(2 * 2 * 6 * 12, dtype=np.int32).reshape(2, 2, 6, 12)
    deep = dmljax.space_to_depth1(image, block_size=block, order=order)
    assert_same_bits(deep, oracles.to_depth(image, block_size=block, order=order))
    back = dmljax.depth_to_space1(deep, block_size=block, order=order)
    assert_same_bits(back, image)
    assert_same_bits(back, oracles.to_space(np.asarray(deep), block_size=block, order=order))


def test_the_older_versions_order_depth_first() -> None:
    image = np.arange(2 * 4 * 4).reshape(2, 4, 4).astype(np.int32)
    deep = dmljax.space_to_depth1(image, block_size=2, order=DepthSpaceOrder.DEPTH_COLUMN_ROW)
    assert_same_bits(dmljax.space_to_depth(image, block_size=2), deep)
    assert_same_bits(dmljax.depth_to_space(deep, block_size=2), image)


@pytest.mark.skipif(not X64, reason="needs 64-bit types")
def test_the_tile_function_takes_float64_though_its_descriptor_does_not() -> None:
    assert_same_bits(dmljax.tile(np.array([1e300]), repeats=(2,)), np.array([1e300, 1e300]))


# Descriptors


@pytest.mark.parametrize(
    "desc", [replace(TO_DEPTH, block_size=3), replace(TO_SPACE, block_size=3), replace(TILE, repeats=(0, 1))]
)
def test_refusals_suggest_only_sizes_that_outputs_can_have(desc: Any) -> None:
    assert not [rule for rule in directml.find_broken_rules(desc) if rule.startswith("OutputTensor")]


def test_a_desc_stores_its_dimension_count_in_json() -> None:
    json = directml.to_json(SLICE1)
    assert json["Desc"]["InputWindowStrides"] == [-2, 2]
    json["Desc"]["DimensionCount"] = 3
    with refuses("DimensionCount must be 2", InvalidDesc):
        directml.from_json(json)
