"""Finds the handlers of a model's nodes, and the inputs that decide sizes."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.graph.graph import MAIN, Function, FunctionKey, Node, OnnxGraph
from dmljax.onnx.graph.reader import MAX_DEPTH, Reader
from dmljax.onnx.handlers.refusals import OperatorRefusal, merge_problems, refusal_of
from dmljax.onnx.handlers.registry import REGISTRY, Handler, NodeCall, make_handler
from dmljax.onnx.handlers.signatures import Attribute, Input, Use
from dmljax.onnx.values.types import Results, Value
from dmljax.text import did_you_mean, join_words, show


class Finder:
    """Finds a node's handler among the model's functions, the registry, and the function bodies that ONNX defines."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.functions = {key: self._handle_function(function) for key, function in reader.functions.items()}
        self.bodies: dict[tuple[str, str, int], Handler | None] = {}
        self.deciding: dict[FunctionKey, frozenset[int]] = {}
        self.leading: set[str] = set()  # the names that lead to sizes through any nodes, in all graphs visited

    def find(self, node: Node) -> Handler:
        handler = self.look_up(node)
        if handler is None:  # inside a function body that ONNX defines
            raise Unsupported(*_find_missing([node]))
        return handler

    def look_up(self, node: Node) -> Handler | None:
        function = self.functions.get((node.domain, node.operator, node.overload))
        if function is not None:
            return function
        handler = REGISTRY.find(node)
        if handler is not None or refusal_of(node.domain, node.operator) is not None:
            return handler
        key = (node.domain, node.operator, node.version)
        if key not in self.bodies:
            self.bodies[key] = self._handle_schema(node)
        return self.bodies[key]

    def deciding_inputs(self, key: FunctionKey) -> frozenset[int]:
        """The inputs of a model's function that decide sizes in it."""
        if key not in self.reader.functions:
            return frozenset()
        if key not in self.deciding:
            graph = self.reader.functions[key].graph
            self.leading |= {*graph.output_names}
            names, _ = find_deciding_names(graph, self, ())
            self.deciding[key] = frozenset(i for i, name in enumerate(graph.input_names) if name in names)
        return self.deciding[key]

    def _handle_function(self, function: Function) -> Handler:
        names = (*function.attributes, *function.defaults)
        optional = Input(Use.PASSED, is_required=False, may_be_absent=True)
        inputs = [optional] * len(function.graph.inputs)
        return _body_handler(
            lambda node, values: function, function.defaults, inputs, dict.fromkeys(names, Attribute())
        )

    def _handle_schema(self, node: Node) -> Handler | None:
        """A handler that runs the body that ONNX defines for an operator, if it defines one."""
        try:
            schema = onnx.defs.get_schema(node.operator, node.version, node.domain)
        except onnx.defs.SchemaError:
            return None
        if not (schema.has_function or schema.has_context_dependent_function):
            return None
        defaults = {
            name: self.reader.attribute(attribute.default_value, self.reader.versions)
            for name, attribute in schema.attributes.items()
            if attribute.default_value.name
        }
        depends = schema.has_context_dependent_function
        fixed = None if depends else self._read_body(schema, schema.function_body)
        if fixed and any(self.look_up(inner) is None for inner in _all_nodes(fixed.graph)):
            return None

        def body(node: Node, values: Sequence[Value]) -> Function:
            return fixed or self._read_body(schema, _body_for(schema, node, values))

        needed = [parameter.option == onnx.defs.OpSchema.FormalParameterOption.Single for parameter in schema.inputs]
        inputs = [Input(Use.PASSED, None, any(needed[i:]), not is_needed) for i, is_needed in enumerate(needed)]
        kinds = schema.attributes.items()
        attributes = {name: Attribute(_KINDS.get(attribute.type, Any), attribute.required) for name, attribute in kinds}
        return _body_handler(body, defaults, inputs, attributes)

    def _read_body(self, schema: Any, proto: Any) -> Function:
        versions = {MAIN: schema.since_version} if schema.domain == MAIN else {}
        imports = versions | {imported.domain: imported.version for imported in proto.opset_import}
        return self.reader.function(proto, {**self.reader.versions, **imports})


