"""Errors state the broken rules, as data and as text, from wherever they are raised."""

import contextlib
import copy
import dataclasses
import json
import pickle
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import pytest
from models import MODELS

import dmljax
from dmljax import DmlError, directml, pydirectml
from dmljax.directml import ActivationHardmaxDesc, DataType, InvalidDesc, InvalidType, TensorDesc, Unsupported, validate
from dmljax.dxdispatch.model import Finding, InvalidModel, MissingModel, UnopenedModel, UnreadableModel
from dmljax.dxdispatch.text import InvalidJson
from dmljax.errors import (
    MAX_PROBLEMS,
    MissingFile,
    Problem,
    UnknownName,
    UnusableFile,
    all_checked,
    inside,
    unusable_file,
    within,
)
from dmljax.foundation import extras
from dmljax.onnx.graph.reader import InvalidModelFile
from dmljax.onnx.handlers.registry import KeyNeeded
from dmljax.onnx.values.counts import NotKnown, UndecidedCount
from dmljax.run.answers import Refusal
from dmljax.run.onnxruntime import errors

SIZES = Problem(("InputTensor", "Sizes", 1), "must be at least 1", 0)
FORGING = Problem(("resources", "x\ny", "sourcePath"), "must be\nan object", "a\nb")
FINDINGS = (Finding("m.json", 3, FORGING), Finding("m.json", 0, Problem((), "is no JSON"), 7))
STATUSES: list[Any] = [
    kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, DmlError) and name[0] != "_"
]
ERRORS: list[DmlError] = [
    *(
        kind(SIZES, FORGING)
        for kind in (DmlError, InvalidDesc, InvalidType, InvalidModelFile, UnknownName, UnusableFile, MissingFile)
    ),
    unusable_file(SIZES, FileNotFoundError(2, "No such file or directory"), "none.bin"),
    Unsupported(Problem("Type", "must be known", "'x'")),
    KeyNeeded(Problem("key", "must be given", "none")),
    *(kind(Problem("sizes", "must be known while tracing", "a traced array")) for kind in (NotKnown, UndecidedCount)),
    InvalidJson(Problem((), "expected a value", "']'"), 3, 7),
    *(kind(SIZES) for kind in (Refusal, *STATUSES)),
    *(kind(FINDINGS, FINDINGS[:1]) for kind in (InvalidModel, MissingModel, UnopenedModel, UnreadableModel)),
]


