"""Chips that XLA compiles for: what is compiled, and what is refused."""

import importlib.util
import re

import jax.numpy as jnp
import pytest

from dmljax import directml
from dmljax.estimation import TARGETS, Cost, compile_for, targets
from dmljax.estimation.chips import Times, chips_of, gpu_config
from dmljax.estimation.targets import MODULES, place_of
from dmljax.foundation.extras import command_for


@pytest.mark.parametrize("name", TARGETS)
def test_a_function_is_compiled_for_a_chip_that_is_absent(name: str) -> None:
    pytest.importorskip(MODULES[TARGETS[name].platform], reason="the extra `accelerators` is not installed")
    compiled = compile_for(name, lambda x: jnp.exp(x) + 1, jnp.ones((1024, 1024), jnp.float32))
    assert (compiled.cost.kernels, compiled.cost.loops) == (1, 0)
    assert compiled.cost.bytes == 2 * 4 * 1024**2
    assert 1e-6 < compiled.estimated_seconds < 1e-4
    assert compiled.compile_seconds > 0


@pytest.mark.parametrize("name", TARGETS)
def test_a_function_without_arrays_is_compiled_for_the_chip(name: str) -> None:
    pytest.importorskip(MODULES[TARGETS[name].platform], reason="the extra `accelerators` is not installed")
    assert compile_for(name, lambda: jnp.arange(1000, dtype=jnp.float32)).cost.kernels == 1


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "find_spec", lambda name: None if name == "libtpu" else importlib.util.find_spec(name))
    place_of.cache_clear()
    remedy = re.escape(command_for("accelerators"))
    with pytest.raises(directml.Unsupported, match=rf"compiler for v5e is not .*libtpu .*{remedy}"):
        compile_for("v5e", jnp.sin, jnp.ones(3))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "h1000",
            r"unknown chip 'h1000', did you mean h100\? \(choose h100, h200, a100, a100-40, b200, gb200, v4, v5e, ",
        ),
        ("h100:0", "target must be written like h100:4; got 'h100:0'"),
        ("v5e:16x32", "target must be written like v5e:4x4, at most 16x16, or be one of v5e:4, .*; got 'v5e:16x32'"),
        (
            "h100:12",
            r"target must be at most 8 GPUs, or a multiple of 8 for .*; got 'h100:12' \(h100:8 or h100:16\)",
        ),
        ("gb200:73", r"target must be at most 72 GPUs, .*; got 'gb200:73' \(gb200:72 or gb200:144\)"),
        (
            "v5e:3",
            "target must be written like v5e:4x4, at most 16x16, or be one of v5e:4, 8, 16, .*, 256; got 'v5e:3'",
        ),
        ("v5p:", "target must be written like v5p:4x4x4, or be one of v5p:4, 8, .*, 4096; got 'v5p:'"),
    ],
)
def test_an_unknown_target_is_refused_with_the_known_ones(name: str, message: str) -> None:
    with pytest.raises(directml.InvalidDesc, match=message):
        compile_for(name, jnp.sin, jnp.ones(3))


def test_a_number_of_tpus_means_their_usual_topology() -> None:
    names = ("v5e:4", "v5e:8", "v6e:32", "v5p:4", "v5p:8", "v5p:16", "v5p:32", "v5p:128")
    sizes = [(2, 2), (2, 4), (4, 8), (2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 8)]
    assert [chips_of(name)[1] for name in names] == sizes


def test_the_number_of_chips_follows_from_their_sizes() -> None:
    pytest.importorskip("libtpu", reason="the extra `accelerators` is not installed")
    assert [len(place_of(name).devices) for name in ("v5e", "v5e:4x4", "v5e:8", "v5p:4")] == [1, 16, 8, 4]
    with pytest.raises(directml.Unsupported, match=r"XLA has no topology v5e:3x5: .* \(v5e:4, 8, .*, 256 work\)"):
        place_of("v5e:3x5")


