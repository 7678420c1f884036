"""Converts the JAX operations between calls of dmljax's functions to nodes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax import lax

from dmljax import directml
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, Operator
from dmljax.descriptors.tensor import packed_strides
from dmljax.foundation.sizes import with_leading_ones
from dmljax.graphs.to_graph.builder import Builder, NoOperator, Output, product
from dmljax.graphs.to_graph.views import View, desc_of
from dmljax.text import join_sizes

MOVES = {"reshape", "squeeze", "transpose", "broadcast_in_dim", "expand_dims", "copy", "stop_gradient"}
PRIMITIVES: dict[str, Callable[..., Any]] = {}


def _converts(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the function that converts the equations of these primitives."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return register


@_converts("reshape", "squeeze", "expand_dims")
def _reshape(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
    return builder.reshape(x, outputs[0][1])


@_converts("transpose")
def _transpose(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return x.transpose(params["permutation"])


@_converts("broadcast_in_dim")
def _broadcast_in_dim(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
    return x.broadcast_in_dim(outputs[0][1], params["broadcast_dimensions"])


@_converts("copy", "stop_gradient", "sharding_constraint", "optimization_barrier")
def _pass_through(builder: Builder, params: Any, outputs: Any, *views: View) -> list[View]:
    return [*views]


@_converts("bitcast_convert_type")
def _bitcast(builder: Builder, params: Any, outputs: Sequence[Output], x: View) -> View:
    """Reads the same bytes in another type, which an edge allows."""
    dtype, sizes = outputs[0]
    if dtype.itemsize == x.dtype.itemsize:
        return replace(x, dtype=np.dtype(dtype))
    packed = x if x.is_packed else builder.pack(x)
    return replace(packed, dtype=np.dtype(dtype), sizes=sizes, strides=packed_strides(sizes))


@_converts("convert_element_type")
def _convert(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
    return builder.cast(x, outputs[0][0])


# Elementwise operations with the same name in JAX and DirectML, and DirectML's names of the others.
_SAME_NAME = (
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor"),
    *("log", "max", "min", "pow", "sign", "sin", "sinh", "sqrt", "tan"),
)
_OTHER_NAMES = {
    "add_any": "ADD",
    "atan2": "ATAN_YX",
    "div": "DIVIDE",
    "eq": "LOGICAL_EQUALS",
    "ge": "LOGICAL_GREATER_THAN_OR_EQUAL",
    "gt": "LOGICAL_GREATER_THAN",
    "le": "LOGICAL_LESS_THAN_OR_EQUAL",
    "lt": "LOGICAL_LESS_THAN",
    "mul": "MULTIPLY",
    "neg": "NEGATE",
    "rem": "MODULUS_TRUNCATE",
    "shift_left": "BIT_SHIFT_LEFT",
    "shift_right_logical": "BIT_SHIFT_RIGHT",
    "sub": "SUBTRACT",
}


def _elementwise(operator: type[Operator], bits: type[Operator] | None = None) -> Callable[..., Any]:
    """Converts an operation to `operator`, or to `bits`, if any, unless the operands are boolean."""

    def convert(builder: Builder, params: Any, outputs: Sequence[Output], *views: View) -> View:
        desc = operator if bits is None or views[0].dtype == bool else bits
        return builder.elementwise(desc, *views, dtype=outputs[0][0])

    return convert


def _element_wise(name: str) -> type[Operator]:
    return OPERATORS[f"{OPERATOR_PREFIX}ELEMENT_WISE_{name.upper()}"]


for _name, _operator in (dict(zip(_SAME_NAME, _SAME_NAME, strict=True)) | _OTHER_NAMES).items():
    _converts(_name)(_elementwise(_element_wise(_operator)))
for _name in ("and", "not", "or", "xor"):
    _converts(_name)(_elementwise(_element_wise(f"LOGICAL_{_name}"), _element_wise(f"BIT_{_name}")))
_converts("logistic")(_elementwise(directml.ActivationSigmoidDesc))
_converts("tanh")(_elementwise(directml.ActivationTanhDesc))


@_converts("ne")
def _ne(builder: Builder, params: Any, outputs: Any, a: View, b: View) -> View:
    return builder.logical_not(builder.elementwise(directml.ElementWiseLogicalEqualsDesc, a, b, dtype=bool))


@_converts("shift_right_arithmetic")
def _shift_right_arithmetic(builder: Builder, params: Any, outputs: Any, x: View, count: View) -> View:
    """Inverts the bits of negative numbers before and after the shift, because DirectML shifts in zeros."""
    unsigned = np.dtype(f"uint{x.dtype.itemsize * 8}")
    bits = replace(x, dtype=unsigned)
    is_negative = builder.elementwise(directml.ElementWiseLogicalLessThanDesc, x, builder.zero(x), dtype=bool)
    zero, ones = (builder.local_constant(number, unsigned) for number in (0, np.iinfo(unsigned).max))
    signs = builder.elementwise(directml.ElementWiseIfDesc, is_negative, ones, zero)
    magnitudes = builder.elementwise(directml.ElementWiseBitXorDesc, bits, signs)
    quotients = builder.elementwise(directml.ElementWiseBitShiftRightDesc, magnitudes, replace(count, dtype=unsigned))
    return replace(builder.elementwise(directml.ElementWiseBitXorDesc, quotients, signs), dtype=x.dtype)


@_converts("square")
def _square(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return builder.elementwise(directml.ElementWiseMultiplyDesc, x, x)


@_converts("integer_pow")
def _integer_pow(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return builder.elementwise(directml.ElementWiseConstantPowDesc, x, exponent=params["y"])


@_converts("rsqrt")
def _rsqrt(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    return builder.elementwise(directml.ElementWiseRecipDesc, builder.elementwise(directml.ElementWiseSqrtDesc, x))


@_converts("round")
def _round(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    is_even = params["rounding_method"] is lax.RoundingMethod.TO_NEAREST_EVEN
    mode = directml.RoundingMode.HALVES_TO_NEAREST_EVEN if is_even else directml.RoundingMode.TOWARD_INFINITY
    return builder.elementwise(directml.ElementWiseRoundDesc, x, rounding_mode=mode)


@_converts("is_finite")
def _is_finite(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    mode = directml.IsInfinityMode.EITHER
    infinite = builder.elementwise(directml.ElementWiseIsInfinityDesc, x, dtype=bool, infinity_mode=mode)
    nan = builder.elementwise(directml.ElementWiseIsNanDesc, x, dtype=bool)
    return builder.logical_not(builder.elementwise(directml.ElementWiseLogicalOrDesc, infinite, nan, dtype=bool))


@_converts("clamp")
def _clamp(builder: Builder, params: Any, outputs: Any, low: View, x: View, high: View) -> View:
    return builder.elementwise(
        directml.ElementWiseMinDesc, builder.elementwise(directml.ElementWiseMaxDesc, x, low), high
    )


@_converts("select_n")
def _select(builder: Builder, params: Any, outputs: Any, which: View, *cases: View) -> View:
    if which.dtype != bool:
        raise NoOperator("must choose between two values by a boolean", f"{len(cases)} by {which.dtype}")
    return builder.elementwise(directml.ElementWiseIfDesc, which, *cases[::-1])


def _reduction(function: directml.ReduceFunction) -> Callable[..., Any]:
    def convert(builder: Builder, params: Any, outputs: Sequence[Output], x: View, *_: Any) -> View:
        if not params["axes"]:
            return x
        output = {"output": (outputs[0][0], directml.ReduceDesc.infer(x.sizes, params["axes"]))}
        (result,) = builder.add(directml.ReduceDesc, {"input": x}, output, function=function, axes=params["axes"])
        return builder.reshape(result, outputs[0][1])

    return convert


for _name, _function in (
    ("argmax", directml.ReduceFunction.ARGMAX),
    ("argmin", directml.ReduceFunction.ARGMIN),
    ("reduce_and", directml.ReduceFunction.MIN),
    ("reduce_max", directml.ReduceFunction.MAX),
    ("reduce_min", directml.ReduceFunction.MIN),
    ("reduce_or", directml.ReduceFunction.MAX),
    ("reduce_prod", directml.ReduceFunction.MULTIPLY),
    ("reduce_sum", directml.ReduceFunction.SUM),
):
    _converts(_name)(_reduction(_function))


def _running(operator: type[Operator], exclusive: str) -> Callable[..., Any]:
    def convert(builder: Builder, params: Any, outputs: Any, x: View) -> View:
        direction = directml.AxisDirection(params["reverse"])
        members: dict[str, Any] = {"axis": params["axis"], "axis_direction": direction, exclusive: False}
        return builder.add(operator, {"input": x}, {"output": outputs[0]}, **members)[0]

    return convert


_converts("cumsum")(_running(directml.CumulativeSummationDesc, "has_exclusive_sum"))
_converts("cumprod")(_running(directml.CumulativeProductDesc, "has_exclusive_product"))


@_converts("concatenate")
def _concatenate(builder: Builder, params: Any, outputs: Any, *views: View) -> View:
    return builder.add(directml.JoinDesc, {"inputs": [*views]}, {"output": outputs[0]}, axis=params["dimension"])[0]


@_converts("stack")
def _stack(builder: Builder, params: Any, outputs: Any, *views: View) -> View:
    return builder.stack(views, params["axis"])


@_converts("split")
def _split(builder: Builder, params: Any, outputs: Any, x: View) -> list[View]:
    return builder.add(directml.SplitDesc, {"input": x}, {"outputs": outputs}, axis=params["axis"])


def _add_slice(
    builder: Builder, x: View, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int], output: Output
) -> View:
    members: dict[str, Any] = {
        "input_window_offsets": starts,
        "input_window_sizes": sizes,
        "input_window_strides": strides,
    }
    return builder.add(directml.Slice1Desc, {"input": x}, {"output": output}, **members)[0]


@_converts("slice")
def _slice(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    starts, strides = params["start_indices"], params["strides"] or (1,) * len(x.sizes)
    sizes = [limit - start for start, limit in zip(starts, params["limit_indices"], strict=True)]
    if not any(starts) and x.is_packed and set(strides) == {1} and tuple(sizes[1:]) == x.sizes[1:]:
        return replace(x, sizes=tuple(sizes))  # the first rows
    return _add_slice(builder, x, starts, sizes, strides, outputs[0])


@_converts("dynamic_slice")
def _dynamic_slice(builder: Builder, params: Any, outputs: Any, x: View, *starts: View) -> View:
    sizes = params["slice_sizes"]
    known = [int(builder.number("start", start)) for start in starts]
    rows = zip(known, x.sizes, sizes, strict=True)
    return _add_slice(
        builder, x, [min(max(at, 0), most - size) for at, most, size in rows], sizes, [1] * len(sizes), outputs[0]
    )


@_converts("rev")
def _reverse(builder: Builder, params: Any, outputs: Any, x: View) -> View:
    strides = [-1 if i in params["dimensions"] else 1 for i in range(len(x.sizes))]
    return _add_slice(builder, x, [0] * len(x.sizes), x.sizes, strides, outputs[0])


@_converts("pad")
def _pad(builder: Builder, params: Any, outputs: Any, x: View, value: View) -> View:
    if any(inner for _, _, inner in params["padding_config"]):
        raise NoOperator("must not have padding between elements", params["padding_config"])
    return pad(
        builder,
        directml.Padding1Desc,
        x,
        [low for low, _, _ in params["padding_config"]],
        [high for _, high, _ in params["padding_config"]],
        padding_mode=directml.PaddingMode.CONSTANT,
        padding_value_data_type=desc_of(x.dtype, (1,)).data_type,
        padding_value=builder.number("padding_value", value),
    )


def pad(
    builder: Builder,
    operator: type[Operator],
    x: View,
    start_padding: Sequence[int],
    end_padding: Sequence[int],
    **attributes: Any,
) -> View:
    """Pads a view. DirectML has no negative padding; crop first."""
    start, end = start_padding, end_padding
    if min(*start, *end) < 0:
        offsets = [max(-low, 0) for low in start]
        cut = [size + min(low, 0) + min(high, 0) for size, low, high in zip(x.sizes, start, end, strict=True)]
        x = _add_slice(builder, x, offsets, cut, [1] * len(cut), (x.dtype, tuple(cut)))
    start, end = ([max(amount, 0) for amount in amounts] for amounts in (start, end))
    output = {"output": (x.dtype, operator.infer(x.sizes, start, end))}
    return builder.add(operator, {"input": x}, output, start_padding=start, end_padding=end, **attributes)[0]


@_converts("iota")
def _iota(builder: Builder, params: Any, outputs: Sequence[Output]) -> View:
    dtype, sizes = outputs[0]
    axis = params["dimension"]
    members: dict[str, Any] = {"value_data_type": desc_of(dtype, (1,)).data_type, "value_start": 0, "value_delta": 1}
    (row,) = builder.add(directml.FillValueSequenceDesc, {}, {"output": (dtype, (sizes[axis],))}, **members)
    return row.broadcast_in_dim(sizes, [axis])


@_converts("gather")
def _gather(builder: Builder, params: Any, outputs: Sequence[Output], x: View, indices: View) -> View:
    """Gathers whole slices: the operand becomes {batch, indexed..., window}, and the result {batch, tuples, window}."""
    numbers, slices, mode = params["dimension_numbers"], params["slice_sizes"], params["mode"]
    indexed_axes, batch_axes = numbers.start_index_map, numbers.operand_batching_dims
    windows = [i for i in range(len(x.sizes)) if i not in (*indexed_axes, *batch_axes)]
    if any(slices[i] != 1 for i in indexed_axes) or any(slices[i] != x.sizes[i] for i in windows):
        raise NoOperator("must gather single elements or whole slices", join_sizes(slices))
    batch, window = (math.prod(x.sizes[i] for i in axes) for axes in (batch_axes, windows))
    indexed_sizes = [x.sizes[i] for i in indexed_axes]
    operand = builder.reshape(x.transpose([*batch_axes, *indexed_axes, *windows]), (batch, *indexed_sizes, window))
    rows = _batch_first(len(indices.sizes) - 1, numbers.start_indices_batching_dims)
    count = math.prod(indices.sizes[i] for i in rows) // batch
    tuples = builder.reshape(indices.transpose([*rows, len(rows)]), (batch, count, len(indexed_axes)))
    inside = tuples if mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS else _add_clamp(builder, tuples, indexed_sizes)
    rank = len(operand.sizes)
    (result,) = builder.add(
        directml.GatherNd1Desc,
        {"input": operand, "indices": builder.reshape(inside, with_leading_ones(inside.sizes, rank))},
        {"output": (x.dtype, with_leading_ones((batch, count, window), rank))},
        input_dimension_count=rank,
        indices_dimension_count=3,
        batch_dimension_count=1,
    )
    result = builder.reshape(result, (batch, count, window))
    if mode == lax.GatherScatterMode.FILL_OR_DROP and inside is not tuples:
        is_inside = _are_equal(builder, tuples, inside)
        fill = params["fill_value"]
        missing = builder.local_constant(_fill_value(x.dtype) if fill is None else fill, x.dtype)
        result = builder.elementwise(directml.ElementWiseIfDesc, is_inside, result, missing)
    # Place the dimensions kept from the operand at `offset_dims`, and the others in the remaining places in order.
    dims = [i for i in range(len(x.sizes)) if i not in (*numbers.collapsed_slice_dims, *batch_axes)]
    window_dims = [i for i in dims if i in windows]
    order = [*rows, *(len(rows) + window_dims.index(i) for i in window_dims)]
    laid = builder.reshape(result, [*(indices.sizes[i] for i in rows), *(x.sizes[i] for i in window_dims)])
    natural = laid.transpose([order.index(i) for i in range(len(order))])
    outer = [i for i in range(len(outputs[0][1])) if i not in numbers.offset_dims]
    places = [*outer, *(place for place, i in zip(numbers.offset_dims, dims, strict=True) if i in windows)]
    return natural.broadcast_in_dim(outputs[0][1], places)


def _batch_first(rank: int, batch_axes: Sequence[int]) -> list[int]:
    return [*batch_axes, *(i for i in range(rank) if i not in batch_axes)]


def _add_clamp(builder: Builder, tuples: View, sizes: Sequence[int]) -> View:
    """Clamps coordinates to their ranges; returns the same view if they are known to be in range."""
    most = np.array(sizes, np.int64) - 1
    if builder.is_constant(tuples) and np.all((builder.value(tuples) >= 0) & (builder.value(tuples) <= most)):
        return tuples
    bounds = (
        builder.local_constant(np.minimum(bound, np.iinfo(tuples.dtype).max), tuples.dtype)
        for bound in (0 * most, most)
    )
    low, high = bounds
    bounded = builder.elementwise(directml.ElementWiseMaxDesc, tuples, low)
    return builder.elementwise(directml.ElementWiseMinDesc, bounded, high)


def _are_equal(builder: Builder, a: View, b: View) -> View:
    """Whether two arrays are equal along their last axis, which is kept with size 1."""
    each = builder.elementwise(directml.ElementWiseLogicalEqualsDesc, a, b, dtype=bool)
    if each.sizes[-1] == 1:
        return each
    output = {"output": (each.dtype, (*each.sizes[:-1], 1))}
    axes = [len(each.sizes) - 1]
    return builder.add(directml.ReduceDesc, {"input": each}, output, function=directml.ReduceFunction.MIN, axes=axes)[0]


def _fill_value(dtype: np.dtype[Any]) -> float:
    """JAX's default fill value for out-of-range indices."""
    return np.nan if dtype.kind == "f" else _lowest(dtype) if dtype.kind == "i" else _highest(dtype)


