"""Block-sparse and paged attention: a mask says which blocks a query sees, or a table which blocks a sequence has."""

import jax.numpy as jnp

from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.onnx.handlers.registry import handles_contrib
from dmljax.onnx.handlers.signatures import Heads, Matrix, Vector
from dmljax.onnx.nodes.attention.grouped import (
    Angles,
    Chunk,
    Norms,
    Projections,
    Rotary,
    SharedHeads,
    WindowScores,
    attend_in_caches,
)
from dmljax.onnx.nodes.attention.multi_head import require_absent, window
from dmljax.onnx.values.types import Array, Results

# SparseAttention


def _block_mask(starts: Array, columns: Array) -> Array:
    """The blocks (layouts, rows, columns) of a mask in the CSR format, whose columns are padded with -1."""
    layouts, count = starts.shape[0], starts.shape[1] - 1
    places = jnp.arange(columns.shape[1], dtype=jnp.int32)
    rows = jnp.sum(starts[:, 1:, None] <= places[None, None], 1, dtype=jnp.int32)  # out of range for padding
    mask = jnp.zeros((layouts, count, count), bool)
    return mask.at[jnp.arange(layouts, dtype=jnp.int32)[:, None], rows, columns].set(True, mode="drop")


@handles_contrib("SparseAttention")
def _sparse_attention(
    rows: Projections,
    past_key: Heads,
    past_value: Heads,
    starts: Matrix,
    columns: Matrix,
    longest: Array,
    ends: Vector,
    cosines: Matrix | None = None,
    sines: Matrix | None = None,
    *,
    heads: SharedHeads,
    rotary: Rotary,
    scale: float | None = None,
    sparse_block_size: int,
) -> Results:
    layouts, room = starts.shape[0], past_key.shape[2]
    if heads.num_heads % layouts:
        rule = f"must be divisible by {layouts}, the number of layouts"
        raise InvalidDesc(Problem("num_heads", rule, heads.num_heads))
    query, key, value = heads.split(rows)
    chunk = Chunk.of(ends, query.shape[2])
    query, key = rotary.rotate((query, key), Angles(cosines, sines), chunk.positions)
    mask = _block_mask(starts.astype(jnp.int32), columns.astype(jnp.int32))
    blocks = jnp.take(mask, chunk.positions // sparse_block_size, axis=1, mode="clip")
    visible = jnp.repeat(jnp.moveaxis(blocks, 0, 1), sparse_block_size, axis=-1)  # (batch, layouts, queries, keys)
    visible = jnp.pad(visible, [(0, 0)] * 3 + [(0, max(room - visible.shape[-1], 0))])[..., :room]
    visible = jnp.tile(visible, (1, heads.num_heads // layouts, 1, 1))
    news, pasts = [chunk.without_padding(x) for x in (key, value)], (past_key, past_value)
    return tuple(attend_in_caches(query, news, pasts, chunk.pasts, room, visible, scale=scale))


# PagedAttention


def _slots(table: Array, sequences: Array, places: Array, size: int) -> Array:
    """The rows of a cache that hold positions of sequences; -1 where a sequence has no block."""
    blocks = table[sequences, jnp.clip(places // size, 0, table.shape[1] - 1)]
    return jnp.where((blocks < 0) | (places >= size * table.shape[1]), -1, blocks * size + places % size)


@handles_contrib("PagedAttention")
def _paged_attention(
    query: Matrix,
    key: Matrix | None,
    value: Matrix | None,
    key_cache: Array,
    value_cache: Array | None,
    starts: Vector,
    pasts: Vector,
    table: Matrix,
    cosines: Matrix | None = None,
    sines: Matrix | None = None,
    slots: Vector | None = None,
    sink: Vector | None = None,
    q_norm_weight: Vector | None = None,
    k_norm_weight: Vector | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    metadata: Array | None = None,  # bounds that only help to choose kernels
    *,
    heads: SharedHeads,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    qk_norm_epsilon: float = 1e-6,
    rotary: Rotary,
    rotary_offset: int = 0,
    scores: WindowScores,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
) -> Results:
    require_absent(k_scale=k_scale, v_scale=v_scale, k_quant_type=k_quant_type, v_quant_type=v_quant_type)
    require_absent(rotary_offset=rotary_offset, v_head_size=v_head_size)
    if kv_cache_layout != "SEPARATE" or value_cache is None:
        raise Unsupported(Problem("kv_cache_layout", "must be SEPARATE; others are not supported", kv_cache_layout))
    for name, dtype in (("k_cache_dtype", k_cache_dtype), ("v_cache_dtype", v_cache_dtype)):
        if dtype not in ("", key_cache.dtype.name):
            raise Unsupported(Problem(name, f"must be {key_cache.dtype.name}, the type of the cache", dtype))
    tokens = query.shape[0]
    rows = Projections(query[None], None if key is None else key[None], None if value is None else value[None])
    queries, keys, values = heads.split(rows)
    queries, keys = Norms(q_norm_weight, k_norm_weight).normalize(queries, keys, [qk_norm_epsilon] * 2)
    starts, pasts, table = (x.astype(jnp.int32) for x in (starts, pasts, table))
    index = jnp.arange(tokens, dtype=jnp.int32)
    sequences = jnp.sum(starts[1:, None] <= index[None], 0, dtype=jnp.int32)
    sequences = jnp.minimum(sequences, table.shape[0] - 1)
    steps = index - starts[sequences]
    places = pasts[sequences] + steps
    queries, keys = rotary.rotate((queries, keys), Angles(cosines, sines), places[None])
    size = key_cache.shape[1]
    slots = _slots(table, sequences, places, size) if slots is None else slots.astype(jnp.int32)
    slots = jnp.where(index < starts[-1], slots, -1)

    def write(cache: Array, new: Array) -> Array:
        flat = cache.reshape(-1, *cache.shape[2:])
        slots_or_end = jnp.where(slots < 0, flat.shape[0], slots)
        return flat.at[slots_or_end].set(new[0].swapaxes(0, 1).astype(cache.dtype), mode="drop").reshape(cache.shape)

    caches = write(key_cache, keys), write(value_cache, values)
    ends = (pasts + starts[1:] - starts[:-1])[:, None, None, None]
    room = table.shape[1] * size
    position = jnp.arange(room, dtype=jnp.int32)[None, None, None]
    is_there = (position < ends) & jnp.repeat(table >= 0, size, axis=1)[:, None, None]

    def gather_sequences(cache: Array) -> Array:
        """The keys or values of each sequence, in heads; zeros where there are none, as unused rows may hold NaN."""
        rows = cache[jnp.maximum(table, 0)].reshape(table.shape[0], room, *cache.shape[2:]).swapaxes(1, 2)
        return jnp.where(is_there[:, 0, 0, :, None][:, None], rows, jnp.zeros((), rows.dtype))

    # Each sequence has room for all tokens, because their numbers are not known while tracing.
    padded = jnp.minimum(starts[:-1, None] + index[None], tokens - 1)
    positions = (pasts[:, None] + index[None])[:, None, :, None]
    near = window(positions, room, is_causal=bool(is_causal), left=scores.left)
    visible = is_there if near is None else is_there & near
    queries = jnp.moveaxis(queries[0][:, padded], 1, 0)
    keys, values = map(gather_sequences, caches)
    output = scores.attend(queries, keys, values, visible, None, sink)
    return output[sequences, steps], *caches
