"""Each planted fault finds its place and its test."""

from helpers import GATE
from plant_faults import FAULTS, files_of, places


@GATE
def test_every_fault_has_one_place() -> None:
    assert {fault.what: count for fault in FAULTS if (count := len(places(fault))) != 1} == {}


def test_every_fault_names_one_test() -> None:
    assert {fault.what: count for fault in FAULTS if (count := len(files_of(fault.test))) != 1} == {}
