"""Walks over the nodes of a graph: back from results, and on from values."""

from collections.abc import Iterable

from dmljax.graphs.steps import GraphStep, find_needed
from dmljax.onnx.graph.graph import Node, names_made, names_read


def steps_of(nodes: Iterable[Node]) -> dict[Node, GraphStep]:
    """The values that each node reads and makes."""
    return {node: GraphStep([*names_read(node)], [*names_made(node)]) for node in nodes}


def live_nodes(nodes: Iterable[Node], outputs: Iterable[str], known: Iterable[str] = ()) -> tuple[Node, ...]:
    """The nodes that compute `outputs` from the `known` values."""
    return tuple(find_needed(steps_of(nodes), outputs, known))


def dependent_names(nodes: Iterable[Node], names: Iterable[str]) -> set[str]:
    """These names, and those of all results that depend on them."""
    dependent = {*names}
    for node in nodes:
        if not dependent.isdisjoint(names_read(node)):
            dependent.update(names_made(node))
    return dependent
