"""Attention and rotary embeddings.

DirectML's attention can neither cap the scores nor return them; nodes that need either compute the scores explicitly.
A query that attends to no key gives zeros in ONNX and NaN in DirectML.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax.numpy as jnp
import numpy as np

import dmljax
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.graph.graph import OnnxGraph
from dmljax.onnx.graph.reader import dtype_of
from dmljax.onnx.handlers.registry import NodeCall, handles, handles_contrib, look_up
from dmljax.onnx.handlers.signatures import (
    Attributes,
    Heads,
    Mask,
    Matrices,
    Matrix,
    Rows,
    RowsOrHeads,
    Stacked,
    Vector,
)
from dmljax.onnx.running.interpreter import as_array, promote
from dmljax.onnx.values.types import Array, Results
from dmljax.types import widened

_Mask = TypeVar("_Mask", Array, Array | None)

# Heads have shape (batch, heads, positions, size), and rows have shape (batch, positions, heads * size).


def split_heads(x: Array, count: int) -> Array:
    """Splits rows into heads."""
    if count < 1 or x.shape[2] % count:
        raise InvalidDesc(Problem("num_heads", f"must divide the last dimension of {x.shape}", count))
    return x.reshape(*x.shape[:2], count, x.shape[2] // count).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """Concatenates the heads of each position into a row."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def append_to_past(past: Array | None, new: Array) -> Array:
    """Appends new keys or values to past keys or values."""
    return new if past is None else jnp.concatenate([past.astype(new.dtype), new], axis=2)


def _reshape_to_scores(x: _Mask) -> _Mask:
    """Reshapes a mask or a bias to the dimensions of the scores: batch, heads, queries and keys."""
    return x if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape)


def positions_of(count: int) -> Array:
    """The positions of keys, with the dimensions of the scores."""
    return jnp.arange(count, dtype=jnp.int32)[None, None, None]


def attend(
    query: Array,
    keys: Array,
    values: Array,
    visible: Array | None,
    bias: Array | None,
    *,
    scale: float | None,
    hidden: float = -math.inf,
) -> Array:
    """Computes attention, in rows; `hidden` is added to the scores of masked keys."""
    visible, bias, any_visible = _reshape_to_scores(visible), _reshape_to_scores(bias), None
    if math.isinf(hidden) and not (visible is None and bias is None):
        # Unmask fully masked queries and zero their results, so that derivatives are not NaN either.
        is_open = True if bias is None else bias > -jnp.inf
        any_visible = jnp.any(is_open if visible is None else is_open & visible, axis=-1, keepdims=True)
        visible = None if visible is None else visible | ~any_visible
        bias = None if bias is None else jnp.where(any_visible, bias, jnp.zeros((), bias.dtype))
    output: Array = dmljax.multihead_attention1(
        merge_heads(query),
        mask=visible,
        relative_position_bias=bias,
        past_key=keys,
        past_value=values,
        scale=scale,
        mask_filter_value=hidden,
        query_head_count=query.shape[1],
        key_value_head_count=keys.shape[1],
    )
    if any_visible is None:
        return output
    parts = split_heads(output, query.shape[1])
    return merge_heads(jnp.where(any_visible, parts, jnp.zeros((), parts.dtype)))


def _group_size(name: str, x: Array, heads: int) -> int:
    """Counts the query heads that share a head of the keys or values."""
    if isinstance(x.shape[1], int) and (x.shape[1] == 0 or heads % x.shape[1]):
        raise InvalidDesc(Problem(name, f"must have a number of heads that divides {heads}", x.shape))
    return heads // x.shape[1]


def _products(query: Array, keys: Array, scale: float | None) -> Array:
    """The products of queries with the keys that their group of heads shares, in at least float32."""
    batch, heads, queries, size = query.shape
    groups = query.reshape(batch, keys.shape[1], _group_size("K", keys, heads), queries, size)
    products = jnp.einsum("bhgqd,bhkd->bhgqk", groups, keys, preferred_element_type=widened(query.dtype))
    products = products.reshape(batch, heads, queries, keys.shape[2])
    return products * (1 / math.sqrt(size) if scale is None else scale)


