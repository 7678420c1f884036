"""ELEMENT_WISE_ADD to ELEMENT_WISE_ATAN_YX, and the powers."""

import json
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_arithmetic import ELEMENTWISE, LIKE, POW
from helpers import (
    FLOATS,
    FULL,
    GATE,
    INTEGERS,
    SAMPLED,
    assert_near_with_signs,
    assert_same_bits,
    check_refused,
    few_types,
    needs_x64,
    pairs,
    refuses,
    specials,
    tensor,
    units_off,
    wrapped,
)

import dmljax
from dmljax import directml
from dmljax.descriptors.bases import Activation
from dmljax.directml import FeatureLevel, InvalidDesc, InvalidType, ScaleBias

NAN, INF = math.nan, math.inf
SIGNED = [dtype for dtype in INTEGERS if dtype.kind == "i"]


SUMS_AND_PRODUCTS = ["add", "subtract", "multiply", "difference_square"]
NUMBERS = [*SUMS_AND_PRODUCTS, "divide", "modulus_truncate", "modulus_floor", "mean", "max", "min"]
ALL = [*NUMBERS, "atan_yx", "add1"]


def function(name: str) -> Any:
    return getattr(dmljax, f"element_wise_{name}")


def formula(name: str) -> Any:
    return ELEMENTWISE[f"ELEMENT_WISE_{name.upper()}"].formula


# Integers


@SAMPLED
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around_for_every_pair_of_extremes(name: str, dtype: Any) -> None:
    small = np.arange(-7, 8) if dtype in SIGNED else np.arange(8)
    a, b = pairs(np.concatenate([specials(dtype), small.astype(dtype)]))
    assert_same_bits(function(name)(a, b), formula(name)(a, b))


A, B = np.array([7, 7, -7, -7, 6, -6, 5, -5, 0], np.int32), np.array([2, -2, 2, -2, -3, 3, 0, 0, 0], np.int32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("divide", [3, -3, -3, 3, -2, -2, -1, -1, -1]),
        ("modulus_truncate", [1, 1, -1, -1, 0, 0, 5, -5, 0]),
        ("modulus_floor", [1, -1, 1, -1, 0, 0, 5, -5, 0]),
    ],
)
def test_integers_of_every_sign_are_divided_also_by_zero(call: Any, name: str, expected: list[int]) -> None:
    assert_same_bits(call(function(name), A, B), np.array(expected, np.int32))


# Operands


@SAMPLED
@pytest.mark.parametrize("name", NUMBERS)
def test_a_python_number_takes_the_type_of_the_array(name: str) -> None:
    array, numbers = np.array([-100, 7], np.int8), np.full(2, 100, np.int8)
    assert_same_bits(function(name)(array, 100), formula(name)(array, numbers))
    assert_same_bits(function(name)(100.0, array), formula(name)(numbers, array))


def test_a_python_number_beside_float16_is_rounded_to_it(call: Any) -> None:
    result = call(dmljax.element_wise_multiply, np.array([1.0], np.float16), b=0.1)
    assert_same_bits(result, np.array([0.1], np.float16))


def test_a_weakly_typed_array_takes_the_type_of_the_other(call: Any) -> None:
    for weak in (jnp.asarray(2.0), jnp.full((1,), 2.0), jnp.where(np.array([True]), 2.0, 0.0)):
        assert weak.weak_type
        assert_same_bits(call(dmljax.element_wise_add, np.ones(1, np.float16), weak), np.array([3], np.float16))
        assert_same_bits(call(dmljax.element_wise_add, weak, np.ones(1, np.float16)), np.array([3], np.float16))
    assert_same_bits(call(dmljax.element_wise_add, np.ones(1, np.int8), jnp.full((1,), 2)), np.array([3], np.int8))
    with pytest.raises(InvalidType, match="b must be of int8, or a Python number that is known while tracing; got an"):
        dmljax.element_wise_add(np.ones(1, np.int8), jnp.full((1,), 2.0))


