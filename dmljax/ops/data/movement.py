"""Operators that copy elements to other places: slices and their gradient, joins, splits, tiles and blocks.

All of them copy bit for bit, with one exception: where XLA on a CPU fuses the tile of a join of bfloat16, it may turn
subnormals into zeros and signaling NaNs into quiet ones, because it merges the conversion of the bits into the
selection. On an explicit mesh, each dimension of the result is sharded like that of the input, if its size allows it.

Args:
    starts: Position where the window begins in each dimension.
    sizes: Size of the window in each dimension.
    strides: Distance between the elements in each dimension; None means 1.
    axis: Axis along which arrays are divided or joined; a negative axis counts from the end.
    block_size: Height and width of a block.
    order: Whether the larger image's channels (depth_column_row) or positions in its blocks vary fastest.
"""

import math
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, Path, Problem, require
from dmljax.foundation.checks import INT_MAX, INT_MIN, integer_in, require_count, require_counts
from dmljax.foundation.dimensions import is_symbolic, replace_at
from dmljax.foundation.open_sizes import fits, spell_equalities
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes
from dmljax.foundation.sizes import (
    Sizes,
    argument_name,
    array_name,
    require_dimensions,
    require_one_each,
    require_sizes,
    spell_sizes,
)
from dmljax.lowerings.copies import copy_exactly, copy_with_auto_axes, result_axes
from dmljax.types import FLOAT, INTEGER_8, UP_TO_32_BIT, UP_TO_64_BIT, DataType, DepthSpaceOrder, DepthSpaceOrderLike

# SLICE and SLICE1


def _require_numbers(image: str, rank: int, starts: Sizes, sizes: Sizes, strides: Sizes) -> None:
    """Raises if a size is 0, and unless each dimension of an array has a number."""
    for name, values in (("starts", starts), ("sizes", sizes), ("strides", strides)):
        require_one_each(name, values, image, rank)
    for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        require_count(("starts", i), start, 0)
        require_count(("sizes", i), size, 1)


def _slice_sizes(input: Sizes, starts: Sizes, sizes: Sizes, strides: Sizes) -> Sizes:
    _require_numbers("input", len(input), starts, sizes, strides)
    for i, (start, size, stride) in enumerate(zip(starts, sizes, strides, strict=True)):
        require_count(("strides", i), stride, 1)
        last = start + (size - 1) * stride
        if last >= input[i]:
            place = f"{argument_name('starts', i)} + ({argument_name('sizes', i)} - 1) * {argument_name('strides', i)}"
            rule = f"must keep {place} below {input[i]}, the size of {argument_name('input')} along axis {i}"
            raise InvalidDesc(Problem(("sizes", i), rule, last))
    return sizes


@calls.operator_function
def slice(
    input: ArrayLike, *, starts: calls.OneEach, sizes: calls.OneEach, strides: calls.OneEach | None = None
) -> Array:
    """Copies `sizes[i]` elements of each dimension `i`: the first at `starts[i]`, the others `strides[i]` apart.

    All of the elements must lie inside `input`.

    Use `slice1` for negative strides.

    Args:
        starts: Position of the first element in each dimension.
        sizes: Shape of the result.

    Returns:
        Array of the shape `sizes`, in the type of `input`.

    >>> slice(jnp.arange(20), starts=(10,), sizes=(5,), strides=(2,)).tolist()
    [10, 12, 14, 16, 18]
    """
    input = calls.real_array("input", input)
    strides = _strides_of(strides, sizes)
    sizes = _slice_sizes(input.shape, tuple(starts), tuple(sizes), strides)
    return _take_strided(input, starts, sizes, strides)


