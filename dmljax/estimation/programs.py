"""Estimates a program: its memory, its kernels, what bounds its time, and its costliest nodes."""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dmljax.errors import DmlError, InvalidType, Problem, Unsupported, require, within
from dmljax.estimation.cost import Cost, Step, called_kernels, steps_of
from dmljax.estimation.placement import Placed, Program, placed, program_of
from dmljax.estimation.refusals import reason_of_refusal, refused_by, sentence
from dmljax.estimation.report import LESS_MEMORY, Estimate, NodeCost
from dmljax.estimation.roof import roof_of
from dmljax.estimation.targets import Place, Target, Times, place_of
from dmljax.text import show


def estimate(
    function: Any,
    *inputs: Any,
    target: str,
    weights: Any = None,
    gradient: bool = False,
    mesh: Mapping[str, int] | None = None,
    specs: Any = None,
) -> Estimate:
    """Estimates a function's cost on a chip that you do not have, from what XLA compiles for it on this CPU.

    `function` takes the `weights`, if any, and the `inputs`; only their shapes and types matter. A model of
    `dmljax.onnx` brings its own weights, and a descriptor, `directml.Graph` or DxDispatch model its own inputs.
    `target` is h100, a100, b200, v5e, v5p or v6e, or several chips such as `h100:8`, `v5e:16` or `v5e:4x4`. `gradient`
    estimates the derivative of the outputs' squares by the weights, or by the inputs if there are none.

    Several chips split the inputs' first dimension, and each holds all weights. `mesh={"data": 32, "model": 8}` names
    axes for them; the first axis splits the inputs. `specs` map names of weights to PartitionSpecs, by default those of
    `model.partition` along the axis `model`. Arrays and shapes with a NamedSharding keep its spec.

    The time is a lower bound, not a measurement: each kernel takes the longest of its launch, bytes, operations and
    exchange at the published rates, or on a TPU the cycles that its compiler expects. The extra `accelerators` installs
    the compilers.

    >>> estimate(jnp.sin, jnp.ones(8), target="h1000")
    Traceback (most recent call last):
    dmljax.directml.InvalidDesc: estimate: unknown chip 'h1000', did you mean h100? ...
    """
    return prepared(function, inputs, target, weights, mesh, specs).estimate(gradient=gradient)


class Prepared(NamedTuple):
    """A program placed on chips, ready to compile."""

    program: Program
    arguments: Placed
    place: Place

    def estimate(self, *, gradient: bool = False) -> Estimate:
        with within("estimate"):
            program = self.program._replace(function=_gradient(self.program)) if gradient else self.program
            return _estimated(program, self.arguments, self.place, gradient=gradient)


def prepared(
    function: Any,
    inputs: tuple[Any, ...],
    target: str,
    weights: Any = None,
    mesh: Mapping[str, int] | None = None,
    specs: Any = None,
) -> Prepared:
    """Places a program on chips; refuses a program that does not fit, without compiling it."""
    with within("estimate"):
        require("target", isinstance(target, str), "must be a text such as 'h100:8'", show(target), InvalidType)
        place = place_of(target)
        program = program_of(function, inputs, weights)
        return Prepared(program, placed(program, place, mesh, specs), place)


def _gradient(program: Program) -> Callable[..., Any]:
    def loss(weights: Any, *inputs: Any) -> Any:
        results = jax.tree.leaves(program.function(weights, *inputs))
        floats = [result.astype(jnp.float32) for result in results if jnp.issubdtype(result.dtype, jnp.floating)]
        require("gradient", bool(floats), "needs a result of floats", _types_in(results))
        return sum(jnp.vdot(x, x) for x in floats) / 2

    arguments = (program.weights, *program.inputs)
    floats = tuple(
        i
        for i, argument in enumerate(arguments)
        if any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(argument))
    )
    require("gradient", bool(floats), "needs weights or inputs of floats", _types_in(arguments))
    return jax.grad(loss, 0 if 0 in floats else floats, allow_int=True)


def _types_in(arrays: Any) -> str:
    return ", ".join(jax.typeof(leaf).str_short() for leaf in jax.tree.leaves(arrays)) or "none"


