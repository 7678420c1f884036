"""ONE_HOT and NONZERO_COORDINATES; the pages' own examples run in test_every_operator.py."""

from dataclasses import replace
from typing import Any

import cases_indexing as oracles
import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_indexing import NONZERO, ONE_HOT
from formulas import number
from helpers import (
    FULL,
    GATE,
    INT32_MAX,
    INT32_MIN,
    INTEGERS,
    REALS,
    SAMPLED,
    assert_same_bits,
    assert_same_trees,
    check_linear_gradients,
    f32,
    few_types,
    needs_x32,
    refuses,
    specials,
    tensor,
)

import dmljax
from dmljax import directml
from dmljax.directml import InvalidDesc, InvalidType

OFF_ON = np.array([0, 1], np.float32)

# ONE_HOT


def test_one_hot_counts_negative_indices_from_the_end_and_ignores_those_out_of_range(call: Any) -> None:
    indices = np.array([[3, -1, -4, 4, -5, INT32_MAX, INT32_MIN]], np.int32)
    result = call(dmljax.one_hot, indices, OFF_ON, axis=0, depth=4)
    assert_same_bits(result, np.array([[0, 0, 1, *[0] * 4], [0] * 7, [0] * 7, [1, 1, 0, *[0] * 4]], np.float32))


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_one_hot_neither_wraps_narrow_indices_nor_truncates_wide_ones(call: Any, dtype: Any) -> None:
    indices = specials(dtype)[:, None]
    expected = oracles.one_hot(indices, OFF_ON, axis=1, depth=300)
    assert_same_bits(call(dmljax.one_hot, indices, OFF_ON, axis=1, depth=300), expected)


@pytest.mark.parametrize("depth", [2**31 - 1, 2**31 + 5, 2**32 - 1])
@pytest.mark.gate(but=1)
def test_one_hot_counts_past_int32(depth: int) -> None:
    indices = np.array([[-1], [-(2**31)], [0], [2**31 - 1], [7]], np.int32)
    values = np.array([0, 1], np.int8)
    for position in (0, 5, 7, 2**31 - 2, depth - 2**31 if depth >= 2**31 else 0, depth - 1):

        def column(indices: Any, position: int = position) -> Any:  # XLA computes only this column
            hot = dmljax.one_hot(indices, values, axis=1, depth=depth)
            return jax.lax.slice_in_dim(hot, position, position + 1, axis=1)

        from_start = np.where(indices < 0, indices.astype(np.int64) + depth, indices)
        assert_same_bits(jax.jit(column)(indices), (from_start == position).astype(np.int8))


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_one_hot_copies_both_values_bit_for_bit(call: Any, dtype: Any) -> None:
    indices = np.array([[1]], np.int32)
    for value in specials(dtype).view(f"u{dtype.itemsize}"):
        for pair in ([value, 0], [0, value]):
            values = np.array(pair, f"u{dtype.itemsize}").view(dtype)
            expected = oracles.one_hot(indices, values, axis=1, depth=2)
            assert_same_bits(call(dmljax.one_hot, indices, values, axis=1, depth=2), expected)


def test_one_hot_takes_values_of_any_rank_and_a_negative_axis(call: Any) -> None:
    indices, values = np.array([[[2, 0]]], np.int8), np.arange(6, dtype=np.int16).reshape(1, 3, 1, 2)
    expected = oracles.one_hot(indices, values, axis=1, depth=3)
    assert_same_bits(call(dmljax.one_hot, indices, values, axis=-2, depth=3), expected)


def test_one_hot_of_no_indices_is_empty(call: Any) -> None:
    assert call(dmljax.one_hot, np.zeros((0, 1), np.int32), OFF_ON, axis=1, depth=3).shape == (0, 3)


@GATE
def test_one_hot_is_differentiable_with_respect_to_values() -> None:
    indices = np.array([[0], [7]], np.int32)
    gradient = jax.grad(lambda values: dmljax.one_hot(indices, values, axis=1, depth=3).sum())(jnp.array([2.0, 3.0]))
    assert gradient.tolist() == [5.0, 1.0]
    check_linear_gradients(lambda values: dmljax.one_hot(indices, values, axis=1, depth=3), (jnp.array([2.0, 3.0]),))


