"""Reading a model takes time in proportion to its file, whatever is wrong with it."""

import contextlib
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from dmljax.dxdispatch.model import InvalidModel
from dmljax.dxdispatch.reader import load

PAD = "\n" + " " * 8191  # so that what is looked through again for each finding shows
ONE_BYTE = "'initialValuesDataType': 'INT8', 'initialValues': [1]"


def model(resources: str = "", dispatchables: str = "", commands: str = "") -> str:
    return f"{{'resources': {{{resources}}}, 'dispatchables': {{{dispatchables}}}, 'commands': [{commands}]}}"


def halves_of(values: str) -> str:
    return model(f"'x': {{'initialValuesDataType': 'FLOAT16', 'initialValues': [{values}]}}")


def hardmax_with(flags: str) -> str:
    tensor = f"{{'DataType': 'FLOAT32', 'Sizes': [1, 1], 'Flags': [{flags}]}}"
    return f"'max': {{'type': 'ACTIVATION_HARDMAX', 'InputTensor': {tensor}}}"


def padded(part: str, count: int) -> str:
    """`part` so often, with its number for each #."""
    return ",".join(PAD + part.replace("#", str(i)) for i in range(count))


def halves(count: int) -> str:
    return halves_of(padded("70000", count))


def names_again(count: int) -> str:
    return model(padded(f"'x': {{{ONE_BYTE}}}", count))


def wrong_resources(count: int) -> str:
    return model(padded("'r#': 3", count))


def unknown_fields(count: int) -> str:
    fields = padded("'f#': 3", count)
    return model(f"'x': {{{ONE_BYTE}, {fields}}}")


def struct(count: int) -> str:
    elements = padded("{'type': 'FLOAT16', 'value': 70000}", count)
    return model(f"'x': {{'initialValues': [{elements}]}}")


def wrong_commands(count: int) -> str:
    return model(commands=padded("{'type': 'print', 'resource': 'x'}", count))


def wrong_dispatches(count: int) -> str:
    command = "{'type': 'dispatch', 'dispatchable': 'max', 'bindings': {'InputTensor': 'x', 'Outputs': 1}}"
    return model("", hardmax_with(""), padded(command, count))


def wrong_flags(count: int) -> str:
    return model("", hardmax_with(padded("'F'", count)))


def long_names_of_places(count: int) -> str:
    name, fields = "x" * 8192 * count, padded("'f#': 3", count)
    return model(f"'{name}': {{{fields}}}")


def long_names_nearby(count: int) -> str:
    resources = ",".join(f"'{'x' * 40 * count}{i}': 3" for i in range(200))
    return model(resources, "", padded("{'type': 'print', 'resource': 'x'}", count))


def fields_of_no_operator(count: int) -> str:
    fields = ",".join(f"'f{i}': 1" for i in range(40 * count))
    return model("", f"'add': {{'type': 'ELEMENT_WISE_ADD1', 'FusedActivation': {{'Type': 'NONE', {fields}}}}}")


def many_dimensions(count: int) -> str:
    sizes = ",".join(["4294967295"] * (40 * count))
    command = f"{{'type': 'writeFile', 'resource': 'x', 'targetPath': 'x.npy', 'dimensions': [{sizes}]}}"
    return model(f"'x': {{{ONE_BYTE}}}", "", command)


def deep_targets(count: int) -> str:
    target = f"#/{'a/' * 400}x"
    return model(
        f"'x': {{{ONE_BYTE}}}", "", padded(f"{{'type': 'writeFile', 'resource': 'x', 'targetPath': '{target}'}}", count)
    )


def seconds(path: Path, text: str) -> float:
    """What reading the model takes the processor, which others may use as well: the least of some times."""
    path.write_text(text.replace("'", '"'))
    took = []
    for _ in range(3):
        begin = time.process_time()
        with contextlib.suppress(InvalidModel):
            load(path)
        took.append(time.process_time() - begin)
        if took[-1] > 5:
            break
    return min(took)


@pytest.mark.parametrize(
    "model_of",
    [
        halves,
        pytest.param(names_again, marks=pytest.mark.full),
        wrong_resources,
        pytest.param(unknown_fields, marks=pytest.mark.full),
        struct,
        pytest.param(wrong_commands, marks=pytest.mark.full),
        pytest.param(wrong_dispatches, marks=pytest.mark.full),
        pytest.param(wrong_flags, marks=pytest.mark.full),
        long_names_of_places,
        pytest.param(long_names_nearby, marks=pytest.mark.full),
        fields_of_no_operator,
        pytest.param(many_dimensions, marks=pytest.mark.full),
        pytest.param(deep_targets, marks=pytest.mark.full),
    ],
)
def test_eight_times_as_much_takes_no_square_of_it(tmp_path: Path, model_of: Callable[[int], str]) -> None:
    few, many = (seconds(tmp_path / "model.json", model_of(count)) for count in (100, 800))
    assert many < 24 * few + 0.05  # what is looked through again for each finding takes 64 times as long


@pytest.mark.parametrize(
    "text",
    [
        halves_of("70000," * 200_000),
        model(f"'x': {{{ONE_BYTE}}},\n" * 20_000),
        model("//\n" * 5_000_000 + ",".join(f"'r{i}': 3" for i in range(1000))),
        model("", hardmax_with("'F'," * 100_000)),
    ],
    ids=["halves", "names", "resources", "flags"],
)
def test_a_model_of_some_megabytes_takes_seconds(tmp_path: Path, text: str) -> None:
    assert seconds(tmp_path / "model.json", text) < 6


def test_places_deep_inside_take_no_room_for_their_surroundings(tmp_path: Path) -> None:
    text = '{"x":' * 60 + "[" + "{}," * 50_000 + "]" + "}" * 60
    (tmp_path / "model.json").write_text(text)
    tracemalloc.start()
    with pytest.raises(InvalidModel):
        load(tmp_path / "model.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 * 50_000


def test_targets_deep_inside_folders_take_no_room_for_these(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(deep_targets(500).replace(PAD, "").replace("'", '"'))
    tracemalloc.start()
    load(tmp_path / "model.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * 800 * 500


def test_the_first_of_very_many_repeated_names_are_told(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"resources": {"x": 1' + ',\n"x": 1' * 5000 + "}}")
    with pytest.raises(InvalidModel) as refused:
        load(tmp_path / "model.json")
    assert len(refused.value.findings) == 1001
    assert [finding.line for finding in refused.value.findings[:4]] == [2, 3, 4, 5]
    assert {finding.path for finding in refused.value.findings[:1000]} == {"resources.x"}
