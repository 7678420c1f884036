"""The estimate of a program: its memory, its kernels, what bounds its time, and the nodes that cost most."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from dmljax.descriptors.base import Operator
from dmljax.descriptors.lowering import lower
from dmljax.descriptors.validation import validate
from dmljax.errors import DmlError, InvalidDesc, Problem, within
from dmljax.estimation.cost import Cost, Step, steps_of
from dmljax.estimation.targets import Place, Target, Times, place_of
from dmljax.graph import Graph, computation
from dmljax.text import one_line

MOST = 10  # nodes that are listed


class NodeCost(NamedTuple):
    """The least seconds of a node of a model, or of an operation of another function, and its kernels.

    >>> NodeCost("/stem/Conv", seconds=1e-4, kernels=2).name
    '/stem/Conv'
    """

    name: str
    seconds: float
    kernels: int


class Estimate(NamedTuple):
    """The cost of a program on each chip of a target; prints as a table.

    `reason` says why it does not compile, and then there is no more. `times` are seconds by what sets them, and
    `seconds`, their sum, is a lower bound. `nodes` are those that cost most. All figures are those of one chip.

    >>> Estimate("v5e", devices=1, reason="no memory", compile_seconds=2.0).to_json()[
    ...     "reason"
    ... ]
    'no memory'
    """

    target: str
    devices: int
    reason: str
    compile_seconds: float
    weight_bytes: int = 0
    peak_bytes: int = 0
    memory_bytes: int = 0
    cost: Cost = Cost()
    times: Times = Times()
    nodes: tuple[NodeCost, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(self.times)

    def __str__(self) -> str:
        return "\n".join(table([self]))

    def to_json(self) -> dict[str, Any]:
        """The figures by name, for a program to read."""
        own = self._asdict() | {"cost": asdict(self.cost), "seconds": self.seconds, "times": self.times._asdict()}
        return own | {"nodes": [node._asdict() for node in self.nodes]}


def estimate(function: Any, *inputs: Any, target: str, weights: Any = None, gradient: bool = False) -> Estimate:
    """Estimates what a function costs on a chip that is not here, from what XLA compiles for it on this CPU.

    `function` takes the `inputs`, of which only shapes and types count; with `weights`, it takes these first. A model
    of `dmljax.onnx` has its own weights, and a descriptor or a `directml.Graph` its own inputs. `target` is h100, a100,
    b200, v5e, v5p or v6e, or several of them: `h100:8`, `v5e:4x4`. Each takes a part of the inputs' first dimension and
    all weights. With `gradient`, it is the derivative by the weights, or else by the inputs, of the outputs' squares.

    The time is a bound and no measurement: kernel by kernel the longest of its launch, its bytes, its operations and
    its exchange at the published rates, on a TPU the cycles that its compiler expects. It needs the extra
    `accelerators`, and `JAX_PLATFORMS=cpu` before `import jax`, as JAX would look for the chips otherwise.

    >>> estimate(jnp.sin, jnp.ones(8), target="h1000")
    Traceback (most recent call last):
    dmljax.directml.InvalidDesc: estimate: target must be h100, ... got 'h1000', did you mean h100?
    """
    with within("estimate"):
        place = place_of(target)
        program = _program(function, inputs, weights)
        arguments = _placed(program, place)
    return _estimated(_gradient(program) if gradient else program.function, arguments, place, gradient=gradient)


class Program(NamedTuple):
    """A function of weights, which may be None, and of inputs."""

    function: Callable[..., Any]
    weights: Any
    inputs: tuple[Any, ...]


def _program(function: Any, inputs: tuple[Any, ...], weights: Any) -> Program:
    if isinstance(function, Graph):
        validate(function)
        constants = {name: function.sources[name].shape_dtype for name in function.constants}
        return Program(computation(function), constants, tuple(one.shape_dtype for one in function.inputs.values()))
    if isinstance(function, Operator):
        inputs = tuple(tensor.shape_dtype for tensor in function.tensors(is_input=True).values())
        function = lower(function)
    elif weights is None and hasattr(function, "apply") and hasattr(function, "weights"):
        return Program(function.apply, function.weights, inputs)
    if weights is None:
        return Program(lambda _, *arrays: function(*arrays), None, inputs)
    return Program(function, weights, inputs)


def _placed(program: Program, place: Place) -> tuple[Any, ...]:
    """The types of the arguments, with the chips that hold them."""
    whole, shared = _shardings(place)
    count = len(place.devices)

    def on(sharding: Sharding, value: Any) -> jax.ShapeDtypeStruct:
        typed = value if hasattr(value, "dtype") else jnp.asarray(value)
        return jax.ShapeDtypeStruct(typed.shape, typed.dtype, sharding=sharding)

    for index, leaf in enumerate(jax.tree.leaves(program.inputs)):
        if (shape := np.shape(leaf)) and shape[0] % count:
            rule = f"must have a first dimension that {count} devices can share"
            remedy = f"a batch of {count}, or target={place.name.partition(':')[0]!r}"
            raise InvalidDesc(Problem(("inputs", index), rule, shape, remedy=remedy))
    weights = jax.tree.map(partial(on, whole), program.weights)
    inputs = jax.tree.map(lambda leaf: on(shared if np.ndim(leaf) else whole, leaf), program.inputs)
    return (weights, *inputs)


def _shardings(place: Place) -> tuple[Sharding, Sharding]:
    """Where all of an array is on each chip, and where its first dimension is divided."""
    if len(place.devices) == 1:
        return (SingleDeviceSharding(place.devices[0]),) * 2
    mesh = Mesh(np.array(place.devices), ("batch",))
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))


def _gradient(program: Program) -> Callable[..., Any]:
    def loss(weights: Any, *inputs: Any) -> Any:
        results = jax.tree.leaves(program.function(weights, *inputs))
        floats = [one.astype(jnp.float32) for one in results if jnp.issubdtype(one.dtype, jnp.floating)]
        return sum(jnp.vdot(one, one) for one in floats) / 2

    leaves = [(index, jax.tree.leaves(one)) for index, one in enumerate((program.weights, *program.inputs))]
    floats = tuple(i for i, ones in leaves if any(jnp.issubdtype(one.dtype, jnp.floating) for one in ones))
    return jax.grad(loss, 0 if 0 in floats else floats, allow_int=True)


def _estimated(function: Callable[..., Any], arguments: tuple[Any, ...], place: Place, *, gradient: bool) -> Estimate:
    # Gradients of weights are wanted on all chips; other results may stay where they are computed. A function without
    # arrays would be compiled for this CPU if its results had no place.
    has_weights = bool(jax.tree.leaves(arguments[0]))
    whole = _shardings(place)[0] if len(place.devices) == 1 or (gradient and has_weights) else None
    start = time.perf_counter()
    try:
        # A new function: JAX keeps what it lowered for another chip by the function that it came from.
        with jax.disable_jit(False):
            program = jax.jit(lambda weights, *inputs: function(weights, *inputs), out_shardings=whole)
            compiled = program.lower(*arguments).compile()
    except DmlError:
        raise
    except (jax.errors.JaxRuntimeError, NotImplementedError) as error:
        return Estimate(place.name, len(place.devices), _reason(str(error)), time.perf_counter() - start)
    seconds = time.perf_counter() - start
    steps = steps_of(compiled.as_text() or "")
    memory: Any = compiled.memory_analysis()
    times = [_longest(place.target, step) for step in steps]
    return Estimate(
        target=place.name,
        devices=len(place.devices),
        reason="",
        compile_seconds=seconds,
        weight_bytes=sum(one.size * one.dtype.itemsize for one in jax.tree.leaves(arguments[0])),
        peak_bytes=memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes,
        memory_bytes=int(place.target.memory),
        cost=sum((step.cost for step in steps), Cost()),
        times=Times(*map(sum, zip(*times, strict=True))) if times else Times(),
        nodes=_dearest(steps, times),
    )


def _longest(target: Target, step: Step) -> Times:
    """The time of a kernel, put down to what sets it."""
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
    return tuple(node for node in by_cost[:MOST] if node.seconds)


_NODE = re.compile(r"(?<![^/(])\[((?:[^\[\]]|\[[^\]]*\])*)\]")  # a name may have brackets itself
_WRAPPED = re.compile(r"\b(?:jit|pjit)\([^()]*\)|\b(?:transpose|jvp|vmap)\(|\)")


def node_of(op_name: str) -> str:
    """The node of a model that an operation is of: its outermost scope in brackets; else its scopes and its primitive.

    >>> node_of("jit(f)/transpose(jvp([/layer1/conv]))/conv_general_dilated")
    '/layer1/conv'
    >>> node_of("jit(f)/transpose(jvp(attention))/dot_general")
    'attention/dot_general'
    """
    if marked := _NODE.search(op_name):
        return marked[1]
    return "/".join(filter(None, _WRAPPED.sub("", op_name).split("/"))) or "(of no node)"


def _reason(message: str) -> str:
    """Why XLA does not compile a program, with the node where its message names one."""
    node = re.search(r'op_name="([^"]*)"', message)
    reason = one_line(message.strip().splitlines()[0])
    return f"{node_of(node[1])}: {reason}" if node else reason


# The table

NOTE = """\
The time is a lower bound from what XLA's compiler makes of the program, and no measurement. Kernels follow each
other, and each takes the longest of its launch, its bytes, its operations and its exchange at the chip's published
rates; on a TPU, the cycles that its compiler expects. A kernel's time counts for the node of its last operation."""


