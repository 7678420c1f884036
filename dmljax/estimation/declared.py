"""Finds the cost that Pallas kernels declare, which JAX drops when it compiles them for a GPU."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from jax.extend.core import Jaxpr

from dmljax.estimation.hlo.cost import Cost, KernelCost
from dmljax.estimation.roofline import devices_in, programs_in


def with_declared_costs(steps: Sequence[KernelCost], program: Jaxpr, platform: str, devices: int) -> list[KernelCost]:
    """Gives the calls of Pallas kernels the cost that the kernels declare in a traced program."""
    declared: dict[str, list[Cost]] = {}
    for name, cost in _declared_costs(program, platform, devices):
        declared.setdefault(name, []).append(cost)
    return [_with_declared_cost(step, declared) for step in steps]


def _with_declared_cost(step: KernelCost, declared: dict[str, list[Cost]]) -> KernelCost:
    costs = declared.get(step.kernel, [])
    if not (step.custom_call and costs):
        return step
    cost = (costs.pop(0) if len(costs) > 1 else costs[0]).times(step.cost.kernels)
    traffic = cost.bytes or step.cost.bytes
    return step._replace(cost=replace(cost, kernels=step.cost.kernels, bytes=traffic), custom_call="")


def _declared_costs(program: Jaxpr, platform: str, devices: int) -> Iterator[tuple[str, Cost]]:
    """Yields the name and the cost of each kernel of a program; its arrays are divided among the devices."""
    for equation in program.eqns:
        if equation.primitive.name == "pallas_call":
            if declared := equation.params["cost_estimate"]:
                figures = (declared.flops, declared.transcendentals, declared.bytes_accessed)
                yield _name(equation.params), Cost.of_kernel(*(figure // devices for figure in figures))
            continue
        on_each = max(devices // devices_in(equation), 1)
        branches = [[*_declared_costs(inner, platform, on_each)] for inner in programs_in(equation, platform)]
        if equation.primitive.name == "cond":  # the costliest branch counts
            branches = [max(branches, key=lambda branch: sum(cost.products for _, cost in branch))]
        yield from chain.from_iterable(branches)


def _name(parameters: Mapping[str, Any]) -> str:
    """The name of a kernel; older versions of JAX keep it beside its source."""
    name: str = parameters["name"] if "name" in parameters else parameters["name_and_src_info"].name
    return name
