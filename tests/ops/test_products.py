"""GEMM, MATRIX_MULTIPLY_INTEGER and INTEGER_TO_FLOAT, and QUANTIZED_LINEAR_MATRIX_MULTIPLY."""

import math
import re
from fractions import Fraction
from typing import Any

import cases_products as oracles
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import FLOATS, FULL, assert_same_bits, few_of, few_types, needs_x64, random_array
from hypothesis import given, settings, strategies as st
from jax.test_util import check_grads

import dmljax
from dmljax import directml
from dmljax.directml import DataType, FeatureLevel, InvalidDesc, InvalidType, MatrixTransform, TensorDesc, Unsupported
from dmljax.types import widened

FLOAT32, FLOAT16, INT32, INT8, UINT8 = (
    DataType.FLOAT32,
    DataType.FLOAT16,
    DataType.INT32,
    DataType.INT8,
    DataType.UINT8,
)
INF, NAN = math.inf, math.nan
NONE, TRANSPOSE = MatrixTransform
RNG = np.random.default_rng(5)
RELU = directml.ActivationReluDesc()


def normal(dtype: Any, *shape: int) -> Any:
    return RNG.normal(size=shape).astype(dtype)


def whole(dtype: Any, *shape: int) -> Any:
    """Any integers of the type, its extremes among them."""
    limits = np.iinfo(dtype)
    numbers = RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return np.where(RNG.random(shape) < 0.2, RNG.choice([limits.min, limits.max], shape), numbers).astype(dtype)


# GEMM


def exact_gemm(a: Any, b: Any, c: Any = 0.0, alpha: float = 1, beta: float = 1) -> tuple[Any, Any]:
    """In float64, and the sum of the absolute values of all that is added up."""
    left, right, summand = (np.asarray(x, np.float64) for x in (a, b, c))
    whole = alpha * np.matmul(left, right) + beta * summand
    return whole, abs(alpha) * np.matmul(abs(left), abs(right)) + abs(beta * summand)


@pytest.mark.parametrize("dtype", few_types(FLOATS), ids=str)
def test_gemm_is_as_near_as_its_sums_allow(dtype: Any) -> None:
    rows, inner, columns = 33, 700, 17
    a, b, c = normal(dtype, 2, rows, inner), normal(dtype, inner, columns), normal(dtype, columns)
    result = np.asarray(dmljax.gemm(a, b, c, 0.3, -1.7)).astype(np.float64)
    alpha, beta = (np.float32(x) if widened(dtype) == np.float32 else x for x in (0.3, -1.7))
    exact, magnitude = exact_gemm(a, b, c, float(alpha), float(beta))
    # One rounding to the type, and a few in float32, where one for each of the summands would be the bound.
    unit = float(jnp.finfo(widened(dtype)).eps)
    error = np.abs(result - exact) - float(jnp.finfo(dtype).eps) / 2 * np.abs(exact) * (dtype.itemsize < 4)
    assert np.max(error / (unit * magnitude)) < 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_sums_are_rounded_once(call: Any, dtype: str) -> None:
    # 2048 ones and 3 halves: float16 would stop at 2048, and lose each half.
    kind = jnp.dtype(dtype)
    a, b = np.ones((1, 2051), kind), np.concatenate([np.ones(2048), np.full(3, 0.5)]).astype(kind)[:, None]
    expected = np.array([[2049.5]], np.float32).astype(kind)
    assert_same_bits(call(dmljax.gemm, a, b), expected)
    # The sum of what alpha and beta multiply is rounded once, too: 2049.5 is not rounded before it is doubled.
    summand = {"float16": 2, "bfloat16": 14}[dtype]
    result = call(dmljax.gemm, a, b, np.full((1, 1), summand, kind), 2.0)
    assert_same_bits(result, np.array([[4099 + summand]], np.float32).astype(kind))


def test_float16_products_beyond_its_range_come_back(call: Any) -> None:
    a, b = np.full((1, 4), 300, np.float16), np.array([[300], [300], [-300], [-299]], np.float16)
    assert_same_bits(call(dmljax.gemm, a, b, None, 0.5), np.array([[150]], np.float16))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_either_matrix_may_be_transposed(call: Any, transpose_a: bool, transpose_b: bool) -> None:
    a, b = RNG.integers(-9, 9, (2, 3, 4)).astype(np.float32), RNG.integers(-9, 9, (2, 4, 5)).astype(np.float32)
    given = [x.swapaxes(-1, -2) if is_given else x for x, is_given in ((a, transpose_a), (b, transpose_b))]
    assert_same_bits(call(dmljax.gemm, *given, transpose_a=transpose_a, transpose_b=transpose_b), np.matmul(a, b))


