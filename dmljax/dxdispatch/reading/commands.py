"""Reads the commands of a model."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from dmljax.descriptors.members import json_string
from dmljax.dxdispatch.files import check_writable, target_path
from dmljax.dxdispatch.model import BindPoint, Command, Dispatch, Print, WriteFile
from dmljax.dxdispatch.networks import Network, Sizes
from dmljax.dxdispatch.reading.bindings import read_bindings
from dmljax.dxdispatch.reading.context import Context, Readers, optional, require_form, require_given_form
from dmljax.dxdispatch.reading.dispatchables import dispatchable_of_network
from dmljax.dxdispatch.reading.resources import size_deferred
from dmljax.dxdispatch.text import Place
from dmljax.errors import InvalidDesc, Problem, all_checked, require
from dmljax.foundation.checks import boolean, uints
from dmljax.text import did_you_mean, show
from dmljax.types import DataType

MAX_PRINTED_VALUES = 2**24


def read_command(context: Context, place: Place, value: Any) -> Command | None:
    """Reads a command; None if its dispatchable has findings."""
    name = json_string("type", require_form(dict, (), value).get("type"))
    readers = {"dispatch": _dispatch, "print": _print, "writeFile": _write_file}
    command_type = next((command_type for command_type in readers if command_type.lower() == name.lower()), None)
    if command_type is None:
        hint = did_you_mean(name, readers)
        raise InvalidDesc(Problem("type", f"must be one of {', '.join(readers)}", f"{show(name)}{hint}"))
    return readers[command_type](context, place, value)


def _print(context: Context, place: Place, value: Any) -> Print:
    readers: Readers = {"type": None, "resource": context.resource, "verbose": optional(boolean, False)}
    (name, resource), verbose = context.read(place, value, readers).values()
    if resource is not None:
        if resource.data_type is DataType.UNKNOWN:
            raise InvalidDesc(Problem("resource", "must have an initialValuesDataType to be printed", show(name)))
        count = resource.size_in_bytes * 8 // resource.data_type.bits
        rule = f"must have at most {MAX_PRINTED_VALUES} values to be printed"
        require("resource", count <= MAX_PRINTED_VALUES, rule, f"{count}, in {show(name)}")
    return Print(name, verbose)


def _write_file(context: Context, place: Place, value: Any) -> WriteFile:
    readers: Readers = {
        "type": None,
        "resource": context.resource,
        "targetPath": target_path,
        "dimensions": optional(uints, ()),
    }
    (name, resource), target, dimensions = context.read(place, value, readers).values()
    if resource is not None and not resource.is_open:
        check_writable(target.suffix, resource.size_in_bytes, resource.data_type, dimensions)
    return WriteFile(name, target.as_posix(), dimensions)


def _dispatch(context: Context, place: Place, value: Any) -> Dispatch | None:
    fields = context.fields(place, value, ("type", "dispatchable", "bindings", "threadGroupCount"))
    with context.part(*place):
        fields.value("threadGroupCount", optional(_thread_groups))
    name = fields.value("dispatchable", partial(context.read_name, "dispatchable", context.dispatchables))
    bindings = fields.value("bindings", partial(require_given_form, dict))
    if name not in context.names:
        return None
    place, dispatchable = (*place, "bindings"), context.dispatchables[name]
    if isinstance(dispatchable, Network):
        return _dispatch_of_network(context, place, name, dispatchable, bindings)
    points = None if dispatchable is None else dispatchable.points
    keys = {point.key for point in points or () if not point.is_owned}
    return Dispatch(name, read_bindings(context, place, context.names[name], points, bindings, keys))


def _thread_groups(name: str, value: Any) -> None:
    count = len(uints(name, value))
    require(name, count == 3, "must have 3 elements", count)


def _dispatch_of_network(
    context: Context, place: Place, name: str, network: Network, bindings: Mapping[str, Any]
) -> Dispatch:
    names = network.names
    # The binding of a single tensor is an object or a name, or a list with either.
    singles = {
        key: source[0] if isinstance(source, list) and len(source) == 1 else source for key, source in bindings.items()
    }
    singles = {key: source if isinstance(source, dict) else {"name": source} for key, source in singles.items()}
    shapes = _shapes(context, place, names, singles)
    bound = {key for key, source in bindings.items() if source is not None}
    sized_name = None if shapes is None else dispatchable_of_network(context, place, name, network, shapes, bound)
    points = None if sized_name is None else context.networks[sized_name].points
    with context.part(*place):
        _require_shapes_of_outputs(points or (), shapes or {})
    size_deferred(context, place, points, singles)
    keys = {point.key for point in points or () if point.name in bound}
    return Dispatch(sized_name or name, read_bindings(context, place, names, points, bindings, keys), name)


def _shapes(context: Context, place: Place, names: Mapping[str, bool], singles: Mapping[str, Any]) -> Sizes | None:
    """The shapes from an ONNX model's bindings and from the caller of `load`; None if they have findings."""
    shapes = {key: it["shape"] for key, it in singles.items() if key in names and it.get("shape") is not None}
    checks = {name: partial(uints, (name, "shape"), shape) for name, shape in shapes.items()}
    with context.part(*place):
        bound_shapes = dict(zip(checks, all_checked(*checks.values()), strict=True))
        return bound_shapes | {name: shape for name, shape in context.overrides.shapes.items() if name in names}
    return None


def _require_shapes_of_outputs(points: Sequence[BindPoint], shapes: Sizes) -> None:
    """Raises if an output's shape differs from what the model computes; a scalar has shape [1]."""
    wrong = [
        Problem((point.name, "shape"), f"must be {list(sizes)}, which the model computes", list(shapes[point.name]))
        for point in points
        if not (point.is_input or point.is_open)
        and (shapes.get(point.name, sizes := point.tensor.sizes) or (1,)) != sizes
    ]
    if wrong:
        raise InvalidDesc(*wrong)


def check_targets(context: Context) -> None:
    """Finds files that other files of the model would need as folders."""
    first: dict[str, int] = {}  # the first command that writes each file
    for index, command in context.commands.items():
        if isinstance(command, WriteFile):
            first.setdefault(command.target_path, index)
    # If "/" sorts before all other characters, a folder comes right before the first path inside it.
    for folder, target in pairwise(sorted(first, key=lambda target: target.replace("/", "\0"))):
        if target.startswith(f"{folder}/"):
            problem = Problem("targetPath", "must not use another file of the model as a folder", show(target))
            context.add_finding(("commands", first[target]), problem)
