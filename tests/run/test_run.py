"""Programs of foreign libraries run unchanged, in processes of their own."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import jax
import numpy as np
import onnx
import onnx.parser
import pytest
from helpers import FULL, GATE
from onnx import TensorProto, helper
from onnx_models import small_network
from small_language_models import VOCABULARY, Reference, language_proto, write_folder

import dmljax.run
from dmljax.foundation import interrupts
from dmljax.onnx import language_model


def printed(program: str, folder: Path, *arguments: str, runner: str | None = "dmljax.run") -> str:
    """The output of a program, run by a module of dmljax, or by Python itself."""
    (folder / "program.py").write_text(textwrap.dedent(program))
    # The tests also run from copies of the package, so pass on the path.
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    command = [sys.executable, *(["-m", runner] if runner else []), "program.py", *arguments]
    ended = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# The runner


@GATE
def test_modules_stand_in_for_the_installed_ones(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import onnxruntime as session_maker\n")
    program = """\
        import sys
        import onnxruntime, pydirectml
        import onnxruntime.capi.onnxruntime_pybind11_state as state
        from helper import session_maker
        print(sys.argv, onnxruntime is session_maker, onnxruntime.__name__, pydirectml.__name__)
        print(state is onnxruntime.capi.onnxruntime_pybind11_state, hasattr(onnxruntime, "ModelCompiler"))
        try:
            import onnxruntime.training
        except ModuleNotFoundError as error:
            print(error)
    """
    absent = "No module named 'onnxruntime.training': dmljax's version of onnxruntime does not have it"
    expected = f"['program.py', 'a'] True dmljax.run.onnxruntime dmljax.pydirectml\nTrue False\n{absent}\n"
    assert printed(program, tmp_path, "a") == expected


def test_missing_names_are_reported() -> None:
    import dmljax.run.onnxruntime as ort
    import dmljax.run.onnxruntime_genai as og

    absent: list[tuple[Any, str, str]] = [
        (ort, "ModelCompiler", "onnxruntime.ModelCompiler: dmljax's version of onnxruntime does not have it"),
        (ort.InferenceSession, "from_file", "onnxruntime.InferenceSession.from_file: dmljax's version of onnxruntime"),
        (ort.RunOptions(), "add_adapter", "onnxruntime.RunOptions.add_adapter: dmljax's version of onnxruntime"),
        (ort.capi.onnxruntime_pybind11_state, "opkernel", "onnxruntime.capi.onnxruntime_pybind11_state.opkernel: "),
        (og, "Engine", "onnxruntime_genai.Engine: dmljax's version of onnxruntime_genai does not have it (it shares"),
        (og, "MtpGenerator", "onnxruntime_genai.MtpGenerator: dmljax's version of onnxruntime_genai"),
        (og.Images, "close", "onnxruntime_genai.Images.close: dmljax's version of onnxruntime_genai"),
    ]
    for place, name, message in absent:
        with pytest.raises(AttributeError) as error:
            getattr(place, name)
        assert str(error.value).startswith(message)
    with pytest.raises(AttributeError, match=r"SessionOptions\.threads: dmljax's version"):
        ort.SessionOptions().threads = 3
    with pytest.raises(AttributeError, match=r"Tensor\.name: dmljax's version"):
        og.Tensor(np.zeros(1)).name = "x"


# ONNX Runtime

KINDS = """\
<ir_version: 10, opset_import: ["": 21], producer_name: "tests", model_version: 3, doc_string: "all kinds",
 metadata_props: ["author": "nobody"]>
kinds (float[N, 3] x, int64[K] i, string[N] s, bool[2] b, float16[?, 1] h, double d, float[1, 3] w)
    => (float[N, 3] y, int64[K] j, string[N] t, bool[2] c, float16[?, 1] g, double e, seq(float[N, 3]) q, int64[2, M] z)
<float[1, 3] w = {1, 2, 3}>
{
    y = Mul(x, w)
    j = Add(i, i)
    t = Identity(s)
    c = Not(b)
    g = Neg(h)
    e = Exp(d)
    q = SequenceConstruct(x, y)
    z = NonZero(x)
}
"""

SESSIONS = """\
import numpy as np
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
options.execution_mode, options.intra_op_num_threads = ort.ExecutionMode.ORT_SEQUENTIAL, 1
options.add_session_config_entry("session.set_denormal_as_zero", "1")
print(options.graph_optimization_level, options.execution_mode, options.intra_op_num_threads, options.logid)
print(options.get_session_config_entry("session.set_denormal_as_zero"))
session = ort.InferenceSession("kinds.onnx", options, providers=["CPUExecutionProvider"])
print(session.get_providers(), session.get_provider_options())
for one in [*session.get_inputs(), *session.get_overridable_initializers()]:
    print(one, one.name, one.type, one.shape)
