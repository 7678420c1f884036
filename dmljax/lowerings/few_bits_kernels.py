"""Products with weights of few bits in one kernel of Pallas, which reads each byte of codes once: for GPUs.

Import this module only where a program is lowered for such a chip, because importing Pallas takes a second.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

_COLUMNS, _BYTES = 16, 64  # that a program multiplies at once
_FEWEST_PROGRAMS = 256  # two for each processor of a large GPU


def product_on_gpu(a: Array, codes: Array, scales: Array, zeros: Array, *, bits: int, interpret: bool) -> Array:
    """`a` (rows, factors) times the weights, in float32."""
    (rows, _), (columns, blocks, count) = a.shape, codes.shape
    places, total = 8 // bits, blocks * count
    programs = pl.cdiv(columns, _COLUMNS)
    parts = max(1, min(pl.cdiv(_FEWEST_PROGRAMS, programs), total // (4 * _BYTES)))
    steps = pl.cdiv(pl.cdiv(total, _BYTES), parts)

    def kernel(a_ref: Any, codes_ref: Any, scales_ref: Any, zeros_ref: Any, result_ref: Any) -> None:
        part = pl.program_id(1)
        row, is_row = _places(np.int32(0), max(16, pl.next_power_of_2(rows)), rows)
        column, is_column = _places(pl.program_id(0) * np.int32(_COLUMNS), _COLUMNS, columns)

        def step(i: Any, sums: Any) -> Any:
            byte, is_byte = _places((part * np.int32(steps) + i) * np.int32(_BYTES), _BYTES, total)
            is_code, is_factor = is_column[:, None] & is_byte[None], is_row[:, None] & is_byte[None]
            block = column[:, None], byte[None] // np.int32(count)
            packed = triton.load(codes_ref.at[column[:, None], byte[None]], mask=is_code, other=0).astype(np.int32)
            scale = triton.load(scales_ref.at[block], mask=is_code, other=0)
            zero = zeros_ref[0, 0] if zeros.size == 1 else triton.load(zeros_ref.at[block], mask=is_code, other=0)
            shift = jnp.broadcast_to(zero.astype(scale.dtype), scale.shape)
            for place in range(places):
                code = (packed >> np.int32(place * bits)) & np.int32(2**bits - 1)
                weight = ((code.astype(scale.dtype) - shift) * scale).astype(a.dtype)
                factor_at = a_ref.at[row[:, None], byte[None] * np.int32(places) + np.int32(place)]
                factor = triton.load(factor_at, mask=is_factor, other=0)
                sums += triton.dot(factor, weight, trans_b=True)
            return sums

        sums = jnp.zeros((row.size, column.size), np.float32)
        sums = lax.fori_loop(np.int32(0), np.int32(steps), step, sums)
        result_at = result_ref.at[part, row[:, None], column[None]]
        triton.store(result_at, sums, mask=is_row[:, None] & is_column[None])

    sums = pl.pallas_call(
        kernel,
        grid=(programs, parts),
        out_shape=jax.ShapeDtypeStruct((parts, rows, columns), np.float32),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=interpret,
        name="product_with_few_bits",
    )(a, codes.reshape(columns, total), scales, zeros)
    return jnp.sum(sums, 0)


def _places(first: Any, count: int, total: int) -> tuple[Any, Any]:
    """The places of a block, and which of them there are."""
    place = first + lax.iota(np.int32, count)
    return place, place < total
