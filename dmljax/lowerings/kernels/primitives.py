"""Primitives of JAX that become a single Pallas kernel on a GPU or a TPU.

A kernel is traced where a program is lowered for its chip, so that programs for other platforms do not pay for it. On a
CPU, Pallas interprets the kernels; only tests do that.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax import Array, lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from dmljax.foundation.sharding import MeshAxes

Compute = Callable[..., list[Array]]


class Kernel(NamedTuple):
    """A kernel, and the chip for which it is, which follows from the operation's parameters."""

    compute: Compute
    chip_of: Callable[..., str | None]


KERNELS: dict[Primitive, Kernel] = {}  # of the operations that are registered

CHIPS = {"cuda": "gpu", "tpu": "tpu"}  # by platform; AMD's GPUs have too little memory for the blocks


def primitive(name: str, types: Callable[..., list[Any]]) -> Primitive:
    """Makes a primitive with several results, whose `types` a function infers."""
    result = Primitive(name)
    result.multiple_results = True
    result.def_impl(partial(_evaluate, result))
    result.def_abstract_eval(types)
    return result


def _evaluate(operation: Primitive, *arrays: Any, **parameters: Any) -> Any:
    """Computes at once, where nothing is traced, as under `jax.disable_jit`."""
    with jax.disable_jit(False):
        return jax.jit(lambda *every: operation.bind(*every, **parameters))(*arrays)


def jvp_by_formula(
    operation: Primitive, formula: Compute, primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any
) -> Any:
    """Returns the values of an operation, and the tangents of its formula."""
    wrt = [i for i, x in enumerate(tangents) if type(x) is not ad.Zero]

    def apply_formula(*some: Any) -> list[Array]:
        every = dict(zip(wrt, some, strict=True))
        return formula(*(every.get(i, x) for i, x in enumerate(primals)), **parameters)

    _, tangents_out = jax.jvp(apply_formula, tuple(primals[i] for i in wrt), tuple(tangents[i] for i in wrt))
    return operation.bind(*primals, **parameters), tangents_out


def register(
    operation: Primitive,
    kernel: Compute,
    formula: Compute,
    partition: Callable[..., Callable[..., Any]],
    divide: Callable[..., Callable[..., Any] | None],
    chip_of: Callable[..., str | None],
) -> None:
    """Lowers an operation to a kernel on each device, or to the formula, which XLA divides by itself.

    `kernel` takes `interpret`. `partition` makes it a function for a mesh of devices, which divides it as XLA divides
    the operands. XLA's compiler for TPUs calls no function of this process that could do so; for TPUs, `divide` makes
    it a function under `jax.shard_map`, from the operation's parameters, or returns None if these do not say how.
    `chip_of` says from the parameters for which chip there is a kernel.

    The formula takes the kernel's place where the mesh is unknown or belongs to `jax.shard_map` only in part; on a mesh
    of TPUs unless `divide` has a function; in programs that are exported, for a GPU because JAX promises nothing about
    the format of its kernels, and for several devices that `partition` would divide it among; in branches that a
    program for several platforms has for others, which never run; and for GPUs that Triton does not compile for.
    """
    KERNELS[operation] = Kernel(kernel, chip_of)
    for platform in ("cpu", "rocm", *CHIPS):
        rule = partial(_lower, kernel, formula, partition, divide, chip_of, platform)
        mlir.register_lowering(operation, rule, platform=platform)


def _lower(
    kernel: Compute,
    formula: Compute,
    partition: Callable[..., Callable[..., Any]],
    divide: Callable[..., Callable[..., Any] | None],
    chip_of: Callable[..., str | None],
    platform: str,
    context: Any,
    *arrays: Any,
    **parameters: Any,
) -> Any:
    module, axes = context.module_context, context.module_context.axis_context
    parameters = {name: x for name, x in parameters.items() if name != "marker"}
    chip, is_exported = chip_of(**parameters), module.lowering_parameters.for_export
    by_kernel = partial(kernel, interpret=platform == "cpu", **parameters)
    function: Callable[..., Any] = by_kernel
    is_elsewhere = CHIPS.get(platform) != chip and tuple(module.platforms) != ("cpu",)
    is_on_mesh = hasattr(axes, "num_devices") and axes.num_devices > 1  # outside `jax.shard_map`
    is_in_part = hasattr(axes, "manual_axes") and {*axes.manual_axes} != {*axes.mesh.axis_names}
    # Hide from the kernel the mesh that its operands vary over.
    plain = [jax.core.ShapedArray(x.shape, x.dtype) for x in context.avals_in]
    has_formula = is_elsewhere or is_in_part or (is_exported and chip == "gpu")
    if chip is None or has_formula or (platform == "cuda" and has_old_gpu()):
        function = partial(formula, **parameters)
    elif is_on_mesh:
        mesh = axes.abstract_mesh
        divided = (
            divide(by_kernel, mesh, plain, context.avals_out, **parameters)
            if mesh is not None and chip == "tpu"
            else None
        )
        is_divisible = mesh is not None and platform != "tpu" and not is_exported
        by_mesh = partition(by_kernel, **parameters) if is_divisible else partial(formula, **parameters)
        function = by_mesh if divided is None else divided
    kernel_context = context.replace(avals_in=plain, module_context=module.replace(platforms=(platform,)))
    lower = mlir.lower_fun(function, multiple_results=True)
    with warnings.catch_warnings():
        # Which of JAX's GPU compilers a kernel uses does not concern users.
        warnings.filterwarnings("ignore", "The Pallas Triton backend is deprecated", DeprecationWarning)
        try:
            return lower(kernel_context, *arrays)
        except RuntimeError as error:
            if "No supported GPU devices found" not in str(error):
                raise
        with jax.sharding.use_abstract_mesh(_mesh_of_a_known_gpu()):
            return lower(kernel_context, *arrays)


