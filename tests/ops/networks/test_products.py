"""GEMM, MATRIX_MULTIPLY_INTEGER and INTEGER_TO_FLOAT, and QUANTIZED_LINEAR_MATRIX_MULTIPLY."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cases_products as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ones
from cases_products import DESCS, GEMM
from helpers import (
    FLOATS,
    FULL,
    SAMPLED,
    assert_same_bits,
    f32,
    few_of,
    few_types,
    needs_x64,
    random_array,
    refuses,
    tensor,
)
from hypothesis import given, settings, strategies as st
from jax.test_util import check_grads

import dmljax
from dmljax import directml
from dmljax.directml import FeatureLevel, InvalidDesc, MatrixTransform, Unsupported
from dmljax.types import widened

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(5)
RELU, SOFTMAX = directml.ActivationReluDesc(), directml.ActivationSoftmaxDesc()


def normal(dtype: Any, *shape: int) -> Any:
    return RNG.normal(size=shape).astype(dtype)


def whole(dtype: Any, *shape: int) -> Any:
    """Any integers of the type, including its extremes."""
    limits = np.iinfo(dtype)
    numbers = RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(RNG.random(shape) < 0.2, RNG.choice([limits.min, limits.max], shape), numbers).astype(dtype)


# GEMM


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_gemm_is_as_accurate_as_its_sums_allow(dtype: Any) -> None:
    a, b, c = normal(dtype, 2, 33, 700), normal(dtype, 700, 17), normal(dtype, 17)
    result = np.asarray(dmljax.gemm(a, b, c, 0.3, -1.7)).astype(np.float64)
    alpha, beta = (float(np.float32(x)) if widened(dtype) == np.float32 else x for x in (0.3, -1.7))
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    exact = alpha * np.matmul(a, b) + beta * c
    magnitude = abs(alpha) * np.matmul(abs(a), abs(b)) + abs(beta * c)
    # Allows one rounding to the type and a few in float32, although the theoretical bound is one per summand.
    unit = float(jnp.finfo(widened(dtype)).eps)
    error = np.abs(result - exact) - float(jnp.finfo(dtype).eps) / 2 * np.abs(exact) * (dtype.itemsize < 4)
    assert np.max(error / (unit * magnitude)) < 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.gate(but=1)
def test_16_bit_sums_are_rounded_once(call: Any, dtype: str) -> None:
    # 2048 ones and 3 halves: float16 would stop at 2048, and lose each half.
    kind = jnp.dtype(dtype)
    a, b = np.ones((1, 2051), kind), np.concatenate([np.ones(2048), np.full(3, 0.5)]).astype(kind)[:, None]
    expected = np.array([[2049.5]], np.float32).astype(kind)
    assert_same_bits(call(dmljax.gemm, a, b), expected)
    # alpha times the product plus beta times C is rounded once: 2049.5 is not rounded before it is doubled.
    summand = {"float16": 2, "bfloat16": 14}[dtype]
    result = call(dmljax.gemm, a, b, np.full((1, 1), summand, kind), 2.0)
    assert_same_bits(result, np.array([[4099 + summand]], np.float32).astype(kind))


def test_intermediate_float16_overflow_does_not_reach_the_result(call: Any) -> None:
    a, b = np.full((1, 4), 300, np.float16), np.array([[300], [300], [-300], [-299]], np.float16)
    assert_same_bits(call(dmljax.gemm, a, b, None, 0.5), np.array([[150]], np.float16))


@SAMPLED
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_either_matrix_may_be_transposed(call: Any, transpose_a: bool, transpose_b: bool) -> None:
    a, b = RNG.integers(-9, 9, (1, 2, 3, 4)).astype(np.float32), RNG.integers(-9, 9, (1, 2, 4, 5)).astype(np.float32)
    x, y = a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b
    assert_same_bits(call(dmljax.gemm, x, y, transpose_a=transpose_a, transpose_b=transpose_b), np.matmul(a, b))
    tensors: dict[str, Any] = {"a": f32(*x.shape), "b": f32(*y.shape), "output": f32(1, 2, 3, 5)}
    desc = replace(GEMM, **tensors, trans_a=MatrixTransform(transpose_a), trans_b=MatrixTransform(transpose_b))
    assert_same_bits(directml.lower(desc)(x, y), np.matmul(a, b))


@FULL
@pytest.mark.parametrize("shape", [(), (5,), (3, 1), (2, 1, 1, 1)])
def test_batches_and_c_broadcast(call: Any, shape: Any) -> None:
    a, b = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4), np.arange(40, dtype=np.float32).reshape(2, 4, 5)
    c = np.ones(shape, np.float32)
    assert_same_bits(call(dmljax.gemm, a, b, c, 1.0, 2.0), np.matmul(a, b) + np.float32(2) * c)


def test_a_python_number_is_a_c_of_the_type_of_the_matrices(call: Any) -> None:
    a = np.ones((1, 2), np.float16)
    assert_same_bits(call(lambda a: dmljax.gemm(a, a.mT, 0.5), jnp.asarray(a)), np.array([[2.5]], np.float16))
    assert_same_bits(call(lambda a: dmljax.gemm(a, a.mT, 3), jnp.asarray(a)), np.array([[5]], np.float16))


def test_beta_is_ignored_without_c_and_zero_times_nan_is_nan(call: Any) -> None:
    a = np.ones((1, 1), np.float32)
    assert call(dmljax.gemm, a, a, None, 1.0, NAN).tolist() == [[1]]
    for c in (NAN, INF):  # BLAS ignores C if beta is 0; the page's formula does not
        assert math.isnan(call(dmljax.gemm, a, a, np.full((1, 1), c, np.float32), 1.0, 0.0)[0, 0])
    assert math.isnan(call(dmljax.gemm, np.full((1, 1), INF, np.float32), a, None, 0.0)[0, 0])


def test_infinities_and_nan_reach_only_their_rows_and_columns(call: Any) -> None:
    a, b = np.ones((3, 2), np.float32), np.ones((2, 3), np.float32)
    a[0, 1], b[0, 2] = INF, NAN
    np.testing.assert_array_equal(call(dmljax.gemm, a, b), [[INF, INF, NAN], [2, 2, NAN], [2, 2, NAN]])
    a[0, 0] = -INF
    assert np.isnan(np.asarray(call(dmljax.gemm, a, b))[0]).all()


def test_a_sum_of_nothing_is_zero(call: Any) -> None:
    a, b, c = np.ones((2, 0), np.float32), np.ones((0, 3), np.float32), np.ones((2, 3), np.float32)
    assert_same_bits(call(dmljax.gemm, a, b), np.zeros((2, 3), np.float32))
    assert_same_bits(call(dmljax.gemm, a, b, c), c)
    assert call(dmljax.gemm, b, c.T).shape == (0, 2)
    whole = call(dmljax.matrix_multiply_integer, a.astype(np.uint8), b.astype(np.int8), np.array(7, np.uint8))
    assert_same_bits(whole, np.zeros((2, 3), np.int32))


@FULL
def test_a_fused_activation_applies_to_the_rounded_result(call: Any) -> None:
    a, b, c = (normal(np.float16, 4, 4) for _ in range(3))
    sums = dmljax.gemm(a, b, c, 1.5)
    columns = directml.ActivationSoftmax1Desc(axes=(0,))
    clip = directml.ElementWiseClipDesc(min=-0.5, max=0.5, scale_bias=directml.ScaleBias(2.0, 0.25))
    for fused, level, expected in (
        (RELU, "1_0", dmljax.activation_relu(sums)),
        (SOFTMAX, "6_1", dmljax.activation_softmax(sums)),
        (columns, "6_1", dmljax.activation_softmax1(sums, axes=0)),
        (clip, "6_0", dmljax.element_wise_clip(sums, -0.5, 0.5, directml.ScaleBias(2.0, 0.25))),
    ):
        assert_same_bits(call(dmljax.gemm, a, b, c, 1.5, fused_activation=fused), expected)
        desc = replace(GEMM, fused_activation=fused)
        assert directml.find_minimum_feature_level(desc) is FeatureLevel[f"FL_{level}"]
        assert directml.from_json(directml.to_json(desc)) == desc


def test_gemm_is_differentiable_in_all_of_its_floats() -> None:
    a, b, c = normal(np.float32, 2, 3, 4), normal(np.float32, 5, 4), normal(np.float32, 5)

    def function(*floats: Any) -> Any:
        return dmljax.gemm(*floats, transpose_b=True)

    floats = (a, b, c, np.float32(0.7), np.float32(-1.3))
    check_grads(function, floats, order=1, atol=2e-2, rtol=2e-2)
    cotangent = normal(np.float32, 2, 3, 5)
    _, pull = jax.vjp(function, *floats)
    of_a, of_b, of_c, of_alpha, of_beta = (np.asarray(x, np.float64) for x in pull(cotangent))
    wide = cotangent.astype(np.float64)
    np.testing.assert_allclose(of_a, 0.7 * wide @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_b, 0.7 * np.einsum("imn,imk->nk", wide, a), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_c, -1.3 * wide.sum((0, 1)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_alpha, (wide * (a @ b.T)).sum(), rtol=1e-5)
    np.testing.assert_allclose(of_beta, (wide * c).sum(), rtol=1e-5)


@FULL
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_gradient_of_16_bits_is_added_up_in_float32(dtype: str) -> None:
    a, b = jnp.ones((1, 1), dtype), jnp.ones((1, 3000), dtype)
    of_a = jax.grad(lambda a: dmljax.gemm(a, b).astype(np.float32).sum())(a)
    assert_same_bits(of_a, jnp.full((1, 1), 3000, dtype))


@pytest.mark.parametrize("operator", ["ActivationSoftmax", "ActivationSoftmax1", "ElementWiseClip"])
def test_a_standalone_fusable_operator_needs_its_tensors(operator: str) -> None:
    attributes: dict[str, Any] = {"ActivationSoftmax1": {"axes": (0,)}, "ElementWiseClip": {"min": 0, "max": 1}}
    desc = getattr(directml, f"{operator}Desc")(**attributes.get(operator, {}))
    with pytest.raises(InvalidDesc, match="InputTensor must be given, unless the activation is fused; got none"):
        directml.validate(desc)


# MATRIX_MULTIPLY_INTEGER

BYTES = [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]


ZERO_POINTS: dict[str, tuple[tuple[int, ...] | None, tuple[int, ...] | None]] = {
    "none": (None, None),
    "one of a": ((), None),
    "one of b": (None, (1,)),
    "one of each": ((1, 1), ()),
    "rows": ((3,), None),
    "columns": (None, (5,)),
    "rows and columns": ((3, 1), (1, 5)),
    "of each batch": ((2, 3, 1), (2, 1, 1)),
}


@FULL
@pytest.mark.parametrize("shapes", ZERO_POINTS)
def test_zero_points_apply_to_all_elements_or_to_rows_or_to_columns(call: Any, shapes: str) -> None:
    for a_type, b_type in BYTES:
        a, b = whole(a_type, 2, 3, 4), whole(b_type, 2, 4, 5)
        zeros = [
            None if shape is None else whole(dtype, *shape)
            for dtype, shape in zip((a_type, b_type), ZERO_POINTS[shapes], strict=True)
        ]
        a_zero, b_zero = zeros
        of_rows = a_zero[:, None] if a_zero is not None and a_zero.shape == (3,) else a_zero
        expected = oracles.wrapped(oracles.whole_product(a, b, of_rows, b_zero))
        assert_same_bits(call(dmljax.matrix_multiply_integer, a, b, a_zero, b_zero), expected)


@SAMPLED
@pytest.mark.parametrize("types", BYTES, ids="-".join)
def test_bytes_are_multiplied_exactly(call: Any, types: tuple[str, str]) -> None:
    a_zero, b_zero = (np.array([7, 200, 31], kind) for kind in (np.uint8, np.uint8))
    a_zero, b_zero = a_zero.view(types[0]), b_zero[1].view(types[1])
    for a_shape, b_shape in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (2, 4, 5)), ((3, 0), (0, 5))):
        a, b = whole(types[0], *a_shape), whole(types[1], *b_shape)
        expected = oracles.wrapped(oracles.whole_product(a, b, a_zero[:, None], b_zero))
        assert_same_bits(call(dmljax.matrix_multiply_integer, a, b, a_zero, b_zero), expected)


@SAMPLED
@pytest.mark.parametrize(("axes", "count"), [((1, None), 2), ((None, 0), 1), ((2, 1), 2)])
def test_bytes_are_multiplied_under_vmap(axes: tuple[int | None, int | None], count: int) -> None:
    a, b, zero = whole("uint8", count, 3, 4), whole("int8", count, 4, 5), np.array(9, np.uint8)
    expected = np.stack(
        [
            oracles.whole_product(a[0 if axes[0] is None else i], b[0 if axes[1] is None else i], zero)
            for i in range(count)
        ]
    )
    given = (x[0] if axis is None else np.moveaxis(x, 0, axis) for x, axis in zip((a, b), axes, strict=True))
    multiply = jax.vmap(lambda a, b: dmljax.matrix_multiply_integer(a, b, zero), axes)
    assert_same_bits(multiply(*given), oracles.wrapped(expected))


@FULL
def test_a_sum_beyond_int32_wraps_around(call: Any) -> None:
    size = 2**17  # times 128 squared is one more than int32 holds
    a, b = np.full((1, size), -128, np.int8), np.full((size, 1), -128, np.int8)
    assert call(dmljax.matrix_multiply_integer, a, b).tolist() == [[-(2**31)]]
    assert call(dmljax.matrix_multiply_integer, a[:, 1:], b[1:]).tolist() == [[2**31 - 2**14]]
    ones = np.full((1, size), 255, np.uint8)
    zero = np.array(0, np.uint8)
    expected = oracles.wrapped(np.array([[255 * 255 * size]], object))
    assert_same_bits(call(dmljax.matrix_multiply_integer, ones, ones.T, zero, zero), expected)


def test_batches_of_integers_broadcast(call: Any) -> None:
    a, b = whole("uint8", 2, 1, 3, 4), whole("int8", 4, 5)
    zero = whole("uint8", 2, 1, 1, 1)
    expected = oracles.wrapped(oracles.whole_product(a, b, zero))
    assert_same_bits(call(dmljax.matrix_multiply_integer, a, b, zero), expected)
    expected = oracles.wrapped(oracles.whole_product(b[:, :4], a.swapaxes(-1, -2), None, zero))
    assert_same_bits(call(dmljax.matrix_multiply_integer, b[:, :4], a.swapaxes(-1, -2), None, zero), expected)


# MATRIX_MULTIPLY_INTEGER_TO_FLOAT

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]


def scales(*shape: int) -> Any:
    """Scales of any magnitude whose products are normal numbers."""
    return (RNG.uniform(0.5, 1, shape) * 2.0 ** RNG.integers(-20, 20, shape) * RNG.choice([1, 1, -1], shape)).astype(
        np.float32
    )


@pytest.mark.parametrize("dtype", few_of(INTEGERS, "int8", "uint32"))
@pytest.mark.gate(but=1)
def test_sums_of_bytes_are_exact_and_wider_ones_as_float32(call: Any, dtype: str) -> None:
    a, b = whole(dtype, 2, 3, 40), whole(dtype, 2, 40, 5)
    of_all, of_each = (None, None, scales(), scales(1)), (whole(dtype, 3, 1), whole(dtype, 5), scales(3, 1), scales(5))
    for a_zero, b_zero, a_scale, b_scale in (of_all, of_each):
        expected = oracles.dequantized_product(a, b, a_scale, b_scale, a_zero, b_zero)
        result = call(dmljax.matrix_multiply_integer_to_float, a, b, a_scale, b_scale, a_zero, b_zero)
        if a.itemsize == 1:
            assert_same_bits(result, expected)
        else:
            zeros = ((x, np.zeros((), x.dtype) if zero is None else zero) for x, zero in ((a, a_zero), (b, b_zero)))
            magnitudes = [np.abs(x.astype(float) - zero) for x, zero in zeros]
            bound = 40 * 2.0**-24 * np.matmul(*magnitudes) * np.abs(np.float64(a_scale) * b_scale)
            assert np.all(np.abs(np.float64(result) - expected) <= bound)


def test_differences_that_the_type_cannot_hold_do_not_wrap(call: Any) -> None:
    one, (low, high) = np.float32(1), (-(2**31), 2**31 - 1)
    a, zero = np.array([[low], [high]], np.int32), np.array([high, low], np.int32)
    result = call(dmljax.matrix_multiply_integer_to_float, a, np.array([[1]], np.int32), one, one, zero)
    assert result.tolist() == [[-(2.0**32)], [2.0**32]]


@FULL
def test_sums_that_int32_cannot_hold_do_not_wrap(call: Any) -> None:
    size = 40_000
    a = np.full((1, size), 255, np.uint8)
    a[0, 0] = 254
    for zeros in ((), (np.array(0, np.uint8),)):
        result = call(dmljax.matrix_multiply_integer_to_float, a, a.T, np.float32(1), np.float32(1), *zeros)
        assert_same_bits(result, np.array([[255 * 255 * (size - 1) + 254 * 254]], np.float32))
    size = 2**15
    full, zero = np.full((1, size), 255, np.uint8), np.array(0, np.uint8)
    result = call(dmljax.matrix_multiply_integer_to_float, full, full.T, np.float32(1), np.float32(1), zero, zero)
    assert_same_bits(result, np.array([[255 * 255 * size]], np.float32))


@SAMPLED
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", pytest.param("float64", marks=needs_x64)])
def test_the_result_has_the_type_of_the_scales(call: Any, dtype: str) -> None:
    a, b = np.array([[3, 4]], np.int8), np.array([[5], [6]], np.int8)
    kind = jnp.dtype(dtype)
    scale, bias = np.array(0.5, kind), np.array([[0.25]], kind)
    result = call(dmljax.matrix_multiply_integer_to_float, a, b, scale, scale, None, None, bias)
    assert_same_bits(result, np.array([[10]], kind))
    assert dmljax.matrix_multiply_integer_to_float(a, b, 0.5, 0.5).dtype == np.float32


def test_16_bit_floats_are_rounded_after_the_bias(call: Any) -> None:
    # float16 has no 2047 * 1.5 = 3070.5, and would round it to 3070; with the bias it is 3071.
    a, b = np.array([[2047]], np.int16), np.array([[1]], np.int16)
    scale, bias = np.array(1.5, np.float16), np.array([[0.5]], np.float16)
    result = call(dmljax.matrix_multiply_integer_to_float, a, b, scale, np.array(1, np.float16), None, None, bias)
    assert_same_bits(result, np.array([[3071 + 1]], np.float32).astype(np.float16))


def test_an_open_summed_dimension_needs_a_bound() -> None:
    (size,) = jax.export.symbolic_shape("size")
    shapes = [jax.ShapeDtypeStruct((2, size), np.int8), jax.ShapeDtypeStruct((size, 2), np.int8)]
    with refuses("a.shape[1]: open sizes do not decide whether size <= 32768 (", Unsupported):
        jax.export.export(jax.jit(lambda a, b: dmljax.matrix_multiply_integer_to_float(a, b, 1.0, 1.0)))(*shapes)


# QUANTIZED_LINEAR_MATRIX_MULTIPLY


@FULL
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_quantized_matrix_products_follow_the_pages_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def scale(*shape: int) -> Any:
        # Powers of two produce halves among the quotients.
        exponent = rng.integers(-7, -2, shape)
        return np.where(rng.random(shape) < 0.7, 2.0**exponent, rng.uniform(0.01, 0.2, shape)).astype(np.float32)

    for (a_type, b_type), output in zip(BYTES, ("int8", "uint8", "uint8", "int8"), strict=True):
        given: dict[str, Any] = {
            "a": random_array(rng, a_type, (3, 7)),
            "a_scale": scale(3, 1),
            "a_zero_point": random_array(rng, a_type, (3, 1)),
            "b": random_array(rng, b_type, (7, 5)),
            "b_scale": scale(5),
            "b_zero_point": random_array(rng, b_type, (5,)),
            "output_scale": scale(3, 1) * 64,
            "output_zero_point": random_array(rng, output, (3, 1)),
        }
        result = dmljax.quantized_linear_matrix_multiply(**given)
        assert_same_bits(result, oracles.quantized_product(dtype=output, **given))


def test_rounding_half_to_even_precedes_adding_the_zero_point(call: Any) -> None:
    a, one = np.array([[1], [3], [5], [-1], [-3]], np.int8), np.array([[1]], np.int8)
    for zero in (7, 8):
        result = call(
            dmljax.quantized_linear_matrix_multiply,
            *(a, np.float32(0.5), None, one, np.float32(1), None, np.float32(1), np.array(zero, np.int8)),
        )
        assert result.ravel().tolist() == [zero + step for step in (0, 2, 2, 0, -2)]


@FULL
def test_out_of_range_results_saturate(call: Any) -> None:
    a, b, one = np.array([[127], [-128], [1]], np.int8), np.array([[127]], np.int8), np.float32(1)
    arguments: Any = [a, one, None, b, one, None, one]
    for output, limits in (
        ("int8", (127, -128, 127)),
        ("uint8", (255, 0, 127)),
        ("int16", (127 * 127, -128 * 127, 127)),
    ):
        assert call(dmljax.quantized_linear_matrix_multiply, *arguments, dtype=output).ravel().tolist() == list(limits)
    assert dmljax.quantized_linear_matrix_multiply(a, one, None, b.astype(np.uint8), one, None, one).dtype == np.int8
    assert dmljax.quantized_linear_matrix_multiply(a, one, None, b, one, None, one, np.uint8(3)).dtype == np.uint8


def test_each_row_of_the_output_has_its_own_scale_and_zero_point(call: Any) -> None:
    a, b, one = np.array([[8], [8]], np.int8), np.array([[3]], np.int8), np.float32(1)
    output_scale, zero = np.array([1, 4], np.float32), np.array([-1, 2], np.int8)
    result = call(dmljax.quantized_linear_matrix_multiply, a, one, None, b, one, None, output_scale, zero)
    assert result.tolist() == [[23], [8]]


def test_long_sums_of_quantized_matrices_do_not_wrap(call: Any) -> None:
    size = 2**17
    a, one = np.full((1, size), -128, np.int8), np.float32(1)
    result = call(dmljax.quantized_linear_matrix_multiply, a, one, None, a.T, one, None, np.float32(2**25), None)
    assert result.tolist() == [[64]]


# Descriptors


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("integer", {"a_zero_point": tensor("INT8", 3), "b_zero_point": tensor("UINT8", 1, 1, 5)}),
        ("integer", {"a_zero_point": tensor("INT8", 1, 1, 3, 1), "b_zero_point": tensor("UINT8", 5)}),
        ("to float", {"a_scale": f32(3), "b_scale": f32(5)}),
        ("quantized", {"output_scale": f32(3), "output_zero_point": tensor("UINT8", 3)}),
    ],
)
def test_scales_and_zero_points_may_have_a_dimension_of_their_own(name: str, change: dict[str, Any]) -> None:
    directml.validate(replace(DESCS[name], **change))


ORACLES: dict[str, Callable[..., Any]] = {
    "integer": lambda desc, **given: oracles.wrapped(oracles.whole_product(**given)),
    "to float": lambda desc, **given: oracles.dequantized_product(**given),
    "quantized": lambda desc, **given: oracles.quantized_product(**{"output_zero_point": None} | given, dtype=np.uint8),
}
OF_ROWS = ("a_scale", "a_zero_point", "output_scale", "output_zero_point")


@SAMPLED
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("seed", range(20))
def test_scales_and_zero_points_may_have_other_ranks_than_the_matrices(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    desc, batch = DESCS[name], (1, 1)[: seed % 3]
    tensors = {field: replace(x, sizes=(*batch, *x.sizes)) for field, x in desc.tensors().items() if len(x.sizes) == 2}
    types = {one: tensors[one].data_type for one in ("a", "b", "output")}
    all_ranks = int(rng.integers(1, 5))
    members = [member.field for member in desc.members() if member.field not in (*tensors, "bias")]
    for field in members:
        if field.endswith("zero_point") and rng.random() < 0.3:
            continue
        # Only zero points of MATRIX_MULTIPLY_INTEGER have ranks of their own.
        rank = int(rng.integers(1, 5)) if name == "integer" else all_ranks
        last = (3, 1) if field in OF_ROWS else (5,)
        sizes = (3,) if rank == 1 and field in OF_ROWS else ones(rank, *last)
        data_type = types[field.removesuffix("_zero_point")] if field.endswith("zero_point") else "FLOAT32"
        tensors[field] = directml.TensorDesc(data_type, sizes if rng.random() < 0.7 else (1,) * rank)
    desc = replace(desc, **tensors)
    given: dict[str, Any] = {
        field: np.exp2(rng.integers(-3, 1, x.sizes)).astype(np.float32)
        if field.endswith("scale")
        else random_array(rng, x.dtype, x.sizes)
        for field, x in desc.tensors(is_input=True).items()
    }
    # As NumPy broadcasts them:
    natural = {field: given[field].reshape((-1, 1) if field in OF_ROWS else -1) for field in members if field in given}
    assert_same_bits(directml.lower(desc)(**given), ORACLES[name](desc, **given | natural))


def test_gemm_is_refused_below_the_levels_of_its_ranks_and_activations() -> None:
    with refuses("ATensor.DimensionCount must be 4; got 2"):
        directml.validate(replace(GEMM, a=f32(3, 4), b=f32(4, 5), output=f32(3, 5)), feature_level="3_1")
    with refuses("must be one of DML_FEATURE_LEVEL_6_0; got DML_OPERATOR_ACTIVATION_SOFTMAX of DML_FEATURE_LEVEL_6_1"):
        directml.validate(replace(GEMM, fused_activation=SOFTMAX), feature_level="6_0")
