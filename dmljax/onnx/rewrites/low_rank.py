"""Adds low-rank adapters (LoRA) to a model's products, to be trained instead of the weights."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import onnx

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph
from dmljax.onnx.graph.reader import dtype_of
from dmljax.onnx.graph.saving import copy_proto
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.rewrites.patterns import is_operator, replace_nodes
from dmljax.onnx.values.types import Array, DType
from dmljax.text import did_you_mean, show
from dmljax.types import FLOATS

FIRST, SECOND = ".lora_a", ".lora_b"  # after the name of a weight, and of the result of a product with it
BARE = ".without_lora"  # after the name of a product's result, before the additions
_VERSION = 13  # of ONNX's operators, if a file has none of them


class Matrix(NamedTuple):
    """The sizes (rows, columns) and the type of a matrix."""

    sizes: tuple[int, ...]
    dtype: DType


class _Product(NamedTuple):
    """A product with a weight, which may have its numbers in another order, or as codes."""

    node: Node
    weight: str
    matrix: Matrix


class _Additions(NamedTuple):
    """The nodes in place of each product, by the name of its result, and the new weights."""

    nodes: Mapping[str, Sequence[Node]]
    weights: Mapping[str, Matrix]

    def add_to_graph(self, graph: OnnxGraph) -> OnnxGraph:
        products = {node: _result(node) for node in graph.nodes if _result(node) in self.nodes}
        return replace_nodes(graph, {node: self.nodes[name] for node, name in products.items()})

    def add_to_file(self, file: onnx.ModelProto) -> None:
        """Adds the nodes, and empty tensors for the weights, to a file without its weights."""
        nodes = [proto for node in file.graph.node for proto in self._protos(node)]
        del file.graph.node[:]
        file.graph.node.extend(nodes)
        for name, matrix in self.weights.items():
            type_number = onnx.helper.np_dtype_to_tensor_dtype(matrix.dtype)
            file.graph.initializer.append(onnx.TensorProto(name=name, data_type=type_number))
        if not any(entry.domain in (MAIN, "ai.onnx") for entry in file.opset_import):
            file.opset_import.add(version=_VERSION)

    def _protos(self, node: Any) -> Iterator[Any]:
        replaced = self.nodes.get(node.output[0], ()) if node.output else ()
        for product in replaced[:1]:
            node.output[0] = _result(product)
        yield node
        yield from (onnx.helper.make_node(added.operator, added.inputs, added.outputs) for added in replaced[1:])


def with_low_rank(
    loaded: LoadedGraph, rank: int, parts: Iterable[str] | None
) -> tuple[LoadedGraph, Mapping[str, Matrix]]:
    """Adds to the products of a graph, or to those whose weights have any of `parts` in their names.

    Returns the new graph, and the sizes and types of the new weights.
    """
    stored: dict[str, Any] = {**loaded.constants, **loaded.types}
    known = {name: Matrix(value.shape, value.dtype) for name, value in stored.items()}
    added = _additions(loaded.joined, known, rank, parts)
    file = copy_proto(loaded.file)
    added.add_to_file(file)
    types = {name: jax.ShapeDtypeStruct(*matrix) for name, matrix in added.weights.items()}
    graph, joined = added.add_to_graph(loaded.graph), added.add_to_graph(loaded.joined)
    return replace(loaded, graph=graph, joined=joined, types={**loaded.types, **types}, file=file), added.weights


def _additions(graph: OnnxGraph, known: Mapping[str, Matrix], rank: int, parts: Iterable[str] | None) -> _Additions:
    products = [*_products(graph, known)]
    if not products:
        raise InvalidDesc(Problem((), "the model has no product with a weight that low-rank additions could change"))
    if parts is not None:
        parts = _check_parts(parts, [product.weight for product in products])
        products = [product for product in products if any(part in product.weight for part in parts)]
    version = max((node.version for node in graph.nodes if is_operator(node)), default=_VERSION)
    nodes: dict[str, Sequence[Node]] = {}
    weights: dict[str, Matrix] = {}
    for node, weight, ((rows, columns), dtype) in products:
        first, second = f"{weight}{FIRST}", f"{weight}{SECOND}"
        if first in known:
            raise InvalidDesc(Problem("names", "must be of weights without additions", show(weight)))
        weights |= {first: Matrix((rows, rank), dtype), second: Matrix((rank, columns), dtype)}
        nodes[_result(node)] = [*_add_to_product(node, first, second, version)]
    return _Additions(nodes, weights)


def draw_weights(weights: Mapping[str, Matrix], types: Mapping[DType, DType], key: Array) -> dict[str, Array]:
    """Random numbers for the first factors, and zeros for the second, so that the additions are zero at first.

    `types` maps the file's types to the types that its weights have.
    """
    arrays = {}
    for i, (name, (sizes, file_type)) in enumerate(weights.items()):
        dtype = jax.dtypes.canonicalize_dtype(types.get(file_type, file_type))
        if name.endswith(FIRST):
            numbers = jax.random.normal(jax.random.fold_in(key, i), sizes, jnp.float32)
            arrays[name] = (numbers / math.sqrt(sizes[0])).astype(dtype)
        else:
            arrays[name] = jnp.zeros(sizes, dtype)
    return arrays


def _check_parts(parts: Iterable[str], names: Sequence[str]) -> list[str]:
    chosen = parts if isinstance(parts, str) or not isinstance(parts, Iterable) else [*parts]
    if not isinstance(chosen, list) or not chosen:
        raise InvalidType(Problem("names", "must be a list of parts of names of weights", show(chosen)))
    for i, part in enumerate(chosen):
        if not isinstance(part, str) or not any(part in name for name in names):
            rule, hint = "must be part of the name of a product's weight", did_you_mean(part, names)
            remedy = None if hint else f"a name is {show(names[0])}"
            raise InvalidDesc(Problem(("names", i), rule, show(part) + hint, remedy=remedy))
    return chosen


def _result(node: Node) -> str:
    return node.outputs[0] if node.outputs else ""


def _add_to_product(node: Node, first: str, second: str, version: int) -> Iterator[Node]:
    """A product under another name, and the nodes that add `x @ first @ second` to it."""
    result = _result(node)
    product, narrow, wide = (f"{result}{ending}" for ending in (BARE, FIRST, SECOND))
    yield replace(node, outputs=(product, *node.outputs[1:]))
    for operator, inputs, output in (
        ("MatMul", (node.inputs[0], first), narrow),
        ("MatMul", (narrow, second), wide),
        ("Add", (product, wide), result),
    ):
        yield Node(operator, MAIN, version, "", inputs, (output,), {}, index=node.index)


def _products(graph: OnnxGraph, known: Mapping[str, Matrix]) -> Iterator[_Product]:
    """The products of a graph with weights, except the products of additions."""
    views = {name: (name, matrix) for name, matrix in known.items()}
    for node in graph.nodes:
        inputs = [views.get(name) for name in node.inputs]
        match inputs:
            case [(weight, matrix), *_] if (view := _view_of(node, matrix, known)) is not None:
                views[_result(node)] = weight, view
            case [_, (weight, matrix), *_] if not weight.endswith((FIRST, SECOND)):
                factor = _factor(node, matrix, known)
                if factor is not None and len(factor.sizes) == 2 and factor.dtype in FLOATS:
                    yield _Product(node, weight, factor)


def _view_of(node: Node, matrix: Matrix, known: Mapping[str, Matrix]) -> Matrix | None:
    """The matrix with the same numbers that a node makes; None if its numbers differ."""
    match node.operator if is_operator(node) else "":
        case "Identity":
            return matrix
        case "Cast":
            return matrix._replace(dtype=dtype_of(node.attributes["to"]))
        case "DequantizeLinear" if node.inputs[1] in known:
            return matrix._replace(dtype=known[node.inputs[1]].dtype)
        case "Transpose" if len(matrix.sizes) == 2 and node.attributes.get("perm", (1, 0)) == (1, 0):
            return matrix._replace(sizes=matrix.sizes[::-1])
    return None


def _factor(node: Node, matrix: Matrix, known: Mapping[str, Matrix]) -> Matrix | None:
    """The second factor of a node that is a product; None if it is not."""
    match node.operator:
        case "MatMulNBits" if node.inputs[2] in known:
            return Matrix((node.attributes["K"], node.attributes["N"]), known[node.inputs[2]].dtype)
        case "MatMul":
            return matrix
        case "Gemm" if not node.attributes.get("transA"):
            return matrix._replace(sizes=matrix.sizes[::-1]) if node.attributes.get("transB") else matrix
    return None
