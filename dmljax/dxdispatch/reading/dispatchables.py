"""Reads the dispatchables of a model: operators, serialized graphs and ONNX models."""

import os
from collections import ChainMap
from collections.abc import Container, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from dmljax.descriptors import Operator
from dmljax.descriptors.json_form import members_from_json, operator_of_type
from dmljax.descriptors.members import Array, MemberKind, checks_of_flags, json_string
from dmljax.descriptors.tensor import TensorDesc
from dmljax.dxdispatch.model import Dispatchable, bind_points
from dmljax.dxdispatch.networks import Network, Sizes
from dmljax.dxdispatch.reading.bindings import read_bindings
from dmljax.dxdispatch.reading.context import (
    MAX_RESOURCE_BYTES,
    Context,
    Read,
    optional,
    require_form,
    sizes_by_name,
    uint,
)
from dmljax.dxdispatch.text import Place
from dmljax.errors import MAX_PROBLEMS, InvalidDesc, Problem, Unsupported, all_checked, inside, require
from dmljax.foundation.files import open_file
from dmljax.graphs.graph import Graph
from dmljax.serialized import file_of_constant, parse as parse_graph
from dmljax.text import show, unused_name
from dmljax.types import FeatureLevel, HeaderEnum


class _ExecutionFlags(HeaderEnum, prefix="DML_EXECUTION_FLAG_"):
    """`DML_EXECUTION_FLAGS`."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


def _compile_type(name: str, value: Any) -> None:
    kinds = ("DmlCompileOp", "DmlCompileGraph")
    require(name, value in kinds, f"must be one of {', '.join(kinds)}", show(value))


# Hints to DirectML; checked, but without effect on XLA
_HINTS: dict[str, Read] = {
    "executionFlags": lambda name, value: all_checked(*checks_of_flags(_ExecutionFlags, name, value or [])),
    "dmlCompileType": optional(_compile_type),
}
# The last three are options of ONNX Runtime; checked, but without effect here
_ONNX_FIELDS: dict[str, Read] = {
    "sourcePath": json_string,
    "freeDimensionNameOverrides": optional(sizes_by_name, {}),
    "freeDimensionDenotationOverrides": optional(sizes_by_name, {}),
    "sessionOptionsConfigEntries": optional(partial(require_form, dict)),
    "graphOptimizationLevel": optional(uint),
    "loggingLevel": optional(uint),
}
_TYPE = ("type", "Type")


def read_dispatchable(context: Context, place: Place, value: Any) -> Dispatchable | Network | None:
    """Reads a dispatchable; None if its desc has findings."""
    field = next((key for key in ("Type", "type") if key in require_form(dict, (), value)), "type")
    type_name = json_string(field, value.get(field))
    match type_name.lower():
        case "hlsl":
            rule = "must be an operator, dmlSerializedGraph or onnx"
            raise Unsupported(Problem(field, rule, f"{type_name!r}, but XLA cannot run Direct3D shaders"))
        case "onnx":
            return _network(context, place, value)
        case "dmlserializedgraph":
            return _serialized_graph(context, place, value)
        case _:
            return _operator(context, place, value, operator_of_type(field, type_name))


def _operator(context: Context, place: Place, value: Any, operator: type[Operator]) -> Dispatchable | None:
    name = str(place[-1])
    names = {member.name: isinstance(member.kind, Array) for member in operator.members() if member.tensor_kind}
    context.names[name] = names
    desc_place = context.model.desc_place(name)
    desc_keys = [str(key) for key in desc_place[len(place) :]]
    fields = context.fields(place, value, (*_TYPE, "bindings", *_HINTS, *(desc_keys or operator.json_fields())))
    with context.part(*place):
        fields.all(_HINTS)
    desc = _desc(context, desc_place, operator, fields[desc_keys[0]] if desc_keys else fields)
    points = None if desc is None else bind_points(desc)
    keys = {point.key for point in points or () if point.is_owned}
    bindings = read_bindings(context, (*place, "bindings"), names, points, fields.get("bindings", {}), keys)
    return None if desc is None else Dispatchable(desc, bindings)


def _desc(context: Context, place: Place, operator: type[Operator], value: Any) -> Operator | None:
    """Reads a desc and checks its rules; None if the desc has findings."""
    before = len(context.findings)
    with context.part(*place):
        if place[2:]:  # the desc is a separate field
            value = context.fields(place, value, operator.json_fields())
        known = value | {
            member.name: _nested_fields(context, (*place, member.name), member.kind, value[member.name])
            for member in operator.members()
            if value.get(member.name) is not None
        }
        members = members_from_json(operator, known, lambda: context.part(*place))
        if len(context.findings) == before:
            desc = operator(**members)
            _require_valid(context, desc)
            return desc
    return None


def _nested_fields(context: Context, place: Place, member: MemberKind, value: Any) -> Any:
    """Keeps the known fields of the objects inside a desc: tensors, fused activations, and arrays of either."""
    if isinstance(member, Array) and isinstance(value, list):
        return [_nested_fields(context, (*place, i), member.of, element) for i, element in enumerate(value)]
    if not isinstance(value, dict) or not member.json_fields(value):
        return value
    fields = context.fields(place, value, member.json_fields(value))
    if isinstance(fields.get("Desc"), dict):
        inner = [name for name in member.json_fields(fields["Desc"]) if name not in ("Type", "Desc")]
        fields["Desc"] = context.fields((*place, "Desc"), fields["Desc"], inner)
    return fields


def _serialized_graph(context: Context, place: Place, value: Any) -> Dispatchable:
    """Reads a serialized graph and its constants; bindings use the names of its inputs and outputs."""
    fields = context.fields(place, value, (*_TYPE, "sourcePath", "executionFlags"))
    with context.part(*place):
        fields.all(_HINTS)
    path = context.file(fields.value("sourcePath", json_string))
    with inside("sourcePath"):
        graph = parse_graph(context.content(path), lambda name: context.content(file_of_constant(path, name)))
        context.names[str(place[-1])] = dict.fromkeys((*graph.inputs, *graph.outputs), False)
        _require_valid(context, graph)
    return Dispatchable(graph)


def _network(context: Context, place: Place, value: Any) -> Network:
    """Reads an ONNX model; bindings use the names of its inputs and outputs."""
    fields = context.read(place, value, {**dict.fromkeys(_TYPE), **_ONNX_FIELDS})
    path, overrides = context.file(fields["sourcePath"]), context.overrides
    names = fields["freeDimensionNameOverrides"] | overrides.names
    denotations = fields["freeDimensionDenotationOverrides"] | overrides.denotations
    with inside("sourcePath"):
        with open_file(path, context.affordable_bytes) as file:
            context.bytes_left -= os.fstat(file.fileno()).st_size
        network = Network(path, names, denotations)
    context.names[str(place[-1])] = network.names
    return network


def dispatchable_of_network(
    context: Context, place: Place, name: str, network: Network, shapes: Sizes, bound: Container[str]
) -> str | None:
    """Returns the name of the dispatchable that runs an ONNX model for inputs of these sizes; None if it has findings.

    The first such dispatchable has the model's name; the names of others also include their sizes.
    """
    with context.part(*place):
        sizes = network.sizes(shapes, bound)
        for input_name, count in network.bytes_of_inputs(sizes).items():
            context.require_affordable((input_name, "shape"), count)
        key = (name, *sizes.items())
        if key not in context.sized:
            context.sized[key] = None
            with context.part("dispatchables", name, "sourcePath"):
                model = network.sized(sizes)
                if model.traced is not None:
                    _require_affordable(model.traced.jaxpr.jaxpr)
                sizes_text = ", ".join(
                    f"{input_name} {'x'.join(map(str, shape))}" for input_name, shape in sizes.items()
                )
                names_in_use = ChainMap[str, Any](context.networks, context.dispatchables)
                sized_name = unused_name(f"{name} ({sizes_text})", names_in_use) if name in context.networks else name
                context.networks[sized_name], context.sized[key] = Dispatchable(model), sized_name
        return context.sized[key]
    return None


# Rules


def _require_valid(context: Context, desc: Operator | Graph) -> None:
    """Raises if a desc or a graph breaks a rule or has a tensor that is too large."""
    level = context.feature_level
    problems = [_with_level(problem, level) for problem in islice(desc.problems(level), MAX_PROBLEMS)]
    problems += (
        Problem((*path, "Sizes"), f"must describe at most {MAX_RESOURCE_BYTES} bytes", tensor)
        for path, tensor in _tensors(desc)
        if tensor.element_count * tensor.dtype.itemsize > MAX_RESOURCE_BYTES
    )
    if problems:
        raise InvalidDesc(*problems)


def _require_affordable(jaxpr: Any) -> None:
    """Raises if any array in the program of an ONNX model is too large."""
    for equation in equations(jaxpr):
        for variable in equation.outvars:
            array = variable.aval
            if isinstance(array, jax.core.ShapedArray) and array.size * array.dtype.itemsize > MAX_RESOURCE_BYTES:
                rule = f"must compute with arrays of at most {MAX_RESOURCE_BYTES} bytes"
                raise InvalidDesc(Problem((), rule, array.str_short()))


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Yields the equations of a computation and of the computations inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if isinstance(part, ClosedJaxpr | Jaxpr):
                    yield from equations(part.jaxpr if isinstance(part, ClosedJaxpr) else part)


def _tensors(desc: Operator | Graph) -> Iterator[tuple[Place, TensorDesc]]:
    """Yields the place and the desc of each tensor of an operator or of a graph's nodes."""
    if isinstance(desc, Operator):
        yield from ((leaf.path, leaf.tensor) for leaf in desc.leaves())
        return
    for name, node in desc.nodes.items():
        yield from ((("nodes", name, node.short_name, *path), tensor) for path, tensor in _tensors(node))


def _with_level(problem: Problem, level: FeatureLevel) -> Problem:
    """Appends the feature level to a problem, unless its message already names it."""
    suffix = "" if str(level) in problem.message else f" (at {level})"
    if problem.given is None:
        return replace(problem, rule=problem.rule + suffix)
    return replace(problem, given=problem.given + suffix)
