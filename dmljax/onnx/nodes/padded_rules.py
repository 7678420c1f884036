"""Rules by which operators take arrays with padding, and sizes that depend on values.

A rule replaces padding where the operator would read it, calls the operator, and tells the true size of the result.
An operator without a rule refuses arrays with padding.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dmljax import directml
from dmljax.errors import Problem
from dmljax.foundation.dimensions import replace_at
from dmljax.onnx.handlers.registry import ELEMENTWISE, Run, handles_padded
from dmljax.onnx.nodes.data.shapes import normalize_axis, slices
from dmljax.onnx.nodes.numbers.reduction import reduce_axes
from dmljax.onnx.running.interpreter import as_array
from dmljax.onnx.values.counts import OUTSIDE, Count, NotKnown, bound_of, is_same, is_zero, larger, smaller, value_of
from dmljax.onnx.values.padded import Padded, are_inside, padded
from dmljax.onnx.values.symbols import as_sizes, has_counts, kind_of, sizes_array
from dmljax.onnx.values.types import Array, Results, Tensor, Value

Sizes = tuple[Any, ...]  # integers and counts


def _array(value: Any) -> Array:
    return value.array if isinstance(value, Padded) else as_array(value)


def _fill(value: Any, number: Any, axes: Sequence[int] | None = None) -> Array:
    return value.filled(number, axes) if isinstance(value, Padded) else as_array(value)


def _mark_padding(array: Array, sizes: Sequence[Any]) -> Array | Padded:
    """Marks the elements beyond `sizes` as padding, which is 0 and has no part in gradients."""
    return padded(Padded(array, sizes).filled(0), sizes)


def _require_whole(value: Any, *axes: int) -> None:
    """Raises if there is padding along these axes."""
    for axis in axes:
        if isinstance(value.shape[axis], Count):
            raise _refusal(f"a size that depends on values along axis {axis}", value.shape[axis])


def _refusal(what: str, value: Any = None) -> NotKnown:
    return NotKnown(Problem((), f"cannot take {what}", value, remedy=OUTSIDE))


def _lowest(dtype: Any) -> Any:
    return _limit(dtype, -math.inf, "min", False)


def _highest(dtype: Any) -> Any:
    return _limit(dtype, math.inf, "max", True)


def _limit(dtype: Any, float_limit: float, integer_field: str, bool_limit: bool) -> Any:
    if jnp.issubdtype(dtype, jnp.integer):
        return getattr(jnp.iinfo(dtype), integer_field)
    return float_limit if jnp.issubdtype(dtype, jnp.floating) else bool_limit


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


# Elements


def _broadcast(shapes: Sequence[Sizes]) -> Sizes:
    """Broadcasts sizes."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(map(_broadcast_size, zip(*aligned, strict=True)))


def _broadcast_size(sizes: Sequence[Any]) -> Any:
    """Broadcasts the size of a dimension: sizes that differ are equal at run time, or one of them is 1."""
    common: Any = 1
    for size in sizes:
        if (isinstance(size, int) and size == 1) or size is common:
            continue
        if (isinstance(common, int) and common == 1) or (isinstance(common, Count) and not isinstance(size, Count)):
            common = size
        elif isinstance(common, Count) and isinstance(size, Count) and not is_same(common, size):
            value = jnp.where(common.value == 1, size.value, common.value)
            bounds = (larger(common.largest, size.largest), min(common.least, size.least))
            common = Count.of(value, *bounds)
    return common


def _fit(value: Any, sizes: Sizes) -> Array:
    """Gives each dimension of an array the padding of these sizes, or size 1."""
    array, first = _array(value), len(sizes) - value.ndim
    for axis, (actual, size) in enumerate(zip(value.shape, sizes[first:], strict=True)):
        if isinstance(actual, Count) and not is_same(actual, size):
            place = jnp.arange(bound_of(size), dtype=jnp.int32)
            array = jnp.take(array, jnp.where(actual.value == 1, 0, place), axis=axis, mode="clip")
    return array


