"""Sharding on explicit meshes.

On an explicit mesh the sharding is part of an array's type. If the shardings of the inputs do not determine the
sharding of a result, JAX requires it from the program.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

R = TypeVar("R")

BATCH_AXES = ("data", "batch")
MODEL_AXIS = "model"

MeshAxes = str | tuple[str, ...] | None  # the mesh axes that one dimension is sharded over


def dimension_axes(x: Array) -> list[MeshAxes]:
    """The axes of an explicit mesh that shard each dimension of `x`; None for a dimension that is not sharded."""
    return list(jax.typeof(x).sharding.spec)


def axes_by_name(x: Array) -> tuple[MeshAxes, MeshAxes]:
    """The axes of the mesh of `x` that divide batches and a model, such as its heads, as far as their names say.

    The type of an array tells its mesh, but only on explicit meshes how the array is divided. Both are None if the mesh
    has other axes of several devices.
    """
    mesh = jax.typeof(x).sharding.mesh
    names = [name for name, size in mesh.shape.items() if size > 1]
    batch = next((name for name in names if name in BATCH_AXES), None)
    model = MODEL_AXIS if MODEL_AXIS in names else None
    return (batch, model) if {*names} <= {batch, model} else (None, None)


def may_be_sharded(x: Array) -> bool:
    """Whether several devices may hold parts of `x`, as far as its type or the mesh of `jax.set_mesh` says.

    Inside `jax.shard_map`, where all axes of the mesh are manual, an array is what one device holds.
    """
    mesh = _mesh_of(x)
    return any(
        size > 1 and axis_type is not AxisType.Manual
        for size, axis_type in zip(mesh.axis_sizes, mesh.axis_types, strict=True)
    )


def _mesh_of(x: Array) -> AbstractMesh:
    mesh = jax.typeof(x).sharding.mesh
    return jax.sharding.get_abstract_mesh() if mesh.empty else mesh


def match_varying_axes(arrays: R, *others: Any) -> R:
    """Makes `arrays` vary over the same mesh axes inside `jax.shard_map`: all that they or the others vary over.

    JAX does so for the operands of each operation. It does not for the branches of a condition or the state of a loop,
    and it sums the gradient by an array that does not vary over the devices, even inside an operator. This computes
    nothing, and outside `jax.shard_map` it returns `arrays` themselves.
    """
    all_axes = frozenset[str]().union(*map(_varying_axes, jax.tree.leaves((arrays, others))))

    def varying(x: Any) -> Any:
        missing = tuple(sorted(all_axes - _varying_axes(x)))
        # JAX 0.8.2 renamed the function.
        return lax.pcast(x, missing, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, missing)  # type: ignore[attr-defined]

    return cast(R, jax.tree.map(varying, arrays)) if all_axes else arrays


def _varying_axes(x: Any) -> frozenset[str]:
    """The axes of the mesh that `x` varies over inside `jax.shard_map`. JAX 0.10 renamed them."""
    aval: Any = jax.typeof(x)
    return cast(frozenset[str], aval.vma if hasattr(aval, "vma") else aval.mat.varying)


def shard_like(x: Array, new: Array) -> Array:
    """Shards `new`, which has the shape of `x`, as `x` is on an explicit mesh."""
    axes = dimension_axes(x)
    if not any(axes):
        return new
    return cast(Array, jax.sharding.reshard(new, _sharding(jax.typeof(x).sharding.mesh, axes)))


def broadcast_with_sharding(sizes: Sequence[int], *arrays: Array) -> tuple[Array, ...]:
    """Broadcasts arrays to one shape, and to one sharding on an explicit mesh.

    Each dimension is sharded as in the first array that shards it.
    """
    axes_by_array = [[None] * (len(sizes) - x.ndim) + dimension_axes(x) for x in arrays]
    if not any(map(any, axes_by_array)):
        return tuple(jnp.broadcast_to(x, sizes) for x in arrays)
    mesh = next(jax.typeof(x).sharding.mesh for x, axes in zip(arrays, axes_by_array, strict=True) if any(axes))
    result_sharding = _sharding(mesh, [next(filter(None, axes), None) for axes in zip(*axes_by_array, strict=True)])

    def broadcast(x: Array, axes: list[MeshAxes]) -> Array:
        if x.shape == tuple(sizes):
            return x if axes == list(result_sharding.spec) else jax.sharding.reshard(x, result_sharding)
        # Repeat elements as the result is divided: a device sums its part of the gradient before it exchanges the sum.
        axes_of_x = range(len(sizes) - x.ndim, len(sizes))
        sharding = _sharding(
            mesh, [None if size == 1 else result_sharding.spec[i] for i, size in zip(axes_of_x, x.shape, strict=True)]
        )
        return lax.broadcast_in_dim(jax.sharding.reshard(x, sharding), sizes, axes_of_x, out_sharding=result_sharding)

    return tuple(map(broadcast, arrays, axes_by_array))


def shard_along(x: Array, parameter: Array, *, may_add: bool = False) -> Array:
    """Shards `parameter` like `x`, whose rank it has, on an explicit mesh, in the dimensions that the mesh divides.

    If it `may_add` to the sharding of a result, it keeps its own in the dimensions in which `x` has none.
    """
    axes, axes_of_parameter = dimension_axes(x), dimension_axes(parameter)
    if not any((*axes, *axes_of_parameter)):
        return parameter
    mesh = next(jax.typeof(array).sharding.mesh for array in (x, parameter) if any(dimension_axes(array)))
    new_axes = [dividing_axes(names, size, x) for size, names in zip(parameter.shape, axes, strict=True)]
    if may_add:
        new_axes = [names or axes_before for names, axes_before in zip(new_axes, axes_of_parameter, strict=True)]
    return cast(Array, jax.sharding.reshard(parameter, _sharding(mesh, new_axes)))


def call_with_auto_axes(
    function: Callable[..., R], operands: Sequence[tuple[Array, Sequence[MeshAxes]]], *results: Sequence[MeshAxes]
) -> R:
    """Calls `function` with the operands, and leaves its partitioning over an explicit mesh to XLA.

    On an explicit mesh, this first reshards each operand over its mesh axes. `results` are the mesh axes for
    the dimensions of each result. If several dimensions name a mesh axis, only the first of them is sharded over it.
    Without an explicit mesh, this is a plain call.
    """
    arrays = [x for x, _ in operands]
    meshes = (jax.typeof(x).sharding.mesh for x in arrays)
    mesh = next((mesh for mesh in meshes if _explicit_axes(mesh)), None)
    if mesh is None:
        return function(*arrays)
    arrays = [jax.sharding.reshard(x, _sharding(mesh, axes)) for x, axes in operands]
    shardings = tuple(_sharding(mesh, axes) for axes in results)
    out_sharding = shardings if len(shardings) > 1 else shardings[0]
    left_to_xla = jax.sharding.auto_axes(function, axes=_explicit_axes(mesh), out_sharding=out_sharding)
    return cast(R, left_to_xla(*arrays))


def _explicit_axes(mesh: AbstractMesh) -> tuple[str, ...]:
    types = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(name for name, axis_type in types if axis_type is AxisType.Explicit)


def reshape(x: Array, sizes: Sequence[int]) -> Array:
    """Reshapes `x`; on an explicit mesh, the first part of a dimension that is split keeps its sharding."""
    axes = dimension_axes(x)
    if not any(axes):
        return x.reshape(sizes)
    starts = {math.prod(sizes[:i]): i for i, size in enumerate(sizes) if size != 1}
    axes_before: list[MeshAxes] = [None] * x.ndim
    results: list[MeshAxes] = [None] * len(sizes)
    for i, size in enumerate(x.shape):
        target = starts.get(math.prod(x.shape[:i])) if size != 1 else None
        if target is not None:
            axes_before[i] = results[target] = dividing_axes(axes[i], sizes[target], x)
    return cast(Array, call_with_auto_axes(lambda x: x.reshape(sizes), [(x, axes_before)], results))


def reshape_like(x: Array, other: Array) -> Array:
    """Reshapes `x`, which may be sharded, to the shape of `other`; devices divide both alike, and their derivatives.

    `other` has the elements of `x` in another order, so that devices divide another dimension of it than they would by
    themselves divide in the result.
    """
    mesh = _mesh_of(x)

    def opaque(x: Array) -> Array:
        spec = PartitionSpec(*[PartitionSpec.UNCONSTRAINED] * x.ndim)
        return cast(Array, jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec)))

    # XLA follows shardings through reshapes and selections first, and through padding and slices later, so that `other`
    # comes before `x`. All of this costs nothing: XLA simplifies it once the constraints have hidden it for that long.
    later = opaque(jnp.pad(x[None], [(0, 1), *[(0, 0)] * x.ndim]))[0]
    always = opaque(jnp.full_like(other, True, dtype=bool))
    return jnp.where(always, later.reshape(other.shape), other)


def dividing_axes(axes: MeshAxes, size: int, x: Array) -> MeshAxes:
    """`axes`, if they divide a dimension of `size` into several equal parts on the mesh of `x`, or else None.

    A dimension that names an axis of one device cannot be squeezed later: JAX 0.10 then has no gradient.
    """
    return axes_dividing(axes, size, jax.typeof(x).sharding.mesh)


def axes_dividing(axes: MeshAxes, size: int, mesh: AbstractMesh) -> MeshAxes:
    """`axes`, if `mesh` has them, and they divide a dimension of `size` into several equal parts, or else None."""
    count = math.prod(mesh.shape.get(name, 0) for name in _names(axes))
    return axes if count > 1 and size % count == 0 else None


def _sharding(mesh: AbstractMesh, dimensions: Sequence[MeshAxes]) -> NamedSharding:
    used_axes: set[str] = set()
    spec: list[MeshAxes] = []
    for axes in dimensions:
        spec.append(axes if used_axes.isdisjoint(_names(axes)) else None)
        used_axes.update(_names(axes))
    return NamedSharding(mesh, PartitionSpec(*spec))


def _names(axes: MeshAxes) -> tuple[str, ...]:
    return (axes,) if isinstance(axes, str) else axes or ()
