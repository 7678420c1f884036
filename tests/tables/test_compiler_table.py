"""The page of operators' costs on a GPU and a TPU is up to date."""

import json

import compiler_table
import pytest


def figures(**more: float) -> dict[str, float]:
    return {"kernels": 1, "bytes": 2e6, "microseconds": 2, "loops": 0, "conditionals": 0, "sorts": 0} | more


FEW = {
    "GEMM": {"h100": {"dmljax": figures(), "jax.numpy": figures(microseconds=4)}, "v5e": {"dmljax": figures()}},
    "U-Net": {"h100": {"dmljax": figures(loops=2, kernels=9), "jax.numpy": figures(microseconds=1)}, "v5e": {}},
}
SECONDS = {"compile seconds": 0.5}
RESULTS = {
    name: {chip: {rival: of | SECONDS for rival, of in rivals.items()} for chip, rivals in chips.items()}
    for name, chips in FEW.items()
}


def test_the_page_is_up_to_date_with_its_generator() -> None:
    assert compiler_table.PAGE.read_text() == compiler_table.text(), "run python tests/benchmarks/compilers.py"


def test_every_operator_has_a_row() -> None:
    assert json.loads(compiler_table.FILE.read_text()).keys() >= compiler_table.OPERATORS


def test_the_worst_operator_comes_first() -> None:
    assert compiler_table.worst_first(RESULTS) == ["U-Net", "GEMM"]
    assert compiler_table.ratio(RESULTS["U-Net"]["h100"]) == 2
    assert compiler_table.ratio(RESULTS["GEMM"]["v5e"]) is None


def test_a_row_has_both_rivals_if_they_differ() -> None:
    assert compiler_table.row("U-Net", RESULTS["U-Net"]) == (
        "U-Net",
        "2.00 (2.0 / 1.0 us)",
        "9 / 1 kernels, 2 / 0 loops",
        "does not compile",
        "",
    )
    assert compiler_table.row("GEMM", RESULTS["GEMM"]) == (
        "[`gemm`](operators/gemm.md)",
        "0.50 (2.0 / 4.0 us)",
        "1 kernel",
        "2.0 us",
        "1 kernel",
    )


def test_the_mean_covers_the_operators_with_an_idiom() -> None:
    assert compiler_table.mean(RESULTS, "h100", "microseconds") == pytest.approx(1)
