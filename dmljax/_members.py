"""What a member of an operator desc can be: how a value is checked, and how it is spelled in JSON."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dmljax._checks import integer_in, named, uints
from dmljax._errors import InvalidDesc, InvalidType, prefixed
from dmljax._scalars import Scalar
from dmljax._tensor import TensorDesc
from dmljax._types import DataType, HeaderEnum, TensorFlags


class Kind(ABC):
    """A kind of member, as `directml.h` has them."""

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
        if isinstance(value, dict) and "Type" in value:  # a DML_TENSOR_DESC around the DML_BUFFER_TENSOR_DESC
            wrapped = json_object(name, value, ("Type", "Desc"))
            if wrapped["Type"] not in ("DML_TENSOR_TYPE_BUFFER", "BUFFER"):
                raise InvalidDesc(f"{name}.Type must be DML_TENSOR_TYPE_BUFFER; got {wrapped['Type']!r}")
            name, value = f"{name}.Desc", wrapped.get("Desc")
        fields = json_object(name, value, _TENSOR_KEYS)
        for key in ("DataType", "Sizes"):
            if key not in fields:
                raise InvalidDesc(f"{name}.{key} must be given")
        listed = fields.get("Flags")
        flags = listed if isinstance(listed, list) else [] if listed is None else [listed]
        spelled = [json_string(f"{name}.Flags", flag) for flag in flags]
        alignment = fields.get("GuaranteedBaseOffsetAlignment")
        with prefixed(name):
            return TensorDesc(
                data_type=named(DataType, "DataType", json_string("DataType", fields["DataType"])),
                sizes=fields["Sizes"],
                strides=fields.get("Strides"),
                flags=max((named(TensorFlags, "Flags", flag) for flag in spelled), default=TensorFlags.NONE),
                total_tensor_size_in_bytes=fields.get("TotalTensorSizeInBytes"),
                guaranteed_base_offset_alignment=0 if alignment is None else alignment,
            )


_TENSOR_KEYS = ("DataType", "Sizes", "Strides", "TotalTensorSizeInBytes", "GuaranteedBaseOffsetAlignment", "Flags")


@dataclass(frozen=True)
class Integer(Kind):
    """UINT or INT."""

    lowest: int
    highest: int

    def settled(self, name: str, value: Any, data_type: DataType | None) -> int:
        return integer_in(name, value, self.lowest, self.highest)


@dataclass(frozen=True)
class UintArray(Kind):
    """An array of UINT, with the member that counts it: derived here, written and checked in JSON."""

    count: str

    def settled(self, name: str, value: Any, data_type: DataType | None) -> tuple[int, ...]:
        return uints(name, value)

    def to_json(self, value: tuple[int, ...]) -> list[int]:
        return list(value)


@dataclass(frozen=True)
class Enumeration(Kind):
    """An enumeration of directml.h."""

    enumeration: type[HeaderEnum]

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

    def settled(self, name: str, value: Any, data_type: DataType | None) -> Scalar:
        with prefixed(name, " "):
            return Scalar.of(self.own_type or data_type or DataType.UNKNOWN, value)

    def to_json(self, value: Scalar) -> Any:
        number: int | float = value.item.item()
        if math.isfinite(number):
            return number
        if value in (Scalar.of(value.data_type, constant) for constant in _NOT_FINITE.values()):
            return str(number)
        return {f"UInt{value.data_type.bits}": value.bits}  # the bits of an unusual NaN

    def from_json(self, name: str, value: Any, data_type: DataType | None) -> Any:
        data_type = self.own_type or data_type or DataType.UNKNOWN
        if isinstance(value, dict):
            name, value = self._union_field(name, value, data_type)
        if isinstance(value, Scalar):
            return value
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidType(f"{name} must be a number, or {', '.join(map(repr, _NOT_FINITE))}; got {value!r}")
        return value

    def _union_field(self, name: str, fields: dict[str, Any], data_type: DataType) -> tuple[str, Any]:
        typed = data_type.name.replace("UINT", "UInt").replace("INT", "Int").replace("FLOAT", "Float")
        raw = f"UInt{data_type.bits}"  # how DxDispatch spells a FLOAT16, and dmljax any NaN with bits of its own
        allowed = (raw,) if data_type is DataType.FLOAT16 else (typed, raw)
        if len(fields) != 1 or not fields.keys() <= set(allowed):
            raise InvalidDesc(
                f"{name} must have the one field {' or '.join(allowed)}; got {', '.join(fields) or 'none'}"
            )
        ((key, value),) = fields.items()
        if key == typed:
            return f"{name}.{key}", value
        return name, Scalar(data_type, integer_in(f"{name}.{key}", value, 0, 2**data_type.bits - 1))


_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def json_object(path: str, value: Any, keys: Iterable[str]) -> dict[str, Any]:
    """`value`, if it is an object without any other key than `keys`."""
    if not isinstance(value, dict):
        raise InvalidType(f"{path} must be an object; got {value!r}")
    for key in value:
        if key not in keys:
            nearest = get_close_matches(str(key), keys, n=1)
            hint = f", did you mean {nearest[0]}?" if nearest else ""
            raise InvalidDesc(f"{path} must have no field {key!r}{hint}; its fields are {', '.join(keys) or 'none'}")
    return value


def json_string(path: str, value: Any) -> str:
    """`value`, if it is a string: the format names its enumerators and never counts them."""
    if not isinstance(value, str):
        raise InvalidType(f"{path} must be a name; got {value!r}")
    return value