NEW_AXIS = "(jnp.expand_dims(indices, {}) adds such an axis)"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"indices": jnp.array([[1.0]])}, InvalidType, "indices must be of an integer type; got float"),
        ({"indices": jnp.array([[True]])}, InvalidType, "indices must be of an integer type; got bool"),
        ({"values": np.array([{}, {}], object)}, InvalidType, "values must be bool, ...; got object"),
        ({"values": jax.random.key(0)}, InvalidType, "values must be bool"),
        ({"values": jnp.array([1])}, InvalidDesc, "values must have at least 2 elements; got 1"),
        ({"depth": 0}, InvalidDesc, "depth must be at least 1; got 0"),
        ({"depth": 3.0}, InvalidType, "depth must be an integer; got 3.0"),
        ({"axis": 3}, InvalidDesc, "axis must be in [-2, 2); got 3"),
        ({"axis": -3}, InvalidDesc, "axis must be in [-2, 2); got -3"),
        ({"axis": True}, InvalidType, "axis must be an integer; got True"),
        (
            {"indices": jnp.array([1, 2])},
            InvalidDesc,
            f"indices must have size 1 along axis 1; got shape (2,) {NEW_AXIS.format(1)}",
        ),
        (
            {"indices": jnp.array([1, 2]), "axis": -1},
            InvalidDesc,
            f"indices must have size 1 along axis 0; got shape (2,) {NEW_AXIS.format(-1)}",
        ),
        ({"indices": jnp.array([[1, 2]])}, InvalidDesc, "size 1 along axis 1; got shape (1, 2)"),
        ({"indices": jnp.array(1)}, InvalidDesc, "indices must have at least 1 dimension; got 0"),
        ({"indices": np.ma.array([[1]], mask=[[True]])}, InvalidType, "array without a mask"),
    ],
)
def test_one_hot_refuses(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"indices": jnp.array([[1]]), "values": jnp.array([0, 1]), "axis": 1, "depth": 3}
    # The cached result of this valid call must not be returned for the call that must be refused.
    dmljax.one_hot(**arguments)
    with refuses(f"one_hot: ...{message}", error):
        dmljax.one_hot(**arguments | change)


def test_arrays_in_another_byte_order_keep_their_values() -> None:
    result = dmljax.one_hot(np.array([[1], [-1]], ">i4"), np.array([0.5, 2], ">f4"), axis=1, depth=3)
    assert_same_bits(result, np.array([[0.5, 2, 0.5], [0.5, 0.5, 2]], np.float32))


def test_one_hot_refuses_a_traced_axis() -> None:
    with refuses("axis must be an integer that is known while tracing; got a traced ...static_argnames='axis'"):
        jax.jit(lambda axis: dmljax.one_hot(jnp.array([[1]]), jnp.array([0, 1]), axis=axis, depth=3))(1)


# NONZERO_COORDINATES


@pytest.mark.usefixtures("lowering")
@pytest.mark.gate(but=1)
def test_nonzero_lists_coordinates_in_the_order_of_the_elements(call: Any) -> None:
    result = call(dmljax.nonzero_coordinates, np.array([[0, 0, 5], [7, 0, 9]], np.int32))
    expected = np.array([[0, 2], [1, 0], [1, 2], [0, 0], [0, 0], [0, 0]], np.int32)
    chex.assert_trees_all_equal(tuple(result), (np.int32(3), expected), strict=True)


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_nonzero_counts_everything_except_positive_and_negative_zero(call: Any, dtype: Any) -> None:
    values = specials(dtype)
    count, coordinates = call(dmljax.nonzero_coordinates, values)
    expected_count, expected = oracles.nonzero_coordinates(values)
    assert len(values) - int(count) == sum(number(value) == 0 for value in values)
    assert_same_bits(count, expected_count.astype(np.int32))
    assert_same_bits(coordinates, expected.astype(np.int32))


@pytest.mark.usefixtures("lowering")
@pytest.mark.gate(but=1)
def test_nonzero_returns_the_full_count_if_size_is_too_small(call: Any) -> None:
    count, coordinates = call(dmljax.nonzero_coordinates, np.array([1, 0, 2, 3], np.int8), size=2)
    assert (int(count), coordinates.tolist()) == (3, [[0], [2]])


