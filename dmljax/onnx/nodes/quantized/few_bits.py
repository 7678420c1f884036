"""ONNX Runtime's matrix products and lookups with blockwise-quantized weights of 2, 4 or 8 bits."""

import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

import dmljax
from dmljax.errors import InvalidDesc, Problem, Unsupported
from dmljax.foundation.sharding import axes_by_name, shard_along
from dmljax.lowerings.numbers.few_bits import WHOLE, Division, Weights, dequantize, multiply_by_weights, unpack
from dmljax.lowerings.numbers.products import matrix_product
from dmljax.onnx.handlers.registry import NodeCall, handles_contrib, look_up
from dmljax.onnx.handlers.signatures import Vector, Vectors
from dmljax.onnx.nodes.data.shapes import normalize_axis
from dmljax.onnx.values.types import Array, DType, Elements

# ruff: noqa: N803  # attributes are spelled as ONNX Runtime has them


@handles_contrib("MatMulNBits")
def _matmul_of_few_bits(
    a: Array,
    b: Array,
    scales: Array,
    zero_points: Array | None = None,
    groups: Vector | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
    call: NodeCall,
) -> Array:
    if bits not in (2, 4, 8) or weight_prepacked:
        setting = f"{bits} bits" if not weight_prepacked else "weight_prepacked"
        raise Unsupported(Problem((), "supports only 2, 4 or 8 bits, not prepacked", setting))
    if min(K, N, block_size) < 1:
        raise InvalidDesc(Problem((), "K, N and block_size must be at least 1", f"{K}, {N} and {block_size}"))
    blocks = -(-K // block_size)
    codes, scales = b.reshape(N, blocks, -1), scales.reshape(N, blocks)
    if zero_points is None:
        zeros = jnp.full((1, 1), 2 ** (bits - 1), jnp.uint8)
    elif zero_points.dtype == jnp.uint8:
        zeros = unpack(zero_points.reshape(N, -1), bits)[:, :blocks]
    else:
        zeros = zero_points.reshape(N, blocks)
    if groups is None:
        columns, block_axes, *_ = *call.specs.get(call.node.inputs[1], PartitionSpec()), None, None
        batch, model = axes_by_name(a)
        division = Division(batch, columns, block_axes) if batch or model else WHOLE
        product = multiply_by_weights(a, Weights(codes, scales, zeros), bits, division)
    else:  # the block of each row, regardless of its position
        places = groups.astype(jnp.int32)
        numbers = unpack(codes, bits).reshape(N, -1, 1)[:, :K]
        shift = zeros[:, places] if zero_points is not None else zeros
        product = matrix_product(a, dequantize(numbers, scales[:, places], shift, a.dtype).T)
    if bias is not None:
        product += shard_along(product, bias.reshape(*(1 for _ in product.shape[1:]), N))
    return product.astype(a.dtype)


NO_ZEROS = np.zeros((1, 1), np.float32)  # of blocks whose numbers have no zero point


def dequantize_blocks(numbers: Array, scales: Array, zeros: Array | Elements, size: int, dtype: DType) -> Array:
    """Dequantizes rows of numbers, `size` of which share a scale and a zero point, by way of float32."""
    rows, count = numbers.shape
    if missing := scales.shape[1] * size - count:
        numbers = jnp.pad(numbers, [(0, 0), (0, missing)])
    blocks = numbers.reshape(rows, -1, size)
    return dequantize(blocks, scales.astype(jnp.float32), jnp.asarray(zeros), dtype)[:, :count]


# The values of the 4-bit codes of bitsandbytes
_FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634),
    *(0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_TABLES = {"0": (*_FP4, *(-number for number in _FP4)), "1": _NF4}


@handles_contrib("MatMulBnb4")
def _matmul_of_tables(
    a: Array,
    b: Vector,
    largest: Vector,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Array:
    if min(K, N, block_size) < 1:
        raise InvalidDesc(Problem((), "K, N and block_size must be at least 1", f"{K}, {N} and {block_size}"))
    table = jnp.asarray(np.array(look_up("quant_type", str(quant_type), _TABLES), np.float32))
    places = jnp.stack([b >> 4, b & 15], -1).reshape(-1)[: N * K].astype(jnp.int32)  # high bits first
    weight = dequantize_blocks(table[places][None], largest[None], NO_ZEROS, block_size, a.dtype)
    return dmljax.gemm(a, weight.reshape(N, K), None, transpose_b=bool(transB))


@handles_contrib("GatherBlockQuantized")
def _gather_of_blocks(
    x: Vectors,
    indices: Array,
    scales: Vectors,
    zero_points: Array | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Array:
    gathered, along = normalize_axis(gather_axis, x.ndim), normalize_axis(quantize_axis, x.ndim)
    is_packed = x.dtype == jnp.uint8
    if gathered == along or (is_packed and (gathered or bits not in (2, 4, 8))) or block_size < 0:
        rule = "gather_axis and quantize_axis must differ, and packed data needs gather_axis 0 and 2, 4 or 8 bits"
        raise InvalidDesc(Problem((), rule, f"gather_axis {gather_axis}, quantize_axis {quantize_axis}, {bits} bits"))
    size = x.shape[gathered]
    is_inside = (indices >= -size) & (indices < size)
    places = jnp.clip(jnp.where(indices < 0, indices + size, indices), 0, size - 1).astype(jnp.int32)
    after = along if along < gathered else along + indices.ndim - 1  # the axis of blocks in the result

    def rows(table: Array) -> Array:
        return jnp.take(table, places if table.shape[gathered] != 1 else jnp.zeros_like(places), axis=gathered)

    numbers = unpack(rows(x), bits) if is_packed else rows(x)
    length = numbers.shape[after]

    def repeat_blocks(table: Array) -> Array:
        return jnp.repeat(rows(table), block_size or length, axis=after).astype(jnp.float32)

    def cut(table: Array) -> Array:
        return table[(slice(None),) * after + (slice(length),)]

    if zero_points is not None:
        count = scales.shape[-1]
        zeros = cut(repeat_blocks(unpack(zero_points, bits)[..., :count] if is_packed else zero_points))
    else:
        zeros = jnp.float32(2 ** (bits - 1) if is_packed else 0)
    result = (numbers.astype(jnp.float32) - zeros) * cut(repeat_blocks(scales))
    others = [axis for axis in range(result.ndim) if not gathered <= axis < gathered + indices.ndim]
    return jnp.where(jnp.expand_dims(is_inside, others), result, 0).astype(scales.dtype)
