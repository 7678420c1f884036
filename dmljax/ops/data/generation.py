"""Operators that generate tensors: DIAGONAL_MATRIX, FILL_VALUE_CONSTANT, FILL_VALUE_SEQUENCE and RANDOM_GENERATOR.

Args:
    dtype: Type of the result; None means that of `value`.

Returns:
    Array of the shape `output_sizes`.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, InvalidType, Problem, require
from dmljax.foundation.checks import INT_MAX, INT_MIN, UINT_MAX, integer_in, require_counts
from dmljax.foundation.dimensions import is_symbolic, largest_size, number
from dmljax.foundation.scalars import truncate
from dmljax.foundation.sharding import call_with_auto_axes
from dmljax.foundation.sizes import require_dimensions, with_leading_ones
from dmljax.lowerings.copies import copy_exactly
from dmljax.lowerings.numbers.philox import advance, random_words
from dmljax.types import (
    FLOAT,
    FLOATS,
    UINT32,
    UP_TO_32_BIT,
    UP_TO_64_BIT,
    DataType,
    RandomGeneratorType,
    RandomGeneratorTypeLike,
    widened,
)

# DIAGONAL_MATRIX and DIAGONAL_MATRIX1


@calls.operator_function
def diagonal_matrix(
    value: calls.TruncatedNumber, *, offset: int = 0, output_sizes: Sequence[int], dtype: DTypeLike | None = None
) -> Array:
    """Makes matrices with `value` on the diagonal where column - row equals `offset`, and 0 elsewhere.

    The dimensions before the last two are batches. A Python number as `value` is truncated toward zero if `dtype` is an
    integer type.

    Use `diagonal_matrix1` for bands and triangles.

    Args:
        value: Number on the diagonal.
        offset: Number of places by which the diagonal lies to the right of the top left corner.
        output_sizes: Shape of the result; the last two are the height and width of a matrix.

    >>> diagonal_matrix(2.5, offset=1, output_sizes=(2, 3), dtype="int8").tolist()
    [[0, 2, 0], [0, 0, 2]]
    """
    integer_in("offset", offset, INT_MIN, INT_MAX)
    return _fill_diagonals(None, calls.real_array("value", value), offset, offset + 1, output_sizes)


@calls.operator_function
def diagonal_matrix1(
    input: ArrayLike | None,
    value: calls.Number,
    *,
    diagonal_fill_begin: int | None = None,
    diagonal_fill_end: int | None = None,
    output_sizes: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Fills a band of diagonals with `value`; the other elements are those of `input`, or 0 if `input` is None.

    The band consists of the diagonals in `[diagonal_fill_begin, diagonal_fill_end)`. Diagonal 0 begins at the top left,
    and diagonal 1 lies to its right. A bound that is None lies beyond the outermost diagonal, as in a slice. If begin
    is greater than end, all elements outside the diagonals `[end, begin)` are filled; if begin equals end, no element
    is filled. The last two dimensions are the matrix, and the dimensions before them are batches.

    If the result is of an integer type, a Python number as `value` must be exactly representable in it.

    Args:
        input: Matrices to copy; None means zeros.
        value: Number to write into the band.
        diagonal_fill_begin: First diagonal of the band; None means the lowest.
        diagonal_fill_end: Diagonal after the last of the band; None means that the highest is the last.
        output_sizes: Shape of the result; None means that of `input`.
        dtype: Type of the result; None means that of `input`, else of `value`.

    Returns:
        Array of the shape of `input`, else of the shape `output_sizes`.

    >>> diagonal_matrix1(
    ...     None, 7, diagonal_fill_begin=0, diagonal_fill_end=2, output_sizes=(2, 3)
    ... ).tolist()
    [[7, 7, 0], [0, 7, 7]]
    >>> diagonal_matrix1(
    ...     None, -jnp.inf, diagonal_fill_begin=1, output_sizes=(2, 3)
    ... ).tolist()
    [[0.0, -inf, -inf], [0.0, 0.0, -inf]]
    >>> diagonal_matrix1(
    ...     jnp.array([[4, 7], [1, 2]]), 0, diagonal_fill_begin=1, diagonal_fill_end=0
    ... ).tolist()
    [[4, 0], [0, 2]]
    """
    begin = INT_MIN if diagonal_fill_begin is None else diagonal_fill_begin
    end = INT_MAX if diagonal_fill_end is None else diagonal_fill_end
    integer_in("diagonal_fill_begin", begin, INT_MIN, INT_MAX)
    integer_in("diagonal_fill_end", end, INT_MIN, INT_MAX)
    value = calls.real_array("value", value)
    if input is None:
        return _fill_diagonals(None, value, begin, end, output_sizes)
    input = calls.real_array("input", input)
    require_dimensions("input", input.shape, 2)
    if dtype is not None and dtype != input.dtype:
        raise InvalidType(Problem("dtype", f"must be the dtype of input, {input.dtype}", dtype))
    if output_sizes is not None and tuple(output_sizes) != input.shape:
        raise InvalidDesc(Problem("output_sizes", f"must be the shape of input, {input.shape}", output_sizes))
    return _fill_diagonals(input, value, begin, end, input.shape)


