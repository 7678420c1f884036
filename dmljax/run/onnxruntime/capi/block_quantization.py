"""ONNX Runtime's quantization of weights by blocks, which its quantizers call: 2, 4 or 8 bits with a scale a block."""

from typing import Any

import numpy as np

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.run.answers import refusing
from dmljax.text import show


def quantize_matmul_2bits(
    packed: Any,
    weight: Any,
    scales: Any,
    zero_points: Any,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> None:
    """Quantizes a matrix to 2 bits as `MatMulNBits` takes it, into arrays that are given."""
    _quantize_columns(2, packed, weight, scales, zero_points, block_size, (rows, columns), is_symmetric)


def quantize_matmul_4bits(
    packed: Any,
    weight: Any,
    scales: Any,
    zero_points: Any,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> None:
    """Quantizes a matrix to 4 bits as `MatMulNBits` takes it, into arrays that are given."""
    _quantize_columns(4, packed, weight, scales, zero_points, block_size, (rows, columns), is_symmetric)


def quantize_matmul_8bits(
    packed: Any,
    weight: Any,
    scales: Any,
    zero_points: Any,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> None:
    """Quantizes a matrix to 8 bits as `MatMulNBits` takes it, into arrays that are given."""
    _quantize_columns(8, packed, weight, scales, zero_points, block_size, (rows, columns), is_symmetric)


def quantize_qdq_matmul_4bits(
    packed: Any,
    weight: Any,
    scales: Any,
    zero_points: Any,
    block_size: int,
    columns: int,
    rows: int,
    is_symmetric: bool,
) -> bool:
    """Quantizes a matrix to 4 bits as `DequantizeLinear` takes it, and returns whether they are signed."""
    _require_weight(weight, (rows, columns))
    scaled, block_scales, block_zeros = _scale_blocks(4, weight, block_size, is_symmetric)
    elements = _limit(4, _round(scaled) + block_zeros[:, None]).reshape(-1, columns)[:rows]
    offset = 8 if is_symmetric else 0
    _write("packed", packed, _pack(4, (elements - offset).ravel()))
    _write("scales", scales, block_scales)
    _write("zero_points", zero_points, _pack(4, (block_zeros - offset).ravel()))
    return bool(is_symmetric)


def _quantize_columns(
    bits: int,
    packed: Any,
    weight: Any,
    scales: Any,
    zero_points: Any,
    block_size: int,
    sizes: tuple[int, int],
    is_symmetric: bool,
) -> None:
    """Quantizes the blocks of each column, one column after the other."""
    _require_weight(weight, sizes)
    with refusing("onnxruntime"):
        if sizes[0] % block_size:
            raise InvalidDesc(Problem("rows", f"must be a multiple of {block_size}", sizes[0], remedy="pad with zeros"))
    scaled, block_scales, block_zeros = _scale_blocks(bits, weight, block_size, is_symmetric)
    elements = _limit(bits, _round(scaled + block_zeros[:, None]))  # unlike above, as ONNX Runtime does
    _write("packed", packed, _pack(bits, elements.transpose(2, 0, 1)))
    _write("scales", scales, block_scales.T)
    if not is_symmetric:
        _write("zero_points", zero_points, _pack(bits, block_zeros.T, fill=1 << (bits - 1)))


def _scale_blocks(bits: int, weight: Any, block_size: int, is_symmetric: bool) -> tuple[Any, Any, Any]:
    """Returns blocks divided by their scales (block, row, column), the scales, and zero points (block, column)."""
    rows, columns = weight.shape
    blocks = -(-rows // block_size)
    values = np.zeros((blocks * block_size, columns), np.float32)
    values[:rows] = weight
    values = values.reshape(blocks, block_size, columns)
    least, most = np.minimum(values.min(1), 0), np.maximum(values.max(1), 0)
    if is_symmetric:
        half = np.float32(1 << (bits - 1))
        scales, zeros = np.where(np.abs(most) > np.abs(least), most, least) / -half, np.full_like(least, half)
    else:
        scales = (most - least) / np.float32(2**bits - 1)
        zeros = _limit(bits, _round(_divide(-least, scales)))
    stored = scales.astype(weight.dtype).astype(np.float32)
    inverse = _divide(np.ones_like(stored), stored)  # a quotient of each element would round otherwise
    return values * inverse[:, None], scales, zeros.astype(np.float32)


def _round(values: Any) -> Any:
    """Rounds to integers, and halves away from zero."""
    return np.copysign(np.floor(np.abs(values.astype(np.float64)) + 0.5), values)


def _limit(bits: int, values: Any) -> Any:
    return np.clip(values, 0, 2**bits - 1)


def _divide(numerators: Any, denominators: Any) -> Any:
    """Divides, and returns 0 for denominators of 0, which blocks of zeros have."""
    return np.divide(numerators, denominators, out=np.zeros_like(denominators), where=denominators != 0)


def _pack(bits: int, elements: Any, fill: int = 0) -> Any:
    """Packs the elements of each row into bytes, the first into the lowest bits; `fill` completes the last byte."""
    in_byte = 8 // bits
    missing = -elements.shape[-1] % in_byte
    padding = [(0, 0)] * (elements.ndim - 1) + [(0, missing)]
    grouped = np.pad(elements.astype(np.int32), padding, constant_values=fill).reshape(
        *elements.shape[:-1], -1, in_byte
    )
    shifted = (grouped & ((1 << bits) - 1)) << np.arange(0, 8, bits)
    return shifted.sum(-1).astype(np.uint8)


def _require_weight(weight: Any, sizes: tuple[int, int]) -> None:
    with refusing("onnxruntime", type):
        if not isinstance(weight, np.ndarray) or weight.dtype not in (np.float32, np.float16):
            raise InvalidType(Problem("weight", "must be an array of float32 or float16", show(weight)))
    with refusing("onnxruntime"):
        if weight.shape != sizes:
            raise InvalidDesc(Problem("weight", f"must have the shape {sizes}", weight.shape))


def _write(name: str, target: Any, content: Any) -> None:
    """Writes into an array that is given."""
    with refusing("onnxruntime"):
        if not isinstance(target, np.ndarray) or target.size != content.size:
            raise InvalidDesc(Problem(name, f"must be an array of {content.size} elements", show(target)))
    target[...] = content.reshape(target.shape)
