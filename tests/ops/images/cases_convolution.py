"""CONVOLUTION, CONVOLUTION_INTEGER and QUANTIZED_LINEAR_CONVOLUTION: the pages' tables, sums in loops, and cases."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import (
    ConvolutionDirection,
    ConvolutionMode,
    DataType,
    InvalidDesc,
    InvalidType,
    TensorDesc,
    Unsupported,
)

BYTES = "INT8 UINT8"


SUPPORT = tables(
    """
    CONVOLUTION: InputTensor FilterTensor BiasTensor OutputTensor
        1_0 4-5 FLOATS
        4_0 3-5 FLOATS
    CONVOLUTION_INTEGER: InputTensor FilterTensor; InputZeroPointTensor FilterZeroPointTensor; OutputTensor
        2_1 4 INT8 UINT8; 4 INT8 UINT8; 4 INT32
        4_0 3-4 INT8 UINT8; 1-4 INT8 UINT8; 3-4 INT32
    QUANTIZED_LINEAR_CONVOLUTION: InputTensor FilterTensor OutputTensor; InputScaleTensor OutputScaleTensor;
            InputZeroPointTensor FilterZeroPointTensor OutputZeroPointTensor; FilterScaleTensor; BiasTensor
        2_1 4 INT8 UINT8; 4 FLOAT32; 4 INT8 UINT8; 4 FLOAT32; 4 INT32
        4_0 3-4 INT8 UINT8; 1-4 FLOAT32; 1-4 INT8 UINT8; 3-4 FLOAT32; 3-4 INT32
        5_2 3-4 INT8 UINT8; 1-4 FLOAT32; 1-4 INT8 UINT8; 1-4 FLOAT32; 3-4 INT32
    """
)

MEMBERS = merge(
    of_all(
        "CONVOLUTION",
        "InputTensor FilterTensor BiasTensor OutputTensor Mode Direction DimensionCount Strides Dilations StartPadding"
        " EndPadding OutputPadding GroupCount FusedActivation",
    ),
    of_all(
        "CONVOLUTION_INTEGER",
        "InputTensor InputZeroPointTensor FilterTensor FilterZeroPointTensor OutputTensor DimensionCount Strides"
        " Dilations StartPadding EndPadding GroupCount",
    ),
    of_all(
        "QUANTIZED_LINEAR_CONVOLUTION",
        "InputTensor InputScaleTensor InputZeroPointTensor FilterTensor FilterScaleTensor FilterZeroPointTensor"
        " BiasTensor OutputScaleTensor OutputZeroPointTensor OutputTensor DimensionCount Strides Dilations StartPadding"
        " EndPadding GroupCount",
    ),
)

# Sums in loops


def forward_sizes(image: Sequence[int], filter: Sequence[int], space: Mapping[str, Sequence[int]]) -> list[int]:
    """The spatial sizes of a forward convolution, without what OutputPadding appends."""
    rows = zip(image, filter, *(space[name] for name in NAMES), strict=True)
    return [
        (size + before + after - (1 + (window - 1) * dilation)) // stride + 1
        for size, window, stride, dilation, before, after in rows
    ]


def backward_sizes(image: Sequence[int], filter: Sequence[int], space: Mapping[str, Sequence[int]]) -> list[int]:
    """The spatial sizes of a backward convolution, without what OutputPadding appends."""
    rows = zip(image, filter, *(space[name] for name in NAMES), strict=True)
    return [
        (size - 1) * stride + 1 + (window - 1) * dilation - before - after
        for size, window, stride, dilation, before, after in rows
    ]


NAMES = ("strides", "dilations", "start_padding", "end_padding")


def products(
    image: Sequence[int], filter: Sequence[int], windows: Sequence[int], space: Mapping[str, Sequence[int]]
) -> Iterator[tuple[Any, Any, Any]]:
    """The pairs of image and filter elements that meet in each window, outside the padding."""
    strides, dilations, start, _ = (space[name] for name in NAMES)
    for window in itertools.product(*map(range, windows)):
        for element in itertools.product(*map(range, filter)):
            rows = zip(window, element, strides, dilations, start, image, strict=True)
            place = [w * stride + e * dilation - before for w, e, stride, dilation, before, _ in rows]
            if all(0 <= i < size for i, size in zip(place, image, strict=True)):
                yield tuple(place), element, window


def forward(input: Arr, filter: Arr, group_count: int, space: Mapping[str, Sequence[int]]) -> Arr:
    """A cross correlation in the type of its operands."""
    windows = forward_sizes(input.shape[2:], filter.shape[2:], space)
    output = np.zeros((input.shape[0], filter.shape[0], *windows), input.dtype)
    for place, element, window in products(input.shape[2:], filter.shape[2:], windows, space):
        for m in range(filter.shape[0]):
            for c in range(filter.shape[1]):
                channel = m // (filter.shape[0] // group_count) * filter.shape[1] + c
                output[(slice(None), m, *window)] += input[(slice(None), channel, *place)] * filter[(m, c, *element)]
    return output


def backward(
    input: Arr, filter: Arr, group_count: int, space: Mapping[str, Sequence[int]], appended: Sequence[int]
) -> Arr:
    """Adds each element of the input, times the filter, to a window of the output."""
    sizes = [
        size + more
        for size, more in zip(backward_sizes(input.shape[2:], filter.shape[2:], space), appended, strict=True)
    ]
    output = np.zeros((input.shape[0], filter.shape[1] * group_count, *sizes), input.dtype)
    for place, element, window in products(sizes, filter.shape[2:], input.shape[2:], space):
        for c in range(filter.shape[0]):
            for m in range(filter.shape[1]):
                channel = c // (filter.shape[0] // group_count) * filter.shape[1] + m
                output[(slice(None), channel, *place)] += input[(slice(None), c, *window)] * filter[(c, m, *element)]
    return output


def convolve(
    input: Arr,
    filter: Arr,
    bias: Arr | None,
    *,
    mode: ConvolutionMode,
    direction: ConvolutionDirection,
    output_padding: Sequence[int],
    group_count: int,
    output_sizes: Sequence[int],
    **space: Sequence[int],
) -> Arr:
    """Any convolution, in float64."""
    image, weights = input.astype(np.float64), filter.astype(np.float64)
    if mode is ConvolutionMode.CONVOLUTION:
        weights = np.flip(weights, tuple(range(2, filter.ndim)))
    if direction is ConvolutionDirection.FORWARD:
        result = forward(image, weights, group_count, space)
    else:
        result = backward(image, weights, group_count, space, output_padding)
    output = np.zeros(output_sizes)
    output[tuple(map(slice, result.shape))] = result
    if bias is not None:
        output += bias.astype(np.float64).reshape(1, -1, *(1 for _ in filter.shape[2:]))
    return output


def members_of(desc: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(desc, name) for name in (*NAMES, *names)}


def of_desc(desc: Any, input: Arr, filter: Arr, bias: Arr) -> Arr:
    names = ("mode", "direction", "output_padding", "group_count")
    return convolve(input, filter, bias, output_sizes=desc.output.sizes, **members_of(desc, *names))


def of_integers(
    input: Arr, input_zero_point: Any, filter: Arr, filter_zero_point: Any, *, group_count: int, **space: Any
) -> Arr:
    """The sums in int64."""
    image, weights = input.astype(np.int64), filter.astype(np.int64)
    if input_zero_point is not None:
        image = image - np.int64(np.asarray(input_zero_point).item())
    if filter_zero_point is not None:
        weights = weights - np.asarray(filter_zero_point, np.int64).reshape(-1, *(1 for _ in filter.shape[1:]))
    return forward(image, weights, group_count, space)


def of_quantized(
    sums: Arr,
    bias: Any,
    input_scale: Any,
    filter_scale: Any,
    output_scale: Any,
    output_zero_point: Any,
    dtype: Any,
) -> Arr:
    """Converts int64 sums to float32, multiplies by one scale after another, and quantizes."""
    flat = (1, -1, *(1 for _ in sums.shape[2:]))
    total = sums if bias is None else sums + np.asarray(bias, np.int64).reshape(flat)
    product = total.astype(np.float32) * np.float32(np.asarray(input_scale).item())
    product = product * np.asarray(filter_scale, np.float32).reshape(flat)
    steps: Arr = np.rint(product / np.float32(np.asarray(output_scale).item()))
    zero = 0 if output_zero_point is None else int(np.asarray(output_zero_point).item())
    limits = np.iinfo(dtype)
    result: Arr = np.clip(steps.astype(np.float64) + zero, limits.min, limits.max).astype(dtype)
    return result


# Descriptors


def space_of(rank: int) -> dict[str, tuple[int, ...]]:
    spatial = rank - 2
    return {
        "strides": ones(spatial, 1, 2),
        "dilations": ones(spatial, 2, 1),
        "start_padding": (0,) * (spatial - 1) + (1,),
        "end_padding": (0,) * (spatial - 2) + (1, 2)[-spatial:],
    }


def convolution_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    # No table has fewer than 3 dimensions, so these are not valid descriptors.
    spatial, data_type = rank - 2, types["input"]
    space: dict[str, Any]
    is_forward = rank != 4
    if spatial < 1:
        sizes, filter, output, space = (2,) * rank, (2,) * rank, (2,) * rank, dict.fromkeys(NAMES, ())
    else:
        space, image, window = space_of(rank), ones(spatial, 4, 5), ones(spatial, 2, 3)
        sizes, filter = (2, 4, *image), (6, 2, *window) if is_forward else (4, 3, *window)
        output_space = (forward_sizes if is_forward else backward_sizes)(image, window, space)
        output = (2, 6, *output_space[:-1], output_space[-1] + 1)
    return directml.ConvolutionDesc(
        input=TensorDesc(data_type, sizes),
        filter=TensorDesc(data_type, filter),
        bias=TensorDesc(data_type, (1, 6, *ones(rank)[2:]) if spatial > 0 else sizes),
        output=TensorDesc(data_type, output),
        mode=ConvolutionMode(rank % 2),
        direction=ConvolutionDirection(not is_forward),
        output_padding=(*(0 for _ in range(spatial - 1)), *(1 for _ in range(min(spatial, 1)))),
        group_count=2,
        **space,
    )


def integer_tensors(types: Mapping[str, DataType], rank: int) -> tuple[dict[str, Any], tuple[int, ...], Any]:
    """The tensors of an integer convolution with a zero point per filter, its output's sizes, and its arrays."""
    spatial = rank - 2
    space: dict[str, Any]
    if spatial < 1:
        sizes, filter, output, space = (2,) * rank, (2,) * rank, (2,) * rank, dict.fromkeys(NAMES, ())
    else:
        space, image, window = space_of(rank), ones(spatial, 4, 5), ones(spatial, 2, 3)
        sizes, filter = (2, 4, *image), (6, 2, *window)
        output = (2, 6, *forward_sizes(image, window, space))
    tensors = {
        "input": TensorDesc(types["input"], sizes),
        "input_zero_point": TensorDesc(types["input"], ones(rank)),
        "filter": TensorDesc(types["filter"], filter),
        "filter_zero_point": TensorDesc(types["filter"], of_channels(rank)),
    }
    return tensors, output, space


