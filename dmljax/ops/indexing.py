"""Operators that produce or consume indices: ONE_HOT, NONZERO_COORDINATES, GATHER_ND and GATHER_ND1.

Input indices are of any integer type, and a negative index counts from the end. ONE_HOT ignores an index that is out of
range; the gathers clamp it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.export
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.checks import integer_in
from dmljax.errors import InvalidDesc, Problem
from dmljax.numerics.compaction import count_and_elements, packed
from dmljax.numerics.floats import copied, is_nonzero
from dmljax.numerics.sharding import dimension_axes, dividing_axes, partitioned
from dmljax.numerics.sizes import check_size, index_dtype, is_symbolic, largest_size, number
from dmljax.tensor import without_leading_ones
from dmljax.text import join_sizes, show
from dmljax.types import FLOAT, INDEX, UINT32, UP_TO_32_BIT, UP_TO_64_BIT, FeatureLevel

# ONE_HOT


@calls.operator_function(axis=calls.INTEGER, depth=calls.SIZE)
def one_hot(indices: ArrayLike, values: ArrayLike, *, axis: int, depth: int) -> Array:
    """One-hot encodes indices along `axis`: `values[1]` at the position of each index, and `values[0]` elsewhere.

    `indices` must have size 1 along `axis`, where the result has size `depth`. A negative index counts from the end; an
    index of an unsigned type is never negative. An index outside `[-depth, depth)` sets no element to `values[1]`. The
    two values are copied bit for bit; `values` may be longer, and its further elements are ignored.

    >>> one_hot(jnp.array([[-1], [9]]), jnp.array([0, 5]), axis=1, depth=3).tolist()
    [[0, 0, 5], [0, 0, 0]]
    """
    indices, values = calls.integer_array("indices", indices), calls.real_array("values", values)
    calls.require_rank("indices", indices, 1)
    is_new = axis == indices.ndim  # as jax.nn.one_hot counts, which adds the axis
    place = axis if is_new else calls.normal_axis("axis", axis, indices.ndim)
    check_size("depth", depth, 1)
    if is_new or indices.shape[place] != 1:
        own = next((i for i, size in enumerate(indices.shape) if size == 1), None)
        moved = f"jnp.moveaxis(indices, {own}, {axis}) puts its axis of size 1 there"
        remedy = f"jnp.expand_dims(indices, {axis}) adds such an axis" if own is None else moved
        raise InvalidDesc(
            Problem("indices", f"must have size 1 along axis {place}", f"shape {indices.shape}", remedy=remedy)
        )
    axis = place
    if values.size < 2:
        raise InvalidDesc(Problem("values", "must have at least 2 elements", values.size))
    sizes = (*indices.shape[:axis], depth, *indices.shape[axis + 1 :])
    # Positions out of range are not clamped, as they equal no index of the axis anyway: XLA on CPU recomputes the
    # position for each element of a short axis, and took twice as long with a clamp.
    position = _position(indices, depth)
    is_hot = lax.broadcasted_iota(position.dtype, sizes, axis) == position
    off_on = partitioned(lambda values: lax.slice(values.reshape(-1), (0,), (2,)), [(values, [])], [None])
    return copied(_on_or_off, (off_on,), is_hot)


def _position(indices: Array, depth: int) -> Array:
    """The position of each index, counted from the start, in an integer type that holds every position.

    The position of an index that is out of range is out of range, too, even where the addition wraps around.
    """
    index = indices if indices.dtype.itemsize >= 4 else indices.astype(np.int32)
    dtype = index_dtype("depth", depth) if index.dtype == np.int32 else index.dtype
    from_end = jnp.where(index < 0, number(depth, dtype), np.zeros((), dtype))
    return index.astype(dtype) + from_end


def _on_or_off(off_on: tuple[Array, ...], is_hot: Array) -> Array:
    off, on = off_on[0]
    return jnp.where(is_hot, on, off)


class OneHotDesc(dml.Operator, type="DML_OPERATOR_ONE_HOT", function=one_hot):
    """`DML_ONE_HOT_OPERATOR_DESC`, lowered to `one_hot`."""

    indices: dml.Input
    values: dml.Input
    output: dml.Output
    axis: dml.Uint
    support = dml.support(
        FL_2_0=dml.rows(dml.RANK_4, indices=UINT32, values=FLOAT, output=FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, indices=UINT32, values=UP_TO_32_BIT, output=UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, indices=INDEX, values=UP_TO_32_BIT, output=UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, indices=INDEX, values=UP_TO_64_BIT, output=UP_TO_64_BIT),
    )

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the page.

        - IndicesTensor, ValuesTensor and OutputTensor have the same DimensionCount.
        - ValuesTensor and OutputTensor have the same DataType.
        - Axis is less than the DimensionCount of these tensors.
        - IndicesTensor.Sizes equal OutputTensor.Sizes, except that the size along Axis is 1.
        - ValuesTensor has at least 2 elements.
        """
        yield from dml.same_rank(self, "indices", "values", "output")
        yield from dml.same_type(self, "values", "output")
        if self.axis >= self.indices.rank:
            yield Problem("Axis", f"must be less than {self.indices.rank}", self.axis)
        elif self.indices.rank == self.output.rank:
            sizes = list(self.output.sizes)
            sizes[self.axis] = 1
            yield from dml.sizes_are(self, "indices", tuple(sizes))
        if self.values.element_count < 2:
            yield Problem("ValuesTensor", "must have at least 2 elements", self.values.element_count)

    def attributes(self) -> dict[str, Any]:
        return super().attributes() | {"depth": self.output.sizes[self.axis]}


