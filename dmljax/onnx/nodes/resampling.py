"""Resize and Upsample."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

import dmljax as dml
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.interpreter import as_sizes, promoted
from dmljax.onnx.nodes.shapes import normal
from dmljax.onnx.parameters import Array, Attributes, Known, KnownVector
from dmljax.onnx.registry import handles, one_of, takes_attributes

# Which way a position is rounded, and how far it is moved before
_NEAREST = {
    "round_prefer_floor": (directml.AxisDirection.INCREASING, 0.5),
    "round_prefer_ceil": (directml.AxisDirection.DECREASING, -0.5),
    "floor": (directml.AxisDirection.DECREASING, 0.0),
    "ceil": (directml.AxisDirection.INCREASING, 0.0),
}
MAX_SIZE = 2**31 - 1
MAX_WEIGHTS = 2**27  # of one dimension: a gigabyte
_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
_POLICIES = {"stretch": None, "not_larger": min, "not_smaller": max}
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)


@dataclass(frozen=True, kw_only=True)
class _ResizeAttributes(Attributes):
    antialias: int = 0
    axes: Sequence[int] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"


@handles("Resize", since=11)
def _resize(
    x: Array,
    roi: Known | None = None,
    scales: KnownVector | None = None,
    sizes: KnownVector | None = None,
    *,
    resize: _ResizeAttributes,
) -> Array:
    axes = [*range(x.ndim)] if resize.axes is None else [normal(axis, x.ndim) for axis in resize.axes]
    if x.ndim and jax.export.is_symbolic_dim(x.shape[0]):
        roi, scales, sizes, axes = _of_images(x, roi, scales, sizes, axes)
        return jax.vmap(lambda image: _resize(image, roi, scales, sizes, resize=replace(resize, axes=axes)))(x)
    ratios, new = _sizes(x, scales, sizes, axes, resize.keep_aspect_ratio_policy)
    transformation = resize.coordinate_transformation_mode
    one_of("coordinate_transformation_mode", transformation, dict.fromkeys(_COORDINATES))
    before, after, factors = _offsets(x.shape, new, ratios, roi, axes, transformation)
    direction, shift = one_of("nearest_mode", resize.nearest_mode, _NEAREST)
    kind = one_of("mode", resize.mode, _MODES)
    is_cropped = transformation == "tf_crop_and_resize"
    # DirectML's filter is as wide as the scale says, where ONNX's is as wide as the ratio of the sizes.
    is_other_filter = kind == "linear" and resize.antialias and (resize.exclude_outside or factors != ratios)
    if kind == "cubic" or is_cropped or is_other_filter:
        stretches = [min(ratio, 1.0) if resize.antialias else 1.0 for ratio in ratios]
        outside = resize.extrapolation_value if is_cropped else None
        settings = (resize.cubic_coeff_a, bool(resize.exclude_outside), outside)
        return _weighted(x, new, factors, stretches, before, after, kind, (direction, shift), settings)
    return dml.resample3(
        x,
        output_sizes=new,
        scales=factors,
        interpolation_mode=directml.InterpolationMode["LINEAR" if kind == "linear" else "NEAREST_NEIGHBOR"],
        rounding_direction=direction,
        input_pixel_offsets=[one + (0 if kind == "linear" else shift) for one in before],
        output_pixel_offsets=after,
        antialiased=bool(resize.antialias),
    )


def _of_images(
    x: Array, roi: Known | None, scales: Known | None, sizes: Known | None, axes: list[int]
) -> tuple[Known | None, Known | None, Known | None, list[int]]:
    """The same for each image of a batch whose size is open, which must stay as it is."""
    if 0 in axes:
        i, count = axes.index(0), len(axes)
        if sizes is not None and sizes.size:
            is_kept = sizes.flat[i] == x.shape[0]
        else:
            is_kept = scales is not None and scales.flat[i] == 1
        if not is_kept:
            raise InvalidDesc(Problem("axes", "must not resize a batch of an open size", x.shape))
        roi, scales, sizes = (one if one is None or not one.size else np.delete(one, i) for one in (roi, scales, sizes))
        roi = None if roi is None or not roi.size else np.delete(roi, count - 1 + i)
    return roi, scales, sizes, [axis - 1 for axis in axes if axis]


def _sizes(
    x: Array, scales: Known | None, sizes: Known | None, axes: Sequence[int], policy: str
) -> tuple[list[float], list[int]]:
    """The scale and the new size of each dimension."""
    ratios, new = [1.0] * x.ndim, list(x.shape)
    both = [one for one in (sizes, scales) if one is not None and one.size > 0]
    if len(both) != 1:
        raise InvalidDesc(Problem((), "must have one of scales and sizes", "both" if both else "none"))
    has_sizes = both[0] is sizes
    given: Sequence[Any] = as_sizes(both[0]) if has_sizes else both[0].tolist()
    if len(given) != len(axes):
        raise InvalidDesc(Problem("sizes" if has_sizes else "scales", f"must have {len(axes)} numbers", tuple(given)))
    if any(not one > 0 or one == math.inf for one in given):
        raise InvalidDesc(Problem("sizes" if has_sizes else "scales", "must be above 0, and finite", tuple(given)))
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        raise InvalidDesc(Problem("X", "must not be empty", x.shape))
    if not has_sizes:
        for axis, ratio in zip(axes, given, strict=True):
            ratios[axis] = ratio
            new[axis] = math.floor(np.float32(ratio) * np.float32(x.shape[axis]))
        if any(isinstance(size, int) and size > MAX_SIZE for size in new):
            raise Unsupported(Problem("scales", f"must give sizes of at most {MAX_SIZE}", tuple(new)))
        return ratios, new
    choose = one_of("keep_aspect_ratio_policy", policy, _POLICIES)
    own = [size / x.shape[axis] for axis, size in zip(axes, given, strict=True)]
    for axis, ratio, size in zip(axes, own, given, strict=True):
        if choose is None:
            ratios[axis], new[axis] = ratio, size
        else:
            ratios[axis] = choose(own)
            new[axis] = math.floor(ratios[axis] * x.shape[axis] + 0.5)
    return ratios, new


def _offsets(
    old: Sequence[int], new: Sequence[int], ratios: Sequence[float], roi: Known | None, axes: Sequence[int], mode: str
) -> tuple[list[float], list[float], list[float]]:
    """The offsets of positions before and after scaling, and the scales: what DirectML says all modes by."""
    rank = len(old)
    before, after, scales = [0.5] * rank, [-0.5] * rank, [*ratios]
    starts, ends = [0.0] * rank, [1.0] * rank
    if mode == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(axes):
            raise InvalidDesc(Problem("roi", f"must have {2 * len(axes)} numbers", None if roi is None else roi.shape))
        for i, axis in enumerate(axes):
            starts[axis], ends[axis] = float(roi.flat[i]), float(roi.flat[len(axes) + i])
    for i in range(rank):
        match mode:
            case "align_corners":
                last = ratios[i] * old[i] - 1  # of a size that may be fractional
                before[i], after[i] = 0.0, 0.0
                scales[i] = last / (old[i] - 1) if old[i] > 1 and last > 0 else 1.0
                if new[i] == 1:
                    scales[i] = 1.0
            case "asymmetric":
                before[i], after[i] = 0.0, 0.0
            case "tf_half_pixel_for_nn":
                before[i], after[i] = 0.5, 0.0
            case "half_pixel_symmetric":
                before[i] = 0.5 - old[i] / 2 * (1 - new[i] / (ratios[i] * old[i]))
            case "pytorch_half_pixel":
                if new[i] == 1:
                    before[i], after[i], scales[i] = 0.0, 0.0, 1.0
            case "tf_crop_and_resize":
                span = (ends[i] - starts[i]) * (old[i] - 1)
                if new[i] > 1:
                    before[i], after[i] = -starts[i] * (old[i] - 1), 0.0
                    scales[i] = (new[i] - 1) / span if span else np.inf
                else:
                    before[i], after[i], scales[i] = -0.5 * (starts[i] + ends[i]) * (old[i] - 1), 0.0, 1.0
    return before, after, scales


def _weighted(
    x: Array,
    new: Sequence[int],
    scales: Sequence[float],
    stretches: Sequence[float],
    before: Sequence[float],
    after: Sequence[float],
    kind: str,
    nearest: tuple[directml.AxisDirection, float],
    settings: tuple[float, bool, float | None],
) -> Array:
    """What DirectML has not, by a product for each dimension: cubic weights, and other ways with what lies outside."""
    coefficient, exclude_outside, outside = settings
    dtype = x.dtype
    result = x.astype(promoted(dtype, jnp.float32))
    is_outside = np.zeros((1,) * x.ndim, bool)
    for axis, (old, size) in enumerate(zip(x.shape, new, strict=True)):
        places = (np.arange(size) - after[axis]) / scales[axis] - before[axis]
        if outside is not None:
            shape = [1] * x.ndim
            shape[axis] = size
            is_outside = is_outside | ((places < 0) | (places > old - 1)).reshape(shape)
        if old == size and scales[axis] == 1 and np.array_equal(places, np.arange(size)):
            continue
        weights = _weights(places, old, kind, nearest, coefficient, stretches[axis], exclude_outside)
        result = jnp.moveaxis(jnp.tensordot(result, jnp.asarray(weights, result.dtype), (axis, 1)), -1, axis)
    if outside is not None:
        result = jnp.where(jnp.asarray(is_outside), jnp.asarray(outside, result.dtype), result)
    return result.astype(dtype)


def _weights(
    places: Known,
    old: int,
    kind: str,
    nearest: tuple[directml.AxisDirection, float],
    coefficient: float,
    stretch: float,
    exclude_outside: bool,
) -> Known:
    """For each place of the result, the weight of each element."""
    if len(places) * old > MAX_WEIGHTS:
        raise Unsupported(
            Problem("X", f"must be resized by at most {MAX_WEIGHTS} weights", f"{len(places)} times {old}")
        )
    if kind == "nearest":
        direction, shift = nearest
        rounding = np.floor if direction is directml.AxisDirection.DECREASING else np.ceil
        chosen = np.clip(rounding(places - shift), 0, old - 1).astype(int)
        return np.asarray(np.eye(old)[chosen])
    reach = math.ceil((2 if kind == "cubic" else 1) / stretch)
    first = np.floor(places).astype(int) - reach + 1
    taps = first[:, None] + np.arange(2 * reach)
    distances = np.abs(taps - places[:, None]) * stretch
    weights = _cubic(distances, coefficient) if kind == "cubic" else np.maximum(0, 1 - distances)
    if exclude_outside:
        weights = np.where((taps < 0) | (taps >= old), 0, weights)
    weights = weights / weights.sum(axis=1, keepdims=True)
    rows = np.zeros((len(places), old))
    np.add.at(rows, (np.arange(len(places))[:, None], np.clip(taps, 0, old - 1)), weights)
    return rows


def _cubic(distance: Known, a: float) -> Known:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


@handles("Resize", since=10)
def _first_resize(x: Array, scales: KnownVector, *, mode: str = "nearest") -> Array:
    resize = _ResizeAttributes(mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return _resize(x, None, scales, resize=resize)


@handles("Upsample", since=9)
def _upsample(x: Array, scales: KnownVector, *, mode: str = "nearest") -> Array:
    return _first_resize(x, scales, mode=mode)


takes_attributes("Upsample", since=7, scales=Sequence[float])


@handles("Upsample", since=1)
def _first_upsample(x: Array, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Array:
    return _first_resize(x, np.array([1, 1, height_scale, width_scale], np.float32), mode=mode)
