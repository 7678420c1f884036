"""Runs the nodes of a graph under any JAX transformation.

A value that is known while tracing, as sizes must be, is a NumPy array; any other is a JAX array. Known integers have
64 bits regardless of JAX's configuration, so that no size is truncated to 32 bits.
"""

import functools
import traceback
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from dmljax.calls.decorator import ignore_calls
from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported, inside
from dmljax.foundation.open_sizes import Undecided, explain_undecided
from dmljax.lowerings.images.channels import are_channels_last, network_layout
from dmljax.onnx.graph.graph import Node, OnnxGraph, names_read
from dmljax.onnx.graph.reader import require_possible_sizes
from dmljax.onnx.handlers.registry import REGISTRY, Handler, KeyNeeded, NodeCall, Run
from dmljax.onnx.handlers.signatures import Use
from dmljax.onnx.running.images import images_of, layers_of, of_images
from dmljax.onnx.values.counts import OUTSIDE, NotKnown, UndecidedCount
from dmljax.onnx.values.padded import Padded, is_padded
from dmljax.onnx.values.symbols import Symbols, choice_of_sizes, has_counts, kind_of, known_numbers, trace_symbols
from dmljax.onnx.values.types import Array, DType, Elements, Results, Tensor, Value
from dmljax.text import reason_of
from dmljax.types import x64_enabled

MAX_FOLDED = 4096  # elements of a value that stays known; anything larger is data, not sizes
KEY = "\0key"  # the name of a graph's random key among its values

T = TypeVar("T")

_GIVEN_TYPES: ContextVar[Mapping[DType, DType] | None] = ContextVar("_GIVEN_TYPES", default=None)


@contextmanager
def weights_of_types(types: Mapping[DType, DType]) -> Iterator[None]:
    """Maps the file's float types to the types of a call's weights.

    A node with inputs of both types computes in the weights' type. Values that do not depend on weights, such as angles
    of positions, keep the file's type until they meet weights.
    """
    token = _GIVEN_TYPES.set(types)
    try:
        yield
    finally:
        _GIVEN_TYPES.reset(token)


_SPECS: ContextVar[Mapping[str, PartitionSpec]] = ContextVar("_SPECS", default=MappingProxyType({}))


@contextmanager
def weights_with_specs(specs: Mapping[str, PartitionSpec]) -> Iterator[None]:
    """Says how the devices of a mesh divide the weights of a call, for nodes that XLA does not divide by itself."""
    token = _SPECS.set(specs)
    try:
        yield
    finally:
        _SPECS.reset(token)


