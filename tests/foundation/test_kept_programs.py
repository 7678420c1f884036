"""Compiled programs in a store: what is found there without tracing, and what is never taken."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx.parser
import pytest
from helpers import FULL, GATE
from jax.experimental.compilation_cache import compilation_cache

import dmljax.onnx
from dmljax.foundation.programs import compiling as programs
from dmljax.foundation.programs.compiling import Program, keep_programs_in, open_cache
from dmljax.foundation.programs.store import ProgramStore
from dmljax.onnx.model import loaded_graph
from dmljax.onnx.running.interpreter import Interpreter


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgramStore]:
    store = ProgramStore(tmp_path)
    folder = jax.config.values["jax_compilation_cache_dir"]  # XLA cannot serialize again what it is read from
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    keep_programs_in(store)
    yield store
    keep_programs_in(None)
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()


class Counted:
    """Makes programs of functions, and counts how often they are traced."""

    def __init__(self) -> None:
        self.traces = 0

    def program(self, function: Callable[..., Any], source: str = "source", **options: Any) -> Program:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.traces += 1
            return function(*arguments, **named)

        return Program(counted, "counted", source=lambda: source, **options)


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_a_program_that_another_process_compiled_is_not_traced(store: ProgramStore, counted: Counted) -> None:
    x = jnp.arange(4.0)
    for _ in range(3):
        results = counted.program(lambda x, *, y: {"sum": x + y["y"], "rest": [x, None]})(x, y={"y": x})
        assert results["sum"].tolist() == [0, 2, 4, 6]
        assert results["rest"][1] is None
    assert (counted.traces, store.size().entries) == (1, 1)


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        ({"source": "other"}, (jnp.zeros(2), 1)),
        ({}, (jnp.zeros(3), 1)),
        ({}, (jnp.zeros(2, jnp.float16), 1)),
        ({}, (jnp.zeros(2), 2)),
        ({}, (jnp.zeros(2), 1.0)),
        ({}, (jnp.asarray(0.0), 1)),
    ],
    ids=["source", "shape", "type", "static value", "static type", "rank"],
)
def test_a_program_of_something_else_is_not_taken(
    store: ProgramStore, counted: Counted, change: dict[str, str], arguments: Any
) -> None:
    def multiply(x: Any, factor: Any) -> Any:
        return x * factor

    counted.program(multiply, static_argnums=1)(jnp.zeros(2), 1)
    counted.program(multiply, static_argnums=1, **change)(*arguments)
    assert counted.traces == 2


def test_weak_types_are_kept_apart(store: ProgramStore, counted: Counted) -> None:
    half, one_program = jnp.ones((), jnp.float16), counted.program(lambda x, y: x + y)
    with jax.numpy_dtype_promotion("standard"):
        weak = jnp.asarray(1.0)
        for x, dtype in ((jnp.ones((), weak.dtype), weak.dtype), (weak, "float16")):
            assert counted.program(lambda x, y: x + y)(x, half).dtype == dtype
            assert one_program(x, half).dtype == dtype


def test_options_of_jax_are_kept_apart(store: ProgramStore, counted: Counted) -> None:
    x = np.ones((2, 2), np.float32)
    program = counted.program(lambda x: x @ x)
    for precision in (None, "highest", None, "highest"):
        with jax.default_matmul_precision(precision):
            program(x)
            counted.program(lambda x: x @ x)(x)
    assert counted.traces == 2


def test_a_program_of_another_version_or_processor_is_not_taken(
    store: ProgramStore, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted.program(jnp.sin)(jnp.zeros(2))
    monkeypatch.setattr(programs, "_environment", lambda: "another")
    counted.program(jnp.sin)(jnp.zeros(2))
    assert counted.traces == 2


def test_a_damaged_program_is_compiled_again(store: ProgramStore, counted: Counted) -> None:
    for _ in range(2):
        assert counted.program(jnp.cos)(jnp.zeros(2)).tolist() == [1, 1]
        for path in store.folder.iterdir():
            path.write_bytes(path.read_bytes()[:100])
    assert counted.traces == 2


def test_an_intact_program_that_xla_cannot_load_is_compiled_again(store: ProgramStore, counted: Counted) -> None:
    for _ in range(3):
        assert counted.program(jnp.cos)(jnp.zeros(2)).tolist() == [1, 1]
        if counted.traces == 1:
            (path,) = store.folder.iterdir()
            (program, *types), notes = pickle.loads(store.get(path.stem) or b"")
            store.put(path.stem, pickle.dumps(((program.replace(b"\x7fELF", b"?ELF"), *types), notes)))
    assert counted.traces == 2


def test_donated_arguments_are_used_up(store: ProgramStore, counted: Counted) -> None:
    for _ in range(2):
        x = jnp.arange(3.0) + 1
        assert counted.program(lambda x: x * 2, donate_argnums=0)(x).tolist() == [2, 4, 6]
        assert x.is_deleted()
    assert counted.traces == 1


def test_decisions_while_tracing_are_kept(store: ProgramStore) -> None:
    decisions: list[list[str]] = []
    for _ in range(2):
        notes: list[str] = []

        def function(x: Any, notes: list[str] = notes) -> Any:
            notes.append("decided")
            return x

        def take_notes(notes: list[str] = notes) -> list[str]:
            return notes

        program = Program(function, "noted", source=lambda: "", notes=take_notes, use_notes=decisions.append)
        program(jnp.zeros(2))
    assert decisions == [["decided"]]


def test_programs_inside_transformations_and_without_jit_are_not_kept(store: ProgramStore, counted: Counted) -> None:
    program = counted.program(lambda x: x * x)
    assert jax.grad(program)(3.0) == 6
    assert jax.vmap(program)(jnp.arange(3.0)).tolist() == [0, 1, 4]
    with jax.disable_jit():
        assert program(jnp.asarray(3.0)) == 9
    assert store.size().entries == 0


def test_arrays_on_several_devices_are_not_kept(store: ProgramStore, counted: Counted) -> None:
    mesh = jax.make_mesh((8,), ("data",))
    x = jax.device_put(jnp.arange(8.0), jax.NamedSharding(mesh, jax.P("data")))
    assert counted.program(lambda x: x + 1)(x).sharding == x.sharding
    assert store.size().entries == 0


# Models

HEAD = '<ir_version: 10, opset_import: ["": 21]> f (float[N, 3] x) => (float[N, M] y)'


def load(nodes: str, weights: str = "<float[3, 2] w = {1, 2, 3, 4, 5, 6}>", **options: Any) -> Any:
    return dmljax.onnx.load(onnx.parser.parse_model(f"{HEAD} {weights} {{ {nodes} }}"), **options)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that are run, traced or not."""
    operators: list[str] = []
    run_node = Interpreter.run_node

    def run(self: Interpreter, graph: Any, index: int, values: Any) -> None:
        operators.append(graph.nodes[index].operator)
        run_node(self, graph, index, values)

    monkeypatch.setattr(Interpreter, "run_node", run)
    return operators


