"""Matrix products, determinants and Einsum."""

from dataclasses import asdict, dataclass
from typing import TypeVar

import jax.numpy as jnp

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.registry import handles, handles_contrib
from dmljax.onnx.handlers.signatures import Attributes, Matrices, Quantized
from dmljax.onnx.nodes.numbers.elementwise import activate, add_arrays, gelu
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.types import Array
from dmljax.types import FLOATS, widened

# ruff: noqa: N815  # attributes are spelled as ONNX and ONNX Runtime have them


@dataclass(frozen=True, kw_only=True)
class GemmAttributes(Attributes):
    """The attributes of Gemm."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0


def float_gemm(a: Array, b: Array, c: Array | None, product: GemmAttributes) -> Array:
    """Computes Gemm for floats."""
    is_a, is_b = bool(product.transA), bool(product.transB)
    return dmljax.gemm(a, b, c, product.alpha, product.beta, transpose_a=is_a, transpose_b=is_b)


@handles("Gemm", since=7)
def _gemm(a: Array, b: Array, c: Array | None = None, *, product: GemmAttributes) -> Array:
    if a.dtype in FLOATS:
        return float_gemm(a, b, c, product)
    whole = jnp.matmul(a.T if product.transA else a, b.T if product.transB else b)
    whole = whole if product.alpha == 1 else (product.alpha * whole).astype(a.dtype)
    return whole if c is None else whole + (c if product.beta == 1 else (product.beta * c).astype(a.dtype))


@handles("Gemm", since=1)
def _first_gemm(a: Array, b: Array, c: Array, *, broadcast: int = 0, product: GemmAttributes) -> Array:
    return _gemm(a, b, c, product=product)


@handles("MatMul")
def matmul(a: Array, b: Array) -> Array:
    """Multiplies matrices, or vectors as in NumPy, which DirectML does not have."""
    if min(a.ndim, b.ndim) < 1:
        raise InvalidDesc(Problem((), "inputs must have at least 1 dimension", f"{a.shape} and {b.shape}"))
    if a.dtype not in FLOATS:
        return jnp.matmul(a, b)
    return float_product(a, b)


def float_product(a: Array, b: Array, alpha: float = 1.0) -> Array:
    """Multiplies matrices or vectors, and scales the product by `alpha`."""
    product = dmljax.gemm(a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b, None, alpha)
    product = product[..., 0] if b.ndim == 1 else product
    return product if a.ndim > 1 else product[..., 0] if b.ndim == 1 else product[..., 0, :]


P = TypeVar("P", Array, Array | None)


def reshape_to_rows(parameter: P) -> P:
    """Reshapes the first factor's scale or zero point, which may be per row."""
    if parameter is None or parameter.ndim != 1 or parameter.size == 1:
        return parameter
    return parameter[:, None]


