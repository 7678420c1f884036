"""ROI_POOLING, ROI_ALIGN, ROI_ALIGN1 and ROI_ALIGN_GRAD: the pages' tables and pseudo-code, and cases."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from cases import Arrays, Case, RefusedCall, RefusedDesc, ones
from formulas import Arr, bits_of, is_greater, number
from helpers import f32, tensor
from pages import tables

from dmljax import directml
from dmljax.directml import DataType, InterpolationMode, InvalidDesc, InvalidType, ReduceFunction, Size2D, TensorDesc

UINT_MAX = 2**32 - 1
AVERAGE, MAX = ReduceFunction.AVERAGE, ReduceFunction.MAX
NEAREST_NEIGHBOR, LINEAR = InterpolationMode


SUPPORT = tables(
    """
    ROI_POOLING: InputTensor ROITensor OutputTensor
        1_0 4 FLOATS
    ROI_ALIGN: InputTensor OutputTensor; ROITensor; BatchIndicesTensor
        3_0 4 FLOATS; 2-4 FLOATS; 1-4 UINT32
        5_0 4 FLOATS; 2-4 FLOATS; 1-4 UINT64 UINT32
    ROI_ALIGN1: InputTensor OutputTensor; ROITensor; BatchIndicesTensor
        4_0 4 FLOATS; 2-4 FLOATS; 1-4 UINT32
        5_0 4 FLOATS; 2-4 FLOATS; 1-4 UINT64 UINT32
    ROI_ALIGN_GRAD: InputTensor InputGradientTensor OutputGradientTensor; ROITensor OutputROIGradientTensor;
            BatchIndicesTensor
        4_1 4 FLOATS; 2-4 FLOATS; 1-4 UINT32
    """
)

MODES = "ReductionFunction InterpolationMode SpatialScaleX SpatialScaleY"
SAMPLES = "MinimumSamplesPerOutput MaximumSamplesPerOutput"
OFFSETS = "InputPixelOffset OutputPixelOffset"
MEMBERS = {
    "ROI_POOLING": "InputTensor ROITensor OutputTensor SpatialScale PooledSize",
    "ROI_ALIGN": f"InputTensor ROITensor BatchIndicesTensor OutputTensor {MODES} OutOfBoundsInputValue {SAMPLES}",
    "ROI_ALIGN1": "InputTensor ROITensor BatchIndicesTensor OutputTensor "
    f"{MODES} {OFFSETS} OutOfBoundsInputValue {SAMPLES} AlignRegionsToCorners",
    "ROI_ALIGN_GRAD": "InputTensor InputGradientTensor ROITensor BatchIndicesTensor OutputGradientTensor "
    f"OutputROIGradientTensor {MODES} {OFFSETS} {SAMPLES} AlignRegionsToCorners",
}

# Pseudo-code


def image_of(index: float, count: int) -> int:
    """A batch index from either end, clamped."""
    whole = int(np.clip(index, -count, count - 1))
    return whole + count if whole < 0 else whole


def pooled(input: Arr, roi: Arr, scale: float, size: Size2D) -> Arr:
    """The page's bins, in integers, and the first of the largest elements of each, bit for bit."""
    regions = roi.reshape(-1, 5)
    source = bits_of(input)
    output = np.zeros((len(regions), input.shape[1], size.height, size.width), source.dtype)
    for place in np.ndindex(*output.shape):
        r, channel, *element = place
        batch, *corners = (np.float32(corner) for corner in regions[r])
        scaled = [corner * np.float32(scale) for corner in corners]
        if not np.isfinite([batch, *scaled, scaled[2] - scaled[0], scaled[3] - scaled[1]]).all():
            output[place] = bits_of(np.array(np.nan, input.dtype))
            continue
        x1, y1, x2, y2 = (int(math.copysign(math.floor(abs(corner) + 0.5), corner)) for corner in map(float, scaled))
        ranges = []
        for first, last, i, count, whole in ((y1, y2, element[0], size.height, 2), (x1, x2, element[1], size.width, 3)):
            extent = max(last - first + 1, 1)
            start, end = i * extent // count + first, ((i + 1) * extent + count - 1) // count + first
            ranges.append(range(max(start, 0), min(end, input.shape[whole])))
        image = image_of(float(np.trunc(batch)), input.shape[0])
        best = None
        for y, x in itertools.product(*ranges):
            if best is None or is_greater(number(input[image, channel, y, x]), number(input[best])):
                best = (image, channel, y, x)
        output[place] = 0 if best is None else source[best]
    return output.view(input.dtype)


