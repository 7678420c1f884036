"""Bitwise operators on integers and floats: ELEMENT_WISE_BIT_*.

The bits of a float are those of its encoding, and the bits of a negative integer those of its two's complement. Shifts
are logical even for signed types.

Args:
    input: Integers, or floats by their bits, in any shape.
    a: Integers, or floats by their bits; `a` and `b` broadcast to one shape.

Returns:
    Array of the shape to which `a` and `b` broadcast, in their type.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.types import UINT32_OR_8, UNSIGNED, UNSIGNED_UP_TO_32_BIT, UP_TO_64_BIT


def _to_bits(x: Array) -> Array:
    """The bits of `x` as unsigned integers of the same width."""
    return lax.bitcast_convert_type(x, np.dtype(f"uint{x.dtype.itemsize * 8}"))


def _apply_to_bits(function: Callable[..., Array], a: ArrayLike, b: ArrayLike) -> Array:
    """Applies `function` to the operands' bits, as unsigned integers, and returns the result in the operands' type."""
    a, b = calls.broadcast_operands(calls.number_array, a=a, b=b)
    return lax.bitcast_convert_type(function(_to_bits(a), _to_bits(b)), a.dtype)


# AND, OR, XOR and NOT

_SINCE_3_0 = dml.support(
    FL_3_0=dml.rows(dml.RANK_1_TO_8, UNSIGNED_UP_TO_32_BIT), FL_4_1=dml.rows(dml.RANK_1_TO_8, UP_TO_64_BIT)
)


@calls.operator_function
def element_wise_bit_and(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the bitwise AND of two arrays.

    >>> element_wise_bit_and(jnp.array([0b1100, 5]), jnp.array([0b1010, 4])).tolist()
    [8, 4]
    """
    return _apply_to_bits(lax.bitwise_and, a, b)


class ElementWiseBitAndDesc(dml.Binary, function=element_wise_bit_and):
    support = _SINCE_3_0


@calls.operator_function
def element_wise_bit_or(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the bitwise OR of two arrays.

    >>> element_wise_bit_or(jnp.array([0b1100, 5]), jnp.array([0b1010, 2])).tolist()
    [14, 7]
    """
    return _apply_to_bits(lax.bitwise_or, a, b)


class ElementWiseBitOrDesc(dml.Binary, function=element_wise_bit_or):
    support = _SINCE_3_0


@calls.operator_function
def element_wise_bit_xor(a: calls.Operand, b: calls.Operand) -> Array:
    """Computes the bitwise XOR of two arrays.

    >>> element_wise_bit_xor(jnp.array([0b1100, 5]), jnp.array([0b1010, 4])).tolist()
    [6, 1]
    """
    return _apply_to_bits(lax.bitwise_xor, a, b)


class ElementWiseBitXorDesc(dml.Binary, function=element_wise_bit_xor):
    support = _SINCE_3_0


@calls.operator_function
def element_wise_bit_not(input: ArrayLike) -> Array:
    """Computes the bitwise NOT, which inverts every bit.

    Returns:
        Array of the shape and type of `input`.

    >>> element_wise_bit_not(jnp.array([0, 128, 255], "uint8")).tolist()
    [255, 127, 0]
    """
    input = calls.number_array("input", input)
    return lax.bitcast_convert_type(~_to_bits(input), input.dtype)


class ElementWiseBitNotDesc(dml.Unary, function=element_wise_bit_not):
    support = _SINCE_3_0


# Counts and shifts


@calls.operator_function
def element_wise_bit_count(input: ArrayLike, *, dtype: DTypeLike = jnp.int32) -> Array:
    """Counts the bits of each element that are set (population count).

    Args:
        dtype: Type of the result.

    Returns:
        Array of the shape of `input`, in `dtype`.

    >>> element_wise_bit_count(jnp.array([0, -1, 2], "int8")).tolist()
    [0, 8, 1]
    """
    return lax.population_count(_to_bits(calls.number_array("input", input))).astype(dtype)


class ElementWiseBitCountDesc(dml.Predicate, function=element_wise_bit_count):
    support = dml.support(
        FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UNSIGNED_UP_TO_32_BIT, output=UINT32_OR_8),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, input=UP_TO_64_BIT, output=UINT32_OR_8),
    )


@calls.operator_function
def element_wise_bit_shift_left(a: calls.Operand, b: calls.Operand) -> Array:
    """Shifts the bits of `a` left by `b` places, filling with zeros.

    A shift by the width of the type, or by more, gives 0.

    Args:
        b: Numbers of places to shift by.

    >>> element_wise_bit_shift_left(
    ...     jnp.array([1, 255, 1], "uint8"), jnp.array([7, 4, 8], "uint8")
    ... ).tolist()
    [128, 240, 0]
    """
    return _apply_to_bits(lax.shift_left, a, b)


class ElementWiseBitShiftLeftDesc(dml.Binary, function=element_wise_bit_shift_left):
    support = dml.support(
        FL_2_1=dml.rows(dml.RANK_4, UNSIGNED_UP_TO_32_BIT),
        FL_3_0=dml.rows(dml.RANK_1_TO_8, UNSIGNED_UP_TO_32_BIT),
        FL_4_1=dml.rows(dml.RANK_1_TO_8, UNSIGNED),
    )


@calls.operator_function
def element_wise_bit_shift_right(a: calls.Operand, b: calls.Operand) -> Array:
    """Shifts the bits of `a` right by `b` places, filling with zeros.

    A shift by the width of the type, or by more, gives 0.

    Args:
        b: Numbers of places to shift by.

    >>> element_wise_bit_shift_right(
    ...     jnp.array([128, 255, 128], "uint8"), jnp.array([7, 4, 8], "uint8")
    ... ).tolist()
    [1, 15, 0]
    """
    return _apply_to_bits(lax.shift_right_logical, a, b)


class ElementWiseBitShiftRightDesc(dml.Binary, function=element_wise_bit_shift_right):
    support = ElementWiseBitShiftLeftDesc.support
