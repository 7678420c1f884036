"""Products of matrices, and sums of products."""

from typing import Any

import jax.numpy as jnp

import dmljax as dml
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.registry import handles
from dmljax.types import FLOATS


@handles("Gemm", since=7)
def _gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0
) -> Any:
    if a.dtype not in FLOATS:
        product = jnp.matmul(a.T if transA else a, b.T if transB else b)
        whole = product if alpha == 1 else (alpha * product).astype(a.dtype)
        return whole if c is None else whole + (c if beta == 1 else (beta * c).astype(a.dtype))
    return dml.gemm(a, b, c, alpha, beta, transpose_a=bool(transA), transpose_b=bool(transB))


@handles("Gemm", since=1)
def _first_gemm(
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    return _gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@handles("MatMul")
def matmul(a: Any, b: Any) -> Any:
    """The product of matrices, and of vectors as NumPy has it, which DirectML has not."""
    if min(a.ndim, b.ndim) < 1:
        raise InvalidDesc(Problem((), "must have inputs of at least 1 dimension", f"{a.shape} and {b.shape}"))
    if a.dtype not in FLOATS:
        return jnp.matmul(a, b)
    product = dml.gemm(a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b)
    product = product[..., 0] if b.ndim == 1 else product
    return product if a.ndim > 1 else product[..., 0] if b.ndim == 1 else product[..., 0, :]


def _with_columns(a: Any, zero_point: Any) -> Any:
    """A zero point, of which there may be one for each row of the first factor."""
    return (
        zero_point[:, None] if zero_point is not None and zero_point.ndim == 1 and zero_point.size > 1 else zero_point
    )


@handles("MatMulInteger")
def _integer_matmul(a: Any, b: Any, a_zero_point: Any = None, b_zero_point: Any = None) -> Any:
    return dml.matrix_multiply_integer(a, b, _with_columns(a, a_zero_point), b_zero_point)


@handles("QLinearMatMul")
def _quantized_matmul(
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    output_scale: Any,
    output_zero_point: Any,
) -> Any:
    return dml.quantized_linear_matrix_multiply(
        *(a, _with_columns(a, a_scale), _with_columns(a, a_zero_point)),
        *(b, b_scale, b_zero_point),
        *(output_scale, output_zero_point),
    )


@handles("Einsum")
def _einsum(*inputs: Any, equation: str) -> Any:
    return jnp.einsum(equation.replace(" ", ""), *inputs)
