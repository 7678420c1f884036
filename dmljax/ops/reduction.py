"""Reductions along axes: ARGMAX and ARGMIN."""

import math
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, Problem
from dmljax.numerics.along_axes import extreme_position
from dmljax.numerics.sizes import largest_size
from dmljax.types import INDEX, INTEGER_64, UP_TO_32_BIT, AxisDirection, FeatureLevel

# ARGMAX and ARGMIN


@calls.operator_function(axes=calls.AXES, axis_direction=calls.one_of(AxisDirection), dtype=calls.INTEGER_DTYPE)
def argmax(
    input: ArrayLike,
    *,
    axes: calls.Axes,
    axis_direction: AxisDirection = AxisDirection.INCREASING,
    dtype: DTypeLike = jnp.uint32,
) -> Array:
    """Computes the index of the largest element along `axes`, which the result keeps with size 1.

    Several axes are reduced as if they were flattened into one in row-major order; the order in which they are listed
    does not matter. The index of the first of equal elements is returned, or of the last with
    `AxisDirection.DECREASING`. NaN is larger than every number, -0 equals +0, and subnormal numbers are not flushed to
    zero. The index is uint32, as in DirectML, so that `index - 1` wraps around at 0; `dtype` may be any integer type.

    >>> argmax(jnp.array([[1.0, 2.0, 3.0], [3.0, 0.0, 4.0], [2.0, 5.0, 2.0]]), axes=(0, 1)).tolist()
    [[7]]
    """
    return _arg_reduce(input, axes, axis_direction, dtype, largest=True)


@calls.operator_function(axes=calls.AXES, axis_direction=calls.one_of(AxisDirection), dtype=calls.INTEGER_DTYPE)
def argmin(
    input: ArrayLike,
    *,
    axes: calls.Axes,
    axis_direction: AxisDirection = AxisDirection.INCREASING,
    dtype: DTypeLike = jnp.uint32,
) -> Array:
    """Computes the index of the smallest element along `axes`, which the result keeps with size 1.

    NaN is smaller than every number. Several axes, equal elements, zeros and subnormal numbers are treated as by
    `argmax`.

    >>> argmin(jnp.array([1, 2, 3, 2, 1]), axes=0, axis_direction=AxisDirection.DECREASING).tolist()
    [4]
    """
    return _arg_reduce(input, axes, axis_direction, dtype, largest=False)


def _arg_reduce(
    input: ArrayLike, axes: calls.Axes, direction: AxisDirection, dtype: DTypeLike, *, largest: bool
) -> Array:
    input, dtype = calls.real_array("input", input), jnp.dtype(dtype)
    calls.require_rank("input", input, 1)
    axes = calls.normal_axes("axes", axes, input.ndim)
    reduced = math.prod(input.shape[axis] for axis in axes)
    if reduced == 0:
        raise InvalidDesc(Problem("input", f"must have elements along axes {axes}", f"shape {input.shape}"))
    last = largest_size(reduced) - 1
    if last > np.iinfo(dtype).max:
        raise InvalidDesc(Problem("dtype", f"must hold indices up to {last}", dtype))
    return extreme_position(input, axes, largest=largest, last=direction is AxisDirection.DECREASING).astype(dtype)


class _ArgReduceDesc(dml.Operator):
    """The members, support tables and rules of ARGMAX and ARGMIN, which differ only in their functions."""

    input: dml.Input
    output: dml.Output
    axes: dml.UintAxes
    axis_direction: dml.Direction
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, output=INDEX),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT | INTEGER_64, output=INDEX),
    )

    def page_rules(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        """The rules of the page.

        - InputTensor and OutputTensor have the same DimensionCount.
        - Axes names one or more different dimensions of InputTensor.
        - OutputTensor.Sizes equal InputTensor.Sizes, except that the sizes along Axes are 1.
        - OutputTensor.DataType can hold every index along Axes.
        """
        yield from dml.same_rank(self, "input", "output")
        yield from dml.distinct_axes(self.axes, self.input.rank)
        sizes = tuple(1 if axis in self.axes else size for axis, size in enumerate(self.input.sizes))
        if self.input.rank == self.output.rank:
            yield from dml.sizes_are(self, "output", sizes)
        # The page is silent on an index that the output's type cannot hold; it would silently wrap to a wrong index.
        last = self.input.element_count // math.prod(sizes) - 1
        if self.output.data_type in INDEX and last > np.iinfo(self.output.dtype).max:
            yield Problem(("OutputTensor", "DataType"), f"must hold indices up to {last}", self.output.data_type.name)


class ArgmaxDesc(_ArgReduceDesc, type="DML_OPERATOR_ARGMAX", function=argmax):
    """`DML_ARGMAX_OPERATOR_DESC`, lowered to `argmax`."""


class ArgminDesc(_ArgReduceDesc, type="DML_OPERATOR_ARGMIN", function=argmin):
    """`DML_ARGMIN_OPERATOR_DESC`, lowered to `argmin`."""
