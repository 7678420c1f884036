"""Regions of images: samples at the positions of a grid in each region, their sums, the largest of them, and gradients.

Images have the layout NHWC here, so that a sample reads all channels of a pixel at once: a gather whose last dimension
is contiguous. Each step of a loop takes a sample of every element of the result. The number of samples may depend on
the region; the loop ends with the last sample of any element. JAX cannot transpose such a loop, so sums have their own
derivative rules.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from dmljax.errors import Problem, Unsupported
from dmljax.foundation.dimensions import is_symbolic, number
from dmljax.lowerings.copies import copy_exactly
from dmljax.lowerings.images.loops import counted_loop
from dmljax.lowerings.numbers.floats import sort_keys
from dmljax.lowerings.numbers.special import rounded_quotient
from dmljax.lowerings.workarounds import product
from dmljax.types import widened


class Axis(NamedTuple):
    """How regions are sampled along one dimension of an image, as known while tracing."""

    output_size: int
    fewest: int  # samples per element of the result, at least one
    most: int
    offset: float  # subtracted from the number of each sample
    to_corners: bool  # whether the first and the last sample lie at the ends of the region
    is_linear: bool  # if False, samples read the nearest pixel


class Spans(NamedTuple):
    """The begin and the extent of each region along one dimension, in pixels; both may be negative."""

    start: Array
    extent: Array


Regions = tuple[Spans, Spans]  # along the height and along the width
Axes = tuple[Axis, Axis]


class Neighbors(NamedTuple):
    """The one or two pixels that samples read along one dimension."""

    low: Array
    high: Array
    fraction: Array | None  # how far a sample lies after the first pixel; None if it reads only that
    is_inside: Array


# Where samples lie


def sample_counts(axis: Axis, extent: Array) -> Array:
    """The number of samples in an element of each region along one dimension, as floats."""
    extent = lax.stop_gradient(extent)
    count = jnp.ceil(rounded_quotient(extent, jnp.full_like(extent, axis.output_size)))
    return jnp.clip(count, float(max(axis.fewest, 1)), float(axis.most))


class _Samples(NamedTuple):
    """The samples of regions along one dimension of an image."""

    axis: Axis
    size: int  # of the image
    spans: Spans
    counts: Array
    begin: Array  # the first sample of each element that may lie in the image
    steps: Any  # the largest number of later samples that may lie in it; an integer if known while tracing

    def position(self, i: Array, dimension: int = 1) -> Array:
        """The positions of the samples numbered `i` in their elements."""
        axis = self.axis
        counts, extent, start = (
            _expand_dimension(x[:, None], i, dimension) for x in (self.counts, *reversed(self.spans))
        )
        elements = _expand_dimension(lax.broadcasted_iota(i.dtype, (1, axis.output_size), 1), i, dimension)
        place, total = elements * counts + i, counts * number(axis.output_size, counts.dtype)
        if axis.to_corners:
            place, total = jnp.where(total == 1, 0.5, place), jnp.maximum(total - 1, 1)
        else:
            place = place - axis.offset
        # Divide last and round once: two thirds of 1.5 are 1, so a tie stays a tie.
        share = product(place, jnp.broadcast_to(extent, place.shape))
        return rounded_quotient(share, jnp.broadcast_to(total, place.shape)) + start

    def neighbors(self, step: Array, dimension: int = 1) -> Neighbors:
        """The pixels read by the samples that are this many steps after the first ones of their elements."""
        begin = _expand_dimension(self.begin, step, dimension)
        i = begin + step.astype(begin.dtype)
        position, last = self.position(i, dimension), number(self.size - 1, i.dtype)
        is_inside = (
            (i < _expand_dimension(self.counts[:, None], i, dimension)) & (position >= -1) & (position <= last + 1)
        )
        inside = jnp.clip(position, 0, last)
        if not self.axis.is_linear:
            nearest = jnp.ceil(inside - 0.5).astype(np.int32)  # the first of two equally near pixels
            return Neighbors(nearest, nearest, None, is_inside)
        # A sample on a pixel reads it twice, as in the page's pseudo-code, which makes its derivative 0.
        low, high = lax.stop_gradient((jnp.floor(inside), jnp.ceil(inside)))
        return Neighbors(low.astype(np.int32), high.astype(np.int32), inside - low, is_inside)


def _expand_dimension(x: Array, like: Array, dimension: int) -> Array:
    """`x`, of regions and the elements of one dimension, in a shape that broadcasts to the shape of `like`.

    `like` is a scalar, or has two dimensions itself, or has a result's: regions, rows, columns and channels.
    """
    if like.ndim <= 2:
        return x
    return x[:, :, None, None] if dimension == 1 else x[:, None, :, None]


def _samples(axis: Axis, size: int, spans: Spans) -> _Samples:
    if not axis.is_linear:
        spans = Spans(*map(lax.stop_gradient, spans))
    counts = sample_counts(axis, spans.extent)
    begin = jnp.broadcast_to(jnp.zeros_like(counts)[:, None], (counts.shape[0], axis.output_size))
    fewest = max(axis.fewest, 1)
    samples = _Samples(axis, size, spans, counts, begin, fewest)
    if fewest == axis.most:
        return samples
    # If an element has more than the fewest samples, they are at least half a pixel apart, so at most this many lie in
    # the image. In a region larger than the image, the samples before the image are left out.
    reach = jnp.maximum(number(2 * size + 6, counts.dtype), float(fewest))
    step = lax.stop_gradient(spans.extent) / (counts * number(axis.output_size, counts.dtype))
    first = jnp.floor((-1 - lax.stop_gradient(samples.position(begin))) / step[:, None]) - 1
    is_long = (counts > reach)[:, None]
    begin = jnp.where(is_long, jnp.clip(first, 0, counts[:, None] - 1), begin)
    steps = _max_over_batch(jnp.minimum(counts, reach)).astype(np.int32)
    return samples._replace(begin=begin, steps=steps)


@custom_vmap
def _max_over_batch(counts: Array) -> Array:
    """The largest count, which is the length of a loop, for the whole batch instead of for each part."""
    return counts.max(initial=0)


@_max_over_batch.def_vmap
def _batch_max(size: int, is_batched: Sequence[bool], counts: Array) -> tuple[Array, bool]:
    return _max_over_batch(counts.reshape(-1)), False


Body = Callable[[Neighbors, Neighbors, tuple[Array, Array], Any], Any]


def _for_each_sample(samples: tuple[_Samples, _Samples], body: Body, carry: Any) -> Any:
    """Calls `body` with the samples' neighbors along both dimensions, their step numbers, and its last result."""
    y_samples, x_samples = samples

    def sample_row(j: Array, carry: Any) -> Any:
        y = y_samples.neighbors(j)
        return counted_loop(0, x_samples.steps, lambda i, last: body(y, x_samples.neighbors(i), (j, i), last), carry)

    return counted_loop(0, y_samples.steps, sample_row, carry)


