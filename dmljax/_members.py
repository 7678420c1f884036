"""What a member of an operator desc can be: how a value is checked, and how it is spelled in JSON."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dmljax._checks import integer, integer_in, named, nearest, shown, uints
from dmljax._errors import InvalidDesc, InvalidType, all_checked, prefixed
from dmljax._scalars import Scalar, ScaleBias
from dmljax._tensor import TensorDesc
from dmljax._types import DataType, HeaderEnum, TensorFlags


class Kind(ABC):
    """A kind of member, as `directml.h` has them."""

    def json_fields(self, value: Any) -> tuple[str, ...]:
        """The fields that JSON may give `value`, where that is spelled as an object."""
        return ()

    @property
    @abstractmethod
    def description(self) -> str:
        """What directml.h declares, in a few words."""

    @abstractmethod
    def settled(self, name: str, value: Any, data_type: DataType | None) -> Any:
        """`value` in its one Python form, or refused; `data_type` is that of the desc's scalar unions."""

    def to_json(self, value: Any) -> Any:
        return value

    def from_json(self, name: str, value: Any, data_type: DataType | None) -> Any:
        """What `settled` takes; refused here is only what JSON alone can get wrong."""
        return value


@dataclass(frozen=True)
class Tensor(Kind):
    """A `DML_TENSOR_DESC`, of an input or an output: declared, for a name like OutputScaleTensor misleads."""

    is_input: bool

    def json_fields(self, value: Any) -> tuple[str, ...]:
        return ("Type", "Desc", *_TENSOR_FIELDS)

    @property
    def description(self) -> str:
        return "input tensor" if self.is_input else "output tensor"

    def settled(self, name: str, value: Any, data_type: DataType | None) -> TensorDesc:
        if not isinstance(value, TensorDesc):
            raise InvalidType(f"{name} must be a TensorDesc; got {type(value).__name__}")
        return value

    def to_json(self, value: TensorDesc) -> dict[str, Any]:
        optional = {
            "Strides": value.strides and list(value.strides),
            "TotalTensorSizeInBytes": value.total_tensor_size_in_bytes,
            "GuaranteedBaseOffsetAlignment": value.guaranteed_base_offset_alignment,
            "Flags": value.flags and value.flags.spelling,
        }
        required = {"DataType": value.data_type.spelling, "Sizes": list(value.sizes)}
        return required | {key: given for key, given in optional.items() if given}

    def from_json(self, name: str, value: Any, data_type: DataType | None) -> TensorDesc:
        fields = json_object(name, value, self.json_fields(value))
        if fields.get("Type") not in (None, "DML_TENSOR_TYPE_BUFFER", "BUFFER"):
            raise InvalidDesc(f"{name}.Type must be DML_TENSOR_TYPE_BUFFER; got {shown(fields['Type'])}")
        if "Desc" in fields:  # a DML_TENSOR_DESC around the DML_BUFFER_TENSOR_DESC
            name, fields = f"{name}.Desc", json_object(f"{name}.Desc", fields["Desc"], _TENSOR_FIELDS)
        listed = fields.get("Flags")
        flags = listed if isinstance(listed, list) else [] if listed is None else [listed]
        places = [f"Flags[{i}]" if isinstance(listed, list) else "Flags" for i in range(len(flags))]
        alignment = fields.get("GuaranteedBaseOffsetAlignment")
        with prefixed(name):
            data_type, sizes, *each_flag = all_checked(
                lambda: named(DataType, "DataType", json_string("DataType", fields.get("DataType"))),
                lambda: uints("Sizes", json_given("Sizes", fields.get("Sizes"))),
                *(
                    partial(lambda place, flag: named(TensorFlags, place, json_string(place, flag)), place, flag)
                    for place, flag in zip(places, flags, strict=True)
                ),
            )
            # As a C program, DimensionCount says how much of the arrays counts.
            count = fields.get("DimensionCount")
            strides: Any = fields.get("Strides")
            used = slice(None if count is None else integer_in("DimensionCount", count, 0, len(sizes)))
            if isinstance(strides, list):
                strides = strides[used] or None
            return TensorDesc(
                data_type=data_type,
                sizes=sizes[used],
                strides=strides,
                flags=max(each_flag, default=TensorFlags.NONE),
                total_tensor_size_in_bytes=fields.get("TotalTensorSizeInBytes"),
                guaranteed_base_offset_alignment=0 if alignment is None else alignment,
            )


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
class Integer(Kind):
    """UINT or INT."""

    lowest: int
    highest: int

    @property
    def description(self) -> str:
        return "INT" if self.lowest else "UINT"

    def settled(self, name: str, value: Any, data_type: DataType | None) -> int:
        return integer_in(name, value, self.lowest, self.highest)


@dataclass(frozen=True)
class UintArray(Kind):
    """An array of UINT, with the member that counts it: derived here, written and checked in JSON."""

    count: str

    @property
    def description(self) -> str:
        return f"list of UINT, {self.count} long"

    def settled(self, name: str, value: Any, data_type: DataType | None) -> tuple[int, ...]:
        return uints(name, value)

    def to_json(self, value: tuple[int, ...]) -> list[int]:
        return list(value)


