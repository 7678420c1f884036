"""ONNX models as functions of arrays."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import onnx

from dmljax.checks import JAX_ARRAYS, array, integer_in
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, inside, within
from dmljax.graph import Graph as DirectMLGraph
from dmljax.onnx.directml import directml_graph
from dmljax.onnx.file import (
    MAIN,
    MAX_DEPTH,
    Function,
    FunctionKey,
    Graph,
    Node,
    Reader,
    TensorType,
    names_read,
    read_model,
)
from dmljax.onnx.folding import Folded, fold
from dmljax.onnx.interpreter import NotKnown, Program, as_array, is_known
from dmljax.onnx.nodes import REGISTRY
from dmljax.onnx.refusals import REFUSALS, told_once
from dmljax.onnx.registry import Call, Handler, make_handler
from dmljax.onnx.static_part import KeyedArray, StaticPart
from dmljax.text import did_you_mean, join_words, show

MAX_SMALL = 1024  # elements of an integer constant that stays in the program
MAX_INLINED = 2**24  # bytes of all weights, once folded, that calls may have as constants of each compiled program


def load(
    source: Any,
    *,
    constants: Mapping[str, Any] | None = None,
    maximum_sizes: Mapping[str, int] | None = None,
) -> "Model":
    """The model in an ONNX file, as a function of its inputs.

    `source` is a path, the bytes of a file, or an `onnx.ModelProto`. `constants` fix inputs that decide sizes or
    branches. `maximum_sizes` bound the results of operators such as NonZero, by the names of their outputs, so that
    they have a size under `jax.jit`. All operators that have no handler are told at once.
    """
    with within("onnx"):
        return Model(source, constants or {}, maximum_sizes or {})


class Model:
    """An ONNX model: called with arrays, it returns its output, or a tuple of its outputs.

    `inputs` and `outputs` are their types; `weights` are the parameters by name, which `apply` takes as its first
    argument, to train, donate or shard them. `defaults` are the types of the inputs that have an initializer as their
    default, which calls may give by name.

    The first call computes what depends only on the weights, such as their transposes, and later calls reuse it.
    Weights of up to 16 MiB in all become constants of the compiled programs, so that XLA prepares them once; its sums
    may then have another order than in `apply`. Nothing is reused for weights that you replace or pass to `apply`.
    """

    inputs: tuple[TensorType, ...]
    defaults: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    weights: dict[str, jax.Array]

    def __init__(self, source: Any, constants: Mapping[str, Any], maximum_sizes: Mapping[str, int]) -> None:
        proto, folder = read_model(source)
        reader = Reader(proto, folder)
        self._finder = _Finder(reader)
        _require_no_circles(reader.functions)
        graph = reader.read(proto.graph)
        _require_handlers(self._finder, graph)
        graph = _with_constant_nodes_stored(graph)
        sizes = {name: integer_in(("maximum_sizes", name), size, 1, 2**31) for name, size in maximum_sizes.items()}
        made = {name for node in graph.nodes for name in node.outputs}
        for name in sizes:
            if name not in made:
                rule = "must be the name of an output of a node"
                raise InvalidDesc(Problem(("maximum_sizes", name), rule, show(name) + did_you_mean(name, made)))
        self._program = Program(self._finder.find, sizes)
        fixed = _fixed(graph, constants)
        self.defaults = tuple(one for one in graph.inputs if one.name in graph.constants and one.name not in fixed)
        known = dict(graph.constants) | fixed
        self.inputs = tuple(one for one in graph.inputs if one.name not in known)
        self.outputs = graph.outputs
        self._deciding, self._kept = _deciding_names(graph, self._finder)
        defaults = {one.name for one in self.defaults}
        is_weight = {
            name: name not in defaults and name not in fixed and self._is_weight(name, known[name]) for name in known
        }
        with jax.ensure_compile_time_eval():
            self.weights = {name: as_array(known[name]) for name in known if is_weight[name]}
        self._inlined: dict[str, jax.Array] = {}
        self._read: set[str] = set()  # by the nodes that are left
        self._loaded = dict(self.weights)  # after the first call, those that the programs were made from
        self._constants = {name: value for name, value in known.items() if not is_weight[name]}
        self._graph = Graph(graph.nodes, graph.inputs, graph.outputs)
        self._static_part = StaticPart(self._program, self._graph)
        self._compiled = jax.jit(self._run, static_argnums=(0, 1))
        self._compiled_whole = jax.jit(self._run_whole, static_argnums=0)
        self._is_eager = False  # whether sizes follow from values, so that one compiled program is not enough
        has_others = any(one.name in self._deciding or one.kind != "tensor" for one in self.inputs)
        self._is_plain = bool(self.inputs) and not has_others

    def _is_weight(self, name: str, value: Any) -> bool:
        if name in self._deciding or value.dtype == object:
            return False
        is_float = jax.numpy.issubdtype(value.dtype, jax.numpy.floating)
        return value.size > MAX_SMALL or (is_float and (name not in self._kept or value.ndim > 0))

    def __repr__(self) -> str:
        inputs, outputs = ("; ".join(map(str, one)) for one in (self.inputs, self.outputs))
        return f"Model({len(self._graph.nodes)} nodes, {len(self.weights)} weights; {inputs} -> {outputs})"

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if self._is_plain and not named and all(type(value) in JAX_ARRAYS for value in inputs):
            try:
                return self._compiled_whole(*self._own_weights(), *inputs)  # which checks them while tracing
            except NotKnown:
                self._is_plain = False
        with within("onnx"):
            return self._applied(*self._own_weights(), inputs, named)

    @functools.cached_property
    def _folded(self) -> Folded:
        given = {one.name for one in self.defaults}
        constants = {name: value for name, value in self._constants.items() if name not in given}
        with jax.ensure_compile_time_eval():
            folded = fold(self._program, self._graph, constants, self._loaded)
        self._read = {name for node in folded.graph.nodes for name in names_read(node)} | {*folded.graph.output_names}
        values = {**{name: one for name, one in self._loaded.items() if name in self._read}, **folded.values}
        if sum(one.nbytes for one in values.values()) <= MAX_INLINED:
            self._inlined = values
        else:
            self._loaded = dict(folded.sources)
        return folded

    def _own_weights(self) -> tuple[bool, Mapping[str, Any]]:
        """Whether to run the folded graph, and what its program is given: no weights that it has as constants."""
        folded = self._folded
        is_same = all(self.weights.get(name) is one for name, one in self._loaded.items())
        if not is_same or not (self._inlined or folded.values):
            return False, self.weights
        if self._inlined:
            return True, {}
        kept = {name: one for name, one in self.weights.items() if name in self._read}
        return True, {**kept, **folded.values}

    def apply(self, weights: Mapping[str, Any], *inputs: Any, **named: Any) -> Any:
        """The outputs of the model with other weights: a mapping with the names and shapes of `weights`."""
        with within("onnx"):
            self._require_weights(weights)
            return self._applied(False, dict(weights), inputs, named)

    def _applied(
        self, is_folded: bool, weights: Mapping[str, Any], inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        given = self._bound(inputs, named)
        try:
            results = self._called(is_folded, weights, given)
        except NotKnown as error:
            names = [one.name for one in (*self.inputs, *self.defaults) if one.name in self._deciding]
            if names:
                error.args = (*error.args, Problem((), f"sizes follow from the values of {join_words(names)}"))
            raise
        return results[0] if len(results) == 1 else tuple(results)

    def graph(self, shapes: Mapping[str, Sequence[int]] | None = None) -> DirectMLGraph:
        """The DirectML graph that computes the same for inputs of these sizes, to draw, validate, lower or save.

        `shapes` has the inputs with open sizes; those that have one name are given once. An input that has a default is
        one of the graph's inputs if `shapes` has it, and a constant otherwise. Each operator of the model
        becomes the descriptors of the functions that compute it here, and weights become the graph's constants. The
        graph's tensors are DirectML's: truth values are UINT8, and a scalar has one dimension. What DirectML has no
        operator for is refused, all of it at once.

        >>> import onnx.parser
        >>> text = '<ir_version: 10, opset_import: ["": 21]> f (float[N, 3] x) => (float[N, 3] y) { y = Softmax(x) }'
        >>> graph = load(onnx.parser.parse_model(text)).graph({"x": (2, 3)})
        >>> graph.nodes
        mappingproxy({'y': ActivationSoftmax1Desc(input=..., output=..., axes=(1,))})
        >>> minimum_feature_level(graph)
        FeatureLevel.FL_5_1
        """
        with within("onnx"):
            constants = {**self._constants, **self.weights}
            return directml_graph(self._program, self._graph, self.inputs, self.defaults, constants, shapes or {})

    def _called(self, is_folded: bool, weights: Mapping[str, Any], given: dict[str, Any]) -> list[Any]:
        statics = {name: value for name, value in given.items() if name in self._deciding and _is_concrete(value)}
        statics |= {name: value for name, value in given.items() if _is_text(value)}
        arrays = {name: _as_arrays(name, value) for name, value in given.items() if name not in statics}
        is_concrete = all(map(_is_concrete, jax.tree.leaves((arrays, weights))))
        if not (self._is_eager and is_concrete):
            key = tuple(KeyedArray(name, np.asarray(value)) for name, value in statics.items())
            try:
                if self._is_plain and [*arrays] == [one.name for one in self.inputs]:
                    results = self._compiled_whole(is_folded, weights, *arrays.values())  # as all calls by position do
                    return [results] if len(self.outputs) == 1 else list(results)
                return list(self._compiled(is_folded, key, weights, arrays))
            except NotKnown:
                if not is_concrete:
                    raise
                self._is_eager, self._is_plain = True, False
        known = {name: np.asarray(value) for name, value in statics.items()}
        fixed = (self._constants.keys() | self.weights.keys()) - given.keys()
        own = self.weights if is_folded else weights
        parameters = {name: as_array(value) for name, value in own.items()}
        return self._outputs(self._static_part.run({**self._constants, **parameters, **arrays, **known}, fixed))

    def _run_whole(self, is_folded: bool, weights: dict[str, Any], *inputs: Any) -> Any:
        with within("onnx"):
            results = self._run(is_folded, (), weights, self._bound(inputs, {}))
        return results[0] if len(results) == 1 else tuple(results)

    def _run(
        self, is_folded: bool, statics: tuple[KeyedArray, ...], weights: dict[str, Any], given: dict[str, Any]
    ) -> list[Any]:
        results = self._computed(is_folded, weights, given | {one.name: one.value for one in statics})
        for name, result in zip(self._graph.output_names, results, strict=True):
            if any(map(_is_text, jax.tree.leaves(result))):
                raise NotKnown(Problem(name, "must be numbers under jit: JAX has no strings", "strings"))
        return results

    def _computed(self, is_folded: bool, weights: dict[str, Any], given: dict[str, Any]) -> list[Any]:
        graph, inlined = (self._folded.graph, self._inlined) if is_folded else (self._graph, {})
        with self._program.traced(graph):
            values = {**self._constants, **inlined, **weights, **given}
            return self._outputs(self._program.run_nodes(graph, values))

    def _outputs(self, results: Sequence[Any]) -> list[Any]:
        return [_as_arrays(name, result) for name, result in zip(self._graph.output_names, results, strict=True)]

    def _require_weights(self, weights: Mapping[str, Any]) -> None:
        if weights is self.weights:
            return
        if not isinstance(weights, Mapping):
            raise InvalidType(Problem("weights", "must be a mapping with the names of model.weights", show(weights)))
        for name in sorted(weights.keys() ^ self.weights.keys()):
            rule = "must have the names of model.weights"
            raise InvalidDesc(Problem("weights", rule, f"{'no ' if name in self.weights else ''}{name}"))
        for name, own in self.weights.items():
            given = array(("weights", name), weights[name])
            if given.shape != own.shape:
                raise InvalidDesc(Problem(("weights", name), f"must have the shape {own.shape}", given.shape))

    def _bound(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        types = {one.name: one for one in (*self.inputs, *self.defaults)}
        if len(inputs) > len(self.inputs):
            raise InvalidType(Problem((), f"there must be at most {len(self.inputs)} arrays by position", len(inputs)))
        given = dict(zip((one.name for one in self.inputs), inputs, strict=False))
        for name, value in named.items():
            if name not in types:
                rule = f"must be one of {', '.join(types)}"
                raise InvalidType(Problem(name, rule, name + did_you_mean(name, types)))
            if name in given:
                raise InvalidType(Problem(name, "must be given once", "twice"))
            given[name] = value
        missing = [one.name for one in self.inputs if one.name not in given]
        if missing:
            raise InvalidType(Problem((), "must have all inputs", f"no {join_words(missing)}"))
        opened: dict[str, tuple[str, int]] = {}
        return {name: _checked(types[name], value, opened) for name, value in given.items()}


def _is_concrete(value: Any) -> bool:
    return not isinstance(value, jax.core.Tracer) and is_known(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _as_arrays(name: str, value: Any) -> Any:
    """A value, and all elements of a sequence, as JAX arrays."""
    if isinstance(value, list):
        return [_as_arrays(name, one) for one in value]
    if value is None or (_is_text(value) and any(isinstance(one, str) for one in value.flat)):
        return value
    with inside(name):
        return as_array(value)


def _checked(wanted: TensorType, value: Any, opened: dict[str, tuple[str, int]]) -> Any:
    """An input that has the type and the sizes that the model says; open sizes of one name must be equal."""
    if wanted.kind != "tensor":
        if value is None or isinstance(value, list | tuple):
            return value if value is None else [array(wanted.name, one) for one in value]
        return array(wanted.name, value)
    if isinstance(value, bool | int | float) and wanted.dtype is not None and not wanted.sizes:
        value = np.asarray(value, wanted.dtype)
    given = array(wanted.name, value)
    if wanted.dtype is None or _is_text(given):
        return given
    narrow = jax.dtypes.canonicalize_dtype(wanted.dtype) if wanted.dtype.kind != "O" else wanted.dtype
    if given.dtype not in (wanted.dtype, narrow):
        remedy = f"{wanted.name}.astype({narrow.name!r})" if wanted.name.isidentifier() else None
        raise InvalidType(Problem(wanted.name, f"must be of {wanted.dtype.name}", given.dtype, remedy=remedy))
    if wanted.sizes is None:
        return given
    if len(wanted.sizes) != given.ndim:
        raise InvalidDesc(Problem(wanted.name, f"must have {len(wanted.sizes)} dimensions", given.shape))
    for size, due in zip(given.shape, wanted.sizes, strict=True):
        if isinstance(due, str):
            name, first = opened.setdefault(due, (wanted.name, size))
            if first is not size and first != size:
                rule = f"must have the size {first} for {due}, as {name} has"
                raise InvalidDesc(Problem(wanted.name, rule, given.shape))
        elif due is not None and size != due:
            spelled = str(wanted).partition(": ")[2]
            raise InvalidDesc(Problem(wanted.name, f"must be a {spelled}", given.shape))
    return given


def _fixed(graph: Graph, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a caller fixes, in the types of the inputs."""
    types = {one.name: one for one in graph.inputs}
    fixed = {}
    for name, value in constants.items():
        place = ("constants", name)
        if name not in types:
            rule = "must be the name of an input"
            raise InvalidDesc(Problem(place, rule, show(name) + did_you_mean(name, types)))
        with inside("constants"):
            given = np.asarray(value)
            if not isinstance(value, np.ndarray) and types[name].dtype is not None:
                given = given.astype(types[name].dtype)
            fixed[name] = _checked(types[name], given, {})
    return fixed