def of_channels(rank: int) -> tuple[int, ...]:
    return (6,) if rank == 1 else (1, 6, *ones(rank)[2:])


def convolution_integer_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    tensors, output, space = integer_tensors(types, rank)
    return directml.ConvolutionIntegerDesc(**tensors, output=TensorDesc(DataType.INT32, output), group_count=2, **space)


def quantized_linear_convolution_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    tensors, output, space = integer_tensors(types, rank)
    # The last table differs from the others only in this rank.
    rank_of_scale = 1 if rank == 3 and types["input"] is DataType.UINT8 else rank
    return directml.QuantizedLinearConvolutionDesc(
        **tensors,
        input_scale=TensorDesc(DataType.FLOAT32, ones(rank)),
        filter_scale=TensorDesc(DataType.FLOAT32, of_channels(rank_of_scale)),
        bias=TensorDesc(DataType.INT32, of_channels(rank)),
        output_scale=TensorDesc(DataType.FLOAT32, ones(rank)),
        output_zero_point=TensorDesc(types["output"], ones(rank)),
        output=TensorDesc(types["output"], output),
        group_count=2,
        **space,
    )


CASES = {
    "CONVOLUTION": Case(
        ("input",),
        convolution_desc,
        of_desc,
        scales=("input", "filter", "bias"),  # products and few sums are exact
    ),
    "CONVOLUTION_INTEGER": Case(
        ("input", "filter"),
        convolution_integer_desc,
        lambda desc, **inputs: of_integers(**inputs, **members_of(desc, "group_count")),
    ),
    "QUANTIZED_LINEAR_CONVOLUTION": Case(
        ("input", "filter", "output"),
        quantized_linear_convolution_desc,
        lambda desc, input, input_zero_point, filter, filter_zero_point, **others: of_quantized(
            of_integers(input, input_zero_point, filter, filter_zero_point, **members_of(desc, "group_count")),
            dtype=desc.output.dtype,
            **others,
        ),
        scales=("input_scale", "filter_scale", "output_scale"),
    ),
}


