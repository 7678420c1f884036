"""ONNX models as DirectML graphs: the computation for fixed sizes, with descriptors as nodes.

Each ONNX node is traced by itself. The decorator records its calls to dmljax's functions, and each call becomes a
descriptor. The few JAX operations between the calls are converted too: a reshape, a transpose or a broadcast only
changes how a buffer is read; every other operation becomes one or more DirectML operators.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from dmljax.calls.decorator import record_calls
from dmljax.descriptors.lowering import lower
from dmljax.errors import DmlError, InvalidDesc, InvalidType, Path, Problem, Unsupported
from dmljax.foundation.checks import integers, known_name, mapping
from dmljax.foundation.open_sizes import OpenSizes, unify_sizes
from dmljax.graphs.assembly import Assembly
from dmljax.graphs.graph import Graph
from dmljax.graphs.to_graph.builder import NoOperator, unused
from dmljax.graphs.to_graph.converter import Converter
from dmljax.graphs.to_graph.views import View
from dmljax.onnx.graph.cutting import advise_cut
from dmljax.onnx.graph.graph import Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.graph.walks import live_nodes
from dmljax.onnx.handlers.refusals import merge_by_operator
from dmljax.onnx.handlers.registry import KeyNeeded
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.running.interpreter import Interpreter, as_array
from dmljax.onnx.values.counts import NotKnown
from dmljax.onnx.values.padded import Padded
from dmljax.onnx.values.symbols import has_counts, trace_symbols
from dmljax.onnx.values.types import Array
from dmljax.text import did_you_mean, join_sizes, show


def directml_graph(
    loaded: LoadedGraph,
    weights: Mapping[str, Array],
    interpreter: Interpreter,
    shapes: Mapping[str, Any] | None,
    outputs: Sequence[str] | None,
) -> Graph:
    """The DirectML graph of a model for these shapes of its inputs and of the defaults named in `shapes`.

    Results of nodes that `shapes` names become inputs too.
    """
    shapes = mapping("shapes", shapes, "the names of inputs to their sizes")
    model, inputs, defaults = loaded.graph, loaded.inputs, loaded.defaults
    result_names = {name for node in model.nodes for name in node.outputs if name}
    cuts = {name: _struct_of_result(name, shapes[name]) for name in shapes if name in result_names}
    names = model.output_names if outputs is None else _names(outputs, {*result_names, *model.output_names})
    nodes = live_nodes(model.nodes, names, cuts)
    needed = {*names, *names_read(*nodes)}
    if outputs is None and not cuts:
        needed |= {tensor.name for tensor in (*inputs, *defaults)}
    others = {name: shape for name, shape in shapes.items() if name not in cuts}
    structs = _input_structs(inputs, defaults, others, needed) | cuts
    builder = _ModelGraph()
    values: dict[str, Any] = {}
    for name, struct in structs.items():
        values[name] = builder.input(name, struct)
    for name, value in {**loaded.constants, **weights}.items():
        if name not in structs:
            values[name] = builder.constant(name, value) if isinstance(value, jax.Array) else value
    tracer = _Tracer(interpreter, builder)
    part = OnnxGraph(nodes, model.inputs, tuple(TensorType(name, None, None) for name in names))
    try:
        results = tracer.run_nodes(part, values)
    except DmlError as error:
        raise type(error)(*merge_by_operator([*builder.problems, *error.problems])) from None
    sources = builder.outputs(dict(zip(names, results, strict=True)))
    if builder.problems:
        remedy = advise_cut(nodes, names, tracer.refused, tracer.made)
        problems = merge_by_operator(builder.problems)[:100]
        raise Unsupported(*problems, *([] if remedy is None else [Problem((), remedy)]))
    return builder.graph(sources)


def _struct_of_result(name: str, struct: Any) -> jax.ShapeDtypeStruct:
    if not hasattr(struct, "shape") or not hasattr(struct, "dtype"):
        rule = "must be a jax.ShapeDtypeStruct, because a node computes it"
        raise InvalidType(Problem(("shapes", name), rule, show(struct)))
    return jax.ShapeDtypeStruct(struct.shape, jax.dtypes.canonicalize_dtype(struct.dtype))


def _names(outputs: Any, made: Collection[str]) -> tuple[str, ...]:
    if isinstance(outputs, str) or not isinstance(outputs, Iterable):
        raise InvalidType(Problem("outputs", "must be a sequence of names", show(outputs)))
    names = tuple(outputs)
    for name in names:
        known_name("outputs", name, made, "must name results of nodes")
    return names


def _input_structs(
    inputs: Sequence[TensorType], defaults: Sequence[TensorType], shapes: Mapping[str, Any], needed: Collection[str]
) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes and types of the needed inputs; inputs that share an open size need it only once."""
    names = [tensor.name for tensor in (*inputs, *defaults)]
    inputs = [*inputs, *(tensor for tensor in defaults if tensor.name in shapes)]
    for name in shapes:
        if name not in names:
            given = show(name) + did_you_mean(name, names)
            raise InvalidDesc(Problem("shapes", f"must name only inputs, {', '.join(names)}", given))
    open_sizes: OpenSizes = {}
    for tensor in inputs:
        if tensor.name in shapes:
            sizes = integers(("shapes", tensor.name), shapes[tensor.name])
            if not _fits(tensor, sizes, open_sizes):
                raise InvalidDesc(Problem(("shapes", tensor.name), f"must match {tensor}", join_sizes(sizes)))
    known = {name: size for name, (size, _) in open_sizes.items()}
    structs, missing = {}, []
    for tensor in (tensor for tensor in inputs if tensor.name in needed):
        if tensor.dtype is None or tensor.dtype == object:
            raise Unsupported(Problem(("inputs", tensor.name), "must be a tensor of numbers", str(tensor)))
        due = shapes.get(tensor.name, tensor.sizes)
        shape: Any = None if due is None else [known.get(size) if isinstance(size, str) else size for size in due]
        if shape is None or None in shape:
            missing.append(tensor)
        else:
            dtype = jax.dtypes.canonicalize_dtype(tensor.dtype)
            structs[tensor.name] = jax.ShapeDtypeStruct(tuple(map(int, shape)), dtype)
    if missing:
        example = {
            tensor.name: tuple(size if isinstance(size, int) else 1 for size in tensor.sizes or ())
            for tensor in missing
        }
        rule = f"must give the open sizes of {'; '.join(map(str, missing))}"
        raise InvalidDesc(Problem("shapes", rule, remedy=f"shapes={example}, for example"))
    return structs


