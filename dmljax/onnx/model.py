"""ONNX models as callables that take arrays."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import onnx
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

import dmljax.onnx.nodes  # noqa: F401  # which registers the handlers
from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported, inside, within
from dmljax.foundation.checks import array, boolean, integer_in
from dmljax.graphs.graph import Graph
from dmljax.onnx import sharding
from dmljax.onnx.graph import saving
from dmljax.onnx.graph.graph import MAIN, Node, OnnxGraph, TensorType, names_read
from dmljax.onnx.graph.reader import Reader, read_model
from dmljax.onnx.handlers.finder import Finder, deciding_names, draws_numbers, require_handlers, require_no_circles
from dmljax.onnx.handlers.refusals import merge_problems
from dmljax.onnx.handlers.registry import LARGEST, Handler
from dmljax.onnx.rewrites.equal_layers import Kinds, Layers, find_layers, shorten
from dmljax.onnx.rewrites.joining import constants_of_masks, join_attention
from dmljax.onnx.rewrites.low_rank import Matrix, additions, draw_weights
from dmljax.onnx.rewrites.packed_weights import Origin
from dmljax.onnx.running.inputs import Inputs, check_input
from dmljax.onnx.running.interpreter import Interpreter, as_array
from dmljax.onnx.running.plan import CallWeights, Plan, unpack, without_sizes
from dmljax.onnx.running.rehearsal import Rehearsal, refusals, rehearse
from dmljax.onnx.to_directml.conversion import directml_graph
from dmljax.onnx.values.padded import is_padded_array, sizes_of
from dmljax.onnx.values.types import Array, DType, Elements, Value
from dmljax.text import did_you_mean, show
from dmljax.types import Results

MAX_SMALL = 1024  # elements of an integer constant that is not a weight


class Revision(NamedTuple):
    """A graph that runs instead of a file's, and the origins of those arrays that differ from the file's."""

    graph: OnnxGraph
    origins: Mapping[str, Origin] = {}


def load(
    source: Any,
    *,
    constants: Mapping[str, Any] | None = None,
    maximum_sizes: Mapping[str, int] | Literal["largest"] | None = None,
    scan_layers: bool = False,
) -> "Model":
    """Loads an ONNX model as a function of its inputs.

    `source` is a path, the bytes of a file, or an `onnx.ModelProto`. `constants` fix inputs that decide sizes or
    branches. One error lists all unsupported operators.

    `maximum_sizes` give results of operators such as NonZero a static size under `jax.jit`: a mapping from output names
    to sizes, or "largest" for the largest possible sizes. Later nodes compute with the true sizes, which
    `Model.with_sizes` returns; elements beyond a bound that is too small are lost.

    `scan_layers` makes programs slower, but compiles only one of several equal layers in a row, such as a
    transformer's, and runs it in a loop. It needs memory for a copy of their weights, which each `apply` makes.
    """
    with within("onnx"):
        scan_layers = boolean("scan_layers", scan_layers)
        return Model(source, constants or {}, maximum_sizes or {}, scan_layers=scan_layers)


class Model:
    """An ONNX model: call it with arrays, and it returns its output, or a tuple if it has several.

    `inputs` and `outputs` hold their types. `weights` are the parameters by name; pass them to `apply` to train, donate
    or shard them. `defaults` are the types of inputs whose default is an initializer; calls may pass them by name.

    The first call computes everything that depends only on the weights, such as transposes, and later calls reuse it.
    Weights of up to 16 MiB in total become constants of the compiled programs, so that XLA prepares them once; sums may
    then be ordered differently than in `apply`. Weights that you replace or pass to `apply` are never cached this way.

    If `is_random` is true, nodes draw random numbers, and calls take `key=jax.random.key(...)`. Each node folds its
    index and seed into the key, and each loop iteration its number, so that a key gives the same numbers under every
    transformation.
    """

    inputs: tuple[TensorType, ...]
    defaults: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    weights: dict[str, jax.Array]
    is_random: bool

    def __init__(
        self,
        source: Any,
        constants: Mapping[str, Any],
        maximum_sizes: Mapping[str, int] | str,
        revise: Callable[[OnnxGraph], Revision] = Revision,
        *,
        scan_layers: bool = False,
    ) -> None:
        proto, folder = read_model(source)
        reader = Reader(proto, folder)
        finder = Finder(reader)
        require_no_circles(reader.functions)
        graph = reader.read(proto.graph)
        require_handlers(finder, graph)
        self.is_random = draws_numbers(finder, graph)
        graph = _store_constant_nodes(graph)
        graph, self._origins = revise(graph)
        interpreter = Interpreter(finder.find, _bounds(graph, maximum_sizes), finder.leading)
        fixed = _convert_constants(graph, constants)
        known = {**graph.constants, **fixed}
        self.inputs = tuple(tensor for tensor in graph.inputs if tensor.name not in known)
        self.defaults = tuple(
            tensor for tensor in graph.inputs if tensor.name in graph.constants and tensor.name not in fixed
        )
        defaults = {tensor.name for tensor in self.defaults}
        deciding, kept = deciding_names(graph, finder, known.keys() - defaults)
        self.outputs = graph.outputs
        whole = join_attention(graph, finder.find)
        stay = {*fixed, *defaults, *deciding} | constants_of_masks(whole, known)
        names = [name for name, value in known.items() if name not in stay and _is_weight(value, name in kept)]
        file = _copy_proto(proto) if proto is source else proto
        saving.drop_weights(
            file, reader, {self._origins[name].name if name in self._origins else name for name in names}
        )
        self._file = _copy_proto(file)
        del proto, file  # protobuf frees their memory only now, before the weights are copied
        # Drop the arrays.
        graph, whole = (OnnxGraph(part.nodes, part.inputs, part.outputs) for part in (graph, whole))
        with jax.ensure_compile_time_eval():
            self.weights = {name: as_array(known.pop(name)) for name in names}
        inputs = Inputs(self.inputs, self.defaults)
        types = {name: jax.ShapeDtypeStruct(weight.shape, weight.dtype) for name, weight in self.weights.items()}
        weights = dict(self.weights)
        self._plan = Plan(interpreter, graph, whole, inputs, known, deciding, weights, types, scan_layers=scan_layers)
        if scan_layers and self._plan.running is whole:
            raise Unsupported(
                Problem("scan_layers", "the model has no two equal layers in a row", remedy="leave scan_layers out")
            )

    def __repr__(self) -> str:
        inputs, outputs = ("; ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return f"Model({len(self._plan.graph.nodes)} nodes, {len(self.weights)} weights; {inputs} -> {outputs})"

    def __call__(self, *inputs: Any, **named: Any) -> Results:
        key = self._take_key(named) if "key" in named else None
        with within("onnx"):
            results: Results = NotImplemented if named else self._plan.run_by_place(self.weights, inputs, key)
            if results is not NotImplemented:
                return results
            return self._plan.run(self._plan.call_weights(self.weights).with_key(key), inputs, named)  # type: ignore[no-any-return]

    def apply(self, weights: Mapping[str, Any], *inputs: Any, **named: Any) -> Results:
        """Computes the outputs with other weights: a mapping with the same names and shapes as `weights`.

        Weights may have a different float type than in the file: with bfloat16 for the file's float32, nodes that use
        them compute in bfloat16. Float inputs may have that type as well.
        """
        key = self._take_key(named)
        with within("onnx"):
            require_weights(weights, self.weights)
            arguments = dict(weights)
            results: Results = self._plan.run(CallWeights(arguments, arguments, False).with_key(key), inputs, named)
            return results

    def with_sizes(self, *inputs: Any, **named: Any) -> tuple[Results, dict[str, Any]]:
        """Computes the outputs, and the true sizes of each by name, as an array of integers.

        They differ from the output's shape where `maximum_sizes` leaves room: 0 fills the places that are left, or -1
        if NonMaxSuppression makes the output.

        >>> import onnx.parser
        >>> head = '<ir_version: 10, opset_import: ["": 21]> f (float[N] x) => (float[M] y)'
        >>> nodes = (
        ...     "{ p = Relu(x)  is_above = Cast<to: int = 9>(p)  y = Compress(x, is_above) }"
        ... )
        >>> model = load(onnx.parser.parse_model(head + nodes), maximum_sizes="largest")
        >>> chosen, sizes = model.with_sizes(np.array([3.0, -1.0, 4.0], np.float32))
        >>> chosen.tolist(), sizes["y"].tolist()
        ([3.0, 4.0, 0.0], [2])
        """
        key = self._take_key(named)
        with within("onnx"):
            results = self._plan.run_with_sizes(self._plan.call_weights(self.weights).with_key(key), inputs, named)
            sizes = jax.tree.map(sizes_of, [*results], is_leaf=is_padded_array)
            names = (tensor.name for tensor in self.outputs)
            return without_sizes(unpack(results)), dict(zip(names, sizes, strict=True))

    def _take_key(self, named: dict[str, Any]) -> Array | None:
        """Removes the random key of a call from `named`; an input may also be named `key`."""
        key: Any = named.get("key")
        is_input = any(tensor.name == "key" for tensor in (*self.inputs, *self.defaults))
        if "key" not in named or (is_input and not _are_keys(key)):
            return None
        del named["key"]
        if key is None:
            return None
        with within("onnx"):
            if not self.is_random:
                rule = "not needed, because no node draws random numbers"
                remedy = "for dropout, export the model in training mode"
                raise InvalidType(Problem("key", rule, _show_key(key), remedy=remedy))
            require_key(key)
        taken: Array = key
        return taken

    def graph(self, shapes: Mapping[str, Any] | None = None, *, outputs: Sequence[str] | None = None) -> Graph:
        """Converts the model to a DirectML graph for inputs of these sizes, to draw, validate, lower or save.

        `shapes` gives the sizes of inputs with open sizes; open sizes that share a name are needed only once. An
        input with a default becomes a graph input if it is in `shapes`, and a constant otherwise. Each ONNX operator
        becomes the descriptors of the functions that compute it, and weights become constants. The graph has DirectML's
        types: booleans are UINT8, and a scalar has one dimension. Both branches of an If are computed, and the
        iterations of a Scan are unrolled.

        One error lists everything that DirectML has no operator for, with the calls that make graphs of the nodes
        before and after it: `outputs` names the results of any nodes, and results that `shapes` gives as
        `jax.ShapeDtypeStruct` become inputs. Inputs that such a part does not need are left out.

        >>> import onnx.parser
        >>> head = (
        ...     '<ir_version: 10, opset_import: ["": 21]> f (float[N, 3] x) => (float[N, 3] y)'
        ... )
        >>> proto = onnx.parser.parse_model(head + "{ y = Softmax(x) }")
        >>> graph = load(proto).graph({"x": (2, 3)})
        >>> graph.nodes
        mappingproxy({'y': ActivationSoftmax1Desc(input=..., output=..., axes=(1,))})
        >>> find_minimum_feature_level(graph)
        FeatureLevel.FL_5_1
        """
        with within("onnx"):
            plan, constants = self._plan, {**self._plan.constants, **self.weights}
            return directml_graph(
                plan.interpreter, plan.graph, self.inputs, self.defaults, constants, shapes or {}, outputs
            )

    def save(self, path: str | Path, weights: Mapping[str, Any] | None = None) -> None:
        """Writes the model to an ONNX file as it was loaded, but with `weights`, by default the model's own.

        The file includes weights that were loaded from external files, up to ONNX's limit of 2 GiB; beyond that,
        weights go into a second file whose name ends in `.data`.

        >>> import onnx.parser
        >>> head = '<ir_version: 10, opset_import: ["": 21]> f (float[N] x) => (float[N] y)'
        >>> model = load(onnx.parser.parse_model(head + "<float[1] w = {2}> { y = Mul(x, w) }"))
        >>> model.save("tripled.onnx", {"w": np.array([3.0], np.float32)})
        >>> load("tripled.onnx")(np.array([1.0, 2.0], np.float32)).tolist()
        [3.0, 6.0]
        """
        with within("onnx"):
            weights = self.weights if weights is None else weights
            require_weights(weights, self.weights)
            changed = {
                origin.name: origin.restored(weights[name]) for name, origin in self._origins.items() if name in weights
            }
            saving.save(self._file, Path(path), {**weights, **changed})

    def with_low_rank(self, rank: int, names: Iterable[str] | None = None, *, key: Array) -> "Model":
        """Adds `x @ a @ b` to products `x @ w`, where `a` has `rank` columns and `b` as many rows, for LoRA.

        The new model shares the weights, which may have few bits, and has two more for each weight `w`: `w.lora_a`,
        normal numbers that `key` draws, divided by the square root of their rows, and `w.lora_b`, zeros. Train them,
        and leave the others as they are. `names` are parts of the names of weights, such as `["q_proj", "v_proj"]`; by
        default, all MatMul, MatMulNBits and Gemm with weights get additions, except in functions and subgraphs.

        >>> import onnx.parser
        >>> head = (
        ...     '<ir_version: 10, opset_import: ["": 21]> f (float[N, 2] x) => (float[N, 2] y)'
        ... )
        >>> model = load(
        ...     onnx.parser.parse_model(
        ...         head + "<float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }"
        ...     )
        ... ).with_low_rank(1, key=jax.random.key(0))
        >>> added = {"w.lora_a": jnp.ones((2, 1)), "w.lora_b": jnp.ones((1, 2))}
        >>> model.apply(model.weights | added, np.ones((1, 2), np.float32)).tolist()
        [[6.0, 8.0]]
        """
        with within("onnx"):
            rank = integer_in("rank", rank, 1, 2**31 - 1)
            require_key(key)
            plan, types = self._plan, types_of_weights(self)
            known = {name: Matrix(value.shape, value.dtype) for name, value in plan.constants.items()}
            known |= {name: Matrix(weight.shape, types[name]) for name, weight in self.weights.items()}
            added = additions(plan.joined, known, rank, names)
            tuned = copy.copy(self)
            added_types = {name: jax.ShapeDtypeStruct(*matrix) for name, matrix in added.weights.items()}
            tuned._plan = plan.with_graphs(added.in_graph(plan.graph), added.in_graph(plan.joined), added_types)
            tuned._file = _copy_proto(self._file)
            added.in_file(tuned._file)
            new_types = {types[name]: weight.dtype for name, weight in self.weights.items()}
            tuned.weights = self.weights | draw_weights(added.weights, new_types, key)
            return tuned

    @property
    def equal_layers(self) -> int:
        """The number of equal layers in the longest row of them, such as a transformer's blocks; 1 if there is none.

        They are not always a network's: an exporter may have written the first or the last in another way.
        """
        layers = _longest_layers(self)
        return 1 if layers is None else len(layers.blocks)

    def with_layers(self, count: int) -> "Model":
        """Makes a model with only the first of the `equal_layers`, to estimate what each of them costs.

        What follows the last layer reads the results of layer `count` instead. The inputs, outputs and weights that
        only the other layers have are gone, and the rest of the weights are shared. Do not save it. Where a layer ends
        with the norm of the next, as in models of ONNX Runtime GenAI, the last norm has that layer's weights.
        """
        with within("onnx"):
            return part_of(self, graph_with_layers(self, count))

    def partition(self, mesh: Mesh | AbstractMesh, axis: str = "model") -> dict[str, PartitionSpec]:
        """Chooses how the devices along a mesh axis divide each weight; returns a dict that you can modify.

        The first of two products is divided by columns, with its bias, and the second by rows, so that a transformer
        exchanges data once after attention and once after its perceptron. Convolutions are divided by output channels,
        and recurrent layers by gates. Embeddings stay whole, which exchanges nothing, up to an eighth of the weights'
        bytes; larger ones, and those of models so deep that it adds at most 5 % to what is exchanged, are divided by
        rows. A weight stays whole on each device if its size is not divisible, or if only functions or subgraphs of
        the model read it. Weights of few bits are divided by columns, or by blocks of rows, with their scales and zero
        points.

        >>> import onnx.parser
        >>> head = (
        ...     '<ir_version: 10, opset_import: ["": 21]> f (float[N, 1] x) => (float[N, 1] y)'
        ... )
        >>> weights = (
        ...     "<float[1, 2] up = {1, 2}, float[2] bias = {3, 4}, float[2, 1] down = {5, 6}>"
        ... )
        >>> nodes = "{ a = MatMul(x, up)  b = Add(a, bias)  c = Relu(b)  y = MatMul(c, down) }"
        >>> model = load(onnx.parser.parse_model(head + weights + nodes))
        >>> specs = model.partition(jax.sharding.AbstractMesh((4, 2), ("data", "model")))
        >>> {name: tuple(spec) for name, spec in specs.items()}
        {'up': (None, 'model'), 'bias': ('model',), 'down': ('model',)}
        """
        with within("onnx"):
            count = sharding.size_of(mesh, axis)
            return sharding.partition(self._plan.graph, self._plan.interpreter.find, self.weights, axis, count)

    def shard(
        self, mesh: Mesh, specs: Mapping[str, PartitionSpec] | PartitionSpec | None = None
    ) -> dict[str, jax.Array]:
        """Places the weights on the devices of a mesh, for `apply`, divided by `specs`, which default to `partition`.

        Weights missing from `specs` are whole on each device, so pass `{}` for a mesh that only divides batches. The
        arrays are new and may be donated. An optimizer state initialized from them has the same shardings.

        >>> import onnx.parser
        >>> head = (
        ...     '<ir_version: 10, opset_import: ["": 21]> f (float[N, 2] x) => (float[N, 2] y)'
        ... )
        >>> model = load(
        ...     onnx.parser.parse_model(
        ...         head + "<float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }"
        ...     )
        ... )
        >>> weights = model.shard(jax.make_mesh((1, 1), ("data", "model")))
        >>> tuple(weights["w"].sharding.spec)
        (None, 'model')
        >>> model.apply(weights, np.ones((1, 2), np.float32)).tolist()
        [[4.0, 6.0]]
        """
        with within("onnx"):
            return sharding.on_mesh(mesh, self.partition(mesh) if specs is None else specs, self.weights)


def require_weights(weights: Any, expected: Mapping[str, jax.Array]) -> None:
    """Raises if weights have other names or shapes than a model's own."""
    if weights is expected:
        return
    if not isinstance(weights, Mapping):
        raise InvalidType(Problem("weights", "must be a mapping with the names of model.weights", show(weights)))
    for name in sorted(weights.keys() ^ expected.keys()):
        rule = "must have the same names as model.weights"
        raise InvalidDesc(Problem("weights", rule, f"{'no ' if name in expected else ''}{name}"))
    for name, weight in expected.items():
        shape = array(("weights", name), weights[name]).shape
        if shape != weight.shape:
            raise InvalidDesc(Problem(("weights", name), f"must have shape {weight.shape}", shape))