# Handlers


class _Finder:
    """Finds the handler of a node: the model's own functions, the table, and the bodies that ONNX itself gives."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.functions = {key: self._of_function(function) for key, function in reader.functions.items()}
        self.bodies: dict[tuple[str, str, int], Handler | None] = {}
        self.deciding: dict[FunctionKey, frozenset[int]] = {}

    def find(self, node: Node) -> Handler:
        handler = self.found(node)
        if handler is None:  # in the body of an operator that ONNX opens
            raise Unsupported(_missing(node.operator, node.domain, node.version, [node]))
        return handler

    def found(self, node: Node) -> Handler | None:
        own = self.functions.get((node.domain, node.operator, node.overload))
        if own is not None:
            return own
        handler = REGISTRY.find(node)
        if handler is not None or (node.domain, node.operator) in REFUSALS:
            return handler
        key = (node.domain, node.operator, node.version)
        if key not in self.bodies:
            self.bodies[key] = self._of_schema(node)
        return self.bodies[key]

    def deciding_inputs(self, key: FunctionKey) -> frozenset[int]:
        """The inputs of a function of the model that decide sizes in it."""
        if key not in self.reader.functions:
            return frozenset()
        if key not in self.deciding:
            graph = self.reader.functions[key].graph
            names, _ = _deciding_names(graph, self)
            self.deciding[key] = frozenset(i for i, name in enumerate(graph.input_names) if name in names)
        return self.deciding[key]

    def _of_function(self, function: Function) -> Handler:
        def run(*inputs: Any, call: Call, **attributes: Any) -> Any:
            absent = [None] * (len(function.graph.inputs) - len(inputs))
            return tuple(call.run(function.graph.bound({**function.defaults, **attributes}), [*inputs, *absent]))

        kinds = dict.fromkeys((*function.attributes, *function.defaults), Any)
        return _opened(run, kinds, allowed=len(function.graph.inputs))

    def _of_schema(self, node: Node) -> Handler | None:
        """A handler that opens the body that ONNX gives for an operator, if it gives one."""
        try:
            schema = onnx.defs.get_schema(node.operator, node.version, node.domain)
        except onnx.defs.SchemaError:
            return None
        if not (schema.has_function or schema.has_context_dependent_function):
            return None
        defaults = {
            name: self.reader.attribute(one.default_value, self.reader.versions)
            for name, one in schema.attributes.items()
            if one.default_value.name
        }
        depends = schema.has_context_dependent_function
        fixed = None if depends else self._body(schema, schema.function_body)
        if fixed and any(self.found(inner) is None for inner in _all_nodes(fixed.graph)):
            return None

        def run(*inputs: Any, call: Call, **attributes: Any) -> Any:
            function = fixed or self._body(schema, _body_for(schema, call.node, inputs))
            absent = [None] * (len(function.graph.inputs) - len(inputs))
            return tuple(call.run(function.graph.bound({**defaults, **attributes}), [*inputs, *absent]))

        kinds = {name: _KINDS.get(one.type, Any) for name, one in schema.attributes.items()}
        needed = [one.option == onnx.defs.OpSchema.FormalParameterOption.Single for one in schema.inputs]
        handler = _opened(run, kinds, allowed=len(schema.inputs))
        return replace(
            handler,
            required=max((i + 1 for i, is_needed in enumerate(needed) if is_needed), default=0),
            absentable=frozenset(i for i, is_needed in enumerate(needed) if not is_needed),
            required_attributes=frozenset(name for name, one in schema.attributes.items() if one.required),
        )

    def _body(self, schema: Any, proto: Any) -> Function:
        own = {MAIN: schema.since_version} if schema.domain == MAIN else {}
        imports = own | {one.domain: one.version for one in proto.opset_import}
        return self.reader.function(proto, {**self.reader.versions, **imports})


_KINDS: Mapping[Any, Any] = {
    onnx.defs.OpSchema.AttrType.FLOAT: float,
    onnx.defs.OpSchema.AttrType.INT: int,
    onnx.defs.OpSchema.AttrType.STRING: str,
    onnx.defs.OpSchema.AttrType.TENSOR: np.ndarray,
    onnx.defs.OpSchema.AttrType.GRAPH: Graph,
    onnx.defs.OpSchema.AttrType.FLOATS: Sequence[float],
    onnx.defs.OpSchema.AttrType.INTS: Sequence[int],
    onnx.defs.OpSchema.AttrType.STRINGS: Sequence[str],
}


def _opened(run: Callable[..., Any], kinds: Mapping[str, Any], *, allowed: int) -> Handler:
    handler = make_handler(run, kept=[-1])
    return replace(handler, allowed=allowed, required=0, demands=(), attributes=kinds)


def _body_for(schema: Any, node: Node, inputs: Sequence[Any]) -> Any:
    """The body of an operator, which depends on the types of its inputs."""
    attributes = [
        onnx.helper.make_attribute(name, value.source if isinstance(value, Graph) else value)
        for name, value in node.attributes.items()
    ]
    proto = onnx.NodeProto(op_type=node.operator, domain=node.domain, input=node.inputs, output=node.outputs)
    proto.attribute.extend(attributes)
    types = []
    for value in inputs:
        given = onnx.TypeProto()
        if value is not None:
            element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
            sizes = [size if isinstance(size, int) else None for size in value.shape]
            given = onnx.helper.make_tensor_type_proto(element, sizes)
        types.append(given.SerializeToString())
    version = max(schema.context_dependent_function_opset_versions)
    body = onnx.FunctionProto()
    data = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), types)
    if not data:
        raise Unsupported(Problem((), "must have inputs of types that ONNX's body of the operator is for", "others"))
    body.ParseFromString(data)
    return body


def _with_constant_nodes_stored(graph: Graph) -> Graph:
    """The graph with the arrays of its Constant nodes among its constants, as some exporters write all weights so.

    Single numbers stay nodes: they are parts of a formula, such as the 0.5 of GELU, and not parameters.
    """
    taken = {"", *graph.constants, *graph.input_names}
    stored: dict[str, Any] = {}
    others: list[Node] = []
    for node in graph.nodes:
        value = node.attributes.get("value") if (node.operator, node.domain) == ("Constant", MAIN) else None
        if isinstance(value, np.ndarray) and value.size > 1 and len(node.outputs) == 1 and node.outputs[0] not in taken:
            stored[node.outputs[0]] = value
        else:
            others.append(node)
    return replace(graph, nodes=tuple(others), constants={**graph.constants, **stored})


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs:
            yield from _all_nodes(inner)


def _require_no_circles(functions: Mapping[FunctionKey, Function]) -> None:
    """Refuses functions that call themselves, be it by others, and calls that are too deep."""
    depths: dict[FunctionKey, int] = {}

    def depth(key: FunctionKey, callers: tuple[FunctionKey, ...]) -> int:
        place = ("functions", key[1])
        if key in callers:
            raise InvalidDesc(Problem(place, "must not call itself", " > ".join(one[1] for one in (*callers, key))))
        if key not in depths:
            nodes = _all_nodes(functions[key].graph)
            called = {(node.domain, node.operator, node.overload) for node in nodes}
            inner = (depth(one, (*callers, key)) for one in called if one in functions)
            depths[key] = 1 + max(inner, default=0)
        if depths[key] + len(callers) > MAX_DEPTH:
            raise InvalidDesc(Problem(place, f"must call functions at most {MAX_DEPTH} deep", "more"))
        return depths[key]

    for key in functions:
        depth(key, ())


def _require_handlers(finder: _Finder, graph: Graph) -> None:
    """Refuses a model at once for all that it needs and is not there."""
    nodes = [*_all_nodes(graph)]
    for function in finder.reader.functions.values():
        nodes += _all_nodes(function.graph)
    missing: dict[tuple[str, str, int], list[Node]] = {}
    wrong: list[Problem] = []
    for node in nodes:
        handler = finder.found(node)
        if handler is None:
            missing.setdefault((node.operator, node.domain, node.version), []).append(node)
        else:
            wrong += handler.problems(node)
    if missing:
        raise Unsupported(*(_missing(*key, found) for key, found in missing.items()))
    if wrong:
        raise InvalidDesc(*told_once(wrong)[:100])


def _missing(operator: str, domain: str, version: int, nodes: Sequence[Node]) -> Problem:
    place = nodes[0].place[1]
    known = {key[1] for key in REGISTRY.handlers if key[0] == domain}
    times = "at" if len(nodes) == 1 else f"{len(nodes)} times, first at"
    given = f"{operator} of {domain or 'ai.onnx'} {version}, {times} {show(place)}"
    refusal = REFUSALS.get((domain, operator))
    if refusal is not None:
        return Problem((), f"must have no operators that {refusal.reason}", given, remedy=refusal.remedy)
    return Problem((), "must have operators that dmljax knows", given + did_you_mean(operator, known))


# What decides sizes


def _deciding_names(graph: Graph, finder: _Finder) -> tuple[frozenset[str], frozenset[str]]:
    """The names whose values must be known for sizes to be, and those that operators compute with better if known."""
    deciding: set[str] = set()
    kept: set[str] = set()
    _add_deciding(graph, finder, deciding, kept)
    return frozenset(deciding), frozenset(kept)


def _add_deciding(graph: Graph, finder: _Finder, deciding: set[str], kept: set[str]) -> None:
    for node in reversed(graph.nodes):
        handler = finder.find(node)
        is_deciding = any(name in deciding for name in node.outputs)
        for inner in node.subgraphs:
            deciding |= set(inner.output_names) if is_deciding else set()
            _add_deciding(inner, finder, deciding, kept)
        is_deciding = is_deciding and (handler.passes_values or any(node.subgraphs))
        for i, name in enumerate(node.inputs):
            if is_deciding or handler.must_know(i) or i in handler.wanted:
                deciding.add(name)
            elif i in handler.kept:
                kept.add(name)
        names = finder.deciding_inputs((node.domain, node.operator, node.overload))
        deciding |= {name for i, name in enumerate(node.inputs) if i in names}
    deciding.discard("")
