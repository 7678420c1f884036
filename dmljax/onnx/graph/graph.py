"""ONNX models as plain graphs: tensors are NumPy arrays, nodes are in order, and every name is defined."""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest
from typing import Any

import numpy as np

from dmljax.errors import InvalidDesc, Problem
from dmljax.text import show

MAIN = ""  # the domain of ONNX's own operators, also spelled ai.onnx


@dataclass(frozen=True, eq=False)
class TensorType:
    """The type of an input or an output: its dtype and its sizes, with a name or None for each open size.

    `sizes` is None if even the rank is open, and `dtype` is None if the value is not a tensor. `denotations` say what
    each dimension means, such as DATA_BATCH; most models have none. `element` is what a sequence or an optional holds.
    """

    name: str
    dtype: np.dtype[Any] | None
    sizes: tuple[int | str | None, ...] | None
    kind: str = "tensor"
    denotations: tuple[str, ...] = ()
    element: "TensorType | None" = None

    def __str__(self) -> str:
        sizes = "?" if self.sizes is None else ", ".join("?" if size is None else str(size) for size in self.sizes)
        return f"{self.name}: {self.kind if self.dtype is None else self.dtype.name}[{sizes}]"

    def __repr__(self) -> str:
        return f"TensorType({self})"

    @property
    def has_numbers(self) -> bool:
        """Whether the value is a tensor of numbers, not of text."""
        return self.dtype is not None and self.dtype.kind != "O"

    def overridden(self, names: Mapping[str, int], denotations: Mapping[str, int]) -> "TensorType":
        """The type with open sizes replaced by name or by denotation, as ONNX Runtime overrides them.

        Denotations ignore case. A fixed size must equal its override.
        """
        if self.sizes is None:
            return self
        by_denotation = {denotation.lower(): size for denotation, size in denotations.items()}
        sizes: list[int | str | None] = []
        for declared, denotation in zip_longest(self.sizes, self.denotations, fillvalue=""):
            expected = names.get(declared) if isinstance(declared, str) else declared
            denoted = by_denotation.get(denotation.lower()) if denotation else None
            if denoted is not None and expected not in (None, denoted):
                rule = f"must have size {expected} in the dimension denoted {denotation}"
                raise InvalidDesc(Problem(self.name, rule, denoted))
            sizes.append(next((size for size in (denoted, expected) if size is not None), declared))
        return replace(self, sizes=tuple(sizes))


@dataclass(frozen=True, eq=False)
class Reference:
    """A node's attribute that takes the value of the surrounding function's attribute of this name."""

    name: str


@dataclass(frozen=True, eq=False)
class Node:
    """A node; an empty name among its inputs or outputs marks an absent optional."""

    operator: str
    domain: str
    version: int  # that the model imports for the domain
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    overload: str = ""  # selects among functions of the model
    index: int = 0  # position in the file's graph

    @property
    def label(self) -> str:
        """The node's name; an unnamed node goes by its first output."""
        return self.name or next(iter(filter(None, self.outputs)), "")

    @property
    def place(self) -> tuple[str, ...]:
        """The node's path in errors."""
        return ("nodes", self.label, self.operator)

    @property
    def subgraphs(self) -> Iterator["OnnxGraph"]:
        return (value for value in self.attributes.values() if isinstance(value, OnnxGraph))

    def bind(self, attributes: Mapping[str, Any]) -> "Node":
        """The node with references replaced by the surrounding function's attributes."""
        values = {}
        for name, value in self.attributes.items():
            if isinstance(value, Reference):
                if value.name in attributes:
                    values[name] = attributes[value.name]
            else:
                values[name] = value.bind(attributes) if isinstance(value, OnnxGraph) else value
        return replace(self, attributes=values)


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """Nodes sorted so that each follows the nodes it reads from; an absent output has an empty name."""

    nodes: tuple[Node, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    source: Any = None  # the GraphProto, for a subgraph

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.outputs)

    @functools.cached_property
    def makers(self) -> Mapping[str, Node]:
        """The nodes by the names of their outputs."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @functools.cached_property
    def free_names(self) -> frozenset[str]:
        """The names that the graph reads from enclosing graphs."""
        read = {*names_read(*self.nodes), *self.output_names}
        defined = {*self.input_names, *self.constants, *names_made(*self.nodes)}
        return frozenset(read - defined - {""})

    @functools.cached_property
    def last_uses(self) -> Mapping[int, Sequence[str]]:
        """For each node, the names that no later node reads, except outputs."""
        nodes = enumerate(self.nodes)
        last = {name: i for i, node in nodes for name in (*names_read(node), *filter(None, node.outputs))}
        uses: dict[int, list[str]] = {}
        for name, i in last.items():
            if name not in self.output_names:
                uses.setdefault(i, []).append(name)
        return uses

    def bind(self, attributes: Mapping[str, Any]) -> "OnnxGraph":
        nodes = tuple(node.bind(attributes) for node in self.nodes)
        return replace(self, nodes=nodes)


@dataclass(frozen=True, eq=False)
class Function:
    """An operator that the model defines: a graph, and default values for its attributes."""

    graph: OnnxGraph
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any]


FunctionKey = tuple[str, str, str]  # domain, name, overload


def names_made(*nodes: Node) -> Iterator[str]:
    """The names of the results of nodes."""
    return (name for node in nodes for name in node.outputs if name)


def names_read(*nodes: Node) -> Iterator[str]:
    """The names that nodes read, including those their subgraphs read."""
    for node in nodes:
        yield from filter(None, node.inputs)
        for graph in node.subgraphs:
            yield from graph.free_names


class UndefinedName(InvalidDesc):
    """A node reads a name that nothing in the graph defines."""


class UnsortableNodes(InvalidDesc):
    """Nodes define a name twice, or each reads what the other makes."""


_UNDEFINED = "undefined name"


def sort_nodes(
    nodes: Sequence[Node], defined: set[str], outputs: Sequence[str], in_use: Collection[str]
) -> tuple[Node, ...]:
    """Sorts the nodes so that each follows the nodes it reads from; exporters sometimes break this order.

    No output may have a name in `in_use`, such as that of an input or initializer of the same graph.
    """
    makers: dict[str, int] = {}
    problems: list[Problem] = []
    for i, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in makers or name in in_use:
                problems.append(Problem(node.place, "output name already in use", show(name)))
            makers[name] = i
    before: list[set[int]] = []
    for i, node in enumerate(nodes):
        read = set(names_read(node))
        missing = sorted(name for name in read if name not in makers and name not in defined)
        problems += [Problem(node.place, _UNDEFINED, show(name)) for name in missing]
        before.append({makers[name] for name in read if name in makers} - ({i} if not missing else set()))
        if any(makers.get(name) == i for name in node.inputs):
            problems.append(Problem(node.place, "must not read its own output", show(node.outputs)))
    missing = [name for name in outputs if name not in makers and name not in defined]
    problems += [Problem("outputs", _UNDEFINED, show(name)) for name in missing]
    if problems:
        are_undefined = all(problem.rule == _UNDEFINED for problem in problems)
        raise (UndefinedName if are_undefined else UnsortableNodes)(*problems[:20])
    if all(j < i for i, needed in enumerate(before) for j in needed):
        return tuple(nodes)
    try:
        return tuple(nodes[i] for i in TopologicalSorter(dict(enumerate(before))).static_order())
    except CycleError as error:
        node = nodes[min(error.args[1])]
        raise UnsortableNodes(Problem(node.place, "must not be part of a cycle", show(node.outputs))) from None