# Refusals

BACKWARD, FLIPPED = ConvolutionDirection.BACKWARD, ConvolutionMode.CONVOLUTION
IMAGE, FILTERS = np.zeros((1, 4, 5, 6), np.float32), np.zeros((2, 4, 3, 3), np.float32)
BYTE_IMAGE, BYTE_FILTERS = IMAGE.astype(np.uint8), FILTERS.astype(np.int8)
BACK_FILTERS = np.zeros((4, 1, 1, 3), np.float32)
SPACE: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}
ONE, SCALE, BIAS = tensor("UINT8", 1, 1, 1, 1), f32(1, 1, 1, 1), tensor("INT32", 1, 6, 1, 1)
OF_BYTES: dict[str, Any] = {
    "input": tensor("UINT8", 2, 4, 5, 6),
    "input_zero_point": ONE,
    "filter": tensor("INT8", 6, 2, 3, 3),
    "filter_zero_point": tensor("INT8", 1, 6, 1, 1),
    "group_count": 2,
    **SPACE,
}
CONVOLUTION = directml.ConvolutionDesc(
    input=f32(2, 4, 5, 6),
    filter=f32(6, 2, 3, 3),
    bias=f32(1, 6, 1, 1),
    output=f32(2, 6, 3, 4),
    mode=ConvolutionMode.CROSS_CORRELATION,
    direction=ConvolutionDirection.FORWARD,
    output_padding=(0, 0),
    group_count=2,
    **SPACE,
)
BACK = replace(CONVOLUTION, direction=BACKWARD, filter=f32(4, 3, 3, 3), strides=(1, 2), output=f32(2, 6, 7, 13))
INTEGER = directml.ConvolutionIntegerDesc(output=tensor("INT32", 2, 6, 3, 4), **OF_BYTES)
QUANTIZED = directml.QuantizedLinearConvolutionDesc(
    input_scale=SCALE,
    filter_scale=f32(1, 6, 1, 1),
    output_scale=SCALE,
    output_zero_point=ONE,
    bias=BIAS,
    output=tensor("UINT8", 2, 6, 3, 4),
    **OF_BYTES,
)
RELU = directml.ActivationReluDesc(input=f32(1), output=f32(1))
ADD_DESC = directml.ElementWiseAddDesc(a=f32(1), b=f32(1), output=f32(1))