def count_samples_inside(axis: Axis, size: int, spans: Spans) -> Array:
    """The number of samples of each element in the image, along one dimension of `size`; others read no pixel.

    As in ONNX's RoiAlign, the image has a margin of one pixel, in which samples read the pixels at its edge.
    """
    samples = _samples(axis, size, Spans(*map(lax.stop_gradient, spans)))
    add = lambda i, total: total + samples.neighbors(i).is_inside.astype(total.dtype)  # noqa: E731
    total: Array = counted_loop(0, samples.steps, add, jnp.zeros_like(samples.begin))
    return total


# Reading samples


def _read_samples(image: Array, batch: Array, y: Neighbors, x: Neighbors) -> Array:
    """The samples of all channels; those outside the image are 0. The image's layout is NHWC."""
    rows, columns, is_inside = _grid(y, x)

    def at(*place: Array) -> Array:
        return copy_exactly(_pixels, (image,), (batch[:, None, None], *place))

    return jnp.where(is_inside[..., None], _interpolate(at, rows, columns), jnp.zeros((), image.dtype))


def _pixels(images: tuple[Array, ...], place: tuple[Array, ...]) -> Array:
    return images[0].at[place].get(mode="promise_in_bounds")


def _grid(y: Neighbors, x: Neighbors) -> tuple[Neighbors, Neighbors, Array]:
    """The neighbors of samples in rows and in columns, in shapes that broadcast, and which samples are inside."""
    rows: Neighbors = jax.tree.map(lambda array: array[:, :, None], y)
    columns: Neighbors = jax.tree.map(lambda array: array[:, None, :], x)
    return rows, columns, rows.is_inside & columns.is_inside


