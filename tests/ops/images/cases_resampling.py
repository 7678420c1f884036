"""UPSAMPLE_2D, RESAMPLE to RESAMPLE3, and the gradients: the pages' tables and relation of coordinates, and cases."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from cases import Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, bits_of
from helpers import f32, tensor
from pages import merge, of_all, tables

from dmljax import directml
from dmljax.directml import AxisDirection, DataType, InterpolationMode, InvalidDesc, InvalidType, Size2D, TensorDesc

BOTH = "InputTensor OutputTensor"
GRADIENTS = "InputGradientTensor OutputGradientTensor"
SUPPORT = tables(
    """
    UPSAMPLE_2D: InputTensor OutputTensor
        1_0 4-5 FLOATS
    RESAMPLE: InputTensor OutputTensor
        2_0 4 FLOATS
        5_1 1-4 FLOATS
        6_2 1-4 FLOATS INT8 UINT8
    RESAMPLE1: InputTensor OutputTensor
        2_1 4 FLOATS
        5_1 1-4 FLOATS
        6_2 1-4 FLOATS INT8 UINT8
    RESAMPLE2: InputTensor OutputTensor
        5_1 1-4 FLOATS
        6_2 1-4 FLOATS INT8 UINT8
    RESAMPLE3: InputTensor OutputTensor
        6_4 1-4 FLOATS INT8 UINT8
    RESAMPLE_GRAD: InputGradientTensor OutputGradientTensor
        3_0 4 FLOATS
        5_1 1-4 FLOATS
    RESAMPLE_GRAD1: InputGradientTensor OutputGradientTensor
        5_1 1-4 FLOATS
    """
)

OFFSETS = "DimensionCount Scales InputPixelOffsets OutputPixelOffsets"
MEMBERS = merge(
    of_all("UPSAMPLE_2D", f"{BOTH} ScaleSize InterpolationMode"),
    of_all("RESAMPLE", f"{BOTH} InterpolationMode ScaleCount Scales"),
    of_all("RESAMPLE1", f"{BOTH} InterpolationMode {OFFSETS}"),
    of_all("RESAMPLE2", f"{BOTH} InterpolationMode RoundingDirection {OFFSETS}"),
    of_all("RESAMPLE3", f"{BOTH} InterpolationMode RoundingDirection {OFFSETS} Antialiased"),
    of_all("RESAMPLE_GRAD", f"{GRADIENTS} InterpolationMode {OFFSETS}"),
    of_all("RESAMPLE_GRAD1", f"{GRADIENTS} InterpolationMode RoundingDirection {OFFSETS}"),
)

# Pseudo-code


def fraction_of(number: float) -> Fraction:
    """The fraction with the smallest denominator that rounds to a float32, found by trying all denominators."""
    value = np.float32(number)
    denominator = 1
    while True:
        numerator = round(Fraction(float(value)) * denominator)
        if np.float32(numerator / denominator) == value:
            return Fraction(numerator, denominator)
        denominator += 1


def weights_of(
    position: Fraction, size: int, scale: Fraction, mode: InterpolationMode, rounding: str, antialiased: bool = False
) -> dict[int, Fraction]:
    """The input elements that make up the result's element at `position`, with their weights."""
    if mode is InterpolationMode.NEAREST_NEIGHBOR:
        rounded = {
            "half": math.floor(position + Fraction(1, 2)),
            "down": math.floor(position),
            "up": math.ceil(position),
        }
        return {min(max(rounded[rounding], 0), size - 1): Fraction(1)}
    # The filter is a triangle over the two neighbors, or over more if the result is smaller and antialiased.
    width = max(Fraction(1), 1 / scale) if antialiased else Fraction(1)
    weights: dict[int, Fraction] = {}
    for i in range(math.floor(position - width), math.ceil(position + width) + 1):
        weight = max(1 - abs(position - i) / width, Fraction(0))
        if weight:
            place = min(max(i, 0), size - 1)
            weights[place] = weights.get(place, Fraction(0)) + weight
    total = sum(weights.values())
    return {place: weight / total for place, weight in weights.items()}


Weights = list[list[dict[int, Fraction]]]  # by dimension, and place in the result


def all_weights(
    input_sizes: Sequence[int],
    output_sizes: Sequence[int],
    scales: Sequence[float],
    input_offsets: Sequence[float],
    output_offsets: Sequence[float],
    **how: Any,
) -> Weights:
    weights: Weights = []
    numbers = zip(input_sizes, output_sizes, scales, input_offsets, output_offsets, strict=True)
    for size, new, *floats in numbers:
        scale, before, after = map(fraction_of, floats)
        # OutputTensorX = (InputTensorX + InputPixelOffset) * Scale + OutputPixelOffset
        weights.append([weights_of((i - after) / scale - before, size, scale, **how) for i in range(new)])
    return weights


