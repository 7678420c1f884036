"""Attention and rotary embeddings.

DirectML's attention can neither cap the scores nor return them; nodes that need either compute the scores explicitly.
A query that attends to no key gives zeros in ONNX and NaN in DirectML.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np

import dmljax as dml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.file import OnnxGraph, dtype_of
from dmljax.onnx.interpreter import as_array, is_known, promoted
from dmljax.onnx.nodes.caches import cache_format
from dmljax.onnx.nodes.normalization import rms_normalization
from dmljax.onnx.parameters import (
    Array,
    Attributes,
    Heads,
    Mask,
    Matrices,
    Matrix,
    Results,
    Rows,
    RowsOrHeads,
    Stacked,
    Vector,
    WantedNumber,
)
from dmljax.onnx.registry import Call, handles, one_of
from dmljax.onnx.symbols import as_sizes
from dmljax.types import widened

_Mask = TypeVar("_Mask", Array, Array | None)

# Heads have shape (batch, heads, positions, size), and rows have shape (batch, positions, heads * size).


def in_heads(x: Array, count: int) -> Array:
    """Splits rows into heads."""
    if count < 1 or x.shape[2] % count:
        raise InvalidDesc(Problem("num_heads", f"must divide the last dimension of {x.shape}", count))
    return x.reshape(*x.shape[:2], count, x.shape[2] // count).swapaxes(1, 2)


def in_rows(x: Array) -> Array:
    """Concatenates the heads of each position into a row."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def after_past(past: Array | None, new: Array) -> Array:
    """Appends new keys or values to the past ones."""
    return new if past is None else jnp.concatenate([past.astype(new.dtype), new], axis=2)


def _of_scores(x: _Mask) -> _Mask:
    """Reshapes a mask or a bias to the dimensions of the scores: batch, heads, queries and keys."""
    return x if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape)


def _positions(count: int) -> Array:
    """The positions of keys, with the dimensions of the scores."""
    return jnp.arange(count, dtype=jnp.int32)[None, None, None]


def attended(
    query: Array,
    keys: Array,
    values: Array,
    seen: Array | None,
    bias: Array | None,
    *,
    scale: float | None,
    hidden: float = -math.inf,
) -> Array:
    """Computes attention, in rows; `hidden` is added to the scores of masked keys."""
    seen, bias, any_seen = _of_scores(seen), _of_scores(bias), None
    if math.isinf(hidden) and not (seen is None and bias is None):
        # Unmask fully masked queries and zero their results, so that derivatives are not NaN either.
        is_open = True if bias is None else bias > -jnp.inf
        any_seen = jnp.any(is_open if seen is None else is_open & seen, axis=-1, keepdims=True)
        seen = None if seen is None else seen | ~any_seen
        bias = None if bias is None else jnp.where(any_seen, bias, jnp.zeros((), bias.dtype))
    output: Array = dml.multihead_attention1(
        in_rows(query),
        mask=seen,
        relative_position_bias=bias,
        past_key=keys,
        past_value=values,
        scale=scale,
        mask_filter_value=hidden,
        query_head_count=query.shape[1],
        key_value_head_count=keys.shape[1],
    )
    if any_seen is None:
        return output
    parts = in_heads(output, query.shape[1])
    return in_rows(jnp.where(any_seen, parts, jnp.zeros((), parts.dtype)))


def _sharing(name: str, x: Array, heads: int) -> int:
    """The number of query heads that share a head of the keys or values."""
    if isinstance(x.shape[1], int) and (x.shape[1] == 0 or heads % x.shape[1]):
        raise InvalidDesc(Problem(name, f"must have a number of heads that divides {heads}", x.shape))
    return heads // x.shape[1]


