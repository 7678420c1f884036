"""ONNX networks and the same ones in plain JAX on several chips: what the chips exchange, and the memory of each.

`python tests/benchmarks/compilers.py --meshes` prints them. By batch, each chip has all weights and a part of the
inputs; by model, all inputs and its part of the weights, as `Model.partition` divides them. ONNX networks also run on
explicit meshes, where JAX refuses plain networks that do not give shardings to reshapes and lookups.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from onnx_networks import exported
from plain_networks import MADE

import dmljax.onnx
from dmljax.estimation import cost_of
from dmljax.estimation.targets import place_of

TARGETS = ("h100:8", "v5e:4x4")
NETWORKS = tuple(name for name in MADE if not name.startswith("GRU"))
BATCH, MODEL = "batch", "model"
INPUTS_BY_MODEL = 8


class Rival(NamedTuple):
    """A function of weights and an input, the weights, and how they are divided on a mesh with the axis `model`."""

    function: Callable[[Any, Any], Any]
    weights: Mapping[str, Any]
    partition: Callable[[Mesh], Mapping[str, P]]


class Use(NamedTuple):
    """The bytes that a chip receives from others, and its peak memory."""

    exchanged: int
    peak: int


def rivals(name: str) -> tuple[Rival, Rival, Any]:
    """The model, the same model in plain JAX, and an input for a batch of one."""
    make, plain, weights = MADE[name]
    module, file, inputs = exported(make)
    model = dmljax.onnx.load(file)
    state = weights({key: value.numpy() for key, value in module.state_dict().items()})
    (input,) = (value.numpy() for value in inputs.values())
    by_name = lambda mesh: {key: plain_spec(key, value.shape, mesh.size) for key, value in state.items()}  # noqa: E731
    return Rival(model.apply, model.weights, model.partition), Rival(plain, state, by_name), input


_ROWS = frozenset({"out", "narrow", "14"})  # layers that follow one whose outputs are divided
_TABLES = frozenset({"tokens", "places"})


def plain_spec(name: str, shape: Sequence[int], count: int) -> P:
    """How a weight in plain JAX is divided: like the model's weight of that name."""
    layer, _, kind = name.rpartition(".")
    last = layer.rpartition(".")[2]
    is_recurrent = len(shape) == 3 or name.startswith("bias_")
    if is_recurrent or (last in _ROWS and kind == "weight"):
        dimension = 1
    elif last in _ROWS or last in _TABLES or "norm" in last:
        return P()
    else:
        dimension = 0
    return P(*[None] * dimension, MODEL) if shape[dimension] % count == 0 else P()


def loss_of(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The mean square of the first result."""
    return lambda weights, x: jnp.mean(jax.tree.leaves(function(weights, x))[0] ** 2)


def compiled(
    rival: Rival, input: Any, target: str, way: str, *, gradient: bool, axis_type: AxisType = AxisType.Auto
) -> Any:
    """Compiles a network for the chips of a target; by batch, each chip has one input."""
    mesh = Mesh(np.array(place_of(target).devices), (way,), axis_types=(axis_type,))
    specs = rival.partition(mesh) if way == MODEL else dict.fromkeys(rival.weights, P())
    count, spec = (mesh.size, P(BATCH)) if way == BATCH else (INPUTS_BY_MODEL, P())
    kind = jax.dtypes.canonicalize_dtype(input.dtype)
    x = jax.ShapeDtypeStruct((count, *input.shape[1:]), kind, sharding=NamedSharding(mesh, spec))
    weights = {
        name: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=NamedSharding(mesh, specs[name]))
        for name, one in rival.weights.items()
    }
    places = {name: one.sharding for name, one in weights.items()} if gradient else None
    function = jax.grad(loss_of(rival.function)) if gradient else rival.function
    jax.clear_caches()  # drops what was lowered for other chips
    with jax.default_matmul_precision("highest"):
        return jax.jit(lambda weights, x: function(weights, x), out_shardings=places).lower(weights, x).compile()


def use_of(compiled: Any) -> Use:
    """The resources that a compiled program needs."""
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return Use(cost_of(compiled.as_text()).exchanged, peak - memory.alias_size_in_bytes)


def rows(words: Sequence[str]) -> Iterator[str]:
    """A table in Markdown, line by line, and the geometric means of its ratios."""
    yield (
        "| network | chips | divided by | exchanged | on an explicit mesh | in plain JAX | memory of a chip | "
        "on an explicit mesh | in plain JAX |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    ratios: list[tuple[float, float]] = []
    for name in NETWORKS:
        if words and not any(word.upper() in name.upper() for word in words):
            continue
        ours, plain, input = rivals(name)
        for target, way, gradient in itertools.product(TARGETS, (BATCH, MODEL), (False, True)):
            own, explicit, other = (
                use_of(compiled(one, input, target, way, gradient=gradient, axis_type=axis_type))
                for one, axis_type in ((ours, AxisType.Auto), (ours, AxisType.Explicit), (plain, AxisType.Auto))
            )
            ratios.append(((own.exchanged + 1) / (other.exchanged + 1), own.peak / other.peak))
            exchanged, peak = (
                f"{one} | {_of(one, explicit_one)} | {_of(one, plain_one)}"
                for one, explicit_one, plain_one in zip(own, explicit, other, strict=True)
            )
            yield f"| {name}{', gradient' if gradient else ''} | {target} | {way} | {exchanged} | {peak} |"
    means = (f"{statistics.geometric_mean(each):.2f}" for each in zip(*ratios, strict=True))
    yield "geometric means, exchanged and memory: " + ", ".join(means)


def _of(own: int, other: int) -> str:
    return f"{other} ({own / other:.2f})" if other else "0"
