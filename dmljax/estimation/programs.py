"""Estimates a program: its memory, its kernels, what bounds its time, and its costliest nodes."""

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dmljax.errors import DmlError, InvalidType, Problem, Unsupported, require, within
from dmljax.estimation.chips import Target, Times, sum_of_times
from dmljax.estimation.declared import with_declared_costs
from dmljax.estimation.depth import PreparedByDepth, prepare_by_depth
from dmljax.estimation.hlo.cost import Cost, KernelCost, called_kernels, calls_without_cost, steps_of
from dmljax.estimation.placement import ChipProgram, Placed, cast_program, place_arguments, program_of
from dmljax.estimation.refusals import find_refused_operation, reason_of_refusal, sentence
from dmljax.estimation.report import LESS_MEMORY, Batch, Estimate, NodeCost
from dmljax.estimation.roofline import roofline_of, seconds_of_products
from dmljax.estimation.targets import Place, place_of, without_mesh
from dmljax.estimation.training import gradient_of, optimizer_of, training_step
from dmljax.foundation.programs.compiling import remember
from dmljax.text import join_words, show


class Prepared(NamedTuple):
    """A program placed on chips, ready to compile."""

    program: ChipProgram
    arguments: Placed
    place: Place
    precision: str | None

    def estimate(self, *, gradient: bool = False, optimizer: Any = None) -> Estimate:
        precision = self.precision or jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        with within("estimate"), jax.default_matmul_precision(precision), without_mesh():
            program, arguments = self.program, self.arguments
            weights, grads, state = arguments.weights, None, None
            buffers = arguments.inputs[0] if program.updates else None
            if optimizer is not None:
                program, arguments = training_step(program, arguments, optimizer_of(optimizer))
                buffers = arguments.weights
                state = buffers[1]
            elif gradient:
                program, grads = gradient_of(program, weights)
                buffers = grads
            result = _estimate_program(program, arguments, self.place, buffers)
            return result._replace(
                weight_bytes=bytes_on_a_chip(weights),
                state_bytes=bytes_on_a_chip(state),
                fixed_bytes=bytes_on_a_chip((weights, grads, state)),
                work=_work_of(arguments) if jax.tree.leaves(weights) else Batch(),
            )


_CHOICES = {"precision": ("default", "high", "highest"), "dtype": ("bfloat16", "float16", "float32")}


def require_choices(precision: str | None, dtype: str | None, optimizer: Any = None) -> None:
    """Raises if a name is unknown, before anything is compiled."""
    for name, value in (("precision", precision), ("dtype", dtype)):
        known = _CHOICES[name]
        is_known = value is None or (isinstance(value, str) and value in known)
        require(name, is_known, f"must be {join_words(known, 'or')}", show(value))
    if optimizer is not None:
        optimizer_of(optimizer)


def prepare(
    function: Any,
    inputs: tuple[Any, ...],
    target: str,
    weights: Any = None,
    mesh: Mapping[str, int] | None = None,
    specs: Any = None,
    *,
    precision: str | None = None,
    dtype: str | None = None,
    extrapolate: bool = False,
) -> Prepared | PreparedByDepth:
    """Places a program on chips; raises if it does not fit, without compiling it."""
    if extrapolate:
        with within("estimate"):
            require("weights", weights is None, "must be left out with extrapolate, because a model has its own")
            count = len(getattr(function, "inputs", inputs))
            require("inputs", len(inputs) == count, f"must be the {count} of the model", len(inputs))

        def with_model_arrays(model: Any) -> Sequence[Any]:
            names = {tensor.name for tensor in model.inputs}
            arrays = (x for tensor, x in zip(function.inputs, inputs, strict=True) if tensor.name in names)
            is_by_name = isinstance(specs, Mapping) and specs.keys() <= function.weights.keys()
            model_specs = {name: spec for name, spec in specs.items() if name in model.weights} if is_by_name else specs
            return [prepare(model, (*arrays,), target, None, mesh, model_specs, precision=precision, dtype=dtype)]

        return prepare_by_depth(function, with_model_arrays)[0]
    with within("estimate"):
        require("target", isinstance(target, str), "must be a text such as 'h100:8'", show(target), InvalidType)
        require_choices(precision, dtype)
        place = place_of(target)
        program = program_of(function, inputs, weights)
        program = cast_program(program, dtype)
        return Prepared(program, place_arguments(program, place, mesh, specs), place, precision)


