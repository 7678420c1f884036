"""ONNX models as DirectML graphs: what a model computes for fixed sizes, as nodes that are descriptors.

Each ONNX node is traced by itself. Of the calls of dmljax's functions in it the decorator keeps a record, from which
the descriptors are made; between them stand a few operations of JAX. Those that move nothing but sizes and strides, as
a reshape, a transposition or a broadcast, change how a buffer is read; the others have an operator of DirectML.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import Literal

import dmljax as dml
from dmljax.calls.decorator import RecordedCall, recorded_calls
from dmljax.checks import integers
from dmljax.descriptors.base import OPERATOR_PREFIX, OPERATORS, Member, Operator
from dmljax.descriptors.members import Array, Enumeration, Struct
from dmljax.descriptors.validation import problems
from dmljax.errors import DmlError, InvalidDesc, InvalidType, Path, Problem, Unsupported
from dmljax.graph import Graph
from dmljax.onnx.file import Graph as Model, Node, TensorType, names_read
from dmljax.onnx.interpreter import Program, as_array
from dmljax.scalars import ScaleBias
from dmljax.tensor import TensorDesc, packed_strides
from dmljax.text import did_you_mean, join_sizes, show
from dmljax.types import LATEST, DataType, FeatureLevel

MAX_EVALUATED = 2**16  # elements of what is computed of constants here, unless these have as many


def directml_graph(
    program: Program, model: Model, inputs: Sequence[TensorType], constants: Mapping[str, Any], shapes: Any
) -> Graph:
    """The DirectML graph of a model whose inputs have these shapes."""
    structs = _input_structs(inputs, shapes)
    builder = _Builder()
    values: dict[str, Any] = {}
    for name, given in structs.items():
        values[name] = builder.input(name, given)
    for name, value in constants.items():
        values[name] = builder.constant(name, value) if isinstance(value, jax.Array) else value
    tracer = _Tracer(program, builder)
    alive = Model(_alive(model), model.inputs, model.outputs)
    try:
        results = tracer.run_nodes(alive, values)
    except DmlError as error:
        raise type(error)(*builder.problems, *error.problems) from None
    return builder.finished(dict(zip(model.output_names, results, strict=True)))


def _input_structs(inputs: Sequence[TensorType], shapes: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes and types of the inputs; open sizes of one name are equal, so that one of them is enough."""
    if not isinstance(shapes, Mapping):
        raise InvalidType(Problem("shapes", "must be a mapping from the names of inputs to their sizes", show(shapes)))
    names = [one.name for one in inputs]
    for name in shapes:
        if name not in names:
            given = show(name) + did_you_mean(name, names)
            raise InvalidDesc(Problem("shapes", f"must have names among {', '.join(names)}", given))
    known: dict[str, int] = {}
    for one in inputs:
        if one.name not in shapes:
            continue
        given = integers(("shapes", one.name), shapes[one.name])
        wanted = given if one.sizes is None else one.sizes
        rows = list(zip(wanted, given, strict=False))
        fits = len(wanted) == len(given) and all(due in (None, size) for due, size in rows if not isinstance(due, str))
        if not fits or any(known.setdefault(due, size) != size for due, size in rows if isinstance(due, str)):
            raise InvalidDesc(Problem(("shapes", one.name), f"must be sizes of {one}", join_sizes(given)))
    structs, missing = {}, []
    for one in inputs:
        if one.dtype is None or one.dtype == object:
            raise Unsupported(Problem(("inputs", one.name), "must be a tensor of numbers", str(one)))
        sizes = shapes.get(one.name)
        if sizes is None and one.sizes is not None:
            sizes = [known.get(size) if isinstance(size, str) else size for size in one.sizes]
        if sizes is None or None in sizes:
            missing.append(str(one))
        else:
            dtype = jax.dtypes.canonicalize_dtype(one.dtype)
            structs[one.name] = jax.ShapeDtypeStruct(tuple(map(int, sizes)), dtype)
    if missing:
        raise InvalidDesc(Problem("shapes", "must have the inputs whose sizes are open", "; ".join(missing)))
    return structs


def _alive(model: Model) -> tuple[Node, ...]:
    """The nodes that an output needs."""
    needed = set(model.output_names)
    alive = []
    for node in reversed(model.nodes):
        if needed & set(filter(None, node.outputs)):
            alive.append(node)
            needed |= set(names_read(node))
    return tuple(reversed(alive))


# Values


@dataclass(frozen=True)
class _View:
    """How an array lies in the buffer of an input, a constant or an output of a node."""

    source: str
    dtype: np.dtype[Any]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    is_weak: bool = False

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(self.sizes, self.dtype, weak_type=self.is_weak)

    @property
    def desc(self) -> TensorDesc:
        whole = _desc(self.dtype, self.sizes)
        strided = TensorDesc(whole.data_type, whole.sizes, self.strides or (1,))
        return whole if strided.is_packed else strided

    @property
    def is_packed(self) -> bool:
        steps = zip(self.sizes, self.strides, packed_strides(self.sizes), strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in steps)

    def transposed(self, axes: Sequence[int]) -> "_View":
        return replace(self, sizes=tuple(self.sizes[i] for i in axes), strides=tuple(self.strides[i] for i in axes))

    def placed(self, sizes: Sequence[int], axes: Sequence[int]) -> "_View":
        """As `lax.broadcast_in_dim`: dimension `i` becomes `axes[i]`, and the others repeat what there is."""
        strides = [0] * len(sizes)
        for axis, size, stride in zip(axes, self.sizes, self.strides, strict=True):
            strides[axis] = stride if size == sizes[axis] else 0
        return replace(self, sizes=tuple(sizes), strides=tuple(strides))

    def broadcast(self, sizes: Sequence[int]) -> "_View":
        """As NumPy broadcasts."""
        return self.placed(sizes, range(len(sizes) - len(self.sizes), len(sizes)))

    def reshaped(self, sizes: Sequence[int]) -> "_View | None":
        """The same elements in the same order, unless no strides reach them."""
        if 0 in sizes:
            return replace(self, sizes=tuple(sizes), strides=packed_strides(sizes))
        runs: list[tuple[int, int]] = []  # dimensions that are one, as the elements lie
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size > 1 and runs and runs[-1][1] == size * stride:
                runs[-1] = (runs[-1][0] * size, stride)
            elif size > 1:
                runs.append((size, stride))
        strides: list[int] = []
        count, stride = 1, 1
        for size in reversed(sizes):
            if size > 1 and count == 1:
                count, stride = runs.pop()
            if count % size:
                return None
            strides.append(stride)
            count, stride = count // size, stride * size
        return replace(self, sizes=tuple(sizes), strides=tuple(reversed(strides)))


