"""Every ACTIVATION_* but softmax and hardmax; the pages' own examples run in test_every_operator.py."""

import inspect
import math
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, INTEGERS, assert_same_bits, few_of, few_types, random_array, specials, units_off

import dmljax
from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

FLOAT32, FLOAT16, INT8, UINT8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.UINT8
NAN, INF = math.nan, math.inf

# Every element alone

HUGE = 3e38  # of float32; float16 has 6e4
ENDS = [-INF, -HUGE, -0.0, 0.0, HUGE, INF, NAN]
LN_2, SELU_LIMIT = math.log(2), -1.0507 * 1.6732
# What each activation gives those; with the typical values of its attributes where it has some, else with these.
AT_THE_ENDS: dict[str, tuple[dict[str, float], list[float]]] = {
    "celu": ({}, [-1.0, -1.0, -0.0, 0.0, HUGE, INF, NAN]),
    "elu": ({}, [-1.0, -1.0, -0.0, 0.0, HUGE, INF, NAN]),
    "gelu": ({}, [NAN, -0.0, -0.0, 0.0, HUGE, INF, NAN]),
    "hard_sigmoid": ({}, [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, NAN]),
    "hard_swish": ({}, [NAN, -0.0, -0.0, 0.0, HUGE, INF, NAN]),
    "identity": ({}, ENDS),
    "leaky_relu": ({}, [-INF, -0.01 * HUGE, -0.0, 0.0, HUGE, INF, NAN]),
    "linear": ({"alpha": 0.5, "beta": 1.0}, [-INF, -0.5 * HUGE, 1.0, 1.0, 0.5 * HUGE, INF, NAN]),
    "parametric_softplus": ({"alpha": 0.5, "beta": 1.0}, [0.0, 0.0, LN_2 / 2, LN_2 / 2, 0.5 * HUGE, INF, NAN]),
    "relu": ({}, [0.0, 0.0, 0.0, 0.0, HUGE, INF, NAN]),
    "scaled_elu": ({}, [SELU_LIMIT, SELU_LIMIT, -0.0, 0.0, 1.0507 * HUGE, INF, NAN]),
    "scaled_tanh": ({}, [-1.0, -1.0, -0.0, 0.0, 1.0, 1.0, NAN]),
    "shrink": ({}, [-INF, -HUGE, 0.0, 0.0, HUGE, INF, 0.0]),
    "sigmoid": ({}, [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, NAN]),
    "softplus": ({}, [0.0, 0.0, LN_2, LN_2, HUGE, INF, NAN]),
    "softsign": ({}, [NAN, -1.0, -0.0, 0.0, 1.0, NAN, NAN]),
    "swish": ({}, [NAN, -0.0, -0.0, 0.0, HUGE, INF, NAN]),
    "tanh": ({}, [-1.0, -1.0, -0.0, 0.0, 1.0, 1.0, NAN]),
    "thresholded_relu": ({}, [0.0, 0.0, 0.0, 0.0, HUGE, INF, 0.0]),
}
OF_INTEGERS = ["relu", "shrink"]


def function(name: str) -> Any:
    return getattr(dmljax, f"activation_{name}")


@pytest.mark.parametrize("dtype", few_of(["float32", "float16"], "float16"))
@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_infinities_zeros_nan_and_huge_numbers(name: str, dtype: str) -> None:
    attributes, expected = AT_THE_ENDS[name]
    smaller = 6e4 / HUGE if dtype == "float16" else 1.0
    input, exact = (np.array([x * smaller if abs(x) > 1e30 else x for x in row]) for row in (ENDS, expected))
    result = function(name)(input.astype(dtype), **attributes)
    assert result.dtype == dtype
    assert units_off(result, exact).max() <= 1
    is_zero = exact == 0
    assert_same_bits(np.signbit(result)[is_zero], np.signbit(exact)[is_zero])


