"""The operators that cannot be supported, with reason and remedy, and the merging of problems that nodes share."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dmljax.errors import Path, Problem
from dmljax.onnx.graph.graph import MAIN

MACHINE_LEARNING = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
LAYOUTS = "com.microsoft.nchwc"
LAYOUTS_OF_CHANNELS_LAST = "com.ms.internal.nhwc"


class OperatorRefusal(NamedTuple):
    """Why an operator has no handler: `reason` ends the sentence "cannot run operators that"."""

    reason: str
    remedy: str


_FILES = OperatorRefusal("decode image files", "cut the model after them and pass the decoded image as an input")
_GRADIENTS = OperatorRefusal(
    "compute gradients", "cut the model before them and differentiate its output with jax.grad"
)
_LEARNING = OperatorRefusal(
    "implement classical machine learning, which DirectML does not have",
    "cut the model before them and run the rest with ONNX Runtime or scikit-learn",
)
_LAYOUTS = OperatorRefusal(
    "need a layout that ONNX Runtime chose for a particular processor",
    "load the original model, or optimize it with ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL",
)

_REFUSED_DOMAINS = {LAYOUTS: _LAYOUTS, LAYOUTS_OF_CHANNELS_LAST: _LAYOUTS, MACHINE_LEARNING: _LEARNING}
_REFUSED_OPERATORS = {(MAIN, "ImageDecoder"): _FILES, (TRAINING, "Gradient"): _GRADIENTS}


def refusal_of(domain: str, operator: str) -> OperatorRefusal | None:
    """Why an operator cannot be supported: all of some domains, and single operators of others."""
    return _REFUSED_DOMAINS.get(domain) or _REFUSED_OPERATORS.get((domain, operator))


def merge_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Merges problems that several nodes share: keeps the first, and adds the number of nodes."""
    places: dict[Problem, list[Path]] = {}
    for problem in problems:
        is_of_node = problem.path[:1] == ("nodes",)
        shared = replace(problem, path=("nodes", "", *problem.path[2:])) if is_of_node else problem
        places.setdefault(shared, []).append(problem.path)
    return [
        _add_count(replace(shared, path=paths[0]), len({path[:2] for path in paths}))
        for shared, paths in places.items()
    ]


def merge_by_operator(problems: Iterable[Problem]) -> list[Problem]:
    """Merges the problems of all nodes of an operator: keeps the first, and adds the number of nodes."""
    groups: dict[object, list[Problem]] = {}
    for problem in problems:
        is_of_node = problem.path[:1] == ("nodes",) and len(problem.path) > 2
        groups.setdefault(problem.path[2] if is_of_node else problem, []).append(problem)
    return [_add_count(group[0], len({other.path[:2] for other in group})) for group in groups.values()]


def _add_count(problem: Problem, nodes: int) -> Problem:
    if nodes == 1:
        return problem
    if problem.given is None:
        return replace(problem, rule=f"{problem.rule}, in {nodes} nodes")
    return replace(problem, given=f"{problem.given}, in {nodes} nodes")
