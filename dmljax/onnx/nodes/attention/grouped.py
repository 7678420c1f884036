"""Grouped-query attention: rotates queries and keys, writes keys and values to caches, and attends.

Caches have room for later tokens, so every token runs the same program.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

import dmljax
from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.registry import NodeCall, handles_contrib
from dmljax.onnx.handlers.signatures import Attributes, Heads, Matrix, Rows, Vector, WantedNumber
from dmljax.onnx.nodes.attention.caches import CacheAttributes, Caches, CacheScales
from dmljax.onnx.nodes.attention.multi_head import (
    attend,
    attend_by_scores,
    merge_heads,
    positions_of,
    require_absent,
    rotate,
    rows_at,
    split_heads,
    window,
)
from dmljax.onnx.nodes.numbers.normalization import rms_normalization
from dmljax.onnx.running.interpreter import is_known
from dmljax.onnx.values.symbols import as_sizes
from dmljax.onnx.values.types import Array, Results

# Heads


class Projections(NamedTuple):
    """Queries, keys and values; the rows of queries may contain the others."""

    query: Rows
    key: Rows | None
    value: Rows | None


@dataclass(frozen=True, kw_only=True)
class SharedHeads(Attributes):
    """The numbers of heads: each of the keys and values serves several of the queries."""

    kv_num_heads: int
    num_heads: int

    def split(self, rows: Projections) -> tuple[Array, Array, Array]:
        """Splits queries, keys and values into heads."""
        query, key, value = rows
        if (key is None) != (value is None):
            raise InvalidDesc(Problem((), "key and value must come together", "one without the other"))
        if key is None or value is None:
            size = query.shape[-1] // (self.num_heads + 2 * self.kv_num_heads)
            bounds = [self.num_heads * size, (self.num_heads + self.kv_num_heads) * size]
            query, key, value = jnp.split(query, bounds, axis=-1)
        return (
            split_heads(query, self.num_heads),
            split_heads(key, self.kv_num_heads),
            split_heads(value, self.kv_num_heads),
        )


class Norms(NamedTuple):
    """The weights by which the heads of queries and keys are normalized."""

    query: Vector | None = None
    key: Vector | None = None

    def normalize(self, query: Array, key: Array, epsilons: Iterable[float]) -> list[Array]:
        """Divides queries and keys by their root mean squares if there are weights for both."""
        if self.query is None or self.key is None:
            return [query, key]
        pairs = zip((query, key), self, epsilons, strict=True)
        return [rms_normalization(x, weight, epsilon=epsilon) for x, weight, epsilon in pairs]  # type: ignore[arg-type]


# Positions


class Angles(NamedTuple):
    """Tables of rotary angles, and the positions of tokens if they differ from their places in the sequence."""

    cosines: Matrix | None = None
    sines: Matrix | None = None
    positions: Matrix | None = None


@dataclass(frozen=True, kw_only=True)
class Rotary(Attributes):
    """Whether queries and keys are rotated, and which elements of a head form pairs."""

    do_rotary: int = 0
    rotary_interleaved: int = 0

    def rotate(self, heads: Sequence[Array], angles: Angles, places: Array) -> Sequence[Array]:
        """Rotates heads by the angles of their positions."""
        if not self.do_rotary:
            return heads
        cosines, sines, positions = angles
        if cosines is None or sines is None:
            raise InvalidDesc(Problem("do_rotary", "needs cos_cache and sin_cache", "one without the other"))
        rows = [rows_at(table, places if positions is None else positions) for table in (cosines, sines)]
        return [rotate(x, *rows, is_interleaved=self.rotary_interleaved) for x in heads]


class Chunk(NamedTuple):
    """The positions of new tokens, after those of a cache."""

    pasts: Array  # (batch,)
    ends: Array  # (batch,), the positions after the last tokens
    positions: Array  # (batch, queries)

    @classmethod
    def of(cls, ends: Array, queries: int, counts: Array | None = None) -> "Chunk":
        """The chunk of `queries` tokens, of which the last may be padding, before the positions `ends`.

        Without counts, the first call has no past, even if it passes a cache; for later calls, the past is what
        precedes their own keys.
        """
        ends = ends.reshape(-1).astype(jnp.int32)
        pasts = ends - (jnp.minimum(ends, queries) if counts is None else counts.reshape(-1).astype(jnp.int32))
        return cls(pasts, ends, pasts[:, None] + jnp.arange(queries, dtype=jnp.int32)[None])

    def without_padding(self, heads: Array) -> Array:
        """Replaces the keys or values of padding with zeros.

        NaN among them would reach all queries, also later ones from the cache, because 0 * NaN is NaN.
        """
        return jnp.where((self.positions < self.ends[:, None])[:, None, :, None], heads, jnp.zeros((), heads.dtype))


# Attention


@dataclass(frozen=True, kw_only=True)
class WindowScores(Attributes):
    """The attributes of scores, which a window may limit to the keys before each query."""

    local_window_size: int = -1  # includes the query's own key
    scale: float | None = None
    softcap: float = 0.0

    @property
    def left(self) -> int:
        """How many keys before its own a query sees; -1 for all."""
        return max(self.local_window_size, 0) - 1

    def attend(
        self, query: Array, keys: Array, values: Array, visible: Array, bias: Array | None, sink: Array | None
    ) -> Array:
        """Computes attention to the keys that are seen."""
        scale = self.scale or None
        if not self.softcap and sink is None:
            return attend(query, keys, values, visible, bias, scale=scale)
        return attend_by_scores(query, keys, values, visible, bias, scale=scale, softcap=self.softcap, sink=sink)[0]


def attend_in_caches(
    query: Array,
    news: Sequence[Array],
    pasts: Sequence[Array | None],
    counts: Array,
    room: int,
    visible: Array | None,
    bias: Array | None = None,
    *,
    scale: float | None,
) -> Sequence[Array]:
    """Computes causal attention after writing new keys and values behind `counts` past ones; returns the caches too."""
    keys, values = map(merge_heads, news)
    results: Any = dmljax.multihead_attention1(
        merge_heads(query),
        keys,
        values,
        mask=visible,
        relative_position_bias=bias,
        past_key=pasts[0],
        past_value=pasts[1],
        past_sequence_lengths=counts,
        scale=scale or None,
        mask_filter_value=-math.inf,
        query_head_count=query.shape[1],
        key_value_head_count=news[0].shape[1],
        total_sequence_length=room,
        has_present=True,
    )
    return tuple(results)


@dataclass(frozen=True, kw_only=True)
class _GroupScores(WindowScores):
    causal: int = 1
    smooth_softmax: int = -1


@dataclass(frozen=True, kw_only=True)
class _Epsilons(Attributes):
    k_norm_epsilon: float | None = None
    q_norm_epsilon: float | None = None
    qk_norm_epsilon: float = 1e-6


class _ScoreInputs(NamedTuple):
    bias: Heads | None = None
    sink: Array | None = None


class _GroupedAttention(NamedTuple):
    """New tokens, the caches before them, and how they attend."""

    query: Array
    news: Sequence[Array]  # keys and values
    pasts: Sequence[Any]
    chunk: Chunk
    scores: _GroupScores
    sink: Array | None

    def attend_in_buffer(self, room: int, bias: Array | None) -> Sequence[Array]:
        """Computes attention to caches with room for the new tokens, and returns the caches too."""
        query, news, pasts, chunk, scores, sink = self
        positions, visible = chunk.positions[:, None, :, None], None
        if scores.local_window_size >= 0:
            visible = window(positions, room, is_causal=True, left=scores.left)
        if bias is not None and bias.shape[-1] != room:
            bias = jnp.pad(bias, [(0, 0)] * 3 + [(0, room - bias.shape[-1])])
        output, *presents = attend_in_caches(query, news, pasts, chunk.pasts, room, visible, bias, scale=scores.scale)
        if scores.softcap or sink is not None or not scores.causal:
            is_there: Array = positions_of(room) < chunk.ends.reshape(-1, 1, 1, 1)
            if scores.causal:
                is_there &= positions_of(room) <= positions
            keys, values = presents
            output = scores.attend(query, keys, values, is_there if visible is None else visible & is_there, bias, sink)
        return output, *presents

    def attend_in_window(self) -> Sequence[Array]:
        """Computes attention to caches of the latest keys and to new ones, and returns the caches of the latest too."""
        capacity, width = self.pasts[0].shape[2], self.scores.local_window_size
        if width < 1:
            raise InvalidDesc(Problem("local_window_size", "must be at least 1 with sliding_window_cache", width))
        if capacity < width:
            rule = f"must have {width} positions, as many as local_window_size"
            raise InvalidDesc(Problem("past_key", rule, capacity))
        keys, values = (jnp.concatenate(pair, 2) for pair in zip(self.pasts, self.news, strict=True))
        visible, kept = _sliding_window(self.chunk, capacity, width)
        output = self.scores.attend(self.query, keys, values, visible, None, self.sink)
        return output, *(jnp.take_along_axis(x, kept[:, None, :, None], 2) for x in (keys, values))


def _sliding_window(chunk: Chunk, capacity: int, width: int) -> tuple[Array, Array]:
    """Which cached and new keys each query sees, (batch, 1, queries, keys), and which the cache then holds."""
    pasts, ends, positions = chunk
    step = capacity - width + 1  # positions that leave the cache together

    def drop(count: Array) -> Array:
        return step * (jnp.maximum(count - capacity + step - 1, 0) // step)

    slots = jnp.arange(capacity, dtype=jnp.int32)[None]
    cached = drop(pasts)[:, None] + slots
    places = jnp.concatenate([jnp.where(cached < pasts[:, None], cached, -width), positions], 1)[:, None, None]
    queries = positions[:, None, :, None]
    wanted = drop(ends)[:, None] + slots
    news = capacity + wanted - pasts[:, None]
    kept = jnp.where(wanted < pasts[:, None], wanted - drop(pasts)[:, None], news)
    return (places <= queries) & (places > queries - width), jnp.clip(kept, 0, places.shape[-1] - 1)


@handles_contrib("GroupQueryAttention")
def _group_query_attention(
    rows: Projections,
    past: Caches,
    last_places: Array,
    longest: WantedNumber,
    angles: Angles,
    more: _ScoreInputs,
    scales: CacheScales,
    norms: Norms,
    query_lengths: Array | None = None,
    *,
    cache: CacheAttributes,
    epsilons: _Epsilons,
    heads: SharedHeads,
    qk_output: int = 0,
    rotary: Rotary,
    scores: _GroupScores,
    sliding_window_cache: int = 0,
    call: NodeCall,
) -> Results:
    require_absent(qk_output=qk_output)
    formats = cache.formats(past, scales)
    query, key, value = heads.split(rows)
    each = (epsilon or epsilons.qk_norm_epsilon for epsilon in (epsilons.q_norm_epsilon, epsilons.k_norm_epsilon))
    query, key = norms.normalize(query, key, each)
    chunk = Chunk.of(last_places + 1, query.shape[2], query_lengths)
    query, key = rotary.rotate((query, key), angles, chunk.positions)
    news = [form.round_trip(chunk.without_padding(x)) for form, x in zip(formats, (key, value), strict=True)]
    pasts = [form.dequantize(x, query.dtype) for form, x in zip(formats, past, strict=True)]
    sink = jnp.zeros(heads.num_heads, query.dtype) if more.sink is None and scores.smooth_softmax > 0 else more.sink
    capacity = 0 if past.keys is None else past.keys.shape[2]
    if is_known(longest) or past.keys is None:
        (most,) = as_sizes(call.known(call.node.inputs[6], longest, 1))
    else:  # nodes that graphs of commands capture count at run time; their caches have room for all positions
        most = max(capacity, query.shape[2])
    attention = _GroupedAttention(query, news, pasts, chunk, scores, sink)
    if sliding_window_cache and 0 < capacity < most and past.values is not None:
        require_absent(attention_bias=more.bias)
        output, *presents = attention.attend_in_window()
    else:
        output, *presents = attention.attend_in_buffer(most if past.keys is None else max(capacity, most), more.bias)
    return output, *(form.quantize(x) for form, x in zip(formats, presents, strict=True))
