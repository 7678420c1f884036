"""GEMM, the products of integers and of quantized matrices: the pages' tables and pseudo-code, and cases."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cases import Arrays, Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import X64, f32, tensor
from pages import tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, MatrixTransform, TensorDesc

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


# Refusals

NONE, TRANSPOSE = MatrixTransform
RELU, SOFTMAX = directml.ActivationReluDesc(), directml.ActivationSoftmaxDesc()
GEMM = directml.GemmDesc(
    a=f32(1, 1, 3, 4), b=f32(1, 1, 4, 5), output=f32(1, 1, 3, 5), trans_a=NONE, trans_b=NONE, alpha=1, beta=0
)
DESCS: dict[str, Any] = {
    "gemm": GEMM,
    "integer": directml.MatrixMultiplyIntegerDesc(
        a=tensor("INT8", 3, 4), b=tensor("UINT8", 4, 5), output=tensor("INT32", 3, 5)
    ),
    "to float": directml.MatrixMultiplyIntegerToFloatDesc(
        a=tensor("INT8", 3, 4), a_scale=f32(1), b=tensor("INT8", 4, 5), b_scale=f32(1), output=f32(3, 5)
    ),
    "quantized": directml.QuantizedLinearMatrixMultiplyDesc(
        a=tensor("INT8", 3, 4),
        a_scale=f32(1),
        b=tensor("INT8", 4, 5),
        b_scale=f32(1),
        output_scale=f32(1),
        output=tensor("UINT8", 3, 5),
    ),
}
BATCHES = {"a": f32(1, 2, 3, 4), "b": f32(1, 2, 4, 5), "output": f32(1, 2, 3, 5)}
FUSED, LOG_SOFTMAX = {"input": f32(3, 5), "output": f32(3, 5)}, directml.ActivationLogSoftmaxDesc

ONE, HALVES, BYTES_4 = np.float32(1), np.ones((2, 2), np.float16), np.ones((4, 2), np.int8)
FACTORS = {"a": BYTES_4, "b": BYTES_4[:2, :1]}

CALLS: dict[str, dict[str, Any]] = {
    "gemm": {"a": np.ones((2, 2), np.float32), "b": np.ones((2, 2), np.float32)},
    "matrix_multiply_integer": FACTORS,
    "matrix_multiply_integer_to_float": FACTORS | {"a_scale": ONE, "b_scale": ONE},
    "quantized_linear_matrix_multiply": FACTORS
    | {"a_scale": ONE, "a_zero_point": None, "b_scale": ONE, "b_zero_point": None, "output_scale": ONE},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (DESCS["gemm"], {"c": tensor("FLOAT16", 1, 1, 3, 5)}, "have the same DataType; got FLOAT32, FLOAT32, FLOAT16 and"),
    (DESCS["gemm"], {"c": f32(3, 5)}, "have the same DimensionCount; got 4, 4, 2 and 4"),
    (DESCS["gemm"], {"c": f32(1, 1, 1, 5)}, "CTensor and OutputTensor must have the same Sizes; got {1,1,1,5}"),
    (DESCS["gemm"], {"b": f32(1, 2, 4, 5)}, "the same Sizes before the last two; got {1,1,3,4} and {1,2,4,5}"),
    (
        DESCS["gemm"],
        {"b": f32(1, 1, 3, 5)},
        "BTensor must have 4 rows, as many as ATensor has ...; got shape {1,1,3,5}",
    ),
    (
        DESCS["gemm"],
        {"trans_b": TRANSPOSE},
        "BTensor must have 4 columns, as many as ATensor has columns; got shape {1,",
    ),
    (
        DESCS["gemm"],
        {"trans_a": TRANSPOSE},
        "BTensor must have 3 rows, as many as ATensor has rows; got shape {1,1,4,5}",
    ),
    (DESCS["gemm"], {"output": f32(1, 1, 5, 3)}, "OutputTensor.Sizes must be {1,1,3,5}; got {1,1,5,3}"),
    (DESCS["gemm"], BATCHES | {"fused_activation": SOFTMAX}, "Sizes must be 1 before the last two; got {1,2,3,5}"),
    (
        DESCS["gemm"],
        {"fused_activation": directml.ActivationSoftmax1Desc(axes=(4,))},
        "FusedActivation.Axes[0] must be less than 4; got 4",
    ),
    (
        DESCS["gemm"],
        {"fused_activation": replace(SOFTMAX, **FUSED)},
        "InputTensor must not be given; got FLOAT32 {3,5}",
    ),
    (
        DESCS["gemm"],
        {"fused_activation": LOG_SOFTMAX(**FUSED)},
        "be an activation that can be fused; got DML_OPERATOR_ACTIVATION",
    ),
    (DESCS["integer"], {"a_zero_point": tensor("UINT8", 1)}, "must have the same DataType; got INT8 and UINT8"),
    (DESCS["integer"], {"b_zero_point": tensor("INT8", 1)}, "must have the same DataType; got UINT8 and INT8"),
    (DESCS["integer"], {"output": tensor("INT32", 1, 3, 5)}, "must have the same DimensionCount; got 2, 2 and 3"),
    (DESCS["integer"], {"output": tensor("INT32", 5, 3)}, "OutputTensor.Sizes must be {3,5}; got {5,3}"),
    (
        DESCS["integer"],
        {"a_zero_point": tensor("INT8", 1, 3)},
        "AZeroPointTensor.Sizes must have one element, or one for",
    ),
    (
        DESCS["integer"],
        {"b_zero_point": tensor("UINT8", 5, 1)},
        "for each column of BTensor, with {1,5} as the last Sizes",
    ),
    (
        DESCS["to float"],
        {"b": tensor("UINT8", 4, 5)},
        "ATensor and BTensor must have the same ...; got INT8 and UINT8",
    ),
    (DESCS["to float"], {"b_scale": tensor("FLOAT16", 1)}, "have the same DataType; got FLOAT32, FLOAT16 and FLOAT32"),
    (DESCS["to float"], {"b_scale": f32(1, 1)}, "AScaleTensor and BScaleTensor must have the same ...; got 1 and 2"),
    (
        DESCS["to float"],
        {"bias": f32(1, 5)},
        "BiasTensor and OutputTensor must have the same Sizes; got {1,5} and {3,5}",
    ),
    (DESCS["to float"], {"bias": f32(5)}, "must have the same DimensionCount; got 2, 2, 1 and 2"),
    (
        DESCS["to float"],
        {"bias": tensor("FLOAT16", 3, 5)},
        "have the same DataType; got FLOAT32, FLOAT32, FLOAT16 and",
    ),
    (DESCS["to float"], {"b_scale": f32(3)}, "BScaleTensor.Sizes must have ... one for each column of ...; got {3}"),
    (DESCS["quantized"], {"output_zero_point": tensor("INT8", 1)}, "must have the same DataType; got UINT8 and INT8"),
    (
        DESCS["quantized"],
        {"b_zero_point": tensor("INT8", 1, 1)},
        "must have the same DimensionCount; got 1, 1, 2 and 1",
    ),
    (DESCS["quantized"], {"output_scale": f32(5)}, "OutputScaleTensor.Sizes must ... for each row of ...; got {5}"),
    (
        DESCS["quantized"],
        {"b": tensor("INT8", 5, 5)},
        "BTensor must have 4 rows, as many as ATensor ...; got shape {5",
    ),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("gemm", {"a": np.ones((2, 2), np.int32)}, InvalidType, "a must be of a floating type; got int32"),
    ("gemm", {"b": HALVES}, InvalidType, "b must be of float32, as a is; got float16"),
    ("gemm", {"c": HALVES}, InvalidType, "c must be of float32, as a is; got float16"),
    ("gemm", {"a": np.ones(2, np.float32)}, InvalidDesc, "a must have at least 2 dimensions; got 1"),
    ("gemm", {"b": np.ones(2, np.float32)}, InvalidDesc, "b must have at least 2 dimensions; got 1"),
    (
        "gemm",
        {"a": np.ones((2, 2, 2), np.float32), "b": np.ones((3, 2, 2), np.float32)},
        InvalidDesc,
        "a and b must have shapes that broadcast before the last two dimensions; got (2, 2, 2) and (3, 2, 2)",
    ),
    ("gemm", {"c": np.ones((3, 1, 2), np.float32)}, InvalidDesc, "to (2, 2), that of the product; got (3, 1, 2)"),
    ("gemm", {"c": np.ones(3, np.float32)}, InvalidDesc, "c must have a shape that broadcasts to ...; got (3,)"),
    ("gemm", {"alpha": np.ones(2, np.float32)}, InvalidDesc, "alpha must be a scalar; got shape (2,)"),
    (
        "gemm",
        {"transpose_a": TRANSPOSE},
        InvalidType,
        "transpose_a must be true or false; got directml.MatrixTransform.",
    ),
    ("gemm", {"precision": 2}, InvalidType, "precision must be 'default', ...; got 2"),
    ("gemm", {"precision": "exact"}, InvalidType, "jax.lax.Precision or a jax.lax.DotAlgorithmPreset; got 'exact'"),
    (
        "gemm",
        {"fused_activation": directml.ActivationReluDesc(output=f32(2, 2))},
        InvalidDesc,
        "fused_activation must be an activation without tensors; got DML_OPERATOR_ACTIVATION_RELU with output",
    ),
    (
        "gemm",
        {"fused_activation": directml.ElementWiseAbsDesc(input=f32(2), output=f32(2))},
        InvalidDesc,
        "fused_activation must be an activation without tensors; got DML_OPERATOR_ELEMENT_WISE_ABS",
    ),
    (
        "matrix_multiply_integer",
        {"a": np.ones((2, 2), np.float32)},
        InvalidType,
        "a must be of an integer type; got float32",
    ),
    ("matrix_multiply_integer", {"b": np.ones((2, 3), np.int16)}, InvalidType, "b must be int8 or uint8; got int16"),
    (
        "matrix_multiply_integer",
        {"a_zero_point": np.array(1, np.uint8)},
        InvalidType,
        "must be of int8, as a is; got uint8",
    ),
    (
        "matrix_multiply_integer",
        {"b_zero_point": np.float32(1)},
        InvalidType,
        "must be of an integer type; got float32",
    ),
    (
        "matrix_multiply_integer",
        {"b_zero_point": np.ones((2, 1, 1), np.int8)},
        InvalidDesc,
        "b_zero_point must have one element, or one for each of the 1 columns of b; got shape (2, 1, 1)",
    ),
    (
        "matrix_multiply_integer_to_float",
        {"a_scale": np.array(2)},
        InvalidType,
        "a_scale must be of a floating type; got int",
    ),
    (
        "matrix_multiply_integer_to_float",
        {"b_scale": np.float16(2)},
        InvalidType,
        "b_scale must be of float32, as a_scale is; got float16",
    ),
    (
        "matrix_multiply_integer_to_float",
        {"bias": HALVES},
        InvalidType,
        "bias must be of float32, as a_scale is; got float16",
    ),
    (
        "matrix_multiply_integer_to_float",
        {"bias": np.ones(2, np.float32)},
        InvalidDesc,
        "bias must have a shape that broadcasts to (4, 1)",
    ),
    (
        "matrix_multiply_integer_to_float",
        {"a": np.ones((4, 2), bool)},
        InvalidType,
        "a must be of an integer type; got bool",
    ),
    *(
        [("matrix_multiply_integer_to_float", {"a": np.ones((4, 2), np.int64)}, InvalidType, "at most 32 bits")]
        if X64
        else []
    ),
    (
        "quantized_linear_matrix_multiply",
        {"a": np.ones((4, 2), np.int16)},
        InvalidType,
        "a must be int8 or uint8; got int16",
    ),
    (
        "quantized_linear_matrix_multiply",
        {"output_scale": np.array(1)},
        InvalidType,
        "output_scale must be of a floating type; got int",
    ),
    (
        "quantized_linear_matrix_multiply",
        {"output_zero_point": np.array(1, np.uint8), "dtype": "int8"},
        InvalidType,
        "output_zero_point must be of int8, as the output is; got uint8",
    ),
    (
        "quantized_linear_matrix_multiply",
        {"dtype": "int32"},
        InvalidType,
        "output must be of an integer type of at most ...; got int32",
    ),
]