@FULL
def test_batches_and_c_broadcast(call: Any) -> None:
    a, b = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4), np.arange(40, dtype=np.float32).reshape(2, 4, 5)
    for c in (
        np.float32(3),
        np.arange(5, dtype=np.float32),
        np.ones((3, 1), np.float32),
        np.ones((2, 1, 1, 1), np.float32),
    ):
        assert_same_bits(call(dmljax.gemm, a, b, jnp.asarray(c), 1.0, 2.0), np.matmul(a, b) + np.float32(2) * c)
    assert_same_bits(call(dmljax.gemm, a[0, 0], b), np.matmul(a[0, 0], b))


def test_a_python_number_is_a_c_of_the_type_of_the_matrices(call: Any) -> None:
    a = np.ones((1, 2), np.float16)
    assert_same_bits(call(lambda a: dmljax.gemm(a, a.mT, 0.5), jnp.asarray(a)), np.array([[2.5]], np.float16))
    assert_same_bits(call(lambda a: dmljax.gemm(a, a.mT, 3), jnp.asarray(a)), np.array([[5]], np.float16))


def test_beta_does_not_matter_without_c_and_zero_times_nan_is_nan(call: Any) -> None:
    a = np.ones((1, 1), np.float32)
    assert call(dmljax.gemm, a, a, None, 1.0, NAN).tolist() == [[1]]
    for c in (NAN, INF):  # BLAS does not look at C if beta is 0; the page's formula does
        assert math.isnan(call(dmljax.gemm, a, a, np.full((1, 1), c, np.float32), 1.0, 0.0)[0, 0])
    assert math.isnan(call(dmljax.gemm, np.full((1, 1), INF, np.float32), a, None, 0.0)[0, 0])


def test_infinities_and_nan_reach_their_rows_and_columns_alone(call: Any) -> None:
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


def test_float32_is_computed_in_float32_unless_someone_says_otherwise() -> None:
    shapes = [jax.ShapeDtypeStruct((4, 4), np.float32)] * 2

    def lowered(**arguments: Any) -> str:
        exported = jax.export.export(jax.jit(lambda a, b: dmljax.gemm(a, b, **arguments)), platforms=["tpu"])(*shapes)
        return str(exported.mlir_module())

    assert "precision = [HIGHEST, HIGHEST]" in lowered()
    assert "precision = [HIGH, HIGH]" in lowered(precision="high")
    assert "HIGH" not in lowered(precision=jax.lax.Precision.DEFAULT)
    assert "tf32" in lowered(precision=jax.lax.DotAlgorithmPreset.TF32_TF32_F32)
    with jax.default_matmul_precision("high"):
        assert "precision = [HIGH, HIGH]" in lowered()
        assert "precision = [HIGHEST, HIGHEST]" in lowered(precision="highest")


def test_jaxs_setting_is_looked_at_in_each_call() -> None:
    a = np.ones((2, 2), np.float32)
    dmljax.gemm(a, a)
    with jax.default_matmul_precision("bfloat16"):
        assert "Precision.DEFAULT" in str(jax.make_jaxpr(dmljax.gemm)(a, a))
    assert "Precision.HIGHEST" in str(jax.make_jaxpr(dmljax.gemm)(a, a))


@FULL
def test_a_fused_activation_is_that_of_the_rounded_result(call: Any) -> None:
    a, b, c = (normal(np.float16, 4, 4) for _ in range(3))
    sums = dmljax.gemm(a, b, c, 1.5)
    softmax = directml.ActivationSoftmaxDesc()
    columns = directml.ActivationSoftmax1Desc(axes=(0,))
    clip = directml.ElementWiseClipDesc(min=-0.5, max=0.5, scale_bias=directml.ScaleBias(2.0, 0.25))
    for fused, expected in (
        (RELU, dmljax.activation_relu(sums)),
        (softmax, dmljax.activation_softmax(sums)),
        (columns, dmljax.activation_softmax1(sums, axes=0)),
        (clip, dmljax.element_wise_clip(sums, -0.5, 0.5, directml.ScaleBias(2.0, 0.25))),
    ):
        assert_same_bits(call(dmljax.gemm, a, b, c, 1.5, fused_activation=fused), expected)


def test_gemm_has_gradients_of_all_its_floats() -> None:
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