def _estimate_program(source: ChipProgram, arguments: Placed, place: Place, buffers: Any) -> Estimate:
    """Estimates a program; if `buffers` is not None, the program returns new values for it with the same sharding."""
    results: Any = arguments.default
    if results is None and jax.tree.leaves(buffers):  # other results stay where they are computed
        results = jax.tree.map(lambda leaf: leaf.sharding, buffers)
    start = time.perf_counter()
    with jax.disable_jit(False):
        # Wrap in a new function, because JAX caches lowered code by function, even for another chip.
        program = jax.jit(
            lambda weights, *inputs: source.function(weights, *inputs),
            out_shardings=results,
            donate_argnums=source.donated,
        )
        traced = _trace(program, arguments)
        compiled: list[_Compiled] = []
        message = reason_of_refusal(lambda program: compiled.append(_compile_or_find(program.lower(), place)), traced)
        if message:
            return _estimate_of_refused(message, traced, arguments, place, time.perf_counter() - start)
    seconds = time.perf_counter() - start
    devices = len(place.devices)
    text, memory = compiled[0]
    steps = steps_of(text, place.links)
    steps = with_declared_costs(steps, traced.jaxpr.jaxpr, place.target.platform, devices)
    costs = [step.cost for step in steps]
    spent = _time_by_kernel(place.target, costs)
    times = sum_of_times(spent)
    exchange = sum(place.target.times(cost).exchange for cost in costs)
    return Estimate(
        target=place.name,
        devices=devices,
        reason="",
        compile_seconds=seconds,
        peak_bytes=memory,
        memory_bytes=place.target.usable_memory,
        cost=sum(costs, Cost()),
        times=times,
        overlapped_seconds=max(sum(times) - times.exchange, exchange),
        expected_seconds=0 if place.target.gpu else sum(map(place.target.seconds, costs)),
        product_seconds=seconds_of_products(traced.jaxpr, place.target) / devices,  # if they divide all of the work
        roof=roofline_of(traced.jaxpr, place.target) / devices,
        nodes=_costliest_nodes(steps, spent),
        called=called_kernels(steps),
        custom_calls=calls_without_cost(steps),
    )


def _trace(program: Any, arguments: Placed) -> Any:
    try:
        return program.trace(arguments.weights, *arguments.inputs)
    except RuntimeError as error:
        if isinstance(error, DmlError) or "cuDNN" not in str(error):
            raise
        rule, remedy = "a function with cuDNN's attention compiles only where cuDNN is", 'implementation="xla"'
        raise Unsupported(Problem((), rule, remedy=remedy)) from None


class _Compiled(NamedTuple):
    """The parts of a compiled program that an estimate reads."""

    text: str
    peak_bytes: int


def _compile_or_find(lowered: jax.stages.Lowered, place: Place) -> _Compiled:
    """Compiles a program, unless a command has compiled it before."""

    def compile_now() -> _Compiled:
        compiled = _compile(lowered, place)
        memory: Any = compiled.memory_analysis()
        resident = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        peak = resident + memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
        return _Compiled(compiled.as_text() or "", peak)

    compiler = f"{place.name} {place.devices[0].client.platform_version}"
    return remember(compile_now, lambda: f"{compiler} {lowered.as_text(debug_info=True)}")


def _compile(lowered: jax.stages.Lowered, place: Place) -> jax.stages.Compiled:
    # Some operations of complex128 abort this process, not only the compilation.
    if place.target.platform == "tpu" and "complex<f64>" in lowered.as_text():
        raise RuntimeError("complex128 may abort XLA's compiler for TPUs; use complex64")
    return lowered.compile()


