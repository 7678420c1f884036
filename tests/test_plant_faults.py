"""The faults that are planted to try the tests: each must find its place, or nobody sees that it is planted no more."""

from plant_faults import FAULTS, PACKAGE, TESTS


def stands(test: str) -> bool:
    file, _, function = test.partition("[")[0].partition("::")
    return (TESTS / file).exists() and f"def {function}" in (TESTS / file).read_text()


def test_every_fault_has_one_place_and_tests_that_are_there() -> None:
    places = {fault.what: (PACKAGE / fault.module).read_text().count(fault.right) for fault in FAULTS}
    assert {what: count for what, count in places.items() if count != 1} == {}
    assert [fault.what for fault in FAULTS if not stands(fault.tests)] == []


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)
