"""The page of transformations: which ones the tests try with each operator, and the exceptions with their reasons.

`pytest --transformation-table FILE` writes it, and `--expect-transformations FILE` compares it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PAGE = """\
# Transformations

All {count} operators work under these transformations of JAX, except where one does not apply (see below). The
tests try each transformation with each operator, on a CPU with eight devices.

{tried}

## Exceptions

{exceptions}

`jax.linear_transpose` fails for linear operators with a rule of their own: convolutions, scatters, quotients, means,
`activation_linear`, operators with a ScaleBias, and copies of bfloat16. `jax.vjp` works for all operators.
"""
PASSED = "passed"
tried: dict[str, set[str]] = {}  # what a transformation's tests say that they test
outcomes: dict[str, dict[str, str]] = {}  # by transformation and operator: passed, or why not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("transformation"):
            operator = item.callspec.params["operator"]  # type: ignore[attr-defined]
            item.user_properties.append(("transformation", f"{operator} {marker.args[0]}"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for key, value in report.user_properties:
        if key == "transformation":
            operator, _, transformation = str(value).partition(" ")
            record(report, operator, transformation)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):  # a worker of xdist sees only a part
        return
    file = session.config.getoption("--transformation-table")
    if file is not None:
        write(file)
    expected = session.config.getoption("--expect-transformations")
    if expected is not None:
        for difference in differences(expected):
            print(difference)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def record(report: pytest.TestReport, operator: str, transformation: str) -> None:
    """Records the result of a test of a transformation."""
    test = report.nodeid.partition("::test_")[2].partition("[")[0]
    tried.setdefault(transformation, set()).add(test.replace("_", " "))
    if report.when == "call" or not report.passed:
        of_operators = outcomes.setdefault(transformation, {})
        name = operator.removeprefix("DML_OPERATOR_").lower()
        if of_operators.get(name, PASSED) == PASSED:
            of_operators[name] = PASSED if report.passed else reason_of(report)


def reason_of(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return "FAILED"


def write(file: Path) -> None:
    """Writes the page."""
    exceptions: dict[tuple[str, str], list[str]] = {}
    for transformation, of_operators in sorted(outcomes.items()):
        for name, outcome in sorted(of_operators.items()):
            if outcome != PASSED:
                exceptions.setdefault((transformation, outcome), []).append(f"`{name}`")
    rows = [(transformation, "; ".join(sorted(tests))) for transformation, tests in sorted(tried.items())]
    file.write_text(
        PAGE.format(
            count=len({name for of_operators in outcomes.values() for name in of_operators}),
            tried=table(("transformation", "what the tests try"), rows),
            exceptions=table(
                ("transformation", "why it does not apply", "operators"),
                [(*exception, ", ".join(names)) for exception, names in exceptions.items()],
            ),
        )
    )


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ("---",) * len(head), *rows])


def differences(file: Path) -> Iterator[str]:
    """The rows where the page differs from the tests' results, ignoring what the tests did not try."""
    expected: dict[str, dict[str, str]] = {}
    for line in file.read_text().partition("## Exceptions")[2].splitlines():
        if line.startswith("|"):
            transformation, reason, names = (cell.strip() for cell in line.split("|")[1:-1])
            expected.setdefault(transformation, {}).update(dict.fromkeys(re.findall(r"`(\w+)`", names), reason))
    for transformation, of_operators in outcomes.items():
        for name, outcome in of_operators.items():
            said = expected.get(transformation, {}).get(name, PASSED)
            if said != outcome:
                yield f"{file} says of {name} and {transformation}: {said}; the tests saw: {outcome}"
