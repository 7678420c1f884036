"""Rehearses a model: computes only the types of its values, to find nodes that refuse their attributes or inputs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from dmljax.errors import DmlError, Problem, Unsupported
from dmljax.onnx.graph.graph import Node
from dmljax.onnx.handlers.refusals import merge_problems
from dmljax.onnx.rewrites.loaded_graph import LoadedGraph
from dmljax.onnx.running.interpreter import KEY, Interpreter
from dmljax.onnx.values.types import Value


class Rehearsal(NamedTuple):
    """The shapes of all values, and the errors of nodes that refuse.

    Leaves out nodes that need the result of a refusing node, or a value that is missing.
    """

    shapes: Mapping[str, tuple[int, ...]]
    errors: Mapping[Node, DmlError]


def rehearse(loaded: LoadedGraph, sizes: Mapping[str, tuple[int, ...]]) -> Rehearsal:
    """Rehearses a graph for inputs of these sizes; leaves out nodes that need other inputs."""
    interpreter, graph = Interpreter(loaded.find, loaded.maximum_sizes, loaded.leading), loaded.joined
    dtypes = {tensor.name: tensor.dtype for tensor in (*loaded.inputs, *loaded.defaults) if tensor.dtype is not None}
    inputs = {
        name: jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtypes[name])) for name, shape in sizes.items()
    }
    shapes: dict[str, tuple[int, ...]] = {}
    errors: dict[Node, DmlError] = {}

    def run(arrays: Mapping[str, Any]) -> None:
        values: dict[str, Value] = {**loaded.constants, **arrays, KEY: jax.random.key(0)}
        with interpreter.trace_context(graph):
            for index, node in enumerate(graph.nodes):
                try:
                    interpreter.try_node(graph, index, values)  # a call may have the values that are missing here
                except DmlError as error:
                    errors[node] = error
        del values[KEY]
        tensors = {name: value for name, value in values.items() if isinstance(value, jax.Array | np.ndarray)}
        shapes.update({name: value.shape for name, value in tensors.items()})

    jax.eval_shape(run, {**loaded.types, **inputs})
    return Rehearsal(shapes, errors)


LARGE = 1920  # a size that the numbers of heads, groups and blocks divide


def find_refusals(loaded: LoadedGraph, sizes_for: Callable[[int], Mapping[str, tuple[int, ...]]]) -> list[Problem]:
    """The problems of nodes that refuse an attribute, or anything that is unsupported, for any open sizes.

    `sizes_for` takes a number for all open sizes. A node that runs with a large number refuses only small sizes. A node
    that refuses both in the same words refuses something else.
    """
    small = rehearse(loaded, sizes_for(1))
    if not small.errors:
        return []
    large = rehearse(loaded, sizes_for(LARGE))
    problems = [
        problem
        for node, error in small.errors.items()
        if not large.shapes.keys() & {*node.outputs}
        for problem in error.problems
        if isinstance(error, Unsupported)
        or (problem.path and problem.path[-1] in loaded.find(node).attributes)
        or (node in large.errors and str(problem) in large.errors[node].rules)
    ]
    return merge_problems(problems)
