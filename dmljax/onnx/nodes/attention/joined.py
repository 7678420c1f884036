"""Computes attention that a model writes out in several nodes, as a single operation."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmljax.foundation.dimensions import is_symbolic
from dmljax.foundation.precision import resolve_precision
from dmljax.lowerings.attention.dot_product import Mask, attention
from dmljax.onnx.graph.graph import Node, OnnxGraph, TensorType
from dmljax.onnx.graph.reader import dtype_of
from dmljax.onnx.graph.walks import live_nodes
from dmljax.onnx.handlers.registry import NodeCall, handles
from dmljax.onnx.handlers.signatures import Passed
from dmljax.onnx.rewrites.joining import JOINED, WrittenAttention
from dmljax.onnx.running.interpreter import as_array, is_known
from dmljax.onnx.values.padded import Padded
from dmljax.onnx.values.symbols import Symbols, has_counts
from dmljax.onnx.values.types import Array, DType, Elements, Results, Tensor, Value
from dmljax.types import FLOATS, widened

# The fewest queries, and keys, for which attention is a kernel on a GPU and a TPU, and blocks on a CPU. For fewer, XLA
# fuses the nodes better: 58 kernels instead of 70 on an H100 for 4 layers of 64 positions.
_FEWEST = 128
_MAX_KNOWN = 2**28  # elements of a mask that is computed while tracing
_ABSORBING = -1e30  # numbers up to this bound stay the same if a score or a bias is added


class _NotAttention(Exception):
    """The nodes do not compute attention."""


@handles("Attention", domain=JOINED)
def _joined_attention(*inputs: Passed, body: OnnxGraph, written: WrittenAttention, call: NodeCall) -> Results:
    try:
        _require(not all(isinstance(value, np.ndarray) for value in inputs))  # known values stay known
        return _attention(_AttentionNodes(body, written, dict(zip(call.node.inputs, inputs, strict=True)), call))
    except _NotAttention:
        return tuple(call.run(body, ()))


def _require(holds: bool) -> None:
    if not holds:
        raise _NotAttention


class _AttentionNodes:
    """The nodes of an attention and their values; a node runs only if its result is needed."""

    def __init__(self, body: OnnxGraph, written: WrittenAttention, values: dict[str, Value], call: NodeCall) -> None:
        self.written = written
        self.body, self._values, self._call = body, values, call

    def tensor(self, name: str) -> Tensor:
        if name not in self._values:
            part = OnnxGraph(live_nodes(self.body.nodes, [name]), (), (TensorType(name, None, None),))
            (self._values[name],) = self._call.run(part, ())
        value = self._values[name]
        if value is None or isinstance(value, list | Padded) or has_counts(value):
            raise _NotAttention
        return value

    def array(self, name: str) -> Array:
        """A matrix, or a batch of them."""
        value = self.tensor(name)
        _require(value.ndim > 1)
        return as_array(value)

    def number(self, name: str) -> float | Array | None:
        """A single number, as an array if it is not known; None for any other tensor."""
        value = self.tensor(name)
        if value.ndim > 1 or math.prod(value.shape) != 1:
            return None
        is_float = is_known(value) and not isinstance(value, Symbols)
        return float(np.asarray(value).reshape(())) if is_float else as_array(value).reshape(())

    def known_number(self, name: str) -> float:
        number = self.number(name)
        if not isinstance(number, float):
            raise _NotAttention
        return number

    def triangle(self, name: str, sizes: tuple[int, int]) -> "_Triangle | None":
        """Reads a mask of these sizes as a triangle; None if it is not known to be a triangle."""
        graph = self.written.masks.get(name)
        if graph is None or any(map(is_symbolic, sizes)) or math.prod(sizes) > _MAX_KNOWN:
            return None
        triangle: _Triangle | None = self._call.evaluate(graph, _triangle)
        return triangle if triangle is not None and triangle.sizes == sizes else None


# Queries, keys and values


@dataclass(frozen=True)
class _Factor:
    """A factor of a product: the array with its dimensions in this order, times all scales.

    Each head stands for `shared` equal heads.
    """

    array: Array
    order: tuple[int, ...]
    scales: tuple[float | Array, ...] = ()
    shared: int = 1

    @property
    def ordered_array(self) -> Array:
        return jnp.transpose(self.array, self.order)

    def transpose(self, order: Sequence[int]) -> "_Factor":
        return replace(self, order=tuple(self.order[i] for i in order))

    @property
    def matrix_transpose(self) -> "_Factor":
        """The factor with its matrices transposed."""
        *batch, row, column = range(len(self.order))
        return self.transpose((*batch, column, row))


def _factor(nodes: _AttentionNodes, name: str, *, may_share: bool) -> _Factor:
    """Undoes the nodes that scale, transpose or repeat queries, keys or values."""
    node = nodes.body.makers.get(name)
    undo = None if node is None else _UNDO.get(node.operator)
    factor = None if node is None or undo is None else undo(nodes, node, may_share=may_share)
    if factor is not None:
        return factor
    array = nodes.array(name)
    return _Factor(array, tuple(range(array.ndim)))


def _undo_scaling(nodes: _AttentionNodes, node: Node, *, may_share: bool) -> _Factor | None:
    for data, number in (node.inputs, node.inputs[::-1]) if node.operator == "Mul" else (node.inputs,):
        scale = _scale(nodes, node, number)
        if scale is not None:
            inner = _factor(nodes, data, may_share=may_share)
            return replace(inner, scales=(*inner.scales, scale))
    return None


def _scale(nodes: _AttentionNodes, node: Node, name: str) -> float | Array | None:
    """Returns the number by which a node multiplies, inverted for a division; None for arrays."""
    number = nodes.number(name)
    if number is None:
        return None
    if node.operator == "Div":
        _require(not isinstance(number, float) or number != 0)
        number = 1 / number
    _require(not isinstance(number, float) or math.isfinite(number))
    return number


def _undo_transpose(nodes: _AttentionNodes, node: Node, *, may_share: bool) -> _Factor:
    inner = _factor(nodes, node.inputs[0], may_share=may_share)
    return inner.transpose(node.attributes.get("perm", range(len(inner.order))[::-1]))


def _undo_reshape(nodes: _AttentionNodes, node: Node, *, may_share: bool) -> _Factor | None:
    """Undoes a reshape that transposes all matrices as a single batch, or that repeats heads."""
    before = nodes.body.makers.get(node.inputs[0])
    result = nodes.array(node.outputs[0]).shape
    if before is not None and before.operator == "Expand" and may_share:
        array = nodes.array(before.inputs[0])
        if array.ndim != 5 or len(result) != 4 or array.shape[2] != 1:
            return None
        heads, repeated = array.shape[1], result[1]
        are_known = isinstance(heads, int) and isinstance(repeated, int) and heads > 0
        if not are_known or result != (array.shape[0], repeated, *array.shape[3:]):
            return None
        shared = repeated // heads
        # Repeated batches may give the same number of heads, in another order.
        if nodes.array(before.outputs[0]).shape != (*array.shape[:2], shared, *array.shape[3:]):
            return None
        return _Factor(jnp.squeeze(array, 2), (0, 1, 2, 3), (), shared)
    if before is None or tuple(before.attributes.get("perm", ())) != (0, 2, 1):
        return None
    first = nodes.body.makers.get(before.inputs[0])
    if first is None or first.operator != "Reshape":
        return None
    *batch, rows, columns = nodes.array(first.inputs[0]).shape
    as_one = nodes.array(first.outputs[0]).shape
    if as_one[1:] != (rows, columns) or result != (*batch, columns, rows):
        return None
    return _factor(nodes, first.inputs[0], may_share=may_share).matrix_transpose


_UNDO = {"Div": _undo_scaling, "Mul": _undo_scaling, "Reshape": _undo_reshape, "Transpose": _undo_transpose}


# Masks


class _Triangle(NamedTuple):
    """A mask by which each query sees one more key than the query before it."""

    rank: int
    sizes: tuple[int, int]  # queries and keys
    first: int  # keys that the first query sees
    is_seen: bool  # whether true means seen, or hidden
    added: float  # to hidden scores, by a mask of floats


def _triangle(mask: Elements) -> _Triangle | None:
    if mask.ndim < 2 or math.prod(mask.shape[:-2]) != 1 or mask.size == 0:
        return None
    rows = mask.reshape(mask.shape[-2:])
    added = 0.0 if rows.dtype == bool else float(rows.min())
    is_seen = bool(rows[0, 0]) if rows.dtype == bool else True
    visible = rows == is_seen if rows.dtype == bool else rows == 0
    first = int(np.count_nonzero(visible[0]))
    queries, keys = rows.shape
    expected = np.arange(keys) < np.arange(first, first + queries)[:, None]
    is_one = (
        first > 0 and np.array_equal(visible, expected) and (rows.dtype == bool or np.all(visible | (rows == added)))
    )
    return _Triangle(mask.ndim, (queries, keys), first, is_seen, added) if is_one else None


@dataclass
class _Scores:
    """The steps from the products of queries and keys to the softmax."""

    scales: list[float | Array] = field(default_factory=list)
    biases: list[Array] = field(default_factory=list)
    are_seen: list[Array] = field(default_factory=list)
    first: int | None = None  # if the mask is causal, the number of keys that the first query sees
    number: float = -math.inf  # for hidden scores
    is_added: bool = True  # to them, or takes their place


def _scores(nodes: _AttentionNodes, rank: int, sizes: tuple[int, int], dtype: DType) -> _Scores:
    """Reads the nodes from the product of queries and keys, of this rank and these last sizes, to the softmax."""
    scores, fills, biases = _Scores(), list[tuple[float, int]](), list[str]()
    for before, node in pairwise(reversed(nodes.written.scores)):
        place = node.inputs.index(before.outputs[0])
        match node.operator:
            case "Cast":
                before_cast, dtype = dtype, dtype_of(node.attributes["to"])
                # In a type of smaller range, a very low number becomes -infinity.
                _require(dtype in FLOATS and jnp.finfo(dtype).max >= jnp.finfo(before_cast).max)
            case "Mul" | "Div":
                _require(not fills and not biases)
                scale = _scale(nodes, node, node.inputs[1 - place])
                if scale is None:
                    raise _NotAttention
                scores.scales.append(scale)
            case "Add":
                biases.append(node.inputs[1 - place])
            case "Where":
                fills.append((nodes.known_number(node.inputs[3 - place]), len(biases)))
                _add_mask(scores, nodes, node.inputs[0], rank, sizes, is_seen=place == 1)
    if fills:
        scores.number, count = fills[0]
        _require(all(fill == scores.number for fill, _ in fills))
        # Beside a score, a very low number stays the same when a bias is added to both.
        scores.is_added = count < len(biases)
        if scores.number > -math.inf:  # which finite biases do not change
            _require(all(before == count for _, before in fills))
            _require(not scores.is_added or (count == 0 and scores.number <= _ABSORBING))
    for name in biases:
        _add_bias(scores, nodes, name, rank, sizes, is_only_mask=not fills)
    return scores


def _add_mask(
    scores: _Scores, nodes: _AttentionNodes, name: str, rank: int, sizes: tuple[int, int], *, is_seen: bool
) -> None:
    triangle = nodes.triangle(name, sizes)
    if triangle is not None and triangle.rank <= rank and triangle.is_seen == is_seen:
        scores.first = triangle.first if scores.first is None else min(scores.first, triangle.first)
    else:
        mask = as_array(nodes.tensor(name)).astype(bool)
        scores.are_seen.append(mask if is_seen else ~mask)


def _add_bias(
    scores: _Scores, nodes: _AttentionNodes, name: str, rank: int, sizes: tuple[int, int], *, is_only_mask: bool
) -> None:
    triangle = nodes.triangle(name, sizes)
    if triangle is not None and triangle.rank <= rank and is_only_mask and scores.first is None:
        scores.first, scores.number = triangle.first, triangle.added
    else:
        scores.biases.append(as_array(nodes.tensor(name)))


# Attention


@dataclass(frozen=True)
class _Layout:
    """The dimensions of scores before the last two.

    If `rank` is at most 4, they are batches, heads of keys, and the query heads that share a key head.
    """

    rank: int
    shared: int = 1

    def spread(self, x: Array) -> Array:
        """Gives queries, a mask or a bias these dimensions before the last two."""
        _require(x.ndim <= self.rank)
        x = x.reshape((1,) * (self.rank - x.ndim) + x.shape)
        if self.rank > 4:
            return x
        x = x.reshape(x.shape[:-2] + (1,) * (4 - self.rank) + x.shape[-2:])
        if self.shared == 1 or x.shape[1] == 1:
            return x[:, :, None]
        _require(x.shape[1] % self.shared == 0)
        return x.reshape((x.shape[0], x.shape[1] // self.shared, self.shared, *x.shape[2:]))

    def merge(self, x: Array) -> Array:
        """Reverses `spread`."""
        if self.rank > 4:
            return x
        return x.reshape((x.shape[0], x.shape[1] * x.shape[2])[: self.rank - 2] + x.shape[3:])


def _attention(nodes: _AttentionNodes) -> Array:
    last, product, softmax = nodes.written.weights[0], nodes.written.scores[-1], nodes.written.softmax
    names = (*product.inputs, last.inputs[1])
    query, key, value = (_factor(nodes, name, may_share=name != names[0]) for name in names)
    if key.shared != value.shared:
        query, key, value = (_factor(nodes, name, may_share=False) for name in names)
    rank = max(len(factor.order) for factor in (query, key, value))
    _require(softmax.attributes.get("axis", -1 if softmax.version >= 13 else 1) in (-1, rank - 1))
    layout = _Layout(rank, key.shared)
    keys, values = (_Layout(rank).spread(array) for array in (key.matrix_transpose.ordered_array, value.ordered_array))
    queries = _repeat_for_batches(keys, layout.spread(query.ordered_array), key.shared)
    _require(queries.shape[-1] == keys.shape[-1] and keys.shape[:-1] == values.shape[:-1])
    _require(queries.dtype == keys.dtype == values.dtype)
    sizes = (*queries.shape[:-1], keys.shape[-2])
    _require(not any(map(is_symbolic, sizes[-2:])) and min(sizes[-2:]) >= _FEWEST)
    scores = _scores(nodes, rank, (sizes[-2], sizes[-1]), queries.dtype)
    scales = (*scores.scales, *query.scales, *key.scales)
    scale = math.prod(factor for factor in scales if isinstance(factor, float))
    for factor in scales:
        queries = queries if isinstance(factor, float) else queries * factor.astype(queries.dtype)
    wide = widened(queries.dtype)

    def fit(x: Array) -> Array:
        x = layout.spread(x)
        _require(all(dim in (1, size) for dim, size in zip(x.shape, sizes, strict=True)))
        return x

    biases = [fit(bias).astype(wide) for bias in scores.biases]
    bias = reduce(operator.add, biases) if biases else None
    are_seen = [fit(mask) for mask in scores.are_seen]
    is_seen = reduce(operator.and_, are_seen) if are_seen else None
    mask = Mask(is_seen=is_seen, end=_ends(scores.first, sizes))
    number = jnp.asarray(scores.number, wide)
    mask = mask._replace(added=number) if scores.is_added else mask._replace(fill=number)
    if scores.is_added and math.isfinite(scores.number) and is_seen is not None:
        # A query that sees no key attends to all alike, and has no derivative through the scores that are replaced.
        queries = jnp.where(_any_visible(mask, None, sizes), queries, jnp.zeros((), queries.dtype))
    is_open = None
    removing = mask if scores.number == -math.inf else Mask()
    if _is_guarded(nodes) and not (bias is None and removing.is_seen is None):
        # A query that sees no key gives 0. Show it all keys first, so that derivatives are not NaN.
        is_open = _any_visible(removing, bias, sizes)
        bias = None if bias is None else jnp.where(is_open, bias, jnp.zeros((), wide))
        mask = mask if is_seen is None else mask._replace(is_seen=is_seen | ~is_open)
    hides = mask.is_seen is not None or mask.end is not None
    in_rows = all(factor.order[1:2] == (2,) for factor in (key, value))
    numbers = jnp.asarray(scale, wide), bias, mask if hides else None
    precision = resolve_precision()
    result = attention(queries, [keys], [values], *numbers, precision=precision, keys_in_rows=in_rows)
    result = result if is_open is None else jnp.where(is_open, result, jnp.zeros((), result.dtype))
    return layout.merge(reduce(operator.mul, value.scales, result)).astype(values.dtype)


def _repeat_for_batches(keys: Array, queries: Array, shared: int) -> Array:
    """Repeats queries for all batches and heads of the keys; all heads may have the same keys, but not all batches."""
    try:
        batch = jnp.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    except ValueError:
        raise _NotAttention from None
    _require(batch[0] == keys.shape[0])
    _require(shared == 1 or queries.shape[1:3] == (keys.shape[1], shared))
    return jnp.broadcast_to(queries, (*batch, *queries.shape[-2:]))


def _ends(first: int | None, sizes: Sequence[int]) -> Array | None:
    """The position after the last key that each query sees; None if each sees all."""
    *batch, queries, keys = sizes
    if first is None or first >= keys:
        return None
    with jax.ensure_compile_time_eval():  # so that kernels can tell that the mask is causal
        return jnp.arange(first, first + queries, dtype=jnp.int32).reshape((*(1 for _ in batch), queries, 1))


def _is_guarded(nodes: _AttentionNodes) -> bool:
    """Whether NaN among the weights becomes 0."""
    guards = [node for node in nodes.written.weights if node.operator == "Where"]
    _require(all(nodes.known_number(node.inputs[1]) == 0 for node in guards))
    casts = (node for node in nodes.written.weights if node.operator == "Cast")
    _require(all(dtype_of(node.attributes["to"]) in FLOATS for node in casts))
    return bool(guards)


def _any_visible(mask: Mask, bias: Array | None, sizes: Sequence[int]) -> Array:
    """Whether each query sees any key, along the dimensions of the scores."""
    parts = [] if bias is None else [bias > -jnp.inf]
    parts += [] if mask.is_seen is None else [mask.is_seen]
    shape = *(1 for _ in sizes[:-1]), sizes[-1]
    parts += [] if mask.end is None else [jax.lax.broadcasted_iota(jnp.int32, shape, len(shape) - 1) < mask.end]
    return jnp.any(reduce(operator.and_, parts), -1, keepdims=True)