def _products(query: Array, keys: Array, scale: float | None) -> Array:
    """The products of queries with the keys that their group of heads shares, in at least float32."""
    batch, heads, queries, size = query.shape
    groups = query.reshape(batch, keys.shape[1], _sharing("K", keys, heads), queries, size)
    products = jnp.einsum("bhgqd,bhkd->bhgqk", groups, keys, preferred_element_type=widened(query.dtype))
    products = products.reshape(batch, heads, queries, keys.shape[2])
    return products * (1 / math.sqrt(size) if scale is None else scale)


def _means(weights: Array, values: Array) -> Array:
    """The weighted means of the values, in heads."""
    batch, heads, queries, total = weights.shape
    groups = weights.reshape(batch, values.shape[1], _sharing("V", values, heads), queries, total)
    means = jnp.einsum("bhgqk,bhkd->bhgqd", groups, values.astype(weights.dtype))
    return means.reshape(batch, heads, queries, values.shape[3]).astype(values.dtype)


def attended_by_scores(
    query: Array,
    keys: Array,
    values: Array,
    seen: Array | None,
    bias: Array | None,
    *,
    scale: float | None,
    softcap: float = 0.0,
    hidden: float = -math.inf,
    sink: Array | None = None,
) -> tuple[Array, list[Array]]:
    """Computes attention with capped scores, and returns the scores too: products, capped, masked, and as weights.

    A `sink` per head takes a share of the weights and contributes no value.
    """
    dtype, wide = query.dtype, widened(query.dtype)
    seen, bias = _of_scores(seen), _of_scores(bias)
    products = _products(query, keys, scale)
    bounded = softcap * jnp.tanh(products / softcap) if softcap else products
    masked = bounded if bias is None else bounded + bias.astype(wide)
    if seen is not None:
        masked = jnp.where(seen, masked, -jnp.inf if math.isinf(hidden) else masked + hidden)
    largest = jnp.max(masked, axis=-1, keepdims=True)
    if sink is not None:
        sink = sink.astype(wide).reshape(1, -1, 1, 1)
        largest = jnp.maximum(largest, sink)
    largest = jnp.where(largest == -jnp.inf, 0, largest)
    powers = jnp.exp(masked - largest)
    total = jnp.sum(powers, axis=-1, keepdims=True)
    total = total if sink is None else total + jnp.exp(sink - largest)
    weights = powers / jnp.where(total == 0, 1, total)
    output = in_rows(_means(weights, values))
    return output, [one.astype(dtype) for one in (products, bounded, masked, weights)]


def _filled(mask: Array, total: int) -> Array:
    """Pads a mask that is shorter than the number of keys; the remaining keys are hidden."""
    if mask.shape[-1] in (1, total):
        return mask
    pads = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
    return jnp.pad(mask, pads, constant_values=False if mask.dtype == bool else -jnp.inf)


def window(own: Array, total: int, *, is_causal: bool, left: int = -1, right: int = -1) -> Array | None:
    """The keys that queries at positions `own` attend to, or None for all of them; a width of -1 is unlimited."""
    position = _positions(total)
    right = 0 if is_causal and right < 0 else min(right, 0) if is_causal else right
    seen = None
    if right >= 0:
        seen = position <= own + right
    if left >= 0:
        near = position >= own - left
        seen = near if seen is None else seen & near
    return seen


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
    call: Call,
) -> Results:
    is_in_heads = query.ndim == 4
    counts = (q_num_heads, kv_num_heads, kv_num_heads)
    query, key, value = (
        x if x.ndim == 4 else in_heads(x, count) for x, count in zip((query, key, value), counts, strict=True)
    )
    keys, values = after_past(past_key, key), after_past(past_value, value)
    queries, total = query.shape[2], keys.shape[2]
    own = jnp.arange(queries, dtype=jnp.int32)[None, None, :, None]
    if lengths is not None:
        lengths = lengths.astype(jnp.int32).reshape(-1, 1, 1, 1)
        own = own + (lengths - queries)
    elif past_key is not None:
        own = own + past_key.shape[2]
    seen = window(own, total, is_causal=bool(is_causal), left=left_window_size, right=right_window_size)
    if lengths is not None:
        is_there = _positions(total) < lengths
        seen = is_there if seen is None else seen & is_there
    bias = None
    if mask is not None:
        mask = _filled(mask, total)
        if mask.dtype == bool:
            seen = mask if seen is None else seen & _of_scores(mask)
        else:
            bias = mask.astype(query.dtype)
    scores = None
    if softcap or call.wants(3):
        output, stages = attended_by_scores(query, keys, values, seen, bias, scale=scale, softcap=softcap)
        scores = one_of("qk_matmul_output_mode", str(qk_matmul_output_mode), dict(zip("0123", stages, strict=True)))
    else:
        output = attended(query, keys, values, seen, bias, scale=scale)
    return in_heads(output, query.shape[1]) if is_in_heads else output, keys, values, scores


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
    call: Call,
) -> Array:
    wide = promoted(dtype_of(softmax_precision), widened(query.dtype))
    scores = _products(query.astype(wide), key.astype(wide), scale)
    weights = dml.activation_softmax1(_modified(scores, score_mod, call), axes=-1)
    return _means(_modified(weights, prob_mod, call), value)


