"""Reductions along axes, which keep size 1: ARGMAX, ARGMIN, and the twelve functions of REDUCE.

16-bit floats are computed in float32 and rounded once.

Args:
    axes: Axes to reduce, which keep size 1; None means all. A negative axis counts from the end.
    axis_direction: Which of equal elements counts: the first (increasing) or the last (decreasing).
    dtype: Integer type of the indices.

Returns:
    Array of the shape of `input`, with size 1 along `axes`, in `dtype`.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidType, Problem, require
from dmljax.foundation.dimensions import is_symbolic, largest_size, number
from dmljax.foundation.sharding import call_with_auto_axes, dimension_axes
from dmljax.foundation.sizes import Sizes
from dmljax.lowerings.numbers.conversion import convert_positions
from dmljax.lowerings.numbers.derivatives import custom_jvps
from dmljax.lowerings.rows.along_axes import extreme, extreme_position, positions_along
from dmljax.lowerings.rows.norms import magnitude, norm
from dmljax.lowerings.rows.scans import running_product
from dmljax.lowerings.workarounds import quotient
from dmljax.types import (
    FLOAT,
    FLOATS,
    INDEX,
    INTEGER_32,
    INTEGER_64,
    UINT32,
    UP_TO_32_BIT,
    AxisDirection,
    AxisDirectionLike,
    FeatureLevel,
    ReduceFunction,
    ReduceFunctionLike,
    widened,
)

# ARGMAX and ARGMIN


@calls.operator_function
def argmax(
    input: ArrayLike,
    *,
    axes: calls.Axes | None = None,
    axis_direction: AxisDirectionLike = AxisDirection.INCREASING,
    dtype: calls.IntegerDType = jnp.int32,
) -> Array:
    """Computes the index of the largest element along `axes`, which keep size 1, or of all elements.

    Several axes are reduced as if they were flattened into one in row-major order; the order in which they are listed
    does not matter. -0 equals +0, and subnormal numbers are not flushed to zero.

    Args:
        input: Array of any shape, in which NaN is larger than every number.

    >>> argmax(
    ...     jnp.array([[1.0, 2.0, 3.0], [3.0, 0.0, 4.0], [2.0, 5.0, 2.0]]), axes=(0, 1)
    ... ).tolist()
    [[7]]
    """
    return _arg_reduce(input, axes, AxisDirection.of(axis_direction), dtype, largest=True)


@calls.operator_function
def argmin(
    input: ArrayLike,
    *,
    axes: calls.Axes | None = None,
    axis_direction: AxisDirectionLike = AxisDirection.INCREASING,
    dtype: calls.IntegerDType = jnp.int32,
) -> Array:
    """Computes the index of the smallest element along `axes`, which keep size 1, or of all elements.

    Everything else is as in `argmax`.

    Args:
        input: Array of any shape, in which NaN is smaller than every number.

    >>> argmin(jnp.array([1, 2, 3, 2, 1]), axes=0, axis_direction="decreasing").tolist()
    [4]
    """
    return _arg_reduce(input, axes, AxisDirection.of(axis_direction), dtype, largest=False)


def _reduce_sizes(input: Sizes, axes: Sequence[int]) -> Sizes:
    return tuple(1 if axis in axes else size for axis, size in enumerate(input))


def _arg_reduce(
    input: ArrayLike, axes: calls.Axes | None, direction: AxisDirection, dtype: DTypeLike, *, largest: bool
) -> Array:
    input, dtype = calls.real_array("input", input), jnp.dtype(dtype)
    axes = calls.normal_axes(axes, input)
    count = math.prod(input.shape[axis] for axis in axes)
    require("input", count != 0, f"must not be empty along axes {axes}", f"shape {input.shape}")
    last = largest_size(count) - 1
    calls.require_holds(dtype, "indices", last)
    position = extreme_position(input, axes, largest=largest, last=direction is AxisDirection.DECREASING)
    return convert_positions(dtype, position)


_REDUCED = dml.page_rules(
    dml.same_rank("input", "output"),
    dml.DISTINCT_AXES,
    *dml.infer_rules("OutputTensor.Sizes equal InputTensor.Sizes, except that the sizes along Axes are 1."),
)


def _narrow_indices(desc: Any) -> Iterator[Problem]:
    # The pages do not mention an index that the output's type cannot hold; it would silently wrap to a wrong index.
    last = desc.input.element_count // math.prod(_reduce_sizes(desc.input.sizes, desc.axes)) - 1
    if desc.output.data_type in INDEX and last > np.iinfo(desc.output.dtype).max:
        yield Problem(("OutputTensor", "DataType"), f"must hold indices up to {last}", desc.output.data_type.name)


class _ArgReduceDesc(dml.Operator, infer=_reduce_sizes):
    """The members, support tables and rules of ARGMAX and ARGMIN, which differ only in their functions."""

    input: dml.Input
    output: dml.Output
    axes: dml.UintAxes
    axis_direction: dml.Enumerator[AxisDirection]
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, output=INDEX),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT | INTEGER_64, output=INDEX),
    )
    rules = dml.page_rules(
        *_REDUCED, dml.Rule("OutputTensor.DataType can hold every index along Axes.", _narrow_indices)
    )


class ArgmaxDesc(_ArgReduceDesc, function=argmax):
    pass


class ArgminDesc(_ArgReduceDesc, function=argmin):
    pass


# REDUCE


@calls.operator_function
def reduce(
    input: ArrayLike,
    function: ReduceFunctionLike,
    *,
    axes: calls.Axes | None = None,
    dtype: calls.IntegerDType | None = None,
) -> Array:
    """Reduces the elements along `axes` by a function such as their sum; the axes, by default all, keep size 1.

    SUM, MULTIPLY, L1 (the sum of absolute values) and SUM_SQUARE (the sum of squares) take floats, and integers, which
    wrap around. AVERAGE, L2 (the square root of the sum of squares), LOG_SUM (the logarithm of the sum) and LOG_SUM_EXP
    (the logarithm of the sum of exponentials) take floats. NaN is smaller than every number for MIN and ARGMIN, and
    larger for MAX and ARGMAX. MIN and MAX order -0 before +0. ARGMIN and ARGMAX, for which they are equal, give the
    index of the first such element in the flattened axes.

    LOG_SUM_EXP has no intermediate overflow; the squares of L2 overflow where float32 elements exceed 1.8e19. The
    gradient of L1 and L2 is 0 at 0, that of MIN and MAX goes to the first of equal elements, and that of MULTIPLY is
    correct even where factors are 0.

    Args:
        function: What to compute of the elements.
        dtype: Integer type of the indices of "argmin" and "argmax"; None means int32.

    Returns:
        Array of the shape of `input`, with size 1 along `axes`.

    >>> reduce(jnp.array([[3.0, 4.0], [0.0, 0.0]]), "l2", axes=1).tolist()
    [[5.0], [0.0]]
    """
    function = ReduceFunction.of(function)
    to_array = calls.real_array if function in _WITHOUT_IDENTITY else calls.number_array
    input = to_array("input", input)
    axes = calls.normal_axes(axes, input)
    if function in _ARGUMENTS:
        largest = function is ReduceFunction.ARGMAX
        return _arg_reduce(
            input, axes, AxisDirection.INCREASING, jnp.int32 if dtype is None else dtype, largest=largest
        )
    if dtype is not None and dtype != input.dtype:
        raise InvalidType(Problem("dtype", f"must be the dtype of input, {input.dtype}", dtype))
    if function in _FLOAT_FUNCTIONS:
        calls.float_array("input", input)
    if math.prod(input.shape[axis] for axis in axes) == 0:
        return _reduce_empty(input, axes, function)
    return _FUNCTIONS[function](input, axes).astype(input.dtype)


_ARGUMENTS = (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN)
_WITHOUT_IDENTITY = (*_ARGUMENTS, ReduceFunction.MAX, ReduceFunction.MIN)
_FLOAT_FUNCTIONS = (ReduceFunction.AVERAGE, ReduceFunction.L2, ReduceFunction.LOG_SUM, ReduceFunction.LOG_SUM_EXP)


def _reduce_empty(input: Array, axes: tuple[int, ...], function: ReduceFunction) -> Array:
    """The reduction of no elements, from the formulas for an empty sum or product."""
    values = {
        ReduceFunction.AVERAGE: np.nan,
        ReduceFunction.LOG_SUM: -np.inf,
        ReduceFunction.LOG_SUM_EXP: -np.inf,
        ReduceFunction.MULTIPLY: 1,
    }
    require("input", function not in _WITHOUT_IDENTITY, f"must not be empty along axes {axes}", f"shape {input.shape}")
    return jnp.full_like(input, values.get(function, 0), shape=_reduce_sizes(input.shape, axes))


def _sum(x: Array, axes: tuple[int, ...], term: Callable[[Array], Array] = lambda x: x) -> Array:
    terms = term(x.astype(widened(x.dtype)))
    return jnp.sum(terms, axis=axes, keepdims=True, dtype=terms.dtype)


def _average(x: Array, axes: tuple[int, ...]) -> Array:
    total = _sum(x, axes)
    count = number(math.prod(x.shape[axis] for axis in axes), total.dtype)
    return quotient(total, jnp.broadcast_to(count, total.shape))


def _product(x: Array, axes: tuple[int, ...]) -> Array:
    wide = x.astype(widened(x.dtype))
    if x.dtype in FLOATS and any(map(is_symbolic, x.shape)):  # JAX's derivative needs known sizes
        return functools.reduce(_product_along, axes, wide)
    names = dimension_axes(wide)
    result_axes = [None if axis in axes else name for axis, name in enumerate(names)]
    # JAX's derivative reshapes, which an explicit mesh refuses.
    return call_with_auto_axes(
        partial(jnp.prod, axis=axes, keepdims=True, dtype=wide.dtype), [(wide, names)], result_axes
    )


def _product_along(x: Array, axis: int) -> Array:
    def jvp(tangent: Array, x: Array) -> Array:
        before, after = (running_product(x, axis, reverse=reverse, exclusive=True) for reverse in (False, True))
        return jnp.sum(tangent * before * after, axis=axis, keepdims=True)

    return custom_jvps(jvp)(partial(jnp.prod, axis=axis, keepdims=True))(x)


def _smallest_or_largest(x: Array, axes: tuple[int, ...], *, largest: bool) -> Array:
    def jvp(tangent: Array, x: Array) -> Array:
        is_first = positions_along(x, axes) == extreme_position(x, axes, largest=largest)
        return jnp.sum(jnp.where(is_first, tangent, jnp.zeros_like(tangent)), axis=axes, keepdims=True)

    value = partial(extreme, axes=axes, largest=largest)
    return custom_jvps(jvp)(value)(x) if x.dtype in FLOATS else value(x)


_FUNCTIONS: Mapping[ReduceFunction, Callable[[Array, tuple[int, ...]], Array]] = {
    ReduceFunction.AVERAGE: _average,
    ReduceFunction.L1: partial(_sum, term=magnitude),
    ReduceFunction.L2: lambda x, axes: norm(x.astype(widened(x.dtype)), axes),
    ReduceFunction.LOG_SUM: lambda x, axes: lax.log(_sum(x, axes)),
    ReduceFunction.LOG_SUM_EXP: lambda x, axes: jax.nn.logsumexp(x.astype(widened(x.dtype)), axes, keepdims=True),
    ReduceFunction.MAX: partial(_smallest_or_largest, largest=True),
    ReduceFunction.MIN: partial(_smallest_or_largest, largest=False),
    ReduceFunction.MULTIPLY: _product,
    ReduceFunction.SUM: _sum,
    ReduceFunction.SUM_SQUARE: partial(_sum, term=jnp.square),
}

_WIDE_INTEGERS = INTEGER_32 | INTEGER_64
_ARGUMENT_SUPPORT = (
    dml.support(
        FL_1_0=dml.rows(dml.RANK_4, input=FLOAT, output=UINT32),
        FL_2_1=dml.rows(dml.RANK_4, input=UP_TO_32_BIT, output=UINT32),
    )
    | _ArgReduceDesc.support
)
_NORM_SUPPORT = dml.FLOAT_SINCE_1_0 | dml.support(FL_5_0=dml.rows(dml.RANK_1_TO_8, FLOAT | _WIDE_INTEGERS))
_EXTREME_SUPPORT = dml.support(
    FL_1_0=dml.rows(dml.RANK_4, FLOAT),
    FL_2_1=dml.rows(dml.RANK_4, FLOAT | INTEGER_32),
    FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT),
    FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
)
_SUM_SUPPORT = dml.support(
    FL_1_0=dml.rows(dml.RANK_4, FLOAT),
    FL_2_1=dml.rows(dml.RANK_4, FLOAT | INTEGER_32),
    FL_3_0=dml.rows(dml.RANK_1_TO_8, FLOAT | INTEGER_32),
    FL_5_0=dml.rows(dml.RANK_1_TO_8, FLOAT | _WIDE_INTEGERS),
)
_SUPPORT = {
    function: dml.fill_tables(tables, ("input", "output"))
    for functions, tables in (
        (_ARGUMENTS, _ARGUMENT_SUPPORT),
        (_FLOAT_FUNCTIONS, dml.FLOAT_SINCE_1_0),
        ((ReduceFunction.L1, ReduceFunction.SUM_SQUARE), _NORM_SUPPORT),
        ((ReduceFunction.MAX, ReduceFunction.MIN), _EXTREME_SUPPORT),
        ((ReduceFunction.MULTIPLY, ReduceFunction.SUM), _SUM_SUPPORT),
    )
    for function in functions
}


class ReduceDesc(dml.Operator, function=reduce, infer=_reduce_sizes):
    function: dml.Enumerator[ReduceFunction]  # type: ignore[assignment, misc]  # type(desc).function is the operator's function
    input: dml.Input
    output: dml.Output
    axes: dml.UintAxes
    # The union of the functions' tables; each function also has its own.
    support = dml.support(
        FL_1_0=dml.rows(dml.RANK_4, input=FLOAT, output=FLOAT | UINT32),
        FL_2_1=dml.rows(dml.RANK_4, input=UP_TO_32_BIT, output=FLOAT | INTEGER_32),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, output=UP_TO_32_BIT | INTEGER_64),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
        FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64),
    )

    def own_support(self) -> Mapping[FeatureLevel, dml.Table]:
        return _SUPPORT[self.function]

    def _type_problems(self) -> Iterator[Problem]:
        check = _narrow_indices if self.function in _ARGUMENTS else dml.same_type("input", "output").check
        yield from check(self)

    rules = dml.page_rules(
        dml.Rule(
            "Function decides the data types: all functions take floats, and AVERAGE, L2, LOG_SUM and LOG_SUM_EXP "
            "take nothing else. SUM and MULTIPLY take integers of 32 bits from level 2_1 on and of 64 bits from 5_0 "
            "on, L1 and SUM_SQUARE both from 5_0 on. MIN and MAX take those of 32 bits from 2_1 on, of 8 and 16 from "
            "3_0 on and of 64 bits from 5_0 on, ARGMIN and ARGMAX those of up to 32 bits from 2_1 on and of 64 bits "
            "from 4_1 on. OutputTensor has the DataType of InputTensor; with ARGMIN and ARGMAX, a DataType that can "
            "hold every index along Axes.",
            _type_problems,
        ),
        *_REDUCED,
    )

    derived = {"dtype": lambda desc: desc.output.dtype if desc.function in _ARGUMENTS else None}
