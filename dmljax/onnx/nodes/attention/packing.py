"""Attention of packed sequences, whose tokens are concatenated without padding.

ONNX Runtime has these operators only on GPUs. `places`, in the shape of the padded batch, holds positions in that
batch: first the tokens' positions, then the padding's.
"""

from collections.abc import Sequence

import jax.numpy as jnp

import dmljax
from dmljax.onnx.handlers.registry import NodeCall, handles_contrib
from dmljax.onnx.handlers.signatures import KeptVector, Matrix, Rows, Vector
from dmljax.onnx.nodes.attention.multi_head import attend, split_features, split_heads
from dmljax.onnx.running.interpreter import as_array
from dmljax.onnx.values.counts import Count
from dmljax.onnx.values.padded import padded
from dmljax.onnx.values.types import Array, Results


@handles_contrib("RemovePadding")
def _remove_padding(x: Rows, counts: KeptVector, *, call: NodeCall) -> Results:
    batch, length = x.shape[:2]
    size = call.maximum(batch * length)
    if size is None:
        counts = call.known(call.node.inputs[1], counts, batch * length)
        size = int(counts.sum())
    lengths = as_array(counts)
    is_padding = (jnp.arange(length, dtype=lengths.dtype)[None] >= lengths[:, None]).ravel()
    places = jnp.argsort(is_padding, stable=True)
    rows = places[:size]
    tokens = jnp.where(is_padding[rows, None], jnp.zeros((), x.dtype), x.reshape(batch * length, -1)[rows])
    ends = jnp.concatenate([jnp.zeros(1, lengths.dtype), jnp.cumsum(lengths, dtype=lengths.dtype)])
    places = places.reshape(batch, length).astype(lengths.dtype)
    count = size if call.bound is None else Count.of(jnp.minimum(ends[-1], size), size)
    return padded(tokens, (count, tokens.shape[1])), places, ends, jnp.max(lengths, keepdims=True)


@handles_contrib("RestorePadding")
def _restore_padding(x: Matrix, places: Matrix) -> Array:
    zeros = jnp.zeros((places.size, x.shape[1]), x.dtype)
    return dmljax.scatter_nd(zeros, places.reshape(-1, 1)[: x.shape[0]], x).reshape(*places.shape, x.shape[1])


def _attend_packed(
    parts: Sequence[Array],
    places: Array,
    ends: Array,
    bias: Array | None,
    num_heads: int,
    scale: float | None,
    hidden: float,
) -> Array:
    """Computes attention within each packed sequence, for arrays of (tokens, heads * size)."""
    query, keys, values = (split_heads(_restore_padding(x, places), num_heads) for x in parts)
    lengths = (ends[1:] - ends[:-1]).reshape(-1, 1, 1, 1)
    visible = jnp.arange(places.shape[1], dtype=lengths.dtype)[None, None, None] < lengths
    padded = attend(query, keys, values, visible, bias, scale=scale, hidden=hidden)
    return padded.reshape(places.size, -1)[places.reshape(-1)[: parts[0].shape[0]]]


@handles_contrib("PackedMultiHeadAttention")
def _packed_multihead_attention(
    query: Array,
    key: Matrix | None,
    value: Matrix | None,
    bias: Vector | None,
    places: Matrix,
    ends: Vector,
    attention_bias: Array | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float | None = None,
) -> Array:
    if key is None or value is None:  # queries, keys and values packed in each head
        parts = [query[:, :, i].reshape(query.shape[0], -1) for i in range(3)]
    else:
        parts = [query, key, value]
    if bias is not None:
        bias_parts = split_features(bias[None], [x.shape[1] for x in parts])
        parts = [x + term for x, term in zip(parts, bias_parts, strict=True)]
    return _attend_packed(parts, places, ends, attention_bias, num_heads, scale, mask_filter_value)


@handles_contrib("PackedAttention")
def _packed_attention(
    x: Matrix,
    weight: Matrix,
    bias: Vector,
    places: Matrix,
    ends: Vector,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] = (),
    scale: float | None = None,
) -> Array:
    parts = split_features(dmljax.gemm(x, weight, bias), qkv_hidden_sizes)
    return _attend_packed(parts, places, ends, attention_bias, num_heads, scale, -10000.0)
