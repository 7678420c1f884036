"""The page of operators' costs on a GPU and a TPU is up to date."""

import json
from typing import Any

import compiler_table
import pytest


def figures(**more: float) -> dict[str, float]:
    return {"kernels": 1, "bytes": 2e6, "microseconds": 2, "loops": 0, "conditionals": 0, "sorts": 0} | more


FEW: dict[str, Any] = {
    "GEMM": {"h100": {"dmljax": figures(), "jax.numpy": figures(microseconds=4)}, "v5e": {"dmljax": figures()}},
    "softmax, float32": {
        "h100": {"dmljax": figures(microseconds=6), "jax.numpy": figures(microseconds=5)},
        "v5e": {"dmljax": figures(), "jax.numpy": {"refused": "out of memory"}},
    },
    "U-Net": {
        "h100": {"dmljax": figures(loops=2, kernels=9), "jax.numpy": figures(microseconds=1)},
        "v5e": {"dmljax": {"refused": "does not compile"}},
    },
}
SECONDS = {"compile seconds": 0.5}
RESULTS = {
    name: {
        chip: {rival: of | SECONDS for rival, of in rivals.items()} | {"roof": 1.5} for chip, rivals in chips.items()
    }
    for name, chips in FEW.items()
}


def test_every_operator_has_a_row() -> None:
    assert json.loads(compiler_table.FILE.read_text()).keys() >= compiler_table.OPERATORS


def test_operators_real_sizes_and_networks_are_apart() -> None:
    assert [compiler_table.group(name) for name in RESULTS] == ["operators", "real sizes", "networks"]


def test_the_worst_operator_comes_first() -> None:
    assert compiler_table.worst_first(RESULTS) == ["U-Net", "softmax, float32", "GEMM"]
    assert compiler_table.ratio(RESULTS["U-Net"]["h100"]) == 2
    assert compiler_table.ratio(RESULTS["GEMM"]["v5e"]) is None


def test_a_row_has_both_rivals_if_they_differ() -> None:
    assert compiler_table.row("U-Net", RESULTS["U-Net"]) == (
        *("U-Net", "2.00 (2.0 / 1.0 us)", "1.3", "9 / 1 kernels, 2 / 0 loops"),
        *("does not compile", "", ""),
    )
    assert compiler_table.row("GEMM", RESULTS["GEMM"]) == (
        *("[`gemm`](operators/gemm.md)", "0.50 (2.0 / 4.0 us)", "1.3", "1 kernel"),
        *("2.0 us", "1.3", "1 kernel"),
    )


def test_a_row_says_where_jax_does_not_compile() -> None:
    assert compiler_table.row("softmax, float32", RESULTS["softmax, float32"])[4:] == (
        *("2.0 us; JAX: out of memory", "1.3", "1 kernel"),
    )


def test_the_page_says_where_both_are_far_from_the_roofline() -> None:
    (sentence,) = compiler_table.far({"softmax, float32": RESULTS["softmax, float32"]})
    assert sentence.endswith(": softmax (3.3 x).")
    assert not list(compiler_table.far({"GEMM": RESULTS["GEMM"]}))


def test_the_mean_covers_the_operators_with_an_idiom() -> None:
    assert compiler_table.mean(RESULTS, "h100", "microseconds") == pytest.approx((0.5 * 1.2 * 2) ** (1 / 3))
