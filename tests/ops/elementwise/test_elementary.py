"""ELEMENT_WISE_ABS to ELEMENT_WISE_TANH with the ScaleBias that most of them have, and CAST."""

import functools
import json
import math
import re
from dataclasses import replace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_elementary import CAST, ELEMENTWISE, IDENTITY, ROUNDINGS, SCALED_UNARY
from conversions import convert, hard_values, number, one_nan
from helpers import (
    FLOATS,
    FULL,
    INTEGERS,
    INTEGERS_4,
    REALS,
    SAMPLED,
    assert_near_with_signs,
    assert_same_bits,
    f32,
    few_of,
    few_types,
    needs_x32,
    needs_x64,
    random_array,
    refuses,
    specials,
    tensor,
    units_off,
    wrapped,
)

import dmljax
from dmljax import directml
from dmljax.directml import InvalidDesc, InvalidType, RoundingMode, ScaleBias
from dmljax.lowerings.numbers import conversion

NAN, INF = math.nan, math.inf
NAMES = [name.removeprefix("ELEMENT_WISE_").lower() for name in SCALED_UNARY]
FLOATS_ONLY = [name for name in NAMES if name not in ("abs", "identity")]


def function(name: str) -> Any:
    return getattr(dmljax, f"element_wise_{name}")


def formula(name: str) -> Any:
    return ELEMENTWISE[f"ELEMENT_WISE_{name.upper()}"].formula


# Values at the ends of functions


ABOVE_ONE = float(np.nextafter(np.float32(1), np.float32(2)))
ENDS = [-INF, -8388607.5, -9.0, -ABOVE_ONE, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, ABOVE_ONE, 1.75, 9.0, 3e38, INF, NAN]