GEMM_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "integers": ({"a": np.ones((2, 2), np.int32)}, InvalidType, "a must be of a floating type; got int32"),
    "another type of b": (
        {"b": np.ones((2, 2), np.float16)},
        InvalidType,
        "b must be of float32, as a is; got float16",
    ),
    "another type of c": (
        {"c": np.ones((2, 2), np.float16)},
        InvalidType,
        "c must be of float32, as a is; got float16",
    ),
    "a vector": ({"a": np.ones(2, np.float32)}, InvalidDesc, "a must have at least 2 dimensions; got 1"),
    "a vector of b": ({"b": np.ones(2, np.float32)}, InvalidDesc, "b must have at least 2 dimensions; got 1"),
    "other rows": (
        {"b": np.ones((3, 2), np.float32)},
        InvalidDesc,
        r"b must have 2 rows, as many as a has columns; got shape \(3, 2\)",
    ),
    "other rows after a transposition": (
        {"b": np.ones((2, 3), np.float32), "transpose_b": True},
        InvalidDesc,
        r"b must have 2 columns, as many as a has columns; got shape \(2, 3\)",
    ),
    "batches that do not broadcast": (
        {"a": np.ones((2, 2, 2), np.float32), "b": np.ones((3, 2, 2), np.float32)},
        InvalidDesc,
        r"a and b must have shapes that broadcast before the last two dimensions; got \(2, 2, 2\) and \(3, 2, 2\)",
    ),
    "a c that is too large": (
        {"c": np.ones((3, 1, 2), np.float32)},
        InvalidDesc,
        r"c must have a shape that broadcasts to \(2, 2\), that of the product; got \(3, 1, 2\)",
    ),
    "a c of another size": (
        {"c": np.ones((3,), np.float32)},
        InvalidDesc,
        r"c must have a shape that broadcasts to \(2, 2\), that of the product; got \(3,\)",
    ),
    "an alpha of several": (
        {"alpha": np.ones(2, np.float32)},
        InvalidDesc,
        r"alpha must be a scalar; got shape \(2,\)",
    ),
    "a transform for a bool": (
        {"transpose_a": TRANSPOSE},
        InvalidType,
        "transpose_a must be true or false; got MatrixTransform.TRANSPOSE",
    ),
    "a precision that is none": (
        {"precision": "exact"},
        InvalidType,
        "precision must be 'default', 'high', 'highest', a jax.lax.Precision or a jax.lax.DotAlgorithmPreset; got "
        "'exact'",
    ),
    "a number for a precision": ({"precision": 2}, InvalidType, "precision must be 'default', .*; got 2"),
    "an activation with tensors": (
        {"fused_activation": directml.ActivationReluDesc(output=TensorDesc(FLOAT32, (2, 2)))},
        InvalidDesc,
        "fused_activation must be an activation without tensors; got DML_OPERATOR_ACTIVATION_RELU with output",
    ),
    "an operator that is no activation": (
        {
            "fused_activation": directml.ElementWiseAbsDesc(
                input=TensorDesc(FLOAT32, (2,)), output=TensorDesc(FLOAT32, (2,))
            )
        },
        InvalidDesc,
        "fused_activation must be an activation without tensors; got DML_OPERATOR_ELEMENT_WISE_ABS",
    ),
    "the name of an activation": ({"fused_activation": "relu"}, InvalidType, "fused_activation must be a descriptor"),
}


@pytest.mark.parametrize("case", GEMM_REFUSED)
def test_gemm_refuses(case: str) -> None:
    wrong, kind, message = GEMM_REFUSED[case]
    square = np.ones((2, 2), np.float32)
    with pytest.raises(kind, match=f"^gemm: {message}"):
        dmljax.gemm(**{"a": square, "b": square} | wrong)


def gemm_desc(data_type: DataType = FLOAT32, **changed: Any) -> directml.Operator:
    members: dict[str, Any] = {
        "a": TensorDesc(data_type, (1, 1, 3, 4)),
        "b": TensorDesc(data_type, (1, 1, 4, 5)),
        "output": TensorDesc(data_type, (1, 1, 3, 5)),
        "trans_a": NONE,
        "trans_b": NONE,
        "alpha": 1,
        "beta": 0,
    }
    return directml.GemmDesc(**members | changed)


def float_tensor(*sizes: int) -> TensorDesc:
    return TensorDesc(FLOAT32, sizes)