def kinds(base: type[DmlError]) -> Iterator[type[DmlError]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def test_the_errors_tried_include_every_kind() -> None:
    ours = {kind for kind in kinds(DmlError) if kind.__module__[:6] == "dmljax" and kind.__name__[0] != "_"}
    assert {type(error) for error in ERRORS} >= ours


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("send", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_is_the_same_in_another_process(error: DmlError, send: Callable[[Any], Any]) -> None:
    sent = send(error)
    assert (type(sent), str(sent), sent.rules) == (type(error), str(error), error.rules)
    assert vars(sent) == vars(error)
    reasons = ("errno", "strerror", "filename")
    assert [getattr(sent, reason, None) for reason in reasons] == [getattr(error, reason, None) for reason in reasons]


def refuse(*rules: str) -> None:
    raise InvalidDesc(*(Problem("Sizes", rule, 2) for rule in rules))


def test_each_problem_has_its_place_after_the_operator() -> None:
    with pytest.raises(InvalidDesc) as refused, within("OPERATOR"), inside(("Tensors", 1)):
        refuse("must be 1", "must be\n  3")
    error = refused.value
    assert error.operator == "OPERATOR"
    assert error.problems == tuple(Problem(("Tensors", 1, "Sizes"), rule, 2) for rule in ("must be 1", "must be\n  3"))
    assert error.rules == ("Tensors[1].Sizes must be 1; got 2", "Tensors[1].Sizes must be\n  3; got 2")
    assert str(error) == "OPERATOR: " + "\n  ".join(error.rules)


def test_problems_of_all_checks_are_reported_up_to_a_limit() -> None:
    with pytest.raises(InvalidDesc) as refused:
        all_checked(lambda: refuse("a", "b"), lambda: 1, lambda: refuse("c"))
    assert [problem.rule for problem in refused.value.problems] == ["a", "b", "c"]
    checks = [Mock(side_effect=InvalidDesc(SIZES)) for _ in range(MAX_PROBLEMS + 2)]
    with pytest.raises(InvalidDesc) as refused:
        all_checked(*checks)
    assert len(refused.value.problems) == sum(check.call_count for check in checks) == MAX_PROBLEMS


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (SIZES, "InputTensor.Sizes[1] must be at least 1; got 0"),
        (Problem("x", "must have 1 rows, not 11 rows", 2), "x must have 1 row, not 11 rows; got 2"),
        (
            Problem("x", "must be a int64[1] of 2^2 - 1 bytes"),
            "x must be an int64[1] of 2^2 - 1 bytes",
        ),
        (Problem("axis", "must be in [-2, 2)", 2), "axis must be in [-2, 2); got 2"),
        (Problem((), "too many positional arguments"), "too many positional arguments"),
        (Problem(("a", "b c", 0, "d"), "must be given", "none"), 'a["b c"][0].d must be given; got none'),
        (Problem("a", "the operator must be newer", 1), "a: the operator must be newer; got 1"),
        (Problem("a", "must agree", "1 and 2", [("b", 1)]), "a and b[1] must agree; got 1 and 2"),
        (Problem("a", "must agree", "1, 2 and 3", [("b",), ("c",)]), "a, b and c must agree; got 1, 2 and 3"),
    ],
)
def test_problems_are_rendered_consistently(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_a_problem_is_a_dataclass_that_may_be_replaced() -> None:
    changed = dataclasses.replace(SIZES, given="-1")
    assert (changed.path, changed.rule, changed.given) == (SIZES.path, SIZES.rule, "-1")
    assert changed != SIZES == dataclasses.replace(changed, given="0")


def test_a_sentence_is_a_problem_without_a_place() -> None:
    with pytest.raises(InvalidDesc, match=r"^A: this is wrong$") as refused, inside("A"):
        raise InvalidDesc("this is wrong")
    assert refused.value.problems == (Problem("A", "this is wrong"),)


def test_a_line_break_in_a_name_makes_no_second_finding() -> None:
    assert str(FINDINGS[0]).count("\n") == 0
    assert FINDINGS[0].to_json() == {
        "file": "m.json",
        "line": 3,
        "column": None,
        "path": 'resources["x\\ny"].sourcePath',
        "others": [],
        "message": "must be\nan object; got a\nb",
        "rule": "must be\nan object",
        "given": "a\nb",
    }


def test_a_desc_reports_each_rule_that_it_breaks() -> None:
    tensor = TensorDesc(DataType.FLOAT64, (1, 1, 2, 3))
    with pytest.raises(InvalidDesc) as refused:
        validate(ActivationHardmaxDesc(input=tensor, output=tensor), feature_level="1_0")
    assert refused.value.operator == "DML_OPERATOR_ACTIVATION_HARDMAX at DML_FEATURE_LEVEL_1_0"
    assert [(problem.path, problem.given) for problem in refused.value.problems] == [
        (("InputTensor", "DataType"), "FLOAT64"),
        (("OutputTensor", "DataType"), "FLOAT64"),
    ]


def test_a_long_name_is_abridged_in_messages() -> None:
    problem = Problem(("resources", "x" * 50 + "y" * 10_000 + "z" * 50, 3), "must be short")
    assert str(problem) == f'resources["{"x" * 45} ... {"z" * 45}"][3] must be short'


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'dmljax[onnx]'"),
        ({"url": "file:///a/b%20c", "dir_info": {}}, "pip install '/a/b c[onnx]'"),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, "pip install -e '/clone[onnx]'"),
        ({"url": "file:///dmljax-0.1.whl", "archive_info": {}}, "pip install '/dmljax-0.1.whl[onnx]'"),
        ({"url": "https://x.org/d.zip", "archive_info": {}}, "pip install 'dmljax[onnx] @ https://x.org/d.zip'"),
        ({"url": "file:///repo", "vcs_info": {"vcs": "git"}}, "pip install 'dmljax[onnx] @ git+file:///repo'"),
    ],
)
def test_an_extra_is_installed_from_where_dmljax_was(
    origin: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(extras, "distribution", lambda name: Mock(read_text=lambda file: text))
    assert extras.command_for("onnx") == command


def test_a_copy_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "distribution", Mock(side_effect=PackageNotFoundError))
    assert extras.command_for("onnx") == "pip install 'dmljax[onnx]'"


def frames(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(DmlError) as refused:
        call()
    return [Path(entry.path).name for entry in refused.traceback][1:]  # without the frames of this function


CALLS: dict[str, Callable[[], Any]] = {
    "function": lambda: dmljax.gather(jnp.ones(3), jnp.array([1]), axis=5),
    "jitted": lambda: jax.jit(lambda x: dmljax.reduce(x, "sum", axes=7))(jnp.ones(3)),
    "lowered": lambda: directml.lower(hardmax())(jnp.ones(3)),
    "onnx": lambda: dmljax.onnx.load(MODELS / "dense.onnx")(jnp.ones((2, 7), jnp.float32)),
    "pydirectml": lambda: pydirectml.add(pydirectml.Expression(), 3),  # type: ignore[arg-type]
    "pydirectml's arguments": lambda: pydirectml.Size2D(1),  # type: ignore[call-arg]
    "pydirectml's expressions": lambda: pydirectml.Expression() + "1",
    "TensorDesc": lambda: TensorDesc("FLOAT32", (0,)),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_traceback_ends_in_the_users_line(kind: str) -> None:
    assert set(frames(CALLS[kind])) == {"test_errors.py"}
    with config_of("jax_traceback_filtering", "off"):
        assert frames(CALLS[kind])[-1] != "test_errors.py"


def hardmax() -> directml.Operator:
    return ActivationHardmaxDesc(input=TensorDesc("FLOAT32", (1, 2)), output=TensorDesc("FLOAT32", (1, 2)))


@contextlib.contextmanager
def config_of(name: str, value: str) -> Iterator[None]:
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)
