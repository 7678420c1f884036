"""The faults that are planted to try the tests: each must find its place and its test."""

from collections import Counter

from plant_faults import FAULTS, files_of, places


def test_every_fault_has_one_place() -> None:
    counts = {f"{fault.anchor}: {fault.what}": len(places(fault)) for fault in FAULTS}
    assert {what: count for what, count in counts.items() if count != 1} == {}


def test_every_fault_names_one_test() -> None:
    counts = {f"{fault.test}: {fault.what}": len(files_of(fault.test)) for fault in FAULTS}
    assert {what: count for what, count in counts.items() if count != 1} == {}


def test_every_fault_has_a_sentence_of_its_own() -> None:
    assert [what for what, count in Counter(fault.what for fault in FAULTS).items() if count > 1] == []