GEMM_DESCS_REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "types": (
        {"c": TensorDesc(FLOAT16, (1, 1, 3, 5))},
        "6_4",
        "ATensor, BTensor, CTensor and OutputTensor must have the same DataType; got FLOAT32, FLOAT32, FLOAT16 and",
    ),
    "ranks": (
        {"c": float_tensor(3, 5)},
        "6_4",
        "ATensor, BTensor, CTensor and OutputTensor must have the same DimensionCount; got 4, 4, 2 and 4",
    ),
    "the sizes of C": (
        {"c": float_tensor(1, 1, 1, 5)},
        "6_4",
        r"CTensor and OutputTensor must have the same Sizes; got \{1,1,1,5\} and \{1,1,3,5\}",
    ),
    "a batch": (
        {"b": float_tensor(1, 2, 4, 5)},
        "6_4",
        r"ATensor.Sizes and BTensor.Sizes must have the same Sizes before the last two; "
        r"got \{1,1,3,4\} and \{1,2,4,5\}",
    ),
    "the rows of B": (
        {"b": float_tensor(1, 1, 3, 5)},
        "6_4",
        r"BTensor must have 4 rows, as many as ATensor has columns; got shape \{1,1,3,5\}",
    ),
    "the columns of B": (
        {"trans_a": TRANSPOSE, "trans_b": TRANSPOSE},
        "6_4",
        r"BTensor must have 3 columns, as many as ATensor has rows; got shape \{1,1,4,5\}",
    ),
    "the output": (
        {"output": float_tensor(1, 1, 5, 3)},
        "6_4",
        r"OutputTensor.Sizes must be \{1,1,3,5\}; got \{1,1,5,3\}",
    ),
    "a rank of a later level": (
        {"a": float_tensor(3, 4), "b": float_tensor(4, 5), "output": float_tensor(3, 5)},
        "3_1",
        "ATensor.DimensionCount must be 4; got 2",
    ),
    "a softmax of a later level": (
        {"fused_activation": directml.ActivationSoftmaxDesc()},
        "6_0",
        "FusedActivation.Type must be one of DML_FEATURE_LEVEL_6_0; got DML_OPERATOR_ACTIVATION_SOFTMAX of "
        "DML_FEATURE_LEVEL_6_1",
    ),
    "a softmax of batches": (
        {
            "a": float_tensor(1, 2, 3, 4),
            "b": float_tensor(1, 2, 4, 5),
            "output": float_tensor(1, 2, 3, 5),
            "fused_activation": directml.ActivationSoftmaxDesc(),
        },
        "6_4",
        r"FusedActivation.InputTensor.Sizes must be 1 before the last two; got \{1,2,3,5\}",
    ),
    "a softmax along no dimension": (
        {"fused_activation": directml.ActivationSoftmax1Desc(axes=(4,))},
        "6_4",
        r"FusedActivation.Axes\[0\] must be less than 4; got 4",
    ),
    "a softmax with tensors": (
        {"fused_activation": directml.ActivationSoftmaxDesc(input=float_tensor(3, 5), output=float_tensor(3, 5))},
        "6_4",
        r"FusedActivation.InputTensor must not be given; got FLOAT32 \{3,5\}",
    ),
    "a log-softmax": (
        {"fused_activation": directml.ActivationLogSoftmaxDesc(input=float_tensor(3, 5), output=float_tensor(3, 5))},
        "6_4",
        "FusedActivation.Type must be one that can be fused; got DML_OPERATOR_ACTIVATION_LOG_SOFTMAX",
    ),
}


@pytest.mark.parametrize("case", GEMM_DESCS_REFUSED)
def test_a_gemm_desc_refuses(case: str) -> None:
    wrong, level, message = GEMM_DESCS_REFUSED[case]
    with pytest.raises(InvalidDesc, match=f"^DML_OPERATOR_GEMM at DML_FEATURE_LEVEL_{level}: (.|\n)*{message}"):
        directml.validate(gemm_desc(**wrong), feature_level=level)


@FULL
def test_what_gemm_alone_may_fuse_is_lowered_and_comes_back_from_json() -> None:
    a, b = normal(np.float32, 1, 1, 3, 4), normal(np.float32, 1, 1, 4, 5)
    for fused, level, function in (
        (directml.ActivationSoftmaxDesc(), "6_1", dmljax.activation_softmax),
        (directml.ActivationSoftmax1Desc(axes=(2,)), "6_1", lambda x: dmljax.activation_softmax1(x, axes=2)),
        (directml.ElementWiseClipDesc(min=0, max=1), "1_0", lambda x: dmljax.element_wise_clip(x, 0, 1)),
    ):
        desc = gemm_desc(fused_activation=fused)
        assert directml.find_minimum_feature_level(desc) is FeatureLevel[f"FL_{level}"]
        assert directml.from_json(directml.to_json(desc)) == desc
        assert_same_bits(directml.lower(desc)(a, b), function(dmljax.gemm(a, b)))


@pytest.mark.parametrize("operator", ["ActivationSoftmax", "ActivationSoftmax1", "ElementWiseClip"])
def test_what_may_be_fused_needs_its_tensors_where_it_is_not(operator: str) -> None:
    attributes: dict[str, Any] = {"ActivationSoftmax1": {"axes": (0,)}, "ElementWiseClip": {"min": 0, "max": 1}}
    desc = getattr(directml, f"{operator}Desc")(**attributes.get(operator, {}))
    with pytest.raises(InvalidDesc, match="InputTensor must be given, unless the activation is fused; got none"):
        directml.validate(desc)


def test_transforms_of_a_desc_are_transpositions() -> None:
    a, b = normal(np.float32, 1, 1, 4, 3), normal(np.float32, 1, 1, 5, 4)
    desc = gemm_desc(a=float_tensor(*a.shape), b=float_tensor(*b.shape), trans_a=TRANSPOSE, trans_b="TRANSPOSE")
    expected = dmljax.gemm(a, b, transpose_a=True, transpose_b=True)
    assert_same_bits(directml.lower(desc)(a, b), expected)
    assert directml.to_json(desc)["Desc"]["TransA"] == "DML_MATRIX_TRANSFORM_TRANSPOSE"


