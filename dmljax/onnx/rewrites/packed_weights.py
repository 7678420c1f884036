"""Packs 4-bit weights that a model dequantizes before a product, so that the product runs as MatMulNBits does.

Such files store a number per weight, which takes a byte on a CPU. The codes of MatMulNBits take half as much, and
products read them without first unpacking them to memory.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dmljax.onnx.graph.graph import Node, OnnxGraph
from dmljax.onnx.handlers.registry import MICROSOFT
from dmljax.onnx.rewrites.patterns import Matcher, is_operator, replace_nodes
from dmljax.onnx.values.types import DType

_BITS = 4
_LOWEST = {np.dtype(jnp.int4): -8, np.dtype(jnp.uint4): 0}
_SMALLEST_BLOCK = 16  # of MatMulNBits


class Origin(NamedTuple):
    """The origin of an array in the file: its name there, empty if it has none, and the function that restores it."""

    name: str
    restored: Callable[[Any], Any]


def with_packed_weights(graph: OnnxGraph) -> tuple[OnnxGraph, Mapping[str, Origin]]:
    """The graph with MatMulNBits in place of such products, and the origins of its new arrays."""
    matcher, constants = Matcher(graph), dict(graph.constants)
    replacements: dict[Node, tuple[Node, ...]] = {}
    origins: dict[str, Origin] = {}
    for node in graph.nodes:
        conversion = matcher.maker(node.inputs[1], "DequantizeLinear") if is_operator(node, "MatMul") else None
        if conversion is None or not _may_pack(matcher, conversion):
            continue
        packed_arrays = {f"{conversion.inputs[0]}.{role}": pair for role, pair in _pack(conversion, constants).items()}
        origins |= {name: origin for name, (origin, _) in packed_arrays.items()}
        sizes = dict(zip("KN", constants[conversion.inputs[0]].shape, strict=True))
        for name in filter(None, conversion.inputs):
            del constants[name]
        constants |= {name: array for name, (_, array) in packed_arrays.items()}
        attributes = {**sizes, "bits": _BITS, "block_size": conversion.attributes["block_size"]}
        inputs = (node.inputs[0], *packed_arrays)
        product = replace(node, operator="MatMulNBits", domain=MICROSOFT, version=1, inputs=inputs)
        replacements |= {conversion: (), node: (replace(product, attributes=attributes),)}
    return replace(replace_nodes(graph, replacements), constants=constants), origins


def _may_pack(matcher: Matcher, node: Node) -> bool:
    """Whether a node dequantizes stored codes of 4 bits in blocks of rows, only to multiply by them."""
    names = [*filter(None, node.inputs)]
    constants, may_change = matcher.graph.constants, matcher.graph.input_names
    if not all(name in constants and name not in may_change for name in names):
        return False
    if any(matcher.reads(name) != 1 for name in (*names, node.outputs[0])):
        return False
    codes = constants[names[0]]
    size = node.attributes.get("block_size", 0)
    is_power = size >= _SMALLEST_BLOCK and size & (size - 1) == 0
    return (
        codes.dtype in _LOWEST
        and codes.ndim == 2
        and node.attributes.get("axis", 1) in (0, -2)
        and is_power
        and codes.shape[0] % size == 0
        and not node.attributes.get("output_dtype")
    )


def _pack(conversion: Node, constants: Mapping[str, Any]) -> dict[str, tuple[Origin, Any]]:
    """The arrays of MatMulNBits by their roles, with their origins in the file."""
    name, scales, zeros, *_ = (*conversion.inputs, "")
    size, codes = conversion.attributes["block_size"], constants[name]
    (rows, columns), dtype = codes.shape, codes.dtype
    blocks, lowest = rows // size, _LOWEST[dtype]
    numbers = _pairs(_subtract_lowest(lowest, codes)).reshape(columns, blocks, size // 2)
    arrays = {
        "codes": (Origin(name, partial(_numbers, lowest, dtype, rows)), numbers),
        "scales": (Origin(scales, np.transpose), constants[scales].T),
    }
    if zeros or not lowest:
        points = constants[zeros] if zeros else np.zeros((blocks, columns), dtype)
        even = np.pad(_subtract_lowest(lowest, points), [(0, 0), (0, blocks % 2)])
        arrays["zeros"] = Origin(zeros, partial(_numbers, lowest, dtype, blocks)), _pairs(even)
    return arrays


def _subtract_lowest(lowest: int, numbers: Any) -> Any:
    """The differences of numbers from the lowest, columns first."""
    return (numbers.astype(np.int8) - np.int8(lowest)).astype(np.uint8).T


def _pairs(numbers: Any) -> Any:
    return numbers[:, ::2] | numbers[:, 1::2] << _BITS


def _numbers(lowest: int, dtype: DType, rows: int, pairs: Any) -> Any:
    """The inverse of `_pairs` and `_subtract_lowest`."""
    flat = np.asarray(pairs).reshape(len(pairs), -1)
    codes = np.stack([flat & (2**_BITS - 1), flat >> _BITS], -1).reshape(len(flat), -1)[:, :rows]
    return (codes.T.astype(np.int8) + np.int8(lowest)).astype(dtype)