# NONZERO_COORDINATES


class NonzeroCoordinates(NamedTuple):
    """The result of `nonzero_coordinates`: the number of nonzero elements, and a row of coordinates for each.

    Rows from `count` on hold `fill_value`.

    >>> count, coordinates = nonzero_coordinates(jnp.array([0, 7, 0]))
    >>> int(count), coordinates.tolist()
    (1, [[1], [0], [0]])
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, which has no use in a pair
    coordinates: Array


jax.export.register_namedtuple_serialization(NonzeroCoordinates, serialized_name="dmljax.NonzeroCoordinates")


@calls.operator_function(size=calls.SIZE, columns=calls.INTEGER, fill_value=calls.INTEGER, dtype=calls.INTEGER_DTYPE)
def nonzero_coordinates(
    input: ArrayLike,
    *,
    size: int | None = None,
    columns: int | None = None,
    fill_value: int = 0,
    dtype: DTypeLike = jnp.uint32,
) -> NonzeroCoordinates:
    """Lists the coordinates of all nonzero elements, in row-major order.

    `coordinates` has `size` rows, by default as many as `input` has elements. `count` is the number of nonzero
    elements, even where that is more than `size`; rows from `count` on hold `fill_value`. `columns` is the number of
    coordinates in each row, by default the rank of `input`. With fewer, the coordinates of the leading dimensions are
    left out; these dimensions must have size 1. +0 and -0 are zero; NaN and every subnormal number are not.

    The results are uint32, as in DirectML, so that `count - 1` wraps around where `count` is 0; `dtype` may be any
    integer type that holds the count and the coordinates. If `dtype` is a signed type, `fill_value` may be negative,
    such as -1.

    If `input` is sharded over an explicit mesh, the devices exchange one bit for each element. The rows are sharded
    over the mesh axes of the first dimension of `input`, if these divide `size`.

    >>> count, coordinates = nonzero_coordinates(jnp.array([[1.0, 0.0], [-0.0, jnp.nan]]))
    >>> int(count), coordinates.tolist()
    (2, [[0, 0], [1, 1], [0, 0], [0, 0]])
    """
    input = calls.real_array("input", input)
    shape = input.shape or (1,)
    check_size(("input", "size"), math.prod(shape), 0)
    size = math.prod(shape) if size is None else size
    check_size("size", size, 0)
    fewest = max(1, len(without_leading_ones(shape)))
    columns = integer_in("columns", len(shape) if columns is None else columns, fewest, len(shape))
    limits = np.iinfo(dtype)
    largest = largest_size(math.prod(shape))
    if largest > limits.max:
        raise InvalidDesc(Problem("dtype", f"must hold counts up to {largest}", limits.dtype))
    remedy = "dtype=jnp.int32 holds it" if fill_value < 0 and limits.min == 0 else None
    fill = np.array(integer_in("fill_value", fill_value, limits.min, limits.max, remedy=remedy), limits.dtype)

    if input.size == 0:
        return NonzeroCoordinates(jnp.zeros_like(fill), jnp.full((size, columns), fill))

    axes = dimension_axes(input)
    row_axes = dividing_axes(axes[0], size, input) if axes else None
    # On an explicit mesh, devices exchange only the packed words; each device then lists its own rows.
    words = partitioned(lambda input: packed(is_nonzero(input).reshape(shape)), [(input, axes)], [None])

    def list_rows(words: Array) -> tuple[Array, Array]:
        count, element = count_and_elements(words, size, shape)
        coordinates = _stack_columns(_coordinates(element, shape)[-columns:])
        is_row = lax.iota(jnp.uint32, size) < count
        return count.astype(fill.dtype), jnp.where(is_row[:, None], coordinates.astype(fill.dtype), fill)

    return NonzeroCoordinates(*partitioned(list_rows, [(words, [None])], [], [row_axes, None]))


def _coordinates(element: Array, shape: tuple[int, ...]) -> list[Array]:
    coordinates = []
    for size in reversed(shape):
        coordinates.append(lax.rem(element, number(size, jnp.uint32)))
        element = lax.div(element, number(size, jnp.uint32))
    return coordinates[::-1]


def _stack_columns(columns: Sequence[Array]) -> Array:
    """Stacks vectors as the columns of a matrix.

    The columns are combined by selects. With `jnp.stack`, XLA on CPU would compute all vectors again for each column.
    """
    place = lax.broadcasted_iota(jnp.uint32, (*columns[0].shape, len(columns)), 1)
    matrix = jnp.broadcast_to(columns[0][:, None], place.shape)
    for i, column in enumerate(columns):
        matrix = jnp.where(place == np.uint32(i), column[:, None], matrix)
    return matrix


class NonzeroCoordinatesDesc(dml.Operator, type="DML_OPERATOR_NONZERO_COORDINATES", function=nonzero_coordinates):
    """`DML_NONZERO_COORDINATES_OPERATOR_DESC`, lowered to `nonzero_coordinates`."""

    input: dml.Input
    output_count: dml.Output
    output_coordinates: dml.Output
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_4_TO_5, input=UP_TO_32_BIT, output_count=UINT32, output_coordinates=UINT32),
        FL_4_0=dml.rows(
            dml.RANK_1_TO_8,
            input=UP_TO_32_BIT,
            output_count=UINT32,
            output_coordinates=dml.Cell(dml.RANK_2_TO_8, UINT32),
        ),
    )

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the page.

        - InputTensor, OutputCountTensor and OutputCoordinatesTensor have the same DimensionCount below level 4_0.
        - OutputCountTensor.Sizes are all 1.
        - OutputCoordinatesTensor.Sizes are 1 in all dimensions before the last two.
        - OutputCoordinatesTensor has one row for each element of InputTensor.
        - OutputCoordinatesTensor has one column for each dimension of InputTensor; leading dimensions of size 1 may
          have none.
        """
        # From level 4_0 on, the page's table allows the coordinates other ranks than the input.
        if feature_level < FeatureLevel.FL_4_0:
            yield from dml.same_rank(self, "input", "output_count", "output_coordinates")
        if self.output_count.element_count != 1:
            yield Problem(("OutputCountTensor", "Sizes"), "must all be 1", join_sizes(self.output_count.sizes))
        if self.output_coordinates.rank < 2:
            return  # the support table reports the rank
        *leading, row_count, columns = self.output_coordinates.sizes
        if any(size != 1 for size in leading):
            yield Problem(("OutputCoordinatesTensor", "Sizes"), "must be 1 before the last two", join_sizes(leading))
        if row_count != self.input.element_count:
            yield Problem(
                "OutputCoordinatesTensor", f"must have {self.input.element_count} rows, one for each element", row_count
            )
        fewest = max(1, self.input.effective_rank)
        if not fewest <= columns <= self.input.rank:
            yield Problem("OutputCoordinatesTensor", f"must have {fewest} to {self.input.rank} columns", columns)

    def attributes(self) -> dict[str, Any]:
        return {"columns": self.output_coordinates.sizes[-1]}

    def compute(self, **inputs: Any) -> NonzeroCoordinates:
        count, coordinates = super().compute(**inputs)
        return NonzeroCoordinates(
            count.reshape(self.output_count.sizes), coordinates.reshape(self.output_coordinates.sizes)
        )


