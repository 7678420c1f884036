"""GEMM, the products of integers and of quantized matrices: the pages' tables and pseudo-code, and cases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cases import Arrays, Case, ones
from formulas import Arr
from pages import tables

from dmljax import directml
from dmljax.directml import DataType, MatrixTransform, TensorDesc

SUPPORT = tables(
    """
    GEMM: ATensor BTensor CTensor OutputTensor
        1_0 4 FLOATS
        4_0 2-4 FLOATS
    MATRIX_MULTIPLY_INTEGER: ATensor BTensor; AZeroPointTensor; BZeroPointTensor; OutputTensor
        2_1 4 INT8 UINT8; 4 INT8 UINT8; 4 INT8 UINT8; 4 INT32
        4_0 2-4 INT8 UINT8; 1-4 INT8 UINT8; 2-4 INT8 UINT8; 2-4 INT32
        5_2 2-4 INT8 UINT8; 1-4 INT8 UINT8; 1-4 INT8 UINT8; 2-4 INT32
    MATRIX_MULTIPLY_INTEGER_TO_FLOAT: ATensor BTensor; AScaleTensor BScaleTensor; AZeroPointTensor
            BZeroPointTensor; BiasTensor OutputTensor
        6_2 2-4 INTEGERS_32; 1-4 FLOATS; 1-4 INTEGERS_32; 2-4 FLOATS
    QUANTIZED_LINEAR_MATRIX_MULTIPLY: ATensor BTensor OutputTensor; AScaleTensor BScaleTensor OutputScaleTensor;
            AZeroPointTensor BZeroPointTensor OutputZeroPointTensor
        2_1 4 INT8 UINT8; 4 FLOAT32; 4 INT8 UINT8
        4_0 2-4 INT8 UINT8; 1-4 FLOAT32; 1-4 INT8 UINT8
    """
)

MEMBERS = {
    "GEMM": "ATensor BTensor CTensor OutputTensor TransA TransB Alpha Beta FusedActivation",
    "MATRIX_MULTIPLY_INTEGER": "ATensor AZeroPointTensor BTensor BZeroPointTensor OutputTensor",
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": "ATensor AScaleTensor AZeroPointTensor BTensor BScaleTensor BZeroPointTensor"
    " BiasTensor OutputTensor",
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY": "ATensor AScaleTensor AZeroPointTensor BTensor BScaleTensor BZeroPointTensor"
    " OutputScaleTensor OutputZeroPointTensor OutputTensor",
}

# Pseudo-code on Python's integers and fractions, which are exact


def gemm(a: Arr, b: Arr, c: Arr, *, alpha: float, beta: float) -> Arr:
    """GEMM in float64, with `b` before its transposition."""
    left, right, summand = (x.astype(np.float64) for x in (a, b, c))
    return np.asarray(alpha * np.einsum("...mk,...nk->...mn", left, right) + beta * summand)


def whole_product(a: Arr, b: Arr, a_zero_point: Arr | None = None, b_zero_point: Arr | None = None) -> Arr:
    """The matrix product of `a - a_zero_point` and `b - b_zero_point` in Python's integers."""
    left, right = (
        x.astype(object) - (0 if zero is None else zero.astype(object))
        for x, zero in ((a, a_zero_point), (b, b_zero_point))
    )
    return np.asarray(np.matmul(left, right), object)


def wrapped(integers: Arr) -> Arr:
    """Python's integers modulo 2**32, as int32."""
    return np.array([int(x) % 2**32 for x in integers.flat], np.uint32).view(np.int32).reshape(integers.shape)


def dequantized_product(
    a: Arr, b: Arr, a_scale: Arr, b_scale: Arr, a_zero_point: Arr | None = None, b_zero_point: Arr | None = None
) -> Arr:
    """The product of dequantized matrices: exact sums, rounded to float32 and after each scale."""
    total = whole_product(a, b, a_zero_point, b_zero_point).astype(np.float32)
    return np.asarray(total * a_scale.astype(np.float32) * b_scale.astype(np.float32))