@pytest.mark.parametrize(
    ("nodes", "in_parts"),
    [
        ("t = Transpose(w)  u = Transpose(t)  y = MatMul(x, u)", []),
        ("a = Abs(x)  n = NonZero(a)  c = Cast<to: int = 1>(n)  y = Transpose(c)", ["NonZero", "Cast", "Transpose"]),
    ],
    ids=["one program", "sizes that depend on values"],
)
def test_a_model_of_an_earlier_process_is_not_traced(
    store: ProgramStore, runs: list[str], nodes: str, in_parts: list[str]
) -> None:
    x = np.array([[1, 0, 2], [0, 3, 4]], np.float32)
    expected = np.asarray(load(nodes)(x))
    runs.clear()
    np.testing.assert_array_equal(load(nodes)(x), expected)
    left = [operator for operator in runs if operator != "Transpose" or in_parts]
    assert left == in_parts


def test_a_new_size_is_told_once(store: ProgramStore) -> None:
    lines: list[str] = []
    keep_programs_in(store, lines.append)
    model = load("y = MatMul(x, w)")
    for rows in (1, 2, 1, 3):
        model(np.ones((rows, 3), np.float32))
    (line,) = lines
    assert line.startswith("compiling the model again for x [2, 3], as for each new size of its inputs")
    load("y = MatMul(x, w)")(np.ones((2, 3), np.float32))
    assert len(lines) == 1, "the store has that program"
    other = load("y = MatMul(x, w)")
    for weights in (other.weights, {"w": jnp.zeros((3, 2))}):  # other weights need another program, but not other sizes
        other.apply(weights, np.ones((4, 3), np.float32))
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("other", "options"),
    [
        ({"weights": "<float[3, 2] w = {1, 2, 3, 4, 5, 7}>"}, {}),
        ({"nodes": "y = Gemm<alpha: float = 2.0>(x, w)"}, {}),
        ({"nodes": "y = Gemm<alpha: float = 0.5>(x, w)"}, {"maximum_sizes": "largest"}),
    ],
    ids=["weights", "attribute", "maximum_sizes"],
)
def test_a_program_of_another_model_is_not_taken(
    store: ProgramStore, other: dict[str, str], options: dict[str, Any]
) -> None:
    plain = {"nodes": "y = Gemm<alpha: float = 0.5>(x, w)"}
    load(**plain)(np.ones((1, 3), np.float32))
    before = store.size().entries
    changed = load(**(plain | other), **options)
    result = np.asarray(changed(np.ones((1, 3), np.float32)))
    assert store.size().entries > before
    keep_programs_in(None)
    np.testing.assert_array_equal(result, load(**(plain | other), **options)(np.ones((1, 3), np.float32)))


def test_a_part_of_a_model_and_its_additions_have_digests_of_their_own() -> None:
    model = load("y = MatMul(x, w)")
    loaded = loaded_graph(model)
    tuned = loaded_graph(model.with_low_rank(1, key=jax.random.key(0)))
    again = loaded_graph(load("y = MatMul(x, w)"))
    assert again.digest == loaded.digest != tuned.digest


# Processes


def test_the_library_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load("y = MatMul(x, w)")(np.ones((1, 3), np.float32))
    assert [*tmp_path.iterdir()] == []


def test_the_variable_turns_the_cache_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DMLJAX_NO_CACHE", "1")
    open_cache(print)
    assert programs._store is None


PROGRAM = """
import numpy, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
print(session.run(None, {"x": numpy.ones((1, 3), numpy.float32)})[0].tolist())
"""


@GATE
@pytest.mark.parametrize(
    "command", [["dmljax.run", "program.py"], pytest.param(["dmljax", "run", "model.onnx", "--quiet"], marks=FULL)]
)
@pytest.mark.parametrize("has_folder", [True, False])
def test_processes_keep_programs_in_the_users_cache(tmp_path: Path, command: list[str], has_folder: bool) -> None:
    load("y = MatMul(x, w)").save(tmp_path / "model.onnx")
    (tmp_path / "program.py").write_text(PROGRAM)
    if not has_folder:
        (tmp_path / "cache").touch()
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": paths, "DMLJAX_NO_CACHE": ""}
    counts = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        if has_folder:
            counts.append([*(tmp_path / "cache" / "dmljax").iterdir()])
            assert run.stderr == ""
        else:
            (line,) = run.stderr.splitlines()
            assert "compiled programs are not kept in" in line
    assert len(counts) in (0, 2)
    assert counts[:1] == counts[1:]
