"""Converts traced JAX programs to nodes, equation by equation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from dmljax import directml
from dmljax.calls.decorator import RecordedCall
from dmljax.errors import DmlError, Path, Problem
from dmljax.graphs.steps import GraphStep, find_needed
from dmljax.graphs.to_graph.builder import Builder, NoOperator
from dmljax.graphs.to_graph.calls import OperatorCall
from dmljax.graphs.to_graph.primitives import MOVES, PRIMITIVES
from dmljax.graphs.to_graph.views import View
from dmljax.text import join_sizes

MAX_ROUNDS = 128  # of an unrolled loop
MAX_EVALUATED = 2**16  # elements of a result to compute from constants right away, unless a constant is larger

_TRANSPARENT = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


class Converter(Builder):
    """A graph under construction from the equations of JAX programs, and the recorded calls in them by label."""

    calls: Mapping[str, RecordedCall]

    def convert(
        self, place: Path, closed_jaxpr: Any, calls: Sequence[RecordedCall], views: Sequence[View]
    ) -> list[View]:
        """Adds the nodes of a program that reads these views; names them after the second part of its place."""
        self.place, self.name = place, str(place[1])
        self.calls = {call.label: call for call in calls}
        return self._evaluate(closed_jaxpr.jaxpr, closed_jaxpr.consts, views)

    def _evaluate(self, jaxpr: Any, constants: Sequence[Any], views: Sequence[View]) -> list[View]:
        known: dict[Any, View] = dict(zip(jaxpr.invars, views, strict=True))
        waiting = dict(zip(jaxpr.constvars, constants, strict=True))

        def read(var: Any) -> View:
            if isinstance(var, Literal):
                aval: Any = var.aval
                return replace(self.local_constant(var.val, aval.dtype), is_weak=aval.weak_type)
            if var in waiting:
                known[var] = self.local_constant(waiting.pop(var))
            return known[var]

        for equation in _find_needed(jaxpr):
            operands = [read(var) for var in equation.invars]
            try:
                results = [
                    _view_as(result, var.aval)
                    for var, result in zip(equation.outvars, self._convert_equation(equation, operands), strict=True)
                ]
            except (DmlError, NoOperator) as error:
                self._refuse(equation, error)
                results = [
                    View("", np.dtype(var.aval.dtype), var.aval.shape, (0,) * var.aval.ndim) for var in equation.outvars
                ]
            known |= zip(equation.outvars, results, strict=True)
        return [read(var) for var in jaxpr.outvars]

    def _refuse(self, equation: Any, error: DmlError | NoOperator) -> None:
        operation = str(equation.params.get("name", equation.primitive.name)).partition(":")[0]
        if isinstance(error, DmlError):
            self.problems += (problem.inside((*self.place, operation)) for problem in error.problems)
        else:
            self.problems.append(Problem((*self.place, operation), *error.args))

    def _convert_equation(self, equation: Any, views: list[View]) -> Sequence[View]:
        params = equation.params
        call = self.calls.get(params.get("name", ""))
        outputs = [(var.aval.dtype, var.aval.shape) for var in equation.outvars]
        if call is not None:
            try:
                return OperatorCall(self, call, views, outputs).results()
            except (DmlError, NoOperator):
                results = self._convert_formula(equation, views)
                if results is None:
                    raise
                return results
        name = equation.primitive.name
        if name in _TRANSPARENT and _called_jaxpr(equation) is not None:
            return self._inline(equation, views)
        if name not in MOVES and self._is_evaluated(equation, views):
            return self._evaluate_now(equation, views)
        if name == "cond":
            return self._choose(equation, views)
        if name == "scan":
            return self._unroll(equation, views)
        if name not in PRIMITIVES:
            raise NoOperator("no DirectML operator for this operation", name)
        results = PRIMITIVES[name](self, params, outputs, *views)
        return results if isinstance(results, list) else [results]

    def _inline(self, equation: Any, views: Sequence[View]) -> list[View]:
        inner = _called_jaxpr(equation)
        return self._evaluate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), views)

    def _convert_formula(self, equation: Any, views: Sequence[View]) -> list[View] | None:
        """Converts a call's formula instead, because its operator refused the call; None if that is refused too."""
        if self._is_evaluated(equation, views):
            return self._evaluate_now(equation, views)
        before = self.nodes, self.edges, self.constants, self.problems
        self.nodes, self.edges, self.constants = dict(self.nodes), dict(self.edges), dict(self.constants)
        self.problems = [*self.problems]
        results = self._inline(equation, views)
        if len(self.problems) == len(before[-1]):
            return results
        self.nodes, self.edges, self.constants, self.problems = before
        return None

    def _choose(self, equation: Any, views: Sequence[View]) -> list[View]:
        """Computes all branches and selects one, because DirectML has no branches."""
        which, *read = views
        branches = [self._evaluate(branch.jaxpr, branch.consts, read) for branch in equation.params["branches"]]
        selection, *others = branches
        for i, results in enumerate(others, 1):
            index = self.local_constant(i, which.dtype)
            is_later = self.elementwise(directml.ElementWiseLogicalGreaterThanOrEqualDesc, which, index, dtype=bool)
            pairs = zip(results, selection, strict=True)
            selection = [
                self.elementwise(directml.ElementWiseIfDesc, is_later, later, earlier) for later, earlier in pairs
            ]
        return selection

    def _unroll(self, equation: Any, views: Sequence[View]) -> list[View]:
        """Unrolls a loop, because DirectML has no loops."""
        params, body = equation.params, equation.params["jaxpr"]
        length, (constants, carries) = params["length"], _counts_of_scan(equation)
        if not 0 < length <= MAX_ROUNDS:
            raise NoOperator(f"must be a loop of 1 to {MAX_ROUNDS} rounds", length)
        constants_of_loop, state, rows = views[:constants], [*views[constants:][:carries]], views[constants + carries :]
        outputs: dict[int, list[View]] = {}
        for i in range(length)[:: -1 if params["reverse"] else 1]:
            results = self._evaluate(
                body.jaxpr, body.consts, [*constants_of_loop, *state, *(self.row(view, i) for view in rows)]
            )
            state, outputs[i] = results[:carries], results[carries:]
        return [*state, *(self.stack(rows, 0) for rows in zip(*(outputs[i] for i in range(length)), strict=True))]

    def _is_evaluated(self, equation: Any, views: Sequence[View]) -> bool:
        """Whether the results depend only on constants and are small enough to become constants."""
        most = max([MAX_EVALUATED, *(math.prod(view.sizes) for view in views)])
        return all(map(self.is_constant, views)) and all(math.prod(var.aval.shape) <= most for var in equation.outvars)

    def _evaluate_now(self, equation: Any, views: Sequence[View]) -> list[View]:
        with jax.ensure_compile_time_eval():
            results = equation.primitive.bind(
                *(jax.numpy.asarray(self.value(view)) for view in views), **equation.params
            )
        several = results if equation.primitive.multiple_results else [results]
        return [self.local_constant(np.asarray(result)) for result in several]