class Interpreter:
    """Runs graphs whose operators all have handlers, under one choice of bounds.

    `leading` are the names of values that sizes may depend on.
    """

    def __init__(
        self, find: Callable[[Node], Handler], maximum_sizes: Mapping[str, int] | str, leading: Collection[str]
    ) -> None:
        self.find = find
        self.maximum_sizes = maximum_sizes
        self.leading = leading
        self.left_open: dict[str, Problem] = {}  # comparisons of symbols that the exported program must decide
        self._images: dict[OnnxGraph, frozenset[str]] = {}
        self._evaluations: dict[
            Hashable, Any
        ] = {}  # results of functions of values that are computed from known numbers

    def trace_context(self, graph: OnnxGraph) -> AbstractContextManager[None]:
        """A context for tracing nodes that are compiled together."""
        return network_layout(layers_of(graph))

    def run(self, graph: OnnxGraph, inputs: Sequence[Value], outer: Mapping[str, Value] | None = None) -> list[Value]:
        """The outputs of a graph; `outer` are the values of enclosing graphs, by name."""
        values = dict(outer or {})
        values |= graph.constants
        values |= zip(graph.input_names, inputs, strict=True)
        return self.run_nodes(graph, values)

    def run_nodes(self, graph: OnnxGraph, values: dict[str, Value]) -> list[Value]:
        for index in range(len(graph.nodes)):
            self.run_node(graph, index, values)
            self.forget(graph, index, values)
        return self.outputs(graph, values)

    def run_node(self, graph: OnnxGraph, index: int, values: dict[str, Value]) -> None:
        """Adds the results of a node to the values."""
        node = graph.nodes[index]
        with inside(node.place):
            results = self._results(graph, node, values)
            _require_possible_sizes(results)
        if len(results) < sum(map(bool, node.outputs)):
            raise Unsupported(Problem(node.place, f"must have at most {len(results)} outputs", len(node.outputs)))
        values |= {name: result for name, result in zip(node.outputs, results, strict=False) if name}

    def try_node(self, graph: OnnxGraph, index: int, values: dict[str, Value]) -> bool:
        """Adds the results of a node, unless they depend on what is not known; returns whether it did."""
        if not values.keys() >= {*names_read(graph.nodes[index])}:
            return False
        try:
            self.run_node(graph, index, values)
        except (NotKnown, KeyNeeded):
            return False
        return True

    def forget(self, graph: OnnxGraph, index: int, values: dict[str, Value]) -> None:
        """Drops values that no later node reads, so that an eager run frees their memory."""
        for name in graph.last_uses.get(index, ()):
            values.pop(name, None)

    def outputs(self, graph: OnnxGraph, values: Mapping[str, Value]) -> list[Value]:
        return [values[name] if name else None for name in graph.output_names]

    def _images_of(self, graph: OnnxGraph) -> frozenset[str]:
        if graph not in self._images:
            self._images[graph] = images_of(graph, self.find)
        return self._images[graph]

    def _results(self, graph: OnnxGraph, node: Node, values: Mapping[str, Value]) -> Sequence[Value]:
        handler = self.find(node)
        inputs = [values[name] if name else None for name in node.inputs]
        while inputs and inputs[-1] is None and len(inputs) > handler.required:
            inputs.pop()
        inputs += [None] * (handler.required - len(inputs))
        _require_fitting(handler, node, inputs)
        arguments = handler.arguments(node.attributes)
        if handler.takes_call:
            run = functools.partial(self._run_subgraph, node, values)
            known = functools.partial(_known_of, next(filter(None, node.outputs), ""))
            key: Any = values.get(KEY)
            evaluated = functools.partial(self._evaluate, values)
            arguments["call"] = NodeCall(node, run, known, evaluated, self._bound_of(node), key, _SPECS.get())
        with jax.named_scope(f"[{node.label}]"), jax.named_scope(node.operator):
            is_of_images = handler.is_elementwise and are_channels_last()
            is_of_images = is_of_images and not self._images_of(graph).isdisjoint(node.inputs)
            try:
                results = self._fold(handler, inputs, arguments)
                if results is None and any(name in self.leading for name in node.outputs):
                    results = _compute_now(handler, node, inputs, arguments)
                if results is None:
                    results = _compute(handler, node, inputs, arguments, is_of_images)
            except DmlError as error:
                choice = choice_of_sizes(inputs)
                error.args = (*error.args, *([choice] if choice else ()))
                raise
        return results if isinstance(results, tuple) else (results,)

    def _bound_of(self, node: Node) -> int | str | None:
        if isinstance(self.maximum_sizes, str):
            return self.maximum_sizes
        return next((self.maximum_sizes[name] for name in node.outputs if name in self.maximum_sizes), None)

    def _fold(self, handler: Handler, inputs: Sequence[Value], arguments: Mapping[str, Any]) -> Results:
        """Computes a handler's result from known values; None if they must be traced, as some symbols must."""
        if handler.fold is None or not all(map(is_foldable, inputs)):
            return None
        symbols = next((value for value in inputs if isinstance(value, Symbols)), None)
        if symbols is None:
            with _refusals_of(_NUMPY):
                result = handler.fold(*inputs, **arguments)
        else:
            try:
                result = handler.fold(*inputs, **arguments)
            except (ArithmeticError, TypeError, UndecidedCount):
                return None
            except Undecided as error:
                problem = explain_undecided(error)
                self.left_open[problem.rule] = problem
                return None

        def known(value: Any) -> Elements:
            array = value if isinstance(value, np.ndarray) else np.asarray(value)
            if symbols is None or array.dtype != object:
                return np.asarray(array)
            return known_numbers(array, kind_of(array if isinstance(array, Symbols) else symbols))

        results = result if isinstance(result, tuple) else (result,)
        if any(value is None or np.size(value) > MAX_FOLDED for value in results):  # type: ignore[arg-type]  # reads the shape
            return None
        return tuple(map(known, results))

    def _evaluate(self, values: Mapping[str, Value], graph: OnnxGraph, function: Callable[[Elements], T]) -> T | None:
        """Applies a function to the output of a graph that reads only known numbers; None if it reads anything else."""
        known = {name: values[name] for name in sorted(graph.free_names)}
        if not all(is_known(value) and not _has_objects(value) for value in known.values()):
            return None
        arrays = map(np.asarray, known.values())
        key = (graph, function, *((array.dtype, array.shape, sha256(array.tobytes()).digest()) for array in arrays))
        if key not in self._evaluations:
            with jax.ensure_compile_time_eval():
                output = jax.jit(lambda: as_array(*self.run(graph, (), known)))()
            self._evaluations[key] = function(np.asarray(output))
        result: T | None = self._evaluations[key]
        return result

    def _run_subgraph(
        self,
        node: Node,
        outer: Mapping[str, Value],
        graph: OnnxGraph,
        inputs: Sequence[Value],
        iteration: Tensor | int | None = None,
    ) -> list[Value]:
        if len(inputs) != len(graph.inputs):
            raise InvalidDesc(Problem("subgraph", f"must have {len(inputs)} inputs", len(graph.inputs)))
        key: Any = outer.get(KEY)
        if key is not None:  # so that no two calls of a function, or iterations, draw the same numbers
            key = jax.random.fold_in(key, node.index)
            outer = {**outer, KEY: key if iteration is None else jax.random.fold_in(key, iteration)}
        return self.run(graph, inputs, outer)


