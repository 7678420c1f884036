"""Operators that fetch elements from indices, write elements to indices, or reverse parts of a dimension.

Input indices may have any integer type, and a negative index counts from the end. An index that is still out of range
is clamped where elements are fetched, and ignored where elements are written. All of these operators copy bit for bit.

Args:
    input: Array to gather from, of at least one dimension.
    indices: Integers; a negative index counts from the end.
    axis: Axis that the indices refer to; a negative axis counts from the end.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import InvalidDesc, Problem, require
from dmljax.foundation.dimensions import at_most, index_dtype, is_symbolic, number, replace_at
from dmljax.foundation.open_sizes import spell_equalities
from dmljax.foundation.sharding import MeshAxes, call_with_auto_axes, dimension_axes, may_be_sharded
from dmljax.foundation.sizes import Sizes, require_dimensions, require_sizes, spell_sizes
from dmljax.lowerings.copies import copy_exactly
from dmljax.lowerings.platform import choose
from dmljax.text import join_sizes, show
from dmljax.types import FLOAT, INDEX, UINT32, UINT32_OR_64, UP_TO_32_BIT, UP_TO_64_BIT

_IN_BOUNDS, _DROP = lax.GatherScatterMode.PROMISE_IN_BOUNDS, lax.GatherScatterMode.FILL_OR_DROP


def _normalize_indices(indices: Array, size: int, dtype: np.dtype[Any], *, is_clamped: bool) -> Array:
    """Counts the indices from the start, as integers of `dtype`; indices out of range are clamped, or become `size`.

    The bounds are limited to the range of the indices' own type, so that clamping comes before the conversion to
    `dtype`, which then cannot change an index.
    """
    indices, last = _promote_with_limit(indices, size - 1)
    lowest = ~last if np.iinfo(indices.dtype).min else np.zeros((), indices.dtype)
    inside = jnp.clip(indices, lowest, last)
    from_end = jnp.where(inside < 0, number(size, dtype), np.zeros((), dtype))
    position = inside.astype(dtype) + from_end
    return position if is_clamped else jnp.where(inside == indices, position, number(size, dtype))


def _promote_with_limit(integers: Array, limit: int) -> tuple[Array, Any]:
    """Integers of at least 32 bits, and `limit` in their type, or the largest value of that type if it is less."""
    # 8 and 16 bits may be too few for a symbolic limit.
    integers = integers if integers.dtype.itemsize >= 4 else integers.astype(np.int32)
    dtype = integers.dtype
    return integers, number(limit if is_symbolic(limit) else min(limit, np.iinfo(dtype).max), dtype)


def _tuples(indices: Array, bounds: Sequence[int], dtype: np.dtype[Any], *, is_clamped: bool) -> Array:
    """Returns the positions of the tuples in the last dimension of `indices`, whose coordinates have these bounds."""
    # Compute one coordinate at a time: XLA cannot partition a gather whose tuples are sharded along the tuple.
    coordinates = zip(jnp.unstack(indices, axis=-1), bounds, strict=True)
    return jnp.stack(
        [_normalize_indices(index, size, dtype, is_clamped=is_clamped) for index, size in coordinates], axis=-1
    )


def _check_arrays(input: ArrayLike, indices: ArrayLike) -> tuple[Array, Array]:
    input, indices = calls.real_array("input", input), calls.integer_array("indices", indices)
    require_dimensions("input", input.shape, 1)
    return input, indices


def _require_elements(input: Array, bounds: Sequence[int]) -> None:
    require("input", 0 not in bounds, "must have elements to gather", f"shape {input.shape}")


def _merge_axes(a: Array, b: Array, axis: int) -> tuple[list[MeshAxes], list[MeshAxes]]:
    """The mesh axes of arrays that are indexed together in all dimensions but `axis`."""
    axes_of_a, axes_of_b = dimension_axes(a), dimension_axes(b)
    shared = [a_axes or b_axes for a_axes, b_axes in zip(axes_of_a, axes_of_b, strict=True)]
    own_of_a, own_of_b = list(shared), list(shared)
    own_of_a[axis], own_of_b[axis] = axes_of_a[axis], axes_of_b[axis]
    return own_of_a, own_of_b


def _fetch_blocks(source: Array, position: Array, axis: int) -> Array:
    """Returns `source` with `axis` replaced by the dimensions of `position`, which is in range."""
    end = axis + position.ndim
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(end, end + source.ndim - axis - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    sizes = replace_at(source.shape, axis, 1)
    return lax.gather(source, position[..., None], dimensions, sizes, mode=_IN_BOUNDS)


def _fetch_elements(source: Array, position: Array, axis: int) -> Array:
    """Returns the element of `source` at each `position` along `axis`; all positions are in range."""
    others = replace_at(range(source.ndim), axis)
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    return lax.gather(source, position[..., None], dimensions, (1,) * source.ndim, mode=_IN_BOUNDS)


_SINCE_3_0 = dml.support(
    FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT, indices=INDEX),
    FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT, indices=INDEX),
)
_SINCE_2_1 = dml.support(FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT, indices=UINT32)) | _SINCE_3_0
_SINCE_1_0 = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT, indices=UINT32)) | _SINCE_2_1


# GATHER


def _gather_sizes(input: Sizes, indices: Sizes, axis: int) -> Sizes:
    return replace_at(input, axis, *indices)


@calls.operator_function
def gather(input: ArrayLike, indices: ArrayLike, *, axis: int) -> Array:
    """Gathers `input[..., indices, ...]` along `axis`, which the dimensions of `indices` replace.

    A negative index counts from the end; an index that is still out of range is clamped. The gradient of an element of
    `input` is the sum of the gradients of all output elements gathered from it.

    Returns:
        Array of the shape `input.shape[:axis] + indices.shape + input.shape[axis + 1:]`.

    >>> gather(jnp.array([[1, 2], [3, 4]]), jnp.array([-1, 0, 9]), axis=1).tolist()
    [[2, 1, 2], [4, 3, 4]]
    """
    input, indices = _check_arrays(input, indices)
    axis = calls.normal_axis(axis, input)
    output_shape = _gather_sizes(input.shape, indices.shape, axis)
    input_axes, indices_axes = dimension_axes(input), dimension_axes(indices)
    output_axes = replace_at(input_axes, axis, *indices_axes)
    operands = [(input, input_axes), (indices, indices_axes)]
    return _fetch(_fetch_blocks, operands, axis, output_shape, output_axes)


def _fetch(
    fetch: Callable[[Array, Array, int], Array],
    operands: Sequence[tuple[Array, list[MeshAxes]]],
    axis: int,
    output_shape: Sizes,
    output_axes: Sequence[MeshAxes],
) -> Array:
    """Applies `fetch` to an input and its indices along `axis`, counted from the start and clamped."""
    input = operands[0][0]
    if math.prod(output_shape) == 0:
        return jnp.zeros_like(input, shape=output_shape)
    size = input.shape[axis]
    _require_elements(input, (size,))
    dtype = index_dtype("input", size)

    def fetch_normalized(input: Array, indices: Array) -> Array:
        position = _normalize_indices(indices, size, dtype, is_clamped=True)
        return copy_exactly(lambda inputs, position: fetch(inputs[0], position, axis), (input,), position)

    return call_with_auto_axes(fetch_normalized, operands, output_axes)


def _count_rule(tensor: str, count: str, *, lowest: int = 1) -> dml.Rule:
    """The member `count`, the number of dimensions of `tensor` in use, is in range; the sizes before these are 1."""

    def check(desc: Any) -> Iterator[Problem]:
        # The pages exclude DimensionCount, but use it in their own examples.
        sizes, rank = getattr(desc, tensor).sizes, getattr(desc, count)
        if not lowest <= rank <= len(sizes):
            yield Problem(desc.member(count).name, f"must be in [{lowest}, {len(sizes)}]", rank)
        elif any(size != 1 for size in sizes[: len(sizes) - rank]):
            yield Problem((desc.member(tensor).name, "Sizes"), f"must be 1 before the last {rank}", join_sizes(sizes))

    dimensions = f"{{{tensor}}}.Sizes are 1 before the last {{{count}}} dimensions."
    return dml.Rule(f"{{{count}}} is in [{lowest}, DimensionCount], and {dimensions}", check)


def _last_sizes(tensor: TensorDesc, count: int) -> Sizes:
    """The sizes of the last `count` dimensions."""
    return tensor.sizes[tensor.rank - count :]


class _Gathering(dml.Operator):
    input: dml.Input
    indices: dml.Input
    output: dml.Output
    rules = dml.page_rules(dml.same_rank("indices", "input", "output"), dml.same_type("input", "output"))


class GatherDesc(_Gathering, function=gather, infer=_gather_sizes):
    axis: dml.Uint
    index_dimensions: dml.Uint
    implied = {"index_dimensions": lambda call: len(call.arrays["indices"].sizes)}
    has_leading_ones = True
    support = _SINCE_1_0
    rules = dml.page_rules(
        *_Gathering.rules,
        dml.axis_within("input"),
        _count_rule("indices", "index_dimensions", lowest=0),
        *dml.infer_rules(
            "OutputTensor.Sizes are InputTensor.Sizes, with the size along Axis replaced by the last IndexDimensions "
            "sizes of IndicesTensor. If these are more than DimensionCount, leading sizes of 1 of InputTensor, which "
            "lie before Axis, are cropped; if they are fewer, leading 1s are prepended."
        ),
    )

    def natural_sizes(self) -> dict[str, Sizes]:
        return {"indices": _last_sizes(self.indices, self.index_dimensions)}

    def inferred_sizes(self, *, is_draft: bool = False) -> dict[str, Any]:
        rank, before = self.input.rank, self.input.sizes[: self.axis]
        leading_ones = next((i for i, size in enumerate(before) if size != 1), len(before))
        rule = f"must be at most {leading_ones + 1}, because OutputTensor has only {rank} dimensions"
        require("IndexDimensions", self.index_dimensions <= leading_ones + 1, rule, self.index_dimensions)
        sizes = super().inferred_sizes(is_draft=is_draft)["output"]
        return {"output": sizes[-rank:]}


# GATHER_ELEMENTS


def _element_sizes(input: Sizes, indices: Sizes, axis: int) -> Sizes:
    along = indices[axis : axis + 1] or input[axis : axis + 1]
    require_sizes("indices", indices, replace_at(input, axis, *along), of=f"input except along axis {axis}")
    return indices


@calls.operator_function
def gather_elements(input: ArrayLike, indices: ArrayLike, *, axis: int) -> Array:
    """Gathers one element of `input` along `axis` for each element of `indices`.

    `input` and `indices` have the same sizes except along `axis`; the result has the shape of `indices`. A negative
    index counts from the end; an index that is still out of range is clamped. The gradient of an element of `input` is
    the sum of the gradients of all output elements gathered from it.

    Returns:
        Array of the shape of `indices`, in the type of `input`.

    >>> gather_elements(
    ...     jnp.array([[1, 2], [3, 4]]), jnp.array([[0, -1], [9, 0]]), axis=1
    ... ).tolist()
    [[1, 2], [4, 3]]
    """
    input, indices = _check_arrays(input, indices)
    axis = calls.normal_axis(axis, input)
    sizes = _element_sizes(input.shape, indices.shape, axis)
    input_axes, indices_axes = _merge_axes(input, indices, axis)
    operands = [(input, input_axes), (indices, indices_axes)]
    return _fetch(_fetch_elements, operands, axis, sizes, indices_axes)


_SAME_BUT_AXIS = "IndicesTensor.Sizes are InputTensor.Sizes, except along Axis."


class GatherElementsDesc(_Gathering, function=gather_elements, infer=_element_sizes):
    axis: dml.Uint
    support = _SINCE_2_1
    rules = dml.page_rules(
        *_Gathering.rules,
        dml.axis_within("input"),
        *dml.infer_rules(_SAME_BUT_AXIS, "OutputTensor.Sizes are IndicesTensor.Sizes."),
    )


# GATHER_ND and GATHER_ND1


def _tuple_sizes(input: Sizes, indices: Sizes, batch_dimension_count: int = 0) -> Sizes:
    """The sizes of a block for each tuple."""
    require_dimensions("indices", indices, 1)
    batch, lower_rank = batch_dimension_count, min(len(input), len(indices))
    require("batch_dimension_count", 0 <= batch < lower_rank, f"must be in [0, {lower_rank})", show(batch))
    batches = input[:batch], indices[:batch]
    if batches[0] != batches[1]:
        got = f"{spell_sizes(batches[0])} and {spell_sizes(batches[1])}"
        remedy = spell_equalities(*zip(*batches, strict=True))
        raise InvalidDesc(Problem("input", "must have the same batch sizes", got, [("indices",)], remedy=remedy))
    longest = len(input) - batch
    is_valid = at_most(indices[-1], longest) and indices[-1] >= 1
    require("indices", is_valid, f"must hold tuples of 1 to {longest} coordinates", indices[-1])
    # The pages' formulas contradict all of their examples, in which only the dimensions of the input that the tuples
    # do not index come last. The examples decide.
    return indices[:-1] + input[batch + indices[-1] :]


@calls.operator_function
def gather_nd(input: ArrayLike, indices: ArrayLike) -> Array:
    """Gathers `input[tuple]` for each index tuple in the last dimension of `indices`.

    An index that is out of range, even if counted from the end, is clamped to its own dimension. The gradient of an
    element of `input` is the sum of the gradients of all output elements gathered from it.

    Use `gather_nd1` for batches.

    Args:
        indices: Tuples of integers, in the last dimension; a negative index counts from the end.

    Returns:
        Array of the shape `indices.shape[:-1] + input.shape[indices.shape[-1]:]`.

    >>> gather_nd(jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 0], [-1, -1]])).tolist()
    [3, 4]
    """
    return _gather_tuples(input, indices, batch_dimension_count=0)


@calls.operator_function
def gather_nd1(input: ArrayLike, indices: ArrayLike, *, batch_dimension_count: int = 0) -> Array:
    """Gathers `input[batch, tuple]` for each index tuple in the last dimension of `indices[batch]`.

    The first `batch_dimension_count` dimensions of `input` and of `indices` are the batch.

    Everything else is as in `gather_nd`.

    Args:
        batch_dimension_count: Number of leading dimensions that `input` and `indices` share.

    Returns:
        Array of the batch, the other dimensions of `indices` but the last, and a block of `input`.

    >>> gather_nd1(
    ...     jnp.array([[1, 2], [3, 4]]), jnp.array([[-1], [0]]), batch_dimension_count=1
    ... ).tolist()
    [2, 3]
    """
    return _gather_tuples(input, indices, batch_dimension_count=batch_dimension_count)


def _gather_tuples(input: ArrayLike, indices: ArrayLike, *, batch_dimension_count: int) -> Array:
    input, indices = _check_arrays(input, indices)
    output_shape = _tuple_sizes(input.shape, indices.shape, batch_dimension_count)
    batch, tuple_end = batch_dimension_count, batch_dimension_count + indices.shape[-1]
    bounds, block = input.shape[batch:tuple_end], input.shape[tuple_end:]
    if math.prod(output_shape) == 0:
        return jnp.zeros_like(input, shape=output_shape)
    _require_elements(input, bounds)
    dtype = index_dtype("input", *bounds)
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(indices.ndim - 1, len(output_shape))),
        collapsed_slice_dims=tuple(range(batch, tuple_end)),
        start_index_map=tuple(range(batch, tuple_end)),
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
    )
    sizes = (1,) * tuple_end + block

    def fetch_tuples(inputs: tuple[Array, ...], position: Array) -> Array:
        return lax.gather(inputs[0], position, dimensions, sizes, mode=_IN_BOUNDS)

    def fetch(input: Array, indices: Array) -> Array:
        return copy_exactly(fetch_tuples, (input,), _tuples(indices, bounds, dtype, is_clamped=True))

    batch_axes = [a or b for a, b in zip(dimension_axes(input)[:batch], dimension_axes(indices)[:batch], strict=True)]
    input_axes = batch_axes + dimension_axes(input)[batch:]
    indices_axes = batch_axes + dimension_axes(indices)[batch:]
    operands = [(input, input_axes), (indices, indices_axes)]
    return call_with_auto_axes(fetch, operands, indices_axes[:-1] + input_axes[tuple_end:])


class _Tuples(dml.Operator):
    """The members that count the trailing dimensions in use, which follow the tensors.

    Leading dimensions of 1 only pad a tensor to the common DimensionCount.
    """

    input_dimension_count: dml.Uint
    indices_dimension_count: dml.Uint
    implied = {
        "input_dimension_count": lambda call: len(call.arrays["input"].sizes),
        "indices_dimension_count": lambda call: len(call.arrays["indices"].sizes),
    }
    has_leading_ones = True
    rules = dml.page_rules(
        _count_rule("input", "input_dimension_count"), _count_rule("indices", "indices_dimension_count")
    )

    def natural_sizes(self: Any) -> dict[str, Sizes]:
        counts = {"input": self.input_dimension_count, "indices": self.indices_dimension_count}
        return {field: _last_sizes(getattr(self, field), count) for field, count in counts.items()}


class _GatherTuplesDesc(_Tuples, _Gathering, infer=_tuple_sizes):
    """The rules that GATHER_ND and GATHER_ND1 share."""

    rules = dml.page_rules(
        *_Gathering.rules,
        *_Tuples.rules,
        *dml.infer_rules(
            "BatchDimensionCount, if the operator has it, is less than both counts. InputTensor and IndicesTensor have "
            "the same batch sizes. IndicesTensor holds tuples of 1 to as many coordinates as InputTensor has "
            "dimensions after the batch.",
            "OutputTensor.Sizes are the sizes of IndicesTensor except its last, followed by the sizes of InputTensor "
            "after the batch and the dimensions that a tuple indexes, and padded with leading 1s.",
        ),
    )


class GatherNdDesc(_GatherTuplesDesc, function=gather_nd):
    support = _SINCE_2_1


class GatherNd1Desc(_GatherTuplesDesc, function=gather_nd1):
    batch_dimension_count: dml.Uint
    support = _SINCE_3_0


# SCATTER and SCATTER_ND

Winner = Literal["last", "any", "only"]  # of several updates at one position
Fetch = Callable[[Array, Array, int], Array]
_VECTOR_SCATTER = lax.ScatterDimensionNumbers((), (0,), (0,))


def _scatter_arrays(input: ArrayLike, indices: ArrayLike, updates: ArrayLike) -> tuple[Array, Array, Array]:
    input, indices = _check_arrays(input, indices)
    updates = calls.real_array("updates", updates)
    calls.require_type("updates", updates, input.dtype, "input")
    return input, indices, updates


def _overwrite(
    input: Array,
    updates: Array,
    position: Array,
    dimensions: lax.ScatterDimensionNumbers,
    fetch: Fetch,
    axis: int,
    winner: Winner,
) -> Array:
    """Returns `input` with an update at each position; positions out of range are ignored.

    Updates collide only along `axis`; `fetch` returns those with the given indices. Where "any" of several updates may
    win, or there is "only" one, a GPU and a TPU need not find the last.
    """

    def move(arrays: tuple[Array, ...], position: Array) -> Array:
        if not (dimensions.operand_batching_dims and _is_flattened(*arrays)):
            return _write_by_platform(arrays, position, dimensions, fetch, axis, winner)
        flat = tuple(x.ravel() for x in arrays)
        place = _flat_place(position[..., 0], input.shape, axis).reshape(-1, 1)
        return _write_by_platform(flat, place, _VECTOR_SCATTER, _fetch_blocks, 0, winner).reshape(input.shape)

    # JAX differentiates any of several updates, not the last.
    fetch_last = partial(_fetch_last, dimensions=dimensions, fetch=fetch, axis=axis)
    return copy_exactly(move, (input, updates), position, derivative=None if winner == "only" else fetch_last)


def _write_by_platform(
    arrays: tuple[Array, ...],
    position: Array,
    dimensions: lax.ScatterDimensionNumbers,
    fetch: Fetch,
    axis: int,
    winner: Winner,
) -> Array:
    in_order = partial(_write, dimensions=dimensions, unique_indices=winner == "only")
    if winner != "last":
        return in_order(arrays, position)
    (input, updates), write_last = arrays, partial(_write_last, dimensions=dimensions)
    fetch_last = partial(_fetch_last, dimensions=dimensions, fetch=fetch, axis=axis)
    if dimensions.operand_batching_dims:
        gpu, tpu = fetch_last, fetch_last
    elif dimensions.update_window_dims:
        gpu, tpu = fetch_last, write_last
    else:
        are_few = not is_symbolic(input.size) and at_most(updates.size, input.size // 4)
        gpu, tpu = write_last, write_last if are_few else fetch_last
    # XLA promises no order. On a CPU, one thread writes the updates in order (JAX 0.8 to 0.12), which is faster than
    # finding the last ones. Elsewhere, what is faster depends on the launches, and on the elements to fetch or write.
    result: Array = choose(arrays, position, cpu=in_order, gpu=gpu, tpu=tpu, default=fetch_last)
    return result


def _write(
    arrays: tuple[Array, ...], position: Array, dimensions: lax.ScatterDimensionNumbers, *, unique_indices: bool = False
) -> Array:
    input, updates = arrays
    return lax.scatter(input, position, updates, dimensions, mode=_DROP, unique_indices=unique_indices)


def _number_updates(
    arrays: tuple[Array, ...], position: Array, dimensions: lax.ScatterDimensionNumbers, axis: int
) -> tuple[Array, Array]:
    """The number of each update along `axis`, from 1, and that of the last update of each position, 0 without any."""
    input, updates = arrays
    dtype = index_dtype("updates", updates.shape[axis])
    none = jnp.zeros(input.shape[: input.ndim - len(dimensions.update_window_dims)], dtype)
    numbers = lax.broadcasted_iota(dtype, position.shape[:-1], axis) + np.ones((), dtype)
    places = dimensions._replace(update_window_dims=())
    return numbers, lax.scatter_max(none, position, numbers, places, mode=_DROP)


def _fetch_last(
    arrays: tuple[Array, ...],
    position: Array,
    dimensions: lax.ScatterDimensionNumbers,
    fetch: Fetch,
    axis: int,
) -> Array:
    """Fetches the last update of each element or block of the input."""
    input, updates = arrays
    _, last = _number_updates(arrays, position, dimensions, axis)
    unit = np.ones((), last.dtype)
    elements = fetch(updates, jnp.maximum(last, unit) - unit, axis)
    return jnp.where(jnp.expand_dims(last > 0, tuple(range(last.ndim, input.ndim))), elements, input)


def _write_last(arrays: tuple[Array, ...], position: Array, dimensions: lax.ScatterDimensionNumbers) -> Array:
    """Writes those updates that are the last of their positions."""
    numbers, last = _number_updates(arrays, position, dimensions, 0)
    coordinates = tuple(dimensions.inserted_window_dims)
    numbers_of_gather = lax.GatherDimensionNumbers((), coordinates, coordinates)
    is_last = (
        lax.gather(last, position, numbers_of_gather, (1,) * last.ndim, mode=lax.GatherScatterMode.CLIP) == numbers
    )
    outside = jnp.stack([number(size, position.dtype) for size in last.shape])
    return _write(arrays, jnp.where(is_last[:, None], position, outside), dimensions)


def _is_flattened(*arrays: Array) -> bool:
    """Tells whether to write to a flattened dimension, which takes XLA on a CPU or TPU three quarters of the time."""
    # With a single dimension, several devices could not divide the others.
    is_known = not any(is_symbolic(size) for x in arrays for size in x.shape)
    return is_known and not any(may_be_sharded(x) or x.size > np.iinfo(np.int32).max for x in arrays)


def _flat_place(position: Array, shape: Sequence[int], axis: int) -> Array:
    """The index in a flattened array of `shape` of each `position` along `axis`; the array's size if out of range."""
    place = jnp.zeros_like(position)
    for i, size in enumerate(shape):
        along = position if i == axis else lax.broadcasted_iota(position.dtype, position.shape, i)
        place = place * number(size, position.dtype) + along
    return jnp.where(position == number(shape[axis], position.dtype), number(math.prod(shape), position.dtype), place)


