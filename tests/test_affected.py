"""The tests of the full tier that `--full-for` runs."""

from pathlib import PurePath

import pytest
from affected import is_of, sample

POOLING, MODEL = PurePath("tests/ops/test_pooling.py"), PurePath("tests/onnx/test_model.py")


@pytest.mark.parametrize(
    "changed", ["dmljax/ops/pooling.py", "dmljax/lowerings/pooling.py", "tests/ops/cases_pooling.py"]
)
def test_a_family_has_its_tests_and_its_operators(changed: str) -> None:
    assert is_of(PurePath(changed), POOLING, None)
    assert is_of(PurePath(changed), PurePath("tests/test_every_operator.py"), "DML_OPERATOR_MAX_POOLING2")
    assert not is_of(PurePath(changed), PurePath("tests/test_every_operator.py"), "DML_OPERATOR_GEMM")
    assert not is_of(PurePath(changed), MODEL, None)


def test_a_module_selects_the_tests_of_its_whole_room() -> None:
    assert is_of(PurePath("dmljax/onnx/nodes/attention.py"), MODEL, None)
    assert not is_of(PurePath("dmljax/onnx/nodes/attention.py"), POOLING, None)


def test_a_sample_follows_from_the_changed_files() -> None:
    cases, changed = range(1000), ["dmljax/onnx/model.py"]
    assert sample(cases, None, changed) == sample(cases, 2000, changed) == {*cases}
    assert len(sample(cases, 100, changed)) == 100
    assert sample(cases, 100, changed) == sample(cases, 100, changed) != sample(cases, 100, ["dmljax/onnx/plan.py"])
