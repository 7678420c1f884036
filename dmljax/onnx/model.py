"""ONNX models as callables that take arrays."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

from dmljax.calls.binding import check_arguments
from dmljax.errors import InvalidDesc, InvalidType, Problem, within
from dmljax.foundation import checks
from dmljax.foundation.checks import array, boolean, integer_in
from dmljax.foundation.programs.progress import Progress, listen
from dmljax.graphs.graph import Graph
from dmljax.onnx import sharding
from dmljax.onnx.graph import saving
from dmljax.onnx.graph.graph import TensorType
from dmljax.onnx.loading import load_graph
from dmljax.onnx.rewrites.fewer_layers import graph_with_layers, longest_layers
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.rewrites.low_rank import draw_weights, with_low_rank
from dmljax.onnx.running.plan import CallWeights, Plan, unpack, without_sizes
from dmljax.onnx.running.rounded_sizes import RoundedDecoder, find_rounded_decoder
from dmljax.onnx.to_directml.conversion import directml_graph
from dmljax.onnx.values.padded import is_padded_array, sizes_of
from dmljax.onnx.values.types import Array
from dmljax.text import correct_grammar, hint_by_table, no_attribute_of, show
from dmljax.types import Results


@check_arguments
def load(
    source: Any,
    *,
    constants: Mapping[str, Any] | None = None,
    maximum_sizes: Mapping[str, int] | Literal["largest"] | None = None,
    scan_layers: bool = False,
    progress: bool | Callable[[Progress], Any] | None = None,
) -> "Model":
    """Loads an ONNX model as a function of its inputs.

    `source` is a path, the bytes of a file, or an `onnx.ModelProto`. `constants` fix inputs that decide sizes or
    branches. One error lists all unsupported operators.

    `maximum_sizes` give results of operators such as NonZero a static size under `jax.jit`: a mapping from output names
    to sizes, or "largest" for the largest possible sizes. Later nodes compute with the true sizes, which
    `Model.with_sizes` returns; elements beyond a bound that is too small are lost.

    `scan_layers` makes programs slower, but compiles only one of several equal layers in a row, such as a
    transformer's, and runs it in a loop. It needs memory for a copy of their weights, which each `apply` makes.

    `progress=True` shows on the standard error how far it is. A function instead is called with a named tuple before
    each stage: `stage`, `done`, `total` and `unit`.
    """
    with within("onnx"), listen(progress):
        scan_layers = boolean("scan_layers", scan_layers)
        return Model(*load_graph(source, constants, maximum_sizes, scan_layers=scan_layers))


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

    @check_arguments
    def __init__(self, loaded: LoadedGraph, weights: Mapping[str, jax.Array]) -> None:
        self.inputs, self.defaults, self.outputs = loaded.inputs, loaded.defaults, loaded.graph.outputs
        self.weights = {name: weights[name] for name in loaded.types}
        self.is_random = loaded.is_random
        self._loaded, self._plan = loaded, Plan(loaded, dict(self.weights))

    def __repr__(self) -> str:
        inputs, outputs = (_abridge(side) for side in (self.inputs, self.outputs))
        counts = f"{len(self._loaded.graph.nodes)} nodes, {len(self.weights)} weights"
        return f"Model({correct_grammar(counts)}; {inputs} -> {outputs})"

    if not TYPE_CHECKING:  # a type checker refuses unknown names by itself

        def __getattr__(self, name):
            public = (known for known in dir(self) if not known.startswith("_"))
            raise no_attribute_of(self, name, hint_by_table(name, _ELSEWHERE, public))

    # Python copies by way of `__reduce__` otherwise, which raises.
    def __copy__(self) -> "Model":
        return self._with_state(self.__dict__)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Model":
        return self._with_state(copy.deepcopy(self.__dict__, memo))

    def _with_state(self, state: Mapping[str, Any]) -> "Model":
        other = Model.__new__(Model)
        other.__dict__.update(state)
        return other

    def __reduce__(self) -> Any:
        remedy = "load it again where it is needed, or model.save('model.onnx') first"
        raise InvalidType(Problem((), "a compiled model cannot be pickled", remedy=remedy))

    def __call__(self, *inputs: Any, **named: Any) -> Results:
        key = self._take_key(named) if "key" in named else None
        with within("onnx"):
            results: Results = NotImplemented if named else self._plan.run_by_place(self.weights, inputs, key)
            if results is not NotImplemented:
                return results
            return self._plan.run(self._plan.call_weights(self.weights).with_key(key), inputs, named)  # type: ignore[no-any-return]

    @check_arguments
    def apply(self, weights: Mapping[str, Any], *inputs: Any, **named: Any) -> Results:
        """Computes the outputs with other weights: a mapping with the same names and shapes as `weights`.

        Weights may have a different float type than in the file: with bfloat16 for the file's float32, nodes that use
        them compute in bfloat16. Float inputs may have that type as well.
        """
        key = self._take_key(named)
        with within("onnx"):
            arguments = require_weights(weights, self.weights)
            _require_floats(arguments, self.weights)
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

    @check_arguments
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
            return directml_graph(self._loaded, self.weights, self._plan.interpreter, shapes, outputs)

    @check_arguments
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
            weights = require_weights(self.weights if weights is None else weights, self.weights)
            _require_values(weights)
            origins = self._loaded.origins.items()
            changed = {origin.name: origin.restored(weights[name]) for name, origin in origins if name in weights}
            saving.save(self._loaded.file, checks.path("path", path), {**weights, **changed})

    @check_arguments
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
            loaded, added = with_low_rank(self._loaded, rank, names)
            types = {struct.dtype: self.weights[name].dtype for name, struct in self._loaded.types.items()}
            return Model(loaded, self.weights | draw_weights(added, types, key))

    @property
    def equal_layers(self) -> int:
        """The number of equal layers in the longest row of them, such as a transformer's blocks; 1 if there is none.

        They are not always a network's: an exporter may have written the first or the last in another way.
        """
        layers = longest_layers(self._loaded)
        return 1 if layers is None else len(layers.blocks)

    @check_arguments
    def with_layers(self, count: int) -> "Model":
        """Makes a model with only the first of the `equal_layers`, to estimate what each of them costs.

        What follows the last layer reads the results of layer `count` instead. The inputs, outputs and weights that
        only the other layers have are gone, and the rest of the weights are shared. Do not save it. Where a layer ends
        with the norm of the next, as in models of ONNX Runtime GenAI, the last norm has that layer's weights.
        """
        with within("onnx"):
            return Model(self._loaded.part(graph_with_layers(self._loaded, count)), self.weights)

    @check_arguments
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
            return sharding.partition(self._loaded, self.weights, axis, count)

    @check_arguments
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
            return sharding.shard_weights(mesh, self.partition(mesh) if specs is None else specs, self.weights)


# Attributes of other libraries' models, and what to write instead
_ELSEWHERE = {
    **dict.fromkeys(
        ("params", "parameters", "state_dict", "variables", "named_parameters", "initializers", "get_weights"),
        "model.weights",
    ),
    **dict.fromkeys(
        ("run", "predict", "forward", "eval", "train", "infer", "inference", "call", "bind", "module"), "model(x)"
    ),
    **dict.fromkeys(("load_state_dict", "set_weights"), "model.apply(weights, x)"),
    **dict.fromkeys(("init", "init_with_output"), "model.weights, which the file has"),
    **dict.fromkeys(
        ("to", "cuda", "cpu", "device", "set_providers", "get_providers"),
        "model(jax.device_put(x, jax.devices()[0])): it computes where its arrays are",
    ),
    **dict.fromkeys(
        ("half", "bfloat16", "astype", "float"),
        "model.apply({name: w.astype(jnp.bfloat16) for name, w in model.weights.items()}, x)",
    ),
    **dict.fromkeys(("export", "serialize"), "jax.export.export(jax.jit(model))(x), or model.save('model.onnx')"),
    **dict.fromkeys(("save_model", "to_onnx", "write"), "model.save('model.onnx')"),
    "quantize": "onnxruntime.quantization.quantize_dynamic(path, new_path), and load that",
    **dict.fromkeys(("compile", "jit"), "jax.jit(model)"),
    **dict.fromkeys(("lower", "as_text"), "jax.jit(model).lower(x).as_text()"),
    **dict.fromkeys(("grad", "value_and_grad", "backward"), "jax.grad(lambda weights: model.apply(weights, x).sum())"),
    "vmap": "jax.vmap(model)",
    **dict.fromkeys(("input_names", "get_inputs"), "[tensor.name for tensor in model.inputs]"),
    **dict.fromkeys(("output_names", "get_outputs"), "[tensor.name for tensor in model.outputs]"),
    **dict.fromkeys(("input_shapes", "input_shape"), "[tensor.sizes for tensor in model.inputs]"),
    **dict.fromkeys(("output_shapes", "output_shape"), "jax.eval_shape(model, x)"),
    **dict.fromkeys(("nodes", "layers", "summary", "show", "draw"), "model.graph(shapes).nodes"),
    "to_dot": "model.graph(shapes).to_dot()",
    **dict.fromkeys(("estimate", "cost", "flops"), "dmljax.estimate(model, x, target='h100')"),
}


def require_weights(
    weights: Any, expected: Mapping[str, jax.Array], adapted: Mapping[str, TensorType] = MappingProxyType({})
) -> dict[str, Any]:
    """Returns weights as arrays, or raises if they have other names or shapes than a model's own.

    The arrays that adapters give may have any sizes that their types allow.
    """
    if weights is expected and adapted.keys() <= expected.keys():
        return dict(expected)
    if not isinstance(weights, Mapping):
        raise InvalidType(Problem("weights", "must be a mapping with the names of model.weights", show(weights)))
    for name, inner in weights.items():
        if isinstance(inner, Mapping) and name not in expected:
            remedy = f"pass the inner one, weights[{name!r}]"
            raise InvalidType(Problem(("weights", name), "must be an array", "a mapping", remedy=remedy))
    for name in sorted(adapted.keys() - expected.keys() - weights.keys()):
        rule = "must have an array for each input that only adapters give"
        raise InvalidDesc(Problem("weights", rule, f"no {name}", remedy="load_adapter reads them"))
    for name in sorted(weights.keys() ^ (expected.keys() | adapted.keys())):
        rule = "must have the same names as model.weights"
        raise InvalidDesc(Problem("weights", rule, f"{'no ' if name in expected else ''}{name}"))
    arrays = {name: array(("weights", name), weight) for name, weight in weights.items()}
    for name, weight in expected.items():
        shape = arrays[name].shape
        if shape != weight.shape and name not in adapted:
            raise InvalidDesc(Problem(("weights", name), f"must have shape {weight.shape}", shape))
    for name, tensor in adapted.items():
        shape = arrays[name].shape
        if not _is_of_sizes(shape, tensor.sizes):
            raise InvalidDesc(Problem(("weights", name), f"must be {tensor}", shape))
    return arrays


def _require_floats(weights: Mapping[str, Any], expected: Mapping[str, jax.Array]) -> None:
    """Raises if weights that are floats in a model are integers, or floats of few bits."""
    for name, weight in expected.items():
        dtype = weights[name].dtype
        if dtype == weight.dtype or not jnp.issubdtype(weight.dtype, jnp.floating):
            continue
        if not jnp.issubdtype(dtype, jnp.floating) or dtype.itemsize < 2:
            remedy = f"weights[{name!r}].astype({str(weight.dtype)!r}), times the scale if it is quantized"
            raise InvalidType(Problem(("weights", name), "must be a float of 16 to 64 bits", dtype, remedy=remedy))


def _require_values(weights: Mapping[str, Any]) -> None:
    """Raises if JAX traces weights, whose values are then unknown."""
    for name, weight in weights.items():
        if isinstance(weight, jax.core.Tracer):
            remedy = "call save outside of jax.jit, with the arrays that the function returns"
            raise InvalidType(Problem(("weights", name), "must have known values", show(weight), remedy=remedy))


def _is_of_sizes(shape: Sequence[int], sizes: Sequence[int | str | None] | None) -> bool:
    """Whether an array has sizes that a type allows."""
    if sizes is None:
        return True
    fixed = [declared if isinstance(declared, int) else size for size, declared in zip(shape, sizes, strict=False)]
    return len(shape) == len(sizes) and fixed == [*shape]


def loaded_graph(model: Model) -> LoadedGraph:
    """The record of a model's graph."""
    return model._loaded