def _fill_diagonals(input: Array | None, value: Array, begin: int, end: int, sizes: Sequence[int] | None) -> Array:
    if sizes is None:
        raise InvalidDesc(Problem("output_sizes", "must be given if input is None", "None"))
    require("output_sizes", len(sizes) >= 2, "must have at least 2 elements", tuple(sizes))
    require_counts("output_sizes", sizes, 0)
    is_filled = _band_mask(tuple(sizes), begin, end)
    return copy_exactly(_select_value, (value,) if input is None else (value, input), is_filled)


def _select_value(floats: tuple[Array, ...], is_filled: Array) -> Array:
    value, *input = floats
    return jnp.where(is_filled, value, *input or [jnp.zeros_like(value)])


def _band_mask(sizes: tuple[int, ...], begin: int, end: int) -> Array:
    """A mask of the elements to fill, by the page's pseudo-code."""
    *batch, height, width = sizes
    dtype = np.int32 if max(map(largest_size, (height, width))) <= INT_MAX else np.int64
    with jax.enable_x64(True):  # int64 for the diagonals of a matrix with more than INT_MAX rows or columns
        rows = lax.broadcasted_iota(dtype, (1,) * len(batch) + (height, 1), len(batch))
        diagonal = lax.broadcasted_iota(dtype, sizes, len(batch) + 1) - rows
        if end == begin + 1:
            return diagonal == np.array(begin, dtype)
        after_begin, before_end = diagonal >= np.array(begin, dtype), diagonal < np.array(end, dtype)
        return (after_begin ^ before_end) ^ (end >= begin)


def _element_count(sizes: Sequence[int]) -> int:
    """The number of elements, which a UINT must hold."""
    require_counts("output_sizes", sizes, 0)
    count = math.prod(sizes)
    require("output_sizes", is_symbolic(count) or count <= UINT_MAX, f"must have at most {UINT_MAX} elements", count)
    return count


class DiagonalMatrixDesc(dml.Operator, function=diagonal_matrix):
    output: dml.Output
    offset: dml.Int
    value: dml.Float
    support = dml.support(
        FL_2_0=dml.rows(dml.RANK_4, FLOAT),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_4_0=dml.rows(dml.RANK_2_TO_4, UP_TO_32_BIT),
        FL_5_1=dml.rows(dml.RANK_2_TO_4, UP_TO_64_BIT),
    )

    def _misfits(self) -> Iterator[Problem]:
        # The page truncates 10.6 to 10. It is silent on values out of the range of the output's type, such as 300 for
        # UINT8, NaN for INT32 or 1e6 for FLOAT16: C++ leaves the results of those casts undefined, so they are refused.
        yield from dml.find_refusals(truncate, "Value", self.value, self.output.dtype)

    rules = dml.page_rules(
        dml.Rule(
            "Value fits OutputTensor.DataType; for an integer type, Value is truncated toward zero first.", _misfits
        )
    )


