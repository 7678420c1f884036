"""Filters of convolutions in the order that XLA's library on a CPU reads.

Otherwise each program transposes each filter on every call, in a loop of its own that takes long to compile.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.onnx.graph.graph import Node, OnnxGraph, names_read
from dmljax.onnx.values.types import Array

MAX_STORED = 2**26  # bytes of all filters of a model, which take memory in addition to its weights

_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_OTHERS = frozenset({"ConvInteger", "NhwcFusedConv", "QLinearConv"})
_FILTER = 1  # its place among a node's inputs


def filters_to_store(graph: OnnxGraph, values: Mapping[str, Array]) -> frozenset[str]:
    """The names of `values` that only convolutions read, as filters; none if other filters remain.

    Groups and windows of one element are matrix products, whose filters stay as they are.
    """
    if any(node.operator in _OTHERS or any(node.subgraphs) for node in graph.nodes):
        return frozenset()
    names = {node.inputs[_FILTER] for node in graph.nodes if _has_filter(node)}
    if not all(name in values and _is_of_library(values[name]) for name in names):
        return frozenset()
    names = {name for name in names if math.prod(values[name].shape[2:]) > 1}
    others = {*graph.output_names, *names_read(*(node for node in graph.nodes if not _has_filter(node)))}
    is_too_large = sum(values[name].nbytes for name in names) > MAX_STORED
    return frozenset() if is_too_large or names & others else frozenset(names)


def _has_filter(node: Node) -> bool:
    return node.operator in _CONVOLUTIONS and node.attributes.get("group", 1) == 1


def _is_of_library(filter: Array) -> bool:
    """Whether XLA's library on a CPU takes a filter as it is."""
    return filter.dtype == np.float32 and [device.platform for device in filter.devices()] == ["cpu"]


def store_filter(filter: Array) -> Array:
    """Moves the channels of a filter behind its space: first those of the input."""
    # NumPy transposes without a program, which would have to be compiled for each shape.
    stored: Array = jax.device_put(np.ascontiguousarray(np.moveaxis(np.asarray(filter), (1, 0), (-2, -1))))
    return stored


def restore_filter(stored: Array) -> Array:
    """Undoes `store_filter`; XLA cancels it with the transpose before a convolution."""
    return jnp.moveaxis(stored, (-2, -1), (1, 0))