@pytest.mark.parametrize(
    ("name", "typical"),
    [
        ("celu", {"alpha": 1.0}),
        ("elu", {"alpha": 1.0}),
        ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
        ("hard_swish", {"alpha": 1 / 6, "beta": 0.5}),
        ("leaky_relu", {"alpha": 0.01}),
        ("linear", {}),
        ("parametric_softplus", {}),
        ("scaled_elu", {"alpha": 1.6732, "gamma": 1.0507}),
        ("scaled_tanh", {"alpha": 1.0, "beta": 0.5}),
        ("shrink", {"bias": 0.0, "threshold": 0.5}),
        ("softplus", {"steepness": 1.0}),
        ("swish", {"sigmoid_input_scale": 1.0}),
        ("thresholded_relu", {"alpha": 1.0}),
    ],
)
def test_the_typical_values_are_the_defaults(name: str, typical: dict[str, float]) -> None:
    parameters = inspect.signature(function(name)).parameters.values()
    assert {each.name: each.default for each in parameters if each.default is not each.empty} == typical


@pytest.mark.parametrize("name", [name for name in AT_THE_ENDS if name not in OF_INTEGERS])
def test_integers_are_refused_where_floats_are_needed(name: str) -> None:
    attributes = AT_THE_ENDS[name][0]
    with pytest.raises(InvalidType, match=f"^activation_{name}: input must be of a floating type; got int32"):
        function(name)(np.ones(2, np.int32), **attributes)


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_bool_is_refused_where_numbers_are_needed(name: str) -> None:
    with pytest.raises(
        InvalidType, match=f"^activation_{name}: input must be of an integer or floating type; got bool"
    ):
        function(name)(np.ones(2, bool))


def test_attributes_are_refused_by_name() -> None:
    ones = np.ones(2, np.float32)
    with pytest.raises(InvalidDesc, match=r"^activation_elu: alpha must be a scalar; got shape \(2,\)"):
        dmljax.activation_elu(ones, ones)
    with pytest.raises(InvalidType, match=r"^activation_elu: alpha must be a JAX or NumPy array; got str"):
        dmljax.activation_elu(ones, "1")  # type: ignore[arg-type]
    with pytest.raises(InvalidDesc, match=r"^activation_elu: alpha must fit float32; got 1e\+39"):
        dmljax.activation_elu(ones.astype(np.float16), 1e39)


def test_attributes_beside_float16_are_of_float32(call: Any) -> None:
    one = np.array([1.0], np.float16)
    assert call(dmljax.activation_thresholded_relu, one, alpha=1 - 2.0**-13).tolist() == [1.0]  # 1 in float16
    result = call(dmljax.activation_linear, one, alpha=1 + 2.0**-20, beta=-1.0)
    assert result.tolist() == [2.0**-20]
    assert call(dmljax.activation_leaky_relu, np.array([-0.5], np.float16), alpha=70000.0).tolist() == [-35008.0]


def test_attributes_may_be_arrays_and_have_a_gradient() -> None:
    input = jnp.array([-2.0, 3.0, -5.0], jnp.float32)
    assert jax.grad(lambda alpha: dmljax.activation_leaky_relu(input, alpha).sum())(jnp.float32(0.5)) == -7