# GATHER_ND and GATHER_ND1


@calls.operator_function
def gather_nd(input: ArrayLike, indices: ArrayLike) -> Array:
    """Gathers `input[tuple]` for each index tuple in the last dimension of `indices`: `gather_nd1` without batches.

    >>> gather_nd(jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 0], [-1, -1]])).tolist()
    [3, 4]
    """
    return _gather(input, indices, batch_dimension_count=0)


@calls.operator_function(batch_dimension_count=calls.INTEGER)
def gather_nd1(input: ArrayLike, indices: ArrayLike, *, batch_dimension_count: int = 0) -> Array:
    """Gathers `input[batch, tuple]` for each index tuple in the last dimension of `indices[batch]`.

    The first `batch_dimension_count` dimensions of `input` and of `indices` are the batch. A negative index counts from
    the end; an index that is still out of range is clamped to its own dimension. The gradient of an element of `input`
    is the sum of the gradients of all output elements gathered from it.

    >>> gather_nd1(jnp.array([[1, 2], [3, 4]]), jnp.array([[-1], [0]]), batch_dimension_count=1).tolist()
    [2, 3]
    """
    return _gather(input, indices, batch_dimension_count=batch_dimension_count)


def _gather(input: ArrayLike, indices: ArrayLike, *, batch_dimension_count: int) -> Array:
    input, indices = calls.real_array("input", input), calls.integer_array("indices", indices)
    calls.require_rank("input", input, 1)
    calls.require_rank("indices", indices, 1)
    names = "input", "indices", "batch_dimension_count"
    for problem in _tuple_problems(input.shape, indices.shape, batch_dimension_count, names):
        raise InvalidDesc(problem)
    batch, tuple_end = batch_dimension_count, batch_dimension_count + indices.shape[-1]
    bounds, block = input.shape[batch:tuple_end], input.shape[tuple_end:]
    output_shape = indices.shape[:-1] + block
    if math.prod(output_shape) == 0:
        return jnp.zeros_like(input, shape=output_shape)
    if 0 in bounds:
        raise InvalidDesc(Problem("input", "must have elements to fetch", f"shape {input.shape}"))
    dtype = index_dtype("input", *bounds)
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(indices.ndim - 1, len(output_shape))),
        collapsed_slice_dims=tuple(range(batch, tuple_end)),
        start_index_map=tuple(range(batch, tuple_end)),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
    )
    sizes = (1,) * tuple_end + block

    def fetch(inputs: tuple[Array, ...], position: Array) -> Array:
        return lax.gather(inputs[0], position, dimensions, sizes, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)

    def fetch_tuples(input: Array, indices: Array) -> Array:
        # Coordinates are clamped one at a time: XLA cannot partition a gather whose tuples were computed as a whole and
        # are sharded along the tuple.
        coordinates = zip(jnp.unstack(indices, axis=-1), bounds, strict=True)
        position = jnp.stack([_clamp_indices(index, size, dtype) for index, size in coordinates], axis=-1)
        return copied(fetch, (input,), position)

    batch_axes = [a or b for a, b in zip(dimension_axes(input)[:batch], dimension_axes(indices)[:batch], strict=True)]
    input_axes = batch_axes + dimension_axes(input)[batch:]
    indices_axes = batch_axes + dimension_axes(indices)[batch:]
    operands = [(input, input_axes), (indices, indices_axes)]
    return partitioned(fetch_tuples, operands, indices_axes[:-1] + input_axes[tuple_end:])