def _mesh_of_a_known_gpu() -> AbstractMesh:
    """No mesh, but the kind of a GPU.

    JAX 0.12 needs it, and fails if there is no GPU or if it does not list this GPU. Kernels of 16 and 32 bits are the
    same for all kinds.
    """
    device = jax.sharding.AbstractDevice(device_kind="NVIDIA A100", num_cores=None, platform="gpu")
    return AbstractMesh((), (), abstract_device=device)


def has_old_gpu() -> bool:
    """Whether this process has a GPU of before 2020, for which Triton does not compile."""
    gpus = jax.local_devices() if jax.default_backend() == "gpu" else []
    return any(float(gpu.compute_capability) < 8 for gpu in gpus)


def partition_by(
    kernel: Callable[..., Any],
    rule: Callable[..., str],
    shardings: Callable[[Any, Any, Any], tuple[Sequence[Any], Sequence[Any]]],
    parts: Callable[[Any], Any] = lambda operands: None,
) -> Callable[..., Any]:
    """`kernel` on a mesh of devices, by a rule of Shardy's and the shardings of results and operands.

    `parts` says over which axes of the mesh the results of devices are parts of a sum, if any.
    """

    def partition(mesh: Any, operands: Any, outcomes: Any) -> Any:
        results, inputs = shardings(mesh, operands, outcomes)
        axes = parts(operands)
        needs_kind = jax.__version_info__ >= (0, 12) and jax.default_backend() != "gpu"

        def call_device(*arrays: Array) -> Any:
            # Instead of the mesh of `jax.set_mesh`
            with jax.sharding.use_abstract_mesh(_mesh_of_a_known_gpu() if needs_kind else AbstractMesh((), ())):
                results_of_device = kernel(*arrays)
            return results_of_device if axes is None else lax.psum(results_of_device, axes)

        return mesh, call_device, [*results], tuple(inputs)

    partitioned_kernel = custom_partitioning(lambda *arrays: kernel(*arrays))
    partitioned_kernel.def_partition(partition, sharding_rule=rule)
    return cast(Callable[..., Any], partitioned_kernel)


def divide_by(
    kernel: Callable[..., Any],
    mesh: AbstractMesh,
    results: Sequence[PartitionSpec],
    operands: Sequence[PartitionSpec],
    axes_of_sum: MeshAxes = None,
) -> Callable[..., Any]:
    """`kernel` on the parts of operands that a device of a mesh has, whose results may be parts of a sum."""

    def call_device(*arrays: Array) -> Any:
        results_of_device = kernel(*arrays)
        return results_of_device if axes_of_sum is None else lax.psum(results_of_device, axes_of_sum)

    auto = AbstractMesh(mesh.axis_sizes, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))

    def call(*arrays: Array) -> Any:
        with jax.sharding.use_abstract_mesh(auto):  # instead of the mesh of `jax.set_mesh`
            return jax.shard_map(
                call_device, mesh=auto, in_specs=tuple(operands), out_specs=list(results), check_vma=False
            )(*arrays)

    return call


@functools.cache
def marker() -> Any:
    """A partitioned program; JAX tells the rules that lower primitives with it for which devices they lower."""
    identity = custom_partitioning(lambda x: x)
    identity.def_partition(lambda mesh, operands, result: (mesh, lambda x: x, result, operands), sharding_rule="i -> i")
    return jax.make_jaxpr(identity)(np.zeros(1, np.float32))
