"""Describes programs by the shapes of their arguments, and places each array on chips."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding
from jax.stages import Wrapped

from dmljax.descriptors.base import Operator
from dmljax.descriptors.lowering import lower
from dmljax.descriptors.validation import validate
from dmljax.errors import InvalidDesc, InvalidType, Path, Problem, require
from dmljax.estimation.targets import Place, without_mesh
from dmljax.foundation.meshes import place_weights, require_fitting
from dmljax.foundation.sharding import MODEL_AXIS
from dmljax.graphs.graph import Graph
from dmljax.text import did_you_mean, show


class ChipProgram(NamedTuple):
    """A function of weights, which may be None, and inputs; `partition` divides the weights on a mesh.

    Results may take the memory of the arguments in `donated`, by their positions; the weights have position 0. If
    `updates`, the program returns its first input with new values.
    """

    function: Callable[..., Any]
    weights: Any
    inputs: tuple[Any, ...]
    partition: Callable[[Any], Any] | None = None
    donated: tuple[int, ...] = ()
    updates: bool = False


def program_of(function: Any, inputs: tuple[Any, ...], weights: Any) -> ChipProgram:
    """The program of a function, a descriptor, a graph, an ONNX model, or all dispatchables of a DxDispatch model."""
    if hasattr(function, "types_of_constants"):  # also an ONNX model in a DxDispatch model
        if isinstance(function, Graph):
            validate(function)
        types = tuple(desc.shape_dtype for desc in function.inputs.values())
        return ChipProgram(function.computation(), function.types_of_constants, types)
    if isinstance(function, Operator):
        inputs = tuple(tensor.shape_dtype for tensor in function.tensors(is_input=True).values())
        function = lower(function)
    elif hasattr(function, "dispatchables"):
        return _join_programs({name: dispatchable.desc for name, dispatchable in function.dispatchables.items()})
    elif weights is None and hasattr(function, "apply") and hasattr(function, "weights"):
        apply = function.apply
        if getattr(function, "is_random", False):
            apply = partial(apply, key=jax.random.key(0))
        return ChipProgram(apply, function.weights, inputs, getattr(function, "partition", None))
    if weights is None:
        donated = tuple(i + 1 for i in _donated_positions(function, inputs))
        return ChipProgram(lambda _, *arrays: function(*arrays), None, inputs, donated=donated)
    return ChipProgram(function, weights, inputs, donated=_donated_positions(function, (weights, *inputs)))


def _donated_positions(function: Any, arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """The positions of arguments that a function of `jax.jit` donates, which JAX forgets inside another program."""
    if not isinstance(function, Wrapped):
        return ()
    with without_mesh():
        positional, _ = function.trace(*arguments).args_info
    remedy = "bind them with functools.partial"
    require("function", len(positional) == len(arguments), "must have no static arguments", remedy=remedy)
    donates = (any(leaf.donated for leaf in jax.tree.leaves(argument)) for argument in positional)
    return tuple(i for i, is_donated in enumerate(donates) if is_donated)


def cast_program(program: ChipProgram, dtype: str | None) -> ChipProgram:
    """A program of arrays, with another type in the place of float32 and float64 if `dtype` is not None."""

    def convert(leaf: Any) -> Any:
        leaf = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
        if dtype is None or leaf.dtype not in (jnp.float32, jnp.float64):
            return leaf
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=getattr(leaf, "sharding", None))

    weights, inputs = jax.tree.map(convert, (program.weights, program.inputs))
    return program._replace(weights=weights, inputs=inputs)


def _join_programs(descs: Mapping[str, Any]) -> ChipProgram:
    """Combines independent programs into a single program, in which each is a node with its name."""
    programs = {name: program_of(desc, (), None) for name, desc in descs.items()}

    def run(weights: Any, inputs: Any) -> Any:
        results = {}
        for name, program in programs.items():
            with jax.named_scope(f"[{name}]"):
                results[name] = program.function(weights[name], *inputs[name])
        return results

    weights = {name: program.weights for name, program in programs.items()}
    return ChipProgram(run, weights, ({name: program.inputs for name, program in programs.items()},))


class Placed(NamedTuple):
    """A program's arguments with shardings, and a default sharding for results."""

    weights: Any
    inputs: tuple[Any, ...]
    default: Sharding | None  # without it, a function without arrays would be compiled for this CPU


