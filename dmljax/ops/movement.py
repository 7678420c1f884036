"""Operators that copy elements to other places: slices and their gradient, joins, splits, tiles and blocks.

All of them copy bit for bit, with one exception: where XLA on a CPU fuses the tile of a join of bfloat16, it may turn
subnormals into zeros and signalling NaNs into quiet ones, for it merges the conversion of the bits into the selection.
On an explicit mesh, each dimension of the result is sharded as that of the input is, if its size allows it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.checks import INT_MAX, INT_MIN, UINT_MAX, integer_in
from dmljax.errors import InvalidDesc, Problem
from dmljax.lowerings.copies import copied, kept_axes, moved
from dmljax.lowerings.sharding import dimension_axes, partitioned
from dmljax.lowerings.sizes import check_size, replaced
from dmljax.text import join_sizes
from dmljax.types import FLOAT, INTEGER_8, UP_TO_32_BIT, UP_TO_64_BIT, DataType, DepthSpaceOrder

# SLICE and SLICE1


@calls.operator_function(starts=calls.SIZES, sizes=calls.SIZES, strides=calls.SIZES)
def slice(
    input: ArrayLike, *, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """Copies `sizes[i]` elements of each dimension `i`: the first at `starts[i]`, the others `strides[i]` apart.

    `sizes` is the shape of the result. All of its elements must lie inside `input`.

    >>> slice(jnp.arange(20), starts=(10,), sizes=(5,), strides=(2,)).tolist()
    [10, 12, 14, 16, 18]
    """
    input = calls.real_array("input", input)
    strides = _strides(input, starts, sizes, strides)
    for i, (start, size, stride) in enumerate(zip(starts, sizes, strides, strict=True)):
        integer_in(("strides", i), stride, 1, UINT_MAX)
        last = start + (size - 1) * stride
        if last >= input.shape[i]:
            name = f"the last index, starts[{i}] + (sizes[{i}] - 1) * strides[{i}],"
            limit = f"{input.shape[i]}, the size of input along axis {i}"
            raise InvalidDesc(Problem((), f"{name} must be less than {limit}", last))
    return _strided(input, starts, sizes, strides)


@calls.operator_function(starts=calls.SIZES, sizes=calls.SIZES, strides=calls.SIZES, output_sizes=calls.SIZES)
def slice1(
    input: ArrayLike,
    *,
    starts: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    output_sizes: Sequence[int] | None = None,
) -> Array:
    """Copies elements of a window, `strides[i]` apart, that begins at `starts[i]` and has `sizes[i]` elements.

    A negative stride begins at the last element of the window and goes backwards. All elements that are reached are
    copied; `output_sizes` may ask for fewer.

    >>> slice1(jnp.arange(10), starts=(2,), sizes=(7,), strides=(3,)).tolist()
    [2, 5, 8]
    >>> slice1(jnp.arange(10), starts=(2,), sizes=(7,), strides=(-2,)).tolist()
    [8, 6, 4, 2]
    """
    input = calls.real_array("input", input)
    strides = _strides(input, starts, sizes, strides)
    _require_window(starts, sizes, strides, input.shape, "input")
    most = tuple(map(_reached, sizes, strides))
    counts = most if output_sizes is None else output_sizes
    calls.require_one_each("output_sizes", counts, input)
    for i, count in enumerate(counts):
        if not 1 <= count <= most[i]:
            raise InvalidDesc(Problem(("output_sizes", i), f"must be in [1, {most[i]}]", count))
    return _strided(input, _firsts(starts, sizes, strides), counts, strides)


def _strides(input: Array, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int] | None) -> Sequence[int]:
    """The strides, 1 each by default; refuses numbers that are not one for each dimension, and sizes of 0."""
    strides = (1,) * input.ndim if strides is None else strides
    for name, values in (("starts", starts), ("sizes", sizes), ("strides", strides)):
        calls.require_one_each(name, values, input)
    for i, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        check_size(("starts", i), start, 0)
        check_size(("sizes", i), size, 1)
    return strides


def _require_window(
    starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int], whole: Sequence[int], name: str
) -> None:
    """Refuses a window that does not lie inside an array of the sizes `whole`, and strides of 0."""
    for i, (start, size, stride, limit) in enumerate(zip(starts, sizes, strides, whole, strict=True)):
        if integer_in(("strides", i), stride, INT_MIN, INT_MAX) == 0:
            raise InvalidDesc(Problem(("strides", i), "must not be 0", stride))
        if start + size > limit:
            end = f"the end of the window, starts[{i}] + sizes[{i}],"
            rule = f"{end} must be at most {limit}, the size of {name} along axis {i}"
            raise InvalidDesc(Problem((), rule, start + size))


def _firsts(starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The index of the first element of a window that is copied: with a negative stride, its last one."""
    windows = zip(starts, sizes, strides, strict=True)
    return [start if stride > 0 else start + size - 1 for start, size, stride in windows]


