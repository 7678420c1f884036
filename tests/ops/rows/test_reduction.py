"""ARGMAX, ARGMIN and REDUCE; the pages' own examples run in test_every_operator.py."""

from collections.abc import Callable
from typing import Any

import cases_reduction as cases
import formulas as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    FULL,
    GATE,
    INTEGERS,
    REALS,
    SAMPLED,
    X64,
    assert_same_bits,
    at_once,
    check_refused,
    f32,
    few_types,
    random_array,
    refuses,
    specials,
    tensor,
)

import dmljax
from dmljax import directml
from dmljax.directml import AxisDirection, DataType, InvalidDesc, InvalidType, ReduceFunction, TensorDesc

INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING
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


@FULL
@pytest.mark.parametrize("width", [16, 17, 256, 257])
@pytest.mark.parametrize("direction", AxisDirection)
def test_wide_rows_are_compared_in_parts(lowering: str, width: int, direction: AxisDirection) -> None:
    # Rows of up to 16 elements are compared element by element; longer rows in parts, and the last parts overlap.
    rng = np.random.default_rng(width)
    every = []
    for dtype in (np.float32, np.int8, np.uint32, *((np.uint64,) if X64 else ())):
        rows = random_array(rng, dtype, (4, width))
        rows[0], rows[1] = specials(dtype).min(), specials(dtype).max()
        every.append(rows)
    for function, oracle in PAIRS:
        results = at_once(lambda rows, function=function: function(rows, axes=1, axis_direction=direction), every)
        for rows, result in zip(every, results, strict=True):
            expected = oracle(rows, axes=(1,), last=direction is DECREASING).astype(np.int32)
            assert_same_bits(result, expected)


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("direction", AxisDirection)
def test_every_pair_of_special_values_is_ordered(dtype: Any, direction: AxisDirection) -> None:
    values = specials(dtype)
    pairs = np.stack([np.repeat(values, len(values)), np.tile(values, len(values))], axis=1)
    both = jax.jit(lambda pairs: [function(pairs, axes=1, axis_direction=direction) for function, _ in PAIRS])
    for (_, oracle), result in zip(PAIRS, both(pairs), strict=True):
        expected = oracle(pairs, axes=(1,), last=direction is DECREASING).astype(np.int32)
        assert_same_bits(result, expected)


def test_several_axes_are_flattened_in_element_order(call: Any) -> None:
    input = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.int16)
    for axes in ((0, 2), (2, 0), (-1, -3)):
        assert_same_bits(call(dmljax.argmax, input, axes=axes), oracles.argmax(input, axes=(0, 2)).astype(np.int32))


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_the_index_has_the_requested_type(call: Any, dtype: Any) -> None:
    assert_same_bits(call(dmljax.argmin, np.array([2, 1], np.float16), axes=0, dtype=dtype), np.array([1], dtype))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"axes": 2}, InvalidDesc, "axes must be in [-2, 2); got 2"),
        ({"input": jnp.ones((2, 0))}, InvalidDesc, "must not be empty along axes (1,); got shape (2, 0)"),
        ({"dtype": "float32"}, InvalidType, "dtype must be an integer type; got float32"),
        ({"input": jnp.ones((2, 129)), "dtype": "int8"}, InvalidDesc, "up to 128; got int8"),
    ],
)
def test_argmax_refuses(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with refuses(f"argmax: ...{message}", error):
        arguments: dict[str, Any] = {"input": jnp.ones((2, 3)), "axes": 1}
        dmljax.argmax(**arguments | change)


def test_a_64_bit_index_needs_64_bit_types() -> None:
    if X64:
        assert dmljax.argmax(jnp.ones(3), axes=0, dtype="int64").dtype == "int64"
    else:
        with pytest.raises(directml.Unsupported, match="dtype must be of at most 32 bits unless jax_enable_x64 is set"):
            dmljax.argmax(jnp.ones(3), axes=0, dtype="int64")


# Descriptors


ARG_MEMBERS: Any = {"input": f32(2, 3), "output": tensor("UINT32", 2, 1), "axes": (1,), "axis_direction": INCREASING}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output": tensor("UINT32", 2)}, "must have the same DimensionCount; got 2 and 1"),
        ({"output": tensor("UINT32", 1, 3)}, "OutputTensor.Sizes must be {2,1}; got {1,3}"),
        ({"output": f32(2, 1)}, "OutputTensor.DataType must be one of UINT32, INT32, UINT64, INT64; got FL"),
        ({"input": tensor("FLOAT64", 2, 3)}, "InputTensor.DataType must be one of ...; got FLOAT64"),
        ({"axes": (3,)}, "Axes[0] must be less than 2; got 3"),
        ({"input": f32(1, 2**31 + 1), "output": tensor("INT32", 1, 1)}, "hold indices up to 2147483648; got INT32"),
    ],
)
@pytest.mark.parametrize("operator", [directml.ArgmaxDesc, directml.ArgminDesc])
def test_arg_reduction_descs_refuse(operator: Any, change: dict[str, Any], message: str) -> None:
    check_refused(operator(**ARG_MEMBERS), change, message)