def test_a_gpu_is_compared_by_launches_bytes_and_operations_a_tpu_by_cycles() -> None:
    cost = Cost(kernels=2, bytes=2_800_000, element_operations=28723, cycles=1500, unestimated_bytes=819_000)
    assert TARGETS["h100"].seconds(cost) == pytest.approx(2e-6 + 1e-6 + 1e-9, rel=1e-4)
    assert TARGETS["v5e"].seconds(cost) == pytest.approx(1e-6 + 1e-6)


def test_products_take_time_where_it_exceeds_that_of_the_bytes() -> None:
    cost = Cost(bytes=2_800_000, unestimated_bytes=819_000, halves=2 * 989_170_000, declared=2 * 197_000_000)
    assert TARGETS["h100"].seconds(cost) == pytest.approx(2e-6)
    assert TARGETS["h100"].seconds(Cost(full_products=4 * 33454 * 10**3)) == pytest.approx(2e-6, rel=1e-3)
    assert TARGETS["v5e"].seconds(cost) == pytest.approx(2e-6)


def test_a_gpu_needs_time_for_each_part_of_a_cost_at_its_peak_rates() -> None:
    h100 = TARGETS["h100"]
    cost = Cost(kernels=2, bytes=3352320, element_operations=2 * 33454, linked=450_000, halves=1, full_products=1)
    assert h100.times(cost) == pytest.approx(Times(2e-6, 1e-6, 1e-9, 1e-6), rel=1e-3)
    assert h100.times(Cost(halves=989_170_000)).arithmetic == pytest.approx(1e-6)
    assert h100.times(Cost(full_products=2 * 33454)).arithmetic == pytest.approx(1e-9, rel=1e-3)
    assert h100.times(Cost(integer_products=33454)).arithmetic == pytest.approx(1e-9, rel=1e-3)
    assert h100.times(Cost(kernels=3, iterations=3)).launches == pytest.approx(30e-6)


def test_a_tpu_needs_time_for_bytes_passes_and_elements_but_not_for_launches_and_cycles() -> None:
    cost = Cost(kernels=2, bytes=819_000, passes=394_000_000, halves=9, cycles=10**9, iterations=7)
    assert TARGETS["v5e"].times(cost) == pytest.approx(Times(0, 1e-6, 2e-6, 0))
    assert TARGETS["v5e"].times(Cost(element_operations=4096 * 1500)).arithmetic == pytest.approx(1e-6)


def test_products_in_float64_have_a_rate_of_their_own() -> None:
    double = Cost(full_products=10**9, doubles=10**9)
    rates = {name: 1e9 / TARGETS[name].times(double).arithmetic for name in ("h100", "a100", "b200", "gb200")}
    assert rates == pytest.approx({"h100": 66.9e12, "a100": 19.5e12, "b200": 40e12, "gb200": 40e12}, rel=1e-3)
    assert {name: TARGETS[name].products_per_second(64) for name in rates} == pytest.approx(rates)


def test_jax_takes_a_part_of_a_gpus_memory_and_all_of_a_tpus() -> None:
    assert TARGETS["a100-40"].usable_memory == 42331013120 * 3 // 4
    assert TARGETS["v5e"].usable_memory == 15.75 * 2**30


@pytest.mark.parametrize(
    ("name", "devices"), [("h100:16", 16), ("gb200:72", 72), ("v7x", 1), ("v7x:4", 8), ("v4:4", 4)]
)
def test_machines_racks_and_chips_of_two_devices_have_their_devices(name: str, devices: int) -> None:
    pytest.importorskip(
        MODULES[TARGETS[chips_of(name)[0]].platform], reason="the extra `accelerators` is not installed"
    )
    assert len(place_of(name).devices) == devices


def test_a_gpu_is_described_to_xla() -> None:
    for target in TARGETS.values():
        if target.gpu:
            text = gpu_config(target, target.gpu)
            assert f"core_count: {target.gpu.cores}\n" in text
            assert "$" not in text