def _interpolate(at: Callable[[Array, Array], Array], y: Neighbors, x: Neighbors) -> Array:
    """Interpolates between pixels; a pixel of weight 0 is not read, so it may be infinite or NaN."""

    def between(a: Array, b: Callable[[], Array], fraction: Array | None) -> Array:
        if fraction is None:
            return a
        weight = fraction.astype(a.dtype).reshape(fraction.shape + (1,) * (a.ndim - fraction.ndim))
        return jnp.where(weight == 0, a, (1 - weight) * a + weight * b())

    along_row = lambda j: between(at(j, x.low), lambda: at(j, x.high), x.fraction)  # noqa: E731
    return between(along_row(y.low), lambda: along_row(y.high), y.fraction)


def _taps(neighbors: Neighbors) -> list[tuple[Array, Array | None]]:
    """The pixels that samples read along one dimension, with their weights; None means 1."""
    fraction = neighbors.fraction
    if fraction is None:
        return [(neighbors.low, None)]
    first = jnp.where(fraction == 0, jnp.ones_like(fraction), 1 - fraction)
    return [(neighbors.low, first), (neighbors.high, fraction)]


# Sums of samples, and their transpose


def sums(image: Array, regions: Regions, batch: Array, axes: Axes) -> Array:
    """The sum of each element's samples that lie in the image.

    The image has the layout NHWC, and the result the dimensions regions, rows, columns and channels. `batch` has the
    index of each region's image.
    """

    def total(image: Array, batch: Array, *spans: Array) -> Array:
        return _sums(image, _to_regions(spans), batch, axes)

    def jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
        value, (image, batch, *spans) = differentiable(*primals), primals
        tangent = jnp.zeros_like(value)
        if type(tangents[0]) is not SymbolicZero:
            once = _mark_differentiated(_to_regions(spans))
            forward = lambda image: _sums(image, once, batch, axes)  # noqa: E731
            adjoint = lambda gradient: _spread(gradient, image.shape, once, batch, axes)  # noqa: E731
            tangent += _apply_with_adjoint(forward, adjoint, tangents[0])
        wrt = [k for k, x in enumerate(tangents[2:]) if type(x) is not SymbolicZero]
        if wrt:
            # Elements depend only on their own region, so one derivative serves all regions.
            spans_wrt = [spans[k] for k in wrt]

            def push(row: Sequence[Array]) -> Array:
                total_by_spans = lambda *some: total(image, batch, *_replace(spans, wrt, some))  # noqa: E731
                directions = [weight * jnp.ones_like(span) for weight, span in zip(row, spans_wrt, strict=True)]
                _, derivative = jax.jvp(total_by_spans, spans_wrt, directions)
                return cast(Array, derivative)

            derivatives = jax.vmap(push)(list(jnp.eye(len(wrt), dtype=spans_wrt[0].dtype)))
            for k, derivative in zip(wrt, derivatives, strict=True):
                tangent += derivative * tangents[2 + k].astype(derivative.dtype)[:, None, None, None]
        return value, tangent

    differentiable = jax.custom_jvp(total)
    differentiable.defjvp(jvp, symbolic_zeros=True)
    spans = [array for span in regions for array in span]
    if not any(axis.is_linear for axis in axes):
        spans = [*map(lax.stop_gradient, spans)]
    return differentiable(image, batch, *spans)


def _replace(values: Sequence[Array], places: Sequence[int], new: Sequence[Array]) -> list[Array]:
    """Returns a copy of `values` with `new` at `places`."""
    values_with_new = list(values)
    for place, array in zip(places, new, strict=True):
        values_with_new[place] = array
    return values_with_new


def _to_regions(spans: Sequence[Array]) -> Regions:
    return Spans(*spans[0:2]), Spans(*spans[2:4])


def _samples_by_axis(image_sizes: Sequence[int], regions: Regions, axes: Axes) -> tuple[_Samples, _Samples]:
    y, x = (_samples(axis, size, spans) for axis, size, spans in zip(axes, image_sizes[1:3], regions, strict=True))
    return y, x


