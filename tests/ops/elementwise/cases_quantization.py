"""Linear quantization: the pages' tables and members, the formulas, and cases.

QUANTIZE and DEQUANTIZE, whose pages are largely "TBD", are ONNX's QuantizeLinear and DequantizeLinear here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, QuantizationType, TensorDesc

# The 6_2 tables of linear (de)quantization make ZeroPointTensor optional, repeat 6_0 otherwise, and are left out.
SUPPORT = tables(
    """
    ELEMENT_WISE_DEQUANTIZE_LINEAR: InputTensor ZeroPointTensor; ScaleTensor OutputTensor
        1_0 4 UINT8; 4 FLOAT32
        2_1 4 INTEGERS_32; 4 FLOAT32
        3_0 1-8 INTEGERS_32; 1-8 FLOAT32
        6_0 1-8 INTEGERS_32; 1-8 FLOATS
    ELEMENT_WISE_QUANTIZED_LINEAR_ADD: ATensor AZeroPointTensor BTensor BZeroPointTensor OutputZeroPointTensor
            OutputTensor; AScaleTensor BScaleTensor OutputScaleTensor
        4_0 1-8 INT8 UINT8; 1-8 FLOAT32
    ELEMENT_WISE_QUANTIZE_LINEAR: InputTensor; ScaleTensor; ZeroPointTensor OutputTensor
        1_0 4 FLOAT32; 4 FLOAT32; 4 UINT8
        2_1 4 FLOAT32 INT32; 4 FLOAT32; 4 INT8 UINT8
        3_0 1-8 FLOAT32 INT32; 1-8 FLOAT32; 1-8 INT8 UINT8
        6_0 1-8 FLOATS INT32; 1-8 FLOATS; 1-8 INT8 UINT8
    QUANTIZE: InputTensor; QuantizationTensors; OutputTensor
        6_3 1-8 FLOATS; 1-8 FLOATS INT8 INT4 UINT8 UINT4; 1-8 INT8 INT4 UINT8 UINT4
    DEQUANTIZE: InputTensor; QuantizationTensors; OutputTensor
        6_3 1-8 INT8 INT4 UINT8 UINT4; 1-8 FLOATS INT8 INT4 UINT8 UINT4; 1-8 FLOATS
    DYNAMIC_QUANTIZE_LINEAR: InputTensor; OutputTensor OutputZeroPointTensor; OutputScaleTensor
        4_0 1-8 FLOATS; 1-8 INT8 UINT8; 1-8 FLOAT32
    """
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
    of_all(
        "QUANTIZE DEQUANTIZE",
        "InputTensor QuantizationType QuantizationTensorCount QuantizationTensors OutputTensor",
    ),
    of_all("DYNAMIC_QUANTIZE_LINEAR", "InputTensor OutputTensor OutputScaleTensor OutputZeroPointTensor"),
)

# Formulas


def limits(dtype: Any) -> tuple[int, int]:
    """The smallest and the largest integer of a type, which may have 4 bits."""
    kind, bits = np.dtype(dtype).name.split("int")
    return (0, 2 ** int(bits) - 1) if kind else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)


def quantized(input: Arr, scale: Arr, zero_point: Arr | None, dtype: Any) -> Arr:
    least, most = limits(dtype)
    steps = np.rint(input.astype(np.float32) / scale.astype(np.float32))
    zero = 0 if zero_point is None else zero_point.astype(np.float64)
    total = np.nan_to_num(steps).astype(np.float64) + zero
    return np.clip(total, least, most).astype(np.int32).astype(dtype)


def dequantized(input: Arr, scale: Arr, zero_point: Arr | None = None) -> Arr:
    zero = 0 if zero_point is None else zero_point.astype(np.int64)
    return (input.astype(np.int64) - zero).astype(np.float64) * scale.astype(np.float64)


def quantized_linear_add(desc: Any, *, a: Any, b: Any, output_scale: Any, output_zero_point: Any, **others: Any) -> Any:
    total = dequantized(a, others["a_scale"], others["a_zero_point"]) + dequantized(
        b, others["b_scale"], others["b_zero_point"]
    )
    return quantized(total, output_scale, output_zero_point, desc.output.dtype)


def for_each_element(parameter: Arr, sizes: tuple[int, ...]) -> Arr:
    """Repeats a parameter with one element per block, to the sizes of the tensor."""
    for axis, size in enumerate(sizes):
        parameter = np.repeat(parameter, size // parameter.shape[axis], axis)
    return parameter


def in_blocks(formula: Any, input: Arr, parameters: Mapping[str, Arr], **attributes: Any) -> Any:
    return formula(
        input, *(for_each_element(parameter, input.shape) for parameter in parameters.values()), **attributes
    )


def dynamically_quantized(input: Arr, dtype: Any) -> tuple[Any, Any, Any]:
    """The page's formula for finite ranges, with ONNX's 0 in the range and rounded zero point, in float32 steps."""
    least, most = limits(dtype)
    lowest = np.minimum(input.min(), 0).astype(np.float32)
    highest = np.maximum(input.max(), 0).astype(np.float32)
    scale = (highest - lowest) / np.float32(most - least)
    scale = np.float32(1) if highest == lowest else np.maximum(scale, np.finfo(np.float32).tiny)
    zero = np.clip(least - np.rint(lowest / scale), least, most).astype(np.int32).astype(dtype)
    return quantized(input, np.asarray(scale), zero, dtype), scale, zero


# Descriptors


def quantize_linear_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    sizes = ones(rank, 2, 3, 4)
    input, output = (TensorDesc(types[field], sizes) for field in ("input", "output"))
    scale = TensorDesc(DataType.FLOAT32, sizes) if types["input"] is DataType.INT32 else input
    return directml.ElementWiseQuantizeLinearDesc(input=input, scale=scale, zero_point=output, output=output)


def dequantize_linear_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    input, scale = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("input", "scale"))
    return directml.ElementWiseDequantizeLinearDesc(input=input, scale=scale, zero_point=input, output=scale)


def quantized_linear_add_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    a, b = (TensorDesc(types[field], ones(rank, 2, 3, 4)) for field in ("a", "b"))
    scale, a_zero, b_zero = (
        TensorDesc(data_type, ones(rank)) for data_type in (DataType.FLOAT32, a.data_type, b.data_type)
    )
    return directml.ElementWiseQuantizedLinearAddDesc(
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


def quantize_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return blockwise_desc(directml.QuantizeDesc, types, rank, scale="input", zero_point="output")


def dequantize_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return blockwise_desc(directml.DequantizeDesc, types, rank, scale="output", zero_point="input")


def blockwise_desc(operator: Any, types: Any, rank: int, *, scale: str, zero_point: str) -> directml.Operator:
    """A descriptor with scales for blocks of 2 x 2 elements and zero points for 6 x 4; at rank 1, for 2 and 4."""
    return operator(  # type: ignore[no-any-return]
        input=TensorDesc(types["input"], ones(rank, 2, 6, 4)),
        quantization_type=QuantizationType.SCALE_ZERO_POINT,
        quantization_tensors=(
            TensorDesc(types[scale], ones(rank, 2, 3, 2)),
            TensorDesc(types[zero_point], ones(rank, 2, 1, 1)),
        ),
        output=TensorDesc(types["output"], ones(rank, 2, 6, 4)),
    )


def dynamic_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.DynamicQuantizeLinearDesc(
        input=TensorDesc(types["input"], ones(rank, 2, 3, 4)),
        output=TensorDesc(types["output"], ones(rank, 2, 3, 4)),
        output_scale=TensorDesc(DataType.FLOAT32, ones(rank)),
        output_zero_point=TensorDesc(types["output"], ones(rank)),
    )


class DynamicCase(Case):
    """A case of finite numbers, whose range is meaningful; the family's own tests use other numbers."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> dict[str, Arr]:
        tensor = desc.tensors(is_input=True)["input"]
        lowest, highest = np.sort(rng.standard_normal(2)) * 100
        return {"input": rng.uniform(lowest, highest, tensor.sizes).astype(tensor.dtype)}


