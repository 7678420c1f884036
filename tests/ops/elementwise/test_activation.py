"""Every ACTIVATION_* except softmax and hardmax; the pages' own examples run in test_every_operator.py."""

import inspect
import math
from dataclasses import replace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_activation import ELEMENTWISE, PARAMETERIZED
from helpers import (
    FLOATS,
    INTEGERS,
    SAMPLED,
    assert_near_with_signs,
    assert_same_bits,
    check_refused,
    f32,
    few_types,
    random_array,
    refuses,
    specials,
    tensor,
    units_off,
)

import dmljax
from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

NAN, INF = math.nan, math.inf

# Each element by itself

ENDS = [-INF, -6e4, -2.0, -0.5, -0.0, 0.0, 0.5, 3.0, 6e4, INF, NAN]
# The typical values of the attributes, which are their defaults, and values for those without
TYPICAL: dict[str, dict[str, float]] = {
    "celu": {"alpha": 1.0},
    "elu": {"alpha": 1.0},
    "gelu": {},
    "hard_sigmoid": {"alpha": 0.2, "beta": 0.5},
    "hard_swish": {"alpha": 1 / 6, "beta": 0.5},
    "identity": {},
    "leaky_relu": {"alpha": 0.01},
    "linear": {"alpha": 1.0, "beta": 0.0},
    "parametric_softplus": {"alpha": 1.0, "beta": 1.0},
    "relu": {},
    "scaled_elu": {"alpha": 1.6732, "gamma": 1.0507},
    "scaled_tanh": {"alpha": 1.0, "beta": 0.5},
    "shrink": {"bias": 0.0, "threshold": 0.5},
    "sigmoid": {},
    "softplus": {"steepness": 1.0},
    "softsign": {},
    "swish": {"sigmoid_input_scale": 1.0},
    "tanh": {},
    "thresholded_relu": {"alpha": 1.0},
}
OF_INTEGERS = ["relu", "shrink"]


def function(name: str) -> Any:
    return getattr(dmljax, f"activation_{name}")


@SAMPLED
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", TYPICAL)
def test_infinities_zeros_nan_and_huge_numbers_follow_the_formula(name: str, dtype: str) -> None:
    input = np.array(ENDS, dtype)
    with np.errstate(all="ignore"):
        formula = ELEMENTWISE[f"ACTIVATION_{name.upper()}"].formula
        exact = np.asarray(formula(input.astype(np.float64), **TYPICAL[name]))
        rounded = exact.astype(dtype).astype(np.float64)
    result = function(name)(input)
    assert result.dtype == dtype
    assert_near_with_signs(result, rounded)


@SAMPLED
@pytest.mark.parametrize("name", TYPICAL)
def test_defaults_are_the_typical_values(name: str) -> None:
    parameters = inspect.signature(function(name)).parameters.values()
    assert {each.name: each.default for each in parameters if each.default is not each.empty} == TYPICAL[name]


@pytest.mark.parametrize("name", TYPICAL)
def test_other_types_are_refused(name: str) -> None:
    kind, allowed = ("bool", "an integer or floating") if name in OF_INTEGERS else ("int32", "a floating")
    with refuses(f"activation_{name}: input must be of {allowed} type; got {kind}", InvalidType):
        function(name)(np.ones(2, kind))


def test_attributes_of_float16_activations_stay_float32(call: Any) -> None:
    one = np.array([1.0], np.float16)
    assert call(dmljax.activation_thresholded_relu, one, alpha=1 - 2.0**-13).tolist() == [1.0]  # 1 in float16
    result = call(dmljax.activation_linear, one, alpha=1 + 2.0**-20, beta=-1.0)
    assert result.tolist() == [2.0**-20]
    assert call(dmljax.activation_leaky_relu, np.array([-0.5], np.float16), alpha=70000.0).tolist() == [-35008.0]


def test_attributes_may_be_arrays_and_have_a_gradient() -> None:
    input = jnp.array([-2.0, 3.0, -5.0], jnp.float32)
    assert jax.grad(lambda alpha: dmljax.activation_leaky_relu(input, alpha).sum())(jnp.float32(0.5)) == -7


# Rectifiers


