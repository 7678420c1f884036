"""Rehearses a model: computes only the types of its values, to find nodes that refuse their attributes or inputs."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from dmljax.errors import DmlError, Problem, Unsupported
from dmljax.onnx.graph.graph import Node, OnnxGraph
from dmljax.onnx.running.interpreter import KEY, Interpreter
from dmljax.onnx.values.types import Value


class Rehearsal(NamedTuple):
    """The shapes of all values, and the errors of nodes that refuse.

    Leaves out nodes that need the result of a refusing node, or a value that is missing.
    """

    shapes: Mapping[str, tuple[int, ...]]
    errors: Mapping[Node, DmlError]


def rehearse(
    interpreter: Interpreter, graph: OnnxGraph, known: Mapping[str, Value], types: Mapping[str, Any]
) -> Rehearsal:
    """Rehearses a graph for known values, and for others of these types."""
    shapes: dict[str, tuple[int, ...]] = {}
    errors: dict[Node, DmlError] = {}

    def run(arrays: Mapping[str, Any]) -> None:
        values: dict[str, Value] = {**known, **arrays, KEY: jax.random.key(0)}
        with interpreter.trace_context(graph):
            for index, node in enumerate(graph.nodes):
                try:
                    interpreter.try_node(graph, index, values)  # a call may have the values that are missing here
                except DmlError as error:
                    errors[node] = error
        del values[KEY]
        tensors = {name: value for name, value in values.items() if isinstance(value, jax.Array | np.ndarray)}
        shapes.update({name: value.shape for name, value in tensors.items()})

    jax.eval_shape(run, dict(types))
    return Rehearsal(shapes, errors)


LARGE = 1920  # a size that the numbers of heads, groups and blocks divide


def refusals(rehearse: Callable[[int], Rehearsal], attributes_of: Callable[[Node], Collection[str]]) -> list[Problem]:
    """The problems of nodes that refuse an attribute, or anything that is unsupported, for any open sizes.

    `rehearse` takes a number for all open sizes. A node that runs with a large number refuses only small sizes. A node
    that refuses both in the same words refuses something else.
    """
    small = rehearse(1)
    if not small.errors:
        return []
    large = rehearse(LARGE)
    return [
        problem
        for node, error in small.errors.items()
        if not large.shapes.keys() & {*node.outputs}
        for problem in error.problems
        if isinstance(error, Unsupported)
        or (problem.path and problem.path[-1] in attributes_of(node))
        or (node in large.errors and str(problem) in large.errors[node].rules)
    ]