print([(one.name, one.type) for one in session.get_outputs()], session.get_outputs()[0].shape)
meta = session.get_modelmeta()
print(meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.version, meta.custom_metadata_map)

feed = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "i": np.array([2**40, 3]),
    "s": np.array(["a", "bc"]),
    "b": np.array([True, False]),
    "h": np.ones((2, 1), np.float16),
    "d": np.array(1.5),
}
results = session.run(None, feed, ort.RunOptions())
print(results)
print([one.dtype if isinstance(one, np.ndarray) else type(one) for one in results])
print(session.run(["j", "y"], {**feed, "x": feed["x"].tolist(), "w": np.ones((1, 3), np.float32)}))
results[0][0, 0] = 7  # results can be written to

for change in ({"x": feed["i"]}, {"x": feed["x"][0]}, {"x": feed["x"][:, :2]}, {"k": feed["i"]}):
    try:
        session.run(None, {**feed, **change})
    except InvalidArgument as error:
        print("refused", change.keys())
for wrong, call in [
    (ValueError, lambda: session.run(None, {})),
    (InvalidArgument, lambda: session.run(["none"], feed)),
    (NoSuchFile, lambda: ort.InferenceSession("none.onnx")),
    (TypeError, lambda: ort.InferenceSession(3)),
]:
    try:
        call()
    except wrong:
        print("refused")

options = ort.SessionOptions()
options.add_free_dimension_override_by_name("N", 2)
fixed = ort.InferenceSession("kinds.onnx", options, providers=["CPUExecutionProvider"])
print(fixed.get_inputs()[0].shape)
try:
    fixed.run(None, {**feed, "x": feed["x"][:1]})
except InvalidArgument:
    print("refused")

network = ort.InferenceSession(open("network.onnx", "rb").read(), providers=["CPUExecutionProvider"])
x = np.linspace(-1, 1, 96, dtype=np.float32).reshape(2, 3, 4, 4)
y, = network.run(None, {network.get_inputs()[0].name: x})
print(y.shape, y.dtype, np.round(y, 4))

value = ort.OrtValue.ortvalue_from_numpy(x)
print(value.device_name(), value.shape(), value.data_type(), value.element_type(), value.tensor_size_in_bytes())
print(value.is_tensor(), value.has_value(), value.is_tensor_sequence(), np.array_equal(value.numpy(), x))
print(np.round(network.run_with_ort_values(["y"], {"x": value})[0].numpy(), 4))
binding = network.io_binding()
binding.bind_cpu_input("x", x)
binding.bind_output("y")
network.run_with_iobinding(binding)
print(np.round(binding.copy_outputs_to_cpu()[0], 4), binding.get_outputs()[0].shape())
x[:] = 0  # a bound array is read anew
filled, memory = ort.OrtValue.ortvalue_from_shape_and_type([2, 5], np.float32), np.empty((2, 5), np.float32)
binding.bind_ortvalue_output("y", filled)
network.run_with_iobinding(binding)
print(np.round(filled.numpy(), 4))
binding.bind_input("x", "cpu", 0, np.float32, x.shape, value.data_ptr())
binding.bind_output("y", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
x[:] = 1
network.run_with_iobinding(binding)
print(np.round(memory, 4))
filled.update_inplace(memory + 1)
print(np.round(np.asarray(filled), 4))
"""


def kinds() -> onnx.ModelProto:
    return onnx.parser.parse_model(KINDS)


@GATE
def test_a_program_of_onnx_runtime_prints_the_same(tmp_path: Path) -> None:
    onnx.save(kinds(), tmp_path / "kinds.onnx")
    onnx.save(small_network(), tmp_path / "network.onnx")
    ours, theirs = (printed(SESSIONS, tmp_path, runner=runner) for runner in ("dmljax.run", None))
    assert ours == theirs
    assert ours.count("refused") == 9


@pytest.fixture(scope="module")
def ort() -> Any:
    import dmljax.run.onnxruntime

    return dmljax.run.onnxruntime


def kinds_feed() -> dict[str, Any]:
    """A feed for `kinds`."""
    return {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "i": np.array([2**40, 3]),
        "s": np.array(["a", "bc"]),
        "b": np.array([True, False]),
        "h": np.ones((2, 1), np.float16),
        "d": np.array(1.5),
    }


def session_of(ort: Any, graph: str) -> Any:
    """A session of a graph in ONNX's text."""
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>' + graph)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


NEG = "g (float[N, 3] x) => (float[N, 3] y) { y = Neg(x) }"


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({}, r"Required inputs \(\['x'\]\) are missing from input feed \(\[\]\)\."),
        (
            {"x": np.zeros((2, 4), np.float32)},
            "Got invalid dimensions for input: x for the following indices\n index: 1 ",
        ),
        ({"x": np.zeros(3, np.float32)}, "INVALID_ARGUMENT : Invalid rank for input: x Got: 1 Expected: 2 Please fix"),
        (
            {"x": np.zeros((2, 3))},
            r"Unexpected input data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)",
        ),
        ({"x": [[1.0], 2.0]}, "Could not create tensor from given input list"),
        ({"x": np.zeros((1, 3), np.float32), "z": np.zeros(1)}, "INVALID_ARGUMENT : Invalid input name: z"),
    ],
)
def test_feeds_that_do_not_fit_raise_the_errors_of_onnx_runtime(ort: Any, feed: dict[str, Any], words: str) -> None:
    import onnxruntime

    with pytest.raises(Exception, match=words) as ours:
        session_of(ort, NEG).run(None, feed)
    with pytest.raises(Exception, match=words) as theirs:
        session_of(onnxruntime, NEG).run(None, feed)
    ours_state, their_state = (each.capi.onnxruntime_pybind11_state for each in (ort, onnxruntime))
    for base in (ValueError, TypeError, RuntimeError):
        assert isinstance(ours.value, base) == isinstance(theirs.value, base)
    assert isinstance(ours.value, ours_state.InvalidArgument) == isinstance(theirs.value, their_state.InvalidArgument)