def _sums(image: Array, regions: Regions, batch: Array, axes: Axes) -> Array:
    samples = _samples_by_axis(image.shape, regions, axes)
    add = lambda y, x, _, total: total + _read_samples(image, batch, y, x)  # noqa: E731
    return cast(Array, _for_each_sample(samples, add, _zeros(image, batch, axes[0].output_size, axes[1].output_size)))


def _zeros(image: Array, batch: Array, height: int, width: int) -> Array:
    """Zeros for the elements of all regions."""
    return jnp.zeros_like(image, shape=(batch.shape[0], height, width, image.shape[-1]))


def _spread(gradient: Array, image_shape: Sequence[int], regions: Regions, batch: Array, axes: Axes) -> Array:
    """The transpose of `_sums`: adds each element to the pixels that its samples read, times their weights."""
    samples = _samples_by_axis(image_shape, regions, axes)

    def add(y: Neighbors, x: Neighbors, _: Any, total: Array) -> Array:
        rows, columns, is_inside = _grid(y, x)
        for j, row_weight in _taps(rows):
            for i, column_weight in _taps(columns):
                weight = is_inside.astype(gradient.dtype)
                for factor in (row_weight, column_weight):
                    weight = weight if factor is None else weight * factor.astype(gradient.dtype)
                weight = weight[..., None]
                part = jnp.where(weight == 0, jnp.zeros((), gradient.dtype), gradient * weight)
                total = total.at[batch[:, None, None], j, i].add(part, mode="promise_in_bounds")
        return total

    return cast(Array, _for_each_sample(samples, add, jnp.zeros_like(gradient, shape=tuple(image_shape))))


def _apply_with_adjoint(forward: Callable[[Array], Array], adjoint: Callable[[Array], Array], x: Array) -> Array:
    """`forward(x)`, a linear function that JAX cannot transpose but whose transpose is `adjoint`.

    The last dimension of both is the channels.
    """
    # Only one JAX function takes a function with its transpose and works under every transformation: the solver of
    # linear equations. Solve z = x and y - forward(z) = 0 for z and y, stacked.
    shape, *channels = jax.eval_shape(forward, x).shape, x.shape[-1]
    above = x.reshape(-1, *channels)
    count = above.shape[0]

    def solve(_: Any, both: Array) -> Array:
        z, y = both[:count], both[count:]
        return jnp.concatenate([z, y + forward(z.reshape(x.shape)).reshape(y.shape)])

    def solve_transposed(_: Any, both: Array) -> Array:
        z, y = both[:count], both[count:]
        return jnp.concatenate([z + adjoint(y.reshape(shape)).reshape(z.shape), y])

    below = jnp.zeros((math.prod(shape[:-1]), *channels), x.dtype)
    both = jnp.concatenate([above, below])
    # The matrix is never read, because it does not depend on the differentiated values.
    solution = lax.custom_linear_solve(lambda both: both, both, solve, solve_transposed, symmetric=True)
    return cast(Array, solution[count:].reshape(shape))


@jax.custom_jvp
def _mark_differentiated(regions: Regions) -> Regions:
    """Marks `regions` as already differentiated once."""
    return regions


@_mark_differentiated.defjvp
def _no_second_derivative(primals: Any, tangents: Any) -> Any:
    rule = "cannot differentiate a gradient of the image by the regions: dmljax has no such second derivative"
    raise Unsupported(Problem((), rule))


# The largest samples


_FEW_STEPS = 8  # for a loop this short, devices need not exchange its length


class Bins(NamedTuple):
    """All pixels of regions along one dimension: for each element of the result, from `begin` to just before `end`."""

    begin: Array
    end: Array
    size: int  # of the image

    @property
    def steps(self) -> Any:
        """The largest number of pixels in an element."""
        is_small = not is_symbolic(self.size) and self.size <= _FEW_STEPS
        return self.size if is_small else _max_over_batch(self.end - self.begin)

    def neighbors(self, step: Array, dimension: int = 1) -> Neighbors:
        """The pixels that are this many steps after the first ones of their elements."""
        begin, end = (_expand_dimension(bound, step, dimension) for bound in (self.begin, self.end))
        place = jnp.clip(begin + step, 0, number(self.size - 1, np.int32))
        return Neighbors(place, place, None, begin + step < end)