def _counts_of_scan(equation: Any) -> tuple[int, int]:
    """The numbers of a scan's constants and carries, which JAX 0.12 does not say: sequences have a dimension more."""
    body = equation.params["jaxpr"].jaxpr
    sides = (equation.invars, body.invars), (equation.outvars, body.outvars)
    inputs, carries = (
        sum(outer.aval.shape == inner.aval.shape for outer, inner in zip(*side, strict=True)) for side in sides
    )
    return inputs - carries, carries


def _called_jaxpr(equation: Any) -> Any:
    """The program that an equation calls, if any."""
    return next((equation.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in equation.params), None)


def _view_as(view: View, aval: Any) -> View:
    """Views a result in the equation's type: booleans are stored as bytes, and integers may differ in signedness."""
    if view.sizes != aval.shape or view.dtype.itemsize != aval.dtype.itemsize:
        raise NoOperator(f"must have the type and shape of {aval}", f"{view.dtype.name} {join_sizes(view.sizes)}")
    return replace(view, dtype=np.dtype(aval.dtype), is_weak=aval.weak_type)


def _find_needed(jaxpr: Any) -> list[Any]:
    """The equations that an output needs."""
    steps = {id(equation): GraphStep(_variables(equation.invars), equation.outvars) for equation in jaxpr.eqns}
    needed_steps = {*find_needed(steps, _variables(jaxpr.outvars))}
    return [equation for equation in jaxpr.eqns if id(equation) in needed_steps]


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]