def nodes_of(model: Model) -> tuple[Node, ...]:
    """The nodes that a model runs."""
    return model._plan.joined.nodes


def graph_of(model: Model) -> OnnxGraph:
    """The graph that a model runs."""
    return model._plan.joined


def stored_in(model: Model) -> dict[str, Any]:
    """The constants and weights of a model by name."""
    return {**model._plan.constants, **model.weights}


def finder_of(model: Model) -> Callable[[Node], Handler]:
    """The function that finds the handlers of a model's nodes."""
    return model._plan.interpreter.find


def function_of_graph(
    model: Model, graph: OnnxGraph
) -> Callable[[Mapping[str, Array], Mapping[str, Any]], Sequence[Value]]:
    """A function of weights and of inputs by name that computes a graph made of a model's."""
    plan = model._plan.with_graphs(graph, graph)

    def compute(weights: Mapping[str, Array], inputs: Mapping[str, Any]) -> Sequence[Value]:
        with within("onnx"):
            return plan.run_with_sizes(CallWeights(weights, weights, False), (), inputs)

    return compute


def _longest_layers(model: Model) -> Layers | None:
    graph = model._plan.graph
    sequences = find_layers(graph, Kinds(graph, model.weights, model._plan.constants))
    return max(sequences, key=lambda layers: layers.saved, default=None)


