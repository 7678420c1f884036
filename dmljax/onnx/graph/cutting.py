"""Cuts models around the nodes that have no DirectML graph."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dmljax.graphs.to_graph.views import View
from dmljax.onnx.graph.graph import Node, names_made, names_read
from dmljax.onnx.graph.walks import dependent_names, live_nodes


def advise_cut(
    nodes: Sequence[Node], outputs: Sequence[str], refused: Collection[Node], values: Mapping[str, Any]
) -> str | None:
    """The calls that make graphs of the nodes before and after refused nodes; None if there are no such nodes.

    `values` are the results of the nodes, by name. The first graph computes everything that the second reads from it.
    """
    dependent = dependent_names(nodes, names_made(*refused))
    cut = _last_results(nodes, outputs, refused)
    left = [name for name in outputs if name in dependent and name not in cut]
    behind = [node for node in live_nodes(nodes, left, cut) if dependent & {*node.outputs}]

    def known_before(names: Iterable[str]) -> list[str]:
        known_results = (name for name in dict.fromkeys(names) if name in values and name not in dependent)
        return [name for name in known_results if isinstance(values[name], View)]

    passed = known_before(names_read(*behind))
    before = known_before([*names_read(*refused), *passed, *outputs])
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
    results = [*names_made(*(node for node in nodes if node in refused))]
    needed = {*outputs, *names_read(*live_nodes(nodes, outputs, results))}
    return [name for name in results if name in needed]


def _struct(value: Any) -> str:
    """The code for a value's sizes and type, as far as they are known."""
    known = f"{value.sizes}, '{value.dtype}'" if isinstance(value, View) else "sizes, dtype"
    return f"jax.ShapeDtypeStruct({known})"