# REDUCE

F = ReduceFunction
OF_INTEGERS = [F.L1, F.SUM, F.SUM_SQUARE, F.MULTIPLY, F.MIN, F.MAX]
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((7,), (0,)),
    ((600,), (0,)),
    ((3, 700), (1,)),
    ((700, 3), (0,)),
    ((300, 40), (0,)),
    ((2, 31, 5), (1,)),
    ((5, 6, 7), (0, 2)),
    ((1, 4, 1), (0, 1, 2)),
]


@FULL
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_function_follows_the_formula(shape: Any, lowering: str) -> None:
    sizes, axes = shape
    if lowering != "cpu" and len(sizes) != 2:
        return  # the CPU's own lowering handles one axis of two
    x = np.random.default_rng(0).uniform(0.5, 1.5, sizes).astype(np.float32)
    x = np.exp2(np.round(np.log2(x) * 64) / 64).astype(np.float32)
    results = jax.jit(lambda x: {f.name: dmljax.reduce(x, function=f, axes=axes) for f in F})(x)
    for function in F:
        expected = cases.reduced(x, function=function, axes=axes)
        result = np.asarray(results[function.name])
        assert result.shape == expected.shape
        if function in (F.ARGMAX, F.ARGMIN, F.MAX, F.MIN):
            assert_same_bits(result, expected.astype(result.dtype))
        else:
            count = x.size // expected.size
            units = count / 2 if function is F.MULTIPLY else 8
            error = np.abs(result - expected) / np.spacing(np.abs(expected).astype(np.float32))
            assert np.all(error <= units), (function, error)


@FULL
@pytest.mark.parametrize("shape", SHAPES[2:6], ids=str)
def test_integers_wrap_around(shape: Any) -> None:
    sizes, axes = shape
    rng = np.random.default_rng(1)
    arrays = [random_array(rng, dtype, sizes) for dtype in (np.int32, np.uint8, *((np.int64,) if X64 else ()))]
    results = at_once(lambda x: [dmljax.reduce(x, function=f, axes=axes) for f in OF_INTEGERS], arrays)
    for x, of_functions in zip(arrays, results, strict=True):
        for function, result in zip(OF_INTEGERS, of_functions, strict=True):
            assert_same_bits(result, cases.reduced(x, function=function, axes=axes))


@FULL
def test_long_sums_are_exact_and_16_bit_floats_accumulate_in_float32(call: Any) -> None:
    reduced = lambda x, function: float(call(lambda x: dmljax.reduce(x, function=function, axes=0), x)[0])  # noqa: E731
    assert reduced(np.ones(2**24, np.float32), F.SUM) == 2**24
    for dtype in (np.float16, jnp.bfloat16):
        many = np.full(2**15, 0.25, dtype)
        assert reduced(many, F.SUM) == 2**13
        assert reduced(many, F.AVERAGE) == 0.25
    # The sum of squares overflows float16 on the way, but its root does not.
    large = np.full(100, 6000, np.float16)
    assert reduced(large, F.L2) == 60000


@pytest.mark.parametrize("sizes", [(2**17,), (2**13, 4), (600, 300)], ids=str)
@pytest.mark.gate(but=2)
def test_rounding_errors_do_not_accumulate(sizes: tuple[int, ...], lowering: str) -> None:
    rng = np.random.default_rng(0)
    every = [
        np.full(sizes, 0.1, np.float32),
        rng.random(sizes).astype(np.float32),
        (rng.random(sizes) * 10.0 ** rng.integers(-10, 10, sizes)).astype(np.float32),
        rng.standard_normal(sizes).astype(np.float32),  # which cancel
    ]
    sums = at_once(lambda x: dmljax.reduce(x, function=F.SUM, axes=0), every)
    for x, result in zip(every, sums, strict=True):
        exact = x.astype(np.float64).sum(0, keepdims=True)
        error = np.abs(np.asarray(result, np.float64) - exact)
        assert np.all(error <= 256 * 2.0**-24 * np.abs(x.astype(np.float64)).sum(0, keepdims=True))
        if x is not every[3]:
            assert np.all(error <= 100 * 2.0**-24 * exact)