def test_nonzero_fills_rows_past_the_count(call: Any) -> None:
    _, coordinates = call(dmljax.nonzero_coordinates, np.array([0, 2], np.int8), size=3, fill_value=-1)
    assert coordinates.tolist() == [[1], [-1], [-1]]


def test_the_count_can_be_used_in_computations(call: Any) -> None:
    count = call(dmljax.nonzero_coordinates, np.array([0, 2, 3], np.int8)).count
    assert int(jax.lax.fori_loop(0, count, lambda i, total: total + i, 10)) == 11
    nothing = call(dmljax.nonzero_coordinates, np.zeros(3, np.int8)).count
    assert int(nothing - 1) == -1


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
@pytest.mark.gate(but=1)
def test_nonzero_returns_count_and_coordinates_in_any_integer_type(call: Any, dtype: Any) -> None:
    fill_value = -1 if dtype.kind == "i" else min(np.iinfo(dtype).max, 2**63 - 1)  # static integers have 64 bits
    result = call(dmljax.nonzero_coordinates, np.array([[0, 2]]), size=2, fill_value=fill_value, dtype=dtype)
    assert_same_bits(result.count, np.array(1, dtype))
    assert_same_bits(result.coordinates, np.array([[0, 1], [fill_value, fill_value]], dtype))
    empty = call(dmljax.nonzero_coordinates, np.zeros((0, 2)), size=1, fill_value=fill_value, dtype=dtype)
    assert_same_bits(empty.count, np.array(0, dtype))
    assert_same_bits(empty.coordinates, np.array([[fill_value, fill_value]], dtype))


def test_nonzero_takes_any_type_that_holds_the_count() -> None:
    assert int(dmljax.nonzero_coordinates(np.ones(127), dtype="int8").count) == 127


@FULL
def test_nonzero_leaves_out_leading_coordinates_of_size_one(call: Any) -> None:
    input = np.array([[[[0, 3], [0, 4]]]], np.int32)
    for columns in (2, 3, 4):
        expected_count, expected = oracles.nonzero_coordinates(input, columns=columns)
        count, coordinates = call(dmljax.nonzero_coordinates, input, columns=columns)
        assert_same_bits(coordinates, expected.astype(np.int32))
        assert_same_bits(count, expected_count.astype(np.int32))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3, 1)])
def test_nonzero_of_an_empty_array_is_empty(call: Any, shape: tuple[int, ...]) -> None:
    count, coordinates = call(dmljax.nonzero_coordinates, np.zeros(shape, np.float32))
    assert (int(count), coordinates.shape) == (0, (0, len(shape)))
    assert (
        call(dmljax.nonzero_coordinates, np.zeros(shape, np.float32), size=2).coordinates.tolist()
        == [[0] * len(shape)] * 2
    )


def test_nonzero_of_a_scalar_has_one_column(call: Any) -> None:
    assert call(dmljax.nonzero_coordinates, np.float32(3)).coordinates.tolist() == [[0]]
    assert int(call(dmljax.nonzero_coordinates, np.float32(-0.0)).count) == 0


def test_nonzero_may_be_exported() -> None:
    input = np.array([0.0, 3.0], np.float32)
    exported = jax.export.export(jax.jit(dmljax.nonzero_coordinates))(input)
    result = jax.export.deserialize(exported.serialize()).call(input)
    assert isinstance(result, dmljax.NonzeroCoordinates)
    assert_same_trees(result, dmljax.nonzero_coordinates(input))


def test_nonzero_with_size_zero_only_counts(call: Any) -> None:
    count, coordinates = call(dmljax.nonzero_coordinates, np.array([[1, 0], [1, 1]]), size=0)
    assert (int(count), coordinates.shape) == (3, (0, 2))


@FULL
@pytest.mark.parametrize(
    "shape",
    [(31,), (32,), (33,), (4097,), (3, 31), (3, 32), (3, 33), (2, 127), (2, 128), (2, 129), (2, 5, 64), (5, 3, 43)],
    ids=str,
)
@pytest.mark.usefixtures("lowering")
def test_nonzero_at_the_boundaries_of_words_and_runs(shape: tuple[int, ...]) -> None:
    # Predicates are packed 32 to a word, and each run of trailing dimensions is padded to whole words.
    rng = np.random.default_rng(len(shape))
    inputs = [(rng.random(shape) < density).astype(np.uint8) for density in (0, 0.3, 1)]
    sizes = (32, 33, inputs[0].size + 40)
    find = jax.jit(lambda x: [dmljax.nonzero_coordinates(x, size=size, fill_value=7) for size in sizes])
    for input in inputs:
        expected_count = int(input.sum())
        for size, (count, coordinates) in zip(sizes, find(input), strict=True):
            expected = np.full((size, len(shape)), 7, np.int32)
            expected[:expected_count] = np.argwhere(input)[:size]
            assert int(count) == expected_count
            assert_same_bits(coordinates, expected.astype(np.int32))