def quantized_product(output_scale: Arr, output_zero_point: Arr | None, dtype: Any, **given: Any) -> Arr:
    steps = np.rint(dequantized_product(**given) / output_scale)
    zero = 0.0 if output_zero_point is None else output_zero_point.astype(np.float64)
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(steps.astype(np.float64) + zero, limits.min, limits.max).astype(dtype))


# Descriptors


def matrix(data_type: DataType, rank: int, *last: int) -> TensorDesc:
    """A tensor of matrices, in batches of 2 and of 1 if there are that many dimensions."""
    return TensorDesc(data_type, (*ones(rank - 4), *(2, 1, *last)[-rank:]) if rank > 4 else (2, 1, *last)[-rank:])


@dataclass(frozen=True)
class SmallCase(Case):
    """A case with inputs whose sums are exact in every type; the family's own tests use other numbers."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> Arrays:
        small = {
            field: rng.integers(0 if tensor.dtype.kind == "u" else -8, 9, tensor.sizes).astype(tensor.dtype)
            for field, tensor in desc.tensors(is_input=True).items()
        }
        return small | {field: x for field, x in super().inputs(desc, rng).items() if field in self.scales}


def gemm_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    output = matrix(types["a"], rank, 3, 5)
    return directml.GemmDesc(
        a=matrix(types["a"], rank, 3, 4),
        b=matrix(types["a"], rank, 5, 4),
        c=output,
        output=output,
        trans_a=MatrixTransform.NONE,
        trans_b=MatrixTransform.TRANSPOSE,
        alpha=0.5,
        beta=-2,
    )


def integer_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    # One level has one-dimensional zero points, for columns only.
    return directml.MatrixMultiplyIntegerDesc(
        a=matrix(types["a"], rank, 3, 4),
        a_zero_point=TensorDesc(types["a"], ones(rank, 3, 1)),
        b=matrix(types["b"], rank, 4, 5),
        b_zero_point=TensorDesc(types["b"], ones(rank if rank > 3 else rank - 1 or 1, 5)),
        output=matrix(DataType.INT32, rank, 3, 5),
    )


def to_float_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    output = matrix(types["output"], rank, 3, 5)
    return directml.MatrixMultiplyIntegerToFloatDesc(
        a=matrix(types["a"], rank, 3, 4),
        a_scale=TensorDesc(types["output"], ones(rank, 3, 1)),
        a_zero_point=TensorDesc(types["a"], ones(rank)),
        b=matrix(types["a"], rank, 4, 5),
        b_scale=TensorDesc(types["output"], ones(rank)),
        b_zero_point=TensorDesc(types["a"], ones(rank, 1, 5)),
        bias=output,
        output=output,
    )


def to_float(desc: Any, bias: Arr, **given: Any) -> Arr:
    return np.asarray(dequantized_product(**given) + bias.astype(np.float32))


def quantized_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    row, column = (
        lambda data_type: TensorDesc(data_type, ones(rank, 3, 1)),
        lambda data_type: TensorDesc(data_type, ones(rank, 1, 5)),
    )
    return directml.QuantizedLinearMatrixMultiplyDesc(
        a=matrix(types["a"], rank, 3, 4),
        a_scale=row(DataType.FLOAT32),
        a_zero_point=row(types["a"]),
        b=matrix(types["b"], rank, 4, 5),
        b_scale=column(DataType.FLOAT32),
        b_zero_point=column(types["b"]),
        output_scale=row(DataType.FLOAT32),
        output_zero_point=row(types["output"]),
        output=matrix(types["output"], rank, 3, 5),
    )


CASES = {
    "GEMM": SmallCase(
        ("a",),
        gemm_desc,
        lambda desc, a, b, c: gemm(a, b, c, alpha=0.5, beta=-2),
        domain=(0.2, 0.9),
    ),
    "MATRIX_MULTIPLY_INTEGER": Case(("a", "b"), integer_desc, lambda desc, **given: wrapped(whole_product(**given))),
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": SmallCase(
        ("a", "output"), to_float_desc, to_float, scales=("a_scale", "b_scale", "bias"), domain=(0.2, 0.9)
    ),
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY": Case(
        ("a", "b", "output"),
        quantized_desc,
        lambda desc, **given: quantized_product(dtype=desc.output.dtype, **given),
        scales=("a_scale", "b_scale", "output_scale"),
    ),
}