def _require_possible_sizes(values: Iterable[Value]) -> None:
    """Refuses arrays that no memory holds, before they are allocated."""
    for value in values:
        shape = value.shape if isinstance(value, jax.Array) else ()
        require_possible_sizes((), shape, "must have results of")


def _require_fitting(handler: Handler, node: Node, inputs: Sequence[Value]) -> None:
    """Raises if inputs are missing or have a wrong number of dimensions, or if attributes have a wrong type."""
    problems = handler.attribute_problems(node.attributes)  # a function may have bound them since loading
    # An empty optional counts as an absent input, unless the handler takes values as they come.
    absent = handler.absent(
        [() if value is None and handler.input(i).is_kept else value for i, value in enumerate(inputs)]
    )
    problems += [] if absent is None else [absent]
    for i, value in enumerate(inputs):
        demand = handler.input(i).demand
        rule = None if value is None or demand is None else demand.broken_rule(value)
        if rule is not None:
            problems.append(Problem(node.inputs[i], rule, getattr(value, "shape", "a sequence")))
    if problems:
        raise InvalidDesc(*problems)


def _compute(
    handler: Handler, node: Node, inputs: Sequence[Value], arguments: Mapping[str, Any], is_of_images: bool
) -> Results:
    """Calls a handler's function, by the rule of its operator if sizes depend on values."""
    uses = [handler.input(i).use for i in range(len(inputs))]
    of_sizes = {Use.KNOWN, Use.PASSED} | ({Use.WANTED} if node.operator in REGISTRY.take_counts else set())
    are_sizes = [use in of_sizes and has_counts(value) for use, value in zip(uses, inputs, strict=True)]
    inputs = [
        trace_symbols(value) if has_counts(value) and not is_size else value
        for value, is_size in zip(inputs, are_sizes, strict=True)
    ]
    if not any(are_sizes) and not any(map(is_padded, inputs)):
        return _trace(handler, node, inputs, arguments, is_of_images)

    def compute(values: Sequence[Value], changed: Mapping[str, Any]) -> Results:
        return _trace(handler, node, values, {**arguments, **changed}, False)

    rule = REGISTRY.rule(node, handler)
    if rule is not None:
        return rule(Run(node, handler, compute), *inputs, **arguments)
    refused = [
        i for i, value in enumerate(inputs) if uses[i] is not Use.PASSED and (is_padded(value) or has_counts(value))
    ]
    if not refused:
        return compute(inputs, {})
    rule_broken = f"must not have a size that depends on values, as {node.operator} reads the padding"
    raise NotKnown(Problem(node.inputs[refused[0]], rule_broken, remedy=OUTSIDE))


