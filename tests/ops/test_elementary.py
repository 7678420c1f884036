"""ELEMENT_WISE_ABS to ELEMENT_WISE_TANH with the ScaleBias that most of them have, and CAST."""

import functools
import json
import math
import re
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from conversions import convert, hard_values, number, one_nan
from helpers import (
    FLOATS,
    FULL,
    INTEGERS,
    REALS,
    assert_same_bits,
    few_of,
    few_types,
    needs_x32,
    needs_x64,
    random_array,
    specials,
    units_off,
    wrapped,
)

import dmljax
from dmljax import directml
from dmljax.arithmetic import rounding
from dmljax.directml import DataType, InvalidDesc, InvalidType, RoundingMode, ScaleBias, TensorDesc

FLOAT32, FLOAT16, INT8, UINT8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.UINT8
NAN, INF, PI = math.nan, math.inf, math.pi
SIGNED = [dtype for dtype in INTEGERS if dtype.kind == "i"]

# What each function gives -infinity, -0, 0, infinity and NaN.
AT_THE_ENDS = {
    "abs": [INF, 0.0, 0.0, INF, NAN],
    "acos": [NAN, PI / 2, PI / 2, NAN, NAN],
    "acosh": [NAN, NAN, NAN, INF, NAN],
    "asin": [NAN, -0.0, 0.0, NAN, NAN],
    "asinh": [-INF, -0.0, 0.0, INF, NAN],
    "atan": [-PI / 2, -0.0, 0.0, PI / 2, NAN],
    "atanh": [NAN, -0.0, 0.0, NAN, NAN],
    "ceil": [-INF, -0.0, 0.0, INF, NAN],
    "cos": [NAN, 1.0, 1.0, NAN, NAN],
    "cosh": [INF, 1.0, 1.0, INF, NAN],
    "erf": [-1.0, -0.0, 0.0, 1.0, NAN],
    "exp": [0.0, 1.0, 1.0, INF, NAN],
    "floor": [-INF, -0.0, 0.0, INF, NAN],
    "identity": [-INF, -0.0, 0.0, INF, NAN],
    "log": [NAN, -INF, -INF, INF, NAN],
    "recip": [-0.0, -INF, INF, 0.0, NAN],
    "sin": [NAN, -0.0, 0.0, NAN, NAN],
    "sinh": [-INF, -0.0, 0.0, INF, NAN],
    "sqrt": [NAN, -0.0, 0.0, INF, NAN],
    "tan": [NAN, -0.0, 0.0, NAN, NAN],
    "tanh": [-1.0, -0.0, 0.0, 1.0, NAN],
}
# A number that is neither 0 nor fixed by the function, and what the function gives it.
AT_A_POINT: dict[str, tuple[float, float]] = {
    "abs": (-3.0, 3.0),
    "acos": (1.0, 0.0),
    "acosh": (1.0, 0.0),
    "asin": (2.0, NAN),
    "asinh": (INF, INF),
    "atan": (1.0, PI / 4),
    "atanh": (-1.0, -INF),
    "ceil": (1.25, 2.0),
    "cos": (INF, NAN),
    "cosh": (-INF, INF),
    "erf": (9.0, 1.0),
    "exp": (-INF, 0.0),
    "floor": (1.75, 1.0),
    "identity": (5.5, 5.5),
    "log": (1.0, 0.0),
    "recip": (4.0, 0.25),
    "sin": (INF, NAN),
    "sinh": (-INF, -INF),
    "sqrt": (9.0, 3.0),
    "tan": (INF, NAN),
    "tanh": (99.0, 1.0),
}
FLOATS_ONLY = [name for name in AT_THE_ENDS if name not in ("abs", "identity")]


def function(name: str) -> Any:
    return getattr(dmljax, f"element_wise_{name}")


# Values where functions end


@pytest.mark.parametrize("dtype", few_of(["float32", "float16"], "float16"))
@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_infinities_zeros_and_nan(name: str, dtype: str) -> None:
    result = function(name)(np.array([-INF, -0.0, 0.0, INF, NAN], dtype))
    assert result.dtype == dtype
    assert str(result.tolist()) == str(np.array(AT_THE_ENDS[name], dtype).tolist())


@pytest.mark.parametrize("name", ["asin", "acos", "atanh"])
def test_inverses_are_nan_just_outside_their_domain(call: Any, name: str) -> None:
    outside = np.nextafter(np.float32(1), np.float32(2))
    assert np.isnan(call(function(name), np.array([outside, -outside]))).all()


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "asin", "acos", "atan"])
def test_angles_are_polynomials_on_a_cpu(name: str) -> None:
    # XLA would call scalar code for its own functions, which takes 10 times as long and more.
    program = jax.jit(function(name)).trace(np.ones(2, np.float32)).lower(lowering_platforms=("cpu",)).as_text()
    assert not re.search(r"(chlo|stablehlo)\.a?(sin|cos|tan)", program)


