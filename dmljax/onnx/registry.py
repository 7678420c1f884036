"""The handlers of ONNX's operators: a function of the inputs for each meaning that an operator has had.

A handler's positional parameters are the node's inputs, those with a default being optional, and its keyword-only
parameters are the node's attributes, with their defaults. Adding an operator is one function below `@handles`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dmljax.errors import InvalidDesc, Problem
from dmljax.onnx.file import MAIN, Graph, Node
from dmljax.onnx.parameters import Demand, broken_kind, demand, is_optional
from dmljax.text import did_you_mean, show

# Attributes that say nothing about the result: memory of optimizations long gone.
IGNORED = frozenset({"consumed_inputs"})
CALL = "call"  # the keyword-only parameter of a handler that must know more of the node than inputs and attributes


@dataclass(frozen=True, eq=False)
class Handler:
    """One meaning of an operator, from version `since` of its domain on.

    Of the positions of inputs, where -1 stands for all, `known` are those whose values must be known while tracing:
    the function takes them as NumPy arrays. `kept` are those that it takes as they come, NumPy arrays if the values
    are known. `wanted` are taken like these, and make a simpler program if they are known. `fold` computes the same
    of NumPy arrays alone, and of sizes among them that are symbols. `is_elementwise` says that each element of the
    result follows from the elements of the inputs at its place, or at that which is broadcast to it.
    """

    function: Callable[..., Any]
    since: int
    known: frozenset[int]
    kept: frozenset[int]
    wanted: frozenset[int]
    fold: Callable[..., Any] | None
    required: int
    absentable: frozenset[int]  # of the required positions, those that may be empty: parameters that are `| None`
    allowed: int | None  # positional inputs; None for any number
    demands: tuple[Demand | None, ...]  # of the inputs; the last one stands for any number
    attributes: Mapping[str, Any]  # their kinds by name
    required_attributes: frozenset[str]
    takes_call: bool
    is_elementwise: bool = False

    def must_know(self, index: int) -> bool:
        return index in self.known or -1 in self.known

    @property
    def passes_values(self) -> bool:
        """Whether known outputs need known inputs: not of Shape and Size, which know the sizes of any array."""
        return self.fold is not None and not self.keeps(0)

    def keeps(self, index: int) -> bool:
        return index in self.kept or index in self.wanted or -1 in self.kept

    def problems(self, node: Node) -> list[Problem]:
        """What is wrong with a node, as far as it can be seen without arrays."""
        found = []
        given = len(node.inputs)
        while given and not node.inputs[given - 1]:
            given -= 1
        if self.allowed is not None and given > self.allowed:
            found.append(Problem(node.place, f"must have at most {self.allowed} inputs", given))
        absent = self.absent([name or None for name in node.inputs[:given]])
        found += [] if absent is None else [absent.inside(node.place)]
        for name in node.attributes:
            if name not in self.attributes and name not in IGNORED:
                rule = f"must have attributes among {', '.join(sorted(self.attributes)) or 'none'}"
                found.append(Problem(node.place, rule, name + did_you_mean(name, self.attributes)))
        found += (problem.inside(node.place) for problem in self.attribute_problems(node.attributes))
        return found

    def absent(self, inputs: Sequence[Any]) -> Problem | None:
        """The first input that is None, and must not be."""
        several = range(len(self.demands) - 1, len(inputs)) if self.allowed is None else ()
        needed = [*(i for i in range(self.required) if i not in self.absentable), *several]
        place = next((i for i in needed if i >= len(inputs) or inputs[i] is None), None)
        if place is None:
            return None
        rule = f"must have its first {self.required} inputs" if place < self.required else "must have all of its inputs"
        return Problem((), rule, f"none at {place}")

    def attribute_problems(self, attributes: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with the attributes that the handler has."""
        missing = sorted(self.required_attributes - attributes.keys())
        found = [Problem((), "must have the attribute", name) for name in missing]
        for name, kind in self.attributes.items():
            rule = broken_kind(kind, attributes[name]) if name in attributes else None
            if rule is not None:
                found.append(Problem(name, rule, show(attributes[name])))
        return found

    def broken_demand(self, index: int, value: Any) -> str | None:
        """The rule that the value of an input breaks."""
        due = self.demands[min(index, len(self.demands) - 1)] if self.demands else None
        return None if due is None else due.broken_rule(value)


@dataclass(frozen=True, eq=False)
class Call:
    """What a handler may know of the node that it computes."""

    node: Node
    run: Callable[[Graph, Sequence[Any]], list[Any]]  # computes a subgraph of its inputs
    known: Callable[
        [str, Any], Any
    ]  # a value that decides the result's size as a NumPy array, or a refusal by its name
    maximum: int | None = None  # the bound of a size that follows values, if the caller gave one

    def wants(self, index: int) -> bool:
        return index < len(self.node.outputs) and bool(self.node.outputs[index])


@dataclass(frozen=True)
class Registry:
    """Handlers by domain and operator, the newest first."""

    handlers: dict[tuple[str, str], list[Handler]] = field(default_factory=dict)

    def add(self, domain: str, operator: str, handler: Handler) -> None:
        entries = self.handlers.setdefault((domain, operator), [])
        if any(one.since == handler.since for one in entries):
            raise ValueError(f"{operator} of version {handler.since} has a handler already")
        entries.append(handler)
        entries.sort(key=lambda one: -one.since)

    def find(self, node: Node) -> Handler | None:
        """The newest meaning that is not newer than the node."""
        entries = self.handlers.get((node.domain, node.operator), ())
        return next((one for one in entries if one.since <= node.version), None)


REGISTRY = Registry()


def handles(
    *operators: str,
    since: int = 1,
    domain: str = MAIN,
    known: Sequence[int] = (),
    kept: Sequence[int] = (),
    wanted: Sequence[int] = (),
    fold: Callable[..., Any] | None = None,
    is_elementwise: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the handler of operators, from a version of their domain on."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        handler = make_handler(function, since=since, known=known, kept=kept, wanted=wanted, fold=fold)
        handler = replace(handler, is_elementwise=is_elementwise)
        for operator in operators:
            REGISTRY.add(domain, operator, handler)
        return function

    return register


def make_handler(
    function: Callable[..., Any],
    *,
    since: int = 1,
    known: Sequence[int] = (),
    kept: Sequence[int] = (),
    wanted: Sequence[int] = (),
    fold: Callable[..., Any] | None = None,
) -> Handler:
    """A handler, with what the signature of its function says."""
    parameters = inspect.signature(function).parameters.values()
    inputs = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    variadic = [one for one in parameters if one.kind is one.VAR_POSITIONAL]
    keywords = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.name != CALL]
    return Handler(
        function=function,
        since=since,
        known=frozenset(known),
        kept=frozenset(kept),
        wanted=frozenset(wanted),
        fold=fold,
        required=sum(one.default is one.empty for one in inputs) if inputs else len(variadic),
        absentable=frozenset(i for i, one in enumerate(inputs) if is_optional(one.annotation)),
        allowed=None if variadic else len(inputs),
        demands=tuple(demand(one.annotation) for one in (*inputs, *variadic)),
        attributes={one.name: one.annotation for one in keywords},
        required_attributes=frozenset(one.name for one in keywords if one.default is one.empty),
        takes_call=any(one.name == CALL for one in parameters),
    )


def one_of(name: str, value: Any, table: Mapping[str, Any]) -> Any:
    """What a table has for the value of an attribute."""
    if value not in table:
        raise InvalidDesc(Problem(name, f"must be one of {', '.join(table)}", show(value)))
    return table[value]
