"""Errors: the rules that they tell, as data and as text, wherever they are sent."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from dmljax import (
    ActivationHardmaxDesc,
    DataType,
    DmlError,
    InvalidDesc,
    InvalidType,
    TensorDesc,
    Unsupported,
    validate,
)
from dmljax._errors import MAX_RULES, all_checked, prefixed, within
from dmljax.importers._json import InvalidJson
from dmljax.importers.dxdispatch import Finding, InvalidModel, UnreadableModel

FINDINGS = (Finding("m.json", 3, "resources.x", "must be\nan object"), Finding("m.json", 0, "", "is no JSON", 7))
ERRORS: list[DmlError] = [
    *(kind("Sizes must be given; got none", "Axis must\n  be 1") for kind in (DmlError, InvalidDesc, InvalidType)),
    Unsupported("Type must be known; got 'x'"),
    InvalidJson("a value must be here; got ']'", 3, 7),
    *(kind(FINDINGS, FINDINGS[:1]) for kind in (InvalidModel, UnreadableModel)),
]


def kinds(base: type[DmlError]) -> Iterator[type[DmlError]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def test_every_kind_of_error_is_sent() -> None:
    assert {type(error) for error in ERRORS} >= {kind for kind in kinds(DmlError) if kind.__module__[:6] == "dmljax"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("send", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_is_the_same_in_another_process(error: DmlError, send: Callable[[Any], Any]) -> None:
    sent = send(error)
    assert (type(sent), str(sent), sent.rules) == (type(error), str(error), error.rules)
    assert vars(sent) == vars(error)


def refuse(*rules: str) -> None:
    raise InvalidDesc(*rules)


def test_what_is_put_before_a_rule_is_put_before_each_and_the_operator_before_all() -> None:
    with pytest.raises(InvalidDesc) as refused, within("OPERATOR"), prefixed("Tensor"):
        refuse("Sizes must be 1;\n  got 2", "Strides must be 3; got 4")
    rules = ("OPERATOR: Tensor.Sizes must be 1;\n  got 2", "Tensor.Strides must be 3; got 4")
    assert refused.value.rules == rules
    assert str(refused.value) == "\n  ".join(rules)


def test_all_checks_are_told_up_to_what_anybody_reads() -> None:
    with pytest.raises(InvalidDesc) as refused:
        all_checked(lambda: refuse("a", "b"), lambda: 1, lambda: refuse("c"))
    assert refused.value.rules == ("a", "b", "c")
    checks = [Mock(side_effect=InvalidDesc("x")) for _ in range(MAX_RULES + 2)]
    with pytest.raises(InvalidDesc) as refused:
        all_checked(*checks)
    assert len(refused.value.rules) == sum(check.call_count for check in checks) == MAX_RULES


def test_a_desc_tells_each_rule_that_it_breaks() -> None:
    tensor = TensorDesc(DataType.FLOAT64, (1, 1, 2, 3))
    with pytest.raises(InvalidDesc) as refused:
        validate(ActivationHardmaxDesc(input=tensor, output=tensor), feature_level="1_0")
    head = "DML_OPERATOR_ACTIVATION_HARDMAX at DML_FEATURE_LEVEL_1_0: InputTensor.DataType must"
    assert [rule.startswith(start) for rule, start in zip(refused.value.rules, (head, "Output"), strict=True)] == [
        True
    ] * 2
