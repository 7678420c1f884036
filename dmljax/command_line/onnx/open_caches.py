"""Finds open sizes of caches of keys and values, from the attention that reads them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dmljax.onnx.graph.graph import Node, TensorType
from dmljax.onnx.model import Model, loaded_graph
from dmljax.onnx.running.rehearsal import rehearse

# The place of the input with past keys, which past values follow, and the attribute with the number of their heads
_ATTENTIONS = {"GroupQueryAttention": (3, "kv_num_heads"), "MultiHeadAttention": (6, "num_heads")}


class OpenCaches(NamedTuple):
    """Open sizes by name: sizes that attention decides, and sums of two others."""

    decided: Mapping[str, int]
    totals: Mapping[str, tuple[str, str]]  # all tokens, as the sum of past and new tokens

    def with_sizes(self, known: Mapping[str, int], other: int = 1) -> dict[str, int]:
        """All open sizes; `known` sizes take precedence, and `other` is any further size."""
        sizes = {**self.decided, **known}
        for total, terms in self.totals.items():
            sizes.setdefault(total, sum(sizes.get(name, other) for name in terms))
        return sizes


def open_caches(model: Model) -> OpenCaches:
    """The open sizes that follow from a model's attention."""
    inputs = {tensor.name: tensor for tensor in model.inputs if tensor.sizes is not None and tensor.has_numbers}
    nodes = loaded_graph(model).joined.nodes
    attentions = [node for node in nodes if _pasts(node) and inputs.keys() >= {*_pasts(node)}]
    if not attentions:
        return OpenCaches({}, {})
    caches = {name for node in attentions for name in _pasts(node)}
    before = {name: _sizes(tensor, 1) for name, tensor in inputs.items() if name not in caches}
    shapes = rehearse(loaded_graph(model), before).shapes
    decided: dict[str, int] = {}
    for node in attentions:
        for past, heads in zip(_pasts(node), _heads(node, shapes), strict=True):
            sizes = inputs[past].sizes or ()
            pairs = zip(sizes[1::2], heads, strict=False)  # heads and their size are the second and fourth
            decided = {size: number for size, number in pairs if isinstance(size, str)} | decided
    return OpenCaches(decided, _totals(attentions, inputs, {output.name: output for output in model.outputs}))


def sizes_of_inputs(model: Model, caches: OpenCaches, size: int) -> dict[str, tuple[int, ...]]:
    """The sizes of all inputs that are tensors of numbers, with `size` where no cache decides."""
    names = caches.with_sizes({}, size)
    types = (tensor.overridden(names, {}) for tensor in model.inputs)
    return {tensor.name: _sizes(tensor, size) for tensor in types if tensor.sizes is not None and tensor.has_numbers}


def _sizes(tensor: TensorType, size: int) -> tuple[int, ...]:
    return tuple(fixed if isinstance(fixed, int) else size for fixed in tensor.sizes or ())


def _pasts(node: Node) -> tuple[str, ...]:
    """The names of the past keys and values that a node reads."""
    place, _ = _ATTENTIONS.get(node.operator, (len(node.inputs), ""))
    return tuple(filter(None, node.inputs[place : place + 2]))


def _heads(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The number and the size of heads, as far as known, of the past keys and of the past values."""
    count = node.attributes.get(_ATTENTIONS[node.operator][1], 0)
    packed = node.attributes.get("num_heads", 0) + 2 * count  # queries, keys and values in one array
    numbers_in_one = 2 if node.attributes.get("kv_cache_bit_width") == 4 else 1

    def heads(name: str) -> tuple[int, ...]:
        shape, parts = shapes.get(name or node.inputs[0], ()), count if name else packed
        return (count, shape[2] // parts // numbers_in_one) if len(shape) == 3 and parts else (count,) * bool(count)

    return [heads(name) for name in node.inputs[1:3]]


def _totals(
    attentions: Sequence[Node], inputs: Mapping[str, TensorType], outputs: Mapping[str, TensorType]
) -> dict[str, tuple[str, str]]:
    """The names of sizes that are sums: a mask is as long as the cache that comes out, not the cache that goes in."""
    lengths = {tensor.sizes[1] for tensor in inputs.values() if tensor.sizes is not None and len(tensor.sizes) == 2}
    pasts: dict[str, str] = {}
    for node in attentions:
        total = _length(outputs.get(node.outputs[1])) if len(node.outputs) > 1 else None
        past = _length(inputs[_pasts(node)[0]])
        if total in lengths and total is not None and past not in (None, total):
            pasts[total] = past
    news = [name for name in lengths if isinstance(name, str) and name not in pasts]
    return {total: (past, news[0]) for total, past in pasts.items()} if len(news) == 1 else {}


def _length(cache: TensorType | None) -> str | None:
    """The name of a cache's third size."""
    size = cache.sizes[2] if cache is not None and cache.sizes is not None and len(cache.sizes) == 4 else None
    return size if isinstance(size, str) else None