@SAMPLED
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.float16])
def test_a_traced_python_number_promotes_as_in_jax(dtype: Any) -> None:
    x = np.array([1, 100], dtype)
    for ours, jaxs in ((dmljax.element_wise_add, jnp.add), (dmljax.element_wise_multiply, jnp.multiply)):
        for number in (0, 3, 100, 127, 200):
            assert_same_bits(jax.jit(ours)(x, number), jax.jit(jaxs)(x, number))
            assert_same_bits(jax.jit(ours)(number, x), jax.jit(jaxs)(number, x))
    scaled = jax.jit(lambda x, *both: dmljax.element_wise_identity(x, directml.ScaleBias(*both)))(x, 1, 3)
    assert_same_bits(scaled, jnp.add(x, 3))


def test_a_python_integer_fits_the_type_of_the_others_or_else_the_default_one() -> None:
    highest = 2**32 - 1
    assert dmljax.element_wise_bit_and(np.array([5], np.uint32), highest).tolist() == [5]
    assert dmljax.element_wise_max(highest, np.array([5], np.uint32)).tolist() == [highest]
    assert dmljax.element_wise_add(np.array([0.0], np.float32), 2**63).tolist() == [2.0**63]
    with pytest.raises(InvalidDesc, match=r"^element_wise_add: a must fit int(32|64); got 9223372036854775808"):
        dmljax.element_wise_add(2**63, 1)


@needs_x64
def test_a_python_integer_beside_64_bits_keeps_every_bit(call: Any) -> None:
    assert call(dmljax.element_wise_add, np.array([1]), b=2**62 + 1).tolist() == [2**62 + 2]


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (np.ones(2, np.int8), 300, InvalidDesc, "b must be a whole number in [-128, 127] to fit int8; got 300"),
        (0.5, np.ones(2, np.int16), InvalidDesc, "a must be a whole number in [-32768, 32767] to fit int16; got 0.5"),
        (np.ones(2, np.int8), NAN, InvalidDesc, "b must be a whole number in ...; got nan"),
        (np.ones(2, np.float16), 1e6, InvalidDesc, "b must fit float16; got 1000000.0"),
        (np.ones(2, np.int32), np.ones(2, np.float32), InvalidType, "b must be of int32, as a is; got float32"),
        (np.ones(2, np.float16), np.ones(2, np.float32), InvalidType, "b must be of float16, as a is; got float32"),
        (np.ones(2, np.int8), np.ones(2, np.uint8), InvalidType, "b must be of int8, as a is; got uint8"),
        (
            np.ones((2, 3), np.float32),
            np.ones(2, np.float32),
            InvalidDesc,
            "a and b must have shapes that broadcast; got (2, 3) and (2,)",
        ),
        (np.ones(2, np.float32), [1.0], InvalidType, "b must be a JAX or NumPy array; got list"),
    ],
)
@pytest.mark.parametrize("name", ["add", "max", "modulus_floor", "add1"])
def test_operands_are_refused(name: str, a: Any, b: Any, error: type[Exception], message: str) -> None:
    with refuses(f"element_wise_{name}: {message}", error):
        function(name)(a, b)


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "bool") for name in ALL), ("atan_yx", "int32"), ("constant_pow", "int8")]
)
def test_other_types_are_refused(name: str, dtype: str) -> None:
    argument = "input" if name == "constant_pow" else "a"
    allowed = "a floating type" if name in ("atan_yx", "constant_pow") else "an integer or floating type"
    with refuses(f"element_wise_{name}: {argument} must be of {allowed}; got {dtype}", InvalidType):
        function(name)(np.ones(2, dtype), 2 if name == "constant_pow" else np.ones(2, dtype))