def _require_window(whole: str, whole_sizes: Sizes, starts: Sizes, sizes: Sizes, strides: Sizes) -> None:
    """Raises if a window does not lie inside an array of the sizes `whole_sizes`, or a stride is 0."""
    _require_numbers(whole, len(whole_sizes), starts, sizes, strides)
    for i, (start, size, stride, limit) in enumerate(zip(starts, sizes, strides, whole_sizes, strict=True)):
        if not fits(start + size, limit):
            limit_text = f"the size of {array_name(whole)} along axis {i}"
            rule = f"must keep {argument_name('starts', i)} + {argument_name('sizes', i)} at most {limit}, {limit_text}"
            raise InvalidDesc(Problem(("sizes", i), rule, start + size))
        require(("strides", i), integer_in(("strides", i), stride, INT_MIN, INT_MAX) != 0, "must not be 0", stride)


def _require_reached(place: Path, counts: Sizes, most: Sizes) -> None:
    for i, (count, limit) in enumerate(zip(counts, most, strict=True)):
        require_count((*place, i), count, 1)
        rule = f"must be at most {limit}, the number of elements that the stride reaches in the window"
        require((*place, i), fits(count, limit), rule, count)


def _slice1_sizes(
    input: Sizes, starts: Sizes, sizes: Sizes, strides: Sizes, output_sizes: Sizes | None = None
) -> Sizes:
    _require_window("input", input, starts, sizes, strides)
    most = tuple(map(_count_reached, sizes, strides))
    if output_sizes is None:
        return most
    require_one_each("output_sizes", output_sizes, "input", len(input))
    _require_reached(("output_sizes",), output_sizes, most)
    return output_sizes


@calls.operator_function
def slice1(
    input: ArrayLike,
    *,
    starts: calls.OneEach,
    sizes: calls.OneEach,
    strides: calls.OneEach | None = None,
    output_sizes: Sequence[int] | None = None,
) -> Array:
    """Copies elements, `strides[i]` apart, of the window that begins at `starts[i]` and has `sizes[i]` elements.

    A negative stride begins at the last element of the window and goes backward. All elements that are reached are
    copied; `output_sizes` may ask for fewer.

    Args:
        output_sizes: Shape of the result; None means that of all elements that are reached.

    Returns:
        Array of the elements that are reached, in the type of `input`.

    >>> slice1(jnp.arange(10), starts=(2,), sizes=(7,), strides=(3,)).tolist()
    [2, 5, 8]
    >>> slice1(jnp.arange(10), starts=(2,), sizes=(7,), strides=(-2,)).tolist()
    [8, 6, 4, 2]
    """
    input = calls.real_array("input", input)
    strides, result_sizes = _strides_of(strides, sizes), None if output_sizes is None else tuple(output_sizes)
    counts = _slice1_sizes(input.shape, tuple(starts), tuple(sizes), strides, result_sizes)
    return _take_strided(input, _firsts(starts, sizes, strides), counts, strides)


def _strides_of(strides: Sequence[int] | None, sizes: Sequence[int]) -> Sizes:
    return (1,) * len(sizes) if strides is None else tuple(strides)


