"""Pooling, its gradients and inverse: the pages' tables and pseudo-code, and cases."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, bits_of, is_greater, number
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import DataType, InvalidDesc, InvalidType, TensorDesc

BOTH = "InputTensor OutputTensor"


GRADIENTS = "InputTensor InputGradientTensor OutputGradientTensor"
SUPPORT = tables(
    """
    AVERAGE_POOLING LP_POOLING: InputTensor OutputTensor
        1_0 4-5 FLOATS
    AVERAGE_POOLING1 LP_POOLING1: InputTensor OutputTensor
        6_2 4-5 FLOATS
    AVERAGE_POOLING_GRAD: InputGradientTensor OutputGradientTensor
        3_0 4-5 FLOATS
    MAX_POOLING: InputTensor OutputTensor
        1_0 4-5 FLOATS
        3_0 4-5 FLOATS INT8 UINT8
        5_0 4-5 FLOATS INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8
    MAX_POOLING1: InputTensor OutputTensor; OutputIndicesTensor
        2_0 4-5 FLOATS; 4-5 UINT32
        3_0 4-5 FLOATS INT8 UINT8; 4-5 UINT32
        5_0 4-5 FLOATS INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8; 4-5 UINT64 UINT32
    MAX_POOLING2: InputTensor OutputTensor; OutputIndicesTensor
        2_1 4-5 FLOATS; 4-5 UINT32
        3_0 4-5 FLOATS INT8 UINT8; 4-5 UINT32
        5_0 4-5 FLOATS INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8; 4-5 UINT64 UINT32
    MAX_POOLING_GRAD: InputTensor InputGradientTensor OutputGradientTensor
        3_0 4 FLOATS
        4_0 4-5 FLOATS
    MAX_UNPOOLING: InputTensor OutputTensor; IndicesTensor
        3_0 4 FLOATS; 4 UINT32
        5_0 4 FLOATS INT64 INT32 INT16 INT8 UINT64 UINT32 UINT16 UINT8; 4 UINT64 UINT32
    QUANTIZED_LINEAR_AVERAGE_POOLING: InputTensor OutputTensor; InputScaleTensor OutputScaleTensor;
            InputZeroPointTensor OutputZeroPointTensor
        6_2 4-5 INT8 UINT8; 1-5 FLOAT32; 1-5 INT8 UINT8
    """
)

SLIDING = "DimensionCount Strides WindowSize StartPadding EndPadding"
MEMBERS = merge(
    of_all("AVERAGE_POOLING", f"{BOTH} {SLIDING} IncludePadding"),
    of_all("AVERAGE_POOLING1", f"{BOTH} {SLIDING} Dilations IncludePadding"),
    of_all("AVERAGE_POOLING_GRAD", f"InputGradientTensor OutputGradientTensor {SLIDING} IncludePadding"),
    of_all("LP_POOLING", f"{BOTH} {SLIDING} P"),
    of_all("LP_POOLING1", f"{BOTH} {SLIDING} Dilations P"),
    of_all("MAX_POOLING", f"{BOTH} {SLIDING}"),
    of_all("MAX_POOLING1", f"{BOTH} OutputIndicesTensor {SLIDING}"),
    of_all("MAX_POOLING2", f"{BOTH} OutputIndicesTensor {SLIDING} Dilations"),
    of_all("MAX_POOLING_GRAD", f"{GRADIENTS} {SLIDING} Dilations"),
    of_all("MAX_UNPOOLING", "InputTensor IndicesTensor OutputTensor"),
    of_all(
        "QUANTIZED_LINEAR_AVERAGE_POOLING",
        "InputTensor InputScaleTensor InputZeroPointTensor OutputScaleTensor OutputZeroPointTensor OutputTensor "
        f"{SLIDING} Dilations IncludePadding",
    ),
)

# Pseudo-code, which takes windows under the names of the functions' arguments


def pooled_sizes(image: Any, windows: Mapping[str, Any]) -> tuple[int, ...]:
    """The page's sizes, with the dilated window."""
    sizes = [
        (size + before + after - (dilation * (window - 1) + 1)) // stride + 1
        for size, window, stride, dilation, before, after in zip(
            image[2:],
            windows["window_sizes"],
            windows["strides"],
            dilations_of(windows),
            windows["start_padding"],
            windows["end_padding"],
            strict=True,
        )
    ]
    return (*image[:2], *sizes)


