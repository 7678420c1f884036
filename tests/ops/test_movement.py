"""SLICE, SPLIT, JOIN, TILE, SPACE_TO_DEPTH and DEPTH_TO_SPACE; the pages' examples run in test_every_operator.py."""

from typing import Any

import cases_movement as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FULL, REALS, X64, assert_same_bits, assert_same_trees, few_types, random_array
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import DmlError, directml
from dmljax.directml import DataType, DepthSpaceOrder, InvalidDesc, TensorDesc

FLOAT32 = DataType.FLOAT32
ROW = np.arange(10, dtype=np.int32)


@st.composite
def windows(draw: Any) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
    """A shape, and a window of it with strides in either direction."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    starts = tuple(draw(st.integers(0, size - 1)) for size in shape)
    sizes = tuple(draw(st.integers(1, size - start)) for size, start in zip(shape, starts, strict=True))
    strides = tuple(draw(st.integers(-7, 7).filter(bool)) for _ in shape)
    most = [1 + (size - 1) // abs(stride) for size, stride in zip(sizes, strides, strict=True)]
    output_sizes = tuple(draw(st.integers(1, count)) for count in most)
    return shape, {"starts": starts, "sizes": sizes, "strides": strides, "output_sizes": output_sizes}


@FULL
@settings(max_examples=60, deadline=None)
@given(windows())
def test_any_window_is_the_pseudo_codes(window: Any) -> None:
    shape, arguments = window
    input = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    assert_same_bits(dmljax.slice1(input, **arguments), oracles.windowed(input, **arguments))
    counts = arguments.pop("output_sizes")
    gradient = np.arange(1, 1 + np.prod(counts), dtype=np.int16).reshape(counts)
    put_back = dmljax.slice_grad(gradient, **arguments, output_sizes=shape)
    assert_same_bits(put_back, oracles.put_back(gradient, **arguments, output_sizes=shape))
    steps = tuple(map(abs, arguments["strides"]))
    same = {"starts": arguments["starts"], "sizes": counts, "strides": steps}
    assert_same_bits(dmljax.slice(input, **same), oracles.sliced(input, **same))


@pytest.mark.parametrize("dtype", few_types(REALS))
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


@pytest.mark.parametrize("dtype", few_types(REALS))
def test_every_bit_is_joined(dtype: Any) -> None:
    first, second = random_array(np.random.default_rng(0), dtype, (2, 5, 3))
    for join in (dmljax.join, jax.jit(dmljax.join, static_argnames="axis")):
        assert_same_bits(join([first, second], axis=1), np.concatenate([first, second], axis=1))


EVERY = np.arange(2**16, dtype=np.uint16)  # every bfloat16, subnormals and signalling NaNs among them


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
def test_every_bfloat16_is_moved_inside_one_computation_and_outside(move: Any) -> None:
    bits = EVERY.reshape(256, 256)
    expected = np.asarray(move(bits))
    for run in (move, jax.jit(move)):
        np.testing.assert_array_equal(np.asarray(run(bits.view(jnp.bfloat16))).view(np.uint16), expected)


def test_sizes_may_be_symbolic() -> None:
    (b,) = jax.export.symbolic_shape("b")
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    for function in (
        lambda x: dmljax.slice(x, starts=(0, 1), sizes=(x.shape[0], 3)),
        lambda x: dmljax.slice1(x, starts=(0, 0), sizes=x.shape, strides=(-1, 2)),
        lambda x: dmljax.slice_grad(x, starts=(0, 1), sizes=x.shape, output_sizes=(x.shape[0], 8)),
        lambda x: dmljax.tile(dmljax.join([x, x], axis=1), repeats=(1, 2)),
        lambda x: dmljax.split(x, sizes=(2, 4), axis=1),
    ):
        exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((b, 6), np.float32))
        assert_same_trees(exported.call(x), function(x))


def test_a_join_takes_weakly_typed_arrays_as_other_operators_do() -> None:
    weak = jnp.broadcast_to(2.0, (2,))
    joined = dmljax.join([weak, jnp.ones(1, jnp.bfloat16)], axis=0)
    assert (joined.dtype, joined.tolist()) == (jnp.bfloat16, [2, 2, 1])


def test_a_join_asks_for_a_sequence_whatever_was_called_before() -> None:
    array = jnp.ones((2, 3))
    dmljax.slice(array, starts=(0, 0), sizes=(1, 1))
    join: Any = dmljax.join
    for call_ in (lambda x: join(x, axis=0), jax.jit(lambda x: join(x, axis=0))):
        with pytest.raises(DmlError, match=r"inputs must be a sequence of arrays; got one array of shape \(2, 3\)"):
            call_(array)


def joined(x: Any) -> Any:
    return np.asarray(dmljax.join([x[:999], x[999:]], axis=0))


def put_back(x: Any) -> Any:
    return np.asarray(dmljax.slice_grad(x, starts=(1,), sizes=x.shape, output_sizes=(x.size + 2,)))[1:-1]


def put_back_apart(x: Any) -> Any:
    result = dmljax.slice_grad(x, starts=(1,), sizes=(2 * x.size,), strides=(2,), output_sizes=(2 * x.size + 2,))
    return np.asarray(result)[1:-1:2]


@pytest.mark.parametrize("move", [joined, put_back, put_back_apart])
def test_every_bfloat16_is_copied(move: Any) -> None:
    every = EVERY.view(jnp.bfloat16)
    np.testing.assert_array_equal(move(every).view(np.uint16), every.view(np.uint16))


def test_one_array_is_joined_to_a_copy_of_itself() -> None:
    assert dmljax.join((ROW,), axis=0).tolist() == ROW.tolist()
    assert dmljax.split(ROW, sizes=(10,), axis=0)[0].tolist() == ROW.tolist()


def test_a_lowered_split_returns_a_tuple_and_a_lowered_join_takes_arrays_by_position_or_a_sequence_by_name() -> None:
    parts = directml.lower(splitting())(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert [part.tolist() for part in parts] == [[[0], [3]], [[1, 2], [4, 5]]]
    join = directml.lower(joining())
    assert_same_bits(join(*parts), join(inputs=list(parts)))
    assert join(*parts).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_slice_grad_is_the_gradient_of_slice1() -> None:
    input, window = np.ones((4, 6), np.float32), {"starts": (1, 1), "sizes": (3, 5), "strides": (-2, 2)}
    sliced, pull = jax.vjp(lambda x: dmljax.slice1(x, **window), input)
    weights = np.arange(1, 7, dtype=np.float32).reshape(sliced.shape)
    assert_same_bits(dmljax.slice_grad(weights, **window, output_sizes=(4, 6)), pull(weights)[0])


@pytest.mark.parametrize("dtype", few_types(REALS))
def test_every_bit_is_put_back(dtype: Any, call: Any) -> None:
    gradient = random_array(np.random.default_rng(0), dtype, (2, 3))
    window = {"starts": (0, 1), "sizes": (2, 5), "strides": (1, -2), "output_sizes": (3, 7)}
    assert_same_bits(call(dmljax.slice_grad, gradient, **window), oracles.put_back(gradient, **window))


@pytest.mark.parametrize("stride", [2**31 - 1, -(2**31)])
def test_a_single_element_is_put_back_whatever_the_stride(stride: int) -> None:
    expected = [0, 5, 0, 0, 0] if stride > 0 else [0, 0, 0, 5, 0]
    window = {"starts": (1,), "sizes": (3,), "strides": (stride,), "output_sizes": (5,)}
    assert dmljax.slice_grad(np.array([5], np.int32), **window).tolist() == expected


def test_output_sizes_may_ask_for_fewer_elements_than_the_window_has() -> None:
    fewer = dmljax.slice1(ROW, starts=(0,), sizes=(10,), strides=(-2,), output_sizes=(3,))
    assert fewer.tolist() == [9, 7, 5]


@pytest.mark.parametrize("order", DepthSpaceOrder)
@pytest.mark.parametrize("block", [1, 2, 3])
def test_depth_to_space_inverts_space_to_depth(order: DepthSpaceOrder, block: int) -> None:
    image = np.arange(2 * 2 * 6 * 12, dtype=np.int32).reshape(2, 2, 6, 12)
    deep = dmljax.space_to_depth1(image, block_size=block, order=order)
    assert_same_bits(deep, oracles.to_depth(image, block_size=block, order=order))
    back = dmljax.depth_to_space1(deep, block_size=block, order=order)
    assert_same_bits(back, image)
    assert_same_bits(back, oracles.to_space(np.asarray(deep), block_size=block, order=order))


def test_the_older_versions_have_the_order_of_depth_first() -> None:
    image = np.arange(2 * 4 * 4).reshape(2, 4, 4).astype(np.int32)
    deep = dmljax.space_to_depth1(image, block_size=2, order=DepthSpaceOrder.DEPTH_COLUMN_ROW)
    assert_same_bits(dmljax.space_to_depth(image, block_size=2), deep)
    assert_same_bits(dmljax.depth_to_space(deep, block_size=2), image)


@pytest.mark.skipif(not X64, reason="needs 64-bit types")
def test_a_tile_of_float64_is_a_functions_though_not_a_descriptors() -> None:
    assert_same_bits(dmljax.tile(np.array([1e300]), repeats=(2,)), np.array([1e300, 1e300]))


# What is refused

IMAGE = np.zeros((4, 4, 6), np.float32)


@pytest.mark.parametrize(
    ("call_", "message"),
    [
        (
            lambda: dmljax.slice(ROW, starts=(4,), sizes=(3,), strides=(3,)),
            "must keep .* below 10, .*; got 10",
        ),
        (lambda: dmljax.slice(ROW, starts=(-1,), sizes=(3,)), r"starts\[0\] must be at least 0; got -1"),
        (lambda: dmljax.slice(ROW, starts=(0,), sizes=(0,)), r"sizes\[0\] must be at least 1; got 0"),
        (lambda: dmljax.slice(ROW, starts=(0,), sizes=(2,), strides=(0,)), r"strides\[0\] must be at least 1"),
        (
            lambda: dmljax.slice(ROW, starts=(0, 0), sizes=(2,)),
            r"starts must have one number for each of the 1 dimensions of input.*; got \(0, 0\)",
        ),
        (
            lambda: dmljax.slice1(ROW, starts=(4,), sizes=(7,)),
            "must keep .* at most 10, .*; got 11",
        ),
        (lambda: dmljax.slice1(ROW, starts=(0,), sizes=(7,), strides=(0,)), r"strides\[0\] must not be 0; got 0"),
        (lambda: dmljax.slice1(ROW, starts=(0,), sizes=(7,), strides=(2**31,)), r"strides\[0\] must be in \[-2147"),
        (
            lambda: dmljax.slice1(ROW, starts=(0,), sizes=(7,), strides=(-3,), output_sizes=(4,)),
            r"output_sizes\[0\] must be at most 3, which the stride reaches in the window; got 4",
        ),
        (
            lambda: dmljax.slice_grad(ROW, starts=(2,), sizes=(10,), output_sizes=(11,)),
            r"sizes\[0\] must keep .* at most 11, the size of output_sizes along axis 0; got 12",
        ),
        (
            lambda: dmljax.slice_grad(ROW, starts=(0,), sizes=(18,), strides=(2,), output_sizes=(18,)),
            r"input_gradient\.shape\[0\] must be at most 9, which the stride reaches in the window; got 10",
        ),
        (
            lambda: dmljax.slice_grad(ROW, starts=(0,), sizes=(10,), output_sizes=(10, 1)),
            r"output_sizes must have one number for each of the 1 dimensions of input.*; got \(10, 1\)",
        ),
        (lambda: dmljax.split(ROW, sizes=(3, 6), axis=0), r"sizes must add up to 10, .* along axis 0; got \(3, 6\)"),
        (lambda: dmljax.split(ROW, sizes=(10, 0), axis=0), r"sizes\[1\] must be at least 1; got 0"),
        (lambda: dmljax.split(ROW, sizes=(10,), axis=1), r"axis must be in \[-1, 1\); got 1"),
        (lambda: dmljax.split(np.float32(1), sizes=(1,), axis=0), "input must have at least 1 dimension; got 0"),
        (lambda: dmljax.join([], axis=0), "inputs must have at least 1 array; got 0"),
        (lambda: dmljax.join(ROW, axis=0), r"inputs must be a sequence of arrays; got one array of shape \(10,\)"),  # type: ignore[arg-type]
        (lambda: dmljax.join(jnp.ones(3), axis=0), r"a sequence of arrays; got one array of shape \(3,\)"),  # type: ignore[arg-type]
        (lambda: dmljax.split(np.zeros((2, 0)), sizes=(), axis=1), r"sizes must have at least 1 element; got \(\)"),
        (
            lambda: dmljax.tile(ROW, repeats=(2**32 - 1,)),
            r"result\.shape\[0\] must be in \[0, 4294967295\]; got 42949672950",
        ),
        (lambda: dmljax.join([ROW, [1, 2]], axis=0), r"inputs\[1\] must be a JAX or NumPy array"),  # type: ignore[list-item]
        (
            lambda: dmljax.join([ROW, IMAGE[0, 0]], axis=0),
            r"inputs\[1\] must be of int32, as inputs\[0\] is; got float32",
        ),
        (lambda: dmljax.join([IMAGE, IMAGE[:, :3]], axis=2), r"inputs\[1\] must have the shape of inputs\[0\] except"),
        (
            lambda: dmljax.join([IMAGE, IMAGE[0]], axis=0),
            r"inputs\[1\] must have the shape .*; got \(4, 6\)",
        ),
        (
            lambda: dmljax.tile(ROW, repeats=(2, 2)),
            r"repeats must have one number for each of the 1 dimensions of input.*; got \(2, 2\)",
        ),
        (lambda: dmljax.tile(ROW, repeats=(0,)), r"repeats\[0\] must be at least 1; got 0"),
        (lambda: dmljax.space_to_depth(IMAGE, block_size=0), r"block_size must be at least 1; got 0"),
        (lambda: dmljax.space_to_depth(IMAGE, block_size=4), r"input\.shape\[2\] must be a multiple of 4; got 6"),
        (lambda: dmljax.space_to_depth(IMAGE, block_size=3), r"input\.shape\[1\] must be a multiple of 3; got 4"),
        (lambda: dmljax.depth_to_space(IMAGE, block_size=3), r"input\.shape\[0\] must be a multiple of 9; got 4"),
        (lambda: dmljax.depth_to_space(IMAGE[0], block_size=2), "input must have at least 3 dimensions; got 2"),
        (
            lambda: dmljax.depth_to_space1(IMAGE, block_size=2, order=0),  # type: ignore[arg-type]
            "order must be a DepthSpaceOrder; got 0",
        ),
    ],
)
def test_a_call_refuses(call_: Any, message: str) -> None:
    with pytest.raises(DmlError, match=message):
        call_()


def slicing(**changes: Any) -> directml.SliceDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (4, 6)),
        "output": TensorDesc(FLOAT32, (2, 3)),
        "offsets": (1, 0),
        "sizes": (2, 3),
        "strides": (2, 2),
    }
    return directml.SliceDesc(**members | changes)


def windowing(**changes: Any) -> directml.Slice1Desc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (4, 6)),
        "output": TensorDesc(FLOAT32, (2, 3)),
        "input_window_offsets": (1, 0),
        "input_window_sizes": (3, 6),
        "input_window_strides": (-2, 2),
    }
    return directml.Slice1Desc(**members | changes)


def gradient(**changes: Any) -> directml.SliceGradDesc:
    members: dict[str, Any] = {
        "input_gradient": TensorDesc(FLOAT32, (2, 3)),
        "output_gradient": TensorDesc(FLOAT32, (4, 6)),
        "input_window_offsets": (1, 0),
        "input_window_sizes": (3, 6),
        "input_window_strides": (-2, 2),
    }
    return directml.SliceGradDesc(**members | changes)


def splitting(**changes: Any) -> directml.SplitDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (2, 3)),
        "outputs": (TensorDesc(FLOAT32, (2, 1)), TensorDesc(FLOAT32, (2, 2))),
        "axis": 1,
    }
    return directml.SplitDesc(**members | changes)


def joining(**changes: Any) -> directml.JoinDesc:
    members: dict[str, Any] = {
        "inputs": (TensorDesc(FLOAT32, (2, 1)), TensorDesc(FLOAT32, (2, 2))),
        "output": TensorDesc(FLOAT32, (2, 3)),
        "axis": 1,
    }
    return directml.JoinDesc(**members | changes)


def tiling(**changes: Any) -> directml.TileDesc:
    members: dict[str, Any] = {
        "input": TensorDesc(FLOAT32, (2, 3)),
        "output": TensorDesc(FLOAT32, (4, 3)),
        "repeats": (2, 1),
    }
    return directml.TileDesc(**members | changes)


def blocking(kind: Any, input: tuple[int, ...], output: tuple[int, ...], block_size: int = 2) -> directml.Operator:
    made: directml.Operator = kind(
        input=TensorDesc(FLOAT32, input), output=TensorDesc(FLOAT32, output), block_size=block_size
    )
    return made


INT8_OUTPUT = TensorDesc(DataType.INT8, (2, 3))


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        (slicing(output=INT8_OUTPUT), "InputTensor and OutputTensor must have the same DataType"),
        (windowing(output=INT8_OUTPUT), "InputTensor and OutputTensor must have the same DataType"),
        (tiling(output=TensorDesc(DataType.INT8, (4, 3))), "InputTensor and OutputTensor must have the same DataType"),
        (tiling(output=TensorDesc(FLOAT32, (1, 4, 3))), "must have the same DimensionCount; got 2 and 3"),
        (slicing(output=TensorDesc(FLOAT32, (1, 2, 3))), "must have the same DimensionCount; got 2 and 3"),
        (windowing(output=TensorDesc(FLOAT32, (1, 2, 3))), "must have the same DimensionCount; got 2 and 3"),
        (
            slicing(offsets=(1,), sizes=(2,), strides=(2,)),
            r"Offsets must have one number for each of the 2 dimensions of InputTensor; got \{1\}",
        ),
        (slicing(sizes=(2, 2)), r"OutputTensor\.Sizes must be \{2,2\}; got \{2,3\}"),
        (slicing(strides=(0, 2)), r"Strides\[0\] must be at least 1; got 0"),
        (slicing(offsets=(2, 0)), r"Sizes\[0\] must keep Offsets\[0\] .* below 4, the size of InputTensor .*; got 4"),
        (
            windowing(input_window_offsets=(2, 0)),
            r"InputWindowSizes\[0\] must keep .* at most 4, the size of InputTensor .*; got 5",
        ),
        (windowing(input_window_sizes=(3, 0)), r"InputWindowSizes\[1\] must be at least 1; got 0"),
        (windowing(input_window_strides=(-2, 0)), r"InputWindowStrides\[1\] must not be 0; got 0"),
        (windowing(input_window_strides=(-3, 2)), r"OutputTensor\.Sizes\[0\] must be at most 1, .*; got 2"),
        (
            gradient(output_gradient=TensorDesc(FLOAT32, (3, 6))),
            r"InputWindowSizes\[0\] must keep .* at most 3, the size of OutputGradientTensor .*; got 4",
        ),
        (
            gradient(input_gradient=TensorDesc(FLOAT32, (2, 4))),
            r"InputGradientTensor\.Sizes\[1\] must be at most 3, which the stride reaches in the window; got 4",
        ),
        (
            splitting(outputs=(), axis=2),
            "Axis must be less than 2",
        ),
        (
            joining(output=TensorDesc(FLOAT32, (2, 4))),
            r"OutputTensor\.Sizes must be \{2,3\}; got \{2,4\}",
        ),
        (splitting(outputs=(INT8_OUTPUT,)), r"OutputTensors\[0\] and InputTensor must have the same DataType"),
        (gradient(input_gradient=INT8_OUTPUT), "OutputGradientTensor and InputGradientTensor must have the same DataT"),
        (gradient(input_window_strides=(-2, 0)), r"InputWindowStrides\[1\] must not be 0; got 0"),
        (splitting(outputs=()), r"OutputTensors must have at least 1 element; got \{\}"),
        (joining(inputs=()), "InputTensors must have at least 1 array; got 0"),
        (splitting(axis=2), "Axis must be less than 2; got 2"),
        (joining(axis=2), "Axis must be less than 2; got 2"),
        (joining(output=INT8_OUTPUT), r"InputTensors\[0\], .* and OutputTensor must have the same DataType"),
        (
            joining(output=TensorDesc(FLOAT32, (1, 2, 3))),
            r"InputTensors\[0\], .* and OutputTensor must have the same DimensionCount; got 2, 2 and 3",
        ),
        (
            joining(inputs=(TensorDesc(FLOAT32, (2, 1)), TensorDesc(FLOAT32, (1, 2)))),
            r"InputTensors\[1\]\.Sizes must be \{2,2\}; got \{1,2\}",
        ),
        (
            splitting(outputs=(TensorDesc(FLOAT32, (2, 1)),)),
            r"OutputTensors must add up to 3, the size of InputTensor along axis 1; got \{1\}",
        ),
        (tiling(repeats=(2,)), r"Repeats must have one number for each of the 2 dimensions of InputTensor; got \{2\}"),
        (tiling(repeats=(2, 0)), r"Repeats\[1\] must be at least 1; got 0"),
        (tiling(repeats=(2, 2)), r"OutputTensor\.Sizes must be \{4,6\}; got \{4,3\}"),
        (
            blocking(directml.SpaceToDepthDesc, (1, 1, 4, 5), (1, 4, 2, 2)),
            r"InputTensor\.Sizes\[3\] must be a multiple of 2; got 5",
        ),
        (
            blocking(directml.SpaceToDepthDesc, (1, 4, 4, 4), (1, 1, 8, 8)),  # as the page has it
            r"OutputTensor\.Sizes must be \{1,16,2,2\}; got \{1,1,8,8\}",
        ),
        (blocking(directml.SpaceToDepthDesc, (1, 1, 4, 4), (1, 4, 2, 2), 0), "BlockSize must be at least 1; got 0"),
        (blocking(directml.DepthToSpaceDesc, (1, 4, 2, 2), (1, 1, 4, 4), 0), "BlockSize must be at least 1; got 0"),
        (
            blocking(directml.DepthToSpaceDesc, (1, 6, 4, 4), (1, 1, 8, 8)),
            r"InputTensor\.Sizes\[1\] must be a multiple of 4; got 6",
        ),
        (
            blocking(directml.DepthToSpaceDesc, (1, 4, 4, 4), (1, 4, 4, 4)),
            r"OutputTensor\.Sizes must be \{1,1,8,8\}; got \{1,4,4,4\}",
        ),
    ],
)
def test_a_desc_refuses(desc: directml.Operator, message: str) -> None:
    with pytest.raises(InvalidDesc, match=message):
        directml.validate(desc)


def test_no_size_is_asked_for_that_no_output_could_have() -> None:
    for desc in (
        blocking(directml.SpaceToDepthDesc, (1, 3, 4, 5), (1, 3, 4, 5), 3),
        blocking(directml.DepthToSpaceDesc, (1, 3, 4, 5), (1, 3, 4, 5), 3),
        tiling(repeats=(0, 1)),
    ):
        assert not [rule for rule in directml.find_broken_rules(desc) if rule.startswith("OutputTensor")]


def test_a_desc_has_the_count_of_its_dimensions_in_json() -> None:
    json = directml.to_json(windowing())
    assert json["Desc"]["InputWindowStrides"] == [-2, 2]
    json["Desc"]["DimensionCount"] = 3
    with pytest.raises(InvalidDesc, match="DimensionCount must be 2"):
        directml.from_json(json)