def test_names_of_outputs_may_be_any_collection(ort: Any) -> None:
    import onnxruntime

    feed = {"x": np.ones((1, 3), np.float32)}
    collections: list[Callable[[], Any]] = [
        lambda: {"y"},
        lambda: ("y",),
        lambda: (name for name in ["y"]),
        lambda: {"y": 1}.keys(),
        lambda: np.array(["y"]),
        list,
    ]
    for library in (ort, onnxruntime):
        session = session_of(library, NEG)
        for make in collections:
            for _ in range(2):
                np.testing.assert_array_equal(session.run(make(), feed), [-feed["x"]])


def wrong_calls(ort: Any) -> list[Any]:
    """Calls with arguments of wrong types."""
    session = session_of(ort, NEG)
    feed: dict[Any, Any] = {"x": np.zeros((1, 3), np.float32)}
    return [
        lambda: session.run("y", feed),
        lambda: session.run([5], feed),
        lambda: session.run(None, {"x": np.zeros((1, 3), "datetime64[s]")}),
        lambda: session.run(None, {"x": "text"}),
        lambda: session.run(None, {"x": 3.0}),
        lambda: session.run(None, {"x": np.zeros((1, 3), np.complex64)}),
        lambda: session.run(None, ["x"]),
        lambda: session.run(None, feed, 5),
        lambda: session.run(None, {**feed, 5: feed["x"]}),
        lambda: session.run_with_ort_values(None, feed),
        lambda: session.run_with_iobinding(5),
        lambda: session.run_async(None, {}, print, None),
        lambda: session.run_with_iobinding(session.io_binding()),
        lambda: session.io_binding().bind_cpu_input("x", [1.0]),
        lambda: session.io_binding().bind_ortvalue_output("y", feed["x"]),
        lambda: ort.InferenceSession(kinds().SerializeToString(), 5, ["CPUExecutionProvider"]),
        lambda: setattr(ort.SessionOptions(), "intra_op_num_threads", "x"),
        lambda: setattr(ort.SessionOptions(), "intra_op_num_threads", 2**40),
        lambda: setattr(ort.SessionOptions(), "graph_optimization_level", 1),
        lambda: setattr(ort.SessionOptions(), "enable_mem_reuse", "x"),
        lambda: setattr(ort.RunOptions(), "logid", 5),
        lambda: ort.SessionOptions().add_session_config_entry("a", 5),
        lambda: ort.SessionOptions().add_free_dimension_override_by_name("N", "x"),
        lambda: session.run({"y": 1}, feed),
        lambda: session.run(["y", None], feed),
        lambda: session.run_async(None, feed, 5, None),
        lambda: session.run_with_iobinding(session_of(ort, NEG).io_binding()),
        lambda: session.io_binding().bind_output("y", "cpu", 0, np.float32, "x", feed["x"].ctypes.data),
        lambda: session.io_binding().bind_input("x", "cpu", 0, np.float32, (1, 3), "x"),
        lambda: session.io_binding().bind_cpu_input(5, feed["x"]),
        lambda: ort.OrtValue.ortvalue_from_shape_and_type(5, np.float32),
        lambda: ort.OrtValue.ortvalue_from_shape_and_type([2], np.str_),
        lambda: ort.OrtDevice.make("cpu", "x"),
        lambda: ort.set_seed("x"),
        lambda: ort.set_default_logger_severity("x"),
        lambda: ort.set_default_logger_severity(9),
        lambda: ort.set_default_logger_verbosity("x"),
    ]


