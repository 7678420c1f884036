"""Chooses the dimension along which devices of a mesh divide each weight, from how a model's nodes use it.

Two consecutive products are divided so that they exchange data once: the first by columns, with its bias, and the
second by rows. In between, each device computes its own features, such as heads or a perceptron's hidden units.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from dmljax.errors import InvalidDesc, InvalidType, Path, Problem
from dmljax.foundation.meshes import place_weights, require_fitting
from dmljax.foundation.sharding import MODEL_AXIS
from dmljax.onnx.graph.graph import Node
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.rewrites.low_rank import BARE, FIRST, SECOND
from dmljax.text import join_words, show

Sizes = tuple[int, ...]

_VIEWS = frozenset(
    {"Cast", "DequantizeLinear", "Identity", "QuantizeLinear", "Transpose"}
)  # nodes that only view a weight
_WITH_ALL_FEATURES = frozenset(
    {
        *("GroupNormalization", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
        *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "Shape", "Size"),
    }
)
# The inputs at which these nodes read their weights
_PRODUCTS = {"FusedGemm": 1, "FusedMatMul": 1, "Gemm": 1, "MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}
_CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "FusedConv": 1, "QLinearConv": 3}
# The inputs of each table: numbers of few bits have scales and zero points
_TABLES = {"EmbedLayerNormalization": ((2,), (3,), (4,)), "Gather": ((0,),), "GatherBlockQuantized": ((0, 2, 3),)}
# The inputs of mixtures of experts that are divided by an expert's hidden units: as outputs, and as inputs. All devices
# then share the work of whichever experts are chosen, and no weights move; few experts per token keep few devices busy.
_EXPERTS = {"MoE": ((2, 3, 6, 7), (4,)), "QMoE": ((2, 3, 4, 8, 9, 10, 11, 13), (5, 6, 12))}
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_CHANNEL_OPERATORS = frozenset({"BatchNormalization", "InstanceNormalization"})

# Each device looks up its own rows of a divided table, and one sum over the devices joins them. Beside the sums of this
# many products that is at most 5 % more to exchange.
_PRODUCTS_OF_A_LOOKUP = 20
# A larger part of the weights is divided in any case, so that devices have the memory for it.
_LARGEST_WHOLE_TABLE = 1 / 8

_LAST = -1  # the features' dimension after a product
_INSIDE = 0  # a dimension that we do not track, such as heads or flattened images


def partition(loaded: LoadedGraph, arrays: Mapping[str, Any], axis: str, count: int) -> dict[str, PartitionSpec]:
    """The spec of each weight for `count` devices along `axis`."""
    weights = _DividedWeights(arrays, count)
    places: dict[str, int] = {}  # the dimension of divided features, counted from the end
    for node in loaded.graph.nodes:
        place = _place(node, loaded.find(node).is_elementwise, weights, places)
        if place is not None:
            places |= {name: place for name in node.outputs if name}
    # Tables last, because a table that is also a product's weight is divided as the product needs.
    for node in loaded.graph.nodes:
        for inputs in _TABLES.get(node.operator, ()):
            _divide_table(node, inputs, weights)
    divided = {name: PartitionSpec(*[None] * place, axis) for name, place in weights.divided.items()}
    return {name: divided.get(name, PartitionSpec()) for name in arrays}


def specs_while_traced(loaded: LoadedGraph, weights: Mapping[str, Any]) -> dict[str, PartitionSpec]:
    """The specs that `partition` chooses for weights that JAX traces, whose types tell only the axes of their mesh."""
    sizes = (jax.typeof(weight).sharding.mesh.shape for weight in weights.values())
    count = next((axes[MODEL_AXIS] for axes in sizes if MODEL_AXIS in axes), 1)
    return partition(loaded, weights, MODEL_AXIS, count) if count > 1 else {}


class _DividedWeights:
    """The divided dimension of each weight; the first division of a weight is final."""

    def __init__(self, arrays: Mapping[str, Any], count: int) -> None:
        self.shapes: dict[str, Sizes] = {name: array.shape for name, array in arrays.items()}
        self.sizes = {name: array.nbytes for name, array in arrays.items()}
        self.count = count
        self.divided: dict[str, int] = {}
        self.sums = 0  # the products whose results are sums over the devices
        self.views = {name: (name, tuple(range(len(sizes)))) for name, sizes in self.shapes.items()}

    def add_view(self, node: Node) -> bool:
        """Tracks a weight through a node that at most moves its dimensions."""
        if node.operator not in _VIEWS or node.inputs[0] not in self.views:
            return False
        weight, order = self.views[node.inputs[0]]
        if node.operator == "Transpose":
            order = tuple(order[i] for i in node.attributes.get("perm", range(len(order))[::-1]))
        self.views[node.outputs[0]] = weight, order
        return True

    def divide(self, name: str, dimension: int) -> bool:
        """Divides a dimension of a weight; False if that is impossible or `name` is not a weight."""
        weight, order = self.views.get(name, ("", ()))
        if not -len(order) <= dimension < len(order):
            return False
        place = order[dimension]
        if weight not in self.divided and self.shapes[weight][place] % self.count == 0:
            self.divided[weight] = place
        return self.divided.get(weight) == place


def _place(node: Node, is_elementwise: bool, weights: _DividedWeights, places: Mapping[str, int]) -> int | None:
    """Divides the weights of a node; returns the dimension along which its results are divided, if any."""
    if not node.inputs or weights.add_view(node):
        return None
    if _input(node, 1).endswith((FIRST, SECOND)) and node.inputs[1] in weights.shapes:
        return _divide_addition(node, weights, places)
    if _input(node, _PRODUCTS.get(node.operator)) in weights.views:
        return _divide_product(node, weights, is_divided=node.inputs[0] in places)
    if node.operator == "MatMulNBits" and node.inputs[1] in weights.views:
        return _divide_blocks(node, weights, is_divided=node.inputs[0] in places)
    if node.operator in _EXPERTS:
        for dimension, inputs in enumerate(_EXPERTS[node.operator], 1):
            for index in inputs:
                weights.divide(_input(node, index), dimension)
        weights.sums += 1
        return None
    if node.operator in _CONVOLUTIONS:
        return _divide_convolution(node, weights)
    if node.operator in _RECURRENT:
        for name in node.inputs[1:4]:
            weights.divide(name, 1)
        return None
    place = next((places[name] for name in node.inputs if name in places), None)
    if place is None or node.operator in _WITH_ALL_FEATURES:
        return None
    if node.operator in _CHANNEL_OPERATORS:
        for name in node.inputs[1:]:
            weights.divide(name, 0)
        return place
    if not is_elementwise or place == _INSIDE:
        return _INSIDE
    for name in node.inputs:
        weights.divide(name, place)
    return place


def _divide_table(node: Node, inputs: Sequence[int], weights: _DividedWeights) -> None:
    """Leaves a table whole, or divides it by rows if that exchanges little or saves much memory.

    A table divided by features divides all that is added to its rows, which each block then gathers again.
    """
    names = [name for name in (_input(node, index) for index in inputs) if len(weights.shapes.get(name, ())) > 1]
    is_large = sum(weights.sizes[name] for name in names) > _LARGEST_WHOLE_TABLE * sum(weights.sizes.values())
    if not is_large and weights.sums < _PRODUCTS_OF_A_LOOKUP:
        return
    rows = node.attributes.get("axis", 0) if node.operator == "Gather" else 0
    for name in names:
        if not weights.divide(name, rows) and is_large:
            weights.divide(name, _LAST)


def _divide_product(node: Node, weights: _DividedWeights, *, is_divided: bool) -> int | None:
    weight = _input(node, _PRODUCTS[node.operator])
    rows, columns = (-1, -2) if node.attributes.get("transB") else (-2, -1)
    if is_divided and weights.divide(weight, rows):
        weights.sums += 1
        return None
    if not weights.divide(weight, columns):
        return None
    if node.operator in ("Gemm", "FusedGemm"):
        weights.divide(_input(node, 2), _LAST)
    return _LAST


def _divide_blocks(node: Node, weights: _DividedWeights, *, is_divided: bool) -> int | None:
    """Divides codes of the shape (columns, blocks of rows, bytes), with the scales and zero points of their blocks."""
    codes, block_parameters = node.inputs[1], node.inputs[2:4]
    if is_divided and weights.divide(codes, 1):
        weights.sums += 1
        for name in block_parameters:  # stay whole in one dimension, where a column's blocks lie side by side
            weights.divide(name, 1)
        return None
    if not weights.divide(codes, 0):
        return None
    for name in (*block_parameters, _input(node, 5)):
        weights.divide(name, 0)
    return _LAST


def _divide_addition(node: Node, weights: _DividedWeights, places: Mapping[str, int]) -> int | None:
    """Divides the narrow products of a low-rank addition as the product that it is added to, and never its rank."""
    weight, result = node.inputs[1], node.outputs[0]
    has_columns = f"{result.removesuffix(FIRST).removesuffix(SECOND)}{BARE}" in places
    if weight.endswith(SECOND):
        return _LAST if has_columns and weights.divide(weight, -1) else None
    if node.inputs[0] in places and not has_columns:
        weights.divide(weight, -2)
    return None


def _divide_convolution(node: Node, weights: _DividedWeights) -> int | None:
    index = _CONVOLUTIONS[node.operator]
    weight = _input(node, index)
    has_channels_second = node.operator == "ConvTranspose" and node.attributes.get("group", 1) == 1
    if not weights.divide(weight, int(has_channels_second)):
        return None
    weights.divide(_input(node, 8 if index == 3 else 2), 0)
    return 1 - len(weights.views[weight][1])  # channels come before the spatial dimensions


def _input(node: Node, index: int | None) -> str:
    return node.inputs[index] if index is not None and index < len(node.inputs) else ""


def size_of(mesh: Any, axis: Any) -> int:
    """The number of devices along an axis of a mesh."""
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise InvalidType(Problem("mesh", "must be a jax.sharding.Mesh or AbstractMesh", show(mesh)))
    if axis not in mesh.axis_names:
        remedy = f"its axes are {join_words(mesh.axis_names)}" if mesh.axis_names else "use a mesh with axes"
        raise InvalidDesc(Problem("axis", "must be an axis of the mesh", show(axis), remedy=remedy))
    return int(mesh.shape[axis])


def shard_weights(mesh: Any, specs: Any, weights: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Places weights on the devices of a mesh; those without a spec are replicated on each device."""
    if not isinstance(mesh, Mesh):
        remedy = "use jax.make_mesh"
        raise InvalidType(Problem("mesh", "must be a jax.sharding.Mesh with devices", show(mesh), remedy=remedy))

    def sharding_of(path: Path, weight: jax.Array, spec: PartitionSpec | None) -> NamedSharding:
        spec = PartitionSpec() if spec is None else spec
        require_fitting(path, weight.shape, spec, mesh.shape)
        return NamedSharding(mesh, spec)

    shardings = place_weights(specs, weights, sharding_of)
    # Copy, because the part on the device that holds the weights could otherwise share their memory.
    return {name: jax.device_put(weight.copy(), shardings[name]) for name, weight in weights.items()}


