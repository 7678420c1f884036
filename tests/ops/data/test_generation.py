"""DIAGONAL_MATRIX, FILL_VALUE_* and RANDOM_GENERATOR; their pages' examples: test_every_operator.py."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cases_generation as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases_generation import CONSTANT, DIAGONAL, GENERATOR, SEQUENCE
from helpers import (
    FLOATS,
    FULL,
    GATE,
    INT32_MAX,
    INT32_MIN,
    INTEGERS,
    REALS,
    SAMPLED,
    X64,
    assert_same_bits,
    assert_same_trees,
    check_linear_gradients,
    few_of,
    few_types,
    refuses,
    specials,
    tensor,
)

import dmljax
from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, Scalar

MAIN_DIAGONAL: Any = partial(dmljax.diagonal_matrix1, diagonal_fill_begin=0, diagonal_fill_end=1)
BOUNDS = [INT32_MIN, INT32_MIN + 1, -5, -2, -1, 0, 1, 2, 5, INT32_MAX - 1, INT32_MAX]


@SAMPLED
@pytest.mark.parametrize("begin", BOUNDS)
def test_every_band_and_inverted_band_equals_the_pseudo_code(begin: int) -> None:
    input, value = np.arange(12, dtype=np.int32).reshape(3, 4), np.int32(-7)
    band = lambda last: dmljax.diagonal_matrix1(input, value, diagonal_fill_begin=begin, diagonal_fill_end=last)  # noqa: E731
    for end, filled in zip(BOUNDS, jax.jit(lambda: list(map(band, BOUNDS)))(), strict=True):
        expected = oracles.diagonal_matrix1(input, -7, begin=begin, end=end, sizes=(3, 4), dtype=np.int32)
        assert_same_bits(filled, expected)


@FULL
def test_a_bound_of_none_lies_beyond_the_outermost_diagonal(call: Any) -> None:
    input = np.zeros((3, 4), np.float32)
    for bound in (INT32_MIN, -3, -1, 0, 1, 4, INT32_MAX):
        for bounds, both in (
            ({"diagonal_fill_begin": bound}, {"begin": bound, "end": INT32_MAX}),
            ({"diagonal_fill_end": bound}, {"begin": INT32_MIN, "end": bound}),
        ):
            expected = oracles.diagonal_matrix1(None, 1, **both, sizes=(3, 4), dtype=np.float32)
            assert_same_bits(call(dmljax.diagonal_matrix1, input, np.float32(1), **bounds), expected)
    assert_same_bits(call(dmljax.diagonal_matrix1, input, np.float32(1)), np.ones_like(input))


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_value_and_input_are_copied_bit_for_bit(call: Any, dtype: Any) -> None:
    values = specials(dtype)
    input = np.stack([values, values[::-1]])
    for value in values:
        expected = oracles.diagonal_matrix1(input, value, begin=0, end=2, sizes=input.shape, dtype=dtype)
        filled = call(dmljax.diagonal_matrix1, input, np.array(value), diagonal_fill_begin=0, diagonal_fill_end=2)
        assert_same_bits(filled, expected)


@SAMPLED
@pytest.mark.parametrize("sizes", [(2, 1, 3, 3), (0, 3), (2, 0, 1), (2, 3, 4)])
def test_leading_dimensions_are_batches(call: Any, sizes: tuple[int, ...]) -> None:
    result = call(MAIN_DIAGONAL, None, np.float32(1), output_sizes=[*sizes])
    assert_same_bits(result, np.broadcast_to(np.eye(*sizes[-2:], dtype=np.float32), sizes))


def test_the_value_decides_the_type_by_default() -> None:
    default = 64 if X64 else 32
    for value, expected in ((7, f"int{default}"), (7.0, f"float{default}"), (True, "bool"), (np.int8(7), "int8")):
        assert dmljax.diagonal_matrix1(None, value, output_sizes=(2, 2)).dtype == expected
    assert dmljax.diagonal_matrix1(None, jnp.bfloat16(2), output_sizes=(2, 2)).dtype == "bfloat16"
    assert dmljax.diagonal_matrix1(None, 2, output_sizes=(2, 2), dtype=float).dtype == f"float{default}"


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_a_number_must_fit_an_integer_type_exactly(dtype: Any) -> None:
    info = np.iinfo(dtype)
    input = jnp.zeros((1, 1), dtype)
    value: Any
    for value in (info.min, info.max, float(int(info.max) // 2 + 1)):
        assert int(dmljax.diagonal_matrix1(input, value)[0, 0]) == int(value)
    for value in (int(info.max) + 1, int(info.min) - 1, 2.5, float("nan"), float("inf"), np.float32(0.5)):
        with refuses(f"diagonal_matrix1: value must be a whole number in ... to fit {dtype}; got", InvalidDesc):
            dmljax.diagonal_matrix1(input, value)


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_a_number_is_rounded_to_a_floating_type_but_never_to_infinity(dtype: Any) -> None:
    input = jnp.zeros((1, 1), dtype)
    for value in (0.1, -0.0, float("inf"), 2**20 if dtype.itemsize > 2 else 3, np.float64(1e-42)):
        assert_same_bits(dmljax.diagonal_matrix1(input, value)[0, 0], np.array(value).astype(dtype))
    with pytest.raises(InvalidDesc, match=f"value must fit {dtype}; got"):
        dmljax.diagonal_matrix1(input, 10**400)


def test_the_value_may_be_traced_but_not_converted() -> None:
    input = jnp.zeros((2, 2), jnp.float16)
    fill = jax.jit(MAIN_DIAGONAL)
    assert fill(input, jnp.float16(3)).tolist() == [[3, 0], [0, 3]]
    assert fill(input, 3.0).tolist() == [[3, 0], [0, 3]]
    with pytest.raises(InvalidType, match=r"value must be of float16, or a Python number .*; got an array of float32"):
        fill(input, jnp.float32(3))
    assert_same_bits(fill(jnp.zeros((2, 2), jnp.uint8), 3), np.array([[3, 0], [0, 3]], np.uint8))
    with pytest.raises(InvalidType, match=r"value must be of uint8, or a Python number .*; got an array of int"):
        fill(jnp.zeros((2, 2), jnp.uint8), jnp.int32(3))


@FULL
def test_diagonal_matrix1_is_differentiable_with_respect_to_input_and_value() -> None:
    input = jnp.arange(6.0).reshape(2, 3)
    fill: Any = partial(dmljax.diagonal_matrix1, diagonal_fill_begin=0, diagonal_fill_end=2)
    to_input, to_value = jax.grad(lambda *a: (fill(*a) * jnp.arange(6.0).reshape(2, 3)).sum(), argnums=(0, 1))(
        input, 9.0
    )
    assert to_input.tolist() == [[0, 0, 2], [3, 0, 0]]
    assert float(to_value) == 0 + 1 + 4 + 5
    check_linear_gradients(fill, (input, 9.0))
    assert jax.grad(lambda v: fill(None, v, output_sizes=(2, 3)).sum())(9.0) == 4


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input": None}, InvalidDesc, "output_sizes must be given if input is None; got None"),
        ({"input": jnp.ones(3)}, InvalidDesc, "input must have at least 2 dimensions; got 1"),
        ({"input": None, "output_sizes": (3,)}, InvalidDesc, "output_sizes must have at least 2 elements; got (3,)"),
        ({"input": None, "output_sizes": (3, -1)}, InvalidDesc, "output_sizes[1] must be at least 0; "),
        (
            {"input": None, "output_sizes": 3},
            InvalidType,
            "output_sizes must be a sequence of integers; got 3 ((3,) has one)",
        ),
        ({"output_sizes": (3, 2)}, InvalidDesc, "must be the shape of input, (2, 3); got (3, 2)"),
        ({"dtype": "int8"}, InvalidType, "dtype must be the dtype of input, float32; got int8"),
        ({"diagonal_fill_begin": INT32_MIN - 1}, InvalidDesc, "diagonal_fill_begin must be in ...; got"),
        ({"diagonal_fill_end": INT32_MAX + 1}, InvalidDesc, "diagonal_fill_end must be in ...; got"),
        ({"diagonal_fill_end": 1.0}, InvalidType, "diagonal_fill_end must be an int"),
        ({"value": jnp.ones(3)}, InvalidDesc, "value must be a scalar; got shape (3,)"),
        ({"value": None}, InvalidType, "value must be a JAX or NumPy array; got NoneType"),
    ],
)
def test_diagonal_matrix1_refuses(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"input": jnp.ones((2, 3), jnp.float32), "value": 1}
    with refuses(f"diagonal_matrix1: ...{message}", error):
        dmljax.diagonal_matrix1(**arguments | change)


# DIAGONAL_MATRIX


def test_diagonal_matrix_is_diagonal_matrix1_one_diagonal_wide(call: Any) -> None:
    for offset in (INT32_MIN, -1, 0, 2, INT32_MAX):
        expected = oracles.diagonal_matrix1(None, 3, begin=offset, end=offset + 1, sizes=(3, 4), dtype=np.float32)
        assert_same_bits(call(dmljax.diagonal_matrix, np.float32(3), offset=offset, output_sizes=(3, 4)), expected)


@SAMPLED
@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [(10.6, "int32", 10), (-10.6, "int32", -10), (-0.9, "uint8", 0), (255.9, "uint8", 255), (0.1, "float16", 0.1)],
)
def test_diagonal_matrix_drops_the_fraction_of_a_number(value: float, dtype: str, expected: float) -> None:
    result = dmljax.diagonal_matrix(value, output_sizes=(1, 1), dtype=dtype)
    assert_same_bits(result, np.array([[expected]], dtype))


@pytest.mark.parametrize(("value", "dtype"), [(256.0, "uint8"), (-1.0, "uint8"), (np.nan, "int32"), (1e6, "float16")])
def test_diagonal_matrix_refuses_values_outside_the_type(value: float, dtype: str) -> None:
    with refuses(f"diagonal_matrix: value must ...fit {dtype}; got", InvalidDesc):
        dmljax.diagonal_matrix(value, output_sizes=(1, 1), dtype=dtype)
    desc = directml.DiagonalMatrixDesc(output=tensor(dtype.upper(), 1, 1, 2, 2), offset=0, value=value)
    with refuses(f"DML_OPERATOR_DIAGONAL_MATRIX at ...: Value must ...fit {dtype}; got", InvalidDesc):
        directml.validate(desc)


def test_diagonal_matrix_is_differentiable() -> None:
    assert jax.grad(lambda v: dmljax.diagonal_matrix(v, output_sizes=(3, 2)).sum())(1.0) == 2


# Descriptors


BYTE = {"value_data_type": "UINT8"}


@pytest.mark.parametrize(
    ("desc", "change", "message"),
    [
        (DIAGONAL, BYTE | {"value": 300}, "Value must be a whole number in [0, 255]"),
        (DIAGONAL, {"value_data_type": "INT32", "value": 2.5}, "Value must be a whole number"),
        (DIAGONAL, {"value": "7"}, "Value must be a real number; got '7'"),
        (DIAGONAL, {"value": Scalar.of(DataType.INT32, 7)}, "Value must be of FLOAT32; got INT32 7"),
        (DIAGONAL, {"value_data_type": "FLOAT"}, "ValueDataType must be one of UNKNOWN, FLOAT32, ...; got 'FLOAT'"),
        (DIAGONAL, {"diagonal_fill_begin": INT32_MIN - 1}, "DiagonalFillBegin must be in [-2147483648, 2147483647]"),
        (DIAGONAL, {"diagonal_fill_end": 0.5}, "DiagonalFillEnd must be an integer; got 0.5"),
        (DIAGONAL, {"output": (2, 3)}, "OutputTensor must be a TensorDesc; got tuple"),
        (DIAGONAL, {"output": None}, "OutputTensor must be a TensorDesc; got NoneType"),
        (CONSTANT, BYTE | {"value": -2}, "Value must be a whole number in [0, 255] to fit uint8; got -2"),
        (SEQUENCE, {"value_start": -2}, "ValueStart must be a whole number in [0, 255] to fit uint8; got -2"),
        (SEQUENCE, {"value_delta": -256}, "must be a whole number in [-255, 255], a step between two numbers of uint8"),
        (SEQUENCE, {"value_delta": 256}, "ValueDelta must be a whole number in [0, 255] to fit uint8; got 256"),
        (SEQUENCE, {"value_delta": -0.5}, "ValueDelta must be a whole number in [-255, 255]"),
        (SEQUENCE, {"value_delta": Scalar.of(DataType.INT8, -2)}, "ValueDelta must be of UINT8; got INT8 -2"),
    ],
)
def test_a_desc_refuses_values_that_it_cannot_hold(desc: Any, change: dict[str, Any], message: str) -> None:
    with refuses(f"{type(desc).type}: ...{message}"):
        replace(desc, **change)


def test_descs_compare_scalars_by_type_and_bits() -> None:
    zero, minus_zero, nan, one = (replace(DIAGONAL, value=value) for value in (0.0, -0.0, float("nan"), 1))
    assert zero != minus_zero
    assert nan == replace(DIAGONAL, value=float("nan"))
    assert one == replace(DIAGONAL, value=1.0)
    assert replace(DIAGONAL, value_data_type=DataType.INT32, value=1).value != one.value
    assert len({zero, minus_zero, replace(DIAGONAL, value=0)}) == 2


# FILL_VALUE_CONSTANT


@SAMPLED
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_a_constant_is_copied_bit_for_bit(call: Any, dtype: Any) -> None:
    for value in specials(dtype):
        expected = oracles.fill_value_constant(value, sizes=(2, 3), dtype=dtype)
        assert_same_bits(call(dmljax.fill_value_constant, np.array(value), output_sizes=(2, 3)), expected)


@SAMPLED
@pytest.mark.parametrize("sizes", [(), (0,), (3, 0, 2), (1,) * 9])
def test_a_constant_fills_any_sizes(call: Any, sizes: tuple[int, ...]) -> None:
    expected = oracles.fill_value_constant(7, sizes=sizes, dtype="int8")
    assert_same_bits(call(dmljax.fill_value_constant, np.int8(7), output_sizes=sizes), expected)
    assert_same_bits(dmljax.fill_value_constant(7, output_sizes=sizes, dtype="int8"), expected)


# FILL_VALUE_SEQUENCE


def assert_near_sequence(actual: Any, start: Any, delta: Any) -> None:
    """Compares a sequence with the formula: the index, the product and the sum are each rounded once."""
    dtype = np.asarray(actual).dtype
    first, step, index = float(start), float(delta), np.arange(actual.size, dtype=np.float64)
    scale = np.abs(first) + index * np.abs(step)
    error = np.abs(np.asarray(actual, np.float64).ravel() - (first + index * step))
    assert np.all(error <= 2 * float(jnp.finfo(dtype).eps) * scale)
    assert_same_bits(np.asarray(actual).ravel()[:1], np.array([start], dtype))


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
@pytest.mark.parametrize("count", few_of([1, 100, 2**24 + 5], 1, 100))
def test_a_sequence_of_floats_accumulates_no_error(dtype: Any, count: int) -> None:
    compiled = jax.jit(lambda start, delta: dmljax.fill_value_sequence(start, delta, output_sizes=(count,)))
    last = 60000 / count  # in the range of float16
    for start, delta in [(0, last), (-0.0, -last), (1, 1 / count), (-1e-3, last / 7)]:
        numbers = dtype.type(start), dtype.type(delta)
        assert_near_sequence(compiled(*numbers), *numbers)


@pytest.mark.parametrize("dtype", few_types(INTEGERS), ids=str)
def test_a_sequence_of_integers_wraps_around(call: Any, dtype: Any) -> None:
    limits, count = np.iinfo(dtype), 70000
    for start, delta in ((limits.max, 1), (limits.min, limits.max), (limits.max, limits.min), (3, 7)):
        sequence = np.asarray(
            call(dmljax.fill_value_sequence, dtype.type(start), dtype.type(delta), output_sizes=(count,))
        )
        for i in (0, 1, 2, 255, 256, 65535, 65536, count - 1):
            assert sequence[i] == oracles.element(start, delta, i, dtype)


@SAMPLED
@pytest.mark.parametrize("dtype", [dtype for dtype in INTEGERS if dtype.kind == "u"], ids=str)
def test_a_negative_step_of_an_unsigned_type_goes_down(dtype: Any) -> None:
    highest = int(np.iinfo(dtype).max)
    for delta in (-1, -2, -2.0, -highest):
        sequence = dmljax.fill_value_sequence(10, delta, output_sizes=(3,), dtype=dtype)
        assert_same_bits(sequence, oracles.fill_value_sequence(10, int(delta), sizes=(3,), dtype=dtype))
    for delta in (-highest - 1, highest + 1, -0.5, float("nan")):
        with pytest.raises(InvalidDesc, match=r"^fill_value_sequence: value_delta must be a whole number"):
            dmljax.fill_value_sequence(10, delta, output_sizes=(3,), dtype=dtype)
    with refuses("fill_value_sequence: value_start must be a whole number in [0, ", InvalidDesc):
        dmljax.fill_value_sequence(-1, 1, output_sizes=(3,), dtype=dtype)


def test_a_desc_takes_a_negative_step_of_an_unsigned_type_and_its_json_too() -> None:
    desc = replace(SEQUENCE, value_delta=-2)
    assert desc.value_delta == Scalar.of(DataType.UINT8, 254)
    assert desc == replace(SEQUENCE, value_delta=254)
    spelled = directml.to_json(desc)
    assert spelled["Desc"]["ValueDelta"] == 254
    for delta in (254, -2, {"UInt8": 254}, {"UInt8": -2}):
        assert directml.from_json({"Type": spelled["Type"], "Desc": spelled["Desc"] | {"ValueDelta": delta}}) == desc
    assert directml.lower(desc)().tolist() == [[[[10, 8, 6]]]]


@FULL
@pytest.mark.parametrize(
    ("start", "delta", "dtype"),
    [
        (3, 2, f"int{64 if X64 else 32}"),
        (3, 0.5, f"float{64 if X64 else 32}"),
        (np.uint8(3), -2, "uint8"),
        (3, np.float16(0.1), "float16"),
        (jnp.bfloat16(3), 0.1, "bfloat16"),
        (np.int8(3), jnp.int8(2), "int8"),
    ],
)
def test_the_numbers_decide_the_type_of_a_sequence(start: Any, delta: Any, dtype: str) -> None:
    for run in (dmljax.fill_value_sequence, jax.jit(dmljax.fill_value_sequence, static_argnames=("output_sizes",))):
        sequence = run(start, delta, output_sizes=(4,))
        assert sequence.dtype == dtype
        known = [np.array(int(x) % 256 if dtype == "uint8" else x).astype(jnp.dtype(dtype))[()] for x in (start, delta)]
        assert_same_bits(sequence, oracles.fill_value_sequence(*known, sizes=(4,), dtype=jnp.dtype(dtype)))


def test_a_whole_number_of_any_type_fits() -> None:
    assert dmljax.fill_value_sequence(np.float32(3), 1, output_sizes=(2,), dtype="int8").tolist() == [3, 4]


@FULL
def test_arrays_of_two_types_make_no_sequence() -> None:
    with refuses("fill_value_sequence: value_delta must be of int8", InvalidType):
        dmljax.fill_value_sequence(jnp.int8(3), jnp.int32(3), output_sizes=(2,))


def test_a_sequence_does_not_drift_and_starts_exactly_with_an_infinite_step() -> None:
    sequence = dmljax.fill_value_sequence(0.0, 0.1, output_sizes=(1001,), dtype="float32")
    assert float(sequence[1000]) == 100
    assert dmljax.fill_value_sequence(1.0, np.inf, output_sizes=(3,)).tolist() == [1, np.inf, np.inf]
    assert dmljax.fill_value_sequence(-np.inf, np.inf, output_sizes=(3,)).tolist()[0] == -np.inf
    zeros = dmljax.fill_value_sequence(-0.0, 0.0, output_sizes=(3,), dtype="float16")
    assert_same_bits(zeros, np.array([-0.0, 0, 0], np.float16))


# RANDOM_GENERATOR

ALL_ONES = 2**32 - 1
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
# The rows "philox4x32 10" of Random123's tests/kat_vectors: counter and key, and the block.
KNOWN_ANSWERS: dict[tuple[int, ...], tuple[int, ...]] = {
    (0, 0, 0, 0, 0, 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    (ALL_ONES,) * 6: (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    PI: (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
}


def state_of(*words: int) -> Any:
    return np.array(words, np.uint32)


def generated(state: Any, *sizes: int) -> Any:
    return dmljax.random_generator(state, output_sizes=sizes)


@SAMPLED
@pytest.mark.parametrize("words", KNOWN_ANSWERS, ids=lambda words: f"{words[0]:08x}")
@pytest.mark.usefixtures("lowering")
def test_a_block_is_random123s_known_answer_in_its_order(words: tuple[int, ...]) -> None:
    assert_same_bits(generated(state_of(*words), 4).output, state_of(*KNOWN_ANSWERS[words]))
    assert oracles.philox4x32(sum(word << 32 * i for i, word in enumerate(words[:4])), words[4:]) == [  # type: ignore[arg-type]
        *KNOWN_ANSWERS[words]
    ]


@SAMPLED
@pytest.mark.parametrize("full", [0, 1, 2, 3, 4])
@GATE
def test_the_counter_carries_from_word_to_word(full: int) -> None:
    words = [ALL_ONES - 2, *[ALL_ONES] * 3][:full] + [5] * (4 - full)
    state = state_of(*words, *PI[:2])
    for sizes in ((3, 7), (8,), (9,), (13,)):  # the counter is full after 12 words
        expected, after = oracles.random_generator(state, sizes=sizes)
        output, next_state = generated(state, *sizes)
        assert_same_bits(output, expected)
        assert_same_bits(next_state, after)


def test_the_pages_example_of_a_counter_counts_forwards() -> None:
    # The page writes the highest word first, and subtracts the 324,855 blocks.
    state = state_of(0x74746C65, 0x6D536561, 0x6F46726F, 0x48656C6C, 0, 0)
    after = jax.jit(lambda state: generated(state, 3, 3, 20, 7219).state)(state)
    assert_same_bits(after, state_of(0x74746C65 + 324_855, *map(int, state[1:])))
    assert 0x74746C65 - 324_855 == 0x746F776E, "the page's example"


@SAMPLED
@pytest.mark.parametrize("sizes", [(), (0,), (1,), (6,), (2, 0, 3), (2, 3, 5), (61, 3), (1, 130)], ids=str)
def test_fewer_words_are_a_prefix_of_the_same_sequence(sizes: tuple[int, ...]) -> None:
    state = state_of(*PI)
    output, after = generated(state, *sizes)
    expected, expected_after = oracles.random_generator(state, sizes=sizes)
    assert_same_bits(output, expected)
    assert_same_bits(after, expected_after)


@GATE
def test_the_next_state_continues_after_the_last_block_started() -> None:
    whole = generated(state_of(*PI), 24).output
    first, state = generated(state_of(*PI), 8)
    second, state = generated(state, 3)  # the fourth word of this block is lost
    third, _ = generated(state, 4, 3)
    assert_same_bits(np.concatenate([first, second, np.ravel(third)]), np.delete(whole, 11))


@FULL
@pytest.mark.parametrize("sizes", [(4096,), (5000,), (4099,), (1367, 3), (2, 2049)], ids=str)
def test_many_words_on_one_device_are_the_same(sizes: tuple[int, ...]) -> None:
    state = state_of(ALL_ONES - 500, ALL_ONES, 3, 4, 5, 6)
    assert_same_bits(generated(state, *sizes).output, oracles.random_generator(state, sizes=sizes)[0])


@GATE
def test_random_words_are_the_same_with_64_bit_types() -> None:
    state = state_of(ALL_ONES, *PI[:5])
    map_twice = jax.vmap(jax.vmap(lambda state: generated(state, 5)))
    outputs = []
    for is_enabled in (False, True):
        with jax.enable_x64(is_enabled):
            outputs.append(jax.device_get((generated(state, 5), map_twice(np.tile(state, (2, 3, 1))))))
    assert_same_trees(*outputs)
    assert_same_bits(outputs[0][0].output, oracles.random_generator(state, sizes=(5,))[0])


@FULL
def test_the_pages_recipes_equal_jax_random() -> None:
    page = (Path(__file__).parents[3] / "notebooks" / "operators" / "random_generator.md").read_text()
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": jax.lax, "dmljax": dmljax}
    with jax.numpy_dtype_promotion("standard"):
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(block, names)
    key, bits = names["key"], names["bits"]
    assert_same_bits(jax.random.bits(key, bits.shape, "uint32"), bits)
    assert_same_bits(jax.random.uniform(key, bits.shape, "float32"), names["as_jax"])
    for recipe in ("uniform", "as_jax"):
        assert 0 <= names[recipe].min() < 0.01
        assert 0.99 < names[recipe].max() < 1
    np.testing.assert_allclose(names["uniform"], names["as_jax"], atol=2.0**-23)
    assert set(np.unique(names["dice"])) == {1, 2, 3, 4, 5, 6}
    assert abs(float(names["normal"].mean())) < 0.05
    assert abs(float(names["normal"].std()) - 1) < 0.05
    drawn = [
        jax.random.bits(each, dtype="uint32") for each in (key, *jax.random.split(key, 3), jax.random.fold_in(key, 1))
    ]
    assert len({int(word) for word in drawn}) == 5


def test_the_state_of_a_generator_desc_may_be_left_out() -> None:
    state = state_of(*PI).reshape(1, 1, 1, 6)
    result: Any = directml.lower(GENERATOR)(state)
    assert result.output_state is None
    assert_same_bits(result.output, oracles.random_generator(state, sizes=(1, 2, 1, 5))[0])


def test_a_generators_state_and_output_may_have_different_ranks() -> None:
    state, output = tensor("UINT32", 6), tensor("UINT32", 2, 1, 3)
    desc = replace(GENERATOR, input_state=state, output=output, output_state=state)
    assert directml.find_minimum_feature_level(desc) is directml.FeatureLevel.FL_4_0
    for actual, expected in zip(
        directml.lower(desc)(state_of(*PI)), oracles.random_generator(state_of(*PI), sizes=(2, 1, 3)), strict=True
    ):
        assert_same_bits(actual, expected)


def test_the_type_of_a_generator_belongs_inside_its_desc() -> None:
    spelled = directml.to_json(GENERATOR)
    assert spelled["Desc"]["Type"] == "DML_RANDOM_GENERATOR_TYPE_PHILOX_4X32_10"
    spelled["Desc"]["Type"] = "PHILOX_4X32_10"
    assert directml.from_json(spelled) == GENERATOR
    with refuses("Type: unknown operator", directml.Unsupported):
        directml.from_json({"type": spelled["Type"], **spelled["Desc"]})


@SAMPLED
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_platform_fills_the_sequence_of_the_formula(dtype: Any, lowering: str) -> None:
    filled = dmljax.fill_value_sequence(2.0, -0.375, output_sizes=(3, 5), dtype=dtype)
    assert_same_bits(filled, (2 - 0.375 * np.arange(15).reshape(3, 5)).astype(dtype))
    first = dmljax.fill_value_sequence(-0.0, np.inf, output_sizes=(2,), dtype=dtype)
    assert_same_bits(first, np.array([-0.0, np.inf]).astype(dtype))
    both = jax.vmap(lambda d: dmljax.fill_value_sequence(1.0, d, output_sizes=(3,), dtype=dtype))(
        np.arange(2).astype(dtype)
    )
    assert np.asarray(both, np.float64).tolist() == [[1, 1, 1], [1, 2, 3]]