@FULL
def test_intermediate_overflow_does_not_reach_the_result(call: Any) -> None:
    def reduce(x: Any, function: ReduceFunction) -> Any:
        return np.asarray(call(lambda x: dmljax.reduce(x, function=function, axes=-1), np.array(x, np.float32)))

    rows = [[3e18, 4e18], [3e-18, 4e-18], [0, 0], [np.inf, 1], [np.inf, -np.inf]]
    expected = [5e18, 5e-18, 0, np.inf, np.inf]
    np.testing.assert_allclose(reduce(rows, F.L2).ravel(), np.array(expected, np.float32), rtol=3e-7)
    assert reduce([[3, 4], [6, 8]], F.L2).ravel().tolist() == [5, 10]
    assert np.isnan(reduce([[np.nan, np.inf]], F.L2)).all()
    rows = [[1000, 1000], [-1000, -1000], [-np.inf, -np.inf], [np.inf, 0], [np.inf, -np.inf], [3e38, -3e38]]
    expected = [1000 + np.log(2), -1000 + np.log(2), -np.inf, np.inf, np.inf, 3e38]
    np.testing.assert_allclose(reduce(rows, F.LOG_SUM_EXP).ravel(), np.array(expected, np.float32), rtol=1e-7)
    assert np.isnan(reduce([[np.nan, np.inf]], F.LOG_SUM_EXP)).all()
    result = reduce([[-0.0, 2, 3], [np.inf, 0, 1]], F.MULTIPLY).ravel()
    assert_same_bits(result[0], np.float32(-0.0))
    assert np.isnan(result[1])
    assert reduce([[-1.0], [0.0]], F.LOG_SUM).ravel().tolist()[1] == -np.inf


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_reduced_extremes_order_elements_as_element_wise_max(dtype: Any) -> None:
    if np.dtype(dtype) == bool:
        return
    values = specials(dtype)
    pairs = np.stack([np.repeat(values, len(values)), np.tile(values, len(values))], axis=1)
    for function, of_two in ((F.MAX, dmljax.element_wise_max), (F.MIN, dmljax.element_wise_min)):
        result = np.asarray(dmljax.reduce(pairs, function=function, axes=1))[:, 0]
        expected = np.asarray(of_two(pairs[:, 0], pairs[:, 1]))
        with np.errstate(invalid="ignore"):  # signaling NaNs
            is_nan = np.isnan(expected)
            assert_same_bits(result[~is_nan], expected[~is_nan])
            assert np.isnan(result[is_nan]).all()


FORMULAS: dict[F, Callable[[Any], Any]] = {
    F.AVERAGE: jnp.mean,
    F.L1: lambda x: jnp.sum(jnp.abs(x)),
    F.L2: lambda x: jnp.sqrt(jnp.sum(x * x)),
    F.LOG_SUM: lambda x: jnp.log(jnp.sum(x)),
    F.LOG_SUM_EXP: lambda x: jnp.log(jnp.sum(jnp.exp(x))),
    F.SUM: jnp.sum,
    F.SUM_SQUARE: lambda x: jnp.sum(x * x),
    F.MULTIPLY: jnp.prod,
    F.MIN: jnp.min,
    F.MAX: jnp.max,
}


@SAMPLED
@pytest.mark.parametrize("function", FORMULAS, ids=lambda function: function.name)
def test_derivatives_are_those_of_the_formula(function: ReduceFunction) -> None:
    x = np.array([[2, 3], [5, 1.5]], np.float32)
    loss = lambda x: dmljax.reduce(x, function=function, axes=(0, 1)).sum()  # noqa: E731
    derivatives = jax.grad, lambda of: jax.jacfwd(jax.grad(of)), lambda of: jax.jacrev(jax.jacfwd(of))
    every = jax.jit(lambda x: [(derive(loss)(x), derive(FORMULAS[function])(x)) for derive in derivatives])
    for actual, expected in every(x):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_a_product_of_nothing_is_empty() -> None:
    empty = np.ones((0, 4), np.float32)
    gradient = jax.grad(lambda x: dmljax.reduce(x, function=F.MULTIPLY, axes=1).sum())(empty)
    assert gradient.shape == (0, 4)


