"""Graphs: operators whose tensors are connected by edges, validated and lowered as one computation.

An edge passes on a buffer, as in DirectML: its reader may view the bytes with different sizes, strides or data type.
"""

import base64
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from keyword import iskeyword
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from dmljax.calls.binding import check_arguments
from dmljax.descriptors.array_arguments import Bind, bind_by_name, require_64_bits, require_match, signature_by_name
from dmljax.descriptors.base import Lowerable, Operator
from dmljax.descriptors.json_form import operator_from_json
from dmljax.descriptors.members import Leaf, Tensor, json_object, json_string
from dmljax.descriptors.tensor import TensorDesc, packed_strides
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, all_checked, inside, spell_path, within
from dmljax.foundation.checks import array
from dmljax.graphs import diagrams
from dmljax.graphs.steps import GraphStep, find_needed, run_at_each_call
from dmljax.lowerings.images.channels import network_layout
from dmljax.lowerings.strides import read_strided, reinterpret, write_strided
from dmljax.lowerings.workarounds import round_to_type
from dmljax.pictures import present
from dmljax.text import correct_grammar, did_you_mean, json_text, show
from dmljax.types import DataType, FeatureLevel, TensorFlags


class Graph(Lowerable):
    """Operators and the edges between their tensors.

    `nodes` are descriptors by name. `edges` map each of their inputs to its source: the name of a graph input or
    constant, or an output of another node. A node's tensor is written `node.field`, such as `join.inputs[0]`. `inputs`
    are the descs of the graph's inputs by name, `constants` are arrays by name, and `outputs` map each output to its
    source. `views` are descs for outputs whose bytes should be viewed with different sizes, strides or data type.

    >>> tensor = TensorDesc("FLOAT32", (2, 3))
    >>> graph = Graph(
    ...     nodes={
    ...         "sum": ElementWiseAddDesc(a=tensor, b=tensor, output=tensor),
    ...         "relu": ActivationReluDesc(input=tensor, output=tensor),
    ...     },
    ...     edges={"sum.a": "x", "sum.b": "bias", "relu.input": "sum.output"},
    ...     inputs={"x": tensor},
    ...     constants={"bias": np.full((2, 3), -1, "float32")},
    ...     outputs={"y": "relu.output"},
    ... )
    >>> lower(graph)(np.array([[0, 1, 2], [3, 4, -5]], "float32")).tolist()
    [[0.0, 0.0, 1.0], [2.0, 3.0, 0.0]]
    """

    nodes: MappingProxyType[str, Operator]
    edges: MappingProxyType[str, str]
    inputs: MappingProxyType[str, TensorDesc]
    outputs: MappingProxyType[str, str]
    constants: MappingProxyType[str, Any]
    views: MappingProxyType[str, TensorDesc]

    @check_arguments
    def __init__(
        self,
        *,
        nodes: Mapping[str, Operator],
        edges: Mapping[str, str],
        inputs: Mapping[str, TensorDesc],
        outputs: Mapping[str, str],
        constants: Mapping[str, Any] | None = None,
        views: Mapping[str, TensorDesc] | None = None,
    ) -> None:
        with within("graph"):
            self.nodes, self.edges, self.inputs, self.outputs, self.constants, self.views = all_checked(
                lambda: _by_name("nodes", nodes, Operator),
                lambda: _by_name("edges", edges, str),
                lambda: _by_name("inputs", inputs, TensorDesc),
                lambda: _by_name("outputs", outputs, str),
                lambda: _arrays_by_name(constants or {}),
                lambda: _by_name("views", views or {}, TensorDesc),
            )
            if problems := [*_spelling_problems(self)]:
                raise InvalidDesc(*problems)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(getattr(self, part))} {part}" for part in self.__annotations__)
        return f"Graph({correct_grammar(counts)})"

    def __reduce__(self) -> Any:
        return functools.partial(Graph, **{part: dict(getattr(self, part)) for part in self.__annotations__}), ()

    @functools.cached_property
    def sources(self) -> Mapping[str, TensorDesc]:
        """The tensors that an edge may come from: inputs, constants, and outputs of nodes."""
        constants = {name: _desc_of(("constants", name), value) for name, value in self.constants.items()}
        outputs = {
            f"{name}.{leaf.key}": leaf.tensor
            for name, node in self.nodes.items()
            for leaf in node.leaves(is_input=False)
        }
        return {**self.inputs, **constants, **outputs}

    @functools.cached_property
    def targets(self) -> Mapping[str, tuple[str, Leaf]]:
        """The tensors that an edge may lead to: the inputs of the nodes, each with the node's name."""
        return {
            f"{name}.{leaf.key}": (name, leaf)
            for name, node in self.nodes.items()
            for leaf in node.leaves(is_input=True)
        }

    @functools.cached_property
    def results(self) -> Mapping[str, TensorDesc]:
        """The descs of the graph's outputs, with views applied."""
        return {name: self.views.get(name, self.sources[source]) for name, source in self.outputs.items()}

    @property
    def order(self) -> tuple[str, ...]:
        """The node names, each after those it depends on; nodes that depend on a cycle are left out."""
        return self._order_and_cycle[0]

    @functools.cached_property
    def _order_and_cycle(self) -> tuple[tuple[str, ...], Sequence[str]]:
        makers = {f"{name}.{key}": name for name, node in self.nodes.items() for key in node.tensors(is_input=False)}
        sorter = TopologicalSorter[str](dict.fromkeys(self.nodes, ()))
        for target, source in self.edges.items():
            if target in self.targets and source in makers:
                sorter.add(self.targets[target][0], makers[source])
        order, cycle = list[str](), list[str]()
        try:
            sorter.prepare()
        except CycleError as error:  # sort the nodes that do not depend on the cycle
            cycle = error.args[1]
        while sorter.is_active():
            ready = sorter.get_ready()
            order += ready
            sorter.done(*ready)
        return tuple(order), cycle

    @check_arguments
    def show(self, file: str | os.PathLike[str] | None = None) -> None:
        """Draws the graph from inputs to outputs: each node with its operator, results and constants.

        The picture appears below the cell in a notebook, in a window elsewhere, or is written to `file`.
        """
        with within("graph"):
            problems = [] if self.nodes else [Problem("nodes", "must have at least one node to draw", "none")]
            problems += self._cycle_problems()
            if problems:
                raise InvalidDesc(*problems)
            present(lambda: self._drawing, file)

    @property
    def _drawing(self) -> Any:
        boxes: dict[str, Sequence[str]] = {
            f"input {name}": (name, _sizes_of(desc)) for name, desc in self.inputs.items()
        }
        arrows: list[tuple[str, str]] = []
        for name in self.order:
            results = [_sizes_of(leaf.tensor) for leaf in self.nodes[name].leaves(is_input=False)]
            constants = []
            for key in self.nodes[name].tensors(is_input=True):
                source = self.edges.get(f"{name}.{key}", "")
                if source in self.constants:
                    constants.append(f"{key}: {source}")
                elif source in self.sources:
                    arrows.append((self._box_of(source), name))
            boxes[name] = (name, f"{self.nodes[name].short_name} {', '.join(results)}", *constants)
        for name, source in self.outputs.items():
            boxes[f"output {name}"] = (name, _sizes_of(self.results[name]))
            if source not in self.constants:
                arrows.append((self._box_of(source), f"output {name}"))
        return diagrams.draw(boxes, arrows, self.nodes)

    def _box_of(self, source: str) -> str:
        return f"input {source}" if source in self.inputs else source.rpartition(".")[0]

    @check_arguments
    def to_dot(self) -> str:
        """The graph in Graphviz's DOT language, for `dot -Tsvg` and similar tools."""
        lines = ["digraph {", "  node [shape=box, style=rounded, fontname=Helvetica]"]
        lines += (_dot_node("input", name, desc, shape="ellipse") for name, desc in self.inputs.items())
        lines += (_dot_node("constant", name, self.sources[name], shape="note") for name in self.constants)
        lines += (_dot_node("node", name, node.short_name) for name, node in self.nodes.items())
        lines += (_dot_node("output", name, shape="ellipse") for name in self.outputs)
        for target, source in self.edges.items():
            lines.append(self._dot_edge(source, f"node {target.rpartition('.')[0]}"))
        for name, source in self.outputs.items():
            lines.append(self._dot_edge(source, f"output {name}"))
        return "\n".join([*lines, "}", ""])

    def _dot_edge(self, source: str, head: str) -> str:
        if source in self.inputs or source in self.constants:
            kind = "input" if source in self.inputs else "constant"
            return f"  {_quote(f'{kind} {source}')} -> {_quote(head)}"
        tail = _quote(f"node {source.rpartition('.')[0]}")
        label = f" [label={_quote(self.sources[source])}]" if source in self.sources else ""
        return f"  {tail} -> {_quote(head)}{label}"

    # Validation

    @property
    def title(self) -> str:
        return "graph"

    def problems(self, feature_level: FeatureLevel) -> Iterator[Problem]:
        yield from _name_problems(self)
        for name, node in self.nodes.items():
            yield from (problem.inside(("nodes", name, node.short_name)) for problem in node.problems(feature_level))
        yield from _edge_problems(self)
        yield from _owned_problems(self)
        yield from self._cycle_problems()
        yield from _output_problems(self)

    def _cycle_problems(self) -> Iterator[Problem]:
        if cycle := self._order_and_cycle[1]:
            yield Problem("edges", "must not form a cycle", " <- ".join(reversed(cycle)))

    def require_available(self) -> None:
        for name, node in self.nodes.items():
            with within(self.title), inside(("nodes", name, node.short_name)):
                require_64_bits((leaf.path, leaf.tensor) for leaf in node.leaves())

    # As a function of arrays

    @property
    def input_count(self) -> int:
        return len(self.inputs)

    def compiled(self) -> Callable[..., Any]:
        graph, load_constants = self.folded(), functools.cache(self._arrays)
        compiled, constants = graph.computation(), load_constants() if graph is self else graph._arrays()

        def run(*inputs: Any, **replacements: Any) -> Any:
            whole = self.computation() if replacements else None
            results = whole(load_constants() | replacements, *inputs) if whole else compiled(constants, *inputs)
            return dict(zip(self.outputs, results, strict=True)) if len(results) > 1 else results[0]

        return run

    def computation(self, *, rounds_between_nodes: bool = False) -> Any:
        """The jitted function of a dict of constants and of the inputs, which returns a tuple of the outputs.

        With `rounds_between_nodes`, each node's result is rounded to its data type. Otherwise XLA may skip the
        rounding, for example between a multiplication and an addition.
        """
        results = zip(self.outputs.values(), self.results.values(), strict=True)
        return _compile(
            tuple((name, self.nodes[name]) for name in self.order),
            frozenset(self.edges.items()),
            tuple(self.sources.items()),
            tuple(self.inputs),
            tuple(results),
            rounds_between_nodes,
        )

    @property
    def types_of_constants(self) -> Mapping[str, jax.ShapeDtypeStruct]:
        """The types of the constants as `computation` takes them."""
        return {name: self.sources[name].shape_dtype for name in self.constants}

    def binder(self) -> Bind:
        constants = {name: self.sources[name] for name in self.constants}
        return functools.partial(bind_by_name, self.inputs, constants)

    def describe(self, function: Any) -> None:
        """Gives the function that `lower` returns its name, docstring and, if Python can write it, signature."""
        function.__name__ = function.__qualname__ = "graph"
        function.__doc__ = (
            "Computes the graph from its inputs, given by position or name; constants may be replaced by name."
        )
        constants = {name: self.sources[name] for name in self.constants}
        if all(name.isidentifier() and not iskeyword(name) for name in (*self.inputs, *constants)):
            function.__signature__ = signature_by_name(self.inputs, constants, self.results)

    def _arrays(self) -> dict[str, Any]:
        """The constants on the device."""
        values = self.constants.items()
        return {name: jax.numpy.asarray(value).reshape(self.sources[name].sizes) for name, value in values}

    def folded(self) -> "Graph":
        """Replaces nodes that read only constants by constants, if that makes calls faster."""
        steps = steps_of({name: self.nodes[name] for name in self.order}, self.edges)
        steps_at_each_call = _run_at_each_call(self, steps)
        edges = {to: source for to, source in self.edges.items() if self.targets[to][0] in steps_at_each_call}
        read = {*edges.values(), *self.outputs.values()}
        constant_sources = [
            source
            for name, step in steps.items()
            if name not in steps_at_each_call
            for source in step.makes
            if source in read
        ]
        if not constant_sources:
            return self
        before = find_needed(steps, constant_sources)
        part = Graph(
            nodes={name: self.nodes[name] for name in before},
            edges={to: source for to, source in self.edges.items() if self.targets[to][0] in before},
            inputs={name: self.sources[name] for name in self.constants},
            outputs={source: source for source in constant_sources},
        )
        with jax.ensure_compile_time_eval():
            values = part.computation()({}, *self._arrays().values())
        constants = {name: value for name, value in self.constants.items() if name in read}
        return Graph(
            nodes={name: self.nodes[name] for name in steps_at_each_call},
            edges=edges,
            inputs=self.inputs,
            outputs=self.outputs,
            constants=constants | dict(zip(constant_sources, values, strict=True)),
            views=self.views,
        )

    # As JSON

    def json(self) -> dict[str, Any]:
        places = _places(self.nodes)
        return {
            "Nodes": {name: node.json() for name, node in self.nodes.items()},
            "Edges": {places.get(to, to): places.get(source, source) for to, source in self.edges.items()},
            "Inputs": {name: _TENSOR.to_json(desc) for name, desc in self.inputs.items()},
            "Outputs": {name: places.get(source, source) for name, source in self.outputs.items()},
            "Constants": {name: _constant_json(self.sources[name], value) for name, value in self.constants.items()},
            "Views": {name: _TENSOR.to_json(desc) for name, desc in self.views.items()},
        }

    @classmethod
    def from_json(cls, json: Any) -> "Graph":
        """Reads a graph from a JSON object."""
        with within("graph"):
            parts = json_object((), json, _FIELDS)
            parts = {part: json_object(part, parts.get(part) or {}, parts.get(part) or ()) for part in _FIELDS}
            nodes = {
                name: _read_array("Nodes", name, operator_from_json, node) for name, node in parts["Nodes"].items()
            }
            places = {label: place for place, label in _places(nodes).items()}
            tensor = functools.partial(_TENSOR.from_json, (), data_type=None)
            return cls(
                nodes=nodes,
                edges={places.get(to, to): places.get(source, source) for to, source in parts["Edges"].items()},
                inputs={name: _read_array("Inputs", name, tensor, desc) for name, desc in parts["Inputs"].items()},
                outputs={name: places.get(source, source) for name, source in parts["Outputs"].items()},
                constants={
                    name: _read_array("Constants", name, _constant, value) for name, value in parts["Constants"].items()
                },
                views={name: _read_array("Views", name, tensor, desc) for name, desc in parts["Views"].items()},
            )