def place_arguments(program: ChipProgram, place: Place, mesh: Mapping[str, int] | None, specs: Any) -> Placed:
    """Places the arguments on a place's chips; several chips divide them along the axes of `mesh`."""
    sizes = sizes_of_mesh((program.weights, program.inputs), place.name, len(place.devices), mesh)
    if len(place.devices) == 1:
        alone = SingleDeviceSharding(place.devices[0])
        weights, inputs = jax.tree.map(lambda leaf: _with_sharding(leaf, alone), (program.weights, program.inputs))
        return Placed(weights, inputs, alone)
    devices = np.array(place.devices).reshape(*sizes.values())
    return Placed(*place_on_mesh(program, Mesh(devices, tuple(sizes), axis_types=auto_axis_types(sizes)), specs), None)


def auto_axis_types(axes: Collection[Any]) -> tuple[AxisType, ...]:
    """The axis types of a mesh whose shardings XLA chooses; JAX 0.12 has another default."""
    return (AxisType.Auto,) * len(axes)


def place_on_mesh(program: ChipProgram, mesh: Mesh | AbstractMesh, specs: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """Divides weights by `specs`, and inputs along the mesh's first axis."""
    if specs is None and program.partition and MODEL_AXIS in mesh.shape:
        specs = program.partition(mesh)

    def place(path: Path, leaf: Any, spec: PartitionSpec | None, remedy: str | None = None) -> jax.ShapeDtypeStruct:
        spec = _spec_of_leaf(leaf) or PartitionSpec() if spec is None else spec
        require_fitting(path, np.shape(leaf), spec, mesh.shape, remedy)
        return _with_sharding(leaf, NamedSharding(mesh, spec))

    weights = place_weights(specs, program.weights, place)
    leaves, structure = jax.tree.flatten(program.inputs)
    first, count = next(iter(mesh.shape.items()))
    inputs = []
    for i, leaf in enumerate(leaves):
        leaf_spec = _spec_of_leaf(leaf)
        spec = PartitionSpec(*[first] * bool(np.ndim(leaf))) if leaf_spec is None else leaf_spec
        inputs.append(place(("inputs", i), leaf, spec, f"use a batch that {count} divides, or one chip"))
    _require_used_axes(mesh, (*jax.tree.leaves(weights), *inputs))
    return weights, jax.tree.unflatten(structure, inputs)


def _require_used_axes(mesh: Mesh | AbstractMesh, leaves: Sequence[Any]) -> None:
    """Raises if an axis divides nothing, except for `model`, which may not fit any weight."""
    entries = {entry for leaf in leaves for entry in leaf.sharding.spec if entry}
    used_axes = {MODEL_AXIS, *(axis for entry in entries for axis in ((entry,) if isinstance(entry, str) else entry))}
    for axis in [*mesh.shape][1:]:
        rule, label = "has an axis that divides no array", repr(axis) + did_you_mean(axis, used_axes)
        require("mesh", axis in used_axes or mesh.shape[axis] == 1, rule, label)


def _with_sharding(leaf: Any, sharding: Sharding) -> jax.ShapeDtypeStruct:
    array = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def _spec_of_leaf(leaf: Any) -> PartitionSpec | None:
    sharding = getattr(leaf, "sharding", None)
    return sharding.spec if isinstance(sharding, NamedSharding) else None


def sizes_of_mesh(arguments: Any, chips: str, count: int, mesh: Mapping[str, int] | None) -> Mapping[str, int]:
    """The axes of the mesh: those of `mesh`, or of arguments already divided, or a single axis for all chips."""
    if mesh is not None:
        if not isinstance(mesh, Mapping) or not all(isinstance(size, int) and size > 0 for size in mesh.values()):
            raise InvalidType(Problem("mesh", "must map names of axes to sizes", show(mesh)))
        if math.prod(mesh.values()) != count:
            product = " x ".join(map(str, mesh.values())) or "no axes"
            raise InvalidDesc(Problem("mesh", f"must have as many chips as {chips}, {count}", product))
        return mesh
    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments))
    meshes = [dict(sharding.mesh.shape) for sharding in shardings if isinstance(sharding, NamedSharding)]
    return next((sizes for sizes in meshes if math.prod(sizes.values()) == count), {"batch": count})