def _scatter_sizes(input: Sizes, indices: Sizes, updates: Sizes, axis: int) -> Sizes:
    require_sizes("updates", updates, _element_sizes(input, indices, axis), of="indices")
    return input


@calls.operator_function
def scatter(
    input: calls.Operand, indices: ArrayLike, updates: calls.Operand, *, axis: int, unique_indices: bool = False
) -> Array:
    """Copies `input`, and overwrites the element at each index along `axis` with its update.

    `input` and `indices` have the same sizes except along `axis`, and `updates` has the shape of `indices`. A negative
    index counts from the end; an index that is still out of range overwrites nothing. Where several updates go to one
    element, the last in row-major order wins, and only it has a gradient. With `unique_indices`, a GPU or TPU need not
    find the last; if you break the promise, such elements and their gradients are undefined.

    Args:
        input: Array to copy.
        updates: New elements, in the shape of `indices`.
        unique_indices: Whether you promise that at most one update goes to each element.

    >>> scatter(
    ...     jnp.array([0, 1, 2, 3]),
    ...     jnp.array([-1, 1, 9, 3]),
    ...     jnp.array([5, 6, 7, 8]),
    ...     axis=0,
    ... ).tolist()
    [0, 6, 2, 8]
    """
    input, indices, updates = _scatter_arrays(input, indices, updates)
    axis = calls.normal_axis(axis, input)
    _scatter_sizes(input.shape, indices.shape, updates.shape, axis)
    return scatter_checked(input, indices, updates, axis, "only" if unique_indices else "last")