@handles("MatMulInteger")
def _integer_matmul(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
    return dmljax.matrix_multiply_integer(a, b, reshape_to_rows(a_zero_point), b_zero_point)


@handles("QLinearMatMul")
def _quantized_matmul(a: Quantized, b: Quantized, scale: Array, zero_point: Array) -> Array:
    unit = jnp.ones((), jnp.float32)
    if a.scale.size == 1 and scale.size == 1:
        a_scale, b, scale = unit, b._replace(scale=result_factor(a.scale, b.scale, scale)), unit
    else:
        a_scale = reshape_to_rows(a.scale)
    return dmljax.quantized_linear_matrix_multiply(
        a.array, a_scale, reshape_to_rows(a.zero_point), *b, scale, zero_point
    )


def result_factor(input_scale: Array, weight_scale: Array, output_scale: Array) -> Array:
    """The factor that rescales a sum of quantized products to the steps of the result.

    ONNX does not say how it is rounded. Its reference and ONNX Runtime use one factor per output; DirectML multiplies
    by the scales in turn, which can be off by one step near halves.
    """
    wide = promote(weight_scale.dtype, jnp.float32)
    first, last = (scale.astype(wide).reshape(()) for scale in (input_scale, output_scale))
    factor: Array = first * weight_scale.astype(wide) / last
    return factor


@handles("Einsum")
def _einsum(*inputs: Array, equation: str) -> Array:
    dtype = jnp.result_type(*inputs)
    return jnp.einsum(equation.replace(" ", ""), *inputs, preferred_element_type=widened(dtype)).astype(dtype)


@handles("Det")
def _determinant(x: Array) -> Array:
    determinant: Array = jnp.linalg.det(x.astype(promote(x.dtype, jnp.float32)))
    return determinant.astype(x.dtype)


@handles_contrib("Inverse")
def _inverse(x: Matrices) -> Array:
    inverse: Array = jnp.linalg.inv(x.astype(promote(x.dtype, jnp.float32)))
    return inverse.astype(x.dtype)


# ONNX Runtime's own products


@dataclass(frozen=True, kw_only=True)
class _ProductAttributes(Attributes):
    alpha: float = 1.0
    transA: int = 0
    transB: int = 0
    transBatchA: int = 0
    transBatchB: int = 0


@dataclass(frozen=True, kw_only=True)
class _ActivationNumbers(Attributes):
    activation_alpha: float | None = None
    activation_axis: int | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None

    def by_name(self) -> dict[str, float | None]:
        return {name.removeprefix("activation_"): value for name, value in asdict(self).items()}


def _matrices(x: Array, *, is_transposed: int, is_batch_last: int) -> Array:
    if is_batch_last:
        x = jnp.moveaxis(x, 0, -2)
    return x.swapaxes(-1, -2) if is_transposed and x.ndim > 1 else x


@handles_contrib("FusedMatMul", "TransposeMatMul")
def _fused_matmul(a: Array, b: Array, *, product: _ProductAttributes) -> Array:
    a = _matrices(a, is_transposed=product.transA, is_batch_last=product.transBatchA)
    b = _matrices(b, is_transposed=product.transB, is_batch_last=product.transBatchB)
    return float_product(a, b, product.alpha)


@handles_contrib("FusedMatMulActivation")
def _fused_matmul_activation(
    a: Array, b: Array, *, activation: str, numbers: _ActivationNumbers, product: _ProductAttributes
) -> Array:
    return activate(_fused_matmul(a, b, product=product), activation, numbers.by_name())


@handles_contrib("FusedGemm")
def _fused_gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    activation: str | None = None,
    numbers: _ActivationNumbers,
    product: GemmAttributes,
) -> Array:
    return activate(float_gemm(a, b, c, product), activation, numbers.by_name())


@handles_contrib("GemmFastGelu")
def _product_with_fast_gelu(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return gelu(add_arrays(float_product(x, weight), bias), approximate="tanh")


@handles_contrib("MulInteger")
def _integer_product(a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None = None) -> Array:
    left, right = (
        x.astype(jnp.int32) - (0 if zero is None else zero.astype(jnp.int32).reshape(()))
        for x, zero in ((a, a_zero_point), (b, b_zero_point))
    )
    return dmljax.element_wise_multiply(left, right)


@handles_contrib("MatMulIntegerToFloat")
def _scaled_integer_matmul(
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
    bias: Array | None = None,
) -> Array:
    return dmljax.matrix_multiply_integer_to_float(
        *(a, b, reshape_to_rows(a_scale), b_scale), reshape_to_rows(a_zero_point), b_zero_point, bias
    )


@handles_contrib("DynamicQuantizeMatMul")
def _dynamically_quantized_matmul(
    a: Array, b: Array, b_scale: Array, b_zero_point: Array | None = None, bias: Array | None = None
) -> Array:
    quantized, scale, zero_point = dmljax.dynamic_quantize_linear(a)
    return dmljax.matrix_multiply_integer_to_float(quantized, b, scale, b_scale, zero_point, b_zero_point, bias)
