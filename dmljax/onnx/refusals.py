"""The operators that no handler can compute, with the reason and what can be done, and what several nodes break."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dmljax.errors import Path, Problem
from dmljax.onnx.file import MAIN

MACHINE_LEARNING = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
LAYOUTS = "com.microsoft.nchwc"


class Refusal(NamedTuple):
    """Why an operator has no handler: `reason` ends the sentence "must have no operators that"."""

    reason: str
    remedy: str


_FILES = Refusal("decode files of images", "cut the model behind it, and give the decoded image as an input")
_TREES = Refusal(
    "serve the models of classical machine learning", "cut the model before it, or export the model without it"
)
_GRADIENTS = Refusal("train", "cut the model before it, and differentiate its output with jax.grad")

_RANDOM = Refusal("draw random numbers", "cut the model behind it, and give the numbers as an input")

_LAYOUTS = Refusal(
    "need the layout that ONNX Runtime chose for one processor",
    "load the model that it optimized, or have it optimize at ORT_ENABLE_EXTENDED",
)


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


def _counted(problem: Problem, nodes: int) -> Problem:
    if nodes == 1:
        return problem
    return replace(problem, given=f"{'' if problem.given is None else f'{problem.given}, '}in {nodes} nodes")


REFUSALS: dict[tuple[str, str], Refusal] = {
    (MAIN, "ImageDecoder"): _FILES,
    (TRAINING, "Gradient"): _GRADIENTS,
    **{
        (MAIN, operator): _RANDOM
        for operator in (
            "Bernoulli",
            "Multinomial",
            "RandomNormal",
            "RandomNormalLike",
            "RandomUniform",
            "RandomUniformLike",
        )
    },
    **{
        (LAYOUTS, operator): _LAYOUTS
        for operator in (
            *("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReorderInput", "ReorderOutput"),
            "Upsample",
        )
    },
    **{
        (MACHINE_LEARNING, operator): _TREES
        for operator in (
            *("ArrayFeatureExtractor", "Binarizer", "CastMap", "CategoryMapper", "DictVectorizer", "FeatureVectorizer"),
            *("Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer", "OneHotEncoder"),
            *("SVMClassifier", "SVMRegressor", "Scaler", "TreeEnsemble", "TreeEnsembleClassifier"),
            *("TreeEnsembleRegressor", "ZipMap"),
        )
    },
}
