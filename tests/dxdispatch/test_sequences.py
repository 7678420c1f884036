"""Dispatches as one graph: the same bits as one by one, wherever their tensors lie in buffers."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import SAMPLED, needs_x32
from hypothesis import HealthCheck, given, settings, strategies as st
from models import MODELS, dispatch, listed, load_model, run, tensor, zeros

from dmljax.dxdispatch import (
    Dispatched,
    DispatchModel,
    Execution,
    InvalidModel,
    Printed,
    Repetition,
    fuse,
    fusion,
    load,
)
from dmljax.dxdispatch.model import Dispatch
from dmljax.graphs.graph import Graph


def identity(input: dict[str, Any], output: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ELEMENT_WISE_IDENTITY", "InputTensor": input, "OutputTensor": output}


def binary(name: str, like: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"ELEMENT_WISE_{name}", "ATensor": like, "BTensor": like, "OutputTensor": like}


def shown(*resources: str) -> list[dict[str, Any]]:
    return [{"type": "print", "resource": name} for name in resources]


ONCE = Repetition()


def printed_text(model: DispatchModel, repetition: Repetition = ONCE) -> list[list[int]]:
    """The values that a model prints, bit for bit."""
    execution = Execution(model)
    results = [execution.result(index, repetition) for index in range(len(model.commands))]
    return [result.values.view(np.uint8).tolist() for result in results if isinstance(result, Printed)]


def sequences(model: DispatchModel) -> list[str]:
    return [command.dispatchable for command in model.commands if isinstance(command, Dispatch)]


FOUR = tensor("FLOAT32", 4)
SQUARE = binary("MULTIPLY", FOUR)
SUM = binary("ADD", FOUR)
X = [0.1, 0.7, -1.3, 2.9]
XYZ = {"x": listed("FLOAT32", X), "y": zeros("FLOAT32", 4), "z": zeros("FLOAT32", 4)}


def chain(folder: Path, *, prints: tuple[str, ...] = ("z",), **resources: Any) -> DispatchModel:
    """x * x -> y, y + y -> z."""
    resources = XYZ | resources
    commands = [
        dispatch("square", ATensor="x", BTensor="x", OutputTensor="y"),
        dispatch("sum", ATensor="y", BTensor="y", OutputTensor="z"),
        *shown(*prints),
    ]
    return load_model(folder, resources, {"square": SQUARE, "sum": SUM}, commands)


def test_consecutive_dispatches_become_one(tmp_path: Path) -> None:
    model = chain(tmp_path)
    fused = fuse(model)
    assert list(fused.dispatchables) == sequences(fused) == ["square + sum"]
    assert isinstance(fused.dispatchables["square + sum"].desc, Graph)
    result = Execution(fused).result(0)
    assert isinstance(result, Dispatched)
    assert (result.dispatchable, len(result.milliseconds)) == ("square + sum", 1)
    assert printed_text(fused) == printed_text(model)
    assert (fused.numbers, fused.command_place(1)) == ([(0, 1), (2,)], ("commands", 2))
    assert (fuse(fused).numbers, sequences(fuse(fused))) == (fused.numbers, ["square + sum"])


def test_only_buffers_that_others_read_are_written(tmp_path: Path) -> None:
    for prints, y in ((("z",), [0] * 4), (("y", "z"), np.square(np.array(X, "float32")).tolist())):
        model = chain(tmp_path, prints=prints)
        execution = Execution(fuse(model))
        execution.result(0)
        assert execution.values("y").tolist() == y
        assert printed_text(fuse(model)) == printed_text(model)


def test_routing_fuses_as_far_as_offsets_allow() -> None:
    model = load(MODELS / "top1_routing.json")
    assert sequences(fuse(model)) == ["route + list", "fetch"]
    assert printed_text(fuse(model)) == printed_text(model)


def test_products_are_rounded_between_dispatches(tmp_path: Path) -> None:
    """x * x - y, where y is x * x: a fused multiply-add would leave what the rounding took away."""
    like = tensor("FLOAT32", 1000)
    values = np.random.default_rng(0).normal(size=1000).astype("float32")
    resources = {"x": listed("FLOAT32", values.tolist()), "y": listed("FLOAT32", (values * values).tolist())}
    resources |= {"product": zeros("FLOAT32", 1000), "rest": zeros("FLOAT32", 1000)}
    dispatchables = {"times": binary("MULTIPLY", like), "minus": binary("SUBTRACT", like)}
    commands = [
        dispatch("times", ATensor="x", BTensor="x", OutputTensor="product"),
        dispatch("minus", ATensor="product", BTensor="y", OutputTensor="rest"),
        *shown("rest"),
    ]
    model = fuse(load_model(tmp_path, resources, dispatchables, commands))
    assert sequences(model) == ["times + minus"]
    assert not run(model).values("rest").any()


def two_steps(
    folder: Path, write: dict[str, Any], read: dict[str, Any], at_write: int = 0, at_read: int = 0
) -> tuple[DispatchModel, DispatchModel]:
    """A model that copies x to parts of y, and parts of y to z, and the same model fused."""
    resources = {"x": listed("UINT8", list(range(1, 65))), "y": listed("UINT8", [255] * 64), "z": zeros("UINT8", 64)}
    dispatchables = {
        "write": identity({name: write[name] for name in ("DataType", "Sizes")}, write),
        "read": identity(read, {name: read[name] for name in ("DataType", "Sizes")}),
    }
    commands = [
        dispatch("write", InputTensor="x", OutputTensor={"name": "y", "elementOffset": at_write}),
        dispatch("read", InputTensor={"name": "y", "elementOffset": at_read}, OutputTensor="z"),
        *shown("y", "z"),
    ]
    model = load_model(folder, resources, dispatchables, commands)
    return model, fuse(model)


@SAMPLED
@pytest.mark.parametrize(
    ("write", "read", "at_write", "at_read", "is_one"),
    [
        (tensor("FLOAT32", 2, 3), tensor("FLOAT32", 3, 2), 0, 0, True),
        (tensor("FLOAT32", 2, 3), tensor("FLOAT32", 2), 0, 0, True),
        (tensor("FLOAT32", 2, 3, Strides=[1, 2]), tensor("FLOAT32", 6), 0, 0, True),
        (tensor("FLOAT32", 2, 3), tensor("UINT8", 24), 16, 16, True),
        (tensor("UINT8", 8), tensor("UINT16", 3), 0, 0, True),
        (tensor("FLOAT32", 2, 2, Strides=[4, 2]), tensor("FLOAT32", 1, 2, 2, Strides=[9, 4, 2]), 0, 0, True),
        (tensor("FLOAT32", 2, 2, Strides=[4, 2]), tensor("FLOAT32", 7), 0, 0, False),  # also reads the gaps
        (tensor("FLOAT32", 2, 2, Strides=[4, 2]), tensor("FLOAT32", 2, 2, Strides=[2, 4]), 0, 0, False),
        (tensor("UINT8", 5), tensor("UINT8", 8), 0, 0, False),  # also reads the padding at the end
        (tensor("UINT8", 5), tensor("UINT8", 5), 0, 0, True),
        (tensor("FLOAT32", 6), tensor("FLOAT32", 2), 0, 4, False),  # begins in the middle
        (tensor("FLOAT32", 2), tensor("FLOAT32", 6), 4, 0, False),  # around
        (tensor("FLOAT32", 2), tensor("FLOAT32", 2), 16, 0, True),  # elsewhere
        (tensor("FLOAT32", 2), tensor("FLOAT32", 2), 8, 0, True),
        (tensor("FLOAT32", 2), tensor("UINT8", 9), 8, 0, False),
    ],
)
def test_an_edge_passes_on_the_same_bits_as_a_buffer(
    write: Any, read: Any, at_write: int, at_read: int, is_one: bool, tmp_path: Path
) -> None:
    model, fused = two_steps(tmp_path, write, read, at_write, at_read)
    assert (len(sequences(fused)) == 1) is is_one
    assert printed_text(fused) == printed_text(model)


def test_data_of_two_dispatches_comes_from_the_buffer(tmp_path: Path) -> None:
    halves = identity(tensor("FLOAT32", 2), tensor("FLOAT32", 2))
    commands = [
        dispatch("half", InputTensor="x", OutputTensor={"name": "y", "elementOffset": 2}),
        dispatch("half", InputTensor={"name": "x", "elementOffset": 2}, OutputTensor="y"),
        dispatch("all", InputTensor="y", OutputTensor="z"),
        *shown("z"),
    ]
    model = load_model(tmp_path, XYZ, {"half": halves, "all": identity(FOUR, FOUR)}, commands)
    assert sequences(fuse(model)) == ["half + half", "all"]
    assert (
        printed_text(fuse(model))
        == printed_text(model)
        == [np.array([*X[2:], *X[:2]], "float32").view(np.uint8).tolist()]
    )


def test_the_last_write_is_read(tmp_path: Path) -> None:
    commands = [
        dispatch("sum", ATensor="x", BTensor="x", OutputTensor="y"),
        dispatch("square", ATensor="x", BTensor="x", OutputTensor="y"),
        dispatch("sum", ATensor="y", BTensor="x", OutputTensor="z"),
        *shown("y", "z"),
    ]
    model = load_model(tmp_path, XYZ, {"sum": SUM, "square": SQUARE}, commands)
    fused = fuse(model)
    assert sequences(fused) == ["sum + square + sum"]
    assert len(fused.dispatchables["sum + square + sum"].desc.outputs) == 2  # type: ignore[union-attr]
    assert printed_text(fused) == printed_text(model)


def test_other_commands_and_graphs_separate_sequences(tmp_path: Path) -> None:
    (tmp_path / "gemm.bin").symlink_to(MODELS / "gemm.bin")
    twice = dispatch("sum", ATensor="x", BTensor="x", OutputTensor="y")
    again = dispatch("sum", ATensor="y", BTensor="x", OutputTensor="y")
    commands = [twice, again, *shown("y"), twice, dispatch("graph", x="x", y="y"), again, again, again, *shown("y")]
    dispatchables = {"sum": SUM, "graph": {"type": "dmlSerializedGraph", "sourcePath": "gemm.bin"}, "other": SUM}
    model = load_model(tmp_path, XYZ, dispatchables, commands)
    fused = fuse(model)
    assert sequences(fused) == ["sum + sum", "sum", "graph", "sum + sum + sum"]
    assert list(fused.dispatchables) == ["sum", "graph", "other", "sum + sum", "sum + sum + sum"]
    assert [fused.command_place(i)[1] for i in range(len(fused.commands))] == [0, 2, 3, 4, 5, 8]
    assert printed_text(fused) == printed_text(model)


def in_turns(
    folder: Path, *turns: tuple[str, str], owned: bool = False, prints: tuple[str, ...] = ("x", "y", "z")
) -> DispatchModel:
    """Squares from one resource to another."""
    flags = {"Flags": "OWNED_BY_DML"} if owned else {}
    square = binary("MULTIPLY", FOUR) | {"ATensor": FOUR | flags}
    square |= {"bindings": {"ATensor": "x"}} if owned else {}
    commands: list[dict[str, Any]] = [
        dispatch("square", BTensor=source, OutputTensor=target, **({} if owned else {"ATensor": source}))
        for source, target in turns
    ]
    return load_model(folder, XYZ, {"square": square}, [*commands, *shown(*prints)])


@pytest.mark.parametrize(
    ("turns", "count", "repeated_count"),
    [
        ([("x", "x"), ("x", "x")], 1, 2),
        ([("x", "y"), ("y", "x"), ("x", "y")], 1, 3),
        ([("x", "y"), ("y", "z"), ("z", "y")], 1, 1),
        ([("x", "y"), ("y", "y"), ("y", "z")], 1, 3),
        ([("x", "y"), ("z", "x")], 1, 2),
        ([("x", "y"), ("x", "z")], 1, 1),
        ([("y", "z"), ("x", "y")], 1, 2),
    ],
)
def test_dispatches_that_change_when_repeated_stay_apart(
    turns: list[tuple[str, str]], count: int, repeated_count: int, tmp_path: Path
) -> None:
    model = in_turns(tmp_path, *turns)
    once, repeated = fuse(model), fuse(model, is_repeated=True)
    assert (len(sequences(once)), len(sequences(repeated))) == (count, repeated_count)
    assert printed_text(once) == printed_text(model)
    for repetition in (Repetition(iterations=2), Repetition(runs=2), Repetition(iterations=2, runs=2)):
        assert printed_text(repeated, repetition) == printed_text(model, repetition)


def test_a_sequence_may_run_again(tmp_path: Path) -> None:
    model = in_turns(tmp_path, ("x", "x"), ("x", "y"), prints=("y",))  # only the sequence reads x
    results = []
    for execution in (run(model), run(fuse(model))):
        for index in range(len(execution.model.commands)):
            execution.result(index)
        results.append(execution.values("y").tolist())
    assert results[0] == results[1]


def test_owned_tensors_keep_their_initial_values(tmp_path: Path) -> None:
    model = in_turns(tmp_path, ("x", "x"), ("x", "x"), ("x", "y"), owned=True)
    for fused, repetition in ((fuse(model), ONCE), (fuse(model, is_repeated=True), Repetition(runs=2))):
        assert printed_text(fused, repetition) == printed_text(model, repetition)
    assert sequences(fuse(model)) == ["square + square + square"]


def test_fused_sequences_get_unused_names(tmp_path: Path) -> None:
    twice = [dispatch("sum", ATensor="x", BTensor="x", OutputTensor="y")] * 2
    others = [dispatch("sum + sum", ATensor="x", BTensor="x", OutputTensor="y")] * 2
    dispatchables = {"sum": SUM, "sum + sum": SUM, "sum + sum (2)": SUM}
    commands = [*twice, *shown("y"), *twice, *shown("y"), *others]
    model = fuse(load_model(tmp_path, XYZ, dispatchables, commands))
    assert sequences(model) == ["sum + sum (3)", "sum + sum (4)", "sum + sum + sum + sum"]
    assert list(model.dispatchables) == ["sum + sum (2)", *sequences(model)]


def test_fused_graphs_stay_small_enough_to_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "MAX_DISPATCHES", 2)
    model = in_turns(tmp_path, ("x", "y"), ("y", "x"), ("x", "y"), ("y", "x"), ("x", "z"))
    assert sequences(fuse(model)) == ["square + square", "square + square (2)", "square"]
    assert printed_text(fuse(model)) == printed_text(model)


@needs_x32
def test_sequence_errors_name_the_first_dispatch(tmp_path: Path) -> None:
    wide = identity(tensor("INT64", 2), tensor("INT64", 2))
    resources = {"x": listed("INT64", [1, 2]), "y": zeros("INT64", 2)}
    copy = dispatch("copy", InputTensor="x", OutputTensor="y")
    model = fuse(load_model(tmp_path, resources, {"copy": wide}, [*shown("x"), copy, copy]))
    with pytest.raises(InvalidModel, match=r"model.json:\d+: commands\[1\].nodes.*copy.* --x64 .*; got INT64"):
        Execution(model)


# Random models

SIZES = {"FLOAT32": 4, "FLOAT16": 2, "INT32": 4, "UINT8": 1}
PLACES = [0, 16, 32, 48]  # in buffers of 64 bytes


def drawn_model(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Some dispatches between three buffers, whose tensors overlap in all ways."""
    resources = {name: listed("UINT8", [rng.randrange(96) for _ in range(64)]) for name in "abc"}
    dispatchables: dict[str, Any] = {}
    commands: list[dict[str, Any]] = []
    used: list[tuple[str, dict[str, Any], int]] = []

    def bound(desc: dict[str, Any], *, is_input: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """Places a tensor in a buffer, often where another tensor was."""
        name, offset = rng.choice("abc"), rng.choice(PLACES)
        fitting = [
            pair for pair in used if pair[1]["DataType"] == desc["DataType"] and pair[1]["Sizes"] == desc["Sizes"]
        ]
        if is_input and fitting and rng.random() < 0.7:
            name, desc, offset = rng.choice(fitting)
        elif used and rng.random() < 0.5:
            name, _, offset = rng.choice(used)
        if not is_input:
            used.append((name, desc, offset))
        return desc, {"name": name, "elementOffset": offset}

    def strided(data_type: str, sizes: list[int]) -> dict[str, Any]:
        strides = rng.choice([None, None, [1, 2], [sizes[1], 1], [2 * sizes[1], 2], [sizes[1] + 1, 1]])
        desc = tensor(data_type, *sizes)
        end = sum((size - 1) * stride for size, stride in zip(sizes, strides or [0, 0], strict=True)) + 1
        is_apart = strides != [1, 2] or sizes[0] == 2
        return desc | {"Strides": strides} if strides and is_apart and end * SIZES[data_type] <= 16 else desc

    for i in range(rng.randint(2, 6)):
        data_type = rng.choice(list(SIZES))
        sizes = rng.choice([[2, 2], [1, 4], [4, 1], [1, 2], [1, 3]])
        name = rng.choice(["ADD", "MULTIPLY", "SUBTRACT", "IDENTITY", "IDENTITY"])
        members = ("Input",) if name == "IDENTITY" else ("A", "B")
        tensors, bindings = {}, {}
        for member in (*members, "Output"):
            key = f"{member}Tensor"
            tensors[key], bindings[key] = bound(strided(data_type, sizes), is_input=member != "Output")
        dispatchables[f"d{i}"] = {"type": f"ELEMENT_WISE_{name}"} | tensors
        commands.append(dispatch(f"d{i}", **bindings))
        if rng.random() < 0.1:
            commands += shown(rng.choice("abc"))
    return resources, dispatchables, [*commands, *shown(*rng.sample("abc", rng.randint(1, 3)))]


def computes_with_nan(model: DispatchModel) -> bool:
    """Whether arithmetic meets NaN, whose bits XLA need not preserve."""
    execution = Execution(model)
    for index, command in enumerate(model.commands):
        if not isinstance(command, Dispatch):
            continue
        dispatchable = model.dispatchables[command.dispatchable]
        for is_after in (False, True):
            for point in dispatchable.points:
                binding = command.bindings[point.key]
                values = point.tensor.read(execution.buffers[binding.resource][binding.offset_in_bytes :].data)
                is_meant = point.is_input is not is_after and point.tensor.dtype.kind == "f" and point.key != "input"
                if is_meant and np.isnan(values).any():
                    return True
            if not is_after:
                execution.result(index)
    return False


def test_dispatches_print_the_same_fused_or_not(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    outcomes: Counter[str] = Counter()

    count = pytestconfig.getoption("--models") // 16

    @settings(deadline=None, max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**64 - 1))
    def attempts(seed: int) -> None:
        rng = random.Random(seed)
        model = load_model(tmp_path, *drawn_model(rng))
        is_repeated = rng.random() < 0.3
        fused = fuse(model, is_repeated=is_repeated)
        repetition = Repetition(iterations=2, runs=rng.randint(1, 2)) if is_repeated else ONCE
        if computes_with_nan(model):
            outcomes["with NaN"] += 1
            return
        assert printed_text(fused, repetition) == printed_text(model, repetition)
        outcomes["fewer" if len(sequences(fused)) < len(sequences(model)) else "as many"] += 1

    attempts()
    assert outcomes["fewer"] > 0