@FULL
def test_nonzero_of_a_batch_equals_a_loop() -> None:
    input = np.zeros((3, 4000), np.float32)
    input[0, ::50], input[2, 7:] = 1, 1
    mapped = jax.vmap(dmljax.nonzero_coordinates)
    each = jax.tree.map(lambda *rows: np.stack(rows), *map(dmljax.nonzero_coordinates, input))
    assert_same_trees(mapped(input), each)
    assert_same_trees(jax.tree.map(lambda x: x[0], jax.vmap(mapped)(input[None])), each)


def test_nonzero_has_rows_beyond_int32() -> None:
    # The result is too large to compute here, so only its shape is checked.
    result = jax.eval_shape(lambda x: dmljax.nonzero_coordinates(x, size=2**31 + 5), np.ones((3, 4), np.uint8))
    assert (result.coordinates.shape, result.coordinates.dtype) == ((2**31 + 5, 2), np.int32)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"size": -1}, InvalidDesc, "size must be at least 0; got -1"),
        ({"columns": 1}, InvalidDesc, "columns must be in [2, 3]; got 1"),
        ({"columns": 4}, InvalidDesc, "columns must be in [2, 3]; got 4"),
        ({"fill_value": -1, "dtype": "uint32"}, InvalidDesc, "fill_value must be in [0, 4294967295]; got -1"),
        ({"fill_value": 2**31}, InvalidDesc, "must be in [-2147483648, 2147483647]; got 2147483648"),
        ({"fill_value": 0.0}, InvalidType, "fill_value must be an int"),
        ({"input": np.ones(128), "dtype": "int8"}, InvalidDesc, "dtype must hold counts up to 128; got int8"),
        ({"dtype": "float32"}, InvalidType, "dtype must be an integer type; got float32"),
    ],
)
def test_nonzero_refuses(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with refuses(f"nonzero_coordinates: ...{message}", error):
        dmljax.nonzero_coordinates(**{"input": jnp.ones((1, 2, 3))} | change)


# Descriptors


def test_one_hot_reads_the_on_value_from_the_last_dimension_of_two_or_more() -> None:
    desc = directml.OneHotDesc(indices=tensor("UINT32", 1, 1), values=f32(3, 1), output=f32(1, 2), axis=1)
    result = directml.lower(desc)(np.array([[1]], np.uint32), np.array([[4], [2], [9]], np.float32))
    assert result.tolist() == [[4, 2]]


def test_nonzero_desc_takes_other_ranks_from_level_4_0_on() -> None:
    desc = replace(NONZERO, output_count=tensor("UINT32", 1), output_coordinates=tensor("UINT32", 6, 4))
    assert directml.find_minimum_feature_level(NONZERO) is directml.FeatureLevel.FL_3_0
    assert directml.find_minimum_feature_level(desc) is directml.FeatureLevel.FL_4_0
    count, coordinates = directml.lower(desc)(np.ones((1, 1, 2, 3), np.float32))
    assert (count.shape, coordinates.shape) == ((1,), (6, 4))


def test_nonzero_desc_of_a_lone_element_keeps_one_column() -> None:
    desc = replace(NONZERO, input=f32(1, 1, 1, 1), output_coordinates=tensor("UINT32", 1, 1, 1, 1))
    count, coordinates = directml.lower(desc)(np.full((1, 1, 1, 1), np.nan, np.float32))
    assert (count.tolist(), coordinates.tolist()) == ([[[[1]]]], [[[[0]]]])


@needs_x32
def test_refusing_a_64_bit_desc_names_the_remedy() -> None:
    with refuses("IndicesTensor.DataType must be ... jax_enable_x64 ...; got INT64", directml.Unsupported):
        directml.lower(replace(ONE_HOT, indices=tensor("INT64", 2, 1, 4)))