def bytes_on_a_chip(arrays: Any) -> int:
    """The bytes of sharded arrays that one chip holds."""
    leaves = jax.tree.leaves(arrays)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def _work_of(arguments: Placed) -> Batch:
    """The examples in the first input, and the tokens if it is a matrix of them."""
    first: Any = next((leaf for leaf in jax.tree.leaves(arguments.inputs) if leaf.ndim), None)
    if first is None:
        return Batch()
    are_tokens = first.ndim == 2 and jnp.issubdtype(first.dtype, jnp.integer)
    shares = first.shape[0] // first.sharding.shard_shape(first.shape)[0] if first.shape[0] else 1
    return Batch(first.shape[0], math.prod(first.shape) if are_tokens else 0, shares)


def _estimate_of_refused(message: str, traced: Any, arguments: Placed, place: Place, seconds: float) -> Estimate:
    """The estimate of a program that does not compile, with the node at fault and XLA's reason."""
    leaves = jax.tree.leaves((arguments.weights, arguments.inputs))

    def compile_it(function: Callable[..., Any]) -> object:
        program = jax.jit(function, out_shardings=arguments.default, keep_unused=True)
        return _compile(program.lower(*leaves), place)

    match = re.search(r'op_name="([^"]*)"', message)
    name = match[1] if match else find_refused_operation(traced.jaxpr, compile_it)
    reason = f"{label_of(name)}: {sentence(message)}" if name else sentence(message)
    if message.startswith("RESOURCE_EXHAUSTED"):
        reason += f" ({LESS_MEMORY})"
    return Estimate(place.name, len(place.devices), reason, seconds, refused=node_of(name) if name else "")


def _time_by_kernel(target: Target, costs: Sequence[Cost]) -> list[Times]:
    """The time of each kernel, attributed to what bounds it.

    Copies that a TPU makes while kernels run take what the memory needs beyond the kernels' time.
    """
    times = [target.times(cost) for cost in costs]
    spent = [
        Times() if cost.copied else _longest(kernel_times) for cost, kernel_times in zip(costs, times, strict=True)
    ]
    copy_bytes = sum(cost.copied for cost in costs)
    more = sum(kernel_times.memory for kernel_times in times) - sum(map(sum, spent))
    if copy_bytes and more > 0:
        spent = [
            Times(memory=more * cost.copied / copy_bytes) if cost.copied else kernel_times
            for cost, kernel_times in zip(costs, spent, strict=True)
        ]
    return spent


def _longest(times: Times) -> Times:
    longest = times.index(max(times))
    return Times(*(seconds if i == longest else 0 for i, seconds in enumerate(times)))


def _costliest_nodes(steps: Sequence[KernelCost], spent: Sequence[Times]) -> tuple[NodeCost, ...]:
    costs: dict[str, Cost] = defaultdict(Cost)
    times: dict[str, Times] = defaultdict(Times)
    for step, step_times in zip(steps, spent, strict=True):
        name = node_of(step.name)
        costs[name] += step.cost
        times[name] = sum_of_times((times[name], step_times))
    by_time = sorted(times, key=lambda name: sum(times[name]), reverse=True)
    return tuple(NodeCost.of(name, costs[name], times[name]) for name in by_time if sum(times[name]))


_NODE = re.compile(r"(?<![^/(])\[((?:[^\[\]]|\[[^\]]*\])*)\]")  # names may contain brackets
_WRAPPED = re.compile(r"\b(?:jit|pjit)\([^()]*\)|\b(?:transpose|jvp|vmap)\(|\)")


def node_of(op_name: str) -> str:
    """The model's node that an operation belongs to: its outermost scope in brackets, or its scopes and primitive.

    >>> node_of("jit(f)/transpose(jvp([/layer1/conv]))/conv_general_dilated")
    '/layer1/conv'
    >>> node_of("jit(f)/transpose(jvp(attention))/dot_general")
    'attention/dot_general'
    """
    if match := _NODE.search(op_name):
        return match[1]
    return "/".join(filter(None, _WRAPPED.sub("", op_name).split("/"))) or "(no node)"


def label_of(op_name: str) -> str:
    """A node, followed by the operator and the primitive in it.

    >>> label_of("jit(f)/[/layer1/conv]/Conv/conv_general_dilated")
    '/layer1/conv (Conv/conv_general_dilated)'
    """
    match = _NODE.search(op_name)
    return f"{match[1]} ({node_of(op_name[match.end() :])})" if match else node_of(op_name)