def _modified(x: Array, by: OnnxGraph | None, call: Call) -> Array:
    """Applies a subgraph, if there is one, to an array."""
    return x if by is None else as_array(*call.run(by, [x]))


# Rotary embeddings


def rotated(x: Array, cosines: Array, sines: Array, *, is_interleaved: bool) -> Array:
    """Rotates pairs of elements in each head: neighbors if interleaved, otherwise one element from each half.

    `cosines` and `sines`, (batch or 1, positions, pairs), hold an angle per pair; elements beyond them stay unchanged.
    """
    pairs = cosines.shape[-1]
    if 2 * pairs > x.shape[-1]:
        raise InvalidDesc(Problem("cos_cache", f"must have at most {x.shape[-1] // 2} pairs", pairs))
    cosines, sines = (jnp.expand_dims(one, 1).astype(x.dtype) for one in (cosines, sines))
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
    return dml.gather(cache, positions.astype(jnp.int32), axis=0)


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
    cosines, sines = cosines[..., :pairs], sines[..., :pairs]
    if x.ndim == 4:
        return rotated(x, cosines, sines, is_interleaved=bool(interleaved))
    return in_rows(rotated(in_heads(x, num_heads), cosines, sines, is_interleaved=bool(interleaved)))


# ONNX Runtime's own attentions

_contributed = functools.partial(handles, domain="com.microsoft")


@dataclass(frozen=True, kw_only=True)
class _ScoreAttributes(Attributes):
    mask_filter_value: float = -10000.0
    num_heads: int
    scale: float | None = None
    unidirectional: int = 0


def _seen_by_mask(mask: Array, batch: int, queries: int, total: int) -> Array:
    """The visible keys for each of ONNX Runtime's forms of mask: lengths, ends and starts, or a 1 per visible key."""
    if mask.ndim == 1:
        position, mask = _positions(total), mask.astype(jnp.int32)
        ends = mask[:batch].reshape(-1, 1, 1, 1)
        if mask.shape[0] == 2 * batch:  # the ends, and then the starts
            return (position < ends) & (position >= mask[batch:].reshape(-1, 1, 1, 1))
        return position < ends
    if mask.ndim == 2:
        return (mask > 0)[:, None, None, :]
    if mask.ndim == 3:
        return (mask > 0)[:, None]
    return mask[:, :, total - queries : total, :total] > 0


