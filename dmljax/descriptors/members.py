"""The kinds of members of an operator desc: how to check a value, and how to spell it in JSON."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import jax
import numpy as np

from dmljax.descriptors.tensor import TensorDesc
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, Where, all_checked, inside, path_of
from dmljax.foundation.checks import (
    INT_MAX,
    INT_MIN,
    UINT64_MAX,
    UINT_MAX,
    boolean,
    element_path,
    enumerator_problem,
    integer,
    integer_in,
    parse_enum,
    sequence,
    uints,
)
from dmljax.foundation.scalars import Scalar, ScaleBias, Size2D, convert_step
from dmljax.text import did_you_mean, show
from dmljax.types import DataType, HeaderEnum, TensorFlags


class MemberKind(ABC):
    """A kind of member, as `directml.h` declares it."""

    count: str | None = None  # of an array: the member that has its length

    @property
    @abstractmethod
    def description(self) -> str:
        """The declaration in directml.h, in a few words."""

    @property
    def plural(self) -> str:
        """The name that errors use for the elements of such an array."""
        return f"{self.description}s"

    @abstractmethod
    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> Any:
        """Normalizes `value`, or raises; `data_type` is the type of the desc's scalar unions."""

    def as_code(self, value: Any) -> str:
        """`value` as Python that `coerce` takes."""
        return repr(value)

    def json_fields(self, value: Any) -> tuple[str, ...]:
        """The fields that `value` may have in JSON, if it is an object there."""
        return ()

    def to_json(self, value: Any) -> Any:
        """`value` as JSON."""
        return value

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> Any:
        """Reads JSON as a value that `coerce` takes; raises only for errors of JSON itself."""
        return value


# Tensors


@dataclass(frozen=True)
class Tensor(MemberKind):
    """A `DML_TENSOR_DESC` of an input or an output: declared, since names such as OutputScaleTensor are inputs."""

    is_input: bool

    def json_fields(self, value: Any) -> tuple[str, ...]:
        return ("Type", "Desc", *_TENSOR_FIELDS)

    @property
    def description(self) -> str:
        return "input tensor" if self.is_input else "output tensor"

    plural = "TensorDescs"

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> TensorDesc:
        if not isinstance(value, TensorDesc):
            raise InvalidType(Problem(name, "must be a TensorDesc", type(value).__name__, remedy=_suggest_desc(value)))
        return value

    def to_json(self, value: TensorDesc) -> dict[str, Any]:
        optional = {
            "Strides": value.strides and list(value.strides),
            "TotalTensorSizeInBytes": value.total_tensor_size_in_bytes,
            "GuaranteedBaseOffsetAlignment": value.guaranteed_base_offset_alignment,
            "Flags": value.flags and value.flags.spelling,
        }
        record = {"DataType": value.data_type.spelling, "Sizes": list(value.sizes)}
        return record | {key: field for key, field in optional.items() if field}

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> TensorDesc:
        place = path_of(where)
        fields = json_object(place, value, self.json_fields(value))
        if fields.get("Type") not in (None, "DML_TENSOR_TYPE_BUFFER", "BUFFER"):
            raise InvalidDesc(Problem((*place, "Type"), "must be DML_TENSOR_TYPE_BUFFER", show(fields["Type"])))
        if "Desc" in fields:  # a DML_TENSOR_DESC around the DML_BUFFER_TENSOR_DESC
            place = (*place, "Desc")
            fields = json_object(place, fields["Desc"], _TENSOR_FIELDS)
        flags, alignment = fields.get("Flags"), fields.get("GuaranteedBaseOffsetAlignment")
        with inside(place):
            data_type, sizes, *each_flag = all_checked(
                lambda: json_enum(DataType, "DataType", fields.get("DataType")),
                lambda: uints("Sizes", require_json_value("Sizes", fields.get("Sizes"))),
                *checks_of_flags(TensorFlags, "Flags", [] if flags is None else flags),
            )
            # As in a C program, DimensionCount says how much of the arrays counts.
            count = fields.get("DimensionCount")
            strides: Any = fields.get("Strides")
            dimensions = slice(None if count is None else integer_in("DimensionCount", count, 0, len(sizes)))
            if isinstance(strides, list):
                strides = strides[dimensions] or None
            return TensorDesc(
                data_type=data_type,
                sizes=sizes[dimensions],
                strides=strides,
                flags=max(each_flag, default=TensorFlags.NONE),
                total_tensor_size_in_bytes=fields.get("TotalTensorSizeInBytes"),
                guaranteed_base_offset_alignment=0 if alignment is None else alignment,
            )


