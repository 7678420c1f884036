"""Attention on a GPU: cuDNN's, JAX's kernels, and other tiles of dmljax's."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from real_sizes import attention, decoding, gradients
from variant import CUDA, CUDNN, Race, Variant, patched
from workloads import Function, Work

import dmljax
from dmljax.lowerings.attention import dot_product
from dmljax.lowerings.kernels import attention as kernels
from dmljax.lowerings.kernels.attention import Tile

HALF = "bfloat16"

FORWARD_TILES = [
    *(Tile(128, 64, warps=8), Tile(128, 64, stages=3), Tile(128, 64, warps=8, stages=3)),
    *(Tile(128, 128, warps=8), Tile(128, 128, warps=8, stages=3), Tile(64, 64, stages=3)),
]
BACKWARD_TILES = [
    *(Tile(64, 64, stages=3), Tile(64, 64, warps=8), Tile(128, 64, warps=8), Tile(64, 128, warps=8)),
    *(Tile(128, 128, warps=8), Tile(64, 32)),
]
BLOCKS = (128, 256, 64)  # keys of Mosaic GPU's kernel


def attend_by_heads(heads: int, is_causal: bool, query: Any, key: Any, value: Any) -> Any:
    """The formula, one head after another, because the scores of all exceed the memory."""

    def attend(one: Any) -> Any:
        query, key, value = one
        scores = query @ key.T * query.shape[-1] ** -0.5
        if is_causal:
            scores = jnp.where(jnp.tri(len(scores), dtype=bool), scores, -jnp.inf)
        return jax.nn.softmax(scores) @ value

    apart = [x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for x in (query, key, value)]
    results = lax.map(jax.checkpoint(attend), [x.reshape(-1, *x.shape[2:]) for x in apart])
    return results.reshape(apart[0].shape).swapaxes(1, 2).reshape(query.shape)


def tiles(name: str, key: kernels.TileKey, tile: Tile) -> Callable[[], AbstractContextManager[Any]]:
    """The context in which dmljax's kernel has another tile."""
    return patched(kernels, **{name: {**getattr(kernels, name), key: tile}})


def label(tile: Tile) -> str:
    return f"{tile.rows} x {tile.columns}, {tile.warps} warps, {tile.stages} stages"


def apart(function: Function, heads: int) -> Function:
    """A function of arrays whose heads are a dimension, of arrays with stacked heads."""

    def run(*arrays: Any) -> Any:
        return function(*(x.reshape(*x.shape[:2], heads, -1) for x in arrays)).reshape(arrays[0].shape)

    return run


def in_cudnn(heads: int, is_causal: bool) -> Function:
    return apart(partial(jax.nn.dot_product_attention, is_causal=is_causal, implementation="cudnn"), heads)


def in_mosaic(heads: int, is_causal: bool, block: int, *, has_gradient: bool) -> Function:
    """Mosaic GPU's kernel, with specialized warps."""

    def run(query: Any, key: Any, value: Any) -> Any:
        from jax.experimental.pallas.ops.gpu import attention_mgpu

        backward: dict[str, Any] = dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), 64)
        config = attention_mgpu.TuningConfig(
            block_q=64, block_kv=block, max_concurrent_steps=2, causal=is_causal, **(backward if has_gradient else {})
        )
        scale = jnp.asarray(query.shape[-1] ** -0.5, query.dtype)  # it has none
        return attention_mgpu.attention(query * scale, key, value, config)

    return apart(run, heads)


def variants(heads: int, is_causal: bool, work: Work) -> Mapping[str, Variant]:
    """Ways to attend to all positions at once."""
    return {
        "cuDNN": Variant(in_cudnn(heads, is_causal), needs=CUDNN),
        **{
            f"Mosaic GPU, blocks of {block} keys": Variant(
                in_mosaic(heads, is_causal, block, has_gradient=False), needs=CUDA
            )
            for block in BLOCKS
        },
        **{
            f"tile {label(tile)}": Variant(work.dmljax, context=tiles("_FORWARD_TILES", (False, False), tile))
            for tile in FORWARD_TILES
        },
    }


def gradient_variants(heads: int, work: Work) -> Mapping[str, Variant]:
    def of(function: Function) -> Function:
        return lambda g, *arrays: jax.vjp(function, *arrays)[1](g)

    return {
        "cuDNN": Variant(of(in_cudnn(heads, False)), needs=CUDNN),
        "Mosaic GPU": Variant(of(in_mosaic(heads, False, 64, has_gradient=True)), needs=CUDA),
        **{
            f"tile {label(tile)}": Variant(work.dmljax, context=tiles("_BACKWARD_TILES", (False, False), tile))
            for tile in BACKWARD_TILES
        },
    }


# Decoding

SPLITS = (4, 8, 16, 32)
FEW_TILES = [Tile(16, 64, 4), Tile(16, 128, 4), Tile(16, 64, 4, 3), Tile(16, 128, 8), Tile(16, 128, 4, 3)]