@SAMPLED
@pytest.mark.parametrize("shapes", [((2, 1), (3,)), ((), (2, 3)), ((4, 1, 2), (3, 1)), ((0, 1), (1, 3)), ((), ())])
def test_operands_broadcast(call: Any, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (np.arange(math.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes)
    assert_same_bits(call(dmljax.element_wise_subtract, a, b), a - b)


# Floats

FLOATS_OF_EVERY_KIND = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -7.5, 1 / 3, INF, -INF, NAN]


@SAMPLED
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "name", ["divide", "modulus_truncate", "modulus_floor", "mean", "max", "min", "atan_yx", "pow"]
)
def test_every_pair_of_floats_follows_the_formula(name: str, dtype: Any) -> None:
    values = np.array(FLOATS_OF_EVERY_KIND, dtype)
    a, b = pairs(values)
    with np.errstate(all="ignore"):
        expected = formula(name)(a.astype(np.float64), b.astype(np.float64))
    results = [function(name)(a, b)]
    if name == "pow":
        constant = [dmljax.element_wise_constant_pow(values, exponent) for exponent in values.tolist()]
        results = [*results, np.stack(constant, axis=1).ravel()]
    for result in results:
        assert_near_with_signs(result, expected)


@SAMPLED
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["pow", "atan_yx", "modulus_truncate", "modulus_floor", "divide"])
def test_pairs_of_extremes_are_nan_infinite_or_zero_where_the_formula_is(name: str, dtype: Any) -> None:
    limits = jnp.finfo(dtype)
    numbers = [2.0**limits.nmant + 1, 2.0 ** (limits.nmant - 1) + 0.5, 1 + limits.eps, 1 - limits.epsneg]
    ends: list[Any] = [0, 0.5, 1, 1.5, 2, 3, limits.tiny, limits.max, INF, NAN, *numbers]
    values = np.array([sign * float(x) for x in ends for sign in (1, -1)], dtype)
    a, b = pairs(values)
    with np.errstate(all="ignore"):
        expected = formula(name)(a.astype(np.float64), b.astype(np.float64)).astype(dtype).astype(np.float64)
    result = np.asarray(function(name)(a, b)).astype(np.float64)
    is_normal = ~(np.abs(expected) < float(limits.tiny)) | (expected == 0)
    for is_so in (np.isnan, np.isinf, lambda x: x == 0, lambda x: np.signbit(x) & ~np.isnan(x)):
        np.testing.assert_array_equal(is_so(result)[is_normal], is_so(expected)[is_normal])


