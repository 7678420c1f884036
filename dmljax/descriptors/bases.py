"""Bases of descriptors that share their members, and the tables and rules that go with them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, signature
from itertools import chain
from typing import Annotated, Any, ClassVar, cast

from jax import Array

from dmljax.descriptors.base import OPERATORS, LevelRule, Operator, Rule
from dmljax.descriptors.members import Input, OptionalInput, OptionalOutput, OptionalScaleBias, Output
from dmljax.descriptors.rules import (
    SCALE_BIAS_FITS,
    page_rules,
    same_rank,
    same_sizes,
    same_type_and_rank,
    same_type_and_sizes,
)
from dmljax.descriptors.tables import RANK_1_TO_8, RANK_4, RANK_4_TO_5, rows, support
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, Where, inside
from dmljax.foundation.checks import element_path, sequence
from dmljax.text import did_you_mean, join_words, show
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

    rules = page_rules(same_type_and_sizes("input", "output"))


class Resized(Operator):
    """InputTensor and OutputTensor, of one type and DimensionCount."""

    input: Input
    output: Output

    rules = page_rules(*same_type_and_rank("input", "output"))


class ScaledUnary(Unary):
    """Like `Unary`, with a ScaleBias that is applied to the input first."""

    scale_bias: OptionalScaleBias = None

    rules = page_rules(*Unary.rules, SCALE_BIAS_FITS)


class Predicate(Unary):
    """Like `Unary`, but OutputTensor has its own type."""

    rules = page_rules(same_rank("input", "output"), same_sizes("input", "output"))


class Gradient(Operator):
    """The gradient of an operator with one input, which it also takes."""

    input: Input
    input_gradient: Input
    output_gradient: Output

    rules = page_rules(same_type_and_sizes("input", "input_gradient", "output_gradient"))


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

    rules = page_rules(same_type_and_sizes("a", "b", "output"))


# Activations that other operators take


class Activation(Operator):
    """An operator that can be fused into another; it then works on that operator's tensors and has none itself."""

    input: OptionalInput = None
    output: OptionalOutput = None
    # The operators that it can be fused into, by type, with the levels since which it can. None means all operators
    # that take an activation, since the activation's own level.
    fused_into: ClassVar[Mapping[str, FeatureLevel] | None] = None

    @classmethod
    def fused_since(cls, operator: str) -> FeatureLevel | None:
        """The level since which it can be fused into operators of the type `operator`; None if it cannot."""
        return min(cls.support) if cls.fused_into is None else cls.fused_into.get(operator)

    def _missing_tensors(self) -> Iterator[Problem]:
        for field in ("input", "output"):
            if getattr(self, field) is None:
                yield Problem(self.member(field).name, "must be given, unless the activation is fused", "none")

    rules = page_rules(
        Rule("{input} and {output} are given, unless the activation is fused into another operator.", _missing_tensors),
        same_type_and_sizes("input", "output"),
    )
    attribute_rules: ClassVar[tuple[Rule, ...]] = ()  # which also hold for fused activations


def fused_activation_rules(
    activation: Operator | None,
    feature_level: FeatureLevel,
    path: Path = ("FusedActivation",),
    *,
    into: Operator | None = None,
) -> Iterator[Problem]:
    """Requires that the desc at `path` be an activation without tensors that can be fused at this level.

    `into` is the desc that it is fused into, if that takes activations that others do not; the activation then works on
    its OutputTensor.
    """
    if activation is None:
        return
    operator = "" if into is None else type(into).type
    introduced = activation.fused_since(operator) if isinstance(activation, Activation) else None
    if not isinstance(activation, Activation) or introduced is None:
        yield Problem((*path, "Type"), "must be an activation that can be fused", type(activation).type)
        return
    if introduced > feature_level:
        yield Problem((*path, "Type"), f"must be one of {feature_level}", f"{type(activation).type} of {introduced}")
    for leaf in activation.leaves():
        yield Problem((*path, *leaf.path), "must not be given", leaf.tensor)
    output = getattr(into, "output", None)
    if output is None or activation.leaves():
        rules = activation.attribute_rules
        problems: Iterable[Problem] = chain(*(rule.problems(activation, feature_level) for rule in rules))
    else:
        members = {member.field: getattr(activation, member.field) for member in activation.members()}
        whole = type(activation)(**members | {"input": output, "output": output})
        problems = whole.rule_problems(feature_level)
    for problem in problems:
        yield problem.inside(path)


