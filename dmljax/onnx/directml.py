"""ONNX models as DirectML graphs: what a model computes for fixed sizes, as nodes that are descriptors.

Each ONNX node is traced by itself. The decorator records the calls of dmljax's functions in it, and each call becomes
a descriptor. Between the calls stand a few operations of JAX. A reshape, a transposition or a broadcast only changes
how a buffer is read; the other operations have an operator of DirectML.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from dmljax.calls.decorator import RecordedCall, recorded_calls
from dmljax.checks import integers
from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.graph import Graph
from dmljax.onnx.file import Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.interpreter import Program, as_array
from dmljax.onnx.refusals import told_once
from dmljax.onnx.registry import KeyNeeded
from dmljax.text import did_you_mean, join_sizes, show
from dmljax.to_graph.builder import Builder, NoOperator, unused
from dmljax.to_graph.calls import OperatorCall
from dmljax.to_graph.primitives import MOVES, PRIMITIVES
from dmljax.to_graph.views import View

MAX_EVALUATED = 2**16  # elements of a result that is computed from constants here, unless a constant has more


def directml_graph(
    program: Program,
    model: OnnxGraph,
    inputs: Sequence[TensorType],
    defaults: Sequence[TensorType],
    constants: Mapping[str, Any],
    shapes: Any,
) -> Graph:
    """The DirectML graph of a model whose inputs, and those of the defaults that are named, have these shapes."""
    structs = _input_structs(inputs, defaults, shapes)
    builder = _Converter()
    values: dict[str, Any] = {}
    for name, given in structs.items():
        values[name] = builder.input(name, given)
    for name, value in constants.items():
        if name not in structs:
            values[name] = builder.constant(name, value) if isinstance(value, jax.Array) else value
    tracer = _Tracer(program, builder)
    alive = OnnxGraph(_alive(model), model.inputs, model.outputs)
    try:
        results = tracer.run_nodes(alive, values)
    except DmlError as error:
        raise type(error)(*told_once([*builder.problems, *error.problems])) from None
    return builder.graph(dict(zip(model.output_names, results, strict=True)))


def _input_structs(
    inputs: Sequence[TensorType], defaults: Sequence[TensorType], shapes: Any
) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes and types of the inputs; open sizes of one name are equal, so that one of them is enough."""
    if not isinstance(shapes, Mapping):
        raise InvalidType(Problem("shapes", "must be a mapping from the names of inputs to their sizes", show(shapes)))
    names = [one.name for one in (*inputs, *defaults)]
    inputs = [*inputs, *(one for one in defaults if one.name in shapes)]
    for name in shapes:
        if name not in names:
            given = show(name) + did_you_mean(name, names)
            raise InvalidDesc(Problem("shapes", f"must have names among {', '.join(names)}", given))
    known: dict[str, int] = {}
    for one in inputs:
        if one.name in shapes:
            sizes = integers(("shapes", one.name), shapes[one.name])
            if not _fits(one, sizes, known):
                raise InvalidDesc(Problem(("shapes", one.name), f"must be sizes of {one}", join_sizes(sizes)))
    structs, missing = {}, []
    for one in inputs:
        if one.dtype is None or one.dtype == object:
            raise Unsupported(Problem(("inputs", one.name), "must be a tensor of numbers", str(one)))
        due = shapes.get(one.name, one.sizes)
        shape: Any = None if due is None else [known.get(size) if isinstance(size, str) else size for size in due]
        if shape is None or None in shape:
            missing.append(str(one))
        else:
            structs[one.name] = jax.ShapeDtypeStruct(tuple(map(int, shape)), jax.dtypes.canonicalize_dtype(one.dtype))
    if missing:
        raise InvalidDesc(Problem("shapes", "must have the inputs whose sizes are open", "; ".join(missing)))
    return structs


