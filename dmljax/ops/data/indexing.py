"""Operators that produce or consume indices: ONE_HOT and NONZERO_COORDINATES.

The indices of ONE_HOT may have any integer type. Negative ones count from the end; those out of range are ignored.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.descriptors.tensor import without_leading_ones
from dmljax.errors import InvalidDesc, Problem, require
from dmljax.foundation.checks import INT_MAX, integer_in, require_count
from dmljax.foundation.dimensions import index_dtype, largest_size, number, replace_at
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes, dividing_axes, may_be_sharded
from dmljax.foundation.sizes import Sizes, require_dimensions, require_sizes
from dmljax.lowerings.copies import copy_exactly
from dmljax.lowerings.numbers.conversion import convert_positions
from dmljax.lowerings.numbers.floats import is_nonzero
from dmljax.lowerings.platform import choose
from dmljax.lowerings.rows.compaction import count_and_elements, count_and_elements_by_scatter, pack_bits
from dmljax.text import join_sizes
from dmljax.types import FLOAT, INDEX, UINT32, UP_TO_32_BIT, UP_TO_64_BIT, FeatureLevel

# ONE_HOT


def _one_hot_sizes(indices: Sizes, values: Sizes, axis: int, depth: int) -> Sizes:
    require_count("depth", depth, 1)
    require_sizes("indices", indices, replace_at(indices, axis, 1))
    require("values", math.prod(values) >= 2, "must have at least 2 elements", math.prod(values))
    return replace_at(indices, axis, depth)


@calls.operator_function
def one_hot(indices: ArrayLike, values: ArrayLike, *, axis: int = -1, depth: calls.Size) -> Array:
    """One-hot encodes indices along `axis`: `values[1]` at the position of each index, and `values[0]` elsewhere.

    `indices` must have size 1 along `axis`, where the result has size `depth`. A negative index counts from the end; an
    index of an unsigned type is never negative. An index outside `[-depth, depth)` sets no element to `values[1]`. The
    two values are copied bit for bit; `values` may be longer, and its further elements are ignored.

    Args:
        indices: Integers, of size 1 along `axis`; a negative index counts from the end.
        values: Two numbers: what to write elsewhere, and then what to write at the index.
        axis: Axis of the encoding; a negative axis counts from the end.
        depth: Size of the result along `axis`.

    Returns:
        Array of the shape of `indices` with `depth` along `axis`, in the type of `values`.

    >>> one_hot(jnp.array([[-1], [9]]), jnp.array([0, 5]), axis=1, depth=3).tolist()
    [[0, 0, 5], [0, 0, 0]]
    """
    indices, values = calls.integer_array("indices", indices), calls.real_array("values", values)
    require_dimensions("indices", indices.shape, 1)
    is_new = axis == indices.ndim  # counted as in jax.nn.one_hot, which adds the axis
    place = axis if is_new else calls.normal_axis(axis, indices, "indices")
    if is_new or indices.shape[place] != 1:
        axis_of_size_1 = next((i for i, size in enumerate(indices.shape) if size == 1), None)
        move_remedy = f"jnp.moveaxis(indices, {axis_of_size_1}, {axis}) puts its axis of size 1 there"
        remedy = f"jnp.expand_dims(indices, {axis}) adds such an axis" if axis_of_size_1 is None else move_remedy
        raise InvalidDesc(
            Problem("indices", f"must have size 1 along axis {place}", f"shape {indices.shape}", remedy=remedy)
        )
    axis = place
    sizes = _one_hot_sizes(indices.shape, values.shape, axis, depth)
    # Positions out of range are not clamped, as they equal no index of the axis anyway: XLA on CPU recomputes the
    # position for each element of a short axis, and took twice as long with a clamp.
    position = _position(indices, depth)
    is_hot = lax.broadcasted_iota(position.dtype, sizes, axis) == position
    off_on = call_with_auto_axes(lambda values: lax.slice(values.reshape(-1), (0,), (2,)), [(values, [])], [None])
    return copy_exactly(_select_value, (off_on,), is_hot)


def _position(indices: Array, depth: int) -> Array:
    """The position of each index, counted from the start, in an integer type that holds every position.

    The position of an index that is out of range is also out of range, even where the addition wraps around.
    """
    index = indices if indices.dtype.itemsize >= 4 else indices.astype(np.int32)
    dtype = index_dtype("depth", depth) if index.dtype == np.int32 else index.dtype
    from_end = jnp.where(index < 0, number(depth, dtype), np.zeros((), dtype))
    return index.astype(dtype) + from_end


def _select_value(off_on: tuple[Array, ...], is_hot: Array) -> Array:
    off, on = off_on[0]
    return jnp.where(is_hot, on, off)


class OneHotDesc(dml.Operator, function=one_hot, infer=_one_hot_sizes):
    indices: dml.Input
    values: dml.Input
    output: dml.Output
    axis: dml.Uint
    support = dml.support(
        FL_2_0=dml.rows(dml.RANK_4, FLOAT, indices=UINT32),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT, indices=UINT32),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT, indices=INDEX),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT, indices=INDEX),
    )

    rules = dml.page_rules(
        dml.same_rank("indices", "values", "output"),
        dml.same_type("values", "output"),
        dml.axis_within("indices"),
        *dml.infer_rules(
            "IndicesTensor.Sizes equal OutputTensor.Sizes, except that the size along Axis is 1.",
            "ValuesTensor has at least 2 elements.",
        ),
    )

    derived = {"depth": lambda desc: desc.output.sizes[desc.axis]}


# NONZERO_COORDINATES


@calls.result
class NonzeroCoordinates(NamedTuple):
    """The result of `nonzero_coordinates`: the number of nonzero elements, and a row of coordinates for each.

    Rows from `count` on hold `fill_value`.

    >>> count, coordinates = nonzero_coordinates(jnp.array([0, 7, 0]))
    >>> int(count), coordinates.tolist()
    (1, [[1], [0], [0]])
    """

    count: Array  # type: ignore[assignment]  # hides tuple.count, which has no use in a pair
    coordinates: Array


@calls.operator_function
def nonzero_coordinates(
    input: ArrayLike,
    *,
    size: calls.Size | None = None,
    columns: int | None = None,
    fill_value: int = 0,
    dtype: calls.IntegerDType = jnp.int32,
) -> NonzeroCoordinates:
    """Lists the coordinates of all nonzero elements, in row-major order.

    `count` is the number of nonzero elements, even where that is more than `size`. With fewer `columns` than
    dimensions, the coordinates of the leading dimensions are left out; these dimensions must have size 1. +0 and -0 are
    zero; NaN and every subnormal number are not.

    `dtype` must hold the count and the coordinates. `fill_value` may be negative, such as -1, if the type is signed.

    If `input` is sharded over an explicit mesh, the devices exchange one bit for each element. The rows are sharded
    over the mesh axes of the first dimension of `input`, if these divide `size`.

    Args:
        size: Number of rows of coordinates; None means as many as `input` has elements.
        columns: Number of coordinates in a row; None means one for each dimension of `input`.
        fill_value: What rows from `count` on hold.
        dtype: Integer type of `count` and `coordinates`.

    Returns:
        The number of nonzero elements, and their coordinates, (size, columns).

    >>> count, coordinates = nonzero_coordinates(jnp.array([[1.0, 0.0], [-0.0, jnp.nan]]))
    >>> int(count), coordinates.tolist()
    (2, [[0, 0], [1, 1], [0, 0], [0, 0]])
    """
    input = calls.real_array("input", input)
    shape = input.shape or (1,)
    require_count(("input", "size"), math.prod(shape), 0)
    size = math.prod(shape) if size is None else size
    require_count("size", size, 0)
    fewest = max(1, len(without_leading_ones(shape)))
    columns = integer_in("columns", len(shape) if columns is None else columns, fewest, len(shape))
    limits = np.iinfo(dtype)
    largest = largest_size(math.prod(shape))
    calls.require_holds(limits.dtype, "counts", largest)
    remedy = "use dtype=jnp.int32" if fill_value < 0 and limits.min == 0 else None
    fill = np.array(integer_in("fill_value", fill_value, limits.min, limits.max, remedy=remedy), limits.dtype)

    if input.size == 0:
        return NonzeroCoordinates(jnp.zeros_like(fill), jnp.full((size, columns), fill))

    axes = dimension_axes(input)
    row_axes = dividing_axes(axes[0], size, input) if axes else None

    def present(input: Array) -> Array:
        return is_nonzero(input).reshape(shape)

    def rows(count: Array, element: Array) -> tuple[Array, Array]:
        coordinates = _stack_columns(_coordinates(element, shape)[-columns:])
        is_row = lax.iota(count.dtype, size) < count
        return convert_positions(fill.dtype, count), jnp.where(
            is_row[:, None], convert_positions(fill.dtype, coordinates), fill
        )

    def by_words(input: Array) -> tuple[Array, Array]:
        # On an explicit mesh, devices exchange only the packed words; each device then lists its own rows.
        words = call_with_auto_axes(lambda input: pack_bits(present(input)), [(input, axes)], [None])
        list_rows = lambda words: rows(*count_and_elements(words, size, shape))  # noqa: E731
        return call_with_auto_axes(list_rows, [(words, [None])], [], [row_axes, None])

    def by_scatter(input: Array) -> tuple[Array, Array]:
        return rows(*count_and_elements_by_scatter(present(input), size))

    # XLA scatters to positions of int32, and one device writes all rows.
    can_scatter = not may_be_sharded(input) and max(map(largest_size, (size, math.prod(shape)))) <= INT_MAX
    return NonzeroCoordinates(*(choose(input, tpu=by_scatter, default=by_words) if can_scatter else by_words(input)))


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


class NonzeroCoordinatesDesc(dml.Operator, function=nonzero_coordinates):
    input: dml.Input
    output_count: dml.Output
    output_coordinates: dml.Output
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_4_TO_5, UINT32, input=UP_TO_32_BIT),
        FL_4_0=dml.rows(
            dml.RANK_1_TO_8,
            input=UP_TO_32_BIT,
            output_count=UINT32,
            output_coordinates=dml.Cell(dml.RANK_2_TO_8, UINT32),
        ),
    )

    def _other_ranks(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        # From level 4_0 on, the page's table allows the coordinates other ranks than the input.
        if feature_level < FeatureLevel.FL_4_0:
            yield from dml.same_rank("input", "output_count", "output_coordinates").check(self)

    def _other_coordinates(self) -> Iterator[Problem]:
        if self.output_coordinates.rank < 2:
            return  # the support table reports the rank
        *leading, row_count, columns = self.output_coordinates.sizes
        if any(size != 1 for size in leading):
            yield Problem(("OutputCoordinatesTensor", "Sizes"), "must be 1 before the last two", join_sizes(leading))
        if row_count != self.input.element_count:
            rule = f"must have {self.input.element_count} rows, one for each element"
            yield Problem("OutputCoordinatesTensor", rule, row_count)
        fewest = max(1, self.input.effective_rank)
        if not fewest <= columns <= self.input.rank:
            yield Problem("OutputCoordinatesTensor", f"must have {fewest} to {self.input.rank} columns", columns)

    rules = dml.page_rules(
        dml.LevelRule(
            "Below level 4_0, InputTensor, OutputCountTensor and OutputCoordinatesTensor have the same DimensionCount.",
            _other_ranks,
        ),
        dml.one_element("output_count"),
        dml.Rule(
            "OutputCoordinatesTensor has one row for each element of InputTensor, and one column for each dimension; "
            "leading dimensions of size 1 may have none. Its Sizes are 1 before the last two.",
            _other_coordinates,
        ),
    )

    derived = {"columns": lambda desc: desc.output_coordinates.sizes[-1]}
