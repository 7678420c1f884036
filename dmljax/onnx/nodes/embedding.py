"""ONNX Runtime's embeddings of BERT: words, positions and segments, normalized."""

from typing import Any, NamedTuple

import jax.numpy as jnp

import dmljax
from dmljax.onnx.handlers.registry import handles_contrib
from dmljax.onnx.handlers.signatures import Matrix, Quantized, Vector
from dmljax.onnx.nodes.quantized.qlinear import dequantize
from dmljax.onnx.values.types import Array, Results


@handles_contrib("EmbedLayerNormalization")
def _embed_layer_normalized(
    ids: Matrix,
    segments: Matrix | None,
    words: Matrix,
    positions: Matrix,
    of_segments: Array | None,
    gamma: Vector,
    beta: Vector,
    mask: Matrix | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Results:
    batch, length = ids.shape
    total = dmljax.gather(words, ids, axis=0)
    places = positions[None, :length] if position_ids is None else dmljax.gather(positions, position_ids, axis=0)
    total = dmljax.element_wise_add(total, places)
    if segments is not None and of_segments is not None:
        total = dmljax.element_wise_add(total, dmljax.gather(of_segments, segments, axis=0))
    output = dmljax.mean_variance_normalization1(total, gamma, beta, epsilon, axes=-1)
    mask_index = jnp.zeros((batch,), ids.dtype) if mask is None else jnp.sum(mask == 1, axis=1, dtype=ids.dtype)
    return output, mask_index, total


class _QuantizedRows(NamedTuple):
    """The inputs of a quantized BERT embedding, in ONNX Runtime's order."""

    ids: Matrix
    segments: Matrix | None
    words: Matrix
    positions: Matrix
    of_segments: Array | None
    gamma: Vector
    beta: Vector
    mask: Matrix | None
    words_scale: Array
    positions_scale: Array
    of_segments_scale: Array | None
    gamma_scale: Array
    beta_scale: Array
    words_zero_point: Array
    positions_zero_point: Array
    of_segments_zero_point: Array | None
    gamma_zero_point: Array
    beta_zero_point: Array

    def numbers(self, name: str) -> Any:
        parts = [getattr(self, f"{name}{part}") for part in ("", "_scale", "_zero_point")]
        return None if parts[0] is None else dequantize(Quantized(*parts))


@handles_contrib("QEmbedLayerNormalization")
def _quantized_embedding(inputs: _QuantizedRows, *, epsilon: float = 1e-12) -> Results:
    tables = map(inputs.numbers, ("words", "positions", "of_segments", "gamma", "beta"))
    return _embed_layer_normalized(*(inputs.ids, inputs.segments, *tables, inputs.mask), epsilon=epsilon)