class DiagonalMatrix1Desc(dml.Operator, function=diagonal_matrix1):
    input: dml.OptionalInput = None
    output: dml.Output
    value_data_type: dml.Enumerator[DataType]
    value: dml.ScalarUnion
    diagonal_fill_begin: dml.Int
    diagonal_fill_end: dml.Int
    support = dml.support(FL_5_1=dml.rows(dml.RANK_2_TO_4, UP_TO_64_BIT))
    rules = dml.page_rules(
        *dml.same_type_and_rank("input", "output"),
        dml.same_sizes("input", "output"),
        dml.has_type("value_data_type", "output"),
    )


# FILL_VALUE_CONSTANT


@calls.operator_function
def fill_value_constant(value: calls.Number, *, output_sizes: Sequence[int], dtype: DTypeLike | None = None) -> Array:
    """Fills an array of `output_sizes` with `value`.

    If `dtype` is an integer type, a Python number as `value` must be exactly representable in it.

    Args:
        value: Number in all elements.

    >>> fill_value_constant(13, output_sizes=(2, 3), dtype="int8").tolist()
    [[13, 13, 13], [13, 13, 13]]
    """
    require_counts("output_sizes", output_sizes, 0)
    fill = lambda values, _: jnp.broadcast_to(values[0], tuple(output_sizes))  # noqa: E731
    return copy_exactly(fill, (calls.real_array("value", value),))


class FillValueConstantDesc(dml.Operator, function=fill_value_constant):
    output: dml.Output
    value_data_type: dml.Enumerator[DataType]
    value: dml.ScalarUnion
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_4_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT),
    )
    rules = dml.page_rules(dml.has_type("value_data_type", "output"))


# FILL_VALUE_SEQUENCE


@calls.operator_function
def fill_value_sequence(
    value_start: calls.Number,
    value_delta: calls.StepNumber,
    *,
    output_sizes: Sequence[int],
    dtype: DTypeLike | None = None,
) -> Array:
    """Fills an array of `output_sizes`, row by row, with `value_start`, `value_start + value_delta` and so on.

    Element `i` is `value_start + i * value_delta`, so errors do not accumulate. The first element is `value_start`,
    even if `value_delta` is infinite. 16-bit floats are computed in float32. Integers wrap around, and `value_delta`
    may be negative even in an unsigned type.

    Args:
        value_start: First element.
        value_delta: Difference between an element and the one before it.
        dtype: Type of the result; None means that of the numbers.

    >>> fill_value_sequence(10, -2, output_sizes=(2, 2), dtype="uint8").tolist()
    [[10, 8], [6, 4]]
    >>> float(fill_value_sequence(0.0, 0.1, output_sizes=(1001,), dtype="float32")[1000])
    100.0
    """
    count = _element_count(output_sizes)
    start, delta = calls.number_array("value_start", value_start), calls.number_array("value_delta", value_delta)
    if start.dtype != delta.dtype:  # two Python numbers, one of which is a float
        common = start.dtype if start.dtype in FLOATS else delta.dtype
        start, delta = start.astype(common), delta.astype(common)
    index = lax.iota(np.uint64 if start.dtype.itemsize == 8 else np.uint32, count)
    wide = widened(start.dtype) if start.dtype in FLOATS else start.dtype
    elements = (start.astype(wide) + index.astype(wide) * delta.astype(wide)).astype(start.dtype)
    return jnp.where(index == 0, start, elements).reshape(tuple(output_sizes))


class FillValueSequenceDesc(dml.Operator, function=fill_value_sequence):
    output: dml.Output
    value_data_type: dml.Enumerator[DataType]
    value_start: dml.ScalarUnion
    value_delta: dml.StepUnion
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT),
        FL_4_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
        FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT - {DataType.FLOAT64}),
    )
    rules = dml.page_rules(dml.has_type("value_data_type", "output"))