def _fits(declared: TensorType, sizes: tuple[int, ...], open_sizes: OpenSizes) -> bool:
    """Whether an input can have these sizes, besides the open sizes so far."""
    if declared.sizes is None:
        return True
    has_rank = len(declared.sizes) == len(sizes)
    return has_rank and unify_sizes(declared.name, sizes, declared.sizes, open_sizes) is None


_UNKNOWN = object()  # a result of a node that cannot be traced


class _Tracer(Interpreter):
    """Runs the nodes of a model on views instead of arrays, each in its own trace."""

    def __init__(self, interpreter: Interpreter, builder: "_ModelGraph") -> None:
        super().__init__(interpreter.find, interpreter.maximum_sizes, interpreter.leading)
        self.builder = builder
        self.is_tracing = False
        self.refused: list[Node] = []
        self.made: dict[str, Any] = {}

    def run_node(self, graph: OnnxGraph, index: int, values: dict[str, Any]) -> None:
        if self.is_tracing:  # in a subgraph or a function
            super().run_node(graph, index, values)
            return
        node, known = graph.nodes[index], len(self.builder.problems)
        results = dict.fromkeys(filter(None, node.outputs), _UNKNOWN)
        if all(values[name] is not _UNKNOWN for name in names_read(node)):
            try:
                super().run_node(graph, index, values)
                results = {name: values[name] for name in results}
            except Unsupported as error:
                self.builder.problems += error.problems
        if len(self.builder.problems) > known:
            self.refused.append(node)
        values |= results
        self.made |= results

    def _results(self, graph: OnnxGraph, node: Node, values: Mapping[str, Any]) -> Sequence[Any]:
        if self.is_tracing:  # in a subgraph or a function
            return super()._results(graph, node, values)
        try:
            return self._trace(graph, node, values)
        except NotKnown:
            known = {name: self.builder.known(values[name]) for name in names_read(node)}
            if all(known[name] is values[name] for name in known):
                raise
            return self._trace(graph, node, {**values, **known})

    def _trace(self, graph: OnnxGraph, node: Node, values: Mapping[str, Any]) -> Sequence[Any]:
        leaves, tree = jax.tree.flatten({name: values[name] for name in names_read(node)})
        views = [leaf for leaf in leaves if isinstance(leaf, View)]
        returned: Any = None

        def function(*arrays: Any) -> list[Any]:
            nonlocal returned
            remaining = iter(arrays)
            read = jax.tree.unflatten(tree, [next(remaining) if isinstance(leaf, View) else leaf for leaf in leaves])
            results = super(_Tracer, self)._results(graph, node, {**values, **read})
            wanted = [result if name else None for name, result in zip(node.outputs, results, strict=False)]
            returned = jax.tree.flatten([trace_symbols(value) if has_counts(value) else value for value in wanted])
            return [leaf for leaf in returned[0] if isinstance(leaf, jax.Array)]

        self.is_tracing = True
        try:
            made = iter(self._convert(node.place, function, views))
        except KeyNeeded:
            rule = "no DirectML graph, because DirectML and jax.random draw different numbers"
            raise Unsupported(
                Problem((), rule, remedy="cut the model after it and pass the numbers as an input")
            ) from None
        finally:
            self.is_tracing = False
        results, tree = returned
        restored = [next(made) if isinstance(leaf, jax.Array) else leaf for leaf in results]
        return tuple(jax.tree.unflatten(tree, restored))

    def outputs(self, graph: OnnxGraph, values: Mapping[str, Any]) -> list[Any]:
        """The outputs, with their padding filled."""
        results = zip(graph.output_names, super().outputs(graph, values), strict=True)
        return [self._fill(name, value) if isinstance(value, Padded) else value for name, value in results]

    def _fill(self, name: str, value: Padded) -> View:
        views, tree = jax.tree.flatten(value)
        (filled,) = self._convert(
            ("outputs", name), lambda *arrays: [jax.tree.unflatten(tree, arrays).filled(value.fill)], views
        )
        return filled

    def _convert(self, place: Path, function: Callable[..., Any], views: Sequence[View]) -> Sequence[View]:
        """The results of a function of arrays, as nodes of the graph."""
        with record_calls() as calls:
            closed = jax.make_jaxpr(function)(*(view.struct for view in views))
        return self.builder.convert(place, closed, calls, views)


