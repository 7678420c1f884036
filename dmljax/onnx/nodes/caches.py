"""Quantized caches of keys and values, as GroupQueryAttention has them."""

from typing import NamedTuple

import jax.numpy as jnp

from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.parameters import Array, DType
from dmljax.onnx.registry import one_of

_ZERO_4 = 8  # the 4-bit code for zero


class CacheFormat(NamedTuple):
    """The storage format of a cache: 8 bits per number, or 4 bits with the first number in the lower half of a byte."""

    scale: Array
    dtype: DType
    bits: int

    def stored(self, numbers: Array) -> Array:
        """Quantizes numbers for the cache."""
        scaled = numbers.astype(jnp.float32) / self.scale
        if self.bits == 4:
            halves = (jnp.clip(jnp.round(scaled), -8, 7) + _ZERO_4).astype(jnp.uint8)
            return halves[..., ::2] | (halves[..., 1::2] << 4)
        limits = jnp.iinfo(self.dtype) if jnp.issubdtype(self.dtype, jnp.integer) else jnp.finfo(self.dtype)
        rounded = jnp.round(scaled) if jnp.issubdtype(self.dtype, jnp.integer) else scaled
        return jnp.clip(rounded, float(limits.min), float(limits.max)).astype(self.dtype)

    def numbers(self, cache: Array, dtype: DType) -> Array:
        """Dequantizes the numbers of a cache."""
        if self.bits == 4:
            halves = jnp.stack([cache & 15, cache >> 4], -1).astype(jnp.float32) - _ZERO_4
            cache = halves.reshape(*cache.shape[:-1], 2 * cache.shape[-1])
        return (cache.astype(jnp.float32) * self.scale).astype(dtype)


def cache_format(name: str, kind: str, scale: Array | None, cache: Array | None, bits: int) -> CacheFormat | None:
    """The format that attribute `name` of a node specifies; None if the cache is not quantized."""
    if not one_of(name, kind, {"NONE": False, "PER_TENSOR": True, "PER_CHANNEL": True}):
        return None
    if scale is None or cache is None:
        raise InvalidDesc(Problem(name, "needs a cache and its scale", "none"))
    if bits not in (0, 4, 8) or (bits == 4) != (cache.dtype == jnp.uint8):
        raise InvalidDesc(Problem("kv_cache_bit_width", f"must fit a cache of {cache.dtype.name}", bits))
    spread = scale.astype(jnp.float32).reshape((1,) * (cache.ndim - scale.ndim) + scale.shape)
    return CacheFormat(spread, cache.dtype, bits or 8)
