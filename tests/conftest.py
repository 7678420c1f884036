"""What every test runs under: eight devices, strict promotion of types, none of ranks, 64 bits as JAX_ENABLE_X64 says.

`pytest --transformation-table FILE` writes which operator comes through which transformation, as the tests saw it, and
`pytest tests/test_accuracy.py --accuracy-table FILE` how exact each is.
"""

import contextlib
import gc
import json
import os
import pickle
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # with compilers for other chips installed, JAX would look for the chips

import jax
import numpy as np
import pytest
import transformation_table
from sample import Tried, tried_operators

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "1").lower() in ("1", "true"))
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def reseed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a test the same random numbers whichever tests ran before it in its process."""
    if hasattr(request.module, "RNG"):
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(zlib.crc32(request.node.nodeid.encode())))


@pytest.fixture(params=["eager", "jitted"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a function of positional arrays and static keywords, once as it is and once inside a user's own jit."""

    def eager(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        return function(*arrays, **statics)

    compiled: dict[Any, Callable[..., Any]] = {}

    def jitted(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        # A test that makes the same call of many arrays compiles it once. The same to the bit: 0.0 equals -0.0.
        key = function, pickle.dumps(statics)
        if key not in compiled:
            compiled[key] = jax.jit(lambda *traced: function(*traced, **statics))
        return compiled[key](*arrays)

    return eager if request.param == "eager" else jitted


@pytest.fixture(params=["cpu", "gpu", "tpu"])
def lowering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test with what operators are lowered to for each platform, all of it on the CPU."""
    with lowered_for(request.param, monkeypatch):
        yield request.param


@pytest.fixture
def as_on_a_tpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a test with what operators are lowered to for a TPU, on the CPU."""
    with lowered_for("tpu", monkeypatch):
        yield


@pytest.fixture
def lower_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Lowers operators for the platform that it is called with, from the call on."""
    with contextlib.ExitStack() as until_the_end:
        yield lambda platform: until_the_end.enter_context(lowered_for(platform, monkeypatch))


@contextlib.contextmanager
def lowered_for(platform: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lowers operators for a platform other than the CPU that runs them."""
    if platform == "cpu":
        yield
        return
    name = "cuda" if platform == "gpu" else platform

    def of_one_platform(*operands: Any, default: Any, **ways: Any) -> Any:
        return ways.get(name, default)(*operands)

    monkeypatch.setattr(jax.lax, "platform_dependent", of_one_platform)
    jax.clear_caches()
    yield
    jax.clear_caches()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--models", metavar="COUNT", type=int, default=240, help="how many mutated models to try")
    parser.addoption("--notebooks", action="store_true", help="run the notebooks")
    parser.addoption("--write-notebooks", action="store_true", help="keep what the notebooks print and draw")
    parser.addoption("--at-a-glance", metavar="FILE", type=Path, help="write what every operator is at a glance")
    parser.addoption("--accuracy-table", metavar="FILE", type=Path, help="write what the tests saw")
    parser.addoption("--sample", action="store_true", help="try transformations and lists of cases on a sample")
    parser.addoption("--half", choices=["first", "second"], help="with --sample, half of the tests that it thins")
    parser.addoption("--everything", action="store_true", help="try every case, and transformations on every operator")
    parser.addoption("--transformation-table", metavar="FILE", type=Path, help="write what the tests saw of all")
    parser.addoption("--expect-transformations", metavar="FILE", type=Path, help="fail where they saw something else")
    parser.addoption("--compilation-cache", metavar="FOLDER", help="keep what is compiled for other runs")
    parser.addoption("--write-durations", metavar="FILE", type=Path, help="write what a case of each test takes")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--transformation-table"):
        config.option.everything = True
    if config.option.compilation_cache is None:  # the workers of one run share what they compile: a sixth of all time
        folder = tempfile.TemporaryDirectory(prefix="dmljax-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        config.option.compilation_cache = folder.name  # xdist hands the options to its workers
    jax.config.update("jax_compilation_cache_dir", config.option.compilation_cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker in item.iter_markers("transformation"):
            operator = item.callspec.params["operator"]  # type: ignore[attr-defined]
            item.user_properties.append(("transformation", f"{operator} {marker.args[0]}"))
    left_out = set(map(id, those_left_out(items, config)))
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]


def those_left_out(items: list[pytest.Item], config: pytest.Config) -> Iterator[pytest.Item]:
    """Transformations of operators that others stand for, and of tests with many cases those beyond their share."""
    tried = {kind: set(tried_operators(config, kind)) for kind in Tried}
    alike: dict[str, list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("transformation")
        operator = None if marker is None else item.callspec.params["operator"]  # type: ignore[attr-defined]
        if (marker is not None and operator not in tried[marker.kwargs["of"]]) or is_of_other_half(item):
            yield item
        else:
            alike.setdefault(of_function(item), []).append(item)
    for group in alike.values():
        # By chance, but the same ones each time. A sample begins with those that the other runs leave out.
        group.sort(key=lambda item: zlib.crc32(item.nodeid.encode()), reverse=config.getoption("--sample"))
        yield from group[share(group) :]


def is_of_other_half(item: pytest.Item) -> bool:
    """Whether `--half` leaves this to the other half: a case of what is marked `whole`, or all cases of a test."""
    half = item.config.getoption("--half")
    if half is None or item.get_closest_marker("transformation"):
        return False
    name = item.nodeid if item.get_closest_marker("whole") is not None else of_function(item)
    return zlib.crc32(name.encode()) % 2 != ("first", "second").index(half)


SECONDS = 0.7  # that the cases of a test may take a core, unless it is marked `seconds`


def share(group: list[pytest.Item]) -> int:
    """How many cases of a test, of which `group` has all, are tried: at least one."""
    item = group[0]
    if item.config.getoption("--everything") or item.get_closest_marker("whole") is not None:
        return len(group)
    if item.config.getoption("--sample"):
        return -(-len(group) // (16 if item.get_closest_marker("transformation") is None else 6))
    marker = item.get_closest_marker("seconds")
    seconds = SECONDS if marker is None else float(marker.args[0])
    return max(1, int(seconds / DURATIONS.get(of_function(item), 0.001)))


# The core seconds of an average case of each test, where all of its cases together may take longer than SECONDS.
DURATIONS: dict[str, float] = json.loads((Path(__file__).parent / "durations.json").read_text())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[STARTED] = core_seconds()
    yield


STARTED = pytest.StashKey[float]()


def core_seconds() -> float:
    """The time for which this process, and those that it started and that have ended, have had a core."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Keeps what a test leaves in JAX's caches out of later collections of garbage, which took a third of all time."""
    yield
    if nextitem is None or of_function(nextitem) != of_function(item):
        gc.collect()
        gc.freeze()
    item.user_properties.append(("core seconds", core_seconds() - item.stash[STARTED]))


def of_function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for key, value in report.user_properties:
        if key == "transformation":
            operator, _, transformation = str(value).partition(" ")
            transformation_table.record(report, operator, transformation)
        if key == "core seconds" and report.when == "teardown":
            durations_seen.setdefault(report.nodeid.partition("[")[0], []).append(float(str(value)))
        if key in errors_seen and report.when == "call":
            operator, column, units = str(value).split()
            errors_seen[key].setdefault(operator, {})[column] = units


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):  # a worker of xdist sees a part alone
        return
    writers = {
        "--transformation-table": transformation_table.write,
        "--accuracy-table": write_accuracy,
        "--write-durations": write_durations,
    }
    for option, write in writers.items():
        file = session.config.getoption(option)
        if file is not None:
            write(file)
    expected = session.config.getoption("--expect-transformations")
    if expected is not None:
        for difference in transformation_table.differences(expected):
            print(difference)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


durations_seen: dict[str, list[float]] = {}


def write_durations(file: Path) -> None:
    seen = {name: round(sum(each) / len(each), 3) for name, each in durations_seen.items()}
    # Of a test that is known to be slow, perhaps only a few cases were tried.
    slow = {
        name: mean for name, mean in seen.items() if name in DURATIONS or mean * len(durations_seen[name]) > SECONDS
    }
    file.write_text(json.dumps(DURATIONS | slow, indent=0, sort_keys=True) + "\n")


# The table of how exact operators are

ACCURACY = """\
# Accuracy

Operators that round nothing agree bit for bit with DirectML's pages. Elementwise operators that round are within 4
units in the last place (ULP) of a float64 reference in FLOAT32, and within 1 in FLOAT16. Where one is not, it computes
what JAX's own function computes, and is at most one unit further off: for all operands and all finite attributes that
the tests tried, including NaN, infinities and both ends of the range. A subnormal operand or result of floating-point
arithmetic may be replaced by a zero of the same sign, as in Direct3D; predicates, selections, copies and bitwise
operators keep subnormals. DirectML's pages list float64 for none of the operators that round; in float64 dmljax is as
accurate as XLA's functions.

Exceptions and their reasons:

| operator | exception | reason |
| --- | --- | --- |
| ELEMENT_WISE_MODULUS_FLOOR | may be 0 where `b` is below 1e-30 | the remainder may be subnormal before `b` is added |
| ELEMENT_WISE_ADD1 | rounds twice | it rounds the sum, and then the result of the fused activation |
| operators with a ScaleBias | round up to three times | the product, the sum, and then the result |
| ELEMENT_WISE_POW, integer with float exponent | truncates | the result is an integer, computed in floating point |

Derivatives with respect to inputs and attributes, in forward and reverse mode, have at least 4 correct digits for
arguments and attributes between 1e-3 and 1e3, or are off by less than 1e-5 of the result divided by the argument: the
slope of tanh is computed as `1 - tanh(x)**2`, and is 0 from 9 on. What is below 1e-30 may be 0. Gradients with respect
to the input are finite wherever the operator and its true gradient are, also at infinity. The derivative of `0 ** 0`
with respect to the exponent is 0, as in JAX and PyTorch.

## On a GPU and a TPU

All errors on this page were measured on a CPU. We have run nothing on a GPU or a TPU; this follows from the functions
that dmljax chooses there:

| computation | CPU | GPU | TPU |
| --- | --- | --- | --- |
| sine, cosine, tangent and their inverses, remainders | dmljax's | XLA's | XLA's |
| hyperbolic sine and cosine | dmljax's, from XLA's exponential | XLA's | dmljax's, from XLA's exponential |
| powers | XLA's, of the magnitude | XLA's | XLA's, of the magnitude |
| all other elementwise functions | XLA's | XLA's | XLA's |
| sums | dmljax's order, or XLA's | XLA's order | XLA's order |
| comparisons and selections by value | by the bits | as the platform compares | as the platform compares |

## Elementwise operators

The table lists the largest errors, in units in the last place, that `pytest tests/test_accuracy.py --accuracy-table
notebooks/accuracy.md` found. In FLOAT32, all three libraries compute with the same 400,000 operands, none of which is
subnormal, infinite or NaN, and the same attributes; `tests/benchmarks/idioms.py` and `tests/test_peers_elementwise.py`
have the functions that stand for JAX and PyTorch. An error of 1e+06 or more is a normal number that became 0, as GELU
does below -13 and swish below -87; an infinite one is an intermediate result that is out of range where the exact
result is not. In FLOAT16, the tests try all operands; with two inputs, each value of one input meets one value of the
other. The tests also search for the worst combination of operands and attributes, which they hold to the same bounds.
ELEMENT_WISE_POW and ELEMENT_WISE_ADD1 are held to them by tests of their own.

{elementwise}

## Sums

Sums have a bound relative to the sum of the magnitudes, which is on the operators' pages. In softmax, each element's
distance from the largest of its row is also rounded before the exponential. The table lists the largest errors for the
float32 workloads of `tests/benchmarks/every.py`, in units in the last place of the largest result; where the numbers of
a workload are whole, they are replaced by normally distributed ones.

{sums}
"""
COLUMNS = {
    "units": {"dmljax": "FLOAT32", "JAX": "JAX", "PyTorch": "PyTorch", "dmljax, FLOAT16": "FLOAT16"},
    "sums": {"dmljax": "dmljax", "JAX": "JAX", "PyTorch": "PyTorch", "ONNX Runtime": "ONNX-Runtime"},
}
errors_seen: dict[str, dict[str, dict[str, str]]] = {key: {} for key in COLUMNS}


def write_accuracy(file: Path) -> None:
    file.write_text(ACCURACY.format(elementwise=error_table("units"), sums=error_table("sums")))


def error_table(key: str) -> str:
    columns = COLUMNS[key]
    rows = [["operator", *columns], ["---", *["--:"] * len(columns)]]
    for name, found in sorted(errors_seen[key].items()):
        rows.append([name, *(found.get(column, "") for column in columns.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
