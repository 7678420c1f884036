"""Each family's cases are next to its tests, once, and independent of the code that they test."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import families
import pytest
from pages import of_all

import dmljax
from dmljax import directml

HERE = Path(__file__).parent
OPS = sorted(path.stem for path in (Path(dmljax.__file__).parent / "ops").glob("*/*.py") if path.stem != "__init__")
ORACLES = [HERE / "formulas.py", HERE / "pages.py", *sorted(HERE.glob("*/cases_*.py"))]


@pytest.mark.parametrize("family", OPS)
def test_the_cases_of_a_family_cover_its_operators(family: str) -> None:
    operators = {
        operator.removeprefix("DML_OPERATOR_")
        for operator in directml.OPERATORS
        if families.family_of(operator) == family
    }
    tables = vars(families.FAMILIES[family])
    assert set(tables["SUPPORT"]) == set(tables["MEMBERS"]) == operators
    assert {*tables.get("ELEMENTWISE", {}), *tables.get("CASES", {})} == operators
    assert set(tables.get("REMARKS", {})) <= operators


def test_a_repeated_operator_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="given twice: ARGMAX"):
        of_all("ARGMAX ARGMIN ARGMAX", "InputTensor")
    two = {name: SimpleNamespace(MEMBERS={"ARGMAX": "InputTensor"}) for name in ("indexing", "reduction")}
    monkeypatch.setattr(families, "FAMILIES", two)
    with pytest.raises(ValueError, match="given twice: ARGMAX"):
        families.collect("MEMBERS")


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: path.stem)
def test_oracles_and_tables_share_no_code_with_what_they_test(path: Path) -> None:
    modules = [name for name in imported(path) if name.startswith(("jax.", "dmljax."))]
    assert set(modules) <= {"dmljax.directml"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