@pytest.mark.parametrize("name", ["asin", "acos"])
def test_arcs_of_sines_and_cosines_are_within_a_unit_and_a_half(call: Any, name: str) -> None:
    half = np.linspace(2**-14, 1, 100_000, dtype=np.float32)
    x = np.concatenate([half, -half])
    assert units_off(call(function(name), x), getattr(np, f"arc{name[1:]}")(x.astype(np.float64))).max() < 1.5


def test_the_logarithm_and_the_root_are_nan_below_zero(call: Any) -> None:
    below = np.array([-1.0, -(2.0**-100), -3e38], np.float32)
    assert np.isnan(call(dmljax.element_wise_log, below)).all()
    assert np.isnan(call(dmljax.element_wise_sqrt, below)).all()
    assert np.isnan(call(dmljax.element_wise_acosh, np.array([1 - 2.0**-24, 0.0, -1.0], np.float32))).all()


def test_exponentials_overflow_to_infinity_and_not_before(call: Any) -> None:
    assert str(call(dmljax.element_wise_exp, np.array([89.0, -200.0], np.float32)).tolist()) == "[inf, 0.0]"
    assert np.isfinite(call(dmljax.element_wise_exp, np.array([88.5], np.float32))).all()
    # exp(89) is beyond float32, half of it is not.
    assert np.isfinite(call(dmljax.element_wise_sinh, np.array([89.0, -89.0], np.float32))).all()
    assert np.isfinite(call(dmljax.element_wise_cosh, np.array([89.0, -89.0], np.float32))).all()


def test_the_reciprocal_of_float16_is_computed_in_float32(call: Any) -> None:
    smallest = np.array([2.0**-24, 65504.0], np.float16)
    result = call(dmljax.element_wise_recip, smallest)
    assert_same_bits(result, np.array([INF, 1 / 65504], np.float16))


# ScaleBias


@pytest.mark.parametrize("dtype", few_of(["float32", "float16"], "float16"))
@pytest.mark.parametrize("name", AT_A_POINT)
def test_a_scale_bias_comes_before_the_function(name: str, dtype: str) -> None:
    after, expected = AT_A_POINT[name]
    input = np.array([(after - 1) / 2], dtype)
    result = function(name)(input, ScaleBias(2.0, 1.0))
    assert str(result.tolist()) == str(np.array([expected], dtype).tolist())


def test_a_scale_bias_is_within_one_unit_of_its_summands(call: Any) -> None:
    rng = np.random.default_rng(1)
    input = (rng.normal(size=2000) * 2.0 ** rng.integers(-30, 30, 2000)).astype(np.float32)
    for scale, bias in ((0.1, 0.7), (-3.3e10, 1e-5), (1e-9, -123.456)):
        scale, bias = float(np.float32(scale)), float(np.float32(bias))
        result = call(dmljax.element_wise_identity, input, scale_bias=ScaleBias(scale, bias))
        product = input.astype(np.float64) * scale
        error = np.abs(np.asarray(result, np.float64) - (product + bias))
        assert (error <= np.spacing((np.abs(product) + abs(bias)).astype(np.float32))).all()


def test_a_scale_bias_of_infinite_numbers(call: Any) -> None:
    input = np.array([1.0, -1.0, 0.0, INF, -INF, NAN], np.float32)
    for scale, bias, expected in (
        (INF, 1.0, [INF, -INF, NAN, INF, -INF, NAN]),
        (2.0, -INF, [-INF, -INF, -INF, NAN, -INF, NAN]),
        (0.0, 3.0, [3.0, 3.0, 3.0, NAN, NAN, NAN]),
    ):
        result = call(dmljax.element_wise_identity, input, scale_bias=ScaleBias(scale, bias))
        assert str(result.tolist()) == str(expected)


def test_a_scale_bias_beside_float16_is_of_float32(call: Any) -> None:
    # The first scale is 1 in float16, the second infinite, and 35000 is none of float16.
    for input, scale, bias, expected in ((1.0, 1 + 2.0**-20, -1.0, 2.0**-20), (0.5, 70000.0, 0.0, 35008.0)):
        result = call(dmljax.element_wise_identity, np.array([input], np.float16), scale_bias=ScaleBias(scale, bias))
        assert_same_bits(result, np.array([expected], np.float16))


def test_float16_is_rounded_once_after_the_function(call: Any) -> None:
    # In float16 1024.75 would be 1025 before the floor is taken, and 2049.75 would be 2050.
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
def test_a_scale_bias_on_64_bit_integers_is_no_float(call: Any) -> None:
    result = call(dmljax.element_wise_identity, np.array([3]), scale_bias=ScaleBias(2**60 + 1, 2**61 + 1))
    assert result.tolist() == [3 * (2**60 + 1) + 2**61 + 1]