def test_arguments_of_wrong_types_raise_the_kinds_of_onnx_runtime(ort: Any) -> None:
    import onnxruntime

    for ours, theirs in zip(wrong_calls(ort), wrong_calls(onnxruntime), strict=True):
        with pytest.raises((AttributeError, RuntimeError, TypeError, ValueError)) as their_error:
            theirs()
        kind = next(
            each for each in (AttributeError, RuntimeError, TypeError, ValueError) if each in their_error.type.__mro__
        )
        with pytest.raises(kind):
            ours()


@pytest.mark.parametrize(
    ("graph", "kind"),
    [
        ("g (float[N] x) => (float[N] y) { y = Foo(x) }", "InvalidGraph"),
        ("g (float[N] x) => (float[N] y) { y = Neg(z) }", "InvalidArgument"),
        (
            "g (float[N] x, bool c) => (float[M] y)"
            "{ y = If(c) <then_branch = t () => (float[A] u) { u = Neg(q) }, else_branch = e () => (float[B] v)"
            "{ v = Abs(x) }> }",
            "InvalidGraph",
        ),
        ("g (float[N] x) => (float[N] z) { y = Neg(x) }", "Fail"),
        (b"", "InvalidArgument"),
        (b"nothing", "InvalidProtobuf"),
        (".", "InvalidProtobuf"),
    ],
    ids=["operator", "name", "name in a branch", "output", "empty bytes", "other bytes", "folder"],
)
def test_models_that_do_not_load_raise_the_classes_of_onnx_runtime(ort: Any, graph: Any, kind: str) -> None:
    import onnxruntime

    for library in (ort, onnxruntime):
        is_graph = isinstance(graph, str) and graph != "."
        load = session_of if is_graph else lambda library, source: library.InferenceSession(source)
        with pytest.raises(getattr(library.capi.onnxruntime_pybind11_state, kind)):
            load(library, graph)


def test_options_convert_numbers(ort: Any) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.enable_mem_pattern = np.int64(2), 1
    assert type(options.intra_op_num_threads) is int
    assert options.enable_mem_pattern is True


def test_classes_tell_their_options(ort: Any) -> None:
    for options, name in ((ort.SessionOptions, "execution_mode"), (ort.RunOptions, "log_severity_level")):
        assert hasattr(options, name)
        assert name in dir(options)
        assert not hasattr(options, "threads")


def test_programs_derive_sessions(ort: Any) -> None:
    class Session(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, model: bytes) -> None:
            super().__init__(model, providers=["CPUExecutionProvider"])
            self.model = model

    graph = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>{NEG}')
    session = Session(graph.SerializeToString())
    assert session.model == graph.SerializeToString()
    assert (session._providers, session._provider_options) == (["CPUExecutionProvider"], {"CPUExecutionProvider": {}})
    with pytest.raises(AttributeError, match=r"onnxruntime\.InferenceSession\.path: dmljax's version of onnxruntime"):
        _ = session.path


def test_a_session_knows_the_path_of_its_model(ort: Any, tmp_path: Path) -> None:
    graph = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>{NEG}')
    path = tmp_path / "m.onnx"
    path.write_bytes(graph.SerializeToString())
    assert ort.InferenceSession(path)._model_path == ort.InferenceSession(str(path))._model_path == str(path)
    assert ort.InferenceSession(graph.SerializeToString())._model_path is None


def test_a_session_may_have_no_inputs(ort: Any) -> None:
    session = session_of(ort, "g () => (float[2] y) { y = Constant<value_floats = [1.0, 2.0]>() }")
    (y,) = session.run(None, {})
    np.testing.assert_array_equal(y, np.array([1, 2], np.float32))


