"""Caches of keys and values, which may be quantized."""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp

from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.handlers.registry import look_up
from dmljax.onnx.handlers.signatures import Attributes, Heads
from dmljax.onnx.values.types import Array, DType

_ZERO_4 = 8  # the 4-bit code for zero

Cache = TypeVar("Cache", Array, Array | None)


class Caches(NamedTuple):
    """Past keys and values."""

    keys: Heads | None
    values: Heads | None


class CacheScales(NamedTuple):
    """The scales of quantized keys and values."""

    keys: Array | None = None
    values: Array | None = None


class CacheFormat(NamedTuple):
    """The storage format of a cache: 8 bits per number, or 4 bits with the first number in the lower half of a byte.

    Without a scale, numbers are stored as they are.
    """

    scale: Array | None = None
    dtype: Any = None
    bits: int = 8

    def quantize(self, numbers: Array) -> Array:
        """Quantizes numbers for the cache."""
        if self.scale is None:
            return numbers
        scaled = numbers.astype(jnp.float32) / self.scale
        if self.bits == 4:
            halves = (jnp.clip(jnp.round(scaled), -8, 7) + _ZERO_4).astype(jnp.uint8)
            return halves[..., ::2] | (halves[..., 1::2] << 4)
        is_integer = jnp.issubdtype(self.dtype, jnp.integer)
        limits = jnp.iinfo(self.dtype) if is_integer else jnp.finfo(self.dtype)
        rounded = jnp.round(scaled) if is_integer else scaled
        return jnp.clip(rounded, float(limits.min), float(limits.max)).astype(self.dtype)

    def dequantize(self, cache: Cache, dtype: DType) -> Cache:
        """Dequantizes the numbers of a cache."""
        if cache is None or self.scale is None:
            return cache
        if self.bits == 4:
            halves = jnp.stack([cache & 15, cache >> 4], -1).astype(jnp.float32) - _ZERO_4
            cache = halves.reshape(*cache.shape[:-1], 2 * cache.shape[-1])
        return (cache.astype(jnp.float32) * self.scale).astype(dtype)

    def round_trip(self, numbers: Array) -> Array:
        """The numbers as the cache gives them back."""
        return self.dequantize(self.quantize(numbers), numbers.dtype)


@dataclass(frozen=True, kw_only=True)
class CacheAttributes(Attributes):
    """The attributes of how caches are stored."""

    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    v_quant_type: str = "NONE"

    def formats(self, caches: Caches, scales: CacheScales) -> list[CacheFormat]:
        """The formats of keys and values."""
        kinds = {"k_quant_type": self.k_quant_type, "v_quant_type": self.v_quant_type}
        return [self._format(*entry, *rest) for entry, *rest in zip(kinds.items(), scales, caches, strict=True)]

    def _format(self, name: str, quant_type: str, scale: Array | None, cache: Array | None) -> CacheFormat:
        if not look_up(name, quant_type, {"NONE": False, "PER_TENSOR": True, "PER_CHANNEL": True}):
            return CacheFormat()
        bits = self.kv_cache_bit_width
        if scale is None or cache is None:
            raise InvalidDesc(Problem(name, "needs a cache and its scale", "none"))
        if bits not in (0, 4, 8) or (bits == 4) != (cache.dtype == jnp.uint8):
            raise InvalidDesc(Problem("kv_cache_bit_width", f"must fit a cache of {cache.dtype.name}", bits))
        spread = scale.astype(jnp.float32).reshape((1,) * (cache.ndim - scale.ndim) + scale.shape)
        return CacheFormat(spread, cache.dtype, bits or 8)