class Tap(NamedTuple):
    """A pixel that a sample reads along one dimension, its weight, and the weight's derivative by the position."""

    place: int
    weight: float
    derivative: float


class Sample(NamedTuple):
    """A sample along one dimension: what it reads, and the derivative of its position by the end of the region."""

    taps: list[Tap]  # none outside the image
    share: float


@dataclass(frozen=True)
class Sampling:
    """The members of ROI_ALIGN1 that say how to sample regions."""

    reduction: ReduceFunction
    mode: InterpolationMode
    scales: tuple[float, float]
    input_offset: float
    output_offset: float
    fewest: int
    most: int
    to_corners: bool

    def along(self, first: float, last: float, size: int, count: int) -> list[list[Sample]]:
        """The samples of each of `count` elements, of a region from `first` to `last` in a dimension of `size`."""
        extent = last - first
        each = int(min(max(math.ceil(extent / count), self.fewest, 1), self.most))
        total = count * each
        elements = []
        for element in range(count):
            samples = []
            for i in range(element * each, (element + 1) * each):
                share = (i - self.output_offset) / total
                if self.to_corners:
                    share = 0.5 if total == 1 else i / (total - 1)
                samples.append(Sample(self.taps(first + share * extent - self.input_offset, size), share))
            elements.append(samples)
        return elements

    def taps(self, position: float, size: int) -> list[Tap]:
        if not -1 <= position <= size:
            return []
        position = min(max(position, 0), size - 1)
        if self.mode is NEAREST_NEIGHBOR:
            return [Tap(math.ceil(position - 0.5), 1, 0)]
        low, high = math.floor(position), math.ceil(position)
        behind = position - low
        return [Tap(low, 1 - behind, -1.0), Tap(high, behind, 1.0)]

    def of_region(self, region: Arr, image: tuple[int, ...], size: tuple[int, int]) -> Any:
        """The samples along the height and the width; None if the region is not finite."""
        with np.errstate(all="ignore"):
            wide = region.astype(np.promote_types(region.dtype, np.float32))
            x1, y1, x2, y2 = wide * wide.dtype.type(self.scales * 2)
            if not np.isfinite([x1, y1, x2, y2, x2 - x1, y2 - y1]).all():
                return None
        y1, y2, x1, x2 = map(float, (y1, y2, x1, x2))
        return self.along(y1, y2, image[0], size[0]), self.along(x1, x2, image[1], size[1])


def value_of(image: Arr, y: Sample, x: Sample, outside: float) -> float:
    """`interpolate2D`; a pixel of weight 0 is not read."""
    if not (y.taps and x.taps):
        return outside
    pairs = itertools.product(y.taps, x.taps)
    return math.fsum(float(image[j.place, i.place]) * (j.weight * i.weight) for j, i in pairs if j.weight * i.weight)


def aligned(input: Arr, roi: Arr, batch: Arr, size: tuple[int, int], sampling: Sampling, outside: float) -> Arr:
    """Sample by sample, in float64."""
    regions, indices = roi.reshape(-1, 4), batch.ravel()
    output = np.empty((len(regions), input.shape[1], *size))
    for r, channel in np.ndindex(*output.shape[:2]):
        of_region = sampling.of_region(regions[r], input.shape[2:], size)
        image = input[image_of(int(indices[r]), len(input)), channel]
        for place in np.ndindex(*size):
            if of_region is None:
                output[r, channel, *place] = np.nan
                continue
            rows, columns = (along[i] for along, i in zip(of_region, place, strict=True))
            values = [value_of(image, y, x, outside) for y, x in itertools.product(rows, columns)]
            output[r, channel, *place] = first_largest(values)[1] if sampling.reduction is MAX else mean(values)
    return output


