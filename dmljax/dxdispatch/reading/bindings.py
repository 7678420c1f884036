"""Reads where the tensors of dispatchables are stored."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dmljax.dxdispatch.model import Binding, Bindings, BindPoint
from dmljax.dxdispatch.reading.context import Context, Fields, Readers, optional, uint64
from dmljax.dxdispatch.text import Place
from dmljax.errors import InvalidDesc, InvalidType, Problem, require, spell_path
from dmljax.text import show
from dmljax.types import DataType

_MINIMUM_ALIGNMENT = 16  # DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT


def read_bindings(
    context: Context,
    place: Place,
    names: Mapping[str, bool],
    points: Sequence[BindPoint] | None,
    value: Any,
    keys: set[str],
) -> Bindings:
    """Reads where each tensor whose key is in `keys` is stored; other tensors must be bound elsewhere.

    If the points are None because the dispatchable has findings, only the names of resources are checked.
    """
    by_name: dict[str, list[BindPoint]] = {name: [] for name in names}
    for point in points or ():
        by_name[point.name].append(point)
    bound: dict[str, Binding | None] = {}
    with context.part(*place):
        for name, sources in context.fields(place, value, tuple(names)).items():
            bound |= dict.fromkeys(point.key for point in by_name[name])
            with context.part(*place, name):
                for inner, target, source in _sources((*place, name), by_name[name], sources, is_array=names[name]):
                    with context.part(*inner):
                        binding = _binding(context, inner, source, target)
                        if target is None:
                            rule = "must not be bound, because the desc has no such tensor"
                            require((), points is None, rule)
                            continue
                        otherwise = "at initialization" if target.is_owned else "in a dispatch"
                        rule = f"must be bound {otherwise}, not here, because of its Flags"
                        require((), target.key in keys, rule)
                        bound[target.key] = binding
        for point in points or ():
            if point.key in keys and point.key not in bound:
                context.add_finding(place, Problem(point.path, "must be bound", "none"))
    bindings = {key: binding for key, binding in bound.items() if binding is not None}
    _check_outputs(context, place, points or (), bindings)
    return bindings


def _sources(
    place: Place, points: Sequence[BindPoint], source: Any, *, is_array: bool
) -> Iterator[tuple[Place, BindPoint | None, Any]]:
    """Yields each binding of a name: its place, the tensor that it binds, if any, and its JSON value.

    The name of an array of tensors has a list with a binding for each.
    """
    sources = source if isinstance(source, list) else [source]
    count = len(points) if is_array else 1
    if len(sources) != count and (points or not is_array):
        raise InvalidDesc(Problem((), f"must have {count} resource{'' if count == 1 else 's'}", len(sources)))
    for i, each in enumerate(sources):
        yield (*place, i) if is_array else place, points[i] if i < len(points) else None, each


def _binding(context: Context, place: Place, source: Any, point: BindPoint | None) -> Binding | None:
    """Reads where a tensor is stored; None if its resource or its desc has findings."""
    if not isinstance(source, str | dict):
        rule = "must be the name of a resource, an object with it, or a list of these"
        raise InvalidType(Problem((), rule, show(source)))
    readers: Readers = {
        "name": context.resource,
        "elementCount": optional(uint64),  # this field, the format and the counter apply only to shaders
        "elementSizeInBytes": optional(uint64, 0),
        "elementOffset": optional(uint64, 0),
        "format": None,
        "counter": optional(context.resource),
        "counterOffsetBytes": optional(uint64),
        "shape": None,  # for ONNX models; the dispatch reads it
    }
    fields = Fields(name=source).all(readers) if isinstance(source, str) else context.read(place, source, readers)
    (name, resource), element_offset = fields["name"], fields["elementOffset"]
    if resource is None or point is None:
        return None
    element_bits = 8 * fields["elementSizeInBytes"]
    if resource.data_type is not DataType.UNKNOWN:
        element_bits = element_bits or resource.data_type.bits
    if element_offset and not element_bits:
        raise InvalidDesc(Problem("elementOffset", f"needs elementSizeInBytes for {show(name)}", "none"))
    is_whole = element_offset * element_bits % 8 == 0
    require("elementOffset", is_whole, "must be even for elements of 4 bits", element_offset)
    offset, size = element_offset * element_bits // 8, point.size_in_bytes
    if not (resource.is_open or point.is_open):
        require_room(size, max(resource.size_in_bytes - offset, 0), name, offset)
    alignment = point.tensor.guaranteed_base_offset_alignment or _MINIMUM_ALIGNMENT
    if offset % alignment:
        context.warn(place, Problem((), f"must begin at a multiple of {alignment} bytes for DirectML", offset))
    return Binding(name, offset)


def require_room(size: int, room: int, resource: str, offset: int) -> None:
    """Raises if a buffer is too small."""
    require((), size <= room, f"must have {size} bytes", f"{room}, in {show(resource)} from byte {offset} on")


def _check_outputs(context: Context, place: Place, points: Sequence[BindPoint], bindings: Bindings) -> None:
    """Finds outputs that share bytes of a buffer, and outputs whose own elements may overlap."""
    areas: list[tuple[str, int, int, str]] = []
    for point in points:
        if point.is_input or point.key not in bindings:
            continue
        tensor, binding = point.tensor, bindings[point.key]
        if not tensor.is_nested:
            rule = "must not store two elements in the same place, nor interleave its dimensions"
            context.add_finding(place, Problem(point.path, rule, tensor))
        begin, end = binding.offset_in_bytes, binding.offset_in_bytes + point.size_in_bytes
        for resource, other_begin, other_end, other in areas:
            if resource == binding.resource and begin < other_end and other_begin < end:
                problem = Problem(point.path, f"must not overlap {other}", f"both in {show(resource)}")
                context.add_finding(place, problem)
        areas.append((binding.resource, begin, end, spell_path(point.path)))