@FULL
def test_gradients_at_ties_zeros_and_infinities() -> None:
    def gradient(function: ReduceFunction, x: Any) -> list[float]:
        loss = lambda x: dmljax.reduce(x, function=function, axes=0)[0]  # noqa: E731
        forward, backward = jax.jacfwd(loss)(x), jax.grad(loss)(x)
        np.testing.assert_allclose(forward, backward, rtol=1e-6)
        return list(np.asarray(backward).tolist())

    x = np.array([1, 3, 3, -2], np.float32)
    assert gradient(F.MAX, x) == [0, 1, 0, 0]
    assert gradient(F.MIN, np.array([0.0, -0.0, 1], np.float32)) == [1, 0, 0]
    assert gradient(F.L1, np.array([-2, 0, np.inf], np.float32)) == [-1, 0, 1]
    assert gradient(F.L2, np.array([3, 4, 0], np.float32)) == [np.float32(0.6), np.float32(0.8), 0]
    assert gradient(F.L2, np.zeros(3, np.float32)) == [0, 0, 0]
    assert gradient(F.MULTIPLY, np.array([0, 2, 3], np.float32)) == [6, 0, 0]
    assert gradient(F.MULTIPLY, np.array([0, 2, 0], np.float32)) == [0, 0, 0]
    # The derivative with respect to the first factor is 1e60, which overflows.
    np.testing.assert_allclose(
        gradient(F.MULTIPLY, np.array([2e-38, 1e30, 1e30], np.float32)), [np.inf, 2e-8, 2e-8], rtol=1e-6
    )
    assert gradient(F.SUM, np.array([np.inf, 1], np.float32)) == [1, 1]
    assert gradient(F.AVERAGE, np.array([np.inf, 1], np.float32)) == [0.5, 0.5]
    np.testing.assert_allclose(gradient(F.LOG_SUM, x), [0.2] * 4, rtol=1e-6)
    np.testing.assert_allclose(gradient(F.LOG_SUM_EXP, np.array([1000, 1000, 0], np.float32)), [0.5, 0.5, 0], rtol=1e-6)
    assert gradient(F.SUM_SQUARE, np.array([3, 0], np.float32)) == [6, 0]


@GATE
def test_reducing_nothing_gives_the_empty_sum_or_product() -> None:
    nothing = np.zeros((2, 0, 3), np.float32)
    expected = {F.SUM: 0, F.L1: 0, F.L2: 0, F.SUM_SQUARE: 0, F.MULTIPLY: 1, F.LOG_SUM: -np.inf, F.LOG_SUM_EXP: -np.inf}
    for function, value in expected.items():
        assert_same_bits(dmljax.reduce(nothing, function=function, axes=1), np.full((2, 1, 3), value, np.float32))
    assert np.isnan(dmljax.reduce(nothing, function=F.AVERAGE, axes=(1, 2))).all()
    for function in (F.MAX, F.MIN, F.ARGMAX, F.ARGMIN):
        with refuses("reduce: input must not be empty along axes (1,); got shape (2, 0, 3)", InvalidDesc):
            dmljax.reduce(nothing, function=function, axes=1)
    for function in F:
        assert dmljax.reduce(nothing, function=function, axes=0).shape == (1, 0, 3)


def test_each_function_has_its_own_type_and_rank_tables() -> None:
    data_types = [data_type for data_type in DataType if data_type is not DataType.UNKNOWN]
    for function, tables in cases.SUPPORT_BY_FUNCTION.items():
        for rank in (1, 4):
            for input in data_types:
                for output in data_types if function.startswith("ARG") else [input]:
                    sizes = (1,) * (rank - 1) + (3,)
                    given, result = TensorDesc(input, sizes), TensorDesc(output, (1,) * rank)
                    desc = directml.ReduceDesc(
                        function=ReduceFunction[function], input=given, output=result, axes=(rank - 1,)
                    )
                    listed = [
                        level
                        for level, rows in tables.items()
                        if all(
                            lowest <= rank <= highest
                            and {"InputTensor": input, "OutputTensor": output}[tensor].name in types.split()
                            for tensor, lowest, highest, types in rows
                        )
                    ]
                    if listed:
                        assert directml.find_minimum_feature_level(desc).name == f"FL_{min(listed)}"
                    else:
                        assert directml.find_broken_rules(desc)


@SAMPLED
@pytest.mark.parametrize("function", F, ids=lambda member: member.name)
def test_axes_may_be_all_or_none_and_arrays_may_be_scalars(function: Any) -> None:
    x = jnp.array([[1.0, 3.0], [2.0, 3.0]])
    assert_same_bits(dmljax.reduce(x, function), dmljax.reduce(x, function, axes=(0, 1)))
    assert_same_bits(dmljax.reduce(x, function, axes=()), dmljax.reduce(x[..., None], function, axes=2)[..., 0])
    assert_same_bits(dmljax.reduce(x[0, 1], function), dmljax.reduce(x[0, 1:], function, axes=0)[0])
    assert_same_bits(dmljax.reduce(x[0, 1], function, axes=()), dmljax.reduce(x[0, 1:], function, axes=0)[0])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.gate(but=1)
def test_positions_may_count_over_all_elements(name: str) -> None:
    function, x = getattr(dmljax, name), jnp.array([[1, 3], [2, 0]])
    assert function(x).tolist() == [[getattr(x, name)()]]
    assert function(x, axes=()).tolist() == [[0, 0], [0, 0]]
    assert function(x[0, 0]).tolist() == 0