def _firsts(starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The index of the first element of a window that is copied: with a negative stride, its last."""
    windows = zip(starts, sizes, strides, strict=True)
    return [start if stride > 0 else start + size - 1 for start, size, stride in windows]


def _count_reached(size: int, stride: int) -> int:
    """The number of elements of a window that are copied in a dimension."""
    # The page divides by the stride itself, which is negative in its second example.
    return 1 + (size - 1) // abs(stride)


def _take_strided(input: Array, firsts: Sequence[int], counts: Sequence[int], strides: Sequence[int]) -> Array:
    """`counts` elements of each dimension, the first at `firsts`, the others `strides` apart."""
    lowest, steps, backwards = _normalize_strides(firsts, counts, strides)
    limits = [low + (count - 1) * step + 1 for low, count, step in zip(lowest, counts, steps, strict=True)]

    def move(input: Array) -> Array:
        elements = lax.slice(input, lowest, limits, steps)
        return lax.rev(elements, backwards) if backwards else elements

    return copy_with_auto_axes([input], counts, move)


def _normalize_strides(
    firsts: Sequence[int], counts: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """The lowest index of each dimension, the steps upward from it, and the dimensions that go backward."""
    # The stride of a single element does not matter, however large it is.
    signed = [1 if count == 1 else stride for stride, count in zip(strides, counts, strict=True)]
    ends = zip(firsts, counts, signed, strict=True)
    lowest = [first if step > 0 else first + (count - 1) * step for first, count, step in ends]
    return lowest, [abs(step) for step in signed], [i for i, step in enumerate(signed) if step < 0]


class SliceDesc(dml.Resized, function=slice, infer=_slice_sizes):
    offsets: dml.UintDimensions
    sizes: dml.UintDimensions
    strides: dml.UintDimensions
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT - INTEGER_8),
        FL_2_1=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )

    arguments = {"offsets": "starts"}
    implied = {"strides": lambda call: call.argument("strides") or [1] * len(call.arrays["input"].sizes)}
    rules = dml.page_rules(
        *dml.Resized.rules,
        *dml.infer_rules(
            "Offsets, Sizes and Strides have one number for each dimension of InputTensor.",
            "Sizes equals OutputTensor.Sizes.",
            "No stride is 0.",
            "The last element that is copied lies inside InputTensor.",
        ),
    )


def _window_rules(whole: str, part: str) -> tuple[dml.Rule, ...]:
    return dml.page_rules(
        *dml.same_type_and_rank(whole, part),
        *dml.infer_rules(
            "InputWindowOffsets, InputWindowSizes and InputWindowStrides have one number for each dimension of "
            f"{{{whole}}}.",
            f"The window is not empty, and lies inside {{{whole}}}. No stride is 0. {{{part}}} has no more elements in "
            "a dimension than the stride reaches in the window.",
        ),
    )


class _Window(dml.Operator):
    """The window of SLICE1 and SLICE_GRAD, whose members follow the tensors."""

    input_window_offsets: dml.UintDimensions
    input_window_sizes: dml.UintDimensions
    input_window_strides: dml.IntDimensions
    arguments = {
        "input_window_offsets": "starts",
        "input_window_sizes": "sizes",
        "input_window_strides": "strides",
    }


class Slice1Desc(_Window, dml.Resized, function=slice1, infer=_slice1_sizes):
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )
    rules = _window_rules("input", "output")


# SLICE_GRAD


def _put_back_sizes(input_gradient: Sizes, starts: Sizes, sizes: Sizes, strides: Sizes, output_sizes: Sizes) -> Sizes:
    require_one_each("output_sizes", output_sizes, "input_gradient", len(input_gradient))
    require_counts("output_sizes", output_sizes, 1)
    _require_window("output_sizes", output_sizes, starts, sizes, strides)
    _require_reached(("input_gradient", "shape"), input_gradient, tuple(map(_count_reached, sizes, strides)))
    return output_sizes


@calls.operator_function
def slice_grad(
    input_gradient: ArrayLike,
    *,
    starts: calls.OneEach,
    sizes: calls.OneEach,
    strides: calls.OneEach | None = None,
    output_sizes: Sequence[int],
) -> Array:
    """Puts elements back where `slice1` took them from: the gradient of `slice1` with respect to its input.

    The elements that `slice1` did not take are 0.

    Args:
        input_gradient: Gradient with respect to the result of `slice1`.
        output_sizes: Shape of the result, which is the shape of the input of `slice1`.

    Returns:
        Gradient with respect to the input of `slice1`.

    >>> slice_grad(
    ...     jnp.array([1, 2, 3]), starts=(2,), sizes=(5,), strides=(-2,), output_sizes=(8,)
    ... ).tolist()
    [0, 0, 3, 0, 2, 0, 1, 0]
    """
    gradient = calls.real_array("input_gradient", input_gradient)
    strides = _strides_of(strides, sizes)
    _put_back_sizes(gradient.shape, tuple(starts), tuple(sizes), strides, tuple(output_sizes))
    firsts = _firsts(starts, sizes, strides)
    lowest, steps, backwards = _normalize_strides(firsts, gradient.shape, strides)
    lengths = [(count - 1) * step for count, step in zip(gradient.shape, steps, strict=True)]
    padding = [
        (low, size - low - length - 1, step - 1)
        for low, length, size, step in zip(lowest, lengths, output_sizes, steps, strict=True)
    ]

    def move(gradient: Array) -> Array:
        return _pad_interior(lax.rev(gradient, backwards) if backwards else gradient, padding)

    return copy_with_auto_axes([gradient], output_sizes, move)


_ROWS = 128


def _pad_interior(x: Array, padding: Sequence[tuple[int, int, int]]) -> Array:
    """`lax.pad` with zeros, of several blocks of rows if the elements of rows move apart.

    JAX 0.10.2's compiler for TPUs takes 28 s for 4,096 rows of 127 elements, and 0.3 s for 32 blocks of them.
    """
    zero, rows = jnp.zeros((), x.dtype), x.shape[-2] if x.ndim > 1 else 0
    if is_symbolic(rows) or rows <= _ROWS or padding[-2] != (0, 0, 0) or padding[-1][2] == 0:
        return lax.pad(x, zero, padding)
    blocks = x.reshape(*x.shape[:-2], -1, math.gcd(rows, _ROWS), x.shape[-1])
    spread = lax.pad(blocks, zero, [*padding[:-1], (0, 0, 0), padding[-1]])
    return spread.reshape(*spread.shape[:-3], rows, spread.shape[-1])


class SliceGradDesc(_Window, dml.Adjoint, function=slice_grad, infer=_put_back_sizes):
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )
    rules = _window_rules("output_gradient", "input_gradient")


# SPLIT and JOIN


def _split_sizes(input: Sizes, sizes: Sizes, axis: int) -> dict[str, tuple[Sizes, ...]]:
    require("sizes", bool(sizes), "must have at least 1 element", spell_sizes(sizes))
    require_counts("sizes", sizes, 1)
    rule = f"must add up to {input[axis]}, the size of {argument_name('input')} along axis {axis}"
    remedy = spell_equalities((sum(sizes), input[axis]))
    require("sizes", sum(sizes) == input[axis], rule, spell_sizes(sizes), remedy=remedy)
    return {"outputs": tuple(replace_at(input, axis, size) for size in sizes)}


@calls.operator_function
def split(input: ArrayLike, *, sizes: Sequence[int], axis: int) -> tuple[Array, ...]:
    """Splits `input` along `axis` into arrays of these `sizes`.

    Args:
        sizes: Sizes of the results along `axis`; their sum is the size of `input`.

    Returns:
        Arrays of these sizes along `axis`.

    >>> first, second = split(jnp.array([[1, 2, 3], [4, 5, 6]]), sizes=(1, 2), axis=1)
    >>> first.tolist(), second.tolist()
    ([[1], [4]], [[2, 3], [5, 6]])
    """
    input = calls.real_array("input", input)
    axis = calls.normal_axis(axis, input)
    shapes = _split_sizes(input.shape, tuple(sizes), axis)["outputs"]
    if len(sizes) == 1:
        return (copy_with_auto_axes([input], input.shape, lambda input: input),)
    # Use one operation for all parts: its gradient is one concatenation, while the gradient of slices adds up padded
    # parts.
    shardings = [result_axes([input], shape) for shape in shapes]

    def move(floats: tuple[Array, ...], _: None) -> tuple[Array, ...]:
        return tuple(lax.split(floats[0], sizes, axis=axis))

    return call_with_auto_axes(lambda input: copy_exactly(move, (input,)), [(input, dimension_axes(input))], *shardings)


def _join_sizes(inputs: Sequence[Sizes], axis: int) -> Sizes:
    require("inputs", bool(inputs), "must have at least 1 array", 0)
    first = inputs[0]
    for i, sizes in enumerate(inputs):
        along = sizes[axis : axis + 1] or first[axis : axis + 1]
        source = f"inputs[0] except along axis {axis}"
        require_sizes(("inputs", i), sizes, replace_at(first, axis, *along), of=source)
    return replace_at(first, axis, sum(sizes[axis] for sizes in inputs))


@calls.operator_function
def join(inputs: Sequence[ArrayLike], *, axis: int) -> Array:
    """Concatenates arrays along `axis`; they must have the same type, and the same sizes along the other axes.

    Args:
        inputs: Arrays of one type, and of equal sizes except along `axis`.

    Returns:
        Array whose size along `axis` is the sum of their sizes.

    >>> join([jnp.array([[1], [4]]), jnp.array([[2, 3], [5, 6]])], axis=1).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    arrays = [calls.real_array(("inputs", i), x) for i, x in enumerate(inputs)]
    require("inputs", bool(arrays), "must have at least 1 array", 0)
    by_place = {("inputs", i): x for i, x in enumerate(arrays)}
    arrays = list((by_place | calls.unify_types(by_place, ())).values())
    first = arrays[0]
    axis = calls.normal_axis(axis, first, ("inputs", 0))
    for i, x in enumerate(arrays):
        calls.require_type(("inputs", i), x, first.dtype, "inputs[0]")
    sizes = _join_sizes([x.shape for x in arrays], axis)
    return copy_with_auto_axes(arrays, sizes, lambda *parts: lax.concatenate(parts, axis))


_PARTS = "{0} and {1} have the same Sizes, except along Axis, where those of {0} add up."


class SplitDesc(dml.Operator, function=split, infer=_split_sizes):
    input: dml.Input
    outputs: dml.Outputs
    axis: dml.Uint
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, UP_TO_32_BIT - INTEGER_8),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )
    arguments = {"outputs": "sizes"}
    rules = dml.page_rules(
        *dml.same_type_and_rank("outputs", "input"),
        dml.axis_within("input"),
        *dml.infer_rules("OutputTensors has at least one tensor.", _PARTS.format("OutputTensors", "InputTensor")),
    )

    derived = {"sizes": lambda desc: tuple(output.sizes[desc.axis] for output in desc.outputs)}