def _fits(wanted: TensorType, sizes: tuple[int, ...], known: dict[str, int]) -> bool:
    """Whether an input can have these sizes, beside the open ones that are known by name."""
    if wanted.sizes is None:
        return True
    rows = zip(wanted.sizes, sizes, strict=False)
    return len(wanted.sizes) == len(sizes) and all(
        due is None or size == (known.setdefault(due, size) if isinstance(due, str) else due) for due, size in rows
    )


def _alive(model: OnnxGraph) -> tuple[Node, ...]:
    """The nodes that an output needs."""
    needed = set(model.output_names)
    alive = []
    for node in reversed(model.nodes):
        if needed & set(filter(None, node.outputs)):
            alive.append(node)
            needed |= set(names_read(node))
    return tuple(reversed(alive))


class _Tracer(Program):
    """Runs the nodes of a model on views instead of arrays, each in a trace of its own."""

    def __init__(self, program: Program, builder: "_Converter") -> None:
        super().__init__(program.find, program.maximum_sizes)
        self.builder = builder
        self.is_tracing = False

    def _results(self, graph: OnnxGraph, node: Node, values: Mapping[str, Any]) -> Sequence[Any]:
        if self.is_tracing:  # in a subgraph or a function
            return super()._results(graph, node, values)
        leaves, tree = jax.tree.flatten({name: values[name] for name in names_read(node)})
        views = [leaf for leaf in leaves if isinstance(leaf, View)]
        returned: Any = None

        def function(*arrays: Any) -> list[Any]:
            nonlocal returned
            given = iter(arrays)
            read = jax.tree.unflatten(tree, [next(given) if isinstance(leaf, View) else leaf for leaf in leaves])
            results = super(_Tracer, self)._results(graph, node, {**values, **read})
            wanted = [one if name else None for name, one in zip(node.outputs, results, strict=False)]
            returned = jax.tree.flatten(wanted)
            return [one for one in returned[0] if isinstance(one, jax.Array)]

        self.is_tracing = True
        try:
            with recorded_calls() as calls:
                closed = jax.make_jaxpr(function)(*(view.struct for view in views))
        except KeyNeeded:
            rule = "must not draw random numbers: DirectML draws others than jax.random"
            raise Unsupported(
                Problem((), rule, remedy="cut the model behind it, and give the numbers as an input")
            ) from None
        finally:
            self.is_tracing = False
        traced = iter(self.builder.converted(node, closed, calls, views))
        results, tree = returned
        return tuple(jax.tree.unflatten(tree, [next(traced) if isinstance(one, jax.Array) else one for one in results]))


_TRANSPARENT = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


