"""Finds the cost that Pallas kernels declare, which JAX drops when it compiles them for a GPU."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
from jax.extend.core import Jaxpr

from dmljax.estimation.cost import Cost, Step
from dmljax.estimation.roof import jaxprs_in
from dmljax.lowerings.kernels import CHIPS, KERNELS

Declared = Mapping[str, Sequence[Cost]]  # by the kernels' names, in the order of their calls


def with_declared(steps: Sequence[Step], program: Jaxpr, platform: str, devices: int) -> list[Step]:
    """Gives the calls of Pallas kernels the cost that the kernels declare in a traced program."""
    declared: dict[str, list[Cost]] = {}
    for name, cost in _declared_in(program, platform, devices):
        declared.setdefault(name, []).append(cost)
    return [_with_declared(step, declared) for step in steps]


def _with_declared(step: Step, declared: dict[str, list[Cost]]) -> Step:
    costs = declared.get(step.kernel, [])
    if not (step.custom_call and costs):
        return step
    cost = (costs.pop(0) if len(costs) > 1 else costs[0]).times(step.cost.kernels)
    moved = cost.bytes or step.cost.bytes
    return step._replace(cost=replace(cost, kernels=step.cost.kernels, bytes=moved), custom_call="")


def _declared_in(program: Jaxpr, platform: str, devices: int) -> Iterator[tuple[str, Cost]]:
    """Yields the name and the cost of each kernel of a program; its arrays are divided among the devices."""
    for equation in program.eqns:
        parameters = equation.params
        if equation.primitive.name == "pallas_call":
            if declared := parameters["cost_estimate"]:
                yield _name(parameters), _cost(declared, devices)
        elif kernel := KERNELS.get(equation.primitive):
            parameters = {name: value for name, value in parameters.items() if name != "marker"}
            if kernel.chip_of(**parameters) != CHIPS.get(platform):
                continue
            with jax.enable_x64(False):
                inputs = [variable.aval for variable in equation.invars]
                traced = jax.make_jaxpr(partial(kernel.compute, interpret=False, **parameters))(*inputs)
            yield from _declared_in(traced.jaxpr, platform, devices)
        else:
            on_each = 1 if equation.primitive.name == "shard_map" else devices
            for inner in jaxprs_in(_of_platform(parameters, platform)):
                yield from _declared_in(inner, platform, on_each)


def _of_platform(parameters: Mapping[str, Any], platform: str) -> Mapping[str, Any]:
    """The parameters of an equation, without branches that are for other platforms."""
    if not (platforms := parameters.get("branches_platforms")):
        return parameters
    chosen = next(i for i, own in enumerate(platforms) if own is None or platform in own)
    return {"branches": parameters["branches"][chosen : chosen + 1]}


def _name(parameters: Mapping[str, Any]) -> str:
    """The name of a kernel; older versions of JAX keep it beside its source."""
    named: str = parameters["name"] if "name" in parameters else parameters["name_and_src_info"].name
    return named


def _cost(declared: Any, devices: int) -> Cost:
    operations = declared.flops // devices
    return Cost(
        bytes=declared.bytes_accessed // devices,
        element_operations=declared.transcendentals // devices,
        products=operations,
        halves=operations,
        passes=operations,
        declared=operations,
    )
