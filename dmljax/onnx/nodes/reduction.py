"""Operators that reduce dimensions, and sums along an axis."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import dmljax as dml
from dmljax import directml
from dmljax.onnx.interpreter import as_sizes
from dmljax.onnx.nodes.indexing import counting_type
from dmljax.onnx.nodes.shapes import normal
from dmljax.onnx.parameters import Number
from dmljax.onnx.registry import handles


def _reduced(function: directml.ReduceFunction, x: Any, axes: Any, keepdims: int, is_whole: bool) -> Any:
    chosen = range(x.ndim) if is_whole else sorted({normal(axis, x.ndim) for axis in axes})
    if not len(chosen):  # each element by itself
        return dml.reduce(x[..., None], function=function, axes=-1)[..., 0]
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        return _of_nothing(function, x, tuple(chosen), bool(keepdims))
    result = dml.reduce(_number(x, function), function=function, axes=tuple(chosen))
    result = result.astype(x.dtype)
    return result if keepdims else result.reshape([size for i, size in enumerate(x.shape) if i not in chosen])


def _number(x: Any, function: directml.ReduceFunction) -> Any:
    return x.astype(jnp.uint8) if x.dtype == bool else x


def _of_nothing(function: directml.ReduceFunction, x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The neutral element, where there is nothing to reduce: DirectML has no empty tensors."""
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
        reduced: Callable[..., Any] = jnp.max if is_max else jnp.min
        return reduced(x, axis=axes, keepdims=keepdims, initial=lowest if is_max else highest)
    total = jnp.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)
    if function in (kinds.LOG_SUM, kinds.LOG_SUM_EXP):
        return jnp.log(total).astype(x.dtype)
    return total / 0 if function is kinds.AVERAGE else total


def _folded(fold: Any, x: Any, axes: Any, keepdims: int, is_whole: bool) -> Any:
    chosen = tuple(range(x.ndim)) if is_whole else tuple(axes)
    if fold is None or x.size == 0 or not chosen:
        return NotImplemented
    return fold(x, axis=chosen, keepdims=bool(keepdims)).astype(x.dtype)


def _register(operator: str, function: directml.ReduceFunction, fold: Any, since: int) -> None:
    """The axes were an attribute, and are an input from a version on."""

    def of_input(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        is_whole = (axes is None or not axes.size) and not noop_with_empty_axes
        return _reduced(function, x, () if axes is None else as_sizes(axes), keepdims, is_whole)

    def fold_of_input(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        is_whole = (axes is None or not axes.size) and not noop_with_empty_axes
        return _folded(fold, x, () if axes is None else as_sizes(axes), keepdims, is_whole)

    def of_attribute(x: Any, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Any:
        return _reduced(function, x, axes or (), keepdims, not axes)

    def fold_of_attribute(x: Any, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Any:
        return _folded(fold, x, axes or (), keepdims, not axes)

    handles(operator, since=since, known=[1], fold=fold and fold_of_input)(of_input)
    handles(operator, since=1, fold=fold and fold_of_attribute)(of_attribute)


_FUNCTIONS = (
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
    _register(_operator, _function, _fold, since=13 if _operator == "ReduceSum" else 18)


def _arg_reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        axis = normal(axis, x.ndim)
        result = function(
            x, axes=axis, axis_direction=directml.AxisDirection(bool(select_last_index)), dtype=counting_type()
        )
        return result if keepdims else jnp.squeeze(result, axis)

    return run


handles("ArgMax")(_arg_reduced(dml.argmax))
handles("ArgMin")(_arg_reduced(dml.argmin))


def _cumulated(function: Callable[..., Any], exclusive_member: str) -> Callable[..., Any]:
    def run(x: Any, axis: Number, *, exclusive: int = 0, reverse: int = 0) -> Any:
        direction = directml.AxisDirection(bool(reverse))
        options = {exclusive_member: bool(exclusive)}
        return function(x, axis=normal(int(axis.item()), x.ndim), axis_direction=direction, **options)

    return run


handles("CumSum", known=[1])(_cumulated(dml.cumulative_summation, "has_exclusive_sum"))
handles("CumProd", known=[1])(_cumulated(dml.cumulative_product, "has_exclusive_product"))