def scatter_checked(input: Array, indices: Array, updates: Array, axis: int, winner: Winner) -> Array:
    """`scatter` for arrays already checked."""
    if updates.size == 0 or input.size == 0:
        return input
    size = input.shape[axis]
    dtype = index_dtype("input", size)
    others = replace_at(range(input.ndim), axis)
    dimensions = lax.ScatterDimensionNumbers(
        update_window_dims=(),
        inserted_window_dims=(axis,),
        scatter_dims_to_operand_dims=(axis,),
        operand_batching_dims=others,
        scatter_indices_batching_dims=others,
    )

    def overwrite(input: Array, indices: Array, updates: Array) -> Array:
        position = _normalize_indices(indices, size, dtype, is_clamped=False)[..., None]
        return _overwrite(input, updates, position, dimensions, _fetch_elements, axis, winner)

    input_axes, indices_axes = _merge_axes(input, indices, axis)
    return call_with_auto_axes(
        overwrite, [(input, input_axes), (indices, indices_axes), (updates, indices_axes)], input_axes
    )


class _Scattering(dml.Operator):
    input: dml.Input
    indices: dml.Input
    updates: dml.Input
    output: dml.Output
    rules = dml.page_rules(
        dml.same_rank("indices", "input", "output", "updates"), dml.same_type("input", "output", "updates")
    )