def largest_sample(image: Array, regions: Regions, batch: Array, axes: Axes) -> Array:
    """The largest of each element's samples in the image, which `sums` would add up; NaN is larger than numbers.

    It is negative infinity if no sample lies in the image. The first of equal samples in row-major order gets the
    gradient.
    """
    sizes = image.shape

    def both(*spans: Array) -> tuple[_Samples, _Samples]:
        return _samples_by_axis(sizes, _to_regions(spans), axes)

    return _select_largest(image, batch, both, *(array for span in regions for array in span))


def largest_pixel(image: Array, bins: tuple[Bins, Bins], batch: Array) -> Array:
    """The largest pixel of each bin, as `largest_sample` finds samples; 0 in an empty bin."""
    rows, columns = bins

    def both(*ends: Array) -> tuple[Bins, Bins]:
        return Bins(ends[0], ends[1], rows.size), Bins(ends[2], ends[3], columns.size)

    largest = _select_largest(image, batch, both, rows.begin, rows.end, columns.begin, columns.end)
    has_rows, has_columns = rows.end > rows.begin, columns.end > columns.begin
    has_pixels = (has_rows[:, :, None] & has_columns[:, None, :])[..., None]
    return jnp.where(has_pixels, largest, jnp.zeros((), image.dtype))


Sampled = Callable[..., tuple[Any, Any]]  # the samples along both dimensions, from the arrays that they depend on


def _select_largest(image: Array, batch: Array, sample: Sampled, *arrays: Array) -> Array:
    def largest(image: Array, batch: Array, *arrays: Array) -> Array:
        return _compare(image, batch, sample(*arrays), has_steps=False)[0]

    def at_steps(image: Array, batch: Array, steps: Sequence[Array], *arrays: Array) -> Array:
        """The samples at known steps, in a form that JAX can differentiate."""
        y, x = (
            samples.neighbors(step, axis) for samples, step, axis in zip(sample(*arrays), steps, (1, 2), strict=True)
        )
        channels = lax.broadcasted_iota(np.int32, (1, 1, 1, image.shape[-1]), 3)
        at = lambda j, i: image.at[batch[:, None, None, None], j, i, channels].get(mode="promise_in_bounds")  # noqa: E731
        return jnp.where(y.is_inside & x.is_inside, _interpolate(at, y, x), jnp.zeros((), image.dtype))

    def jvp(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
        image, batch, *spans = lax.stop_gradient(primals)
        _, steps = _compare(image, batch, sample(*spans), has_steps=True)
        floats = {i: x for i, x in enumerate(tangents) if type(x) is not SymbolicZero}

        def at_floats(*values: Array) -> Array:
            image, batch, *arrays = _replace(primals, list(floats), values)
            # Use at least 32 bits, so that a gradient that adds up many elements is rounded once.
            wide = image.astype(widened(image.dtype))
            return at_steps(wide, batch, steps, *arrays).astype(image.dtype)

        _, tangent = jax.jvp(at_floats, [primals[i] for i in floats], list(floats.values()))
        return differentiable(*primals), tangent

    differentiable = jax.custom_jvp(largest)
    differentiable.defjvp(jvp, symbolic_zeros=True)
    return differentiable(image, batch, *arrays)


def _compare(
    image: Array, batch: Array, samples: tuple[Any, Any], *, has_steps: bool
) -> tuple[Array, tuple[Array, ...]]:
    """The largest samples and, if wanted, how many steps they are after the first ones of their elements."""

    def compare(y: Neighbors, x: Neighbors, steps: tuple[Array, Array], last: Any) -> Any:
        largest, results = last
        value = _read_samples(image, batch, y, x)
        is_inside = (y.is_inside[:, :, None] & x.is_inside[:, None, :])[..., None]
        is_larger = is_inside & (sort_keys(value, nan_is_largest=True) > sort_keys(largest, nan_is_largest=True))
        results = (
            tuple(jnp.where(is_larger, step, before) for step, before in zip(steps, results, strict=True))
            if results
            else ()
        )
        return jnp.where(is_larger, value, largest), results

    zeros = _zeros(image, batch, samples[0].begin.shape[1], samples[1].begin.shape[1])
    first = zeros.astype(np.int32)
    results: tuple[Array, tuple[Array, ...]] = _for_each_sample(
        samples, compare, (zeros - np.inf, (first, first) if has_steps else ())
    )
    return results
