"""Resize and Upsample."""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax import directml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.foundation.dimensions import is_symbolic, number, replace_at
from dmljax.onnx.handlers.registry import handles, look_up, takes_attributes
from dmljax.onnx.handlers.signatures import Attributes, Known, KnownVector
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.running.interpreter import promote
from dmljax.onnx.values.symbols import SizeExpression, as_sizes, size_of
from dmljax.onnx.values.types import Array

# How a position is rounded, and the shift before rounding
_NEAREST = {
    "round_prefer_floor": (directml.AxisDirection.INCREASING, 0.5),
    "round_prefer_ceil": (directml.AxisDirection.DECREASING, -0.5),
    "floor": (directml.AxisDirection.DECREASING, 0.0),
    "ceil": (directml.AxisDirection.INCREASING, 0.0),
}
MAX_SIZE = 2**31 - 1
MAX_WEIGHTS = 2**27  # per dimension: about a gigabyte
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
    axes = [*range(x.ndim)] if resize.axes is None else [normalize_axis(axis, x.ndim) for axis in resize.axes]
    ratios, new = _sizes(x, scales, sizes, axes, resize.keep_aspect_ratio_policy)
    if any(isinstance(size, int) and size == 0 for size in new):
        return jnp.zeros(tuple(new), x.dtype)
    transformation = resize.coordinate_transformation_mode
    look_up("coordinate_transformation_mode", transformation, dict.fromkeys(_COORDINATES))
    places = _places(x.shape, new, ratios, roi, axes, transformation)
    direction, shift = look_up("nearest_mode", resize.nearest_mode, _NEAREST)
    mode = look_up("mode", resize.mode, _MODES)
    is_cropped = transformation == "tf_crop_and_resize"
    outside = resize.extrapolation_value if is_cropped else None
    taps = _Taps(mode, direction, shift, resize.cubic_coeff_a, bool(resize.exclude_outside), outside)
    if any(isinstance(number, jax.Array) for numbers in places for number in numbers) or (
        (mode == "cubic" or is_cropped) and any(map(is_symbolic, (*x.shape, *new)))
    ):
        if resize.antialias:
            raise Unsupported(Problem("antialias", "must be 0 for open sizes", resize.antialias))
        return _resize_by_neighbors(x, new, places, taps)
    # DirectML's filter width follows the scale, and ONNX's the ratio of the sizes.
    is_other_filter = resize.antialias and (resize.exclude_outside or places.scales != ratios)
    is_wide_integer = jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize > 1
    if mode == "cubic" or is_cropped or (mode == "linear" and (is_other_filter or is_wide_integer)):
        stretches = [min(ratio, 1.0) if resize.antialias else 1.0 for ratio in ratios]
        return _resize_by_products(x, new, places, taps, stretches)
    return dmljax.resample3(
        x,
        output_sizes=new,
        scales=[scale if scale < math.inf else 1.0 for scale in places.scales],  # any scale finds a single element
        interpolation_mode=directml.InterpolationMode["LINEAR" if mode == "linear" else "NEAREST_NEIGHBOR"],
        rounding_direction=direction,
        input_pixel_offsets=[offset + (0 if mode == "linear" else shift) for offset in places.before],
        output_pixel_offsets=places.after,
        antialiased=bool(resize.antialias),
    )


def _sizes(
    x: Array, scales: Known | None, sizes: Known | None, axes: Sequence[int], policy: str
) -> tuple[list[float], list[int]]:
    """The scale and new size of each dimension."""
    ratios, new = [1.0] * x.ndim, list(x.shape)
    both = [numbers for numbers in (sizes, scales) if numbers is not None and numbers.size > 0]
    if len(both) != 1:
        raise InvalidDesc(Problem((), "needs either scales or sizes", "both" if both else "none"))
    has_sizes = both[0] is sizes
    sizes_or_scales: Sequence[Any] = as_sizes(both[0]) if has_sizes else both[0].tolist()
    if len(sizes_or_scales) != len(axes):
        raise InvalidDesc(
            Problem("sizes" if has_sizes else "scales", f"must have {len(axes)} numbers", tuple(sizes_or_scales))
        )
    are_empty = [isinstance(x.shape[axis], int) and x.shape[axis] == 0 for axis in axes]
    if has_sizes and any(is_empty and number != 0 for is_empty, number in zip(are_empty, sizes_or_scales, strict=True)):
        raise InvalidDesc(Problem("X", "must not be empty where it is resized", x.shape))
    left = [number for is_empty, number in zip(are_empty, sizes_or_scales, strict=True) if not (has_sizes and is_empty)]
    if any(not number > 0 or number == math.inf for number in left):
        raise InvalidDesc(
            Problem("sizes" if has_sizes else "scales", "must be positive and finite", tuple(sizes_or_scales))
        )
    if not has_sizes:
        for axis, ratio in zip(axes, sizes_or_scales, strict=True):
            ratios[axis] = ratio
            new[axis] = _scale_size(x.shape[axis], ratio)
        if any(isinstance(size, int) and size > MAX_SIZE for size in new):
            raise Unsupported(Problem("scales", f"must give sizes of at most {MAX_SIZE}", tuple(new)))
        return ratios, new
    choose = look_up("keep_aspect_ratio_policy", policy, _POLICIES)
    if choose is not None and any(map(is_symbolic, (*sizes_or_scales, *x.shape))):
        raise Unsupported(Problem("keep_aspect_ratio_policy", "must be stretch for open sizes", policy))
    wanted_ratios = [
        1.0 if size == x.shape[axis] else size / x.shape[axis] for axis, size in zip(axes, sizes_or_scales, strict=True)
    ]
    for axis, ratio, size in zip(axes, wanted_ratios, sizes_or_scales, strict=True):
        if choose is None:
            ratios[axis], new[axis] = ratio, size
        else:
            ratios[axis] = choose(wanted_ratios)
            new[axis] = math.floor(ratios[axis] * x.shape[axis] + 0.5)
    return ratios, new