def _clamp_indices(indices: Array, size: int, dtype: np.dtype[Any]) -> Array:
    """The indices clamped to [-size, size) and then counted from the start, as integers of `dtype`.

    The bounds are limited to the range of the indices' own type, so that indices are clamped before they are converted
    and the conversion to `dtype` cannot change one.
    """
    # 8 and 16 bits may be too few for a symbolic size.
    indices = indices if indices.dtype.itemsize >= 4 else indices.astype(np.int32)
    limits = np.iinfo(indices.dtype)
    last = number(size - 1 if is_symbolic(size) else min(size - 1, limits.max), indices.dtype)
    lowest = ~last if limits.min else np.zeros((), indices.dtype)
    clamped = jnp.clip(indices, lowest, last)
    from_end = jnp.where(clamped < 0, number(size, dtype), np.zeros((), dtype))
    return clamped.astype(dtype) + from_end


def _tuple_problems(
    input_sizes: Sequence[int], indices_sizes: Sequence[int], batch: int, names: tuple[str, str, str]
) -> Iterator[Problem]:
    """The broken rules that relate the sizes of input and indices and the batch dimension count.

    `names` are the names of these three in the messages.
    """
    input, indices, count = names
    lower_rank = min(len(input_sizes), len(indices_sizes))
    if not 0 <= batch < lower_rank:
        yield Problem(count, f"must be in [0, {lower_rank})", show(batch))
        return
    batches = tuple(input_sizes[:batch]), tuple(indices_sizes[:batch])
    if batches[0] != batches[1]:
        given = f"{join_sizes(batches[0])} and {join_sizes(batches[1])}"
        yield Problem(input, "must have the same batch sizes", given, [(indices,)])
    longest, tuple_size = len(input_sizes) - batch, indices_sizes[-1]
    if not 1 <= tuple_size <= longest:
        yield Problem(indices, f"must hold tuples of 1 to {longest} coordinates", tuple_size)