def _sizes_of(desc: TensorDesc) -> str:
    return " x ".join(map(str, desc.sizes)) + ("" if desc.data_type is DataType.FLOAT32 else f" {desc.data_type.name}")


def _dot_node(kind: str, name: str, *lines: Any, shape: str = "box") -> str:
    style = "" if shape == "box" else f", shape={shape}"
    return f"  {_quote(f'{kind} {name}')} [label={_quote(name, *lines)}{style}]"


_FORMS = {
    "nodes": '{"sum": desc, "relu": desc}',
    "edges": '{"sum.a": "x", "sum.b": "bias", "relu.input": "sum.output"}',
    "inputs": '{"x": TensorDesc(...)}',
    "outputs": '{"y": "relu.output"}',
    "constants": '{"bias": array}',
    "views": '{"y": TensorDesc(...)}',
}


def _by_name(where: str, values: Any, kind: type) -> MappingProxyType[str, Any]:
    """A copy of a mapping from names to values of a kind."""
    if not isinstance(values, Mapping):
        rule, remedy = "must be a mapping with names as its keys", f"{where}={_FORMS[where]}"
        raise InvalidType(Problem(where, rule, show(values), remedy=remedy))
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            raise InvalidType(Problem(where, "must have nonempty strings as names", show(name)))
        if not isinstance(value, kind):
            raise InvalidType(Problem((where, name), f"must be of type {kind.__name__}", type(value).__name__))
    return MappingProxyType(dict(values))