class JoinDesc(dml.Operator, function=join, infer=_join_sizes):
    inputs: dml.Inputs
    output: dml.Output
    axis: dml.Uint
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, UP_TO_32_BIT - INTEGER_8),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )
    rules = dml.page_rules(
        *dml.same_type_and_rank("inputs", "output"),
        dml.axis_within("output"),
        *dml.infer_rules("InputTensors has at least one tensor.", _PARTS.format("InputTensors", "OutputTensor")),
    )


# TILE


def _tile_sizes(input: Sizes, repeats: Sizes) -> Sizes:
    require_one_each("repeats", repeats, "input", len(input))
    require_counts("repeats", repeats, 1)
    return tuple(size * repeat for size, repeat in zip(input, repeats, strict=True))


@calls.operator_function
def tile(input: ArrayLike, *, repeats: calls.OneEach) -> Array:
    """Repeats `input` as a whole, `repeats[i]` times along each dimension `i`.

    Args:
        repeats: How many times each dimension is repeated.

    Returns:
        Array of the shape `input.shape[i] * repeats[i]` in each dimension `i`.

    >>> tile(jnp.array([[1, 2], [3, 4]]), repeats=(1, 2)).tolist()
    [[1, 2, 1, 2], [3, 4, 3, 4]]
    """
    input = calls.real_array("input", input)
    sizes = _tile_sizes(input.shape, tuple(repeats))
    return copy_with_auto_axes([input], sizes, lambda input: jnp.tile(input, tuple(repeats)))