def compiled_program(model: Model, inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """The program with which a model has computed its results from arrays of these types.

    It makes no checks, and does not copy NumPy's arrays: nobody may change them before the results are computed.
    None if the model draws random numbers, or runs several programs.
    """
    return model._plan.compiled_program(model.weights, inputs)


def forget_programs(model: Model) -> None:
    """Frees the memory of a model's compiled programs, which later calls compile again."""
    model._plan.forget_programs()


def rounded_decoder(model: Model) -> RoundedDecoder | None:
    """The model as a decoder that rounds the sizes of its caches up; None if it has no growing caches."""
    return find_rounded_decoder(model._plan)


def _are_keys(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _show_key(value: Any) -> str:
    return f"keys of {value.shape}" if _are_keys(value) else show(value)


def require_key(value: Any) -> None:
    """Raises if a value is not a single random key."""
    if not _are_keys(value) or value.shape:
        remedy = "key=jax.random.key(0), or jax.random.wrap_key_data(key)"
        raise InvalidType(Problem("key", "must be a single jax.random key", _show_key(value), remedy=remedy))


def _abridge(tensors: Sequence[TensorType]) -> str:
    """The types of the first tensors: a model with caches has hundreds."""
    rest = [f"... and {len(tensors) - 4} more"] if len(tensors) > 5 else []
    return "; ".join(map(str, [*tensors[: 4 if rest else None], *rest]))