def resampled(input: Arr, weights: Weights, mode: InterpolationMode, **_: Any) -> Arr:
    """Element by element: a copy of the nearest one, or an exact sum rounded once."""
    output = np.empty([len(axis_weights) for axis_weights in weights], input.dtype)
    for place in np.ndindex(*output.shape):
        sources = [weights[axis][i] for axis, i in enumerate(place)]
        if mode is InterpolationMode.NEAREST_NEIGHBOR:
            bits_of(output)[place] = bits_of(input)[tuple(next(iter(axis_weights)) for axis_weights in sources)]
            continue
        total = sum(
            Fraction(float(input[index]))
            * math.prod(axis_weights[i] for axis_weights, i in zip(sources, index, strict=True))
            for index in np.ndindex(*input.shape)
            if all(i in axis_weights for axis_weights, i in zip(sources, index, strict=True))
        )
        output[place] = float(total) if input.dtype.kind == "f" else round(total)  # a half to the even integer
    return output


def added_up(input: Arr, weights: Weights, output_sizes: Sequence[int]) -> Arr:
    """The transpose, in float64."""
    output = np.zeros(output_sizes)
    for place in np.ndindex(*input.shape):
        sources = [weights[axis][i] for axis, i in enumerate(place)]
        for index in np.ndindex(*output.shape):
            if all(i in axis_weights for axis_weights, i in zip(sources, index, strict=True)):
                weight = math.prod(axis_weights[i] for axis_weights, i in zip(sources, index, strict=True))
                output[index] += float(input[place]) * float(weight)
    return output.astype(input.dtype)


# Descriptors


def direction_of(desc: Any) -> str:
    if not hasattr(desc, "rounding_direction"):
        return "half"
    return "up" if desc.rounding_direction is AxisDirection.INCREASING else "down"


def how_of(desc: Any) -> dict[str, Any]:
    antialiased = getattr(desc, "antialiased", False)
    return {"mode": desc.interpolation_mode, "rounding": direction_of(desc), "antialiased": antialiased}


def floats_of(desc: Any) -> list[list[float]]:
    rank = len(desc.scales)
    defaults = {"scales": 1, "input_pixel_offsets": 0.5, "output_pixel_offsets": -0.5}
    return [
        [float(scalar.item) for scalar in getattr(desc, name)] if hasattr(desc, name) else [default] * rank
        for name, default in defaults.items()
    ]


def forward(desc: Any, input: Arr) -> Arr:
    how = how_of(desc)
    return resampled(input, all_weights(input.shape, desc.output.sizes, *floats_of(desc), **how), **how)


def backward(desc: Any, input_gradient: Arr) -> Arr:
    sizes = desc.output_gradient.sizes
    return added_up(input_gradient, all_weights(sizes, input_gradient.shape, *floats_of(desc), **how_of(desc)), sizes)


def upsampled(desc: Any, input: Arr) -> Arr:
    scales = [1.0] * (input.ndim - 2) + [float(desc.scale_size.height), float(desc.scale_size.width)]
    how = how_of(desc)
    halves = [0.5] * input.ndim, [-0.5] * input.ndim
    return resampled(input, all_weights(input.shape, desc.output.sizes, scales, *halves, **how), **how)


def upsampling_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.Upsample2DDesc(
        input=TensorDesc(types["input"], ones(rank, 2, 3, 4)),
        output=TensorDesc(types["input"], ones(rank, 2, 6, 8)),
        scale_size=Size2D(width=2, height=2),
        interpolation_mode=InterpolationMode.LINEAR,
    )


def resampling_desc(operator: Any, input: str, output: str, mode: InterpolationMode, **more: Any) -> Any:
    """Descriptors that double the height and halve the width, with sums that are exact in 16 bits."""

    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        sizes, new = ones(rank, 3, 4), ones(rank, 7, 2)
        tensors = {input: TensorDesc(types[input], sizes), output: TensorDesc(types[input], new)}
        is_gradient = input != "input"
        scales = ((1,) * rank + ((0.5, 2) if is_gradient else (2, 0.5)))[-rank:]
        fields = {member.field for member in operator.members()}
        members = {
            "interpolation_mode": mode,
            "rounding_direction": AxisDirection.INCREASING,
            "scales": scales,
            "input_pixel_offsets": (0.5,) * rank,
            "output_pixel_offsets": (-0.5,) * rank,
            **more,
        }
        desc: directml.Operator = operator(**tensors, **{key: value for key, value in members.items() if key in fields})
        return desc

    return make