def _scatter(
    function: directml.ReduceFunction, combination: type[Operator], neutral: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Converts a scatter that combines updates to the same place; DirectML's scatters overwrite.

    The operand is {batch, places, window}, and the updates are {batch, updates, window}. Broadcast each update to all
    places, replace it by a neutral number everywhere but in its own place, and reduce over the updates.
    """

    def convert(builder: Builder, params: Any, outputs: Any, x: View, indices: View, updates: View) -> View:
        numbers = params["dimension_numbers"]
        scattered_axes, batch_axes = numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims
        windows = [i for i in range(len(x.sizes)) if i not in (*scattered_axes, *batch_axes)]
        window_sizes = tuple(x.sizes[i] for i in windows)
        sizes_of_updates = tuple(updates.sizes[i] for i in numbers.update_window_dims)
        if {*numbers.inserted_window_dims} != {*scattered_axes} or sizes_of_updates != window_sizes:
            raise NoOperator("must scatter whole slices", join_sizes(sizes_of_updates))
        order = [*batch_axes, *scattered_axes, *windows]
        batch, places, window = (math.prod(x.sizes[i] for i in axes) for axes in (batch_axes, scattered_axes, windows))
        outer = [i for i in range(len(updates.sizes)) if i not in numbers.update_window_dims]
        rows = _batch_first(len(outer), numbers.scatter_indices_batching_dims)
        blocks = updates.transpose([*(outer[i] for i in rows), *numbers.update_window_dims])
        count = math.prod(indices.sizes[i] for i in rows) // batch
        coordinates = builder.reshape(indices.transpose([*rows, len(rows)]), (batch, count, len(scattered_axes)))
        summands = builder.elementwise(
            directml.ElementWiseIfDesc,
            _match_places(builder, coordinates, [x.sizes[i] for i in scattered_axes]),
            builder.reshape(blocks, (batch, count, 1, window)),
            builder.local_constant(neutral(x.dtype), x.dtype),
        )
        output = {"output": (x.dtype, (batch, 1, places, window))}
        (totals,) = builder.add(directml.ReduceDesc, {"input": summands}, output, function=function, axes=[1])
        sizes = [x.sizes[i] for i in order]
        result = builder.elementwise(combination, x.transpose(order), builder.reshape(totals, sizes))
        return result.transpose([order.index(i) for i in range(len(order))])

    return convert


def _match_places(builder: Builder, coordinates: View, sizes: Sequence[int]) -> View:
    """Whether coordinates {batch, updates, dimension} name each place of these sizes; adds a third axis of places."""
    *rows, count = coordinates.sizes
    places = builder.local_constant(np.indices(sizes).reshape(count, -1).T, coordinates.dtype)
    return _are_equal(builder, builder.reshape(coordinates, (*rows, 1, count)), places)


def _lowest(dtype: np.dtype[Any]) -> float:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> float:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


for _name, _function, _combination, _neutral in (
    ("add", directml.ReduceFunction.SUM, directml.ElementWiseAddDesc, lambda dtype: 0),
    ("mul", directml.ReduceFunction.MULTIPLY, directml.ElementWiseMultiplyDesc, lambda dtype: 1),
    ("max", directml.ReduceFunction.MAX, directml.ElementWiseMaxDesc, _lowest),
    ("min", directml.ReduceFunction.MIN, directml.ElementWiseMinDesc, _highest),
):
    _converts(f"scatter-{_name}")(_scatter(_function, _combination, _neutral))


@_converts("dot_general")
def _dot_general(builder: Builder, params: Any, outputs: Sequence[Output], a: View, b: View) -> View:
    (a_summed, b_summed), (a_batch, b_batch) = params["dimension_numbers"]
    a_rest = [i for i in range(len(a.sizes)) if i not in (*a_summed, *a_batch)]
    b_rest = [i for i in range(len(b.sizes)) if i not in (*b_summed, *b_batch)]

    def count(view: View, axes: Sequence[int]) -> int:
        return math.prod(view.sizes[i] for i in axes)

    batch, inner = [a.sizes[i] for i in a_batch], count(a, a_summed)
    left = builder.reshape(a.transpose([*a_batch, *a_rest, *a_summed]), [*batch, count(a, a_rest), inner])
    right = builder.reshape(b.transpose([*b_batch, *b_summed, *b_rest]), [*batch, inner, count(b, b_rest)])
    dtype, sizes = outputs[0]
    left, right = builder.cast(left, dtype), builder.cast(right, dtype)
    result = product(builder, directml.GemmDesc, left, right, dtype, {}, {}, **PLAIN_PRODUCT)
    return builder.reshape(result, sizes)


PLAIN_PRODUCT: dict[str, Any] = {"trans_a": 0, "trans_b": 0, "alpha": 1.0, "beta": 1.0}