class _GatherDesc(dml.Operator):
    """The members and rules that GATHER_ND and GATHER_ND1 share.

    InputDimensionCount and IndicesDimensionCount say how many trailing dimensions a tensor really has: the dimensions
    before these only fill the tensor up to the common DimensionCount.
    """

    input: dml.Input
    indices: dml.Input
    output: dml.Output
    input_dimension_count: dml.Uint
    indices_dimension_count: dml.Uint

    @property
    def _batch(self) -> int:
        return 0

    def attributes(self) -> dict[str, Any]:
        return {}

    def _natural_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        input_leading = self.input.rank - self.input_dimension_count
        return self.input.sizes[input_leading:], self.indices.sizes[self.indices.rank - self.indices_dimension_count :]

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the page.

        - IndicesTensor, InputTensor and OutputTensor have the same DimensionCount.
        - InputTensor and OutputTensor have the same DataType.
        - InputDimensionCount and IndicesDimensionCount are in [1, DimensionCount].
        - InputTensor.Sizes are 1 before the last InputDimensionCount dimensions.
        - IndicesTensor.Sizes are 1 before the last IndicesDimensionCount dimensions.
        - BatchDimensionCount, if the operator has it, is less than InputDimensionCount and IndicesDimensionCount.
        - InputTensor and IndicesTensor have the same batch sizes.
        - IndicesTensor holds tuples of 1 to as many coordinates as InputTensor has dimensions after the batch.
        - OutputTensor.Sizes are the sizes of IndicesTensor except its last, followed by the sizes of InputTensor after
          the batch and the dimensions that a tuple indexes.
        - OutputTensor.Sizes are padded with leading 1s to the DimensionCount of OutputTensor.
        """
        yield from dml.same_rank(self, "indices", "input", "output")
        yield from dml.same_type(self, "input", "output")
        broken = False
        for tensor, count in (("input", self.input_dimension_count), ("indices", self.indices_dimension_count)):
            sizes, name = getattr(self, tensor).sizes, self.member(tensor).name
            if not 1 <= count <= len(sizes):
                counted = f"{name.removesuffix('Tensor')}DimensionCount"
                yield Problem(counted, f"must be in [1, {len(sizes)}]", count)
                broken = True
            elif any(size != 1 for size in sizes[: len(sizes) - count]):
                yield Problem((name, "Sizes"), f"must be 1 before the last {count}", join_sizes(sizes))
                broken = True
        if broken:
            return
        natural_input, natural_indices = self._natural_sizes()
        names = "InputTensor", "IndicesTensor", "BatchDimensionCount"
        for problem in _tuple_problems(natural_input, natural_indices, self._batch, names):
            yield problem
            broken = True
        if broken:
            return
        # The page's formula contradicts both of its examples, in which only the dimensions of the input that the tuples
        # do not index come last. The examples decide.
        natural = natural_indices[:-1] + natural_input[self._batch + natural_indices[-1] :]
        expected = (1,) * (self.output.rank - len(natural)) + natural
        yield from dml.sizes_are(self, "output", expected)

    def compute(self, **inputs: Any) -> Array:
        input, indices = (
            inputs[field].reshape(sizes)
            for field, sizes in zip(("input", "indices"), self._natural_sizes(), strict=True)
        )
        output: Array = super().compute(input=input, indices=indices)
        return output.reshape(self.output.sizes)


class GatherNdDesc(_GatherDesc, type="DML_OPERATOR_GATHER_ND", function=gather_nd):
    """`DML_GATHER_ND_OPERATOR_DESC`, lowered to `gather_nd`."""

    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, input=UP_TO_32_BIT, indices=UINT32, output=UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, indices=INDEX, output=UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, input=UP_TO_64_BIT, indices=INDEX, output=UP_TO_64_BIT),
    )


class GatherNd1Desc(_GatherDesc, type="DML_OPERATOR_GATHER_ND1", function=gather_nd1):
    """`DML_GATHER_ND1_OPERATOR_DESC`, lowered to `gather_nd1`."""

    batch_dimension_count: dml.Uint
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, indices=INDEX, output=UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, input=UP_TO_64_BIT, indices=INDEX, output=UP_TO_64_BIT),
    )

    @property
    def _batch(self) -> int:
        return self.batch_dimension_count

    def attributes(self) -> dict[str, Any]:
        return {"batch_dimension_count": self.batch_dimension_count}