@handles_padded(
    ELEMENTWISE, "BitCast", "BitShift", "Cast", "Dropout", "IsInf", "Mean", "Mod", "Affine", "Add", "Sub", "Mul", "Div",
    "Pow",
)  # fmt: skip
def _elementwise(run: Run, *inputs: Any, **_: Any) -> Results:
    sizes = _broadcast([x.shape for x in inputs if x is not None])
    results = run(*(None if x is None else _fit(x, sizes) for x in inputs))
    return tuple(padded(result, sizes) for result in _as_tuple(results))


@handles_padded("CastLike")
def _like(run: Run, x: Any, like: Any, **_: Any) -> Results:
    return padded(run(_array(x), _array(like)), x.shape)


@handles_padded("Shape", "Size", "Identity", "SequenceConstruct", "SequenceAt", "SequenceInsert", "Optional")
def _pass_through(run: Run, *inputs: Value, **_: Any) -> Results:
    result: Results = run(*inputs)
    return result


# Sizes


@handles_padded("ConstantOfShape")
def _constant_of_shape(run: Run, shape: Any, **_: Any) -> Results:
    sizes = as_sizes(shape)
    return padded(run(sizes_array([*map(bound_of, sizes)])), sizes)


@handles_padded("Range")
def _range(run: Run, start: Any, limit: Any, delta: Any) -> Results:
    (first,), (last,), (step,) = map(as_sizes, (start, limit, delta))
    if isinstance(step, Count):
        raise _refusal("a step that depends on values", step)
    count = larger(-((first - last) // step), 0)
    places = value_of(first) + step * jnp.arange(bound_of(count), dtype=jnp.int32)
    return _mark_padding(places.astype(jax.dtypes.canonicalize_dtype(kind_of(limit))), [count])


def _new_sizes(x: Any, shape: Any, allowzero: int) -> Sizes:
    sizes = [*as_sizes(shape)]
    for i, size in enumerate(sizes):
        if is_zero(size) and not allowzero:
            sizes[i] = x.shape[i]
    open_places = [i for i, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    for i in open_places:
        sizes[i] = math.prod(x.shape) // math.prod(replace_at(sizes, i))
    return tuple(sizes)


@handles_padded("Reshape")
def _reshape(run: Run, x: Any, shape: Any = None, *, allowzero: int = 0, **_: Any) -> Results:
    return _reshape_rows(x, _new_sizes(x, shape, allowzero))


@handles_padded("Flatten")
def _flatten(run: Run, x: Any, *, axis: int = 1) -> Results:
    axis = axis if axis >= 0 else axis + x.ndim
    return _reshape_rows(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _reshape_rows(x: Any, sizes: Sizes) -> Results:
    array = _array(x)
    if _keeps_rows(x.shape, sizes):
        return padded(array.reshape([*map(bound_of, sizes)]), sizes)
    # The padding is elsewhere: find the place of each true element.
    place: Any = jnp.zeros((), jnp.int32)
    for axis, size in enumerate(sizes):
        along = jnp.arange(bound_of(size), dtype=jnp.int32).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
        place = place * value_of(size) + along
    source: Any = jnp.zeros((), jnp.int32)
    stride = 1
    for size in reversed(x.shape):
        source = source + place % jnp.maximum(value_of(size), 1) * stride
        place = place // jnp.maximum(value_of(size), 1)
        stride *= bound_of(size)
    return _mark_padding(jnp.take(array.ravel(), source, mode="clip"), sizes)


def _keeps_rows(before: Sizes, after: Sizes) -> bool:
    """Whether a reshape leaves each true element in its place, with the padding behind them."""
    if not all(any(isinstance(size, Count) for size in sizes) for sizes in (before, after)):
        return False
    kept = [[size for size in sizes if not (isinstance(size, int) and size == 1)] for sizes in (before, after)]
    if len(kept[0]) == len(kept[1]) and all(map(is_same, *kept)):
        return True
    splits = []
    for sizes in (before, after):
        places = [i for i, size in enumerate(sizes) if isinstance(size, Count)]
        if len(places) > 1:
            return False
        splits.append((math.prod(sizes[: places[0]]), math.prod(sizes[places[0] :])))
    return bool(splits[0][0] == splits[1][0]) and is_same(splits[0][1], splits[1][1])


@handles_padded("Squeeze")
def _squeeze(run: Run, x: Any, axes: Any = None) -> Results:
    ones = [i for i, size in enumerate(x.shape) if isinstance(size, int) and size == 1]
    dropped = ones if axes is None else [normalize_axis(axis, x.ndim) for axis in as_sizes(axes)]
    array = _array(x)
    for axis in dropped:
        if isinstance(x.shape[axis], Count):  # is 1 in a valid model
            array = jax.lax.slice_in_dim(array, 0, 1, axis=axis)
    sizes = [size for i, size in enumerate(x.shape) if i not in dropped]
    return padded(array.reshape([*map(bound_of, sizes)]), sizes)


@handles_padded("Unsqueeze")
def _unsqueeze(run: Run, x: Any, axes: Any) -> Results:
    result, sizes = run(_array(x), axes), iter(x.shape)
    added = {normalize_axis(axis, result.ndim) for axis in as_sizes(axes)}
    return padded(result, [1 if i in added else next(sizes) for i in range(result.ndim)])


# Movement


@handles_padded("Transpose")
def _transpose(run: Run, x: Any, *, perm: Sequence[int] | None = None) -> Results:
    order = [*range(x.ndim)][::-1] if perm is None else perm
    return padded(run(_array(x)), [x.shape[i] for i in order])


@handles_padded("Expand")
def _expand(run: Run, x: Any, shape: Any) -> Results:
    sizes = _broadcast([x.shape, as_sizes(shape)])
    return _mark_padding(jnp.broadcast_to(_fit(x, sizes), [*map(bound_of, sizes)]), sizes)


@handles_padded("Tile")
def _tile(run: Run, x: Any, repeats: Any) -> Results:
    array, sizes = _array(x), [*x.shape]
    for axis, times in enumerate(as_sizes(repeats)):
        size = x.shape[axis]
        if isinstance(times, int) and times == 1:
            continue
        sizes[axis] = size * times
        place = jnp.arange(bound_of(sizes[axis]), dtype=jnp.int32) % jnp.maximum(value_of(size), 1)
        array = jnp.take(array, place, axis=axis, mode="clip")
    return _mark_padding(array, sizes)


@handles_padded("Concat")
def _concat(run: Run, *inputs: Any, axis: int = 1) -> Results:
    return _join(inputs, normalize_axis(axis, inputs[0].ndim))


@handles_padded("ConcatFromSequence")
def _concat_from_sequence(run: Run, sequence: list[Any], *, axis: int, new_axis: int = 0) -> Results:
    if new_axis:
        raise _refusal("elements whose sizes depend on values, along a new axis")
    return _join(sequence, normalize_axis(axis, sequence[0].ndim))


def _join(inputs: Sequence[Any], axis: int) -> Results:
    """Joins arrays along an axis: each overwrites the padding of the previous array."""
    others = _broadcast([replace_at(x.shape, axis, 1) for x in inputs])
    total: Any = 0
    room = sum(bound_of(x.shape[axis]) for x in inputs)
    result = jnp.zeros(replace_at([*map(bound_of, others)], axis, room), inputs[0].dtype)
    for x in inputs:
        result = jax.lax.dynamic_update_slice_in_dim(result, _array(x), value_of(total), axis)
        total = total + x.shape[axis]
    return padded(jax.lax.slice_in_dim(result, 0, bound_of(total), axis=axis), replace_at(others, axis, total))


@handles_padded("Split")
def _split(run: Run, x: Any, split: Any = None, *, axis: int = 0, **_: Any) -> Results:
    axis = normalize_axis(axis, x.ndim)
    _require_whole(x, axis)
    parts = run(_array(x), split)
    return tuple(padded(part, replace_at(x.shape, axis, part.shape[axis])) for part in parts)


@handles_padded("Slice")
def _slice(run: Run, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Results:
    array, sizes = _array(x), [*x.shape]
    for axis, window in enumerate(slices(x.shape, starts, ends, axes, steps)):
        size, step = x.shape[axis], 1 if window.step is None else window.step
        if isinstance(step, Count):
            raise _refusal("a step that depends on values", step)
        if window.start is window.stop is window.step is None:
            continue
        lowest, highest = (0, size) if step > 0 else (-1, size - 1)
        first, last = (_clamp(place, size, lowest, highest) for place in (window.start, window.stop))
        count = larger(-((first - last) // step), 0)
        if isinstance(first, int) and step > 0:
            stop = min(first + max(bound_of(count) - 1, 0) * step + 1, array.shape[axis]) if bound_of(count) else first
            array = jax.lax.slice_in_dim(array, first, stop, step, axis)
        else:
            place = value_of(first) + step * jnp.arange(bound_of(count), dtype=jnp.int32)
            array = jnp.take(array, place, axis=axis, mode="clip")
        sizes[axis] = count
    return _mark_padding(array, sizes)


def _clamp(place: Any, size: Any, lowest: Any, highest: Any) -> Any:
    """Moves an end of a slice into the axis; a negative end counts from the end of the axis."""
    if isinstance(place, Count) and place.least < 0 <= place.largest:
        value = jnp.where(place.value < 0, place.value + value_of(size), place.value)
        place = Count.of(value, max(place.largest, bound_of(size)), 0)
    elif bound_of(place) < 0:
        place = place + size
    return smaller(larger(place, lowest), highest)


@handles_padded("Pad")
def _pad(run: Run, x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Results:
    if mode != "constant":
        raise _refusal(f"padding by mode {mode} of a size that depends on values")
    padded_axes = range(x.ndim) if axes is None else [normalize_axis(axis, x.ndim) for axis in as_sizes(axes)]
    amounts = as_sizes(pads)
    array, sizes, is_inside = _array(x), [*x.shape], jnp.array(True)
    for i, axis in enumerate(padded_axes):
        start, size = amounts[i], x.shape[axis]
        sizes[axis] = larger(size + start + amounts[len(padded_axes) + i], 0)
        place = jnp.arange(bound_of(sizes[axis]), dtype=jnp.int32) - value_of(start)
        array = jnp.take(array, place, axis=axis, mode="clip")
        inside = (place >= 0) & (place < value_of(size))
        is_inside = is_inside & inside.reshape([-1 if j == axis else 1 for j in range(x.ndim)])
    number = jnp.zeros((), array.dtype) if value is None else as_array(value).reshape(()).astype(array.dtype)
    return padded(jnp.where(is_inside, array, number), sizes)


# Indices


def _wrap(indices: Any, size: Any) -> Any:
    """Wraps negative indices, which count from the true end of an axis."""
    indices = _array(indices)
    return jnp.where(indices < 0, indices + jnp.asarray(value_of(size), indices.dtype), indices)


@handles_padded("Gather")
def _gather(run: Run, x: Any, indices: Any, *, axis: int = 0) -> Results:
    axis = normalize_axis(axis, x.ndim)
    places = _wrap(indices, x.shape[axis]) if isinstance(x.shape[axis], Count) else _fill(indices, 0)
    return _mark_padding(run(_array(x), places), replace_at(x.shape, axis, *indices.shape))


@handles_padded("GatherElements")
def _gather_elements(run: Run, x: Any, indices: Any, *, axis: int = 0) -> Results:
    places = _wrap(_fill_indices(indices), x.shape[normalize_axis(axis, x.ndim)])
    return _mark_padding(run(_array(x), places), indices.shape)


def _fill_indices(indices: Any) -> Any:
    return Padded(_fill(indices, 0), indices.shape) if isinstance(indices, Padded) else indices


def _wrap_rows(indices: Any, sizes: Sequence[Any]) -> Array:
    """Wraps negative coordinates in the last axis, which count from the true end."""
    rows = _fill(indices, 0)
    whole = jnp.stack([jnp.asarray(value_of(size), rows.dtype) for size in sizes[: rows.shape[-1]]])
    return jnp.where(rows < 0, rows + whole.reshape(*[1] * (rows.ndim - 1), -1), rows)


@handles_padded("GatherND")
def _gather_nd(run: Run, x: Any, indices: Any, *, batch_dims: int = 0) -> Results:
    _require_whole(indices, -1)
    rows = _wrap_rows(indices, x.shape[batch_dims:])
    sizes = (*indices.shape[:-1], *x.shape[batch_dims + indices.shape[-1] :])
    return _mark_padding(run(_array(x), rows), sizes)


def _add_bin(x: Any, axis: int) -> Array:
    """Adds an element along an axis, which takes the updates of padding."""
    array = _array(x)
    return jnp.pad(array, [(0, int(i == axis)) for i in range(array.ndim)])


@handles_padded("Scatter", "ScatterElements")
def _scatter_elements(run: Run, x: Any, indices: Any, updates: Any, *, axis: int = 0, **_: Any) -> Results:
    axis = normalize_axis(axis, x.ndim)
    whole = _add_bin(x, axis)
    places = _wrap(_fill_indices(indices), x.shape[axis])
    is_true = are_inside(indices.shape)
    places = places if is_true is None else jnp.where(is_true, places, whole.shape[axis] - 1)
    result = run(whole, places, _array(updates))
    return padded(jax.lax.slice_in_dim(result, 0, whole.shape[axis] - 1, axis=axis), x.shape)


@handles_padded("ScatterND")
def _scatter_nd(run: Run, x: Any, indices: Any, updates: Any, **_: Any) -> Results:
    _require_whole(indices, -1)
    whole = _add_bin(x, 0)
    rows = _wrap_rows(indices, x.shape)
    is_true = are_inside(indices.shape[:-1])
    first = rows[..., 0] if is_true is None else jnp.where(is_true, rows[..., 0], whole.shape[0] - 1)
    result = run(whole, rows.at[..., 0].set(first), _pad_to_bounds(updates, indices.shape[:-1]))
    return padded(result[:-1], x.shape)


def _pad_to_bounds(value: Any, sizes: Sizes) -> Array:
    """Pads the first axes of an array with zeros to the largest values of these counts."""
    array = _array(value)
    missing = [
        bound_of(size) - extent if isinstance(size, Count) else 0
        for extent, size in zip(array.shape, sizes, strict=False)
    ]
    missing += [0] * (array.ndim - len(missing))
    return jax.lax.pad(array, jnp.zeros((), array.dtype), [(0, count, 0) for count in missing])


@handles_padded("OneHot")
def _one_hot(run: Run, indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Results:
    (count,) = as_sizes(depth)
    places = _wrap(indices, count) if isinstance(count, Count) else _array(indices)
    sizes = [*indices.shape]
    sizes.insert(normalize_axis(axis, indices.ndim + 1), count)
    return padded(run(places, sizes_array([bound_of(count)]), values), sizes)


@handles_padded("TopK")
def _top_k(run: Run, x: Any, k: Any, *, axis: int = -1, largest: int = 1, **_: Any) -> Results:
    axis = normalize_axis(axis, x.ndim)
    (count,) = as_sizes(k)
    worst = (_lowest if largest else _highest)(x.dtype)
    # Equal elements keep their order, so that padding comes after true elements.
    values, indices = run(_fill(x, worst, [axis]), sizes_array([bound_of(count)]))
    sizes = replace_at(x.shape, axis, count)
    return padded(values, sizes), padded(indices, sizes)


@handles_padded("NonZero")
def _nonzero(run: Run, x: Any, **_: Any) -> Any:
    return run(_fill(x, 0))


@handles_padded("Compress")
def _compress(run: Run, x: Any, condition: Any, *, axis: int | None = None, **_: Any) -> Results:
    if axis is None:
        x = _reshape_rows(x, (math.prod(x.shape),))
    result = run(_array(x), _fill(condition, False), axis=axis)
    place = 0 if axis is None else normalize_axis(axis, x.ndim)
    return padded(result.array, replace_at(x.shape, place, result.shape[place]))


@handles_padded("Unique")
def _unique(run: Run, x: Any, *, axis: int | None = None, **_: Any) -> Results:
    x = _reshape_rows(x, (math.prod(x.shape),)) if axis is None else x
    place = 0 if axis is None else normalize_axis(axis, x.ndim)
    _require_whole(x, *(i for i in range(x.ndim) if i != place))
    # Padding repeats the first element, which adds no element, but to the count of the first.
    size, array = x.shape[place], _array(x)
    values, first, inverse, counts = run(x.filled(jax.lax.slice_in_dim(array, 0, 1, axis=place)), axis=axis)
    number = values.shape[place]
    count = Count.of(jnp.where(size.value == 0, 0, number.value), number.largest)
    more = jnp.asarray(size.largest - size.value, counts.dtype)
    tallies = counts.array.at[inverse.reshape(-1)[0]].add(-more)
    return (
        padded(values.array, replace_at(values.shape, place, count)),
        padded(first.array, [count]),
        padded(inverse, [size]),
        padded(tallies, [count]),
    )


# Boxes


@handles_padded("NonMaxSuppression")
def _non_max_suppression(run: Run, boxes: Any, scores: Any, *others: Any, **_: Any) -> Any:
    _require_whole(boxes, 0, 2)
    _require_whole(scores, 0, 1)
    return run(_fit(boxes, (1, scores.shape[2], 1)), _fill(scores, -math.inf), *others)


@handles_padded("RoiAlign")
def _roi_align(run: Run, x: Any, rois: Any, batch_indices: Any, **_: Any) -> Results:
    _require_whole(x, *range(x.ndim))
    result = run(_array(x), _fill(rois, 0), _fill(batch_indices, 0))
    return padded(result, (_broadcast_size([rois.shape[0], batch_indices.shape[0]]), *result.shape[1:]))


# Reductions


def _reduction(fill: Callable[[Any], Any]) -> Callable[..., Results]:
    """Makes the rule of a reduction; `fill` is its neutral element."""

    def rule(run: Run, x: Any, axes: Any = None, *, keepdims: int = 1, **options: Any) -> Results:
        axes_to_reduce = _reduced_axes(x, axes, options)
        result = run(_fill(x, fill(x.dtype), axes_to_reduce), *(() if axes is None else (axes,)))
        return padded(result, _kept_sizes(x, axes_to_reduce, keepdims))

    return rule


def _reduced_axes(x: Any, axes: Any, options: Any) -> list[int]:
    """Returns the axes of a reduction: an input, or an attribute in older versions."""
    axes_to_reduce = options.get("axes") if axes is None else as_sizes(axes)
    if not axes_to_reduce and options.get("noop_with_empty_axes"):
        return []
    return sorted({normalize_axis(axis, x.ndim) for axis in axes_to_reduce}) if axes_to_reduce else [*range(x.ndim)]


def _kept_sizes(x: Any, axes: Sequence[int], keepdims: int) -> list[Any]:
    return [1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes]


for _operators, _neutral in (
    (("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSum", "ReduceSumSquare"), lambda dtype: 0),
    (("ReduceProd",), lambda dtype: 1),
    (("ReduceMax", "ReduceLogSumExp"), _lowest),
    (("ReduceMin",), _highest),
):
    handles_padded(*_operators)(_reduction(_neutral))


@handles_padded("ReduceMean")
def _mean(run: Run, x: Any, axes: Any = None, *, keepdims: int = 1, **options: Any) -> Results:
    axes_to_reduce = _reduced_axes(x, axes, options)
    total = reduce_axes(directml.ReduceFunction.SUM, _fill(x, 0, axes_to_reduce), axes_to_reduce, keepdims)
    count = jnp.maximum(value_of(math.prod([x.shape[axis] for axis in axes_to_reduce])), 1).astype(total.dtype)
    return padded(total / count, _kept_sizes(x, axes_to_reduce, keepdims))


@handles_padded("ArgMax", "ArgMin")
def _arg_reduction(run: Run, x: Any, *, axis: int = 0, keepdims: int = 1, **_: Any) -> Results:
    axis = normalize_axis(axis, x.ndim)
    worst = (_lowest if run.node.operator == "ArgMax" else _highest)(x.dtype)
    result = run(_fill(x, worst, [axis]))
    last = value_of(x.shape[axis] - 1)  # padding wins only if all are the worst, and the last of them counts
    return padded(jnp.minimum(result, jnp.asarray(last, result.dtype)), _kept_sizes(x, [axis], keepdims))


@handles_padded("CumSum", "CumProd")
def _cumulation(run: Run, x: Any, axis: Any, **_: Any) -> Results:
    neutral = 0 if run.node.operator == "CumSum" else 1
    return padded(run(_fill(x, neutral, [normalize_axis(int(axis.item()), x.ndim)]), axis), x.shape)


@handles_padded("Softmax", "LogSoftmax", "Hardmax")
def _softmax(run: Run, x: Any, *, axis: int | None = None) -> Results:
    since = run.handler.since
    first = normalize_axis((-1 if since >= 13 else 1) if axis is None else axis, x.ndim)
    axes = [first] if since >= 13 else range(first, x.ndim)
    return padded(run(_fill(x, _lowest(x.dtype), axes)), x.shape)


# Products


@handles_padded("MatMul")
def _matmul(run: Run, a: Any, b: Any) -> Results:
    inner = [a.ndim - 1, max(b.ndim - 2, 0)]
    batch = _broadcast([a.shape[:-2], b.shape[:-2]]) if max(a.ndim, b.ndim) > 2 else ()
    rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()
    common = _broadcast_size([a.shape[inner[0]], b.shape[inner[1]]])
    fitted_a = _fit_product(a, (*batch, *rows, common), inner[0])
    fitted_b = _fit_product(b, (*batch, common, *columns), inner[1])
    return padded(run(fitted_a, fitted_b), (*batch, *rows, *columns))


def _fit_product(x: Any, sizes: Sizes, inner: int) -> Array:
    """Fills the padding that the sum of a product reads with 0, and fits the sizes that both factors share."""
    return _fit(padded(_fill(x, 0, [inner]), x.shape), sizes)


@handles_padded("Gemm")
def _gemm(run: Run, a: Any, b: Any, c: Any = None, *, product: Any, **_: Any) -> Results:
    is_a, is_b = int(bool(product.transA)), int(bool(product.transB))
    sizes = (a.shape[is_a], b.shape[1 - is_b])
    factors = _fill(a, 0, [1 - is_a]), _fill(b, 0, [is_b])
    return padded(run(*factors, None if c is None else _fit(c, sizes)), sizes)


@handles_padded("Einsum")
def _einsum(run: Run, *inputs: Any, equation: str) -> Results:
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in left or not right:
        raise _refusal("sizes that depend on values with an equation that has no result or an ellipsis", equation)
    named = [pair for term, x in zip(terms, inputs, strict=True) for pair in zip(term, x.shape, strict=True)]
    sizes = dict(named)
    summed = [[i for i, name in enumerate(term) if name not in right] for term in terms]
    result = run(*(_fill(x, 0, axes) for x, axes in zip(inputs, summed, strict=True)))
    return padded(result, [sizes[name] for name in right])


# Operators that compute each row by itself


@handles_padded(
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool", "MaxPool", "Resize",
    "SpaceToDepth", "Upsample",
)  # fmt: skip
def _map_batch(run: Run, x: Any, *others: Any, **_: Any) -> Results:
    _require_whole(x, *range(1, x.ndim))
    arguments = [
        _bound_batch(x, other) if has_counts(other) else None if other is None else _require_known_size(other)
        for other in others
    ]
    return tuple(padded(result, (x.shape[0], *result.shape[1:])) for result in _as_tuple(run(_array(x), *arguments)))


def _bound_batch(x: Any, sizes: Any) -> Tensor:
    """Replaces a count of the batch by its bound in the sizes that Resize takes."""
    first, *others = as_sizes(sizes)
    if not is_same(first, x.shape[0]):
        raise _refusal("a batch of another size that depends on values", first)
    return sizes_array([bound_of(first), *others])


def _require_known_size(value: Any) -> Any:
    if isinstance(value, Padded):
        raise _refusal("a parameter whose size depends on values", value.shape)
    return value


@handles_padded("LayerNormalization", "RMSNormalization", "LpNormalization")
def _normalization(run: Run, x: Any, *others: Any, axis: int = -1, **_: Any) -> Results:
    first = normalize_axis(axis, x.ndim)
    _require_whole(x, *([first] if run.node.operator == "LpNormalization" else range(first, x.ndim)))
    return tuple(
        padded(
            result, [size if bound_of(size) == due else due for size, due in zip(x.shape, result.shape, strict=True)]
        )
        for result in _as_tuple(run(_array(x), *map(_require_known_size, others)))
    )


@handles_padded(
    "MatMulNBits", "RotaryEmbedding", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)  # fmt: skip
def _map_rows(run: Run, x: Any, *others: Any, axis: int = -1, **_: Any) -> Results:
    _require_whole(x, *range(normalize_axis(axis, x.ndim), x.ndim))
    results = _as_tuple(run(_array(x), *(None if other is None else _array(other) for other in others)))
    return tuple(None if result is None else padded(result, (*x.shape[:-1], result.shape[-1])) for result in results)


@handles_padded("GroupQueryAttention", takes_counts=True)
def _grouped_attention(
    run: Run, query: Any, key: Any, value: Any, keys: Any, values: Any, last: Any, longest: Any, *others: Any, **_: Any
) -> Results:
    if run.node.attributes.get("sliding_window_cache") or not has_counts(longest):
        raise _refusal("caches of a window, or a length of the longest sequence that does not follow from sizes")
    (total,) = as_sizes(longest)
    lengths = dict(enumerate(others)).get(_QUERY_LENGTHS)
    if lengths is None and isinstance(query.shape[1], Count):
        lengths = jnp.minimum(_array(last).reshape(-1) + 1, query.shape[1].value).astype(jnp.int32)
    pasts = [None if cache is None else _fill(cache, 0, [2]) for cache in (keys, values)]
    arrays = [None if x is None else _fill(x, 0) for x in others[:_QUERY_LENGTHS]]
    arrays += [None] * (_QUERY_LENGTHS - len(arrays))
    output, *presents = run(
        *(None if x is None else _array(x) for x in (query, key, value)), *pasts, _array(last),
        sizes_array([bound_of(total)]), *arrays, lengths,
    )  # fmt: skip
    room = total if keys is None else larger(keys.shape[2], total)
    return (
        padded(output, (*query.shape[:2], output.shape[2])),
        *(padded(present, replace_at(present.shape, 2, room)) for present in presents),
    )


_QUERY_LENGTHS = 9  # the place of the numbers of queries among the inputs after the length of the longest sequence


@handles_padded("RestorePadding")
def _restore_padding(run: Run, x: Any, places: Any) -> Results:
    return run(_fill(x, 0), _require_known_size(places))  # type: ignore[no-any-return]


@handles_padded("PackedAttention", "PackedMultiHeadAttention")
def _packed_attention(run: Run, x: Any, *others: Any, **_: Any) -> Results:
    # The places of the padding are beyond the lengths of the sequences.
    result = run(_array(x), *(None if other is None else _array(other) for other in others))
    return padded(result, (x.shape[0], *result.shape[1:]))


@handles_padded("QuantizeLinear", "DequantizeLinear", "Trilu")
def _keep_sizes(run: Run, x: Any, *others: Any, **_: Any) -> Results:
    return padded(run(_array(x), *map(_require_known_size, others)), x.shape)
