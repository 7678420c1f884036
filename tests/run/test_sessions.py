"""Later runs of a session check and compile nothing again, in any number of threads, and raise the same errors."""

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx.parser
import pytest

from dmljax.errors import DmlError
from dmljax.foundation.programs import compiling
from dmljax.foundation.programs.store import ProgramStore
from dmljax.onnx.running.plan import Plan
from dmljax.run import onnxruntime as ort
from dmljax.run.onnxruntime import session as sessions

ADD = "f (float[N] x, float[N] y) => (float[N] z) { z = Add(x, y) }"
X = np.arange(4, dtype=np.float32)
FEED = {"x": X, "y": X + 1}


def session_of(graph: str) -> Any:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {graph}')
    return ort.InferenceSession(proto.SerializeToString())


@pytest.fixture(params=["kept by JAX", "kept in a folder"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Runs a test twice: as in a library, and as under `python -m dmljax.run`."""
    if request.param == "kept in a folder":
        compiling.keep_programs_in(ProgramStore(tmp_path))
    yield
    compiling.keep_programs_in(None)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Any]]:
    """Makes a list that gets an element for each call of a method or a function of a module."""

    def count_calls(owner: Any, name: str) -> list[Any]:
        calls: list[Any] = []
        function = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            calls.append(arguments)
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)
        return calls

    return count_calls


def ways_to_run(session: Any, feed: dict[str, Any]) -> list[Callable[[], Any]]:
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("z")

    def run_binding() -> Any:
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    return [
        lambda: session.run(None, feed),
        lambda: session.run(["z"], feed, ort.RunOptions()),
        lambda: [value.numpy() for value in session.run_with_ort_values(None, values)],
        run_binding,
    ]


@pytest.mark.usefixtures("programs")
def test_only_the_first_run_of_a_type_checks_and_traces(count: Callable[[Any, str], list[Any]]) -> None:
    session = session_of(ADD)
    checks, traces = count(sessions, "convert_feed"), count(Plan, "trace")
    (expected,) = session.run(None, FEED)
    assert (len(checks), len(traces)) == (2, 1)
    for run in ways_to_run(session, FEED):
        (result,) = run()
        np.testing.assert_array_equal(result, expected)
        assert result.flags.writeable
    assert (len(checks), len(traces)) == (2, 1)
    session.run(None, {"x": X[:3], "y": X[:3]})
    assert (len(checks), len(traces)) == (4, 2)


@pytest.mark.usefixtures("programs")
def test_a_hundred_threads_compile_one_program(count: Callable[[Any, str], list[Any]]) -> None:
    session = session_of(ADD)
    traces, results = count(Plan, "trace"), dict[int, Any]()
    barrier = threading.Barrier(100)

    def run(number: int) -> None:
        barrier.wait()
        results[number] = session.run(None, {"x": X, "y": np.full(4, number, np.float32)})[0]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(traces) == 1
    assert len(results) == 100
    assert all(np.array_equal(result, X + number) for number, result in results.items())


@pytest.mark.usefixtures("programs")
def test_runs_leave_no_memory_behind() -> None:
    for run in ways_to_run(session_of(ADD), FEED):
        for _ in range(20):
            run()
        gc.collect()
        tracemalloc.start()
        for _ in range(500):
            run()
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert left < 10_000  # 20 bytes a run


WRONG_RUNS: dict[str, Callable[[Any], Any]] = {
    "an input is missing": lambda s: s.run(None, {"x": X}),
    "an input is unknown": lambda s: s.run(None, {**FEED, "w": X}),
    "an array has another type": lambda s: s.run(None, {"x": X, "y": X.astype(np.float64)}),
    "an array has a wider type": lambda s: s.run(None, {"x": X.astype(np.int64), "y": X}),
    "an array has another rank": lambda s: s.run(None, {"x": X, "y": X[None]}),
    "sizes differ": lambda s: s.run(None, {"x": X, "y": X[:2]}),
    "an array has a mask": lambda s: s.run(None, {"x": X, "y": np.ma.masked_array(X, X > 1)}),
    "a value is none": lambda s: s.run(None, {"x": X, "y": None}),
    "a feed is a list": lambda s: s.run(None, [X, X]),
    "names are a text": lambda s: s.run("z", FEED),
    "a name is unknown": lambda s: s.run(["y"], FEED),
    "a name is a number": lambda s: s.run([5], FEED),
    "options are a number": lambda s: s.run(None, FEED, 5),
    "arrays are no values": lambda s: s.run_with_ort_values(None, FEED),
    "options of values are a number": lambda s: s.run_with_ort_values(None, FEED, 5),
}


@pytest.mark.parametrize("name", WRONG_RUNS)
def test_a_wrong_run_raises_the_same_after_right_ones(name: str) -> None:
    session = session_of(ADD)
    with pytest.raises((DmlError, AttributeError, TypeError)) as before:
        WRONG_RUNS[name](session)
    for run in ways_to_run(session, FEED):
        run()
    with pytest.raises(type(before.value)) as after:
        WRONG_RUNS[name](session)
    assert str(after.value) == str(before.value)


@pytest.mark.usefixtures("programs")
def test_runs_keep_64_bit_types() -> None:
    session = session_of("f (int64[N] x, double[N] y) => (int64[N] z, double[N] w) { z = Neg(x)  w = Neg(y) }")
    feed = {"x": np.array([2**40]), "y": np.array([1e300])}
    for _ in range(2):
        integer, real = session.run(None, feed)
        assert (integer.dtype, real.dtype) == (np.int64, np.float64)
        assert (integer.tolist(), real.tolist()) == ([-(2**40)], [-1e300])
    assert session.run(["w", "z", "w"], feed) == [real, integer, real]


@pytest.mark.usefixtures("programs")
def test_a_scalar_and_one_with_a_shape_take_different_programs() -> None:
    session = session_of("f (float x) => (float z) { z = Neg(x) }")
    for _ in range(2):
        for scalar in (np.float32(2), np.array(2, np.float32), np.array([2], np.float32)):
            (result,) = session.run(None, {"x": scalar})
            assert (result.shape, float(result.sum())) == (np.shape(scalar), -2)


@pytest.mark.usefixtures("programs")
def test_results_are_inputs_of_the_next_run(count: Callable[[Any, str], list[Any]]) -> None:
    session, traces = session_of("f (float[N] x) => (float[N] z) { z = Add(x, x) }"), count(Plan, "trace")
    value = ort.OrtValue.ortvalue_from_numpy(X)
    for _ in range(5):
        (value,) = session.run_with_ort_values(None, {"x": value})
    np.testing.assert_array_equal(value.numpy(), 32 * X)
    assert len(traces) <= 2  # for NumPy's array and for JAX's


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("node", ["z = Identity(x)", "z = Add(x, x)"])
def test_the_memory_of_a_value_may_change_after_a_run(node: str) -> None:
    session = session_of(f"f (float[N] x) => (float[N] z) {{ {node} }}")
    value = ort.OrtValue.ortvalue_from_shape_and_type([100_000], np.float32)
    assert value.data_ptr() % 64 == 0  # so that XLA reads it where it is
    for _ in range(4):
        value.update_inplace(np.ones(100_000, np.float32))
        (result,) = session.run_with_ort_values(None, {"x": value})
        value.update_inplace(np.full(100_000, 5, np.float32))
        assert result.numpy().max() <= 2


def test_options_of_jax_reach_later_runs(count: Callable[[Any, str], list[Any]]) -> None:
    session, traces = session_of(ADD), count(Plan, "trace")
    for _ in range(2):
        session.run(None, FEED)
        with jax.default_matmul_precision("highest"):
            session.run(None, FEED)
    assert len(traces) == 2
    with jax.disable_jit():
        session.run(None, FEED)
    assert len(traces) == 3
    with jax.debug_nans(True), pytest.raises((FloatingPointError, RuntimeWarning)):
        session.run(None, {"x": np.full(4, np.inf, np.float32), "y": np.full(4, -np.inf, np.float32)})


def test_errors_of_run_async_arrive_after_right_runs_too() -> None:
    session, errors = session_of(ADD), list[str]()
    ended = threading.Event()

    def end(results: list[Any], user_data: Any, error: str) -> None:
        errors.append(error)
        ended.set()

    for feed in (FEED, FEED, {"x": X, "y": X[:2]}):
        ended.clear()
        session.run_async(None, feed, end, None)
        assert ended.wait(60)
    assert errors[:2] == ["", ""]
    assert "y must have size 4 for N, like x" in errors[2]


@pytest.mark.usefixtures("programs")
def test_a_session_keeps_a_number_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmljax.run.onnxruntime.programs.MOST_PROGRAMS", 3)
    client = jax.devices()[0].client
    session = session_of(ADD)
    session.run(None, FEED)
    gc.collect()
    before, most = len(client.live_executables()), 0
    for size in range(5, 13):
        found = session.run(None, {"x": np.ones(size, np.float32), "y": np.ones(size, np.float32)})
        np.testing.assert_array_equal(found[0], np.full(size, 2, np.float32))
        gc.collect()
        most = max(most, len(client.live_executables()) - before)
    assert most == 2  # besides the first