# MATRIX_MULTIPLY_INTEGER

BYTES = [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]


@FULL
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_integers_are_multiplied_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for a_type, b_type in BYTES:
        a, b = random_array(rng, a_type, (2, 3, 40)), random_array(rng, b_type, (2, 40, 4))
        a_zero, b_zero = random_array(rng, a_type, (3,)), random_array(rng, b_type, (2, 1, 4))
        result = dmljax.matrix_multiply_integer(a, b, a_zero, b_zero)
        assert_same_bits(result, oracles.wrapped(oracles.whole_product(a, b, a_zero[:, None], b_zero)))


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
@pytest.mark.parametrize("shapes", few_of(ZERO_POINTS, "none", "one of each", "rows and columns"))
def test_zero_points_are_of_all_of_rows_or_of_columns(call: Any, shapes: str) -> None:
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


def test_no_products_add_up_to_zero(call: Any) -> None:
    a, b = np.ones((2, 0), np.uint8), np.ones((0, 3), np.int8)
    assert_same_bits(call(dmljax.matrix_multiply_integer, a, b, np.array(7, np.uint8)), np.zeros((2, 3), np.int32))


def test_vmap_takes_a_zero_point_of_each() -> None:
    a, b, zero = whole("int8", 6, 3, 4), whole("int8", 4, 5), whole("int8", 6)
    result = jax.vmap(dmljax.matrix_multiply_integer, in_axes=(0, None, 0))(a, b, zero)
    assert_same_bits(result, oracles.wrapped(oracles.whole_product(a, b, zero[:, None, None])))


def test_all_sizes_of_integers_may_be_symbolic() -> None:
    batch, rows, inner, columns = jax.export.symbolic_shape("batch, rows, inner, columns")
    shapes = [
        jax.ShapeDtypeStruct((batch, rows, inner), np.uint8),
        jax.ShapeDtypeStruct((inner, columns), np.int8),
        jax.ShapeDtypeStruct((rows,), np.uint8),
        jax.ShapeDtypeStruct((columns,), np.int8),
    ]
    exported = jax.export.export(jax.jit(dmljax.matrix_multiply_integer))(*shapes)
    a, b, a_zero, b_zero = whole("uint8", 2, 3, 4), whole("int8", 4, 5), whole("uint8", 3), whole("int8", 5)
    expected = oracles.wrapped(oracles.whole_product(a, b, a_zero[:, None], b_zero))
    assert_same_bits(exported.call(a, b, a_zero, b_zero), expected)


INTEGER_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "floats": ({"a": np.ones((2, 2), np.float32)}, InvalidType, "a must be of an integer type; got float32"),
    "wide integers": ({"b": np.ones((2, 3), np.int16)}, InvalidType, "b must be int8 or uint8; got int16"),
    "a zero point of another type": (
        {"a_zero_point": np.array(1, np.uint8)},
        InvalidType,
        "a_zero_point must be of int8, as a is; got uint8",
    ),
    "a floating zero point": (
        {"b_zero_point": np.array(1, np.float32)},
        InvalidType,
        "b_zero_point must be of an integer type; got float32",
    ),
    "a zero point for each column of a": (
        {"a_zero_point": np.ones((1, 2), np.int8)},
        InvalidDesc,
        r"a_zero_point must have one element, or one for each of the 4 rows of a; got shape \(1, 2\)",
    ),
    "a zero point for each row of b": (
        {"b_zero_point": np.ones((2,), np.int8)},
        InvalidDesc,
        r"b_zero_point must have one element, or one for each of the 3 columns of b; got shape \(2,\)",
    ),
    "zero points of a batch that is none": (
        {"b_zero_point": np.ones((2, 1, 3), np.int8)},
        InvalidDesc,
        r"b_zero_point must have one element, or one for each of the 3 columns of b; got shape \(2, 1, 3\)",
    ),
    "other rows": (
        {"b": np.ones((3, 3), np.int8)},
        InvalidDesc,
        r"b must have 2 rows, as many as a has columns; got shape \(3, 3\)",
    ),
    "a vector": ({"a": np.ones(2, np.int8)}, InvalidDesc, "a must have at least 2 dimensions; got 1"),
}


@pytest.mark.parametrize("case", INTEGER_REFUSED)
def test_matrix_multiply_integer_refuses(case: str) -> None:
    wrong, kind, message = INTEGER_REFUSED[case]
    with pytest.raises(kind, match=f"^matrix_multiply_integer: {message}"):
        dmljax.matrix_multiply_integer(**{"a": np.ones((4, 2), np.int8), "b": np.ones((2, 3), np.int8)} | wrong)


# MATRIX_MULTIPLY_INTEGER_TO_FLOAT

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]


