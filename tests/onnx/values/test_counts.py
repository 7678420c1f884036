"""Sizes that depend on values compute as the integers that they turn out to be."""

import itertools
import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from helpers import SAMPLED

from dmljax.onnx.values.counts import Count, UndecidedCount, larger, smaller, value_of

OPERATIONS: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    larger,
    smaller,
]


def count(value: int) -> Count:
    return Count.of(jnp.array(value), 7)


@SAMPLED
@pytest.mark.parametrize("operation", OPERATIONS)
def test_counts_compute_as_integers_do_and_stay_within_their_bounds(operation: Callable[[Any, Any], Any]) -> None:
    plain: Any = max if operation is larger else min if operation is smaller else operation
    for value, factor, offset, other in itertools.product((1, 5, 7), (-2, 1, 3), (-4, 0, 6), (-3, 1, 2, 5)):
        for is_swapped in (False, True):
            counted, number = count(value) * factor + offset, value * factor + offset
            pair, expected = ((other, counted), (other, number)) if is_swapped else ((counted, other), (number, other))
            if operation in (operator.floordiv, operator.mod) and (expected[1] == 0 or (is_swapped and number <= 0)):
                continue
            try:
                result = operation(*pair)
            except UndecidedCount:  # a divisor that may be negative
                continue
            assert value_of(result) == plain(*expected)
            if isinstance(result, Count):
                assert result.least <= plain(*expected) <= result.largest


def test_multiples_of_a_count_are_divided_exactly() -> None:
    five = count(5)
    assert (five * 4 + 8) // 4 == five + 2
    assert five * 4 // five == 4
    assert five - five == 0
    assert five * 12 % 4 == 0


def test_bounds_decide_comparisons_or_refuse_them() -> None:
    five = count(5)
    assert five >= 0
    assert five < 8
    assert five + 1 > five
    assert five != 9
    with pytest.raises(
        UndecidedCount, match="values decide whether it is 3 while the program runs; got a size of 0 to 7"
    ):
        bool(five == 3)
    with pytest.raises(UndecidedCount, match="which is larger"):
        bool(five > 3)