def _desc(dtype: Any, sizes: Sequence[int]) -> TensorDesc:
    """A packed tensor: DirectML has a byte for a truth value, and one dimension at least."""
    name = "UINT8" if dtype == bool else np.dtype(dtype).name.upper()
    if name not in DataType.__members__:
        raise Unsupported(Problem((), "must be of a data type that DirectML has", name.lower()))
    if 0 in sizes:
        raise Unsupported(Problem((), "must not be empty, as no tensor of DirectML is", join_sizes(sizes)))
    return TensorDesc(name, tuple(sizes) or (1,))


class _Tracer(Program):
    """Runs the nodes of a model on views instead of arrays, each in a trace of its own."""

    def __init__(self, program: Program, builder: "_Builder") -> None:
        super().__init__(program.find, program.maximum_sizes)
        self.builder = builder
        self.is_tracing = False

    def _results(self, node: Node, values: Mapping[str, Any]) -> Sequence[Any]:
        if self.is_tracing:  # in a subgraph or a function
            return super()._results(node, values)
        leaves, tree = jax.tree.flatten({name: values[name] for name in names_read(node)})
        views = [leaf for leaf in leaves if isinstance(leaf, _View)]
        returned: Any = None

        def function(*arrays: Any) -> list[Any]:
            nonlocal returned
            given = iter(arrays)
            read = tree.unflatten([next(given) if isinstance(leaf, _View) else leaf for leaf in leaves])
            results = super(_Tracer, self)._results(node, {**values, **read})
            wanted = [one if name else None for name, one in zip(node.outputs, results, strict=False)]
            returned = jax.tree.flatten(wanted)
            return [one for one in returned[0] if isinstance(one, jax.Array)]

        self.is_tracing = True
        try:
            with recorded_calls() as calls:
                closed = jax.make_jaxpr(function)(*(view.struct for view in views))
        finally:
            self.is_tracing = False
        traced = iter(self.builder.converted(node, closed, calls, views))
        results, tree = returned
        return tuple(tree.unflatten([next(traced) if isinstance(one, jax.Array) else one for one in results]))


class _NoOperator(Exception):
    """An operation has no operator of DirectML: the rule that it breaks, and what there is."""


