"""The environment of every test: eight devices, strict type promotion, and 64-bit types as JAX_ENABLE_X64 says."""

import contextlib
import gc
import os
import pickle
import random
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # with compilers for other chips installed, JAX would look for the chips
os.environ["DMLJAX_NO_CACHE"] = "1"  # nor must commands write into the cache of whoever runs the tests

import accuracy_table
import jax
import numpy as np
import pytest
import transformation_table

gc.disable()  # pytest_runtest_teardown collects: between tests, and not while pytest or JAX builds large trees
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "1").lower() in ("1", "true"))
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def reseed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives each test the same random numbers, whichever tests ran before it."""
    if hasattr(request.module, "RNG"):
        seed = zlib.crc32(f"{request.path.name}::{request.node.name}".encode())  # wherever the file is
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(seed))


@pytest.fixture(params=["eager", pytest.param("jitted", marks=pytest.mark.full)])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a function of positional arrays and static keywords; with `--full`, also inside a user's own jit."""

    def eager(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        return function(*arrays, **statics)

    compiled: dict[Any, Callable[..., Any]] = {}

    def jitted(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        # A test that makes the same call with many arrays compiles it once. The keys are bits, because 0.0 equals -0.0.
        key = function, pickle.dumps(statics)
        if key not in compiled:
            compiled[key] = jax.jit(lambda *traced: function(*traced, **statics))
        return compiled[key](*arrays)

    return eager if request.param == "eager" else jitted


@pytest.fixture(params=["cpu", "gpu", "tpu"])
def lowering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test with each platform's lowerings, all on the CPU."""
    with lowered_for(request.param, monkeypatch):
        yield request.param


@pytest.fixture
def as_on_a_tpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a test with a TPU's lowerings, on the CPU."""
    with lowered_for("tpu", monkeypatch):
        yield


@pytest.fixture
def lower_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Switches to the lowerings of the platform that it is called with."""
    with contextlib.ExitStack() as until_the_end:
        yield lambda platform: until_the_end.enter_context(lowered_for(platform, monkeypatch))


@contextlib.contextmanager
def lowered_for(platform: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Uses the lowerings of another platform on the CPU."""
    if platform == "cpu":
        yield
        return
    name = "cuda" if platform == "gpu" else platform

    def of_one_platform(*operands: Any, default: Any, **by_platform: Any) -> Any:
        return by_platform.get(name, default)(*operands)

    monkeypatch.setattr(jax.lax, "platform_dependent", of_one_platform)
    jax.clear_caches()
    yield
    jax.clear_caches()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--models", metavar="COUNT", type=int, default=20, help="how many mutated models to try")
    parser.addoption("--notebooks", action="store_true", help="run the notebooks")
    parser.addoption("--write-notebooks", action="store_true", help="write the notebooks' output into their files")
    parser.addoption("--accuracy-table", metavar="FILE", type=Path, help="write the errors that the tests measure")
    parser.addoption("--full", action="store_true", help="also run the cases marked `full` or `gate`")
    parser.addoption("--gate", action="store_true", help="also run the cases marked `gate`")
    parser.addoption("--transformation-table", metavar="FILE", type=Path, help="write the results of transformations")
    parser.addoption(
        "--expect-transformations", metavar="FILE", type=Path, help="fail where the results differ from this page"
    )
    parser.addoption("--compilation-cache", metavar="FOLDER", help="reuse compiled programs between runs")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--transformation-table") or config.getoption("--accuracy-table"):
        config.option.full = True
    config.option.gate |= config.option.full
    config.pluginmanager.register(accuracy_table)
    config.pluginmanager.register(transformation_table)
    if config.option.compilation_cache is None:  # workers share compilations, which saves a sixth of the time
        folder = tempfile.TemporaryDirectory(prefix="dmljax-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        config.option.compilation_cache = folder.name  # xdist hands the options to its workers
    jax.config.update("jax_compilation_cache_dir", config.option.compilation_cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Makes only the cases that run: without `--full`, those not marked `full`, or a few drawn by a test's name.

    Without `--gate`, likewise of these those not marked `gate`.

    pytest has no public way to drop cases before it makes them; making all of them takes half a minute per process.
    """
    yield
    for name in marks_left_out(metafunc.config):
        cases, of_test = metafunc._calls, [*metafunc.definition.iter_markers(name)]
        kept = [case for case in cases if all(mark.kwargs for mark in (*of_test, *case.marks) if mark.name == name)]
        drawn = [mark.kwargs["but"] for mark in of_test if mark.kwargs][:1]
        if kept and drawn:
            kept = random.Random(metafunc.definition.name).sample(kept, min(drawn[0], len(kept)))
        cases[:] = kept or cases[:1]  # without any, pytest would make a test that has no parameters


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for name in marks_left_out(config):
        left_out = [item for item in items if not all(mark.kwargs for mark in item.iter_markers(name))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def marks_left_out(config: pytest.Config) -> list[str]:
    return [name for name in ("full", "gate") if not config.getoption(name)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Function, nextitem: pytest.Function | None) -> Iterator[None]:
    """Excludes objects in JAX's caches from later garbage collections, which took a third of the time."""
    yield
    if nextitem is None or nextitem.originalname != item.originalname:
        gc.collect()
        gc.freeze()
