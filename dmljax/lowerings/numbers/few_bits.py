"""Products with weights of 2, 4 or 8 bits in blocks of rows that share a scale and a zero point.

A byte has the codes of consecutive rows, lowest bits first. Putting the codes back in order costs more than the
product, so the rows at each place in a byte are a separate product.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.interpreters import ad, batching
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from dmljax.foundation.dimensions import is_symbolic
from dmljax.foundation.precision import Precision, resolve_precision
from dmljax.foundation.sharding import MeshAxes, axes_dividing, call_with_auto_axes, dimension_axes
from dmljax.lowerings.kernels import primitives
from dmljax.lowerings.platform import choose
from dmljax.lowerings.workarounds import materialize_bits
from dmljax.types import widened


def unpack(codes: Array, bits: int) -> Array:
    """The numbers of few bits in the last dimension of `codes`, lowest bits of each byte first."""
    if bits == 8:
        return codes
    places = np.arange(0, 8, bits, dtype=np.uint8).reshape((1,) * codes.ndim + (-1,))
    planes = (codes[..., None] >> places) & np.uint8(2**bits - 1)  # a GPU stacks arrays in twice the time
    return planes.reshape(*codes.shape[:-1], codes.shape[-1] * (8 // bits))


class Weights(NamedTuple):
    """Weights of the shape (rows, columns), as ONNX Runtime keeps them: columns first."""

    codes: Array  # (columns, blocks, bytes), in uint8
    scales: Array  # (columns, blocks)
    zeros: Array  # (columns, blocks), or (1, 1) for all; in uint8, or floats of the type of the scales


class Division(NamedTuple):
    """The axes of a mesh that divide rows of the first factor, columns of the weights, and blocks of their rows."""

    rows: MeshAxes = None
    columns: MeshAxes = None
    blocks: MeshAxes = None


WHOLE = Division()


def multiply_by_weights(a: Array, weights: Weights, bits: int, division: Division = WHOLE) -> Array:
    """`a @ weights` in at least float32, after rounding the weights to the type of `a`.

    `division` says how devices divide the operands, where their types do not, as those on explicit meshes do. It
    changes only where kernels of several TPUs compute.
    """
    columns, blocks = dimension_axes(weights.codes)[:2]
    axes_of_a = dimension_axes(a)
    if any((*axes_of_a, columns, blocks)):
        rows = next((axes for axes, size in zip(axes_of_a[:-1], a.shape, strict=False) if size > 1), None)
        division = Division(rows, columns, blocks)
    zeros_axes = [None, None] if weights.zeros.shape == (1, 1) else [columns, blocks]
    operands = [
        (a, axes_of_a),
        (weights.codes, [columns, blocks, None]),
        (weights.scales, [columns, blocks]),
        (weights.zeros, zeros_axes),
    ]
    product = partial(_product, bits, resolve_precision(), division)
    return call_with_auto_axes(product, operands, [*axes_of_a[:-1], columns])


def _product(bits: int, precision: Precision | None, division: Division, a: Array, *arrays: Array) -> Array:
    _, blocks, count = arrays[0].shape
    rows = math.prod(a.shape[:-1])
    missing = blocks * count * (8 // bits) - a.shape[-1]  # rows that fill the last block
    if missing:
        a = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, missing)])
    by_planes, whole = (partial(lowering, bits, precision) for lowering in (_multiply_planes, _multiply_unpacked))
    if is_symbolic(rows):
        result: Array = choose(a, *arrays, gpu=whole, default=by_planes)
        return result
    by_platform: dict[str, Callable[..., Array]] = {"gpu": by_planes if rows == 1 else whole}
    if rows <= _MOST_ROWS_ON_CPU and count * (8 // bits) << bits <= _LARGEST_ON_CPU and arrays[2].dtype == np.uint8:
        by_platform["cpu"] = partial(_multiply_integers, bits, precision)
    chips = [chip for chip in ("gpu", "tpu") if _fits_kernel(chip, rows, precision, a, *arrays)]
    by_platform |= {chip: partial(_bind_kernel, bits, precision, division, chip) for chip in chips}
    return choose(a, *arrays, default=by_planes, **by_platform)


# The formula


def _unpack_planes(codes: Array, bits: int) -> list[Array]:
    """The codes at each place in a byte."""
    return [(codes >> np.uint8(place)) & np.uint8(2**bits - 1) for place in range(0, 8, bits)]


def _split_columns(a: Array, bits: int) -> list[Array]:
    """The columns of `a` at each place in a byte."""
    places = 8 // bits
    parts = a.reshape(*a.shape[:-1], a.shape[-1] // places, places)
    return [parts[..., i] for i in range(places)]


def dequantize(codes: Array, scales: Array, zeros: Array, dtype: Any) -> Array:
    """The matrix (columns, rows) of numbers in blocks (columns, blocks, rows of a block)."""
    numbers = (codes.astype(scales.dtype) - zeros.astype(scales.dtype)[..., None]) * scales[..., None]
    columns, *rows = codes.shape
    return numbers.astype(dtype).reshape(columns, math.prod(rows))


def _multiply_transposed(a: Array, weights: Array, precision: Precision | None) -> Array:
    axes = ((a.ndim - 1,), (1,)), ((), ())
    product: Array = lax.dot_general(a, weights, axes, precision, widened(a.dtype))
    return product


def _multiply_planes(
    bits: int, precision: Precision | None, a: Array, codes: Array, scales: Array, zeros: Array
) -> Array:
    pairs = zip(_split_columns(a, bits), _unpack_planes(codes, bits), strict=True)
    products = (_multiply_transposed(x, dequantize(plane, scales, zeros, a.dtype), precision) for x, plane in pairs)
    return reduce(operator.add, products)


def _multiply_unpacked(
    bits: int, precision: Precision | None, a: Array, codes: Array, scales: Array, zeros: Array
) -> Array:
    """Unpacks the weights once, which costs a GPU less than several products of many rows.

    The product has the type of `a`: for float32 of 16-bit factors, XLA takes its own kernel instead of NVIDIA's.
    """
    weights = dequantize(unpack(codes, bits), scales, zeros, a.dtype)
    return jnp.matmul(a, weights.T, precision=precision).astype(widened(a.dtype))


# Few rows on a CPU

_MOST_ROWS_ON_CPU = 8
_LARGEST_ON_CPU = 128 << 4  # blocks of 128 codes of 4 bits; larger sums would leave less than 20 bits for each factor


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _multiply_integers(
    bits: int, precision: Precision | None, a: Array, codes: Array, scales: Array, zeros: Array
) -> Array:
    """Multiplies integers, as exactly as float32 does: XLA does not vectorize sums of floats.

    Each block of `a` is rounded to as many bits as leave room for its sum in int32: to 22 for blocks of 32.
    """
    a, codes = lax.optimization_barrier((a, codes))  # a loop that generates tokens would unpack the codes before it
    columns, blocks, count = codes.shape
    size = count * (8 // bits)
    parts = a.astype(np.float32).reshape(-1, blocks, size)
    unit = jnp.max(jnp.abs(parts), -1, keepdims=True) / np.float32((2**31 - 1) // (size << bits))
    integers = jnp.round(parts / jnp.where(unit == 0, np.float32(1), unit)).astype(np.int32)
    # Columns come first, because XLA divides the first dimension among threads.
    factors = [materialize_bits(x) for x in _split_columns(integers[None], bits)]
    shift = zeros.astype(np.int32)[:, None, :, None]
    planes = (plane.astype(np.int32)[:, None] for plane in _unpack_planes(codes, bits))
    products = (x * (plane - shift) for x, plane in zip(factors, planes, strict=True))
    total = jnp.sum(reduce(operator.add, products), -1)
    result = jnp.sum(total.astype(np.float32) * scales.astype(np.float32)[:, None] * unit[None, ..., 0], -1)
    return result.T.reshape(*a.shape[:-1], columns)


@_multiply_integers.defjvp
def _multiply_integers_jvp(bits: int, precision: Precision | None, primals: Any, tangents: Any) -> tuple[Array, Array]:
    _, tangent = jax.jvp(partial(_multiply_planes, bits, precision), primals, tangents)
    return _multiply_integers(bits, precision, *primals), tangent


# Few rows on a GPU, where XLA would write the unpacked weights to memory; on a TPU, where it takes long to unpack them,
# all rows

_MOST_ROWS_ON_GPU = 64


def _fits_kernel(
    chip: str, rows: int, precision: Precision | None, a: Array, codes: Array, scales: Array, zeros: Array
) -> bool:
    """Whether a chip's kernel takes operands of these types and sizes at this precision."""
    _, blocks, count = codes.shape
    is_rounded = a.dtype == np.float32 or (chip == "tpu" and a.dtype == np.float16)  # to fewer bits, by default
    is_precise = is_rounded and precision not in (None, lax.Precision.DEFAULT)
    fits = {"gpu": rows <= _MOST_ROWS_ON_GPU, "tpu": blocks % 8 == count % 8 == 0 and zeros.dtype == np.uint8}
    return (
        fits[chip]
        and not is_precise
        and {a.dtype, scales.dtype} <= _TYPES_IN_KERNEL
        and 0 not in (*a.shape, *codes.shape)
    )