NEAREST_NEIGHBOR, LINEAR = InterpolationMode
FORWARD, BACKWARD = ("input", "output"), ("input_gradient", "output_gradient")
EXACT_SUMS: dict[str, Any] = {"scales": ("input",)}
CASES = {
    "UPSAMPLE_2D": Case(("input",), upsampling_desc, upsampled, **EXACT_SUMS),
    "RESAMPLE": Case(("input",), resampling_desc(directml.ResampleDesc, *FORWARD, LINEAR), forward, **EXACT_SUMS),
    "RESAMPLE1": Case(("input",), resampling_desc(directml.Resample1Desc, *FORWARD, NEAREST_NEIGHBOR), forward),
    "RESAMPLE2": Case(("input",), resampling_desc(directml.Resample2Desc, *FORWARD, NEAREST_NEIGHBOR), forward),
    "RESAMPLE3": Case(
        ("input",), resampling_desc(directml.Resample3Desc, *FORWARD, LINEAR, antialiased=True), forward, **EXACT_SUMS
    ),
    "RESAMPLE_GRAD": Case(
        ("input_gradient",),
        resampling_desc(directml.ResampleGradDesc, *BACKWARD, LINEAR),
        backward,
        scales=("input_gradient",),
    ),
    "RESAMPLE_GRAD1": Case(
        ("input_gradient",),
        resampling_desc(directml.ResampleGrad1Desc, *BACKWARD, NEAREST_NEIGHBOR),
        backward,
        scales=("input_gradient",),
    ),
}


# Refusals

UP, DOWN = AxisDirection
ROW = np.array([1, 2, 3, 4], np.float32)
WHOLE = ROW.astype(np.int32)
INPUT, OUTPUT = f32(1, 1, 2, 3), f32(1, 1, 3, 5)
SCALES: dict[str, Any] = {"scales": (1, 1, 1.5, 2), "interpolation_mode": LINEAR}
PIXEL_OFFSETS: dict[str, Any] = {"input_pixel_offsets": (0.5,) * 4, "output_pixel_offsets": (-0.5,) * 4}
PAIR: dict[str, Any] = {"input": INPUT, "output": OUTPUT}
GRADIENT_PAIR: dict[str, Any] = {"input_gradient": INPUT, "output_gradient": OUTPUT}
UPSAMPLE = directml.Upsample2DDesc(
    input=INPUT, output=f32(1, 1, 4, 9), scale_size=Size2D(width=3, height=2), interpolation_mode=LINEAR
)
RESAMPLE = directml.ResampleDesc(**PAIR, **SCALES)
WITH_OFFSETS: list[Any] = [
    directml.Resample1Desc(**PAIR, **SCALES, **PIXEL_OFFSETS),
    directml.Resample2Desc(**PAIR, **SCALES, **PIXEL_OFFSETS, rounding_direction=DOWN),
    directml.Resample3Desc(**PAIR, **SCALES, **PIXEL_OFFSETS, rounding_direction=DOWN, antialiased=False),
    directml.ResampleGradDesc(**GRADIENT_PAIR, **SCALES, **PIXEL_OFFSETS),
    directml.ResampleGrad1Desc(**GRADIENT_PAIR, **SCALES, **PIXEL_OFFSETS, rounding_direction=DOWN),
]

RESAMPLES, RESAMPLE_GRADS = [RESAMPLE, *WITH_OFFSETS[:3]], WITH_OFFSETS[3:]

