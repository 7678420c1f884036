"""The page with every operator at a glance is up to date."""

from pathlib import Path

import at_a_glance
import pytest

PAGE = Path(__file__).parents[2] / "notebooks" / "at-a-glance.md"


def test_the_page_is_up_to_date_with_its_generator(pytestconfig: pytest.Config) -> None:
    text = at_a_glance.text()
    written = pytestconfig.getoption("--at-a-glance")
    if written is not None:
        written.write_text(text)
    assert PAGE.read_text() == text, f"run pytest {Path(__file__).name} --at-a-glance {PAGE.name}"
