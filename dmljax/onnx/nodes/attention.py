"""Attention and rotary embeddings.

DirectML's attention has neither a bound of the scores nor the scores as an output; nodes that want one of them are
computed score by score here. A query that sees no key has zeros in ONNX, where DirectML has NaN.
"""

import math
from typing import Any

import jax.numpy as jnp

import dmljax as dml
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.file import Graph, dtype_of
from dmljax.onnx.registry import Call, handles, one_of
from dmljax.types import widened

# Arrays of heads are of (batch, heads, positions, size), and arrays of rows of (batch, positions, heads * size).


def in_heads(x: Any, count: int) -> Any:
    """Rows, each cut into heads."""
    if count < 1 or x.shape[2] % count:
        raise InvalidDesc(Problem("num_heads", f"must divide the last size of {x.shape}", count))
    return x.reshape(*x.shape[:2], count, x.shape[2] // count).swapaxes(1, 2)


def in_rows(x: Any) -> Any:
    """The heads of each position, one after the other."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def after_past(past: Any, new: Any) -> Any:
    """All keys, or all values, in heads."""
    return new if past is None else jnp.concatenate([past.astype(new.dtype), new], axis=2)


def attended(
    query: Any, keys: Any, values: Any, seen: Any, bias: Any, *, scale: float | None, hidden: float = -math.inf
) -> Any:
    """What the queries take from the values, in rows; `hidden` is added to the scores of keys that are not seen."""
    any_seen = None
    if math.isinf(hidden) and not (seen is None and bias is None):
        # Queries that see nothing are let see all, and then get zeros, so that no derivative is NaN either.
        is_open = True if bias is None else bias > -jnp.inf
        any_seen = jnp.any(is_open if seen is None else is_open & seen, axis=-1, keepdims=True)
        seen = None if seen is None else seen | ~any_seen
        bias = None if bias is None else jnp.where(any_seen, bias, jnp.zeros((), bias.dtype))
    output = dml.multihead_attention1(
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


def _products(query: Any, keys: Any, scale: float | None) -> Any:
    """The products of queries and keys, which groups of heads share, in at least float32."""
    batch, heads, queries, size = query.shape
    groups = query.reshape(batch, keys.shape[1], heads // keys.shape[1], queries, size)
    products = jnp.einsum("bhgqd,bhkd->bhgqk", groups, keys, preferred_element_type=widened(query.dtype))
    products = products.reshape(batch, heads, queries, keys.shape[2])
    return products * (1 / math.sqrt(size) if scale is None else scale)


def _means(weights: Any, values: Any) -> Any:
    """The means of values with weights, in heads."""
    batch, heads, queries, total = weights.shape
    groups = weights.reshape(batch, values.shape[1], heads // values.shape[1], queries, total)
    means = jnp.einsum("bhgqk,bhkd->bhgqd", groups, values.astype(weights.dtype))
    return means.reshape(batch, heads, queries, values.shape[3]).astype(values.dtype)


def attended_by_scores(
    query: Any,
    keys: Any,
    values: Any,
    seen: Any,
    bias: Any,
    *,
    scale: float | None,
    softcap: float = 0.0,
    hidden: float = -math.inf,
    sink: Any = None,
) -> tuple[Any, list[Any]]:
    """The same with a bound of the scores, and the scores themselves: as products, bounded, masked, and as weights.

    A `sink` of each head takes its share of the weights, and gives nothing.
    """
    dtype, wide = query.dtype, widened(query.dtype)
    products = _products(query, keys, scale)
    bounded = softcap * jnp.tanh(products / softcap) if softcap else products
    masked = bounded if bias is None else bounded + bias.astype(wide)
    if seen is not None:
        masked = jnp.where(seen, masked, -jnp.inf if math.isinf(hidden) else masked + hidden)
    largest = jnp.max(masked, axis=-1, keepdims=True)
    if sink is not None:
        sink = sink.astype(wide).reshape(-1, 1, 1)
        largest = jnp.maximum(largest, sink)
    largest = jnp.where(largest == -jnp.inf, 0, largest)
    powers = jnp.exp(masked - largest)
    total = jnp.sum(powers, axis=-1, keepdims=True)
    total = total if sink is None else total + jnp.exp(sink - largest)
    weights = powers / jnp.where(total == 0, 1, total)
    output = in_rows(_means(weights, values))
    return output, [one.astype(dtype) for one in (products, bounded, masked, weights)]


def _filled(mask: Any, total: Any) -> Any:
    """A mask of which the last size may be less than the number of keys: the others are hidden."""
    if mask.shape[-1] in (1, total):
        return mask
    pads = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
    return jnp.pad(mask, pads, constant_values=False if mask.dtype == bool else -jnp.inf)


def window(own: Any, total: Any, *, is_causal: bool, left: int = -1, right: int = -1) -> Any:
    """The keys that queries at positions `own` see, or None for all of them; a width of -1 has no end."""
    position = jnp.arange(total, dtype=own.dtype)
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
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    lengths: Any = None,
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
) -> Any:
    is_in_heads = query.ndim == 4
    counts = (q_num_heads, kv_num_heads, kv_num_heads)
    query, key, value = (
        x if x.ndim == 4 else in_heads(x, count) for x, count in zip((query, key, value), counts, strict=True)
    )
    keys, values = after_past(past_key, key), after_past(past_value, value)
    queries, total = query.shape[2], keys.shape[2]
    past = jnp.full((1,), 0 if past_key is None else past_key.shape[2], jnp.int32)
    if lengths is not None:
        past = lengths.astype(jnp.int32) - queries
    own = (past[:, None] + jnp.arange(queries, dtype=jnp.int32))[:, None, :, None]
    seen = window(own, total, is_causal=bool(is_causal), left=left_window_size, right=right_window_size)
    if lengths is not None:
        is_there = jnp.arange(total) < lengths.reshape(-1, 1, 1, 1)
        seen = is_there if seen is None else seen & is_there
    bias = None
    if mask is not None:
        mask = _filled(mask, total)
        if mask.dtype == bool:
            seen = mask if seen is None else seen & mask
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
    query: Any,
    key: Any,
    value: Any,
    *,
    prob_mod: Graph | None = None,
    scale: float | None = None,
    score_mod: Graph | None = None,
    softmax_precision: int = 1,
    call: Call,
) -> Any:
    wide = jnp.promote_types(dtype_of(softmax_precision), widened(query.dtype))
    scores = _products(query.astype(wide), key.astype(wide), scale)
    if score_mod is not None:
        (scores,) = call.run(score_mod, [scores])
    weights = dml.activation_softmax1(scores, axes=-1)
    if prob_mod is not None:
        (weights,) = call.run(prob_mod, [weights])
    return _means(weights, value)


@handles("CausalConvWithState")
@handles("CausalConvWithState", domain="com.microsoft")
def _causal_convolution(
    x: Any, filter: Any, bias: Any = None, past: Any = None, *, activation: str = "none", ndim: int = 1
) -> Any:
    if ndim != 1:
        raise Unsupported(Problem("ndim", "must be 1", ndim))
    before = filter.shape[2] - 1
    past = jnp.zeros((*x.shape[:2], before), x.dtype) if past is None else past
    whole = jnp.concatenate([past, x], axis=2)
    output = dml.convolution(whole, filter, bias, group_count=x.shape[1])
    if one_of("activation", activation, {"none": False, "silu": True, "swish": True}):
        output = dml.activation_swish(output)
    return output, whole[:, :, whole.shape[2] - before :]


# Rotary embeddings


def rotated(x: Any, cosines: Any, sines: Any, *, is_interleaved: bool) -> Any:
    """Heads of which the first elements are turned by angles, pair by pair: neighbours, or those of both halves.

    `cosines` and `sines`, (batch or 1, positions, pairs), are of as many pairs as are turned.
    """
    pairs = cosines.shape[-1]
    if 2 * pairs > x.shape[-1]:
        raise InvalidDesc(Problem("cos_cache", f"must be of at most {x.shape[-1] // 2} pairs", pairs))
    cosines, sines = (jnp.expand_dims(one, 1).astype(x.dtype) for one in (cosines, sines))
    turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if is_interleaved:
        first, second = turned[..., ::2], turned[..., 1::2]
    else:
        first, second = turned[..., :pairs], turned[..., pairs:]
    parts = [first * cosines - second * sines, first * sines + second * cosines]
    result = jnp.stack(parts, -1).reshape(turned.shape) if is_interleaved else jnp.concatenate(parts, -1)
    return result if rest.shape[-1] == 0 else jnp.concatenate([result, rest], -1)


def rows_at(cache: Any, positions: Any) -> Any:
    """The rows of a table at positions of each of the batch."""
    return dml.gather(cache, positions.astype(jnp.int32), axis=0)


@handles("RotaryEmbedding", since=23)
def _rotary_embedding(
    x: Any,
    cosines: Any,
    sines: Any,
    positions: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    if positions is not None:
        cosines, sines = rows_at(cosines, positions), rows_at(sines, positions)
    pairs = rotary_embedding_dim // 2 or cosines.shape[-1]
    cosines, sines = cosines[..., :pairs], sines[..., :pairs]
    if x.ndim == 4:
        return rotated(x, cosines, sines, is_interleaved=bool(interleaved))
    return in_rows(rotated(in_heads(x, num_heads), cosines, sines, is_interleaved=bool(interleaved)))
