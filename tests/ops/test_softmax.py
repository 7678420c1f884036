"""ACTIVATION_SOFTMAX, LOG_SOFTMAX and HARDMAX; the pages' own examples run in test_every_operator.py."""

import math
from typing import Any

import cases_softmax as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, FULL, REALS, assert_same_bits, at_once, few_of, few_types, random_array, specials, units_off
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

FLOAT32, FLOAT16, INT8, UINT8 = DataType.FLOAT32, DataType.FLOAT16, DataType.INT8, DataType.UINT8
NAN, INF = math.nan, math.inf

LN_2 = math.log(2)

# Softmax and its logarithm

SOFTMAX = ["softmax", "log_softmax"]


def function(name: str) -> Any:
    return getattr(dmljax, f"activation_{name}")


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


@pytest.mark.parametrize("kind", [directml.ActivationSoftmaxDesc, directml.ActivationLogSoftmaxDesc])
def test_a_softmax_desc_refuses_more_than_two_dimensions(kind: Any) -> None:
    tensor = TensorDesc(FLOAT32, (1, 2, 3, 4))
    with pytest.raises(InvalidDesc, match=r"InputTensor\.Sizes must be 1 before the last two; got \{1,2,3,4\}"):
        directml.validate(kind(input=tensor, output=tensor))


@pytest.mark.parametrize("kind", [directml.ActivationSoftmax1Desc, directml.ActivationLogSoftmax1Desc])
def test_a_softmax1_desc_refuses_axes(kind: Any) -> None:
    tensor = TensorDesc(FLOAT32, (2, 3))
    for axes, message in (
        ((2,), r"Axes\[0\] must be less than 2; got 2"),
        ((1, 1), r"Axes must name one or more different dimensions; got \{1,1\}"),
        ((), r"Axes must name one or more different dimensions; got \{\}"),
    ):
        with pytest.raises(InvalidDesc, match=message):
            directml.validate(kind(input=tensor, output=tensor, axes=axes))


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
@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_hardmax_marks_the_first_of_the_largest(call: Any, dtype: Any, row: list[float], hot: int) -> None:
    input = np.array([row], dtype)
    assert_same_bits(call(dmljax.activation_hardmax, input), np.eye(len(row), dtype=dtype)[[hot]])


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_hardmax_tells_subnormals_apart(call: Any, dtype: Any) -> None:
    rows = np.array([[1, 2, 0], [0, 1, 0], [0x8002 if dtype.itemsize == 2 else 2, 1, 0]], f"u{dtype.itemsize}")
    assert_same_bits(call(dmljax.activation_hardmax, rows.view(dtype)), oracles.hardmax(rows.view(dtype)))
    assert call(dmljax.activation_hardmax, rows.view(dtype))[0].tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", few_types(REALS), ids=str)
def test_hardmax_orders_every_pair_of_special_values(call: Any, dtype: Any) -> None:
    values = specials(dtype)
    pairs = np.stack([np.repeat(values, len(values)), np.tile(values, len(values))], axis=1)
    assert_same_bits(call(dmljax.activation_hardmax, pairs), oracles.hardmax(pairs))


@FULL
@pytest.mark.parametrize("dtype", few_of(["float32", "bfloat16", "int8", "uint8", "bool"], "bfloat16"))
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


@FULL
def test_hardmax_orders_every_pair_of_special_values_in_a_wide_row() -> None:
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


@FULL
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


@FULL
@settings(deadline=None, max_examples=20)  # of shapes and types, each of which is compiled; four inputs of each
@given(st.data())
def test_hardmax1_equals_the_pseudo_code(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = data.draw(st.sampled_from(REALS))
    for input in [random_array(rng, dtype, shape) for _ in range(4)]:
        assert_same_bits(dmljax.activation_hardmax1(input, axes=tuple(axes)), oracles.hardmax(input, axes=tuple(axes)))


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
    desc = directml.ActivationHardmaxDesc(input=TensorDesc(*input), output=TensorDesc(*output))
    with pytest.raises(
        InvalidDesc, match=r"DML_OPERATOR_ACTIVATION_HARDMAX at DML_FEATURE_LEVEL_3_0: (.|\n)*" + message
    ):
        directml.validate(desc, feature_level="3_0")


def test_hardmax_desc_takes_two_dimensions_behind_any_number_of_ones() -> None:
    tensor = TensorDesc(FLOAT32, (1, 1, 1, 2, 3))
    desc = directml.ActivationHardmaxDesc(input=tensor, output=tensor)
    assert directml.find_minimum_feature_level(desc) is directml.FeatureLevel.FL_2_0
    input = np.arange(6, dtype=np.float32).reshape(tensor.sizes)
    assert_same_bits(directml.lower(desc)(input), oracles.hardmax(input))


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
        directml.validate(directml.ActivationHardmax1Desc(input=tensor, output=tensor, axes=axes))