_KINDS: Mapping[Any, Any] = {
    onnx.defs.OpSchema.AttrType.FLOAT: float,
    onnx.defs.OpSchema.AttrType.INT: int,
    onnx.defs.OpSchema.AttrType.STRING: str,
    onnx.defs.OpSchema.AttrType.TENSOR: np.ndarray,
    onnx.defs.OpSchema.AttrType.GRAPH: OnnxGraph,
    onnx.defs.OpSchema.AttrType.FLOATS: Sequence[float],
    onnx.defs.OpSchema.AttrType.INTS: Sequence[int],
    onnx.defs.OpSchema.AttrType.STRINGS: Sequence[str],
}


def _body_handler(
    body: Callable[[Node, Sequence[Value]], Function],
    defaults: Mapping[str, Any],
    inputs: Sequence[Input],
    attributes: Mapping[str, Attribute],
) -> Handler:
    """A handler that runs a function body, which may depend on the node and its input types."""

    def run(*values: Value, call: NodeCall, **attributes: Any) -> Results:
        graph = body(call.node, values).graph
        absent = [None] * (len(graph.inputs) - len(values))
        return tuple(call.run(graph.bind({**defaults, **attributes}), [*values, *absent]))

    return replace(make_handler(run), inputs=tuple(inputs), others=None, attributes=attributes)


def _body_for(schema: Any, node: Node, inputs: Sequence[Value]) -> Any:
    """The body of an operator for the types of its inputs."""
    attributes = [
        onnx.helper.make_attribute(name, value.source if isinstance(value, OnnxGraph) else value)
        for name, value in node.attributes.items()
    ]
    proto = onnx.NodeProto(op_type=node.operator, domain=node.domain, input=node.inputs, output=node.outputs)
    proto.attribute.extend(attributes)
    types = []
    for value in inputs:
        type_proto = onnx.TypeProto()
        if value is not None and not isinstance(value, list):
            element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
            sizes = [size if isinstance(size, int) else None for size in value.shape]
            type_proto = onnx.helper.make_tensor_type_proto(element, sizes)
        types.append(type_proto.SerializeToString())
    version = max(schema.context_dependent_function_opset_versions)
    body = onnx.FunctionProto()
    data = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), types)
    if not data:
        raise Unsupported(Problem((), "ONNX defines no function body for inputs of these types"))
    body.ParseFromString(data)
    return body