def _compute_now(handler: Handler, node: Node, inputs: Sequence[Value], arguments: Mapping[str, Any]) -> Results:
    """Computes a handler's results now if it has no fold, all inputs are known numbers, and the results are few.

    They keep ONNX's 64-bit types, because they may be sizes. More than `MAX_FOLDED` are data, which would become
    constants of the program.
    """
    if not handler.is_pure(node) or not all(is_foldable(value) and not _has_objects(value) for value in inputs):
        return None

    def run() -> Results:
        return _trace(handler, node, inputs, arguments, False)

    with jax.ensure_compile_time_eval(), jax.enable_x64(True), ignore_calls():
        if sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(run))) > MAX_FOLDED:
            return None
        results: Results = jax.device_get(run())
    return results


def _trace(
    handler: Handler, node: Node, inputs: Sequence[Value], arguments: Mapping[str, Any], is_of_images: bool
) -> Results:
    """Calls a handler's function with arrays."""
    names = (*node.inputs, *[""] * len(inputs))  # a rule may add inputs
    taken = [_take_input(handler.input(i).use, names[i], value) for i, value in enumerate(inputs)]
    taken = _convert_to_call_types(taken)
    with _refusals_of(_JAX):
        if is_of_images:
            results: Results = of_images(handler.function, taken, arguments)
            return results
        return handler.function(*taken, **arguments)


def _take_input(use: Use, name: str, value: Value) -> Value:
    """Converts an input to the form that a handler takes."""
    if use is Use.KNOWN and value is not None:
        return as_known(name, value)
    if use is not Use.ARRAY or value is None:
        return value
    with inside(name):
        return as_array(value)


def _convert_to_call_types(inputs: Sequence[Value]) -> list[Value]:
    """Converts inputs from the file's type if other inputs have the type of the weights."""
    array_types = {value.dtype for value in inputs if isinstance(value, jax.Array)}
    types = {file_type: new for file_type, new in (_GIVEN_TYPES.get() or {}).items() if new in array_types}

    def convert(value: Value) -> Value:
        if isinstance(value, jax.Array) and value.dtype in types:
            return value.astype(types[value.dtype])
        return value

    return [convert(value) for value in inputs] if types else [*inputs]


# The packages whose errors about a user's values we translate, for calls of NumPy and of JAX
_NUMPY = frozenset({"numpy"})
_JAX = frozenset({"jax", "jaxlib", "ml_dtypes", "numpy", "opt_einsum"})