CALLS: dict[str, dict[str, Any]] = {
    "resample": {"input": ROW, "scales": 2},
    "resample3": {"input": ROW, "scales": 2},
    "resample_grad": {"input_gradient": ROW, "output_sizes": (2,)},
    "resample_grad1": {"input_gradient": ROW, "output_sizes": (2,)},
    "upsample_2d": {"input": ROW[None], "scale_size": 2},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (RESAMPLE, {"scales": (2,)}, "Scales must have one number for each of the 4 dimensions of InputTensor; got"),
    (UPSAMPLE, {"output": tensor("FLOAT16", 1, 1, 4, 9)}, "must have the same DataType"),
    (UPSAMPLE, {"output": f32(1, 1, 1, 4, 9)}, "must have the same DimensionCount"),
    (UPSAMPLE, {"scale_size": Size2D(0, 2)}, "ScaleSize.Width must be at least 1; got 0"),
    (UPSAMPLE, {"scale_size": Size2D(2, 0)}, "ScaleSize.Height must be at least 1; got 0"),
    (UPSAMPLE, {"scale_size": Size2D(2, 3)}, "OutputTensor.Sizes must be {1,1,6,6}; got {1,1,4,9}"),
    *(
        (desc, {"output": tensor("FLOAT16", 1, 1, 3, 5)}, "OutputTensor must have the same DataType")
        for desc in RESAMPLES
    ),
    *(
        (desc, {"output_gradient": tensor("FLOAT16", 1, 1, 3, 5)}, "OutputGradientTensor must have the same DataType")
        for desc in RESAMPLE_GRADS
    ),
    *(
        (desc, {"output": f32(1, 3, 5)}, "OutputTensor must have the same DimensionCount; got 4 and 3")
        for desc in RESAMPLES
    ),
    *(
        (desc, {"output_gradient": f32(1, 3, 5)}, "OutputGradientTensor must have the same DimensionCount; got 4 and 3")
        for desc in RESAMPLE_GRADS
    ),
    *(
        (desc, {"scales": scales}, message)
        for desc in (*RESAMPLES, *RESAMPLE_GRADS)
        for scales, message in (
            ((1, 1, 1.5, 0), "Scales[3] must be above 0; got 0"),
            ((1, 1, -2, 1), "Scales[2] must be above 0; got -2"),
            ((math.nan, 1, 1, 1), "Scales[0] must be finite; got nan"),
        )
    ),
    *(
        (desc, change, message)
        for desc in WITH_OFFSETS
        for change, message in (
            (
                dict.fromkeys(("scales", *PIXEL_OFFSETS), (1, 1, 1)),
                "InputPixelOffsets must have one number for each of the 4",
            ),
            ({"input_pixel_offsets": (0, 0, 0, math.inf)}, "InputPixelOffsets[3] must be finite; got inf"),
            ({"output_pixel_offsets": (0, math.nan, 0, 0)}, "OutputPixelOffsets[1] must be finite; got nan"),
        )
    ),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("upsample_2d", {"input": ROW}, InvalidDesc, "input must have at least 2 dimensions; got 1"),
    (
        "upsample_2d",
        {"scale_size": (2, 3)},
        InvalidType,
        "scale_size must be an integer or a Size2D; got (2, 3) (directml.Size2D(width",
    ),
    ("upsample_2d", {"scale_size": 1.5}, InvalidType, "scale_size must be an integer; got 1.5"),
    ("upsample_2d", {"scale_size": 2**31}, InvalidDesc, "result.shape[1] must be in"),
    (
        "upsample_2d",
        {"input": WHOLE[None], "interpolation_mode": LINEAR},
        InvalidType,
        "of 8 bits, for LINEAR; got int32",
    ),
    ("resample", {"scales": None}, InvalidDesc, "output_sizes or scales must be given; got neither"),
    ("resample", {"scales": (True,)}, InvalidType, "scales[0] must be a number; got True"),
    ("resample", {"scales": "2"}, InvalidType, "scales must be a number; got '2'"),
    ("resample", {"scales": 1e300}, InvalidDesc, "scales must fit float32; got 1e+300"),
    (
        "resample",
        {"input": WHOLE, "interpolation_mode": LINEAR},
        InvalidType,
        "integer type of 8 bits, for LINEAR; got int32",
    ),
    (
        "resample",
        {"input": np.ones(0), "output_sizes": (3,)},
        InvalidDesc,
        "input must not be empty along axis 0; got (0,)",
    ),
    ("resample", {"output_sizes": (-1,)}, InvalidDesc, "result.shape[0] must be at least 0; got -1"),
    ("resample3", {"antialiased": 1}, InvalidType, "antialiased must be true or false; got 1"),
    ("resample_grad", {"input_gradient": WHOLE}, InvalidType, "input_gradient must be of a floating type; got int32"),
    (
        "resample_grad",
        {"output_sizes": (2, 2)},
        InvalidDesc,
        "for each of the 1 dimensions of input_gradient; got (2, 2)",
    ),
    ("resample_grad1", {"output_sizes": (-2,)}, InvalidDesc, "output_sizes[0] must be at least 0; got -2"),
    ("resample_grad1", {"output_sizes": (0,)}, InvalidDesc, "output_sizes must not be empty along axis 0; got"),
]
