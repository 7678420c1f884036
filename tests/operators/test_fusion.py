"""The compiled computations keep nothing in memory unnecessarily."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from helpers import GATE, SAMPLED, few_of

import dmljax
from dmljax import directml

SIZE = 2048
DTYPES = pytest.mark.parametrize("dtype", few_of(["float32", "float16", "bfloat16", "int32"], "float32"))

Call = Callable[..., Any]


def arrays(dtype: str) -> dict[str, jax.ShapeDtypeStruct]:
    """Matrices of `SIZE` rows and columns, and inputs that pick their elements."""
    matrix = jax.ShapeDtypeStruct((SIZE, SIZE), dtype)
    return {
        "matrix": matrix,
        "other": matrix,
        "indices": jax.ShapeDtypeStruct((SIZE, 1), "int32"),
        "values": jax.ShapeDtypeStruct((2,), dtype),
    }


def memory(function: Call, dtype: str) -> Any:
    """The memory that a function of some of `arrays` needs."""
    return compiled(function, dtype).memory_analysis()


def compiled(function: Call, dtype: str) -> Any:
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    return jax.jit(function).lower(*(arrays(dtype)[name] for name in parameters)).compile()


def one_hot(indices: Any, values: Any) -> Any:
    return dmljax.one_hot(indices, values, axis=1, depth=SIZE)


def band(matrix: Any) -> Any:
    return dmljax.diagonal_matrix1(matrix, 3, diagonal_fill_begin=-1, diagonal_fill_end=5)


def generated_band(dtype: Any) -> Any:
    return dmljax.diagonal_matrix1(None, 3, diagonal_fill_begin=5, output_sizes=(SIZE, SIZE), dtype=dtype)


CONSUMED: dict[str, Call] = {
    "one_hot": lambda matrix, indices, values: matrix + one_hot(indices, values),
    "diagonal_matrix1": lambda matrix, other: other + band(matrix),
    "diagonal_matrix1 without an input": lambda matrix: matrix + generated_band(matrix.dtype),
    "activation_hardmax": lambda matrix, other: other + dmljax.activation_hardmax(matrix),
}


@SAMPLED
@DTYPES
@pytest.mark.parametrize("name", CONSUMED)
def test_an_elementwise_consumer_never_sees_the_result_in_memory(name: str, dtype: str) -> None:
    needed = memory(CONSUMED[name], dtype)
    assert needed.temp_size_in_bytes < 0.01 * needed.output_size_in_bytes


# XLA on CPU first writes summands to memory, whoever wrote the sum.
REDUCED: dict[str, tuple[Call, Call]] = {
    "one_hot": (
        lambda indices, values: jnp.sum(one_hot(indices, values), axis=0),
        lambda indices, values: jnp.sum(jax.nn.one_hot(indices[:, 0], SIZE, dtype=values.dtype), axis=0),
    ),
    "diagonal_matrix1": (
        lambda matrix: jnp.sum(band(matrix), axis=0),
        lambda matrix: jnp.sum(jnp.tril(matrix), axis=0),
    ),
    "activation_hardmax": (
        lambda matrix: jnp.sum(dmljax.activation_hardmax(matrix), axis=0),
        lambda matrix: jnp.sum(jax.nn.one_hot(jnp.argmax(matrix, axis=-1), SIZE, dtype=matrix.dtype), axis=0),
    ),
}


@DTYPES
@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.gate(but=1)
def test_a_sum_needs_no_more_memory_than_the_jax_idiom(name: str, dtype: str) -> None:
    ours, idiom = (memory(function, dtype).temp_size_in_bytes for function in REDUCED[name])
    assert ours <= 1.01 * idiom


LARGE: dict[str, Call] = {
    "one_hot": one_hot,
    "diagonal_matrix1": band,
    "activation_hardmax": lambda matrix: dmljax.activation_hardmax(matrix),
    "activation_hardmax1": lambda matrix: dmljax.activation_hardmax1(matrix, axes=1),
    "argmax": lambda matrix: dmljax.argmax(matrix, axes=1),
    "argmin": lambda matrix: dmljax.argmin(matrix, axes=1, axis_direction=directml.AxisDirection.DECREASING),
    "gather_nd1": lambda matrix, indices: dmljax.gather_nd1(matrix, indices),
}


@SAMPLED
@DTYPES
@pytest.mark.parametrize("name", LARGE)
def test_an_operator_needs_no_memory_besides_its_result(name: str, dtype: str) -> None:
    size = SIZE * SIZE * jnp.dtype(dtype).itemsize
    assert memory(LARGE[name], dtype).temp_size_in_bytes < 0.02 * size


@DTYPES
@pytest.mark.parametrize("name", ["one_hot", "diagonal_matrix1", "gather_nd1"])
def test_a_selection_is_one_loop(name: str, dtype: str) -> None:
    assert operations(compiled(LARGE[name], dtype))["fusion"] == 1


@DTYPES
@pytest.mark.parametrize("name", ["activation_hardmax", "argmax"])
def test_rows_are_reduced_where_they_are_computed(name: str, dtype: str) -> None:
    # XLA on CPU first turns a long reduction into a reduce-window, which does not fuse with its operand.
    counted = operations(compiled(LARGE[name], dtype))
    assert counted["reduce-window"] == 0
    assert counted["sort"] == counted["scatter"] == counted["while"] == 0
    assert counted["reduce"] <= 6


@DTYPES
@GATE
def test_nonzero_sorts_nothing_and_scatters_only_words(dtype: str) -> None:
    computation = compiled(lambda matrix: dmljax.nonzero_coordinates(matrix), dtype)
    needed = computation.memory_analysis()
    assert needed.temp_size_in_bytes < 2 * needed.output_size_in_bytes
    counted = operations(computation)
    assert not counted.keys() & {"sort", "reduce-window", "while", "conditional"}
    scattered = re.findall(r"= u32\[(\d+)\]\S* scatter\(", computation.as_text())
    assert [int(size) for size in scattered] == [SIZE * SIZE // 32 + 1] * 2


def operations(computation: Any) -> Counter[str]:
    """How often each operation occurs in a compiled computation."""
    return Counter(re.findall(r" ([a-z-]+)\(", computation.as_text()))


@DTYPES
def test_a_generated_matrix_has_no_argument_and_no_constant_of_its_size(dtype: str) -> None:
    computation = compiled(lambda: generated_band(dtype), dtype)
    needed = computation.memory_analysis()
    assert needed.argument_size_in_bytes == 0
    assert needed.temp_size_in_bytes < 0.01 * needed.output_size_in_bytes
    constants = re.findall(r"= \w+\[([\d,]*)\]\S* constant\(", computation.as_text())
    assert all(len(sizes) <= 1 for sizes in constants)