class TileDesc(dml.Resized, function=tile, infer=_tile_sizes):
    repeats: dml.Repeats
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_3_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT - {DataType.FLOAT64}),
    )
    rules = dml.page_rules(
        *dml.Resized.rules,
        *dml.infer_rules(
            "Repeats has one number for each dimension of InputTensor, each of which is at least 1.",
            "OutputTensor.Sizes are InputTensor.Sizes times Repeats.",
        ),
    )


# SPACE_TO_DEPTH and DEPTH_TO_SPACE


@calls.operator_function
def space_to_depth(input: ArrayLike, *, block_size: int) -> Array:
    """Moves each block of `block_size` by `block_size` elements of an image into the channels.

    The last three dimensions of `input` are channels, height and width, and those before them are batches. The
    channels of the result are ordered by row and column in the block, and then by the channel of `input`.

    Use `space_to_depth1` for the other order of channels.

    Args:
        input: Images, (batches, channels, height, width).

    Returns:
        Images, (batches, channels * block_size**2, height / block_size, width / block_size).

    >>> space_to_depth(jnp.array([[[1, 2], [3, 4]]]), block_size=2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    return _space_to_depth(input, block_size, DepthSpaceOrder.DEPTH_COLUMN_ROW)


@calls.operator_function
def space_to_depth1(
    input: ArrayLike, *, block_size: int, order: DepthSpaceOrderLike = DepthSpaceOrder.DEPTH_COLUMN_ROW
) -> Array:
    """Moves each block of `block_size` by `block_size` elements of an image into the channels.

    The last three dimensions of `input` are channels, height and width, and those before them are batches. With
    DEPTH_COLUMN_ROW, the channels of the result are ordered by row and column in the block, and then by the channel of
    `input`; with COLUMN_ROW_DEPTH, by the channel of `input` first.

    Args:
        input: Images, (batches, channels, height, width).

    Returns:
        Images, (batches, channels * block_size**2, height / block_size, width / block_size).

    >>> image = jnp.array([[[1, 2]], [[5, 6]]]).repeat(2, axis=1)
    >>> space_to_depth1(image, block_size=2, order="column_row_depth").ravel().tolist()
    [1, 2, 1, 2, 5, 6, 5, 6]
    """
    return _space_to_depth(input, block_size, DepthSpaceOrder.of(order))


@calls.operator_function
def depth_to_space(input: ArrayLike, *, block_size: int) -> Array:
    """Moves the channels of an image into blocks of `block_size` by `block_size` elements; inverts `space_to_depth`.

    The last three dimensions of `input` are channels, height and width, and those before them are batches.

    Use `depth_to_space1` for the other order of channels.

    Args:
        input: Images, (batches, channels, height, width).

    Returns:
        Images, (batches, channels / block_size**2, height * block_size, width * block_size).

    >>> depth_to_space(jnp.array([[[1]], [[2]], [[3]], [[4]]]), block_size=2).tolist()
    [[[1, 2], [3, 4]]]
    """
    return _depth_to_space(input, block_size, DepthSpaceOrder.DEPTH_COLUMN_ROW)


@calls.operator_function
def depth_to_space1(
    input: ArrayLike, *, block_size: int, order: DepthSpaceOrderLike = DepthSpaceOrder.DEPTH_COLUMN_ROW
) -> Array:
    """Moves the channels of an image into blocks of `block_size` by `block_size` elements; inverts `space_to_depth1`.

    The last three dimensions of `input` are channels, height and width, and those before them are batches. With
    DEPTH_COLUMN_ROW, the channels of `input` are ordered by row and column in the block, and then by the channel of the
    result; with COLUMN_ROW_DEPTH, by the channel of the result first.

    Args:
        input: Images, (batches, channels, height, width).

    Returns:
        Images, (batches, channels / block_size**2, height * block_size, width * block_size).

    >>> channels = jnp.arange(8).reshape(8, 1, 1)
    >>> depth_to_space1(channels, block_size=2, order="column_row_depth").tolist()
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    return _depth_to_space(input, block_size, DepthSpaceOrder.of(order))


