"""ARGMAX and ARGMIN; the pages' own examples run in test_every_operator.py."""

from typing import Any

import formulas as oracles
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import INTEGERS, REALS, X64, assert_same_bits, at_once, random_array, specials
from hypothesis import given, settings, strategies as st

import dmljax
from dmljax import AxisDirection, DataType, InvalidDesc, InvalidType, TensorDesc

INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING
FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32
NAN = np.nan
PAIRS = [(dmljax.argmax, oracles.argmax), (dmljax.argmin, oracles.argmin)]


def test_the_direction_decides_between_equal_elements(call: Any) -> None:
    # The values are the pages' own: argmax({3,2,1,2,3}) and argmin({1,2,3,2,1}).
    for function, row in ((dmljax.argmax, [3, 2, 1, 2, 3]), (dmljax.argmin, [1, 2, 3, 2, 1])):
        assert call(function, np.array(row, np.float32), axes=0, axis_direction=INCREASING).tolist() == [0]
        assert call(function, np.array(row, np.float32), axes=0, axis_direction=DECREASING).tolist() == [4]


def test_nan_is_the_largest_and_the_smallest(call: Any) -> None:
    row = np.array([np.inf, -np.inf, NAN, 1, -NAN], np.float32)
    for function, _ in PAIRS:
        assert call(function, row, axes=0).tolist() == [2]
        assert call(function, row, axes=0, axis_direction=DECREASING).tolist() == [4]


@pytest.mark.parametrize("width", [16, 17, 256, 257])
@pytest.mark.parametrize("direction", AxisDirection)
def test_wide_rows(lowering: str, width: int, direction: AxisDirection) -> None:
    # Rows of up to 16 elements are compared element by element; longer rows in parts, of which the last ones overlap.
    rng = np.random.default_rng(width)
    every = []
    for dtype in (np.float32, np.int8, np.uint32, *((np.uint64,) if X64 else ())):
        rows = random_array(rng, dtype, (4, width))
        rows[0], rows[1] = specials(dtype).min(), specials(dtype).max()
        every.append(rows)
    for function, oracle in PAIRS:
        results = at_once(lambda rows, function=function: function(rows, axes=1, axis_direction=direction), every)
        for rows, result in zip(every, results, strict=True):
            expected = oracle(rows, axes=(1,), last=direction is DECREASING).astype(np.uint32)
            assert_same_bits(result, expected)


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("direction", AxisDirection)
def test_every_pair_of_special_values_is_ordered(dtype: Any, direction: AxisDirection) -> None:
    values = specials(dtype)
    pairs = np.stack([np.repeat(values, len(values)), np.tile(values, len(values))], axis=1)
    both = jax.jit(lambda pairs: [function(pairs, axes=1, axis_direction=direction) for function, _ in PAIRS])
    for (_, oracle), result in zip(PAIRS, both(pairs), strict=True):
        expected = oracle(pairs, axes=(1,), last=direction is DECREASING).astype(np.uint32)
        assert_same_bits(result, expected)


def test_several_axes_count_as_one_in_the_order_of_the_elements(call: Any) -> None:
    input = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.int16)
    for axes in ((0, 2), (2, 0), (-1, -3)):
        assert_same_bits(call(dmljax.argmax, input, axes=axes), oracles.argmax(input, axes=(0, 2)).astype(np.uint32))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_the_index_has_the_type_that_is_asked_for(call: Any, dtype: Any) -> None:
    assert_same_bits(call(dmljax.argmin, np.array([2, 1], np.float16), axes=0, dtype=dtype), np.array([1], dtype))