class ScatterDesc(_Scattering, function=scatter, infer=_scatter_sizes):
    axis: dml.Uint
    support = _SINCE_1_0  # from the page's table; the feature level history has the operator since 2_0
    rules = dml.page_rules(
        *_Scattering.rules,
        dml.axis_within("input"),
        *dml.infer_rules(
            _SAME_BUT_AXIS,
            "UpdatesTensor.Sizes are IndicesTensor.Sizes.",
            "OutputTensor.Sizes are InputTensor.Sizes.",
        ),
    )


class ScatterElementsDesc(ScatterDesc, alias="DML_OPERATOR_SCATTER_ELEMENTS"):
    """`DML_SCATTER_ELEMENTS_OPERATOR_DESC`, directml.h's other name for `ScatterDesc`."""


def _scatter_nd_sizes(input: Sizes, indices: Sizes, updates: Sizes) -> Sizes:
    source = "indices before its last dimension, and that of a block of input"
    require_sizes("updates", updates, _tuple_sizes(input, indices), of=source)
    return input


@calls.operator_function
def scatter_nd(
    input: calls.Operand, indices: ArrayLike, updates: calls.Operand, *, unique_indices: bool = False
) -> Array:
    """Copies `input`, and overwrites `input[tuple]` for each index tuple in the last dimension of `indices`.

    A tuple that has fewer coordinates than `input` has dimensions overwrites a block: `updates` has the shape
    `indices.shape[:-1] + input.shape[indices.shape[-1]:]`. A negative index counts from the end; a tuple with an index
    that is still out of range overwrites nothing. Where several updates go to one element, the last in row-major order
    wins, and only it has a gradient. With `unique_indices`, a GPU or TPU need not find the last; if you break the
    promise, such elements and their gradients are undefined.

    Args:
        input: Array to copy.
        indices: Tuples of integers, in the last dimension; a negative index counts from the end.
        updates: New elements, or blocks, for each tuple.
        unique_indices: Whether you promise that at most one update goes to each element.

    >>> scatter_nd(
    ...     jnp.zeros((3, 2), int),
    ...     jnp.array([[2], [0], [-1]]),
    ...     jnp.array([[1, 2], [3, 4], [5, 6]]),
    ... ).tolist()
    [[3, 4], [0, 0], [5, 6]]
    """
    input, indices, updates = _scatter_arrays(input, indices, updates)
    _scatter_nd_sizes(input.shape, indices.shape, updates.shape)
    length = indices.shape[-1]
    bounds, block = input.shape[:length], input.shape[length:]
    if updates.size == 0 or input.size == 0:
        return input
    count = math.prod(indices.shape[:-1])
    dtype = index_dtype("input", *bounds)
    dimensions = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, 1 + len(block))),
        inserted_window_dims=tuple(range(length)),
        scatter_dims_to_operand_dims=tuple(range(length)),
    )

    def overwrite(input: Array, indices: Array, updates: Array) -> Array:
        position = _tuples(indices.reshape(count, length), bounds, dtype, is_clamped=False)
        blocks = updates.reshape(count, *block)
        winner: Winner = "only" if unique_indices else "last"
        return _overwrite(input, blocks, position, dimensions, _fetch_blocks, 0, winner)

    operands = [(x, dimension_axes(x)) for x in (input, indices, updates)]
    return call_with_auto_axes(overwrite, operands, dimension_axes(input))