def graph_with_layers(model: Model, count: int) -> OnnxGraph:
    """The graph in a model's file, with only the first of its equal layers."""
    layers = _longest_layers(model)
    if layers is None:
        raise Unsupported(Problem("model", "must have equal layers", "none"))
    return shorten(model._plan.graph, layers, integer_in("count", count, 1, len(layers.blocks)))


def part_of(model: Model, graph: OnnxGraph) -> Model:
    """A model of a part of a model's graph, with those of its weights that the part reads, which they share."""
    plan, part = model._plan, copy.copy(model)
    read = {*graph.output_names, *(name for node in graph.nodes for name in names_read(node))}
    part._plan = plan.with_graphs(graph, join_attention(graph, plan.interpreter.find))
    part.inputs = tuple(tensor for tensor in graph.inputs if tensor.name not in plan.constants)
    part.defaults = tuple(tensor for tensor in model.defaults if tensor.name in graph.input_names)
    part.outputs = graph.outputs
    part.weights = {name: weight for name, weight in model.weights.items() if name in read}
    return part


def rehearsal(model: Model, sizes: Mapping[str, tuple[int, ...]]) -> Rehearsal:
    """Rehearses a model for inputs of these sizes; leaves out nodes that need other inputs."""
    plan = model._plan
    inputs = {tensor.name: tensor.dtype for tensor in (*model.inputs, *model.defaults) if tensor.dtype is not None}
    types = {name: jax.ShapeDtypeStruct(weight.shape, weight.dtype) for name, weight in model.weights.items()}
    for name, shape in sizes.items():
        types[name] = jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(inputs[name]))
    return rehearse(plan.interpreter, plan.joined, plan.constants, types)


