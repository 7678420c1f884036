"""Programs are the same in every process, so that caches of compiled programs find them again."""

from collections.abc import Sequence

import lowered_texts
import pytest
from helpers import FULL, GATE


@pytest.mark.parametrize(
    "names", [pytest.param(["attention"], marks=GATE), pytest.param([], marks=FULL, id="everything")]
)
def test_programs_do_not_depend_on_the_order_of_sets(names: Sequence[str]) -> None:
    first, second = lowered_texts.digests([1, 2], names)
    assert [name for name, digest in first.items() if digest != second[name]] == []