def _weight_values(weights: Array, values: Array) -> Array:
    """The weighted means of the values, in heads."""
    batch, heads, queries, total = weights.shape
    groups = weights.reshape(batch, values.shape[1], _group_size("V", values, heads), queries, total)
    means = jnp.einsum("bhgqk,bhkd->bhgqd", groups, values.astype(weights.dtype))
    return means.reshape(batch, heads, queries, values.shape[3]).astype(values.dtype)


def attend_by_scores(
    query: Array,
    keys: Array,
    values: Array,
    visible: Array | None,
    bias: Array | None,
    *,
    scale: float | None,
    softcap: float,
    sink: Array | None = None,
) -> tuple[Array, list[Array]]:
    """Computes attention with capped scores, and also returns the scores: as products, capped, masked, and as weights.

    A `sink` per head takes a share of the weights and contributes no value.
    """
    dtype, wide = query.dtype, widened(query.dtype)
    visible, bias = _reshape_to_scores(visible), _reshape_to_scores(bias)
    products = _products(query, keys, scale)
    bounded = softcap * jnp.tanh(products / softcap) if softcap else products
    masked = bounded if bias is None else bounded + bias.astype(wide)
    if visible is not None:
        masked = jnp.where(visible, masked, -jnp.inf)
    largest = jnp.max(masked, axis=-1, keepdims=True)
    if sink is not None:
        sink = sink.astype(wide).reshape(1, -1, 1, 1)
        largest = jnp.maximum(largest, sink)
    largest = jnp.where(largest == -jnp.inf, 0, largest)
    powers = jnp.exp(masked - largest)
    total = jnp.sum(powers, axis=-1, keepdims=True)
    total = total if sink is None else total + jnp.exp(sink - largest)
    weights = powers / jnp.where(total == 0, 1, total)
    output = merge_heads(_weight_values(weights, values))
    return output, [stage.astype(dtype) for stage in (products, bounded, masked, weights)]


def _fill_mask(mask: Array, total: int) -> Array:
    """Pads a mask that is shorter than the number of keys; the remaining keys are hidden."""
    if mask.shape[-1] in (1, total):
        return mask
    pads = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
    return jnp.pad(mask, pads, constant_values=False if mask.dtype == bool else -jnp.inf)


def window(positions: Array, total: int, *, is_causal: bool, left: int = -1, right: int = -1) -> Array | None:
    """The keys that queries at these `positions` attend to, or None for all of them; a width of -1 is unlimited."""
    position = positions_of(total)
    right = 0 if is_causal and right < 0 else min(right, 0) if is_causal else right
    visible = None
    if right >= 0:
        visible = position <= positions + right
    if left >= 0:
        near = position >= positions - left
        visible = near if visible is None else visible & near
    return visible


@handles("Attention", since=23)
def _attention(
    query: RowsOrHeads,
    key: RowsOrHeads,
    value: RowsOrHeads,
    mask: Mask | None = None,
    past_key: Heads | None = None,
    past_value: Heads | None = None,
    lengths: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 1,  # at least float32 anyway
    call: NodeCall,
) -> Results:
    is_in_heads = query.ndim == 4
    counts = (q_num_heads, kv_num_heads, kv_num_heads)
    query, key, value = (
        x if x.ndim == 4 else split_heads(x, count) for x, count in zip((query, key, value), counts, strict=True)
    )
    keys, values = append_to_past(past_key, key), append_to_past(past_value, value)
    queries, total = query.shape[2], keys.shape[2]
    positions = jnp.arange(queries, dtype=jnp.int32)[None, None, :, None]
    if lengths is not None:
        lengths = lengths.astype(jnp.int32).reshape(-1, 1, 1, 1)
        positions = positions + (lengths - queries)
    elif past_key is not None:
        positions = positions + past_key.shape[2]
    visible = window(positions, total, is_causal=bool(is_causal), left=left_window_size, right=right_window_size)
    if lengths is not None:
        is_there = positions_of(total) < lengths
        visible = is_there if visible is None else visible & is_there
    bias = None
    if mask is not None:
        mask = _fill_mask(mask, total)
        if mask.dtype == bool:
            visible = mask if visible is None else visible & _reshape_to_scores(mask)
        else:
            bias = mask.astype(query.dtype)
    scores = None
    if softcap or call.wants(3):
        output, stages = attend_by_scores(query, keys, values, visible, bias, scale=scale, softcap=softcap)
        scores = look_up("qk_matmul_output_mode", str(qk_matmul_output_mode), dict(zip("0123", stages, strict=True)))
    else:
        output = attend(query, keys, values, visible, bias, scale=scale)
    return split_heads(output, query.shape[1]) if is_in_heads else output, keys, values, scores


