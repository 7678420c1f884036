"""Running sums and products along an axis: CUMULATIVE_SUMMATION and CUMULATIVE_PRODUCT.

16-bit floats are computed in float32 and rounded once; integers wrap around.

Args:
    axis: Axis to run along; a negative axis counts from the end.
    axis_direction: Whether to begin at the first element (increasing) or at the last (decreasing).
"""

from collections.abc import Callable
from functools import partial

from jax import Array
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes
from dmljax.lowerings.rows.scans import running_product, running_sum
from dmljax.types import FLOAT, INTEGER_32, INTEGER_64, AxisDirection, AxisDirectionLike, widened


@calls.operator_function
def cumulative_summation(
    input: ArrayLike,
    *,
    axis: int,
    axis_direction: AxisDirectionLike = AxisDirection.INCREASING,
    has_exclusive_sum: bool = False,
) -> Array:
    """Computes running sums along `axis`: each result is the sum of the elements up to its own position.

    With `has_exclusive_sum`, the first sum is 0. Floats are added in blocks, with at most 8 rounding errors for every
    factor of 8 in the size of the axis.

    Args:
        has_exclusive_sum: Whether a sum excludes the element at its own position.

    >>> cumulative_summation(
    ...     jnp.array([2, 1, 3, 5]), axis=0, has_exclusive_sum=True
    ... ).tolist()
    [0, 2, 3, 6]
    """
    return _scan(running_sum, input, axis, AxisDirection.of(axis_direction), has_exclusive_sum)


@calls.operator_function
def cumulative_product(
    input: ArrayLike,
    *,
    axis: int,
    axis_direction: AxisDirectionLike = AxisDirection.INCREASING,
    has_exclusive_product: bool = False,
) -> Array:
    """Computes running products along `axis`: each result is the product of the elements up to its own position.

    With `has_exclusive_product`, the first product is 1. The derivative is correct even where factors are 0.

    Args:
        has_exclusive_product: Whether a product excludes the element at its own position.

    >>> cumulative_product(jnp.array([2.0, 3.0, 0.0, 5.0]), axis=0).tolist()
    [2.0, 6.0, 0.0, 0.0]
    """
    return _scan(running_product, input, axis, AxisDirection.of(axis_direction), has_exclusive_product)


def _scan(
    running: Callable[..., Array], input: ArrayLike, axis: int, direction: AxisDirection, is_exclusive: bool
) -> Array:
    input = calls.number_array("input", input)
    axis = calls.normal_axis(axis, input)
    reverse = direction is AxisDirection.DECREASING
    tally = partial(running, axis=axis, reverse=reverse, exclusive=is_exclusive)
    wide = widened(input.dtype)
    mesh_axes = dimension_axes(input)
    return call_with_auto_axes(lambda x: tally(x.astype(wide)).astype(x.dtype), [(input, mesh_axes)], mesh_axes)


class _Cumulative(dml.Unary):
    """The members and rules that both operators share."""

    axis: dml.Uint
    axis_direction: dml.Enumerator[AxisDirection]
    rules = dml.page_rules(*dml.Unary.rules, dml.axis_within("input"))


_TYPES = FLOAT | INTEGER_32
_SINCE_4_0 = dml.support(
    FL_4_0=dml.rows(dml.RANK_1_TO_8, _TYPES), FL_5_0=dml.rows(dml.RANK_1_TO_8, _TYPES | INTEGER_64)
)


class CumulativeSummationDesc(_Cumulative, function=cumulative_summation):
    has_exclusive_sum: dml.Bool
    support = dml.support(FL_2_1=dml.rows(dml.RANK_4, _TYPES)) | _SINCE_4_0


class CumulativeProductDesc(_Cumulative, function=cumulative_product):
    has_exclusive_product: dml.Bool
    support = dml.support(FL_3_1=dml.rows(dml.RANK_4, _TYPES)) | _SINCE_4_0