def mean(values: list[float]) -> float:
    return float(np.sum(values, dtype=np.float64) / len(values))


def first_largest(values: list[float]) -> tuple[int, float]:
    best = 0
    for i, value in enumerate(values):
        if is_greater(value, values[best]):
            best = i
    return best, values[best]


def gradients(
    input: Arr | None, gradient: Arr, roi: Arr, batch: Arr, sizes: tuple[int, ...], sampling: Sampling
) -> tuple[Arr, Arr]:
    """The gradients of the input and of the regions, in float64."""
    regions, indices = roi.reshape(-1, 4), batch.ravel()
    of_input, of_roi = np.zeros(sizes), np.zeros(regions.shape)
    for r, channel in np.ndindex(*gradient.shape[:2]):
        of_region = sampling.of_region(regions[r], sizes[2:], gradient.shape[2:])
        if of_region is None:
            continue
        image = (image_of(int(indices[r]), sizes[0]), channel)
        for place in np.ndindex(*gradient.shape[2:]):
            rows, columns = (along[i] for along, i in zip(of_region, place, strict=True))
            pairs = list(itertools.product(rows, columns))
            part = float(gradient[r, channel, *place])
            if sampling.reduction is MAX:
                assert input is not None
                pairs = [pairs[first_largest([value_of(input[image], y, x, 0.0) for y, x in pairs])[0]]]
            part /= len(pairs)
            for y, x in pairs:
                for j, i in itertools.product(y.taps, x.taps):
                    if j.weight * i.weight:
                        of_input[*image, j.place, i.place] += part * (j.weight * i.weight)
                    if input is not None and sampling.mode is LINEAR:
                        pixel = float(input[*image, j.place, i.place]) * part
                        slope_y, slope_x = pixel * j.derivative * i.weight, pixel * j.weight * i.derivative
                        scale_x, scale_y = sampling.scales
                        of_roi[r] += [
                            slope_x * (1 - x.share) * scale_x,
                            slope_y * (1 - y.share) * scale_y,
                            slope_x * x.share * scale_x,
                            slope_y * y.share * scale_y,
                        ]
    return of_input, of_roi.reshape(roi.shape)


# Descriptors


def sampling_of(desc: Any) -> Sampling:
    return Sampling(
        desc.reduction_function,
        desc.interpolation_mode,
        (float(desc.spatial_scale_x.item), float(desc.spatial_scale_y.item)),
        float(desc.input_pixel_offset.item) if hasattr(desc, "input_pixel_offset") else 0.5,
        float(desc.output_pixel_offset.item) if hasattr(desc, "output_pixel_offset") else -0.5,
        desc.minimum_samples_per_output,
        desc.maximum_samples_per_output,
        getattr(desc, "align_regions_to_corners", False),
    )


REGIONS, CHANNELS, IMAGE, RESULT = 5, 2, (2, 2, 5, 4), (2, 3)


def pooling_desc(types: Mapping[str, DataType], rank: int) -> directml.Operator:
    return directml.RoiPoolingDesc(
        input=TensorDesc(types["input"], ones(rank, *IMAGE)),
        roi=TensorDesc(types["input"], ones(rank, 1, 1, REGIONS, 5)),
        output=TensorDesc(types["input"], ones(rank, REGIONS, CHANNELS, *RESULT)),
        spatial_scale=0.5,
        pooled_size=Size2D(width=RESULT[1], height=RESULT[0]),
    )