def test_scalars_may_have_any_shape(ort: Any) -> None:
    session = session_of(ort, "g (float x, float[2] k) => (float y) { y = Neg(x) }")
    k = np.zeros(2, np.float32)
    for shape in ((), (1,), (2, 3)):
        (y,) = session.run(None, {"x": np.ones(shape, np.float32), "k": k})
        assert (y.shape, y.dtype, (y == -1).all()) == (shape, np.float32, True)


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[N, 4] x) => (float[N, A] a, float[N, B] b) { a, b = Split<axis=1, num_outputs=2>(x) }",
        "g (float[N, 4] x) => (a, b) { a, b = Split<axis=1, num_outputs=2>(x) }",
        "g (float[N, 4] x) => (float[A, B] y) { y = Concat<axis=1>(x, x) }",
        "g (float[N, 4] x) => (float[?, ?] y) { y = Neg(x) }",
        "g (float[N, 4] x) => (float[A, B] y) <int64[2] s = {2, -1}> { y = Reshape(x, s) }",
        "g (float[N, 4] x) => (float[A, B] y) <float[4, 1] w = {1, 2, 3, 4}> { y = MatMul(x, w) }",
        "g (float[N, 4] x) => (int64[K] y) { y = Shape(x) }",
        # An unknown size, and one that nodes compute from a shape.
        "g (float[N, 4] x) => (y) { y = NonZero(x) }",
        "g (float[N, 4] x) => (y) <int64 i = {0}, int64[1] a = {0}, int64[1] m = {4}>"
        "{ s = Shape(x)  n = Gather(s, i)  u = Unsqueeze(n, a)  t = Concat<axis=0>(u, m)  y = Reshape(x, t) }",
        "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }",
        "g (optional(float[N, 3]) x) => (bool y) { y = OptionalHasElement(x) }",
    ],
)
def test_sizes_are_those_of_onnx_runtime(ort: Any, graph: str) -> None:
    import onnxruntime

    ours, theirs = (
        [(each.name, each.type, each.shape) for each in (*session.get_inputs(), *session.get_outputs())]
        for session in (session_of(ort, graph), session_of(onnxruntime, graph))
    )
    assert ours == theirs


def test_overrides_of_open_sizes_reach_the_outputs(ort: Any) -> None:
    import onnxruntime

    shapes = []
    for library in (ort, onnxruntime):
        options = library.SessionOptions()
        options.add_free_dimension_override_by_name("N", 2)
        model = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 21]> g (float[N, 4] x) => (float[A, B] y) { y = Neg(x) }'
        )
        session = library.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        shapes.append(session.get_outputs()[0].shape)
    assert shapes[0] == shapes[1] == [2, 4]


def test_an_optional_may_be_left_out(ort: Any) -> None:
    session = session_of(ort, "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }")
    assert not session.run(None, {})[0]
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0]


def test_bindings_clear_their_outputs(ort: Any) -> None:
    session = session_of(ort, NEG)
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.ones((1, 3), np.float32))
    with pytest.raises(RuntimeError, match="Error in execution: At least one output should be requested"):
        session.run_with_iobinding(binding)
    binding.bind_output("y")
    assert [value.has_value() for value in binding.get_outputs()] == [False]
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [[-1, -1, -1]]
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []
    with pytest.raises(RuntimeError, match="At least one output"):
        session.run_with_iobinding(binding)


def test_run_async_runs_in_another_thread(ort: Any) -> None:
    session = session_of(ort, NEG)
    calls: Queue[tuple[Any, ...]] = Queue()
    may_end = threading.Event()

    def end(*arguments: Any) -> None:
        may_end.wait(60)
        calls.put((threading.current_thread() is threading.main_thread(), *arguments))

    session.run_async(None, {"x": np.ones((1, 3), np.float32)}, end, "user data")
    assert calls.empty()  # it returns before the callback does
    may_end.set()
    is_main, results, user_data, error = calls.get(timeout=60)
    assert (is_main, results[0].tolist(), user_data, error) == (False, [[-1, -1, -1]], "user data", "")
    session.run_async(None, {"x": np.ones((1, 4), np.float32)}, end, None)
    is_main, results, _, error = calls.get(timeout=60)
    assert (is_main, results) == (False, [])
    assert error.startswith(
        "Got invalid dimensions for input: x for the following indices\n index: 1 Got: 4 Expected: 3"
    )


def test_values_are_updated_in_place(ort: Any) -> None:
    array = np.zeros((2, 3), np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(np.arange(6, dtype=np.float32).reshape(3, 2).T)
    assert array.tolist() == [[0, 2, 4], [1, 3, 5]]
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(np.ones((3, 2), np.float32)))  # as many elements
    assert array.tolist() == [[1, 1, 1], [1, 1, 1]]
    result = session_of(ort, NEG).run_with_ort_values(None, {"x": value})[0]
    new = np.ones((2, 3), np.float32)
    result.update_inplace(new)
    new[:] = 2  # the value has a copy
    assert result.numpy().tolist() == [[1, 1, 1], [1, 1, 1]]
    with pytest.raises(TypeError, match=r"data must be a NumPy array or an OrtValue; got \[1.0\]"):
        value.update_inplace([1.0])
    for wrong in (np.zeros((2, 4), np.float32), np.zeros((2, 3))):
        with pytest.raises(RuntimeError, match=r"data must be tensor\(float\) of shape \(2, 3\); got float"):
            value.update_inplace(wrong)