def attend_in_groups(query_heads: int, key_heads: int, query: Any, key: Any, value: Any) -> Any:
    """Takes the heads of queries that share a key as queries of one head, so that programs read each key once."""
    batch, _, width = query.shape
    size = width // query_heads
    together = query.reshape(batch, key_heads, -1, size).swapaxes(1, 2).reshape(batch, -1, key_heads * size)
    attend = partial(dmljax.multihead_attention1, query_head_count=key_heads, key_value_head_count=key_heads)
    result: Any = attend(together, key, value)
    return result.reshape(batch, -1, key_heads, size).swapaxes(1, 2).reshape(query.shape)


def attend_in_triton(query_heads: int, key_heads: int, splits: int, query: Any, key: Any, value: Any) -> Any:
    """JAX's kernel for decoding."""
    from jax.experimental.pallas.ops.gpu import decode_attention

    batch, count, _ = key.shape
    heads = query.reshape(batch, query_heads, -1)
    keys, values = (x.reshape(batch, count, key_heads, -1) for x in (key, value))
    return decode_attention.gqa(heads, keys, values, k_splits=splits).reshape(query.shape)


def split(count: int, tile: Tile | None = None) -> Callable[[], AbstractContextManager[Any]]:
    """The context in which so many programs share the keys."""

    def context() -> AbstractContextManager[Any]:
        both = ExitStack()
        both.enter_context(patched(dot_product, _MOST_SPLITS=count, _FEWEST_IN_SPLITS=1)())
        if tile is not None:
            both.enter_context(tiles("_FEW_QUERIES_TILES", (False, False), tile)())
        return both

    return context


def decoding_variants(query_heads: int, key_heads: int, work: Work) -> Mapping[str, Variant]:
    grouped = partial(attend_in_groups, query_heads, key_heads)

    def of_cudnn(query: Any, key: Any, value: Any) -> Any:
        queries = query.reshape(*query.shape[:2], query_heads, -1)
        keys, values = (x.reshape(*x.shape[:2], key_heads, -1) for x in (key, value))
        return jax.nn.dot_product_attention(queries, keys, values, implementation="cudnn").reshape(query.shape)

    return {
        "heads as queries": Variant(grouped),
        **{f"heads as queries, {count} splits": Variant(grouped, context=split(count)) for count in SPLITS},
        "cuDNN": Variant(of_cudnn, needs=CUDNN),
        **{
            f"heads as queries, {splits} splits, tile {label(tile)}": Variant(grouped, context=split(splits, tile))
            for tile in FEW_TILES
            for splits in (8, 16)
        },
        **{
            f"JAX's kernel for decoding, {count} splits": Variant(
                partial(attend_in_triton, query_heads, key_heads, count)
            )
            for count in (8, 16)
        },
        **{f"{count} splits": Variant(work.dmljax, context=split(count)) for count in SPLITS},
    }


def race(batch: int, positions: int, heads: int, size: int, *, is_causal: bool = False) -> Race:
    return Race(
        partial(attention, batch, positions, heads, size, HALF, is_causal=is_causal),
        partial(variants, heads, is_causal),
        partial(attend_by_heads, heads, is_causal),
    )


def gradient_race(batch: int, positions: int, heads: int, size: int) -> Race:
    formula = partial(attend_by_heads, heads, False)
    return Race(
        lambda: gradients(attention(batch, positions, heads, size, HALF)),
        partial(gradient_variants, heads),
        lambda g, *arrays: jax.vjp(formula, *arrays)[1](g),
        share=1.5,
    )


def decoding_race(batch: int, query_heads: int, key_heads: int, size: int, count: int) -> Race:
    build = partial(decoding, HALF, batch, query_heads, key_heads, size, count)
    return Race(build, partial(decoding_variants, query_heads, key_heads), share=1.5)


RACES = {
    f"attention 4x2048x16x128, {HALF}": race(4, 2048, 16, 128),
    f"attention 4x2048x16x128, causal, {HALF}": race(4, 2048, 16, 128, is_causal=True),
    f"attention 4x2048x16x128, gradient, {HALF}": gradient_race(4, 2048, 16, 128),
    f"decoding, 8 tokens to 4096 keys each, {HALF}": decoding_race(8, 32, 8, 128, 4096),
}
LONG_RACES = {f"attention 1x16384x16x128, causal, {HALF}": race(1, 16384, 16, 128, is_causal=True)}
SMALL_RACES = {
    f"attention 1x256x2x16, causal, {HALF}": race(1, 256, 2, 16, is_causal=True),
    f"attention 1x256x2x16, gradient, {HALF}": gradient_race(1, 256, 2, 16),
    f"decoding, 2 tokens to 256 keys each, {HALF}": decoding_race(2, 4, 2, 16, 256),
}