class ScatterNdDesc(_Tuples, _Scattering, function=scatter_nd, infer=_scatter_nd_sizes):
    support = _SINCE_2_1
    rules = dml.page_rules(
        *_Scattering.rules,
        *_Tuples.rules,
        *dml.infer_rules(
            "IndicesTensor holds tuples of 1 to InputDimensionCount coordinates.",
            "UpdatesTensor.Sizes are the sizes of IndicesTensor except its last, followed by the sizes of InputTensor "
            "after the dimensions that a tuple indexes, and padded with leading 1s.",
            "OutputTensor.Sizes are InputTensor.Sizes.",
        ),
    )

    def compute(self, **inputs: Any) -> Any:
        natural = self.natural_sizes()
        updates = inputs["updates"].reshape(_tuple_sizes(natural["input"], natural["indices"]))
        return super().compute(**inputs | {"updates": updates})


# REVERSE_SUBSEQUENCES


def _reverse_subsequences_sizes(input: Sizes, sequence_lengths: Sizes, axis: int) -> Sizes:
    source = f"input with size 1 along axis {axis}"
    require_sizes("sequence_lengths", sequence_lengths, replace_at(input, axis, 1), of=source)
    return input


@calls.operator_function
def reverse_subsequences(input: ArrayLike, sequence_lengths: ArrayLike, *, axis: int) -> Array:
    """Reverses the first `sequence_lengths` elements along `axis`, and copies the others.

    `sequence_lengths`, of any integer type, has size 1 along `axis` and the sizes of `input` elsewhere. A length above
    the size of `axis` reverses all elements; a negative length reverses none.

    Args:
        input: Array of at least one dimension.
        sequence_lengths: Numbers of elements to reverse, integers of size 1 along `axis`.
        axis: Axis to reverse along; a negative axis counts from the end.

    >>> reverse_subsequences(
    ...     jnp.array([[1, 2, 3], [4, 5, 6]]), jnp.array([[2], [9]]), axis=1
    ... ).tolist()
    [[2, 1, 3], [6, 5, 4]]
    """
    input = calls.real_array("input", input)
    lengths = calls.integer_array("sequence_lengths", sequence_lengths)
    axis = calls.normal_axis(axis, input)
    _reverse_subsequences_sizes(input.shape, lengths.shape, axis)
    if input.size == 0:
        return input
    dtype = index_dtype("input", input.shape[axis])

    def reverse(input: Array, lengths: Array) -> Array:
        lengths, most = _promote_with_limit(lengths, input.shape[axis])
        length = jnp.clip(lengths, np.zeros((), lengths.dtype), most).astype(dtype)
        place = lax.broadcasted_iota(dtype, input.shape, axis)
        position = jnp.where(place < length, length - number(1, dtype) - place, place)
        return copy_exactly(lambda inputs, position: _fetch_elements(inputs[0], position, axis), (input,), position)

    input_axes, lengths_axes = _merge_axes(input, lengths, axis)
    return call_with_auto_axes(reverse, [(input, input_axes), (lengths, lengths_axes)], input_axes)


class ReverseSubsequencesDesc(dml.Operator, function=reverse_subsequences, infer=_reverse_subsequences_sizes):
    input: dml.Input
    sequence_lengths: dml.Input
    output: dml.Output
    axis: dml.Uint
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT, sequence_lengths=UINT32),
        FL_3_0=dml.rows(dml.RANK_4_TO_5, UP_TO_32_BIT, sequence_lengths=UINT32),
        FL_4_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT, sequence_lengths=UINT32),
        FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT, sequence_lengths=UINT32_OR_64),
    )
    rules = dml.page_rules(
        dml.same_rank("input", "output", "sequence_lengths"),
        dml.same_type("input", "output"),
        dml.axis_within("input"),
        *dml.infer_rules(
            "SequenceLengthsTensor.Sizes are InputTensor.Sizes, except that the size along Axis is 1.",
            "OutputTensor.Sizes are InputTensor.Sizes.",
        ),
    )