CALLS: dict[str, dict[str, Any]] = {
    "convolution": {"input": IMAGE, "filter": FILTERS},
    "convolution_integer": {
        "input": BYTE_IMAGE,
        "filter": BYTE_FILTERS,
        "input_zero_point": None,
        "filter_zero_point": None,
    },
    "quantized_linear_convolution": {
        "input": BYTE_IMAGE,
        "input_scale": 1.0,
        "input_zero_point": None,
        "filter": BYTE_FILTERS,
        "filter_scale": 1.0,
        "filter_zero_point": None,
        "bias": None,
        "output_scale": 1.0,
    },
}

REFUSED_DESCS: list[RefusedDesc] = [
    (CONVOLUTION, {"filter": tensor("FLOAT16", 6, 2, 3, 3)}, "must have the same DataType"),
    (CONVOLUTION, {"bias": f32(1, 6, 1)}, "must have the same DimensionCount; got 4, 4, 3 and 4"),
    (CONVOLUTION, dict.fromkeys((*SPACE, "output_padding"), (1,)), "Strides must have one number for ...; got {1}"),
    (CONVOLUTION, {"strides": (1, 0)}, "Strides[1] must be at least 1; got 0"),
    (CONVOLUTION, {"dilations": (0, 1)}, "Dilations[0] must be at least 1; got 0"),
    (CONVOLUTION, {"group_count": 3}, "GroupCount must divide the 4 channels of InputTensor; got 3"),
    (CONVOLUTION, {"group_count": 0}, "GroupCount must be at least 1; got 0"),
    (CONVOLUTION, {"group_count": 1}, "FilterTensor.Sizes[1] must be 4, the input channels of a group; got 2"),
    (CONVOLUTION, {"filter": f32(5, 2, 3, 3)}, "FilterTensor.Sizes[0] must be a multiple of 2, GroupCount; got 5"),
    (BACK, {"filter": f32(6, 3, 3, 3)}, "FilterTensor.Sizes[0] must be 4, the channels of InputTensor, ...; got 6"),
    (CONVOLUTION, {"dilations": (1, 3)}, "FilterTensor.Sizes[3] must keep 1 + (FilterTensor.Sizes[3] - ...; got 7"),
    (CONVOLUTION, {"bias": f32(1, 2, 1, 1)}, "BiasTensor.Sizes must be {1,6,1,1}; got {1,2,1,1}"),
    (CONVOLUTION, {"output_padding": (0, 1)}, "OutputTensor.Sizes must be {2,6,3,5}; got {2,6,3,4}"),
    (BACK, {"output": f32(2, 6, 7, 15)}, "must be {2,6,7,13}, or up to {2,6,7,14}; got {2,6,7,15}"),
    (CONVOLUTION, {"fused_activation": ADD_DESC}, "FusedActivation.Type must be an activation that can"),
    (CONVOLUTION, {"fused_activation": RELU}, "FusedActivation.InputTensor must not be"),
    (INTEGER, {"filter": tensor("INT8", 6, 2, 3)}, "must have the same DimensionCount; got 4, 3 and 4"),
    (INTEGER, {"input_zero_point": tensor("UINT8", 1)}, "must have the same DimensionCount; got 1 and 4"),
    (INTEGER, {"input_zero_point": tensor("INT8", 1, 1, 1, 1)}, "must have the same DataType; got UINT8 and INT8"),
    (INTEGER, {"filter_zero_point": ONE}, "must have the same DataType; got INT8 and UINT8"),
    (INTEGER, {"input_zero_point": tensor("UINT8", 1, 4, 1, 1)}, "must have one element; got shape {1,4,1,1}"),
    (INTEGER, {"filter_zero_point": tensor("INT8", 6, 1, 1, 1)}, "or 6 in the shape {1,6,1,1}; got shape {6,"),
    (INTEGER, {"strides": (0, 1)}, "Strides[0] must be at least 1; got 0"),
    (INTEGER, {"group_count": 4}, "FilterTensor.Sizes[1] must be 1, ...; got 2"),
    (INTEGER, {"end_padding": (0, 1)}, "OutputTensor.Sizes must be {2,6,3,5}; got {2,6,3,4}"),
    (QUANTIZED, {"bias": tensor("INT32", 1, 1, 1, 1)}, "BiasTensor.Sizes must be {1,6,1,1}; got {1,1,1,1}"),
    (QUANTIZED, {"bias": tensor("INT32", 1, 6, 1)}, "must have the same DimensionCount; got 4, 4, 3 and 4"),
    (QUANTIZED, {"output_zero_point": tensor("INT8", 1, 1, 1, 1)}, "have the same DataType; got UINT8 and INT8"),
    (QUANTIZED, {"output_scale": f32(1, 6, 1, 1)}, "OutputScaleTensor must have one element; got shape {1,6,1,1}"),
    (QUANTIZED, {"filter_scale": f32(1, 2)}, "must have one element, or 6 in the shape {1,6}; got shape {1,2}"),
    (QUANTIZED, {"group_count": 1}, "FilterTensor.Sizes[1] must be 4, the input channels of a group; got 2"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("convolution", {"input": BYTE_IMAGE}, InvalidType, "input must be of a floating type; got uint8"),
    (
        "convolution",
        {"filter": FILTERS.astype(np.float16)},
        InvalidType,
        "filter must be of float32, as input is; got float16",
    ),
    ("convolution", {"bias": np.zeros(2, np.float16)}, InvalidType, "bias must be of float32, as input is"),
    (
        "convolution",
        {"input": IMAGE[0, 0]},
        InvalidDesc,
        "input must have 3 to 5 dimensions: batch, channels and spatial dimensions; got 2",
    ),
    ("convolution", {"filter": FILTERS[0]}, InvalidDesc, "filter must have 4 dimensions, like input; got 3"),
    (
        "convolution",
        {"filter": FILTERS[..., :0, :]},
        InvalidDesc,
        "must not be empty in a spatial dimension; got shape (2, 4, 0, 3)",
    ),
    ("convolution", {"start_padding": -1}, InvalidDesc, "start_padding must be at least 0; got -1"),
    ("convolution", {"end_padding": (0, -1)}, InvalidDesc, "end_padding[1] must be at least 0; got -1"),
    ("convolution", {"output_padding": -2}, InvalidDesc, "output_padding must be at least 0; got -2"),
    (
        "convolution",
        {"filter": BACK_FILTERS, "direction": BACKWARD, "start_padding": (5, 0)},
        InvalidDesc,
        "start_padding[0] must leave at least one element of the result; got 5, and 0 elements",
    ),
    (
        "convolution",
        {"filter": BACK_FILTERS, "direction": BACKWARD, "end_padding": (0, 9)},
        InvalidDesc,
        "end_padding[1] must leave at least one element of the result; got 9, and -1 elements",
    ),
    ("convolution", {"start_padding": 2**31}, Unsupported, "start_padding[1] must keep ...; got 2147483648"),
    (
        "convolution",
        {"end_padding": (0, 2**32 - 1)},
        InvalidDesc,
        "end_padding[1] must keep ... at most 4294967295 along axis 3, not 4294967301; got 4294967295",
    ),
    (
        "convolution",
        {"filter": BACK_FILTERS, "direction": BACKWARD, "strides": 2**30},
        InvalidDesc,
        "strides[0] must keep ... at most 4294967295 along axis 2, not 4294967297; got 1073741824",
    ),
    ("convolution_integer", {"end_padding": 2**31}, Unsupported, "end_padding[1] must keep ...; got 2147483648"),
    (
        "quantized_linear_convolution",
        {"start_padding": 2**31},
        Unsupported,
        "start_padding[1] must keep ...; got 2147483648",
    ),
    ("convolution", {"output_sizes": (1, 2, 3, 5)}, InvalidDesc, "output_sizes must be (1, 2, 3, 4); got (1, 2, 3, 5)"),
    (
        "convolution",
        {"precision": "exact"},
        InvalidType,
        "precision must be 'default', 'high', 'highest', a ...; got 'exact'",
    ),
    (
        "convolution",
        {"precision": jax.lax.DotAlgorithmPreset.F32_F32_F32},
        InvalidType,
        "precision must be a jax.lax.Precision or the name of one; got F32_F32_F32",
    ),
    ("convolution_integer", {"input": IMAGE}, InvalidType, "input must be of an integer type; got float32"),
    (
        "convolution_integer",
        {"input": BYTE_IMAGE.astype(np.int16)},
        InvalidType,
        "input must be of int8 or uint8; got int16",
    ),
    (
        "convolution_integer",
        {"input_zero_point": np.int8(0)},
        InvalidType,
        "input_zero_point must be of uint8, as input is; got int8",
    ),
    ("quantized_linear_convolution", {"bias": np.zeros(2, np.int16)}, InvalidType, "bias must be of int32; got int16"),
    (
        "quantized_linear_convolution",
        {"input_scale": np.array(1)},
        InvalidType,
        "input_scale must be of a floating type; got int",
    ),
    (
        "quantized_linear_convolution",
        {"output_zero_point": np.array(1, np.int8), "dtype": "uint8"},
        InvalidType,
        "output_zero_point must be of uint8, as the output is; got int8",
    ),
    (
        "quantized_linear_convolution",
        {"dtype": "int32"},
        InvalidType,
        "the output must be of an integer type of at most 16 bits",
    ),
]