class _Builder:
    """A graph as it grows."""

    def __init__(self) -> None:
        self.nodes: dict[str, Operator] = {}
        self.edges: dict[str, str] = {}
        self.inputs: dict[str, TensorDesc] = {}
        self.arrays: dict[str, Any] = {}  # constants, of which the graph keeps those that are read
        self.problems: list[Problem] = []
        self.place: Path = ()
        self.name = ""

    # What views are of

    def input(self, name: str, struct: jax.ShapeDtypeStruct) -> _View:
        try:
            self.inputs[name] = _desc(struct.dtype, struct.shape)
        except DmlError as error:
            self.problems += (problem.inside(("inputs", name)) for problem in error.problems)
        return _View(name, np.dtype(struct.dtype), struct.shape, packed_strides(struct.shape))

    def constant(self, name: str, value: Any) -> _View:
        is_weak = getattr(value, "weak_type", False)
        self.arrays[name] = value
        return _View(name, np.dtype(value.dtype), value.shape, packed_strides(value.shape), is_weak)

    def local_constant(self, value: Any, dtype: Any = None) -> _View:
        given = value if isinstance(value, jax.Array) else np.asarray(value, dtype)
        return self.constant(_unused(f"{self.name} constant", self.arrays), given)

    def is_constant(self, view: _View) -> bool:
        return view.source in self.arrays

    def value(self, view: _View) -> np.ndarray[Any, Any]:
        """The elements of a constant."""
        flat = np.ascontiguousarray(self.arrays[view.source]).ravel()
        strides = [stride * flat.itemsize for stride in view.strides]
        return np.lib.stride_tricks.as_strided(flat, view.sizes, strides).astype(view.dtype)

    def number(self, name: str, given: Any) -> Any:
        """A number that DirectML has in a descriptor, not in a tensor."""
        if not isinstance(given, _View):
            return given
        if not self.is_constant(given) or math.prod(given.sizes) != 1:
            raise _NoOperator(f"must have a known number as {name}", f"an array of {join_sizes(given.sizes) or 'one'}")
        return self.value(given).item()

    # Nodes

    def add(
        self,
        operator: type[Operator],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        suffix: str = "",
        **attributes: Any,
    ) -> list[_View]:
        """Adds a node that reads views, and lists of views, and returns views of its outputs.

        `outputs` are their types and sizes; the views that are returned have all sizes as they are there.
        """
        read = {key: one for key, one in inputs.items() if one is not None}
        written = {key: one for key, one in outputs.items() if one is not None}
        members = {
            key: [one.desc for one in given] if isinstance(given, list) else given.desc for key, given in read.items()
        }
        members |= {
            key: [_desc(*one) for one in given] if isinstance(given, list) else _desc(*given)
            for key, given in written.items()
        }
        desc = operator(**members, **attributes)
        broken = problems(desc, LATEST)
        if broken:
            raise InvalidDesc(*broken)
        name = _unused(self.name + suffix, self.nodes)
        self.nodes[name] = desc
        for key, given in read.items():
            if isinstance(given, list):
                self.edges |= {f"{name}.{key}[{i}]": one.source for i, one in enumerate(given)}
            else:
                self.edges[f"{name}.{key}"] = given.source
        views = []
        for key, given in written.items():
            several = enumerate(given) if isinstance(given, list) else [(None, given)]
            for i, (dtype, sizes) in several:
                source = f"{name}.{key}" if i is None else f"{name}.{key}[{i}]"
                views.append(_View(source, np.dtype(dtype), tuple(sizes), packed_strides(sizes)))
        return views

    def elementwise(
        self, operator: type[Operator], *inputs: _View, dtype: Any = None, suffix: str = "", **attributes: Any
    ) -> _View:
        """A node whose inputs broadcast to its output."""
        sizes = np.broadcast_shapes(*(view.sizes for view in inputs))
        fields = [one.field for one in operator.members() if one.tensor_kind and one.tensor_kind.is_input]
        given = {key: view.broadcast(sizes) for key, view in zip(fields, inputs, strict=False)}
        output = {"output": (inputs[-1].dtype if dtype is None else dtype, sizes)}
        return self.add(operator, given, output, suffix, **attributes)[0]

    def packed(self, view: _View) -> _View:
        """The elements of a view in a buffer of their own."""
        return self.elementwise(dml.ElementWiseIdentityDesc, view, suffix=" identity")

    def reshaped(self, view: _View, sizes: Sequence[int]) -> _View:
        moved = view.reshaped(sizes)
        if moved is None:
            moved = self.packed(view).reshaped(sizes)
        assert moved is not None  # packed elements can have any sizes
        return moved

    def cast(self, view: _View, dtype: Any) -> _View:
        dtype = np.dtype(dtype)
        if view.dtype == dtype or (view.dtype == bool and dtype == np.uint8):
            return replace(view, dtype=dtype)
        if dtype == bool:  # a CAST to UINT8 has other numbers than 0 and 1
            return self.logical_not(self.elementwise(dml.ElementWiseLogicalEqualsDesc, view, self.zero(view), dtype=bool))
        return self.elementwise(dml.CastDesc, view, dtype=dtype)

    def zero(self, view: _View) -> _View:
        return self.local_constant(0, np.uint8 if view.dtype == bool else view.dtype)

    def logical_not(self, view: _View) -> _View:
        return self.elementwise(dml.ElementWiseLogicalNotDesc, view, dtype=bool)

    # The equations of a node

    def converted(self, node: Node, closed: Any, calls: Sequence[RecordedCall], views: Sequence[_View]) -> list[_View]:
        self.place, self.name = node.place, str(node.place[1])
        by_label = {call.label: call for call in calls}
        return self._evaluated(closed.jaxpr, closed.consts, views, by_label)

    def _evaluated(
        self, jaxpr: Any, constants: Sequence[Any], views: Sequence[_View], calls: Mapping[str, RecordedCall]
    ) -> list[_View]:
        known = dict(zip(jaxpr.invars, views, strict=True))
        waiting = dict(zip(jaxpr.constvars, constants, strict=True))

        def read(var: Any) -> _View:
            if isinstance(var, Literal):
                return replace(self.local_constant(var.val, var.aval.dtype), is_weak=var.aval.weak_type)
            if var in waiting:
                known[var] = self.local_constant(waiting.pop(var))
            return known[var]

        for equation in _needed(jaxpr):
            given = [read(var) for var in equation.invars]
            try:
                results = self._equation(equation, given, calls)
            except (DmlError, _NoOperator) as error:
                self._refuse(equation, error)
                results = [_View("", var.aval.dtype, var.aval.shape, (0,) * var.aval.ndim) for var in equation.outvars]
            for var, result in zip(equation.outvars, results, strict=True):
                known[var] = replace(result, dtype=np.dtype(var.aval.dtype), is_weak=var.aval.weak_type)
        return [read(var) for var in jaxpr.outvars]

    def _refuse(self, equation: Any, error: DmlError | _NoOperator) -> None:
        operation = str(equation.params.get("name", equation.primitive.name)).partition(":")[0]
        if isinstance(error, DmlError):
            self.problems += (problem.inside((*self.place, operation)) for problem in error.problems)
        else:
            self.problems.append(Problem((*self.place, operation), *error.args))

    def _equation(self, equation: Any, given: list[_View], calls: Mapping[str, RecordedCall]) -> Sequence[_View]:
        params = equation.params
        call = calls.get(params.get("name", ""))
        outputs = [(var.aval.dtype, var.aval.shape) for var in equation.outvars]
        if call is not None:
            return _Call(self, call, given, outputs).results()
        name = equation.primitive.name
        inner = next((params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params), None)
        if name in _TRANSPARENT and inner is not None:
            jaxpr, constants = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
            return self._evaluated(jaxpr, constants, given, calls)
        if name not in _MOVES and all(map(self.is_constant, given)):
            most = max([MAX_EVALUATED, *(math.prod(view.sizes) for view in given)])
            if all(math.prod(sizes) <= most for _, sizes in outputs):
                return self._evaluated_now(equation, given)
        if name not in _PRIMITIVES:
            raise _NoOperator("must be an operation for which DirectML has an operator", name)
        results = _PRIMITIVES[name](self, params, outputs, *given)
        return results if isinstance(results, list) else [results]

    def _evaluated_now(self, equation: Any, given: Sequence[_View]) -> list[_View]:
        with jax.ensure_compile_time_eval():
            results = equation.primitive.bind(*(jax.numpy.asarray(self.value(one)) for one in given), **equation.params)
        several = results if equation.primitive.multiple_results else [results]
        return [self.local_constant(np.asarray(one)) for one in several]

    # The graph

    def finished(self, results: Mapping[str, Any]) -> Graph:
        self.place, outputs = (), {}
        for name, result in results.items():
            try:
                outputs[name] = self._output(name, result)
            except (DmlError, _NoOperator) as error:
                several = error.problems if isinstance(error, DmlError) else (Problem((), *error.args),)
                self.problems += (problem.inside(("outputs", name)) for problem in several)
        if self.problems:
            raise Unsupported(*self.problems[:100])
        read = {*self.edges.values()}
        constants = {name: _stored(value) for name, value in self.arrays.items() if name in read}
        return Graph(nodes=self.nodes, edges=self.edges, inputs=self.inputs, outputs=outputs, constants=constants)

    def _output(self, name: str, result: Any) -> str:
        """Where an output comes from: an output of a node that has its type and sizes, as files have no views."""
        if isinstance(result, np.ndarray):
            result = self.constant(_unused(name, {**self.inputs, **self.arrays}), np.asarray(as_array(result)))
        if not isinstance(result, _View):
            raise _NoOperator("must be a tensor of numbers", type(result).__name__)
        self.name = name
        key, _, field = result.source.rpartition(".")
        own = self.nodes[key].tensors(is_input=False).get(field) if key in self.nodes else None
        return result.source if result.desc == own or not result.source else self.packed(result).source