def scales(*shape: int) -> Any:
    """Scales of any magnitude whose products are normal numbers."""
    return (RNG.uniform(0.5, 1, shape) * 2.0 ** RNG.integers(-20, 20, shape) * RNG.choice([1, 1, -1], shape)).astype(
        np.float32
    )


@pytest.mark.parametrize("dtype", few_of(INTEGERS, "int8", "uint32"))
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", pytest.param("float64", marks=needs_x64)])
def test_the_result_has_the_type_of_the_scales(call: Any, dtype: str) -> None:
    a, b = np.array([[3, 4]], np.int8), np.array([[5], [6]], np.int8)
    kind = jnp.dtype(dtype)
    scale, bias = np.array(0.5, kind), np.array([[0.25]], kind)
    result = call(dmljax.matrix_multiply_integer_to_float, a, b, scale, scale, None, None, bias)
    assert_same_bits(result, np.array([[10]], kind))
    assert dmljax.matrix_multiply_integer_to_float(a, b, 0.5, 0.5).dtype == np.float32


def test_16_bit_floats_are_rounded_after_the_bias(call: Any) -> None:
    # 2047 * 1.5 = 3070.5 is no float16, which would be 3070; with the bias it is 3071.
    a, b = np.array([[2047]], np.int16), np.array([[1]], np.int16)
    scale, bias = np.array(1.5, np.float16), np.array([[0.5]], np.float16)
    result = call(dmljax.matrix_multiply_integer_to_float, a, b, scale, np.array(1, np.float16), None, None, bias)
    assert_same_bits(result, np.array([[3071 + 1]], np.float32).astype(np.float16))


def test_scales_may_be_of_any_magnitude(call: Any) -> None:
    a, b = np.array([[100]], np.int8), np.array([[100]], np.int8)
    for a_scale, b_scale, expected in (
        (1e38, 2e-38, 1e38 * 2e-38 * 1e4),
        (3e38, 1e-3, INF),
        (-3e38, 1e-3, -INF),
        (1e-30, -1e-30, -0.0),
        (INF, 1.0, INF),
        (INF, 0.0, NAN),
        (NAN, 1.0, NAN),
    ):
        result = call(dmljax.matrix_multiply_integer_to_float, a, b, np.float32(a_scale), np.float32(b_scale))
        np.testing.assert_allclose(np.asarray(result), [[np.float32(expected)]], rtol=2e-7)


TO_FLOAT_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "integer scales": ({"a_scale": np.array(2)}, InvalidType, "a_scale must be of a floating type; got int"),
    "scales of two types": (
        {"b_scale": np.array(2, np.float16)},
        InvalidType,
        "b_scale must be of float32, as a_scale is; got float16",
    ),
    "a bias of another type": (
        {"bias": np.ones(3, np.float16)},
        InvalidType,
        "bias must be of float32, as a_scale is; got float16",
    ),
    "a bias of another size": (
        {"bias": np.ones(2, np.float32)},
        InvalidDesc,
        r"bias must have a shape that broadcasts to \(4, 3\), that of the product; got \(2,\)",
    ),
    "a scale for each column of a": (
        {"a_scale": np.ones((1, 2), np.float32)},
        InvalidDesc,
        r"a_scale must have one element, or one for each of the 4 rows of a; got shape \(1, 2\)",
    ),
    "a scale for each row of b": (
        {"b_scale": np.ones((2, 1), np.float32)},
        InvalidDesc,
        r"b_scale must have one element, or one for each of the 3 columns of b; got shape \(2, 1\)",
    ),
    "bool": ({"a": np.ones((4, 2), bool)}, InvalidType, "a must be of an integer type; got bool"),
}


@pytest.mark.parametrize("case", TO_FLOAT_REFUSED)
def test_matrix_multiply_integer_to_float_refuses(case: str) -> None:
    wrong, kind, message = TO_FLOAT_REFUSED[case]
    one = np.float32(1)
    given = {"a": np.ones((4, 2), np.int8), "b": np.ones((2, 3), np.int8), "a_scale": one, "b_scale": one}
    with pytest.raises(kind, match=f"^matrix_multiply_integer_to_float: {message}"):
        dmljax.matrix_multiply_integer_to_float(**given | wrong)


@needs_x64
def test_integers_of_64_bits_are_refused() -> None:
    with pytest.raises(InvalidType, match="a must be of at most 32 bits; got int64"):
        dmljax.matrix_multiply_integer_to_float(np.ones((1, 1), np.int64), np.ones((1, 1), np.int8), 1.0, 1.0)


def test_what_is_summed_over_must_be_known() -> None:
    (size,) = jax.export.symbolic_shape("size")
    shapes = [jax.ShapeDtypeStruct((2, size), np.int8), jax.ShapeDtypeStruct((size, 2), np.int8)]
    with pytest.raises(Unsupported, match="a must have a number of columns that is known while tracing"):
        jax.export.export(jax.jit(lambda a, b: dmljax.matrix_multiply_integer_to_float(a, b, 1.0, 1.0)))(*shapes)