@handles("FlexAttention", domain="ai.onnx.preview")
def _flexible_attention(
    query: Heads,
    key: Heads,
    value: Heads,
    *,
    prob_mod: OnnxGraph | None = None,
    scale: float | None = None,
    score_mod: OnnxGraph | None = None,
    softmax_precision: int = 1,
    call: NodeCall,
) -> Array:
    wide = promote(dtype_of(softmax_precision), widened(query.dtype))
    scores = _products(query.astype(wide), key.astype(wide), scale)
    weights = dmljax.activation_softmax1(_apply_subgraph(scores, score_mod, call), axes=-1)
    return _weight_values(_apply_subgraph(weights, prob_mod, call), value)


def _apply_subgraph(x: Array, by: OnnxGraph | None, call: NodeCall) -> Array:
    """Applies a subgraph, if there is one, to an array."""
    return x if by is None else as_array(*call.run(by, [x]))


# Rotary embeddings


def rotate(x: Array, cosines: Array, sines: Array, *, is_interleaved: int) -> Array:
    """Rotates pairs of elements in each head: neighbors if interleaved, otherwise one element from each half.

    `cosines` and `sines`, (batch or 1, positions, pairs), hold an angle per pair; elements beyond them stay unchanged.
    """
    pairs = cosines.shape[-1]
    if 2 * pairs > x.shape[-1]:
        raise InvalidDesc(Problem("cos_cache", f"must have at most {x.shape[-1] // 2} pairs", pairs))
    cosines, sines = (jnp.expand_dims(table, 1).astype(x.dtype) for table in (cosines, sines))
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if is_interleaved:
        first, second = turned[..., ::2], turned[..., 1::2]
    else:
        first, second = turned[..., :pairs], turned[..., pairs:]
    parts = [first * cosines - second * sines, first * sines + second * cosines]
    result = jnp.stack(parts, -1).reshape(turned.shape) if is_interleaved else jnp.concatenate(parts, -1)
    return result if rest.shape[-1] == 0 else jnp.concatenate([result, rest], -1)


def _angles(size: int, first: int, count: int) -> tuple[Array, Array]:
    """RoFormer's cosines and sines for `size` elements at `count` positions starting at `first`."""
    frequencies = 10000.0 ** (-np.arange(0, size, 2) / size)
    angles = (first + jnp.arange(count, dtype=jnp.float32))[None, :, None] * frequencies.astype(np.float32)[None, None]
    return jnp.cos(angles), jnp.sin(angles)


def rows_at(cache: Array, positions: Array) -> Array:
    """Looks up a table's rows at the positions of each batch element."""
    return dmljax.gather(cache, positions.astype(jnp.int32), axis=0)