def _reached(size: int, stride: int) -> int:
    """How many elements of a window are reached in a dimension."""
    # The page divides by the stride itself, which is negative in its second example.
    return 1 + (size - 1) // abs(stride)


def _strided(input: Array, firsts: Sequence[int], counts: Sequence[int], strides: Sequence[int]) -> Array:
    """`counts` elements of each dimension, the first at `firsts`, the others `strides` apart."""
    lowest, steps, backwards = _places(firsts, counts, strides)
    limits = [low + (count - 1) * step + 1 for low, count, step in zip(lowest, counts, steps, strict=True)]

    def move(input: Array) -> Array:
        found = lax.slice(input, lowest, limits, steps)
        return lax.rev(found, backwards) if backwards else found

    return moved([input], counts, move)


def _places(
    firsts: Sequence[int], counts: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """The lowest index of each dimension, the steps upwards from it, and the dimensions that go backwards."""
    # Of a single element the stride does not matter, however large it is.
    signed = [1 if count == 1 else stride for stride, count in zip(strides, counts, strict=True)]
    ends = zip(firsts, counts, signed, strict=True)
    lowest = [first if step > 0 else first + (count - 1) * step for first, count, step in ends]
    return lowest, [abs(step) for step in signed], [i for i, step in enumerate(signed) if step < 0]


class SliceDesc(dml.Operator, function=slice):
    input: dml.Input
    output: dml.Output
    offsets: dml.UintDimensions
    sizes: dml.UintDimensions
    strides: dml.UintDimensions
    support = dml.support(
        FL_1_0=dml.unary(dml.RANK_4_TO_5, UP_TO_32_BIT - INTEGER_8),
        FL_2_1=dml.unary(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_0=dml.unary(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.unary(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )

    def _other_sizes(self) -> Iterator[Problem]:
        if self.sizes != self.output.sizes:
            rule = f"must be OutputTensor.Sizes, {join_sizes(self.output.sizes)}"
            yield Problem("Sizes", rule, join_sizes(self.sizes))

    def _no_strides(self) -> Iterator[Problem]:
        for i, stride in enumerate(self.strides):
            if stride == 0:  # the page is silent on it
                yield Problem(("Strides", i), "must not be 0", stride)

    def _elements_outside(self) -> Iterator[Problem]:
        for i, dimension in enumerate(zip(self.offsets, self.sizes, self.strides, self.input.sizes, strict=False)):
            offset, size, stride, limit = dimension
            last = offset + (size - 1) * stride
            if last >= limit:
                most = f"below {limit}, the size of InputTensor"
                yield Problem(("Sizes", i), f"must keep Offsets[{i}] + (Sizes[{i}] - 1) * Strides[{i}] {most}", last)

    rules = dml.page_rules(
        dml.same_type("input", "output"),
        dml.same_rank("input", "output"),
        dml.one_each("input", "offsets", "sizes", "strides"),
        dml.Rule("Sizes equals OutputTensor.Sizes.", _other_sizes),
        dml.Rule("No stride is 0.", _no_strides),
        dml.Rule("The last element that is copied lies inside InputTensor.", _elements_outside),
    )

    def attributes(self) -> dict[str, Any]:
        return {"starts": self.offsets, "sizes": self.sizes, "strides": self.strides}


def _window_rules(whole: str, part: str) -> tuple[dml.Rule, ...]:
    """The window lies inside the tensor `whole`, and its strides reach as many elements as the tensor `part` has."""

    def check(desc: Any) -> Iterator[Problem]:
        windows = zip(desc.input_window_offsets, desc.input_window_sizes, desc.input_window_strides, strict=False)
        sizes = zip(getattr(desc, whole).sizes, getattr(desc, part).sizes, strict=False)
        for i, ((offset, size, stride), (limit, count)) in enumerate(zip(windows, sizes, strict=False)):
            if size == 0:
                yield Problem(("InputWindowSizes", i), "must be at least 1", size)
            elif offset + size > limit:
                of_whole = f"the size of {desc.member(whole).name}"
                rule = f"must keep InputWindowOffsets[{i}] + InputWindowSizes[{i}] at most {limit}, {of_whole}"
                yield Problem(("InputWindowSizes", i), rule, offset + size)
            if stride == 0:
                yield Problem(("InputWindowStrides", i), "must not be 0", stride)
            elif size and count > _reached(size, stride):
                rule = f"must be at most {_reached(size, stride)}, which the stride reaches in the window"
                yield Problem((desc.member(part).name, "Sizes", i), rule, count)

    return dml.page_rules(
        dml.same_type(whole, part),
        dml.same_rank(whole, part),
        dml.one_each(whole, "input_window_offsets", "input_window_sizes", "input_window_strides"),
        dml.Rule(
            f"The window is not empty, and lies inside {{{whole}}}. No stride is 0. {{{part}}} has no more elements in "
            "a dimension than the stride reaches in the window.",
            check,
        ),
    )


class Slice1Desc(dml.Operator, function=slice1):
    input: dml.Input
    output: dml.Output
    input_window_offsets: dml.UintDimensions
    input_window_sizes: dml.UintDimensions
    input_window_strides: dml.IntDimensions
    support = dml.support(
        FL_2_1=dml.unary(dml.RANK_4_TO_5, UP_TO_32_BIT),
        FL_3_0=dml.unary(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.unary(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )
    rules = _window_rules("input", "output")

    def attributes(self) -> dict[str, Any]:
        return {
            "starts": self.input_window_offsets,
            "sizes": self.input_window_sizes,
            "strides": self.input_window_strides,
            "output_sizes": self.output.sizes,
        }


# SLICE_GRAD


@calls.operator_function(starts=calls.SIZES, sizes=calls.SIZES, strides=calls.SIZES, output_sizes=calls.SIZES)
def slice_grad(
    input_gradient: ArrayLike,
    *,
    starts: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    output_sizes: Sequence[int],
) -> Array:
    """Puts elements back where `slice1` took them from: the gradient of `slice1` with respect to its input.

    `starts`, `sizes` and `strides` are those of `slice1`, and `output_sizes` is the shape of its input. The elements
    that `slice1` did not take are 0.

    >>> slice_grad(jnp.array([1, 2, 3]), starts=(2,), sizes=(5,), strides=(-2,), output_sizes=(8,)).tolist()
    [0, 0, 3, 0, 2, 0, 1, 0]
    """
    given = calls.real_array("input_gradient", input_gradient)
    calls.require_one_each("output_sizes", output_sizes, given)
    for i, size in enumerate(output_sizes):
        check_size(("output_sizes", i), size, 1)
    strides = _strides(given, starts, sizes, strides)
    _require_window(starts, sizes, strides, output_sizes, "output_sizes")
    for i, (count, most) in enumerate(zip(given.shape, map(_reached, sizes, strides), strict=True)):
        if not 1 <= count <= most:
            rule = f"must have a size of 1 to {most} along axis {i}, which strides[{i}] reaches in the window"
            raise InvalidDesc(Problem("input_gradient", rule, count))
    firsts = _firsts(starts, sizes, strides)
    lowest, steps, backwards = _places(firsts, given.shape, strides)
    lengths = [(count - 1) * step for count, step in zip(given.shape, steps, strict=True)]
    padding = [
        (low, size - low - length - 1, step - 1)
        for low, length, size, step in zip(lowest, lengths, output_sizes, steps, strict=True)
    ]

    def move(gradient: Array) -> Array:
        forwards = lax.rev(gradient, backwards) if backwards else gradient
        return lax.pad(forwards, jnp.zeros((), forwards.dtype), padding)

    return moved([given], output_sizes, move)


class SliceGradDesc(dml.Operator, function=slice_grad):
    input_gradient: dml.Input
    output_gradient: dml.Output
    input_window_offsets: dml.UintDimensions
    input_window_sizes: dml.UintDimensions
    input_window_strides: dml.IntDimensions
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_4_TO_5, input_gradient=UP_TO_32_BIT, output_gradient=UP_TO_32_BIT),
        FL_3_1=dml.rows(dml.RANK_1_TO_8, input_gradient=UP_TO_32_BIT, output_gradient=UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, input_gradient=UP_TO_64_BIT, output_gradient=UP_TO_64_BIT),
    )
    rules = _window_rules("output_gradient", "input_gradient")

    def attributes(self) -> dict[str, Any]:
        return {
            "starts": self.input_window_offsets,
            "sizes": self.input_window_sizes,
            "strides": self.input_window_strides,
            "output_sizes": self.output_gradient.sizes,
        }


# SPLIT and JOIN


@calls.operator_function(sizes=calls.SIZES, axis=calls.INTEGER)
def split(input: ArrayLike, *, sizes: Sequence[int], axis: int) -> tuple[Array, ...]:
    """Splits `input` along `axis` into arrays that have `sizes` there.

    >>> first, second = split(jnp.array([[1, 2, 3], [4, 5, 6]]), sizes=(1, 2), axis=1)
    >>> first.tolist(), second.tolist()
    ([[1], [4]], [[2, 3], [5, 6]])
    """
    input = calls.real_array("input", input)
    calls.require_rank("input", input, 1)
    axis = calls.normal_axis("axis", axis, input.ndim)
    if not sizes:
        raise InvalidDesc(Problem("sizes", "must have at least 1 element", tuple(sizes)))
    for i, size in enumerate(sizes):
        check_size(("sizes", i), size, 1)
    if sum(sizes) != input.shape[axis]:
        rule = f"must add up to {input.shape[axis]}, the size of input along axis {axis}"
        raise InvalidDesc(Problem("sizes", rule, tuple(sizes)))
    if len(sizes) == 1:
        return (moved([input], input.shape, lambda input: input),)
    shapes = [replaced(input.shape, axis, size) for size in sizes]
    # One operation for all parts: its gradient is one concatenation, where that of slices adds up padded parts.
    shardings = [kept_axes([input], shape) for shape in shapes]

    def move(floats: tuple[Array, ...], _: None) -> tuple[Array, ...]:
        return tuple(lax.split(floats[0], sizes, axis=axis))

    return partitioned(lambda input: copied(move, (input,)), [(input, dimension_axes(input))], *shardings)


@calls.operator_function(inputs=calls.ARRAYS, axis=calls.INTEGER)
def join(inputs: Sequence[ArrayLike], *, axis: int) -> Array:
    """Joins arrays one after the other along `axis`; they have one type, and the same sizes along the other axes.

    >>> join([jnp.array([[1], [4]]), jnp.array([[2, 3], [5, 6]])], axis=1).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    arrays = [calls.real_array(("inputs", i), x) for i, x in enumerate(inputs)]
    if not arrays:
        raise InvalidDesc(Problem("inputs", "must have at least 1 array", 0))
    named = {("inputs", i): x for i, x in enumerate(arrays)}
    arrays = list((named | calls.bring_into_one_type(named, ())).values())
    first = arrays[0]
    calls.require_rank(("inputs", 0), first, 1)
    axis = calls.normal_axis("axis", axis, first.ndim)
    for i, x in enumerate(arrays):
        calls.require_type(("inputs", i), x, first.dtype, "inputs[0]")
        if x.ndim != first.ndim or replaced(x.shape, axis) != replaced(first.shape, axis):
            rule = f"must have the shape of inputs[0], {first.shape}, except along axis {axis}"
            raise InvalidDesc(Problem(("inputs", i), rule, x.shape))
    sizes = replaced(first.shape, axis, sum(x.shape[axis] for x in arrays))
    return moved(arrays, sizes, lambda *given: lax.concatenate(given, axis))


def _parts_rules(parts: str, whole: str) -> tuple[dml.Rule, ...]:
    """The parts, one or more, are as large together as the whole along Axis, and have its sizes elsewhere."""

    def no_parts(desc: Any) -> Iterator[Problem]:
        if not getattr(desc, parts):
            yield Problem(desc.member(parts).name, "must have at least 1 tensor", 0)

    def other_sizes(desc: Any) -> Iterator[Problem]:
        tensors, entire = getattr(desc, parts), getattr(desc, whole)
        parts_name, whole_name = desc.member(parts).name, desc.member(whole).name
        if not tensors or desc.axis >= entire.rank:
            return
        alike = [tensor for tensor in tensors if tensor.rank == entire.rank]
        for i, tensor in enumerate(tensors):
            if tensor.rank == entire.rank and replaced(tensor.sizes, desc.axis) != replaced(entire.sizes, desc.axis):
                rule = f"must be {whole_name}.Sizes, {join_sizes(entire.sizes)}, except along Axis"
                yield Problem((parts_name, i, "Sizes"), rule, join_sizes(tensor.sizes))
        total = sum(tensor.sizes[desc.axis] for tensor in alike)
        if len(alike) == len(tensors) and total != entire.sizes[desc.axis]:
            rule = f"must have {entire.sizes[desc.axis]} elements along Axis together, as {whole_name} has"
            yield Problem(parts_name, rule, total)

    return dml.page_rules(
        dml.Rule(f"{{{parts}}} has at least one tensor.", no_parts),
        dml.same_type(parts, whole),
        dml.same_rank(parts, whole),
        dml.axis_of(whole),
        dml.Rule(
            f"{{{parts}}} and {{{whole}}} have the same Sizes, except along Axis, where those of {{{parts}}} add up.",
            other_sizes,
        ),
    )


class SplitDesc(dml.Operator, function=split):
    input: dml.Input
    outputs: dml.Outputs
    axis: dml.Uint
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, input=UP_TO_32_BIT - INTEGER_8, outputs=UP_TO_32_BIT - INTEGER_8),
        FL_2_1=dml.rows(dml.RANK_4, input=UP_TO_32_BIT, outputs=UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, outputs=UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, input=UP_TO_64_BIT, outputs=UP_TO_64_BIT),
    )
    rules = _parts_rules("outputs", "input")

    def attributes(self) -> dict[str, Any]:
        return {"sizes": tuple(tensor.sizes[self.axis] for tensor in self.outputs), "axis": self.axis}


class JoinDesc(dml.Operator, function=join):
    inputs: dml.Inputs
    output: dml.Output
    axis: dml.Uint
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, inputs=UP_TO_32_BIT - INTEGER_8, output=UP_TO_32_BIT - INTEGER_8),
        FL_2_1=dml.rows(dml.RANK_4, inputs=UP_TO_32_BIT, output=UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_4_TO_5, inputs=UP_TO_32_BIT, output=UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, inputs=UP_TO_64_BIT, output=UP_TO_64_BIT),
    )
    rules = _parts_rules("inputs", "output")


# TILE


@calls.operator_function(repeats=calls.SIZES)
def tile(input: ArrayLike, *, repeats: Sequence[int]) -> Array:
    """Repeats `input` as a whole, `repeats[i]` times along each dimension `i`.

    >>> tile(jnp.array([[1, 2], [3, 4]]), repeats=(1, 2)).tolist()
    [[1, 2, 1, 2], [3, 4, 3, 4]]
    """
    input = calls.real_array("input", input)
    calls.require_one_each("repeats", repeats, input)
    for i, repeat in enumerate(repeats):
        check_size(("repeats", i), repeat, 1)
    sizes = [size * repeat for size, repeat in zip(input.shape, repeats, strict=True)]
    return moved([input], sizes, lambda input: jnp.tile(input, tuple(repeats)))


class TileDesc(dml.Operator, function=tile):
    input: dml.Input
    output: dml.Output
    repeats: dml.Repeats
    support = dml.support(
        FL_1_0=dml.unary(dml.RANK_4, FLOAT),
        FL_2_1=dml.unary(dml.RANK_4, UP_TO_32_BIT),
        FL_3_1=dml.unary(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.unary(dml.RANK_1_TO_8, UP_TO_64_BIT - {DataType.FLOAT64}),
    )

    def _no_repeats(self) -> Iterator[Problem]:
        for i, repeat in enumerate(self.repeats):
            if repeat == 0:
                yield Problem(("Repeats", i), "must be at least 1", repeat)

    def _other_sizes(self) -> Iterator[Problem]:
        if len(self.repeats) == self.input.rank and all(self.repeats):
            expected = tuple(size * repeat for size, repeat in zip(self.input.sizes, self.repeats, strict=True))
            yield from dml.sizes_are(self, "output", expected)

    rules = dml.page_rules(
        dml.same_type("input", "output"),
        dml.same_rank("input", "output"),
        dml.one_each("input", "repeats"),
        dml.Rule("Each of Repeats is at least 1.", _no_repeats),
        dml.Rule("OutputTensor.Sizes are InputTensor.Sizes times Repeats.", _other_sizes),
    )


# SPACE_TO_DEPTH and DEPTH_TO_SPACE


@calls.operator_function(block_size=calls.INTEGER)
def space_to_depth(input: ArrayLike, *, block_size: int) -> Array:
    """Moves each block of `block_size` by `block_size` elements of an image into the channels.

    The last three dimensions of `input` are channels, height and width, and those before them are batches. The
    channels of the result are ordered by row and column in the block, and then by the channel of `input`.

    >>> space_to_depth(jnp.array([[[1, 2], [3, 4]]]), block_size=2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    return _space_to_depth(input, block_size, DepthSpaceOrder.DEPTH_COLUMN_ROW)


@calls.operator_function(block_size=calls.INTEGER, order=calls.one_of(DepthSpaceOrder))
def space_to_depth1(
    input: ArrayLike, *, block_size: int, order: DepthSpaceOrder = DepthSpaceOrder.DEPTH_COLUMN_ROW
) -> Array:
    """Moves each block of `block_size` by `block_size` elements of an image into the channels.

    The last three dimensions of `input` are channels, height and width, and those before them are batches. With
    DEPTH_COLUMN_ROW, the channels of the result are ordered by row and column in the block, and then by the channel of
    `input`; with COLUMN_ROW_DEPTH, by the channel of `input` first.

    >>> image = jnp.array([[[1, 2]], [[5, 6]]]).repeat(2, axis=1)
    >>> space_to_depth1(image, block_size=2, order=DepthSpaceOrder.COLUMN_ROW_DEPTH).ravel().tolist()
    [1, 2, 1, 2, 5, 6, 5, 6]
    """
    return _space_to_depth(input, block_size, order)


@calls.operator_function(block_size=calls.INTEGER)
def depth_to_space(input: ArrayLike, *, block_size: int) -> Array:
    """Moves the channels of an image into blocks of `block_size` by `block_size` elements; inverts `space_to_depth`.

    The last three dimensions of `input` are channels, height and width, and those before them are batches.

    >>> depth_to_space(jnp.array([[[1]], [[2]], [[3]], [[4]]]), block_size=2).tolist()
    [[[1, 2], [3, 4]]]
    """
    return _depth_to_space(input, block_size, DepthSpaceOrder.DEPTH_COLUMN_ROW)


@calls.operator_function(block_size=calls.INTEGER, order=calls.one_of(DepthSpaceOrder))
def depth_to_space1(
    input: ArrayLike, *, block_size: int, order: DepthSpaceOrder = DepthSpaceOrder.DEPTH_COLUMN_ROW
) -> Array:
    """Moves the channels of an image into blocks of `block_size` by `block_size` elements; inverts `space_to_depth1`.

    The last three dimensions of `input` are channels, height and width, and those before them are batches. With
    DEPTH_COLUMN_ROW, the channels of `input` are ordered by row and column in the block, and then by the channel of the
    result; with COLUMN_ROW_DEPTH, by the channel of the result first.

    >>> channels = jnp.arange(8).reshape(8, 1, 1)
    >>> depth_to_space1(channels, block_size=2, order=DepthSpaceOrder.COLUMN_ROW_DEPTH).tolist()
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    return _depth_to_space(input, block_size, order)


def _space_to_depth(input: ArrayLike, block: int, order: DepthSpaceOrder) -> Array:
    input = calls.real_array("input", input)
    calls.require_rank("input", input, 3)
    *batch, channels, height, width = input.shape
    _require_divisible(input, -2, "block_size", _block(block))
    _require_divisible(input, -1, "block_size", block)
    sizes = (*batch, channels * block * block, height // block, width // block)

    def move(input: Array) -> Array:
        blocks = input.reshape(*batch, channels, height // block, block, width // block, block)
        c, y, row, x, column = range(len(batch), len(batch) + 5)
        depth = (row, column, c) if order is DepthSpaceOrder.DEPTH_COLUMN_ROW else (c, row, column)
        return blocks.transpose(*range(len(batch)), *depth, y, x).reshape(sizes)

    return moved([input], sizes, move)


def _depth_to_space(input: ArrayLike, block: int, order: DepthSpaceOrder) -> Array:
    input = calls.real_array("input", input)
    calls.require_rank("input", input, 3)
    *batch, channels, height, width = input.shape
    _require_divisible(input, -3, "block_size * block_size", _block(block) ** 2)
    depth = channels // block**2
    sizes = (*batch, depth, height * block, width * block)

    def move(input: Array) -> Array:
        first = len(batch)
        if order is DepthSpaceOrder.DEPTH_COLUMN_ROW:
            row, column, c = first, first + 1, first + 2
            split = (block, block, depth)
        else:
            c, row, column = first, first + 1, first + 2
            split = (depth, block, block)
        blocks = input.reshape(*batch, *split, height, width)
        return blocks.transpose(*range(first), c, first + 3, row, first + 4, column).reshape(sizes)

    return moved([input], sizes, move)


def _block(block: int) -> int:
    return integer_in("block_size", block, 1, UINT_MAX)


def _require_divisible(input: Array, axis: int, name: str, divisor: int) -> None:
    if input.shape[axis] % divisor:
        rule = f"must have a multiple of {name}, {divisor}, elements along axis {axis}"
        raise InvalidDesc(Problem("input", rule, f"shape {input.shape}"))


class _Blocks(dml.Operator):
    """InputTensor and OutputTensor, of four dimensions, and the size of the blocks."""

    input: dml.Input
    output: dml.Output
    block_size: dml.Uint


def _block_rules(
    sentence: str, divisors: Callable[[int], dict[int, int]], sizes: Callable[..., tuple[int, ...]]
) -> tuple[dml.Rule, ...]:
    """InputTensor.Sizes are multiples of the divisors of their axes, by BlockSize; then OutputTensor has `sizes`."""

    def check(desc: Any) -> Iterator[Problem]:
        if desc.block_size == 0:
            yield Problem("BlockSize", "must be at least 1", desc.block_size)
        elif desc.input.rank == 4:  # the support table reports any other
            undivided = {a: n for a, n in divisors(desc.block_size).items() if desc.input.sizes[a] % n}
            for axis, divisor in undivided.items():
                place = ("InputTensor", "Sizes", axis)
                yield Problem(place, f"must be a multiple of {divisor}", desc.input.sizes[axis])
            if not undivided:
                yield from dml.sizes_are(desc, "output", sizes(desc.block_size, *desc.input.sizes))

    return dml.page_rules(dml.same_type("input", "output"), dml.Rule(sentence, check))


class _SpaceToDepth(_Blocks):
    rules = _block_rules(
        "BlockSize is at least 1, and divides the height and the width of InputTensor. OutputTensor has BlockSize * "
        "BlockSize times as many channels, each with a BlockSize-th of height and width.",
        lambda block: {2: block, 3: block},
        # The page has the sizes of DEPTH_TO_SPACE; its example has these.
        lambda block, batch, channels, height, width: (batch, channels * block**2, height // block, width // block),
    )


class _DepthToSpace(_Blocks):
    rules = _block_rules(
        "BlockSize is at least 1, and BlockSize * BlockSize divides the number of channels of InputTensor. "
        "OutputTensor has a BlockSize * BlockSize-th of the channels, with BlockSize times the height and the width.",
        lambda block: {1: block**2},
        lambda block, batch, channels, height, width: (batch, channels // block**2, height * block, width * block),
    )


_SINCE_2_1 = {"FL_2_1": dml.unary(dml.RANK_4, UP_TO_32_BIT), "FL_5_0": dml.unary(dml.RANK_4, UP_TO_64_BIT)}
_SINCE_1_0 = {"FL_1_0": dml.unary(dml.RANK_4, FLOAT), **_SINCE_2_1}


class SpaceToDepthDesc(_SpaceToDepth, function=space_to_depth):
    support = dml.support(**_SINCE_1_0)


class SpaceToDepth1Desc(_SpaceToDepth, function=space_to_depth1):
    order: dml.Order
    support = dml.support(**_SINCE_2_1)


class DepthToSpaceDesc(_DepthToSpace, function=depth_to_space):
    support = dml.support(**_SINCE_1_0)


class DepthToSpace1Desc(_DepthToSpace, function=depth_to_space1):
    order: dml.Order
    support = dml.support(**_SINCE_2_1)