# QUANTIZED_LINEAR_MATRIX_MULTIPLY


@FULL
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_quantized_matrices_are_the_pages_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def scale(*shape: int) -> Any:
        # With halves among the quotients, which powers of two make.
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


def test_halves_go_to_the_even_integer_before_the_zero_point_is_added(call: Any) -> None:
    a, one = np.array([[1], [3], [5], [-1], [-3]], np.int8), np.array([[1]], np.int8)
    for zero in (7, 8):
        result = call(
            dmljax.quantized_linear_matrix_multiply,
            *(a, np.float32(0.5), None, one, np.float32(1), None, np.float32(1), np.array(zero, np.int8)),
        )
        assert result.ravel().tolist() == [zero + step for step in (0, 2, 2, 0, -2)]


def test_the_product_is_rounded_once_before_it_is_divided(call: Any) -> None:
    # Rounded twice, with the product of the scales first, the product is below 97.5 steps.
    a, a_scale, b_scale = np.array([[127]], np.int8), np.float32(1.7), np.float32(1.27)
    output_scale = np.float32(357.15396)
    twice = np.float32(127 * 127) * (a_scale * b_scale)
    assert np.rint(twice / output_scale) == 97
    exact = 127 * 127 * Fraction(float(a_scale)) * Fraction(float(b_scale)) / Fraction(float(output_scale))
    assert round(exact) == 98
    arguments = (a, a_scale, None, a, b_scale, None, output_scale)
    assert call(dmljax.quantized_linear_matrix_multiply, *arguments).tolist() == [[98]]


@FULL
def test_what_is_beyond_the_type_saturates(call: Any) -> None:
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


QUANTIZED_REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "wide integers": ({"a": np.ones((4, 2), np.int16)}, InvalidType, "a must be int8 or uint8; got int16"),
    "an integer scale": (
        {"output_scale": np.array(1)},
        InvalidType,
        "output_scale must be of a floating type; got int",
    ),
    "a scale for each column": (
        {"output_scale": np.ones((1, 3), np.float32)},
        InvalidDesc,
        r"output_scale must have one element, or one for each of the 4 rows of a; got shape \(1, 3\)",
    ),
    "a zero point for each column": (
        {"output_zero_point": np.ones((1, 3), np.int8)},
        InvalidDesc,
        r"output_zero_point must have one element, or one for each of the 4 rows of a; got shape \(1, 3\)",
    ),
    "a zero point of another type": (
        {"output_zero_point": np.array(1, np.uint8), "dtype": "int8"},
        InvalidType,
        "output_zero_point must be of int8, as the output is; got uint8",
    ),
    "a wide output": (
        {"dtype": "int32"},
        InvalidType,
        "the output must be of an integer type of at most 16 bits; got int32",
    ),
}


@pytest.mark.parametrize("case", QUANTIZED_REFUSED)
def test_quantized_linear_matrix_multiply_refuses(case: str) -> None:
    wrong, kind, message = QUANTIZED_REFUSED[case]
    one = np.float32(1)
    given = {
        "a": np.ones((4, 2), np.int8),
        "a_scale": one,
        "a_zero_point": None,
        "b": np.ones((2, 3), np.int8),
        "b_scale": one,
        "b_zero_point": None,
        "output_scale": one,
    }
    with pytest.raises(kind, match=f"^quantized_linear_matrix_multiply: {message}"):
        dmljax.quantized_linear_matrix_multiply(**given | wrong)


# The rules of their descriptors


def of(data_type: DataType, *sizes: int) -> TensorDesc:
    return TensorDesc(data_type, sizes)


WHOLE_DESCS: dict[str, dict[str, Any]] = {
    "MatrixMultiplyInteger": {"a": of(INT8, 3, 4), "b": of(UINT8, 4, 5), "output": of(INT32, 3, 5)},
    "MatrixMultiplyIntegerToFloat": {
        "a": of(INT8, 3, 4),
        "a_scale": of(FLOAT32, 1),
        "b": of(INT8, 4, 5),
        "b_scale": of(FLOAT32, 1),
        "output": of(FLOAT32, 3, 5),
    },
    "QuantizedLinearMatrixMultiply": {
        "a": of(INT8, 3, 4),
        "a_scale": of(FLOAT32, 1),
        "b": of(INT8, 4, 5),
        "b_scale": of(FLOAT32, 1),
        "output_scale": of(FLOAT32, 1),
        "output": of(UINT8, 3, 5),
    },
}
ALLOWED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in WHOLE_DESCS),
    ("MatrixMultiplyInteger", {"a_zero_point": of(INT8, 3), "b_zero_point": of(UINT8, 1, 1, 5)}),
    ("MatrixMultiplyInteger", {"a_zero_point": of(INT8, 1, 1, 3, 1), "b_zero_point": of(UINT8, 5)}),
    ("MatrixMultiplyIntegerToFloat", {"a_scale": of(FLOAT32, 3), "b_scale": of(FLOAT32, 5)}),
    ("QuantizedLinearMatrixMultiply", {"output_scale": of(FLOAT32, 3), "output_zero_point": of(UINT8, 3)}),
]