@SAMPLED
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_relu_keeps_every_bit_of_positive_numbers_and_nan(call: Any, dtype: Any) -> None:
    input, unsigned = specials(dtype), f"u{dtype.itemsize}"
    is_kept = np.array([x > 0 or math.isnan(x) for x in input.tolist()])
    expected = np.where(is_kept, input.view(unsigned), np.zeros_like(input.view(unsigned))).view(dtype)
    assert_same_bits(call(dmljax.activation_relu, input), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.gate(but=1)
def test_relu_grad_is_the_gradient_of_relu_bit_for_bit(dtype: str) -> None:
    rng = np.random.default_rng(0)
    input, upper = (random_array(rng, dtype, (500,)) for _ in range(2))
    _, pullback = jax.vjp(dmljax.activation_relu, input)
    assert_same_bits(dmljax.activation_relu_grad(input, upper), pullback(jnp.asarray(upper))[0])


def test_relu_grad_is_zero_at_zero_and_nan_and_otherwise_keeps_every_bit(call: Any) -> None:
    input = np.array([0.0, -0.0, NAN, -1.0, 1e-45, 2.0, INF], np.float32)
    upper = np.array([1.0, 2.0, 3.0, NAN, 5.0, NAN, -0.0], np.float32)
    assert str(call(dmljax.activation_relu_grad, input, upper).tolist()) == "[0.0, 0.0, 0.0, 0.0, 5.0, nan, -0.0]"
    result = call(dmljax.activation_relu_grad, np.array([-1, 0, 1], np.int8), np.array([5, 6, 7], np.int8))
    assert result.tolist() == [0, 0, 7]


def test_a_slope_is_broadcast_by_the_function(call: Any) -> None:
    input = np.array([[-2.0, 3.0, -0.0], [-4.0, -1.0, NAN]], np.float32)
    result = call(dmljax.activation_parameterized_relu, input, np.array([0.5, 2.0, 3.0], np.float32))
    assert str(result.tolist()) == "[[-1.0, 3.0, -0.0], [-2.0, -2.0, nan]]"
    result = call(dmljax.activation_parameterized_relu, np.array([-100, 5, -1], np.int8), slope=3)
    assert result.tolist() == [-44, 5, -3]  # -300 wraps around


def test_a_slope_is_repeated_in_a_desc_by_strides_of_0() -> None:
    slope = TensorDesc(DataType.FLOAT32, (2, 3), strides=(0, 1))
    input = np.array([[-2.0, 3.0, -1.0], [-4.0, -1.0, 2.0]], np.float32)
    lowered = directml.lower(replace(PARAMETERIZED, slope=slope))
    result = lowered(input, slope.read(np.array([0.5, 2.0, 3.0], np.float32)))
    assert result.tolist() == [[-1.0, 3.0, -3.0], [-2.0, -2.0, 2.0]]


@SAMPLED
@pytest.mark.parametrize(
    ("bias", "threshold", "input", "expected"),
    [
        (1, 2.5, [-4, -3, -2, 2, 3, 4], [-3, -2, 0, 0, 2, 3]),
        (1, 2, [-4, -3, -2, 2, 3, 4], [-3, -2, 0, 0, 2, 3]),
        (0, 0.5, [-1, 0, 1], [-1, 0, 1]),
        (
            1,
            -0.5,
            [-128, -2, -1, 0, 1],
            [-127, -1, 0, -1, 0],
        ),  # every element is above or below; "above" is tested first
        (1, -1.5, [-128, -2, -1, 0, 1], [-127, -1, -2, -1, 0]),
        (-100, 1, [100, -100], [-56, 56]),  # 200 and -200 wrap around
        (1, 127, [-128, -127, 127], [-127, 0, 0]),
        (1, 127.5, [-128, -127, 127], [-127, 0, 0]),
        (1, 128, [-128, -127, 127], [0, 0, 0]),
        (1, 1e9, [-128, -127, 127], [0, 0, 0]),
        (1, INF, [-128, -127, 127], [0, 0, 0]),
    ],
)
def test_shrink_of_signed_integers_compares_with_the_threshold_itself(
    bias: float, threshold: float, input: list[int], expected: list[int]
) -> None:
    result = dmljax.activation_shrink(np.array(input, np.int8), bias=bias, threshold=threshold)
    assert_same_bits(result, np.array(expected, np.int8))


@SAMPLED
@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(2.5, [0, 0, 0, 2, 254]), (0, [0, 0, 1, 2, 254]), (254.5, [0, 0, 0, 0, 254]), (1e9, [0, 0, 0, 0, 0])],
)
def test_shrink_of_unsigned_integers_has_no_lower_branch(threshold: float, expected: list[int]) -> None:
    result = dmljax.activation_shrink(np.array([0, 1, 2, 3, 255], np.uint8), bias=1, threshold=threshold)
    assert_same_bits(result, np.array(expected, np.uint8))


def test_shrink_of_floats_tests_the_upper_branch_first_if_the_threshold_is_negative(call: Any) -> None:
    input = np.array([-3.0, -1.0, 0.0, 3.0], np.float32)
    assert call(dmljax.activation_shrink, input, bias=1.0, threshold=-1.0).tolist() == [-2.0, 0.0, -1.0, 2.0]


