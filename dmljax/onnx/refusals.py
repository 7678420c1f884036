"""The operators that no handler can compute, with the reason and what can be done, and what several nodes break."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dmljax.errors import Path, Problem
from dmljax.onnx.file import MAIN

MACHINE_LEARNING = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
LAYOUTS = "com.microsoft.nchwc"
LAYOUTS_OF_CHANNELS_LAST = "com.ms.internal.nhwc"


class Refusal(NamedTuple):
    """Why an operator has no handler: `reason` ends the sentence "must have no operators that"."""

    reason: str
    remedy: str


_FILES = Refusal("decode files of images", "cut the model behind it, and give the decoded image as an input")
_GRADIENTS = Refusal("train", "cut the model before it, and differentiate its output with jax.grad")
_LEARNING = Refusal(
    "serve the models of classical machine learning, which DirectML does not have",
    "compute them with ONNX Runtime or scikit-learn, and cut the model where they begin",
)
_LAYOUTS = Refusal(
    "need the layout that ONNX Runtime chose for one processor",
    "load the model that it optimized, or have it optimize at ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL",
)

_OF_DOMAINS = {
    LAYOUTS: _LAYOUTS,
    LAYOUTS_OF_CHANNELS_LAST: _LAYOUTS,
    MACHINE_LEARNING: _LEARNING,
}
_OF_OPERATORS = {(MAIN, "ImageDecoder"): _FILES, (TRAINING, "Gradient"): _GRADIENTS}


def refusal_of(domain: str, operator: str) -> Refusal | None:
    """Why an operator has no handler, if it is for good: all of some domains, and single ones of the others."""
    return _OF_DOMAINS.get(domain) or _OF_OPERATORS.get((domain, operator))


def told_once(problems: Iterable[Problem]) -> list[Problem]:
    """The problems; those that nodes of one operator share are told of the first node, with the number of nodes."""
    places: dict[Problem, list[Path]] = {}
    for problem in problems:
        is_of_node = problem.path[:1] == ("nodes",)
        shared = replace(problem, path=("nodes", "", *problem.path[2:])) if is_of_node else problem
        places.setdefault(shared, []).append(problem.path)
    return [
        _counted(replace(shared, path=paths[0]), len({path[:2] for path in paths})) for shared, paths in places.items()
    ]


def told_by_operator(problems: Iterable[Problem]) -> list[Problem]:
    """The problems; of those of nodes only the first for each operator, with the number of its nodes that have any."""
    several: dict[object, list[Problem]] = {}
    for problem in problems:
        is_of_node = problem.path[:1] == ("nodes",) and len(problem.path) > 2
        several.setdefault(problem.path[2] if is_of_node else problem, []).append(problem)
    return [_counted(found[0], len({one.path[:2] for one in found})) for found in several.values()]


def _counted(problem: Problem, nodes: int) -> Problem:
    if nodes == 1:
        return problem
    return replace(problem, given=f"{'' if problem.given is None else f'{problem.given}, '}in {nodes} nodes")