# By type, so that each operator is tested with two ways of sampling; transformations use FLOAT32's.
ALIGN: dict[str, dict[DataType, dict[str, Any]]] = {
    "ROI_ALIGN": {
        DataType.FLOAT32: {"minimum_samples_per_output": 2, "maximum_samples_per_output": 2},
        DataType.FLOAT16: {"interpolation_mode": NEAREST_NEIGHBOR, "out_of_bounds_input_value": 3.0},
    },
    "ROI_ALIGN1": {
        DataType.FLOAT32: {
            "reduction_function": MAX,
            "input_pixel_offset": 0.0,
            "minimum_samples_per_output": 2,
            "maximum_samples_per_output": 2,
        },
        DataType.FLOAT16: {
            "align_regions_to_corners": True,
            "maximum_samples_per_output": 1,
            "out_of_bounds_input_value": 3.0,
        },
    },
    "ROI_ALIGN_GRAD": {
        DataType.FLOAT32: {
            "reduction_function": MAX,
            "minimum_samples_per_output": 2,
            "maximum_samples_per_output": 2,
        },
        DataType.FLOAT16: {},
    },
}


def attributes_of(operator: Any, data_type: DataType, **more: Any) -> dict[str, Any]:
    attributes = {
        "reduction_function": AVERAGE,
        "interpolation_mode": LINEAR,
        "spatial_scale_x": 0.5,
        "spatial_scale_y": 0.5,
        "input_pixel_offset": 0.5,
        "output_pixel_offset": -0.5,
        "out_of_bounds_input_value": 0.0,
        "minimum_samples_per_output": 1,
        "maximum_samples_per_output": UINT_MAX,
        "align_regions_to_corners": False,
    }
    attributes |= ALIGN[operator.type.removeprefix("DML_OPERATOR_")].get(data_type, {}) | more
    fields = {member.field for member in operator.members()}
    return {key: value for key, value in attributes.items() if key in fields}


def region_tensors(types: Mapping[str, DataType], rank: int) -> dict[str, TensorDesc]:
    return {
        "roi": TensorDesc(types["roi"], ones(rank, REGIONS, 4)),
        "batch_indices": TensorDesc(types["batch_indices"], ones(rank, REGIONS)),
    }


def align_desc(operator: Any) -> Any:
    def make(types: Mapping[str, DataType], rank: int) -> directml.Operator:
        desc: directml.Operator = operator(
            input=TensorDesc(types["roi"], IMAGE),
            **region_tensors(types, rank),
            output=TensorDesc(types["roi"], (REGIONS, CHANNELS, *RESULT)),
            **attributes_of(operator, types["roi"]),
        )
        return desc

    return make


def gradient_desc(types: Mapping[str, DataType], rank: int, **more: Any) -> directml.Operator:
    tensors = region_tensors(types, rank)
    members: dict[str, Any] = {
        "input": TensorDesc(types["roi"], IMAGE),
        "input_gradient": TensorDesc(types["roi"], (REGIONS, CHANNELS, *RESULT)),
        **tensors,
        "output_gradient": TensorDesc(types["roi"], IMAGE),
        "output_roi_gradient": tensors["roi"],
        **attributes_of(directml.RoiAlignGradDesc, types["roi"]),
    }
    return directml.RoiAlignGradDesc(**members | more)


def align_oracle(desc: Any, input: Arr, roi: Arr, batch_indices: Arr) -> Arr:
    outside = float(desc.out_of_bounds_input_value.item)
    return aligned(input, roi, batch_indices, desc.output.sizes[2:], sampling_of(desc), outside)


def gradient_oracle(desc: Any, input_gradient: Arr, roi: Arr, batch_indices: Arr, input: Arr | None = None) -> Any:
    sizes = desc.output_gradient.sizes if input is None else input.shape
    both = gradients(input, input_gradient, roi, batch_indices, sizes, sampling_of(desc))
    outputs = (desc.output_gradient, desc.output_roi_gradient)
    return tuple(gradient for gradient, tensor in zip(both, outputs, strict=True) if tensor is not None)


