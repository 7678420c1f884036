"""Image and box operators: sampling between pixels, and non-maximum suppression."""

import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.registry import NodeCall, handles, look_up
from dmljax.onnx.handlers.signatures import ConvolutionAttributes, Images, KnownVector, Rows, WantedNumber
from dmljax.onnx.nodes.data.indexing import counting_type
from dmljax.onnx.nodes.images.windows import read_windows
from dmljax.onnx.running.interpreter import is_known, promote
from dmljax.onnx.values.counts import Count
from dmljax.onnx.values.padded import Padded
from dmljax.onnx.values.symbols import as_sizes
from dmljax.onnx.values.types import Array, Results

# Samples between pixels


def _cubic_weights(part: Array) -> list[Array]:
    a = -0.75
    near, far = ([part, 1 - part], [1 + part, 2 - part])
    inner = [((a + 2) * distance - (a + 3)) * distance * distance + 1 for distance in near]
    outer = [((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a for distance in far]
    return [outer[0], *inner, outer[1]]


def _taps(place: Array, mode: str) -> list[tuple[Array, Array]]:
    """The pixels that contribute to a sample along one dimension, and their weights."""
    low = jnp.floor(place)
    part = place - low
    if mode == "nearest":
        return [(jnp.round(place), jnp.ones_like(place))]
    if mode == "linear":
        return [(low, 1 - part), (low + 1, part)]
    return [(low + i - 1, weight) for i, weight in enumerate(_cubic_weights(part))]


def _reflect(place: Array, low: float, high: float) -> Array:
    """Reflects a coordinate at two borders until it lies between them."""
    span = max(high - low, 1e-6)
    rest = jnp.mod(place - low, 2 * span)
    return jnp.clip(low + jnp.where(rest > span, 2 * span - rest, rest), low, high)


def _sample(x: Array, places: Sequence[Array], mode: str, padding: str, align_corners: bool) -> Array:
    """Samples images [N, C, ...] at coordinates [N, ...] for each dimension; returns [N, C, ...]."""
    sizes = x.shape[2:]
    along = []
    for place, size in zip(places, sizes, strict=True):
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        place = jnp.round(place) if mode == "nearest" else place
        if (
            padding == "border" and mode != "cubic"
        ):  # for cubic, only the four pixels are clamped, as in PyTorch and ONNX Runtime
            place = jnp.where((place < low) | (place > high), jnp.clip(place, 0, size - 1), place)
        elif padding == "reflection":
            place = jnp.where((place < low) | (place > high), _reflect(place, low, high), place)
        taps = []
        for tap, weight in _taps(place, mode):
            if padding == "zeros":
                weight = jnp.where((tap >= 0) & (tap <= size - 1), weight, 0)
            elif padding == "reflection":
                tap = jnp.where((tap < low) | (tap > high), _reflect(tap, low, high), tap)
            # The weight of a NaN coordinate is NaN, and so is the sample.
            taps.append((jnp.clip(jnp.nan_to_num(tap), 0, size - 1).astype(jnp.int32), weight))
        along.append(taps)
    wide = promote(x.dtype, places[0].dtype)
    pixels = jnp.moveaxis(x, 1, -1).astype(wide)
    batch = jnp.arange(x.shape[0]).reshape(-1, *[1] * (places[0].ndim - 1))
    total: Array | int = 0
    for corner in itertools.product(*along):
        weight = math.prod((weight for _, weight in corner), start=jnp.ones((), places[0].dtype)).astype(wide)
        total += pixels[(batch, *(tap for tap, _ in corner))] * weight[..., None]
    return jnp.moveaxis(total, -1, 1).astype(x.dtype)


@handles("GridSample")
def _grid_sample(
    x: Images, grid: Images, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    modes = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}
    interpolation = look_up("mode", mode, modes)
    padding = look_up("padding_mode", padding_mode, {name: name for name in ("zeros", "border", "reflection")})
    if grid.ndim != x.ndim or grid.shape[-1] != x.ndim - 2 or grid.shape[0] != x.shape[0]:
        raise InvalidDesc(
            Problem(
                "grid",
                f"must have {x.ndim} dimensions, {x.shape[0]} first and {x.ndim - 2} last, to match X {x.shape}",
                grid.shape,
            )
        )
    grid = grid.astype(promote(grid.dtype, jnp.float32))
    places = []
    for i, size in enumerate(x.shape[2:]):
        number = grid[..., -1 - i]  # the grid lists the last dimension first
        places.append((number + 1) / 2 * (size - 1) if align_corners else ((number + 1) * size - 1) / 2)
    return _sample(x, places, interpolation, padding, bool(align_corners))


@handles("AffineGrid")
def _affine_grid(theta: Rows, size: KnownVector, *, align_corners: int = 0) -> Array:
    space = as_sizes(size)[2:]
    if theta.shape[1:] != (len(space), len(space) + 1):
        raise InvalidDesc(Problem("theta", f"must hold {len(space)} x {len(space) + 1} matrices", theta.shape))
    axes = []
    for count in space:
        numbers = jnp.arange(count, dtype=promote(theta.dtype, jnp.float32))
        last = max(count - 1, 1)
        axes.append((2 * numbers - (count - 1)) / (last if align_corners else count))
    places = jnp.stack([*reversed(jnp.meshgrid(*axes, indexing="ij")), jnp.ones(space, axes[0].dtype)], axis=-1)
    product = jnp.einsum("...i,nji->n...j", places, theta.astype(places.dtype), precision="highest")
    return product.astype(theta.dtype)


@handles("DeformConv")
def _deformable_convolution(
    x: Images,
    filter: Images,
    offset: Images,
    bias: Array | None = None,
    mask: Images | None = None,
    *,
    window: ConvolutionAttributes,
    offset_group: int = 1,
) -> Array:
    for name, array in (("W", filter), ("offset", offset)):
        if array.ndim != x.ndim:
            raise InvalidDesc(Problem(name, f"must have {x.ndim} dimensions, like X", array.shape))
    rank, group, space = x.ndim - 2, window.group, offset.shape[2:]
    windows = read_windows(x.shape[2:], window.kernel_shape or filter.shape[2:], window)
    sizes = [each.size for each in windows]
    taps = math.prod(sizes)
    if offset.shape[1] != offset_group * taps * rank or x.shape[1] % offset_group or filter.shape[0] % group:
        rule = f"must have {offset_group * taps * rank} channels for {offset_group} offset groups"
        raise InvalidDesc(Problem("offset", rule, offset.shape))
    batch, channels = x.shape[:2]
    moved = offset.reshape(batch * offset_group, *sizes, rank, *space)
    places = []
    for i, each in enumerate(windows):
        tap = np.arange(each.size).reshape([-1 if j == i else 1 for j in range(2 * rank)]) * each.dilation
        start = np.arange(space[i]).reshape([-1 if j == i + rank else 1 for j in range(2 * rank)]) * each.stride
        offsets = (tap + start - each.start_padding)[None]
        wide = promote(offset.dtype, jnp.float32)
        places.append(jnp.take(moved, i, axis=1 + rank).astype(wide) + jnp.asarray(offsets, wide))
    images = x.reshape(batch * offset_group, channels // offset_group, *x.shape[2:])
    samples = _sample(images, places, "linear", "zeros", align_corners=True)
    if mask is not None:
        samples = samples * mask.reshape(batch * offset_group, 1, *sizes, *space)
    samples = samples.reshape(batch, group, channels // group, taps, *space)
    filters = filter.reshape(group, filter.shape[0] // group, filter.shape[1], taps)
    result = jnp.einsum("ngct...,goct->ngo...", samples, filters)
    result = result.reshape(batch, filter.shape[0], *space)
    return result if bias is None else result + bias.reshape(1, -1, *[1] * rank)


# Overlapping boxes


def _corners(boxes: Array, is_centered: int) -> tuple[Array, Array]:
    """The lowest and the highest corner of boxes [..., 4]."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if is_centered:
        return first - second / 2, first + second / 2
    return jnp.minimum(first, second), jnp.maximum(first, second)


@functools.partial(jax.jit, static_argnames="steps")  # so that eager calls compile it once
def _suppress_overlaps(low: Array, high: Array, scores: Array, limit: Array, most: Array, *, steps: int) -> Array:
    """The selected boxes of each class by descending score, [batch, class, box], filled up with -1."""
    areas = jnp.prod(high - low, axis=-1)

    def select(low: Array, high: Array, area: Array, score: Array) -> Array:
        def is_going(state: tuple[Array, Array, Array]) -> Array:
            step, left, _ = state
            return (step < steps) & (step < most) & (left.max() > -jnp.inf)

        def take_best(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            step, left, chosen = state
            best = jnp.argmax(left)
            sizes = jnp.minimum(high, high[best][None]) - jnp.maximum(low, low[best][None])
            common = jnp.where((sizes > 0).all(-1), jnp.prod(sizes, axis=-1), 0)
            union = area + area[best] - common
            is_close = (common > 0) & (area > 0) & (area[best] > 0) & (common / union > limit)
            left = jnp.where(is_close, -jnp.inf, left).at[best].set(-jnp.inf)
            return step + 1, left, chosen.at[step].set(best.astype(chosen.dtype))

        none = jnp.full(steps, -1, counting_type())
        return jax.lax.while_loop(is_going, take_best, (jnp.zeros((), counting_type()), score, none))[2]

    of_classes = jax.vmap(select, in_axes=(None, None, None, 0))
    return jax.vmap(of_classes)(low, high, areas, scores)


@handles("NonMaxSuppression")
def _non_max_suppression(
    boxes: Rows,
    scores: Rows,
    most: WantedNumber | None = None,
    overlap: WantedNumber | None = None,
    lowest_score: WantedNumber | None = None,
    *,
    center_point_box: int = 0,
    call: NodeCall,
) -> Results:
    if most is None or (is_known(most) and int(np.asarray(most).reshape(())) <= 0):
        return np.zeros((0, 3), np.int64)
    count = boxes.shape[1]
    steps = min(count, int(np.asarray(most).reshape(()))) if is_known(most) else count
    limit = jnp.zeros((), boxes.dtype) if overlap is None else jnp.asarray(overlap, boxes.dtype).reshape(())
    left = jnp.where(jnp.isnan(scores), -jnp.inf, scores)
    if lowest_score is not None:
        left = jnp.where(scores > jnp.asarray(lowest_score, scores.dtype).reshape(()), left, -jnp.inf)
    most = jnp.asarray(steps) if is_known(most) else most.reshape(())
    low, high = _corners(boxes, center_point_box)
    places = _suppress_overlaps(*jax.lax.stop_gradient((low, high, left, limit)), most, steps=steps)
    batch, class_index = (jnp.broadcast_to(index, places.shape) for index in jnp.indices(places.shape, sparse=True)[:2])
    rows = jnp.stack([batch, class_index, places], axis=-1).reshape(-1, 3).astype(counting_type())
    size = call.maximum(len(rows))
    if size is None:
        is_there = call.known(call.node.outputs[0], rows[:, 2] >= 0, len(rows))
        return np.asarray(rows)[is_there].astype(np.int64)
    are_there = rows[:, 2] >= 0
    chosen = jnp.flatnonzero(are_there, size=size, fill_value=len(rows))
    selected_count = Count.of(jnp.minimum(jnp.count_nonzero(are_there), size), size)
    return Padded(jnp.take(rows, chosen, axis=0, mode="fill", fill_value=-1), (selected_count, 3), fill=-1)