def _space_to_depth_sizes(input: Sizes, block_size: int) -> Sizes:
    # The page has the sizes of DEPTH_TO_SPACE; its example has these.
    *batch, channels, height, width = _require_divisible(input, {-2: block_size, -1: block_size}, block_size)
    return (*batch, channels * block_size**2, height // block_size, width // block_size)


def _depth_to_space_sizes(input: Sizes, block_size: int) -> Sizes:
    *batch, channels, height, width = _require_divisible(input, {-3: block_size**2}, block_size)
    return (*batch, channels // block_size**2, height * block_size, width * block_size)


def _require_divisible(input: Sizes, divisors: Mapping[int, int], block_size: int) -> Sizes:
    """Returns the sizes of an image; raises unless they are multiples of the divisors of their axes."""
    require_dimensions("input", input, 3)
    require_count("block_size", block_size, 1)
    for axis, divisor in divisors.items():
        place = ("input", "shape", axis % len(input))
        rest = input[axis] % divisor
        require(place, rest == 0, f"must be a multiple of {divisor}", input[axis], remedy=spell_equalities((rest, 0)))
    return input


def _space_to_depth(input: ArrayLike, block: int, order: DepthSpaceOrder) -> Array:
    input = calls.real_array("input", input)
    sizes = _space_to_depth_sizes(input.shape, block)
    *batch, channels, height, width = input.shape

    def move(input: Array) -> Array:
        blocks = input.reshape(*batch, channels, height // block, block, width // block, block)
        c, y, row, x, column = range(len(batch), len(batch) + 5)
        depth = (row, column, c) if order is DepthSpaceOrder.DEPTH_COLUMN_ROW else (c, row, column)
        return blocks.transpose(*range(len(batch)), *depth, y, x).reshape(sizes)

    return copy_with_auto_axes([input], sizes, move)


def _depth_to_space(input: ArrayLike, block: int, order: DepthSpaceOrder) -> Array:
    input = calls.real_array("input", input)
    sizes = _depth_to_space_sizes(input.shape, block)
    *batch, _, height, width = input.shape
    depth = sizes[-3]

    def move(input: Array) -> Array:
        is_depth_last = order is DepthSpaceOrder.DEPTH_COLUMN_ROW
        split = (block, block, depth) if is_depth_last else (depth, block, block)
        *places, y, x = range(len(batch), len(batch) + 5)
        c, row, column = (places[2], *places[:2]) if is_depth_last else places
        blocks = input.reshape(*batch, *split, height, width)
        return blocks.transpose(*range(len(batch)), c, y, row, x, column).reshape(sizes)

    return copy_with_auto_axes([input], sizes, move)


class _Blocks(dml.Operator):
    """InputTensor and OutputTensor, of four dimensions, and the size of the blocks."""

    input: dml.Input
    output: dml.Output
    block_size: dml.Uint


class _SpaceToDepth(_Blocks, infer=_space_to_depth_sizes):
    rules = dml.page_rules(
        dml.same_type("input", "output"),
        *dml.infer_rules(
            "BlockSize is at least 1, and divides the height and the width of InputTensor.",
            "OutputTensor has BlockSize * BlockSize times the channels, with height and width divided by BlockSize.",
        ),
    )


class _DepthToSpace(_Blocks, infer=_depth_to_space_sizes):
    rules = dml.page_rules(
        dml.same_type("input", "output"),
        *dml.infer_rules(
            "BlockSize is at least 1, and BlockSize * BlockSize divides the number of channels of InputTensor.",
            "OutputTensor has the channels divided by BlockSize * BlockSize, and BlockSize times the height and width.",
        ),
    )


_SINCE_2_1 = dml.support(FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT), FL_5_0=dml.rows(dml.RANK_4, UP_TO_64_BIT))
_SINCE_1_0 = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT)) | _SINCE_2_1


class SpaceToDepthDesc(_SpaceToDepth, function=space_to_depth):
    support = _SINCE_1_0


class SpaceToDepth1Desc(_SpaceToDepth, function=space_to_depth1):
    order: dml.Enumerator[DepthSpaceOrder]
    support = _SINCE_2_1


class DepthToSpaceDesc(_DepthToSpace, function=depth_to_space):
    support = _SINCE_1_0


class DepthToSpace1Desc(_DepthToSpace, function=depth_to_space1):
    order: dml.Enumerator[DepthSpaceOrder]
    support = _SINCE_2_1
