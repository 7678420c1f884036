"""Decides how a model is computed: which programs are compiled, and which weights each takes."""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from threading import RLock
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.errors import InvalidType, Problem, inside, within
from dmljax.foundation.checks import JAX_ARRAYS
from dmljax.foundation.programs.compiling import Program, notify
from dmljax.foundation.programs.progress import report
from dmljax.foundation.programs.store import digest_of
from dmljax.lowerings.images.channels import library_filters
from dmljax.onnx.graph.graph import OnnxGraph, names_read
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph, digest_parts
from dmljax.onnx.running.filters import filters_to_store, restore_filter, store_filter
from dmljax.onnx.running.folding import fold
from dmljax.onnx.running.inputs import Inputs, is_text
from dmljax.onnx.running.interpreter import (
    KEY,
    Interpreter,
    as_array,
    is_known,
    narrow_elements,
    weights_of_types,
    weights_with_specs,
)
from dmljax.onnx.running.static_part import KeyedArray, StaticPart
from dmljax.onnx.sharding import specs_while_traced
from dmljax.onnx.values.counts import NotKnown
from dmljax.onnx.values.padded import Padded, is_padded_array
from dmljax.onnx.values.types import Array, DType, Elements, Value
from dmljax.text import join_words
from dmljax.types import FLOATS

MAX_INLINED = 2**24  # bytes of folded weights up to which they become constants of the compiled programs

_FOLDING = RLock()  # threads may call a new model, and since Python 3.12 `cached_property` has no lock of its own


class PlanMode(Enum):
    """The ways to compute a model, from the fastest to the most general."""

    BY_PLACE = auto()  # one program that takes an array per input and checks them while tracing
    BY_VALUES = auto()  # a program for each set of known values that decide sizes
    IN_PARTS = auto()  # a program for the nodes whose sizes do not depend on computed values


class _FoldedWeights(NamedTuple):
    """Everything computed from the weights a model was loaded with."""

    graph: OnnxGraph  # the remaining nodes
    sources: Mapping[str, Array]  # the weights it was computed from; valid only for these
    constants: Mapping[str, Array]  # for each program: all weights, unless they are too large
    values: Mapping[str, Array]  # the arguments that replace folded nodes, if weights are arguments
    read: frozenset[str]
    filters: frozenset[str]  # the names of constants and values that are stored as a CPU reads them


class CallWeights(NamedTuple):
    """The weights of a call, and the arguments of its program, which are fewer if nodes were folded."""

    weights: Mapping[str, Array]
    arguments: Mapping[str, Array]
    uses_loaded: bool

    def with_key(self, key: Array | None) -> "CallWeights":
        """Adds the call's random key."""
        if key is None:
            return self
        return CallWeights({**self.weights, KEY: key}, {**self.arguments, KEY: key}, self.uses_loaded)


