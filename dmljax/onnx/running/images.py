"""Image networks: finds a model's images, and runs elementwise operators on them with channels last.

Layers with windows compute with channels last on a CPU (`dmljax.lowerings.images.channels`). Operators between them use
the same layout, so that XLA has nothing to transpose.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import materialize_bits
from dmljax.onnx.graph.graph import Node, OnnxGraph
from dmljax.onnx.handlers.registry import Handler
from dmljax.onnx.values.types import Array, Tensor

_OF_WINDOWS = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"})
_OF_IMAGES = frozenset({"BatchNormalization", "Resize", "Upsample"})
_FIRST_AXIS_OF_SPACE = 2


def layers_of(graph: OnnxGraph) -> int:
    """The number of layers with windows in a graph."""
    return sum(node.operator in _OF_WINDOWS for node in graph.nodes)


def images_of(graph: OnnxGraph, find: Callable[[Node], Handler]) -> frozenset[str]:
    """The names of a graph's images: outputs of layers with windows, and results computed elementwise from them."""
    images: set[str] = set()
    for node in graph.nodes:
        follows = node.operator in _OF_IMAGES or find(node).is_elementwise
        if node.operator in _OF_WINDOWS or (follows and not images.isdisjoint(node.inputs)):
            images.add(node.outputs[0])
    return frozenset(images - {""})


def of_images(function: Callable[..., Any], inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Applies an elementwise function to inputs, at least one of which is an image.

    Inputs with a value per channel, such as gates, are computed first; otherwise XLA would recompute them for each
    pixel.
    """
    rank = max(jnp.ndim(x) for x in inputs if x is not None)
    if rank <= _FIRST_AXIS_OF_SPACE:
        return function(*inputs, **attributes)
    has_places = any(not _is_of_channels(x) for x in inputs if x is not None)
    places = [i for i, x in enumerate(inputs) if isinstance(x, jax.Array)]

    def move(x: Tensor | None) -> Tensor | None:
        if x is None or jnp.ndim(x) == 0:
            return x
        if has_places and _is_of_channels(x) and isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating):
            x = materialize_bits(x)
        return jnp.moveaxis(x.reshape(*[1] * (rank - x.ndim), *x.shape), 1, -1)

    def with_arrays(arrays: Sequence[Array]) -> list[Tensor | None]:
        by_place = dict(zip(places, arrays, strict=True))
        return [by_place.get(i, x) for i, x in enumerate(inputs)]

    def plain(*arrays: Array) -> Any:
        return function(*with_arrays(arrays), **attributes)

    def channels_last(*arrays: Array) -> Array:
        return jnp.moveaxis(function(*map(move, with_arrays(arrays)), **attributes), -1, 1)

    return choose(*(inputs[i] for i in places), cpu=channels_last, default=plain)


def _is_of_channels(x: Tensor) -> bool:
    """Whether an input has the same values for every pixel of an image."""
    return all(isinstance(size, int) and size == 1 for size in jnp.shape(x)[_FIRST_AXIS_OF_SPACE:])