def _arrays_by_name(values: Any) -> MappingProxyType[str, Any]:
    """A copy of a mapping from names to arrays."""
    arrays = _by_name("constants", values, object)
    return MappingProxyType({name: array(("constants", name), value) for name, value in arrays.items()})


def _desc_of(where: Path, value: Any) -> TensorDesc:
    with inside(where):
        return TensorDesc(np.dtype(value.dtype).name.upper(), value.shape or (1,))


def _quote(*lines: Any) -> str:
    """Quotes lines of text for Graphviz."""
    texts = (str(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(texts) + '"'


# Validation


def _name_problems(graph: Graph) -> Iterator[Problem]:
    outputs = {f"{name}.{key}" for name, node in graph.nodes.items() for key in node.tensors(is_input=False)}
    for name in graph.constants:
        if name in graph.inputs:
            yield Problem(("constants", name), "name already used by an input")
    for kind in ("inputs", "constants"):
        for name in getattr(graph, kind):
            if name in outputs:
                yield Problem((kind, name), "name already used by an output of a node")


def _spelling_problems(graph: Graph) -> Iterator[Problem]:
    """Finds edges and outputs whose key and value are exchanged, or that have directml.h's names of members."""
    made = {f"{name}.{key}" for name, node in graph.nodes.items() for key in node.tensors(is_input=False)}
    known = {*graph.inputs, *graph.constants, *made}
    if graph.edges.keys() <= graph.targets.keys() and known.issuperset(
        (*graph.edges.values(), *graph.outputs.values())
    ):
        return
    keys = {label: key for key, label in _places(graph.nodes).items()}

    def find_source(place: Path, source: str) -> Iterator[Problem]:
        if source not in known and keys.get(source) in made:
            yield Problem(place, "must come from an output of a node", f"{source}, did you mean {keys[source]}?")

    for target, source in graph.edges.items():
        place, rule, key = ("edges", target), "must lead to an input of a node", keys.get(target, target)
        if key not in graph.targets and keys.get(source, source) in graph.targets:
            yield Problem(place, rule, target, remedy=_exchange("edges", keys.get(source, source), key))
            continue
        if target not in graph.targets and key in graph.targets:
            yield Problem(place, rule, f"{target}, did you mean {key}?")
        yield from find_source(place, source)
    for name, source in graph.outputs.items():
        if keys.get(name, name) in made and source not in known:
            remedy = _exchange("outputs", source, keys.get(name, name))
            yield Problem(("outputs", name), "must map a name to its source", name, remedy=remedy)
            continue
        yield from find_source(("outputs", name), source)


def _exchange(part: str, key: str, value: str) -> str:
    return f"exchange key and value: {part}={{{json_text(key)}: {json_text(value)}}}"


def _edge_problems(graph: Graph) -> Iterator[Problem]:
    for target, source in graph.edges.items():
        place = ("edges", target)
        if target not in graph.targets:
            yield Problem(place, "must lead to an input of a node", target + did_you_mean(target, graph.targets))
        elif source not in graph.sources:
            rule = "must come from an input, a constant or an output of a node"
            yield Problem(place, rule, source + did_you_mean(source, graph.sources))
        else:
            yield from _find_overrun(place, graph.sources[source], source, graph.targets[target][1].tensor)
    for target, (name, leaf) in graph.targets.items():
        if target not in graph.edges:
            yield Problem(("nodes", name, graph.nodes[name].short_name, *leaf.path), "must have an edge", "none")


def _owned_problems(graph: Graph) -> Iterator[Problem]:
    """Finds tensors to be owned by DirectML that are not known at initialization, or that other nodes do not flag."""
    owned_targets = {to for to, (_, leaf) in graph.targets.items() if leaf.tensor.flags is TensorFlags.OWNED_BY_DML}
    sources = {graph.edges[to] for to in owned_targets if to in graph.edges}
    for target, source in graph.edges.items():
        if target in owned_targets and source not in graph.inputs and source not in graph.constants:
            yield Problem(("edges", target), "must come from an input or a constant, because of its Flags", source)
        if target not in owned_targets and source in sources and source in graph.inputs:
            rule = f"must lead to a tensor with the flag OWNED_BY_DML, as all others from {source} do"
            yield Problem(("edges", target), rule, TensorFlags.NONE.name)


def _find_overrun(place: Path, origin: TensorDesc, source: str, target: TensorDesc) -> Iterator[Problem]:
    """Finds an edge or a view that reads beyond the end of its source."""
    available = max(origin.minimum_size_in_bytes, origin.total_tensor_size_in_bytes or 0)
    if target.minimum_size_in_bytes > available:
        rule = f"must read at most the {available} bytes of {source}, {origin}"
        yield Problem(place, rule, f"{target.minimum_size_in_bytes} bytes of {target}")


def _output_problems(graph: Graph) -> Iterator[Problem]:
    if not graph.outputs:
        yield Problem("outputs", "must not be empty")
    for name, source in graph.outputs.items():
        place = ("outputs", name)
        if source not in graph.sources:
            yield Problem(place, "must come from an output of a node", source + did_you_mean(source, graph.sources))
        elif source in graph.inputs or source in graph.constants:
            remedy = "pass it through an ACTIVATION_IDENTITY or ELEMENT_WISE_IDENTITY"
            yield Problem(place, "must come from an output of a node", source, remedy=remedy)
        elif name in graph.views:
            yield from _find_overrun(("views", name), graph.sources[source], source, graph.views[name])
    for name in graph.views:
        if name not in graph.outputs:
            yield Problem(("views", name), f"must be a view of one of {', '.join(graph.outputs)}", name)


# Lowering


@functools.lru_cache(maxsize=256)
def _compile(
    nodes: tuple[tuple[str, Operator], ...],
    edges: frozenset[tuple[str, str]],
    tensors: tuple[tuple[str, TensorDesc], ...],
    inputs: tuple[str, ...],
    outputs: tuple[tuple[str, TensorDesc], ...],
    rounds_between_nodes: bool,
) -> Callable[..., Any]:
    """Compiles a graph; constants are not part of the cache key, so that equal graphs share the result."""
    sources, origins = dict(tensors), dict(edges)
    layers = sum(hasattr(node, "strides") and hasattr(node, "start_padding") for _, node in nodes)

    def graph(constants: dict[str, Any], *values: Any) -> Any:
        arrays = dict(zip(inputs, values, strict=True)) | constants
        for name, value in arrays.items():
            require_match((name,), sources[name], value)
        for name, node in nodes:
            read = {}
            for leaf in node.leaves(is_input=True):
                source = origins[f"{name}.{leaf.key}"]
                read[leaf.key] = _view_as(arrays[source], sources[source], leaf.tensor)
            with jax.named_scope(f"[{name}]"), inside(("nodes", name, node.short_name)), network_layout(layers):
                results = _compute(node, read)
            hold = round_to_type if rounds_between_nodes else lambda result: result
            arrays |= {f"{name}.{key}": hold(result) for key, result in results.items()}
        return tuple(_view_as(arrays[source], sources[source], view) for source, view in outputs)

    return jax.jit(graph)


def steps_of(nodes: Mapping[str, Operator], edges: Mapping[str, str]) -> dict[str, GraphStep]:
    """Returns the nodes as steps, with the sources that each reads and makes."""
    return {
        name: GraphStep(
            [edges[f"{name}.{key}"] for key in node.tensors(is_input=True)],
            [f"{name}.{key}" for key in node.tensors(is_input=False)],
        )
        for name, node in nodes.items()
    }


def _run_at_each_call(graph: Graph, steps: dict[str, GraphStep]) -> list[str]:
    """The nodes that are not folded into constants, in order.

    A result larger than its constants, such as DEQUANTIZE's, is folded only for a GEMM, whose factors XLA writes to
    memory on every call except on a TPU.
    """
    sources, outputs = graph.sources, set(graph.outputs.values())
    follows = {name: frozenset({name}) for name in graph.constants}  # the constants each source depends on
    for reads, makes in steps.values():
        if reads and all(source in follows for source in reads):
            follows |= dict.fromkeys(makes, frozenset[str]().union(*(follows[source] for source in reads)))
    with jax.ensure_compile_time_eval():
        devices = jax.numpy.zeros(()).devices()  # of the constants
    is_on_tpu = any(device.platform == "tpu" for device in devices)
    factors = {
        source for name, step in steps.items() if graph.nodes[name].short_name == "GEMM" for source in step.reads
    }

    def is_worth(source: str) -> bool:
        tensor, bytes_of_sources = sources[source], sum(sources[name].span_in_bytes for name in follows[source])
        is_plain = tensor.is_packed and (tensor.total_tensor_size_in_bytes or 0) <= tensor.minimum_size_in_bytes
        is_small = tensor.span_in_bytes <= bytes_of_sources or (source in factors and not is_on_tpu)
        return source not in outputs and is_plain and is_small

    return run_at_each_call(steps, outputs, {name: sources[name].span_in_bytes for name in follows}, is_worth)


def _compute(node: Operator, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Computes a node's outputs from its inputs, both by key."""
    members: dict[str, Any] = {}
    for leaf in node.leaves(is_input=True):
        if leaf.index is None:
            members[leaf.member.field] = inputs[leaf.key]
        else:
            members.setdefault(leaf.member.field, []).append(inputs[leaf.key])
    results = jax.tree.leaves(node.compute(**members))
    return {leaf.key: result for leaf, result in zip(node.leaves(is_input=False), results, strict=True)}


def _view_as(x: Any, source: TensorDesc, target: TensorDesc) -> Any:
    """Reads tensor `target` from the buffer to which tensor `source` wrote `x`."""
    x = x.reshape(source.sizes)  # a constant may be 0-dimensional
    if source.data_type is target.data_type:
        if (source.sizes, source.steps) == (target.sizes, target.steps):
            return x
        if source.is_packed and target.is_packed and source.element_count == target.element_count:
            return x.reshape(target.sizes)
    flat = x.ravel() if source.is_packed else write_strided(x, source.strides or (), source.span)
    if source.data_type is not target.data_type:
        flat = reinterpret(flat, target.dtype)
    return read_strided(flat, target.sizes, target.strides or packed_strides(target.sizes))


# JSON


@check_arguments
def from_json(json: Any) -> Any:
    """Reads a descriptor or graph from a JSON object.

    Members are under `Desc` or next to `Type`; names may omit their prefix.

    >>> tensor = {"DataType": "FLOAT32", "Sizes": [1, 1, 2, 3]}
    >>> desc = from_json(
    ...     {"Type": "ACTIVATION_HARDMAX", "InputTensor": tensor, "OutputTensor": tensor}
    ... )
    >>> desc.input.sizes
    (1, 1, 2, 3)
    """
    is_graph = isinstance(json, Mapping) and "Nodes" in json
    return Graph.from_json(json) if is_graph else operator_from_json(json)


_FIELDS = ("Nodes", "Edges", "Inputs", "Outputs", "Constants", "Views")
_TENSOR = Tensor(is_input=True)


def _read_array(part: str, name: str, read: Callable[[Any], Any], json: Any) -> Any:
    with inside((part, name)):
        return read(json)


def _places(nodes: Mapping[str, Operator]) -> dict[str, str]:
    """The tensors of the nodes by their names in directml.h: `relu.InputTensor` for `relu.input`."""
    return {
        f"{name}.{leaf.key}": f"{name}.{spell_path(leaf.path)}"
        for name, node in nodes.items()
        for leaf in node.leaves()
    }


def _constant_json(desc: TensorDesc, value: Any) -> dict[str, Any]:
    """A constant in JSON: its desc, and its buffer in base64."""
    data = desc.buffer_of(np.asarray(value).reshape(desc.sizes))
    return _TENSOR.to_json(desc) | {"Data": base64.b64encode(data).decode()}


def _constant(json: Any) -> Any:
    fields = json_object((), json, ("DataType", "Sizes", "Data"))
    desc = _TENSOR.from_json((), {name: value for name, value in fields.items() if name != "Data"}, None)
    try:
        data = base64.b64decode(json_string("Data", fields.get("Data")), validate=True)
    except ValueError as error:
        raise InvalidDesc(Problem("Data", "must be base64", str(error))) from None
    if len(data) != desc.span_in_bytes:
        raise InvalidDesc(Problem("Data", f"must have {desc.span_in_bytes} bytes, like {desc}", len(data)))
    return desc.read(data)