def dilations_of(windows: Mapping[str, Any]) -> Any:
    return windows.get("dilations", (1,) * len(windows["strides"]))


def places(image: Any, windows: Mapping[str, Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Each position of the result with the image's positions in its window, without padding."""
    offsets = list(itertools.product(*map(range, windows["window_sizes"])))
    for place in np.ndindex(*pooled_sizes(image, windows)):
        first = np.multiply(place[2:], windows["strides"]) - windows["start_padding"]
        elements = [first + np.multiply(offset, dilations_of(windows)) for offset in offsets]
        yield (
            place,
            [
                (*place[:2], *map(int, element))
                for element in elements
                if all(0 <= i < size for i, size in zip(element, image[2:], strict=True))
            ],
        )


def divisor(elements: list[Any], windows: Mapping[str, Any], include_padding: bool) -> int:
    return int(np.prod(windows["window_sizes"])) if include_padding else len(elements)


def averages(input: Arr, *, include_padding: bool, **windows: Any) -> Arr:
    """Averages in 64 bits."""
    output = np.empty(pooled_sizes(input.shape, windows))
    for place, elements in places(input.shape, windows):
        total = sum((float(input[element]) for element in elements), 0.0)
        output[place] = np.float64(total) / divisor(elements, windows, include_padding)
    return output


def averages_gradient(gradient: Arr, *, output_sizes: Any, include_padding: bool, **windows: Any) -> Arr:
    """Sums in 64 bits, after divisions in the gradient's type, or in 32 bits."""
    wide = np.promote_types(gradient.dtype, np.float32)
    output = np.zeros(output_sizes)
    for place, elements in places(output_sizes, windows):
        for element in elements:
            output[element] += gradient[place].astype(wide) / wide.type(divisor(elements, windows, include_padding))
    return output


def norms(input: Arr, *, p: int, **windows: Any) -> Arr:
    """Norms in 64 bits, of numbers whose powers fit."""
    output = np.empty(pooled_sizes(input.shape, windows))
    for place, elements in places(input.shape, windows):
        output[place] = sum(abs(float(input[element])) ** p for element in elements) ** (1 / p)
    return output


def largest(input: Arr, windows: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Each position of the result with the image's position of the first largest element."""
    for place, elements in places(input.shape, windows):
        best = elements[0]
        for element in elements[1:]:
            if is_greater(number(input[element]), number(input[best])):
                best = element
        yield place, best


def max_pooling(input: Arr, **windows: Any) -> tuple[Arr, Arr]:
    source = bits_of(input)
    values = np.empty(pooled_sizes(input.shape, windows), source.dtype)
    indices = np.empty(values.shape, np.uint64)
    for place, best in largest(input, windows):
        values[place], indices[place] = source[best], np.ravel_multi_index(best, input.shape)
    return values.view(input.dtype), indices


def max_pooling_gradient(input: Arr, gradient: Arr, **windows: Any) -> Arr:
    """Sums in 64 bits."""
    output = np.zeros(input.shape)
    for place, best in largest(input, windows):
        output[best] += gradient[place]
    return output


def unpooled(input: Arr, indices: Arr, *, output_sizes: Any) -> Arr:
    output = np.zeros(int(np.prod(output_sizes)), bits_of(input).dtype)
    for value, index in zip(bits_of(input).ravel(), indices.ravel().tolist(), strict=True):
        index = index + output.size if index < 0 else index
        if 0 <= index < output.size:
            output[index] = value
    return output.view(input.dtype).reshape(output_sizes)


def of_channels(parameter: Arr | None, channels: int) -> list[Any]:
    values = [0] if parameter is None else parameter.ravel().tolist()
    return values * channels if len(values) == 1 else values


def quantized_averages(
    input: Arr,
    input_scale: Arr,
    input_zero_point: Arr | None,
    output_scale: Arr,
    output_zero_point: Arr | None,
    *,
    dtype: Any,
    include_padding: bool,
    **windows: Any,
) -> Arr:
    """Sums of Python's integers; products and quotients with scales in 32 bits."""
    channels = input.shape[1]
    zeros, final_zeros = of_channels(input_zero_point, channels), of_channels(output_zero_point, channels)
    scales, final_scales = of_channels(input_scale, channels), of_channels(output_scale, channels)
    limits = np.iinfo(dtype)
    output = np.empty(pooled_sizes(input.shape, windows), dtype)
    for place, elements in places(input.shape, windows):
        channel = place[1]
        total = np.float32(sum(int(input[element]) - zeros[channel] for element in elements))
        count = np.float32(divisor(elements, windows, include_padding))
        average = total * np.float32(scales[channel]) / count
        steps = np.rint(average / np.float32(final_scales[channel]))
        whole = 0 if np.isnan(steps) else int(np.clip(steps, -(2**20), 2**20))
        output[place] = min(max(whole + final_zeros[channel], limits.min), limits.max)
    return output


# Descriptors


def window_arguments(desc: Any) -> dict[str, Any]:
    """The window members under the names of the function's arguments."""
    names = {"window_size": "window_sizes"} | {
        name: name for name in ("strides", "dilations", "start_padding", "end_padding", "include_padding", "p")
    }
    return {name: getattr(desc, field) for field, name in names.items() if hasattr(desc, field)}


def sliding(operator: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """The sizes of the image and of the pooled result, and the windows."""
    spatial = max(rank - 2, 0)
    # No table has fewer than 3 dimensions, so these are not valid descriptors.
    windows: dict[str, Any] = {
        "window_size": ones(spatial, 3, 2)[:spatial],
        "strides": ones(spatial, 2, 1)[:spatial],
        "start_padding": ((0,) * spatial + (1, 0))[len((1, 0)) :][:spatial],
        "end_padding": ((0,) * spatial + (0, 1))[len((0, 1)) :][:spatial],
    }
    fields = {member.field for member in operator.members()}
    if "dilations" in fields:
        windows["dilations"] = ones(spatial, 1, 2)[:spatial]
    if "include_padding" in fields:
        windows["include_padding"] = rank % 2 == 1
    if "p" in fields:
        windows["p"] = 3
    if spatial < 1:
        return (2,) * rank, (2,) * rank, windows
    image = (2, 2, *ones(spatial, 5, 4))
    arguments = {("window_sizes" if field == "window_size" else field): value for field, value in windows.items()}
    return image, pooled_sizes(image, arguments), windows


def pooling_desc(operator: Any, **more: Any) -> Any:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        image, pooled, windows = sliding(operator, rank)
        tensors = {"input": TensorDesc(types["input"], image), "output": TensorDesc(types["input"], pooled)}
        if "output_indices" in types:
            tensors["output_indices"] = TensorDesc(types["output_indices"], pooled)
        desc: directml.Operator = operator(**tensors, **windows)
        return desc

    return make


def average_gradient_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    image, pooled, windows = sliding(directml.AveragePoolingGradDesc, rank)
    return directml.AveragePoolingGradDesc(
        input_gradient=TensorDesc(types["input_gradient"], pooled),
        output_gradient=TensorDesc(types["input_gradient"], image),
        **windows,
    )


def max_gradient_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    image, pooled, windows = sliding(directml.MaxPoolingGradDesc, rank)
    return directml.MaxPoolingGradDesc(
        input=TensorDesc(types["input"], image),
        input_gradient=TensorDesc(types["input"], pooled),
        output_gradient=TensorDesc(types["input"], image),
        **windows,
    )


def unpooling_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.MaxUnpoolingDesc(
        input=TensorDesc(types["input"], ones(rank, 2, 3, 2)),
        indices=TensorDesc(types["indices"], ones(rank, 2, 3, 2)),
        output=TensorDesc(types["input"], ones(rank, 2, 5, 3)),
    )


def quantized_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    image, pooled, windows = sliding(directml.QuantizedLinearAveragePoolingDesc, rank)
    of_image = (1, *image[1:2], *(1 for _ in image[2:]))[:rank]
    return directml.QuantizedLinearAveragePoolingDesc(
        input=TensorDesc(types["input"], image),
        input_scale=TensorDesc(DataType.FLOAT32, of_image),
        input_zero_point=TensorDesc(types["input"], of_image),
        output_scale=TensorDesc(DataType.FLOAT32, (1,)),
        output_zero_point=TensorDesc(types["output"], (1,)),
        output=TensorDesc(types["output"], pooled),
        **windows,
    )


def average_case(operator: Any) -> Case:
    # Sums of a few powers of two are exact, so an average is rounded once.
    return Case(
        ("input",),
        pooling_desc(operator),
        lambda desc, input: averages(input, **window_arguments(desc)),
        scales=("input",),
    )


def norm_case(operator: Any) -> Case:
    return Case(
        ("input",),
        pooling_desc(operator),
        lambda desc, input: norms(input, **window_arguments(desc)),
        scales=("input",),
        is_exact=False,
        domain=(0.2, 3.0),
    )


def max_case(operator: Any) -> Case:
    return Case(
        ("input", "output_indices"),
        pooling_desc(operator),
        lambda desc, input: max_pooling(input, **window_arguments(desc)),
    )


CASES = {
    "AVERAGE_POOLING": average_case(directml.AveragePoolingDesc),
    "AVERAGE_POOLING1": average_case(directml.AveragePooling1Desc),
    "AVERAGE_POOLING_GRAD": Case(
        ("input_gradient",),
        average_gradient_desc,
        lambda desc, input_gradient: averages_gradient(
            input_gradient, output_sizes=desc.output_gradient.sizes, **window_arguments(desc)
        ),
        scales=("input_gradient",),
        is_exact=False,  # quotients are rounded before they are added
    ),
    "LP_POOLING": norm_case(directml.LpPoolingDesc),
    "LP_POOLING1": norm_case(directml.LpPooling1Desc),
    "MAX_POOLING": Case(
        ("input",),
        pooling_desc(directml.MaxPoolingDesc),
        lambda desc, input: max_pooling(input, **window_arguments(desc))[0],
    ),
    "MAX_POOLING1": max_case(directml.MaxPooling1Desc),
    "MAX_POOLING2": max_case(directml.MaxPooling2Desc),
    "MAX_POOLING_GRAD": Case(
        ("input",),
        max_gradient_desc,
        lambda desc, input, input_gradient: max_pooling_gradient(input, input_gradient, **window_arguments(desc)),
        scales=("input_gradient",),  # few sums, which are exact
    ),
    "MAX_UNPOOLING": Case(
        ("input", "indices"),
        unpooling_desc,
        lambda desc, input, indices: unpooled(input, indices, output_sizes=desc.output.sizes),
        indices={"indices": 30},
    ),
    "QUANTIZED_LINEAR_AVERAGE_POOLING": Case(
        ("input", "output"),
        quantized_desc,
        lambda desc, **inputs: quantized_averages(**inputs, dtype=desc.output.dtype, **window_arguments(desc)),
        scales=("input_scale", "output_scale"),
    ),
}


# Refusals

IMAGE, POOLED = np.zeros((1, 2, 4, 5), np.float32), np.zeros((1, 2, 3, 4), np.float32)
BYTES, HALVES = IMAGE.astype(np.int8), POOLED.astype(np.float16)
SPACE = {"strides": (1, 1), "window_size": (2, 2), "start_padding": (0, 0), "end_padding": (0, 0)}
DILATED: dict[str, Any] = SPACE | {"dilations": (1, 1)}
INPUT, OUTPUT, INDICES = f32(1, 2, 4, 5), f32(1, 2, 3, 4), tensor("UINT32", 1, 2, 3, 4)
AVERAGE = directml.AveragePooling1Desc(input=INPUT, output=OUTPUT, include_padding=False, **DILATED)
AVERAGE_GRAD = directml.AveragePoolingGradDesc(
    input_gradient=OUTPUT, output_gradient=INPUT, include_padding=False, **SPACE
)
NORM = directml.LpPoolingDesc(input=INPUT, output=OUTPUT, p=2, **SPACE)
LARGEST = directml.MaxPooling2Desc(input=INPUT, output=OUTPUT, output_indices=INDICES, **DILATED)
PLAIN_LARGEST = directml.MaxPoolingDesc(input=INPUT, output=OUTPUT, **SPACE)
LARGEST_GRAD = directml.MaxPoolingGradDesc(input=INPUT, input_gradient=OUTPUT, output_gradient=INPUT, **DILATED)
UNPOOLING = directml.MaxUnpoolingDesc(input=OUTPUT, indices=INDICES, output=INPUT)
QUANTIZED = directml.QuantizedLinearAveragePoolingDesc(
    input=tensor("UINT8", 1, 2, 4, 5),
    input_scale=f32(1, 2, 1, 1),
    input_zero_point=tensor("UINT8", 1),
    output_scale=f32(1, 1, 1, 1),
    output_zero_point=tensor("INT8", 1, 1, 2, 1, 1),
    output=tensor("INT8", 1, 2, 3, 4),
    include_padding=False,
    **DILATED,
)

CALLS: dict[str, dict[str, Any]] = {
    **{
        name: {"input": IMAGE, "window_sizes": 2}
        for name in ("average_pooling", "lp_pooling", "lp_pooling1", "max_pooling", "max_pooling1", "max_pooling2")
    },
    "average_pooling_grad": {"input_gradient": POOLED, "output_sizes": (1, 2, 5, 5), "window_sizes": 2},
    "max_pooling_grad": {"input": IMAGE, "input_gradient": POOLED, "window_sizes": 2},
    "max_unpooling": {"input": POOLED, "indices": POOLED.astype(int), "output_sizes": IMAGE.shape},
    "quantized_linear_average_pooling": {
        "input": BYTES,
        "input_scale": 1.0,
        "input_zero_point": None,
        "output_scale": 1.0,
        "window_sizes": 2,
    },
}

REFUSED_DESCS: list[RefusedDesc] = [
    (AVERAGE, {"output": tensor("FLOAT16", 1, 2, 3, 4)}, "must have the same DataType"),
    (AVERAGE, {"output": f32(1, 1, 2, 3, 4)}, "must have the same DimensionCount; got 4 and 5"),
    (AVERAGE, dict.fromkeys(DILATED, (1,)), "WindowSize must have one number for each of the 2 ...; got {1}"),
    (AVERAGE, {"window_size": (0, 2)}, "WindowSize[0] must be at least 1; got 0"),
    (NORM, {"strides": (1, 0)}, "Strides[1] must be at least 1; got 0"),
    (AVERAGE, {"dilations": (0, 1)}, "Dilations[0] must be at least 1; got 0"),
    (AVERAGE, {"dilations": (4, 1)}, "WindowSize[0] must keep 1 + (WindowSize[0] - 1) * Dilations[0] ...; got 5"),
    (NORM, {"window_size": (2, 6)}, "WindowSize[1] must be at most 5, the padded size of InputTensor ...; got 6"),
    (AVERAGE, {"end_padding": (0, 1)}, "OutputTensor.Sizes must be {1,2,3,5}; got {1,2,3,4}"),
    (NORM, {"p": 0}, "P must be at least 1; got 0"),
    (AVERAGE_GRAD, {"output_gradient": f32(1, 2, 5, 5)}, "InputGradientTensor.Sizes must be {1,2,4,4}"),
    (AVERAGE_GRAD, {"output_gradient": tensor("FLOAT16", 1, 2, 4, 5)}, "must have the same DataType"),
    (AVERAGE_GRAD, {"output_gradient": f32(1, 1, 2, 4, 5)}, "must have the same DimensionCount; got 4 and 5"),
    (PLAIN_LARGEST, {"start_padding": (2, 0), "output": f32(1, 2, 5, 4)}, "at every position of the window; got 2"),
    (LARGEST, {"output": tensor("FLOAT16", 1, 2, 3, 4)}, "must have the same DataType"),
    (LARGEST, {"output_indices": tensor("UINT32", 1, 2, 1, 3, 4)}, "the same DimensionCount; got 4, 4 and 5"),
    (LARGEST, {"output_indices": tensor("UINT32", 1, 2, 3, 3)}, "OutputIndicesTensor.Sizes must be {1,2,3,4}; got"),
    (LARGEST, {"end_padding": (0, 2), "output": f32(1, 2, 3, 6)}, "WindowSize[1] must cover an element of"),
    (
        LARGEST_GRAD,
        {"output_gradient": f32(1, 2, 4, 6)},
        "OutputGradientTensor.Sizes must be {1,2,4,5}; got {1,2,4,6}",
    ),
    (LARGEST_GRAD, {"input_gradient": INPUT}, "InputGradientTensor.Sizes must be {1,2,3,4}; got {1,2,4,5}"),
    (LARGEST_GRAD, {"input_gradient": tensor("FLOAT16", 1, 2, 3, 4)}, "must have the same DataType"),
    (LARGEST_GRAD, {"input_gradient": f32(1, 1, 2, 3, 4)}, "must have the same DimensionCount; got 4, 5 and 4"),
    (
        LARGEST_GRAD,
        {"start_padding": (0, 2), "input_gradient": f32(1, 2, 3, 6)},
        "WindowSize[1] must cover an element of InputTensor",
    ),
    (UNPOOLING, {"output": tensor("FLOAT16", 1, 2, 4, 5)}, "must have the same DataType"),
    (UNPOOLING, {"indices": tensor("UINT32", 1, 1, 2, 12)}, "IndicesTensor.Sizes must be {1,2,3,4}"),
    (UNPOOLING, {"output": f32(2, 4, 5)}, "must have the same DimensionCount; got 4, 4 and 3"),
    (QUANTIZED, {"output": tensor("INT8", 1, 1, 2, 3, 4)}, "must have the same DimensionCount; got 4 and 5"),
    (QUANTIZED, {"input_zero_point": tensor("INT8", 1)}, "InputTensor and InputZeroPointTensor must have the same"),
    (QUANTIZED, {"output_zero_point": tensor("UINT8", 1)}, "must have the same DataType; got"),
    (QUANTIZED, {"input_scale": f32(2)}, "InputScaleTensor must have one ... in the shape {1,2,1,1}; got {2}"),
    (QUANTIZED, {"output_scale": f32(2, 1, 1, 1)}, "OutputScaleTensor must have one element, or"),
    (QUANTIZED, {"output_scale": f32(1, 2, 1, 1, 1)}, "OutputScaleTensor must have one element, or"),
    (
        QUANTIZED,
        {"output_zero_point": tensor("INT8", 2, 1, 2, 1, 1)},
        "OutputZeroPointTensor must have one element, or",
    ),
    (QUANTIZED, {"end_padding": (1, 0)}, "OutputTensor.Sizes must be {1,2,4,4}; got {1,2,3,4}"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("max_pooling", {"input": IMAGE[0, 0]}, InvalidDesc, "input must have at least 3 dimensions; got 2"),
    ("max_pooling", {"start_padding": -1}, InvalidDesc, "start_padding must be at least"),
    ("max_pooling", {"end_padding": -1}, InvalidDesc, "end_padding must be at least"),
    (
        "max_pooling2",
        {"window_sizes": (2, 1), "dilations": 6, "start_padding": (6, 0), "end_padding": (6, 0)},
        InvalidDesc,
        "window_sizes[0] must cover an element of input",
    ),
    ("average_pooling", {"input": BYTES}, InvalidType, "input must be of a floating"),
    ("lp_pooling", {"input": BYTES}, InvalidType, "input must be of a floating type"),
    ("lp_pooling", {"p": 0}, InvalidDesc, "p must be at least 1; got 0"),
    ("lp_pooling1", {"p": 1.5}, InvalidType, "p must be an integer"),
    ("average_pooling", {"include_padding": 1}, InvalidType, "include_padding must be"),
    ("max_pooling1", {"has_indices": "no"}, InvalidType, "has_indices must be"),
    ("max_pooling1", {"dtype": np.float32}, InvalidType, "dtype must be an integer type; got float32"),
    ("max_pooling_grad", {"input_gradient": HALVES}, InvalidType, "must be of float32, as input is; got float16"),
    ("average_pooling_grad", {"output_sizes": (1, 2, 5)}, InvalidDesc, "output_sizes must have one number for"),
    ("average_pooling_grad", {"output_sizes": (1, 2, 5, -1)}, InvalidDesc, "must be at least 0"),
    ("max_unpooling", {"indices": POOLED}, InvalidType, "indices must be of an integer type; got float32"),
    ("max_unpooling", {"output_sizes": (5,)}, InvalidDesc, "must have one number for each of the 4 dimensions"),
    (
        "quantized_linear_average_pooling",
        {"input": IMAGE.astype(np.int32)},
        InvalidType,
        "input must be of an integer type of 8 or 16 bits; got int32",
    ),
    (
        "quantized_linear_average_pooling",
        {"input_scale": np.ones(5, np.float32)},
        InvalidDesc,
        "input_scale must have one element, or one for each channel in the shape (1, 2, 1, 1); got (5,)",
    ),
    (
        "quantized_linear_average_pooling",
        {"input_zero_point": np.uint8(3)},
        InvalidType,
        "input_zero_point must be of int8, as input is; got uint8",
    ),
]
