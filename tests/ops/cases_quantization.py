"""The linear quantization: the pages' tables and members, the formulas, and cases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, ones
from formulas import Arr
from pages import FLOATS, INTEGERS_32, merge, of_all

import dmljax
from dmljax import DataType, TensorDesc

# The tables of level 6_2 of the linear (de)quantization make ZeroPointTensor optional, are otherwise those of 6_0, and
# are left out.
SUPPORT = merge(
    of_all(
        "ELEMENT_WISE_DEQUANTIZE_LINEAR",
        {
            "1_0": [
                ("InputTensor", 4, 4, "UINT8"),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, "UINT8"),
                ("OutputTensor", 4, 4, "FLOAT32"),
            ],
            "2_1": [
                ("InputTensor", 4, 4, INTEGERS_32),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, INTEGERS_32),
                ("OutputTensor", 4, 4, "FLOAT32"),
            ],
            "3_0": [
                ("InputTensor", 1, 8, INTEGERS_32),
                ("ScaleTensor", 1, 8, "FLOAT32"),
                ("ZeroPointTensor", 1, 8, INTEGERS_32),
                ("OutputTensor", 1, 8, "FLOAT32"),
            ],
            "6_0": [
                ("InputTensor", 1, 8, INTEGERS_32),
                ("ScaleTensor", 1, 8, FLOATS),
                ("ZeroPointTensor", 1, 8, INTEGERS_32),
                ("OutputTensor", 1, 8, FLOATS),
            ],
        },
    ),
    of_all(
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
        {
            "4_0": [
                ("ATensor", 1, 8, "INT8 UINT8"),
                ("AScaleTensor", 1, 8, "FLOAT32"),
                ("AZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("BTensor", 1, 8, "INT8 UINT8"),
                ("BScaleTensor", 1, 8, "FLOAT32"),
                ("BZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputScaleTensor", 1, 8, "FLOAT32"),
                ("OutputZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputTensor", 1, 8, "INT8 UINT8"),
            ]
        },
    ),
    of_all(
        "ELEMENT_WISE_QUANTIZE_LINEAR",
        {
            "1_0": [
                ("InputTensor", 4, 4, "FLOAT32"),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, "UINT8"),
                ("OutputTensor", 4, 4, "UINT8"),
            ],
            "2_1": [
                ("InputTensor", 4, 4, "FLOAT32 INT32"),
                ("ScaleTensor", 4, 4, "FLOAT32"),
                ("ZeroPointTensor", 4, 4, "INT8 UINT8"),
                ("OutputTensor", 4, 4, "INT8 UINT8"),
            ],
            "3_0": [
                ("InputTensor", 1, 8, "FLOAT32 INT32"),
                ("ScaleTensor", 1, 8, "FLOAT32"),
                ("ZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputTensor", 1, 8, "INT8 UINT8"),
            ],
            "6_0": [
                ("InputTensor", 1, 8, "FLOAT32 FLOAT16 INT32"),
                ("ScaleTensor", 1, 8, FLOATS),
                ("ZeroPointTensor", 1, 8, "INT8 UINT8"),
                ("OutputTensor", 1, 8, "INT8 UINT8"),
            ],
        },
    ),
)

MEMBERS = merge(
    of_all(
        "ELEMENT_WISE_QUANTIZE_LINEAR ELEMENT_WISE_DEQUANTIZE_LINEAR",
        "InputTensor ScaleTensor ZeroPointTensor OutputTensor",
    ),
    of_all(
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
        "ATensor AScaleTensor AZeroPointTensor BTensor BScaleTensor BZeroPointTensor OutputScaleTensor"
        " OutputZeroPointTensor OutputTensor",
    ),
)

# Formulas


def quantized(input: Arr, scale: Arr, zero_point: Arr | None, dtype: Any) -> Arr:
    limits = np.iinfo(dtype)
    steps = np.rint(input.astype(np.float32) / scale.astype(np.float32))
    zero = 0 if zero_point is None else zero_point.astype(np.float64)
    return np.clip(np.nan_to_num(steps).astype(np.float64) + zero, limits.min, limits.max).astype(dtype)


def dequantized(input: Arr, scale: Arr, zero_point: Arr | None = None) -> Arr:
    zero = 0 if zero_point is None else zero_point.astype(np.int64)
    return (input.astype(np.int64) - zero).astype(np.float64) * scale.astype(np.float64)


def quantized_linear_add(desc: Any, *, a: Any, b: Any, output_scale: Any, output_zero_point: Any, **others: Any) -> Any:
    total = dequantized(a, others["a_scale"], others["a_zero_point"]) + dequantized(
        b, others["b_scale"], others["b_zero_point"]
    )
    return quantized(total, output_scale, output_zero_point, desc.output.dtype)


# Descriptors


def quantize_linear_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    sizes = ones(rank, 2, 3, 4)
    input, output = (TensorDesc(types[field], sizes) for field in ("input", "output"))
    scale = TensorDesc(DataType.FLOAT32, sizes) if types["input"] is DataType.INT32 else input
    return dmljax.ElementWiseQuantizeLinearDesc(input=input, scale=scale, zero_point=output, output=output)


def dequantize_linear_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    input, scale = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("input", "scale"))
    return dmljax.ElementWiseDequantizeLinearDesc(input=input, scale=scale, zero_point=input, output=scale)


def quantized_linear_add_desc(types: Mapping[str, DataType], rank: int) -> dmljax.Operator:
    a, b = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("a", "b"))
    scale, a_zero, b_zero = (
        TensorDesc(data_type, ones(rank)) for data_type in (DataType.FLOAT32, a.data_type, b.data_type)
    )
    return dmljax.ElementWiseQuantizedLinearAddDesc(
        a=a,
        a_scale=scale,
        a_zero_point=a_zero,
        b=b,
        b_scale=scale,
        b_zero_point=b_zero,
        output_scale=scale,
        output_zero_point=a_zero,
        output=a,
    )


CASES = {
    "ELEMENT_WISE_QUANTIZE_LINEAR": Case(
        ("input", "output"),
        quantize_linear_desc,
        lambda desc, input, scale, zero_point: quantized(input, scale, zero_point, desc.output.dtype),
        scales=("scale",),
    ),
    "ELEMENT_WISE_DEQUANTIZE_LINEAR": Case(
        ("input", "scale"),
        dequantize_linear_desc,
        lambda desc, input, scale, zero_point: dequantized(input, scale, zero_point),
        is_exact=False,
        domain=(0.2, 0.9),
        scales=("scale",),
    ),
    "ELEMENT_WISE_QUANTIZED_LINEAR_ADD": Case(
        ("a", "b"), quantized_linear_add_desc, quantized_linear_add, scales=("a_scale", "b_scale", "output_scale")
    ),
}
