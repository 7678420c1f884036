"""Rolls the equal layers of a graph into a Scan, which is traced and compiled once for all of them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.graph.walks import dependent_names
from dmljax.onnx.handlers.registry import Handler
from dmljax.onnx.rewrites.equal_layers import Labeler, Layers, Place, find_layers
from dmljax.onnx.rewrites.joining import JOINED

_VERSION = 11  # of Scan
_PREFIX = "\0layers"  # of the names of stacked values


def with_scanned_layers(
    graph: OnnxGraph, types: Mapping[str, Any], constants: Mapping[str, Any], find: Callable[[Node], Handler]
) -> OnnxGraph:
    """Replaces each sequence of equal layers by a Scan over their stacked weights.

    `types` are of weights. Layers that draw random numbers stay, because a Scan would draw others.
    """
    apart = {node for node in graph.nodes if find(node).is_random(node)}
    for layers in find_layers(graph, Labeler(graph, types, constants, apart)):
        graph = _scan_layers(graph, layers)
    return graph


def _scan_layers(graph: OnnxGraph, layers: Layers) -> OnnxGraph:
    inside, results = layers.nodes, layers.results()
    outside = [node for node in graph.nodes if node not in inside]
    read = results.keys() & {*graph.output_names, *names_read(*outside)}
    dependent = dependent_names(outside, results)
    before = [node for node in outside if dependent.isdisjoint(names_read(node))]
    after = [node for node in outside if not dependent.isdisjoint(names_read(node))]
    return replace(graph, nodes=(*before, *_nodes(layers, read), *after))


def _nodes(layers: Layers, read: Collection[str]) -> Iterator[Node]:
    """The Scan, the nodes that stack what it reads, and those that give its rows the names of the layers' results.

    `read` are the names of results that other nodes read.
    """
    results, last = layers.results(), len(layers.blocks) - 1
    label = f"{len(layers.blocks)} layers from {layers.blocks[0][0].label}"
    prefix = f"{_PREFIX}/{label}"
    stacked = [f"{prefix}/{name}" for name in layers.per_layer]
    for name, names in zip(stacked, layers.per_layer.values(), strict=True):
        yield Node("Stack", JOINED, 1, label, names, (name,), {})
    # A state of the Scan has only the last layer's result; its outputs have a row for each layer.
    results_read = {results[name] for name in read}
    places = sorted({place for layer, place in results_read if layer < last or place not in layers.carried})
    finals = [name if (name := layers.result(last, at)) in read and at not in places else "" for at in layers.carried]
    rows = [f"{prefix}/{layers.result(layers.template, place)}" for place in places]
    attributes = {"body": _body(layers, places), "num_scan_inputs": len(stacked)}
    yield Node("Scan", MAIN, _VERSION, label, (*layers.carried.values(), *stacked), (*finals, *rows), attributes)
    for row, place in zip(rows, places, strict=True):
        of_layers = (layers.result(layer, place) for layer in range(last + 1))
        yield Node("Unstack", JOINED, 1, label, (row,), tuple(name if name in read else "" for name in of_layers), {})


def _body(layers: Layers, places: Sequence[Place]) -> OnnxGraph:
    """The graph of a layer: states and rows of what is its own, to new states and the results at `places`."""
    template = layers.template
    carried = layers.carried.items()
    states = (first if template == 0 else layers.result(template - 1, place) for place, first in carried)
    results = (layers.result(template, place) for place in (*layers.carried, *places))
    inputs, outputs = (
        tuple(TensorType(name, None, None) for name in names) for names in ((*states, *layers.per_layer), results)
    )
    return OnnxGraph(layers.blocks[template], inputs, outputs)
