"""How near two results of an operator have to be: what DESIGN.md and the operators' pages promise."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmljax.conformance.samples import room_of
from dmljax.descriptors.base import Operator
from dmljax.descriptors.tensor import TensorDesc

EXACT, ROUNDING, SUMS = "exact", "rounding", "sums"
# Units in the last place: of each element where elements round, and of the largest one where sums do.
ALLOWED: Mapping[str, Mapping[str, float]] = {
    EXACT: {},
    ROUNDING: {"float16": 1, "float32": 4, "float64": 4},
    SUMS: {"float16": 2, "float32": 16, "float64": 16},
}
# Operators of floats that copy, select or compare, outside of `dmljax/ops/data`, which has only such operators.
_EXACT = """
    ACTIVATION_HARDMAX ACTIVATION_HARDMAX1 ACTIVATION_IDENTITY ACTIVATION_RELU ACTIVATION_RELU_GRAD
    ACTIVATION_THRESHOLDED_RELU CAST ELEMENT_WISE_ABS ELEMENT_WISE_BIT_AND ELEMENT_WISE_BIT_NOT ELEMENT_WISE_BIT_OR
    ELEMENT_WISE_BIT_XOR ELEMENT_WISE_CEIL ELEMENT_WISE_CLIP ELEMENT_WISE_CLIP1 ELEMENT_WISE_CLIP_GRAD
    ELEMENT_WISE_CLIP_GRAD1 ELEMENT_WISE_FLOOR ELEMENT_WISE_IDENTITY ELEMENT_WISE_IF ELEMENT_WISE_MAX
    ELEMENT_WISE_MIN ELEMENT_WISE_NEGATE ELEMENT_WISE_ROUND ELEMENT_WISE_SIGN ELEMENT_WISE_THRESHOLD MAX_POOLING
    MAX_POOLING1 MAX_POOLING2 MAX_UNPOOLING PADDING PADDING1 ROI_POOLING TOP_K TOP_K1 UNFOLD
"""


def promise_of(desc: Operator, tensor: TensorDesc) -> str:
    """The promise for an output of a desc: exact, rounding or sums."""
    if tensor.dtype.kind != "f":
        return EXACT
    room, is_scaled = room_of(type(desc)), getattr(desc, "scale_bias", None) is not None
    if room == "data" or (desc.short_name in _EXACT.split() and not is_scaled):
        return EXACT
    if getattr(getattr(desc, "function", None), "name", "") in ("MAX", "MIN"):
        return EXACT
    return ROUNDING if room == "elementwise" else SUMS


def measure_distance(ours: NDArray[Any], theirs: NDArray[Any], promise: str, largest_input: float) -> NDArray[Any]:
    """How many units in the last place two results are apart, element by element; infinity where only one is a number.

    Any NaN equals any other, and a subnormal equals zero, as devices may flush it. Zeros differ by their signs, in half
    a unit, where the promise is exact. A unit of sums is that of the largest element, of the result or the inputs,
    because the summands may be larger than what is left of them.
    """
    if ours.dtype.kind != "f":
        difference: NDArray[Any] = np.abs(ours.astype(object) - theirs.astype(object)).astype(np.float64)
        return difference
    limits = np.finfo(ours.dtype)
    first, second = (np.where(np.abs(x) < limits.tiny, np.copysign(x.dtype.type(0), x), x) for x in (ours, theirs))
    is_nan = np.isnan(first) & np.isnan(second)
    is_same = is_nan | (first == second)
    with np.errstate(all="ignore"):
        if promise == SUMS:
            finite = np.abs(first[np.isfinite(first)].astype(np.float64))
            scale = max(float(finite.max(initial=0)), largest_input, float(limits.tiny))
            unit = float(np.spacing(ours.dtype.type(min(scale, float(limits.max)))))
            apart = np.abs(first.astype(np.float64) - second.astype(np.float64)) / unit
        else:
            apart = np.abs(_order(first) - _order(second)).astype(np.float64)
    is_number = np.isfinite(first) & np.isfinite(second)
    at_the_end = np.isinf(first) != np.isinf(second)  # the largest number and infinity are a unit apart
    allowed_end = at_the_end & ~np.isnan(first) & ~np.isnan(second) & (promise == ROUNDING)
    distance = np.where(is_same, 0.0, np.where(is_number | allowed_end, apart, np.inf))
    if promise == EXACT:
        distance = np.where((distance == 0) & ~is_nan & (np.signbit(first) != np.signbit(second)), 0.5, distance)
    return distance


def _order(floats: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in the order of the floats, in which neighbors differ by 1."""
    bits = floats.view(f"i{floats.dtype.itemsize}").astype(object)
    lowest = -(2 ** (8 * floats.dtype.itemsize - 1))
    return np.asarray(np.where(bits < 0, lowest - bits, bits))
