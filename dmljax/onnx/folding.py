"""Computes the nodes that depend only on a model's weights once instead of on every call."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import jax
import numpy as np

from dmljax.graphs.steps import Step, run_at_each_call
from dmljax.onnx.counts import NotKnown
from dmljax.onnx.file import Node, OnnxGraph, names_read
from dmljax.onnx.interpreter import Program, as_array, is_known
from dmljax.onnx.parameters import Array, Value
from dmljax.onnx.registry import KeyNeeded
from dmljax.onnx.symbols import has_counts

_FREE = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})  # XLA moves no data for these
_PRODUCTS = frozenset({"Gemm", "MatMul"})


@dataclass(frozen=True, eq=False)
class Folded:
    """The remaining nodes, and the values they read in place of `sources`, the weights that were folded."""

    graph: OnnxGraph
    sources: Mapping[str, Array]
    values: Mapping[str, Array]


def fold(program: Program, graph: OnnxGraph, constants: Mapping[str, Value], weights: Mapping[str, Array]) -> Folded:
    """Computes the nodes of a graph that read only weights and constants, if that makes calls faster.

    A result larger than its weights, such as DequantizeLinear's, is folded only for matrix products, whose factors XLA
    writes to memory on every call except on a TPU. Convolution filters gain nothing from folding.
    """
    origins: dict[str, frozenset[str]] = {}  # the weights that each result depends on

    def every(weights: Mapping[str, Array]) -> dict[str, Array]:
        values = {**constants, **weights}
        known = {name: frozenset({name}) for name in weights}
        for index in range(len(graph.nodes)):
            for name, result in _results(program, graph, index, values).items():
                values[name] = result
                follows = [known[one] for one in names_read(graph.nodes[index]) if one in known]
                if follows and not is_known(result):
                    known[name] = frozenset().union(*follows)
        origins.update((name, known[name]) for name in known if name not in weights)
        return {name: as_array(values[name]) for name in origins}

    sizes = {name: one.size * one.dtype.itemsize for name, one in jax.eval_shape(every, dict(weights)).items()}
    enlarged = frozenset[str]() if _are_on_tpu(weights) else _factors(graph)
    free = {name for node in graph.nodes if node.operator in _FREE for name in node.outputs}

    def is_worth(name: str) -> bool:
        is_small = name in enlarged or sizes[name] <= sum(weights[origin].nbytes for origin in origins[name])
        return is_small and name not in free

    steps = {node: Step([*names_read(node)], [*filter(None, node.outputs)]) for node in graph.nodes}
    nodes = tuple(run_at_each_call(steps, graph.output_names, sizes, is_worth))
    read = {name for node in nodes for name in names_read(node)} | {*graph.output_names}
    kept = [name for name in sizes if name in read and not _is_made(nodes, name)]
    if not kept:
        return Folded(graph, {}, {})
    sources = {name: weights[name] for name in weights if any(name in origins[one] for one in kept)}
    values = jax.jit(lambda weights: {name: every(weights)[name] for name in kept})(dict(weights))
    return Folded(replace(graph, nodes=nodes), sources, values)


def _results(program: Program, graph: OnnxGraph, index: int, values: dict[str, Value]) -> dict[str, Value]:
    """The results of a node whose inputs are all known so far; none if it needs more or its results are not tensors."""
    node = graph.nodes[index]
    if any(node.subgraphs) or not all(name in values for name in names_read(node)):
        return {}
    made = dict(values)
    try:
        program.run_node(graph, index, made)
    except (NotKnown, KeyNeeded):
        return {}
    results = {name: made[name] for name in node.outputs if name}
    are_tensors = all(isinstance(one, jax.Array | np.ndarray) and not has_counts(one) for one in results.values())
    return results if are_tensors else {}


def _is_made(nodes: Collection[Node], name: str) -> bool:
    return any(name in node.outputs for node in nodes)


def _factors(graph: OnnxGraph) -> frozenset[str]:
    """The names that matrix products read."""
    return frozenset(name for node in graph.nodes if node.operator in _PRODUCTS for name in node.inputs)


def _are_on_tpu(weights: Mapping[str, Array]) -> bool:
    return any(device.platform == "tpu" for one in weights.values() for device in one.devices())
