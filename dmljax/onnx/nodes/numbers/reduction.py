"""Reductions, and sums along an axis."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax import directml
from dmljax.foundation.dimensions import number
from dmljax.onnx.handlers.registry import handles, takes_attributes
from dmljax.onnx.handlers.signatures import Function, Known, KnownNumber
from dmljax.onnx.nodes.data.indexing import counting_type
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.values.symbols import as_sizes, compute_known
from dmljax.onnx.values.types import Array


def reduce_axes(function: directml.ReduceFunction, x: Array, axes: Sequence[int] | None, keepdims: int) -> Array:
    """Reduces some axes, or all."""
    chosen = range(x.ndim) if axes is None else sorted({normalize_axis(axis, x.ndim) for axis in axes})
    if not len(chosen):  # reduce each element by itself
        return reduce_axes(function, x[..., None], (-1,), 0)
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        return _reduce_empty(function, x, tuple(chosen), bool(keepdims))
    result = _reduce_numbers(function, x, tuple(chosen))
    return result if keepdims else result.reshape([size for i, size in enumerate(x.shape) if i not in chosen])


def _reduce_numbers(function: directml.ReduceFunction, x: Array, axes: tuple[int, ...]) -> Array:
    """Reduces axes to size 1 in the input's type; DirectML has no means, roots and logarithms of integers."""
    if function is directml.ReduceFunction.AVERAGE and x.dtype.kind in "iu":
        count = number(math.prod(x.shape[axis] for axis in axes), x.dtype)
        return dmljax.element_wise_divide(dmljax.reduce(x, function=directml.ReduceFunction.SUM, axes=axes), count)
    numbers = x.astype(jnp.uint8) if x.dtype == bool else x
    numbers = numbers.astype(jnp.float32) if function in _FLOAT_FUNCTIONS and x.dtype.kind in "iu" else numbers
    return dmljax.reduce(numbers, function=function, axes=axes).astype(x.dtype)


_FLOAT_FUNCTIONS = {directml.ReduceFunction[name] for name in ("L2", "LOG_SUM", "LOG_SUM_EXP")}


def _reduce_empty(function: directml.ReduceFunction, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The result of reducing empty tensors, which DirectML does not have: the neutral element.

    The mean of no elements is 0, as in ONNX Runtime and for the empty bags of PyTorch's EmbeddingBag.
    """
    kinds = directml.ReduceFunction
    if function is kinds.MULTIPLY:
        return jnp.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype)
    if function in (kinds.MAX, kinds.MIN):
        is_max = function is kinds.MAX
        if x.dtype == bool:
            return (jnp.any if is_max else jnp.all)(x, axis=axes, keepdims=keepdims)
        limits = jnp.iinfo(x.dtype) if jnp.issubdtype(x.dtype, jnp.integer) else None
        lowest = -jnp.inf if limits is None else limits.min
        highest = jnp.inf if limits is None else limits.max
        return (jnp.max if is_max else jnp.min)(x, axis=axes, keepdims=keepdims, initial=lowest if is_max else highest)
    total = jnp.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)
    return jnp.log(total).astype(x.dtype) if function in (kinds.LOG_SUM, kinds.LOG_SUM_EXP) else total


def _fold_reduction(
    function: Callable[..., Known], x: Known, axes: Sequence[int] | None, keepdims: int
) -> Known | None:
    chosen = tuple(range(x.ndim) if axes is None else axes)
    if not (x.size and chosen):
        return None
    return np.asarray(compute_known(function, x, axis=chosen, keepdims=bool(keepdims)), x.dtype)


def _read_axes(reduced: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Array, axes: Known | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        chosen = () if axes is None else as_sizes(axes)
        return reduced(x, chosen if chosen or noop_with_empty_axes else None, keepdims)

    return run


_FUNCTIONS: tuple[tuple[str, directml.ReduceFunction, Callable[..., Known] | None], ...] = (
    ("ReduceL1", directml.ReduceFunction.L1, None),
    ("ReduceL2", directml.ReduceFunction.L2, None),
    ("ReduceLogSum", directml.ReduceFunction.LOG_SUM, None),
    ("ReduceLogSumExp", directml.ReduceFunction.LOG_SUM_EXP, None),
    ("ReduceMax", directml.ReduceFunction.MAX, np.max),
    ("ReduceMean", directml.ReduceFunction.AVERAGE, None),
    ("ReduceMin", directml.ReduceFunction.MIN, np.min),
    ("ReduceProd", directml.ReduceFunction.MULTIPLY, np.prod),
    ("ReduceSum", directml.ReduceFunction.SUM, np.sum),
    ("ReduceSumSquare", directml.ReduceFunction.SUM_SQUARE, None),
)
for _operator, _function, _fold in _FUNCTIONS:
    _reduce = functools.partial(reduce_axes, _function)
    _fold_known = functools.partial(_fold_reduction, _fold) if _fold else None
    # The axes are an attribute before this version, and an input from it on.
    _since = 13 if _operator == "ReduceSum" else 18
    handles(_operator, since=_since, fold=_fold_known and _read_axes(_fold_known))(_read_axes(_reduce))
    takes_attributes(_operator, since=1, axes=Sequence[int] | None)


def _arg_reduction(function: Callable[..., Array]) -> Function:
    def run(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
        axis = normalize_axis(axis, x.ndim)
        result = function(
            x, axes=axis, axis_direction=directml.AxisDirection(bool(select_last_index)), dtype=counting_type()
        )
        return result if keepdims else jnp.squeeze(result, axis)

    return run


handles("ArgMax")(_arg_reduction(dmljax.argmax))
handles("ArgMin")(_arg_reduction(dmljax.argmin))


def _cumulation(function: Callable[..., Array], exclusive_member: str) -> Function:
    def run(x: Array, axis: KnownNumber, *, exclusive: int = 0, reverse: int = 0) -> Array:
        direction = directml.AxisDirection(bool(reverse))
        options = {exclusive_member: bool(exclusive)}
        return function(x, axis=normalize_axis(int(axis.item()), x.ndim), axis_direction=direction, **options)

    return run


handles("CumSum")(_cumulation(dmljax.cumulative_summation, "has_exclusive_sum"))
handles("CumProd")(_cumulation(dmljax.cumulative_product, "has_exclusive_product"))
