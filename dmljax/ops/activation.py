"""Activations: ACTIVATION_HARDMAX and ACTIVATION_HARDMAX1."""

from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from dmljax._axes import extreme_position, positions_along
from dmljax._function import Axes, normal_axes, operator_function, real_array, require_rank
from dmljax._operator import (
    FL_1_0,
    FL_2_0,
    FL_3_0,
    FL_5_1,
    RANK_1_TO_8,
    RANK_4,
    RANK_4_TO_5,
    Input,
    Operator,
    Output,
    UintAxes,
    distinct_axes,
    rows,
    same_rank,
    same_sizes,
    same_type,
)
from dmljax._tensor import braced
from dmljax._types import FLOAT, FeatureLevel

# ACTIVATION_HARDMAX and ACTIVATION_HARDMAX1


@operator_function
def activation_hardmax(input: ArrayLike) -> Array:
    """Writes 1 at the first largest element of each row along the last axis, 0 elsewhere.

    The first NaN of a row is its largest element; -0 equals +0; subnormals are told apart. The gradient is zero.

    >>> activation_hardmax(jnp.array([[1.0, 5.0, 5.0], [-0.0, 0.0, -1.0]])).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    return _hardmax(input, axes=(-1,))


@operator_function
def activation_hardmax1(input: ArrayLike, *, axes: Axes) -> Array:
    """Writes 1 at the first largest element along `axes` taken together, 0 elsewhere; otherwise `activation_hardmax`.

    First is what comes first in the order of the elements, however `axes` are listed.

    >>> activation_hardmax1(jnp.array([[3.0, 7.0], [7.0, 1.0]]), axes=(0, 1)).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    return _hardmax(input, axes=axes)


def _hardmax(input: ArrayLike, *, axes: Axes) -> Array:
    input = real_array("input", input)
    require_rank("input", input, 1)
    axes = normal_axes("axes", axes, input.ndim)
    if input.size == 0:
        return jnp.zeros(input.shape, input.dtype)
    hot = extreme_position(input, axes, largest=True)
    return (positions_along(input, axes) == hot).astype(input.dtype)


@dataclass(frozen=True, kw_only=True)
class ActivationHardmaxDesc(Operator, type="DML_OPERATOR_ACTIVATION_HARDMAX"):
    """`DML_ACTIVATION_HARDMAX_OPERATOR_DESC`, lowered to `activation_hardmax`."""

    input: Input
    output: Output
    support = {
        FL_1_0: rows(RANK_4, input=FLOAT, output=FLOAT),
        FL_2_0: rows(RANK_4_TO_5, input=FLOAT, output=FLOAT),
        FL_3_0: rows(RANK_1_TO_8, input=FLOAT, output=FLOAT),
    }

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor.Sizes are 1 before the last two.
        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        """
        if self.input.effective_rank > 2:
            yield f"InputTensor.Sizes must be 1 before the last two; got {braced(self.input.sizes)}"
        yield from same_type(self, "input", "output")
        yield from same_rank(self, "input", "output")
        yield from same_sizes(self, "input", "output")

    def lower(self, input: Array) -> Array:
        return activation_hardmax(input)


@dataclass(frozen=True, kw_only=True)
class ActivationHardmax1Desc(Operator, type="DML_OPERATOR_ACTIVATION_HARDMAX1"):
    """`DML_ACTIVATION_HARDMAX1_OPERATOR_DESC`, lowered to `activation_hardmax1`."""

    input: Input
    output: Output
    axes: UintAxes
    support = {FL_5_1: rows(RANK_1_TO_8, input=FLOAT, output=FLOAT)}

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - Axes names one or more different dimensions of InputTensor.
        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        """
        yield from distinct_axes(self.axes, self.input.rank)
        yield from same_type(self, "input", "output")
        yield from same_rank(self, "input", "output")
        yield from same_sizes(self, "input", "output")

    def lower(self, input: Array) -> Array:
        return activation_hardmax1(input, axes=self.axes)
