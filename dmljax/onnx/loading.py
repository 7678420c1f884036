"""Reads an ONNX model into the record of its graph, and its weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import dmljax.onnx.nodes  # noqa: F401  # which registers the handlers
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, inside
from dmljax.foundation.checks import integer_in, mapping
from dmljax.foundation.programs.progress import BYTES, report
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType
from dmljax.onnx.graph.reader import Reader, read_model
from dmljax.onnx.graph.saving import copy_proto, drop_weights
from dmljax.onnx.handlers.finder import (
    Finder,
    find_deciding_names,
    has_random_nodes,
    require_handlers,
    require_no_circles,
)
from dmljax.onnx.handlers.registry import LARGEST
from dmljax.onnx.rewrites.joining import constants_of_masks, join_attention
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.rewrites.packed_weights import Origin
from dmljax.onnx.running.inputs import check_input
from dmljax.onnx.running.interpreter import narrow_elements
from dmljax.onnx.values.types import Elements
from dmljax.text import did_you_mean, show

MAX_SMALL = 1024  # elements of an integer constant that is not a weight


class Revision(NamedTuple):
    """A graph that runs instead of a file's, and the origins of those arrays that differ from the file's.

    The graph lacks inputs of the file that calls give among the weights, as adapters have them: `adapted`.
    """

    graph: OnnxGraph
    origins: Mapping[str, Origin] = {}
    adapted: Sequence[TensorType] = ()


def load_graph(
    source: Any,
    constants: Mapping[str, Any] | None,
    maximum_sizes: Mapping[str, int] | str | None,
    revise: Callable[[OnnxGraph], Revision] = Revision,
    *,
    scan_layers: bool = False,
    folder: Path | None = None,
) -> tuple[LoadedGraph, dict[str, jax.Array]]:
    """The graph of a model and its weights; `load` explains the arguments.

    `revise` takes the graph in the file, with its arrays, and returns the graph that runs instead. `folder` has the
    external data of a model that is not a file.
    """
    proto, folder_of_file = read_model(source)
    reader = Reader(proto, folder_of_file or folder)
    finder = Finder(reader)
    require_no_circles(reader.functions)
    graph = reader.read(proto.graph)
    report("checking the model")
    require_handlers(finder, graph)
    is_random = has_random_nodes(finder, graph)
    graph, origins, adapted = revise(_store_constant_nodes(graph))
    bounds = _bounds(graph, maximum_sizes)
    fixed = _convert_constants(graph, constants)
    known = {**graph.constants, **fixed}
    defaults = tuple(tensor for tensor in graph.inputs if tensor.name in graph.constants and tensor.name not in fixed)
    names_of_defaults = {tensor.name for tensor in defaults}
    deciding, leading = find_deciding_names(graph, finder, known.keys() - names_of_defaults)
    joined = join_attention(graph, finder.find)
    constant = {*fixed, *names_of_defaults, *deciding} | constants_of_masks(joined, known)
    adapted = [tensor for tensor in adapted if tensor.name not in known or tensor.name not in constant]
    names = [name for name, value in known.items() if name not in constant and _is_weight(value, name in leading)]
    names = [*dict.fromkeys((*names, *(tensor.name for tensor in adapted if tensor.name in known)))]
    file = copy_proto(proto) if proto is source else proto
    drop_weights(file, reader, {origins[name].name if name in origins else name for name in names})
    file = copy_proto(file)
    del proto  # protobuf frees its memory only now, before the weights are copied
    graph, joined = (OnnxGraph(each.nodes, each.inputs, each.outputs) for each in (graph, joined))  # without arrays
    weights = _place_weights(known, names)
    loaded = LoadedGraph(
        graph=graph,
        joined=joined,
        defaults=defaults,
        adapted=tuple(adapted),
        constants=known,
        types={name: jax.ShapeDtypeStruct(weight.shape, weight.dtype) for name, weight in weights.items()},
        deciding=deciding,
        find=finder.find,
        leading=finder.leading,
        maximum_sizes=bounds,
        file=file,
        origins=origins,
        is_random=is_random,
        scan_layers=scan_layers,
    )
    if scan_layers and loaded.running is joined:
        rule = "the model has no two equal layers in a row"
        raise Unsupported(Problem("scan_layers", rule, remedy="leave scan_layers out"))
    return loaded, weights


def _place_weights(known: dict[str, Elements], names: Sequence[str]) -> dict[str, jax.Array]:
    """Moves weights from NumPy's memory into JAX's."""
    weights, done, total = {}, 0, sum(known[name].nbytes for name in names)
    with jax.ensure_compile_time_eval():
        for name in names:
            report("placing weights", done, total, BYTES)
            done += known[name].nbytes
            weights[name] = jax.device_put(narrow_elements(known.pop(name)))
    return weights


def _is_weight(value: Elements, is_kept: bool) -> bool:
    """Whether a constant is a parameter rather than part of a formula, such as a single number."""
    if value.dtype == object:
        return False
    is_float = jax.numpy.issubdtype(value.dtype, jax.numpy.floating)
    return value.size > MAX_SMALL or (is_float and (not is_kept or value.ndim > 0))


def _bounds(graph: OnnxGraph, maximum_sizes: Mapping[str, int] | str | None) -> Mapping[str, int] | str:
    """The bounds of sizes that depend on values, by the names of outputs."""
    if maximum_sizes is None:
        return {}
    if isinstance(maximum_sizes, str) and maximum_sizes == LARGEST:
        return maximum_sizes
    if not isinstance(maximum_sizes, Mapping):
        rule = 'must map names of outputs to sizes, or be "largest"'
        raise InvalidType(Problem("maximum_sizes", rule, show(maximum_sizes)))
    sizes = {name: integer_in(("maximum_sizes", name), size, 1, 2**31) for name, size in maximum_sizes.items()}
    made = {name for node in graph.nodes for name in node.outputs}
    for name in sizes:
        if name not in made:
            rule = "must be the name of an output of a node"
            raise InvalidDesc(Problem(("maximum_sizes", name), rule, show(name) + did_you_mean(name, made)))
    return sizes


def _convert_constants(graph: OnnxGraph, constants: Mapping[str, Any] | None) -> dict[str, Elements]:
    """The values that a caller fixes, converted to the types of the inputs."""
    types = {tensor.name: tensor for tensor in graph.inputs}
    fixed = {}
    for name, value in mapping("constants", constants, "names of inputs to their values").items():
        place = ("constants", name)
        if name not in types:
            rule = "must be the name of an input"
            raise InvalidDesc(Problem(place, rule, show(name) + did_you_mean(name, types)))
        with inside("constants"):
            converted = np.asarray(value)
            if not isinstance(value, np.ndarray) and types[name].dtype is not None:
                converted = converted.astype(types[name].dtype)
            fixed[name] = np.asarray(check_input(types[name], converted, {}))
    return fixed


def _store_constant_nodes(graph: OnnxGraph) -> OnnxGraph:
    """Moves the arrays of Constant nodes into the graph's constants, because some exporters write weights that way.

    Single numbers stay nodes: they are parts of a formula, such as the 0.5 of GELU, not parameters.
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