def test_values_share_memory_through_dlpack(ort: Any) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert np.from_dlpack(value).ctypes.data == value.data_ptr() == array.ctypes.data
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(value), array)
    for source in (array, array.__dlpack__()):
        shared = ort.OrtValue.from_dlpack(source)
        assert (shared.shape(), shared.data_type()) == ([2, 3], "tensor(float)")
        shared.update_inplace(np.full((2, 3), 7, np.float32))
        assert (array == 7).all()
        array[:] = 0
    result = session_of(ort, NEG).run_with_ort_values(
        None, {"x": ort.OrtValue.from_dlpack(jax.numpy.ones((1, 3), "float32"))}
    )[0]
    assert result.__dlpack_device__() == (1, 0)
    assert np.from_dlpack(result).tolist() == [[-1, -1, -1]]
    bfloat = ort.OrtValue.ortvalue_from_numpy(array.astype(jax.numpy.bfloat16))
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(bfloat._get_c_value()), array.astype(jax.numpy.bfloat16))
    with pytest.raises(TypeError, match="data must be an array or a capsule of DLPack; got 5"):
        ort.OrtValue.from_dlpack(5)
    with pytest.raises(RuntimeError, match="data must be contiguous"):
        ort.OrtValue.from_dlpack(array.T)


def test_sparse_values_are_refused_with_the_reason(ort: Any) -> None:
    with pytest.raises(
        AttributeError, match=r"onnxruntime.SparseTensor: .* \(dmljax has no sparse values, because XLA"
    ):
        _ = ort.SparseTensor
    with pytest.raises(RuntimeError, match=r"^onnxruntime: as_sparse_tensor: dmljax has no sparse values, because XLA"):
        ort.OrtValue.ortvalue_from_numpy(np.zeros(1)).as_sparse_tensor()
    with pytest.raises(RuntimeError, match=r"^onnxruntime: ort_value_from_sparse_tensor: dmljax has no sparse values"):
        ort.OrtValue.ort_value_from_sparse_tensor(None)


def test_sessions_report_what_is_wrong(ort: Any) -> None:
    session = ort.InferenceSession(kinds().SerializeToString())
    with pytest.raises(
        Exception, match=r"^Required inputs \(\['i', 's', 'b', 'h', 'd'\]\) are missing from input feed"
    ):
        session.run(None, {"x": np.zeros((1, 3), np.float32)})
    state = ort.capi.onnxruntime_pybind11_state
    feed = kinds_feed()
    with pytest.raises(state.InvalidArgument, match=r"INVALID_ARGUMENT : Invalid input name: xx \(the inputs are x, i"):
        session.run(None, feed | {"xx": feed["x"]})
    with pytest.raises(state.InvalidArgument, match=r"Invalid output name:yy \(the outputs are y, j"):
        session.run(["yy"], feed)
    rule = "INVALID_PROTOBUF : Failed to load model because protobuf parsing failed: not an ONNX model"
    with pytest.raises(state.InvalidProtobuf, match=rf"^\[ONNXRuntimeError\] : 7 : {rule}"):
        ort.InferenceSession(b"nothing")
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="must be among the inputs: x, i, s, b, h, d, w; got 'v'"):
        binding.bind_cpu_input("v", np.zeros(1))
    with pytest.raises(RuntimeError, match=r"terminate must be False, because a compiled program runs to its end"):
        ort.RunOptions().terminate = True
    with pytest.raises(RuntimeError, match=r"device_type must be cpu or dml with index 0"):
        ort.OrtValue.ortvalue_from_numpy(np.zeros(1), "cuda")


def test_providers_are_names(ort: Any) -> None:
    model = small_network().SerializeToString()
    session = ort.InferenceSession(model, providers=[("DmlExecutionProvider", {"device_id": 0})])
    assert session.get_providers() == ["DmlExecutionProvider", "CPUExecutionProvider"] == ort.get_available_providers()
    assert session.get_provider_options()["DmlExecutionProvider"] == {"device_id": "0"}
    with pytest.warns(UserWarning, match="Specified provider 'CUDAExecutionProvider' is not in available"):
        session.set_providers(["CUDAExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    state = ort.capi.onnxruntime_pybind11_state
    with pytest.raises(state.NotImplemented, match=r"DmlExecutionProvider.device_id must be 0; got 1 \(JAX chooses"):
        session.set_providers(["DmlExecutionProvider"], [{"device_id": 1}])
    options = ort.SessionOptions()
    options.add_provider("DmlExecutionProvider", {})
    assert ort.InferenceSession(model, options).get_providers()[0] == "DmlExecutionProvider"


@GATE
def test_random_nodes_draw_new_numbers_in_each_run(ort: Any) -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[4])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(proto.SerializeToString())

    def drawn(seed: int) -> list[list[float]]:
        ort.set_seed(seed)
        return [session.run(None, {})[0].tolist() for _ in range(2)]

    first = drawn(3)
    assert first == drawn(3)
    assert first[0] != first[1]
    assert first != drawn(4)


# GenAI

LETTERS = [chr(code) for code in range(ord("0"), ord("0") + VOCABULARY - 3)]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}#{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small language model, whose tokens are letters and "</s>"."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = write_folder(tmp_path_factory.mktemp("model"))
    words = {word: i for i, word in enumerate(["<pad>", "<s>", "</s>", *LETTERS])}
    reader = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    reader.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    reader.decoder = tokenizers.decoders.ByteLevel()
    reader.add_special_tokens(["<pad>", "<s>", "</s>"])
    reader.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    configuration = json.loads((folder / "genai_config.json").read_text())
    configuration["model"] |= {"type": "llama", "bos_token_id": 1, "pad_token_id": 0}
    configuration["model"]["decoder"] |= {"num_attention_heads": 4, "hidden_size": 80, "session_options": {}}
    (folder / "genai_config.json").write_text(json.dumps(configuration))
    return folder