def _unused(name: str, names: Mapping[str, Any]) -> str:
    if name not in names:
        return name
    return next(new for i in itertools.count(2) if (new := f"{name} {i}") not in names)


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


# Operations of JAX

_TRANSPARENT = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}
_MOVES = {"reshape", "squeeze", "transpose", "broadcast_in_dim", "expand_dims", "copy", "stop_gradient"}
_Output = tuple[Any, tuple[int, ...]]
_PRIMITIVES: dict[str, Callable[..., Any]] = {}


def _of(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function that which converts the equations of these primitives."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return register


@_of("reshape", "squeeze", "expand_dims")
def _reshape(builder: _Builder, params: Any, outputs: Sequence[_Output], x: _View, *_: Any) -> _View:
    return builder.reshaped(x, outputs[0][1])


@_of("transpose")
def _transpose(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    return x.transposed(params["permutation"])


@_of("broadcast_in_dim")
def _broadcast_in_dim(builder: _Builder, params: Any, outputs: Sequence[_Output], x: _View, *_: Any) -> _View:
    return x.placed(outputs[0][1], params["broadcast_dimensions"])


@_of("copy", "copy_p", "stop_gradient", "sharding_constraint", "optimization_barrier", "reduce_precision")
def _same(builder: _Builder, params: Any, outputs: Any, *views: _View) -> list[_View]:
    return [*views]


@_of("convert_element_type")
def _convert(builder: _Builder, params: Any, outputs: Sequence[_Output], x: _View, *_: Any) -> _View:
    return builder.cast(x, outputs[0][0])


_ELEMENTWISE: dict[str, type[Operator]] = {
    "abs": dml.ElementWiseAbsDesc,
    "acos": dml.ElementWiseAcosDesc,
    "acosh": dml.ElementWiseAcoshDesc,
    "add": dml.ElementWiseAddDesc,
    "add_any": dml.ElementWiseAddDesc,
    "asin": dml.ElementWiseAsinDesc,
    "asinh": dml.ElementWiseAsinhDesc,
    "atan": dml.ElementWiseAtanDesc,
    "atan2": dml.ElementWiseAtanYxDesc,
    "atanh": dml.ElementWiseAtanhDesc,
    "ceil": dml.ElementWiseCeilDesc,
    "cos": dml.ElementWiseCosDesc,
    "cosh": dml.ElementWiseCoshDesc,
    "div": dml.ElementWiseDivideDesc,
    "erf": dml.ElementWiseErfDesc,
    "exp": dml.ElementWiseExpDesc,
    "floor": dml.ElementWiseFloorDesc,
    "log": dml.ElementWiseLogDesc,
    "logistic": dml.ActivationSigmoidDesc,
    "max": dml.ElementWiseMaxDesc,
    "min": dml.ElementWiseMinDesc,
    "mul": dml.ElementWiseMultiplyDesc,
    "neg": dml.ElementWiseNegateDesc,
    "pow": dml.ElementWisePowDesc,
    "rem": dml.ElementWiseModulusTruncateDesc,
    "shift_left": dml.ElementWiseBitShiftLeftDesc,
    "shift_right_logical": dml.ElementWiseBitShiftRightDesc,
    "sign": dml.ElementWiseSignDesc,
    "sin": dml.ElementWiseSinDesc,
    "sinh": dml.ElementWiseSinhDesc,
    "sqrt": dml.ElementWiseSqrtDesc,
    "sub": dml.ElementWiseSubtractDesc,
    "tan": dml.ElementWiseTanDesc,
    "tanh": dml.ActivationTanhDesc,
}
_LOGICAL: dict[str, tuple[type[Operator], type[Operator]]] = {
    "and": (dml.ElementWiseLogicalAndDesc, dml.ElementWiseBitAndDesc),
    "not": (dml.ElementWiseLogicalNotDesc, dml.ElementWiseBitNotDesc),
    "or": (dml.ElementWiseLogicalOrDesc, dml.ElementWiseBitOrDesc),
    "xor": (dml.ElementWiseLogicalXorDesc, dml.ElementWiseBitXorDesc),
}
_COMPARISONS: dict[str, type[Operator]] = {
    "eq": dml.ElementWiseLogicalEqualsDesc,
    "ge": dml.ElementWiseLogicalGreaterThanOrEqualDesc,
    "gt": dml.ElementWiseLogicalGreaterThanDesc,
    "le": dml.ElementWiseLogicalLessThanOrEqualDesc,
    "lt": dml.ElementWiseLogicalLessThanDesc,
}


def _elementwise(operator: type[Operator]) -> Callable[..., Any]:
    return lambda builder, params, outputs, *views: builder.elementwise(operator, *views, dtype=outputs[0][0])


def _logical(truth: type[Operator], bits: type[Operator]) -> Callable[..., Any]:
    def convert(builder: _Builder, params: Any, outputs: Sequence[_Output], *views: _View) -> _View:
        return builder.elementwise(truth if views[0].dtype == bool else bits, *views, dtype=outputs[0][0])

    return convert


for _name, _operator in (_ELEMENTWISE | _COMPARISONS).items():
    _of(_name)(_elementwise(_operator))
for _name, _operators in _LOGICAL.items():
    _of(_name)(_logical(*_operators))


@_of("ne")
def _ne(builder: _Builder, params: Any, outputs: Any, a: _View, b: _View) -> _View:
    return builder.logical_not(builder.elementwise(dml.ElementWiseLogicalEqualsDesc, a, b, dtype=bool))


@_of("square")
def _square(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    return builder.elementwise(dml.ElementWiseMultiplyDesc, x, x)


@_of("integer_pow")
def _integer_pow(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    return builder.elementwise(dml.ElementWiseConstantPowDesc, x, exponent=params["y"])


@_of("rsqrt")
def _rsqrt(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    return builder.elementwise(dml.ElementWiseRecipDesc, builder.elementwise(dml.ElementWiseSqrtDesc, x))


@_of("round")
def _round(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    is_even = params["rounding_method"] is lax.RoundingMethod.TO_NEAREST_EVEN
    mode = dml.RoundingMode.HALVES_TO_NEAREST_EVEN if is_even else dml.RoundingMode.HALVES_AWAY_FROM_ZERO
    return builder.elementwise(dml.ElementWiseRoundDesc, x, rounding_mode=mode)


@_of("is_finite")
def _is_finite(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    mode = dml.IsInfinityMode.EITHER
    infinite = builder.elementwise(dml.ElementWiseIsInfinityDesc, x, dtype=bool, infinity_mode=mode)
    nan = builder.elementwise(dml.ElementWiseIsNanDesc, x, dtype=bool)
    return builder.logical_not(builder.elementwise(dml.ElementWiseLogicalOrDesc, infinite, nan, dtype=bool))


@_of("clamp")
def _clamp(builder: _Builder, params: Any, outputs: Any, low: _View, x: _View, high: _View) -> _View:
    return builder.elementwise(dml.ElementWiseMinDesc, builder.elementwise(dml.ElementWiseMaxDesc, x, low), high)


@_of("select_n")
def _select(builder: _Builder, params: Any, outputs: Any, which: _View, *cases: _View) -> _View:
    if which.dtype != bool:
        raise _NoOperator("must choose between two by a truth value", f"{len(cases)} by {which.dtype}")
    return builder.elementwise(dml.ElementWiseIfDesc, which, *cases[::-1])


def _reduction(function: dml.ReduceFunction) -> Callable[..., Any]:
    def convert(builder: _Builder, params: Any, outputs: Sequence[_Output], x: _View, *_: Any) -> _View:
        kept = [1 if i in params["axes"] else size for i, size in enumerate(x.sizes)]
        if not params["axes"]:
            return x
        output = {"output": (outputs[0][0], kept)}
        (result,) = builder.add(dml.ReduceDesc, {"input": x}, output, function=function, axes=params["axes"])
        return builder.reshaped(result, outputs[0][1])

    return convert


for _name, _function in (
    ("argmax", dml.ReduceFunction.ARGMAX),
    ("argmin", dml.ReduceFunction.ARGMIN),
    ("reduce_and", dml.ReduceFunction.MIN),
    ("reduce_max", dml.ReduceFunction.MAX),
    ("reduce_min", dml.ReduceFunction.MIN),
    ("reduce_or", dml.ReduceFunction.MAX),
    ("reduce_prod", dml.ReduceFunction.MULTIPLY),
    ("reduce_sum", dml.ReduceFunction.SUM),
):
    _of(_name)(_reduction(_function))


@_of("cumsum")
def _cumsum(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    direction = dml.AxisDirection(params["reverse"])
    members = {"axis": params["axis"], "axis_direction": direction, "has_exclusive_sum": False}
    return builder.add(dml.CumulativeSummationDesc, {"input": x}, {"output": outputs[0]}, **members)[0]


@_of("cumprod")
def _cumprod(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    direction = dml.AxisDirection(params["reverse"])
    members = {"axis": params["axis"], "axis_direction": direction, "has_exclusive_product": False}
    return builder.add(dml.CumulativeProductDesc, {"input": x}, {"output": outputs[0]}, **members)[0]


@_of("concatenate")
def _concatenate(builder: _Builder, params: Any, outputs: Any, *views: _View) -> _View:
    return builder.add(dml.JoinDesc, {"inputs": [*views]}, {"output": outputs[0]}, axis=params["dimension"])[0]


@_of("split")
def _split(builder: _Builder, params: Any, outputs: Any, x: _View) -> list[_View]:
    return builder.add(dml.SplitDesc, {"input": x}, {"outputs": outputs}, axis=params["axis"])


def _sliced(
    builder: _Builder, x: _View, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int], output: _Output
) -> _View:
    members = {"input_window_offsets": starts, "input_window_sizes": sizes, "input_window_strides": strides}
    return builder.add(dml.Slice1Desc, {"input": x}, {"output": output}, **members)[0]


@_of("slice")
def _slice(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    starts, strides = params["start_indices"], params["strides"] or (1,) * len(x.sizes)
    sizes = [limit - start for start, limit in zip(starts, params["limit_indices"], strict=True)]
    if not any(starts) and x.is_packed and set(strides) == {1} and tuple(sizes[1:]) == x.sizes[1:]:
        return replace(x, sizes=tuple(sizes))  # the first rows
    return _sliced(builder, x, starts, sizes, strides, outputs[0])


@_of("dynamic_slice")
def _dynamic_slice(builder: _Builder, params: Any, outputs: Any, x: _View, *starts: _View) -> _View:
    sizes = params["slice_sizes"]
    known = [int(builder.number("start", one)) for one in starts]
    rows = zip(known, x.sizes, sizes, strict=True)
    return _sliced(builder, x, [min(max(at, 0), most - size) for at, most, size in rows], sizes, [1] * len(sizes), outputs[0])


@_of("rev")
def _reverse(builder: _Builder, params: Any, outputs: Any, x: _View) -> _View:
    strides = [-1 if i in params["dimensions"] else 1 for i in range(len(x.sizes))]
    return _sliced(builder, x, [0] * len(x.sizes), x.sizes, strides, outputs[0])


@_of("pad")
def _pad(builder: _Builder, params: Any, outputs: Any, x: _View, value: _View) -> _View:
    if any(inner for _, _, inner in params["padding_config"]):
        raise _NoOperator("must not have padding between elements", params["padding_config"])
    return _padded(
        builder,
        x,
        [low for low, _, _ in params["padding_config"]],
        [high for _, high, _ in params["padding_config"]],
        dml.PaddingMode.CONSTANT,
        builder.number("padding_value", value),
    )


def _padded(
    builder: _Builder, x: _View, start: Sequence[int], end: Sequence[int], mode: dml.PaddingMode, value: Any
) -> _View:
    """Padding; negative amounts, which DirectML has not, are taken away first."""
    if min(*start, *end) < 0:
        offsets = [max(-low, 0) for low in start]
        cut = [size + min(low, 0) + min(high, 0) for size, low, high in zip(x.sizes, start, end, strict=True)]
        x = _sliced(builder, x, offsets, cut, [1] * len(cut), (x.dtype, tuple(cut)))
    start, end = ([max(one, 0) for one in amounts] for amounts in (start, end))
    sizes = [low + size + high for low, size, high in zip(start, x.sizes, end, strict=True)]
    members = {"padding_value_data_type": _desc(x.dtype, (1,)).data_type, "padding_value": value}
    padding = {"padding_mode": mode, "start_padding": start, "end_padding": end}
    return builder.add(dml.Padding1Desc, {"input": x}, {"output": (x.dtype, sizes)}, **members, **padding)[0]


@_of("iota")
def _iota(builder: _Builder, params: Any, outputs: Sequence[_Output]) -> _View:
    dtype, sizes = outputs[0]
    axis = params["dimension"]
    members = {"value_data_type": _desc(dtype, (1,)).data_type, "value_start": 0, "value_delta": 1}
    (row,) = builder.add(dml.FillValueSequenceDesc, {}, {"output": (dtype, (sizes[axis],))}, **members)
    return row.placed(sizes, [axis])


@_of("dot_general")
def _dot_general(builder: _Builder, params: Any, outputs: Sequence[_Output], a: _View, b: _View) -> _View:
    (a_summed, b_summed), (a_batch, b_batch) = params["dimension_numbers"]
    a_rest = [i for i in range(len(a.sizes)) if i not in (*a_summed, *a_batch)]
    b_rest = [i for i in range(len(b.sizes)) if i not in (*b_summed, *b_batch)]

    def count(view: _View, axes: Sequence[int]) -> int:
        return math.prod(view.sizes[i] for i in axes)

    batch, inner = [a.sizes[i] for i in a_batch], count(a, a_summed)
    left = builder.reshaped(a.transposed([*a_batch, *a_rest, *a_summed]), [*batch, count(a, a_rest), inner])
    right = builder.reshaped(b.transposed([*b_batch, *b_summed, *b_rest]), [*batch, inner, count(b, b_rest)])
    dtype, sizes = outputs[0]
    result = _product(builder, dml.GemmDesc, left, right, dtype, {}, {}, **_GEMM)
    return builder.reshaped(result, sizes)


_GEMM: dict[str, Any] = {"trans_a": 0, "trans_b": 0, "alpha": 1.0, "beta": 1.0}


# Calls of dmljax's functions

# The arguments of functions that are no members of the same name.
_ARGUMENTS = {
    "activation_descs": "activations",
    "input_window_offsets": "starts",
    "input_window_sizes": "sizes",
    "input_window_strides": "strides",
    "offsets": "starts",
    "trans_a": "transpose_a",
    "trans_b": "transpose_b",
    "window_size": "window_sizes",
}
_ABSENT = {  # the outputs that there are not if an argument is false
    "has_indices": ("output_indices",),
    "has_present": ("output_present_key", "output_present_value"),
    "has_sequence": ("output_sequence",),
}
_SPATIAL = {  # images, of at least two dimensions of space
    "AVERAGE_POOLING",
    "AVERAGE_POOLING1",
    "CONVOLUTION",
    "CONVOLUTION_INTEGER",
    "LOCAL_RESPONSE_NORMALIZATION",
    "LP_POOLING",
    "LP_POOLING1",
    "MAX_POOLING",
    "MAX_POOLING1",
    "MAX_POOLING2",
    "MAX_UNPOOLING",
    "QUANTIZED_LINEAR_AVERAGE_POOLING",
    "QUANTIZED_LINEAR_CONVOLUTION",
}
_NO_SPACE = {"strides": 1, "dilations": 1, "window_size": 1, "start_padding": 0, "end_padding": 0, "output_padding": 0}
_IMAGES = {"input", "filter", "indices", "output", "output_indices"}
_PRODUCTS = {
    "GEMM",
    "MATRIX_MULTIPLY_INTEGER",
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT",
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY",
}
_COUNTS = {"indices", "sequence_lengths", "batch_indices", "past_sequence_lengths"}  # which functions take of any type


class _Call:
    """A call of one of dmljax's functions, as a node."""

    def __init__(
        self, builder: _Builder, call: RecordedCall, given: Sequence[_View], outputs: Sequence[_Output]
    ) -> None:
        self.builder = builder
        self.operator = OPERATORS[f"{OPERATOR_PREFIX}{call.operator.upper()}"]
        values = tuple(call.arrays.values())
        shapes = [np.shape(one) for one in jax.tree.leaves(values)]
        if shapes != [view.sizes for view in given]:
            raise _NoOperator("must be called with the arrays of the node", "a call under jax.vmap")
        read = jax.tree.structure(values).unflatten(given)
        self.arrays: dict[str, Any] = dict(zip(call.arrays, read, strict=True))
        self.statics = call.statics
        self.outputs = list(outputs)

    @property
    def name(self) -> str:
        return self.operator.short_name

    @property
    def level(self) -> Any:
        return self.operator.support[max(self.operator.support)]

    def results(self) -> list[_View]:
        special = _SPECIAL.get(self.name)
        if special is not None:
            return special(self)
        if self.name in _PRODUCTS:
            return [self._product()]
        if self.name.startswith("ELEMENT_WISE_") and self.name != "ELEMENT_WISE_QUANTIZED_LINEAR_ADD":
            return [self._elementwise()]
        if self.name == "ACTIVATION_PARAMETERIZED_RELU":
            return [self._elementwise()]
        return self._spatial() if self.name in _SPATIAL else self._of_one_rank()

    # Tensors

    def _fields(self, *, is_input: bool) -> list[Member]:
        members = self.operator.members()
        return [one for one in members if one.tensor_kind and one.tensor_kind.is_input == is_input]

    def inputs(self) -> dict[str, Any]:
        """The views by field, in the types that the operator takes."""
        if self.name in ("QUANTIZE", "DEQUANTIZE"):
            several = [self.arrays["scale"], self.arrays["zero_point"]]
            return {"input": self.arrays["input"], "quantization_tensors": [one for one in several if one is not None]}
        found: dict[str, Any] = {}
        for member in self._fields(is_input=True):
            value = self.arrays[member.field]
            several = isinstance(value, tuple)  # of which empty ones, which DirectML has not, add nothing
            found[member.field] = [one for one in value if 0 not in one.sizes] if several else value
        dtype = next((view.dtype for view in _views(found) if not view.is_weak), None)
        return {field: self._typed(field, value, dtype) for field, value in found.items()}

    def _typed(self, field: str, value: Any, dtype: Any) -> Any:
        if not isinstance(value, _View):
            return value
        if value.is_weak and dtype is not None and value.dtype != dtype and self.builder.is_constant(value):
            return self.builder.local_constant(self.builder.value(value).astype(dtype))
        cell = self.level[field]
        if field in _COUNTS and _desc(value.dtype, (1,)).data_type not in cell.data_types:
            unsigned = np.dtype(f"uint{value.dtype.itemsize * 8}")
            if _desc(unsigned, (1,)).data_type in cell.data_types:
                return replace(value, dtype=unsigned)  # the same bits, as counts are not negative
            return self.builder.cast(value, np.uint32)
        return value

    def _present_outputs(self) -> dict[str, Any]:
        """The outputs by field, which are in the order of the members."""
        absent = {
            field for argument, fields in _ABSENT.items() if not self.statics.get(argument, True) for field in fields
        }
        fields = [one.field for one in self._fields(is_input=False) if one.field not in absent]
        if fields == ["outputs"]:
            return {"outputs": self.outputs}
        return dict(zip(fields, self.outputs, strict=True))

    # Layouts

    def _elementwise(self) -> _View:
        views = [one for one in self.inputs().values() if one is not None]
        attributes = self.attributes()
        ((dtype, sizes),) = self.outputs
        if self.name.startswith("ELEMENT_WISE_BIT_") and views[0].dtype.kind == "i":  # DirectML has unsigned ones alone
            views = [replace(view, dtype=np.dtype(f"u{view.dtype}")) for view in views]
            dtype = views[0].dtype if self.name != "ELEMENT_WISE_BIT_COUNT" else dtype
        if self.name == "ELEMENT_WISE_BIT_COUNT" or sizes == np.broadcast_shapes(*(view.sizes for view in views)):
            return self.builder.elementwise(self.operator, *views, dtype=dtype, **attributes)
        raise _NoOperator("must broadcast to the output", join_sizes(sizes))

    def _of_one_rank(self) -> list[_View]:
        """All tensors have as many dimensions, by leading ones."""
        inputs, outputs = self.inputs(), self._present_outputs()
        cells = self.level
        ranks = [len(view.sizes) for view in _views(inputs)]
        ranks += [len(sizes) for given in outputs.values() for _, sizes in (given if isinstance(given, list) else [given])]
        rank = max([1, *ranks, *(cells[field].ranks[0] for field in (*inputs, *outputs) if field in cells)])
        first = next(iter(_views(inputs)), None)
        shift = 0 if first is None else rank - len(first.sizes)
        if self.name == "FOLD":  # whose tensors have ranks of their own
            rank, shift = 1, 0
        lengthened = {field: jax.tree.map(lambda one: self._led(one, rank), given) for field, given in inputs.items()}
        longer = {
            field: [_led_sizes(one, rank) for one in given] if isinstance(given, list) else _led_sizes(given, rank)
            for field, given in outputs.items()
        }
        views = self.builder.add(self.operator, lengthened, longer, **self.attributes(shift, first))
        return [self.builder.reshaped(view, sizes) for view, (_, sizes) in zip(views, self.outputs, strict=True)]

    def _led(self, view: _View, rank: int) -> _View:
        return self.builder.reshaped(view, (1,) * (rank - len(view.sizes)) + view.sizes)

    def _spatial(self) -> list[_View]:
        """Images have at least four dimensions, by trailing ones; other tensors have a number for each channel."""
        inputs, outputs = self.inputs(), self._present_outputs()
        own = len(inputs["input"].sizes)
        rank = max(4, own)
        more = (1,) * (rank - own)
        lengthened = {}
        for field, view in inputs.items():
            if view is None:
                lengthened[field] = None
            elif field in _IMAGES:
                lengthened[field] = self.builder.reshaped(view, view.sizes + more)
            else:
                count = math.prod(view.sizes)
                sizes = (1, count, *(1,) * (rank - 2)) if count > 1 or field == "bias" else (1,) * rank
                lengthened[field] = self.builder.reshaped(view, sizes)
        longer = {field: (dtype, sizes + more) for field, (dtype, sizes) in outputs.items()}
        attributes = self.attributes(0, inputs["input"])
        for field, fill in _NO_SPACE.items():
            if field in attributes:
                attributes[field] = (*attributes[field], *(fill for _ in more))
        views = self.builder.add(self.operator, lengthened, longer, **attributes)
        return [self.builder.reshaped(view, sizes) for view, (_, sizes) in zip(views, self.outputs, strict=True)]

    def _product(self) -> _View:
        inputs = self.inputs()
        a, b = inputs.pop("a"), inputs.pop("b")
        ((dtype, _),) = self.outputs
        summands = {field: inputs.pop(field) for field in ("c", "bias") if field in inputs}
        return _product(self.builder, self.operator, a, b, dtype, summands, inputs, **self.attributes())

    # Attributes

    def attributes(self, shift: int = 0, first: _View | None = None) -> dict[str, Any]:
        """The members that are no tensors."""
        members = [one for one in self.operator.members() if one.tensor_kind is None]
        return {one.field: self._attribute(one, shift, first) for one in members}

    def _attribute(self, member: Member, shift: int, first: _View | None) -> Any:
        field = member.field
        derived = _DERIVED.get(field)
        if derived is not None:
            return derived(self)
        argument = _ARGUMENTS.get(field, field)
        value = self.statics[argument] if argument in self.statics else self.arrays[argument]
        if isinstance(value, ScaleBias):
            return ScaleBias(*(self.builder.number(field, one) for one in value))
        if field in ("axis", "axes") and first is not None:
            rank = len(first.sizes)
            several = (value,) if isinstance(value, int) else value
            moved = tuple(sorted(axis % rank + shift for axis in several))
            return moved[0] if isinstance(value, int) else moved
        if isinstance(member.kind, Array) and isinstance(value, _View):
            return [one.item() for one in self.builder.value(value).ravel()]
        if isinstance(member.kind, Array) and isinstance(value, int | float) and first is not None:
            return (value,) * self._dimension_count(first)
        if isinstance(member.kind, Enumeration) and isinstance(value, bool):
            return member.kind.enumeration(int(value))
        if isinstance(member.kind, Struct) and not isinstance(value, tuple):
            return value
        if value is None and not member.is_optional:
            return self._left_out(field)
        return self.builder.number(field, value)

    def _dimension_count(self, first: _View) -> int:
        """How many dimensions a number stands for that is given once."""
        if self.name == "FOLD":  # whose input has columns instead of an image
            return len(self.statics["output_sizes"]) - 2
        return len(first.sizes) - (0 if self.name.startswith("RESAMPLE") else 2)

    def _left_out(self, field: str) -> Any:
        """What stands for an argument that is left out."""
        if field in ("min", "max"):
            dtype = self.arrays["input"].dtype
            if self.name == "ELEMENT_WISE_CLIP1" and dtype.kind in "iu":
                return getattr(np.iinfo(dtype), field)
            return -math.inf if field == "min" else math.inf
        if field == "scales":
            ((_, sizes),) = self.outputs
            return [new / old for new, old in zip(sizes, self.arrays["input"].sizes, strict=True)]
        if field == "strides":
            return [1] * len(self.arrays["input"].sizes)
        if field == "activation_descs":
            directions = 2 if self.statics["direction"] is dml.RecurrentNetworkDirection.BIDIRECTIONAL else 1
            return self.operator.defaults * directions  # type: ignore[attr-defined]  # which recurrent networks have
        if field == "clip_threshold":
            return 0.0
        if field == "key_value_head_count":
            return self.statics["query_head_count"]
        raise _NoOperator(f"must have {field}", "none")


def _views(inputs: Mapping[str, Any]) -> list[_View]:
    """The views that are there, in the order of the members."""
    return [view for given in inputs.values() for view in (given if isinstance(given, list) else [given]) if view]


def _led_sizes(output: _Output, rank: int) -> _Output:
    dtype, sizes = output
    return dtype, (1,) * (rank - len(sizes)) + tuple(sizes)


def _product(
    builder: _Builder,
    operator: type[Operator],
    a: _View,
    b: _View,
    dtype: Any,
    summands: Mapping[str, _View | None],
    parameters: Mapping[str, _View | None],
    **attributes: Any,
) -> _View:
    """A product of matrices, whose batches broadcast; more than two dimensions of them become one."""
    batch = np.broadcast_shapes(a.sizes[:-2], b.sizes[:-2])
    rows = a.sizes[-1 if attributes.get("trans_a") else -2]
    columns = b.sizes[-2 if attributes.get("trans_b") else -1]
    whole = (*batch, rows, columns)
    outer = batch if len(batch) <= 2 else (math.prod(batch),)
    result = (*outer, rows, columns)

    def matrices(view: _View, sizes: Sequence[int]) -> _View:
        return builder.reshaped(view.broadcast((*batch, *sizes)), (*outer, *sizes))

    inputs: dict[str, Any] = {"a": matrices(a, a.sizes[-2:]), "b": matrices(b, b.sizes[-2:])}
    for field, view in summands.items():
        inputs[field] = None if view is None else matrices(view.broadcast(whole), whole[-2:])
    for field, view in parameters.items():
        if view is not None:
            sizes = view.sizes[-2:] if math.prod(view.sizes) > 1 else ()
            inputs[field] = builder.reshaped(view, (1,) * (len(result) - len(sizes)) + sizes)
    (product,) = builder.add(operator, inputs, {"output": (dtype, result)}, **attributes)
    return builder.reshaped(product, whole)


def _data_type(call: _Call) -> DataType:
    (dtype, _), *_ = call.outputs
    return _desc(dtype, (1,)).data_type


# Members that say what sizes and types say.
_DERIVED: dict[str, Callable[[_Call], Any]] = {
    "index_dimensions": lambda call: len(call.arrays["indices"].sizes),
    "indices_dimension_count": lambda call: len(call.arrays["indices"].sizes),
    "input_dimension_count": lambda call: len(call.arrays["input"].sizes),
    "min_max_data_type": _data_type,
    "padding_value_data_type": _data_type,
    "quantization_type": lambda call: dml.QuantizationType(1 if call.arrays["zero_point"] is None else 2),
    "spatial": lambda call: True,
    "use_clip_threshold": lambda call: call.arrays["clip_threshold"] is not None,
    "value_data_type": _data_type,
}


# Functions that are more than one operator


def _cast_call(call: _Call) -> list[_View]:
    return [call.builder.cast(call.arrays["input"], call.outputs[0][0])]


def _clip_call(call: _Call) -> list[_View]:
    """Bounds that are not known are tensors, of which DirectML has the larger and the smaller."""
    bounds = [call.arrays["min"], call.arrays["max"]]
    if all(one is None or call.builder.is_constant(one) for one in bounds):
        return [call._elementwise()]
    x = call.arrays["input"]
    for operator, bound in zip((dml.ElementWiseMaxDesc, dml.ElementWiseMinDesc), bounds, strict=True):
        x = x if bound is None else call.builder.elementwise(operator, x, bound)
    return [x]


def _padding_call(call: _Call) -> list[_View]:
    given = call.attributes()
    amounts = given["start_padding"], given["end_padding"]
    return [_padded(call.builder, call.arrays["input"], *amounts, given["padding_mode"], given["padding_value"])]


def _nonzero_call(call: _Call) -> list[_View]:
    """DirectML has a row for each element of the input, of which the first are those that were asked for."""
    count, (dtype, (rows, columns)) = call.outputs
    x = call.arrays["input"]
    if call.statics["fill_value"]:
        raise _NoOperator("must fill with 0", call.statics["fill_value"])
    whole = max(rows, math.prod(x.sizes))
    outputs = call.outputs = [count, (dtype, (whole, columns))]
    number, coordinates = call._of_one_rank()
    assert outputs is call.outputs
    return [number, replace(coordinates, sizes=(rows, columns))]


_SPECIAL: dict[str, Callable[[_Call], list[_View]]] = {
    "CAST": _cast_call,
    "ELEMENT_WISE_CLIP": _clip_call,
    "ELEMENT_WISE_CLIP1": _clip_call,
    "NONZERO_COORDINATES": _nonzero_call,
    "PADDING": _padding_call,
    "PADDING1": _padding_call,
}
