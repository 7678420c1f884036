"""Softmax, log-softmax and hardmax: ACTIVATION_SOFTMAX, LOG_SOFTMAX, HARDMAX, and their versions with Axes.

16-bit floats are computed in float32 and rounded once. The first version of each works along the last axis, the second
along any axes together.

Args:
    input: Floats, in any shape.
    axes: Axes that form a row; None means all. A negative axis counts from the end.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from dmljax import calls, descriptors as dml
from dmljax.errors import Problem
from dmljax.lowerings.rows.along_axes import extreme_position, positions_along
from dmljax.text import join_sizes
from dmljax.types import FLOAT, FeatureLevel


def _several_rows(desc: Any) -> Iterator[Problem]:
    if desc.input is not None and any(size != 1 for size in desc.input.sizes[:-2]):
        yield Problem(("InputTensor", "Sizes"), "must be 1 before the last two", join_sizes(desc.input.sizes))


_ONE_MATRIX = dml.Rule("InputTensor.Sizes are 1 in all dimensions before the last two.", _several_rows)


class RowActivation(dml.Unary):
    """An activation of each row of the matrix in the last two dimensions."""

    support = dml.ACTIVATION_SINCE_1_0
    rules = dml.page_rules(_ONE_MATRIX, *dml.Unary.rules)


class AxesActivation(dml.Unary):
    """An activation along one or more axes, whose elements together form one row."""

    axes: dml.UintAxes
    support = dml.support(FL_5_1=dml.rows(dml.RANK_1_TO_8, FLOAT))
    rules = dml.page_rules(dml.DISTINCT_AXES, *dml.Unary.rules)


_INTO_GEMM = {"DML_OPERATOR_GEMM": FeatureLevel.FL_6_1}


@calls.operator_function
def activation_softmax(input: ArrayLike) -> Array:
    """Computes the softmax of each row along the last axis: the exponentials of its elements, divided by their sum.

    No exponential overflows. A row that contains NaN or +infinity, or only -infinity, gives only NaN.

    Use `activation_softmax1` for other axes.

    >>> activation_softmax(jnp.array([[1000.0, 1000.0], [-jnp.inf, 3e38]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    return calls.apply_to_floats(partial(_apply_along, jax.nn.softmax, (-1,)), input=input)


class ActivationSoftmaxDesc(dml.Activation, function=activation_softmax):
    support = dml.ACTIVATION_SINCE_1_0
    fused_into = _INTO_GEMM
    rules = dml.page_rules(_ONE_MATRIX, *dml.Activation.rules)


@calls.operator_function
def activation_softmax1(input: ArrayLike, *, axes: calls.Axes | None = -1) -> Array:
    """Computes the softmax along `axes`, whose elements form one row: their exponentials, divided by the sum.

    Everything else is as in `activation_softmax`.

    >>> activation_softmax1(jnp.array([[0.0, 0.0], [0.0, 0.0]]), axes=(0, 1)).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    return calls.apply_to_floats(partial(_apply_along, jax.nn.softmax, axes), input=input)


class ActivationSoftmax1Desc(dml.Activation, function=activation_softmax1):
    axes: dml.UintAxes
    support = AxesActivation.support
    fused_into = _INTO_GEMM
    rules = dml.page_rules(dml.DISTINCT_AXES, *dml.Activation.rules)


@calls.operator_function
def activation_log_softmax(input: ArrayLike) -> Array:
    """Computes the logarithm of the softmax of each row along the last axis.

    The logarithm is finite where the softmax underflows to 0, and 0 where it rounds to 1. A row that contains NaN or
    +infinity, or only -infinity, gives only NaN.

    Use `activation_log_softmax1` for other axes.

    >>> activation_log_softmax(jnp.array([[1000.0, 0.0], [-jnp.inf, 3e38]])).tolist()
    [[0.0, -1000.0], [-inf, 0.0]]
    """
    return calls.apply_to_floats(partial(_apply_along, jax.nn.log_softmax, (-1,)), input=input)


class ActivationLogSoftmaxDesc(RowActivation, function=activation_log_softmax):
    pass


@calls.operator_function
def activation_log_softmax1(input: ArrayLike, *, axes: calls.Axes | None = -1) -> Array:
    """Computes the logarithm of the softmax along `axes`, whose elements form one row.

    Everything else is as in `activation_log_softmax`.

    >>> activation_log_softmax1(jnp.array([[1000.0], [0.0]]), axes=0).tolist()
    [[0.0], [-1000.0]]
    """
    return calls.apply_to_floats(partial(_apply_along, jax.nn.log_softmax, axes), input=input)


class ActivationLogSoftmax1Desc(AxesActivation, function=activation_log_softmax1):
    pass


def _apply_along(function: Callable[..., Array], axes: calls.Axes | None, input: Array) -> Array:
    """Applies JAX's `function` along `axes`: XLA recognizes it, and compiles it to one kernel on a GPU."""
    return function(input, calls.normal_axes(axes, input))


@calls.operator_function
def activation_hardmax(input: ArrayLike) -> Array:
    """Writes 1 at the first largest element of each row along the last axis, and 0 elsewhere.

    In a row with NaN, the first NaN is the largest element. -0 equals +0, and different subnormals are not equal. The
    gradient is zero.

    Use `activation_hardmax1` for other axes.

    Args:
        input: Array of at least one dimension.

    >>> activation_hardmax(jnp.array([[3.0, 0.0, 5.0, 2.0], [7.0, 1.0, 7.0, 7.0]])).tolist()
    [[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    """
    return _hardmax(input, axes=(-1,))


@calls.operator_function
def activation_hardmax1(input: ArrayLike, *, axes: calls.Axes | None = -1) -> Array:
    """Writes 1 at the first largest element along `axes`, whose elements form one row, and 0 elsewhere.

    The first element is the first in row-major order, in whatever order `axes` are listed.

    Everything else is as in `activation_hardmax`.

    >>> activation_hardmax1(jnp.array([[3.0, 7.0], [7.0, 1.0]]), axes=(0, 1)).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    return _hardmax(input, axes=axes)


def _hardmax(input: ArrayLike, *, axes: calls.Axes | None) -> Array:
    input = calls.real_array("input", input)
    axes = calls.normal_axes(axes, input)
    if input.size == 0:
        return jnp.zeros(input.shape, input.dtype)
    hot_position = extreme_position(input, axes, largest=True)
    return (positions_along(input, axes) == hot_position).astype(input.dtype)


class ActivationHardmaxDesc(RowActivation, function=activation_hardmax):
    pass


class ActivationHardmax1Desc(AxesActivation, function=activation_hardmax1):
    pass
