"""The largest or smallest elements along an axis: TOP_K and TOP_K1.

Args:
    axis: Axis to select along; a negative axis counts from the end.
    k: Number of elements to select, which is the size of the results along `axis`.
    dtype: Integer type of the indices.

Returns:
    The elements in order, and their indices, of size `k` along `axis`.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, Problem
from dmljax.foundation.checks import INT_MAX, integer_in
from dmljax.foundation.dimensions import is_symbolic, largest_size, replace_at
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes
from dmljax.foundation.sizes import Sizes, argument_name
from dmljax.lowerings.copies import copy_exactly
from dmljax.lowerings.numbers.conversion import convert_positions
from dmljax.lowerings.numbers.derivatives import custom_jvps
from dmljax.lowerings.platform import choose
from dmljax.lowerings.rows.selection import largest_positions
from dmljax.types import FLOAT, FLOATS, INTEGER_64, UINT32, UINT32_OR_64, UP_TO_32_BIT, AxisDirection, AxisDirectionLike


@calls.result
class TopK(NamedTuple):
    """The result of `top_k` and `top_k1`: elements in order, and their indices along the axis.

    >>> values, indices = top_k(jnp.array([1, 5, 3]), axis=0, k=2)
    >>> values.tolist(), indices.tolist()
    ([5, 3], [1, 2])
    """

    values: Array
    indices: Array


@calls.operator_function
def top_k(input: ArrayLike, *, axis: int = -1, k: calls.Size, dtype: calls.IntegerDType = jnp.int32) -> TopK:
    """Selects the `k` largest elements along `axis`, in decreasing order, with their indices.

    Equal elements are in the order of their indices. NaN is larger than every number. On a CPU, -0 equals +0 and
    subnormal numbers are not flushed to zero; other platforms order elements as `jax.lax.top_k` does. The values are
    copied bit for bit; the gradient of each goes to the element that it was copied from.

    Use `top_k1` for the smallest elements.

    >>> values, indices = top_k(jnp.array([1.0, 2.0, 2.0, 3.0]), axis=0, k=3)
    >>> values.tolist(), indices.tolist()
    ([3.0, 2.0, 2.0], [3, 1, 2])
    """
    return _top_k(input, axis, k, AxisDirection.DECREASING, dtype)


@calls.operator_function
def top_k1(
    input: ArrayLike,
    *,
    axis: int = -1,
    k: calls.Size,
    axis_direction: AxisDirectionLike = AxisDirection.DECREASING,
    dtype: calls.IntegerDType = jnp.int32,
) -> TopK:
    """Selects the `k` largest elements along `axis`, or the smallest with `AxisDirection.INCREASING`, in order.

    Among the smallest elements, NaN comes last.

    Everything else is as in `top_k`.

    Args:
        axis_direction: Whether to select the smallest elements (increasing) or the largest (decreasing).

    >>> row = jnp.array([2.0, jnp.nan, 1.0, 1.0])
    >>> values, indices = top_k1(row, axis=0, k=3, axis_direction="increasing")
    >>> values.tolist(), indices.tolist()
    ([1.0, 1.0, 2.0], [2, 3, 0])
    """
    return _top_k(input, axis, k, AxisDirection.of(axis_direction), dtype)


def _top_k_sizes(input: Sizes, axis: int, k: int) -> Sizes:
    # DirectML's page requires less than the size, but its examples of sorting need all elements.
    size = input[axis]
    if is_symbolic(k):
        pass
    elif is_symbolic(size):
        integer_in("k", k, 1, largest_size(size))
    elif not 1 <= k <= size:
        raise InvalidDesc(
            Problem("k", f"must be in [1, {size}], the size of {argument_name('input')} along axis {axis}", k)
        )
    return replace_at(input, axis, k)


def _top_k(input: ArrayLike, axis: int, k: int, direction: AxisDirection, dtype: DTypeLike) -> TopK:
    input, dtype = calls.real_array("input", input), jnp.dtype(dtype)
    axis = calls.normal_axis(axis, input)
    size = input.shape[axis]
    output_shape = _top_k_sizes(input.shape, axis, k)
    last = largest_size(size) - 1
    calls.require_holds(dtype, "indices", last)
    if math.prod(output_shape) == 0:
        return TopK(jnp.zeros_like(input, shape=output_shape), jnp.zeros(output_shape, dtype))

    def take(floats: tuple[Array, ...], positions: Array) -> Array:
        return jnp.take_along_axis(floats[0], positions, axis=axis, mode="promise_in_bounds")

    def on_cpu(input: Array) -> tuple[Array, Array]:
        rows, is_largest = jnp.moveaxis(input, axis, -1), direction is AxisDirection.DECREASING
        positions = jnp.moveaxis(largest_positions(rows, k, largest=is_largest), -1, axis)
        values = copy_exactly(take, (input,), positions)
        return values, positions.astype(dtype)

    def by_xla(input: Array) -> tuple[Array, Array]:
        row = jnp.moveaxis(input, axis, -1).astype(np.uint8 if input.dtype == np.bool_ else input.dtype)
        reverse = _reverse if direction is AxisDirection.INCREASING else lambda row: row
        values, positions = lax.top_k(reverse(row), k)
        indices = jnp.moveaxis(convert_positions(dtype, positions), -1, axis)
        return jnp.moveaxis(reverse(values), -1, axis).astype(input.dtype), indices

    def select(input: Array) -> tuple[Array, Array]:
        # `lax.top_k` must know that the axis has at least `k` elements, and its positions are int32.
        is_plain = not is_symbolic(size) and size <= INT_MAX
        return choose(input, cpu=on_cpu, default=by_xla) if is_plain else on_cpu(input)

    mesh_axes = dimension_axes(input)
    result_axes = replace_at(mesh_axes, axis, None)
    return TopK(*call_with_auto_axes(select, [(input, mesh_axes)], result_axes, result_axes))


def _reverse(x: Array) -> Array:
    """Numbers in the opposite order."""
    return _negate(x) if x.dtype in FLOATS else ~x


@custom_jvps(lambda tangent, x: -tangent)
def _negate(x: Array) -> Array:
    """`-x`, and NaN with a sign: `lax.top_k` puts it below all numbers, but a GPU drops the sign of `-x`."""
    negative = lax.bitcast_convert_type(jnp.full_like(x, -1, dtype=np.dtype(f"int{8 * x.dtype.itemsize}")), x.dtype)
    return jnp.where(jnp.isnan(x), negative, -x)


class _Selection(dml.Operator, infer=_top_k_sizes):
    """The members and rules that TOP_K and TOP_K1 share."""

    input: dml.Input
    output_value: dml.Output
    output_index: dml.Output
    axis: dml.Uint
    k: dml.Uint
    rules = dml.page_rules(
        dml.same_rank("input", "output_value", "output_index"),
        dml.same_type("input", "output_value"),
        dml.axis_within("input"),
        *dml.infer_rules(
            "K is at least 1, and at most the size of InputTensor along Axis.",
            "OutputValueTensor and OutputIndexTensor have the sizes of InputTensor, but K along Axis.",
        ),
    )

    derived = {"dtype": lambda desc: desc.output_index.dtype}


_SINCE_2_1 = dml.support(
    FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT, output_index=UINT32),
    FL_3_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT, output_index=UINT32),
    FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64, output_index=UINT32_OR_64),
)


class TopKDesc(_Selection, function=top_k):
    support = dml.support(FL_2_0=dml.rows(dml.RANK_4, FLOAT, output_index=UINT32)) | _SINCE_2_1


class TopK1Desc(_Selection, function=top_k1):
    axis_direction: dml.Enumerator[AxisDirection]
    support = _SINCE_2_1