def _attended_with_mask(
    query: Array,
    keys: Array,
    values: Array,
    mask: Array | None,
    bias: Array | None,
    scores: _ScoreAttributes,
) -> Array:
    """Computes attention that adds a number to the scores of masked keys; causality hides keys completely."""
    queries, total = query.shape[2], keys.shape[2]
    seen = None if mask is None else _seen_by_mask(mask, query.shape[0], queries, total)
    scale, hidden = scores.scale, scores.mask_filter_value
    if not scores.unidirectional:
        return attended(query, keys, values, seen, bias, scale=scale, hidden=hidden)
    if seen is not None:
        added = jnp.where(seen, 0.0, hidden).astype(query.dtype)
        bias = added if bias is None else _of_scores(bias) + added
    own = total - queries + jnp.arange(queries, dtype=jnp.int32)[None, None, :, None]
    return attended(query, keys, values, window(own, total, is_causal=True), bias, scale=scale)


def require_absent(**given: Array | int | str | None) -> None:
    """Refuses inputs and attributes that have an effect."""
    for name, value in given.items():
        if value is not None and not (isinstance(value, int | float | str) and value in (0, "NONE")):
            raise Unsupported(Problem(name, "not supported", value if isinstance(value, int | str) else "an array"))


def _self_attention(
    projected: Array,
    mask: Array | None,
    past: Array | None,
    bias: Array | None,
    sizes: Sequence[int],
    scores: _ScoreAttributes,
    turned: int,
) -> tuple[Array, Array | None]:
    """Computes attention of packed queries, keys and values; returns the result and the stacked keys and values.

    The first `turned` elements of each query and key are rotated by position.
    """
    if len(sizes) != 3:
        raise InvalidDesc(Problem("qkv_hidden_sizes", "must have 3 numbers", tuple(sizes)))
    ends = np.cumsum(sizes)[:-1].tolist()
    query, key, value = (in_heads(x, scores.num_heads) for x in jnp.split(projected, ends, axis=-1))
    if turned:
        angles = _angles(turned, 0 if past is None else past.shape[3], query.shape[2])
        query, key = (rotated(x, *angles, is_interleaved=False) for x in (query, key))
    keys, values = (after_past(None if past is None else past[i], x) for i, x in enumerate((key, value)))
    present = jnp.stack([keys, values]) if keys.shape == values.shape else None
    return _attended_with_mask(query, keys, values, mask, bias, scores), present


