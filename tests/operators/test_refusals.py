"""The descriptors and calls that each family's `tests/ops/<room>/cases_<family>.py` says are refused."""

from typing import Any

import families
import pytest
from helpers import check_refused, refuses

import dmljax
from dmljax import directml

DESCS = [
    pytest.param(desc, change, message, id="-".join((family, desc.short_name, *change)))
    for family, rows in families.REFUSED_DESCS.items()
    for desc, change, message in rows
]
CALLS = [
    pytest.param(function, change, error, message, id="-".join((family, function, *change)))
    for family, rows in families.REFUSED_CALLS.items()
    for function, change, error, message in rows
]


@pytest.mark.parametrize(("desc", "change", "message"), DESCS)
def test_a_desc_that_breaks_a_rule_is_refused(desc: directml.Operator, change: dict[str, Any], message: str) -> None:
    check_refused(desc, change, message)


@pytest.mark.parametrize(("function", "change", "error", "message"), CALLS)
def test_a_wrong_call_is_refused(function: str, change: dict[str, Any], error: type[Exception], message: str) -> None:
    with refuses(f"{function}: ...{message}", error):
        getattr(dmljax, function)(**families.CALLS.get(function, {}) | change)