@SAMPLED
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", NAMES)
def test_functions_and_scale_bias_follow_the_formulas_at_the_ends_of_their_domains(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        values = np.array(ENDS, dtype)
        exact = formula(name)(values.astype(np.float64))
    if dtype == "float32":
        # On a CPU, XLA flushes subnormal results.
        exact = np.where(np.abs(exact) < np.finfo(dtype).tiny, np.copysign(0, exact), exact)
    result = function(name)(values)
    assert result.dtype == dtype
    assert_near_with_signs(result, exact)
    few = np.array([-9.0, -1.0, -0.5, 0.5, 1.0, 9.0], dtype)
    assert_near_with_signs(function(name)((few - 1) / 2, ScaleBias(2.0, 1.0)), np.asarray(function(name)(few)))


@SAMPLED
@pytest.mark.parametrize("name", ["sin", "cos", "tan", "asin", "acos", "atan"])
def test_trigonometric_functions_use_polynomials_on_a_cpu(name: str) -> None:
    # XLA would call scalar code for its own functions, which takes at least 10 times as long.
    program = jax.jit(function(name)).trace(np.ones(2, np.float32)).lower(lowering_platforms=("cpu",)).as_text()
    assert not re.search(r"(chlo|stablehlo)\.a?(sin|cos|tan)", program)


@pytest.mark.parametrize("name", ["asin", "acos"])
def test_arcsines_and_arccosines_are_within_1_5_ulp(call: Any, name: str) -> None:
    half = np.linspace(2**-14, 1, 100_000, dtype=np.float32)
    x = np.concatenate([half, -half])
    assert units_off(call(function(name), x), getattr(np, f"arc{name[1:]}")(x.astype(np.float64))).max() < 1.5


def test_exponentials_overflow_to_infinity_and_no_earlier(call: Any) -> None:
    assert str(call(dmljax.element_wise_exp, np.array([89.0, -200.0], np.float32)).tolist()) == "[inf, 0.0]"
    assert np.isfinite(call(dmljax.element_wise_exp, np.array([88.5], np.float32))).all()
    # exp(89) overflows float32, but half of it does not.
    assert np.isfinite(call(dmljax.element_wise_sinh, np.array([89.0, -89.0], np.float32))).all()
    assert np.isfinite(call(dmljax.element_wise_cosh, np.array([89.0, -89.0], np.float32))).all()


def test_the_reciprocal_of_float16_is_computed_in_float32(call: Any) -> None:
    smallest = np.array([2.0**-24, 65504.0], np.float16)
    result = call(dmljax.element_wise_recip, smallest)
    assert_same_bits(result, np.array([INF, 1 / 65504], np.float16))


# ScaleBias


def test_a_scale_bias_is_within_one_ulp_of_its_summands(call: Any) -> None:
    rng = np.random.default_rng(1)
    input = (rng.normal(size=2000) * 2.0 ** rng.integers(-30, 30, 2000)).astype(np.float32)
    for scale, bias in ((0.1, 0.7), (-3.3e10, 1e-5), (1e-9, -123.456)):
        scale, bias = float(np.float32(scale)), float(np.float32(bias))
        result = call(dmljax.element_wise_identity, input, scale_bias=ScaleBias(scale, bias))
        product = input.astype(np.float64) * scale
        error = np.abs(np.asarray(result, np.float64) - (product + bias))
        assert (error <= np.spacing((np.abs(product) + abs(bias)).astype(np.float32))).all()


def test_a_scale_bias_may_be_infinite(call: Any) -> None:
    input = np.array([1.0, -1.0, 0.0, INF, -INF, NAN], np.float32)
    for scale, bias, expected in (
        (INF, 1.0, [INF, -INF, NAN, INF, -INF, NAN]),
        (2.0, -INF, [-INF, -INF, -INF, NAN, -INF, NAN]),
        (0.0, 3.0, [3.0, 3.0, 3.0, NAN, NAN, NAN]),
    ):
        result = call(dmljax.element_wise_identity, input, scale_bias=ScaleBias(scale, bias))
        assert str(result.tolist()) == str(expected)


def test_a_scale_bias_of_float16_stays_float32(call: Any) -> None:
    # The first scale is 1 in float16, the second infinite, and float16 has no 35000.
    for input, scale, bias, expected in ((1.0, 1 + 2.0**-20, -1.0, 2.0**-20), (0.5, 70000.0, 0.0, 35008.0)):
        result = call(dmljax.element_wise_identity, np.array([input], np.float16), scale_bias=ScaleBias(scale, bias))
        assert_same_bits(result, np.array([expected], np.float16))


def test_float16_is_rounded_once_after_the_function(call: Any) -> None:
    # In float16, 1024.75 would be 1025 before the floor, and 2049.75 would be 2050.
    for scale, bias, expected in ((0.5, 0.75, 1024.0), (1.0, 1.75, 2048.0)):
        result = call(dmljax.element_wise_floor, np.array([2048], np.float16), scale_bias=ScaleBias(scale, bias))
        assert_same_bits(result, np.array([expected], np.float16))


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_a_scale_bias_on_integers_is_exact_and_wraps_around(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    for scale, bias in ((3, 7), (np.iinfo(dtype).max, np.iinfo(dtype).max), (np.iinfo(dtype).min, 1), (1.0, 0.0)):
        expected = [wrapped(x * int(scale) + int(bias), dtype) for x in input.tolist()]
        result = call(dmljax.element_wise_identity, input, scale_bias=ScaleBias(scale, bias))
        assert_same_bits(result, np.array(expected, dtype))


def test_the_absolute_value_of_integers_comes_after_the_scale_bias(call: Any) -> None:
    input = np.array([5, -5, 127, -128], np.int8)
    result = call(dmljax.element_wise_abs, input, scale_bias=ScaleBias(1, -1))
    assert_same_bits(result, np.array([4, 6, 126, 127], np.int8))


@needs_x64
def test_a_scale_bias_on_64_bit_integers_is_not_computed_in_floats(call: Any) -> None:
    result = call(dmljax.element_wise_identity, np.array([3]), scale_bias=ScaleBias(2**60 + 1, 2**61 + 1))
    assert result.tolist() == [3 * (2**60 + 1) + 2**61 + 1]


def test_a_scale_bias_may_be_of_arrays_and_has_a_gradient() -> None:
    def total(scale: Any, bias: Any) -> Any:
        return dmljax.element_wise_identity(jnp.array([2.0, 3.0], jnp.float32), ScaleBias(scale, bias)).sum()

    arguments = jnp.float32(4), jnp.float32(1)
    assert total(*arguments) == 22
    assert jax.tree.map(float, jax.grad(total, argnums=(0, 1))(*arguments)) == (5.0, 2.0)


@pytest.mark.parametrize(
    ("dtype", "scale_bias", "error", "message"),
    [
        ("int8", ScaleBias(1.5, 0), InvalidDesc, "scale must be a whole number in [-128, 127] to fit int8; got 1.5"),
        ("int8", ScaleBias(1, 128), InvalidDesc, "bias must be a whole number in [-128, 127] to fit int8; got 128"),
        ("uint8", ScaleBias(-1, 0), InvalidDesc, "scale must be a whole number in [0, 255] to fit uint8; got -1"),
        ("float16", ScaleBias(1e39, 0.0), InvalidDesc, "scale must fit float32; got 1e+39"),
        ("float32", ScaleBias(np.ones(2, np.float32), 0.0), InvalidDesc, "scale must be a scalar; got shape (2,)"),
        ("float32", (1.0, 0.0), InvalidType, "scale_bias must be a ScaleBias; got (1.0, 0.0)"),
        ("float32", ScaleBias("1", 0.0), InvalidType, "scale must be a number"),
    ],
)
def test_a_scale_bias_is_refused(dtype: str, scale_bias: Any, error: type[Exception], message: str) -> None:
    with refuses(f"element_wise_identity: ...{message}", error):
        dmljax.element_wise_identity(np.ones(2, dtype), scale_bias)


def test_a_desc_holds_a_scale_bias_in_float32() -> None:
    desc = replace(IDENTITY, scale_bias=ScaleBias(0.1, -0.0))
    assert desc.scale_bias is not None
    assert [number.item.item() for number in desc.scale_bias] == [float(np.float32(0.1)), 0.0]
    assert directml.lower(desc)(np.ones((2, 3), np.float32))[0, 0] == np.float32(0.1)
    with refuses("ScaleBias must be a ScaleBias; got (1.0, 0.0) (ScaleBias(scale=..., bias=...))", InvalidType):
        replace(IDENTITY, scale_bias=(1.0, 0.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("numbers", [(0.1, -0.0), (INF, -INF), (NAN, 16777216.0), (1e-45, 3.4028234663852886e38)])
def test_a_scale_bias_comes_back_from_json(numbers: tuple[float, float]) -> None:
    desc = replace(IDENTITY, scale_bias=ScaleBias(*numbers))
    spelled = json.loads(json.dumps(directml.to_json(desc), allow_nan=False))
    assert list(spelled["Desc"]["ScaleBias"]) == ["Scale", "Bias"]
    assert directml.from_json(spelled) == desc
    assert directml.to_json(IDENTITY)["Desc"]["ScaleBias"] is None


@pytest.mark.parametrize(
    ("spelled", "error", "message"),
    [
        ({"Scale": 1.0}, InvalidDesc, "ScaleBias.Bias must be given; got none"),
        ({"Scale": "1", "Bias": 0}, InvalidType, "ScaleBias.Scale must be a number, ...; got '1'"),
        ({"Scale": 1, "Bias": 0, "Offset": 0}, InvalidDesc, "ScaleBias: unknown field 'Offset'"),
        ([1, 0], InvalidType, "ScaleBias must be an object; got [1, 0]"),
        ({"Scale": 1e39, "Bias": 0}, InvalidDesc, "ScaleBias.Scale must fit float32; got 1e+39"),
    ],
)
def test_a_scale_bias_is_refused_in_json(spelled: Any, error: type[Exception], message: str) -> None:
    whole = directml.to_json(IDENTITY)
    with refuses(f"{IDENTITY.type}: {message}", error):
        directml.from_json({"Type": whole["Type"], "Desc": whole["Desc"] | {"ScaleBias": spelled}})


# Signs and copies


@SAMPLED
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("name", ["abs", "identity", "negate", "sign"])
def test_signs_and_copies_of_special_values_follow_the_formulas(call: Any, name: str, dtype: Any) -> None:
    values = specials(dtype)
    with np.errstate(invalid="ignore"):
        if name in ("abs", "negate"):  # no sign is promised for NaN
            values = values[~np.isnan(values)]
        expected = np.asarray(formula(name)(values)).astype(dtype, copy=False)
    assert_same_bits(call(function(name), values), expected)


# Rounding to integers


HALVES = [-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, -1.75, 1.25, -0.25, NAN, INF, -INF]
BELOW_A_HALF = {"float64": 0.5 - 2.0**-54, "float32": 0.5 - 2.0**-25}  # adding 0.5 would round it up to 1


@SAMPLED
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", RoundingMode)
def test_halves_zeros_and_whole_numbers_are_rounded_by_the_mode(call: Any, mode: RoundingMode, dtype: Any) -> None:
    whole = 2.0 ** jnp.finfo(dtype).nmant + np.array([-1, 1, 3])  # with few or no digits after the point
    below = BELOW_A_HALF.get(dtype.name, 0.25)
    values = np.array([*HALVES, below, -below, *whole, *-whole, float(jnp.finfo(dtype).max)]).astype(dtype)
    expected = ROUNDINGS[mode](values.astype(np.longdouble)).astype(np.float64)
    result = call(dmljax.element_wise_round, values, rounding_mode=mode)
    assert result.dtype == dtype
    assert str(result.tolist()) == str(expected.tolist())


def test_round_defaults_to_half_to_even() -> None:
    assert dmljax.element_wise_round(np.array([0.5, 1.5, 2.5], np.float32)).tolist() == [0.0, 2.0, 2.0]


# Refusals


@pytest.mark.parametrize(
    ("name", "dtype", "kind"),
    [
        *((name, "int32", "a floating type") for name in (*FLOATS_ONLY, "round")),
        *((name, "bool", "an integer or floating type") for name in ("abs", "identity", "negate", "sign")),
    ],
)
def test_other_types_are_refused(name: str, dtype: str, kind: str) -> None:
    with refuses(f"element_wise_{name}: input must be of {kind}; got {dtype}", InvalidType):
        function(name)(np.ones(2, dtype))


def test_a_rounding_mode_must_be_in_the_header() -> None:
    with refuses("RoundingMode must be one of HALVES_TO_NEAREST_EVEN, TOWARD_ZERO, ...; got 3", InvalidDesc):
        directml.ElementWiseRoundDesc(input=f32(2), output=f32(2), rounding_mode=3)


# CAST


@functools.cache
def hard(dtype: Any) -> Any:
    return hard_values(dtype)


@FULL
@pytest.mark.parametrize("source", REALS, ids=str)
def test_every_conversion_is_exact_or_equals_jax(source: Any) -> None:
    values = hard(source)

    @jax.jit  # inside other computations as well
    def together(x: Any) -> Any:
        backwards = [jnp.flip(dmljax.cast(jnp.flip(x), dtype=dtype)) for dtype in REALS]
        return [dmljax.cast(x, dtype=dtype) for dtype in REALS], backwards

    straight, backwards = together(values)
    for i, dtype in enumerate(REALS):
        expected = one_nan(convert(values, dtype))
        for converted in (dmljax.cast(values, dtype=dtype), straight[i], backwards[i]):
            assert_same_bits(one_nan(np.asarray(converted)), expected)


@SAMPLED
@pytest.mark.parametrize("source", REALS, ids=str)
def test_exact_arithmetic_on_arrays_equals_fractions(source: Any) -> None:
    values = hard(source)
    values = np.random.default_rng(1).choice(values, 300)
    with np.errstate(invalid="ignore"):
        finite = values[np.isfinite(values.astype(np.float64))]
    for dtype in (*INTEGERS, np.dtype(bool)):
        expected = np.array([number(value, dtype) for value in finite], dtype)
        assert_same_bits(convert(finite, dtype), finite if dtype == source else expected)


@FULL
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_other_platforms_compute_the_same(source: Any) -> None:
    # On a CPU, XLA's own conversion to integers is enough; the other is in the program for other platforms.
    values = hard(source)
    for dtype in INTEGERS:
        converted = jax.jit(lambda x, dtype=dtype: conversion.truncate(x, dtype))(values)
        assert_same_bits(converted, convert(values, dtype))


@pytest.mark.parametrize("source", few_of([*REALS, *INTEGERS_4], np.dtype(np.float32), *INTEGERS_4), ids=str)
@pytest.mark.gate(but=1)
def test_casts_from_and_to_4_bits_equal_fractions(call: Any, source: Any) -> None:
    values = np.arange(16).astype(source) if source in INTEGERS_4 else specials(source)
    with np.errstate(invalid="ignore"):
        finite = values[np.isfinite(values.astype(np.float64))]
    for dtype in INTEGERS_4:
        expected = np.array([number(value, dtype) for value in finite], dtype)
        assert_same_bits(call(dmljax.cast, finite, dtype=dtype), expected)
    for dtype in REALS if source in INTEGERS_4 else []:
        assert_same_bits(call(dmljax.cast, values, dtype=dtype), values.astype(np.int8).astype(dtype))


@FULL
def test_a_scalar_is_cast_as_an_array_is() -> None:
    for source in FLOATS:
        for value in specials(source):
            for dtype in REALS:
                converted = np.asarray(dmljax.cast(value, dtype=dtype))
                assert converted.shape == ()
                assert_same_bits(one_nan(converted.reshape(1)), one_nan(convert(np.array([value]), dtype)))


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_a_cast_to_the_same_type_copies_every_bit(call: Any, dtype: Any) -> None:
    values = random_array(np.random.default_rng(3), dtype, (5, 7))
    assert_same_bits(call(dmljax.cast, values, dtype=dtype), values)


@SAMPLED
@pytest.mark.parametrize(
    ("input", "dtype", "expected"),
    [
        (np.array([-1.9, 1.9, 300, -7, np.nan, np.inf], np.float32), "uint8", [0, 1, 255, 0, 0, 255]),
        (np.array([2.0**31, -(2.0**31), 2.0**31 - 128], np.float32), "int32", [2**31 - 1, -(2**31), 2**31 - 128]),
        (np.array([-1, 300, 128], np.int32), "int8", [-1, 44, -128]),
        (np.array([-1, -128], np.int8), "uint16", [65535, 65408]),
        (np.array([1e-45, -0.0, np.nan], np.float32), "bool", [True, False, True]),
        (np.array([True, False]), "bfloat16", [1, 0]),
        (np.array([-1.9, 7.9, 8, -9, np.nan, -np.inf], np.float32), "int4", [-1, 7, 7, -8, 0, -8]),
        (np.array([-1, 16, 300], np.int32), "uint4", [15, 0, 12]),
        (np.array([1, -8]).astype(jnp.int4), "uint4", [1, 8]),
        (np.array([2**24 + 2**16 + 1, 65520, 65519], np.int32), "float16", [np.inf, np.inf, 65504]),
        (np.array([65520, 65519.99, 2.0**-25, 2.0**-24], np.float32), "float16", [np.inf, 65504, 0, 2.0**-24]),
    ],
)
def test_casts_wrap_and_saturate_as_listed(call: Any, input: Any, dtype: str, expected: Any) -> None:
    assert_same_bits(call(dmljax.cast, input, dtype=dtype), np.array(expected).astype(jnp.dtype(dtype)))


@needs_x32
def test_64_bits_are_refused_without_64_bit_types() -> None:
    for dtype in ("float64", "int64", "uint64"):
        with pytest.raises(directml.Unsupported, match=r"^cast: dtype must be of at most 32 bits"):
            dmljax.cast(np.ones(2, np.float32), dtype=dtype)


@pytest.mark.parametrize(
    ("input", "dtype", "message"),
    [
        (np.ones(2, complex), "int8", "input must be bool, an integer of 8 to 64 bits or a float"),
        (np.ones(2, np.float32), "complex64", "dtype must be bool, an integer of 8 to 64 bits or a float"),
        (np.ones(2, np.float32), "float8_e5m2", "dtype must be bool, an integer of 8 to 64 bits or"),
        (np.ones(2, np.float32), None, "dtype must be a dtype; got None"),
    ],
)
def test_a_cast_refuses(input: Any, dtype: Any, message: str) -> None:
    with refuses(f"cast: {message}", InvalidType):
        dmljax.cast(input, dtype=dtype)


@FULL
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_gradients_pass_between_floats_and_are_cast_back(source: Any) -> None:
    x = np.array([1.5, -2.0, 3.0], source)
    for dtype in FLOATS:
        weights = jnp.array([1.0, 2.5, -4.0], dtype)
        gradient = jax.grad(lambda x, dtype=dtype, w=weights: (dmljax.cast(x, dtype=dtype) * w).sum())(x)
        assert_same_bits(gradient, np.asarray(weights).astype(source))
        _, tangent = jax.jvp(lambda x, dtype=dtype: dmljax.cast(x, dtype=dtype), (x,), (x,))
        assert_same_bits(tangent, x.astype(dtype))


@pytest.mark.parametrize("dtype", few_types([*INTEGERS, np.dtype(bool)]), ids=str)
@pytest.mark.gate(but=1)
def test_no_gradient_passes_through_integers(dtype: Any) -> None:
    through = lambda x: dmljax.cast(dmljax.cast(x, dtype=dtype), dtype="float32").sum()  # noqa: E731
    assert jax.grad(through)(np.array([1.5, 2.5], np.float32)).tolist() == [0, 0]
    _, tangent = jax.jvp(
        lambda x: dmljax.cast(x, dtype=dtype), (np.array([1.5], np.float32),), (np.array([1], np.float32),)
    )
    assert tangent.dtype == jax.dtypes.float0


def test_level_1_0_does_not_cast_32_bit_integers() -> None:
    of_16, of_32 = tensor("INT16", 1, 1, 2, 3), tensor("INT32", 1, 1, 2, 3)
    directml.validate(replace(CAST, input=of_16, output=CAST.input), feature_level="1_0")
    for desc in (replace(CAST, input=of_32, output=CAST.input), replace(CAST, output=of_32)):
        assert directml.find_minimum_feature_level(desc) is directml.FeatureLevel.FL_3_0


# VALUE_SCALE_2D


def test_a_bias_of_each_channel_is_added_before_the_product_is_rounded(call: Any) -> None:
    # (1 + 2**-12) squared is 1 + 2**-11 + 2**-24, whose last digit does not fit float32.
    x = np.float32(1 + 2.0**-12)
    input, bias = np.full((2, 3, 1, 2), x), np.array([-1, 0, -1 - 2.0**-11], np.float32)
    exact = [2.0**-11 + 2.0**-24, float(np.float32(1 + 2.0**-11)), 2.0**-24]
    result = call(dmljax.value_scale_2d, input, x, bias)
    assert_same_bits(result, np.broadcast_to(np.array(exact, np.float32).reshape(3, 1, 1), input.shape))


def test_channels_may_share_a_bias_and_be_of_any_number_and_dimensions(call: Any) -> None:
    input = np.arange(8, dtype=np.float16).reshape(2, 4)
    assert call(dmljax.value_scale_2d, input, 2.0, 0.5).tolist() == (input * 2 + 0.5).tolist()
    assert call(dmljax.value_scale_2d, input, 2, 1).tolist() == (input * 2 + 1).tolist()
    assert_same_bits(call(dmljax.value_scale_2d, input, 2.0, np.ones(1, np.float32)), input * 2 + np.float16(1))
    bias = np.array([2.0**-20, 1, 2, 3], np.float32)  # float32 beside float16
    assert_same_bits(call(dmljax.value_scale_2d, input, 2.0**-20, bias)[0, :1], np.array([2.0**-20], np.float16))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"input": np.ones((1, 3), np.int32)}, InvalidType, "input must be of a floating type; got int32"),
        ({"input": np.ones(3, np.float32)}, InvalidDesc, "input must have at least 2 dimensions; got 1"),
        ({"bias": np.ones(2, np.float32)}, InvalidDesc, "bias must be one number, or one for each ...; got shape (2,)"),
        ({"bias": np.ones((3, 1), np.float32)}, InvalidDesc, "bias must be one number, or ...; got shape (3, 1)"),
        ({"bias": np.ones(3, np.int32)}, InvalidType, "bias must be of a floating type; got int32"),
        ({"scale": np.ones(3, np.float32)}, InvalidDesc, "scale must be a scalar; got shape (3,)"),
        pytest.param(
            {"bias": np.ones(3)}, InvalidType, "bias must be of at most float32; got float64", marks=needs_x64
        ),
    ],
)
def test_value_scale_refuses(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"input": np.ones((1, 3), np.float32), "scale": 1.0, "bias": 0.0}
    with refuses(f"value_scale_2d: {message}", kind):
        dmljax.value_scale_2d(**arguments | change)