def _suggest_desc(value: Any) -> str | None:
    """Returns the TensorDesc to write instead of an array."""
    if not isinstance(value, jax.Array | np.ndarray) or not value.shape:
        return None
    name = value.dtype.name.upper()
    return f"TensorDesc({name!r}, {value.shape}) describes it" if name in DataType.__members__ else None


_TENSOR_FIELDS = (
    "DataType",
    "DimensionCount",
    "Sizes",
    "Strides",
    "TotalTensorSizeInBytes",
    "GuaranteedBaseOffsetAlignment",
    "Flags",
)


@dataclass(frozen=True)
class Array(MemberKind):
    """An array of another kind, with the member that has its length: derived here, written and checked in JSON.

    Arrays may share that member: all of them then have the same length.
    """

    of: MemberKind
    count: str | None

    @property
    def description(self) -> str:
        return f"array of {self.of.description}, {self.count} long"

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> tuple[Any, ...]:
        values = sequence(name, value, self.of.plural)
        coercions = (partial(self.of.coerce, element_path(name, i), item, data_type) for i, item in enumerate(values))
        return all_checked(*coercions) if isinstance(self.of, Tensor) else tuple(check() for check in coercions)

    def as_code(self, value: tuple[Any, ...]) -> str:
        return f"({', '.join(map(self.of.as_code, value))}{',' if len(value) == 1 else ''})"

    def to_json(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.of.to_json(item) for item in value]

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> Any:
        if not isinstance(value, list):
            return value
        return [self.of.from_json(element_path(where, i), item, data_type) for i, item in enumerate(value)]


# Numbers


@dataclass(frozen=True)
class Integer(MemberKind):
    """An integer type of C."""

    name: str
    lowest: int
    highest: int

    @property
    def description(self) -> str:
        return self.name

    plural = "integers"

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> int:
        return integer_in(name, value, self.lowest, self.highest)


@dataclass(frozen=True)
class Boolean(MemberKind):
    """A BOOL of C."""

    description = "BOOL"

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> bool:
        return boolean(name, value)

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> Any:
        return bool(value) if value in (0, 1) and isinstance(value, int) else value  # as in a C program


@dataclass(frozen=True)
class Enumeration(MemberKind):
    """An enumeration of directml.h."""

    enumeration: type[HeaderEnum]

    @property
    def description(self) -> str:
        names = ", ".join(self.enumeration.__members__)
        return self.enumeration.prefix.rstrip("_") if len(names) > 40 else f"one of {names}"

    @property
    def plural(self) -> str:
        return f"enumerators of {self.enumeration.prefix.rstrip('_')}"

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> HeaderEnum:
        member: HeaderEnum = parse_enum(self.enumeration, name, value)
        return member

    def to_json(self, value: HeaderEnum) -> str:
        return value.spelling

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> HeaderEnum:
        member: HeaderEnum = json_enum(self.enumeration, where, value)
        return member


@dataclass(frozen=True)
class Number(MemberKind):
    """A FLOAT, or a DML_SCALAR_UNION of the type in the desc's only DataType member.

    A step may be negative in an unsigned type: it wraps around.
    """

    own_type: DataType | None
    is_step: bool = False

    @property
    def description(self) -> str:
        return "number in the desc's own data type" if self.own_type is None else "FLOAT"

    plural = "numbers"

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> Scalar:
        scalar_type = self.own_type or data_type or DataType.UNKNOWN
        with inside(name):
            if self.is_step and not isinstance(value, Scalar):
                value = convert_step(value, scalar_type.dtype)
            return Scalar.of(scalar_type, value)

    def as_code(self, value: Scalar) -> str:
        return value.as_code

    def to_json(self, value: Scalar) -> Any:
        number: int | float = value.item.item()
        if math.isfinite(number):
            return number
        if value in (Scalar.of(value.data_type, constant) for constant in NOT_FINITE.values()):
            return str(number)
        return {f"UInt{value.data_type.bits}": value.bits}  # the bits of an unusual NaN

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> Any:
        data_type = self.own_type or data_type or DataType.UNKNOWN
        if isinstance(value, dict):
            where, value = self._union_field(where, value, data_type)
        if isinstance(value, Scalar):
            return value
        if isinstance(value, str) and value.lower() in NOT_FINITE:
            return NOT_FINITE[value.lower()]
        if isinstance(value, bool) or not isinstance(value, int | float):
            rule = f"must be a number, or {', '.join(map(repr, NOT_FINITE))}"
            raise InvalidType(Problem(where, rule, show(value)))
        return value

    def _union_field(self, where: Where, fields: dict[str, Any], data_type: DataType) -> tuple[Where, Any]:
        typed_field = data_type.name.replace("UINT", "UInt").replace("INT", "Int").replace("FLOAT", "Float")
        raw = f"UInt{data_type.bits}"  # how DxDispatch spells a FLOAT16, and dmljax a NaN with unusual bits
        choices = (raw,) if data_type is DataType.FLOAT16 else (typed_field, raw)
        key = next((key for key in choices if key in fields), None)  # a union has one value; ignore others
        if key is None:
            raise InvalidDesc(Problem(where, f"must have the field {' or '.join(choices)}", show(list(fields))))
        place = (*path_of(where), key)
        if key == typed_field:
            return place, fields[key]
        return where, Scalar(data_type, integer_in(place, fields[key], 0, 2**data_type.bits - 1))


NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


# Structs


@dataclass(frozen=True)
class Struct(MemberKind):
    """A small struct of directml.h: a named tuple here, an object in JSON."""

    name: str
    form: type[Any]
    fields: tuple[str, ...]
    of: MemberKind

    @property
    def description(self) -> str:
        return f"{self.name}: {' and '.join(self.fields)}, {self.of.description}"

    def json_fields(self, value: Any) -> tuple[str, ...]:
        return self.fields

    def coerce(self, name: Where, value: Any, data_type: DataType | None) -> Any:
        if not isinstance(value, self.form):
            form = self.form.__name__
            remedy = f"{form}({', '.join(f'{field}=...' for field in self.form._fields)})"
            raise InvalidType(Problem(name, f"must be a {form}", show(value), remedy=remedy))
        with inside(name):
            return self.form(*(self.of.coerce(key, x, None) for key, x in zip(self.fields, value, strict=True)))

    def as_code(self, value: Any) -> str:
        numbers = (f"{key}={self.of.as_code(x)}" for key, x in value._asdict().items())
        return f"{self.form.__name__}({', '.join(numbers)})"

    def to_json(self, value: Any) -> dict[str, Any]:
        return {key: self.of.to_json(x) for key, x in zip(self.fields, value, strict=True)}

    def from_json(self, where: Where, value: Any, data_type: DataType | None) -> Any:
        place = path_of(where)
        members = json_object(place, value, self.fields)
        with inside(place):
            return self.form(
                *(self.of.from_json(key, require_json_value(key, members.get(key)), None) for key in self.fields)
            )


# Annotations for the members of a desc

if TYPE_CHECKING:  # a dataclass has no other way to declare that a member accepts more types than it returns
    Read = TypeVar("Read")
    Given = TypeVar("Given")
    OneOf = TypeVar("OneOf", bound=HeaderEnum)

    class Coerced(Generic[Read, Given]):
        """A member that is set as one type and read as another."""

        def __get__(self, desc: object, operator: Any) -> Read: ...
        def __set__(self, desc: object, value: Given) -> None: ...

    Enumerator = Coerced[OneOf, OneOf | str | int]
    Several = Coerced[tuple[Read, ...], Sequence[Read]]
else:

    class Enumerator:
        """A member of an enumeration, which may be set by its name or number."""

        def __class_getitem__(cls, enumeration):
            return enumeration

    class Several:
        """Any number of the same kind."""

        def __class_getitem__(cls, kind):
            return tuple[kind, ...]


UINT, INT = Integer("UINT", 0, UINT_MAX), Integer("INT", INT_MIN, INT_MAX)
FLOAT = Number(own_type=DataType.FLOAT32)

Input = Annotated[TensorDesc, Tensor(is_input=True)]
Inputs = Annotated[Several[TensorDesc], Array(Tensor(is_input=True), count="InputCount")]
Outputs = Annotated[Several[TensorDesc], Array(Tensor(is_input=False), count="OutputCount")]
QuantizationTensors = Annotated[Several[TensorDesc], Array(Tensor(is_input=True), count="QuantizationTensorCount")]
OptionalInput = Annotated[TensorDesc | None, Tensor(is_input=True)]
Output = Annotated[TensorDesc, Tensor(is_input=False)]
OptionalOutput = Annotated[TensorDesc | None, Tensor(is_input=False)]
Uint = Annotated[int, UINT]
Uint64 = Annotated[int, Integer("UINT64", 0, UINT64_MAX)]
Int = Annotated[int, INT]
Bool = Annotated[bool, Boolean()]
UintDimensions = Annotated[Several[int], Array(UINT, count="DimensionCount")]
IntDimensions = Annotated[Several[int], Array(INT, count="DimensionCount")]
Repeats = Annotated[Several[int], Array(UINT, count="RepeatsCount")]
FloatDimensions = Annotated[Several[Any], Array(FLOAT, count="DimensionCount")]
Scales = Annotated[Several[Any], Array(FLOAT, count="ScaleCount")]
UintAxes = Annotated[Several[int], Array(UINT, count="AxisCount")]
SCALAR_TYPE = Enumeration(DataType)
Float = Annotated[Any, FLOAT]  # takes any number, holds a Scalar
FloatChannels = Annotated[Several[Any], Array(FLOAT, count="ChannelCount")]
ScalarUnion = Annotated[Any, Number(own_type=None)]
StepUnion = Annotated[Any, Number(own_type=None, is_step=True)]
OptionalScaleBias = Annotated[ScaleBias | None, Struct("DML_SCALE_BIAS", ScaleBias, ("Scale", "Bias"), FLOAT)]
Size = Annotated[Size2D, Struct("DML_SIZE_2D", Size2D, ("Width", "Height"), UINT)]