@dataclass(frozen=True)
class RegionCase(Case):
    """Random regions with corners at eighths, so that positions are exact, and often on pixels or ties."""

    def inputs(self, desc: directml.Operator, rng: np.random.Generator) -> Arrays:
        return super().inputs(desc, rng) | {"roi": random_regions(rng, desc)}

    def check(self, desc: directml.Operator, inputs: Arrays, outputs: Any) -> None:
        if not isinstance(outputs, tuple):
            super().check(desc, inputs, outputs)
            return
        # Most of a region's gradient cancels.
        for output, exact in zip(outputs, self.oracle(desc, **inputs), strict=True):
            precision = 2.0**-9 if output.dtype == np.float16 else 2.0**-20
            np.testing.assert_allclose(output, exact, rtol=precision, atol=64 * precision)


def random_regions(rng: np.random.Generator, desc: Any) -> Arr:
    sizes, dtype = desc.roi.sizes, desc.roi.dtype
    corners: Arr = (rng.integers(-40, 120, sizes) / 8).astype(dtype)
    if sizes[-1] == 5:
        corners[..., 0] = rng.choice([-3, -1.5, 0, 1, 7], sizes[:-1])
    rows = corners.reshape(-1, sizes[-1])
    if rows.size:
        rows[0, rng.integers(sizes[-1])] = rng.choice(np.array([np.nan, np.inf, -np.inf], dtype))
        rows[-1, -2:] = rows[-1, -4:-2]  # an empty region
    return corners


POSITIVE: dict[str, Any] = {"scales": ("input", "input_gradient"), "is_exact": False, "domain": (0.35, 3.3)}
CASES = {
    "ROI_POOLING": RegionCase(
        ("input",),
        pooling_desc,
        lambda desc, input, roi: pooled(input, roi, float(desc.spatial_scale.item), desc.pooled_size),
        domain=(1.2, 2.8),
    ),
    **{
        name: RegionCase(
            ("roi", "batch_indices"),
            align_desc(directml.OPERATORS[f"DML_OPERATOR_{name}"]),
            align_oracle,
            indices={"batch_indices": 2},
            **POSITIVE,
        )
        for name in ("ROI_ALIGN", "ROI_ALIGN1")
    },
    "ROI_ALIGN_GRAD": RegionCase(
        ("roi", "batch_indices"), gradient_desc, gradient_oracle, indices={"batch_indices": 2}, **POSITIVE
    ),
}


# Refusals

OF_FLOATS = {"roi": DataType.FLOAT32, "batch_indices": DataType.UINT32}
POOLING_DESC: Any = pooling_desc({"input": DataType.FLOAT32}, 4)
ALIGN_DESC: Any = align_desc(directml.RoiAlign1Desc)(OF_FLOATS, 2)
GRADIENT_DESC: Any = gradient_desc(OF_FLOATS, 2)
OF_IMAGE = replace(GRADIENT_DESC, input=None, output_roi_gradient=None, reduction_function="AVERAGE")
NEEDS_INPUT = "InputTensor must be given if OutputROIGradientTensor is, or if ReductionFunction is MAX; got none"

IMAGES, ROI = np.zeros((2, 3, 7, 6), np.float32), np.zeros((5, 4), np.float32)
WITH_INDICES = {"input": IMAGES, "roi": ROI, "batch_indices": np.zeros(5, np.int32)}

CALLS: dict[str, dict[str, Any]] = {
    "roi_align": WITH_INDICES | {"output_size": 2},
    "roi_align_grad": WITH_INDICES | {"input_gradient": np.zeros((5, 3, 2, 2), np.float32)},
}