TALK = """\
import json, sys
import numpy as np
import onnxruntime_genai as og

config = og.Config(sys.argv[1])
config.clear_providers()
config.overlay(json.dumps({"search": {"max_length": 40}, "model": {"eos_token_id": [int(sys.argv[2])]}}))
model = og.Model(config)
tokenizer = og.Tokenizer(model)
print(model.type, model.device_type, tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_ids.dtype)
print(tokenizer.encode("HELLO</s>").tolist(), tokenizer.to_token_id("</s>"), tokenizer.to_token_id("HELLO"))
print(tokenizer.decode(tokenizer.encode("HELLO</s>")), tokenizer.decode_batch(tokenizer.encode_batch(["AB", "C"])))
tokenizer.update_options(skip_special_tokens="false")
print(tokenizer.decode(np.array([40, 2])))
tokenizer.update_options(skip_special_tokens="true")
messages = json.dumps([{"role": "user", "content": "HI"}])
print(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
print(tokenizer.apply_chat_template(messages, template_str="{{ messages[0].content }}{{ eos_token }}"))

params = og.GeneratorParams(model)
params.set_search_options(do_sample=False, repetition_penalty=1.3)
options = params.get_search_options()
print(options["max_length"], options["top_k"], options["do_sample"], round(options["repetition_penalty"], 3))
generator = og.Generator(model, params)
stream = tokenizer.create_stream()
for text in ("HELLO", "AGAIN"):  # a conversation
    generator.append_tokens(tokenizer.encode(text))
    print(generator.get_logits().shape, generator.get_logits().dtype)
    while not generator.is_done():
        generator.generate_next_token()
        print(stream.decode(generator.get_next_tokens()[0]), end="")
    print(generator.token_count(), generator.get_sequence(0).tolist())
generator.rewind_to(3)
generator.append_tokens(tokenizer.encode("P"))
generator.generate_next_token()
print(generator.get_sequence(0).tolist())
generator.rewind_to(0)
generator.append_tokens([40])
generator.generate_next_token()
print(generator.get_sequence(0).tolist())

params = og.GeneratorParams(model)
params.set_search_options(batch_size=2, max_length=16, repetition_penalty=1.3)
generator = og.Generator(model, params)
generator.append_tokens(tokenizer.encode_batch(["HELLO", "AG"]))
while not generator.is_done():
    generator.generate_next_token()
print(generator.get_sequence(0).tolist(), generator.get_sequence(1).tolist(), generator.token_count())
for call in (lambda: generator.append_tokens([[3], [4]]), lambda: params.set_search_options(none=1)):
    try:
        call()
    except RuntimeError:
        print("refused")
"""
HELLO, AGAIN = ([3 + LETTERS.index(letter) for letter in text] for text in ("HELLO", "AGAIN"))


PENALTY = np.float32(1.3)


@pytest.fixture(scope="module")
def reference() -> Reference:
    """The model in ONNX Runtime."""
    return Reference(language_proto())


def answer(reference: Reference, tokens: list[int]) -> list[int]:
    """The likeliest tokens, up to 40 in all, where each one counts less once it is there."""
    sequence = [*tokens]
    while len(sequence) < 40:
        logits = reference.logits(sequence)[-1].copy()
        repeated = logits[np.unique(sequence)]
        logits[np.unique(sequence)] = np.where(repeated > 0, repeated / PENALTY, repeated * PENALTY)
        sequence.append(int(np.argmax(logits)))
    return sequence


def end_of_answer(reference: Reference) -> int:
    """A token that ends the answer to HELLO after a few tokens."""
    news = answer(reference, HELLO)[len(HELLO) :]
    return next(token for i, token in enumerate(news) if i > 1 and token not in news[:i])