def with_auto_mesh(weights: Mapping[str, Any]) -> tuple[dict[str, Any], Mesh | None]:
    """Weights with their mesh, if several devices hold them; XLA divides what is computed from them.

    While JAX traces any of them, returns them unchanged: the caller's program has placed them.
    """
    if any(isinstance(weight, jax.core.Tracer) for weight in weights.values()):
        for name, weight in weights.items():
            _require_auto_axes(name, jax.typeof(weight).sharding)
        return dict(weights), None
    specs = {
        name: weight.sharding.spec
        for name, weight in weights.items()
        if isinstance(weight, jax.Array)
        and isinstance(weight.sharding, NamedSharding)
        and weight.sharding.mesh.size > 1
    }
    if not specs:
        return dict(weights), None
    first: Any = weights[next(iter(specs))]
    mesh = first.sharding.mesh
    auto = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    places = {name: NamedSharding(auto, specs.get(name, PartitionSpec())) for name in weights}
    return {name: jax.device_put(weight, places[name]) for name, weight in weights.items()}, auto


def _require_auto_axes(name: str, sharding: Any) -> None:
    types = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
    names = [axis for axes in sharding.spec for axis in (axes if isinstance(axes, tuple) else (axes,))]
    if any(types[axis] is AxisType.Explicit for axis in names if axis is not None):
        rule = "must be divided along axes of the type Auto while JAX traces weights"
        remedy = f"jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,) * {len(types)})"
        raise InvalidDesc(Problem(("weights", name), rule, sharding.spec, remedy=remedy))


def divide_along(mesh: Mesh, x: Any, axes: Sequence[str | None]) -> Any:
    """An array whose dimensions are divided along axes of a mesh, where it has them and sizes are divisible."""
    sizes = zip(x.shape, axes, strict=False)
    spec = [axis if axis in mesh.axis_names and size % mesh.shape[axis] == 0 else None for size, axis in sizes]
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*spec)))
