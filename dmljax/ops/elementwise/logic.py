"""Elementwise comparisons, logical operators, tests for NaN and infinity, and selection.

Floats are compared by their bits, so that subnormal numbers differ from each other and from zero even on platforms
whose arithmetic flushes them to zero. Comparisons follow IEEE 754: -0 equals +0, and any comparison with NaN is false.

Args:
    dtype: Type of the result, which is True or 1 where the condition holds.

Returns:
    Array of the shape to which `a` and `b` broadcast, in `dtype`.
"""

import operator
from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.lowerings.copies import select_exactly
from dmljax.lowerings.numbers.comparisons import equal, greater, greater_equal
from dmljax.lowerings.numbers.floats import is_infinite, is_nan, is_nonzero
from dmljax.types import (
    FLOAT,
    INTEGER_64,
    UINT8,
    UINT32,
    UINT32_OR_8,
    UP_TO_32_BIT,
    UP_TO_64_BIT,
    DataType,
    IsInfinityMode,
    IsInfinityModeLike,
)

FLOAT16 = frozenset({DataType.FLOAT16})

# Comparisons


class Comparison(dml.Binary):
    """The members and rules of comparisons: like `Binary`, but OutputTensor has its own data type."""

    rules = dml.page_rules(
        dml.same_rank("a", "b", "output"), dml.same_sizes("a", "b", "output"), dml.same_type("a", "b")
    )


COMPARISON_SINCE_3_0 = dml.support(
    FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT, output=UINT32_OR_8),
    FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT | INTEGER_64, output=UINT32_OR_8),
)
COMPARISON_SINCE_1_0 = (
    dml.support(
        FL_1_0=dml.rows(dml.RANK_4, FLOAT, output=UINT32),
        FL_2_0=dml.rows(dml.RANK_4, FLOAT, output=UINT32_OR_8),
        FL_2_1=dml.rows(dml.RANK_4, UP_TO_32_BIT, output=UINT32_OR_8),
    )
    | COMPARISON_SINCE_3_0
)