def table(estimates: Sequence[Estimate]) -> list[str]:
    """The lines of a table, a column for each target."""
    rows = [["", *(one.target for one in estimates)]]
    rows += [[title, *("no" if one.reason else tell(one) for one in estimates)] for title, tell in ROWS[:1]]
    rows += [[title, *("" if one.reason else tell(one) for one in estimates)] for title, tell in ROWS[1:]]
    for place in range(max(len(one.nodes) for one in estimates)):
        title = "" if place else "costs most"
        rows.append([title, *(_node_text(one, place) for one in estimates)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    reasons = [f"{one.target} does not compile: {one.reason}" for one in estimates if one.reason]
    return [*lines, *reasons, "", *NOTE.splitlines()]


def _node_text(one: Estimate, place: int) -> str:
    if place >= len(one.nodes):
        return ""
    name, seconds, _ = one.nodes[place]
    return f"{seconds / one.seconds:4.0%} {name if len(name) <= 30 else f'...{name[-27:]}'}"


def _amount(value: float, unit: str) -> str:
    """A number with three digits: `44.7 MB`."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def _memory(one: Estimate) -> str:
    text = f"{_amount(one.peak_bytes, 'B')} of {_amount(one.memory_bytes, 'B')}"
    return f"{text}: too much" if one.peak_bytes > one.memory_bytes else text


def _set_by(one: Estimate) -> str:
    shares = sorted(one.times._asdict().items(), key=lambda share: share[1], reverse=True)
    return ", ".join(f"{name} {seconds / one.seconds:.0%}" for name, seconds in shares[:2] if seconds)


ROWS: Sequence[tuple[str, Callable[[Estimate], str]]] = (
    ("compiles", lambda one: f"in {one.compile_seconds:.1f} s"),
    ("chips", lambda one: str(one.devices)),
    ("weights", lambda one: _amount(one.weight_bytes, "B")),
    ("peak memory", _memory),
    ("kernels", lambda one: str(one.cost.kernels)),
    ("moved", lambda one: _amount(one.cost.bytes, "B")),
    ("operations: products", lambda one: _amount(one.cost.products, "")),
    ("operations: others", lambda one: _amount(one.cost.element_operations, "")),
    ("exchanged", lambda one: _amount(one.cost.exchanged, "B")),
    ("takes at least", lambda one: f"{one.seconds * 1e6:.4g} us"),
    ("set by", _set_by),
)