class _ModelGraph(Converter):
    """The graph of a model while it is built."""

    def known(self, value: Any) -> Any:
        """The elements of a value computed only from constants; other values are returned unchanged."""
        if not isinstance(value, View):
            return value
        if self.is_constant(value):
            return self.value(value)
        part = Assembly()
        part.nodes, part.edges, part.constants = self.nodes, self.edges, self.constants
        part.keep([value.source])
        if not part.nodes or not all(source in self.constants for source in _origins(part)):
            return value
        part.constants = {name: _store(array) for name, array in part.constants.items()}
        result = lower(part.finish({"known": value.source}))()
        return self.value(replace(value, source=self.local_constant(result).source))

    def outputs(self, results: Mapping[str, Any]) -> dict[str, str]:
        """The sources of the outputs."""
        self.place, sources = (), {}
        for name, result in results.items():
            try:
                sources[name] = self._output(name, result)
            except (DmlError, NoOperator) as error:
                several = error.problems if isinstance(error, DmlError) else (Problem((), *error.args),)
                self.problems += (problem.inside(("outputs", name)) for problem in several)
        return sources

    def graph(self, outputs: Mapping[str, str]) -> Graph:
        self.keep(outputs.values())
        self.constants = {name: _store(value) for name, value in self.constants.items()}
        return self.finish(outputs)

    def _output(self, name: str, result: Any) -> str:
        """The source of an output: a node's output with its type and sizes, because files have no views."""
        if isinstance(result, np.ndarray):
            result = self.constant(unused(f"{name} constant", self.constants), np.asarray(as_array(result)))
        if result is _UNKNOWN:
            return ""
        if not isinstance(result, View):
            raise NoOperator("must be a tensor of numbers", type(result).__name__)
        self.name = name
        key, _, field = result.source.rpartition(".")
        desc = self.nodes[key].tensors(is_input=False).get(field) if key in self.nodes else None
        return result.source if result.desc == desc or not result.source else self.pack(result).source


def _origins(part: Assembly) -> Iterator[str]:
    """The sources of a graph that are not outputs of its nodes."""
    return (source for source in part.edges.values() if source.rpartition(".")[0] not in part.nodes)


def _store(value: Any) -> Any:
    """Converts a constant to the form that a graph stores."""
    typed = value.astype(np.uint8) if value.dtype == bool else value
    return typed.reshape(value.shape or (1,))
