"""Compares results of DirectML, which a kit's scripts left beside our own, with ours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmljax.conformance.kit import FORMAT, MANIFEST
from dmljax.conformance.promises import ALLOWED, measure_distance
from dmljax.descriptors.base import Operator
from dmljax.dxdispatch.files import read_values, view_elements
from dmljax.errors import DmlError, InvalidDesc, Problem, require
from dmljax.foundation.files import read_object
from dmljax.foundation.programs.progress import report
from dmljax.text import one_line
from dmljax.types import DataType

RESULTS = "results"
# Operators of level 6_4 that the parser of DxDispatch 0.18 does not know: their results cannot be asked for yet.
NOT_IN_DXDISPATCH = ("FOLD", "RESAMPLE3", "UNFOLD")
_MOST_BYTES = 2**26  # of a file


@dataclass(frozen=True)
class Difference:
    """A result that is further from ours than promised."""

    operator: str
    number: str
    reason: str
    output: str
    units: float  # in the last place, at the element that differs most
    allowed: float
    count: int  # of elements that differ by more than is allowed
    place: str
    ours: str
    theirs: str

    def to_json(self) -> dict[str, Any]:
        """The difference as JSON, in which units are null where only one of the two is a number."""
        fields = {name: value for name, value in asdict(self).items() if name != "operator"}
        return fields | {"units": None if np.isinf(self.units) else self.units}

    def __str__(self) -> str:
        head = f"{self.operator} {self.number} ({self.reason}), {self.output}{self.place}"
        return f"{head}: {self.theirs} instead of {self.ours}, {_units(self.units)}; {self.allowed:g} allowed"


@dataclass
class OperatorReport:
    """How the results of an operator compare."""

    operator: str
    results: int = 0
    missing: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    most_units: float = 0.0

    @property
    def agreeing(self) -> int:
        """The number of results that agree."""
        return self.results - len(self.missing) - len(self.differences)

    @property
    def is_unknown(self) -> bool:
        """Whether DxDispatch cannot run the operator, so that all its results may be missing."""
        return self.operator in NOT_IN_DXDISPATCH and len(self.missing) == self.results

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        units = None if np.isinf(self.most_units) else self.most_units
        counts = {"results": self.results, "agreeing": self.agreeing, "most_units": units}
        differences = [difference.to_json() for difference in self.differences]
        return counts | {"missing": self.missing, "differences": differences, "is_unknown": self.is_unknown}

    @property
    def has_findings(self) -> bool:
        """Whether a result differs, or is missing although DxDispatch can run the operator."""
        return bool(self.differences) or bool(self.missing and not self.is_unknown)


def compare(folder: Path, operators: Sequence[type[Operator]] = ()) -> dict[str, list[OperatorReport]]:
    """Compares the results of each adapter with ours, by operator."""
    manifest = _read_manifest(folder)
    if operators:
        short_names = [operator.short_name for operator in operators]
        manifest = {name: dispatches for name, dispatches in manifest.items() if name in short_names}
    results = folder / RESULTS
    adapters = sorted(path for path in results.iterdir() if path.is_dir()) if results.is_dir() else []
    reports: dict[str, list[OperatorReport]] = {}
    for adapter in adapters:
        reports[adapter.name] = []
        for i, (name, dispatches) in enumerate(manifest.items(), 1):
            report(f"comparing {one_line(adapter.name)}", i, len(manifest), "operator")
            reports[adapter.name].append(_compare_operator(folder, adapter, name, dispatches))
    return reports


def _read_manifest(folder: Path) -> Mapping[str, Any]:
    where = f"'{one_line(folder)}'"
    require("folder", (folder / MANIFEST).is_file(), "must have a kit", where)
    whole = read_object(folder, MANIFEST, _MOST_BYTES)
    require("folder", whole.get("format") == FORMAT, f"must have a kit of format {FORMAT}", whole.get("format"))
    operators = whole.get("operators")
    if not isinstance(operators, dict):
        raise InvalidDesc(Problem("folder", "must have a whole kit", where, remedy="write it again"))
    return operators


def _compare_operator(folder: Path, adapter: Path, name: str, dispatches: Sequence[Any]) -> OperatorReport:
    compared = OperatorReport(name)
    for dispatch in dispatches:
        arrays: dict[str, NDArray[Any]] = {}
        for output, record in dispatch["results"].items():
            compared.results += 1
            path = adapter / record["file"]
            ours = arrays[output] = _read(folder / "expected" / record["file"], record)
            try:
                if not path.is_file():
                    compared.missing.append(f"{dispatch['number']} {output}")
                    continue
                theirs = _read(path, record)
            except DmlError as error:
                compared.differences.append(_unreadable(name, dispatch, output, str(error)))
                continue
            if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
                what = f"{theirs.dtype} {list(theirs.shape)}"
                compared.differences.append(_unreadable(name, dispatch, output, what))
                continue
            if output == "output_coordinates":  # the page leaves the rows after the count undefined
                count = int(arrays["output_count"].reshape(-1)[0])
                ours, theirs = ours[..., :count, :], theirs[..., :count, :]
            distance = measure_distance(ours, theirs, record["promise"], dispatch["largest"])
            if distance.size:
                compared.most_units = max(compared.most_units, float(distance.max()))
                compared.differences += _find_difference(name, dispatch, output, ours, theirs, distance)
    return compared


def _find_difference(
    name: str, dispatch: Any, output: str, ours: NDArray[Any], theirs: NDArray[Any], distance: NDArray[Any]
) -> Iterator[Difference]:
    allowed = ALLOWED[dispatch["results"][output]["promise"]].get(ours.dtype.name, 0.0)
    is_beyond = distance > allowed
    if is_beyond.any():
        place = np.unravel_index(int(np.argmax(distance)), distance.shape)
        where = "".join(f"[{int(i)}]" for i in place)
        texts = str(ours[place]), str(theirs[place])
        units = float(distance[place])
        head = name, dispatch["number"], dispatch["reason"], output
        yield Difference(*head, units, allowed, int(is_beyond.sum()), where, *texts)


def _unreadable(name: str, dispatch: Any, output: str, theirs: str) -> Difference:
    head = name, dispatch["number"], dispatch["reason"], output
    return Difference(*head, float("inf"), 0.0, 1, "", "an array as in the kit", theirs)


def _read(path: Path, record: Mapping[str, Any]) -> NDArray[Any]:
    _, values = read_values(path, DataType.UNKNOWN, (), _MOST_BYTES)
    if "type" in record:  # of 4 bits
        return view_elements(values, DataType[record["type"]])[: record["count"]].astype(np.int8)
    return values


def _units(units: float) -> str:
    return "not near" if np.isinf(units) else f"{units:.3g} ULP apart"
