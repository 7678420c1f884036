"""Cuts models around the nodes that have no DirectML graph."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dmljax.graphs.steps import GraphStep, find_needed
from dmljax.graphs.to_graph.views import View
from dmljax.onnx.graph.graph import Node, names_read


def live_nodes(nodes: Sequence[Node], outputs: Collection[str], known: Collection[str] = ()) -> tuple[Node, ...]:
    """The nodes that compute `outputs` from the `known` values."""
    steps = {index: GraphStep([*names_read(node)], node.outputs) for index, node in enumerate(nodes)}
    return tuple(nodes[index] for index in find_needed(steps, outputs, known))


def advise_cut(
    nodes: Sequence[Node], outputs: Sequence[str], refused: Collection[Node], values: Mapping[str, Any]
) -> str | None:
    """The calls that make graphs of the nodes before and after refused nodes; None if there are no such nodes.

    `values` are the results of the nodes, by name. The first graph computes everything that the second reads from it.
    """
    dependent: set[str] = set()
    for node in nodes:
        if node in refused or dependent & {*names_read(node)}:
            dependent |= {*node.outputs}
    cut = _last_results(nodes, outputs, refused)
    left = [name for name in outputs if name in dependent and name not in cut]
    behind = [node for node in live_nodes(nodes, left, cut) if dependent & {*node.outputs}]

    def known_before(names: Iterable[str]) -> list[str]:
        made = (name for name in dict.fromkeys(names) if name in values and name not in dependent)
        return [name for name in made if isinstance(values[name], View)]

    passed = known_before(name for node in behind for name in names_read(node))
    before = known_before([*(name for node in refused for name in names_read(node)), *passed, *outputs])
    calls = []
    if before:
        calls.append(f"before these nodes, model.graph(shapes, outputs={before})")
    if behind:
        inputs = ", ".join(f"{name!r}: {_struct(values[name])}" for name in (*cut, *passed))
        only = "" if len(left) == len(outputs) else f", outputs={left}"
        calls.append(f"after them, model.graph({{**shapes, {inputs}}}{only})")
    return f"the other nodes have graphs: {'; '.join(calls)}" if calls else None


def _last_results(nodes: Sequence[Node], outputs: Sequence[str], refused: Collection[Node]) -> list[str]:
    """The results of refused nodes that the outputs need and that no other refused node reads."""
    needed, results = {*outputs}, []
    for node in reversed(nodes):
        made = [name for name in node.outputs if name in needed]
        if made and node in refused:
            results += made
        elif made:
            needed |= {*names_read(node)}
    return results[::-1]


def _struct(value: Any) -> str:
    """The code for a value's sizes and type, as far as they are known."""
    known = f"{value.sizes}, '{value.dtype}'" if isinstance(value, View) else "sizes, dtype"
    return f"jax.ShapeDtypeStruct({known})"