def _estimated(source: Program, arguments: Placed, place: Place, *, gradient: bool) -> Estimate:
    # Shard gradients like weights, and updated inputs like inputs; other results stay where they are computed.
    results: Any = arguments.default
    alike = arguments.weights if gradient else arguments.inputs[0] if source.updates else None
    if results is None and jax.tree.leaves(alike):
        results = jax.tree.map(lambda leaf: leaf.sharding, alike)
    start = time.perf_counter()
    with jax.disable_jit(False):
        # Wrap in a new function, because JAX caches lowered code by function, even for another chip.
        program = jax.jit(
            lambda weights, *inputs: source.function(weights, *inputs),
            out_shardings=results,
            donate_argnums=1 if source.updates else (),
        )
        traced = _traced(program, arguments)
        compiled: list[jax.stages.Compiled] = []
        message = reason_of_refusal(lambda program: compiled.append(_compiled(program.lower(), place)), traced)
        if message:
            return _refused(message, traced, arguments, place, time.perf_counter() - start)
    seconds = time.perf_counter() - start
    steps = steps_of(compiled[0].as_text() or "")
    memory: Any = compiled[0].memory_analysis()
    times = [_longest(place.target, step) for step in steps]
    return Estimate(
        target=place.name,
        devices=len(place.devices),
        reason="",
        compile_seconds=seconds,
        weight_bytes=sum(map(bytes_on_a_chip, jax.tree.leaves(arguments.weights))),
        peak_bytes=memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes,
        memory_bytes=int(place.target.memory),
        cost=sum((step.cost for step in steps), Cost()),
        times=Times(*map(sum, zip(*times, strict=True))) if times else Times(),
        nodes=_dearest(steps, times),
        roof=roof_of(traced.jaxpr, place.target) / len(place.devices),  # if they divide all of the work
        called=called_kernels(steps),
    )


def _traced(program: Any, arguments: Placed) -> Any:
    try:
        return program.trace(arguments.weights, *arguments.inputs)
    except RuntimeError as error:
        if isinstance(error, DmlError) or "cuDNN" not in str(error):
            raise
        rule, remedy = "a function with cuDNN's attention compiles only where cuDNN is", 'implementation="xla"'
        raise Unsupported(Problem((), rule, remedy=remedy)) from None


def _compiled(lowered: jax.stages.Lowered, place: Place) -> jax.stages.Compiled:
    # Some operations of complex128 abort this process, not only the compilation.
    if place.target.platform == "tpu" and "complex<f64>" in lowered.as_text():
        raise RuntimeError("complex128 may abort XLA's compiler for TPUs; use complex64")
    return lowered.compile()


def bytes_on_a_chip(array: Any) -> int:
    """The bytes of a sharded array that one chip holds."""
    return int(math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize)


def _refused(message: str, traced: Any, arguments: Placed, place: Place, seconds: float) -> Estimate:
    """The estimate of a program that does not compile, with the node at fault and XLA's reason."""
    leaves = jax.tree.leaves((arguments.weights, arguments.inputs))

    def compile_it(function: Callable[..., Any]) -> object:
        program = jax.jit(function, out_shardings=arguments.default, keep_unused=True)
        return _compiled(program.lower(*leaves), place)

    named = re.search(r'op_name="([^"]*)"', message)
    name = named[1] if named else refused_by(traced.jaxpr, compile_it)
    reason = f"{label_of(name)}: {sentence(message)}" if name else sentence(message)
    if message.startswith("RESOURCE_EXHAUSTED"):
        reason += f" ({LESS_MEMORY})"
    return Estimate(place.name, len(place.devices), reason, seconds, refused=node_of(name) if name else "")


def _longest(target: Target, step: Step) -> Times:
    """The time of a kernel, attributed to what bounds it."""
    times = target.times(step.cost)
    longest = times.index(max(times))
    return Times(*(seconds if i == longest else 0 for i, seconds in enumerate(times)))


def _dearest(steps: Sequence[Step], times: Sequence[Times]) -> tuple[NodeCost, ...]:
    nodes: dict[str, NodeCost] = {}
    for step, spent in zip(steps, times, strict=True):
        name = node_of(step.name)
        so_far = nodes.get(name, NodeCost(name, 0, 0))
        nodes[name] = NodeCost(name, so_far.seconds + sum(spent), so_far.kernels + step.cost.kernels)
    by_cost = sorted(nodes.values(), key=lambda node: node.seconds, reverse=True)
    return tuple(node for node in by_cost if node.seconds)


_NODE = re.compile(r"(?<![^/(])\[((?:[^\[\]]|\[[^\]]*\])*)\]")  # names may contain brackets
_WRAPPED = re.compile(r"\b(?:jit|pjit)\([^()]*\)|\b(?:transpose|jvp|vmap)\(|\)")


def node_of(op_name: str) -> str:
    """The model's node that an operation belongs to: its outermost scope in brackets, or its scopes and primitive.

    >>> node_of("jit(f)/transpose(jvp([/layer1/conv]))/conv_general_dilated")
    '/layer1/conv'
    >>> node_of("jit(f)/transpose(jvp(attention))/dot_general")
    'attention/dot_general'
    """
    if marked := _NODE.search(op_name):
        return marked[1]
    return "/".join(filter(None, _WRAPPED.sub("", op_name).split("/"))) or "(no node)"


def label_of(op_name: str) -> str:
    """A node, followed by the operator and the primitive in it.

    >>> label_of("jit(f)/[/layer1/conv]/Conv/conv_general_dilated")
    '/layer1/conv (Conv/conv_general_dilated)'
    """
    marked = _NODE.search(op_name)
    return f"{marked[1]} ({node_of(op_name[marked.end() :])})" if marked else node_of(op_name)
