"""Bases of descriptors that share their members, and the tables and rules that go with them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

from jax import Array

from dmljax.checks import element, sequence
from dmljax.descriptors.base import LevelRule, Operator, Rule
from dmljax.descriptors.members import Input, OptionalInput, OptionalOutput, OptionalScaleBias, Output
from dmljax.descriptors.rules import SCALE_BIAS_FITS, alike, page_rules, same_rank, same_sizes, same_type_and_rank
from dmljax.descriptors.tables import RANK_1_TO_8, RANK_4, RANK_4_TO_5, rows, support
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, Where
from dmljax.text import join_words, show
from dmljax.types import FLOAT, FeatureLevel

# One input


FLOAT_SINCE_1_0 = support(FL_1_0=rows(RANK_4, FLOAT), FL_3_0=rows(RANK_1_TO_8, FLOAT))
FLOAT_SINCE_2_0 = support(FL_2_0=rows(RANK_4, FLOAT), FL_3_0=rows(RANK_1_TO_8, FLOAT))
ACTIVATION_SINCE_1_0 = support(
    FL_1_0=rows(RANK_4, FLOAT), FL_2_0=rows(RANK_4_TO_5, FLOAT), FL_3_0=rows(RANK_1_TO_8, FLOAT)
)


class Unary(Operator):
    """InputTensor and OutputTensor, of one type and size."""

    input: Input
    output: Output

    rules = page_rules(alike("input", "output"))


class Resized(Operator):
    """InputTensor and OutputTensor, of one type and DimensionCount."""

    input: Input
    output: Output

    rules = page_rules(*same_type_and_rank("input", "output"))


class ScaledUnary(Unary):
    """As `Unary`, with a ScaleBias that the input goes through first."""

    scale_bias: OptionalScaleBias = None

    rules = page_rules(*Unary.rules, SCALE_BIAS_FITS)


class Predicate(Unary):
    """As `Unary`, but OutputTensor has a type of its own."""

    rules = page_rules(same_rank("input", "output"), same_sizes("input", "output"))


class Gradient(Operator):
    """The gradient of an operator with one input, of which it takes the input too."""

    input: Input
    input_gradient: Input
    output_gradient: Output

    rules = page_rules(alike("input", "input_gradient", "output_gradient"))


class Adjoint(Operator):
    """The gradient of a linear operator: InputGradientTensor and OutputGradientTensor, of one type and rank."""

    input_gradient: Input
    output_gradient: Output

    rules = page_rules(*same_type_and_rank("input_gradient", "output_gradient"))


# Two inputs


class Binary(Operator):
    """ATensor, BTensor and OutputTensor, of one type and size."""

    a: Input
    b: Input
    output: Output

    rules = page_rules(alike("a", "b", "output"))


# Activations that other operators take


class Activation(Operator):
    """An operator that can be fused into another one, whose tensors it then works on: it has none itself."""

    input: OptionalInput = None
    output: OptionalOutput = None
    # The types of the operators that it can be fused into, with the levels that brought it; None if they are all that
    # take an activation, from the level on that has the activation itself.
    fused_into: ClassVar[Mapping[str, FeatureLevel] | None] = None

    @classmethod
    def fused_since(cls, operator: str) -> FeatureLevel | None:
        """The level that brought its fusion into operators of the type `operator`; None if it cannot be fused there."""
        return min(cls.support) if cls.fused_into is None else cls.fused_into.get(operator)

    def _missing(self) -> Iterator[Problem]:
        for field in ("input", "output"):
            if getattr(self, field) is None:
                yield Problem(self.member(field).name, "must be given, unless the activation is fused", "none")

    rules = page_rules(
        Rule("{input} and {output} are given, unless the activation is fused into another operator.", _missing),
        alike("input", "output"),
    )
    attribute_rules: ClassVar[tuple[Rule, ...]] = ()  # these hold for a fused activation too


def fused_activation_rules(
    activation: Operator | None,
    feature_level: FeatureLevel,
    path: Path = ("FusedActivation",),
    *,
    into: Operator | None = None,
) -> Iterator[Problem]:
    """The desc at `path` is an activation that can be fused, at a level that has it, without tensors.

    `into` is the desc that has it, where that takes activations that others do not; OutputTensor is then what it works
    on.
    """
    if activation is None:
        return
    introduced = activation.fused_since(_type_of(into)) if isinstance(activation, Activation) else None
    if not isinstance(activation, Activation) or introduced is None:
        yield Problem((*path, "Type"), "must be one that can be fused", type(activation).type)
        return
    if introduced > feature_level:
        yield Problem((*path, "Type"), f"must be one of {feature_level}", f"{type(activation).type} of {introduced}")
    for leaf in activation.leaves():
        yield Problem((*path, *leaf.path), "must not be given", leaf.tensor)
    output = getattr(into, "output", None)
    if output is None or activation.leaves():
        rules = activation.attribute_rules
        problems: Iterable[Problem] = (one for rule in rules for one in rule.problems(activation, feature_level))
    else:
        members = {member.field: getattr(activation, member.field) for member in activation.members()}
        whole = type(activation)(**members | {"input": output, "output": output})
        problems = whole.rule_problems(feature_level)
    for problem in problems:
        yield problem.inside(path)


FUSED_ACTIVATION = LevelRule(
    "FusedActivation is an activation that can be fused, that the feature level has, and that has no tensors.",
    lambda desc, feature_level: fused_activation_rules(desc.fused_activation, feature_level, into=desc),
)


def _type_of(desc: Operator | None) -> str:
    return "" if desc is None else type(desc).type


def fusable_into(operator: str) -> Callable[[Where, Any], Activation]:
    """The argument of a function that takes the descriptor of an activation, without tensors, to fuse it."""

    def fusable(where: Where, value: Any) -> Activation:
        if not isinstance(value, Operator):
            raise InvalidType(Problem(where, "must be a descriptor", show(value)))
        tensors = value.tensors()
        if not isinstance(value, Activation) or tensors or value.fused_since(operator) is None:
            given = f"{type(value).type} with {join_words(tensors)}" if tensors else type(value).type
            raise InvalidDesc(Problem(where, "must be an activation without tensors", given))
        return value

    return fusable


def _each_fusable(where: Where, values: Any) -> tuple[Activation, ...]:
    each = enumerate(sequence(where, values, "descriptors of activations"))
    return tuple(fusable_into("")(element(where, i), value) for i, value in each)


Fusable = Annotated[Operator, fusable_into("")]  # an activation that can be fused into whatever takes one
Fusables = Annotated[Sequence[Operator], _each_fusable]


def fused(result: Array, activation: Operator | None) -> Array:
    """The activation of a result, rounded to its type as if the activation were an operator of its own."""
    if activation is None:
        return result
    activated: Array = activation.compute(input=result)
    return activated
