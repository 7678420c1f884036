"""The record of a loaded graph, which rewrites take and return."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import onnx

from dmljax.foundation.programs.store import digest_of
from dmljax.onnx.graph.graph import Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.handlers.registry import Handler
from dmljax.onnx.rewrites.joining import join_attention
from dmljax.onnx.rewrites.packed_weights import Origin
from dmljax.onnx.rewrites.scanned_layers import with_scanned_layers
from dmljax.onnx.values.types import Elements


@dataclass(frozen=True, eq=False)
class LoadedGraph:
    """A graph and all that is known of it without its weights, which users may replace.

    `graph` has the nodes of the file, and `joined` the same with each attention as a single node. `constants` are known
    values that are not weights; `types` are those of the weights in the file. Values named in `deciding` decide sizes,
    and sizes may depend on those named in `leading`.
    """

    graph: OnnxGraph
    joined: OnnxGraph
    defaults: tuple[TensorType, ...]  # inputs whose default is an initializer
    adapted: tuple[TensorType, ...]  # inputs of the file that calls give among the weights
    constants: Mapping[str, Elements]
    types: Mapping[str, jax.ShapeDtypeStruct]
    deciding: frozenset[str]
    find: Callable[[Node], Handler]
    leading: Collection[str]
    maximum_sizes: Mapping[str, int] | str
    file: onnx.ModelProto  # without its weights
    origins: Mapping[str, Origin]  # of the weights that differ from the file's
    is_random: bool
    scan_layers: bool

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """The types of the required inputs."""
        known = self.constants.keys() | {tensor.name for tensor in self.defaults}
        return tuple(tensor for tensor in self.joined.inputs if tensor.name not in known)

    @functools.cached_property
    def running(self) -> OnnxGraph:
        """The graph that runs: `joined`, or with its equal layers in loops."""
        if not self.scan_layers:
            return self.joined
        return with_scanned_layers(self.joined, self.types, self.constants, self.find)

    @functools.cached_property
    def digest(self) -> str:
        """A digest of the file, and of all that changed its graph, but not of the weights' numbers."""
        graph = self.joined
        nodes = (f"{node.operator} {node.inputs} {node.outputs}" for node in graph.nodes)
        known = (digest_parts(name, value) for name, value in sorted(self.constants.items()))
        return digest_of(
            onnx.__version__,
            self.file.SerializeToString(deterministic=True),
            *nodes,
            *map(str, (*graph.inputs, *graph.outputs, *self.defaults)),
            *(f"{name} {struct}" for name, struct in self.types.items()),
            *(part for parts in known for part in parts),
            f"{self.maximum_sizes} {self.scan_layers}",
        )

    def part(self, graph: OnnxGraph) -> "LoadedGraph":
        """The record of a graph that has a part of this graph's nodes, with the weights that the part reads."""
        read = {*graph.output_names, *names_read(*graph.nodes)}
        return replace(
            self,
            graph=graph,
            joined=join_attention(graph, self.find),
            defaults=tuple(tensor for tensor in self.defaults if tensor.name in graph.input_names),
            adapted=tuple(tensor for tensor in self.adapted if tensor.name in read),
            types={name: struct for name, struct in self.types.items() if name in read},
        )


def digest_parts(name: str, value: Any) -> tuple[str, bytes | memoryview]:
    """The name and the type of a known value, and its elements."""
    elements = np.ascontiguousarray(value)
    described = f"{name} {elements.dtype} {elements.shape}"
    if elements.dtype == object:
        return described, repr(elements.tolist()).encode()
    return described, elements.reshape(-1).view(np.uint8).data
