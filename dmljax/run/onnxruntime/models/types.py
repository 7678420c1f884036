"""Checks the types and sizes in a model, and raises the errors with which ONNX Runtime refuses to load it."""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from dmljax.onnx import Model
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph
from dmljax.onnx.model import loaded_graph
from dmljax.run.onnxruntime.errors import Fail, InvalidArgument, InvalidGraph
from dmljax.run.onnxruntime.values import type_of_dtype, type_text

_MAX_ELEMENTS = 1024  # of a constant that may decide sizes


def require_types(model: Model) -> None:
    """Raises unless the types and sizes in a model agree, as far as they are known before it runs."""
    loaded = loaded_graph(model)
    file, arrays = loaded.file.graph, {**loaded.constants, **loaded.types}
    for value in file.input:
        if value.type.WhichOneof("value") is None:
            raise Fail(f"This is an invalid model. Model input ({value.name}) does not have type information.")
    for value in (*file.input, *file.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.elem_type:
            raise InvalidArgument("Failed to load model with error: Invalid tensor data type 0.")
    inputs = {value.name: value for value in file.input}
    for tensor in loaded.defaults:
        _require_default(inputs[tensor.name].type, tensor.name, arrays[tensor.name])
    types = {name: _Type.of_array(array) for name, array in arrays.items() if name not in inputs}
    types |= {name: _Type.of_proto(value.type) for name, value in inputs.items()}
    known = {name: array for name, array in loaded.constants.items() if name not in inputs}
    _Checker(types, known).check(loaded.graph, file)


def _require_default(declared: onnx.TypeProto, name: str, array: Any) -> None:
    """Raises unless an initializer has the type and the sizes of the input whose default it is."""
    actual, expected = type_of_dtype(array.dtype), type_text(declared)
    if actual != expected:
        rule = f"Data in initializer '{name}' has element type {actual} but usage of initializer in graph expects"
        raise Fail(f"Type Error: {rule} {expected}")
    sizes = [dimension.dim_value for dimension in declared.tensor_type.shape.dim]
    is_shaped = declared.tensor_type.HasField("shape")
    if is_shaped and (
        len(sizes) != array.ndim or any(a > 0 and a != b for a, b in zip(sizes, array.shape, strict=True))
    ):
        texts = (",".join(map(str, each)) for each in (sizes, array.shape))
        raise Fail(f"Type Error: Shape of initializer {name} does not match. {' != '.join(f'{{{x}}}' for x in texts)}")


class _Type(NamedTuple):
    """The type of a value, and its text, which is empty if the type is not known."""

    text: str
    proto: onnx.TypeProto

    @classmethod
    def of_proto(cls, proto: onnx.TypeProto) -> "_Type":
        """The type that a model declares; sizes of 0 and less, which exporters write for open ones, are open."""
        dimensions = proto.tensor_type.shape.dim if proto.HasField("tensor_type") else ()
        if any(dimension.HasField("dim_value") and dimension.dim_value <= 0 for dimension in dimensions):
            copy = onnx.TypeProto()
            copy.CopyFrom(proto)
            proto, dimensions = copy, copy.tensor_type.shape.dim
            for dimension in dimensions:
                if dimension.dim_value <= 0:
                    dimension.ClearField("dim_value")
        return cls("" if "undefined" in (text := type_text(proto)) else text, proto)

    @classmethod
    def of_array(cls, array: Any) -> "_Type":
        is_text = array.dtype.kind == "O"
        element = onnx.TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(array.dtype)
        return cls(type_of_dtype(array.dtype), helper.make_tensor_type_proto(element, array.shape))

    @classmethod
    def of_text(cls, text: str) -> "_Type":
        """The type of a tensor of any shape."""
        inner = text.removeprefix("tensor(").removesuffix(")")
        if text == inner or not inner.isidentifier():
            return cls(text, onnx.TypeProto())
        return cls(text, helper.make_tensor_type_proto(onnx.TensorProto.DataType.Value(inner.upper()), None))


_UNKNOWN = _Type("", onnx.TypeProto())


class _Parameter(NamedTuple):
    """An input or an output of an operator: a type, or the name of one that several share, and the types allowed."""

    type: str
    allowed: Collection[str]
    is_homogeneous: bool


class _Signature(NamedTuple):
    """What ONNX says of an operator; the last input or output stands for all further ones."""

    schema: onnx.defs.OpSchema
    inputs: Sequence[_Parameter]
    outputs: Sequence[_Parameter]
    floats: frozenset[str]  # the attributes that are numbers with a point


@functools.cache
def _signature_of(domain: str, operator: str, version: int) -> _Signature | None:
    """The signature of an operator that ONNX defines."""
    try:
        schema = onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None
    kinds = onnx.defs.OpSchema.AttrType
    floats = {name for name, each in schema.attributes.items() if each.type in (kinds.FLOAT, kinds.FLOATS)}
    return _Signature(schema, _parameters_of(schema.inputs), _parameters_of(schema.outputs), frozenset(floats))


def _parameters_of(side: Sequence[Any]) -> list[_Parameter]:
    return [_Parameter(each.type_str, frozenset(each.types), each.is_homogeneous) for each in side]


class _Checker:
    """Follows the types of values through the nodes of a graph and of the graphs in it."""

    def __init__(self, types: dict[str, _Type], known: dict[str, Any], *, is_inner: bool = False) -> None:
        self._types, self._known, self._is_inner = types, known, is_inner

    def check(self, graph: OnnxGraph, proto: onnx.GraphProto) -> list[_Type]:
        """Checks the nodes of a graph, and returns the types of its outputs."""
        declared = {value.name: value.type for value in (*proto.value_info, *proto.output)}
        for node in graph.nodes:
            is_constant = (node.domain, node.operator) == (MAIN, "Constant")
            for i, found in enumerate(self._infer(node, proto.node[node.index])):
                name = node.outputs[i]
                given = _Type.of_proto(declared[name]) if name in declared else _UNKNOWN
                if given.text and found.text and given.text != found.text and not is_constant:
                    rule = f"Type ({given.text}) of output arg ({name}) of node ({node.name}) does not match expected"
                    raise Fail(f"Type Error: {rule} type ({found.text}).")
                if name:
                    self._types[name] = found if found.text else given
            if is_constant and isinstance(node.attributes.get("value"), np.ndarray):
                self._known[node.outputs[0]] = node.attributes["value"]
        return [self._types.get(name, _UNKNOWN) for name in graph.output_names]

    def _infer(self, node: Node, proto: onnx.NodeProto) -> Sequence[_Type]:
        """Checks a node, and returns the types of its outputs as far as they are known."""
        signature = _signature_of(node.domain, node.operator, node.version)
        inner = list(self._check_inner(node, proto))
        if signature is None:
            return [_UNKNOWN for _ in node.outputs]
        _require_attributes(node, signature)
        _require_count(node, signature)
        types = [self._types.get(name, _UNKNOWN) for name in node.inputs]
        bound = _bind_types(node, signature, types)
        inferred = inner or self._infer_outputs(node, proto, signature, types)
        return [found if found.text else _find_type(i, signature, bound) for i, found in enumerate(inferred)]

    def _check_inner(self, node: Node, proto: onnx.NodeProto) -> Iterator[_Type]:
        """Checks the graphs in a node, and yields the types of the node's outputs."""
        results: dict[str, list[_Type]] = {}
        for name, graph in node.attributes.items():
            if not isinstance(graph, OnnxGraph) or graph.source is None:
                continue
            arguments = {value.name: _Type.of_text(_Type.of_proto(value.type).text) for value in graph.source.input}
            constants = {name: _Type.of_array(array) for name, array in graph.constants.items()}
            known = {name: array for name, array in self._known.items() if name not in arguments}
            checker = _Checker({**self._types, **constants, **arguments}, known, is_inner=True)
            try:
                results[name] = checker.check(graph, graph.source)
            except (Fail, InvalidGraph) as error:
                rule = f"[TypeInferenceError] Graph attribute inferencing failed: {error.problems[0]}"
                raise _fail_in(node, rule) from None
        yield from _outputs_of(node, results)

    def _infer_outputs(
        self, node: Node, proto: onnx.NodeProto, signature: _Signature, types: Sequence[_Type]
    ) -> Sequence[_Type]:
        unknown = [_UNKNOWN for _ in node.outputs]
        named = {name: each for name, each in zip(node.inputs, types, strict=True) if name}
        if any(node.subgraphs) or not all(each.proto.WhichOneof("value") for each in named.values()):
            return unknown
        data = {
            name: numpy_helper.from_array(self._known[name])
            for name in named
            if name in self._known and self._known[name].size <= _MAX_ELEMENTS
        }
        try:
            found = infer_node_outputs(
                signature.schema, proto, {name: each.proto for name, each in named.items()}, data
            )
        except InferenceError as error:
            if self._is_inner and "[ShapeInferenceError]" in str(error):  # a branch may be for other sizes
                return unknown
            raise _fail_in(node, str(error)) from None
        return [_Type.of_proto(found[name]) if name in found else _UNKNOWN for name in node.outputs]


def _require_attributes(node: Node, signature: _Signature) -> None:
    """Raises if an attribute is an integer in place of a float, which is all that loading a model lets pass."""
    for name in signature.floats & node.attributes.keys():
        value = node.attributes[name]
        if any(isinstance(each, int) for each in (value if isinstance(value, tuple) else (value,))):
            plural = "S" if isinstance(value, tuple) else ""
            kinds = f"Expected: 'FLOAT{plural}', actual: 'INT{plural}'"
            raise InvalidGraph(f"Mismatched attribute type in '{node.name} : {name}'. {kinds}")


def _require_count(node: Node, signature: _Signature) -> None:
    least, most = signature.schema.min_output, signature.schema.max_output
    if len(node.outputs) > most:
        rule = f"has output size {len(node.outputs)} not in range [min={least}, max={most}]"
        raise InvalidGraph(f"Node ({node.name}) of {node.operator} {rule}.")


def _outputs_of(node: Node, results: Mapping[str, Sequence[_Type]]) -> Iterator[_Type]:
    """Yields the types of a node's outputs, which are those of the graphs in it, without their sizes."""
    if node.operator == "If" and len(results) == 2:
        found, others = results["then_branch"], results["else_branch"]
        for one, other in zip(found, others, strict=False):
            if one.text and other.text and one.text != other.text:
                rule = f"Mismatched tensor element type: inferred={other.text} declared={one.text}"
                raise _fail_in(node, f"[TypeInferenceError] {rule}")
    elif node.operator in ("Loop", "Scan"):
        found = results.get("body", ())
        found = found[1:] if node.operator == "Loop" else found  # after the condition
    else:
        return
    if len(found) >= len(node.outputs):
        yield from (_Type.of_text(each.text) for each in found[: len(node.outputs)])


def _fail_in(node: Node, rule: str) -> Fail:
    return Fail(f"Node ({node.name}) Op ({node.operator}) {rule}")


def _bind_types(node: Node, signature: _Signature, types: Sequence[_Type]) -> Mapping[str, str]:
    """Returns the types that an operator's inputs share; raises if one is not allowed, or if two differ."""
    bound: dict[str, str] = {}
    last = len(signature.inputs) - 1
    for i, (text, _) in enumerate(types):
        if not text or last < 0:
            continue
        parameter = signature.inputs[min(i, last)]
        if text not in parameter.allowed:
            rule = f"Type '{text}' of input parameter ({node.inputs[i]}) of operator ({node.operator}) in node"
            raise InvalidGraph(f"Type Error: {rule} ({node.name}) is invalid.")
        if parameter.is_homogeneous and bound.setdefault(parameter.type, text) != text:
            rule = f"Type parameter ({parameter.type}) of Optype ({node.operator}) bound to different types"
            raise Fail(f"Type Error: {rule} ({bound[parameter.type]} and {text} in node ({node.name}).")
    return bound


def _find_type(index: int, signature: _Signature, bound: Mapping[str, str]) -> _Type:
    """The type of an output, if it is the only one allowed, or that of the inputs that share it."""
    if not signature.outputs:
        return _UNKNOWN
    parameter = signature.outputs[min(index, len(signature.outputs) - 1)]
    if len(parameter.allowed) == 1:
        return _Type.of_text(next(iter(parameter.allowed)))
    return _Type.of_text(bound[parameter.type]) if parameter.type in bound and parameter.is_homogeneous else _UNKNOWN