@dataclass(frozen=True)
class Enumeration(Kind):
    """An enumeration of directml.h."""

    enumeration: type[HeaderEnum]

    @property
    def description(self) -> str:
        names = ", ".join(self.enumeration.__members__)
        return self.enumeration.prefix.rstrip("_") if len(names) > 45 else f"one of {names}"

    def settled(self, name: str, value: Any, data_type: DataType | None) -> HeaderEnum:
        member: HeaderEnum = named(self.enumeration, name, value)
        return member

    def to_json(self, value: HeaderEnum) -> str:
        return value.spelling

    def from_json(self, name: str, value: Any, data_type: DataType | None) -> str:
        return json_string(name, value)


@dataclass(frozen=True)
class Number(Kind):
    """A FLOAT, or a DML_SCALAR_UNION in the data type that the desc's one DataType member gives."""

    own_type: DataType | None

    @property
    def description(self) -> str:
        return "number in the desc's own data type" if self.own_type is None else "FLOAT"

    def settled(self, name: str, value: Any, data_type: DataType | None) -> Scalar:
        with prefixed(name, " "):
            return Scalar.of(self.own_type or data_type or DataType.UNKNOWN, value)

    def to_json(self, value: Scalar) -> Any:
        number: int | float = value.item.item()
        if math.isfinite(number):
            return number
        if value in (Scalar.of(value.data_type, constant) for constant in NOT_FINITE.values()):
            return str(number)
        return {f"UInt{value.data_type.bits}": value.bits}  # the bits of an unusual NaN

    def from_json(self, name: str, value: Any, data_type: DataType | None) -> Any:
        data_type = self.own_type or data_type or DataType.UNKNOWN
        if isinstance(value, dict):
            name, value = self._union_field(name, value, data_type)
        if isinstance(value, Scalar):
            return value
        if isinstance(value, str) and value.lower() in NOT_FINITE:
            return NOT_FINITE[value.lower()]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidType(f"{name} must be a number, or {', '.join(map(repr, NOT_FINITE))}; got {shown(value)}")
        return value

    def _union_field(self, name: str, fields: dict[str, Any], data_type: DataType) -> tuple[str, Any]:
        typed = data_type.name.replace("UINT", "UInt").replace("INT", "Int").replace("FLOAT", "Float")
        raw = f"UInt{data_type.bits}"  # how DxDispatch spells a FLOAT16, and dmljax any NaN with bits of its own
        allowed = (raw,) if data_type is DataType.FLOAT16 else (typed, raw)
        key = next((key for key in allowed if key in fields), None)  # a union has one value; others are not looked at
        if key is None:
            raise InvalidDesc(f"{name} must have the field {' or '.join(allowed)}; got {shown(list(fields))}")
        if key == typed:
            return f"{name}.{key}", fields[key]
        return name, Scalar(data_type, integer_in(f"{name}.{key}", fields[key], 0, 2**data_type.bits - 1))


@dataclass(frozen=True)
class Scaling(Kind):
    """A DML_SCALE_BIAS."""

    @property
    def description(self) -> str:
        return "DML_SCALE_BIAS: Scale and Bias, FLOAT"

    def json_fields(self, value: Any) -> tuple[str, ...]:
        return tuple(self._numbers)

    @property
    def _numbers(self) -> dict[str, Number]:
        return dict.fromkeys(("Scale", "Bias"), Number(DataType.FLOAT32))

    def settled(self, name: str, value: Any, data_type: DataType | None) -> ScaleBias:
        if not isinstance(value, ScaleBias):
            raise InvalidType(f"{name} must be a ScaleBias; got {shown(value)}")
        with prefixed(name):
            numbers = zip(self._numbers.items(), value, strict=True)
            return ScaleBias(*(kind.settled(field, number, data_type) for (field, kind), number in numbers))

    def to_json(self, value: ScaleBias) -> dict[str, Any]:
        numbers = zip(self._numbers.items(), value, strict=True)
        return {field: kind.to_json(number) for (field, kind), number in numbers}

    def from_json(self, name: str, value: Any, data_type: DataType | None) -> ScaleBias:
        fields = json_object(name, value, self.json_fields(value))
        with prefixed(name):
            return ScaleBias(
                *(
                    kind.from_json(field, json_given(field, fields.get(field)), data_type)
                    for field, kind in self._numbers.items()
                )
            )


NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def json_object(path: str, value: Any, keys: Iterable[str]) -> dict[str, Any]:
    """`value`, if it is an object without any other key than `keys`."""
    if not isinstance(value, dict):
        raise InvalidType(f"{path} must be an object; got {shown(value)}")
    for key in value:
        if key not in keys:
            fields = ", ".join(keys) or "none"
            raise InvalidDesc(f"{path} must have no field {shown(key)}{nearest(key, keys)}; its fields are {fields}")
    return value


def check_count(name: str, count: Any, counted: str, length: int) -> None:
    """Refuses a count that is given, as a C program has to, and is not the length of what it counts."""
    if count is not None and integer(name, count) != length:
        raise InvalidDesc(f"{name} must be {length}, the length of {counted}; got {count}")


def json_given(path: str, value: Any) -> Any:
    """`value`, if it is not null, which is an absent field."""
    if value is None:
        raise InvalidDesc(f"{path} must be given; got none")
    return value


def json_string(path: str, value: Any) -> str:
    """`value`, if it is a string: the format names its enumerators and never counts them."""
    json_given(path, value)
    if not isinstance(value, str):
        raise InvalidType(f"{path} must be a name; got {shown(value)}")
    return value
