"""Each planted fault finds its place and its test."""

import subprocess
import sys
from collections import Counter

import pytest
from plant_faults import FAULTS, TESTS, files_of, node_id, places


def test_every_fault_has_one_place() -> None:
    counts = {f"{fault.anchor}: {fault.what}": len(places(fault)) for fault in FAULTS}
    assert {what: count for what, count in counts.items() if count != 1} == {}


def test_every_fault_names_one_test() -> None:
    counts = {f"{fault.test}: {fault.what}": len(files_of(fault.test)) for fault in FAULTS}
    assert {what: count for what, count in counts.items() if count != 1} == {}


def test_every_fault_has_its_own_sentence() -> None:
    assert [what for what, count in Counter(fault.what for fault in FAULTS).items() if count > 1] == []


@pytest.mark.full
def test_every_case_named_by_a_fault_exists() -> None:
    cases = {node_id(fault.test).removeprefix(f"{TESTS.parent}/") for fault in FAULTS if "[" in fault.test}
    command = [sys.executable, "-m", "pytest", "-q", "--full", "--collect-only", "-p", "no:cacheprovider"]
    functions = {case.partition("[")[0] for case in cases}
    run = subprocess.run([*command, *functions], cwd=TESTS.parent, capture_output=True, text=True, check=True)
    assert cases - set(run.stdout.splitlines()) == set()