_TYPES_IN_KERNEL = {np.dtype(dtype) for dtype in (np.float16, jnp.bfloat16, np.float32)}


def _bind_kernel(
    bits: int, precision: Precision | None, division: Division, chip: str, a: Array, *arrays: Array
) -> Array:
    rows = a.reshape(-1, a.shape[-1])
    parameters = {
        "bits": bits,
        "precision": precision,
        "division": division,
        "chip": chip,
        "marker": primitives.marker(),
    }
    (result,) = _multiply.bind(rows, *arrays, **parameters)
    return cast(Array, result).reshape(*a.shape[:-1], -1)


def _types(a: Any, codes: Any, scales: Any, zeros: Any, **parameters: Any) -> list[Any]:
    return [a.update(shape=(a.shape[0], codes.shape[0]), dtype=np.dtype(np.float32), weak_type=False)]


def _multiply_in_kernel(
    a: Array, *arrays: Array, bits: int, chip: str, interpret: bool, **parameters: Any
) -> list[Array]:
    from dmljax.lowerings.kernels import few_bits as few_bits_kernels  # slow to import

    with jax.enable_x64(False):  # with 64-bit types, Pallas lowers the indices of loops wrongly for a TPU
        return [few_bits_kernels.PRODUCTS[chip](a, *arrays, bits=bits, interpret=interpret)]