REFUSED_DESCS: list[RefusedDesc] = [
    (POOLING_DESC, {"roi": f32(1, 1, 5, 4)}, "ROITensor.Sizes must be {1,1,5,5}; got {1,1,5,4}"),
    (POOLING_DESC, {"output": f32(5, 2, 3, 2)}, "OutputTensor.Sizes must be {5,2,2,3}; got {5,2,3,2}"),
    (POOLING_DESC, {"roi": tensor("FLOAT16", 1, 1, 5, 5)}, "must have the same DataType"),
    (POOLING_DESC, {"spatial_scale": np.inf}, "SpatialScale must be finite; got inf"),
    (ALIGN_DESC, {"roi": f32(5, 5)}, "ROITensor.Sizes must be {5,4}; got {5,5}"),
    (ALIGN_DESC, {"roi": f32(2, 5, 4)}, "ROITensor.Sizes must be {1,5,4}; got {2,5,4}"),
    (ALIGN_DESC, {"batch_indices": tensor("UINT32", 1, 4)}, "BatchIndicesTensor.Sizes must be {1,5}; got {1,4}"),
    (ALIGN_DESC, {"output": f32(5, 3, 2, 3)}, "OutputTensor.Sizes must be {5,2,2,3}; got {5,3,2,3}"),
    (ALIGN_DESC, {"output": tensor("FLOAT16", 5, 2, 2, 3)}, "must have the same DataType"),
    (ALIGN_DESC, {"reduction_function": "SUM"}, "ReductionFunction must be AVERAGE or MAX; got SUM"),
    (ALIGN_DESC, {"spatial_scale_y": np.nan}, "SpatialScaleY must be finite; got nan"),
    (ALIGN_DESC, {"input_pixel_offset": np.inf}, "InputPixelOffset must be finite; got inf"),
    (
        ALIGN_DESC,
        {"minimum_samples_per_output": 0, "maximum_samples_per_output": 0},
        "MaximumSamplesPerOutput must be at least 1; got 0",
    ),
    (ALIGN_DESC, {"minimum_samples_per_output": 3}, "must be at most 2, MaximumSamplesPerOutput; got 3"),
    (GRADIENT_DESC, {"roi": tensor("FLOAT16", 5, 4)}, "must have the same DataType"),
    (GRADIENT_DESC, {"output_gradient": None, "output_roi_gradient": None}, "OutputROIGradientTensor is; got none"),
    (GRADIENT_DESC, {"input": None, "reduction_function": "AVERAGE"}, NEEDS_INPUT),
    (GRADIENT_DESC, {"input": None, "output_roi_gradient": None}, NEEDS_INPUT),
    (OF_IMAGE, {"reduction_function": "MAX"}, NEEDS_INPUT),
    (GRADIENT_DESC, {"output_gradient": f32(2, 2, 5, 5)}, "must have the same Sizes"),
    (GRADIENT_DESC, {"output_roi_gradient": f32(1, 5, 4)}, "must have the same DimensionCount"),
    (GRADIENT_DESC, {"input_gradient": f32(5, 1, 2, 3)}, "InputGradientTensor.Sizes must be {5,2,2,3}"),
    (GRADIENT_DESC, {"maximum_samples_per_output": 1}, "MinimumSamplesPerOutput must be at most 1"),
]

REFUSED_CALLS: list[RefusedCall] = [
    ("roi_align", {"input": IMAGES[0]}, InvalidDesc, "input must have 4 dimensions: batch, channels, ...; got 3"),
    ("roi_align", {"batch_indices": ROI[:, 0]}, InvalidType, "batch_indices must be of an integer type"),
    ("roi_align", {"output_size": 0}, InvalidDesc, "output_size.width must be at least 1; got 0"),
    ("roi_align", {"output_size": (2, 3)}, InvalidType, "output_size must be an integer or a Size2D"),
    ("roi_align", {"input": IMAGES[:, :, :0]}, InvalidDesc, "input must not be empty; got shape (2, 3, 0, 6)"),
    ("roi_align_grad", {"input": None}, InvalidDesc, "output_sizes must be given without input"),
    ("roi_align_grad", {"output_sizes": (1, 3, 7, 6)}, InvalidDesc, "of input, (2, 3, 7, 6); got (1, 3, 7, 6)"),
    ("roi_align_grad", {"input": IMAGES.astype(np.float16)}, InvalidType, "be of float16, as input is; got float32"),
]