def test_a_scale_bias_may_be_of_arrays_and_has_a_gradient() -> None:
    def total(scale: Any, bias: Any) -> Any:
        return dmljax.element_wise_identity(jnp.array([2.0, 3.0], jnp.float32), ScaleBias(scale, bias)).sum()

    arguments = jnp.float32(4), jnp.float32(1)
    assert total(*arguments) == 22
    assert jax.tree.map(float, jax.grad(total, argnums=(0, 1))(*arguments)) == (5.0, 2.0)


SCALE_BIAS_REFUSED: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "a fraction beside integers": (
        np.int8,
        ScaleBias(1.5, 0),
        InvalidDesc,
        r"scale_bias\.scale must be a whole number in \[-128, 127\] to fit int8; got 1.5",
    ),
    "too much for the integers": (
        np.int8,
        ScaleBias(1, 128),
        InvalidDesc,
        r"scale_bias\.bias must be a whole number in \[-128, 127\] to fit int8; got 128",
    ),
    "a negative number beside unsigned integers": (
        np.uint8,
        ScaleBias(-1, 0),
        InvalidDesc,
        r"scale_bias\.scale must be a whole number in \[0, 255\] to fit uint8; got -1",
    ),
    "too much for float32": (
        np.float16,
        ScaleBias(1e39, 0.0),
        InvalidDesc,
        r"scale_bias\.scale must fit float32; got 1e\+39",
    ),
    "several numbers": (
        np.float32,
        ScaleBias(np.ones(2, np.float32), 0.0),
        InvalidDesc,
        r"scale_bias\.scale must be a scalar; got shape \(2,\)",
    ),
    "a tuple": (np.float32, (1.0, 0.0), InvalidType, r"scale_bias must be a ScaleBias; got \(1\.0, 0\.0\)"),
    "one number": (np.float32, 2.0, InvalidType, r"scale_bias must be a ScaleBias; got 2\.0"),
    "text": (
        np.float32,
        ScaleBias("1", 0.0),
        InvalidType,
        r"scale_bias\.scale must be a JAX or NumPy array; got str",
    ),
}


@pytest.mark.parametrize("case", SCALE_BIAS_REFUSED)
def test_a_scale_bias_is_refused(case: str) -> None:
    dtype, scale_bias, error, message = SCALE_BIAS_REFUSED[case]
    with pytest.raises(error, match="^element_wise_identity: " + message):
        dmljax.element_wise_identity(np.ones(2, dtype), scale_bias)


@pytest.mark.parametrize(
    ("data_type", "scale", "bias", "message"),
    [
        (INT8, 1.5, 0, r"ScaleBias\.Scale must be a whole number in \[-128, 127\] to fit int8; got "),
        (INT8, 1, -200, r"ScaleBias\.Bias must be a whole number in \[-128, 127\] to fit int8; got "),
        (UINT8, -1, 0, r"ScaleBias\.Scale must be a whole number in \[0, 255\] to fit uint8; got "),
        (INT8, NAN, 0, r"ScaleBias\.Scale must be a whole number "),
        (INT8, 1, INF, r"ScaleBias\.Bias must be a whole number "),
    ],
)
def test_a_desc_refuses_a_scale_bias_that_is_none_of_the_integers(
    data_type: DataType, scale: float, bias: float, message: str
) -> None:
    tensor = TensorDesc(data_type, (2, 3))
    desc = directml.ElementWiseIdentityDesc(input=tensor, output=tensor, scale_bias=ScaleBias(scale, bias))
    with pytest.raises(InvalidDesc, match="DML_OPERATOR_ELEMENT_WISE_IDENTITY at DML_FEATURE_LEVEL_6_4: " + message):
        directml.validate(desc)


def test_a_desc_holds_a_scale_bias_in_float32() -> None:
    tensor = TensorDesc(FLOAT32, (1,))
    desc = directml.ElementWiseIdentityDesc(input=tensor, output=tensor, scale_bias=ScaleBias(0.1, -0.0))
    assert desc.scale_bias is not None
    assert [number.item.item() for number in desc.scale_bias] == [float(np.float32(0.1)), 0.0]
    assert directml.lower(desc)(np.ones(1, np.float32)).tolist() == [float(np.float32(0.1))]


@pytest.mark.parametrize("numbers", [(0.1, -0.0), (INF, -INF), (NAN, 16777216.0), (1e-45, 3.4028234663852886e38)])
def test_a_scale_bias_comes_back_from_json(numbers: tuple[float, float]) -> None:
    tensor = TensorDesc(FLOAT16, (2, 3))
    desc = directml.ElementWiseSqrtDesc(input=tensor, output=tensor, scale_bias=ScaleBias(*numbers))
    spelled = json.loads(json.dumps(directml.to_json(desc), allow_nan=False))
    assert list(spelled["Desc"]["ScaleBias"]) == ["Scale", "Bias"]
    assert directml.from_json(spelled) == desc


