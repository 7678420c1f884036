"""What many descriptors share: the members, tables and rules of operators that work element by element."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dmljax._errors import InvalidDesc
from dmljax._operator import (
    FL_1_0,
    FL_2_0,
    FL_3_0,
    RANK_1_TO_8,
    RANK_4,
    RANK_4_TO_5,
    Input,
    Operator,
    OptionalInput,
    OptionalOutput,
    OptionalScaleBias,
    Output,
    Table,
    rows,
    same_rank,
    same_sizes,
    same_type,
)
from dmljax._scalars import Scalar, exact
from dmljax._types import FLOAT, INTEGERS, DataType, FeatureLevel

# One input


def unary(ranks: range, data_types: frozenset[DataType]) -> Table:
    """A support table that gives the input and the output the same cell."""
    return rows(ranks, input=data_types, output=data_types)


FLOAT_SINCE_1_0 = {FL_1_0: unary(RANK_4, FLOAT), FL_3_0: unary(RANK_1_TO_8, FLOAT)}
FLOAT_SINCE_2_0 = {FL_2_0: unary(RANK_4, FLOAT), FL_3_0: unary(RANK_1_TO_8, FLOAT)}
ACTIVATION_SINCE_1_0 = {
    FL_1_0: unary(RANK_4, FLOAT),
    FL_2_0: unary(RANK_4_TO_5, FLOAT),
    FL_3_0: unary(RANK_1_TO_8, FLOAT),
}


@dataclass(frozen=True, kw_only=True)
class Unary(Operator):
    """InputTensor and OutputTensor, of one type and size."""

    input: Input
    output: Output

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        """
        yield from alike(self, "input", "output")


@dataclass(frozen=True, kw_only=True)
class ScaledUnary(Unary):
    """As `Unary`, with a ScaleBias that the input goes through first."""

    scale_bias: OptionalScaleBias = None

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        - ScaleBias, where InputTensor.DataType is an integer, has numbers of that type.
        """
        yield from super().broken_rules(feature_level)
        yield from scale_bias_rules(self)


@dataclass(frozen=True, kw_only=True)
class Predicate(Unary):
    """As `Unary`, but OutputTensor has a type of its own."""

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor and OutputTensor have the same DimensionCount and Sizes.
        """
        yield from same_rank(self, "input", "output")
        yield from same_sizes(self, "input", "output")


@dataclass(frozen=True, kw_only=True)
class Gradient(Operator):
    """The gradient of an operator with one input, of which it takes the input too."""

    input: Input
    input_gradient: Input
    output_gradient: Output

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor, InputGradientTensor and OutputGradientTensor have the same DataType, DimensionCount and Sizes.
        """
        yield from alike(self, "input", "input_gradient", "output_gradient")


def gradient(ranks: range, data_types: frozenset[DataType]) -> Table:
    """A support table that gives the tensors of a `Gradient` the same cell."""
    return rows(ranks, input=data_types, input_gradient=data_types, output_gradient=data_types)


# Two inputs


def binary(ranks: range, data_types: frozenset[DataType], output: frozenset[DataType] | None = None) -> Table:
    """A support table that gives ATensor and BTensor the same cell, and OutputTensor, too, unless it has its own."""
    return rows(ranks, a=data_types, b=data_types, output=output or data_types)


@dataclass(frozen=True, kw_only=True)
class Binary(Operator):
    """ATensor, BTensor and OutputTensor, of one type and size."""

    a: Input
    b: Input
    output: Output

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - ATensor, BTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        """
        yield from alike(self, "a", "b", "output")


# Activations that other operators take


@dataclass(frozen=True, kw_only=True)
class Activation(Operator):
    """An activation that can be fused into another operator, whose tensors it then works on: it has none itself."""

    input: OptionalInput = None
    output: OptionalOutput = None

    def broken_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """The rules of the page.

        - InputTensor and OutputTensor are given, unless the activation is fused into another operator.
        - InputTensor and OutputTensor have the same DataType, DimensionCount and Sizes.
        """
        for field in ("input", "output"):
            if getattr(self, field) is None:
                yield f"{self.member(field).name} must be given, unless the activation is fused; got none"
        yield from alike(self, "input", "output")
        yield from self.broken_attribute_rules(feature_level)

    def broken_attribute_rules(self, feature_level: FeatureLevel) -> Iterator[str]:
        """Of those rules the ones that hold for a fused activation, too."""
        return iter(())


def fused_activation_rules(activation: Operator | None, feature_level: FeatureLevel) -> Iterator[str]:
    """FusedActivation is an activation that can be fused, at a level that has it, without tensors."""
    if activation is None:
        return
    if not isinstance(activation, Activation):
        yield f"FusedActivation.Type must be one that can be fused; got {activation.type}"
        return
    introduced = min(activation.support)
    if introduced > feature_level:
        yield f"FusedActivation.Type must be one of {feature_level}; got {activation.type} of {introduced}"
    for field in activation.tensors():
        yield f"FusedActivation.{activation.member(field).name} must not be given; got {getattr(activation, field)}"
    for rule in activation.broken_attribute_rules(feature_level):
        yield f"FusedActivation.{rule}"


# Rules


def alike(desc: Operator, *tensors: str) -> Iterator[str]:
    """All of `tensors` have the same DataType, DimensionCount and Sizes."""
    yield from same_type(desc, *tensors)
    yield from same_rank(desc, *tensors)
    yield from same_sizes(desc, *tensors)


def scale_bias_rules(desc: Any) -> Iterator[str]:
    """ScaleBias, where InputTensor.DataType is an integer, has numbers of that type."""
    # The pages are silent on what 1.5 would do to an integer.
    if desc.scale_bias is None or desc.input.dtype not in INTEGERS:
        return
    for name, number in zip(("Scale", "Bias"), desc.scale_bias, strict=True):
        yield from fitting(f"ScaleBias.{name}", number, desc.input.dtype)


def fitting(name: str, number: Scalar, dtype: Any) -> Iterator[str]:
    """The number is one of `dtype`."""
    try:
        exact(number.item, dtype)
    except InvalidDesc as error:
        yield f"{name} {error}"