@GATE
def test_remainders_of_huge_by_small_numbers_are_exact(call: Any) -> None:
    rng = np.random.default_rng(0)
    a = (rng.normal(size=300) * 2.0 ** rng.integers(-60, 100, 300)).astype(np.float32)
    b = (rng.normal(size=300) * 2.0 ** rng.integers(-60, 60, 300)).astype(np.float32)
    of_c = [math.fmod(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert_same_bits(call(dmljax.element_wise_modulus_truncate, a, b), np.array(of_c, np.float32))
    exact = np.array(of_c) + np.where((np.array(of_c) != 0) & (np.signbit(of_c) != np.signbit(b)), b, 0)
    assert units_off(call(dmljax.element_wise_modulus_floor, a, b), exact).max() <= 1


@SAMPLED
@pytest.mark.parametrize("digits", [2, 23, 110, 200])
def test_remainders_next_to_multiples_are_exact(call: Any, digits: int) -> None:
    # On a CPU, one division computes quotients of up to 23 digits, five divisions up to 115, and scalar code more.
    rng = np.random.default_rng(digits)
    b = (rng.integers(2**23, 2**24, 4000) * 2.0 ** rng.integers(-120, 104 - digits // 2, 4000)).astype(np.float32)
    b = np.maximum(b * np.float32(2.0 ** (-digits // 2)), np.float32(2.0**-100 if digits < 200 else 2.0**-120))
    multiple = np.floor(rng.uniform(1, 2, b.size) * 2.0 ** rng.integers(0, digits, b.size)) * b.astype(np.float64)
    multiple = np.minimum(multiple, 1e38).astype(np.float32)
    a = np.concatenate([multiple, np.nextafter(multiple, np.float32(0)), np.nextafter(multiple, np.float32(np.inf))])
    a, b = a * rng.choice([-1, 1], a.size).astype(np.float32), np.tile(b, 3)
    assert_same_bits(call(dmljax.element_wise_modulus_truncate, a, b), np.fmod(a, b))


@pytest.mark.parametrize("name", ["modulus_truncate", "modulus_floor"])
@pytest.mark.gate(but=1)
def test_remainders_are_the_same_under_vmap(name: str) -> None:
    a = np.array([[7.5, -7.5, 1e-45], [1e30, -1e20, 5.0], [np.inf, np.nan, 3.0]], np.float32)
    b = np.array([[2.0, 2.0, 3.0], [3.0, 7.0, -2.0], [2.0, 2.0, 0.0]], np.float32)
    modulus = getattr(dmljax, f"element_wise_{name}")
    assert_same_bits(jax.vmap(modulus)(a, b), np.stack([modulus(*rows) for rows in zip(a, b, strict=True)]))


@pytest.mark.parametrize("name", ["modulus_truncate", "modulus_floor"])
def test_remainders_of_small_quotients_use_division_on_a_cpu(name: str) -> None:
    # XLA would call scalar code, which takes 30 times as long.
    modulus, x = getattr(dmljax, f"element_wise_{name}"), np.ones(2, np.float32)
    program = jax.jit(modulus).trace(x, x).lower(lowering_platforms=("cpu",)).as_text()
    assert "stablehlo.divide" in program


def test_the_floor_modulus_of_a_tiny_negative_number_is_the_divisor(call: Any) -> None:
    # As in Python: the exact remainder is not representable, and the nearest number is the divisor itself.
    assert call(dmljax.element_wise_modulus_floor, np.array([-1e-20], np.float32), b=3.0).tolist() == [3.0]


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_the_mean_of_the_largest_numbers_does_not_overflow(call: Any, dtype: Any) -> None:
    largest = float(jnp.finfo(dtype).max)
    a, b = (
        np.array([largest, -largest, largest, INF, INF, NAN], dtype),
        np.array([largest, -largest, -largest, INF, -INF, 1.0], dtype),
    )
    result = call(dmljax.element_wise_mean, a, b)
    assert str(result.tolist()) == str([largest, -largest, 0.0, INF, NAN, NAN])


def test_the_mean_of_float16_is_rounded_once(call: Any) -> None:
    # In float16 the sum would be 4096, and half of it 2048.
    result = call(dmljax.element_wise_mean, np.array([2048], np.float16), np.array([2050], np.float16))
    assert result.tolist() == [2048.0]  # 2049, a tie, to the even one
    result = call(dmljax.element_wise_mean, np.array([2050], np.float16), np.array([2054], np.float16))
    assert result.tolist() == [2052.0]


def test_the_difference_of_float16_is_squared_in_float32(call: Any) -> None:
    # float16 can represent neither the difference 2048 + 2^-4 nor -65504 - 65504.
    a, b = np.array([1.0, -65504.0, 1.0], np.float16), np.array([1 + 2.0**-10, 65504.0, -180.0], np.float16)
    result = call(dmljax.element_wise_difference_square, a, b)
    assert str(result.tolist()) == str([2.0**-20, INF, 32768.0])  # 181^2 = 32761


# Extremes


@SAMPLED
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_max_and_min_keep_every_bit_and_distinguish_zeros_and_subnormals(call: Any, name: str, dtype: Any) -> None:
    a, b = pairs(specials(dtype))
    with np.errstate(invalid="ignore"):  # NumPy warns of signaling NaNs
        expected = formula(name)(a, b)
    assert_same_bits(call(function(name), a, b), expected)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.gate(but=1)
def test_the_gradient_of_equal_elements_goes_to_the_first(name: str) -> None:
    a, b = jnp.array([1.0, 2.0, 3.0, 3.0]), jnp.array([2.0, 1.0, 3.0, NAN])
    gradients = jax.grad(lambda a, b: function(name)(a, b)[:3].sum(), argnums=(0, 1))(a, b)
    first, second = ([0, 1, 1, 0], [1, 0, 0, 0]) if name == "max" else ([1, 0, 1, 0], [0, 1, 0, 0])
    assert [gradient.tolist() for gradient in gradients] == [first, second]


# Powers


def test_integer_exponents_beyond_float32_keep_their_parity(call: Any) -> None:
    exponent = np.array([2**24 + 1, 2**24 + 2, 2**31 - 1, -(2**31), -(2**24) - 1], np.int32)
    expected = [-1.0, 1.0, -1.0, 1.0, -1.0]
    assert call(dmljax.element_wise_pow, np.full(5, -1, np.float32), exponent).tolist() == expected
    assert call(dmljax.element_wise_pow, np.full(5, -1, np.float16), exponent).tolist() == expected
    assert call(dmljax.element_wise_pow, np.full(5, -1, np.int16), exponent).tolist() == expected
    unsigned = np.array([2**32 - 1, 2**32 - 2], np.uint32)
    assert call(dmljax.element_wise_pow, np.full(2, -1, np.float32), unsigned).tolist() == [-1.0, 1.0]


def test_integer_exponents_beyond_float32_are_not_rounded(call: Any) -> None:
    # An exponent that is 1 larger multiplies the power by its base, 1 + 2^-20, which float32 distinguishes from 1.
    base, exponent = np.float32(1 + 2.0**-20), np.array([2**25, 2**25 + 1, 2**25 + 2], np.int32)
    result = call(dmljax.element_wise_pow, np.full(3, base), exponent)
    exact = np.exp(exponent * np.log1p(np.longdouble(2.0**-20)))
    assert units_off(result, exact).max() <= 4


@FULL
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_to_integers_wrap_around(dtype: Any) -> None:
    base = np.concatenate([specials(dtype), np.array([3, 5, 10], dtype)])
    for exponent in ([0, 1, 2, 3, 7, 8, 31, 63, 64, 127], [np.iinfo(dtype).max]):
        column = np.array(exponent, dtype)[:, np.newaxis]
        expected = [[wrapped(pow(x, y, 2**64), dtype) for x in base.tolist()] for y in column[:, 0].tolist()]
        assert_same_bits(dmljax.element_wise_pow(base, column), np.array(expected, dtype))


@pytest.mark.parametrize("dtype", few_types(SIGNED), ids=str)
def test_negative_powers_of_integers_are_truncated_toward_zero(dtype: Any) -> None:
    base = np.array([0, 1, -1, 2, -2, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    for exponent, of_minus_one in ((-1, -1), (-2, 1), (int(np.iinfo(dtype).min), 1)):
        result = dmljax.element_wise_pow(base, np.array(exponent, dtype))
        assert_same_bits(result, np.array([-1, 1, of_minus_one, 0, 0, 0, 0], dtype))


def test_numbers_are_bases_and_exponents_of_the_type_beside_them(call: Any) -> None:
    half = np.array([0.5, 2], np.float16)
    assert_same_bits(call(dmljax.element_wise_pow, 4, half), np.array([2, 16], np.float16))
    assert_same_bits(call(dmljax.element_wise_pow, half, 2), np.array([0.25, 4], np.float16))
    small = np.array([4, 9], np.int8)
    assert_same_bits(call(dmljax.element_wise_pow, 2, small), np.array([16, 0], np.int8))
    assert_same_bits(call(dmljax.element_wise_pow, small, 0.5), np.array([2, 3], np.int8))


def test_negative_powers_of_unsigned_integers_are_truncated(call: Any) -> None:
    result = call(dmljax.element_wise_pow, np.array([0, 1, 2, 255], np.uint8), np.array(-1, np.int8))
    assert result.tolist() == [255, 1, 0, 0]  # 0 to it is 1 / 0, all bits set


def test_an_integer_to_a_whole_float_power_is_exact(call: Any) -> None:
    base, exponent = np.array([3, -3, 3, 2, 0, -1], np.int32), np.array([20.0, 19.0, -1.0, 31.0, 0.0, -3.0], np.float32)
    expected = [wrapped(3**20, base.dtype), wrapped((-3) ** 19, base.dtype), 0, -(2**31), 1, -1]
    assert_same_bits(call(dmljax.element_wise_pow, base, exponent), np.array(expected, np.int32))


def test_an_integer_to_a_fractional_power_is_truncated_and_saturates(call: Any) -> None:
    base = np.array([9, 10, -9, 2, 127, 2, 2, -2], np.int8)
    exponent = np.array([0.5, 0.5, 0.5, -0.5, 1.5, INF, -INF, NAN], np.float32)
    assert call(dmljax.element_wise_pow, base, exponent).tolist() == [3, 3, 0, 0, 127, 127, 0, 0]


def test_the_base_goes_through_the_scale_bias_and_the_exponent_does_not(call: Any) -> None:
    base, exponent = np.array([1.0, -2.0], np.float32), np.array([3.0, 2.0], np.float32)
    assert call(dmljax.element_wise_pow, base, exponent, scale_bias=ScaleBias(2.0, 1.0)).tolist() == [27.0, 9.0]
    whole = call(dmljax.element_wise_pow, base.astype(np.int8), exponent.astype(np.uint8), scale_bias=ScaleBias(2, 1))
    assert_same_bits(whole, np.array([27, 9], np.int8))
    assert call(dmljax.element_wise_constant_pow, base, exponent=2.0, scale_bias=ScaleBias(2.0, 1.0)).tolist() == [9, 9]


def test_a_fractional_scale_bias_of_integers_is_refused() -> None:
    with refuses("element_wise_pow: scale_bias.scale must be a whole number in ... got 0.5", InvalidDesc):
        dmljax.element_wise_pow(np.ones(2, np.int8), np.ones(2, np.float32), ScaleBias(0.5, 0))


ADD1 = directml.ElementWiseAdd1Desc(a=LIKE, b=LIKE, output=LIKE)


def test_a_pow_desc_takes_two_types_from_level_3_0_on() -> None:
    assert directml.find_minimum_feature_level(POW) is FeatureLevel.FL_3_0
    with refuses(
        "at DML_FEATURE_LEVEL_2_1: InputTensor and ExponentTensor must have the same DataType; got FLOAT32 and "
    ):
        directml.validate(POW, feature_level="2_1")


# Fused activations

FUSABLE: dict[str, dict[str, float]] = {
    "Celu": {"alpha": 0.7},
    "Elu": {"alpha": 0.7},
    "Gelu": {},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "Identity": {},
    "LeakyRelu": {"alpha": 0.3},
    "Linear": {"alpha": 0.3, "beta": 0.4},
    "ParametricSoftplus": {"alpha": 0.5, "beta": 1.5},
    "Relu": {},
    "ScaledElu": {"alpha": 1.6732, "gamma": 1.0507},
    "ScaledTanh": {"alpha": 0.5, "beta": 1.5},
    "Shrink": {"bias": 0.3, "threshold": 0.5},
    "Sigmoid": {},
    "Softplus": {"steepness": 1.5},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 0.7},
}


def activation(name: str, **more: Any) -> Any:
    return getattr(directml, f"Activation{name}Desc")(**FUSABLE[name] | more)


def test_the_fusable_activations_are_as_documented() -> None:
    kinds = [kind for kind in directml.OPERATORS.values() if issubclass(kind, Activation)]
    everywhere = {activation(name).type for name in FUSABLE}
    assert {kind.type for kind in kinds if kind.fused_since("DML_OPERATOR_ELEMENT_WISE_ADD1")} == everywhere
    more = {"DML_OPERATOR_ACTIVATION_SOFTMAX", "DML_OPERATOR_ACTIVATION_SOFTMAX1", "DML_OPERATOR_ELEMENT_WISE_CLIP"}
    assert {kind.type for kind in kinds if kind.fused_since("DML_OPERATOR_GEMM")} == everywhere | more
    only_clip = {kind.type for kind in kinds if kind.fused_since("DML_OPERATOR_CONVOLUTION")} - everywhere
    assert only_clip == {"DML_OPERATOR_ELEMENT_WISE_CLIP"}


@SAMPLED
@pytest.mark.parametrize("data_type", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("name", FUSABLE)
def test_a_fused_activation_applies_to_the_rounded_sum(name: str, data_type: str) -> None:
    row = tensor(data_type, 500)
    a, b = np.random.default_rng(0).normal(size=(2, 500)).astype(row.dtype)
    alone = directml.lower(activation(name, input=row, output=row))
    desc = replace(ADD1, a=row, b=row, output=row, fused_activation=activation(name))
    assert_same_bits(directml.lower(desc)(a, b), alone(a + b))


def test_add1_without_an_activation_is_the_sum(call: Any) -> None:
    a, b = np.array([1.0, -0.0, INF], np.float32), np.array([2.0, -0.0, -INF], np.float32)
    assert str(call(dmljax.element_wise_add1, a, b).tolist()) == "[3.0, -0.0, nan]"


BOTH: dict[str, Any] = {"input": LIKE, "output": LIKE}


@pytest.mark.parametrize(
    ("fused", "message", "of_function"),
    [
        (
            directml.ElementWiseClipDesc(min=0, max=1, **BOTH),
            "FusedActivation.Type must be an activation that can be fused; got DML_OPERATOR_ELEMENT_WISE_CLIP",
            "DML_OPERATOR_ELEMENT_WISE_CLIP with input and output",
        ),
        (
            directml.ActivationSoftmaxDesc(**BOTH),
            "FusedActivation.Type must be an activation that can be fused; got DML_OPERATOR_ACTIVATION_SOFTMAX",
            "DML_OPERATOR_ACTIVATION_SOFTMAX with input and output",
        ),
        (
            activation("Relu", **BOTH),
            "InputTensor must not be given; got FLOAT32 {1,1,2,3}",
            "DML_OPERATOR_ACTIVATION_RELU",
        ),
        (
            activation("Relu", output=LIKE),
            "OutputTensor must not be given; got FLOAT32",
            "DML_OPERATOR_ACTIVATION_RELU",
        ),
    ],
)
def test_operators_that_cannot_be_fused_are_refused_by_name(fused: Any, message: str, of_function: str) -> None:
    check_refused(ADD1, {"fused_activation": fused}, message)
    with refuses(f"element_wise_add1: fused_activation must be an activation without tensors; got {of_function}"):
        dmljax.element_wise_add1(np.ones(2, np.float32), 1.0, fused_activation=fused)


@pytest.mark.parametrize(
    ("fused", "level", "message"),
    [
        (activation("Gelu"), "5_0", "Type must be one of DML_FEATURE_LEVEL_5_0; got DML_OPERATOR_ACTIVATION_GELU of"),
        (activation("Softplus", steepness=0.5), "6_3", "Steepness must be at least 1 below ...; got 0.5"),
    ],
)
def test_a_fused_activation_needs_its_feature_level(fused: Any, level: str, message: str) -> None:
    check_refused(ADD1, {"fused_activation": fused}, f"FusedActivation.{message}", level)
    directml.validate(replace(ADD1, fused_activation=fused))
    assert dmljax.element_wise_add1(np.ones(2, np.float32), 1.0, fused_activation=fused).shape == (2,)


def test_a_descriptors_fused_activation_is_a_descriptor() -> None:
    text: Any = "RELU"
    with refuses("FusedActivation must be a descriptor; got 'RELU' (ActivationReluDesc())", InvalidType):
        replace(ADD1, fused_activation=text)
    text = "leaky_relu"
    with refuses(
        "FusedActivation must be a descriptor; got 'leaky_relu' (ActivationLeakyReluDesc(alpha=...))", InvalidType
    ):
        replace(ADD1, fused_activation=text)


@pytest.mark.parametrize("name", FUSABLE)
def test_a_fused_activation_comes_back_from_json(name: str) -> None:
    desc = replace(ADD1, fused_activation=activation(name))
    spelled = json.loads(json.dumps(directml.to_json(desc), allow_nan=False))
    assert spelled["Desc"]["FusedActivation"]["Type"] == activation(name).type
    assert directml.from_json(spelled) == desc


@pytest.mark.parametrize(
    ("name", "message"),
    [("NOPE", "Type: unknown operator 'ACTIVATION_NOPE'"), ("ELU", "Alpha must be given; got none")],
)
def test_a_fused_activation_is_refused_in_json(name: str, message: str) -> None:
    spelled = directml.to_json(ADD1)
    assert spelled["Desc"]["FusedActivation"] is None
    spelled["Desc"]["FusedActivation"] = {"Type": f"ACTIVATION_{name}", "Desc": {}}
    with refuses(f"FusedActivation...{message}"):
        directml.from_json(spelled)