def _scale_size(size: int, ratio: float) -> int:
    if not is_symbolic(size):
        return math.floor(np.float32(ratio) * np.float32(size))
    try:
        return size_of(SizeExpression(size) * ratio)
    except TypeError:
        raise Unsupported(Problem("scales", "must be simple fractions for open sizes", ratio)) from None


class _Places(NamedTuple):
    """Maps the indices of the result to the input: `(index - after) / scale - before`."""

    before: list[Any]
    after: list[Any]
    scales: list[Any]

    def along(self, axis: int, indices: Any) -> Any:
        return (indices - self.after[axis]) / self.scales[axis] - self.before[axis]


def _places(
    old: Sequence[int], new: Sequence[int], ratios: Sequence[float], roi: Known | None, axes: Sequence[int], mode: str
) -> _Places:
    """The offsets before and after scaling, and the scales, by which DirectML expresses all modes."""
    rank = len(old)
    before, after, scales = [0.5] * rank, [-0.5] * rank, [*ratios]
    starts, ends = [0.0] * rank, [1.0] * rank
    if mode == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(axes):
            raise InvalidDesc(Problem("roi", f"must have {2 * len(axes)} numbers", None if roi is None else roi.shape))
        for i, axis in enumerate(axes):
            starts[axis], ends[axis] = float(roi.flat[i]), float(roi.flat[len(axes) + i])
    for i, (old_size, size) in enumerate(zip(map(_as_number, old), map(_as_number, new), strict=True)):
        if is_symbolic(old[i]) and new[i] == old[i] and isinstance(ratios[i], float) and ratios[i] == 1:
            continue  # nothing moves
        match mode:
            case "align_corners":
                last = ratios[i] * old_size - 1  # the size may be fractional
                before[i], after[i] = 0.0, 0.0
                is_scaled = (old_size > 1) & (last > 0) & (size != 1)
                only = _choose((old_size == 1) & (size > 1), np.inf, 1.0)  # all positions are 0
                scales[i] = _choose(is_scaled, last / _choose(old_size > 1, old_size - 1, 1), only)
            case "asymmetric":
                before[i], after[i] = 0.0, 0.0
            case "tf_half_pixel_for_nn":
                before[i] = _choose(ratios[i] == 1, 0.5, 0.0)  # nothing moves along other dimensions
            case "half_pixel_symmetric":
                before[i] = 0.5 - old_size / 2 * (1 - size / (ratios[i] * old_size))
            case "pytorch_half_pixel":
                single = (0.0, 0.0, 1.0)
                spread = (before[i], after[i], scales[i])
                before[i], after[i], scales[i] = (
                    _choose(size == 1, *pair) for pair in zip(single, spread, strict=True)
                )
            case "tf_crop_and_resize":
                span = (ends[i] - starts[i]) * (old_size - 1)
                is_several, is_wide = size > 1, span != 0
                center = 0.5 * (starts[i] + ends[i])
                before[i], after[i] = -_choose(is_several, starts[i], center) * (old_size - 1), 0.0
                spread = _choose(is_wide, (size - 1) / _choose(is_wide, span, 1), np.inf)
                scales[i] = _choose(is_several, spread, 1.0)
    return _Places(before, after, scales)


def _as_number(size: int) -> Any:
    return number(size, np.float32) if is_symbolic(size) else size


def _choose(condition: Any, if_true: Any, if_false: Any) -> Any:
    if isinstance(condition, jax.Array):
        return jnp.where(condition, if_true, if_false)
    return if_true if condition else if_false