SCALES = ("quantization_tensors[0]",)
CASES = {
    "QUANTIZE": Case(
        ("input", "output"),
        quantize_desc,
        lambda desc, input, **parameters: in_blocks(quantized, input, parameters, dtype=desc.output.dtype),
        scales=SCALES,
    ),
    "DEQUANTIZE": Case(
        ("input", "output"),
        dequantize_desc,
        lambda desc, input, **parameters: in_blocks(dequantized, input, parameters),
        scales=SCALES,
    ),
    "DYNAMIC_QUANTIZE_LINEAR": DynamicCase(
        ("input", "output"),
        dynamic_desc,
        lambda desc, input: dynamically_quantized(input, desc.output.dtype),
        domain=(-0.9, 0.9),
    ),
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


# Refusals

SCALAR = np.array(1, np.float32)
BYTES, UBYTES = np.ones(2, np.int8), np.ones(2, np.uint8)
SIZES = (1, 1, 2, 3)
FLOATS, HALF, BYTE, UBYTE = f32(*SIZES), *(tensor(name, *SIZES) for name in ("FLOAT16", "INT8", "UINT8"))
QUANTIZE = directml.ElementWiseQuantizeLinearDesc(input=FLOATS, scale=FLOATS, zero_point=BYTE, output=BYTE)
DEQUANTIZE = directml.ElementWiseDequantizeLinearDesc(input=UBYTE, scale=FLOATS, zero_point=UBYTE, output=FLOATS)
ADD = directml.ElementWiseQuantizedLinearAddDesc(
    **dict.fromkeys(("a", "b", "output"), tensor("INT8", 2, 3)),
    **dict.fromkeys(("a_scale", "b_scale", "output_scale"), f32(1, 1)),
)


BLOCK_SCALES, ONE_BLOCK, BLOCKS = f32(2, 2), f32(1, 1), (f32(2, 2), tensor("INT4", 1, 1))
IN_BLOCKS: dict[str, Any] = {"quantization_type": "SCALE_ZERO_POINT", "quantization_tensors": BLOCKS}
QUANTIZE_BLOCKS = directml.QuantizeDesc(input=f32(2, 4), output=tensor("INT4", 2, 4), **IN_BLOCKS)
DEQUANTIZE_BLOCKS = directml.DequantizeDesc(input=tensor("INT4", 2, 4), output=f32(2, 4), **IN_BLOCKS)
DYNAMIC = directml.DynamicQuantizeLinearDesc(
    input=f32(2, 4), output=tensor("UINT8", 2, 4), output_scale=ONE_BLOCK, output_zero_point=tensor("UINT8", 1, 1)
)


def with_tensors(*tensors: TensorDesc) -> dict[str, Any]:
    kind = "SCALE" if len(tensors) == 1 else "SCALE_ZERO_POINT"
    return {"quantization_type": kind, "quantization_tensors": tensors}


ROWS, INT4 = np.ones((2, 4), np.float32), np.zeros(16, "int4")

CALLS: dict[str, dict[str, Any]] = {
    "element_wise_quantize_linear": {"input": np.ones(2, np.float32), "scale": SCALAR},
    "element_wise_dequantize_linear": {"input": UBYTES, "scale": SCALAR},
    "element_wise_quantized_linear_add": {"a": BYTES, "a_scale": SCALAR, "a_zero_point": None, "output_scale": SCALAR}
    | {"b": UBYTES, "b_scale": SCALAR, "b_zero_point": None},
    "quantize": {"input": ROWS, "scale": 1.0},
    "dequantize": {"input": INT4, "scale": 1.0},
    "dynamic_quantize_linear": {"input": ROWS},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (QUANTIZE, {"input": tensor("INT32", *SIZES), "scale": HALF}, "if InputTensor.DataType is INT32; got FLOAT16"),
    (QUANTIZE, {"input": HALF}, "must be FLOAT16 if InputTensor.DataType is FLOAT16; got FLOAT32"),
    (QUANTIZE, {"zero_point": UBYTE}, "ZeroPointTensor and OutputTensor must have the same ...; got UINT8 and"),
    (QUANTIZE, {"scale": f32(1, 1, 1, 1)}, "ScaleTensor, ZeroPointTensor and OutputTensor must have the same"),
    (QUANTIZE, {"zero_point": tensor("INT8", 6)}, "must have the same DimensionCount; got 4, 4, 1 and 4"),
    (DEQUANTIZE, {"zero_point": BYTE}, "InputTensor and ZeroPointTensor must have the same ...; got UINT8 and"),
    (DEQUANTIZE, {"output": HALF}, "ScaleTensor and OutputTensor must have the same ...; got FLOAT32 and FLOAT16"),
    (DEQUANTIZE, {"scale": f32(1, 1, 2, 1)}, "ZeroPointTensor and OutputTensor must have the same Sizes; got "),
    (DEQUANTIZE, {"output": f32(2, 3)}, "ZeroPointTensor and OutputTensor must have the same DimensionCount; got "),
    (ADD, {"a_scale": f32(1, 3)}, "AScaleTensor.Sizes must each be 1; got {1,3}"),
    (ADD, {"b_zero_point": tensor("INT8", 2, 3)}, "BZeroPointTensor.Sizes must each be 1; got {2,3}"),
    (ADD, {"a_zero_point": tensor("UINT8", 1, 1)}, "ATensor and AZeroPointTensor must have the same DataType"),
    (ADD, {"output_zero_point": tensor("UINT8", 1, 1)}, "OutputZeroPointTensor must have the same ...; got INT8"),
    (ADD, {"b": tensor("INT8", 1, 3)}, "must have the same Sizes; got {2,3}, {1,3} and {2,3}"),
    (ADD, {"output_scale": f32(1)}, "must have the same DimensionCount; got 2, 2, 2, 2, 1 and 2"),
    (
        QUANTIZE_BLOCKS,
        {"quantization_type": "NONE"},
        "QuantizationType must be SCALE or SCALE_ZERO_POINT; got NONE",
    ),
    (QUANTIZE_BLOCKS, {"quantization_tensors": (ONE_BLOCK,)}, "must have length 2 with SCALE_ZERO_POINT; got 1"),
    (
        DEQUANTIZE_BLOCKS,
        {"quantization_type": "SCALE"},
        "QuantizationTensors must have length 1 with SCALE; got 2",
    ),
    (
        QUANTIZE_BLOCKS,
        with_tensors(tensor("FLOAT16", 1, 1)),
        "must be FLOAT32, as InputTensor.DataType is; got FLOAT16",
    ),
    (DEQUANTIZE_BLOCKS, with_tensors(tensor("FLOAT16", 1, 1)), "be FLOAT32, as OutputTensor.DataType is; got FLOAT16"),
    (
        QUANTIZE_BLOCKS,
        with_tensors(ONE_BLOCK, tensor("UINT4", 1, 1)),
        "must be INT4, as OutputTensor.DataType is; got UINT4",
    ),
    (
        DEQUANTIZE_BLOCKS,
        with_tensors(ONE_BLOCK, tensor("INT8", 1, 1)),
        "must be INT4, as InputTensor.DataType is; got INT8",
    ),
    (
        QUANTIZE_BLOCKS,
        with_tensors(f32(2, 3), tensor("INT4", 1, 8)),
        "got {2,3}...[1].Sizes must divide ...; got {1,8}",
    ),
    (QUANTIZE_BLOCKS, {"output": tensor("INT4", 4, 2)}, "must have the same Sizes; got {2,4} and {4,2}"),
    (DEQUANTIZE_BLOCKS, with_tensors(f32(2)), "must have the same DimensionCount; got 2, 1 and 2"),
    (DYNAMIC, {"output": tensor("INT8", 2, 4)}, "OutputZeroPointTensor must have the same DataType; got"),
    (DYNAMIC, {"output": tensor("UINT8", 8, 1)}, "InputTensor and OutputTensor must have the same Sizes; got"),
    (DYNAMIC, {"output_scale": f32(1, 4)}, "OutputScaleTensor.Sizes must each be 1; got {1,4}"),
    (DYNAMIC, {"output_zero_point": tensor("UINT8", 2, 1)}, "OutputZeroPointTensor.Sizes must each be 1; got"),
    (DYNAMIC, {"output_scale": f32(1)}, "must have the same DimensionCount; got 2, 2, 1 and 2"),
]

REFUSED_CALLS: list[RefusedCall] = [
    (
        "element_wise_quantize_linear",
        {"input": UBYTES > 0},
        InvalidType,
        "must be of an integer or floating type; got bool",
    ),
    ("element_wise_quantize_linear", {"scale": np.array(2)}, InvalidType, "scale must be of a floating type; got int"),
    (
        "element_wise_quantize_linear",
        {"zero_point": SCALAR},
        InvalidType,
        "zero_point must be of an integer type; got float32",
    ),
    (
        "element_wise_quantize_linear",
        {"dtype": "int32"},
        InvalidType,
        "be of an integer type of at most 16 bits; got int32",
    ),
    (
        "element_wise_quantize_linear",
        {"dtype": "int8", "zero_point": np.array(1, np.uint8)},
        InvalidType,
        "zero_point must be of int8, as the output is; got uint8",
    ),
    (
        "element_wise_quantize_linear",
        {"scale": np.ones(3, np.float32)},
        InvalidDesc,
        "that broadcast; got (2,), (3,) and ()",
    ),
    ("element_wise_dequantize_linear", {"input": SCALAR}, InvalidType, "input must be of an integer type; got float32"),
    ("element_wise_dequantize_linear", {"scale": BYTES}, InvalidType, "scale must be of a floating type; got int8"),
    (
        "element_wise_dequantize_linear",
        {"zero_point": BYTES},
        InvalidType,
        "zero_point must be of uint8, as input is; got int8",
    ),
    (
        "element_wise_dequantize_linear",
        {"zero_point": -1},
        InvalidDesc,
        "be a whole number in [0, 255] to fit uint8; got -1",
    ),
    (
        "element_wise_dequantize_linear",
        {"zero_point": np.ones(3, np.uint8)},
        InvalidDesc,
        "input, zero_point and scale must have shapes that broadcast; got (2,), (3,) and ()",
    ),
    ("element_wise_quantized_linear_add", {"a": SCALAR}, InvalidType, "a must be of an integer type; got float32"),
    (
        "element_wise_quantized_linear_add",
        {"b_scale": np.array(1)},
        InvalidType,
        "b_scale must be of a floating type; got int",
    ),
    ("element_wise_quantized_linear_add", {"a_zero_point": UBYTES}, InvalidType, "must be of int8, as a is; got uint8"),
    (
        "element_wise_quantized_linear_add",
        {"output_zero_point": BYTES, "dtype": "uint8"},
        InvalidType,
        "output_zero_point must be of uint8, as the output is; got int8",
    ),
    (
        "element_wise_quantized_linear_add",
        {"b": np.ones(3, np.uint8)},
        InvalidDesc,
        "shapes that broadcast; got (2,) and (3,)",
    ),
    ("quantize", {"dtype": "int32"}, InvalidType, "the output must be ...; got int32"),
    ("quantize", {"dtype": "int2"}, InvalidType, "dtype must be bool, an integer of "),
    ("quantize", {"input": ROWS > 0}, InvalidType, "input must be of an integer or floating type"),
    ("quantize", {"input": INT4}, InvalidType, "input must be bool, an integer of 8 to"),
    ("quantize", {"zero_point": INT4[0], "dtype": "uint4"}, InvalidType, "be of uint4, as the output is; got int4"),
    ("dequantize", {"zero_point": np.array(0, np.int8)}, InvalidType, "must be of int4, as input is; got int8"),
    ("dequantize", {"input": ROWS}, InvalidType, "input must be of an integer type; got float"),
    ("dequantize", {"scale": np.array(2)}, InvalidType, "scale must be of a floating type; got"),
    (
        "dynamic_quantize_linear",
        {"input": np.ones(4, np.int8)},
        InvalidType,
        "input must be of a floating type; got int8",
    ),
    ("dynamic_quantize_linear", {"dtype": "int32"}, InvalidType, "an integer type of at most 16 bits; got int32"),
    # Others do not take 4-bit integers.
    ("join", {"inputs": [INT4]}, InvalidType, "inputs[0] must be bool, an integer of 8 ...; got int4"),
]