# RANDOM_GENERATOR


@calls.result
class RandomGenerator(NamedTuple):
    """The result of `random_generator`: random bits, and the state for the next call.

    >>> output, state = random_generator(jnp.zeros(6, "uint32"), output_sizes=(9,))
    >>> state.tolist()
    [3, 0, 0, 0, 0, 0]
    """

    output: Array
    state: Array


@calls.operator_function
def random_generator(
    input_state: ArrayLike,
    *,
    output_sizes: Sequence[int],
    type: RandomGeneratorTypeLike = RandomGeneratorType.PHILOX_4X32_10,
) -> RandomGenerator:
    """Generates random bits from a state, a uint32 for each element; returns `output` and the next `state`.

    The output depends on nothing else than the state. Every four elements, row by row, are a block that Philox 4x32-10
    computes from the counter of 128 bits, which then advances, even if the last block has fewer than four elements. To
    begin, choose a key and set the counter to 0. The bits are not suited for cryptography.

    Args:
        input_state: Six words of uint32: a counter, the lowest word first, and a key of two words.
        output_sizes: Shape of the random bits.
        type: Algorithm that computes the bits.

    Returns:
        Random bits, as uint32 in the shape `output_sizes`, and the state to pass to the next call.

    >>> state = jnp.array([0, 0, 0, 0, 7, 0], "uint32")
    >>> output, state = random_generator(state, output_sizes=(2, 3))
    >>> output.tolist()
    [[4099963437, 3221879260, 490388034], [367897730, 1747881627, 3415718931]]
    >>> uniform = (output >> 8) * jnp.float32(2**-24)  # in [0, 1)
    >>> [f"{x:.3f}" for x in uniform[0]]
    ['0.955', '0.750', '0.114']
    """
    count = _element_count(output_sizes)
    state = calls.integer_array("input_state", input_state)
    if state.dtype != np.uint32:
        counter = "jnp.array([0, 0, 0, 0, seed, 0], 'uint32') counts from 0"
        raise InvalidType(Problem("input_state", "must be of uint32", state.dtype, remedy=counter))
    if state.shape[-1:] != (6,) or state.size != 6:
        remedy = "jnp.concatenate([jnp.zeros(4, 'uint32'), key]) counts from 0" if state.shape == (2,) else None
        raise InvalidDesc(Problem("input_state", "must have shape (6,)", f"shape {state.shape}", remedy=remedy))

    def generate(state: Array) -> tuple[Array, Array]:
        words = [state.reshape(6)[i] for i in range(6)]
        counter, key = words[:4], words[4:]
        blocks = jnp.asarray(number(-(-count // 4), np.uint32))
        state = jnp.stack([*advance(counter, blocks), *key]).reshape(state.shape)
        return random_words(counter, key, output_sizes), state

    no_axes = [None] * len(output_sizes), [None] * state.ndim
    return RandomGenerator(*call_with_auto_axes(generate, [(state, [None] * state.ndim)], *no_axes))


class RandomGeneratorDesc(dml.Operator, function=random_generator):
    input_state: dml.Input
    output: dml.Output
    output_state: dml.OptionalOutput = None
    type: dml.Enumerator[RandomGeneratorType]  # type: ignore[assignment, misc]  # `type(desc).type` is the operator's
    support = dml.support(FL_3_0=dml.rows(dml.RANK_4, UINT32), FL_4_0=dml.rows(dml.RANK_1_TO_8, UINT32))
    rules = dml.page_rules(
        dml.Rule(
            "InputStateTensor.Sizes are 1, except for the last, which is 6.",
            lambda desc: dml.find_wrong_sizes(desc, "input_state", with_leading_ones((6,), desc.input_state.rank)),
        ),
        dml.same_sizes("input_state", "output_state"),
    )

    def present(self, result: RandomGenerator) -> Sequence[Array]:
        return result[: len(self.leaves(is_input=False))]
