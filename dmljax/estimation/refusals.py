"""Finds the operation that makes XLA refuse a program, by compiling prefixes of it.

XLA's own messages rarely name the operation; they describe types or memory.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from dmljax.text import one_line

Compile = Callable[[Any], object]  # takes a function of the program's inputs, or the program

# Calls that are replaced by their equations
_CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
    }
)


def find_refused_operation(program: ClosedJaxpr, compile_it: Compile) -> str | None:
    """JAX's name for the operation that makes `compile_it` refuse a program; None if no single operation does.

    Searches by bisection for the first operation whose prefix does not compile.
    """
    operations = _Operations(program)
    good, bad = 0, len(operations.listed)
    if not bad or reason_of_refusal(compile_it, operations.build_prefix(0)):
        return None
    while bad - good > 1:
        middle = (good + bad) // 2
        if reason_of_refusal(compile_it, operations.build_prefix(middle)):
            bad = middle
        else:
            good = middle
    return operations.listed[good].name


def reason_of_refusal(compile_it: Compile, program: Any) -> str:
    """Why a program does not compile; empty if it compiles."""
    try:
        compile_it(program)
    except RuntimeError as error:  # XLA's errors, and NotImplementedError if JAX has no lowering
        return str(error).strip() or type(error).__name__
    return ""


_CONTEXT = re.compile(r"^[A-Z_]+: (?:during context \[[^\]]*\]: )?")


def sentence(message: str) -> str:
    """The first line of XLA's message."""
    return one_line(_CONTEXT.sub("", message.splitlines()[0]))


class _Value:
    """A value of a program; `known` if it is a constant."""

    def __init__(self, known: Any = None) -> None:
        self.known = known


class _Operation(NamedTuple):
    name: str
    equation: Any
    read: Sequence[_Value]
    written: Sequence[_Value]


class _Operations:
    """The operations of a program in order, including those of the functions that it calls."""

    def __init__(self, program: ClosedJaxpr) -> None:
        self.inputs = [_Value() for _ in program.jaxpr.invars]
        self.debug_info = program.jaxpr.debug_info
        self.listed: list[_Operation] = []
        self.outputs = self._add(program.jaxpr, program.consts, self.inputs, "")

    def _add(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[_Value], scope: str) -> list[_Value]:
        values: dict[Any, _Value] = dict(zip(jaxpr.invars, inputs, strict=True))
        values |= zip(jaxpr.constvars, map(_Value, constants), strict=True)

        def read(atoms: Sequence[Any]) -> list[_Value]:
            return [_Value(atom.val) if isinstance(atom, Literal) else values[atom] for atom in atoms]

        for equation in jaxpr.eqns:
            name = "/".join(filter(None, (scope, str(equation.source_info.name_stack))))
            callee = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
            if equation.primitive.name in _CALLS and callee is not None:
                inner, consts = (callee.jaxpr, callee.consts) if hasattr(callee, "consts") else (callee, ())
                results = self._add(inner, consts, read(equation.invars), name)
            else:
                results = [_Value() for _ in equation.outvars]
                name = f"{name}/{equation.primitive.name}"
                self.listed.append(_Operation(name, equation, read(equation.invars), results))
            values |= zip(equation.outvars, results, strict=True)
        return read(jaxpr.outvars)

    def build_prefix(self, count: int) -> Callable[..., list[Any]]:
        """Returns a function that computes the results of the first operations that the others need."""
        first = self.listed[:count]
        results = {value for operation in first for value in operation.written}
        reads = (value for operation in self.listed[count:] for value in operation.read)
        outputs = dict.fromkeys(value for value in (*reads, *self.outputs) if value in results)

        def run(*inputs: Any) -> list[Any]:
            values = dict(zip(self.inputs, inputs, strict=True))
            for operation in first:
                values |= zip(operation.written, _results(operation, values, self.debug_info), strict=True)
            return [values[value] for value in outputs]

        return run


def _results(operation: _Operation, values: dict[_Value, Any], debug_info: Any) -> Sequence[Any]:
    """Computes an operation as a separate program, whose inputs are the operands that vary."""
    equation = operation.equation
    pairs = zip(equation.invars, operation.read, strict=True)
    operands = {atom: values.get(value, value.known) for atom, value in pairs if not isinstance(atom, Literal)}
    names = ("",) * len(operands), ("",) * len(equation.outvars)
    debug_info = debug_info._replace(arg_names=names[0], result_paths=names[1])
    alone = Jaxpr((), [*operands], equation.outvars, [equation], equation.effects, debug_info=debug_info)
    results: Sequence[Any] = jaxpr_as_fun(ClosedJaxpr(alone, ()))(*operands.values())
    return results