def _all_nodes(graph: OnnxGraph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs:
            yield from _all_nodes(inner)


def require_no_circles(functions: Mapping[FunctionKey, Function]) -> None:
    """Raises if functions call themselves, directly or not, or if calls are nested too deeply."""
    depths: dict[FunctionKey, int] = {}

    def depth(key: FunctionKey, callers: tuple[FunctionKey, ...]) -> int:
        place = ("functions", key[1])
        if key in callers:
            chain = " > ".join(name for _, name, _ in (*callers, key))
            raise InvalidDesc(Problem(place, "must not call itself", chain))
        if key not in depths:
            nodes = _all_nodes(functions[key].graph)
            called = {(node.domain, node.operator, node.overload) for node in nodes}
            inner = (depth(other, (*callers, key)) for other in called if other in functions)
            depths[key] = 1 + max(inner, default=0)
        if depths[key] + len(callers) > MAX_DEPTH:
            raise InvalidDesc(Problem(place, f"must nest function calls at most {MAX_DEPTH} deep", "more"))
        return depths[key]

    for key in functions:
        depth(key, ())


def require_handlers(finder: Finder, graph: OnnxGraph) -> None:
    """Raises if a model needs missing handlers; one error lists all of them."""
    nodes = [*_all_nodes(graph)]
    for function in finder.reader.functions.values():
        nodes += _all_nodes(function.graph)
    missing: list[Node] = []
    wrong: list[Problem] = []
    for node in nodes:
        handler = finder.look_up(node)
        if handler is None:
            missing.append(node)
        else:
            wrong += handler.problems(node)
    if missing:
        raise (Unsupported if any(map(_is_known, missing)) else UnknownOperator)(*_find_missing(missing))
    if wrong:
        raise InvalidDesc(*merge_problems(wrong)[:100])


class UnknownOperator(Unsupported):
    """ONNX does not define an operator of this name in its own domains."""


def _is_known(node: Node) -> bool:
    """Whether ONNX defines a node's operator, or another library may."""
    return node.domain not in _DOMAINS or onnx.defs.has(node.operator, node.domain)


_DOMAINS = {schema.domain for schema in onnx.defs.get_all_schemas()}


def _find_missing(nodes: Sequence[Node]) -> Iterator[Problem]:
    """A problem for each reason to refuse nodes, and for each unknown operator."""
    nodes_by_reason: dict[OperatorRefusal | tuple[str, str], list[Node]] = {}
    for node in nodes:
        reason = refusal_of(node.domain, node.operator) or (node.domain, node.operator)
        nodes_by_reason.setdefault(reason, []).append(node)
    for reason, refused in nodes_by_reason.items():
        first = refused[0]
        operators = join_words(dict.fromkeys(node.operator for node in refused))
        times = "at" if len(refused) == 1 else f"{len(refused)} times, first at"
        described = f"{operators} of {first.domain or 'ai.onnx'} {first.version}, {times} {show(first.place[1])}"
        if isinstance(reason, OperatorRefusal):
            yield Problem((), f"cannot run operators that {reason.reason}", described, remedy=reason.remedy)
        else:
            known = {operator for domain, operator in REGISTRY.handlers if domain == first.domain}
            yield Problem((), f"unsupported operator {described}{did_you_mean(first.operator, known)}")


def has_random_nodes(finder: Finder, graph: OnnxGraph) -> bool:
    """Whether a node of a model may draw random numbers."""
    graphs = [graph, *(function.graph for function in finder.reader.functions.values())]
    return any(finder.find(node).is_random(node) for part in graphs for node in _all_nodes(part))


# The values that decide sizes


def find_deciding_names(
    graph: OnnxGraph, finder: Finder, constants: Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """The names whose values decide sizes, and those that lead to a simpler program if known.

    `constants` never change. They decide sizes through any node, but inputs only through a few: each new value of such
    an input needs its own program.
    """
    deciding: set[str] = set()
    kept: set[str] = set()
    _add_deciding(graph, finder, {"", *constants}, deciding, kept)
    return frozenset(deciding), frozenset(kept)


def _add_deciding(graph: OnnxGraph, finder: Finder, outer: set[str], deciding: set[str], kept: set[str]) -> None:
    constants = find_known_names(graph, finder.find, outer)
    for node in reversed(graph.nodes):
        handler = finder.find(node)
        is_deciding = any(name in deciding for name in node.outputs)
        is_leading = any(name in finder.leading for name in node.outputs)
        for inner in node.subgraphs:
            deciding |= set(inner.output_names) if is_deciding else set()
            finder.leading |= set(inner.output_names) if is_leading else set()
            _add_deciding(inner, finder, {*constants, *inner.constants}, deciding, kept)
        passes = handler.passes_values or any(node.subgraphs) or constants.issuperset(node.inputs)
        for i, name in enumerate(node.inputs):
            use = handler.input(i).use
            if (is_deciding and passes) or use in (Use.KNOWN, Use.WANTED):
                deciding.add(name)
            elif use is Use.KEPT:
                kept.add(name)
            may_be_size = use in (Use.KNOWN, Use.WANTED, Use.PASSED) or (use is Use.KEPT and handler.takes_call)
            if is_leading or may_be_size:
                finder.leading.add(name)
        names = finder.deciding_inputs((node.domain, node.operator, node.overload))
        deciding |= {name for i, name in enumerate(node.inputs) if i in names}
    deciding.discard("")


def find_known_names(graph: OnnxGraph, find: Callable[[Node], Handler], constants: Collection[str]) -> set[str]:
    """The names whose values follow from constants and shapes."""
    known = {*constants}
    for node in graph.nodes:
        handler = find(node)
        if handler.is_pure(node) and (handler.measures or known.issuperset(node.inputs)):
            known |= {*node.outputs}
    return known
