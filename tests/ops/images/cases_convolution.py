"""CONVOLUTION, CONVOLUTION_INTEGER and QUANTIZED_LINEAR_CONVOLUTION: the pages' tables, sums in loops, and cases."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from cases import Case, ones
from formulas import Arr
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import ConvolutionDirection, ConvolutionMode, DataType, TensorDesc

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
