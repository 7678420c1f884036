"""ELEMENT_WISE_LOGICAL_*, IS_NAN, IS_INFINITY and IF."""

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from cases_logic import HALF, IF, SINGLE, SIZES, UBYTE, WIDE
from helpers import (
    FLOATS,
    REALS,
    SAMPLED,
    assert_same_bits,
    pairs,
    refuses,
    specials,
)

import dmljax
from dmljax import directml
from dmljax.directml import FeatureLevel, InvalidDesc, InvalidType, IsInfinityMode

INF = math.inf
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "equals": operator.eq,
    "greater_than": operator.gt,
    "greater_than_or_equal": operator.ge,
    "less_than": operator.lt,
    "less_than_or_equal": operator.le,
}
CONNECTIVES: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}
BINARY = [*COMPARISONS, *CONNECTIVES]


def function(name: str) -> Any:
    return getattr(dmljax, f"element_wise_logical_{name}")


def rule_of(name: str) -> Callable[[Any, Any], bool]:
    return COMPARISONS.get(name) or (lambda x, y: bool(CONNECTIVES[name](x != 0, y != 0)))


def desc_of(name: str) -> Any:
    return getattr(directml, "ElementWiseLogical" + name.title().replace("_", "") + "Desc")


# Comparisons


@pytest.mark.full(but=8)
@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_predicates_hold_for_every_pair_of_special_values(name: str, dtype: Any) -> None:
    # Python's numbers represent every value of every type exactly, including subnormals and 64-bit integers.
    a, b = pairs(specials(dtype))
    expected = [rule_of(name)(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert_same_bits(function(name)(a, b), np.array(expected))


@SAMPLED
@pytest.mark.parametrize("dtype", ["uint8", "uint32", "float16"])
@pytest.mark.parametrize("name", BINARY)
def test_results_have_the_requested_type(name: str, dtype: Any) -> None:
    a, b = np.array([0, 1, 2], np.int32), np.array([0, 2, 0], np.int32)
    expected = [rule_of(name)(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert_same_bits(function(name)(a, b, dtype=dtype), np.array(expected, dtype))


def test_a_comparison_is_a_mask(call: Any) -> None:
    logits = np.array([0.5, 2, 0.5], np.float32)
    mask = call(dmljax.element_wise_logical_equals, logits, 0.5)
    assert jnp.asarray(logits)[mask].tolist() == [0.5, 0.5]
    assert jnp.asarray(logits)[~mask].tolist() == [2]


SIGNS = {IsInfinityMode.EITHER: (INF, -INF), IsInfinityMode.POSITIVE: (INF,), IsInfinityMode.NEGATIVE: (-INF,)}
OF_ONE: dict[str, tuple[Callable[..., Any], Callable[[Any], bool]]] = {
    "not": (dmljax.element_wise_logical_not, lambda x: x == 0),
    "nan": (dmljax.element_wise_is_nan, math.isnan),
    **{
        mode.name: (partial(dmljax.element_wise_is_infinity, infinity_mode=mode), partial(operator.contains, ends))
        for mode, ends in SIGNS.items()
    },
}


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("name", OF_ONE)
def test_predicates_hold_for_every_special_value(name: str, dtype: Any) -> None:
    predicate, rule = OF_ONE[name]
    input = specials(dtype)
    if name != "not" and dtype not in FLOATS:
        with refuses(f"input must be of a floating type; got {dtype}", InvalidType):
            predicate(input)
        return
    expected = np.array([rule(x) for x in input.tolist()])
    assert_same_bits(predicate(input), expected)
    assert_same_bits(predicate(input, dtype="uint8"), expected.astype(np.uint8))


# Logical operators


# Operands


@SAMPLED
@pytest.mark.parametrize("name", BINARY)
def test_a_python_number_takes_the_type_of_the_array(name: str) -> None:
    for array, number in ((np.array([0, 100], np.int8), 100), (np.array([0.0, 0.5], np.float16), 0.5)):
        expected = [rule_of(name)(x, number) for x in array.tolist()]
        assert_same_bits(function(name)(array, number), np.array(expected))


SMALL, UNSIGNED = np.ones(2, np.int8), np.ones(2, np.uint8)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (SMALL, 300, InvalidDesc, "b must be a whole number in [-128, 127] to fit int8; got 300"),
        (SMALL, 0.5, InvalidDesc, "b must be a whole number in ... to fit int8; got 0.5"),
        (np.ones((2, 3), np.uint8), UNSIGNED, InvalidDesc, "must have shapes that broadcast; got (2, 3) and (2,)"),
    ],
)
@pytest.mark.parametrize("name", BINARY)
def test_operands_are_refused(name: str, a: Any, b: Any, error: type[Exception], message: str) -> None:
    with refuses(f"element_wise_logical_{name}: ...{message}", error):
        function(name)(a, b)


@pytest.mark.parametrize("name", COMPARISONS)
def test_arrays_of_two_types_are_not_compared(name: str) -> None:
    with refuses(f"element_wise_logical_{name}: b must be of uint8, as a is; got int8", InvalidType):
        function(name)(UNSIGNED, SMALL)


def test_logical_operators_mix_types(call: Any) -> None:
    mask, bytes_ = np.array([[True], [False]]), np.array([0, 2], np.uint8)
    assert call(dmljax.element_wise_logical_or, mask, bytes_).tolist() == [[True, True], [False, True]]


# Tests for NaN and infinity


# IF


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_if_keeps_every_bit_of_either(call: Any, dtype: Any) -> None:
    a = specials(dtype)
    b, condition = a[::-1].copy(), np.arange(len(a)) % 3
    expected = np.where(condition != 0, a.view(f"u{dtype.itemsize}"), b.view(f"u{dtype.itemsize}")).view(dtype)
    for truths in (condition.astype(np.uint8), condition != 0):
        assert_same_bits(call(dmljax.element_wise_if, truths, a, b), expected)


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_any_nonzero_condition_is_true(dtype: Any) -> None:
    condition = specials(dtype)
    expected = np.array([7 if x != 0 else 9 for x in condition.tolist()], np.int8)
    assert_same_bits(dmljax.element_wise_if(condition, np.full_like(expected, 7), 9), expected)


def test_the_condition_broadcasts_with_both(call: Any) -> None:
    result = call(
        dmljax.element_wise_if, np.array([[1], [0]]), np.array([1.0, 2.0], np.float32), np.array([[[5.0]]], np.float32)
    )
    assert result.tolist() == [[[1.0, 2.0], [5.0, 5.0]]]


ONES = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("condition", "a", "b", "error", "message"),
    [
        (UNSIGNED, ONES, ONES.astype(np.float16), InvalidType, "b must be of float32, as a is; got float16"),
        (UNSIGNED, SMALL, 1.5, InvalidDesc, "b must be a whole number in ... to fit int8; got 1.5"),
        (np.ones(3, np.uint8), ONES, ONES, InvalidDesc, "condition, a and b must have shapes that ...; got (3,), (2,)"),
        ([True, False], ONES, ONES, InvalidType, "condition must be a JAX or NumPy array; got list"),
    ],
)
def test_if_refuses(condition: Any, a: Any, b: Any, error: type[Exception], message: str) -> None:
    with refuses(f"element_wise_if: {message}", error):
        dmljax.element_wise_if(condition, a, b)


# Descriptors


@pytest.mark.parametrize("name", ["equals", "greater_than", "less_than"])
def test_comparisons_return_uint32_at_first_and_uint8_from_level_2_0(name: str) -> None:
    wide = desc_of(name)(a=SINGLE, b=SINGLE, output=WIDE)
    narrow = replace(wide, output=UBYTE)
    directml.validate(wide, feature_level="1_0")
    with refuses("at DML_FEATURE_LEVEL_1_0: OutputTensor.DataType must be UINT32; got UINT8", InvalidDesc):
        directml.validate(narrow, feature_level="1_0")
    assert directml.find_minimum_feature_level(narrow) is FeatureLevel.FL_2_0
    arrays = np.zeros((2, *SIZES), np.float32)
    assert_same_bits(directml.lower(wide)(*arrays), np.full(SIZES, name == "equals", np.uint32))
    assert_same_bits(directml.lower(narrow)(*arrays), np.full(SIZES, name == "equals", np.uint8))


def test_if_takes_only_float16_at_level_2_0() -> None:
    directml.validate(replace(IF, **dict.fromkeys(("a", "b", "output"), HALF)), feature_level="2_0")
    with refuses("ATensor.DataType must be FLOAT16; got FLOAT32", InvalidDesc):
        directml.validate(IF, feature_level="2_0")
    directml.validate(IF, feature_level="3_0")
