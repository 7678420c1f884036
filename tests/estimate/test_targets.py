"""Chips that XLA compiles for: what is compiled, and what is refused."""

import importlib.util
from importlib import resources

import jax.numpy as jnp
import pytest

from dmljax import directml
from dmljax.estimate import TARGETS, Cost, compile_for, targets


@pytest.mark.parametrize("name", TARGETS)
def test_a_function_is_compiled_for_a_chip_that_is_not_here(name: str) -> None:
    pytest.importorskip(TARGETS[name].module, reason="the extra `accelerators` is not installed")
    found = compile_for(name, lambda x: jnp.exp(x) + 1, jnp.ones((1024, 1024), jnp.float32))
    assert (found.cost.kernels, found.cost.loops) == (1, 0)
    assert found.cost.bytes == 2 * 4 * 1024**2
    assert 1e-6 < found.estimated_seconds < 1e-4
    assert found.compile_seconds > 0


@pytest.mark.parametrize("name", TARGETS)
def test_a_function_without_arrays_is_compiled_for_the_chip(name: str) -> None:
    pytest.importorskip(TARGETS[name].module, reason="the extra `accelerators` is not installed")
    assert compile_for(name, lambda: jnp.arange(1000, dtype=jnp.float32)).cost.kernels == 1


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "find_spec", lambda name: None if name == "libtpu" else importlib.util.find_spec(name))
    targets._devices.cache_clear()
    with pytest.raises(directml.Unsupported, match=r"compiler for v5e is not .*libtpu .*'dmljax\[accelerators\]'"):
        compile_for("v5e", jnp.sin, jnp.ones(3))


def test_an_unknown_chip_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(directml.InvalidDesc, match="target must be h100 or v5e; got 'h1000'"):
        compile_for("h1000", jnp.sin, jnp.ones(3))


def test_a_gpu_is_bound_by_launches_bytes_and_operations_a_tpu_by_cycles() -> None:
    cost = Cost(kernels=2, bytes=2_800_000, element_operations=28723, cycles=1500, unestimated_bytes=819_000)
    assert TARGETS["h100"].seconds(cost) == pytest.approx(3e-6 + 1e-6 + 1e-9, rel=1e-4)
    assert TARGETS["v5e"].seconds(cost) == pytest.approx(1e-6 + 1e-6)


def test_the_description_of_a_gpu_is_a_file_of_the_package() -> None:
    folder = resources.files("dmljax.estimate")
    configs = [target.config for target in TARGETS.values() if target.config]
    assert configs == ["h100.txtpb"]
    assert all(folder.joinpath(config).is_file() for config in configs)
