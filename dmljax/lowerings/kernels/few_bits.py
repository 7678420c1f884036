"""Products with weights of few bits in one Pallas kernel, which reads each byte of codes once: for GPUs and TPUs.

Import this module only where a program is lowered for such a chip, because importing Pallas takes a second.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as mosaic, triton

# GPUs: programs multiply a part of the rows with a few columns

# The columns and bytes that a program multiplies at once. An H100 takes about twice as long with 16 columns; 128 bytes
# for float32 exceed the 99 KiB of smaller GPUs.
_COLUMNS = 64
_BYTES = {2: 128, 4: 32}  # by the bytes of a factor
_FEWEST_PROGRAMS = 256  # two for each processor of a large GPU


def _multiply_on_gpu(a: Array, codes: Array, scales: Array, zeros: Array, *, bits: int, interpret: bool) -> Array:
    """`a` (rows, factors) times the weights, in float32."""
    (rows, _), (columns, blocks, count) = a.shape, codes.shape
    places, total, at_once = 8 // bits, blocks * count, _BYTES[a.dtype.itemsize]
    programs = pl.cdiv(columns, _COLUMNS)
    parts = max(1, min(pl.cdiv(_FEWEST_PROGRAMS, programs), total // (4 * at_once)))
    steps = pl.cdiv(pl.cdiv(total, at_once), parts)

    def kernel(a_ref: Any, codes_ref: Any, scales_ref: Any, zeros_ref: Any, result_ref: Any) -> None:
        part = pl.program_id(1)
        row, is_row = _places(np.int32(0), max(16, pl.next_power_of_2(rows)), rows)
        column, is_column = _places(pl.program_id(0) * np.int32(_COLUMNS), _COLUMNS, columns)

        def step(i: Any, sums: Any) -> Any:
            byte, is_byte = _places((part * np.int32(steps) + i) * np.int32(at_once), at_once, total)
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
                sums += lax.dot_general(
                    factor,
                    weight,
                    (((1,), (1,)), ((), ())),
                    precision=lax.Precision.DEFAULT,
                    preferred_element_type=np.float32,
                )
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
        cost_estimate=_estimate(
            2 * codes.size * places * rows, a, codes, scales, zeros, more=4 * parts * rows * columns
        ),
        interpret=interpret,
        name="product_with_few_bits",
    )(a, codes.reshape(columns, total), scales, zeros)
    return jnp.sum(sums, 0)


def _places(first: Any, count: int, total: int) -> tuple[Any, Any]:
    """The places of a block, and a mask of those that exist."""
    place = first + lax.iota(np.int32, count)
    return place, place < total


# TPUs: columns come last, as XLA keeps such weights in memory. Programs have 256 columns, and unpack eight blocks of
# rows at once

_COLUMNS_ON_TPU = 256
_ROWS_ON_TPU = 128  # that the chip multiplies at once
# Limits of the data that stays in the core's memory while programs multiply: all rows, and the bytes of their columns
_MOST_ROWS = 256
_MOST_FACTORS = 2**21
_MOST_BYTES = 2**14  # in a column


def _multiply_on_tpu(a: Array, codes: Array, scales: Array, zeros: Array, *, bits: int, interpret: bool) -> Array:
    """Likewise, with `a` rounded to bfloat16, as all products at the default precision are."""
    (rows, _), (_, blocks, count) = a.shape, codes.shape
    scales = lax.bitcast_convert_type(scales, np.int16) if scales.dtype == np.float16 else scales  # no float16 there
    arrays = codes.transpose(1, 2, 0), scales.T, zeros.astype(np.int32) if zeros.size == 1 else zeros.T
    if rows <= _MOST_ROWS and a.size <= _MOST_FACTORS and blocks * count <= _MOST_BYTES:
        return _product_on_tpu(a, *arrays, bits=bits, interpret=interpret)
    weights = _unpack_on_tpu(*arrays, bits=bits, interpret=interpret)
    factors = a.astype(jnp.bfloat16).reshape(rows, blocks * count, 8 // bits).swapaxes(1, 2).reshape(rows, -1)
    return jnp.dot(factors, weights, precision=lax.Precision.DEFAULT, preferred_element_type=np.float32)


def _unpack_on_tpu(codes: Array, scales: Array, zeros: Array, *, bits: int, interpret: bool) -> Array:
    """The weights in bfloat16: first the rows at the first place of a byte."""
    (blocks, count, columns), places, width = codes.shape, 8 // bits, _COLUMNS_ON_TPU
    zeros = zeros.astype(np.int32)  # the chip does not divide bytes by eight rows

    def kernel(codes_ref: Any, scales_ref: Any, zeros_ref: Any, result_ref: Any) -> None:
        packed, scale = codes_ref[...].astype(np.int32), _float32(scales_ref[...])[:, None]
        zero = zeros_ref[0, 0] if zeros.size == 1 else zeros_ref[...][:, None]
        for place in range(places):
            weight = _weight(packed, scale, zero, place, bits)
            result_ref[place] = weight.reshape(8 * count, width).astype(jnp.bfloat16)

    def eight(*sizes: int) -> pl.BlockSpec:
        return pl.BlockSpec((8, *sizes, width), lambda i, j: (j, *(np.int32(0) for _ in sizes), i))

    weights: Array = pl.pallas_call(
        kernel,
        grid=(pl.cdiv(columns, width), blocks // 8),
        in_specs=[eight(count), eight(), _SCALAR if zeros.size == 1 else eight()],
        out_specs=pl.BlockSpec((places, 8 * count, width), lambda i, j: (np.int32(0), j, i)),
        out_shape=jax.ShapeDtypeStruct((places, blocks * count, columns), jnp.bfloat16),
        compiler_params=mosaic.CompilerParams(dimension_semantics=("parallel", "parallel")),
        cost_estimate=_estimate(0, codes, scales, zeros, more=2 * codes.size * places),
        interpret=interpret,
        name="unpacked_weights",
    )(codes, scales, zeros)
    return weights.reshape(-1, columns)


def _weight(packed: Any, scale: Any, zero: Any, place: int, bits: int) -> Any:
    """The weights at a place of each byte, in float32."""
    code = packed >> np.int32(place * bits) & np.int32(2**bits - 1)
    return (code - zero).astype(np.float32) * scale


_SCALAR = pl.BlockSpec(memory_space=mosaic.SMEM)


def _estimate(operations: int, *arrays: Array, more: int) -> pl.CostEstimate:
    """The cost of a kernel that reads `arrays` and moves `more` bytes besides."""
    bytes_accessed = sum(x.size * x.dtype.itemsize for x in arrays) + more
    return pl.CostEstimate(flops=operations, transcendentals=0, bytes_accessed=bytes_accessed)


def _product_on_tpu(a: Array, codes: Array, scales: Array, zeros: Array, *, bits: int, interpret: bool) -> Array:
    (rows, _), (blocks, count, columns) = a.shape, codes.shape
    places, width, at_once = 8 // bits, _COLUMNS_ON_TPU, min(8, max(1, _ROWS_ON_TPU // count))
    parts = blocks // at_once
    factors = a.astype(jnp.bfloat16).reshape(rows, parts, at_once * count, places).transpose(1, 3, 0, 2)
    has_one_zero = zeros.size == 1

    def kernel(a_ref: Any, codes_ref: Any, scales_ref: Any, zeros_ref: Any, result_ref: Any, *unpacked: Any) -> None:
        scales_there, zeros_there = (*unpacked, zeros_ref)[:2]
        scales_there[...] = _float32(scales_ref[...])
        if not has_one_zero:
            zeros_there[...] = zeros_ref[...].astype(np.int32)

        def step(i: Any, sums: Any) -> Any:
            eight = pl.ds(pl.multiple_of(i * np.int32(8), 8), 8)
            every_scale = scales_there[eight]
            every_zero = zeros_ref[0, 0] if has_one_zero else zeros_there[eight]
            for first in range(0, 8, at_once):
                block = slice(first, first + at_once)
                packed = codes_ref[pl.ds(i * np.int32(8) + np.int32(first), at_once)].astype(np.int32)
                scale = every_scale[block, None]
                zero = every_zero if has_one_zero else every_zero[block, None]
                part = i * np.int32(8 // at_once) + np.int32(first // at_once)
                for place in range(places):
                    weight = _weight(packed, scale, zero, place, bits).reshape(at_once * count, width)
                    sums += jnp.dot(
                        a_ref[part, place],
                        weight.astype(jnp.bfloat16),
                        precision=lax.Precision.DEFAULT,
                        preferred_element_type=np.float32,
                    )
            return sums

        steps = np.int32(0), np.int32(blocks // 8)
        result_ref[...] = lax.fori_loop(*steps, step, jnp.zeros((rows, width), np.float32))

    def last(*sizes: int) -> pl.BlockSpec:
        return pl.BlockSpec((*sizes, width), lambda i: (*(np.int32(0) for _ in sizes), i))

    whole = pl.BlockSpec(factors.shape, lambda i: (np.int32(0),) * 4)
    types = [np.float32] if has_one_zero else [np.float32, np.int32]
    result: Array = pl.pallas_call(
        kernel,
        grid=(pl.cdiv(columns, width),),
        in_specs=[whole, last(blocks, count), last(blocks), _SCALAR if has_one_zero else last(blocks)],
        out_specs=last(rows),
        out_shape=jax.ShapeDtypeStruct((rows, columns), np.float32),
        scratch_shapes=[mosaic.VMEM((blocks, width), np.dtype(x)) for x in types],
        compiler_params=mosaic.CompilerParams(dimension_semantics=("parallel",)),
        cost_estimate=_estimate(2 * codes.size * places * rows, factors, codes, scales, zeros, more=4 * rows * columns),
        interpret=interpret,
        name="product_with_few_bits",
    )(factors, codes, scales, zeros)
    return result


def _float32(x: Any) -> Any:
    """Converts floats to float32; int16 holds the bits of float16."""
    if x.dtype != np.int16:
        return x.astype(np.float32)
    bits = x.astype(np.int32)
    sign, size = (bits & np.int32(0x8000)) << np.int32(16), bits & np.int32(0x7FFF)
    bits_of_float32 = (size << np.int32(13)) + np.int32(
        112 << 23
    )  # the exponent's bias is 15 in float16, and 127 in float32
    bits_of_float32 += jnp.where(size >= np.int32(0x7C00), np.int32(112 << 23), np.int32(0))  # infinity and NaN
    subnormal = lax.bitcast_convert_type(size.astype(np.float32) * np.float32(2**-24), np.int32)
    return lax.bitcast_convert_type(jnp.where(size < np.int32(0x400), subnormal, bits_of_float32) | sign, np.float32)


PRODUCTS = {"gpu": _multiply_on_gpu, "tpu": _multiply_on_tpu}