# Members


@dataclass(frozen=True)
class Member:
    """A member of a desc: its Python field, its name in directml.h, and what it can be."""

    field: str
    name: str
    kind: MemberKind
    is_optional: bool
    default: Any  # dataclasses.MISSING if it must be given

    def as_code(self, value: Any) -> str:
        """`value` as Python that a desc takes for this member."""
        return "None" if value is None else self.kind.as_code(value)

    @cached_property
    def tensor_kind(self) -> Tensor | None:
        """The kind of its tensors, if it is a tensor or an array of tensors."""
        kind = self.kind.of if isinstance(self.kind, Array) else self.kind
        return kind if isinstance(kind, Tensor) else None


@dataclass(frozen=True)
class Leaf:
    """A tensor of a desc: a member, or an element of a member that is an array of tensors."""

    member: Member
    index: int | None
    tensor: TensorDesc

    @property
    def key(self) -> str:
        """Its place in Python: `input`, `inputs[0]`."""
        return self.member.field if self.index is None else f"{self.member.field}[{self.index}]"

    @property
    def path(self) -> Path:
        """Its place in directml.h: `InputTensor`, `InputTensors[0]`."""
        return (self.member.name,) if self.index is None else (self.member.name, self.index)


def flag_problems(leaves: Iterable[Leaf]) -> Iterator[Problem]:
    """Yields a problem for each of the tensors that DirectML is to own, where it cannot."""
    for leaf in leaves:
        if leaf.tensor.flags is TensorFlags.OWNED_BY_DML:
            yield Problem((*leaf.path, "Flags"), "must be NONE", leaf.tensor.flags.name)


# JSON


def json_object(where: Where, value: Any, keys: Iterable[str]) -> dict[str, Any]:
    """Returns `value` if it is an object with no keys other than `keys`."""
    if not isinstance(value, dict):
        raise InvalidType(Problem(where, "must be an object", show(value)))
    for key in value:
        if key not in keys:
            rule = f"unknown field {show(key)}{did_you_mean(key, keys)}; its fields are {', '.join(keys) or 'none'}"
            raise InvalidDesc(Problem(where, rule))
    return value


def check_count(name: str, count: Any, array: str, length: int) -> None:
    """Raises if a count is not the length of its array."""
    if count is not None and integer(name, count) != length:
        raise InvalidDesc(Problem(name, f"must be {length}, the length of {array}", count))


def require_json_value(where: Where, value: Any) -> Any:
    """Returns `value` unless it is null, which counts as an absent field."""
    if value is None:
        raise InvalidDesc(Problem(where, "must be given", "none"))
    return value


def json_string(where: Where, value: Any) -> str:
    """Returns `value` if it is a string: the format names enumerators and never gives their numbers."""
    require_json_value(where, value)
    if not isinstance(value, str):
        raise InvalidType(Problem(where, "must be a name", show(value)))
    return value


def json_enum(enumeration: type[HeaderEnum], where: Where, value: Any) -> Any:
    """The enumerator of that name, which a program must spell as directml.h does."""
    member = enumeration.__members__.get(json_string(where, value).removeprefix(enumeration.prefix))
    if member is None:
        raise InvalidDesc(enumerator_problem(enumeration, where, value))
    return member


def checks_of_flags(enumeration: type[HeaderEnum], where: Where, value: Any) -> list[Callable[[], Any]]:
    """Returns a function for each flag of a list, or for a single flag, that checks and returns the flag."""
    flags = (
        [(element_path(where, i), flag) for i, flag in enumerate(value)]
        if isinstance(value, list)
        else [(where, value)]
    )
    return [partial(json_enum, enumeration, *flag) for flag in flags]
