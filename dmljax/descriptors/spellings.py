"""Finds the names in `dmljax.directml` for those of directml.h."""

from collections.abc import Iterable

from dmljax.descriptors.base import operator_called
from dmljax.text import did_you_mean
from dmljax.types import HeaderEnum


def hint(name: str, exported: Iterable[str]) -> str:
    """`, did you mean X?` for a name in directml.h, or similar to an exported name; or "".

    >>> from dmljax.descriptors.spellings import hint
    >>> hint("DML_TENSOR_DATA_TYPE_FLOAT32", ())
    ', did you mean DataType.FLOAT32?'
    """
    if name.startswith("_"):  # Python itself looks for such names
        return ""
    plain = name.removeprefix("DML_").removeprefix("OPERATOR_").removesuffix("_OPERATOR_DESC")
    operator = operator_called(plain) if name.startswith("DML_") else None
    if operator is not None:
        return f", did you mean {operator.__name__}?"
    for enumeration in HeaderEnum.__subclasses__():
        member = enumeration._missing_(name) if name.startswith(enumeration.prefix) else None
        if member is not None:
            return f", did you mean {member!r}?"
    if name in ("DML_TENSOR_DESC", "DML_BUFFER_TENSOR_DESC"):
        return ", did you mean TensorDesc?"
    return did_you_mean(name, sorted(exported, key=lambda other: other.endswith("Desc")))