@GATE
def test_a_generator_yields_a_token_at_a_time(folder: Path, reference: Reference) -> None:
    import dmljax.run.onnxruntime_genai as og

    params = og.GeneratorParams(model := og.Model(str(folder)))
    params.set_search_options(max_length=9, repetition_penalty=1.3)
    generator = og.Generator(model, params)
    with pytest.raises(
        RuntimeError, match=r"^onnxruntime_genai: there are no tokens yet \(append_tokens gives some\)$"
    ):
        generator.generate_next_token()
    generator.append_tokens(HELLO)
    expected = answer(reference, HELLO)
    while not generator.is_done():
        generator.generate_next_token()
        assert generator.get_next_tokens().tolist() == [expected[generator.token_count() - 1]]
    assert generator.get_sequence(0).tolist() == expected[:9]
    np.testing.assert_allclose(generator.get_logits()[0, 0], reference.logits(expected[:9])[-1], rtol=1e-4, atol=1e-4)


@FULL
def test_a_generator_repeats_no_ngram(folder: Path, reference: Reference) -> None:
    import dmljax.run.onnxruntime_genai as og

    params = og.GeneratorParams(model := og.Model(str(folder)))
    params.set_search_options(no_repeat_ngram_size=2, max_length=9)
    generator = og.Generator(model, params)
    likeliest = int(np.argmax(reference.logits(HELLO)[-1]))
    tokens = [HELLO[-1], likeliest, *HELLO]  # so that it would be the second of the same two tokens
    generator.append_tokens(tokens)
    generator.generate_next_token()
    logits = reference.logits(tokens)[-1]
    logits[likeliest] = -np.inf
    assert generator.get_next_tokens().tolist() == [int(np.argmax(logits))]


@GATE
def test_layer_states_start_over_after_a_rewind(tmp_path: Path) -> None:
    import dmljax.run.onnxruntime_genai as og

    folder = write_folder(tmp_path / "stateful", has_state=True)
    model = og.Model(str(folder))
    generator = og.Generator(model, og.GeneratorParams(model))
    generator.append_tokens([4, 5, 6, 7, 8])
    generator.rewind_to(3)
    generator.append_tokens([9])
    expected = language_model(folder).logits([4, 5, 6, 9])[-1]
    np.testing.assert_allclose(generator.get_logits()[0, 0], expected, rtol=0, atol=1e-5)


@pytest.mark.full
def test_a_program_of_genai_prints_what_the_language_model_says(
    folder: Path, reference: Reference, tmp_path: Path
) -> None:
    end = end_of_answer(reference)
    lines = printed(TALK, tmp_path, str(folder), str(end)).splitlines()

    def answered(tokens: list[int], most: int = 40) -> list[int]:
        news = answer(reference, tokens)[len(tokens) :]
        return [*tokens, *news[: news.index(end) if end in news else len(news)]][:most]

    first = answered(HELLO)
    assert len(HELLO) < len(first) < 40
    rewound = [*HELLO[:3], 3 + LETTERS.index("P")]
    assert lines[:8] == [
        "llama CPU 1 0 int32",
        f"{[*HELLO, 2]} 2 -1",
        "HELLO ['AB', 'C']",
        "U</s>",
        "userHI</s>#",
        "HI</s>",
        "40.0 50.0 False 1.3",
        f"(1, 1, {VOCABULARY}) float32",
    ]
    second = answered([*first, *AGAIN])
    assert [line[line.index("[") :] for line in lines[8:11:2]] == [str(first), str(second)]
    assert lines[11:13] == [str(answered(prompt, len(prompt) + 1)) for prompt in (rewound, [40])]
    rows, count = lines[13].rsplit(" ", 1)
    row, other = json.loads(f"[{rows.replace('] [', '], [')}]")
    short, padding = answered(AGAIN[:2], 13), [0] * 3
    assert row[: len(first)] == first[:16]
    assert other[: len(short) + 3] == [*short[:2], *padding, *short[2:]]
    assert len(row) == len(other) == int(count)
    assert lines[14:] == ["refused"] * 2


def test_a_program_of_genai_prints_the_same(folder: Path, reference: Reference, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_genai")
    end = str(end_of_answer(reference))
    ours, theirs = (printed(TALK, tmp_path, str(folder), end, runner=runner) for runner in ("dmljax.run", None))
    assert ours == theirs


def test_the_cache_is_turned_off_by_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os, sys; assert os.environ['DMLJAX_NO_CACHE'] == '1'; sys.exit(len(sys.argv))")
    monkeypatch.delenv("DMLJAX_NO_CACHE")
    monkeypatch.setattr(interrupts, "install_for_programs", lambda: None)
    monkeypatch.setattr(sys, "argv", ["run", "--no-cache", str(program), "x"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    with pytest.raises(SystemExit) as stopped:
        dmljax.run.main("dmljax.run")
    assert stopped.value.code == 2