@handles("RotaryEmbedding", since=23)
def _rotary_embedding(
    x: RowsOrHeads,
    cosines: Matrices,
    sines: Matrices,
    positions: Matrix | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Array:
    if positions is not None:
        cosines, sines = rows_at(cosines, positions), rows_at(sines, positions)
    pairs = rotary_embedding_dim // 2 or cosines.shape[-1]
    return _rotate_heads(x, cosines[..., :pairs], sines[..., :pairs], num_heads, is_interleaved=interleaved)


def _rotate_heads(x: Array, cosines: Array, sines: Array, num_heads: int, *, is_interleaved: int) -> Array:
    """Rotates heads, or rows of `num_heads` heads."""
    if x.ndim == 4:
        return rotate(x, cosines, sines, is_interleaved=is_interleaved)
    return merge_heads(rotate(split_heads(x, num_heads), cosines, sines, is_interleaved=is_interleaved))


# ONNX Runtime's own attentions


@dataclass(frozen=True, kw_only=True)
class _ScoreAttributes(Attributes):
    mask_filter_value: float = -10000.0
    num_heads: int
    scale: float | None = None
    unidirectional: int = 0


@dataclass(frozen=True, kw_only=True)
class _SelfAttributes(_ScoreAttributes):
    do_rotary: int = 0
    past_present_share_buffer: int = 0


def _visible_by_mask(mask: Array, batch: int, queries: int, total: int) -> Array:
    """The visible keys for each of ONNX Runtime's forms of mask: lengths, ends and starts, or a 1 per visible key."""
    if mask.ndim == 1:
        position, mask = positions_of(total), mask.astype(jnp.int32)
        ends = mask[:batch].reshape(-1, 1, 1, 1)
        if mask.shape[0] == 2 * batch:  # the ends, and then the starts
            return (position < ends) & (position >= mask[batch:].reshape(-1, 1, 1, 1))
        return position < ends
    if mask.ndim == 2:
        return (mask > 0)[:, None, None, :]
    if mask.ndim == 3:
        return (mask > 0)[:, None]
    return mask[:, :, total - queries : total, :total] > 0


def _attend_with_mask(
    query: Array, keys: Array, values: Array, mask: Array | None, bias: Array | None, scores: _ScoreAttributes
) -> Array:
    """Computes attention that adds a number to the scores of masked keys; causality hides keys completely."""
    queries, total = query.shape[2], keys.shape[2]
    visible = None if mask is None else _visible_by_mask(mask, query.shape[0], queries, total)
    scale, hidden = scores.scale, scores.mask_filter_value
    if not scores.unidirectional:
        return attend(query, keys, values, visible, bias, scale=scale, hidden=hidden)
    if visible is not None:
        added = jnp.where(visible, 0.0, hidden).astype(query.dtype)
        bias = added if bias is None else _reshape_to_scores(bias) + added
    positions = total - queries + jnp.arange(queries, dtype=jnp.int32)[None, None, :, None]
    return attend(query, keys, values, window(positions, total, is_causal=True), bias, scale=scale)


def require_absent(**unsupported: Array | int | str | None) -> None:
    """Raises if an input or an attribute has an effect."""
    for name, value in unsupported.items():
        if value is not None and not (isinstance(value, int | float | str) and value in (0, "NONE")):
            raise Unsupported(Problem(name, "not supported", value if isinstance(value, int | str) else "an array"))


def _self_attention(
    projected: Array,
    mask: Array | None,
    past: Array | None,
    bias: Array | None,
    scores: _SelfAttributes,
    sizes: Sequence[int] = (),
    turned: int = 0,
) -> tuple[Array, Array | None]:
    """Computes attention of packed queries, keys and values; returns the result and the stacked keys and values.

    Where positions rotate queries and keys, they rotate the first `turned` elements, by default all.
    """
    require_absent(past_present_share_buffer=scores.past_present_share_buffer)
    query, key, value = (split_heads(x, scores.num_heads) for x in split_features(projected, sizes))
    if scores.do_rotary:
        angles = _angles(turned or query.shape[3], 0 if past is None else past.shape[3], query.shape[2])
        query, key = (rotate(x, *angles, is_interleaved=False) for x in (query, key))
    keys, values = (append_to_past(None if past is None else past[i], x) for i, x in enumerate((key, value)))
    present = jnp.stack([keys, values]) if keys.shape == values.shape else None
    return _attend_with_mask(query, keys, values, mask, bias, scores), present


def split_features(projected: Array, sizes: Sequence[int]) -> list[Array]:
    """Splits the features of queries, keys and values, which have equal sizes if `sizes` is empty."""
    sizes = sizes or [projected.shape[-1] // 3] * 3
    if len(sizes) != 3:
        raise InvalidDesc(Problem("qkv_hidden_sizes", "must have 3 numbers", tuple(sizes)))
    return jnp.split(projected, np.cumsum(sizes)[:-1].tolist(), axis=-1)


@handles_contrib("Attention")
def _projected_attention(
    x: Rows,
    weight: Matrix,
    bias: Vector | None = None,
    mask: Mask | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_length: Array | None = None,
    *,
    qkv_hidden_sizes: Sequence[int] = (),
    rotary_embedding_dim: int = 0,
    scores: _SelfAttributes,
) -> Results:
    projected = dmljax.gemm(x, weight, bias)
    return _self_attention(projected, mask, past, attention_bias, scores, qkv_hidden_sizes, rotary_embedding_dim)


@handles_contrib("QAttention")
def _quantized_attention(
    x: Rows,
    weight: Matrix,
    bias: Array,
    x_scale: Array,
    weight_scale: Array,
    mask: Mask | None = None,
    x_zero_point: Array | None = None,
    weight_zero_point: Array | None = None,
    past: Array | None = None,
    *,
    scores: _SelfAttributes,
) -> Results:
    projected = dmljax.matrix_multiply_integer_to_float(
        x, weight, x_scale, weight_scale, x_zero_point, weight_zero_point, bias
    )
    return _self_attention(projected, mask, past, None, scores)


@handles_contrib("MultiHeadAttention")
def _multihead_attention(
    query: Stacked,
    key: Stacked | None = None,
    value: Stacked | None = None,
    bias: Vector | None = None,
    mask: Mask | None = None,
    attention_bias: Array | None = None,
    past_key: Heads | None = None,
    past_value: Heads | None = None,
    past_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    scores: _ScoreAttributes,
    call: NodeCall,
) -> Results:
    require_absent(past_sequence_length=past_length, cache_indirection=cache_indirection)
    if call.wants(3):
        raise Unsupported(Problem("qk", "not supported as an output", call.node.outputs[3]))
    num_heads = scores.num_heads
    if query.ndim == 5:  # queries, keys and values packed in each head
        parts = [query[:, :, :, i].swapaxes(1, 2) for i in range(3)]
    elif key is not None and key.ndim == 5:
        parts = [split_heads(query, num_heads), *(key[:, :, :, i].swapaxes(1, 2) for i in range(2))]
    elif key is None or value is None:
        raise InvalidDesc(Problem((), "needs keys and values, unless they are packed with the queries", query.shape))
    else:
        parts = [x if x.ndim == 4 else split_heads(x, num_heads) for x in (query, key, value)]
    if bias is not None:
        of_parts = split_features(bias, [num_heads * x.shape[3] for x in parts])
        is_cached = key is not None and key.ndim == 4  # keys with their bias added
        for i, part_bias in enumerate(of_parts[:1] if is_cached else of_parts):
            parts[i] = parts[i] + part_bias.reshape(1, num_heads, 1, -1)
    keys, values = append_to_past(past_key, parts[1]), append_to_past(past_value, parts[2])
    return _attend_with_mask(parts[0], keys, values, mask, attention_bias, scores), keys, values


@handles_contrib("RotaryEmbedding")
def _contrib_rotary_embedding(
    x: RowsOrHeads,
    positions: Array,
    cosines: Matrix,
    sines: Matrix,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Array:
    # Packed sequences have their own positions, and may together be longer than the table of angles.
    if positions.ndim == 1:  # the first position of each batch element
        positions = positions[:, None] + jnp.arange(x.shape[-2], dtype=positions.dtype)[None]
    angles = rows_at(cosines, positions), rows_at(sines, positions)
    return _rotate_heads(x, *angles, num_heads or _heads_of(x, cosines), is_interleaved=interleaved)


def _heads_of(rows: Array, cache: Array) -> int:
    """Counts the heads, assuming that a table of angles rotates all their elements."""
    return rows.shape[-1] // (2 * cache.shape[1])


@handles_contrib("MRotaryEmbedding")
def _rotary_embedding_of_streams(
    x: RowsOrHeads,
    positions: Rows,
    cosines: Matrix,
    sines: Matrix,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    mrope_section: Sequence[int],
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Array:
    """Rotates by positions in time, height and width, each of which has its sections of the pairs."""
    pairs = rotary_embedding_dim // 2 or cosines.shape[1]
    if len(mrope_section) != 3 or min(mrope_section) < 0 or sum(mrope_section) != pairs:
        rule = f"must be 3 numbers that add up to {pairs}, the number of pairs"
        raise InvalidDesc(Problem("mrope_section", rule, tuple(mrope_section)))
    streams = np.repeat(np.arange(3), mrope_section)
    if look_up("mrope_layout", str(mrope_layout), {"0": False, "1": True}):
        place = np.arange(pairs)
        streams = np.where(place < 3 * np.take(mrope_section, place % 3), place % 3, 0)
    is_of_stream = [jnp.asarray(streams == stream)[None, None] for stream in range(3)]

    def choose(cache: Array) -> Array:
        rows = [rows_at(cache, positions[stream])[..., :pairs] for stream in range(3)]
        return jnp.where(is_of_stream[0], rows[0], jnp.where(is_of_stream[1], rows[1], rows[2]))

    count = num_heads or _heads_of(x, cosines)
    cosines, sines = (choose(cache) * jnp.asarray(scale, cache.dtype) for cache in (cosines, sines))
    return _rotate_heads(x, cosines, sines, count, is_interleaved=interleaved)
