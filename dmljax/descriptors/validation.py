"""Validates descriptors by their support tables and the rules of their pages."""

from collections.abc import Mapping, Sequence
from typing import Any

from dmljax.calls.binding import check_arguments
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, Lowerable, Operator
from dmljax.errors import InvalidDesc, InvalidType, Problem, within
from dmljax.foundation.checks import parse_enum
from dmljax.text import show
from dmljax.types import LATEST, FeatureLevel


@check_arguments
def find_broken_rules(desc: Any, feature_level: FeatureLevel | str = LATEST) -> tuple[str, ...]:
    """Lists why a device of `feature_level` would refuse a descriptor or a graph, a sentence for each broken rule.

    >>> tensor = TensorDesc("FLOAT32", (2, 3))
    >>> find_broken_rules(
    ...     ActivationHardmaxDesc(input=tensor, output=tensor), feature_level="2_0"
    ... )[0]
    'InputTensor.DimensionCount must be 4 to 5; got 2'
    """
    level = _level(desc, feature_level)
    return tuple(map(str, desc.problems(level)))


@check_arguments
def validate(desc: Any, feature_level: FeatureLevel | str = LATEST) -> None:
    """Raises if a device of `feature_level` would refuse a descriptor or a graph, with every rule that it breaks.

    >>> tensor = TensorDesc("FLOAT64", (1, 1, 2, 3))
    >>> validate(ActivationHardmaxDesc(input=tensor, output=tensor), feature_level="1_0")
    Traceback (most recent call last):
    dmljax.directml.InvalidDesc: DML_OPERATOR_ACTIVATION_HARDMAX at ...
    """
    level = _level(desc, feature_level)
    broken = tuple(desc.problems(level))
    if broken:
        raise _refusal(desc, level, broken)


@check_arguments
def find_minimum_feature_level(desc: Any) -> FeatureLevel:
    """Finds the lowest level whose devices accept a descriptor or a graph; raises an error if none does.

    >>> tensor = TensorDesc("FLOAT16", (2, 3))
    >>> find_minimum_feature_level(ActivationHardmaxDesc(input=tensor, output=tensor))
    FeatureLevel.FL_3_0
    """
    require_lowerable(desc)
    for level in FeatureLevel:
        broken = tuple(desc.problems(level))
        if not broken:
            return level
    raise _refusal(desc, level, broken)


def require_lowerable(desc: Any) -> None:
    """Raises unless this is a descriptor or a graph."""
    if not isinstance(desc, Lowerable):
        remedy = _remedy(desc)
        raise InvalidType(Problem((), "a descriptor must be an Operator or a Graph", show(desc), remedy=remedy))
    if isinstance(desc, Operator) and type(desc).__init__ is not Operator.__init__:  # its members have not been checked
        raise InvalidType(Problem((), "a descriptor's class must keep Operator's __init__", type(desc).__name__))


def _remedy(value: Any) -> str | None:
    """Returns advice for a value that is no descriptor, such as the JSON, class, function or name of an operator."""
    if isinstance(value, Mapping):
        return "from_json makes a descriptor of it"
    if isinstance(value, type) and issubclass(value, Operator):
        return f"{value.called()} is one"
    name = value if isinstance(value, str) else getattr(value, "__name__", "")
    suffix = name.upper().removeprefix(OPERATOR_PREFIX)
    operators = (known for known in OPERATORS.values() if f"_{known.short_name}".endswith(f"_{suffix}"))
    operator = min(operators, key=lambda known: len(known.short_name), default=None) if suffix else None
    return f"{operator.called()} is one" if operator else None


def _level(desc: Any, feature_level: FeatureLevel | str) -> FeatureLevel:
    require_lowerable(desc)
    with within(desc.title):
        level: FeatureLevel = parse_enum(FeatureLevel, "feature_level", feature_level)
    return level


def _refusal(desc: Lowerable, level: FeatureLevel, broken: Sequence[Problem]) -> InvalidDesc:
    error = InvalidDesc(*broken)
    error.operator = f"{desc.title} at {level}"
    return error