class _Taps(NamedTuple):
    """How the elements around a position contribute to it."""

    mode: str
    direction: directml.AxisDirection  # of rounding for the nearest element, after the shift
    shift: float
    coefficient: float  # of cubic weights
    exclude_outside: bool
    outside: float | None  # the value of positions outside the input, if any

    def neighbors(self, places: Any, old: int, stretch: float = 1.0) -> tuple[Any, Any]:
        """The contributing elements at each position of the result, and their weights, by NumPy or by JAX."""
        numpy: Any = jnp if isinstance(places, jax.Array) else np
        last = number(old - 1, np.int32)
        if self.mode == "nearest":
            rounding = numpy.floor if self.direction is directml.AxisDirection.DECREASING else numpy.ceil
            chosen = numpy.clip(rounding(places - self.shift).astype(np.int32), 0, last)[:, None]
            return chosen, numpy.ones(chosen.shape)
        is_cubic = self.mode == "cubic"
        reach = math.ceil((2 if is_cubic else 1) / stretch)
        first = numpy.floor(places) - (reach - 1)
        taps = first[:, None] + numpy.arange(2 * reach, dtype=places.dtype)[None, :]
        distances = numpy.abs(taps - places[:, None]) * stretch
        weights = _cubic(numpy, distances, self.coefficient) if is_cubic else numpy.maximum(0, 1 - distances)
        if self.exclude_outside:
            weights = numpy.where((taps < 0) | (taps > last.astype(taps.dtype)), 0, weights)
        return numpy.clip(taps.astype(np.int32), 0, last), weights / weights.sum(axis=1, keepdims=True)

    def matrix(self, places: Known, old: int, stretch: float) -> Known:
        """The weight of each element at each position of the result."""
        count = len(places)
        if count * old > MAX_WEIGHTS:
            rule = f"must need at most {MAX_WEIGHTS} weights to resize"
            raise Unsupported(Problem("X", rule, f"{count} times {old}"))
        indices, weights = self.neighbors(places, old, stretch)
        rows = np.zeros((count, old))
        np.add.at(rows, (np.arange(count)[:, None], indices), weights)
        return rows

    def wide(self, x: Array) -> Array:
        """An array in a type that holds its averages."""
        return x if self.mode == "nearest" else x.astype(promote(x.dtype, jnp.float32))


def _resize_by_products(
    x: Array, new: Sequence[int], places: _Places, taps: _Taps, stretches: Sequence[float]
) -> Array:
    """Resizes by a matrix product per dimension, for what DirectML lacks.

    That is cubic weights, averages of wide integers, and other border handling.
    """
    result = taps.wide(x)
    is_outside = np.zeros((1,) * x.ndim, bool)
    for axis, (old, size) in enumerate(zip(x.shape, new, strict=True)):
        # Round away the errors of float64, so that the end of a crop is not outside.
        positions = np.round(places.along(axis, np.arange(size)), 10)
        if taps.outside is not None:
            is_outside = is_outside | ((positions < 0) | (positions > old - 1)).reshape(
                replace_at((1,) * x.ndim, axis, size)
            )
        if old == size and places.scales[axis] == 1 and np.array_equal(positions, np.arange(size)):
            continue
        if taps.mode == "nearest":
            result = jnp.take(result, taps.neighbors(positions, old)[0][:, 0], axis=axis)
            continue
        matrix = jnp.asarray(taps.matrix(positions, old, stretches[axis]), result.dtype)
        result = jnp.moveaxis(jnp.tensordot(result, matrix, (axis, 1), precision="highest"), -1, axis)
    if taps.outside is not None:
        result = jnp.where(jnp.asarray(is_outside), jnp.asarray(taps.outside, result.dtype), result)
    return _round_to(result, x.dtype)


def _resize_by_neighbors(x: Array, new: Sequence[int], places: _Places, taps: _Taps) -> Array:
    """Resizes open sizes by adding weighted neighbors, because the matrix of the product is not known."""
    result = taps.wide(x)
    for axis, (old, size) in enumerate(zip(x.shape, new, strict=True)):
        if old == size and isinstance(places.scales[axis], float) and places.scales[axis] == 1:
            continue
        positions = places.along(axis, jnp.arange(size, dtype=jnp.float32))
        indices, weights = taps.neighbors(positions, old)
        spread = replace_at((1,) * x.ndim, axis, -1)
        parts = [jnp.take(result, indices[:, i], axis=axis) for i in range(indices.shape[1])]
        if taps.mode == "nearest":
            result = parts[0]
        else:
            shares = (part * weights[:, i].astype(part.dtype).reshape(spread) for i, part in enumerate(parts))
            result = functools.reduce(operator.add, shares)
        if taps.outside is not None:
            is_outside = ((positions < 0) | (positions > number(old - 1, np.float32))).reshape(spread)
            result = jnp.where(is_outside, jnp.asarray(taps.outside, result.dtype), result)
    return _round_to(result, x.dtype)


def _round_to(x: Array, dtype: Any) -> Array:
    """Converts results to the input's type; averages of integers are rounded to nearest, as DirectML's."""
    is_average = jnp.issubdtype(x.dtype, jnp.floating) and not jnp.issubdtype(dtype, jnp.floating)
    return (jnp.round(x) if is_average else x).astype(dtype)


def _cubic(numpy: Any, distance: Any, a: float) -> Any:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return numpy.where(distance <= 1, near, numpy.where(distance < 2, far, 0))


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