# Rectifiers


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_relu_keeps_every_bit_of_what_is_above_zero_and_of_nan(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    kept = np.array([x > 0 or math.isnan(x) for x in input.tolist()])
    unsigned = f"u{dtype.itemsize}"
    expected = np.where(kept, input.view(unsigned), np.zeros_like(input.view(unsigned))).view(dtype)
    assert_same_bits(call(dmljax.activation_relu, input), expected)


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_relu_of_integers(dtype: Any) -> None:
    input = specials(dtype)
    assert_same_bits(dmljax.activation_relu(input), np.maximum(input, 0))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_relu_grad_is_the_gradient_of_relu_bit_for_bit(dtype: str) -> None:
    rng = np.random.default_rng(0)
    input, upper = (random_array(rng, dtype, (500,)) for _ in range(2))
    _, pullback = jax.vjp(dmljax.activation_relu, input)
    assert_same_bits(dmljax.activation_relu_grad(input, upper), pullback(jnp.asarray(upper))[0])


def test_relu_grad_is_zero_at_zero_and_nan_and_keeps_what_it_passes_on(call: Any) -> None:
    input = np.array([0.0, -0.0, NAN, -1.0, 1e-45, 2.0, INF], np.float32)
    upper = np.array([1.0, 2.0, 3.0, NAN, 5.0, NAN, -0.0], np.float32)
    assert str(call(dmljax.activation_relu_grad, input, upper).tolist()) == "[0.0, 0.0, 0.0, 0.0, 5.0, nan, -0.0]"
    result = call(dmljax.activation_relu_grad, np.array([-1, 0, 1], np.int8), np.array([5, 6, 7], np.int8))
    assert result.tolist() == [0, 0, 7]


@pytest.mark.parametrize("name", ["relu_grad", "parameterized_relu"])
def test_operands_are_refused(name: str) -> None:
    second = "input_gradient" if name == "relu_grad" else "slope"
    ones = np.ones(2, np.float32)
    with pytest.raises(InvalidType, match=f"^activation_{name}: {second} must be of float32, as input is; got float16"):
        function(name)(ones, ones.astype(np.float16))
    with pytest.raises(InvalidDesc, match=f"^activation_{name}: {second} must be a whole number in .*; got 0.5"):
        function(name)(ones.astype(np.int8), 0.5)
    message = rf"input and {second} must have shapes that broadcast; got \(2,\) and \(3,\)"
    with pytest.raises(InvalidDesc, match=f"^activation_{name}: {message}"):
        function(name)(ones, np.ones(3, np.float32))
    with pytest.raises(InvalidType, match="input must be of an integer or floating type; got bool"):
        function(name)(np.ones(2, bool), np.ones(2, bool))


def test_a_slope_is_broadcast_by_the_function(call: Any) -> None:
    input = np.array([[-2.0, 3.0, -0.0], [-4.0, -1.0, NAN]], np.float32)
    result = call(dmljax.activation_parameterized_relu, input, np.array([0.5, 2.0, 3.0], np.float32))
    assert str(result.tolist()) == "[[-1.0, 3.0, -0.0], [-2.0, -2.0, nan]]"
    result = call(dmljax.activation_parameterized_relu, np.array([-100, 5, -1], np.int8), slope=3)
    assert result.tolist() == [-44, 5, -3]  # -300 wraps around


def test_a_slope_is_repeated_in_a_desc_by_strides_of_0() -> None:
    tensor = TensorDesc(FLOAT32, (2, 3))
    slope = TensorDesc(FLOAT32, (2, 3), strides=(0, 1))
    desc = directml.ActivationParameterizedReluDesc(input=tensor, slope=slope, output=tensor)
    input = np.array([[-2.0, 3.0, -1.0], [-4.0, -1.0, 2.0]], np.float32)
    result = directml.lower(desc)(input, slope.read(np.array([0.5, 2.0, 3.0], np.float32)))
    assert result.tolist() == [[-1.0, 3.0, -3.0], [-2.0, -2.0, 2.0]]


@pytest.mark.parametrize(
    ("slope", "message"),
    [
        ((FLOAT16, (2, 3)), "must have the same DataType; got FLOAT32, FLOAT16 and FLOAT32"),
        ((FLOAT32, (3,)), "must have the same DimensionCount; got 2, 1 and 2"),
        ((FLOAT32, (1, 3)), r"must have the same Sizes; got \{2,3\}, \{1,3\} and \{2,3\}"),
    ],
)
def test_a_desc_refuses_a_slope_unlike_the_input(slope: Any, message: str) -> None:
    tensor = TensorDesc(FLOAT32, (2, 3))
    desc = directml.ActivationParameterizedReluDesc(input=tensor, slope=TensorDesc(*slope), output=tensor)
    with pytest.raises(InvalidDesc, match="InputTensor, SlopeTensor and OutputTensor " + message):
        directml.validate(desc)


@pytest.mark.parametrize(
    ("bias", "threshold", "input", "expected"),
    [
        (1, 2.5, [-4, -3, -2, 2, 3, 4], [-3, -2, 0, 0, 2, 3]),
        (1, 2, [-4, -3, -2, 2, 3, 4], [-3, -2, 0, 0, 2, 3]),
        (0, 0.5, [-1, 0, 1], [-1, 0, 1]),
        (1, -0.5, [-128, -2, -1, 0, 1], [-127, -1, 0, -1, 0]),  # all are above or below, and above comes first
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


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(2.5, [0, 0, 0, 2, 254]), (0, [0, 0, 1, 2, 254]), (254.5, [0, 0, 0, 0, 254]), (1e9, [0, 0, 0, 0, 0])],
)
def test_shrink_of_unsigned_integers_has_none_below(threshold: float, expected: list[int]) -> None:
    result = dmljax.activation_shrink(np.array([0, 1, 2, 3, 255], np.uint8), bias=1, threshold=threshold)
    assert_same_bits(result, np.array(expected, np.uint8))


def test_shrink_of_floats_looks_above_a_negative_threshold_first(call: Any) -> None:
    input = np.array([-3.0, -1.0, 0.0, 3.0], np.float32)
    assert call(dmljax.activation_shrink, input, bias=1.0, threshold=-1.0).tolist() == [-2.0, 0.0, -1.0, 2.0]


@pytest.mark.parametrize(
    ("dtype", "attributes", "message"),
    [
        ("int8", {"bias": 0.5}, r"bias must be a whole number in \[-128, 127\] to fit int8; got 0\.5"),
        ("uint8", {"bias": -1}, r"bias must be a whole number in \[0, 255\] to fit uint8; got -1"),
    ],
)
def test_shrink_of_integers_refuses(dtype: str, attributes: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidDesc, match="^activation_shrink: " + message):
        dmljax.activation_shrink(np.ones(2, dtype), **attributes)
    tensor = TensorDesc(DataType[dtype.upper()], (2,))
    desc = directml.ActivationShrinkDesc(input=tensor, output=tensor, **({"bias": 0, "threshold": 1} | attributes))
    with pytest.raises(InvalidDesc, match=r"_SHRINK at DML_FEATURE_LEVEL_6_4: Bias must be a whole number "):
        directml.validate(desc)


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
    # From the smallest, 1, 127 and the largest, or -1.
    info = np.iinfo(dtype)
    last = -1 if info.min else 255
    input = np.array([info.min, 1, 127, last], dtype)
    assert call(dmljax.activation_shrink, input, bias=1, threshold=threshold).tolist() == expected


# Exponential units


def test_celu_with_an_alpha_of_zero_is_relu_and_with_a_negative_one_the_formula(call: Any) -> None:
    input = np.array([-INF, -2.0, 0.0, 3.0, NAN], np.float32)
    result = call(dmljax.activation_celu, input, alpha=0.0)
    assert np.array_equal(result, [0.0, 0.0, 0.0, 3.0, NAN], equal_nan=True)
    result = call(dmljax.activation_celu, input, alpha=-1.0)
    exact = np.array([-INF, -math.expm1(2), 0.0, 3.0, NAN])
    assert units_off(result, exact).max() <= 4


def test_elu_keeps_what_is_small_below_zero(call: Any) -> None:
    input = np.array([-1e-10, -1e-30], np.float32)
    for name in ("elu", "celu"):
        assert_same_bits(call(function(name), input), input)


@pytest.mark.parametrize("steepness", [0.5, -1.0, NAN])
def test_a_steepness_below_1_is_of_6_4(steepness: float) -> None:
    tensor = TensorDesc(FLOAT32, (2,))
    desc = directml.ActivationSoftplusDesc(input=tensor, output=tensor, steepness=steepness)
    with pytest.raises(
        InvalidDesc,
        match="ACTIVATION_SOFTPLUS at DML_FEATURE_LEVEL_6_3: Steepness must be at least 1 below DML_FEATURE_LEVEL_6_4;",
    ):
        directml.validate(desc, feature_level="6_3")
    directml.validate(desc)
    directml.validate(directml.ActivationSoftplusDesc(input=tensor, output=tensor, steepness=1), feature_level="3_0")


def test_softplus_keeps_tiny_and_huge_results(call: Any) -> None:
    input = np.array([-80.0, -20.0, 100.0, 1e30], np.float32)
    exact = np.array([math.exp(-80), math.exp(-20), 100.0, float(np.float32(1e30))])
    assert units_off(call(dmljax.activation_softplus, input), exact).max() <= 4
    result = call(dmljax.activation_softplus, np.array([0.0, 3e38], np.float32), steepness=0.5)
    assert units_off(result, np.array([2 * LN_2, float(np.float32(3e38))])).max() <= 1


# Lines


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_identity_copies_every_bit(call: Any, dtype: Any) -> None:
    assert_same_bits(call(dmljax.activation_identity, specials(dtype)), specials(dtype))


def test_what_is_beyond_a_hard_sigmoid_is_exactly_0_or_1(call: Any) -> None:
    input = np.array([-2.5, -3.0, 2.5, 3.0, 0.0], np.float32)
    assert call(dmljax.activation_hard_sigmoid, input).tolist() == [0.0, 0.0, 1.0, 1.0, 0.5]
    # A negative slope: the larger the element, the smaller the result.
    assert call(dmljax.activation_hard_sigmoid, input, alpha=-1.0).tolist() == [1.0, 1.0, 0.0, 0.0, 0.5]


def test_a_hard_sigmoid_has_no_gradient_where_it_is_0_or_1() -> None:
    for x, slope in ((-2.5, 0.0), (0.0, 0.25), (2.5, 0.0), (3.0, 0.0)):
        assert jax.grad(dmljax.activation_hard_sigmoid)(jnp.float32(x / 1.25), 0.25, 0.5) == slope


# Descriptors of activations alone


def test_an_activation_that_is_not_fused_needs_its_tensors() -> None:
    tensor = TensorDesc(FLOAT32, (2, 3))
    for tensors, missing in (
        ({}, "InputTensor"),
        ({"output": tensor}, "InputTensor"),
        ({"input": tensor}, "OutputTensor"),
    ):
        desc = directml.ActivationReluDesc(**tensors)
        message = f"{missing} must be given, unless the activation is fused; got none"
        with pytest.raises(InvalidDesc, match=f"DML_OPERATOR_ACTIVATION_RELU at DML_FEATURE_LEVEL_6_4: {message}"):
            directml.validate(desc)
        with pytest.raises(InvalidDesc, match=message):
            directml.lower(desc)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ((FLOAT16, (2, 3)), "InputTensor and OutputTensor must have the same DataType; got FLOAT32 and FLOAT16"),
        ((FLOAT32, (6,)), "InputTensor and OutputTensor must have the same DimensionCount; got 2 and 1"),
        ((FLOAT32, (3, 2)), r"InputTensor and OutputTensor must have the same Sizes; got \{2,3\} and \{3,2\}"),
    ],
)
def test_an_activation_desc_refuses_an_output_unlike_the_input(output: Any, message: str) -> None:
    desc = directml.ActivationEluDesc(input=TensorDesc(FLOAT32, (2, 3)), output=TensorDesc(*output), alpha=1)
    with pytest.raises(InvalidDesc, match="DML_OPERATOR_ACTIVATION_ELU at DML_FEATURE_LEVEL_6_4: " + message):
        directml.validate(desc)


def test_a_relu_grad_desc_refuses_tensors_that_are_unlike() -> None:
    tensors = [TensorDesc(INT8, (2, 3)), TensorDesc(UINT8, (2, 3)), TensorDesc(INT8, (3, 2))]
    input, input_gradient, output_gradient = tensors
    desc = directml.ActivationReluGradDesc(input=input, input_gradient=input_gradient, output_gradient=output_gradient)
    with pytest.raises(InvalidDesc, match="must have the same DataType; got INT8, UINT8 and INT8") as refusal:
        directml.validate(desc)
    assert "must have the same Sizes; got {2,3}, {2,3} and {3,2}" in str(refusal.value)
