"""Reads the resources of a model: buffers with initial values."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmljax.descriptors.members import json_string, require_json_value
from dmljax.dxdispatch.files import bytes_of, read_values
from dmljax.dxdispatch.model import BindPoint, Resource
from dmljax.dxdispatch.reading.context import Context, Fields, data_type, optional, uint, uint64
from dmljax.dxdispatch.reading.numbers import convert, sequence
from dmljax.dxdispatch.text import Place
from dmljax.errors import MAX_PROBLEMS, InvalidDesc, InvalidType, Problem, inside, require
from dmljax.foundation.checks import uints
from dmljax.text import one_line, show
from dmljax.types import INTEGER_4, INTEGERS_4, DataType

_FIELDS = (
    "initialValuesDataType",
    "initialValues",
    "initialValuesOffsetInBytes",
    "sizeInBytes",
    "resampleSize",
    "resampleMode",
)


def read_resource(context: Context, place: Place, value: Any) -> Resource:
    """Reads a resource."""
    fields = context.fields(place, value, _FIELDS)
    if fields.get("initialValues") == "deferred":
        declared = fields.value("initialValuesDataType", optional(data_type, DataType.UNKNOWN))
        return Resource(declared, 0, np.zeros(0, np.uint8), is_deferred=True)
    offset, size, (value_type, values) = fields.all(
        {
            "initialValuesOffsetInBytes": optional(uint64, 0),
            "sizeInBytes": optional(uint64),
            "initialValues": lambda name, source: _initial_values(context, place, fields),
        }
    ).values()
    require("initialValues", bool(values.size), "must hold at least one value", "none")
    data = bytes_of(values)
    size = -(-data.size // 4) * 4 if size is None else size
    least = f"{data.size + offset}, for {data.size} bytes of initialValues from byte {offset} on"
    require("sizeInBytes", data.size + offset <= size, f"must be at least {least}", size)
    context.take_bytes("sizeInBytes", size)
    padding_bits = 4 if values.dtype in INTEGERS_4 and values.size % 2 else 0
    return Resource(value_type, size, data, offset, padding_bits)


def _initial_values(context: Context, place: Place, fields: Fields) -> tuple[DataType, NDArray[Any]]:
    value_type = fields.value("initialValuesDataType", optional(data_type, DataType.UNKNOWN))
    source = fields.value("initialValues", require_json_value)
    if isinstance(source, list):
        if value_type is DataType.UNKNOWN:
            return value_type, _struct(context, place, source)
        return value_type, _numbers(context, place, "initialValues", source, value_type)
    if not isinstance(source, dict):
        raise InvalidType(Problem("initialValues", "must be a list or an object", show(source)))
    fields_given = [field for field in ("value", "valueStart", "sourcePath") if field in source]
    if not fields_given or (fields_given[0] == "value" and len(fields_given) > 1):
        names = ", ".join(map(one_line, fields_given or list(source)[:8])) or "none"
        raise InvalidDesc(Problem("initialValues", "must have one of value, valueStart or sourcePath", names))
    place = (*place, "initialValues")
    if fields_given[0] == "sourcePath":
        return _file_values(context, context.fields(place, source, ("sourcePath",)), value_type, fields)
    with inside("initialValues"):
        return value_type, _generate(context, place, source, value_type, fields_given[0])


def _generate(context: Context, place: Place, source: Any, value_type: DataType, field: str) -> NDArray[Any]:
    """Makes `valueCount` values: `value` repeated, or a sequence from `valueStart` in steps of `valueDelta`."""
    names = (field, "valueDelta") if field == "valueStart" else (field,)
    fields = context.fields(place, source, (*names, "valueCount"))
    require(field, value_type is not DataType.UNKNOWN, "needs initialValuesDataType", "none")
    count = fields.value("valueCount", uint)
    context.require_affordable("valueCount", count * value_type.dtype.itemsize)
    first, *delta = (_number(context, place, name, fields, value_type) for name in names)
    return sequence(first, delta[0], count) if delta else np.full(count, first)


def _struct(context: Context, place: Place, source: Sequence[Any]) -> NDArray[np.uint8]:
    """The bytes of a list of {name, type, value} objects, packed without padding."""
    is_struct = all(isinstance(element, dict) for element in source)
    require("initialValuesDataType", is_struct, "must be given, unless all of initialValues are objects", "none")
    parts = []
    for index, part in enumerate(source):
        inner = (*place, "initialValues", index)
        with inside(("initialValues", index)):
            fields = context.fields(inner, part, ("name", "type", "value"))
            value_type = fields.value("type", data_type)
            is_whole = value_type not in (DataType.UNKNOWN, *INTEGER_4)
            require("type", is_whole, "must be a data type of whole bytes", value_type.name)
            parts.append(_number(context, inner, "value", fields, value_type).tobytes())
    return np.frombuffer(b"".join(parts), np.uint8)


def _number(context: Context, place: Place, name: str, fields: Fields, value_type: DataType) -> Any:
    value = fields.value(name, require_json_value)
    return _numbers(context, place, name, [value], value_type, is_list=False)[0]


def _numbers(
    context: Context, place: Place, name: str, values: Sequence[Any], value_type: DataType, *, is_list: bool = True
) -> NDArray[Any]:
    numbers, too_large = convert(name, values, value_type, is_list=is_list)
    rule = f"overflows to infinity in {value_type.name}"
    for index in too_large[:MAX_PROBLEMS].tolist():
        context.warn((*place, name), Problem((index,) if is_list else (), rule, values[index]))
    return numbers


def _file_values(
    context: Context, source: Fields, value_type: DataType, fields: Fields
) -> tuple[DataType, NDArray[Any]]:
    with inside("initialValues"):
        path = context.file(source.value("sourcePath", json_string))
    mode, size = fields.get("resampleMode", "scale"), fields.value("resampleSize", optional(uints, ()))
    require("resampleMode", mode == "scale", "must be 'scale'", show(mode))
    require("resampleSize", len(size) in (0, 4), "must be [batch, channels, height, width]", f"{len(size)} elements")
    with inside(("initialValues", "sourcePath")):
        value_type, values = read_values(path, value_type, size, context.affordable_bytes)
        context.require_affordable((), values.nbytes)
    return value_type, values


def size_deferred(
    context: Context, place: Place, points: Sequence[BindPoint] | None, bindings: Mapping[str, Any]
) -> None:
    """Sizes deferred resources by the first outputs bound to them.

    If points is None, the ONNX model has findings, and so do these resources; that is already reported.
    """
    resources = {name: binding["name"] for name, binding in bindings.items() if isinstance(binding.get("name"), str)}
    if points is None:
        context.resources |= dict.fromkeys(filter(context.is_unsized, resources.values()))
        return
    read = {resources.get(point.name) for point in points if point.is_input}
    open_resources = set(filter(context.is_unsized, read))
    for point in points:
        resource = resources.get(point.name)
        if point.is_input or resource is None or resource in open_resources:
            continue
        size = 0 if point.is_open else point.size_in_bytes
        if context.is_unsized(resource):
            with context.part(*place, point.name):
                context.take_bytes("name", size)
                declared = context.resources[resource].data_type
                value_type = point.tensor.data_type if declared is DataType.UNKNOWN else declared
                values = np.zeros(size, np.uint8)
                context.resources[resource] = Resource(value_type, -(-size // 4) * 4, values, is_deferred=True)
                context.sizes_of_outputs[resource] = size
        elif not point.is_open and size < (first := context.sizes_of_outputs.get(resource, 0)):
            rule = f"must have {first} bytes, like the first output in {show(resource)}"
            context.add_finding((*place, point.name), Problem((), rule, size))