@_contributed("Attention")
def _projected_attention(
    x: Rows,
    weight: Matrix,
    bias: Vector | None = None,
    mask: Mask | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_length: Array | None = None,
    *,
    scores: _ScoreAttributes,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] = (),
    rotary_embedding_dim: int = 0,
) -> Results:
    require_absent(past_present_share_buffer=past_present_share_buffer)
    projected = dml.gemm(x, weight, bias)
    sizes = qkv_hidden_sizes or [projected.shape[-1] // 3] * 3
    turned = (rotary_embedding_dim or sizes[0] // scores.num_heads) if do_rotary else 0
    return _self_attention(projected, mask, past, attention_bias, sizes, scores, turned)


@_contributed("QAttention")
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
    scores: _ScoreAttributes,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> Results:
    require_absent(past_present_share_buffer=past_present_share_buffer)
    projected = dml.matrix_multiply_integer_to_float(
        x, weight, x_scale, weight_scale, x_zero_point, weight_zero_point, bias
    )
    sizes = [projected.shape[-1] // 3] * 3
    turned = sizes[0] // scores.num_heads if do_rotary else 0
    return _self_attention(projected, mask, past, None, sizes, scores, turned)


@_contributed("MultiHeadAttention")
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
    call: Call,
) -> Results:
    require_absent(past_sequence_length=past_length, cache_indirection=cache_indirection)
    if call.wants(3):
        raise Unsupported(Problem("qk", "not supported as an output", call.node.outputs[3]))
    num_heads = scores.num_heads
    if query.ndim == 5:  # queries, keys and values packed in each head
        parts = [query[:, :, :, i].swapaxes(1, 2) for i in range(3)]
    elif key is not None and key.ndim == 5:
        parts = [in_heads(query, num_heads), *(key[:, :, :, i].swapaxes(1, 2) for i in range(2))]
    elif key is None or value is None:
        raise InvalidDesc(Problem((), "needs keys and values, unless they are packed with the queries", query.shape))
    else:
        parts = [x if x.ndim == 4 else in_heads(x, num_heads) for x in (query, key, value)]
    if bias is not None:
        sizes = [num_heads * x.shape[3] for x in parts]
        of_parts = jnp.split(bias, np.cumsum(sizes)[:-1].tolist())
        is_cached = key is not None and key.ndim == 4  # keys with their bias added
        for i, own in enumerate(of_parts[:1] if is_cached else of_parts):
            parts[i] = parts[i] + own.reshape(1, num_heads, 1, -1)
    keys, values = after_past(past_key, parts[1]), after_past(past_value, parts[2])
    return _attended_with_mask(parts[0], keys, values, mask, attention_bias, scores), keys, values


class _SlidingWindow(NamedTuple):
    """A cache that holds the latest keys, followed by new ones."""

    seen: Array  # (batch, 1, queries, keys)
    kept: Array  # (batch, capacity), the keys that the cache holds afterwards


def _sliding_window(pasts: Array, ends: Array, own: Array, capacity: int, width: int) -> _SlidingWindow:
    """What queries at positions `own` see of the cached and new keys, when `pasts` of `ends` positions came before."""
    step = capacity - width + 1  # positions that leave the cache together

    def dropped(count: Array) -> Array:
        return step * (jnp.maximum(count - capacity + step - 1, 0) // step)

    slots = jnp.arange(capacity, dtype=jnp.int32)[None]
    cached = dropped(pasts)[:, None] + slots
    places = jnp.concatenate([jnp.where(cached < pasts[:, None], cached, -width), own], 1)[:, None, None]
    queries = own[:, None, :, None]
    wanted = dropped(ends)[:, None] + slots
    news = capacity + wanted - pasts[:, None]
    kept = jnp.where(wanted < pasts[:, None], wanted - dropped(pasts)[:, None], news)
    is_near = (places <= queries) & (places > queries - width)
    return _SlidingWindow(is_near, jnp.clip(kept, 0, places.shape[-1] - 1))


# Attention over buffers of keys and values


def unpacked(
    query: Rows, key: Rows | None, value: Rows | None, num_heads: int, kv_num_heads: int
) -> tuple[Array, Array, Array]:
    """Splits queries, keys and values into heads; the rows of queries may contain the others."""
    if (key is None) != (value is None):
        raise InvalidDesc(Problem((), "key and value must come together", "one without the other"))
    if key is None or value is None:
        size = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        bounds = [num_heads * size, (num_heads + kv_num_heads) * size]
        query, key, value = jnp.split(query, bounds, axis=-1)
    return in_heads(query, num_heads), in_heads(key, kv_num_heads), in_heads(value, kv_num_heads)


def rotated_at(
    places: Array, cosines: Array | None, sines: Array | None, *heads: Array, is_interleaved: bool
) -> tuple[Array, ...]:
    """Rotates heads by the angles of their positions."""
    if cosines is None or sines is None:
        raise InvalidDesc(Problem("do_rotary", "needs cos_cache and sin_cache", "one without the other"))
    angles = rows_at(cosines, places), rows_at(sines, places)
    return tuple(rotated(x, *angles, is_interleaved=is_interleaved) for x in heads)


class Chunk(NamedTuple):
    """The positions of new tokens, after those of a buffer."""

    pasts: Array  # (batch,)
    ends: Array  # (batch,), the positions after the last tokens
    own: Array  # (batch, queries)

    @classmethod
    def of(cls, ends: Array, queries: int, counts: Array | None = None) -> "Chunk":
        """The chunk of `queries` tokens, of which the last may be padding, before the positions `ends`.

        Without counts, the first call has no past, even if it passes a buffer; for later calls, the past is what
        precedes their own keys.
        """
        ends = ends.reshape(-1).astype(jnp.int32)
        pasts = ends - (jnp.minimum(ends, queries) if counts is None else counts.reshape(-1).astype(jnp.int32))
        return cls(pasts, ends, pasts[:, None] + jnp.arange(queries, dtype=jnp.int32)[None])

    def without_padding(self, heads: Array) -> Array:
        """Zeros instead of the keys or values of padding.

        NaN among them would reach all queries, also later ones from the buffer, because 0 * NaN is NaN.
        """
        return jnp.where((self.own < self.ends[:, None])[:, None, :, None], heads, jnp.zeros((), heads.dtype))


def attended_in_buffers(
    heads: Array,
    keys: Array,
    values: Array,
    buffers: tuple[Array | None, Array | None],
    pasts: Array,
    room: int,
    seen: Array | None = None,
    bias: Array | None = None,
    *,
    scale: float | None,
) -> tuple[Array, Array, Array]:
    """Computes causal attention to buffers of keys and values after writing new ones, and returns the buffers too."""
    results: Any = dml.multihead_attention1(
        in_rows(heads),
        in_rows(keys),
        in_rows(values),
        mask=seen,
        relative_position_bias=bias,
        past_key=buffers[0],
        past_value=buffers[1],
        past_sequence_lengths=pasts,
        scale=scale,
        mask_filter_value=-math.inf,
        query_head_count=heads.shape[1],
        key_value_head_count=keys.shape[1],
        total_sequence_length=room,
        has_present=True,
    )
    return tuple(results)


@_contributed("GroupQueryAttention")
def _group_query_attention(
    query: Rows,
    key: Rows | None,
    value: Rows | None,
    past_key: Heads | None,
    past_value: Heads | None,
    last_places: Array,
    longest: WantedNumber,
    cosines: Matrix | None = None,
    sines: Matrix | None = None,
    positions: Matrix | None = None,
    bias: Heads | None = None,
    sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    query_lengths: Array | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
    call: Call,
) -> Results:
    require_absent(qk_output=qk_output)
    formats = (
        cache_format("k_quant_type", k_quant_type, k_scale, past_key, kv_cache_bit_width),
        cache_format("v_quant_type", v_quant_type, v_scale, past_value, kv_cache_bit_width),
    )
    heads, new_keys, new_values = unpacked(query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        epsilons = (one or qk_norm_epsilon for one in (q_norm_epsilon, k_norm_epsilon))
        pairs = zip((heads, new_keys), (q_norm_weight, k_norm_weight), epsilons, strict=True)
        heads, new_keys = (rms_normalization(x, weight, epsilon=epsilon) for x, weight, epsilon in pairs)
    queries = heads.shape[2]
    if is_known(longest) or past_key is None:
        (most,) = as_sizes(call.known(call.node.inputs[6], longest, 1))
    else:  # nodes that graphs of commands capture count at run time; their buffers have room for all positions
        most = max(past_key.shape[2], queries)
    chunk = Chunk.of(last_places + 1, queries, query_lengths)
    pasts, ends, own = chunk.pasts, chunk.ends, chunk.own
    if do_rotary:
        places, is_interleaved = own if positions is None else positions, bool(rotary_interleaved)
        heads, new_keys = rotated_at(places, cosines, sines, heads, new_keys, is_interleaved=is_interleaved)
    new_keys, new_values = chunk.without_padding(new_keys), chunk.without_padding(new_values)
    past_key, past_value = (
        past if past is None or one is None else one.numbers(past, heads.dtype)
        for past, one in zip((past_key, past_value), formats, strict=True)
    )
    new_keys, new_values = (
        new if one is None else one.numbers(one.stored(new), heads.dtype)
        for new, one in zip((new_keys, new_values), formats, strict=True)
    )
    has_sink = sink is not None or smooth_softmax > 0
    if has_sink and sink is None:
        sink = jnp.zeros(num_heads, heads.dtype)
    if sliding_window_cache and past_key is not None and past_value is not None and 0 < past_key.shape[2] < most:
        require_absent(attention_bias=bias)
        capacity = past_key.shape[2]
        if local_window_size < 1:
            rule = "must be at least 1 with sliding_window_cache"
            raise InvalidDesc(Problem("local_window_size", rule, local_window_size))
        if capacity < local_window_size:
            rule = f"must have {local_window_size} positions, as many as local_window_size"
            raise InvalidDesc(Problem("past_key", rule, capacity))
        sliding = _sliding_window(pasts, ends, own, capacity, local_window_size)
        news = zip((past_key, past_value), (new_keys, new_values), strict=True)
        keys, values = (jnp.concatenate([past, new], 2) for past, new in news)
        if softcap or has_sink:
            output, _ = attended_by_scores(
                heads, keys, values, sliding.seen, None, scale=scale, softcap=softcap, sink=sink
            )
        else:
            output = attended(heads, keys, values, sliding.seen, None, scale=scale)
        presents = (jnp.take_along_axis(x, sliding.kept[:, None, :, None], 2) for x in (keys, values))
        return output, *(one.stored(x) if one else x for x, one in zip(presents, formats, strict=True))
    room = most if past_key is None else max(past_key.shape[2], most)
    seen = None
    if local_window_size >= 0:  # includes the query's own key
        seen = window(own[:, None, :, None], room, is_causal=True, left=local_window_size - 1)
    if bias is not None and bias.shape[-1] != room:
        bias = jnp.pad(bias, [(0, 0)] * 3 + [(0, room - bias.shape[-1])])
    pair = past_key, past_value
    output, keys, values = attended_in_buffers(heads, new_keys, new_values, pair, pasts, room, seen, bias, scale=scale)
    present = (one.stored(x) if one else x for x, one in zip((keys, values), formats, strict=True))
    if not (softcap or has_sink or not causal):
        return output, *present
    ends = ends.reshape(-1, 1, 1, 1)
    is_there: Array = _positions(room) < ends
    if causal:
        is_there &= _positions(room) <= own[:, None, :, None]
    seen = is_there if seen is None else seen & is_there
    output, _ = attended_by_scores(heads, keys, values, seen, bias, scale=scale, softcap=softcap, sink=sink)
    return output, *present


@_contributed("RotaryEmbedding")
def _rotary_embedding_at_positions(
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
    size = 2 * cosines.shape[1]
    heads = x if x.ndim == 4 else in_heads(x, num_heads or x.shape[-1] // size)
    if positions.ndim == 1:  # the first position of each batch element
        positions = positions[:, None] + jnp.arange(heads.shape[2], dtype=positions.dtype)[None]
    result = rotated(heads, rows_at(cosines, positions), rows_at(sines, positions), is_interleaved=bool(interleaved))
    return result if x.ndim == 4 else in_rows(result)


@_contributed("MRotaryEmbedding")
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
    if one_of("mrope_layout", str(mrope_layout), {"0": False, "1": True}):
        place = np.arange(pairs)
        streams = np.where(place < 3 * np.take(mrope_section, place % 3), place % 3, 0)
    heads = x if x.ndim == 4 else in_heads(x, num_heads or x.shape[-1] // (2 * cosines.shape[1]))
    is_of_stream = [jnp.asarray(streams == stream)[None, None] for stream in range(3)]

    def chosen(cache: Array) -> Array:
        rows = [rows_at(cache, positions[stream])[..., :pairs] for stream in range(3)]
        return jnp.where(is_of_stream[0], rows[0], jnp.where(is_of_stream[1], rows[1], rows[2]))

    angles = [chosen(cache) * jnp.asarray(scale, cache.dtype) for cache in (cosines, sines)]
    result = rotated(heads, *angles, is_interleaved=bool(interleaved))
    return result if x.ndim == 4 else in_rows(result)
