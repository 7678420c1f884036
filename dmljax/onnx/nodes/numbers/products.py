"""Matrix products, determinants and Einsum."""

from dataclasses import dataclass
from typing import TypeVar

import jax.numpy as jnp

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.registry import handles
from dmljax.onnx.handlers.signatures import Attributes, Quantized
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.types import Array
from dmljax.types import FLOATS, widened

# ruff: noqa: N815  # attributes are spelled as ONNX has them


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


def of_rows(parameter: P) -> P:
    """Reshapes the first factor's scale or zero point, which may be per row."""
    if parameter is None or parameter.ndim != 1 or parameter.size == 1:
        return parameter
    return parameter[:, None]


@handles("MatMulInteger")
def _integer_matmul(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
    return dmljax.matrix_multiply_integer(a, b, of_rows(a_zero_point), b_zero_point)


@handles("QLinearMatMul")
def _quantized_matmul(a: Quantized, b: Quantized, scale: Array, zero_point: Array) -> Array:
    unit = jnp.ones((), jnp.float32)
    if a.scale.size == 1 and scale.size == 1:
        a_scale, b, scale = unit, b._replace(scale=of_result(a.scale, b.scale, scale)), unit
    else:
        a_scale = of_rows(a.scale)
    return dmljax.quantized_linear_matrix_multiply(a.array, a_scale, of_rows(a.zero_point), *b, scale, zero_point)


def of_result(of_input: Array, of_weight: Array, of_output: Array) -> Array:
    """The factor that rescales a sum of quantized products to the steps of the result.

    ONNX does not say how it is rounded. Its reference and ONNX Runtime use one factor per output; DirectML multiplies
    by the scales in turn, which can be off by one step near halves.
    """
    wide = promote(of_weight.dtype, jnp.float32)
    first, last = (scale.astype(wide).reshape(()) for scale in (of_input, of_output))
    factor: Array = first * of_weight.astype(wide) / last
    return factor


@handles("Einsum")
def _einsum(*inputs: Array, equation: str) -> Array:
    dtype = jnp.result_type(*inputs)
    return jnp.einsum(equation.replace(" ", ""), *inputs, preferred_element_type=widened(dtype)).astype(dtype)


@handles("Det")
def _determinant(x: Array) -> Array:
    determinant: Array = jnp.linalg.det(x.astype(promote(x.dtype, jnp.float32)))
    return determinant.astype(x.dtype)