@pytest.mark.parametrize(
    ("dtype", "bias", "message"),
    [
        ("int8", 0.5, "bias must be a whole number in [-128, 127] to fit int8; got 0.5"),
        ("uint8", -1, "bias must be a whole number in [0, 255] to fit uint8; got -1"),
    ],
)
def test_shrink_of_integers_refuses(dtype: str, bias: float, message: str) -> None:
    with refuses(f"activation_shrink: {message}", InvalidDesc):
        dmljax.activation_shrink(np.ones(2, dtype), bias=bias)
    whole = tensor(dtype.upper(), 2)
    desc = directml.ActivationShrinkDesc(input=whole, output=whole, bias=0, threshold=1)
    check_refused(desc, {"bias": bias}, "Bias must be a whole number ")


@SAMPLED
@pytest.mark.parametrize(
    ("dtype", "threshold", "expected"),
    [
        ("uint8", -1.5, [255, 0, 126, 254]),
        ("uint8", 1e9, [0, 0, 0, 0]),
        ("int8", NAN, [0, 0, 0, 0]),
        ("int8", -1.5, [-127, 0, 126, -2]),
        ("int8", -200.0, [127, 0, 126, -2]),
    ],
)
def test_shrink_of_integers_takes_any_threshold(call: Any, dtype: str, threshold: float, expected: list[int]) -> None:
    # The smallest number, 1, 127, and -1 or the largest number.
    info = np.iinfo(dtype)
    last = -1 if info.min else 255
    input = np.array([info.min, 1, 127, last], dtype)
    assert call(dmljax.activation_shrink, input, bias=1, threshold=threshold).tolist() == expected


# Exponential units


def test_celu_is_relu_if_alpha_is_zero_and_follows_the_formula_if_it_is_negative(call: Any) -> None:
    input = np.array([-INF, -2.0, 0.0, 3.0, NAN], np.float32)
    result = call(dmljax.activation_celu, input, alpha=0.0)
    assert np.array_equal(result, [0.0, 0.0, 0.0, 3.0, NAN], equal_nan=True)
    result = call(dmljax.activation_celu, input, alpha=-1.0)
    exact = np.array([-INF, -math.expm1(2), 0.0, 3.0, NAN])
    assert units_off(result, exact).max() <= 4


def test_elu_keeps_tiny_negative_numbers(call: Any) -> None:
    input = np.array([-1e-10, -1e-30], np.float32)
    for name in ("elu", "celu"):
        assert_same_bits(call(function(name), input), input)


@pytest.mark.parametrize("steepness", [0.5, -1.0, NAN])
def test_a_steepness_below_1_needs_level_6_4(steepness: float) -> None:
    desc = directml.ActivationSoftplusDesc(input=f32(2), output=f32(2), steepness=1)
    message = "Steepness must be at least 1 below DML_FEATURE_LEVEL_6_4;"
    check_refused(desc, {"steepness": steepness}, message, level="6_3")
    directml.validate(replace(desc, steepness=steepness))
    directml.validate(desc, feature_level="3_0")


def test_softplus_keeps_tiny_and_huge_results(call: Any) -> None:
    input = np.array([-80.0, -20.0, 100.0, 1e30], np.float32)
    exact = np.array([math.exp(-80), math.exp(-20), 100.0, float(np.float32(1e30))])
    assert units_off(call(dmljax.activation_softplus, input), exact).max() <= 4
    result = call(dmljax.activation_softplus, np.array([0.0, 3e38], np.float32), steepness=0.5)
    assert units_off(result, np.array([2 * math.log(2), float(np.float32(3e38))])).max() <= 1


# Lines


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_identity_copies_every_bit(call: Any, dtype: Any) -> None:
    assert_same_bits(call(dmljax.activation_identity, specials(dtype)), specials(dtype))


def test_hard_sigmoid_saturates_at_exactly_0_and_1(call: Any) -> None:
    input = np.array([-2.5, -3.0, 2.5, 3.0, 0.0], np.float32)
    assert call(dmljax.activation_hard_sigmoid, input).tolist() == [0.0, 0.0, 1.0, 1.0, 0.5]
    # A negative slope: the larger the element, the smaller the result.
    assert call(dmljax.activation_hard_sigmoid, input, alpha=-1.0).tolist() == [1.0, 1.0, 0.0, 0.0, 0.5]


def test_a_hard_sigmoid_has_no_gradient_where_it_is_0_or_1() -> None:
    for x, grad in ((-2.5, 0.0), (0.0, 0.25), (2.5, 0.0), (3.0, 0.0)):
        assert jax.grad(dmljax.activation_hard_sigmoid)(jnp.float32(x / 1.25), 0.25, 0.5) == grad


# Descriptors that only activations have


@pytest.mark.parametrize(("given", "missing"), [((), "Input"), (("output",), "Input"), (("input",), "Output")])
def test_a_standalone_activation_needs_its_tensors(given: Any, missing: str) -> None:
    desc = directml.ActivationReluDesc(**dict.fromkeys(given, f32(2, 3)))
    for use in (directml.validate, directml.lower):
        with refuses(f"{missing}Tensor must be given, unless the activation is fused; got none", InvalidDesc):
            use(desc)
