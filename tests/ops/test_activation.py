"""Every ACTIVATION_*; the pages' own examples run in test_every_operator.py."""

import inspect
import math
from typing import Any

import cases_activation as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, INTEGERS, REALS, assert_same_bits, at_once, random_array, specials, units_off
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import DataType, InvalidDesc, InvalidType, TensorDesc

FLOAT32, FLOAT16, INT8, UINT8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.UINT8
NAN, INF = math.nan, math.inf

# Hardmax


@pytest.mark.parametrize(
    ("row", "hot"),
    [
        ([1, 5, 5, 2], 1),
        ([-0.0, 0.0, -1.0], 0),
        ([0.0, -0.0, -1.0], 0),
        ([-np.inf, -np.inf], 0),
        ([np.inf, np.inf, NAN, np.inf, NAN], 2),
        ([-NAN, NAN], 0),
        ([3, np.inf], 1),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_hardmax_marks_the_first_of_the_largest(call: Any, dtype: Any, row: list[float], hot: int) -> None:
    input = np.array([row], dtype)
    assert_same_bits(call(dmljax.activation_hardmax, input), np.eye(len(row), dtype=dtype)[[hot]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_hardmax_tells_subnormals_apart(call: Any, dtype: Any) -> None:
    rows = np.array([[1, 2, 0], [0, 1, 0], [0x8002 if dtype.itemsize == 2 else 2, 1, 0]], f"u{dtype.itemsize}")
    assert_same_bits(call(dmljax.activation_hardmax, rows.view(dtype)), oracles.hardmax(rows.view(dtype)))
    assert call(dmljax.activation_hardmax, rows.view(dtype))[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_hardmax_orders_every_pair_of_special_values(call: Any, dtype: Any) -> None:
    values = specials(dtype)
    pairs = np.stack([np.repeat(values, len(values)), np.tile(values, len(values))], axis=1)
    assert_same_bits(call(dmljax.activation_hardmax, pairs), oracles.hardmax(pairs))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint8", "bool"])
def test_hardmax_of_wide_rows(lowering: str, dtype: str) -> None:
    # Rows of up to 16 are looked at element by element; of more, in parts that overlap at the end.
    least = {"int8": -128, "uint8": 0, "bool": False}.get(dtype, -np.inf)
    every = []
    for width in (15, 16, 17, 31, 33, 127, 128, 129, 1000) if dtype == "float32" else (16, 17, 129):
        rows = np.full((4, width), least, jnp.dtype(dtype))
        rows[1, -1] = rows[2, width // 2] = rows[2, -1] = 1
        rows[3] = random_array(np.random.default_rng(width), dtype, (width,))
        every.append(rows)
    for rows, result in zip(every, at_once(dmljax.activation_hardmax, every), strict=True):
        assert_same_bits(result, oracles.hardmax(rows))


def test_hardmax_orders_every_pair_of_special_values_in_a_wide_row(lowering: str) -> None:
    every = []
    for dtype in REALS:
        values = specials(dtype)
        least = -np.inf if dtype in FLOATS else min(values.tolist())
        rows = np.full((len(values) ** 2, 40), least, dtype)
        rows[:, 7], rows[:, 33] = np.repeat(values, len(values)), np.tile(values, len(values))
        every.append(rows)
    for rows, result in zip(every, at_once(dmljax.activation_hardmax, every), strict=True):
        assert_same_bits(result, oracles.hardmax(rows))


@pytest.mark.parametrize("position", range(150))
def test_hardmax_finds_the_largest_wherever_it_is(position: int) -> None:
    rows = np.zeros((1, 150), np.float32)
    rows[0, position] = 1
    assert_same_bits(dmljax.activation_hardmax(rows), rows)


def test_wide_rows_export_to_every_platform_with_sizes_left_open() -> None:
    # The CPU reduces wide rows in a way of its own, so that an export for several platforms holds more than one.
    rows = np.random.default_rng(0).integers(-9, 9, (3, 300)).astype(np.float32)
    for shape in ("batch, 300", "batch, width", "3, 2*half"):
        symbolic = jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape), np.float32)
        exported = jax.export.export(jax.jit(dmljax.activation_hardmax), platforms=["cpu", "cuda", "tpu"])(symbolic)
        again = jax.export.deserialize(exported.serialize())
        assert_same_bits(again.call(rows), oracles.hardmax(rows))
    with jax.checking_leaks():
        assert_same_bits(jax.jit(jax.vmap(dmljax.activation_hardmax))(rows), oracles.hardmax(rows))


def test_hardmax_takes_any_rank_from_one(call: Any) -> None:
    input = np.random.default_rng(0).integers(0, 3, (2, 3, 1, 4)).astype(np.float32)
    assert_same_bits(call(dmljax.activation_hardmax, input), oracles.hardmax(input))
    assert call(dmljax.activation_hardmax, input[0, 0, 0]).shape == (4,)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_hardmax_of_nothing_is_nothing(call: Any, shape: tuple[int, ...]) -> None:
    assert call(dmljax.activation_hardmax, np.zeros(shape, np.float16)).shape == shape


def test_hardmax1_is_hardmax_along_the_last_axis(call: Any) -> None:
    input = np.random.default_rng(1).integers(0, 3, (4, 5)).astype(np.float32)
    assert_same_bits(call(dmljax.activation_hardmax1, input, axes=1), call(dmljax.activation_hardmax, input))


def test_hardmax1_takes_several_axes_as_one_however_they_are_listed(call: Any) -> None:
    input = np.random.default_rng(2).integers(0, 2, (2, 3, 4)).astype(np.float32)
    for axes in ([0, 2], (2, 0), (-1, -3), np.array([2, 0])):
        assert_same_bits(call(dmljax.activation_hardmax1, input, axes=axes), oracles.hardmax(input, axes=(0, 2)))


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_hardmax1_equals_the_pseudo_code(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    input = random_array(rng, data.draw(st.sampled_from(REALS)), shape)
    assert_same_bits(dmljax.activation_hardmax1(input, axes=tuple(axes)), oracles.hardmax(input, axes=tuple(axes)))


@pytest.mark.parametrize("row", [[1.0, 2.0, 2.0], [NAN, 1.0, 2.0], [np.inf, -np.inf, 0.0]])
def test_the_gradient_of_hardmax_is_zero(row: list[float]) -> None:
    input = jnp.array(row)
    assert jax.grad(lambda x: (dmljax.activation_hardmax(x) * jnp.arange(3.0)).sum())(input).tolist() == [0, 0, 0]
    assert jax.jvp(dmljax.activation_hardmax, (input,), (jnp.ones(3),))[1].tolist() == [0, 0, 0]


def test_hardmax_may_be_mapped() -> None:
    input = np.random.default_rng(3).integers(0, 3, (3, 2, 4)).astype(np.float32)
    assert_same_bits(jax.vmap(dmljax.activation_hardmax)(input), oracles.hardmax(input))
    assert_same_bits(
        jax.vmap(lambda x: dmljax.activation_hardmax1(x, axes=(0, 1)))(input), oracles.hardmax(input, axes=(1, 2))
    )


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a list": ({"input": [1.0]}, InvalidType, "input must be a JAX or NumPy array; got list"),
    "complex input": ({"input": np.array([1j])}, InvalidType, "input must be bool, .*; got complex128"),
    "a scalar": ({"input": jnp.array(1.0)}, InvalidDesc, "input must have at least 1 dimension; got 0"),
    "an axis twice": (
        {"axes": (0, -2)},
        InvalidDesc,
        r"axes must name one or more different dimensions; got \(0, -2\)",
    ),
    "no axes": ({"axes": ()}, InvalidDesc, r"axes must name one or more different dimensions; got \(\)"),
    "an axis out of range": ({"axes": (0, 2)}, InvalidDesc, r"axes must be in \[-2, 2\); got 2"),
    "a floating axis": ({"axes": 0.0}, InvalidType, "axes must be an integer; got 0.0"),
    "a bool among the axes": ({"axes": [True]}, InvalidType, r"axes\[0\] must be an integer; got True"),
}


ARGUMENTS: dict[str, Any] = {"input": jnp.ones((2, 3)), "axes": 1}


@pytest.mark.parametrize("case", REFUSED)
def test_hardmax1_refuses(case: str) -> None:
    change, error, message = REFUSED[case]
    with pytest.raises(error, match=r"^activation_hardmax1: " + message):
        dmljax.activation_hardmax1(**ARGUMENTS | change)


# Descriptors


@pytest.mark.parametrize(
    ("input", "output", "message"),
    [
        ((FLOAT32, (2, 3, 4)), (FLOAT32, (2, 3, 4)), r"InputTensor.Sizes must be 1 before the last two; got \{2,3,4\}"),
        ((FLOAT32, (2, 3)), (FLOAT16, (2, 3)), "must have the same DataType; got FLOAT32 and FLOAT16"),
        ((FLOAT32, (2, 3)), (FLOAT32, (1, 2, 3)), "must have the same DimensionCount; got 2 and 3"),
        ((FLOAT32, (2, 3)), (FLOAT32, (3, 2)), r"must have the same Sizes; got \{2,3\} and \{3,2\}"),
        (
            (DataType.FLOAT64, (2, 3)),
            (FLOAT32, (2, 3)),
            "InputTensor.DataType must be one of FLOAT32, FLOAT16; got FLOAT64",
        ),
    ],
)
def test_hardmax_desc_refuses(input: Any, output: Any, message: str) -> None:
    desc = dmljax.ActivationHardmaxDesc(input=TensorDesc(*input), output=TensorDesc(*output))
    with pytest.raises(
        InvalidDesc, match=r"DML_OPERATOR_ACTIVATION_HARDMAX at DML_FEATURE_LEVEL_3_0: (.|\n)*" + message
    ):
        dmljax.validate(desc, feature_level="3_0")


def test_hardmax_desc_takes_two_dimensions_behind_any_number_of_ones() -> None:
    tensor = TensorDesc(FLOAT32, (1, 1, 1, 2, 3))
    desc = dmljax.ActivationHardmaxDesc(input=tensor, output=tensor)
    assert dmljax.minimum_feature_level(desc) is dmljax.FeatureLevel.FL_2_0
    input = np.arange(6, dtype=np.float32).reshape(tensor.sizes)
    assert_same_bits(dmljax.lower(desc)(input), oracles.hardmax(input))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((2,), r"Axes\[0\] must be less than 2; got 2"),
        ((1, 1), r"Axes must name one or more different dimensions; got \{1,1\}"),
        ((), r"Axes must name one or more different dimensions; got \{\}"),
    ],
)
def test_hardmax1_desc_refuses(axes: tuple[int, ...], message: str) -> None:
    tensor = TensorDesc(FLOAT32, (2, 3))
    with pytest.raises(InvalidDesc, match="DML_OPERATOR_ACTIVATION_HARDMAX1 at DML_FEATURE_LEVEL_6_4: " + message):
        dmljax.validate(dmljax.ActivationHardmax1Desc(input=tensor, output=tensor, axes=axes))


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


@pytest.mark.parametrize("dtype", ["float32", "float16"])
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


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_relu_keeps_every_bit_of_what_is_above_zero_and_of_nan(call: Any, dtype: Any) -> None:
    input = specials(dtype)
    kept = np.array([x > 0 or math.isnan(x) for x in input.tolist()])
    unsigned = f"u{dtype.itemsize}"
    expected = np.where(kept, input.view(unsigned), np.zeros_like(input.view(unsigned))).view(dtype)
    assert_same_bits(call(dmljax.activation_relu, input), expected)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
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
    desc = dmljax.ActivationParameterizedReluDesc(input=tensor, slope=slope, output=tensor)
    input = np.array([[-2.0, 3.0, -1.0], [-4.0, -1.0, 2.0]], np.float32)
    result = dmljax.lower(desc)(input, slope.read(np.array([0.5, 2.0, 3.0], np.float32)))
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
    desc = dmljax.ActivationParameterizedReluDesc(input=tensor, slope=TensorDesc(*slope), output=tensor)
    with pytest.raises(InvalidDesc, match="InputTensor, SlopeTensor and OutputTensor " + message):
        dmljax.validate(desc)


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
    desc = dmljax.ActivationShrinkDesc(input=tensor, output=tensor, **({"bias": 0, "threshold": 1} | attributes))
    with pytest.raises(InvalidDesc, match=r"_SHRINK at DML_FEATURE_LEVEL_6_4: Bias must be a whole number "):
        dmljax.validate(desc)


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
    desc = dmljax.ActivationSoftplusDesc(input=tensor, output=tensor, steepness=steepness)
    with pytest.raises(
        InvalidDesc,
        match="ACTIVATION_SOFTPLUS at DML_FEATURE_LEVEL_6_3: Steepness must be at least 1 below DML_FEATURE_LEVEL_6_4;",
    ):
        dmljax.validate(desc, feature_level="6_3")
    dmljax.validate(desc)
    dmljax.validate(dmljax.ActivationSoftplusDesc(input=tensor, output=tensor, steepness=1), feature_level="3_0")


def test_softplus_keeps_tiny_and_huge_results(call: Any) -> None:
    input = np.array([-80.0, -20.0, 100.0, 1e30], np.float32)
    exact = np.array([math.exp(-80), math.exp(-20), 100.0, float(np.float32(1e30))])
    assert units_off(call(dmljax.activation_softplus, input), exact).max() <= 4
    result = call(dmljax.activation_softplus, np.array([0.0, 3e38], np.float32), steepness=0.5)
    assert units_off(result, np.array([2 * LN_2, float(np.float32(3e38))])).max() <= 1


# Lines


def test_linear_is_rounded_once_however_much_cancels(call: Any) -> None:
    alpha = np.float32(1.1)
    input = (np.float32(1.3) + np.arange(-200, 200) * np.float32(2.0**-22)).astype(np.float32)
    beta = -(alpha * np.float32(1.3))
    exact = input.astype(np.float64) * float(alpha) + float(beta)  # of 48 bits, most of which cancel
    result = call(dmljax.activation_linear, input, alpha=float(alpha), beta=float(beta))
    assert_same_bits(result, exact.astype(np.float32))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_identity_copies_every_bit(call: Any, dtype: Any) -> None:
    assert_same_bits(call(dmljax.activation_identity, specials(dtype)), specials(dtype))


def test_what_is_beyond_a_hard_sigmoid_is_exactly_0_or_1(call: Any) -> None:
    input = np.array([-2.5, -3.0, 2.5, 3.0, 0.0], np.float32)
    assert call(dmljax.activation_hard_sigmoid, input).tolist() == [0.0, 0.0, 1.0, 1.0, 0.5]
    # A negative slope: the larger the element, the smaller the result.
    assert call(dmljax.activation_hard_sigmoid, input, alpha=-1.0).tolist() == [1.0, 1.0, 0.0, 0.0, 0.5]


# Softmax and its logarithm

SOFTMAX = ["softmax", "log_softmax"]


@pytest.mark.parametrize(
    ("row", "softmax", "logarithms"),
    [
        ([3e38, 3e38], [0.5, 0.5], [-LN_2, -LN_2]),
        ([3e38, -3e38], [1.0, 0.0], [0.0, -INF]),
        ([1e4, 1e4 - 1000, 0.0], [1.0, 0.0, 0.0], [0.0, -1000.0, -10000.0]),
        ([0.0, -INF], [1.0, 0.0], [0.0, -INF]),
        ([-INF, -INF], [NAN, NAN], [NAN, NAN]),
        ([INF, 0.0], [NAN, NAN], [NAN, NAN]),
        ([NAN, 0.0], [NAN, NAN], [NAN, NAN]),
        ([7.0], [1.0], [0.0]),
        ([-3e38], [1.0], [0.0]),
        ([INF], [NAN], [NAN]),
        ([-0.0, 0.0], [0.5, 0.5], [-LN_2, -LN_2]),
    ],
)
def test_softmax_of_huge_infinite_and_single_elements(
    row: list[float], softmax: list[float], logarithms: list[float]
) -> None:
    input = np.array([row], np.float32)
    assert str(dmljax.activation_softmax(input).tolist()) == str([softmax])
    assert units_off(dmljax.activation_log_softmax(input), np.array([logarithms])).max() <= 1


def test_softmax_of_the_largest_float16(call: Any) -> None:
    input = np.array([[65504.0, -65504.0], [65504.0, 65504.0]], np.float16)
    assert call(dmljax.activation_softmax, input).tolist() == [[1.0, 0.0], [0.5, 0.5]]
    half = float(np.float16(-LN_2))
    assert call(dmljax.activation_log_softmax, input).tolist() == [[0.0, -INF], [half, half]]


@pytest.mark.parametrize("distance", [17.0, 40.0, 80.0])
def test_the_logarithm_of_what_is_nearly_certain_keeps_what_is_left(call: Any, distance: float) -> None:
    result = call(dmljax.activation_log_softmax, np.array([[0.0, -distance], [5.0, 5.0 - distance]], np.float32))
    left = math.log1p(math.exp(-distance))
    assert units_off(result, np.array([[-left, -distance - left]] * 2)).max() <= 4


def test_the_logarithms_of_equal_elements_share_what_there_is(call: Any) -> None:
    result = call(dmljax.activation_log_softmax, np.zeros((2, 1000), np.float32))
    assert units_off(result, np.full((2, 1000), -math.log(1000))).max() <= 1


@pytest.mark.parametrize("axes", [(0, 2), (2, 0), (-1, -3), [0, -1]])
def test_softmax1_takes_several_axes_as_one_however_they_are_listed(axes: Any) -> None:
    input = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    powers = np.exp(input.astype(np.float64))
    exact = powers / powers.sum(axis=(0, 2), keepdims=True)
    assert units_off(dmljax.activation_softmax1(input, axes=axes), exact).max() <= 4
    assert units_off(dmljax.activation_log_softmax1(input, axes=axes), np.log(exact)).max() <= 4


def test_softmax_is_of_the_last_axis(call: Any) -> None:
    input = np.array([[[0.0, 0.0], [0.0, -INF]]], np.float32)
    assert call(dmljax.activation_softmax, input).tolist() == [[[0.5, 0.5], [1.0, 0.0]]]
    assert call(dmljax.activation_softmax1, input, axes=1).tolist() == [[[0.5, 1.0], [0.5, 0.0]]]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_of_nothing_is_nothing(call: Any, name: str, shape: tuple[int, ...]) -> None:
    assert call(function(name), np.zeros(shape, np.float32)).shape == shape
    assert call(function(f"{name}1"), np.zeros(shape, np.float32), axes=0).shape == shape


@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_refuses(name: str) -> None:
    ones = np.ones((2, 3), np.float32)
    with pytest.raises(InvalidType, match=f"^activation_{name}: input must be of a floating type; got int32"):
        function(name)(ones.astype(np.int32))
    with pytest.raises(InvalidDesc, match=f"^activation_{name}: input must have at least 1 dimension; got 0"):
        function(name)(ones[0, 0])
    for axes, message in (
        ((0, -2), r"axes must name one or more different dimensions; got \(0, -2\)"),
        ((), r"axes must name one or more different dimensions; got \(\)"),
        ((0, 2), r"axes must be in \[-2, 2\); got 2"),
        (-3, r"axes must be in \[-2, 2\); got -3"),
    ):
        with pytest.raises(InvalidDesc, match=rf"^activation_{name}1: {message}"):
            function(f"{name}1")(ones, axes=axes)


@pytest.mark.parametrize("kind", [dmljax.ActivationSoftmaxDesc, dmljax.ActivationLogSoftmaxDesc])
def test_a_softmax_desc_refuses_more_than_two_dimensions(kind: Any) -> None:
    tensor = TensorDesc(FLOAT32, (1, 2, 3, 4))
    with pytest.raises(InvalidDesc, match=r"InputTensor\.Sizes must be 1 before the last two; got \{1,2,3,4\}"):
        dmljax.validate(kind(input=tensor, output=tensor))


@pytest.mark.parametrize("kind", [dmljax.ActivationSoftmax1Desc, dmljax.ActivationLogSoftmax1Desc])
def test_a_softmax1_desc_refuses_axes(kind: Any) -> None:
    tensor = TensorDesc(FLOAT32, (2, 3))
    for axes, message in (
        ((2,), r"Axes\[0\] must be less than 2; got 2"),
        ((1, 1), r"Axes must name one or more different dimensions; got \{1,1\}"),
        ((), r"Axes must name one or more different dimensions; got \{\}"),
    ):
        with pytest.raises(InvalidDesc, match=message):
            dmljax.validate(kind(input=tensor, output=tensor, axes=axes))


# Descriptors of activations alone


def test_an_activation_that_is_not_fused_needs_its_tensors() -> None:
    tensor = TensorDesc(FLOAT32, (2, 3))
    for tensors, missing in (
        ({}, "InputTensor"),
        ({"output": tensor}, "InputTensor"),
        ({"input": tensor}, "OutputTensor"),
    ):
        desc = dmljax.ActivationReluDesc(**tensors)
        message = f"{missing} must be given, unless the activation is fused; got none"
        with pytest.raises(InvalidDesc, match=f"DML_OPERATOR_ACTIVATION_RELU at DML_FEATURE_LEVEL_6_4: {message}"):
            dmljax.validate(desc)
        with pytest.raises(InvalidDesc, match=message):
            dmljax.lower(desc)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ((FLOAT16, (2, 3)), "InputTensor and OutputTensor must have the same DataType; got FLOAT32 and FLOAT16"),
        ((FLOAT32, (6,)), "InputTensor and OutputTensor must have the same DimensionCount; got 2 and 1"),
        ((FLOAT32, (3, 2)), r"InputTensor and OutputTensor must have the same Sizes; got \{2,3\} and \{3,2\}"),
    ],
)
def test_an_activation_desc_refuses_an_output_unlike_the_input(output: Any, message: str) -> None:
    desc = dmljax.ActivationEluDesc(input=TensorDesc(FLOAT32, (2, 3)), output=TensorDesc(*output), alpha=1)
    with pytest.raises(InvalidDesc, match="DML_OPERATOR_ACTIVATION_ELU at DML_FEATURE_LEVEL_6_4: " + message):
        dmljax.validate(desc)


def test_a_relu_grad_desc_refuses_tensors_that_are_unlike() -> None:
    tensors = [TensorDesc(INT8, (2, 3)), TensorDesc(UINT8, (2, 3)), TensorDesc(INT8, (3, 2))]
    input, input_gradient, output_gradient = tensors
    desc = dmljax.ActivationReluGradDesc(input=input, input_gradient=input_gradient, output_gradient=output_gradient)
    with pytest.raises(InvalidDesc, match="must have the same DataType; got INT8, UINT8 and INT8") as refusal:
        dmljax.validate(desc)
    assert "must have the same Sizes; got {2,3}, {2,3} and {3,2}" in str(refusal.value)