@calls.operator_function
def element_wise_logical_equals(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Elementwise equality: True where `a == b`.

    >>> element_wise_logical_equals(
    ...     jnp.array([1.0, -0.0, jnp.nan]), jnp.array([2.0, 0.0, jnp.nan])
    ... ).tolist()
    [False, True, False]
    """
    a, b = calls.broadcast_operands(a=a, b=b)
    return equal(a, b).astype(dtype)


class ElementWiseLogicalEqualsDesc(Comparison, function=element_wise_logical_equals):
    support = COMPARISON_SINCE_1_0


@calls.operator_function
def element_wise_logical_greater_than(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Elementwise greater-than comparison: True where `a > b`.

    >>> element_wise_logical_greater_than(
    ...     jnp.array([3.0, -0.0, jnp.nan]), jnp.array([2.0, 0.0, 1.0])
    ... ).tolist()
    [True, False, False]
    """
    a, b = calls.broadcast_operands(a=a, b=b)
    return greater(a, b).astype(dtype)


class ElementWiseLogicalGreaterThanDesc(Comparison, function=element_wise_logical_greater_than):
    support = COMPARISON_SINCE_1_0


@calls.operator_function
def element_wise_logical_greater_than_or_equal(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Elementwise greater-than-or-equal comparison: True where `a >= b`.

    >>> element_wise_logical_greater_than_or_equal(
    ...     jnp.array([3.0, -0.0, jnp.nan]), jnp.array([2.0, 0.0, 1.0])
    ... ).tolist()
    [True, True, False]
    """
    a, b = calls.broadcast_operands(a=a, b=b)
    return greater_equal(a, b).astype(dtype)


class ElementWiseLogicalGreaterThanOrEqualDesc(Comparison, function=element_wise_logical_greater_than_or_equal):
    support = COMPARISON_SINCE_3_0


@calls.operator_function
def element_wise_logical_less_than(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Elementwise less-than comparison: True where `a < b`.

    >>> element_wise_logical_less_than(
    ...     jnp.array([1.0, -0.0, jnp.nan]), jnp.array([2.0, 0.0, 1.0])
    ... ).tolist()
    [True, False, False]
    """
    a, b = calls.broadcast_operands(a=a, b=b)
    return greater(b, a).astype(dtype)


class ElementWiseLogicalLessThanDesc(Comparison, function=element_wise_logical_less_than):
    support = COMPARISON_SINCE_1_0


@calls.operator_function
def element_wise_logical_less_than_or_equal(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Elementwise less-than-or-equal comparison: True where `a <= b`.

    >>> element_wise_logical_less_than_or_equal(
    ...     jnp.array([1.0, -0.0, jnp.nan]), jnp.array([2.0, 0.0, 1.0])
    ... ).tolist()
    [True, True, False]
    """
    a, b = calls.broadcast_operands(a=a, b=b)
    return greater_equal(b, a).astype(dtype)


class ElementWiseLogicalLessThanOrEqualDesc(Comparison, function=element_wise_logical_less_than_or_equal):
    support = COMPARISON_SINCE_3_0


# Logical operators


_LOGICAL = dml.support(
    FL_1_0=dml.rows(dml.RANK_4, UINT32),
    FL_2_0=dml.rows(dml.RANK_4, UINT32_OR_8),
    FL_3_0=dml.rows(dml.RANK_1_TO_8, UINT32_OR_8),
)


def _apply_to_truth_values(function: Callable[..., Array], a: ArrayLike, b: ArrayLike, dtype: DTypeLike) -> Array:
    truths = {name: is_nonzero(calls.real_array(name, value)) for name, value in (("a", a), ("b", b))}
    return function(*calls.broadcast(**truths)).astype(dtype)


@calls.operator_function
def element_wise_logical_and(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Logical AND: True where `a` and `b` are both nonzero.

    >>> element_wise_logical_and(
    ...     jnp.array([5, 0, 2], "uint8"), jnp.array([3, 4, 0], "uint8")
    ... ).tolist()
    [True, False, False]
    """
    return _apply_to_truth_values(operator.and_, a, b, dtype)


class ElementWiseLogicalAndDesc(dml.Binary, function=element_wise_logical_and):
    support = _LOGICAL


@calls.operator_function
def element_wise_logical_or(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Logical OR: True where `a` or `b` is nonzero.

    >>> element_wise_logical_or(
    ...     jnp.array([5, 0, 0], "uint8"), jnp.array([3, 4, 0], "uint8")
    ... ).tolist()
    [True, True, False]
    """
    return _apply_to_truth_values(operator.or_, a, b, dtype)


class ElementWiseLogicalOrDesc(dml.Binary, function=element_wise_logical_or):
    support = _LOGICAL


@calls.operator_function
def element_wise_logical_xor(a: calls.Operand, b: calls.Operand, *, dtype: DTypeLike = bool) -> Array:
    """Logical XOR: True where exactly one of `a` and `b` is nonzero.

    >>> element_wise_logical_xor(
    ...     jnp.array([5, 0, 0], "uint8"), jnp.array([3, 4, 0], "uint8")
    ... ).tolist()
    [False, True, False]
    """
    return _apply_to_truth_values(operator.xor, a, b, dtype)


class ElementWiseLogicalXorDesc(dml.Binary, function=element_wise_logical_xor):
    support = _LOGICAL


@calls.operator_function
def element_wise_logical_not(input: ArrayLike, *, dtype: DTypeLike = bool) -> Array:
    """Logical NOT: True where the element is zero.

    Returns:
        Array of the shape of `input`, in `dtype`.

    >>> element_wise_logical_not(jnp.array([5, 0], "uint8")).tolist()
    [False, True]
    """
    return (~is_nonzero(calls.real_array("input", input))).astype(dtype)


class ElementWiseLogicalNotDesc(dml.Unary, function=element_wise_logical_not):
    support = _LOGICAL


# Tests for NaN and infinity


@calls.operator_function
def element_wise_is_nan(input: ArrayLike, *, dtype: DTypeLike = bool) -> Array:
    """Tests for NaN: True where the element is NaN.

    Args:
        input: Floats, in any shape.

    Returns:
        Array of the shape of `input`, in `dtype`.

    >>> element_wise_is_nan(jnp.array([jnp.nan, jnp.inf, 0.0])).tolist()
    [True, False, False]
    """
    return is_nan(calls.float_array("input", input)).astype(dtype)


class ElementWiseIsNanDesc(dml.Predicate, function=element_wise_is_nan):
    support = dml.support(
        FL_2_0=dml.rows(dml.RANK_4, input=FLOAT, output=UINT32_OR_8),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=FLOAT, output=UINT32_OR_8),
    )


@calls.operator_function
def element_wise_is_infinity(
    input: ArrayLike, *, infinity_mode: IsInfinityModeLike = IsInfinityMode.EITHER, dtype: DTypeLike = bool
) -> Array:
    """Tests for infinity: True where the element is an infinity of the sign that `infinity_mode` asks for.

    Args:
        input: Floats, in any shape.
        infinity_mode: Which infinities count.

    Returns:
        Array of the shape of `input`, in `dtype`.

    >>> element_wise_is_infinity(jnp.array([-jnp.inf, jnp.nan, jnp.inf])).tolist()
    [True, False, True]
    """
    input = calls.float_array("input", input)
    has_sign: dict[IsInfinityMode, Array] = {
        IsInfinityMode.EITHER: jnp.ones_like(input, bool),
        IsInfinityMode.POSITIVE: ~jnp.signbit(input),
        IsInfinityMode.NEGATIVE: jnp.signbit(input),
    }
    return (is_infinite(input) & has_sign[IsInfinityMode.of(infinity_mode)]).astype(dtype)


class ElementWiseIsInfinityDesc(dml.Predicate, function=element_wise_is_infinity):
    infinity_mode: dml.Enumerator[IsInfinityMode]
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, input=FLOAT, output=UINT8),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=FLOAT, output=UINT8),
    )


# Selection


@calls.operator_function
def element_wise_if(condition: ArrayLike, a: calls.Operand, b: calls.Operand) -> Array:
    """Selects the element of `a` where `condition` is nonzero, and the element of `b` elsewhere, bit for bit.

    Args:
        condition: Array that broadcasts with `a` and `b`; bool, or numbers to compare with 0.
        a: Elements where the condition holds.
        b: Elements where it does not.

    Returns:
        Array of the shape to which all three broadcast, in the type of `a` and `b`.

    >>> element_wise_if(jnp.array([1, 0, 7]), jnp.array([1.0, 2.0, jnp.nan]), 9.0).tolist()
    [1.0, 9.0, nan]
    """
    arrays = calls.arrays_of_one_type(a=a, b=b)
    condition, a, b = calls.broadcast(condition=calls.real_array("condition", condition), **arrays)
    return select_exactly(is_nonzero(condition), a, b)


class ElementWiseIfDesc(dml.Operator, function=element_wise_if):
    condition: dml.Input
    a: dml.Input
    b: dml.Input
    output: dml.Output
    support = dml.support(
        # Only FLOAT16, not FLOAT32, as in the page's table.
        FL_2_0=dml.rows(dml.RANK_4, FLOAT16, condition=UINT8),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UP_TO_32_BIT, condition=UINT8),
        FL_5_0=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT, condition=UINT8),
    )
    rules = dml.page_rules(
        dml.same_rank("condition", "a", "b", "output"),
        dml.same_sizes("condition", "a", "b", "output"),
        dml.same_type("a", "b", "output"),
    )