def refusals_of(model: Model, sizes_for: Callable[[int], Mapping[str, tuple[int, ...]]]) -> list[Problem]:
    """The problems that nodes have for any open sizes; `sizes_for` takes a number for all open sizes."""
    find = model._plan.interpreter.find
    problems = refusals(lambda size: rehearsal(model, sizes_for(size)), lambda node: find(node).attributes)
    return merge_problems(problems)


def file_of(model: Model) -> onnx.ModelProto:
    """The file of a model without its weights; do not modify it."""
    return model._file


def types_of_weights(model: Model) -> Mapping[str, DType]:
    """The types that the weights of a model have in its file."""
    return {name: struct.dtype for name, struct in model._plan.types.items()}


def _are_keys(value: Any) -> bool:
    return isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)


def _show_key(value: Any) -> str:
    return f"keys of {value.shape}" if _are_keys(value) else show(value)


def require_key(value: Any) -> None:
    """Raises if a value is not a single random key."""
    if not _are_keys(value) or value.shape:
        remedy = "key=jax.random.key(0), or jax.random.wrap_key_data(key)"
        raise InvalidType(Problem("key", "must be a single jax.random key", _show_key(value), remedy=remedy))


def _copy_proto(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _is_weight(value: Elements, is_kept: bool) -> bool:
    """Whether a constant is a parameter rather than part of a formula, such as a single number."""
    if value.dtype == object:
        return False
    is_float = jax.numpy.issubdtype(value.dtype, jax.numpy.floating)
    return value.size > MAX_SMALL or (is_float and (not is_kept or value.ndim > 0))


def _bounds(graph: OnnxGraph, maximum_sizes: Mapping[str, int] | str) -> Mapping[str, int] | str:
    """The bounds of sizes that depend on values, by the names of outputs."""
    if maximum_sizes == LARGEST:
        return maximum_sizes
    if not isinstance(maximum_sizes, Mapping):
        rule = 'must map names of outputs to sizes, or be "largest"'
        raise InvalidType(Problem("maximum_sizes", rule, show(maximum_sizes)))
    sizes = {name: integer_in(("maximum_sizes", name), size, 1, 2**31) for name, size in maximum_sizes.items()}
    made = {name for node in graph.nodes for name in node.outputs}
    for name in sizes:
        if name not in made:
            rule = "must be the name of an output of a node"
            raise InvalidDesc(Problem(("maximum_sizes", name), rule, show(name) + did_you_mean(name, made)))
    return sizes


def _convert_constants(graph: OnnxGraph, constants: Mapping[str, Any]) -> dict[str, Elements]:
    """The values that a caller fixes, converted to the types of the inputs."""
    types = {tensor.name: tensor for tensor in graph.inputs}
    fixed = {}
    for name, value in constants.items():
        place = ("constants", name)
        if name not in types:
            rule = "must be the name of an input"
            raise InvalidDesc(Problem(place, rule, show(name) + did_you_mean(name, types)))
        with inside("constants"):
            converted = np.asarray(value)
            if not isinstance(value, np.ndarray) and types[name].dtype is not None:
                converted = converted.astype(types[name].dtype)
            fixed[name] = np.asarray(check_input(types[name], converted, {}))
    return fixed


def _store_constant_nodes(graph: OnnxGraph) -> OnnxGraph:
    """Moves the arrays of Constant nodes into the graph's constants, because some exporters write weights that way.

    Single numbers stay nodes: they are parts of a formula, such as the 0.5 of GELU, not parameters.
    """
    taken = {"", *graph.constants, *graph.input_names}
    stored: dict[str, Any] = {}
    others: list[Node] = []
    for node in graph.nodes:
        value = node.attributes.get("value") if (node.operator, node.domain) == ("Constant", MAIN) else None
        if isinstance(value, np.ndarray) and value.size > 1 and len(node.outputs) == 1 and node.outputs[0] not in taken:
            stored[node.outputs[0]] = value
        else:
            others.append(node)
    return replace(graph, nodes=tuple(others), constants={**graph.constants, **stored})
