"""Descriptors as JSON objects in the spelling of directml.h, including fused activations."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Annotated, Any

from dmljax.calls.binding import check_arguments
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, Operator, operator_called
from dmljax.descriptors.members import (
    Array,
    MemberKind,
    Several,
    check_count,
    json_object,
    json_string,
    require_json_value,
)
from dmljax.descriptors.validation import require_lowerable
from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported, Where, inside, within
from dmljax.text import did_you_mean, show
from dmljax.types import DataType


@check_arguments
def to_json(desc: Any) -> dict[str, Any]:
    """A descriptor or a graph as a plain JSON object, every name spelled as in directml.h.

    >>> tensor = TensorDesc("FLOAT32", (1, 1, 2, 3))
    >>> to_json(ActivationHardmaxDesc(input=tensor, output=tensor))["Type"]
    'DML_OPERATOR_ACTIVATION_HARDMAX'
    """
    require_lowerable(desc)
    json: dict[str, Any] = desc.json()
    return json


def operator_from_json(json: Any) -> Operator:
    """The descriptor that a JSON object spells, as `from_json` reads it."""
    if not isinstance(json, Mapping):
        remedy = "json.loads reads text" if isinstance(json, str | bytes) else None
        raise InvalidType(Problem((), "an operator must be an object", show(json), remedy=remedy))
    rest = dict(json)
    operator = operator_of_type("Type", rest.pop("Type", rest.pop("type", None)))
    with within(operator.type):
        desc = rest.pop("Desc", rest.pop("desc", None))
        for key in rest if desc is not None else ():
            raise InvalidDesc(Problem((), f"unknown field {show(key)} beside Desc"))
        fields = json_object("Desc", rest if desc is None else desc, operator.json_fields())
        refusals: list[DmlError] = []

        @contextmanager
        def record() -> Iterator[None]:
            try:
                yield
            except DmlError as refusal:
                refusals.append(refusal)

        members = members_from_json(operator, fields, record)
        if refusals:
            raise type(refusals[0])(*(problem for refusal in refusals for problem in refusal.problems))
    return operator(**members)


def operator_of_type(where: Where, value: Any) -> type[Operator]:
    """The operator of that type, its name whole or without its prefix."""
    name = json_string(where, value)
    operator = operator_called(name)
    if operator is None:
        hint = did_you_mean(name.removeprefix(OPERATOR_PREFIX), (known.short_name for known in OPERATORS.values()))
        raise Unsupported(Problem(where, f"unknown operator {show(value)}{hint}", remedy="`dmljax ops` lists them"))
    return operator


def members_from_json(
    operator: type[Operator], fields: Mapping[str, Any], scope: Callable[[], AbstractContextManager[None]] = nullcontext
) -> dict[str, Any]:
    """Reads the members of a desc from its JSON fields, each inside a `scope`, which may record errors."""
    members: dict[str, Any] = {}
    data_type = None
    for member in operator.members():
        with scope():
            value = fields.get(member.name)
            if not member.is_optional:
                require_json_value(member.name, value)
            if value is not None:
                read = member.kind.from_json(member.name, value, data_type)
                value = member.kind.coerce(member.name, read, data_type)
                if member.kind.count is not None:
                    check_count(member.kind.count, fields.get(member.kind.count), member.name, len(value))
            data_type = value if isinstance(value, DataType) else data_type
            members[member.field] = value
    return members


def _activation_called(value: Any) -> str | None:
    """Returns the descriptor to write instead of the name of an activation."""
    operator = OPERATORS.get(f"{OPERATOR_PREFIX}ACTIVATION_{value.upper()}") if isinstance(value, str) else None
    if operator is None:
        return None
    attributes = ", ".join(f"{member.field}=..." for member in operator.members() if member.tensor_kind is None)
    return f"{operator.__name__}({attributes})"


class Fused(MemberKind):
    """A DML_OPERATOR_DESC of an activation that is fused into another operator."""

    description = "activation without tensors"
    plural = "descriptors of activations"

    def json_fields(self, value: Any) -> tuple[str, ...]:
        known = operator_called(str(value.get("Type", value.get("type"))))
        return ("Type", "type", "Desc", "desc", *known.json_fields()) if known else tuple(value)

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> Operator:
        if not isinstance(value, Operator):
            raise InvalidType(Problem(name, "must be a descriptor", show(value), remedy=_activation_called(value)))
        return value

    def to_json(self, value: Operator) -> dict[str, Any]:
        return to_json(value)

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> Operator:
        with inside(where):
            return operator_from_json(value)


FusedActivation = Annotated[Operator | None, Fused()]
FusedActivations = Annotated[Several[Operator], Array(Fused(), count="ActivationDescCount")]
