"""The kit that asks DirectML itself, with dmljax's own runner in DirectML's place."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from families import ELEMENTWISE
from helpers import FULL, GATE, needs_x64
from operator_calls import typed_descs

from dmljax.command_line.cli import main
from dmljax.conformance.comparison import compare
from dmljax.conformance.kit import write_kit
from dmljax.conformance.promises import EXACT, ROUNDING, SUMS, measure_distance, promise_of
from dmljax.conformance.samples import samples_of
from dmljax.directml import OPERATORS, DataType
from dmljax.dxdispatch import Execution, load
from dmljax.errors import DmlError

float32, uint64 = (partial(np.array, dtype=dtype) for dtype in ("float32", "uint64"))
FEW = ["ELEMENT_WISE_ATAN_YX", "RANDOM_GENERATOR", "NONZERO_COORDINATES"]


def operators_called(*short_names: str) -> list[Any]:
    return [OPERATORS[f"DML_OPERATOR_{name}"] for name in short_names]


def run_models(folder: Path, adapter: str = "ours") -> None:
    """Runs a kit's models as its scripts do on Windows."""
    for path in sorted((folder / "models").glob("*.json")):
        run_model(load(path, input_path=folder), folder / "results" / adapter)


def run_model(model: Any, output: Path) -> None:
    execution = Execution(model, output_path=output)
    for index in range(len(model.commands)):
        execution.result(index)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit of few operators, and results that are ours."""
    folder = tmp_path_factory.mktemp("kit")
    write_kit(folder, operators_called(*FEW))
    shutil.copytree(folder / "expected", folder / "results" / "ours")
    return folder


@pytest.fixture
def kit(whole: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(whole, tmp_path / "kit"))


def test_few_dispatches_run_and_agree(kit: Path) -> None:
    shutil.rmtree(kit / "results")
    for path in (kit / "models").glob("*"):
        if path.stem != FEW[0]:
            path.unlink()
    with jax.enable_x64(True):
        run_models(kit)
    (report,) = compare(kit, operators_called(FEW[0]))["ours"]
    assert not report.has_findings


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.full(but=12)
@GATE
def test_all_dispatches_run_and_agree(operator: str, tmp_path: Path) -> None:
    write_kit(tmp_path, [OPERATORS[operator]])
    with jax.enable_x64(True):
        run_models(tmp_path)
    (report,) = compare(tmp_path)["ours"]
    assert [*map(str, report.differences)] == []
    assert report.missing == []
    assert report.results >= 4


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.full(but=12)
@pytest.mark.gate(but=1)
def test_samples_have_every_data_type_and_the_ends_of_the_ranks(operator: str) -> None:
    kind = OPERATORS[operator]
    newest = kind.support[max(kind.support)]
    with jax.enable_x64(True):
        leaves = [leaf for sample in samples_of(kind) for leaf in sample.desc.leaves()]
    assert {(leaf.member.field, leaf.tensor.data_type) for leaf in leaves} == {
        (field, data_type) for field, cell in newest.items() for data_type in cell.data_types
    }
    ranks = newest[next(iter(newest))].ranks
    assert {ranks[0], ranks[-1]} <= {leaf.tensor.rank for leaf in leaves}


@FULL
def test_the_whole_kit_is_of_a_moderate_size(tmp_path: Path) -> None:
    written = write_kit(tmp_path)
    assert written.operators == 177
    assert 2_000 <= written.dispatches <= 3_000
    assert written.bytes <= 20e6
    assert len(content_of(tmp_path)) == written.files


def test_a_kit_is_the_same_again(kit: Path) -> None:
    before = content_of(kit)
    write_kit(kit, operators_called(*FEW))
    assert content_of(kit) == before


@GATE
def test_a_kit_is_the_same_whatever_the_hash_seed(whole: Path, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        command = [sys.executable, "-m", "dmljax", "conformance", str(tmp_path / seed), "--quiet"]
        only = [option for name in FEW for option in ("--only", name)]
        subprocess.run([*command, *only], check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        written = {name: data for name, data in content_of(whole).items() if not name.startswith("results")}
        assert content_of(tmp_path / seed) == written


def test_a_result_that_differs_is_found_and_named(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kit / "results" / "ours" / "ELEMENT_WISE_ATAN_YX" / "000.output.npy"
    values = np.load(path)
    values[1] = np.nextafter(values[1], np.float32(np.inf))
    np.save(path, values)
    assert main(["conformance", str(kit), "--compare"]) == 0  # 1 ULP is allowed
    capsys.readouterr()
    values[1] += np.float32(1)
    np.save(path, values)
    assert main(["conformance", str(kit), "--compare"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["operator", "results", "agree", "differ", "missing", "most", "ULP"]
    assert lines[2].split()[:1] + lines[2].split()[3:5] == ["ELEMENT_WISE_ATAN_YX", "1", "0"]
    assert re.fullmatch(
        r"ELEMENT_WISE_ATAN_YX 000 \(example: .*\), output\[1\]: .* instead of .* ULP apart; 4 allowed", lines[4]
    )
    assert lines[-1].startswith("ours: ")


def test_missing_results_are_counted_by_operator(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sorted((kit / "results" / "ours" / "ELEMENT_WISE_ATAN_YX").iterdir())
    for path in paths[2:]:
        path.unlink()
    assert main(["conformance", str(kit), "--compare"]) == 1
    line = f"{len(paths) - 2} of {len(paths)} results of ELEMENT_WISE_ATAN_YX are missing"
    assert line in capsys.readouterr().out.splitlines()
    shutil.rmtree(kit / "results")
    assert main(["conformance", str(kit), "--compare"]) == 1
    assert capsys.readouterr().out == f"{kit}: no results; run run.bat there on Windows\n"


def test_the_comparison_as_json(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(kit / "results" / "ours" / "ELEMENT_WISE_ATAN_YX" / "000.output.npy", np.zeros(9, np.int8))
    (kit / "results" / "ours" / "ELEMENT_WISE_ATAN_YX" / "001.output.npy").unlink()
    assert main(["conformance", str(kit), "--compare", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)["ours"]["ELEMENT_WISE_ATAN_YX"]
    assert report["missing"] == ["001 output"]
    assert report["agreeing"] == report["results"] - 2
    (difference,) = report["differences"]
    assert (difference["number"], difference["units"], difference["theirs"]) == ("000", None, "int8 [9]")


def test_rows_that_the_page_leaves_undefined_are_not_compared(kit: Path) -> None:
    path = kit / "results" / "ours" / "NONZERO_COORDINATES" / "000.output_coordinates.npy"
    values = np.load(path)
    values[..., -1, :] = 77
    np.save(path, values)
    (report,) = compare(kit, operators_called("NONZERO_COORDINATES"))["ours"]
    assert not report.has_findings


@pytest.mark.parametrize(("name", "is_missing"), [("UNFOLD", False), ("RANDOM_GENERATOR", True)])
def test_operators_that_dxdispatch_lacks_may_be_missing(name: str, is_missing: bool, kit: Path) -> None:
    shutil.rmtree(kit / "results" / "ours" / "RANDOM_GENERATOR")
    text = (kit / "kit.json").read_text().replace('"RANDOM_GENERATOR": [', f'"{name}": [')
    (kit / "kit.json").write_text(text)
    report = next(report for report in compare(kit)["ours"] if report.operator == name)
    assert report.missing
    assert report.has_findings is is_missing


def test_a_dispatch_can_be_taken_out_of_a_model(kit: Path) -> None:
    """`run.ps1` runs the dispatches of a model one by one where the whole model fails."""
    script = (kit / "run.ps1").read_text()
    assert r"""$_ -notmatch '"\d{3}["\.]' -or $_ -match ('"' + $number + '["\.]')""" in script
    lines = (kit / "models" / "ELEMENT_WISE_ATAN_YX.json").read_text().splitlines()
    chosen = [line for line in lines if not re.search(r'"\d{3}["\.]', line) or re.search(r'"002["\.]', line)]
    part = kit / "part.json"
    part.write_text("\n".join(chosen))
    model = load(part, input_path=kit)
    assert [*model.dispatchables] == ["002"]
    run_model(model, kit / "results" / "part")
    assert [*content_of(kit / "results" / "part")] == [os.path.join("ELEMENT_WISE_ATAN_YX", "002.output.npy")]


def test_a_wrong_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models").mkdir()
    assert main(["conformance", str(tmp_path)]) == 2
    assert "folder must be a new or empty folder, or one that has a kit" in capsys.readouterr().err
    for arguments in ([str(tmp_path), "--compare"], [str(tmp_path / "none"), "--compare"]):
        assert main(["conformance", *arguments]) == 2
        assert capsys.readouterr().err == f"error: folder must have a kit; got '{arguments[0]}'\n"
    (tmp_path / "kit.json").write_text('{"format": 1}')
    assert main(["conformance", str(tmp_path), "--compare"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == ["tip: write it again"]
    (tmp_path / "kit.json").write_text('{"format": 2}')
    with pytest.raises(DmlError, match="must have a kit of format 1; got 2"):
        compare(tmp_path)


def test_operators_with_exact_formulas_have_to_be_exact() -> None:
    for name, elementwise in ELEMENTWISE.items():
        for desc in typed_descs(f"DML_OPERATOR_{name}") if elementwise.is_exact else ():
            outputs = desc.tensors(is_input=False).values()
            assert {promise_of(desc, tensor) for tensor in outputs} == {EXACT}, name


@needs_x64
def test_distances_are_in_units_in_the_last_place() -> None:
    nan, inf, tiny = np.nan, np.inf, 1e-40
    ours = float32([1, 1, nan, nan, inf, 0.0, tiny, -1])
    theirs = float32([1 + 2**-23, 1 - 2**-23, nan, 1, -inf, -0.0, 0, 1])
    expected = [1, 2, 0, inf, inf, 0, 0, inf]
    assert measure_distance(ours, theirs, ROUNDING, 0).tolist()[:7] == expected[:7]
    assert measure_distance(ours[5:6], theirs[5:6], EXACT, 0).tolist() == [0.5]
    assert measure_distance(float32([3e38]), float32([inf]), SUMS, 0).tolist() == [inf]
    assert measure_distance(float32([1, 1024]), float32([1 + 2**-13, 1024]), SUMS, 0).tolist() == [1, 0]
    assert measure_distance(float32([1]), float32([1 + 2**-13]), SUMS, 1024).tolist() == [1]
    assert measure_distance(uint64([2**64 - 1]), uint64([0]), EXACT, 0).tolist() == [2.0**64]
    assert DataType.FLOAT64.dtype == measure_distance(ours, theirs, ROUNDING, 0).dtype
