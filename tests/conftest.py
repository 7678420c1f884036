"""What every test runs under: eight devices, strict promotion of types, none of ranks, 64 bits as JAX_ENABLE_X64 says.

`pytest --transformation-table FILE` writes which operator came through which transformation, as the tests saw it.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from sample import tried_operators

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "1").lower() in ("1", "true"))
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(params=["eager", "jitted"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a function of positional arrays and static keywords, once as it is and once inside a user's own jit."""

    def eager(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        return function(*arrays, **statics)

    def jitted(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        # NumPy's 64-bit integers are made JAX's before they become traced, as a user of jit has to.
        return jax.jit(lambda *traced: function(*traced, **statics))(*arrays)

    return eager if request.param == "eager" else jitted


@pytest.fixture(params=["cpu", "default"])
def lowering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test with what operators are lowered to for the CPU, and with what they are for every other platform."""
    if request.param == "default":
        monkeypatch.setattr(jax.lax, "platform_dependent", lambda *operands, default, **_: default(*operands))
    jax.clear_caches()
    yield request.param
    jax.clear_caches()


@pytest.fixture
def pretend_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Makes operators believe in a number of devices: only with one do few rows of a nonzero come out of a loop."""

    def pretend(count: int) -> None:
        monkeypatch.setattr(jax, "device_count", lambda *_: count)
        jax.clear_caches()

    yield pretend
    jax.clear_caches()


@pytest.fixture
def one_device(pretend_devices: Callable[[int], None]) -> None:
    pretend_devices(1)


# The table of operators and transformations

TABLE_HEAD = """\
# Operators and transformations

Written by `pytest tests --transformation-table notebooks/transformations.md` from what the tests saw, on the CPU with
eight devices: yes where an operator came through, - where a transformation does not apply (a derivative with respect to
integers, say), NO where it failed. `tests/test_every_operator.py` says what each column means.

"""
SYMBOLS = {"passed": "yes", "skipped": "-", "failed": "NO"}
seen: dict[str, dict[str, str]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--models", metavar="COUNT", type=int, default=400, help="how many mutated models to try")
    parser.addoption("--write-notebooks", action="store_true", help="keep what the notebooks print and draw")
    parser.addoption(
        "--sample-transformations", action="store_true", help="try transformations on some operators of each family"
    )
    parser.addoption("--transformation-table", metavar="FILE", type=Path, help="write what the tests saw")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out, tried = [], tried_operators(config)
    for item in items:
        for marker in item.iter_markers("transformation"):
            operator = item.callspec.params["operator"]  # type: ignore[attr-defined]
            item.user_properties.append(("transformation", f"{operator} {marker.args[0]}"))
            if operator not in tried:
                left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in dropped]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for key, value in report.user_properties:
        if key == "transformation" and (report.when == "call" or not report.passed):
            operator, _, transformation = str(value).partition(" ")
            outcomes = seen.setdefault(operator, {})
            worst = max(outcomes.get(transformation, "passed"), report.outcome, key=list(SYMBOLS).index)
            outcomes[transformation] = worst


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--transformation-table")
    if file is None or hasattr(session.config, "workerinput"):  # a worker of xdist sees a part alone
        return
    columns = sorted({transformation for outcomes in seen.values() for transformation in outcomes})
    rows = [["operator", *columns], ["---", *[":-:"] * len(columns)]]
    for operator in sorted(seen):
        name = operator.removeprefix("DML_OPERATOR_").lower()
        rows.append([f"`{name}`", *(SYMBOLS.get(seen[operator].get(column, ""), "") for column in columns)])
    file.write_text(TABLE_HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows))
