"""Computes the nodes that depend only on a model's weights once instead of on every call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from dmljax.foundation.programs.compiling import Program
from dmljax.graphs.steps import run_at_each_call
from dmljax.onnx.graph.graph import OnnxGraph, names_read
from dmljax.onnx.graph.walks import steps_of
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.running.interpreter import Interpreter, as_array, is_known
from dmljax.onnx.values.symbols import has_counts
from dmljax.onnx.values.types import Array, Value

_FREE = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})  # XLA moves no data for these
_PRODUCTS = frozenset({"Gemm", "MatMul"})


@dataclass(frozen=True, eq=False)
class Folded:
    """The remaining nodes, and the values they read in place of `sources`, the weights that were folded."""

    graph: OnnxGraph
    sources: Mapping[str, Array]
    values: Mapping[str, Array]


def fold(
    interpreter: Interpreter, loaded: LoadedGraph, constants: Mapping[str, Value], weights: Mapping[str, Array]
) -> Folded:
    """Computes the nodes of a graph that read only weights and constants, if that makes calls faster.

    A result larger than its weights, such as DequantizeLinear's, is folded only for matrix products, whose factors XLA
    writes to memory on every call except on a TPU. Convolution filters gain nothing from folding.
    """
    graph = loaded.running
    origins: dict[str, frozenset[str]] = {}  # the weights that each result depends on

    def every(weights: Mapping[str, Array]) -> dict[str, Array]:
        values = {**constants, **weights}
        known = {name: frozenset({name}) for name in weights}
        for index in range(len(graph.nodes)):
            for name, result in _results(interpreter, graph, index, values).items():
                values[name] = result
                follows = [known[source] for source in names_read(graph.nodes[index]) if source in known]
                if follows and not is_known(result):
                    known[name] = frozenset().union(*follows)
        origins.update((name, known[name]) for name in known if name not in weights)
        return {name: as_array(values[name]) for name in origins}

    sizes = {name: made.size * made.dtype.itemsize for name, made in jax.eval_shape(every, dict(weights)).items()}
    is_on_tpu = any(device.platform == "tpu" for weight in weights.values() for device in weight.devices())
    products = [] if is_on_tpu else [node for node in graph.nodes if node.operator in _PRODUCTS]
    enlarged = {name for node in products for name in node.inputs}
    free = {name for node in graph.nodes if node.operator in _FREE for name in node.outputs}

    def is_worth(name: str) -> bool:
        is_small = name in enlarged or sizes[name] <= sum(weights[origin].nbytes for origin in origins[name])
        return is_small and name not in free

    nodes = tuple(run_at_each_call(steps_of(graph.nodes), graph.output_names, sizes, is_worth))
    read = {*names_read(*nodes), *graph.output_names}
    made = {name for node in nodes for name in node.outputs}
    kept = [name for name in sizes if name in read - made]
    if not kept:
        return Folded(graph, {}, {})
    needed = frozenset().union(*(origins[name] for name in kept))
    sources = {name: weight for name, weight in weights.items() if name in needed}
    compute = Program(
        lambda weights: {name: every(weights)[name] for name in kept},
        "what depends only on weights",
        source=lambda: loaded.digest,
    )
    values = compute(dict(weights))
    return Folded(replace(graph, nodes=nodes), sources, values)


def _results(interpreter: Interpreter, graph: OnnxGraph, index: int, values: dict[str, Value]) -> dict[str, Value]:
    """The results of a node whose inputs are all known so far; none if it needs more or its results are not tensors."""
    node = graph.nodes[index]
    made = dict(values)
    if any(node.subgraphs) or not interpreter.try_node(graph, index, made):
        return {}
    results = {name: made[name] for name in node.outputs if name}
    are_tensors = all(isinstance(x, jax.Array | np.ndarray) and not has_counts(x) for x in results.values())
    return results if are_tensors else {}