def test_no_scale_bias_comes_back_from_json() -> None:
    tensor = TensorDesc(FLOAT16, (2, 3))
    desc = directml.ElementWiseSqrtDesc(input=tensor, output=tensor)
    assert directml.to_json(desc)["Desc"]["ScaleBias"] is None
    assert directml.from_json(directml.to_json(desc)) == desc


@pytest.mark.parametrize(
    ("spelled", "error", "message"),
    [
        ({"Scale": 1.0}, InvalidDesc, r"ScaleBias\.Bias must be given; got none"),
        ({"Scale": "1", "Bias": 0}, InvalidType, r"ScaleBias\.Scale must be a number, .*; got '1'"),
        ({"Scale": 1, "Bias": 0, "Offset": 0}, InvalidDesc, "ScaleBias must have no field 'Offset'"),
        ([1, 0], InvalidType, r"ScaleBias must be an object; got \[1, 0\]"),
        ({"Scale": 1e39, "Bias": 0}, InvalidDesc, r"ScaleBias\.Scale must fit float32; got 1e\+39"),
    ],
)
def test_a_scale_bias_is_refused_in_json(spelled: Any, error: type[Exception], message: str) -> None:
    tensor = {"DataType": "FLOAT32", "Sizes": [2]}
    members = {"InputTensor": tensor, "OutputTensor": tensor, "ScaleBias": spelled}
    with pytest.raises(error, match="^DML_OPERATOR_ELEMENT_WISE_SQRT: " + message):
        directml.from_json({"Type": "ELEMENT_WISE_SQRT", "Desc": members})


def test_a_desc_takes_no_tuple_for_a_scale_bias() -> None:
    tensor = TensorDesc(FLOAT32, (2,))
    with pytest.raises(InvalidType, match=r"ScaleBias must be a ScaleBias; got \(1.0, 0.0\)"):
        directml.ElementWiseSqrtDesc(input=tensor, output=tensor, scale_bias=(1.0, 0.0))  # type: ignore[arg-type]


