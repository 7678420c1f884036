"""The registry of handlers for ONNX's operators: a function for each meaning that an operator has had.

A handler's positional parameters are the node's inputs, optional if they have a default; its keyword-only parameters
are the node's attributes, with their defaults. `dmljax.onnx.handlers.signatures` explains the annotations. To add an
operator, write one function under `@handles`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.sharding import PartitionSpec

from dmljax.errors import InvalidDesc, InvalidType, Problem
from dmljax.onnx.graph.graph import MAIN, Node
from dmljax.onnx.handlers.signatures import (
    Attribute,
    Attributes,
    Function,
    Input,
    Known,
    Use,
    attributes_of,
    find_broken_kind,
    find_bundle,
    inputs_of,
    is_optional,
)
from dmljax.onnx.values.types import Array, Results, Tensor, Value
from dmljax.text import did_you_mean, show

# Obsolete attributes that do not affect the result
IGNORED = frozenset({"consumed_inputs"})
LARGEST = "largest"  # a bound: the largest size that a node's inputs allow
CALL = "call"  # the keyword-only parameter that passes a handler its `NodeCall`
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operators

T = TypeVar("T")
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, eq=False)
class Handler:
    """A meaning of an operator, from version `since` of its domain on.

    `inputs` are the fixed inputs, and `others` describes any number of further inputs. `groups` are the parameters that
    hold several attributes. `fold` computes the result from NumPy arrays, including symbolic sizes; it returns None to
    defer to `function`. `is_elementwise` says that each element of the result depends only on the input elements at the
    same position, after broadcasting.
    """

    function: Function
    since: int
    inputs: tuple[Input, ...]
    others: Input | None
    attributes: Mapping[str, Attribute]
    groups: Mapping[str, type[Attributes]]
    takes_call: bool
    fold: Function | None
    is_elementwise: bool
    draws: Callable[[Node], bool] | None  # whether a node may draw random numbers; None if none does

    def input(self, index: int) -> Input:
        return self.inputs[index] if index < len(self.inputs) else self.others or Input()

    @functools.cached_property
    def required(self) -> int:
        """The number of inputs a node must have; some may be absent."""
        return sum(parameter.is_required for parameter in self.inputs) if self.inputs else int(self.others is not None)

    @functools.cached_property
    def allowed(self) -> int | None:
        """The number of inputs a node may have; None for any number."""
        return len(self.inputs) if self.others is None else None

    @property
    def passes_values(self) -> bool:
        """Whether known outputs require known inputs; not for Shape and Size, which know any array's sizes."""
        return self.fold is not None and not self.measures

    @property
    def measures(self) -> bool:
        """Whether a node reads only the sizes of its first input."""
        return self.input(0).use is Use.MEASURED

    def is_random(self, node: Node) -> bool:
        """Whether a node may draw random numbers."""
        return self.draws is not None and self.draws(node)

    def is_pure(self, node: Node) -> bool:
        """Whether a node's results depend only on its inputs: not on values around a subgraph, nor on a random key."""
        uses = (self.input(i).use for i in range(len(node.inputs)))
        return not self.is_random(node) and not any(node.subgraphs) and Use.PASSED not in uses

    def arguments(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a node in the form of the handler's parameters."""
        ungrouped: dict[str, Any] = {}
        held: dict[str, dict[str, Any]] = {parameter: {} for parameter in self.groups}
        for name in attributes.keys() & self.attributes.keys():
            group = self.attributes[name].group
            (ungrouped if group is None else held[group])[name] = attributes[name]
        return ungrouped | {parameter: self.groups[parameter](**values) for parameter, values in held.items()}

    def problems(self, node: Node) -> list[Problem]:
        """The problems with a node that can be found without arrays."""
        problems = []
        count = len(node.inputs)
        while count and not node.inputs[count - 1]:
            count -= 1
        if self.allowed is not None and count > self.allowed:
            problems.append(Problem(node.place, f"must have at most {self.allowed} inputs", count))
        absent = self.absent([name or None for name in node.inputs[:count]])
        problems += [] if absent is None else [absent.inside(node.place)]
        for name in node.attributes:
            if name not in self.attributes and name not in IGNORED:
                rule = f"unknown attribute {name}{did_you_mean(name, self.attributes)}"
                remedy = f"it takes {', '.join(sorted(self.attributes)) or 'none'}"
                problems.append(Problem(node.place, rule, remedy=remedy))
        problems += (problem.inside(node.place) for problem in self.attribute_problems(node.attributes))
        return problems

    def absent(self, inputs: Sequence[object]) -> Problem | None:
        """The problem with the first required input that is None, if any."""
        needed = [i for i in range(self.required) if not self.input(i).may_be_absent]
        needed += range(len(self.inputs), len(inputs)) if self.others is not None else ()
        place = next((i for i in needed if i >= len(inputs) or inputs[i] is None), None)
        if place is None:
            return None
        needs = f"its first {self.required} inputs" if place < self.required else "all of its inputs"
        return Problem((), f"no input {place}; it needs {needs}")

    def attribute_problems(self, attributes: Mapping[str, Any]) -> list[Problem]:
        """The problems with the handler's attributes."""
        missing = sorted(
            name for name, attribute in self.attributes.items() if attribute.is_required and name not in attributes
        )
        problems = [Problem((), f"missing attribute {name}") for name in missing]
        for name, attribute in self.attributes.items():
            rule = find_broken_kind(attribute.kind, attributes[name]) if name in attributes else None
            if rule is not None:
                problems.append(Problem(name, rule, show(attributes[name])))
        return problems


class KeyNeeded(InvalidType):
    """A node draws random numbers, and the call gave no key."""


@dataclass(frozen=True, eq=False)
class NodeCall:
    """The context of the node that a handler computes."""

    node: Node
    run: Callable[..., list[Value]]  # computes a subgraph from inputs, optionally in an iteration of a loop
    known: Callable[[str, Tensor, int], Known]  # the elements of a value that decides a size, by name and limit
    evaluate: Callable[..., Any]  # a function of a subgraph's output; None if the output is not known
    bound: int | str | None  # the caller's bound for a size that depends on values, if any; may be LARGEST
    graph_key: Array | None  # the random key of the node's graph, if the caller gave one
    specs: Mapping[str, PartitionSpec]  # of the model's weights on a mesh, by name

    def maximum(self, at_most: int) -> int | None:
        """The bound of a size that depends on values, which cannot exceed `at_most`; None if the caller gave none."""
        return at_most if self.bound == LARGEST else cast(int | None, self.bound)

    def wants(self, index: int) -> bool:
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def key(self, seed: float | None = None) -> Array:
        """The node's random key: its graph's key, with the node's index and seed folded in."""
        if self.graph_key is None:
            remedy = "call model(..., key=jax.random.key(0))"
            raise KeyNeeded(Problem((), "no key to draw random numbers with", remedy=remedy))
        key = jax.random.fold_in(self.graph_key, self.node.index)
        return key if seed is None else jax.random.fold_in(key, np.asarray(seed, np.float32).view(np.uint32))


Rule = Callable[..., Results]
R = TypeVar("R", bound=Rule)


@dataclass(frozen=True)
class Run:
    """Calls a node's handler with arrays, as if their padding were true elements."""

    node: Node
    handler: Handler
    compute: Callable[[Sequence[Value], Mapping[str, Any]], Results]

    def __call__(self, *inputs: Value, **changed: Any) -> Any:
        return self.compute(inputs, changed)


@dataclass(frozen=True)
class Registry:
    """Handlers by domain and operator, the newest first; and the rules for arrays with padding, by operator."""

    handlers: dict[tuple[str, str], list[Handler]] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    take_counts: set[str] = field(default_factory=set)  # operators whose rules take all numbers that sizes decide

    def add(self, domain: str, operator: str, handler: Handler) -> None:
        entries = self.handlers.setdefault((domain, operator), [])
        if any(entry.since == handler.since for entry in entries):
            raise ValueError(f"{operator} of version {handler.since} already has a handler")
        entries.append(handler)
        entries.sort(key=lambda entry: -entry.since)

    def find(self, node: Node) -> Handler | None:
        """The newest meaning up to the node's version."""
        entries = self.handlers.get((node.domain, node.operator), ())
        return next((entry for entry in entries if entry.since <= node.version), None)

    def rule(self, node: Node, handler: Handler) -> Rule | None:
        """The rule for a node with padded arrays and sizes that depend on values, if there is one."""
        rule = self.rules.get(node.operator) if node.domain in (MAIN, MICROSOFT) else None
        return rule or (self.rules[ELEMENTWISE] if handler.is_elementwise else None)


ELEMENTWISE = "elementwise"  # the key of the rule for all elementwise operators
REGISTRY = Registry()


def handles(
    *operators: str,
    since: int = 1,
    domain: str = MAIN,
    fold: Function | None = None,
    folds: bool = False,
    is_elementwise: bool = False,
    draws: Callable[[Node], bool] | None = None,
) -> Callable[[F], F]:
    """Registers a function as the handler of operators from a version on; with `folds`, also as its own `fold`."""

    def register(function: F) -> F:
        known_fold = function if folds else fold
        handler = make_handler(function, since=since, fold=known_fold, is_elementwise=is_elementwise, draws=draws)
        for operator in operators:
            REGISTRY.add(domain, operator, handler)
        return function

    return register


handles_contrib = functools.partial(handles, domain=MICROSOFT)


def handles_padded(*operators: str, takes_counts: bool = False) -> Callable[[R], R]:
    """Registers the rule of operators, which takes a `Run`, and then the arguments of their handlers.

    With `takes_counts`, numbers that are better known reach the rule as they come if sizes decide them.
    """

    def register(rule: R) -> R:
        REGISTRY.take_counts.update(operators if takes_counts else ())
        REGISTRY.rules.update(dict.fromkeys(operators, rule))
        return rule

    return register


def make_handler(
    function: Function,
    *,
    since: int = 1,
    fold: Function | None = None,
    is_elementwise: bool = False,
    draws: Callable[[Node], bool] | None = None,
) -> Handler:
    """Makes a handler from a function, whose signature describes it."""
    parameters = inspect.signature(function).parameters
    by_place = [parameter for parameter in parameters.values() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    others = [
        inputs_of(parameter)[0] for parameter in parameters.values() if parameter.kind is parameter.VAR_POSITIONAL
    ]
    keywords = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != CALL
    }
    attributes = dict(attributes_of(keywords))
    return Handler(
        function=_unbundle(function, [find_bundle(parameter.annotation) for parameter in by_place]),
        since=since,
        inputs=tuple(declared for parameter in by_place for declared in inputs_of(parameter)),
        others=others[0] if others else None,
        attributes=attributes,
        groups={
            attribute.group: keywords[attribute.group].annotation
            for attribute in attributes.values()
            if attribute.group is not None
        },
        takes_call=CALL in parameters,
        fold=fold,
        is_elementwise=is_elementwise,
        draws=draws,
    )


def _unbundle(function: Function, kinds: Sequence[Any]) -> Function:
    """Wraps a function that takes bundles of inputs, so that it takes single inputs."""
    if not any(kinds):
        return function

    @functools.wraps(function)
    def run(*inputs: Value, **attributes: Any) -> Results:
        left = iter(inputs)
        bundles = [bundle(*islice(left, len(bundle._fields))) if bundle else next(left, None) for bundle in kinds]
        return function(*bundles, *left, **attributes)

    return run


def takes_attributes(operator: str, *, since: int, **kinds: Any) -> None:
    """Registers the older meaning of an operator, in which some of its inputs were attributes of these kinds.

    The names are the last parameters of the newest handler. An attribute whose kind includes `None` is optional.
    """
    newest = REGISTRY.handlers[MAIN, operator][0]

    def unpack_attributes(function: Function) -> Function:
        def run(*inputs: Value, **attributes: Any) -> Results:
            arrays = {name: np.array(value) for name, value in attributes.items() if name in kinds}
            return function(*inputs, **attributes | arrays)

        return run

    count = min(map([*inspect.signature(newest.function).parameters].index, kinds))
    older_attributes = {
        name: Attribute(annotation, is_required=not is_optional(annotation)) for name, annotation in kinds.items()
    }
    older = replace(
        newest,
        function=unpack_attributes(newest.function),
        since=since,
        inputs=newest.inputs[:count],
        attributes={**newest.attributes, **older_attributes},
        fold=None if newest.fold is None else unpack_attributes(newest.fold),
    )
    REGISTRY.add(MAIN, operator, older)


def look_up(name: str, value: str, table: Mapping[str, T]) -> T:
    """Looks up the value of an attribute in a table."""
    if value not in table:
        raise InvalidDesc(Problem(name, f"must be one of {', '.join(table)}", show(value)))
    return table[value]