@settings(deadline=None, max_examples=20)  # of shapes and types, each of which is compiled; four inputs of each
@given(st.data())
def test_arg_reductions_equal_the_pseudo_code(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    direction = data.draw(st.sampled_from(AxisDirection))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = data.draw(st.sampled_from(REALS))
    for input in [random_array(rng, dtype, shape) for _ in range(4)]:
        for function, oracle in PAIRS:
            expected = oracle(input, axes=axes, last=direction is DECREASING).astype(np.uint32)
            assert_same_bits(function(input, axes=axes, axis_direction=direction), expected)


def test_arg_reductions_may_be_mapped_and_have_no_gradient() -> None:
    input = np.random.default_rng(3).integers(0, 3, (3, 2, 4)).astype(np.float32)
    for function, oracle in PAIRS:
        mapped = jax.vmap(lambda x, function=function: function(x, axes=-1))(input)
        assert_same_bits(mapped, oracle(input, axes=(2,)).astype(np.uint32))
        weighted = lambda x, function=function: (function(x, axes=0).astype(x.dtype) * x).sum()  # noqa: E731
        assert jax.grad(weighted)(jnp.array([1.0, 2.0])).tolist() == [float(function is dmljax.argmax)] * 2


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a list": ({"input": [1.0]}, InvalidType, "input must be a JAX or NumPy array; got list"),
    "an axis out of range": ({"axes": 2}, InvalidDesc, r"axes must be in \[-2, 2\); got 2"),
    "nothing to reduce": ({"input": jnp.ones((2, 0))}, InvalidDesc, r"elements along axes \(1,\); got shape \(2, 0\)"),
    "a floating index": ({"dtype": "float32"}, InvalidType, "dtype must be an integer type; got float32"),
    "no dtype": ({"dtype": "number"}, InvalidType, "dtype must be a dtype; got 'number'"),
    "an index too narrow": ({"input": jnp.ones((2, 129)), "dtype": "int8"}, InvalidDesc, "up to 128; got int8"),
    "another direction": ({"axis_direction": 1}, InvalidType, "axis_direction must be an AxisDirection; got 1"),
}


ARGUMENTS: dict[str, Any] = {"input": jnp.ones((2, 3)), "axes": 1}


@pytest.mark.parametrize("case", REFUSED)
def test_argmax_refuses(case: str) -> None:
    change, error, message = REFUSED[case]
    with pytest.raises(error, match=r"^argmax: .*" + message):
        dmljax.argmax(**ARGUMENTS | change)


def test_a_64_bit_index_needs_64_bit_types() -> None:
    if X64:
        assert dmljax.argmax(jnp.ones(3), axes=0, dtype="int64").dtype == "int64"
    else:
        with pytest.raises(dmljax.Unsupported, match="dtype must be of at most 32 bits unless jax_enable_x64 is set"):
            dmljax.argmax(jnp.ones(3), axes=0, dtype="int64")


# Descriptors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output": TensorDesc(UINT32, (2,))}, "must have the same DimensionCount; got 2 and 1"),
        ({"output": TensorDesc(UINT32, (1, 3))}, r"OutputTensor.Sizes must be \{2,1\}; got \{1,3\}"),
        (
            {"output": TensorDesc(FLOAT32, (2, 1))},
            "OutputTensor.DataType must be one of UINT32, INT32, UINT64, INT64; got FL",
        ),
        ({"input": TensorDesc(DataType.FLOAT64, (2, 3))}, "InputTensor.DataType must be one of .*; got FLOAT64"),
        ({"axes": (3,)}, r"Axes\[0\] must be less than 2; got 3"),
        (
            {"input": TensorDesc(FLOAT32, (1, 2**31 + 1)), "output": TensorDesc(DataType.INT32, (1, 1))},
            "OutputTensor.DataType must hold indices up to 2147483648; got INT32",
        ),
    ],
)
@pytest.mark.parametrize("operator", [dmljax.ArgmaxDesc, dmljax.ArgminDesc])
def test_arg_reduction_descs_refuse(operator: Any, change: dict[str, Any], message: str) -> None:
    members = {
        "input": TensorDesc(FLOAT32, (2, 3)),
        "output": TensorDesc(UINT32, (2, 1)),
        "axes": (1,),
        "axis_direction": INCREASING,
    }
    dmljax.validate(operator(**members), feature_level="3_0")
    with pytest.raises(InvalidDesc, match=operator.type + " at DML_FEATURE_LEVEL_6_4: (.|\n)*" + message):
        dmljax.validate(operator(**members | change))