def _multiply_by_formula(
    a: Array, *arrays: Array, bits: int, precision: Precision | None, chip: str, **parameters: Any
) -> list[Array]:
    return [(_multiply_unpacked if chip == "gpu" and a.shape[0] > 1 else _multiply_planes)(bits, precision, a, *arrays)]


def _batch(arrays: Any, axes: Any, **parameters: Any) -> Any:
    """Takes batches that share the weights as rows, if they are few."""
    a, *weights = arrays
    if all(axis is None for axis in axes[1:]):
        a = jnp.moveaxis(a, axes[0], 0)
        return [_product(parameters["bits"], parameters["precision"], parameters["division"], a, *weights)], [0]
    return jax.vmap(partial(_multiply_by_formula, **parameters), axes)(*arrays), [0]


def _partition(kernel: Any, **parameters: Any) -> Any:
    """The kernel on a mesh: devices have rows of `a`, columns, or blocks of rows, whose products they add up."""

    def rule(mesh: Any, operands: Any, outcomes: Any) -> str:
        return f"m k, n c b, n c, {'x y' if operands[3].shape == (1, 1) else 'n c'} -> m n"

    def axes_of(operands: Any) -> Any:
        (rows,), (columns, blocks) = (
            (*x.sharding.spec, None, None)[:n] for x, n in ((operands[0], 1), (operands[1], 2))
        )
        return rows, columns, blocks

    def shardings(mesh: Any, operands: Any, outcomes: Any) -> Any:
        rows, columns, blocks = axes_of(operands)
        zeros_spec = () if operands[3].shape == (1, 1) else (columns, blocks)
        specs = (rows, blocks), (columns, blocks), (columns, blocks), zeros_spec
        return [NamedSharding(mesh, PartitionSpec(rows, columns))], [
            NamedSharding(mesh, PartitionSpec(*x)) for x in specs
        ]

    return primitives.partition_by(kernel, rule, shardings, lambda operands: axes_of(operands)[2])


def _divide(
    kernel: Any,
    mesh: AbstractMesh,
    types: Sequence[Any],
    outcomes: Any,
    *,
    precision: Precision | None,
    division: Division,
    **parameters: Any,
) -> Any:
    """The kernel on a mesh of TPUs; None if the mesh divides nothing, or a device's part is not the kernel's."""
    a, codes, _, zeros = types
    sizes = a.shape[0], *codes.shape[:2]
    rows, columns, blocks = (axes_dividing(x, size, mesh) for x, size in zip(division, sizes, strict=True))
    if not (rows or columns or blocks):
        return None
    specs = [
        PartitionSpec(*axes)
        for axes in (
            (rows, blocks),
            (columns, blocks),
            (columns, blocks),
            () if zeros.shape == (1, 1) else (columns, blocks),
        )
    ]
    parts: list[Any] = [
        jax.ShapeDtypeStruct(NamedSharding(mesh, spec).shard_shape(x.shape), x.dtype)
        for x, spec in zip(types, specs, strict=True)
    ]
    if not _fits_kernel("tpu", parts[0].shape[0], precision, *parts):
        return None
    return primitives.divide_by(kernel, mesh, [PartitionSpec(rows, columns)], specs, blocks)


_multiply = primitives.primitive("product_with_few_bits", _types)
primitives.register(
    _multiply, _multiply_in_kernel, _multiply_by_formula, _partition, _divide, lambda chip, **parameters: chip
)
ad.primitive_jvps[_multiply] = partial(primitives.jvp_by_formula, _multiply, _multiply_by_formula)
batching.primitive_batchers[_multiply] = _batch