FUSED_ACTIVATION = LevelRule(
    "FusedActivation is an activation that can be fused, is in the feature level, and has no tensors.",
    lambda desc, feature_level: fused_activation_rules(desc.fused_activation, feature_level, into=desc),
)


@dataclass(frozen=True)
class FusableInto:
    """An argument that is an activation to fuse into an operator: a descriptor, or a function or its name."""

    operator: str = ""  # its type; if empty, any operator that takes an activation

    def __call__(self, where: Where, value: Any) -> Activation:
        if isinstance(value, Operator):
            return self._require_activation(where, value)
        function, numbers = (value.func, value.keywords) if isinstance(value, partial) else (value, {})
        name = function if isinstance(function, str) else getattr(function, "__name__", "")
        known = _activations(self.operator)
        operator = known.get(_strip_prefix(name.lower()))
        if operator is not None and (isinstance(function, str) or operator.function is function):
            with inside(where):
                return operator(**_defaults(operator) | numbers)
        rule = f"must be {join_words(known, 'or')}, dmljax's function of that name, or its descriptor"
        hint = did_you_mean(name, known) if name else ""
        raise (InvalidDesc if isinstance(value, str) else InvalidType)(Problem(where, rule, show(value) + hint))

    def _require_activation(self, where: Where, value: Operator) -> Activation:
        tensors = value.tensors()
        if not isinstance(value, Activation) or tensors or value.fused_since(self.operator) is None:
            got = f"{type(value).type} with {join_words(tensors)}" if tensors else type(value).type
            raise InvalidDesc(Problem(where, "must be an activation without tensors", got))
        return value


@cache
def _activations(into: str) -> dict[str, type[Activation]]:
    """The activations that can be fused into an operator, by the names of their functions without `activation_`."""
    import_module("dmljax.directml")  # which registers all operators
    activations = [desc for desc in OPERATORS.values() if issubclass(desc, Activation)]
    fusable = [desc for desc in activations if desc.fused_since(into) is not None]
    return dict(sorted((_strip_prefix(desc.short_name.lower()), desc) for desc in fusable))


def _strip_prefix(function: str) -> str:
    return function.removeprefix("activation_").removeprefix("element_wise_")


def _defaults(operator: type[Operator]) -> dict[str, Any]:
    """The required members, with the defaults of the operator's function."""
    parameters = signature(operator.function).parameters
    defaults = {m.field: parameters[m.field].default for m in operator.members() if not m.is_optional}
    return {field: value for field, value in defaults.items() if value not in (None, Parameter.empty)}


class Fusables:
    """An argument that is several activations, which can be applied to the result of any operator."""

    def __call__(self, where: Where, values: Any) -> tuple[Activation, ...]:
        each = enumerate(sequence(where, values, "activations"))
        return tuple(FusableInto()(element_path(where, i), value) for i, value in each)


ActivationLike = Operator | Callable[..., Any] | str
Fusable = Annotated[ActivationLike, FusableInto()]  # into any operator that takes one
EachFusable = Annotated[Sequence[ActivationLike], Fusables()]


def apply_fused_activation(result: Array, activation: ActivationLike | None) -> Array:
    """Applies the activation to a result rounded to its type, as if the activation were a separate operator."""
    if activation is None:
        return result
    output: Array = cast(Operator, activation).compute(input=result)  # names are resolved before a call
    return output
