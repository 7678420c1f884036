"""The tests that belong to a changed file, for `pytest --full-for FILES`."""

import random
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TypeVar

import pytest
from families import family_of


def belongs(item: pytest.Item, changed: Iterable[str]) -> bool:
    """Whether a test belongs to a changed file, judged by its file's name, its operator's family, or its room."""
    tests = PurePath(item.path)
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return any(is_of(PurePath(file), tests, params.get("operator")) for file in changed)


T = TypeVar("T")


def sample(cases: Sequence[T], at_most: int | None, changed: Iterable[str]) -> set[T]:
    """Returns all cases or at most this many: the same ones for the same changed files, in every process."""
    count = len(cases) if at_most is None else min(at_most, len(cases))
    return {*random.Random(" ".join(changed)).sample(cases, count)}


def is_of(changed: PurePath, tests: PurePath, operator: object) -> bool:
    """Whether `tests` belong to the file `changed`, or try an operator of it.

    `dmljax/ops/pooling.py`, `dmljax/lowerings/pooling.py` and `tests/ops/cases_pooling.py` have `test_pooling.py` and
    the operators of the family; `dmljax/onnx/nodes/attention.py` has all of `tests/onnx`.
    """
    name = changed.stem.removeprefix("test_").removeprefix("cases_")
    rooms = {"calls", "descriptors", "dxdispatch", "estimation", "onnx", "pydirectml", "run"}.intersection(
        changed.parts
    )
    is_tried = isinstance(operator, str) and operator.startswith("DML_OPERATOR_") and family_of(operator) == name
    return tests.stem == f"test_{name}" or tests.parent.name in rooms or is_tried