class _Converter(Builder):
    """A graph that grows by the equations of nodes."""

    def converted(self, node: Node, closed: Any, calls: Sequence[RecordedCall], views: Sequence[View]) -> list[View]:
        self.place, self.name = node.place, str(node.place[1])
        by_label = {call.label: call for call in calls}
        return self._evaluated(closed.jaxpr, closed.consts, views, by_label)

    def _evaluated(
        self, jaxpr: Any, constants: Sequence[Any], views: Sequence[View], calls: Mapping[str, RecordedCall]
    ) -> list[View]:
        known: dict[Any, View] = dict(zip(jaxpr.invars, views, strict=True))
        waiting = dict(zip(jaxpr.constvars, constants, strict=True))

        def read(var: Any) -> View:
            if isinstance(var, Literal):
                kind: Any = var.aval
                return replace(self.local_constant(var.val, kind.dtype), is_weak=kind.weak_type)
            if var in waiting:
                known[var] = self.local_constant(waiting.pop(var))
            return known[var]

        for equation in _needed(jaxpr):
            given = [read(var) for var in equation.invars]
            try:
                results = [
                    _seen_as(result, var.aval)
                    for var, result in zip(equation.outvars, self._equation(equation, given, calls), strict=True)
                ]
            except (DmlError, NoOperator) as error:
                self._refuse(equation, error)
                results = [
                    View("", np.dtype(var.aval.dtype), var.aval.shape, (0,) * var.aval.ndim) for var in equation.outvars
                ]
            known |= zip(equation.outvars, results, strict=True)
        return [read(var) for var in jaxpr.outvars]

    def _refuse(self, equation: Any, error: DmlError | NoOperator) -> None:
        operation = str(equation.params.get("name", equation.primitive.name)).partition(":")[0]
        if isinstance(error, DmlError):
            self.problems += (problem.inside((*self.place, operation)) for problem in error.problems)
        else:
            self.problems.append(Problem((*self.place, operation), *error.args))

    def _equation(self, equation: Any, given: list[View], calls: Mapping[str, RecordedCall]) -> Sequence[View]:
        params = equation.params
        call = calls.get(params.get("name", ""))
        outputs = [(var.aval.dtype, var.aval.shape) for var in equation.outvars]
        if call is not None:
            return OperatorCall(self, call, given, outputs).results()
        name = equation.primitive.name
        inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), None)
        if name in _TRANSPARENT and inner is not None:
            jaxpr, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            return self._evaluated(jaxpr, constants, given, calls)
        if name not in MOVES and all(map(self.is_constant, given)):
            most = max([MAX_EVALUATED, *(math.prod(view.sizes) for view in given)])
            if all(math.prod(sizes) <= most for _, sizes in outputs):
                return self._evaluated_now(equation, given)
        if name not in PRIMITIVES:
            raise NoOperator("must be an operation for which DirectML has an operator", name)
        results = PRIMITIVES[name](self, params, outputs, *given)
        return results if isinstance(results, list) else [results]

    def _evaluated_now(self, equation: Any, given: Sequence[View]) -> list[View]:
        with jax.ensure_compile_time_eval():
            results = equation.primitive.bind(*(jax.numpy.asarray(self.value(one)) for one in given), **equation.params)
        several = results if equation.primitive.multiple_results else [results]
        return [self.local_constant(np.asarray(one)) for one in several]

    # The graph

    def graph(self, results: Mapping[str, Any]) -> Graph:
        self.place, outputs = (), {}
        for name, result in results.items():
            try:
                outputs[name] = self._output(name, result)
            except (DmlError, NoOperator) as error:
                several = error.problems if isinstance(error, DmlError) else (Problem((), *error.args),)
                self.problems += (problem.inside(("outputs", name)) for problem in several)
        if self.problems:
            raise Unsupported(*told_once(self.problems)[:100])
        self.keep(outputs.values())
        self.constants = {name: _stored(value) for name, value in self.constants.items()}
        return self.finished(outputs)

    def _output(self, name: str, result: Any) -> str:
        """Where an output comes from: an output of a node that has its type and sizes, as files have no views."""
        if isinstance(result, np.ndarray):
            result = self.constant(unused(name, {**self.inputs, **self.constants}), np.asarray(as_array(result)))
        if not isinstance(result, View):
            raise NoOperator("must be a tensor of numbers", type(result).__name__)
        self.name = name
        key, _, field = result.source.rpartition(".")
        own = self.nodes[key].tensors(is_input=False).get(field) if key in self.nodes else None
        return result.source if result.desc == own or not result.source else self.packed(result).source


def _seen_as(view: View, wanted: Any) -> View:
    """A result as the equation has it: truth values are bytes, and signs may have been left to the reader."""
    if view.sizes != wanted.shape or view.dtype.itemsize != wanted.dtype.itemsize:
        raise NoOperator(f"must have the type and shape of {wanted}", f"{view.dtype.name} {join_sizes(view.sizes)}")
    return replace(view, dtype=np.dtype(wanted.dtype), is_weak=wanted.weak_type)


def _stored(value: Any) -> Any:
    """A constant as a graph has it."""
    typed = value.astype(np.uint8) if value.dtype == bool else value
    return typed.reshape(value.shape or (1,))


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that an output needs."""
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    equations = []
    for equation in reversed(jaxpr.eqns):
        if needed & set(equation.outvars):
            equations.append(equation)
            needed |= {var for var in equation.invars if not isinstance(var, Literal)}
    return equations[::-1]