@contextmanager
def _refusals_of(packages: Collection[str]) -> Iterator[None]:
    """Turns errors raised by these packages into dmljax's own; bugs in dmljax still surface unchanged."""
    try:
        yield
    except DmlError:
        raise
    except Undecided as error:
        raise Unsupported(explain_undecided(error)) from None
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise Unsupported(Problem((), f"needs more memory than there is: {reason_of(error)}")) from None
    except (ArithmeticError, IndexError, NotImplementedError, TypeError, ValueError) as error:
        if _raising_package(error) not in packages:
            raise
        if "_DimExpr" in str(error):  # JAX's class for open sizes
            raise Unsupported(explain_undecided(error)) from None
        raise InvalidDesc(
            Problem((), f"cannot compute with these inputs and attributes: {reason_of(error)}")
        ) from error


def _raising_package(error: BaseException) -> str:
    """The package that raises an error: dmljax or a package that it calls, but not Python's own modules."""
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    packages: Iterator[str] = (name.partition(".")[0] for name in frames)
    return [package for package in packages if package in _JAX or package == "dmljax"][-1]


def is_known(value: Value) -> bool:
    """Whether the elements of a value can be read now: it is a NumPy array, or a JAX array that is not traced."""
    return isinstance(value, np.ndarray | np.generic) or (
        isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
    )


def is_foldable(value: Value) -> bool:
    """Whether a value is known and small enough to compute while tracing."""
    return value is None or (isinstance(value, np.ndarray | np.generic) and value.size <= MAX_FOLDED)


def _has_objects(value: Value) -> bool:
    """Whether the elements of a value are not numbers, but text or symbols."""
    return isinstance(value, np.ndarray) and value.dtype == object


FIX = "pass it as a NumPy array outside jit, or fix it with load(..., constants={name: value})"


def as_known(name: str, value: Value, *, remedy: str = FIX) -> Elements:
    """The elements of a value that are needed while tracing."""
    if not is_known(value):
        rule = "must be known while tracing, because sizes depend on its values"
        raise NotKnown(Problem(name, rule, "a traced array", remedy=remedy))
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _known_of(output: str, name: str, value: Value, at_most: int) -> Elements:
    """The elements of a value that decides the size of a result."""
    bound = f"maximum_sizes={{{output!r}: {at_most}}}"
    remedy = f'call the model outside jit, or load it with {bound} or maximum_sizes="largest"'
    return as_known(name, value, remedy=remedy)


def as_array(value: Value) -> Array:
    """Converts a value to a JAX array; raises if integers need 64 bits and JAX's 64-bit types are disabled."""
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, list):
        raise InvalidType(Problem((), "must be a tensor", "a sequence"))
    if isinstance(value, Padded):
        raise NotKnown(Problem((), "must not have a size that depends on values", remedy=OUTSIDE))
    if isinstance(value, Symbols):
        return trace_symbols(value)
    return jnp.asarray(narrow_elements(value))


def narrow_elements(value: Any) -> Elements:
    """Elements in JAX's types; raises if integers need 64 bits and JAX's 64-bit types are disabled."""
    value = np.asarray(value)
    if value.dtype == object:
        raise Unsupported(Problem((), "must be numbers: JAX has no strings", "strings"))
    if not x64_enabled() and value.dtype in (np.int64, np.uint64):
        narrow = np.dtype(value.dtype.name.replace("64", "32"))
        limits = np.iinfo(narrow)
        if value.size and not (limits.min <= value.min() and value.max() <= limits.max):
            remedy = 'jax.config.update("jax_enable_x64", True)'
            outside = value[(value < limits.min) | (value > limits.max)].flat[0]
            raise Unsupported(Problem((), f"must fit {narrow} unless 64-bit types are enabled", outside, remedy=remedy))
        value = value.astype(narrow)
    elif not x64_enabled() and value.dtype in (np.float64, np.complex128):
        value = value.astype(np.float32 if value.dtype == np.float64 else np.complex64)
    elements: Elements = value
    return elements


def promote(first: DTypeLike, second: DTypeLike) -> DType:
    """The type that holds the values of both types, even if JAX's type promotion is strict."""
    with jax.numpy_dtype_promotion("standard"):
        return np.dtype(jnp.promote_types(first, second))