class Plan:
    """Computes a model from its graph; `weights` are those that it was loaded with.

    Starts with the fastest way that the input types allow, and switches to the most general way when a program turns
    out to need values.
    """

    def __init__(self, loaded: LoadedGraph, weights: Mapping[str, Array]) -> None:
        self.graph = loaded
        self.interpreter = Interpreter(loaded.find, loaded.maximum_sizes, loaded.leading)
        self._weights = weights
        self._inputs = Inputs(loaded.inputs, loaded.defaults)
        self._last: CallWeights | None = None
        # Outside jit, values are known when their nodes run, and sizes need no bounds.
        outside = Interpreter(loaded.find, {}, loaded.leading)
        self._static_part = StaticPart(outside, loaded)
        kept: Any = {"source": self.source, "failure": NotKnown, "on_program": self.note_sizes}
        self._sizes: set[str] = set()  # of the inputs that have a program
        self._has_told_sizes = False
        self._by_place = Program(self._run_by_place, "the model", static_argnums=0, **kept)
        self._by_values = Program(self.trace, "the model", static_argnums=(0, 1), **kept)
        is_by_place = not any(tensor.name in loaded.deciding or tensor.kind != "tensor" for tensor in loaded.inputs)
        self._mode = PlanMode.BY_PLACE if loaded.inputs and is_by_place else PlanMode.BY_VALUES

    def run_by_place(self, weights: Mapping[str, Array], inputs: Sequence[Any], key: Array | None) -> Any:
        """Computes the results from a JAX array per input; NotImplemented if they need another way."""
        if self._mode is not PlanMode.BY_PLACE or not all(type(value) in JAX_ARRAYS for value in inputs):
            return NotImplemented
        call = self.call_weights(weights).with_key(key)
        try:
            results = self._by_place(call.uses_loaded, call.arguments, *inputs)
            return without_sizes(results) if self.interpreter.maximum_sizes else results
        except NotKnown:
            if all(
                map(is_known, (*inputs, *call.arguments.values()))
            ):  # for symbolic inputs, other sizes may still work
                self._mode = PlanMode.IN_PARTS
            return NotImplemented

    def compiled_program(self, weights: Mapping[str, Array], inputs: Sequence[Any]) -> Callable[..., Any] | None:
        """The program that computed the results from arrays of these types, one per input; None if several did."""
        if self._mode is not PlanMode.BY_PLACE or self.graph.is_random or self.interpreter.maximum_sizes:
            return None
        call = self.call_weights(weights)
        program = self._by_place.compiled_for(call.uses_loaded, call.arguments, *inputs)
        return None if program is None else functools.partial(program, call.arguments)

    def forget_programs(self) -> None:
        for program in (self._by_place, self._by_values):
            program.forget()

    def run(self, call: CallWeights, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Computes the results from any inputs."""
        return without_sizes(unpack(self.run_with_sizes(call, inputs, named)))

    def run_with_sizes(self, call: CallWeights, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Value]:
        """Computes each result, with its true sizes if values decide them."""
        try:
            return self._results(call, self._inputs.bind(inputs, named, self._other_floats(call)))
        except NotKnown as error:
            types = (*self._inputs.needed, *self._inputs.defaults)
            names = [tensor.name for tensor in types if tensor.name in self.graph.deciding]
            if names:
                error.args = (*error.args, Problem((), f"sizes depend on the values of {join_words(names)}"))
            error.args = (*error.args, *self.interpreter.left_open.values())
            raise

    def source(self) -> str:
        """A digest of all that programs compute from besides their arguments: also of the numbers of folded weights."""
        constants = self._folded.constants if "_folded" in vars(self) else {}
        known = (digest_parts(name, value) for name, value in constants.items())
        return digest_of(self.graph.digest, *(part for parts in known for part in parts))

    def note_sizes(self, *arguments: Any, is_stored: bool) -> None:
        """Tells the user of a command once that other sizes of inputs need other programs."""
        *_, inputs = arguments
        if not isinstance(inputs, dict):
            inputs = dict(zip((tensor.name for tensor in self.graph.inputs), arguments[2:], strict=True))
        if not inputs:
            return
        sizes = join_words(f"{name} {list(np.shape(value))}" for name, value in inputs.items())
        if self._sizes and sizes not in self._sizes and not is_stored and not self._has_told_sizes:
            self._has_told_sizes = True
            reason = "as for each new size of its inputs; fewer sizes compile less"
            notify(f"compiling the model again for {sizes}, {reason}")
        self._sizes.add(sizes)

    # Weights

    def _other_floats(self, call: CallWeights) -> frozenset[DType]:
        """The float types of weights that differ from the file's."""
        if call.uses_loaded:
            return frozenset()
        types = self.graph.types
        pairs = {(weight.dtype, types[name].dtype) for name, weight in call.weights.items() if name in types}
        return frozenset(dtype for dtype, file_type in pairs if dtype != file_type and file_type in FLOATS)

    @functools.cached_property
    def _folded(self) -> _FoldedWeights:
        report("computing what depends only on weights")
        defaults = {tensor.name for tensor in self._inputs.defaults}
        constants = {name: value for name, value in self.graph.constants.items() if name not in defaults}
        with jax.ensure_compile_time_eval():
            folded = fold(self.interpreter, self.graph, constants, self._weights)
        # Weights that no program needs are freed when the user replaces them.
        weights, self._weights = self._weights, {}
        read = {name for node in folded.graph.nodes for name in names_read(node)} | {*folded.graph.output_names}
        values = {**{name: value for name, value in weights.items() if name in read}, **folded.values}
        filters = filters_to_store(folded.graph, values)
        with jax.ensure_compile_time_eval():
            stored = {name: store_filter(values[name]) for name in sorted(filters)}
        values |= stored
        if sum(array.nbytes for array in values.values()) <= MAX_INLINED:
            return _FoldedWeights(folded.graph, weights, values, {}, frozenset(read), filters)
        sources = {**folded.sources, **{name: weights[name] for name in filters if name in weights}}
        return _FoldedWeights(folded.graph, sources, {}, {**folded.values, **stored}, frozenset(read), filters)

    def call_weights(self, weights: Mapping[str, Array]) -> CallWeights:
        """The weights of a call; the user may have replaced some."""
        last = self._last
        if last is not None and _are_same(weights, last.weights):
            return last
        with _FOLDING:
            folded, weights = self._folded, dict(weights)
        is_same = all(weights.get(name) is weight for name, weight in folded.sources.items())
        if not is_same or not (folded.constants or folded.values):
            self._last = CallWeights(weights, weights, False)
        elif folded.constants:
            self._last = CallWeights(weights, {}, True)
        else:
            kept = {name: weight for name, weight in weights.items() if name in folded.read}
            self._last = CallWeights(weights, {**kept, **folded.values}, True)
        return self._last

    # Ways

    def _results(self, call: CallWeights, inputs: Mapping[str, Value]) -> Sequence[Value]:
        known: dict[str, Elements] = {}
        arrays: dict[str, Value] = {}
        for name, value in inputs.items():
            if is_text(value) or (name in self.graph.deciding and is_known(value)):
                known[name] = np.asarray(value)
            elif type(value) is np.ndarray:
                # A program takes NumPy's arrays faster than `jnp.asarray`, which compiles a copy of each shape, but may
                # read their memory later or keep it.
                with inside(name):
                    arrays[name] = np.array(narrow_elements(value))
            else:
                arrays[name] = _as_arrays(name, value)
        is_concrete = all(map(is_known, jax.tree.leaves((arrays, call.arguments))))
        if self._mode is not PlanMode.IN_PARTS or not is_concrete:
            try:
                if self._mode is PlanMode.BY_PLACE and [*arrays] == [tensor.name for tensor in self._inputs.needed]:
                    results = self._by_place(call.uses_loaded, call.arguments, *arrays.values())
                    return (results,) if len(self.graph.running.outputs) == 1 else results
                key = tuple(KeyedArray(name, value) for name, value in known.items())
                values: Sequence[Value] = self._by_values(call.uses_loaded, key, call.arguments, arrays)
                return values
            except NotKnown:
                if not is_concrete:
                    raise
                self._mode = PlanMode.IN_PARTS
        fixed = (self.graph.constants.keys() | call.weights.keys()) - inputs.keys()
        weights = {name: as_array(value) for name, value in call.weights.items()}
        arrays = {name: jnp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in arrays.items()}
        with weights_of_types(self._call_types(weights)):
            return self._outputs(self._static_part.run({**self.graph.constants, **weights, **arrays, **known}, fixed))

    def _run_by_place(self, uses_loaded: bool, arguments: Mapping[str, Array], *inputs: Any) -> Any:
        with within("onnx"):
            floats = self._other_floats(CallWeights(arguments, arguments, uses_loaded))
            return unpack(self.trace(uses_loaded, (), arguments, self._inputs.bind(inputs, {}, floats)))

    def trace(
        self,
        uses_loaded: bool,
        known: tuple[KeyedArray, ...],
        arguments: Mapping[str, Array],
        inputs: Mapping[str, Value],
    ) -> list[Value]:
        """The results of inputs that `Inputs` has checked, inside a program."""
        graph, weights, filters = self.graph.running, {**arguments}, frozenset[str]()
        if uses_loaded:
            graph, filters = self._folded.graph, self._folded.filters
            weights |= self._folded.constants
        weights |= {name: restore_filter(weights[name]) for name in filters}
        values = {**self.graph.constants, **weights, **inputs}
        values |= {array.name: array.value for array in known}
        self.interpreter.left_open.clear()
        with (
            self.interpreter.trace_context(graph),
            library_filters(bool(filters)),
            weights_of_types(self._call_types(arguments)),
            weights_with_specs(
                specs_while_traced(self.graph, {name: x for name, x in arguments.items() if name != KEY})
            ),
        ):
            results = self._outputs(self.interpreter.run_nodes(graph, values))
        for name, result in zip(self.graph.running.output_names, results, strict=True):
            if any(map(is_text, jax.tree.leaves(result))):
                raise NotKnown(Problem(name, "must be numbers under jit: JAX has no strings", "strings"))
        return results

    def _call_types(self, weights: Mapping[str, Array]) -> dict[DType, DType]:
        """Maps the float types of the file to the types of a call's weights, where they differ."""
        types: dict[DType, DType] = {}
        for name, file_type in ((name, struct.dtype) for name, struct in self.graph.types.items()):
            dtype = weights[name].dtype if name in weights else file_type
            if dtype != file_type and {dtype, file_type} <= FLOATS and types.setdefault(file_type, dtype) != dtype:
                rule = f"must be of {file_type}, or of {types[file_type]} as others are"
                raise InvalidType(Problem(("weights", name), rule, dtype))
        return types

    def _outputs(self, results: Sequence[Value]) -> list[Value]:
        return [_as_arrays(name, result) for name, result in zip(self.graph.running.output_names, results, strict=True)]


def _are_same(some: Mapping[str, Array], others: Mapping[str, Array]) -> bool:
    """Whether two mappings hold the same arrays; must be fast, as each call compares hundreds."""
    return len(some) == len(others) and all(map(operator.is_, map(some.get, others), others.values()))


def unpack(results: Sequence[Value]) -> Any:
    """The only result, or a tuple of several."""
    return results[0] if len(results) == 1 else tuple(results)


def without_sizes(results: Any) -> Any:
    """Results as arrays."""
    return jax.tree.map(lambda x: x.array if isinstance(x, Padded) else x, results, is_leaf=is_padded_array)


def _as_arrays(name: str, value: Value) -> Value:
    """Converts a value, or all elements of a sequence, to JAX arrays; leaves text unchanged, and fills padding."""
    if isinstance(value, Padded):
        return Padded(value.filled(value.fill), value.shape, value.fill)
    if isinstance(value, list):
        return [_as_arrays(name, element) for element in value]
    if value is None or (
        isinstance(value, np.ndarray) and is_text(value) and all(isinstance(element, str) for element in value.flat)
    ):
        return value
    with inside(name):
        return as_array(value)


def function_of_graph(
    loaded: LoadedGraph, graph: OnnxGraph
) -> Callable[[Mapping[str, Array], Mapping[str, Any]], Sequence[Value]]:
    """A function of weights and of inputs by name that computes a graph made of a loaded one."""
    plan = Plan(replace(loaded, graph=graph, joined=graph), {})

    def compute(weights: Mapping[str, Array], inputs: Mapping[str, Any]) -> Sequence[Value]:
        with within("onnx"):
            return plan.run_with_sizes(CallWeights(weights, weights, False), (), inputs)

    return compute