# Signs


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_negate_of_integers_wraps_around(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    expected = np.array([wrapped(-x, dtype) for x in input.tolist()], dtype)
    assert_same_bits(call(dmljax.element_wise_negate, input), expected)


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_the_absolute_value_of_the_smallest_integer_is_itself(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    expected = np.array([wrapped(abs(x), dtype) for x in input.tolist()], dtype)
    assert_same_bits(call(dmljax.element_wise_abs, input), expected)
    if dtype in SIGNED:
        assert expected[0] == input[0] == np.iinfo(dtype).min


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_negate_changes_the_sign_of_every_number(call: Any, dtype: Any) -> None:
    with np.errstate(invalid="ignore"):
        numbers = specials(dtype)[~np.isnan(specials(dtype))]
    unsigned = np.dtype(f"u{dtype.itemsize}")
    sign = unsigned.type(1 << (dtype.itemsize * 8 - 1))
    assert_same_bits(call(dmljax.element_wise_negate, numbers), (numbers.view(unsigned) ^ sign).view(dtype))


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_the_sign_of_nan_and_zeros_is_zero_and_subnormals_have_one(call: Any, dtype: Any) -> None:
    smallest = float(jnp.finfo(dtype).smallest_subnormal)
    input = np.array([NAN, -NAN, -0.0, 0.0, smallest, -smallest, INF, -INF, -2.5], dtype)
    assert_same_bits(call(dmljax.element_wise_sign, input), np.array([0, 0, 0, 0, 1, -1, 1, -1, -1], dtype))


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_the_sign_of_integers(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    expected = np.array([(x > 0) - (x < 0) for x in input.tolist()], dtype)
    assert_same_bits(call(dmljax.element_wise_sign, input), expected)


# Copies


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_identity_copies_every_bit(call: Any, dtype: Any) -> None:
    assert_same_bits(call(dmljax.element_wise_identity, specials(dtype)), specials(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_identity_of_a_desc_keeps_signalling_nan(dtype: str) -> None:
    values = specials(dtype)
    tensor = TensorDesc(DataType[dtype.upper()], values.shape)
    assert_same_bits(directml.lower(directml.ElementWiseIdentityDesc(input=tensor, output=tensor))(values), values)


# Rounding to integers

HALVES = [-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, -1.75, 1.25, -0.25, NAN, INF, -INF]
ROUNDED = {
    RoundingMode.HALVES_TO_NEAREST_EVEN: [
        *(-2.0, -2.0, -0.0, -0.0, 0.0, 0.0, 2.0, 2.0, -2.0, 1.0, -0.0),
        *(NAN, INF, -INF),
    ],
    RoundingMode.TOWARD_ZERO: [-2.0, -1.0, -0.0, -0.0, 0.0, 0.0, 1.0, 2.0, -1.0, 1.0, -0.0, NAN, INF, -INF],
    RoundingMode.TOWARD_INFINITY: [-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0, -2.0, 1.0, -0.0, NAN, INF, -INF],
}


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
@pytest.mark.parametrize("mode", RoundingMode)
def test_round_of_halves_zeros_and_what_is_not_finite(call: Any, mode: RoundingMode, dtype: Any) -> None:
    result = call(dmljax.element_wise_round, np.array(HALVES, dtype), rounding_mode=mode)
    assert result.dtype == dtype
    assert str(result.tolist()) == str(ROUNDED[mode])


@pytest.mark.parametrize("mode", RoundingMode)
def test_round_leaves_what_has_no_fraction(call: Any, mode: RoundingMode) -> None:
    large = np.array([2**23 - 1, 2**23 + 1, -(2**23) - 1, 2**24 + 2, 3e38, -3e38], np.float32)
    assert_same_bits(call(dmljax.element_wise_round, large, rounding_mode=mode), large)
    large = np.array([1023, 1025, -1025, 2049, 65504], np.float16)
    assert_same_bits(call(dmljax.element_wise_round, large, rounding_mode=mode), large)


def test_round_does_not_add_a_half(call: Any) -> None:
    # Their sums with 0.5 are rounded up, to 1 and to 2^23 + 2.
    below, odd = np.nextafter(np.float32(0.5), np.float32(0)), np.float32(2**23 + 1)
    for mode in RoundingMode:
        result = call(dmljax.element_wise_round, np.array([below, -below, odd]), rounding_mode=mode)
        assert str(result.tolist()) == "[0.0, -0.0, 8388609.0]"


def test_round_has_halves_to_even_by_default() -> None:
    assert dmljax.element_wise_round(np.array([0.5, 1.5, 2.5], np.float32)).tolist() == [0.0, 2.0, 2.0]


def test_ceil_and_floor_keep_minus_zero_and_what_has_no_fraction(call: Any) -> None:
    input = np.array([-0.5, -0.0, 0.5, -1.0, -8388607.5, 8388607.5, 3e38], np.float32)
    assert str(call(dmljax.element_wise_ceil, input).tolist()) == str(
        [-0.0, -0.0, 1.0, -1.0, -8388607.0, 8388608.0, float(np.float32(3e38))]
    )
    assert str(call(dmljax.element_wise_floor, input).tolist()) == str(
        [-1.0, -0.0, 0.0, -1.0, -8388608.0, 8388607.0, float(np.float32(3e38))]
    )


# Refused


@pytest.mark.parametrize("name", [*FLOATS_ONLY, "round"])
def test_integers_are_refused_where_floats_are_needed(name: str) -> None:
    with pytest.raises(InvalidType, match=f"^element_wise_{name}: input must be of a floating type; got int32"):
        function(name)(np.ones(2, np.int32))


@pytest.mark.parametrize("name", ["abs", "identity", "negate", "sign"])
def test_bool_is_refused_where_numbers_are_needed(name: str) -> None:
    with pytest.raises(
        InvalidType, match=f"^element_wise_{name}: input must be of an integer or floating type; got bool"
    ):
        function(name)(np.ones(2, bool))


def test_a_rounding_mode_is_no_number() -> None:
    mode: Any = 1
    with pytest.raises(InvalidType, match=r"^element_wise_round: rounding_mode must be a RoundingMode; got 1"):
        dmljax.element_wise_round(np.ones(2, np.float32), rounding_mode=mode)
    tensor = TensorDesc(FLOAT32, (2,))
    with pytest.raises(
        InvalidDesc, match=r"RoundingMode must be one of HALVES_TO_NEAREST_EVEN, TOWARD_ZERO, .*; got 3"
    ):
        directml.ElementWiseRoundDesc(input=tensor, output=tensor, rounding_mode=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ((FLOAT16, (2, 3)), "InputTensor and OutputTensor must have the same DataType; got FLOAT32 and FLOAT16"),
        ((FLOAT32, (1, 2, 3)), "InputTensor and OutputTensor must have the same DimensionCount; got 2 and 3"),
        ((FLOAT32, (3, 2)), r"InputTensor and OutputTensor must have the same Sizes; got \{2,3\} and \{3,2\}"),
    ],
)
@pytest.mark.parametrize(
    "kind", [directml.ElementWiseSqrtDesc, directml.ElementWiseNegateDesc], ids=lambda kind: kind.type
)
def test_a_desc_refuses_an_output_unlike_the_input(kind: Any, output: Any, message: str) -> None:
    desc = kind(input=TensorDesc(FLOAT32, (2, 3)), output=TensorDesc(*output))
    with pytest.raises(InvalidDesc, match=f"{kind.type} at DML_FEATURE_LEVEL_6_4: " + message):
        directml.validate(desc)


# CAST


@functools.cache
def hard(dtype: Any) -> Any:
    return hard_values(dtype)


@FULL
@pytest.mark.parametrize("source", few_types(REALS), ids=str)
def test_every_conversion_is_that_of_exact_arithmetic(source: Any) -> None:
    values = hard(source)

    @jax.jit  # inside of other computations, too
    def together(x: Any) -> Any:
        backwards = [jnp.flip(dmljax.cast(jnp.flip(x), dtype=dtype)) for dtype in REALS]
        return [dmljax.cast(x, dtype=dtype) for dtype in REALS], backwards

    straight, backwards = together(values)
    for i, dtype in enumerate(REALS):
        expected = one_nan(convert(values, dtype))
        for converted in (dmljax.cast(values, dtype=dtype), straight[i], backwards[i]):
            assert_same_bits(one_nan(np.asarray(converted)), expected)


@FULL
@pytest.mark.parametrize("source", few_types(REALS), ids=str)
def test_a_cast_of_a_cast_is_the_two_after_each_other(source: Any) -> None:
    # XLA leaves conversions out where it takes another one for the two of them.
    values = hard(source)[:: max(1, hard(source).size // 4000)]
    ends = [*FLOATS, np.dtype(np.uint8)]
    both = jax.jit(lambda x: [[dmljax.cast(dmljax.cast(x, dtype=a), dtype=b) for b in ends] for a in FLOATS])(values)
    for between, row in zip(FLOATS, both, strict=True):
        for dtype, converted in zip(ends, row, strict=True):
            expected = one_nan(convert(one_nan(convert(values, between)), dtype))
            assert_same_bits(one_nan(np.asarray(converted)), expected)


@pytest.mark.parametrize("source", few_types(REALS), ids=str)
def test_the_exact_arithmetic_of_arrays_is_that_of_fractions(source: Any) -> None:
    values = hard(source)
    values = np.random.default_rng(1).choice(values, 300)
    with np.errstate(invalid="ignore"):
        finite = values[np.isfinite(values.astype(np.float64))]
    for dtype in REALS:
        expected = np.array([number(value, dtype) for value in finite], dtype)
        assert_same_bits(convert(finite, dtype), finite if dtype == source else expected)


@FULL
@pytest.mark.parametrize("source", few_types(FLOATS), ids=str)
def test_what_other_platforms_compute_is_the_same(source: Any) -> None:
    # On CPU, XLA's own conversions serve where they are right; the others are in the program for other platforms.
    values = hard(source)
    for dtype in REALS:
        if dtype in FLOATS and dtype != source and max(dtype.itemsize, source.itemsize) < 8:
            converted = jax.jit(lambda x, dtype=dtype: rounding.by_bits(x, dtype))(values)
        elif dtype in INTEGERS:
            converted = jax.jit(lambda x, dtype=dtype: rounding.truncated(x, dtype))(values)
        else:
            continue
        assert_same_bits(one_nan(np.asarray(converted)), one_nan(convert(values, dtype)))


@FULL
def test_a_scalar_is_cast_as_an_array_is() -> None:
    for source in FLOATS:
        for value in specials(source):
            for dtype in REALS:
                converted = np.asarray(dmljax.cast(value, dtype=dtype))
                assert converted.shape == ()
                assert_same_bits(one_nan(converted.reshape(1)), one_nan(convert(np.array([value]), dtype)))


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_a_cast_to_the_same_type_copies_every_bit(call: Any, dtype: Any) -> None:
    values = random_array(np.random.default_rng(3), dtype, (5, 7))
    assert_same_bits(call(dmljax.cast, values, dtype=dtype), values)


@pytest.mark.parametrize(
    ("input", "dtype", "expected"),
    [
        (np.array([-1.9, 1.9, 300, -7, np.nan, np.inf], np.float32), "uint8", [0, 1, 255, 0, 0, 255]),
        (np.array([2.0**31, -(2.0**31), 2.0**31 - 128], np.float32), "int32", [2**31 - 1, -(2**31), 2**31 - 128]),
        (np.array([-1, 300, 128], np.int32), "int8", [-1, 44, -128]),
        (np.array([-1, -128], np.int8), "uint16", [65535, 65408]),
        (np.array([1e-45, -0.0, np.nan], np.float32), "bool", [True, False, True]),
        (np.array([True, False]), "bfloat16", [1, 0]),
        (np.array([2**24 + 2**16 + 1, 65520, 65519], np.int32), "float16", [np.inf, np.inf, 65504]),
        (np.array([2**24 + 2**16 + 1, 2**24 + 2**16], np.int32), "bfloat16", [2**24 + 2**17, 2**24]),
        (np.array([65520, 65519.99, 2.0**-25, 2.0**-24], np.float32), "float16", [np.inf, 65504, 0, 2.0**-24]),
    ],
)
def test_casts_that_surprise(call: Any, input: Any, dtype: str, expected: Any) -> None:
    assert_same_bits(call(dmljax.cast, input, dtype=dtype), np.array(expected).astype(jnp.dtype(dtype)))


@needs_x64
def test_a_float64_is_rounded_once() -> None:
    above_a_half = np.array([1 + 2.0**-11 + 2.0**-40])
    assert_same_bits(dmljax.cast(above_a_half, dtype="float16"), np.array([1 + 2.0**-10], np.float16))
    assert_same_bits(dmljax.cast(np.array([1e-45, 2.0**-150]), dtype="float32"), np.array([1e-45, 0], np.float32))
    assert_same_bits(
        dmljax.cast(np.array([1e-45], np.float32), dtype="float64"), np.array([1e-45], np.float32).astype(np.float64)
    )


@needs_x32
def test_64_bits_are_refused_without_64_bit_types() -> None:
    for dtype in ("float64", "int64", "uint64"):
        with pytest.raises(directml.Unsupported, match=r"^cast: dtype must be of at most 32 bits"):
            dmljax.cast(np.ones(2, np.float32), dtype=dtype)


@pytest.mark.parametrize(
    ("input", "dtype", "error", "message"),
    [
        ([1.0], "int8", InvalidType, "input must be a JAX or NumPy array; got list"),
        (np.ones(2, complex), "int8", InvalidType, "input must be bool, an integer of 8 to 64 bits or a float"),
        (np.ones(2, np.float32), None, InvalidType, "dtype must be a dtype; got None"),
        (np.ones(2, np.float32), "complex64", InvalidType, "dtype must be bool, an integer of 8 to 64 bits or a float"),
        (np.ones(2, np.float32), "float8_e5m2", InvalidType, "dtype must be bool, an integer of 8 to 64 bits or"),
        (np.ones(2, np.float32), "fp16", InvalidType, "dtype must be a dtype; got 'fp16'"),
    ],
)
def test_a_cast_refuses(input: Any, dtype: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match="^cast: " + message):
        dmljax.cast(input, dtype=dtype)


@FULL
@pytest.mark.parametrize("source", few_types(FLOATS), ids=str)
def test_gradients_pass_between_floats_and_are_cast_back(source: Any) -> None:
    x = np.array([1.5, -2.0, 3.0], source)
    for dtype in FLOATS:
        weights = jnp.array([1.0, 2.5, -4.0], dtype)
        gradient = jax.grad(lambda x, dtype=dtype, w=weights: (dmljax.cast(x, dtype=dtype) * w).sum())(x)
        assert_same_bits(gradient, np.asarray(weights).astype(source))
        _, tangent = jax.jvp(lambda x, dtype=dtype: dmljax.cast(x, dtype=dtype), (x,), (x,))
        assert_same_bits(tangent, x.astype(dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, np.dtype(bool)], ids=str)
def test_no_gradient_passes_through_integers(dtype: Any) -> None:
    through = lambda x: dmljax.cast(dmljax.cast(x, dtype=dtype), dtype="float32").sum()  # noqa: E731
    assert jax.grad(through)(np.array([1.5, 2.5], np.float32)).tolist() == [0, 0]
    _, tangent = jax.jvp(
        lambda x: dmljax.cast(x, dtype=dtype), (np.array([1.5], np.float32),), (np.array([1], np.float32),)
    )
    assert tangent.dtype == jax.dtypes.float0


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            TensorDesc(DataType.INT8, (1, 1, 3, 2)),
            r"InputTensor and OutputTensor must have the same Sizes; got {1,1,2,3} and",
        ),
        (TensorDesc(DataType.INT8, (2, 3)), "must have the same DimensionCount; got 4 and 2"),
        (TensorDesc(DataType.INT4, (1, 1, 2, 3)), r"OutputTensor.DataType must be one of .*; got INT4"),
    ],
)
def test_a_cast_desc_refuses(output: TensorDesc, message: str) -> None:
    desc = directml.CastDesc(input=TensorDesc(DataType.FLOAT32, (1, 1, 2, 3)), output=output)
    with pytest.raises(InvalidDesc, match=message):
        directml.validate(desc)


def test_level_1_0_casts_no_integers_of_32_bits_as_its_page_has_it() -> None:
    tensors = {name: TensorDesc(DataType[name], (1, 1, 2, 3)) for name in ("INT32", "INT16", "FLOAT32")}
    directml.validate(directml.CastDesc(input=tensors["INT16"], output=tensors["FLOAT32"]), feature_level="1_0")
    for desc in (
        directml.CastDesc(input=tensors["INT32"], output=tensors["FLOAT32"]),
        directml.CastDesc(input=tensors["FLOAT32"], output=tensors["INT32"]),
    ):
        assert directml.find_minimum_feature_level(desc) is directml.FeatureLevel.FL_3_0


def test_sizes_of_a_cast_may_be_symbolic() -> None:
    (b,) = jax.export.symbolic_shape("b")
    exported = jax.export.export(jax.jit(lambda x: dmljax.cast(x, dtype="uint8")))(
        jax.ShapeDtypeStruct((b,), "float32")
    )
    assert exported.call(np.array([-1, 3.7, 1e9], np.float32)).tolist() == [0, 3, 255]


# VALUE_SCALE_2D


def test_a_bias_of_each_channel_is_added_before_the_product_is_rounded(call: Any) -> None:
    # (1 + 2**-12) squared is 1 + 2**-11 + 2**-24, whose last digit float32 has no room for.
    x = np.float32(1 + 2.0**-12)
    input, bias = np.full((2, 3, 1, 2), x), np.array([-1, 0, -1 - 2.0**-11], np.float32)
    exact = [2.0**-11 + 2.0**-24, float(np.float32(1 + 2.0**-11)), 2.0**-24]
    result = call(dmljax.value_scale_2d, input, x, bias)
    assert_same_bits(result, np.broadcast_to(np.array(exact, np.float32).reshape(3, 1, 1), input.shape))


def test_channels_may_share_a_bias_and_be_of_any_number_and_dimensions(call: Any) -> None:
    input = np.arange(8, dtype=np.float16).reshape(2, 4)
    assert call(dmljax.value_scale_2d, input, 2.0, 0.5).tolist() == (input * 2 + 0.5).tolist()
    assert_same_bits(call(dmljax.value_scale_2d, input, 2.0, np.ones(1, np.float32)), input * 2 + np.float16(1))
    bias = np.array([2.0**-20, 1, 2, 3], np.float32)  # float32 beside float16
    assert_same_bits(call(dmljax.value_scale_2d, input, 2.0**-20, bias)[0, :1], np.array([2.0**-20], np.float16))


VALUE_SCALE_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "integers": ({"input": np.ones((1, 3), np.int32)}, InvalidType, "input must be of a floating type; got int32"),
    "a vector": ({"input": np.ones(3, np.float32)}, InvalidDesc, "input must have at least 2 dimensions; got 1"),
    "biases of another number": (
        {"bias": np.ones(2, np.float32)},
        InvalidDesc,
        r"bias must be one number, or one for each of 3 channels; got shape \(2,\)",
    ),
    "biases in a column": (
        {"bias": np.ones((3, 1), np.float32)},
        InvalidDesc,
        r"bias must be one number, or one for each of 3 channels; got shape \(3, 1\)",
    ),
    "integer biases": ({"bias": np.ones(3, np.int32)}, InvalidType, "bias must be of a floating type; got int32"),
    "several scales": ({"scale": np.ones(3, np.float32)}, InvalidDesc, r"scale must be a scalar; got shape \(3,\)"),
}


@pytest.mark.parametrize("case", VALUE_SCALE_REFUSED)
def test_value_scale_refuses(case: str) -> None:
    wrong, kind, message = VALUE_SCALE_REFUSED[case]
    given: dict[str, Any] = {"input": np.ones((1, 3), np.float32), "scale": 1.0, "bias": 0.0}
    with pytest.raises(kind, match=f"^value_scale_2d: {message}"):
        dmljax.value_scale_2d(**given | wrong)


@needs_x64
def test_a_wider_bias_is_refused() -> None:
    with pytest.raises(InvalidType, match="bias must be of at most float32; got float64"):
        dmljax.value_scale_2d(np.ones((1, 3), np.float16), 1.0, np.ones(3))


@pytest.mark.parametrize(
    ("sizes", "bias", "message"),
    [
        ((1, 2, 4, 4), (1, 2), "ChannelCount must be 1 or 3; got 2"),
        ((1, 3, 4, 4), (1,), "ChannelCount must be 3, the size of dimension 1 of InputTensor; got 1"),
    ],
)
def test_a_value_scale_desc_refuses(sizes: Any, bias: Any, message: str) -> None:
    tensor = TensorDesc(DataType.FLOAT32, sizes)
    desc = directml.ValueScale2DDesc(input=tensor, output=tensor, scale=1, bias=bias)
    with pytest.raises(InvalidDesc, match=f"^DML_OPERATOR_VALUE_SCALE_2D at DML_FEATURE_LEVEL_6_4: {message}"):
        directml.validate(desc)