@pytest.mark.parametrize(("name", "changed"), ALLOWED)
def test_scales_and_zero_points_have_these_sizes(name: str, changed: Any) -> None:
    directml.validate(getattr(directml, f"{name}Desc")(**WHOLE_DESCS[name] | changed))


DESCS_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "MatrixMultiplyInteger",
        {"a_zero_point": of(UINT8, 1)},
        "ATensor and AZeroPointTensor must have the same DataType; got INT8 and UINT8",
    ),
    (
        "MatrixMultiplyInteger",
        {"b_zero_point": of(INT8, 1)},
        "BTensor and BZeroPointTensor must have the same DataType; got UINT8 and INT8",
    ),
    (
        "MatrixMultiplyInteger",
        {"output": of(INT32, 1, 3, 5)},
        "ATensor, BTensor and OutputTensor must have the same DimensionCount; got 2, 2 and 3",
    ),
    ("MatrixMultiplyInteger", {"output": of(INT32, 5, 3)}, r"OutputTensor.Sizes must be \{3,5\}; got \{5,3\}"),
    (
        "MatrixMultiplyInteger",
        {"a_zero_point": of(INT8, 1, 3)},
        r"AZeroPointTensor.Sizes must have one element, or one for each row of ATensor, with \{3,1\} as the last "
        r"Sizes; got \{1,3\}",
    ),
    (
        "MatrixMultiplyInteger",
        {"b_zero_point": of(UINT8, 5, 1)},
        r"BZeroPointTensor.Sizes must have one element, or one for each column of BTensor, with \{1,5\} as the last "
        r"Sizes; got \{5,1\}",
    ),
    (
        "MatrixMultiplyIntegerToFloat",
        {"b": of(UINT8, 4, 5)},
        "ATensor and BTensor must have the same DataType; got INT8 and UINT8",
    ),
    (
        "MatrixMultiplyIntegerToFloat",
        {"b_scale": of(FLOAT16, 1)},
        "AScaleTensor, BScaleTensor and OutputTensor must have the same DataType; got FLOAT32, FLOAT16 and FLOAT32",
    ),
    (
        "MatrixMultiplyIntegerToFloat",
        {"b_scale": of(FLOAT32, 1, 1)},
        "AScaleTensor and BScaleTensor must have the same DimensionCount; got 1 and 2",
    ),
    (
        "MatrixMultiplyIntegerToFloat",
        {"bias": of(FLOAT32, 1, 5)},
        r"BiasTensor and OutputTensor must have the same Sizes; got \{1,5\} and \{3,5\}",
    ),
    (
        "MatrixMultiplyIntegerToFloat",
        {"bias": of(FLOAT32, 5)},
        "BTensor, BiasTensor and OutputTensor must have the same DimensionCount; got 2, 2, 1 and 2",
    ),
    (
        "MatrixMultiplyIntegerToFloat",
        {"b_scale": of(FLOAT32, 3)},
        r"BScaleTensor.Sizes must have one element, or one for each column of BTensor, .*; got \{3\}",
    ),
    (
        "QuantizedLinearMatrixMultiply",
        {"output_zero_point": of(INT8, 1)},
        "OutputTensor and OutputZeroPointTensor must have the same DataType; got UINT8 and INT8",
    ),
    (
        "QuantizedLinearMatrixMultiply",
        {"b_zero_point": of(INT8, 1, 1)},
        "BZeroPointTensor and OutputScaleTensor must have the same DimensionCount; got 1, 1, 2 and 1",
    ),
    (
        "QuantizedLinearMatrixMultiply",
        {"output_scale": of(FLOAT32, 5)},
        r"OutputScaleTensor.Sizes must have one element, or one for each row of ATensor, .*; got \{5\}",
    ),
    (
        "QuantizedLinearMatrixMultiply",
        {"b": of(INT8, 5, 5)},
        r"BTensor must have 4 rows, as many as ATensor has columns; got shape \{5,5\}",
    ),
]


@pytest.mark.parametrize(("name", "wrong", "message"), DESCS_REFUSED)
def test_a_desc_of_integers_refuses(name: str, wrong: Any, message: str) -> None:
    desc = getattr(directml, f"{name}Desc")(**WHOLE_DESCS[name] | wrong)
    with pytest.raises(InvalidDesc, match=f"^{re.escape(desc.type)} at DML_FEATURE_LEVEL_6_4: (.|\n)*{message}"):
        directml.validate(desc)
